/* One pick: see sampler.h for the order of the steps.
 *
 * Let a be the adjusted logits, A their maximum, T the temperature, w(i) = exp((a(i) - A) / T) in double,
 * and i1, i2, ... the tokens in descending order of a, ties in ascending order of id.
 *
 *   top-k   keeps i1 .. ik
 *   top-p   keeps the shortest i1 .. im whose weights sum to top_p × the sum of what top-k kept
 *   min-p   keeps those with w >= min_p; w(i1) is 1
 *   coin    the first one whose running sum exceeds coin × the sum of what is kept
 *
 * The order is found lazily (order.h), so that a pick costs a few scans of the vocabulary and
 * log2 of it for each token that is looked at. */
#include "sampling/sampler.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "base/rng.h"
#include "sampling/counts.h"
#include "sampling/order.h"

struct rn_sampler {
    struct rn_heap *heap;
    runnel_sampling params; /* params.biases is ours */
    uint32_t n_vocab;
    bool penalties; /* counts are kept */
    struct rn_counts counts;
};

struct rn_sampler_scratch {
    struct rn_heap *heap;
    uint32_t n_vocab;
    float *adjusted;             /* [n_vocab] logits after biases and penalties */
    uint64_t *keys;              /* [2 × n_vocab] for rn_order */
    int32_t *tokens;             /* [n_vocab] what the filters have kept so far, best first */
    double *weights;             /* [n_vocab] its weights */
    struct rn_runner_up *second; /* of the pick that is made; NULL: nobody asks */
};

struct rn_sampler *rn_sampler_new(struct rn_heap *heap, const runnel_sampling *params, uint32_t n_vocab,
                                  uint32_t max_tokens)
{
    struct rn_sampler *s = rn_calloc(heap, 1, sizeof *s);
    runnel_logit_bias *biases = NULL;

    if (s == NULL)
        return NULL;
    s->heap = heap;
    s->params = *params;
    s->params.biases = NULL;
    s->n_vocab = n_vocab;
    if (params->n_biases > 0) {
        biases = rn_alloc(heap, params->n_biases, sizeof *biases);
        if (biases == NULL)
            goto fail;
        memcpy(biases, params->biases, params->n_biases * sizeof *biases);
        s->params.biases = biases;
    }
    s->penalties = params->repetition_penalty != 1 || params->frequency_penalty != 0 || params->presence_penalty != 0;
    if (s->penalties && !rn_counts_init(&s->counts, heap, n_vocab, max_tokens, params->penalty_tokens))
        goto fail;
    return s;

fail:
    rn_free(heap, biases);
    rn_free(heap, s);
    return NULL;
}

void rn_sampler_free(struct rn_sampler *s)
{
    if (s == NULL)
        return;
    rn_counts_fini(&s->counts, s->heap);
    rn_free(s->heap, (void *)s->params.biases);
    rn_free(s->heap, s);
}

void rn_sampler_accept(struct rn_sampler *s, int32_t token)
{
    RN_CHECK(token >= 0 && (uint32_t)token < s->n_vocab);
    if (s->penalties)
        rn_counts_add(&s->counts, token);
}

struct rn_sampler_scratch *rn_sampler_scratch_new(struct rn_heap *heap, uint32_t n_vocab)
{
    struct rn_sampler_scratch *scratch = rn_calloc(heap, 1, sizeof *scratch);

    if (scratch == NULL)
        return NULL;
    scratch->heap = heap;
    scratch->n_vocab = n_vocab;
    scratch->adjusted = rn_alloc(heap, n_vocab, sizeof *scratch->adjusted);
    scratch->keys = rn_alloc(heap, n_vocab, 2 * sizeof *scratch->keys);
    scratch->tokens = rn_alloc(heap, n_vocab, sizeof *scratch->tokens);
    scratch->weights = rn_alloc(heap, n_vocab, sizeof *scratch->weights);
    if (scratch->adjusted == NULL || scratch->keys == NULL || scratch->tokens == NULL || scratch->weights == NULL) {
        rn_sampler_scratch_free(scratch);
        return NULL;
    }
    return scratch;
}

void rn_sampler_scratch_free(struct rn_sampler_scratch *scratch)
{
    if (scratch == NULL)
        return;
    rn_free(scratch->heap, scratch->weights);
    rn_free(scratch->heap, scratch->tokens);
    rn_free(scratch->heap, scratch->keys);
    rn_free(scratch->heap, scratch->adjusted);
    rn_free(scratch->heap, scratch);
}

