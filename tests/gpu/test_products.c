/* Products of every format that the kernels know, few rows and many, against the reference; and that a row's bits do
 * not depend on the rows beside it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "tests/gpu/rigs/rig.h"
#include "model/activation.h"
#include "model/quant/quant.h"

enum { MAX_ROWS = 130, FEW = 0 /* `ways` of matmul_few */ };

struct product {
    struct rig rig;
    uint32_t type_id, rows, cols;
    unsigned char *blocks;
    void *tiled;
    float *a, *bias, *out;
    void *split, *partial;
    uint32_t max_rows;
    struct rn_typed_kernels kernels;
};

static void open_product(struct product *p, uint32_t type_id, uint32_t rows, uint32_t cols, uint32_t max_rows)
{
    rig_open(&p->rig);
    p->type_id = type_id;
    p->rows = rows;
    p->cols = cols;
    p->max_rows = max_rows;
    assert_true(rn_kernels_of_type(type_id, &p->kernels));
    p->blocks = rig_weights(&p->rig, type_id, rows, cols);
    p->tiled = rig_tiled(&p->rig, type_id, p->blocks, rows, cols);
    p->a = rig_floats(&p->rig, (size_t)max_rows * cols, 1);
    p->bias = rig_floats(&p->rig, rows, 1);
    p->out = rig_device(&p->rig, (size_t)max_rows * rows * sizeof(float));
    p->split = rig_device(&p->rig, rn_split_bytes(max_rows, cols));
    p->partial = rig_device(&p->rig, rn_partial_bytes(max_rows, rows, 8));
}

/* Rows [first, first + n_rows) to the place of the first. What is not written stays NaN. */
static void multiply(struct product *p, uint32_t ways, uint32_t first, uint32_t n_rows, uint32_t parts, bool with_bias)
{
    struct rn_matmul_args args = {.weight = rig_at(p->tiled),
                                  .bias = with_bias ? rig_at(p->bias) : 0,
                                  .a = rig_at(p->a + (size_t)first * p->cols),
                                  .out = rig_at(p->out),
                                  .n_rows = n_rows,
                                  .rows = p->rows,
                                  .cols = p->cols,
                                  .parts = parts,
                                  .split = rig_at(p->split),
                                  .partial = rig_at(p->partial),
                                  .ways = ways};

    memset(p->out, 0xff, (size_t)p->max_rows * p->rows * sizeof(float));
    if (ways == FEW) {
        rig_few(&p->rig, &p->kernels, &args);
        return;
    }
    memset(p->split, 0xff, rn_split_bytes(p->max_rows, p->cols));
    memset(p->partial, 0xff, rn_partial_bytes(p->max_rows, p->rows, 8));
    rig_run(&p->rig, RN_KERNEL_split_rows, &args);
    rig_run(&p->rig, p->kernels.matmul_many, &args);
    if (ways > 1)
        rig_run(&p->rig, RN_KERNEL_matmul_join, &args);
}

static const float *want(struct product *p, struct judge *judge, uint32_t n_rows, bool with_bias)
{
    struct rn_op op = {.kind = RN_OP_MATMUL, .weight = 0, .bias = with_bias ? 1 : -1};

    judge_open(&p->rig, judge, n_rows, (uint32_t[]){p->cols, 1, p->rows, 1});
    judge_weight(judge, 0, p->type_id, p->cols, p->rows, 1, p->blocks);
    judge_weight(judge, 1, RN_F32, p->rows, 1, 1, p->bias);
    memcpy(judge->memory[0], p->a, (size_t)n_rows * p->cols * sizeof(float));
    return judge_run(judge, op, false);
}

/* With 16 bits of each activation nothing but the sums in float is lost; with 8 bits, a part in 2^9 of each,
 * which with a minimum counts by the codes, larger than the numbers. */
