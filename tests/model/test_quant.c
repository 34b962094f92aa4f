/* The block formats against other programs' results, and half precision against its definition.
 *
 * ../shared/oracles/quants holds a tensor of each format and its values (computed by llama.cpp). It
 * reaches a part of the big grids and not IQ1_M, so there are also 1024 random blocks of each
 * format: bytes from splitmix64 seeded with the type's id, values folded with 64-bit FNV-1a over
 * their 32-bit patterns (any NaN as 0x7fc00000). Those sums were computed by the ggml project's
 * dequantize_row functions (commit d99724f2, August 2026, gcc 12, no contraction). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "model/gguf/gguf.h"
#include "model/quant/quant.h"
#include "tests/support/shared.h"

static const struct {
    uint32_t type;
    uint64_t sum;
} known[] = {
    {RN_Q4_0, 0x08f6c1b808433325},   {RN_Q4_1, 0x73f3622b756abc9c},    {RN_Q5_0, 0x49df2d6ff44ae325},
    {RN_Q5_1, 0x2b9d4fb4a1647c37},   {RN_Q8_0, 0x09b07dcb664709a5},    {RN_Q2_K, 0xeedbd12197d9cc80},
    {RN_Q3_K, 0xd04850c39b6823e5},   {RN_Q4_K, 0x7b86029033f113f0},    {RN_Q5_K, 0x81c906627efb54a0},
    {RN_Q6_K, 0xf3b989b3e6a396cd},   {RN_Q8_K, 0xb47bb30e4c8b40f9},    {RN_IQ2_XXS, 0xe317ebfe42608221},
    {RN_IQ2_XS, 0x132b3e3bf0cd5e65}, {RN_IQ3_XXS, 0x689db11f4efca36d}, {RN_IQ1_S, 0x732c12b256a91245},
    {RN_IQ4_NL, 0x9ab11d97bcdad2e5}, {RN_IQ3_S, 0xe513c480d27b15b5},   {RN_IQ2_S, 0x5da4b3ab8540835d},
    {RN_IQ4_XS, 0x129446018c38f25f}, {RN_IQ1_M, 0x232aa164b5c5faa5},   {RN_TQ1_0, 0xb39cca3fe9320325},
    {RN_TQ2_0, 0x3971b7a8e24c6325},  {RN_MXFP4, 0xc5176a82ea4c2325},   {RN_NVFP4, 0xa4f8b04a9f422325},
};

#define MAX_TYPE_ID 64

static uint32_t bits_of(float f)
{
    uint32_t u;

    memcpy(&u, &f, sizeof u);
    return u;
}

static float float_of(uint32_t u)
{
    float f;

    memcpy(&f, &u, sizeof f);
    return f;
}

static void test_known_sums(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof known / sizeof known[0]; k++) {
        const struct rn_type *type = rn_type(known[k].type);
        uint64_t seed = known[k].type, sum = 0xcbf29ce484222325u;
        uint8_t blocks[2 * 292 + 1];
        float out[2 * 256];

        for (int i = 0; i < 512; i++) { /* two blocks at a time, not aligned */
            for (uint32_t j = 0; j < 2 * type->bytes; j++)
                blocks[j + 1] = (uint8_t)rn_splitmix64(&seed);
            type->decode(blocks + 1, out, 2 * type->elements);
            for (uint32_t j = 0; j < 2 * type->elements; j++)
                sum = (sum ^ (isnan(out[j]) ? 0x7fc00000 : bits_of(out[j]))) * 0x100000001b3u;
        }
        if (sum != known[k].sum)
            fail_msg("%s: %016llx", type->name, (unsigned long long)sum);
    }
}

static void check_oracle(const struct rn_gguf *g, const struct rn_tensor *t)
{
    const struct rn_type *type = rn_type(t->type);
    char name[64];
    const struct rn_tensor *wanted;
    float out[4096];

    snprintf(name, sizeof name, "%s.f32", type->name);
    wanted = rn_gguf_find_tensor(g, name);
    assert_non_null(wanted);
    assert_int_equal(t->name.n, strlen(type->name)); /* the tensor is called what we call the type */
    assert_memory_equal(t->name.bytes, type->name, t->name.n);
    assert_int_equal(t->elements, 4096);
    assert_int_equal(t->bytes, rn_type_bytes(type, 4096));
    type->decode(t->data, out, 4096);
    if (memcmp(out, wanted->data, sizeof out) != 0)
        fail_msg("%s differs from the oracle", type->name);
}

