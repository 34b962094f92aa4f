/* How a request begins: see admission_begin.h. */
#include "actors/tier/admission_begin.h"

#include <string.h>

#include "actors/context.h"
#include "actors/embed.h"
#include "actors/host/outlet.h"
#include "actors/tier/session_slot.h"
#include "actors/tier/admission_lease.h"
#include "base/check.h"
#include "model/kv_size.h"

/* A session has its BOS already: the one that was put in front of this turn's text is dropped. */
static bool drops_bos(const struct rn_request *request, const struct rn_session *session)
{
    return session != NULL && session->n_tokens > 0 && request->first_bos && request->n_tokens > 0;
}

/* How many tokens of the prompt stand in the session already, or will in place of what does: a prompt that continues
 * the session shares no more than a BOS; one that is the whole conversation begins with all that rewind_session leaves.
 * Of a session that is not yet cut the number means nothing, but prompt_tokens is the same. */
static uint32_t shared_tokens(const struct rn_request *request, const struct rn_session *session)
{
    return request->whole && session != NULL ? session->n_tokens : drops_bos(request, session);
}

static uint64_t prompt_tokens(const struct rn_request *request, const struct rn_session *session)
{
    return (uint64_t)request->n_tokens - shared_tokens(request, session) + (session != NULL ? session->n_tokens : 0);
}

/* A whole conversation takes the place of the session's: what both begin with stays, with its KV. The other tokens are
 * behind session->n_tokens until the turn has begun. */
static void rewind_session(struct rn_admission *admission, const struct rn_request *request, struct rn_session *session)
{
    uint32_t n = 0, n_blocks;

    RN_ASSERT(!session->busy && session->n_computed <= session->n_tokens);
    while (n < session->n_tokens && n < request->n_tokens && session->tokens[n] == request->tokens[n])
        n++;
    session->n_tokens = n;
    session->n_computed = session->n_computed < n ? session->n_computed : n;
    n_blocks = rn_tier_blocks_for(admission->blocks, session->n_computed);
    if (n_blocks < session->n_blocks)
        rn_tier_blocks_unref(admission->blocks, session->blocks + n_blocks, session->n_blocks - n_blocks);
    session->n_blocks = n_blocks < session->n_blocks ? n_blocks : session->n_blocks;
}

/* Joins session history and prompt in admission->tokens. */
static void join_tokens(struct rn_admission *admission, const struct rn_request *request,
                        const struct rn_session *session)
{
    uint32_t n_history = session != NULL ? session->n_tokens : 0;
    uint32_t skip = shared_tokens(request, session);

    RN_CHECK(prompt_tokens(request, session) <= admission->context->limits->context_tokens);
    RN_ASSERT(skip <= request->n_tokens);
    if (n_history > 0)
        memcpy(admission->tokens, session->tokens, n_history * sizeof *admission->tokens);
    if (request->n_tokens > skip)
        memcpy(admission->tokens + n_history, request->tokens + skip,
               (request->n_tokens - skip) * sizeof *admission->tokens);
}

/* The request gets them, in a token array long enough for the whole answer. */
static runnel_status lay_out_tokens(struct rn_admission *admission, struct rn_request *request,
                                    const struct rn_session *session, uint32_t n_prompt, uint32_t limit)
{
    int32_t *tokens = rn_alloc(request->heap, limit, sizeof *tokens);

    RN_CHECK(n_prompt <= limit);
    if (tokens == NULL)
        return RUNNEL_NO_MEMORY;
    memcpy(tokens, admission->tokens, n_prompt * sizeof *tokens);
    rn_free(request->heap, request->tokens);
    request->tokens = tokens;
    request->capacity = limit;
    request->n_history = session != NULL ? session->n_tokens : 0;
    request->n_tokens = request->n_prompt = n_prompt;
    return RUNNEL_OK;
}

