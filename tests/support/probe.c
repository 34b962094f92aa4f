/* A test program for selftest.sh: its tests do what tests with data and with children do, and some fail.
 *
 *   support_probe data NAME | data-and-failure NAME | assertion | ended | killed | orphan */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/child.h"
#include "tests/support/patience.h"
#include "tests/support/shared.h"

static const char *name;

static void with_data(void **state)
{
    char path[512];

    (void)state;
    if (!shared_find(name, path, sizeof path))
        skip();
}

static void failure(void **state)
{
    (void)state;
    fail();
}

/* Fails in the child alone. */
static void assertion(void **state)
{
    pid_t child = child_fork();
    int status;

    (void)state;
    if (child == 0)
        assert_true(false);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

/* Waits for what a child does that has ended: fails. */
static void ended(void **state)
{
    struct patience patience = {0};
    pid_t child = child_fork();

    (void)state;
    if (child == 0)
        _exit(3);
    while (patience_left(&patience))
        child_runs(child);
}

static void killed(void **state)
{
    pid_t child = child_fork();

    (void)state;
    for (; child == 0;)
        pause();
    child_runs(child);
    child_kill(child);
}

/* Is killed itself, as by a limit of time, when its child runs, which would do so for ever. */
static void orphan(void **state)
{
    int pipes[2];
    pid_t child;
    char byte = 0;

    (void)state;
    assert_int_equal(pipe(pipes), 0);
    child = child_fork();
    if (child == 0)
        assert_int_equal(write(pipes[1], &byte, 1), 1);
    for (; child == 0;)
        pause();
    assert_int_equal(read(pipes[0], &byte, 1), 1);
    printf("%d\n", (int)child);
    fflush(stdout);
    raise(SIGKILL);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(assertion), cmocka_unit_test(ended),     cmocka_unit_test(killed),
        cmocka_unit_test(orphan),    cmocka_unit_test(with_data), cmocka_unit_test(failure),
    };
    size_t i = 0;

    if (argc < 2)
        return 2;
    name = argv[argc - 1];
    if (strcmp(argv[1], "data") == 0)
        return _cmocka_run_group_tests("data", tests + 4, 1, NULL, NULL);
    if (strcmp(argv[1], "data-and-failure") == 0)
        return _cmocka_run_group_tests("data", tests + 4, 2, NULL, NULL);
    while (i < 4 && strcmp(tests[i].name, argv[1]) != 0)
        i++;
    return i < 4 ? _cmocka_run_group_tests("children", tests + i, 1, NULL, NULL) : 2;
}
