/* Law 5 across levels and the orders of weights in memory: the logits of a whole model are the same bits with plain C,
 * AVX2, AVX-512, AMX and NEON (run emulated by tests/cross), whether its matrices lie as in the file or in tiles, with
 * any number of threads and rows to a step; and they are the bits that they were when this test was written. For
 * runnel-tiny's shape in each format: the shared files, and matrices of random blocks. The one exception is attention
 * on the matrix unit, which has bits of its own: see test_few_heads. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "cpu/fast.h"
#include "cpu/nodes.h"
#include "cpu/team.h"
#include "model/quant/types.h"
#include "tests/base/refusing.h"
#include "tests/cpu/amx_emulator.h"
#include "tests/cpu/runner.h"
#include "tests/model/model_edit.h"
#include "tests/slow.h"

enum { BLOCK = 16, N_BLOCKS = 8, N = 24, MORE = 40, CONTEXT = 64, DATA_BYTES = 6 << 20 };

static struct rn_heap heap;

/* ---- Models of random blocks ---- */

struct format {
    uint32_t type;
    float d;                /* scales keep the model's numbers near 1 */
    int scale_at, least_at; /* half floats in a block; -1: none */
};

static const struct format formats[] = {
    {RN_Q4_0, 0.005f, 0, -1},     {RN_Q4_1, 0.005f, 0, 2},     {RN_Q5_0, 0.005f, 0, -1},
    {RN_Q5_1, 0.005f, 0, 2},      {RN_Q8_0, 0.005f, 0, -1},    {RN_IQ4_NL, 0.005f, 0, -1},
    {RN_Q2_K, 0.0002f, 80, 82},   {RN_Q3_K, 0.0002f, 108, -1}, {RN_Q4_K, 0.0002f, 0, 2},
    {RN_Q5_K, 0.0002f, 0, 2},     {RN_Q6_K, 0.0002f, 208, -1}, {RN_MXFP4, 0, -1, -1},
    {RN_IQ4_XS, 0.0002f, 0, -1},  {RN_NVFP4, 0, -1, -1},       {RN_TQ1_0, 0.02f, 52, -1},
    {RN_TQ2_0, 0.02f, 64, -1},    {RN_IQ1_S, 0.002f, 0, -1},   {RN_IQ1_M, 0.002f, -1, -1},
    {RN_IQ2_XXS, 0.0002f, 0, -1}, {RN_IQ2_XS, 0.0002f, 0, -1}, {RN_IQ2_S, 0.0002f, 0, -1},
    {RN_IQ3_XXS, 0.0001f, 0, -1}, {RN_IQ3_S, 0.0001f, 0, -1},
};
enum { N_FORMATS = sizeof formats / sizeof *formats, Q8_0_AT = 4 };

static void set_scales(const struct format *f, uint8_t *block)
{
    uint16_t half = rn_f32_to_f16(f->d);
    int i;

    if (f->type == RN_MXFP4)
        block[0] = 119; /* 2^-9 by half of a level */
    for (i = 0; f->type == RN_NVFP4 && i < 4; i++)
        block[i] = (uint8_t)(1 + block[i] % 7);
    for (i = 0; f->type == RN_IQ1_M && i < 4; i++) /* four bits in the top of four words */
        block[49 + 2 * i] = (uint8_t)((block[49 + 2 * i] & 15) | (half >> 4 * i & 15) << 4);
    if (f->scale_at >= 0)
        memcpy(block + f->scale_at, &half, 2);
    if (f->least_at >= 0)
        memcpy(block + f->least_at, &half, 2);
}

static void random_blocks(const struct format *f, uint8_t *data, size_t bytes, uint64_t *seed)
{
    size_t i;

    for (i = 0; i < bytes; i++)
        data[i] = (uint8_t)rn_splitmix64(seed);
    for (i = 0; i < bytes; i += rn_type(f->type)->bytes)
        set_scales(f, data + i);
}

