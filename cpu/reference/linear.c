/* The reference backend's linear attention, and the ops on values that go with it: see ops.c. */
#include <math.h>
#include <string.h>

#include "cpu/reference/reference.h"

static float *row_of(const struct rn_reference *ref, int16_t slot, uint32_t r)
{
    return (float *)ref->slots[slot] + (size_t)r * ref->plan->slots[slot].width;
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

/* A weight of one row; valid until the next call. */
static const float *numbers(struct rn_reference *ref, int32_t weight)
{
    const struct rn_weight *w = &ref->plan->weights[weight];

    w->type->decode(w->tensor->data, ref->row, w->cols);
    return ref->row;
}

/* ---- Values ---- */

/* Each value and the weight's for it. */
#define BY_WEIGHT(name, operator)                                                                          \
    void rn_reference_##name(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step) \
    {                                                                                                      \
        const float *w = numbers(ref, op->weight);                                                         \
        uint32_t width = width_of(ref, op->a), n = width / ref->plan->weights[op->weight].cols, r, i;      \
                                                                                                           \
        for (r = 0; r < rows_of(ref, op->out, step); r++)                                                  \
            for (i = 0; i < width; i++)                                                                    \
                row_of(ref, op->out, r)[i] = (float)((double)row_of(ref, op->a, r)[i] operator w[i / n]);  \
    }
BY_WEIGHT(times_weight, *)
BY_WEIGHT(add_weight, +)
BY_WEIGHT(over_weight, /)

void rn_reference_lerp(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step)
{
    const float *w = numbers(ref, op->weight);
    uint32_t width = width_of(ref, op->a), r, i;
    double a, b;

    for (r = 0; r < rows_of(ref, op->out, step); r++) {
        for (i = 0; i < width_of(ref, op->out); i++) {
            a = row_of(ref, op->a, r)[i % width];
            b = row_of(ref, op->b, r)[i % width];
            row_of(ref, op->out, r)[i] = (float)(a + (b - a) * w[i]);
        }
    }
}

void rn_reference_scatter(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step)
{
    const float *to = numbers(ref, op->weight);
    uint32_t width = width_of(ref, op->out), r, i;

    for (r = 0; r < rows_of(ref, op->out, step); r++) {
        for (i = 0; i < width; i++)
            row_of(ref, op->out, r)[i] = -INFINITY;
        for (i = 0; i < width_of(ref, op->a); i++)
            if (to[i] >= 0 && to[i] < (float)width) /* builders have looked; the file may be another since */
                row_of(ref, op->out, r)[(uint32_t)to[i]] = row_of(ref, op->a, r)[i];
    }
}

void rn_reference_part_sum(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step)
{
    uint32_t part = width_of(ref, op->a) / op->heads, r, h, i;
    double sum;

    for (r = 0; r < rows_of(ref, op->out, step); r++) {
        for (h = 0; h < op->heads; h++) {
            for (sum = 0, i = 0; i < part; i++)
                sum += row_of(ref, op->a, r)[(size_t)h * part + i];
            row_of(ref, op->out, r)[h] = (float)sum;
        }
    }
}

void rn_reference_repeat(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step)
{
    uint32_t part = width_of(ref, op->a) / op->heads, r, i;

    for (r = 0; r < rows_of(ref, op->out, step); r++)
        for (i = 0; i < width_of(ref, op->out); i++)
            row_of(ref, op->out, r)[i] = row_of(ref, op->a, r)[i / (part * op->used) * part + i % part];
}

/* ---- With a state ---- */

void rn_reference_shift(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step)
{
    size_t bytes = width_of(ref, op->a) * sizeof(float);
    float *state;
    uint32_t r;

    for (r = 0; r < step->n_rows; r++) {
        state = rn_reference_state(ref, op, step, r);
        memcpy(row_of(ref, op->out, r), state, bytes);
        memcpy(state, row_of(ref, op->a, r), bytes);
    }
}

/* The state of head h of row r, [k_dim, v_dim]. */
static float *head_state(const struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step, uint32_t r,
                         uint32_t h)
{
    return rn_reference_state(ref, op, step, r) + (size_t)h * op->k_dim * op->v_dim;
}

void rn_reference_wkv6(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step)
{
    uint32_t all = op->heads * op->k_dim, r, h, i, j;
    const float *bonus = numbers(ref, op->weight), *q, *k, *v, *w;
    double sum, pair;
    float *s;

    for (r = 0; r < step->n_rows; r++) {
        for (h = 0; h < op->heads; h++) {
            q = row_of(ref, op->a, r) + (size_t)h * op->k_dim;
            k = q + all;
            v = row_of(ref, op->a, r) + 2 * (size_t)all + (size_t)h * op->v_dim;
            w = row_of(ref, op->b, r) + (size_t)h * op->k_dim;
            for (j = 0; j < op->v_dim; j++) {
                for (sum = 0, i = 0; i < op->k_dim; i++) {
                    s = head_state(ref, op, step, r, h) + (size_t)i * op->v_dim + j;
                    pair = (double)k[i] * v[j];
                    sum += q[i] * (*s + bonus[(size_t)h * op->k_dim + i] * pair);
                    *s = (float)((double)w[i] * *s + pair);
                }
                row_of(ref, op->out, r)[(size_t)h * op->v_dim + j] = (float)sum;
            }
        }
    }
}

void rn_reference_wkv7(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step)
{
    uint32_t all = op->heads * op->k_dim, r, h, i, j;
    bool erases = width_of(ref, op->b) > all;
    const float *q, *k, *v, *w;
    double sum, erased;
    float *s;

    for (r = 0; r < step->n_rows; r++) {
        for (h = 0; h < op->heads; h++) {
            q = row_of(ref, op->a, r) + (size_t)h * op->k_dim;
            k = q + all;
            v = row_of(ref, op->a, r) + 2 * (size_t)all + (size_t)h * op->v_dim;
            w = row_of(ref, op->b, r) + (size_t)h * op->k_dim; /* w[all + i] is x, w[2 * all + i] y */
            for (j = 0; j < op->v_dim; j++) {
                s = head_state(ref, op, step, r, h) + j;
                for (erased = 0, i = 0; erases && i < op->k_dim; i++)
                    erased += (double)w[all + i] * s[(size_t)i * op->v_dim];
                for (sum = 0, i = 0; i < op->k_dim; i++, s += op->v_dim) {
                    *s = (float)((double)w[i] * *s + (double)k[i] * v[j] + (erases ? w[2 * all + i] * erased : 0));
                    sum += (double)q[i] * *s;
                }
                row_of(ref, op->out, r)[(size_t)h * op->v_dim + j] = (float)(op->scale * sum);
            }
        }
    }
}

void rn_reference_gated_delta(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step)
{
    uint32_t r, h, of, i, j;
    const float *q, *k, *v, *w, *beta;
    double sum, erased, d;
    float *s;

    for (r = 0; r < step->n_rows; r++) {
        for (h = 0; h < op->heads; h++) {
            of = op->tiled ? h % op->kv_heads : h / (op->heads / op->kv_heads);
            q = row_of(ref, op->a, r) + (size_t)of * op->k_dim;
            k = q + (size_t)op->kv_heads * op->k_dim;
            v = row_of(ref, op->b, r) + (size_t)h * op->v_dim;
            w = row_of(ref, op->b, r) + (size_t)op->heads * op->v_dim + (size_t)h * op->group;
            beta = row_of(ref, op->b, r) + (size_t)op->heads * (op->v_dim + op->group) + h;
            for (j = 0; j < op->v_dim; j++) {
                s = head_state(ref, op, step, r, h) + j;
                for (erased = 0, i = 0; i < op->k_dim; i++)
                    erased += (double)k[i] * w[i % op->group] * s[(size_t)i * op->v_dim];
                d = *beta * (v[j] - erased);
                for (sum = 0, i = 0; i < op->k_dim; i++, s += op->v_dim) {
                    *s = (float)((double)w[i % op->group] * *s + k[i] * d);
                    sum += (double)q[i] * *s;
                }
                row_of(ref, op->out, r)[(size_t)h * op->v_dim + j] = (float)(op->scale * sum);
            }
        }
    }
}
