/* The verifier: what each stream of the next step drafts. See verifier_actor.h. */
#include <string.h>

#include "actors/context.h"
#include "actors/decode/states.h"
#include "actors/verifier_actor.h"
#include "base/check.h"
#include "model/chunk.h"

#define LEAD 4u /* steps of a rest, the last ones, whose features are wanted: a head needs little of the past */

/* ---- Guesses ---- */

/* What is left of the line behind the stream's tokens. */
static struct rn_guesses rest_of(const struct rn_guess_line *line, const struct rn_verifier_stream *stream)
{
    struct rn_guesses none = {0};
    uint32_t n;

    if (line->first > stream->n_tokens || line->first + line->n <= stream->n_tokens)
        return none;
    n = stream->n_tokens - line->first;
    if (n > 0 && memcmp(line->guesses, stream->tokens + line->first, n * sizeof line->guesses[0]) != 0)
        return none;
    return (struct rn_guesses){line->n - n, line->guesses + n, line->seconds + n};
}

struct rn_guesses rn_verifier_guesses(const struct rn_verifier_stream *stream)
{
    struct rn_guesses guesses = {0};

    if (!stream->begun)
        return guesses;
    for (uint32_t i = 0; i < RN_GUESS_LINES && guesses.n == 0; i++)
        guesses = rest_of(&stream->lines[i], stream);
    return guesses;
}

/* ---- One stream ---- */

/* Where old positions become means the row that ends a chunk stores one, for which there must be room: no draft
 * does. */
static uint32_t chunk_room(const struct rn_backend_limits *limits, const struct rn_verifier_stream *stream)
{
    return limits->mean_window == 0 ? UINT32_MAX : RN_CHUNK - 1 - stream->n_tokens % RN_CHUNK;
}

uint32_t rn_verifier_room(const struct rn_verifier *verifier, const struct rn_verifier_stream *stream)
{
    uint32_t tokens = stream->n_limit - stream->n_tokens - 1;
    uint32_t chunk = chunk_room(verifier->context->limits, stream);
    uint32_t room = stream->draft_max < tokens ? stream->draft_max : tokens;

    RN_ASSERT(stream->n_tokens < stream->n_limit && stream->draft_max <= RN_DRAFT_MOST);
    if (stream->n_behind > RN_MOST_BEHIND)
        return 0;
    room = room < chunk ? room : chunk;
    return room < verifier->n_spare ? room : verifier->n_spare;
}

static bool is_token(const struct rn_verifier *verifier, int32_t token)
{
    return token >= 0 && (uint32_t)token < verifier->context->n_vocab;
}

/* Could it be a row? One that is the guess itself would be drawn twice. */
static bool is_second(const struct rn_verifier *verifier, const struct rn_guesses *guesses, uint32_t i)
{
    const struct rn_runner_up *second = &guesses->seconds[i];

    return is_token(verifier, second->token) && second->token != guesses->tokens[i] && second->share > 0 &&
           second->share <= 1;
}

static void put_chain(const struct rn_verifier *verifier, struct rn_proposal *p, const int32_t *tokens, uint32_t n)
{
    RN_CHECK(n <= RN_DRAFT_MOST);
    for (p->n = 0; p->n < n && is_token(verifier, tokens[p->n]); p->n++) {
        p->tokens[p->n] = tokens[p->n];
        p->seconds[p->n] = (struct rn_runner_up){.token = -1};
    }
}

/* That the next step has so far. */
static uint32_t rows_before(const struct rn_verifier *verifier)
{
    return verifier->n_running + verifier->n_behind + verifier->n_drafts;
}

/* What the grammar leaves no choice of: the text is certain, its tokens are not. */
static void propose_forced(const struct rn_verifier *verifier, struct rn_verifier_stream *stream, uint32_t room,
                           struct rn_proposal *p)
{
    uint32_t most;

