/* The event count: see wake.h for the contract.
 *
 * ck_ec32 keeps 31 bits of count and one bit "somebody sleeps" in a single word; a notify counts
 * up in one atomic step and enters the kernel only when it finds that bit. The operations that
 * ck_ec needs from the system are here: the monotonic clock and the futex.
 *
 * A wait has three stages: spin (with pauses, then yielding the core, so that on a machine with
 * few cores the other side can run), set the bit, sleep in the kernel until notified or due.
 * ck_ec sleeps in growing slices to make up for a notify that can miss the bit; ours never misses
 * it (single_producer is false), so each slice is stretched to the whole deadline. */
#include "mailbox/wake.h"

#include <ck_ec.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "mailbox/tsan.h"

#define NS_PER_S 1000000000
#define US_PER_S 1000000
/* Pauses between two looks at the clock: about 1 µs at 40 cycles a pause, so that reading the
 * clock (20 ns) does not show. */
#define PAUSES_PER_LOOK 64

static_assert(sizeof(struct ck_ec32) <= sizeof(struct rn_wake), "the event count lies in rn_wake.count");
static_assert(_Alignof(struct ck_ec32) <= _Alignof(struct rn_wake), "and is aligned there");

static struct timespec now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return time;
}

static int op_gettime(const struct ck_ec_ops *ops, struct timespec *out)
{
    (void)ops;
    *out = now();
    return 0;
}

/* Any early return is allowed: the caller looks at the word again. */
static void op_wait32(const struct ck_ec_wait_state *state, const uint32_t *address, uint32_t expected,
                      const struct timespec *deadline)
{
    (void)state;
    syscall(SYS_futex, address, FUTEX_WAIT_BITSET_PRIVATE, expected, deadline, NULL, FUTEX_BITSET_MATCH_ANY);
}

static void op_wake32(const struct ck_ec_ops *ops, const uint32_t *address)
{
    (void)ops;
    syscall(SYS_futex, address, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* One look instead of ck_ec's own spinning: we have spun already. */
static const struct ck_ec_ops futex_ops = {
    .gettime = op_gettime, .wait32 = op_wait32, .wake32 = op_wake32, .busy_loop_iter = 1};
static const struct ck_ec_mode many_notifiers = {.ops = &futex_ops, .single_producer = false};

static struct ck_ec32 *event_count(const struct rn_wake *wake)
{
    return (struct ck_ec32 *)wake->count;
}

void rn_wake_init(struct rn_wake *wake)
{
    *wake = (struct rn_wake){{0}};
    ck_ec32_init(event_count(wake), 0);
}

uint32_t rn_wake_ticket(const struct rn_wake *wake)
{
    uint32_t ticket = ck_ec32_value(event_count(wake));

    RN_TSAN_ACQUIRE(wake);
    return ticket;
}

static struct timespec in_us(uint64_t us)
{
    struct timespec time = now();

    time.tv_sec += (time_t)(us / US_PER_S);
    time.tv_nsec += (long)(us % US_PER_S) * (NS_PER_S / US_PER_S);
    if (time.tv_nsec >= NS_PER_S) {
        time.tv_nsec -= NS_PER_S;
        time.tv_sec++;
    }
    return time;
}

static bool has_passed(const struct timespec *deadline)
{
    struct timespec time = now();

    return time.tv_sec != deadline->tv_sec ? time.tv_sec > deadline->tv_sec : time.tv_nsec >= deadline->tv_nsec;
}

/* Spins for at most `us`; true when the count has left the ticket. The first look at the clock is
 * followed by pauses, the later ones by a yield. */
static bool spin(const struct rn_wake *wake, uint32_t ticket, uint32_t us)
{
    struct timespec end = in_us(us);
    bool first = true;

    do {
        for (int i = 0; i < PAUSES_PER_LOOK; i++) {
            if (ck_ec32_value(event_count(wake)) != ticket)
                return true;
            ck_pr_stall();
        }
        if (!first)
            sched_yield();
        first = false;
    } while (!has_passed(&end));
    return false;
}

/* Called by ck_ec before each slice of sleep. */
static int sleep_until_due(const struct ck_ec_wait_state *state, struct timespec *slice)
{
    *slice = *(const struct timespec *)state->data;
    return 0;
}

/* ck_ec may also return when another waiter's notify has only cleared the sleepers' bit, so the
 * count is compared again. A deadline in the year 292 277 026 596 is none. */
static bool park(struct rn_wake *wake, uint32_t ticket, int64_t timeout_us)
{
    struct timespec due = {.tv_sec = (time_t)INT64_MAX, .tv_nsec = 0};
    int timed_out = 0;

    if (timeout_us >= 0)
        due = in_us((uint64_t)timeout_us);
    while (ck_ec32_value(event_count(wake)) == ticket && timed_out == 0)
        timed_out = ck_ec32_wait_pred(event_count(wake), &many_notifiers, ticket, sleep_until_due, &due, &due);
    return ck_ec32_value(event_count(wake)) != ticket;
}

bool rn_wake_wait(struct rn_wake *wake, uint32_t ticket, int64_t timeout_us, uint32_t spin_us)
{
    bool changed;

    if (timeout_us >= 0 && spin_us > timeout_us)
        spin_us = (uint32_t)timeout_us;
    changed = ck_ec32_value(event_count(wake)) != ticket || (spin_us > 0 && spin(wake, ticket, spin_us)) ||
              park(wake, ticket, timeout_us < 0 ? timeout_us : timeout_us - (int64_t)spin_us);
    if (changed)
        RN_TSAN_ACQUIRE(wake);
    return changed;
}

/* The locked increment is a release, and its partner is the acquire in ticket and wait. It is also
 * totally ordered with a waiter's setting of the sleepers' bit: either the notify sees the bit and
 * wakes, or the waiter sees the new count and does not sleep. */
void rn_wake_notify(struct rn_wake *wake)
{
    RN_TSAN_RELEASE(wake);
    ck_ec32_inc(event_count(wake), &many_notifiers);
}
