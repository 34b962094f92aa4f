/* CHOOSE, and attention at chosen positions, against the reference: fewer positions than are chosen and more, equal
 * scores, what is no number, every format of the cache; and that a row chooses the same alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "tests/gpu/rigs/rig.h"
#include "model/kv.h"

enum { BLOCK_LOG = 4, BLOCK_TOKENS = 1 << BLOCK_LOG, LONGEST = 512, TABLE = LONGEST / BLOCK_TOKENS };

struct form {
    uint32_t type, heads, k_dim, used, n; /* positions that are stored */
    bool whole;                           /* keys and queries are small whole numbers: many scores are equal */
    bool strange;                         /* a weight is no number */
    uint32_t per, best;                   /* of blocks */
    bool bare;                            /* no weights */
};

struct bench {
    struct rig rig;
    struct judge judge;
    struct form form;
    struct rn_cache_args cache;
    uint32_t table[TABLE], *seqs, *positions;
    struct rn_step_seq seq;
    float *keys, *q, *rotated, *weights, *scores;
    int32_t *out;
};

static float *numbers(struct bench *b, size_t n)
{
    float *a = rig_floats(&b->rig, n, 2);

    for (size_t i = 0; b->form.whole && i < n; i++)
        a[i] = (float)(int)a[i];
    return a;
}

/* A row at each of the n positions of a sequence whose keys are in the cache. */
static void open_bench(struct bench *b, const struct form *form)
{
    struct rn_kv_store_args store;
    uint64_t bytes;
    uint32_t *tables, *at;

    memset(b, 0, sizeof *b);
    rig_open(&b->rig);
    b->form = *form;
    bytes = (uint64_t)rn_kv_row_bytes((runnel_kv_type)form->type, form->k_dim) * BLOCK_TOKENS;
    tables = rig_device(&b->rig, sizeof b->table);
    at = rig_device(&b->rig, sizeof *at);
    *at = 0;
    for (uint32_t i = 0; i < TABLE; i++)
        tables[i] = b->table[i] = i * 7 % TABLE;
    b->seq = (struct rn_step_seq){.blocks = b->table, .n_blocks = TABLE};
    b->cache = (struct rn_cache_args){.keys = rig_at(rig_device(&b->rig, bytes * TABLE)),
                                      .tables = rig_at(tables),
                                      .table_at = rig_at(at),
                                      .block_bytes = bytes,
                                      .n_tables = TABLE,
                                      .n_seqs = 1,
                                      .block_log = BLOCK_LOG,
                                      .kv_heads = 1,
                                      .k_dim = form->k_dim,
                                      .type = form->type};
    b->seqs = rig_device(&b->rig, form->n * sizeof *b->seqs);
    b->positions = rig_device(&b->rig, form->n * sizeof *b->positions);
    for (uint32_t i = 0; i < form->n; i++) {
        b->seqs[i] = 0;
        b->positions[i] = i;
    }
    b->keys = numbers(b, (size_t)form->n * form->k_dim);
    b->q = numbers(b, (size_t)form->n * form->heads * form->k_dim);
    b->rotated = numbers(b, (size_t)form->n * form->heads * form->k_dim);
    b->weights = numbers(b, (size_t)form->n * form->heads);
    if (form->strange)
        b->weights[(form->n - 1) * form->heads] = NAN;
    b->scores = rig_device(&b->rig, (size_t)form->n * LONGEST * sizeof *b->scores);
    b->out = rig_device(&b->rig, (size_t)form->n * form->used * sizeof *b->out);
    store = (struct rn_kv_store_args){b->cache, rig_at(b->keys), 0, rig_at(b->seqs), rig_at(b->positions), form->n};
    rig_run(&b->rig, rn_kv_rotated((runnel_kv_type)form->type) ? RN_KERNEL_kv_store_rotated : RN_KERNEL_kv_store,
            &store);
}

/* Rows [first, first + n), to the front of out. */
static void choose(struct bench *b, uint32_t first, uint32_t n)
{
    const struct form *f = &b->form;
    struct rn_choose_args args = {.cache = b->cache,
                                  .q = rig_at(b->q + (size_t)first * f->heads * f->k_dim),
                                  .weights = f->bare ? 0 : rig_at(b->weights + (size_t)first * f->heads),
                                  .seqs = rig_at(b->seqs + first),
                                  .positions = rig_at(b->positions + first),
                                  .scores = rig_at(b->scores),
                                  .out = rig_at(b->out),
                                  .n_rows = n,
                                  .heads = f->heads,
                                  .used = f->used,
                                  .longest = LONGEST,
                                  .per = f->per,
                                  .best = f->best};
    enum rn_kernel kernel;

    if (rn_kv_rotated((runnel_kv_type)f->type)) {
        const struct rn_rotate_args rotate = {args.q, rig_at(b->rotated), n * f->heads, f->k_dim,
                                              rn_kv_rotation(f->k_dim)};

        rig_run(&b->rig, RN_KERNEL_rotate, &rotate);
        args.q = rotate.out;
    }
    assert_true(rn_choose_kernel(f->type, f->k_dim, f->used, &kernel));
    rig_run(&b->rig, kernel, &args);
    rig_run(&b->rig, RN_KERNEL_choose_pick, &args);
}

