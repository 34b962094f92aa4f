/* The matrix products of every SIMD level that this machine has, for every format: against sums in double
 * precision over the decoded weights and the exactly quantised inputs; and law 5 inside the kernels: the bits
 * of a product do not depend on how many inputs and rows were handed over together, nor on the level among
 * those that share the order of their sums. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tests/cpu/amx_emulator.h"
#include "tests/cpu/products_rig.h"

enum { BIG_COLS = 8192 };

/* n inputs over rows that are `step` apart: the bits of the product, and nothing written in between. */
static void check_step(const struct rn_kernel *kernel, const struct format *f, uint32_t cols, uint32_t n,
                       struct buffers *b)
{
    const struct rn_type *type = rn_type(f->type);
    uint32_t height = rn_kernel_height(kernel, n), step = MAX_ROWS / height, i, r;
    struct rn_matmul m = {.weights = b->weights,
                          .row_bytes = rn_type_bytes(type, cols),
                          .rows = height,
                          .step = step,
                          .cols = cols,
                          .type = type,
                          .n = n};

    if (kernel->direct == NULL)
        return;
    for (i = 0; i < n; i++) {
        m.inputs[i] = b->inputs + i * rn_input_bytes(kernel->input, cols);
        m.out[i] = b->out + (size_t)i * MAX_ROWS;
    }
    memset(b->out, 0xff, (size_t)n * MAX_ROWS * sizeof(float));
    kernel->direct(&m);
    for (r = 0; r < n * MAX_ROWS; r++) {
        if (r % MAX_ROWS % step == 0 && r % MAX_ROWS / step < height)
            assert_true(b->out[r] == b->alone[r]);
        else
            assert_true(isnan(b->out[r]));
    }
}

static void check_products(const struct rn_level *level, const struct format *f, uint32_t cols, double magnitude)
{
    static const uint32_t counts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 15, 16, 17, 23, 24, 31, 32, 33, 57, 64};
    const struct rn_kernel *kernel = kernel_of(level, f->type);
    size_t bytes = rn_input_bytes(kernel->input, cols), i;
    struct buffers b = take_buffers();
    enum way way;
    double error;

    assert_true(kernel->panel_bytes(cols) <= PANEL_BYTES);
    make_case(level, f, cols, magnitude, &b);
    judge(f, cols, &b);
    for (i = 0; i < MAX_N; i++)
        product(kernel, AS_MEANT, f, cols, b.weights, MAX_ROWS, b.inputs + i * bytes, 1, b.panel,
                b.alone + i * MAX_ROWS);
    error = nmse_of_doubles(b.alone, b.want, MAX_N * MAX_ROWS);
    if (!(error <= 1e-9))
        fail_msg("%s %s cols %u: NMSE %g", level->name, rn_type(f->type)->name, cols, error);
    for (way = AS_MEANT; way < WAYS; way++) {
        for (i = 0; has_way(kernel, way) && i < sizeof counts / sizeof *counts; i += COUNT_STEP) {
            memset(b.out, 0xff, MAX_N * MAX_ROWS * sizeof(float));
            product(kernel, way, f, cols, b.weights, MAX_ROWS, b.inputs, counts[i], b.panel, b.out);
            if (memcmp(b.out, b.alone, counts[i] * MAX_ROWS * sizeof(float)) != 0)
                fail_msg("%s %s cols %u: %u inputs give other bits, way %d", level->name, rn_type(f->type)->name, cols,
                         counts[i], way);
            if (counts[i] < MAX_N)
                assert_true(isnan(b.out[counts[i] * MAX_ROWS]));
        }
    }
    for (i = 0; i < sizeof counts / sizeof *counts && counts[i] <= RN_MAX_INPUTS; i += COUNT_STEP)
        check_step(kernel, f, cols, counts[i], &b);
    give_buffers(&b);
}

