/* The prefix cache: see prefix_cache.h. */
#include "actors/tier/prefix_cache.h"

#include <string.h>

#include "actors/context.h"
#include "actors/embed.h"
#include "actors/lists.h"
#include "actors/request.h"
#include "actors/tier/session_slot.h"
#include "base/check.h"
#include "model/kv_size.h"

#define WORTH_STATE \
    4 /* blocks between two checkpoints: a step for what is left behind one takes about as long as one */
#define WORTH_COPY \
    8 /* of a block, the part from which on a copy is made: it holds the source too, until the request ends */
#define MORE_NODES 64 /* roots of salts that are in use, besides one per stream */

static uint32_t block_tokens(const struct rn_prefix_cache *cache)
{
    return cache->context->limits->block_tokens;
}

static struct rn_prefix_tree *tree_of(struct rn_prefix_cache *cache)
{
    return &cache->blocks.tree;
}

static bool shares(const struct rn_prefix_cache *cache, const struct rn_request *request)
{
    bool needs_all = request->want_logits || (request->embed != NULL && request->embed->pooling != RUNNEL_POOLING_LAST);

    return cache->shares && !needs_all && !request->apart;
}

/* ---- Init, fini, check ---- */

/* Each block can be a node, ready or pending; without the cache nothing ever is. */
static struct rn_prefix_options tree_options(const struct rn_prefix_cache *cache)
{
    const struct rn_context *context = cache->context;
    struct rn_directory *directory = cache->directory;
    uint64_t nodes = (uint64_t)context->limits->n_blocks + context->max_streams + MORE_NODES + directory->n;

    return (struct rn_prefix_options){
        .block_tokens = context->limits->block_tokens,
        .user = directory,
        .evicted = directory->n > 0 ? rn_directory_evicted : NULL,
        .forgotten = directory->n > 0 ? rn_directory_forgotten : NULL,
        .max_nodes = !cache->shares     ? 2
                     : nodes < 1u << 30 ? (uint32_t)nodes
                                        : 1u << 30,
    };
}

/* Not states and windows at once, and only where a checkpoint of windows finds room. */
static bool can_mark(const struct rn_backend_limits *limits)
{
    return limits->window == 0 || (limits->n_states == 0 && rn_window_marks_fit(limits));
}

runnel_status rn_prefix_cache_init(struct rn_prefix_cache *cache, const struct rn_context *context,
                                   struct rn_directory *directory)
{
    const struct rn_backend_limits *limits = context->limits;
    struct rn_prefix_options options;

    *cache = (struct rn_prefix_cache){.context = context, .directory = directory};
    cache->shares = !context->options->no_prefix_cache && limits->mean_window == 0 && can_mark(limits) &&
                    !rn_context_sees_both_ways(context); /* there, keys hang on what follows */
    rn_hit_ceiling_init(&cache->ceiling);
    cache->streams = rn_calloc(context->heap, context->max_streams, sizeof cache->streams[0]);
    cache->found = rn_alloc(context->heap, limits->context_tokens / limits->block_tokens + 1, sizeof *cache->found);
    options = tree_options(cache);
    if (cache->streams == NULL || cache->found == NULL ||
        rn_tier_blocks_init(&cache->blocks, context, &options) != RUNNEL_OK)
        goto fail_blocks;
    if (rn_state_slots_init(&cache->states, context->heap, tree_of(cache), limits->n_states, context->max_streams) !=
        RUNNEL_OK)
        goto fail_states;
    if (rn_window_marks_init(&cache->marks, context->heap, tree_of(cache), &cache->blocks.windows, limits) != RUNNEL_OK)
        goto fail_marks;
    rn_tails_init(&cache->tails, tree_of(cache), cache->streams);
    cache->pins.tree = tree_of(cache);
    rn_promotions_init(&cache->promotions, &cache->blocks, directory);
    return RUNNEL_OK;

fail_marks:
    rn_state_slots_fini(&cache->states);
fail_states:
    rn_tier_blocks_fini(&cache->blocks);
fail_blocks:
    rn_free(context->heap, cache->streams);
    rn_free(context->heap, cache->found);
    return RUNNEL_NO_MEMORY;
}

