/* Cases of matrix products, and their judge. See products_rig.h. */
#include "tests/cpu/products_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/rng.h"

struct rn_heap heap;
uint64_t seed;

const char *const level_names[N_LEVELS] = {"c", "avx2", "avx2-vnni", "avx512", "avx512-amx", "neon"};

const struct format formats[N_FORMATS] = {
    {RN_F32, {-1, -1}},    {RN_F16, {-1, -1}},   {RN_BF16, {-1, -1}},  {RN_Q4_0, {0, -1}},    {RN_Q4_1, {0, 2}},
    {RN_Q5_0, {0, -1}},    {RN_Q5_1, {0, 2}},    {RN_Q8_0, {0, -1}},   {RN_IQ4_NL, {0, -1}},  {RN_MXFP4, {-1, -1}},
    {RN_NVFP4, {-1, -1}},  {RN_Q2_K, {80, 82}},  {RN_Q3_K, {108, -1}}, {RN_Q4_K, {0, 2}},     {RN_Q5_K, {0, 2}},
    {RN_Q6_K, {208, -1}},  {RN_TQ1_0, {52, -1}}, {RN_TQ2_0, {64, -1}}, {RN_IQ4_XS, {0, -1}},  {RN_IQ3_S, {0, -1}},
    {RN_IQ3_XXS, {0, -1}}, {RN_IQ2_S, {0, -1}},  {RN_IQ2_XS, {0, -1}}, {RN_IQ2_XXS, {0, -1}}, {RN_IQ1_M, {-1, -1}},
    {RN_IQ1_S, {0, -1}},   {RN_Q8_1, {0, -1}},
};

enum {
    WEIGHT_BYTES = MAX_ROWS * MAX_COLS * 4,
    INPUT_BYTES = MAX_N * MAX_COLS * 4,
    OUT_BYTES = MAX_N * MAX_ROWS * 4,
};

static double uniform(void)
{
    return (double)(rn_splitmix64(&seed) >> 11) * 0x1p-53;
}

float normal(void)
{
    double sum = -6;
    int i;

    for (i = 0; i < 12; i++)
        sum += uniform();
    return (float)sum;
}

void set_scale(const struct format *f, uint8_t *block, float d)
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

void random_weights(const struct format *f, uint32_t cols, uint32_t rows, uint8_t *out)
{
    const struct rn_type *type = rn_type(f->type);
    size_t n = rn_type_bytes(type, (size_t)rows * cols), i;

    for (i = 0; i < n; i++)
        out[i] = (uint8_t)rn_splitmix64(&seed);
    for (i = 0; i < n; i += type->bytes)
        set_scale(f, out + i, (type->elements == 1 ? 1 : 0.01f) * normal());
}

const struct rn_kernel *kernel_of(const struct rn_level *level, uint32_t type)
{
    const struct rn_kernel *kernel = level->kernel(type);

    return kernel != NULL ? kernel : level->other;
}

bool has_way(const struct rn_kernel *kernel, enum way way)
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

void product(const struct rn_kernel *kernel, enum way way, const struct format *f, uint32_t cols,
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

void quantise(const struct rn_level *level, enum rn_input kind, const float *a, uint32_t cols, void *out, double *value)
{
    const struct rn_line *line = out;
    uint32_t i;

    if (kind == RN_INPUT_F32)
        memcpy(out, a, cols * sizeof *a);
    else
        rn_quantise(level->rows, kind, a, out, cols);
    for (i = 0; i < cols; i++)
        value[i] = kind == RN_INPUT_F32 ? a[i] : (double)line[i / 32].d * line[i / 32].q[i % 32];
}

double nmse_of_doubles(const float *got, const double *want, size_t n)
{
    double error = 0, norm = 0;
    size_t i;

    for (i = 0; i < n; i++) {
        error += (got[i] - want[i]) * (got[i] - want[i]);
        norm += want[i] * want[i];
    }
    return norm == 0 ? error : error / norm;
}

void *take_guarded(size_t n)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), inner = (n + page - 1) / page * page;
    uint8_t *at = mmap(NULL, inner + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    assert_true(at != MAP_FAILED && mprotect(at + page, inner, PROT_READ | PROT_WRITE) == 0);
    return at + page + inner - n;
}

void give_guarded(void *bytes, size_t n)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), inner = (n + page - 1) / page * page;

    assert_int_equal(munmap((uint8_t *)bytes + n - inner - page, inner + 2 * page), 0);
}

struct buffers take_buffers(void)
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

void give_buffers(struct buffers *b)
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

void place(struct buffers *b, uint32_t type, size_t n_weights, size_t input_bytes)
{
    b->weights = b->memory + WEIGHT_BYTES - rn_type_bytes(rn_type(type), n_weights);
    b->inputs = b->input_memory + INPUT_BYTES - input_bytes;
}

void make_case(const struct rn_level *level, const struct format *f, uint32_t cols, double magnitude, struct buffers *b)
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

void judge(const struct format *f, uint32_t cols, struct buffers *b)
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

uint32_t cols_of(const struct format *f, int i)
{
    static const uint32_t odd[] = {1, 203};
    uint32_t block = rn_type(f->type)->elements;

    return block == 1 ? odd[i] : i == 0 ? block : block * (block == 256 ? 5 : block == 64 ? 3 : 7);
}
