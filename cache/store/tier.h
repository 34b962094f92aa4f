/* The contract of a lower tier: a place for packed KV blocks. Host memory (warm_store.h), files (cold_store.h) and a
 * Redis server (redis_store.h) keep it, and who moves blocks knows no more of them than what stands here.
 *
 *   struct rn_cold_store { struct rn_tier_store tier; ... }      the tier is the store's first member
 *                                     │
 *                                     ▼ ops                      one table of functions for each kind
 *            put  get  forget  news  tend  ...
 *
 * A store is opened by its own function, which says what it needs; from then on the tier is used by the functions
 * below. A record is a packed block under a handle of the tier's, which is never 0 and never used twice. What a caller
 * says of a record (salt, parent, tokens) is compared by get with what was put: a mistake of the caller's is a miss,
 * never another's KV. A miss is a miss whatever the reason.
 *
 * Owner and threads: a tier has one owner at a time, on any thread; no two calls at once. Each function says whether it
 * blocks. Payloads, tokens and keys are the caller's and are borrowed for the call. */
#ifndef RN_CACHE_STORE_TIER_H
#define RN_CACHE_STORE_TIER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/check.h"
#include "base/status.h"
#include "cache/salt.h"
#include "cache/store/fingerprint.h"

/* In the order in which they are asked: the nearest first. */
enum rn_tier_kind { RN_TIER_WARM, RN_TIER_COLD, RN_TIER_SHARED, RN_TIERS };

#define RN_TIER_BIT(kind) (1u << (kind))
static_assert(RN_TIERS <= 8, "the tiers that have a block are the bits of a byte");

#define RN_TIER_NAME_BYTES 64

/* What must be the same for KV to be the same: a tier that survives the process shows nothing of another id. */
struct rn_tier_id {
    struct rn_fingerprint model;   /* rn_fingerprint_model */
    struct rn_fingerprint kv;      /* rn_fingerprint_kv: layout, type, sizes, angles */
    struct rn_fingerprint adapter; /* zeros: adapters are told apart by the salt */
    uint32_t block_tokens;         /* a power of two, at most 65536 */
    uint64_t block_bytes;          /* unpacked; for who looks into the folder */
    char name[RN_TIER_NAME_BYTES]; /* likewise: the model's, for people; ends with a NUL. Not part of the fingerprint */
};

/* What a block is, whatever tier has it. */
struct rn_tier_key {
    uint64_t parent; /* the handle of the block before it; 0: it is the first. Where the tier is not durable the block
                        before it need not be there */
    struct rn_prefix_salt salt;
    const int32_t *tokens; /* [block_tokens] */
};

/* A record that a tier tells of. */
struct rn_tier_record {
    uint64_t handle;            /* never 0 */
    uint64_t parent;            /* 0: its block is the first of the prefix */
    struct rn_prefix_salt salt; /* the same as the parent's */
    const int32_t *tokens;      /* [block_tokens], valid until the callback returns */
    uint32_t depth;             /* blocks before it in the prefix */
    uint32_t payload_bytes;
};

/* Tells of a record; parents before children. It must not call the tier. */
typedef void rn_tier_record_fn(void *user, const struct rn_tier_record *record);

/* Tells that the tier no longer has the record. Of what a get or a forget takes away it may be told by a later call.
 * It may look at the record where the tier says so (warm_store.h), and must not change the tier. */
typedef void rn_tier_gone_fn(void *user, uint64_t handle);

struct rn_tier_store;

