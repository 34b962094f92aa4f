/* Rotation, the cache and attention over it, against the reference: every format of the cache, groups, windows, sinks;
 * and that a row's bits depend on neither tiles, nor chunks, nor the rows beside it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "tests/gpu/rigs/rig.h"
#include "model/kv.h"
#include "model/quant/quant.h"

enum {
    BLOCK_LOG = 4,
    BLOCK_TOKENS = 1 << BLOCK_LOG,
    MAX_POSITIONS = 720,
    TABLE = MAX_POSITIONS / BLOCK_TOKENS,
    SEQS = 3
};

/* What one case attends with. */
struct form {
    uint32_t type, heads, kv_heads, k_dim, v_dim; /* of the cache; v_dim 0: values are the front of the keys */
    uint32_t out_dim, window, chunked;
    float softcap;
    double alibi;
    bool sinks;
    double limit;
};

struct bench {
    struct rig rig;
    struct judge judge;
    struct form form;
    struct rn_kv_store_args store;
    struct rn_attention_args attend;
    uint32_t tables[SEQS][TABLE];
    struct rn_step_seq seqs[SEQS];
    uint32_t *row_seqs, *row_positions, *row_lasts;
    bool ahead;       /* rows look ahead, too */
    uint32_t at_once; /* chunks of a launch with a workspace; 0: all */
    float *k, *v, *q, *rotated, *out, *sinks, *slopes;
    uint32_t n_rows;
};

static void open_cache(struct bench *b, const struct form *form)
{
    uint64_t k_bytes =
        form->kv_heads * (uint64_t)rn_kv_row_bytes((runnel_kv_type)form->type, form->k_dim) * BLOCK_TOKENS;
    uint64_t v_bytes =
        form->kv_heads * (uint64_t)rn_kv_row_bytes((runnel_kv_type)form->type, form->v_dim) * BLOCK_TOKENS;
    uint64_t block_bytes = k_bytes + v_bytes;
    unsigned char *cache = rig_device(&b->rig, block_bytes * SEQS * TABLE);
    uint32_t *tables = rig_device(&b->rig, sizeof b->tables), *at = rig_device(&b->rig, SEQS * sizeof *at), s, i;

    for (s = 0; s < SEQS; s++) {
        at[s] = s * TABLE;
        for (i = 0; i < TABLE; i++)
            b->tables[s][i] = (s + i * SEQS) * 7 % (SEQS * TABLE); /* 7 has no common divisor with the number */
        b->seqs[s] = (struct rn_step_seq){.blocks = b->tables[s], .n_blocks = TABLE};
    }
    memcpy(tables, b->tables, sizeof b->tables);
    b->attend.cache = (struct rn_cache_args){.keys = rig_at(cache),
                                             .values = form->v_dim > 0 ? rig_at(cache + k_bytes) : 0,
                                             .tables = rig_at(tables),
                                             .table_at = rig_at(at),
                                             .block_bytes = block_bytes,
                                             .n_tables = SEQS * TABLE,
                                             .n_seqs = SEQS,
                                             .block_log = BLOCK_LOG,
                                             .kv_heads = form->kv_heads,
                                             .k_dim = form->k_dim,
                                             .v_dim = form->v_dim,
                                             .type = form->type};
}

static enum rn_kernel store_kernel(const struct form *form)
{
    return rn_kv_rotated((runnel_kv_type)form->type) ? RN_KERNEL_kv_store_rotated : RN_KERNEL_kv_store;
}

