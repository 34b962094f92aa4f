/* The sampler actor: the logits of a step → one token for each row that wants one. The sampling state
 * of a sequence belongs to its request and comes and goes with the batch; it is told of each token drawn
 * here, since of a sequence with drafts several are. */
#ifndef RN_ACTORS_SAMPLER_ACTOR_H
#define RN_ACTORS_SAMPLER_ACTOR_H

#include "actors/runtime/runtime.h"
#include "sampling/sampler.h"

struct rn_context;

struct rn_sampler_actor {
    struct rn_actor actor; /* first */
    const struct rn_context *context;
    struct rn_sampler_scratch *scratch;
};

runnel_status rn_sampler_actor_init(struct rn_sampler_actor *sampler, const struct rn_context *context);
void rn_sampler_actor_fini(struct rn_sampler_actor *sampler);

#endif
