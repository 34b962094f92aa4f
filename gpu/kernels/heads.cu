/* HEAD_MATMUL and HEAD_SUM: a matrix of each head's own, and its rows summed up (kernels.h). The rows that count may
 * begin and end anywhere in a tile. */
#include "gpu/kernels/products.cuh"

namespace
{

/* A warp has a tile of a head's matrix and RN_HEAD_MATMUL_ROWS rows. An output is one chain over the columns. */
template <class F> DEVICE void head_matmul(const rn_head_args &args)
{
    uint32_t cells = (args.cols + CELL - 1) / CELL, lane = lane_of_warp(), end = args.first + args.dim;
    uint32_t in_head = args.first / TILE_ROWS + block_x() * 4 + warp_of_block();
    uint32_t tiles = (args.rows + TILE_ROWS - 1) / TILE_ROWS, first = block_z() * RN_HEAD_MATMUL_ROWS;
    uint64_t tile = ((uint64_t)block_y() * tiles + in_head) * tile_bytes(cells, F::UNIT_CELLS, F::UNIT_BYTES);
    bytes_at weight(args.weight), a(args.a);
    global<float> out(args.out, (uint64_t)args.n_rows * args.heads * args.dim);
    float acc[4] = {0, 0, 0, 0};

    if (in_head * TILE_ROWS >= end) /* of the whole warp; nobody waits for it */
        return;
    for (uint32_t cell = 0; cell < cells; cell++) {
        typename F::raw raw;
        F::read(weight, tile, cell, lane, raw);
        multiply_cell<F>(raw, a, first + lane / 4 < args.n_rows, (first + lane / 4) * args.heads + block_y(), args.cols,
                         args.parts, cell, acc);
    }
    UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t weight_row = in_head * TILE_ROWS + lane / 4 + i / 2 * 8, row = first + lane % 4 * 2 + i % 2;
        if (weight_row >= args.first && weight_row < end && row < args.n_rows)
            out.put(((uint64_t)row * args.heads + block_y()) * args.dim + weight_row - args.first, acc[i]);
    }
}

enum : uint32_t { SUM_WARPS = 4, SUM_ROWS = RN_HEAD_SUM_ROWS, SUM_STRIDE = SUM_ROWS * CELL + 1 };

/* A lane's eight numbers of a step and of weight row g or g + 8: columns 4t .. 4t + 3 and 16 + 4t .. 16 + 4t + 3. */
template <class F> DEVICE void numbers_of(const step_numbers &w, uint32_t half, float v[8])
{
    UNROLL
    for (uint32_t j = 0; j < 8; j++) {
        v[j] = 0;
        UNROLL
        for (uint32_t part = 0; part < F::PARTS; part++) {
            uint32_t pair = w.a[part][j / 4][j % 2 * 2 + half];
            v[j] += j % 4 / 2 == 0 ? low_bf16(pair) : high_bf16(pair);
        }
        if (F::SCALED)
            v[j] *= w.scale[j / 4][half];
        if (F::MINIMA)
            v[j] -= w.minimum[half];
    }
}

/* What a lane adds of a tile's two rows to its sums of 16 columns of each row: acc[row][step * 8 + j]. */
template <class F>
DEVICE void add_rows(const rn_head_args &args, const typename F::raw &raw, uint32_t weight_row, uint32_t first,
                     float acc[SUM_ROWS][16])
{
    global<float> a(args.a, (uint64_t)args.n_rows * args.heads * args.dim);

    UNROLL
    for (uint32_t step = 0; step < 2; step++) {
        step_numbers w;
        F::expand(raw, step, lane_of_warp(), w);
        UNROLL
        for (uint32_t half = 0; half < 2; half++) {
            uint32_t i = weight_row + 8 * half - args.first; /* rows before the first one become large numbers */
            float v[8];
            if (i >= args.dim)
                continue;
            numbers_of<F>(w, half, v);
            UNROLL
            for (uint32_t r = 0; r < SUM_ROWS; r++) {
                if (first + r >= args.n_rows)
                    continue;
                float factor = a.get(((uint64_t)(first + r) * args.heads + block_y()) * args.dim + i);
                UNROLL
                for (uint32_t j = 0; j < 8; j++)
                    acc[r][step * 8 + j] = fmaf(factor, v[j], acc[r][step * 8 + j]);
            }
        }
    }
}

/* A block has a cell of 64 columns of a head's matrix and RN_HEAD_SUM_ROWS rows; its warps take the tiles in turns.
 * What lanes have of a column is added in the order of warps and, within one, of the rows of their tiles.
 *
 *   shared   [warp][g][row][column], and one float behind each g, so that lanes write to different banks */
template <class F> DEVICE void head_sum(const rn_head_args &args)
{
    uint32_t cells = (args.cols + CELL - 1) / CELL, lane = lane_of_warp(), g = lane / 4, t = lane % 4;
    uint32_t tiles = (args.rows + TILE_ROWS - 1) / TILE_ROWS, cell = block_x(), first = block_z() * SUM_ROWS;
    uint32_t end = args.dim == 0 ? 0 : (args.first + args.dim + TILE_ROWS - 1) / TILE_ROWS;
    uint64_t bytes = tile_bytes(cells, F::UNIT_CELLS, F::UNIT_BYTES);
    global<float> out(args.out, (uint64_t)args.n_rows * args.heads * args.cols);
    shared<float> sums(0, SUM_WARPS * 8 * SUM_STRIDE);
    bytes_at weight(args.weight);
    float acc[SUM_ROWS][16] = {};

    for (uint32_t tile = args.first / TILE_ROWS + warp_of_block(); tile < end; tile += SUM_WARPS) {
        typename F::raw raw;
        F::read(weight, ((uint64_t)block_y() * tiles + tile) * bytes, cell, lane, raw);
        add_rows<F>(args, raw, tile * TILE_ROWS + g, first, acc);
    }
    UNROLL
    for (uint32_t r = 0; r < SUM_ROWS; r++) {
        UNROLL
        for (uint32_t j = 0; j < 16; j++)
            sums.put((warp_of_block() * 8 + g) * SUM_STRIDE + r * CELL + j / 8 * STEP + j / 4 % 2 * 16 + 4 * t + j % 4,
                     acc[r][j]);
    }
    sync_block();
    for (uint32_t i = thread_of_block(); i < SUM_ROWS * CELL; i += SUM_WARPS * WARP) {
        uint32_t row = first + i / CELL, column = cell * CELL + i % CELL;
        float total = 0;
        for (uint32_t k = 0; k < SUM_WARPS * 8; k++)
            total += sums.get(k * SUM_STRIDE + i);
        if (row < args.n_rows && column < args.cols)
            out.put(((uint64_t)row * args.heads + block_y()) * args.cols + column, total);
    }
}

} // namespace

#define HEADS(id, type)                                     \
    RN_KERNEL(head_matmul_##type, rn_head_args, 128, 4)     \
    {                                                       \
        head_matmul<format_##type>(args);                   \
    }                                                       \
    RN_KERNEL(head_sum_##type, rn_head_args, 128, 2)        \
    {                                                       \
        head_sum<format_##type>(args);                      \
    }
RN_KERNEL_TYPES(HEADS)
