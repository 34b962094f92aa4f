/* The descriptor that says to the host's loop: something waits.
 *
 * Where news does not gather it is an eventfd, written when something waits. Where it gathers it is a timerfd, set to
 * the earliest time at which the loop may be woken again:
 *
 *   clear        the host looks now: the next wake is not before   now + gather_us
 *   raise        something waits: readable at                      max(now, that time), so within gather_us
 *
 *   events       x x  x x xx  x        x x  xx          x
 *   readable     |            |        |            |   |        the first after quiet at once, then gather_us apart
 *
 * It bounds the delay, and nobody sleeps. Two raises may meet; the later setting counts, and is within gather_us, too.
 * What moves the time on is the host's look alone, so raises never put a wake off further. */
#ifndef RN_ACTORS_HOST_NOTIFIER_H
#define RN_ACTORS_HOST_NOTIFIER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"

/* So long at most for an engine. */
#define RN_GATHER_US_MAX 1000000

struct rn_notifier {
    int fd;                       /* non-blocking; -1: none */
    uint32_t gather_us;           /* 0: fd is an eventfd */
    const struct rn_clock *clock; /* borrowed */
    _Atomic(uint64_t)
        not_before_us; /* on that clock. Relaxed, partner in notifier.c: an old value wakes the host sooner */
};

/* False: there is no descriptor. */
bool rn_notifier_init(struct rn_notifier *notifier, uint32_t gather_us, const struct rn_clock *clock);
void rn_notifier_fini(struct rn_notifier *notifier);

/* Any thread: something waits since now. */
void rn_notifier_raise(struct rn_notifier *notifier);

/* Any thread: something waits, and has waited before: readable at once. */
void rn_notifier_raise_now(struct rn_notifier *notifier);

/* The dispatcher, before it looks for what waits. */
void rn_notifier_clear(struct rn_notifier *notifier);

#endif
