/* Leases: see admission_lease.h. */
#include "actors/tier/admission_lease.h"

#include <string.h>

#include "actors/context.h"
#include "actors/tier/session_slot.h"
#include "base/check.h"
#include "model/kv_size.h"

/* ---- From the tree and from idle sessions ---- */

void rn_admission_drop_blocks(struct rn_admission *admission, struct rn_session *session)
{
    RN_ASSERT(!session->busy);
    rn_tier_blocks_unref(admission->blocks, session->blocks, session->n_blocks);
    rn_free(admission->context->heap, session->blocks);
    session->blocks = NULL;
    session->n_blocks = session->n_computed = 0;
}

/* The idle session whose blocks were used longest ago, other than `except`; NULL: none has any. */
static struct rn_session *oldest_idle(struct rn_admission *admission, const struct rn_session *except)
{
    struct rn_session *oldest = NULL;

    for (struct rn_session *s = admission->sessions; s != NULL; s = s->next)
        if (!s->busy && s->n_blocks > 0 && s != except && (oldest == NULL || s->last_use < oldest->last_use))
            oldest = s;
    return oldest;
}

bool rn_admission_make_room(struct rn_admission *admission, const struct rn_session *session, uint32_t n)
{
    while (admission->blocks->pool.n_free < n) {
        struct rn_session *idle;

        if (rn_tier_blocks_evict(admission->blocks, n - admission->blocks->pool.n_free) > 0)
            continue;
        idle = oldest_idle(admission, session);
        if (idle != NULL)
            rn_admission_drop_blocks(admission, idle); /* some may be in the tree still, and are evicted next */
        else if (!rn_prefix_cache_drop_pin(admission->cache)) {
            admission->n_lacking = n - admission->blocks->pool.n_free;
            return false;
        }
    }
    return true;
}

/* Blocks that should stay free behind an admission, for those that run to grow into: else it would soon be taken
 * back. */
static uint32_t growth_reserve(const struct rn_admission *admission)
{
    uint32_t most = admission->blocks->pool.n_blocks / 16;

    return admission->n_inside < most ? admission->n_inside : most;
}

bool rn_admission_has_room(struct rn_admission *admission, const struct rn_session *session, uint32_t n)
{
    uint64_t wanted = (uint64_t)n + growth_reserve(admission);

    return admission->blocks->pool.n_blocks - admission->blocks->n_used >= wanted
               ? rn_admission_make_room(admission, session, n)
               : rn_admission_make_room(admission, session, (uint32_t)wanted);
}

void rn_admission_take_blocks_back(struct rn_admission *admission, struct rn_request *request, uint32_t n_kept)
{
    uint32_t sinks = rn_kv_size_sinks(admission->context->limits);

    RN_CHECK(request->n_gone == 0 || sinks + request->n_gone <= request->n_blocks);
    if (request->n_gone > 0) { /* nothing is kept of such a one */
        request->n_blocks -= request->n_gone;
        memmove(request->blocks + sinks, request->blocks + sinks + request->n_gone,
                (request->n_blocks - sinks) * sizeof request->blocks[0]);
    }
    if (request->n_blocks > n_kept)
        rn_tier_blocks_unref(admission->blocks, request->blocks + n_kept, request->n_blocks - n_kept);
    if (request->n_means > 0)
        rn_tier_blocks_unref(admission->blocks, request->means, request->n_means);
    for (uint32_t i = 0; i < request->windows.n; i++)
        if (request->windows.blocks[i] != RN_NO_BLOCK)
            rn_block_pool_unref(&admission->blocks->windows, &request->windows.blocks[i], 1);
    request->n_blocks = request->n_means = request->n_gone = 0;
    request->windows.n = request->windows.n_passed = request->windows.n_held = 0;
}

/* ---- Who is inside ---- */

void rn_admission_go_in(struct rn_admission *admission, const struct rn_request *request)
{
    struct rn_admission_stream *stream = &admission->streams[request->slot];

    RN_CHECK(admission->n_inside < admission->context->max_streams);
    RN_ASSERT(stream->passed == 0 && stream->n_wanted == 0 && !stream->preempting);
    stream->passed = request->generation;
    stream->priority = request->priority;
    stream->order = request->order;
    stream->place = admission->n_inside;
    admission->inside[admission->n_inside++] = request->slot;
}

void rn_admission_come_out(struct rn_admission *admission, const struct rn_request *request)
{
    struct rn_admission_stream *stream = &admission->streams[request->slot];
    uint32_t last;

    if (stream->passed != request->generation)
        return;
    RN_CHECK(admission->n_inside > 0 && admission->inside[stream->place] == request->slot);
    last = admission->inside[--admission->n_inside];
    admission->inside[stream->place] = last;
    admission->streams[last].place = stream->place;
    admission->n_preempting -= stream->preempting;
    admission->n_wanting -= stream->n_wanted > 0;
    stream->preempting = false;
    stream->n_wanted = 0;
    stream->passed = 0;
}

/* The slot inside of the lowest rank that is not on its way out already; n_inside > 0. */
static uint32_t lowest_inside(const struct rn_admission *admission)
{
    uint32_t lowest = admission->inside[0];

    RN_ASSERT(admission->n_inside > 0);
    for (uint32_t i = 1; i < admission->n_inside; i++) {
        const struct rn_admission_stream *p = &admission->streams[admission->inside[i]],
                                         *l = &admission->streams[lowest];

        if (rn_ranks_before(l->priority, l->order, p->priority, p->order))
            lowest = admission->inside[i];
    }
    return lowest;
}