void rn_prefix_cache_fini(struct rn_prefix_cache *cache)
{
    rn_window_marks_fini(&cache->marks);
    rn_state_slots_fini(&cache->states);
    rn_tier_blocks_fini(&cache->blocks);
    rn_free(cache->context->heap, cache->streams);
    rn_free(cache->context->heap, cache->found);
}

static bool check_stream(const struct rn_prefix_cache *cache, const struct rn_cached_stream *stream)
{
    if (stream->path.state == RN_PATH_TOLD || (stream->path.state == RN_PATH_ENTERED && !cache->shares))
        return false;
    if ((stream->prompt == NULL) != (stream->blocks == NULL) || (stream->prompt == NULL && stream->n_blocks > 0))
        return false;
    if (stream->has_tail && (stream->n_tail == 0 || stream->path.state != RN_PATH_ENTERED))
        return false;
    if (!rn_window_marks_check(&cache->marks, &stream->windows))
        return false;
    if (cache->states.n > 0 ? !rn_state_slots_check(&cache->states, &stream->state) : stream->state.n > 0)
        return false;
    return stream->promotion == NULL || (stream->promotion->busy && stream->promotion->stream == stream);
}

bool rn_prefix_cache_check(const struct rn_prefix_cache *cache)
{
    for (uint32_t slot = 0; slot < cache->context->max_streams; slot++)
        if (!check_stream(cache, &cache->streams[slot]))
            return false;
    return rn_tier_blocks_check(&cache->blocks) && rn_tails_check(&cache->tails, cache->context->max_streams) &&
           rn_pins_check(&cache->pins) && rn_promotions_check(&cache->promotions);
}

/* ---- Admission ---- */

/* The session's blocks as far as they are computed. One that is written into is the session's alone, or is copied. */
static void fit_session(const struct rn_prefix_cache *cache, const struct rn_session *session, uint32_t own,
                        struct rn_prefix_fit *fit)
{
    uint32_t whole = own / block_tokens(cache);
    bool has_next = session != NULL && session->n_blocks > whole;

    fit->n_done = own;
    fit->n_kept = whole;
    if (has_next && rn_tier_blocks_is_own(&cache->blocks, session->blocks[whole]))
        fit->n_kept++;
    else if (has_next && own % block_tokens(cache) > 0)
        fit->copies = true, fit->source = session->blocks[whole];
    else
        fit->n_done = whole * block_tokens(cache);
}

/* The place behind so many whole blocks, of which `last` is the last. */
static struct rn_partial_place place_behind(const struct rn_request *request, struct rn_prefix_ref last, uint32_t n)
{
    const struct rn_prefix_ref none = {RN_PREFIX_NO_NODE, 0};

    return (struct rn_partial_place){rn_request_salt(request), n > 0 ? last : none};
}

/* The block that has the most of ids[n] behind those that were found; how many, 0: too few to be worth a copy. */
static uint32_t find_partial(struct rn_prefix_cache *cache, const struct rn_request *request,
                             const struct rn_prefix_match *found, const int32_t *ids, uint32_t n, uint32_t *block)
{
    struct rn_partial_place place = place_behind(request, found->ready, found->n_ready);
    uint32_t n_common = rn_tails_find(&cache->tails, found->ready, ids, n, block), left;
    uint32_t n_left = rn_partial_blocks_find(&cache->blocks.partials, &place, ids, n, &left);

    if (n_left > n_common) {
        n_common = n_left;
        *block = left;
    }
    return n_common * WORTH_COPY >= block_tokens(cache) ? n_common : 0;
}

/* False: the session has as much itself. One that was taken back copies nothing: the source is a block more, and it
 * must fit the pool alone. */
