/* chunk-mean: the reference against the formula of model/chunk.h worked out a second time, position by position; the
 * fast backend against the reference; law 5, with the blocks that no row sees any more taken out of the table; and a
 * sequence that is shorter than the window against the same one without. And a step that is stopped while means are
 * made: it comes back, and the next one gives what it always gives. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/rng.h"
#include "cpu/fast.h"
#include "model/kv.h"
#include "model/stop.h"
#include "tests/cpu/amx_emulator.h"
#include "tests/cpu/runner.h"
#include "tests/slow.h"
#include "tests/support/nmse.h"

enum { CHUNK = 64, N = 400, BLOCKS = 32, MAX_ROWS = 96, THREADS = 3 };

static struct rn_heap heap;

static float noise(uint64_t *seed)
{
    return (float)((double)(rn_splitmix64(seed) >> 40) / (1 << 23) - 1);
}

/* ---- The formula ---- */

enum { HEADS = 4, KV_HEADS = 2, DIM = 8, POSITIONS = 330, PER_BLOCK = 16 };

/* One layer by hand: slot 0 keys or queries, 1 values, 2 the result. */
static struct hand {
    struct rn_reference ref;
    struct rn_plan plan;
    struct rn_slot slots[3];
    void *slot_memory[3];
    float q[POSITIONS * HEADS * DIM], k[POSITIONS * KV_HEADS * DIM], v[POSITIONS * KV_HEADS * DIM];
    float out[POSITIONS * HEADS * DIM];
    struct rn_kv_layer layer;
    unsigned char kc[40 * PER_BLOCK * KV_HEADS * DIM * 4], vc[40 * PER_BLOCK * KV_HEADS * DIM * 4];
    unsigned char *ks[1], *vs[1];
    double scores[POSITIONS], sums[DIM], query[DIM];
    float head[DIM];
    struct rn_step_row rows[POSITIONS];
    uint32_t blocks[24], means[1];
    struct rn_step_seq seq;
    struct rn_step step;
} hand;

static void set_hand(uint32_t window, uint32_t layer_window, runnel_kv_type type)
{
    uint64_t seed = window + layer_window;
    uint32_t i;

    memset(&hand, 0, sizeof hand);
    hand.plan = (struct rn_plan){.n_slots = 3, .slots = hand.slots, .n_kv_layers = 1, .kv_layers = &hand.layer};
    hand.layer = (struct rn_kv_layer){KV_HEADS * DIM, KV_HEADS * DIM, KV_HEADS};
    hand.slots[0].width = hand.slots[1].width = KV_HEADS * DIM;
    hand.slots[2].width = HEADS * DIM;
    hand.ks[0] = hand.kc;
    hand.vs[0] = hand.vc;
    hand.ref = (struct rn_reference){.plan = &hand.plan,
                                     .slots = hand.slot_memory,
                                     .k = hand.ks,
                                     .v = hand.vs,
                                     .scores = hand.scores,
                                     .sums = hand.sums,
                                     .query = hand.query,
                                     .head = hand.head};
    hand.ref.limits = (struct rn_backend_limits){
        .block_tokens = PER_BLOCK, .n_blocks = 40, .context_tokens = POSITIONS, .kv_type = type, .mean_window = window};
    for (i = 0; i < 24; i++)
        hand.blocks[i] = (i * 7 + 3) % 40;
    hand.means[0] = (24 * 7 + 3) % 40;
    hand.seq = (struct rn_step_seq){hand.blocks, 24, hand.means, 1, NULL, 0, 0};
    hand.step = (struct rn_step){.n_rows = POSITIONS, .n_seqs = 1, .rows = hand.rows, .seqs = &hand.seq};
    for (i = 0; i < POSITIONS; i++)
        hand.rows[i] = (struct rn_step_row){0, i, 0, -1};
    for (i = 0; i < POSITIONS * KV_HEADS * DIM; i++) {
        hand.k[i] = 2 * noise(&seed);
        hand.v[i] = noise(&seed);
    }
    for (i = 0; i < POSITIONS * HEADS * DIM; i++)
        hand.q[i] = 2 * noise(&seed);
    hand.slot_memory[0] = hand.k;
    hand.slot_memory[1] = hand.v;
    hand.slot_memory[2] = hand.out;
}

