/* One actor's own thread: see dedicated.h. */
#define _GNU_SOURCE
#include "actors/runtime/dedicated.h"

#include <pthread.h>
#include <stdio.h>

#include "base/check.h"
#include "base/thread.h"

#define DEDICATED_THREAD UINT32_MAX /* its number for the trace: none of the schedulers' */

static_assert(sizeof(pthread_t) == sizeof(unsigned long), "dedicated.h keeps pthread_t without its header");

static void *dedicated_main(void *arg)
{
    struct rn_dedicated *dedicated = arg;
    char name[16];

    snprintf(name, sizeof name, "rn-%s", dedicated->actor->class->name);
    pthread_setname_np(pthread_self(), name);
    for (;;) {
        uint32_t ticket = rn_wake_ticket(&dedicated->wake);

        /* After its last touch the actor sends no more edges, so it is not run again. */
        if (rn_edge_take(&dedicated->due))
            rn_runtime_run(dedicated->actor, DEDICATED_THREAD);
        else if (rn_word_get(&dedicated->stopping) != 0)
            return NULL;
        else
            rn_wake_wait(&dedicated->wake, ticket, dedicated->idle != NULL ? dedicated->idle(dedicated->actor) : -1, 0);
    }
}

struct rn_dedicated *rn_dedicated_new(struct rn_heap *heap, struct rn_actor *actor, rn_dedicated_idle_fn *idle)
{
    struct rn_dedicated *dedicated = rn_alloc_aligned(heap, sizeof *dedicated, 64);

    RN_ASSERT(actor->dedicated == NULL && actor->gone_msg == NULL);
    if (dedicated == NULL)
        return NULL;
    *dedicated = (struct rn_dedicated){.actor = actor, .heap = heap, .idle = idle};
    rn_wake_init(&dedicated->wake);
    if (!rn_thread_start((pthread_t *)&dedicated->thread, dedicated_main, dedicated)) {
        rn_free(heap, dedicated);
        return NULL;
    }
    actor->dedicated = dedicated;
    return dedicated;
}

void rn_dedicated_free(struct rn_dedicated *dedicated)
{
    if (dedicated == NULL)
        return;
    rn_word_set(&dedicated->stopping, 1);
    rn_wake_notify(&dedicated->wake);
    pthread_join((pthread_t)dedicated->thread, NULL);
    RN_ASSERT(rn_dedicated_check(dedicated));
    rn_free(dedicated->heap, dedicated);
}

bool rn_dedicated_check(const struct rn_dedicated *dedicated)
{
    /* Relaxed: the thread that lowers it has been joined. */
    uint32_t due = atomic_load_explicit(&((struct rn_dedicated *)(uintptr_t)dedicated)->due.up, memory_order_relaxed);

    return due == 0 && dedicated->actor->dedicated == dedicated && rn_word_get(&dedicated->stopping) == 1;
}

void rn_dedicated_wake(struct rn_dedicated *dedicated)
{
    rn_edge_raise(&dedicated->due);
    rn_wake_notify(&dedicated->wake);
}