static bool fit_tree(struct rn_prefix_cache *cache, const struct rn_request *request, const int32_t *tokens,
                     uint32_t wanted, uint32_t own, struct rn_prefix_fit *fit)
{
    uint32_t n_whole = fit->found.n_ready * block_tokens(cache), n_common = 0;

    if (shares(cache, request) && !request->resumed)
        n_common = find_partial(cache, request, &fit->found, tokens + n_whole, wanted - n_whole, &fit->source);
    if (n_whole + n_common <= own)
        return false;
    fit->from_tree = true;
    fit->copies = n_common > 0;
    fit->n_kept = fit->found.n_ready;
    fit->n_done = n_whole + n_common;
    return true;
}

static bool is_patient(const struct rn_prefix_cache *cache, const struct rn_request *request)
{
    switch ((runnel_cache_wait)request->cache_wait) {
    case RUNNEL_CACHE_WAIT:
        return true;
    case RUNNEL_CACHE_DEADLINE:
        return rn_now_us(cache->context->clock) - request->submitted_us < (uint64_t)request->cache_wait_ms * 1000;
    default:
        return false;
    }
}

/* True: the path is a promotion's, and the request does not wait for those (any more). */
static bool passes_by(const struct rn_prefix_cache *cache, const struct rn_request *request,
                      const struct rn_prefix_path *path)
{
    return rn_promotions_has(&cache->promotions, path) && !is_patient(cache, request);
}

/* Who computes the last of the found blocks leaves a checkpoint there. */
static bool leaves_checkpoint(const struct rn_prefix_cache *cache, const struct rn_prefix_match *found)
{
    uint32_t at = (found->n_ready + found->n_pending) * block_tokens(cache);
    const struct rn_cached_stream *stream = (const struct rn_cached_stream *)found->computing;

    if (found->n_pending == 0)
        return false;
    RN_ASSERT(stream >= cache->streams && stream < cache->streams + cache->context->max_streams);
    for (uint32_t i = stream->state.n_left; i + 1 < stream->state.n; i++)
        if (stream->state.ends[i] == at)
            return true;
    for (uint32_t i = stream->windows.n_left; i < stream->windows.n_ends; i++)
        if (stream->windows.ends[i] == at)
            return true;
    return false;
}

/* A checkpoint at this position is worth what it costs: a step ends there, and a state is copied. */
static void add_end(const struct rn_prefix_cache *cache, struct rn_prefix_fit *fit, uint32_t end)
{
    uint32_t before = fit->n_ends > 0 ? fit->ends[fit->n_ends - 1] : fit->n_done;

    if (end < before || end - before < WORTH_STATE * block_tokens(cache))
        return;
    RN_ASSERT(fit->n_ends < RN_STATE_TURNS);
    fit->ends[fit->n_ends++] = end;
}

/* As far as there is a checkpoint; `wanted` tokens may be shared. */
static void fit_checkpoint(struct rn_prefix_cache *cache, const struct rn_request *request, const int32_t *tokens,
                           uint32_t wanted, struct rn_prefix_fit *fit)
{
    uint32_t per_block = block_tokens(cache), n_known = fit->found.n_ready + fit->found.n_pending;

    fit->pending = leaves_checkpoint(cache, &fit->found);
    if (fit->pending)
        return;
    if (cache->marks.n > 0)
        fit->mark = rn_window_marks_find(&cache->marks, fit->ready, fit->found.n_ready, &fit->n_kept);
    else
        fit->state = rn_state_slots_find(&cache->states, fit->ready, fit->found.n_ready, &fit->n_kept);
    rn_prefix_tree_match(tree_of(cache), rn_request_salt(request), tokens, fit->n_kept * per_block, cache->found,
                         &fit->found);
    RN_CHECK(fit->found.n_ready == fit->n_kept);
    fit->from_tree = fit->n_kept > 0;
    fit->n_done = fit->n_kept * per_block;
    add_end(cache, fit, n_known * per_block);
    add_end(cache, fit, wanted / per_block * per_block);
}

