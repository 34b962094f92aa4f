/* What all backends do alike about draws: see draw.h. */
#include "model/draw.h"

#include <string.h>

#include "base/check.h"
#include "model/backend.h"

static runnel_status status_of(int32_t drawn, const struct rn_drawn *before, uint32_t n_before)
{
    if (drawn < 0)
        return RUNNEL_OK;
    return (uint32_t)drawn < n_before ? before[drawn].status : RUNNEL_STATE;
}

/* Of row r and all that it stands behind in the step: the status of the first one that has no token. */
static runnel_status fate(const struct rn_step *step, uint32_t r, const struct rn_drawn *before, uint32_t n_before)
{
    uint32_t first = rn_step_first(step, r);
    runnel_status status = RUNNEL_OK, own;

    for (;;) {
        own = status_of(step->drawn[r], before, n_before);
        status = own != RUNNEL_OK ? own : status;
        if (r == first)
            return status;
        r = step->parents == NULL ? r - 1 : (uint32_t)step->parents[r];
    }
}

void rn_draw_chain(struct rn_step *step, const struct rn_drawn *before, uint32_t n_before)
{
    uint32_t i;

    for (i = 0; step->draws != NULL && i < step->n_outs; i++)
        step->draws[i].status = RUNNEL_OK;
    if (step->drawn == NULL)
        return;
    for (i = 0; i < step->n_rows; i++) {
        struct rn_step_row *row = &step->rows[i];

        if (step->drawn[i] >= 0)
            row->token = status_of(step->drawn[i], before, n_before) == RUNNEL_OK ? before[step->drawn[i]].token : 0;
        if (row->out >= 0 && step->draws != NULL)
            step->draws[row->out].status = fate(step, i, before, n_before);
    }
}

void rn_draw_one(const struct rn_step *step, uint32_t out, const float *logits, uint32_t n_vocab, uint32_t worker)
{
    struct rn_draw *draw = &step->draws[out];

    if (draw->status != RUNNEL_OK)
        return;
    if (draw->keep_logits != NULL)
        memcpy(draw->keep_logits, logits, n_vocab * sizeof *logits);
    if (!draw->wanted)
        return;
    RN_CHECK(worker < step->drawer->n_scratch);
    step->drawer->draw(step->drawer->user, out, logits, step->drawer->scratch[worker]);
    RN_CHECK(draw->status != RUNNEL_OK || (draw->token >= 0 && (uint32_t)draw->token < n_vocab));
}

void rn_draw_stop(struct rn_step *step)
{
    for (uint32_t i = 0; step->draws != NULL && i < step->n_outs; i++)
        step->draws[i].status = RUNNEL_CANCELLED;
}

uint32_t rn_draw_keep(const struct rn_step *step, struct rn_drawn *drawn)
{
    uint32_t i;

    if (step->draws == NULL)
        return 0;
    for (i = 0; i < step->n_outs; i++) {
        const struct rn_draw *draw = &step->draws[i];

        drawn[i] =
            (struct rn_drawn){draw->status != RUNNEL_OK || draw->wanted ? draw->status : RUNNEL_STATE, draw->token};
    }
    return step->n_outs;
}
