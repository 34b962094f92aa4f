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
    float *out = rn_fast_row(c, op->out, row);

    memcpy(out, a, (size_t)n * part * sizeof *out);
    for (i = 0; i < n; i++, out += part)
        for (j = 0; j < n; j++)
            c->fast->level->rows->accumulate(out, a + (size_t)j * part, *b++, part);
}
