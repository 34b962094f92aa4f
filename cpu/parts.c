/* Ops over parts of rows on the fast path. Sums have eight lanes: lane i sums the values whose index is i modulo 8, in
 * order, and the lanes are added in one fixed tree, so that all levels agree to the bit (law 5). */
#include <math.h>
#include <string.h>

#include "cpu/execute.h"

enum { LANES = 8 };

static double add_lanes(const double s[LANES])
{
    return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

static double mean_of(const float *a, uint32_t n)
{
    double lanes[LANES] = {0};
    uint32_t i;

    for (i = 0; i < n; i++)
        lanes[i % LANES] += a[i];
    return add_lanes(lanes) / n;
}

/* The sum of squares of what is beyond `mean`. */
static double squares_of(const float *a, uint32_t n, double mean)
{
    double lanes[LANES] = {0};
    uint32_t i;

    for (i = 0; i < n; i++)
        lanes[i % LANES] += (a[i] - mean) * (a[i] - mean);
    return add_lanes(lanes);
}

void rn_fast_temper(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row)
{
    float factor = (float)rn_op_temperature(op, c->step->rows[row].position);

    c->fast->level->rows->scale(rn_fast_row(c, op->out, row), rn_fast_row(c, op->a, row), factor,
                                rn_fast_width(c, op->out));
}

void rn_fast_sum(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row)
{
    const float *a = rn_fast_row(c, op->a, row);
    float *out = rn_fast_row(c, op->out, row);
    uint32_t n = rn_fast_width(c, op->out), j;

    memcpy(out, a, n * sizeof *out);
    for (j = 1; j < op->used; j++)
        c->fast->level->rows->add(out, out, a + (size_t)j * n, n);
}

void rn_fast_spread(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row)
{
    const float *a = rn_fast_row(c, op->a, row), *b = rn_fast_row(c, op->b, row);
    uint32_t n = rn_fast_width(c, op->a), parts = rn_fast_width(c, op->b), j;
    float *out = rn_fast_row(c, op->out, row);

    for (j = 0; j < parts; j++, out += n)
        c->fast->level->rows->scale(out, a, b[j] + op->scale, n);
}

void rn_fast_expert_factor(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row)
{
    const int32_t *ids = (const int32_t *)rn_fast_row(c, op->b, row);
    const float *a = rn_fast_row(c, op->a, row), *w = c->fast->vectors[op->weight];
    float *out = rn_fast_row(c, op->out, row);
    uint32_t j, part = rn_fast_width(c, op->a) / op->used;

    for (j = 0; j < op->used; j++)
        c->fast->level->rows->scale(out + (size_t)j * part, a + (size_t)j * part, w[ids[j]], part);
}

void rn_fast_tail(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row)
{
    const float *a = rn_fast_row(c, op->a, row);
    float *out = rn_fast_row(c, op->out, row), from;
    uint32_t n = rn_fast_width(c, op->a), i;
    double mean = mean_of(a, n);

    from = (float)(mean + (double)op->scale * sqrt(squares_of(a, n, mean) / (n - 1)));
    for (i = 0; i < n; i++) /* what is no number stays */
        out[i] = a[i] <= from ? 0 : a[i] - from;
}

void rn_fast_resize(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row)
{
    double length = sqrt(squares_of(rn_fast_row(c, op->b, row), rn_fast_width(c, op->b), 0));
    const float *a = rn_fast_row(c, op->a, row);
    float *out = rn_fast_row(c, op->out, row);
    uint32_t n = rn_fast_width(c, op->a), i;

    for (i = 0; i < n; i += op->group)
        c->fast->level->rows->scale(out + i, a + i, (float)(length / sqrt(squares_of(a + i, op->group, 0))), op->group);
}

void rn_fast_mix(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row)
{
    const float *a = rn_fast_row(c, op->a, row), *b = rn_fast_row(c, op->b, row);
    uint32_t n = op->heads, part = rn_fast_width(c, op->a) / n, i, j;
    const struct rn_rows *rows = c->fast->level->rows;
    float *out = rn_fast_row(c, op->out, row);

    for (i = 0; i < n; i++, out += part) {
        rows->scale(out, a + (size_t)i * part, op->scale, part);
        for (j = 0; j < n; j++)
            rows->accumulate(out, a + (size_t)j * part, *b++, part);
    }
}

/* ---- Streams ---- */

/* The softmax of z[0..n), plus eps. */
static void soften(double *z, uint32_t n, double eps)
{
    double most = z[0], sum = 0;
    uint32_t j;

    for (j = 1; j < n; j++)
        most = z[j] > most ? z[j] : most;
    for (j = 0; j < n; j++)
        sum += z[j] = exp(z[j] - most);
    for (j = 0; j < n; j++)
        z[j] = z[j] / sum + eps;
}

/* The n numbers at z, z + step, ... divided by their sum plus eps. */
static void divide(double *z, uint32_t n, uint32_t step, double eps)
{
    double sum = eps;
    uint32_t j;

    for (j = 0; j < n; j++)
        sum += z[(size_t)j * step];
    for (j = 0; j < n; j++)
        z[(size_t)j * step] /= sum;
}

/* z[n, n] becomes the matrix of op HYPER. */
static void balance(const struct rn_op *op, double *z)
{
    uint32_t n = op->heads, turn = 0, i;

    for (i = 0; i < n; i++)
        soften(z + (size_t)i * n, n, op->eps);
    do {
        for (i = 0; i < n && turn > 0; i++)
            divide(z + (size_t)i * n, n, 1, op->eps);
        for (i = 0; i < n; i++)
            divide(z + i, n, n, op->eps);
    } while (++turn < op->turns);
}

void rn_fast_hyper(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row)
{
    const float *a = rn_fast_row(c, op->a, row), *base = rn_fast_vector(c, op->weight);
    double z[RN_MAX_STREAMS * RN_MAX_STREAMS], x;
    float *out = rn_fast_row(c, op->out, row);
    uint32_t n = op->heads, i;

    for (i = 0; i < 2 * n; i++) {
        x = 1 / (1 + exp(-((double)op->factors[i / n] * (double)a[i] + (double)base[i])));
        out[i] = (float)(i < n ? x + op->eps : 2 * x);
    }
    for (i = 0; i < n * n; i++)
        z[i] = (double)op->factors[2] * (double)a[2 * n + i] + (double)base[2 * n + i];
    balance(op, z);
    for (i = 0; i < n * n; i++)
        out[2 * n + i] = (float)z[i % n * n + i / n];
}
