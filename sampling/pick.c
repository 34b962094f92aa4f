/* One pick: see sampler.h for the order of the steps.
 *
 * Let a be the adjusted logits, A their maximum, T the temperature, z(i) = (a(i) - A) × (1 / T) in double, w(i) = exp
 * z(i), and i1, i2, ... the tokens in descending order of a, ties in ascending order of id.
 *
 *   top-k   keeps i1 .. ik
 *   top-p   keeps the shortest i1 .. im whose weights sum to top_p × the sum of what top-k kept; without a top-k the
 *           weights are rn_quick_weight, whose sums depend on no order
 *   min-p   keeps those with z >= log(min_p); z(i1) is 0
 *   coin    the one whose z + G is the greatest; of equal ones the lowest id (noise.h)
 *
 * What top-k and top-p keep ends at a token: i is kept if it is no worse than that one. So the coin needs no order: it
 * walks the vocabulary in blocks, and a block whose greatest z is too far below the best score so far is passed over,
 * since G is bounded. In the others the words of the noise say which few tokens need their noise.
 *
 * The best k are found lazily (order.h), and where top-p ends by one sweep (top_p.h). */
#include "sampling/sampler.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "sampling/adjust.h"
#include "sampling/choice.h"
#include "base/exact.h"
#include "sampling/levels/loops.h"
#include "sampling/noise.h"
#include "sampling/order.h"
#include "sampling/sampler_state.h"
#include "sampling/top_p.h"

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
    scratch->lengths = rn_calloc(heap, n_vocab, sizeof *scratch->lengths);
    scratch->maxima = rn_alloc(heap, n_blocks_of(n_vocab), sizeof *scratch->maxima);
    scratch->raw_maxima = rn_alloc(heap, n_blocks_of(n_vocab), sizeof *scratch->raw_maxima);
    if (scratch->adjusted == NULL || scratch->keys == NULL || scratch->tokens == NULL || scratch->weights == NULL ||
        scratch->lengths == NULL || scratch->maxima == NULL || scratch->raw_maxima == NULL) {
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
    rn_free(scratch->heap, scratch->lengths);
    rn_free(scratch->heap, scratch->weights);
    rn_free(scratch->heap, scratch->tokens);
    rn_free(scratch->heap, scratch->keys);
    rn_free(scratch->heap, scratch->adjusted);
    rn_free(scratch->heap, scratch);
}

#define SECOND_DEPTH 10.0f /* below the best: a weight of e^-10 */

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

        loops->ends(rn_block_of(logits, n, b, logits[b * RN_BLOCK], room), &high, &low);
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
        loops->weights(rn_block_of(logits, n, b, -INFINITY, room), best, inverse, weights);
        for (uint32_t i = 0; i < RN_BLOCK; i += LANES)
            for (uint32_t lane = 0; lane < LANES; lane++)
                sums[lane] += weights[i + lane];
    }
    for (uint32_t lane = 0; lane < LANES; lane++)
        total += sums[lane];
    return total;
}

