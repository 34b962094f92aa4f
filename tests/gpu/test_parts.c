/* Ops over parts of rows and the products of heads, against the reference; and that a row's bits are the same alone and
 * among others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "tests/gpu/rigs/rig.h"
#include "model/op_info.h"
#include "model/quant/quant.h"

enum { ROWS = 5 };

/* What b is. */
enum operand { NOTHING, FLOATS, IDS, POSITIONS, TOKENS };

/* ---- Values that come by themselves ---- */

struct part_case {
    enum rn_op_kind kind;
    enum rn_part part;
    uint32_t a_width, b_width, out_width, weight_n;
    enum operand b;
    struct rn_op op; /* what it says of parts and numbers */
};

static const struct part_case part_cases[] = {
    {RN_OP_CONCAT, RN_PART_CONCAT, 33, 0, 33, 0, NOTHING, {.heads = 0}},
    {RN_OP_CONCAT, RN_PART_CONCAT, 30, 1030, 1060, 0, FLOATS, {.heads = 1}},
    {RN_OP_CONCAT, RN_PART_CONCAT, 24, 9, 33, 0, FLOATS, {.heads = 3}},
    {RN_OP_SPLIT, RN_PART_SPLIT, 48, 0, 21, 0, NOTHING, {.heads = 3, .group = 5, .k_dim = 7}},
    {RN_OP_SPLIT, RN_PART_SPLIT, 1100, 0, 1090, 0, NOTHING, {.heads = 1, .group = 10, .k_dim = 1090}},
    {RN_OP_REPEAT, RN_PART_REPEAT, 35, 0, 105, 0, NOTHING, {.heads = 5, .used = 3}},
    {RN_OP_REPEAT, RN_PART_REPEAT, 300, 0, 1200, 0, NOTHING, {.heads = 1, .used = 4}},
    {RN_OP_MIX, RN_PART_MIX, 60, 16, 60, 0, FLOATS, {.heads = 4, .scale = 1}},
    {RN_OP_MIX, RN_PART_MIX, 17, 1, 17, 0, FLOATS, {.heads = 1}},
    {RN_OP_SPREAD, RN_PART_SPREAD, 37, 4, 148, 0, FLOATS, {.scale = 1}},
    {RN_OP_LERP, RN_PART_LERP, 33, 33, 99, 99, FLOATS, {0}},
    {RN_OP_TIMES_WEIGHT, RN_PART_TIMES_WEIGHT, 90, 0, 90, 30, NOTHING, {0}},
    {RN_OP_TIMES_WEIGHT, RN_PART_TIMES_WEIGHT, 1500, 0, 1500, 1, NOTHING, {0}},
    {RN_OP_ADD_WEIGHT, RN_PART_ADD_WEIGHT, 90, 0, 90, 90, NOTHING, {0}},
    {RN_OP_OVER_WEIGHT, RN_PART_OVER_WEIGHT, 90, 0, 90, 90, NOTHING, {0}},
    {RN_OP_OVER_WEIGHT, RN_PART_OVER_WEIGHT, 90, 0, 90, 30, NOTHING, {0}},
    {RN_OP_EXPERT_FACTOR, RN_PART_EXPERT_FACTOR, 99, 3, 99, 7, IDS, {.used = 3, .experts = 7}},
    {RN_OP_TOKEN, RN_PART_TOKEN, 1, 1, 1, 0, TOKENS, {0}},
    {RN_OP_SIGNED_ROOT, RN_PART_SIGNED_ROOT, 70, 0, 70, 0, NOTHING, {.scale = 0.5f, .eps = 0.5}},
    {RN_OP_TEMPER, RN_PART_TEMPER, 65, 1, 65, 0, POSITIONS, {.scale = 0.1f, .span = 8, .ahead = 1}},
};

/* Row r's b, as the device and as the reference has it. */
static void fill_b(struct rig *rig, struct judge *judge, const struct part_case *c, void *b)
{
    for (uint32_t i = 0; i < ROWS * c->b_width; i++) {
        uint32_t number = c->b == IDS ? rig_random(rig, c->op.experts) : i * i * i * 1000;

        if (c->b == FLOATS)
            ((float *)b)[i] = rig_float(rig, 2);
        else
            ((uint32_t *)b)[i] = number;
        if (c->b == POSITIONS)
            judge->step.rows[i].position = number;
        if (c->b == TOKENS)
            judge->step.rows[i].token = (int32_t)number;
    }
    memcpy(judge->memory[1], b, (size_t)ROWS * c->b_width * sizeof(float));
}