static void test_products(void **state)
{
    const struct rn_level *level;
    size_t l, i;

    (void)state;
    for (l = FIRST_LEVEL; l < N_LEVELS; l++) {
        level = rn_level_named(level_names[l]);
        for (i = 0; level != NULL && i < N_FORMATS; i++) {
            seed = 1000 * l + i;
            check_products(level, &formats[i], cols_of(&formats[i], 0), 1);
            check_products(level, &formats[i], cols_of(&formats[i], 1), i % 2 == 0 ? 1e-30 : 1e30);
        }
    }
}

/* Any number of rows, up to two tiles: the bits of all together, and nothing behind them. */
static void test_odd_rows(void **state)
{
    const struct rn_level *level;
    const struct rn_kernel *kernel;
    struct buffers b = take_buffers();
    size_t l, i;
    uint32_t rows, n, k;
    enum way way;

    (void)state;
    for (l = 0; l < N_LEVELS; l++) {
        level = rn_level_named(level_names[l]);
        for (i = 0; level != NULL && i < N_FORMATS; i++) {
            uint32_t cols = cols_of(&formats[i], 0);

            seed = i;
            kernel = kernel_of(level, formats[i].type);
            make_case(level, &formats[i], cols, 1, &b);
            product(kernel, AS_MEANT, &formats[i], cols, b.weights, MAX_ROWS, b.inputs, 3, b.panel, b.alone);
            for (way = DIRECT; way < WAYS; way++)
                for (rows = 1; has_way(kernel, way) && rows < MAX_ROWS; rows += ROW_STEP)
                    for (n = 1; n <= 3; n += 2) {
                        memset(b.out, 0xff, 3 * MAX_ROWS * sizeof(float));
                        product(kernel, way, &formats[i], cols, b.weights, rows, b.inputs, n, b.panel, b.out);
                        for (k = 0; k < n; k++) {
                            assert_memory_equal(b.out + k * MAX_ROWS, b.alone + k * MAX_ROWS, rows * sizeof(float));
                            assert_true(isnan(b.out[k * MAX_ROWS + rows]));
                        }
                    }
        }
    }
    give_buffers(&b);
}

/* Two rows as long as those of large models, by two inputs that are the same. */
static void check_long_rows(const struct rn_level *level, const struct format *f, struct buffers *b)
{
    const struct rn_type *type = rn_type(f->type);
    const struct rn_kernel *kernel = kernel_of(level, f->type);
    size_t bytes = rn_input_bytes(kernel->input, BIG_COLS);
    void *panel = rn_alloc_aligned(&heap, kernel->panel_bytes(BIG_COLS), 64);
    double want[2] = {0, 0}, error;
    enum way way;
    uint32_t r, c;

    place(b, f->type, 2 * BIG_COLS, 2 * bytes);
    random_weights(f, BIG_COLS, 2, b->weights);
    type->decode(b->weights, b->decoded, 2 * BIG_COLS);
    for (c = 0; c < BIG_COLS; c++)
        b->a[c] = normal();
    quantise(level, kernel->input, b->a, BIG_COLS, b->inputs, b->values);
    memcpy(b->inputs + bytes, b->inputs, bytes);
    for (r = 0; r < 2; r++)
        for (c = 0; c < BIG_COLS; c++)
            want[r] += b->decoded[r * BIG_COLS + c] * b->values[c];
    for (way = DIRECT; way < WAYS; way++) {
        if (!has_way(kernel, way))
            continue;
        product(kernel, way, f, BIG_COLS, b->weights, 2, b->inputs, 2, panel, b->out);
        error = nmse_of_doubles(b->out, want, 2);
        if (!(error <= 1e-9))
            fail_msg("%s %s: NMSE %g over long rows", level->name, type->name, error);
        assert_memory_equal(b->out, b->out + MAX_ROWS, 2 * sizeof(float));
        if (way == DIRECT)
            memcpy(b->alone, b->out, 2 * sizeof(float));
        else if (kernel->direct != NULL)
            assert_memory_equal(b->out, b->alone, 2 * sizeof(float));
    }
    rn_free(&heap, panel);
}

