/* The ops of the reference backend: the definition that other backends are judged by.
 *
 * Each op_<name> below is its op's row of model/ops.def, written out. Slots hold f32; inside an op every sum
 * and every function of the C library is in double, and a value is rounded to f32 once, when it is
 * written. Keys and values are rounded to the cache's format when they are stored, and attention
 * reads them through the block table. Weights of any format go through their decoder, a row at a time.
 *
 * Runs on worker 0 of the team only. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "cpu/reference/reference.h"
#include "model/expert_use.h"
#include "model/kv.h"

static float *floats(const struct rn_reference *ref, int16_t slot)
{
    return ref->slots[slot];
}

static int32_t *ints(const struct rn_reference *ref, int16_t slot)
{
    return ref->slots[slot];
}

static uint32_t width_of(const struct rn_reference *ref, int16_t slot)
{
    return ref->plan->slots[slot].width;
}

/* Rows of the step that this slot has. */
static uint32_t rows_of(const struct rn_reference *ref, int16_t slot, const struct rn_step *step)
{
    const struct rn_slot *s = &ref->plan->slots[slot];

    return s->logits ? step->n_outs : s->selected ? ref->n_selected : step->n_rows;
}

/* Row `row` of expert `expert` of a weight, decoded; valid until the next call with the same `into`. */
static const float *weight_row(const struct rn_reference *ref, int32_t weight, uint64_t expert, uint64_t row,
                               float *into)
{
    const struct rn_weight *w = &ref->plan->weights[weight];
    const unsigned char *bytes = w->tensor->data;

    w->type->decode(bytes + (expert * w->rows + row) * w->row_bytes, into, w->cols);
    return into;
}

/* NULL where there is none. */
static const float *bias_row(const struct rn_reference *ref, int32_t bias, uint64_t row)
{
    return bias < 0 ? NULL : weight_row(ref, bias, 0, row, ref->bias);
}

/* Products of a[cols] with RN_REFERENCE_ROWS rows, each added up in the order of its columns; side by side, so that no
 * addition waits for another sum's. */
static void dots(const float *rows, const float *a, uint32_t cols, double *sums)
{
    double s0 = 0, s1 = 0, s2 = 0, s3 = 0, x;
    uint32_t i;

    static_assert(RN_REFERENCE_ROWS == 4, "as many sums as rows");
    for (i = 0; i < cols; i++) {
        x = a[i];
        s0 += rows[i] * x;
        s1 += rows[(size_t)cols + i] * x;
        s2 += rows[(size_t)cols * 2 + i] * x;
        s3 += rows[(size_t)cols * 3 + i] * x;
    }
    sums[0] = s0;
    sums[1] = s1;
    sums[2] = s2;
    sums[3] = s3;
}

/* Rows [first, first + n) of an expert's matrix times a[n_rows, cols], plus bias[n] unless it is NULL: to
 * out[n_rows, n]. */
static void multiply(const struct rn_reference *ref, int32_t weight, uint64_t expert, uint64_t first, uint32_t n,
                     const float *a, uint32_t n_rows, const float *bias, float *out)
{
    const uint32_t cols = ref->plan->weights[weight].cols;
    double sums[RN_REFERENCE_ROWS];
    uint32_t i, j, r, some;

    for (i = 0; i < n; i += some) {
        some = n - i < RN_REFERENCE_ROWS ? n - i : RN_REFERENCE_ROWS;
        for (j = 0; j < RN_REFERENCE_ROWS; j++) /* behind the end the last one again */
            weight_row(ref, weight, expert, first + i + (j < some ? j : some - 1), ref->row + (size_t)j * cols);
        for (r = 0; r < n_rows; r++) {
            dots(ref->row, a + (size_t)r * cols, cols, sums);
            for (j = 0; j < some; j++)
                out[(size_t)r * n + i + j] = (float)(bias != NULL ? sums[j] + bias[i + j] : sums[j]);
        }
    }
}

/* ---- Row by row ---- */

/* Row `index` of the op's table, times its scale, to row r. */
static void look_up(struct rn_reference *ref, const struct rn_op *op, uint32_t r, uint32_t index)
{
    const float *row = weight_row(ref, op->weight, 0, index, ref->row);
    uint32_t i, width = width_of(ref, op->out);

    for (i = 0; i < width; i++)
        floats(ref, op->out)[(size_t)r * width + i] = (float)((double)row[i] * op->scale);
}

