/* Drawing tokens from the wanted rows of a batch: see draw_rows.h. */
#include "actors/draw_rows.h"

#include <string.h>

#include "actors/grammar/guide.h"
#include "actors/request.h"
#include "base/check.h"
#include "base/status.h"
#include "model/device.h"
#include "sampling/changes.h"

struct rn_path rn_draw_path(const struct rn_batch_out *out, int32_t *tokens)
{
    uint32_t n = 0;

    for (const struct rn_batch_out *o = out; o->follows; o -= o->behind)
        n++;
    RN_CHECK(n <= RN_PATH_MOST);
    for (uint32_t i = n; i-- > 0; out -= out->behind)
        tokens[i] = out->draft;
    return (struct rn_path){tokens, n};
}

/* Which is there. */
static struct rn_mask mask_of(const struct rn_batch_out *out)
{
    const struct rn_guide *guide = out->request->guide;

    RN_ASSERT(rn_guide_state(guide, out->guide_row) == RN_GUIDE_MASKED);
    return (struct rn_mask){rn_guide_mask(guide, out->guide_row), guide->rows[out->guide_row].may_end};
}

void rn_draw_row(struct rn_batch *batch, uint32_t i, const float *logits, struct rn_sampler_scratch *scratch)
{
    struct rn_batch_out *out = &batch->outs[i];
    int32_t drafts[RN_PATH_MOST];
    struct rn_mask mask;

    RN_ASSERT(i < batch->step.n_outs && (!out->follows || out->behind <= i));
    out->status = RUNNEL_OK;
    if (out->guided)
        mask = mask_of(out);
    if (out->sample)
        out->status =
            rn_sampler_pick_masked(out->sampler, rn_draw_path(out, drafts), out->guided ? &mask : NULL, scratch, logits,
                                   out->position + 1, out->want_logprobs, out->n_top, &out->pick);
}

/* ---- In the step ---- */

/* Of a row that a grammar guides. False: it is not drawn now; the logits are kept if the mask may come still. */
static bool has_mask(struct rn_batch *batch, uint32_t i, const float *logits)
{
    struct rn_batch_out *out = &batch->outs[i];
    struct rn_guide *guide = out->request->guide;
    enum rn_guide_state state = rn_guide_state(guide, out->guide_row);

    if (state == RN_GUIDE_MASKED)
        return true;
    if (state == RN_GUIDE_WAITS) {
        memcpy(rn_guide_logits(guide, out->guide_row), logits, batch->n_vocab * sizeof *logits);
        guide->rows[out->guide_row].kept = true;
    }
    out->pick.token = -1;
    batch->draws[i].status = RUNNEL_OK;
    batch->draws[i].token = 0; /* of no meaning: nobody waits for it */
    return false;
}

/* rn_drawer.draw, on a thread of the device. */
static void draw_in_step(void *user, uint32_t i, const float *logits, void *scratch)
{
    struct rn_batch *batch = user;

    if (batch->outs[i].guided && !has_mask(batch, i, logits))
        return;
    rn_draw_row(batch, i, logits, scratch);
    batch->draws[i].status = batch->outs[i].status;
    batch->draws[i].token =
        batch->outs[i].asks ? 0 : batch->outs[i].pick.token; /* nobody waits for what the host draws */
}

runnel_status rn_draws_init(struct rn_batch *batch, struct rn_heap *heap, const struct rn_backend *backend,
                            uint32_t max_outs)
{
    bool itself = rn_device_can(backend->caps, RN_CAN_DRAW_ITSELF);
    uint32_t n = itself ? 0 : backend->caps->draw_threads;

    if (!rn_device_can(backend->caps, RN_CAN_DRAW) || (n == 0 && !itself))
        return RUNNEL_OK;
    batch->draws = rn_calloc(heap, max_outs, sizeof batch->draws[0]);
    if (batch->draws == NULL)
        return RUNNEL_NO_MEMORY;
    if (itself)
        return RUNNEL_OK;
    batch->scratch = rn_calloc(heap, n, sizeof batch->scratch[0]);
    if (batch->scratch == NULL)
        return RUNNEL_NO_MEMORY;
    for (; batch->n_scratch < n; batch->n_scratch++)
        if ((batch->scratch[batch->n_scratch] = rn_sampler_scratch_new(heap, batch->n_vocab)) == NULL)
            return RUNNEL_NO_MEMORY;
    batch->drawer = (struct rn_drawer){.draw = draw_in_step, .user = batch, .scratch = batch->scratch, .n_scratch = n};
    return RUNNEL_OK;
}

void rn_draws_fini(struct rn_batch *batch, struct rn_heap *heap)
{
    for (uint32_t i = 0; i < batch->n_scratch; i++)
        rn_sampler_scratch_free(batch->scratch[i]);
    rn_free(heap, batch->scratch);
    rn_free(heap, batch->draws);
}

/* For a device that draws by itself. */
static void ask_device(struct rn_batch *batch, struct rn_draw *draw, const struct rn_batch_out *out)
{
    int32_t drafts[RN_PATH_MOST];

    rn_changes_take(out->sampler, rn_draw_path(out, drafts), out->waits, batch->counts + batch->n_counts,
                    &draw->changes);
    batch->n_counts += draw->changes.n_counts;
    RN_CHECK(batch->n_counts <= batch->n_changes);
    draw->sampling = rn_sampler_params(out->sampler);
    draw->seed = draw->sampling->seed;
    draw->position = out->position + 1;
    draw->want_logprob = out->want_logprobs;
    draw->want_top = out->want_logprobs ? out->n_top : 0;
}

