/* The sampler actor: see sampler_actor.h. */
#include "actors/sampler_actor.h"

#include <string.h>

#include "actors/batch.h"
#include "actors/context.h"
#include "actors/embed.h"
#include "base/check.h"

/* The drafts from the row that follows what the state knows of down to this one, in order. */
static struct rn_path path_of(const struct rn_batch_out *out, int32_t *tokens)
{
    uint32_t n = 0;

    for (const struct rn_batch_out *o = out; o->follows; o -= o->behind)
        n++;
    RN_CHECK(n <= RN_PATH_MOST);
    for (uint32_t i = n; i-- > 0; out -= out->behind)
        tokens[i] = out->draft;
    return (struct rn_path){tokens, n};
}

void rn_draw_row(struct rn_batch *batch, uint32_t i, const float *logits, struct rn_sampler_scratch *scratch)
{
    struct rn_batch_out *out = &batch->outs[i];
    int32_t drafts[RN_PATH_MOST];

    out->status = RUNNEL_OK;
    if (out->keep_logits != NULL)
        memcpy(out->keep_logits, logits, batch->n_vocab * sizeof *logits);
    if (out->sample)
        out->status = rn_sampler_pick_behind(out->sampler, path_of(out, drafts), scratch, logits, out->position + 1,
                                             out->want_logprobs, out->n_top, &out->pick);
}

/* True when the row computed something else than what the sequence has become: nobody needs its draw. */
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
        struct rn_batch_out *out = &batch->outs[i];

        out->status = batch->step.status;
        out->refuted = is_refuted(out); /* then its draw would be in vain */
        if (!out->refuted && out->status == RUNNEL_OK)
            rn_draw_row(batch, i, batch->step.logits + (size_t)i * batch->n_vocab, sampler->scratch);
    }
    for (uint32_t i = 0; i < batch->n_parts; i++)
        pool(sampler, batch, &batch->parts[i]);
    msg->head.kind = batch->verifies ? RN_MSG_VERIFY : RN_MSG_SAMPLED;
    rn_actor_send(batch->verifies ? sampler->context->verifier : sampler->context->decode, msg);
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
