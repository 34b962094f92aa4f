/* The tier and its prefix tree: see tier_cache.h. */
#include "actors/tier_cache.h"

#include <string.h>
#include <sys/random.h>

#include "actors/context.h"
#include "actors/embed.h"
#include "actors/lists.h"
#include "actors/note.h"
#include "actors/tier_promote.h"
#include "actors/tier_tail.h"
#include "base/check.h"

#define LONG_TOKENS 512 /* computed by one request: seconds on a CPU, and a tenth of that to write and read once */
#define MORE_NODES 64   /* roots of salts that are in use, besides one per stream */

static uint32_t block_tokens(const struct rn_tier *tier)
{
    return tier->context->limits->block_tokens;
}

static bool shares(const struct rn_tier *tier, const struct rn_request *request)
{
    bool needs_all = request->want_logits || (request->embed != NULL && request->embed->pooling != RUNNEL_POOLING_LAST);

    return tier->shares && !needs_all && !request->apart;
}

static struct rn_prefix_salt salt_of(const struct rn_request *request)
{
    return (struct rn_prefix_salt){{request->cache_salt, 0}};
}

/* ---- Init and fini ---- */

/* Each block can be a node, ready or pending; without the cache nothing ever is. */
static runnel_status init_tree(struct rn_tier *tier, struct rn_heap *heap)
{
    uint64_t nodes = (uint64_t)tier->pool.n_blocks + tier->context->max_streams + MORE_NODES + tier->shelf.n;
    struct rn_prefix_options options = {
        .block_tokens = block_tokens(tier),
        .user = tier,
        .evicted = tier->shelf.n > 0 ? rn_tier_evicted : NULL,
        .forgotten = tier->shelf.n > 0 ? rn_tier_forgotten : NULL,
        .max_nodes = !tier->shares      ? 2
                     : nodes < 1u << 30 ? (uint32_t)nodes
                                        : 1u << 30,
    };

    /* Without it prompts could be made to collide, which would cost time and nothing else. */
    if (getrandom(&options.seed, sizeof options.seed, GRND_NONBLOCK) != (ssize_t)sizeof options.seed)
        options.seed = (uintptr_t)tier;
    return rn_prefix_tree_init(&tier->tree, heap, &tier->pool, &options);
}

runnel_status rn_tier_cache_init(struct rn_tier *tier)
{
    const struct rn_backend_limits *limits = tier->context->limits;
    struct rn_heap *heap = tier->context->heap;

    tier->shares = !tier->context->options->no_prefix_cache && limits->mean_window == 0;
    rn_hit_ceiling_init(&tier->ceiling);
    rn_tier_tail_init(tier);
    tier->tokens = rn_alloc(heap, limits->context_tokens, sizeof *tier->tokens);
    tier->found = rn_alloc(heap, limits->context_tokens / limits->block_tokens + 1, sizeof *tier->found);
    if (tier->tokens != NULL && tier->found != NULL && init_tree(tier, heap) == RUNNEL_OK)
        return RUNNEL_OK;
    rn_free(heap, tier->tokens);
    rn_free(heap, tier->found);
    return RUNNEL_NO_MEMORY;
}

void rn_tier_cache_fini(struct rn_tier *tier)
{
    struct rn_heap *heap = tier->context->heap;

    rn_prefix_tree_fini(&tier->tree);
    rn_free(heap, tier->tokens);
    rn_free(heap, tier->found);
}

/* ---- References ---- */

void rn_tier_count_used(struct rn_tier *tier, int64_t n)
{
    tier->n_used += (uint32_t)n;
    rn_note_blocks(tier->context, n);
}

/* Used are blocks that a request or a session holds. */
void rn_tier_ref(struct rn_tier *tier, const uint32_t *blocks, uint32_t n)
{
    int64_t n_used = 0;

    for (uint32_t i = 0; i < n; i++)
        n_used += rn_block_pool_references(&tier->pool, blocks[i]) == rn_prefix_tree_has(&tier->tree, blocks[i]);
    rn_prefix_tree_ref(&tier->tree, blocks, n);
    rn_tier_count_used(tier, n_used);
}

