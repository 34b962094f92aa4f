/* The tier actor: see tier_actor.h. */
#include "actors/tier_actor.h"

#include <string.h>

#include "actors/context.h"
#include "actors/embed.h"
#include "actors/host/outlet.h"
#include "actors/lists.h"
#include "actors/note.h"
#include "actors/session_job.h"
#include "actors/tier_cache.h"
#include "actors/tier_lease.h"
#include "actors/tier_promote.h"
#include "actors/tier_session.h"
#include "base/check.h"
#include "model/room.h"

static struct rn_tier *tier_of(struct rn_actor *actor)
{
    return (struct rn_tier *)actor;
}

static struct rn_heap *heap_of(struct rn_tier *tier)
{
    return tier->context->heap;
}

/* The open session of the request; NULL when there is none (any more). */
struct rn_session *rn_tier_session_of(struct rn_tier *tier, const struct rn_request *request)
{
    struct rn_session *session;

    if (request->session_generation == 0)
        return NULL;
    session = &tier->context->sessions[request->session];
    return rn_word_get(&session->generation) == request->session_generation ? session : NULL;
}

void rn_tier_end(struct rn_tier *tier, struct rn_request *request)
{
    rn_tier_leave(tier, request); /* it may be waiting for another's blocks */
    rn_request_send(request, tier->context->detokenizer, RN_MSG_END);
}

/* A session has its BOS already: the one that was put in front of this turn's text is dropped. */
static bool drops_bos(const struct rn_request *request, const struct rn_session *session)
{
    return session != NULL && session->n_tokens > 0 && request->first_bos && request->n_tokens > 0;
}

/* How many tokens of the prompt stand in the session already. A prompt that continues the session shares no more than
 * a BOS; one that is the whole conversation begins with all that rewind_session has left. */
static uint32_t shared_tokens(const struct rn_request *request, const struct rn_session *session)
{
    return request->whole && session != NULL ? session->n_tokens : drops_bos(request, session);
}

static uint64_t prompt_tokens(const struct rn_request *request, const struct rn_session *session)
{
    return (uint64_t)request->n_tokens - shared_tokens(request, session) + (session != NULL ? session->n_tokens : 0);
}

/* A whole conversation takes the place of the session's: what both begin with stays, with its KV. */
static void rewind_session(struct rn_tier *tier, const struct rn_request *request, struct rn_session *session)
{
    uint32_t n = 0, n_blocks;

    while (n < session->n_tokens && n < request->n_tokens && session->tokens[n] == request->tokens[n])
        n++;
    session->n_tokens = n;
    session->n_computed = session->n_computed < n ? session->n_computed : n;
    n_blocks = rn_tier_blocks_for(tier, session->n_computed);
    if (n_blocks < session->n_blocks)
        rn_tier_take_back(tier, session->blocks + n_blocks, session->n_blocks - n_blocks);
    session->n_blocks = n_blocks < session->n_blocks ? n_blocks : session->n_blocks;
    rn_word_set(&session->n_known, n);
}

/* Joins session history and prompt in tier->tokens. */
static void join_tokens(struct rn_tier *tier, const struct rn_request *request, const struct rn_session *session)
{
    uint32_t n_history = session != NULL ? session->n_tokens : 0;
    uint32_t skip = shared_tokens(request, session);

    if (n_history > 0)
        memcpy(tier->tokens, session->tokens, n_history * sizeof *tier->tokens);
    if (request->n_tokens > skip)
        memcpy(tier->tokens + n_history, request->tokens + skip, (request->n_tokens - skip) * sizeof *tier->tokens);
}

/* The request gets them, in a token array long enough for the whole answer. */
static runnel_status lay_out_tokens(struct rn_tier *tier, struct rn_request *request, const struct rn_session *session,
                                    uint32_t n_prompt, uint32_t limit)
{
    int32_t *tokens = rn_alloc(request->heap, limit, sizeof *tokens);

    if (tokens == NULL)
        return RUNNEL_NO_MEMORY;
    memcpy(tokens, tier->tokens, n_prompt * sizeof *tokens);
    rn_free(request->heap, request->tokens);
    request->tokens = tokens;
    request->capacity = limit;
    request->n_history = session != NULL ? session->n_tokens : 0;
    request->n_tokens = request->n_prompt = n_prompt;
    return RUNNEL_OK;
}

