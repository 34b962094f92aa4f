/* Vectors of eight lanes for blocks_columns.inc and blocks_products.inc: what the files of the AVX2 levels share that
 * make columns of bytes, of rows as they lie (rows_avx2.inc) and of tiles (tiles_avx2.inc). The levels differ in how a
 * group is multiplied: quad_avx2.inc, or with AVX-VNNI quad_vnni.inc. */
#ifndef RN_CPU_LEVELS_AVX2_COLUMNS_AVX2_H
#define RN_CPU_LEVELS_AVX2_COLUMNS_AVX2_H

#include <immintrin.h>
#include <string.h>

#include "cpu/levels/levels_x86.h"
#include "model/quant/points.h"
#include "model/quant/types.h"

#define INLINE static inline __attribute__((always_inline))

typedef __m256i VI;
typedef __m256 VF;

#define vi_and _mm256_and_si256
#define vi_or _mm256_or_si256
#define vi_xor _mm256_xor_si256
#define vi_add8 _mm256_add_epi8
#define vi_add32 _mm256_add_epi32
#define vi_sub32 _mm256_sub_epi32
#define vi_max32 _mm256_max_epi32
#define vi_srl32(v, n) _mm256_srli_epi32(v, n)
#define vi_sll32(v, n) _mm256_slli_epi32(v, n)
#define vi_sra32(v, n) _mm256_srai_epi32(v, n)
#define vi_sllv32 _mm256_sllv_epi32
#define vi_shuffle _mm256_shuffle_epi8
#define vi_set8(x) _mm256_set1_epi8((char)(x))
#define vi_set32 _mm256_set1_epi32
#define vi_store(to, v) _mm256_store_si256((__m256i *)(to), v)
#define vi_load(p) _mm256_load_si256((const __m256i *)(p))
#define vi_dot _mm256_dpbusd_avx_epi32

#define vf_set1 _mm256_set1_ps
#define vf_zero _mm256_setzero_ps
#define vf_from _mm256_cvtepi32_ps
#define vf_cast _mm256_castsi256_ps
#define vf_sub _mm256_sub_ps
#define vf_mul _mm256_mul_ps
#define vf_fma _mm256_fmadd_ps
#define vf_fms _mm256_fmsub_ps
#define vf_minus(v) _mm256_xor_ps(v, _mm256_set1_ps(-0.0f))
#define vf_load(p) _mm256_load_ps((const float *)(p))
#define vf_store(to, v) _mm256_store_ps((float *)(to), v)

#define AT_ONCE 4
enum { LANES = 8, PACK_FROM = RN_PACK_FROM, PIECE = 8, FEW = 4 };

/* a < b ? x : 0 */
INLINE VI vi_where_less(VI a, VI b, VI x)
{
    return _mm256_and_si256(_mm256_cmpgt_epi32(b, a), x);
}

INLINE VI vi_table(const int8_t *levels)
{
    return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)levels));
}

/* Byte k of each lane, in all four. */
INLINE VI vi_spread(VI v, int k)
{
    return _mm256_shuffle_epi8(
        v, _mm256_add_epi8(_mm256_set1_epi8((char)k), _mm256_set_epi32(0x0c0c0c0c, 0x08080808, 0x04040404, 0,
                                                                       0x0c0c0c0c, 0x08080808, 0x04040404, 0)));
}

INLINE VI plus_where(VI v, VI bits, VI mask, int value)
{
    return _mm256_add_epi8(v, _mm256_and_si256(_mm256_cmpeq_epi8(_mm256_and_si256(bits, mask), mask), vi_set8(value)));
}

#define plus_bit(v, bits, n, to) vi_or(v, moved(bits, n, 1, to))

INLINE VI plus_where_reached(VI v, VI x, int limit)
{
    return _mm256_sub_epi8(v, _mm256_cmpeq_epi8(_mm256_max_epu8(x, vi_set8(limit)), x));
}