    if (stream->n_forced == 0)
        return;
    most =
        rn_speculation_length(&stream->by_grammar, &verifier->cost, rows_before(verifier), verifier->n_running, room);
    put_chain(verifier, p, stream->forced, stream->n_forced < most ? stream->n_forced : most);
    p->by_grammar = p->n > 0;
}

/* From the text itself. */
static void propose_own(const struct rn_verifier *verifier, struct rn_verifier_stream *stream, uint32_t room,
                        struct rn_proposal *p)
{
    int32_t drafts[RN_DRAFT_MOST];
    uint32_t most, n;

    if (stream->proposer == NULL)
        return;
    most = rn_speculation_length(&stream->own, &verifier->cost, rows_before(verifier), verifier->n_running, room);
    if (most == 0)
        return;
    RN_CHECK(most <= RN_DRAFT_MOST);
    n = stream->proposer->ops->propose(stream->proposer, stream->tokens, stream->n_tokens, most, drafts);
    put_chain(verifier, p, drafts, n < most ? n : most);
}

/* Beside a prompt's chunk a row costs all of its time: no leaf is worth that. */
static bool can_branch(const struct rn_verifier *verifier, const struct rn_verifier_stream *stream)
{
    return verifier->context->limits->tree_depth >= RN_DRAFT_MOST && verifier->n_prompts == 0 && !stream->draft_chain;
}

/* While it rests the steps are counted, whether there are guesses or not. */
static void propose_guesses(struct rn_verifier *verifier, struct rn_verifier_stream *stream, uint32_t room,
                            struct rn_proposal *p)
{
    struct rn_guesses guesses = rn_verifier_guesses(stream);
    bool branches = can_branch(verifier, stream);
    float shares[RN_DRAFT_MOST];
    struct rn_shape shape;
    uint32_t n = guesses.n < room ? guesses.n : room;

    if (!stream->draft_model)
        return;
    for (uint32_t i = 0; i < n; i++)
        shares[i] = is_second(verifier, &guesses, i) ? guesses.seconds[i].share : 0;
    shape = rn_speculation_shape(&stream->model, &verifier->cost, rows_before(verifier), verifier->n_running,
                                 stream->model.rest > 0 ? room : n, branches ? room : n, branches ? shares : NULL);
    RN_ASSERT(shape.n_chain <= n && shape.branches >> shape.n_chain == 0);
    rn_speculation_use_reserve(&stream->model, &verifier->reserve);
    p->by_model = shape.n_chain > 0;
    put_chain(verifier, p, guesses.tokens, shape.n_chain);
    for (uint32_t i = 0; i < p->n; i++) {
        if (!is_second(verifier, &guesses, i))
            continue;
        p->seconds[i] = guesses.seconds[i];
        p->branches |= shape.branches & 1u << i;
    }
}

/* It will not draft for a while: it rests, or its budget does not pay for a pass that the step waits for. */
static bool is_idle_now(const struct rn_verifier *verifier, const struct rn_verifier_stream *stream)
{
    float step_us = rn_step_cost_of(&verifier->cost, verifier->n_running);

    if (stream->model.rest > 0)
        return stream->model.rest > LEAD;
    return !verifier->drafter->concurrent && step_us > 0 && stream->model.budget * step_us < (float)verifier->pass_us;
}

/* Why nobody drafts for the stream now; NONE: somebody may, and has nothing for it. */
static runnel_rest why_at_rest(const struct rn_verifier *verifier, const struct rn_verifier_stream *stream)
{
    if (!stream->draft_model || verifier->drafter == NULL)
        return stream->own.rest > 0 ? stream->own.reason : RUNNEL_REST_NONE;
    if (verifier->failed)
        return RUNNEL_REST_BROKEN;
    if (stream->begun ? stream->state == RN_DRAFTS_OFF : verifier->n_begun == verifier->drafter->limits.max_seqs)
        return RUNNEL_REST_MEMORY;
    if (stream->model.rest > 0)
        return stream->model.reason;
    return is_idle_now(verifier, stream) ? rn_verifier_wait_reason(verifier) : RUNNEL_REST_NONE;
}

