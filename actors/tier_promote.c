/* Promotions: see tier_promote.h. */
#include "actors/tier_promote.h"

#include <string.h>

#include "actors/context.h"
#include "actors/lists.h"
#include "actors/note.h"
#include "actors/tier_lease.h"
#include "actors/tier_session.h"
#include "base/check.h"

static uint32_t block_tokens(const struct rn_tier *tier)
{
    return tier->context->limits->block_tokens;
}

static bool is_promotion(const struct rn_tier *tier, const struct rn_prefix_path *path)
{
    for (uint32_t i = 0; i < RN_PROMOTIONS; i++)
        if (path == &tier->shelf.promotions[i].path)
            return true;
    return false;
}

static bool is_patient(const struct rn_tier *tier, const struct rn_request *request)
{
    switch ((runnel_cache_wait)request->cache_wait) {
    case RUNNEL_CACHE_WAIT:
        return true;
    case RUNNEL_CACHE_DEADLINE:
        return rn_now_us(tier->context->clock) - request->submitted_us < (uint64_t)request->cache_wait_ms * 1000;
    default:
        return false;
    }
}

bool rn_tier_passes_by(const struct rn_tier *tier, const struct rn_request *request, const struct rn_prefix_path *path)
{
    return is_promotion(tier, path) && !is_patient(tier, request);
}

/* One that waits for others' blocks looks again, and passes by what has not come up. */
void rn_tier_on_cache_due(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_tier *tier = (struct rn_tier *)self;
    struct rn_prefix_path *path = &tier->passages[msg->stream.slot].path;
    struct rn_prefix_woken woken = {NULL, NULL};
    bool waits = false;

    for (struct rn_request *r = tier->waiting.first; r != NULL; r = r->next)
        waits |= r->slot == msg->stream.slot && r->generation == msg->stream.generation;
    rn_msg_free(self->runtime, msg);
    if (!waits || path->state != RN_PATH_WAITING)
        return;
    rn_prefix_tree_leave(&tier->tree, path, &woken);
    rn_tier_serve(tier);
}

/* ---- Begin ---- */

static struct rn_promotion *free_promotion(struct rn_tier *tier)
{
    for (uint32_t i = 0; i < RN_PROMOTIONS; i++)
        if (!tier->shelf.promotions[i].busy)
            return &tier->shelf.promotions[i];
    return NULL;
}

static uint32_t on_the_way(const struct rn_tier *tier)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < RN_PROMOTIONS; i++)
        if (tier->shelf.promotions[i].busy)
            n += tier->shelf.promotions[i].n - tier->shelf.promotions[i].n_back;
    return n;
}

static bool can_promote(const struct rn_tier *tier, const struct rn_request *request, const struct rn_fit *fit)
{
    return tier->shelf.tiers != 0 && tier->shelf.closing == NULL && fit->found.n_cold > 0 &&
           !tier->passages[request->slot].promoted;
}

static void free_memory(struct rn_tier *tier, struct rn_promotion *p)
{
    struct rn_heap *heap = tier->context->heap;

    rn_free(heap, p->tokens);
    rn_free(heap, p->blocks);
    rn_free(heap, p->numbers);
    memset(p, 0, sizeof *p);
}

static bool take_memory(struct rn_tier *tier, struct rn_promotion *p, uint32_t n_before, uint32_t n)
{
    struct rn_heap *heap = tier->context->heap;

    p->tokens = rn_alloc(heap, (size_t)(n_before + n) * block_tokens(tier), sizeof p->tokens[0]);
    p->blocks = rn_alloc(heap, n_before + n, sizeof p->blocks[0]);
    p->numbers = rn_alloc(heap, n, sizeof p->numbers[0]);
    if (p->tokens != NULL && p->blocks != NULL && p->numbers != NULL)
        return true;
    free_memory(tier, p);
    return false;
}

/* The numbers of the cold blocks, in order; of the first n that make sense to bring up, how many. */
static uint32_t choose(struct rn_tier *tier, struct rn_promotion *p, const struct rn_prefix_match *found, uint32_t n)
{
    struct rn_prefix_ref node = found->cold;
    struct rn_prefix_view view;
    uint64_t saved_us;
    uint8_t *kinds = (uint8_t *)p->blocks; /* not in use yet */

    for (uint32_t i = found->n_cold; i-- > 0; node = view.parent) {
        RN_CHECK(rn_prefix_tree_look(&tier->tree, node, &view));
        if (i < n)
            p->numbers[i] = view.handle;
    }
    for (uint32_t i = 0; i < n; i++) {
        uint8_t has = rn_tier_shelf_has(tier, p->numbers[i]);

        kinds[i] = has != 0 ? (uint8_t)__builtin_ctz(has) : 0;
    }
    n = rn_tier_cost_choose(&tier->shelf.cost, kinds, n, found->n_ready * block_tokens(tier), block_tokens(tier),
                            on_the_way(tier), &saved_us);
    return n;
}

