/* The shelf: see tier_shelf.h. */
#include "actors/tier_shelf.h"

#include <string.h>

#include "actors/context.h"
#include "actors/note.h"
#include "actors/tier_cache.h"
#include "actors/tier_news.h"
#include "actors/tier_promote.h"
#include "actors/tier_session.h"
#include "base/check.h"

#define NONE UINT32_MAX
#define OLDEST 32u    /* of the blocks that can be evicted, those that are looked at for a copy ... */
#define REST_US 2000u /* without a request: the next one is not about to come */
#define LOOKS 256u    /* ... as long as there were not so many with those before them: some microseconds */

/* ---- Numbers ---- */

uint64_t rn_shelf_number_of(const struct rn_shelf *shelf, uint32_t at)
{
    return (uint64_t)shelf->places[at].generation << 32 | (at + 1);
}

struct rn_shelf_place *rn_shelf_place_of(const struct rn_shelf *shelf, uint64_t number)
{
    uint32_t at = (uint32_t)number - 1;

    if (number == 0 || at >= shelf->n_touched || shelf->places[at].state != RN_SHELF_USED ||
        rn_shelf_number_of(shelf, at) != number)
        return NULL;
    return &shelf->places[at];
}

void rn_shelf_free_place(struct rn_shelf *shelf, struct rn_shelf_place *place)
{
    place->state = RN_SHELF_FREE;
    place->next = shelf->first_free;
    shelf->first_free = (uint32_t)(place - shelf->places);
}

uint64_t rn_shelf_take_number(struct rn_shelf *shelf, struct rn_prefix_ref node)
{
    uint32_t at = shelf->first_free;

    if (at != NONE)
        shelf->first_free = shelf->places[at].next;
    else if (shelf->n_touched < shelf->n)
        shelf->places[at = shelf->n_touched++].generation = 0;
    else
        return shelf->full = true, 0;
    shelf->places[at] = (struct rn_shelf_place){
        .node = node, .generation = (shelf->places[at].generation + 1) & INT32_MAX, .state = RN_SHELF_USED};
    return rn_shelf_number_of(shelf, at);
}

uint8_t rn_tier_shelf_has(const struct rn_tier *tier, uint64_t number)
{
    const struct rn_shelf_place *place = rn_shelf_place_of(&tier->shelf, number);

    return place != NULL ? place->has : 0;
}

/* No tier has it any more: a node that is here keeps its number for the next copy, any other has nothing to come up. */
static void lost(struct rn_tier *tier, struct rn_shelf_place *place)
{
    struct rn_prefix_view view;

    if (!rn_prefix_tree_look(&tier->tree, place->node, &view)) {
        rn_shelf_free_place(&tier->shelf, place);
    } else if (view.state != RN_PREFIX_READY) {
        struct rn_prefix_ref node = place->node;

        rn_shelf_free_place(&tier->shelf, place);
        rn_prefix_tree_set_handle(&tier->tree, node, 0);
    } else {
        place->pushed = true;
    }
}

void rn_tier_shelf_settle(struct rn_tier *tier, uint64_t number, uint8_t has)
{
    struct rn_shelf_place *place = rn_shelf_place_of(&tier->shelf, number);

    if (place == NULL || place->writing)
        return;
    if ((place->has & ~has & RN_TIER_BIT(RN_TIER_WARM)) != 0)
        place->pushed = true;
    place->has = has;
    if (has == 0)
        lost(tier, place);
}

/* ---- The tree's callbacks ---- */

uint64_t rn_tier_evicted(void *user, const struct rn_prefix_tree *tree, struct rn_prefix_ref node)
{
    struct rn_tier *tier = user;
    struct rn_shelf_place *place;
    struct rn_prefix_view view;

    rn_prefix_tree_look(tree, node, &view);
    place = rn_shelf_place_of(&tier->shelf, view.handle);
    if (place != NULL && place->has != 0)
        return view.handle;
    if (place != NULL)
        rn_shelf_free_place(&tier->shelf, place);
    rn_note_dropped(tier->context, 1);
    if (tier->shelf.unpaid)
        rn_note_unpaid(tier->context, 1);
    return 0;
}

