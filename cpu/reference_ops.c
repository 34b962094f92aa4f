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
#include "cpu/reference.h"
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

static double dot(const float *a, const float *b, uint32_t n)
{
    double sum = 0;
    uint32_t i;

    for (i = 0; i < n; i++)
        sum += (double)a[i] * b[i];
    return sum;
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

static void op_rms_norm(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step)
{
    uint32_t width = width_of(ref, op->out), group = op->group == 0 ? width : op->group;
    size_t i, n = (size_t)rows_of(ref, op->out, step) * width;
    const float *w = op->weight < 0 ? NULL : weight_row(ref, op->weight, 0, 0, ref->row);
    const float *bias = bias_row(ref, op->bias, 0);

    for (i = 0; i < n; i += group)
        normalise_group(op, floats(ref, op->a) + i, 0, w, bias, group, floats(ref, op->out) + i);
}

static void op_layer_norm(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step)
{
    uint32_t width = width_of(ref, op->out), i;
    size_t at, n = (size_t)rows_of(ref, op->out, step) * width;
    const float *w = op->weight < 0 ? NULL : weight_row(ref, op->weight, 0, 0, ref->row);
    const float *bias = bias_row(ref, op->bias, 0);
    double mean;

    for (at = 0; at < n; at += width) {
        mean = 0;
        for (i = 0; i < width; i++)
            mean += floats(ref, op->a)[at + i];
        normalise_group(op, floats(ref, op->a) + at, mean / width, w, bias, width, floats(ref, op->out) + at);
    }
}

static void op_matmul(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step)
{
    const struct rn_weight *w = &ref->plan->weights[op->weight];
    const float *a = floats(ref, op->a), *bias = bias_row(ref, op->bias, 0), *row;
    uint32_t i, r, n_rows = rows_of(ref, op->out, step);
    float *out = floats(ref, op->out);
    double sum;

    for (i = 0; i < w->rows; i++) {
        row = weight_row(ref, op->weight, 0, i, ref->row);
        for (r = 0; r < n_rows; r++) {
            sum = dot(row, a + (size_t)r * w->cols, w->cols);
            out[(size_t)r * w->rows + i] = (float)(bias != NULL ? sum + bias[i] : sum);
        }
    }
}

static double activate(enum rn_activation act, double x)
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
EACH(activate, activate(op->act, a[i]))
EACH(gate, activate(op->act, a[i]) * b[i])
#undef EACH

static void rotate_head(const struct rn_rope *rope, uint32_t position, const float *a, uint32_t n, float *out)
{
    uint32_t i, x, y, half = rope->dims / 2;
    double angle, c, s, ax, ay;

    for (i = 0; i < half; i++) {
        angle = position * rope->inv_freq[i];
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

static void op_select(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step)
{
    uint32_t i, width = width_of(ref, op->out);

    (void)step;
    for (i = 0; i < ref->n_selected; i++)
        memcpy(floats(ref, op->out) + (size_t)i * width, floats(ref, op->a) + (size_t)ref->selected[i] * width,
               width * sizeof(float));
}

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

static void op_concat(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step)
{
    uint32_t r, width = width_of(ref, op->out), front = width_of(ref, op->a), n_rows = rows_of(ref, op->out, step);
    float *out = floats(ref, op->out);

    for (r = 0; r < n_rows; r++, out += width) {
        memcpy(out, floats(ref, op->a) + (size_t)r * front, front * sizeof *out);
        if (op->b >= 0)
            memcpy(out + front, floats(ref, op->b) + (size_t)r * (width - front), (width - front) * sizeof *out);
    }
}

static void op_split(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step)
{
    uint32_t r, part, i, n_rows = rows_of(ref, op->out, step), width = width_of(ref, op->a);
    const float *a = floats(ref, op->a);
    float *out = floats(ref, op->out);

    for (r = 0; r < n_rows; r++, a += width)
        for (part = 0; part < op->heads; part++)
            for (i = 0; i < op->k_dim; i++)
                *out++ = a[part * (width / op->heads) + op->group + i];
}

/* ---- The cache ---- */

/* The `heads` rows of a[heads, dim] to the cache, from byte `at` on. */
static void put(runnel_kv_type type, unsigned char *at, const float *a, uint32_t heads, uint32_t dim)
{
    uint32_t h;

    for (h = 0; h < heads; h++)
        rn_kv_encode(type, a + (size_t)h * dim, dim, at + h * rn_kv_row_bytes(type, dim));
}

/* One head of one position, as stored, to ref->head. */
static void get(struct rn_reference *ref, const unsigned char *cache, size_t place, uint32_t heads, uint32_t head,
                uint32_t dim)
{
    runnel_kv_type type = ref->limits.kv_type;

    rn_kv_decode(type, cache + (place * heads + head) * rn_kv_row_bytes(type, dim), dim, ref->head);
}

/* a[0..n) times the matrix that rows of n are rotated by (model/kv.h), in double. */
static void rotate(double *a, uint32_t n)
{
    uint32_t span = rn_kv_rotation(n), half, i;
    double x, y;

    for (half = 1; half < span; half *= 2) {
        for (i = 0; i < n; i++) {
            if ((i & half) != 0)
                continue;
            x = a[i];
            y = a[i + half];
            a[i] = x + y;
            a[i + half] = x - y;
        }
    }
    for (i = 0; i < n; i++)
        a[i] /= sqrt(span);
}

/* Where a position of a sequence lies, in positions from the start of a layer's cache. */
static size_t place(const struct rn_reference *ref, const struct rn_step_seq *seq, uint32_t position)
{
    const uint32_t tokens = ref->limits.block_tokens;

    return (size_t)seq->blocks[position / tokens] * tokens + position % tokens;
}

/* Where what row r sees at a position lies: its own or an ancestor's place, from its sequence's first row on. */
static uint32_t seen_place(const struct rn_step *step, uint32_t r, uint32_t position)
{
    if (step->parents == NULL || position < step->rows[rn_step_first(step, r)].position)
        return position;
    while (step->rows[r].position > position)
        r = (uint32_t)step->parents[r];
    return rn_step_place(step, r);
}

/* Likewise of the mean of a chunk. */
static size_t mean_place(const struct rn_reference *ref, const struct rn_step_seq *seq, uint32_t chunk)
{
    const uint32_t tokens = ref->limits.block_tokens;

    return (size_t)seq->means[chunk / tokens] * tokens + chunk % tokens;
}

/* The mean of a chunk of stored rows, one head of the keys or of the values, to its place. */
static void store_mean(struct rn_reference *ref, unsigned char *cache, const struct rn_step_seq *seq, uint32_t chunk,
                       uint32_t heads, uint32_t head, uint32_t dim)
{
    runnel_kv_type type = ref->limits.kv_type;
    uint32_t j, i;

    memset(ref->sums, 0, dim * sizeof *ref->sums);
    for (j = 0; j < RN_CHUNK; j++) {
        get(ref, cache, place(ref, seq, chunk * RN_CHUNK + j), heads, head, dim);
        for (i = 0; i < dim; i++)
            ref->sums[i] += ref->head[i];
    }
    if (rn_kv_rotated(type)) /* back, since it is rotated when it is stored */
        rotate(ref->sums, dim);
    for (i = 0; i < dim; i++)
        ref->head[i] = (float)(ref->sums[i] / RN_CHUNK);
    rn_kv_encode(type, ref->head, dim,
                 cache + (mean_place(ref, seq, chunk) * heads + head) * rn_kv_row_bytes(type, dim));
}

static void store_means(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step)
{
    const struct rn_kv_layer *layer = &ref->plan->kv_layers[op->layer];
    const struct rn_step_row *row;
    uint32_t heads = layer->kv_heads, r, h;

    for (r = 0; r < step->n_rows; r++) {
        row = &step->rows[r];
        for (h = 0; rn_chunk_ends(ref->limits.mean_window, row->position) && h < heads; h++) {
            store_mean(ref, ref->k[op->layer], &step->seqs[row->seq], row->position / RN_CHUNK, heads, h,
                       layer->k_width / heads);
            store_mean(ref, ref->v[op->layer], &step->seqs[row->seq], row->position / RN_CHUNK, heads, h,
                       layer->v_width / heads);
        }
    }
}

static void op_kv_store(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step)
{
    const struct rn_kv_layer *layer = &ref->plan->kv_layers[op->layer];
    runnel_kv_type type = ref->limits.kv_type;
    uint32_t heads = layer->kv_heads, k_dim = layer->k_width / heads, v_dim = layer->v_width / heads, r;
    size_t at;

    for (r = 0; r < step->n_rows; r++) {
        at = place(ref, &step->seqs[step->rows[r].seq], rn_step_place(step, r)) * heads;
        put(type, ref->k[op->layer] + at * rn_kv_row_bytes(type, k_dim),
            floats(ref, op->a) + (size_t)r * layer->k_width, heads, k_dim);
        put(type, ref->v[op->layer] + at * rn_kv_row_bytes(type, v_dim),
            floats(ref, op->b) + (size_t)r * layer->v_width, heads, v_dim);
    }
    store_means(ref, op, step);
}

/* Of ref->query and ref->head. */
static double score(const struct rn_reference *ref, const struct rn_op *op)
{
    double sum = 0;
    uint32_t i;

    for (i = 0; i < op->k_dim; i++)
        sum += ref->query[i] * ref->head[i];
    sum *= op->scale;
    return op->softcap > 0 ? op->softcap * tanh(sum / op->softcap) : sum;
}

/* What one row looks at, in order: sinks, means, positions. */
struct sight {
    const struct rn_step *step;
    uint32_t row;
    const struct rn_step_seq *seq;
    struct rn_chunk_span span;
    uint32_t n; /* of all three */
};

/* Of a row that looks at what is behind it, too: no means, and the first and the last position. */
static struct sight sight_both_ways(const struct rn_op *op, const struct rn_step *step, uint32_t row)
{
    uint32_t position = step->rows[row].position, first = 0, last = row;
    struct sight sight = {.step = step, .row = row, .seq = &step->seqs[step->rows[row].seq]};

    while (last + 1 < step->n_rows && step->rows[last + 1].seq == step->rows[row].seq)
        last++;
    last = step->rows[last].position;
    if (op->window > 0 && position > op->window / 2)
        first = position - op->window / 2;
    if (op->window > 0 && last > position + op->window / 2)
        last = position + op->window / 2;
    sight.span.first = first;
    sight.n = last + 1 - first;
    return sight;
}

static struct sight sight_of(const struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step,
                             uint32_t row)
{
    uint32_t position = step->rows[row].position;
    struct sight sight = {.step = step,
                          .row = row,
                          .seq = &step->seqs[step->rows[row].seq],
                          .span = rn_chunk_span(ref->limits.mean_window, position, op->window)};
    const struct rn_chunk_span *span = &sight.span;

    sight.n = span->sink_end - span->sink + span->to - span->from + position + 1 - span->first;
    return sight;
}

/* Where the i-th lies, and what is added to its score. */
static size_t look(const struct rn_reference *ref, const struct sight *sight, uint32_t i, double *more)
{
    const struct rn_chunk_span *span = &sight->span;

    *more = 0;
    if (i < span->sink_end - span->sink)
        return place(ref, sight->seq, span->sink + i);
    i -= span->sink_end - span->sink;
    if (i >= span->to - span->from)
        return place(ref, sight->seq, seen_place(sight->step, sight->row, span->first + i - (span->to - span->from)));
    *more = RN_CHUNK_LOG;
    return mean_place(ref, sight->seq, span->from + i);
}

/* One head of one row: scores over what it sees, softmax, mix of values. */
static void attend(struct rn_reference *ref, const struct rn_op *op, const struct sight *sight, uint32_t head,
                   const float *q, float *out)
{
    const uint32_t kv_head = head / (op->heads / op->kv_heads);
    double max = -INFINITY, total = 0, weight, more;
    uint32_t p, i;

    for (i = 0; i < op->k_dim; i++)
        ref->query[i] = q[i];
    if (rn_kv_rotated(ref->limits.kv_type))
        rotate(ref->query, op->k_dim);
    for (p = 0; p < sight->n; p++) {
        get(ref, ref->k[op->layer], look(ref, sight, p, &more), op->kv_heads, kv_head, op->k_dim);
        ref->scores[p] = score(ref, op) + more;
        max = fmax(max, ref->scores[p]);
    }
    memset(ref->sums, 0, op->v_dim * sizeof *ref->sums);
    for (p = 0; p < sight->n; p++) {
        weight = exp(ref->scores[p] - max);
        total += weight;
        get(ref, ref->v[op->layer], look(ref, sight, p, &more), op->kv_heads, kv_head, op->v_dim);
        for (i = 0; i < op->v_dim; i++)
            ref->sums[i] += weight * ref->head[i];
    }
    if (rn_kv_rotated(ref->limits.kv_type))
        rotate(ref->sums, op->v_dim);
    for (i = 0; i < op->v_dim; i++)
        out[i] = (float)(ref->sums[i] / total);
}

static void op_attention(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step)
{
    struct sight sight;
    uint32_t r, h;
    size_t head;

    for (r = 0; r < step->n_rows; r++) {
        sight = op->bidirectional ? sight_both_ways(op, step, r) : sight_of(ref, op, step, r);
        for (h = 0; h < op->heads; h++) {
            head = (size_t)r * op->heads + h;
            attend(ref, op, &sight, h, floats(ref, op->a) + head * op->k_dim, floats(ref, op->out) + head * op->v_dim);
        }
    }
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
static uint32_t best(const float *logits, uint32_t experts, const int32_t *ids, uint32_t n)
{
    uint32_t e, found = experts;

    for (e = 0; e < experts; e++)
        if (!chosen(ids, n, e) && (found == experts || logits[e] > logits[found]))
            found = e;
    return found;
}

/* Both gatings grow with the logit, so that the best logits are the best experts. */
static void route_row(const struct rn_op *op, const float *logits, int32_t *ids, float *weights)
{
    double max = -INFINITY, total = 0, sum = 0, w;
    uint32_t e, j;

    for (e = 0; e < op->experts; e++)
        max = fmax(max, logits[e]);
    for (e = 0; e < op->experts; e++)
        total += exp(logits[e] - max);
    for (j = 0; j < op->used; j++) {
        ids[j] = (int32_t)best(logits, op->experts, ids, j);
        w = op->sigmoid ? 1 / (1 + exp(-(double)logits[ids[j]])) : exp(logits[ids[j]] - max) / total;
        sum += w;
        weights[j] = (float)w;
    }
    for (j = 0; op->normalise && j < op->used; j++) {
        w = op->sigmoid ? 1 / (1 + exp(-(double)logits[ids[j]])) : exp(logits[ids[j]] - max) / total;
        weights[j] = (float)(w / sum);
    }
}

static void op_route(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step)
{
    uint32_t r, n_rows = rows_of(ref, op->out, step);

    for (r = 0; r < n_rows; r++)
        route_row(op, floats(ref, op->a) + (size_t)r * op->experts, ints(ref, op->out) + (size_t)r * op->used,
                  floats(ref, op->out2) + (size_t)r * op->used);
}

static void op_expert_matmul(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step)
{
    const struct rn_weight *w = &ref->plan->weights[op->weight];
    size_t i, n = (size_t)rows_of(ref, op->out, step) * op->used; /* pairs of a row and one of its experts */
    float *out = floats(ref, op->out);
    const float *a, *bias;
    uint32_t row, id;
    double sum;

    for (i = 0; i < n; i++) {
        id = (uint32_t)ints(ref, op->b)[i];
        RN_CHECK(id < w->experts);
        a = floats(ref, op->a) + (op->per_expert_input ? i : i / op->used) * w->cols;
        bias = bias_row(ref, op->bias, id);
        for (row = 0; row < w->rows; row++) {
            sum = dot(weight_row(ref, op->weight, id, row, ref->row), a, w->cols);
            out[i * w->rows + row] = (float)(bias != NULL ? sum + bias[row] : sum);
        }
    }
}

static void op_expert_sum(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step)
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

/* ---- The table ---- */

typedef void (*op_fn)(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step);

static const op_fn table[] = {
#define RN_OP(NAME, name, ...) [RN_OP_##NAME] = op_##name,
#include "model/ops.def"
};
static_assert(sizeof table / sizeof table[0] == RN_OP_KINDS, "a function for each op");

void rn_reference_op(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step)
{
    table[op->kind](ref, op, step);
}
