/* The shared tier: computed KV blocks in a Redis server, for engines on several machines.
 *
 *   key    runnel:1:<fingerprint, 32 hex digits>:<chain, 32 hex digits>
 *   chain  XXH3-128 of the salt, the chain of the block before it (nothing, for the first), and the block's tokens
 *   value  head (96 bytes) | tokens | payload: a record of the cold store (docs/TIERS.md), whose serial is its depth +
 * 1,
 *          whose parent's is its depth, and whose parent's check is the first half of the parent's chain
 *
 * What a get returns had the salt and the tokens asked for, the chain of the parent, and whole checks, all seeded with
 * the fingerprint; anything else is a miss, and a value that is not whole is deleted. That two prefixes have the same
 * chain is left to 128 bits. This is against accidents: who can write to the server decides what the model has read,
 * and who can read it sees prompts.
 *
 * As for the cold store, a record's parent must be known, and records have handles, which mean nothing to other
 * engines. What was there when the store was opened is told to on_record. What others put there later is news: each put
 * also adds to a stream (XADD) who has put what,
 *
 *   key    runnel:1:<fingerprint>:news      entry  <writer, 16 hex digits> <chain, 32 hex digits>
 *
 * kept to about RN_REDIS_NEWS_KEPT entries, and rn_tier_store_news reads what has come behind the last one it has seen.
 * Where that one is no longer there, the stream was cut, or the server is another: all is listed anew, a little with
 * each call. How much is kept, and what goes first, is the server's: maxmemory, allkeys-lru, and ttl in the address.
 *
 * The server may be away, hang or talk nonsense: every call ends in about command_ms at the latest (twice that where
 * bytes keep coming), the connection is given up, all is a miss, and it is tried again after retry_ms, then twice as
 * long each time, up to a minute; open waits for its connection, later calls but a moment (redis_link.h). Resolving a
 * name may take longer. No call raises SIGPIPE.
 *
 * Memory: about 70 bytes per record, and the library hiredis' own for commands and answers in flight, which is not from
 * the heap given. It keeps the contract of tier.h and is durable. One owner, any thread; open, put, get,
 * will_get, forget and news block as said. */
#ifndef RN_CACHE_STORE_REDIS_STORE_H
#define RN_CACHE_STORE_REDIS_STORE_H

#include "base/clock.h"
#include "cache/store/redis_tls.h"
#include "cache/store/tier.h"

#define RN_REDIS_AHEAD 32u         /* reads under way at most */
#define RN_REDIS_NEWS_KEPT "16384" /* entries of the stream: half of what an engine knows; about a megabyte */

struct rn_redis_options {
    const char *url;                 /* redis_url.h */
    struct rn_redis_tls_files files; /* for rediss:// alone */
    struct rn_tier_id id;
    size_t payload_bytes;  /* the most a payload has */
    uint32_t max_records;  /* 0: 2^20 */
    uint32_t connect_ms;   /* 0: 200 */
    uint32_t command_ms;   /* 0: 500 */
    uint32_t list_ms;      /* to see what is there at the beginning; the rest is news. 0: 2000 */
    uint32_t retry_ms;     /* 0: 1000 */
    uint32_t relist_ms;    /* between two lists of what is there; 0: 5000 */
    struct rn_clock clock; /* now_us NULL: the machine's */
};

struct rn_redis_stats {
    uint32_t records;             /* that have handles */
    uint64_t known_bytes;         /* of their values */
    uint64_t puts, misses;        /* misses: gets that gave nothing */
    uint64_t damaged;             /* values that were not what they should be */
    uint64_t refused;             /* puts that the server refused */
    uint64_t heard, lists;        /* records that were news; times that all was listed, the first not counted */
    uint64_t connections, losses; /* made; that ended otherwise than by close */
    bool up;                      /* connected, or would try */
};

struct rn_redis_store;

/* INVALID: the address, or a file that TLS needs. UNSUPPORTED: a build without hiredis or, for rediss://, without
 * OpenSSL. NO_MEMORY. Nothing is held then. A server that cannot be reached is no error. `options` are copied, with the
 * texts in them, `heap` is borrowed. on_record NULL: not wanted. */
runnel_status rn_redis_store_open(struct rn_heap *heap, const struct rn_redis_options *options,
                                  rn_tier_record_fn *on_record, void *user, struct rn_redis_store **store,
                                  runnel_error *error);

/* NULL is allowed. */
void rn_redis_store_close(struct rn_redis_store *store);

/* The store as a tier, which has it until the store is closed. put: BUSY: max_records; IO: the server is away or
 * refuses. get: IO: the server is away or has not answered. will_get: those that are not got then are lost effort.
 * forget: the record is deleted; let_go: it stays where it is, for others. used: the server sees a use by itself.
 * news: blocks for command_ms at most (of a list that is made anew, for one step of it). Where the server knows no
 * streams (before Redis 5.0) or refuses, that is the store's error, and there is no news for a minute. */
struct rn_tier_store *rn_redis_store_tier(struct rn_redis_store *store);

void rn_redis_store_stats(const struct rn_redis_store *store, struct rn_redis_stats *stats);

/* True when table, lists and counts agree, and the connection has what its state says. Between two calls. Linear in the
 * records, if the table is as good as it should be. For tests. */
bool rn_redis_store_check(const struct rn_redis_store *store);

#endif
