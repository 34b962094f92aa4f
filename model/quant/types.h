/* What the files of the block formats share: reading little-endian fields from unaligned bytes, and
 * the decoder of each format. For model/quant, and for cpu/, whose kernels read the same fields. */
#ifndef RN_MODEL_QUANT_TYPES_H
#define RN_MODEL_QUANT_TYPES_H

#include "model/quant/quant.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "runnel needs a little-endian machine: the fields of a model file are read as they stand"
#endif

static inline uint16_t rn_le16(const uint8_t *p)
{
    uint16_t v;

    memcpy(&v, p, sizeof v);
    return v;
}

static inline uint32_t rn_le32(const uint8_t *p)
{
    uint32_t v;

    memcpy(&v, p, sizeof v);
    return v;
}

static inline float rn_half_at(const uint8_t *p)
{
    return rn_f16_to_f32(rn_le16(p));
}

/* Defines rn_decode_NAME over a `static void block_NAME(const uint8_t *b, float *out)`. */
#define RN_DECODER(name, block_elements, block_bytes)                   \
    void rn_decode_##name(const void *blocks, float *out, size_t n)     \
    {                                                                   \
        const uint8_t *b = blocks;                                      \
                                                                        \
        for (; n > 0; n -= (block_elements), out += (block_elements)) { \
            block_##name(b, out);                                       \
            b += (block_bytes);                                         \
        }                                                               \
    }

/* The 16 levels of IQ4_NL and IQ4_XS, and the doubled E2M1 values of MXFP4 and NVFP4. */
extern const int8_t rn_levels_iq4[16];
extern const int8_t rn_levels_fp4[16];

/* As rn_type.decode; each is in plain.c, k.c or iq.c. */
/* clang-format off */
#define RN_DECODER_MAP(X) \
    X(f32) X(f16) X(bf16) X(f64) X(i8) X(i16) X(i32) X(i64) X(q4_0) X(q4_1) X(q5_0) X(q5_1) X(q8_0) X(q8_1) \
    X(mxfp4) X(nvfp4) X(q2_k) X(q3_k) X(q4_k) X(q5_k) X(q6_k) X(q8_k) X(tq1_0) X(tq2_0) X(iq1_s) X(iq1_m) \
    X(iq2_xxs) X(iq2_xs) X(iq2_s) X(iq3_xxs) X(iq3_s) X(iq4_nl) X(iq4_xs)
#define RN_DECODER_DECLARE(name) void rn_decode_##name(const void *blocks, float *out, size_t n);
RN_DECODER_MAP(RN_DECODER_DECLARE)
#undef RN_DECODER_DECLARE
/* clang-format on */

#endif
