/* The machine's clock never runs backwards and keeps pace with a sleep; the seam hands through. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <time.h>

#include "base/clock.h"

static void test_monotone(void **state)
{
    struct rn_clock clock = rn_clock_machine();
    uint64_t last = rn_now_us(&clock), first = last;

    (void)state;
    for (int i = 0; i < 100000; i++) {
        uint64_t now = rn_now_us(&clock);

        assert_true(now >= last);
        last = now;
    }
    assert_true(last > first);
}

static uint64_t system_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* A nap takes as long by it as by the system's clock: no less than what is read within, no more than what is around. */
static void test_microseconds(void **state)
{
    struct rn_clock clock = rn_clock_machine();
    const struct timespec nap = {0, 20000000}; /* 20 ms */
    uint64_t around, before, within, took;

    (void)state;
    around = system_us();
    before = rn_now_us(&clock);
    within = system_us();
    nanosleep(&nap, NULL);
    within = system_us() - within;
    took = rn_now_us(&clock) - before;
    around = system_us() - around;
    assert_true(within >= 20000 && took >= within && took <= around);
}

static uint64_t logical(void *user)
{
    return ++*(uint64_t *)user;
}

static void test_seam(void **state)
{
    uint64_t ticks = 41;
    struct rn_clock clock = {.now_us = logical, .user = &ticks};

    (void)state;
    assert_int_equal(rn_now_us(&clock), 42);
    assert_int_equal(rn_now_us(&clock), 43);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_monotone),
        cmocka_unit_test(test_microseconds),
        cmocka_unit_test(test_seam),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
