/* Rotary positions, attention and the cache of the reference backend against values worked out by hand. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cpu/op_bench.h"

static void rope(void **state)
{
    const double pi = acos(-1), r = sqrt(0.5);
    struct rn_op op = op_of(RN_OP_ROPE);

    (void)state;
    widths(5, 5, 5);
    b.rope.dims = 4;
    b.rope.magnitude = 1;
    b.inv_freq[0] = pi / 2;
    b.inv_freq[1] = pi / 4;
    op.heads = 1;
    op.k_dim = 5;
    b.step.n_rows = 3;
    b.rows[1].position = 1;
    b.rows[2].position = 2;
    put(0, 15, 1.0, 2.0, 3.0, 4.0, 5.0, 1.0, 2.0, 3.0, 4.0, 5.0, 1.0, 2.0, 3.0, 4.0, 5.0);
    run(&op);
    expect(2, 15, 1.0, 2.0, 3.0, 4.0, 5.0, -2.0, 1.0, 3 * r - 4 * r, 3 * r + 4 * r, 5.0, -1.0, -2.0, -4.0, 3.0, 5.0);
    b.rope.neox = true; /* pairs (0, 2) and (1, 3) */
    run(&op);
    expect(2, 15, 1.0, 2.0, 3.0, 4.0, 5.0, -3.0, 2 * r - 4 * r, 1.0, 2 * r + 4 * r, 5.0, -1.0, -4.0, -3.0, 2.0, 5.0);
    b.rope.magnitude = 2;
    op.out = 0; /* in place; what is not rotated does not grow */
    run(&op);
    expect(0, 5, 2.0, 4.0, 6.0, 8.0, 5.0);
    expect(0, 10, 2.0, 4.0, 6.0, 8.0, 5.0, -6.0, 4 * r - 8 * r, 2.0, 4 * r + 8 * r, 5.0);
}

/* n positions of sequence `seq` from `first`, a key and a value of one number for each of two heads. */
static void store(uint32_t seq, uint32_t first, uint32_t n, const double *keys, const double *values)
{
    struct rn_op op = op_of(RN_OP_KV_STORE);
    uint32_t i;

    widths(2, 2, 4);
    b.layer = (struct rn_kv_layer){2, 2, 2};
    op.b = 1;
    op.out = -1;
    b.step.n_rows = n;
    for (i = 0; i < n; i++) {
        b.rows[i] = (struct rn_step_row){.position = first + i, .seq = seq};
        b.f[0][2 * i] = (float)keys[i];
        b.f[0][2 * i + 1] = 0;
        b.f[1][2 * i] = (float)values[i];
        b.f[1][2 * i + 1] = (float)-values[i];
    }
    rn_reference_op(&b.ref, &op, &b.step);
}

static struct rn_op attention_op(void)
{
    struct rn_op op = op_of(RN_OP_ATTENTION);

    b.slots[0].width = b.slots[2].width = 4;
    op.heads = 4; /* queries 0 and 1 look at cache head 0, 2 and 3 at 1 */
    op.kv_heads = 2;
    op.k_dim = op.v_dim = 1;
    return op;
}

static void attention(void **state)
{
    const double keys[] = {0, log(3), 0, 0}, values[] = {8, 16, 4, 100}, other[] = {9, 9, 9, 9};
    struct rn_op op;
    double e, w;

    (void)state;
    store(1, 0, 4, other, other); /* another sequence's blocks lie between */
    store(0, 0, 4, keys, values);
    op = attention_op();
    b.step.n_rows = 2;
    b.rows[0].position = 1;
    b.rows[1].position = 2; /* position 3 is in the cache but in the future */
    put(0, 8, 1.0, 0.0, 0.0, 5.0, 1.0, 0.0, 0.0, 5.0);
    run(&op);
    expect(2, 8, 14.0, 12.0, -12.0, -12.0, (8 + 48 + 4) / 5.0, 28 / 3.0, -28 / 3.0, -28 / 3.0);
    op.window = 2;
    run(&op);
    expect(2, 8, 14.0, 12.0, -12.0, -12.0, (48 + 4) / 4.0, 10.0, -10.0, -10.0);
    op.window = 1;
    run(&op);
    expect(2, 8, 16.0, 16.0, -16.0, -16.0, 4.0, 4.0, -4.0, -4.0);
    op.window = 0;
    op.scale = 2;
    run(&op);
    expect(2, 1, (8 + 9 * 16) / 10.0);
    op.scale = 1;
    op.softcap = 0.5f;
    e = exp(0.5 * tanh(log(3) / 0.5));
    w = (8 + 16 * e) / (1 + e);
    run(&op);
    expect(2, 2, w, 12.0);
}

