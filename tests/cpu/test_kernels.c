/* The kernels of every SIMD level that this machine has, against sums in double precision over the
 * decoded weights and the exactly quantised inputs; and law 5 inside the kernels: a product's bits do
 * not depend on how many inputs were handed over together. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "cpu/kernels.h"

enum { MAX_ROWS = 37, MAX_COLS = 1024, MAX_N = 64 };

static const char *const level_names[] = {"c", "avx2", "avx512"};

static struct rn_heap heap;
static uint64_t seed;

static double uniform(void)
{
    return (double)(rn_splitmix64(&seed) >> 11) * 0x1p-53;
}

/* Nearly normal, by twelve uniforms. */
static float normal(void)
{
    double sum = -6;
    int i;

    for (i = 0; i < 12; i++)
        sum += uniform();
    return (float)sum;
}

struct format {
    uint32_t type;
    int d_at[2]; /* half floats in a block that must be sane; -1: none */
    uint32_t cols;
};

/* Columns that are no multiple of a vector where the format allows it. */
static const struct format formats[] = {
    {RN_F32, {-1, -1}, 203}, {RN_F16, {-1, -1}, 203}, {RN_BF16, {-1, -1}, 203}, {RN_F32, {-1, -1}, 5},
    {RN_F16, {-1, -1}, 512}, {RN_Q8_0, {0, -1}, 32},  {RN_Q8_0, {0, -1}, 224},  {RN_Q4_0, {0, -1}, 32},
    {RN_Q4_0, {0, -1}, 224}, {RN_Q4_K, {0, 2}, 256},  {RN_Q4_K, {0, 2}, 768},   {RN_Q6_K, {208, -1}, 256},
    {RN_Q6_K, {208, -1}, 768}, {RN_Q5_0, {0, -1}, 224}, {RN_IQ4_NL, {0, -1}, 96}, {RN_Q5_K, {0, 2}, 512},
};
enum { N_FORMATS = sizeof formats / sizeof *formats };

static void random_weights(const struct format *f, uint8_t *out)
{
    const struct rn_type *type = rn_type(f->type);
    size_t n = rn_type_bytes(type, (size_t)MAX_ROWS * f->cols), i;
    uint16_t half;
    float x;
    int j;

    for (i = 0; i < n; i++)
        out[i] = (uint8_t)rn_splitmix64(&seed);
    for (i = 0; i < n; i += type->bytes) {
        x = normal();
        half = rn_f32_to_f16(x);
        if (f->type == RN_F32)
            memcpy(out + i, &x, 4);
        else if (f->type == RN_F16)
            memcpy(out + i, &half, 2);
        else if (f->type == RN_BF16)
            memcpy(out + i, &(uint16_t){rn_f32_to_bf16(x)}, 2);
        for (j = 0; j < 2; j++) {
            half = rn_f32_to_f16(0.01f * normal());
            if (f->d_at[j] >= 0)
                memcpy(out + i + f->d_at[j], &half, 2);
        }
    }
}

static const struct rn_kernel *kernel_of(const struct rn_level *level, uint32_t type)
{
    const struct rn_kernel *kernel = level->kernel(type);

    return kernel != NULL ? kernel : level->other;
}

/* out[i][r] = weights[r] · inputs[i], driven as the executor does. */
static void product(const struct rn_kernel *kernel, const struct format *f, const uint8_t *weights, const char *inputs,
                    uint32_t n, void *panel, float *out)
{
    const struct rn_type *type = rn_type(f->type);
    struct rn_matmul m = {
        .row_bytes = rn_type_bytes(type, f->cols), .cols = f->cols, .type = type, .panel = panel, .step = 1};
    uint32_t row, i, j;

    for (row = 0; row < MAX_ROWS; row += kernel->tile) {
        m.weights = weights + row * m.row_bytes;
        m.rows = MAX_ROWS - row < kernel->tile ? MAX_ROWS - row : kernel->tile;
        if (n >= kernel->pack_from)
            kernel->pack(&m);
        for (i = 0; i < n; i += m.n) {
            m.n = n - i < RN_MAX_INPUTS ? n - i : RN_MAX_INPUTS;
            for (j = 0; j < m.n; j++) {
                m.inputs[j] = inputs + (i + j) * rn_input_bytes(kernel->input, f->cols);
                m.out[j] = out + (size_t)(i + j) * MAX_ROWS + row;
            }
            (n >= kernel->pack_from ? kernel->packed : kernel->direct)(&m);
        }
    }
}

