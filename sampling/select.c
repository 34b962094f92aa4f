/* Selection by a histogram: see select.h. */
#include "sampling/select.h"

#include <stddef.h>

#include "base/check.h"

#define DIGIT_BITS 11u
#define DIGITS (1u << DIGIT_BITS)

static uint64_t weight_of(const uint64_t *weights, uint32_t i)
{
    return weights == NULL ? 1 : weights[i];
}

/* How many of n equal keys are needed. */
static uint32_t count_equal(const uint64_t *weights, uint32_t n, uint64_t enough)
{
    uint64_t sum = 0;
    uint32_t i = 0;

    while (i < n && (i == 0 || sum < enough))
        sum += weight_of(weights, i++);
    return i;
}

/* Those whose digit is `digit`, in their order. */
static uint32_t compact(uint64_t *keys, uint64_t *weights, uint32_t n, uint64_t low, unsigned shift, uint64_t digit)
{
    uint32_t m = 0;

    for (uint32_t i = 0; i < n; i++) {
        if ((keys[i] - low) >> shift != digit)
            continue;
        keys[m] = keys[i];
        if (weights != NULL)
            weights[m] = weights[i];
        m++;
    }
    return m;
}

struct rn_cut_at rn_select(uint64_t *keys, uint64_t *weights, uint32_t n, uint64_t enough)
{
    uint64_t sums[DIGITS];

    RN_ASSERT(n > 0 && enough > 0);
    for (;;) {
        uint64_t low = UINT64_MAX, high = 0;
        uint32_t digit = DIGITS;
        unsigned shift = 0;

        for (uint32_t i = 0; i < n; i++) {
            low = keys[i] < low ? keys[i] : low;
            high = keys[i] > high ? keys[i] : high;
        }
        if (low == high)
            return (struct rn_cut_at){low, count_equal(weights, n, enough)};
        while ((high - low) >> shift >= DIGITS)
            shift++;
        memset(sums, 0, sizeof sums);
        for (uint32_t i = 0; i < n; i++)
            sums[(keys[i] - low) >> shift] += weight_of(weights, i);
        while (digit-- > 0 && sums[digit] < enough)
            enough -= sums[digit];
        RN_CHECK(digit < DIGITS);
        n = compact(keys, weights, n, low, shift, digit);
    }
}
