/* The kernels that work row by row, against the reference. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "tests/gpu/rigs/rig.h"
#include "model/quant/quant.h"

enum { ROWS = 5 };

/* ---- Looking up ---- */

/* Every number of the table, to the last bit of its product with the scale; of those that the device has as floats, 16
 * bits. */
static void embed_of(uint32_t type_id, uint32_t table_rows, uint32_t cols, bool as_f32)
{
    struct rig rig;
    struct judge judge;
    struct rn_typed_kernels kernels;
    struct rn_op op = {.kind = RN_OP_EMBED, .weight = 0, .bias = -1, .scale = 0.5f};
    unsigned char *blocks;
    uint32_t *index, r;
    float *out;
    struct rn_embed_args args;

    rig_open(&rig);
    blocks = rig_weights(&rig, type_id, table_rows, cols);
    index = rig_device(&rig, table_rows * sizeof *index);
    out = rig_device(&rig, (size_t)table_rows * cols * sizeof *out);
    judge_open(&rig, &judge, table_rows, (uint32_t[]){1, 1, cols, 1});
    judge_weight(&judge, 0, type_id, cols, table_rows, 1, blocks);
    for (r = 0; r < table_rows; r++) {
        index[r] = (r * 7 + 3) % table_rows;
        judge.step.rows[r].token = (int32_t)index[r];
    }
    args = (struct rn_embed_args){rig_at(rig_tiled(&rig, type_id, blocks, table_rows, cols)),
                                  rig_at(index),
                                  rig_at(out),
                                  table_rows,
                                  table_rows,
                                  cols,
                                  op.scale};
    assert_true(rn_kernels_of_type(type_id, &kernels));
    rig_run(&rig, kernels.embed, &args);
    if (as_f32 || type_id == RN_F32 || type_id == RN_Q2_K)
        rig_expect("embed", out, judge_run(&judge, op, false), (size_t)table_rows * cols, 1e-10);
    else
        assert_memory_equal(out, judge_run(&judge, op, false), (size_t)table_rows * cols * sizeof *out);
    rig_close(&rig);
}

static void embed(void **state)
{
    (void)state;
#define TYPE(id, name) embed_of(id, 20, rn_type(id)->elements == 256 ? 512 : 192, false);
#define TYPE_AS(id, name, as) embed_of(id, 20, rn_type(id)->elements == 256 ? 512 : 192, strcmp(#as, "f32") == 0);
    RN_KERNEL_TYPES(TYPE)
    RN_KERNEL_TYPES_AS(TYPE_AS)
#undef TYPE_AS
#undef TYPE
    embed_of(RN_Q8_0, 20, 96, false);
    embed_of(RN_MXFP4, 33, 96, false);
    embed_of(RN_Q5_1, 16, 32, false);
}

/* A row that the table does not have. */
static void embed_outside(void **state)
{
    struct rig rig;
    struct rn_embed_args args;
    uint32_t *index, i;
    float *out;

    (void)state;
    rig_open(&rig);
    index = rig_device(&rig, 2 * sizeof *index);
    out = rig_device(&rig, 2 * 32 * sizeof *out);
    index[0] = 16;
    index[1] = UINT32_MAX;
    args = (struct rn_embed_args){rig_at(rig_tiled(&rig, RN_Q8_0, rig_weights(&rig, RN_Q8_0, 16, 32), 16, 32)),
                                  rig_at(index),
                                  rig_at(out),
                                  2,
                                  16,
                                  32,
                                  1};
    rig_run(&rig, RN_KERNEL_embed_q8_0, &args);
    for (i = 0; i < 64; i++)
        assert_true(out[i] == 0);
    rig_close(&rig);
}

/* ---- Norms ---- */

