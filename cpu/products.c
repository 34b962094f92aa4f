/* Matrix products of the fast backend: how they are cut into pieces that workers take.
 *
 *   MATMUL         weights in tiles and few inputs: a share for each worker, read as a few streams from its beginning
 *                  to its end, taken in small pieces; then others' pieces
 *                  else: large pieces for whoever comes, small ones at the end
 *   EXPERT_MATMUL  entries (row, j) by expert; each expert that has any is read once, for all of them
 *   HEAD_MATMUL    a matrix for each head
 *
 * Each row of a matrix is computed by one worker, in one order, whatever the pieces are (law 5).
 *
 * A worker that waits at a barrier asks for the weights in tiles that it reads first behind it: memory would have
 * nothing to do meanwhile. */
#include "cpu/execute.h"

#include <string.h>

#include "cpu/nodes.h"
#include "model/expert_use.h"
#include "model/stop.h"

enum {
    SHARE_PIECES = 16,  /* of a worker's share of a matrix */
    ASKED_LINES = 2048, /* of the next product, by a worker that waits: a part of the second-level cache */
    AT_ONCE = 16        /* before it looks again whether it has to wait */
};

/* One weight matrix and the inputs that it meets. */
struct product {
    const struct rn_kernel *kernel;
    const struct rn_weight *weight;
    const uint8_t *matrix;
    const struct rn_reading *readings; /* [RN_READINGS] of tiles; NULL: rows lie as in the file */
    const float *bias;                 /* [rows] or NULL */
    const char *inputs; /* entry e reads inputs + e / share * input_bytes, and writes out + e * out_width */
    size_t input_bytes;
    const char *laid; /* all inputs, likewise; NULL: they are not */
    float *out;
    uint32_t out_width;
    const uint32_t *entries; /* NULL: 0, 1, 2 ... */
    uint32_t n, share;
};

/* The inputs of a product are gathered once, before a worker's first tile of it. */
static void gather(const struct rn_fast_context *c, const struct product *p, const struct rn_matmul *m)
{
    const void *inputs = p->entries != NULL ? (const void *)p->entries : p->inputs;

    if (c->scratch->meets == inputs)
        return;
    p->kernel->gather(m);
    c->scratch->meets = inputs;
}

/* Weights, as they lie, that are read next. */
struct stretch {
    const uint8_t *at;
    size_t bytes;
};

/* Of `next` what the inputs [i, i + m->n) have to ask for: with them all of it. */
static void share_next(struct rn_matmul *m, const struct product *p, struct stretch next, uint32_t i)
{
    size_t lines = next.bytes / 64, from = lines * i / p->n, to = lines * (i + m->n) / p->n;

    m->next = next.at + 64 * from;
    m->next_lines = (uint32_t)(to - from);
}

/* How its tiles are read. */
static struct rn_reading reading_of(const struct product *p)
{
    struct rn_reading reading = {.streams = 1};

    if (p->readings != NULL)
        reading = p->readings[rn_reading_of(p->n)];
    if (reading.streams > p->kernel->streams || reading.streams == 0)
        reading.streams = 1;
    return reading;
}

