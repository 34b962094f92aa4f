/* Threads for the tests of this room: start a few, let them begin together, join them. Assertions
 * of cmocka belong to the main thread, so the others count failures and main asserts the count. */
#ifndef RN_TESTS_MAILBOX_THREADS_H
#define RN_TESTS_MAILBOX_THREADS_H

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>

#include "base/check.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define TEST_SLOWDOWN 8 /* sanitizers cost about that much */
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define TEST_SLOWDOWN 8
#endif
#endif
#ifndef TEST_SLOWDOWN
#define TEST_SLOWDOWN 1
#endif

#define MAX_THREADS 16
#define MAX_WAIT_US 120000000 /* a sleeper that is not woken within two minutes has been forgotten */

struct crew {
    pthread_t thread[MAX_THREADS];
    int n;
};

static inline void crew_start(struct crew *crew, void *(*run)(void *), void *user)
{
    RN_CHECK(crew->n < MAX_THREADS);
    RN_CHECK(pthread_create(&crew->thread[crew->n++], NULL, run, user) == 0);
}

static inline void crew_join(struct crew *crew)
{
    for (int i = 0; i < crew->n; i++)
        RN_CHECK(pthread_join(crew->thread[i], NULL) == 0);
    crew->n = 0;
}

/* Relaxed on purpose: a test's bookkeeping must not order what it watches. */
static inline uint64_t bump(_Atomic(uint64_t) *counter)
{
    return atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

static inline uint64_t peek(const _Atomic(uint64_t) *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

#endif
