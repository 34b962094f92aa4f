/* Blocks of weights as bytes: what the plain C level and the NEON level multiply with.
 *
 * A block becomes quants q in the order of its columns, small integers of groups, and floats:
 *
 *     32 columns     value = d[h] · q + m                              h = 0 in the first 16, 1 in the rest
 *     256 columns    value = d · scale[g] · q - m · least[g]           g = column / 16
 *
 * NVFP4 alone has two d that differ; formats with groups of 32 have scale and least twice; what a format
 * does not have is 0 (m, least) or 1 (scale). Half steps of the IQ formats go into d: their scales
 * (s + 1/2) / 4 and (s + 1/2) / 2 are (2s + 1) / 8 and / 4; q ± 1/8 of IQ1 is (8q ± 1) / 8. All this is exact.
 *
 * Layouts: model/quant/plain.c, quant/k.c, quant/iq.c, whose decoders judge this file. The IQ formats are
 * taken eight columns at a time in one 64-bit word, a byte a column, least significant first.
 *
 * What is multiplied is d · scale and -m · least, each rounded once: see kernels.h. Bounds that kernels rely on:
 * |q| <= 128 (128: Q8_0 alone), |scale| <= 128, 0 <= least <= 63. Threads: any. */
#ifndef RN_CPU_LEVELS_UNPACK_H
#define RN_CPU_LEVELS_UNPACK_H

#include <stdbool.h>

#include "model/quant/grids.h"
#include "model/quant/types.h"

/* A level with an instruction for it defines its own: the half float at p, as a float. */
#ifndef RN_HALF_AT
#define RN_HALF_AT rn_half_at
#endif

#define RN_UNPACK static inline __attribute__((always_inline))

/* The formats that are unpacked here: name and type. */
/* clang-format off */
#define RN_FORMATS32(X) \
    X(q4_0, RN_Q4_0) X(q4_1, RN_Q4_1) X(q5_0, RN_Q5_0) X(q5_1, RN_Q5_1) X(q8_0, RN_Q8_0) X(iq4_nl, RN_IQ4_NL) \
    X(mxfp4, RN_MXFP4) X(nvfp4, RN_NVFP4)
#define RN_FORMATS256(X) \
    X(q2_k, RN_Q2_K) X(q3_k, RN_Q3_K) X(q4_k, RN_Q4_K) X(q5_k, RN_Q5_K) X(q6_k, RN_Q6_K) X(iq4_xs, RN_IQ4_XS) \
    X(tq1_0, RN_TQ1_0) X(tq2_0, RN_TQ2_0) X(iq1_s, RN_IQ1_S) X(iq1_m, RN_IQ1_M) X(iq2_xxs, RN_IQ2_XXS) \
    X(iq2_xs, RN_IQ2_XS) X(iq2_s, RN_IQ2_S) X(iq3_xxs, RN_IQ3_XXS) X(iq3_s, RN_IQ3_S)
/* clang-format on */

struct rn_block32 {
    int8_t q[32];
    float d[2];
    float m;
};

struct rn_block256 {
    int8_t q[256];
    int16_t scale[16], least[16];
    float d, m;
};

/* Scales and minima of 32 columns: 1 or 2, and 0, 1 or 2; two are those of the two 16. */
RN_UNPACK uint32_t rn_unpack_scales(enum rn_type_id type)
{
    return type == RN_NVFP4 || type == RN_Q2_K || type == RN_Q3_K || type == RN_Q6_K || type == RN_IQ2_S ||
                   type == RN_IQ2_XS || type == RN_IQ1_M
               ? 2
               : 1;
}

RN_UNPACK uint32_t rn_unpack_minima(enum rn_type_id type)
{
    if (type == RN_Q2_K)
        return 2;
    return type == RN_Q4_1 || type == RN_Q5_1 || type == RN_Q4_K || type == RN_Q5_K ? 1 : 0;
}

/* ---- Blocks of 32. b: the number of the 32 columns in the row ---- */

