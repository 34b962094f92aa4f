/* Whose turn it is: see admission.h. */
#include "actors/context.h"
#include "actors/telemetry/telemetry.h"
#include "actors/tier/session_slot.h"
#include "actors/tier/admission_begin.h"
#include "actors/tier/admission_lease.h"
#include "actors/tier/admission_sessions.h"
#include "base/check.h"

static void start(struct rn_admission *admission, struct rn_request *request)
{
    RN_ASSERT(request->outcome == RN_OUTCOME_NONE && request->n_done < request->n_tokens);
    RN_ASSERT(request->n_tokens <= request->n_limit && request->n_tokens <= request->capacity);
    request->stalled = false;
    if (!request->resumed) {
        request->n_cached = request->n_done;
        request->n_scored = request->n_history; /* whatever of it is found */
        RN_ASSERT(!request->want_logits || request->n_done <= request->n_history);
        rn_prefix_cache_count_lower(admission->cache, request);
        request->admitted_us = rn_now_us(admission->context->clock);
        for (uint32_t i = 0; i < request->n_prompt; i++)
            rn_sampler_accept(request->sampler, request->tokens[i]);
        rn_sampler_begin_answer(request->sampler);
        rn_request_unqueue(request);
        rn_fair_queue_served(&admission->waiting, request);
    }
    rn_telemetry_admitted(admission->context->tier, request);
    rn_admission_go_in(admission, request);
    rn_request_send(request, admission->context->prefill, RN_MSG_PREFILL);
}

/* Tries to admit, and then it is another's; false when the request has to wait for blocks, its own or another's. */
static bool admit(struct rn_admission *admission, struct rn_request *request)
{
    bool done;

    if (rn_request_is_late(request, rn_now_us(admission->context->clock)))
        rn_request_end_by(request, RN_MSG_EXPIRE);
    done =
        request->outcome != RN_OUTCOME_NONE ||
        (request->resumed ? rn_admission_begin_again(admission, request)
                          : rn_admission_begin_first(admission, request, rn_admission_session_of(admission, request)));
    if (!done)
        return false;
    if (request->outcome != RN_OUTCOME_NONE)
        rn_admission_end(admission, request);
    else
        start(admission, request);
    return true;
}

/* The turns of a session go in the order in which they came, whatever their priorities. */
static bool has_earlier_turn(const struct rn_admission *admission, const struct rn_request *request)
{
    for (const struct rn_request *r = admission->waiting.first; r != NULL; r = r->next)
        if (r->session == request->session && r->session_generation == request->session_generation &&
            r->order < request->order)
            return true;
    return false;
}

/* A request that waits for its reader, for another's blocks, or whose session is in use: it keeps its place and holds
 * nobody but the later turns of that session. */
static bool is_held(struct rn_admission *admission, const struct rn_request *request, const struct rn_session *session)
{
    if (session != NULL &&
        (session->busy || has_earlier_turn(admission, request) || rn_admission_is_behind_snapshot(admission, request)))
        return true;
    return request->stalled || rn_prefix_cache_waits(admission->cache, request->slot);
}

/* Admits what fits, in order, of higher priority than `floor`. The first for which there are no blocks holds the rest;
 * false then. */
static bool admit_some(struct rn_admission *admission, int64_t floor)
{
    struct rn_request *next;

    for (struct rn_request *r = admission->waiting.first; r != NULL && r->priority > floor; r = next) {
        struct rn_session *session =
            r->resumed ? NULL : rn_admission_session_of(admission, r); /* one that began has its session */

        next = r->next;
        if (!is_held(admission, r, session)) {
            rn_fair_queue_take(&admission->waiting, r);
            if (admit(admission, r))
                continue;
            rn_fair_queue_put_back(&admission->waiting, r, next);
            if (!rn_prefix_cache_waits(admission->cache, r->slot)) {
                admission->full = true;
                admission->full_priority = r->priority;
                rn_admission_claim(admission, r->priority);
                return false;
            }
        }
    }
    return true;
}

void rn_admission_serve(struct rn_admission *admission)
{
    bool served;

    rn_admission_take_snapshots(admission);
    admission->full = false;
    do {
        int32_t priority = 0;
        bool grown = rn_admission_grow_all(admission, &priority);

        admission->blocks->woken = false;
        served = admit_some(admission, grown ? INT64_MIN : priority) && grown;
    } while (rn_admission_take_snapshots(admission) || admission->blocks->woken);
    RN_ASSERT(!served || admission->n_wanting == 0);
    if (served)
        rn_admission_end_shortage(admission);
}

