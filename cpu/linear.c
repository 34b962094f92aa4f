/* Linear attention on the team, and what goes with it. Workers share heads and parts of their columns: whoever has some
 * goes through all rows of the step, a run of each sequence after the other, in order.
 *
 * Law 5: a row's column is computed from the state behind the row before it, by the same call, wherever a step begins
 * and whoever has it. */
#include <math.h>
#include <string.h>

#include "base/min.h"
#include "cpu/execute.h"
#include "model/stop.h"

/* Of one piece of work: some cache lines; columns that a level keeps in registers, and four pieces of the usual head.
 * */
enum { CHANNELS = 256, COLUMNS = 32 };

/* ---- Values ---- */

void rn_fast_times_weight(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row)
{
    uint32_t width = rn_fast_width(c, op->a), cols = c->fast->plan->weights[op->weight].cols, n = width / cols, i;
    const float *a = rn_fast_row(c, op->a, row), *w = c->fast->vectors[op->weight];
    float *out = rn_fast_row(c, op->out, row);

    if (n == 1)
        c->fast->level->rows->gate(out, a, w, RN_ACT_NONE, width);
    for (i = 0; n > 1 && i < cols; i++)
        c->fast->level->rows->scale(out + (size_t)i * n, a + (size_t)i * n, w[i], n);
}

void rn_fast_add_weight(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row)
{
    uint32_t width = rn_fast_width(c, op->a), n = width / c->fast->plan->weights[op->weight].cols, i;
    const float *a = rn_fast_row(c, op->a, row), *w = c->fast->vectors[op->weight];
    float *out = rn_fast_row(c, op->out, row);

    if (n == 1)
        c->fast->level->rows->add(out, a, w, width);
    for (i = 0; n > 1 && i < width; i++)
        out[i] = a[i] + w[i / n];
}

void rn_fast_over_weight(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row)
{
    uint32_t width = rn_fast_width(c, op->a), n = width / c->fast->plan->weights[op->weight].cols, i;
    const float *a = rn_fast_row(c, op->a, row), *w = c->fast->vectors[op->weight];
    float *out = rn_fast_row(c, op->out, row);

    for (i = 0; i < width; i++)
        out[i] = a[i] / w[i / n];
}

void rn_fast_lerp(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row)
{
    const float *a = rn_fast_row(c, op->a, row), *b = rn_fast_row(c, op->b, row), *w = c->fast->vectors[op->weight];
    uint32_t width = rn_fast_width(c, op->a), parts = rn_fast_width(c, op->out) / width, i;
    float *out = rn_fast_row(c, op->out, row);

    for (; parts > 0; parts--, out += width, w += width)
        for (i = 0; i < width; i++)
            out[i] = a[i] + (b[i] - a[i]) * w[i];
}

void rn_fast_scatter(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row)
{
    const float *a = rn_fast_row(c, op->a, row), *to = c->fast->vectors[op->weight];
    uint32_t width = rn_fast_width(c, op->out), i;
    float *out = rn_fast_row(c, op->out, row);

    for (i = 0; i < width; i++)
        out[i] = -INFINITY;
    for (i = 0; i < rn_fast_width(c, op->a); i++)
        if (to[i] >= 0 && to[i] < (float)width) /* builders have looked; the file may be another since */
            out[(uint32_t)to[i]] = a[i];
}

void rn_fast_part_sum(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row)
{
    const float *a = rn_fast_row(c, op->a, row);
    uint32_t part = rn_fast_width(c, op->a) / op->heads, h, i;
    double sum;

    for (h = 0; h < op->heads; h++, a += part) {
        for (sum = 0, i = 0; i < part; i++)
            sum += a[i];
        rn_fast_row(c, op->out, row)[h] = (float)sum;
    }
}

void rn_fast_repeat(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row)
{
    const float *a = rn_fast_row(c, op->a, row);
    uint32_t part = rn_fast_width(c, op->a) / op->heads, i;
    float *out = rn_fast_row(c, op->out, row);

    for (i = 0; i < op->heads * op->used; i++)
        memcpy(out + (size_t)i * part, a + (size_t)(i / op->used) * part, part * sizeof *out);
}

/* ---- The row before ---- */

static void shift_run(const struct rn_fast_context *c, const struct rn_op *op, struct rn_fast_run run, uint32_t first,
                      uint32_t n)
{
    uint32_t r;

    memcpy(rn_fast_row(c, op->out, run.row) + first, run.state + first, n * sizeof(float));
    for (r = run.row + 1; r < run.row + run.n; r++)
        memcpy(rn_fast_row(c, op->out, r) + first, rn_fast_row(c, op->a, r - 1) + first, n * sizeof(float));
    memcpy(run.state + first, rn_fast_row(c, op->a, run.row + run.n - 1) + first, n * sizeof(float));
}

