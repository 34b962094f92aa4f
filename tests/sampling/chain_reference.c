/* See chain_reference.h. */
#include "chain_reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "reference.h"

static const long double *sorted_by;

static int descending(const void *a, const void *b)
{
    uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;

    if (sorted_by[i] != sorted_by[j])
        return sorted_by[i] > sorted_by[j] ? -1 : 1;
    return i < j ? -1 : 1;
}

static void ranking(uint32_t *places, const long double *by, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        places[i] = i;
    sorted_by = by;
    qsort(places, n, sizeof *places, descending);
}

static void normalise(struct chain_reference *r)
{
    long double best = -INFINITY, sum = 0;

    for (uint32_t i = 0; i < r->n; i++)
        best = fmaxl(best, r->x[i]);
    for (uint32_t i = 0; i < r->n; i++)
        sum += r->p[i] = expl(r->x[i] - best);
    for (uint32_t i = 0; i < r->n; i++)
        r->p[i] /= sum;
}

/* Keeps those that are marked. */
static void keep(struct chain_reference *r, const char *marks)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < r->n; i++)
        if (marks[i]) {
            r->token[n] = r->token[i];
            r->x[n++] = r->x[i];
        }
    r->n = n;
    normalise(r);
}

static void near(struct chain_reference *r, long double a, long double b)
{
    r->doubt = fminl(r->doubt, fabsl(a - b));
}

/* The first so many of a ranking; or until their probabilities reach `share`. */
static void keep_first(struct chain_reference *r, const long double *by, uint32_t most, long double share)
{
    static uint32_t places[CHAIN_VOCAB];
    static char marks[CHAIN_VOCAB];
    long double sum = 0;

    ranking(places, by, r->n);
    memset(marks, 0, sizeof marks);
    for (uint32_t i = 0; i < r->n && i < most && (i == 0 || sum < share); i++) {
        marks[places[i]] = 1;
        sum += r->p[places[i]];
        if (share < 1)
            near(r, sum, share);
    }
    keep(r, marks);
}

static void keep_above(struct chain_reference *r, long double least)
{
    static char marks[CHAIN_VOCAB];

    for (uint32_t i = 0; i < r->n; i++) {
        marks[i] = r->x[i] >= least;
        near(r, r->x[i], least);
    }
    keep(r, marks);
}

static long double greatest(const struct chain_reference *r)
{
    long double best = -INFINITY;

    for (uint32_t i = 0; i < r->n; i++)
        best = fmaxl(best, r->x[i]);
    return best;
}

static long double entropy(const struct chain_reference *r)
{
    long double sum = 0;

    for (uint32_t i = 0; i < r->n; i++)
        sum -= r->p[i] > 0 ? r->p[i] * logl(r->p[i]) : 0;
    return sum;
}

/* ---- The samplers ---- */

static void penalties(struct chain_reference *r, const runnel_sampling *p, const int32_t *history, uint32_t n)
{
    uint32_t first = p->penalty_tokens > 0 && p->penalty_tokens < n ? n - p->penalty_tokens : 0;

    for (uint32_t i = 0; i < r->n; i++) {
        uint32_t count = 0;

        for (uint32_t t = first; t < n; t++)
            count += history[t] == r->token[i];
        if (count == 0)
            continue;
        r->x[i] =
            r->x[i] > 0 ? r->x[i] / (long double)p->repetition_penalty : r->x[i] * (long double)p->repetition_penalty;
        r->x[i] -= count * (long double)p->frequency_penalty + (long double)p->presence_penalty;
    }
}

/* No breakers: tokens of the tests have no text. */
static void dry(struct chain_reference *r, const runnel_samplers *s, const int32_t *history, uint32_t n)
{
    uint32_t first = s->dry_tokens > 0 && s->dry_tokens < n ? n - s->dry_tokens : 0;

    for (uint32_t i = 0; i < r->n; i++) {
        uint32_t longest = 0;

        for (uint32_t at = first + 1; at < n; at++) {
            uint32_t length = 0;

            if (history[at] != r->token[i])
                continue;
            while (length < 128 && at >= first + length + 1 && history[at - 1 - length] == history[n - 1 - length])
                length++;
            longest = length > longest ? length : longest;
        }
        if (longest >= s->dry_allowed_length)
            r->x[i] -= (long double)s->dry_multiplier *
                       powl((long double)s->dry_base, (long double)(longest - s->dry_allowed_length));
    }
}

