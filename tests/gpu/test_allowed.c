/* The shared memory that a load allows, on the emulated device, whose driver refuses a launch that wants more: a head
 * of a type that no other product of the plan has, for every number of wanted rows, by matmul_stream and by the kernels
 * that a load's measurement may prefer. Of every architecture see test_architectures.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "model/quant/quant.h"
#include "tests/gpu/rigs/device_runner.h"
#include "tests/gpu/rigs/expect_allowed.h"
#include "tests/gpu/rigs/force_streams.h"
#include "tests/gpu/rigs/open_emulated.h"

static struct rn_heap heap;

/* An embedding, and a head of a type that no other product has: of so many columns that matmul_stream takes them. */
enum { VOCAB = 48, WIDE = 1024, ROWS = 12, BLOCK = 32, MEMORY = 8 << 20 };

static struct {
    struct rn_plan plan;
    struct rn_op ops[2];
    struct rn_slot slots[2];
    struct rn_weight weights[2];
    struct rn_tensor tensors[2];
    float table[VOCAB * WIDE];
    uint16_t head[VOCAB * WIDE]; /* BF16 */
} wide;

static void set_wide_weight(int index, uint32_t type_id, const void *data)
{
    const struct rn_type *type = rn_type(type_id);

    wide.tensors[index] = (struct rn_tensor){.type = type_id, .data = data, .elements = VOCAB * WIDE};
    wide.tensors[index].bytes = VOCAB * rn_type_bytes(type, WIDE);
    wide.weights[index] =
        (struct rn_weight){&wide.tensors[index], type, type_id, WIDE, VOCAB, 1, rn_type_bytes(type, WIDE)};
    wide.ops[index] = (struct rn_op){.kind = index == 0 ? RN_OP_EMBED : RN_OP_MATMUL,
                                     .out = (int16_t)index,
                                     .out2 = -1,
                                     .a = (int16_t)(index - 1),
                                     .b = -1,
                                     .weight = index,
                                     .bias = -1,
                                     .layer = -1,
                                     .scale = 1};
}

static void make_wide(void)
{
    for (uint32_t i = 0; i < VOCAB * WIDE; i++) {
        const float value = (float)(i * 7919 % 256) / 256 - 0.5f;
        uint32_t bits;

        wide.table[i] = (float)(i * 104729 % 512) / 512 - 0.5f;
        memcpy(&bits, &value, sizeof bits);
        wide.head[i] = (uint16_t)(bits >> 16); /* exact: eight bits */
    }
    set_wide_weight(0, RN_F32, wide.table);
    set_wide_weight(1, RN_BF16, wide.head);
    wide.slots[0].width = WIDE;
    wide.slots[1] = (struct rn_slot){.width = VOCAB, .logits = true};
    wide.plan = (struct rn_plan){.n_vocab = VOCAB,
                                 .embedding = WIDE,
                                 .context_tokens = 256,
                                 .n_ops = 2,
                                 .n_slots = 2,
                                 .n_weights = 2,
                                 .ops = wide.ops,
                                 .slots = wide.slots,
                                 .weights = wide.weights,
                                 .logits_slot = 1};
    strcpy(wide.plan.architecture, "wide");
}

/* Logits of rows of tokens 0, 1, ...: in double precision, from the numbers as they were made. */
static void expect_wide_logits(const float *got, uint32_t n)
{
    double error = 0, norm = 0;

    for (uint32_t i = 0; i < n * VOCAB; i++) {
        double want = 0;

        for (uint32_t c = 0; c < WIDE; c++)
            want +=
                (double)wide.table[i / VOCAB * WIDE + c] * ((double)((i % VOCAB * WIDE + c) * 7919 % 256) / 256 - 0.5);
        error += (got[i] - want) * (got[i] - want);
        norm += want * want;
    }
    assert_true(error / norm < 1e-7);
}

static void run_rows(struct runner *r, uint32_t n)
{
    static float logits[ROWS * VOCAB];
    uint32_t block = 0;
    struct rn_step_seq seq = {.blocks = &block, .n_blocks = 1};
    struct rn_step_row rows[ROWS];
    struct rn_step step = {.n_rows = n, .n_seqs = 1, .n_outs = n, .rows = rows, .seqs = &seq, .logits = logits};

    for (uint32_t i = 0; i < n; i++)
        rows[i] = (struct rn_step_row){(int32_t)i, i, 0, (int32_t)i};
    run_step(r, &step);
    expect_wide_logits(logits, n);
}

static void run_all(bool streams)
{
    const struct rn_backend_limits limits = {.max_rows = ROWS,
                                             .max_seqs = 1,
                                             .max_outs = ROWS,
                                             .n_blocks = 1,
                                             .block_tokens = BLOCK,
                                             .context_tokens = BLOCK,
                                             .kv_type = RUNNEL_KV_F16};
    struct rn_device *device = open_emulated(&heap, MEMORY);
    struct runner r;

    open_on_device(&r, &heap, device, "wide", &wide.plan, &limits);
    if (streams)
        force_streams(r.backend);
    for (uint32_t n = 1; n <= ROWS; n++)
        run_rows(&r, n);
    expect_allowed(r.backend);
    close_on_device(&r);
    device->kind->close(device);
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

static void test_few(void **state)
{
    (void)state;
    run_all(false); /* there is too little of the weights to be measured */
}

static void test_streams(void **state)
{
    (void)state;
    run_all(true);
}

static int setup(void **state)
{
    (void)state;
    rn_heap_init(&heap, NULL);
    make_wide();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_few), cmocka_unit_test(test_streams)};

    return cmocka_run_group_tests(tests, setup, NULL);
}
