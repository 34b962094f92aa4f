/* KV formats: how the key or the value of one head at one position, a row of n numbers, is stored.
 *
 *   f32 f16 bf16   4, 2, 2 bytes a number
 *   fp8            1 byte: E4M3 of the Open Compute Project, S EEEE MMM, bias 7, no infinity, S.1111.111 is NaN;
 *                  to the nearest, ties to even; what is beyond 448, infinity too, becomes 448
 *   q8 q4 q3       groups of 32 numbers (the last one of a row may be shorter), each with a scale d in f16
 *                  before its codes; a number is d times its code's level
 *
 *   levels     q8: the code itself, -127 .. 127. q4 and q3: the c-th of RN_KV_CODES4, RN_KV_CODES3
 *   scale      q8: the largest magnitude over 127. q4 and q3: of that times (10 .. 17) / 16 the one with the least sum
 *              of squared errors, the first of several. Rounded to f16 before codes are chosen, at most 65504;
 *              NaN where the group has NaN or infinity
 *   codes      the nearest level
 *   bytes      of n numbers. q8: n codes. q4: h = ceil(n / 2) bytes; byte i holds the codes of i (low half) and of
 *              i + h. q3: l = ceil(n / 4) bytes with the low two bits of the codes of i, i + l, i + 2l, i + 3l, lowest
 *              first; then h = ceil(n / 8) bytes, of which byte i, bit b has the third bit of number i + b h
 *   rotation   q4 and q3: the row is multiplied by an orthogonal matrix first, so that no number stands out of its
 *              group: Hadamard matrices of the largest power of two that divides n, but at most 256, over its root.
 *              They are symmetric and their own inverses. Queries are rotated likewise, which leaves q · k as it was;
 *              what attention sums of rotated values is rotated back
 *
 * A row of n numbers is stored in pieces of 256, each by itself. Nothing but the row has a say in its bytes
 * (law 5). The encoder is a header, kv_encode.h: a SIMD level compiles it with flags of its own, to the same bits.
 *
 * Threads: all functions are pure. */
#ifndef RN_MODEL_KV_H
#define RN_MODEL_KV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runnel.h"

enum {
    RN_KV_GROUP = 32,
    RN_KV_PIECE = 256, /* numbers encoded together; a multiple of the group and of every rotation */
    RN_KV_PIECE_BYTES = 4 * RN_KV_PIECE,
    RN_KV_SCALE_BYTES = 2
};

/* Lloyd's levels for Gaussian numbers in groups of 32, whose scale is the best of eight, in 127ths:
 * bench/kv_levels.py. */
#define RN_KV_CODES4 -127, -98, -77, -60, -45, -31, -19, -6, 6, 19, 31, 45, 60, 77, 98, 127
#define RN_KV_CODES3 -127, -76, -42, -13, 13, 42, 76, 127

/* Is the number one of RUNNEL_KV_*? */
static inline bool rn_kv_known(runnel_kv_type type)
{
    return (unsigned)type <= RUNNEL_KV_Q3;
}

/* Are rows rotated before they are stored? */
static inline bool rn_kv_rotated(runnel_kv_type type)
{
    return type == RUNNEL_KV_Q4 || type == RUNNEL_KV_Q3;
}

/* Are there groups with scales? Else each number stands by itself. */
static inline bool rn_kv_grouped(runnel_kv_type type)
{
    return type == RUNNEL_KV_Q8 || type == RUNNEL_KV_Q4 || type == RUNNEL_KV_Q3;
}

/* Bytes of the codes of n numbers of one group, without the scale. */
static inline uint32_t rn_kv_code_bytes(runnel_kv_type type, uint32_t n)
{
    return type == RUNNEL_KV_Q8 ? n : type == RUNNEL_KV_Q4 ? (n + 1) / 2 : (n + 3) / 4 + (n + 7) / 8;
}

/* The unit in which keys are interleaved by position: one number, or one byte of a grouped row. */
static inline uint32_t rn_kv_unit_bytes(runnel_kv_type type)
{
    return type == RUNNEL_KV_F32 ? 4 : type == RUNNEL_KV_F16 || type == RUNNEL_KV_BF16 ? 2 : 1;
}

/* Bytes of a row of n numbers. */
static inline size_t rn_kv_row_bytes(runnel_kv_type type, uint32_t n)
{
    uint32_t rest = n % RN_KV_GROUP;

    if (!rn_kv_grouped(type))
        return (size_t)n * rn_kv_unit_bytes(type);
    return (size_t)(n / RN_KV_GROUP) * (RN_KV_SCALE_BYTES + rn_kv_code_bytes(type, RN_KV_GROUP)) +
           (rest == 0 ? 0 : RN_KV_SCALE_BYTES + rn_kv_code_bytes(type, rest));
}

/* How many numbers are rotated together in rows of n. */
static inline uint32_t rn_kv_rotation(uint32_t n)
{
    uint32_t power = n & -n;

    return power < RN_KV_PIECE ? power : RN_KV_PIECE;
}

/* A number in E4M3. */
float rn_f8_to_f32(uint8_t code);

/* out = the bytes of the row a[0..n), rotated if the type says so; and back, rotated as it is stored. */
void rn_kv_encode(runnel_kv_type type, const float *a, uint32_t n, uint8_t *out);
void rn_kv_decode(runnel_kv_type type, const uint8_t *bytes, uint32_t n, float *out);

/* The row a[0..n) times the matrix of its length, in place. */
void rn_kv_rotate(float *a, uint32_t n);

#endif
