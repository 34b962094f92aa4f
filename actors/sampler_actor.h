/* The sampler actor: the logits of a step → one token for each row that wants one. The sampling state of a sequence
 * belongs to its request and comes with the batch; here it is only read. A row of a draft is drawn as the state would
 * be if the drafts in front of it were true; decode tells the state of those that are. */
#ifndef RN_ACTORS_SAMPLER_ACTOR_H
#define RN_ACTORS_SAMPLER_ACTOR_H

#include "actors/runtime/runtime.h"
#include "sampling/sampler.h"

struct rn_batch;
struct rn_context;

struct rn_sampler_actor {
    struct rn_actor actor; /* first */
    const struct rn_context *context;
    struct rn_sampler_scratch *scratch;
};

runnel_status rn_sampler_actor_init(struct rn_sampler_actor *sampler, const struct rn_context *context);
void rn_sampler_actor_fini(struct rn_sampler_actor *sampler);

/* It owns nothing but its scratch between two messages; it is whom the others send to. */
bool rn_sampler_actor_check(const struct rn_sampler_actor *sampler);

#endif