/* n_rows rows of the lengths given: of each sequence all positions, one behind the other. */
static void open_bench(struct bench *b, const struct form *form, const uint32_t lengths[SEQS])
{
    uint32_t n = lengths[0] + lengths[1] + lengths[2], s, p, h;
    size_t k_width = form->kv_heads * form->k_dim, v_width = form->kv_heads * form->v_dim;

    memset(b, 0, sizeof *b);
    rig_open(&b->rig);
    b->form = *form;
    b->row_seqs = rig_device(&b->rig, n * sizeof(uint32_t));
    b->row_positions = rig_device(&b->rig, n * sizeof(uint32_t));
    b->row_lasts = rig_device(&b->rig, n * sizeof(uint32_t));
    for (s = 0; s < SEQS; s++) {
        for (p = 0; p < lengths[s]; p++) {
            b->row_seqs[b->n_rows] = s;
            b->row_lasts[b->n_rows] = lengths[s] - 1;
            b->row_positions[b->n_rows++] = p;
        }
    }
    open_cache(b, form);
    b->k = rig_floats(&b->rig, n * k_width, 2);
    b->v = rig_floats(&b->rig, n * v_width + 1, 2);
    b->q = rig_floats(&b->rig, (size_t)n * form->heads * form->k_dim, 1);
    b->rotated = rig_floats(&b->rig, (size_t)n * form->heads * form->k_dim, 1);
    b->out = rig_device(&b->rig, (size_t)n * form->heads * form->out_dim * sizeof(float));
    b->sinks = rig_floats(&b->rig, form->heads, 2);
    b->slopes = rig_floats(&b->rig, form->heads, 1);
    for (h = 0; h < form->heads; h++)
        b->slopes[h] = (float)rn_op_slope(&(struct rn_op){.heads = form->heads, .alibi = form->alibi}, h);
    b->store = (struct rn_kv_store_args){b->attend.cache,
                                         rig_at(b->k),
                                         form->v_dim > 0 ? rig_at(b->v) : 0,
                                         rig_at(b->row_seqs),
                                         rig_at(b->row_positions),
                                         n};
    rig_run(&b->rig, store_kernel(form), &b->store);
}

/* The reference's output of all rows. */
static const float *want(struct bench *b)
{
    const struct form *f = &b->form;
    struct rn_op op = {.kind = RN_OP_ATTENTION,
                       .heads = f->heads,
                       .kv_heads = f->kv_heads,
                       .k_dim = f->k_dim,
                       .v_dim = f->out_dim,
                       .window = f->window,
                       .chunked = f->chunked,
                       .softcap = f->softcap,
                       .alibi = f->alibi,
                       .bidirectional = b->ahead,
                       .scale = 0.3f,
                       .group = f->heads,
                       .weight = f->sinks ? 0 : -1,
                       .bias = -1};
    struct judge *judge = &b->judge;
    size_t bytes = (size_t)SEQS * TABLE * BLOCK_TOKENS * f->kv_heads;
    uint32_t r;

    judge_open(&b->rig, judge, b->n_rows,
               (uint32_t[]){f->kv_heads * f->k_dim, f->kv_heads * f->v_dim, f->heads * f->out_dim, 1});
    judge->layer = (struct rn_kv_layer){f->kv_heads * f->k_dim, f->kv_heads * f->v_dim, f->kv_heads};
    judge->k[0] = rig_host(&b->rig, bytes * rn_kv_row_bytes((runnel_kv_type)f->type, f->k_dim));
    judge->v[0] = rig_host(&b->rig, bytes * rn_kv_row_bytes((runnel_kv_type)f->type, f->v_dim) + 1);
    judge->ref.limits = (struct rn_backend_limits){
        .block_tokens = BLOCK_TOKENS, .kv_type = (runnel_kv_type)f->type, .context_tokens = MAX_POSITIONS};
    judge->ref.scores = rig_host(&b->rig, (MAX_POSITIONS + 1) * sizeof(double));
    judge->step.seqs = b->seqs;
    judge->step.n_seqs = SEQS;
    judge_weight(judge, 0, RN_F32, f->heads, 1, 1, b->sinks);
    for (r = 0; r < b->n_rows; r++)
        judge->step.rows[r] = (struct rn_step_row){.position = b->row_positions[r], .seq = b->row_seqs[r], .out = -1};
    memcpy(judge->memory[0], b->k, (size_t)b->n_rows * f->kv_heads * f->k_dim * sizeof(float));
    memcpy(judge->memory[1], b->v, (size_t)b->n_rows * f->kv_heads * f->v_dim * sizeof(float));
    judge_run(judge, (struct rn_op){.kind = RN_OP_KV_STORE, .weight = -1, .bias = -1}, f->v_dim > 0);
    judge->memory[0] = b->q;
    return judge_run(judge, op, false);
}

