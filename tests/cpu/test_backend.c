/* The fast backend as a whole: against logits computed by another program, against the reference
 * backend, and law 5: the same bits however the rows are batched, cut into steps, laid into blocks and
 * spread over threads. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "tests/base/refusing.h"
#include "tests/cpu/amx_emulator.h"
#include "tests/cpu/runner.h"
#include "tests/support/shared.h"
#include "tests/slow.h"
#include "tests/support/nmse.h"

enum { BLOCK = 16, N_BLOCKS = 32, MAX_ROWS = 80, CONTEXT = 256 };

/* What a sanitizer sees is the same on every level: two are enough. */
static const char *const level_names[] = {"c", "avx2", "avx2-vnni", "avx512", "avx512-amx", "neon"};
enum { N_LEVELS = UNLESS_SANITIZED(sizeof level_names / sizeof *level_names, 2) };

static struct rn_heap heap;

/* A runner of this file's limits; level NULL: the reference. */
static void open_with(struct runner *r, const struct rn_plan *plan, const struct rn_level *level, uint32_t threads,
                      runnel_kv_type kv_type)
{
    const struct rn_backend_limits limits = {.max_rows = MAX_ROWS,
                                             .max_seqs = 4,
                                             .max_outs = MAX_ROWS,
                                             .n_blocks = N_BLOCKS,
                                             .block_tokens = BLOCK,
                                             .context_tokens = CONTEXT,
                                             .kv_type = kv_type};

    open_runner(r, &heap, plan, level, threads, &limits);
}

/* How a prompt is run: in chunks, on blocks in some order, beside another sequence (or none). */
struct way {
    uint32_t chunk, block_step, company;
};

/* logits[n][n_vocab] of all positions of the prompt. */
static void run_prompt(struct runner *r, const int32_t *tokens, uint32_t n, const struct way *way, float *logits)
{
    uint32_t blocks[2][N_BLOCKS / 2], at, i, rows, company_at = 0;
    struct rn_step_seq seqs[2] = {{blocks[0], N_BLOCKS / 2, NULL, 0, NULL, 0, 0},
                                  {blocks[1], N_BLOCKS / 2, NULL, 0, NULL, 0, 0}};
    struct rn_step_row step_rows[MAX_ROWS];
    struct rn_step step = {.rows = step_rows, .seqs = seqs};

    for (i = 0; i < N_BLOCKS; i++) /* an odd step visits every block once */
        blocks[i % 2][i / 2] = (i * way->block_step + 5) % N_BLOCKS;
    for (at = 0; at < n; at += rows) {
        rows = n - at < way->chunk ? n - at : way->chunk;
        step.n_rows = step.n_outs = step.n_seqs = 0;
        for (i = 0; i < way->company; i++) /* sequence 1, without logits */
            step_rows[step.n_rows++] =
                (struct rn_step_row){(int32_t)((company_at + i) % r->plan->n_vocab), company_at + i, 1, -1};
        company_at = (company_at + way->company) % (CONTEXT / 2);
        if (company_at + way->company > CONTEXT / 2)
            company_at = 0;
        for (i = 0; i < rows; i++)
            step_rows[step.n_rows++] = (struct rn_step_row){tokens[at + i], at + i, 0, (int32_t)step.n_outs++};
        step.n_seqs = 2;
        step.logits = logits + (size_t)at * r->plan->n_vocab;
        run_step(r, &step);
    }
}

/* ---- Against the other program ---- */

static float *read_oracle(const char *name, uint32_t *n, int32_t **tokens)
{
    uint32_t head[2];
    char path[1024];
    float *logits;
    FILE *file;

    assert_true(shared_find(name, path, sizeof path));
    file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fread(head, 4, 2, file), 2);
    *n = head[0];
    *tokens = rn_alloc(&heap, head[0], 4);
    logits = rn_alloc(&heap, (size_t)head[0] * head[1], 4);
    assert_int_equal(fread(*tokens, 4, head[0], file), head[0]);
    assert_int_equal(fread(logits, 4, (size_t)head[0] * head[1], file), (size_t)head[0] * head[1]);
    fclose(file);
    return logits;
}

