/* The directory of lower tiers, its entries and its moves: see directory.h. */
#include "actors/tier/directory.h"

#include <assert.h>
#include <string.h>

#include "actors/context.h"
#include "actors/telemetry/telemetry.h"
#include "base/check.h"

#define NONE RN_DIRECTORY_NONE

static_assert(RN_MOVES > 3, "some moves are left for what comes up");

/* ---- Numbers ---- */

uint64_t rn_directory_number_of(const struct rn_directory *directory, uint32_t at)
{
    RN_ASSERT(at < directory->n_touched);
    return (uint64_t)directory->entries[at].generation << 32 | (at + 1);
}

struct rn_directory_entry *rn_directory_entry_of(const struct rn_directory *directory, uint64_t number)
{
    uint32_t at = (uint32_t)number - 1;

    if (number == 0 || at >= directory->n_touched || directory->entries[at].state != RN_DIRECTORY_USED ||
        rn_directory_number_of(directory, at) != number)
        return NULL;
    return &directory->entries[at];
}

void rn_directory_free_entry(struct rn_directory *directory, struct rn_directory_entry *entry)
{
    RN_ASSERT(entry->state == RN_DIRECTORY_LEAVING || (entry->state == RN_DIRECTORY_USED && !entry->writing));
    entry->state = RN_DIRECTORY_FREE;
    entry->next = directory->first_free;
    directory->first_free = (uint32_t)(entry - directory->entries);
}

uint64_t rn_directory_take_number(struct rn_directory *directory, struct rn_prefix_ref node)
{
    uint32_t at = directory->first_free;

    if (at != NONE)
        directory->first_free = directory->entries[at].next;
    else if (directory->n_touched < directory->n)
        directory->entries[at = directory->n_touched++].generation = 0;
    else
        return directory->full = true, 0;
    RN_ASSERT(at < directory->n_touched && directory->n_touched <= directory->n);
    directory->entries[at] = (struct rn_directory_entry){
        .node = node, .generation = (directory->entries[at].generation + 1) & INT32_MAX, .state = RN_DIRECTORY_USED};
    return rn_directory_number_of(directory, at);
}

uint8_t rn_directory_has(const struct rn_directory *directory, uint64_t number)
{
    const struct rn_directory_entry *entry = rn_directory_entry_of(directory, number);

    return entry != NULL ? entry->has : 0;
}

/* No tier has it any more: a node that is here keeps its number for the next copy, any other has nothing to come up. */
static void lost(struct rn_directory *directory, struct rn_directory_entry *entry)
{
    struct rn_prefix_view view;

    if (!rn_prefix_tree_look(&directory->blocks->tree, entry->node, &view)) {
        rn_directory_free_entry(directory, entry);
    } else if (view.state != RN_PREFIX_READY) {
        struct rn_prefix_ref node = entry->node;

        rn_directory_free_entry(directory, entry);
        rn_prefix_tree_set_handle(&directory->blocks->tree, node, 0);
    } else {
        entry->pushed = true;
    }
}

void rn_directory_settle(struct rn_directory *directory, uint64_t number, uint8_t has)
{
    struct rn_directory_entry *entry = rn_directory_entry_of(directory, number);

    RN_ASSERT(has >> RN_TIERS == 0);
    if (entry == NULL || entry->writing)
        return;
    if ((entry->has & ~has & RN_TIER_BIT(RN_TIER_WARM)) != 0)
        entry->pushed = true;
    entry->has = has;
    if (has == 0)
        lost(directory, entry);
}

/* ---- The tree's callbacks ---- */

uint64_t rn_directory_evicted(void *user, const struct rn_prefix_tree *tree, struct rn_prefix_ref node)
{
    struct rn_directory *directory = user;
    struct rn_directory_entry *entry;
    struct rn_prefix_view view;

    RN_CHECK(rn_prefix_tree_look(tree, node, &view) && view.state == RN_PREFIX_READY);
    entry = rn_directory_entry_of(directory, view.handle);
    if (entry != NULL && entry->has != 0)
        return view.handle;
    if (entry != NULL)
        rn_directory_free_entry(directory, entry);
    rn_telemetry_dropped(directory->context, 1);
    if (directory->unpaid)
        rn_telemetry_unpaid(directory->context, 1);
    return 0;
}

