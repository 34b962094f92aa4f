/* Signs of IQ2 and IQ3, of which a block has seven for each eight columns, on vectors of 256 bits. */
#ifndef RN_CPU_LEVELS_AVX2_SIGNS_AVX2_H
#define RN_CPU_LEVELS_AVX2_SIGNS_AVX2_H

#include <immintrin.h>

/* Bytes of seven signs each: the eighth makes the number of minus signs even. */
static inline __attribute__((always_inline)) __m256i even(__m256i signs)
{
    __m256i odd = _mm256_xor_si256(signs, _mm256_srli_epi32(signs, 4));

    odd = _mm256_xor_si256(odd, _mm256_srli_epi32(odd, 2));
    odd = _mm256_xor_si256(odd, _mm256_srli_epi32(odd, 1));
    return _mm256_or_si256(signs, _mm256_slli_epi32(_mm256_and_si256(odd, _mm256_set1_epi32(0x01010101)), 7));
}

/* Bits [from, from + 7) of the lanes to bits [to, to + 7). */
static inline __attribute__((always_inline)) __m256i seven(__m256i v, int from, int to)
{
    v = from > to ? _mm256_srli_epi32(v, from - to) : _mm256_slli_epi32(v, to - from);
    return _mm256_and_si256(v, _mm256_set1_epi32(0x7f << to));
}

/* Four times seven signs from bit 0 on. */
static inline __attribute__((always_inline)) __m256i even_signs(__m256i v)
{
    return even(_mm256_or_si256(_mm256_or_si256(seven(v, 0, 0), seven(v, 7, 8)),
                                _mm256_or_si256(seven(v, 14, 16), seven(v, 21, 24))));
}

#endif