void rn_draws_ask(struct rn_batch *batch)
{
    bool itself = batch->drawer.draw == NULL;

    if (batch->draws == NULL)
        return;
    for (uint32_t i = 0; i < batch->step.n_outs; i++) {
        const struct rn_batch_out *out = &batch->outs[i];
        bool late = out->late_logits != NULL;

        RN_ASSERT(!late || (itself && out->sample));
        batch->draws[i] =
            (struct rn_draw){.wanted = out->sample && !late, .keep_logits = late ? out->late_logits : out->keep_logits};
        if (itself && batch->draws[i].wanted)
            ask_device(batch, &batch->draws[i], out);
        if (out->mask != NULL) {
            batch->draws[i].mask = out->mask;
            batch->draws[i].late_logits = rn_guide_logits(out->request->guide, out->guide_row);
        }
    }
    batch->step.draws = batch->draws;
    batch->step.drawer = itself ? NULL : &batch->drawer;
}

/* ---- When it is done ---- */

/* Of a row that a grammar guides, once the step is done. */
static enum rn_guide_state guide_state(const struct rn_batch_out *out)
{
    RN_ASSERT(rn_guide_state(out->request->guide, out->guide_row) != RN_GUIDE_WAITS);
    return rn_guide_state(out->request->guide, out->guide_row);
}

/* True when the row computed something else than what the sequence has become: its draw does not count. */
static bool is_refuted(const struct rn_batch_out *out)
{
    const struct rn_batch_out *parent = out - out->behind;

    if (out->guided && guide_state(out) == RN_GUIDE_REFUSED)
        return true;
    return out->follows && (parent->refuted || parent->status != RUNNEL_OK || parent->pick.token != out->draft);
}

/* The row was not drawn in the step. */
static void draw_late(struct rn_batch *batch, uint32_t i, struct rn_sampler_scratch *scratch)
{
    const float *logits = batch->step.logits + (size_t)i * batch->n_vocab;

    RN_ASSERT(batch->step.logits != NULL && batch->outs[i].late_logits == NULL);
    if (batch->outs[i].keep_logits != NULL)
        memcpy(batch->outs[i].keep_logits, logits, batch->n_vocab * sizeof *logits);
    rn_draw_row(batch, i, logits, scratch);
}

/* The step has drawn the row, or has its logits. */
static void take_draw(struct rn_batch *batch, uint32_t i, struct rn_sampler_scratch *scratch)
{
    struct rn_batch_out *out = &batch->outs[i];
    const struct rn_draw *draw = &batch->draws[i];

    out->status = draw->status;
    if (draw->status != RUNNEL_OK)
        return;
    if (out->guided && out->late_logits == NULL && (draw->is_late || out->request->guide->rows[out->guide_row].kept)) {
        rn_draw_row(batch, i, rn_guide_logits(out->request->guide, out->guide_row), scratch);
    } else if (out->late_logits != NULL) {
        rn_draw_row(batch, i, out->late_logits, scratch);
    } else if (draw->sampling != NULL) {
        RN_CHECK(draw->n_top <= RUNNEL_MAX_TOP_LOGPROBS);
        out->pick = (struct rn_pick){.token = draw->token, .logprob = draw->logprob, .n_top = draw->n_top};
        memcpy(out->pick.top, draw->top, draw->n_top * sizeof draw->top[0]);
    }
}

void rn_draws_take(struct rn_batch *batch, struct rn_sampler_scratch *scratch)
{
    const struct rn_step *step = &batch->step;

    for (uint32_t i = 0; i < step->n_outs; i++) {
        struct rn_batch_out *out = &batch->outs[i];

        RN_ASSERT(!out->follows || (out->behind > 0 && out->behind <= i && out->request == out[-1].request));
        out->refuted = is_refuted(out);
        if (step->status != RUNNEL_OK || out->refuted)
            out->status = step->status;
        else if (out->guided && guide_state(out) == RN_GUIDE_FAILED)
            out->status = out->request->guide->rows[out->guide_row].error.status;
        else if (step->draws != NULL)
            take_draw(batch, i, scratch);
        else
            draw_late(batch, i, scratch);
    }
}

void rn_draw_fail(struct rn_request *request, const struct rn_batch_out *out)
{
    if (out->guided && request->guide->rows[out->guide_row].error.status == out->status)
        rn_request_fail_about(request, RUNNEL_ABOUT_GRAMMAR, out->status, "grammar: %s",
                              request->guide->rows[out->guide_row].error.message);
    else if (out->guided && out->status == RUNNEL_NUMERIC)
        rn_request_fail(request, out->status,
                        "no token that the grammar allows can be drawn: biases forbid them all, or the logits are not "
                        "numbers, at position %llu",
                        (unsigned long long)out->position);
    else if (out->status == RUNNEL_NUMERIC && rn_sampler_params(request->sampler)->n_biases > 0)
        rn_request_fail(request, out->status,
                        "no token can be drawn: biases forbid them all, or the logits are not numbers, at position "
                        "%llu",
                        (unsigned long long)out->position);
    else
        rn_request_fail(request, out->status, "%s, at position %llu", runnel_status_text(out->status),
                        (unsigned long long)out->position);
}