/* The reference's cache, and its choice for all rows. */
static const int32_t *want(struct bench *b)
{
    const struct form *f = &b->form;
    struct judge *judge = &b->judge;

    judge_open(&b->rig, judge, f->n, (uint32_t[]){f->heads * f->k_dim, f->heads, f->used, 1});
    judge->layer = (struct rn_kv_layer){f->k_dim, 0, 1};
    judge->k[0] = rig_host(&b->rig, (size_t)LONGEST * rn_kv_row_bytes((runnel_kv_type)f->type, f->k_dim));
    judge->ref.limits = (struct rn_backend_limits){
        .block_tokens = BLOCK_TOKENS, .kv_type = (runnel_kv_type)f->type, .context_tokens = LONGEST};
    judge->ref.scores = rig_host(&b->rig, (LONGEST + 1) * sizeof(double));
    judge->step.seqs = &b->seq;
    judge->step.n_seqs = 1;
    for (uint32_t r = 0; r < f->n; r++)
        judge->step.rows[r] = (struct rn_step_row){.position = r, .out = -1};
    memcpy(judge->memory[0], b->keys, (size_t)f->n * f->k_dim * sizeof(float));
    judge_run(judge, (struct rn_op){.kind = RN_OP_KV_STORE, .weight = -1, .bias = -1}, false);
    memcpy(judge->memory[0], b->q, (size_t)f->n * f->heads * f->k_dim * sizeof(float));
    memcpy(judge->memory[1], b->weights, (size_t)f->n * f->heads * sizeof(float));
    return (const int32_t *)judge_run(judge,
                                      (struct rn_op){.kind = RN_OP_CHOOSE,
                                                     .heads = f->heads,
                                                     .k_dim = f->k_dim,
                                                     .used = f->used,
                                                     .per = f->per,
                                                     .best = f->best},
                                      !f->bare);
}

static void chosen(void **state)
{
    static const struct form forms[] = {
        {RUNNEL_KV_F32, 5, 32, 40, 140, false, false, 0, 0, false}, /* more positions than a block has scores of */
        {RUNNEL_KV_F16, 40, 64, 7, 50, false, false, 0, 0, false},  /* more heads than are summed at once */
        {RUNNEL_KV_BF16, 3, 16, 9, 30, false, false, 0, 0, false},
        {RUNNEL_KV_FP8, 3, 16, 9, 30, false, false, 0, 0, false},
        {RUNNEL_KV_Q8, 3, 36, 9, 30, false, false, 0, 0, false},
        {RUNNEL_KV_Q4, 3, 96, 9, 30, false, false, 0, 0, false},
        {RUNNEL_KV_Q3, 3, 64, 9, 30, false, false, 0, 0, false},
        {RUNNEL_KV_F32, 1, 4, 20, 120, true, false, 0, 0, false},
        {RUNNEL_KV_F32, 2, 4, 1, 40, true, false, 0, 0, false},
        {RUNNEL_KV_F32, 1, 8, 33, 70, true, true, 0, 0, false},
        {RUNNEL_KV_F16, 1, 8, 200, 12, false, false, 0, 0, false}, /* all that there are */
        {RUNNEL_KV_F32, 2, 32, 24, 140, false, false, 8, 1, true}, /* blocks of 8, one's own among them */
        {RUNNEL_KV_BF16, 3, 16, 15, 60, false, false, 3, 2, false},
        {RUNNEL_KV_F32, 1, 4, 8, 70, true, false, 2, 1, false},
        {RUNNEL_KV_F16, 4, 16, 15, 90, false, false, 4, 0, false}, /* and what stands behind whole blocks */
        {RUNNEL_KV_F32, 1, 4, 11, 70, true, true, 4, 0, false},
        {RUNNEL_KV_F32, 2, 4, 5, 500, false, false, 3, 0, true},
    };
    struct bench b;
    const int32_t *wanted;

    (void)state;
    for (uint32_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        const struct form *f = &forms[i];
        size_t bytes = f->used * sizeof *wanted;

        open_bench(&b, f);
        wanted = want(&b);
        choose(&b, 0, f->n);
        assert_memory_equal(b.out, wanted, f->n * bytes);
        choose(&b, f->n - 1, 1);
        assert_memory_equal(b.out, wanted + (size_t)(f->n - 1) * f->used, bytes);
        rig_close(&b.rig);
    }
}

