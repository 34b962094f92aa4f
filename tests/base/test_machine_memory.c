/* The machine's memory: made-up trees of proc/ and sys/, of both versions of control groups. */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/machine_memory.h"

#define MIB (1ull << 20)

static char root[] = "/tmp/runnel-memory-XXXXXX";

/* A file below the root with its folders. */
static void put(const char *name, const char *text)
{
    char path[PATH_MAX];
    FILE *file;

    snprintf(path, sizeof path, "%s/%s", root, name);
    for (char *slash = path + sizeof root; (slash = strchr(slash, '/')) != NULL; *slash++ = '/') {
        *slash = '\0';
        mkdir(path, 0700);
    }
    file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

static int begin(void **state)
{
    (void)state;
    memcpy(root + sizeof root - 7, "XXXXXX", 6);
    assert_non_null(mkdtemp(root));
    put("proc/meminfo", "MemTotal:       16777216 kB\nMemFree: 1 kB\nMemAvailable:    8388608 kB\n"); /* 8192 MiB */
    return 0;
}

static int end(void **state)
{
    char command[64];

    (void)state;
    snprintf(command, sizeof command, "rm -r %s", root);
    return system(command);
}

static void expect(uint64_t free, uint64_t bytes)
{
    struct rn_machine_memory memory = rn_machine_memory(root);

    assert_int_equal(memory.free, free);
    assert_int_equal(memory.bytes, bytes);
}

static void test_machine(void **state)
{
    (void)state;
    expect(8192 * MIB, 16384 * MIB);
    put("proc/self/cgroup", "0::/user/a\n");
    expect(8192 * MIB, 16384 * MIB); /* no such files */
    put("sys/fs/cgroup/user/a/memory.max", "max\n");
    put("sys/fs/cgroup/user/a/memory.current", "1\n");
    expect(8192 * MIB, 16384 * MIB);
}

static void test_second_version(void **state)
{
    (void)state;
    put("proc/self/cgroup", "0::/user/a\n");
    put("sys/fs/cgroup/user/a/memory.max", "max\n");
    put("sys/fs/cgroup/user/a/memory.current", "104857600\n");
    put("sys/fs/cgroup/user/memory.max", "1073741824\n"); /* 1024 MiB, of the group above */
    put("sys/fs/cgroup/user/memory.current", "419430400\n");
    expect(624 * MIB, 1024 * MIB);
    put("sys/fs/cgroup/user/memory.stat", "anon 5\ninactive_file 104857600\nactive_file 52428800\nfile 1\n");
    expect(774 * MIB, 1024 * MIB);
    put("sys/fs/cgroup/user/a/memory.max", "104857601\n"); /* the nearer one leaves less */
    expect(1, 100 * MIB + 1);
    put("sys/fs/cgroup/user/a/memory.max", "1\n");
    expect(1, 1);
    put("sys/fs/cgroup/user/a/memory.max", "0\n"); /* 0 would say that nothing is known */
    expect(1, 1);
    put("sys/fs/cgroup/user/a/memory.max", "max\n");
    put("sys/fs/cgroup/user/memory.max", "17179869185\n"); /* more than the machine has */
    expect(8192 * MIB, 16384 * MIB);
}

static void test_first_version(void **state)
{
    (void)state;
    put("proc/self/cgroup", "12:cpuset,cpu:/b\n4:hugetlb,memory:/docker/x\n0::/c\n");
    put("sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes", "536870912\n");
    put("sys/fs/cgroup/memory/docker/x/memory.usage_in_bytes", "209715200\n");
    put("sys/fs/cgroup/memory/docker/x/memory.stat", "inactive_file 9\ntotal_inactive_file 104857600\n");
    put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put("sys/fs/cgroup/memory/memory.usage_in_bytes", "4096\n");
    expect(412 * MIB, 512 * MIB);
}

/* The path is the host's, and the group is where groups are mounted. */
static void test_in_a_container(void **state)
{
    (void)state;
    put("proc/self/cgroup", "4:memory:/docker/x\n");
    put("sys/fs/cgroup/memory/memory.limit_in_bytes", "536870912\n");
    put("sys/fs/cgroup/memory/memory.usage_in_bytes", "0\n");
    expect(512 * MIB, 512 * MIB);
    put("proc/self/cgroup", "0::/\n");
    put("sys/fs/cgroup/memory.max", "268435456\n");
    put("sys/fs/cgroup/memory.current", "0\n");
    expect(256 * MIB, 256 * MIB);
}

static void test_nothing_is_known(void **state)
{
    (void)state;
    put("proc/meminfo", "MemTotal: 5 kB\n");
    expect(0, 5 * 1024);
    put("proc/meminfo", "rubbish\n");
    expect(0, 0);
    put("proc/self/cgroup", "0::/\nrubbish\n:\n::\n");
    put("sys/fs/cgroup/memory.max", "268435456\n");
    put("sys/fs/cgroup/memory.current", "0\n");
    expect(256 * MIB, 256 * MIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_machine, begin, end),
        cmocka_unit_test_setup_teardown(test_second_version, begin, end),
        cmocka_unit_test_setup_teardown(test_first_version, begin, end),
        cmocka_unit_test_setup_teardown(test_in_a_container, begin, end),
        cmocka_unit_test_setup_teardown(test_nothing_is_known, begin, end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
