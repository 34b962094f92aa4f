/* chunk-mean on the fast path: the formula and the rule are in model/chunk.h.
 *
 * Means are made between KV_STORE and ATTENTION, when all rows of the step are stored, and only in a step in which a
 * chunk ends; each by one worker, in double, in order of position. What a row sees, sinks, means and positions, is
 * three walks of the plain attention over two tables, segment by segment, each leaving a part; parts of means get ln 64
 * on their largest score, which is the same as on every one of them. Then they are merged, in order. So there is no
 * second kernel, and what the row's position says alone decides on the operations (law 5). */
#include <string.h>

#include "base/check.h"
#include "cpu/fast.h"
#include "model/kv.h"

/* ---- Making them ---- */

/* A cache of one head: `unit` bytes of a row lie together, and the next ones `stride` bytes on. */
struct rows {
    uint8_t *at;     /* of block 0 */
    size_t block;    /* bytes from one block to the next */
    size_t position; /* ... from one position to the next */
    size_t stride;
    uint32_t unit, dim;
};

static void gather(const struct rows *rows, const uint8_t *at, size_t bytes, uint8_t *out)
{
    size_t i;

    if (rows->stride == rows->unit) {
        memcpy(out, at, bytes);
        return;
    }
    for (i = 0; i * rows->unit < bytes; i++)
        memcpy(out + i * rows->unit, at + i * rows->stride, rows->unit);
}

/* mean[dim] of the chunk, not rotated; sums[dim] and bytes[row] are scratch. */
static void mean_of(const struct rn_fast *fast, const struct rows *rows, const struct rn_step_seq *seq, uint32_t chunk,
                    double *sums, uint8_t *bytes, float *mean)
{
    runnel_kv_type type = fast->limits.kv_type;
    uint32_t in_block = fast->limits.block_tokens - 1, position, j, i;

    memset(sums, 0, rows->dim * sizeof *sums);
    for (j = 0; j < RN_CHUNK; j++) {
        position = chunk * RN_CHUNK + j;
        gather(rows,
               rows->at + seq->blocks[position >> fast->block_shift] * rows->block +
                   (position & in_block) * rows->position,
               rn_kv_row_bytes(type, rows->dim), bytes);
        rn_kv_decode(type, bytes, rows->dim, mean);
        for (i = 0; i < rows->dim; i++)
            sums[i] += mean[i];
    }
    for (i = 0; i < rows->dim; i++)
        mean[i] = (float)(sums[i] / RN_CHUNK);
    if (rn_kv_rotated(type)) /* back, since it is rotated when it is stored */
        rn_kv_rotate(mean, rows->dim);
}

/* One head of one chunk: its mean key and its mean value. */
static void store(const struct rn_fast *fast, const struct rn_fast_layer *layer, uint32_t head,
                  const struct rn_step_row *row, float *scratch)
{
    const struct rn_step_seq *seq = &fast->step->seqs[row->seq];
    runnel_kv_type type = fast->limits.kv_type;
    uint32_t unit = rn_kv_unit_bytes(type), chunk = row->position / RN_CHUNK;
    uint32_t most = layer->k_dim > layer->v_dim ? layer->k_dim : layer->v_dim;
    size_t block = seq->means[chunk >> fast->block_shift], at = chunk & (fast->limits.block_tokens - 1);
    struct rows keys = {layer->keys + head * layer->key_head,
                        layer->key_block,
                        unit,
                        (size_t)fast->limits.block_tokens * unit,
                        unit,
                        layer->k_dim};
    struct rows values = {layer->values + head * layer->value_head,
                          layer->value_block,
                          rn_kv_row_bytes(type, layer->v_dim),
                          unit,
                          unit,
                          layer->v_dim};
    double *sums = (double *)scratch;
    float *mean = scratch + 2 * (size_t)most;
    uint8_t *bytes = (uint8_t *)(mean + most);

    mean_of(fast, &keys, seq, chunk, sums, bytes, mean);
    fast->level->rows->key_store(keys.at + block * keys.block + at * keys.position, mean, keys.dim,
                                 fast->limits.block_tokens, type);
    if (layer->v_dim == 0) /* values are in the keys */
        return;
    mean_of(fast, &values, seq, chunk, sums, bytes, mean);
    fast->level->rows->kv_store(values.at + block * values.block + at * values.position, mean, values.dim, type);
}

void rn_fast_means_ready(struct rn_fast *fast)
{
    const struct rn_step *step = fast->step;
    uint32_t i;

    fast->n_mean_rows = 0;
    for (i = 0; i < step->n_rows && fast->limits.mean_window > 0; i++)
        if (rn_chunk_ends(fast->limits.mean_window, step->rows[i].position))
            fast->mean_rows[fast->n_mean_rows++] = i;
}

bool rn_fast_means_due(const struct rn_fast *fast, uint32_t phase)
{
    return fast->n_mean_rows > 0 && rn_program_attends(&fast->program, phase);
}

/* Those of one ATTENTION's layer. */
static void store_layer(struct rn_fast *fast, const struct rn_op *op, uint32_t worker, uint32_t n_workers)
{
    uint32_t n = fast->n_mean_rows * op->kv_heads, i;

    for (i = worker; i < n; i += n_workers)
        store(fast, &fast->layers[op->layer], i % op->kv_heads, &fast->step->rows[fast->mean_rows[i / op->kv_heads]],
              fast->scratch[worker].attend);
}

void rn_fast_means_store(struct rn_fast *fast, uint32_t phase, uint32_t worker, uint32_t n_workers)
{
    const struct rn_program *program = &fast->program;
    uint32_t i;

    for (i = program->starts[phase]; i < program->starts[phase + 1]; i++)
        if (program->list[i].op != NULL && program->list[i].op->kind == RN_OP_ATTENTION)
            store_layer(fast, program->list[i].op, worker, n_workers);
}

/* ---- Seeing them ---- */

/* Entries [first, end) of a table for the one row of t, a part for each segment; returns how many parts. */
static uint32_t walk(const struct rn_attention *attention, const struct rn_attend *t, const uint32_t *blocks,
                     uint32_t first, uint32_t end, float *parts)
{
    struct rn_attend w = *t;
    size_t part = rn_attend_part(t->queries, t->v_dim);
    uint32_t n = 0, at;

    if (first == end)
        return 0;
    w.blocks = blocks;
    w.last = w.own = end - 1;
    w.window = end - first;
    w.first = 0;
    w.segment = rn_attend_segment(end - first);
    for (at = first / w.segment * w.segment; at < end; at += w.segment) {
        w.from = at;
        w.to = at + 1;
        w.part = parts + n++ * part;
        attention->attend(&w);
    }
    return n;
}

void rn_fast_means_attend(const struct rn_attention *attention, const struct rn_attend *t,
                          const struct rn_step_seq *seq, const struct rn_chunk_span *span, float *parts)
{
    uint32_t v_pad = rn_attend_pad(t->v_dim), n, i, end;
    size_t part = rn_attend_part(t->queries, t->v_dim);

    RN_ASSERT(t->rows == 1);
    n = walk(attention, t, seq->blocks, span->sink, span->sink_end, parts);
    i = n * t->queries;
    n += walk(attention, t, seq->means, span->from, span->to, parts + n * part);
    for (end = n * t->queries; i < end; i++)
        parts[(size_t)i * (v_pad + 2) + v_pad] += (float)RN_CHUNK_LOG;
    n += walk(attention, t, seq->blocks, span->first, t->last + 1, parts + n * part);
    RN_ASSERT(n <= RN_MEANS_PARTS);
    attention->merge(t, parts, n);
}