static void check_oracle(const char *model_name, const char *oracle, double limit)
{
    struct model model = open_model(&heap, model_name, CONTEXT);
    const struct way way = {.chunk = 7, .block_step = 3};
    const struct rn_level *level;
    float *want, *got;
    struct runner runner;
    int32_t *tokens;
    uint32_t n;
    double error;
    size_t l;

    want = read_oracle(oracle, &n, &tokens);
    assert_true(n <= CONTEXT / 2);
    got = rn_alloc(&heap, (size_t)n * model.plan->n_vocab, 4);
    for (l = 0; l < N_LEVELS; l++) {
        level = rn_level_named(level_names[l]);
        if (level == NULL)
            continue;
        open_with(&runner, model.plan, level, 2, RUNNEL_KV_F32);
        run_prompt(&runner, tokens, n, &way, got);
        error = nmse(got, want, (size_t)n * model.plan->n_vocab);
        print_message("%s %s: NMSE %.2g\n", model_name, level->name, error);
        assert_true(error <= limit);
        close_runner(&runner);
    }
    rn_free(&heap, want);
    rn_free(&heap, got);
    rn_free(&heap, tokens);
    close_model(&model);
}

static void test_oracles(void **state)
{
    (void)state;
    check_oracle("oracles/arch/llama-dense.gguf", "oracles/arch/llama-dense.logits", 1e-6);
    check_oracle("oracles/arch/llama-moe.gguf", "oracles/arch/llama-moe.logits", 1e-6);
    check_oracle("models/stories260K.gguf", "oracles/stories260K.logits", 1e-6);
    check_oracle("models/runnel-tiny-F16.gguf", "oracles/runnel-tiny-F16.logits", 1e-6);
}

/* ---- Against the reference ---- */

enum { PROMPT = 70 };

static void make_prompt(const struct rn_plan *plan, int32_t *tokens)
{
    uint64_t seed = 7;
    uint32_t i;

    for (i = 0; i < PROMPT; i++)
        tokens[i] = (int32_t)(rn_splitmix64(&seed) % plan->n_vocab);
}

/* Integer inputs cost what they cost (8 bits per value); floats nearly nothing. */
static void check_reference(const char *name, runnel_kv_type kv_type, double limit)
{
    struct model model = open_model(&heap, name, CONTEXT);
    const struct way way = {.chunk = 64, .block_step = 1};
    size_t n = (size_t)PROMPT * model.plan->n_vocab, l;
    float *want = rn_alloc(&heap, n, 4), *got = rn_alloc(&heap, n, 4);
    const struct rn_level *level;
    int32_t tokens[PROMPT];
    struct runner runner;
    double error;

    make_prompt(model.plan, tokens);
    open_with(&runner, model.plan, NULL, 1, kv_type);
    run_prompt(&runner, tokens, PROMPT, &way, want);
    close_runner(&runner);
    for (l = 0; l < N_LEVELS; l++) {
        level = rn_level_named(level_names[l]);
        if (level == NULL)
            continue;
        open_with(&runner, model.plan, level, 2, kv_type);
        run_prompt(&runner, tokens, PROMPT, &way, got);
        error = nmse(got, want, n);
        print_message("%s %s, KV type %d: NMSE to the reference %.2g\n", name, level->name, (int)kv_type, error);
        assert_true(error <= limit);
        close_runner(&runner);
    }
    rn_free(&heap, want);
    rn_free(&heap, got);
    close_model(&model);
}

static void test_reference(void **state)
{
    (void)state;
    check_reference("models/runnel-tiny-F16.gguf", RUNNEL_KV_F16, 1e-6);
    check_reference("models/runnel-tiny-Q8_0.gguf", RUNNEL_KV_F16, 2e-3);
    check_reference("models/runnel-tiny-Q4_K_M.gguf", RUNNEL_KV_F16, 5e-3);
}

/* The short formats. Both backends store floats that differ in their last bits, and now and then one of them lies
 * on the other side of a rounding: that is one step of the format in one number. */
