/* How long a test waits for what has to happen: so long that only what hangs is a failure, on any machine. */
#ifndef RN_TESTS_PATIENCE_H
#define RN_TESTS_PATIENCE_H

#include <stdbool.h>
#include <time.h>

enum { PATIENCE_S = 600 };

/* Of one wait; begins as {0}. */
struct patience {
    time_t began;
};

static inline time_t patience_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + 1;
}

/* Sleeps a millisecond between two looks; false when it is over. */
static inline bool patience_left(struct patience *patience)
{
    const struct timespec millisecond = {0, 1000000};

    if (patience->began == 0)
        patience->began = patience_now();
    nanosleep(&millisecond, NULL);
    return patience_now() - patience->began < PATIENCE_S;
}

#endif
