/* Ops of the reference backend against values worked out by hand. Those of positions and attention are in
 * test_reference_attention.c. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cpu/op_bench.h"

static void embed(void **state)
{
    static const uint16_t table[] = {0x3c00, 0x4000, 0xbc00, 0x3800, 0x4200, 0x4400}; /* 1 2, -1 0.5, 3 4 */
    struct rn_op op = op_of(RN_OP_EMBED);

    (void)state;
    widths(1, 1, 2);
    weight(0, RN_F16, 2, 3, 1, table);
    op.weight = 0;
    op.scale = 4;
    b.step.n_rows = 2;
    b.rows[0].token = 2;
    b.rows[1].token = 1;
    run(&op);
    expect(2, 4, 12.0, 16.0, -4.0, 2.0);
}

static void embed_position(void **state)
{
    static const float table[] = {1, 2, 3, 4, 5, 6};
    struct rn_op op = op_of(RN_OP_EMBED_POSITION);

    (void)state;
    widths(1, 1, 2);
    weight(0, RN_F32, 2, 3, 1, table);
    op.weight = 0;
    op.scale = 2;
    b.step.n_rows = 2;
    b.rows[0].position = 2;
    b.rows[1].position = 0;
    run(&op);
    expect(2, 4, 10.0, 12.0, 2.0, 4.0);
}

static void tokens(void **state)
{
    struct rn_op op = op_of(RN_OP_TOKEN);

    (void)state;
    widths(1, 1, 1);
    b.step.n_rows = 2;
    b.rows[0].token = 0;
    b.rows[1].token = 1 << 20;
    run(&op);
    expect(2, 2, 1.0, 1048577.0);
}

/* Of two and of three tokens: 2, 3, 6 give 2 * 5 ^ 3 * 7 = 31 and 31 ^ 6 * 11 = 93. The second row has the end, 4,
 * behind its token, the third has nothing there. */
static void grams(void **state)
{
    static const uint32_t sizes[] = {10, 100, 7, 50}, offsets[] = {0, 10, 110, 117};
    static const int32_t rows[] = {1, 41, 112, 160, 2, 32, 112, 125, 9, 59, 111, 146};
    struct rn_op op = op_of(RN_OP_GRAMS);

    (void)state;
    widths(3, 1, 1);
    b.plan.grams = (struct rn_grams){.most = 3, .heads = 4, .end = 4, .factors = {5, 7, 11}};
    memcpy(b.plan.grams.sizes, sizes, sizeof sizes);
    memcpy(b.plan.grams.offsets, offsets, sizeof offsets);
    put(0, 9, 3.0, 4.0, 7.0, 3.0, 5.0, 7.0, 10.0, 0.0, 0.0);
    b.slots[3].width = 4;
    op.out = 3;
    b.step.n_rows = 3;
    run(&op);
    assert_memory_equal(b.ids, rows, sizeof rows);
}

static void look_up(void **state)
{
    static const uint16_t table[] = {0x3c00, 0x4000, 0xbc00, 0x3800, 0x4200, 0x4400}; /* 1 2, -1 0.5, 3 4 */
    static const int32_t ids[] = {2, 0, 1, 1};
    struct rn_op op = op_of(RN_OP_LOOK_UP);

    (void)state;
    widths(1, 1, 4);
    weight(0, RN_F16, 2, 3, 1, table);
    memcpy(b.ids, ids, sizeof ids);
    b.slots[3].width = 2;
    op.a = 3;
    op.weight = 0;
    op.used = 2;
    b.step.n_rows = 2;
    run(&op);
    expect(2, 8, 3.0, 4.0, 1.0, 2.0, -1.0, 0.5, -1.0, 0.5);
}

static void signed_root(void **state)
{
    struct rn_op op = op_of(RN_OP_SIGNED_ROOT);

    (void)state;
    widths(5, 1, 5);
    put(0, 5, 9.0, -4.0, 0.0, 0.01, -0.02);
    op.eps = 0.25;
    b.step.n_rows = 1;
    run(&op);
    expect(2, 5, 3.0, -2.0, 0.0, 0.5, -0.5);
}

