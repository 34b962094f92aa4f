/* Running a step on the team: see program.h for phases and fast.h for the memory.
 *
 * Law 5 here: a piece of work (rows of a weight, a head of an attention) is computed in the same way
 * whoever takes it; how many rows are handed to a kernel together does not show in its results. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "cpu/execute.h"
#include "cpu/route.h"
#include "model/op_info.h"
#include "model/stop.h"

/* ---- Ops by rows ---- */

/* Row `index` of the op's table, times its scale, to `row`. */
static void look_up(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row, uint32_t index)
{
    const struct rn_weight *w = &c->fast->plan->weights[op->weight];
    const uint8_t *table = w->tensor->data;
    float *out = rn_fast_row(c, op->out, row);

    w->type->decode(table + (size_t)index * w->row_bytes, out, w->cols);
    if (op->scale != 1)
        c->fast->level->rows->scale(out, out, op->scale, w->cols);
}

static void op_embed(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row)
{
    look_up(c, op, row, (uint32_t)c->step->rows[row].token);
}

static void op_embed_position(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row)
{
    look_up(c, op, row, c->step->rows[row].position);
}

static void op_token(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row)
{
    rn_fast_row(c, op->out, row)[0] = (float)(c->step->rows[row].token + 1);
}

static void op_adapter(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row)
{
    *(int32_t *)rn_fast_row(c, op->out, row) = (int32_t)c->step->seqs[c->step->rows[row].seq].adapter;
}

static void op_adapt(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row)
{
    float *out = rn_fast_row(c, op->out, row);
    const float *b = rn_fast_row(c, op->b, row);
    uint32_t n = rn_fast_width(c, op->out), i;
    float plus;

    for (i = 0; i < n; i++) {
        plus = b[i];
        plus = plus == 0 ? -0.0f : plus; /* leaves even zeros as they are; with a branch the loop has no vectors */
        out[i] = out[i] + plus;
    }
}

static void op_grams(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row)
{
    rn_grams_rows(&c->fast->plan->grams, rn_fast_row(c, op->a, row), (int32_t *)rn_fast_row(c, op->out, row));
}

static void op_look_up(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row)
{
    const struct rn_weight *w = &c->fast->plan->weights[op->weight];
    const int32_t *ids = (const int32_t *)rn_fast_row(c, op->a, row);
    float *out = rn_fast_row(c, op->out, row);
    uint32_t i;

    for (i = 0; i < op->used; i++)
        w->type->decode((const uint8_t *)w->tensor->data + (size_t)ids[i] * w->row_bytes, out + (size_t)i * w->cols,
                        w->cols);
}

static void op_bar(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row)
{
    float *out = rn_fast_row(c, op->out, row);
    uint32_t i;

    if (op->out != op->a)
        memcpy(out, rn_fast_row(c, op->a, row), rn_fast_width(c, op->out) * sizeof *out);
    for (i = 0; i < op->used; i++)
        out[op->group + i] = -INFINITY;
}

static void op_signed_root(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row)
{
    const float *a = rn_fast_row(c, op->a, row);
    float *out = rn_fast_row(c, op->out, row), eps = (float)op->eps;
    uint32_t n = rn_fast_width(c, op->out), i;

    for (i = 0; i < n; i++)
        out[i] = a[i] == 0 ? a[i] : copysignf(sqrtf(fabsf(a[i]) < eps ? eps : fabsf(a[i])), a[i]);
}

static void op_embed_ids(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row)
{
    const struct rn_weight *w = &c->fast->plan->weights[op->weight];

    memcpy(rn_fast_row(c, op->out, row),
           (const uint8_t *)w->tensor->data + (size_t)c->step->rows[row].token * w->row_bytes, w->row_bytes);
}

/* Of the i-th group of a norm's row: its part of a vector, which has one for all groups or one for each. */
static const float *part(const struct rn_fast_context *c, int32_t weight, uint32_t i, uint32_t group)
{
    const float *all = rn_fast_vector(c, weight);

    return all == NULL || c->fast->plan->weights[weight].rows == 1 ? all : all + (size_t)i * group;
}

static void op_rms_norm(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row)
{
    const struct rn_rows *rows = c->fast->level->rows;
    const float *a = rn_fast_row(c, op->a, row);
    float *out = rn_fast_row(c, op->out, row);
    uint32_t n = rn_fast_width(c, op->a), group = op->group == 0 ? n : op->group, i;

    for (i = 0; i < n / group; i++, a += group, out += group) {
        rows->rms_norm(out, a, part(c, op->weight, i, group), group, op->eps);
        if (op->bias >= 0)
            rows->add(out, out, part(c, op->bias, i, group), group);
    }
}

