/* Sequences of decode whose readers are behind: which of them goes back to the tier when blocks or lanes are short. And
 * what decode waits for with nothing else to do. See decode_actor.h. */
#include "actors/decode_actor.h"

#include "actors/context.h"
#include "actors/decode/compose.h"
#include "base/check.h"

#define WAKE_US 10000 /* a WAKE is no later, so that one need not be called off when another stalls */
#define LANE_US 10000 /* while none is free a prompt keeps its lane for so long: most readers have read on by then */

/* That prompts have. */
struct lanes {
    uint32_t n, n_background;
};

static struct lanes taken_lanes(const struct rn_decode *decode)
{
    struct lanes lanes = {0, 0};

    for (const struct rn_request *r = decode->prompts.first; r != NULL; r = r->next) {
        lanes.n += r->lane == RN_LANE_OWN;
        lanes.n_background += r->lane == RN_LANE_OWN && r->priority < 0;
    }
    RN_ASSERT(lanes.n <= RN_PREFILL_LANES && lanes.n_background <= RN_BACKGROUND_LANES);
    return lanes;
}

static bool is_full(struct lanes lanes)
{
    return lanes.n == RN_PREFILL_LANES || lanes.n_background == RN_BACKGROUND_LANES;
}

/* Others can have no lane as long as it has its own. */
static bool bars(struct lanes lanes, const struct rn_request *request)
{
    return request->lane == RN_LANE_OWN &&
           (lanes.n == RN_PREFILL_LANES || (request->priority < 0 && lanes.n_background == RN_BACKGROUND_LANES));
}

/* It has told nothing since its last event (a token, logits of its prompt, progress), or since it was admitted. */
static uint64_t stalled_since(const struct rn_request *request)
{
    uint64_t told_us = request->last_token_us > request->told_us ? request->last_token_us : request->told_us;

    return told_us > request->phase_us ? told_us : request->phase_us;
}

static bool can_go(const struct rn_decode *decode, const struct rn_request *request)
{
    return request->in_steps == 0 && rn_batch_is_stalled(decode, request);
}

static uint64_t places(const struct rn_decode *decode)
{
    return (uint64_t)decode->context->limits->n_blocks * decode->context->limits->block_tokens;
}

/* Where blocks are short: when it may go back; 0: at any time. */
static uint64_t kept_until(const struct rn_decode *decode, const struct rn_request *request)
{
    return decode->at_once ? 0 : stalled_since(request) + rn_keep_time_of(&decode->keep, places(decode));
}

/* When it goes back; UINT64_MAX: as things are it stays. */
static uint64_t goes_at(const struct rn_decode *decode, struct lanes lanes, const struct rn_request *request)
{
    uint64_t at_us = UINT64_MAX;

    if (!can_go(decode, request))
        return UINT64_MAX;
    if (decode->n_short > 0)
        at_us = kept_until(decode, request);
    if (bars(lanes, request) && stalled_since(request) + LANE_US < at_us)
        at_us = stalled_since(request) + LANE_US;
    return at_us;
}

/* The better one to give back: what has stalled for longer. */
static struct rn_request *better(const struct rn_decode *decode, struct lanes lanes, struct rn_request *best,
                                 struct rn_request *request, uint64_t now_us)
{
    if (goes_at(decode, lanes, request) > now_us)
        return best;
    return best == NULL || stalled_since(request) < stalled_since(best) ? request : best;
}

struct rn_request *rn_decode_next_stalled(const struct rn_decode *decode)
{
    struct lanes lanes = taken_lanes(decode);
    struct rn_request *best = NULL;
    uint64_t now_us;

    if (decode->n_short == 0 && !is_full(lanes))
        return NULL;
    now_us = rn_now_us(decode->context->clock);
    for (uint32_t i = 0; i < decode->n_running; i++)
        best = better(decode, lanes, best, decode->running[i], now_us);
    for (struct rn_request *r = decode->prompts.first; r != NULL; r = r->next)
        best = better(decode, lanes, best, r, now_us);
    return best;
}

void rn_decode_keep_stall(struct rn_decode *decode, const struct rn_request *request)
{
    RN_ASSERT(decode->credits[request->slot].generation == request->generation);
    RN_ASSERT(stalled_since(request) <= rn_now_us(decode->context->clock));
    decode->credits[request->slot].stalled_us = stalled_since(request);
}

void rn_decode_end_stall(struct rn_decode *decode, const struct rn_credit *credit, const struct rn_request *request)
{
    uint64_t since_us = request != NULL ? stalled_since(request) : credit->stalled_us;
    uint64_t now_us = rn_now_us(decode->context->clock);

    RN_ASSERT(credit->n == 0 && (request != NULL ? !credit->back : credit->back && credit->away));
    rn_keep_time_stalled(&decode->keep, now_us > since_us ? now_us - since_us : 0, places(decode));
}

static void wake_at(struct rn_decode *decode, uint64_t at_us)
{
    struct rn_msg *msg = rn_msg_new(decode->actor.runtime, RN_MSG_WAKE_AT);

    RN_ASSERT(!decode->waking);
    msg->wake = (struct rn_pay_wake){decode->context->model, at_us};
    decode->waking = true;
    rn_actor_send(decode->context->router, msg);
}

void rn_decode_look_for_company(struct rn_decode *decode, const struct rn_request *request)
{
    uint64_t patience_us = rn_prompt_budget_patience_us(&decode->pace, request->n_fill - request->n_done);

    decode->alone.generation = 0;
    if (patience_us > 0 && request->priority >= 0 && decode->n_running == 0 && decode->prompts.n == 1 &&
        decode->ring.n_flying == 0)
        decode->alone =
            (struct rn_alone){request->slot, request->generation, rn_now_us(decode->context->clock) + patience_us};
}

bool rn_decode_awaits_company(struct rn_decode *decode)
{
    const struct rn_request *request = decode->prompts.first;
    const struct rn_alone *alone = &decode->alone;

    if (alone->generation == 0 || decode->prompts.n != 1 || request->slot != alone->slot ||
        request->generation != alone->generation || alone->until_us <= rn_now_us(decode->context->clock)) {
        decode->alone.generation = 0;
        return false;
    }
    if (!decode->waking)
        wake_at(decode, alone->until_us);
    return true;
}

void rn_decode_sleep(struct rn_decode *decode)
{
    struct lanes lanes = taken_lanes(decode);
    uint64_t now_us, at_us = UINT64_MAX;

    if ((decode->n_short == 0 && !is_full(lanes)) || decode->ring.n_flying > 0 || decode->waking)
        return;
    now_us = rn_now_us(decode->context->clock);
    for (uint32_t i = 0; i < decode->n_running; i++)
        if (goes_at(decode, lanes, decode->running[i]) < at_us)
            at_us = goes_at(decode, lanes, decode->running[i]);
    for (const struct rn_request *r = decode->prompts.first; r != NULL; r = r->next)
        if (goes_at(decode, lanes, r) < at_us)
            at_us = goes_at(decode, lanes, r);
    if (at_us == UINT64_MAX)
        return;
    RN_ASSERT(at_us > 0); /* what may go back at once has */
    wake_at(decode, at_us < now_us + WAKE_US ? at_us : now_us + WAKE_US);
}
