/* Time through a seam: the monotonic clock of the machine, or a logical one in a simulation. */
#ifndef RN_BASE_CLOCK_H
#define RN_BASE_CLOCK_H

#include <stddef.h>
#include <stdint.h>

struct rn_clock {
    uint64_t (*now_us)(void *user); /* monotonic microseconds; any thread */
    void *user;
    uint64_t (*now_ns)(void *user);   /* the same clock, finer; NULL: it has nothing finer */
    uint64_t (*spent_us)(void *user); /* processor time of the calling thread; NULL: all that passes is taken for it */
};

/* CLOCK_MONOTONIC. */
struct rn_clock rn_clock_machine(void);

static inline uint64_t rn_now_us(const struct rn_clock *clock)
{
    return clock->now_us(clock->user);
}

static inline uint64_t rn_now_ns(const struct rn_clock *clock)
{
    return clock->now_ns != NULL ? clock->now_ns(clock->user) : 1000 * clock->now_us(clock->user);
}

/* The difference between two calls on one thread is what it has spent of a processor. */
static inline uint64_t rn_spent_us(const struct rn_clock *clock)
{
    return clock->spent_us != NULL ? clock->spent_us(clock->user) : clock->now_us(clock->user);
}

#endif
