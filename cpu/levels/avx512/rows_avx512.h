/* Sixteen rows of a matrix on AVX-512 where they lie, each a stream of its own (rn_matmul.step). */
#ifndef RN_CPU_LEVELS_AVX512_ROWS_AVX512_H
#define RN_CPU_LEVELS_AVX512_ROWS_AVX512_H

#include "cpu/levels/avx512/vectors_avx512.h"

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
    store_inputs(m, &v, 1);
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

/* The low bytes for an even k, the high ones for an odd one. */
INLINE VI one_byte(const uint16_t *of_rows, uint32_t k)
{
    VI v = _mm512_cvtepu16_epi32(_mm256_load_si256((const __m256i *)of_rows));

    return k % 2 == 0 ? _mm512_and_si512(v, _mm512_set1_epi32(255)) : _mm512_srli_epi32(v, 8);
}

/* ---- Sums across lanes ---- */

/* The sums of neighbours of a's dwords, and of b's, side by side in each quarter: by way of words, into which the
 * dwords must fit; and of any. */
INLINE VI packed_sums(VI a, VI b)
{
    return _mm512_madd_epi16(_mm512_packs_epi32(a, b), _mm512_set1_epi16(1));
}

INLINE VI wide_sums(VI a, VI b)
{
    VF even = _mm512_shuffle_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b), 0x88);
    VF odd = _mm512_shuffle_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b), 0xdd);

    return _mm512_add_epi32(_mm512_castps_si512(even), _mm512_castps_si512(odd));
}

/* Quarter q of register r -> quarter r of register q. */
INLINE void across(VI *v)
{
    VI a = _mm512_shuffle_i64x2(v[0], v[1], 0x44), b = _mm512_shuffle_i32x4(v[0], v[1], 0xee);
    VI c = _mm512_shuffle_i64x2(v[2], v[3], 0x44), d = _mm512_shuffle_i32x4(v[2], v[3], 0xee);

    v[0] = _mm512_shuffle_i64x2(a, c, 0x88);
    v[1] = _mm512_shuffle_i64x2(a, c, 0xdd);
    v[2] = _mm512_shuffle_i64x2(b, d, 0x88);
    v[3] = _mm512_shuffle_i64x2(b, d, 0xdd);
}

/* ---- Scales ---- */

/* d of all rows, times a power of two. */
INLINE VF first_half(struct rows w, float times)
{
    VI v[4];

    columns(w, 0, v);
    return _mm512_mul_ps(low_halves(v[0]), _mm512_set1_ps(times));
}

/* d * (step * code + plus) */
INLINE VF scale_of(VI code, float step, float plus, VF d)
{
    return _mm512_mul_ps(d, _mm512_fmadd_ps(_mm512_cvtepi32_ps(code), _mm512_set1_ps(step), _mm512_set1_ps(plus)));
}

INLINE VI bits_of(VI v, uint32_t shift, uint32_t bits)
{
    return _mm512_and_si512(_mm512_srli_epi32(v, shift), _mm512_set1_epi32((1 << bits) - 1));
}

#endif
