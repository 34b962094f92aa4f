/* The tier actor: see tier_actor.h. What a message does stands with the objects; here is what they are told of it. */
#include "actors/tier_actor.h"

#include <stddef.h>

#include "actors/context.h"
#include "actors/lists.h"
#include "actors/tier/session_job.h"
#include "actors/tier/session_slot.h"
#include "actors/request.h"
#include "base/check.h"

static_assert(offsetof(struct rn_tier, actor) == 0, "handlers get the actor");

static struct rn_tier *tier_of(struct rn_actor *actor)
{
    return (struct rn_tier *)actor;
}

/* ---- Requests ---- */

static void on_admit(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_request *request = msg->request.request;

    RN_ASSERT(rn_request_check(request) && request->n_blocks == 0 && !request->resumed);
    rn_msg_free(self->runtime, msg);
    rn_admission_arrive(&tier_of(self)->admission, request);
}

static void on_preempted(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_request *request = msg->request.request;

    RN_ASSERT(rn_request_check(request) && request->in_steps == 0 && request->outcome == RN_OUTCOME_NONE);
    rn_msg_free(self->runtime, msg);
    rn_admission_take_back(&tier_of(self)->admission, request);
}

static void on_ready(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_admission *admission = &tier_of(self)->admission;

    rn_admission_ready(admission, msg->stream.slot, msg->stream.generation);
    rn_msg_free(self->runtime, msg);
    rn_admission_serve(admission);
}

/* CANCEL, EXPIRE, STOPPED */
static void on_end_request(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_tier *tier = tier_of(self);

    if (rn_admission_end_stream(&tier->admission, msg->stream.slot, msg->stream.generation, msg->head.kind))
        rn_actor_send(tier->context->prefill, msg);
    else
        rn_msg_free(self->runtime, msg);
}

static void on_cache_due(struct rn_actor *self, struct rn_msg *msg)
{
    const struct rn_pay_stream stream = msg->stream;

    rn_msg_free(self->runtime, msg);
    rn_admission_cache_due(&tier_of(self)->admission, stream.slot, stream.generation);
}

static void on_retire(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_tier *tier = tier_of(self);
    struct rn_request *request = msg->request.request;

    RN_ASSERT(rn_request_check(request) && request->outcome != RN_OUTCOME_NONE);
    rn_admission_retire(&tier->admission, request);
    msg->head.kind = RN_MSG_ENDED;
    msg->ended = (struct rn_pay_ended){request->slot, request->generation, request->context->model};
    rn_request_free(request);
    rn_actor_send(tier->context->router, msg);
    rn_admission_serve(&tier->admission);
}

/* ---- Blocks ---- */

static void on_computed(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_tier *tier = tier_of(self);
    const struct rn_computed_list *list = msg->computed.list;

    RN_ASSERT(list->n > 0 && list->n <= RN_COMPUTED_ITEMS);
    for (uint32_t i = 0; i < list->n; i++) {
        RN_CHECK(rn_admission_is_inside(&tier->admission, list->items[i].slot, list->items[i].generation));
        rn_prefix_cache_publish(&tier->cache, &list->items[i]);
    }
    msg->head.kind = RN_MSG_COMPUTED_BACK;
    rn_actor_send(tier->context->decode, msg);
    if (tier->cache.blocks.woken)
        rn_admission_serve(&tier->admission);
}

static void on_grow(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_admission *admission = &tier_of(self)->admission;
    int32_t priority;

    RN_ASSERT(msg->stream.n > 0 && msg->stream.slot < admission->context->max_streams);
    rn_admission_grow(admission, msg->stream.slot, msg->stream.generation, msg->stream.n);
    rn_msg_free(self->runtime, msg);
    rn_admission_grow_all(admission, &priority);
}

static void on_ungrant(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_tier *tier = tier_of(self);

    RN_ASSERT(msg->grant.n > 0 && msg->grant.n <= RN_LEASE_BLOCKS);
    rn_tier_blocks_unref(&tier->cache.blocks, msg->grant.blocks, msg->grant.n);
    rn_msg_free(self->runtime, msg);
    rn_admission_serve(&tier->admission);
}

static void on_short_back(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_admission *admission = &tier_of(self)->admission;

    rn_msg_free(self->runtime, msg);
    rn_admission_short_back(admission);
    rn_admission_serve(admission);
}

/* What comes up is paid as if those that run had shared the time of computing it. */
static void on_moved(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_tier *tier = tier_of(self);
    struct rn_move *move = msg->move.move;
    uint32_t n_inside = tier->admission.n_inside;

    RN_ASSERT(move->n <= RN_MOVE_BLOCKS && move->n_told <= RN_MOVE_TOLD && tier->directory.tiers != 0);
    rn_msg_free(self->runtime, msg);
    if (move->kind == RN_MOVE_UP)
        rn_prefix_cache_arrived(&tier->cache, move, n_inside < RN_PREFILL_LANES ? n_inside : RN_PREFILL_LANES);
    rn_directory_moved(&tier->directory, move);
    rn_prefix_cache_send_promotions(&tier->cache);
    if (rn_admission_has_waiting(&tier->admission))
        rn_admission_serve(&tier->admission);
}

/* ---- Sessions ---- */

static void on_session_new(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_tier *tier = tier_of(self);

    rn_admission_open_session(&tier->admission, &tier->context->sessions[msg->session.slot]);
    rn_msg_free(self->runtime, msg);
}

