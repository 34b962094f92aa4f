/* The table of block formats, and half precision: see quant.h.
 *
 *     binary16   s eeeee mmmmmmmmmm     (-1)^s * 2^(e - 15) * 1.m     e = 0: 2^-14 * 0.m     e = 31: inf, NaN
 *     binary32   s eeeeeeee m[23]       (-1)^s * 2^(e - 127) * 1.m
 *
 * The conversions work on the bits, so that the host's rounding mode and flush-to-zero do not matter. */
#include "model/quant/quant.h"

#include "model/quant/types.h"

#define TYPE(id, decoder, block_elements, block_bytes) \
    [RN_##id] = {#id, block_elements, block_bytes, rn_decode_##decoder}

static const struct rn_type types[] = {TYPE(F32, f32, 1, 4),
                                       TYPE(F16, f16, 1, 2),
                                       TYPE(BF16, bf16, 1, 2),
                                       TYPE(F64, f64, 1, 8),
                                       TYPE(I8, i8, 1, 1),
                                       TYPE(I16, i16, 1, 2),
                                       TYPE(I32, i32, 1, 4),
                                       TYPE(I64, i64, 1, 8),
                                       TYPE(Q4_0, q4_0, 32, 18),
                                       TYPE(Q4_1, q4_1, 32, 20),
                                       TYPE(Q5_0, q5_0, 32, 22),
                                       TYPE(Q5_1, q5_1, 32, 24),
                                       TYPE(Q8_0, q8_0, 32, 34),
                                       TYPE(Q8_1, q8_1, 32, 36),
                                       TYPE(Q2_K, q2_k, 256, 84),
                                       TYPE(Q3_K, q3_k, 256, 110),
                                       TYPE(Q4_K, q4_k, 256, 144),
                                       TYPE(Q5_K, q5_k, 256, 176),
                                       TYPE(Q6_K, q6_k, 256, 210),
                                       TYPE(Q8_K, q8_k, 256, 292),
                                       TYPE(IQ1_S, iq1_s, 256, 50),
                                       TYPE(IQ1_M, iq1_m, 256, 56),
                                       TYPE(IQ2_XXS, iq2_xxs, 256, 66),
                                       TYPE(IQ2_XS, iq2_xs, 256, 74),
                                       TYPE(IQ2_S, iq2_s, 256, 82),
                                       TYPE(IQ3_XXS, iq3_xxs, 256, 98),
                                       TYPE(IQ3_S, iq3_s, 256, 110),
                                       TYPE(IQ4_NL, iq4_nl, 32, 18),
                                       TYPE(IQ4_XS, iq4_xs, 256, 136),
                                       TYPE(TQ1_0, tq1_0, 256, 54),
                                       TYPE(TQ2_0, tq2_0, 256, 66),
                                       TYPE(MXFP4, mxfp4, 32, 17),
                                       TYPE(NVFP4, nvfp4, 64, 36)};

const struct rn_type *rn_type(uint32_t id)
{
    return id < sizeof types / sizeof types[0] && types[id].name != NULL ? &types[id] : NULL;
}

static float float_of_bits(uint32_t u)
{
    float f;

    memcpy(&f, &u, sizeof f);
    return f;
}

static uint32_t bits_of_float(float f)
{
    uint32_t u;

    memcpy(&u, &f, sizeof u);
    return u;
}

float rn_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, mantissa = h & 0x3ff;
    unsigned shift;

    if (exponent == 31) /* inf; a NaN keeps its payload and becomes quiet, as the hardware has it */
        return float_of_bits(sign | 0x7f800000 | mantissa << 13 | (mantissa != 0) << 22);
    if (exponent != 0)
        return float_of_bits(sign | (exponent + 127 - 15) << 23 | mantissa << 13);
    if (mantissa == 0)
        return float_of_bits(sign);
    shift = (unsigned)__builtin_clz(mantissa) - 21; /* brings the leading bit to bit 10 */
    return float_of_bits(sign | (127 - 14 - shift) << 23 | (mantissa << shift & 0x3ff) << 13);
}

/* mantissa / 2^shift, ties to even; 1 <= shift <= 31. */
static uint32_t round_shift(uint32_t mantissa, unsigned shift)
{
    uint32_t half = 1u << (shift - 1);

    return (mantissa + half - 1 + (mantissa >> shift & 1)) >> shift;
}

uint16_t rn_f32_to_f16(float f)
{
    uint32_t u = bits_of_float(f), sign = u >> 16 & 0x8000, magnitude = u & 0x7fffffff, exponent = magnitude >> 23;

    if (magnitude > 0x7f800000)
        return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
    if (exponent >= 127 + 16) /* 65536 and more; 65520 and more get there by rounding */
        return (uint16_t)(sign | 0x7c00);
    if (exponent >= 127 - 14)
        return (uint16_t)(sign | round_shift(magnitude - ((127u - 15) << 23), 13));
    if (exponent < 127 - 25) /* below half of the smallest subnormal */
        return (uint16_t)sign;
    return (uint16_t)(sign | round_shift((magnitude & 0x7fffff) | 0x800000, 126 - exponent));
}

uint16_t rn_f32_to_bf16(float f)
{
    uint32_t u = bits_of_float(f);

    if ((u & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}