static void tile(const struct rn_fast_context *c, const struct product *p, uint32_t first_row, uint32_t rows,
                 uint32_t step, uint32_t gap, struct stretch next)
{
    const struct rn_reading reading = reading_of(p);
    struct rn_matmul m = {.weights = p->matrix + (size_t)first_row * p->weight->row_bytes,
                          .row_bytes = p->weight->row_bytes,
                          .rows = rows,
                          .step = step,
                          .gap = gap,
                          .ahead = reading.ahead,
                          .cols = p->weight->cols,
                          .type = p->weight->type,
                          .panel = c->scratch->panel};
    bool packed = p->n >= p->kernel->pack_from;
    uint32_t i, j, e, r, at;

    if (packed)
        p->kernel->pack(&m);
    for (i = 0; i < p->n; i += m.n) {
        m.n = rn_kernel_inputs(p->kernel, p->n - i);
        for (j = 0; j < m.n; j++) {
            e = p->entries == NULL ? i + j : p->entries[i + j];
            m.inputs[j] = p->inputs + (size_t)(e / p->share) * p->input_bytes;
            m.out[j] = p->out + (size_t)e * p->out_width + first_row;
        }
        m.laid = packed && p->laid != NULL ? p->laid + i / 16 * (size_t)(m.cols / 32) * RN_LAID_BYTES : NULL;
        share_next(&m, p, next, i);
        if (rn_kernel_gathers(p->kernel, p->n))
            gather(c, p, &m);
        (packed ? p->kernel->packed : p->kernel->direct)(&m);
        for (j = 0; j < m.n && p->bias != NULL; j++)
            for (r = 0; r < rows; r++) {
                at = r * step + r / RN_TILE_ROWS * gap;
                m.out[j][at] += p->bias[first_row + at];
            }
    }
}

/* Of floats as they lie: so many tiles that a call is worth it where rows are short, as an adapter's are. */
static uint32_t float_height(const struct product *p)
{
    enum { CALL_BYTES = 8 << 10 };
    size_t tile_bytes = p->kernel->tile * p->weight->row_bytes;

    return p->kernel->tile * (tile_bytes < CALL_BYTES ? (uint32_t)(CALL_BYTES / tile_bytes) : 1);
}

/* Rows that are handed over together. */
static uint32_t height_of(const struct product *p)
{
    if (p->n >= p->kernel->pack_from)
        return rn_kernel_panel(p->kernel, p->weight->cols);
    if (p->kernel->input == RN_INPUT_F32 && p->kernel->direct != NULL)
        return float_height(p);
    return p->readings != NULL && p->n <= p->kernel->few ? RN_TILE_ROWS * reading_of(p).streams
                                                         : rn_kernel_height(p->kernel, p->n);
}

/* Weight rows of one piece of work: about so many pieces for each worker, whole tiles. */
static uint32_t piece_rows(const struct rn_fast_context *c, const struct product *p, uint32_t pieces)
{
    uint32_t rows = p->weight->rows / (c->n_workers * pieces);

    return rows < p->kernel->tile ? p->kernel->tile : rows - rows % p->kernel->tile;
}

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
static void fetch_streams(const struct product *p, struct rn_fast_rows next)
{
    size_t row_bytes = p->weight->row_bytes, at;
    uint32_t height = height_of(p), step = step_of(p, next.n), r;

    for (at = 0; at < RN_STREAM_AHEAD && at < step * row_bytes; at += 64)
        for (r = 0; r < height; r++)
            __builtin_prefetch(p->matrix + (next.first + (size_t)r * step) * row_bytes + at, 0, 2);
}

static bool packs(const struct product *p)
{
    return p->n >= p->kernel->pack_from;
}

/* The panel that begins with the rows. */
static struct stretch panel_of(const struct product *p, struct rn_fast_rows rows)
{
    uint32_t n = rows.n < height_of(p) ? rows.n : height_of(p);
    size_t bytes = n * p->weight->row_bytes;

    if (!packs(p) || n == 0)
        return (struct stretch){NULL, 0};
    return (struct stretch){p->matrix + rows.first * p->weight->row_bytes,
                            bytes < RN_NEXT_BYTES ? bytes : RN_NEXT_BYTES};
}

/* How a few inputs meet rows of a matrix in tiles: `streams` runs of tiles, one behind the other, a turn at a time,
 * which is a tile of each. What is left over are fewer tiles than a turn has. More inputs meet the rows as one run.
 *
 *     first                                                         length = 3, streams = 4
 *     | t0  t1  t2 | t0  t1  t2 | t0  t1  t2 | t0  t1  t2 | left |
 */
struct turns {
    uint32_t first, streams, height; /* rows of a tile of a run */
    uint32_t length, left;           /* turns; rows */
};

