/* How the library makes its threads. A host's signal handlers run on the host's threads: in those made here all signals
 * are blocked but the ones that a thread raises by a fault of its own (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS,
 * SIGABRT), so that a handler which reports crashes hears of them. Used by actors/, the compute team and the emulated
 * driver of CUDA alone. */
#ifndef RN_BASE_THREAD_H
#define RN_BASE_THREAD_H

#include <pthread.h>
#include <stdbool.h>

/* Starts a thread that runs `run(argument)`; the caller joins it. The caller's own signals are as before. False: the
 * system has no thread, and *thread is not written. Any thread. */
bool rn_thread_start(pthread_t *thread, void *(*run)(void *), void *argument);

#endif
