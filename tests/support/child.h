/* Processes that tests start. */
#ifndef RN_TESTS_CHILD_H
#define RN_TESTS_CHILD_H

#include <stdbool.h>
#include <sys/types.h>

/* fork(); fails the test where it cannot. The child is killed when the thread that called this ends, whichever way, and
 * when what it runs as fails an assertion, it ends (SIGABRT) instead of going on with the parent's tests. */
pid_t child_fork(void);

/* Kills a child that runs until it is killed; fails the test if it had ended by itself. */
void child_kill(pid_t child);

/* Fails the test if the child has ended: for loops that wait for what it does. */
void child_runs(pid_t child);

#endif