/* Vectors of each head of n rows, rotated to `out` as rows of `like` numbers are, where the cache's are; what has
 * them. */
static float *rotated(struct bench *b, float *a, float *out, uint32_t n, uint32_t dim, uint32_t like)
{
    const struct rn_rotate_args args = {rig_at(a), rig_at(out), n * b->form.heads, dim, rn_kv_rotation(like)};

    if (!rn_kv_rotated((runnel_kv_type)b->form.type))
        return a;
    rig_run(&b->rig, RN_KERNEL_rotate, &args);
    return out;
}

/* Rows [first, first + n), to the place of the first of them. SPLIT: with a workspace. */
enum way { WHOLE, SPLIT, MANY };
static void attend(struct bench *b, uint32_t first, uint32_t n, uint32_t rows_per_tile, enum way way)
{
    bool split = way == SPLIT;
    const struct form *f = &b->form;
    uint32_t chunks = (MAX_POSITIONS + RN_ATTENTION_CHUNK - 1) / RN_ATTENTION_CHUNK;
    uint32_t at_once = split && b->at_once > 0 ? b->at_once : chunks;
    struct rn_attention_args *args = &b->attend;
    enum rn_kernel kernel;

    memset(b->out, 0xff, (size_t)b->n_rows * f->heads * f->out_dim * sizeof(float));
    args->out = rig_at(b->out);
    args->seqs = rig_at(b->row_seqs + first);
    args->positions = rig_at(b->row_positions + first);
    args->lasts = b->ahead ? rig_at(b->row_lasts + first) : 0;
    args->sinks = f->sinks ? rig_at(b->sinks) : 0;
    args->slopes = f->alibi > 0 ? rig_at(b->slopes) : 0;
    args->workspace = split ? rig_at(rig_device(&b->rig, rn_attention_bytes(n, f->heads, f->out_dim, at_once))) : 0;
    args->before = split ? rig_at(rig_device(&b->rig, rn_attention_bytes(n, f->heads, f->out_dim, 1))) : 0;
    args->n_rows = n;
    args->heads = f->heads;
    args->v_dim = f->out_dim;
    args->window = f->window;
    args->chunked = f->chunked;
    args->rows_per_tile = rows_per_tile;
    args->scale = 0.3f;
    args->softcap = f->softcap;
    args->q = rig_at(rotated(b, b->q + (size_t)first * f->heads * f->k_dim, b->rotated, n, f->k_dim, f->k_dim));
    if (way == MANY)
        assert_true(rn_attention_many_kernel(f->type, f->k_dim, f->v_dim, &kernel));
    else
        assert_true(rn_attention_kernel(f->type, f->k_dim, f->out_dim, &kernel));
    for (args->first_chunk = 0; args->first_chunk < (split ? chunks : 1); args->first_chunk += at_once) {
        args->n_chunks = at_once < chunks - args->first_chunk ? at_once : chunks - args->first_chunk;
        rig_run(&b->rig, kernel, args);
        if (split)
            rig_run(&b->rig, RN_KERNEL_attention_join, args);
    }
    rotated(b, b->out, b->out, n, f->out_dim, f->v_dim == 0 ? f->k_dim : f->v_dim);
}

static void against_reference(const struct form *form, const uint32_t lengths[SEQS])
{
    struct bench b;
    const float *wanted;
    float *whole;
    size_t n;

    open_bench(&b, form, lengths);
    wanted = want(&b);
    n = (size_t)b.n_rows * form->heads * form->out_dim;
    attend(&b, 0, b.n_rows, rn_attention_rows(form->heads, form->kv_heads), WHOLE);
    rig_expect("attention", b.out, wanted, n, form->limit);
    /* a row whose positions are in two chunks, and one behind it, with a workspace */
    n = 2 * (size_t)form->heads * form->out_dim;
    whole = rig_host(&b.rig, n * sizeof *whole);
    memcpy(whole, b.out + 65 * n / 2, n * sizeof *whole);
    attend(&b, 65, 2, 1, SPLIT);
    assert_memory_equal(b.out, whole, n * sizeof *whole);
    rig_close(&b.rig);
}