static void op_layer_norm(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row)
{
    const float *a = rn_fast_row(c, op->a, row);
    float *out = rn_fast_row(c, op->out, row);
    uint32_t n = rn_fast_width(c, op->a), group = op->group == 0 ? n : op->group, i;

    for (i = 0; i < n / group; i++, a += group, out += group)
        c->fast->level->rows->layer_norm(out, a, part(c, op->weight, i, group), part(c, op->bias, i, group), group,
                                         op->eps);
}

static void op_add(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row)
{
    c->fast->level->rows->add(rn_fast_row(c, op->out, row), rn_fast_row(c, op->a, row), rn_fast_row(c, op->b, row),
                              rn_fast_width(c, op->out));
}

static void op_scale(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row)
{
    c->fast->level->rows->scale(rn_fast_row(c, op->out, row), rn_fast_row(c, op->a, row), op->scale,
                                rn_fast_width(c, op->out));
}

static void op_softcap(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row)
{
    c->fast->level->rows->softcap(rn_fast_row(c, op->out, row), rn_fast_row(c, op->a, row), op->scale,
                                  rn_fast_width(c, op->out));
}

static void op_clamp(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row)
{
    const float *a = rn_fast_row(c, op->a, row);
    float *out = rn_fast_row(c, op->out, row), most = op->scale;
    uint32_t n = rn_fast_width(c, op->out), i;

    for (i = 0; i < n; i++) /* what is no number stays */
        out[i] = a[i] > most ? most : a[i] < -most ? -most : a[i];
}

static void op_activate(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row)
{
    const float *a = rn_fast_row(c, op->a, row), *bias = rn_fast_vector(c, op->bias);
    float *out = rn_fast_row(c, op->out, row);
    uint32_t n = rn_fast_width(c, op->out);

    if (bias != NULL)
        c->fast->level->rows->add(out, a, bias, n);
    c->fast->level->rows->activate(out, bias != NULL ? out : a, op->act, n);
}

/* One value of a for each part of b. */
static void gate_parts(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row)
{
    const struct rn_rows *rows = c->fast->level->rows;
    const float *a = rn_fast_row(c, op->a, row), *b = rn_fast_row(c, op->b, row);
    uint32_t n = rn_fast_width(c, op->a), part = rn_fast_width(c, op->b) / n, i;
    float *out = rn_fast_row(c, op->out, row), gate;

    for (i = 0; i < n; i++) {
        rows->activate(&gate, a + i, op->act, 1);
        rows->scale(out + (size_t)i * part, b + (size_t)i * part, gate, part);
    }
}

static void op_gate(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row)
{
    if (rn_fast_width(c, op->a) < rn_fast_width(c, op->b)) {
        gate_parts(c, op, row);
        return;
    }
    c->fast->level->rows->gate(rn_fast_row(c, op->out, row), rn_fast_row(c, op->a, row), rn_fast_row(c, op->b, row),
                               op->act, rn_fast_width(c, op->out));
}

/* In the terms of SILU, which the levels have: g * sigmoid(s g) = silu(s g) / s. */
static void op_cut_gate(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row)
{
    const float *a = rn_fast_row(c, op->a, row), *b = rn_fast_row(c, op->b, row);
    float *out = rn_fast_row(c, op->out, row), cut = op->cut, scale = op->scale, plus = op->plus;
    uint32_t n = rn_fast_width(c, op->out), i;

    for (i = 0; i < n; i++)
        out[i] = (a[i] > cut ? cut : a[i]) * scale;
    c->fast->level->rows->activate(out, out, RN_ACT_SILU, n);
    for (i = 0; i < n; i++)
        out[i] = out[i] / scale * ((b[i] > cut ? cut : b[i] < -cut ? -cut : b[i]) + plus);
}

static void op_xielu(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row)
{
    const float *a = rn_fast_row(c, op->a, row);
    float *out = rn_fast_row(c, op->out, row), eps = (float)op->eps, alpha_n = (float)op->alpha_n;
    float alpha_p = (float)op->alpha_p;
    uint32_t n = rn_fast_width(c, op->out), i;

    for (i = 0; i < n; i++)
        out[i] =
            op->scale * a[i] + (a[i] > 0 ? alpha_p * a[i] * a[i] : alpha_n * (expm1f(a[i] < eps ? a[i] : eps) - a[i]));
}

