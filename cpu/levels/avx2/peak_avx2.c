/* The peak loops of AVX2: see peak.h. Built with its own flags; called only where the processor has them. */
#include <immintrin.h>

#include "cpu/levels/peak.h"

enum { SUMS = 12, FACTORS = 4, RUN = 8 };

static inline __attribute__((always_inline)) uint64_t read_lines(const void *memory, size_t bytes, bool ahead)
{
    const char *at = memory, *end = at + bytes;
    __m256i sums[4] = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256()};
    int k;

    for (; at < end; at += RN_PEAK_BYTES) {
        if (ahead)
            rn_peak_ahead(at);
#pragma GCC unroll 16
        for (k = 0; k < RN_PEAK_BYTES / 32; k++)
            sums[k & 3] = _mm256_add_epi64(sums[k & 3], _mm256_load_si256((const __m256i *)at + k));
    }
    sums[0] = _mm256_add_epi64(_mm256_add_epi64(sums[0], sums[1]), _mm256_add_epi64(sums[2], sums[3]));
    return (uint64_t)_mm256_extract_epi64(sums[0], 0) + (uint64_t)_mm256_extract_epi64(sums[0], 1) +
           (uint64_t)_mm256_extract_epi64(sums[0], 2) + (uint64_t)_mm256_extract_epi64(sums[0], 3);
}

RN_PEAK_READS

/* Products of bytes, pairs summed in 16 bits, RUN of these before they join sums of 32: as many as the products of
 * nibbles allow. */
static uint64_t integer(uint64_t rounds)
{
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i a[FACTORS], b = _mm256_set1_epi8(5), sums[FACTORS], run[FACTORS];
    uint64_t r;
    int i, j;

#pragma GCC unroll 16
    for (i = 0; i < FACTORS; i++) {
        a[i] = _mm256_set1_epi8((char)(i + 1));
        sums[i] = _mm256_setzero_si256();
    }
    for (r = 0; r < rounds; r++) {
#pragma GCC unroll 16
        for (j = 0; j < RUN; j++)
#pragma GCC unroll 16
            for (i = 0; i < FACTORS; i++) {
                RN_PEAK_FORGET("x", a[i]);
                run[i] =
                    j == 0 ? _mm256_maddubs_epi16(a[i], b) : _mm256_add_epi16(run[i], _mm256_maddubs_epi16(a[i], b));
                RN_PEAK_FORGET("x", run[i]);
            }
#pragma GCC unroll 16
        for (i = 0; i < FACTORS; i++)
            sums[i] = _mm256_add_epi32(sums[i], _mm256_madd_epi16(run[i], ones));
    }
#pragma GCC unroll 16
    for (i = 1; i < FACTORS; i++)
        sums[0] = _mm256_add_epi32(sums[0], sums[i]);
    return (uint64_t)_mm256_extract_epi64(sums[0], 0);
}

/* Likewise by AVX-VNNI, only where the processor has it: this file's flags do not ask for it. */
static uint64_t integer_vnni(uint64_t rounds)
{
    __m256i sums[SUMS], a = _mm256_set1_epi8(3), b = _mm256_set1_epi8(5);
    uint64_t r;
    int i;

#pragma GCC unroll 16
    for (i = 0; i < SUMS; i++)
        sums[i] = _mm256_set1_epi32(i);
    for (r = 0; r < rounds; r++)
#pragma GCC unroll 16
        for (i = 0; i < SUMS; i++)
            __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sums[i]) : "x"(a), "x"(b));
#pragma GCC unroll 16
    for (i = 1; i < SUMS; i++)
        sums[0] = _mm256_add_epi32(sums[0], sums[i]);
    return (uint64_t)_mm256_extract_epi64(sums[0], 0);
}

static uint64_t real(uint64_t rounds)
{
    __m256 sums[SUMS], a = _mm256_set1_ps(0.5f), b = _mm256_set1_ps(1.0f);
    uint64_t r;
    int i;

#pragma GCC unroll 16
    for (i = 0; i < SUMS; i++)
        sums[i] = _mm256_set1_ps((float)i);
    for (r = 0; r < rounds; r++) {
        RN_PEAK_FORGET("x", a);
#pragma GCC unroll 16
        for (i = 0; i < SUMS; i++)
            sums[i] = _mm256_fmadd_ps(sums[i], a, b);
    }
#pragma GCC unroll 16
    for (i = 1; i < SUMS; i++)
        sums[0] = _mm256_add_ps(sums[0], sums[i]);
    return (uint64_t)_mm256_cvtss_f32(sums[0]);
}

const struct rn_peak rn_peak_avx2 = {read_ahead, read_plain, integer, real, 2.0 * 32 * RUN *FACTORS, 2.0 * 8 * SUMS};
const struct rn_peak rn_peak_avx2_vnni = {read_ahead, read_plain, integer_vnni, real, 2.0 * 32 * SUMS, 2.0 * 8 * SUMS};
