/* The order of turns against what start-time fair queueing promises, and the pace of steps against a machine whose cost
 * is a formula. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "actors/decode/prompt_budget.h"
#include "actors/fair_queue.h"
#include "base/rng.h"

#define MANY 64

static struct rn_request requests[MANY];
static uint64_t arrivals;

static struct rn_request *make(uint32_t slot, uint64_t tenant, int32_t priority)
{
    requests[slot] =
        (struct rn_request){.slot = slot, .generation = 1, .tenant = tenant, .priority = priority, .order = ++arrivals};
    return &requests[slot];
}

/* Serves all; their slots in order. */
static uint32_t serve_all(struct rn_fair_queue *turns, uint32_t *slots)
{
    uint32_t n = 0;

    while (turns->first != NULL) {
        struct rn_request *request = turns->first;

        rn_fair_queue_take(turns, request);
        rn_fair_queue_served(turns, request);
        slots[n++] = request->slot;
    }
    assert_int_equal(turns->n, 0);
    assert_null(turns->last);
    return n;
}

static void one_tenant_by_arrival(void **state)
{
    struct rn_fair_queue turns = {0};
    uint32_t slots[MANY];

    (void)state;
    for (uint32_t i = 0; i < 10; i++)
        rn_fair_queue_push(&turns, make(i, 7, 0), 1000 - 90 * i); /* costs of one tenant change nothing */
    assert_int_equal(serve_all(&turns, slots), 10);
    for (uint32_t i = 0; i < 10; i++)
        assert_int_equal(slots[i], i);
}

static void priorities_first(void **state)
{
    static const int32_t priorities[] = {0, -1, 5, 0, 5, INT32_MIN, INT32_MAX};
    static const uint32_t expected[] = {6, 2, 4, 0, 3, 1, 5};
    struct rn_fair_queue turns = {0};
    uint32_t slots[MANY];

    (void)state;
    for (uint32_t i = 0; i < 7; i++)
        rn_fair_queue_push(&turns, make(i, i % 2, priorities[i]), 10);
    assert_int_equal(serve_all(&turns, slots), 7);
    assert_memory_equal(slots, expected, sizeof expected);
}

/* Tenant 1 has asked thirty times for 100 each before tenant 2 asks for 10 ten times: all of tenant 2 is served before
 * tenant 1 has had more than its first two. */
static void crowds_hold_nobody_up(void **state)
{
    struct rn_fair_queue turns = {0};
    uint32_t slots[MANY], last = 0;

    (void)state;
    for (uint32_t i = 0; i < 30; i++)
        rn_fair_queue_push(&turns, make(i, 1, 0), 100);
    for (uint32_t i = 30; i < 40; i++)
        rn_fair_queue_push(&turns, make(i, 2, 0), 10);
    assert_int_equal(serve_all(&turns, slots), 40);
    for (uint32_t i = 0; i < 40; i++)
        last = slots[i] >= 30 ? i : last;
    assert_true(last <= 11);
}

/* What both always have waiting is served in equal amounts: the difference is never more than a request of each (the
 * bound of the paper, with equal weights). */
static void equal_shares(void **state)
{
    struct rn_fair_queue turns = {0};
    uint64_t served[3] = {0}, costs[3] = {0, 70, 30};
    uint32_t next = 0;

    (void)state;
    for (uint32_t i = 0; i < 8; i++)
        rn_fair_queue_push(&turns, make(next++, 1 + i % 2, 0), costs[1 + i % 2]);
    for (uint32_t i = 0; i < 500; i++) {
        struct rn_request *request = turns.first;
        uint64_t tenant = request->tenant;

        rn_fair_queue_take(&turns, request);
        rn_fair_queue_served(&turns, request);
        served[tenant] += costs[tenant];
        rn_fair_queue_push(&turns, make(request->slot, tenant, 0), costs[tenant]);
        assert_true(served[1] <= served[2] + 70 + 30 && served[2] <= served[1] + 70 + 30);
    }
}

