/* Products of a few inputs with sixteen whole rows on AVX-512, for the formats that steps of a few rows read most:
 * a draft that is verified, a few streams. The sums are those of blocks_products.inc, to the bit.
 *
 * Weights become columns in registers, once for all inputs: strips as those of blocks_columns.inc, but of sixteen rows,
 * and no buffer. Rows are sixteen streams, as with one input, and what comes next is asked for a few rows at a
 * time, between the products: all at once it fills the queue of misses and the products wait behind it.
 *
 *     strip        group 0  group 1 ... group 7      eight registers, lane r: four weights of row r
 *                     |        |           |
 *     input i      4 bytes, 4 bytes ... 4 bytes      broadcast by the product itself
 *
 * The inputs take turns at each group, so that the products in flight do not wait for each other: a chain of eight
 * by input is 40 cycles long, and with the chains one after the other the scheduler is full before the next
 * strip is reached.
 *
 * Threads: any; nothing here has state. */
#include <immintrin.h>
#include <stddef.h>

#include "cpu/levels/rows_avx512.h"
#include "model/quant_grids.h"
#include "model/quant_types.h"

/* ---- Products ---- */

struct four {
    int32_t columns;
} __attribute__((packed, may_alias));

/* sum + the products with four columns of an input: one instruction. Of the intrinsics gcc 12 makes two. */
INLINE VI dot4(VI sum, VI w, const int8_t *y)
{
    __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(w), "m"(*(const struct four *)y));
    return sum;
}

/* What n inputs have of the line b. */
struct lines {
    const struct rn_matmul *m;
    uint32_t n;
    size_t b;
};

INLINE const struct rn_line *line(struct lines of, uint32_t i)
{
    return (const struct rn_line *)of.m->inputs[i] + of.b;
}

/* Adds the products of groups [from, to), which have one scale, with the lines. start_at: where in a line
 * the number is that its sum begins with; 0: RN_MAGIC. */
INLINE void add_groups(VF *acc, const VI *groups, uint32_t from, uint32_t to, struct lines of, size_t start_at,
                       VF scale)
{
    VI sum[RN_FEW_AVX512], more[RN_FEW_AVX512];
    const uint32_t chains = of.n < 4 && to - from == 8 ? 2 : 1;
    uint32_t i, g;

    UNROLL
    for (i = 0; i < of.n; i++) {
        sum[i] = start_at == 0 ? _mm512_set1_epi32(RN_MAGIC_BITS)
                               : _mm512_set1_epi32(*(const int32_t *)((const char *)line(of, i) + start_at));
        more[i] = _mm512_setzero_si512();
    }
    UNROLL
    for (g = from; g < to; g++)
        UNROLL
    for (i = 0; i < of.n; i++)
        if (chains == 1 || g % 2 == 0)
            sum[i] = dot4(sum[i], groups[g], line(of, i)->q + 4 * g);
        else
            more[i] = dot4(more[i], groups[g], line(of, i)->q + 4 * g);
    UNROLL
    for (i = 0; i < of.n; i++) {
        if (chains == 2)
            sum[i] = _mm512_add_epi32(sum[i], more[i]);
        acc[i] = add_product(acc[i], sum[i], line(of, i), scale);
    }
}

/* A strip with one scale, of bytes that are 128 too large. */
INLINE void add_strip(VF *acc, const VI *groups, struct lines of, VF scale)
{
    add_groups(acc, groups, 0, 8, of, offsetof(struct rn_line, start), scale);
}

/* A strip with one scale and one minimum, of bytes as they are. */
INLINE void add_strip_min(VF *acc, const VI *groups, struct lines of, VF scale, VF minimum)
{
    uint32_t i;

    add_groups(acc, groups, 0, 8, of, 0, scale);
    UNROLL
    for (i = 0; i < of.n; i++)
        acc[i] = _mm512_fmadd_ps(_mm512_set1_ps(line(of, i)->d_sum), minimum, acc[i]);
}

