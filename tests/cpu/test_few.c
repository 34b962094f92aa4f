/* Products of a few inputs with sixteen rows, and with tiles that take turns, on AVX-512, by shifts and by affine
 * transformations of bytes, of rows as they lie and in tiles, and of points out of registers and out of memory: all have
 * the bits of AVX2. A machine runs the form that its processor knows, so the others are called by name here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "cpu/levels/levels_x86.h"
#include "cpu/tiles.h"

enum {
    ROWS = RN_MOST_STREAMS * RN_TILE_ROWS,
    COLS = 1280,
    BYTES = ROWS * COLS * 2,
    STREAM = RN_STREAM_AHEAD,
    PANEL_BYTES = 1 << 20
};

typedef void product(const struct rn_matmul *m);

static const struct format {
    uint32_t type;
    int scales[2]; /* half floats in a block that must be sane (of IQ1_M their last nibble); -1: none */
    product *rows[2], *tiles[2], *turns[2];
    uint32_t tiles_from; /* so many inputs at least */
} formats[] = {
#define FEW(name)                                      \
    {                                                  \
        rn_few_##name##_avx512, rn_few_##name##_affine \
    }
#define TILES(name)                                                \
    {                                                              \
        rn_few_tiles_##name##_avx512, rn_few_tiles_##name##_affine \
    }
#define TURNS(name)                                        \
    {                                                      \
        rn_turns_##name##_avx512, rn_turns_##name##_affine \
    }
#define FORMS(name) FEW(name), TILES(name), TURNS(name), RN_TILES_FROM_##name
    {RN_Q4_0, {0, -1}, FORMS(q4_0)},    {RN_Q8_0, {0, -1}, FORMS(q8_0)},     {RN_IQ4_NL, {0, -1}, FORMS(iq4_nl)},
    {RN_MXFP4, {-1, -1}, FORMS(mxfp4)}, {RN_Q4_K, {0, 2}, FORMS(q4_k)},      {RN_Q5_K, {0, 2}, FORMS(q5_k)},
    {RN_Q6_K, {208, -1}, FORMS(q6_k)},  {RN_IQ4_XS, {0, -1}, FORMS(iq4_xs)},
};
enum { FORMATS = sizeof formats / sizeof *formats };

/* Of rows only, from one input on: out of memory, out of registers. */
static const struct format points[] = {
#define POINTS(name, other) {rn_points_##name##_avx512, other}, {NULL}, {NULL}, 0
    {RN_IQ2_XXS, {0, -1}, POINTS(iq2_xxs, rn_direct_iq2_xxs_avx512)},
    {RN_IQ2_XS, {0, -1}, POINTS(iq2_xs, rn_direct_iq2_xs_avx512)},
    {RN_IQ2_S, {0, -1}, POINTS(iq2_s, NULL)},
    {RN_IQ1_S, {0, -1}, POINTS(iq1_s, NULL)},
    {RN_IQ1_M, {54, -1}, POINTS(iq1_m, NULL)},
};
enum { POINTS_FORMATS = sizeof points / sizeof *points };

/* Weights in rows and in tiles, with room for what is asked for ahead, inputs, and products [input][row]. */
struct memory {
    uint8_t *rows, *tiles;
    char *inputs;
    void *panel;
    float want[RN_FEW_AVX512][ROWS], got[RN_FEW_AVX512][ROWS];
};

static uint64_t seed = 22;

static void random_weights(const struct format *f, uint8_t *out)
{
    const struct rn_type *type = rn_type(f->type);
    size_t n = rn_type_bytes(type, (size_t)ROWS * COLS), i;
    int k;

    for (i = 0; i < n; i++)
        out[i] = (uint8_t)rn_splitmix64(&seed);
    for (i = 0; i < n; i += type->bytes) {
        if (f->type == RN_MXFP4)
            out[i] = (uint8_t)(120 + out[i] % 8);
        for (k = 0; k < 2 && f->scales[k] >= 0; k++) /* between 2^-8 and 2^-4, of either sign */
            out[i + (size_t)f->scales[k] + 1] = (uint8_t)(0x1c + (out[i + (size_t)f->scales[k] + 1] & 0x8f));
    }
}

/* As the type wants them; each block of 32 has a magnitude of its own. */
static void random_inputs(uint32_t type, char *inputs)
{
    const enum rn_input kind = RN_INPUT_OF(type);
    float a[COLS];
    uint32_t i, c;

    for (i = 0; i < RN_FEW_AVX512; i++) {
        for (c = 0; c < COLS; c++)
            a[c] = i == 3 ? 0 : ldexpf((float)((double)(int64_t)rn_splitmix64(&seed) * 0x1p-63), (int)(c / 32 % 9) - 4);
        rn_quantise(rn_level_avx512()->rows, kind, a, inputs + i * rn_input_bytes(kind, COLS), COLS);
    }
}