static void formats(void **state)
{
    static const uint32_t lengths[SEQS] = {70, 1, 9};
    static const struct form forms[] = {
        {RUNNEL_KV_F32, 4, 2, 64, 64, 64, 0, 0, 0, 0, false, 1e-9},
        {RUNNEL_KV_F16, 4, 4, 32, 32, 32, 0, 0, 0, 0, false, 1e-9},
        {RUNNEL_KV_BF16, 6, 2, 32, 64, 64, 0, 0, 0, 0, false, 1e-9},
        {RUNNEL_KV_FP8, 8, 1, 48, 16, 16, 0, 0, 0, 0, false, 1e-9},
        {RUNNEL_KV_Q8, 4, 2, 80, 80, 80, 0, 0, 0, 0, false, 1e-6},
        {RUNNEL_KV_Q4, 4, 2, 64, 128, 128, 0, 0, 0, 0, false, 1e-6},
        {RUNNEL_KV_Q4, 2, 1, 84, 80, 80, 0, 0, 0, 0, false,
         1e-6}, /* groups of 20 and of 16, rotations of 4 and of 16 */
        {RUNNEL_KV_Q3, 4, 2, 64, 96, 96, 0, 0, 0, 0, false, 1e-6},
        {RUNNEL_KV_Q3, 2, 2, 72, 44, 44, 0, 0, 0, 0, false, 1e-6},     /* rows of odd bytes */
        {RUNNEL_KV_Q4, 3, 1, 96, 0, 64, 0, 0, 0, 0, false, 1e-6},      /* values in keys: both rotated by spans of 32 */
        {RUNNEL_KV_F32, 2, 1, 192, 192, 192, 0, 0, 0, 0, false, 1e-9}, /* values come into the keys' place */
        {RUNNEL_KV_F16, 5, 1, 72, 0, 40, 0, 0, 0, 0, false, 1e-9},     /* values in keys, copied as they lie */
    };
    uint32_t i;

    (void)state;
    for (i = 0; i < sizeof forms / sizeof forms[0]; i++)
        against_reference(&forms[i], lengths);
}

static void kinds(void **state)
{
    static const uint32_t lengths[SEQS] = {90, 40, 1};
    static const struct form forms[] = {
        {RUNNEL_KV_F16, 4, 2, 32, 32, 32, 20, 0, 0, 0, false, 1e-9}, /* a window */
        {RUNNEL_KV_F16, 4, 2, 32, 32, 32, 32, 1, 0, 0, false, 1e-9}, /* chunks of positions */
        {RUNNEL_KV_F16, 4, 2, 32, 32, 32, 0, 0, 5, 0, false, 1e-9},  /* a softcap */
        {RUNNEL_KV_F16, 6, 2, 32, 32, 32, 0, 0, 0, 8, false, 1e-9},  /* ALiBi */
        {RUNNEL_KV_F16, 4, 2, 32, 32, 32, 17, 0, 0, 0, true, 1e-9},  /* sinks */
        {RUNNEL_KV_F32, 20, 1, 36, 0, 28, 0, 0, 0, 0, true, 1e-9},   /* values in keys; 20 heads share a head */
    };
    uint32_t i;

    (void)state;
    for (i = 0; i < sizeof forms / sizeof forms[0]; i++)
        against_reference(&forms[i], lengths);
}

