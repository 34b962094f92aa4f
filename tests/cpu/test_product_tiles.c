/* The matrix products of weights in tiles, of every SIMD level that this machine has, for every format that it has them
 * for: the bits of rows as they lie, with any number of inputs, and in any number of streams. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "cpu/tiles.h"
#include "tests/cpu/amx_emulator.h"
#include "tests/cpu/products_rig.h"

enum { TILED_ROWS = 128 };

/* Outputs by n inputs of tiles: the bits of b->alone, and nothing behind them. */
static void check_tiled(const struct rn_level *level, const struct rn_kernel *tiled, enum way way,
                        const struct format *f, uint32_t cols, uint32_t n, const struct buffers *b)
{
    uint32_t i;

    for (i = 0; i < n; i++)
        if (memcmp(b->out + i * MAX_ROWS, b->alone + i * MAX_ROWS, TILED_ROWS * sizeof(float)) != 0)
            fail_msg("%s %s cols %u: tiles give other bits, input %u of %u, way %d, %u rows", level->name,
                     rn_type(f->type)->name, cols, i, n, way, tiled->direct_tile);
    assert_true(isnan(b->out[TILED_ROWS]) && isnan(b->out[n * MAX_ROWS]));
}

/* Few inputs and tiles that take turns, each of a run of tiles of its own: see turns_of in cpu/products.c. */
static void product_in_turns(const struct rn_kernel *tiled, const struct format *f, uint32_t cols, const uint8_t *tiles,
                             struct rn_reading reading, uint32_t n, const struct buffers *b)
{
    const uint32_t run = TILED_ROWS / reading.streams;
    struct rn_matmul m = {.row_bytes = rn_type_bytes(rn_type(f->type), cols),
                          .cols = cols,
                          .type = rn_type(f->type),
                          .rows = reading.streams * RN_TILE_ROWS,
                          .step = 1,
                          .gap = run - RN_TILE_ROWS,
                          .ahead = reading.ahead,
                          .n = n};
    uint32_t row, i;

    for (row = 0; row < run; row += RN_TILE_ROWS) {
        m.weights = tiles + row * m.row_bytes;
        for (i = 0; i < n; i++) {
            m.inputs[i] = b->inputs + i * rn_input_bytes(tiled->input, cols);
            m.out[i] = b->out + (size_t)i * MAX_ROWS + row;
        }
        tiled->direct(&m);
    }
}

/* The first rows of a case in tiles, read to the last byte of a memory of their own: the bits of rows as they lie, with
 * any number of inputs, and in any number of streams. */
static void check_tiles(const struct rn_level *level, const struct format *f, uint32_t cols, struct buffers *b)
{
    enum { AT_MOST = 33 };
    const struct rn_kernel *kernel = kernel_of(level, f->type), *tiled = level->tiled(f->type);
    size_t bytes = rn_type_bytes(rn_type(f->type), (size_t)TILED_ROWS * cols);
    uint8_t *tiles = take_guarded(bytes);
    struct rn_kernel several = *tiled;
    struct rn_reading reading = {.ahead = RN_TILE_AHEAD};
    enum way way;
    uint32_t n;

    assert_true(TILED_ROWS % tiled->tile == 0 && tiled->tile % RN_TILE_ROWS == 0 && tiled->step == 1);
    assert_true(tiled->input == kernel->input && tiled->streams <= RN_MOST_STREAMS);
    make_case(level, f, cols, 1, b);
    rn_tiles_lay(f->type, cols, TILED_ROWS, b->weights, tiles);
    product(kernel, AS_MEANT, f, cols, b->weights, MAX_ROWS, b->inputs, AT_MOST, b->panel, b->alone);
    for (way = AS_MEANT; way < WAYS; way++)
        for (n = 1; has_way(tiled, way) && n <= AT_MOST; n += COUNT_STEP) {
            memset(b->out, 0xff, MAX_N * MAX_ROWS * sizeof(float));
            product(tiled, way, f, cols, tiles, TILED_ROWS, b->inputs, n, b->panel, b->out);
            check_tiled(level, tiled, way, f, cols, n, b);
        }
    for (several.direct_tile = 2 * RN_TILE_ROWS; several.direct_tile <= tiled->streams * RN_TILE_ROWS;
         several.direct_tile *= 2)
        for (n = 1; n <= tiled->few; n++) {
            memset(b->out, 0xff, MAX_N * MAX_ROWS * sizeof(float));
            product(&several, DIRECT, f, cols, tiles, TILED_ROWS, b->inputs, n, b->panel, b->out);
            check_tiled(level, &several, DIRECT, f, cols, n, b);
            memset(b->out, 0xff, MAX_N * MAX_ROWS * sizeof(float));
            reading.streams = (uint8_t)(several.direct_tile / RN_TILE_ROWS);
            product_in_turns(tiled, f, cols, tiles, reading, n, b);
            check_tiled(level, &several, DIRECT, f, cols, n, b);
        }
    give_guarded(tiles, bytes);
}

static void test_tiles(void **state)
{
    const struct rn_level *level;
    struct buffers b = take_buffers();
    size_t l, i, n = 0;

    (void)state;
    for (l = 0; l < N_LEVELS; l++) {
        level = rn_level_named(level_names[l]);
        for (i = 0; level != NULL && level->tiled != NULL && i < N_FORMATS; i++) {
            if (level->tiled(formats[i].type) == NULL)
                continue;
            seed = 500 * l + i;
            check_tiles(level, &formats[i], cols_of(&formats[i], 0), &b);
            check_tiles(level, &formats[i], cols_of(&formats[i], 1), &b);
            n++;
        }
    }
    if (rn_level_avx2() != NULL)
        assert_true(n >= 14);
    give_buffers(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_tiles)};
    int failed;

    emulate_amx_for_products();
    rn_heap_init(&heap, NULL);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    return failed != 0 || rn_heap_blocks(&heap) != 0;
}
