/* The matrix products of every SIMD level that this machine has, for every format: against sums in double
 * precision over the decoded weights and the exactly quantised inputs; and law 5 inside the kernels: the bits
 * of a product do not depend on how many inputs and rows were handed over together, nor on the level among
 * those that share the order of their sums. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/rng.h"
#include "cpu/kernels.h"
#include "cpu/tiles.h"
#include "tests/slow.h"

enum { MAX_ROWS = 131, MAX_COLS = 1280, MAX_N = 64, PANEL_BYTES = 1 << 20, BIG_COLS = 8192 };

static const char *const level_names[] = {"c", "avx2", "avx2-vnni", "avx512", "avx512-amx", "neon"};
enum { N_LEVELS = sizeof level_names / sizeof *level_names };

static struct rn_heap heap;
static uint64_t seed;

struct format {
    uint32_t type;
    int d_at[2]; /* half floats in a block that must be sane; -1: none */
};

static const struct format formats[] = {
    {RN_F32, {-1, -1}},    {RN_F16, {-1, -1}},   {RN_BF16, {-1, -1}},  {RN_Q4_0, {0, -1}},    {RN_Q4_1, {0, 2}},
    {RN_Q5_0, {0, -1}},    {RN_Q5_1, {0, 2}},    {RN_Q8_0, {0, -1}},   {RN_IQ4_NL, {0, -1}},  {RN_MXFP4, {-1, -1}},
    {RN_NVFP4, {-1, -1}},  {RN_Q2_K, {80, 82}},  {RN_Q3_K, {108, -1}}, {RN_Q4_K, {0, 2}},     {RN_Q5_K, {0, 2}},
    {RN_Q6_K, {208, -1}},  {RN_TQ1_0, {52, -1}}, {RN_TQ2_0, {64, -1}}, {RN_IQ4_XS, {0, -1}},  {RN_IQ3_S, {0, -1}},
    {RN_IQ3_XXS, {0, -1}}, {RN_IQ2_S, {0, -1}},  {RN_IQ2_XS, {0, -1}}, {RN_IQ2_XXS, {0, -1}}, {RN_IQ1_M, {-1, -1}},
    {RN_IQ1_S, {0, -1}},   {RN_Q8_1, {0, -1}},
};
enum { N_FORMATS = sizeof formats / sizeof *formats };

/* No product is compiled with sanitizers (cpu/levels/CMakeLists.txt): what is around it sees a part of the numbers of
 * inputs and rows, of every kind of call on every level for every format. */
enum { COUNT_STEP = UNLESS_SANITIZED(1, 4), ROW_STEP = UNLESS_SANITIZED(1, 11) };

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

/* One block's scale, where random bits would make it NaN or of any size. */
static void set_scale(const struct format *f, uint8_t *block, float d)
{
    uint16_t half = rn_f32_to_f16(d);
    int j;

    if (f->type == RN_F32)
        memcpy(block, &d, 4);
    else if (f->type == RN_F16)
        memcpy(block, &half, 2);
    else if (f->type == RN_BF16)
        memcpy(block, &(uint16_t){rn_f32_to_bf16(d)}, 2);
    else if (f->type == RN_MXFP4)
        block[0] = (uint8_t)(120 + rn_splitmix64(&seed) % 8);
    else if (f->type == RN_IQ1_M) /* four bits in the top of four words */
        for (j = 0; j < 4; j++)
            block[49 + 2 * j] = (uint8_t)((block[49 + 2 * j] & 15) | (half >> 4 * j & 15) << 4);
    for (j = 0; j < 2; j++) {
        if (f->d_at[j] >= 0)
            memcpy(block + f->d_at[j], &half, 2);
        half = (uint16_t)(half ^ 0x0155);
    }
}

static void random_weights(const struct format *f, uint32_t cols, uint32_t rows, uint8_t *out)
{
    const struct rn_type *type = rn_type(f->type);
    size_t n = rn_type_bytes(type, (size_t)rows * cols), i;

    for (i = 0; i < n; i++)
        out[i] = (uint8_t)rn_splitmix64(&seed);
    for (i = 0; i < n; i += type->bytes)
        set_scale(f, out + i, (type->elements == 1 ? 1 : 0.01f) * normal());
}