static void put_back_and_again(void **state)
{
    struct rn_fair_queue turns = {0};
    static const uint32_t expected[] = {0, 3, 1, 2}; /* 3 goes before those with costs in front of them */
    struct rn_request *next;
    uint32_t slots[MANY];

    (void)state;
    for (uint32_t i = 0; i < 3; i++)
        rn_fair_queue_push(&turns, make(i, 1, 0), 10);
    next = requests[1].next;
    rn_fair_queue_take(&turns, &requests[1]);
    rn_fair_queue_put_back(&turns, &requests[1], next);
    assert_int_equal(turns.n, 3);
    assert_null(rn_fair_queue_remove(&turns, 1, 2));
    rn_fair_queue_push_front(&turns, make(3, 2, 0));
    rn_fair_queue_push_front(&turns, make(4, 2, -1));
    assert_ptr_equal(rn_fair_queue_remove(&turns, 4, 1), &requests[4]);
    assert_int_equal(serve_all(&turns, slots), 4);
    assert_memory_equal(slots, expected, sizeof expected);
}

/* The rule of fair_queue.h by its letter: a list that is looked through from one end to the other. */
struct plain {
    struct rn_request *list[MANY];
    uint32_t n;
    uint64_t served, tags[MANY], costs[MANY]; /* by slot */
};

static bool plain_before(const struct plain *plain, const struct rn_request *a, const struct rn_request *b)
{
    if (a->priority != b->priority)
        return a->priority > b->priority;
    if (plain->tags[a->slot] != plain->tags[b->slot])
        return plain->tags[a->slot] < plain->tags[b->slot];
    return a->order < b->order;
}

static void plain_enter(struct plain *plain, struct rn_request *request, uint64_t tag, uint64_t cost)
{
    uint32_t at = plain->n++;

    plain->tags[request->slot] = tag;
    plain->costs[request->slot] = cost;
    for (; at > 0 && plain_before(plain, request, plain->list[at - 1]); at--)
        plain->list[at] = plain->list[at - 1];
    plain->list[at] = request;
}

static void plain_push(struct plain *plain, struct rn_request *request, uint64_t cost)
{
    uint64_t tag = plain->served;

    for (uint32_t i = 0; i < plain->n; i++) {
        const struct rn_request *other = plain->list[i];
        uint64_t finish = plain->tags[other->slot] + plain->costs[other->slot];

        if (other->tenant == request->tenant && other->priority == request->priority)
            tag = finish > plain->served ? finish : plain->served;
    }
    plain_enter(plain, request, tag, cost);
}

static void plain_take(struct plain *plain, const struct rn_request *request)
{
    uint32_t at = 0;

    while (plain->list[at] != request)
        at++;
    memmove(plain->list + at, plain->list + at + 1, (plain->n - at - 1) * sizeof plain->list[0]);
    plain->n--;
}

static void assert_same_order(const struct rn_fair_queue *turns, const struct plain *plain)
{
    const struct rn_request *request = turns->first;

    assert_true(rn_fair_queue_check(turns));
    assert_int_equal(turns->n, plain->n);
    for (uint32_t i = 0; i < plain->n; i++, request = request->next)
        assert_ptr_equal(request, plain->list[i]);
    assert_null(request);
}

/* Whoever comes and goes, in whatever order. */
static void as_the_rule_says(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct rn_fair_queue turns = {0};
        struct plain plain = {.n = 0};
        uint64_t rng = seed;

        for (uint32_t step = 0; step < 1000; step++) {
            uint32_t slot = (uint32_t)(rn_splitmix64(&rng) % MANY), way = (uint32_t)(rn_splitmix64(&rng) % 8);
            struct rn_request *request = rn_fair_queue_find(&turns, slot, 1), *next;

            if (request == NULL && way > 0) {
                uint64_t cost = 1 + rn_splitmix64(&rng) % 50;

                request = make(slot, rn_splitmix64(&rng) % 5, (int32_t)(rn_splitmix64(&rng) % 3) - 1);
                rn_fair_queue_push(&turns, request, cost);
                plain_push(&plain, request, cost);
            } else if (request == NULL) {
                rn_fair_queue_push_front(&turns, request = make(slot, 1, 0));
                plain_enter(&plain, request, 0, 0);
            } else if (way < 4) {
                assert_ptr_equal(rn_fair_queue_remove(&turns, slot, 1), request);
                assert_null(rn_fair_queue_find(&turns, slot, 1));
                plain_take(&plain, request);
            } else if (way < 6) {
                next = request->next;
                rn_fair_queue_take(&turns, request);
                rn_fair_queue_put_back(&turns, request, next);
            } else {
                request = turns.first;
                rn_fair_queue_take(&turns, request);
                rn_fair_queue_served(&turns, request);
                plain_take(&plain, request);
                plain.served = plain.tags[request->slot] > plain.served ? plain.tags[request->slot] : plain.served;
            }
            assert_same_order(&turns, &plain);
        }
        while (turns.first != NULL)
            rn_fair_queue_take(&turns, turns.first);
    }
}