/* The products of all rows, so many at a time. */
static void run(struct memory *at, uint32_t type, product *f, const uint8_t *weights, uint32_t height, uint32_t n,
                float out[RN_FEW_AVX512][ROWS])
{
    struct rn_matmul m = {.row_bytes = rn_type_bytes(rn_type(type), COLS),
                          .rows = height,
                          .step = 1,
                          .ahead = RN_TILE_AHEAD,
                          .cols = COLS,
                          .type = rn_type(type),
                          .panel = at->panel,
                          .n = n};
    uint32_t row, i;

    memset(out, 0xff, sizeof at->got);
    for (row = 0; row < ROWS; row += height) {
        m.weights = weights + row * m.row_bytes;
        for (i = 0; i < n; i++) {
            m.inputs[i] = at->inputs + i * rn_input_bytes(RN_INPUT_LINES, COLS);
            m.out[i] = out[i] + row;
        }
        f(&m);
    }
}

static void same_bits(struct memory *at, const struct format *f, product *form, const uint8_t *weights, uint32_t height,
                      uint32_t n)
{
    run(at, f->type, form, weights, height, n, at->got);
    assert_memory_equal(at->got, at->want, sizeof at->want);
}

static void make_memory(struct memory *at, struct rn_heap *heap)
{
    rn_heap_init(heap, NULL);
    at->rows = rn_alloc(heap, BYTES + STREAM, 1);
    at->tiles = rn_alloc_aligned(heap, BYTES + RN_TILE_AHEAD, 64);
    at->inputs = rn_alloc_aligned(heap, RN_FEW_AVX512 * rn_input_bytes(RN_INPUT_LINES, COLS), 64);
    at->panel = rn_alloc_aligned(heap, PANEL_BYTES, 64);
}

static void free_memory(struct memory *at, struct rn_heap *heap)
{
    rn_free(heap, at->rows);
    rn_free(heap, at->tiles);
    rn_free(heap, at->inputs);
    rn_free(heap, at->panel);
}

static void products_of_avx2(struct memory *at, uint32_t type, uint32_t n)
{
    const struct rn_kernel *kernel = rn_level_avx2()->kernel(type);
    uint32_t height = rn_kernel_height(kernel, n);

    assert_int_equal(kernel->input, RN_INPUT_OF(type));
    assert_int_equal(ROWS % height, 0);
    run(at, type, kernel->direct, at->rows, height, n, at->want);
}

static void every_form_has_the_bits_of_avx2(void **state)
{
    struct rn_heap heap;
    struct memory at;
    uint32_t i, n, form, height;

    (void)state;
    if (rn_level_avx512() == NULL)
        skip();
    make_memory(&at, &heap);
    for (i = 0; i < FORMATS; i++) {
        random_weights(&formats[i], at.rows);
        random_inputs(formats[i].type, at.inputs);
        rn_tiles_lay(formats[i].type, COLS, ROWS, at.rows, at.tiles);
        for (n = 1; n <= RN_FEW_AVX512; n++) {
            products_of_avx2(&at, formats[i].type, n);
            for (form = 0; form < (rn_has_affine() ? 2 : 1); form++) {
                if (n > 1)
                    same_bits(&at, &formats[i], formats[i].rows[form], at.rows, RN_TILE_ROWS, n);
                if (n < formats[i].tiles_from)
                    continue;
                same_bits(&at, &formats[i], formats[i].tiles[form], at.tiles, RN_TILE_ROWS, n);
                for (height = 2 * RN_TILE_ROWS; height <= ROWS; height *= 2)
                    same_bits(&at, &formats[i], formats[i].turns[form], at.tiles, height, n);
            }
        }
    }
    free_memory(&at, &heap);
}

static void points_have_the_bits_of_avx2(void **state)
{
    struct rn_heap heap;
    struct memory at;
    uint32_t i, n, form;

    (void)state;
    if (rn_level_avx512() == NULL)
        skip();
    make_memory(&at, &heap);
    for (i = 0; i < POINTS_FORMATS; i++) {
        random_weights(&points[i], at.rows);
        random_inputs(points[i].type, at.inputs);
        for (n = 1; n <= RN_POINTS_AVX512; n++) {
            products_of_avx2(&at, points[i].type, n);
            for (form = 0; form < (rn_has_affine() ? 2 : 1) && points[i].rows[form] != NULL; form++)
                same_bits(&at, &points[i], points[i].rows[form], at.rows, RN_TILE_ROWS, n);
        }
    }
    free_memory(&at, &heap);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_form_has_the_bits_of_avx2),
                                       cmocka_unit_test(points_have_the_bits_of_avx2)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