void rn_fast_shift(const struct rn_fast_context *c, uint32_t index)
{
    const struct rn_op *op = c->fast->program.list[index].op;
    uint32_t width = rn_fast_width(c, op->a), i;
    struct rn_fast_run run;

    while ((uint64_t)(i = rn_fast_take(c, index)) * CHANNELS < width && !rn_stop_is_set(c->step->stop))
        for (run = rn_fast_next_run(c, op, (struct rn_fast_run){0}); run.n > 0; run = rn_fast_next_run(c, op, run))
            shift_run(c, op, run, i * CHANNELS, rn_min_u32(width - i * CHANNELS, CHANNELS));
}

/* ---- Linear attention ---- */

/* n columns of a head, and room for what stands in no slot. */
struct piece {
    uint32_t head, first, n;
    float w[RN_MAX_STATE_DIM], x[RN_MAX_STATE_DIM], v[COLUMNS];
};

static void set_wkv(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row, const struct piece *p,
                    struct rn_linear *t)
{
    const float *a = rn_fast_row(c, op->a, row), *b = rn_fast_row(c, op->b, row);
    size_t all = (size_t)op->heads * op->k_dim, at = (size_t)p->head * op->k_dim;

    t->q = a + at;
    t->k = a + all + at;
    t->v = a + 2 * all + (size_t)p->head * op->v_dim + p->first;
    t->w = b + at;
    if (op->kind == RN_OP_WKV6)
        t->bonus = c->fast->vectors[op->weight] + at;
    else if (rn_fast_width(c, op->b) > all) {
        t->x = b + all + at;
        t->y = b + 2 * all + at;
    }
}

/* beta (v - k (w S)) = beta v + x S with x = -beta w k: what WKV7 erases. */
static void set_delta(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row, struct piece *p,
                      struct rn_linear *t)
{
    const float *a = rn_fast_row(c, op->a, row), *v = rn_fast_row(c, op->b, row);
    const float *w = v + (size_t)op->heads * op->v_dim, *beta = w + (size_t)op->heads * op->group;
    uint32_t head = op->tiled ? p->head % op->kv_heads : p->head / (op->heads / op->kv_heads), i;

    t->q = a + (size_t)head * op->k_dim;
    t->k = t->q + (size_t)op->kv_heads * op->k_dim;
    t->x = p->x;
    t->w = p->w;
    t->v = p->v;
    for (i = 0; i < op->k_dim; i++) {
        p->w[i] = w[(size_t)p->head * op->group + (op->group == 1 ? 0 : i)];
        p->x[i] = -beta[p->head] * p->w[i] * t->k[i];
    }
    for (i = 0; i < p->n; i++)
        p->v[i] = beta[p->head] * v[(size_t)p->head * op->v_dim + p->first + i];
}

static void linear_run(const struct rn_fast_context *c, const struct rn_op *op, struct rn_fast_run run, struct piece *p)
{
    struct rn_linear t = {.state = run.state + (size_t)p->head * op->k_dim * op->v_dim + p->first,
                          .stride = op->v_dim,
                          .scale = op->scale,
                          .k_dim = op->k_dim,
                          .n = p->n};
    uint32_t r;

    for (r = run.row; r < run.row + run.n; r++) {
        t.out = rn_fast_row(c, op->out, r) + (size_t)p->head * op->v_dim + p->first;
        if (op->kind == RN_OP_GATED_DELTA)
            set_delta(c, op, r, p, &t);
        else
            set_wkv(c, op, r, p, &t);
        c->fast->level->rows->linear(&t);
    }
}

void rn_fast_linear(const struct rn_fast_context *c, uint32_t index)
{
    const struct rn_op *op = c->fast->program.list[index].op;
    uint32_t parts = (op->v_dim + COLUMNS - 1) / COLUMNS, i;
    struct rn_fast_run run;
    struct piece p;

    while ((i = rn_fast_take(c, index)) < op->heads * parts && !rn_stop_is_set(c->step->stop)) {
        p.head = i / parts;
        p.first = i % parts * COLUMNS;
        p.n = rn_min_u32(op->v_dim - p.first, COLUMNS);
        for (run = rn_fast_next_run(c, op, (struct rn_fast_run){0}); run.n > 0; run = rn_fast_next_run(c, op, run))
            linear_run(c, op, run, &p);
    }
}