/* The model with random matrices wherever a row is whole blocks. Those whose names contain others[0] or others[1] have
 * the format of_others, all the rest of_most; others NULL: all of them. */
static void randomise(struct model_edit *edit, const struct format *of_most, const struct format *of_others,
                      const char *const *others, uint8_t *data)
{
    uint64_t seed = 7 * of_most->type + 1;
    const struct format *f;
    size_t at = 0, bytes;
    uint32_t i;

    for (i = 0; i < edit->n_tensors; i++) {
        struct edit_tensor *t = &edit->tensors[i];

        f = others != NULL && (strstr(t->name, others[0]) != NULL || strstr(t->name, others[1]) != NULL) ? of_others
                                                                                                         : of_most;
        if (t->n_dims != 2 || t->dims[0] % rn_type(f->type)->elements != 0)
            continue;
        bytes = rn_type_bytes(rn_type(f->type), (size_t)(t->dims[0] * t->dims[1]));
        assert_true(at + bytes <= DATA_BYTES);
        random_blocks(f, data + at, bytes, &seed);
        t->type = f->type;
        t->data = data + at;
        t->bytes = bytes;
        at += bytes;
    }
}

/* ---- Logits ---- */

/* Of n tokens, `chunk` to a step. */
static void run_tokens(struct runner *r, uint32_t n, uint32_t chunk, float *logits)
{
    uint32_t blocks[N_BLOCKS], at, i, rows;
    struct rn_step_seq seq = {blocks, N_BLOCKS, NULL, 0, NULL, 0, 0};
    struct rn_step_row step_rows[MORE];
    struct rn_step step = {.rows = step_rows, .seqs = &seq, .n_seqs = 1};

    for (i = 0; i < N_BLOCKS; i++)
        blocks[i] = i;
    for (at = 0; at < n; at += rows) {
        rows = n - at < chunk ? n - at : chunk;
        for (i = 0; i < rows; i++)
            step_rows[i] = (struct rn_step_row){(int32_t)((at + i) * 37 % r->plan->n_vocab), at + i, 0, (int32_t)i};
        step.n_rows = step.n_outs = rows;
        step.logits = logits + (size_t)at * r->plan->n_vocab;
        run_step(r, &step);
    }
}

static void logits_of(const struct rn_plan *plan, const struct rn_level *level, runnel_weight_order order,
                      uint32_t threads, uint32_t n, uint32_t chunk, float *logits, uint64_t *tiled_bytes)
{
    const struct rn_backend_limits limits = {.max_rows = n,
                                             .max_seqs = 1,
                                             .max_outs = n,
                                             .n_blocks = N_BLOCKS,
                                             .block_tokens = BLOCK,
                                             .context_tokens = CONTEXT,
                                             .kv_type = RUNNEL_KV_F32,
                                             .weight_order = order};
    struct runner runner;

    begin_runner(&runner, &heap, plan, level, threads, &limits, RN_NODES_ROOT);
    if (order == RUNNEL_WEIGHTS_MEASURED) { /* tried, however small these models are */
        ((struct rn_fast *)runner.backend)->least_sample = 0;
        ((struct rn_fast *)runner.backend)->most_sample = 100 << 10;
    }
    prepare_runner(&runner);
    run_tokens(&runner, n, chunk, logits);
    *tiled_bytes = runner.backend->ops->tiled_bytes(runner.backend);
    close_runner(&runner);
}

static uint64_t hash_of(const float *logits, size_t n)
{
    const uint8_t *bytes = (const uint8_t *)logits;
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */

    for (size_t i = 0; i < n * sizeof *logits; i++)
        hash = (hash ^ bytes[i]) * 0x100000001b3u;
    return hash;
}

/* The model's logits in both orders; tiles: the level has them for one of its formats. Emulated, plain C gives the bits
 * recorded and is left there: the machine itself has its orders and steps. */
