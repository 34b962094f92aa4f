/* The table of kernels, and how many threads each launch has. Numbers are those of the kernels' sources. */
#include "gpu/kernels/draw_args.h"
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

/* Tiles of all weights; of those whose products are gated the first one's. */
static uint32_t tiles_of(const struct rn_products_args *args)
{
    uint32_t tiles = 0;

    for (uint32_t i = 0; i < (args->end == RN_END_GATE ? 1 : args->n); i++)
        tiles += ceil_to(args->of[i].rows, TILE_ROWS);
    return tiles;
}

/* Of each of 8 warps a piece of activations and their sums; of each tile 8 segments of 16 x 8 sums. */
static uint32_t few_bytes(const struct rn_products_args *args, uint32_t tiles)
{
    return rn_few_words(args->n_rows, args->cols) * (8 * 16 + 4) + tiles * 8 * 16 * 8 * (uint32_t)sizeof(float);
}

static struct rn_launch launch_few(const struct rn_products_args *args)
{
    return (struct rn_launch){{tiles_of(args), ceil_to(args->n_rows, RN_FEW_ROWS), 1}, 256, few_bytes(args, 1)};
}

static struct rn_launch launch_pair(const struct rn_products_args *args)
{
    uint32_t tiles = tiles_of(args);

    return (struct rn_launch){
        {args->end == RN_END_GATE ? tiles : ceil_to(tiles, 2), ceil_to(args->n_rows, RN_FEW_ROWS), 1},
        256,
        few_bytes(args, 2)};
}

/* Two tiles' sums, of gated products four. */
static struct rn_launch launch_stream(const struct rn_products_args *args)
{
    uint32_t units = tiles_of(args), words = rn_stream_words(args->n_rows, args->cols);

    return (struct rn_launch){{units < args->blocks ? units : args->blocks, 1, 1},
                              256,
                              words * (8 * 16 + 4) +
                                  (args->end == RN_END_GATE ? 4 : 2) * 8 * 16 * 8 * (uint32_t)sizeof(float)};
}

enum rn_kernel rn_few_kernel(const struct rn_typed_kernels *kernels, const struct rn_products_args *args)
{
    enum { MANY_TILES = 512 }; /* with which every multiprocessor has several blocks, also of twice the size */

    if (args->blocks > 0 && rn_stream_fits(args->n_rows, args->cols))
        return kernels->matmul_stream;
    return args->end == RN_END_GATE || tiles_of(args) >= MANY_TILES ? kernels->matmul_pair : kernels->matmul_few;
}

static struct rn_launch launch_split(const struct rn_matmul_args *args)
{
    return (struct rn_launch){{ceil_to(args->cols, CELL), ceil_to(args->n_rows, RN_MANY_ROWS), 1}, 256, 0};
}

static struct rn_launch launch_many(const struct rn_matmul_args *args)
{
    return (struct rn_launch){{ceil_to(args->n_rows, RN_MANY_ROWS), ceil_to(args->rows, RN_MANY_WEIGHTS), args->ways},
                              256,
                              RN_MANY_SHARED_BYTES};
}

/* A block for each tile and group of a warp of matmul_many. */
static struct rn_launch launch_matmul_join(const struct rn_matmul_args *args)
{
    return (struct rn_launch){
        {ceil_to(args->n_rows, RN_MANY_ROWS), ceil_to(args->rows, RN_MANY_WEIGHTS), 2 * 8}, 256, 0};
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
    uint32_t groups = args->groups > 1 ? args->groups : 0;

    return (struct rn_launch){
        {args->n_rows, 1, 1}, 256, 8 * 8 + 2 * 4 + (2 * args->experts + args->used + 2 * groups) * 4};
}

static struct rn_launch launch_expert(const struct rn_expert_matmul_args *args)
{
    return (struct rn_launch){
        {args->n_rows * args->used, ceil_to(args->rows, TILE_ROWS), 1}, 256, 8 * TILE_ROWS * sizeof(float)};
}