static struct turns turns_of(const struct product *p, struct rn_fast_rows rows)
{
    struct turns turns = {.first = rows.first, .streams = 1, .height = height_of(p)};

    if (p->n <= p->kernel->few) {
        turns.streams = turns.height / RN_TILE_ROWS;
        turns.height = RN_TILE_ROWS;
    }
    turns.length = rows.n / (turns.streams * turns.height);
    turns.left = rows.n - turns.length * turns.streams * turns.height;
    return turns;
}

/* The turns [from, to) of those, and behind the last one what is left over. */
static void take_turns(const struct rn_fast_context *c, const struct product *p, struct turns turns, uint32_t from,
                       uint32_t to)
{
    const struct stretch none = {NULL, 0};
    const uint32_t gap = turns.streams > 1 ? (turns.length - 1) * turns.height : 0;
    uint32_t at;

    for (at = from; at < to && at < turns.length; at++)
        tile(c, p, turns.first + at * turns.height, turns.streams * turns.height, 1, gap, none);
    if (to > turns.length && turns.left > 0)
        tile(c, p, turns.first + turns.length * turns.streams * turns.height, turns.left, 1, 0, none);
}

/* Tiles, met as they lie. */
static bool takes_turns(const struct product *p)
{
    return p->readings != NULL && p->n < p->kernel->pack_from;
}

/* The rows of `s`. Before the last tile of each set of streams the next set is asked for, in the end that of `next`,
 * rows of `then`. */
static void piece(const struct rn_fast_context *c, const struct product *p, struct rn_fast_rows s,
                  const struct product *then, struct rn_fast_rows next)
{
    uint32_t height = height_of(p), first, step, i;

    if (takes_turns(p)) {
        take_turns(c, p, turns_of(p, s), 0, UINT32_MAX);
        return;
    }
    while (s.n >= height) {
        step = step_of(p, s.n);
        first = s.first;
        s = (struct rn_fast_rows){first + height * step, s.n - height * step};
        for (i = 0; i < step; i++) {
            if (i + 1 == step && streams(p))
                fetch_streams(s.n >= height ? p : then, s.n >= height ? s : next);
            tile(c, p, first + i, height, step, 0, s.n > 0 ? panel_of(p, s) : panel_of(then, next));
        }
    }
    if (s.n > 0)
        tile(c, p, s.first, s.n, 1, 0, panel_of(then, next));
}

static struct product product_of(const struct rn_fast_context *c, const struct rn_instruction *in)
{
    const struct rn_op *op = in->op;
    const struct rn_weight *weight = &c->fast->plan->weights[op->weight];
    const uint8_t *tiles = c->fast->tiles[op->weight];

    return (struct product){.kernel = in->kernel,
                            .weight = weight,
                            .matrix = tiles != NULL ? tiles : weight->tensor->data,
                            .readings = tiles != NULL ? c->fast->readings[weight->type_id] : NULL,
                            .bias = rn_fast_vector(c, op->bias),
                            .inputs = in->input == RN_INPUT_F32 ? (const char *)rn_fast_row(c, op->a, 0)
                                                                : c->fast->inputs[in->input],
                            .input_bytes = rn_input_bytes(in->input, weight->cols),
                            .laid = in->lays && rn_fast_rows_of(c, in) >= RN_LAY_FROM ? c->fast->laid : NULL,
                            .out = rn_fast_row(c, op->out, 0),
                            .out_width = weight->rows,
                            .n = rn_fast_rows_of(c, in),
                            .share = 1};
}

/* How a stretch of a matrix is cut: large pieces, and its last quarter in small ones, so that the workers end at nearly
 * the same time. Where rows are streams, pieces are twice as large: a stream is as long as its piece is high. */
struct cut {
    struct rn_fast_rows rows;
    uint32_t small, large, n_large, n;
};

static struct cut cut_of(const struct rn_fast_context *c, const struct product *p, struct rn_fast_rows rows)
{
    struct cut cut = {.rows = rows, .small = piece_rows(c, p, streams(p) ? 16 : 32)};
    uint32_t rest;

