/* One pick: see sampler.h for the order of the steps.
 *
 * Let a be the adjusted logits, A their maximum, T the temperature, z(i) = (a(i) - A) × (1 / T) in double, w(i) = exp z(i),
 * and i1, i2, ... the tokens in descending order of a, ties in ascending order of id.
 *
 *   top-k   keeps i1 .. ik
 *   top-p   keeps the shortest i1 .. im whose weights sum to top_p × the sum of what top-k kept
 *   min-p   keeps those with z >= log(min_p); z(i1) is 0
 *   coin    the one whose z + G is the greatest; of equal ones the lowest id (noise.h)
 *
 * What top-k and top-p keep ends at a token: i is kept if it is no worse than that one. So the coin needs no order: it
 * walks the vocabulary in blocks, and a block whose greatest z is too far below the best score so far is passed over,
 * since G is bounded. In the others the words of the noise say which few tokens need their noise.
 *
 * The order is found lazily (order.h), so that top-k and top-p cost a few scans of the vocabulary and log2 of it for
 * each token that is looked at. */
#include "sampling/sampler.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "sampling/counts.h"
#include "sampling/exact.h"
#include "sampling/levels/loops.h"
#include "sampling/noise.h"
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
    const struct rn_loops *loops;
    uint32_t n_vocab;
    float *adjusted;             /* [n_vocab] logits after biases and penalties */
    uint64_t *keys;              /* [2 × n_vocab] for rn_order */
    int32_t *tokens;             /* [n_vocab] what the filters have kept so far, best first */
    double *weights;             /* [n_vocab] their weights */
    float *maxima, *raw_maxima;  /* [blocks of the noise] the greatest logit of each, adjusted and as it came */
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

void rn_sampler_restart(struct rn_sampler *s, const int32_t *tokens, uint32_t n_tokens)
{
    if (s->penalties)
        rn_counts_clear(&s->counts);
    for (uint32_t i = 0; i < n_tokens; i++)
        rn_sampler_accept(s, tokens[i]);
}

static uint32_t n_blocks_of(uint32_t n_vocab)
{
    return n_vocab / RN_BLOCK + (n_vocab % RN_BLOCK != 0);
}

struct rn_sampler_scratch *rn_sampler_scratch_new(struct rn_heap *heap, uint32_t n_vocab)
{
    struct rn_sampler_scratch *scratch = rn_calloc(heap, 1, sizeof *scratch);

    if (scratch == NULL)
        return NULL;
    scratch->heap = heap;
    scratch->loops = rn_loops_named(NULL);
    scratch->n_vocab = n_vocab;
    scratch->adjusted = rn_alloc(heap, n_vocab, sizeof *scratch->adjusted);
    scratch->keys = rn_alloc(heap, n_vocab, 2 * sizeof *scratch->keys);
    scratch->tokens = rn_alloc(heap, n_vocab, sizeof *scratch->tokens);
    scratch->weights = rn_alloc(heap, n_vocab, sizeof *scratch->weights);
    scratch->maxima = rn_alloc(heap, n_blocks_of(n_vocab), sizeof *scratch->maxima);
    scratch->raw_maxima = rn_alloc(heap, n_blocks_of(n_vocab), sizeof *scratch->raw_maxima);
    if (scratch->adjusted == NULL || scratch->keys == NULL || scratch->tokens == NULL || scratch->weights == NULL ||
        scratch->maxima == NULL || scratch->raw_maxima == NULL) {
        rn_sampler_scratch_free(scratch);
        return NULL;
    }
    return scratch;
}

void rn_sampler_scratch_free(struct rn_sampler_scratch *scratch)
{
    if (scratch == NULL)
        return;
    rn_free(scratch->heap, scratch->raw_maxima);
    rn_free(scratch->heap, scratch->maxima);
    rn_free(scratch->heap, scratch->weights);
    rn_free(scratch->heap, scratch->tokens);
    rn_free(scratch->heap, scratch->keys);
    rn_free(scratch->heap, scratch->adjusted);
    rn_free(scratch->heap, scratch);
}