void rn_directory_forgotten(void *user, uint64_t number)
{
    struct rn_directory *directory = user;
    struct rn_directory_entry *entry = rn_directory_entry_of(directory, number);

    if (entry == NULL || directory->closed)
        return;
    if (entry->has == 0 && !entry->writing) {
        rn_directory_free_entry(directory, entry);
        return;
    }
    RN_ASSERT(entry->state == RN_DIRECTORY_USED);
    entry->state = RN_DIRECTORY_LEAVING;
    entry->untrusted = directory->untrusting;
    entry->next = NONE;
    if (directory->first_leaving == NONE)
        directory->first_leaving = (uint32_t)(entry - directory->entries);
    else
        directory->entries[directory->last_leaving].next = (uint32_t)(entry - directory->entries);
    directory->last_leaving = (uint32_t)(entry - directory->entries);
}

void rn_directory_distrust(struct rn_directory *directory, bool on)
{
    directory->untrusting = on;
}

/* ---- Moves ---- */

struct rn_move *rn_directory_move(struct rn_directory *directory, enum rn_move_kind kind)
{
    struct rn_move *move = directory->free;
    bool taken = kind == RN_MOVE_DOWN ? directory->down_out
                 : kind == RN_MOVE_UP ? directory->n_ups == RN_MOVES - 3
                                      : directory->tend_out;

    if (taken)
        return NULL;
    RN_CHECK(move != NULL);
    directory->free = move->next;
    move->kind = kind;
    move->n = move->n_told = move->pause_us = 0;
    if (kind == RN_MOVE_DOWN)
        directory->down_out = true;
    else if (kind == RN_MOVE_UP)
        directory->n_ups++;
    else
        directory->tend_out = true;
    return move;
}

void rn_directory_send(struct rn_directory *directory, struct rn_move *move)
{
    struct rn_msg *msg = rn_msg_new(directory->context->runtime, RN_MSG_MOVE);

    RN_ASSERT(directory->n_out < RN_MOVES && move->n <= RN_MOVE_BLOCKS && move->n_told <= RN_MOVE_TOLD);
    directory->n_out++;
    msg->move.move = move;
    rn_actor_send(directory->context->mover, msg);
}

void rn_directory_put_back(struct rn_directory *directory, struct rn_move *move)
{
    RN_ASSERT(directory->n_out > 0 && (move->kind != RN_MOVE_UP || directory->n_ups > 0));
    RN_ASSERT(move->kind != RN_MOVE_DOWN || directory->down_out);
    RN_ASSERT(move->kind == RN_MOVE_UP || move->kind == RN_MOVE_DOWN || directory->tend_out);
    RN_ASSERT(move != directory->listener);
    directory->n_out--;
    if (move->kind == RN_MOVE_DOWN)
        directory->down_out = false;
    else if (move->kind == RN_MOVE_UP)
        directory->n_ups--;
    else
        directory->tend_out = false;
    move->next = directory->free;
    directory->free = move;
}

/* ---- Use ---- */

static void set_unproven(struct rn_directory *directory, uint32_t block, bool unproven)
{
    RN_CHECK(block < directory->blocks->pool.n_blocks);
    directory->unproven[block] = unproven;
}

void rn_directory_computing(struct rn_directory *directory, const uint32_t *blocks, uint32_t n)
{
    for (uint32_t i = 0; i < n && directory->n > 0; i++)
        set_unproven(directory, blocks[i], true);
}

void rn_directory_proved(struct rn_directory *directory, const uint32_t *blocks, uint32_t n)
{
    for (uint32_t i = 0; i < n && directory->n > 0; i++)
        set_unproven(directory, blocks[i], false);
}

void rn_directory_used(struct rn_directory *directory, struct rn_prefix_ref node)
{
    struct rn_prefix_view view;

    if (directory->tiers == 0)
        return;
    for (; rn_prefix_tree_look(&directory->blocks->tree, node, &view) && view.state != RN_PREFIX_ROOT;
         node = view.parent) {
        struct rn_directory_entry *entry = rn_directory_entry_of(directory, view.handle);

        if (entry != NULL)
            entry->pushed = false;
    }
}

/* ---- Init, fini, check ---- */

static bool take_memory(struct rn_directory *directory)
{
    const struct rn_backend_limits *limits = directory->context->limits;
    struct rn_heap *heap = directory->context->heap;

    directory->entries = rn_alloc(heap, directory->n, sizeof directory->entries[0]);
    directory->moves = rn_calloc(heap, RN_MOVES, sizeof directory->moves[0]);
    directory->move_tokens =
        rn_alloc(heap, (size_t)RN_MOVES * RN_MOVE_BLOCKS * limits->block_tokens, sizeof directory->move_tokens[0]);
    directory->chain = rn_alloc(heap, limits->context_tokens / limits->block_tokens + 1, sizeof directory->chain[0]);
    directory->unproven = rn_calloc(heap, limits->n_blocks, sizeof directory->unproven[0]);
    return directory->unproven != NULL && directory->entries != NULL && directory->moves != NULL &&
           directory->move_tokens != NULL && directory->chain != NULL;
}

