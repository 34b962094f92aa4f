/* The encoder of KV formats (kv.h): written for loops of constant length that a compiler turns into vectors, and
 * included wherever rows are stored, so that each SIMD level has it in its own instructions. No sum depends on the
 * width of a vector, and nothing is contracted: the bytes are the same everywhere.
 *
 * Threads: all functions are pure. */
#ifndef RN_MODEL_KV_ENCODE_H
#define RN_MODEL_KV_ENCODE_H

#include <math.h>
#include <string.h>

#include "model/kv.h"
#include "model/quant/quant.h"

#define RN_KV_INLINE static inline __attribute__((always_inline))

static const float rn_kv_codes4[16] = {RN_KV_CODES4};
static const float rn_kv_codes3[8] = {RN_KV_CODES3};

/* n numbers, n a power of two up to RN_KV_PIECE, times the Hadamard matrix over its root. */
static inline void rn_kv_rotate_block(float *a, uint32_t n)
{
    float x, y, root = (float)(1 / sqrt((double)n));
    uint32_t half, i, j;

    for (half = 1; half < n; half *= 2) {
        for (i = 0; i < n; i += 2 * half) {
            for (j = i; j < i + half; j++) {
                x = a[j];
                y = a[j + half];
                a[j] = x + y;
                a[j + half] = x - y;
            }
        }
    }
    for (i = 0; i < n; i++)
        a[i] *= root;
}

/* `span` is rn_kv_rotation() of the whole row, of which this is a part that begins at a multiple of it. */
static inline void rn_kv_rotate_row(float *a, uint32_t n, uint32_t span)
{
    uint32_t i;

    for (i = 0; i < n && span > 1; i += span)
        rn_kv_rotate_block(a + i, span);
}

/* To E4M3. Numbers from 2^-6 on lose 20 bits of their mantissa, ties to even; below it the unit is 2^-9. */
RN_KV_INLINE uint8_t rn_f32_to_f8(float x)
{
    uint32_t bits, size, small;
    float magnitude;

    memcpy(&bits, &x, sizeof bits);
    size = bits & 0x7fffffff;
    memcpy(&magnitude, &size, sizeof magnitude);
    magnitude = magnitude < 0x1p-6f ? magnitude : 0x1p-6f;
    magnitude = magnitude * 512 + 12582912.0f;
    memcpy(&small, &magnitude, sizeof small);
    small &= 15; /* a number from 0 to 8 */
    bits = bits >> 24 & 0x80;
    if (size > 0x7f800000)
        return (uint8_t)(bits | 0x7f);
    if (size < 121u << 23)
        return (uint8_t)(bits | small);
    size = size > 0x43e00000 ? 0x43e00000 : size; /* 448 */
    return (uint8_t)(bits | (((size + 0x7ffff + (size >> 20 & 1)) >> 20) - (120 << 3)));
}

/* Bits of the largest magnitude: NaN and infinity are above all numbers. */
RN_KV_INLINE uint32_t rn_kv_most(const float *a, uint32_t n)
{
    uint32_t bits[RN_KV_GROUP], most = 0, i;

    memcpy(bits, a, n * sizeof *a);
    for (i = 0; i < n; i++)
        most = (bits[i] & 0x7fffffff) > most ? bits[i] & 0x7fffffff : most;
    return most;
}

/* A scale as it is stored, and one over it; 0 where the scale vanishes or is no number. */
static inline uint16_t rn_kv_scale(float d, float *inverse, float *rounded)
{
    uint16_t half = d == d ? rn_f32_to_f16(d < 65504 ? d : 65504) : 0x7e00;

    *rounded = rn_f16_to_f32(half);
    *inverse = *rounded > 0 ? 1 / *rounded : 0;
    return half;
}

RN_KV_INLINE void rn_kv_codes8(const float *a, uint32_t n, float inverse, uint8_t *codes)
{
    uint32_t i;
    float t;

    for (i = 0; i < n; i++) {
        t = inverse == 0 ? 0 : a[i] * inverse;
        t = t < -127 ? -127 : t > 127 ? 127 : t;
        codes[i] = (uint8_t)(int8_t)(int32_t)((t + 12582912.0f) - 12582912.0f);
    }
}

/* Squared error of the group with this scale; levels: the `count` positive ones. Eight sums, so that their order does
 * not depend on the vectors. */
RN_KV_INLINE float rn_kv_error(const float *a, uint32_t n, float d, float inverse, const float *levels, uint32_t count)
{
    float error[RN_KV_GROUP] = {0}, sum[8] = {0}, t, level;
    uint32_t i, j;

    for (i = 0; i < n; i++) {
        t = fabsf(a[i]) * inverse;
        level = levels[0];
        for (j = 1; j < count; j++)
            level = t > 0.5f * (levels[j - 1] + levels[j]) ? levels[j] : level;
        t = fabsf(a[i]) - d * level;
        error[i] = t * t;
    }
    for (i = 0; i < RN_KV_GROUP; i += 8)
        for (j = 0; j < 8; j++)
            sum[j] += error[i + j];
    return ((sum[0] + sum[4]) + (sum[2] + sum[6])) + ((sum[1] + sum[5]) + (sum[3] + sum[7]));
}

