/* What is dearer: to compute a block or to bring it up? Both are measured, as moving averages: microseconds per token
 * by depth (attention makes later tokens dearer; one average for each power of two of the position), and microseconds
 * per block by tier. What has not been measured counts as nothing, so that it is tried. A tier that was passed over is
 * taken for a little faster each time: so it is tried again, and a disk that has recovered is found out.
 *
 * Pure: the tier actor's. */
#ifndef RN_ACTORS_TIER_COST_H
#define RN_ACTORS_TIER_COST_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/store/tier.h"

#define RN_COST_DEPTHS 32u

struct rn_tier_cost {
    float token_us[RN_COST_DEPTHS]; /* 0: not known */
    float block_us[RN_TIERS];
};

/* n tokens up to that position have been computed in so long. `waited`: that may hold a wait for a lane, too; it counts
 * only while nothing better is known. */
void rn_tier_cost_computed(struct rn_tier_cost *cost, uint32_t position, uint32_t n, uint64_t us, bool waited);

/* n blocks have come from that tier in so long. */
void rn_tier_cost_moved(struct rn_tier_cost *cost, unsigned kind, uint32_t n, uint64_t us);

/* Of blocks with these tiers, kinds[n], that stand behind `position`: how many should be brought up, so that the most
 * time is saved; n_ahead blocks are on their way already and come first. *saved_us: what that saves. */
uint32_t rn_tier_cost_choose(struct rn_tier_cost *cost, const uint8_t *kinds, uint32_t n, uint32_t position,
                             uint32_t block_tokens, uint32_t n_ahead, uint64_t *saved_us);

/* How long n blocks behind `position` would take to compute; 0: nothing is known. */
uint64_t rn_tier_cost_of_computing(const struct rn_tier_cost *cost, uint32_t position, uint32_t n,
                                   uint32_t block_tokens);

/* What it takes to bring a block back from the slowest tier that blocks have come from, in quarters of computing one of
 * the first: 1..RN_PREFIX_QUARTERS. Not known: as dear as computing. */
uint32_t rn_tier_cost_reload(const struct rn_tier_cost *cost, uint32_t block_tokens);

/* True: all averages are times. */
bool rn_tier_cost_check(const struct rn_tier_cost *cost);

#endif