/* The row as the kernel sees it, and what it stands for. */
static void quantise(const struct rn_level *level, enum rn_input kind, const float *a, uint32_t cols, void *out,
                     double *value)
{
    struct rn_q8k q8k = rn_q8k_view(out, cols);
    struct rn_q8 q8 = rn_q8_view(out, cols);
    uint32_t i;

    if (kind == RN_INPUT_Q8)
        level->rows->quantise_q8(a, out, cols);
    else if (kind == RN_INPUT_Q8K)
        level->rows->quantise_q8k(a, out, cols);
    else
        memcpy(out, a, cols * sizeof *a);
    for (i = 0; i < cols; i++)
        value[i] = kind == RN_INPUT_Q8    ? (double)q8.d[i / 32] * q8.q[i]
                   : kind == RN_INPUT_Q8K ? (double)q8k.d[i / 256] * q8k.q[i]
                                          : a[i];
}

static double nmse(const float *got, const double *want, size_t n)
{
    double error = 0, norm = 0;
    size_t i;

    for (i = 0; i < n; i++) {
        error += (got[i] - want[i]) * (got[i] - want[i]);
        norm += want[i] * want[i];
    }
    return norm == 0 ? error : error / norm;
}

struct buffers {
    uint8_t *weights;
    float *decoded, *a, *out, *alone;
    char *inputs;
    double *values, *want;
    void *panel;
};

static struct buffers take_buffers(void)
{
    struct buffers b;

    b.weights = rn_alloc(&heap, MAX_ROWS * MAX_COLS, 4);
    b.decoded = rn_alloc(&heap, MAX_ROWS * MAX_COLS, 4);
    b.a = rn_alloc(&heap, MAX_N * MAX_COLS, 4);
    b.inputs = rn_alloc_aligned(&heap, MAX_N * MAX_COLS * 4, 64);
    b.values = rn_alloc(&heap, MAX_N * MAX_COLS, 8);
    b.want = rn_alloc(&heap, MAX_N * MAX_ROWS, 8);
    b.out = rn_alloc(&heap, MAX_N * MAX_ROWS, 4);
    b.alone = rn_alloc(&heap, MAX_N * MAX_ROWS, 4);
    b.panel = rn_alloc_aligned(&heap, 1 << 20, 64);
    return b;
}

static void give_buffers(struct buffers *b)
{
    rn_free(&heap, b->weights);
    rn_free(&heap, b->decoded);
    rn_free(&heap, b->a);
    rn_free(&heap, b->inputs);
    rn_free(&heap, b->values);
    rn_free(&heap, b->want);
    rn_free(&heap, b->out);
    rn_free(&heap, b->alone);
    rn_free(&heap, b->panel);
}

/* Random weights and MAX_N inputs of about 2^exponent, and their products in double precision. */
static void make_case(const struct rn_level *level, const struct format *f, double magnitude, struct buffers *b)
{
    enum rn_input kind = kernel_of(level, f->type)->input;
    size_t bytes = rn_input_bytes(kind, f->cols);
    uint32_t i, r, c;
    double sum;

    random_weights(f, b->weights);
    rn_type(f->type)->decode(b->weights, b->decoded, (size_t)MAX_ROWS * f->cols);
    for (i = 0; i < MAX_N; i++) {
        for (c = 0; c < f->cols; c++)
            b->a[i * f->cols + c] = (float)(normal() * magnitude);
        if (i == 3)
            memset(b->a + i * f->cols, 0, f->cols * sizeof(float));
        quantise(level, kind, b->a + i * f->cols, f->cols, b->inputs + i * bytes, b->values + i * f->cols);
        for (r = 0; r < MAX_ROWS; r++) {
            sum = 0;
            for (c = 0; c < f->cols; c++)
                sum += b->decoded[r * f->cols + c] * b->values[i * f->cols + c];
            b->want[i * MAX_ROWS + r] = sum;
        }
    }
}

