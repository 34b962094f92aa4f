/* The integer peak of AVX-VNNI: see peak.h. Built with its own flags; called only where the processor has them. */
#include <assert.h>
#include <immintrin.h>

#include "cpu/levels/peak.h"

enum { SUMS = 12 };

uint64_t rn_peak_vnni_integer(uint64_t rounds)
{
    __m256i sums[SUMS], a = _mm256_set1_epi8(3), b = _mm256_set1_epi8(5);
    uint64_t r;
    int i;

#pragma GCC unroll 16
    for (i = 0; i < SUMS; i++)
        sums[i] = _mm256_set1_epi32(i);
    for (r = 0; r < rounds; r++) {
        RN_PEAK_FORGET("x", a);
#pragma GCC unroll 16
        for (i = 0; i < SUMS; i++)
            sums[i] = _mm256_dpbusd_avx_epi32(sums[i], a, b);
    }
#pragma GCC unroll 16
    for (i = 1; i < SUMS; i++)
        sums[0] = _mm256_add_epi32(sums[0], sums[i]);
    return (uint64_t)_mm256_extract_epi64(sums[0], 0);
}

static_assert(RN_PEAK_VNNI_OPS == 2 * 32 * SUMS, "twelve products each");