static void op_embed(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step)
{
    uint32_t r;

    for (r = 0; r < step->n_rows; r++)
        look_up(ref, op, r, (uint32_t)step->rows[r].token);
}

static void op_embed_position(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step)
{
    uint32_t r;

    for (r = 0; r < step->n_rows; r++)
        look_up(ref, op, r, step->rows[r].position);
}

static void op_token(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step)
{
    uint32_t r;

    for (r = 0; r < step->n_rows; r++)
        floats(ref, op->out)[r] = (float)(step->rows[r].token + 1);
}

static void op_adapter(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step)
{
    uint32_t r;

    for (r = 0; r < step->n_rows; r++)
        ints(ref, op->out)[r] = (int32_t)step->seqs[step->rows[r].seq].adapter;
}

static void op_adapt(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step)
{
    size_t i, n = (size_t)rows_of(ref, op->out, step) * width_of(ref, op->out);

    for (i = 0; i < n; i++)
        if (floats(ref, op->b)[i] != 0)
            floats(ref, op->out)[i] += floats(ref, op->b)[i];
}

static void op_grams(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step)
{
    const struct rn_grams *grams = &ref->plan->grams;
    uint32_t r;

    for (r = 0; r < rows_of(ref, op->out, step); r++)
        rn_grams_rows(grams, floats(ref, op->a) + (size_t)r * grams->most,
                      (int32_t *)ref->slots[op->out] + (size_t)r * grams->heads);
}

/* A row of the table is a row of [rows, used] parts. */
static void op_look_up(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step)
{
    uint32_t i, n = rows_of(ref, op->out, step) * op->used, cols = ref->plan->weights[op->weight].cols;
    const int32_t *ids = (const int32_t *)ref->slots[op->a];

    for (i = 0; i < n; i++)
        memcpy(floats(ref, op->out) + (size_t)i * cols, weight_row(ref, op->weight, 0, (uint32_t)ids[i], ref->row),
               cols * sizeof(float));
}

static void op_embed_ids(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step)
{
    const struct rn_weight *w = &ref->plan->weights[op->weight];
    uint32_t r;

    for (r = 0; r < step->n_rows; r++)
        memcpy(ints(ref, op->out) + (size_t)r * w->cols,
               (const unsigned char *)w->tensor->data + (size_t)step->rows[r].token * w->row_bytes, w->row_bytes);
}

/* Of n values around `mean`. */
static void normalise_group(const struct rn_op *op, const float *a, double mean, const float *w, const float *bias,
                            uint32_t n, float *out)
{
    double square = 0, d, y;
    uint32_t i;

    for (i = 0; i < n; i++) {
        d = a[i] - mean;
        square += d * d;
    }
    d = sqrt(square / n + op->eps);
    for (i = 0; i < n; i++) {
        y = (a[i] - mean) / d;
        if (w != NULL)
            y *= w[i];
        out[i] = (float)(bias != NULL ? y + bias[i] : y);
    }
}

static double mean_of(const float *a, uint32_t n)
{
    double sum = 0;
    uint32_t i;

    for (i = 0; i < n; i++)
        sum += a[i];
    return sum / n;
}

/* Of all groups of all rows; the weight has one row, or one for each group of a row. */
static void normalise(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step, bool around_mean)
{
    uint32_t width = width_of(ref, op->out), group = op->group == 0 ? width : op->group, at;
    uint32_t rows = op->weight < 0 ? 1 : ref->plan->weights[op->weight].rows;
    size_t i, n = (size_t)rows_of(ref, op->out, step) * width;
    const float *a, *w;

    for (i = 0; i < n; i += group) {
        a = floats(ref, op->a) + i;
        at = rows == 1 ? 0 : (uint32_t)(i % width / group);
        w = op->weight < 0 ? NULL : weight_row(ref, op->weight, 0, at, ref->row);
        normalise_group(op, a, around_mean ? mean_of(a, group) : 0, w, bias_row(ref, op->bias, at), group,
                        floats(ref, op->out) + i);
    }
}

static void op_rms_norm(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step)
{
    normalise(ref, op, step, false);
}