/* One input over rows that are `step` apart: the bits of the product, and nothing written in between. */
static void check_step(const struct rn_kernel *kernel, const struct format *f, struct buffers *b)
{
    const struct rn_type *type = rn_type(f->type);
    uint32_t step = MAX_ROWS / kernel->tile, r;
    struct rn_matmul m = {.weights = b->weights,
                          .row_bytes = rn_type_bytes(type, f->cols),
                          .rows = kernel->tile,
                          .step = step,
                          .cols = f->cols,
                          .type = type,
                          .n = 1,
                          .inputs = {b->inputs},
                          .out = {b->out}};

    if (kernel->direct == NULL)
        return;
    memset(b->out, 0xff, MAX_ROWS * sizeof(float));
    kernel->direct(&m);
    for (r = 0; r < MAX_ROWS; r++) {
        if (r % step == 0 && r / step < kernel->tile)
            assert_true(b->out[r] == b->alone[r]);
        else
            assert_true(isnan(b->out[r]));
    }
}

static void check_products(const struct rn_level *level, const struct format *f, double magnitude)
{
    static const uint32_t counts[] = {1, 2, 3, 4, 5, 7, 8, 31, 32, 64};
    const struct rn_kernel *kernel = kernel_of(level, f->type);
    size_t bytes = rn_input_bytes(kernel->input, f->cols), i;
    struct buffers b = take_buffers();
    double error;

    assert_true(kernel->panel_bytes(f->cols) <= 1 << 20);
    make_case(level, f, magnitude, &b);
    for (i = 0; i < MAX_N; i++)
        product(kernel, f, b.weights, b.inputs + i * bytes, 1, b.panel, b.alone + i * MAX_ROWS);
    error = nmse(b.alone, b.want, MAX_N * MAX_ROWS);
    if (!(error <= 1e-9))
        fail_msg("%s %s cols %u: NMSE %g", level->name, rn_type(f->type)->name, f->cols, error);
    for (i = 0; i < sizeof counts / sizeof *counts; i++) {
        memset(b.out, 0xff, MAX_N * MAX_ROWS * sizeof(float));
        product(kernel, f, b.weights, b.inputs, counts[i], b.panel, b.out);
        if (memcmp(b.out, b.alone, counts[i] * MAX_ROWS * sizeof(float)) != 0)
            fail_msg("%s %s cols %u: %u inputs give other bits", level->name, rn_type(f->type)->name, f->cols,
                     counts[i]);
        if (counts[i] < MAX_N)
            assert_true(isnan(b.out[counts[i] * MAX_ROWS]));
    }
    check_step(kernel, f, &b);
    give_buffers(&b);
}

static void test_products(void **state)
{
    const struct rn_level *level;
    size_t l, i;

    (void)state;
    for (l = 0; l < sizeof level_names / sizeof *level_names; l++) {
        level = rn_level_named(level_names[l]);
        for (i = 0; level != NULL && i < N_FORMATS; i++) {
            seed = 1000 * l + i;
            check_products(level, &formats[i], 1);
            check_products(level, &formats[i], 1e-30);
            check_products(level, &formats[i], 1e30);
        }
    }
}

