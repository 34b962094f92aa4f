/* Products of up to eight rows at once: a block has one or two tiles of 16 rows of weights, each of its warps a segment of
 * the columns (products.cuh). Every weight is read once, by accesses of 16 bytes a lane, so many cells ahead as registers
 * hold; the first ones before the launch before this one has ended. Activations come from the caches; a block with two
 * tiles takes them once for both. */
#include "gpu/kernels/products.cuh"
#include "gpu/kernels/values.cuh"

namespace
{

/* Cells whose weights a lane has under way. */
template <class F, uint32_t TILES> DEVICE constexpr uint32_t depth_of()
{
    return sizeof(typename F::raw) * TILES <= 48 ? 4 : sizeof(typename F::raw) * TILES <= 96 ? 3 : sizeof(typename F::raw) * TILES <= 128 ? 2 : 1;
}

/* A tile that a block has; `product` n: none. */
struct tile_of_block {
    uint32_t product, row; /* first row of the weight */
    uint64_t at;           /* address */
};

template <class F>
DEVICE tile_of_block tile_at(const rn_products_args &args, uint32_t cells, uint32_t tiles, uint32_t j)
{
    uint32_t index = block_x() * tiles + j, p = 0;

    if (args.end == RN_END_GATE) {
        index = block_x();
        p = j;
    }
    for (; args.end != RN_END_GATE && p < args.n; p++) {
        uint32_t n = (args.of[p].rows + TILE_ROWS - 1) / TILE_ROWS;
        if (index < n)
            break;
        index -= n;
    }
    if (p >= args.n)
        return tile_of_block{args.n, 0, 0};
    return tile_of_block{p, index * TILE_ROWS,
                         args.of[p].weight + index * tile_bytes(cells, F::UNIT_CELLS, F::UNIT_BYTES)};
}

template <class F, uint32_t TILES>
DEVICE void read_tiles(const rn_products_args &args, const tile_of_block tiles[TILES], uint32_t cell,
                       typename F::raw raw[TILES])
{
    UNROLL
    for (uint32_t j = 0; j < TILES; j++)
        if (tiles[j].product < args.n)
            F::read(bytes_at(tiles[j].at), 0, cell, lane_of_warp(), raw[j]);
}

/* As multiply_cell, for all tiles of the block. */
template <class F, uint32_t TILES>
DEVICE void multiply_tiles(const rn_products_args &args, const typename F::raw raw[TILES], const bytes_at &a,
                           uint32_t row, uint32_t cell, float acc[TILES][4])
{
    uint32_t lane = lane_of_warp(), t = lane % 4;

    UNROLL
    for (uint32_t step = 0; step < 2; step++) {
        uint32_t column = cell * CELL + step * STEP + 4 * t;
        floats4 v[2] = {{{0, 0, 0, 0}}, {{0, 0, 0, 0}}};
        float sums[2] = {0, 0};
        inputs in[2];

        if (row < args.n_rows) {
            v[0] = read_row(a, row, args.cols, column);
            v[1] = read_row(a, row, args.cols, column + 16);
        }
        if (F::MINIMA) {
            float sum = sum_of_step(v[0], v[1]);
            sums[0] = shuffle(sum, 8 * t);
            sums[1] = shuffle(sum, 8 * t + 4);
        }
        in[0] = split_row(v[0]);
        in[1] = split_row(v[1]);
        UNROLL
        for (uint32_t j = 0; j < TILES; j++) {
            step_numbers w;
            F::expand(raw[j], step, lane, w);
            multiply<F>(w, in, sums, args.parts, acc[j]);
        }
    }
}

/* The segments' sums of a tile for weight row i % 16 and row i / 16 of the block, in order: from the lane and the register
 * that have them. */
DEVICE float total_of(const shared<float> &sums, uint32_t j, uint32_t i)
{
    uint32_t weight_row = i % TILE_ROWS, row = i / TILE_ROWS;
    float total = 0;

    UNROLL
    for (uint32_t s = 0; s < SEGMENTS; s++)
        total += sums.get((j * SEGMENTS + s) * 128 + (weight_row / 8 * 2 + row % 2) * WARP + weight_row % 8 * 4 + row / 2);
    return total;
}

DEVICE float with_bias(const rn_products_args &args, uint32_t product, uint32_t weight_row, float total)
{
    rn_address bias = args.of[product].bias;

    return bias == 0 ? total : total + global<float>(bias, args.of[product].rows).get(weight_row);
}

/* Thread i's output of a tile. */
DEVICE void put_out(const rn_products_args &args, const tile_of_block &tile, const shared<float> &sums, uint32_t j,
                    uint32_t i)
{
    uint32_t weight_row = tile.row + i % TILE_ROWS, row = block_y() * RN_FEW_ROWS + i / TILE_ROWS, rows;
    uint64_t at;
    float value;

    if (tile.product >= args.n || weight_row >= args.of[tile.product].rows || row >= args.n_rows)
        return;
    rows = args.of[tile.product].rows;
    at = (uint64_t)row * rows + weight_row;
    value = with_bias(args, tile.product, weight_row, total_of(sums, j, i));
    if (args.end == RN_END_ADD)
        value = global<float>(args.residual, (uint64_t)args.n_rows * rows).get(at) + value;
    if (args.end == RN_END_GATE)
        value = activate(args.act, value) * with_bias(args, 1, weight_row, total_of(sums, 1, i));
    global<float>(args.of[tile.product].out, (uint64_t)args.n_rows * rows).put(at, value);
}

template <class F, uint32_t TILES> DEVICE void matmul_few(const rn_products_args &args)
{
    constexpr uint32_t DEPTH = depth_of<F, TILES>();
    uint32_t cells = (args.cols + CELL - 1) / CELL, per = segment_cells(cells), lane = lane_of_warp();
    uint32_t begin = warp_of_block() * per, end = begin + per < cells ? begin + per : cells;
    uint32_t row = block_y() * RN_FEW_ROWS + lane / 4, thread = thread_of_block();
    tile_of_block tiles[TILES];
    bytes_at a(args.a);
    shared<float> sums(0, TILES * SEGMENTS * 128);
    float acc[TILES][4] = {};
    typename F::raw ring[DEPTH][TILES];

    UNROLL
    for (uint32_t j = 0; j < TILES; j++)
        tiles[j] = tile_at<F>(args, cells, TILES, j);
    UNROLL
    for (uint32_t d = 0; d < DEPTH; d++)
        if (begin + d < end)
            read_tiles<F, TILES>(args, tiles, begin + d, ring[d]);
    grid_wait();
    for (uint32_t cell = begin; cell < end; cell += DEPTH) {
        UNROLL
        for (uint32_t d = 0; d < DEPTH; d++) {
            if (cell + d >= end)
                continue;
            multiply_tiles<F, TILES>(args, ring[d], a, row, cell + d, acc);
            if (cell + d + DEPTH < end)
                read_tiles<F, TILES>(args, tiles, cell + d + DEPTH, ring[d]);
        }
    }
    UNROLL
    for (uint32_t i = 0; i < TILES * 4; i++)
        sums.put((i / 4 * SEGMENTS + warp_of_block()) * 128 + i % 4 * WARP + lane, acc[i / 4][i % 4]);
    sync_block();
    if (thread < 128)
        put_out(args, tiles[0], sums, 0, thread);
    else if (TILES > 1 && args.end != RN_END_GATE)
        put_out(args, tiles[TILES - 1], sums, 1, thread - 128);
}

} // namespace

#define MATMUL_FEW(id, type)                                            \
    RN_KERNEL_AHEAD(matmul_few_##type, rn_products_args, 256, 2)        \
    {                                                                   \
        matmul_few<format_##type, 1>(args);                             \
    }                                                                   \
    RN_KERNEL_AHEAD(matmul_pair_##type, rn_products_args, 256, 2)       \
    {                                                                   \
        matmul_few<format_##type, 2>(args);                             \
    }
RN_KERNEL_TYPES(MATMUL_FEW)
