/* The machine's clock: see clock.h. */
#include "base/clock.h"

#include <time.h>

static uint64_t machine_now_us(void *user)
{
    struct timespec t;

    (void)user;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000u;
}

static uint64_t machine_now_ns(void *user)
{
    struct timespec t;

    (void)user;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t machine_spent_us(void *user)
{
    struct timespec t;

    (void)user;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000u;
}

struct rn_clock rn_clock_machine(void)
{
    return (struct rn_clock){.now_us = machine_now_us, .now_ns = machine_now_ns, .spent_us = machine_spent_us};
}
