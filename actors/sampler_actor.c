/* The sampler actor: see sampler_actor.h. */
#include "actors/sampler_actor.h"

#include <stddef.h>

#include "actors/batch.h"
#include "actors/context.h"
#include "actors/draw_rows.h"
#include "actors/embed.h"
#include "actors/host/outlet.h"
#include "actors/request.h"
#include "base/check.h"

static_assert(offsetof(struct rn_sampler_actor, actor) == 0, "handlers get the actor");

/* Texts whose embedding is wanted: their positions of this step, and what they come to. */
static void pool(const struct rn_sampler_actor *sampler, const struct rn_batch *batch, struct rn_batch_part *part)
{
    const struct rn_context *context = sampler->context;
    const float *features = batch->step.features + (size_t)part->features * context->row_features;

    if (part->embed == NULL || batch->step.status != RUNNEL_OK)
        return;
    RN_ASSERT(part->features + part->n_features <= batch->step.n_features);
    rn_embed_add(part->embed, features, part->n_features, context->row_features);
    if (part->last)
        part->status = rn_embed_finish(part->embed);
}

static void on_step_done(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_sampler_actor *sampler = (struct rn_sampler_actor *)self;
    struct rn_batch *batch = msg->batch.batch;

    RN_ASSERT(batch->step.n_outs <= sampler->context->limits->max_outs &&
              batch->n_parts <= sampler->context->limits->max_seqs);
    RN_ASSERT(batch->n_parts > 0 && batch->step.n_rows <= sampler->context->limits->max_rows);
    rn_draws_take(batch, sampler->scratch);
    if (batch->n_guided > 0)
        rn_matchers_take(&sampler->matchers, batch);
    for (uint32_t i = 0; i < batch->n_parts; i++)
        pool(sampler, batch, &batch->parts[i]);
    msg->head.kind = batch->verifies ? RN_MSG_VERIFY : RN_MSG_SAMPLED;
    rn_actor_send(batch->verifies ? sampler->context->verifier : sampler->context->decode, msg);
}

/* The step may be done before this is; that is told behind it. */
static void on_guide(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_pay_outs step = msg->outs;

    rn_msg_free(self->runtime, msg);
    rn_matchers_guide(&((struct rn_sampler_actor *)self)->matchers, step.outs, step.n);
}

static void cut(struct rn_sampler_actor *sampler, struct rn_proposal_list *list)
{
    const struct rn_context *context = sampler->context;

    rn_metrics_count(context->metrics, RN_COUNT_CUT, rn_matchers_cut(&sampler->matchers, list, context->n_vocab));
}

static void on_cut(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_sampler_actor *sampler = (struct rn_sampler_actor *)self;

    cut(sampler, &msg->batch.batch->proposals);
    msg->head.kind = RN_MSG_SAMPLED;
    rn_actor_send(sampler->context->decode, msg);
}

static void on_proposals(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_sampler_actor *sampler = (struct rn_sampler_actor *)self;

    cut(sampler, msg->proposals.list);
    rn_actor_send(sampler->context->decode, msg);
}

/* Of a stream that has a matcher the candidates are still there: its end comes by here. */
static void on_choice(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_sampler_actor *sampler = (struct rn_sampler_actor *)self;
    struct rn_pay_choice *choice = &msg->choice;

    if (rn_matchers_has(&sampler->matchers, choice->slot, choice->generation))
        rn_matchers_choose(&sampler->matchers, sampler->context->outlets[choice->slot].choice, choice);
    rn_actor_send(sampler->context->decode, msg);
}

/* Of a request of which there is a matcher. */
static void on_end(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_request *request = msg->request.request;

    RN_ASSERT(request->outcome != RN_OUTCOME_NONE && request->in_steps == 0);
    rn_matchers_forget(&((struct rn_sampler_actor *)self)->matchers, request);
    rn_actor_send(rn_request_end_actor(request), msg);
}

static const struct rn_actor_class sampler_class = {
    .name = "sampler",
    .handlers =
        {
            [RN_MSG_GUIDE] = on_guide,
            [RN_MSG_STEP_DONE] = on_step_done,
            [RN_MSG_CUT] = on_cut,
            [RN_MSG_PROPOSALS] = on_proposals,
            [RN_MSG_CHOICE] = on_choice,
            [RN_MSG_END] = on_end,
            [RN_MSG_CLOSE] = rn_actor_on_close,
        },
};

runnel_status rn_sampler_actor_init(struct rn_sampler_actor *sampler, const struct rn_context *context)
{
    *sampler = (struct rn_sampler_actor){.context = context};
    sampler->scratch = rn_sampler_scratch_new(context->heap, context->n_vocab);
    if (sampler->scratch == NULL)
        return RUNNEL_NO_MEMORY;
    rn_matchers_init(&sampler->matchers, context->heap, context->max_streams);
    rn_actor_init(&sampler->actor, context->runtime, &sampler_class,
                  rn_bounds_credits(&context->bounds, RN_ROLE_SAMPLER));
    return RUNNEL_OK;
}

void rn_sampler_actor_fini(struct rn_sampler_actor *sampler)
{
    rn_matchers_fini(&sampler->matchers);
    rn_sampler_scratch_free(sampler->scratch);
}

bool rn_sampler_actor_check(const struct rn_sampler_actor *sampler)
{
    return sampler->actor.class == &sampler_class && sampler->context->sampler == &sampler->actor &&
           sampler->scratch != NULL && rn_matchers_check(&sampler->matchers);
}