static void against_reference(uint32_t type_id, uint32_t rows, uint32_t cols)
{
    static const struct {
        uint32_t ways, n_rows, parts;
        double limit;
    } cases[] = {{FEW, 1, 2, 1e-9}, {FEW, 11, 2, 1e-9}, {1, 70, 2, 1e-9},
                 {8, 33, 2, 1e-9},  {FEW, 8, 1, 8e-6},  {2, 9, 1, 8e-6}};
    const char *name = rn_type(type_id)->name;
    struct product p;
    struct judge judge;
    uint32_t i;

    open_product(&p, type_id, rows, cols, 70);
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        multiply(&p, cases[i].ways, 0, cases[i].n_rows, cases[i].parts, i % 2 == 0);
        rig_expect(name, p.out, want(&p, &judge, cases[i].n_rows, i % 2 == 0), (size_t)cases[i].n_rows * rows,
                   cases[i].limit);
    }
    rig_close(&p.rig);
}

/* 40 rows of weights: the last tile is not full. */
static void every_format(void **state)
{
    (void)state;
#define TYPE(id, name) against_reference(id, 40, rn_type(id)->elements == 256 ? 768 : 320);
#define TYPE_AS(id, name, as) TYPE(id, name)
    RN_KERNEL_TYPES(TYPE)
    RN_KERNEL_TYPES_AS(TYPE_AS)
#undef TYPE_AS
#undef TYPE
}

/* Columns that fill neither a cell nor a segment; numbers that do not come in fours. */
static void odd_widths(void **state)
{
    (void)state;
    against_reference(RN_Q8_0, 16, 32);
    against_reference(RN_Q4_0, 17, 608);
    against_reference(RN_BF16, 130, 100);
    against_reference(RN_F32, 5, 7);
    against_reference(RN_F16, 33, 129);
    against_reference(RN_MXFP4, 20, 96);
    against_reference(RN_IQ4_NL, 16, 1120);
    against_reference(RN_Q4_1, 9, 32);
    against_reference(RN_Q5_0, 40, 160);
    against_reference(RN_Q5_1, 17, 608);
    against_reference(RN_Q8_1, 5, 96);
    against_reference(RN_NVFP4, 3, 64);
    against_reference(RN_IQ2_XS, 7, 256);
    against_reference(RN_I16, 5, 70);
}

/* Whatever rows are multiplied together, in whatever number of ways: the bits are matmul_few's of each row. */
static void same_bits_at_any_batch(uint32_t type_id, uint32_t rows, uint32_t cols, uint32_t max_rows)
{
    static const uint32_t counts[] = {9, 16, 17, 32, 33, 63, 64, 65, 130};
    struct product p;
    float *whole;
    uint32_t i, first;

    open_product(&p, type_id, rows, cols, max_rows);
    whole = rig_host(&p.rig, max_rows * rows * sizeof(float));
    multiply(&p, FEW, 0, max_rows, 2, true);
    memcpy(whole, p.out, max_rows * rows * sizeof(float));
    for (i = 0; i < sizeof counts / sizeof counts[0] && counts[i] <= max_rows; i++) {
        first = (max_rows - counts[i]) / 2;
        multiply(&p, 1u << i % 4, first, counts[i], 2, true);
        assert_memory_equal(p.out, whole + (size_t)first * rows, counts[i] * rows * sizeof(float));
    }
    for (i = 1; i <= 8; i++) {
        multiply(&p, FEW, i, i, 2, true);
        assert_memory_equal(p.out, whole + (size_t)i * rows, i * rows * sizeof(float));
    }
    rig_close(&p.rig);
}