/* ---- Comings and goings ---- */

void rn_admission_arrive(struct rn_admission *admission, struct rn_request *request)
{
    const struct rn_admission_stream *stream = &admission->streams[request->slot];

    RN_ASSERT(stream->passed == 0 && !rn_prefix_cache_waits(admission->cache, request->slot));
    request->order = ++admission->orders;
    if (stream->cancelled == request->generation)
        rn_request_end_by(request, stream->ending);
    if (request->job != NULL) {
        if (rn_admission_take_job(admission, request))
            rn_admission_serve(admission);
        return;
    }
    if (request->outcome != RN_OUTCOME_NONE) { /* or the tokenizer failed */
        rn_admission_end(admission, request);
        return;
    }
    if (admission->waiting.n > 0)
        rn_prefix_cache_prefetch(admission->cache, request);
    rn_fair_queue_push(&admission->waiting, request, request->n_tokens);
    if (!admission->full || request == admission->waiting.first || request->priority > admission->full_priority)
        rn_admission_serve(admission);
}

void rn_admission_take_back(struct rn_admission *admission, struct rn_request *request)
{
    const struct rn_admission_stream *stream = &admission->streams[request->slot];

    RN_ASSERT(stream->passed == request->generation && request->n_tokens <= request->capacity);
    rn_prefix_cache_leave(admission->cache, request);
    if (request->stalled)
        rn_admission_brought(admission, request->n_blocks);
    rn_admission_take_blocks_back(admission, request, 0);
    rn_admission_come_out(admission, request);
    RN_ASSERT(request->n_blocks == 0 && request->copy == RN_COPY_NONE);
    request->n_done = 0;
    request->resumed = true;
    rn_telemetry_preempted(admission->context->tier, request);
    if (request->shifts)
        rn_admission_shift(admission, request);
    if (stream->cancelled == request->generation) {
        rn_request_end_by(request, stream->ending);
        rn_admission_end(admission, request);
    } else {
        rn_fair_queue_push_front(&admission->waiting, request);
    }
    rn_admission_serve(admission);
}

void rn_admission_ready(struct rn_admission *admission, uint32_t slot, uint32_t generation)
{
    struct rn_request *request = rn_fair_queue_find(&admission->waiting, slot, generation);

    if (request != NULL)
        request->stalled = false;
}

void rn_admission_cache_due(struct rn_admission *admission, uint32_t slot, uint32_t generation)
{
    if (rn_fair_queue_find(&admission->waiting, slot, generation) != NULL &&
        rn_prefix_cache_give_up_waiting(admission->cache, slot))
        rn_admission_serve(admission);
}

bool rn_admission_end_stream(struct rn_admission *admission, uint32_t slot, uint32_t generation, uint32_t kind)
{
    struct rn_admission_stream *stream = &admission->streams[slot];
    struct rn_request *request;
    bool serve = false;

    if (kind != RN_MSG_STOPPED && stream->cancelled != generation) {
        stream->cancelled = generation;
        stream->ending = kind;
    }
    if (rn_admission_is_inside(admission, slot, generation))
        return true;
    if (!rn_admission_cancel_job(admission, slot, generation, &serve) &&
        (request = rn_fair_queue_remove(&admission->waiting, slot, generation)) != NULL) {
        rn_request_end_by(request, kind);
        rn_admission_end(admission, request);
        serve = true; /* it may have been the first in line */
    }
    if (serve)
        rn_admission_serve(admission);
    return false;
}

void rn_admission_retire(struct rn_admission *admission, struct rn_request *request)
{
    struct rn_session *session = rn_admission_session_of(admission, request);

    rn_prefix_cache_leave(admission->cache, request);
    /* n_limit says that it was admitted, and so held its session. */
    if (request->n_limit > 0 && session != NULL)
        rn_admission_leave_session(admission, request, session);
    else if (request->n_blocks > 0)
        rn_admission_take_blocks_back(admission, request, 0);
    RN_ASSERT(request->blocks == NULL || request->n_blocks == 0);
    rn_admission_come_out(admission, request);
}