void rn_tier_take_back(struct rn_tier *tier, const uint32_t *blocks, uint32_t n)
{
    int64_t n_used = 0;

    rn_prefix_tree_unref(&tier->tree, blocks, n);
    for (uint32_t i = 0; i < n; i++)
        n_used += rn_block_pool_references(&tier->pool, blocks[i]) == rn_prefix_tree_has(&tier->tree, blocks[i]);
    rn_tier_count_used(tier, -n_used);
}

void rn_tier_end_loan(struct rn_tier *tier, uint32_t block)
{
    rn_prefix_tree_end_loan(&tier->tree, block);
    if (rn_block_pool_references(&tier->pool, block) == rn_prefix_tree_has(&tier->tree, block))
        rn_tier_count_used(tier, -1);
}

uint32_t rn_tier_evict(struct rn_tier *tier, uint32_t n)
{
    uint32_t n_freed = rn_prefix_tree_evict(&tier->tree, n);

    rn_note_evicted(tier->context, n_freed);
    return n_freed;
}

/* Their requests are in the queue still; nothing else may happen to the tree before they are told. */
static void tell_woken(struct rn_tier *tier, struct rn_prefix_woken *woken)
{
    while (rn_prefix_woken_pop(woken) != NULL)
        tier->woke = true;
}

/* ---- Admission ---- */

/* The session's blocks as far as they are computed. One that is written into is the session's alone, or is copied. */
static void fit_session(const struct rn_tier *tier, const struct rn_session *session, uint32_t own, struct rn_fit *fit)
{
    uint32_t whole = own / block_tokens(tier);
    bool has_next = session != NULL && session->n_blocks > whole;

    fit->n_done = own;
    fit->n_kept = whole;
    if (has_next && rn_block_pool_references(&tier->pool, session->blocks[whole]) == 1)
        fit->n_kept++;
    else if (has_next && own % block_tokens(tier) > 0)
        fit->copies = true, fit->source = session->blocks[whole];
    else
        fit->n_done = whole * block_tokens(tier);
}

/* False: the session has as much itself. One that was taken back copies nothing: the source is a block more, and it
 * must fit the pool alone. */
static bool fit_tree(const struct rn_tier *tier, const struct rn_request *request, uint32_t wanted, uint32_t own,
                     struct rn_fit *fit)
{
    uint32_t n_whole = fit->found.n_ready * block_tokens(tier), n_common = 0;

    if (shares(tier, request) && !request->resumed)
        n_common = rn_tier_tail_find(tier, fit->found.ready, tier->tokens + n_whole, wanted - n_whole, &fit->source);
    if (n_whole + n_common <= own)
        return false;
    fit->from_tree = true;
    fit->copies = n_common > 0;
    fit->n_kept = fit->found.n_ready;
    fit->n_done = n_whole + n_common;
    return true;
}

void rn_tier_look_up(struct rn_tier *tier, const struct rn_request *request, const struct rn_session *session,
                     uint32_t n_prompt, struct rn_fit *fit)
{
    uint32_t own = session != NULL ? session->n_computed : 0;
    uint32_t wanted = shares(tier, request) ? n_prompt - 1 : 0;

    if (own >= n_prompt) /* the logits of its last position are needed still */
        own = n_prompt - 1;
    *fit = (struct rn_fit){.from_tree = false};
    rn_prefix_tree_match(&tier->tree, salt_of(request), tier->tokens, wanted, tier->found, &fit->found);
    if (fit->found.n_pending > 0 && (fit->found.n_ready + fit->found.n_pending) * block_tokens(tier) > own &&
        !rn_tier_passes_by(tier, request, fit->found.computing)) {
        fit->pending = true;
    } else if (!fit_tree(tier, request, wanted, own, fit)) {
        fit_session(tier, session, own, fit);
    }
}

