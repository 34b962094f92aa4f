/* Where a ranking is cut, without a sort: of weighted keys, the one at which the weights of the greater ones reach an
 * amount. A histogram over 2048 digits of the keys that may still be the one; only the digit in which the amount is
 * reached goes on. Weights are whole numbers, so their sums depend on no order. */
#ifndef RN_SAMPLING_SELECT_H
#define RN_SAMPLING_SELECT_H

#include <stdint.h>
#include <string.h>

struct rn_cut_at {
    uint64_t key;     /* greater ones are kept ... */
    uint32_t n_equal; /* ... and the first so many of this one, in the order of the array: at least 1 */
    uint64_t sum;     /* of the weights of all that are kept */
};

/* Keeps keys from the greatest down, equal ones in the order in which they stand, until their weights sum to `enough`,
 * which is at least 1 and at most the sum of all. weights [n]; NULL: each weighs 1. n at least 1. Destroys both
 * arrays. */
struct rn_cut_at rn_select(uint64_t *keys, uint64_t *weights, uint32_t n, uint64_t enough);

/* A number's key: the order of the numbers, both zeros alike. Not NaN. */
static inline uint64_t rn_key_of(double x)
{
    uint64_t bits;

    x += 0.0; /* -0 becomes +0 */
    memcpy(&bits, &x, sizeof bits);
    return bits >> 63 != 0 ? ~bits : bits | (uint64_t)1 << 63;
}

#endif