/* Every format; rows of a tile that is not full, of two blocks, and columns of all segments and of some. */
static void bits_do_not_depend_on_the_batch(void **state)
{
    (void)state;
    same_bits_at_any_batch(RN_BF16, 17, 600, MAX_ROWS);
    same_bits_at_any_batch(RN_BF16, 264, 72, 65);
    same_bits_at_any_batch(RN_F32, 37, 135, 65);
    same_bits_at_any_batch(RN_F16, 48, 129, 65);
    same_bits_at_any_batch(RN_Q8_0, 33, 1056, 33);
    same_bits_at_any_batch(RN_Q4_0, 17, 608, 65);
    same_bits_at_any_batch(RN_Q4_K, 20, 1280, 65);
    same_bits_at_any_batch(RN_Q5_K, 16, 256, 65);
    same_bits_at_any_batch(RN_Q6_K, 16, 512, 65);
    same_bits_at_any_batch(RN_MXFP4, 33, 1056, 33);
    same_bits_at_any_batch(RN_NVFP4, 17, 320, 65);
    same_bits_at_any_batch(RN_Q2_K, 20, 512, 65);
    same_bits_at_any_batch(RN_IQ3_S, 16, 768, 33);
}

/* ---- Weights as one stream ---- */

enum { STREAM_ROWS = 70, STREAM_OUTS = 3 };

/* What matmul_stream makes of one product, of three of one input, of one and ADD, and of a gate and its product has the
 * bits of matmul_few and matmul_pair. Blocks have several tiles, or one; the last tile is not full. */
static void same_bits_as_a_stream(uint32_t type_id, uint32_t cols)
{
    static const struct {
        uint32_t n, n_rows, blocks;
        enum rn_end end;
    } cases[] = {{1, 1, 2, RN_END_NONE},
                 {3, 3, 4, RN_END_NONE},
                 {1, 8, 3, RN_END_ADD},
                 {2, 2, 2, RN_END_GATE},
                 {1, 4, 9, RN_END_NONE}};
    struct product p;
    float *out[STREAM_OUTS], *want[STREAM_OUTS];
    size_t i, n = RN_FEW_ROWS * STREAM_ROWS;

    open_product(&p, type_id, STREAM_ROWS, cols, RN_FEW_ROWS);
    for (i = 0; i < STREAM_OUTS; i++) {
        out[i] = rig_device(&p.rig, n * sizeof(float));
        want[i] = rig_host(&p.rig, n * sizeof(float));
    }
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct rn_products_args args = {.a = rig_at(p.a),
                                        .residual = rig_at(p.out),
                                        .n_rows = cases[i].n_rows,
                                        .cols = cols,
                                        .parts = 2,
                                        .n = cases[i].n,
                                        .end = cases[i].end,
                                        .act = RN_ACT_SILU};

        memset(p.out, 0, n * sizeof(float));
        for (uint32_t k = 0; k < args.n; k++) /* also of fewer rows */
            args.of[k] = (struct rn_product){rig_at(p.tiled), k == 0 ? rig_at(p.bias) : 0, rig_at(out[k]),
                                             args.end == RN_END_GATE ? STREAM_ROWS : STREAM_ROWS - 30 * k, 0};
        for (uint32_t k = 0; k < STREAM_OUTS; k++)
            memset(out[k], 0xff, n * sizeof(float));
        assert_int_not_equal(rn_few_kernel(&p.kernels, &args), p.kernels.matmul_stream);
        rig_run(&p.rig, rn_few_kernel(&p.kernels, &args), &args);
        for (uint32_t k = 0; k < STREAM_OUTS; k++) {
            memcpy(want[k], out[k], n * sizeof(float));
            memset(out[k], 0xff, n * sizeof(float));
        }
        args.blocks = cases[i].blocks;
        assert_int_equal(rn_few_kernel(&p.kernels, &args), p.kernels.matmul_stream);
        rig_run(&p.rig, p.kernels.matmul_stream, &args);
        for (uint32_t k = 0; k < STREAM_OUTS; k++)
            assert_memory_equal(out[k], want[k], n * sizeof(float));
    }
    rig_close(&p.rig);
}

