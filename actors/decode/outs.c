/* The wanted rows of the step that decode composes: who draws each of them, the device or the sampler actor, what it
 * takes, and how many steps may be in flight for that. */
#include "actors/decode/compose.h"

#include "actors/context.h"
#include "actors/grammar/guide.h"
#include "base/check.h"
#include "base/min.h"
#include "model/draw_mask.h"
#include "sampling/changes.h"

static bool draws_itself(const struct rn_decode *decode)
{
    return decode->ring.late_logits != NULL;
}

/* The device draws by itself, but not with these parameters; or a step might have no room for what they change. */
static bool is_beyond_device(const struct rn_decode *decode, const struct rn_sampler *sampler)
{
    const struct rn_backend *backend = decode->context->backend;

    return draws_itself(decode) &&
           (!rn_changes_are_all(sampler) ||
            rn_changes_most(sampler, decode->context->n_vocab) > decode->context->limits->max_changes ||
            (backend->ops->can_draw != NULL && !backend->ops->can_draw(backend, rn_sampler_params(sampler))));
}

/* Logits that a row of the request changes on the device, at most. */
static uint32_t n_changes_of(const struct rn_decode *decode, const struct rn_request *request)
{
    if (!draws_itself(decode) || is_beyond_device(decode, request->sampler))
        return 0;
    return rn_changes_most(request->sampler, RN_PATH_MOST);
}

/* Its next row cannot be composed before the host has seen what its last one has drawn. */
static bool needs_host(const struct rn_decode *decode, const struct rn_request *request)
{
    return request->verified || request->guide != NULL ||
           (request->sampler != NULL && (draws_itself(decode) ? is_beyond_device(decode, request->sampler)
                                                              : rn_sampler_reads_past(request->sampler)));
}

/* Steps in flight that suit the request. What a device counts by itself is one token, that of the row. */
static uint32_t depth_of(const struct rn_decode *decode, const struct rn_request *request)
{
    if (needs_host(decode, request))
        return 1;
    return request->sampler != NULL && rn_sampler_reads_past(request->sampler) ? 2 : RN_STEPS;
}

uint32_t rn_outs_depth(const struct rn_decode *decode)
{
    uint32_t depth = decode->ring.size;

    for (uint32_t i = 0; i < decode->n_running && depth > 1; i++)
        depth = rn_min_u32(depth, depth_of(decode, decode->running[i]));
    for (const struct rn_request *r = decode->prompts.first; r != NULL && depth > 1; r = r->next)
        depth = r->embed != NULL || r->want_logits ? 1 : rn_min_u32(depth, depth_of(decode, r));
    return depth;
}

/* The device does not draw for this request. One with a guide has room of its own for its logits. */
static bool draws_late(const struct rn_decode *decode, const struct rn_request *request)
{
    return request->guide == NULL && is_beyond_device(decode, request->sampler);
}

uint32_t rn_outs_left(const struct rn_decode *decode, const struct rn_request *request)
{
    uint32_t n_changes;

    if (request->sampler == NULL)
        return UINT32_MAX;
    if (draws_late(decode, request))
        return decode->ring.most_late - decode->batch->n_late - decode->kept.n_late;
    n_changes = n_changes_of(decode, request);
    return n_changes == 0
               ? UINT32_MAX
               : (decode->context->limits->max_changes - decode->batch->n_changes - decode->kept.n_changes) / n_changes;
}

void rn_outs_keep(struct rn_decode *decode, const struct rn_request *request)
{
    decode->kept.n_late = draws_late(decode, request);
    decode->kept.n_changes = decode->kept.n_late > 0 ? 0 : n_changes_of(decode, request);
    RN_ASSERT(decode->kept.n_changes <= decode->context->limits->max_changes);
}

/* The row is the request's of that number which is drawn. */
static void guide_out(struct rn_decode *decode, struct rn_batch_out *out, struct rn_request *request, uint32_t row,
                      float *keep_logits)
{
    const struct rn_backend *backend = decode->context->backend;

    out->guided = true;
    out->guide_row = row;
    rn_guide_begin_row(request->guide, row);
    decode->batch->n_guided++;
    if (!draws_itself(decode))
        return;
    if (!is_beyond_device(decode, request->sampler) && backend->ops->mask_of != NULL)
        out->mask = backend->ops->mask_of(decode->context->backend, (uint32_t)(out - decode->batch->outs));
    if (out->mask != NULL)
        rn_draw_mask_clear(out->mask);
    else
        out->late_logits = keep_logits != NULL ? keep_logits : rn_guide_logits(request->guide, row);
}

void rn_outs_put(struct rn_decode *decode, struct rn_batch_out *out, struct rn_request *request, bool sample,
                 uint32_t row, float *keep_logits)
{
    struct rn_batch *batch = decode->batch;

    out->late_logits = NULL;
    out->mask = NULL;
    out->guided = out->ended = out->last = false;
    out->asks = sample && request->choice != NULL;
    if (sample && request->guide != NULL)
        guide_out(decode, out, request, row, keep_logits);
    if (sample && draws_late(decode, request)) {
        out->late_logits = keep_logits != NULL
                               ? keep_logits
                               : decode->ring.late_logits + (size_t)batch->n_late * decode->context->n_vocab;
        batch->n_late++;
        RN_CHECK(batch->n_late <= decode->ring.most_late);
    }
    if (sample)
        batch->n_changes += n_changes_of(decode, request);
    RN_CHECK(batch->n_changes <= decode->context->limits->max_changes);
    out->request = request;
    out->position = request->n_done + request->n_dropped;
    out->sampler = request->sampler;
    out->sample = sample;
    out->want_logprobs = request->want_logprobs;
    out->n_top = request->n_top;
    out->keep_logits = keep_logits;
    out->follows = out->waits = false;
    out->leaf_offset = 0;
    out->second = (struct rn_runner_up){.token = -1};
    out->drawn = out->tells_token = out->tells_logits = out->tells_choice = false;
}
