/* Points of IQ2 and IQ3 by their indices on AVX-512 with VBMI and GFNI: what direct_grid_avx512.c looks up. Grids of up
 * to 512 points lie in registers, a byte of each point, as tables of vpermi2b. */
#ifndef RN_CPU_LEVELS_AVX512_POINTS_AVX512_H
#define RN_CPU_LEVELS_AVX512_POINTS_AVX512_H

#include <string.h>

#include "cpu/levels/avx512/rows_avx512.h"

/* Bytes from, from + step, ... of a and b. */
INLINE VI every(VI a, VI b, uint32_t step, uint32_t from)
{
    _Alignas(64) uint8_t index[64];
    uint32_t i;

    UNROLL
    for (i = 0; i < 64; i++)
        index[i] = (uint8_t)((i * step + from) & 127);
    return _mm512_permutex2var_epi8(a, _mm512_load_si512(index), b);
}

/* The lower halves of two registers; the upper ones. */
INLINE VI lower(VI a, VI b)
{
    return _mm512_shuffle_i64x2(a, b, 0x44);
}

INLINE VI upper(VI a, VI b)
{
    return _mm512_shuffle_i64x2(a, b, 0xee);
}

INLINE VI two_rows(__m256i a, __m256i b)
{
    return _mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1);
}

/* Points as two bytes each, 64 in a register. */
struct table {
    VI low[8], high[8];
};

/* The words of n points, n a multiple of 64, by bytes. */
INLINE void make_table(struct table *table, const uint16_t *grid, uint32_t n)
{
    uint32_t i;
    VI a, b;

    for (i = 0; i < n / 64; i++) {
        a = _mm512_loadu_si512(grid + 64 * i);
        b = _mm512_loadu_si512(grid + 64 * i + 32);
        table->low[i] = every(a, b, 2, 0);
        table->high[i] = every(a, b, 2, 1);
    }
}

/* Four fields of three bits as four nibbles. */
INLINE VI spaced(VI v)
{
    VI low = _mm512_or_si512(_mm512_and_si512(v, _mm512_set1_epi16(0x0007)),
                             _mm512_and_si512(_mm512_slli_epi16(v, 1), _mm512_set1_epi16(0x0070)));
    VI high = _mm512_or_si512(_mm512_and_si512(_mm512_slli_epi16(v, 2), _mm512_set1_epi16(0x0700)),
                              _mm512_and_si512(_mm512_slli_epi16(v, 3), _mm512_set1_epi16(0x7000)));

    return _mm512_or_si512(low, high);
}

INLINE void make_table3(struct table *table, const uint16_t *grid, uint32_t n)
{
    _Alignas(64) uint16_t words[512];
    uint32_t i;

    for (i = 0; i < n; i += 32)
        _mm512_store_si512(words + i, spaced(_mm512_loadu_si512(grid + i)));
    make_table(table, words, n);
}

/* Bytes number v of 256. */
INLINE VI look_up(const VI *bytes, VI v)
{
    return _mm512_mask_blend_epi8(_mm512_movepi8_mask(v), _mm512_permutex2var_epi8(bytes[0], v, bytes[1]),
                                  _mm512_permutex2var_epi8(bytes[2], v, bytes[3]));
}

/* 64 points by bytes. */
struct points {
    VI low, high;
};

INLINE struct points points_of_256(const struct table *table, VI index)
{
    return (struct points){look_up(table->low, index), look_up(table->high, index)};
}

/* ninth: the indices' bit 8. */
INLINE struct points points_of_512(const struct table *table, VI index, __mmask64 ninth)
{
    return (struct points){_mm512_mask_blend_epi8(ninth, look_up(table->low, index), look_up(table->low + 4, index)),
                           _mm512_mask_blend_epi8(ninth, look_up(table->high, index), look_up(table->high + 4, index))};
}

/* Bytes of seven signs: the eighth makes the number of minus signs even. A product with a matrix of bits. */
INLINE VI even(VI signs)
{
    return _mm512_gf2p8affine_epi64_epi8(signs, _mm512_set1_epi64(0x010204081020407f), 0);
}

#endif