#define SECOND_DEPTH 10.0f /* below the best: a weight of e^-10 */

/* The block's logits; those behind the end of the vocabulary are `fill`, in room. */
static const float *block_of(const float *logits, uint32_t n, uint32_t block, float fill, float room[RN_BLOCK])
{
    uint32_t first = block * RN_BLOCK, m = n - first;

    if (m >= RN_BLOCK)
        return logits + first;
    for (uint32_t i = 0; i < RN_BLOCK; i++)
        room[i] = i < m ? logits[first + i] : fill;
    return room;
}

/* The greatest logit of each block in maxima, the greatest of all in *best, and in *block where the first of its value
 * lies, or where to begin the search for it. NUMERIC when a logit is NaN or +inf, or all are -inf: what is wrong shows
 * at the two ends of the order. */
static runnel_status scan(const struct rn_loops *loops, const float *logits, uint32_t n, float *maxima, float *best,
                          uint32_t *block)
{
    const int32_t plus_infinity = 0x7f800000, minus_infinity = ~0x7f800000;
    int32_t most = INT32_MIN, least = INT32_MAX;
    float room[RN_BLOCK];

    *block = 0;
    for (uint32_t b = 0; b < n_blocks_of(n); b++) {
        int32_t high, low;

        loops->ends(block_of(logits, n, b, logits[b * RN_BLOCK], room), &high, &low);
        least = low < least ? low : least;
        if (high > most) {
            *block = b;
            most = high;
        }
        high = rn_folded(high);
        memcpy(&maxima[b], &high, sizeof maxima[b]);
    }
    if (most >= plus_infinity || least < minus_infinity || most <= minus_infinity)
        return RUNNEL_NUMERIC;
    if (most == 0)
        *block = 0; /* -0 equals +0 and may stand before it */
    most = rn_folded(most);
    memcpy(best, &most, sizeof *best);
    return RUNNEL_OK;
}

