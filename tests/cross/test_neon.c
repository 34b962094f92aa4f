/* The two tables of the NEON level: the processor gets the one it can run, and both give the same bits.
 * Run by run.sh on an emulated processor with dot products and on one without. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/auxv.h>

#include <cmocka.h>

#include "base/rng.h"
#include "cpu/levels/neon/levels_arm.h"
#include "cpu/levels/unpack.h"

enum { ROWS = 8, COLS = 512, INPUTS = 7, MOST_BYTES = COLS / 32 * 34 };

#define TYPE(name, type) type,
static const uint32_t types[] = {RN_FORMATS32(TYPE) RN_FORMATS256(TYPE)};

static uint8_t weights[ROWS * MOST_BYTES];
static _Alignas(64) char inputs[INPUTS][2048];
static _Alignas(64) char panel[32768];

static bool has_dot_products(void)
{
    return (getauxval(AT_HWCAP) & 1ul << 20) != 0;
}

static void test_choice(void **state)
{
    const struct rn_level *level = rn_level_best();
    size_t i;

    (void)state;
    assert_string_equal(level->name, "neon");
    assert_true(rn_level_named("neon") == level && rn_level_named("avx2") == NULL && rn_level_named("c") != NULL);
    for (i = 0; i < sizeof types / sizeof *types; i++) {
        assert_true(rn_blocks_neon(types[i]) != rn_blocks_neon_dot(types[i]));
        assert_true(level->kernel(types[i]) == (has_dot_products() ? rn_blocks_neon_dot : rn_blocks_neon)(types[i]));
    }
    assert_null(rn_blocks_neon(RN_Q8_K));
    assert_null(rn_blocks_neon_dot(RN_F16));
}

static void product(const struct rn_kernel *kernel, uint32_t type, uint32_t n, float out[INPUTS][ROWS])
{
    struct rn_matmul m = {.weights = weights,
                          .row_bytes = rn_type_bytes(rn_type(type), COLS),
                          .rows = ROWS,
                          .step = 1,
                          .cols = COLS,
                          .type = rn_type(type),
                          .panel = panel,
                          .n = n};
    uint32_t i;

    for (i = 0; i < n; i++) {
        m.inputs[i] = inputs[i];
        m.out[i] = out[i];
    }
    if (n >= kernel->pack_from)
        kernel->pack(&m);
    (n >= kernel->pack_from ? kernel->packed : kernel->direct)(&m);
}

/* Weights of any bits at all: scales too, NaN and infinities among them. */
static void test_same_bits(void **state)
{
    const struct rn_level *level = rn_level_named("neon");
    float a[COLS], x[INPUTS][ROWS], y[INPUTS][ROWS];
    const struct rn_kernel *plain, *dot;
    uint64_t seed = 7;
    size_t i, k, c;

    (void)state;
    for (i = 0; has_dot_products() && i < sizeof types / sizeof *types; i++) {
        plain = rn_blocks_neon(types[i]);
        dot = rn_blocks_neon_dot(types[i]);
        assert_true(plain->panel_bytes(COLS) <= sizeof panel && rn_input_bytes(plain->input, COLS) <= sizeof *inputs);
        for (k = 0; k < sizeof weights; k++)
            weights[k] = (uint8_t)rn_splitmix64(&seed);
        for (k = 0; k < INPUTS; k++) {
            for (c = 0; c < COLS; c++)
                a[c] = (float)((double)(rn_splitmix64(&seed) >> 11) * 0x1p-53 - 0.5);
            rn_quantise(level->rows, plain->input, a, inputs[k], COLS);
        }
        product(plain, types[i], INPUTS, x);
        product(dot, types[i], INPUTS, y);
        assert_memory_equal(x, y, sizeof x);
        product(plain, types[i], 1, y);
        assert_memory_equal(x, y, sizeof *x);
        product(dot, types[i], 1, y);
        assert_memory_equal(x, y, sizeof *x);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_choice), cmocka_unit_test(test_same_bits)};

    printf("dot products: %s\n", has_dot_products() ? "yes" : "no");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
