/* What a line of inputs (struct rn_line) is made of, once for every level. */
#ifndef RN_CPU_LEVELS_LINES_H
#define RN_CPU_LEVELS_LINES_H

#include <math.h>
#include <string.h>

#include "cpu/kernels.h"

/* Scale of 32 numbers, and its inverse for quantising; the latter is 0 for a block of (nearly) nothing, and where a
 * number is none. most: the largest magnitude, found among the bits, where NaN and infinity are above all numbers. */
static inline float rn_line_scale(uint32_t most, float *inverse)
{
    float magnitude, d;
    uint32_t bits;

    memcpy(&magnitude, &most, sizeof magnitude);
    *inverse = magnitude > 1e-35f && magnitude < INFINITY ? 127 / magnitude : 0;
    d = magnitude <= 1e-35f ? 0 : magnitude / 127;
    if (!(d < 0x1p103f)) {
        *inverse = 0;
        return d * INFINITY;
    }
    memcpy(&bits, &d, sizeof bits);
    bits &= ~3u;
    memcpy(&d, &bits, sizeof d);
    return d;
}

/* All but q; low, high: the sums of the first and the second 16 of it. */
static inline void rn_line_sums(struct rn_line *y, float d, int32_t low, int32_t high)
{
    y->d = d;
    y->magic_d = RN_MAGIC * d;
    y->start = RN_MAGIC_BITS - 128 * (low + high);
    y->start16[0] = RN_MAGIC_BITS - 128 * low;
    y->start16[1] = RN_MAGIC_BITS - 128 * high;
    y->d_sum = d * (float)(low + high);
    y->d_sum16[0] = d * (float)low;
    y->d_sum16[1] = d * (float)high;
}

#endif
