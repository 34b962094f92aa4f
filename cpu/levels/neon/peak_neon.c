/* The peak loops of NEON without dot products: see peak.h. */
#include <arm_neon.h>

#include "cpu/levels/peak.h"

enum { SUMS = 16, FACTORS = 8 };

static inline __attribute__((always_inline)) uint64_t read_lines(const void *memory, size_t bytes, bool ahead)
{
    const char *at = memory, *end = at + bytes;
    uint64x2_t sums[4] = {{0}};
    int k;

    for (; at < end; at += RN_PEAK_BYTES) {
        if (ahead)
            rn_peak_ahead(at);
#pragma GCC unroll 16
        for (k = 0; k < RN_PEAK_BYTES / 16; k++)
            sums[k & 3] = vaddq_u64(sums[k & 3], vld1q_u64((const uint64_t *)at + 2 * k));
    }
    return vaddvq_u64(vaddq_u64(vaddq_u64(sums[0], sums[1]), vaddq_u64(sums[2], sums[3])));
}

RN_PEAK_READS

/* Eight products in 16 bits, pairs added to sums of 32. */
static uint64_t integer(uint64_t rounds)
{
    int8x8_t a[FACTORS], b = vdup_n_s8(5);
    int32x4_t sums[FACTORS];
    uint64_t r;
    int i;

#pragma GCC unroll 16
    for (i = 0; i < FACTORS; i++) {
        a[i] = vdup_n_s8((int8_t)(i + 1));
        sums[i] = vdupq_n_s32(i);
    }
    for (r = 0; r < rounds; r++)
#pragma GCC unroll 16
        for (i = 0; i < FACTORS; i++) {
            RN_PEAK_FORGET("w", a[i]);
            sums[i] = vpadalq_s16(sums[i], vmull_s8(a[i], b));
        }
#pragma GCC unroll 16
    for (i = 1; i < FACTORS; i++)
        sums[0] = vaddq_s32(sums[0], sums[i]);
    return (uint64_t)vaddvq_s32(sums[0]);
}

static uint64_t real(uint64_t rounds)
{
    float32x4_t sums[SUMS], a = vdupq_n_f32(0.5f), b = vdupq_n_f32(0.25f);
    uint64_t r;
    int i;

#pragma GCC unroll 16
    for (i = 0; i < SUMS; i++)
        sums[i] = vdupq_n_f32((float)i);
    for (r = 0; r < rounds; r++) {
        RN_PEAK_FORGET("w", a);
#pragma GCC unroll 16
        for (i = 0; i < SUMS; i++)
            sums[i] = vfmaq_f32(sums[i], a, b);
    }
#pragma GCC unroll 16
    for (i = 1; i < SUMS; i++)
        sums[0] = vaddq_f32(sums[0], sums[i]);
    return (uint64_t)vaddvq_f32(sums[0]);
}

const struct rn_peak rn_peak_neon = {read_ahead, read_plain, integer, real, 2.0 * 8 * FACTORS, 2.0 * 4 * SUMS};
const struct rn_peak rn_peak_dotprod = {read_ahead, read_plain,          rn_peak_dotprod_integer,
                                        real,       RN_PEAK_DOTPROD_OPS, 2.0 * 4 * SUMS};