static void test_reference_kv(void **state)
{
    (void)state;
    check_reference("models/runnel-tiny-F16.gguf", RUNNEL_KV_FP8, 1e-5);
    check_reference("models/runnel-tiny-F16.gguf", RUNNEL_KV_Q8, 1e-6);
    if (UNLESS_SANITIZED(true, false)) {
        check_reference("models/runnel-tiny-F16.gguf", RUNNEL_KV_Q4, 1e-4);
        check_reference("models/runnel-tiny-F16.gguf", RUNNEL_KV_Q3, 1e-4);
    }
}

/* ---- Law 5 ---- */

/* All chunk sizes, each with every number of threads in `each`, else with one of them. */
static void check_bits(const char *name, const struct rn_level *level, runnel_kv_type kv_type, bool each)
{
    static const uint32_t chunks[] = {1, 2, 3, 7, 8, 31, 32, 64};
    struct model model = open_model(&heap, name, CONTEXT);
    size_t n = (size_t)PROMPT * model.plan->n_vocab;
    float *want = rn_alloc(&heap, n, 4), *got = rn_alloc(&heap, n, 4);
    struct way way = {.chunk = 1, .block_step = 1};
    int32_t tokens[PROMPT];
    struct runner runner;
    uint32_t threads, i;

    make_prompt(model.plan, tokens);
    open_with(&runner, model.plan, level, 1, kv_type);
    run_prompt(&runner, tokens, PROMPT, &way, want);
    close_runner(&runner);
    for (threads = 1; threads <= 4; threads++) {
        open_with(&runner, model.plan, level, threads, kv_type);
        for (i = each ? 0 : threads - 1; i < 8; i += each ? 1 : UNLESS_SANITIZED(4, 8)) {
            way = (struct way){chunks[i], 2 * i + 1, i < 3 ? (i + threads) % 4 : (i * 5 + threads) % 16};
            memset(got, 0xff, n * sizeof *got);
            run_prompt(&runner, tokens, PROMPT, &way, got);
            if (memcmp(got, want, n * sizeof *got) != 0)
                fail_msg("%s %s: %u threads, chunks of %u, %u rows beside: other bits", name, level->name, threads,
                         way.chunk, way.company);
        }
        close_runner(&runner);
    }
    rn_free(&heap, want);
    rn_free(&heap, got);
    close_model(&model);
}

static void test_bits(void **state)
{
    static const runnel_kv_type kv[] = {RUNNEL_KV_F32, RUNNEL_KV_F16, RUNNEL_KV_BF16};
    const struct rn_level *level;
    runnel_kv_type type;
    size_t l;

    (void)state;
    for (l = 0; l < N_LEVELS; l++) {
        level = rn_level_named(level_names[l]);
        if (level == NULL)
            continue;
        check_bits("oracles/arch/llama-moe.gguf", level, kv[l % 3], UNLESS_SANITIZED(true, false));
        check_bits("oracles/arch/llama-moe.gguf", level, RUNNEL_KV_Q4, false); /* short groups */
        if (strcmp(level->name, "c") == 0) /* slow: the real models run on the others */
            continue;
        for (type = strcmp(level->name, "avx2") == 0 ? RUNNEL_KV_FP8 : RUNNEL_KV_Q8; type <= RUNNEL_KV_Q3; type += 2)
            check_bits("models/runnel-tiny-F16.gguf", level, type, false);
        check_bits("models/runnel-tiny-Q4_K_M.gguf", level, kv[(l + 2) % 3], false);
        if (strcmp(level->name, "avx2") == 0) /* AVX-512 has the same products of floats */
            check_bits("models/runnel-tiny-F16.gguf", level, kv[l % 3], false);
        else
            check_bits("models/runnel-tiny-Q8_0.gguf", level, kv[(l + 1) % 3], false);
    }
}

/* ---- Life ---- */

