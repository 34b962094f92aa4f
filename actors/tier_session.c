/* Forks, exports and imports of sessions: see tier_session.h. */
#include "actors/tier_session.h"

#include <string.h>

#include "actors/context.h"
#include "actors/session_job.h"
#include "actors/tier_cache.h"
#include "actors/tier_lease.h"
#include "base/check.h"

/* ---- Snapshots ---- */

/* The session that a snapshot is of; NULL: it has been freed. */
static struct rn_session *source_of(const struct rn_tier *tier, const struct rn_snapshot *snapshot)
{
    struct rn_session *session = &tier->context->sessions[snapshot->slot];

    return rn_word_get(&session->generation) == snapshot->generation ? session : NULL;
}

static bool is_ready(const struct rn_tier *tier, const struct rn_snapshot *snapshot)
{
    const struct rn_session *session = source_of(tier, snapshot);

    if (session == NULL)
        return true;
    if (session->busy)
        return false;
    for (const struct rn_request *r = tier->waiting.first; r != NULL; r = r->next)
        if (r->session == snapshot->slot && r->session_generation == snapshot->generation && r->order < snapshot->order)
            return false;
    return true;
}

bool rn_tier_is_behind_snapshot(const struct rn_tier *tier, const struct rn_request *request)
{
    for (const struct rn_snapshot *s = tier->snapshots; s != NULL; s = s->next)
        if (s->slot == request->session && s->generation == request->session_generation && s->order < request->order)
            return true;
    return false;
}

static void add_snapshot(struct rn_tier *tier, struct rn_snapshot *snapshot)
{
    struct rn_snapshot **link = &tier->snapshots;

    while (*link != NULL)
        link = &(*link)->next;
    snapshot->order = ++tier->orders;
    snapshot->next = NULL;
    *link = snapshot;
}

/* Tokens, and one more reference to each block. NO_MEMORY: nothing is held. */
static runnel_status copy_state(struct rn_tier *tier, const struct rn_session *session, int32_t **tokens,
                                uint32_t **blocks)
{
    struct rn_heap *heap = tier->context->heap;

    *tokens = rn_alloc(heap, session->n_tokens, sizeof **tokens);
    *blocks = rn_alloc(heap, session->n_blocks, sizeof **blocks);
    if (*tokens == NULL || *blocks == NULL) {
        rn_free(heap, *tokens);
        rn_free(heap, *blocks);
        *tokens = NULL;
        *blocks = NULL;
        return RUNNEL_NO_MEMORY;
    }
    if (session->n_tokens > 0)
        memcpy(*tokens, session->tokens, session->n_tokens * sizeof **tokens);
    if (session->n_blocks > 0)
        memcpy(*blocks, session->blocks, session->n_blocks * sizeof **blocks);
    rn_tier_ref(tier, *blocks, session->n_blocks);
    return RUNNEL_OK;
}

static void take_fork(struct rn_tier *tier, struct rn_session *copy, const struct rn_session *session)
{
    copy->lost = session == NULL ? RUNNEL_NOT_FOUND : session->lost;
    if (copy->lost == RUNNEL_OK)
        copy->lost = copy_state(tier, session, &copy->tokens, &copy->blocks);
    if (copy->lost == RUNNEL_OK) {
        copy->n_tokens = session->n_tokens;
        copy->n_computed = session->n_computed;
        copy->n_blocks = session->n_blocks;
        copy->salt = session->salt;
        copy->foreign = session->foreign;
        copy->last_use = ++tier->uses;
        rn_word_set(&copy->n_known, copy->n_tokens);
    }
    rn_tier_session_idle(tier, copy);
}

/* To the worker, which has request and job from here on. */
static void hand_over(struct rn_tier *tier, struct rn_request *request)
{
    request->job->next = tier->jobs;
    tier->jobs = request->job;
    rn_session_job_post(request);
}

static void take_export(struct rn_tier *tier, struct rn_request *request, const struct rn_session *session)
{
    runnel_status lost = session == NULL ? RUNNEL_NOT_FOUND : session->lost;

    if (lost != RUNNEL_OK)
        rn_request_fail(request, lost, "the session has been freed, or is no copy: %s", runnel_status_text(lost));
    else if (copy_state(tier, session, &request->tokens, &request->blocks) != RUNNEL_OK)
        rn_request_fail(request, RUNNEL_NO_MEMORY, "no memory for the %u tokens of the session", session->n_tokens);
    if (request->outcome != RN_OUTCOME_NONE) {
        rn_tier_end(tier, request);
        return;
    }
    request->n_tokens = request->capacity = session->n_tokens;
    request->n_blocks = session->n_blocks;
    request->n_cached = session->n_computed;
    request->admitted_us = rn_now_us(tier->context->clock);
    hand_over(tier, request);
}

/* Takes the first that is ready; what that leads to may take others, so the list is looked through anew each time. */
static bool take_one(struct rn_tier *tier)
{
    struct rn_snapshot **link = &tier->snapshots, *snapshot;

    while (*link != NULL && !is_ready(tier, *link))
        link = &(*link)->next;
    snapshot = *link;
    if (snapshot == NULL)
        return false;
    *link = snapshot->next;
    if (snapshot->copy != NULL)
        take_fork(tier, snapshot->copy, source_of(tier, snapshot));
    else
        take_export(tier, snapshot->request, source_of(tier, snapshot));
    return true;
}

bool rn_tier_take_snapshots(struct rn_tier *tier)
{
    bool any = false;

    while (take_one(tier))
        any = true;
    return any;
}

