/* The table of kernels, and how many threads each launch has. Numbers are those of the kernels' sources. */
#include "gpu/kernels/kernels.h"

enum { TILE_ROWS = 16, CELL = 64 };

static uint32_t ceil_to(uint64_t n, uint32_t unit)
{
    return (uint32_t)((n + unit - 1) / unit);
}

static struct rn_launch launch_tile(const struct rn_tile_args *args)
{
    return (struct rn_launch){{ceil_to(args->rows, TILE_ROWS), ceil_to(args->cols, 8 * CELL), 1}, 256, 0};
}

static struct rn_launch launch_embed(const struct rn_embed_args *args)
{
    return (struct rn_launch){{args->n_rows, 1, 1}, 256, 0};
}

/* 8 segments of 16 x 8 sums. */
static struct rn_launch launch_few(const struct rn_matmul_args *args)
{
    return (struct rn_launch){
        {ceil_to(args->rows, TILE_ROWS), ceil_to(args->n_rows, RN_FEW_ROWS), 1}, 256, 8 * 16 * 8 * sizeof(float)};
}

/* Two stages of 64 rows and 64 columns in two parts, and their sums. */
static struct rn_launch launch_many(const struct rn_matmul_args *args)
{
    return (struct rn_launch){{ceil_to(args->rows, 128), ceil_to(args->n_rows, 64), 1},
                              256,
                              2 * (64 * CELL * 2 * 2 + 2 * 64 * sizeof(float))};
}

static struct rn_launch launch_norm(const struct rn_norm_args *args)
{
    return (struct rn_launch){{args->n_rows * (args->width / args->group), 1, 1}, 256, 8 * sizeof(float)};
}

static struct rn_launch launch_each(const struct rn_each_args *args)
{
    return (struct rn_launch){{ceil_to(args->n, 1024), 1, 1}, 256, 0};
}

static struct rn_launch launch_route(const struct rn_route_args *args)
{
    return (struct rn_launch){{args->n_rows, 1, 1}, 256, 8 * 8 + 2 * 4 + (2 * args->experts + args->used) * 4};
}

static struct rn_launch launch_expert(const struct rn_expert_matmul_args *args)
{
    return (struct rn_launch){
        {args->n_rows * args->used, ceil_to(args->rows, TILE_ROWS), 1}, 256, 8 * TILE_ROWS * sizeof(float)};
}

static struct rn_launch launch_sum(const struct rn_expert_sum_args *args)
{
    return (struct rn_launch){{ceil_to((uint64_t)args->n_rows * args->width, 256), 1, 1}, 256, 0};
}

static struct rn_launch launch_gather(const struct rn_gather_args *args)
{
    return (struct rn_launch){{args->n_rows, 1, 1}, 256, 0};
}

static struct rn_launch launch_rope(const struct rn_rope_args *args)
{
    return (struct rn_launch){{args->n_rows, 1, 1}, 256, args->dims * sizeof(float)};
}

static struct rn_launch launch_kv_store(const struct rn_kv_store_args *args)
{
    return (struct rn_launch){{args->n_rows, args->cache.v_dim > 0 ? 2 : 1, 1}, 256, 0};
}

/* Bytes of a number of so many of a row in shared memory, to a multiple of 16, and 16 more. */
static uint64_t row_stride(uint32_t dim)
{
    return ((uint64_t)dim + 15) / 16 * 32 + 16;
}

/* As in attention.cu: where rows lie, queries, weights, the sums of four warps, O, and of one or two chunks the keys and
 * values, of one or two parts. in_keys: values are the front of the keys. */
static uint64_t attention_bytes(uint32_t parts, uint32_t k_dim, uint32_t v_dim, bool in_keys, bool is_split)
{
    uint64_t most = 99 << 10, stride = row_stride(k_dim), keys = RN_ATTENTION_CHUNK * stride * parts;
    uint64_t values = in_keys ? 0 : RN_ATTENTION_CHUNK * row_stride(v_dim) * parts;
    uint64_t bytes = 2 * RN_ATTENTION_CHUNK * 16 + 2 * RN_ATTENTION_COLUMNS * stride + 4 * 32 * 32 +
                     RN_ATTENTION_COLUMNS * (4 + 4 * 4 + 4 * 16);

    if (!is_split)
        bytes += ((uint64_t)v_dim + 15) / 16 * 2 * 32 * 16;
    if (!is_split && bytes + 2 * (keys + values) <= most)
        return bytes + 2 * (keys + values);
    if (bytes + keys + values <= most)
        return bytes + keys + values;
    return bytes + (keys > values ? keys : values);
}