/* The pool takes as many bytes as rn_plan_kv_bytes says, on both backends: what more blocks cost, all else equal. */
static void test_pool(void **state)
{
    static const char *const names[] = {"models/runnel-tiny-F16.gguf", "models/stories260K.gguf"};
    struct rn_team *team = rn_team_new(&heap, 1);
    struct rn_backend_limits limits = {.max_rows = 8,
                                       .max_seqs = 2,
                                       .max_outs = 8,
                                       .block_tokens = BLOCK,
                                       .context_tokens = CONTEXT,
                                       .kv_type = RUNNEL_KV_F16};
    struct rn_backend *backend;
    size_t m, before, bytes[2];
    struct model model;
    int way, size;
    runnel_error error = {0};

    (void)state;
    for (m = 0; m < 2; m++) {
        model = open_model(&heap, names[m], CONTEXT);
        for (way = 0; way < 2 * (RUNNEL_KV_Q3 + 1); way++) {
            limits.kv_type = (runnel_kv_type)(way / 2);
            for (size = 0; size < 2; size++) {
                limits.n_blocks = size == 0 ? 3 : 13;
                before = rn_heap_bytes(&heap);
                backend = way % 2 == 0 ? rn_cpu_backend_new(&heap, team) : rn_cpu_reference_new(&heap, team);
                assert_int_equal(backend->ops->prepare(backend, model.plan, &limits, NULL, NULL, &error), RUNNEL_OK);
                bytes[size] = rn_heap_bytes(&heap) - before;
                backend->ops->free(backend);
            }
            assert_int_equal(bytes[1] - bytes[0], 10 * BLOCK * rn_plan_kv_bytes(model.plan, limits.kv_type));
        }
        close_model(&model);
    }
    rn_team_free(team);
}

/* Many steps in flight run in order; on_done of one may submit the next. */
static void test_queue(void **state)
{
    enum { STEPS = 40 };
    struct model model = open_model(&heap, "oracles/arch/llama-dense.gguf", CONTEXT);
    uint32_t blocks[1] = {3}, i;
    struct rn_step_seq seq = {.blocks = blocks, .n_blocks = 1};
    struct rn_step_row rows[STEPS];
    struct rn_step steps[STEPS];
    float *logits = rn_alloc(&heap, (size_t)model.plan->n_vocab * STEPS, 4);
    struct runner runner;

    (void)state;
    open_with(&runner, model.plan, rn_level_best(), 2, RUNNEL_KV_F16);
    for (i = 0; i < STEPS; i++) {
        rows[i] = (struct rn_step_row){(int32_t)(i % BLOCK) % (int32_t)model.plan->n_vocab, i % BLOCK, 0,
                                       i % 3 == 0 ? -1 : 0};
        steps[i] = (struct rn_step){.n_rows = 1,
                                    .n_seqs = 1,
                                    .n_outs = i % 3 != 0,
                                    .rows = &rows[i],
                                    .seqs = &seq,
                                    .logits = i % 3 == 0 ? NULL : logits + (size_t)i * model.plan->n_vocab,
                                    .status = RUNNEL_STATUS_MAX_,
                                    .on_done = on_step_done,
                                    .user = &runner};
        runner.backend->ops->submit_async(runner.backend, &steps[i]);
    }
    for (i = 0; i < STEPS; i++)
        sem_wait(&runner.done);
    for (i = 0; i < STEPS; i++)
        assert_int_equal(steps[i].status, RUNNEL_OK);
    for (i = BLOCK; i < STEPS; i++) /* a round later: the same token over the same cache */
        if (i % 3 != 0 && (i - BLOCK) % 3 != 0)
            assert_memory_equal(logits + (size_t)i * model.plan->n_vocab,
                                logits + (size_t)(i - BLOCK) * model.plan->n_vocab, 4 * model.plan->n_vocab);
    assert_true(isfinite(logits[model.plan->n_vocab]) &&
                logits[model.plan->n_vocab] != logits[2 * model.plan->n_vocab]);
    close_runner(&runner);
    rn_free(&heap, logits);
    close_model(&model);
}

/* ---- Blocks as a whole ---- */

/* The logits behind the last of n tokens, whose blocks are in `blocks`; positions from `at` on are computed. */
static void run_tail(struct runner *r, const int32_t *tokens, uint32_t at, uint32_t n, uint32_t *blocks,
                     struct rn_step_copy *copies, uint32_t n_copies, float *logits)
{
    struct rn_step_row rows[MAX_ROWS];
    struct rn_step_seq seq = {.blocks = blocks, .n_blocks = N_BLOCKS / 4};
    struct rn_step step = {
        .rows = rows, .seqs = &seq, .n_seqs = 1, .n_outs = 1, .logits = logits, .copies = copies, .n_copies = n_copies};

