/* Products of one input with sixteen whole rows on AVX-512, for the formats that a decode step reads
 * most. The sums are those of blocks_products.inc, to the bit; what differs is how weights come into registers.
 *
 * There, weights become columns before they are multiplied. With one input that is dear: it moves every byte of
 * the weights through shuffles. Here they are multiplied as they lie, 16 bytes of a row to each quarter of a
 * register, and the partial sums are moved instead, a quarter as much or less:
 *
 *     blocks of 32     rows r, r + 4, r + 8, r + 12, one block of each     a quarter has four sums of one row
 *     blocks of 256    one row, 64 bytes                                   a quarter has four sums of 16 bytes
 *
 * `fold` adds neighbours of two registers, twice: register r's quarter q ends in dword r of quarter q. Sums that fit
 * into 16 bits are packed first, and one multiplication by ones adds them. Blocks of 32 then have their rows in
 * order; of blocks of 256 `across` turns quarters (parts of the row) and registers (rows) round.
 *
 * The scales of four blocks of 32 come out of one load per row: vpermw puts the four words where 16 rows of each block
 * stand together in the end, and masks keep the other rows' places.
 *
 * Threads: any; nothing here has state. */
#include <immintrin.h>
#include <string.h>

#include "cpu/levels/avx512/rows_avx512.h"
#include "model/quant/grids.h"
#include "model/quant/types.h"

/* ---- Sums ---- */

/* Quarters a0 a1 a2 a3, b0 b1 b2 b3 and so on of four registers -> sums a b c d. narrow: as many times as sums of
 * neighbours may be taken in 16 bits. */
INLINE VI fold(VI a, VI b, VI c, VI d, int narrow)
{
    if (narrow == 0) {
        a = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
        c = _mm512_add_epi32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
        return _mm512_add_epi32(_mm512_unpacklo_epi64(a, c), _mm512_unpackhi_epi64(a, c));
    }
    a = packed_sums(a, b);
    c = packed_sums(c, d);
    return narrow > 1 ? packed_sums(a, c) : wide_sums(a, c);
}

/* ---- Blocks of 32 with nibbles ---- */

enum kind { Q4_0, Q4_1, IQ4_NL, MXFP4 };

struct nibbles {
    uint32_t bytes, head; /* of a block; of them before the nibbles */
    const int8_t *levels; /* or NULL */
    int too_large;        /* what the multiplied bytes are too large by */
    int narrow;           /* see fold: 8 products of 127 and the largest byte in a dword */
};

INLINE VI nibble_sums(struct rows w, size_t at, const struct rn_line *y, struct nibbles f)
{
    const VI y0 = quarter4(y->q), y1 = quarter4(y->q + 16);
    VI v, low, high, sum[4];
    uint32_t r;

    UNROLL
    for (r = 0; r < 4; r++) {
        v = four_rows(w, r, at);
        low = low_nibbles(v);
        high = high_nibbles(v);
        if (f.levels != NULL) {
            low = _mm512_shuffle_epi8(levels_of(f.levels, f.too_large), low);
            high = _mm512_shuffle_epi8(levels_of(f.levels, f.too_large), high);
        }
        sum[r] = dot(dot(_mm512_setzero_si512(), low, y0), high, y1);
    }
    return fold(sum[0], sum[1], sum[2], sum[3], f.narrow);
}

/* `count` blocks from w on. */
INLINE VF nibble_blocks(VF acc, struct rows w, const struct rn_line *y, uint32_t count, enum kind kind,
                        struct nibbles f)
{
    _Alignas(64) uint16_t scales[4][ROWS], minima[4][ROWS];
    const uint16_t at[4] = {0, (uint16_t)(f.bytes / 2), (uint16_t)f.bytes, (uint16_t)(3 * f.bytes / 2)};
    const uint16_t next[4] = {1, (uint16_t)(f.bytes / 2 + 1), (uint16_t)(f.bytes + 1), (uint16_t)(3 * f.bytes / 2 + 1)};
    const __mmask64 present = count == 4 ? UINT64_MAX : ((__mmask64)1 << (count * f.bytes)) - 1;
    VI sum, first;
    uint32_t k;

