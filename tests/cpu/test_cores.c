/* Machines with more processors than a cpu_set_t has bits: whoever asks for a mask shorter than the kernel's own is
 * refused. The two calls of the kernel are this file's: it plays one that was built for 4,096 processors, three of
 * which the process may use. What files below /sys say of such processors is nothing, so each is a core. */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "cpu/cores.h"
#include "cpu/nodes.h"

enum { POSSIBLE = 4096 };

static const int allowed[] = {1030, 2500, 4095};
static uint8_t stays[POSSIBLE / 8]; /* the mask that a thread asked for */

int sched_getaffinity(pid_t pid, size_t size, cpu_set_t *set)
{
    (void)pid;
    if (size < POSSIBLE / 8) {
        errno = EINVAL;
        return -1;
    }
    memset(set, 0, size);
    for (size_t i = 0; i < sizeof allowed / sizeof *allowed; i++)
        ((uint8_t *)set)[allowed[i] / 8] |= (uint8_t)(1 << allowed[i] % 8);
    return 0;
}

int sched_setaffinity(pid_t pid, size_t size, const cpu_set_t *set)
{
    (void)pid;
    memcpy(stays, set, size < sizeof stays ? size : sizeof stays);
    return 0;
}

static void test_list(void **state)
{
    static bool is_allowed[RN_MOST_PROCESSORS];
    uint32_t cores, n = 0;
    int list[4];

    (void)state;
    assert_int_equal(rn_cores_list(list, 4, &cores), 3);
    assert_int_equal(cores, 3);
    assert_memory_equal(list, allowed, sizeof allowed);
    assert_int_equal(rn_cores_allowed(is_allowed), 3);
    for (int i = 0; i < RN_MOST_PROCESSORS; i++)
        n += is_allowed[i] && (i == allowed[0] || i == allowed[1] || i == allowed[2]);
    assert_int_equal(n, 3);
}

static void put_file(const char *root, const char *name, const char *text)
{
    char path[256];
    FILE *file;

    snprintf(path, sizeof path, "%s/%s", root, name);
    file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

/* The second node has the last two; its workers stay on them. */
static void test_nodes(void **state)
{
    static const char *const folders[] = {"node", "node/node0", "node/node1"};
    char root[] = "/tmp/rn-cores-XXXXXX", text[256];
    uint8_t want[POSSIBLE / 8] = {0};
    static struct rn_nodes nodes;

    (void)state;
    assert_non_null(mkdtemp(root));
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        snprintf(text, sizeof text, "%s/%s", root, folders[i]);
        assert_int_equal(mkdir(text, 0700), 0);
    }
    put_file(root, "node/online", "0-1\n");
    put_file(root, "node/node0/cpulist", "0-2047\n");
    put_file(root, "node/node1/cpulist", "2048-4095\n");
    rn_nodes_read(&nodes, root);
    assert_int_equal(nodes.n, 2);
    assert_true(nodes.processors[0] == 1 && nodes.processors[1] == 2);
    assert_true(nodes.of[1030] == 0 && nodes.of[2500] == 1 && nodes.of[4095] == 1 && nodes.of[0] == RN_NO_NODE);
    rn_nodes_stay(&nodes, 1);
    want[2500 / 8] |= 1 << 2500 % 8;
    want[4095 / 8] |= 1 << 4095 % 8;
    assert_memory_equal(stays, want, sizeof want);
    snprintf(text, sizeof text, "rm -r %s", root);
    assert_int_equal(system(text), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_list), cmocka_unit_test(test_nodes)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