/* The order of the numbers as signed integers: -NaN, -inf, ..., -0, +0, ..., +inf, +NaN. Its own inverse. */
static int32_t folded(int32_t bits)
{
    return bits ^ (int32_t)((uint32_t)(bits >> 31) >> 1);
}

#define SECOND_DEPTH 10.0f /* below the best: a weight of e^-10 */
#define CHUNK 1024u        /* tokens; a search for the best one is over this many */

/* The greatest logit in *best, and in *chunk where the first of its value lies, or where to begin the search
 * for it. NUMERIC when a logit is NaN or +inf, or all are -inf.
 *
 * Works on the bits: a loop without a branch, which the compiler turns into vector code. What is wrong
 * shows at the two ends of the order. */
static runnel_status scan(const float *logits, uint32_t n, float *best, uint32_t *chunk)
{
    const int32_t plus_infinity = 0x7f800000, minus_infinity = ~0x7f800000;
    int32_t most = INT32_MIN, least = INT32_MAX;

    *chunk = 0;
    for (uint32_t begin = 0; begin < n; begin += CHUNK) {
        uint32_t m = n - begin < CHUNK ? n - begin : CHUNK;
        int32_t high = most;

        for (uint32_t i = 0; i < m; i++) {
            int32_t bits, value;

            memcpy(&bits, &logits[begin + i], sizeof bits);
            value = folded(bits);
            high = value > high ? value : high;
            least = value < least ? value : least;
        }
        if (high > most)
            *chunk = begin;
        most = high;
        if (n - begin <= CHUNK) /* before begin can wrap */
            break;
    }
    if (most >= plus_infinity || least < minus_infinity || most <= minus_infinity)
        return RUNNEL_NUMERIC;
    if (most == 0)
        *chunk = 0; /* -0 equals +0 and may stand before it */
    most = folded(most);
    memcpy(best, &most, sizeof *best);
    return RUNNEL_OK;
}

/* The lowest id with the greatest logit, not before `chunk`. */
static int32_t argmax(const float *logits, float best, uint32_t chunk)
{
    uint32_t token = chunk;

    while (logits[token] != best)
        token++;
    return (int32_t)token;
}

/* To float; what is finite stays finite, so that a host's parameters cannot make an infinity. */
static float narrow(double value)
{
    if (value == -INFINITY)
        return -INFINITY;
    return value > FLT_MAX ? FLT_MAX : value < -FLT_MAX ? -FLT_MAX : (float)value;
}

static float penalised(const runnel_sampling *p, float logit, uint32_t count)
{
    double value = (double)logit;

    value = value > 0 ? value / (double)p->repetition_penalty : value * (double)p->repetition_penalty;
    value -= (double)count * (double)p->frequency_penalty + (double)p->presence_penalty;
    return narrow(value);
}

/* Those that have a count as it stands, but for the few whose count the path changes. */
static void penalise(const struct rn_sampler *s, struct rn_path path, float *out)
{
    struct rn_count changes[2 * RN_PATH_MOST];
    uint32_t n = rn_counts_behind(&s->counts, path.tokens, path.n, changes);
    float values[2 * RN_PATH_MOST];

    for (uint32_t i = 0; i < n; i++)
        values[i] = changes[i].count > 0 ? penalised(&s->params, out[changes[i].token], changes[i].count)
                                         : out[changes[i].token];
    for (uint32_t i = 0; i < s->counts.n_entries; i++) {
        const struct rn_count *seen = &s->counts.entries[i];

        out[seen->token] = penalised(&s->params, out[seen->token], seen->count);
    }
    for (uint32_t i = 0; i < n; i++)
        out[changes[i].token] = values[i];
}

/* The logits after biases and penalties: the caller's own array when there are none. */
static const float *adjust(const struct rn_sampler *s, struct rn_path path, struct rn_sampler_scratch *scratch,
                           const float *logits)
{
    const runnel_sampling *p = &s->params;
    float *out = scratch->adjusted;

    if (p->n_biases == 0 && (!s->penalties || s->counts.n_entries + path.n == 0))
        return logits;
    memcpy(out, logits, s->n_vocab * sizeof *out);
    for (size_t i = 0; i < p->n_biases; i++)
        out[p->biases[i].token] = narrow((double)out[p->biases[i].token] + (double)p->biases[i].bias);
    if (s->penalties)
        penalise(s, path, out);
    return out;
}

static double weight(float logit, float best, double temperature)
{
    return exp(((double)logit - (double)best) / temperature);
}