INLINE void few_store(const struct rn_matmul *m, const VF *acc, uint32_t n)
{
    float lanes[ROWS];
    uint32_t i, r;

    for (i = 0; i < n; i++) {
        _mm512_storeu_ps(lanes, acc[i]);
        for (r = 0; r < ROWS; r++)
            m->out[i][(size_t)r * m->step] = lanes[r];
    }
}

INLINE void few_zero(VF *acc, uint32_t n)
{
    uint32_t i;

    UNROLL
    for (i = 0; i < n; i++)
        acc[i] = _mm512_setzero_ps();
}

/* Asks for lines of the rows [first, first + n), some way on. */
INLINE void ahead_of(struct rows w, uint32_t first, uint32_t n, uint32_t lines)
{
    uint32_t r, i;

    UNROLL
    for (r = first; r < first + n; r++)
        UNROLL
    for (i = 0; i < lines; i++)
        _mm_prefetch((const char *)row(w, r) + RN_STREAM_AHEAD + 64 * i, _MM_HINT_T1);
}

/* ---- Blocks of 32 ---- */

/* The nibbles of 16 bytes of all rows: the low ones are groups 0 to 3, the high ones 4 to 7. levels: NULL, or what they
 * stand for. */
INLINE void nibble_groups(struct rows w, size_t at, const int8_t *levels, VI *groups)
{
    VI v[4];
    uint32_t c;

    columns(w, at, v);
    UNROLL
    for (c = 0; c < 4; c++) {
        groups[c] = low_nibbles(v[c]);
        groups[4 + c] = high_nibbles(v[c]);
    }
    UNROLL
    for (c = 0; c < 8; c++)
        groups[c] = levels == NULL ? _mm512_add_epi8(groups[c], bytes(120))
                                   : _mm512_shuffle_epi8(levels_of(levels, 128), groups[c]);
}

/* `count` blocks of 18 bytes, a constant to the compiler, the first of them block b of the row. */
INLINE void nibble_blocks(VF *acc, struct rows w, const struct rn_matmul *m, uint32_t n, size_t b, uint32_t count,
                          const int8_t *levels)
{
    static const uint16_t at[4] = {0, 9, 18, 27};
    _Alignas(64) uint16_t scales[4][ROWS];
    VI groups[8];
    uint32_t k;

    words(w, at, count == 4 ? UINT64_MAX : ((__mmask64)1 << (count * 18)) - 1, scales);
    UNROLL
    for (k = 0; k < count; k++) {
        ahead_of(w, 4 * k, 4, 1);
        nibble_groups(w, 2 + 18 * k, levels, groups);
        add_strip(acc, groups, (struct lines){m, n, b + k}, halves(scales[k]));
    }
}

INLINE void few_nibbles(const struct rn_matmul *m, uint32_t n, const int8_t *levels)
{
    struct rows w = rows_of(m);
    size_t b, n_blocks = m->cols / 32;
    VF acc[RN_FEW_AVX512];

    few_zero(acc, n);
    for (b = 0; b + 4 <= n_blocks; b += 4, w.p += 72)
        nibble_blocks(acc, w, m, n, b, 4, levels);
    for (; b < n_blocks; b++, w.p += 18)
        nibble_blocks(acc, w, m, n, b, 1, levels);
    few_store(m, acc, n);
}

INLINE void few_q4_0(const struct rn_matmul *m, uint32_t n)
{
    few_nibbles(m, n, NULL);
}

INLINE void few_iq4_nl(const struct rn_matmul *m, uint32_t n)
{
    few_nibbles(m, n, rn_levels_iq4);
}

INLINE void q8_0_block(VF *acc, struct rows w, size_t at, struct lines of, const uint16_t *scales)
{
    VI groups[8];
    uint32_t g;

    columns(w, at + 2, groups);
    columns(w, at + 18, groups + 4);
    UNROLL
    for (g = 0; g < 8; g++)
        groups[g] = _mm512_xor_si512(groups[g], bytes(128));
    add_strip(acc, groups, of, halves(scales));
}