/* From now on there can be events. */
static runnel_status prepare_outlet(struct rn_tier *tier, struct rn_request *request)
{
    struct rn_outlet *outlet = &tier->context->outlets[request->slot];
    runnel_status status = rn_outlet_prepare(outlet);

    request->logits = outlet->logits;
    if (request->embed != NULL)
        request->embed->out = outlet->embedding;
    request->n_logits_rows = outlet->window + 1; /* one more than may be undelivered: the host may be reading one */
    return status;
}

/* Longest sequence the request may become: by its own wish, the context, and all blocks there are. */
static uint32_t limit_of(const struct rn_tier *tier, const struct rn_request *request, uint64_t prompt)
{
    const struct rn_backend_limits *limits = tier->context->limits;
    uint64_t room = rn_room_positions(limits);
    uint64_t limit = limits->context_tokens < room ? limits->context_tokens : room;

    if (request->max_tokens >= 0 && prompt + (uint64_t)request->max_tokens < limit)
        limit = prompt + (uint64_t)request->max_tokens;
    return (uint32_t)limit;
}

/* The session lets go of blocks that its next turn cannot use; what they held is shared from the tree or computed
 * again. Before the lease: else a turn could wait for blocks that its own session has. */
static void trim_session(struct rn_tier *tier, struct rn_session *session, const struct rn_fit *fit)
{
    uint32_t n_kept = fit->from_tree ? 0 : fit->n_kept + fit->copies;

    if (n_kept < session->n_blocks)
        rn_tier_take_back(tier, session->blocks + n_kept, session->n_blocks - n_kept);
    session->n_blocks = n_kept;
    session->n_computed = fit->from_tree ? 0 : fit->n_done;
}

/* That many known tokens, and a little more: for what the request begins with there are blocks. */
static uint32_t first_positions(const struct rn_tier *tier, uint32_t tokens, uint32_t limit)
{
    uint64_t ahead = (uint64_t)tokens + RN_LEASE_BLOCKS * tier->context->limits->block_tokens;

    return ahead < limit ? (uint32_t)ahead : limit;
}

/* Tables for all the blocks that the request may come to have; false: no memory. */
static bool take_tables(const struct rn_tier *tier, struct rn_request *request, uint32_t limit)
{
    const struct rn_backend_limits *limits = tier->context->limits;

    uint32_t more = limits->mean_window > 0 ? RN_LEASE_BLOCKS : 0; /* a grant may come when it has gone on by itself */

    if (request->blocks == NULL)
        request->blocks = rn_alloc(request->heap, rn_tier_blocks_for(tier, limit) + more, sizeof request->blocks[0]);
    if (request->means == NULL && limits->mean_window > 0)
        request->means = rn_alloc(request->heap, rn_room_means(limits, limit), sizeof request->means[0]);
    return request->blocks != NULL && (request->means != NULL || limits->mean_window == 0);
}