/* From now on there can be events. */
static runnel_status prepare_outlet(struct rn_admission *admission, struct rn_request *request)
{
    struct rn_outlet *outlet = &admission->context->outlets[request->slot];
    runnel_status status = rn_outlet_prepare(outlet);

    if (request->context_keep >= 0) {
        uint64_t longest = rn_kv_size_longest(admission->context->limits), beyond = longest - rn_request_head(request);

        outlet->until_full = longest - request->n_prompt;
        outlet->lost = beyond - beyond / 2;
    }
    if (status == RUNNEL_OK && request->sampler != NULL && rn_sampler_asks_host(request->sampler)) {
        outlet->choice = rn_choice_new(request->heap, request->sampler, request->capacity, request->want_logprobs);
        status = outlet->choice != NULL ? RUNNEL_OK : RUNNEL_NO_MEMORY;
        request->choice = outlet->choice;
        rn_sampler_lend_choice(request->sampler, outlet->choice);
    }
    request->logits = outlet->logits;
    request->end_top = outlet->end_top;
    if (request->embed != NULL)
        request->embed->out = outlet->embedding;
    request->n_logits_rows = outlet->window + 1; /* one more than may be undelivered: the host may be reading one */
    return status;
}

/* Longest sequence the request may become: by its own wish, the context, all blocks there are, and the rows of a step
 * where attention sees both ways. */
static uint32_t limit_of(const struct rn_admission *admission, const struct rn_request *request, uint64_t prompt)
{
    const struct rn_backend_limits *limits = admission->context->limits;
    uint64_t limit = rn_kv_size_text(limits, rn_context_sees_both_ways(admission->context));

    if (request->max_tokens >= 0 && prompt + (uint64_t)request->max_tokens < limit)
        limit = prompt + (uint64_t)request->max_tokens;
    return (uint32_t)limit;
}

/* The session lets go of blocks that its next turn cannot use; what they held is shared from the tree or computed
 * again. Before the lease: else a turn could wait for blocks that its own session has. */
static void trim_session(struct rn_admission *admission, struct rn_session *session, const struct rn_prefix_fit *fit)
{
    uint32_t n_kept = fit->from_tree ? 0 : fit->n_kept + fit->copies;

    RN_CHECK(!session->busy && n_kept <= session->n_blocks);
    if (n_kept < session->n_blocks)
        rn_tier_blocks_unref(admission->blocks, session->blocks + n_kept, session->n_blocks - n_kept);
    session->n_blocks = n_kept;
    session->n_computed = fit->from_tree ? 0 : fit->n_done;
}

/* That many known tokens, and a little more: for what the request begins with there are blocks. */
static uint32_t first_positions(const struct rn_admission *admission, uint32_t tokens, uint32_t limit)
{
    uint64_t ahead = (uint64_t)tokens + RN_LEASE_BLOCKS * admission->context->limits->block_tokens;

    return ahead < limit ? (uint32_t)ahead : limit;
}

/* Tables for all the blocks that the request may come to have; false: no memory. */
static bool take_tables(const struct rn_admission *admission, struct rn_request *request, uint32_t limit)
{
    const struct rn_backend_limits *limits = admission->context->limits;

    uint32_t more = limits->mean_window > 0 ? RN_LEASE_BLOCKS : 0; /* a grant may come when it has gone on by itself */

    if (request->blocks == NULL)
        request->blocks =
            rn_alloc(request->heap, rn_tier_blocks_for(admission->blocks, limit) + more, sizeof request->blocks[0]);
    if (request->means == NULL && limits->mean_window > 0)
        request->means = rn_alloc(request->heap, rn_kv_size_means(limits, limit), sizeof request->means[0]);
    if (request->windows.blocks == NULL && limits->window > 0)
        request->windows.blocks =
            rn_alloc(request->heap, rn_tier_blocks_for(admission->blocks, limit), sizeof request->windows.blocks[0]);
    return request->blocks != NULL && (request->means != NULL || limits->mean_window == 0) &&
           (request->windows.blocks != NULL || limits->window == 0);
}

