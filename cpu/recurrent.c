/* Ops with a recurrent state on the team. Workers share the channels: whoever has some of them goes through all rows of
 * the step, a run of each sequence after the other, in order.
 *
 * Law 5: each row is computed from the state behind the row before it, by the same calls, wherever a step begins. */
#include <math.h>
#include <string.h>

#include "cpu/execute.h"
#include "model/stop.h"

enum { CHANNELS = 64 }; /* of one piece of work: some cache lines, and enough for the vectors of a level */

struct rn_fast_run rn_fast_next_run(const struct rn_fast_context *c, const struct rn_op *op, struct rn_fast_run run)
{
    const struct rn_step *step = c->step;
    struct rn_fast_run next = {.row = run.row + run.n};
    uint32_t seq;

    if (next.row >= step->n_rows)
        return next;
    seq = step->rows[next.row].seq;
    while (next.row + next.n < step->n_rows && step->rows[next.row + next.n].seq == seq)
        next.n++;
    next.state = (float *)(c->fast->states + step->states[seq] * c->fast->state_stride) +
                 c->fast->plan->state_layers[op->layer].at;
    return next;
}

/* ---- Convolutions: the state is [(taps - 1) * span][width], the oldest row first ---- */

/* Row `at` of a run, of which the state has those before the first. */
static float *tap(const struct rn_fast_context *c, const struct rn_op *op, struct rn_fast_run run, uint32_t before,
                  int64_t at)
{
    uint32_t width = rn_fast_width(c, op->a);

    return at >= 0 ? rn_fast_row(c, op->a, run.row + (uint32_t)at) : run.state + (size_t)(at + (int64_t)before) * width;
}

static void conv_run(const struct rn_fast_context *c, const struct rn_op *op, struct rn_fast_run run, uint32_t first,
                     uint32_t n)
{
    uint32_t width = rn_fast_width(c, op->a), taps = c->fast->plan->weights[op->weight].cols, known, r, i;
    uint32_t span = op->span > 1 ? op->span : 1, before = (taps - 1) * span;
    const float *weights = c->fast->vectors[op->weight] + first, *inputs[RN_MAX_TAPS];
    const float *bias = op->bias < 0 ? NULL : c->fast->vectors[op->bias] + first;

    for (i = 0; op->ahead > 0 && i < before; i++)
        memset(run.state + (size_t)i * width + first, 0, n * sizeof *run.state);
    for (r = 0; r < run.n; r++) {
        known = run.n - r > op->ahead ? taps : taps - (op->ahead - (run.n - r - 1)); /* behind the last row are zeros */
        for (i = 0; i < known; i++)
            inputs[i] = tap(c, op, run, before, (int64_t)r + i * span + op->ahead - before) + first;
        c->fast->level->rows->conv(rn_fast_row(c, op->out, run.row + r) + first, inputs, weights, width, bias, known,
                                   n);
        if (op->activated)
            c->fast->level->rows->activate(rn_fast_row(c, op->out, run.row + r) + first,
                                           rn_fast_row(c, op->out, run.row + r) + first, op->act, n);
    }
    for (i = 0; i < before; i++) /* upwards: a row of the state comes from one behind it */
        memcpy(run.state + (size_t)i * width + first, tap(c, op, run, before, (int64_t)run.n + i - before) + first,
               n * sizeof *run.state);
}

void rn_fast_conv(const struct rn_fast_context *c, uint32_t index)
{
    const struct rn_op *op = c->fast->program.list[index].op;
    uint32_t width = rn_fast_width(c, op->a), i, first;
    struct rn_fast_run run;

    while ((uint64_t)(i = rn_fast_take(c, index)) * CHANNELS < width && !rn_stop_is_set(c->step->stop)) {
        first = i * CHANNELS;
        for (run = rn_fast_next_run(c, op, (struct rn_fast_run){0}); run.n > 0; run = rn_fast_next_run(c, op, run))
            conv_run(c, op, run, first, width - first < CHANNELS ? width - first : CHANNELS);
    }
}

/* ---- Rows of blocks: the state is as ops.def says ---- */

/* What n channels of one row of the step add to the state. */
static void keep(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row, uint32_t channel, uint32_t n,
                 float *to)
{
    uint32_t width = rn_fast_width(c, op->a), in_block = c->step->rows[row].position % op->per, i;
    const float *weight = c->fast->vectors[op->weight] + (size_t)channel * op->per + in_block; /* by columns */
    const float *scores = rn_fast_row(c, op->b, row) + channel;

    memcpy(to + channel, rn_fast_row(c, op->a, row) + channel, n * sizeof *to);
    for (i = 0; i < n; i++)
        to[width + channel + i] = scores[i] + weight[(size_t)i * op->per];
}

/* Channels [first, first + n) of the row of the block that ends at position `at`. */
static void pool(const struct rn_fast_context *c, const struct rn_op *op, const float *state, uint32_t at,
                 uint32_t first, uint32_t n, float *out)
{
    uint32_t width = rn_fast_width(c, op->a), all = width / op->k_dim * op->per, i, k;
    uint32_t begin = at + 1 < all ? all - (at + 1) : 0; /* of the first block there is none before */
    float most[CHANNELS], weights[CHANNELS], total[CHANNELS];
    const float *row;

    for (k = begin; k < all; k++) {
        row = state + ((size_t)((at + 1 + k) % all) * 2 + 1) * width + (size_t)(k / op->per) * op->k_dim + first;
        for (i = 0; i < n; i++)
            most[i] = k == begin || row[i] > most[i] ? row[i] : most[i];
    }
    memset(total, 0, sizeof total);
    memset(out, 0, n * sizeof *out);
    for (k = begin; k < all; k++) {
        row = state + (size_t)((at + 1 + k) % all) * 2 * width + (size_t)(k / op->per) * op->k_dim + first;
        for (i = 0; i < n; i++)
            weights[i] = row[width + i] - most[i];
        c->fast->level->rows->activate(weights, weights, RN_ACT_EXP, n);
        for (i = 0; i < n; i++) {
            total[i] += weights[i];
            out[i] += weights[i] * row[i];
        }
    }
    for (i = 0; i < n; i++)
        out[i] /= total[i];
}

