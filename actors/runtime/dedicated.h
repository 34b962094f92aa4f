/* A thread that runs one actor and no other: for an actor whose handlers may block (the mover). The actor is scheduled
 * as any other, on the empty→non-empty edge of its mailbox; only where it runs differs. The trace does not show it.
 *
 * It may have something to do from time to time besides: `idle`, which is called when no message is left. */
#ifndef RN_ACTORS_RUNTIME_DEDICATED_H
#define RN_ACTORS_RUNTIME_DEDICATED_H

#include "actors/runtime/runtime.h"

/* What is to be done when no message is left; returns after how many microseconds it wants to be called again if none
 * comes, -1: never. On the thread, also after the actor's last touch. */
typedef int64_t rn_dedicated_idle_fn(struct rn_actor *actor);

struct rn_dedicated {
    struct rn_wake wake;
    struct rn_edge due; /* the actor's mailbox has turned non-empty; raised by the sender that saw it */
    struct rn_word stopping;
    struct rn_actor *actor;
    rn_dedicated_idle_fn *idle; /* NULL: nothing */
    struct rn_heap *heap;
    unsigned long thread; /* pthread_t */
};

/* Starts the thread; until rn_dedicated_free the actor runs there. NULL: no memory or no thread, and nothing has
 * changed. The actor must not have been sent anything yet. */
struct rn_dedicated *rn_dedicated_new(struct rn_heap *heap, struct rn_actor *actor, rn_dedicated_idle_fn *idle);

/* Ends the thread; the actor must be gone, or never have been sent anything. NULL is allowed. */
void rn_dedicated_free(struct rn_dedicated *dedicated);

/* Once the thread has ended: it was the actor's, and nothing was sent that has not been handled. */
bool rn_dedicated_check(const struct rn_dedicated *dedicated);

/* The actor is to run. Any thread. */
void rn_dedicated_wake(struct rn_dedicated *dedicated);

#endif
