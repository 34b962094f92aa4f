/* Lazy descending order: see order.h.
 *
 * A heap key is one number: the logit's bits, made to compare like the logit, above the complement
 * of the id. The greater key is the better token, ties included. */
#include "sampling/order.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define BANDS 3

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

/* The lowest logit of a band. */
static float floor_of(const struct rn_order *order, uint32_t band)
{
    static const double depth[BANDS - 1] = {8, 24};
    double bound = band < BANDS - 1 ? (double)order->best - depth[band] * order->temperature : -INFINITY;

    return bound < -FLT_MAX ? -FLT_MAX : (float)bound;
}

static void gather(struct rn_order *order)
{
    float low = floor_of(order, order->band), high = order->ceiling;
    uint32_t n = 0;

    for (uint32_t id = 0; id < order->n_vocab; id++) {
        float logit = order->logits[id];

        if (logit >= low && logit < high)
            order->heap[n++] = key_of(logit, id);
    }
    for (uint32_t i = n / 2; i-- > 0;)
        sift_down(order->heap, n, i);
    order->n_heap = n;
    order->ceiling = low;
    order->band++;
}

void rn_order_begin(struct rn_order *order, const float *logits, uint32_t n_vocab, float best, double temperature,
                    uint64_t *heap)
{
    *order = (struct rn_order){.logits = logits,
                               .heap = heap,
                               .n_vocab = n_vocab,
                               .ceiling = INFINITY,
                               .best = best,
                               .temperature = temperature};
}

bool rn_order_next(struct rn_order *order, int32_t *token)
{
    while (order->n_heap == 0) {
        if (order->band == BANDS)
            return false;
        gather(order);
    }
    *token = (int32_t) ~(uint32_t)order->heap[0];
    order->heap[0] = order->heap[--order->n_heap];
    if (order->n_heap > 1)
        sift_down(order->heap, order->n_heap, 0);
    return true;
}
