/* What the mover works with, made and freed: see mover.h. */
#include <string.h>

#include "actors/context.h"
#include "actors/tier/mover.h"
#include "actors/telemetry/prints.h"
#include "actors/runtime/dedicated.h"
#include "base/check.h"
#include "model/kv_size.h"
#include "base/status.h"
#include "cache/store/cold_store.h"
#include "cache/store/redis_store.h"
#include "cache/store/warm_store.h"
#include "model/kv.h"

#define COLD_BYTES ((uint64_t)8 << 30) /* where there is a folder and no size is given */
#define MOST_PLACES (1u << 18)         /* some 100 bytes each in mover, tier and tree, and their tokens */
#define LEAST_PLACES 64u
#define SHARED_PLACES (1u << 15) /* of a shared tier: a million tokens */
#define SMALLER_WARM 4u /* times that packing makes a block smaller at most, for the number of places; else the ... */
#define SMALLER_COLD 2u /* ... tier holds fewer than its bytes would */

static bool gives_blocks(const struct rn_context *context)
{
    const struct rn_backend *backend = context->backend;

    return backend != NULL && rn_backend_has_blocks(backend);
}

static uint64_t cold_bytes(const struct rn_context *context)
{
    uint64_t bytes = context->options->cache_cold_bytes;

    return context->options->cache_dir == NULL ? 0 : bytes != 0 ? bytes : COLD_BYTES;
}

static uint32_t places_in(const struct rn_context *context, uint64_t bytes, uint32_t smaller)
{
    uint64_t blocks = bytes / context->backend->ops->block_bytes(context->backend) * smaller;
    uint64_t most = context->cache_places != 0 ? context->cache_places : MOST_PLACES;

    if (bytes == 0)
        return 0;
    return (uint32_t)(blocks > most ? most : blocks < LEAST_PLACES ? LEAST_PLACES : blocks);
}

static uint32_t shared_places(const struct rn_context *context)
{
    return context->options->cache_shared == NULL ? 0 : SHARED_PLACES;
}

/* Why the tiers that were asked for cannot be; NULL: they can. */
static const char *obstacle(const struct rn_context *context)
{
    if (context->options->no_prefix_cache)
        return "no_prefix_cache is set";
    if (context->limits->n_states > 0)
        return "the model has recurrent states, which are kept in memory alone";
    if (rn_kv_size_forgets(context->limits))
        return "chunk_mean or bound_windows drops blocks";
    return gives_blocks(context) ? NULL : "the device does not give its blocks out";
}

uint32_t rn_mover_places_for(const struct rn_context *context)
{
    uint64_t warm = context->options->cache_warm_bytes, cold = cold_bytes(context);
    const char *why = obstacle(context);

    if (warm == 0 && cold == 0 && context->options->cache_shared == NULL)
        return 0;
    if (why != NULL) {
        rn_log(context->log, RUNNEL_LOG_WARNING, "%s: cache_warm_bytes, cache_dir and cache_shared do nothing: %s",
               context->metrics->name, why);
        return 0;
    }
    return places_in(context, warm, SMALLER_WARM) + places_in(context, cold, SMALLER_COLD) + shared_places(context) +
           (context->limits->n_blocks < MOST_PLACES ? context->limits->n_blocks : MOST_PLACES);
}

/* ---- The tiers ---- */

/* docs/TIERS.md has what each makes of each type. */
static enum rn_codec_method method_of(const struct rn_context *context)
{
    const char *name = context->options->cache_codec;

    for (int method = 0; name != NULL && method < RN_CODEC_METHODS; method++)
        if (strcmp(name, rn_codec_name((enum rn_codec_method)method)) == 0)
            return (enum rn_codec_method)method;
    return rn_kv_grouped(context->limits->kv_type) ? RN_CODEC_NONE : RN_CODEC_BITS;
}

struct opening {
    struct rn_mover *mover;
    enum rn_tier_kind kind;
    rn_mover_adopt_fn *adopt;
    void *user;
};

