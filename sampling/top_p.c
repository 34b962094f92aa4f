/* The end of top-p: see top_p.h. */
#include "sampling/top_p.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "base/exact.h"
#include "sampling/select.h"

/* ---- The guess ---- */

#define BUCKETS 512u
#define GROUPS 256u    /* places of the sample, ... */
#define GROUP 16u      /* ... and tokens at each: a cache line */
#define RANGE_SHARE 8u /* one in so many groups says how far down the buckets go */
#define DEPTH 30.0     /* below it weights are 0 */
#define FEW 8u         /* so many of the sample are the tokens that are looked up ... */
#define FEW_MOST 2048u
#define SIGMAS 4.0
#define SMALL 2048u /* vocabularies that are quicker collected than looked at twice */

/* How the weights lie: by depth below the best, in steps. */
struct histogram {
    uint32_t counts[BUCKETS];
    double step;      /* temperatures */
    double scale;     /* tokens for each of the sample's */
    uint32_t first;   /* buckets before it are known exactly: */
    double known;     /* the sum of their weights ... */
    uint32_t n_known; /* ... and how many they are */
};

static uint32_t stride_of(uint32_t n_vocab)
{
    uint32_t stride = n_vocab / GROUPS / GROUP * GROUP;

    return stride < GROUP ? GROUP : stride;
}

static float inverse_of(const struct rn_top_p *p)
{
    return (float)fmin(1 / p->temperature, FLT_MAX);
}

static double depth_of(const struct rn_top_p *p, float logit)
{
    double depth = ((double)p->best - (double)logit) / p->temperature;

    return depth < DEPTH ? depth : DEPTH;
}

static void take_sample(const struct rn_top_p *p, struct histogram *h)
{
    uint32_t stride = stride_of(p->n_vocab), n = 0;
    float least = p->best, inverse;

    for (uint32_t first = 0; first + GROUP <= p->n_vocab; first += stride * RANGE_SHARE)
        for (uint32_t i = first; i < first + GROUP; i++)
            least = p->logits[i] < least ? p->logits[i] : least;
    h->step = fmax(depth_of(p, least), 1e-30) / (BUCKETS - 1);
    inverse = (float)(1 / (h->step * p->temperature));
    for (uint32_t first = 0; first + GROUP <= p->n_vocab; first += stride, n += GROUP)
        for (uint32_t i = first; i < first + GROUP; i++) {
            float place = (p->best - p->logits[i]) * inverse;

            h->counts[place < BUCKETS - 1 ? (uint32_t)place : BUCKETS - 1]++;
        }
    h->scale = n > 0 ? (double)p->n_vocab / n : 0;
}

/* The logit at which a bucket begins. */
static float logit_at(const struct rn_top_p *p, const struct histogram *h, uint32_t bucket)
{
    double logit = (double)p->best - bucket * h->step * p->temperature;

    return logit < -FLT_MAX ? -FLT_MAX : (float)logit;
}

/* The sum of the weights of logits of at least `low`, in *sum. Returns how many there are, or more than FEW_MOST. */
static uint32_t look_up(const struct rn_top_p *p, float low, double *sum)
{
    float found[RN_BLOCK], room[RN_BLOCK], inverse = inverse_of(p);
    uint32_t n = 0, n_found = 0;
    uint64_t whole = 0;

    for (uint32_t first = 0; first < p->n_vocab && n <= FEW_MOST; first += RN_BLOCK) {
        const float *logits = rn_block_of(p->logits, p->n_vocab, first / RN_BLOCK, -INFINITY, room);
        uint64_t mask[RN_BLOCK / 64];

        if (p->maxima[first / RN_BLOCK] < low)
            continue;
        p->loops->at_least(logits, low, mask);
        for (uint32_t word = 0; word < RN_BLOCK / 64; word++)
            for (; mask[word] != 0; mask[word] &= mask[word] - 1, n++) {
                found[n_found++] = logits[word * 64 + (uint32_t)__builtin_ctzll(mask[word])];
                if (n_found == RN_BLOCK)
                    whole += p->loops->quick_sum(found, p->best, inverse);
                n_found %= RN_BLOCK;
            }
    }
    for (uint32_t i = n_found; i < RN_BLOCK; i++)
        found[i] = -INFINITY;
    whole += p->loops->quick_sum(found, p->best, inverse);
    *sum = (double)whole / (double)(1ull << RN_WEIGHT_BITS);
    return n;
}

