/* The shared tier of a build without hiredis: there is none. */
#include "cache/store/redis_store.h"

#include "base/check.h"

runnel_status rn_redis_store_open(struct rn_heap *heap, const struct rn_redis_options *options,
                                  rn_tier_record_fn *on_record, void *user, struct rn_redis_store **store,
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
struct rn_tier_store *rn_redis_store_tier(struct rn_redis_store *store)
{
    RN_CHECK(store == NULL);
    return NULL;
}

bool rn_redis_store_check(const struct rn_redis_store *store)
{
    RN_CHECK(store == NULL);
    return true;
}

void rn_redis_store_stats(const struct rn_redis_store *store, struct rn_redis_stats *stats)
{
    RN_CHECK(store == NULL);
    *stats = (struct rn_redis_stats){.up = false};
}