/* Leases blocks for `first` positions behind those that are kept; false when they are not to be had now. */
static bool lease(struct rn_tier *tier, struct rn_request *request, struct rn_session *session,
                  const struct rn_fit *fit, uint32_t first, uint32_t limit)
{
    const struct rn_backend_limits *limits = tier->context->limits;
    uint32_t n_blocks = rn_room_blocks(limits, first), n_means = rn_room_means(limits, first);
    const uint32_t *kept = fit->from_tree ? tier->found : session != NULL ? session->blocks : NULL;
    uint32_t n_new = n_blocks - fit->n_kept;
    bool room, tables;

    RN_CHECK(fit->n_kept <= n_blocks); /* they cover known tokens, and those are part of the prompt */
    if (fit->from_tree)
        rn_tier_ref(tier, tier->found, fit->n_kept);
    room = rn_tier_has_room(tier, session, n_new + n_means);
    tables = room && take_tables(tier, request, limit);
    if (!tables) {
        if (fit->from_tree)
            rn_tier_take_back(tier, tier->found, fit->n_kept);
        if (room)
            rn_request_fail(request, RUNNEL_NO_MEMORY, "no memory for the block table of the request");
        return room;
    }
    rn_tier_take(tier, n_new, request->blocks + fit->n_kept);
    if (n_means > 0)
        rn_tier_take(tier, n_means, request->means);
    request->n_means = n_means;
    if (fit->n_kept > 0)
        memcpy(request->blocks, kept, fit->n_kept * sizeof *kept);
    request->n_blocks = n_blocks;
    request->n_done = fit->n_done;
    request->n_shared = fit->n_done / tier->context->limits->block_tokens;
    return true;
}

/* Of a copy from the tree or another's tail; a session's goes with the request as it is. */
static void hold_source(struct rn_tier *tier, const struct rn_fit *fit)
{
    if (fit->from_tree && fit->copies)
        rn_tier_ref(tier, &fit->source, 1);
}

static void release_source(struct rn_tier *tier, const struct rn_fit *fit)
{
    if (fit->from_tree && fit->copies)
        rn_tier_take_back(tier, &fit->source, 1);
}

/* A copy needs its source besides the request's own blocks: where that is one too many, its positions are computed. */
static bool trim_and_lease(struct rn_tier *tier, struct rn_request *request, struct rn_session *session,
                           struct rn_fit *fit, uint32_t first, uint32_t limit)
{
    hold_source(tier, fit);
    if (session != NULL)
        trim_session(tier, session, fit);
    if (lease(tier, request, session, fit, first, limit)) {
        if (request->outcome != RN_OUTCOME_NONE)
            release_source(tier, fit);
        return true;
    }
    if (!fit->copies)
        return false;
    release_source(tier, fit);
    fit->copies = false;
    if (fit->from_tree) {
        fit->n_done = fit->n_kept * tier->context->limits->block_tokens;
        return lease(tier, request, session, fit, first, limit);
    }
    if (rn_block_pool_references(&tier->pool, session->blocks[fit->n_kept]) == 1)
        fit->n_kept++; /* who shared it has just given it back */
    else
        fit->n_done = fit->n_kept * tier->context->limits->block_tokens;
    trim_session(tier, session, fit);
    return lease(tier, request, session, fit, first, limit);
}

/* Takes back what the request has, but its first n_kept blocks. */
static void take_all_back(struct rn_tier *tier, struct rn_request *request, uint32_t n_kept)
{
    uint32_t sinks = rn_room_sinks(tier->context->limits);

    if (request->n_gone > 0) { /* nothing is kept of such a one */
        request->n_blocks -= request->n_gone;
        memmove(request->blocks + sinks, request->blocks + sinks + request->n_gone,
                (request->n_blocks - sinks) * sizeof request->blocks[0]);
    }
    if (request->n_blocks > n_kept)
        rn_tier_take_back(tier, request->blocks + n_kept, request->n_blocks - n_kept);
    if (request->n_means > 0)
        rn_tier_take_back(tier, request->means, request->n_means);
    request->n_blocks = request->n_means = request->n_gone = 0;
}

/* Gives back what lease() took; what the session keeps stays with it. */
static void give_back(struct rn_tier *tier, struct rn_request *request, const struct rn_fit *fit)
{
    take_all_back(tier, request, fit->from_tree ? 0 : fit->n_kept);
    release_source(tier, fit);
    request->n_done = 0;
}

/* The session's KV goes with the request until it retires. */
static void attach_session(struct rn_request *request, struct rn_session *session)
{
    rn_free(request->heap, session->blocks);
    session->blocks = NULL;
    session->n_blocks = 0;
    session->salt = request->cache_salt;
    session->busy = true;
}

