/* Compute or bring up: see cost.h. */
#include "actors/tier/cost.h"

#include <assert.h>
#include <math.h>

#include "base/check.h"
#include "cache/prefix_tree.h"

#define WEIGHT 0.125f /* of the newest measurement */
#define FORGIVE 0.9f  /* for a tier that was passed over: after 22 times it counts as ten times as fast */

static_assert(RN_COST_DEPTHS == 32, "a depth for each power of two of a position");

static uint32_t depth_of(uint32_t position)
{
    return position == 0 ? 0 : 31u - (uint32_t)__builtin_clz(position);
}

static void average(float *mean, double value)
{
    *mean = *mean == 0 ? (float)value : *mean + WEIGHT * ((float)value - *mean);
}

void rn_tier_cost_computed(struct rn_tier_cost *cost, uint32_t position, uint32_t n, uint64_t us, bool waited)
{
    if (n > 0 && (!waited || cost->token_us[depth_of(position)] == 0))
        average(&cost->token_us[depth_of(position)], (double)us / n);
}

void rn_tier_cost_moved(struct rn_tier_cost *cost, unsigned kind, uint32_t n, uint64_t us)
{
    RN_CHECK(kind < RN_TIERS);
    if (n > 0)
        average(&cost->block_us[kind], (double)us / n);
}

/* Of the depth or the nearest one that is known, the shallower first: what is known there is no more than it costs. A
 * negative number: nothing is known. */
static double token_us(const struct rn_tier_cost *cost, uint32_t position)
{
    uint32_t depth = depth_of(position);

    for (uint32_t i = depth + 1; i-- > 0;)
        if (cost->token_us[i] > 0)
            return cost->token_us[i];
    for (uint32_t i = depth; i < RN_COST_DEPTHS; i++)
        if (cost->token_us[i] > 0)
            return cost->token_us[i];
    return -1;
}

uint32_t rn_tier_cost_choose(struct rn_tier_cost *cost, const uint8_t *kinds, uint32_t n, uint32_t position,
                             uint32_t block_tokens, uint32_t n_ahead, uint64_t *saved_us)
{
    double saved, best = 0;
    uint32_t n_best = 0;

    *saved_us = 0;
    if (n == 0 || token_us(cost, position) < 0)
        return n;
    saved = -(double)n_ahead * cost->block_us[kinds[0]];
    for (uint32_t i = 0; i < n; i++) {
        RN_CHECK(kinds[i] < RN_TIERS);
        saved += token_us(cost, position + i * block_tokens) * block_tokens - cost->block_us[kinds[i]];
        if (saved > best) {
            best = saved;
            n_best = i + 1;
        }
    }
    if (n_best == 0)
        cost->block_us[kinds[0]] *= FORGIVE;
    RN_ASSERT(n_best <= n && best >= 0 && (best > 0) == (n_best > 0));
    *saved_us = (uint64_t)best;
    return n_best;
}

uint64_t rn_tier_cost_of_computing(const struct rn_tier_cost *cost, uint32_t position, uint32_t n,
                                   uint32_t block_tokens)
{
    double us = 0;

    if (token_us(cost, position) < 0)
        return 0;
    for (uint32_t i = 0; i < n; i++)
        us += token_us(cost, position + i * block_tokens) * block_tokens;
    return (uint64_t)us;
}

bool rn_tier_cost_check(const struct rn_tier_cost *cost)
{
    for (uint32_t i = 0; i < RN_COST_DEPTHS; i++)
        if (!isfinite(cost->token_us[i]) || cost->token_us[i] < 0)
            return false;
    for (unsigned kind = 0; kind < RN_TIERS; kind++)
        if (!isfinite(cost->block_us[kind]) || cost->block_us[kind] < 0)
            return false;
    return true;
}

uint32_t rn_tier_cost_reload(const struct rn_tier_cost *cost, uint32_t block_tokens)
{
    uint64_t computing_us = rn_tier_cost_of_computing(cost, 0, 1, block_tokens);
    float slowest_us = 0, quarters;

    for (unsigned kind = 0; kind < RN_TIERS; kind++)
        slowest_us = cost->block_us[kind] > slowest_us ? cost->block_us[kind] : slowest_us;
    if (computing_us == 0 || slowest_us == 0)
        return RN_PREFIX_QUARTERS;
    quarters = RN_PREFIX_QUARTERS * slowest_us / (float)computing_us;
    return quarters >= RN_PREFIX_QUARTERS ? RN_PREFIX_QUARTERS : 1u + (uint32_t)quarters;
}