static void test_long_rows(void **state)
{
    const struct rn_level *level;
    struct buffers b = take_buffers();
    size_t l, i;

    (void)state;
    assert_true(2 * BIG_COLS <= MAX_ROWS * MAX_COLS);
    for (l = 0; l < N_LEVELS; l++) {
        level = rn_level_named(level_names[l]);
        for (i = 0; level != NULL && i < N_FORMATS; i++)
            check_long_rows(level, &formats[i], &b);
    }
    give_buffers(&b);
}

/* All largest and all smallest codes and inputs: where an integer sum would overflow. */
static void check_extremes(const struct rn_level *level, const struct format *f, int fill, float input,
                           struct buffers *b)
{
    const struct rn_type *type = rn_type(f->type);
    const struct rn_kernel *kernel = kernel_of(level, f->type);
    uint32_t cols = cols_of(f, 1);
    size_t bytes = rn_input_bytes(kernel->input, cols), r, c;
    double sum = 0, size = 0;
    enum way way;

    place(b, f->type, (size_t)MAX_ROWS * cols, MAX_N * bytes);
    memset(b->weights, fill, rn_type_bytes(type, (size_t)MAX_ROWS * cols));
    for (r = 0; r < MAX_ROWS * cols / type->elements; r++) {
        seed = 0; /* all blocks the same */
        set_scale(f, b->weights + r * type->bytes, 1);
    }
    type->decode(b->weights, b->decoded, (size_t)MAX_ROWS * cols);
    for (c = 0; c < cols; c++)
        b->a[c] = input;
    quantise(level, kernel->input, b->a, cols, b->inputs, b->values);
    memcpy(b->inputs + bytes, b->inputs, bytes);
    for (c = 0; c < cols; c++) {
        sum += b->decoded[c] * b->values[c];
        size += fabs(b->decoded[c] * b->values[c]);
    }
    for (way = DIRECT; way < WAYS; way++) {
        if (!has_way(kernel, way))
            continue;
        product(kernel, way, f, cols, b->weights, MAX_ROWS, b->inputs, 2, b->panel, b->out);
        if (!(fabs(b->out[0] - sum) <= 1e-5 * size))
            fail_msg("%s %s filled with %d: %g is not %g", level->name, type->name, fill, (double)b->out[0], sum);
        for (r = 0; r < MAX_ROWS; r++)
            assert_true(b->out[r] == b->out[0] && b->out[MAX_ROWS + r] == b->out[0]);
    }
}

static void test_extremes(void **state)
{
    static const uint8_t fills[] = {0x00, 0xff, 0x80, 0x7f, 0xf0, 0x0f, 0x55, 0xaa};
    const struct rn_level *level;
    struct buffers b = take_buffers();
    size_t l, i, k;

    (void)state;
    for (l = 0; l < N_LEVELS; l++) {
        level = rn_level_named(level_names[l]);
        for (i = 0; level != NULL && i < N_FORMATS; i++)
            for (k = 0; k < sizeof fills * 2; k++)
                check_extremes(level, &formats[i], fills[k / 2], k % 2 == 0 ? 1 : -1, &b);
    }
    give_buffers(&b);
}

/* NaN and infinity among the inputs reach the outputs of their own row and no other. */
static void test_not_finite(void **state)
{
    static const float values[] = {NAN, INFINITY, -INFINITY};
    const struct rn_level *level;
    const struct rn_kernel *kernel;
    struct buffers b = take_buffers();
    size_t l, i, k, r;
    enum way way;

    (void)state;
    for (l = 0; l < N_LEVELS; l++) {
        level = rn_level_named(level_names[l]);
        for (i = 0; level != NULL && i < N_FORMATS; i++) {
            uint32_t cols = cols_of(&formats[i], 1);

            seed = i;
            kernel = kernel_of(level, formats[i].type);
            make_case(level, &formats[i], cols, 1, &b);
            product(kernel, AS_MEANT, &formats[i], cols, b.weights, MAX_ROWS, b.inputs, 8, b.panel, b.alone);
            for (k = 0; k < 3; k++) {
                b.a[2 * cols + cols / 2] = values[k];
                quantise(level, kernel->input, b.a + 2 * cols, cols, b.inputs + 2 * rn_input_bytes(kernel->input, cols),
                         b.values);
                for (way = DIRECT; way < WAYS; way++) {
                    if (!has_way(kernel, way))
                        continue;
                    product(kernel, way, &formats[i], cols, b.weights, MAX_ROWS, b.inputs, 8, b.panel, b.out);
                    for (r = 0; r < 8 * MAX_ROWS; r++) {
                        if (r / MAX_ROWS == 2)
                            assert_false(isfinite(b.out[r]));
                        else
                            assert_true(b.out[r] == b.alone[r]);
                    }
                }
            }
        }
    }
    give_buffers(&b);
}

