/* See key_limits.h. */
#include "key_limits.h"

enum { PARTS = 60000 }; /* milliseconds of a minute */

/* Brings the bucket to the present. */
static void fill(struct serve_bucket *bucket, uint64_t now_ms)
{
    int64_t full = bucket->per_minute * PARTS;
    uint64_t passed = now_ms > bucket->at_ms ? now_ms - bucket->at_ms : 0;

    bucket->at_ms = now_ms > bucket->at_ms ? now_ms : bucket->at_ms;
    if (bucket->per_minute == 0)
        return;
    if (passed >= (uint64_t)((full - bucket->level) / bucket->per_minute) + 1)
        bucket->level = full;
    else
        bucket->level += (int64_t)passed * bucket->per_minute;
    if (bucket->level > full)
        bucket->level = full;
}

void serve_bucket_init(struct serve_bucket *bucket, int64_t per_minute, uint64_t now_ms)
{
    *bucket = (struct serve_bucket){per_minute, per_minute * PARTS, now_ms};
}

void serve_bucket_set(struct serve_bucket *bucket, int64_t per_minute, uint64_t now_ms)
{
    int64_t taken = 0;

    fill(bucket, now_ms);
    taken = bucket->per_minute * PARTS - bucket->level;
    bucket->level = per_minute * PARTS - (bucket->per_minute > 0 && per_minute > 0 ? taken : 0);
    bucket->per_minute = per_minute;
}

void serve_bucket_take(struct serve_bucket *bucket, int64_t n, uint64_t now_ms)
{
    int64_t most = SERVE_MOST_LIMIT; /* of a debt */

    if (bucket->per_minute == 0)
        return;
    fill(bucket, now_ms);
    if (n > most || bucket->level / PARTS - n < -most)
        bucket->level = -most * PARTS;
    else
        bucket->level -= n * PARTS;
}

int64_t serve_bucket_left(struct serve_bucket *bucket, uint64_t now_ms)
{
    fill(bucket, now_ms);
    return bucket->level > 0 ? bucket->level / PARTS : 0;
}

static uint64_t until(const struct serve_bucket *bucket, int64_t level)
{
    if (bucket->per_minute == 0 || bucket->level >= level)
        return 0;
    return (uint64_t)((level - bucket->level + bucket->per_minute - 1) / bucket->per_minute);
}

uint64_t serve_bucket_wait_ms(struct serve_bucket *bucket, int64_t n, uint64_t now_ms)
{
    fill(bucket, now_ms);
    return until(bucket, n * PARTS);
}

uint64_t serve_bucket_full_ms(struct serve_bucket *bucket, uint64_t now_ms)
{
    fill(bucket, now_ms);
    return until(bucket, bucket->per_minute * PARTS);
}

enum serve_excess serve_limits_ask(struct serve_limits *limits, uint64_t now_ms, uint64_t *retry_ms)
{
    *retry_ms = 0;
    if (limits->budget > 0 && limits->used >= limits->budget)
        return EXCESS_BUDGET;
    *retry_ms = serve_bucket_wait_ms(&limits->tokens, 1, now_ms);
    if (*retry_ms > 0)
        return EXCESS_TOKENS;
    *retry_ms = serve_bucket_wait_ms(&limits->requests, 1, now_ms);
    if (*retry_ms > 0)
        return EXCESS_REQUESTS;
    serve_bucket_take(&limits->requests, 1, now_ms);
    return EXCESS_NONE;
}

bool serve_limits_open(struct serve_limits *limits, int64_t n)
{
    if (limits->streams > 0 && n > limits->streams - limits->live)
        return false;
    limits->live += n;
    return true;
}

void serve_limits_close(struct serve_limits *limits, int64_t n)
{
    limits->live -= n;
}

bool serve_limits_charge(struct serve_limits *limits, int64_t tokens, uint64_t now_ms)
{
    serve_bucket_take(&limits->tokens, tokens, now_ms);
    limits->used = tokens < INT64_MAX - limits->used ? limits->used + tokens : INT64_MAX;
    return limits->budget == 0 || limits->used < limits->budget;
}

bool serve_limits_are_new(struct serve_limits *limits, uint64_t now_ms)
{
    return limits->used == 0 && limits->live == 0 && serve_bucket_full_ms(&limits->requests, now_ms) == 0 &&
           serve_bucket_full_ms(&limits->tokens, now_ms) == 0;
}

void serve_limits_set(struct serve_limits *limits, const struct serve_limits *to, uint64_t now_ms)
{
    serve_bucket_set(&limits->requests, to->requests.per_minute, now_ms);
    serve_bucket_set(&limits->tokens, to->tokens.per_minute, now_ms);
    limits->budget = to->budget;
    limits->streams = to->streams;
}