/* All largest and all smallest codes and inputs: where an integer sum would overflow. */
static void test_extremes(void **state)
{
    static const uint8_t fills[] = {0x00, 0xff, 0x80, 0x7f, 0xf0};
    const struct rn_level *level;
    const struct rn_kernel *kernel;
    const struct format *f;
    struct buffers b = take_buffers();
    size_t l, i, k, r, c;
    uint16_t one = rn_f32_to_f16(1);
    double sum;
    int j;

    (void)state;
    for (l = 0; l < sizeof level_names / sizeof *level_names; l++) {
        level = rn_level_named(level_names[l]);
        for (i = 5; level != NULL && i < 13; i++) /* the block formats with kernels of their own */
            for (k = 0; k < sizeof fills * 2; k++) {
                f = &formats[i];
                kernel = kernel_of(level, f->type);
                memset(b.weights, fills[k / 2], rn_type_bytes(rn_type(f->type), (size_t)MAX_ROWS * f->cols));
                for (r = 0; r < MAX_ROWS * f->cols / rn_type(f->type)->elements; r++)
                    for (j = 0; j < 2; j++)
                        if (f->d_at[j] >= 0)
                            memcpy(b.weights + r * rn_type(f->type)->bytes + f->d_at[j], &one, 2);
                rn_type(f->type)->decode(b.weights, b.decoded, (size_t)MAX_ROWS * f->cols);
                for (c = 0; c < f->cols; c++)
                    b.a[c] = k % 2 == 0 ? 1 : -1;
                quantise(level, kernel->input, b.a, f->cols, b.inputs, b.values);
                memcpy(b.inputs + rn_input_bytes(kernel->input, f->cols), b.inputs,
                       rn_input_bytes(kernel->input, f->cols));
                for (sum = 0, c = 0; c < f->cols; c++)
                    sum += b.decoded[c] * b.values[c];
                product(kernel, f, b.weights, b.inputs, 1, b.panel, b.out);
                product(kernel, f, b.weights, b.inputs, 2, b.panel, b.alone);
                assert_true(fabs(b.out[0] - sum) <= 1e-5 * fabs(sum) + 1e-3);
                for (r = 0; r < MAX_ROWS; r++)
                    assert_true(b.out[r] == b.out[0] && b.alone[r] == b.out[0] && b.alone[MAX_ROWS + r] == b.out[0]);
            }
    }
    give_buffers(&b);
}

/* The levels with FMA agree to the bit where sums are integers inside a block. */
static void test_levels_agree(void **state)
{
    const struct rn_level *a = rn_level_named("avx2"), *b = rn_level_named("avx512");
    struct buffers x = take_buffers();
    size_t i;

    (void)state;
    for (i = 5; a != NULL && b != NULL && i < 13; i++) {
        seed = i;
        make_case(a, &formats[i], 1, &x);
        product(kernel_of(a, formats[i].type), &formats[i], x.weights, x.inputs, 9, x.panel, x.out);
        product(kernel_of(b, formats[i].type), &formats[i], x.weights, x.inputs, 9, x.panel, x.alone);
        assert_memory_equal(x.out, x.alone, 9 * MAX_ROWS * sizeof(float));
    }
    give_buffers(&x);
}

/* Quantising: every value within half a step of the scale; tiny rows become 0; NaN and infinity reach
 * the scale and so every product. */
static void test_quantise(void **state)
{
    enum { COLS = 512 };
    const struct rn_level *level;
    float a[COLS];
    _Alignas(64) char row[4096];
    double value[COLS], most;
    size_t l, i, b;
    int kind;

    (void)state;
    for (l = 0; l < sizeof level_names / sizeof *level_names; l++) {
        level = rn_level_named(level_names[l]);
        for (kind = RN_INPUT_Q8; level != NULL && kind <= RN_INPUT_Q8K; kind++) {
            size_t block = kind == RN_INPUT_Q8 ? 32 : 256;

            assert_true(rn_input_bytes(kind, COLS) <= sizeof row);
            for (i = 0; i < COLS; i++)
                a[i] = normal();
            quantise(level, kind, a, COLS, row, value);
            for (b = 0; b < COLS; b += block) {
                for (most = 0, i = b; i < b + block; i++)
                    most = fmax(most, fabsf(a[i]));
                for (i = b; i < b + block; i++)
                    assert_true(fabs(value[i] - a[i]) <= most / 127 * 0.5001);
            }
            for (i = 0; i < COLS; i++)
                a[i] = 1e-42f;
            quantise(level, kind, a, COLS, row, value);
            for (i = 0; i < COLS; i++)
                assert_true(value[i] == 0);
            a[100] = NAN;
            quantise(level, kind, a, COLS, row, value);
            assert_true(isnan(value[100 / block * block]) && isnan(value[101]));
            a[100] = -INFINITY;
            quantise(level, kind, a, COLS, row, value);
            assert_true(isnan(value[101]));
        }
    }
}

