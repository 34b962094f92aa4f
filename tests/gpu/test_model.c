/* A whole model on the CUDA device, emulated: its logits against the reference backend's, and law 5: the same bits
 * however the rows are cut into steps, batched and laid into blocks, on a copied prefix, and as a graph. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "model/expert_use.h"
#include "tests/cpu/runner.h"
#include "tests/gpu/open_emulated.h"
#include "tests/model/shared.h"

#define BUNDLED_MODEL "examples/models/runnel-tiny-Q8_0.gguf"

enum { BLOCK = 16, N_BLOCKS = 16, MAX_ROWS = 40, CONTEXT = 128, N = 20, MEMORY = 64 << 20 };

static struct rn_heap heap;
static struct model model;
static struct rn_expert_use *use; /* where backends count; NULL: they do not */

static struct rn_backend_limits limits_of(runnel_kv_type kv_type)
{
    return (struct rn_backend_limits){.max_rows = MAX_ROWS,
                                      .max_seqs = 2,
                                      .max_outs = MAX_ROWS,
                                      .n_blocks = N_BLOCKS,
                                      .block_tokens = BLOCK,
                                      .context_tokens = CONTEXT,
                                      .kv_type = kv_type,
                                      .expert_use = use};
}

/* A runner whose backend is on a device of its own. */
static struct rn_device *open_cuda(struct runner *r, runnel_kv_type kv_type)
{
    struct rn_device *device = open_emulated(&heap, MEMORY);
    runnel_error error = {0};

    r->plan = model.plan;
    r->limits = limits_of(kv_type);
    sem_init(&r->done, 0, 0);
    r->backend = device->kind->new_backend(device, &heap);
    if (r->backend->ops->prepare(r->backend, r->plan, &r->limits, NULL, NULL, &error) != RUNNEL_OK)
        fail_msg("%s", error.message);
    return device;
}

static void close_cuda(struct runner *r, struct rn_device *device)
{
    r->backend->ops->free(r->backend);
    device->kind->close(device);
    sem_destroy(&r->done);
}

static int32_t token_at(uint32_t i)
{
    return (int32_t)((i * 37 + 11) % model.plan->n_vocab);
}

/* How a prompt is run: in chunks, its blocks in some order, beside so many rows of another sequence. */
struct way {
    uint32_t chunk, block_step, company;
};

/* logits [N, n_vocab] of all positions of the prompt. */
static void run_prompt(struct runner *r, const struct way *way, float *logits)
{
    uint32_t blocks[2][N_BLOCKS / 2], rows, company_at = 0;
    struct rn_step_seq seqs[2] = {{.blocks = blocks[0], .n_blocks = N_BLOCKS / 2},
                                  {.blocks = blocks[1], .n_blocks = N_BLOCKS / 2}};
    struct rn_step_row step_rows[MAX_ROWS];
    struct rn_step step = {.rows = step_rows, .seqs = seqs, .n_seqs = 2};

    for (uint32_t i = 0; i < N_BLOCKS; i++)
        blocks[i % 2][i / 2] = (i * way->block_step + 5) % N_BLOCKS;
    for (uint32_t at = 0; at < N; at += rows, company_at += way->company) {
        rows = N - at < way->chunk ? N - at : way->chunk;
        step.n_rows = step.n_outs = 0;
        for (uint32_t i = 0; i < way->company && company_at + way->company <= CONTEXT; i++)
            step_rows[step.n_rows++] = (struct rn_step_row){token_at(3 * i), company_at + i, 1, -1};
        for (uint32_t i = 0; i < rows; i++)
            step_rows[step.n_rows++] = (struct rn_step_row){token_at(at + i), at + i, 0, (int32_t)step.n_outs++};
        step.logits = logits + (size_t)at * r->plan->n_vocab;
        run_step(r, &step);
    }
}

static float *new_logits(void)
{
    float *logits = rn_calloc(&heap, (size_t)N * model.plan->n_vocab, sizeof(float));

    assert_non_null(logits);
    return logits;
}

/* The same prompt in several ways on the device, to the bit, and on the reference. */
static void check_kv_type(runnel_kv_type kv_type, double limit)
{
    static const struct way ways[] = {{N, 3, 0}, {1, 7, 0}, {7, 5, 3}, {13, 11, 5}};
    const struct rn_backend_limits limits = limits_of(kv_type);
    float *want = new_logits(), *got = new_logits(), *first = new_logits();
    size_t n = (size_t)N * model.plan->n_vocab;
    struct runner reference, cuda;
    struct rn_device *device;
    double error;

    open_runner(&reference, &heap, model.plan, NULL, 1, &limits);
    run_prompt(&reference, &ways[0], want);
    close_runner(&reference);
    device = open_cuda(&cuda, kv_type);
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        run_prompt(&cuda, &ways[i], i == 0 ? first : got);
        if (i > 0)
            assert_memory_equal(got, first, n * sizeof(float));
    }
    close_cuda(&cuda, device);
    error = nmse(first, want, n);
    print_message("KV type %d: NMSE %.2g\n", (int)kv_type, error);
    assert_true(error <= limit);
    rn_free(&heap, want);
    rn_free(&heap, got);
    rn_free(&heap, first);
}

