/* What the directory of lower tiers sends when, and what the answers say: see directory.h. */
#include "actors/context.h"
#include "actors/telemetry/telemetry.h"
#include "actors/tier/directory_copies.h"
#include "actors/tier/directory_news.h"
#include "base/check.h"

#define IDLE_US 2000u /* without a request: the next one is not about to come */

/* ---- Forget, tend ---- */

/* Where numbers are short, what has been cold longest goes from its tiers. */
static void make_numbers(struct rn_directory *directory)
{
    for (uint32_t i = 0; directory->full && i < RN_MOVE_TOLD && rn_prefix_tree_drop_cold(&directory->blocks->tree); i++)
        continue;
    directory->full = false;
}

/* The numbers are free as soon as they are sent: what comes behind finds the mover without them. */
static void send_leaving(struct rn_directory *directory)
{
    struct rn_move *move;

    if (directory->first_leaving == RN_DIRECTORY_NONE || (move = rn_directory_move(directory, RN_MOVE_FORGET)) == NULL)
        return;
    while (directory->first_leaving != RN_DIRECTORY_NONE && move->n_told < RN_MOVE_TOLD) {
        struct rn_directory_entry *entry = &directory->entries[directory->first_leaving];

        RN_ASSERT(entry->state == RN_DIRECTORY_LEAVING);
        move->left[move->n_told] = entry->untrusted;
        move->told[move->n_told++] = rn_directory_number_of(directory, directory->first_leaving);
        directory->first_leaving = entry->next;
        rn_directory_free_entry(directory, entry);
    }
    rn_directory_send(directory, move);
}

static void send_tend(struct rn_directory *directory)
{
    struct rn_move *move;

    if (!directory->more || (move = rn_directory_move(directory, RN_MOVE_TEND)) == NULL)
        return;
    directory->more = false;
    rn_directory_send(directory, move);
}

/* Of any model: another's steps are slowed down as well. */
static void look_for_idle(struct rn_directory *directory)
{
    uint64_t n_requests = 0, n_here = 0;

    for (const struct rn_metrics *m = rn_metrics_first(directory->context->every_model); m != NULL; m = m->next) {
        n_requests += rn_metrics_value(m, RN_COUNT_REQUESTS);
        n_here += rn_metrics_value(m, RN_COUNT_RUNNING) + rn_metrics_value(m, RN_COUNT_WAITING);
    }
    if (n_here > 0)
        directory->idle = RN_IDLE_NO;
    else if (directory->idle == RN_IDLE_NO || n_requests != directory->n_requests)
        directory->idle = RN_IDLE_MAYBE;
    directory->n_requests = n_requests;
}

static void advance_budget(struct rn_directory *directory)
{
    look_for_idle(directory);
    directory->unpaid = false;
    rn_copy_budget_advance(&directory->budget, rn_now_us(directory->context->clock), directory->idle != RN_IDLE_NO);
}

/* There is something that may be copied if nobody comes for a while. */
static void send_watch(struct rn_directory *directory)
{
    struct rn_move *move;

    if (directory->idle != RN_IDLE_MAYBE || directory->down_out || !rn_directory_has_copies(directory) ||
        (move = rn_directory_move(directory, RN_MOVE_TEND)) == NULL)
        return;
    move->pause_us = IDLE_US;
    directory->idle = RN_IDLE_TIMED;
    rn_directory_send(directory, move);
}

/* ---- After each batch ---- */

bool rn_directory_flush(struct rn_directory *directory)
{
    if (directory->tiers == 0 || directory->closed)
        return false;
    advance_budget(directory);
    rn_directory_look_for_news(directory);
    make_numbers(directory);
    send_leaving(directory);
    rn_directory_send_wanted(directory);
    if (!directory->closing) {
        rn_directory_send_oldest(directory);
        send_tend(directory);
        send_watch(directory);
    } else if (rn_directory_stop_listening(directory) && directory->n_out == 0 &&
               directory->first_leaving == RN_DIRECTORY_NONE) {
        directory->closed = true;
    }
    RN_ASSERT(!directory->closed || (directory->first_leaving == RN_DIRECTORY_NONE && !directory->listens));
    return directory->closed;
}

bool rn_directory_close(struct rn_directory *directory)
{
    RN_ASSERT(!directory->closing);
    directory->closing = true;
    directory->closed = directory->tiers == 0; /* else the flush behind this batch does what is left */
    return directory->closed;
}