    words(w, at, present, scales);
    if (kind == Q4_1)
        words(w, next, present, minima);
    UNROLL
    for (k = 0; k < count; k++, y++) {
        sum = nibble_sums(w, f.head + k * f.bytes, y, f);
        first = f.too_large == 0 ? begin(y) : start(y, y->start, f.too_large == 128 ? 0 : f.too_large == 8 ? 4 : 3);
        acc = add_product(acc, _mm512_add_epi32(sum, first), y,
                          kind == MXFP4 ? power_of_two(one_byte(scales[k], k)) : halves(scales[k]));
        if (kind == Q4_1)
            acc = _mm512_fmadd_ps(_mm512_set1_ps(y->d_sum), halves(minima[k]), acc);
    }
    return acc;
}

INLINE void nibble_rows(const struct rn_matmul *m, enum kind kind, struct nibbles f)
{
    const struct rn_line *y = m->inputs[0];
    struct rows w = rows_of(m);
    VF acc = _mm512_setzero_ps();
    uint32_t n = m->cols / 32;

    for (; n >= 4; n -= 4, y += 4, w.p += 4 * f.bytes) {
        ahead(w, 1);
        acc = nibble_blocks(acc, w, y, 4, kind, f);
    }
    if (n > 0)
        acc = nibble_blocks(acc, w, y, n, kind, f);
    store_rows(m, acc);
}

/* 8 * 15 * 127 = 15240, twice that is still below 32768 */
static void direct_q4_0(const struct rn_matmul *m)
{
    nibble_rows(m, Q4_0, (struct nibbles){18, 2, NULL, 8, 2});
}

static void direct_q4_1(const struct rn_matmul *m)
{
    nibble_rows(m, Q4_1, (struct nibbles){20, 4, NULL, 0, 2});
}

static void direct_iq4_nl(const struct rn_matmul *m)
{
    nibble_rows(m, IQ4_NL, (struct nibbles){18, 2, rn_levels_iq4, 128, 0});
}

/* 8 * (16 + 12) * 127 = 28448 */
static void direct_mxfp4(const struct rn_matmul *m)
{
    nibble_rows(m, MXFP4, (struct nibbles){17, 1, rn_levels_fp4, 16, 1});
}

/* ---- NVFP4: 64 columns, four scales of a byte ---- */

/* Half of the E4M3 numbers in byte i of the lanes; 0x7f counts as 0. As a half float, seven places up, a code is that
 * over 128, subnormal or not. */
INLINE VF half_of_e4m3(VI v, uint32_t i)
{
    VI code = _mm512_and_si512(_mm512_srli_epi32(v, 8 * i), _mm512_set1_epi32(255));
    VI half = _mm512_maskz_slli_epi32(_mm512_cmpneq_epi32_mask(code, _mm512_set1_epi32(0x7f)),
                                      _mm512_and_si512(code, _mm512_set1_epi32(0x7f)), 7);

    return _mm512_mul_ps(_mm512_cvtph_ps(_mm512_cvtepi32_epi16(half)), _mm512_set1_ps(128));
}

/* Sums of 2 * 28448 in a dword do not fit; those of one nibble, 4 * 28 * 127 = 14224, and of both do. */
INLINE VF nvfp4_block(VF acc, struct rows w, const struct rn_line *y, VI heads)
{
    const VI levels = levels_of(rn_levels_fp4, 16);
    __m256i q;
    VI v, y0, y1, sum[4];
    VF a, b, ones[2];
    uint32_t i, r, h;

    UNROLL
    for (i = 0; i < 2; i++, y++) {
        q = _mm256_permute4x64_epi64(load32(y->q), 0xd8); /* columns 0..7, 16..23, then 8..15, 24..31 */
        y0 = _mm512_broadcast_i32x4(_mm256_castsi256_si128(q));
        y1 = _mm512_broadcast_i32x4(_mm256_extracti128_si256(q, 1));
        UNROLL
        for (r = 0; r < 4; r++) {
            v = four_rows(w, r, 4 + 16 * i);
            sum[r] = dot(_mm512_setzero_si512(), _mm512_shuffle_epi8(levels, low_nibbles(v)), y0);
            sum[r] = dot(sum[r], _mm512_shuffle_epi8(levels, high_nibbles(v)), y1);
        }
        a = _mm512_castsi512_ps(packed_sums(sum[0], sum[1]));
        b = _mm512_castsi512_ps(packed_sums(sum[2], sum[3]));
        ones[0] = _mm512_shuffle_ps(a, b, 0x88);
        ones[1] = _mm512_shuffle_ps(a, b, 0xdd);
        UNROLL
        for (h = 0; h < 2; h++)
            acc = add_product(acc, _mm512_add_epi32(_mm512_castps_si512(ones[h]), start(y, y->start16[h], 3)), y,
                              half_of_e4m3(heads, 2 * i + h));
    }
    return acc;
}