static void run_hand(uint32_t window, uint32_t layer_window, float softcap, runnel_kv_type type)
{
    struct rn_op store = {.kind = RN_OP_KV_STORE, .out = -1, .out2 = -1, .a = 0, .b = 1, .weight = -1, .bias = -1};
    struct rn_op attend = {.kind = RN_OP_ATTENTION,
                           .out = 2,
                           .out2 = -1,
                           .a = 0,
                           .b = -1,
                           .weight = -1,
                           .bias = -1,
                           .scale = 0.7f,
                           .heads = HEADS,
                           .kv_heads = KV_HEADS,
                           .k_dim = DIM,
                           .v_dim = DIM,
                           .window = layer_window,
                           .softcap = softcap};

    set_hand(window, layer_window, type);
    rn_reference_op(&hand.ref, &store, &hand.step);
    hand.slot_memory[0] = hand.q;
    rn_reference_op(&hand.ref, &attend, &hand.step);
}

/* As the format keeps it; only for formats whose numbers stand by themselves. */
static double kept(runnel_kv_type type, double x)
{
    uint8_t bytes[4];
    float out, in = (float)x;

    rn_kv_encode(type, &in, 1, bytes);
    rn_kv_decode(type, bytes, 1, &out);
    return out;
}

/* The mean of number i of chunk c's keys or values, as kept. */
static double mean(const float *a, uint32_t c, uint32_t head, uint32_t i, runnel_kv_type type)
{
    double sum = 0;

    for (uint32_t j = CHUNK * c; j < CHUNK * (c + 1); j++)
        sum += kept(type, a[(j * KV_HEADS + head) * DIM + i]);
    return kept(type, sum / CHUNK);
}

static double exponential(const double *k, const float *q, float softcap)
{
    double s = 0;

    for (uint32_t i = 0; i < DIM; i++)
        s += q[i] * k[i];
    s *= (double)0.7f;
    return exp(softcap > 0 ? softcap * tanh(s / softcap) : s);
}

/* Row p, head h: each old chunk weighs 64 times what its mean does, every other position once. */
static void expect_row(uint32_t p, uint32_t h, uint32_t window, uint32_t layer_window, float softcap,
                       runnel_kv_type type)
{
    const float *q = &hand.q[(p * HEADS + h) * DIM], *got = &hand.out[(p * HEADS + h) * DIM];
    uint32_t head = h / (HEADS / KV_HEADS), start = layer_window > 0 && p >= layer_window ? p - layer_window + 1 : 0;
    double total = 0, sums[DIM] = {0}, k[DIM], w;

    for (uint32_t j = start; j <= p; j++) {
        uint32_t c = j / CHUNK;
        bool old = window > 0 && CHUNK * (c + 1) + window <= p && c > 0;

        if (old && (j % CHUNK != 0 || CHUNK * c < start)) /* once for each chunk that the layer sees whole */
            continue;
        for (uint32_t i = 0; i < DIM; i++)
            k[i] = old ? mean(hand.k, c, head, i, type) : kept(type, hand.k[(j * KV_HEADS + head) * DIM + i]);
        w = (old ? CHUNK : 1) * exponential(k, q, softcap);
        total += w;
        for (uint32_t i = 0; i < DIM; i++)
            sums[i] += w * (old ? mean(hand.v, c, head, i, type) : kept(type, hand.v[(j * KV_HEADS + head) * DIM + i]));
    }
    for (uint32_t i = 0; i < DIM; i++)
        if (!(fabs(sums[i] / total - got[i]) <= 1e-6))
            fail_msg("window %u, layer's %u, row %u, head %u: %.9g, not %.9g", window, layer_window, p, h,
                     (double)got[i], sums[i] / total);
}

static void test_formula(void **state)
{
    static const struct {
        uint32_t window, layer_window;
        float softcap;
        runnel_kv_type type;
    } cases[] = {{64, 0, 0, RUNNEL_KV_F32},   {128, 0, 3, RUNNEL_KV_F32},  {64, 0, 0, RUNNEL_KV_F16},
                 {64, 150, 0, RUNNEL_KV_F32}, {64, 250, 0, RUNNEL_KV_F32}, {64, 90, 0, RUNNEL_KV_F32},
                 {64, 40, 0, RUNNEL_KV_F32},  {0, 0, 0, RUNNEL_KV_F32},    {192, 0, 0, RUNNEL_KV_BF16}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        run_hand(cases[i].window, cases[i].layer_window, cases[i].softcap, cases[i].type);
        for (uint32_t p = 0; p < POSITIONS; p++)
            for (uint32_t h = 0; h < HEADS; h++)
                expect_row(p, h, cases[i].window, cases[i].layer_window, cases[i].softcap, cases[i].type);
    }
}

