/* Vectors of sixteen lanes for blocks_columns.inc and blocks_products.inc: what the files of the AVX-512 level share
 * that make columns of bytes, of rows as they lie (simd_avx512.c) and of tiles (tiles_avx512.c). */
#ifndef RN_CPU_LEVELS_COLUMNS_AVX512_H
#define RN_CPU_LEVELS_COLUMNS_AVX512_H

#include <immintrin.h>
#include <string.h>

#include "cpu/levels/levels_x86.h"
#include "model/quant_grids.h"
#include "model/quant_types.h"

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
#define vi_srlv32 _mm512_srlv_epi32
#define vi_gather(base, v) _mm512_i32gather_epi32(v, base, 4)
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