/* Looks up the tokens of the first buckets: outliers, of which the sample knows nothing. */
static void look_up_best(const struct rn_top_p *p, struct histogram *h)
{
    uint32_t seen = 0, bucket = 0, n;
    double sum;

    while (bucket < BUCKETS && seen + h->counts[bucket] <= FEW)
        seen += h->counts[bucket++];
    n = look_up(p, logit_at(p, h, bucket), &sum);
    if (n > FEW_MOST)
        return;
    h->first = bucket;
    h->known = sum;
    h->n_known = n;
}

/* What the tokens above each bucket's end sum to, from the first one that is not known. */
struct sums {
    uint32_t n;
    double sums[BUCKETS + 1], squares[BUCKETS + 1], counts[BUCKETS + 1];
};

static void add_up(const struct histogram *h, struct sums *s)
{
    double ratio = rn_exact_exp(-h->step), weight = rn_exact_exp(-(h->first + 0.5) * h->step) * h->scale;

    s->sums[0] = h->known;
    s->squares[0] = 0;
    s->counts[0] = h->n_known;
    s->n = BUCKETS - h->first;
    for (uint32_t i = 0; i < s->n; i++, weight *= ratio) {
        double count = h->counts[h->first + i];

        s->sums[i + 1] = s->sums[i] + count * weight;
        s->squares[i + 1] = s->squares[i] + count * weight * weight;
        s->counts[i + 1] = s->counts[i] + count * h->scale;
    }
}

/* Two logits between which the end probably is. Returns how many tokens are above the lower one, roughly. */
static double guess(const struct rn_top_p *p, float *low, float *high)
{
    struct histogram h = {.counts = {0}};
    double share = (double)p->share;
    struct sums s;

    *low = -FLT_MAX;
    *high = INFINITY;
    if (p->n_vocab < SMALL)
        return p->n_vocab;
    take_sample(p, &h);
    look_up_best(p, &h);
    add_up(&h, &s);
    for (uint32_t i = 0; i < s.n; i++) {
        double off = s.sums[i] - share * s.sums[s.n], rest = s.squares[s.n] - s.squares[i];
        double error = (1 - share) * (1 - share) * s.squares[i] + share * share * rest;
        bool clear = off * off > SIGMAS * SIGMAS * error;

        if (off < 0 && clear)
            *high = logit_at(p, &h, h.first + i);
        if (off > 0 && clear) {
            *low = logit_at(p, &h, h.first + i);
            return s.counts[i];
        }
    }
    return p->n_vocab;
}

/* ---- The sweep ---- */

/* Weights of e^-LIGHT are left out: of a vocabulary of 2^18 they are a thousandth of the best one. */
#define LIGHT 20.0f

struct sweep {
    float low, high;
    bool skip; /* light blocks */
    bool list; /* tokens of at least `low` are wanted */
    uint64_t total, slack, above, inside;
    uint32_t n, n_tokens;
};

/* A token's key: the greater one is the better token, ties included. */
static uint64_t key_of(float logit, uint32_t id)
{
    float no_minus_zero = logit + 0.0f;
    int32_t bits;

    memcpy(&bits, &no_minus_zero, sizeof bits);
    return (uint64_t)((uint32_t)rn_folded(bits) ^ 0x80000000u) << 32 | (uint32_t)~id;
}

static float logit_of(uint64_t key)
{
    int32_t bits = rn_folded((int32_t)((uint32_t)(key >> 32) ^ 0x80000000u));
    float logit;

    memcpy(&logit, &bits, sizeof logit);
    return logit;
}