static void part_of(const struct part_case *c)
{
    struct rig rig;
    struct judge judge;
    struct rn_op op = c->op;
    float *a, *weight, *out, *alone;
    struct rn_part_args args;
    uint32_t last = ROWS - 1;
    void *b;

    rig_open(&rig);
    judge_open(&rig, &judge, ROWS, (uint32_t[]){c->a_width, c->b_width, c->out_width, 1});
    a = rig_floats(&rig, (size_t)ROWS * c->a_width, 3);
    b = rig_device(&rig, ((size_t)ROWS * c->b_width + 1) * sizeof(float));
    weight = rig_floats(&rig, c->weight_n + 1, 1);
    out = rig_device(&rig, (size_t)ROWS * c->out_width * sizeof *out);
    alone = rig_device(&rig, c->out_width * sizeof *alone);
    memcpy(judge.memory[0], a, (size_t)ROWS * c->a_width * sizeof *a);
    fill_b(&rig, &judge, c, b);
    op.kind = c->kind;
    op.weight = c->weight_n > 0 ? 0 : -1;
    op.bias = -1;
    judge_weight(&judge, 0, RN_F32, c->weight_n, 1, 1, weight);
    args = (struct rn_part_args){.a = rig_at(a),
                                 .b = c->b == NOTHING ? 0 : rig_at(b),
                                 .weight = c->weight_n > 0 ? rig_at(weight) : 0,
                                 .out = rig_at(out),
                                 .kind = c->part,
                                 .n_rows = ROWS,
                                 .width = c->out_width,
                                 .a_width = c->a_width,
                                 .b_width = c->b_width,
                                 .weight_n = c->weight_n,
                                 .parts = op.heads == 0 ? 1 : op.heads,
                                 .first = op.group,
                                 .used = op.used,
                                 .span = op.span,
                                 .ahead = op.ahead,
                                 .scale = op.scale};
    rig_run(&rig, RN_KERNEL_part, &args);
    rig_expect(rn_op_name(c->kind), out, judge_run(&judge, op, c->b == FLOATS || c->b == IDS),
               (size_t)ROWS * c->out_width, 1e-12);
    args.a += (uint64_t)last * c->a_width * sizeof *a;
    args.b += args.b == 0 ? 0 : (uint64_t)last * c->b_width * sizeof(float);
    args.out = rig_at(alone);
    args.n_rows = 1;
    rig_run(&rig, RN_KERNEL_part, &args);
    assert_memory_equal(alone, out + (size_t)last * c->out_width, c->out_width * sizeof *out);
    rig_close(&rig);
}

static void parts(void **state)
{
    uint32_t seen = 1u << RN_PART_BAR, i; /* which bar_in_place has */

    (void)state;
    for (i = 0; i < sizeof part_cases / sizeof part_cases[0]; i++) {
        part_of(&part_cases[i]);
        seen |= 1u << part_cases[i].part;
    }
    assert_int_equal(seen, (1u << RN_PART_KINDS) - 1);
}