/* One format: the level's inputs and products, of few and of more than a call takes, are those of plain C. */
static void check_agrees(const struct rn_level *level, const struct format *f, double magnitude, struct buffers *x,
                         struct buffers *y)
{
    static const uint32_t counts[] = {1, 9, 56};
    const struct rn_level *c = rn_level_c();
    uint32_t cols = cols_of(f, 1);
    size_t bytes = MAX_N * rn_input_bytes(kernel_of(c, f->type)->input, cols), k;
    uint64_t same = seed;

    make_case(c, f, cols, magnitude, x);
    seed = same;
    make_case(level, f, cols, magnitude, y);
    assert_int_equal(kernel_of(c, f->type)->input, kernel_of(level, f->type)->input);
    assert_memory_equal(x->inputs, y->inputs, bytes);
    for (k = 0; k < sizeof counts / sizeof *counts; k++) {
        product(kernel_of(c, f->type), AS_MEANT, f, cols, x->weights, MAX_ROWS, x->inputs, counts[k], x->panel, x->out);
        product(kernel_of(level, f->type), AS_MEANT, f, cols, y->weights, MAX_ROWS, y->inputs, counts[k], y->panel,
                y->out);
        if (memcmp(x->out, y->out, counts[k] * MAX_ROWS * sizeof(float)) != 0)
            fail_msg("%s: %s gives other bits than plain C", rn_type(f->type)->name, level->name);
    }
}

/* All levels agree to the bit. */
static void test_levels_agree(void **state)
{
    struct buffers x = take_buffers(), y = take_buffers();
    const struct rn_level *level;
    size_t i, l;

    (void)state;
    for (l = 1; l < N_LEVELS; l++) {
        level = rn_level_named(level_names[l]);
        for (i = 0; level != NULL && i < N_FORMATS; i++) {
            seed = i;
            check_agrees(level, &formats[i], 1, &x, &y);
            check_agrees(level, &formats[i], 1e-30, &x, &y);
        }
    }
    give_buffers(&x);
    give_buffers(&y);
}

/* Every format with blocks has a kernel of its own, which reads the weights as they stand. */
static void test_own_kernels(void **state)
{
    const struct rn_level *level;
    const struct rn_kernel *kernel;
    size_t l, i;

    (void)state;
    for (l = 1; l < N_LEVELS; l++) {
        level = rn_level_named(level_names[l]);
        for (i = 3; level != NULL && i < N_FORMATS - 1; i++) {
            kernel = level->kernel(formats[i].type);
            assert_non_null(kernel);
            assert_non_null(kernel->direct);
        }
    }
}

/* Quantising: every value within half a step of the scale, which is the least of its kind that reaches the largest;
 * tiny rows become 0; NaN and infinity reach the scale and so every product. */