static void op_layer_norm(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step)
{
    normalise(ref, op, step, true);
}

static void op_matmul(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step)
{
    multiply(ref, op->weight, 0, 0, ref->plan->weights[op->weight].rows, floats(ref, op->a),
             rows_of(ref, op->out, step), bias_row(ref, op->bias, 0), floats(ref, op->out));
}

double rn_reference_activate(enum rn_activation act, double x)
{
    const double root = 0.79788456080286535588; /* sqrt(2 / pi) */

    switch (act) {
    case RN_ACT_SILU:
        return x / (1 + exp(-x));
    case RN_ACT_GELU_TANH: /* Hendrycks and Gimpel 2016, arXiv 1606.08415 */
        return 0.5 * x * (1 + tanh(root * (x + 0.044715 * x * x * x)));
    case RN_ACT_GELU_ERF:
        return 0.5 * x * (1 + erf(x * 0.70710678118654752440));
    case RN_ACT_RELU:
        return x > 0 || isnan(x) ? x : 0;
    case RN_ACT_RELU2:
        return x > 0 || isnan(x) ? x * x : 0;
    case RN_ACT_SIGMOID:
        return 1 / (1 + exp(-x));
    case RN_ACT_TANH:
        return tanh(x);
    case RN_ACT_EXP:
        return exp(x);
    case RN_ACT_SOFTPLUS: /* ln(1 + e^x), which is x where e^-x is nothing beside it */
        return x > 40 ? x : log1p(exp(x));
    case RN_ACT_NONE:
    case RN_ACTIVATIONS:
        break;
    }
    return x;
}

/* out = what the loop's body makes of a[i], and of b[i] where there is a b. */
#define EACH(name, value)                                                                               \
    static void op_##name(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step) \
    {                                                                                                   \
        size_t i, n = (size_t)rows_of(ref, op->out, step) * width_of(ref, op->out);                     \
        const float *a = floats(ref, op->a), *b = op->b < 0 ? NULL : floats(ref, op->b);                \
        float *out = floats(ref, op->out);                                                              \
                                                                                                        \
        (void)b;                                                                                        \
        for (i = 0; i < n; i++)                                                                         \
            out[i] = (float)(value);                                                                    \
    }
EACH(add, (double)a[i] + b[i])
EACH(scale, (double)a[i] * op->scale)
EACH(softcap, op->scale *tanh((double)a[i] / op->scale))
EACH(clamp, a[i] > op->scale ? op->scale : a[i] < -op->scale ? -op->scale : a[i])
#undef EACH

/* Where a is narrower, a value of it for each part of b. */
static void op_gate(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step)
{
    size_t i, n = (size_t)rows_of(ref, op->out, step) * width_of(ref, op->out);
    uint32_t part = width_of(ref, op->b) / width_of(ref, op->a);
    const float *a = floats(ref, op->a), *b = floats(ref, op->b);

    for (i = 0; i < n; i++)
        floats(ref, op->out)[i] = (float)(rn_reference_activate(op->act, a[i / part]) * b[i]);
}

static void op_bar(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step)
{
    uint32_t width = width_of(ref, op->out);
    size_t i, n = (size_t)rows_of(ref, op->out, step) * width;

    for (i = 0; i < n; i++)
        floats(ref, op->out)[i] =
            i % width >= op->group && i % width - op->group < op->used ? -INFINITY : floats(ref, op->a)[i];
}

static void op_signed_root(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step)
{
    size_t i, n = (size_t)rows_of(ref, op->out, step) * width_of(ref, op->out);
    double x;

    for (i = 0; i < n; i++) {
        x = floats(ref, op->a)[i];
        if (x != 0)
            x = copysign(sqrt(fabs(x) < op->eps ? op->eps : fabs(x)), x);
        floats(ref, op->out)[i] = (float)x;
    }
}

static void rotate_head(const struct rn_rope *rope, uint32_t position, const float *a, uint32_t n, float *out)
{
    uint32_t i, x, y, half = rope->dims / 2;
    double angle, c, s, ax, ay;

    for (i = 0; i < half; i++) {
        angle = ((double)position + rope->shift) * rope->inv_freq[i];
        c = cos(angle) * rope->magnitude;
        s = sin(angle) * rope->magnitude;
        x = rope->neox ? i : 2 * i;
        y = rope->neox ? i + half : 2 * i + 1;
        ax = a[x];
        ay = a[y];
        out[x] = (float)(ax * c - ay * s);
        out[y] = (float)(ax * s + ay * c);
    }
    for (i = rope->dims; i < n; i++)
        out[i] = a[i];
}

