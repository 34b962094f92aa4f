/* Experts: routing, their products and sums, against the reference. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "tests/gpu/rigs/rig.h"
#include "model/quant/quant.h"

enum { ROWS = 6 };

/* ---- Which experts ---- */

struct routing {
    uint32_t experts, used;
    enum rn_gating gating;
    bool normalise, with_more, ties;
    uint32_t groups, best, per;
};

static void route_of(const struct routing *c)
{
    struct rig rig;
    struct judge judge;
    struct rn_op op = {.kind = RN_OP_ROUTE,
                       .experts = c->experts,
                       .used = c->used,
                       .gating = c->gating,
                       .normalise = c->normalise,
                       .scale = 1.5f,
                       .eps = 1e-3,
                       .bias = -1,
                       .weight = c->with_more ? 0 : -1,
                       .groups = c->groups,
                       .best = c->best,
                       .per = c->per};
    struct rn_route_args args;
    float *a, *more, *weights;
    int32_t *ids;
    uint32_t i;

    rig_open(&rig);
    a = rig_floats(&rig, ROWS * c->experts, 4);
    for (i = 0; c->ties && i < ROWS * c->experts; i++)
        a[i] = (float)(int)a[i];
    more = rig_floats(&rig, c->experts, 1);
    ids = rig_device(&rig, ROWS * c->used * sizeof *ids);
    weights = rig_device(&rig, ROWS * c->used * sizeof *weights);
    judge_open(&rig, &judge, ROWS, (uint32_t[]){c->experts, 1, c->used, c->used});
    judge_weight(&judge, 0, RN_F32, c->experts, 1, 1, more);
    memcpy(judge.memory[0], a, ROWS * c->experts * sizeof *a);
    args = (struct rn_route_args){rig_at(a),
                                  c->with_more ? rig_at(more) : 0,
                                  rig_at(ids),
                                  rig_at(weights),
                                  ROWS,
                                  c->experts,
                                  c->used,
                                  c->gating,
                                  c->normalise,
                                  op.scale,
                                  1e-3f,
                                  c->groups,
                                  c->best,
                                  c->per,
                                  0};
    rig_run(&rig, RN_KERNEL_route, &args);
    assert_memory_equal(ids, judge_run(&judge, op, false), ROWS * c->used * sizeof *ids);
    rig_expect("route", weights, judge.memory[3], ROWS * c->used, 1e-11); /* sums of 300 floats */
    rig_close(&rig);
}

static void route(void **state)
{
    static const struct routing cases[] = {
        {8, 2, RN_GATING_SOFTMAX, true, false, false, 0, 0, 0},
        {300, 8, RN_GATING_SOFTMAX, false, false, false, 1, 1, 1},
        {64, 6, RN_GATING_SIGMOID, true, true, false, 0, 0, 0},
        {32, 4, RN_GATING_CHOSEN, false, false, false, 0, 0, 0},
        {32, 4, RN_GATING_CHOSEN, false, true, false, 0, 0, 0},
        {40, 5, RN_GATING_ROOT_SOFTPLUS, true, true, false, 0, 0, 0},
        {300, 12, RN_GATING_SOFTMAX, false, false, true, 0, 0, 0},
        {4, 4, RN_GATING_SOFTMAX, true, false, true, 0, 0, 0},
        {64, 6, RN_GATING_SIGMOID, true, true, false, 8, 3, 0}, /* groups */
        {64, 8, RN_GATING_SOFTMAX, false, false, false, 4, 1, 0},
        {600, 9, RN_GATING_SIGMOID, true, false, false, 200, 70, 0}, /* many groups */
        {32, 5, RN_GATING_SIGMOID, true, false, true, 4, 2, 0},
        {48, 7, RN_GATING_SOFTMAX, true, false, false, 0, 0, 3}, /* ids that may become equal */
        {48, 6, RN_GATING_CHOSEN, false, false, false, 0, 0, 4},
    };
    uint32_t i;

    (void)state;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++)
        route_of(&cases[i]);
}

/* ---- Their products ---- */