/* q[0..16) = the low nibbles of 16 bytes, q[16..32) = the high ones, less `minus`. */
RN_UNPACK void rn_unpack_nibbles(const uint8_t *p, int minus, int8_t *q)
{
    int i;

    for (i = 0; i < 16; i++) {
        q[i] = (int8_t)((p[i] & 15) - minus);
        q[16 + i] = (int8_t)((p[i] >> 4) - minus);
    }
}

#define RN_EACH_BYTE 0x0101010101010101u

/* 1 in byte j where bit j is set. */
RN_UNPACK uint64_t rn_spread1(uint32_t bits)
{
    uint64_t one = (bits & 0xff) * RN_EACH_BYTE & 0x8040201008040201u;

    return (one + 0x7f * RN_EACH_BYTE) >> 7 & RN_EACH_BYTE;
}

/* As above with a fifth bit: number i's is bit i of the word before the nibbles. */
RN_UNPACK void rn_unpack_five_bits(const uint8_t *p, int minus, int8_t *q)
{
    uint8_t fifth[32];
    uint64_t x;
    int i;

    for (i = 0; i < 4; i++) {
        x = rn_spread1(p[i]) << 4;
        memcpy(fifth + 8 * i, &x, sizeof x);
    }
    for (i = 0; i < 16; i++) {
        q[i] = (int8_t)(((p[4 + i] & 15) | fifth[i]) - minus);
        q[16 + i] = (int8_t)((p[4 + i] >> 4 | fifth[16 + i]) - minus);
    }
}

/* q[0..n) = the levels of the low nibbles of n bytes, q[n..2n) = of the high ones. */
RN_UNPACK void rn_unpack_levels(const uint8_t *p, const int8_t *levels, int n, int8_t *q)
{
    int i;

    for (i = 0; i < n; i++) {
        q[i] = levels[p[i] & 15];
        q[n + i] = levels[p[i] >> 4];
    }
}

RN_UNPACK float rn_power_of_two(uint32_t biased)
{
    uint32_t bits = biased << 23;
    float f;

    memcpy(&f, &bits, sizeof f);
    return f;
}

/* 2^(e - 128): in two steps, because for e < 2 it is subnormal. */
RN_UNPACK float rn_scale_mxfp4(uint8_t e)
{
    return e < 2 ? rn_power_of_two(1) * (e == 0 ? 0.25f : 0.5f) : rn_power_of_two(e - 1u);
}

/* Half of an unsigned E4M3 number; 0 and the NaN code are 0. */
RN_UNPACK float rn_scale_nvfp4(uint8_t code)
{
    uint32_t exponent = code >> 3 & 15, mantissa = code & 7;

    if (code == 0x7f)
        return 0;
    return exponent == 0 ? (float)mantissa * 0x1p-10f : (float)(8 + mantissa) * rn_power_of_two(exponent + 116);
}

/* The floats of the b-th 32 columns. Inlined with a constant type. */
RN_UNPACK void rn_unpack32_floats(enum rn_type_id type, const uint8_t *row, size_t b, struct rn_block32 *out)
{
    out->m = 0;
    switch (type) {
    case RN_Q4_0:
    case RN_IQ4_NL:
        out->d[0] = RN_HALF_AT(row + b * 18);
        break;
    case RN_Q5_0:
        out->d[0] = RN_HALF_AT(row + b * 22);
        break;
    case RN_Q8_0:
        out->d[0] = RN_HALF_AT(row + b * 34);
        break;
    case RN_Q4_1:
        out->d[0] = RN_HALF_AT(row + b * 20);
        out->m = RN_HALF_AT(row + b * 20 + 2);
        break;
    case RN_Q5_1:
        out->d[0] = RN_HALF_AT(row + b * 24);
        out->m = RN_HALF_AT(row + b * 24 + 2);
        break;
    case RN_MXFP4:
        out->d[0] = rn_scale_mxfp4(row[b * 17]);
        break;
    case RN_NVFP4: /* blocks of 64 */
        out->d[0] = rn_scale_nvfp4(row[b / 2 * 36 + b % 2 * 2]);
        out->d[1] = rn_scale_nvfp4(row[b / 2 * 36 + b % 2 * 2 + 1]);
        break;
    default:
        break;
    }
    if (type != RN_NVFP4)
        out->d[1] = out->d[0];
}