/* The lowest id with the greatest logit, not before the block. */
static int32_t argmax(const float *logits, float best, uint32_t block)
{
    uint32_t token = block * RN_BLOCK;

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

static double scaled(float logit, float best, double inverse)
{
    return ((double)logit - (double)best) * inverse;
}

static double weight(double z)
{
    return z < -RN_LIGHT ? 0 : rn_exact_exp(z);
}

#define LANES 8u /* running sums side by side; part of the definition of the total */

/* The sum of all weights: that of the tokens of equal id modulo LANES in ascending order of id, and then of these sums
 * in ascending order. maxima: of each block; those of light blocks are not looked at. */
static double total_weight(const struct rn_loops *loops, const float *logits, uint32_t n, const float *maxima,
                           float best, double inverse)
{
    double sums[LANES] = {0}, total = 0, weights[RN_BLOCK];
    float room[RN_BLOCK];

    for (uint32_t b = 0; b < n_blocks_of(n); b++) {
        if (scaled(maxima[b], best, inverse) < -RN_LIGHT)
            continue;
        loops->weights(block_of(logits, n, b, -INFINITY, room), best, inverse, weights);
        for (uint32_t i = 0; i < RN_BLOCK; i += LANES)
            for (uint32_t lane = 0; lane < LANES; lane++)
                sums[lane] += weights[i + lane];
    }
    for (uint32_t lane = 0; lane < LANES; lane++)
        total += sums[lane];
    return total;
}

/* log-softmax of the raw logits for the chosen token and the n_top best. */
static void put_logprobs(struct rn_sampler_scratch *scratch, const float *logits, uint32_t n_vocab, float best,
                         uint32_t n_top, struct rn_pick *pick)
{
    double norm = rn_exact_log(total_weight(scratch->loops, logits, n_vocab, scratch->raw_maxima, best, 1));
    struct rn_order order;
    int32_t token;

    pick->logprob = (float)((double)logits[pick->token] - (double)best - norm);
    rn_order_begin(&order, logits, n_vocab, best, 1, n_top < RUNNEL_MAX_TOP_LOGPROBS ? n_top : RUNNEL_MAX_TOP_LOGPROBS,
                   scratch->keys);
    while (rn_order_next(&order, &token))
        pick->top[pick->n_top++] = (runnel_logprob){token, (float)((double)logits[token] - (double)best - norm)};
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

/* Takes tokens off the order until it ends, or their weights sum to `enough`, or the next has a z below
 * `least`. Returns how many were kept. */
static uint32_t keep(struct rn_order *order, struct rn_sampler_scratch *kept, double inverse, double enough,
                     double least)
{
    double sum = 0;
    uint32_t n = 0;
    int32_t token;

    while (sum < enough && rn_order_next(order, &token)) {
        double z = scaled(order->logits[token], order->best, inverse);

        if (z < least)
            break;
        kept->tokens[n] = token;
        kept->weights[n] = weight(z);
        sum += kept->weights[n++];
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

/* How many of n kept tokens sum to enough. */
static uint32_t trim(const double *weights, uint32_t n, double enough)
{
    double sum = 0;
    uint32_t i = 0;

    while (i < n && sum < enough)
        sum += weights[i++];
    return i;
}

/* What the filters keep: tokens no worse than (logit, token), with a z of at least `least`. */
struct cut {
    float logit;
    int32_t token;
    double least;
};

static bool is_kept(const struct cut *cut, float logit, int32_t token)
{
    return logit > cut->logit || (logit == cut->logit && token <= cut->token);
}

/* The best two scores so far; token -1: none. */
struct race {
    const struct rn_loops *loops;
    const float *logits;
    float best;
    double inverse;
    uint64_t seed, position;
    struct cut cut;
    int32_t first, second;
    double first_score, second_score;
};

static void enter(struct race *race, int32_t token, uint32_t word)
{
    double z = scaled(race->logits[token], race->best, race->inverse), score;

    if (z < race->cut.least || !is_kept(&race->cut, race->logits[token], token) || token == race->first)
        return;
    score = z + rn_noise_of(word);
    if (score > race->first_score || (score == race->first_score && token < race->first)) {
        race->second = race->first;
        race->second_score = race->first_score;
        race->first = token;
        race->first_score = score;
    } else if (score > race->second_score || (score == race->second_score && token < race->second)) {
        race->second = token;
        race->second_score = score;
    }
}

/* Those of the block that may have a score of at least `goal`, which is not above the lower of the two that count. */
static void run_block(struct race *race, uint32_t first, uint32_t n, float most, double goal)
{
    double z = scaled(most, race->best, race->inverse);
    uint32_t words[RN_BLOCK], bound;

    if (most == -INFINITY || z < race->cut.least || most < race->cut.logit || goal - z >= RN_NOISE_MOST)
        return;
    bound = rn_noise_bound(goal - z);
    if (race->loops->noise(race->seed, race->position, first, bound, words) == 0)
        return;
    for (uint32_t i = 0; i < n; i++)
        if (words[i] <= bound && race->logits[first + i] > -INFINITY)
            enter(race, (int32_t)(first + i), words[i]);
}

/* likeliest: the token of the greatest logit, whose score lets most blocks be passed over. second: it counts, too. */
static void run(struct race *race, const float *maxima, uint32_t n_vocab, int32_t likeliest, bool second)
{
    race->first = race->second = -1;
    race->first_score = race->second_score = -INFINITY;
    enter(race, likeliest, rn_noise_word(race->seed, race->position, (uint32_t)likeliest));
    for (uint32_t b = 0; b < n_blocks_of(n_vocab); b++) {
        uint32_t first = b * RN_BLOCK, n = n_vocab - first < RN_BLOCK ? n_vocab - first : RN_BLOCK;

        run_block(race, first, n, maxima[b], second ? race->second_score : race->first_score);
    }
}

/* Below so many kept tokens their noise is made one by one; as many cost about what a few blocks cost. */
#define FEW 32u

static void run_few(struct race *race, const int32_t *tokens, uint32_t n)
{
    race->first = race->second = -1;
    race->first_score = race->second_score = -INFINITY;
    for (uint32_t i = 0; i < n; i++)
        enter(race, tokens[i], rn_noise_word(race->seed, race->position, (uint32_t)tokens[i]));
}

/* Somebody with slightly other logits most likely picks the token of the next best score, the likelier the smaller the
 * gap: logistic, for differences of about 0.3 temperatures. */
#define GAP 4.0

static void put_second(struct rn_runner_up *second, const struct race *race)
{
    second->token = race->second;
    if (race->second >= 0)
        second->share = (float)(1 / (1 + exp(GAP * (race->first_score - race->second_score))));
}

static int32_t draw(const struct rn_sampler *s, struct rn_sampler_scratch *kept, const float *logits,
                    const float *maxima, float best, uint32_t block, uint64_t position)
{
    const runnel_sampling *p = &s->params;
    bool top_k = p->top_k > 0 && p->top_k < s->n_vocab, top_p = p->top_p < 1;
    double temperature = (double)p->temperature, inverse = 1 / temperature, share = (double)p->top_p;
    struct race race = {.loops = kept->loops,
                        .logits = logits,
                        .best = best,
                        .inverse = inverse,
                        .seed = p->seed,
                        .position = position,
                        .cut = {-INFINITY, INT32_MAX, p->min_p > 0 ? rn_exact_log((double)p->min_p) : -INFINITY}};
    struct rn_order order;
    uint32_t n = s->n_vocab;

    if (top_k || top_p) {
        rn_order_begin(&order, logits, s->n_vocab, best, temperature, top_k ? p->top_k : s->n_vocab, kept->keys);
        if (top_k) {
            n = keep(&order, kept, inverse, INFINITY, -INFINITY);
            n = trim(kept->weights, n, top_p ? share * sum_of(kept->weights, n) : INFINITY);
        } else {
            n = keep(&order, kept, inverse,
                     share * total_weight(kept->loops, logits, s->n_vocab, maxima, best, inverse), race.cut.least);
        }
        race.cut.token = kept->tokens[n - 1];
        race.cut.logit = logits[race.cut.token];
    }
    if ((top_k || top_p) && n < FEW)
        run_few(&race, kept->tokens, n);
    else
        run(&race, maxima, s->n_vocab, argmax(logits, best, block), kept->second != NULL);
    if (kept->second != NULL)
        put_second(kept->second, &race);
    return race.first;
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
    const float *adjusted, *maxima = scratch->raw_maxima;
    float raw_best, best;
    uint32_t block;

    RN_CHECK(scratch->n_vocab >= s->n_vocab && path.n <= RN_PATH_MOST);
    for (uint32_t i = 0; i < path.n; i++)
        RN_CHECK(path.tokens[i] >= 0 && (uint32_t)path.tokens[i] < s->n_vocab);
    pick->token = -1;
    pick->logprob = 0;
    pick->n_top = 0;
    if (scan(scratch->loops, logits, s->n_vocab, scratch->raw_maxima, &raw_best, &block) != RUNNEL_OK)
        return RUNNEL_NUMERIC;
    best = raw_best;
    adjusted = adjust(s, path, scratch, logits);
    if (adjusted != logits) {
        maxima = scratch->maxima;
        if (scan(scratch->loops, adjusted, s->n_vocab, scratch->maxima, &best, &block) != RUNNEL_OK)
            return RUNNEL_NUMERIC;
    }
    pick->token = s->params.temperature == 0 ? argmax(adjusted, best, block)
                                             : draw(s, scratch, adjusted, maxima, best, block, position);
    if (want_logprobs)
        put_logprobs(scratch, logits, s->n_vocab, raw_best, n_top, pick);
    return RUNNEL_OK;
}

void rn_sampler_scratch_use(struct rn_sampler_scratch *scratch, const struct rn_loops *loops)
{
    scratch->loops = loops;
}

const runnel_sampling *rn_sampler_params(const struct rn_sampler *s)
{
    return &s->params;
}

bool rn_sampler_reads_past(const struct rn_sampler *s)
{
    return s->penalties;
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
