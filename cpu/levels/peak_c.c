/* The peak loops of plain C, for the level without SIMD of its own: see peak.h. The compiler vectorises
 * them as it does that level's kernels. */
#include <string.h>

#include "cpu/levels/peak.h"

enum { N = 64, REPEATS = 16 };

static inline __attribute__((always_inline)) uint64_t read_lines(const void *memory, size_t bytes, bool ahead)
{
    const char *at = memory, *end = at + bytes;
    uint64_t words[RN_PEAK_BYTES / 8], sums[RN_PEAK_BYTES / 8] = {0}, sum = 0;
    int k;

    for (; at < end; at += RN_PEAK_BYTES) {
        if (ahead)
            rn_peak_ahead(at);
        memcpy(words, at, sizeof words);
        for (k = 0; k < RN_PEAK_BYTES / 8; k++)
            sums[k] += words[k];
    }
    for (k = 0; k < RN_PEAK_BYTES / 8; k++)
        sum += sums[k];
    return sum;
}

RN_PEAK_READS

static uint64_t integer(uint64_t rounds)
{
    int8_t bytes[2][N], *a = bytes[0], *b = bytes[1];
    int32_t sum = 0;
    uint64_t r;
    int i, k;

    memset(a, 3, N);
    memset(b, 5, N);
    for (r = 0; r < rounds; r++)
        for (k = 0; k < REPEATS; k++) {
            int32_t part = 0;

            __asm__ volatile("" : "+r"(a), "+r"(b) : : "memory"); /* the bytes may have changed */
            for (i = 0; i < N; i++)
                part += a[i] * b[i];
            sum ^= part;
        }
    return (uint64_t)sum;
}

static uint64_t real(uint64_t rounds)
{
    float sums[16], factor = 0.5f, sum = 0;
    uint64_t r;
    int i, k;

    for (i = 0; i < 16; i++)
        sums[i] = (float)i;
    for (r = 0; r < rounds; r++)
        for (k = 0; k < N / 16; k++) {
            __asm__ volatile("" : "+r"(r));
            for (i = 0; i < 16; i++)
                sums[i] = sums[i] * factor + 1.0f;
        }
    for (i = 0; i < 16; i++)
        sum += sums[i];
    return (uint64_t)sum;
}

const struct rn_peak rn_peak_c = {read_ahead, read_plain, integer, real, 2.0 * N *REPEATS, 2.0 * N};
