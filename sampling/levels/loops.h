/* The loops of a draw that go over a whole vocabulary, a block of it at a time. Plain C, compiled once for each SIMD
 * level; all levels give the same bits, since every operation is defined (exact.h, noise.h) and none is fused. */
#ifndef RN_SAMPLING_LEVELS_LOOPS_H
#define RN_SAMPLING_LEVELS_LOOPS_H

#include <stdbool.h>
#include <stdint.h>

#include "sampling/noise.h"

/* Tokens of a block. */
#define RN_BLOCK 128u

/* What is lighter than e^-RN_LIGHT counts as nothing: a vocabulary of 2^18 such tokens is 2^-65 of the best one. */
#define RN_LIGHT 58.0

/* Whole weights are multiples of 2^-RN_WEIGHT_BITS: 2^21 of the greatest have a sum below 2^63. */
#define RN_WEIGHT_BITS 42

struct rn_loops {
    const char *name; /* "c", "avx2", "avx512" */

    /* The greatest and the least of a block's logits, as integers in the order of the numbers: rn_folded. */
    void (*ends)(const float logits[RN_BLOCK], int32_t *most, int32_t *least);

    /* out[j] = word first + j of the noise of rn_noise_keys; first is a multiple of RN_BLOCK. Bit j % 64 of
     * hits[j / 64]: it is at most `bound`. False: none is, and out and hits may be unset. */
    bool (*noise)(const struct rn_noise_keys *keys, uint32_t first, uint32_t bound, uint32_t out[RN_BLOCK],
                  uint64_t hits[RN_BLOCK / 64]);

    /* out[j] = exp((logits[j] - best) × inverse), 0 where that is below e^-RN_LIGHT. logits not above best; -inf is
     * allowed. */
    void (*weights)(const float logits[RN_BLOCK], float best, double inverse, double out[RN_BLOCK]);

    /* out[j] = exp(x[j] - best) in whole multiples of 2^-RN_WEIGHT_BITS, to the nearest; x finite, not above best. */
    void (*whole_weights)(const double x[RN_BLOCK], double best, uint64_t out[RN_BLOCK]);

    /* The sum of rn_quick_weight((logits[j] - best) × inverse). */
    uint64_t (*quick_sum)(const float logits[RN_BLOCK], float best, float inverse);

    /* The same, and in *above those of logits of at least `high`. */
    uint64_t (*quick_sums)(const float logits[RN_BLOCK], float best, float inverse, float high, uint64_t *above);

    /* out[j] = rn_quick_weight((logits[j] - best) × inverse). */
    void (*quick_weights)(const float logits[RN_BLOCK], float best, float inverse, uint64_t out[RN_BLOCK]);

    /* Bit j % 64 of mask[j / 64]: logits[j] is at least `least`. */
    void (*at_least)(const float logits[RN_BLOCK], float least, uint64_t mask[RN_BLOCK / 64]);

    /* out[j] = the noise's word of tokens[j]. */
    void (*noise_of)(uint64_t seed, uint64_t position, const int32_t tokens[RN_BLOCK], uint32_t out[RN_BLOCK]);
};

/* The order of the numbers as signed integers: -NaN, -inf, ..., -0, +0, ..., +inf, +NaN. Its own inverse. */
static inline int32_t rn_folded(int32_t bits)
{
    return bits ^ (int32_t)((uint32_t)(bits >> 31) >> 1);
}

/* The block's logits; those behind the end of the vocabulary are `fill`, in room. */
static inline const float *rn_block_of(const float *logits, uint32_t n, uint32_t block, float fill,
                                       float room[RN_BLOCK])
{
    uint32_t first = block * RN_BLOCK, m = n - first;

    if (m >= RN_BLOCK)
        return logits + first;
    for (uint32_t i = 0; i < RN_BLOCK; i++)
        room[i] = i < m ? logits[first + i] : fill;
    return room;
}

/* By name; NULL: the best that this build and processor have. NULL comes back where there is none of that name. */
const struct rn_loops *rn_loops_named(const char *name);

const struct rn_loops *rn_loops_c(void);
const struct rn_loops *rn_loops_avx2(void);   /* NULL: not in this build, or not on this processor */
const struct rn_loops *rn_loops_avx512(void); /* likewise */

#endif