runnel_status rn_tier_prepare(struct rn_tier *tier, const struct rn_request *request)
{
    struct rn_passage *passage = &tier->passages[request->slot];
    uint32_t per_block = block_tokens(tier);
    uint32_t n_blocks = request->n_fill / per_block, n_tail = request->n_fill % per_block;

    if (!shares(tier, request) || n_blocks == request->n_done / per_block)
        return RUNNEL_OK;
    passage->prompt = rn_alloc(request->heap, request->n_fill, sizeof *passage->prompt);
    passage->blocks = rn_alloc(request->heap, n_blocks + 1, sizeof *passage->blocks);
    if (passage->prompt == NULL || passage->blocks == NULL) {
        rn_free(request->heap, passage->prompt);
        rn_free(request->heap, passage->blocks);
        passage->prompt = NULL;
        passage->blocks = NULL;
        return RUNNEL_NO_MEMORY;
    }
    memcpy(passage->prompt, request->tokens, request->n_fill * sizeof *passage->prompt);
    memcpy(passage->blocks, request->blocks, (n_blocks + (n_tail > 0)) * sizeof *passage->blocks);
    passage->n_blocks = n_blocks;
    passage->n_tail = n_tail;
    return RUNNEL_OK;
}

static void count_prompt(struct rn_tier *tier, const struct rn_request *request)
{
    struct rn_totals *totals = tier->context->totals;
    uint64_t n_seen = tier->ceiling.n_seen;
    int64_t n_known;

    rn_hit_ceiling_add(&tier->ceiling, salt_of(request), request->tokens, request->n_prompt - 1, block_tokens(tier));
    n_known = (int64_t)(rn_hit_ceiling_rate(&tier->ceiling) * (double)tier->ceiling.n_seen);
    rn_counter_add(&totals->asked_blocks, (int64_t)(tier->ceiling.n_seen - n_seen));
    rn_counter_add(&totals->known_blocks, n_known - tier->known_blocks);
    tier->known_blocks = n_known;
}

void rn_tier_enter(struct rn_tier *tier, struct rn_request *request, const struct rn_fit *fit)
{
    struct rn_passage *passage = &tier->passages[request->slot];
    uint32_t n_full = request->n_done / block_tokens(tier);
    struct rn_prefix_woken woken = {NULL, NULL};

    passage->timed = false;
    passage->n_timed = request->n_done;
    passage->timed_us = rn_now_us(tier->context->clock);
    if (fit->from_tree && fit->found.n_ready > 0)
        rn_tier_shelf_used(tier, fit->found.ready);
    if (!request->resumed)
        count_prompt(tier, request);
    request->n_told = passage->n_blocks > n_full ? request->n_done : UINT32_MAX;
    if (!shares(tier, request))
        return;
    rn_tier_shelf_computing(tier, request->blocks + n_full, request->n_blocks - n_full);
    rn_prefix_tree_enter(&tier->tree, &passage->path, salt_of(request), request->tokens,
                         request->want_progress ? fit->found.n_ready * block_tokens(tier) : request->n_fill,
                         &fit->found);
    rn_prefix_tree_publish(&tier->tree, &passage->path, request->tokens, request->blocks, n_full, NULL, &woken);
    tell_woken(tier, &woken);
}

/* ---- While it runs, and afterwards ---- */

void rn_tier_publish(struct rn_tier *tier, const struct rn_computed *computed)
{
    struct rn_passage *passage = &tier->passages[computed->slot];
    uint32_t n_blocks = computed->n_positions / block_tokens(tier);
    struct rn_prefix_woken woken = {NULL, NULL};
    uint64_t now_us = rn_now_us(tier->context->clock);

    RN_CHECK(passage->passed == computed->generation && n_blocks <= passage->n_blocks);
    rn_prefix_tree_publish(&tier->tree, &passage->path, passage->prompt, passage->blocks, n_blocks, NULL, &woken);
    tell_woken(tier, &woken);
    rn_tier_cost_computed(&tier->shelf.cost, computed->n_positions, computed->n_positions - passage->n_timed,
                          now_us - passage->timed_us, !passage->timed);
    passage->timed = true;
    passage->n_timed = computed->n_positions;
    passage->timed_us = now_us;
    if (computed->n_positions == passage->n_blocks * block_tokens(tier) + passage->n_tail)
        rn_tier_tail_offer(tier, computed->slot);
}

/* Two blocks of one content are one too many once no step reads the table: and what the tree has below its own would
 * keep both. */