/* A place that has a score and no value: queries of zero see positions of equal weight, and it. */
static void attention_sinks(void **state)
{
    static const float sinks[] = {0, 100, -100, 0};
    const double keys[] = {1, 2, 3, 4}, values[] = {8, 16, 4, 100};
    struct rn_op op;

    (void)state;
    store(0, 0, 4, keys, values);
    op = attention_op();
    weight(0, RN_F32, 4, 1, 1, sinks);
    op.weight = 0;
    op.group = 4;
    b.rows[0].position = 2;
    put(0, 4, 0.0, 0.0, 0.0, 0.0);
    run(&op);
    expect(2, 4, 28 / 4.0, 28 / (3 + exp(100)), -28 / 3.0, -28 / 4.0);
}

/* Queries of zero: what is left of a score is how far away it is. Four heads: slopes 1/2, 1/4, 1/8, 1/16. */
static void attention_leans(void **state)
{
    static const double of_six[] = {0.25, 1 / 16.0, 1 / 64.0, 1 / 256.0, 0.5, 0.125};
    const double keys[] = {1, 2, 3, 4}, values[] = {8, 16, 4, 100};
    struct rn_op op;
    double a, c;
    uint32_t h;

    (void)state;
    store(0, 0, 4, keys, values);
    op = attention_op();
    op.alibi = 4;
    b.rows[0].position = 2;
    put(0, 4, 0.0, 0.0, 0.0, 0.0);
    run(&op);
    a = exp(-0.5);
    c = exp(-0.25);
    expect(2, 2, (8 * a * a + 16 * a + 4) / (a * a + a + 1), (8 * c * c + 16 * c + 4) / (c * c + c + 1));
    op.window = 2;
    run(&op);
    expect(2, 2, (16 * a + 4) / (a + 1), (16 * c + 4) / (c + 1));
    op.heads = 6;
    op.alibi = 8;
    for (h = 0; h < 6; h++)
        assert_float_equal(rn_op_slope(&op, h), -of_six[h], 1e-15);
    op.alibi = 0;
    assert_true(rn_op_slope(&op, 0) == 0);
}

/* The same cache, seen from both sides: the last row of the sequence has the last position. */
static void attention_in_both_directions(void **state)
{
    const double keys[] = {0, log(3), 0, 0}, values[] = {8, 16, 4, 100};
    struct rn_op op;

    (void)state;
    store(0, 0, 4, keys, values);
    op = attention_op();
    op.bidirectional = true;
    b.step.n_rows = 3;
    for (uint32_t i = 0; i < 3; i++) {
        b.rows[i].position = i;
        put(0, 12, 1.0, 0.0, 0.0, 5.0, 1.0, 0.0, 0.0, 5.0, 1.0, 0.0, 0.0, 5.0);
    }
    run(&op);
    expect(2, 2, (8 + 48 + 4) / 5.0, 28 / 3.0);
    assert_float_equal(b.f[2][0], b.f[2][4], 1e-6);
    assert_float_equal(b.f[2][0], b.f[2][8], 1e-6);
    op.window = 2; /* one position to each side */
    run(&op);
    expect(2, 1, (8 + 48) / 4.0);
    assert_float_equal(b.f[2][4], (8 + 48 + 4) / 5.0, 1e-6);
    assert_float_equal(b.f[2][8], (48 + 4) / 4.0, 1e-6);
}

/* Values are rounded to the cache's format, 11 and 8 significant bits, and to nothing else. */
static void caches_round(void **state)
{
    const double keys[] = {0}, values[] = {1 + 1.0 / 512 + 1.0 / 4096};
    struct rn_op op;

    (void)state;
    store(0, 0, 1, keys, values);
    op = attention_op();
    run(&op);
    expect(2, 1, values[0]);
    b.ref.limits.kv_type = RUNNEL_KV_F16;
    store(0, 0, 1, keys, values);
    op = attention_op();
    run(&op);
    expect(2, 1, 1 + 1.0 / 512); /* a tie is at 2^-11 */
    b.ref.limits.kv_type = RUNNEL_KV_BF16;
    store(0, 0, 1, keys, values);
    op = attention_op();
    run(&op);
    expect(2, 1, 1.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(rope, setup),
        cmocka_unit_test_setup(attention, setup),
        cmocka_unit_test_setup(attention_sinks, setup),
        cmocka_unit_test_setup(attention_leans, setup),
        cmocka_unit_test_setup(attention_in_both_directions, setup),
        cmocka_unit_test_setup(caches_round, setup),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
