/* What others write into lower tiers, as the mover sees it: see mover.h.
 *
 *   tier ── LISTEN ──▶ mover          it stays there
 *                        │  look: after a move, or when there is none; never sooner than listen_at_us
 *   tier ◀── LISTEN ── mover          records: where from, behind what, salt and tokens; `heard` has their handles
 *   tier ── LISTEN ──▶ mover          numbers: each handle goes to its place, or is let go
 *
 * The numbers come back before anything else that the tier says of them, since messages keep their order. */
#include <string.h>

#include "actors/context.h"
#include "actors/tier/mover.h"
#include "base/check.h"

/* A look that may have left something is repeated after so many times what it took: of processor time, of time. */
#define SPENT_PART 49u
#define TIME_PART 4u

struct hearing {
    struct rn_mover *mover;
    struct rn_move *move;
    unsigned kind;
};

static bool listens(const struct rn_tier_store *store)
{
    return store != NULL && rn_tier_store_listens(store);
}

bool rn_mover_listens(const struct rn_mover *mover)
{
    bool any = false;

    for (unsigned kind = 0; kind < RN_TIERS; kind++)
        any |= listens(mover->tiers[kind].store);
    return any;
}

/* ---- What comes back ---- */

static void take_in(struct rn_mover *mover, const struct rn_move_item *item, uint64_t handle, uint64_t parent)
{
    struct rn_mover_place *place = item->tier_directory != 0 ? rn_mover_take_place(mover, item->tier_directory) : NULL;
    bool known;

    RN_CHECK(item->from < RN_TIERS);
    known = rn_mover_find_place(&mover->find[item->from], handle) != RN_MOVER_NO_PLACE;

    if (!known && (place == NULL || place->at[item->from].handle != 0)) { /* put there by this engine meanwhile */
        rn_tier_store_decline(mover->tiers[item->from].store, handle);
        return;
    }
    if (!known)
        rn_mover_set_at(mover, place, item->from, handle, parent);
    if (place != NULL && (known || !item->idle))
        rn_mover_will_tell(mover, place);
}

void rn_mover_take_listener(struct rn_mover *mover, struct rn_move *move)
{
    RN_ASSERT(mover->listener == NULL && move->n <= RN_MOVE_BLOCKS);
    for (uint32_t i = 0; i < move->n; i++)
        take_in(mover, &move->items[i], mover->heard[i].handle, mover->heard[i].parent);
    move->n = 0;
    mover->listener = move;
}

/* ---- What goes there ---- */

/* The item of this move that the record builds on; RN_MOVE_NO_ITEM. */
static uint32_t find_item(const struct hearing *hearing, uint64_t handle)
{
    for (uint32_t i = 0; i < hearing->move->n; i++)
        if (hearing->move->items[i].from == hearing->kind && hearing->mover->heard[i].handle == handle)
            return i;
    return RN_MOVE_NO_ITEM;
}

static void on_record(void *user, const struct rn_tier_record *record)
{
    struct hearing *hearing = user;
    struct rn_mover *mover = hearing->mover;
    struct rn_move *move = hearing->move;
    struct rn_move_item *item = &move->items[move->n];
    uint32_t above = rn_mover_find_place(&mover->find[hearing->kind], record->parent);

    RN_CHECK(move->n < RN_MOVE_BLOCKS);
    RN_ASSERT(record->handle != 0 && (record->parent == 0) == (record->depth == 0));
    item->behind = record->parent == 0 ? RN_MOVE_NO_ITEM : find_item(hearing, record->parent);
    item->parent = record->parent != 0 && above != RN_MOVER_NO_PLACE ? mover->places[above].tier_directory : 0;
    item->first = record->parent == 0;
    item->tier_directory = 0;
    item->block = RN_MOVE_NO_BLOCK;
    item->from = (uint8_t)hearing->kind;
    item->idle = false;
    item->salt = record->salt;
    memcpy(item->tokens, record->tokens, mover->context->limits->block_tokens * sizeof *item->tokens);
    mover->heard[move->n].handle = record->handle;
    mover->heard[move->n++].parent = record->parent;
}

/* True: there may be more at once. */
static bool hear(struct rn_mover *mover, struct rn_move *move, unsigned kind)
{
    struct hearing hearing = {mover, move, kind};
    struct rn_tier_store *store = mover->tiers[kind].store;
    bool more, no_room;

    if (!listens(store) || move->n == RN_MOVE_BLOCKS)
        return listens(store);
    rn_tier_store_news(store, RN_MOVE_BLOCKS - move->n, on_record, &hearing, &more, &no_room);
    move->no_room |= no_room ? RN_TIER_BIT(kind) : 0;
    return more;
}

static void send_listener(struct rn_mover *mover)
{
    struct rn_msg *msg = rn_msg_new(mover->actor.runtime, RN_MSG_MOVE);

    RN_ASSERT(mover->listener->kind == RN_MOVE_LISTEN && mover->at_work == NULL);
    msg->move.move = mover->listener;
    mover->listener = NULL;
    rn_mover_answer(mover, msg->move.move, msg);
}

void rn_mover_give_listener(struct rn_mover *mover)
{
    if (mover->listener == NULL)
        return;
    mover->listener->spent_us = rn_spent_us(mover->context->clock);
    send_listener(mover);
}

/* The writer of the folder has gone, and this engine has its place. */
static void tell_writer(const struct rn_mover *mover, uint8_t writes)
{
    if ((rn_mover_writes(mover) & ~writes & RN_TIER_BIT(RN_TIER_COLD)) != 0)
        rn_log(mover->context->log, RUNNEL_LOG_INFO,
               "%s: the engine that wrote to the cache folder has ended; this one writes now",
               mover->context->metrics->name);
}

void rn_mover_listen(struct rn_mover *mover)
{
    const struct rn_clock *clock = mover->context->clock;
    struct rn_move *move = mover->listener;
    uint64_t begin_us = rn_now_us(clock), took_us, spent_us;
    uint8_t writes = rn_mover_writes(mover);
    bool more = false;

    if (move == NULL || mover->at_work != NULL || begin_us < mover->listen_at_us)
        return;
    move->spent_us = rn_spent_us(clock);
    move->no_room = 0;
    for (unsigned i = 0; i < RN_TIERS; i++)
        more |= hear(mover, move, (mover->first_listed + i) % RN_TIERS);
    mover->first_listed = (mover->first_listed + 1) % RN_TIERS;
    spent_us = SPENT_PART * (rn_spent_us(clock) - move->spent_us);
    took_us = TIME_PART * (rn_now_us(clock) - begin_us);
    spent_us = spent_us > took_us ? spent_us : took_us;
    if (!more && spent_us < mover->context->news_us)
        spent_us = mover->context->news_us;
    mover->listen_at_us = rn_now_us(clock) + spent_us;
    tell_writer(mover, writes);
    if (move->n > 0 || move->no_room != 0 || mover->first_lost != RN_MOVER_NO_PLACE || writes != rn_mover_writes(mover))
        send_listener(mover);
}

int64_t rn_mover_idle(struct rn_actor *self)
{
    struct rn_mover *mover = (struct rn_mover *)self;
    uint64_t now;

    rn_mover_listen(mover);
    if (mover->listener == NULL || mover->at_work != NULL || !rn_mover_listens(mover))
        return -1;
    now = rn_now_us(mover->context->clock);
    return mover->listen_at_us > now ? (int64_t)(mover->listen_at_us - now) : 0;
}
