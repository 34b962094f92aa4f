/* The shared tier as a lower one: cache/store/redis_store.h behind actors/lower.h. */
#include "actors/lower.h"

#include "cache/store/redis_store.h"

static struct rn_redis_store *store_of(const struct rn_lower *lower)
{
    return lower->store;
}

static runnel_status put(struct rn_lower *lower, const struct rn_lower_key *key, const void *payload, size_t n,
                         uint64_t *handle)
{
    return rn_redis_store_put(store_of(lower), key->parent, key->salt, key->tokens, payload, n, handle);
}

static size_t payload_bytes(const struct rn_lower *lower, uint64_t handle)
{
    return rn_redis_store_payload_bytes(store_of(lower), handle);
}

static runnel_status get(struct rn_lower *lower, uint64_t handle, const struct rn_lower_key *key, void *payload)
{
    return rn_redis_store_read(store_of(lower), handle, key->parent, key->salt, key->tokens, payload);
}

static void will_get(struct rn_lower *lower, const uint64_t *handles, uint32_t n)
{
    rn_redis_store_will_read(store_of(lower), handles, n);
}

/* The server sees a use by itself. */
static void used(struct rn_lower *lower, uint64_t handle)
{
    (void)lower;
    (void)handle;
}

static void forget(struct rn_lower *lower, uint64_t handle)
{
    rn_redis_store_forget(store_of(lower), handle);
}

static void let_go(struct rn_lower *lower, uint64_t handle)
{
    rn_redis_store_let_go(store_of(lower), handle);
}

static void on_gone(void *user, uint64_t handle)
{
    struct rn_lower *lower = user;

    lower->gone(lower->user, RN_LOWER_SHARED, handle);
}

static bool tend(struct rn_lower *lower)
{
    rn_redis_store_tell_gone(store_of(lower), on_gone, lower);
    return false;
}

static struct rn_lower_news news(struct rn_lower *lower, uint32_t most, rn_cold_record_fn *on_record, void *user)
{
    struct rn_lower_news what;

    rn_redis_store_news(store_of(lower), most, on_record, user, &what.more, &what.no_room);
    return what;
}

static bool listens(const struct rn_lower *lower)
{
    (void)lower;
    return true;
}

/* Also while it is away: a put is how it is found to be back, and costs nothing before its time. */
static bool writes(const struct rn_lower *lower)
{
    (void)lower;
    return true;
}

static bool error_of(struct rn_lower *lower, runnel_error *error)
{
    return rn_redis_store_error(store_of(lower), error);
}

static uint64_t bytes(const struct rn_lower *lower)
{
    struct rn_redis_stats stats;

    rn_redis_store_stats(store_of(lower), &stats);
    return stats.known_bytes;
}

static void close_store(struct rn_lower *lower)
{
    rn_redis_store_close(store_of(lower));
}

static const struct rn_lower_ops shared_ops = {
    .name = "shared",
    .durable = true,
    .others = true,
    .put = put,
    .payload_bytes = payload_bytes,
    .get = get,
    .will_get = will_get,
    .used = used,
    .forget = forget,
    .let_go = let_go,
    .news = news,
    .listens = listens,
    .tend = tend,
    .writes = writes,
    .error = error_of,
    .bytes = bytes,
    .close = close_store,
};

runnel_status rn_lower_open_shared(struct rn_lower *lower, struct rn_heap *heap, const struct rn_redis_options *options,
                                   rn_cold_record_fn *on_record, void *user, runnel_error *error)
{
    struct rn_redis_store *store = NULL;
    runnel_status status = rn_redis_store_open(heap, options, on_record, user, &store, error);

    lower->store = store;
    lower->ops = status == RUNNEL_OK ? &shared_ops : NULL;
    return status;
}
