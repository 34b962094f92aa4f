/* Where top-p ends: the shortest list of tokens from the best down whose weights sum to the share of all, by
 * rn_quick_weight, whose sums depend on no order.
 *
 * A vocabulary is gone through once, in most draws:
 *
 *   1. One token in thirty says roughly how the weights lie; the best few hundred, which the sample may miss, are looked
 *      up. So the end is guessed to lie between two logits, low and high.
 *   2. One sweep adds up all weights and those of logits above high, and collects the tokens between the two.
 *   3. Among these the end is found by a histogram (select.h).
 *
 *      logit   best ───────────── high ─ the end ─ low ──────────── light blocks
 *                    a sum             collected         a sum            bounded
 *
 * If the sums say that the end is not between the two, the sweep is made again on the side where it is. Blocks of which
 * no token can weigh much are left out, and counted in after all if the end could depend on them. So the guess decides
 * how long it takes, never where the end is. */
#ifndef RN_SAMPLING_TOP_P_H
#define RN_SAMPLING_TOP_P_H

#include "sampling/levels/loops.h"

/* A list of one in so many tokens costs about as much noise as the blocks of the vocabulary. */
#define RN_LIST_SHARE 4u

/* All borrowed for the length of the call. */
struct rn_top_p {
    const struct rn_loops *loops;
    const float *logits;
    const float *maxima; /* of each block of RN_BLOCK */
    uint32_t n_vocab;
    float best; /* the greatest logit */
    double temperature;
    float share;              /* below 1 */
    uint64_t *keys, *weights; /* [n_vocab] room */
    int32_t *tokens;          /* [n_vocab] room; see n_tokens */
};

struct rn_top_p_end {
    float logit;
    int32_t token;     /* the last that is kept */
    uint32_t n_tokens; /* tokens[n_tokens] are all that are kept and some that are not; n_vocab: they are too many */
};

struct rn_top_p_end rn_top_p_find(const struct rn_top_p *p);

#endif
