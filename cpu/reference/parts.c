/* Ops of the reference backend over parts of rows: see ops.c, whose rules hold here.
 *
 * Runs on worker 0 of the team only. */
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "cpu/reference/reference.h"

static float *floats(const struct rn_reference *ref, int16_t slot)
{
    return ref->slots[slot];
}

static uint32_t width_of(const struct rn_reference *ref, int16_t slot)
{
    return ref->plan->slots[slot].width;
}

static uint32_t rows_of(const struct rn_reference *ref, int16_t slot, const struct rn_step *step)
{
    const struct rn_slot *s = &ref->plan->slots[slot];

    return s->logits ? step->n_outs : s->selected ? ref->n_selected : step->n_rows;
}

/* The op's weight, a vector or a row for each group, decoded. */
static const float *vector(const struct rn_reference *ref, const struct rn_op *op, uint32_t row)
{
    const struct rn_weight *w = &ref->plan->weights[op->weight];

    w->type->decode((const unsigned char *)w->tensor->data + row * w->row_bytes, ref->row, w->cols);
    return ref->row;
}

void rn_reference_concat(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step)
{
    uint32_t heads = op->heads == 0 ? 1 : op->heads, width = width_of(ref, op->out) / heads;
    uint32_t front = width_of(ref, op->a) / heads;
    size_t i, n = (size_t)rows_of(ref, op->out, step) * heads;
    float *out = floats(ref, op->out);

    for (i = 0; i < n; i++, out += width) {
        memcpy(out, floats(ref, op->a) + i * front, front * sizeof *out);
        if (op->b >= 0)
            memcpy(out + front, floats(ref, op->b) + i * (width - front), (width - front) * sizeof *out);
    }
}

void rn_reference_split(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step)
{
    uint32_t r, part, i, n_rows = rows_of(ref, op->out, step), width = width_of(ref, op->a);
    const float *a = floats(ref, op->a);
    float *out = floats(ref, op->out);

    for (r = 0; r < n_rows; r++, a += width)
        for (part = 0; part < op->heads; part++)
            for (i = 0; i < op->k_dim; i++)
                *out++ = a[part * (width / op->heads) + op->group + i];
}

void rn_reference_temper(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step)
{
    uint32_t r, i, width = width_of(ref, op->out);
    double factor;

    for (r = 0; r < step->n_rows; r++) {
        factor = rn_op_temperature(op, step->rows[r].position);
        for (i = 0; i < width; i++)
            floats(ref, op->out)[(size_t)r * width + i] = (float)(factor * floats(ref, op->a)[(size_t)r * width + i]);
    }
}

void rn_reference_expert_sum(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step)
{
    uint32_t r, i, j, width = width_of(ref, op->out), n_rows = rows_of(ref, op->out, step);
    const float *a = floats(ref, op->a), *b = floats(ref, op->b);
    double sum;

    for (r = 0; r < n_rows; r++) {
        for (i = 0; i < width; i++) {
            sum = 0;
            for (j = 0; j < op->used; j++)
                sum += (double)b[(size_t)r * op->used + j] * a[((size_t)r * op->used + j) * width + i];
            floats(ref, op->out)[(size_t)r * width + i] = (float)sum;
        }
    }
}

void rn_reference_sum(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step)
{
    uint32_t r, i, j, width = width_of(ref, op->out), n_rows = rows_of(ref, op->out, step);
    const float *a = floats(ref, op->a);
    double sum;

    for (r = 0; r < n_rows; r++, a += (size_t)width * op->used) {
        for (i = 0; i < width; i++) {
            for (sum = 0, j = 0; j < op->used; j++)
                sum += a[(size_t)j * width + i];
            floats(ref, op->out)[(size_t)r * width + i] = (float)sum;
        }
    }
}

void rn_reference_spread(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step)
{
    uint32_t r, i, j, width = width_of(ref, op->a), parts = width_of(ref, op->b), n_rows = rows_of(ref, op->out, step);
    const float *a = floats(ref, op->a), *b = floats(ref, op->b);
    float *out = floats(ref, op->out);

    for (r = 0; r < n_rows; r++, a += width, b += parts)
        for (j = 0; j < parts; j++)
            for (i = 0; i < width; i++)
                *out++ = (float)(((double)b[j] + op->scale) * a[i]);
}

void rn_reference_expert_factor(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step)
{
    size_t i, part = width_of(ref, op->a) / op->used, n = (size_t)rows_of(ref, op->out, step) * op->used * part;
    const int32_t *ids = ref->slots[op->b];
    const float *w = vector(ref, op, 0);

    for (i = 0; i < n; i++) {
        RN_CHECK((uint32_t)ids[i / part] < op->experts);
        floats(ref, op->out)[i] = (float)((double)floats(ref, op->a)[i] * w[ids[i / part]]);
    }
}