/* Those of the block between the two, and all above the lower one if a list is wanted. */
static void collect(const struct rn_top_p *p, struct sweep *s, const float *logits, uint32_t first)
{
    uint64_t low[RN_BLOCK / 64], high[RN_BLOCK / 64];

    p->loops->at_least(logits, s->low, low);
    p->loops->at_least(logits, s->high, high);
    for (uint32_t word = 0; word < RN_BLOCK / 64; word++) {
        for (uint64_t bits = low[word] & ~high[word]; bits != 0; bits &= bits - 1) {
            uint32_t i = word * 64 + (uint32_t)__builtin_ctzll(bits);

            p->keys[s->n++] = key_of(logits[i], first + i);
        }
        for (uint64_t bits = s->list ? low[word] : 0; bits != 0; bits &= bits - 1)
            p->tokens[s->n_tokens++] = (int32_t)(first + word * 64 + (uint32_t)__builtin_ctzll(bits));
    }
}

/* The weights of what was collected. */
static void weigh(const struct rn_top_p *p, struct sweep *s)
{
    float inverse = inverse_of(p), logits[RN_BLOCK];
    uint64_t weights[RN_BLOCK];

    for (uint32_t first = 0; first < s->n; first += RN_BLOCK) {
        uint32_t n = s->n - first < RN_BLOCK ? s->n - first : RN_BLOCK;

        for (uint32_t i = 0; i < RN_BLOCK; i++)
            logits[i] = i < n ? logit_of(p->keys[first + i]) : -INFINITY;
        p->loops->quick_weights(logits, p->best, inverse, weights);
        memcpy(p->weights + first, weights, n * sizeof weights[0]);
        for (uint32_t i = 0; i < n; i++)
            s->inside += weights[i];
    }
}

static void sweep(const struct rn_top_p *p, struct sweep *s)
{
    float inverse = inverse_of(p), room[RN_BLOCK];

    s->total = s->slack = s->above = s->inside = 0;
    s->n = s->n_tokens = 0;
    for (uint32_t first = 0; first < p->n_vocab; first += RN_BLOCK) {
        float most = p->maxima[first / RN_BLOCK];
        const float *logits;

        if ((most - p->best) * inverse <= -LIGHT && most < s->low && s->skip) {
            s->slack += RN_BLOCK * (rn_quick_weight((most - p->best) * inverse) + 1);
            continue;
        }
        logits = rn_block_of(p->logits, p->n_vocab, first / RN_BLOCK, -INFINITY, room);
        if (most < s->high) {
            s->total += p->loops->quick_sum(logits, p->best, inverse);
        } else {
            uint64_t above;

            s->total += p->loops->quick_sums(logits, p->best, inverse, s->high, &above);
            s->above += above;
        }
        if (most >= s->low)
            collect(p, s, logits, first);
    }
    weigh(p, s);
}

/* ---- The end ---- */

static uint64_t share_of(uint64_t total, float share)
{
    double part = ceil((double)total * (double)share);

    return part < 1 ? 1 : part >= (double)total ? total : (uint64_t)part;
}

struct rn_top_p_end rn_top_p_find(const struct rn_top_p *p)
{
    struct sweep s = {.skip = true};
    struct rn_cut_at cut = {0};
    double n_above = guess(p, &s.low, &s.high);
    uint64_t enough, enough_for_all;

    do {
        s.list = n_above < p->n_vocab / RN_LIST_SHARE;
        sweep(p, &s);
        enough = share_of(s.total, p->share);
        enough_for_all = share_of(s.total + s.slack, p->share);
        if (s.above + s.inside < enough) {
            s.high = s.low;
            s.low = -FLT_MAX;
            n_above = p->n_vocab;
        } else if (s.above >= enough_for_all) {
            s.low = s.high;
            s.high = INFINITY;
        } else if (s.above < enough) {
            cut = rn_select(p->keys, p->weights, s.n, enough - s.above);
        }
        s.skip = false;
    } while (cut.n_equal == 0 || s.above + cut.sum < enough_for_all);
    return (struct rn_top_p_end){logit_of(cut.key), (int32_t) ~(uint32_t)cut.key, s.list ? s.n_tokens : p->n_vocab};
}