void rn_prefix_cache_look_up(struct rn_prefix_cache *cache, const struct rn_request *request,
                             const struct rn_session *session, const int32_t *tokens, uint32_t n_prompt,
                             struct rn_prefix_fit *fit)
{
    uint32_t own = session != NULL ? session->n_computed : 0;
    uint32_t wanted = shares(cache, request) ? n_prompt - 1 : 0;

    RN_ASSERT(n_prompt > 0);
    if (own >= n_prompt) /* the logits of its last position are needed still */
        own = n_prompt - 1;
    *fit = (struct rn_prefix_fit){.ready = cache->found, .state = RN_NO_STATE, .mark = RN_NO_MARK};
    rn_prefix_tree_match(tree_of(cache), rn_request_salt(request), tokens, wanted, cache->found, &fit->found);
    if (cache->states.n > 0 || cache->context->limits->window > 0) { /* a session's blocks are of no use alone */
        fit_checkpoint(cache, request, tokens, wanted, fit);
    } else if (fit->found.n_pending > 0 && (fit->found.n_ready + fit->found.n_pending) * block_tokens(cache) > own &&
               !passes_by(cache, request, fit->found.computing)) {
        fit->pending = true;
    } else if (!fit_tree(cache, request, tokens, wanted, own, fit)) {
        fit_session(cache, session, own, fit);
    }
    RN_ASSERT(fit->pending || fit->n_done < n_prompt);
}

void rn_prefix_cache_wait(struct rn_prefix_cache *cache, const struct rn_request *request,
                          const struct rn_prefix_fit *fit)
{
    RN_CHECK(rn_prefix_tree_wait(tree_of(cache), &cache->streams[request->slot].path, &fit->found));
}

bool rn_prefix_cache_waits(const struct rn_prefix_cache *cache, uint32_t slot)
{
    return cache->streams[slot].path.state == RN_PATH_WAITING;
}

bool rn_prefix_cache_give_up_waiting(struct rn_prefix_cache *cache, uint32_t slot)
{
    struct rn_prefix_woken woken = {NULL, NULL};

    if (!rn_prefix_cache_waits(cache, slot))
        return false;
    rn_prefix_tree_leave(tree_of(cache), &cache->streams[slot].path, &woken);
    RN_ASSERT(woken.first == NULL); /* it has claimed nothing */
    return true;
}

bool rn_prefix_cache_wants_promotion(const struct rn_prefix_cache *cache, const struct rn_request *request,
                                     const struct rn_prefix_fit *fit)
{
    return !fit->pending && request->cache_wait != RUNNEL_CACHE_BEST_EFFORT &&
           rn_promotions_can_begin(&cache->promotions, &cache->streams[request->slot], &fit->found) &&
           (fit->found.n_ready + fit->found.n_cold) * block_tokens(cache) > fit->n_done;
}

void rn_prefix_cache_promote(struct rn_prefix_cache *cache, const struct rn_request *request, const int32_t *tokens,
                             const struct rn_prefix_fit *fit)
{
    rn_promotions_begin(&cache->promotions, &cache->streams[request->slot], rn_request_salt(request), tokens,
                        &fit->found, fit->ready);
}

/* So many blocks can be had without asking anybody for them. */
static bool can_have(struct rn_prefix_cache *cache, const struct rn_prefix_fit *fit, uint32_t n)
{
    const struct rn_block_pool *pool = &cache->blocks.pool;

    rn_tier_blocks_ref(&cache->blocks, fit->ready, fit->found.n_ready);
    if (pool->n_free < n)
        rn_tier_blocks_evict(&cache->blocks, n - pool->n_free);
    rn_tier_blocks_unref(&cache->blocks, fit->ready, fit->found.n_ready);
    return pool->n_free >= n;
}

