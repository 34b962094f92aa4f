/* Counter-based random numbers: a pure function of a key and a counter, so that what is drawn
 * never depends on the order of drawing (law 5).
 *
 * Philox4x32-10: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3",
 * SC 2011. Its published known-answer vectors are the test. */
#ifndef RN_BASE_RNG_H
#define RN_BASE_RNG_H

#include <stdint.h>

/* From the paper's table 2; for who makes many blocks side by side. */
#define RN_PHILOX_MULTIPLIER_0 0xD2511F53u
#define RN_PHILOX_MULTIPLIER_1 0xCD9E8D57u
#define RN_PHILOX_WEYL_0 0x9E3779B9u
#define RN_PHILOX_WEYL_1 0xBB67AE85u
#define RN_PHILOX_ROUNDS 10

/* out[0..4) = Philox4x32-10 of counter[0..4) under key[0..2). */
void rn_philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* The coin of (seed, position): uniform in [0, 1), a multiple of 2^-53. */
double rn_coin(uint64_t seed, uint64_t position);

/* A small sequential generator for tests and schedules (splitmix64 by Steele, Lea, Flood 2014). */
static inline uint64_t rn_splitmix64(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

#endif