static void op_rope(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step)
{
    const struct rn_rope *rope = &ref->plan->ropes[op->rope];
    size_t at;
    uint32_t r, h;

    for (r = 0; r < step->n_rows; r++) {
        for (h = 0; h < op->heads; h++) {
            at = ((size_t)r * op->heads + h) * op->k_dim;
            rotate_head(rope, step->rows[r].position, floats(ref, op->a) + at, op->k_dim, floats(ref, op->out) + at);
        }
    }
}

/* Index of a row's features; -1: not wanted. */
static int32_t features_of(const struct rn_step *step, uint32_t row)
{
    uint32_t i;

    if (step->features == NULL || step->feature_rows == NULL)
        return step->features == NULL ? -1 : (int32_t)row;
    for (i = 0; i < step->n_features; i++)
        if (step->feature_rows[i] == row)
            return (int32_t)i;
    return -1;
}

void rn_reference_choose(struct rn_reference *ref, const struct rn_step *step)
{
    uint32_t r;

    ref->n_selected = 0;
    for (r = 0; r < step->n_rows; r++)
        if (step->rows[r].out >= 0)
            ref->selected[ref->n_selected++] = r;
    for (r = 0; r < step->n_rows && ref->plan->taps_selected && !step->early_features; r++)
        if (step->rows[r].out < 0 && features_of(step, r) >= 0)
            ref->selected[ref->n_selected++] = r;
}

static void op_cut_gate(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step)
{
    size_t i, n = (size_t)rows_of(ref, op->out, step) * width_of(ref, op->out);
    const float *a = floats(ref, op->a), *b = floats(ref, op->b);
    double g, u;

    for (i = 0; i < n; i++) {
        g = a[i] > op->cut ? op->cut : a[i];
        u = b[i] > op->cut ? op->cut : b[i] < -op->cut ? -op->cut : b[i];
        floats(ref, op->out)[i] = (float)(g / (1 + exp(-op->scale * g)) * (u + op->plus));
    }
}

static void op_xielu(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step)
{
    size_t i, n = (size_t)rows_of(ref, op->out, step) * width_of(ref, op->out);
    const float *a = floats(ref, op->a);
    double x;

    for (i = 0; i < n; i++) {
        x = a[i];
        floats(ref, op->out)[i] =
            (float)(op->scale * x +
                    (x > 0 ? op->alpha_p * x * x : op->alpha_n * (expm1(x < op->eps ? x : op->eps) - x)));
    }
}

static void op_select(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step)
{
    uint32_t i, width = width_of(ref, op->out);

    (void)step;
    for (i = 0; i < ref->n_selected; i++)
        memcpy(floats(ref, op->out) + (size_t)i * width, floats(ref, op->a) + (size_t)ref->selected[i] * width,
               width * sizeof(float));
}

#define op_select_ids op_select /* four bytes are four bytes */

static void op_tap(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step)
{
    uint32_t i, row, width = width_of(ref, op->a);
    bool selected = ref->plan->slots[op->a].selected;
    int32_t at;

    for (i = 0; i < (selected ? ref->n_selected : step->n_rows); i++) {
        row = selected ? ref->selected[i] : i;
        at = features_of(step, row);
        if (at >= 0)
            memcpy(step->features + (size_t)at * ref->plan->features_width + op->group,
                   floats(ref, op->a) + (size_t)i * width, width * sizeof(float));
    }
}

static void op_input(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step)
{
    memcpy(floats(ref, op->out), step->inputs, (size_t)step->n_rows * width_of(ref, op->out) * sizeof(float));
}

/* ---- Products of each head ---- */

static void op_head_matmul(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step)
{
    uint32_t cols = ref->plan->weights[op->weight].cols;
    size_t i, n = (size_t)rows_of(ref, op->out, step) * op->heads; /* parts */

    for (i = 0; i < n; i++)
        multiply(ref, op->weight, i % op->heads, op->group, op->k_dim, floats(ref, op->a) + i * cols, 1, NULL,
                 floats(ref, op->out) + i * op->k_dim);
}