/* The same by groups of pairs: the outputs, those of ids that are no expert's as they were. */
static float *run_grouped(struct rig *rig, const struct rn_typed_kernels *kernels, struct rn_expert_matmul_args args,
                          uint32_t group)
{
    uint32_t n = args.n_rows * args.used, inputs = args.per_expert_input ? n : args.n_rows;
    float *out = rig_device(rig, (size_t)n * args.rows * sizeof *out);

    args.group = group;
    args.out = rig_at(out);
    args.order = rig_at(rig_device(rig, rn_expert_order_bytes(n)));
    args.slots = rig_at(rig_device(rig, rn_expert_slots_bytes(n, args.experts, group)));
    rig_run(rig, RN_KERNEL_expert_group, &args);
    if (group == RN_EXPERT_FEW) {
        rig_run(rig, kernels->expert_few, &args);
        return out;
    }
    args.split = rig_at(rig_device(rig, rn_expert_split_bytes(inputs, args.cols)));
    rig_run(rig, RN_KERNEL_expert_split, &args);
    rig_run(rig, kernels->expert_many, &args);
    return out;
}

static void expect_grouped(struct rig *rig, const struct rn_typed_kernels *kernels,
                           const struct rn_expert_matmul_args *args, const float *want)
{
    size_t bytes = (size_t)args->n_rows * args->used * args->rows * sizeof *want;

    assert_memory_equal(run_grouped(rig, kernels, *args, RN_EXPERT_FEW), want, bytes);
    assert_memory_equal(run_grouped(rig, kernels, *args, RN_EXPERT_MANY), want, bytes);
}

static void products_of(uint32_t type_id, uint32_t rows, uint32_t cols, bool per_expert_input)
{
    enum { EXPERTS = 5, USED = 3 };
    struct rig rig;
    struct judge judge;
    struct rn_op op = {.kind = RN_OP_EXPERT_MATMUL,
                       .experts = EXPERTS,
                       .used = USED,
                       .per_expert_input = per_expert_input,
                       .weight = 0,
                       .bias = 1};
    uint32_t inputs = per_expert_input ? USED : 1, i;
    struct rn_typed_kernels kernels;
    struct rn_expert_matmul_args args;
    struct rn_matmul_args one;
    unsigned char *blocks, *tiled[EXPERTS];
    rn_address *matrices;
    float *a, *bias, *out, *alone;
    size_t bytes;
    int32_t *ids;

    rig_open(&rig);
    assert_true(rn_kernels_of_type(type_id, &kernels));
    blocks = rig_weights(&rig, type_id, EXPERTS * rows, cols);
    bytes = rn_type_bytes(rn_type(type_id), cols) * rows;
    matrices = rig_device(&rig, EXPERTS * sizeof *matrices);
    for (i = 0; i < EXPERTS; i++) {
        tiled[i] = rig_tiled(&rig, type_id, blocks + i * bytes, rows, cols);
        matrices[i] = rig_at(tiled[i]);
    }
    a = rig_floats(&rig, (size_t)ROWS * inputs * cols, 1);
    bias = rig_floats(&rig, EXPERTS * rows, 1);
    out = rig_device(&rig, (size_t)ROWS * USED * rows * sizeof *out);
    alone = rig_device(&rig, rows * sizeof *alone);
    ids = rig_device(&rig, ROWS * USED * sizeof *ids);
    judge_open(&rig, &judge, ROWS, (uint32_t[]){inputs * cols, USED, USED * rows, 1});
    judge_weight(&judge, 0, type_id, cols, rows, EXPERTS, blocks);
    judge_weight(&judge, 1, RN_F32, rows, EXPERTS, 1, bias);
    memcpy(judge.memory[0], a, (size_t)ROWS * inputs * cols * sizeof *a);
    for (i = 0; i < ROWS * USED; i++)
        ((int32_t *)judge.memory[1])[i] = ids[i] = (int32_t)rig_random(&rig, EXPERTS);
    args = (struct rn_expert_matmul_args){.matrices = rig_at(matrices),
                                          .bias = rig_at(bias),
                                          .a = rig_at(a),
                                          .ids = rig_at(ids),
                                          .out = rig_at(out),
                                          .n_rows = ROWS,
                                          .used = USED,
                                          .experts = EXPERTS,
                                          .rows = rows,
                                          .cols = cols,
                                          .parts = 2,
                                          .per_expert_input = per_expert_input,
                                          .group = 1};
    rig_run(&rig, kernels.expert_matmul, &args);
    rig_expect("expert_matmul", out, judge_run(&judge, op, true), (size_t)ROWS * USED * rows, 1e-9);

    /* the bits of any product with that matrix */
    one = (struct rn_matmul_args){rig_at(tiled[ids[4]]),
                                  rig_at(bias + (size_t)ids[4] * rows),
                                  rig_at(a + (size_t)(per_expert_input ? 4 : 1) * cols),
                                  rig_at(alone),
                                  1,
                                  rows,
                                  cols,
                                  2,
                                  0,
                                  0,
                                  0};
    rig_few(&rig, &kernels, &one);
    assert_memory_equal(alone, out + 4 * rows, rows * sizeof *alone);
    expect_grouped(&rig, &kernels, &args, out);
    rig_close(&rig);
}

