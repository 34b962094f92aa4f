/* Blocks that are full in part: see partial_blocks.h. */
#include "cache/partial_blocks.h"

#include <string.h>

#include "base/check.h"

#define SHARE 16u /* of the pool's blocks, the part that is kept at most */

struct rn_partial_block {
    struct rn_partial_place place;
    uint64_t last_use;
    uint32_t block;
    uint32_t n; /* tokens; 0: the slot is free */
};

runnel_status rn_partial_blocks_init(struct rn_partial_blocks *partials, struct rn_heap *heap,
                                     struct rn_block_pool *pool, const struct rn_prefix_tree *tree)
{
    uint32_t n = pool->n_blocks / SHARE < RN_PARTIAL_BLOCKS ? pool->n_blocks / SHARE : RN_PARTIAL_BLOCKS;

    *partials = (struct rn_partial_blocks){.heap = heap, .pool = pool, .tree = tree, .n = n};
    partials->slots = rn_calloc(heap, (size_t)n + 1, sizeof partials->slots[0]);
    partials->tokens = rn_alloc(heap, (size_t)(n + 1) * tree->options.block_tokens, sizeof partials->tokens[0]);
    partials->kept = rn_calloc(heap, pool->n_blocks, sizeof partials->kept[0]);
    if (partials->slots != NULL && partials->tokens != NULL && partials->kept != NULL)
        return RUNNEL_OK;
    partials->n = 0;
    rn_partial_blocks_fini(partials);
    return RUNNEL_NO_MEMORY;
}

static void drop(struct rn_partial_blocks *partials, struct rn_partial_block *slot)
{
    RN_ASSERT(slot->n > 0 && partials->kept[slot->block] == 1);
    partials->kept[slot->block] = 0;
    rn_block_pool_unref(partials->pool, &slot->block, 1);
    slot->n = 0;
}

void rn_partial_blocks_fini(struct rn_partial_blocks *partials)
{
    for (uint32_t i = 0; i < partials->n; i++)
        if (partials->slots[i].n > 0)
            drop(partials, &partials->slots[i]);
    rn_free(partials->heap, partials->slots);
    rn_free(partials->heap, partials->tokens);
    rn_free(partials->heap, partials->kept);
    *partials = (struct rn_partial_blocks){NULL};
}

static int32_t *tokens_of(const struct rn_partial_blocks *partials, const struct rn_partial_block *slot)
{
    return partials->tokens + (size_t)(slot - partials->slots) * partials->tree->options.block_tokens;
}

/* How many of ids[n] are the slot's first ones; 0: it is elsewhere, or free. */
static uint32_t n_common(const struct rn_partial_blocks *partials, const struct rn_partial_block *slot,
                         const struct rn_partial_place *place, const int32_t *ids, uint32_t n)
{
    const int32_t *own = tokens_of(partials, slot);
    const struct rn_partial_place *there = &slot->place;
    uint32_t i = 0;

    if (slot->n == 0 || there->at.node != place->at.node || there->at.generation != place->at.generation ||
        !rn_prefix_salt_same(there->salt, place->salt))
        return 0;
    while (i < n && i < slot->n && own[i] == ids[i])
        i++;
    return i;
}

/* Nobody can find it: the tree has lost what stands before. */
static bool is_lost(const struct rn_partial_blocks *partials, const struct rn_partial_block *slot)
{
    struct rn_prefix_view view;

    return slot->place.at.node != RN_PREFIX_NO_NODE &&
           (!rn_prefix_tree_look(partials->tree, slot->place.at, &view) || view.state != RN_PREFIX_READY);
}

/* Which one gives way next: a lost one, or else the one used longest ago; `all`: of others than lost ones, too;
 * `free_only`: of those that nobody else holds. NULL: there is none. */
static struct rn_partial_block *next_to_go(const struct rn_partial_blocks *partials, bool all, bool free_only)
{
    struct rn_partial_block *next = NULL;
    bool next_lost = false;

    for (uint32_t i = 0; i < partials->n; i++) {
        struct rn_partial_block *slot = &partials->slots[i];
        bool lost;

        if (slot->n == 0 || (free_only && rn_block_pool_references(partials->pool, slot->block) > 1))
            continue;
        lost = is_lost(partials, slot);
        if ((all || lost) &&
            (next == NULL || lost > next_lost || (lost == next_lost && slot->last_use < next->last_use))) {
            next = slot;
            next_lost = lost;
        }
    }
    return next;
}

/* For a new one: a free slot, or that of the one which gives way. There is one. */
static struct rn_partial_block *make_slot(struct rn_partial_blocks *partials)
{
    struct rn_partial_block *slot;

    for (uint32_t i = 0; i < partials->n; i++)
        if (partials->slots[i].n == 0)
            return &partials->slots[i];
    slot = next_to_go(partials, true, false);
    drop(partials, slot);
    return slot;
}

void rn_partial_blocks_keep(struct rn_partial_blocks *partials, const struct rn_partial_place *place,
                            const int32_t *ids, uint32_t n, uint32_t block)
{
    struct rn_partial_block *slot;

    RN_CHECK(n > 0 && n < partials->tree->options.block_tokens && partials->kept[block] == 0);
    for (uint32_t i = 0; i < partials->n; i++) {
        uint32_t common;

        slot = &partials->slots[i];
        common = n_common(partials, slot, place, ids, n);
        if (common == n)
            return;
        if (common > 0 && common == slot->n)
            drop(partials, slot); /* the new one begins with it */
    }
    if (partials->n == 0)
        return;
    slot = make_slot(partials);
    *slot = (struct rn_partial_block){.place = *place, .last_use = ++partials->now, .block = block, .n = n};
    memcpy(tokens_of(partials, slot), ids, n * sizeof *ids);
    partials->kept[block] = 1;
    rn_block_pool_ref(partials->pool, &block, 1);
}

uint32_t rn_partial_blocks_find(struct rn_partial_blocks *partials, const struct rn_partial_place *place,
                                const int32_t *ids, uint32_t n, uint32_t *block)
{
    struct rn_partial_block *best = NULL;
    uint32_t most = 0;

    for (uint32_t i = 0; i < partials->n; i++) {
        uint32_t common = n_common(partials, &partials->slots[i], place, ids, n);

        if (common > most) {
            most = common;
            best = &partials->slots[i];
        }
    }
    if (best != NULL) {
        best->last_use = ++partials->now;
        *block = best->block;
    }
    return most;
}

uint32_t rn_partial_blocks_evict(struct rn_partial_blocks *partials, uint32_t n, bool all)
{
    uint32_t n_freed = 0;

    while (n_freed < n) {
        struct rn_partial_block *slot = next_to_go(partials, all, true);

        if (slot == NULL)
            break;
        drop(partials, slot);
        n_freed++;
    }
    partials->n_evicted += n_freed;
    return n_freed;
}

bool rn_partial_blocks_check(const struct rn_partial_blocks *partials)
{
    uint32_t n_kept = 0;

    for (uint32_t i = 0; i < partials->pool->n_blocks; i++)
        n_kept += partials->kept[i];
    for (uint32_t i = 0; i < partials->n; i++) {
        const struct rn_partial_block *slot = &partials->slots[i];

        if (slot->n == 0)
            continue;
        if (slot->block >= partials->pool->n_blocks || partials->kept[slot->block] != 1 ||
            rn_block_pool_references(partials->pool, slot->block) == 0 ||
            slot->n >= partials->tree->options.block_tokens)
            return false;
        n_kept--;
    }
    return n_kept == 0;
}