static void op_rope(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row)
{
    const struct rn_rope *table = &c->fast->plan->ropes[op->rope];
    const float *angles = c->fast->angles[op->rope] + (size_t)row * table->dims;
    const float *a = rn_fast_row(c, op->a, row);
    float *out = rn_fast_row(c, op->out, row);
    uint32_t h;

    for (h = 0; h < op->heads; h++)
        c->fast->level->rows->rope(out + (size_t)h * op->k_dim, a + (size_t)h * op->k_dim, angles, op->k_dim,
                                   table->dims, table->neox);
}

static void op_kv_store(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row)
{
    const struct rn_fast_layer *layer = &c->fast->layers[op->layer];
    const struct rn_step_row *r = &c->step->rows[row];
    uint32_t place = rn_fast_place(c->fast, row), in_block = place & (c->fast->limits.block_tokens - 1);
    size_t block = rn_fast_table(layer, &c->step->seqs[r->seq])[place >> c->fast->block_shift];
    runnel_kv_type type = c->fast->limits.kv_type;
    size_t value_bytes = rn_kv_row_bytes(type, layer->v_dim);
    uint32_t unit = rn_kv_unit_bytes(type), h;
    const float *k = rn_fast_row(c, op->a, row), *v = op->b < 0 ? NULL : rn_fast_row(c, op->b, row);

    for (h = 0; h < layer->kv_heads; h++) {
        c->fast->level->rows->key_store(layer->keys + block * layer->key_block + h * layer->key_head +
                                            (size_t)in_block * unit,
                                        k + (size_t)h * layer->k_dim, layer->k_dim, c->fast->limits.block_tokens, type);
        if (v == NULL)
            continue;
        c->fast->level->rows->kv_store(layer->values + block * layer->value_block + h * layer->value_head +
                                           in_block * value_bytes,
                                       v + (size_t)h * layer->v_dim, layer->v_dim, type);
    }
}

static void op_route(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row)
{
    int32_t *ids = (int32_t *)rn_fast_row(c, op->out, row);
    uint32_t j;

    if (op->b >= 0) {
        memcpy(ids, rn_fast_row(c, op->b, row), op->used * sizeof *ids);
        for (j = 0; j < op->used; j++) /* the builder has looked at them; the file may be another since */
            ids[j] = (uint32_t)ids[j] < op->experts ? ids[j] : 0;
        rn_route_weigh(op, rn_fast_row(c, op->a, row), ids, rn_fast_row(c, op->out2, row));
        return;
    }
    rn_route_row(op, rn_fast_row(c, op->a, row), rn_fast_vector(c, op->weight), ids, rn_fast_row(c, op->out2, row));
}

static void op_expert_sum(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row)
{
    const float *a = rn_fast_row(c, op->a, row), *w = rn_fast_row(c, op->b, row);
    float *out = rn_fast_row(c, op->out, row);
    uint32_t n = rn_fast_width(c, op->out), j;

    c->fast->level->rows->scale(out, a, w[0], n);
    for (j = 1; j < op->used; j++)
        c->fast->level->rows->accumulate(out, a + (size_t)j * n, w[j], n);
}

static void op_select(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row)
{
    memcpy(rn_fast_row(c, op->out, row), rn_fast_row(c, op->a, c->fast->selected_rows[row]),
           (size_t)rn_fast_width(c, op->a) * sizeof(float));
}

#define op_select_ids op_select /* four bytes are four bytes */

static void op_tap(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row)
{
    const struct rn_plan *plan = c->fast->plan;
    uint32_t of = plan->slots[op->a].selected ? c->fast->selected_rows[row] : row;

    if (c->fast->has_features && c->fast->features_of[of] >= 0)
        memcpy(c->step->features + (size_t)c->fast->features_of[of] * plan->features_width + op->group,
               rn_fast_row(c, op->a, row), (size_t)rn_fast_width(c, op->a) * sizeof(float));
}

static void op_input(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row)
{
    memcpy(rn_fast_row(c, op->out, row), c->step->inputs + (size_t)row * rn_fast_width(c, op->out),
           (size_t)rn_fast_width(c, op->out) * sizeof(float));
}

static void op_split(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row)
{
    const float *a = rn_fast_row(c, op->a, row) + op->group;
    float *out = rn_fast_row(c, op->out, row);
    uint32_t part = rn_fast_width(c, op->a) / op->heads, i;

    for (i = 0; i < op->heads; i++)
        memcpy(out + (size_t)i * op->k_dim, a + (size_t)i * part, op->k_dim * sizeof *out);
}

