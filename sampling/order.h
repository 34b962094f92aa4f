/* The tokens of a vocabulary from the best down: descending logit, then ascending id, found as far as
 * they are asked for.
 *
 *   logit   best ───── best-8T ───────── best-24T ─────────────── lowest finite
 *           │  band 0  │      band 1     │          band 2        │
 *
 * Only the band in use is gathered (one scan) and made a heap; a token costs log2(band) comparisons.
 * The order is that of a full sort whatever the bands are; their depths are a guess at how far a
 * caller goes: beyond 8 temperatures lies a weight of e^-8, beyond 24 one that no coin shows.
 * Tokens with a logit of -inf never appear. */
#ifndef RN_SAMPLING_ORDER_H
#define RN_SAMPLING_ORDER_H

#include <stdbool.h>
#include <stdint.h>

struct rn_order {
    const float *logits;
    uint64_t *heap; /* [n_heap], the greatest key at 0 */
    uint32_t n_vocab;
    uint32_t n_heap;
    uint32_t band; /* the next one to gather */
    float ceiling; /* logits below it have not been gathered */
    float best;
    double temperature;
};

/* logits [n_vocab]: no NaN, no +inf; best: the greatest of them; heap: memory for n_vocab keys. All borrowed
 * until the last rn_order_next. */
void rn_order_begin(struct rn_order *order, const float *logits, uint32_t n_vocab, float best, double temperature,
                    uint64_t *heap);

/* The next token; false when only logits of -inf are left. */
bool rn_order_next(struct rn_order *order, int32_t *token);

#endif
