/* The tokens of a vocabulary from the best down: descending logit, then ascending id, found as far as
 * they are asked for.
 *
 *   logit   best ───── best-8T ───────── best-24T ─────────────── lowest finite
 *           │  band 0  │      band 1     │          band 2        │
 *
 * Only the band in use is gathered: one scan. A small band becomes a heap, from which a token costs
 * log2(band) comparisons; a large one is sorted by radix, since whoever walks a flat distribution walks
 * far. A caller who wants few tokens says so: then one scan keeps the best of them, and there are no bands. With the
 * greatest logit of each block of the vocabulary at hand this scan looks at few blocks: of the blocks whose greatest
 * are the best `most`, each has a token that is as good, so a block below all of these has none of the best.
 *
 * The order is that of a full sort in each of the three ways. The depths of the bands are a guess at how
 * far a caller goes: beyond 8 temperatures lies a weight of e^-8, beyond 24 one that hardly any draw shows.
 * Tokens with a logit of -inf never appear. */
#ifndef RN_SAMPLING_ORDER_H
#define RN_SAMPLING_ORDER_H

#include <stdbool.h>
#include <stdint.h>

struct rn_order {
    const float *logits;
    const float *maxima; /* of blocks of RN_BLOCK; NULL: not known */
    uint64_t *keys;      /* [n_keys] gathered: a heap with the greatest at 0, or sorted with the greatest last */
    uint64_t *spare;     /* [n_vocab] for the radix sort */
    uint32_t n_vocab;
    uint32_t n_keys;
    uint32_t most; /* so many will be asked for */
    uint32_t band; /* the next one to gather */
    bool sorted;
    float ceiling; /* logits below it have not been gathered */
    float best;
    double temperature;
};

/* logits [n_vocab]: no NaN, no +inf; maxima: the greatest of each block of RN_BLOCK of them, or NULL; best: the
 * greatest of all; most: how many tokens will be asked for at most; keys: memory for 2 × n_vocab keys. All borrowed
 * until the last rn_order_next. */
void rn_order_begin(struct rn_order *order, const float *logits, const float *maxima, uint32_t n_vocab, float best,
                    double temperature, uint32_t most, uint64_t *keys);

/* The next token; false when only logits of -inf are left, or `most` have been given. */
bool rn_order_next(struct rn_order *order, int32_t *token);

#endif