/* What of the prompt came from lower tiers; it may have been evicted again since. */
static void note_lower(struct rn_tier *tier, struct rn_request *request)
{
    uint32_t left = request->n_cached;

    for (unsigned kind = 0; kind < RN_TIERS; kind++) {
        uint32_t n = tier->passages[request->slot].n_from[kind] * tier->context->limits->block_tokens;

        request->n_lower[kind] = n < left ? n : left;
        left -= request->n_lower[kind];
    }
}

static void start(struct rn_tier *tier, struct rn_request *request)
{
    request->stalled = false;
    if (!request->resumed) {
        request->n_cached = request->n_scored = request->n_done;
        note_lower(tier, request);
        request->admitted_us = rn_now_us(tier->context->clock);
        for (uint32_t i = 0; i < request->n_prompt; i++)
            rn_sampler_accept(request->sampler, request->tokens[i]);
        rn_request_unqueue(request);
        rn_turns_served(&tier->waiting, request);
    }
    rn_note_admitted(&tier->actor, request);
    rn_tier_go_in(tier, request);
    rn_request_send(request, tier->context->prefill, RN_MSG_PREFILL);
}

/* What must be true of request and session before blocks are looked for; else it fails. */
static void check_fits(struct rn_request *request, const struct rn_session *session, uint64_t prompt, uint32_t limit)
{
    uint32_t needed = request->max_tokens == 0 ? 0 : 1;

    if (request->session_generation != 0 && session == NULL)
        rn_request_fail(request, RUNNEL_NOT_FOUND, "the session has been freed");
    else if (session != NULL && session->lost != RUNNEL_OK)
        rn_request_fail(request, session->lost, "the session could not become a copy: %s",
                        runnel_status_text(session->lost));
    else if (prompt == 0)
        rn_request_fail(request, RUNNEL_INVALID, "the prompt is empty");
    else if (prompt + needed > limit)
        rn_request_fail(request, RUNNEL_CONTEXT, "the prompt has %llu tokens, %u fit", (unsigned long long)prompt,
                        limit - (limit > 0 ? needed : 0));
}

/* Shares what can be shared and leases the rest, so that it can start; false when the request has to wait. May fail it.
 * n_fill: the tokens that it has, its session's included; one that was taken back has all of them itself, and no
 * session here. */
static bool begin(struct rn_tier *tier, struct rn_request *request, struct rn_session *session, uint32_t n_fill,
                  uint32_t limit)
{
    struct rn_fit fit;

    request->apart = false;
    join_tokens(tier, request, session);
    rn_tier_look_up(tier, request, session, n_fill, &fit);
    if (rn_tier_bring_up(tier, request, session, first_positions(tier, n_fill, limit), &fit))
        rn_tier_look_up(tier, request, session, n_fill, &fit);
    if (fit.pending) {
        RN_CHECK(rn_prefix_tree_wait(&tier->tree, &tier->passages[request->slot].path, &fit.found));
        return false;
    }
    if (!trim_and_lease(tier, request, session, &fit, first_positions(tier, n_fill, limit), limit))
        return false;
    if (request->outcome != RN_OUTCOME_NONE)
        return true;
    request->apart = session != NULL && session->foreign && fit.n_done > 0 && !fit.from_tree;
    request->n_fill = n_fill;
    if ((!request->resumed && (lay_out_tokens(tier, request, session, n_fill, limit) != RUNNEL_OK ||
                               prepare_outlet(tier, request) != RUNNEL_OK)) ||
        rn_tier_prepare(tier, request) != RUNNEL_OK) {
        give_back(tier, request, &fit);
        rn_request_fail(request, RUNNEL_NO_MEMORY, "no memory for %u tokens", limit);
        return true;
    }
    request->n_limit = limit;
    if (fit.copies) {
        request->copy = RN_COPY_WANTED;
        request->copy_at = fit.n_kept;
        request->copy_from = fit.source;
    }
    if (session != NULL)
        attach_session(request, session);
    rn_tier_enter(tier, request, &fit);
    return true;
}

