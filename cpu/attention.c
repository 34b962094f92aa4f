/* The op ATTENTION on the fast path, and the groups of rows that it works on.
 *
 * Pieces are (group, head of keys), or one segment of these where there are few. What is computed for a row hangs on
 * what the row looks at alone, never on its group (law 5). */
#include "base/check.h"
#include "cpu/execute.h"
#include "model/stop.h"

/* The positions [first, last] that a row looks at. */
struct sight {
    uint32_t first, last;
};

/* The last row of the row's sequence has the last position. */
static struct sight sight_both_ways(const struct rn_step *step, const struct rn_op *op, uint32_t row)
{
    uint32_t position = step->rows[row].position, half = op->window / 2, end = row;

    while (end + 1 < step->n_rows && step->rows[end + 1].seq == step->rows[row].seq)
        end++;
    end = step->rows[end].position;
    if (op->window == 0)
        return (struct sight){0, end};
    return (struct sight){position < half ? 0 : position - half, end - position < half ? end : position + half};
}

/* Does the row look at fewer positions than there are, in the order in which they were chosen? */
static bool is_chosen(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row)
{
    return op->b >= 0 && (op->second > 0 || c->step->rows[row].position >= op->used);
}

/* How many positions the row chose: behind blocks that are not whole there may be none. */
static uint32_t count_chosen(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row)
{
    const int32_t *chosen = (const int32_t *)rn_fast_row(c, op->b, row);
    uint32_t least = 1, most = op->used, middle;

    while (least < most) { /* behind the first that is none there are none */
        middle = (least + most + 1) / 2;
        if (chosen[middle - 1] < 0)
            most = middle - 1;
        else
            least = middle;
    }
    return least;
}

/* Of a row that looks at chosen positions their numbers in the choice. */
static struct sight sight_of(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row)
{
    uint32_t position = c->step->rows[row].position;

    if (is_chosen(c, op, row))
        return (struct sight){0, count_chosen(c, op, row) - 1};
    if (op->bidirectional)
        return sight_both_ways(c->step, op, row);
    return (struct sight){rn_attend_first(position, rn_op_window(op, position)), position};
}

static uint32_t segment_of(struct sight sight)
{
    return rn_attend_segment(sight.last - sight.first + 1);
}

/* The segments that a row meets: numbers from *first on, returns how many. */
static uint32_t segments_of(struct sight sight, uint32_t *first)
{
    uint32_t segment = segment_of(sight);

    *first = sight.first / segment;
    return sight.last / segment - *first + 1;
}

/* Everything but where the results go. */
static struct rn_attend attend_of(const struct rn_fast_context *c, const struct rn_op *op, uint32_t head, uint32_t row)
{
    const struct rn_fast_layer *layer = &c->fast->layers[op->layer];
    struct sight sight = sight_of(c, op, row);
    uint32_t queries = op->heads / op->kv_heads;
    const float *slopes = c->fast->slopes[op - c->fast->plan->ops];
    const float *sinks = op->weight < 0 ? NULL : c->fast->vectors[op->weight];

    return (struct rn_attend){.q = rn_fast_row(c, op->a, row) + (size_t)head * queries * op->k_dim,
                              .out = rn_fast_row(c, op->out, row) + (size_t)head * queries * op->v_dim,
                              .q_stride = rn_fast_width(c, op->a),
                              .out_stride = rn_fast_width(c, op->out),
                              .rows = 1,
                              .queries = queries,
                              .k_dim = op->k_dim,
                              .v_dim = op->v_dim,
                              .last = sight.last,
                              .window = op->bidirectional               ? sight.last - sight.first + 1
                                        : op->chunked || op->second > 0 ? 0
                                                                        : op->window,
                              .first = op->chunked ? sight.first : 0,
                              .own = op->bidirectional ? c->step->rows[row].position : sight.last,
                              .segment = segment_of(sight),
                              .to = UINT32_MAX,
                              .scale = op->scale,
                              .softcap = op->softcap,
                              .slopes = slopes == NULL ? NULL : slopes + (size_t)head * queries,
                              .sinks = sinks == NULL ? NULL : sinks + (size_t)head * queries,
                              .blocks = rn_fast_table(layer, &c->step->seqs[c->step->rows[row].seq]),
                              .block_shift = c->fast->block_shift,
                              .kv_type = c->fast->limits.kv_type,
                              .keys = layer->keys + head * layer->key_head,
                              .values = layer->v_dim == 0 ? NULL : layer->values + head * layer->value_head,
                              .key_stride = layer->key_block,
                              .value_stride = layer->value_block,
                              .scratch = c->scratch->attend};
}