static void check_level(const char *name, const struct rn_plan *plan, const struct rn_level *level, bool tiles,
                        uint64_t hash)
{
    static const uint32_t chunks[] = {1, 2, 5, 11, 24};
    size_t n = (size_t)N * plan->n_vocab, i;
    float *want = rn_alloc(&heap, n, sizeof *want), *got = rn_alloc(&heap, n, sizeof *got);
    bool whole = FIRST_LEVEL == 0 || level != rn_level_c();
    const uint32_t step = rn_emulate_amx != NULL && level == rn_level_amx() ? 2 : UNLESS_SANITIZED(1, 2);
    uint32_t threads, chunk;
    uint64_t tiled_bytes;

    logits_of(plan, level, RUNNEL_WEIGHTS_FILE, 1, N, 1, want, &tiled_bytes);
    assert_true(tiled_bytes == 0);
    for (i = 0; i < n; i++)
        assert_true(isfinite(want[i]));
    if (hash_of(want, n) != hash)
        fail_msg("%s, %s: other bits than recorded: %#018llx", name, level->name, (unsigned long long)hash_of(want, n));
    /* Under sanitizers and where a signal is taken for each instruction a third of the pairs: each chunk once, with one
     * thread or three. Two threads come below. */
    for (threads = 1; whole && threads <= 3 && (tiles || threads == 1); threads += step)
        for (i = step == 1 ? 0 : threads / 2; i < (tiles ? sizeof chunks / sizeof *chunks : 1); i += step) {
            chunk = tiles ? chunks[i] : 7;
            logits_of(plan, level, RUNNEL_WEIGHTS_TILES, threads, N, chunk, got, &tiled_bytes);
            assert_int_equal(tiled_bytes > 0, tiles);
            if (memcmp(got, want, n * sizeof *got) != 0)
                fail_msg("%s, %s, %u threads, %u rows to a step: tiles give other bits", name, level->name, threads,
                         chunk);
        }
    if (whole) {
        logits_of(plan, level, RUNNEL_WEIGHTS_MEASURED, 2, N, 1, got, &tiled_bytes);
        assert_memory_equal(got, want, n * sizeof *got);
    }
    rn_free(&heap, want);
    rn_free(&heap, got);
}

static const char *const level_names[] = {"c", "avx2", "avx2-vnni", "avx512", "avx512-amx", "neon"};
enum { N_LEVELS = sizeof level_names / sizeof *level_names };

/* On every level that this machine has. type: of a matrix of the model. amx: the hash with attention on a matrix
 * unit. */
static void check_model(const char *name, const struct rn_plan *plan, uint32_t type, uint64_t hash, uint64_t amx)
{
    const struct rn_level *level;
    size_t l;

    for (l = 0; l < N_LEVELS; l++) {
        level = rn_level_named(level_names[l]);
        if (level != NULL)
            check_level(name, plan, level, level->tiled != NULL && level->tiled(type) != NULL,
                        strcmp(level->name, "avx512-amx") == 0 ? amx : hash);
    }
}

static void test_files(void **state)
{
    static const struct {
        const char *name;
        uint32_t type;
        uint64_t hash;
    } files[] = {{"models/runnel-tiny-Q4_K_M.gguf", RN_Q4_K, 0xe53f63b377dc121e},
                 {"models/runnel-tiny-Q8_0.gguf", RN_Q8_0, 0xc0f29ba99e64f1b8},
                 {"models/runnel-tiny-F16.gguf", RN_F16, 0x4afc0826f733e84e}};

    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct model model = open_model(&heap, files[i].name, CONTEXT);

        check_model(files[i].name, model.plan, files[i].type, files[i].hash, files[i].hash);
        close_model(&model);
    }
}

/* The model of `edit`, written to `bytes`. */
static struct model write_model(struct model_edit *edit, struct writer *bytes)
{
    runnel_error error = {0};
    struct model model;

