/* Attention of the unrolled steps and its way back; see eagle.h for who sees whom.
 *
 * A row of step j at position t (t >= j) sees t + 1 keys: t - j + 1 of step 0, and one of each later step i <= j.
 *     s = scale * q·k      p = softmax(s)      out = sum p v
 *     dv += p * dout       ds = p * (dout·v - dout·out)      dq += scale * ds * k      dk += scale * ds * q
 *
 * Threads: pure functions. */
#ifndef RN_TRAIN_ATTEND_H
#define RN_TRAIN_ATTEND_H

#include <stdint.h>

struct rn_attend {
    uint32_t rows; /* positions 0..rows-1 of each step */
    uint32_t heads, kv_heads, head_dim;
    float **q, **k, **v; /* of each step [rows, heads or kv_heads, head_dim], rotated; rows below the step
                            unused */
    float **out;         /* [rows, heads, head_dim] */
    float **norms;       /* [rows, heads]: log of the sum of exp(s) */
    float *scores;       /* [rows] */
};

/* Fills out and norms of a step. */
void rn_attend_step(const struct rn_attend *attend, uint32_t step);

/* d_out [rows, heads, head_dim] of that step; dq likewise; dk, dv of each step. */
void rn_attend_back(const struct rn_attend *attend, uint32_t step, const float *d_out, float *dq, float **dk,
                    float **dv);

#endif
