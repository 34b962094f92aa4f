/* Block formats: how numbers are stored in a GGUF tensor.
 *
 * A row is a sequence of blocks; a block holds `elements` numbers in `bytes` bytes. The decoders
 * here are the definition that every fast path is judged by; they give exactly the values that
 * ../shared/oracles/quants holds. Formats: the ggml project's ggml-common.h and ggml-quants.c. */
#ifndef RN_MODEL_QUANT_QUANT_H
#define RN_MODEL_QUANT_QUANT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* ggml type ids as they stand in files; the gaps are types that ggml has removed. */
enum rn_type_id {
    RN_F32 = 0,
    RN_F16 = 1,
    RN_Q4_0 = 2,
    RN_Q4_1 = 3,
    RN_Q5_0 = 6,
    RN_Q5_1 = 7,
    RN_Q8_0 = 8,
    RN_Q8_1 = 9,
    RN_Q2_K = 10,
    RN_Q3_K = 11,
    RN_Q4_K = 12,
    RN_Q5_K = 13,
    RN_Q6_K = 14,
    RN_Q8_K = 15,
    RN_IQ2_XXS = 16,
    RN_IQ2_XS = 17,
    RN_IQ3_XXS = 18,
    RN_IQ1_S = 19,
    RN_IQ4_NL = 20,
    RN_IQ3_S = 21,
    RN_IQ2_S = 22,
    RN_IQ4_XS = 23,
    RN_I8 = 24,
    RN_I16 = 25,
    RN_I32 = 26,
    RN_I64 = 27,
    RN_F64 = 28,
    RN_IQ1_M = 29,
    RN_BF16 = 30,
    RN_TQ1_0 = 34,
    RN_TQ2_0 = 35,
    RN_MXFP4 = 39,
    RN_NVFP4 = 40
};

struct rn_type {
    const char *name;  /* "Q4_K" */
    uint32_t elements; /* per block */
    uint32_t bytes;    /* per block */
    /* out[n] = the values of n / elements blocks; n is a multiple of elements; blocks need no alignment. */
    void (*decode)(const void *blocks, float *out, size_t n);
};

/* NULL for an id that is unknown or removed. */
const struct rn_type *rn_type(uint32_t id);

/* Bytes of n elements of a type; n must be a multiple of its block. */
static inline size_t rn_type_bytes(const struct rn_type *type, size_t n)
{
    return n / type->elements * type->bytes;
}

/* IEEE half and bfloat16 to float, exact; float to half and bfloat16, round to nearest even. */
float rn_f16_to_f32(uint16_t h);
uint16_t rn_f32_to_f16(float f);
uint16_t rn_f32_to_bf16(float f);
static inline float rn_bf16_to_f32(uint16_t h)
{
    uint32_t u = (uint32_t)h << 16;
    float f;

    memcpy(&f, &u, sizeof f);
    return f;
}

#endif
