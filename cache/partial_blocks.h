/* Blocks that are full in part: what sequences that have ended computed behind their last whole block. A prompt that
 * goes on as such a sequence did copies its positions instead of computing them.
 *
 *   [The quick brown fox]            the prefix tree: whole blocks
 *    |
 *    (jumps over) block 9            here: two of the four positions are filled
 *
 * Nobody writes into such a block any more: its writer has ended. Each is held by one reference. At most one block of
 * the pool in 16 is here; the one used longest ago gives way to a new one. The tree's blocks go before they do, except
 * for those whose prefix the tree has lost, which nobody can find. Tokens are compared, never hashes.
 *
 * One owner, one thread (the tier actor's). All memory is taken at init. */
#ifndef RN_CACHE_PARTIAL_BLOCKS_H
#define RN_CACHE_PARTIAL_BLOCKS_H

#include "cache/prefix_tree.h"

#define RN_PARTIAL_BLOCKS 256u /* the most that are kept, however large the pool */

struct rn_partial_block;

struct rn_partial_blocks {
    struct rn_heap *heap;
    struct rn_block_pool *pool;
    const struct rn_prefix_tree *tree;
    uint32_t n;                     /* places for blocks */
    struct rn_partial_block *slots; /* [n] */
    int32_t *tokens;                /* [n][B] */
    uint8_t *kept;                  /* [pool->n_blocks]: 1: the block is here */
    uint64_t now;                   /* counts uses */
    uint64_t n_evicted;
};

/* Borrows heap, pool and tree until fini. NO_MEMORY: nothing is held. */
runnel_status rn_partial_blocks_init(struct rn_partial_blocks *partials, struct rn_heap *heap,
                                     struct rn_block_pool *pool, const struct rn_prefix_tree *tree);

/* Gives the references back. Before the tree's and the pool's fini; harmless on a zeroed one. */
void rn_partial_blocks_fini(struct rn_partial_blocks *partials);

/* Where a block lies: behind the node `at` of the tree; node RN_PREFIX_NO_NODE: at the beginning of a sequence of that
 * salt. */
struct rn_partial_place {
    struct rn_prefix_salt salt;
    struct rn_prefix_ref at;
};

/* The block holds the KV of ids[n] there, n in [1, B), and its writer has ended; takes a reference, unless the ids are
 * the first ones of a block that is here already. */
void rn_partial_blocks_keep(struct rn_partial_blocks *partials, const struct rn_partial_place *place,
                            const int32_t *ids, uint32_t n, uint32_t block);

/* The block that has the most tokens in common with ids[n] there: how many of its first ones; *block is then its
 * number. 0: none. Counts as a use; takes no reference: valid until the next evict or keep. */
uint32_t rn_partial_blocks_find(struct rn_partial_blocks *partials, const struct rn_partial_place *place,
                                const int32_t *ids, uint32_t n, uint32_t *block);

/* Frees up to n blocks: of those whose prefix is lost, and if `all` of the others too, used longest ago first. Those
 * that someone else holds stay. Returns how many are free now. */
uint32_t rn_partial_blocks_evict(struct rn_partial_blocks *partials, uint32_t n, bool all);

/* True: one of the block's references is held here. */
static inline bool rn_partial_blocks_have(const struct rn_partial_blocks *partials, uint32_t block)
{
    return partials->kept[block] != 0;
}

/* True when everything above holds. Linear in blocks. For tests. */
bool rn_partial_blocks_check(const struct rn_partial_blocks *partials);

#endif
