/* What one key may take: requests and tokens in a minute, tokens in all, answers at once. Arithmetic alone: the time is
 * the caller's, in milliseconds of any clock that does not go back.
 *
 * Rates are token buckets: a bucket holds what a minute brings, is full at first, and fills steadily. What a request
 * will cost in tokens is known at its end, so it is let in while anything is left, pays as its tokens come, and may
 * leave a debt that the next one waits for: over time the rate holds exactly. */
#ifndef RUNNEL_SERVE_KEY_LIMITS_H
#define RUNNEL_SERVE_KEY_LIMITS_H

#include <stdbool.h>
#include <stdint.h>

#define SERVE_MOST_LIMIT INT64_C(1000000000000) /* a larger one is no limit, and 60,000 times it fits */

struct serve_bucket {
    int64_t per_minute; /* 0: no limit */
    int64_t level; /* in parts, 60,000 of which are one: each millisecond brings per_minute of them. Below 0: debt */
    uint64_t at_ms;
};

/* Full. */
void serve_bucket_init(struct serve_bucket *bucket, int64_t per_minute, uint64_t now_ms);

/* Another rate; what was taken stays taken. */
void serve_bucket_set(struct serve_bucket *bucket, int64_t per_minute, uint64_t now_ms);

/* n of them go, also where there are less. */
void serve_bucket_take(struct serve_bucket *bucket, int64_t n, uint64_t now_ms);

/* Whole ones that are there; 0 in debt. */
int64_t serve_bucket_left(struct serve_bucket *bucket, uint64_t now_ms);

/* Until n are there (0: they are), and until it is full. */
uint64_t serve_bucket_wait_ms(struct serve_bucket *bucket, int64_t n, uint64_t now_ms);
uint64_t serve_bucket_full_ms(struct serve_bucket *bucket, uint64_t now_ms);

struct serve_limits {
    struct serve_bucket requests, tokens;
    int64_t budget, used;  /* tokens in all; budget 0: no limit */
    int64_t streams, live; /* answers at once, those that wait too; streams 0: no limit */
};

enum serve_excess { EXCESS_NONE, EXCESS_REQUESTS, EXCESS_TOKENS, EXCESS_BUDGET };

/* One more request: takes it, or says which limit it would break and when to ask again (0: no time will help). */
enum serve_excess serve_limits_ask(struct serve_limits *limits, uint64_t now_ms, uint64_t *retry_ms);

/* n answers begin, all or none; and end. */
bool serve_limits_open(struct serve_limits *limits, int64_t n);
void serve_limits_close(struct serve_limits *limits, int64_t n);

/* Tokens were read or written. False: the budget is used up. */
bool serve_limits_charge(struct serve_limits *limits, int64_t tokens, uint64_t now_ms);

/* Whether they say the same as on the first day: no token was used, no answer runs, and the buckets are full. */
bool serve_limits_are_new(struct serve_limits *limits, uint64_t now_ms);

/* Other limits; what was used stays used. */
void serve_limits_set(struct serve_limits *limits, const struct serve_limits *to, uint64_t now_ms);

#endif
