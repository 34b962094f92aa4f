/* Loops with AVX-512 of which the compiler makes far more instructions (loops.inc has them in plain C).
 *
 * The noise's words of a block: eight counters side by side, a word of each in the low half of a lane, so that one
 * multiplication gives the whole products of eight. The compiler takes products apart to keep sixteen words in a
 * register. */
#ifndef RN_SAMPLING_LEVELS_BY_HAND_AVX512_H
#define RN_SAMPLING_LEVELS_BY_HAND_AVX512_H

#include <immintrin.h>

#include "base/rng.h"
#include "sampling/levels/loops.h"
#include "sampling/noise.h"

#define LANES 8u
#define VECTORS (RN_BLOCK / 4 / LANES) /* side by side, so that no multiplication waits for the one before it */
#define XOR_OF_THREE 0x96

/* The words 4i, 4i + 2 (even) and 4i + 1, 4i + 3 (odd) of eight counters; the upper halves of lanes hold anything. */
struct words {
    __m512i c0, c1, c2, c3;
};

static inline void store_words(const struct words *w, uint32_t out[4 * LANES])
{
    const __m512i low = _mm512_set1_epi64(UINT32_MAX), first = _mm512_set_epi64(11, 3, 10, 2, 9, 1, 8, 0),
                  second = _mm512_set_epi64(15, 7, 14, 6, 13, 5, 12, 4);
    __m512i front = _mm512_or_si512(_mm512_and_si512(w->c0, low), _mm512_slli_epi64(w->c1, 32));
    __m512i back = _mm512_or_si512(_mm512_and_si512(w->c2, low), _mm512_slli_epi64(w->c3, 32));

    _mm512_storeu_si512(out, _mm512_permutex2var_epi64(front, first, back));
    _mm512_storeu_si512(out + 2 * LANES, _mm512_permutex2var_epi64(front, second, back));
}

/* From memory an instruction takes a key for all lanes at no cost; a register would have to be filled with each. */
static inline __m512i of_all(const uint64_t *value)
{
    return _mm512_set1_epi64((int64_t)*value);
}

static inline __m512i high(__m512i product)
{
    return _mm512_srli_epi64(product, 32);
}

/* The first three rounds; c2: the counters. */
static inline struct words begin_words(const struct rn_noise_keys *keys, __m512i c2)
{
    const __m512i m0 = _mm512_set1_epi64(RN_PHILOX_MULTIPLIER_0), m1 = _mm512_set1_epi64(RN_PHILOX_MULTIPLIER_1);
    struct words w;
    __m512i p0, p1 = _mm512_mul_epu32(c2, m1);

    w.c0 = _mm512_xor_si512(high(p1), of_all(&keys->k0[0]));
    p0 = _mm512_mul_epu32(w.c0, m0);
    w.c0 = _mm512_xor_si512(p1, of_all(&keys->k0[1]));
    w.c2 = _mm512_xor_si512(high(p0), of_all(&keys->k1[1]));
    p1 = _mm512_mul_epu32(w.c2, m1);
    w.c3 = _mm512_mul_epu32(w.c0, m0);
    w.c0 = _mm512_xor_si512(high(p1), of_all(&keys->k0[2]));
    w.c1 = p1;
    w.c2 = _mm512_ternarylogic_epi64(high(w.c3), p0, of_all(&keys->k1[2]), XOR_OF_THREE);
    return w;
}

static bool noise_avx512(const struct rn_noise_keys *keys, uint32_t first, uint32_t bound, uint32_t out[RN_BLOCK],
                         uint64_t hits[RN_BLOCK / 64])
{
    const __m512i m0 = _mm512_set1_epi64(RN_PHILOX_MULTIPLIER_0), m1 = _mm512_set1_epi64(RN_PHILOX_MULTIPLIER_1);
    __m512i least = _mm512_set1_epi32(-1);
    struct words w[VECTORS];

    for (uint32_t v = 0; v < VECTORS; v++)
        w[v] = begin_words(
            keys, _mm512_add_epi64(_mm512_set1_epi64(first / 4 + v * LANES), _mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0)));
