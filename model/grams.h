/* Embeddings of n-grams (Engram: arXiv 2601.07372): which rows of a table the last tokens of a text choose.
 *
 * A token and the ones before it are mixed to a number, once for two tokens, once for three, ... up to `most`. Each
 * number chooses one row in each of `heads / (most - 1)` parts of the table by its remainder:
 *
 *     m_n = t_0 f_0 ^ t_1 f_1 ^ ... ^ t_(n-1) f_(n-1)         t_i: the token i places before; products modulo 2^64
 *     row_h = offsets_h + m_n mod sizes_h
 *
 * From a token `end` on everything further back is `end`, and so is what stands before the text; t_0 itself may be it.
 *
 * Constants of a plan. */
#ifndef RN_MODEL_GRAMS_H
#define RN_MODEL_GRAMS_H

#include <stdint.h>

enum { RN_MAX_GRAM = 8, RN_MAX_GRAM_HEADS = 64 };

struct rn_grams {
    uint32_t most;  /* tokens of the longest, from 2 on; 0: there are none */
    uint32_t heads; /* a multiple of most - 1: first those of two tokens */
    uint32_t end;
    uint64_t factors[RN_MAX_GRAM];                                 /* [most] */
    uint32_t sizes[RN_MAX_GRAM_HEADS], offsets[RN_MAX_GRAM_HEADS]; /* [heads] */
};

/* The `heads` rows that tokens[0..most) choose, the latest first, as op TOKEN has them: 1 more, and 0 before the text.
 */
static inline void rn_grams_rows(const struct rn_grams *grams, const float *tokens, int32_t *rows)
{
    uint32_t each = grams->heads / (grams->most - 1), end = 0, i, h;
    uint64_t mixed = 0, token;

    for (i = 0; i < grams->most; i++) {
        token = end || tokens[i] < 1 ? grams->end : (uint64_t)tokens[i] - 1;
        end = i > 0 && token == grams->end;
        mixed ^= token * grams->factors[i];
        for (h = (i - 1) * each; i > 0 && h < i * each; h++)
            rows[h] = (int32_t)(grams->offsets[h] + mixed % grams->sizes[h]);
    }
}

#endif
