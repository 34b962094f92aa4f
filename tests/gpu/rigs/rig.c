#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "rig.h"
#include "model/quant/quant.h"
#include "tests/gpu/rigs/real_device.h"

void rig_open(struct rig *rig)
{
    memset(rig, 0, sizeof *rig);
    rn_heap_init(&rig->heap, NULL);
    rig->real = real_device_module();
    rig->emulator = rig->real != NULL ? NULL : rn_emulator_new(&rig->heap);
    assert_true(rig->real != NULL || rig->emulator != NULL);
    rig->state = 1;
}

void rig_close(struct rig *rig)
{
    if (rig->emulator != NULL)
        rn_emulator_free(rig->emulator);
    while (rig->n_arrays > 0)
        rn_free(&rig->heap, rig->arrays[--rig->n_arrays]);
    for (; rig->real != NULL && rig->n_ranges > 0; rig->n_ranges--)
        assert_int_equal(
            rig->real->driver->host_free(rig->real->driver, rig_host_at(rig->ranges[rig->n_ranges - 1].at)), RN_GPU_OK);
    assert_int_equal(rn_heap_bytes(&rig->heap), 0);
}

static void *keep(struct rig *rig, void *memory)
{
    assert_non_null(memory);
    assert_true(rig->n_arrays < RIG_ARRAYS);
    rig->arrays[rig->n_arrays++] = memory;
    return memory;
}

/* Of a GPU: pinned memory of the host, which it reads and writes at the host's address. */
static void *pinned(const struct rn_gpu_module *real, size_t bytes)
{
    void *memory = NULL;

    assert_int_equal(real->driver->host_new(real->driver, &memory, bytes, RN_GPU_HOST_PORTABLE), RN_GPU_OK);
    return memory;
}

void *rig_device(struct rig *rig, size_t bytes)
{
    void *memory = rig->real != NULL ? pinned(rig->real, bytes) : keep(rig, rn_alloc_aligned(&rig->heap, bytes, 256));
    uint32_t i;

    assert_true(rig->n_ranges < RIG_ARRAYS);

    memset(memory, 0xff, bytes);
    for (i = rig->n_ranges++; i > 0 && rig->ranges[i - 1].at > rig_at(memory); i--)
        rig->ranges[i] = rig->ranges[i - 1];
    rig->ranges[i] = (struct rn_emulated_range){rig_at(memory), bytes};
    return memory;
}

void *rig_host(struct rig *rig, size_t bytes)
{
    return keep(rig, rn_calloc(&rig->heap, 1, bytes));
}

uint32_t rig_random(struct rig *rig, uint32_t n)
{
    rig->state = rig->state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((rig->state >> 33) % n);
}

float rig_float(struct rig *rig, float scale)
{
    return ((float)rig_random(rig, 1 << 24) / (float)(1 << 23) - 1) * scale;
}

float *rig_floats(struct rig *rig, size_t n, float scale)
{
    float *a = rig_device(rig, n * sizeof *a);
    size_t i;

    for (i = 0; i < n; i++)
        a[i] = rig_float(rig, scale);
    return a;
}

/* On the GPU, to its end. */
static void run_real(const struct rn_gpu_module *real, const struct rn_kernel_info *info, const void *args)
{
    struct rn_gpu_function *function = real_device_function(info->name);
    struct rn_launch launch = info->launch(args);
    struct rn_gpu_driver *driver = real->driver;
    unsigned char copy[1024];
    void *arguments[] = {copy};
    char text[128];
    int result;

    assert_true(info->args_bytes <= sizeof copy);
    memcpy(copy, args, info->args_bytes);
    result = driver->function_set(driver, function, RN_GPU_FUNCTION_SHARED, (int)launch.shared_bytes);
    if (result == RN_GPU_OK)
        result = driver->launch(driver, function, launch.grid[0], launch.grid[1], launch.grid[2], launch.threads, 1, 1,
                                launch.shared_bytes, NULL, arguments, NULL);
    if (result == RN_GPU_OK)
        result = driver->stream_finish(driver, NULL);
    rn_gpu_error_text(driver, result, text, sizeof text);
    if (result != RN_GPU_OK)
        fail_msg("%s: %s", info->name, text);
}

void rig_run(struct rig *rig, enum rn_kernel kernel, const void *args)
{
    const struct rn_kernel_info *info = rn_kernel_info(kernel);
    struct rn_launch launch = info->launch(args);
    char fault[RN_EMULATED_FAULT_BYTES];

    if (rig->real != NULL)
        run_real(rig->real, info, args);
    else if (!rn_emulator_launch(rig->emulator, rn_emulated_find(kernel), &launch, args, rig->ranges, rig->n_ranges,
                                 fault))
        fail_msg("%s: %s", info->name, fault);
}