#pragma GCC unroll 10
    for (uint32_t i = 3; i < RN_PHILOX_ROUNDS; i++) {
#pragma GCC unroll 4
        for (uint32_t v = 0; v < VECTORS; v++) {
            __m512i p0 = _mm512_mul_epu32(w[v].c0, m0), p1 = _mm512_mul_epu32(w[v].c2, m1);

            w[v].c0 = _mm512_ternarylogic_epi64(high(p1), w[v].c1, of_all(&keys->k0[i]), XOR_OF_THREE);
            w[v].c1 = p1;
            w[v].c2 = _mm512_ternarylogic_epi64(high(p0), w[v].c3, of_all(&keys->k1[i]), XOR_OF_THREE);
            w[v].c3 = p0;
        }
    }
    for (uint32_t v = 0; v < VECTORS; v++)
        least = _mm512_min_epu32(
            least, _mm512_min_epu32(_mm512_min_epu32(w[v].c0, w[v].c1), _mm512_min_epu32(w[v].c2, w[v].c3)));
    if ((_mm512_cmple_epu32_mask(least, _mm512_set1_epi32((int32_t)bound)) & 0x5555) == 0)
        return false;
    for (uint32_t v = 0; v < VECTORS; v++)
        store_words(&w[v], out + 4 * LANES * v);
    for (uint32_t word = 0; word < RN_BLOCK / 64; word++) {
        hits[word] = 0;
        for (uint32_t i = 0; i < 4; i++)
            hits[word] |= (uint64_t)_mm512_cmple_epu32_mask(_mm512_loadu_si512(out + 64 * word + 16 * i),
                                                            _mm512_set1_epi32((int32_t)bound))
                          << (16 * i);
    }
    return true;
}

/* rn_quick_weight of sixteen logits: floats times 2^RN_WEIGHT_BITS, not rounded yet. */
static inline __m512 quick_weights_of(__m512 logits, __m512 best, __m512 inverse)
{
    const __m512 shift = _mm512_set1_ps(0x1.8p23f);
    __m512 z = _mm512_mul_ps(_mm512_sub_ps(logits, best), inverse);
    __m512 x = _mm512_mul_ps(_mm512_max_ps(z, _mm512_set1_ps(-30)), _mm512_set1_ps(0x1.715476p0f));
    __m512 n = _mm512_add_ps(x, shift), r = _mm512_sub_ps(x, _mm512_sub_ps(n, shift)), sum;
    __m512i power = _mm512_add_epi32(_mm512_castps_si512(n), _mm512_set1_epi32(127 + RN_WEIGHT_BITS));

    sum = _mm512_add_ps(_mm512_mul_ps(_mm512_set1_ps(0x1.430912p-13f), r), _mm512_set1_ps(0x1.5d87fep-10f));
    sum = _mm512_add_ps(_mm512_mul_ps(sum, r), _mm512_set1_ps(0x1.3b2ab6p-7f));
    sum = _mm512_add_ps(_mm512_mul_ps(sum, r), _mm512_set1_ps(0x1.c6b08ep-5f));
    sum = _mm512_add_ps(_mm512_mul_ps(sum, r), _mm512_set1_ps(0x1.ebfbep-3f));
    sum = _mm512_add_ps(_mm512_mul_ps(sum, r), _mm512_set1_ps(0x1.62e43p-1f));
    sum = _mm512_add_ps(_mm512_mul_ps(sum, r), _mm512_set1_ps(1));
    return _mm512_mul_ps(sum, _mm512_castsi512_ps(_mm512_slli_epi32(power, 23)));
}

