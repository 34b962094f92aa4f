/* The KV blocks of a model: the block pool, the prefix tree and the partial blocks over it, with the counts that the
 * metrics show. Part of the prefix cache (prefix_cache.h); the directory of lower tiers and admission take and give
 * back blocks here.
 *
 *   free        in the pool
 *   used        a request or a session holds it, or the mover writes into it; the tree may hold it too
 *   cached      the tree alone holds it, or the partial blocks: evicted when blocks run short
 *   lent        the mover reads it or writes into it, and it could be had otherwise: it comes back soon
 *
 * Belongs to the tier actor. */
#ifndef RN_ACTORS_TIER_BLOCKS_H
#define RN_ACTORS_TIER_BLOCKS_H

#include "cache/block_pool.h"
#include "cache/partial_blocks.h"
#include "cache/prefix_tree.h"

struct rn_context;

struct rn_tier_blocks {
    const struct rn_context *context;
    struct rn_block_pool pool;
    struct rn_prefix_tree tree;
    struct rn_partial_blocks partials;
    struct rn_block_pool windows; /* of layers with windows that have blocks of their own (window_marks.h) */
    uint32_t n_used;              /* blocks that a request or a session holds */
    uint32_t n_lent;
    bool
        woken; /* a wait for another's blocks, or for a slot of recurrent state, has ended. Whoever looks through the waiting again sets it to false */
};

/* The tree is made of these options; their seed is chosen here. NO_MEMORY: nothing is held. */
runnel_status rn_tier_blocks_init(struct rn_tier_blocks *blocks, const struct rn_context *context,
                                  const struct rn_prefix_options *options);

/* All references have come back, all paths have left. */
void rn_tier_blocks_fini(struct rn_tier_blocks *blocks);

uint32_t rn_tier_blocks_per_block(const struct rn_tier_blocks *blocks); /* tokens */

/* So many blocks hold that many tokens. */
uint32_t rn_tier_blocks_for(const struct rn_tier_blocks *blocks, uint32_t tokens);

/* Takes n free blocks, for which room was made. */
void rn_tier_blocks_take(struct rn_tier_blocks *blocks, uint32_t n, uint32_t *numbers);

/* One more, one fewer reference to each; the latter counts as a use of what the tree has. */
void rn_tier_blocks_ref(struct rn_tier_blocks *blocks, const uint32_t *numbers, uint32_t n);
void rn_tier_blocks_unref(struct rn_tier_blocks *blocks, const uint32_t *numbers, uint32_t n);

/* The reference that the mover had for reading: as unref, and no use of it. */
void rn_tier_blocks_release_lent(struct rn_tier_blocks *blocks, uint32_t number);

/* True: nobody but one holder has it. */
bool rn_tier_blocks_is_own(const struct rn_tier_blocks *blocks, uint32_t number);

/* Frees up to n blocks that are cached; how many. */
uint32_t rn_tier_blocks_evict(struct rn_tier_blocks *blocks, uint32_t n);

/* Sets `woken` if a path was told. Nothing else may happen to the tree before this. */
void rn_tier_blocks_tell(struct rn_tier_blocks *blocks, struct rn_prefix_woken *woken);

/* False: pool or tree is not whole, or the counts are wrong. Linear in blocks and nodes. */
bool rn_tier_blocks_check(const struct rn_tier_blocks *blocks);

#endif