/* Parts of a number of the cache in shared memory. */
static uint32_t parts_of(uint32_t kv_type)
{
    return kv_type == 0 || kv_type == 2 || kv_type == 3 ? 1 : 2; /* f16, bf16, fp8 */
}

static struct rn_launch launch_attention(const struct rn_attention_args *args)
{
    uint32_t group = args->heads / args->cache.kv_heads;

    return (struct rn_launch){{ceil_to(args->n_rows, args->rows_per_tile),
                               args->cache.kv_heads * ceil_to(group, RN_ATTENTION_COLUMNS),
                               args->workspace != 0 ? args->n_chunks : 1},
                              128,
                              (uint32_t)attention_bytes(parts_of(args->cache.type), args->cache.k_dim, args->v_dim,
                                                        args->cache.v_dim == 0, args->workspace != 0)};
}

/* As in attention_many.cu: where rows lie, what undoes the queries' power, and of two chunks keys and values. */
static struct rn_launch launch_attention_many(const struct rn_attention_args *args)
{
    uint32_t group = args->heads / args->cache.kv_heads, stages = 2;
    uint64_t tiles = (uint64_t)2 * RN_ATTENTION_CHUNK * row_stride(args->cache.k_dim);

    return (struct rn_launch){{ceil_to(args->n_rows, args->rows_per_tile),
                               args->cache.kv_heads * ceil_to(group, RN_ATTENTION_MANY_COLUMNS), 1},
                              128,
                              (uint32_t)(stages * (RN_ATTENTION_CHUNK * 16 + tiles) + RN_ATTENTION_MANY_COLUMNS * 4)};
}

static struct rn_launch launch_join(const struct rn_attention_args *args)
{
    return (struct rn_launch){{args->n_rows, args->heads, 1}, 128, 0};
}

/* With the argument as the table has it. */
#define LAUNCH(form, type)                               \
    static struct rn_launch any_##form(const void *args) \
    {                                                    \
        return launch_##form((const type *)args);        \
    }
LAUNCH(tile, struct rn_tile_args)
LAUNCH(embed, struct rn_embed_args)
LAUNCH(few, struct rn_matmul_args)
LAUNCH(many, struct rn_matmul_args)
LAUNCH(norm, struct rn_norm_args)
LAUNCH(each, struct rn_each_args)
LAUNCH(gather, struct rn_gather_args)
LAUNCH(rope, struct rn_rope_args)
LAUNCH(kv_store, struct rn_kv_store_args)
LAUNCH(attention, struct rn_attention_args)
LAUNCH(join, struct rn_attention_args)
LAUNCH(attention_many, struct rn_attention_args)
LAUNCH(route, struct rn_route_args)
LAUNCH(expert, struct rn_expert_matmul_args)
LAUNCH(sum, struct rn_expert_sum_args)

