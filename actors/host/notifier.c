/* The descriptor of the host's loop: see notifier.h. */
#include "actors/host/notifier.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"

bool rn_notifier_init(struct rn_notifier *notifier, uint32_t gather_us, const struct rn_clock *clock)
{
    notifier->gather_us = gather_us;
    notifier->clock = clock;
    atomic_init(&notifier->not_before_us, 0);
    notifier->fd = gather_us == 0 ? eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)
                                  : timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    return notifier->fd >= 0;
}

void rn_notifier_fini(struct rn_notifier *notifier)
{
    if (notifier->fd >= 0)
        close(notifier->fd);
    notifier->fd = -1;
}

/* The count only says "not zero". */
static void write_event(int fd)
{
    uint64_t one = 1;

    while (write(fd, &one, sizeof one) < 0 && errno == EINTR)
        continue;
}

/* 0: stops the timer; it is not readable then. */
static void set_timer(int fd, uint64_t ns)
{
    const struct itimerspec time = {
        .it_value = {.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)}};
    int failed = timerfd_settime(fd, 0, &time, NULL);

    RN_CHECK(failed == 0); /* it fails for a wrong descriptor or time alone */
}

void rn_notifier_raise(struct rn_notifier *notifier)
{
    uint64_t now, due, left;

    if (notifier->gather_us == 0) {
        write_event(notifier->fd);
        return;
    }
    /* Relaxed; partner: rn_notifier_clear. */
    due = atomic_load_explicit(&notifier->not_before_us, memory_order_relaxed);
    now = rn_now_us(notifier->clock);
    left = due > now ? due - now : 0;
    left = left < notifier->gather_us ? left : notifier->gather_us;
    set_timer(notifier->fd, left > 0 ? left * 1000 : 1);
}

void rn_notifier_raise_now(struct rn_notifier *notifier)
{
    if (notifier->gather_us == 0)
        write_event(notifier->fd);
    else
        set_timer(notifier->fd, 1);
}

void rn_notifier_clear(struct rn_notifier *notifier)
{
    uint64_t count;

    if (notifier->gather_us > 0) { /* also one that has not run out yet: what it was set for is looked at now */
        set_timer(notifier->fd, 0);
        /* Relaxed; partner: rn_notifier_raise. */
        atomic_store_explicit(&notifier->not_before_us, rn_now_us(notifier->clock) + notifier->gather_us,
                              memory_order_relaxed);
        return;
    }
    while (read(notifier->fd, &count, sizeof count) < 0 && errno == EINTR)
        continue;
}