/* True when it can start, or has failed since it can never fit. */
static bool begin_first(struct rn_tier *tier, struct rn_request *request, struct rn_session *session)
{
    uint64_t prompt;
    uint32_t limit;

    if (session != NULL && request->whole)
        rewind_session(tier, request, session);
    if (session != NULL && session->n_blocks > 0 && session->salt != request->cache_salt)
        rn_tier_drop_blocks(tier, session);
    prompt = prompt_tokens(request, session);
    limit = limit_of(tier, request, prompt);
    check_fits(request, session, prompt, limit);
    return request->outcome != RN_OUTCOME_NONE || begin(tier, request, session, (uint32_t)prompt, limit);
}

/* Tries to admit, and then it is another's; false when the request has to wait for blocks, its own or another's. */
static bool admit(struct rn_tier *tier, struct rn_request *request)
{
    bool done;

    if (rn_request_is_late(request, rn_now_us(tier->context->clock)))
        rn_request_end_by(request, RN_MSG_EXPIRE);
    done = request->outcome != RN_OUTCOME_NONE ||
           (request->resumed ? begin(tier, request, NULL, request->n_tokens, request->n_limit)
                             : begin_first(tier, request, rn_tier_session_of(tier, request)));
    if (!done)
        return false;
    if (request->outcome != RN_OUTCOME_NONE)
        rn_tier_end(tier, request);
    else
        start(tier, request);
    return true;
}

/* The turns of a session go in the order in which they came, whatever their priorities. */
static bool has_earlier_turn(const struct rn_tier *tier, const struct rn_request *request)
{
    for (const struct rn_request *r = tier->waiting.first; r != NULL; r = r->next)
        if (r->session == request->session && r->session_generation == request->session_generation &&
            r->order < request->order)
            return true;
    return false;
}

/* A request that waits for its reader, for another's blocks, or whose session is in use: it keeps its place and holds
 * nobody but the later turns of that session. */
static bool is_held(struct rn_tier *tier, const struct rn_request *request, const struct rn_session *session)
{
    if (session != NULL &&
        (session->busy || has_earlier_turn(tier, request) || rn_tier_is_behind_snapshot(tier, request)))
        return true;
    return request->stalled || tier->passages[request->slot].path.state == RN_PATH_WAITING;
}

/* Admits what fits, in order, of higher priority than `floor`. The first for which there are no blocks holds the rest;
 * false then. */
static bool admit_some(struct rn_tier *tier, int64_t floor)
{
    struct rn_request *next;

    for (struct rn_request *r = tier->waiting.first; r != NULL && r->priority > floor; r = next) {
        struct rn_session *session =
            r->resumed ? NULL : rn_tier_session_of(tier, r); /* one that began has its session */

        next = r->next;
        if (!is_held(tier, r, session)) {
            rn_turns_take(&tier->waiting, r);
            if (admit(tier, r))
                continue;
            rn_turns_put_back(&tier->waiting, r, next);
            if (tier->passages[r->slot].path.state != RN_PATH_WAITING) {
                tier->full = true;
                rn_tier_claim(tier, r->priority);
                return false;
            }
        }
    }
    return true;
}

/* Hands out the blocks there are: first to those that run, then to those that wait. */
void rn_tier_serve(struct rn_tier *tier)
{
    bool served;

    rn_tier_take_snapshots(tier);
    tier->full = false;
    do {
        int32_t priority = 0;
        bool grown = rn_tier_grow_all(tier, &priority);

        tier->woke = false;
        served = admit_some(tier, grown ? INT64_MIN : priority) && grown;
    } while (rn_tier_take_snapshots(tier) || tier->woke);
    if (served)
        rn_tier_end_shortage(tier);
}

