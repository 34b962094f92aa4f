/* The shared tier of a build without hiredis: there is none. */
#include "cache/store/redis_store.h"

#include "base/check.h"

runnel_status rn_redis_store_open(struct rn_heap *heap, const struct rn_redis_options *options,
                                  rn_cold_record_fn *on_record, void *user, struct rn_redis_store **store,
                                  runnel_error *error)
{
    (void)heap;
    (void)options;
    (void)on_record;
    (void)user;
    *store = NULL;
    return rn_error_set(error, RUNNEL_UNSUPPORTED, "this build has no shared cache: it was made without hiredis");
}

void rn_redis_store_close(struct rn_redis_store *store)
{
    RN_CHECK(store == NULL);
}

/* There is no store, so nothing below is ever called. */
runnel_status rn_redis_store_put(struct rn_redis_store *store, uint64_t parent, struct rn_prefix_salt salt,
                                 const int32_t *tokens, const void *payload, size_t n, uint64_t *handle)
{
    (void)parent;
    (void)salt;
    (void)tokens;
    (void)payload;
    (void)n;
    (void)handle;
    RN_CHECK(store == NULL);
    return RUNNEL_UNSUPPORTED;
}

size_t rn_redis_store_payload_bytes(const struct rn_redis_store *store, uint64_t handle)
{
    (void)handle;
    RN_CHECK(store == NULL);
    return 0;
}

runnel_status rn_redis_store_read(struct rn_redis_store *store, uint64_t handle, uint64_t parent,
                                  struct rn_prefix_salt salt, const int32_t *tokens, void *payload)
{
    (void)handle;
    (void)parent;
    (void)salt;
    (void)tokens;
    (void)payload;
    RN_CHECK(store == NULL);
    return RUNNEL_NOT_FOUND;
}

void rn_redis_store_will_read(struct rn_redis_store *store, const uint64_t *handles, uint32_t n)
{
    (void)handles;
    (void)n;
    RN_CHECK(store == NULL);
}

void rn_redis_store_news(struct rn_redis_store *store, uint32_t most, rn_cold_record_fn *on_record, void *user,
                         bool *more, bool *no_room)
{
    (void)most;
    (void)on_record;
    (void)user;
    RN_CHECK(store == NULL);
    *more = *no_room = false;
}

void rn_redis_store_let_go(struct rn_redis_store *store, uint64_t handle)
{
    (void)handle;
    RN_CHECK(store == NULL);
}

void rn_redis_store_forget(struct rn_redis_store *store, uint64_t handle)
{
    (void)handle;
    RN_CHECK(store == NULL);
}

void rn_redis_store_tell_gone(struct rn_redis_store *store, void (*gone)(void *user, uint64_t handle), void *user)
{
    (void)gone;
    (void)user;
    RN_CHECK(store == NULL);
}

bool rn_redis_store_error(struct rn_redis_store *store, runnel_error *error)
{
    (void)error;
    RN_CHECK(store == NULL);
    return false;
}

void rn_redis_store_stats(const struct rn_redis_store *store, struct rn_redis_stats *stats)
{
    RN_CHECK(store == NULL);
    *stats = (struct rn_redis_stats){.up = false};
}
