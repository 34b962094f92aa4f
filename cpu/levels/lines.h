/* What a line of inputs (struct rn_line) is made of, once for every level. */
#ifndef RN_CPU_LEVELS_LINES_H
#define RN_CPU_LEVELS_LINES_H

#include <math.h>
#include <string.h>

#include "cpu/kernels.h"

/* Scale of 32 numbers, and its inverse for quantising; the latter is 0 for a block of (nearly) nothing, and where a
 * number is none. most: the largest magnitude, found among the bits, where NaN and infinity are above all numbers. */
static inline float rn_line_scale(uint32_t most, bool fine, float *inverse)
{
    float magnitude, d;
    uint32_t bits;

    memcpy(&magnitude, &most, sizeof magnitude);
    d = magnitude / 127;
    *inverse = 0;
    if (magnitude <= 1e-35f)
        return 0x1p-126f;
    if (!(d < 0x1p103f))
        return d * INFINITY;
    memcpy(&bits, &d, sizeof bits);
    bits = fine ? bits & ~3u : (bits + 0x007fffff) & 0x7f800000; /* the next power of two, if it is none */
    memcpy(&d, &bits, sizeof d);
    *inverse = fine ? 127 / magnitude : 1 / d;
    return d;
}

/* All but q; low, high: the sums of the first and the second 16 of it. */
static inline void rn_line_sums(struct rn_line *y, float d, bool fine, int32_t low, int32_t high)
{
    int32_t begin;

    y->d = d;
    y->magic_d = RN_MAGIC * d;
    begin = fine ? RN_MAGIC_BITS : rn_line_begin(y);
    y->start = begin - 128 * (low + high);
    y->start16[0] = begin - 128 * low;
    y->start16[1] = begin - 128 * high;
    y->d_sum = d * (float)(low + high);
    y->d_sum16[0] = d * (float)low;
    y->d_sum16[1] = d * (float)high;
}

#endif
