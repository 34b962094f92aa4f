/* Formats of plain numbers, of blocks of 32 with one scale, and the four-bit floats.
 *
 * d and m are halves. A block of 32 with nibbles keeps numbers 0..15 in the low halves of its 16
 * bytes and 16..31 in the high ones; the fifth bits of Q5 are a word of their own, number i at bit i.
 *
 *     Q4_0   d, 16 bytes            d * (q - 8)          Q8_0    d, 32 int8          d * q
 *     Q4_1   d, m, 16 bytes         d * q + m            Q8_1    d, sum, 32 int8     d * q
 *     Q5_0   d, word, 16 bytes      d * (q - 16)         MXFP4   e, 16 bytes         2^(e - 128) * fp4[q]
 *     Q5_1   d, m, word, 16 bytes   d * q + m            NVFP4   4 scales, 4 x 8 bytes; 16 numbers a scale
 */
#include <math.h>

#include "model/quant/types.h"

const int8_t rn_levels_fp4[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

void rn_decode_f32(const void *blocks, float *out, size_t n)
{
    if (n > 0)
        memcpy(out, blocks, n * sizeof *out);
}

static void block_f16(const uint8_t *b, float *out)
{
    *out = rn_half_at(b);
}
RN_DECODER(f16, 1, 2)

static void block_bf16(const uint8_t *b, float *out)
{
    *out = rn_bf16_to_f32(rn_le16(b));
}
RN_DECODER(bf16, 1, 2)

/* Numbers that C itself converts. */
#define NUMBER(name, type)                                 \
    static void block_##name(const uint8_t *b, float *out) \
    {                                                      \
        type v;                                            \
                                                           \
        memcpy(&v, b, sizeof v);                           \
        *out = (float)v;                                   \
    }                                                      \
    RN_DECODER(name, 1, sizeof(type))
NUMBER(f64, double)
NUMBER(i8, int8_t)
NUMBER(i16, int16_t)
NUMBER(i32, int32_t)
NUMBER(i64, int64_t)

/* Number i of the 2 * half nibbles in q. */
static int nibble(const uint8_t *q, int half, int i)
{
    return i < half ? q[i] & 15 : q[i - half] >> 4;
}

static void block_q4_0(const uint8_t *b, float *out)
{
    float d = rn_half_at(b);

    for (int i = 0; i < 32; i++)
        out[i] = (float)(nibble(b + 2, 16, i) - 8) * d;
}
RN_DECODER(q4_0, 32, 18)

static void block_q4_1(const uint8_t *b, float *out)
{
    float d = rn_half_at(b), m = rn_half_at(b + 2);

    for (int i = 0; i < 32; i++)
        out[i] = (float)nibble(b + 4, 16, i) * d + m;
}
RN_DECODER(q4_1, 32, 20)

/* Number i of a Q5 block whose word of fifth bits is at p, with the nibbles behind it. */
static int five_bits(const uint8_t *p, int i)
{
    return nibble(p + 4, 16, i) | (int)(rn_le32(p) >> i & 1) << 4;
}

static void block_q5_0(const uint8_t *b, float *out)
{
    float d = rn_half_at(b);

    for (int i = 0; i < 32; i++)
        out[i] = (float)(five_bits(b + 2, i) - 16) * d;
}
RN_DECODER(q5_0, 32, 22)

static void block_q5_1(const uint8_t *b, float *out)
{
    float d = rn_half_at(b), m = rn_half_at(b + 2);

    for (int i = 0; i < 32; i++)
        out[i] = (float)five_bits(b + 4, i) * d + m;
}
RN_DECODER(q5_1, 32, 24)

static void bytes_scaled(const uint8_t *q, float d, float *out)
{
    for (int i = 0; i < 32; i++)
        out[i] = (float)(int8_t)q[i] * d;
}

static void block_q8_0(const uint8_t *b, float *out)
{
    bytes_scaled(b + 2, rn_half_at(b), out);
}
RN_DECODER(q8_0, 32, 34)

static void block_q8_1(const uint8_t *b, float *out)
{
    bytes_scaled(b + 4, rn_half_at(b), out);
}
RN_DECODER(q8_1, 32, 36)

/* The scale is an exponent alone (E8M0, bias 127); one less because the levels are doubled. The
 * NaN code 255 counts as 2^127, as in ggml. */
static void block_mxfp4(const uint8_t *b, float *out)
{
    float d = ldexpf(1.0f, b[0] - 128);

    for (int i = 0; i < 32; i++)
        out[i] = (float)rn_levels_fp4[nibble(b + 1, 16, i)] * d;
}
RN_DECODER(mxfp4, 32, 17)

/* Half of an unsigned E4M3 number (bias 7): seven bits; zero and the NaN code 0x7f are 0, as in ggml. */
static float half_of_ue4m3(uint8_t code)
{
    int exponent = code >> 3 & 15, mantissa = code & 7;

    if (code == 0 || code == 0x7f)
        return 0.0f;
    return exponent == 0 ? ldexpf((float)mantissa, -10) : ldexpf((float)(8 + mantissa), exponent - 11);
}

static void block_nvfp4(const uint8_t *b, float *out)
{
    for (int s = 0; s < 4; s++) {
        float d = half_of_ue4m3(b[s]);

        for (int i = 0; i < 16; i++)
            out[16 * s + i] = (float)rn_levels_fp4[nibble(b + 4 + 8 * s, 8, i)] * d;
    }
}
RN_DECODER(nvfp4, 64, 36)