static struct rn_chunk_span chunk_span(const struct rn_fast_context *c, const struct rn_op *op, uint32_t position)
{
    return rn_chunk_span(c->fast->limits.mean_window, position, rn_op_window(op, position));
}

/* Does the row see means? Those after it do then, too. */
static bool sees_means(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row)
{
    struct rn_chunk_span span = chunk_span(c, op, c->step->rows[row].position);

    return rn_chunk_seen(&span);
}

/* Does row `row` go on with the run of rows of t? Each row of a run looks one position further, and where attention is
 * chunked, no further back. */
static bool goes_on(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row, const struct rn_attend *t)
{
    struct sight sight = sight_of(c, op, row);

    return !op->bidirectional && !is_chosen(c, op, row) && segment_of(sight) == t->segment &&
           (!op->chunked || sight.first == t->first) && !sees_means(c, op, row);
}

/* What the row of t looks at, where it does not lie as the sequence's blocks do. */
static void see(const struct rn_fast_context *c, const struct rn_op *op, uint32_t head, uint32_t row,
                struct rn_attend *t)
{
    struct rn_attend all = *t;

    if (is_chosen(c, op, row))
        all.to = UINT32_MAX;
    if (!rn_fast_in_line(c->fast, row)) {
        rn_fast_tree_see(c->fast, c->worker, (uint32_t)op->layer, head, row, &all);
        t->blocks = all.blocks;
    }
    if (is_chosen(c, op, row))
        rn_fast_gather(c, op, row, t);
}

/* The rows of a group in runs of the same length of segment; those that see means, both ways, or what was chosen one by
 * one. */
static void attend_group(const struct rn_fast_context *c, const struct rn_op *op, const struct rn_fast_group *group,
                         uint32_t head)
{
    uint32_t row, end = group->row + group->n;
    struct rn_chunk_span span;
    struct rn_attend t;

    for (row = group->row; row < end; row += t.rows) {
        t = attend_of(c, op, head, row);
        span = chunk_span(c, op, c->step->rows[row].position);
        if (rn_chunk_seen(&span)) {
            rn_fast_means_attend(c->fast->level->attention, &t, &c->step->seqs[c->step->rows[row].seq], &span,
                                 c->scratch->means);
            continue;
        }
        see(c, op, head, row, &t); /* a row of a tree is alone in its group */
        while (row + t.rows < end && !is_chosen(c, op, row) && goes_on(c, op, row + t.rows, &t))
            t.rows++;
        c->fast->level->attention->attend(&t);
    }
}

/* Where segment `i` of a piece of an attention begins; keys NULL: there is no such piece. */
static struct rn_attend_place place_of(const struct rn_fast_context *c, const struct rn_op *op, uint32_t unit,
                                       uint32_t i)
{
    struct sight sight;
    struct rn_attend t;
    uint32_t first, row;

    if (unit >= c->fast->n_groups * op->kv_heads)
        return (struct rn_attend_place){0};
    row = c->fast->groups[unit / op->kv_heads].row;
    if (is_chosen(c, op, row))
        return (struct rn_attend_place){0};
    t = attend_of(c, op, unit % op->kv_heads, row);
    sight = sight_of(c, op, row);
    segments_of(sight, &first);
    first = (first + i) * t.segment;
    first = first > sight.first ? first : sight.first / RN_ATTEND_TILE * RN_ATTEND_TILE;
    return (struct rn_attend_place){t.blocks, t.keys, t.values, first, t.last};
}

