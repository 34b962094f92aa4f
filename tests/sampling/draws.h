/* What the statistics of draws share (test_draws.c, test_texts.c): chains, the judge's probabilities, Pearson's
 * chi-square. Threshold: Wilson-Hilferty's approximation of the quantile at 1e-6 (z = 4.753). Seeds are fixed, so the
 * outcome is the same in every run. */
#ifndef TESTS_SAMPLING_DRAWS_H
#define TESTS_SAMPLING_DRAWS_H

#include <stdint.h>

#include "runnel.h"

#define DRAWS_OF_SEED 1000u
#define DRAWS_VOCAB 20u

struct draws_chain {
    const char *order;
    runnel_sampling p; /* what is 0 is off */
    runnel_samplers s;
};
extern const struct draws_chain draws_chains[];
extern const uint32_t draws_n_chains;

/* How many seeds: the program's argument, or enough for 250,000 draws. 1000 are a million draws, half a minute. */
uint64_t draws_seeds(int argc, char **argv);

/* The parameters of a chain. Penalties and dry look at three tokens. */
void draws_take_chain(uint32_t i, runnel_sampling *p, runnel_samplers *s);

double draws_normal(uint64_t *rng);

/* The judge's probabilities behind a past of three tokens. xtc's coin is among what is drawn: a mixture. */
void draws_expect(const char *order, const runnel_sampling *p, const float *logits, uint32_t n, const int32_t *past,
                  long double *expected);

/* Pearson's sum, cells with fewer than 5 expected draws as one; its degrees of freedom are added to *freedom. What is
 * drawn without a chance is infinitely far off. */
double draws_distance(const uint32_t *seen, const long double *p, uint32_t n, double *freedom);

/* Above 1: rejected. */
double draws_over_threshold(double sum, double freedom);

/* right: with the chain's own probabilities, which must not be rejected; wrong: with others, which must be. */
void draws_check(const char *order, double right, double wrong);

#endif