static void op_head_sum(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step)
{
    uint32_t cols = ref->plan->weights[op->weight].cols, row, c;
    size_t i, n = (size_t)rows_of(ref, op->out, step) * op->heads;
    const float *matrix;
    double *sums = ref->sums;

    for (i = 0; i < n; i++) {
        memset(sums, 0, cols * sizeof *sums);
        for (row = 0; row < op->k_dim; row++) {
            matrix = weight_row(ref, op->weight, i % op->heads, op->group + row, ref->row);
            for (c = 0; c < cols; c++)
                sums[c] += (double)floats(ref, op->a)[i * op->k_dim + row] * matrix[c];
        }
        for (c = 0; c < cols; c++)
            floats(ref, op->out)[i * cols + c] = (float)sums[c];
    }
}

static void op_activate(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step)
{
    uint32_t width = width_of(ref, op->out);
    size_t i, n = (size_t)rows_of(ref, op->out, step) * width;
    const float *bias = bias_row(ref, op->bias, 0);

    for (i = 0; i < n; i++)
        floats(ref, op->out)[i] =
            (float)rn_reference_activate(op->act, floats(ref, op->a)[i] + (bias == NULL ? 0.0 : bias[i % width]));
}

/* ---- Recurrent ---- */

static void op_scan(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step)
{
    rn_reference_scan(ref, op, step);
}

static void op_conv(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step)
{
    rn_reference_conv(ref, op, step);
}

/* ---- Experts ---- */

static bool chosen(const int32_t *ids, uint32_t n, uint32_t id)
{
    uint32_t i;

    for (i = 0; i < n; i++)
        if ((uint32_t)ids[i] == id)
            return true;
    return false;
}

/* The best expert that is not among the n chosen; of equals, and of what cannot be compared, the lowest id. */
static uint32_t best(const double *scores, uint32_t experts, const int32_t *ids, uint32_t n)
{
    uint32_t e, found = experts;

    for (e = 0; e < experts; e++)
        if (!chosen(ids, n, e) && (found == experts || scores[e] > scores[found]))
            found = e;
    return found;
}

static double root_softplus(double x)
{
    return sqrt(fmax(x, 0) + log1p(exp(-fabs(x))));
}

/* What the gating gives each expert; with CHOSEN the logits. */
static void gate_experts(const struct rn_op *op, const float *logits, double *gates)
{
    double max = -INFINITY, total = 0;
    uint32_t e;

    for (e = 0; e < op->experts; e++)
        max = fmax(max, logits[e]);
    for (e = 0; e < op->experts; e++)
        total += exp(logits[e] - max);
    for (e = 0; e < op->experts; e++)
        gates[e] = op->gating == RN_GATING_SIGMOID         ? 1 / (1 + exp(-(double)logits[e]))
                   : op->gating == RN_GATING_ROOT_SOFTPLUS ? root_softplus(logits[e])
                   : op->gating == RN_GATING_CHOSEN        ? logits[e]
                                                           : exp(logits[e] - max) / total;
}

/* Scores of experts that are in none of the best groups become -INFINITY. */
static void keep_best_groups(const struct rn_op *op, double *scores)
{
    uint32_t size = op->experts / op->groups, g, e, j;
    double of_groups[RN_MAX_ROUTE_GROUPS];
    int32_t groups[RN_MAX_ROUTE_GROUPS], two[2];

    for (g = 0; g < op->groups; g++) {
        for (j = 0; j < 2; j++)
            two[j] = (int32_t)best(scores + (size_t)g * size, size, two, j);
        of_groups[g] = scores[g * size + (uint32_t)two[0]] + scores[g * size + (uint32_t)two[1]];
    }
    for (j = 0; j < op->best; j++)
        groups[j] = (int32_t)best(of_groups, op->groups, groups, j);
    for (e = 0; e < op->experts; e++)
        if (!chosen(groups, op->best, e / size))
            scores[e] = -INFINITY;
}