static uint64_t quick_sums_avx512(const float logits[RN_BLOCK], float best, float inverse, float high, uint64_t *above)
{
    __m512i sum = _mm512_setzero_si512(), part = sum;

    for (uint32_t i = 0; i < RN_BLOCK; i += 16) {
        __m512 x = _mm512_loadu_ps(logits + i);
        __mmask16 of_part = _mm512_cmp_ps_mask(x, _mm512_set1_ps(high), _CMP_GE_OQ);
        __m512 w = quick_weights_of(x, _mm512_set1_ps(best), _mm512_set1_ps(inverse));
        __m512i first = _mm512_cvtps_epu64(_mm512_castps512_ps256(w));
        __m512i second = _mm512_cvtps_epu64(_mm512_extractf32x8_ps(w, 1));

        sum = _mm512_add_epi64(sum, _mm512_add_epi64(first, second));
        part = _mm512_mask_add_epi64(part, (__mmask8)of_part, part, first);
        part = _mm512_mask_add_epi64(part, (__mmask8)(of_part >> 8), part, second);
    }
    *above = (uint64_t)_mm512_reduce_add_epi64(part);
    return (uint64_t)_mm512_reduce_add_epi64(sum);
}

static uint64_t quick_sum_avx512(const float logits[RN_BLOCK], float best, float inverse)
{
    __m512i sum = _mm512_setzero_si512();

    for (uint32_t i = 0; i < RN_BLOCK; i += 16) {
        __m512 w = quick_weights_of(_mm512_loadu_ps(logits + i), _mm512_set1_ps(best), _mm512_set1_ps(inverse));

        sum = _mm512_add_epi64(sum, _mm512_cvtps_epu64(_mm512_castps512_ps256(w)));
        sum = _mm512_add_epi64(sum, _mm512_cvtps_epu64(_mm512_extractf32x8_ps(w, 1)));
    }
    return (uint64_t)_mm512_reduce_add_epi64(sum);
}

/* As integers without their order the greatest is that of the numbers if one is not negative; as unsigned ones it is
 * the least of the numbers if one is. Most blocks have both. */
static void ends_avx512(const float logits[RN_BLOCK], int32_t *most, int32_t *least)
{
    __m512i high = _mm512_loadu_si512(logits), low = high;
    int32_t greatest;
    uint32_t farthest;

    for (uint32_t i = 16; i < RN_BLOCK; i += 16) {
        __m512i bits = _mm512_loadu_si512(logits + i);

        high = _mm512_max_epi32(high, bits);
        low = _mm512_max_epu32(low, bits);
    }
    greatest = _mm512_reduce_max_epi32(high);
    farthest = _mm512_reduce_max_epu32(low);
    *most = greatest;
    *least = rn_folded((int32_t)farthest);
    if (greatest >= 0 && farthest > INT32_MAX)
        return;
    low = _mm512_loadu_si512(logits); /* of one sign: its nearest to 0 */
    for (uint32_t i = 16; i < RN_BLOCK; i += 16)
        low = _mm512_min_epu32(low, _mm512_loadu_si512(logits + i));
    farthest = _mm512_reduce_min_epu32(low);
    if (greatest < 0)
        *most = rn_folded((int32_t)farthest);
    else
        *least = (int32_t)farthest;
}

static void at_least_avx512(const float logits[RN_BLOCK], float least, uint64_t mask[RN_BLOCK / 64])
{
    const __m512 floor = _mm512_set1_ps(least);

    for (uint32_t word = 0; word < RN_BLOCK / 64; word++) {
        const float *from = logits + 64 * word;

        mask[word] = (uint64_t)_mm512_cmp_ps_mask(_mm512_loadu_ps(from), floor, _CMP_GE_OQ) |
                     (uint64_t)_mm512_cmp_ps_mask(_mm512_loadu_ps(from + 16), floor, _CMP_GE_OQ) << 16 |
                     (uint64_t)_mm512_cmp_ps_mask(_mm512_loadu_ps(from + 32), floor, _CMP_GE_OQ) << 32 |
                     (uint64_t)_mm512_cmp_ps_mask(_mm512_loadu_ps(from + 48), floor, _CMP_GE_OQ) << 48;
    }
}

#endif
