/* The head's loss as eagle.h defines it, written a second time, in double precision and without any of its order of
 * work: each row of each step asks for the rows it needs, and nothing is kept but whole rows. */
#ifndef DOUBLE_HEAD_H
#define DOUBLE_HEAD_H

#include "train/eagle.h"

/* Sum over the steps of decay^j times the mean cross-entropy of step j. loss [unroll] takes the means. */
double double_head(const struct rn_eagle_shape *shape, const double *weights, const struct rn_eagle_text *text,
                   const float *output, uint32_t unroll, double decay, double *loss);

/* Logits [vocab] and h [width] of step j at row t, with the rows that it needs: those of step 0 up to t - j, then one
 * of each step. What a head gives that has drafted j tokens behind row t - j. */
void double_head_row(const struct rn_eagle_shape *shape, const double *weights, const struct rn_eagle_text *text,
                     const float *output, uint32_t j, uint32_t t, double *logits, double *h);

#endif
