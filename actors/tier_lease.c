/* Leases: see tier_lease.h. */
#include "actors/tier_lease.h"

#include <string.h>

#include "actors/context.h"
#include "actors/tier_cache.h"
#include "base/check.h"

runnel_status rn_tier_lease_init(struct rn_tier *tier)
{
    const struct rn_context *context = tier->context;

    tier->inside = rn_alloc(context->heap, context->max_streams, sizeof tier->inside[0]);
    return tier->inside != NULL ? RUNNEL_OK : RUNNEL_NO_MEMORY;
}

void rn_tier_lease_fini(struct rn_tier *tier)
{
    rn_free(tier->context->heap, tier->inside);
}

uint32_t rn_tier_blocks_for(const struct rn_tier *tier, uint32_t tokens)
{
    uint32_t per_block = tier->context->limits->block_tokens;

    return (uint32_t)(((uint64_t)tokens + per_block - 1) / per_block);
}

/* ---- From the tree and from idle sessions ---- */

void rn_tier_drop_blocks(struct rn_tier *tier, struct rn_session *session)
{
    rn_tier_take_back(tier, session->blocks, session->n_blocks);
    rn_free(tier->context->heap, session->blocks);
    session->blocks = NULL;
    session->n_blocks = session->n_computed = 0;
}

/* The idle session whose blocks were used longest ago, other than `except`; NULL: none has any. */
static struct rn_session *oldest_idle(struct rn_tier *tier, const struct rn_session *except)
{
    struct rn_session *oldest = NULL;

    for (struct rn_session *s = tier->sessions; s != NULL; s = s->next)
        if (!s->busy && s->n_blocks > 0 && s != except && (oldest == NULL || s->last_use < oldest->last_use))
            oldest = s;
    return oldest;
}

bool rn_tier_make_room(struct rn_tier *tier, const struct rn_session *session, uint32_t n)
{
    while (tier->pool.n_free < n) {
        struct rn_session *idle;

        if (rn_tier_evict(tier, n - tier->pool.n_free) > 0)
            continue;
        idle = oldest_idle(tier, session);
        if (idle != NULL)
            rn_tier_drop_blocks(tier, idle); /* some may be in the tree still, and are evicted next */
        else if (!rn_tier_drop_pin(tier))
            return false;
    }
    return true;
}

bool rn_tier_has_room(struct rn_tier *tier, const struct rn_session *session, uint32_t n)
{
    uint64_t wanted = (uint64_t)n + rn_tier_reserve(tier);

    return tier->pool.n_blocks - tier->n_used >= wanted ? rn_tier_make_room(tier, session, n)
                                                        : rn_tier_make_room(tier, session, (uint32_t)wanted);
}

void rn_tier_take(struct rn_tier *tier, uint32_t n, uint32_t *blocks)
{
    RN_CHECK(rn_block_pool_take(&tier->pool, n, blocks));
    rn_tier_count_used(tier, n);
}

uint32_t rn_tier_reserve(const struct rn_tier *tier)
{
    uint32_t most = tier->pool.n_blocks / 16;

    return tier->n_inside < most ? tier->n_inside : most;
}

/* ---- Who is inside ---- */

void rn_tier_go_in(struct rn_tier *tier, const struct rn_request *request)
{
    struct rn_passage *passage = &tier->passages[request->slot];

    passage->passed = request->generation;
    passage->priority = request->priority;
    passage->order = request->order;
    passage->place = tier->n_inside;
    tier->inside[tier->n_inside++] = request->slot;
}

void rn_tier_come_out(struct rn_tier *tier, const struct rn_request *request)
{
    struct rn_passage *passage = &tier->passages[request->slot];
    uint32_t last;

    if (passage->passed != request->generation)
        return;
    last = tier->inside[--tier->n_inside];
    tier->inside[passage->place] = last;
    tier->passages[last].place = passage->place;
    tier->n_preempting -= passage->preempting;
    tier->n_wanting -= passage->n_wanted > 0;
    passage->preempting = false;
    passage->n_wanted = 0;
    passage->passed = 0;
}

/* The slot inside of the lowest rank that is not on its way out already; n_inside > 0. */
static uint32_t lowest_inside(const struct rn_tier *tier)
{
    uint32_t lowest = tier->inside[0];

    for (uint32_t i = 1; i < tier->n_inside; i++) {
        const struct rn_passage *p = &tier->passages[tier->inside[i]], *l = &tier->passages[lowest];

        if (rn_outranks(l->priority, l->order, p->priority, p->order))
            lowest = tier->inside[i];
    }
    return lowest;
}

