/* Sixteen floats as attend.inc and math.inc want them. */
#ifndef RN_CPU_LEVELS_AVX512_ATTEND_AVX512_H
#define RN_CPU_LEVELS_AVX512_ATTEND_AVX512_H

#if defined(__AVX512F__)
#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "cpu/levels/kv_x86.h"
#include "cpu/levels/levels_x86.h"

typedef __m512 VF;
#define VLANES 16

#define v_load _mm512_loadu_ps
#define v_store _mm512_storeu_ps
#define v_set1 _mm512_set1_ps
#define v_add _mm512_add_ps
#define v_sub _mm512_sub_ps
#define v_mul _mm512_mul_ps
#define v_div _mm512_div_ps
#define v_fma _mm512_fmadd_ps
#define v_min _mm512_min_ps /* the second operand where either is NaN */
#define v_max _mm512_max_ps
#define v_most _mm512_reduce_max_ps
#define v_exceeds(a, b) (_mm512_cmp_ps_mask(a, _mm512_set1_ps(b), _CMP_GT_OQ) != 0)

/* a < b ? x : y */
static inline VF v_less(VF a, VF b, VF x, VF y)
{
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), y, x);
}

static inline VF v_round(VF a)
{
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

static inline VF v_pow2(VF n)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127)), 23));
}

#define v_times_pow2 _mm512_scalef_ps

static inline VF v_load_f16(const uint8_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}

static inline VF v_load_bf16(const uint8_t *p)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p)), 16));
}

static inline VF v_load_f8(const uint8_t *p)
{
    __m256i codes = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)p));

    return _mm512_mul_ps(_mm512_cvtph_ps(lv_halves_f8x2(codes)), _mm512_set1_ps(256));
}
#define v_load_f8 v_load_f8

/* See attend_vectors.inc. */
static inline void v_add_eights(float *l, const VF *weights)
{
    __m256 sum = _mm256_loadu_ps(l);
    int j;

    for (j = 0; j < 2; j++) {
        sum = _mm256_add_ps(sum, _mm512_castps512_ps256(weights[j]));
        sum = _mm256_add_ps(sum, _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(weights[j]), 1)));
    }
    _mm256_storeu_ps(l, sum);
}
#define v_add_eights v_add_eights

/* See attend.inc. Sixteen dimensions by four positions at a time. */
static inline void v_turn_keys(float *values, uint32_t v_pad, const float *keys, uint32_t v_dim)
{
    __m512 r[4], low[2], high[2];
    const float *at;
    uint32_t d, j, i;

    for (d = 0; d + 16 <= v_dim; d += 16)
        for (j = 0; j < RN_ATTEND_TILE; j += 4) {
            for (i = 0; i < 4; i++) { /* rows d + i, d + i + 4, d + i + 8, d + i + 12 */
                at = keys + (size_t)(d + i) * RN_ATTEND_TILE + j;
                r[i] = _mm512_castps128_ps512(_mm_loadu_ps(at));
                r[i] = _mm512_insertf32x4(r[i], _mm_loadu_ps(at + 4 * RN_ATTEND_TILE), 1);
                r[i] = _mm512_insertf32x4(r[i], _mm_loadu_ps(at + 8 * RN_ATTEND_TILE), 2);
                r[i] = _mm512_insertf32x4(r[i], _mm_loadu_ps(at + 12 * RN_ATTEND_TILE), 3);
            }
            for (i = 0; i < 2; i++) {
                low[i] = _mm512_unpacklo_ps(r[2 * i], r[2 * i + 1]);
                high[i] = _mm512_unpackhi_ps(r[2 * i], r[2 * i + 1]);
            }
            for (i = 0; i < 4; i++) {
                __m512d a = _mm512_castps_pd(i < 2 ? low[0] : high[0]), b = _mm512_castps_pd(i < 2 ? low[1] : high[1]);

                _mm512_storeu_ps(values + (size_t)(j + i) * v_pad + d,
                                 _mm512_castpd_ps(i % 2 == 0 ? _mm512_unpacklo_pd(a, b) : _mm512_unpackhi_pd(a, b)));
            }
        }
    for (; d < v_dim; d++)
        for (j = 0; j < RN_ATTEND_TILE; j++)
            values[(size_t)j * v_pad + d] = keys[(size_t)d * RN_ATTEND_TILE + j];
}
#define v_turn_keys v_turn_keys

static inline VF v_load_i8(const int8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
}
#define v_load_i8 v_load_i8

#endif
#endif
