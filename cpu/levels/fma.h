/* a b + c rounded once, the same bits on every machine: what the vector levels have an instruction for.
 *
 * Without one: the product of two floats is exact in a double. Its sum with c is rounded to odd (to the neighbour whose
 * last bit is 1, where it is not exact), and that to a float: with two bits or more to spare the second rounding is the
 * only one that shows (Boldo and Melquiond 2008, "Emulation of FMA and correctly rounded sums"). No call, so that
 * compilers make vectors of it; that of the C library changes the rounding mode where there is no instruction. */
#ifndef RN_CPU_LEVELS_FMA_H
#define RN_CPU_LEVELS_FMA_H

#include <stdint.h>
#include <string.h>

/* The emulation, for tests on machines with the instruction, too. */
static inline float rn_fma_of_doubles(float a, float b, float c)
{
    double product = (double)a * b, sum = product + c, of_c = sum - product;
    double error = (product - (sum - of_c)) + (c - of_c); /* what the sum lacks, exactly */
    uint64_t bits, away;

    memcpy(&bits, &sum, sizeof bits);
    away = (uint64_t)(error > 0) - (uint64_t)(error < 0); /* towards infinity: 1, or -1 */
    away = (away ^ (0 - (bits >> 63))) + (bits >> 63);    /* away from zero, or towards it */
    bits += away & (0 - (~bits & 1));
    memcpy(&sum, &bits, sizeof sum);
    return (float)sum;
}

static inline float rn_fma(float a, float b, float c)
{
#ifdef __FP_FAST_FMAF
    return __builtin_fmaf(a, b, c);
#else
    return rn_fma_of_doubles(a, b, c);
#endif
}

#endif
