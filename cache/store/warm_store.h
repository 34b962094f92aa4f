/* The warm tier: packed KV blocks in host memory, under 64-bit handles, within a limit that holds for everything the
 * store takes.
 *
 *   handle 12 (parent 0) -- handle 13 (parent 12) -- handle 17 (parent 13)
 *                        \- handle 40 (parent 12)            handle 61 (parent 60, which is not here)
 *
 * A record is known by its handle, which is never used twice: the caller's, or one that the store gives. It keeps salt,
 * parent and tokens, and a get that names others is a miss: so a mistake of the caller's cannot hand out another's KV.
 * A checksum of the payload (XXH3-64) is compared too; what does not fit is forgotten.
 *
 * Blocks may come in any order: eviction frees the end of a prefix before its beginning, writing ahead goes the other
 * way. A record whose parent is not here is one all the same; if the parent comes, they are joined.
 *
 * When there is no room the least recently used record that has no children here goes, so that what stays of a
 * prefix is its beginning. A record counts as used when it is put, got, or named to used(); its parent counts as used
 * when it was last, or its children were.
 *
 * Memory: index and lists at init, for as many records as there are payloads of a quarter of payload_bytes in the
 * limit; payloads in pages of about 1/32 of payload_bytes (warm_pages.h), so that about 1/64 is lost and nothing can be
 * fragmented. It is all from the heap given, and never more than max_bytes. Heaps that refuse pages make the store
 * smaller, no more. Freed pages keep their bytes until they are filled again; they can be read by nobody.
 *
 * It keeps the contract of tier.h, is not durable, and nothing blocks. `gone` is told before a record leaves (it had to
 * make room, or was forgotten, damaged, or below one that was): the record can still be got then (which does not
 * count as a use), so that a colder tier may have it.
 *
 * One owner, any thread. */
#ifndef RN_CACHE_STORE_WARM_STORE_H
#define RN_CACHE_STORE_WARM_STORE_H

#include "base/alloc.h"
#include "cache/store/tier.h"

/* Handles given by the store have this bit; the caller's must not have it. */
#define RN_WARM_OWN_HANDLE ((uint64_t)1 << 63)

struct rn_warm_options {
    uint64_t max_bytes;
    uint32_t block_tokens; /* at least 1 */
    size_t payload_bytes;  /* the most a payload has, in [1, 2^30]: rn_block_codec_bound() */
};

struct rn_warm_stats {
    uint32_t records, max_records;
    uint64_t payload_bytes; /* of the records */
    uint64_t memory_bytes;  /* what the store has from the heap: at most max_bytes */
    uint64_t gets, misses;  /* misses: gets that gave nothing */
    uint64_t damaged;
};

struct rn_warm_store;

/* INVALID: an option is out of range, or max_bytes is too little for four payloads. NO_MEMORY: nothing is held.
 * Borrows the heap until close. */
runnel_status rn_warm_store_open(struct rn_heap *heap, const struct rn_warm_options *options,
                                 struct rn_warm_store **store, runnel_error *error);

/* NULL is allowed. */
void rn_warm_store_close(struct rn_warm_store *store);

/* The store as a tier, which has it until the store is closed. A put whose *handle is 0 gets one; else it is the
 * caller's. The parent may be here or not. INVALID, too: the handle is in use, or parent or children have another salt
 * or make a circle. Others may be gone after a put that fails. */
struct rn_tier_store *rn_warm_store_tier(struct rn_warm_store *store);

void rn_warm_store_stats(const struct rn_warm_store *store, struct rn_warm_stats *stats);

/* True when the index is consistent in itself. Linear. For tests. */
bool rn_warm_store_check(const struct rn_warm_store *store);

#endif
