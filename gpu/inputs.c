/* What a step brings: arrays of fixed places, and behind them the block tables, one sequence's behind the other's.
 *
 *   tokens [max_rows] · positions [max_rows] · seqs [max_rows] · wanted [max_rows or max_outs] · drawn [max_rows] ·
 *   asks [max_outs] · lasts [max_rows] · features_rows [max_rows] · features_selected [max_rows] ·
 *   adapters [max_rows] · tables_at [max_seqs] · windows_at [max_seqs] · tables · brought · changes
 *
 * and, before the tables, of plans with recurrent states the slot and the rows of each sequence, and what is copied:
 *
 *   states [max_seqs] · firsts [max_seqs] · counts [max_seqs] · state_copies [n_states][2]
 *
 * and with trees where each row stores, its parent, what is moved, and of each layer's keys and values where they lie
 * in a block, in two numbers, and the bytes of a row:
 *
 *   places [max_rows] · parents [max_rows] · moves [max_seqs * tree_depth][3] · parts [2 * n_kv_layers][4]
 *
 * windows_at is there where layers with windows have blocks of their own: their tables are behind the others. All are
 * uint32_t, but for asks, of rn_draw_ask, changes, of rn_draw_change [max_changes], and what is brought for INPUT: f32
 * [max_rows, inputs_width]. lasts are there where attention looks ahead, those of features where the plan has any,
 * drawn and asks where steps draw. One copy brings as much of it as the step has: the arrays whole, of the tables what
 * its sequences use. What is brought has a copy of its own, as the changes have. */
#include <string.h>

#include "base/check.h"
#include "gpu/kernels/draw_args.h"
#include "gpu/steps.h"

static uint64_t aligned(uint64_t words)
{
    return rn_gpu_aligned(words * sizeof(uint32_t));
}

/* Blocks of the longest sequence that there can be. */
static uint32_t blocks_of_context(const struct rn_backend_limits *limits)
{
    return (limits->context_tokens + limits->block_tokens - 1) / limits->block_tokens;
}

uint64_t rn_gpu_inputs_place(struct rn_gpu_backend *backend)
{
    const struct rn_backend_limits *limits = &backend->limits;
    const struct rn_plan *plan = backend->plan;
    uint64_t n_states = plan->state_bytes > 0 ? limits->n_states : 0;
    uint64_t tree_rows = limits->tree_depth > 0 ? limits->max_rows : 0;
    struct rn_gpu_inputs *in = &backend->in;

    in->tokens = 0;
    in->positions = in->tokens + aligned(limits->max_rows);
    in->seqs = in->positions + aligned(limits->max_rows);
    in->wanted = in->seqs + aligned(limits->max_rows);
    in->drawn = in->wanted + aligned(limits->max_outs > limits->max_rows ? limits->max_outs : limits->max_rows);
    in->asks = in->drawn + aligned(limits->draws ? limits->max_rows : 0);
    in->lasts =
        in->asks + aligned(limits->draws ? limits->max_outs * (sizeof(struct rn_draw_ask) / sizeof(uint32_t)) : 0);
    in->features_rows = in->lasts + (plan->bidirectional ? aligned(limits->max_rows) : 0);
    in->features_selected = in->features_rows + (plan->features_width > 0 ? aligned(limits->max_rows) : 0);
    in->adapters = in->features_selected + (plan->features_width > 0 ? aligned(limits->max_rows) : 0);
    in->tables_at = in->adapters + (plan->n_adapters > 0 ? aligned(limits->max_rows) : 0);
    in->windows_at = in->tables_at + aligned(limits->max_seqs);
    in->states = in->windows_at + aligned(limits->window > 0 ? limits->max_seqs : 0);
    in->firsts = in->states + aligned(n_states > 0 ? limits->max_seqs : 0);
    in->counts = in->firsts + aligned(n_states > 0 ? limits->max_seqs : 0);
    in->state_copies = in->counts + aligned(n_states > 0 ? limits->max_seqs : 0);
    in->places = in->state_copies + aligned(2 * n_states);
    in->parents = in->places + aligned(tree_rows);
    in->moves = in->parents + aligned(tree_rows);
    in->parts = in->moves + aligned(3 * (uint64_t)limits->max_seqs * limits->tree_depth);
    in->tables = in->parts + aligned(limits->tree_depth > 0 ? 8 * (uint64_t)plan->n_kv_layers : 0);
    in->n_tables = limits->max_seqs * blocks_of_context(limits) * (limits->window > 0 ? 2 : 1);
    in->brought = in->tables + aligned(in->n_tables);
    in->changes = in->brought + aligned((uint64_t)limits->max_rows * plan->inputs_width);
    in->bytes = in->results =
        in->changes + aligned(limits->max_changes * (sizeof(struct rn_draw_change) / sizeof(uint32_t)));
    in->saved = in->results +
                aligned(limits->draws ? limits->max_outs * (sizeof(struct rn_draw_result) / sizeof(uint32_t)) : 0);
    return in->saved + aligned(limits->draws ? (uint64_t)limits->max_changes + limits->max_outs : 0);
}