/* Rows that n-grams choose, to the bit: of tokens, of none, and of one behind which nothing counts. */
static void rows_of_grams(uint32_t most, uint32_t heads)
{
    struct rig rig;
    struct judge judge;
    struct rn_grams_args args = {.n_rows = ROWS, .most = most, .heads = heads, .end = 3};
    struct rn_op op = {.kind = RN_OP_GRAMS, .weight = -1, .bias = -1};
    int32_t *out;
    float *a;

    rig_open(&rig);
    a = rig_device(&rig, (size_t)ROWS * most * sizeof *a);
    out = rig_device(&rig, (size_t)ROWS * heads * sizeof *out);
    judge_open(&rig, &judge, ROWS, (uint32_t[]){most, 1, heads, 1});
    for (uint32_t i = 0; i < ROWS * most; i++)
        a[i] = i % 3 == 0 ? (float)rig_random(&rig, 1 << 24) : (float)rig_random(&rig, 6);
    memcpy(judge.memory[0], a, (size_t)ROWS * most * sizeof *a);
    for (uint32_t i = 0; i < most; i++)
        args.factors[i] = UINT64_C(0x9e3779b97f4a7c15) * (i + 1);
    for (uint32_t i = 0; i < heads; i++) {
        args.sizes[i] = 1000003 + 2 * i;
        args.offsets[i] = i * 1000200;
    }
    judge.plan.grams.most = most;
    judge.plan.grams.heads = heads;
    judge.plan.grams.end = args.end;
    memcpy(judge.plan.grams.factors, args.factors, sizeof args.factors);
    memcpy(judge.plan.grams.sizes, args.sizes, sizeof args.sizes);
    memcpy(judge.plan.grams.offsets, args.offsets, sizeof args.offsets);
    args.a = rig_at(a);
    args.out = rig_at(out);
    rig_run(&rig, RN_KERNEL_grams, &args);
    assert_memory_equal(out, judge_run(&judge, op, false), (size_t)ROWS * heads * sizeof *out);
    rig_close(&rig);
}

static void grams(void **state)
{
    (void)state;
    rows_of_grams(2, 1);
    rows_of_grams(3, 16);
    rows_of_grams(8, 63);
}

/* A TEMPER writes where it reads, and an id that no ROUTE gives makes zeros. */
static void parts_in_place_and_strange_ids(void **state)
{
    struct rig rig;
    struct rn_part_args args;
    uint32_t *positions, i;
    float *a, *weight;
    int32_t *ids;

    (void)state;
    rig_open(&rig);
    positions = rig_device(&rig, 2 * sizeof *positions);
    positions[0] = positions[1] = UINT32_MAX; /* the sum with `ahead` is beyond 32 bits */
    a = rig_floats(&rig, 40, 1);
    for (i = 0; i < 40; i++)
        a[i] = 2;
    args = (struct rn_part_args){.a = rig_at(a),
                                 .b = rig_at(positions),
                                 .out = rig_at(a),
                                 .kind = RN_PART_TEMPER,
                                 .n_rows = 2,
                                 .width = 20,
                                 .a_width = 20,
                                 .parts = 1,
                                 .span = 1u << 31,
                                 .ahead = 1,
                                 .scale = 1};
    rig_run(&rig, RN_KERNEL_part, &args);
    for (i = 0; i < 40; i++)
        assert_true(a[i] > 4.197f && a[i] < 4.198f); /* 2 (1 + ln 3) */
    weight = rig_floats(&rig, 3, 1);
    ids = rig_device(&rig, 2 * sizeof *ids);
    ids[0] = -1;
    ids[1] = 3;
    args = (struct rn_part_args){.a = rig_at(a),
                                 .b = rig_at(ids),
                                 .weight = rig_at(weight),
                                 .out = rig_at(a),
                                 .kind = RN_PART_EXPERT_FACTOR,
                                 .n_rows = 2,
                                 .width = 20,
                                 .a_width = 20,
                                 .b_width = 1,
                                 .weight_n = 3,
                                 .parts = 1,
                                 .used = 1};
    rig_run(&rig, RN_KERNEL_part, &args);
    for (i = 0; i < 40; i++)
        assert_true(a[i] == 0);
    rig_close(&rig);
}

/* Of each row some values, across the places where blocks meet; all else stays to the bit. */
static void bar_in_place(void **state)
{
    enum { WIDTH = 1300, FROM = 1020, N = 9 };
    struct rig rig;
    struct rn_part_args args;
    float *a, *before;

    (void)state;
    rig_open(&rig);
    a = rig_floats(&rig, (size_t)ROWS * WIDTH, 3);
    before = rig_device(&rig, (size_t)ROWS * WIDTH * sizeof *before);
    memcpy(before, a, (size_t)ROWS * WIDTH * sizeof *a);
    args = (struct rn_part_args){.a = rig_at(a),
                                 .out = rig_at(a),
                                 .kind = RN_PART_BAR,
                                 .n_rows = ROWS,
                                 .width = WIDTH,
                                 .a_width = WIDTH,
                                 .parts = 1,
                                 .first = FROM,
                                 .used = N};
    rig_run(&rig, RN_KERNEL_part, &args);
    for (uint32_t i = 0; i < ROWS * WIDTH; i++)
        assert_true(a[i] == (i % WIDTH >= FROM && i % WIDTH < FROM + N ? -INFINITY : before[i]));
    rig_close(&rig);
}

