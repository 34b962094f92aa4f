/* What must end the process is done in a child. */
#ifndef RN_TESTS_BASE_ABORTS_H
#define RN_TESTS_BASE_ABORTS_H

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { ABORTS_NOT_BEGUN = 3 }; /* how an operation exits that could not set up what it needs */

/* True when the operation ends in an abort. Silent. */
static inline bool aborts(void (*operation)(const void *user), const void *user)
{
    int status;
    pid_t child;

    fflush(NULL);
    child = fork();
    if (child == 0) {
        signal(SIGABRT, SIG_DFL);
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        if (freopen("/dev/null", "w", stderr) == NULL)
            _exit(ABORTS_NOT_BEGUN);
        operation(user);
        _exit(0);
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_false(WIFEXITED(status) && WEXITSTATUS(status) == ABORTS_NOT_BEGUN);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

#endif
