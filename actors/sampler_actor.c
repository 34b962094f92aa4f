/* The sampler actor: see sampler_actor.h. */
#include "actors/sampler_actor.h"

#include <string.h>

#include "actors/batch.h"
#include "actors/context.h"
#include "actors/embed.h"

static void sample(struct rn_sampler_actor *sampler, const struct rn_batch *batch, struct rn_batch_out *out,
                   const float *logits)
{
    out->status = batch->step.status;
    if (out->status != RUNNEL_OK)
        return;
    if (out->keep_logits != NULL)
        memcpy(out->keep_logits, logits, sampler->context->n_vocab * sizeof *logits);
    if (!out->sample)
        return;
    out->status = rn_sampler_pick(out->sampler, sampler->scratch, logits, out->position + 1, out->want_logprobs,
                                  out->n_top, &out->pick);
    if (out->status == RUNNEL_OK)
        rn_sampler_accept(out->sampler, out->pick.token);
}

/* True when the row computed something else than what the sequence has become. Siblings differ, so one path at most
 * is left of a tree, and it is walked in the order of its positions. */
static bool is_refuted(const struct rn_batch_out *out)
{
    const struct rn_batch_out *parent = out - out->behind;

    return out->follows && (parent->refuted || parent->status != RUNNEL_OK || parent->pick.token != out->draft);
}

/* Texts whose embedding is wanted: their positions of this step, and what they come to. */
static void pool(const struct rn_sampler_actor *sampler, const struct rn_batch *batch, struct rn_batch_part *part)
{
    const struct rn_context *context = sampler->context;
    const float *features = batch->step.features + (size_t)part->features * context->row_features;

    if (part->embed == NULL || batch->step.status != RUNNEL_OK)
        return;
    features += context->row_features - context->n_features;
    rn_embed_add(part->embed, features, part->n_features, context->row_features);
    if (part->last)
        part->status = rn_embed_finish(part->embed);
}

static void on_step_done(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_sampler_actor *sampler = (struct rn_sampler_actor *)self;
    struct rn_batch *batch = msg->batch.batch;

    for (uint32_t i = 0; i < batch->step.n_outs; i++) {
        batch->outs[i].refuted = is_refuted(&batch->outs[i]);
        if (batch->outs[i].refuted)
            continue;
        sample(sampler, batch, &batch->outs[i], batch->step.logits + (size_t)i * sampler->context->n_vocab);
    }
    for (uint32_t i = 0; i < batch->n_parts; i++)
        pool(sampler, batch, &batch->parts[i]);
    msg->head.kind = RN_MSG_SAMPLED;
    rn_actor_send(sampler->context->decode, msg);
}

static const struct rn_actor_class sampler_class = {
    .name = "sampler",
    .handlers = {[RN_MSG_STEP_DONE] = on_step_done, [RN_MSG_CLOSE] = rn_actor_on_close},
};

runnel_status rn_sampler_actor_init(struct rn_sampler_actor *sampler, const struct rn_context *context)
{
    *sampler = (struct rn_sampler_actor){.context = context};
    sampler->scratch = rn_sampler_scratch_new(context->heap, context->n_vocab);
    if (sampler->scratch == NULL)
        return RUNNEL_NO_MEMORY;
    rn_actor_init(&sampler->actor, context->runtime, &sampler_class, 2);
    return RUNNEL_OK;
}

void rn_sampler_actor_fini(struct rn_sampler_actor *sampler)
{
    rn_sampler_scratch_free(sampler->scratch);
}