/* ---- Sums over parts and rows ---- */

static void part_sum_of(uint32_t width, uint32_t parts_of_row)
{
    struct rig rig;
    struct judge judge;
    struct rn_part_sum_args args;
    float *a, *out, *alone;

    rig_open(&rig);
    a = rig_floats(&rig, (size_t)ROWS * width, 3);
    out = rig_device(&rig, (size_t)ROWS * parts_of_row * sizeof *out);
    alone = rig_device(&rig, parts_of_row * sizeof *alone);
    judge_open(&rig, &judge, ROWS, (uint32_t[]){width, 1, parts_of_row, 1});
    memcpy(judge.memory[0], a, (size_t)ROWS * width * sizeof *a);
    args = (struct rn_part_sum_args){rig_at(a), rig_at(out), ROWS, width, parts_of_row};
    rig_run(&rig, RN_KERNEL_part_sum, &args);
    rig_expect("part_sum", out,
               judge_run(&judge,
                         (struct rn_op){.kind = RN_OP_PART_SUM, .heads = parts_of_row, .weight = -1, .bias = -1},
                         false),
               (size_t)ROWS * parts_of_row, 1e-11);
    args = (struct rn_part_sum_args){rig_at(a + (size_t)3 * width), rig_at(alone), 1, width, parts_of_row};
    rig_run(&rig, RN_KERNEL_part_sum, &args);
    assert_memory_equal(alone, out + (size_t)3 * parts_of_row, parts_of_row * sizeof *out);
    rig_close(&rig);
}

static void tail_of(uint32_t width, float scale)
{
    struct rig rig;
    struct judge judge;
    struct rn_tail_args args;
    float *a, *out, *alone;

    rig_open(&rig);
    a = rig_floats(&rig, (size_t)ROWS * width, 3);
    out = rig_device(&rig, (size_t)ROWS * width * sizeof *out);
    alone = rig_device(&rig, width * sizeof *alone);
    judge_open(&rig, &judge, ROWS, (uint32_t[]){width, 1, width, 1});
    memcpy(judge.memory[0], a, (size_t)ROWS * width * sizeof *a);
    args = (struct rn_tail_args){rig_at(a), rig_at(out), ROWS, width, scale};
    rig_run(&rig, RN_KERNEL_tail, &args);
    rig_expect("tail", out,
               judge_run(&judge, (struct rn_op){.kind = RN_OP_TAIL, .scale = scale, .weight = -1, .bias = -1}, false),
               (size_t)ROWS * width, 1e-11);
    args = (struct rn_tail_args){rig_at(a + 2 * width), rig_at(alone), 1, width, scale};
    rig_run(&rig, RN_KERNEL_tail, &args);
    assert_memory_equal(alone, out + 2 * width, width * sizeof *out);
    rig_close(&rig);
}

static void resize_of(uint32_t width, uint32_t group, uint32_t b_width)
{
    struct rig rig;
    struct judge judge;
    struct rn_resize_args args;
    float *a, *b, *out, *alone;

    rig_open(&rig);
    a = rig_floats(&rig, (size_t)ROWS * width, 3);
    b = rig_floats(&rig, (size_t)ROWS * b_width, 1);
    out = rig_device(&rig, (size_t)ROWS * width * sizeof *out);
    alone = rig_device(&rig, width * sizeof *alone);
    judge_open(&rig, &judge, ROWS, (uint32_t[]){width, b_width, width, 1});
    memcpy(judge.memory[0], a, (size_t)ROWS * width * sizeof *a);
    memcpy(judge.memory[1], b, (size_t)ROWS * b_width * sizeof *b);
    args = (struct rn_resize_args){rig_at(a), rig_at(b), rig_at(out), ROWS, width, group, b_width};
    rig_run(&rig, RN_KERNEL_resize, &args);
    rig_expect("resize", out,
               judge_run(&judge, (struct rn_op){.kind = RN_OP_RESIZE, .group = group, .weight = -1, .bias = -1}, true),
               (size_t)ROWS * width, 1e-12);
    args = (struct rn_resize_args){
        rig_at(a + 4 * width), rig_at(b + 4 * b_width), rig_at(alone), 1, width, group, b_width};
    rig_run(&rig, RN_KERNEL_resize, &args);
    assert_memory_equal(alone, out + 4 * width, width * sizeof *out);
    rig_close(&rig);
}