static void on_admit(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_tier *tier = tier_of(self);
    struct rn_request *request = msg->request.request;
    const struct rn_passage *passage = &tier->passages[request->slot];

    rn_msg_free(self->runtime, msg);
    request->order = ++tier->orders;
    if (passage->cancelled == request->generation)
        rn_request_end_by(request, passage->ending);
    if (request->job != NULL) {
        rn_tier_take_job(tier, request);
        return;
    }
    if (request->outcome != RN_OUTCOME_NONE) { /* or the tokenizer failed */
        rn_tier_end(tier, request);
        return;
    }
    if (tier->waiting.n > 0)
        rn_tier_prefetch(tier, request);
    rn_turns_enter(&tier->waiting, request, request->n_tokens);
    if (!tier->full || request == tier->waiting.first)
        rn_tier_serve(tier);
}

/* It gives up its blocks; what it has computed of them is in the tree as long as nobody needs the room. */
static void on_preempted(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_tier *tier = tier_of(self);
    struct rn_request *request = msg->request.request;
    const struct rn_passage *passage = &tier->passages[request->slot];

    rn_msg_free(self->runtime, msg);
    rn_tier_leave(tier, request);
    take_all_back(tier, request, 0);
    rn_tier_come_out(tier, request);
    request->n_done = 0;
    request->resumed = true;
    rn_note_preempted(&tier->actor, request);
    if (passage->cancelled == request->generation) {
        rn_request_end_by(request, passage->ending);
        rn_tier_end(tier, request);
    } else {
        rn_turns_enter_again(&tier->waiting, request);
    }
    rn_tier_serve(tier);
}

static void on_ready(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_tier *tier = tier_of(self);

    for (struct rn_request *r = tier->waiting.first; r != NULL; r = r->next)
        if (r->slot == msg->stream.slot && r->generation == msg->stream.generation)
            r->stalled = false;
    rn_msg_free(self->runtime, msg);
    rn_tier_serve(tier);
}

/* CANCEL, EXPIRE, STOPPED: the request is still to come, waits here, has been sent on, where the message follows it, or
 * has retired. It may come back before the message has reached it: that is remembered too. */
static void on_wish(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_tier *tier = tier_of(self);
    struct rn_passage *passage = &tier->passages[msg->stream.slot];
    uint32_t kind = msg->head.kind;
    struct rn_request *request;

    if (kind != RN_MSG_STOPPED && passage->cancelled != msg->stream.generation) {
        passage->cancelled = msg->stream.generation;
        passage->ending = kind;
    }
    if (passage->passed == msg->stream.generation) {
        rn_actor_send(tier->context->prefill, msg);
        return;
    }
    if (rn_tier_cancel_job(tier, msg->stream.slot, msg->stream.generation)) {
        rn_msg_free(self->runtime, msg);
        return;
    }
    request = rn_turns_remove(&tier->waiting, msg->stream.slot, msg->stream.generation);
    rn_msg_free(self->runtime, msg);
    if (request != NULL) {
        rn_request_end_by(request, kind);
        rn_tier_end(tier, request);
        rn_tier_serve(tier); /* it may have been the first in line */
    }
}

static void free_session(struct rn_tier *tier, struct rn_session *session)
{
    const struct rn_context *context = tier->context;
    struct rn_session **link = &tier->sessions;

    while (*link != session)
        link = &(*link)->next;
    *link = session->next;
    rn_tier_drop_blocks(tier, session);
    rn_free(heap_of(tier), session->tokens);
    session->tokens = NULL;
    session->n_tokens = 0;
    session->foreign = false;
    session->lost = RUNNEL_OK;
    rn_word_set(&session->n_known, 0);
    rn_word_set(&session->generation, rn_word_get(&session->generation) + 1);
    rn_counter_add(&context->totals->sessions, -1);
    rn_pool_give(context->session_slots, rn_pool_cell(context->session_slots, (uint32_t)(session - context->sessions)));
}

/* Ends the turns that wait for a session that is about to be freed; one that has begun is none. */
static void end_waiting(struct rn_tier *tier, const struct rn_session *session)
{
    struct rn_request *next;

    for (struct rn_request *r = tier->waiting.first; r != NULL; r = next) {
        next = r->next;
        if (r->resumed || rn_tier_session_of(tier, r) != session)
            continue;
        rn_turns_take(&tier->waiting, r);
        rn_request_fail(r, RUNNEL_NOT_FOUND, "the session has been freed");
        rn_tier_end(tier, r);
    }
}