    for (; at < n; at++)
        rows[step.n_rows++] = (struct rn_step_row){tokens[at], at, 0, at + 1 == n ? 0 : -1};
    run_step(r, &step);
}

/* A sequence forked in the middle of a block goes on with a copy: the same bits as with a block of its own from the
 * beginning, and the other one sees nothing of it. Then the same through the host's memory, in another backend. */
static void on_copied(struct rn_host_copies *copies)
{
    sem_post(&((struct runner *)copies->user)->done);
}

static void copy_list(struct runner *r, struct rn_host_copy *items, uint32_t n)
{
    struct rn_host_copies copies = {
        .n = n, .items = items, .status = RUNNEL_STATUS_MAX_, .on_done = on_copied, .user = r};

    r->backend->ops->copy_async(r->backend, &copies);
    sem_wait(&r->done);
    assert_int_equal(copies.status, RUNNEL_OK);
}

static void check_blocks(const char *name, const struct rn_level *level, uint32_t threads, runnel_kv_type kv_type)
{
    enum { CUT = BLOCK + 5, N = BLOCK + 11 };
    struct model model = open_model(&heap, name, CONTEXT);
    uint32_t own[N_BLOCKS / 4] = {3, 9, 4}, fork[N_BLOCKS / 4] = {3, 17, 5}, alone[N_BLOCKS / 4] = {20, 21, 22};
    struct rn_step_copy copy = {9, 17};
    uint32_t n_vocab = model.plan->n_vocab, i;
    int32_t tokens[N], other[N];
    float *logits = rn_alloc(&heap, (size_t)n_vocab * 5, 4);
    struct rn_host_copy items[6];
    struct runner runner, second;
    unsigned char *bytes, *again;
    size_t n_bytes, k;

    for (i = 0; i < N; i++) {
        tokens[i] = (int32_t)(i * 11 % n_vocab);
        other[i] = i < CUT ? tokens[i] : (int32_t)((i * 13 + 1) % n_vocab);
    }
    open_with(&runner, model.plan, level, threads, kv_type);
    run_tail(&runner, tokens, 0, CUT, own, NULL, 0, logits);
    run_tail(&runner, other, CUT, N, fork, &copy, 1, logits);
    run_tail(&runner, tokens, CUT, N, own, NULL, 0, logits + n_vocab);
    run_tail(&runner, other, 0, N, alone, NULL, 0, logits + 2 * n_vocab);
    run_tail(&runner, tokens, 0, N, alone, NULL, 0, logits + 3 * n_vocab);
    assert_memory_equal(logits, logits + 2 * n_vocab, n_vocab * 4);
    assert_memory_equal(logits + n_vocab, logits + 3 * n_vocab, n_vocab * 4);
    assert_memory_not_equal(logits, logits + n_vocab, n_vocab * 4);

    open_with(&second, model.plan, level, 1, kv_type);
    n_bytes = runner.backend->ops->block_bytes(runner.backend);
    assert_int_equal(n_bytes, rn_plan_kv_bytes(model.plan, kv_type) * BLOCK);
    assert_string_equal(runner.backend->ops->layout(runner.backend), second.backend->ops->layout(second.backend));
    bytes = runner.backend->ops->host_alloc(runner.backend, 2 * n_bytes);
    again = second.backend->ops->host_alloc(second.backend, 2 * n_bytes);
    assert_true(bytes != NULL && again != NULL);
    for (i = 0; i < 2; i++) {
        items[i] = (struct rn_host_copy){own[i], i == 0 ? BLOCK : CUT - BLOCK, true, bytes + i * n_bytes, false};
        items[2 + i] = (struct rn_host_copy){alone[i], 0, false, bytes + i * n_bytes, false};
        items[4 + i] = (struct rn_host_copy){alone[i], BLOCK, true, again + i * n_bytes, false};
    }
    copy_list(&runner, items, 2);
    copy_list(&second, items + 2, 2);
    copy_list(&second, items + 4, 2);
    assert_memory_equal(bytes, again, 2 * n_bytes); /* what is not wanted was zeros, and came back as such */
    run_tail(&second, tokens, CUT, N, alone, NULL, 0, logits + 4 * n_vocab);
    assert_memory_equal(logits + n_vocab, logits + 4 * n_vocab, n_vocab * 4);
    items[0] = (struct rn_host_copy){own[1], 0, true, bytes, false};
    copy_list(&runner, items, 1);
    for (k = 0; k < n_bytes; k++)
        assert_int_equal(bytes[k], 0);
    runner.backend->ops->host_free(runner.backend, bytes);
    second.backend->ops->host_free(second.backend, again);
    close_runner(&second);
    close_runner(&runner);
    rn_free(&heap, logits);
    close_model(&model);
}