/* Values of few tokens, with -infinity for all others; also for a number that is no token's. */
static void scatter_of(uint32_t a_width, uint32_t width)
{
    struct rig rig;
    struct judge judge;
    struct rn_scatter_args args;
    float *a, *to, *out, *alone;

    rig_open(&rig);
    a = rig_floats(&rig, (size_t)ROWS * a_width, 3);
    to = rig_device(&rig, a_width * sizeof *to);
    out = rig_device(&rig, (size_t)ROWS * width * sizeof *out);
    alone = rig_device(&rig, width * sizeof *alone);
    for (uint32_t i = 0; i < a_width; i++)
        to[i] = (float)((uint64_t)(a_width - 1 - i) * width / a_width); /* each another */
    to[a_width / 2] = (float)(width + 1);
    judge_open(&rig, &judge, ROWS, (uint32_t[]){a_width, 1, width, 1});
    memcpy(judge.memory[0], a, (size_t)ROWS * a_width * sizeof *a);
    judge_weight(&judge, 0, RN_F32, a_width, 1, 1, to);
    args = (struct rn_scatter_args){rig_at(a), rig_at(to), rig_at(out), ROWS, a_width, width};
    rig_run(&rig, RN_KERNEL_scatter, &args);
    assert_memory_equal(out, judge_run(&judge, (struct rn_op){.kind = RN_OP_SCATTER, .weight = 0, .bias = -1}, false),
                        (size_t)ROWS * width * sizeof *out);
    args = (struct rn_scatter_args){rig_at(a + (size_t)3 * a_width), rig_at(to), rig_at(alone), 1, a_width, width};
    rig_run(&rig, RN_KERNEL_scatter, &args);
    assert_memory_equal(alone, out + (size_t)3 * width, width * sizeof *out);
    rig_close(&rig);
}

static void scatters(void **state)
{
    (void)state;
    scatter_of(1, 1);
    scatter_of(10, 33);
    scatter_of(300, 4096);
    scatter_of(700, 9001);
    scatter_of(900, 900);
}

static void sums(void **state)
{
    (void)state;
    part_sum_of(35, 5);
    part_sum_of(9, 9);
    part_sum_of(700, 1);
    part_sum_of(264, 3);
    tail_of(2, 0.5f);
    tail_of(300, 1.6f);
    tail_of(1000, -0.25f);
    resize_of(300, 300, 300);
    resize_of(96, 32, 700);
    resize_of(15, 3, 1);
}

/* ---- Streams, and what rows look at ---- */

static void hyper_of(uint32_t n, uint32_t turns)
{
    uint32_t width = (2 + n) * n, last = ROWS - 1;
    struct rig rig;
    struct judge judge;
    struct rn_hyper_args args;
    struct rn_op op = {.kind = RN_OP_HYPER,
                       .heads = n,
                       .turns = turns,
                       .eps = 0x1p-7,
                       .factors = {0.5f, -1.5f, 0.75f},
                       .weight = 0,
                       .bias = -1};
    float *a, *base, *out, *alone;

    rig_open(&rig);
    a = rig_floats(&rig, (size_t)ROWS * width, 3);
    base = rig_floats(&rig, width, 1);
    out = rig_device(&rig, (size_t)ROWS * width * sizeof *out);
    alone = rig_device(&rig, width * sizeof *alone);
    judge_open(&rig, &judge, ROWS, (uint32_t[]){width, 1, width, width});
    judge_weight(&judge, 0, RN_F32, width, 1, 1, base);
    memcpy(judge.memory[0], a, (size_t)ROWS * width * sizeof *a);
    args = (struct rn_hyper_args){rig_at(a), rig_at(base), rig_at(out), ROWS, n, turns, {0.5f, -1.5f, 0.75f}, 0x1p-7f};
    rig_run(&rig, RN_KERNEL_hyper, &args);
    rig_expect("hyper", out, judge_run(&judge, op, false), (size_t)ROWS * width, 1e-12);
    args.a = rig_at(a + (size_t)last * width);
    args.out = rig_at(alone);
    args.n_rows = 1;
    rig_run(&rig, RN_KERNEL_hyper, &args);
    assert_memory_equal(alone, out + (size_t)last * width, width * sizeof *out);
    rig_close(&rig);
}