static void split(void **state)
{
    struct rn_op op = op_of(RN_OP_SPLIT);

    (void)state;
    widths(6, 1, 2);
    put(0, 12, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0);
    b.step.n_rows = 2;
    op.heads = 1;
    op.group = 3;
    op.k_dim = 2;
    run(&op);
    expect(2, 4, 4.0, 5.0, 10.0, 11.0);
    op.heads = 2; /* of each half of a row */
    op.group = 2;
    op.k_dim = 1;
    run(&op);
    expect(2, 4, 3.0, 6.0, 9.0, 12.0);
}

static void norms(void **state)
{
    static const float gain[] = {1, 2, 1, -1}, shift[] = {0, 0.5f, 0, 10};
    struct rn_op op = op_of(RN_OP_RMS_NORM);

    (void)state;
    widths(4, 1, 4);
    weight(0, RN_F32, 4, 1, 1, gain);
    weight(1, RN_F32, 4, 1, 1, shift);
    put(0, 8, 1.0, 1.0, 1.0, 1.0, 3.0, -1.0, 1.0, 5.0);
    b.step.n_rows = 2;
    op.weight = 0;
    op.group = 4;
    run(&op);
    expect(2, 8, 1.0, 2.0, 1.0, -1.0, 1.0, -2 / 3.0, 1 / 3.0, -5 / 3.0); /* mean square 1, then 9 */
    op.eps = 7;
    run(&op);
    expect(2, 8, sqrt(0.125), 2 * sqrt(0.125), sqrt(0.125), -sqrt(0.125), 0.75, -0.5, 0.25, -1.25);
    b.weights[0].cols = op.group = 2; /* two heads of two, one gain for both */
    op.eps = 0;
    put(0, 4, 3.0, 3.0, 1.0, 7.0); /* mean squares 9 and 25 */
    run(&op);
    expect(2, 4, 1.0, 2.0, 0.2, 2.8);
    op = op_of(RN_OP_LAYER_NORM);
    b.weights[0].cols = 4;
    op.weight = 0;
    op.bias = 1;
    op.eps = 2.75;
    put(0, 4, 1.0, 2.0, 3.0, 4.0); /* mean 2.5, variance 1.25 */
    put(0, 1, 1.0);
    b.step.n_rows = 1;
    run(&op);
    expect(2, 4, -0.75, 0.0, 0.25, 9.25);
    op.bias = -1;
    run(&op);
    expect(2, 4, -0.75, -0.5, 0.25, -0.75);
    weight(0, RN_F32, 2, 2, 1, gain); /* two heads of two, each with its own gains */
    op.group = 2;
    op.eps = 0.75;
    put(0, 4, 1.0, 2.0, 5.0, 4.0); /* means 1.5 and 4.5, variances 0.25 */
    run(&op);
    expect(2, 4, -0.5, 1.0, 0.5, 0.5);
}

static void matmul(void **state)
{
    static const uint16_t matrix[] = {0x3f80, 0x4000, 0x4040, 0xbf80, 0x0000, 0x3f00}; /* bf16: 1 2 3, -1 0 0.5 */
    static const float shift[] = {100, 200};
    struct rn_op op = op_of(RN_OP_MATMUL);

    (void)state;
    widths(3, 1, 2);
    weight(0, RN_BF16, 3, 2, 1, matrix);
    weight(1, RN_F32, 2, 1, 1, shift);
    put(0, 6, 1.0, 1.0, 1.0, 4.0, 0.0, -2.0);
    b.step.n_rows = 2;
    op.weight = 0;
    run(&op);
    expect(2, 4, 6.0, -0.5, -2.0, -5.0);
    op.bias = 1;
    run(&op);
    expect(2, 4, 106.0, 199.5, 98.0, 195.0);
}

