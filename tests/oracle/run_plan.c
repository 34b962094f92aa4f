/* See run_plan.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/oracle/run_plan.h"
#include "tests/support/shared.h"

static void fill_limits(struct run *run, const struct run_options *o)
{
    struct rn_backend_limits *l = &run->limits;

    l->block_tokens = o->block_tokens == 0 ? 16 : o->block_tokens;
    l->context_tokens = run->plan->context_tokens;
    l->max_seqs = o->max_seqs == 0 ? 4 : o->max_seqs;
    l->kv_type = o->kv_type;
    run->blocks_per_seq = (l->context_tokens + l->block_tokens - 1) / l->block_tokens;
    l->n_blocks = run->blocks_per_seq * l->max_seqs;
    l->max_rows = l->max_outs = l->context_tokens;
    l->n_states = run->plan->state_bytes > 0 ? l->max_seqs : 0;
    l->tree_depth = o->tree_depth;
}

/* Fisher and Yates. */
static void shuffle_blocks(struct run *run, uint64_t seed)
{
    uint32_t i, j, swap;

    run->blocks = rn_alloc(&run->heap, run->limits.n_blocks, sizeof *run->blocks);
    assert_non_null(run->blocks);
    for (i = 0; i < run->limits.n_blocks; i++)
        run->blocks[i] = i;
    for (i = run->limits.n_blocks - 1; i > 0; i--) {
        seed = seed * 6364136223846793005u + 1442695040888963407u; /* Knuth's MMIX */
        j = (uint32_t)((seed >> 33) % (i + 1));
        swap = run->blocks[i];
        run->blocks[i] = run->blocks[j];
        run->blocks[j] = swap;
    }
}

static void ok(runnel_status status, const runnel_error *error)
{
    if (status != RUNNEL_OK)
        fail_msg("%s: %s", runnel_status_name(status), error->message);
}

void run_open(struct run *run, const char *path, const struct run_options *options)
{
    uint32_t context = options->context_tokens == 0 ? 512 : options->context_tokens;
    runnel_error error = {0};

    memset(run, 0, sizeof *run);
    rn_heap_init(&run->heap, NULL);
    if (options->bytes != NULL)
        ok(rn_gguf_parse(&run->heap, options->bytes, options->n_bytes, path, &run->gguf, &error), &error);
    else
        ok(rn_gguf_open(&run->heap, path, &run->gguf, &error), &error);
    ok(rn_plan_new_tapped(&run->heap, run->gguf, 0, options->taps, options->n_taps, &run->plan, &error), &error);
    if (run->plan->context_tokens != context && (options->context_tokens != 0 || run->plan->context_tokens > context)) {
        rn_plan_free(run->plan);
        ok(rn_plan_new_tapped(&run->heap, run->gguf, context, options->taps, options->n_taps, &run->plan, &error),
           &error);
    }
    if (options->n_adapters > 0) {
        ok(rn_adapters_load(&run->heap, run->plan, options->adapters, options->n_adapters, NULL, &run->adapters,
                            &error),
           &error);
        ok(rn_plan_adapt(run->plan, run->adapters, &error), &error);
    }
    assert_true(rn_plan_check(run->plan));
    fill_limits(run, options);
    run->limits.expert_use = options->expert_use;
    shuffle_blocks(run, options->seed);
    run->team = rn_team_new(&run->heap, options->threads == 0 ? 2 : options->threads);
    assert_non_null(run->team);
    run->backend = strcmp(options->backend, "fast") == 0 ? rn_cpu_backend_new(&run->heap, run->team)
                                                         : rn_cpu_reference_new(&run->heap, run->team);
    assert_non_null(run->backend);
    ok(run->backend->ops->prepare(run->backend, run->plan, &run->limits, NULL, NULL, &error), &error);
    run->width = run->plan->logits_slot < 0 ? run->plan->features_width : run->plan->n_vocab;
    run->logits = rn_alloc(&run->heap, (size_t)run->limits.max_outs * run->width, sizeof *run->logits);
    assert_non_null(run->logits);
    if (options->n_taps > 0)
        run->features =
            rn_alloc(&run->heap, (size_t)run->limits.max_rows * run->plan->features_width, sizeof *run->features);
}

void run_close(struct run *run)
{
    run->backend->ops->free(run->backend);
    rn_team_free(run->team);
    rn_plan_free(run->plan);
    rn_adapters_free(run->adapters);
    rn_gguf_free(run->gguf);
    rn_free(&run->heap, run->blocks);
    rn_free(&run->heap, run->logits);
    rn_free(&run->heap, run->features);
    assert_int_equal(rn_heap_blocks(&run->heap), 0);
}

struct waiter {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool done;
};

static void on_done(struct rn_step *step)
{
    struct waiter *waiter = step->user;

    pthread_mutex_lock(&waiter->lock);
    waiter->done = true;
    pthread_cond_signal(&waiter->changed);
    pthread_mutex_unlock(&waiter->lock);
}

static void submit_and_wait(struct run *run, struct rn_step *step)
{
    struct waiter waiter = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

    step->user = &waiter;
    step->on_done = on_done;
    assert_true(rn_step_check(step, run->plan, &run->limits));
    run->backend->ops->submit_async(run->backend, step);
    pthread_mutex_lock(&waiter.lock);
    while (!waiter.done)
        pthread_cond_wait(&waiter.changed, &waiter.lock);
    pthread_mutex_unlock(&waiter.lock);
    assert_int_equal(step->status, RUNNEL_OK);
}