    cut.large = 4 * cut.small;
    cut.n_large = rows.n / 4 * 3 / cut.large;
    rest = rows.n - cut.n_large * cut.large;
    cut.n = cut.n_large + (rest + cut.small - 1) / cut.small;
    return cut;
}

/* The i-th piece; of no rows where there is none. */
static struct rn_fast_rows piece_of(const struct cut *cut, uint32_t i)
{
    uint32_t large = i < cut->n_large ? i : cut->n_large, at = large * cut->large + (i - large) * cut->small;
    uint32_t height = i < cut->n_large ? cut->large : cut->small;

    if (i >= cut->n)
        return (struct rn_fast_rows){cut->rows.first + cut->rows.n, 0};
    return (struct rn_fast_rows){cut->rows.first + at, cut->rows.n - at < height ? cut->rows.n - at : height};
}

struct rn_fast_rows rn_fast_share(uint32_t n_rows, uint32_t tile, uint32_t first, uint32_t end, uint32_t n_workers)
{
    uint64_t tiles = n_rows / tile;
    uint32_t from = (uint32_t)(tiles * first / n_workers) * tile;
    uint32_t to = end == n_workers && first < end ? n_rows : (uint32_t)(tiles * end / n_workers) * tile;

    return (struct rn_fast_rows){from, to - from};
}

/* The stretch of the workers of a node, of no rows where it has none; the whole matrix on a machine of one. */
static struct rn_fast_rows node_rows(const struct rn_fast_context *c, const struct product *p, uint32_t node)
{
    const struct rn_team *team = c->fast->team;

    return rn_fast_share(p->weight->rows, p->kernel->tile, rn_team_first(team, node), rn_team_first(team, node + 1),
                         c->n_workers);
}

/* Tiles and few inputs: a worker goes through a share of its own turn by turn, in small pieces. When it has none left
 * it takes those of the others, of its own node first. */
static void multiply_shares(const struct rn_fast_context *c, const struct product *p, uint32_t index)
{
    uint32_t node = rn_team_node(c->fast->team, c->worker), owner, n, v, i;
    uint32_t first = rn_team_first(c->fast->team, node), end = rn_team_first(c->fast->team, node + 1);
    struct turns turns;

    for (v = 0; v < c->n_workers; v++) {
        owner = rn_nodes_share(c->worker, first, end, c->n_workers, v);
        turns = turns_of(p, rn_fast_share(p->weight->rows, p->kernel->tile, owner, owner + 1, c->n_workers));
        n = turns.length / SHARE_PIECES > 0 ? turns.length / SHARE_PIECES : 1;
        while ((uint64_t)(i = rn_fast_take_of(c, index, owner)) * n <= turns.length && !rn_stop_is_set(c->step->stop))
            take_turns(c, p, turns, i * n, (i + 1) * n);
    }
}

void rn_fast_try(struct rn_fast *fast, uint32_t worker, const struct rn_kernel *kernel, const struct rn_weight *weight,
                 const uint8_t *matrix, uint32_t n_rows, const struct rn_reading *reading, const void *input,
                 uint32_t n, float *out)
{
    const struct rn_fast_context c = {fast, NULL, &fast->scratch[worker], worker, rn_team_threads(fast->team)};
    struct rn_reading readings[RN_READINGS] = {0};
    const struct product p = {.kernel = kernel,
                              .weight = weight,
                              .matrix = matrix,
                              .readings = reading != NULL ? readings : NULL,
                              .inputs = input,
                              .input_bytes = rn_input_bytes(kernel->input, weight->cols),
                              .out = out,
                              .out_width = n_rows,
                              .n = n,
                              .share = n};

    if (reading != NULL)
        readings[rn_reading_of(n)] = *reading;
    c.scratch->meets = NULL;
    piece(&c, &p, (struct rn_fast_rows){0, n_rows}, &p, (struct rn_fast_rows){0, 0});
}