/* A quarter of the pool at most is on its way for those that wait. */
void rn_prefix_cache_prefetch(struct rn_prefix_cache *cache, const struct rn_request *request)
{
    struct rn_prefix_fit fit;

    if (cache->directory->tiers == 0 || request->session_generation != 0 || request->n_tokens < 2 ||
        request->n_tokens > cache->context->limits->context_tokens)
        return;
    rn_prefix_cache_look_up(cache, request, NULL, request->tokens, request->n_tokens, &fit);
    if (!rn_promotions_can_begin(&cache->promotions, &cache->streams[request->slot], &fit.found) ||
        fit.found.n_pending > 0 ||
        rn_promotions_on_the_way(&cache->promotions) + fit.found.n_cold > cache->blocks.pool.n_blocks / 4 ||
        !can_have(cache, &fit, fit.found.n_cold))
        return;
    rn_prefix_cache_promote(cache, request, request->tokens, &fit);
}

bool rn_prefix_cache_take_state(struct rn_prefix_cache *cache, struct rn_request *request,
                                const struct rn_prefix_fit *fit)
{
    return cache->states.n == 0 || rn_state_slots_take(&cache->states, &cache->streams[request->slot].state, request,
                                                       fit->state, fit->ends, shares(cache, request) ? fit->n_ends : 0);
}

void rn_prefix_cache_drop_state(struct rn_prefix_cache *cache, const struct rn_request *request)
{
    if (cache->states.n > 0)
        rn_state_slots_leave(&cache->states, &cache->streams[request->slot].state, true);
}

bool rn_prefix_cache_has_windows(struct rn_prefix_cache *cache, struct rn_prefix_fit *fit, uint32_t limit)
{
    return cache->context->limits->window == 0 ||
           rn_window_marks_make_room(&cache->marks, fit->mark, fit->n_kept, limit, fit->ends, &fit->n_ends);
}

void rn_prefix_cache_begin_windows(struct rn_prefix_cache *cache, struct rn_request *request,
                                   const struct rn_prefix_fit *fit, uint32_t limit)
{
    struct rn_window_lease *lease = &cache->streams[request->slot].windows;

    RN_ASSERT(lease->windows.blocks == NULL);
    rn_window_marks_begin(&cache->marks, fit->mark, fit->n_kept, limit, fit->ends, fit->n_ends, request);
    lease->n_left = 0;
    lease->n_ends = 0;
    lease->n_wanted = fit->n_ends;
    lease->all = rn_kv_size_round(limit, block_tokens(cache));
    memcpy(lease->ends, fit->ends, sizeof lease->ends);
}

/* The tier's own copy of the table, from which it knows later what stands where. */
static bool copy_windows(struct rn_prefix_cache *cache, const struct rn_request *request)
{
    struct rn_window_lease *lease = &cache->streams[request->slot].windows;

    if (cache->marks.n == 0 || lease->n_wanted == 0)
        return true;
    lease->windows = request->windows;
    lease->windows.blocks = rn_alloc(request->heap, lease->all, sizeof lease->windows.blocks[0]);
    if (lease->windows.blocks == NULL) {
        lease->windows.n = lease->windows.n_passed = 0;
        return false;
    }
    memcpy(lease->windows.blocks, request->windows.blocks, request->windows.n * sizeof lease->windows.blocks[0]);
    lease->n_ends = lease->n_wanted;
    return true;
}

static void drop_windows(struct rn_prefix_cache *cache, const struct rn_request *request)
{
    struct rn_window_lease *lease = &cache->streams[request->slot].windows;

    rn_free(request->heap, lease->windows.blocks);
    *lease = (struct rn_window_lease){.n_ends = 0};
}