static void compress_run(const struct rn_fast_context *c, const struct rn_op *op, struct rn_fast_run run,
                         uint32_t first, uint32_t n)
{
    uint32_t width = rn_fast_width(c, op->a), parts = width / op->k_dim, r, at, i;
    float *out;

    for (r = run.row; r < run.row + run.n; r++) {
        at = c->step->rows[r].position;
        out = rn_fast_row(c, op->out, r) + first;
        for (i = 0; i < parts; i++)
            keep(c, op, r, i * op->k_dim + first, n, run.state + (size_t)(at % (parts * op->per)) * 2 * width);
        if ((at + 1) % op->per == 0)
            pool(c, op, run.state, at, first, n, out);
        else
            memset(out, 0, n * sizeof *out);
    }
}

void rn_fast_compress(const struct rn_fast_context *c, uint32_t index)
{
    const struct rn_op *op = c->fast->program.list[index].op;
    struct rn_fast_run run;
    uint32_t i, first;

    while ((uint64_t)(i = rn_fast_take(c, index)) * CHANNELS < op->k_dim && !rn_stop_is_set(c->step->stop)) {
        first = i * CHANNELS;
        for (run = rn_fast_next_run(c, op, (struct rn_fast_run){0}); run.n > 0; run = rn_fast_next_run(c, op, run))
            compress_run(c, op, run, first, op->k_dim - first < CHANNELS ? op->k_dim - first : CHANNELS);
    }
}

/* ---- Scans: the state of a head is [k_dim][v_dim]; where decay differs within it, that of all is [k_dim][heads] ----
 * */

static struct rn_scan scan_of(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row, uint32_t group)
{
    const float *b = rn_fast_row(c, op->a, row) + (size_t)op->heads * op->v_dim + (size_t)group * op->k_dim;

    return (struct rn_scan){.b = b, .c = b + (size_t)op->kv_heads * op->k_dim, .depth = op->k_dim};
}

/* Heads [first, first + n), each with one decay. */
static void scan_heads(const struct rn_fast_context *c, const struct rn_op *op, struct rn_fast_run run, uint32_t first,
                       uint32_t n)
{
    const float *decays = c->fast->vectors[op->weight], *skips = op->bias < 0 ? NULL : c->fast->vectors[op->bias];
    uint32_t head, r;
    struct rn_scan s;

    for (head = first; head < first + n; head++)
        for (r = run.row; r < run.row + run.n; r++) {
            s = scan_of(c, op, r, head / (op->heads / op->kv_heads));
            s.dt = rn_fast_row(c, op->b, r)[head];
            s.decay = expf(s.dt * decays[head]);
            s.skip = skips == NULL ? 0 : skips[head];
            s.x = rn_fast_row(c, op->a, r) + (size_t)head * op->v_dim;
            s.out = rn_fast_row(c, op->out, r) + (size_t)head * op->v_dim;
            s.state = run.state + (size_t)head * op->v_dim * op->k_dim;
            s.stride = s.n = op->v_dim;
            c->fast->level->rows->scan(&s);
        }
}

/* Heads of one value, each with a decay of its own for each n. */
static void scan_channels(const struct rn_fast_context *c, const struct rn_op *op, struct rn_fast_run run,
                          uint32_t first, uint32_t n)
{
    struct rn_scan s;
    uint32_t r;

    for (r = run.row; r < run.row + run.n; r++) {
        s = scan_of(c, op, r, 0);
        s.decays = c->fast->vectors[op->weight] + first;
        s.dts = rn_fast_row(c, op->b, r) + first;
        s.skips = op->bias < 0 ? NULL : c->fast->vectors[op->bias] + first;
        s.x = rn_fast_row(c, op->a, r) + first;
        s.out = rn_fast_row(c, op->out, r) + first;
        s.state = run.state + first;
        s.stride = op->heads;
        s.n = n;
        c->fast->level->rows->scan_channels(&s);
    }
}

void rn_fast_scan(const struct rn_fast_context *c, uint32_t index)
{
    const struct rn_op *op = c->fast->program.list[index].op;
    bool by_head = c->fast->plan->weights[op->weight].cols == 1;
    uint32_t each = by_head && op->v_dim > CHANNELS / 2 ? 1 : CHANNELS / op->v_dim, i, first, n;
    struct rn_fast_run run;

    while ((uint64_t)(i = rn_fast_take(c, index)) * each < op->heads && !rn_stop_is_set(c->step->stop)) {
        first = i * each;
        n = op->heads - first < each ? op->heads - first : each;
        for (run = rn_fast_next_run(c, op, (struct rn_fast_run){0}); run.n > 0; run = rn_fast_next_run(c, op, run))
            (by_head ? scan_heads : scan_channels)(c, op, run, first, n);
    }
}