/* Segment number `i` of the one row of a group; whoever comes last puts the parts together. */
static void attend_segment(const struct rn_fast_context *c, const struct rn_op *op, uint32_t unit, uint32_t i,
                           struct rn_attend_place next)
{
    const struct rn_fast_group *group = &c->fast->groups[unit / op->kv_heads];
    struct rn_attend t = attend_of(c, op, unit % op->kv_heads, group->row);
    size_t part = rn_attend_part(t.queries, t.v_dim);
    float *parts = c->fast->parts + unit * RN_ATTEND_SEGMENTS * part;
    uint32_t first, n = segments_of(sight_of(c, op, group->row), &first);

    if (i >= n)
        return;
    t.next = next;
    if (n > 1) {
        t.from = (first + i) * t.segment;
        t.to = t.from + 1;
        t.part = parts + i * part;
    }
    see(c, op, unit % op->kv_heads, group->row, &t);
    c->fast->level->attention->attend(&t);
    if (n == 1)
        return;
    /* acq_rel: pairs with the other workers' additions; who counts to n has seen all parts. */
    if (atomic_fetch_add_explicit(&c->fast->parts_done[unit], 1, memory_order_acq_rel) + 1 < n)
        return;
    atomic_store_explicit(&c->fast->parts_done[unit], 0, memory_order_relaxed); /* a barrier is before its next use */
    t.part = NULL;
    c->fast->level->attention->merge(&t, parts, n);
}

/* How many pieces each (group, head) is cut into: 1 where there are enough of them, a group has several rows, or a row
 * sees means and so is not long. */
static uint32_t cuts(const struct rn_fast_context *c, const struct rn_op *op)
{
    const struct rn_fast *fast = c->fast;
    uint32_t most = 1, first, n, i;

    if (fast->n_groups > fast->max_split / op->kv_heads)
        return 1;
    for (i = 0; i < fast->n_groups; i++) {
        if (fast->groups[i].n > 1 || sees_means(c, op, fast->groups[i].row))
            return 1;
        n = segments_of(sight_of(c, op, fast->groups[i].row), &first);
        most = n > most ? n : most;
    }
    return most;
}

/* A worker takes its next segment before it walks this one, to ask for it in time. Segments are short, and those of an
 * attention that has begun are computed even where the step was stopped: parts_done counts them. */
void rn_fast_attention(const struct rn_fast_context *c, uint32_t index)
{
    const struct rn_op *op = c->fast->program.list[index].op;
    uint32_t n_cuts = cuts(c, op), n = c->fast->n_groups * op->kv_heads * n_cuts, i, next;

    for (i = rn_fast_take(c, index); i < n && n_cuts > 1; i = next) {
        next = rn_fast_take(c, index);
        attend_segment(c, op, i / n_cuts, i % n_cuts, place_of(c, op, next / n_cuts, next % n_cuts));
    }
    for (; i < n && !rn_stop_is_set(c->step->stop); i = rn_fast_take(c, index))
        attend_group(c, op, &c->fast->groups[i / op->kv_heads], i % op->kv_heads);
}

/* Groups of the step: rows [i, i + n) of a sequence. Longest contexts first, roughly: those behind them fill
 * up the time at the end. */
void rn_fast_make_groups(struct rn_fast *fast)
{
    enum { CLASSES = 64 };
    const struct rn_step *step = fast->step;
    uint32_t starts[CLASSES + 1] = {0}, class, rows, i, n;
    int pass;

    rows = (uint32_t)((uint64_t)step->n_rows * fast->least_kv_heads / (4 * rn_team_threads(fast->team)));
    rows = rows < 1 ? 1 : rows < fast->group_rows ? rows : fast->group_rows;
    for (pass = 0; pass < 2; pass++) { /* count, then place */
        for (i = 0; i < step->n_rows; i += n) {
            for (n = 1; n < rows && i + n < step->n_rows && step->rows[i + n].seq == step->rows[i].seq &&
                        rn_fast_in_line(fast, i) && rn_fast_in_line(fast, i + n);)
                n++;
            class = CLASSES - 1 - (uint32_t)((uint64_t)step->rows[i].position * CLASSES / fast->limits.context_tokens);
            if (pass == 0)
                starts[class + 1]++;
            else
                fast->groups[starts[class]++] = (struct rn_fast_group){i, n};
        }
        for (class = 0; class < CLASSES && pass == 0; class ++)
            starts[class + 1] += starts[class];
    }
    fast->n_groups = starts[CLASSES];
}
