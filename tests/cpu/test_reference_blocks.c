/* Ops of the reference backend that DeepSeek-V4 has alone, against values worked out by hand: coefficients of streams,
 * tables of experts, rows made of blocks of positions, and attention to positions and blocks beside each other. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cpu/op_bench.h"

static void ids_of_tokens(void **state)
{
    static const int32_t table[] = {3, 1, 0, 2, 7, 7};
    struct rn_op op = op_of(RN_OP_EMBED_IDS);

    (void)state;
    widths(1, 1, 1);
    b.slots[3] = (struct rn_slot){.width = 2, .is_i32 = true};
    weight(0, RN_I32, 2, 3, 1, table);
    op.weight = 0;
    op.out = 3;
    op.a = -1;
    b.step.n_rows = 2;
    b.rows[0].token = 2;
    b.rows[1].token = 0;
    rn_reference_op(&b.ref, &op, &b.step);
    assert_memory_equal(b.ids, ((int32_t[]){7, 7, 3, 1}), 4 * sizeof *b.ids);
}

/* Two streams. The factors take p and q to 0 and log 3, whose sigmoids are 1/2 and 3/4. */
static void coefficients(void **state)
{
    const float base[] = {0.5f, -1, 0, 0, 0, 0, 0, 0};
    struct rn_op op = op_of(RN_OP_HYPER);
    double x, y;

    (void)state;
    widths(8, 1, 8);
    put(0, 8, -0.25, 0.5, log(3) / 4, 0.0, log(3), 0.0, 0.0, 0.0);
    weight(0, RN_F32, 8, 1, 1, base);
    op.weight = 0;
    op.heads = 2;
    op.factors[0] = 2;
    op.factors[1] = 4;
    op.factors[2] = 1;
    op.eps = 0.125;
    op.turns = 1;
    run(&op);
    /* softmaxes (3/4, 1/4) and (1/2, 1/2), plus 1/8: columns sum to 12/8 and 1, and are divided by 1/8 more */
    expect(2, 8, 0.625, 0.625, 1.5, 1.0, 7.0 / 13, 5.0 / 13, 3.0 / 9, 5.0 / 9);
    op.turns = 2; /* rows, then columns once more */
    x = 7.0 / 13 + 3.0 / 9 + 0.125;
    y = 5.0 / 13 + 5.0 / 9 + 0.125;
    run(&op);
    expect(2, 8, 0.625, 0.625, 1.5, 1.0, 7 / (13 * x) / (7 / (13 * x) + 5 / (13 * y) + 0.125),
           5 / (13 * y) / (7 / (13 * x) + 5 / (13 * y) + 0.125), 3 / (9 * x) / (3 / (9 * x) + 5 / (9 * y) + 0.125),
           5 / (9 * y) / (3 / (9 * x) + 5 / (9 * y) + 0.125));
}

static void expect_list(const int32_t *wanted, uint32_t n)
{
    assert_memory_equal(b.ids, wanted, n * sizeof *wanted);
}

static void what_is_in_reach(void **state)
{
    enum { FAR = RN_SECOND };
    struct rn_op op = op_of(RN_OP_REACH);

    (void)state;
    b.slots[3] = (struct rn_slot){.width = 6, .is_i32 = true};
    op.out = 3;
    op.a = -1;
    op.window = 3;
    op.per = 2;
    op.used = 6;
    b.step.n_rows = 1;
    b.rows[0].position = 0;
    rn_reference_op(&b.ref, &op, &b.step);
    expect_list((int32_t[]){0, -1, -1, -1, -1, -1}, 6);
    b.rows[0].position = 6;
    rn_reference_op(&b.ref, &op, &b.step);
    expect_list((int32_t[]){4, 5, 6, 1 | FAR, 3 | FAR, 5 | FAR}, 6);
    memcpy(b.f[0], (int32_t[]){2, 3, 6, -1, 0}, 5 * sizeof(int32_t)); /* one whole block, and what is behind it */
    b.slots[0] = (struct rn_slot){.width = 5, .is_i32 = true};
    op.a = 0;
    rn_reference_op(&b.ref, &op, &b.step);
    expect_list((int32_t[]){4, 5, 6, 3 | FAR, -1, -1}, 6);
}

/* Blocks of two positions; values are the positions' own, and a weight of 0 counts as its neighbour's. */
static void rows_of_blocks(void **state)
{
    static const float ape[] = {0, 0, 0, 0};
    struct rn_op op = op_of(RN_OP_COMPRESS);
    struct rn_state_layer layer = {.n = 16};
    float states[16] = {0};
    uint32_t slots[1] = {0};
    const double e = exp(1);

    (void)state;
    b.plan.state_layers = &layer;
    b.plan.state_bytes = sizeof states;
    b.ref.states = (unsigned char *)states;
    b.step.states = slots;
    widths(2, 2, 1);
    weight(0, RN_F32, 2, 2, 1, ape);
    op.b = 1;
    op.weight = 0;
    op.layer = 0;
    op.per = 2;
    op.k_dim = 1;
    b.step.n_rows = 3;
    for (uint32_t r = 0; r < 3; r++)
        b.rows[r].position = r;
    put(0, 6, 10.0, 1.0, 20.0, 2.0, 30.0, 3.0); /* fronts count for the block behind, backs for one's own */
    put(1, 6, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0);
    run(&op);
    expect(2, 3, 0.0, 1.5, 0.0);
    b.step.n_rows = 1;
    b.rows[0].position = 3;
    put(0, 2, 40.0, 4.0);
    put(1, 2, 0.0, 1.0);
    run(&op); /* of the state: 10 and 20 by 1 and e, and 3; of the row 4 by e */
    expect(2, 1, (10 + 20 * e + 3 + 4 * e) / (2 + 2 * e));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(ids_of_tokens, setup),
        cmocka_unit_test_setup(coefficients, setup),
        cmocka_unit_test_setup(what_is_in_reach, setup),
        cmocka_unit_test_setup(rows_of_blocks, setup),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