INLINE void few_q8_0(const struct rn_matmul *m, uint32_t n)
{
    static const uint16_t at[4] = {0, 17, 0, 17};
    _Alignas(64) uint16_t scales[4][ROWS];
    struct rows w = rows_of(m);
    size_t b, n_blocks = m->cols / 32;
    VF acc[RN_FEW_AVX512];

    few_zero(acc, n);
    for (b = 0; b + 2 <= n_blocks; b += 2, w.p += 68) {
        words(w, at, UINT64_MAX, scales);
        ahead_of(w, 0, 8, 1);
        q8_0_block(acc, w, 0, (struct lines){m, n, b}, scales[0]);
        ahead_of(w, 8, 8, 1);
        q8_0_block(acc, w, 34, (struct lines){m, n, b + 1}, scales[1]);
    }
    if (b < n_blocks) {
        words(w, at, ((__mmask64)1 << 34) - 1, scales);
        q8_0_block(acc, w, 0, (struct lines){m, n, b}, scales[0]);
    }
    few_store(m, acc, n);
}

/* ---- Blocks of 256 ---- */

/* 32 bytes at `at`: their low nibbles are strip b, their high ones the next. */
INLINE void q4_k_strips(VF *acc, struct rows w, size_t at, struct lines of, const VF *scales, const VF *minima)
{
    VI v[8], groups[8];
    uint32_t g, t;

    columns(w, at, v);
    columns(w, at + 16, v + 4);
    UNROLL
    for (t = 0; t < 2; t++, of.b++) {
        UNROLL
        for (g = 0; g < 8; g++)
            groups[g] = t == 0 ? low_nibbles(v[g]) : high_nibbles(v[g]);
        add_strip_min(acc, groups, of, scales[t], minima[t]);
    }
}

INLINE void few_q4_k(const struct rn_matmul *m, uint32_t n)
{
    struct rows w = rows_of(m);
    VF acc[RN_FEW_AVX512], scales[8], minima[8];
    size_t b;
    uint32_t i;

    few_zero(acc, n);
    for (b = 0; b < m->cols / 32; b += 8, w.p += 144) {
        k4_scales(w, scales, minima);
        UNROLL
        for (i = 0; i < 4; i++) {
            ahead_of(w, 4 * i, 4, 3);
            q4_k_strips(acc, w, 16 + 32 * i, (struct lines){m, n, b + 2 * i}, scales + 2 * i, minima + 2 * i);
        }
    }
    few_store(m, acc, n);
}

/* As of Q4_K; bits 2 i and 2 i + 1 of fifth[] belong above the nibbles. */
INLINE void q5_k_strips(VF *acc, struct rows w, uint32_t i, const VI *fifth, struct lines of, const VF *scales,
                        const VF *minima)
{
    VI v[8], groups[8], bit;
    uint32_t g, t, from;

    columns(w, 48 + 32 * i, v);
    columns(w, 64 + 32 * i, v + 4);
    UNROLL
    for (t = 0; t < 2; t++, of.b++) {
        from = 2 * i + t;
        UNROLL
        for (g = 0; g < 8; g++) {
            bit = from < 4 ? _mm512_slli_epi32(fifth[g], 4 - from) : _mm512_srli_epi32(fifth[g], from - 4);
            groups[g] = t == 0 ? low_nibbles(v[g]) : high_nibbles(v[g]);
            groups[g] = _mm512_ternarylogic_epi32(groups[g], bit, bytes(16), 0xf8); /* nibble | (bit & 16) */
        }
        add_strip_min(acc, groups, of, scales[t], minima[t]);
    }
}

