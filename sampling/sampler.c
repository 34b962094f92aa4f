/* The state of a sequence: see sampler.h. */
#include "sampling/sampler.h"

#include <string.h>

#include "base/check.h"
#include "base/sized.h"
#include "sampling/sampler_state.h"

/* The samplers that act; what the order leaves out is switched off. */
static void take_order(struct rn_sampler *s)
{
    struct rn_chain_order order,
        in_plain = {{RN_SAMPLER_temperature, RN_SAMPLER_top_k, RN_SAMPLER_top_p, RN_SAMPLER_min_p}, 4};
    const uint8_t *kinds = s->active.kinds;
    uint32_t i, at = 0;
    bool on[RN_SAMPLERS] = {false};

    rn_chain_order_read(s->samplers.order, &order, NULL); /* it was checked */
    rn_chain_order_active(&order, &s->params, &s->samplers, &s->active);
    s->samplers.order = NULL;
    for (i = 0; i < s->active.n; i++)
        on[kinds[i]] = true;
    s->penalties = on[RN_SAMPLER_penalties];
    s->dry_on = on[RN_SAMPLER_dry];
    if (!s->penalties) {
        s->params.repetition_penalty = 1;
        s->params.frequency_penalty = s->params.presence_penalty = 0;
    }
    s->params.temperature = on[RN_SAMPLER_temperature] ? s->params.temperature : 1;
    s->params.top_k = on[RN_SAMPLER_top_k] ? s->params.top_k : 0;
    s->params.top_p = on[RN_SAMPLER_top_p] ? s->params.top_p : 1;
    s->params.min_p = on[RN_SAMPLER_min_p] ? s->params.min_p : 0;
    for (i = 0; i < s->active.n && (kinds[i] == RN_SAMPLER_penalties || kinds[i] == RN_SAMPLER_dry); i++)
        s->n_first++;
    for (; i < s->active.n; i++, at++)
        while (at < in_plain.n && in_plain.kinds[at] != kinds[i])
            at++;
    s->is_plain = at <= in_plain.n && s->samplers.temperature_range == 0 && s->samplers.logprobs_after == 0;
}

static bool take_biases(struct rn_sampler *s, const runnel_sampling *params)
{
    runnel_logit_bias *biases;

    if (params->n_biases == 0)
        return true;
    biases = rn_alloc(s->heap, params->n_biases, sizeof *biases);
    if (biases == NULL)
        return false;
    memcpy(biases, params->biases, params->n_biases * sizeof *biases);
    s->params.biases = biases;
    return true;
}

struct rn_sampler *rn_sampler_new(struct rn_heap *heap, const runnel_sampling *params, uint32_t n_vocab,
                                  uint32_t max_tokens)
{
    struct rn_sampler *s = rn_calloc(heap, 1, sizeof *s);

    if (s == NULL)
        return NULL;
    s->heap = heap;
    s->params = *params;
    s->params.biases = NULL;
    s->n_vocab = n_vocab;
    runnel_samplers_default(&s->samplers);
    if (params->samplers != NULL)
        rn_sized_read(&s->samplers, sizeof s->samplers, params->samplers);
    s->params.samplers = &s->samplers;
    take_order(s);
    s->state = rn_chain_begin(&s->samplers);
    if (!take_biases(s, params) ||
        (s->penalties && !rn_counts_init(&s->counts, heap, n_vocab, max_tokens, params->penalty_tokens)) ||
        (s->dry_on && !rn_dry_init(&s->dry, heap, &s->samplers, max_tokens > 0 ? max_tokens : 1))) {
        rn_sampler_free(s);
        return NULL;
    }
    s->samplers.dry_breakers = NULL; /* the caller's; dry has a copy */
    s->samplers.n_dry_breakers = 0;
    return s;
}

void rn_sampler_free(struct rn_sampler *s)
{
    if (s == NULL)
        return;
    rn_free(s->heap, s->ends);
    rn_dry_fini(&s->dry, s->heap);
    rn_counts_fini(&s->counts, s->heap);
    rn_free(s->heap, (void *)s->params.biases);
    rn_free(s->heap, s);
}

void rn_sampler_use_vocab(struct rn_sampler *s, const struct rn_vocab *vocab)
{
    s->dry.vocab = vocab;
}

bool rn_sampler_keep_from_ending(struct rn_sampler *s, const int32_t *tokens, uint32_t n_never, uint32_t n_tokens,
                                 uint64_t until)
{
    if (n_tokens == 0)
        return true;
    s->ends = rn_alloc(s->heap, n_tokens, sizeof *s->ends);
    if (s->ends == NULL)
        return false;
    memcpy(s->ends, tokens, n_tokens * sizeof *s->ends);
    s->n_never = n_never;
    s->n_ends = n_tokens;
    s->ends_from = until;
    return true;
}

static void tell(struct rn_sampler *s, int32_t token, bool of_answer)
{
    RN_CHECK(token >= 0 && (uint32_t)token < s->n_vocab);
    if (s->penalties && (of_answer || s->samplers.penalty_scope != RUNNEL_PENALTY_ANSWER))
        rn_counts_add(&s->counts, token);
    if (s->dry_on)
        rn_dry_add(&s->dry, token);
}

void rn_sampler_begin_answer(struct rn_sampler *s)
{
    s->in_answer = true;
}

void rn_sampler_accept(struct rn_sampler *s, int32_t token)
{
    tell(s, token, s->in_answer);
    s->n_answered += s->in_answer;
}

void rn_sampler_take(struct rn_sampler *s, const struct rn_pick *pick)
{
    rn_sampler_accept(s, pick->token);
    if (rn_sampler_is_stateful(s))
        s->state = pick->state;
}

void rn_sampler_restart(struct rn_sampler *s, const int32_t *tokens, uint32_t n_head, uint32_t n_tokens)
{
    uint64_t n_answer = s->n_answered < n_tokens - n_head ? s->n_answered : n_tokens - n_head;

    RN_ASSERT(n_head <= n_tokens);
    if (s->penalties)
        rn_counts_clear(&s->counts);
    if (s->dry_on)
        rn_dry_clear(&s->dry);
    for (uint32_t i = 0; i < n_tokens; i++)
        tell(s, tokens[i], i >= n_tokens - n_answer);
}

const runnel_sampling *rn_sampler_params(const struct rn_sampler *s)
{
    return &s->params;
}

bool rn_sampler_reads_past(const struct rn_sampler *s)
{
    return s->penalties || !s->is_plain || s->dry_on || s->n_ends > 0;
}

bool rn_sampler_can_draft(const struct rn_sampler *s)
{
    return !rn_sampler_is_stateful(s) && s->samplers.choose == NULL;
}

bool rn_sampler_asks_host(const struct rn_sampler *s)
{
    return s->samplers.choose != NULL;
}

void rn_sampler_lend_choice(struct rn_sampler *s, struct rn_choice *choice)
{
    s->choice = choice;
}

runnel_sampling rn_sampler_plain(const struct rn_sampler *s)
{
    runnel_sampling params = s->params;

    params.biases = NULL;
    params.n_biases = 0;
    params.repetition_penalty = 1;
    params.frequency_penalty = params.presence_penalty = 0;
    params.samplers = NULL;
    return params;
}