/* Of the step that is submitted: the one two before it has ended. */
static unsigned char *host_of(const struct rn_gpu_backend *backend)
{
    return backend->host_in + backend->n_submitted % RN_GPU_RING * backend->in.bytes;
}

static uint32_t *array(const struct rn_gpu_backend *backend, uint64_t at)
{
    return (uint32_t *)(void *)(host_of(backend) + at);
}

static void put_rows(struct rn_gpu_backend *backend, const struct rn_step *step, struct rn_gpu_shape *shape)
{
    uint32_t *tokens = array(backend, backend->in.tokens), *positions = array(backend, backend->in.positions);
    uint32_t *seqs = array(backend, backend->in.seqs), *wanted = array(backend, backend->in.wanted);

    for (uint32_t r = 0; r < step->n_rows; r++) {
        const struct rn_step_row *row = &step->rows[r];

        tokens[r] = (uint32_t)row->token;
        positions[r] = row->position;
        seqs[r] = row->seq;
        if (row->out >= 0)
            wanted[row->out] = r;
        shape->longest = row->position + 1 > shape->longest ? row->position + 1 : shape->longest;
    }
}

/* Of plans with recurrent states: where each sequence's is, its rows, and what is copied before. */
static void put_states(struct rn_gpu_backend *backend, const struct rn_step *step)
{
    uint32_t *firsts = array(backend, backend->in.firsts), *counts = array(backend, backend->in.counts);

    memcpy(array(backend, backend->in.states), step->states, step->n_seqs * sizeof *step->states);
    if (step->n_state_copies > 0)
        memcpy(array(backend, backend->in.state_copies), step->state_copies,
               step->n_state_copies * sizeof *step->state_copies);
    memset(counts, 0, step->n_seqs * sizeof *counts);
    for (uint32_t r = 0; r < step->n_rows; r++)
        if (counts[step->rows[r].seq]++ == 0)
            firsts[step->rows[r].seq] = r;
}

/* With trees: where rows store, and what is moved. */
static void put_trees(struct rn_gpu_backend *backend, const struct rn_step *step)
{
    uint32_t *places = array(backend, backend->in.places), *parents = array(backend, backend->in.parents);

    for (uint32_t r = 0; step->parents != NULL && r < step->n_rows; r++) {
        bool goes_on = r > 0 && step->rows[r].seq == step->rows[r - 1].seq;

        places[r] = goes_on ? places[r - 1] + 1 : step->rows[r].position;
        parents[r] = (uint32_t)step->parents[r];
    }
    RN_CHECK(step->n_moves <= (uint64_t)backend->limits.max_seqs * backend->limits.tree_depth);
    if (step->n_moves > 0)
        memcpy(array(backend, backend->in.moves), step->moves, step->n_moves * sizeof *step->moves);
    rn_gpu_parts_put(backend, array(backend, backend->in.parts));
}