void rn_tier_drop_session(struct rn_tier *tier, struct rn_session *session)
{
    end_waiting(tier, session);
    rn_tier_take_snapshots(tier);
    free_session(tier, session);
}

void rn_tier_session_idle(struct rn_tier *tier, struct rn_session *session)
{
    session->busy = false;
    if (session->free_wanted) {
        session->free_wanted = false;
        rn_tier_drop_session(tier, session);
    }
}

static void on_session_new(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_tier *tier = tier_of(self);
    struct rn_session *session = &tier->context->sessions[msg->session.slot];

    session->next = tier->sessions;
    tier->sessions = session;
    rn_msg_free(self->runtime, msg);
}

static void on_session_free(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_tier *tier = tier_of(self);
    struct rn_session *session = &tier->context->sessions[msg->session.slot];

    if (rn_word_get(&session->generation) == msg->session.generation) {
        if (session->busy) {
            session->free_wanted = true;
        } else {
            rn_tier_drop_session(tier, session);
            rn_tier_serve(tier);
        }
    }
    rn_msg_free(self->runtime, msg);
}

/* The request's tokens and the blocks of its computed positions stay with the session; with a mean window the tokens
 * alone, since what a shorter beginning of them would need is gone. */
static void keep_in_session(struct rn_tier *tier, struct rn_request *request, struct rn_session *session)
{
    uint32_t n_tokens = rn_request_kept_tokens(request);
    uint32_t n_computed = request->n_done < n_tokens ? request->n_done : n_tokens;
    uint32_t n_blocks;

    if (tier->context->limits->mean_window > 0) {
        take_all_back(tier, request, 0);
        n_computed = 0;
    }
    n_blocks = rn_tier_blocks_for(tier, n_computed);
    rn_tier_take_back(tier, request->blocks + n_blocks, request->n_blocks - n_blocks);
    rn_free(request->heap, session->tokens);
    session->tokens = request->tokens;
    session->n_tokens = n_tokens;
    session->n_computed = n_computed;
    session->blocks = request->blocks;
    session->n_blocks = n_blocks;
    session->foreign = request->apart;
    session->last_use = ++tier->uses;
    request->tokens = NULL;
    request->blocks = NULL;
}

static void leave_session(struct rn_tier *tier, struct rn_request *request, struct rn_session *session)
{
    keep_in_session(tier, request, session);
    rn_tier_session_idle(tier, session);
}

static void on_retire(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_tier *tier = tier_of(self);
    struct rn_request *request = msg->request.request;
    struct rn_session *session = rn_tier_session_of(tier, request);

    rn_tier_leave(tier, request);
    /* n_limit says that it was admitted, and so held its session. */
    if (request->n_limit > 0 && session != NULL)
        leave_session(tier, request, session);
    else if (request->n_blocks > 0)
        take_all_back(tier, request, 0);
    rn_tier_come_out(tier, request);
    rn_request_unqueue(request);
    rn_counter_add(&tier->context->totals->queued_bytes, -(int64_t)request->n_bytes);
    msg->head.kind = RN_MSG_ENDED;
    msg->ended = (struct rn_pay_ended){request->slot, request->generation, request->context->model};
    rn_request_free(request);
    rn_actor_send(tier->context->router, msg);
    rn_tier_serve(tier);
}

static void on_computed(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_tier *tier = tier_of(self);
    const struct rn_computed_list *list = msg->computed.list;

    for (uint32_t i = 0; i < list->n; i++)
        rn_tier_publish(tier, &list->items[i]);
    msg->head.kind = RN_MSG_COMPUTED_BACK;
    rn_actor_send(tier->context->decode, msg);
    if (tier->woke)
        rn_tier_serve(tier);
}

static void on_grow(struct rn_actor *self, struct rn_msg *msg)
{
    int32_t priority;

    rn_tier_on_grow(self, msg);
    rn_tier_grow_all(tier_of(self), &priority);
}

