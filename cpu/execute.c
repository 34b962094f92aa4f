/* Running a step on the team: see program.h for phases and fast.h for the memory.
 *
 * Law 5 here: a piece of work (rows of a weight, a head of an attention) is computed in the same way
 * whoever takes it; how many rows are handed to a kernel together does not show in its results. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "cpu/execute.h"
#include "model/op_info.h"
#include "model/stop.h"

enum { SHARE_PIECES = 16 }; /* of a worker's share of a matrix */

static uint32_t domain(const struct rn_fast_context *c, const struct rn_instruction *in)
{
    return in->logits ? c->step->n_outs : in->selected ? c->fast->n_selected : c->step->n_rows;
}

static const float *vector(const struct rn_fast_context *c, int32_t weight)
{
    return weight < 0 ? NULL : c->fast->vectors[weight];
}

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

static void op_rms_norm(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row)
{
    const struct rn_rows *rows = c->fast->level->rows;
    const float *a = rn_fast_row(c, op->a, row);
    float *out = rn_fast_row(c, op->out, row);
    uint32_t n = rn_fast_width(c, op->a), group = op->group == 0 ? n : op->group, i;

    for (i = 0; i < n; i += group) {
        rows->rms_norm(out + i, a + i, vector(c, op->weight), group, op->eps);
        if (op->bias >= 0)
            rows->add(out + i, out + i, vector(c, op->bias), group);
    }
}

