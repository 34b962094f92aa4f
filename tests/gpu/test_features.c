/* What a step brings beside its tokens, and features, on the emulated device: a plan of a few ops, with a TAP before
 * SELECT and one behind it, and logits of some tokens alone, against the reference backend; any rows, launched,
 * captured and as a graph. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>

#include "model/quant/quant.h"
#include "tests/gpu/rigs/device_runner.h"
#include "tests/gpu/rigs/open_emulated.h"
#include "tests/support/nmse.h"

enum { VOCAB = 40, SOME = 24, WIDTH = 36, BROUGHT = 20, ROWS = 7, MEMORY = 16 << 20 };
enum { X, IN, BOTH, Y, SELECTED, NORMED, OF_SOME, LOGITS, SLOTS };
enum { TABLE, PRODUCT, OUTPUT, TOKENS, WEIGHTS };
enum { OPS = 10, FEATURES = 2 * WIDTH };

static struct {
    struct rn_plan plan;
    struct rn_op ops[OPS];
    struct rn_slot slots[SLOTS];
    struct rn_weight weights[WEIGHTS];
    struct rn_tensor tensors[WEIGHTS];
    float table[VOCAB * WIDTH], product[WIDTH * (WIDTH + BROUGHT)], output[SOME * WIDTH];
    int64_t tokens[SOME];
    float brought[ROWS * BROUGHT];
} made;

static struct rn_heap heap;
static uint64_t random_state = 7;

/* In [-1, 1). */
static void fill(float *out, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        out[i] = (float)(int32_t)(random_state >> 40) / (1 << 23) - 1;
    }
}

static void set_weight(int index, float *data, uint32_t cols, uint32_t rows)
{
    fill(data, (size_t)cols * rows);
    made.tensors[index] = (struct rn_tensor){.type = RN_F32,
                                             .data = (const unsigned char *)data,
                                             .elements = (uint64_t)cols * rows,
                                             .bytes = cols * rows * 4};
    made.weights[index] =
        (struct rn_weight){&made.tensors[index], rn_type(RN_F32), RN_F32, cols, rows, 1, cols * sizeof(float)};
}

/* Each another: 7 and VOCAB have no common divisor. */
static void set_tokens(void)
{
    for (uint32_t i = 0; i < SOME; i++)
        made.tokens[i] = (i * 7 + 3) % VOCAB;
    made.tensors[TOKENS] = (struct rn_tensor){
        .type = RN_I64, .data = (const unsigned char *)made.tokens, .elements = SOME, .bytes = sizeof made.tokens};
    made.weights[TOKENS] =
        (struct rn_weight){&made.tensors[TOKENS], rn_type(RN_I64), RN_I64, SOME, 1, 1, sizeof made.tokens};
}

static void set_op(int index, enum rn_op_kind kind, int16_t a, int16_t b, int16_t out, int32_t weight)
{
    made.ops[index] = (struct rn_op){.kind = kind,
                                     .a = a,
                                     .b = b,
                                     .out = out,
                                     .out2 = -1,
                                     .weight = weight,
                                     .bias = -1,
                                     .layer = -1,
                                     .scale = 1,
                                     .eps = 1e-5};
}

static void make_plan(void)
{
    static const uint32_t widths[SLOTS] = {WIDTH, BROUGHT, WIDTH + BROUGHT, WIDTH, WIDTH, WIDTH, SOME, VOCAB};

    set_weight(TABLE, made.table, WIDTH, VOCAB);
    set_weight(PRODUCT, made.product, WIDTH + BROUGHT, WIDTH);
    set_weight(OUTPUT, made.output, WIDTH, SOME);
    set_tokens();
    fill(made.brought, ROWS * BROUGHT);
    for (int i = 0; i < SLOTS; i++)
        made.slots[i] = (struct rn_slot){.width = widths[i], .selected = i >= SELECTED, .logits = i >= OF_SOME};
    set_op(0, RN_OP_EMBED, -1, -1, X, TABLE);
    set_op(1, RN_OP_INPUT, -1, -1, IN, -1);
    set_op(2, RN_OP_CONCAT, X, IN, BOTH, -1);
    set_op(3, RN_OP_MATMUL, BOTH, -1, Y, PRODUCT);
    set_op(4, RN_OP_TAP, Y, -1, -1, -1);
    set_op(5, RN_OP_SELECT, Y, -1, SELECTED, -1);
    set_op(6, RN_OP_RMS_NORM, SELECTED, -1, NORMED, -1);
    set_op(7, RN_OP_TAP, NORMED, -1, -1, -1);
    made.ops[7].group = WIDTH;
    set_op(8, RN_OP_MATMUL, NORMED, -1, OF_SOME, OUTPUT);
    set_op(9, RN_OP_SCATTER, OF_SOME, -1, LOGITS, TOKENS);
    made.plan = (struct rn_plan){.architecture = "made",
                                 .n_vocab = VOCAB,
                                 .embedding = WIDTH,
                                 .context_tokens = 64,
                                 .n_ops = OPS,
                                 .n_slots = SLOTS,
                                 .n_weights = WEIGHTS,
                                 .ops = made.ops,
                                 .slots = made.slots,
                                 .weights = made.weights,
                                 .logits_slot = LOGITS,
                                 .features_width = FEATURES,
                                 .normed_at = WIDTH,
                                 .taps_selected = true,
                                 .inputs_width = BROUGHT};
    assert_true(rn_plan_check(&made.plan));
}

