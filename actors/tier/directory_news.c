/* Blocks that others have put into lower tiers: see directory_news.h. */
#include "actors/tier/directory_news.h"

#include "actors/context.h"
#include "actors/telemetry/telemetry.h"
#include "base/check.h"

/* Of a block that the tree does not know: a node without a block, and its number. 0: there is no room. */
static uint64_t add(struct rn_directory *directory, enum rn_tier_kind kind, struct rn_prefix_salt salt,
                    struct rn_prefix_ref parent, const int32_t *tokens)
{
    struct rn_directory_entry *entry;
    uint64_t number = rn_directory_take_number(directory, (struct rn_prefix_ref){RN_PREFIX_NO_NODE, 0});

    if (number == 0)
        return 0;
    entry = rn_directory_entry_of(directory, number);
    if (!rn_prefix_tree_adopt(&directory->blocks->tree, salt, parent, tokens, number, &entry->node)) {
        rn_directory_free_entry(directory, entry);
        return 0;
    }
    entry->has = RN_TIER_BIT(kind);
    return number;
}

uint64_t rn_directory_adopt(void *user, enum rn_tier_kind kind, const struct rn_tier_record *record, uint64_t parent)
{
    struct rn_directory *directory = user;
    const struct rn_directory_entry *above = rn_directory_entry_of(directory, parent);
    struct rn_directory_entry *entry;
    struct rn_prefix_ref at = {RN_PREFIX_NO_NODE, 0}, node;
    struct rn_prefix_view view;

    if (parent != 0 && above == NULL)
        return 0;
    if (above != NULL)
        at = above->node;
    if (!rn_prefix_tree_child(&directory->blocks->tree, record->salt, at, record->tokens, &node))
        return add(directory, kind, record->salt, at, record->tokens);
    rn_prefix_tree_look(&directory->blocks->tree, node, &view); /* another tier has it too */
    entry = rn_directory_entry_of(directory, view.handle);
    RN_CHECK(entry != NULL);
    entry->has |= (uint8_t)RN_TIER_BIT(kind);
    return view.handle;
}

/* ---- While the engine runs ---- */

/* The number of a block that the tree knows, a new one if it has none; 0: somebody is computing it. */
static uint64_t number_of(struct rn_directory *directory, struct rn_prefix_ref node)
{
    struct rn_prefix_view view;
    uint64_t number;

    rn_prefix_tree_look(&directory->blocks->tree, node, &view);
    if (view.handle != 0 || view.state != RN_PREFIX_READY)
        return view.handle;
    number = rn_directory_take_number(directory, node);
    if (number != 0)
        rn_prefix_tree_set_handle(&directory->blocks->tree, node, number);
    return number;
}

/* What there is of it in other tiers, or here, is not touched: should the mover have lost or got something meanwhile,
 * it says so with an answer of its own (rn_mover_will_tell). */
static uint64_t adopt_item(struct rn_directory *directory, const struct rn_move *move, struct rn_move_item *item)
{
    uint64_t parent = item->behind != RN_MOVE_NO_ITEM ? move->items[item->behind].tier_directory : item->parent;
    const struct rn_directory_entry *above = rn_directory_entry_of(directory, parent);
    struct rn_prefix_ref at = {RN_PREFIX_NO_NODE, 0}, node;

    if (!item->first && above == NULL)
        return 0;
    if (!item->first)
        at = above->node;
    if (rn_prefix_tree_child(&directory->blocks->tree, item->salt, at, item->tokens, &node))
        return number_of(directory, node);
    item->idle = true;
    return add(directory, (enum rn_tier_kind)item->from, item->salt, at, item->tokens);
}

/* News never push out what is of any other use: numbers are not made for them as they are for copies. */
static uint32_t adopt_all(struct rn_directory *directory, struct rn_move *move)
{
    bool full = directory->full;
    uint32_t n = 0;

    RN_ASSERT(move == directory->listener && move->n <= RN_MOVE_BLOCKS);
    for (uint32_t i = 0; i < move->n; i++) {
        struct rn_move_item *item = &move->items[i];

        RN_CHECK(item->behind == RN_MOVE_NO_ITEM || item->behind < i);
        item->tier_directory = adopt_item(directory, move, item);
        n += item->tier_directory != 0 && item->idle;
    }
    directory->full = full;
    return n;
}

/* A tier can hardly keep more in mind: what has been cold longest is forgotten, as long as only such a tier has it. */
static void make_room(struct rn_directory *directory, uint8_t tiers)
{
    struct rn_prefix_ref node;
    struct rn_prefix_view view;

    for (uint32_t i = 0; i < RN_MOVE_TOLD && rn_prefix_tree_oldest_cold(&directory->blocks->tree, &node); i++) {
        rn_prefix_tree_look(&directory->blocks->tree, node, &view);
        if ((rn_directory_has(directory, view.handle) & ~tiers) != 0)
            return;
        rn_prefix_tree_drop_cold(&directory->blocks->tree);
    }
}

static void send_listener(struct rn_directory *directory)
{
    struct rn_msg *msg = rn_msg_new(directory->context->runtime, RN_MSG_MOVE);

    RN_ASSERT(!directory->closing && !directory->closed);
    directory->listens = true;
    msg->move.move = directory->listener;
    rn_actor_send(directory->context->mover, msg);
}

void rn_directory_listen(struct rn_directory *directory)
{
    struct rn_move *move = directory->listener;

    if (directory->tiers == 0)
        return;
    RN_ASSERT(!directory->listens);
    move->kind = RN_MOVE_LISTEN;
    move->n = move->n_told = move->pause_us = 0;
    send_listener(directory);
}

void rn_directory_on_listed(struct rn_directory *directory, struct rn_move *move)
{
    RN_ASSERT(directory->listens && move == directory->listener);
    if (directory->closing) {
        directory->listens = false;
        return;
    }
    rn_telemetry_adopted(directory->context, adopt_all(directory, move));
    if (move->no_room != 0)
        make_room(directory, move->no_room);
    send_listener(directory);
}

void rn_directory_look_for_news(struct rn_directory *directory)
{
    uint64_t now;

    if (!directory->listens || directory->context->runtime->n_threads > 0)
        return;
    now = rn_now_us(directory->context->clock);
    if (now < directory->look_at_us)
        return;
    directory->look_at_us = now + directory->context->news_us;
    directory->more = true;
}

bool rn_directory_stop_listening(struct rn_directory *directory)
{
    struct rn_move *move;

    if (!directory->listens)
        return true;
    if (!directory->stopping_listen && (move = rn_directory_move(directory, RN_MOVE_STOP_LISTENING)) != NULL) {
        directory->stopping_listen = true;
        rn_directory_send(directory, move);
    }
    return false;
}