void rn_tier_forgotten(void *user, uint64_t number)
{
    struct rn_tier *tier = user;
    struct rn_shelf *shelf = &tier->shelf;
    struct rn_shelf_place *place = rn_shelf_place_of(shelf, number);

    if (place == NULL || shelf->closed)
        return;
    if (place->has == 0 && !place->writing) {
        rn_shelf_free_place(shelf, place);
        return;
    }
    place->state = RN_SHELF_LEAVING;
    place->distrusted = shelf->distrusting;
    place->next = NONE;
    if (shelf->first_leaving == NONE)
        shelf->first_leaving = (uint32_t)(place - shelf->places);
    else
        shelf->places[shelf->last_leaving].next = (uint32_t)(place - shelf->places);
    shelf->last_leaving = (uint32_t)(place - shelf->places);
}

/* ---- Moves ---- */

struct rn_move *rn_tier_shelf_move(struct rn_tier *tier, enum rn_move_kind kind)
{
    struct rn_shelf *shelf = &tier->shelf;
    struct rn_move *move = shelf->free;
    bool taken = kind == RN_MOVE_DOWN ? shelf->down_out
                 : kind == RN_MOVE_UP ? shelf->n_ups == RN_MOVES - 3
                                      : shelf->tend_out;

    if (taken)
        return NULL;
    RN_CHECK(move != NULL);
    shelf->free = move->next;
    move->kind = kind;
    move->n = move->n_told = move->pause_us = 0;
    if (kind == RN_MOVE_DOWN)
        shelf->down_out = true;
    else if (kind == RN_MOVE_UP)
        shelf->n_ups++;
    else
        shelf->tend_out = true;
    return move;
}

void rn_tier_shelf_send(struct rn_tier *tier, struct rn_move *move)
{
    struct rn_msg *msg = rn_msg_new(tier->actor.runtime, RN_MSG_MOVE);

    tier->shelf.n_out++;
    msg->move.move = move;
    rn_actor_send(tier->context->mover, msg);
}

static void put_back(struct rn_shelf *shelf, struct rn_move *move)
{
    shelf->n_out--;
    if (move->kind == RN_MOVE_DOWN)
        shelf->down_out = false;
    else if (move->kind == RN_MOVE_UP)
        shelf->n_ups--;
    else
        shelf->tend_out = false;
    move->next = shelf->free;
    shelf->free = move;
}

/* ---- Down ---- */

/* The node's number, a new one if need be; 0: there is none, or it is a root. */
static uint64_t have_number(struct rn_tier *tier, struct rn_prefix_ref node)
{
    struct rn_prefix_view view;
    uint64_t number;

    if (!rn_prefix_tree_look(&tier->tree, node, &view) || view.state == RN_PREFIX_ROOT)
        return 0;
    if (view.handle != 0)
        return view.handle;
    number = view.state == RN_PREFIX_READY ? rn_shelf_take_number(&tier->shelf, node) : 0;
    if (number != 0)
        rn_prefix_tree_set_handle(&tier->tree, node, number);
    return number;
}

static uint32_t most_lent(const struct rn_tier *tier)
{
    uint32_t part = tier->pool.n_blocks / 8;

    return part < 1 ? 1 : part < RN_MOVE_BLOCKS ? part : RN_MOVE_BLOCKS;
}

/* False: it cannot be put in. */
static bool put_in(struct rn_tier *tier, struct rn_move *move, struct rn_prefix_ref node, uint8_t to)
{
    struct rn_move_item *item = &move->items[move->n];
    uint64_t number = have_number(tier, node);
    struct rn_shelf_place *place = rn_shelf_place_of(&tier->shelf, number);
    struct rn_prefix_view view;

    if (place == NULL || place->writing || !rn_prefix_tree_look(&tier->tree, node, &view) ||
        (view.state != RN_PREFIX_READY && place->has == 0))
        return false;
    item->shelf = number;
    item->first = view.n_blocks == 1;
    item->parent = item->first ? 0 : have_number(tier, view.parent);
    item->to = to;
    item->block = view.state == RN_PREFIX_READY ? view.block : RN_MOVE_NO_BLOCK;
    memcpy(item->tokens, view.tokens, tier->context->limits->block_tokens * sizeof *item->tokens);
    rn_prefix_tree_spell(&tier->tree, node, &item->salt, NULL);
    item->idle = item->block != RN_MOVE_NO_BLOCK && rn_block_pool_references(&tier->pool, item->block) == 1;
    tier->shelf.n_lent += item->idle;
    if (item->block != RN_MOVE_NO_BLOCK)
        rn_tier_ref(tier, &item->block, 1);
    place->writing = true;
    move->n++;
    return true;
}