/* What is wanted of a step of ROWS rows. */
struct wish {
    uint32_t outs[ROWS], n_outs;
    uint32_t rows[ROWS], n_features;
    bool with_features, all, early;
};

static const struct wish wishes[] = {
    {.outs = {1, 6}, .n_outs = 2, .with_features = true, .all = true},
    {.outs = {1, 3}, .n_outs = 2, .with_features = true, .rows = {0, 1, 5}, .n_features = 3},
    {.with_features = true, .rows = {2}, .n_features = 1},
    {.outs = {4}, .n_outs = 1, .with_features = true, .rows = {0, 1, 4}, .n_features = 3, .early = true},
    {.outs = {0}, .n_outs = 1},
    {.outs = {0, 1, 2, 3, 4, 5, 6}, .n_outs = 7, .with_features = true, .rows = {3, 6}, .n_features = 2},
};

struct result {
    float logits[ROWS * VOCAB], features[ROWS * FEATURES];
};

static void run_wish(struct runner *r, const struct wish *wish, struct result *result)
{
    uint32_t block = 0;
    struct rn_step_seq seq = {.blocks = &block, .n_blocks = 1};
    struct rn_step_row rows[ROWS];
    struct rn_step step = {.rows = rows,
                           .seqs = &seq,
                           .n_seqs = 1,
                           .n_rows = ROWS,
                           .n_outs = wish->n_outs,
                           .n_features = wish->n_features,
                           .feature_rows = wish->all || !wish->with_features ? NULL : wish->rows,
                           .features = wish->with_features ? result->features : NULL,
                           .early_features = wish->early,
                           .inputs = made.brought,
                           .logits = result->logits};

    memset(result, 0, sizeof *result);
    for (uint32_t i = 0; i < ROWS; i++)
        rows[i] = (struct rn_step_row){(int32_t)(i * 5 % VOCAB), i, 0, -1};
    for (uint32_t i = 0; i < wish->n_outs; i++)
        rows[wish->outs[i]].out = (int32_t)i;
    run_step(r, &step);
}

/* The same tokens have none. */
static double difference_of_logits(const float *got, const float *want, size_t n)
{
    static float a[ROWS * VOCAB], b[ROWS * VOCAB];

    for (size_t i = 0; i < n; i++) {
        assert_int_equal(got[i] == -INFINITY, want[i] == -INFINITY);
        a[i] = got[i] == -INFINITY ? 0 : got[i];
        b[i] = want[i] == -INFINITY ? 0 : want[i];
    }
    return nmse(a, b, n);
}

/* Of two results of a wish the NMSE of all that is wanted; with early features those before the norm's. */
static double difference(const struct wish *wish, const struct result *got, const struct result *want)
{
    uint32_t n = wish->all ? ROWS : wish->n_features, width = wish->early ? WIDTH : FEATURES;
    double most = wish->n_outs == 0 ? 0 : difference_of_logits(got->logits, want->logits, (size_t)wish->n_outs * VOCAB),
           error;

    for (uint32_t i = 0; i < n; i++) {
        error = nmse(got->features + (size_t)i * FEATURES, want->features + (size_t)i * FEATURES, width);
        most = error <= most ? most : error; /* what is no number counts, too */
    }
    return most;
}

static void features(void **state)
{
    const struct rn_backend_limits limits = {.max_rows = ROWS,
                                             .max_seqs = 1,
                                             .max_outs = ROWS,
                                             .n_blocks = 1,
                                             .block_tokens = 32,
                                             .context_tokens = 32,
                                             .kv_type = RUNNEL_KV_F32};
    struct runner reference, cuda;
    struct rn_device *device = open_emulated(&heap, MEMORY);
    static struct result want, got;

    (void)state;
    open_runner(&reference, &heap, &made.plan, NULL, 1, &limits);
    open_on_device(&cuda, &heap, device, made.plan.architecture, &made.plan, &limits);
    assert_true(rn_device_can(cuda.backend->caps, RN_CAN_FEATURES | RN_CAN_INPUTS));
    for (int round = 0; round < 3; round++) { /* launched, captured, as a graph */
        for (size_t i = 0; i < sizeof wishes / sizeof wishes[0]; i++) {
            run_wish(&reference, &wishes[i], &want);
            run_wish(&cuda, &wishes[i], &got);
            assert_true(difference(&wishes[i], &got, &want) <= 1e-9);
        }
    }
    cuda.backend->ops->free(cuda.backend);
    sem_destroy(&cuda.done);
    close_runner(&reference);
    device->kind->close(device);
}

static int setup(void **state)
{
    (void)state;
    rn_heap_init(&heap, NULL);
    make_plan();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    assert_int_equal(rn_heap_blocks(&heap), 0);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(features)};

    return cmocka_run_group_tests(tests, setup, teardown);
}
