/* The reference backend's cache and attention: see ops.c. Keys and values are rounded to the cache's format
 * when they are stored, and read through the block table. */
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "cpu/chosen.h"
#include "cpu/reference/reference.h"
#include "model/kv.h"

static float *floats(const struct rn_reference *ref, int16_t slot)
{
    return ref->slots[slot];
}

/* Of each head; NULL where there are none. */
static const float *sinks_of(const struct rn_reference *ref, const struct rn_op *op)
{
    const struct rn_weight *w = op->weight < 0 ? NULL : &ref->plan->weights[op->weight];

    if (w == NULL)
        return NULL;
    w->type->decode(w->tensor->data, ref->bias, w->cols);
    return ref->bias;
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

/* a[0..n) times the matrix that rows are rotated by span after span (model/kv.h), in double. */
static void rotate(double *a, uint32_t n, uint32_t span)
{
    uint32_t half, i;
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

/* Where a position lies by a sequence's table, in positions from the start of a layer's cache. */
static size_t place(const struct rn_reference *ref, const uint32_t *blocks, uint32_t position)
{
    const uint32_t tokens = ref->limits.block_tokens;

    return (size_t)blocks[position / tokens] * tokens + position % tokens;
}

/* The table of the cache layer. */
static const uint32_t *table_of(const struct rn_reference *ref, const struct rn_step_seq *seq, uint32_t layer)
{
    return ref->limits.window > 0 && rn_plan_layer_window(ref->plan, layer) > 0 ? seq->windows : seq->blocks;
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
        get(ref, cache, place(ref, seq->blocks, chunk * RN_CHUNK + j), heads, head, dim);
        for (i = 0; i < dim; i++)
            ref->sums[i] += ref->head[i];
    }
    if (rn_kv_rotated(type)) /* back, since it is rotated when it is stored */
        rotate(ref->sums, dim, rn_kv_rotation(dim));
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
            if (layer->v_width > 0)
                store_mean(ref, ref->v[op->layer], &step->seqs[row->seq], row->position / RN_CHUNK, heads, h,
                           layer->v_width / heads);
        }
    }
}