/* Two heads, each with a matrix of three rows and two columns, of which rows 1 and 2 count. */
static void products_of_heads(void **state)
{
    static const float matrices[] = {9, 9, 1, 2, 3, 4, 9, 9, 5, 6, 7, 8};
    struct rn_op op = op_of(RN_OP_HEAD_MATMUL);

    (void)state;
    widths(4, 1, 4);
    weight(0, RN_F32, 2, 3, 2, matrices);
    put(0, 8, 1.0, 10.0, 1.0, -1.0, 2.0, 0.0, 0.0, 1.0);
    b.step.n_rows = 2;
    op.weight = 0;
    op.heads = op.k_dim = 2;
    op.group = 1;
    run(&op);
    expect(2, 8, 21.0, 43.0, -1.0, -1.0, 2.0, 6.0, 6.0, 8.0);
    op.kind = RN_OP_HEAD_SUM; /* the same rows as columns */
    run(&op);
    expect(2, 8, 31.0, 42.0, -2.0, -2.0, 2.0, 4.0, 7.0, 8.0);
    op.a = -1;
    op.k_dim = 0;
    run(&op);
    expect(2, 8, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0);
}

static void concat_by_heads(void **state)
{
    struct rn_op op = op_of(RN_OP_CONCAT);

    (void)state;
    widths(4, 2, 6);
    put(0, 8, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0);
    put(1, 4, 10.0, 20.0, 30.0, 40.0);
    b.step.n_rows = 2;
    op.b = 1;
    op.heads = 2;
    run(&op);
    expect(2, 12, 1.0, 2.0, 10.0, 3.0, 4.0, 20.0, 5.0, 6.0, 30.0, 7.0, 8.0, 40.0);
}

/* 2^24 + 1 is no f32: a sum in single precision would lose the ones. */
static void sums_are_in_double(void **state)
{
    static const float ones[4] = {1, 1, 1, 1};
    struct rn_op op = op_of(RN_OP_MATMUL);

    (void)state;
    widths(4, 1, 1);
    weight(0, RN_F32, 4, 1, 1, ones);
    put(0, 4, 16777216.0, 1.0, 1.0, -16777216.0);
    op.weight = 0;
    run(&op);
    expect(2, 1, 2.0);
}

static void elementwise(void **state)
{
    static const struct {
        enum rn_activation act;
        double at_one, at_minus_two;
    } acts[] = {
        {RN_ACT_SILU, 0.73105857863000488, -0.23840584404423518},
        {RN_ACT_GELU_TANH, 0.84119199060827676, -0.04540230591222494},
        {RN_ACT_GELU_ERF, 0.84134474606854293, -0.04550026389635842},
        {RN_ACT_RELU, 1, 0},
        {RN_ACT_RELU2, 1, 0},
        {RN_ACT_SIGMOID, 0.73105857863000488, 0.11920292202211755},
        {RN_ACT_TANH, 0.76159415595576489, -0.96402758007581688},
        {RN_ACT_EXP, 2.7182818284590452, 0.13533528323661269},
        {RN_ACT_SOFTPLUS, 1.3132616875182228, 0.12692801104297249},
        {RN_ACT_NONE, 1, -2},
    };
    struct rn_op op = op_of(RN_OP_ADD);
    size_t i;

    (void)state;
    widths(2, 2, 2);
    put(0, 2, 1.0, -2.0);
    put(1, 2, 10.0, 3.0);
    op.b = 1;
    run(&op);
    expect(2, 2, 11.0, 1.0);
    op = op_of(RN_OP_SCALE);
    op.scale = 0.25f;
    run(&op);
    expect(2, 2, 0.25, -0.5);
    op = op_of(RN_OP_SOFTCAP);
    op.scale = 2;
    run(&op);
    expect(2, 2, 2 * tanh(0.5), -2 * tanh(1));
    op = op_of(RN_OP_CLAMP);
    op.scale = 1.5f;
    run(&op);
    expect(2, 2, 1.0, -1.5);
    op.scale = 0.5f;
    run(&op);
    expect(2, 2, 0.5, -0.5);
    op = op_of(RN_OP_BAR);
    op.group = op.used = 1;
    run(&op);
    assert_true(b.f[2][0] == 1 && b.f[2][1] == -INFINITY);
    op = op_of(RN_OP_XIELU);
    op.alpha_p = 0.75;
    op.alpha_n = 0.5;
    op.scale = 0.25f;
    op.eps = -1e-6;
    run(&op);
    expect(2, 2, 1.0, 0.5 * (exp(-2) - 1 + 2) - 0.5);
    op = op_of(RN_OP_CUT_GATE);
    op.b = 1;
    op.scale = 2;
    op.cut = 7;
    op.plus = 1;
    run(&op);
    expect(2, 2, 8 / (1 + exp(-2)), -8 / (1 + exp(4))); /* 10 is cut to 7 */
    op.cut = 0.5f;
    run(&op);
    expect(2, 2, 0.75 / (1 + exp(-1)), -3 / (1 + exp(4)));
    op.plus = 0;
    run(&op);
    expect(2, 2, 0.25 / (1 + exp(-1)), -1 / (1 + exp(4)));
    for (i = 0; i < sizeof acts / sizeof acts[0]; i++) {
        op = op_of(RN_OP_ACTIVATE);
        op.act = acts[i].act;
        run(&op);
        expect(2, 2, acts[i].at_one, acts[i].at_minus_two);
        op.kind = RN_OP_GATE;
        op.b = 1;
        run(&op);
        expect(2, 2, 10 * acts[i].at_one, 3 * acts[i].at_minus_two);
    }
    put(0, 2, 3.0, -0.0);
    op = op_of(RN_OP_ACTIVATE);
    op.act = RN_ACT_RELU2;
    run(&op);
    expect(2, 2, 9.0, 0.0);
}

