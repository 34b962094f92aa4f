/* Draws that the host makes: see choice.h. */
#include "sampling/choice.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "base/sized.h"
#include "sampling/sampler_state.h"

/* ---- Life ---- */

/* A top-k in front bounds the list. */
static uint32_t most_of(const struct rn_sampler *s, uint32_t host_at)
{
    uint32_t most = s->n_vocab;

    for (uint32_t i = 0; i < host_at; i++)
        if (s->active.kinds[i] == RN_SAMPLER_top_k && s->params.top_k < most)
            most = s->params.top_k;
    return most;
}

static bool take_memory(struct rn_choice *choice, bool want_logprobs)
{
    struct rn_heap *heap = choice->heap;
    uint32_t n = choice->most;
    bool weighs = choice->rest.n > 0;

    choice->list.tokens = rn_alloc(heap, n, sizeof *choice->list.tokens);
    choice->list.x = rn_alloc(heap, n, sizeof *choice->list.x);
    choice->left.tokens = rn_alloc(heap, n, sizeof *choice->left.tokens);
    choice->left.x = rn_alloc(heap, n, sizeof *choice->left.x);
    choice->logits = rn_alloc(heap, n, sizeof *choice->logits);
    choice->sequence = rn_alloc(heap, choice->max_tokens, sizeof *choice->sequence);
    if (weighs)
        choice->left.keys = rn_alloc(heap, n, sizeof *choice->left.keys);
    if (weighs)
        choice->left.weights = rn_alloc(heap, n, sizeof *choice->left.weights);
    if (want_logprobs)
        choice->logprobs = rn_alloc(heap, n, sizeof *choice->logprobs);
    return choice->list.tokens != NULL && choice->list.x != NULL && choice->left.tokens != NULL &&
           choice->left.x != NULL && choice->logits != NULL && choice->sequence != NULL &&
           (!weighs || (choice->left.keys != NULL && choice->left.weights != NULL)) &&
           (!want_logprobs || choice->logprobs != NULL);
}

struct rn_choice *rn_choice_new(struct rn_heap *heap, const struct rn_sampler *s, uint32_t max_tokens,
                                bool want_logprobs)
{
    struct rn_choice *choice = rn_calloc(heap, 1, sizeof *choice);
    uint32_t at = 0;

    if (choice == NULL)
        return NULL;
    while (at < s->active.n && s->active.kinds[at] != RN_SAMPLER_host)
        at++;
    RN_CHECK(at < s->active.n && max_tokens > 0);
    choice->heap = heap;
    choice->choose = s->samplers.choose;
    choice->user = s->samplers.choose_user;
    choice->params = s->params;
    choice->params.biases = NULL;
    choice->params.n_biases = 0;
    choice->samplers = s->samplers;
    choice->params.samplers = &choice->samplers;
    choice->rest.n = s->active.n - at - 1;
    memcpy(choice->rest.kinds, s->active.kinds + at + 1, choice->rest.n);
    choice->most = most_of(s, at);
    choice->max_tokens = max_tokens;
    if (!take_memory(choice, want_logprobs)) {
        rn_choice_free(choice);
        return NULL;
    }
    return choice;
}

void rn_choice_free(struct rn_choice *choice)
{
    if (choice == NULL)
        return;
    rn_free(choice->heap, choice->list.tokens);
    rn_free(choice->heap, choice->list.x);
    rn_free(choice->heap, choice->left.tokens);
    rn_free(choice->heap, choice->left.x);
    rn_free(choice->heap, choice->left.keys);
    rn_free(choice->heap, choice->left.weights);
    rn_free(choice->heap, choice->logits);
    rn_free(choice->heap, choice->logprobs);
    rn_free(choice->heap, choice->sequence);
    rn_free(choice->heap, choice);
}

/* ---- The engine's side ---- */

/* As the host sees it: finite. */
static float logit_of(double x)
{
    return (float)fmin(fmax(x, -(double)FLT_MAX), (double)FLT_MAX);
}