runnel_status rn_prefix_cache_prepare(struct rn_prefix_cache *cache, const struct rn_request *request)
{
    struct rn_cached_stream *stream = &cache->streams[request->slot];
    uint32_t per_block = block_tokens(cache);
    uint32_t n_blocks = request->n_fill / per_block, n_tail = request->n_fill % per_block;

    RN_ASSERT(stream->prompt == NULL && stream->blocks == NULL && request->n_done < request->n_fill);
    if (!shares(cache, request) || n_blocks == request->n_done / per_block)
        return RUNNEL_OK;
    stream->prompt = rn_alloc(request->heap, request->n_fill, sizeof *stream->prompt);
    stream->blocks = rn_alloc(request->heap, n_blocks + 1, sizeof *stream->blocks);
    if (stream->prompt == NULL || stream->blocks == NULL || !copy_windows(cache, request)) {
        rn_free(request->heap, stream->prompt);
        rn_free(request->heap, stream->blocks);
        stream->prompt = NULL;
        stream->blocks = NULL;
        return RUNNEL_NO_MEMORY;
    }
    memcpy(stream->prompt, request->tokens, request->n_fill * sizeof *stream->prompt);
    memcpy(stream->blocks, request->blocks, (n_blocks + (n_tail > 0)) * sizeof *stream->blocks);
    RN_ASSERT(n_blocks + (n_tail > 0) <= request->n_blocks && n_tail < per_block);
    stream->n_blocks = n_blocks;
    stream->n_tail = n_tail;
    return RUNNEL_OK;
}

static void count_prompt(struct rn_prefix_cache *cache, const struct rn_request *request)
{
    struct rn_totals *totals = cache->context->totals;
    uint64_t n_seen = cache->ceiling.n_seen;
    int64_t n_known;

    rn_hit_ceiling_add(&cache->ceiling, rn_request_salt(request), request->tokens, request->n_prompt - 1,
                       block_tokens(cache));
    n_known = (int64_t)(rn_hit_ceiling_rate(&cache->ceiling) * (double)cache->ceiling.n_seen);
    rn_counter_add(&totals->asked_blocks, (int64_t)(cache->ceiling.n_seen - n_seen));
    rn_counter_add(&totals->known_blocks, n_known - cache->known_blocks);
    cache->known_blocks = n_known;
}

void rn_prefix_cache_enter(struct rn_prefix_cache *cache, struct rn_request *request, const struct rn_prefix_fit *fit)
{
    struct rn_cached_stream *stream = &cache->streams[request->slot];
    uint32_t n_full = request->n_done / block_tokens(cache);
    struct rn_prefix_woken woken = {NULL, NULL};

    RN_ASSERT(fit->n_kept <= request->n_blocks && fit->n_done == request->n_done);
    RN_ASSERT(stream->path.state == RN_PATH_OUT && !stream->has_tail);
    stream->timed = false;
    stream->n_timed = request->n_done;
    stream->timed_us = rn_now_us(cache->context->clock);
    if (fit->from_tree && fit->found.n_ready > 0)
        rn_directory_used(cache->directory, fit->found.ready);
    if (!request->resumed)
        count_prompt(cache, request);
    request->n_told = stream->n_blocks > n_full ? request->n_done : UINT32_MAX;
    if (!shares(cache, request))
        return;
    rn_directory_computing(cache->directory, request->blocks + n_full, request->n_blocks - n_full);
    rn_prefix_tree_enter(tree_of(cache), &stream->path, rn_request_salt(request), request->tokens,
                         request->want_progress ? fit->found.n_ready * block_tokens(cache) : request->n_fill,
                         &fit->found);
    rn_prefix_tree_publish(tree_of(cache), &stream->path, request->tokens, request->blocks, n_full, NULL, &woken);
    rn_tier_blocks_tell(&cache->blocks, &woken);
}

void rn_prefix_cache_count_lower(const struct rn_prefix_cache *cache, struct rn_request *request)
{
    uint32_t left = request->n_cached;

    for (unsigned kind = 0; kind < RN_TIERS; kind++) {
        uint32_t n = cache->streams[request->slot].n_from[kind] * block_tokens(cache);

        request->n_lower[kind] = n < left ? n : left;
        left -= request->n_lower[kind];
    }
}

bool rn_prefix_cache_drop_pin(struct rn_prefix_cache *cache)
{
    return rn_pins_drop(&cache->pins);
}

/* ---- While it runs, and afterwards ---- */