RN_UNPACK void rn_unpack32(enum rn_type_id type, const uint8_t *row, size_t b, struct rn_block32 *out)
{
    rn_unpack32_floats(type, row, b, out);
    switch (type) {
    case RN_Q4_0:
        rn_unpack_nibbles(row + b * 18 + 2, 8, out->q);
        break;
    case RN_Q4_1:
        rn_unpack_nibbles(row + b * 20 + 4, 0, out->q);
        break;
    case RN_Q5_0:
        rn_unpack_five_bits(row + b * 22 + 2, 16, out->q);
        break;
    case RN_Q5_1:
        rn_unpack_five_bits(row + b * 24 + 4, 0, out->q);
        break;
    case RN_Q8_0:
        memcpy(out->q, row + b * 34 + 2, 32);
        break;
    case RN_IQ4_NL:
        rn_unpack_levels(row + b * 18 + 2, rn_levels_iq4, 16, out->q);
        break;
    case RN_MXFP4:
        rn_unpack_levels(row + b * 17 + 1, rn_levels_fp4, 16, out->q);
        break;
    case RN_NVFP4:
        rn_unpack_levels(row + b / 2 * 36 + 4 + b % 2 * 16, rn_levels_fp4, 8, out->q);
        rn_unpack_levels(row + b / 2 * 36 + 12 + b % 2 * 16, rn_levels_fp4, 8, out->q + 16);
        break;
    default:
        break;
    }
}

/* ---- Blocks of 256: scales ---- */

RN_UNPACK void rn_scales_ones(struct rn_block256 *out)
{
    int g;

    for (g = 0; g < 16; g++)
        out->scale[g] = 1;
}

RN_UNPACK void rn_scales_q2_k(const uint8_t *s, struct rn_block256 *out)
{
    int g;

    for (g = 0; g < 16; g++) {
        out->scale[g] = s[g] & 15;
        out->least[g] = s[g] >> 4;
    }
}

/* Sixteen of 6 bits, less 32: low nibbles in 8 bytes, the high pairs in the 4 behind them. */
RN_UNPACK void rn_scales_q3_k(const uint8_t *s, struct rn_block256 *out)
{
    int g;

    for (g = 0; g < 8; g++) {
        out->scale[g] = (int16_t)(((s[g] & 15) | (s[8 + g % 4] >> (g / 4 * 2) & 3) << 4) - 32);
        out->scale[8 + g] = (int16_t)((s[g] >> 4 | (s[8 + g % 4] >> (4 + g / 4 * 2) & 3) << 4) - 32);
    }
}

/* Eight scales and eight minima of 6 bits: the first four of each whole in bytes 0..3 and 4..7, whose two
 * top bits are those of the last four; the nibbles of these are in bytes 8..11. */
RN_UNPACK void rn_scales_q4_k(const uint8_t *s, struct rn_block256 *out)
{
    int j;

    for (j = 0; j < 4; j++) {
        out->scale[2 * j] = out->scale[2 * j + 1] = s[j] & 63;
        out->least[2 * j] = out->least[2 * j + 1] = s[4 + j] & 63;
        out->scale[8 + 2 * j] = out->scale[9 + 2 * j] = (s[8 + j] & 15) | s[j] >> 6 << 4;
        out->least[8 + 2 * j] = out->least[9 + 2 * j] = s[8 + j] >> 4 | s[4 + j] >> 6 << 4;
    }
}

RN_UNPACK void rn_scales_q6_k(const uint8_t *s, struct rn_block256 *out)
{
    int g;

    for (g = 0; g < 16; g++)
        out->scale[g] = (int8_t)s[g];
}

