/* Eight floats of a row of F32, F16 or BF16, for the x86 levels. */
#ifndef RN_CPU_LEVELS_FLOATS_X86_H
#define RN_CPU_LEVELS_FLOATS_X86_H

#if defined(__AVX2__)
#include <immintrin.h>
#include <string.h>

#include "cpu/kernels.h"

enum rn_float_kind { RN_FLOAT_32, RN_FLOAT_16, RN_FLOAT_B16 };

static inline __attribute__((always_inline)) __m256 rn_eight_floats(const uint8_t *p, enum rn_float_kind kind)
{
    if (kind == RN_FLOAT_32)
        return _mm256_loadu_ps((const float *)p);
    if (kind == RN_FLOAT_16)
        return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)), 16));
}

/* Columns i .. i + 7 of a row; those behind its end are 0. */
static inline __attribute__((always_inline)) __m256 rn_floats_at(const void *row, enum rn_float_kind kind, uint32_t i,
                                                                 uint32_t cols)
{
    uint32_t size = kind == RN_FLOAT_32 ? 4 : 2;
    const uint8_t *p = (const uint8_t *)row + (size_t)i * size;
    uint8_t part[32] = {0};

    if (i + 8 <= cols)
        return rn_eight_floats(p, kind);
    memcpy(part, p, (size_t)(cols - i) * size);
    return rn_eight_floats(part, kind);
}

/* The lanes in the one order that all levels and shapes share. */
static inline __attribute__((always_inline)) float rn_float_sum(__m256 a)
{
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));

    four = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(four, _mm_shuffle_ps(four, four, 1)));
}

/* rn_float_sum of each of four, in less than half the instructions. */
static inline __attribute__((always_inline)) __m128 rn_float_sums(__m256 a, __m256 b, __m256 c, __m256 d)
{
    __m256 ab = _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
    __m256 cd = _mm256_add_ps(_mm256_permute2f128_ps(c, d, 0x20), _mm256_permute2f128_ps(c, d, 0x31));
    __m256 two = _mm256_add_ps(_mm256_shuffle_ps(ab, cd, 0x44), _mm256_shuffle_ps(ab, cd, 0xee)); /* a, c | b, d */

    two = _mm256_add_ps(two, _mm256_permute_ps(two, 0xb1));
    return _mm_blend_ps(_mm256_castps256_ps128(two), _mm256_extractf128_ps(two, 1), 10);
}

#endif
#endif