static void take_blocks(struct rn_tier *tier, struct rn_promotion *p, const struct rn_prefix_match *found)
{
    memcpy(p->blocks, tier->found, found->n_ready * sizeof p->blocks[0]);
    rn_tier_take(tier, p->n, p->blocks + found->n_ready);
    tier->shelf.n_lent += p->n;
}

/* Tokens of the prompt are in tier->tokens, and of the free blocks it takes what it needs or what there is. */
static bool promote(struct rn_tier *tier, const struct rn_request *request, const struct rn_fit *fit)
{
    const struct rn_prefix_match *found = &fit->found;
    struct rn_passage *passage = &tier->passages[request->slot];
    struct rn_promotion *p = free_promotion(tier);
    uint32_t n = found->n_cold < tier->pool.n_free ? found->n_cold : tier->pool.n_free;
    uint32_t n_tokens;

    if (p == NULL || n == 0 || !take_memory(tier, p, found->n_ready, n))
        return false;
    passage->promoted = true;
    p->n = choose(tier, p, found, n);
    if (p->n == 0) {
        rn_note_skipped(tier->context, found->n_cold);
        free_memory(tier, p);
        return false;
    }
    n_tokens = (found->n_ready + p->n) * block_tokens(tier);
    p->busy = true;
    p->n_before = found->n_ready;
    p->salt = (struct rn_prefix_salt){{request->cache_salt, 0}};
    p->passage = passage;
    p->began_us = rn_now_us(tier->context->clock);
    memcpy(p->tokens, tier->tokens, n_tokens * sizeof p->tokens[0]);
    take_blocks(tier, p, found);
    passage->promotion = p;
    rn_prefix_tree_enter(&tier->tree, &p->path, p->salt, p->tokens, n_tokens, found);
    rn_tier_send_promotions(tier);
    return true;
}

bool rn_tier_bring_up(struct rn_tier *tier, const struct rn_request *request, const struct rn_session *session,
                      uint32_t n_positions, const struct rn_fit *fit)
{
    const struct rn_prefix_match *found = &fit->found;

    if (fit->pending || !can_promote(tier, request, fit) || request->cache_wait == RUNNEL_CACHE_BEST_EFFORT ||
        (found->n_ready + found->n_cold) * block_tokens(tier) <= fit->n_done)
        return false;
    rn_tier_ref(tier, tier->found, found->n_ready);
    if (rn_tier_has_room(tier, session, rn_tier_blocks_for(tier, n_positions) - found->n_ready))
        promote(tier, request, fit);
    rn_tier_take_back(tier, tier->found, found->n_ready);
    return true; /* what was evicted for the room may be what the request would copy from */
}

/* So many blocks can be had without asking anybody for them. */
static bool can_have(struct rn_tier *tier, const struct rn_prefix_match *found, uint32_t n)
{
    rn_tier_ref(tier, tier->found, found->n_ready);
    if (tier->pool.n_free < n)
        rn_tier_evict(tier, n - tier->pool.n_free);
    rn_tier_take_back(tier, tier->found, found->n_ready);
    return tier->pool.n_free >= n;
}

/* A quarter of the pool at most is on its way for those that wait. */
void rn_tier_prefetch(struct rn_tier *tier, const struct rn_request *request)
{
    struct rn_fit fit;

    if (tier->shelf.tiers == 0 || request->session_generation != 0 || request->n_tokens < 2 ||
        request->n_tokens > tier->context->limits->context_tokens)
        return;
    memcpy(tier->tokens, request->tokens, request->n_tokens * sizeof *tier->tokens);
    rn_tier_look_up(tier, request, NULL, request->n_tokens, &fit);
    if (!can_promote(tier, request, &fit) || fit.found.n_pending > 0 ||
        on_the_way(tier) + fit.found.n_cold > tier->pool.n_blocks / 4 || !can_have(tier, &fit.found, fit.found.n_cold))
        return;
    promote(tier, request, &fit);
}

/* ---- Under way ---- */

static void fill(struct rn_tier *tier, struct rn_promotion *p, struct rn_move *move)
{
    move->errand = (uint32_t)(p - tier->shelf.promotions);
    while (move->n < RN_MOVE_BLOCKS && p->n_sent < p->n) {
        struct rn_move_item *item = &move->items[move->n++];
        uint32_t nth = p->n_before + p->n_sent;

        item->shelf = p->numbers[p->n_sent++];
        item->block = p->blocks[nth];
        item->salt = p->salt;
        memcpy(item->tokens, p->tokens + (size_t)nth * block_tokens(tier), block_tokens(tier) * sizeof *item->tokens);
    }
}