static void op_concat(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row)
{
    const float *a = rn_fast_row(c, op->a, row), *b = op->b < 0 ? a : rn_fast_row(c, op->b, row);
    uint32_t heads = op->heads == 0 ? 1 : op->heads, n_a = rn_fast_width(c, op->a) / heads;
    uint32_t n_b = op->b < 0 ? 0 : rn_fast_width(c, op->b) / heads, i;
    float *out = rn_fast_row(c, op->out, row);

    for (i = 0; i < heads; i++, out += n_a + n_b) {
        memcpy(out, a + (size_t)i * n_a, n_a * sizeof *out);
        memcpy(out + n_a, b + (size_t)i * n_b, n_b * sizeof *out);
    }
}

/* ---- Matrix products: products.c ---- */

static void op_matmul(const struct rn_fast_context *c, uint32_t index)
{
    rn_fast_matmul(c, index);
}

static void op_expert_matmul(const struct rn_fast_context *c, uint32_t index)
{
    rn_fast_expert_matmul(c, index);
}

static void op_head_matmul(const struct rn_fast_context *c, uint32_t index)
{
    rn_fast_head_matmul(c, index);
}

static void op_head_sum(const struct rn_fast_context *c, uint32_t index)
{
    rn_fast_head_sum(c, index);
}

static void op_attention(const struct rn_fast_context *c, uint32_t index)
{
    rn_fast_attention(c, index);
}

static void op_choose(const struct rn_fast_context *c, uint32_t index)
{
    rn_fast_choose(c, index);
}

static void op_conv(const struct rn_fast_context *c, uint32_t index)
{
    rn_fast_conv(c, index);
}

static void op_compress(const struct rn_fast_context *c, uint32_t index)
{
    rn_fast_compress(c, index);
}

/* linear.c */
#define op_times_weight rn_fast_times_weight
#define op_add_weight rn_fast_add_weight
#define op_over_weight rn_fast_over_weight
#define op_lerp rn_fast_lerp
#define op_scatter rn_fast_scatter
#define op_part_sum rn_fast_part_sum
#define op_repeat rn_fast_repeat
#define op_shift rn_fast_shift
#define op_wkv6 rn_fast_linear
#define op_wkv7 rn_fast_linear
#define op_gated_delta rn_fast_linear

static void op_scan(const struct rn_fast_context *c, uint32_t index)
{
    rn_fast_scan(c, index);
}

/* ---- What a step asks for ---- */

/* Which rows have which features. */
static void choose_features(struct rn_fast *fast)
{
    const struct rn_step *step = fast->step;
    uint32_t i;

    fast->has_features = step->features != NULL && (step->feature_rows == NULL || step->n_features > 0);
    for (i = 0; i < step->n_rows && fast->has_features; i++)
        fast->features_of[i] = step->feature_rows == NULL ? (int32_t)i : -1;
    for (i = 0; i < step->n_features; i++)
        fast->features_of[step->feature_rows[i]] = (int32_t)i;
}

/* The rows behind SELECT. */
static void choose_rows(struct rn_fast *fast)
{
    const struct rn_step *step = fast->step;
    bool tapped = fast->has_features && fast->plan->taps_selected && !step->early_features;
    uint32_t i;

    fast->n_selected = step->n_outs;
    for (i = 0; i < step->n_rows; i++)
        if (step->rows[i].out >= 0)
            fast->selected_rows[step->rows[i].out] = i;
        else if (tapped && fast->features_of[i] >= 0)
            fast->selected_rows[fast->n_selected++] = i;
}

void rn_fast_ready(struct rn_fast *fast, struct rn_step *step)
{
    uint32_t i;

    fast->step = step;
    fast->is_adapted = rn_step_is_adapted(step);
    fast->logits = step->logits != NULL ? step->logits : fast->own_logits;
    choose_features(fast);
    choose_rows(fast);
    rn_fast_tree_ready(fast);
    rn_fast_make_groups(fast);
    rn_fast_means_ready(fast);
    for (i = 0; i < fast->program.n; i++) /* relaxed: the team's submission orders it before the run */
        atomic_store_explicit(&fast->pieces[i], 0, memory_order_relaxed);
    for (i = 0; i < rn_team_threads(fast->team) * fast->share_stride; i++)
        atomic_store_explicit(&fast->shares[i], 0, memory_order_relaxed);
}

/* ---- Steps ---- */