/* Of each row the last position of its sequence in the step. */
static void put_lasts(struct rn_gpu_backend *backend, const struct rn_step *step)
{
    uint32_t *lasts = array(backend, backend->in.lasts);

    for (uint32_t r = step->n_rows; r-- > 0;) {
        bool is_last = r + 1 == step->n_rows || step->rows[r + 1].seq != step->rows[r].seq;

        lasts[r] = is_last ? step->rows[r].position : lasts[r + 1];
    }
}

static void put_adapters(struct rn_gpu_backend *backend, const struct rn_step *step)
{
    uint32_t *adapters = array(backend, backend->in.adapters);

    for (uint32_t r = 0; r < step->n_rows; r++)
        adapters[r] = step->seqs[step->rows[r].seq].adapter;
}

/* What the step brings for INPUT. */
static int send_brought(struct rn_gpu_backend *backend, const struct rn_step *step)
{
    struct rn_gpu_driver *driver = backend->device->driver;
    size_t bytes = (size_t)step->n_rows * backend->plan->inputs_width * sizeof(float);

    if (bytes == 0)
        return RN_GPU_OK;
    memcpy(host_of(backend) + backend->in.brought, step->inputs, bytes);
    return driver->copy_in(driver, backend->inputs + backend->in.brought, host_of(backend) + backend->in.brought, bytes,
                           backend->stream);
}

/* What a draw changes, as number `at` on; how many there are then. */
static uint32_t put_changes(struct rn_gpu_backend *backend, const struct rn_draw *draw, uint32_t at)
{
    struct rn_draw_change *to = (struct rn_draw_change *)(void *)(host_of(backend) + backend->in.changes);
    const struct rn_draw_changes *changes = &draw->changes;
    const runnel_sampling *p = draw->sampling;

    RN_CHECK(p->n_biases + changes->n_counts + changes->n_barred <= backend->limits.max_changes - at);
    for (size_t i = 0; i < p->n_biases; i++) {
        to[at].token = p->biases[i].token;
        memcpy(&to[at++].word, &p->biases[i].bias, sizeof to->word);
    }
    for (uint32_t i = 0; i < changes->n_counts; i++)
        to[at++] = (struct rn_draw_change){changes->counts[i].token, changes->counts[i].count};
    for (uint32_t i = 0; i < changes->n_barred; i++)
        to[at++] = (struct rn_draw_change){.token = changes->barred[i]};
    return at;
}

static struct rn_draw_ask ask_of(const struct rn_gpu_backend *backend, const struct rn_draw *draw, uint32_t out,
                                 uint32_t changes_at)
{
    const runnel_sampling *p = draw->sampling;

    return (struct rn_draw_ask){
        .seed = draw->seed,
        .position = draw->position,
        .mask = (uintptr_t)draw->mask,
        .late = (uintptr_t)(backend->host_logits + (size_t)out * backend->plan->n_vocab),
        .temperature = p->temperature,
        .top_p = p->top_p,
        .min_p = p->min_p,
        .top_k = p->top_k,
        .wanted = 1,
        .want_logprob = draw->want_logprob,
        .n_top = draw->want_top,
        .changes_at = changes_at,
        .n_biases = (uint32_t)p->n_biases,
        .n_counts = draw->changes.n_counts,
        .n_barred = draw->changes.n_barred,
        .repetition = p->repetition_penalty,
        .frequency = p->frequency_penalty,
        .presence = p->presence_penalty,
        .own = draw->changes.counts_own ? array(backend, backend->in.wanted)[out] : RN_DRAW_NONE,
    };
}

/* What the rows wait for, and what is drawn. How many changes. */
static uint32_t put_draws(struct rn_gpu_backend *backend, const struct rn_step *step)
{
    struct rn_draw_ask *asks = (struct rn_draw_ask *)(void *)(host_of(backend) + backend->in.asks);
    uint32_t *drawn = array(backend, backend->in.drawn), n_changes = 0;

    for (uint32_t r = 0; r < step->n_rows; r++)
        drawn[r] = step->drawn == NULL ? UINT32_MAX : (uint32_t)step->drawn[r];
    for (uint32_t i = 0; step->draws != NULL && i < step->n_outs; i++) {
        const struct rn_draw *draw = &step->draws[i];

        asks[i] = (struct rn_draw_ask){.own = RN_DRAW_NONE};
        if (!draw->wanted)
            continue;
        asks[i] = ask_of(backend, draw, i, n_changes);
        n_changes = put_changes(backend, draw, n_changes);
    }
    return n_changes;
}

