/* One actor's own thread: see lone.h. */
#define _GNU_SOURCE
#include "actors/runtime/lone.h"

#include <pthread.h>
#include <stdio.h>

#define LONE_THREAD UINT32_MAX /* its number for the trace: none of the schedulers' */

static void *lone_main(void *arg)
{
    struct rn_lone *lone = arg;
    char name[16];

    snprintf(name, sizeof name, "rn-%s", lone->actor->class->name);
    pthread_setname_np(pthread_self(), name);
    for (;;) {
        uint32_t ticket = rn_wake_ticket(&lone->wake);

        /* After its last touch the actor sends no more edges, so it is not run again. */
        if (rn_edge_take(&lone->due))
            rn_runtime_run(lone->actor, LONE_THREAD);
        else if (rn_word_get(&lone->stopping) != 0)
            return NULL;
        else
            rn_wake_wait(&lone->wake, ticket, lone->idle != NULL ? lone->idle(lone->actor) : -1, 0);
    }
}

struct rn_lone *rn_lone_new(struct rn_heap *heap, struct rn_actor *actor, rn_lone_idle_fn *idle)
{
    struct rn_lone *lone = rn_alloc_aligned(heap, sizeof *lone, 64);

    if (lone == NULL)
        return NULL;
    *lone = (struct rn_lone){.actor = actor, .heap = heap, .idle = idle};
    rn_wake_init(&lone->wake);
    if (pthread_create((pthread_t *)&lone->thread, NULL, lone_main, lone) != 0) {
        rn_free(heap, lone);
        return NULL;
    }
    actor->lone = lone;
    return lone;
}

void rn_lone_free(struct rn_lone *lone)
{
    if (lone == NULL)
        return;
    rn_word_set(&lone->stopping, 1);
    rn_wake_notify(&lone->wake);
    pthread_join((pthread_t)lone->thread, NULL);
    rn_free(lone->heap, lone);
}

void rn_lone_wake(struct rn_lone *lone)
{
    rn_edge_raise(&lone->due);
    rn_wake_notify(&lone->wake);
}