/* What linear attention has around it. */
static void values_and_weights(void **state)
{
    static const float three[3] = {2, 3, 5}, six[6] = {0, 0.5f, 1, 2, -1, 0.25f};
    struct rn_op op = op_of(RN_OP_TIMES_WEIGHT);

    (void)state;
    widths(6, 6, 6);
    put(0, 6, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0);
    weight(0, RN_F32, 3, 1, 1, three);
    op.weight = 0;
    run(&op);
    expect(2, 6, 2.0, 4.0, 9.0, 12.0, 25.0, 30.0);
    op.kind = RN_OP_ADD_WEIGHT;
    run(&op);
    expect(2, 6, 3.0, 4.0, 6.0, 7.0, 10.0, 11.0);
    op.kind = RN_OP_OVER_WEIGHT;
    run(&op);
    expect(2, 6, 0.5, 1.0, 1.0, 4.0 / 3, 1.0, 1.2);
    op = op_of(RN_OP_PART_SUM);
    widths(6, 6, 2);
    op.heads = 2;
    run(&op);
    expect(2, 2, 6.0, 15.0);
    op = op_of(RN_OP_REPEAT);
    widths(2, 2, 4);
    op.heads = op.used = 2;
    run(&op);
    expect(2, 4, 1.0, 1.0, 2.0, 2.0);
    op = op_of(RN_OP_LERP);
    widths(3, 3, 6);
    put(1, 3, 3.0, 0.0, 7.0);
    weight(0, RN_F32, 6, 1, 1, six);
    op.b = 1;
    op.weight = 0;
    run(&op);
    expect(2, 6, 1.0, 1.0, 7.0, 5.0, 4.0, 4.0);
}

/* Logits of some tokens as those of all. */
static void scatter(void **state)
{
    static const int64_t to[3] = {4, 0, 3};
    struct rn_op op = op_of(RN_OP_SCATTER);

    (void)state;
    widths(3, 1, 5);
    put(0, 6, 1.0, 2.0, 3.0, -4.0, -5.0, -6.0);
    weight(0, RN_I64, 3, 1, 1, to);
    op.weight = 0;
    b.step.n_rows = 2;
    run(&op);
    for (int i = 0; i < 2; i++) {
        const float *row = b.f[2] + (size_t)i * 5;

        assert_true(row[0] == (i == 0 ? 2 : -5) && row[1] == -INFINITY && row[2] == -INFINITY);
        assert_true(row[3] == (i == 0 ? 3 : -6) && row[4] == (i == 0 ? 1 : -4));
    }
}

