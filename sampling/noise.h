/* The coin: Gumbel noise, one value for each (seed, position, token).
 *
 *   k(i)   word i mod 4 of Philox4x32-10 under the key seed, counter (position, i / 4, 1); see base/rng.h
 *   v(i) = (k(i) + 1/2) / 2^32                         uniform in (0, 1)
 *   E(i) = -log(1 - v(i)),   G(i) = -log E(i)          exponential, Gumbel; rn_exact_log
 *
 * The token with the greatest x(i) / T + G(i) has the probability of a draw from softmax(x / T) (Gumbel 1954; Maddison,
 * Tarlow, Minka, "A* sampling", 2014), whatever the order in which tokens are looked at. Two models with slightly
 * different x mostly draw the same token (Daliri, Musco, Suresh, "Coupling without communication and drafter-invariant
 * speculative decoding", 2024). G lies in [-3.14, 22.88]. */
#ifndef RN_SAMPLING_NOISE_H
#define RN_SAMPLING_NOISE_H

#include <stdint.h>

#include "base/rng.h"
#include "base/exact.h"

/* The counter's last word: what else a seed is the key of has another one. */
#define RN_NOISE_DOMAIN 1u

/* Greater than every G. */
#define RN_NOISE_MOST 22.9

/* k(token). Those of a block at once: levels/loops.h. */
static inline uint32_t rn_noise_word(uint64_t seed, uint64_t position, uint32_t token)
{
    uint32_t counter[4] = {(uint32_t)position, (uint32_t)(position >> 32), token / 4, RN_NOISE_DOMAIN};
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t out[4];

    rn_philox4x32(counter, key, out);
    return out[token % 4];
}

/* What all words of a seed and a position have in common, and so is worked out once for them: the keys of the rounds,
 * and with them what the first two rounds make of the position alone. For levels that multiply a word in a lane of 64
 * bits. */
struct rn_noise_keys {
    uint64_t seed, position;
    uint64_t k0[RN_PHILOX_ROUNDS], k1[RN_PHILOX_ROUNDS];
};

static inline void rn_noise_keys(uint64_t seed, uint64_t position, struct rn_noise_keys *keys)
{
    uint64_t p0 = (uint64_t)(uint32_t)position * RN_PHILOX_MULTIPLIER_0, p1;

    keys->seed = seed;
    keys->position = position;
    for (uint32_t i = 0; i < RN_PHILOX_ROUNDS; i++) {
        keys->k0[i] = (uint32_t)seed + i * RN_PHILOX_WEYL_0;
        keys->k1[i] = (uint32_t)(seed >> 32) + i * RN_PHILOX_WEYL_1;
    }
    p1 = (uint32_t)((p0 >> 32) ^ RN_NOISE_DOMAIN ^ keys->k1[0]) * (uint64_t)RN_PHILOX_MULTIPLIER_1;
    keys->k0[0] ^= position >> 32; /* c1 at first */
    keys->k0[1] ^= p1 >> 32;       /* the product in round 2 */
    keys->k1[1] ^= (uint32_t)p0;   /* c3 behind round 1 */
    keys->k0[2] ^= (uint32_t)p1;   /* c1 behind round 2 */
}

/* G of a word. */
static inline double rn_noise_of(uint32_t word)
{
    return -rn_exact_log(-rn_exact_log((0x1p32 - (double)word - 0.5) * 0x1p-32));
}

/* At least G of a word, within ln 2 of it where that is large: G is at most -log v. */
static inline double rn_noise_most(uint32_t word)
{
    return 0.69315 * (word == 0 ? 33 : 1 + __builtin_clz(word));
}

/* The greatest word that can have G >= x, for x below RN_NOISE_MOST: E > v, so not all up to it have. rarity: e^-x, to
 * 2^-31 of it; NaN: nothing is known of x. */
static inline uint32_t rn_noise_bound(double rarity)
{
    double most = 0x1p32 * (1 + 0x1p-30) * rarity;

    return most < 0x1p32 ? (uint32_t)most : UINT32_MAX;
}

#endif
