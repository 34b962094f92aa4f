/* The peak loops of AVX-512 with VNNI: see peak.h. Built with its own flags; called only where the
 * processor has them. */
#include <immintrin.h>

#include "cpu/levels/peak.h"

enum { SUMS = 16 };

static uint64_t sum_of_lanes(__m512i v)
{
    uint64_t lanes[8], sum = 0;
    int i;

    _mm512_storeu_si512(lanes, v);
    for (i = 0; i < 8; i++)
        sum += lanes[i];
    return sum;
}

static inline __attribute__((always_inline)) uint64_t read_lines(const void *memory, size_t bytes, bool ahead)
{
    const char *at = memory, *end = at + bytes;
    __m512i sums[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
    int k;

    for (; at < end; at += RN_PEAK_BYTES) {
        if (ahead)
            rn_peak_ahead(at);
#pragma GCC unroll 16
        for (k = 0; k < RN_PEAK_BYTES / 64; k++)
            sums[k & 1] = _mm512_add_epi64(sums[k & 1], _mm512_load_si512(at + 64 * k));
    }
    return sum_of_lanes(_mm512_add_epi64(sums[0], sums[1]));
}

RN_PEAK_READS

/* vpdpbusd: 64 products, four to a sum. Written out, because gcc 12 copies every sum twice around the intrinsic. */
static uint64_t integer(uint64_t rounds)
{
    __m512i sums[SUMS], a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(5);
    uint64_t r;
    int i;

#pragma GCC unroll 16
    for (i = 0; i < SUMS; i++)
        sums[i] = _mm512_set1_epi32(i);
    for (r = 0; r < rounds; r++)
#pragma GCC unroll 16
        for (i = 0; i < SUMS; i++)
            __asm__("vpdpbusd %2, %1, %0" : "+v"(sums[i]) : "v"(a), "v"(b));
#pragma GCC unroll 16
    for (i = 1; i < SUMS; i++)
        sums[0] = _mm512_add_epi32(sums[0], sums[i]);
    return sum_of_lanes(sums[0]);
}

static uint64_t real(uint64_t rounds)
{
    __m512 sums[SUMS], a = _mm512_set1_ps(0.5f), b = _mm512_set1_ps(1.0f);
    uint64_t r;
    int i;

#pragma GCC unroll 16
    for (i = 0; i < SUMS; i++)
        sums[i] = _mm512_set1_ps((float)i);
    for (r = 0; r < rounds; r++) {
        RN_PEAK_FORGET("v", a);
#pragma GCC unroll 16
        for (i = 0; i < SUMS; i++)
            sums[i] = _mm512_fmadd_ps(sums[i], a, b);
    }
#pragma GCC unroll 16
    for (i = 1; i < SUMS; i++)
        sums[0] = _mm512_add_ps(sums[0], sums[i]);
    return (uint64_t)_mm512_reduce_add_ps(sums[0]);
}

const struct rn_peak rn_peak_avx512 = {read_ahead, read_plain, integer, real, 2.0 * 64 * SUMS, 2.0 * 16 * SUMS};