static void tail_of(const float *a, uint32_t n, double scale, float *out)
{
    double mean = 0, square = 0, from;
    uint32_t i;

    for (i = 0; i < n; i++)
        mean += a[i];
    mean /= n;
    for (i = 0; i < n; i++)
        square += (a[i] - mean) * (a[i] - mean);
    from = mean + scale * sqrt(square / (n - 1));
    for (i = 0; i < n; i++)
        out[i] = a[i] <= from ? 0 : (float)(a[i] - from);
}

void rn_reference_tail(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step)
{
    uint32_t r, width = width_of(ref, op->out), n_rows = rows_of(ref, op->out, step);

    for (r = 0; r < n_rows; r++)
        tail_of(floats(ref, op->a) + (size_t)r * width, width, op->scale, floats(ref, op->out) + (size_t)r * width);
}

static double length_of(const float *a, uint32_t n)
{
    double square = 0;
    uint32_t i;

    for (i = 0; i < n; i++)
        square += (double)a[i] * a[i];
    return sqrt(square);
}

void rn_reference_resize(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step)
{
    uint32_t width = width_of(ref, op->out), like = width_of(ref, op->b), i;
    size_t at, n = (size_t)rows_of(ref, op->out, step) * width;
    const float *a;
    double factor;

    for (at = 0; at < n; at += op->group) {
        a = floats(ref, op->a) + at;
        factor = length_of(floats(ref, op->b) + at / width * like, like) / length_of(a, op->group);
        for (i = 0; i < op->group; i++)
            floats(ref, op->out)[at + i] = (float)(a[i] * factor);
    }
}

void rn_reference_mix(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step)
{
    uint32_t n = op->heads, width = width_of(ref, op->a), part = width / n, n_rows = rows_of(ref, op->out, step), r, k,
             j;
    const float *a = floats(ref, op->a), *b = floats(ref, op->b);
    double sum;

    for (r = 0; r < n_rows; r++, a += width, b += n * n) {
        for (k = 0; k < width; k++) {
            for (sum = (double)op->scale * a[k], j = 0; j < n; j++)
                sum += (double)b[k / part * n + j] * a[j * part + k % part];
            floats(ref, op->out)[(size_t)r * width + k] = (float)sum;
        }
    }
}

/* Rows of m[n, n], or columns, divided by their sums plus eps. */
static void divide(double *m, uint32_t n, double eps, bool columns)
{
    size_t along = columns ? n : 1, across = columns ? 1 : n;
    uint32_t i, j;
    double sum;

    for (i = 0; i < n; i++) {
        for (sum = eps, j = 0; j < n; j++)
            sum += m[i * across + j * along];
        for (j = 0; j < n; j++)
            m[i * across + j * along] /= sum;
    }
}

/* z[n, n] becomes the matrix of op HYPER. */
static void balance(const struct rn_op *op, double *z)
{
    uint32_t n = op->heads, i, j, turn;
    double most, sum;

    for (i = 0; i < n; i++) {
        for (most = -INFINITY, j = 0; j < n; j++)
            most = fmax(most, z[i * n + j]);
        for (sum = 0, j = 0; j < n; j++)
            sum += z[i * n + j] = exp(z[i * n + j] - most);
        for (j = 0; j < n; j++)
            z[i * n + j] = z[i * n + j] / sum + op->eps;
    }
    divide(z, n, op->eps, true);
    for (turn = 1; turn < op->turns; turn++) {
        divide(z, n, op->eps, false);
        divide(z, n, op->eps, true);
    }
}

void rn_reference_hyper(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step)
{
    uint32_t n = op->heads, all = (2 + n) * n, n_rows = rows_of(ref, op->out, step), r, i;
    const float *a = floats(ref, op->a), *base = vector(ref, op, 0);
    double z[RN_MAX_STREAMS * RN_MAX_STREAMS], x;
    float *out = floats(ref, op->out);

    for (r = 0; r < n_rows; r++, a += all, out += all) {
        for (i = 0; i < 2 * n; i++) {
            x = 1 / (1 + exp(-((double)op->factors[i / n] * a[i] + base[i])));
            out[i] = (float)(i < n ? x + op->eps : 2 * x);
        }
        for (i = 0; i < n * n; i++)
            z[i] = (double)op->factors[2] * a[2 * n + i] + base[2 * n + i];
        balance(op, z);
        for (i = 0; i < n * n; i++)
            out[2 * n + i] = (float)z[i % n * n + i / n];
    }
}
