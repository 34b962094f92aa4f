/* cpu/levels/unpack.h against the decoders of model/: random blocks of every format with every code of its
 * scales, and the bounds that kernels rely on. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "cpu/levels/unpack.h"

enum { BLOCKS = 512, MAX_BYTES = 210 }; /* enough to meet nearly all points of the largest grid */

static uint64_t seed = 1;
static uint8_t weights[BLOCKS * MAX_BYTES];
static float decoded[BLOCKS * 256];

/* Half floats in a block are of ordinary size; everything else takes any value. */
static void random_blocks(uint32_t id, const int *d_at)
{
    const struct rn_type *type = rn_type(id);
    uint16_t half;
    size_t i;
    int j;

    for (i = 0; i < BLOCKS * (size_t)type->bytes; i++)
        weights[i] = (uint8_t)rn_splitmix64(&seed);
    for (i = 0; i < BLOCKS; i++)
        for (j = 0; j < 2; j++) {
            half = rn_f32_to_f16((float)((double)(rn_splitmix64(&seed) >> 11) * 0x1p-53 - 0.5));
            if (d_at[j] >= 0)
                memcpy(weights + i * type->bytes + d_at[j], &half, 2);
        }
    for (i = 0; id == RN_IQ1_M && i < BLOCKS; i++) /* the top nibble of d: below the NaNs */
        weights[i * 56 + 55] &= 0xbf;
    type->decode(weights, decoded, BLOCKS * (size_t)type->elements);
}

/* got = the decoded value, to the rounding of its one or two steps. */
static void check_value(uint32_t id, double got, double size, float want)
{
    if ((float)got != want && !(fabs(got - want) <= 2e-7 * size)) /* MXFP4 reaches infinity */
        fail_msg("%s: %.9g is not %.9g", rn_type(id)->name, got, want);
}

static void check32(uint32_t id, uint32_t at, const struct rn_block32 *w)
{
    double value;
    uint32_t i;

    for (i = 0; i < 32; i++) {
        value = (double)w->d[id == RN_NVFP4 ? i / 16 : 0] * w->q[i];
        check_value(id, value + w->m, fabs(value) + fabs((double)w->m), decoded[at * 32 + i]);
        assert_true(id == RN_Q8_0 || w->q[i] > -128);
        assert_true(id == RN_Q4_1 || id == RN_Q5_1 || w->m == 0);
    }
}

static void check256(uint32_t id, uint32_t at, const struct rn_block256 *w)
{
    double value, minus;
    uint32_t i;

    for (i = 0; i < 256; i++) {
        value = (double)w->d * w->scale[i / 16] * w->q[i];
        minus = (double)w->m * w->least[i / 16];
        check_value(id, value - minus, fabs(value) + fabs(minus), decoded[at * 256 + i]);
        assert_true(w->q[i] > -128 && w->scale[i / 16] >= -128 && w->scale[i / 16] <= 128);
        assert_true(w->least[i / 16] >= 0 && w->least[i / 16] <= 63);
    }
}

/* Block by block, by a constant type as the kernels have it. */
#define CHECK(id, width, ...)                                          \
    do {                                                               \
        struct rn_block##width w;                                      \
        uint32_t b;                                                    \
                                                                       \
        random_blocks(id, (const int[2]){__VA_ARGS__});                \
        for (b = 0; b < BLOCKS * rn_type(id)->elements / width; b++) { \
            memset(&w, 0x7f, sizeof w);                                \
            rn_unpack##width(id, weights, b, &w);                      \
            check##width(id, b, &w);                                   \
        }                                                              \
    } while (0)

static void test_blocks_of_32(void **state)
{
    (void)state;
    CHECK(RN_Q4_0, 32, 0, -1);
    CHECK(RN_Q4_1, 32, 0, 2);
    CHECK(RN_Q5_0, 32, 0, -1);
    CHECK(RN_Q5_1, 32, 0, 2);
    CHECK(RN_Q8_0, 32, 0, -1);
    CHECK(RN_IQ4_NL, 32, 0, -1);
    CHECK(RN_MXFP4, 32, -1, -1);
    CHECK(RN_NVFP4, 32, -1, -1);
}

static void test_blocks_of_256(void **state)
{
    (void)state;
    CHECK(RN_Q2_K, 256, 80, 82);
    CHECK(RN_Q3_K, 256, 108, -1);
    CHECK(RN_Q4_K, 256, 0, 2);
    CHECK(RN_Q5_K, 256, 0, 2);
    CHECK(RN_Q6_K, 256, 208, -1);
    CHECK(RN_IQ4_XS, 256, 0, -1);
    CHECK(RN_TQ1_0, 256, 52, -1);
    CHECK(RN_TQ2_0, 256, 64, -1);
    CHECK(RN_IQ1_S, 256, 0, -1);
    CHECK(RN_IQ1_M, 256, -1, -1);
    CHECK(RN_IQ2_XXS, 256, 0, -1);
    CHECK(RN_IQ2_XS, 256, 0, -1);
    CHECK(RN_IQ2_S, 256, 0, -1);
    CHECK(RN_IQ3_XXS, 256, 0, -1);
    CHECK(RN_IQ3_S, 256, 0, -1);
}

/* Every exponent of MXFP4 and every code of NVFP4, exactly. */
static void test_scales_of_fp4(void **state)
{
    uint8_t mx[17] = {0, 2}, nv[36] = {0, 0, 0, 0, 2};
    float out[64];
    int code;

    (void)state;
    for (code = 0; code < 256; code++) {
        mx[0] = nv[0] = (uint8_t)code;
        rn_type(RN_MXFP4)->decode(mx, out, 32);
        assert_true(out[0] == 2 * rn_scale_mxfp4((uint8_t)code));
        rn_type(RN_NVFP4)->decode(nv, out, 64);
        assert_true(out[0] == 2 * rn_scale_nvfp4((uint8_t)code));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks_of_32),
        cmocka_unit_test(test_blocks_of_256),
        cmocka_unit_test(test_scales_of_fp4),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
