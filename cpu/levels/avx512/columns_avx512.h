/* Vectors of sixteen lanes for blocks_columns.inc and blocks_products.inc: what the files of the AVX-512 level share
 * that make columns of bytes, of rows as they lie (simd_avx512.c) and of tiles (tiles_avx512.c). */
#ifndef RN_CPU_LEVELS_AVX512_COLUMNS_AVX512_H
#define RN_CPU_LEVELS_AVX512_COLUMNS_AVX512_H

#include <immintrin.h>
#include <string.h>

#include "cpu/levels/levels_x86.h"
#include "cpu/levels/avx512/load_points_avx512.h"
#include "model/quant/points.h"
#include "model/quant/types.h"

#define INLINE static inline __attribute__((always_inline))

typedef __m512i VI;
typedef __m512 VF;

#define vi_and _mm512_and_si512
#define vi_or _mm512_or_si512
#define vi_xor _mm512_xor_si512
#define vi_add8 _mm512_add_epi8
#define vi_add32 _mm512_add_epi32
#define vi_sub32 _mm512_sub_epi32
#define vi_max32 _mm512_max_epi32
#define vi_srl32(v, n) _mm512_srli_epi32(v, (unsigned)(n))
#define vi_sll32(v, n) _mm512_slli_epi32(v, (unsigned)(n))
#define vi_sra32(v, n) _mm512_srai_epi32(v, (unsigned)(n))
#define vi_sllv32 _mm512_sllv_epi32
#define vi_shuffle _mm512_shuffle_epi8
#define vi_set8(x) _mm512_set1_epi8((char)(x))
#define vi_set32 _mm512_set1_epi32
#define vi_store _mm512_store_si512
#define vi_load _mm512_load_si512
#define vi_dot _mm512_dpbusd_epi32

#define vf_set1 _mm512_set1_ps
#define vf_zero _mm512_setzero_ps
#define vf_from _mm512_cvtepi32_ps
#define vf_cast _mm512_castsi512_ps
#define vf_sub _mm512_sub_ps
#define vf_mul _mm512_mul_ps
#define vf_fma _mm512_fmadd_ps
#define vf_fms _mm512_fmsub_ps
#define vf_minus(v) _mm512_castsi512_ps(_mm512_xor_si512(_mm512_castps_si512(v), _mm512_set1_epi32(INT32_MIN)))
#define vf_load _mm512_load_ps
#define vf_store _mm512_store_ps

#define AT_ONCE 6
enum { LANES = 16, PACK_FROM = RN_PACK_FROM, PIECE = 1 << 20 /* whole rows: measured */, FEW = RN_FEW_AVX512 };

/* One to eight inputs in registers, a constant each. */
#define IN_REGISTERS_OF(name)            \
    (m->n == 1   ? IN_REGISTERS(name, 1) \
     : m->n == 2 ? IN_REGISTERS(name, 2) \
     : m->n == 3 ? IN_REGISTERS(name, 3) \
     : m->n == 4 ? IN_REGISTERS(name, 4) \
     : m->n == 5 ? IN_REGISTERS(name, 5) \
     : m->n == 6 ? IN_REGISTERS(name, 6) \
     : m->n == 7 ? IN_REGISTERS(name, 7) \
                 : IN_REGISTERS(name, RN_FEW_AVX512))

/* a < b ? x : 0 */
INLINE VI vi_where_less(VI a, VI b, VI x)
{
    return _mm512_maskz_mov_epi32(_mm512_cmplt_epi32_mask(a, b), x);
}

INLINE VI vi_table(const int8_t *levels)
{
    return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)levels));
}

/* Byte k of each lane, in all four. */
INLINE VI vi_spread(VI v, int k)
{
    const __m128i lanes = _mm_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c);

    return _mm512_shuffle_epi8(v, _mm512_broadcast_i32x4(_mm_add_epi8(lanes, _mm_set1_epi8((char)k))));
}

INLINE VI plus_where(VI v, VI bits, VI mask, int value)
{
    return _mm512_mask_add_epi8(v, _mm512_test_epi8_mask(bits, mask), v, vi_set8(value));
}

#define plus_bit(v, bits, n, to) plus_where(v, bits, vi_set8(1 << (n)), 1 << (to))

INLINE VI plus_where_reached(VI v, VI x, int limit)
{
    return _mm512_mask_add_epi8(v, _mm512_cmpge_epu8_mask(x, vi_set8(limit)), v, vi_set8(1));
}