/* Several chunks, rows in any company: the same bits. */
static void bits_do_not_depend_on_the_schedule(void **state)
{
    static const uint32_t lengths[SEQS] = {600, 30, 1};
    static const struct form forms[] = {{RUNNEL_KV_F16, 4, 2, 16, 16, 16, 0, 0, 0, 0, false, 1e-9},
                                        {RUNNEL_KV_BF16, 4, 2, 16, 16, 16, 300, 0, 0, 0, true, 1e-9}};
    static const uint32_t at[] = {0, 1, 63, 64, 65, 128, 255, 319, 384, 511, 575, 590, 599, 605};
    struct bench b;
    float *whole;
    size_t width;
    uint32_t i, j, n;

    (void)state;
    for (i = 0; i < 2; i++) {
        open_bench(&b, &forms[i], lengths);
        width = (size_t)forms[i].heads * forms[i].out_dim;
        whole = rig_host(&b.rig, b.n_rows * width * sizeof *whole);
        attend(&b, 0, b.n_rows, rn_attention_rows(4, 2), WHOLE);
        rig_expect("attention", b.out, want(&b), b.n_rows * width, forms[i].limit);
        memcpy(whole, b.out, b.n_rows * width * sizeof *whole);
        for (j = 0; j < sizeof at / sizeof at[0]; j++) {
            n = j % 3 == 0 ? 1 : 2 * j;
            attend(&b, at[j], n, 1 + j % 8, j % 2 == 0 ? SPLIT : WHOLE);
            assert_memory_equal(b.out, whole + at[j] * width, n * width * sizeof *whole);
        }
        rig_close(&b.rig);
    }
}

/* Rows that look ahead, with windows and without, over several chunks; split over positions the bits are the same. */
static void ahead(void **state)
{
    static const uint32_t lengths[SEQS] = {300, 41, 1};
    static const struct form forms[] = {
        {RUNNEL_KV_F32, 4, 2, 16, 16, 16, 0, 0, 0, 0, false, 1e-9},
        {RUNNEL_KV_F16, 4, 2, 32, 32, 32, 20, 0, 0, 0, false, 1e-9},
        {RUNNEL_KV_F16, 6, 2, 16, 16, 16, 401, 0, 5, 0, true, 1e-9},
    };
    struct bench b;
    float *whole;
    size_t n;

    (void)state;
    for (uint32_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        open_bench(&b, &forms[i], lengths);
        b.ahead = true;
        n = (size_t)b.n_rows * forms[i].heads * forms[i].out_dim;
        whole = rig_host(&b.rig, n * sizeof *whole);
        attend(&b, 0, b.n_rows, rn_attention_rows(forms[i].heads, forms[i].kv_heads), WHOLE);
        rig_expect("attention that looks ahead", b.out, want(&b), n, forms[i].limit);
        memcpy(whole, b.out, n * sizeof *whole);
        attend(&b, 290, 52, 1, SPLIT);
        assert_memory_equal(b.out, whole + 290 * n / b.n_rows, 52 * n / b.n_rows * sizeof *whole);
        rig_close(&b.rig);
    }
}

/* The kernels of many rows: right, and the same bits as the others. */
static void many_rows(void **state)
{
    static const uint32_t lengths[SEQS] = {150, 20, 3};
    static const struct form forms[] = {
        {RUNNEL_KV_F16, 4, 1, 64, 64, 64, 0, 0, 0, 0, false, 1e-9},
        {RUNNEL_KV_F16, 2, 2, 128, 128, 128, 70, 0, 0, 0, true, 1e-9},   /* a window, sinks */
        {RUNNEL_KV_BF16, 3, 1, 128, 128, 128, 96, 1, 0, 0, false, 1e-9}, /* chunks of positions */
        {RUNNEL_KV_BF16, 6, 1, 64, 64, 64, 0, 0, 5, 8, false, 1e-9},     /* a softcap, ALiBi */
    };
    static const uint32_t at[] = {0, 3, 60, 129, 148, 170};
    struct bench b;
    uint32_t i, j, rows;
    float *whole;
    size_t width;

    (void)state;
    for (i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        open_bench(&b, &forms[i], lengths);
        width = (size_t)forms[i].heads * forms[i].out_dim;
        whole = rig_host(&b.rig, b.n_rows * width * sizeof *whole);
        rows = rn_attention_many_rows(forms[i].heads, forms[i].kv_heads);
        attend(&b, 0, b.n_rows, rows, MANY);
        rig_expect("attention", b.out, want(&b), b.n_rows * width, forms[i].limit);
        memcpy(whole, b.out, b.n_rows * width * sizeof *whole);
        for (j = 0; j < sizeof at / sizeof at[0]; j++) {
            attend(&b, at[j], 3, 1 + j % 2, j % 3 == 0 ? WHOLE : SPLIT);
            assert_memory_equal(b.out, whole + at[j] * width, 3 * width * sizeof *whole);
        }
        attend(&b, 37, 100, rows, MANY);
        assert_memory_equal(b.out, whole + 37 * width, 100 * width * sizeof *whole);
        rig_close(&b.rig);
    }
}