/* The logits of a wanted row, or with wanted its features. */
static void add_rows(struct rn_step *step, uint32_t *wanted, const struct run_piece *piece, uint32_t seq)
{
    struct rn_step_row *row;
    uint32_t i;

    for (i = 0; i < piece->n; i++) {
        row = &step->rows[step->n_rows++];
        row->token = piece->tokens[i];
        row->position =
            piece->parents == NULL || i == 0 ? piece->first + i : row[piece->parents[i] - (int32_t)i].position + 1;
        row->seq = seq;
        row->out = -1;
        if (piece->last_only && i + 1 < piece->n)
            continue;
        if (wanted == NULL)
            row->out = (int32_t)step->n_outs++;
        else
            wanted[step->n_features++] = step->n_rows - 1;
    }
}

/* The slot of each sequence's recurrent state, which begins as zeros. */
static void add_states(struct run *run, struct rn_step *step, const struct run_piece *pieces, uint32_t *states)
{
    uint32_t i;

    step->states = states;
    for (i = 0; i < step->n_seqs; i++) {
        states[i] = run->limits.n_states - 1 - pieces[i].seq;
        if (pieces[i].first == 0)
            step->state_copies[step->n_state_copies++] = (struct rn_step_state_copy){RN_NO_STATE, states[i]};
    }
}

void run_step(struct run *run, const struct run_piece *pieces, uint32_t n_pieces)
{
    struct rn_step_state_copy copies[64];
    const bool encodes = run->plan->logits_slot < 0;
    struct rn_step step = {.logits = encodes ? NULL : run->logits,
                           .features = encodes ? run->logits : run->features,
                           .state_copies = copies};
    uint32_t states[64];
    uint32_t i, n = 0, last, *wanted = NULL;

    for (i = 0; i < n_pieces; i++)
        n += pieces[i].n;
    step.rows = rn_alloc(&run->heap, n, sizeof *step.rows);
    step.seqs = rn_calloc(&run->heap, n_pieces, sizeof *step.seqs);
    assert_true(step.rows != NULL && step.seqs != NULL);
    if (encodes)
        step.feature_rows = wanted = rn_alloc(&run->heap, n, sizeof *wanted);
    for (i = 0; i < n_pieces; i++) {
        last = pieces[i].first + pieces[i].n - 1;
        step.seqs[i] = (struct rn_step_seq){.blocks = run->blocks + (size_t)pieces[i].seq * run->blocks_per_seq,
                                            .n_blocks = last / run->limits.block_tokens + 1,
                                            .adapter = pieces[i].adapter};
        add_rows(&step, wanted, &pieces[i], i);
    }
    step.n_seqs = n_pieces;
    step.parents = pieces[0].parents;
    assert_true(n_pieces <= 64 && (step.parents == NULL || n_pieces == 1));
    if (run->limits.n_states > 0)
        add_states(run, &step, pieces, states);
    submit_and_wait(run, &step);
    rn_free(&run->heap, wanted);
    rn_free(&run->heap, step.rows);
    rn_free(&run->heap, step.seqs);
}

void run_tokens(struct run *run, uint32_t seq, const int32_t *tokens, uint32_t n, uint32_t chunk, float *out)
{
    struct run_piece piece = {.seq = seq};

    for (piece.first = 0; piece.first < n; piece.first += piece.n) {
        piece.n = n - piece.first < chunk ? n - piece.first : chunk;
        piece.tokens = tokens + piece.first;
        run_step(run, &piece, 1);
        memcpy(out + (size_t)piece.first * run->width, run->logits, (size_t)piece.n * run->width * sizeof *out);
    }
}

void oracle_open(struct rn_heap *heap, const char *path, struct oracle *oracle)
{
    FILE *file = fopen(path, "rb");
    size_t n;

    if (file == NULL)
        fail_msg("cannot open %s", path);
    assert_int_equal(fread(&oracle->n_tokens, 4, 1, file), 1);
    assert_int_equal(fread(&oracle->n_vocab, 4, 1, file), 1);
    n = (size_t)oracle->n_tokens * oracle->n_vocab;
    oracle->tokens = rn_alloc(heap, oracle->n_tokens, sizeof *oracle->tokens);
    oracle->logits = rn_alloc(heap, n, sizeof *oracle->logits);
    assert_true(oracle->tokens != NULL && oracle->logits != NULL);
    assert_int_equal(fread(oracle->tokens, 4, oracle->n_tokens, file), oracle->n_tokens);
    assert_int_equal(fread(oracle->logits, 4, n, file), n);
    fclose(file);
}

void oracle_close(struct rn_heap *heap, struct oracle *oracle)
{
    rn_free(heap, oracle->tokens);
    rn_free(heap, oracle->logits);
}

void shared_or_skip(void)
{
    char path[512];

    if (!shared_find("oracles", path, sizeof path))
        exit(77);
}

const char *shared_path(const char *name)
{
    static char paths[4][512];
    static unsigned next;
    char *path = paths[next++ % 4];

    if (!shared_find(name, path, sizeof paths[0]))
        exit(77);
    return path;
}