    edit_write(edit, bytes);
    if (rn_gguf_parse(&heap, bytes->bytes, bytes->n, "random", &model.gguf, &error) != RUNNEL_OK ||
        rn_plan_new(&heap, model.gguf, CONTEXT, &model.plan, &error) != RUNNEL_OK)
        fail_msg("%s", error.message);
    return model;
}

/* The model of `edit` with matrices of the format. */
static void check_edited(struct model_edit *edit, const struct format *f, uint8_t *data, uint64_t hash, uint64_t amx)
{
    struct writer bytes = {0};
    struct model model;

    randomise(edit, f, NULL, NULL, data);
    model = write_model(edit, &bytes);
    check_model(rn_type(f->type)->name, model.plan, f->type, hash, amx);
    close_model(&model);
    w_free(&bytes);
}

static void test_formats(void **state)
{
    static const uint64_t hashes[N_FORMATS] = {
        0x7e0b31e7a8e07fc8, 0x578a88cd557e5af5, 0x5661d12813521218, 0xc90ad49339cef275, 0xdc3308efbe4a3205,
        0x5aab028160549a06, 0x2b5173cde4db7bae, 0xb6740036a621c823, 0x30866f7e042b2d73, 0xf78dcd65b5626e25,
        0x11d860addddeb083, 0xa1929fc5da96f6d1, 0xe9e6949b90523efc, 0x40a2b9b74cb74736, 0x208272675ba46a54,
        0x44de16e53bd0c4b7, 0xc08caa6028e46e91, 0x6c153908dec6af53, 0x591efe211f627035, 0xc40a95a415e41cca,
        0x23bb49f7e76bc536, 0xaf933a65477bd178, 0xb20d63f21218b2e1,
    };
    struct model file = open_model(&heap, "models/runnel-tiny-F16.gguf", CONTEXT);
    uint8_t *data = rn_alloc(&heap, DATA_BYTES, 1);
    struct model_edit edit;
    size_t i;

    (void)state;
    for (i = 0; i < N_FORMATS; i += UNLESS_SANITIZED(1, 11)) {
        edit_from(&edit, file.gguf);
        check_edited(&edit, &formats[i], data, hashes[i], hashes[i]);
    }
    rn_free(&heap, data);
    close_model(&file);
}

/* Eight queries share a head of keys: enough for attention on the matrix unit, which takes floats apart and sums in an
 * order of its own, so that its bits differ (docs/RATIONALE.md, "Attention on the CPU"); all other levels agree. Of
 * Q8_0: inputs of others are rounded so coarsely that both come to be the same numbers. */
static void test_few_heads(void **state)
{
    struct model file = open_model(&heap, "models/runnel-tiny-F16.gguf", CONTEXT);
    uint8_t *data = rn_alloc(&heap, DATA_BYTES, 1);
    struct model_edit edit;
    uint32_t i;

    (void)state;
    edit_from(&edit, file.gguf);
    edit_u32(&edit, "llama.attention.head_count_kv", 1);
    for (i = 0; i < edit.n_tensors; i++)
        if (strstr(edit.tensors[i].name, "attn_k") != NULL || strstr(edit.tensors[i].name, "attn_v") != NULL)
            edit.tensors[i].dims[1] /= 4;
    check_edited(&edit, &formats[Q8_0_AT], data, 0x61e90c42a2f8c007, 0x8f9219a159a6c81e);
    rn_free(&heap, data);
    close_model(&file);
}

/* Products that read the same numbers and want them quantised in two ways: queries and values beside keys, gates beside
 * what they multiply. With as many rows as are laid for the matrix unit, whose place for them is one. */
