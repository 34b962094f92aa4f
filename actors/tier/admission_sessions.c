/* Sessions: see admission_sessions.h. */
#include "actors/tier/admission_sessions.h"

#include <string.h>

#include "actors/context.h"
#include "actors/host/bridge.h"
#include "actors/tier/session_job.h"
#include "actors/tier/admission_lease.h"
#include "base/check.h"
#include "model/kv_size.h"

/* ---- Sessions ---- */

struct rn_session *rn_admission_session_of(const struct rn_admission *admission, const struct rn_request *request)
{
    struct rn_session *session;

    if (request->session_generation == 0)
        return NULL;
    session = &admission->context->sessions[request->session];
    return rn_word_get(&session->generation) == request->session_generation ? session : NULL;
}

static void take_out(struct rn_admission *admission, struct rn_session *session)
{
    struct rn_session **link = session->before != NULL ? &session->before->next : &admission->sessions;

    RN_CHECK(*link == session);
    *link = session->next;
    if (session->next != NULL)
        session->next->before = session->before;
}

static void free_session(struct rn_admission *admission, struct rn_session *session)
{
    const struct rn_context *context = admission->context;
    uint32_t generation = rn_word_get(&session->generation);

    RN_ASSERT(!session->busy && !session->free_wanted);
    take_out(admission, session);
    rn_admission_drop_blocks(admission, session);
    rn_free(admission->context->heap, session->tokens);
    session->tokens = NULL;
    session->n_tokens = 0;
    session->foreign = false;
    session->lost = RUNNEL_OK;
    rn_word_set(&session->n_known, 0);
    if (rn_host_claim(&session->freeing, generation))
        rn_counter_add(&context->totals->sessions, -1);
    rn_word_set(&session->generation, generation + 1);
    rn_pool_give(context->session_slots, rn_pool_cell(context->session_slots, (uint32_t)(session - context->sessions)));
}

/* Ends the turns that wait for a session that is about to be freed; one that has begun is none. */
static void end_waiting(struct rn_admission *admission, const struct rn_session *session)
{
    struct rn_request *next;

    for (struct rn_request *r = admission->waiting.first; r != NULL; r = next) {
        next = r->next;
        if (r->resumed || rn_admission_session_of(admission, r) != session)
            continue;
        rn_fair_queue_take(&admission->waiting, r);
        rn_request_fail(r, RUNNEL_NOT_FOUND, RN_SESSION_GONE);
        rn_admission_end(admission, r);
    }
}

static void leave(struct rn_admission *admission, struct rn_session *session)
{
    RN_ASSERT(!session->busy && !session->free_wanted);
    session->next_leaving = NULL;
    *(admission->leaving == NULL ? &admission->leaving : &admission->last_leaving->next_leaving) = session;
    admission->last_leaving = session;
}

static bool take_ready(struct rn_admission *admission);

/* Of each that is to be freed: ends the turns that wait for it, takes the snapshots of it, and frees it. True: there
 * was a snapshot. */
static bool drop_leaving(struct rn_admission *admission)
{
    struct rn_session *session;
    bool any = false;

    while ((session = admission->leaving) != NULL) {
        admission->leaving = session->next_leaving;
        end_waiting(admission, session);
        any |= take_ready(admission);
        free_session(admission, session);
    }
    return any;
}

static void drop_session(struct rn_admission *admission, struct rn_session *session)
{
    leave(admission, session);
    drop_leaving(admission);
}

/* The session is not busy any more. Where it is to be freed drop_leaving is due. */
static void become_idle(struct rn_admission *admission, struct rn_session *session)
{
    RN_ASSERT(session->busy && session->n_computed <= session->n_tokens);
    session->busy = false;
    if (session->free_wanted) {
        session->free_wanted = false;
        leave(admission, session);
    }
}

static void set_idle(struct rn_admission *admission, struct rn_session *session)
{
    become_idle(admission, session);
    drop_leaving(admission);
}

/* The request's tokens and the blocks of its computed positions stay with the session; with a mean window the tokens
 * alone, since what a shorter beginning of them would need is gone. */