static const struct rn_kernel *kernel_of(const struct rn_level *level, uint32_t type)
{
    const struct rn_kernel *kernel = level->kernel(type);

    return kernel != NULL ? kernel : level->other;
}

/* How a product is driven: as the executor does, or one of its ways forced. */
enum way { AS_MEANT, DIRECT, PACKED, LAID, WAYS };

static bool has_way(const struct rn_kernel *kernel, enum way way)
{
    return way == AS_MEANT ||
           (way == DIRECT ? kernel->direct != NULL : kernel->packed != NULL && (way == PACKED || kernel->lays));
}

/* The inputs as a level lays them. */
static char *lay(const struct rn_level *level, uint32_t cols, const char *inputs, uint32_t n)
{
    const size_t of_group = cols / 32 * (size_t)RN_LAID_BYTES, bytes = rn_input_bytes(RN_INPUT_LINES, cols);
    char *laid = rn_alloc_aligned(&heap, (n + 15) / 16 * of_group, 64);
    const struct rn_line *group[16];
    uint32_t i, j;

    for (i = 0; i < n; i += 16) {
        for (j = 0; j < 16; j++)
            group[j] = (const struct rn_line *)(inputs + (i + j < n ? i + j : n - 1) * bytes);
        level->lay(group, 0, 1, laid + i / 16 * of_group); /* in two goes */
        level->lay(group, 1, cols / 32 - 1, laid + i / 16 * of_group + RN_LAID_BYTES);
    }
    return laid;
}

/* out[i][r] = weights[r] · inputs[i], rows [0, n_rows); out is [n][MAX_ROWS]. */
static void product(const struct rn_kernel *kernel, enum way way, const struct format *f, uint32_t cols,
                    const uint8_t *weights, uint32_t n_rows, const char *inputs, uint32_t n, void *panel, float *out)
{
    const struct rn_type *type = rn_type(f->type);
    struct rn_matmul m = {
        .row_bytes = rn_type_bytes(type, cols), .cols = cols, .type = type, .panel = panel, .step = 1};
    bool packed = way == PACKED || way == LAID || (way == AS_MEANT && n >= kernel->pack_from);
    char *laid = way == LAID ? lay(rn_level_amx(), cols, inputs, n) : NULL;
    uint32_t height = packed ? rn_kernel_panel(kernel, cols) : rn_kernel_height(kernel, n), row, i, j;

    for (row = 0; row < n_rows; row += height) {
        m.weights = weights + row * m.row_bytes;
        m.rows = n_rows - row < height ? n_rows - row : height;
        if (packed)
            kernel->pack(&m);
        for (i = 0; i < n; i += m.n) {
            m.n = rn_kernel_inputs(kernel, n - i);
            for (j = 0; j < m.n; j++) {
                m.inputs[j] = inputs + (i + j) * rn_input_bytes(kernel->input, cols);
                m.out[j] = out + (size_t)(i + j) * MAX_ROWS + row;
            }
            m.laid = laid == NULL ? NULL : laid + i / 16 * (size_t)(cols / 32) * RN_LAID_BYTES;
            if (!packed && rn_kernel_gathers(kernel, m.n))
                kernel->gather(&m);
            (packed ? kernel->packed : kernel->direct)(&m);
        }
    }
    rn_free(&heap, laid);
}