/* A scale of about 1 / 64 in f16. */
static void put_half(struct rig *rig, unsigned char *at, float scale)
{
    uint16_t half = rn_f32_to_f16(scale * (1 + rig_float(rig, 0.5f)));

    memcpy(at, &half, sizeof half);
}

/* A number of a type whose blocks have one. */
static bool put_number(struct rig *rig, uint32_t type_id, unsigned char *block)
{
    float number = rig_float(rig, 1);
    double wide = number;
    uint16_t half = type_id == RN_F16 ? rn_f32_to_f16(number) : rn_f32_to_bf16(number);

    if (type_id == RN_F32)
        memcpy(block, &number, sizeof number);
    else if (type_id == RN_F64)
        memcpy(block, &wide, sizeof wide);
    else if (type_id == RN_F16 || type_id == RN_BF16)
        memcpy(block, &half, sizeof half);
    else
        return type_id >= RN_I8 && type_id <= RN_I64; /* any bits are one */
    return true;
}

/* The halves of d (and of a minimum) of a type, and what makes its numbers about 1. */
static const struct {
    uint32_t type_id, at;
    float scale;
    int32_t minimum_at; /* -1: it has none */
    float minimum;
} halves[] = {
    {RN_Q8_0, 0, 1 / 128.0f, -1, 0},         {RN_Q8_1, 0, 1 / 128.0f, 2, 1},     {RN_Q4_0, 0, 1 / 8.0f, -1, 0},
    {RN_Q4_1, 0, 1 / 8.0f, 2, -1},           {RN_Q5_0, 0, 1 / 16.0f, -1, 0},     {RN_Q5_1, 0, 1 / 16.0f, 2, -1},
    {RN_Q2_K, 80, 1 / 32.0f, 82, 0.1f},      {RN_Q3_K, 108, 1 / 64.0f, -1, 0},   {RN_Q4_K, 0, 1 / 512.0f, 2, 1 / 64.0f},
    {RN_Q5_K, 0, 1 / 1024.0f, 2, 1 / 64.0f}, {RN_Q6_K, 208, 1 / 4096.0f, -1, 0}, {RN_IQ1_S, 0, 1 / 8.0f, -1, 0},
    {RN_IQ2_XXS, 0, 1 / 64.0f, -1, 0},       {RN_IQ2_XS, 0, 1 / 64.0f, -1, 0},   {RN_IQ2_S, 0, 1 / 64.0f, -1, 0},
    {RN_IQ3_XXS, 0, 1 / 256.0f, -1, 0},      {RN_IQ3_S, 0, 1 / 128.0f, -1, 0},   {RN_IQ4_NL, 0, 1 / 64.0f, -1, 0},
    {RN_IQ4_XS, 0, 1 / 1024.0f, -1, 0},      {RN_TQ1_0, 52, 1, -1, 0},           {RN_TQ2_0, 64, 1, -1, 0},
};

/* Scales that are no wild numbers, of types whose are not halves, or not at a place of their own. */
static void put_scales(struct rig *rig, uint32_t type_id, unsigned char *block)
{
    float d = (1 + rig_float(rig, 0.5f)) / 128;
    uint16_t half = rn_f32_to_f16((1 + rig_float(rig, 0.5f)) / 8);
    uint32_t i;

    if (type_id == RN_MXFP4) {
        block[0] = (unsigned char)(124 + rig_random(rig, 4));
    } else if (type_id == RN_NVFP4) {
        for (i = 0; i < 4; i++)
            block[i] = (unsigned char)rig_random(rig, 80); /* up to 16 */
    } else if (type_id == RN_Q8_K) {
        memcpy(block, &d, sizeof d);
    } else if (type_id == RN_IQ1_M) {
        for (i = 0; i < 4; i++)
            block[49 + 2 * i] = (unsigned char)((block[49 + 2 * i] & 15) | (half >> (4 * i) & 15) << 4);
    } else {
        fail_msg("type %u", type_id);
    }
}

/* A block of random codes. */
static void put_block(struct rig *rig, uint32_t type_id, uint32_t bytes, unsigned char *block)
{
    uint32_t i;

    for (i = 0; i < bytes; i++)
        block[i] = (unsigned char)rig_random(rig, 256);
    if (put_number(rig, type_id, block))
        return;
    for (i = 0; i < sizeof halves / sizeof halves[0] && halves[i].type_id != type_id; i++) {
    }
    if (i == sizeof halves / sizeof halves[0]) {
        put_scales(rig, type_id, block);
        return;
    }
    put_half(rig, block + halves[i].at, halves[i].scale);
    if (halves[i].minimum_at >= 0)
        put_half(rig, block + halves[i].minimum_at, halves[i].minimum);
}

