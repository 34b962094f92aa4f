/* Lazy descending order: see order.h.
 *
 * A key is one number: the logit's bits, made to compare like the logit, above the complement of the
 * id. The greater key is the better token, ties included. */
#include "sampling/order.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "sampling/levels/loops.h"
#include "sampling/select.h"

#define BANDS 3

/* Measured on a vocabulary of 152 thousand: where selecting costs as much as gathering a band, and where
 * sorting costs as much as building a heap and taking a tenth of it. */
#define FEW_SHARE 64
#define RADIX_FROM 4096

static uint64_t key_of(float logit, uint32_t id)
{
    float no_minus_zero = logit + 0.0f;
    uint32_t bits;

    memcpy(&bits, &no_minus_zero, sizeof bits);
    bits = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
    return (uint64_t)bits << 32 | (uint32_t)~id;
}

/* Moves heap[i] down to where no child is greater. */
static void sift_down(uint64_t *heap, uint32_t n, uint32_t i)
{
    uint64_t key = heap[i];

    for (;;) {
        uint64_t child = 2 * (uint64_t)i + 1;

        if (child >= n)
            break;
        if (child + 1 < n && heap[child + 1] > heap[child])
            child++;
        if (heap[child] <= key)
            break;
        heap[i] = heap[child];
        i = (uint32_t)child;
    }
    heap[i] = key;
}

static void make_heap(uint64_t *keys, uint32_t n)
{
    for (uint32_t i = n / 2; i-- > 0;)
        sift_down(keys, n, i);
}

/* One pass of a least-significant-digit radix sort, ascending: by the 11 bits from `shift` up. Stable. */
static void radix_pass(const uint64_t *from, uint64_t *to, uint32_t n, unsigned shift)
{
    uint32_t place[2048] = {0}, before = 0;

    for (uint32_t i = 0; i < n; i++)
        place[from[i] >> shift & 2047]++;
    for (uint32_t digit = 0; digit < 2048; digit++) {
        uint32_t size = place[digit];

        place[digit] = before;
        before += size;
    }
    for (uint32_t i = 0; i < n; i++)
        to[place[from[i] >> shift & 2047]++] = from[i];
}

/* Ascending. Keys were gathered by descending id, that is by ascending low half, which a stable sort of the
 * high half keeps. The result lies in `spare` after three passes: the two swap names. */
static void sort_keys(struct rn_order *order)
{
    uint64_t *keys = order->keys;

    radix_pass(keys, order->spare, order->n_keys, 32);
    radix_pass(order->spare, keys, order->n_keys, 43);
    radix_pass(keys, order->spare, order->n_keys, 54);
    order->keys = order->spare;
    order->spare = keys;
}

/* The lowest logit of a band. */
static float floor_of(const struct rn_order *order, uint32_t band)
{
    static const double depth[BANDS - 1] = {8, 24};
    double bound = band < BANDS - 1 ? (double)order->best - depth[band] * order->temperature : -INFINITY;

    return bound < -FLT_MAX ? -FLT_MAX : (float)bound;
}

static void gather_band(struct rn_order *order)
{
    float low = floor_of(order, order->band), high = order->ceiling;
    uint32_t n = 0;

    for (uint32_t id = order->n_vocab; id-- > 0;) {
        float logit = order->logits[id];

        if (logit >= low && logit < high)
            order->keys[n++] = key_of(logit, id);
    }
    order->n_keys = n;
    order->ceiling = low;
    order->band++;
    order->sorted = n >= RADIX_FROM;
    if (order->sorted)
        sort_keys(order);
    else
        make_heap(order->keys, n);
}

static uint32_t n_blocks_of(const struct rn_order *order)
{
    return (order->n_vocab + RN_BLOCK - 1) / RN_BLOCK;
}

/* A logit below it is not among the best `most`. */
static float least_of_blocks(const struct rn_order *order)
{
    uint32_t n = n_blocks_of(order);
    float least = order->best;
    uint64_t key;

    if (order->maxima == NULL || n < order->most)
        return -FLT_MAX;
    for (uint32_t b = 0; b < n; b++)
        order->keys[b] = rn_key_of((double)order->maxima[b]);
    key = rn_select(order->keys, NULL, n, order->most).key;
    for (uint32_t b = 0; b < n; b++)
        if (order->maxima[b] < least && rn_key_of((double)order->maxima[b]) >= key)
            least = order->maxima[b];
    return least < -FLT_MAX ? -FLT_MAX : least;
}

/* The best `most` tokens in one scan. While it runs, keys is a heap of complements: at its top stands the
 * worst of the best so far. */
static void gather_few(struct rn_order *order)
{
    uint64_t *keys = order->keys;
    float worst = least_of_blocks(order); /* a logit below it cannot enter */
    uint32_t n = 0;

    for (uint32_t id = 0; id < order->n_vocab; id++) {
        float logit = order->logits[id];
        uint64_t key;

        if (order->maxima != NULL && id % RN_BLOCK == 0 && order->maxima[id / RN_BLOCK] < worst) {
            id += RN_BLOCK - 1;
            continue;
        }

        if (!(logit >= worst))
            continue;
        key = key_of(logit, id);
        if (n < order->most) {
            keys[n++] = ~key;
            if (n < order->most)
                continue;
            make_heap(keys, n);
        } else if (key > ~keys[0]) {
            keys[0] = ~key;
            sift_down(keys, n, 0);
        } else {
            continue;
        }
        worst = order->logits[(uint32_t)keys[0]]; /* the complement of a key ends in the id itself */
    }
    for (uint32_t i = 0; i < n; i++)
        keys[i] = ~keys[i];
    make_heap(keys, n);
    order->n_keys = n;
    order->band = BANDS;
    order->sorted = false;
}

void rn_order_begin(struct rn_order *order, const float *logits, const float *maxima, uint32_t n_vocab, float best,
                    double temperature, uint32_t most, uint64_t *keys)
{
    *order = (struct rn_order){.logits = logits,
                               .maxima = maxima,
                               .keys = keys,
                               .spare = keys + n_vocab,
                               .n_vocab = n_vocab,
                               .most = most,
                               .ceiling = INFINITY,
                               .best = best,
                               .temperature = temperature};
}

bool rn_order_next(struct rn_order *order, int32_t *token)
{
    if (order->most == 0)
        return false;
    if (order->band == 0 && order->most <= order->n_vocab / FEW_SHARE)
        gather_few(order);
    while (order->n_keys == 0) {
        if (order->band == BANDS)
            return false;
        gather_band(order);
    }
    order->most--;
    order->n_keys--;
    if (order->sorted) {
        *token = (int32_t) ~(uint32_t)order->keys[order->n_keys];
        return true;
    }
    *token = (int32_t) ~(uint32_t)order->keys[0];
    order->keys[0] = order->keys[order->n_keys];
    if (order->n_keys > 1)
        sift_down(order->keys, order->n_keys, 0);
    return true;
}