/* The counter of a node's pieces: its first worker's. A node without workers has no pieces. */
static uint32_t take_of_node(const struct rn_fast_context *c, uint32_t index, uint32_t node)
{
    uint32_t first = rn_team_first(c->fast->team, node);

    return rn_fast_take_of(c, index, first < c->n_workers ? first : 0);
}

/* Pieces of one node's stretch. Where rows are streams or packed, a worker takes its next piece before it ends the last
 * one, to ask for it in time. */
static void multiply_rows(const struct rn_fast_context *c, const struct product *p, uint32_t index, uint32_t node)
{
    const struct cut cut = cut_of(c, p, node_rows(c, p, node));
    const bool early = streams(p) || packs(p);
    uint32_t next, i;

    if (cut.n == 0)
        return;
    for (i = take_of_node(c, index, node); i < cut.n && !rn_stop_is_set(c->step->stop); i = next) {
        next = early ? take_of_node(c, index, node) : cut.n;
        piece(c, p, piece_of(&cut, i), p, piece_of(&cut, next));
        next = early ? next : take_of_node(c, index, node);
    }
}

/* Each worker has as many blocks of sixteen inputs as the others. */
void rn_fast_lay(const struct rn_fast_context *c, uint32_t index)
{
    const struct rn_instruction *in = &c->fast->program.list[index];
    uint32_t n = rn_fast_rows_of(c, in), blocks = in->cols / 32, first, some, group, i;
    uint64_t all = rn_round_up(n, 16) / 16 * blocks, at = all * c->worker / c->n_workers;
    const uint64_t end = all * (c->worker + 1) / c->n_workers;
    const char *rows = c->fast->inputs[in->input];
    const struct rn_line *inputs[16];

    if (n < RN_LAY_FROM)
        return;
    for (; at < end; at += some) {
        group = (uint32_t)(at / blocks);
        first = (uint32_t)(at % blocks);
        some = end - at < blocks - first ? (uint32_t)(end - at) : blocks - first;
        for (i = 0; i < 16; i++)
            inputs[i] = (const struct rn_line *)(rows + (group * 16 + i < n ? group * 16 + i : n - 1) *
                                                            rn_input_bytes(in->input, in->cols));
        c->fast->level->lay(inputs, first, some, (char *)c->fast->laid + at * RN_LAID_BYTES);
    }
}

void rn_fast_matmul(const struct rn_fast_context *c, uint32_t index)
{
    const struct rn_instruction *in = &c->fast->program.list[index];
    uint32_t nodes = rn_team_nodes(c->fast->team), node = rn_team_node(c->fast->team, c->worker), v;
    struct product p;

    if (rn_fast_rows_of(c, in) == 0) /* no logits wanted: there may be no memory for them */
        return;
    c->scratch->meets = NULL;
    p = product_of(c, in);
    if (takes_turns(&p)) {
        multiply_shares(c, &p, index);
        return;
    }
    for (v = 0; v < nodes; v++)
        multiply_rows(c, &p, index, (node + v) % nodes);
}

/* ---- The next product ---- */

/* The product in tiles that the worker comes to next, if it has a share of it; false: another one is before it, or
 * there is none. */
static bool find_next(const struct rn_fast_ask *ask, uint32_t *index, struct product *p)
{
    const struct rn_fast_context c = {ask->fast, ask->fast->step, &ask->fast->scratch[ask->worker], ask->worker,
                                      ask->n_workers};
    const struct rn_program *program = &ask->fast->program;
    const struct rn_instruction *in;

    for (*index = ask->from; *index < program->n; ++*index) {
        in = &program->list[*index];
        if (in->kernel == NULL || rn_fast_rows_of(&c, in) == 0 || (in->op->adapted && !ask->fast->is_adapted))
            continue;
        if (in->op->kind != RN_OP_MATMUL)
            return false;
        *p = product_of(&c, in);
        return takes_turns(p);
    }
    return false;
}