static void streams(void **state)
{
    (void)state;
    hyper_of(4, 3);
    hyper_of(1, 0);
    hyper_of(33, 20); /* more than a warp has lanes */
}

static void reach_of(uint32_t window, uint32_t per, uint32_t used, uint32_t n_chosen)
{
    struct rig rig;
    struct judge judge;
    struct rn_reach_args args;
    struct rn_op op = {.kind = RN_OP_REACH, .window = window, .per = per, .used = used, .weight = -1, .bias = -1};
    int32_t *chosen, *out;
    uint32_t *positions;

    rig_open(&rig);
    judge_open(&rig, &judge, ROWS, (uint32_t[]){n_chosen > 0 ? n_chosen : 1, 1, used, 1});
    chosen = rig_device(&rig, ((size_t)ROWS * n_chosen + 1) * sizeof *chosen);
    positions = rig_device(&rig, ROWS * sizeof *positions);
    out = rig_device(&rig, (size_t)ROWS * used * sizeof *out);
    for (uint32_t r = 0; r < ROWS; r++) {
        judge.step.rows[r].position = positions[r] = r * r * 7;
        for (uint32_t i = 0; i < n_chosen; i++) /* every other block, and what is behind it */
            chosen[r * n_chosen + i] = i < r * per + 1 ? (int32_t)(i / per * 2 * per + i % per) : -1;
    }
    memcpy(judge.memory[0], chosen, (size_t)ROWS * n_chosen * sizeof *chosen);
    args = (struct rn_reach_args){
        n_chosen > 0 ? rig_at(chosen) : 0, rig_at(positions), rig_at(out), ROWS, window, per, used, n_chosen};
    rig_run(&rig, RN_KERNEL_reach, &args);
    judge_run(&judge, op, false);
    if (n_chosen == 0) { /* the judge's bench has an input for every op */
        op.out = 2;
        op.a = op.b = op.out2 = -1;
        rn_reference_op(&judge.ref, &op, &judge.step);
    }
    assert_memory_equal(out, judge.memory[2], (size_t)ROWS * used * sizeof *out);
    rig_close(&rig);
}

static void reaches(void **state)
{
    (void)state;
    reach_of(10, 4, 10 + 28, 0);
    reach_of(1, 2, 300, 0);
    reach_of(200, 4, 113 + 8, 35);
    reach_of(3, 4, 3 + 8, 35);
}

/* ---- Products of heads ---- */

struct heads_case {
    uint32_t type, heads, rows, cols, first, dim, n_rows;
};

/* The matrices of all heads, tiled one by one. */
static unsigned char *tiled_heads(struct rig *rig, const struct heads_case *c, unsigned char *blocks)
{
    size_t matrix = rn_tiled_bytes(c->type, c->rows, c->cols),
           bytes = rn_type_bytes(rn_type(c->type), c->cols) * c->rows;
    unsigned char *tiled = rig_device(rig, c->heads * matrix);
    struct rn_typed_kernels kernels;

    assert_true(rn_kernels_of_type(c->type, &kernels));
    for (uint32_t h = 0; h < c->heads; h++) {
        struct rn_tile_args tile = {rig_at(blocks + h * bytes), rig_at(tiled + h * matrix), c->rows, c->cols};

        rig_run(rig, kernels.tile, &tile);
    }
    return tiled;
}