static void check_quantise(const struct rn_level *level, enum rn_input kind)
{
    enum { COLS = 512, BLOCK = 32 };
    size_t i, b;
    _Alignas(64) char row[4096];
    const struct rn_line *line = (const struct rn_line *)row;
    double value[COLS], most, d;
    float a[COLS];
    int exponent;

    assert_true(rn_input_bytes(kind, COLS) <= sizeof row);
    for (i = 0; i < COLS; i++)
        a[i] = ldexpf(normal(), (int)(i / BLOCK) * 5 - 40);
    a[COLS - 1] = 127 * 0x1p20f; /* the largest, with a power of two for a scale */
    quantise(level, kind, a, COLS, row, value);
    for (b = 0; b < COLS; b += BLOCK) {
        for (most = 0, i = b; i < b + BLOCK; i++)
            most = fmax(most, fabsf(a[i]));
        d = line[b / BLOCK].d;
        if (kind == RN_INPUT_FINE)
            assert_true(fabs(d * 127 / most - 1) < 1e-6);
        else
            assert_true(frexp(d, &exponent) == 0.5 && d * 127 >= most && d * 127 < 2 * most);
        for (i = b; i < b + BLOCK; i++)
            assert_true(fabs(value[i] - a[i]) <= d * 0.5001);
    }
    for (i = 0; i < COLS; i++)
        a[i] = 1e-42f;
    quantise(level, kind, a, COLS, row, value);
    for (i = 0; i < COLS; i++)
        assert_true(value[i] == 0);
    a[100] = NAN;
    quantise(level, kind, a, COLS, row, value);
    assert_true(isnan(value[100 / BLOCK * BLOCK]) && isnan(value[101]));
    a[100] = -INFINITY;
    quantise(level, kind, a, COLS, row, value);
    assert_true(isnan(value[101]));
}

static void test_quantise(void **state)
{
    const struct rn_level *level;
    const struct rn_kernel *kernel;
    size_t l, i;

    (void)state;
    for (l = 0; l < N_LEVELS; l++) {
        level = rn_level_named(level_names[l]);
        for (i = 0; level != NULL && i < N_FORMATS; i++) {
            kernel = kernel_of(level, formats[i].type);
            if (kernel->input != RN_INPUT_F32)
                check_quantise(level, kernel->input);
        }
    }
}

/* The sums that stand in a line are those of its numbers. */
static void check_line(const struct rn_line *line, bool fine)
{
    int32_t sum[2] = {0, 0}, begin = RN_MAGIC_BITS;
    uint32_t i, h;

    for (i = 0; i < 32; i++)
        sum[i / 16] += line->q[i];
    if (!fine)
        memcpy(&begin, &line->magic_d, sizeof begin);
    for (h = 0; h < 2; h++) {
        assert_int_equal(line->start16[h], begin - 128 * sum[h]);
        assert_true(line->d_sum16[h] == line->d * (float)sum[h]);
    }
    assert_int_equal(line->start, begin - 128 * (sum[0] + sum[1]));
    assert_true(line->d_sum == line->d * (float)(sum[0] + sum[1]));
    assert_true((double)line->magic_d == (double)RN_MAGIC * (double)line->d);
}

static void test_lines(void **state)
{
    const struct rn_level *level;
    struct rn_line line[2];
    enum rn_input kind;
    float a[64];
    size_t l, i;

    (void)state;
    for (i = 0; i < 64; i++)
        a[i] = normal() + 1;
    for (l = 0; l < N_LEVELS; l++) {
        level = rn_level_named(level_names[l]);
        if (level == NULL)
            continue;
        for (kind = RN_INPUT_LINES; kind < RN_INPUT_KINDS; kind++) {
            rn_quantise(level->rows, kind, a, line, 64);
            check_line(&line[0], kind == RN_INPUT_FINE);
            check_line(&line[1], kind == RN_INPUT_FINE);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products),    cmocka_unit_test(test_odd_rows),   cmocka_unit_test(test_long_rows),
        cmocka_unit_test(test_extremes),    cmocka_unit_test(test_not_finite), cmocka_unit_test(test_levels_agree),
        cmocka_unit_test(test_own_kernels), cmocka_unit_test(test_quantise),   cmocka_unit_test(test_lines),
    };
    int failed;

    emulate_amx_for_products();
    rn_heap_init(&heap, NULL);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    return failed != 0 || rn_heap_blocks(&heap) != 0;
}
