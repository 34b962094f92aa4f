/* The samplers over a list of candidates: see chain.h. */
#include "sampling/chain.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "base/rng.h"
#include "base/exact.h"
#include "sampling/noise.h"
#include "sampling/select.h"

#define LN_2 0x1.62e42fefa39efp-1

/* xtc's coin is another counter of the seed's generator than the noise. */
#define XTC_DOMAIN 2u

struct rn_chain_state rn_chain_begin(const runnel_samplers *samplers)
{
    double left = 1 - (double)samplers->adaptive_decay;

    if (samplers->mirostat != 0)
        return (struct rn_chain_state){2 * (double)samplers->mirostat_tau, 0};
    return (struct rn_chain_state){(double)samplers->adaptive_target / left, 1 / left};
}

/* ---- The list ---- */

uint64_t rn_chain_weigh(struct rn_candidates *list)
{
    uint64_t sum = 0;
    double room[RN_BLOCK];

    for (uint32_t first = 0; first < list->n; first += RN_BLOCK) {
        uint32_t m = list->n - first < RN_BLOCK ? list->n - first : RN_BLOCK;
        uint64_t out[RN_BLOCK];

        for (uint32_t i = 0; i < RN_BLOCK; i++)
            room[i] = i < m ? list->x[first + i] : list->best;
        list->loops->whole_weights(room, list->best, out);
        memcpy(list->weights + first, out, m * sizeof out[0]);
        for (uint32_t i = 0; i < m; i++)
            sum += out[i];
    }
    return sum;
}

/* ln of what weights sum to. */
static double log_of(uint64_t sum)
{
    return rn_exact_log((double)sum) - RN_WEIGHT_BITS * LN_2;
}

/* The share of a sum, rounded up; at least 1. */
static uint64_t share_of(uint64_t sum, float share)
{
    double part = ceil((double)sum * (double)share);

    return part < 1 ? 1 : part >= (double)sum ? sum : (uint64_t)part;
}

static void find_best(struct rn_candidates *list)
{
    list->best = list->x[0];
    for (uint32_t i = 1; i < list->n; i++)
        list->best = list->x[i] > list->best ? list->x[i] : list->best;
}

static void keep_at_least(struct rn_candidates *list, double least)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < list->n; i++) {
        if (list->x[i] < least)
            continue;
        list->tokens[n] = list->tokens[i];
        list->x[n++] = list->x[i];
    }
    list->n = n;
}

/* Those above the cut, by the keys that `key` gives. */
static void keep_cut(struct rn_candidates *list, struct rn_cut_at cut, uint64_t (*key)(double x, const double *with),
                     const double *with)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < list->n; i++) {
        uint64_t k = key(list->x[i], with);

        if (k < cut.key || (k == cut.key && cut.n_equal == 0))
            continue;
        cut.n_equal -= k == cut.key;
        list->tokens[n] = list->tokens[i];
        list->x[n++] = list->x[i];
    }
    list->n = n;
}

static uint64_t by_x(double x, const double *with)
{
    (void)with;
    return rn_key_of(x);
}

static void keep_best(struct rn_candidates *list, uint32_t k)
{
    if (k >= list->n)
        return;
    for (uint32_t i = 0; i < list->n; i++)
        list->keys[i] = rn_key_of(list->x[i]);
    keep_cut(list, rn_select(list->keys, NULL, list->n, k), by_x, NULL);
}

/* ---- Filters ---- */

static void top_p(struct rn_candidates *list, float share)
{
    uint64_t sum = rn_chain_weigh(list);

    for (uint32_t i = 0; i < list->n; i++)
        list->keys[i] = rn_key_of(list->x[i]);
    keep_cut(list, rn_select(list->keys, list->weights, list->n, share_of(sum, share)), by_x, NULL);
}

/* The best alone. */
static void greedy(struct rn_candidates *list)
{
    uint32_t i = 0;

    while (list->x[i] != list->best)
        i++;
    list->tokens[0] = list->tokens[i];
    list->x[0] = list->best;
    list->n = 1;
}

static void top_n_sigma(struct rn_candidates *list, float n_sigma)
{
    double sum = 0, squares = 0, mean;

    for (uint32_t i = 0; i < list->n; i++)
        sum += list->x[i] - list->best;
    mean = sum / list->n;
    for (uint32_t i = 0; i < list->n; i++) {
        double d = list->x[i] - list->best - mean;

        squares += d * d;
    }
    keep_at_least(list, list->best - (double)n_sigma * sqrt(squares / list->n));
}

/* The weights are made. */
static double entropy(const struct rn_candidates *list, uint64_t sum)
{
    double weighted = 0;

    for (uint32_t i = 0; i < list->n; i++)
        if (list->weights[i] > 0)
            weighted += (double)list->weights[i] * (list->x[i] - list->best);
    return log_of(sum) - weighted / (double)sum;
}

/* with: the greatest x + ln W, H */
static uint64_t by_typical(double x, const double *with)
{
    double off = with[0] - x - with[1];

    return rn_key_of(off < 0 ? off : -off);
}