static void temperature(struct chain_reference *r, const runnel_sampling *p)
{
    const runnel_samplers *s = p->samplers;
    long double t = (long double)p->temperature, range = (long double)s->temperature_range;

    if (range > 0) {
        long double low = fmaxl(t - range, 0), high = t + range;

        if (r->n == 1)
            return;
        t = low +
            (high - low) * powl(fminl(fmaxl(entropy(r) / logl(r->n), 0), 1), (long double)s->temperature_exponent);
    }
    if (t == 0) {
        keep_first(r, r->x, 1, 2);
        return;
    }
    for (uint32_t i = 0; i < r->n; i++)
        r->x[i] /= t;
}

static void top_n_sigma(struct chain_reference *r, long double n_sigma)
{
    long double mean = 0, squares = 0;

    for (uint32_t i = 0; i < r->n; i++)
        mean += r->x[i] / r->n;
    for (uint32_t i = 0; i < r->n; i++)
        squares += (r->x[i] - mean) * (r->x[i] - mean) / r->n;
    keep_above(r, greatest(r) - n_sigma * sqrtl(squares));
}

static void typical(struct chain_reference *r, long double share)
{
    static long double near_first[CHAIN_VOCAB];
    long double h = entropy(r);

    for (uint32_t i = 0; i < r->n; i++) /* the logarithm of what is nothing is made from x */
        near_first[i] = -fabsl(-(r->p[i] > 0 ? logl(r->p[i]) : -1e9L) - h);
    keep_first(r, near_first, r->n, share);
}

static void xtc(struct chain_reference *r, const runnel_sampling *p, uint64_t position)
{
    uint32_t counter[4] = {(uint32_t)position, (uint32_t)(position >> 32), 0, 2};
    uint32_t key[2] = {(uint32_t)p->seed, (uint32_t)(p->seed >> 32)}, words[4];
    static uint32_t places[CHAIN_VOCAB];
    static char marks[CHAIN_VOCAB];
    uint32_t n = 0;

    rn_philox4x32(counter, key, words);
    if (((long double)words[0] + 0.5L) / 4294967296.0L >= (long double)p->samplers->xtc_probability)
        return;
    ranking(places, r->x, r->n);
    for (; n < r->n && r->p[places[n]] >= (long double)p->samplers->xtc_threshold; n++)
        ;
    for (uint32_t i = 0; i < r->n; i++)
        near(r, r->p[i], (long double)p->samplers->xtc_threshold);
    if (n < 2)
        return;
    memset(marks, 1, sizeof marks);
    for (uint32_t i = 0; i + 1 < n; i++)
        marks[places[i]] = 0;
    keep(r, marks);
}

static void mirostat(struct chain_reference *r, const runnel_samplers *s, uint32_t n_vocab)
{
    static uint32_t places[CHAIN_VOCAB];
    long double products = 0, squares = 0, shape, e, k;

    if (!r->begun)
        r->mu = 2 * (long double)s->mirostat_tau;
    r->begun = 1;
    if (s->mirostat == 2) {
        long double least;
        uint32_t best = 0;

        for (uint32_t i = 0; i < r->n; i++)
            best = r->x[i] > r->x[best] ? i : best;
        least = fminl(r->x[best], r->x[best] - logl(r->p[best]) - r->mu * logl(2));
        keep_above(r, least);
        return;
    }
    ranking(places, r->x, r->n);
    for (uint32_t i = 1; i < r->n && i < 100; i++) {
        long double t = logl((long double)(i + 1) / i), b = r->x[places[i - 1]] - r->x[places[i]];

        products += t * b;
        squares += t * t;
    }
    if (r->n < 2)
        return;
    shape = products / squares;
    e = shape - 1;
    k = powl(e * powl(2, r->mu) / (1 - powl(n_vocab, -e)), 1 / shape);
    near(r, k - floorl(k), 0);
    near(r, k - floorl(k), 1);
    keep_first(r, r->x, k < 1 ? 1 : k >= r->n ? r->n : (uint32_t)k, 2);
}