unsigned char *rig_weights(struct rig *rig, uint32_t type_id, uint32_t rows, uint32_t cols)
{
    const struct rn_type *type = rn_type(type_id);
    size_t n = (size_t)rows * (cols / type->elements), i;
    unsigned char *blocks = rig_device(rig, n * type->bytes);

    for (i = 0; i < n; i++)
        put_block(rig, type_id, type->bytes, blocks + i * type->bytes);
    return blocks;
}

void *rig_tiled(struct rig *rig, uint32_t type_id, const void *blocks, uint32_t rows, uint32_t cols)
{
    void *tiled = rig_device(rig, rn_tiled_bytes(type_id, rows, cols));
    struct rn_tile_args args = {rig_at(blocks), rig_at(tiled), rows, cols};
    struct rn_typed_kernels kernels;

    assert_true(rn_kernels_of_type(type_id, &kernels));
    rig_run(rig, kernels.tile, &args);
    return tiled;
}

void rig_few(struct rig *rig, const struct rn_typed_kernels *kernels, const struct rn_matmul_args *args)
{
    const struct rn_products_args few = {.a = args->a,
                                         .n_rows = args->n_rows,
                                         .cols = args->cols,
                                         .parts = args->parts,
                                         .n = 1,
                                         .of = {{args->weight, args->bias, args->out, args->rows, 0}}};

    rig_run(rig, kernels->matmul_few, &few);
}

/* ---- The judge ---- */

void judge_open(struct rig *rig, struct judge *judge, uint32_t n_rows, const uint32_t widths[RIG_SLOTS])
{
    uint32_t i, widest = 1;

    memset(judge, 0, sizeof *judge);
    for (i = 0; i < RIG_SLOTS; i++) {
        judge->slots[i].width = widths[i];
        judge->memory[i] = rig_host(rig, ((size_t)n_rows * widths[i] + 1) * sizeof(float));
        widest = widths[i] > widest ? widths[i] : widest;
    }
    judge->plan = (struct rn_plan){.n_slots = RIG_SLOTS,
                                   .slots = judge->slots,
                                   .n_weights = RIG_WEIGHTS,
                                   .weights = judge->weights,
                                   .n_ropes = 1,
                                   .ropes = &judge->rope,
                                   .n_kv_layers = 1,
                                   .kv_layers = &judge->layer};
    judge->ref = (struct rn_reference){.plan = &judge->plan,
                                       .slots = judge->memory,
                                       .k = judge->k,
                                       .v = judge->v,
                                       .row = rig_host(rig, RN_REFERENCE_ROWS * widest * sizeof(float)),
                                       .bias = rig_host(rig, widest * sizeof(float)),
                                       .sums = rig_host(rig, widest * sizeof(double)),
                                       .query = rig_host(rig, widest * sizeof(double)),
                                       .head = rig_host(rig, widest * sizeof(float))};
    judge->step = (struct rn_step){.n_rows = n_rows, .rows = rig_host(rig, n_rows * sizeof(struct rn_step_row))};
}

void judge_weight(struct judge *judge, uint32_t index, uint32_t type_id, uint32_t cols, uint32_t rows, uint32_t experts,
                  const void *data)
{
    judge->tensors[index] = (struct rn_tensor){.type = type_id, .data = data};
    judge->weights[index] = (struct rn_weight){
        &judge->tensors[index], rn_type(type_id), type_id, cols, rows, experts, rn_type_bytes(rn_type(type_id), cols)};
}

const float *judge_run(struct judge *judge, struct rn_op op, bool with_b)
{
    op.a = 0;
    op.b = with_b ? 1 : -1;
    op.out = 2;
    op.out2 = 3;
    rn_reference_op(&judge->ref, &op, &judge->step);
    return judge->memory[2];
}

double rig_nmse(const float *got, const float *want, size_t n)
{
    double error = 0, squares = 0;
    size_t i;

    for (i = 0; i < n; i++) {
        error += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
        squares += (double)want[i] * want[i];
    }
    return error / squares;
}

void rig_expect(const char *what, const float *got, const float *want, size_t n, double limit)
{
    double error = rig_nmse(got, want, n);

    if (!(error <= limit))
        fail_msg("%s: NMSE %.3g, above %.3g", what, error, limit);
}
