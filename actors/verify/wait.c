/* The verifier: is a step held back for guesses? See verifier_actor.h. */
#include "actors/context.h"
#include "actors/verifier_actor.h"
#include "base/check.h"

#define TRIAL 2u              /* guesses that a stream waits for when it tries again */
#define TRIAL_ACCEPTANCE 0.9f /* what it would have to find */
#define PATIENCE 4u           /* so many times what a wait should take ... */
#define MAX_WAIT_US 2000u     /* ... and this are waited at most */

/* Has its own proposer something for it? */
static bool has_own_drafts(const struct rn_verifier_stream *stream)
{
    int32_t draft;

    return stream->proposer != NULL && stream->own.rest == 0 &&
           stream->proposer->ops->propose(stream->proposer, stream->tokens, stream->n_tokens, 1, &draft) > 0;
}

/* Could it wait: it is with the drafter, which is through with its past, and does not rest? */
static bool can_wait(const struct rn_verifier *verifier, const struct rn_verifier_stream *stream)
{
    return stream->begun && stream->state == RN_DRAFTS_READY && stream->model.rest == 0 &&
           rn_verifier_room(verifier, stream) > 0;
}

/* A wait stream for each stream that may wait; how many. */
static uint32_t look_at_all(struct rn_verifier *verifier)
{
    uint32_t n = 0;

    verifier->affordable = 0;
    for (uint32_t i = 0; i < verifier->n_next; i++) {
        const struct rn_verifier_stream *stream = rn_verifier_stream_of(verifier, &verifier->next[i]);
        struct rn_wait_stream *wait_stream = &verifier->wait_streams[n];

        if (stream == NULL || verifier->next[i].prompt || !can_wait(verifier, stream) || has_own_drafts(stream))
            continue;
        verifier->affordable += stream->model.budget;
        *wait_stream = (struct rn_wait_stream){.acceptance = stream->model.acceptance,
                                               .n = rn_verifier_guesses(stream).n,
                                               .most = rn_verifier_room(verifier, stream)};
        if (stream->model.trial) {
            wait_stream->acceptance = TRIAL_ACCEPTANCE;
            wait_stream->most = wait_stream->most < TRIAL ? wait_stream->most : TRIAL;
        }
        n++;
    }
    return n;
}

/* Steps grow by a few rows at a time: each stream has its share of them. */
static void bound_rows(struct rn_verifier *verifier, uint32_t n, uint32_t n_rows)
{
    uint32_t reach = rn_step_cost_reach(&verifier->cost), more = reach > n_rows ? reach - n_rows : 0;

    RN_ASSERT(n > 0 && n <= n_rows);
    for (uint32_t i = 0; i < n; i++) {
        struct rn_wait_stream *wait_stream = &verifier->wait_streams[i];
        uint32_t share = more / n + (i < more % n);

        wait_stream->most = wait_stream->most < share ? wait_stream->most : share;
    }
}

/* Passes for which the streams have the budget: a step of t tokens that takes so much longer costs t times that
 * share. */
static uint32_t affordable(const struct rn_verifier *verifier, uint32_t n_rows)
{
    float price = (float)n_rows * (float)verifier->pass_us / rn_step_cost_of(&verifier->cost, n_rows);

    return verifier->affordable > price ? (uint32_t)(verifier->affordable / price) : 0;
}

void rn_verifier_pay_wait(struct rn_verifier *verifier)
{
    uint64_t us = rn_now_us(verifier->context->clock) - verifier->asked_us, read_us, most;
    float price;

    if (!verifier->unpaid)
        return;
    RN_ASSERT(verifier->n_waiting > 0 && verifier->n_waiting <= verifier->n_rows && verifier->passes > 0);
    read_us = (uint64_t)(verifier->drafter->row_us * (float)(RN_DRAFT_MAX_LAG * verifier->n_waiting));
    most = (uint64_t)2 * verifier->passes * verifier->pass_us + read_us; /* beyond it was held up */
    price =
        (float)verifier->n_rows * (float)(us < most ? us : most) / rn_step_cost_of(&verifier->cost, verifier->n_rows);
    verifier->unpaid = false;
    for (uint32_t i = 0; i < verifier->n_begun; i++)
        if (verifier->streams[verifier->begun[i]].waited)
            verifier->streams[verifier->begun[i]].model.budget -= price / (float)verifier->n_waiting;
}

runnel_rest rn_verifier_wait_reason(const struct rn_verifier *verifier)
{
    return (float)verifier->pass_us < rn_step_cost_of(&verifier->cost, 1) ? RUNNEL_REST_WRONG : RUNNEL_REST_SLOW;
}

/* Those that could wait, and for which waiting does not pay: a drafter that only works while it is waited for has
 * nothing for them. They try again later. */
static void let_rest(struct rn_verifier *verifier)
{
    for (uint32_t i = 0; i < verifier->n_next; i++) {
        struct rn_verifier_stream *stream = rn_verifier_stream_of(verifier, &verifier->next[i]);

        if (stream != NULL && !verifier->next[i].prompt && can_wait(verifier, stream) &&
            rn_verifier_guesses(stream).n == 0)
            rn_speculation_rest(&stream->model, rn_verifier_wait_reason(verifier));
    }
}

static void ask(struct rn_verifier *verifier, uint32_t passes)
{
    for (uint32_t i = 0; i < verifier->n_next; i++) {
        struct rn_verifier_stream *stream = rn_verifier_stream_of(verifier, &verifier->next[i]);
        uint32_t most, want;

        if (stream == NULL || verifier->next[i].prompt || !stream->begun || stream->model.rest > 0)
            continue;
        most = rn_verifier_room(verifier, stream);
        want = rn_verifier_guesses(stream).n + passes;
        stream->want = want < most ? want : most;
        stream->n_flying = stream->leaves = 0;
        stream->flying = false;
        stream->changed = stream->waits = stream->waited = true;
    }
    RN_ASSERT(!verifier->must_tell && !verifier->unpaid); /* one wait at a time */
    verifier->serial++;
    verifier->must_tell = true;
    verifier->asked_us = rn_now_us(verifier->context->clock);
    verifier->unpaid = true;
    verifier->max_wait_us = MAX_WAIT_US + PATIENCE * passes * verifier->pass_us;
}

bool rn_verifier_holds(struct rn_verifier *verifier)
{
    uint32_t n, n_plain, passes;
    struct rn_wait wait;

    if (verifier->drafter == NULL || verifier->n_begun == 0 || verifier->failed || verifier->n_prompts > 0 ||
        verifier->pass_us == 0)
        return false;
    n = look_at_all(verifier);
    if (n == 0)
        return false;
    RN_ASSERT(n <= verifier->n_running && verifier->n_running <= verifier->context->max_streams);
    n_plain = verifier->n_running - n;
    wait = (struct rn_wait){.streams = verifier->wait_streams,
                            .n_streams = n,
                            .n_plain = n_plain,
                            .cost = &verifier->cost,
                            .pass_us = verifier->pass_us,
                            .beside = verifier->drafter->concurrent};
    wait.most_passes = affordable(verifier, n + n_plain);
    bound_rows(verifier, n, n + n_plain);
    passes = rn_wait_passes(&wait);
    if (passes == 0) {
        /* it may pay when there is a budget, or the others come in: until then those are awake, not at rest */
        wait.n_plain = 0;
        if (!wait.beside && wait.most_passes > 0 && rn_wait_passes(&wait) == 0)
            let_rest(verifier);
        return false;
    }
    verifier->n_rows = n + n_plain;
    verifier->n_waiting = n;
    verifier->passes = passes;
    ask(verifier, passes);
    return true;
}