static void keep_in_session(struct rn_admission *admission, struct rn_request *request, struct rn_session *session)
{
    uint32_t n_tokens = rn_request_kept_tokens(request);
    uint32_t n_computed = request->n_done < n_tokens ? request->n_done : n_tokens;
    uint32_t n_blocks;

    if (rn_kv_size_forgets(admission->context->limits)) {
        rn_admission_take_blocks_back(admission, request, 0);
        n_computed = 0;
    }
    n_blocks = rn_tier_blocks_for(admission->blocks, n_computed);
    RN_CHECK(n_blocks <= request->n_blocks && session->busy);
    rn_tier_blocks_unref(admission->blocks, request->blocks + n_blocks, request->n_blocks - n_blocks);
    rn_free(request->heap, session->tokens);
    session->tokens = request->tokens;
    session->n_tokens = n_tokens;
    session->n_computed = n_computed;
    session->blocks = request->blocks;
    session->n_blocks = n_blocks;
    session->foreign = request->apart;
    session->last_use = ++admission->uses;
    request->tokens = NULL;
    request->blocks = NULL;
}

void rn_admission_leave_session(struct rn_admission *admission, struct rn_request *request, struct rn_session *session)
{
    keep_in_session(admission, request, session);
    set_idle(admission, session);
}

void rn_admission_open_session(struct rn_admission *admission, struct rn_session *session)
{
    RN_ASSERT(session->tokens == NULL && session->n_tokens == 0 && session->n_blocks == 0 && !session->busy);
    session->before = NULL;
    session->next = admission->sessions;
    if (session->next != NULL)
        session->next->before = session;
    admission->sessions = session;
}

bool rn_admission_free_session(struct rn_admission *admission, struct rn_session *session, uint32_t generation)
{
    if (rn_word_get(&session->generation) != generation)
        return false;
    if (session->busy) {
        session->free_wanted = true;
        return false;
    }
    drop_session(admission, session);
    return true;
}

void rn_admission_close(struct rn_admission *admission)
{
    RN_CHECK(admission->waiting.n == 0 && admission->n_inside == 0 && admission->snapshots == NULL &&
             admission->jobs == NULL && admission->leaving == NULL);
    while (admission->sessions != NULL)
        free_session(admission, admission->sessions);
}

/* ---- Snapshots ---- */

/* The session that a snapshot is of; NULL: it has been freed. */
static struct rn_session *source_of(const struct rn_admission *admission, const struct rn_snapshot *snapshot)
{
    struct rn_session *session = &admission->context->sessions[snapshot->slot];

    return rn_word_get(&session->generation) == snapshot->generation ? session : NULL;
}

static bool is_ready(const struct rn_admission *admission, const struct rn_snapshot *snapshot)
{
    const struct rn_session *session = source_of(admission, snapshot);

    if (session == NULL)
        return true;
    if (session->busy)
        return false;
    for (const struct rn_request *r = admission->waiting.first; r != NULL; r = r->next)
        if (r->session == snapshot->slot && r->session_generation == snapshot->generation && r->order < snapshot->order)
            return false;
    return true;
}

bool rn_admission_is_behind_snapshot(const struct rn_admission *admission, const struct rn_request *request)
{
    for (const struct rn_snapshot *s = admission->snapshots; s != NULL; s = s->next)
        if (s->slot == request->session && s->generation == request->session_generation && s->order < request->order)
            return true;
    return false;
}

static void add_snapshot(struct rn_admission *admission, struct rn_snapshot *snapshot)
{
    RN_ASSERT((snapshot->copy != NULL) != (snapshot->request != NULL));
    snapshot->order = ++admission->orders;
    snapshot->next = NULL;
    *(admission->snapshots == NULL ? &admission->snapshots : &admission->last_snapshot->next) = snapshot;
    admission->last_snapshot = snapshot;
}

/* before: the one in front; NULL: it is the first. */
static void take_snapshot_out(struct rn_admission *admission, struct rn_snapshot *before, struct rn_snapshot *snapshot)
{
    *(before == NULL ? &admission->snapshots : &before->next) = snapshot->next;
    if (admission->last_snapshot == snapshot)
        admission->last_snapshot = before;
}

/* Tokens, and one more reference to each block. NO_MEMORY: nothing is held. */
static runnel_status copy_state(struct rn_admission *admission, const struct rn_session *session, int32_t **tokens,
                                uint32_t **blocks)
{
    struct rn_heap *heap = admission->context->heap;

    RN_ASSERT(!session->busy && session->n_computed <= session->n_tokens);
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
    rn_tier_blocks_ref(admission->blocks, *blocks, session->n_blocks);
    return RUNNEL_OK;
}