static void typical_p(struct rn_candidates *list, float share)
{
    uint64_t sum = rn_chain_weigh(list);
    double with[2] = {list->best + log_of(sum), entropy(list, sum)};

    for (uint32_t i = 0; i < list->n; i++)
        list->keys[i] = by_typical(list->x[i], with);
    keep_cut(list, rn_select(list->keys, list->weights, list->n, share_of(sum, share)), by_typical, with);
    find_best(list);
}

/* ---- xtc ---- */

static double xtc_coin(uint64_t seed, uint64_t position)
{
    uint32_t counter[4] = {(uint32_t)position, (uint32_t)(position >> 32), 0, XTC_DOMAIN};
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)}, out[4];

    rn_philox4x32(counter, key, out);
    return ((double)out[0] + 0.5) * 0x1p-32;
}

static void xtc(const struct rn_chain_draw *draw, struct rn_candidates *list)
{
    uint32_t worst = 0, n = 0, n_likely = 0;
    double least;

    if (xtc_coin(draw->params->seed, draw->position) >= (double)draw->samplers->xtc_probability)
        return;
    least = (double)draw->samplers->xtc_threshold * (double)rn_chain_weigh(list);
    for (uint32_t i = 0; i < list->n; i++) {
        if ((double)list->weights[i] < least)
            continue;
        if (n_likely++ == 0 || list->x[i] <= list->x[worst])
            worst = i;
    }
    if (n_likely < 2)
        return;
    for (uint32_t i = 0; i < list->n; i++) {
        if ((double)list->weights[i] >= least && i != worst)
            continue;
        list->tokens[n] = list->tokens[i];
        list->x[n++] = list->x[i];
    }
    list->n = n;
    find_best(list);
}

/* ---- Temperature ---- */

/* x to the power of y; x in [0, 1], y not negative. */
static double power(double x, double y)
{
    double z = x > 0 ? y * rn_exact_log(x) : y > 0 ? -INFINITY : 0;

    return z < -700 ? 0 : rn_exact_exp(z);
}

static double temperature_by_entropy(struct rn_candidates *list, const struct rn_chain_draw *draw)
{
    double range = (double)draw->samplers->temperature_range, t = (double)draw->params->temperature;
    double low = t > range ? t - range : 0, share = entropy(list, rn_chain_weigh(list)) / rn_exact_log(list->n);

    share = share < 0 ? 0 : share > 1 ? 1 : share;
    return low + (t + range - low) * power(share, (double)draw->samplers->temperature_exponent);
}

static void temperature(struct rn_candidates *list, const struct rn_chain_draw *draw)
{
    double t = (double)draw->params->temperature, inverse;
    bool range = draw->samplers->temperature_range > 0;

    if (range && list->n == 1)
        return;
    t = range ? temperature_by_entropy(list, draw) : t;
    inverse = 1 / t;
    if (!isfinite(inverse)) {
        greedy(list);
        return;
    }
    for (uint32_t i = 0; i < list->n; i++)
        list->x[i] = fmin(fmax(list->x[i] * inverse, -DBL_MAX / 4), DBL_MAX / 4);
    list->best = fmin(fmax(list->best * inverse, -DBL_MAX / 4), DBL_MAX / 4);
}

/* ---- Mirostat ---- */

#define ZIPF_TOKENS 100u

/* The best, in descending order. Returns how many. */
static uint32_t best_few(const struct rn_candidates *list, double *best)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < list->n; i++) {
        uint32_t at = n;

        if (n == ZIPF_TOKENS && list->x[i] <= best[n - 1])
            continue;
        n += n < ZIPF_TOKENS;
        at = at < n ? at : n - 1;
        for (; at > 0 && best[at - 1] < list->x[i]; at--)
            best[at] = best[at - 1];
        best[at] = list->x[i];
    }
    return n;
}

static double zipf_exponent(const struct rn_candidates *list)
{
    double best[ZIPF_TOKENS], products = 0, squares = 0;
    uint32_t n = best_few(list, best);

    for (uint32_t i = 1; i < n; i++) {
        double t = rn_exact_log((double)(i + 1) / i);

        products += t * (best[i - 1] - best[i]);
        squares += t * t;
    }
    return squares > 0 ? products / squares : 0;
}

/* k, at least 1. */
static uint32_t zipf_cut(const struct rn_candidates *list, double mu)
{
    double s = zipf_exponent(list), e = s - 1, log_n = rn_exact_log(list->n_vocab), ratio, log_k;

    if (list->n < 2)
        return 1;
    if (fabs(e) * log_n < 1e-9)
        ratio = -rn_exact_log(log_n);
    else if (e > 0)
        ratio = rn_exact_log(e) - rn_exact_log(1 - rn_exact_exp(fmax(-e * log_n, -700)));
    else /* (-e) / (N^-e - 1); the 1 is lost in a large power */
        ratio = rn_exact_log(-e) - (-e * log_n > 600 ? -e * log_n : rn_exact_log(rn_exact_exp(-e * log_n) - 1));
    log_k = (ratio + mu * LN_2) / s;
    if (!(log_k < rn_exact_log(list->n))) /* also the NaN of 0 / 0 */
        return list->n;
    return log_k <= 0 ? 1 : (uint32_t)rn_exact_exp(log_k);
}