/* ---- Points: see blocks_grid.inc ---- */

/* A store that loads of eight bytes read: the compiler would take these out of the register, a shuffle each. */
INLINE void store_whole(uint64_t *to, VI v)
{
    _mm512_store_si512(to, v);
    __asm__("" : "+m"(*(uint64_t(*)[8])to));
}

/* Points of four columns of the rows of a quarter, of two. */
INLINE __m128i quarter_of_points(const uint32_t *points, const uint64_t *pairs)
{
    return four_points4(points, (uint32_t)pairs[0], pairs[0] >> 32, (uint32_t)pairs[1], pairs[1] >> 32);
}

INLINE __m256i half_of_points(const uint32_t *points, const uint64_t *pairs)
{
    return _mm256_inserti128_si256(_mm256_castsi128_si256(quarter_of_points(points, pairs)),
                                   quarter_of_points(points, pairs + 2), 1);
}

INLINE VI vi_points4(const uint32_t *points, VI index)
{
    _Alignas(64) uint64_t pairs[8];

    store_whole(pairs, index);
    return _mm512_inserti64x4(_mm512_castsi256_si512(half_of_points(points, pairs)), half_of_points(points, pairs + 4),
                              1);
}

INLINE VI vi_less_where(VI v, VI bits, VI mask, VI from)
{
    return _mm512_mask_sub_epi8(v, _mm512_test_epi8_mask(bits, mask), from, v);
}

/* Points of eight columns of two rows of a quarter, and of two of the next; of all quarters. */
INLINE __m256i points_of_two(const uint64_t *points, const uint64_t *pairs)
{
    return four_points(points, (uint32_t)pairs[0], pairs[0] >> 32, (uint32_t)pairs[2], pairs[2] >> 32);
}

INLINE VI eight_points(const uint64_t *points, const uint64_t *pairs)
{
    return _mm512_inserti64x4(_mm512_castsi256_si512(points_of_two(points, pairs)), points_of_two(points, pairs + 4),
                              1);
}

/* a: rows 0, 1 of each quarter; b: rows 2, 3. */
INLINE void two_groups(VI a, VI b, VI *two)
{
    two[0] = _mm512_castps_si512(_mm512_shuffle_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b), 0x88));
    two[1] = _mm512_castps_si512(_mm512_shuffle_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b), 0xdd));
}

INLINE void vi_points(const uint64_t *points, VI index, VI *two)
{
    _Alignas(64) uint64_t pairs[8];

    store_whole(pairs, index);
    two_groups(eight_points(points, pairs), eight_points(points, pairs + 1), two);
}

/* A bit for each column, as eight_points orders rows: for byte k of the lanes of[2 k] and of[2 k + 1]. */
typedef struct {
    _Alignas(64) uint64_t of[8];
} point_signs;

INLINE point_signs signs_of_points(VI v)
{
    const VI bytes = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    const VI words = _mm512_set_epi16(31, 23, 15, 7, 30, 22, 14, 6, 29, 21, 13, 5, 28, 20, 12, 4, 27, 19, 11, 3, 26, 18,
                                      10, 2, 25, 17, 9, 1, 24, 16, 8, 0);
    point_signs signs;

    store_whole(signs.of, _mm512_permutexvar_epi16(words, _mm512_shuffle_epi8(v, bytes)));
    return signs;
}

/* 2 * 128 - v */
INLINE VI minus_where(uint64_t where, VI v)
{
    return _mm512_mask_sub_epi8(v, where, _mm512_setzero_si512(), v);
}

INLINE void vi_signed_points(const uint64_t *points, VI index, const point_signs *signs, uint32_t k, VI *two)
{
    _Alignas(64) uint64_t pairs[8];

    store_whole(pairs, index);
    two_groups(minus_where(signs->of[2 * k], eight_points(points, pairs)),
               minus_where(signs->of[2 * k + 1], eight_points(points, pairs + 1)), two);
}

INLINE VF low_halves(VI v)
{
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(v));
}

INLINE void store_lanes(float *out, VF v, uint32_t rows, uint32_t step)
{
    float lanes[LANES];
    uint32_t r;

    if (step == 1) {
        _mm512_mask_storeu_ps(out, (__mmask16)(rows >= LANES ? 0xffff : (1u << rows) - 1), v);
        return;
    }
    _mm512_storeu_ps(lanes, v);
    for (r = 0; r < LANES && r < rows; r++)
        out[(size_t)r * step] = lanes[r];
}

#endif