static void on_session_free(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_tier *tier = tier_of(self);
    struct rn_session *session = &tier->context->sessions[msg->session.slot];

    if (rn_admission_free_session(&tier->admission, session, msg->session.generation))
        rn_admission_serve(&tier->admission);
    rn_msg_free(self->runtime, msg);
}

static void on_session_fork(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_tier *tier = tier_of(self);
    const struct rn_pay_fork fork = msg->fork;

    rn_msg_free(self->runtime, msg);
    rn_admission_fork_session(&tier->admission, &tier->context->sessions[fork.slot], fork.from, fork.from_generation);
    rn_admission_serve(&tier->admission);
}

static void on_copied(struct rn_actor *self, struct rn_msg *msg)
{
    rn_msg_free(self->runtime, msg);
    rn_admission_job_copied(&tier_of(self)->admission);
}

static void on_job_done(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_admission *admission = &tier_of(self)->admission;
    struct rn_session_job *job = msg->job.job;

    rn_msg_free(self->runtime, msg);
    if (rn_admission_job_done(admission, job))
        rn_admission_serve(admission);
}

/* ---- The actor ---- */

static void finish_close(struct rn_tier *tier)
{
    struct rn_msg *msg = tier->closing;

    tier->closing = NULL;
    rn_actor_on_close(&tier->actor, msg);
}

static void on_close(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_tier *tier = tier_of(self);

    RN_ASSERT(tier->closing == NULL);
    rn_admission_close(&tier->admission);
    tier->closing = msg;
    if (rn_directory_close(&tier->directory))
        finish_close(tier);
}

static void on_flush(struct rn_actor *self)
{
    struct rn_tier *tier = tier_of(self);

    if (rn_directory_flush(&tier->directory))
        finish_close(tier);
}

static const struct rn_actor_class tier_class = {
    .name = "tier",
    .handlers =
        {
            [RN_MSG_ADMIT] = on_admit,
            [RN_MSG_CANCEL] = on_end_request,
            [RN_MSG_EXPIRE] = on_end_request,
            [RN_MSG_STOPPED] = on_end_request,
            [RN_MSG_CACHE_DUE] = on_cache_due,
            [RN_MSG_PREEMPTED] = on_preempted,
            [RN_MSG_READY] = on_ready,
            [RN_MSG_GROW] = on_grow,
            [RN_MSG_UNGRANT] = on_ungrant,
            [RN_MSG_SHORT_BACK] = on_short_back,
            [RN_MSG_SESSION_NEW] = on_session_new,
            [RN_MSG_SESSION_FREE] = on_session_free,
            [RN_MSG_SESSION_FORK] = on_session_fork,
            [RN_MSG_COPIED] = on_copied,
            [RN_MSG_JOB_DONE] = on_job_done,
            [RN_MSG_RETIRE] = on_retire,
            [RN_MSG_COMPUTED] = on_computed,
            [RN_MSG_MOVED] = on_moved,
            [RN_MSG_CLOSE] = on_close,
        },
    .flush = on_flush,
};

runnel_status rn_tier_init(struct rn_tier *tier, const struct rn_context *context, uint32_t n_numbers)
{
    *tier = (struct rn_tier){.context = context};
    if (rn_directory_init(&tier->directory, context, &tier->cache.blocks, n_numbers) != RUNNEL_OK)
        return RUNNEL_NO_MEMORY;
    if (rn_prefix_cache_init(&tier->cache, context, &tier->directory) != RUNNEL_OK)
        goto fail_directory;
    if (rn_admission_init(&tier->admission, context, &tier->cache) != RUNNEL_OK)
        goto fail_cache;
    rn_metrics_count(context->metrics, RN_COUNT_BLOCKS_TOTAL, context->limits->n_blocks);
    rn_actor_init(&tier->actor, context->runtime, &tier_class, rn_bounds_credits(&context->bounds, RN_ROLE_TIER));
    return RUNNEL_OK;
fail_cache:
    rn_prefix_cache_fini(&tier->cache);
fail_directory:
    rn_directory_fini(&tier->directory);
    return RUNNEL_NO_MEMORY;
}

void rn_tier_fini(struct rn_tier *tier)
{
    rn_metrics_count(tier->context->metrics, RN_COUNT_BLOCKS_TOTAL, -(int64_t)tier->context->limits->n_blocks);
    rn_admission_fini(&tier->admission);
    rn_prefix_cache_fini(&tier->cache);
    rn_directory_fini(&tier->directory);
}

/* Who stands in the tree is inside; who waits for a block waits here. */
static bool check_paths(const struct rn_tier *tier)
{
    uint32_t n_waits = 0;

    for (uint32_t slot = 0; slot < tier->context->max_streams; slot++) {
        const struct rn_cached_stream *stream = &tier->cache.streams[slot];

        n_waits += stream->path.state == RN_PATH_WAITING;
        if (stream->path.state == RN_PATH_ENTERED && tier->admission.streams[slot].passed == 0)
            return false;
    }
    for (const struct rn_request *r = tier->admission.waiting.first; r != NULL; r = r->next)
        n_waits -= rn_prefix_cache_waits(&tier->cache, r->slot);
    return n_waits == 0;
}

bool rn_tier_check(const struct rn_tier *tier)
{
    return rn_directory_check(&tier->directory) && rn_prefix_cache_check(&tier->cache) &&
           rn_admission_check(&tier->admission) && check_paths(tier) &&
           (tier->closing == NULL || (tier->directory.closing && !tier->directory.closed));
}