/* ---- Whole models ---- */

/* A runner of this file's limits; level NULL: the reference. */
static void open_with(struct runner *r, const struct rn_plan *plan, const struct rn_level *level, uint32_t threads,
                      runnel_kv_type kv_type, uint32_t window, uint32_t per_block)
{
    const struct rn_backend_limits limits = {.max_rows = MAX_ROWS,
                                             .max_seqs = 2,
                                             .max_outs = MAX_ROWS,
                                             .n_blocks = BLOCKS,
                                             .block_tokens = per_block,
                                             .context_tokens = N,
                                             .kv_type = kv_type,
                                             .mean_window = window};

    open_runner(r, &heap, plan, level, threads, &limits);
}

/* The blocks that no row from `next` on sees. */
static void drop_blocks(const struct runner *r, uint32_t *blocks, uint32_t next)
{
    for (uint32_t i = 0; r->limits.mean_window > 0 && (i + 1) * r->limits.block_tokens <= next; i++) {
        uint32_t last = (i + 1) * r->limits.block_tokens - 1, c = last / CHUNK;

        if (i * r->limits.block_tokens >= CHUNK && CHUNK * (c + 1) + r->limits.mean_window <= next)
            blocks[i] = RN_NO_BLOCK;
    }
}

/* logits[n][n_vocab] of the prompt in chunks of so many rows, blocks in some order, beside `company` rows of another
 * sequence. */
static void run_prompt(struct runner *r, const int32_t *tokens, uint32_t n, uint32_t chunk, uint32_t order,
                       uint32_t company, float *logits)
{
    uint32_t blocks[BLOCKS], means[2] = {order % BLOCKS, (order + 1) % BLOCKS}, other = (order + 2) % BLOCKS, at, i,
                             rows;
    uint32_t n_means = (N / CHUNK + r->limits.block_tokens - 1) / r->limits.block_tokens;
    struct rn_step_seq seqs[2] = {{blocks, BLOCKS - 3, means, n_means, NULL, 0, 0}, {&other, 1, NULL, 0, NULL, 0, 0}};
    struct rn_step_row step_rows[MAX_ROWS];
    struct rn_step step = {.rows = step_rows, .seqs = seqs};

    seqs[0].n_means = r->limits.mean_window > 0 ? n_means : 0;
    for (i = 0; i < BLOCKS - 3; i++)
        blocks[i] = (i + 3 + order) % BLOCKS;
    for (at = 0; at < n; at += rows) {
        rows = n - at < chunk ? n - at : chunk;
        step.n_rows = step.n_outs = 0;
        step.n_seqs = company > 0 ? 2 : 1;
        for (i = 0; i < rows; i++)
            step_rows[step.n_rows++] = (struct rn_step_row){tokens[at + i], at + i, 0, (int32_t)step.n_outs++};
        for (i = 0; i < company; i++)
            step_rows[step.n_rows++] = (struct rn_step_row){(int32_t)((i + at) % r->plan->n_vocab), i, 1, -1};
        step.logits = logits + (size_t)at * r->plan->n_vocab;
        run_step(r, &step);
        drop_blocks(r, blocks, at + rows);
    }
}

/* One model, one format, one window: all that is asked of the fast backend of each level. */
struct trial {
    const char *model;
    runnel_kv_type type;
    uint32_t window, per_block, n;
    double limit;
};