static void heads_of(const struct heads_case *c, bool is_sum)
{
    uint32_t a_width = c->heads * (is_sum ? c->dim : c->cols), out_width = c->heads * (is_sum ? c->cols : c->dim);
    uint32_t last = c->n_rows - 1;
    struct rn_op op = {.kind = is_sum ? RN_OP_HEAD_SUM : RN_OP_HEAD_MATMUL,
                       .heads = c->heads,
                       .group = c->first,
                       .k_dim = c->dim,
                       .weight = 0,
                       .bias = -1};
    struct rn_typed_kernels kernels;
    struct rn_head_args args;
    unsigned char *blocks;
    float *a, *out, *alone;
    enum rn_kernel kernel;
    struct judge judge;
    struct rig rig;

    rig_open(&rig);
    assert_true(rn_kernels_of_type(c->type, &kernels));
    kernel = is_sum ? kernels.head_sum : kernels.head_matmul;
    blocks = rig_weights(&rig, c->type, c->heads * c->rows, c->cols);
    a = rig_floats(&rig, (size_t)c->n_rows * a_width, 1);
    out = rig_device(&rig, (size_t)c->n_rows * out_width * sizeof *out);
    alone = rig_device(&rig, out_width * sizeof *alone);
    judge_open(&rig, &judge, c->n_rows, (uint32_t[]){a_width, 1, out_width, c->cols});
    judge_weight(&judge, 0, c->type, c->cols, c->rows, c->heads, blocks);
    memcpy(judge.memory[0], a, (size_t)c->n_rows * a_width * sizeof *a);
    args = (struct rn_head_args){rig_at(tiled_heads(&rig, c, blocks)),
                                 rig_at(a),
                                 rig_at(out),
                                 c->n_rows,
                                 c->heads,
                                 c->rows,
                                 c->cols,
                                 c->first,
                                 c->dim,
                                 2};
    rig_run(&rig, kernel, &args);
    rig_expect(rn_op_name(op.kind), out, judge_run(&judge, op, false), (size_t)c->n_rows * out_width, 1e-9);
    args.a = rig_at(a + (size_t)last * a_width);
    args.out = rig_at(alone);
    args.n_rows = 1;
    rig_run(&rig, kernel, &args);
    assert_memory_equal(alone, out + (size_t)last * out_width, out_width * sizeof *out);
    rig_close(&rig);
}

static void heads(void **state)
{
    static const struct heads_case cases[] = {
        {RN_F32, 3, 40, 72, 0, 40, 5},   /* whole matrices */
        {RN_F32, 2, 45, 36, 13, 19, 9},  /* rows within tiles, and more than a block has */
        {RN_Q8_0, 2, 100, 96, 17, 83, 1} /* a row, and many tiles */
    };
    uint32_t i;

    (void)state;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        heads_of(&cases[i], false);
        heads_of(&cases[i], true);
    }
#define TYPE(id, name)                                                                                 \
    heads_of(&(struct heads_case){id, 2, 30, rn_type(id)->elements > 32 ? 256 : 96, 3, 20, 2}, false); \
    heads_of(&(struct heads_case){id, 2, 30, rn_type(id)->elements > 32 ? 256 : 96, 3, 20, 2}, true);
    RN_KERNEL_TYPES(TYPE)
#undef TYPE
}

/* Parts of no values: the sum is 0. */
static void sums_of_nothing(void **state)
{
    struct heads_case c = {RN_F32, 2, 16, 32, 0, 0, 3};
    struct rn_head_args args;
    struct rig rig;
    float *out;

    (void)state;
    rig_open(&rig);
    out = rig_device(&rig, 3 * 64 * sizeof *out);
    args = (struct rn_head_args){
        rig_at(tiled_heads(&rig, &c, rig_weights(&rig, RN_F32, 32, 32))), 0, rig_at(out), 3, 2, 16, 32, 0, 0, 2};
    rig_run(&rig, RN_KERNEL_head_sum_f32, &args);
    for (uint32_t i = 0; i < 3 * 64; i++)
        assert_true(out[i] == 0);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts),        cmocka_unit_test(parts_in_place_and_strange_ids),
        cmocka_unit_test(bar_in_place), cmocka_unit_test(scatters),
        cmocka_unit_test(grams),        cmocka_unit_test(sums),
        cmocka_unit_test(streams),      cmocka_unit_test(reaches),
        cmocka_unit_test(heads),        cmocka_unit_test(sums_of_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
