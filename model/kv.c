/* KV formats: the definition in plain C. See kv.h. */
#include "model/kv.h"

#include <math.h>
#include <string.h>

#include "model/kv_encode.h"
#include "model/quant/quant.h"

float rn_f8_to_f32(uint8_t code)
{
    uint32_t exponent = code >> 3 & 15, mantissa = code & 7;
    float size = exponent == 0 ? (float)mantissa * 0x1p-9f : ldexpf((float)(8 + mantissa), (int)exponent - 10);

    if ((code & 0x7f) == 0x7f)
        size = NAN;
    return (code & 0x80) != 0 ? -size : size;
}

/* The level of the i-th of a group's n numbers. */
static float level_at(runnel_kv_type type, const uint8_t *codes, uint32_t n, uint32_t i)
{
    uint32_t half = (n + 1) / 2, low = (n + 3) / 4, high = (n + 7) / 8, code;

    if (type == RUNNEL_KV_Q8)
        return (float)(int8_t)codes[i];
    if (type == RUNNEL_KV_Q4)
        return rn_kv_codes4[codes[i % half] >> (4 * (i / half)) & 15];
    code = (codes[i % low] >> (2 * (i / low)) & 3) | (codes[low + i % high] >> (i / high) & 1) << 2;
    return rn_kv_codes3[code];
}

static void decode_groups(runnel_kv_type type, const uint8_t *in, uint32_t n, float *out)
{
    uint32_t m, i;
    uint16_t half;
    float d;

    for (; n > 0; n -= m, out += m) {
        m = n < RN_KV_GROUP ? n : RN_KV_GROUP;
        memcpy(&half, in, sizeof half);
        d = rn_f16_to_f32(half);
        for (i = 0; i < m; i++)
            out[i] = d * level_at(type, in + RN_KV_SCALE_BYTES, m, i);
        in += RN_KV_SCALE_BYTES + rn_kv_code_bytes(type, m);
    }
}

void rn_kv_decode(runnel_kv_type type, const uint8_t *bytes, uint32_t n, float *out)
{
    uint16_t half;
    uint32_t i;

    if (rn_kv_grouped(type)) {
        decode_groups(type, bytes, n, out);
        return;
    }
    for (i = 0; i < n; i++) {
        if (type == RUNNEL_KV_F32) {
            memcpy(out + i, bytes + (size_t)i * 4, 4);
        } else if (type == RUNNEL_KV_FP8) {
            out[i] = rn_f8_to_f32(bytes[i]);
        } else {
            memcpy(&half, bytes + (size_t)i * 2, 2);
            out[i] = type == RUNNEL_KV_F16 ? rn_f16_to_f32(half) : rn_bf16_to_f32(half);
        }
    }
}

void rn_kv_encode(runnel_kv_type type, const float *a, uint32_t n, uint8_t *out)
{
    uint16_t half;
    uint32_t i;

    if (rn_kv_grouped(type) || type == RUNNEL_KV_FP8) {
        rn_kv_encode_row(type, a, n, out);
        return;
    }
    for (i = 0; i < n; i++) {
        if (type == RUNNEL_KV_F32) {
            memcpy(out + (size_t)i * 4, a + i, 4);
        } else {
            half = type == RUNNEL_KV_F16 ? rn_f32_to_f16(a[i]) : rn_f32_to_bf16(a[i]);
            memcpy(out + (size_t)i * 2, &half, 2);
        }
    }
}

void rn_kv_rotate(float *a, uint32_t n)
{
    rn_kv_rotate_row(a, n, rn_kv_rotation(n));
}
