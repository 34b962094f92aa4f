/* Attention of the unrolled steps: see attend.h. */
#include "train/attend.h"

#include <math.h>

#include "base/check.h"
#include "train/parts.h"

/* Which row of which step is the i-th key of a row of `step` at position t. */
static inline uint32_t key_step(uint32_t step, uint32_t t, uint32_t i)
{
    RN_ASSERT(step <= t && i <= t);
    return i <= t - step ? 0 : i - (t - step);
}

static void one_row(const struct rn_attend *at, uint32_t step, uint32_t t, uint32_t head)
{
    uint32_t dim = at->head_dim, kv = head / (at->heads / at->kv_heads);
    size_t here = ((size_t)t * at->heads + head) * dim;
    float *out = at->out[step] + here, most = -INFINITY, scale = 1.0f / sqrtf((float)dim);
    double sum = 0;

    RN_ASSERT(at->heads % at->kv_heads == 0 && head < at->heads && t < at->rows);
    for (uint32_t i = 0; i <= t; i++) {
        const float *key = at->k[key_step(step, t, i)] + ((size_t)i * at->kv_heads + kv) * dim;

        at->scores[i] = scale * rn_dot(at->q[step] + here, key, dim);
        most = fmaxf(most, at->scores[i]);
    }
    for (uint32_t i = 0; i <= t; i++)
        sum += at->scores[i] = expf(at->scores[i] - most);
    for (uint32_t d = 0; d < dim; d++)
        out[d] = 0;
    for (uint32_t i = 0; i <= t; i++)
        rn_axpy(out, (float)(at->scores[i] / sum), at->v[key_step(step, t, i)] + ((size_t)i * at->kv_heads + kv) * dim,
                dim);
    at->norms[step][(size_t)t * at->heads + head] = most + (float)log(sum);
}

void rn_attend_step(const struct rn_attend *at, uint32_t step)
{
    for (uint32_t t = step; t < at->rows; t++)
        for (uint32_t head = 0; head < at->heads; head++)
            one_row(at, step, t, head);
}

static void one_row_back(const struct rn_attend *at, uint32_t step, uint32_t t, uint32_t head, const float *d_out,
                         float *dq, float **dk, float **dv)
{
    uint32_t dim = at->head_dim, kv = head / (at->heads / at->kv_heads);
    size_t here = ((size_t)t * at->heads + head) * dim;
    const float *q = at->q[step] + here, *back = d_out + here;
    float scale = 1.0f / sqrtf((float)dim), norm = at->norms[step][(size_t)t * at->heads + head];
    float whole = rn_dot(back, at->out[step] + here, dim);

    for (uint32_t i = 0; i <= t; i++) {
        uint32_t from = key_step(step, t, i);
        size_t there = ((size_t)i * at->kv_heads + kv) * dim;
        float p = expf(scale * rn_dot(q, at->k[from] + there, dim) - norm);
        float ds = scale * p * (rn_dot(back, at->v[from] + there, dim) - whole);

        rn_axpy(dv[from] + there, p, back, dim);
        rn_axpy(dk[from] + there, ds, q, dim);
        rn_axpy(dq + here, ds, at->k[from] + there, dim);
    }
}

void rn_attend_back(const struct rn_attend *at, uint32_t step, const float *d_out, float *dq, float **dk, float **dv)
{
    for (uint32_t t = step; t < at->rows; t++)
        for (uint32_t head = 0; head < at->heads; head++)
            one_row_back(at, step, t, head, d_out, dq, dk, dv);
}
