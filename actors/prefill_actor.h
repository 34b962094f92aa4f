/* The prefill actor: admitted prompts wait here until decode has a lane for them, in the order of fair_queue.h: by
 * priority, tenants in turn, by arrival. Lanes bound how many prompts are computed side by side; decode cuts them into
 * chunks that fill what its running sequences leave of each step's budget, in turn. Requests of negative priority, the
 * background, leave two lanes to others, so that a batch job's long prompts never hold up who comes in. A prompt
 * whose reader is behind gives its lane up before it holds up others (decode/stalls.c).
 *
 * A prompt of which a few rows are left to compute, the rest being shared, needs no lane: it is through in one step,
 * and a step with many such rows costs little more than one with a few. So 64 that waited for one prefix have their
 * first tokens in one step, not in eight. They keep the order of all others.
 *
 * A wish (CANCEL, EXPIRE, STOPPED, PREEMPT) follows its request to decode only where that has gone there. Of one that
 * has ended here, or gone back to the tier, no further wish is sent on: nothing would bound how many of them lie with
 * decode. */
#ifndef RN_ACTORS_PREFILL_ACTOR_H
#define RN_ACTORS_PREFILL_ACTOR_H

#include "actors/request.h"
#include "actors/runtime/runtime.h"
#include "actors/fair_queue.h"

struct rn_context;

struct rn_prefill {
    struct rn_actor actor; /* first */
    const struct rn_context *context;
    struct rn_fair_queue waiting;
    uint32_t free_lanes, n_background; /* lanes taken by requests of negative priority */
    uint32_t n_short;                  /* short prompts that decode has */
    uint32_t *offered;                 /* [max_streams]: generation of the slot's stream whose request has gone on to
                                          decode, and has not come here again; 0: none */
};

/* NO_MEMORY: nothing is held. */
runnel_status rn_prefill_init(struct rn_prefill *prefill, const struct rn_context *context);
void rn_prefill_fini(struct rn_prefill *prefill);

/* Lanes are counted; those that wait are in order, are computed nowhere, and the first of them cannot go on. Between
 * two batches of messages. */
bool rn_prefill_check(const struct rn_prefill *prefill);

#endif
