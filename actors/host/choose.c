/* Asking the host for its choice (runnel_samplers.choose), and taking it. Runs on the host's threads.
 *
 *   reader: a cell that asks ─▶ choosing = generation ─▶ choose ─┬─ a place, or DRAW ─▶ claim ─▶ CHOICE
 *                                                                └─ LATER ... runnel_stream_choose ─▶ claim ─▶ CHOICE
 *
 * Who sets `choosing` back to 0 makes the choice, so that there is one. Candidates are touched before that only, or by
 * the reader's thread, on which the stream is closed: runnel_stream_choose looks at none. */
#include "actors/engine.h"
#include "actors/host/host.h"
#include "base/check.h"

/* seq_cst; partner: ask, and whoever else makes a choice. False: another has made it, or none is awaited. */
static bool claim(struct rn_outlet *outlet, uint32_t generation)
{
    return rn_word_replace(&outlet->choosing, generation, 0);
}

static void send_choice(struct runnel_engine *engine, uint32_t slot, uint32_t generation, uint32_t place)
{
    struct rn_msg *msg = rn_msg_new(&engine->runtime, RN_MSG_CHOICE);

    msg->choice = (struct rn_pay_choice){.slot = slot, .generation = generation, .place = place};
    rn_actor_send(&engine->router.actor, msg);
}

void rn_host_ask(struct runnel_engine *engine, struct rn_outlet *outlet, uint32_t generation)
{
    struct rn_choice *choice = outlet->choice;
    int64_t place;

    RN_ASSERT(choice != NULL && rn_outlet_is(outlet, generation));
    rn_word_set(&outlet->choosing, generation);
    place = choice->choose(choice->user, rn_choice_ask(choice, rn_stream_id(outlet->slot, generation).id));
    if (place == RUNNEL_CHOOSE_LATER || !claim(outlet, generation))
        return;
    send_choice(engine, outlet->slot, generation,
                place == RUNNEL_CHOOSE_DRAW               ? rn_choice_draw(choice)
                : place < 0 || place >= RN_CHOICE_NOTHING ? RN_CHOICE_NO_PLACE
                                                          : (uint32_t)place);
}

static runnel_status choose(struct runnel_engine *engine, runnel_stream stream, size_t place)
{
    uint32_t generation;
    struct rn_outlet *outlet = rn_host_find(engine, stream, &generation);

    if (outlet == NULL)
        return RUNNEL_NOT_FOUND;
    if (!claim(outlet, generation))
        return RUNNEL_STATE;
    send_choice(engine, (uint32_t)stream.id, generation,
                place < RN_CHOICE_NOTHING ? (uint32_t)place : RN_CHOICE_NO_PLACE);
    return RUNNEL_OK;
}

runnel_status runnel_stream_choose(runnel_engine *engine, runnel_stream stream, size_t place)
{
    runnel_status status;
    bool held;

    if (engine == NULL)
        return RUNNEL_INVALID;
    held = rn_engine_hold(engine);
    status = choose(engine, stream, place);
    rn_engine_let_go(engine, held);
    return status;
}
