/* The prefill actor: see prefill_actor.h. */
#include "actors/prefill_actor.h"

#include <stddef.h>

#include "actors/context.h"
#include "actors/lists.h"
#include "base/check.h"

static_assert(offsetof(struct rn_prefill, actor) == 0, "handlers get the actor");

static struct rn_prefill *prefill_of(struct rn_actor *actor)
{
    return (struct rn_prefill *)actor;
}

/* How the next one may go on; NONE: not now. Those behind it are of no higher priority, so what holds it holds them
 * too. */
static enum rn_lane next_lane(const struct rn_prefill *prefill)
{
    const struct rn_request *next = prefill->waiting.first;

    if (next == NULL)
        return RN_LANE_NONE;
    if (next->priority >= 0 && next->n_fill - next->n_done <= RN_PREFILL_SHORT_ROWS && !next->want_logits &&
        prefill->n_short < RN_PREFILL_SHORTS)
        return RN_LANE_SHORT;
    return prefill->free_lanes > 0 && (next->priority >= 0 || prefill->n_background < RN_BACKGROUND_LANES)
               ? RN_LANE_OWN
               : RN_LANE_NONE;
}

static void take_lane(struct rn_prefill *prefill, struct rn_request *request, enum rn_lane lane)
{
    RN_ASSERT(request->lane == RN_LANE_NONE && (lane != RN_LANE_OWN || prefill->free_lanes > 0));
    request->lane = lane;
    prefill->n_short += lane == RN_LANE_SHORT;
    prefill->free_lanes -= lane == RN_LANE_OWN;
    prefill->n_background += lane == RN_LANE_OWN && request->priority < 0;
}

static void offer(struct rn_prefill *prefill)
{
    enum rn_lane lane;

    while ((lane = next_lane(prefill)) != RN_LANE_NONE) {
        struct rn_request *request = prefill->waiting.first;

        rn_fair_queue_take(&prefill->waiting, request);
        if (rn_request_is_late(request, rn_now_us(prefill->context->clock)))
            rn_request_end_by(request, RN_MSG_EXPIRE);
        else if (!rn_request_take_rows(request))
            rn_request_fail(request, RUNNEL_NO_MEMORY, "no memory for the masks of a grammar");
        if (request->outcome != RN_OUTCOME_NONE) {
            rn_request_send(request, rn_request_end_actor(request), RN_MSG_END);
            continue;
        }
        rn_fair_queue_served(&prefill->waiting, request);
        take_lane(prefill, request, lane);
        RN_ASSERT(prefill->offered[request->slot] != request->generation && request->in_steps == 0);
        prefill->offered[request->slot] = request->generation;
        rn_request_send(request, prefill->context->verifier, RN_MSG_OFFER);
    }
}

static void on_prefill(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_request *request = msg->request.request;

    RN_ASSERT(request->lane == RN_LANE_NONE && request->n_done <= request->n_fill);
    prefill_of(self)->offered[request->slot] = 0;
    if (request->resumed)
        rn_fair_queue_push_front(&prefill_of(self)->waiting, request);
    else
        rn_fair_queue_push(&prefill_of(self)->waiting, request, request->n_fill - request->n_done);
    rn_msg_free(self->runtime, msg);
}

/* A request has gone on: so do wishes, behind its OFFER. Else they come too late. */
static void send_on(struct rn_prefill *prefill, struct rn_msg *msg)
{
    if (prefill->offered[msg->stream.slot] == msg->stream.generation)
        rn_actor_send(prefill->context->verifier, msg);
    else
        rn_msg_free(prefill->actor.runtime, msg);
}

/* CANCEL, EXPIRE, STOPPED and PREEMPT: for a request that waits here, or has gone on to decode. */
static void on_end_request(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_prefill *prefill = prefill_of(self);
    struct rn_request *request = rn_fair_queue_remove(&prefill->waiting, msg->stream.slot, msg->stream.generation);
    uint32_t kind = msg->head.kind;

    if (request == NULL) {
        send_on(prefill, msg);
        return;
    }
    rn_msg_free(self->runtime, msg);
    RN_ASSERT(request->lane == RN_LANE_NONE && request->outcome == RN_OUTCOME_NONE);
    if (kind == RN_MSG_PREEMPT) {
        rn_request_send(request, prefill->context->tier, RN_MSG_PREEMPTED);
        return;
    }
    rn_request_end_by(request, kind);
    rn_request_send(request, rn_request_end_actor(request), RN_MSG_END);
}

static void on_lane_free(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_prefill *prefill = prefill_of(self);

    prefill->free_lanes += msg->lanes.n;
    RN_CHECK(prefill->free_lanes <= RN_PREFILL_LANES && prefill->n_background >= msg->lanes.n_background &&
             prefill->n_short >= msg->lanes.n_short);
    prefill->n_background -= msg->lanes.n_background;
    prefill->n_short -= msg->lanes.n_short;
    rn_msg_free(self->runtime, msg);
}

static void flush(struct rn_actor *self)
{
    offer(prefill_of(self));
}

static const struct rn_actor_class prefill_class = {
    .name = "prefill",
    .handlers =
        {
            [RN_MSG_PREFILL] = on_prefill,
            [RN_MSG_CANCEL] = on_end_request,
            [RN_MSG_EXPIRE] = on_end_request,
            [RN_MSG_STOPPED] = on_end_request,
            [RN_MSG_PREEMPT] = on_end_request,
            [RN_MSG_LANE_FREE] = on_lane_free,
            [RN_MSG_CLOSE] = rn_actor_on_close,
        },
    .flush = flush,
};

runnel_status rn_prefill_init(struct rn_prefill *prefill, const struct rn_context *context)
{
    *prefill = (struct rn_prefill){.context = context, .free_lanes = RN_PREFILL_LANES};
    prefill->offered = rn_calloc(context->heap, context->max_streams, sizeof prefill->offered[0]);
    if (prefill->offered == NULL)
        return RUNNEL_NO_MEMORY;
    rn_actor_init(&prefill->actor, context->runtime, &prefill_class,
                  rn_bounds_credits(&context->bounds, RN_ROLE_PREFILL));
    return RUNNEL_OK;
}

void rn_prefill_fini(struct rn_prefill *prefill)
{
    rn_free(prefill->context->heap, prefill->offered);
}

static bool waits_rightly(const struct rn_prefill *prefill, const struct rn_request *request)
{
    return prefill->offered[request->slot] != request->generation && request->lane == RN_LANE_NONE &&
           request->in_steps == 0 && request->outcome == RN_OUTCOME_NONE && request->n_done <= request->n_fill &&
           request->n_fill <= request->n_tokens && request->n_tokens <= request->n_limit && request->job == NULL;
}

bool rn_prefill_check(const struct rn_prefill *prefill)
{
    if (!rn_fair_queue_check(&prefill->waiting) || prefill->free_lanes > RN_PREFILL_LANES ||
        prefill->n_background > RN_PREFILL_LANES - prefill->free_lanes || prefill->n_background > RN_BACKGROUND_LANES ||
        prefill->n_short > RN_PREFILL_SHORTS)
        return false;
    for (const struct rn_request *r = prefill->waiting.first; r != NULL; r = r->next)
        if (!waits_rightly(prefill, r))
            return false;
    return next_lane(prefill) == RN_LANE_NONE;
}