static void test_blocks(void **state)
{
    runnel_kv_type type;

    (void)state;
    for (type = RUNNEL_KV_F16; rn_kv_known(type); type++) {
        check_blocks("oracles/arch/llama-dense.gguf", NULL, 1, type);
        check_blocks("oracles/arch/llama-dense.gguf", rn_level_best(), 2, type);
        check_blocks("oracles/arch/llama-moe.gguf", rn_level_best(), 3, type);
    }
}

static bool cancel_at_half(void *user, float fraction)
{
    (void)user;
    assert_true(fraction >= 0 && fraction <= 1);
    return fraction < 0.5f;
}

/* Every allocation refused once, cancelling, bad limits: an error, and nothing left behind. */
static void test_prepare(void **state)
{
    uint32_t allowed;
    struct refusing refusing = {0};
    struct model model = open_model(&heap, "oracles/arch/llama-moe.gguf", CONTEXT);
    struct rn_backend_limits limits = {.max_rows = 8,
                                       .max_seqs = 2,
                                       .max_outs = 8,
                                       .n_blocks = 4,
                                       .block_tokens = BLOCK,
                                       .context_tokens = 64,
                                       .kv_type = RUNNEL_KV_F16};
    struct rn_team *team = rn_team_new(&heap, 2);
    struct rn_backend *backend;
    runnel_status status = RUNNEL_NO_MEMORY;
    struct rn_heap small = refusing_heap(&refusing);
    runnel_error error;

    (void)state;
    for (allowed = 0; status != RUNNEL_OK; allowed++) {
        assert_true(allowed < 1000);
        refusing_allow(&refusing, allowed);
        backend = rn_cpu_backend_new(&small, team);
        if (backend == NULL)
            continue;
        error = (runnel_error){0};
        status = backend->ops->prepare(backend, model.plan, &limits, NULL, NULL, &error);
        if (status != RUNNEL_OK)
            assert_int_equal(status, RUNNEL_NO_MEMORY);
        backend->ops->free(backend);
        assert_int_equal(rn_heap_blocks(&small), 0);
    }
    assert_true(allowed > 10);
    backend = rn_cpu_backend_new(&heap, team);
    error = (runnel_error){0};
    assert_int_equal(backend->ops->prepare(backend, model.plan, &limits, cancel_at_half, NULL, &error),
                     RUNNEL_CANCELLED);
    backend->ops->free(backend);
    limits.kv_type = (runnel_kv_type)(RUNNEL_KV_Q3 + 1);
    backend = rn_cpu_backend_new(&heap, team);
    error = (runnel_error){0};
    assert_int_equal(backend->ops->prepare(backend, model.plan, &limits, NULL, NULL, &error), RUNNEL_INVALID);
    backend->ops->free(backend);
    limits.kv_type = RUNNEL_KV_F16;
    limits.block_tokens = 12;
    backend = rn_cpu_backend_new(&heap, team);
    error = (runnel_error){0};
    assert_int_equal(backend->ops->prepare(backend, model.plan, &limits, NULL, NULL, &error), RUNNEL_INVALID);
    backend->ops->free(backend);
    rn_team_free(team);
    close_model(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_oracles), cmocka_unit_test(test_reference),    cmocka_unit_test(test_bits),
        cmocka_unit_test(test_queue),   cmocka_unit_test(test_blocks),       cmocka_unit_test(test_prepare),
        cmocka_unit_test(test_pool),    cmocka_unit_test(test_reference_kv),
    };
    int failed;

    if (!has_models())
        return 77;
    emulate_amx_for_products();
    rn_heap_init(&heap, NULL);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    return failed != 0 || rn_heap_blocks(&heap) != 0;
}