static int send_changes(struct rn_gpu_backend *backend, uint32_t n)
{
    struct rn_gpu_driver *driver = backend->device->driver;
    uint64_t at = backend->in.changes;

    if (n == 0)
        return RN_GPU_OK;
    return driver->copy_in(driver, backend->inputs + at, host_of(backend) + at, n * sizeof(struct rn_draw_change),
                           backend->stream);
}

/* A sequence's blocks, behind so many words of the tables; how many there are then. */
static uint32_t put_table(struct rn_gpu_backend *backend, const uint32_t *blocks, uint32_t n, uint32_t at)
{
    uint32_t *tables = array(backend, backend->in.tables), most = blocks_of_context(&backend->limits);

    n = n < most ? n : most;
    memcpy(tables + at, blocks, n * sizeof *tables);
    return at + n;
}

/* Of each sequence the blocks that its rows look at. How many words the tables have. */
static uint64_t put_tables(struct rn_gpu_backend *backend, const struct rn_step *step)
{
    uint32_t *tables_at = array(backend, backend->in.tables_at), *windows_at = array(backend, backend->in.windows_at);
    uint32_t at = 0;

    for (uint32_t s = 0; s < step->n_seqs; s++) {
        tables_at[s] = at;
        at = put_table(backend, step->seqs[s].blocks, step->seqs[s].n_blocks, at);
    }
    for (uint32_t s = 0; s < step->n_seqs && backend->limits.window > 0; s++) {
        windows_at[s] = at;
        at = put_table(backend, step->seqs[s].windows, step->seqs[s].n_windows, at);
    }
    return at;
}

uint32_t rn_gpu_longest(const struct rn_gpu_backend *backend, uint32_t positions)
{
    uint64_t context = backend->limits.context_tokens, longest = RN_ATTENTION_CHUNK;

    context = (context + RN_ATTENTION_CHUNK - 1) / RN_ATTENTION_CHUNK * RN_ATTENTION_CHUNK;
    while (longest < positions)
        longest *= 2; /* so that a graph serves until its sequences are twice as long */
    return (uint32_t)(longest < context ? longest : context);
}

int rn_gpu_inputs_send(struct rn_gpu_backend *backend, const struct rn_step *step, struct rn_gpu_shape *shape)
{
    struct rn_gpu_driver *driver = backend->device->driver;
    uint32_t n_changes = 0;
    uint64_t words;
    int result;

    *shape = (struct rn_gpu_shape){.n_rows = step->n_rows,
                                   .n_outs = step->n_outs,
                                   .n_seqs = step->n_seqs,
                                   .n_selected = step->n_outs,
                                   .draws = step->draws != NULL && step->n_outs > 0,
                                   .is_adapted = rn_step_is_adapted(step)};
    put_rows(backend, step, shape);
    if (backend->state_stride > 0)
        put_states(backend, step);
    if (backend->limits.tree_depth > 0)
        put_trees(backend, step);
    shape->has_tree = step->parents != NULL;
    if (backend->plan->features_width > 0)
        rn_gpu_features_put(backend, step, shape, array(backend, backend->in.wanted),
                            array(backend, backend->in.features_rows), array(backend, backend->in.features_selected));
    if (backend->plan->bidirectional)
        put_lasts(backend, step);
    if (backend->plan->n_adapters > 0)
        put_adapters(backend, step);
    if (backend->limits.draws)
        n_changes = put_draws(backend, step);
    words = put_tables(backend, step);
    shape->longest = rn_gpu_longest(backend, shape->longest);
    result = driver->copy_in(driver, backend->inputs, host_of(backend), backend->in.tables + words * sizeof(uint32_t),
                             backend->stream);
    if (result == RN_GPU_OK)
        result = send_brought(backend, step);
    return result == RN_GPU_OK ? send_changes(backend, n_changes) : result;
}
