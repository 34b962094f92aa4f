/* Sixteen rows of a matrix on AVX-512, each a stream of its own (rn_matmul.step), and the products of one input with
 * them: what the files of direct products share. */
#ifndef RN_CPU_LEVELS_ROWS_AVX512_H
#define RN_CPU_LEVELS_ROWS_AVX512_H

#include <immintrin.h>

#include "cpu/levels/levels_x86.h"

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

typedef __m512i VI;
typedef __m512 VF;

enum { ROWS = 16 };

/* ---- Rows ---- */

/* Where sixteen rows are read: row r at p + r * s; s4 = 4 * s. */
struct rows {
    const uint8_t *p;
    size_t s, s4;
};

INLINE struct rows rows_of(const struct rn_matmul *m)
{
    size_t s = m->row_bytes * m->step;

    return (struct rows){m->weights, s, 4 * s};
}

INLINE const uint8_t *row(struct rows w, uint32_t r)
{
    return w.p + r / 4 * w.s4 + r % 4 * w.s;
}

/* Asks for `lines` lines of every row, some way on: rows are streams of their own (rn_matmul.step). */
INLINE void ahead(struct rows w, uint32_t lines)
{
    uint32_t r, i;

    UNROLL
    for (r = 0; r < ROWS; r++)
        UNROLL
    for (i = 0; i < lines; i++)
        _mm_prefetch((const char *)row(w, r) + RN_STREAM_AHEAD + 64 * i, _MM_HINT_T1);
}

INLINE __m128i load16(const uint8_t *p)
{
    return _mm_loadu_si128((const __m128i *)p);
}

INLINE __m256i load32(const void *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

/* 16 bytes at `at` of the rows r, r + 4, r + 8, r + 12. */
INLINE VI four_rows(struct rows w, uint32_t r, size_t at)
{
    const uint8_t *p = w.p + r * w.s + at;
    VI v = _mm512_castsi128_si512(load16(p));

    v = _mm512_inserti32x4(v, load16(p + w.s4), 1);
    v = _mm512_inserti32x4(v, load16(p + 2 * w.s4), 2);
    return _mm512_inserti32x4(v, load16(p + 3 * w.s4), 3);
}

static inline void store_rows(const struct rn_matmul *m, VF v)
{
    float lanes[ROWS];
    uint32_t r;

    _mm512_storeu_ps(lanes, v);
    for (r = 0; r < ROWS; r++)
        m->out[0][(size_t)r * m->step] = lanes[r];
}

/* ---- Bytes and sums ---- */

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

/* What a sum of weights that are 128 >> shift too large begins with, of one with 128. */
INLINE VI start(int32_t with_128, int shift)
{
    return _mm512_set1_epi32((with_128 >> shift) + (RN_MAGIC_BITS - (RN_MAGIC_BITS >> shift)));
}

/* acc + float(sum) * d_input * d_weight: see struct rn_line. */
INLINE VF add_product(VF acc, VI sum, const struct rn_line *y, VF scale)
{
    VF product = _mm512_fmsub_ps(_mm512_castsi512_ps(sum), _mm512_set1_ps(y->d), _mm512_set1_ps(y->magic_d));

    return _mm512_fmadd_ps(product, scale, acc);
}

/* Bytes [at, at + 16) of all rows, four to a lane: lane r of v[c] has bytes 4 c .. 4 c + 3 of row r. */
INLINE void columns(struct rows w, size_t at, VI *v)
{
    VI a = four_rows(w, 0, at), b = four_rows(w, 1, at), c = four_rows(w, 2, at), d = four_rows(w, 3, at);
    VI ab = _mm512_unpacklo_epi32(a, b), cd = _mm512_unpacklo_epi32(c, d);

    v[0] = _mm512_unpacklo_epi64(ab, cd);
    v[1] = _mm512_unpackhi_epi64(ab, cd);
    ab = _mm512_unpackhi_epi32(a, b);
    cd = _mm512_unpackhi_epi32(c, d);
    v[2] = _mm512_unpacklo_epi64(ab, cd);
    v[3] = _mm512_unpackhi_epi64(ab, cd);
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

/* ---- Words of four blocks ---- */

/* out[k][r] = word at[k] of row r, k < 4; `present` bytes of each row may be read. */
INLINE void words(struct rows w, const uint16_t *at, __mmask64 present, uint16_t out[4][ROWS])
{
    const __m128i pairs = _mm_loadl_epi64((const __m128i *)at), twice = _mm_unpacklo_epi16(pairs, pairs);
    const VI index = _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3),
                                              _mm512_castsi128_si512(twice));
    VI half[2], v;
    uint32_t h, r;

    UNROLL
    for (h = 0; h < 2; h++)
        UNROLL
    for (r = 0; r < 8; r++) {
        v = present == UINT64_MAX ? _mm512_loadu_si512(row(w, 8 * h + r))
                                  : _mm512_maskz_loadu_epi8(present, row(w, 8 * h + r));
        half[h] = r == 0 ? _mm512_permutexvar_epi16(index, v)
                         : _mm512_mask_permutexvar_epi16(half[h], 0x01010101u << r, index, v);
    }
    v = _mm512_permutex2var_epi64(half[0], _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11), half[1]);
    _mm512_store_si512(out[0], v);
    v = _mm512_permutex2var_epi64(half[0], _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15), half[1]);
    _mm512_store_si512(out[2], v);
}

INLINE VF halves(const uint16_t *of_rows)
{
    return _mm512_cvtph_ps(_mm256_load_si256((const __m256i *)of_rows));
}

/* See scales_k4 in blocks_columns.inc. */
INLINE void k4_scales(struct rows w, VF *scales, VF *minima)
{
    const VI six = bytes(0x3f), top = bytes(0x30);
    VI v[4], s[2], m[2];
    VF d, least;
    uint32_t i;

    columns(w, 0, v);
    d = low_halves(v[0]);
    least = minus(high_halves(v[0]));
    s[0] = _mm512_and_si512(v[1], six);
    s[1] = _mm512_or_si512(low_nibbles(v[3]), _mm512_and_si512(_mm512_srli_epi32(v[1], 2), top));
    m[0] = _mm512_and_si512(v[2], six);
    m[1] = _mm512_or_si512(high_nibbles(v[3]), _mm512_and_si512(_mm512_srli_epi32(v[2], 2), top));
    UNROLL
    for (i = 0; i < 8; i++) {
        scales[i] = _mm512_mul_ps(d, byte_of(s[i / 4], i % 4));
        minima[i] = _mm512_mul_ps(least, byte_of(m[i / 4], i % 4));
    }
}

#endif