static void take_fork(struct rn_admission *admission, struct rn_session *copy, const struct rn_session *session)
{
    RN_ASSERT(copy->busy && copy->n_tokens == 0 && copy->n_blocks == 0 && copy != session);
    copy->lost = session == NULL ? RUNNEL_NOT_FOUND : session->lost;
    if (copy->lost == RUNNEL_OK)
        copy->lost = copy_state(admission, session, &copy->tokens, &copy->blocks);
    if (copy->lost == RUNNEL_OK) {
        copy->n_tokens = session->n_tokens;
        copy->n_computed = session->n_computed;
        copy->n_blocks = session->n_blocks;
        copy->salt = session->salt;
        copy->foreign = session->foreign;
        copy->last_use = ++admission->uses;
        rn_word_set(&copy->n_known, copy->n_tokens);
    }
    become_idle(admission, copy);
}

/* To the worker, which has request and job from here on; behind the jobs that have come before. */
static void hand_over(struct rn_admission *admission, struct rn_request *request)
{
    struct rn_session_job *job = request->job;

    RN_ASSERT(job->request == request && request->outcome == RN_OUTCOME_NONE);
    job->next = NULL;
    *(admission->jobs == NULL ? &admission->jobs : &admission->last_job->next) = job;
    admission->last_job = job;
    if (admission->jobs == job)
        rn_session_job_post(request);
}

static void take_export(struct rn_admission *admission, struct rn_request *request, const struct rn_session *session)
{
    runnel_status lost = session == NULL ? RUNNEL_NOT_FOUND : session->lost;

    if (lost != RUNNEL_OK)
        rn_request_fail(request, lost, "the session has been freed, or is no copy, or its import has failed: %s",
                        runnel_status_text(lost));
    else if (copy_state(admission, session, &request->tokens, &request->blocks) != RUNNEL_OK)
        rn_request_fail(request, RUNNEL_NO_MEMORY, "no memory for the %u tokens of the session", session->n_tokens);
    if (request->outcome != RN_OUTCOME_NONE) {
        rn_admission_end(admission, request);
        return;
    }
    request->n_tokens = request->capacity = session->n_tokens;
    request->n_blocks = session->n_blocks;
    request->n_cached = session->n_computed;
    request->adapter_print = session->salt.word[1];
    request->admitted_us = rn_now_us(admission->context->clock);
    hand_over(admission, request);
}

static void take(struct rn_admission *admission, const struct rn_snapshot *snapshot)
{
    if (snapshot->copy != NULL)
        take_fork(admission, snapshot->copy, source_of(admission, snapshot));
    else
        take_export(admission, snapshot->request, source_of(admission, snapshot));
}

/* What one makes ready, snapshots of its copy, comes behind it. True: there was one. Sessions may be leaving. */
static bool take_ready(struct rn_admission *admission)
{
    struct rn_snapshot *before = NULL, *next;
    bool any = false;

    for (struct rn_snapshot *s = admission->snapshots; s != NULL; s = next) {
        next = s->next;
        if (!is_ready(admission, s)) {
            before = s;
            continue;
        }
        take_snapshot_out(admission, before, s);
        take(admission, s);
        any = true;
    }
    return any;
}

bool rn_admission_take_snapshots(struct rn_admission *admission)
{
    bool any = take_ready(admission);

    return drop_leaving(admission) || any;
}

bool rn_admission_fork_session(struct rn_admission *admission, struct rn_session *copy, uint32_t from,
                               uint32_t from_generation)
{
    rn_admission_open_session(admission, copy);
    copy->busy = true;
    copy->becomes = (struct rn_snapshot){.slot = from, .generation = from_generation, .copy = copy};
    add_snapshot(admission, &copy->becomes);
    return true;
}

/* ---- Jobs ---- */

/* The outcome is set. A session that was to come out of a file and does not is gone before the host knows. */
static void end_job(struct rn_admission *admission, struct rn_request *request)
{
    struct rn_session *session = rn_admission_session_of(admission, request);

    if (request->job->kind == RN_JOB_IMPORT && request->outcome != RN_OUTCOME_DONE && session != NULL) {
        session->busy = session->free_wanted = false;
        session->lost = RUNNEL_NOT_FOUND; /* for those who want a copy of it: else they would get an empty one */
        drop_session(admission, session);
    }
    rn_admission_end(admission, request);
}

bool rn_admission_take_job(struct rn_admission *admission, struct rn_request *request)
{
    struct rn_session_job *job = request->job;
    struct rn_session *session = rn_admission_session_of(admission, request);

    if (session == NULL)
        rn_request_fail(request, RUNNEL_NOT_FOUND, RN_SESSION_GONE);
    if (request->outcome != RN_OUTCOME_NONE) {
        end_job(admission, request);
    } else if (job->kind == RN_JOB_IMPORT) {
        session->busy = true;
        hand_over(admission, request);
        return false;
    } else {
        job->wish = (struct rn_snapshot){
            .slot = request->session, .generation = request->session_generation, .request = request};
        add_snapshot(admission, &job->wish);
    }
    return true;
}