/* Attention at the chosen positions of keys whose front are the values; split over positions the bits are the same. */
static void attention(void **state)
{
    enum { HEADS = 3, DIM = 24, CHUNKS = LONGEST / RN_ATTENTION_CHUNK, FIRST = 265, ROWS = 10 };
    static const struct form form = {RUNNEL_KV_F32, 4, 32, 270, 300, false, false, 0, 0, false};
    struct rn_op op = {.kind = RN_OP_ATTENTION,
                       .heads = HEADS,
                       .kv_heads = 1,
                       .k_dim = form.k_dim,
                       .v_dim = DIM,
                       .scale = 0.3f,
                       .used = form.used,
                       .weight = -1,
                       .bias = -1};
    size_t n = ROWS * HEADS * DIM;
    struct rn_attention_args args;
    float *q, *out, *split;
    struct bench b;

    (void)state;
    open_bench(&b, &form);
    want(&b);
    choose(&b, 0, form.n);
    q = rig_floats(&b.rig, (size_t)form.n * HEADS * form.k_dim, 1);
    out = rig_device(&b.rig, n * sizeof *out);
    split = rig_device(&b.rig, n * sizeof *split);
    args = (struct rn_attention_args){.cache = b.cache,
                                      .q = rig_at(q + (size_t)FIRST * HEADS * form.k_dim),
                                      .out = rig_at(out),
                                      .seqs = rig_at(b.seqs + FIRST),
                                      .positions = rig_at(b.positions + FIRST),
                                      .chosen = rig_at(b.out + FIRST * form.used),
                                      .n_rows = ROWS,
                                      .heads = HEADS,
                                      .v_dim = DIM,
                                      .rows_per_tile = 1,
                                      .used = form.used,
                                      .scale = op.scale};
    rig_run(&b.rig, RN_KERNEL_attention_f32, &args);
    b.judge.memory[0] = q;
    b.judge.memory[1] = b.out;
    b.judge.memory[2] = rig_host(&b.rig, (size_t)form.n * HEADS * DIM * sizeof *out);
    rig_expect("attention at chosen positions", out, judge_run(&b.judge, op, true) + FIRST * HEADS * DIM, n, 1e-9);
    args.out = rig_at(split);
    args.n_chunks = CHUNKS;
    args.workspace = rig_at(rig_device(&b.rig, rn_attention_bytes(ROWS, HEADS, DIM, CHUNKS)));
    rig_run(&b.rig, RN_KERNEL_attention_f32, &args);
    rig_run(&b.rig, RN_KERNEL_attention_join, &args);
    assert_memory_equal(split, out, n * sizeof *out);
    rig_close(&b.rig);
}