/* log-softmax of the raw logits for the chosen token, or each that the host may choose, and the n_top best. */
static void put_logprobs(struct rn_sampler_scratch *scratch, const float *logits, uint32_t n_vocab, float best,
                         uint32_t n_top, struct rn_pick *pick, struct rn_choice *choice)
{
    double norm = rn_exact_log(total_weight(scratch->loops, logits, n_vocab, scratch->raw_maxima, best, 1));
    struct rn_order order;
    int32_t token;

    for (uint32_t i = 0; choice != NULL && i < choice->list.n; i++)
        choice->logprobs[i] = (float)((double)logits[choice->list.tokens[i]] - (double)best - norm);
    if (choice == NULL)
        pick->logprob = (float)((double)logits[pick->token] - (double)best - norm);
    rn_order_begin(&order, logits, scratch->raw_maxima, n_vocab, best, 1,
                   n_top < RUNNEL_MAX_TOP_LOGPROBS ? n_top : RUNNEL_MAX_TOP_LOGPROBS, scratch->keys);
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

/* Takes all tokens off the order. Returns how many. */
static uint32_t keep(struct rn_order *order, struct rn_sampler_scratch *kept, double inverse)
{
    uint32_t n = 0;
    int32_t token;

    while (rn_order_next(order, &token)) {
        kept->tokens[n] = token;
        kept->weights[n++] = weight(scaled(order->logits[token], order->best, inverse));
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
    struct rn_noise_keys keys;
    struct cut cut;
    bool both; /* the second one counts, too */
    int32_t first, second;
    double first_score, second_score;
    double rarity; /* e^-goal: times e^z that is how often noise reaches goal - z, at most */
};

/* What a token has to reach. */
static double goal_of(const struct race *race)
{
    return race->both ? race->second_score : race->first_score;
}

static void enter(struct race *race, int32_t token, uint32_t word)
{
    double z = scaled(race->logits[token], race->best, race->inverse), score;

    if (z < race->cut.least || !is_kept(&race->cut, race->logits[token], token) || token == race->first)
        return;
    if (z + rn_noise_most(word) < goal_of(race))
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

/* Those of the block that may have a score of at least `goal`, which is not above the lower of the two that count.
 * share: e^z of the greatest logit. */
static void run_block(struct race *race, uint32_t first, uint32_t n, float most, double share, double goal)
{
    double z = scaled(most, race->best, race->inverse);
    uint32_t words[RN_BLOCK];
    uint64_t hits[RN_BLOCK / 64];

    if (most == -INFINITY || z < race->cut.least || most < race->cut.logit || goal - z >= RN_NOISE_MOST)
        return;
    if (!race->loops->noise(&race->keys, first, rn_noise_bound(race->rarity * share), words, hits))
        return;
    for (uint32_t word = 0; word < RN_BLOCK / 64; word++)
        for (; hits[word] != 0; hits[word] &= hits[word] - 1) {
            uint32_t i = 64 * word + (uint32_t)__builtin_ctzll(hits[word]);

            if (i < n && race->logits[first + i] > -INFINITY)
                enter(race, (int32_t)(first + i), words[i]);
        }
}

/* likeliest: the token of the greatest logit, whose score lets most blocks be passed over. */
static void run(struct race *race, const float *maxima, uint32_t n_vocab, int32_t likeliest)
{
    uint32_t n_blocks = n_blocks_of(n_vocab);
    double goal = NAN, shares[RN_BLOCK];
    float room[RN_BLOCK];

    race->first = race->second = -1;
    race->first_score = race->second_score = -INFINITY;
    enter(race, likeliest, rn_noise_word(race->keys.seed, race->keys.position, (uint32_t)likeliest));
    for (uint32_t b = 0; b < n_blocks; b++) {
        uint32_t first = b * RN_BLOCK, n = n_vocab - first < RN_BLOCK ? n_vocab - first : RN_BLOCK;

        if (b % RN_BLOCK == 0)
            race->loops->weights(rn_block_of(maxima, n_blocks, b / RN_BLOCK, -INFINITY, room), race->best,
                                 race->inverse, shares);
        if (goal_of(race) != goal) {
            goal = goal_of(race);
            race->rarity = goal < -RN_LIGHT ? INFINITY : rn_exact_exp(-goal);
        }
        run_block(race, first, n, maxima[b], shares[b % RN_BLOCK], goal);
    }
}

/* Those of the list that the cut leaves. */
static void run_list(struct race *race, const int32_t *tokens, uint32_t n)
{
    uint32_t words[RN_BLOCK];
    int32_t block[RN_BLOCK];

    race->first = race->second = -1;
    race->first_score = race->second_score = -INFINITY;
    for (uint32_t from = 0; from < n; from += RN_BLOCK) {
        uint32_t m = n - from < RN_BLOCK ? n - from : RN_BLOCK;

        for (uint32_t i = 0; i < RN_BLOCK; i++)
            block[i] = tokens[from + (i < m ? i : 0)];
        race->loops->noise_of(race->keys.seed, race->keys.position, block, words);
        for (uint32_t i = 0; i < m; i++)
            enter(race, block[i], words[i]);
    }
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

/* ---- What the filters keep ---- */

static uint32_t cut_top_p(const runnel_sampling *p, uint32_t n_vocab, struct rn_sampler_scratch *kept,
                          const float *logits, const float *maxima, float best, struct cut *cut)
{
    struct rn_top_p_end end = rn_top_p_find(&(struct rn_top_p){.loops = kept->loops,
                                                               .logits = logits,
                                                               .maxima = maxima,
                                                               .n_vocab = n_vocab,
                                                               .best = best,
                                                               .temperature = (double)p->temperature,
                                                               .share = p->top_p,
                                                               .keys = kept->keys,
                                                               .weights = kept->keys + kept->n_vocab,
                                                               .tokens = kept->tokens});

    cut->logit = end.logit;
    cut->token = end.token;
    return end.n_tokens;
}

/* What is left of temperature, top-k, top-p and min-p, of those that p has. Returns the length of a list of tokens in
 * `kept` that has all of these, or n_vocab. */
static uint32_t filter(const runnel_sampling *p, uint32_t n_vocab, struct rn_sampler_scratch *kept, const float *logits,
                       const float *maxima, float best, struct cut *cut)
{
    bool top_k = p->top_k > 0 && p->top_k < n_vocab, top_p = p->top_p < 1;
    double temperature = (double)p->temperature, inverse = 1 / temperature, share = (double)p->top_p;
    struct rn_order order;
    uint32_t n;

    *cut = (struct cut){-INFINITY, INT32_MAX, p->min_p > 0 ? rn_exact_log((double)p->min_p) : -INFINITY};
    if (!top_k)
        return top_p ? cut_top_p(p, n_vocab, kept, logits, maxima, best, cut) : n_vocab;
    rn_order_begin(&order, logits, maxima, n_vocab, best, temperature, p->top_k, kept->keys);
    n = keep(&order, kept, inverse);
    n = trim(kept->weights, n, top_p ? share * sum_of(kept->weights, n) : INFINITY);
    cut->token = kept->tokens[n - 1];
    cut->logit = logits[cut->token];
    return n;
}

static int32_t draw(const struct rn_sampler *s, struct rn_sampler_scratch *kept, const float *logits,
                    const float *maxima, float best, uint32_t block, uint64_t position)
{
    const runnel_sampling *p = &s->params;
    struct race race = {.loops = kept->loops,
                        .logits = logits,
                        .best = best,
                        .inverse = 1 / (double)p->temperature,
                        .both = kept->second != NULL};
    uint32_t n = filter(p, s->n_vocab, kept, logits, maxima, best, &race.cut);

    rn_noise_keys(p->seed, position, &race.keys);
    if (n < s->n_vocab / RN_LIST_SHARE)
        run_list(&race, kept->tokens, n);
    else
        run(&race, maxima, s->n_vocab, argmax(logits, best, block));
    if (kept->second != NULL)
        put_second(kept->second, &race);
    return race.first;
}

/* ---- The list ---- */

/* The samplers behind the first ones that the filter can take, in its order: their parameters in *p, the others' off.
 * Returns how many. */
static uint32_t take_plain(const struct rn_sampler *s, runnel_sampling *p)
{
    uint32_t n = s->n_first, last = RN_SAMPLER_penalties;

    *p = s->params;
    p->temperature = p->top_p = 1;
    p->top_k = 0;
    p->min_p = 0;
    for (; n < s->active.n && s->active.kinds[n] > last; n++) {
        last = s->active.kinds[n];
        if (last == RN_SAMPLER_temperature && s->params.temperature > 0 && s->samplers.temperature_range == 0)
            p->temperature = s->params.temperature;
        else if (last == RN_SAMPLER_top_k)
            p->top_k = s->params.top_k;
        else if (last == RN_SAMPLER_top_p)
            p->top_p = s->params.top_p;
        else if (last == RN_SAMPLER_min_p)
            p->min_p = s->params.min_p;
        else
            break;
    }
    return n - s->n_first;
}

/* Those that the cut leaves, with their logits over the temperature. */
static void gather(struct rn_candidates *list, const float *logits, const float *maxima, float best, double inverse,
                   const struct cut *cut)
{
    for (uint32_t b = 0; b < n_blocks_of(list->n_vocab); b++) {
        uint32_t end = (b + 1) * RN_BLOCK < list->n_vocab ? (b + 1) * RN_BLOCK : list->n_vocab;

        if (maxima[b] == -INFINITY || maxima[b] < cut->logit || scaled(maxima[b], best, inverse) < cut->least)
            continue;
        for (uint32_t i = b * RN_BLOCK; i < end; i++) {
            double z = scaled(logits[i], best, inverse);

            if (logits[i] == -INFINITY || z < cut->least || !is_kept(cut, logits[i], (int32_t)i))
                continue;
            list->tokens[list->n] = (int32_t)i;
            list->x[list->n++] = (double)logits[i] * inverse;
        }
    }
}

/* log-softmax of what the chain has left, for the drawn candidate, or each that the host may choose, and the n_top
 * best. */
static void put_list_logprobs(struct rn_candidates *list, uint32_t place, uint32_t n_top, struct rn_pick *pick,
                              struct rn_choice *choice)
{
    double norm = rn_exact_log((double)rn_chain_weigh(list)) - rn_exact_log((double)(1ull << RN_WEIGHT_BITS));

    for (uint32_t i = 0; choice != NULL && i < list->n; i++)
        choice->logprobs[i] = (float)(list->x[i] - list->best - norm);
    if (choice == NULL)
        pick->logprob = (float)(list->x[place] - list->best - norm);
    for (uint32_t i = 0; i < list->n; i++) {
        float logprob = (float)(list->x[i] - list->best - norm);
        uint32_t at = pick->n_top;

        if (at == n_top && (at == 0 || logprob <= pick->top[at - 1].logprob))
            continue;
        pick->n_top += at < n_top;
        at = at < n_top ? at : at - 1;
        for (; at > 0 && pick->top[at - 1].logprob < logprob; at--)
            pick->top[at] = pick->top[at - 1];
        pick->top[at] = (runnel_logprob){list->tokens[i], logprob};
    }
}

/* wants: logprobs of what the chain has left are wanted. */
static void draw_from_list(const struct rn_sampler *s, struct rn_path path, struct rn_sampler_scratch *scratch,
                           const float *logits, const float *maxima, float best, uint64_t position, bool wants,
                           uint32_t n_top, struct rn_pick *pick)
{
    struct rn_chain_draw draw = {&s->params, &s->samplers, position, s->state};
    struct rn_candidates list = {.loops = scratch->loops,
                                 .tokens = scratch->tokens,
                                 .x = scratch->weights,
                                 .keys = scratch->keys,
                                 .weights = scratch->keys + scratch->n_vocab,
                                 .n_vocab = s->n_vocab};
    runnel_sampling plain;
    uint32_t n = s->n_first + take_plain(s, &plain), place = 0;
    struct cut cut;

    filter(&plain, s->n_vocab, scratch, logits, maxima, best, &cut);
    gather(&list, logits, maxima, best, 1 / (double)plain.temperature, &cut);
    list.best = (double)best * (1 / (double)plain.temperature);
    for (; n < s->active.n && s->active.kinds[n] != RN_SAMPLER_host; n++) {
        enum rn_sampler_kind kind = (enum rn_sampler_kind)s->active.kinds[n];

        if (kind == RN_SAMPLER_penalties || kind == RN_SAMPLER_dry)
            rn_adjust_list(kind, s, path, scratch, &list);
        else
            rn_chain_apply(kind, &draw, &list);
    }
    if (rn_sampler_asks_host(s)) {
        RN_CHECK(s->choice != NULL);
        rn_choice_put(s->choice, &list, position);
    } else {
        place = rn_chain_toss(s->active.n > 0 ? (enum rn_sampler_kind)s->active.kinds[s->active.n - 1] : RN_SAMPLERS,
                              &draw, &list, &pick->state);
        pick->token = list.tokens[place];
    }
    if (wants)
        put_list_logprobs(&list, place, n_top < RUNNEL_MAX_TOP_LOGPROBS ? n_top : RUNNEL_MAX_TOP_LOGPROBS, pick,
                          s->choice);
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
    return rn_sampler_pick_masked(s, path, NULL, scratch, logits, position, want_logprobs, n_top, pick);
}

runnel_status rn_sampler_pick_masked(const struct rn_sampler *s, struct rn_path path, const struct rn_mask *mask,
                                     struct rn_sampler_scratch *scratch, const float *logits, uint64_t position,
                                     bool want_logprobs, uint32_t n_top, struct rn_pick *pick)
{
    const float *adjusted, *maxima = scratch->raw_maxima;
    float raw_best, best;
    uint32_t block;

    RN_CHECK(scratch->n_vocab >= s->n_vocab && path.n <= RN_PATH_MOST);
    RN_CHECK(path.n == 0 || rn_sampler_can_draft(s));
    for (uint32_t i = 0; i < path.n; i++)
        RN_CHECK(path.tokens[i] >= 0 && (uint32_t)path.tokens[i] < s->n_vocab);
    pick->token = -1;
    pick->logprob = 0;
    pick->n_top = 0;
    if (scan(scratch->loops, logits, s->n_vocab, scratch->raw_maxima, &raw_best, &block) != RUNNEL_OK)
        return RUNNEL_NUMERIC;
    best = raw_best;
    adjusted = rn_adjust(s, path, mask, scratch, logits);
    if (adjusted != logits) {
        maxima = scratch->maxima;
        if (scan(scratch->loops, adjusted, s->n_vocab, scratch->maxima, &best, &block) != RUNNEL_OK)
            return RUNNEL_NUMERIC;
    }
    if (!s->is_plain)
        draw_from_list(s, path, scratch, adjusted, maxima, best, position,
                       want_logprobs && s->samplers.logprobs_after != 0, n_top, pick);
    else if (s->params.temperature == 0)
        pick->token = argmax(adjusted, best, block);
    else
        pick->token = draw(s, scratch, adjusted, maxima, best, block, position);
    if (want_logprobs && s->samplers.logprobs_after == 0)
        put_logprobs(scratch, logits, s->n_vocab, raw_best, n_top, pick, s->choice);
    if (s->choice != NULL)
        rn_choice_take_top(s->choice, pick);
    return RUNNEL_OK;
}

void rn_sampler_scratch_use(struct rn_sampler_scratch *scratch, const struct rn_loops *loops)
{
    scratch->loops = loops;
}

runnel_status rn_sampler_pick_plain(const runnel_sampling *params, uint32_t n_vocab, struct rn_sampler_scratch *scratch,
                                    const float *logits, uint64_t position, struct rn_pick *pick,
                                    struct rn_runner_up *second)
{
    const struct rn_sampler sampler = {.params = *params, .n_vocab = n_vocab, .is_plain = true};
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
