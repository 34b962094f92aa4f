/* The prefill actor: see prefill_actor.h. */
#include "actors/prefill_actor.h"

#include "actors/engine.h"
#include "base/check.h"

static struct rn_prefill *prefill_of(struct rn_actor *actor)
{
    return (struct rn_prefill *)actor;
}

static void offer(struct rn_prefill *prefill)
{
    while (prefill->free_lanes > 0 && prefill->waiting.first != NULL) {
        struct rn_msg *msg = rn_msg_new(prefill->actor.runtime, RN_MSG_OFFER);

        msg->request.request = rn_request_pop(&prefill->waiting);
        msg->request.request->lane = 1;
        prefill->free_lanes--;
        rn_actor_send(&prefill->model->decode.actor, msg);
    }
}

static void end_cancelled(struct rn_prefill *prefill, struct rn_request *request)
{
    struct rn_msg *msg = rn_msg_new(prefill->actor.runtime, RN_MSG_END);

    rn_request_end(request, RN_OUTCOME_CANCELLED, RUNNEL_FINISH_NONE);
    msg->request.request = request;
    rn_actor_send(&prefill->model->detokenizer.actor, msg);
}

static void on_prefill(struct rn_actor *self, struct rn_msg *msg)
{
    rn_request_push(&prefill_of(self)->waiting, msg->request.request);
    rn_msg_free(self->runtime, msg);
}

static void on_cancel(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_prefill *prefill = prefill_of(self);
    struct rn_request *request = rn_request_remove(&prefill->waiting, msg->stream.slot, msg->stream.generation);

    if (request == NULL) {
        rn_actor_send(&prefill->model->decode.actor, msg); /* behind its OFFER */
        return;
    }
    rn_msg_free(self->runtime, msg);
    end_cancelled(prefill, request);
}

static void on_lane_free(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_prefill *prefill = prefill_of(self);

    prefill->free_lanes += msg->lanes.n;
    RN_CHECK(prefill->free_lanes <= RN_PREFILL_LANES);
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
            [RN_MSG_CANCEL] = on_cancel,
            [RN_MSG_LANE_FREE] = on_lane_free,
            [RN_MSG_CLOSE] = rn_actor_on_close,
        },
    .flush = flush,
};

void rn_prefill_init(struct rn_prefill *prefill, struct runnel_model *model)
{
    struct runnel_engine *engine = model->engine;

    *prefill = (struct rn_prefill){.model = model, .free_lanes = RN_PREFILL_LANES};
    rn_actor_init(&prefill->actor, &engine->runtime, &prefill_class,
                  (int32_t)(3 * engine->max_streams + RN_PREFILL_LANES + 1));
}