/* Goes on with what was asked for at the last barrier, if that is still what comes next. */
static void look(struct rn_fast_ask *ask)
{
    uint32_t index, lines;
    struct turns turns;
    struct product p;
    size_t tile_bytes;

    ask->looks = false;
    if (!find_next(ask, &index, &p)) {
        ask->line = ask->lines = 0;
        return;
    }
    if (index == ask->index)
        return;
    turns = turns_of(&p, rn_fast_share(p.weight->rows, p.kernel->tile, ask->worker, ask->worker + 1, ask->n_workers));
    tile_bytes = turns.height * p.weight->row_bytes;
    lines = (uint32_t)(turns.length * tile_bytes / 64);
    ask->index = index;
    ask->at = (const char *)p.matrix + turns.first * p.weight->row_bytes;
    ask->streams = turns.streams;
    ask->apart = turns.length * tile_bytes;
    ask->line = 0;
    ask->lines = turns.streams * (lines < ASKED_LINES / turns.streams ? lines : ASKED_LINES / turns.streams);
}

static void ask_on(struct rn_meanwhile *meanwhile)
{
    struct rn_fast_ask *ask = (struct rn_fast_ask *)meanwhile;
    uint32_t i;

    if (ask->looks)
        look(ask);
    for (i = 0; i < AT_ONCE && ask->line < ask->lines; i++, ask->line++)
        __builtin_prefetch(ask->at + ask->line % ask->streams * ask->apart + ask->line / ask->streams * 64, 0, 2);
}

void rn_fast_ask_init(struct rn_fast_ask *ask, struct rn_fast *fast, uint32_t worker, uint32_t n_workers)
{
    *ask = (struct rn_fast_ask){
        .meanwhile = {ask_on}, .fast = fast, .worker = worker, .n_workers = n_workers, .index = UINT32_MAX};
}

struct rn_meanwhile *rn_fast_ask_from(struct rn_fast_ask *ask, uint32_t phase)
{
    ask->from = ask->fast->program.starts[phase];
    ask->looks = true;
    return &ask->meanwhile;
}

/* ---- Products of experts ---- */

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

