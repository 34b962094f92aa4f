/* Vectors of sixteen rows on AVX-512: what the files of products with few inputs share, of rows as they lie
 * (rows_avx512.h) and of tiles (few_tiles_avx512.c). */
#ifndef RN_CPU_LEVELS_AVX512_VECTORS_AVX512_H
#define RN_CPU_LEVELS_AVX512_VECTORS_AVX512_H

#include <immintrin.h>

#include "cpu/levels/levels_x86.h"

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

typedef __m512i VI;
typedef __m512 VF;

enum { ROWS = 16 };

/* Loads and prefetches in front of this stay in front of what is behind it. */
INLINE void stay_here(void)
{
    __asm__ volatile("" : : : "memory");
}

/* The sums of n inputs with sixteen rows. */
INLINE void store_inputs(const struct rn_matmul *m, const VF *sums, uint32_t n)
{
    float lanes[ROWS];
    uint32_t i, r;

    for (i = 0; i < n; i++) {
        _mm512_storeu_ps(lanes, sums[i]);
        for (r = 0; r < ROWS; r++)
            m->out[i][(size_t)r * m->step] = lanes[r];
    }
}

INLINE __m128i load16(const uint8_t *p)
{
    return _mm_loadu_si128((const __m128i *)p);
}

INLINE __m256i load32(const void *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

INLINE VI bytes(int x)
{
    return _mm512_set1_epi8((char)x);
}

INLINE VI quarter4(const void *p)
{
    return _mm512_broadcast_i32x4(_mm_loadu_si128(p));
}

INLINE VI dot(VI sum, VI w, VI y)
{
    return _mm512_dpbusd_epi32(sum, w, y);
}

INLINE VI low_nibbles(VI v)
{
    return _mm512_and_si512(v, bytes(15));
}

INLINE VI high_nibbles(VI v)
{
    return low_nibbles(_mm512_srli_epi32(v, 4));
}

/* What a sum begins with; of weights that are 128 >> shift too large, of what it is of those with 128. */
INLINE VI begin(const struct rn_line *y)
{
    return _mm512_castps_si512(_mm512_set1_ps(y->magic_d));
}

INLINE VI start(const struct rn_line *y, int32_t with_128, int shift)
{
    return _mm512_set1_epi32(shift == 0 ? with_128 : rn_line_begin(y) - ((rn_line_begin(y) - with_128) >> shift));
}

/* acc + float(sum) * d_input * d_weight: see struct rn_line. */
INLINE VF add_product(VF acc, VI sum, const struct rn_line *y, VF scale)
{
    return _mm512_fmadd_ps(_mm512_sub_ps(_mm512_castsi512_ps(sum), _mm512_set1_ps(y->magic_d)), scale, acc);
}

INLINE VF add_fine_product(VF acc, VI sum, const struct rn_line *y, VF scale)
{
    VF product = _mm512_fmsub_ps(_mm512_castsi512_ps(sum), _mm512_set1_ps(y->d), _mm512_set1_ps(y->magic_d));

    return _mm512_fmadd_ps(product, scale, acc);
}

INLINE VF low_halves(VI v)
{
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(v));
}

INLINE VF high_halves(VI v)
{
    return low_halves(_mm512_srli_epi32(v, 16));
}

INLINE VF minus(VF v)
{
    return _mm512_castsi512_ps(_mm512_xor_si512(_mm512_castps_si512(v), _mm512_set1_epi32(INT32_MIN)));
}

/* Byte k of the lanes as a number; with its sign. */
INLINE VF byte_of(VI v, uint32_t k)
{
    v = k == 3 ? _mm512_srli_epi32(v, 24) : _mm512_and_si512(_mm512_srli_epi32(v, 8 * k), _mm512_set1_epi32(255));
    return _mm512_cvtepi32_ps(v);
}

INLINE VF signed_byte_of(VI v, uint32_t k)
{
    return _mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(v, 24 - 8 * k), 24));
}

INLINE VI levels_of(const int8_t *levels, int plus)
{
    return _mm512_add_epi8(quarter4(levels), bytes(plus));
}

/* The scale of MXFP4: see blocks_columns.inc. */
INLINE VF power_of_two(VI e)
{
    VI tiny =
        _mm512_maskz_sllv_epi32(_mm512_cmplt_epi32_mask(e, _mm512_set1_epi32(2)), _mm512_set1_epi32(0x00200000), e);

    e = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
    return _mm512_castsi512_ps(_mm512_max_epi32(e, tiny));
}

/* Of the first words of the rows' blocks. Six bits less 32, four of them in nibbles, two in a word: see
 * model/quant/iq.c. */
INLINE VF iq4_xs_scale(VI first, VI second, VF d, uint32_t i)
{
    VI code = _mm512_and_si512(_mm512_srli_epi32(first, 12 + 2 * i), _mm512_set1_epi32(0x30));

    code = _mm512_or_si512(code, _mm512_and_si512(_mm512_srli_epi32(second, 4 * i), _mm512_set1_epi32(15)));
    return _mm512_mul_ps(d, _mm512_sub_ps(_mm512_cvtepi32_ps(code), _mm512_set1_ps(32)));
}

INLINE void iq4_xs_scales(const VI *v, VF *scales)
{
    VF d = low_halves(v[0]);
    uint32_t i;

    UNROLL
    for (i = 0; i < 8; i++)
        scales[i] = iq4_xs_scale(v[0], v[1], d, i);
}

/* Of the first 16 bytes of the rows' blocks: see scales_k4 in blocks_columns.inc. */
struct k4 {
    VF d, least;   /* least: as it is added */
    VI s[2], m[2]; /* of strip i byte i % 4 of i / 4 */
};

INLINE struct k4 k4_of(const VI *v)
{
    const VI six = bytes(0x3f), top = bytes(0x30);
    struct k4 k;

    k.d = low_halves(v[0]);
    k.least = minus(high_halves(v[0]));
    k.s[0] = _mm512_and_si512(v[1], six);
    k.s[1] = _mm512_or_si512(low_nibbles(v[3]), _mm512_and_si512(_mm512_srli_epi32(v[1], 2), top));
    k.m[0] = _mm512_and_si512(v[2], six);
    k.m[1] = _mm512_or_si512(high_nibbles(v[3]), _mm512_and_si512(_mm512_srli_epi32(v[2], 2), top));
    return k;
}

INLINE VF k4_scale(const struct k4 *k, uint32_t strip)
{
    return _mm512_mul_ps(k->d, byte_of(k->s[strip / 4], strip % 4));
}

INLINE VF k4_minimum(const struct k4 *k, uint32_t strip)
{
    return _mm512_mul_ps(k->least, byte_of(k->m[strip / 4], strip % 4));
}

#endif
