/* The cold tier as a lower one: cache/store/cold_store.h behind actors/lower.h. */
#include "actors/lower.h"

#define TEND_BYTES (1u << 20) /* what one call may read and write: a few milliseconds */

static struct rn_cold_store *store_of(const struct rn_lower *lower)
{
    return lower->store;
}

static runnel_status put(struct rn_lower *lower, const struct rn_lower_key *key, const void *payload, size_t n,
                         uint64_t *handle)
{
    return rn_cold_store_append(store_of(lower), key->parent, key->salt, key->tokens, payload, n, handle);
}

static size_t payload_bytes(const struct rn_lower *lower, uint64_t handle)
{
    return rn_cold_store_payload_bytes(store_of(lower), handle);
}

static runnel_status get(struct rn_lower *lower, uint64_t handle, const struct rn_lower_key *key, void *payload)
{
    return rn_cold_store_read(store_of(lower), handle, key->parent, key->salt, key->tokens, payload);
}

static void will_get(struct rn_lower *lower, const uint64_t *handles, uint32_t n)
{
    rn_cold_store_will_read(store_of(lower), handles, n);
}

static void used(struct rn_lower *lower, uint64_t handle)
{
    rn_cold_store_used(store_of(lower), handle);
}

static void forget(struct rn_lower *lower, uint64_t handle)
{
    rn_cold_store_forget(store_of(lower), handle);
}

static void on_gone(void *user, uint64_t handle)
{
    struct rn_lower *lower = user;

    lower->gone(lower->user, RN_LOWER_COLD, handle);
}

static bool tend(struct rn_lower *lower)
{
    return rn_cold_store_maintain(store_of(lower), TEND_BYTES, on_gone, lower);
}

/* What the writer has removed is told first: others may have taken its place. */
static struct rn_lower_news news(struct rn_lower *lower, uint32_t most, rn_cold_record_fn *on_record, void *user)
{
    struct rn_lower_news what;

    rn_cold_store_follow(store_of(lower), most, on_record, user, &what.more, &what.no_room);
    rn_cold_store_maintain(store_of(lower), 0, on_gone, lower);
    return what;
}

static bool listens(const struct rn_lower *lower)
{
    return rn_cold_store_follows(store_of(lower));
}

static bool writes(const struct rn_lower *lower)
{
    struct rn_cold_stats stats;

    rn_cold_store_stats(store_of(lower), &stats);
    return stats.writes;
}

/* A writer knows what its files hold, whether anybody asks for it or not; who reads need not. */
static void decline(struct rn_lower *lower, uint64_t handle)
{
    if (!writes(lower))
        rn_cold_store_let_go(store_of(lower), handle);
}

static bool error_of(struct rn_lower *lower, runnel_error *error)
{
    return rn_cold_store_error(store_of(lower), error);
}

static uint64_t bytes(const struct rn_lower *lower)
{
    struct rn_cold_stats stats;

    rn_cold_store_stats(store_of(lower), &stats);
    return stats.file_bytes;
}

static void close_store(struct rn_lower *lower)
{
    rn_cold_store_close(store_of(lower));
}

static const struct rn_lower_ops cold_ops = {
    .name = "cold",
    .durable = true,
    .put = put,
    .payload_bytes = payload_bytes,
    .get = get,
    .will_get = will_get,
    .used = used,
    .forget = forget,
    .decline = decline,
    .news = news,
    .listens = listens,
    .tend = tend,
    .writes = writes,
    .error = error_of,
    .bytes = bytes,
    .close = close_store,
};

runnel_status rn_lower_open_cold(struct rn_lower *lower, struct rn_heap *heap, const struct rn_cold_io *io,
                                 const char *path, const struct rn_cold_id *id, const struct rn_cold_limits *limits,
                                 rn_cold_record_fn *on_record, void *user, runnel_error *error)
{
    struct rn_cold_store *store = NULL;
    runnel_status status = rn_cold_store_open(heap, io, path, id, limits, on_record, user, &store, error);

    lower->store = store;
    lower->ops = status == RUNNEL_OK ? &cold_ops : NULL;
    return status;
}
