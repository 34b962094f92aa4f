/* See child.h. */
#include "tests/support/child.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

pid_t child_fork(void)
{
    const pid_t parent = getpid();
    const struct rlimit no_core = {0, 0};
    pid_t child;

    fflush(NULL);
    child = fork();
    assert_true(child >= 0);
    if (child > 0)
        return child;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) /* it has ended before that */
        _exit(1);
    setrlimit(RLIMIT_CORE, &no_core);
    setenv("CMOCKA_TEST_ABORT", "1", 1); /* what cmocka does with a failed assertion */
    return 0;
}

static void fail_of(pid_t child, int status)
{
    fail_msg("the child %d has ended by itself: %s %d", (int)child, WIFSIGNALED(status) ? "signal" : "status",
             WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

void child_kill(pid_t child)
{
    int status;

    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
        fail_of(child, status);
}

void child_runs(pid_t child)
{
    int status;

    if (waitpid(child, &status, WNOHANG) != 0)
        fail_of(child, status);
}