/* The functions of a kind, each as the function below that calls it. Those that may be NULL say what that means. */
struct rn_tier_ops {
    const char *name; /* for messages */
    bool durable;     /* it survives the process, and takes a block only behind the one before it */
    runnel_status (*put)(struct rn_tier_store *tier, const struct rn_tier_key *key, const void *payload, size_t n,
                         uint64_t *handle);
    size_t (*payload_bytes)(const struct rn_tier_store *tier, uint64_t handle);
    runnel_status (*get)(struct rn_tier_store *tier, uint64_t handle, const struct rn_tier_key *key, void *payload);
    void (*will_get)(struct rn_tier_store *tier, const uint64_t *handles, uint32_t n); /* NULL: of no use */
    void (*used)(struct rn_tier_store *tier, uint64_t handle); /* NULL: it sees that by itself */
    uint32_t (*forget)(struct rn_tier_store *tier, uint64_t handle);
    void (*let_go)(struct rn_tier_store *tier, uint64_t handle);  /* NULL: as forget */
    void (*decline)(struct rn_tier_store *tier, uint64_t handle); /* NULL: as let_go */
    void (*news)(struct rn_tier_store *tier, uint32_t most, rn_tier_record_fn *on_record, void *user, bool *more,
                 bool *no_room);                                    /* NULL: there is never any */
    bool (*listens)(const struct rn_tier_store *tier);              /* NULL: always, where there is `news` */
    bool (*tend)(struct rn_tier_store *tier);                       /* NULL: there is nothing to do */
    bool (*writes)(const struct rn_tier_store *tier);               /* NULL: always */
    bool (*error)(struct rn_tier_store *tier, runnel_error *error); /* NULL: there is never one */
    uint64_t (*bytes)(const struct rn_tier_store *tier);
    bool (*check)(const struct rn_tier_store *tier);
    void (*close)(struct rn_tier_store *tier);
};

/* The first member of every store. */
struct rn_tier_store {
    const struct rn_tier_ops *ops;
    rn_tier_gone_fn *gone; /* NULL: not wanted */
    void *user;
};

/* From now on `gone` is told of the records that leave, during any call but close. NULL: nobody is. */
static inline void rn_tier_store_watch(struct rn_tier_store *tier, rn_tier_gone_fn *gone, void *user)
{
    tier->gone = gone;
    tier->user = user;
}

/* Keeps a copy of payload[n] for the block that the key names. *handle: a tier that is not durable takes the caller's
 * number for its own where it is not 0; else it is the tier's. Blocks as the store says: on memory never, on a disk or
 * a server as long as they take.
 * NOT_FOUND: durable, and the parent is not known (any more). INVALID: n or the handle is out of range, or does not fit
 * the records it would be joined with. BUSY: there is no room, or not before tend has made some. NO_MEMORY. STATE:
 * writing is off. IO: the disk or the server has failed. Then nothing is kept. */
static inline runnel_status rn_tier_store_put(struct rn_tier_store *tier, const struct rn_tier_key *key,
                                              const void *payload, size_t n, uint64_t *handle)
{
    runnel_status status = tier->ops->put(tier, key, payload, n, handle);

    RN_ASSERT(status != RUNNEL_OK || (*handle != 0 && tier->ops->payload_bytes(tier, *handle) == n));
    return status;
}

/* Bytes of a record's payload; 0: it is not known. Does not block. */
static inline size_t rn_tier_store_payload_bytes(const struct rn_tier_store *tier, uint64_t handle)
{
    return tier->ops->payload_bytes(tier, handle);
}

/* The payload [rn_tier_store_payload_bytes] of the record that was put with this key, checked. Blocks like put.
 * IO: it could not be asked now, and may have the record still. NOT_FOUND: anything else; what was damaged is gone. */
static inline runnel_status rn_tier_store_get(struct rn_tier_store *tier, uint64_t handle,
                                              const struct rn_tier_key *key, void *payload)
{
    runnel_status status = tier->ops->get(tier, handle, key, payload);

    RN_ASSERT(status == RUNNEL_OK || status == RUNNEL_IO || status == RUNNEL_NOT_FOUND);
    RN_ASSERT(status != RUNNEL_OK || tier->ops->payload_bytes(tier, handle) > 0);
    return status;
}

/* These n will be got, in this order: a disk may begin to read, a server is asked in one go. Does not wait for them. */
static inline void rn_tier_store_will_get(struct rn_tier_store *tier, const uint64_t *handles, uint32_t n)
{
    if (tier->ops->will_get != NULL)
        tier->ops->will_get(tier, handles, n);
}