/* Whoever costs nothing comes first. */
static void propose(struct rn_verifier *verifier, const struct rn_verified *verified, struct rn_verifier_stream *stream,
                    struct rn_proposal *p)
{
    uint32_t room = rn_verifier_room(verifier, stream), n;
    runnel_rest rest = why_at_rest(verifier, stream); /* its last pass ends it */

    p->slot = verified->slot;
    p->generation = verified->generation;
    p->first = stream->n_tokens;
    p->n = p->branches = 0;
    p->by_model = p->by_grammar = false;
    p->features = rn_verifier_reads_features(verifier) && stream->begun && !is_idle_now(verifier, stream);
    if (room == 0)
        return;
    propose_forced(verifier, stream, room, p);
    if (p->n == 0)
        propose_own(verifier, stream, room, p);
    if (p->n == 0)
        propose_guesses(verifier, stream, room, p);
    n = p->n + (uint32_t)__builtin_popcount(p->branches);
    RN_ASSERT(n <= verifier->n_spare && p->branches >> p->n == 0);
    verifier->n_drafts += n;
    verifier->n_spare -= n;
    if (n == 0)
        stream->rested[rest != RUNNEL_REST_NONE ? rest : why_at_rest(verifier, stream)]++;
}

/* What the draft actor is to know of the stream while the next step runs. */
static void plan_stream(struct rn_verifier *verifier, const struct rn_verified *verified,
                        struct rn_verifier_stream *stream, const struct rn_proposal *p)
{
    RN_ASSERT(stream->here && stream->generation == verified->generation);
    if (!stream->begun) {
        if (!verified->prompt)
            rn_verifier_begin_drafts(verifier, verified->slot);
        return;
    }
    stream->flying = !verified->prompt;
    stream->n_flying = p != NULL ? p->n : 0;
    stream->leaves = p != NULL ? p->branches : 0;
    stream->want = stream->model.rest > 0 ? 0 : stream->draft_max;
    stream->waits = stream->waited = false;
    rn_verifier_pay_reading(verifier, stream);
    /* one that takes turns needs to know nothing while nobody waits, once it is through with the past */
    stream->changed |= verifier->drafter->concurrent || stream->state != RN_DRAFTS_READY || verifier->pass_us == 0;
}

/* ---- All of them ---- */

static uint64_t expected_end_us(const struct rn_verifier *verifier)
{
    uint32_t n_rows = rows_before(verifier) + verifier->n_prompt_rows;
    float takes_us = n_rows > 0 ? rn_step_cost_of(&verifier->cost, n_rows) : 0;

    return takes_us > 0 ? rn_now_us(verifier->context->clock) + (uint64_t)takes_us : 0;
}

void rn_verifier_choose(struct rn_verifier *verifier, struct rn_proposal_list *list)
{
    uint32_t at = 0;

    RN_ASSERT(list->n == 0 && verifier->n_drafts == 0);
    list->guided = false;
    for (uint32_t i = 0; i < verifier->n_next; i++) {
        struct rn_verifier_stream *stream = rn_verifier_stream_of(verifier, &verifier->next[i]);

        if (stream == NULL || verifier->next[i].prompt)
            continue;
        propose(verifier, &verifier->next[i], stream, &list->items[list->n]);
        list->guided |= stream->guided && list->items[list->n].n > 0 && !list->items[list->n].by_grammar;
        list->n++;
    }
    rn_verifier_pay_wait(verifier);
    for (uint32_t i = 0; i < verifier->n_next; i++) {
        struct rn_verifier_stream *stream = rn_verifier_stream_of(verifier, &verifier->next[i]);
        bool proposed = stream != NULL && !verifier->next[i].prompt;

        if (stream != NULL)
            plan_stream(verifier, &verifier->next[i], stream, proposed ? &list->items[at] : NULL);
        at += proposed;
    }
    RN_ASSERT(at == list->n && list->n <= verifier->n_next);
    verifier->ends_us = expected_end_us(verifier);
}