static uint32_t slots_of(const struct rn_expert_matmul_args *args)
{
    return rn_expert_slots(args->n_rows * args->used, args->experts, args->group);
}

/* A block for each expert. */
static struct rn_launch launch_expert_group(const struct rn_expert_matmul_args *args)
{
    return (struct rn_launch){{args->n_rows > 0 ? args->experts : 0, 1, 1}, 256, 8 * sizeof(uint32_t)};
}

static struct rn_launch launch_expert_split(const struct rn_expert_matmul_args *args)
{
    uint32_t inputs = args->per_expert_input != 0 ? args->n_rows * args->used : args->n_rows;

    return (struct rn_launch){{ceil_to(args->cols, CELL), ceil_to(inputs, RN_MANY_ROWS), 1}, 256, 0};
}

/* As launch_few, for any number of a slot's pairs; two numbers of each pair. */
static struct rn_launch launch_expert_few(const struct rn_expert_matmul_args *args)
{
    uint32_t words = 0;

    for (uint32_t n = 1; n <= RN_EXPERT_FEW; n++)
        words = rn_few_words(n, args->cols) > words ? rn_few_words(n, args->cols) : words;
    return (struct rn_launch){{ceil_to(args->rows, TILE_ROWS), slots_of(args), 1},
                              256,
                              words * (8 * 16 + 4) + 8 * 16 * 8 * (uint32_t)sizeof(float) +
                                  2 * RN_EXPERT_FEW * (uint32_t)sizeof(uint32_t)};
}

static struct rn_launch launch_expert_many(const struct rn_expert_matmul_args *args)
{
    return (struct rn_launch){
        {slots_of(args), ceil_to(args->rows, RN_MANY_WEIGHTS), 1}, 256, RN_EXPERT_MANY_SHARED_BYTES};
}

uint32_t rn_expert_group_of(uint32_t n_rows, uint32_t used, uint32_t experts)
{
    uint64_t n_pairs = (uint64_t)n_rows * used;

    if (n_rows < 2 || n_pairs * 4 < experts)
        return 1;
    return n_pairs > (uint64_t)RN_EXPERT_FEW * experts ? RN_EXPERT_MANY : RN_EXPERT_FEW;
}

static struct rn_launch launch_sum(const struct rn_expert_sum_args *args)
{
    return (struct rn_launch){{ceil_to((uint64_t)args->n_rows * args->width, 256), 1, 1}, 256, 0};
}

static struct rn_launch launch_part(const struct rn_part_args *args)
{
    return (struct rn_launch){{ceil_to(args->width, 1024), args->n_rows, 1}, 256, 0};
}

/* A number of a row's rows is a thread's. */
static struct rn_launch launch_grams(const struct rn_grams_args *args)
{
    return (struct rn_launch){{ceil_to((uint64_t)args->n_rows * args->heads, 256), 1, 1}, 256, 0};
}

static struct rn_launch launch_scatter(const struct rn_scatter_args *args)
{
    return (struct rn_launch){{ceil_to(args->width, RN_SCATTER_PIECE), args->n_rows, 1}, 256, 0};
}

/* A warp has a part. */
static struct rn_launch launch_part_sum(const struct rn_part_sum_args *args)
{
    return (struct rn_launch){{ceil_to((uint64_t)args->n_rows * args->parts, 8), 1, 1}, 256, 0};
}

static struct rn_launch launch_tail(const struct rn_tail_args *args)
{
    return (struct rn_launch){{args->n_rows, 1, 1}, 256, 8 * sizeof(float)};
}

static struct rn_launch launch_resize(const struct rn_resize_args *args)
{
    return (struct rn_launch){{args->n_rows * (args->width / args->group), 1, 1}, 256, 8 * sizeof(float)};
}

/* A warp has a tile of the rows that count. */
static struct rn_launch launch_head_matmul(const struct rn_head_args *args)
{
    uint32_t tiles = (args->first + args->dim - 1) / TILE_ROWS - args->first / TILE_ROWS + 1;