static void norm_of(bool around_mean, uint32_t width, uint32_t group, uint32_t weight_rows, bool with_bias)
{
    struct rig rig;
    struct judge judge;
    struct rn_op op = {.kind = around_mean ? RN_OP_LAYER_NORM : RN_OP_RMS_NORM,
                       .weight = weight_rows == 0 ? -1 : 0,
                       .bias = with_bias ? 1 : -1,
                       .group = group,
                       .eps = 1e-5};
    float *a, *weight, *bias, *out;
    struct rn_norm_args args;

    rig_open(&rig);
    a = rig_floats(&rig, (size_t)ROWS * width, 3);
    weight = rig_floats(&rig, (size_t)(weight_rows + 1) * group, 1);
    bias = rig_floats(&rig, (size_t)(weight_rows + 1) * group, 1);
    out = rig_device(&rig, (size_t)ROWS * width * sizeof *out);
    judge_open(&rig, &judge, ROWS, (uint32_t[]){width, 1, width, 1});
    judge_weight(&judge, 0, RN_F32, group, weight_rows, 1, weight);
    judge_weight(&judge, 1, RN_F32, group, weight_rows, 1, bias);
    memcpy(judge.memory[0], a, (size_t)ROWS * width * sizeof *a);
    args = (struct rn_norm_args){.a = rig_at(a),
                                 .weight = weight_rows == 0 ? 0 : rig_at(weight),
                                 .bias = with_bias ? rig_at(bias) : 0,
                                 .out = rig_at(out),
                                 .n_rows = ROWS,
                                 .width = width,
                                 .group = group,
                                 .weight_rows = weight_rows,
                                 .eps = 1e-5f,
                                 .around_mean = around_mean};
    rig_run(&rig, RN_KERNEL_norm, &args);
    rig_expect("norm", out, judge_run(&judge, op, false), (size_t)ROWS * width, 1e-12);
    rig_close(&rig);
}

/* ADD and a norm of that in one launch: the bits of two; where: the sum is apart, in place of a, or of add. */
static void norm_of_sum(bool around_mean, uint32_t width, uint32_t group, uint32_t where)
{
    size_t n = (size_t)ROWS * width;
    struct rig rig;
    float *a, *add, *weight, *sum, *out, *want_sum, *want;

    rig_open(&rig);
    a = rig_floats(&rig, n, 3);
    add = rig_floats(&rig, n, 2);
    weight = rig_floats(&rig, group, 1);
    want_sum = rig_device(&rig, n * sizeof *want_sum);
    want = rig_device(&rig, n * sizeof *want);
    out = rig_device(&rig, n * sizeof *out);
    sum = where == 0 ? rig_device(&rig, n * sizeof *sum) : where == 1 ? a : add;
    rig_run(&rig, RN_KERNEL_each,
            &(struct rn_each_args){.a = rig_at(a),
                                   .b = rig_at(add),
                                   .out = rig_at(want_sum),
                                   .n = n,
                                   .kind = RN_EACH_ADD,
                                   .width = width,
                                   .part = 1});
    rig_run(&rig, RN_KERNEL_norm,
            &(struct rn_norm_args){.a = rig_at(want_sum),
                                   .weight = rig_at(weight),
                                   .out = rig_at(want),
                                   .n_rows = ROWS,
                                   .width = width,
                                   .group = group,
                                   .weight_rows = 1,
                                   .eps = 1e-5f,
                                   .around_mean = around_mean});
    rig_run(&rig, RN_KERNEL_norm,
            &(struct rn_norm_args){.a = rig_at(a),
                                   .weight = rig_at(weight),
                                   .out = rig_at(out),
                                   .n_rows = ROWS,
                                   .width = width,
                                   .group = group,
                                   .weight_rows = 1,
                                   .eps = 1e-5f,
                                   .around_mean = around_mean,
                                   .add = rig_at(add),
                                   .sum = rig_at(sum)});
    assert_memory_equal(sum, want_sum, n * sizeof *sum);
    assert_memory_equal(out, want, n * sizeof *out);
    rig_close(&rig);
}