void rn_prefix_cache_publish(struct rn_prefix_cache *cache, const struct rn_computed *computed)
{
    struct rn_cached_stream *stream = &cache->streams[computed->slot];
    uint32_t n_blocks = computed->n_positions / block_tokens(cache);
    struct rn_prefix_woken woken = {NULL, NULL};
    uint64_t now_us = rn_now_us(cache->context->clock);

    RN_CHECK(n_blocks <= stream->n_blocks);
    RN_ASSERT(stream->path.state == RN_PATH_ENTERED && computed->n_positions >= stream->n_timed);
    rn_prefix_tree_publish(tree_of(cache), &stream->path, stream->prompt, stream->blocks, n_blocks, NULL, &woken);
    rn_tier_blocks_tell(&cache->blocks, &woken);
    if (cache->states.n > 0 &&
        rn_state_slots_reached(&cache->states, &stream->state, computed->n_positions, stream->path.at))
        cache->blocks.woken = true;
    if (stream->windows.n_ends > 0)
        rn_window_marks_reached(&cache->marks, &stream->windows, computed->n_positions, stream->path.at);
    rn_directory_timed(cache->directory, computed->n_positions, computed->n_positions - stream->n_timed,
                       now_us - stream->timed_us, !stream->timed);
    stream->timed = true;
    stream->n_timed = computed->n_positions;
    stream->timed_us = now_us;
    if (computed->n_positions == stream->n_blocks * block_tokens(cache) + stream->n_tail)
        rn_tails_offer(&cache->tails, stream, computed->slot);
}

/* Two blocks of one content are one too many once no step reads the table: and what the tree has below its own would
 * keep both. */
static void change_over(struct rn_prefix_cache *cache, struct rn_request *request, uint32_t n_blocks)
{
    struct rn_prefix_match found;

    rn_prefix_tree_match(tree_of(cache), rn_request_salt(request), request->tokens, n_blocks * block_tokens(cache),
                         cache->found, &found);
    RN_CHECK(found.n_ready <= n_blocks && n_blocks <= request->n_blocks);
    for (uint32_t i = 0; i < found.n_ready; i++) {
        if (cache->found[i] == request->blocks[i])
            continue;
        rn_tier_blocks_ref(&cache->blocks, &cache->found[i], 1);
        rn_tier_blocks_unref(&cache->blocks, &request->blocks[i], 1);
        request->blocks[i] = cache->found[i];
    }
}

static uint32_t n_computed(const struct rn_request *request)
{
    return request->n_done < request->n_tokens ? request->n_done : request->n_tokens;
}

/* How many of its blocks are in the tree then. */
static uint32_t publish_rest(struct rn_prefix_cache *cache, const struct rn_request *request,
                             struct rn_prefix_path *path)
{
    struct rn_prefix_woken woken = {NULL, NULL};
    uint32_t n = rn_prefix_tree_publish(tree_of(cache), path, request->tokens, request->blocks,
                                        n_computed(request) / block_tokens(cache), NULL, &woken);

    rn_tier_blocks_tell(&cache->blocks, &woken);
    return n;
}

/* What a request that has ended leaves behind its whole blocks, of which the tree has n. Not of a session, which goes
 * on writing there; not if the tree has the same in another block; and what is not worth a copy is not worth a
 * block. */
static void keep_partial(struct rn_prefix_cache *cache, const struct rn_request *request, struct rn_prefix_ref last,
                         uint32_t n)
{
    uint32_t per_block = block_tokens(cache), block;
    uint32_t n_left = n_computed(request) % per_block;
    const int32_t *ids = request->tokens + (size_t)n * per_block;
    struct rn_partial_place place = place_behind(request, last, n);

    if (request->outcome == RN_OUTCOME_NONE || request->session_generation != 0 || request->copy == RN_COPY_WANTED ||
        n_computed(request) / per_block != n || n_left * WORTH_COPY < per_block || cache->states.n > 0 ||
        cache->context->limits->window > 0 ||
        rn_prefix_tree_nearest(tree_of(cache), last, ids, n_left, &block) == n_left)
        return;
    RN_ASSERT(n < request->n_blocks && request->n_gone == 0);
    rn_partial_blocks_keep(&cache->blocks.partials, &place, ids, n_left, request->blocks[n]);
}