static void direct_nvfp4(const struct rn_matmul *m)
{
    const struct rn_line *y = m->inputs[0];
    struct rows w = rows_of(m);
    VF acc = _mm512_setzero_ps();
    int32_t heads[ROWS];
    uint32_t b, r;

    for (b = 0; b < m->cols / 64; b++, y += 2, w.p += 36) {
        if (b % 2 == 0)
            ahead(w, 1);
        UNROLL
        for (r = 0; r < ROWS; r++)
            memcpy(&heads[r], row(w, r), 4);
        acc = nvfp4_block(acc, w, y, _mm512_loadu_si512(heads));
    }
    store_rows(m, acc);
}

/* ---- Q8_0: two rows to a register ---- */

/* Rows r and r + 4: the inputs in both halves. */
INLINE VI q8_0_sums(struct rows w, uint32_t r, size_t at, VI y)
{
    VI v = _mm512_inserti64x4(_mm512_castsi256_si512(load32(row(w, r) + at)), load32(row(w, r + 4) + at), 1);

    return dot(_mm512_setzero_si512(), _mm512_xor_si512(v, bytes(128)), y);
}

INLINE VF q8_0_block(VF acc, struct rows w, size_t at, const struct rn_line *y, const uint16_t *scales)
{
    const VI q = _mm512_broadcast_i64x4(load32(y->q));
    VI half[2], sum[4];
    uint32_t h, r;

    UNROLL
    for (h = 0; h < 2; h++) {
        UNROLL
        for (r = 0; r < 4; r++)
            sum[r] = q8_0_sums(w, 8 * h + r, at + 2, q);
        half[h] = fold(sum[0], sum[1], sum[2], sum[3], 0);
    }
    sum[0] = _mm512_shuffle_i32x4(half[0], half[1], 0x88);
    sum[0] = _mm512_add_epi32(sum[0], _mm512_shuffle_i32x4(half[0], half[1], 0xdd));
    return add_fine_product(acc, _mm512_add_epi32(sum[0], _mm512_set1_epi32(y->start)), y, halves(scales));
}

static void direct_q8_0(const struct rn_matmul *m)
{
    static const uint16_t at[4] = {0, 17, 0, 17};
    const struct rn_line *y = m->inputs[0];
    _Alignas(64) uint16_t scales[4][ROWS];
    struct rows w = rows_of(m);
    VF acc = _mm512_setzero_ps();
    uint32_t n = m->cols / 32;

    for (; n >= 2; n -= 2, y += 2, w.p += 68) {
        ahead(w, 1);
        words(w, at, UINT64_MAX, scales);
        acc = q8_0_block(acc, w, 0, y, scales[0]);
        acc = q8_0_block(acc, w, 34, y + 1, scales[1]);
    }
    if (n > 0) {
        words(w, at, ((__mmask64)1 << 34) - 1, scales);
        acc = q8_0_block(acc, w, 0, y, scales[0]);
    }
    store_rows(m, acc);
}

/* ---- Blocks of 256 ---- */

/* The inputs of two lines. */
INLINE VI two_lines(const struct rn_line *first, const struct rn_line *second)
{
    return _mm512_inserti64x4(_mm512_castsi256_si512(load32(first->q)), load32(second->q), 1);
}