static void send_down(struct rn_tier *tier, const struct rn_prefix_ref *nodes, uint32_t n, uint8_t to, bool wanted)
{
    struct rn_move *move = rn_tier_shelf_move(tier, RN_MOVE_DOWN);

    for (uint32_t i = 0; i < n && put_in(tier, move, nodes[i], to); i++)
        continue;
    tier->shelf.down_wanted = wanted;
    tier->shelf.down_at_rest = tier->shelf.rest == RN_SHELF_AT_REST;
    if (move->n > 0) {
        rn_tier_shelf_send(tier, move);
        return;
    }
    tier->shelf.n_out++;
    put_back(&tier->shelf, move);
}

static bool is_unproven(const struct rn_tier *tier, const struct rn_prefix_view *view)
{
    return view->state == RN_PREFIX_READY && tier->shelf.unproven[view->block];
}

/* Of the prefix that ends in the node, those that lack one of the tiers: the first n of them, in order. *waits: there
 * are more, behind one that has not proved good yet. */
static uint32_t lacking(struct rn_tier *tier, struct rn_prefix_ref node, uint8_t tiers, struct rn_prefix_ref *first,
                        uint32_t n, bool *waits)
{
    struct rn_prefix_view view;
    uint32_t n_chain = 0, n_first = 0;

    *waits = false;
    for (; rn_prefix_tree_look(&tier->tree, node, &view) && view.state != RN_PREFIX_ROOT; node = view.parent) {
        bool unproven = is_unproven(tier, &view);

        *waits |= unproven;
        if (view.state == RN_PREFIX_PENDING || unproven)
            n_chain = 0; /* what is below it has to wait */
        else if ((rn_tier_shelf_has(tier, view.handle) & tiers) != tiers)
            tier->shelf.chain[n_chain++] = node;
    }
    while (n_chain > 0 && n_first < n)
        first[n_first++] = tier->shelf.chain[--n_chain];
    return n_first;
}

static uint8_t lasting(const struct rn_shelf *shelf)
{
    return shelf->tiers & shelf->writes & (uint8_t) ~(RN_TIER_BIT(RN_TIER_WARM) | shelf->refused);
}

static uint32_t depth_of(const struct rn_tier *tier, struct rn_prefix_ref node)
{
    struct rn_prefix_view view;

    return rn_prefix_tree_look(&tier->tree, node, &view) ? view.n_blocks : 0;
}

static struct rn_wanted *wanted_at(struct rn_shelf *shelf, uint32_t nth)
{
    return &shelf->wanted[(shelf->first_wanted + nth) % RN_SHELF_WANTED];
}

/* The first one goes, to the end if it has to wait. */
static void pass_wanted(struct rn_shelf *shelf, bool waits)
{
    struct rn_wanted first = *wanted_at(shelf, 0);

    shelf->first_wanted = (shelf->first_wanted + 1) % RN_SHELF_WANTED;
    shelf->refused = 0;
    if (waits) {
        *wanted_at(shelf, shelf->n_wanted - 1) = first;
        return;
    }
    shelf->n_wanted--;
    shelf->n_asked_for -= first.asked_for;
}

/* Copies may be made now: nobody computes, they were asked for, or they can be paid. */
static bool may_copy(struct rn_tier *tier, bool asked_for)
{
    struct rn_shelf *shelf = &tier->shelf;
    bool may = shelf->rest == RN_SHELF_AT_REST || asked_for || shelf->closing != NULL ||
               rn_tier_purse_affords(&shelf->purse, most_lent(tier));

    shelf->unpaid |= !may;
    return may;
}