static void test_two_kinds(void **state)
{
    static const char *const others[2] = {"attn_k", "ffn_up"};
    struct model file = open_model(&heap, "models/runnel-tiny-F16.gguf", CONTEXT), model;
    uint8_t *data = rn_alloc(&heap, DATA_BYTES, 1);
    const struct rn_level *level;
    float *want = NULL, *got = NULL;
    struct writer bytes = {0};
    struct model_edit edit;
    uint64_t tiled_bytes;
    size_t n, l;

    (void)state;
    static_assert((int)MORE >= (int)RN_LAY_FROM, "else nothing is laid");
    edit_from(&edit, file.gguf);
    randomise(&edit, &formats[0], &formats[Q8_0_AT], others, data);
    model = write_model(&edit, &bytes);
    n = (size_t)MORE * model.plan->n_vocab;
    want = rn_alloc(&heap, n, sizeof *want);
    got = rn_alloc(&heap, n, sizeof *got);
    logits_of(model.plan, rn_level_c(), RUNNEL_WEIGHTS_FILE, 1, MORE, 1, want, &tiled_bytes);
    for (l = FIRST_LEVEL; l < N_LEVELS; l++) {
        level = rn_level_named(level_names[l]);
        if (level == NULL)
            continue;
        logits_of(model.plan, level, RUNNEL_WEIGHTS_TILES, 2, MORE, MORE, got, &tiled_bytes);
        if (memcmp(got, want, n * sizeof *got) != 0)
            fail_msg("%s: other bits than plain C's", level->name);
    }
    rn_free(&heap, want);
    rn_free(&heap, got);
    rn_free(&heap, data);
    close_model(&model);
    close_model(&file);
    w_free(&bytes);
}

/* Every allocation refused, and all behind it: an error, or a model that has fewer matrices in tiles; nothing is left
 * behind. */
static void test_refused(void **state)
{
    const struct rn_backend_limits limits = {.max_rows = 4,
                                             .max_seqs = 1,
                                             .max_outs = 4,
                                             .n_blocks = N_BLOCKS,
                                             .block_tokens = BLOCK,
                                             .context_tokens = CONTEXT,
                                             .kv_type = RUNNEL_KV_F16,
                                             .weight_order = RUNNEL_WEIGHTS_TILES};
    struct model model = open_model(&heap, "models/runnel-tiny-Q8_0.gguf", CONTEXT);
    struct rn_team *team = rn_team_new(&heap, 2);
    struct refusing refusing = {0};
    struct rn_heap small = refusing_heap(&refusing);
    uint64_t tiled_bytes = 0, before;
    struct rn_backend *backend;
    runnel_error error;
    uint32_t allowed;
    bool some = false;

    (void)state;
    for (allowed = 0; allowed < 1000; allowed++) {
        refusing.refused = 0;
        refusing_allow(&refusing, allowed);
        backend = rn_cpu_backend_new_level(&small, team, rn_level_best());
        if (backend == NULL)
            continue;
        error = (runnel_error){0};
        before = tiled_bytes;
        if (backend->ops->prepare(backend, model.plan, &limits, NULL, NULL, &error) == RUNNEL_OK) {
            tiled_bytes = backend->ops->tiled_bytes(backend);
            assert_true(tiled_bytes >= before);
            some = some || (tiled_bytes > 0 && refusing.refused > 0);
        } else {
            assert_int_equal(tiled_bytes, 0);
        }
        backend->ops->free(backend);
        assert_int_equal(rn_heap_blocks(&small), 0);
        if (refusing.refused == 0)
            break;
    }
    assert_true(allowed < 1000);
    assert_true(some || rn_level_best()->tiled == NULL);
    rn_team_free(team);
    close_model(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_files), cmocka_unit_test(test_formats),
                                       cmocka_unit_test(test_few_heads), cmocka_unit_test(test_two_kinds),
                                       cmocka_unit_test(test_refused)};
    int failed;

    if (!has_models())
        return 77;
    emulate_amx_for_products();
    rn_heap_init(&heap, NULL);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    return failed != 0 || rn_heap_blocks(&heap) != 0;
}