void rn_reference_kv_store(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step)
{
    const struct rn_kv_layer *layer = &ref->plan->kv_layers[op->layer];
    runnel_kv_type type = ref->limits.kv_type;
    uint32_t heads = layer->kv_heads, k_dim = layer->k_width / heads, v_dim = layer->v_width / heads, r;
    size_t at;

    for (r = 0; r < step->n_rows; r++) {
        at = place(ref, table_of(ref, &step->seqs[step->rows[r].seq], (uint32_t)op->layer), rn_step_place(step, r)) *
             heads;
        put(type, ref->k[op->layer] + at * rn_kv_row_bytes(type, k_dim),
            floats(ref, op->a) + (size_t)r * layer->k_width, heads, k_dim);
        if (v_dim == 0)
            continue;
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
    const uint32_t *blocks; /* its table */
    struct rn_chunk_span span;
    uint32_t n;             /* of all three */
    uint32_t own;           /* the row's own place among them: the last, but where it looks ahead */
    const int32_t *chosen;  /* [n]: instead these positions; NULL: they are not chosen */
    const uint32_t *second; /* the table of rn_op.second */
};

/* The i-th is one of the second cache. */
static bool is_second(const struct sight *sight, uint32_t i)
{
    return sight->chosen != NULL && (sight->chosen[i] & RN_SECOND) != 0;
}

/* Of a row that looks at what is behind it, too: no means, and the first and the last position. */
static struct sight sight_both_ways(const struct rn_op *op, const struct rn_step *step, uint32_t row)
{
    uint32_t position = step->rows[row].position, first = 0, last = row;
    const struct rn_step_seq *seq = &step->seqs[step->rows[row].seq];
    struct sight sight = {.step = step, .row = row, .seq = seq, .blocks = seq->blocks};

    while (last + 1 < step->n_rows && step->rows[last + 1].seq == step->rows[row].seq)
        last++;
    last = step->rows[last].position;
    if (op->window > 0 && position > op->window / 2)
        first = position - op->window / 2;
    if (op->window > 0 && last > position + op->window / 2)
        last = position + op->window / 2;
    sight.span.first = first;
    sight.n = last + 1 - first;
    sight.own = position - first;
    return sight;
}

static struct sight sight_of(const struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step,
                             uint32_t row)
{
    uint32_t position = step->rows[row].position;
    const struct rn_step_seq *seq = &step->seqs[step->rows[row].seq];
    struct sight sight = {.step = step,
                          .row = row,
                          .seq = seq,
                          .blocks = table_of(ref, seq, (uint32_t)op->layer),
                          .span = rn_chunk_span(ref->limits.mean_window, position, rn_op_window(op, position))};
    const struct rn_chunk_span *span = &sight.span;

    if (op->b >= 0) {
        sight.chosen = (const int32_t *)ref->slots[op->b] + (size_t)row * op->used;
        for (sight.n = op->used; sight.n > 1 && sight.chosen[sight.n - 1] < 0; sight.n--)
            ;
        sight.own = sight.n - 1;
        sight.second = op->second == 0 ? NULL : table_of(ref, seq, op->second - 1);
        return sight;
    }
    sight.n = span->sink_end - span->sink + span->to - span->from + position + 1 - span->first;
    sight.own = sight.n - 1;
    return sight;
}

/* Where the i-th lies, and what is added to its score. */
static size_t look(const struct rn_reference *ref, const struct sight *sight, uint32_t i, double *more)
{
    const struct rn_chunk_span *span = &sight->span;

    *more = 0;
    if (is_second(sight, i))
        return place(ref, sight->second, (uint32_t)sight->chosen[i] & ~(uint32_t)RN_SECOND);
    if (sight->chosen != NULL)
        return place(ref, sight->blocks, seen_place(sight->step, sight->row, (uint32_t)sight->chosen[i]));
    if (i < span->sink_end - span->sink)
        return place(ref, sight->blocks, span->sink + i);
    i -= span->sink_end - span->sink;
    if (i >= span->to - span->from)
        return place(ref, sight->blocks,
                     seen_place(sight->step, sight->row, span->first + i - (span->to - span->from)));
    *more = RN_CHUNK_LOG;
    return mean_place(ref, sight->seq, span->from + i);
}

/* One head of one row: scores over what it sees, softmax, mix of values. */
static void attend(struct rn_reference *ref, const struct rn_op *op, const struct sight *sight, uint32_t head,
                   const float *q, float *out)
{
    const uint32_t kv_head = head / (op->heads / op->kv_heads);
    double max = -INFINITY, total = 0, slope = rn_op_slope(op, head), weight, more;
    const float *sink = sinks_of(ref, op);
    bool of_keys = ref->plan->kv_layers[op->layer].v_width == 0; /* values are the front of keys */
    uint32_t width = of_keys ? op->k_dim : op->v_dim, p, i;
    int32_t layer;

    for (i = 0; i < op->k_dim; i++)
        ref->query[i] = q[i];
    if (rn_kv_rotated(ref->limits.kv_type))
        rotate(ref->query, op->k_dim, rn_kv_rotation(op->k_dim));
    for (p = 0; p < sight->n; p++) {
        get(ref, ref->k[is_second(sight, p) ? (int32_t)op->second - 1 : op->layer], look(ref, sight, p, &more),
            op->kv_heads, kv_head, op->k_dim);
        ref->scores[p] = score(ref, op) + more + slope * fabs((double)sight->own - p);
        max = fmax(max, ref->scores[p]);
    }
    if (sink != NULL) {
        max = fmax(max, sink[head]);
        total = exp(sink[head] - max);
    }
    memset(ref->sums, 0, op->v_dim * sizeof *ref->sums);
    for (p = 0; p < sight->n; p++) {
        weight = exp(ref->scores[p] - max);
        total += weight;
        layer = is_second(sight, p) ? (int32_t)op->second - 1 : op->layer;
        get(ref, of_keys ? ref->k[layer] : ref->v[layer], look(ref, sight, p, &more), op->kv_heads, kv_head, width);
        for (i = 0; i < op->v_dim; i++)
            ref->sums[i] += weight * ref->head[i];
    }
    if (rn_kv_rotated(ref->limits.kv_type))
        rotate(ref->sums, op->v_dim, rn_kv_rotation(width));
    for (i = 0; i < op->v_dim; i++)
        out[i] = (float)(ref->sums[i] / total);
}

void rn_reference_attention(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step)
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

/* ---- Chosen positions ---- */

/* The queries of row r to ref->query[heads, dim]. */
static void take_queries(struct rn_reference *ref, const struct rn_op *op, uint32_t r)
{
    const float *q = floats(ref, op->a) + (size_t)r * op->heads * op->k_dim;
    uint32_t h, i;

    for (i = 0; i < op->heads * op->k_dim; i++)
        ref->query[i] = q[i];
    for (h = 0; rn_kv_rotated(ref->limits.kv_type) && h < op->heads; h++)
        rotate(ref->query + (size_t)h * op->k_dim, op->k_dim, rn_kv_rotation(op->k_dim));
}

/* ref->scores of the positions up to row r's: sums over heads of b[h] * max(0, query of h times key). */
static void score_positions(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step, uint32_t r)
{
    static const float signs[2] = {1, -1};
    const float *weights = op->b < 0 ? signs : floats(ref, op->b) + (size_t)r * op->heads;
    const struct rn_step_seq *seq = &step->seqs[step->rows[r].seq];
    uint32_t n = step->rows[r].position + 1, h, p, i;
    double product;

    take_queries(ref, op, r);
    for (p = 0; p < n; p++) {
        get(ref, ref->k[op->layer], place(ref, seq->blocks, seen_place(step, r, p)), 1, 0, op->k_dim);
        ref->scores[p] = 0;
        for (h = 0; h < op->heads; h++) {
            for (i = 0, product = 0; i < op->k_dim; i++)
                product += ref->query[(size_t)h * op->k_dim + i] * ref->head[i];
            if (product > 0)
                ref->scores[p] += weights[h] * product;
        }
    }
}

/* Blocks of row r's n positions, more than it may choose, to out; see ops.def. */
static void choose_blocks(struct rn_reference *ref, const struct rn_op *op, uint32_t n, int32_t *out)
{
    const struct rn_scores scores = {.f64 = ref->scores};
    uint32_t most = op->used / op->per, blocks = op->best > 0 ? (n + op->per - 1) / op->per : n / op->per, b, p;

    for (b = 0; b < blocks; b++) {
        double score = op->best > 0 ? ref->scores[b * op->per] : ref->scores[b * op->per + op->per - 1];

        for (p = b * op->per + 1; op->best > 0 && p < n && p < (b + 1) * op->per; p++)
            score = ref->scores[p] > score || isnan(score) ? ref->scores[p] : score;
        ref->scores[b] = b + op->best >= blocks && op->best > 0 ? INFINITY : score;
    }
    rn_chosen_largest(&scores, blocks, most, out + op->used - most);
    rn_chosen_positions(out, op->used, most, op->per, blocks * op->per, n);
}

void rn_reference_choose_positions(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step)
{
    const struct rn_scores scores = {.f64 = ref->scores};
    uint32_t r, n, p;
    int32_t *out;

    for (r = 0; r < step->n_rows; r++) {
        n = step->rows[r].position + 1;
        out = (int32_t *)ref->slots[op->out] + (size_t)r * op->used;
        score_positions(ref, op, step, r);
        if (n > op->used && op->per > 1)
            choose_blocks(ref, op, n, out);
        else if (n > op->used)
            rn_chosen_largest(&scores, n, op->used, out);
        for (p = 0; p < op->used && n <= op->used; p++)
            out[p] = p < n ? (int32_t)p : -1;
    }
}

/* The last positions of the whole blocks of n positions, of the list a[n_a] if there is one. */
static void reach_row(const struct rn_op *op, const int32_t *a, uint32_t n_a, uint32_t n, int32_t *out)
{
    uint32_t k = 0, p, i;

    for (p = n > op->window ? n - op->window : 0; p < n; p++)
        out[k++] = (int32_t)p;
    for (p = op->per - 1; a == NULL && p < n; p += op->per)
        out[k++] = (int32_t)(p | RN_SECOND);
    for (i = 0; i < n_a && a[i] >= 0; i++)
        if (((uint32_t)a[i] + 1) % op->per == 0)
            out[k++] = a[i] | RN_SECOND;
    RN_CHECK(k <= op->used);
    while (k < op->used)
        out[k++] = -1;
}

void rn_reference_reach(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step)
{
    const int32_t *a = op->a < 0 ? NULL : ref->slots[op->a];
    uint32_t n_a = a == NULL ? 0 : ref->plan->slots[op->a].width, r;

    for (r = 0; r < step->n_rows; r++)
        reach_row(op, a == NULL ? NULL : a + (size_t)r * n_a, n_a, step->rows[r].position + 1,
                  (int32_t *)ref->slots[op->out] + (size_t)r * op->used);
}