/* For a slot of recurrent state, n blocks, and those of layers with windows of a sequence of up to `limit` positions;
 * the slot is taken then. */
static bool has_room(struct rn_admission *admission, struct rn_request *request, const struct rn_session *session,
                     struct rn_prefix_fit *fit, uint32_t n, uint32_t limit)
{
    if (!rn_prefix_cache_has_windows(admission->cache, fit, limit) ||
        !rn_prefix_cache_take_state(admission->cache, request, fit)) {
        admission->n_lacking = 1; /* whoever gives up a block gives up these, too */
        return false;
    }
    if (rn_admission_has_room(admission, session, n))
        return true;
    rn_prefix_cache_drop_state(admission->cache, request);
    return false;
}

/* Leases blocks for `first` positions behind those that are kept; false when they are not to be had now. */
static bool lease(struct rn_admission *admission, struct rn_request *request, struct rn_session *session,
                  struct rn_prefix_fit *fit, uint32_t first, uint32_t limit)
{
    const struct rn_backend_limits *limits = admission->context->limits;
    uint32_t n_blocks = rn_kv_size_blocks(limits, first), n_means = rn_kv_size_means(limits, first);
    const uint32_t *kept = fit->from_tree ? fit->ready : session != NULL ? session->blocks : NULL;
    uint32_t n_new = n_blocks - fit->n_kept;
    bool room, tables;

    RN_ASSERT(fit->n_done < first && first <= limit);
    RN_CHECK(fit->n_kept <= n_blocks); /* they cover known tokens, and those are part of the prompt */
    if (fit->from_tree)
        rn_tier_blocks_ref(admission->blocks, fit->ready, fit->n_kept);
    room = has_room(admission, request, session, fit, n_new + n_means, limit);
    tables = room && take_tables(admission, request, limit);
    if (!tables) {
        if (fit->from_tree)
            rn_tier_blocks_unref(admission->blocks, fit->ready, fit->n_kept);
        if (room)
            rn_request_fail(request, RUNNEL_NO_MEMORY, "no memory for the block table of the request");
        return room;
    }
    rn_tier_blocks_take(admission->blocks, n_new, request->blocks + fit->n_kept);
    if (n_means > 0)
        rn_tier_blocks_take(admission->blocks, n_means, request->means);
    request->n_means = n_means;
    if (limits->window > 0)
        rn_prefix_cache_begin_windows(admission->cache, request, fit, limit);
    if (fit->n_kept > 0)
        memcpy(request->blocks, kept, fit->n_kept * sizeof *kept);
    request->n_blocks = n_blocks;
    request->n_done = fit->n_done;
    request->n_shared = fit->n_done / admission->context->limits->block_tokens;
    return true;
}

/* Of a copy from the tree or another's tail; a session's goes with the request as it is. */
static void hold_source(struct rn_admission *admission, const struct rn_prefix_fit *fit)
{
    if (fit->from_tree && fit->copies)
        rn_tier_blocks_ref(admission->blocks, &fit->source, 1);
}

static void release_source(struct rn_admission *admission, const struct rn_prefix_fit *fit)
{
    if (fit->from_tree && fit->copies)
        rn_tier_blocks_unref(admission->blocks, &fit->source, 1);
}

/* A copy needs its source besides the request's own blocks: where that is one too many, its positions are computed. */
static bool trim_and_lease(struct rn_admission *admission, struct rn_request *request, struct rn_session *session,
                           struct rn_prefix_fit *fit, uint32_t first, uint32_t limit)
{
    hold_source(admission, fit);
    if (session != NULL)
        trim_session(admission, session, fit);
    if (lease(admission, request, session, fit, first, limit)) {
        if (request->outcome != RN_OUTCOME_NONE)
            release_source(admission, fit);
        return true;
    }
    if (!fit->copies)
        return false;
    release_source(admission, fit);
    fit->copies = false;
    if (fit->from_tree) {
        fit->n_done = fit->n_kept * admission->context->limits->block_tokens;
        return lease(admission, request, session, fit, first, limit);
    }
    if (rn_tier_blocks_is_own(admission->blocks, session->blocks[fit->n_kept]))
        fit->n_kept++; /* who shared it has just given it back */
    else
        fit->n_done = fit->n_kept * admission->context->limits->block_tokens;
    trim_session(admission, session, fit);
    return lease(admission, request, session, fit, first, limit);
}

