/* The sampler actor: the logits of a step → one token for each row that wants one. The sampling state of a sequence
 * belongs to its request and comes with the batch; here it is only read. A row of a draft is drawn as the state would
 * be if the drafts in front of it were true; decode tells the state of those that are.
 *
 * Where a grammar says what may be drawn the sampler owns the stream's place in it (grammar/matchers.h). It makes the
 * masks of a step while the step runs (GUIDE), and forgets the stream at its end (END). */
#ifndef RN_ACTORS_SAMPLER_ACTOR_H
#define RN_ACTORS_SAMPLER_ACTOR_H

#include "actors/grammar/matchers.h"
#include "actors/runtime/runtime.h"
#include "sampling/sampler.h"

struct rn_batch;
struct rn_context;

struct rn_sampler_actor {
    struct rn_actor actor; /* first */
    const struct rn_context *context;
    struct rn_sampler_scratch *scratch;
    struct rn_matchers matchers;
};

runnel_status rn_sampler_actor_init(struct rn_sampler_actor *sampler, const struct rn_context *context);
void rn_sampler_actor_fini(struct rn_sampler_actor *sampler);

/* Between two messages it owns its scratch and its matchers; it is whom the others send to. */
bool rn_sampler_actor_check(const struct rn_sampler_actor *sampler);

#endif
