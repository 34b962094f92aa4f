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

/* So many of n equal keys as are needed. */
static struct rn_cut_at take_equal(uint64_t key, const uint64_t *weights, uint32_t n, uint64_t enough)
{
    struct rn_cut_at cut = {.key = key};

    while (cut.n_equal < n && (cut.n_equal == 0 || cut.sum < enough))
        cut.sum += weight_of(weights, cut.n_equal++);
    return cut;
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
    uint64_t sums[DIGITS], greater = 0;
    struct rn_cut_at cut;

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
            break;
        while ((high - low) >> shift >= DIGITS)
            shift++;
        memset(sums, 0, sizeof sums);
        for (uint32_t i = 0; i < n; i++)
            sums[(keys[i] - low) >> shift] += weight_of(weights, i);
        while (digit-- > 0 && sums[digit] < enough) {
            enough -= sums[digit];
            greater += sums[digit];
        }
        RN_CHECK(digit < DIGITS);
        n = compact(keys, weights, n, low, shift, digit);
    }
    cut = take_equal(keys[0], weights, n, enough);
    cut.sum += greater;
    return cut;
}
