/* The AVX2 level's inputs: rows of floats become lines. Threads: any; nothing here has state. */
#include <immintrin.h>

#include "cpu/levels/levels_x86.h"
#include "cpu/levels/lines.h"

/* See rn_line_scale. */
static inline __m256i larger_bits(__m256i most, const float *a)
{
    __m256i bits = _mm256_and_si256(_mm256_loadu_si256((const __m256i *)a), _mm256_set1_epi32(0x7fffffff));

    return _mm256_max_epi32(most, bits);
}

static inline float line_scale(__m256i most, bool fine, float *inverse)
{
    __m128i four = _mm_max_epi32(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1));

    four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0xb1));
    return rn_line_scale((uint32_t)_mm_cvtsi128_si32(four), fine, inverse);
}

/* 32 values to bytes. With an inverse of 0 (a block of nothing, or with NaN) all are 0. */
static inline __m256i quantise32(const float *a, float inverse)
{
    __m256 k = _mm256_set1_ps(inverse);
    __m256i i0 = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(a), k)),
            i1 = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(a + 8), k));
    __m256i i2 = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(a + 16), k)),
            i3 = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(a + 24), k));
    __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(i0, i1), _mm256_packs_epi32(i2, i3));

    if (inverse == 0)
        return _mm256_setzero_si256();
    return _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

/* Sums of the low and the high 16 bytes. */
static inline void sums16(__m256i q, int32_t *low, int32_t *high)
{
    __m256i four = _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_set1_epi8(1), q), _mm256_set1_epi16(1));

    four = _mm256_add_epi32(four, _mm256_shuffle_epi32(four, 0x4e));
    four = _mm256_add_epi32(four, _mm256_shuffle_epi32(four, 0xb1));
    *low = _mm256_extract_epi32(four, 0);
    *high = _mm256_extract_epi32(four, 4);
}

void rn_quantise_lines_avx2(const float *a, void *out, uint32_t n, bool fine)
{
    struct rn_line *y = out;
    int32_t low, high;
    float inverse, d;
    __m256i q, most;
    uint32_t i;

    for (; n >= 32; n -= 32, a += 32, y++) {
        most = _mm256_setzero_si256();
        for (i = 0; i < 32; i += 8)
            most = larger_bits(most, a + i);
        d = line_scale(most, fine, &inverse);
        q = quantise32(a, inverse);
        _mm256_storeu_si256((__m256i *)y->q, q);
        sums16(q, &low, &high);
        rn_line_sums(y, d, fine, low, high);
    }
}