/* Bytes of the cache are those of the host's encoder. */
static void stored_bytes(void **state)
{
    static const uint32_t lengths[SEQS] = {20, 0, 3};
    static const float hard[] = {0, -0.0f, 448, 449, 1e9f, -1e-9f, 0.001f, 65519, 65520, -3e-8f, 6e-5f, 2e-3f, 0.0019f};
    unsigned char row[512];
    uint32_t type, r, h;

    (void)state;
    for (type = RUNNEL_KV_F16; type <= RUNNEL_KV_Q3; type++) {
        struct form form = {type, 2, 2, 40, 96, 96, 0, 0, 0, 0, false, 0};
        struct bench b;

        open_bench(&b, &form, lengths);
        memcpy(b.k, hard, sizeof hard);
        rig_run(&b.rig, store_kernel(&form), &b.store);
        for (r = 0; r < b.n_rows; r++) {
            uint32_t p = b.row_positions[r], block = b.tables[b.row_seqs[r]][p / BLOCK_TOKENS];
            unsigned char *at = (unsigned char *)(uintptr_t)(b.attend.cache.keys + block * b.attend.cache.block_bytes);

            for (h = 0; h < 2; h++) {
                size_t bytes = rn_kv_row_bytes((runnel_kv_type)type, 40);
                rn_kv_encode((runnel_kv_type)type, b.k + (r * 2 + h) * 40, 40, row);
                assert_memory_equal(at + (p % BLOCK_TOKENS * 2 + h) * bytes, row, bytes);
            }
        }
        rig_close(&b.rig);
    }
}