static void on_record(void *user, const struct rn_tier_record *record)
{
    struct opening *opening = user;
    struct rn_mover *mover = opening->mover;
    uint32_t above = rn_mover_find_place(&mover->find[opening->kind], record->parent), at;
    uint64_t tier_directory;

    if (record->parent != 0 && above == UINT32_MAX)
        return;
    tier_directory = opening->adopt(opening->user, opening->kind, record,
                                    record->parent != 0 ? mover->places[above].tier_directory : 0);
    if (tier_directory == 0)
        return;
    at = (uint32_t)tier_directory - 1;
    RN_CHECK(at < mover->n_places);
    RN_ASSERT((record->parent == 0) == (record->depth == 0) && record->payload_bytes > 0);
    mover->places[at].tier_directory = tier_directory;
    mover->places[at].at[opening->kind].handle = record->handle;
    mover->places[at].at[opening->kind].parent = record->parent;
    rn_mover_find_add(&mover->find[opening->kind], record->handle, at);
}

/* A folder may have two records of one block, and others may build on either: all of them have been told of now. The
 * newer one counts, and the older one is found no more. */
static void drop_doubles(struct rn_mover *mover, enum rn_tier_kind kind)
{
    struct rn_mover_find *find = &mover->find[kind];

    for (uint32_t i = 0; i < 1u << find->bits;) {
        const struct rn_mover_slot *slot = &find->slots[i];

        if (slot->handle != 0 && mover->places[slot->place].at[kind].handle != slot->handle)
            rn_mover_find_remove(find, slot->handle); /* another may have moved up to here */
        else
            i++;
    }
}

static struct rn_tier_id id_of(const struct rn_mover *mover)
{
    const struct rn_context *context = mover->context;
    const struct rn_session_fingerprints *prints = rn_session_fingerprints_of(context);
    struct rn_tier_id id = {.model = prints->model,
                            .kv = prints->kv,
                            .block_tokens = context->limits->block_tokens,
                            .block_bytes = mover->block_bytes};

    strncpy(id.name, context->metrics->name, sizeof id.name - 1);
    return id;
}

static runnel_status open_warm(struct rn_mover *mover, runnel_error *error)
{
    const struct rn_context *context = mover->context;
    const struct rn_warm_options options = {.max_bytes = context->options->cache_warm_bytes,
                                            .block_tokens = context->limits->block_tokens,
                                            .payload_bytes = mover->payload_bytes};
    struct rn_warm_store *store;
    runnel_status status = rn_warm_store_open(context->heap, &options, &store, error);

    if (status == RUNNEL_OK)
        rn_mover_watch(mover, RN_TIER_WARM, rn_warm_store_tier(store));
    return status;
}

static void open_cold(struct rn_mover *mover, rn_mover_adopt_fn *adopt, void *user)
{
    const struct rn_context *context = mover->context;
    struct opening opening = {mover, RN_TIER_COLD, adopt, user};
    struct rn_tier_id id = id_of(mover);
    struct rn_cold_limits limits = {.max_bytes = cold_bytes(context),
                                    .max_records = places_in(context, cold_bytes(context), SMALLER_COLD)};
    struct rn_cold_store *store;
    runnel_error error = {0};

    if (rn_cold_store_open(context->heap, context->cold_io, context->options->cache_dir, &id, &limits, on_record,
                           &opening, &store, &error) == RUNNEL_OK) {
        drop_doubles(mover, RN_TIER_COLD);
        rn_mover_watch(mover, RN_TIER_COLD, rn_cold_store_tier(store));
    } else {
        rn_log(context->log, RUNNEL_LOG_WARNING, "%s: there is no cold cache tier: %s", context->metrics->name,
               error.message);
    }
}

/* The address or a certificate is wrong: that is the caller's error. That nobody answers there is not. */
static runnel_status open_shared(struct rn_mover *mover, rn_mover_adopt_fn *adopt, void *user, runnel_error *error)
{
    struct opening opening = {mover, RN_TIER_SHARED, adopt, user};
    const runnel_model_options *given = mover->context->options;
    const struct rn_redis_options options = {
        .url = given->cache_shared,
        .files = {given->cache_shared_ca, given->cache_shared_cert, given->cache_shared_key},
        .id = id_of(mover),
        .payload_bytes = mover->payload_bytes,
        .max_records = SHARED_PLACES,
    };
    struct rn_redis_store *store;
    runnel_status status = rn_redis_store_open(mover->context->heap, &options, on_record, &opening, &store, error);

    if (status == RUNNEL_OK)
        rn_mover_watch(mover, RN_TIER_SHARED, rn_redis_store_tier(store));
    return status;
}

