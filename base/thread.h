/* How the library makes its threads. A host's signal handlers run on the host's threads: in those made here all signals
 * are blocked but the ones that a thread raises by a fault of its own (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP,
 * SIGSYS, SIGABRT), so that a handler which reports crashes hears of them. The floating-point environment is the
 * default one, whatever rounding, flush to zero or traps the host has set for its own threads: law 5 wants one. Used by
 * actors/, the compute team and the emulated driver of CUDA alone. */
#ifndef RN_BASE_THREAD_H
#define RN_BASE_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define RN_MOST_NICE 19u /* the lowest priority there is: of two threads that want a core it gets 1.4 % */

/* Starts a thread that runs `run(argument)`; the caller joins it. The caller's own signals and floating-point
 * environment are as before. False: the system has no thread, and *thread is not written. Any thread. */
bool rn_thread_start(pthread_t *thread, void *(*run)(void *), void *argument);

/* Adds to the calling thread's nice value, which is bounded by 19. The other threads' stay as they are: this is Linux's
 * notion of a thread's priority, and POSIX says it of a process. It cannot be taken back. False: the system refuses. */
bool rn_thread_lower(uint32_t nice);

#endif