/* The slot of the highest rank among those that want to grow; UINT32_MAX: none does. */
static uint32_t first_wanting(const struct rn_admission *admission)
{
    uint32_t first = UINT32_MAX;

    for (uint32_t i = 0; admission->n_wanting > 0 && i < admission->n_inside; i++) {
        const struct rn_admission_stream *p = &admission->streams[admission->inside[i]];

        if (p->n_wanted > 0 &&
            (first == UINT32_MAX || rn_ranks_before(p->priority, p->order, admission->streams[first].priority,
                                                    admission->streams[first].order)))
            first = admission->inside[i];
    }
    RN_ASSERT((first == UINT32_MAX) == (admission->n_wanting == 0));
    return first;
}

/* ---- From those that run ---- */

static void tell_short(struct rn_admission *admission, uint32_t n_blocks, bool at_once)
{
    struct rn_msg *msg = rn_msg_new(admission->context->runtime, RN_MSG_SHORT);

    RN_ASSERT(!admission->shortage.asked && admission->n_inside > 0);
    admission->shortage.n_blocks = n_blocks;
    admission->shortage.at_once = at_once;
    admission->shortage.asked = true;
    msg->shortage = (struct rn_pay_shortage){n_blocks, at_once};
    rn_actor_send(admission->context->decode, msg);
}

void rn_admission_brought(struct rn_admission *admission, uint32_t n_blocks)
{
    admission->shortage.n_blocks -= n_blocks < admission->shortage.n_blocks ? n_blocks : admission->shortage.n_blocks;
}

void rn_admission_end_shortage(struct rn_admission *admission)
{
    if (admission->shortage.n_blocks > 0 && !admission->shortage.asked && admission->n_inside > 0)
        tell_short(admission, 0, false);
}

/* Decode knows already that so many are wanted. */
static bool is_told(const struct rn_admission *admission, bool at_once)
{
    return admission->shortage.n_blocks > 0 &&
           (!at_once || (admission->shortage.at_once && admission->shortage.n_blocks >= admission->n_lacking));
}

/* True: blocks, or the answer to the question for them, are on the way. What stalls has to make way at once for one
 * that runs, since that may not come to its end otherwise. */
static bool is_being_seen_to(struct rn_admission *admission, bool at_once)
{
    if (admission->blocks->n_lent > 0) /* the mover gives them back soon */
        return true;
    if (admission->n_preempting == 0 && !admission->shortage.asked && !is_told(admission, at_once))
        tell_short(admission, admission->n_lacking, at_once);
    return admission->n_preempting > 0 || admission->shortage.asked;
}

static void preempt(struct rn_admission *admission, uint32_t slot)
{
    struct rn_admission_stream *stream = &admission->streams[slot];
    struct rn_msg *msg = rn_msg_new(admission->context->runtime, RN_MSG_PREEMPT);

    RN_ASSERT(stream->passed != 0 && admission->n_preempting == 0);
    stream->preempting = true;
    admission->n_preempting++;
    msg->stream = (struct rn_pay_stream){slot, stream->passed, 0};
    rn_actor_send(admission->context->prefill, msg);
}

void rn_admission_claim(struct rn_admission *admission, int32_t priority)
{
    uint32_t lowest;

    if (admission->n_inside == 0 || is_being_seen_to(admission, false))
        return;
    lowest = lowest_inside(admission);
    if (priority > admission->streams[lowest].priority)
        preempt(admission, lowest);
}

/* For one that runs: it may be the lowest itself, and then it makes way for the others. Even alone: then it stands on
 * blocks of the tree that hold the same as its own, and uses those when it comes again. */
static void claim_to_grow(struct rn_admission *admission)
{
    if (!is_being_seen_to(admission, true))
        preempt(admission, lowest_inside(admission));
}

static void grant(struct rn_admission *admission, uint32_t slot)
{
    struct rn_admission_stream *stream = &admission->streams[slot];
    struct rn_msg *msg = rn_msg_new(admission->context->runtime, RN_MSG_GRANT);

    RN_ASSERT(stream->passed != 0 && stream->n_wanted > 0 && admission->n_wanting > 0);
    RN_CHECK(stream->n_wanted <= RN_LEASE_BLOCKS);
    msg->grant.slot = slot;
    msg->grant.generation = stream->passed;
    msg->grant.n = stream->n_wanted;
    rn_tier_blocks_take(admission->blocks, stream->n_wanted, msg->grant.blocks);
    stream->n_wanted = 0;
    admission->n_wanting--;
    rn_actor_send(admission->context->decode, msg);
}

bool rn_admission_grow_all(struct rn_admission *admission, int32_t *priority)
{
    uint32_t slot;

    while ((slot = first_wanting(admission)) != UINT32_MAX) {
        if (!rn_admission_make_room(admission, NULL, admission->streams[slot].n_wanted)) {
            *priority = admission->streams[slot].priority;
            claim_to_grow(admission);
            return false;
        }
        grant(admission, slot);
    }
    return true;
}

void rn_admission_grow(struct rn_admission *admission, uint32_t slot, uint32_t generation, uint32_t n)
{
    struct rn_admission_stream *stream = &admission->streams[slot];

    if (stream->passed != generation)
        return;
    RN_CHECK(stream->n_wanted == 0 && n > 0 && n <= RN_LEASE_BLOCKS);
    stream->n_wanted = n;
    admission->n_wanting++;
}

void rn_admission_short_back(struct rn_admission *admission)
{
    RN_ASSERT(admission->shortage.asked);
    admission->shortage.asked = false;
}
