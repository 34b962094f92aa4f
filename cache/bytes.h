/* Numbers and checksums as they stand in files, whatever the machine: little end first, and XXH3's canonical form.
 * Threads: any; nothing here has state. */
#ifndef RN_CACHE_BYTES_H
#define RN_CACHE_BYTES_H

#include <stdint.h>
#include <string.h>

#include <xxhash.h>

#include "cache/session_print.h"

/* The lowest `bytes` bytes of the value, at most 8, to at[bytes]. */
static inline void rn_bytes_put(unsigned char *at, uint64_t value, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++)
        at[i] = (unsigned char)(value >> 8 * i);
}

/* The number at[bytes], at most 8. */
static inline uint64_t rn_bytes_get(const unsigned char *at, unsigned bytes)
{
    uint64_t value = 0;

    for (unsigned i = 0; i < bytes; i++)
        value |= (uint64_t)at[i] << 8 * i;
    return value;
}

static inline struct rn_print rn_print_of(XXH128_hash_t hash)
{
    struct rn_print print;
    XXH128_canonical_t canonical;

    XXH128_canonicalFromHash(&canonical, hash);
    memcpy(print.bytes, canonical.digest, sizeof print.bytes);
    return print;
}

#endif