/* ---- Points: see blocks_grid.inc ---- */

/* A broadcast is a load and nothing else, and a blend takes no shuffle. */
INLINE VI vi_points4(const uint32_t *points, VI index)
{
    _Alignas(32) uint32_t i[LANES];
    VI a, b;

    _mm256_store_si256((VI *)i, index);
#define POINT(k) _mm256_set1_epi32((int32_t)points[i[k]])
    a = _mm256_blend_epi32(_mm256_blend_epi32(POINT(0), POINT(1), 0x02), _mm256_blend_epi32(POINT(2), POINT(3), 0x08),
                           0x0c);
    b = _mm256_blend_epi32(_mm256_blend_epi32(POINT(4), POINT(5), 0x20), _mm256_blend_epi32(POINT(6), POINT(7), 0x80),
                           0xc0);
#undef POINT
    return _mm256_blend_epi32(a, b, 0xf0);
}

INLINE VI vi_less_where(VI v, VI bits, VI mask, VI from)
{
    return _mm256_blendv_epi8(v, _mm256_sub_epi8(from, v), _mm256_cmpeq_epi8(_mm256_and_si256(bits, mask), mask));
}

INLINE VI broadcast8(const uint64_t *p)
{
    return _mm256_set1_epi64x((long long)*p);
}

/* Four rows' points of eight columns, which shuffles within halves make groups of: the rows 4 h + first and
 * 4 h + first + 1 in half h. */
INLINE VI four_points(const uint64_t *points, const uint64_t *pairs)
{
    VI a = broadcast8(points + (uint32_t)pairs[0]), b = broadcast8(points + (pairs[0] >> 32));
    VI c = broadcast8(points + (uint32_t)pairs[2]), d = broadcast8(points + (pairs[2] >> 32));

    return _mm256_blend_epi32(_mm256_blend_epi32(a, b, 0x0c), _mm256_blend_epi32(c, d, 0xc0), 0xf0);
}

INLINE void vi_points(const uint64_t *points, VI index, VI *two)
{
    _Alignas(32) uint64_t pairs[4];
    VF a, b;

    _mm256_store_si256((VI *)pairs, index);
    a = _mm256_castsi256_ps(four_points(points, pairs));
    b = _mm256_castsi256_ps(four_points(points, pairs + 1));
    two[0] = _mm256_castps_si256(_mm256_shuffle_ps(a, b, 0x88));
    two[1] = _mm256_castps_si256(_mm256_shuffle_ps(a, b, 0xdd));
}

typedef VI point_signs;

INLINE point_signs signs_of_points(VI v)
{
    return v;
}

/* from: 2 OFFSET(64) */
INLINE void signed_points(const uint64_t *points, VI index, VI signs, uint32_t k, VI from, VI *two)
{
    VI bits = vi_spread(signs, (int)k);

    vi_points(points, index, two);
    two[0] = vi_less_where(two[0], bits, vi_set32(0x08040201), from);
    two[1] = vi_less_where(two[1], bits, vi_set32((int32_t)0x80402010), from);
}

/* OFFSET is the level's. */
#define vi_signed_points(points, index, signs, k, two) \
    signed_points(points, index, *(signs), k, vi_set8(2 * OFFSET(64)), two)

INLINE VF low_halves(VI v)
{
    v = _mm256_and_si256(v, _mm256_set1_epi32(0xffff));
    return _mm256_cvtph_ps(_mm_packus_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1)));
}

INLINE void store_lanes(float *out, VF v, uint32_t rows, uint32_t step)
{
    float eight[8];
    uint32_t r;

    if (rows >= LANES && step == 1) {
        _mm256_storeu_ps(out, v);
        return;
    }
    _mm256_storeu_ps(eight, v);
    for (r = 0; r < LANES && r < rows; r++)
        out[(size_t)r * step] = eight[r];
}

#endif