/* All gatings grow with the logit: without a weight and groups the best logits are the best experts. */
static void route_row(const struct rn_op *op, const float *logits, const float *more, const int32_t *given,
                      int32_t *ids, float *weights)
{
    double scores[RN_MAX_ROUTED], gates[RN_MAX_ROUTED], sum = 0, most = -INFINITY;
    uint32_t e, j;

    gate_experts(op, logits, gates);
    for (e = 0; e < op->experts; e++)
        scores[e] = more == NULL && op->groups <= 1 ? logits[e] : gates[e] + (more == NULL ? 0 : more[e]);
    if (op->groups > 1)
        keep_best_groups(op, scores);
    for (j = 0; j < op->used; j++)
        ids[j] = given == NULL                      ? (int32_t)best(scores, op->experts, ids, j)
                 : (uint32_t)given[j] < op->experts ? given[j]
                                                    : 0;
    for (j = 0; j < op->used; j++) {
        ids[j] /= op->per > 1 ? (int32_t)op->per : 1;
        most = fmax(most, gates[ids[j]]);
    }
    for (j = 0; j < op->used; j++)
        sum += op->gating == RN_GATING_CHOSEN ? exp(gates[ids[j]] - most) : gates[ids[j]];
    for (j = 0; j < op->used; j++)
        weights[j] = (float)(op->gating == RN_GATING_CHOSEN
                                 ? exp(gates[ids[j]] - most) / sum * op->scale
                                 : gates[ids[j]] / (op->normalise ? fmax(sum, op->eps) : 1) * op->scale);
}

static void op_route(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step)
{
    uint32_t r, n_rows = rows_of(ref, op->out, step);
    const float *more = bias_row(ref, op->weight, 0);

    for (r = 0; r < n_rows; r++)
        route_row(op, floats(ref, op->a) + (size_t)r * op->experts, more,
                  op->b < 0 ? NULL : ints(ref, op->b) + (size_t)r * op->used, ints(ref, op->out) + (size_t)r * op->used,
                  floats(ref, op->out2) + (size_t)r * op->used);
}

static void op_expert_matmul(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step)
{
    const struct rn_weight *w = &ref->plan->weights[op->weight];
    size_t i, n = (size_t)rows_of(ref, op->out, step) * op->used; /* pairs of a row and one of its experts */
    const float *a;
    uint32_t id;

    for (i = 0; i < n; i++) {
        id = (uint32_t)ints(ref, op->b)[i];
        RN_CHECK(id < w->experts);
        if (op->counted && ref->limits.expert_use != NULL)
            rn_expert_use_add(ref->limits.expert_use, (uint32_t)op->layer, id, 1);
        a = floats(ref, op->a) + (op->per_expert_input ? i : i / op->used) * w->cols;
        multiply(ref, op->weight, id, 0, w->rows, a, 1, bias_row(ref, op->bias, id),
                 floats(ref, op->out) + i * w->rows);
    }
}

/* ---- The table ---- */

/* linear.c */
#define op_kv_store rn_reference_kv_store
#define op_attention rn_reference_attention
#define op_choose rn_reference_choose_positions
#define op_reach rn_reference_reach
#define op_compress rn_reference_compress
#define op_times_weight rn_reference_times_weight
#define op_add_weight rn_reference_add_weight
#define op_over_weight rn_reference_over_weight
#define op_lerp rn_reference_lerp
#define op_scatter rn_reference_scatter
#define op_part_sum rn_reference_part_sum
#define op_repeat rn_reference_repeat
#define op_shift rn_reference_shift
#define op_wkv6 rn_reference_wkv6
#define op_wkv7 rn_reference_wkv7
#define op_gated_delta rn_reference_gated_delta

typedef void (*op_fn)(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step);

#define op_temper rn_reference_temper
#define op_expert_sum rn_reference_expert_sum
#define op_sum rn_reference_sum
#define op_spread rn_reference_spread
#define op_expert_factor rn_reference_expert_factor
#define op_tail rn_reference_tail
#define op_resize rn_reference_resize
#define op_mix rn_reference_mix
#define op_hyper rn_reference_hyper
#define op_concat rn_reference_concat
#define op_split rn_reference_split

static const op_fn table[] = {
#define RN_OP(NAME, name, ...) [RN_OP_##NAME] = op_##name,
#include "model/ops.def"
};
static_assert(sizeof table / sizeof table[0] == RN_OP_KINDS, "a function for each op");

void rn_reference_op(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step)
{
    table[op->kind](ref, op, step);
}