    return (struct rn_launch){{ceil_to(tiles, 4), args->heads, ceil_to(args->n_rows, RN_HEAD_MATMUL_ROWS)}, 128, 0};
}

/* Of each of four warps and eight pairs of weight rows the sums of a cell's columns for each row, and one to spare. */
static struct rn_launch launch_head_sum(const struct rn_head_args *args)
{
    return (struct rn_launch){{ceil_to(args->cols, CELL), args->heads, ceil_to(args->n_rows, RN_HEAD_SUM_ROWS)},
                              128,
                              4 * 8 * (RN_HEAD_SUM_ROWS * CELL + 1) * sizeof(float)};
}

/* A histogram of 2048 sums, a list of 1024 keys and their weights, and what warps tell each other: draw.cu. */
/* As in draw.cu; the last is a mask. */
static struct rn_launch launch_draw(const struct rn_draw_args *args)
{
    uint32_t mask = args->n_vocab <= RN_DRAW_MASKED_MOST ? ceil_to(args->n_vocab, 64) : 0;

    return (struct rn_launch){{args->n_rows, 1, 1}, 512, (2048 + 2 * 1024 + 3 * 16 + mask) * 8};
}

static struct rn_launch launch_feed(const struct rn_feed_args *args)
{
    return (struct rn_launch){{ceil_to(args->n_rows, 256), 1, 1}, 256, 0};
}

static struct rn_launch launch_gather(const struct rn_gather_args *args)
{
    return (struct rn_launch){{args->n_rows, 1, 1}, 256, 0};
}

static struct rn_launch launch_rope(const struct rn_rope_args *args)
{
    return (struct rn_launch){{args->n_rows, 1, 1}, 256, args->dims * sizeof(float)};
}

static struct rn_launch launch_angles(const struct rn_angles_args *args)
{
    return (struct rn_launch){{args->n_rows, 1, 1}, 128, 0};
}

/* Of a row: the queries' heads in some blocks, keys, values. */
static struct rn_launch launch_rope_store(const struct rn_rope_store_args *args)
{
    return (struct rn_launch){{args->store.n_rows, ceil_to(args->heads, 8) + 2, 1}, 256, 0};
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

/* As in attention.cu: where rows lie, queries, weights, the sums of four warps, O, and of one or two chunks the keys
 * and values, of one or two parts. in_keys: values are the front of the keys. */
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

/* 32 queries. */
static struct rn_launch launch_choose_scores(const struct rn_choose_args *args)
{
    return (struct rn_launch){
        {ceil_to(args->longest, 128), args->n_rows, 1}, 128, 32 * args->cache.k_dim * (uint32_t)sizeof(float)};
}

/* Counts of 16 digits by 512 threads; of the digits; of 16 warps; a heap. */
static uint64_t pick_bytes(uint32_t used)
{
    return (16 * 512 + 16 + 16 + (uint64_t)used) * sizeof(uint32_t);
}

static struct rn_launch launch_choose_pick(const struct rn_choose_args *args)
{
    return (struct rn_launch){{args->n_rows, 1, 1}, 512, (uint32_t)pick_bytes(args->used)};
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

/* A warp has 256 numbers. */
static struct rn_launch launch_rotate(const struct rn_rotate_args *args)
{
    return (struct rn_launch){{(uint32_t)(((uint64_t)args->n_vectors * ceil_to(args->n, 256) + 7) / 8), 1, 1}, 256, 0};
}

static struct rn_launch launch_join(const struct rn_attention_args *args)
{
    return (struct rn_launch){{args->n_rows, args->heads, 1}, 128, 0};
}

/* A sequence's first rows, or a row. */
static struct rn_launch launch_conv(const struct rn_conv_args *args)
{
    return (struct rn_launch){{ceil_to(args->width, 256), args->states.n_seqs + args->states.n_rows, 1}, 256, 0};
}

/* Five vectors and three values a column of the rows that are staged. */
static struct rn_launch launch_linear(const struct rn_linear_args *args)
{
    uint32_t width = ceil_to(args->k_dim, 16) * 16, rows = width <= RN_LINEAR_STAGED_DIM ? RN_LINEAR_STAGED : 1;
    uint32_t blocks = args->kind == RN_LINEAR_CHANNELS ? ceil_to(args->heads, RN_LINEAR_COLUMNS)
                                                       : args->heads * ceil_to(args->v_dim, RN_LINEAR_COLUMNS);