static runnel_status open_tiers(struct rn_mover *mover, rn_mover_adopt_fn *adopt, void *user, runnel_error *error)
{
    const struct rn_context *context = mover->context;
    runnel_status status = RUNNEL_OK;

    if (context->options->cache_warm_bytes > 0)
        status = open_warm(mover, error);
    if (status == RUNNEL_OK && cold_bytes(context) > 0)
        open_cold(mover, adopt, user);
    if (status == RUNNEL_OK && mover->context->options->cache_shared != NULL)
        status = open_shared(mover, adopt, user, error);
    return status;
}

/* ---- Memory ---- */

/* At most half full. */
static bool take_find(struct rn_mover *mover, struct rn_mover_find *find)
{
    find->bits = 4;
    while (1u << (find->bits - 1) < mover->n_places + 1)
        find->bits++;
    find->slots = rn_calloc(mover->context->heap, (size_t)1 << find->bits, sizeof find->slots[0]);
    return find->slots != NULL;
}

static bool take_memory(struct rn_mover *mover)
{
    struct rn_backend *backend = mover->context->backend;
    struct rn_heap *heap = mover->context->heap;
    bool good = true;

    for (unsigned kind = 0; kind < RN_TIERS; kind++)
        good = take_find(mover, &mover->find[kind]) && good;
    mover->places = rn_calloc(heap, mover->n_places, sizeof mover->places[0]);
    mover->blocks = backend->ops->host_alloc(backend, RN_MOVE_BLOCKS * mover->block_bytes);
    mover->payload = rn_alloc(heap, mover->payload_bytes, 1);
    return good && mover->places != NULL && mover->blocks != NULL && mover->payload != NULL;
}

static runnel_status open_all(struct rn_mover *mover, rn_mover_adopt_fn *adopt, void *user, runnel_error *error)
{
    const struct rn_context *context = mover->context;
    struct rn_codec_options options = {.method = method_of(context),
                                       .unit_bytes = rn_kv_unit_bytes(context->limits->kv_type)};
    runnel_status status;

    mover->block_bytes = context->backend->ops->block_bytes(context->backend);
    options.block_bytes = mover->block_bytes;
    status = rn_block_codec_init(&mover->codec, context->heap, &options, error);
    if (status != RUNNEL_OK)
        return status;
    mover->payload_bytes = rn_block_codec_bound(&mover->codec);
    if (!take_memory(mover))
        return rn_error_set(error, RUNNEL_NO_MEMORY, "no memory for the cache tiers");
    status = open_tiers(mover, adopt, user, error);
    if (status != RUNNEL_OK || rn_mover_tiers(mover) == 0 || context->runtime->n_threads == 0)
        return status;
    mover->dedicated = rn_dedicated_new(context->heap, &mover->actor, rn_mover_listens(mover) ? rn_mover_idle : NULL);
    return mover->dedicated != NULL ? RUNNEL_OK
                                    : rn_error_set(error, RUNNEL_NO_MEMORY, "no thread for the cache tiers");
}

runnel_status rn_mover_init(struct rn_mover *mover, const struct rn_context *context, uint32_t n_places,
                            rn_mover_adopt_fn *adopt, void *user, runnel_error *error)
{
    runnel_status status = RUNNEL_OK;

    *mover = (struct rn_mover){.n_places = n_places};
    rn_mover_actor_init(mover, context);
    if (n_places > 0)
        status = open_all(mover, adopt, user, error);
    if (status != RUNNEL_OK)
        rn_mover_fini(mover);
    return status;
}

void rn_mover_fini(struct rn_mover *mover)
{
    struct rn_heap *heap = mover->context->heap;

    rn_dedicated_free(mover->dedicated);
    for (unsigned kind = 0; kind < RN_TIERS; kind++) {
        rn_tier_store_close(mover->tiers[kind].store);
        rn_free(heap, mover->find[kind].slots);
    }
    rn_block_codec_fini(&mover->codec);
    rn_free(heap, mover->places);
    if (mover->blocks != NULL)
        mover->context->backend->ops->host_free(mover->context->backend, mover->blocks);
    rn_free(heap, mover->payload);
}