void rn_tier_on_session_fork(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_tier *tier = (struct rn_tier *)self;
    const struct rn_pay_fork fork = msg->fork;
    struct rn_session *copy = &tier->context->sessions[fork.slot];

    rn_msg_free(self->runtime, msg);
    copy->next = tier->sessions;
    tier->sessions = copy;
    copy->busy = true;
    copy->becomes = (struct rn_snapshot){.slot = fork.from, .generation = fork.from_generation, .copy = copy};
    add_snapshot(tier, &copy->becomes);
    rn_tier_serve(tier);
}

/* ---- Jobs ---- */

/* The outcome is set. A session that was to come out of a file and does not is gone before the host knows. */
static void end_job(struct rn_tier *tier, struct rn_request *request)
{
    struct rn_session *session = rn_tier_session_of(tier, request);

    if (request->job->kind == RN_JOB_IMPORT && request->outcome != RN_OUTCOME_DONE && session != NULL) {
        session->busy = session->free_wanted = false;
        session->lost = RUNNEL_NOT_FOUND; /* for those who want a copy of it: else they would get an empty one */
        rn_tier_drop_session(tier, session);
    }
    rn_tier_end(tier, request);
    rn_tier_serve(tier);
}

void rn_tier_take_job(struct rn_tier *tier, struct rn_request *request)
{
    struct rn_session_job *job = request->job;
    struct rn_session *session = rn_tier_session_of(tier, request);

    if (session == NULL)
        rn_request_fail(request, RUNNEL_NOT_FOUND, "the session has been freed");
    if (request->outcome != RN_OUTCOME_NONE) {
        end_job(tier, request);
    } else if (job->kind == RN_JOB_IMPORT) {
        session->busy = true;
        hand_over(tier, request);
    } else {
        job->wish = (struct rn_snapshot){
            .slot = request->session, .generation = request->session_generation, .request = request};
        add_snapshot(tier, &job->wish);
        rn_tier_serve(tier);
    }
}

bool rn_tier_cancel_job(struct rn_tier *tier, uint32_t slot, uint32_t generation)
{
    struct rn_snapshot **link = &tier->snapshots;

    for (struct rn_session_job *job = tier->jobs; job != NULL; job = job->next)
        if (job->request->slot == slot && job->request->generation == generation) {
            rn_word_set(&job->cancel, 1);
            return true;
        }
    for (; *link != NULL; link = &(*link)->next) {
        struct rn_request *request = (*link)->request;

        if (request == NULL || request->slot != slot || request->generation != generation)
            continue;
        *link = (*link)->next;
        rn_request_end(request, RN_OUTCOME_CANCELLED, RUNNEL_FINISH_NONE);
        rn_tier_end(tier, request);
        rn_tier_serve(tier);
        return true;
    }
    return false;
}

/* Blocks for the file's KV: as many as can be had now, from its start. What is left out is computed by the next turn.
 * */
static void lease_for_import(struct rn_tier *tier, struct rn_request *request)
{
    const struct rn_session_job *job = request->job;
    uint32_t per_block = tier->context->limits->block_tokens;
    uint32_t n = job->fits ? job->reader.head.n_blocks : 0;
    uint32_t n_computed = job->reader.head.n_computed;

    if (!rn_tier_make_room(tier, NULL, n))
        n = tier->pool.n_free;
    request->blocks = rn_alloc(request->heap, n, sizeof *request->blocks);
    if (request->blocks == NULL) {
        rn_request_fail(request, RUNNEL_NO_MEMORY, "no memory for the block table of the session");
        return;
    }
    rn_tier_take(tier, n, request->blocks);
    request->job->leased = true;
    request->n_blocks = n;
    request->n_cached = n_computed / per_block < n ? n_computed : n * per_block;
    request->admitted_us = rn_now_us(tier->context->clock);
}

static void install(struct rn_tier *tier, struct rn_request *request)
{
    struct rn_session *session = rn_tier_session_of(tier, request);

    RN_CHECK(session != NULL && session->busy && session->n_blocks == 0);
    rn_free(request->heap, session->tokens);
    rn_free(request->heap, session->blocks);
    session->tokens = request->tokens;
    session->n_tokens = request->n_tokens;
    session->n_computed = request->n_cached;
    session->blocks = request->blocks;
    session->n_blocks = request->n_blocks;
    session->salt = request->cache_salt;
    session->foreign = true;
    session->last_use = ++tier->uses;
    request->tokens = NULL;
    request->blocks = NULL;
    request->n_blocks = 0;
    rn_word_set(&session->n_known, session->n_tokens);
    rn_tier_session_idle(tier, session);
}

static void unlink_job(struct rn_tier *tier, struct rn_session_job *job)
{
    struct rn_session_job **link = &tier->jobs;

    while (*link != job)
        link = &(*link)->next;
    *link = job->next;
}

void rn_tier_on_job_done(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_tier *tier = (struct rn_tier *)self;
    struct rn_session_job *job = msg->job.job;
    struct rn_request *request = job->request;

    rn_msg_free(self->runtime, msg);
    unlink_job(tier, job);
    if (job->error.status == RUNNEL_CANCELLED)
        rn_request_end(request, RN_OUTCOME_CANCELLED, RUNNEL_FINISH_NONE);
    else if (job->error.status != RUNNEL_OK)
        rn_request_fail(request, job->error.status, "%s", job->error.message);
    if (request->outcome == RN_OUTCOME_NONE && job->kind == RN_JOB_IMPORT && !job->leased) { /* its tokens are there */
        lease_for_import(tier, request);
        if (request->outcome == RN_OUTCOME_NONE) {
            hand_over(tier, request);
            return;
        }
    }
    if (request->outcome == RN_OUTCOME_NONE && job->kind == RN_JOB_IMPORT)
        install(tier, request);
    rn_request_end(request, RN_OUTCOME_DONE, RUNNEL_FINISH_NONE);
    end_job(tier, request);
}
