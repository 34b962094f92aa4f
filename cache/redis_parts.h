/* The inside of the shared tier, for its own files: redis_store.c (one record), redis_list.c (what is there at the
 * beginning). */
#ifndef RN_CACHE_REDIS_PARTS_H
#define RN_CACHE_REDIS_PARTS_H

#include "cache/redis_link.h"
#include "cache/redis_store.h"

#define RN_REDIS_NONE UINT32_MAX
#define RN_REDIS_PREFIX_BYTES 42u /* "runnel:1:" | 32 digits | ":" */
#define RN_REDIS_KEY_BYTES 74u    /* and 32 more */

struct rn_redis_entry {
    struct rn_print chain;
    uint32_t depth, payload_bytes;
    uint32_t generation;
    uint32_t next; /* free, or gone and not told of yet */
    bool known;
};

struct rn_redis_store {
    struct rn_heap *heap;
    struct rn_redis_options options;
    struct rn_cold_id id;
    uint64_t seed;
    struct rn_redis_url url;
    struct rn_redis_link link;
    char prefix[RN_REDIS_PREFIX_BYTES + 1];
    struct rn_redis_entry *entries; /* [n_entries], n_touched of them ever used */
    uint32_t n_entries, n_touched, first_free, first_gone;
    unsigned char *value;           /* [head with tokens, and the longest payload] */
    uint64_t ahead[RN_REDIS_AHEAD]; /* [n_ahead]: reads that have been asked for, from ahead_at on not yet answered */
    uint32_t n_ahead, ahead_at;
    uint64_t ahead_of;              /* link.connections when they were asked for */
    struct rn_redis_stats stats;
};

/* The chain that ends in the block of tokens[block_tokens]; before NULL: it is the first of the salt's. */
struct rn_print rn_redis_chain(const struct rn_redis_store *store, const struct rn_print *before,
                               struct rn_prefix_salt salt, const int32_t *tokens);

/* A new record's handle; 0: no memory, or max_records. */
uint64_t rn_redis_add(struct rn_redis_store *store, const struct rn_print *chain, uint32_t depth,
                      uint32_t payload_bytes);

/* Makes known what the server has, as far as memory and list_ms go, and tells of it, parents first. */
void rn_redis_list(struct rn_redis_store *store, rn_cold_record_fn *on_record, void *user);

#endif
