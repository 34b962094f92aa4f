/* The salt of a prefix: what must be the same for KV to be shared (model, adapter, KV format, tenant). Prefixes of
 * different salts never meet, in the tree or in a lower tier. A value: any thread. */
#ifndef RN_CACHE_SALT_H
#define RN_CACHE_SALT_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

struct rn_prefix_salt {
    uint64_t word[2];
};

static_assert(sizeof(struct rn_prefix_salt) == 16, "it is hashed as it lies in memory");

static inline bool rn_prefix_salt_same(struct rn_prefix_salt a, struct rn_prefix_salt b)
{
    return a.word[0] == b.word[0] && a.word[1] == b.word[1];
}

#endif