static void test_oracle(void **state)
{
    char path[512];
    struct rn_heap heap;
    struct rn_gguf *g;
    uint32_t n = 0;

    (void)state;
    if (!shared_find("oracles/quants/quant_types.gguf", path, sizeof path))
        skip();
    rn_heap_init(&heap, NULL);
    assert_int_equal(rn_gguf_open(&heap, path, &g, NULL), RUNNEL_OK);
    for (uint64_t i = 0; i < rn_gguf_n_tensors(g); i++) {
        const struct rn_tensor *t = rn_gguf_tensor(g, i);

        if (t->type != RN_F32) {
            check_oracle(g, t);
            n++;
        }
    }
    assert_in_range(n, 20, MAX_TYPE_ID);
    rn_gguf_free(g);
}

/* Formats without a scale: C's own conversion, one element a block. */
static void test_plain_numbers(void **state)
{
    const double doubles[] = {1.0 / 3, -1e300, 5e-324, -0.0};
    const int64_t longs[] = {INT64_MIN, INT64_MAX, -1, 16777217};
    const int32_t ints[] = {INT32_MIN, INT32_MAX, 16777217, 0};
    const int16_t shorts[] = {INT16_MIN, INT16_MAX, -1, 2};
    const int8_t bytes[] = {-128, 127, -1, 2};
    const uint16_t brains[] = {0x3f80, 0x8000, 0x7f80, 0x0001};
    uint8_t q8_1[36] = {0x00, 0x38, 0xff, 0x7f}; /* d = 0.5; the sum does not count */
    float out[32];

    (void)state;
#define CHECK_PLAIN(id, values)          \
    rn_type(id)->decode(values, out, 4); \
    for (int i = 0; i < 4; i++)          \
        assert_int_equal(bits_of(out[i]), bits_of((float)values[i]));
    CHECK_PLAIN(RN_F64, doubles)
    CHECK_PLAIN(RN_I64, longs)
    CHECK_PLAIN(RN_I32, ints)
    CHECK_PLAIN(RN_I16, shorts)
    CHECK_PLAIN(RN_I8, bytes)
    rn_type(RN_BF16)->decode(brains, out, 4);
    assert_true(out[0] == 1.0f && bits_of(out[1]) == 0x80000000 && isinf(out[2]) && bits_of(out[3]) == 0x00010000);
    for (int i = 0; i < 32; i++)
        q8_1[4 + i] = (uint8_t)(i * 8 - 128);
    rn_type(RN_Q8_1)->decode(q8_1, out, 32);
    for (int i = 0; i < 32; i++)
        assert_true(out[i] == 0.5f * (float)(i * 8 - 128));
}

/* Every id of the header is there, with its name, and nothing else; a block decodes in bounds. */
static void test_table(void **state)
{
    static const uint32_t ids[] = {0,  1,  2,  3,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 16, 17, 18,
                                   19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 34, 35, 39, 40};
    size_t n = 0;

    (void)state;
    for (uint32_t id = 0; id < MAX_TYPE_ID; id++) {
        const struct rn_type *type = rn_type(id);
        uint8_t *block;
        float *out;

        if (n == sizeof ids / sizeof ids[0] || ids[n] != id) {
            assert_null(type);
            continue;
        }
        n++;
        assert_non_null(type);
        block = calloc(1, type->bytes); /* of exactly its size, for the sanitizer */
        out = malloc(type->elements * sizeof *out);
        assert_true(block != NULL && out != NULL);
        type->decode(block, out, type->elements);
        type->decode(block, out, 0);
        free(block);
        free(out);
    }
    assert_int_equal(n, sizeof ids / sizeof ids[0]);
    assert_null(rn_type(UINT32_MAX));
    assert_string_equal(rn_type(RN_IQ2_XXS)->name, "IQ2_XXS");
}