/* Gives back what lease() took; what the session keeps stays with it. */
static void give_back(struct rn_admission *admission, struct rn_request *request, const struct rn_prefix_fit *fit)
{
    rn_admission_take_blocks_back(admission, request, fit->from_tree ? 0 : fit->n_kept);
    release_source(admission, fit);
    request->n_done = 0;
}

/* The session's KV goes with the request until it retires. */
static void attach_session(struct rn_request *request, struct rn_session *session)
{
    RN_ASSERT(!session->busy && session->n_blocks <= request->n_blocks);
    rn_free(request->heap, session->blocks);
    session->blocks = NULL;
    session->n_blocks = 0;
    session->salt = rn_request_salt(request);
    session->busy = true;
}

/* What must be true of request and session before blocks are looked for; else it fails. */
static void check_fits(struct rn_request *request, const struct rn_session *session, uint64_t prompt, uint32_t limit)
{
    uint32_t needed = request->max_tokens == 0 ? 0 : 1;

    if (request->session_generation != 0 && session == NULL)
        rn_request_fail(request, RUNNEL_NOT_FOUND, RN_SESSION_GONE);
    else if (session != NULL && session->lost != RUNNEL_OK)
        rn_request_fail(request, session->lost, "the session could not become a copy: %s",
                        runnel_status_text(session->lost));
    else if (prompt == 0)
        rn_request_fail_about(request, RUNNEL_ABOUT_PROMPT, RUNNEL_INVALID, "the prompt is empty");
    else if (prompt + needed > limit)
        rn_request_fail(request, RUNNEL_CONTEXT, "the prompt has %llu tokens, %u fit", (unsigned long long)prompt,
                        limit - (limit > 0 ? needed : 0));
}

/* True: what lower tiers have of the prompt is on its way, or something was evicted for it; look again. False: there is
 * nothing that would be worth it, or the request does not want to wait. It begins with blocks for n_positions. */
static bool bring_up(struct rn_admission *admission, const struct rn_request *request, const struct rn_session *session,
                     uint32_t n_positions, const struct rn_prefix_fit *fit)
{
    uint32_t n_ready = fit->found.n_ready;

    if (!rn_prefix_cache_wants_promotion(admission->cache, request, fit))
        return false;
    rn_tier_blocks_ref(admission->blocks, fit->ready, n_ready);
    if (rn_admission_has_room(admission, session, rn_tier_blocks_for(admission->blocks, n_positions) - n_ready))
        rn_prefix_cache_promote(admission->cache, request, admission->tokens, fit);
    rn_tier_blocks_unref(admission->blocks, fit->ready, n_ready);
    return true; /* what was evicted for the room may be what the request would copy from */
}

/* Shares what can be shared and leases the rest, so that it can start; false when the request has to wait. May fail it.
 * n_fill: the tokens that it has, its session's included; one that was taken back has all of them itself, and no
 * session here. */