static void change_over(struct rn_tier *tier, struct rn_request *request, uint32_t n_blocks)
{
    struct rn_prefix_match found;

    rn_prefix_tree_match(&tier->tree, salt_of(request), request->tokens, n_blocks * block_tokens(tier), tier->found,
                         &found);
    for (uint32_t i = 0; i < found.n_ready; i++) {
        if (tier->found[i] == request->blocks[i])
            continue;
        rn_tier_ref(tier, &tier->found[i], 1);
        rn_tier_take_back(tier, &request->blocks[i], 1);
        request->blocks[i] = tier->found[i];
    }
}

/* How many of its blocks are in the tree then. */
static uint32_t publish_rest(struct rn_tier *tier, const struct rn_request *request, struct rn_prefix_path *path)
{
    uint32_t n_computed = request->n_done < request->n_tokens ? request->n_done : request->n_tokens;
    struct rn_prefix_woken woken = {NULL, NULL};
    uint32_t n = rn_prefix_tree_publish(&tier->tree, path, request->tokens, request->blocks,
                                        n_computed / block_tokens(tier), NULL, &woken);

    tell_woken(tier, &woken);
    return n;
}

/* A copy that was not made leaves its place to the block that was to be copied. */
static void settle_copy(struct rn_tier *tier, struct rn_request *request)
{
    uint32_t spare = request->copy_from;

    if (request->copy == RN_COPY_NONE)
        return;
    if (request->copy == RN_COPY_WANTED) {
        spare = request->blocks[request->copy_at];
        request->blocks[request->copy_at] = request->copy_from;
    }
    request->copy = RN_COPY_NONE;
    rn_tier_take_back(tier, &spare, 1);
}

/* Of its first n blocks, which the tree has, those that have come a second time shall outlive the process; of a prompt
 * that was long to compute, or is pinned, all. */
static void want_to_last(struct rn_tier *tier, const struct rn_request *request, struct rn_prefix_ref last, uint32_t n)
{
    struct rn_prefix_view view;
    uint32_t n_wanted;

    if (tier->shelf.tiers == 0 || n == 0)
        return;
    n_wanted = rn_doorkeeper_note(&tier->shelf.door, salt_of(request), request->tokens, n, block_tokens(tier));
    if ((n - request->n_shared) * block_tokens(tier) >= LONG_TOKENS || request->pin_prefix == 1)
        n_wanted = n;
    while (n_wanted > 0 && rn_prefix_tree_look(&tier->tree, last, &view) && view.n_blocks > n_wanted)
        last = view.parent;
    if (n_wanted > 0)
        rn_tier_shelf_want(tier, last, request->pin_prefix == 1);
}

void rn_tier_leave(struct rn_tier *tier, struct rn_request *request)
{
    struct rn_passage *passage = &tier->passages[request->slot];
    bool entered = passage->path.state == RN_PATH_ENTERED;
    bool good = request->outcome != RN_OUTCOME_FAILED && !request->suspect;
    uint32_t n_shared = request->n_shared; /* blocks that it has not computed */
    struct rn_prefix_woken woken = {NULL, NULL};

    if (entered && good) {
        n_shared = publish_rest(tier, request, &passage->path);
        want_to_last(tier, request, passage->path.at, n_shared);
        rn_tier_pin(tier, request, passage->path.at, n_shared);
    }
    rn_prefix_tree_leave(&tier->tree, &passage->path, &woken);
    tier->shelf.distrusting = true;
    if (entered && !good)
        rn_prefix_tree_forget(&tier->tree, request->blocks + n_shared, request->n_blocks - n_shared, &woken);
    tier->shelf.distrusting = false;
    if (entered)
        rn_tier_shelf_proved(tier, request->blocks + request->n_shared, request->n_blocks - request->n_shared);
    tell_woken(tier, &woken);
    rn_tier_let_go_of_promotion(tier, request->slot);
    if (entered)
        change_over(tier, request, n_shared);
    settle_copy(tier, request);
    rn_free(request->heap, passage->prompt);
    rn_free(request->heap, passage->blocks);
    passage->prompt = NULL;
    passage->blocks = NULL;
    passage->n_blocks = passage->n_tail = 0;
    passage->has_tail = false;
}
