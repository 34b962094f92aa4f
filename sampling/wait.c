/* Waiting for guesses: see wait.h. */
#include "sampling/wait.h"

#include "base/min.h"

#define GAIN 0.02f /* less than this share is noise */
#define ROUNDS 3

/* 1 + a + ... + a^k, and a^(k+1) in *next. */
static float expected(float a, uint32_t k, float *next)
{
    float power = 1, sum = 1;

    for (uint32_t i = 0; i < k; i++) {
        power *= a;
        sum += power;
    }
    *next = power * a;
    return sum;
}

/* What waiting j passes gives, in tokens and what is as good as tokens, and the time that it and the step take. `bare`:
 * as if no stream had guesses. */
static float value_of(const struct rn_wait *wait, bool bare, uint32_t j, float *us)
{
    float tokens = (float)wait->n_plain, next;
    uint32_t rows = wait->n_plain + wait->n_streams;

    for (uint32_t i = 0; i < wait->n_streams; i++) {
        const struct rn_wait_stream *stream = &wait->streams[i];
        uint32_t k = rn_min_u32((bare ? 0 : stream->n) + j, stream->most);

        tokens += expected(stream->acceptance, k, &next);
        tokens += next * stream->gain;
        rows += k;
    }
    *us = rn_step_cost_of(wait->cost, rows) + (float)j * (float)wait->pass_us;
    return tokens;
}

/* The most that can be had per time from a state without guesses. */
static float best_rate(const struct rn_wait *wait, uint32_t most)
{
    float best = 0, us;

    for (uint32_t j = 0; j <= most; j++) {
        float rate = value_of(wait, true, j, &us) / us;

        best = rate > best ? rate : best;
    }
    return best;
}

/* What each stream gains by a next step that need not wait. */
static void set_gains(const struct rn_wait *wait, float step_us, float rate)
{
    uint32_t fits = wait->pass_us > 0 ? (uint32_t)(step_us / (float)wait->pass_us) : RN_DRAFT_MOST;

    for (uint32_t i = 0; i < wait->n_streams; i++) {
        struct rn_wait_stream *stream = &wait->streams[i];
        float next, tokens = expected(stream->acceptance, rn_min_u32(fits > 0 ? fits - 1 : 0, stream->most), &next);
        float gain = tokens - rate * step_us / (float)(wait->n_streams + wait->n_plain);

        stream->gain = fits > 0 && gain > 0 ? gain / (1.001f - next) : 0;
    }
}

static float long_run_rate(const struct rn_wait *wait, float step_us, uint32_t most)
{
    float rate;

    for (uint32_t i = 0; i < wait->n_streams; i++)
        wait->streams[i].gain = 0;
    rate = best_rate(wait, most);
    for (uint32_t round = 0; wait->beside && round < ROUNDS; round++) {
        set_gains(wait, step_us, rate);
        rate = best_rate(wait, most);
    }
    return rate;
}

uint32_t rn_wait_passes(const struct rn_wait *wait)
{
    float step_us = rn_step_cost_of(wait->cost, wait->n_plain + wait->n_streams), rate, best, us;
    uint32_t passes = 0, most = 0;

    for (uint32_t i = 0; i < wait->n_streams; i++)
        if (wait->streams[i].most > wait->streams[i].n && wait->streams[i].most - wait->streams[i].n > most)
            most = wait->streams[i].most - wait->streams[i].n;
    most = rn_min_u32(most, wait->most_passes);
    if (most == 0 || step_us == 0)
        return 0;
    rate = long_run_rate(wait, step_us, most);
    best = value_of(wait, false, 0, &us);
    best += GAIN * best - rate * us;
    for (uint32_t j = 1; j <= most; j++) {
        float value = value_of(wait, false, j, &us) - rate * us;

        if (value > best) {
            best = value;
            passes = j;
        }
    }
    return passes;
}
