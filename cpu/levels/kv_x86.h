/* Codes of q4 and q3 to levels on AVX2: what attend_kv.inc has in plain C, 32 bytes at once. */
#ifndef RN_CPU_LEVELS_KV_X86_H
#define RN_CPU_LEVELS_KV_X86_H

#if defined(__AVX2__)
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#include "model/kv.h"

#define RN_KV_X86
#define LV_INLINE static inline __attribute__((always_inline))

LV_INLINE __m256i lv_load(const uint8_t *at)
{
    return _mm256_loadu_si256((const __m256i *)at);
}

LV_INLINE void lv_store(int8_t *out, __m256i v)
{
    _mm256_storeu_si256((__m256i *)out, v);
}

LV_INLINE __m256i lv_table4(void)
{
    return _mm256_broadcastsi128_si256(_mm_setr_epi8(RN_KV_CODES4));
}

LV_INLINE __m256i lv_table3(void)
{
    return _mm256_broadcastsi128_si256(_mm_setr_epi8(RN_KV_CODES3, RN_KV_CODES3));
}

LV_INLINE __m256i lv_low(__m256i v)
{
    return _mm256_and_si256(v, _mm256_set1_epi8(15));
}

LV_INLINE void lv_halves(int8_t *low, int8_t *high, const uint8_t *plane)
{
    __m256i v = lv_load(plane);

    lv_store(low, _mm256_shuffle_epi8(lv_table4(), lv_low(v)));
    lv_store(high, _mm256_shuffle_epi8(lv_table4(), lv_low(_mm256_srli_epi16(v, 4))));
}

/* Shifts go over the edges of bytes; what comes in from there is masked off. */
LV_INLINE __m256i lv_three(__m256i low, __m256i third)
{
    third = _mm256_slli_epi16(_mm256_and_si256(third, _mm256_set1_epi8(1)), 2);
    return _mm256_shuffle_epi8(lv_table3(), _mm256_or_si256(_mm256_and_si256(low, _mm256_set1_epi8(3)), third));
}

LV_INLINE void lv_bits(int8_t *out, const uint8_t *low, const uint8_t *high, uint32_t at, uint32_t third)
{
    lv_store(out, lv_three(_mm256_srl_epi16(lv_load(low), _mm_cvtsi32_si128((int)at)),
                           _mm256_srl_epi16(lv_load(high), _mm_cvtsi32_si128((int)third))));
}

LV_INLINE void lv_group4(int8_t *out, const uint8_t *in)
{
    __m128i v = _mm_loadu_si128((const __m128i *)in);
    __m256i both = _mm256_inserti128_si256(_mm256_castsi128_si256(v), _mm_srli_epi16(v, 4), 1);

    lv_store(out, _mm256_shuffle_epi8(lv_table4(), lv_low(both)));
}

LV_INLINE void lv_group3(int8_t *out, const uint8_t *in)
{
    int64_t low;
    int32_t high;

    memcpy(&low, in, sizeof low);
    memcpy(&high, in + 8, sizeof high);
    lv_store(out, lv_three(_mm256_srlv_epi64(_mm256_set1_epi64x(low), _mm256_setr_epi64x(0, 2, 4, 6)),
                           _mm256_srlv_epi32(_mm256_set1_epi32(high), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7))));
}

/* Eight codes of E4M3: moved to the places of an f16 they are 2^-8 of the number, below 2^-6 too; 0x7f becomes NaN. */
LV_INLINE __m128i lv_halves_f8(__m128i codes16)
{
    const __m128i size = _mm_set1_epi16(0x3f80);
    __m128i moved = _mm_slli_epi16(codes16, 7);
    __m128i nan = _mm_cmpeq_epi16(_mm_and_si128(moved, size), size);

    return _mm_or_si128(_mm_and_si128(moved, _mm_set1_epi16((int16_t)0xbf80)), nan);
}

LV_INLINE __m256i lv_halves_f8x2(__m256i codes16)
{
    const __m256i size = _mm256_set1_epi16(0x3f80);
    __m256i moved = _mm256_slli_epi16(codes16, 7);
    __m256i nan = _mm256_cmpeq_epi16(_mm256_and_si256(moved, size), size);

    return _mm256_or_si256(_mm256_and_si256(moved, _mm256_set1_epi16((int16_t)0xbf80)), nan);
}

#endif
#endif