static void products(void **state)
{
    (void)state;
#define TYPE(id, name) products_of(id, 24, rn_type(id)->elements == 256 ? 512 : 192, id % 2 == 0);
#define TYPE_AS(id, name, as) TYPE(id, name)
    RN_KERNEL_TYPES(TYPE)
    RN_KERNEL_TYPES_AS(TYPE_AS)
#undef TYPE_AS
#undef TYPE
    products_of(RN_MXFP4, 24, 96, false);
    products_of(RN_Q4_K, 33, 768, true);
}

/* ---- By groups of pairs ---- */

struct grouping {
    uint32_t type_id, n_rows, used, experts, rows, cols, parts;
    bool per_expert_input, with_bias;
    int32_t all;   /* an expert that each row has first; -1: none */
    int32_t never; /* one that none has; -1: none */
    bool strange;  /* a third of the ids is no expert's */
};

static int32_t choose(struct rig *rig, const struct grouping *c, uint32_t j)
{
    int32_t id;

    if (c->all >= 0 && j == 0)
        return c->all;
    if (c->strange && rig_random(rig, 3) == 0)
        return rig_random(rig, 2) == 0 ? -1 - (int32_t)rig_random(rig, 5) : (int32_t)(c->experts + rig_random(rig, 5));
    do
        id = (int32_t)rig_random(rig, c->experts);
    while (id == c->never);
    return id;
}

/* The bits of expert_matmul, which takes pair for pair. */
static void group_of(const struct grouping *c)
{
    uint32_t inputs = c->per_expert_input ? c->used : 1, n = c->n_rows * c->used, i;
    struct rn_expert_matmul_args args = {.n_rows = c->n_rows,
                                         .used = c->used,
                                         .experts = c->experts,
                                         .rows = c->rows,
                                         .cols = c->cols,
                                         .parts = c->parts,
                                         .per_expert_input = c->per_expert_input,
                                         .group = 1};
    struct rn_typed_kernels kernels;
    rn_address *matrices, tiled;
    struct rig rig;
    float *out;
    int32_t *ids;

    rig_open(&rig);
    assert_true(rn_kernels_of_type(c->type_id, &kernels));
    tiled = rig_at(rig_tiled(&rig, c->type_id, rig_weights(&rig, c->type_id, c->experts * c->rows, c->cols),
                             c->experts * c->rows, c->cols));
    matrices = rig_device(&rig, c->experts * sizeof *matrices);
    for (i = 0; i < c->experts; i++) /* not in the order of experts */
        matrices[i] = tiled + i * 7 % c->experts * rn_tiled_bytes(c->type_id, c->rows, c->cols);
    ids = rig_device(&rig, n * sizeof *ids);
    for (i = 0; i < n; i++)
        ids[i] = choose(&rig, c, i % c->used);
    out = rig_device(&rig, (size_t)n * c->rows * sizeof *out);
    args.matrices = rig_at(matrices);
    args.bias = c->with_bias ? rig_at(rig_floats(&rig, (size_t)c->experts * c->rows, 1)) : 0;
    args.a = rig_at(rig_floats(&rig, (size_t)c->n_rows * inputs * c->cols, 1));
    args.ids = rig_at(ids);
    args.out = rig_at(out);
    rig_run(&rig, kernels.expert_matmul, &args);
    expect_grouped(&rig, &kernels, &args, out);
    rig_close(&rig);
}