static void mirostat_2(struct rn_candidates *list, double mu)
{
    double least = log_of(rn_chain_weigh(list)) - mu * LN_2;

    keep_at_least(list, list->best + (least < 0 ? least : 0));
}

/* ---- adaptive_p ---- */

static double adapted_target(const struct rn_chain_draw *draw)
{
    double target = 2 * (double)draw->samplers->adaptive_target - draw->state.a / draw->state.b;

    return target < 0 ? 0 : target > 1 ? 1 : target;
}

/* Leaves the weights as they were before. */
static void adaptive_p(const struct rn_chain_draw *draw, struct rn_candidates *list)
{
    double sum = (double)rn_chain_weigh(list), target = adapted_target(draw);

    for (uint32_t i = 0; i < list->n; i++) {
        double d = fabs((double)list->weights[i] / sum - target) / 0.3;

        list->x[i] = 5 - 10 * d * d / (1 + d);
    }
    find_best(list);
}

/* ---- The chain ---- */

void rn_chain_apply(enum rn_sampler_kind kind, const struct rn_chain_draw *draw, struct rn_candidates *list)
{
    const runnel_sampling *p = draw->params;

    switch (kind) {
    case RN_SAMPLER_temperature:
        temperature(list, draw);
        break;
    case RN_SAMPLER_top_n_sigma:
        top_n_sigma(list, draw->samplers->top_n_sigma);
        break;
    case RN_SAMPLER_top_k:
        keep_best(list, p->top_k);
        break;
    case RN_SAMPLER_typical_p:
        typical_p(list, draw->samplers->typical_p);
        break;
    case RN_SAMPLER_top_p:
        top_p(list, p->top_p);
        break;
    case RN_SAMPLER_min_p:
        keep_at_least(list, list->best + rn_exact_log((double)p->min_p));
        break;
    case RN_SAMPLER_xtc:
        xtc(draw, list);
        break;
    case RN_SAMPLER_mirostat:
        if (draw->samplers->mirostat == 1)
            keep_best(list, zipf_cut(list, draw->state.a));
        else
            mirostat_2(list, draw->state.a);
        break;
    case RN_SAMPLER_adaptive_p:
        adaptive_p(draw, list);
        break;
    case RN_SAMPLER_penalties:
    case RN_SAMPLER_dry:
    case RN_SAMPLER_host:
    case RN_SAMPLERS:
        RN_CHECK(false);
    }
    RN_ASSERT(list->n > 0);
}

/* The place of the greatest z + G; of equal ones the lowest id. */
static uint32_t race(const struct rn_chain_draw *draw, const struct rn_candidates *list)
{
    uint32_t words[RN_BLOCK], first = UINT32_MAX;
    int32_t ids[RN_BLOCK];
    double best = -INFINITY;

    for (uint32_t from = 0; from < list->n; from += RN_BLOCK) {
        uint32_t m = list->n - from < RN_BLOCK ? list->n - from : RN_BLOCK;

        for (uint32_t i = 0; i < RN_BLOCK; i++)
            ids[i] = list->tokens[from + (i < m ? i : 0)];
        list->loops->noise_of(draw->params->seed, draw->position, ids, words);
        for (uint32_t i = 0; i < m; i++) {
            double z = list->x[from + i] - list->best, score;

            if (z + RN_NOISE_MOST <= best)
                continue;
            score = z + rn_noise_of(words[i]);
            if (score > best) {
                best = score;
                first = from + i;
            }
        }
    }
    RN_CHECK(first < list->n);
    return first;
}

uint32_t rn_chain_toss(enum rn_sampler_kind kind, const struct rn_chain_draw *draw, struct rn_candidates *list,
                       struct rn_chain_state *after)
{
    const runnel_samplers *s = draw->samplers;
    uint64_t sum;
    double p;
    uint32_t place;

    *after = draw->state;
    if (kind == RN_SAMPLER_mirostat) {
        sum = rn_chain_weigh(list);
        place = race(draw, list);
        p = (log_of(sum) - (list->x[place] - list->best)) / LN_2;
        after->a -= (double)s->mirostat_eta * (p - (double)s->mirostat_tau);
        return place;
    }
    place = race(draw, list);
    if (kind == RN_SAMPLER_adaptive_p) {
        for (uint32_t i = sum = 0; i < list->n; i++)
            sum += list->weights[i];
        p = (double)list->weights[place] / (double)sum;
        *after = (struct rn_chain_state){p + (double)s->adaptive_decay * draw->state.a,
                                         1 + (double)s->adaptive_decay * draw->state.b};
    }
    return place;
}
