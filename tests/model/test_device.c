/* How much of a device's memory KV takes, and what limits a device refuses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "model/backend.h"

#define GB (UINT64_C(1) << 30)

static void test_shared_memory(void **state)
{
    const struct rn_device_memory memory = {16 * GB, GB, true};

    (void)state;
    assert_int_equal(rn_device_kv_bytes(&memory, 100 * GB, 0), 4 * GB); /* the weights are in the page cache */
    assert_int_equal(rn_device_blocks(&memory, 0, 0, 1 << 20, 256, 8), 2048);
    assert_int_equal(rn_device_blocks(&memory, 0, 0, 4 << 20, 256, 8), 1024); /* a quarter holds no more */
    assert_int_equal(rn_device_blocks(&memory, 0, 0, GB, 256, 8), 256);       /* but one sequence always fits */
}

static void test_own_memory(void **state)
{
    const struct rn_device_memory memory = {16 * GB, 14 * GB, false};

    (void)state;
    assert_int_equal(rn_device_kv_bytes(&memory, 4 * GB, 0), 9 * GB);
    assert_int_equal(rn_device_kv_bytes(&memory, 4 * GB, GB / 2), 9 * GB);                /* within the tenth */
    assert_int_equal(rn_device_kv_bytes(&memory, 4 * GB, 3 * GB), 7 * GB - 10 * GB / 50); /* beyond it */
    assert_int_equal(rn_device_kv_bytes(&memory, 4 * GB, 10 * GB), 0);
    assert_int_equal(rn_device_kv_bytes(&memory, 14 * GB, 0), 0);
    assert_int_equal(rn_device_blocks(&memory, 4 * GB, 0, 1 << 20, 256, 8), 9 << 10);  /* not just eight contexts */
    assert_int_equal(rn_device_blocks(&memory, 4 * GB, 9 * GB, 1 << 20, 256, 8), 819); /* 1 GB - 10 GB / 50 */
    assert_int_equal(rn_device_blocks(&memory, 14 * GB, 0, 1 << 20, 256, 8), 256);
    assert_int_equal(rn_device_blocks(&memory, 4 * GB, 0, 1, 256, 8), UINT64_C(1) << 31);
}

static runnel_status check(const struct rn_device_caps *caps, const struct rn_backend_limits *limits)
{
    runnel_error error = {0};
    const struct rn_plan plan = {.n_ops = 0};
    runnel_status status = rn_limits_check(limits, &plan, caps, &error);

    assert_int_equal(error.status, status);
    return status;
}

static void test_limits(void **state)
{
    const struct rn_device_caps caps = {
        .can = RN_CAN_TREES | RN_CAN_MEANS, .kv_types = 1u << RUNNEL_KV_FP8, .max_rows = 8, .max_outs = 4};
    const struct rn_device_caps bare = {.kv_types = 1u << RUNNEL_KV_FP8, .max_rows = 8, .max_outs = 4};
    const struct rn_backend_limits good = {
        .max_rows = 8, .max_outs = 4, .kv_type = RUNNEL_KV_FP8, .mean_window = 64, .tree_depth = 2};
    struct rn_backend_limits l = good;
    struct rn_device_caps draws = caps;

    (void)state;
    draws.can |= RN_CAN_DRAW | RN_CAN_DRAW_ITSELF;
    assert_int_equal(check(&caps, &l), RUNNEL_OK);
    l.max_rows = 9;
    assert_int_equal(check(&caps, &l), RUNNEL_UNSUPPORTED);
    l = good;
    l.max_outs = 5;
    assert_int_equal(check(&caps, &l), RUNNEL_UNSUPPORTED);
    l = good;
    l.kv_type = RUNNEL_KV_F16;
    assert_int_equal(check(&caps, &l), RUNNEL_UNSUPPORTED);
    l = good;
    l.mean_window = 0;
    assert_int_equal(check(&bare, &l), RUNNEL_UNSUPPORTED);
    l.tree_depth = 0;
    assert_int_equal(check(&bare, &l), RUNNEL_OK);
    l.mean_window = 64;
    assert_int_equal(check(&bare, &l), RUNNEL_UNSUPPORTED);
    l = good;
    l.max_changes = 1; /* of a device that draws by itself, in steps that draw */
    assert_int_equal(check(&draws, &l), RUNNEL_UNSUPPORTED);
    l.draws = true;
    assert_int_equal(check(&draws, &l), RUNNEL_OK);
    draws.can &= ~(uint32_t)RN_CAN_DRAW_ITSELF;
    assert_int_equal(check(&draws, &l), RUNNEL_UNSUPPORTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shared_memory),
        cmocka_unit_test(test_own_memory),
        cmocka_unit_test(test_limits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
