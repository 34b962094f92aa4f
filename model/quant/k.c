/* Formats of 256 numbers with scales of scales (K), and the ternary ones (TQ).
 *
 * Number e of a block lies in group g = e / 16 (Q2_K, Q3_K, Q6_K) or e / 32 (Q4_K, Q5_K), which has
 * its own small scale s and, in some formats, minimum m. Fields are interleaved by 32: two-bit
 * fields of numbers e, e + 32, e + 64, e + 96 share a byte, nibbles of e and e + 32.
 *
 *     Q2_K   s,m: 16 bytes of nibbles; 64 bytes of 2 bits; d, dmin            (d * s) * q - dmin * m
 *     Q3_K   third bits: 32 bytes; 64 bytes of 2 bits; s: 12 bytes; d         (d * (s - 32)) * (q - 4)
 *     Q4_K   d, dmin; s,m: 12 bytes; 128 bytes of nibbles                     (d * s) * q - dmin * m
 *     Q5_K   d, dmin; s,m: 12 bytes; fifth bits: 32 bytes; 128 bytes          (d * s) * q - dmin * m
 *     Q6_K   128 bytes of nibbles; 64 bytes of 2 high bits; s: 16 int8; d     (d * s) * (q - 32)
 *     Q8_K   float d; 256 int8; 16 int16 of group sums                        d * q
 *     TQ1_0  48 bytes of 5 base-3 digits; 4 bytes of 4 digits; d              d * (q - 1)
 *     TQ2_0  64 bytes of 2 bits; d                                            d * (q - 1)
 *
 * The products are taken in the order written: it decides the last bit. */
#include "model/quant/types.h"

/* Two-bit field of number e. */
static int two_bits(const uint8_t *q, int e)
{
    return q[e / 128 * 32 + e % 32] >> (e % 128 / 32 * 2) & 3;
}

static void block_q2_k(const uint8_t *b, float *out)
{
    float d = rn_half_at(b + 80), dmin = rn_half_at(b + 82);

    for (int e = 0; e < 256; e++) {
        float scale = d * (float)(b[e / 16] & 15), minimum = dmin * (float)(b[e / 16] >> 4);

        out[e] = scale * (float)two_bits(b + 16, e) - minimum;
    }
}
RN_DECODER(q2_k, 256, 84)

/* Six-bit scale of group g of Q3_K: low nibbles in 8 bytes, the high pairs in the 4 behind them. */
static int scale_q3(const uint8_t *s, int g)
{
    return (g < 8 ? s[g] & 15 : s[g - 8] >> 4) | (s[8 + g % 4] >> (g / 4 * 2) & 3) << 4;
}

static void block_q3_k(const uint8_t *b, float *out)
{
    float d = rn_half_at(b + 108);

    for (int e = 0; e < 256; e++) {
        float scale = d * (float)(scale_q3(b + 96, e / 16) - 32);
        int third = b[e % 32] >> (e / 32) & 1;

        out[e] = scale * (float)((two_bits(b + 32, e) | third << 2) - 4);
    }
}
RN_DECODER(q3_k, 256, 110)

/* Six-bit scale and minimum of group g of Q4_K and Q5_K. Groups 0..3 fill bytes 0..3 and 4..7 but
 * for the two top bits of each; those and the nibbles of bytes 8..11 make groups 4..7. */
static void scale_q4(const uint8_t *s, int g, int *scale, int *minimum)
{
    if (g < 4) {
        *scale = s[g] & 63;
        *minimum = s[g + 4] & 63;
    } else {
        *scale = (s[g + 4] & 15) | s[g - 4] >> 6 << 4;
        *minimum = s[g + 4] >> 4 | s[g] >> 6 << 4;
    }
}

/* Q4_K, and with `fifth` (32 bytes, number e at bit e / 32) Q5_K. */
static void four_or_five(const uint8_t *b, const uint8_t *fifth, const uint8_t *q, float *out)
{
    float d = rn_half_at(b), dmin = rn_half_at(b + 2);

    for (int g = 0; g < 8; g++) {
        int s, m;
        float scale, minimum;

        scale_q4(b + 4, g, &s, &m);
        scale = d * (float)s;
        minimum = dmin * (float)m;
        for (int i = 0; i < 32; i++) {
            int v = q[g / 2 * 32 + i] >> (g % 2 * 4) & 15;

            if (fifth != NULL)
                v |= (fifth[i] >> g & 1) << 4;
            out[g * 32 + i] = scale * (float)v - minimum;
        }
    }
}

static void block_q4_k(const uint8_t *b, float *out)
{
    four_or_five(b, NULL, b + 16, out);
}
RN_DECODER(q4_k, 256, 144)

static void block_q5_k(const uint8_t *b, float *out)
{
    four_or_five(b, b + 16, b + 48, out);
}
RN_DECODER(q5_k, 256, 176)

static void block_q6_k(const uint8_t *b, float *out)
{
    const uint8_t *high = b + 128, *scales = b + 192;
    float d = rn_half_at(b + 208);

    for (int e = 0; e < 256; e++) {
        int quarter = e % 128 / 32;
        int low = b[e / 128 * 64 + quarter % 2 * 32 + e % 32] >> (quarter / 2 * 4) & 15;

        out[e] = d * (float)(int8_t)scales[e / 16] * (float)((low | two_bits(high, e) << 4) - 32);
    }
}
RN_DECODER(q6_k, 256, 210)

static void block_q8_k(const uint8_t *b, float *out)
{
    float d;

    memcpy(&d, b, sizeof d);
    for (int e = 0; e < 256; e++)
        out[e] = d * (float)(int8_t)b[4 + e];
}
RN_DECODER(q8_k, 256, 292)

/* Digit `i` of a byte that holds x = 0.d0 d1 d2 d3 d4 in base 3, as ceil(x * 256): multiplying by 3
 * pushes the next digit over the top, so 3^i * byte mod 256 begins with digit i. */
static int digit(uint8_t byte, int i)
{
    static const uint8_t power[5] = {1, 3, 9, 27, 81};

    return (uint8_t)(byte * power[i]) * 3 >> 8;
}

static void block_tq1_0(const uint8_t *b, float *out)
{
    float d = rn_half_at(b + 52);

    for (int e = 0; e < 160; e++)
        out[e] = (float)(digit(b[e % 32], e / 32) - 1) * d;
    for (int e = 0; e < 80; e++)
        out[160 + e] = (float)(digit(b[32 + e % 16], e / 16) - 1) * d;
    for (int e = 0; e < 16; e++)
        out[240 + e] = (float)(digit(b[48 + e % 4], e / 4) - 1) * d;
}
RN_DECODER(tq1_0, 256, 54)

static void block_tq2_0(const uint8_t *b, float *out)
{
    float d = rn_half_at(b + 64);

    for (int e = 0; e < 256; e++)
        out[e] = (float)(two_bits(b, e) - 1) * d;
}
RN_DECODER(tq2_0, 256, 66)