/* What several residual streams and sparse gates have. */
static void streams_and_tails(void **state)
{
    struct rn_op op = op_of(RN_OP_TAIL);

    (void)state;
    widths(4, 4, 4);
    put(0, 4, 1.0, 2.0, 3.0, 6.0); /* mean 3, deviation sqrt((4 + 1 + 0 + 9) / 3) */
    op.scale = 0.5f;
    run(&op);
    expect(2, 4, 0.0, 0.0, 0.0, 3 - 0.5 * sqrt(14 / 3.0));
    op.scale = -0.5f;
    run(&op);
    expect(2, 4, 0.0, 0.5 * sqrt(14 / 3.0) - 1, 0.5 * sqrt(14 / 3.0), 3 + 0.5 * sqrt(14 / 3.0));
    op = op_of(RN_OP_RESIZE); /* two streams, each as long as (0, -10) */
    widths(4, 2, 4);
    put(0, 4, 3.0, 4.0, -6.0, 8.0);
    put(1, 2, 0.0, -10.0);
    op.b = 1;
    op.group = 2;
    run(&op);
    expect(2, 4, 6.0, 8.0, -6.0, 8.0);
    op = op_of(RN_OP_MIX); /* the first gets twice the second, the second half the first and its own once more */
    widths(4, 4, 4);
    put(0, 4, 1.0, 2.0, 10.0, 20.0);
    put(1, 4, 0.0, 2.0, 0.5, 1.0);
    op.b = 1;
    op.heads = 2;
    run(&op);
    expect(2, 4, 21.0, 42.0, 20.5, 41.0);
}

static void factors_of_experts(void **state)
{
    static const float factors[] = {2, 3, 5};
    struct rn_op op = op_of(RN_OP_EXPERT_FACTOR);

    (void)state;
    widths(2, 2, 2);
    b.slots[3] = (struct rn_slot){.width = 2, .is_i32 = true};
    weight(0, RN_F32, 3, 1, 1, factors);
    op.weight = 0;
    op.b = 3;
    op.experts = op.group = 3;
    op.used = 2;
    b.ids[0] = 2;
    b.ids[1] = 0;
    put(0, 2, 0.25, 0.75);
    run(&op);
    expect(2, 2, 1.25, 1.5);
    widths(4, 4, 4);
    b.slots[3] = (struct rn_slot){.width = 2, .is_i32 = true};
    put(0, 4, 0.25, 0.75, 1.0, -3.0);
    run(&op);
    expect(2, 4, 1.25, 3.75, 2.0, -6.0);
}

/* A quarter turn for pair 0, an eighth for pair 1, per position. */

static void expect_ids(uint32_t n, ...)
{
    va_list ids;
    uint32_t i;

    va_start(ids, n);
    for (i = 0; i < n; i++)
        assert_int_equal(b.ids[i], va_arg(ids, int));
    va_end(ids);
}

static void route(void **state)
{
    struct rn_op op = op_of(RN_OP_ROUTE);

    (void)state;
    widths(4, 3, 1);
    b.slots[3] = (struct rn_slot){.width = 3, .is_i32 = true};
    op.out = 3;
    op.out2 = 1;
    op.experts = 4;
    op.used = 3;
    put(0, 4, 0.0, log(2), log(3), log(2)); /* 1/8 2/8 3/8 2/8 */
    rn_reference_op(&b.ref, &op, &b.step);
    expect_ids(3, 2, 1, 3); /* of equals the lower id first */
    expect(1, 3, 3 / 8.0, 2 / 8.0, 2 / 8.0);
    op.normalise = true;
    rn_reference_op(&b.ref, &op, &b.step);
    expect(1, 3, 3 / 7.0, 2 / 7.0, 2 / 7.0);
    op.normalise = false;
    op.gating = RN_GATING_SIGMOID;
    rn_reference_op(&b.ref, &op, &b.step);
    expect_ids(3, 2, 1, 3);
    expect(1, 3, 3 / 4.0, 2 / 3.0, 2 / 3.0);
    op.normalise = true;
    rn_reference_op(&b.ref, &op, &b.step);
    expect(1, 3, 9 / 25.0, 8 / 25.0, 8 / 25.0);
    put(0, 4, NAN, NAN, NAN, NAN); /* ids stay in range and different, whatever comes in */
    rn_reference_op(&b.ref, &op, &b.step);
    expect_ids(3, 0, 1, 2);
}

