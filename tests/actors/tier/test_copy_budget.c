/* What copies into lower tiers may cost (copy_budget.h), against its closed form: all that was spent is within what
 * came in at any moment, whatever comes; what comes in is spent. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#include "actors/tier/copy_budget.h"
#include "base/rng.h"

/* The world of a run: time passes, copies are always wanted, and some time is saved. */
struct world {
    struct rn_copy_budget budget;
    uint64_t now_us, busy_us, saved_us, spent_us, longest_us, rng;
    bool idle;
};

static struct world world_new(uint64_t seed)
{
    struct world w = {.now_us = 1, .rng = seed};

    rn_copy_budget_init(&w.budget);
    rn_copy_budget_advance(&w.budget, w.now_us, false);
    return w;
}

static uint64_t draw(struct world *w, uint64_t n)
{
    return rn_splitmix64(&w->rng) % n;
}

/* So long, and then it is busy or idle. A time that begins or ends busy counts as busy. */
static void pass(struct world *w, uint64_t us, bool idle)
{
    w->now_us += us;
    w->busy_us += w->idle && idle ? 0 : us;
    w->idle = idle;
    rn_copy_budget_advance(&w->budget, w->now_us, idle);
}

static bool copy(struct world *w, uint32_t n, uint64_t us)
{
    if (!rn_copy_budget_allows(&w->budget, n))
        return false;
    rn_copy_budget_charge(&w->budget, n, us, false);
    w->spent_us += us;
    w->longest_us = us > w->longest_us ? us : w->longest_us;
    return true;
}

static double income(const struct world *w)
{
    return RN_COPY_BUDGET_INITIAL_US + (double)w->busy_us / RN_COPY_BUDGET_BUSY_PART +
           (double)w->saved_us / RN_COPY_BUDGET_SAVED_PART;
}

/* Any order of all that can happen, 200 worlds: never more than came in, but for one move. */
static void test_bound(void **state)
{
    uint64_t n_copies = 0;

    (void)state;
    for (uint64_t seed = 0; seed < 200; seed++) {
        struct world w = world_new(seed);
        uint64_t dear = 1 + draw(&w, 40000);

        for (uint32_t i = 0; i < 5000; i++) {
            pass(&w, draw(&w, 20000), draw(&w, 4) == 0);
            if (draw(&w, 50) == 0) {
                uint64_t us = draw(&w, 100000);

                rn_copy_budget_credit(&w.budget, us);
                w.saved_us += us;
            }
            n_copies += copy(&w, 1 + (uint32_t)draw(&w, 8), 1 + draw(&w, dear));
            assert_true((double)w.spent_us <= income(&w) + (double)w.longest_us);
        }
    }
    assert_true(n_copies > 10000);
}

/* Where copies are always wanted and nothing is saved, what is spent is 1/100 of the time and what there was at first,
 * to one move: neither more nor less. */
static void test_exact(void **state)
{
    (void)state;
    for (uint64_t each_us = 100; each_us <= 6400; each_us *= 2) {
        struct world w = world_new(each_us);

        for (uint32_t i = 0; i < 400000; i++) {
            pass(&w, 1000, false);
            copy(&w, 8, each_us);
        }
        assert_true((double)w.spent_us <= income(&w) + (double)each_us);
        assert_true((double)w.spent_us >= income(&w) - (double)each_us - 1);
        assert_true((double)w.spent_us > 0.0099 * (double)w.busy_us);
    }
}

/* An hour of computing that wants no copies buys no more than the budget holds. */
static void test_holds_little(void **state)
{
    struct world w = world_new(1);

    (void)state;
    for (uint32_t i = 0; i < 3600; i++)
        pass(&w, 1000000, false);
    while (copy(&w, 8, 1000))
        continue;
    assert_true((double)w.spent_us <= RN_COPY_BUDGET_MAX_US + 1000);
    assert_true((double)w.spent_us >= RN_COPY_BUDGET_MAX_US - 1000);
}

/* What was saved is spent by half, beyond what time alone would fill; and that has an end as well. */
static void test_saved(void **state)
{
    struct world w = world_new(1);

    (void)state;
    while (copy(&w, 8, 1000))
        continue;
    w.spent_us = 0;
    rn_copy_budget_credit(&w.budget, 3000000);
    while (copy(&w, 8, 1000))
        continue;
    assert_true(w.spent_us >= 1498000 && w.spent_us <= 1501000);
    for (uint32_t i = 0; i < 1000; i++)
        rn_copy_budget_credit(&w.budget, 1000000);
    assert_true(w.budget.us <= RN_COPY_BUDGET_MAX_SAVED_US);
}

/* What is copied while nobody computes costs nothing, and such time pays nothing. */
static void test_idle(void **state)
{
    struct world w = world_new(1);
    double before;

    (void)state;
    while (copy(&w, 8, 1000))
        continue;
    before = w.budget.us;
    w.idle = false;
    pass(&w, 1000, true); /* the last of the busy time: 10 us */
    for (uint32_t i = 0; i < 1000; i++) {
        pass(&w, 100000, true);
        rn_copy_budget_charge(&w.budget, 8, 1000, true);
    }
    assert_true(w.budget.us >= before + 9 && w.budget.us <= before + 11);
}

/* A move that costs more than the budget ever holds is made all the same, seldom: 10 GB models copy too. */
static void test_dear_moves(void **state)
{
    const uint64_t each_us = 3 * (uint64_t)RN_COPY_BUDGET_MAX_US;
    struct world w = world_new(1);
    uint64_t n = 0;

    (void)state;
    for (uint32_t i = 0; i < 1000000; i++) {
        pass(&w, 1000, false);
        n += copy(&w, 8, each_us);
    }
    assert_true(n >= 30 && (double)w.spent_us <= income(&w) + (double)each_us);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bound), cmocka_unit_test(test_exact), cmocka_unit_test(test_holds_little),
        cmocka_unit_test(test_saved), cmocka_unit_test(test_idle),  cmocka_unit_test(test_dear_moves),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