/* The next blocks of a prefix that is wanted in the tiers that last. */
static void send_wanted(struct rn_tier *tier)
{
    struct rn_shelf *shelf = &tier->shelf;

    for (uint32_t left = shelf->n_wanted; left > 0 && !shelf->down_out; left--) {
        struct rn_wanted *wanted = wanted_at(shelf, 0);
        struct rn_prefix_ref nodes[RN_MOVE_BLOCKS];
        bool waits = false;
        uint32_t n =
            lasting(shelf) == 0 ? 0 : lacking(tier, wanted->node, lasting(shelf), nodes, most_lent(tier), &waits);

        /* each of its blocks once: a tier that is too small for them would lose the first ones to the last */
        if (n > 0 && wanted->n_copied < depth_of(tier, wanted->node)) {
            if (!may_copy(tier, shelf->n_asked_for > 0)) /* and all that was wanted before what is asked for */
                return;
            send_down(tier, nodes, n, lasting(shelf), true);
        }
        wanted->n_copied += n;
        if (!shelf->down_out)
            pass_wanted(shelf, waits);
    }
}

static bool needs_copy(const struct rn_tier *tier, const struct rn_prefix_view *view)
{
    const struct rn_shelf_place *place = rn_shelf_place_of(&tier->shelf, view->handle);

    if (view->state != RN_PREFIX_READY)
        return false;
    return place == NULL || ((place->has & RN_TIER_BIT(RN_TIER_WARM)) == 0 && !place->pushed && !place->writing);
}

/* Two of the oldest may have the same block before them. */
static bool is_among(struct rn_prefix_ref node, const struct rn_prefix_ref *nodes, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (nodes[i].node == node.node)
            return true;
    return false;
}

/* Of the prefix that ends in the node, those that need a copy: the first ones, added to nodes[n]; how many there are
 * then. */
static uint32_t add_prefix(struct rn_tier *tier, struct rn_prefix_ref node, struct rn_prefix_ref *nodes, uint32_t n,
                           uint32_t *n_looks)
{
    struct rn_prefix_view view;
    uint32_t n_chain = 0;

    for (; rn_prefix_tree_look(&tier->tree, node, &view) && view.state != RN_PREFIX_ROOT; node = view.parent) {
        if (needs_copy(tier, &view) && !is_among(node, nodes, n))
            tier->shelf.chain[n_chain++] = node;
        ++*n_looks;
    }
    while (n_chain > 0 && n < most_lent(tier))
        nodes[n++] = tier->shelf.chain[--n_chain];
    return n;
}

/* The blocks that would be evicted next, and those before them. */
static void send_oldest(struct rn_tier *tier)
{
    struct rn_prefix_ref oldest[OLDEST], nodes[RN_MOVE_BLOCKS];
    uint32_t n_oldest, n = 0, n_looks = 0;

    if (!may_copy(tier, false))
        return;
    n_oldest = rn_prefix_tree_oldest(&tier->tree, oldest, OLDEST);
    for (uint32_t i = 0; i < n_oldest && n < most_lent(tier) && n_looks < LOOKS; i++)
        n = add_prefix(tier, oldest[i], nodes, n, &n_looks);
    if (n > 0)
        send_down(tier, nodes, n, RN_TIER_BIT(RN_TIER_WARM), false);
    if (!tier->shelf.down_out)
        tier->shelf.calm = tier->tree.now;
}

static bool is_filling(const struct rn_tier *tier)
{
    return (tier->shelf.tiers & RN_TIER_BIT(RN_TIER_WARM)) != 0 && tier->shelf.calm != tier->tree.now &&
           tier->pool.n_free < tier->pool.n_blocks / 2;
}

void rn_tier_shelf_want(struct rn_tier *tier, struct rn_prefix_ref node, bool asked_for)
{
    struct rn_shelf *shelf = &tier->shelf;
    struct rn_wanted *last = shelf->n_wanted > 0 ? wanted_at(shelf, shelf->n_wanted - 1) : NULL;
    bool again = last != NULL && last->node.node == node.node && last->node.generation == node.generation;

    if ((lasting(shelf) | shelf->refused) == 0)
        return;
    if (!again && shelf->n_wanted < RN_SHELF_WANTED) {
        last = wanted_at(shelf, shelf->n_wanted++);
        *last = (struct rn_wanted){.node = node};
    } else if (!again) {
        if (!asked_for || last->asked_for)
            return;
        *last = (struct rn_wanted){.node = node}; /* before it is money that decides; this one is asked for */
    }
    shelf->n_asked_for += asked_for && !last->asked_for;
    last->asked_for |= asked_for;
}