void rn_choice_put(struct rn_choice *choice, const struct rn_candidates *list, uint64_t position)
{
    RN_CHECK(list->n > 0 && list->n <= choice->most);
    memcpy(choice->list.tokens, list->tokens, list->n * sizeof list->tokens[0]);
    memcpy(choice->list.x, list->x, list->n * sizeof list->x[0]);
    for (uint32_t i = 0; i < list->n; i++)
        choice->logits[i] = logit_of(list->x[i]);
    choice->list.loops = list->loops;
    choice->list.n = list->n;
    choice->list.n_vocab = list->n_vocab;
    choice->list.best = list->best;
    choice->position = position;
    choice->n_top = 0;
}

void rn_choice_take_top(struct rn_choice *choice, const struct rn_pick *pick)
{
    choice->n_top = pick->n_top;
    memcpy(choice->top, pick->top, pick->n_top * sizeof pick->top[0]);
}

void rn_choice_tell(struct rn_choice *choice, const int32_t *tokens, uint32_t n, uint64_t n_dropped)
{
    uint32_t known = choice->n_dropped == n_dropped && choice->n_sequence <= n ? choice->n_sequence : 0;

    RN_CHECK(n <= choice->max_tokens);
    if (n > known)
        memcpy(choice->sequence + known, tokens + known, (n - known) * sizeof tokens[0]);
    choice->n_sequence = n;
    choice->n_dropped = n_dropped;
}

bool rn_choice_take(const struct rn_choice *choice, uint32_t place, struct rn_pick *pick)
{
    if (place >= choice->list.n)
        return false;
    pick->token = choice->list.tokens[place];
    pick->logprob = choice->logprobs != NULL ? choice->logprobs[place] : 0;
    pick->n_top = choice->n_top;
    memcpy(pick->top, choice->top, choice->n_top * sizeof choice->top[0]);
    return true;
}

/* ---- The host's side ---- */

runnel_candidates *rn_choice_ask(struct rn_choice *choice, uint64_t stream)
{
    choice->shown = (runnel_candidates){.struct_size = sizeof choice->shown,
                                        .stream = stream,
                                        .position = choice->position,
                                        .sequence = choice->sequence,
                                        .n_sequence = choice->n_sequence,
                                        .tokens = choice->list.tokens,
                                        .logits = choice->logits,
                                        .n = choice->list.n,
                                        .draw = choice};
    return &choice->shown;
}

/* What the host has left; false: nothing, or no numbers. */
static bool read_logits(struct rn_choice *choice)
{
    struct rn_candidates *left = &choice->left;

    left->loops = choice->list.loops;
    left->n_vocab = choice->list.n_vocab;
    left->n = 0;
    for (uint32_t i = 0; i < choice->list.n; i++) {
        float logit = choice->logits[i];
        double x = logit == logit_of(choice->list.x[i]) ? choice->list.x[i] : (double)logit;

        if (isnan(logit) || logit == INFINITY)
            return false;
        if (logit == -INFINITY)
            continue;
        left->best = left->n == 0 || x > left->best ? x : left->best;
        left->tokens[left->n] = choice->list.tokens[i];
        left->x[left->n++] = x;
    }
    return left->n > 0;
}

/* Tokens are in ascending order. */
static uint32_t place_of(const struct rn_candidates *list, int32_t token)
{
    uint32_t low = 0, high = list->n;

    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;

        if (list->tokens[middle] <= token)
            low = middle;
        else
            high = middle;
    }
    RN_CHECK(list->tokens[low] == token);
    return low;
}

uint32_t rn_choice_draw(struct rn_choice *choice)
{
    struct rn_chain_draw draw = {&choice->params, &choice->samplers, choice->position, {0, 0}};
    struct rn_chain_state after;
    uint32_t place;

    if (!read_logits(choice))
        return RN_CHOICE_NOTHING;
    for (uint32_t i = 0; i < choice->rest.n; i++)
        rn_chain_apply((enum rn_sampler_kind)choice->rest.kinds[i], &draw, &choice->left);
    place = rn_chain_toss(RN_SAMPLERS, &draw, &choice->left, &after);
    return place_of(&choice->list, choice->left.tokens[place]);
}

int64_t runnel_candidates_draw(const runnel_candidates *candidates)
{
    uint32_t place;

    if (candidates == NULL || candidates->draw == NULL)
        return -1;
    place = rn_choice_draw((struct rn_choice *)(uintptr_t)candidates->draw);
    return place == RN_CHOICE_NOTHING ? -1 : (int64_t)place;
}
