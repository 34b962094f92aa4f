/* Blocks that others have put into lower tiers: see tier_news.h. */
#include "actors/tier_news.h"

#include "actors/context.h"
#include "actors/note.h"
#include "actors/tier_actor.h"
#include "base/check.h"

/* Of a block that the tree does not know: a node without a block, and its number. 0: there is no room. */
static uint64_t add(struct rn_tier *tier, enum rn_tier_kind kind, struct rn_prefix_salt salt,
                    struct rn_prefix_ref parent, const int32_t *tokens)
{
    struct rn_shelf *shelf = &tier->shelf;
    struct rn_shelf_place *place;
    uint64_t number = rn_shelf_take_number(shelf, (struct rn_prefix_ref){RN_PREFIX_NO_NODE, 0});

    if (number == 0)
        return 0;
    place = rn_shelf_place_of(shelf, number);
    if (!rn_prefix_tree_adopt(&tier->tree, salt, parent, tokens, number, &place->node)) {
        rn_shelf_free_place(shelf, place);
        return 0;
    }
    place->has = RN_TIER_BIT(kind);
    return number;
}

uint64_t rn_tier_adopt(void *user, enum rn_tier_kind kind, const struct rn_tier_record *record, uint64_t parent)
{
    struct rn_tier *tier = user;
    const struct rn_shelf_place *above = rn_shelf_place_of(&tier->shelf, parent);
    struct rn_prefix_ref at = {RN_PREFIX_NO_NODE, 0}, node;
    struct rn_prefix_view view;

    if (parent != 0 && above == NULL)
        return 0;
    if (above != NULL)
        at = above->node;
    if (!rn_prefix_tree_child(&tier->tree, record->salt, at, record->tokens, &node))
        return add(tier, kind, record->salt, at, record->tokens);
    rn_prefix_tree_look(&tier->tree, node, &view); /* another tier has it too */
    rn_shelf_place_of(&tier->shelf, view.handle)->has |= RN_TIER_BIT(kind);
    return view.handle;
}

/* ---- While the engine runs ---- */

/* The number of a block that the tree knows, a new one if it has none; 0: somebody is computing it. */
static uint64_t number_of(struct rn_tier *tier, struct rn_prefix_ref node)
{
    struct rn_prefix_view view;
    uint64_t number;

    rn_prefix_tree_look(&tier->tree, node, &view);
    if (view.handle != 0 || view.state != RN_PREFIX_READY)
        return view.handle;
    number = rn_shelf_take_number(&tier->shelf, node);
    if (number != 0)
        rn_prefix_tree_set_handle(&tier->tree, node, number);
    return number;
}

/* What there is of it in other tiers, or here, is not touched: should the mover have lost or got something meanwhile,
 * it says so with an answer of its own (rn_mover_will_tell). */
static uint64_t adopt_item(struct rn_tier *tier, const struct rn_move *move, struct rn_move_item *item)
{
    uint64_t parent = item->behind != RN_MOVE_NO_ITEM ? move->items[item->behind].shelf : item->parent;
    const struct rn_shelf_place *above = rn_shelf_place_of(&tier->shelf, parent);
    struct rn_prefix_ref at = {RN_PREFIX_NO_NODE, 0}, node;

    if (!item->first && above == NULL)
        return 0;
    if (!item->first)
        at = above->node;
    if (rn_prefix_tree_child(&tier->tree, item->salt, at, item->tokens, &node))
        return number_of(tier, node);
    item->idle = true;
    return add(tier, (enum rn_tier_kind)item->from, item->salt, at, item->tokens);
}

/* News never push out what is of any other use: numbers are not made for them as they are for copies. */
static uint32_t adopt_all(struct rn_tier *tier, struct rn_move *move)
{
    bool full = tier->shelf.full;
    uint32_t n = 0;

    for (uint32_t i = 0; i < move->n; i++) {
        struct rn_move_item *item = &move->items[i];

        RN_CHECK(item->behind == RN_MOVE_NO_ITEM || item->behind < i);
        item->shelf = adopt_item(tier, move, item);
        n += item->shelf != 0 && item->idle;
    }
    tier->shelf.full = full;
    return n;
}

/* A tier can hardly keep more in mind: what has been cold longest is forgotten, as long as only such a tier has it. */
static void make_room(struct rn_tier *tier, uint8_t tiers)
{
    struct rn_prefix_ref node;
    struct rn_prefix_view view;

    for (uint32_t i = 0; i < RN_MOVE_TOLD && rn_prefix_tree_oldest_cold(&tier->tree, &node); i++) {
        rn_prefix_tree_look(&tier->tree, node, &view);
        if ((rn_tier_shelf_has(tier, view.handle) & ~tiers) != 0)
            return;
        rn_prefix_tree_drop_cold(&tier->tree);
    }
}

static void send_listener(struct rn_tier *tier)
{
    struct rn_msg *msg = rn_msg_new(tier->actor.runtime, RN_MSG_MOVE);

    tier->shelf.listens = true;
    msg->move.move = tier->shelf.listener;
    rn_actor_send(tier->context->mover, msg);
}

void rn_tier_listen(struct rn_tier *tier)
{
    struct rn_move *move = tier->shelf.listener;

    if (tier->shelf.tiers == 0)
        return;
    move->kind = RN_MOVE_LISTEN;
    move->n = move->n_told = move->pause_us = 0;
    send_listener(tier);
}

void rn_tier_heard(struct rn_tier *tier, struct rn_move *move)
{
    if (tier->shelf.closing != NULL) {
        tier->shelf.listens = false;
        return;
    }
    rn_note_adopted(tier->context, adopt_all(tier, move));
    if (move->no_room != 0)
        make_room(tier, move->no_room);
    send_listener(tier);
}

void rn_tier_look_for_news(struct rn_tier *tier)
{
    uint64_t now;

    if (!tier->shelf.listens || tier->context->runtime->n_threads > 0)
        return;
    now = rn_now_us(tier->context->clock);
    if (now < tier->shelf.look_at_us)
        return;
    tier->shelf.look_at_us = now + tier->context->news_us;
    tier->shelf.more = true;
}

bool rn_tier_stop_listening(struct rn_tier *tier)
{
    struct rn_move *move;

    if (!tier->shelf.listens)
        return true;
    if (!tier->shelf.recalled && (move = rn_tier_shelf_move(tier, RN_MOVE_RECALL)) != NULL) {
        tier->shelf.recalled = true;
        rn_tier_shelf_send(tier, move);
    }
    return false;
}