static void op_layer_norm(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row)
{
    c->fast->level->rows->layer_norm(rn_fast_row(c, op->out, row), rn_fast_row(c, op->a, row), vector(c, op->weight),
                                     vector(c, op->bias), rn_fast_width(c, op->a), op->eps);
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

static void op_activate(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row)
{
    c->fast->level->rows->activate(rn_fast_row(c, op->out, row), rn_fast_row(c, op->a, row), op->act,
                                   rn_fast_width(c, op->out));
}

static void op_gate(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row)
{
    c->fast->level->rows->gate(rn_fast_row(c, op->out, row), rn_fast_row(c, op->a, row), rn_fast_row(c, op->b, row),
                               op->act, rn_fast_width(c, op->out));
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
    size_t block = c->step->seqs[r->seq].blocks[place >> c->fast->block_shift];
    runnel_kv_type type = c->fast->limits.kv_type;
    size_t value_bytes = rn_kv_row_bytes(type, layer->v_dim);
    uint32_t unit = rn_kv_unit_bytes(type), h;
    const float *k = rn_fast_row(c, op->a, row), *v = rn_fast_row(c, op->b, row);

    for (h = 0; h < layer->kv_heads; h++) {
        c->fast->level->rows->key_store(layer->keys + block * layer->key_block + h * layer->key_head +
                                            (size_t)in_block * unit,
                                        k + (size_t)h * layer->k_dim, layer->k_dim, c->fast->limits.block_tokens, type);
        c->fast->level->rows->kv_store(layer->values + block * layer->value_block + h * layer->value_head +
                                           in_block * value_bytes,
                                       v + (size_t)h * layer->v_dim, layer->v_dim, type);
    }
}

/* The best expert that is not among ids[0..n); the lower id wins a tie. Some id whatever the numbers are. */
static int32_t best_but(const float *a, uint32_t experts, const int32_t *ids, uint32_t n)
{
    int32_t best = -1;
    uint32_t e, j;

    for (e = 0; e < experts; e++) {
        for (j = 0; j < n && ids[j] != (int32_t)e; j++)
            ;
        if (j == n && (best < 0 || a[e] > a[best]))
            best = (int32_t)e;
    }
    return best;
}

static void op_route(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row)
{
    const float *a = rn_fast_row(c, op->a, row);
    int32_t *ids = (int32_t *)rn_fast_row(c, op->out, row);
    float *weights = rn_fast_row(c, op->out2, row);
    double sum = 0, most, chosen = 0;
    uint32_t j, e;

    for (j = 0; j < op->used; j++)
        ids[j] = best_but(a, op->experts, ids, j);
    most = a[ids[0]];
    for (e = 0; e < op->experts && !op->sigmoid; e++)
        sum += exp(a[e] - most);
    for (j = 0; j < op->used; j++) {
        weights[j] = (float)(op->sigmoid ? 1 / (1 + exp(-(double)a[ids[j]])) : exp(a[ids[j]] - most) / sum);
        chosen += weights[j];
    }
    for (j = 0; j < op->used && op->normalise; j++)
        weights[j] = (float)(weights[j] / chosen);
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
    float *out = rn_fast_row(c, op->out, row);

    memcpy(out, rn_fast_row(c, op->a, row), (size_t)rn_fast_width(c, op->a) * sizeof *out);
    if (op->b >= 0)
        memcpy(out + rn_fast_width(c, op->a), rn_fast_row(c, op->b, row),
               (size_t)rn_fast_width(c, op->b) * sizeof *out);
}

/* ---- Matrix products ---- */

/* One weight matrix and the inputs that it meets. */
struct product {
    const struct rn_kernel *kernel;
    const struct rn_weight *weight;
    const uint8_t *matrix;
    bool tiled;
    uint32_t ahead;     /* see rn_matmul */
    const float *bias;  /* [rows] or NULL */
    const char *inputs; /* entry e reads inputs + e / share * input_bytes, and writes out + e * out_width */
    size_t input_bytes;
    float *out;
    uint32_t out_width;
    const uint32_t *entries; /* NULL: 0, 1, 2 ... */
    uint32_t n, share;
};

static void tile(const struct rn_fast_context *c, const struct product *p, uint32_t first_row, uint32_t rows,
                 uint32_t step)
{
    struct rn_matmul m = {.weights = p->matrix + (size_t)first_row * p->weight->row_bytes,
                          .row_bytes = p->weight->row_bytes,
                          .rows = rows,
                          .step = step,
                          .ahead = p->ahead,
                          .cols = p->weight->cols,
                          .type = p->weight->type,
                          .panel = c->scratch->panel};
    bool packed = p->n >= p->kernel->pack_from;
    uint32_t i, j, e, r;

    if (packed)
        p->kernel->pack(&m);
    for (i = 0; i < p->n; i += m.n) {
        m.n = p->n - i < RN_MAX_INPUTS ? p->n - i : RN_MAX_INPUTS;
        for (j = 0; j < m.n; j++) {
            e = p->entries == NULL ? i + j : p->entries[i + j];
            m.inputs[j] = p->inputs + (size_t)(e / p->share) * p->input_bytes;
            m.out[j] = p->out + (size_t)e * p->out_width + first_row;
        }
        (packed ? p->kernel->packed : p->kernel->direct)(&m);
        for (j = 0; j < m.n && p->bias != NULL; j++)
            for (r = 0; r < rows; r++)
                m.out[j][r * step] += p->bias[first_row + r * step];
    }
}

/* Rows that are handed over together. */
static uint32_t height_of(const struct product *p)
{
    return p->n >= p->kernel->pack_from ? rn_kernel_panel(p->kernel, p->weight->cols)
                                        : rn_kernel_height(p->kernel, p->n);
}

/* Weight rows of one piece of work: about so many pieces for each worker, whole tiles. */
static uint32_t piece_rows(const struct rn_fast_context *c, const struct product *p, uint32_t pieces)
{
    uint32_t rows = p->weight->rows / (c->n_workers * pieces);

    return rows < p->kernel->tile ? p->kernel->tile : rows - rows % p->kernel->tile;
}

/* Rows that one worker takes together. */
struct stretch {
    uint32_t first, n;
};

/* Whether rows are read as streams, each of its own: see struct rn_matmul. */
static bool streams(const struct product *p)
{
    return rn_kernel_step(p->kernel, p->n) > 1;
}

/* How far apart the rows of a tile are where n rows are left. */
static uint32_t step_of(const struct product *p, uint32_t n)
{
    uint32_t step = rn_kernel_step(p->kernel, p->n), most = n / height_of(p);

    return step < most ? step : most;
}

/* Asks for the beginnings of the streams that the next rows are read as. A kernel looks ahead within its streams only:
 * without this each new set of them begins with waiting. */
static void fetch_streams(const struct product *p, struct stretch next)
{
    size_t row_bytes = p->weight->row_bytes, at;
    uint32_t height = height_of(p), step = step_of(p, next.n), r;

    for (at = 0; at < RN_STREAM_AHEAD && at < step * row_bytes; at += 64)
        for (r = 0; r < height; r++)
            __builtin_prefetch(p->matrix + (next.first + (size_t)r * step) * row_bytes + at, 0, 2);
}

/* The rows of `s`. Before the last tile of each set of streams the next set is asked for, in the end that of `next`. */
static void piece(const struct rn_fast_context *c, const struct product *p, struct stretch s, struct stretch next)
{
    uint32_t height = height_of(p), first, step, i;

    while (s.n >= height) {
        step = step_of(p, s.n);
        first = s.first;
        s = (struct stretch){first + height * step, s.n - height * step};
        for (i = 0; i < step; i++) {
            if (i + 1 == step && streams(p))
                fetch_streams(p, s.n >= height ? s : next);
            tile(c, p, first + i, height, step);
        }
    }
    if (s.n > 0)
        tile(c, p, s.first, s.n, 1);
}

static struct product product_of(const struct rn_fast_context *c, const struct rn_instruction *in)
{
    const struct rn_op *op = in->op;
    const struct rn_weight *weight = &c->fast->plan->weights[op->weight];
    const uint8_t *tiles = c->fast->tiles[op->weight];

    return (struct product){.kernel = in->kernel,
                            .weight = weight,
                            .matrix = tiles != NULL ? tiles : weight->tensor->data,
                            .tiled = tiles != NULL,
                            .ahead = tiles != NULL ? c->fast->aheads[weight->type_id] : 0,
                            .bias = vector(c, op->bias),
                            .inputs = in->input == RN_INPUT_F32 ? (const char *)rn_fast_row(c, op->a, 0)
                                                                : c->fast->inputs[in->input],
                            .input_bytes = rn_input_bytes(in->input, weight->cols),
                            .out = rn_fast_row(c, op->out, 0),
                            .out_width = weight->rows,
                            .n = domain(c, in),
                            .share = 1};
}

/* How a matrix is cut: large pieces, and its last quarter in small ones, so that the workers end at nearly the same
 * time. Where rows are streams, pieces are twice as large: a stream is as long as its piece is high. */
struct cut {
    uint32_t rows, small, large, n_large, n;
};

static struct cut cut_of(const struct rn_fast_context *c, const struct product *p)
{
    struct cut cut = {.rows = p->weight->rows, .small = piece_rows(c, p, streams(p) ? 16 : 32)};
    uint32_t rest;

    cut.large = 4 * cut.small;
    cut.n_large = cut.rows / 4 * 3 / cut.large;
    rest = cut.rows - cut.n_large * cut.large;
    cut.n = cut.n_large + (rest + cut.small - 1) / cut.small;
    return cut;
}

/* The i-th piece; of no rows where there is none. */
static struct stretch stretch_of(const struct cut *cut, uint32_t i)
{
    struct stretch s = {i * cut->large, cut->large};

    if (i >= cut->n)
        return (struct stretch){cut->rows, 0};
    if (i < cut->n_large)
        return s;
    s.first = cut->n_large * cut->large + (i - cut->n_large) * cut->small;
    s.n = cut->rows - s.first < cut->small ? cut->rows - s.first : cut->small;
    return s;
}

/* Worker's share of n rows: whole tiles. */
static struct stretch share_of(const struct product *p, uint32_t n, uint32_t worker, uint32_t n_workers)
{
    uint64_t tiles = n / p->kernel->tile;
    uint32_t first = (uint32_t)(tiles * worker / n_workers), end = (uint32_t)(tiles * (worker + 1) / n_workers);

    return (struct stretch){first * p->kernel->tile, (end - first) * p->kernel->tile};
}

/* Tiles and few inputs: a worker goes through a share of its own, which is one linear stream, in small pieces. When it has
 * none left it takes those of the others. */
static void multiply_shares(const struct rn_fast_context *c, const struct product *p, uint32_t index)
{
    const struct stretch none = {0, 0};
    uint32_t tile_rows = p->kernel->tile, owner, n, v, i;
    struct stretch share, s;

    for (v = 0; v < c->n_workers; v++) {
        owner = (c->worker + v) % c->n_workers;
        share = share_of(p, p->weight->rows, owner, c->n_workers);
        n = share.n / (SHARE_PIECES * tile_rows) * tile_rows;
        n = n < tile_rows ? tile_rows : n;
        while ((uint64_t)(i = rn_fast_take_of(c, index, owner)) * n < share.n && !rn_stop_is_set(c->step->stop)) {
            s = (struct stretch){share.first + i * n, share.n - i * n < n ? share.n - i * n : n};
            piece(c, p, s, none);
        }
    }
}

void rn_fast_try(struct rn_fast *fast, uint32_t worker, uint32_t n_workers, const struct rn_kernel *kernel,
                 const struct rn_weight *weight, const uint8_t *matrix, uint32_t n_rows, uint32_t ahead,
                 const void *input, uint32_t n, float *out)
{
    const struct rn_fast_context c = {fast, NULL, &fast->scratch[worker], worker, n_workers};
    const struct product p = {.kernel = kernel,
                              .weight = weight,
                              .matrix = matrix,
                              .ahead = ahead,
                              .inputs = input,
                              .input_bytes = rn_input_bytes(kernel->input, weight->cols),
                              .out = out,
                              .out_width = n_rows,
                              .n = n,
                              .share = n};

    piece(&c, &p, share_of(&p, n_rows, worker, n_workers), (struct stretch){0, 0});
}

/* Where rows are streams, a worker takes its next piece before it ends the last one, to ask for it in time. */
static void op_matmul(const struct rn_fast_context *c, uint32_t index)
{
    const struct rn_instruction *in = &c->fast->program.list[index];
    struct product p;
    struct cut cut;
    uint32_t next, i;

    if (domain(c, in) == 0) /* no logits wanted: there may be no memory for them */
        return;
    p = product_of(c, in);
    if (p.tiled && p.n < p.kernel->pack_from) {
        multiply_shares(c, &p, index);
        return;
    }
    cut = cut_of(c, &p);
    for (i = rn_fast_take(c, index); i < cut.n && !rn_stop_is_set(c->step->stop); i = next) {
        next = streams(&p) ? rn_fast_take(c, index) : cut.n;
        piece(c, &p, stretch_of(&cut, i), stretch_of(&cut, next));
        next = streams(&p) ? next : rn_fast_take(c, index);
    }
}

/* Sorts the entries (row, j) by expert: order, starts, active of the scratch. Returns how many are active. */
static uint32_t group_by_expert(const struct rn_fast_context *c, const struct rn_op *op, uint32_t entries)
{
    const int32_t *ids = (const int32_t *)rn_fast_row(c, op->b, 0);
    uint32_t *starts = c->scratch->starts, *order = c->scratch->order;
    uint32_t e, i, n_active = 0;

    memset(starts, 0, ((size_t)op->experts + 1) * sizeof *starts);
    for (i = 0; i < entries; i++)
        starts[ids[i] + 1]++;
    for (e = 0; e < op->experts; e++) {
        if (starts[e + 1] > 0)
            c->scratch->active[n_active++] = e;
        starts[e + 1] += starts[e];
    }
    for (i = 0; i < entries; i++)
        order[starts[ids[i]]++] = i; /* each start moves to its end, which is the next one's start */
    memmove(starts + 1, starts, (size_t)op->experts * sizeof *starts);
    starts[0] = 0;
    return n_active;
}

/* Expert e's part of a product. */
static struct product expert_product(const struct rn_fast_context *c, const struct product *all, const struct rn_op *op,
                                     uint32_t e)
{
    struct product p = *all;

    p.matrix += (size_t)e * p.weight->rows * p.weight->row_bytes;
    p.bias = p.bias == NULL ? NULL : p.bias + (size_t)e * p.weight->rows;
    p.entries = c->scratch->order + c->scratch->starts[e];
    p.n = c->scratch->starts[e + 1] - c->scratch->starts[e];
    p.share = op->per_expert_input ? 1 : op->used;
    return p;
}

static void op_expert_matmul(const struct rn_fast_context *c, uint32_t index)
{
    const struct rn_instruction *in = &c->fast->program.list[index];
    uint32_t n_active, rows, per_expert, first, left, i;
    struct product p, one;

    if (domain(c, in) == 0)
        return;
    p = product_of(c, in);
    n_active = group_by_expert(c, in->op, p.n * in->op->used);
    rows = piece_rows(c, &p, 8);
    per_expert = (p.weight->rows + rows - 1) / rows;
    while ((i = rn_fast_take(c, index)) < n_active * per_expert && !rn_stop_is_set(c->step->stop)) {
        one = expert_product(c, &p, in->op, c->scratch->active[i / per_expert]);
        first = i % per_expert * rows;
        left = p.weight->rows - first;
        piece(c, &one, (struct stretch){first, left < rows ? left : rows}, (struct stretch){first, 0});
    }
}

static void op_attention(const struct rn_fast_context *c, uint32_t index)
{
    rn_fast_attention(c, index);
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
                angle = c->step->rows[row].position * table->inv_freq[i];
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

/* This worker's rows through instructions [first, last), one row after the other. */
static void run_rows(const struct rn_fast_context *c, uint32_t first, uint32_t last)
{
    const struct rn_instruction *list = c->fast->program.list;
    uint64_t n = domain(c, &list[first]);
    uint32_t row, i;

    for (row = (uint32_t)(n * c->worker / c->n_workers); row < n * (c->worker + 1) / c->n_workers; row++) {
        for (i = first; i < last; i++) {
            if (list[i].op == NULL)
                quantise(c, &list[i], row);
            else
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
        } else {
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
