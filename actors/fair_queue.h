/* Whose turn it is: requests that wait, in the order in which they should go on.
 *
 *   1. a higher priority first;
 *   2. among equals the tenants in turn, each by what its requests cost: start-time fair queueing (Goyal, Vin, Cheng,
 *      "Start-Time Fair Queueing", SIGCOMM 1996);
 *   3. else by arrival.
 *
 *   start tag of a request = max(finish tag of its tenant's last one here, the start tag that was served last)
 *   finish tag             = start tag + cost
 *
 * A tenant alone goes first come, first served; a tenant with one request never stands behind another's thousand. A
 * tenant of whom nothing waits is forgotten: being idle saves up nothing.
 *
 * Belongs to one actor. Entering, finding and taking compare a request with about log n of those that wait, whoever
 * they are of. Nothing is allocated: all links are the requests'. */
#ifndef RN_ACTORS_FAIR_QUEUE_H
#define RN_ACTORS_FAIR_QUEUE_H

#include "actors/request.h"

struct rn_fair_queue {
    struct rn_request *first, *last;         /* by `next` and turn.previous */
    struct rn_request *trees[RN_TURN_TREES]; /* the same requests, searched (fair_queue.c) */
    uint32_t n;
    uint64_t served;  /* start tag of the last one that was */
    uint64_t n_looks; /* at requests in trees, so far: for tests */
};

/* Enters a request that costs so much of what is shared (tokens). */
void rn_fair_queue_push(struct rn_fair_queue *turns, struct rn_request *request, uint64_t cost);

/* Puts a request that was taken back in front of `next`, where it was (NULL: at the end): it has not been served. */
void rn_fair_queue_put_back(struct rn_fair_queue *turns, struct rn_request *request, struct rn_request *next);

/* Ahead of all of its priority that came later: what it costs it has paid. For a request that had begun. */
void rn_fair_queue_push_front(struct rn_fair_queue *turns, struct rn_request *request);

/* Takes a request that is there. */
void rn_fair_queue_take(struct rn_fair_queue *turns, struct rn_request *request);

/* The request, taken, has had its turn. */
void rn_fair_queue_served(struct rn_fair_queue *turns, const struct rn_request *request);

/* The stream's request, and it stays; NULL when it is not there. */
struct rn_request *rn_fair_queue_find(struct rn_fair_queue *turns, uint32_t slot, uint32_t generation);

/* Takes the stream's request; NULL when it is not there. */
struct rn_request *rn_fair_queue_remove(struct rn_fair_queue *turns, uint32_t slot, uint32_t generation);

/* Linked both ways, each once, in the order of their turns, and so in each tree. Linear. */
bool rn_fair_queue_check(const struct rn_fair_queue *turns);

/* True when a is to have memory rather than b: of higher priority, or else here for longer. */
static inline bool rn_ranks_before(int32_t priority_a, uint64_t order_a, int32_t priority_b, uint64_t order_b)
{
    return priority_a != priority_b ? priority_a > priority_b : order_a < order_b;
}

#endif