/* The prefix that ends in the record was wanted: a use of it and of what is before it. Does not block. */
static inline void rn_tier_store_used(struct rn_tier_store *tier, uint64_t handle)
{
    if (tier->ops->used != NULL)
        tier->ops->used(tier, handle);
}

/* The record is not to be trusted: it goes, for others too, with those that build on it as far as the tier knows them.
 * Returns how many records went; a handle that is not known is harmless, here and below. May block like put. */
static inline uint32_t rn_tier_store_forget(struct rn_tier_store *tier, uint64_t handle)
{
    uint32_t n = tier->ops->forget(tier, handle);

    RN_ASSERT(tier->ops->payload_bytes(tier, handle) == 0);
    return n;
}

/* The record is not asked for any more under this handle; others may have use of it. May block like put. */
static inline void rn_tier_store_let_go(struct rn_tier_store *tier, uint64_t handle)
{
    if (tier->ops->let_go != NULL)
        tier->ops->let_go(tier, handle);
    else
        tier->ops->forget(tier, handle);
    RN_ASSERT(tier->ops->payload_bytes(tier, handle) == 0);
}

/* A record that news told of was not taken. May block like put. */
static inline void rn_tier_store_decline(struct rn_tier_store *tier, uint64_t handle)
{
    if (tier->ops->decline != NULL)
        tier->ops->decline(tier, handle);
    else
        rn_tier_store_let_go(tier, handle);
}

/* True: there may be news of what others write. Does not block. */
static inline bool rn_tier_store_listens(const struct rn_tier_store *tier)
{
    return tier->ops->news != NULL && (tier->ops->listens == NULL || tier->ops->listens(tier));
}

/* What others have put there since the last call or what could not be read before, or some of it: tells of at most
 * `most` records (1 at least), parents first. *more: there may be more at once. *no_room: there is news, and the tier
 * can hardly keep more in mind: some of its records should be let go. Asks the disk or the server: blocks as long as
 * one get may. A tier that others write into may be written into from here afterwards. */
static inline void rn_tier_store_news(struct rn_tier_store *tier, uint32_t most, rn_tier_record_fn *on_record,
                                      void *user, bool *more, bool *no_room)
{
    RN_ASSERT(most > 0);
    *more = *no_room = false;
    if (tier->ops->news != NULL)
        tier->ops->news(tier, most, on_record, user, more, no_room);
}

/* Does a little of what is to be done besides, such as making room, and tells of what is gone. True: there is more.
 * Blocks for some milliseconds of the disk. */
static inline bool rn_tier_store_tend(struct rn_tier_store *tier)
{
    return tier->ops->tend != NULL && tier->ops->tend(tier);
}

/* True: it can be put into. A server that is away counts: a put is how it is found to be back. Does not block. */
static inline bool rn_tier_store_writes(const struct rn_tier_store *tier)
{
    return tier->ops->writes == NULL || tier->ops->writes(tier);
}

/* Once per store: true, and the first error that turned something off. Does not block. */
static inline bool rn_tier_store_error(struct rn_tier_store *tier, runnel_error *error)
{
    return tier->ops->error != NULL && tier->ops->error(tier, error);
}

/* Bytes that the tier takes now. Does not block. */
static inline uint64_t rn_tier_store_bytes(const struct rn_tier_store *tier)
{
    return tier->ops->bytes(tier);
}

/* True when what the store knows is consistent in itself. Linear in its records, or more. For tests. */
static inline bool rn_tier_store_check(const struct rn_tier_store *tier)
{
    return tier->ops->check(tier);
}

/* Lets go of the store and frees it; nothing is told. NULL is allowed. Blocks like put. */
static inline void rn_tier_store_close(struct rn_tier_store *tier)
{
    if (tier != NULL)
        tier->ops->close(tier);
}

#endif