/* The slot of the highest rank among those that want to grow; UINT32_MAX: none does. */
static uint32_t first_wanting(const struct rn_tier *tier)
{
    uint32_t first = UINT32_MAX;

    for (uint32_t i = 0; tier->n_wanting > 0 && i < tier->n_inside; i++) {
        const struct rn_passage *p = &tier->passages[tier->inside[i]];

        if (p->n_wanted > 0 &&
            (first == UINT32_MAX ||
             rn_outranks(p->priority, p->order, tier->passages[first].priority, tier->passages[first].order)))
            first = tier->inside[i];
    }
    return first;
}

/* ---- From those that run ---- */

static void tell_short(struct rn_tier *tier, bool on)
{
    struct rn_msg *msg = rn_msg_new(tier->actor.runtime, RN_MSG_SHORT);

    tier->shortage.told = on;
    tier->shortage.asked = true;
    msg->shortage.on = on;
    rn_actor_send(tier->context->decode, msg);
}

void rn_tier_end_shortage(struct rn_tier *tier)
{
    if (tier->shortage.told && !tier->shortage.asked && tier->n_inside > 0)
        tell_short(tier, false);
}

/* True: blocks, or the answer to the question for them, are on the way. */
static bool is_being_seen_to(struct rn_tier *tier)
{
    if (tier->shelf.n_lent > 0) /* the mover gives them back soon */
        return true;
    if (tier->n_preempting == 0 && !tier->shortage.asked && !tier->shortage.told)
        tell_short(tier, true);
    return tier->n_preempting > 0 || tier->shortage.asked;
}

static void preempt(struct rn_tier *tier, uint32_t slot)
{
    struct rn_passage *passage = &tier->passages[slot];
    struct rn_msg *msg = rn_msg_new(tier->actor.runtime, RN_MSG_PREEMPT);

    passage->preempting = true;
    tier->n_preempting++;
    msg->stream = (struct rn_pay_stream){slot, passage->passed, 0};
    rn_actor_send(tier->context->prefill, msg);
}

void rn_tier_claim(struct rn_tier *tier, int32_t priority)
{
    uint32_t lowest;

    if (tier->n_inside == 0 || is_being_seen_to(tier))
        return;
    lowest = lowest_inside(tier);
    if (priority > tier->passages[lowest].priority)
        preempt(tier, lowest);
}

/* For one that runs: it may be the lowest itself, and then it makes way for the others. Even alone: then it stands on
 * blocks of the tree that hold the same as its own, and uses those when it comes again. */
static void claim_to_grow(struct rn_tier *tier)
{
    if (!is_being_seen_to(tier))
        preempt(tier, lowest_inside(tier));
}

static void grant(struct rn_tier *tier, uint32_t slot)
{
    struct rn_passage *passage = &tier->passages[slot];
    struct rn_msg *msg = rn_msg_new(tier->actor.runtime, RN_MSG_GRANT);

    msg->grant.slot = slot;
    msg->grant.generation = passage->passed;
    msg->grant.n = passage->n_wanted;
    rn_tier_take(tier, passage->n_wanted, msg->grant.blocks);
    passage->n_wanted = 0;
    tier->n_wanting--;
    rn_actor_send(tier->context->decode, msg);
}

bool rn_tier_grow_all(struct rn_tier *tier, int32_t *priority)
{
    uint32_t slot;

    while ((slot = first_wanting(tier)) != UINT32_MAX) {
        if (!rn_tier_make_room(tier, NULL, tier->passages[slot].n_wanted)) {
            *priority = tier->passages[slot].priority;
            claim_to_grow(tier);
            return false;
        }
        grant(tier, slot);
    }
    return true;
}

/* ---- Messages ---- */

void rn_tier_on_grow(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_tier *tier = (struct rn_tier *)self;
    struct rn_passage *passage = &tier->passages[msg->stream.slot];

    if (passage->passed == msg->stream.generation) {
        RN_CHECK(passage->n_wanted == 0 && msg->stream.n <= RN_LEASE_BLOCKS);
        passage->n_wanted = msg->stream.n;
        tier->n_wanting++;
    }
    rn_msg_free(self->runtime, msg);
}

void rn_tier_on_ungrant(struct rn_actor *self, struct rn_msg *msg)
{
    rn_tier_take_back((struct rn_tier *)self, msg->grant.blocks, msg->grant.n);
    rn_msg_free(self->runtime, msg);
}

void rn_tier_on_short_back(struct rn_actor *self, struct rn_msg *msg)
{
    ((struct rn_tier *)self)->shortage.asked = false;
    rn_msg_free(self->runtime, msg);
}