/* One worker does it for all, a step at a time: an addition for each expert that has rows, none for each row. */
static void count_experts(const struct rn_fast_context *c, const struct rn_op *op, uint32_t n_active)
{
    struct rn_expert_use *use = c->fast->limits.expert_use;
    const uint32_t *starts = c->scratch->starts;
    uint32_t i, e;

    for (i = 0; op->counted && use != NULL && c->worker == 0 && i < n_active; i++) {
        e = c->scratch->active[i];
        rn_expert_use_add(use, (uint32_t)op->layer, e, starts[e + 1] - starts[e]);
    }
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

/* One piece of an expert's part. */
struct expert_piece {
    struct product product;
    struct rn_fast_rows rows;
};

/* How the stretches that one node has of the active experts' parts are cut. */
struct expert_cut {
    struct rn_fast_rows mine; /* of each expert */
    uint32_t rows;            /* of a piece */
    uint32_t per_expert, n;   /* pieces */
};

/* All experts together are cut into as many pieces as one matrix: a few experts into several each, many into whole
 * ones. */
static struct expert_cut cut_experts(const struct rn_fast_context *c, const struct product *p, uint32_t node,
                                     uint32_t n_active)
{
    enum { PIECES = 16 }; /* for each worker */
    struct expert_cut cut = {.mine = node_rows(c, p, node)};
    uint64_t rows = (uint64_t)n_active * p->weight->rows / (c->n_workers * PIECES);

    rows -= rows % p->kernel->tile;
    cut.rows = rows < p->kernel->tile ? p->kernel->tile : rows < cut.mine.n ? (uint32_t)rows : cut.mine.n;
    cut.per_expert = cut.mine.n == 0 ? 0 : (cut.mine.n + cut.rows - 1) / cut.rows;
    cut.n = n_active * cut.per_expert;
    return cut;
}

/* The i-th piece; of no rows where there is none. */
static void expert_piece_of(const struct rn_fast_context *c, const struct product *p, const struct rn_op *op,
                            const struct expert_cut *cut, uint32_t i, struct expert_piece *out)
{
    uint32_t at, left;

    out->rows = (struct rn_fast_rows){0, 0};
    out->product = *p;
    if (i >= cut->n)
        return;
    at = i % cut->per_expert * cut->rows;
    left = cut->mine.n - at;
    out->product = expert_product(c, p, op, c->scratch->active[i / cut->per_expert]);
    out->rows = (struct rn_fast_rows){cut->mine.first + at, left < cut->rows ? left : cut->rows};
}

/* As multiply_rows, for the pieces of all active experts. */
static void multiply_experts(const struct rn_fast_context *c, const struct product *p, uint32_t index, uint32_t node,
                             uint32_t n_active)
{
    const struct rn_op *op = c->fast->program.list[index].op;
    const struct expert_cut cut = cut_experts(c, p, node, n_active);
    struct expert_piece pieces[2];
    uint32_t i, now = 0;

    if (cut.n == 0)
        return;
    i = take_of_node(c, index, node);
    expert_piece_of(c, p, op, &cut, i, &pieces[0]);
    while (i < cut.n && !rn_stop_is_set(c->step->stop)) {
        i = take_of_node(c, index, node);
        expert_piece_of(c, p, op, &cut, i, &pieces[1 - now]);
        piece(c, &pieces[now].product, pieces[now].rows, &pieces[1 - now].product, pieces[1 - now].rows);
        now = 1 - now;
    }
}

void rn_fast_expert_matmul(const struct rn_fast_context *c, uint32_t index)
{
    const struct rn_instruction *in = &c->fast->program.list[index];
    uint32_t nodes = rn_team_nodes(c->fast->team), node = rn_team_node(c->fast->team, c->worker), n_active, v;
    struct product p;

    if (rn_fast_rows_of(c, in) == 0)
        return;
    c->scratch->meets = NULL;
    p = product_of(c, in);
    n_active = group_by_expert(c, in->op, p.n * in->op->used);
    count_experts(c, in->op, n_active);
    for (v = 0; v < nodes; v++)
        multiply_experts(c, &p, index, (node + v) % nodes, n_active);
}

/* ---- Products of each head ---- */

/* The product of one head's part of each row. */
static struct product head_product(const struct product *all, const struct rn_op *op, uint32_t head)
{
    struct product p = *all;

    p.matrix += ((size_t)head * p.weight->rows + op->group) * p.weight->row_bytes;
    p.inputs += head * p.input_bytes;
    p.input_bytes *= op->heads;
    p.out += (size_t)head * op->k_dim;
    p.out_width = op->heads * op->k_dim;
    return p;
}

/* Pieces are rows of one head's matrix: as many of it as make some pieces for each worker. */
void rn_fast_head_matmul(const struct rn_fast_context *c, uint32_t index)
{
    enum { PIECES = 8 };
    const struct rn_instruction *in = &c->fast->program.list[index];
    const struct rn_op *op = in->op;
    uint32_t rows, per_head, at, i;
    struct product all, p;

    if (rn_fast_rows_of(c, in) == 0)
        return;
    c->scratch->meets = NULL;
    all = product_of(c, in);
    rows = (uint32_t)((uint64_t)op->heads * op->k_dim / (c->n_workers * PIECES)) / all.kernel->tile * all.kernel->tile;
    rows = rows < all.kernel->tile ? all.kernel->tile : rows < op->k_dim ? rows : op->k_dim;
    per_head = (op->k_dim + rows - 1) / rows;
    while ((i = rn_fast_take(c, index)) < op->heads * per_head && !rn_stop_is_set(c->step->stop)) {
        p = head_product(&all, op, i / per_head);
        at = i % per_head * rows;
        piece(c, &p, (struct rn_fast_rows){at, op->k_dim - at < rows ? op->k_dim - at : rows}, &p,
              (struct rn_fast_rows){0, 0});
    }
}