INLINE void few_q5_k(const struct rn_matmul *m, uint32_t n)
{
    struct rows w = rows_of(m);
    VF acc[RN_FEW_AVX512], scales[8], minima[8];
    VI fifth[8];
    size_t b;
    uint32_t i;

    few_zero(acc, n);
    for (b = 0; b < m->cols / 32; b += 8, w.p += 176) {
        k4_scales(w, scales, minima);
        columns(w, 16, fifth);
        columns(w, 32, fifth + 4);
        UNROLL
        for (i = 0; i < 4; i++) {
            ahead_of(w, 4 * i, 4, 3);
            q5_k_strips(acc, w, i, fifth, (struct lines){m, n, b + 2 * i}, scales + 2 * i, minima + 2 * i);
        }
    }
    few_store(m, acc, n);
}

/* Strip t of half a block: nibbles of low[t % 2], the low ones first, and bits 2 t of high above them. Two scales. */
INLINE void q6_k_strip(VF *acc, const VI (*low)[8], const VI *high, uint32_t t, struct lines of, VF d, VI codes)
{
    VI groups[8], bits;
    uint32_t g, s;

    UNROLL
    for (g = 0; g < 8; g++) {
        groups[g] = t < 2 ? low_nibbles(low[t % 2][g]) : high_nibbles(low[t % 2][g]);
        bits = t < 2 ? _mm512_slli_epi32(high[g], 4 - 2 * t) : _mm512_srli_epi32(high[g], 2 * t - 4);
        groups[g] = _mm512_ternarylogic_epi32(groups[g], bits, bytes(0x30), 0xf8);
        groups[g] = _mm512_add_epi8(groups[g], bytes(96));
    }
    UNROLL
    for (s = 0; s < 2; s++)
        add_groups(acc, groups, 4 * s, 4 * s + 4, of, offsetof(struct rn_line, start16) + 4 * s,
                   _mm512_mul_ps(d, signed_byte_of(codes, t % 2 * 2 + s)));
}

/* Half a block, 128 columns, from strip of.b on. */
INLINE void q6_k_half(VF *acc, struct rows w, uint32_t i, struct lines of, VF d, const VI *codes)
{
    VI low[2][8], high[8];
    uint32_t k, t;

    columns(w, 128 + 32 * i, high);
    columns(w, 144 + 32 * i, high + 4);
    UNROLL
    for (k = 0; k < 2; k++) {
        columns(w, 64 * i + 32 * k, low[k]);
        columns(w, 64 * i + 32 * k + 16, low[k] + 4);
    }
    UNROLL
    for (t = 0; t < 4; t++, of.b++) {
        ahead_of(w, 8 * i + 2 * t, 2, 4);
        q6_k_strip(acc, low, high, t, of, d, codes[2 * i + t / 2]);
    }
}

INLINE void few_q6_k(const struct rn_matmul *m, uint32_t n)
{
    struct rows w = rows_of(m);
    VF acc[RN_FEW_AVX512], d;
    VI codes[4];
    size_t b;

    few_zero(acc, n);
    for (b = 0; b < m->cols / 32; b += 8, w.p += 210) {
        columns(w, 194, codes);
        d = high_halves(codes[3]);
        columns(w, 192, codes);
        q6_k_half(acc, w, 0, (struct lines){m, n, b}, d, codes);
        q6_k_half(acc, w, 1, (struct lines){m, n, b + 4}, d, codes);
    }
    few_store(m, acc, n);
}

/* ---- The formats ---- */

/* So many inputs are a constant to the compiler. */
#define EXPORT_FEW(name)                                   \
    void rn_few_##name##_avx512(const struct rn_matmul *m) \
    {                                                      \
        switch (m->n) {                                    \
        case 2:                                            \
            few_##name(m, 2);                              \
            return;                                        \
        case 3:                                            \
            few_##name(m, 3);                              \
            return;                                        \
        case 4:                                            \
            few_##name(m, 4);                              \
            return;                                        \
        case 5:                                            \
            few_##name(m, 5);                              \
            return;                                        \
        case 6:                                            \
            few_##name(m, 6);                              \
            return;                                        \
        case 7:                                            \
            few_##name(m, 7);                              \
            return;                                        \
        default:                                           \
            few_##name(m, RN_FEW_AVX512);                  \
        }                                                  \
    }
RN_FEW_OF_AVX512(EXPORT_FEW)