void rn_tier_shelf_computing(struct rn_tier *tier, const uint32_t *blocks, uint32_t n)
{
    for (uint32_t i = 0; i < n && tier->shelf.n > 0; i++)
        tier->shelf.unproven[blocks[i]] = true;
}

void rn_tier_shelf_proved(struct rn_tier *tier, const uint32_t *blocks, uint32_t n)
{
    for (uint32_t i = 0; i < n && tier->shelf.n > 0; i++)
        tier->shelf.unproven[blocks[i]] = false;
}

void rn_tier_shelf_used(struct rn_tier *tier, struct rn_prefix_ref node)
{
    struct rn_prefix_view view;

    if (tier->shelf.tiers == 0)
        return;
    for (; rn_prefix_tree_look(&tier->tree, node, &view) && view.state != RN_PREFIX_ROOT; node = view.parent) {
        struct rn_shelf_place *place = rn_shelf_place_of(&tier->shelf, view.handle);

        if (place != NULL)
            place->pushed = false;
    }
}

/* ---- Forget, tend ---- */

/* Where numbers are short, what has been cold longest goes from its tiers. */
static void make_numbers(struct rn_tier *tier)
{
    for (uint32_t i = 0; tier->shelf.full && i < RN_MOVE_TOLD && rn_prefix_tree_drop_cold(&tier->tree); i++)
        continue;
    tier->shelf.full = false;
}

/* The numbers are free as soon as they are sent: what comes behind finds the mover without them. */
static void send_leaving(struct rn_tier *tier)
{
    struct rn_shelf *shelf = &tier->shelf;
    struct rn_move *move;

    if (shelf->first_leaving == NONE || (move = rn_tier_shelf_move(tier, RN_MOVE_FORGET)) == NULL)
        return;
    while (shelf->first_leaving != NONE && move->n_told < RN_MOVE_TOLD) {
        struct rn_shelf_place *place = &shelf->places[shelf->first_leaving];

        move->left[move->n_told] = place->distrusted;
        move->told[move->n_told++] = rn_shelf_number_of(shelf, shelf->first_leaving);
        shelf->first_leaving = place->next;
        rn_shelf_free_place(shelf, place);
    }
    rn_tier_shelf_send(tier, move);
}

static void send_tend(struct rn_tier *tier)
{
    struct rn_move *move;

    if (!tier->shelf.more || (move = rn_tier_shelf_move(tier, RN_MOVE_TEND)) == NULL)
        return;
    tier->shelf.more = false;
    rn_tier_shelf_send(tier, move);
}

/* Of any model: another's steps are slowed down as well. */
static void look_for_rest(struct rn_tier *tier)
{
    struct rn_shelf *shelf = &tier->shelf;
    uint64_t n_requests = 0, n_here = 0;

    for (const struct rn_metrics *m = rn_metrics_first(tier->context->every_model); m != NULL; m = m->next) {
        n_requests += rn_metrics_value(m, RN_COUNT_REQUESTS);
        n_here += rn_metrics_value(m, RN_COUNT_RUNNING) + rn_metrics_value(m, RN_COUNT_WAITING);
    }
    if (n_here > 0)
        shelf->rest = RN_SHELF_BUSY;
    else if (shelf->rest == RN_SHELF_BUSY || n_requests != shelf->n_requests)
        shelf->rest = RN_SHELF_QUIET;
    shelf->n_requests = n_requests;
}

static void look_at_purse(struct rn_tier *tier)
{
    look_for_rest(tier);
    tier->shelf.unpaid = false;
    rn_tier_purse_pass(&tier->shelf.purse, rn_now_us(tier->context->clock), tier->shelf.rest != RN_SHELF_BUSY);
}

