/* Sixteen floats as attend.inc and math.inc want them. */
#ifndef RN_CPU_LEVELS_ATTEND_AVX512_H
#define RN_CPU_LEVELS_ATTEND_AVX512_H

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

static inline VF v_load_i8(const int8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
}
#define v_load_i8 v_load_i8

#endif
#endif