bool rn_admission_cancel_job(struct rn_admission *admission, uint32_t slot, uint32_t generation, bool *serve)
{
    struct rn_snapshot *before = NULL;

    *serve = false;
    for (struct rn_session_job *job = admission->jobs; job != NULL; job = job->next)
        if (job->request->slot == slot && job->request->generation == generation) {
            rn_word_set(&job->cancel, 1);
            return true;
        }
    for (struct rn_snapshot *s = admission->snapshots; s != NULL; before = s, s = s->next) {
        struct rn_request *request = s->request;

        if (request == NULL || request->slot != slot || request->generation != generation)
            continue;
        take_snapshot_out(admission, before, s);
        rn_request_end(request, RN_OUTCOME_CANCELLED, RUNNEL_FINISH_NONE);
        rn_admission_end(admission, request);
        return *serve = true;
    }
    return false;
}

/* Blocks for the file's KV: as many as can be had now, from its start. What is left out is computed by the
 * next turn. */
static void lease_for_import(struct rn_admission *admission, struct rn_request *request)
{
    const struct rn_session_job *job = request->job;
    uint32_t per_block = admission->context->limits->block_tokens;
    uint32_t n = job->fits ? job->reader.head.n_blocks : 0;
    uint32_t n_computed = job->reader.head.n_computed;

    if (!rn_admission_make_room(admission, NULL, n))
        n = admission->blocks->pool.n_free;
    request->blocks = rn_alloc(request->heap, n, sizeof *request->blocks);
    if (request->blocks == NULL) {
        rn_request_fail(request, RUNNEL_NO_MEMORY, "no memory for the block table of the session");
        return;
    }
    rn_tier_blocks_take(admission->blocks, n, request->blocks);
    request->job->leased = true;
    request->n_blocks = n;
    request->n_cached = n_computed / per_block < n ? n_computed : n * per_block;
    RN_ASSERT(request->n_cached <= request->n_tokens && request->n_cached <= n * per_block);
    request->admitted_us = rn_now_us(admission->context->clock);
}

static void install(struct rn_admission *admission, struct rn_request *request)
{
    struct rn_session *session = rn_admission_session_of(admission, request);

    RN_CHECK(session != NULL && session->busy && session->n_blocks == 0);
    rn_free(request->heap, session->tokens);
    rn_free(request->heap, session->blocks);
    session->tokens = request->tokens;
    session->n_tokens = request->n_tokens;
    session->n_computed = request->n_cached;
    session->blocks = request->blocks;
    session->n_blocks = request->n_blocks;
    session->salt = rn_request_salt(request);
    session->foreign = true;
    session->last_use = ++admission->uses;
    request->tokens = NULL;
    request->blocks = NULL;
    request->n_blocks = 0;
    rn_word_set(&session->n_known, session->n_tokens);
    set_idle(admission, session);
}

void rn_admission_job_copied(struct rn_admission *admission)
{
    RN_CHECK(admission->jobs != NULL);
    rn_session_job_post(admission->jobs->request);
}

bool rn_admission_job_done(struct rn_admission *admission, struct rn_session_job *job)
{
    struct rn_request *request = job->request;

    RN_CHECK(admission->jobs == job);
    admission->jobs = job->next;
    if (admission->jobs != NULL)
        rn_session_job_post(admission->jobs->request);
    if (job->error.status == RUNNEL_CANCELLED)
        rn_request_end(request, RN_OUTCOME_CANCELLED, RUNNEL_FINISH_NONE);
    else if (job->error.status != RUNNEL_OK)
        rn_request_fail(request, job->error.status, "%s", job->error.message);
    if (request->outcome == RN_OUTCOME_NONE && job->kind == RN_JOB_IMPORT && !job->leased) { /* its tokens are there */
        lease_for_import(admission, request);
        if (request->outcome == RN_OUTCOME_NONE) {
            hand_over(admission, request);
            return false;
        }
    }
    if (request->outcome == RN_OUTCOME_NONE && job->kind == RN_JOB_IMPORT)
        install(admission, request);
    rn_request_end(request, RN_OUTCOME_DONE, RUNNEL_FINISH_NONE);
    end_job(admission, request);
    return true;
}
