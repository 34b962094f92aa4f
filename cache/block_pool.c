/* KV blocks by number: see block_pool.h.
 *
 *   free_stack   [ 7 | 2 | 5 | ..... ]      references   [ 1 | 3 | 0 | 1 | 1 | 0 | 2 | 0 ]
 *                          ^ n_free          block          0   1   2   3   4   5   6   7
 *
 * Invariant: the numbers in free_stack[0..n_free) are exactly the blocks whose count is 0, each once. */
#include "cache/block_pool.h"

#include <string.h>

#include "base/check.h"
#include "base/rng.h"

#define MOST_BLOCKS (1u << 31)

runnel_status rn_block_pool_init(struct rn_block_pool *pool, struct rn_heap *heap, uint32_t n_blocks)
{
    if (n_blocks == 0 || n_blocks > MOST_BLOCKS)
        return RUNNEL_INVALID;
    *pool = (struct rn_block_pool){.heap = heap, .n_blocks = n_blocks, .n_free = n_blocks};
    pool->free_stack = rn_alloc(heap, n_blocks, sizeof *pool->free_stack);
    if (pool->free_stack == NULL)
        goto fail_stack;
    pool->references = rn_calloc(heap, n_blocks, sizeof *pool->references);
    if (pool->references == NULL)
        goto fail_references;
    for (uint32_t i = 0; i < n_blocks; i++)
        pool->free_stack[i] = n_blocks - 1 - i;
    return RUNNEL_OK;

fail_references:
    rn_free(heap, pool->free_stack);
fail_stack:
    memset(pool, 0, sizeof *pool);
    return RUNNEL_NO_MEMORY;
}

void rn_block_pool_fini(struct rn_block_pool *pool)
{
    if (pool->heap == NULL)
        return;
    rn_free(pool->heap, pool->references);
    rn_free(pool->heap, pool->free_stack);
    memset(pool, 0, sizeof *pool);
}

bool rn_block_pool_take(struct rn_block_pool *pool, uint32_t n, uint32_t *blocks)
{
    if (n > pool->n_free)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        blocks[i] = pool->free_stack[--pool->n_free];
        RN_CHECK(blocks[i] < pool->n_blocks);
        RN_ASSERT(pool->references[blocks[i]] == 0);
        pool->references[blocks[i]] = 1;
    }
    return true;
}

void rn_block_pool_ref(struct rn_block_pool *pool, const uint32_t *blocks, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t block = blocks[i];

        RN_CHECK(block < pool->n_blocks);
        RN_CHECK(pool->references[block] > 0 && pool->references[block] < UINT32_MAX);
        pool->references[block]++;
    }
}

void rn_block_pool_unref(struct rn_block_pool *pool, const uint32_t *blocks, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t block = blocks[i];

        RN_CHECK(block < pool->n_blocks);
        RN_CHECK(pool->references[block] > 0);
        if (--pool->references[block] > 0)
            continue;
        RN_CHECK(pool->n_free < pool->n_blocks);
        pool->free_stack[pool->n_free++] = block;
    }
}

uint32_t rn_block_pool_references(const struct rn_block_pool *pool, uint32_t block)
{
    RN_CHECK(block < pool->n_blocks);
    return pool->references[block];
}

bool rn_block_pool_check(const struct rn_block_pool *pool)
{
    uint64_t listed = 0, unused = 0;
    uint32_t n_unused = 0;

    if (pool->n_free > pool->n_blocks)
        return false;
    for (uint32_t i = 0; i < pool->n_free; i++) {
        uint64_t block = pool->free_stack[i];

        if (block >= pool->n_blocks || pool->references[block] != 0)
            return false;
        listed += rn_splitmix64(&block);
    }
    for (uint32_t i = 0; i < pool->n_blocks; i++) {
        uint64_t block = i;

        if (pool->references[i] == 0) {
            n_unused++;
            unused += rn_splitmix64(&block);
        }
    }
    return n_unused == pool->n_free && listed == unused;
}