/* The sum of all weights, in ascending order of id. */
static double total_weight(const float *logits, uint32_t n, float best, double temperature)
{
    double sum = 0;

    for (uint32_t i = 0; i < n; i++) {
        double x = ((double)logits[i] - (double)best) / temperature;

        if (x > -746) /* below, exp is 0 in double, by a slow path */
            sum += exp(x);
    }
    return sum;
}

/* log-softmax of the raw logits for the chosen token and the n_top best. */
static void put_logprobs(struct rn_sampler_scratch *scratch, const float *logits, uint32_t n_vocab, float best,
                         uint32_t n_top, struct rn_pick *pick)
{
    double norm = log(total_weight(logits, n_vocab, best, 1));
    struct rn_order order;
    int32_t token;

    pick->logprob = (float)((double)logits[pick->token] - (double)best - norm);
    rn_order_begin(&order, logits, n_vocab, best, 1, n_top < RUNNEL_MAX_TOP_LOGPROBS ? n_top : RUNNEL_MAX_TOP_LOGPROBS,
                   scratch->keys);
    while (rn_order_next(&order, &token))
        pick->top[pick->n_top++] = (runnel_logprob){token, (float)((double)logits[token] - (double)best - norm)};
}

/* A token, and its share of the weights. */
struct stop {
    int32_t token;
    double share;
};

/* best: the likeliest of all, or, where that was picked, the next one; -1: there is none. Where the coin fell behind
 * the likeliest that is the pick of another only if it is likelier for it, by as much as the rest leaves. */
static void put_other(struct rn_runner_up *second, struct stop best, bool is_first)
{
    second->token = best.token;
    if (best.token >= 0)
        second->share = (float)(is_first ? best.share * (1 - best.share) : best.share);
}

/* Those behind `best`, which is the picked one's logit; the weights of what is far below do not count. */
static void put_next_best(struct rn_runner_up *second, const float *logits, uint32_t n_vocab, int32_t token, float best)
{
    double sum = 0;
    int32_t next = -1;

    for (uint32_t i = 0; i < n_vocab; i++) {
        if (logits[i] <= best - SECOND_DEPTH || (int32_t)i == token)
            continue;
        sum += exp((double)logits[i] - (double)best);
        if (next < 0 || logits[i] > logits[next])
            next = (int32_t)i;
    }
    second->token = next;
    second->share = next < 0 ? 0 : (float)(exp((double)logits[next] - (double)best) / (1 + sum));
}

/* Without filters: the coin against the whole vocabulary, which is walked only as far as the coin reaches. */
static int32_t draw_from_all(struct rn_order *order, double coin, struct rn_runner_up *second)
{
    double total = total_weight(order->logits, order->n_vocab, order->best, order->temperature);
    double target = coin * total, sum = 0, w;
    int32_t token, first = -1, picked = -1;

    while (rn_order_next(order, &token)) {
        w = weight(order->logits[token], order->best, order->temperature);
        if (w == 0)
            break; /* the two sums differ by rounding, and the coin fell between them */
        sum += w;
        picked = token;
        first = first < 0 ? token : first;
        if (sum > target)
            break;
    }
    if (second != NULL && picked != first)
        put_other(second, (struct stop){first, 1 / total}, true);
    else if (second != NULL && rn_order_next(order, &token) && order->logits[token] > -INFINITY)
        put_other(second, (struct stop){token, weight(order->logits[token], order->best, order->temperature) / total},
                  false);
    return picked;
}

/* Takes tokens off the order until it ends, or their weights sum to `enough`, or the next is below
 * `least`. Returns how many were kept. */
static uint32_t keep(struct rn_order *order, struct rn_sampler_scratch *kept, double enough, double least)
{
    double sum = 0;
    uint32_t n = 0;
    int32_t token;

    while (sum < enough && rn_order_next(order, &token)) {
        double w = weight(order->logits[token], order->best, order->temperature);

        if (w < least)
            break;
        kept->tokens[n] = token;
        kept->weights[n++] = w;
        sum += w;
    }
    return n;
}

static double sum_of(const double *weights, uint32_t n)
{
    double sum = 0;

    for (uint32_t i = 0; i < n; i++)
        sum += weights[i];
    return sum;
}

/* How many of n kept tokens remain after top-p and min-p. */
static uint32_t trim(const double *weights, uint32_t n, double enough, double least)
{
    double sum = 0;
    uint32_t i = 0;

    while (i < n && sum < enough && weights[i] >= least)
        sum += weights[i++];
    return i;
}

