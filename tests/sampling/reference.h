/* The judge: the sampling steps as they are written in runnel.h and sampler.h, in long double, by a
 * full sort, with no regard to speed. Shares no code with
 * sampling/. */
#ifndef TESTS_SAMPLING_REFERENCE_H
#define TESTS_SAMPLING_REFERENCE_H

#include <stdint.h>

#include "runnel.h"

/* At most this many tokens in a vocabulary of the tests. */
#define REFERENCE_VOCAB 40000

struct reference {
    int numeric; /* 1: no token can be drawn; the rest is unset */
    uint32_t n;  /* tokens kept by all filters, best first */
    int32_t token[REFERENCE_VOCAB];
    long double p[REFERENCE_VOCAB];       /* their probabilities; sum 1 */
    long double logprob[REFERENCE_VOCAB]; /* by id: log-softmax of the raw logits */
    uint32_t n_top;
    int32_t top[RUNNEL_MAX_TOP_LOGPROBS]; /* best raw logits */
};

/* history[n_history]: the sequence so far. Temperature 0 keeps one token with probability 1. */
void reference_run(struct reference *r, const runnel_sampling *params, const float *logits, uint32_t n_vocab,
                   const int32_t *history, uint32_t n_history);

/* The noise of a token, from its definition in sampling/noise.h, by the Philox of base/rng.h, whose known answers are
 * tested, and by libm. */
long double reference_noise(uint64_t seed, uint64_t position, int32_t token);

/* The token of the greatest log p + noise; *margin gets by how much it is ahead of the next one. Temperature 0: the
 * only one. */
int32_t reference_draw(const struct reference *r, uint64_t seed, uint64_t position, long double *margin);

/* No filter, no penalty, temperature 1. */
runnel_sampling reference_plain(void);

#endif
