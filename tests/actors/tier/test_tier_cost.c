/* What a block costs (cost.h), against the closed form. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "actors/tier/cost.h"
#include "cache/prefix_tree.h"

#define BLOCK 32u

/* A first block takes a millisecond to compute. */
static struct rn_tier_cost computed(void)
{
    struct rn_tier_cost cost = {.block_us = {0}};

    rn_tier_cost_computed(&cost, 0, BLOCK, 1000, false);
    return cost;
}

/* The quarters begun, of computing, of the slowest tier. */
static void test_reload(void **state)
{
    static const uint32_t us[] = {1, 240, 260, 490, 510, 740, 760, 990, 1010, 1000000};
    static const uint32_t quarters[] = {1, 1, 2, 2, 3, 3, 4, 4, 4, 4};

    (void)state;
    for (uint32_t i = 0; i < sizeof us / sizeof us[0]; i++) {
        struct rn_tier_cost cost = computed();

        rn_tier_cost_moved(&cost, RN_TIER_COLD, 8, 8 * us[i]);
        assert_int_equal(rn_tier_cost_reload(&cost, BLOCK), quarters[i]);
        rn_tier_cost_moved(&cost, RN_TIER_WARM, 8, 8 * 600);
        assert_int_equal(rn_tier_cost_reload(&cost, BLOCK), quarters[i] > 3 ? quarters[i] : 3);
    }
}

static void test_not_known(void **state)
{
    struct rn_tier_cost cost = {.block_us = {0}};

    (void)state;
    assert_int_equal(rn_tier_cost_reload(&cost, BLOCK), RN_PREFIX_QUARTERS);
    rn_tier_cost_moved(&cost, RN_TIER_WARM, 1, 1);
    assert_int_equal(rn_tier_cost_reload(&cost, BLOCK), RN_PREFIX_QUARTERS);
    cost = computed();
    assert_int_equal(rn_tier_cost_reload(&cost, BLOCK), RN_PREFIX_QUARTERS);
}

/* Of n blocks those are brought up that save most time: all until the tier is slower than computing; what is ahead of
 * them comes first; and a tier that was passed over is tried again some time. */
static void test_choose(void **state)
{
    uint8_t kinds[10];
    uint64_t saved_us;

    (void)state;
    for (uint32_t n_cold = 0; n_cold <= 10; n_cold++) {
        struct rn_tier_cost cost = computed();
        uint32_t n_tries = 1;

        for (uint32_t i = 0; i < 10; i++)
            kinds[i] = i < 10 - n_cold ? RN_TIER_WARM : RN_TIER_COLD;
        rn_tier_cost_moved(&cost, RN_TIER_WARM, 1, 100);
        rn_tier_cost_moved(&cost, RN_TIER_COLD, 1, 3000);
        assert_int_equal(rn_tier_cost_choose(&cost, kinds, 10, 0, BLOCK, 0, &saved_us), 10 - n_cold);
        assert_in_range(saved_us, 900 * (10 - n_cold) - (n_cold < 10), 900 * (10 - n_cold));
        while (n_cold == 10 && rn_tier_cost_choose(&cost, kinds, 10, 0, BLOCK, 0, &saved_us) == 0)
            assert_true(++n_tries < 30);
        assert_int_equal(rn_tier_cost_choose(&cost, kinds, 10 - n_cold, 0, BLOCK, 100, &saved_us), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reload),
        cmocka_unit_test(test_not_known),
        cmocka_unit_test(test_choose),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
