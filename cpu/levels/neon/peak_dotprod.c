/* The integer peak of NEON with dot products (sdot): see peak.h. Built with its own flags; called only where
 * the processor has them. */
#include <arm_neon.h>
#include <assert.h>

#include "cpu/levels/peak.h"

enum { SUMS = 16 };

uint64_t rn_peak_dotprod_integer(uint64_t rounds)
{
    int32x4_t sums[SUMS];
    int8x16_t a = vdupq_n_s8(3), b = vdupq_n_s8(5);
    uint64_t r;
    int i;

#pragma GCC unroll 16
    for (i = 0; i < SUMS; i++)
        sums[i] = vdupq_n_s32(i);
    for (r = 0; r < rounds; r++) {
        RN_PEAK_FORGET("w", a);
#pragma GCC unroll 16
        for (i = 0; i < SUMS; i++)
            sums[i] = vdotq_s32(sums[i], a, b);
    }
#pragma GCC unroll 16
    for (i = 1; i < SUMS; i++)
        sums[0] = vaddq_s32(sums[0], sums[i]);
    return (uint64_t)vaddvq_s32(sums[0]);
}

static_assert(RN_PEAK_DOTPROD_OPS == 2 * 16 * SUMS, "sixteen products each");
