/* Blocks of weights as bytes in NEON registers: unpack.h for the formats that are worth it. For layouts
 * see there and in model/quant. The type is a constant wherever these are inlined. */
#ifndef RN_CPU_LEVELS_NEON_BLOCKS_NEON_H
#define RN_CPU_LEVELS_NEON_BLOCKS_NEON_H

#if defined(__aarch64__)
#include <arm_neon.h>

#include "cpu/kernels.h"

#define INLINE static inline __attribute__((always_inline))

INLINE float rn_neon_half(const uint8_t *p)
{
    uint16_t half;

    memcpy(&half, p, sizeof half);
    return vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(half))), 0);
}

#define RN_HALF_AT rn_neon_half
#include "cpu/levels/unpack.h"

INLINE int8x16_t rn_neon_signed(uint8x16_t v, int8_t minus)
{
    return vsubq_s8(vreinterpretq_s8_u8(v), vdupq_n_s8(minus));
}

/* v >> n for a count that is no constant in the source. */
INLINE uint8x16_t rn_neon_shift(uint8x16_t v, int n)
{
    return vshlq_u8(v, vdupq_n_s8((int8_t)-n));
}

/* The low and the high nibbles of 16 bytes. */
INLINE uint8x16x2_t rn_neon_nibbles(const uint8_t *p)
{
    uint8x16_t v = vld1q_u8(p);

    return (uint8x16x2_t){{vandq_u8(v, vdupq_n_u8(15)), vshrq_n_u8(v, 4)}};
}

INLINE int8x16x2_t rn_neon_minus(uint8x16x2_t v, int8_t minus)
{
    return (int8x16x2_t){{rn_neon_signed(v.val[0], minus), rn_neon_signed(v.val[1], minus)}};
}

INLINE int8x16x2_t rn_neon_levels(uint8x16x2_t v, const int8_t *levels)
{
    int8x16_t table = vld1q_s8(levels);

    return (int8x16x2_t){{vqtbl1q_s8(table, v.val[0]), vqtbl1q_s8(table, v.val[1])}};
}

/* 16 in byte i where bit i of the 16 bits at p is set. */
INLINE uint8x16_t rn_neon_fifth(const uint8_t *p)
{
    const uint8x8_t bits = vcreate_u8(0x8040201008040201u);
    uint8x16_t both = vcombine_u8(vdup_n_u8(p[0]), vdup_n_u8(p[1]));

    return vandq_u8(vtstq_u8(both, vcombine_u8(bits, bits)), vdupq_n_u8(16));
}

INLINE uint8x16x2_t rn_neon_five_bits(const uint8_t *p)
{
    uint8x16x2_t v = rn_neon_nibbles(p + 4);

    return (uint8x16x2_t){{vorrq_u8(v.val[0], rn_neon_fifth(p)), vorrq_u8(v.val[1], rn_neon_fifth(p + 2))}};
}

/* The quants of the b-th 32 columns of a row. */
INLINE int8x16x2_t rn_neon_q32(enum rn_type_id type, const uint8_t *row, size_t b)
{
    const uint8_t *nv = row + b / 2 * 36 + 4 + b % 2 * 16;
    uint8x16x2_t v;

    switch (type) {
    case RN_Q4_0:
        return rn_neon_minus(rn_neon_nibbles(row + b * 18 + 2), 8);
    case RN_Q4_1:
        return rn_neon_minus(rn_neon_nibbles(row + b * 20 + 4), 0);
    case RN_Q5_0:
        return rn_neon_minus(rn_neon_five_bits(row + b * 22 + 2), 16);
    case RN_Q5_1:
        return rn_neon_minus(rn_neon_five_bits(row + b * 24 + 4), 0);
    case RN_IQ4_NL:
        return rn_neon_levels(rn_neon_nibbles(row + b * 18 + 2), rn_levels_iq4);
    case RN_MXFP4:
        return rn_neon_levels(rn_neon_nibbles(row + b * 17 + 1), rn_levels_fp4);
    case RN_NVFP4: /* low nibbles of eight bytes, then high ones */
        v = rn_neon_nibbles(nv);
        v = (uint8x16x2_t){{vcombine_u8(vget_low_u8(v.val[0]), vget_low_u8(v.val[1])),
                            vcombine_u8(vget_high_u8(v.val[0]), vget_high_u8(v.val[1]))}};
        return rn_neon_levels(v, rn_levels_fp4);
    default: /* Q8_0 */
        return (int8x16x2_t){{vld1q_s8((const int8_t *)row + b * 34 + 2), vld1q_s8((const int8_t *)row + b * 34 + 18)}};
    }
}