/* There is something that may be copied if nobody comes for a while. */
static void send_watch(struct rn_tier *tier)
{
    struct rn_shelf *shelf = &tier->shelf;
    struct rn_move *move;

    if (shelf->rest != RN_SHELF_QUIET || shelf->down_out || !(shelf->n_wanted > 0 || is_filling(tier)) ||
        (move = rn_tier_shelf_move(tier, RN_MOVE_TEND)) == NULL)
        return;
    move->pause_us = REST_US;
    shelf->rest = RN_SHELF_WATCHED;
    rn_tier_shelf_send(tier, move);
}

static void finish_close(struct rn_tier *tier)
{
    struct rn_msg *msg = tier->shelf.closing;

    tier->shelf.closing = NULL;
    tier->shelf.closed = true;
    rn_actor_on_close(&tier->actor, msg);
}

void rn_tier_shelf_flush(struct rn_actor *self)
{
    struct rn_tier *tier = (struct rn_tier *)self;
    struct rn_shelf *shelf = &tier->shelf;

    if (shelf->tiers == 0 || shelf->closed)
        return;
    look_at_purse(tier);
    rn_tier_look_for_news(tier);
    make_numbers(tier);
    send_leaving(tier);
    send_wanted(tier);
    if (shelf->closing == NULL) {
        if (!shelf->down_out && is_filling(tier))
            send_oldest(tier);
        send_tend(tier);
        send_watch(tier);
    } else if (rn_tier_stop_listening(tier) && shelf->n_out == 0 && shelf->first_leaving == NONE) {
        finish_close(tier);
    }
}

void rn_tier_shelf_close(struct rn_tier *tier, struct rn_msg *msg)
{
    tier->shelf.closing = msg;
    if (tier->shelf.tiers == 0)
        finish_close(tier); /* else the flush behind this batch does what is left */
}

/* ---- Answers ---- */

static void settle_item(struct rn_tier *tier, struct rn_move_item *item)
{
    struct rn_shelf_place *place = rn_shelf_place_of(&tier->shelf, item->shelf);

    tier->shelf.n_lent -= item->idle;
    if (item->block != RN_MOVE_NO_BLOCK)
        rn_tier_end_loan(tier, item->block);
    if (place == NULL)
        return;
    place->writing = false;
    if ((item->to & ~item->has & RN_TIER_BIT(RN_TIER_WARM)) != 0)
        place->pushed = true; /* it is too small, or did not take it */
    rn_tier_shelf_settle(tier, item->shelf, item->has);
}

/* What could not be copied now is not tried again at once. */
static void settle_down(struct rn_tier *tier, struct rn_move *move)
{
    for (uint32_t i = 0; i < move->n; i++)
        settle_item(tier, &move->items[i]);
    if (tier->shelf.down_wanted)
        tier->shelf.refused |= move->refused; /* the others shall have it still */
    else if (move->n_errors > 0)
        tier->shelf.calm = tier->tree.now;
}

static void settle_told(struct rn_tier *tier, const struct rn_move *move)
{
    for (uint32_t i = 0; i < move->n_told; i++)
        rn_tier_shelf_settle(tier, move->told[i], move->left[i]);
}

/* What comes up is paid by the request that waits for it. */
static void pay(struct rn_tier *tier, const struct rn_move *move)
{
    uint32_t n = 0;

    if (move->kind == RN_MOVE_UP)
        return;
    if (move->kind == RN_MOVE_DOWN) {
        n = move->n;
        rn_note_copied(tier->context, move->spent_us);
    }
    look_for_rest(tier);
    if (move->pause_us > 0 && tier->shelf.rest == RN_SHELF_WATCHED)
        tier->shelf.rest = RN_SHELF_AT_REST;
    rn_tier_purse_spend(&tier->shelf.purse, n, move->spent_us,
                        (n == 0 || tier->shelf.down_at_rest) && tier->shelf.rest == RN_SHELF_AT_REST);
}

static void count(struct rn_tier *tier, const struct rn_move *move)
{
    for (unsigned kind = 0; kind < RN_TIERS; kind++) {
        rn_note_moved(tier->context, kind, move->kind == RN_MOVE_UP, move->bytes[kind],
                      (int64_t)move->takes[kind] - (int64_t)tier->shelf.taken[kind]);
        tier->shelf.taken[kind] = move->takes[kind];
    }
    rn_note_move_errors(tier->context, move->n_errors);
}