/* 16 bytes of the inputs of each of four lines. */
INLINE VI four_lines(const struct rn_line *y, uint32_t from)
{
    VI v = _mm512_castsi128_si512(_mm_load_si128((const __m128i *)(y[0].q + from)));

    v = _mm512_inserti32x4(v, _mm_load_si128((const __m128i *)(y[1].q + from)), 1);
    v = _mm512_inserti32x4(v, _mm_load_si128((const __m128i *)(y[2].q + from)), 2);
    return _mm512_inserti32x4(v, _mm_load_si128((const __m128i *)(y[3].q + from)), 3);
}

/* Bits 2 * {0, 1} + from of `high` become bits 4 and 5 above a nibble: those of the first half from `from` on, those of
 * the other two bits higher. */
INLINE VI six_bits(VI nibble, VI high, uint32_t from)
{
    const VI up = _mm512_setr_epi64(4, 4, 4, 4, 2, 2, 2, 2), down = _mm512_setr_epi64(0, 0, 0, 0, 2, 2, 2, 2);

    high = from == 0 ? _mm512_sllv_epi64(high, up) : _mm512_srlv_epi64(high, down);
    return _mm512_ternarylogic_epi32(nibble, high, bytes(0x30), 0xf8); /* nibble | (high & 0x30) */
}

/* Half a block: 128 columns, eight scales, from number 8 i on. At 64 * i nibbles: the low ones are of two strips, the
 * high ones of the next two. 4 * 63 * 127 = 32004. */
INLINE VF q6_k_half(VF acc, struct rows w, const struct rn_line *y, uint32_t i, VF d, const VI *codes)
{
    const VI y0 = two_lines(y, y + 1), y1 = two_lines(y + 2, y + 3);
    VI v, high, low_sum[4], high_sum[4], sums[8];
    uint32_t g, r, t;

    UNROLL
    for (g = 0; g < 4; g++) {
        UNROLL
        for (r = 0; r < 4; r++) {
            v = _mm512_loadu_si512(row(w, 4 * g + r) + 64 * i);
            high = _mm512_broadcast_i64x4(load32(row(w, 4 * g + r) + 128 + 32 * i));
            low_sum[r] = dot(_mm512_setzero_si512(), six_bits(low_nibbles(v), high, 0), y0);
            high_sum[r] = dot(_mm512_setzero_si512(), six_bits(high_nibbles(v), high, 4), y1);
        }
        sums[g] = fold(low_sum[0], low_sum[1], low_sum[2], low_sum[3], 1);
        sums[4 + g] = fold(high_sum[0], high_sum[1], high_sum[2], high_sum[3], 1);
    }
    across(sums);
    across(sums + 4);
    UNROLL
    for (t = 0; t < 8; t++)
        acc = add_product(acc, _mm512_add_epi32(sums[t], start(&y[t / 2], y[t / 2].start16[t % 2], 2)), &y[t / 2],
                          _mm512_mul_ps(d, signed_byte_of(codes[2 * i + t / 4], t % 4)));
    return acc;
}

static void direct_q6_k(const struct rn_matmul *m)
{
    const struct rn_line *y = m->inputs[0];
    struct rows w = rows_of(m);
    VF acc = _mm512_setzero_ps(), d;
    VI codes[4];
    uint32_t b;

    for (b = 0; b < m->cols / 256; b++, y += 8, w.p += 210) {
        ahead(w, 4); /* 210 bytes: that many lines begin in them, or one less */
        columns(w, 194, codes);
        d = high_halves(codes[3]);
        columns(w, 192, codes);
        acc = q6_k_half(acc, w, y, 0, d, codes);
        acc = q6_k_half(acc, w, y + 4, 1, d, codes);
    }
    store_rows(m, acc);
}

/* Half a block: four strips of 16 bytes each, the low nibbles first. */
INLINE VF iq4_xs_half(VF acc, struct rows w, const struct rn_line *y, size_t at, const VF *scales)
{
    const VI y0 = four_lines(y, 0), y1 = four_lines(y, 16), levels = levels_of(rn_levels_iq4, 128);
    VI v, sum[4], sums[4];
    uint32_t g, r, t;

    UNROLL
    for (g = 0; g < 4; g++) {
        UNROLL
        for (r = 0; r < 4; r++) {
            v = _mm512_loadu_si512(row(w, 4 * g + r) + at);
            sum[r] = dot(_mm512_setzero_si512(), _mm512_shuffle_epi8(levels, low_nibbles(v)), y0);
            sum[r] = dot(sum[r], _mm512_shuffle_epi8(levels, high_nibbles(v)), y1);
        }
        sums[g] = fold(sum[0], sum[1], sum[2], sum[3], 0);
    }
    across(sums);
    UNROLL
    for (t = 0; t < 4; t++)
        acc = add_product(acc, _mm512_add_epi32(sums[t], _mm512_set1_epi32(y[t].start)), &y[t], scales[t]);
    return acc;
}

