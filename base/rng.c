/* Philox4x32-10: see rng.h. */
#include "base/rng.h"

void rn_philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];

    for (int round = 0; round < RN_PHILOX_ROUNDS; round++) {
        uint64_t p0 = (uint64_t)RN_PHILOX_MULTIPLIER_0 * c0;
        uint64_t p1 = (uint64_t)RN_PHILOX_MULTIPLIER_1 * c2;

        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += RN_PHILOX_WEYL_0;
        k1 += RN_PHILOX_WEYL_1;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

double rn_coin(uint64_t seed, uint64_t position)
{
    uint32_t counter[4] = {(uint32_t)position, (uint32_t)(position >> 32), 0, 0};
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t out[4];

    rn_philox4x32(counter, key, out);
    return (double)((((uint64_t)out[1] << 32) | out[0]) >> 11) * 0x1p-53;
}