static void take_writes(struct rn_tier *tier, uint8_t writes)
{
    const uint8_t cold = RN_TIER_BIT(RN_TIER_COLD);

    rn_note_cold_writes(tier->context, ((writes & cold) != 0) - ((tier->shelf.writes & cold) != 0));
    tier->shelf.writes = writes;
}

void rn_tier_on_moved(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_tier *tier = (struct rn_tier *)self;
    struct rn_move *move = msg->move.move;

    rn_msg_free(self->runtime, msg);
    if (move->kind == RN_MOVE_DOWN)
        settle_down(tier, move);
    else if (move->kind == RN_MOVE_UP)
        rn_tier_promoted(tier, move);
    settle_told(tier, move);
    take_writes(tier, move->writes);
    tier->shelf.more |= move->more;
    count(tier, move);
    pay(tier, move);
    if (move->kind == RN_MOVE_LISTEN)
        rn_tier_heard(tier, move);
    else
        put_back(&tier->shelf, move);
    rn_tier_send_promotions(tier);
    if (tier->waiting.n > 0 || tier->n_wanting > 0)
        rn_tier_serve(tier);
}

/* ---- Init and fini ---- */

static bool take_memory(struct rn_tier *tier)
{
    const struct rn_backend_limits *limits = tier->context->limits;
    struct rn_heap *heap = tier->context->heap;
    struct rn_shelf *shelf = &tier->shelf;

    shelf->places = rn_alloc(heap, shelf->n, sizeof shelf->places[0]);
    shelf->moves = rn_calloc(heap, RN_MOVES, sizeof shelf->moves[0]);
    shelf->move_tokens =
        rn_alloc(heap, (size_t)RN_MOVES * RN_MOVE_BLOCKS * limits->block_tokens, sizeof shelf->move_tokens[0]);
    shelf->chain = rn_alloc(heap, limits->context_tokens / limits->block_tokens + 1, sizeof shelf->chain[0]);
    shelf->unproven = rn_calloc(heap, tier->pool.n_blocks, sizeof shelf->unproven[0]);
    return shelf->unproven != NULL && shelf->places != NULL && shelf->moves != NULL && shelf->move_tokens != NULL &&
           shelf->chain != NULL;
}

runnel_status rn_tier_shelf_init(struct rn_tier *tier, uint32_t n_places)
{
    struct rn_shelf *shelf = &tier->shelf;
    uint32_t per_block = tier->context->limits->block_tokens;

    *shelf = (struct rn_shelf){.n = n_places, .calm = UINT64_MAX};
    rn_tier_purse_init(&shelf->purse);
    shelf->first_free = shelf->first_leaving = shelf->last_leaving = NONE;
    if (n_places == 0)
        return RUNNEL_OK;
    if (!take_memory(tier)) {
        rn_tier_shelf_fini(tier);
        return RUNNEL_NO_MEMORY;
    }
    for (uint32_t i = 0; i < RN_MOVES; i++) {
        struct rn_move *move = &shelf->moves[i];

        for (uint32_t k = 0; k < RN_MOVE_BLOCKS; k++)
            move->items[k].tokens = shelf->move_tokens + (size_t)(i * RN_MOVE_BLOCKS + k) * per_block;
        move->next = shelf->free;
        shelf->free = move;
    }
    shelf->listener = shelf->free;
    shelf->free = shelf->free->next;
    return RUNNEL_OK;
}

void rn_tier_shelf_fini(struct rn_tier *tier)
{
    struct rn_heap *heap = tier->context->heap;
    struct rn_shelf *shelf = &tier->shelf;

    for (unsigned kind = 0; kind < RN_TIERS; kind++)
        rn_note_moved(tier->context, kind, false, 0, -(int64_t)shelf->taken[kind]);
    take_writes(tier, 0);
    rn_free(heap, shelf->places);
    rn_free(heap, shelf->moves);
    rn_free(heap, shelf->move_tokens);
    rn_free(heap, shelf->chain);
    rn_free(heap, shelf->unproven);
}

void rn_tier_shelf_open(struct rn_tier *tier, uint8_t tiers, uint8_t writes)
{
    tier->shelf.tiers = tiers;
    take_writes(tier, writes);
}