/* The row as the kernel sees it, and what it stands for. */
static void quantise(const struct rn_level *level, enum rn_input kind, const float *a, uint32_t cols, void *out,
                     double *value)
{
    const struct rn_line *line = out;
    uint32_t i;

    if (kind == RN_INPUT_F32)
        memcpy(out, a, cols * sizeof *a);
    else
        rn_quantise(level->rows, kind, a, out, cols);
    for (i = 0; i < cols; i++)
        value[i] = kind == RN_INPUT_LINES ? (double)line[i / 32].d * line[i / 32].q[i % 32] : a[i];
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

/* n bytes between two pages that cannot be touched, the second one right behind them: sanitizers do not see kernels. */
static void *take_guarded(size_t n)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), inner = (n + page - 1) / page * page;
    uint8_t *at = mmap(NULL, inner + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    assert_true(at != MAP_FAILED && mprotect(at + page, inner, PROT_READ | PROT_WRITE) == 0);
    return at + page + inner - n;
}

static void give_guarded(void *bytes, size_t n)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), inner = (n + page - 1) / page * page;

    assert_int_equal(munmap((uint8_t *)bytes + n - inner - page, inner + 2 * page), 0);
}

enum {
    WEIGHT_BYTES = MAX_ROWS * MAX_COLS * 4,
    INPUT_BYTES = MAX_N * MAX_COLS * 4,
    OUT_BYTES = MAX_N * MAX_ROWS * 4,
};

struct buffers {
    uint8_t *memory, *weights; /* the weights are the last bytes of the memory: see place */
    float *decoded, *a, *out, *alone;
    char *input_memory, *inputs; /* in the same way */
    double *values, *want;
    void *panel;
};

static struct buffers take_buffers(void)
{
    struct buffers b;

    b.memory = take_guarded(WEIGHT_BYTES);
    b.weights = b.memory;
    b.decoded = rn_alloc(&heap, MAX_ROWS * MAX_COLS, 4);
    b.a = rn_alloc(&heap, MAX_N * MAX_COLS, 4);
    b.input_memory = take_guarded(INPUT_BYTES);
    b.inputs = b.input_memory;
    b.values = rn_alloc(&heap, MAX_N * MAX_COLS, 8);
    b.want = rn_alloc(&heap, MAX_N * MAX_ROWS, 8);
    b.out = take_guarded(OUT_BYTES);
    b.alone = rn_alloc(&heap, MAX_N * MAX_ROWS, 4);
    b.panel = take_guarded(PANEL_BYTES);
    return b;
}

static void give_buffers(struct buffers *b)
{
    give_guarded(b->memory, WEIGHT_BYTES);
    rn_free(&heap, b->decoded);
    rn_free(&heap, b->a);
    give_guarded(b->input_memory, INPUT_BYTES);
    rn_free(&heap, b->values);
    rn_free(&heap, b->want);
    give_guarded(b->out, OUT_BYTES);
    rn_free(&heap, b->alone);
    give_guarded(b->panel, PANEL_BYTES);
}

/* Puts weights of a type, and inputs of so many bytes, where a read behind them is one of the guarded page. */
static void place(struct buffers *b, uint32_t type, size_t n_weights, size_t input_bytes)
{
    b->weights = b->memory + WEIGHT_BYTES - rn_type_bytes(rn_type(type), n_weights);
    b->inputs = b->input_memory + INPUT_BYTES - input_bytes;
}

/* Random weights and MAX_N inputs (one of them zeros) of some magnitude. */
static void make_case(const struct rn_level *level, const struct format *f, uint32_t cols, double magnitude,
                      struct buffers *b)
{
    enum rn_input kind = kernel_of(level, f->type)->input;
    size_t bytes = rn_input_bytes(kind, cols);
    uint32_t i, c;

    place(b, f->type, (size_t)MAX_ROWS * cols, MAX_N * bytes);
    random_weights(f, cols, MAX_ROWS, b->weights);
    for (i = 0; i < MAX_N; i++) {
        for (c = 0; c < cols; c++)
            b->a[i * cols + c] = i == 3 ? 0 : (float)(normal() * magnitude);
        quantise(level, kind, b->a + i * cols, cols, b->inputs + i * bytes, b->values + i * cols);
    }
}