/* Twenty thousand of one tenant, and a newcomer for each of a thousand others; then all go, the last ones first. It
 * takes five searches to enter and one to leave, none of which goes deeper than a few times 15, the logarithm of
 * all. */
static void crowds_are_no_work(void **state)
{
    enum { CROWD = 20000, OTHERS = 1000, ALL = CROWD + OTHERS, MOST = 20 * 15 };
    struct rn_fair_queue turns = {0};
    struct rn_request *all = calloc(ALL, sizeof *all);
    uint64_t before;

    (void)state;
    assert_non_null(all);
    for (uint32_t i = 0; i < ALL; i++) {
        all[i] = (struct rn_request){.slot = i, .generation = 1, .tenant = i < CROWD ? 0 : i, .order = ++arrivals};
        before = turns.n_looks;
        rn_fair_queue_push(&turns, &all[i], 100);
        assert_true(turns.n_looks - before <= MOST);
    }
    assert_true(rn_fair_queue_check(&turns));
    for (uint32_t i = ALL; i-- > 0;) {
        before = turns.n_looks;
        assert_ptr_equal(rn_fair_queue_remove(&turns, i, 1), &all[i]);
        assert_true(turns.n_looks - before <= MOST);
    }
    assert_true(turns.n == 0 && rn_fair_queue_check(&turns));
    free(all);
}

/* ---- The pace, on machines whose steps take max(memory, rows * row) ---- */

static uint64_t cost(uint32_t rows, uint64_t memory_us, double row_us)
{
    double compute = rows * row_us;

    return compute > (double)memory_us ? (uint64_t)compute : memory_us;
}

static void keeps_the_bound(void **state)
{
    static const struct {
        uint64_t memory_us;
        double row_us;
        uint32_t running;
    } machines[] = {{30000, 2700, 1}, {30000, 2700, 16}, {5000, 20, 8}, {1, 0.5, 64}, {300, 900, 3}};

    (void)state;
    for (size_t m = 0; m < sizeof machines / sizeof machines[0]; m++) {
        uint64_t plain = cost(machines[m].running, machines[m].memory_us, machines[m].row_us);
        uint32_t n_prompt_rows = 0, n_over = 0;
        struct rn_prompt_budget pace;

        rn_prompt_budget_init(&pace, 2.0f);
        for (uint32_t step = 0; step < 400; step++) {
            uint32_t rows = rn_prompt_budget_rows(&pace, machines[m].running, 1, 256 - machines[m].running);
            uint64_t us = cost(machines[m].running + rows, machines[m].memory_us, machines[m].row_us);

            n_over += step >= 100 && rows > RN_PROMPT_BUDGET_LEAST && us > 2 * plain + plain / 4;
            n_prompt_rows += step >= 100 ? rows : 0;
            rn_prompt_budget_note(&pace, machines[m].running, machines[m].running, rows, us);
        }
        assert_int_equal(n_over, 0);
        /* and prompts get most of what the bound leaves */
        for (uint32_t best = 0; best < 256; best++)
            if (cost(machines[m].running + best, machines[m].memory_us, machines[m].row_us) <= 2 * plain)
                assert_true(n_prompt_rows >= 300 * best / 2);
    }
}

/* A short prompt that was alone says nothing against long ones: where memory sets the pace, rows are soon taken by the
 * hundred. */