/* Cosines and sines of this worker's rows; the rope ops of a row run on the same worker. */
static void set_angles(const struct rn_fast_context *c)
{
    const struct rn_plan *plan = c->fast->plan;
    uint64_t n = c->step->n_rows;
    const struct rn_rope *table;
    uint32_t row, k, i;
    double angle;
    float *out;

    for (k = 0; k < plan->n_ropes; k++) {
        table = &plan->ropes[k];
        for (row = (uint32_t)(n * c->worker / c->n_workers); row < n * (c->worker + 1) / c->n_workers; row++) {
            out = c->fast->angles[k] + (size_t)row * table->dims;
            for (i = 0; i < table->dims / 2; i++) {
                angle = ((double)c->step->rows[row].position + table->shift) * table->inv_freq[i];
                out[i] = (float)(cos(angle) * table->magnitude);
                out[i + table->dims / 2] = (float)(sin(angle) * table->magnitude);
            }
        }
    }
}

/* What an op of each kind of work is run by: one row of it, or the pieces of the instruction `index`. */
struct runner {
    void (*by_row)(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row);
    void (*shared)(const struct rn_fast_context *c, uint32_t index);
};

#define RUNNER_BY_ROW(function) \
    {                           \
        .by_row = function      \
    }
#define RUNNER_SHARED(function) \
    {                           \
        .shared = function      \
    }
#define op_temper rn_fast_temper
#define op_sum rn_fast_sum
#define op_spread rn_fast_spread
#define op_expert_factor rn_fast_expert_factor
#define op_tail rn_fast_tail
#define op_resize rn_fast_resize
#define op_mix rn_fast_mix
#define op_hyper rn_fast_hyper
#define op_reach rn_fast_reach

static const struct runner runners[] = {
#define RN_OP(NAME, name, work, ...) [RN_OP_##NAME] = RUNNER_##work(op_##name),
#include "model/ops.def"
};
static_assert(sizeof runners / sizeof runners[0] == RN_OP_KINDS, "a function for each op");

static void quantise(const struct rn_fast_context *c, const struct rn_instruction *in, uint32_t row)
{
    size_t bytes = rn_input_bytes(in->input, in->cols);
    uint32_t parts = rn_fast_width(c, in->from) / in->cols, i;
    const float *a = rn_fast_row(c, in->from, row);
    char *out = (char *)c->fast->inputs[in->input] + (size_t)row * parts * bytes;

    for (i = 0; i < parts; i++, a += in->cols, out += bytes)
        rn_quantise(c->fast->level->rows, in->input, a, out, in->cols);
}

/* The instruction works for adapters, of which no row has one. */
static bool is_idle(const struct rn_fast_context *c, const struct rn_instruction *in)
{
    return in->op != NULL && in->op->adapted && !c->fast->is_adapted;
}

/* This worker's rows through instructions [first, last), one row after the other. */
static void run_rows(const struct rn_fast_context *c, uint32_t first, uint32_t last)
{
    const struct rn_instruction *list = c->fast->program.list;
    uint64_t n = rn_fast_rows_of(c, &list[first]);
    uint32_t row, i;

    for (row = (uint32_t)(n * c->worker / c->n_workers); row < n * (c->worker + 1) / c->n_workers; row++) {
        for (i = first; i < last; i++) {
            if (list[i].op == NULL)
                quantise(c, &list[i], row);
            else if (!is_idle(c, &list[i]))
                runners[list[i].op->kind].by_row(c, list[i].op, row);
        }
    }
}

static void run_phase(const struct rn_fast_context *c, uint32_t first, uint32_t last)
{
    const struct rn_instruction *list = c->fast->program.list;
    uint32_t i, end;

    for (i = first; i < last; i = end) {
        end = i + 1;
        if (list[i].by_rows) {
            while (end < last && list[end].by_rows && list[end].selected == list[i].selected &&
                   list[end].logits == list[i].logits)
                end++;
            run_rows(c, i, end);
        } else if (list[i].op == NULL) {
            rn_fast_lay(c, i);
        } else if (!is_idle(c, &list[i])) {
            runners[list[i].op->kind].shared(c, i);
        }
    }
}

static struct rn_fast_context context_of(struct rn_fast *fast, uint32_t worker, uint32_t n_workers)
{
    return (struct rn_fast_context){fast, fast->step, &fast->scratch[worker], worker, n_workers};
}

void rn_fast_begin(struct rn_fast *fast, uint32_t worker, uint32_t n_workers)
{
    struct rn_fast_context c = context_of(fast, worker, n_workers);

    set_angles(&c);
    rn_fast_copy_blocks(fast, worker, n_workers);
}

void rn_fast_phase(struct rn_fast *fast, uint32_t worker, uint32_t n_workers, uint32_t phase)
{
    struct rn_fast_context c = context_of(fast, worker, n_workers);

    run_phase(&c, fast->program.starts[phase], fast->program.starts[phase + 1]);
}
