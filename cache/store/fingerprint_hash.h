/* A checksum as a fingerprint: XXH3-128 in its canonical form. Threads: any; nothing here has state. */
#ifndef RN_CACHE_STORE_FINGERPRINT_HASH_H
#define RN_CACHE_STORE_FINGERPRINT_HASH_H

#include <assert.h>
#include <string.h>

#include <xxhash.h>

#include "cache/store/fingerprint.h"

static_assert(sizeof(XXH128_canonical_t) == sizeof(struct rn_fingerprint), "one is the other, byte for byte");

static inline struct rn_fingerprint rn_fingerprint_of(XXH128_hash_t hash)
{
    struct rn_fingerprint print;
    XXH128_canonical_t canonical;

    XXH128_canonicalFromHash(&canonical, hash);
    memcpy(print.bytes, canonical.digest, sizeof print.bytes);
    return print;
}

#endif