static int32_t draw(const struct rn_sampler *s, struct rn_sampler_scratch *kept, const float *logits, float best,
                    double coin)
{
    const runnel_sampling *p = &s->params;
    bool top_k = p->top_k > 0 && p->top_k < s->n_vocab, top_p = p->top_p < 1;
    double temperature = (double)p->temperature, least = (double)p->min_p, share = (double)p->top_p;
    double total, target, sum = 0;
    struct rn_order order;
    uint32_t n, i = 0;

    rn_order_begin(&order, logits, s->n_vocab, best, temperature, top_k ? p->top_k : s->n_vocab, kept->keys);
    if (!top_k && !top_p && p->min_p == 0)
        return draw_from_all(&order, coin, kept->second);
    if (top_k) {
        n = keep(&order, kept, INFINITY, 0);
        n = trim(kept->weights, n, top_p ? share * sum_of(kept->weights, n) : INFINITY, least);
    } else {
        n = keep(&order, kept, top_p ? share * total_weight(logits, s->n_vocab, best, temperature) : INFINITY, least);
    }
    total = sum_of(kept->weights, n);
    target = coin * total;
    for (; i < n - 1; i++) {
        if (sum + kept->weights[i] > target)
            break;
        sum += kept->weights[i];
    }
    if (kept->second != NULL && n > 1)
        put_other(kept->second, (struct stop){kept->tokens[i == 0], kept->weights[i == 0] / total}, i > 0);
    return kept->tokens[i];
}

runnel_status rn_sampler_pick(const struct rn_sampler *s, struct rn_sampler_scratch *scratch, const float *logits,
                              uint64_t position, bool want_logprobs, uint32_t n_top, struct rn_pick *pick)
{
    return rn_sampler_pick_behind(s, (struct rn_path){NULL, 0}, scratch, logits, position, want_logprobs, n_top, pick);
}

runnel_status rn_sampler_pick_behind(const struct rn_sampler *s, struct rn_path path,
                                     struct rn_sampler_scratch *scratch, const float *logits, uint64_t position,
                                     bool want_logprobs, uint32_t n_top, struct rn_pick *pick)
{
    const float *adjusted;
    float raw_best, best;
    uint32_t chunk;

    RN_CHECK(scratch->n_vocab >= s->n_vocab && path.n <= RN_PATH_MOST);
    for (uint32_t i = 0; i < path.n; i++)
        RN_CHECK(path.tokens[i] >= 0 && (uint32_t)path.tokens[i] < s->n_vocab);
    pick->token = -1;
    pick->logprob = 0;
    pick->n_top = 0;
    if (scan(logits, s->n_vocab, &raw_best, &chunk) != RUNNEL_OK)
        return RUNNEL_NUMERIC;
    best = raw_best;
    adjusted = adjust(s, path, scratch, logits);
    if (adjusted != logits && scan(adjusted, s->n_vocab, &best, &chunk) != RUNNEL_OK)
        return RUNNEL_NUMERIC;
    pick->token = s->params.temperature == 0 ? argmax(adjusted, best, chunk)
                                             : draw(s, scratch, adjusted, best, rn_coin(s->params.seed, position));
    if (want_logprobs)
        put_logprobs(scratch, logits, s->n_vocab, raw_best, n_top, pick);
    return RUNNEL_OK;
}

runnel_sampling rn_sampler_plain(const struct rn_sampler *s)
{
    runnel_sampling params = s->params;

    params.biases = NULL;
    params.n_biases = 0;
    params.repetition_penalty = 1;
    params.frequency_penalty = params.presence_penalty = 0;
    return params;
}

runnel_status rn_sampler_pick_plain(const runnel_sampling *params, uint32_t n_vocab, struct rn_sampler_scratch *scratch,
                                    const float *logits, uint64_t position, struct rn_pick *pick,
                                    struct rn_runner_up *second)
{
    const struct rn_sampler sampler = {.params = *params, .n_vocab = n_vocab};
    runnel_status status;

    if (second != NULL)
        *second = (struct rn_runner_up){.token = -1};
    scratch->second = second;
    status = rn_sampler_pick(&sampler, scratch, logits, position, false, 0, pick);
    scratch->second = NULL;
    if (second != NULL && status == RUNNEL_OK && params->temperature == 0)
        put_next_best(second, logits, n_vocab, pick->token, logits[pick->token]);
    return status;
}
