/* KV blocks by number: which are free, which are used and by how many.
 *
 * Pure bookkeeping with a single owner (the tier actor): the memory of block b is the backend's. A
 * block is free exactly when its reference count is 0. Freed blocks are handed out again last-in
 * first-out, so that a small working set stays warm. */
#ifndef RN_CACHE_BLOCK_POOL_H
#define RN_CACHE_BLOCK_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/alloc.h"

struct rn_block_pool {
    struct rn_heap *heap;
    uint32_t n_blocks;
    uint32_t n_free;
    uint32_t *free_stack; /* [n_free] */
    uint32_t *references; /* [n_blocks] */
};

/* NO_MEMORY: nothing is held. n_blocks in [1, 2^31]. */
runnel_status rn_block_pool_init(struct rn_block_pool *pool, struct rn_heap *heap, uint32_t n_blocks);
void rn_block_pool_fini(struct rn_block_pool *pool);

/* Takes n blocks, each with one reference, into blocks[n]; all or none: false when fewer are free. */
bool rn_block_pool_take(struct rn_block_pool *pool, uint32_t n, uint32_t *blocks);

/* One more, one fewer reference to each of blocks[n]; the last one frees. A reference to a free
 * block, or the release of one, is a breach (RN_CHECK). */
void rn_block_pool_ref(struct rn_block_pool *pool, const uint32_t *blocks, uint32_t n);
void rn_block_pool_unref(struct rn_block_pool *pool, const uint32_t *blocks, uint32_t n);

/* References to a block; 0: it is free. */
uint32_t rn_block_pool_references(const struct rn_block_pool *pool, uint32_t block);

/* True when the free stack and the counts agree: each block is free exactly once or used. Linear in
 * n_blocks, without memory of its own: that no block is listed twice is told by a sum of hashes. For tests. */
bool rn_block_pool_check(const struct rn_block_pool *pool);

#endif