static bool begin(struct rn_admission *admission, struct rn_request *request, struct rn_session *session,
                  uint32_t n_fill, uint32_t limit)
{
    struct rn_prefix_fit fit;

    request->apart = false;
    join_tokens(admission, request, session);
    rn_prefix_cache_look_up(admission->cache, request, session, admission->tokens, n_fill, &fit);
    if (bring_up(admission, request, session, first_positions(admission, n_fill, limit), &fit))
        rn_prefix_cache_look_up(admission->cache, request, session, admission->tokens, n_fill, &fit);
    if (fit.pending) {
        rn_prefix_cache_wait(admission->cache, request, &fit);
        return false;
    }
    if (!trim_and_lease(admission, request, session, &fit, first_positions(admission, n_fill, limit), limit))
        return false;
    if (request->outcome != RN_OUTCOME_NONE)
        return true;
    request->apart = session != NULL && session->foreign && fit.n_done > 0 && !fit.from_tree;
    request->n_fill = n_fill;
    if ((!request->resumed && (lay_out_tokens(admission, request, session, n_fill, limit) != RUNNEL_OK ||
                               prepare_outlet(admission, request) != RUNNEL_OK)) ||
        rn_prefix_cache_prepare(admission->cache, request) != RUNNEL_OK) {
        give_back(admission, request, &fit);
        rn_request_fail(request, RUNNEL_NO_MEMORY, "no memory for %u tokens", limit);
        return true;
    }
    RN_ASSERT(!fit.copies || (fit.n_kept < request->n_blocks && fit.source != request->blocks[fit.n_kept]));
    request->n_limit = limit;
    if (fit.copies) {
        request->copy = RN_COPY_WANTED;
        request->copy_at = fit.n_kept;
        request->copy_from = fit.source;
    }
    if (session != NULL)
        attach_session(request, session);
    rn_prefix_cache_enter(admission->cache, request, &fit);
    return true;
}

bool rn_admission_begin_first(struct rn_admission *admission, struct rn_request *request, struct rn_session *session)
{
    uint64_t prompt;
    uint32_t limit, n_before = session != NULL ? session->n_tokens : 0;
    bool done;

    RN_ASSERT(!request->resumed && request->n_blocks == 0 && (session == NULL || !session->busy));
    prompt = prompt_tokens(request, session);
    limit = limit_of(admission, request, prompt);
    check_fits(request, session, prompt, limit);
    if (request->outcome != RN_OUTCOME_NONE)
        return true;
    if (session != NULL && request->whole)
        rewind_session(admission, request, session);
    if (session != NULL && session->n_blocks > 0 && !rn_prefix_salt_same(session->salt, rn_request_salt(request)))
        rn_admission_drop_blocks(admission, session);
    done = begin(admission, request, session, (uint32_t)prompt, limit);
    if (session != NULL && (!done || request->outcome != RN_OUTCOME_NONE))
        session->n_tokens = n_before; /* a turn that has not begun takes nothing of it but KV */
    else if (session != NULL && request->whole)
        rn_word_set(&session->n_known, session->n_tokens);
    return done;
}

void rn_admission_shift(const struct rn_admission *admission, struct rn_request *request)
{
    uint32_t longest = (uint32_t)rn_kv_size_longest(admission->context->limits);
    uint32_t head = rn_request_head(request);
    uint32_t kept = (longest - head) / 2, first = request->n_tokens - kept;

    RN_CHECK(request->n_tokens == longest && request->capacity == longest && first > head);
    RN_ASSERT(request->n_blocks == 0 && head + kept < longest);
    memmove(request->tokens + head, request->tokens + first, kept * sizeof request->tokens[0]);
    request->n_shifts++;
    request->n_dropped += first - head;
    request->n_tokens = head + kept;
    if (request->max_tokens >= 0) {
        uint64_t end = request->n_tokens + (uint64_t)request->max_tokens - rn_request_answered(request);

        request->n_limit = end < longest ? (uint32_t)end : longest;
    }
    rn_sampler_restart(request->sampler, request->tokens, head, request->n_tokens);
    request->shifts = false;
    request->shifted = true;
}

bool rn_admission_begin_again(struct rn_admission *admission, struct rn_request *request)
{
    RN_ASSERT(request->resumed && request->n_blocks == 0 && request->n_tokens <= request->n_limit);
    return begin(admission, request, NULL, request->n_tokens, request->n_limit);
}