void rn_tier_send_promotions(struct rn_tier *tier)
{
    for (uint32_t i = 0; i < RN_PROMOTIONS; i++) {
        struct rn_promotion *p = &tier->shelf.promotions[i];
        struct rn_move *move;

        while (p->busy && !p->failed && p->n_sent < p->n && (move = rn_tier_shelf_move(tier, RN_MOVE_UP)) != NULL) {
            fill(tier, p, move);
            rn_tier_shelf_send(tier, move);
        }
    }
}

static void wake(struct rn_tier *tier, struct rn_prefix_woken *woken)
{
    while (rn_prefix_woken_pop(woken) != NULL)
        tier->woke = true;
}

/* Nothing of it is with the mover any more. */
static void end(struct rn_tier *tier, struct rn_promotion *p)
{
    struct rn_prefix_woken woken = {NULL, NULL};
    uint32_t n_unsent = p->n - p->n_sent;

    rn_prefix_tree_leave(&tier->tree, &p->path, &woken);
    wake(tier, &woken);
    if (n_unsent > 0) {
        rn_tier_take_back(tier, p->blocks + p->n_before + p->n_sent, n_unsent);
        tier->shelf.n_lent -= n_unsent;
    }
    if (p->passage != NULL)
        p->passage->promotion = NULL;
    free_memory(tier, p);
}

/* What has come is the tree's; a twin that was computed meanwhile stays, and the block goes back to the pool. */
static void publish(struct rn_tier *tier, struct rn_promotion *p, const struct rn_move *move, uint32_t n_good)
{
    struct rn_prefix_woken woken = {NULL, NULL};

    rn_prefix_tree_publish(&tier->tree, &p->path, p->tokens, p->blocks, p->n_before + p->n_back + n_good, NULL, &woken);
    wake(tier, &woken);
    for (uint32_t i = 0; i < n_good; i++) {
        if (p->passage != NULL)
            p->passage->n_from[move->items[i].from]++;
    }
}

static void learn(struct rn_tier *tier, const struct rn_move *move, uint32_t n_good)
{
    uint32_t n[RN_TIERS] = {0};

    for (uint32_t i = 0; i < n_good; i++)
        n[move->items[i].from]++;
    for (unsigned kind = 0; kind < RN_TIERS; kind++)
        rn_tier_cost_moved(&tier->shelf.cost, kind, n[kind], move->us[kind]);
    rn_prefix_tree_set_reload(&tier->tree, rn_tier_cost_reload(&tier->shelf.cost, block_tokens(tier)));
}

/* What was saved, as if those that run had shared the time of computing it. */
static void earn(struct rn_tier *tier, const struct rn_promotion *p, const struct rn_move *move, uint32_t n_good)
{
    uint64_t computing_us = rn_tier_cost_of_computing(&tier->shelf.cost, (p->n_before + p->n_back) * block_tokens(tier),
                                                      n_good, block_tokens(tier));
    uint32_t n_others = tier->n_inside < RN_PREFILL_LANES ? tier->n_inside : RN_PREFILL_LANES;

    computing_us /= n_others + 1;
    if (computing_us > move->spent_us)
        rn_tier_purse_save(&tier->shelf.purse, computing_us - move->spent_us);
}

void rn_tier_promoted(struct rn_tier *tier, struct rn_move *move)
{
    struct rn_promotion *p = &tier->shelf.promotions[move->errand];
    uint32_t n_good = 0, blocks[RN_MOVE_BLOCKS];

    RN_CHECK(p->busy);
    while (n_good < move->n && move->items[n_good].from != RN_TIERS)
        n_good++;
    learn(tier, move, n_good);
    earn(tier, p, move, n_good);
    if (!p->failed)
        publish(tier, p, move, n_good);
    p->failed |= n_good < move->n;
    p->n_back += move->n;
    for (uint32_t i = 0; i < move->n; i++)
        blocks[i] = move->items[i].block;
    rn_tier_take_back(tier, blocks, move->n);
    tier->shelf.n_lent -= move->n;
    for (uint32_t i = 0; i < move->n; i++)
        rn_tier_shelf_settle(tier, move->items[i].shelf, move->items[i].has);
    if (p->n_back == p->n || (p->failed && p->n_back == p->n_sent))
        end(tier, p);
}

void rn_tier_let_go_of_promotion(struct rn_tier *tier, uint32_t slot)
{
    struct rn_passage *passage = &tier->passages[slot];

    if (passage->promotion != NULL)
        passage->promotion->passage = NULL;
    passage->promotion = NULL;
    passage->promoted = false;
    memset(passage->n_from, 0, sizeof passage->n_from);
}