static void on_ungrant(struct rn_actor *self, struct rn_msg *msg)
{
    rn_tier_on_ungrant(self, msg);
    rn_tier_serve(tier_of(self));
}

static void on_short_back(struct rn_actor *self, struct rn_msg *msg)
{
    rn_tier_on_short_back(self, msg);
    rn_tier_serve(tier_of(self));
}

static void on_close(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_tier *tier = tier_of(self);

    RN_CHECK(tier->waiting.n == 0 && tier->n_inside == 0 && tier->snapshots == NULL && tier->jobs == NULL);
    while (tier->sessions != NULL)
        free_session(tier, tier->sessions);
    rn_tier_shelf_close(tier, msg);
}

static const struct rn_actor_class tier_class = {
    .name = "tier",
    .handlers =
        {
            [RN_MSG_ADMIT] = on_admit,
            [RN_MSG_CANCEL] = on_wish,
            [RN_MSG_EXPIRE] = on_wish,
            [RN_MSG_STOPPED] = on_wish,
            [RN_MSG_CACHE_DUE] = rn_tier_on_cache_due,
            [RN_MSG_PREEMPTED] = on_preempted,
            [RN_MSG_READY] = on_ready,
            [RN_MSG_GROW] = on_grow,
            [RN_MSG_UNGRANT] = on_ungrant,
            [RN_MSG_SHORT_BACK] = on_short_back,
            [RN_MSG_SESSION_NEW] = on_session_new,
            [RN_MSG_SESSION_FREE] = on_session_free,
            [RN_MSG_SESSION_FORK] = rn_tier_on_session_fork,
            [RN_MSG_JOB_DONE] = rn_tier_on_job_done,
            [RN_MSG_RETIRE] = on_retire,
            [RN_MSG_COMPUTED] = on_computed,
            [RN_MSG_MOVED] = rn_tier_on_moved,
            [RN_MSG_CLOSE] = on_close,
        },
    .flush = rn_tier_shelf_flush,
};

runnel_status rn_tier_init(struct rn_tier *tier, const struct rn_context *context, uint32_t n_places)
{
    *tier = (struct rn_tier){.context = context};
    tier->passages = rn_calloc(context->heap, context->max_streams, sizeof tier->passages[0]);
    if (tier->passages == NULL)
        return RUNNEL_NO_MEMORY;
    if (rn_block_pool_init(&tier->pool, context->heap, context->limits->n_blocks) != RUNNEL_OK)
        goto fail_passages;
    if (rn_tier_shelf_init(tier, n_places) != RUNNEL_OK)
        goto fail_pool;
    if (rn_tier_cache_init(tier) != RUNNEL_OK)
        goto fail_shelf;
    if (rn_tier_lease_init(tier) != RUNNEL_OK)
        goto fail_cache;
    rn_metrics_count(context->metrics, RN_COUNT_BLOCKS_TOTAL, context->limits->n_blocks);
    rn_actor_init(&tier->actor, context->runtime, &tier_class,
                  (int32_t)(14 * context->max_streams + 2 * context->max_sessions + RN_COMPUTED_LISTS + RN_MOVES + 2));
    return RUNNEL_OK;
fail_cache:
    rn_tier_cache_fini(tier);
fail_shelf:
    rn_tier_shelf_fini(tier);
fail_pool:
    rn_block_pool_fini(&tier->pool);
fail_passages:
    rn_free(context->heap, tier->passages);
    return RUNNEL_NO_MEMORY;
}

void rn_tier_fini(struct rn_tier *tier)
{
    rn_metrics_count(tier->context->metrics, RN_COUNT_BLOCKS_TOTAL, -(int64_t)tier->pool.n_blocks);
    rn_tier_lease_fini(tier);
    rn_tier_cache_fini(tier);
    rn_tier_shelf_fini(tier);
    rn_free(tier->context->heap, tier->passages);
    rn_block_pool_fini(&tier->pool);
}