RN_UNPACK void rn_scales_iq4_xs(const uint8_t *b, struct rn_block256 *out)
{
    uint32_t high = rn_le16(b + 2);
    int j;

    for (j = 0; j < 8; j++)
        out->scale[2 * j] = out->scale[2 * j + 1] =
            (int16_t)(((b[4 + j / 2] >> (j % 2 * 4) & 15) | (int)(high >> 2 * j & 3) << 4) - 32);
}

/* 2s + 1 of sixteen nibbles. */
RN_UNPACK void rn_scales_odd(const uint8_t *s, struct rn_block256 *out)
{
    int g;

    for (g = 0; g < 8; g++) {
        out->scale[2 * g] = (int16_t)(2 * (s[g] & 15) + 1);
        out->scale[2 * g + 1] = (int16_t)(2 * (s[g] >> 4) + 1);
    }
}

/* ---- Blocks of 256: quants of the K and TQ formats ---- */

/* Two-bit fields: 32 bytes hold four runs of 32 columns. */
RN_UNPACK void rn_unpack_two_bits(const uint8_t *p, int minus, int8_t *q)
{
    int j, i;

    for (j = 0; j < 8; j++)
        for (i = 0; i < 32; i++)
            q[32 * j + i] = (int8_t)((p[j / 4 * 32 + i] >> (j % 4 * 2) & 3) - minus);
}

/* Two bits as above, and a third: run j's at bit j of 32 bytes. */
RN_UNPACK void rn_unpack_q3_k(const uint8_t *block, int8_t *q)
{
    int j, i;

    for (j = 0; j < 8; j++)
        for (i = 0; i < 32; i++)
            q[32 * j + i] = (int8_t)(((block[32 + j / 4 * 32 + i] >> (j % 4 * 2) & 3) | (block[i] >> j & 1) << 2) - 4);
}

/* Nibbles, 32 bytes for two runs of 32 columns; with `fifth`, run j's fifth bits at bit j of 32 bytes. */
RN_UNPACK void rn_unpack_q4_k(const uint8_t *p, const uint8_t *fifth, int8_t *q)
{
    int j, i;

    for (j = 0; j < 8; j++)
        for (i = 0; i < 32; i++)
            q[32 * j + i] =
                (int8_t)((p[j / 2 * 32 + i] >> (j % 2 * 4) & 15) | (fifth == NULL ? 0 : (fifth[i] >> j & 1) << 4));
}

/* Half h: 64 bytes of nibbles for four runs, 32 bytes with two high bits of each. */
RN_UNPACK void rn_unpack_q6_k(const uint8_t *block, int8_t *q)
{
    int j, i;

    for (j = 0; j < 8; j++)
        for (i = 0; i < 32; i++)
            q[32 * j + i] = (int8_t)(((block[j / 4 * 64 + j % 2 * 32 + i] >> (j % 4 / 2 * 4) & 15) |
                                      (block[128 + j / 4 * 32 + i] >> (j % 4 * 2) & 3) << 4) -
                                     32);
}

/* Base-3 digits, `digits` of each of n bytes, run by run: 3^i · byte mod 256 begins with digit i. */
RN_UNPACK void rn_unpack_ternary(const uint8_t *p, int n, int digits, int8_t *q)
{
    uint8_t power = 1;
    int i, e;

    for (i = 0; i < digits; i++, power = (uint8_t)(power * 3))
        for (e = 0; e < n; e++)
            q[i * n + e] = (int8_t)(((uint8_t)(p[e] * power) * 3 >> 8) - 1);
}

RN_UNPACK void rn_unpack_tq1_0(const uint8_t *block, int8_t *q)
{
    rn_unpack_ternary(block, 32, 5, q);
    rn_unpack_ternary(block + 32, 16, 5, q + 160);
    rn_unpack_ternary(block + 48, 4, 4, q + 240);
}

/* ---- Blocks of 256: quants of the IQ formats, eight columns in a word ---- */

/* Eight fields of 2 bits, a byte each. */
RN_UNPACK uint64_t rn_spread2(uint32_t point)
{
    uint64_t x = (point & 0xff) | (uint64_t)(point & 0xff00) << 24;

    x = (x | x << 12) & 0x000f000f000f000fu;
    return (x | x << 6) & 3 * RN_EACH_BYTE;
}