/* Attention at positions of two caches, one of which lies elsewhere with blocks of another size, in each format. */
static void two_caches(void **state)
{
    enum { HEADS = 5, DIM = 32, N = 150, USED = 130, CHUNKS = (USED + RN_ATTENTION_CHUNK - 1) / RN_ATTENTION_CHUNK };
    static const uint32_t types[] = {RUNNEL_KV_F32, RUNNEL_KV_F16, RUNNEL_KV_Q8, RUNNEL_KV_Q3};
    const size_t n = (size_t)N * HEADS * DIM;

    (void)state;
    for (uint32_t t = 0; t < sizeof types / sizeof types[0]; t++) {
        const struct form form = {types[t], 4, DIM, USED, N, false, false, 0, 0, false};
        uint64_t row = rn_kv_row_bytes((runnel_kv_type)types[t], DIM), bytes = row * BLOCK_TOKENS + 256;
        struct rn_op op = {.kind = RN_OP_ATTENTION,
                           .heads = HEADS,
                           .kv_heads = 1,
                           .k_dim = DIM,
                           .v_dim = DIM,
                           .scale = 0.3f,
                           .window = 64,
                           .used = USED,
                           .second = 2,
                           .weight = -1,
                           .bias = -1};
        struct rn_kv_store_args store;
        struct rn_attention_args args;
        struct rn_kv_layer layers[2] = {{DIM, 0, 1}, {DIM, 0, 1}};
        unsigned char *second, *ks[2];
        float *q, *rotated, *out, *split;
        enum rn_kernel kernel;
        struct bench b;

        open_bench(&b, &form);
        want(&b);
        second = rig_device(&b.rig, bytes * TABLE);
        store = (struct rn_kv_store_args){b.cache, rig_at(b.q), 0, rig_at(b.seqs), rig_at(b.positions), N};
        store.cache.keys = rig_at(second);
        store.cache.block_bytes = bytes;
        rig_run(&b.rig, rn_kv_rotated((runnel_kv_type)types[t]) ? RN_KERNEL_kv_store_rotated : RN_KERNEL_kv_store,
                &store);
        ks[0] = b.judge.k[0];
        ks[1] = rig_host(&b.rig, (size_t)LONGEST * row);
        for (uint32_t i = 0; i < TABLE; i++) /* as the reference has its blocks */
            memcpy(ks[1] + (size_t)i * row * BLOCK_TOKENS, second + i * bytes, row * BLOCK_TOKENS);
        b.judge.ref.k = ks;
        b.judge.plan.kv_layers = layers;
        b.judge.plan.n_kv_layers = 2;
        for (uint32_t r = 0; r < N; r++) /* of the first its own and those before, of the second every third */
            for (uint32_t i = 0, k = 0; i < USED; i++)
                b.out[r * USED + i] = i <= r && i < 64 ? (int32_t)(r - i)
                                      : k * 3 < r      ? (int32_t)(k++ * 3) | RN_SECOND
                                                       : -1;
        q = rig_floats(&b.rig, n, 1);
        rotated = rig_device(&b.rig, n * sizeof *rotated);
        out = rig_device(&b.rig, n * sizeof *out);
        split = rig_device(&b.rig, n * sizeof *split);
        args = (struct rn_attention_args){.cache = b.cache,
                                          .q = rig_at(q),
                                          .out = rig_at(out),
                                          .seqs = rig_at(b.seqs),
                                          .positions = rig_at(b.positions),
                                          .chosen = rig_at(b.out),
                                          .second = rig_at(second),
                                          .second_at = b.cache.table_at,
                                          .second_bytes = bytes,
                                          .n_rows = N,
                                          .heads = HEADS,
                                          .v_dim = DIM,
                                          .window = 64,
                                          .rows_per_tile = 1,
                                          .used = USED,
                                          .scale = op.scale};
        if (rn_kv_rotated((runnel_kv_type)types[t])) {
            rig_run(&b.rig, RN_KERNEL_rotate,
                    &(struct rn_rotate_args){args.q, rig_at(rotated), N * HEADS, DIM, rn_kv_rotation(DIM)});
            args.q = rig_at(rotated);
        }
        assert_true(rn_attention_kernel(types[t], DIM, DIM, &kernel));
        rig_run(&b.rig, kernel, &args);
        args.out = rig_at(split);
        args.n_chunks = CHUNKS;
        args.workspace = rig_at(rig_device(&b.rig, rn_attention_bytes(N, HEADS, DIM, CHUNKS)));
        rig_run(&b.rig, kernel, &args);
        rig_run(&b.rig, RN_KERNEL_attention_join, &args);
        assert_memory_equal(split, out, n * sizeof *out);
        if (rn_kv_rotated((runnel_kv_type)types[t]))
            rig_run(&b.rig, RN_KERNEL_rotate,
                    &(struct rn_rotate_args){rig_at(out), rig_at(out), N * HEADS, DIM, rn_kv_rotation(DIM)});
        memcpy(b.judge.memory[0] = rig_host(&b.rig, n * sizeof *q), q, n * sizeof *q);
        b.judge.memory[1] = b.out;
        b.judge.memory[2] = rig_host(&b.rig, n * sizeof *out);
        rig_expect("attention to two caches", out, judge_run(&b.judge, op, true), n, 1e-8);
        rig_close(&b.rig);
    }
}

static void what_has_no_kernel(void **state)
{
    enum rn_kernel kernel;

    (void)state;
    assert_true(rn_choose_kernel(RUNNEL_KV_F16, 128, 2048, &kernel));
    assert_false(rn_choose_kernel(RUNNEL_KV_F16, 126, 2048, &kernel));
    assert_false(rn_choose_kernel(RUNNEL_KV_F16, 128, 50000, &kernel));
    assert_false(rn_choose_kernel(RUNNEL_KV_F16, 2048, 16, &kernel));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chosen),
        cmocka_unit_test(attention),
        cmocka_unit_test(two_caches),
        cmocka_unit_test(what_has_no_kernel),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
