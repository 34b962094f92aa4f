/* What was used before: see doorkeeper.h. */
#include "cache/doorkeeper.h"

#include <assert.h>
#include <string.h>
#include <xxhash.h>

#include "base/check.h"

static_assert(RN_DOOR_BITS <= 32, "each half of a hash names a bit");
static_assert(2 * RN_DOOR_BLOCKS < 1u << RN_DOOR_BITS, "a filter is never full");

static bool is_set(const uint64_t *bits, uint32_t bit)
{
    return (bits[bit / 64] >> bit % 64 & 1) != 0;
}

/* True: it was there. */
static bool note(struct rn_doorkeeper *door, uint64_t hash)
{
    uint32_t mask = (1u << RN_DOOR_BITS) - 1, a = (uint32_t)hash & mask, b = (uint32_t)(hash >> 32) & mask;
    bool young = is_set(door->seen[0], a) && is_set(door->seen[0], b);
    bool known = young || (is_set(door->seen[1], a) && is_set(door->seen[1], b));

    RN_ASSERT(door->n <= RN_DOOR_BLOCKS);
    if (young)
        return true;
    if (door->n == RN_DOOR_BLOCKS) {
        memcpy(door->seen[1], door->seen[0], sizeof door->seen[0]);
        memset(door->seen[0], 0, sizeof door->seen[0]);
        door->n = 0;
    }
    door->seen[0][a / 64] |= UINT64_C(1) << a % 64;
    door->seen[0][b / 64] |= UINT64_C(1) << b % 64;
    door->n++;
    return known;
}

uint32_t rn_doorkeeper_note(struct rn_doorkeeper *door, struct rn_prefix_salt salt, const int32_t *tokens,
                            uint32_t n_blocks, uint32_t block_tokens)
{
    uint64_t hash = XXH3_64bits(salt.word, sizeof salt.word);
    uint32_t n_known = 0;

    for (uint32_t i = 0; i < n_blocks; i++) {
        hash = XXH3_64bits_withSeed(tokens + (size_t)i * block_tokens, block_tokens * sizeof *tokens, hash);
        if (note(door, hash) && n_known == i)
            n_known++;
    }
    RN_ASSERT(n_known <= n_blocks);
    return n_known;
}

/* A block is counted when at least one of its two bits was new. */
bool rn_doorkeeper_check(const struct rn_doorkeeper *door)
{
    uint32_t n_bits = 0;

    for (uint32_t i = 0; i < sizeof door->seen[0] / sizeof door->seen[0][0]; i++)
        n_bits += (uint32_t)__builtin_popcountll(door->seen[0][i]);
    return door->n <= RN_DOOR_BLOCKS && n_bits >= door->n && n_bits <= 2 * door->n;
}
