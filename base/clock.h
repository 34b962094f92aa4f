/* Time through a seam: the monotonic clock of the machine, or a logical one in a simulation. */
#ifndef RN_BASE_CLOCK_H
#define RN_BASE_CLOCK_H

#include <stdint.h>

struct rn_clock {
    uint64_t (*now_us)(void *user); /* monotonic microseconds; any thread */
    void *user;
};

/* CLOCK_MONOTONIC. */
struct rn_clock rn_clock_machine(void);

static inline uint64_t rn_now_us(const struct rn_clock *clock)
{
    return clock->now_us(clock->user);
}

#endif