static void a_stream_is_the_same(void **state)
{
    (void)state;
#define TYPE(id, name) same_bits_as_a_stream(id, rn_type(id)->elements == 256 ? 1024 : 480);
    RN_KERNEL_TYPES(TYPE)
#undef TYPE
    same_bits_as_a_stream(RN_Q4_0, 2048);
    assert_true(rn_stream_fits(1, 14336) && rn_stream_fits(5, 4096) && rn_stream_fits(8, 2048));
    assert_false(rn_stream_fits(9, 512) || rn_stream_fits(8, 4096) || rn_stream_fits(1, 320) || rn_stream_fits(0, 512));
}

/* Eight blocks of activations. */
static void many_rows_in_any_number_of_ways(void **state)
{
    enum { ROWS = 512, WEIGHTS = 16, COLS = 96 };
    struct product p;
    float *whole;
    uint32_t ways;

    (void)state;
    open_product(&p, RN_Q4_0, WEIGHTS, COLS, ROWS);
    whole = rig_host(&p.rig, ROWS * WEIGHTS * sizeof(float));
    multiply(&p, FEW, 0, ROWS, 2, false);
    memcpy(whole, p.out, ROWS * WEIGHTS * sizeof(float));
    for (ways = 1; ways <= 8; ways *= 2) {
        multiply(&p, ways, 0, ROWS, 2, false);
        assert_memory_equal(p.out, whole, ROWS * WEIGHTS * sizeof(float));
    }
    rig_close(&p.rig);
}

/* The number of ways: few blocks are divided, many are not. */
static void ways_fill_the_device(void **state)
{
    (void)state;
    assert_int_equal(rn_matmul_ways(64, 4096, 4096, 132), 8);
    assert_int_equal(rn_matmul_ways(64, 14336, 4096, 132), 2);
    assert_int_equal(rn_matmul_ways(512, 4096, 4096, 132), 1);
    assert_int_equal(rn_matmul_ways(512, 14336, 4096, 132), 1);
    assert_int_equal(rn_matmul_ways(64, 16, 64, 132), 1);
    assert_int_equal(rn_partial_bytes(512, 4096, 1), 0);
}

/* A matrix brought over in two pieces is that of one. */
static void tiles_in_pieces(void **state)
{
    struct product p;
    struct rn_tile_args args;
    unsigned char *pieces;
    size_t bytes;

    (void)state;
    open_product(&p, RN_Q5_K, 40, 512, 1);
    bytes = rn_tiled_bytes(RN_Q5_K, 40, 512);
    pieces = rig_device(&p.rig, bytes);
    args = (struct rn_tile_args){rig_at(p.blocks), rig_at(pieces), 16, 512};
    rig_run(&p.rig, p.kernels.tile, &args);
    args = (struct rn_tile_args){rig_at(p.blocks + 16 * 2 * 176), rig_at(pieces + rn_tiled_bytes(RN_Q5_K, 16, 512)), 24,
                                 512};
    assert_int_equal(args.source % 16, 0);
    rig_run(&p.rig, p.kernels.tile, &args);
    assert_memory_equal(pieces, p.tiled, bytes);
    rig_close(&p.rig);
}

/* Every type that a file can have; no number that is none. */
static void known_types(void **state)
{
    struct rn_typed_kernels kernels;
    uint32_t id;

    (void)state;
    for (id = 0; id < 64; id++) {
        assert_int_equal(rn_kernels_of_type(id, &kernels), rn_type(id) != NULL);
        assert_int_equal(rn_tiled_bytes(id, 16, 256) != 0, rn_type(id) != NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_format),
        cmocka_unit_test(odd_widths),
        cmocka_unit_test(bits_do_not_depend_on_the_batch),
        cmocka_unit_test(a_stream_is_the_same),
        cmocka_unit_test(many_rows_in_any_number_of_ways),
        cmocka_unit_test(ways_fill_the_device),
        cmocka_unit_test(tiles_in_pieces),
        cmocka_unit_test(known_types),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
