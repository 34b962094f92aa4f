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

/* What is dropped from the caches is in memory as it was, also where it has just been written, and what may only be read. */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_elementwise), cmocka_unit_test(test_nan_spreads), cmocka_unit_test(test_norms),
        cmocka_unit_test(test_rope),        cmocka_unit_test(test_stream),      cmocka_unit_test(test_drop),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