/* ---- Rows ---- */

static double act(double x, enum rn_activation kind)
{
    switch (kind) {
    case RN_ACT_SILU:
        return x / (1 + exp(-x));
    case RN_ACT_GELU_TANH:
        return x / (1 + exp(-2 * sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); /* = x (1 + tanh) / 2 */
    case RN_ACT_GELU_ERF:
        return 0.5 * x * (1 + erf(x / sqrt(2)));
    case RN_ACT_RELU:
        return x > 0 ? x : 0;
    case RN_ACT_RELU2:
        return x > 0 ? x * x : 0;
    }
    return 0;
}

static bool near(double got, double want, double relative, double absolute)
{
    return fabs(got - want) <= relative * fabs(want) + absolute;
}

/* Over a sweep of values; and each element's bits are the same wherever it stands. */
static void test_elementwise(void **state)
{
    enum { N = 4003 };
    static float a[N], b[N], out[N], shifted[N];
    const struct rn_level *level;
    size_t l, i;
    int kind;

    (void)state;
    for (i = 0; i < N; i++) {
        a[i] = ((float)i - N / 2) * 0.05f;
        b[i] = normal();
    }
    for (l = 0; l < sizeof level_names / sizeof *level_names; l++) {
        level = rn_level_named(level_names[l]);
        if (level == NULL)
            continue;
        for (kind = RN_ACT_SILU; kind <= RN_ACT_RELU2; kind++) {
            level->rows->activate(out, a, kind, N);
            for (i = 0; i < N; i++) /* where erf nears -1, one plus it keeps few digits; and e^u those that u has */
                assert_true(near(out[i], act(a[i], kind), 1e-6,
                                 kind == RN_ACT_GELU_ERF    ? 3e-6
                                 : kind == RN_ACT_GELU_TANH ? 1e-7
                                                            : 1e-30));
            level->rows->activate(shifted, a + 3, kind, N - 3);
            assert_memory_equal(out + 3, shifted, (N - 3) * sizeof(float));
            level->rows->gate(shifted, a, b, kind, N);
            for (i = 0; i < N; i++)
                assert_true(shifted[i] == out[i] * b[i]);
        }
        level->rows->softcap(out, a, 30, N);
        for (i = 0; i < N; i++)
            assert_true(near(out[i], 30 * tanh(a[i] / 30.0), 1e-6, 0));
        level->rows->softcap(shifted, a + 5, 30, N - 5);
        assert_memory_equal(out + 5, shifted, (N - 5) * sizeof(float));
        level->rows->add(out, a, b, N);
        level->rows->scale(shifted, a, 0.3f, N);
        for (i = 0; i < N; i++)
            assert_true(out[i] == a[i] + b[i] && shifted[i] == a[i] * 0.3f);
        level->rows->accumulate(out, b, 0.3f, N);
        for (i = 0; i < N; i++)
            assert_true(near(out[i], (double)(a[i] + b[i]) + 0.3f * (double)b[i], 1e-6, 1e-6));
    }
}

static void test_nan_spreads(void **state)
{
    float a[9] = {0}, out[9];
    const struct rn_level *level;
    size_t l;
    int kind;

    (void)state;
    a[2] = a[8] = NAN;
    for (l = 0; l < sizeof level_names / sizeof *level_names; l++) {
        level = rn_level_named(level_names[l]);
        for (kind = RN_ACT_SILU; level != NULL && kind <= RN_ACT_RELU2; kind++) {
            level->rows->activate(out, a, kind, 9);
            assert_true(isnan(out[2]) && isnan(out[8]) && out[1] == 0);
        }
        if (level != NULL) {
            level->rows->softcap(out, a, 30, 9);
            assert_true(isnan(out[2]) && isnan(out[8]) && out[1] == 0);
            level->rows->rms_norm(out, a, NULL, 9, 1e-6);
            assert_true(isnan(out[0]));
        }
    }
}

static void test_norms(void **state)
{
    static const uint32_t widths[] = {1, 7, 8, 64, 203, 2048};
    static float a[2048], weight[2048], bias[2048], out[2048];
    const struct rn_level *level;
    double sum, squares, mean, variance;
    size_t l, k, i;
    uint32_t n;

    (void)state;
    for (i = 0; i < 2048; i++) {
        a[i] = 3 + normal();
        weight[i] = 1 + 0.1f * normal();
        bias[i] = normal();
    }
    for (l = 0; l < sizeof level_names / sizeof *level_names; l++) {
        level = rn_level_named(level_names[l]);
        for (k = 0; level != NULL && k < sizeof widths / sizeof *widths; k++) {
            n = widths[k];
            for (sum = squares = 0, i = 0; i < n; i++) {
                sum += a[i];
                squares += (double)a[i] * a[i];
            }
            mean = sum / n;
            for (variance = 0, i = 0; i < n; i++)
                variance += (a[i] - mean) * (a[i] - mean) / n;
            level->rows->rms_norm(out, a, weight, n, 1e-5);
            for (i = 0; i < n; i++)
                assert_true(near(out[i], a[i] / sqrt(squares / n + 1e-5) * weight[i], 1e-6, 1e-7));
            level->rows->layer_norm(out, a, weight, bias, n, 1e-5);
            for (i = 0; i < n; i++)
                assert_true(near(out[i], (a[i] - mean) / sqrt(variance + 1e-5) * weight[i] + bias[i], 2e-6, 1e-5));
        }
    }
}

static void test_rope(void **state)
{
    float a[20], cos_sin[16], out[20], in_place[20];
    const struct rn_level *level;
    uint32_t neox, i, x, y;
    size_t l;

    (void)state;
    for (i = 0; i < 20; i++)
        a[i] = normal();
    for (i = 0; i < 8; i++) {
        cos_sin[i] = (float)cos(i * 0.7);
        cos_sin[i + 8] = (float)sin(i * 0.7);
    }
    for (l = 0; l < sizeof level_names / sizeof *level_names; l++) {
        level = rn_level_named(level_names[l]);
        for (neox = 0; level != NULL && neox < 2; neox++) {
            level->rows->rope(out, a, cos_sin, 20, 16, neox != 0);
            memcpy(in_place, a, sizeof a);
            level->rows->rope(in_place, in_place, cos_sin, 20, 16, neox != 0);
            assert_memory_equal(out, in_place, sizeof out);
            for (i = 0; i < 8; i++) {
                x = neox ? i : 2 * i;
                y = neox ? i + 8 : 2 * i + 1;
                assert_true(near(out[x], a[x] * cos(i * 0.7) - a[y] * sin(i * 0.7), 1e-5, 1e-6));
                assert_true(near(out[y], a[x] * sin(i * 0.7) + a[y] * cos(i * 0.7), 1e-5, 1e-6));
            }
            assert_memory_equal(out + 16, a + 16, 4 * sizeof(float));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products),    cmocka_unit_test(test_extremes),    cmocka_unit_test(test_levels_agree),
        cmocka_unit_test(test_quantise),    cmocka_unit_test(test_elementwise), cmocka_unit_test(test_nan_spreads),
        cmocka_unit_test(test_norms),       cmocka_unit_test(test_rope),
    };
    int failed;

    rn_heap_init(&heap, NULL);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    return failed != 0 || rn_heap_blocks(&heap) != 0;
}