/* A copy that was not made leaves its place to the block that was to be copied. */
static void settle_copy(struct rn_prefix_cache *cache, struct rn_request *request)
{
    uint32_t spare = request->copy_from;

    if (request->copy == RN_COPY_NONE)
        return;
    RN_CHECK(request->copy_at < request->n_blocks);
    if (request->copy == RN_COPY_WANTED) {
        spare = request->blocks[request->copy_at];
        request->blocks[request->copy_at] = request->copy_from;
    }
    request->copy = RN_COPY_NONE;
    rn_tier_blocks_unref(&cache->blocks, &spare, 1);
}

/* What the request asks for with its prompt's whole blocks; the tree has its first n blocks, of which `last` is the
 * last. */
static void pin(struct rn_prefix_cache *cache, const struct rn_request *request, struct rn_prefix_ref last, uint32_t n)
{
    uint32_t n_prompt = request->n_prompt / block_tokens(cache);
    struct rn_prefix_view view;

    if (request->pin_prefix == 0 || n == 0 || n_prompt == 0 || request->n_shifts > 0)
        return;
    while (rn_prefix_tree_look(tree_of(cache), last, &view) && view.n_blocks > n_prompt)
        last = view.parent;
    if (request->pin_prefix == 1)
        rn_pins_keep(&cache->pins, last);
    else
        rn_pins_let_go(&cache->pins, last);
}

void rn_prefix_cache_leave(struct rn_prefix_cache *cache, struct rn_request *request)
{
    struct rn_cached_stream *stream = &cache->streams[request->slot];
    bool entered = stream->path.state == RN_PATH_ENTERED;
    bool good = request->outcome != RN_OUTCOME_FAILED && !request->suspect;
    uint32_t n_shared = request->n_shared; /* blocks that it has not computed */
    struct rn_prefix_woken woken = {NULL, NULL};

    if (entered && good) {
        n_shared = publish_rest(cache, request, &stream->path);
        rn_directory_left(cache->directory, request, stream->path.at, n_shared);
        pin(cache, request, stream->path.at, n_shared);
        keep_partial(cache, request, stream->path.at, n_shared);
    }
    rn_prefix_tree_leave(tree_of(cache), &stream->path, &woken);
    rn_directory_distrust(cache->directory, true);
    if (entered && !good)
        rn_prefix_tree_forget(tree_of(cache), request->blocks + n_shared, request->n_blocks - n_shared, &woken);
    rn_directory_distrust(cache->directory, false);
    if (entered)
        rn_directory_proved(cache->directory, request->blocks + request->n_shared,
                            request->n_blocks - request->n_shared);
    rn_tier_blocks_tell(&cache->blocks, &woken);
    RN_ASSERT(stream->path.state == RN_PATH_OUT && stream->path.n_claims == 0);
    rn_promotions_let_go(stream);
    if (entered)
        change_over(cache, request, n_shared);
    settle_copy(cache, request);
    rn_free(request->heap, stream->prompt);
    rn_free(request->heap, stream->blocks);
    stream->prompt = NULL;
    stream->blocks = NULL;
    stream->n_blocks = stream->n_tail = 0;
    stream->has_tail = false;
    drop_windows(cache, request);
    if (cache->states.n > 0)
        rn_state_slots_leave(&cache->states, &stream->state, good);
}

void rn_prefix_cache_arrived(struct rn_prefix_cache *cache, const struct rn_move *move, uint32_t n_others)
{
    rn_promotions_arrived(&cache->promotions, move, n_others);
}

void rn_prefix_cache_send_promotions(struct rn_prefix_cache *cache)
{
    rn_promotions_send(&cache->promotions);
}
