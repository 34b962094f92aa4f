/* The judge of chains: each sampler as chain.h and docs/SAMPLING.md write it, in long double, with full sorts and no
 * regard to speed. Shares no code with sampling/. */
#ifndef TESTS_SAMPLING_CHAIN_REFERENCE_H
#define TESTS_SAMPLING_CHAIN_REFERENCE_H

#include <stdint.h>

#include "runnel.h"

#define CHAIN_VOCAB 4096

struct chain_reference {
    uint32_t n; /* candidates left, ascending ids */
    int32_t token[CHAIN_VOCAB];
    long double x[CHAIN_VOCAB];
    long double p[CHAIN_VOCAB];        /* their probabilities */
    long double original[CHAIN_VOCAB]; /* before adaptive_p */
    long double doubt; /* how near a filter was to another decision, relative; small: too close to call */
    /* state */
    int begun;
    long double mu, sum, count;
};

/* What the samplers in `order` (names with commas; only what is on is looked at, all of the list) leave of the logits.
 * history: all tokens so far; lengths of repetitions are found by comparing everything with everything. */
void chain_reference_run(struct chain_reference *r, const char *order, const runnel_sampling *params,
                         const float *logits, uint32_t n_vocab, const int32_t *history, uint32_t n_history,
                         uint64_t position);

/* The token of the greatest ln p + noise; *margin: how much it is ahead. */
int32_t chain_reference_draw(const struct chain_reference *r, uint64_t seed, uint64_t position, long double *margin);

/* What mirostat and adaptive_p remember of it. */
void chain_reference_take(struct chain_reference *r, const runnel_sampling *params, int32_t token);

#endif
