/* Biases, penalties and dry: see adjust.h. */
#include "sampling/adjust.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "base/exact.h"

/* Where the values are: the logits of a vocabulary, or the candidates of a list. */
struct values {
    float *logits; /* NULL: a list */
    struct rn_candidates *list;
};

/* To float; what is finite stays finite, so that a host's parameters cannot make an infinity. */
static float narrow(double value)
{
    if (value == -INFINITY)
        return -INFINITY;
    return value > FLT_MAX ? FLT_MAX : value < -FLT_MAX ? -FLT_MAX : (float)value;
}

/* The token's place in the list, or n. */
static uint32_t place_of(const struct rn_candidates *list, int32_t token)
{
    uint32_t low = 0, high = list->n;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (list->tokens[middle] < token)
            low = middle + 1;
        else
            high = middle;
    }
    return low < list->n && list->tokens[low] == token ? low : list->n;
}

static double penalised(const runnel_sampling *p, double value, uint32_t count)
{
    value = value > 0 ? value / (double)p->repetition_penalty : value * (double)p->repetition_penalty;
    return value - ((double)count * (double)p->frequency_penalty + (double)p->presence_penalty);
}

static void penalise_one(const runnel_sampling *p, const struct values *values, int32_t token, uint32_t count)
{
    uint32_t place;

    if (values->logits != NULL) {
        values->logits[token] = narrow(penalised(p, (double)values->logits[token], count));
        return;
    }
    place = place_of(values->list, token);
    if (place < values->list->n)
        values->list->x[place] = fmin(fmax(penalised(p, values->list->x[place], count), -DBL_MAX / 4), DBL_MAX / 4);
}

static bool is_among(int32_t token, const struct rn_count *changes, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (changes[i].token == token)
            return true;
    return false;
}

/* Those that have a count, with what the path makes of it. Of a path in the prompt nothing is counted where the answer
 * alone counts; there is none. */
static void penalise(const struct rn_sampler *s, struct rn_path path, const struct values *values)
{
    struct rn_count changes[2 * RN_PATH_MOST];
    uint32_t n = rn_counts_behind(&s->counts, path.tokens, path.n, changes);

    for (uint32_t i = 0; i < s->counts.n_entries; i++) {
        const struct rn_count *seen = &s->counts.entries[i];

        if (n == 0 || !is_among(seen->token, changes, n))
            penalise_one(&s->params, values, seen->token, seen->count);
    }
    for (uint32_t i = 0; i < n; i++)
        if (changes[i].count > 0)
            penalise_one(&s->params, values, changes[i].token, changes[i].count);
}

/* base to the power of n, n at most RN_DRY_LONGEST. */
static double power(double base, int32_t n)
{
    double result = 1;

    for (int32_t i = 0; i < n; i++)
        result *= base;
    return result;
}

static void repel(const struct rn_sampler *s, struct rn_path path, struct rn_sampler_scratch *scratch,
                  const struct values *values)
{
    const runnel_samplers *p = &s->samplers;
    int32_t *touched = (int32_t *)(void *)scratch->keys;
    uint32_t n = rn_dry_lengths(&s->dry, path.tokens, path.n, p->dry_allowed_length, scratch->lengths, touched);

    for (uint32_t i = 0; i < n; i++) {
        int32_t token = touched[i], length = scratch->lengths[token] - (int32_t)p->dry_allowed_length;
        double less = (double)p->dry_multiplier * power((double)p->dry_base, length);
        uint32_t place = values->list == NULL ? 0 : place_of(values->list, token);

        scratch->lengths[token] = 0;
        less = fmin(less, FLT_MAX);
        if (values->logits != NULL)
            values->logits[token] = narrow((double)values->logits[token] - less);
        else if (place < values->list->n)
            values->list->x[place] -= less;
    }
}

static void apply(enum rn_sampler_kind kind, const struct rn_sampler *s, struct rn_path path,
                  struct rn_sampler_scratch *scratch, const struct values *values)
{
    if (kind == RN_SAMPLER_penalties)
        penalise(s, path, values);
    else
        repel(s, path, scratch, values);
}

/* The logits that a mask allows; the others are -infinity. */
static void copy_allowed(float *to, const float *logits, uint32_t n, const uint64_t *words)
{
    for (uint32_t first = 0; first < n; first += 64) {
        uint64_t word = words[first / 64];
        uint32_t m = n - first < 64 ? n - first : 64;

        if (word == UINT64_MAX) {
            memcpy(to + first, logits + first, m * sizeof *to);
            continue;
        }
        for (uint32_t i = 0; i < m; i++)
            to[first + i] = -INFINITY;
        for (; word != 0; word &= word - 1) {
            uint32_t i = (uint32_t)__builtin_ctzll(word);

            if (i < m)
                to[first + i] = logits[first + i];
        }
    }
}

const float *rn_adjust(const struct rn_sampler *s, struct rn_path path, const struct rn_mask *mask,
                       struct rn_sampler_scratch *scratch, const float *logits)
{
    const runnel_sampling *p = &s->params;
    const struct values values = {.logits = scratch->adjusted};
    uint32_t n_ends = mask != NULL && mask->may_end ? 0 : rn_sampler_n_barred(s, path.n);

    if (p->n_biases == 0 && n_ends == 0 && s->n_first == 0 && mask == NULL)
        return logits;
    if (mask != NULL)
        copy_allowed(values.logits, logits, s->n_vocab, mask->words);
    else
        memcpy(values.logits, logits, s->n_vocab * sizeof *logits);
    for (size_t i = 0; i < p->n_biases; i++)
        values.logits[p->biases[i].token] =
            narrow((double)values.logits[p->biases[i].token] + (double)p->biases[i].bias);
    for (uint32_t i = 0; i < n_ends; i++)
        values.logits[s->ends[i]] = -INFINITY;
    for (uint32_t i = 0; i < s->n_first; i++)
        apply((enum rn_sampler_kind)s->active.kinds[i], s, path, scratch, &values);
    return values.logits;
}

void rn_adjust_list(enum rn_sampler_kind kind, const struct rn_sampler *s, struct rn_path path,
                    struct rn_sampler_scratch *scratch, struct rn_candidates *list)
{
    const struct values values = {.list = list};

    apply(kind, s, path, scratch, &values);
    list->best = list->x[0];
    for (uint32_t i = 1; i < list->n; i++)
        list->best = list->x[i] > list->best ? list->x[i] : list->best;
}