/* The value of a half by its definition. */
static double half_value(uint16_t h)
{
    int exponent = h >> 10 & 31, mantissa = h & 0x3ff;
    double magnitude = exponent == 31  ? (mantissa != 0 ? NAN : INFINITY)
                       : exponent == 0 ? ldexp(mantissa, -24)
                                       : ldexp(1024 + mantissa, exponent - 25);

    return h & 0x8000 ? -magnitude : magnitude;
}

static void test_every_half(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        float f = rn_f16_to_f32((uint16_t)h);
        double wanted = half_value((uint16_t)h);

        if (isnan(wanted)) {
            assert_true(isnan(f) && isnan(half_value(rn_f32_to_f16(f))));
        } else {
            assert_int_equal(bits_of(f), bits_of((float)wanted));
            assert_int_equal(rn_f32_to_f16(f), h);
        }
    }
}

/* Rounding is monotone, so it is right everywhere if it is right around the middle between every two
 * neighbours: at the middle to the even one, a float's step below and above to the nearer one. */
static void test_half_rounding(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x7c00; h++) {
        double low = half_value((uint16_t)h), high = h == 0x7bff ? 65536.0 : half_value((uint16_t)(h + 1));
        uint32_t middle = bits_of((float)((low + high) / 2)); /* exact: 12 bits */
        uint32_t even = h % 2 == 0 ? h : h + 1;

        assert_int_equal(rn_f32_to_f16(float_of(middle)), even);
        assert_int_equal(rn_f32_to_f16(float_of(middle - 1)), h);
        assert_int_equal(rn_f32_to_f16(float_of(middle + 1)), h + 1);
        assert_int_equal(rn_f32_to_f16(-float_of(middle)), even | 0x8000);
        assert_int_equal(rn_f32_to_f16(-float_of(middle + 1)), (h + 1) | 0x8000);
    }
    assert_int_equal(rn_f32_to_f16(3e38f), 0x7c00);
    assert_int_equal(rn_f32_to_f16(-INFINITY), 0xfc00);
    assert_int_equal(rn_f32_to_f16(float_of(1)), 0);
}

#ifdef __FLT16_MAX__
/* The compiler's own conversions, on floats spread over all patterns. */
static void test_half_compiler(void **state)
{
    (void)state;
    for (uint64_t u = 0; u < (uint64_t)1 << 32; u += 997) {
        float f = float_of((uint32_t)u);
        _Float16 half = (_Float16)f;
        uint16_t wanted;

        memcpy(&wanted, &half, sizeof wanted);
        if (!isnan(f))
            assert_int_equal(rn_f32_to_f16(f), wanted);
        else
            assert_true((rn_f32_to_f16(f) & 0x7fff) > 0x7c00);
    }
}
#endif

static void test_brain_rounding(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x7f80; h++) {
        uint32_t middle = h << 16 | 0x8000, even = h + h % 2;

        assert_int_equal(rn_f32_to_bf16(float_of(h << 16)), h);
        assert_int_equal(bits_of(rn_bf16_to_f32((uint16_t)h)), h << 16);
        assert_int_equal(rn_f32_to_bf16(float_of(middle)), even);
        assert_int_equal(rn_f32_to_bf16(float_of(middle - 1)), h);
        assert_int_equal(rn_f32_to_bf16(float_of(middle + 1)), h + 1);
        assert_int_equal(rn_f32_to_bf16(float_of(middle | 0x80000000)), even | 0x8000);
    }
    for (uint32_t nan = 0x7f800001; nan < 0x80000000; nan += 4099) {
        assert_true((rn_f32_to_bf16(float_of(nan)) & 0x7fff) > 0x7f80);
        assert_true(isnan(rn_bf16_to_f32(rn_f32_to_bf16(float_of(nan | 0x80000000)))));
    }
    assert_int_equal(rn_f32_to_bf16(INFINITY), 0x7f80);
    assert_int_equal(rn_f32_to_bf16(-INFINITY), 0xff80);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_sums),     cmocka_unit_test(test_oracle),     cmocka_unit_test(test_plain_numbers),
        cmocka_unit_test(test_table),          cmocka_unit_test(test_every_half), cmocka_unit_test(test_half_rounding),
#ifdef __FLT16_MAX__
        cmocka_unit_test(test_half_compiler),
#endif
        cmocka_unit_test(test_brain_rounding),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
