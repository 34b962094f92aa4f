/* See reference.h. */
#include "reference.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "base/rng.h"

static const float *sorted_by;

static int better_first(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;

    if (sorted_by[x] != sorted_by[y])
        return sorted_by[x] > sorted_by[y] ? -1 : 1;
    return x < y ? -1 : 1;
}

static void sort_tokens(int32_t *tokens, const float *logits, uint32_t n_vocab)
{
    for (uint32_t i = 0; i < n_vocab; i++)
        tokens[i] = (int32_t)i;
    sorted_by = logits;
    qsort(tokens, n_vocab, sizeof *tokens, better_first);
}

static float clamped(long double x)
{
    if (isinf(x))
        return (float)x;
    return (float)fminl(fmaxl(x, -(long double)FLT_MAX), (long double)FLT_MAX);
}

/* Biases and penalties, token by token: a pass over the history for each. */
static void adjust(float *a, const runnel_sampling *p, uint32_t n_vocab, const int32_t *history, uint32_t n_history)
{
    uint32_t first = p->penalty_tokens > 0 && p->penalty_tokens < n_history ? n_history - p->penalty_tokens : 0;

    for (size_t i = 0; i < p->n_biases; i++)
        a[p->biases[i].token] = clamped((long double)a[p->biases[i].token] + (long double)p->biases[i].bias);
    for (uint32_t t = 0; t < n_vocab; t++) {
        double x = (double)a[t];
        uint32_t count = 0;

        for (uint32_t i = first; i < n_history; i++)
            count += history[i] == (int32_t)t;
        if (count == 0 || isinf(a[t]))
            continue;
        if (x > 0)
            x /= (double)p->repetition_penalty;
        else
            x *= (double)p->repetition_penalty;
        x -= (double)p->frequency_penalty * (double)count + (double)p->presence_penalty;
        a[t] = clamped((long double)x);
    }
}

static void raw_logprobs(struct reference *r, const float *logits, uint32_t n_vocab)
{
    static int32_t sorted[REFERENCE_VOCAB];
    long double sum = 0, best = -INFINITY;

    for (uint32_t i = 0; i < n_vocab; i++)
        best = fmaxl(best, (long double)logits[i]);
    for (uint32_t i = 0; i < n_vocab; i++)
        sum += expl((long double)logits[i] - best);
    for (uint32_t i = 0; i < n_vocab; i++)
        r->logprob[i] = (long double)logits[i] - best - logl(sum);
    sort_tokens(sorted, logits, n_vocab);
    r->n_top = 0;
    while (r->n_top < RUNNEL_MAX_TOP_LOGPROBS && r->n_top < n_vocab && !isinf(logits[sorted[r->n_top]])) {
        r->top[r->n_top] = sorted[r->n_top];
        r->n_top++;
    }
}

static void normalise(struct reference *r)
{
    long double sum = 0;

    for (uint32_t i = 0; i < r->n; i++)
        sum += r->p[i];
    for (uint32_t i = 0; i < r->n; i++)
        r->p[i] /= sum;
}

static void filter(struct reference *r, const runnel_sampling *p)
{
    long double sum = 0;
    uint32_t m = 0;

    if (p->top_k > 0 && p->top_k < r->n)
        r->n = p->top_k;
    normalise(r);
    if (p->top_p < 1) {
        while (m < r->n && (m == 0 || sum < (long double)p->top_p))
            sum += r->p[m++];
        r->n = m;
        normalise(r);
    }
    if (p->min_p > 0) {
        for (m = 0; m < r->n && r->p[m] >= (long double)p->min_p * r->p[0]; m++)
            ;
        r->n = m;
        normalise(r);
    }
}

void reference_run(struct reference *r, const runnel_sampling *p, const float *logits, uint32_t n_vocab,
                   const int32_t *history, uint32_t n_history)
{
    static float a[REFERENCE_VOCAB];

    r->numeric = 0;
    for (uint32_t i = 0; i < n_vocab; i++) {
        r->numeric |= isnan(logits[i]) || (isinf(logits[i]) && logits[i] > 0);
        a[i] = logits[i];
    }
    if (r->numeric)
        return;
    adjust(a, p, n_vocab, history, n_history);
    sort_tokens(r->token, a, n_vocab);
    if (isinf(a[r->token[0]])) {
        r->numeric = 1;
        return;
    }
    raw_logprobs(r, logits, n_vocab);
    if (p->temperature == 0) {
        r->n = 1;
        r->p[0] = 1;
        return;
    }
    for (r->n = 0; r->n < n_vocab && !isinf(a[r->token[r->n]]); r->n++)
        r->p[r->n] = expl(((long double)a[r->token[r->n]] - (long double)a[r->token[0]]) / (long double)p->temperature);
    filter(r, p);
}

long double reference_noise(uint64_t seed, uint64_t position, int32_t token)
{
    uint32_t counter[4] = {(uint32_t)position, (uint32_t)(position >> 32), (uint32_t)token / 4, 1};
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)}, words[4];

    rn_philox4x32(counter, key, words);
    return -logl(-log1pl(-((long double)words[token % 4] + 0.5L) / 4294967296.0L));
}

int32_t reference_draw(const struct reference *r, uint64_t seed, uint64_t position, long double *margin)
{
    long double best = -INFINITY;
    int32_t token = -1;

    *margin = INFINITY;
    for (uint32_t i = 0; i < r->n; i++) {
        long double score = logl(r->p[i]) + reference_noise(seed, position, r->token[i]);

        *margin = fminl(*margin, fabsl(score - best));
        if (token < 0 || score > best) {
            *margin = score - best;
            token = r->token[i];
            best = score;
        }
    }
    return token;
}

runnel_sampling reference_plain(void)
{
    return (runnel_sampling){.temperature = 1, .top_p = 1, .repetition_penalty = 1};
}
