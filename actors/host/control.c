/* What the host does with streams between their events: cancel, pause, resume, and the list of them. Runs on the host's
 * threads. */
#include "actors/engine.h"
#include "actors/host/host.h"
#include "base/sized.h"

struct rn_outlet *rn_host_find(struct runnel_engine *engine, runnel_stream stream, uint32_t *generation)
{
    uint32_t slot = (uint32_t)stream.id;

    *generation = (uint32_t)(stream.id >> 32);
    if (slot >= engine->max_streams || !rn_outlet_is(&engine->host.outlets[slot], *generation))
        return NULL;
    return &engine->host.outlets[slot];
}

typedef void control_fn(runnel_engine *engine, struct rn_outlet *outlet, uint32_t generation);

/* What is to be done with a stream that has not ended. INVALID: no engine; NOT_FOUND. */
static runnel_status control(runnel_engine *engine, runnel_stream stream, control_fn *act)
{
    struct rn_outlet *outlet;
    uint32_t generation;
    bool held;

    if (engine == NULL)
        return RUNNEL_INVALID;
    held = rn_engine_hold(engine);
    outlet = rn_host_find(engine, stream, &generation);
    if (outlet != NULL)
        act(engine, outlet, generation);
    rn_engine_let_go(engine, held);
    return outlet != NULL ? RUNNEL_OK : RUNNEL_NOT_FOUND;
}

static void cancel(runnel_engine *engine, struct rn_outlet *outlet, uint32_t generation)
{
    struct rn_msg *msg;

    if (!rn_host_cancel(&engine->host, outlet, generation))
        return;
    msg = rn_msg_new(&engine->runtime, RN_MSG_CANCEL);
    msg->stream = (struct rn_pay_stream){outlet->slot, generation, 0};
    rn_actor_send(&engine->router.actor, msg);
}

runnel_status runnel_stream_cancel(runnel_engine *engine, runnel_stream stream)
{
    return control(engine, stream, cancel);
}

static void pause_stream(runnel_engine *engine, struct rn_outlet *outlet, uint32_t generation)
{
    (void)engine;
    rn_host_claim(&outlet->paused, generation);
}

runnel_status runnel_stream_pause(runnel_engine *engine, runnel_stream stream)
{
    return control(engine, stream, pause_stream);
}

static void resume(runnel_engine *engine, struct rn_outlet *outlet, uint32_t generation)
{
    if (rn_word_replace(&outlet->paused, generation, 0))
        rn_host_wake_consumer(&engine->host, outlet);
}

runnel_status runnel_stream_resume(runnel_engine *engine, runnel_stream stream)
{
    return control(engine, stream, resume);
}

/* ---- The list ---- */

runnel_status runnel_engine_streams(runnel_engine *engine, uint64_t *cursor, runnel_stream_info *info)
{
    runnel_stream_info now;

    if (engine == NULL || cursor == NULL || info == NULL || !rn_sized_known(info->struct_size, sizeof now))
        return RUNNEL_INVALID;
    while (*cursor < engine->max_streams) {
        if (rn_outlet_look(&engine->host.outlets[(*cursor)++], &now)) {
            rn_sized_write(info, info->struct_size, &now, sizeof now);
            return RUNNEL_OK;
        }
    }
    return RUNNEL_NOT_FOUND;
}