/* Two points of four fields of 3 bits, a byte each. */
RN_UNPACK uint64_t rn_spread3(uint32_t first, uint32_t second)
{
    uint64_t x = first | (uint64_t)second << 32;

    x = (x & 0x0000003f0000003fu) | (x & 0x00000fc000000fc0u) << 10;
    return (x | x << 5) & 7 * RN_EACH_BYTE;
}

/* q[8] = the bytes of x, none of them 0, with minus where a bit of `signs` is set. */
RN_UNPACK void rn_put_signed(uint64_t x, uint32_t signs, int8_t *q)
{
    uint64_t minus = rn_spread1(signs);

    x = (x ^ minus * 255) + minus;
    memcpy(q, &x, sizeof x);
}

/* Seven sign bits stand for eight: the number of minus signs is even. */
RN_UNPACK uint32_t rn_eight_signs(uint32_t seven)
{
    seven &= 127;
    return seven | (uint32_t)(0x6996 >> ((seven ^ seven >> 4) & 15) & 1) << 7;
}

/* The levels 8 25 43. */
RN_UNPACK void rn_put_iq2(uint32_t point, uint32_t signs, int8_t *q)
{
    uint64_t x = rn_spread2(point);

    rn_put_signed(8 * RN_EACH_BYTE + 17 * x + (x >> 1 & RN_EACH_BYTE), signs, q);
}

/* The levels 4 12 20 28 36 44 52 62. */
RN_UNPACK void rn_put_iq3_xxs(uint32_t first, uint32_t second, uint32_t signs, int8_t *q)
{
    uint64_t x = rn_spread3(first, second);

    rn_put_signed(4 * RN_EACH_BYTE + 8 * x + 2 * (x & x >> 1 & x >> 2 & RN_EACH_BYTE), signs, q);
}

/* The levels 1 3 .. 15. */
RN_UNPACK void rn_put_iq3_s(uint32_t first, uint32_t second, uint32_t signs, int8_t *q)
{
    rn_put_signed(RN_EACH_BYTE + 2 * rn_spread3(first, second), signs, q);
}

/* 8 (field - 1) ± 1: added with 128 too much, so that no byte borrows from the next. */
RN_UNPACK void rn_put_iq1(uint32_t point, bool minus, int8_t *q)
{
    uint64_t x = 8 * rn_spread2(point) + (minus ? 128 - 9 : 128 - 7) * RN_EACH_BYTE;

    x ^= 128 * RN_EACH_BYTE;
    memcpy(q, &x, sizeof x);
}

RN_UNPACK void rn_unpack_iq1_s(const uint8_t *b, struct rn_block256 *out)
{
    uint32_t word;
    int j, k;

    out->d = RN_HALF_AT(b) * 0.125f;
    for (j = 0; j < 8; j++) {
        word = rn_le16(b + 34 + 2 * j);
        out->scale[2 * j] = out->scale[2 * j + 1] = (int16_t)(2 * (word >> 12 & 7) + 1);
        for (k = 0; k < 4; k++)
            rn_put_iq1(rn_grid_iq1_s[b[2 + 4 * j + k] | (word >> 3 * k & 7) << 8], word >> 15, out->q + 32 * j + 8 * k);
    }
}

RN_UNPACK void rn_unpack_iq1_m(const uint8_t *b, struct rn_block256 *out)
{
    uint32_t bits = 0, high;
    int k;

    for (k = 0; k < 4; k++)
        bits |= (uint32_t)(rn_le16(b + 48 + 2 * k) >> 12) << 4 * k;
    out->d = rn_f16_to_f32((uint16_t)bits) * 0.125f;
    for (k = 0; k < 16; k++)
        out->scale[k] = (int16_t)(2 * (rn_le16(b + 48 + k / 4 * 2) >> (k % 4 * 3) & 7) + 1);
    for (k = 0; k < 32; k++) {
        high = b[32 + k / 2] >> (k % 2 * 4) & 15;
        rn_put_iq1(rn_grid_iq1_s[b[k] | (high & 7) << 8], high >> 3, out->q + 8 * k);
    }
}