/* ---- Answers ---- */

static void settle_told(struct rn_directory *directory, const struct rn_move *move)
{
    RN_ASSERT(move->n_told <= RN_MOVE_TOLD);
    for (uint32_t i = 0; i < move->n_told; i++)
        rn_directory_settle(directory, move->told[i], move->left[i]);
}

/* What comes up is paid for by the request that waits for it. */
static void pay(struct rn_directory *directory, const struct rn_move *move)
{
    uint32_t n = 0;

    if (move->kind == RN_MOVE_UP)
        return;
    if (move->kind == RN_MOVE_DOWN) {
        n = move->n;
        rn_telemetry_copied(directory->context, move->spent_us);
    }
    look_for_idle(directory);
    if (move->pause_us > 0 && directory->idle == RN_IDLE_TIMED)
        directory->idle = RN_IDLE_YES;
    rn_copy_budget_charge(&directory->budget, n, move->spent_us,
                          (n == 0 || directory->down_while_idle) && directory->idle == RN_IDLE_YES);
}

static void count(struct rn_directory *directory, const struct rn_move *move)
{
    for (unsigned kind = 0; kind < RN_TIERS; kind++) {
        rn_telemetry_moved(directory->context, kind, move->kind == RN_MOVE_UP, move->bytes[kind],
                           (int64_t)move->takes[kind] - (int64_t)directory->taken[kind]);
        directory->taken[kind] = move->takes[kind];
    }
    rn_telemetry_move_errors(directory->context, move->n_errors);
}

void rn_directory_moved(struct rn_directory *directory, struct rn_move *move)
{
    RN_ASSERT(!directory->closed && move->n <= RN_MOVE_BLOCKS);
    if (move->kind == RN_MOVE_DOWN)
        rn_directory_settle_down(directory, move);
    settle_told(directory, move);
    rn_directory_open(directory, directory->tiers, move->writes);
    directory->more |= move->more;
    count(directory, move);
    pay(directory, move);
    if (move->kind == RN_MOVE_LISTEN)
        rn_directory_on_listed(directory, move);
    else
        rn_directory_put_back(directory, move);
}

/* ---- Costs ---- */

uint32_t rn_directory_choose(struct rn_directory *directory, const uint64_t *numbers, uint8_t *kinds, uint32_t n,
                             uint32_t position, uint32_t n_ahead)
{
    uint64_t saved_us;

    for (uint32_t i = 0; i < n; i++) {
        uint8_t has = rn_directory_has(directory, numbers[i]);

        kinds[i] = has != 0 ? (uint8_t)__builtin_ctz(has) : 0;
    }
    return rn_tier_cost_choose(&directory->cost, kinds, n, position, directory->context->limits->block_tokens, n_ahead,
                               &saved_us);
}

static void learn(struct rn_directory *directory, const struct rn_move *move, uint32_t n_good)
{
    uint32_t n[RN_TIERS] = {0};

    for (uint32_t i = 0; i < n_good; i++) {
        RN_CHECK(move->items[i].from < RN_TIERS);
        n[move->items[i].from]++;
    }
    for (unsigned kind = 0; kind < RN_TIERS; kind++)
        rn_tier_cost_moved(&directory->cost, kind, n[kind], move->us[kind]);
    rn_prefix_tree_set_reload(&directory->blocks->tree,
                              rn_tier_cost_reload(&directory->cost, directory->context->limits->block_tokens));
}

void rn_directory_arrived(struct rn_directory *directory, const struct rn_move *move, uint32_t n_good,
                          uint32_t position, uint32_t n_others)
{
    uint64_t computing_us;

    RN_ASSERT(move->kind == RN_MOVE_UP && n_good <= move->n);
    learn(directory, move, n_good);
    computing_us =
        rn_tier_cost_of_computing(&directory->cost, position, n_good, directory->context->limits->block_tokens);
    computing_us /= n_others + 1;
    if (computing_us > move->spent_us)
        rn_copy_budget_credit(&directory->budget, computing_us - move->spent_us);
}

void rn_directory_timed(struct rn_directory *directory, uint32_t position, uint32_t n, uint64_t us, bool waited)
{
    rn_tier_cost_computed(&directory->cost, position, n, us, waited);
}