static void groups(void **state)
{
    static const struct grouping cases[] = {
        {RN_Q8_0, 40, 3, 5, 16, 64, 2, false, true, 4, 1, false},  /* slots that are full, a group of more than 32 */
        {RN_Q4_K, 37, 2, 4, 32, 768, 2, true, true, -1, 0, true},  /* minima; more cells than stages; two tiles */
        {RN_BF16, 9, 2, 3, 304, 96, 1, false, false, -1, 2, true}, /* more than 256 rows; one part */
        {RN_MXFP4, 70, 4, 300, 16, 64, 2, false, false, -1, 299, true}, /* more experts than threads, more pairs */
        {RN_Q6_K, 2, 1, 9, 16, 2304, 2, false, false, -1, -1, false},   /* many cells a segment */
        {RN_F32, 33, 1, 1, 16, 32, 2, true, true, 0, -1, false},        /* one expert */
    };
    uint32_t i;

    (void)state;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++)
        group_of(&cases[i]);
}

/* What a step takes: no groups for a row, few pairs an expert, many. Nothing but these numbers decides. */
static void group_sizes(void **state)
{
    (void)state;
    assert_int_equal(rn_expert_group_of(1, 8, 8), 1);
    assert_int_equal(rn_expert_group_of(2, 8, 128), 1);
    assert_int_equal(rn_expert_group_of(4, 8, 128), RN_EXPERT_FEW);
    assert_int_equal(rn_expert_group_of(128, 8, 128), RN_EXPERT_FEW);
    assert_int_equal(rn_expert_group_of(129, 8, 128), RN_EXPERT_MANY);
}

/* An id that no ROUTE gives touches nothing. */
static void strange_ids(void **state)
{
    struct rig rig;
    struct rn_expert_matmul_args args;
    rn_address *matrices;
    float *out;
    int32_t *ids;
    uint32_t i;

    (void)state;
    rig_open(&rig);
    matrices = rig_device(&rig, sizeof *matrices);
    matrices[0] = rig_at(rig_tiled(&rig, RN_Q8_0, rig_weights(&rig, RN_Q8_0, 16, 32), 16, 32));
    ids = rig_device(&rig, 2 * sizeof *ids);
    ids[0] = -1;
    ids[1] = 1;
    out = rig_floats(&rig, 32, 1);
    memset(out, 0, 32 * sizeof *out);
    args = (struct rn_expert_matmul_args){.matrices = rig_at(matrices),
                                          .a = rig_at(rig_floats(&rig, 32, 1)),
                                          .ids = rig_at(ids),
                                          .out = rig_at(out),
                                          .n_rows = 1,
                                          .used = 2,
                                          .experts = 1,
                                          .rows = 16,
                                          .cols = 32,
                                          .parts = 2,
                                          .group = 1};
    rig_run(&rig, RN_KERNEL_expert_matmul_q8_0, &args);
    for (i = 0; i < 32; i++)
        assert_true(out[i] == 0);
    rig_close(&rig);
}

/* ---- Their sum ---- */

static void sums(void **state)
{
    enum { USED = 4, WIDTH = 70 };
    struct rig rig;
    struct judge judge;
    struct rn_expert_sum_args args;
    float *a, *weights, *out;

    (void)state;
    rig_open(&rig);
    a = rig_floats(&rig, ROWS * USED * WIDTH, 1);
    weights = rig_floats(&rig, ROWS * USED, 1);
    out = rig_device(&rig, ROWS * WIDTH * sizeof *out);
    judge_open(&rig, &judge, ROWS, (uint32_t[]){USED * WIDTH, USED, WIDTH, 1});
    memcpy(judge.memory[0], a, ROWS * USED * WIDTH * sizeof *a);
    memcpy(judge.memory[1], weights, ROWS * USED * sizeof *weights);
    args = (struct rn_expert_sum_args){rig_at(a), rig_at(weights), rig_at(out), ROWS, USED, WIDTH};
    rig_run(&rig, RN_KERNEL_expert_sum, &args);
    rig_expect(
        "expert_sum", out,
        judge_run(&judge, (struct rn_op){.kind = RN_OP_EXPERT_SUM, .used = USED, .weight = -1, .bias = -1}, true),
        ROWS * WIDTH, 1e-12);
    args.weights = 0;
    rig_run(&rig, RN_KERNEL_expert_sum, &args);
    rig_expect("sum", out,
               judge_run(&judge, (struct rn_op){.kind = RN_OP_SUM, .used = USED, .weight = -1, .bias = -1}, false),
               ROWS * WIDTH, 1e-12);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(route),       cmocka_unit_test(products),    cmocka_unit_test(groups),
        cmocka_unit_test(group_sizes), cmocka_unit_test(strange_ids), cmocka_unit_test(sums),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
