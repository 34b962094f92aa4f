/* A whole model on the CUDA device, emulated: its logits against the reference backend's, and law 5: the same bits
 * however the rows are cut into steps, batched and laid into blocks, on a copied prefix, and as a graph. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <string.h>

#include <cmocka.h>

#include "model/expert_use.h"
#include "model/quant/quant.h"
#include "tests/gpu/rigs/force_streams.h"
#include "tests/gpu/rigs/device_runner.h"
#include "tests/gpu/rigs/open_emulated.h"
#include "tests/support/nmse.h"
#include "tests/support/shared.h"

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
    const struct rn_backend_limits limits = limits_of(kv_type);

    open_on_device(r, &heap, device, model.plan->architecture, model.plan, &limits);
    return device;
}

static void close_cuda(struct runner *r, struct rn_device *device)
{
    close_on_device(r);
    device->kind->close(device);
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

/* The same prompt on the reference and on the device, there in the first ways of several, to the bit: in one step with
 * many rows, and in steps with few beside others; then in longer ones, and row by row. */
enum { SHORT_WAYS = 2, WAYS = 4 };
static void check_kv_type(runnel_kv_type kv_type, size_t n_ways, double limit)
{
    static const struct way ways[WAYS] = {{N, 3, 0}, {5, 5, 3}, {13, 11, 5}, {1, 7, 0}};
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
    for (size_t i = 0; i < n_ways; i++) {
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
    check_kv_type(RUNNEL_KV_F32, SHORT_WAYS, 1e-6);
}

static void test_f16(void **state)
{
    (void)state;
    check_kv_type(RUNNEL_KV_F16, WAYS, 1e-5);
}

static void test_q8(void **state)
{
    (void)state;
    check_kv_type(RUNNEL_KV_Q8, SHORT_WAYS, 1e-3);
}

/* Products of few rows as streams of weights: the same bits. */
static void test_streams(void **state)
{
    static const struct way way = {5, 3, 3};
    float *logits[2];

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct rn_device *device;
        struct runner cuda;

        logits[i] = new_logits();
        device = open_cuda(&cuda, RUNNEL_KV_F16);
        if (i == 1)
            force_streams(cuda.backend);
        run_prompt(&cuda, &way, logits[i]);
        close_cuda(&cuda, device);
    }
    assert_memory_equal(logits[1], logits[0], (size_t)N * model.plan->n_vocab * sizeof(float));
    rn_free(&heap, logits[0]);
    rn_free(&heap, logits[1]);
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

    *want = *got = (struct rn_expert_use){.n_blocks = model.plan->n_layers, .n_experts = 64};
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
    if (!shared_find("oracles/arch/llama-moe.gguf", path, sizeof path))
        skip();
    open_file(path);
    check_kv_type(RUNNEL_KV_F16, WAYS, 1e-5);
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

/* ---- Other types of weights ---- */

enum { MAX_TENSORS = 64 };

/* Instead of the file's matrices, all of Q8_0: the same numbers or near ones in another type of blocks of 32. */
struct retyped {
    struct rn_weight *before;
    struct rn_tensor tensors[MAX_TENSORS]; /* of the plan's weights; data NULL: as it was */
};

/* The nearest of MXFP4; a block's scale is such that its largest number has a level of 8 to 16. */
static void to_mxfp4(const float *a, unsigned char *block)
{
    float most = 0;
    int exponent;

    for (int i = 0; i < 32; i++)
        most = fabsf(a[i]) > most ? fabsf(a[i]) : most;
    frexpf(most, &exponent);
    memset(block, 0, 17);
    block[0] = (unsigned char)(exponent - 4 + 128);
    for (int i = 0; i < 32; i++) {
        static const float levels[8] = {0, 1, 2, 3, 4, 6, 8, 12};
        float size = ldexpf(fabsf(a[i]), 4 - exponent);
        int code = 0;

        while (code < 7 && size > (levels[code] + levels[code + 1]) / 2)
            code++;
        block[1 + i % 16] |= (unsigned char)((code | (a[i] < 0 ? 8 : 0)) << (i / 16 * 4));
    }
}

/* As Q8_0, and a sum that nobody reads. */
static void to_q8_1(const unsigned char *q8_0, unsigned char *block)
{
    memcpy(block, q8_0, 2);
    memset(block + 2, 0x55, 2);
    memcpy(block + 4, q8_0 + 2, 32);
}

static unsigned char *retype(const struct rn_weight *weight, uint32_t type_id)
{
    size_t n = (size_t)weight->rows * weight->experts * weight->cols / 32, bytes = rn_type(type_id)->bytes;
    unsigned char *blocks = rn_calloc(&heap, n, bytes);
    const unsigned char *from = weight->tensor->data;
    float a[32];

    assert_non_null(blocks);
    for (size_t i = 0; i < n; i++) {
        weight->type->decode(from + i * 34, a, 32);
        if (type_id == RN_MXFP4)
            to_mxfp4(a, blocks + i * bytes);
        else
            to_q8_1(from + i * 34, blocks + i * bytes);
    }
    return blocks;
}

static void open_retyped(struct retyped *r, uint32_t type_id)
{
    struct rn_plan *plan = model.plan;
    uint32_t w, first, n = 0;

    memset(r, 0, sizeof *r);
    r->before = rn_calloc(&heap, plan->n_weights, sizeof *r->before);
    assert_true(plan->n_weights <= MAX_TENSORS && r->before != NULL);
    memcpy(r->before, plan->weights, plan->n_weights * sizeof *r->before);
    for (w = 0; w < plan->n_weights; w++) {
        struct rn_weight *weight = &plan->weights[w];

        if (r->before[w].type_id != RN_Q8_0)
            continue;
        for (first = 0; r->before[first].tensor != r->before[w].tensor; first++) {
        }
        if (first == w) {
            r->tensors[w] = *weight->tensor;
            r->tensors[w].data = retype(weight, type_id);
            n++;
        }
        weight->tensor = &r->tensors[first];
        weight->type = rn_type(type_id);
        weight->type_id = type_id;
        weight->row_bytes = rn_type_bytes(weight->type, weight->cols);
    }
    assert_true(n > 8);
}

static void close_retyped(struct retyped *r)
{
    memcpy(model.plan->weights, r->before, model.plan->n_weights * sizeof *r->before);
    rn_free(&heap, r->before);
    for (int i = 0; i < MAX_TENSORS; i++)
        rn_free(&heap, (void *)(uintptr_t)r->tensors[i].data);
}

static void test_mxfp4(void **state)
{
    struct retyped r;

    (void)state;
    open_retyped(&r, RN_MXFP4);
    check_kv_type(RUNNEL_KV_F16, SHORT_WAYS, 1e-5);
    close_retyped(&r);
}

/* A type that becomes another one on the way: the bits of the logits are those of that one. */
static void test_converted(void **state)
{
    static const struct way way = {N, 3, 0};
    float *want = new_logits(), *got = new_logits();
    struct rn_device *device;
    struct runner cuda;
    struct retyped r;

    (void)state;
    device = open_cuda(&cuda, RUNNEL_KV_F16);
    run_prompt(&cuda, &way, want);
    close_cuda(&cuda, device);
    open_retyped(&r, RN_Q8_1);
    device = open_cuda(&cuda, RUNNEL_KV_F16);
    run_prompt(&cuda, &way, got);
    close_cuda(&cuda, device);
    close_retyped(&r);
    assert_memory_equal(got, want, (size_t)N * model.plan->n_vocab * sizeof(float));
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
        cmocka_unit_test(test_copied_prefix), cmocka_unit_test(test_experts), cmocka_unit_test(test_mxfp4),
        cmocka_unit_test(test_converted),     cmocka_unit_test(test_streams),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