/* A workspace of few chunks, for one launch after the other, and rows that see the first ones, the last ones or all. */
static void chunks_in_turn(void **state)
{
    enum { FIRST = 640, ROWS = 70 };
    static const uint32_t lengths[SEQS] = {700, 1, 9};
    static const struct form forms[] = {
        {RUNNEL_KV_F16, 4, 2, 32, 32, 32, 0, 0, 0, 0, true, 0},
        {RUNNEL_KV_F32, 2, 1, 32, 160, 160, 0, 0, 0, 0, false, 0}, /* a thread has several numbers */
        {RUNNEL_KV_F16, 3, 1, 64, 0, 48, 0, 0, 0, 0, false, 0},
        {RUNNEL_KV_Q8, 2, 2, 32, 32, 32, 130, 0, 5, 0, false, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        size_t bytes = (size_t)ROWS * forms[i].heads * forms[i].out_dim * sizeof(float);
        struct bench b;
        float *whole;

        open_bench(&b, &forms[i], lengths);
        whole = rig_host(&b.rig, bytes);
        attend(&b, FIRST, ROWS, rn_attention_rows(forms[i].heads, forms[i].kv_heads), WHOLE);
        memcpy(whole, b.out, bytes);
        for (b.at_once = 1; b.at_once <= 7; b.at_once += 3) {
            attend(&b, FIRST, ROWS, rn_attention_rows(forms[i].heads, forms[i].kv_heads), SPLIT);
            assert_memory_equal(b.out, whole, bytes);
        }
        rig_close(&b.rig);
    }
}

static void what_has_no_kernel(void **state)
{
    enum rn_kernel kernel;

    (void)state;
    assert_false(rn_attention_kernel(RUNNEL_KV_Q3 + 1, 64, 64, &kernel));
    assert_false(rn_attention_kernel(RUNNEL_KV_F16, 63, 64, &kernel));
    assert_false(rn_attention_kernel(RUNNEL_KV_F16, 64, 2048, &kernel));
    assert_true(rn_attention_kernel(RUNNEL_KV_F16, 576, 512, &kernel));
}

/* ---- Rotation ---- */

static void rotate(bool neox, uint32_t dims, int32_t shift, bool in_place)
{
    enum { ROWS = 6, HEADS = 3, DIM = 40 };
    struct rig rig;
    struct judge judge;
    struct rn_op op = {.kind = RN_OP_ROPE, .heads = HEADS, .k_dim = DIM, .weight = -1, .bias = -1};
    float *a, *out;
    double *inv_freq;
    uint32_t *positions, i;
    struct rn_rope_args args;

    rig_open(&rig);
    a = rig_floats(&rig, ROWS * HEADS * DIM, 2);
    out = in_place ? a : rig_device(&rig, ROWS * HEADS * DIM * sizeof *out);
    inv_freq = rig_device(&rig, dims / 2 * sizeof *inv_freq);
    positions = rig_device(&rig, ROWS * sizeof *positions);
    judge_open(&rig, &judge, ROWS, (uint32_t[]){HEADS * DIM, 1, HEADS * DIM, 1});
    for (i = 0; i < dims / 2; i++)
        inv_freq[i] = pow(10000, -2.0 * i / dims);
    for (i = 0; i < ROWS; i++)
        judge.step.rows[i].position = positions[i] = i * i * i * 1000;
    judge.rope = (struct rn_rope){dims, shift, neox, 1.25, inv_freq};
    memcpy(judge.memory[0], a, ROWS * HEADS * DIM * sizeof *a);
    args = (struct rn_rope_args){
        rig_at(a), rig_at(out), rig_at(positions), rig_at(inv_freq), ROWS, HEADS, DIM, dims, shift, neox, 1.25};
    rig_run(&rig, RN_KERNEL_rope, &args);
    rig_expect("rope", out, judge_run(&judge, op, false), ROWS * HEADS * DIM, 1e-13);
    rig_close(&rig);
}

static void rope(void **state)
{
    (void)state;
    rotate(false, 40, 0, false);
    rotate(true, 40, 3, true);
    rotate(true, 24, -5, false);
    rotate(false, 24, 63, true);
}

/* ---- Rows that are gathered ---- */

static void gather(void **state)
{
    static const uint32_t wanted[] = {4, 0, 9, 2};
    struct rig rig;
    struct rn_gather_args args;
    float *a, *out, before;
    uint32_t *index, r, i;

    (void)state;
    rig_open(&rig);
    a = rig_floats(&rig, 5 * 30, 1);
    index = rig_device(&rig, sizeof wanted);
    memcpy(index, wanted, sizeof wanted);
    out = rig_floats(&rig, 4 * 50, 1);
    before = out[9];
    args = (struct rn_gather_args){rig_at(a), rig_at(index), rig_at(out), 4, 5, 30, 50, 10};
    rig_run(&rig, RN_KERNEL_gather, &args);
    for (r = 0; r < 4; r++)
        for (i = 0; i < 30; i++)
            assert_true(out[r * 50 + 10 + i] == (wanted[r] < 5 ? a[wanted[r] * 30 + i] : 0));
    assert_true(out[9] == before);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stored_bytes),   cmocka_unit_test(formats),
        cmocka_unit_test(kinds),          cmocka_unit_test(ahead),
        cmocka_unit_test(many_rows),      cmocka_unit_test(bits_do_not_depend_on_the_schedule),
        cmocka_unit_test(chunks_in_turn), cmocka_unit_test(rope),
        cmocka_unit_test(gather),         cmocka_unit_test(what_has_no_kernel),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