static void norms(void **state)
{
    (void)state;
    norm_of_sum(false, 2500, 2500, 0); /* more than a block holds in registers */
    norm_of_sum(false, 2500, 2500, 1);
    norm_of_sum(true, 2304, 2304, 2);
    norm_of_sum(false, 96, 32, 1);
    norm_of(false, 2048, 2048, 1, false);
    norm_of(false, 300, 300, 0, false);
    norm_of(false, 256, 64, 1, false);
    norm_of(false, 256, 64, 4, true);
    norm_of(true, 1000, 1000, 1, true);
    norm_of(true, 96, 32, 3, false);
}

/* ---- Values one by one ---- */

static void each_of(enum rn_each kind, struct rn_op op, uint32_t part, bool with_b, bool with_bias)
{
    enum { WIDTH = 300 };
    struct rig rig;
    struct judge judge;
    float *a, *b, *bias, *out;
    struct rn_each_args args;

    rig_open(&rig);
    a = rig_floats(&rig, ROWS * WIDTH / part, 6);
    b = rig_floats(&rig, ROWS * WIDTH, 6);
    bias = rig_floats(&rig, WIDTH, 1);
    out = rig_device(&rig, ROWS * WIDTH * sizeof *out);
    judge_open(&rig, &judge, ROWS, (uint32_t[]){WIDTH / part, WIDTH, WIDTH, 1});
    judge_weight(&judge, 1, RN_F32, WIDTH, 1, 1, bias);
    memcpy(judge.memory[0], a, ROWS * WIDTH / part * sizeof *a);
    memcpy(judge.memory[1], b, ROWS * WIDTH * sizeof *b);
    op.weight = -1;
    op.bias = with_bias ? 1 : -1;
    args = (struct rn_each_args){.a = rig_at(a),
                                 .b = with_b ? rig_at(b) : 0,
                                 .bias = with_bias ? rig_at(bias) : 0,
                                 .out = rig_at(out),
                                 .n = ROWS * WIDTH,
                                 .kind = kind,
                                 .act = op.act,
                                 .width = WIDTH,
                                 .part = part,
                                 .scale = op.scale,
                                 .cut = op.cut,
                                 .plus = op.plus,
                                 .alpha_n = (float)op.alpha_n,
                                 .alpha_p = (float)op.alpha_p,
                                 .eps = (float)op.eps};
    rig_run(&rig, RN_KERNEL_each, &args);
    rig_expect("each", out, judge_run(&judge, op, with_b), ROWS * WIDTH, 1e-12);
    rig_close(&rig);
}

static void each(void **state)
{
    uint32_t act;

    (void)state;
    each_of(RN_EACH_ADD, (struct rn_op){.kind = RN_OP_ADD}, 1, true, false);
    each_of(RN_EACH_SCALE, (struct rn_op){.kind = RN_OP_SCALE, .scale = -1.5f}, 1, false, false);
    each_of(RN_EACH_SOFTCAP, (struct rn_op){.kind = RN_OP_SOFTCAP, .scale = 2.5f}, 1, false, false);
    each_of(RN_EACH_CLAMP, (struct rn_op){.kind = RN_OP_CLAMP, .scale = 2.5f}, 1, false, false);
    each_of(RN_EACH_CUT_GATE, (struct rn_op){.kind = RN_OP_CUT_GATE, .scale = 1.702f, .cut = 4, .plus = 1}, 1, true,
            false);
    each_of(RN_EACH_XIELU,
            (struct rn_op){.kind = RN_OP_XIELU, .alpha_n = 0.8, .alpha_p = 1.2, .scale = 0.5f, .eps = -1e-6}, 1, false,
            false);
    for (act = 0; act < RN_ACTIVATIONS; act++) {
        each_of(RN_EACH_ACTIVATE, (struct rn_op){.kind = RN_OP_ACTIVATE, .act = act}, 1, false, act % 2 == 0);
        each_of(RN_EACH_GATE, (struct rn_op){.kind = RN_OP_GATE, .act = act}, 1 + act % 3, true, false);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(embed),
        cmocka_unit_test(embed_outside),
        cmocka_unit_test(norms),
        cmocka_unit_test(each),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