static void test_f32(void **state)
{
    (void)state;
    check_kv_type(RUNNEL_KV_F32, 1e-6);
}

static void test_f16(void **state)
{
    (void)state;
    check_kv_type(RUNNEL_KV_F16, 1e-5);
}

static void test_q8(void **state)
{
    (void)state;
    check_kv_type(RUNNEL_KV_Q8, 1e-3);
}

static void open_file(const char *path)
{
    runnel_error error = {0};

    if (rn_gguf_open(&heap, path, &model.gguf, &error) != RUNNEL_OK ||
        rn_plan_new(&heap, model.gguf, CONTEXT, &model.plan, &error) != RUNNEL_OK)
        fail_msg("%s", error.message);
}

/* What a prompt has chosen is counted as the reference counts it, launched, captured and as a graph. */
static void check_use(void)
{
    static const struct way way = {5, 3, 0};
    size_t n = (size_t)model.plan->n_layers * 64, bytes = sizeof *use + n * sizeof use->counts[0];
    struct rn_expert_use *want = rn_calloc(&heap, 1, bytes), *got = rn_calloc(&heap, 1, bytes);
    float *logits = new_logits();
    struct rn_backend_limits limits;
    struct runner reference, cuda;
    struct rn_device *device;
    uint64_t sum = 0;

    *want = *got = (struct rn_expert_use){model.plan->n_layers, 64};
    use = want;
    limits = limits_of(RUNNEL_KV_F16);
    open_runner(&reference, &heap, model.plan, NULL, 1, &limits);
    run_prompt(&reference, &way, logits);
    close_runner(&reference);
    use = got;
    device = open_cuda(&cuda, RUNNEL_KV_F16);
    run_prompt(&cuda, &way, logits);
    close_cuda(&cuda, device);
    use = NULL;
    assert_memory_equal(got, want, bytes);
    for (size_t i = 0; i < n; i++)
        sum += want->counts[i];
    assert_true(sum > 0);
    rn_free(&heap, want);
    rn_free(&heap, got);
    rn_free(&heap, logits);
}

/* A model with experts, where ../shared has it. */
static void test_experts(void **state)
{
    struct model dense = model;
    char path[1024];

    (void)state;
    if (!shared_path("oracles/arch/llama-moe.gguf", path, sizeof path)) {
        print_message("skipped: %s is not there\n", path);
        return;
    }
    open_file(path);
    check_kv_type(RUNNEL_KV_F16, 1e-5);
    check_use();
    close_model(&model);
    model = dense;
}

/* The last position's logits of a prompt whose first blocks are a copy of another's, made by the step. */
static void test_copied_prefix(void **state)
{
    uint32_t blocks[3] = {1, 2, 3}, other[3] = {1, 7, 3};
    struct rn_step_seq seq = {.blocks = blocks, .n_blocks = 3};
    struct rn_step_row rows[24];
    struct rn_step_copy copy = {2, 7};
    struct rn_step step = {.rows = rows, .seqs = &seq, .n_seqs = 1, .n_rows = 24};
    float *want = new_logits(), *got = new_logits();
    struct rn_device *device;
    struct runner cuda;

    (void)state;
    device = open_cuda(&cuda, RUNNEL_KV_F16);
    for (uint32_t i = 0; i < 24; i++)
        rows[i] = (struct rn_step_row){token_at(i), i, 0, -1};
    run_step(&cuda, &step); /* blocks 1 and 2, the latter to its half */
    rows[0] = (struct rn_step_row){token_at(24), 24, 0, 0};
    step.n_rows = step.n_outs = 1;
    step.logits = want;
    run_step(&cuda, &step);
    seq.blocks = other;
    step.copies = &copy;
    step.n_copies = 1;
    step.logits = got;
    run_step(&cuda, &step); /* block 7 takes over what stood in block 2 before the row */
    assert_memory_equal(got, want, model.plan->n_vocab * sizeof(float));
    close_cuda(&cuda, device);
    rn_free(&heap, want);
    rn_free(&heap, got);
}

static int setup(void **state)
{
    (void)state;
    rn_heap_init(&heap, NULL);
    open_file(BUNDLED_MODEL);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    close_model(&model);
    assert_int_equal(rn_heap_blocks(&heap), 0);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_f32),           cmocka_unit_test(test_f16),     cmocka_unit_test(test_q8),
        cmocka_unit_test(test_copied_prefix), cmocka_unit_test(test_experts),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