#define ROW(kernel, args, form) \
    [RN_KERNEL_##kernel] = {"rn_kernel_" #kernel, sizeof(struct rn_##args##_args), any_##form}
#define ROWS_OF_TYPE(id, type)                                                                          \
    ROW(tile_##type, tile, tile), ROW(embed_##type, embed, embed), ROW(matmul_few_##type, matmul, few), \
        ROW(matmul_many_##type, matmul, many), ROW(expert_matmul_##type, expert_matmul, expert),

#define ROW_OF_KV(id, type) ROW(attention_##type, attention, attention),
#define ROWS_OF_KV_MANY(id, type) \
    ROW(attention_64_##type, attention, attention_many), ROW(attention_128_##type, attention, attention_many),

static const struct rn_kernel_info infos[RN_KERNEL_COUNT] = {RN_KERNEL_TYPES(ROWS_OF_TYPE) RN_KERNEL_KV_TYPES(ROW_OF_KV)
                                                                 RN_KERNEL_KV_TYPES_MANY(ROWS_OF_KV_MANY)
                                                                     ROW(norm, norm, norm),
                                                             ROW(each, each, each),
                                                             ROW(gather, gather, gather),
                                                             ROW(rope, rope, rope),
                                                             ROW(kv_store, kv_store, kv_store),
                                                             ROW(route, route, route),
                                                             ROW(expert_sum, expert_sum, sum),
                                                             ROW(attention_join, attention, join)};

const struct rn_kernel_info *rn_kernel_info(enum rn_kernel kernel)
{
    return &infos[kernel];
}

/* Of each format: cells that share something, and their bytes for 16 rows (formats.cuh). */
enum {
    UNIT_f32 = 1,
    UNIT_f16 = 1,
    UNIT_bf16 = 1,
    UNIT_q8_0 = 1,
    UNIT_q4_0 = 1,
    UNIT_q4_k = 4,
    UNIT_q5_k = 4,
    UNIT_q6_k = 4,
    BYTES_f32 = 4096,
    BYTES_f16 = 2048,
    BYTES_bf16 = 2048,
    BYTES_q8_0 = 1088,
    BYTES_q4_0 = 576,
    BYTES_q4_k = 2368,
    BYTES_q5_k = 2880,
    BYTES_q6_k = 3360
};

struct typed {
    uint32_t id, unit_cells, unit_bytes;
    struct rn_typed_kernels kernels;
};

#define KERNELS_OF(type)                                                                                          \
    {                                                                                                             \
        RN_KERNEL_tile_##type, RN_KERNEL_embed_##type, RN_KERNEL_matmul_few_##type, RN_KERNEL_matmul_many_##type, \
            RN_KERNEL_expert_matmul_##type                                                                        \
    }
#define TYPED(id, type) {id, UNIT_##type, BYTES_##type, KERNELS_OF(type)},

static const struct typed types[] = {RN_KERNEL_TYPES(TYPED)};

static const struct typed *find(uint32_t type_id)
{
    size_t i;

    for (i = 0; i < sizeof types / sizeof types[0]; i++)
        if (types[i].id == type_id)
            return &types[i];
    return NULL;
}

bool rn_kernels_of_type(uint32_t type_id, struct rn_typed_kernels *kernels)
{
    const struct typed *type = find(type_id);

    if (type == NULL)
        return false;
    *kernels = type->kernels;
    return true;
}

uint64_t rn_tiled_bytes(uint32_t type_id, uint64_t rows, uint64_t cols)
{
    const struct typed *type = find(type_id);
    uint64_t cells = (cols + CELL - 1) / CELL;

    if (type == NULL)
        return 0;
    return (rows + TILE_ROWS - 1) / TILE_ROWS * ((cells + type->unit_cells - 1) / type->unit_cells) * type->unit_bytes;
}

bool rn_attention_kernel(uint32_t kv_type, uint32_t k_dim, uint32_t v_dim, enum rn_kernel *kernel)
{
    static const enum rn_kernel kernels[] = {
#define OF_KV(id, type) [id] = RN_KERNEL_attention_##type,
        RN_KERNEL_KV_TYPES(OF_KV)};

    if (kv_type >= sizeof kernels / sizeof kernels[0] || k_dim % 4 != 0 || v_dim % 4 != 0 ||
        attention_bytes(parts_of(kv_type), k_dim, v_dim, false, false) > RN_SHARED_BYTES)
        return false;
    *kernel = kernels[kv_type];
    return true;
}

bool rn_attention_many_kernel(uint32_t kv_type, uint32_t k_dim, uint32_t v_dim, enum rn_kernel *kernel)
{
    static const struct {
        uint32_t type;
        enum rn_kernel of_64, of_128;
    } kernels[] = {
#define OF_KV_MANY(id, type) {id, RN_KERNEL_attention_64_##type, RN_KERNEL_attention_128_##type},
        RN_KERNEL_KV_TYPES_MANY(OF_KV_MANY)};
    size_t i;

    for (i = 0; i < sizeof kernels / sizeof kernels[0]; i++) {
        if (kernels[i].type != kv_type || k_dim != v_dim || (k_dim != 64 && k_dim != 128))
            continue;
        *kernel = k_dim == 64 ? kernels[i].of_64 : kernels[i].of_128;
        return true;
    }
    return false;
}