/* 32 columns, run j of a block: two bits, run j's at bit 2 (j % 4) of 32 bytes. */
INLINE uint8x16_t rn_neon_two_bits(const uint8_t *p, int j)
{
    return vandq_u8(rn_neon_shift(vld1q_u8(p), 2 * (j % 4)), vdupq_n_u8(3));
}

INLINE uint8x16_t rn_neon_nibble(const uint8_t *p, int high)
{
    return high ? vshrq_n_u8(vld1q_u8(p), 4) : vandq_u8(vld1q_u8(p), vdupq_n_u8(15));
}

/* Bit j of 16 bytes, at bit `to`. */
INLINE uint8x16_t rn_neon_bit(const uint8_t *p, int j, int to)
{
    return vandq_u8(vtstq_u8(vld1q_u8(p), vdupq_n_u8((uint8_t)(1 << j))), vdupq_n_u8((uint8_t)(1 << to)));
}

/* Columns [16 (2j + h), + 16) of a block of 256, of the formats that are unpacked in registers. */
INLINE int8x16_t rn_neon_q16(enum rn_type_id type, const uint8_t *block, int j, int h)
{
    const uint8_t *two = block + j / 4 * 32 + 16 * h; /* where 32 bytes hold four runs */
    uint8x16_t v;

    switch (type) {
    case RN_Q2_K:
        return rn_neon_signed(rn_neon_two_bits(two + 16, j), 0);
    case RN_Q3_K:
        return rn_neon_signed(vorrq_u8(rn_neon_two_bits(two + 32, j), rn_neon_bit(block + 16 * h, j, 2)), 4);
    case RN_Q4_K:
        return rn_neon_signed(rn_neon_nibble(block + 16 + j / 2 * 32 + 16 * h, j % 2), 0);
    case RN_Q5_K:
        v = rn_neon_nibble(block + 48 + j / 2 * 32 + 16 * h, j % 2);
        return rn_neon_signed(vorrq_u8(v, rn_neon_bit(block + 16 + 16 * h, j, 4)), 0);
    case RN_Q6_K:
        v = rn_neon_nibble(block + j / 4 * 64 + j % 2 * 32 + 16 * h, j % 4 / 2);
        return rn_neon_signed(vorrq_u8(v, vshlq_n_u8(rn_neon_two_bits(two + 128, j), 4)), 32);
    case RN_TQ2_0:
        return rn_neon_signed(rn_neon_two_bits(two, j), 1);
    default: /* IQ4_XS */
        return vqtbl1q_s8(vld1q_s8(rn_levels_iq4), rn_neon_nibble(block + 8 + 16 * j, h));
    }
}

INLINE bool rn_neon_in_registers(enum rn_type_id type)
{
    return type == RN_Q2_K || type == RN_Q3_K || type == RN_Q4_K || type == RN_Q5_K || type == RN_Q6_K ||
           type == RN_TQ2_0 || type == RN_IQ4_XS;
}

/* All of a block of 256 that rn_neon_q256 does not compute: scales and floats, or the quants too. */
INLINE void rn_neon_head256(enum rn_type_id type, const uint8_t *row, size_t b, struct rn_block256 *out)
{
    if (rn_neon_in_registers(type))
        rn_unpack256_scales(type, row, b, out);
    else
        rn_unpack256(type, row, b, out);
}

/* Columns [32 j, 32 j + 32) of block b of a row, whose head is w. */
INLINE int8x16x2_t rn_neon_q256(enum rn_type_id type, const uint8_t *row, size_t b, const struct rn_block256 *w, int j)
{
    const uint8_t *block = row + b * rn_unpack256_bytes(type);

    if (rn_neon_in_registers(type))
        return (int8x16x2_t){{rn_neon_q16(type, block, j, 0), rn_neon_q16(type, block, j, 1)}};
    return (int8x16x2_t){{vld1q_s8(w->q + 32 * j), vld1q_s8(w->q + 32 * j + 16)}};
}

#endif
#endif