runnel_status rn_directory_init(struct rn_directory *directory, const struct rn_context *context,
                                struct rn_tier_blocks *blocks, uint32_t n)
{
    uint32_t per_block = context->limits->block_tokens;

    *directory = (struct rn_directory){.context = context, .blocks = blocks, .n = n, .calm = UINT64_MAX};
    rn_copy_budget_init(&directory->budget);
    directory->first_free = directory->first_leaving = directory->last_leaving = NONE;
    if (n == 0)
        return RUNNEL_OK;
    if (!take_memory(directory)) {
        rn_directory_fini(directory);
        return RUNNEL_NO_MEMORY;
    }
    for (uint32_t i = 0; i < RN_MOVES; i++) {
        struct rn_move *move = &directory->moves[i];

        for (uint32_t k = 0; k < RN_MOVE_BLOCKS; k++)
            move->items[k].tokens = directory->move_tokens + (size_t)(i * RN_MOVE_BLOCKS + k) * per_block;
        move->next = directory->free;
        directory->free = move;
    }
    directory->listener = directory->free;
    directory->free = directory->free->next;
    return RUNNEL_OK;
}

void rn_directory_fini(struct rn_directory *directory)
{
    struct rn_heap *heap = directory->context->heap;

    for (unsigned kind = 0; kind < RN_TIERS; kind++)
        rn_telemetry_moved(directory->context, kind, false, 0, -(int64_t)directory->taken[kind]);
    rn_directory_open(directory, 0, 0);
    rn_free(heap, directory->entries);
    rn_free(heap, directory->moves);
    rn_free(heap, directory->move_tokens);
    rn_free(heap, directory->chain);
    rn_free(heap, directory->unproven);
}

void rn_directory_open(struct rn_directory *directory, uint8_t tiers, uint8_t writes)
{
    const uint8_t cold = RN_TIER_BIT(RN_TIER_COLD);

    RN_ASSERT((writes & ~tiers) == 0 && tiers >> RN_TIERS == 0);
    rn_telemetry_cold_writes(directory->context, ((writes & cold) != 0) - ((directory->writes & cold) != 0));
    directory->tiers = tiers;
    directory->writes = writes;
}

static bool check_moves(const struct rn_directory *directory)
{
    uint32_t n_free = 0;

    for (const struct rn_move *move = directory->free; move != NULL && n_free < RN_MOVES; move = move->next)
        n_free += move == directory->listener ? RN_MOVES : 1;
    return directory->n_ups + directory->down_out + directory->tend_out == directory->n_out &&
           n_free + directory->n_out == RN_MOVES - 1 && (directory->listens || !directory->stopping_listen);
}

/* A used entry is known to its node by its number, and is nowhere else. */
static bool check_entry(const struct rn_directory *directory, uint32_t at)
{
    const struct rn_directory_entry *entry = &directory->entries[at];
    struct rn_prefix_view view;

    if (entry->state != RN_DIRECTORY_USED)
        return true;
    return !rn_prefix_tree_look(&directory->blocks->tree, entry->node, &view) ||
           view.handle == rn_directory_number_of(directory, at);
}

bool rn_directory_check(const struct rn_directory *directory)
{
    uint32_t n_free = 0, n_leaving = 0, n[RN_DIRECTORY_LEAVING + 1] = {0}, n_asked_for = 0;

    if (directory->n == 0)
        return directory->tiers == 0;
    for (uint32_t i = 0; i < directory->n_touched; i++) {
        n[directory->entries[i].state]++;
        if (!check_entry(directory, i))
            return false;
    }
    for (uint32_t at = directory->first_free; at != NONE && n_free <= directory->n; at = directory->entries[at].next)
        n_free++;
    for (uint32_t at = directory->first_leaving; at != NONE && n_leaving <= directory->n;
         at = directory->entries[at].next)
        n_leaving++;
    for (uint32_t i = 0; i < directory->n_wanted; i++)
        n_asked_for += directory->wanted[(directory->first_wanted + i) % RN_DIRECTORY_MAX_WANTED].asked_for;
    return directory->n_touched <= directory->n && n_free == n[RN_DIRECTORY_FREE] &&
           n_leaving == n[RN_DIRECTORY_LEAVING] && directory->n_wanted <= RN_DIRECTORY_MAX_WANTED &&
           n_asked_for == directory->n_asked_for && (directory->writes & ~directory->tiers) == 0 &&
           directory->first_wanted < RN_DIRECTORY_MAX_WANTED && rn_copy_budget_check(&directory->budget) &&
           rn_tier_cost_check(&directory->cost) && rn_doorkeeper_check(&directory->door) && check_moves(directory);
}