RN_UNPACK void rn_unpack_iq2_xxs(const uint8_t *b, struct rn_block256 *out)
{
    const uint8_t *group = b + 2;
    uint32_t word;
    int j, k;

    out->d = RN_HALF_AT(b) * 0.125f;
    for (j = 0; j < 8; j++, group += 8) {
        word = rn_le32(group + 4);
        out->scale[2 * j] = out->scale[2 * j + 1] = (int16_t)(2 * (word >> 28) + 1);
        for (k = 0; k < 4; k++)
            rn_put_iq2(rn_grid_iq2_xxs[group[k]], rn_eight_signs(word >> 7 * k), out->q + 32 * j + 8 * k);
    }
}

RN_UNPACK void rn_unpack_iq2_xs(const uint8_t *b, struct rn_block256 *out)
{
    uint32_t word;
    int k;

    out->d = RN_HALF_AT(b) * 0.125f;
    rn_scales_odd(b + 66, out);
    for (k = 0; k < 32; k++) {
        word = rn_le16(b + 2 + 2 * k);
        rn_put_iq2(rn_grid_iq2_xs[word & 511], rn_eight_signs(word >> 9), out->q + 8 * k);
    }
}

RN_UNPACK void rn_unpack_iq2_s(const uint8_t *b, struct rn_block256 *out)
{
    int k;

    out->d = RN_HALF_AT(b) * 0.125f;
    rn_scales_odd(b + 74, out);
    for (k = 0; k < 32; k++)
        rn_put_iq2(rn_grid_iq2_s[b[2 + k] | (b[66 + k / 4] >> (k % 4 * 2) & 3) << 8], b[34 + k], out->q + 8 * k);
}

RN_UNPACK void rn_unpack_iq3_xxs(const uint8_t *b, struct rn_block256 *out)
{
    const uint8_t *index = b + 2;
    uint32_t word;
    int j, k;

    out->d = RN_HALF_AT(b) * 0.25f;
    for (j = 0; j < 8; j++) {
        word = rn_le32(b + 66 + 4 * j);
        out->scale[2 * j] = out->scale[2 * j + 1] = (int16_t)(2 * (word >> 28) + 1);
        for (k = 0; k < 4; k++, index += 2)
            rn_put_iq3_xxs(rn_grid_iq3_xxs[index[0]], rn_grid_iq3_xxs[index[1]], rn_eight_signs(word >> 7 * k),
                           out->q + 32 * j + 8 * k);
    }
}

RN_UNPACK void rn_unpack_iq3_s(const uint8_t *b, struct rn_block256 *out)
{
    const uint8_t *index = b + 2;
    uint32_t high;
    int k;

    out->d = RN_HALF_AT(b);
    for (k = 0; k < 8; k++)
        out->scale[2 * k] = out->scale[2 * k + 1] = (int16_t)(2 * (b[106 + k / 2] >> (k % 2 * 4) & 15) + 1);
    for (k = 0; k < 32; k++, index += 2) {
        high = b[66 + k / 4] >> (k % 4 * 2);
        rn_put_iq3_s(rn_grid_iq3_s[index[0] | (high & 1) << 8], rn_grid_iq3_s[index[1] | (high >> 1 & 1) << 8],
                     b[74 + k], out->q + 8 * k);
    }
}

/* ---- Blocks of 256, by type; inlined with a constant type. b: the number of the block in the row ---- */

