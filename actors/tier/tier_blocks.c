/* The KV blocks of a model: see tier_blocks.h. */
#include "actors/tier/tier_blocks.h"

#include <sys/random.h>

#include "actors/context.h"
#include "actors/telemetry/telemetry.h"
#include "base/check.h"

runnel_status rn_tier_blocks_init(struct rn_tier_blocks *blocks, const struct rn_context *context,
                                  const struct rn_prefix_options *options)
{
    struct rn_prefix_options seeded = *options;

    *blocks = (struct rn_tier_blocks){.context = context};
    if (rn_block_pool_init(&blocks->pool, context->heap, context->limits->n_blocks) != RUNNEL_OK)
        return RUNNEL_NO_MEMORY;
    /* Without it prompts could be made to collide, which would cost time and nothing else. */
    if (getrandom(&seeded.seed, sizeof seeded.seed, GRND_NONBLOCK) != (ssize_t)sizeof seeded.seed)
        seeded.seed = (uintptr_t)blocks;
    if (rn_prefix_tree_init(&blocks->tree, context->heap, &blocks->pool, &seeded) != RUNNEL_OK)
        goto fail_tree;
    if (rn_partial_blocks_init(&blocks->partials, context->heap, &blocks->pool, &blocks->tree) != RUNNEL_OK)
        goto fail_partials;
    if (context->limits->window == 0 ||
        rn_block_pool_init(&blocks->windows, context->heap, context->limits->n_windows) == RUNNEL_OK)
        return RUNNEL_OK;
    rn_partial_blocks_fini(&blocks->partials);
fail_partials:
    rn_prefix_tree_fini(&blocks->tree);
fail_tree:
    rn_block_pool_fini(&blocks->pool);
    return RUNNEL_NO_MEMORY;
}

void rn_tier_blocks_fini(struct rn_tier_blocks *blocks)
{
    rn_block_pool_fini(&blocks->windows);
    rn_partial_blocks_fini(&blocks->partials);
    rn_prefix_tree_fini(&blocks->tree);
    rn_block_pool_fini(&blocks->pool);
}

uint32_t rn_tier_blocks_per_block(const struct rn_tier_blocks *blocks)
{
    return blocks->context->limits->block_tokens;
}

uint32_t rn_tier_blocks_for(const struct rn_tier_blocks *blocks, uint32_t tokens)
{
    uint32_t per_block = rn_tier_blocks_per_block(blocks);

    return (uint32_t)(((uint64_t)tokens + per_block - 1) / per_block);
}

static void count_used(struct rn_tier_blocks *blocks, int64_t n)
{
    RN_ASSERT(n >= 0 || blocks->n_used >= (uint64_t)-n);
    blocks->n_used += (uint32_t)n;
    rn_telemetry_blocks(blocks->context, n);
}

/* The reference of the tree or of the partial blocks, if there is one, is the only one. */
static bool is_unused(const struct rn_tier_blocks *blocks, uint32_t number)
{
    uint32_t n_cached = rn_prefix_tree_has(&blocks->tree, number) + rn_partial_blocks_have(&blocks->partials, number);

    return rn_block_pool_references(&blocks->pool, number) == n_cached;
}

void rn_tier_blocks_take(struct rn_tier_blocks *blocks, uint32_t n, uint32_t *numbers)
{
    RN_CHECK(rn_block_pool_take(&blocks->pool, n, numbers));
    count_used(blocks, n);
    RN_ASSERT(blocks->n_used <= blocks->pool.n_blocks - blocks->pool.n_free);
}

void rn_tier_blocks_ref(struct rn_tier_blocks *blocks, const uint32_t *numbers, uint32_t n)
{
    int64_t n_used = 0;

    for (uint32_t i = 0; i < n; i++)
        n_used += is_unused(blocks, numbers[i]);
    rn_prefix_tree_ref(&blocks->tree, numbers, n);
    count_used(blocks, n_used);
}

void rn_tier_blocks_unref(struct rn_tier_blocks *blocks, const uint32_t *numbers, uint32_t n)
{
    int64_t n_used = 0;

    RN_ASSERT(n <= blocks->pool.n_blocks - blocks->pool.n_free);
    rn_prefix_tree_unref(&blocks->tree, numbers, n);
    for (uint32_t i = 0; i < n; i++)
        n_used += is_unused(blocks, numbers[i]);
    count_used(blocks, -n_used);
}

void rn_tier_blocks_release_lent(struct rn_tier_blocks *blocks, uint32_t number)
{
    RN_ASSERT(rn_block_pool_references(&blocks->pool, number) > 0);
    rn_prefix_tree_release_lent(&blocks->tree, number);
    if (is_unused(blocks, number))
        count_used(blocks, -1);
}

bool rn_tier_blocks_is_own(const struct rn_tier_blocks *blocks, uint32_t number)
{
    return rn_block_pool_references(&blocks->pool, number) == 1;
}

uint32_t rn_tier_blocks_evict(struct rn_tier_blocks *blocks, uint32_t n)
{
    uint32_t n_freed = rn_partial_blocks_evict(&blocks->partials, n, false);

    n_freed += rn_prefix_tree_evict(&blocks->tree, n - n_freed);
    n_freed += rn_partial_blocks_evict(&blocks->partials, n - n_freed, true);
    RN_ASSERT(n_freed <= blocks->pool.n_free);
    rn_telemetry_evicted(blocks->context, n_freed);
    return n_freed;
}

void rn_tier_blocks_tell(struct rn_tier_blocks *blocks, struct rn_prefix_woken *woken)
{
    while (rn_prefix_woken_pop(woken) != NULL)
        blocks->woken = true;
}

bool rn_tier_blocks_check(const struct rn_tier_blocks *blocks)
{
    uint32_t n_used = 0;

    for (uint32_t i = 0; i < blocks->pool.n_blocks; i++)
        n_used += !is_unused(blocks, i);
    return (blocks->windows.heap == NULL || rn_block_pool_check(&blocks->windows)) &&
           rn_block_pool_check(&blocks->pool) && rn_prefix_tree_check(&blocks->tree) &&
           rn_partial_blocks_check(&blocks->partials) && n_used == blocks->n_used && blocks->n_lent <= blocks->n_used;
}