static void direct_iq4_xs(const struct rn_matmul *m)
{
    const struct rn_line *y = m->inputs[0];
    struct rows w = rows_of(m);
    VF acc = _mm512_setzero_ps(), scales[8];
    VI head[4];
    uint32_t b;

    for (b = 0; b < m->cols / 256; b++, y += 8, w.p += 136) {
        ahead(w, 2);
        columns(w, 0, head);
        iq4_xs_scales(head, scales);
        acc = iq4_xs_half(acc, w, y, 8, scales);
        acc = iq4_xs_half(acc, w, y + 4, 72, scales + 4);
    }
    store_rows(m, acc);
}

/* Four registers whose halves are two strips -> those two strips. */
INLINE void halves_across(VI *v)
{
    VI a = _mm512_add_epi32(_mm512_shuffle_i32x4(v[0], v[1], 0x88), _mm512_shuffle_i32x4(v[0], v[1], 0xdd));
    VI b = _mm512_add_epi32(_mm512_shuffle_i32x4(v[2], v[3], 0x88), _mm512_shuffle_i32x4(v[2], v[3], 0xdd));

    v[0] = _mm512_shuffle_i32x4(a, b, 0x88);
    v[1] = _mm512_shuffle_i32x4(a, b, 0xdd);
}

/* Half a block, from a strip on: low nibbles of 32 bytes are one strip, high ones the next; twice. */
INLINE VF q4_k_half(VF acc, struct rows w, const struct rn_line *y, const struct k4 *k4, uint32_t strip)
{
    const VI y0 = two_lines(y, y + 2), y1 = two_lines(y + 1, y + 3);
    VI v, low[4], high[4], low_sums[4], high_sums[4];
    uint32_t g, r, t;

    UNROLL
    for (g = 0; g < 4; g++) {
        UNROLL
        for (r = 0; r < 4; r++) {
            v = _mm512_loadu_si512(row(w, 4 * g + r) + 16 + 16 * strip);
            low[r] = dot(_mm512_setzero_si512(), low_nibbles(v), y0);
            high[r] = dot(_mm512_setzero_si512(), high_nibbles(v), y1);
        }
        low_sums[g] = fold(low[0], low[1], low[2], low[3], 2);
        high_sums[g] = fold(high[0], high[1], high[2], high[3], 2);
    }
    halves_across(low_sums);
    halves_across(high_sums);
    UNROLL
    for (t = 0; t < 4; t++) {
        v = t % 2 == 0 ? low_sums[t / 2] : high_sums[t / 2];
        acc = add_product(acc, _mm512_add_epi32(v, begin(&y[t])), &y[t], k4_scale(k4, strip + t));
        acc = _mm512_fmadd_ps(_mm512_set1_ps(y[t].d_sum), k4_minimum(k4, strip + t), acc);
    }
    return acc;
}

static void direct_q4_k(const struct rn_matmul *m)
{
    const struct rn_line *y = m->inputs[0];
    struct rows w = rows_of(m);
    VF acc = _mm512_setzero_ps();
    struct k4 k4;
    VI head[4];
    uint32_t b;

    for (b = 0; b < m->cols / 256; b++, y += 8, w.p += 144) {
        ahead(w, 3); /* 144 bytes, likewise */
        columns(w, 0, head);
        k4 = k4_of(head);
        acc = q4_k_half(acc, w, y, &k4, 0);
        acc = q4_k_half(acc, w, y + 4, &k4, 4);
    }
    store_rows(m, acc);
}

#define EXPORT(name)                                          \
    void rn_direct_##name##_avx512(const struct rn_matmul *m) \
    {                                                         \
        direct_##name(m);                                     \
    }
RN_DIRECT_AVX512(EXPORT)