static void try_level(const struct trial *trial, const struct rn_level *level, const struct rn_plan *plan,
                      const int32_t *tokens, const float *want)
{
    static const uint32_t chunks[] = {1, 7, 64, 80};
    size_t n = (size_t)trial->n * plan->n_vocab;
    float *first = rn_alloc(&heap, n, 4), *got = rn_alloc(&heap, n, 4);
    struct runner runner;
    double error;

    for (uint32_t i = 0; i < 4; i++) {
        open_with(&runner, plan, level, i % THREADS + 1, trial->type, trial->window, trial->per_block);
        run_prompt(&runner, tokens, trial->n, chunks[i], 5 * i + 1, i * 5, i == 0 ? first : got);
        close_runner(&runner);
        if (i > 0 && memcmp(got, first, n * sizeof *got) != 0)
            fail_msg("%s %s, KV type %d, window %u: chunks of %u give other bits", trial->model, level->name,
                     (int)trial->type, trial->window, chunks[i]);
    }
    error = nmse(first, want, n);
    print_message("%s %s, KV type %d, window %u: NMSE to the reference %.2g\n", trial->model, level->name,
                  (int)trial->type, trial->window, error);
    assert_true(error <= trial->limit);
    rn_free(&heap, first);
    rn_free(&heap, got);
}

static void try(const struct trial *trial)
{
    static const char *const names[] = {"c", "avx2", "avx512", "avx512-amx", "neon"};
    struct model model = open_model(&heap, trial->model, N);
    size_t n = (size_t)trial->n * model.plan->n_vocab, row = model.plan->n_vocab * sizeof(float);
    float *want = rn_alloc(&heap, n, 4), *without = rn_alloc(&heap, n, 4);
    uint32_t exact = trial->window + 2 * CHUNK; /* rows before it have one chunk behind, which is exact */
    struct runner runner;
    int32_t tokens[N];
    uint64_t seed = 7;

    for (uint32_t i = 0; i < trial->n; i++)
        tokens[i] = (int32_t)(rn_splitmix64(&seed) % model.plan->n_vocab);
    open_with(&runner, model.plan, NULL, 1, trial->type, trial->window, trial->per_block);
    run_prompt(&runner, tokens, trial->n, 80, 0, 0, want);
    close_runner(&runner);
    open_with(&runner, model.plan, NULL, 1, trial->type, 0, trial->per_block);
    run_prompt(&runner, tokens, trial->n, 80, 0, 0, without);
    close_runner(&runner);
    assert_memory_equal(want, without, exact * row);
    for (size_t p = exact; p < trial->n; p++) /* each later row differs: means were used */
        assert_memory_not_equal((char *)want + p * row, (char *)without + p * row, row);
    for (size_t l = 0; l < sizeof names / sizeof *names; l++)
        if (rn_level_named(names[l]) != NULL)
            try_level(trial, rn_level_named(names[l]), model.plan, tokens, want);
    rn_free(&heap, want);
    rn_free(&heap, without);
    close_model(&model);
}

static void test_models(void **state)
{
    static const struct trial trials[] = {
        {"oracles/arch/llama-moe.gguf", RUNNEL_KV_F32, 64, 16, 300, 1e-6},
        {"oracles/arch/llama-dense.gguf", RUNNEL_KV_Q4, 64, 16, 300, 1e-3},
        {"models/stories260K.gguf", RUNNEL_KV_F16, 128, 32, 390, 1e-5},
        {"models/stories260K.gguf", RUNNEL_KV_Q8, 64, 128, 300, 1e-4},
    };

    (void)state;
    for (size_t i = 0; i < sizeof trials / sizeof *trials; i += UNLESS_SANITIZED(1, 3))
        try(&trials[i]);
}

/* ---- A step that is stopped ---- */

/* A worker stops the step when it stores a mean: it has looked at the stop itself by then. Before that the last row's
 * worker stores keys late, so that it comes to the barrier last and goes on at once, while the others, asleep there,
 * look at the stop after it. */
static struct {
    const struct rn_rows *rows; /* the level's */
    const uint8_t *late;        /* where a layer's first key of the last row goes; NULL: nothing is stopped */
    const uint8_t *from, *to;   /* that layer's block of means */
    struct rn_stop stop;
} stopped;

static void key_store(void *out, const float *k, uint32_t dim, uint32_t stride, runnel_kv_type type)
{
    const struct timespec wait = {.tv_nsec = 3000000};

    if (stopped.late != NULL && out == stopped.late)
        nanosleep(&wait, NULL);
    if (stopped.late != NULL && (const uint8_t *)out >= stopped.from && (const uint8_t *)out < stopped.to)
        rn_stop_set(&stopped.stop);
    stopped.rows->key_store(out, k, dim, stride, type);
}