/* Eight experts in four groups; the best expert is alone in its group and does not count. */
static void route_in_groups(void **state)
{
    static const float more[] = {0, 0, 0, 0, 0, 0, 0.5F, 0.5F};
    struct rn_op op = op_of(RN_OP_ROUTE);

    (void)state;
    widths(8, 3, 1);
    b.slots[3] = (struct rn_slot){.width = 3, .is_i32 = true};
    op.out = 3;
    op.out2 = 1;
    op.experts = 8;
    op.used = 3;
    op.groups = 4;
    op.best = 2;
    op.gating = RN_GATING_SIGMOID;
    put(0, 8, log(9), -log(9), log(3), log(4), log(2), log(2), -log(3), -log(3)); /* 9+1, 7.5+8, 6.7+6.7, 2.5+2.5 */
    rn_reference_op(&b.ref, &op, &b.step);
    expect_ids(3, 3, 2, 4);
    expect(1, 3, 4 / 5.0, 3 / 4.0, 2 / 3.0);
    weight(0, RN_F32, 8, 1, 1, more); /* the last group is as good as the second, the weights do not show it */
    op.weight = 0;
    rn_reference_op(&b.ref, &op, &b.step);
    expect_ids(3, 3, 2, 6);
    expect(1, 3, 4 / 5.0, 3 / 4.0, 1 / 4.0);
    op.normalise = true;
    op.eps = 3.6;
    op.scale = 2;
    rn_reference_op(&b.ref, &op, &b.step);
    expect(1, 3, 4 / 9.0, 5 / 12.0, 5 / 36.0);
}

static void route_by_other_gatings(void **state)
{
    struct rn_op op = op_of(RN_OP_ROUTE);

    (void)state;
    widths(4, 2, 1);
    b.slots[3] = (struct rn_slot){.width = 2, .is_i32 = true};
    op.out = 3;
    op.out2 = 1;
    op.experts = 4;
    op.used = 2;
    op.gating = RN_GATING_CHOSEN;
    put(0, 4, 0.0, log(2), log(3), log(2));
    rn_reference_op(&b.ref, &op, &b.step);
    expect_ids(2, 2, 1);
    expect(1, 2, 3 / 5.0, 2 / 5.0);
    op.gating = RN_GATING_ROOT_SOFTPLUS;
    put(0, 4, log(exp(4) - 1), 900.0, -900.0, log(exp(1) - 1));
    rn_reference_op(&b.ref, &op, &b.step);
    expect_ids(2, 1, 0);
    expect(1, 2, 30.0, 2.0);
}

static void experts(void **state)
{
    static const float matrices[] = {1, 0, 0, 1, /**/ 2, 0, 0, 2, /**/ 0, 3, 3, 0}; /* three of [2, 2] */
    static const float shifts[] = {0, 0, 10, 20, 30, 40};
    struct rn_op op = op_of(RN_OP_EXPERT_MATMUL);

    (void)state;
    widths(2, 2, 4);
    b.slots[3] = (struct rn_slot){.width = 2, .is_i32 = true};
    weight(0, RN_F32, 2, 2, 3, matrices);
    weight(1, RN_F32, 2, 3, 1, shifts);
    op.weight = 0;
    op.b = 3;
    op.experts = 3;
    op.used = 2;
    b.ids[0] = 2;
    b.ids[1] = 1;
    put(0, 2, 5.0, 7.0);
    run(&op);
    expect(2, 4, 21.0, 15.0, 10.0, 14.0);
    op.bias = 1;
    run(&op);
    expect(2, 4, 51.0, 55.0, 20.0, 34.0);
    op.bias = -1;
    op.per_expert_input = true;
    b.slots[0].width = 4;
    put(0, 4, 5.0, 7.0, 1.0, 2.0);
    run(&op);
    expect(2, 4, 21.0, 15.0, 2.0, 4.0);
    op = op_of(RN_OP_EXPERT_SUM);
    b.slots[2].width = 2;
    op.b = 1;
    op.used = 2;
    put(1, 2, 0.25, 3.0);
    run(&op);
    expect(2, 2, 5 / 4.0 + 3, 7 / 4.0 + 6);
}