static void short_prompts_bound_no_long_ones(void **state)
{
    struct rn_prompt_budget pace;
    uint32_t rows = 0;

    (void)state;
    rn_prompt_budget_init(&pace, 2.0f);
    rn_prompt_budget_note(&pace, 0, 0, 16, cost(16, 30000, 10));
    for (uint32_t step = 0; step < 8; step++) {
        rows = rn_prompt_budget_rows(&pace, 8, 1, 512);
        rn_prompt_budget_note(&pace, 8, 8, rows, cost(8 + rows, 30000, 10));
    }
    assert_true(rows >= 256);
}

/* When many begin to read at once, what was known of few is not taken for true: within a few steps prompts have what
 * the bound leaves again, and no more; not even when rows have just been measured where they cost next to nothing. */
static void follows_its_readers(void **state)
{
    static const uint32_t readers[] = {1, 7, 2, 30, 1, 12};
    const uint64_t memory_us = 30000;
    const double row_us = 2700;
    struct rn_prompt_budget pace;

    (void)state;
    rn_prompt_budget_init(&pace, 2.0f);
    rn_prompt_budget_note(&pace, 0, 0, 32, cost(32, memory_us, row_us));
    for (size_t i = 0; i < sizeof readers / sizeof readers[0]; i++) {
        uint64_t plain = cost(readers[i], memory_us, row_us);
        uint32_t n_rows = 0, n_steps = 40, least = (uint32_t)((double)plain / row_us / 2);

        for (uint32_t step = 0; step < n_steps; step++) {
            uint32_t rows = rn_prompt_budget_rows(&pace, readers[i], 1, 200);
            uint64_t us = cost(readers[i] + rows, memory_us, row_us);

            if (step >= 2 && rows > RN_PROMPT_BUDGET_LEAST)
                assert_true(us <= 2 * plain + plain / 4);
            n_rows += step >= 8 ? rows : 0;
            rn_prompt_budget_note(&pace, readers[i], readers[i], rows, us);
        }
        assert_true(n_rows >= (n_steps - 8) * least);
    }
}

/* Steps of prompts alone take about as long as is allowed, once it is known what rows take, and not much less. */
static void keeps_the_time(void **state)
{
    static const struct {
        uint64_t memory_us;
        double row_us;
    } machines[] = {{30000, 3300}, {5000, 20}, {180000, 21000}, {1, 0.5}};

    (void)state;
    for (size_t m = 0; m < sizeof machines / sizeof machines[0]; m++)
        for (int shared = 0; shared < 2; shared++) {
            uint64_t bound = shared ? (uint64_t)RN_PROMPT_BUDGET_SHARED_US : (uint64_t)RN_PROMPT_BUDGET_ALONE_US;
            struct rn_prompt_budget pace;

            rn_prompt_budget_init(&pace, 2.0f);
            assert_int_equal(rn_prompt_budget_chunk(&pace, shared, 256), RN_PROMPT_BUDGET_FIRST);
            for (uint32_t i = 0; i < 100; i++) {
                uint32_t rows = rn_prompt_budget_chunk(&pace, shared, 256);
                uint64_t us = cost(rows, machines[m].memory_us, machines[m].row_us);

                if (i >= 20) {
                    assert_true(us <= bound + bound / 4 || rows == RN_PROMPT_BUDGET_CHUNK);
                    assert_true(us >= bound / 2 || rows == 256);
                }
                rn_prompt_budget_note(&pace, 0, 0, rows, us);
                rn_prompt_budget_note(&pace, 0, 0, 3, us); /* the end of a prompt tells nothing of others */
            }
            assert_true(rn_prompt_budget_chunk(&pace, shared, 8) == 8);
        }
}

