/* The warm tier as a lower one: cache/store/warm_store.h behind actors/lower.h. Its handles are the shelf's. */
#include "actors/lower.h"
#include "cache/store/warm_store.h"

static struct rn_warm_store *store_of(const struct rn_lower *lower)
{
    return lower->store;
}

static runnel_status put(struct rn_lower *lower, const struct rn_lower_key *key, const void *payload, size_t n,
                         uint64_t *handle)
{
    return rn_warm_store_put(store_of(lower), key->parent, key->salt, key->tokens, payload, n, handle);
}

static size_t payload_bytes(const struct rn_lower *lower, uint64_t handle)
{
    return rn_warm_store_payload_bytes(store_of(lower), handle);
}

static runnel_status get(struct rn_lower *lower, uint64_t handle, const struct rn_lower_key *key, void *payload)
{
    return rn_warm_store_get(store_of(lower), handle, key->parent, key->salt, key->tokens, payload);
}

static void used(struct rn_lower *lower, uint64_t handle)
{
    rn_warm_store_used(store_of(lower), handle);
}

static void forget(struct rn_lower *lower, uint64_t handle)
{
    rn_warm_store_forget(store_of(lower), handle);
}

static void on_gone(void *user, uint64_t handle)
{
    struct rn_lower *lower = user;

    lower->gone(lower->user, RN_LOWER_WARM, handle);
}

static bool writes(const struct rn_lower *lower)
{
    (void)lower;
    return true;
}

static uint64_t bytes(const struct rn_lower *lower)
{
    struct rn_warm_stats stats;

    rn_warm_store_stats(store_of(lower), &stats);
    return stats.memory_bytes;
}

static void close_store(struct rn_lower *lower)
{
    rn_warm_store_close(store_of(lower));
}

static const struct rn_lower_ops warm_ops = {
    .name = "warm",
    .put = put,
    .payload_bytes = payload_bytes,
    .get = get,
    .used = used,
    .forget = forget,
    .writes = writes,
    .bytes = bytes,
    .close = close_store,
};

runnel_status rn_lower_open_warm(struct rn_lower *lower, struct rn_heap *heap, uint64_t max_bytes,
                                 uint32_t block_tokens, size_t most_payload_bytes, runnel_error *error)
{
    struct rn_warm_options options = {.max_bytes = max_bytes,
                                      .block_tokens = block_tokens,
                                      .payload_bytes = most_payload_bytes,
                                      .user = lower,
                                      .gone = on_gone};
    struct rn_warm_store *store = NULL;
    runnel_status status = rn_warm_store_open(heap, &options, &store, error);

    lower->store = store;
    lower->ops = status == RUNNEL_OK ? &warm_ops : NULL;
    return status;
}
