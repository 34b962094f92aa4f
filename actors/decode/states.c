/* Recurrent states of running sequences: see states.h. */
#include "actors/decode/states.h"

#include <string.h>

#include "base/check.h"

/* What the sequence has come to stays behind, and it goes on in its next slot. */
static void turn_state(struct rn_request *request)
{
    RN_ASSERT(request->n_turns <= RN_STATE_TURNS && request->state_from == request->state && request->n_behind == 0);
    request->state_from = request->state;
    request->state = request->turns[0].slot;
    request->n_turns--;
    memmove(&request->turns[0], &request->turns[1], request->n_turns * sizeof request->turns[0]);
}

static void copy_state(struct rn_step *step, uint32_t from, uint32_t to)
{
    step->state_copies[step->n_state_copies++] = (struct rn_step_state_copy){from, to};
}

/* One step at a time is in flight: what it has computed is there, also for who copies it. */
void rn_decode_put_state(struct rn_batch *batch, uint32_t *states, struct rn_request *request)
{
    if (request->n_turns > 0 && request->turns[0].at == request->n_done)
        turn_state(request);
    RN_ASSERT(request->in_steps == 0 && (request->n_turns == 0 || request->turns[0].at > request->n_done));
    states[batch->n_parts] = request->state;
    if (request->state_from != request->state)
        copy_state(&batch->step, request->state_from, request->state);
    request->state_from = request->state;
}

uint32_t rn_decode_state_room(const struct rn_request *request)
{
    return request->state_spare == RN_NO_STATE || request->n_behind > RN_MOST_BEHIND ? 0 : UINT32_MAX;
}

void rn_decode_keep_state(struct rn_batch *batch, uint32_t *states, struct rn_batch_part *part)
{
    const struct rn_request *request = part->request;
    uint32_t which = (uint32_t)(part - batch->parts);

    RN_ASSERT(which + 1 == batch->n_parts && request->state_spare != request->state);
    RN_ASSERT(states[which] == request->state && request->n_turns == 0);
    if (part->n_drafts == 0)
        return;
    copy_state(&batch->step, request->state, request->state_spare);
    states[which] = request->state_spare;
    part->keeps_state = true;
}

void rn_decode_settle_state(struct rn_batch_part *part)
{
    struct rn_request *request = part->request;
    uint32_t kept = request->state;

    RN_ASSERT(part->n_repeated == request->n_behind || (part->prompt && request->n_behind == 0));
    if (part->keeps_state && part->n_accepted < part->n_drafts) {
        request->n_behind += 1 + part->n_accepted;
        return;
    }
    request->n_behind = 0;
    if (!part->keeps_state)
        return;
    request->state = request->state_from = request->state_spare;
    request->state_spare = kept;
}