static void unbounded_where_nobody_reads(void **state)
{
    struct rn_prompt_budget pace;

    (void)state;
    rn_prompt_budget_init(&pace, 2.0f);
    assert_int_equal(rn_prompt_budget_rows(&pace, 0, 1, 100), 100);
    assert_int_equal(rn_prompt_budget_rows(&pace, 1, 1, 100), 0); /* the first step shows what one without takes */
    rn_prompt_budget_note(&pace, 3, 3, 0, 1000);
    assert_int_equal(rn_prompt_budget_rows(&pace, 1, 1, 2), 2);
    for (uint32_t i = 0; i < RN_PROMPT_BUDGET_STEPS; i++)
        rn_prompt_budget_note(&pace, 3, 3, 8, 100000); /* far too slow */
    assert_int_equal(rn_prompt_budget_rows(&pace, 1, 1, 100), 0);
    rn_prompt_budget_note(&pace, 3, 3, 0, 1000);
    assert_int_equal(rn_prompt_budget_rows(&pace, 1, 1, 100), RN_PROMPT_BUDGET_LEAST);
    rn_prompt_budget_init(&pace, __builtin_inff());
    assert_int_equal(rn_prompt_budget_rows(&pace, 1, 1, 100), 100);
    assert_int_equal(rn_prompt_budget_chunk(&pace, true, 100), 100);
}

/* A fiftieth of what a prompt takes that a shared step could not take whole. */
static void a_moment_for_others(void **state)
{
    struct rn_prompt_budget pace;

    (void)state;
    rn_prompt_budget_init(&pace, 0);
    assert_int_equal(rn_prompt_budget_patience_us(&pace, 1000), 0); /* nothing is known */
    rn_prompt_budget_note(&pace, 0, 0, 20, 40000);
    assert_int_equal(rn_prompt_budget_patience_us(&pace, 50), 0);
    assert_in_range(rn_prompt_budget_patience_us(&pace, 51), 2000, 2040);
    assert_in_range(rn_prompt_budget_patience_us(&pace, 100), 3990, 4000);
    assert_int_equal(rn_prompt_budget_patience_us(&pace, 10000), RN_PROMPT_BUDGET_PATIENCE_US);
    pace.slowdown = __builtin_inff();
    assert_int_equal(rn_prompt_budget_patience_us(&pace, 10000), 0);
}

/* A crowd that waits beside few who read: steps of up to 100 ms, unless the host has said what it wants. */
static void a_crowd_counts(void **state)
{
    static const struct {
        uint32_t readers, waiting;
        uint64_t memory_us, bound_us;
    } cases[] = {{1, 1, 20000, 40000}, {1, 3, 20000, 80000},  {1, 8, 20000, 100000}, {4, 8, 20000, 60000},
                 {8, 4, 20000, 40000}, {2, 8, 70000, 140000}, {1, 8, 300, 2700},     {1, 8, 200000, 400000}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int own = 0; own < 2; own++) {
            uint64_t bound = own ? 2 * cases[i].memory_us : cases[i].bound_us, longest = 0;
            double row_us = (double)cases[i].memory_us / 10;
            struct rn_prompt_budget pace;

            rn_prompt_budget_init(&pace, own ? 2.0f : 0);
            for (uint32_t step = 0; step < 400; step++) {
                uint32_t rows = rn_prompt_budget_rows(&pace, cases[i].readers, cases[i].waiting, 200);
                uint64_t us = cost(cases[i].readers + rows, cases[i].memory_us, row_us);

                longest = step >= 100 && us > longest ? us : longest;
                rn_prompt_budget_note(&pace, cases[i].readers, cases[i].readers, rows, us);
            }
            if (longest > bound + bound / 4 || longest < bound / 2)
                fail_msg("case %zu, own %d: steps up to %lu us, bound %lu", i, own, longest, bound);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_tenant_by_arrival), cmocka_unit_test(priorities_first),
        cmocka_unit_test(crowds_hold_nobody_up), cmocka_unit_test(equal_shares),
        cmocka_unit_test(put_back_and_again),    cmocka_unit_test(keeps_the_bound),
        cmocka_unit_test(follows_its_readers),   cmocka_unit_test(short_prompts_bound_no_long_ones),
        cmocka_unit_test(keeps_the_time),        cmocka_unit_test(unbounded_where_nobody_reads),
        cmocka_unit_test(a_crowd_counts),        cmocka_unit_test(a_moment_for_others),
        cmocka_unit_test(as_the_rule_says),      cmocka_unit_test(crowds_are_no_work),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