/* b->want: the products of a case in double precision. Most of the time of a case is here. */
static void judge(const struct format *f, uint32_t cols, struct buffers *b)
{
    uint32_t i, r, c;
    double sum;

    rn_type(f->type)->decode(b->weights, b->decoded, (size_t)MAX_ROWS * cols);
    for (i = 0; i < MAX_N; i++)
        for (r = 0; r < MAX_ROWS; r++) {
            sum = 0;
            for (c = 0; c < cols; c++)
                sum += b->decoded[r * cols + c] * b->values[i * cols + c];
            b->want[i * MAX_ROWS + r] = sum;
        }
}

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
    error = nmse(b.alone, b.want, MAX_N * MAX_ROWS);
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

/* One block, an odd number of blocks, and where a format has no blocks, no multiple of a vector. */
static uint32_t cols_of(const struct format *f, int i)
{
    static const uint32_t odd[] = {1, 203};
    uint32_t block = rn_type(f->type)->elements;

    return block == 1 ? odd[i] : i == 0 ? block : block * (block == 256 ? 5 : block == 64 ? 3 : 7);
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
                             uint32_t n, const struct buffers *b)
{
    const uint32_t run = TILED_ROWS / tiled->direct_tile * RN_TILE_ROWS;
    struct rn_matmul m = {.row_bytes = rn_type_bytes(rn_type(f->type), cols),
                          .cols = cols,
                          .type = rn_type(f->type),
                          .rows = tiled->direct_tile,
                          .step = 1,
                          .gap = run - RN_TILE_ROWS,
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
            product_in_turns(&several, f, cols, tiles, n, b);
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
        error = nmse(b->out, want, 2);
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

/* Quantising: every value within half a step of the scale; tiny rows become 0; NaN and infinity reach
 * the scale and so every product. */
static void check_quantise(const struct rn_level *level, enum rn_input kind)
{
    enum { COLS = 512, BLOCK = 32 };
    size_t i, b;
    _Alignas(64) char row[4096];
    double value[COLS], most;
    float a[COLS];

    assert_true(rn_input_bytes(kind, COLS) <= sizeof row);
    for (i = 0; i < COLS; i++)
        a[i] = normal();
    quantise(level, kind, a, COLS, row, value);
    for (b = 0; b < COLS; b += BLOCK) {
        for (most = 0, i = b; i < b + BLOCK; i++)
            most = fmax(most, fabsf(a[i]));
        for (i = b; i < b + BLOCK; i++)
            assert_true(fabs(value[i] - a[i]) <= most / 127 * 0.5001);
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
static void check_line(const struct rn_line *line)
{
    int32_t sum[2] = {0, 0};
    uint32_t i, h;

    for (i = 0; i < 32; i++)
        sum[i / 16] += line->q[i];
    for (h = 0; h < 2; h++) {
        assert_int_equal(line->start16[h], RN_MAGIC_BITS - 128 * sum[h]);
        assert_true(line->d_sum16[h] == line->d * (float)sum[h]);
    }
    assert_int_equal(line->start, RN_MAGIC_BITS - 128 * (sum[0] + sum[1]));
    assert_true(line->d_sum == line->d * (float)(sum[0] + sum[1]));
    assert_true((double)line->magic_d == (double)RN_MAGIC * (double)line->d);
}

static void test_lines(void **state)
{
    const struct rn_level *level;
    struct rn_line line[2];
    float a[64];
    size_t l, i;

    (void)state;
    for (i = 0; i < 64; i++)
        a[i] = normal() + 1;
    for (l = 0; l < N_LEVELS; l++) {
        level = rn_level_named(level_names[l]);
        if (level == NULL)
            continue;
        level->rows->quantise_lines(a, line, 64);
        check_line(&line[0]);
        check_line(&line[1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products),     cmocka_unit_test(test_odd_rows),    cmocka_unit_test(test_tiles),
        cmocka_unit_test(test_long_rows),    cmocka_unit_test(test_extremes),    cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_levels_agree), cmocka_unit_test(test_own_kernels), cmocka_unit_test(test_quantise),
        cmocka_unit_test(test_lines),
    };
    int failed;

    rn_heap_init(&heap, NULL);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    return failed != 0 || rn_heap_blocks(&heap) != 0;
}