/* One value of the gate for each half. */
static void gate_of_parts(void **state)
{
    struct rn_op op = op_of(RN_OP_GATE);

    (void)state;
    widths(2, 4, 4);
    op.b = 1;
    op.act = RN_ACT_SIGMOID;
    put(0, 2, 0.0, log(3));
    put(1, 4, 2.0, 4.0, 8.0, 12.0);
    run(&op);
    expect(2, 4, 1.0, 2.0, 6.0, 9.0);
}

static void select_rows(void **state)
{
    struct rn_op op = op_of(RN_OP_SELECT);

    (void)state;
    widths(2, 1, 2);
    b.slots[2].selected = true;
    b.step.n_rows = 4;
    b.step.n_outs = 2;
    b.rows[0].out = b.rows[2].out = -1;
    b.rows[1].out = 0;
    b.rows[3].out = 1;
    put(0, 8, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0);
    run(&op);
    expect(2, 4, 3.0, 4.0, 7.0, 8.0);
    op = op_of(RN_OP_SCALE); /* an op behind it has two rows */
    op.a = op.out = 2;
    op.scale = 10;
    put(2, 6, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0);
    rn_reference_op(&b.ref, &op, &b.step);
    expect(2, 6, 10.0, 10.0, 10.0, 10.0, 1.0, 1.0);
}

/* Rows with features stand behind those with logits; an op for logits leaves them alone. */
static void features(void **state)
{
    static const uint32_t wanted[] = {1, 2};
    struct rn_op op = op_of(RN_OP_SELECT);
    float out[2 * 5] = {0};

    (void)state;
    widths(2, 1, 2);
    b.slots[2].selected = true;
    b.plan.features_width = 5;
    b.plan.taps_selected = true;
    b.step.n_rows = 4;
    b.step.n_outs = b.step.n_features = 2;
    b.step.feature_rows = wanted;
    b.step.features = out;
    b.rows[0].out = b.rows[2].out = -1;
    b.rows[1].out = 0;
    b.rows[3].out = 1;
    put(0, 8, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0);
    run(&op);
    expect(2, 6, 3.0, 4.0, 7.0, 8.0, 5.0, 6.0);
    op = op_of(RN_OP_TAP);
    op.a = 2;
    op.out = -1;
    op.group = 3;
    rn_reference_op(&b.ref, &op, &b.step);
    op.a = 0; /* not selected: by the row itself */
    op.group = 1;
    rn_reference_op(&b.ref, &op, &b.step);
    assert_memory_equal(out, ((float[]){0, 3, 4, 3, 4, 0, 5, 6, 5, 6}), sizeof out);
    op = op_of(RN_OP_SCALE);
    op.a = op.out = 2;
    op.scale = 10;
    b.slots[2].logits = true;
    rn_reference_op(&b.ref, &op, &b.step);
    expect(2, 6, 30.0, 40.0, 70.0, 80.0, 5.0, 6.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(embed, setup),
        cmocka_unit_test_setup(embed_position, setup),
        cmocka_unit_test_setup(tokens, setup),
        cmocka_unit_test_setup(grams, setup),
        cmocka_unit_test_setup(look_up, setup),
        cmocka_unit_test_setup(signed_root, setup),
        cmocka_unit_test_setup(split, setup),
        cmocka_unit_test_setup(norms, setup),
        cmocka_unit_test_setup(matmul, setup),
        cmocka_unit_test_setup(products_of_heads, setup),
        cmocka_unit_test_setup(concat_by_heads, setup),
        cmocka_unit_test_setup(sums_are_in_double, setup),
        cmocka_unit_test_setup(elementwise, setup),
        cmocka_unit_test_setup(values_and_weights, setup),
        cmocka_unit_test_setup(scatter, setup),
        cmocka_unit_test_setup(streams_and_tails, setup),
        cmocka_unit_test_setup(factors_of_experts, setup),
        cmocka_unit_test_setup(features, setup),
        cmocka_unit_test_setup(route, setup),
        cmocka_unit_test_setup(route_in_groups, setup),
        cmocka_unit_test_setup(route_by_other_gatings, setup),
        cmocka_unit_test_setup(experts, setup),
        cmocka_unit_test_setup(gate_of_parts, setup),
        cmocka_unit_test_setup(select_rows, setup),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