RN_KV_INLINE void rn_kv_nearest(const float *a, uint32_t n, float inverse, const float *levels, uint32_t count,
                                uint8_t *codes)
{
    uint32_t i, j, above;
    float t;

    for (i = 0; i < n; i++) {
        t = fabsf(a[i]) * inverse;
        above = 0;
        for (j = 1; j < count; j++)
            above += t > 0.5f * (levels[j - 1] + levels[j]);
        codes[i] = (uint8_t)(a[i] < 0 ? count - 1 - above : count + above);
    }
}

/* Scale and codes of a group of q4 or q3; n and count are constants where it matters. */
RN_KV_INLINE uint16_t rn_kv_group(const float *a, uint32_t n, const float *levels, uint32_t count, uint8_t *codes)
{
    uint32_t bits = rn_kv_most(a, n), i;
    float most, d, inverse, best_inverse = 0, error, least = INFINITY;
    uint16_t half, best = 0x7e00;

    memcpy(&most, &bits, sizeof most);
    for (i = 10; i < 18 && most < INFINITY; i++) {
        half = rn_kv_scale(most / 127 * ((float)i / 16), &inverse, &d);
        error = rn_kv_error(a, n, d, inverse, levels, count);
        if (i == 10 || error < least) { /* the first even where all errors are infinite */
            least = error;
            best = half;
            best_inverse = inverse;
        }
    }
    rn_kv_nearest(a, n, best_inverse, levels, count, codes);
    return best;
}

/* One code per byte to the places that kv.h says. */
static inline void rn_kv_pack4(const uint8_t *codes, uint32_t n, uint8_t *out)
{
    uint32_t half = (n + 1) / 2, i;

    for (i = 0; i < half; i++)
        out[i] = (uint8_t)(codes[i] | (i + half < n ? codes[i + half] << 4 : 0));
}

static inline void rn_kv_pack3(const uint8_t *codes, uint32_t n, uint8_t *out)
{
    uint32_t low = (n + 3) / 4, high = (n + 7) / 8, i;

    memset(out, 0, low + high);
    for (i = 0; i < n; i++) {
        out[i % low] |= (uint8_t)((codes[i] & 3) << (2 * (i / low)));
        out[low + i % high] |= (uint8_t)(codes[i] >> 2 << (i / high));
    }
}

/* A group of n <= 32 numbers; n is a constant where it matters. Returns where the next one goes. */
RN_KV_INLINE uint8_t *rn_kv_encode_group(runnel_kv_type type, const float *a, uint32_t n, uint8_t *out)
{
    uint8_t codes[RN_KV_GROUP] = {0};
    uint32_t bits;
    float most, inverse, d;
    uint16_t half;

    if (type == RUNNEL_KV_Q8) {
        bits = rn_kv_most(a, n);
        memcpy(&most, &bits, sizeof most);
        half = rn_kv_scale(most < INFINITY ? most / 127 : NAN, &inverse, &d);
        rn_kv_codes8(a, n, inverse, out + RN_KV_SCALE_BYTES);
    } else if (type == RUNNEL_KV_Q4) {
        half = rn_kv_group(a, n, rn_kv_codes4 + 8, 8, codes);
        rn_kv_pack4(codes, n, out + RN_KV_SCALE_BYTES);
    } else {
        half = rn_kv_group(a, n, rn_kv_codes3 + 4, 4, codes);
        rn_kv_pack3(codes, n, out + RN_KV_SCALE_BYTES);
    }
    memcpy(out, &half, sizeof half);
    return out + RN_KV_SCALE_BYTES + rn_kv_code_bytes(type, n);
}

RN_KV_INLINE void rn_kv_encode_groups(runnel_kv_type type, const float *a, uint32_t n, uint8_t *out)
{
    for (; n >= RN_KV_GROUP; n -= RN_KV_GROUP, a += RN_KV_GROUP)
        out = rn_kv_encode_group(type, a, RN_KV_GROUP, out);
    if (n > 0)
        rn_kv_encode_group(type, a, n, out);
}

/* A piece of n <= RN_KV_PIECE numbers of a row with rotations of `span`; not for f32, f16 and bf16. */
static inline void rn_kv_encode_piece(runnel_kv_type type, const float *a, uint32_t n, uint32_t span, uint8_t *out)
{
    float rotated[RN_KV_PIECE];
    uint32_t i;

    if (type == RUNNEL_KV_FP8) {
        for (i = 0; i < n; i++)
            out[i] = rn_f32_to_f8(a[i]);
        return;
    }
    if (type == RUNNEL_KV_Q8) {
        rn_kv_encode_groups(RUNNEL_KV_Q8, a, n, out);
        return;
    }
    memcpy(rotated, a, n * sizeof *a);
    rn_kv_rotate_row(rotated, n, span);
    if (type == RUNNEL_KV_Q4)
        rn_kv_encode_groups(RUNNEL_KV_Q4, rotated, n, out);
    else
        rn_kv_encode_groups(RUNNEL_KV_Q3, rotated, n, out);
}

/* A row of one of those formats. */
static inline void rn_kv_encode_row(runnel_kv_type type, const float *a, uint32_t n, uint8_t *out)
{
    uint32_t i, m;

    for (i = 0; i < n; i += m) {
        m = n - i < RN_KV_PIECE ? n - i : RN_KV_PIECE;
        rn_kv_encode_piece(type, a + i, m, rn_kv_rotation(n), out);
        out += rn_kv_row_bytes(type, m);
    }
}

#endif