enum { MEANS = 0, AT = 2 * MAX_ROWS }; /* a block; the first row of the step, the third of its sequence */

/* The step of MAX_ROWS rows from position `from` on. */
static runnel_status run_from(struct runner *r, const int32_t *tokens, uint32_t from, float *logits)
{
    uint32_t blocks[BLOCKS - 1], means = MEANS, i;
    struct rn_step_seq seq = {blocks, BLOCKS - 1, &means, 1, NULL, 0, 0};
    struct rn_step_row rows[MAX_ROWS];
    struct rn_step step = {.n_rows = MAX_ROWS,
                           .n_seqs = 1,
                           .n_outs = MAX_ROWS,
                           .rows = rows,
                           .seqs = &seq,
                           .logits = logits,
                           .on_done = on_step_done,
                           .user = r,
                           .stop = &stopped.stop};

    for (i = 0; i < BLOCKS - 1; i++)
        blocks[i] = i + 1;
    for (i = 0; i < MAX_ROWS; i++)
        rows[i] = (struct rn_step_row){tokens[from + i], from + i, 0, (int32_t)i};
    assert_true(rn_step_check(&step, r->plan, &r->limits));
    rn_stop_clear(&stopped.stop);
    r->backend->ops->submit_async(r->backend, &step);
    sem_wait(&r->done);
    return step.status;
}

/* The next step is stopped in this layer. */
static void stop_in(const struct runner *r, uint32_t layer)
{
    const struct rn_fast_layer *l = &((const struct rn_fast *)r->backend)->layers[layer];
    uint32_t last = AT + MAX_ROWS - 1, tokens = r->limits.block_tokens;

    stopped.from = l->keys + MEANS * l->key_block;
    stopped.to = stopped.from + l->key_block;
    stopped.late = l->keys + (1 + last / tokens) * l->key_block + last % tokens * rn_kv_unit_bytes(r->limits.kv_type);
}

static void stop_at_each_layer(const struct model *model, const struct rn_level *level, uint32_t threads,
                               const int32_t *tokens)
{
    size_t n = (size_t)MAX_ROWS * model->plan->n_vocab;
    float *good = rn_alloc(&heap, n, sizeof *good), *got = rn_alloc(&heap, n, sizeof *got);
    struct runner r;

    open_with(&r, model->plan, level, threads, RUNNEL_KV_F32, CHUNK, 16);
    for (uint32_t from = 0; from <= AT; from += MAX_ROWS)
        assert_int_equal(run_from(&r, tokens, from, good), RUNNEL_OK);
    for (uint32_t i = 0; i < 4 * model->plan->n_kv_layers; i++) {
        stop_in(&r, i % model->plan->n_kv_layers);
        assert_int_equal(run_from(&r, tokens, AT, got), RUNNEL_CANCELLED);
        stopped.late = NULL;
        memset(got, 0xff, n * sizeof *got);
        assert_int_equal(run_from(&r, tokens, AT, got), RUNNEL_OK);
        assert_memory_equal(got, good, n * sizeof *got);
    }
    close_runner(&r);
    rn_free(&heap, good);
    rn_free(&heap, got);
}

static void test_stopped(void **state)
{
    struct model model = open_model(&heap, "models/stories260K.gguf", N);
    struct rn_level level = *rn_level_best();
    struct rn_rows rows = *level.rows;
    int32_t tokens[AT + MAX_ROWS];
    uint64_t seed = 7;

    (void)state;
    stopped.rows = level.rows;
    rows.key_store = key_store;
    level.rows = &rows;
    for (uint32_t i = 0; i < AT + MAX_ROWS; i++)
        tokens[i] = (int32_t)(rn_splitmix64(&seed) % model.plan->n_vocab);
    for (uint32_t threads = 2; threads <= THREADS; threads++)
        stop_at_each_layer(&model, &level, threads, tokens);
    close_model(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_formula), cmocka_unit_test(test_models),
                                       cmocka_unit_test(test_stopped)};
    int failed;

    if (!has_models())
        return 77;
    emulate_amx_for_products();
    rn_heap_init(&heap, NULL);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    return failed != 0 || rn_heap_blocks(&heap) != 0;
}
