/* A lower tier as the mover sees it: a place for packed KV blocks, one table of functions for each kind, so that warm,
 * cold and whatever comes later are the same to it. Blocking, one owner: the mover.
 *
 * A tier knows its records by handles of its own (never 0, never used twice) and checks on a get what the caller says
 * of a record: salt, parent and tokens. A miss is a miss whatever the reason. */
#ifndef RN_ACTORS_LOWER_H
#define RN_ACTORS_LOWER_H

#include <stdbool.h>

#include "base/alloc.h"
#include "cache/store/cold_store.h"

struct rn_redis_options;

/* In the order in which they are asked: the nearest first. */
enum rn_lower_kind { RN_LOWER_WARM, RN_LOWER_COLD, RN_LOWER_SHARED, RN_LOWERS };

#define RN_LOWER_BIT(kind) (1u << (kind))

/* What a block is, whatever tier has it. */
struct rn_lower_key {
    uint64_t parent; /* the handle of the block before it; 0: it is the first. Of a tier that is not durable: its
                        shelf's number, and it need not be here */
    struct rn_prefix_salt salt;
    const int32_t *tokens; /* [block_tokens] */
};

struct rn_lower;

/* What came of asking for news. */
struct rn_lower_news {
    bool more;    /* there may be more at once */
    bool no_room; /* there is news, and the tier can hardly keep more in mind: some of its records should be let go */
};

struct rn_lower_ops {
    const char *name;
    /* True: survives the process, and takes a block only if it has the one before it. */
    bool durable;
    /* True: other engines use its records too, so that only those that cannot be trusted are forgotten there. */
    bool others;
    /* *handle: the shelf's number, which a tier that is not durable takes for its own; then the tier's. */
    runnel_status (*put)(struct rn_lower *lower, const struct rn_lower_key *key, const void *payload, size_t n,
                         uint64_t *handle);
    /* 0: it is not known. */
    size_t (*payload_bytes)(const struct rn_lower *lower, uint64_t handle);
    /* IO: it could not be asked now, and may have the record still. Anything else but OK: it has it no longer. */
    runnel_status (*get)(struct rn_lower *lower, uint64_t handle, const struct rn_lower_key *key, void *payload);
    void (*will_get)(struct rn_lower *lower, const uint64_t *handles, uint32_t n); /* NULL: no use */
    void (*used)(struct rn_lower *lower, uint64_t handle); /* the prefix that ends there was wanted */
    void (*forget)(struct rn_lower *lower, uint64_t handle);
    /* It is not asked for any more under this handle; others may have use of it. NULL: as forget. */
    void (*let_go)(struct rn_lower *lower, uint64_t handle);
    /* News of it was not taken. NULL: as let_go. */
    void (*decline)(struct rn_lower *lower, uint64_t handle);
    /* What others have put there since, or what could not be read before: tells of up to `most` records, a parent before its children. Asks a disk or a
     * server, for as long as a get may take. NULL, or listens false: there is none. A
     * tier that others write into may be written into from here afterwards. */
    struct rn_lower_news (*news)(struct rn_lower *lower, uint32_t most, rn_cold_record_fn *on_record, void *user);
    bool (*listens)(const struct rn_lower *lower);
    bool (*tend)(struct rn_lower *lower); /* a little of what is to be done besides; true: there is more. NULL: never */
    bool (*writes)(const struct rn_lower *lower);
    bool (*error)(struct rn_lower *lower, runnel_error *error); /* the first, once. NULL: none ever */
    uint64_t (*bytes)(const struct rn_lower *lower);            /* that it takes now */
    void (*close)(struct rn_lower *lower);
};

/* `gone` is told each record that the tier no longer has, during any of the calls above but close. */
struct rn_lower {
    const struct rn_lower_ops *ops; /* NULL: this tier is not there */
    void *store;
    void (*gone)(void *user, enum rn_lower_kind kind, uint64_t handle);
    void *user;
};

/* Each sets gone and user before it opens. Errors as of the stores; then ops is NULL. max_bytes > 0.
 * payload_bytes: the most that a payload has. */
runnel_status rn_lower_open_warm(struct rn_lower *lower, struct rn_heap *heap, uint64_t max_bytes,
                                 uint32_t block_tokens, size_t payload_bytes, runnel_error *error);
runnel_status rn_lower_open_cold(struct rn_lower *lower, struct rn_heap *heap, const struct rn_cold_io *io,
                                 const char *path, const struct rn_cold_id *id, const struct rn_cold_limits *limits,
                                 rn_cold_record_fn *on_record, void *user, runnel_error *error);
runnel_status rn_lower_open_shared(struct rn_lower *lower, struct rn_heap *heap, const struct rn_redis_options *options,
                                   rn_cold_record_fn *on_record, void *user, runnel_error *error);

#endif
