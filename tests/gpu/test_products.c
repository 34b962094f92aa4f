/* Products of every format that the kernels know, few rows and many, against the reference; and that a row's bits do
 * not depend on the rows beside it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "rig.h"
#include "model/quant.h"

enum { MAX_ROWS = 70 };

struct product {
    struct rig rig;
    uint32_t type_id, rows, cols;
    unsigned char *blocks;
    void *tiled;
    float *a, *bias, *out;
    struct rn_typed_kernels kernels;
};

static void open_product(struct product *p, uint32_t type_id, uint32_t rows, uint32_t cols)
{
    rig_open(&p->rig);
    p->type_id = type_id;
    p->rows = rows;
    p->cols = cols;
    assert_true(rn_kernels_of_type(type_id, &p->kernels));
    p->blocks = rig_weights(&p->rig, type_id, rows, cols);
    p->tiled = rig_tiled(&p->rig, type_id, p->blocks, rows, cols);
    p->a = rig_floats(&p->rig, (size_t)MAX_ROWS * cols, 1);
    p->bias = rig_floats(&p->rig, rows, 1);
    p->out = rig_device(&p->rig, (size_t)MAX_ROWS * rows * sizeof(float));
}

/* Rows [first, first + n_rows) to the place of the first. */
static void multiply(struct product *p, bool many, uint32_t first, uint32_t n_rows, uint32_t parts, bool with_bias)
{
    struct rn_matmul_args args = {.weight = rig_at(p->tiled),
                                  .bias = with_bias ? rig_at(p->bias) : 0,
                                  .a = rig_at(p->a + (size_t)first * p->cols),
                                  .out = rig_at(p->out),
                                  .n_rows = n_rows,
                                  .rows = p->rows,
                                  .cols = p->cols,
                                  .parts = parts};

    memset(p->out, 0xff, (size_t)MAX_ROWS * p->rows * sizeof(float));
    if (many)
        rig_run(&p->rig, p->kernels.matmul_many, &args);
    else
        rig_few(&p->rig, &p->kernels, &args);
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

/* With 16 bits of each activation nothing but the sums in float is lost; with 8 bits, a part in 2^9 of each. */
static void against_reference(uint32_t type_id, uint32_t rows, uint32_t cols)
{
    static const struct {
        bool many;
        uint32_t n_rows, parts;
        double limit;
    } cases[] = {
        {false, 1, 2, 1e-9}, {false, 11, 2, 1e-9}, {true, 70, 2, 1e-9}, {false, 8, 1, 4e-6}, {true, 9, 1, 4e-6}};
    const char *name = rn_type(type_id)->name;
    struct product p;
    struct judge judge;
    uint32_t i;

    open_product(&p, type_id, rows, cols);
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        multiply(&p, cases[i].many, 0, cases[i].n_rows, cases[i].parts, i % 2 == 0);
        rig_expect(name, p.out, want(&p, &judge, cases[i].n_rows, i % 2 == 0), (size_t)cases[i].n_rows * rows,
                   cases[i].limit);
    }
    rig_close(&p.rig);
}

/* 40 rows of weights: the last tile is not full. */
static void every_format(void **state)
{
    (void)state;
#define TYPE(id, name) against_reference(id, 40, id >= RN_Q2_K && id <= RN_Q6_K ? 768 : 320);
    RN_KERNEL_TYPES(TYPE)
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
}

static void same_bits_at_any_batch(uint32_t type_id, uint32_t cols)
{
    enum { ROWS = 48 };
    struct product p;
    float *whole;
    uint32_t r, n;

    open_product(&p, type_id, ROWS, cols);
    whole = rig_host(&p.rig, MAX_ROWS * ROWS * sizeof(float));
    multiply(&p, true, 0, MAX_ROWS, 2, true);
    memcpy(whole, p.out, MAX_ROWS * ROWS * sizeof(float));
    for (r = 0, n = 1; r + n <= MAX_ROWS; r += n, n = n % 9 + 1) {
        multiply(&p, n == 9, r, n, 2, true);
        assert_memory_equal(p.out, whole + (size_t)r * ROWS, n * ROWS * sizeof(float));
    }
    rig_close(&p.rig);
}

static void bits_do_not_depend_on_the_batch(void **state)
{
    (void)state;
    same_bits_at_any_batch(RN_Q4_K, 1280);
    same_bits_at_any_batch(RN_Q6_K, 256);
    same_bits_at_any_batch(RN_BF16, 200);
    same_bits_at_any_batch(RN_Q8_0, 1056);
}

/* A matrix brought over in two pieces is that of one. */
static void tiles_in_pieces(void **state)
{
    struct product p;
    struct rn_tile_args args;
    unsigned char *pieces;
    size_t bytes;

    (void)state;
    open_product(&p, RN_Q5_K, 40, 512);
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

static void unknown_formats(void **state)
{
    struct rn_typed_kernels kernels;

    (void)state;
    assert_false(rn_kernels_of_type(RN_IQ1_S, &kernels));
    assert_int_equal(rn_tiled_bytes(RN_IQ1_S, 16, 256), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_format),
        cmocka_unit_test(odd_widths),
        cmocka_unit_test(bits_do_not_depend_on_the_batch),
        cmocka_unit_test(tiles_in_pieces),
        cmocka_unit_test(unknown_formats),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