static void adaptive(struct chain_reference *r, const runnel_samplers *s)
{
    long double target = (long double)s->adaptive_target, left = 1 - (long double)s->adaptive_decay;

    if (!r->begun) {
        r->sum = target / left;
        r->count = 1 / left;
    }
    r->begun = 1;
    target = fminl(fmaxl(2 * target - r->sum / r->count, 0), 1);
    for (uint32_t i = 0; i < r->n; i++) {
        long double d = fabsl(r->p[i] - target) / 0.3L;

        r->original[i] = r->p[i];
        r->x[i] = 5 - 10 * d * d / (1 + d);
    }
}

/* ---- The chain ---- */

static int is(const char *name, size_t n, const char *other)
{
    return strlen(other) == n && memcmp(name, other, n) == 0;
}

static void apply(struct chain_reference *r, const char *name, size_t n, const runnel_sampling *p, uint32_t n_vocab,
                  const int32_t *history, uint32_t n_history, uint64_t position)
{
    const runnel_samplers *s = p->samplers;

    if (is(name, n, "penalties"))
        penalties(r, p, history, n_history);
    else if (is(name, n, "dry") && s->dry_multiplier > 0)
        dry(r, s, history, n_history);
    else if (is(name, n, "temperature"))
        temperature(r, p);
    else if (is(name, n, "top_n_sigma") && s->top_n_sigma > 0)
        top_n_sigma(r, (long double)s->top_n_sigma);
    else if (is(name, n, "top_k") && p->top_k > 0)
        keep_first(r, r->x, p->top_k, 2);
    else if (is(name, n, "typical_p") && s->typical_p < 1)
        typical(r, (long double)s->typical_p);
    else if (is(name, n, "top_p") && p->top_p < 1)
        keep_first(r, r->x, r->n, (long double)p->top_p);
    else if (is(name, n, "min_p") && p->min_p > 0)
        keep_above(r, greatest(r) + logl((long double)p->min_p));
    else if (is(name, n, "xtc") && s->xtc_probability > 0 && s->xtc_threshold <= 0.5f)
        xtc(r, p, position);
    else if (is(name, n, "mirostat") && s->mirostat > 0)
        mirostat(r, s, n_vocab);
    else if (is(name, n, "adaptive_p") && s->adaptive_target >= 0)
        adaptive(r, s);
    normalise(r);
}

void chain_reference_run(struct chain_reference *r, const char *order, const runnel_sampling *params,
                         const float *logits, uint32_t n_vocab, const int32_t *history, uint32_t n_history,
                         uint64_t position)
{
    r->n = 0;
    r->doubt = INFINITY;
    for (uint32_t i = 0; i < n_vocab; i++)
        if (!isinf(logits[i])) {
            r->token[r->n] = (int32_t)i;
            r->x[r->n++] = (long double)logits[i];
        }
    normalise(r);
    for (const char *name = order; *name != '\0'; name += *name == ',') {
        size_t n = strcspn(name, ",");

        apply(r, name, n, params, n_vocab, history, n_history, position);
        name += n;
    }
}

int32_t chain_reference_draw(const struct chain_reference *r, uint64_t seed, uint64_t position, long double *margin)
{
    long double best = -INFINITY;
    int32_t token = -1;

    *margin = INFINITY;
    for (uint32_t i = 0; i < r->n; i++) {
        long double score = r->x[i] + reference_noise(seed, position, r->token[i]);

        *margin = score > best ? score - best : fminl(*margin, best - score);
        if (score > best) {
            best = score;
            token = r->token[i];
        }
    }
    return token;
}

void chain_reference_take(struct chain_reference *r, const runnel_sampling *params, int32_t token)
{
    const runnel_samplers *s = params->samplers;
    uint32_t i = 0;

    while (r->token[i] != token)
        i++;
    if (s->mirostat > 0)
        r->mu -= (long double)s->mirostat_eta * (-log2l(r->p[i]) - (long double)s->mirostat_tau);
    if (s->adaptive_target >= 0) {
        r->sum = r->original[i] + (long double)s->adaptive_decay * r->sum;
        r->count = 1 + (long double)s->adaptive_decay * r->count;
    }
}