/* Bytes of a block, or 0: the type does not have blocks of 256 that are unpacked here. */
RN_UNPACK size_t rn_unpack256_bytes(enum rn_type_id type)
{
    switch (type) {
    case RN_Q2_K:
        return 84;
    case RN_Q3_K:
        return 110;
    case RN_Q4_K:
        return 144;
    case RN_Q5_K:
        return 176;
    case RN_Q6_K:
        return 210;
    case RN_TQ1_0:
        return 54;
    case RN_TQ2_0:
        return 66;
    case RN_IQ1_S:
        return 50;
    case RN_IQ1_M:
        return 56;
    case RN_IQ2_XXS:
        return 66;
    case RN_IQ2_XS:
        return 74;
    case RN_IQ2_S:
        return 82;
    case RN_IQ3_XXS:
        return 98;
    case RN_IQ3_S:
        return 110;
    case RN_IQ4_XS:
        return 136;
    default:
        return 0;
    }
}

/* All but the quants, of the formats whose quants and scales lie apart. */
RN_UNPACK void rn_unpack256_scales(enum rn_type_id type, const uint8_t *row, size_t b, struct rn_block256 *out)
{
    const uint8_t *block = row + b * rn_unpack256_bytes(type);

    out->m = 0;
    memset(out->least, 0, sizeof out->least);
    switch (type) {
    case RN_Q2_K:
        out->d = RN_HALF_AT(block + 80);
        out->m = RN_HALF_AT(block + 82);
        rn_scales_q2_k(block, out);
        break;
    case RN_Q3_K:
        out->d = RN_HALF_AT(block + 108);
        rn_scales_q3_k(block + 96, out);
        break;
    case RN_Q4_K:
    case RN_Q5_K:
        out->d = RN_HALF_AT(block);
        out->m = RN_HALF_AT(block + 2);
        rn_scales_q4_k(block + 4, out);
        break;
    case RN_Q6_K:
        out->d = RN_HALF_AT(block + 208);
        rn_scales_q6_k(block + 192, out);
        break;
    case RN_TQ1_0:
        out->d = RN_HALF_AT(block + 52);
        rn_scales_ones(out);
        break;
    case RN_TQ2_0:
        out->d = RN_HALF_AT(block + 64);
        rn_scales_ones(out);
        break;
    case RN_IQ4_XS:
        out->d = RN_HALF_AT(block);
        rn_scales_iq4_xs(block, out);
        break;
    default:
        break;
    }
}

RN_UNPACK void rn_unpack256(enum rn_type_id type, const uint8_t *row, size_t b, struct rn_block256 *out)
{
    const uint8_t *block = row + b * rn_unpack256_bytes(type);
    int j;

    rn_unpack256_scales(type, row, b, out);
    switch (type) {
    case RN_Q2_K:
        rn_unpack_two_bits(block + 16, 0, out->q);
        break;
    case RN_Q3_K:
        rn_unpack_q3_k(block, out->q);
        break;
    case RN_Q4_K:
        rn_unpack_q4_k(block + 16, NULL, out->q);
        break;
    case RN_Q5_K:
        rn_unpack_q4_k(block + 48, block + 16, out->q);
        break;
    case RN_Q6_K:
        rn_unpack_q6_k(block, out->q);
        break;
    case RN_TQ1_0:
        rn_unpack_tq1_0(block, out->q);
        break;
    case RN_TQ2_0:
        rn_unpack_two_bits(block, 1, out->q);
        break;
    case RN_IQ1_S:
        rn_unpack_iq1_s(block, out);
        break;
    case RN_IQ1_M:
        rn_unpack_iq1_m(block, out);
        break;
    case RN_IQ2_XXS:
        rn_unpack_iq2_xxs(block, out);
        break;
    case RN_IQ2_XS:
        rn_unpack_iq2_xs(block, out);
        break;
    case RN_IQ2_S:
        rn_unpack_iq2_s(block, out);
        break;
    case RN_IQ3_XXS:
        rn_unpack_iq3_xxs(block, out);
        break;
    case RN_IQ3_S:
        rn_unpack_iq3_s(block, out);
        break;
    case RN_IQ4_XS:
        for (j = 0; j < 8; j++)
            rn_unpack_levels(block + 8 + 16 * j, rn_levels_iq4, 16, out->q + 32 * j);
        break;
    default:
        break;
    }
}

#endif