    return (struct rn_launch){{blocks, args->states.n_seqs, 1},
                              4 * RN_LINEAR_COLUMNS,
                              rows * (5 * width + 3 * RN_LINEAR_COLUMNS) * (uint32_t)sizeof(float)};
}

/* As launch_conv; a thread has a number of a row. */
static struct rn_launch launch_compress(const struct rn_compress_args *args)
{
    return (struct rn_launch){{ceil_to(args->k_dim, 64), args->states.n_seqs + args->states.n_rows, 1}, 64, 0};
}

static struct rn_launch launch_hyper(const struct rn_hyper_args *args)
{
    return (struct rn_launch){{args->n_rows, 1, 1}, 32, args->n * args->n * (uint32_t)sizeof(float)};
}

static struct rn_launch launch_reach(const struct rn_reach_args *args)
{
    return (struct rn_launch){{ceil_to(args->used, 256), args->n_rows, 1}, 256, 0};
}

static struct rn_launch launch_copy_states(const struct rn_copy_states_args *args)
{
    return (struct rn_launch){{ceil_to(args->stride_bytes, 16 * 1024), args->n_copies, 1}, 256, 0};
}

static struct rn_launch launch_move_rows(const struct rn_move_rows_args *args)
{
    return (struct rn_launch){{args->n_parts, args->n_seqs, 1}, 256, 0};
}

/* With the argument as the table has it. */
#define LAUNCH(form, type)                               \
    static struct rn_launch any_##form(const void *args) \
    {                                                    \
        return launch_##form((const type *)args);        \
    }
LAUNCH(tile, struct rn_tile_args)
LAUNCH(embed, struct rn_embed_args)
LAUNCH(few, struct rn_products_args)
LAUNCH(pair, struct rn_products_args)
LAUNCH(stream, struct rn_products_args)
LAUNCH(split, struct rn_matmul_args)
LAUNCH(many, struct rn_matmul_args)
LAUNCH(matmul_join, struct rn_matmul_args)
LAUNCH(norm, struct rn_norm_args)
LAUNCH(each, struct rn_each_args)
LAUNCH(gather, struct rn_gather_args)
LAUNCH(rope, struct rn_rope_args)
LAUNCH(angles, struct rn_angles_args)
LAUNCH(rope_store, struct rn_rope_store_args)
LAUNCH(rotate, struct rn_rotate_args)
LAUNCH(kv_store, struct rn_kv_store_args)
LAUNCH(attention, struct rn_attention_args)
LAUNCH(join, struct rn_attention_args)
LAUNCH(choose_scores, struct rn_choose_args)
LAUNCH(choose_pick, struct rn_choose_args)
LAUNCH(attention_many, struct rn_attention_args)
LAUNCH(route, struct rn_route_args)
LAUNCH(expert, struct rn_expert_matmul_args)
LAUNCH(expert_group, struct rn_expert_matmul_args)
LAUNCH(expert_split, struct rn_expert_matmul_args)
LAUNCH(expert_few, struct rn_expert_matmul_args)
LAUNCH(expert_many, struct rn_expert_matmul_args)
LAUNCH(sum, struct rn_expert_sum_args)
LAUNCH(conv, struct rn_conv_args)
LAUNCH(compress, struct rn_compress_args)
LAUNCH(hyper, struct rn_hyper_args)
LAUNCH(reach, struct rn_reach_args)
LAUNCH(linear, struct rn_linear_args)
LAUNCH(copy_states, struct rn_copy_states_args)
LAUNCH(move_rows, struct rn_move_rows_args)
LAUNCH(part, struct rn_part_args)
LAUNCH(grams, struct rn_grams_args)
LAUNCH(scatter, struct rn_scatter_args)
LAUNCH(part_sum, struct rn_part_sum_args)
LAUNCH(tail, struct rn_tail_args)
LAUNCH(resize, struct rn_resize_args)
LAUNCH(head_matmul, struct rn_head_args)
LAUNCH(head_sum, struct rn_head_args)
LAUNCH(draw, struct rn_draw_args)
LAUNCH(feed, struct rn_feed_args)

#define ROW(kernel, args, form) \
    [RN_KERNEL_##kernel] = {"rn_kernel_" #kernel, sizeof(struct rn_##args##_args), any_##form}
#define ROWS_OF_TYPE(id, type)                                                                                  \
    ROW(tile_##type, tile, tile), ROW(embed_##type, embed, embed), ROW(matmul_few_##type, products, few),       \
        ROW(matmul_pair_##type, products, pair), ROW(matmul_stream_##type, products, stream),                   \
        ROW(matmul_many_##type, matmul, many), ROW(expert_matmul_##type, expert_matmul, expert),                \
        ROW(expert_few_##type, expert_matmul, expert_few), ROW(expert_many_##type, expert_matmul, expert_many), \
        ROW(head_matmul_##type, head, head_matmul), ROW(head_sum_##type, head, head_sum),

#define ROW_OF_TILE(id, type, as) ROW(tile_##type, tile, tile),
#define ROWS_OF_KV_MANY(id, type) \
    ROW(attention_64_##type, attention, attention_many), ROW(attention_128_##type, attention, attention_many),
#define ROW_OF_KV(id, type) \
    ROW(attention_##type, attention, attention), ROW(choose_scores_##type, choose, choose_scores),

static const struct rn_kernel_info infos[RN_KERNEL_COUNT] = {
    RN_KERNEL_TYPES(ROWS_OF_TYPE) RN_KERNEL_TYPES_AS(ROW_OF_TILE) RN_KERNEL_KV_TYPES(ROW_OF_KV)
        RN_KERNEL_KV_TYPES_MANY(ROWS_OF_KV_MANY) ROW(norm, norm, norm),
    ROW(split_rows, matmul, split),
    ROW(matmul_join, matmul, matmul_join),
    ROW(each, each, each),
    ROW(gather, gather, gather),
    ROW(rope, rope, rope),
    ROW(angles, angles, angles),
    ROW(rope_store, rope_store, rope_store),
    ROW(rope_store_rotated, rope_store, rope_store),
    ROW(rotate, rotate, rotate),
    ROW(kv_store, kv_store, kv_store),
    ROW(kv_store_rotated, kv_store, kv_store),
    ROW(choose_pick, choose, choose_pick),
    ROW(route, route, route),
    ROW(expert_group, expert_matmul, expert_group),
    ROW(expert_split, expert_matmul, expert_split),
    ROW(expert_sum, expert_sum, sum),
    ROW(draw, draw, draw),
    ROW(feed, feed, feed),
    ROW(conv, conv, conv),
    ROW(compress, compress, compress),
    ROW(hyper, hyper, hyper),
    ROW(reach, reach, reach),
    ROW(shift, conv, conv),
    ROW(linear_64, linear, linear),
    ROW(linear_128, linear, linear),
    ROW(linear_any, linear, linear),
    ROW(channels_16, linear, linear),
    ROW(channels_any, linear, linear),
    ROW(copy_states, copy_states, copy_states),
    ROW(move_rows, move_rows, move_rows),
    ROW(part, part, part),
    ROW(grams, grams, grams),
    ROW(scatter, scatter, scatter),
    ROW(part_sum, part_sum, part_sum),
    ROW(tail, tail, tail),
    ROW(resize, resize, resize),
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
    UNIT_mxfp4 = 1,
    UNIT_nvfp4 = 1,
    UNIT_q4_1 = 1,
    UNIT_q5_0 = 1,
    UNIT_q5_1 = 1,
    UNIT_q2_k = 4,
    UNIT_iq4_nl = 1,
    UNIT_iq4_xs = 4,
    BYTES_f32 = 4096,
    BYTES_f16 = 2048,
    BYTES_bf16 = 2048,
    BYTES_q8_0 = 1088,
    BYTES_q4_0 = 576,
    BYTES_q4_k = 2368,
    BYTES_q5_k = 2880,
    BYTES_q6_k = 3360,
    BYTES_mxfp4 = 544,
    BYTES_nvfp4 = 576,
    BYTES_q4_1 = 640,
    BYTES_q5_0 = 704,
    BYTES_q5_1 = 768,
    BYTES_q2_k = 1344,
    BYTES_iq4_nl = 576,
    BYTES_iq4_xs = 2384
};

struct typed {
    uint32_t id, unit_cells, unit_bytes;
    struct rn_typed_kernels kernels;
};

#define KERNELS_OF(type, as)                                                                                           \
    {                                                                                                                  \
        RN_KERNEL_tile_##type, RN_KERNEL_embed_##as, RN_KERNEL_matmul_few_##as, RN_KERNEL_matmul_pair_##as,            \
            RN_KERNEL_matmul_stream_##as, RN_KERNEL_matmul_many_##as, RN_KERNEL_expert_matmul_##as,                    \
            RN_KERNEL_expert_few_##as, RN_KERNEL_expert_many_##as, RN_KERNEL_head_matmul_##as, RN_KERNEL_head_sum_##as \
    }
#define TYPED_AS(id, type, as) {id, UNIT_##as, BYTES_##as, KERNELS_OF(type, as)},
#define TYPED(id, type) TYPED_AS(id, type, type)

static const struct typed types[] = {RN_KERNEL_TYPES(TYPED) RN_KERNEL_TYPES_AS(TYPED_AS)};

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

/* Of each number of ways the time, in 10 ns: blocks take 0.95 us a cell, which is the tensor cores' time on an H200,
 * and come in waves; each sum that goes through memory takes 8 bytes there and back, at 4 TB/s, and a launch more 3
 * us. */
uint32_t rn_matmul_ways(uint32_t n_rows, uint32_t rows, uint32_t cols, uint32_t units)
{
    uint64_t blocks = (uint64_t)ceil_to(n_rows, RN_MANY_ROWS) * ceil_to(rows, RN_MANY_WEIGHTS);
    uint64_t cells = ceil_to(cols, CELL), per = (cells + 7) / 8, best_time = UINT64_MAX;
    uint32_t best = 1;

    for (uint32_t ways = 1; ways <= 8; ways *= 2) {
        uint64_t walk = per * (8 / ways) < cells ? per * (8 / ways) : cells;
        uint64_t time = (blocks * ways + units - 1) / units * walk * 95 + (ways > 1 ? blocks * 26 + 300 : 0);

        if (time < best_time) {
            best_time = time;
            best = ways;
        }
    }
    return best;
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

bool rn_choose_kernel(uint32_t kv_type, uint32_t k_dim, uint32_t used, enum rn_kernel *kernel)
{
    static const enum rn_kernel kernels[] = {
#define CHOOSE_OF_KV(id, type) [id] = RN_KERNEL_choose_scores_##type,
        RN_KERNEL_KV_TYPES(CHOOSE_OF_KV)};

    if (kv_type >= sizeof kernels / sizeof kernels[0] || k_dim % 4 != 0 ||
        32 * (uint64_t)k_dim * sizeof(float) > RN_SHARED_BYTES || pick_bytes(used) > RN_SHARED_BYTES)
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
