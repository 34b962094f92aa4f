/* The ceiling of the hit rate: see hit_ceiling.h.
 *
 *   hash    [ upper 32 bits: which register, by multiplication | lower 32 bits: rank ]
 *   word    [ 2 unused | r5 | r4 | r3 | r2 | r1 | r0 ], five bits each
 *
 * A register at rank k < 31 rises with chance 2^-k at the next block that falls to it, one at 31 never. */
#include "cache/hit_ceiling.h"

#include <assert.h>
#include <math.h>
#include <string.h>
#include <xxhash.h>

#include "base/check.h"

#define TOP_RANK 31u
#define UNIT 31 /* chance is in 2^-31 */

static_assert(sizeof(struct rn_hit_ceiling) <= 16384, "bounded memory is the point of it");

void rn_hit_ceiling_init(struct rn_hit_ceiling *ceiling)
{
    memset(ceiling, 0, sizeof *ceiling);
    ceiling->chance = (uint64_t)RN_CEILING_REGISTERS << UNIT;
}

static uint64_t chance_to_rise(uint32_t rank)
{
    return rank < TOP_RANK ? UINT64_C(1) << (UNIT - rank) : 0;
}

void rn_hit_ceiling_add_hash(struct rn_hit_ceiling *ceiling, uint64_t hash)
{
    uint32_t index = (uint32_t)((hash >> 32) * RN_CEILING_REGISTERS >> 32);
    uint32_t low = (uint32_t)hash;
    uint32_t rank = low == 0 ? TOP_RANK : 1 + (uint32_t)__builtin_clz(low);
    uint32_t *word = &ceiling->words[index / 6];
    uint32_t shift = index % 6 * 5;
    uint32_t old = *word >> shift & TOP_RANK;

    ceiling->n_seen++;
    if (rank > TOP_RANK)
        rank = TOP_RANK;
    if (rank <= old)
        return;
    RN_ASSERT(index / 6 < RN_CEILING_WORDS && ceiling->chance > 0);
    ceiling->n_unique += (double)((uint64_t)RN_CEILING_REGISTERS << UNIT) / (double)ceiling->chance;
    ceiling->chance -= chance_to_rise(old) - chance_to_rise(rank);
    *word = (*word & ~(TOP_RANK << shift)) | rank << shift;
}

void rn_hit_ceiling_add(struct rn_hit_ceiling *ceiling, struct rn_prefix_salt salt, const int32_t *tokens,
                        uint32_t n_tokens, uint32_t block_tokens)
{
    uint64_t hash = XXH3_64bits(&salt, sizeof salt);

    for (uint32_t i = 0; i < n_tokens / block_tokens; i++) {
        hash = XXH3_64bits_withSeed(tokens + (size_t)i * block_tokens, block_tokens * sizeof *tokens, hash);
        rn_hit_ceiling_add_hash(ceiling, hash);
    }
}

bool rn_hit_ceiling_check(const struct rn_hit_ceiling *ceiling)
{
    uint64_t chance = 0;

    for (uint32_t i = 0; i < RN_CEILING_WORDS; i++) {
        if (ceiling->words[i] >> 30 != 0)
            return false;
        for (uint32_t k = 0; k < 6; k++)
            chance += chance_to_rise(ceiling->words[i] >> 5 * k & TOP_RANK);
    }
    return chance == ceiling->chance && isfinite(ceiling->n_unique) && ceiling->n_unique >= 0 &&
           (ceiling->n_seen == 0) == (ceiling->n_unique == 0);
}

double rn_hit_ceiling_rate(const struct rn_hit_ceiling *ceiling)
{
    double rate;

    if (ceiling->n_seen == 0)
        return 0;
    rate = 1 - ceiling->n_unique / (double)ceiling->n_seen;
    return rate > 0 ? rate : 0;
}
