/* The prefill actor: admitted prompts wait here, oldest first, until decode has a lane for them. Lanes
 * bound how many prompts are computed side by side; decode cuts them into chunks that fill what its
 * running sequences leave of each step's budget, in turn. */
#ifndef RN_ACTORS_PREFILL_ACTOR_H
#define RN_ACTORS_PREFILL_ACTOR_H

#include "actors/request.h"
#include "actors/runtime.h"

/* Prompts computed side by side: enough that short ones pass a long one, few enough that each advances. */
#define RN_PREFILL_LANES 8

struct runnel_model;

struct rn_prefill {
    struct rn_actor actor; /* first */
    struct runnel_model *model;
    struct rn_request_queue waiting;
    uint32_t free_lanes;
};

void rn_prefill_init(struct rn_prefill *prefill, struct runnel_model *model);

#endif
