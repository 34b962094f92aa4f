/* The functions on rows of every SIMD level that this machine has, against plain sums in double precision. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "cpu/kernels.h"
#include "cpu/levels/drop.h"
#include "cpu/levels/fma.h"

static const char *const level_names[] = {"c", "avx2", "avx512", "neon"};

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
    case RN_ACT_SIGMOID:
        return 1 / (1 + exp(-x));
    case RN_ACT_TANH:
        return tanh(x);
    case RN_ACT_EXP: /* of what a float can hold, see cpu/levels/math.inc */
        return x < -87.3f ? 0 : exp(x > 88.3f ? 88.3f : x);
    case RN_ACT_SOFTPLUS:
        return x > 30 ? x : log1p(exp(x));
    case RN_ACT_NONE:
    case RN_ACTIVATIONS:
        return x;
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
        for (kind = RN_ACT_SILU; kind < RN_ACTIVATIONS; kind++) {
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
        for (kind = RN_ACT_SILU; level != NULL && kind < RN_ACTIVATIONS; kind++) {
            level->rows->activate(out, a, kind, 9);
            assert_true(isnan(out[2]) && isnan(out[8]) && near(out[1], act(0, kind), 1e-6, 0));
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

/* From and to any place, any length: what was asked for, and nothing beside it. */
static void test_stream(void **state)
{
    enum { ROOM = 420 };
    uint8_t from[ROOM], to[ROOM];
    size_t l, at, n, i;

    (void)state;
    for (i = 0; i < ROOM; i++)
        from[i] = (uint8_t)rn_splitmix64(&seed);
    for (l = 0; l < sizeof level_names / sizeof *level_names; l++) {
        const struct rn_level *level = rn_level_named(level_names[l]);

        for (at = 0; level != NULL && level->stream != NULL && at < 70; at++)
            for (n = 0; n < 200; n += n < 70 ? 1 : 13) {
                memset(to, 0, sizeof to);
                level->stream(to + at, from + 3 * at, n);
                for (i = 0; i < ROOM; i++)
                    assert_int_equal(to[i], i >= at && i < at + n ? from[3 * at + i - at] : 0);
            }
    }
}

/* What is dropped from the caches is in memory as it was, also where it has just been written, and what may only be
 * read. */
static void test_drop(void **state)
{
    enum { ROOM = 70000 };
    static const uint8_t constant[200] = {1, 2, 3};
    uint8_t bytes[ROOM];
    size_t i;

    (void)state;
    for (i = 0; i < ROOM; i++)
        bytes[i] = (uint8_t)(i * 7);
    assert_int_equal(rn_drop(bytes + 5, ROOM - 5), rn_drop(constant, sizeof constant));
    (void)rn_drop(bytes, 0);
    for (i = 0; i < ROOM; i++)
        assert_int_equal(bytes[i], (uint8_t)(i * 7));
    assert_true(constant[1] == 2 && constant[199] == 0);
}

/* Linear attention against its formula in double precision, row by row; and columns do not depend on each other. */
static void linear_shape(const struct rn_level *level, uint32_t k_dim, uint32_t v_dim, bool erases, bool own,
                         bool before)
{
    enum { MOST = 70, STEPS = 5 };
    static float q[MOST], k[MOST], w[MOST], x[MOST], y[MOST], bonus[MOST], v[MOST], s[MOST * MOST], again[MOST * MOST];
    static float out[MOST], one;
    static double state[MOST * MOST];
    struct rn_linear t = {.state = s, .stride = v_dim, .q = q, .k = k, .w = w, .v = v, .out = out, .scale = 0.5f};
    double erased, sum;
    uint32_t step, i, j;

    t.x = erases ? x : NULL;
    t.y = own ? y : NULL;
    t.bonus = before ? bonus : NULL;
    t.k_dim = k_dim;
    t.n = v_dim;
    memset(s, 0, sizeof s);
    memset(state, 0, sizeof state);
    for (step = 0; step < STEPS; step++) {
        for (i = 0; i < MOST; i++) {
            q[i] = normal();
            k[i] = normal();
            v[i] = normal();
            x[i] = 0.1f * normal();
            y[i] = normal();
            bonus[i] = normal();
            w[i] = 0.9f;
        }
        memcpy(again, s, sizeof s);
        level->rows->linear(&t);
        for (j = 0; j < v_dim; j++) {
            for (erased = 0, i = 0; i < k_dim && erases; i++)
                erased += x[i] * state[i * v_dim + j];
            for (sum = 0, i = 0; i < k_dim; i++) {
                sum += before ? q[i] * (state[i * v_dim + j] + (double)bonus[i] * k[i] * v[j]) : 0;
                state[i * v_dim + j] =
                    (double)w[i] * state[i * v_dim + j] + (double)k[i] * v[j] + (own ? y[i] : k[i]) * erased;
                sum += before ? 0 : q[i] * state[i * v_dim + j];
            }
            assert_true(near(out[j], 0.5 * sum, 1e-4, 1e-4));
        }
        t.state = again + v_dim - 1; /* the last column by itself */
        t.v = v + v_dim - 1;
        t.out = &one;
        t.n = 1;
        level->rows->linear(&t);
        assert_memory_equal(&one, out + v_dim - 1, sizeof one);
        t.state = s;
        t.v = v;
        t.out = out;
        t.n = v_dim;
    }
}

static void test_linear(void **state)
{
    static const uint32_t dims[] = {1, 7, 16, 33, 64, 70};
    const struct rn_level *level;
    size_t l, d;

    (void)state;
    for (l = 0; l < sizeof level_names / sizeof *level_names; l++) {
        level = rn_level_named(level_names[l]);
        for (d = 0; level != NULL && d < sizeof dims / sizeof *dims; d++) {
            linear_shape(level, dims[d], dims[(d + 2) % 6], false, false, false);
            linear_shape(level, dims[d], dims[d], false, false, true);
            linear_shape(level, dims[d], dims[(d + 1) % 6], true, false, false);
            linear_shape(level, dims[d], dims[d], true, true, false);
        }
    }
}

/* ---- The bits of plain C ---- */

/* Any float at all, or one that is near the others in size, so that sums cancel. */
static float any_float(void)
{
    uint64_t random = rn_splitmix64(&seed);
    uint32_t bits = (uint32_t)random;
    float f;

    if (random >> 63 == 0)
        bits = (bits & 0x80ffffff) | (uint32_t)(random >> 40 & 7) << 24 | 0x38000000;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static void check_fma(float a, float b, float c)
{
    float want = fmaf(a, b, c), got = rn_fma(a, b, c), emulated = rn_fma_of_doubles(a, b, c);

    if (isnan(want))
        assert_true(isnan(got) && isnan(emulated));
    else if (memcmp(&got, &want, sizeof got) != 0 || memcmp(&emulated, &want, sizeof emulated) != 0)
        fail_msg("%a * %a + %a is %a, not %a or %a", (double)a, (double)b, (double)c, (double)want, (double)got,
                 (double)emulated);
}

/* The fused multiply-add of plain C is that of the C library, which is correctly rounded: on any floats, on sums that
 * nearly cancel or lie half-way between two floats, and around the smallest and largest. */
static void test_fma(void **state)
{
    static const float edges[] = {0,         1,         1 + 0x1p-23f, 1 - 0x1p-24f, 0x1p-24f,  0x1p-25f,
                                  0x1p-126f, 0x1p-149f, 0x1p-75f,     0x1p64f,      0x1p127f,  0x1.fffffep127f,
                                  0x1.8p-1f, 0x1p12f,   INFINITY,     NAN,          0x1p-100f, 0x1.000002p-126f};
    enum { EDGES = sizeof edges / sizeof *edges };
    int i, j, k, sign;

    (void)state;
    for (i = 0; i < EDGES; i++)
        for (j = 0; j < EDGES; j++)
            for (k = 0; k < EDGES; k++)
                for (sign = 0; sign < 4; sign++)
                    check_fma(sign & 1 ? -edges[i] : edges[i], edges[j], sign & 2 ? -edges[k] : edges[k]);
    seed = 17;
    for (i = 0; i < 300000; i++) {
        float a = any_float(), b = any_float();

        check_fma(a, b, any_float());
        check_fma(a, b, -(a * b));
        check_fma(a, b, a * b * 0x1p24f);
    }
}

enum { ROW = 203 };

/* out[...][ROW]: of each function on a row that all levels write with the same vectors. */
static size_t every_row(const struct rn_level *level, const float *a, const float *b, float out[][ROW])
{
    const struct rn_rows *rows = level->rows;
    size_t n = 0;
    int act;

    memset(out[0], 0, 2 * RN_ACTIVATIONS * sizeof out[0]);
    for (act = 0; act < RN_ACTIVATIONS; act++) {
        rows->activate(out[n++], a, (enum rn_activation)act, ROW);
        rows->gate(out[n++], a, b, (enum rn_activation)act, ROW);
    }
    rows->rms_norm(out[n++], a, b, ROW, 1e-6);
    rows->layer_norm(out[n++], a, b, a, ROW, 1e-6);
    rows->softcap(out[n++], a, 3, ROW);
    memcpy(out[n], b, sizeof out[n]);
    rows->accumulate(out[n++], a, 0.3f, ROW);
    rows->rope(out[n], a, b, ROW - 3, ROW - 3, true);
    memset(out[n++] + ROW - 3, 0, 3 * sizeof(float));
    rows->kv_store(out[n], a, ROW, RUNNEL_KV_F16);
    memset((uint16_t *)out[n++] + ROW, 0, ROW * sizeof(uint16_t));
    return n;
}

static void test_same_bits(void **state)
{
    static float want[2 * RN_ACTIVATIONS + 6][ROW], got[2 * RN_ACTIVATIONS + 6][ROW];
    const struct rn_level *level;
    float a[ROW], b[ROW];
    size_t l, i, n;

    (void)state;
    seed = 23;
    for (i = 0; i < ROW; i++) {
        a[i] = normal() * (i % 5 == 0 ? 30 : 1);
        b[i] = normal();
    }
    n = every_row(rn_level_c(), a, b, want);
    assert_int_equal(n, 2 * RN_ACTIVATIONS + 6);
    for (l = 1; l < sizeof level_names / sizeof *level_names; l++) {
        level = rn_level_named(level_names[l]);
        if (level == NULL)
            continue;
        every_row(level, a, b, got);
        for (i = 0; i < n; i++)
            if (memcmp(got[i], want[i], sizeof want[i]) != 0)
                fail_msg("%s: function %d gives other bits than plain C", level->name, (int)i);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_linear), cmocka_unit_test(test_elementwise), cmocka_unit_test(test_nan_spreads),
        cmocka_unit_test(test_norms),  cmocka_unit_test(test_rope),        cmocka_unit_test(test_stream),
        cmocka_unit_test(test_drop),   cmocka_unit_test(test_fma),         cmocka_unit_test(test_same_bits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
