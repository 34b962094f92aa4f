/* Products of up to eight rows at once: a block has one or two tiles of 16 rows of weights, each of its warps a segment of
 * the columns (products.cuh). Every weight is read once, by accesses of 16 bytes a lane, as many cells ahead as registers
 * hold; the first ones before the launch before this one has ended. A warp brings its activations to shared memory piece
 * by piece, split as lanes want them.
 *
 *   shared   of each warp a piece: [step of the piece][product][row][t] of words4, the registers of both parts;
 *            of each warp, where the format has minima: [step of the piece][row] sums of activations;
 *            [tile][segment][register of the result][lane] the segments' sums */
#include "gpu/kernels/products.cuh"
#include "gpu/kernels/values.cuh"

namespace
{

/* Cells whose weights a lane has under way; and blocks that fit into a multiprocessor's registers then. */
template <class F, uint32_t TILES> DEVICE constexpr uint32_t depth_of()
{
    return sizeof(typename F::raw) * TILES <= 36 ? 4 : sizeof(typename F::raw) * TILES <= 128 ? 2 : 1;
}
template <class F, uint32_t TILES> constexpr uint32_t blocks_of()
{
    return sizeof(typename F::raw) * TILES <= 80 && !F::BY_PRODUCT && !(F::MINIMA && TILES > 1) ? 3 : 2;
}
template <> constexpr uint32_t blocks_of<format_mxfp4, 1>()
{
    return 2; /* with three it spills on sm_90a */
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

/* A warp's activations: those of `rows` rows from `first` on. */
struct activations {
    bytes_at a;
    uint32_t first, rows, cols;
    shared<words4> words;
    shared<float> sums;
};

/* Brings n cells from `cell` on to shared memory: eight steps of a row at a time, one for four lanes, and AT_ONCE times as
 * many under way. */
template <class F> DEVICE void stage_cells(const activations &in, uint32_t cell, uint32_t n)
{
    enum : uint32_t { AT_ONCE = 2 };
    uint32_t t = lane_of_warp() % 4, all = n * 2 * in.rows;

    sync_warp();
    for (uint32_t begin = 0; begin < all; begin += 8 * AT_ONCE) {
        floats4 v[AT_ONCE][2];
        UNROLL
        for (uint32_t i = 0; i < AT_ONCE * 2; i++) {
            uint32_t unit = begin + i / 2 * 8 + lane_of_warp() / 4, step = unit / in.rows, row = unit % in.rows;
            v[i / 2][i % 2] = floats4{{0, 0, 0, 0}};
            if (unit < all)
                v[i / 2][i % 2] =
                    read_row(in.a, in.first + row, in.cols, (cell * 2 + step) * STEP + i % 2 * 16 + 4 * t);
        }
        UNROLL
        for (uint32_t i = 0; i < AT_ONCE; i++) {
            uint32_t unit = begin + i * 8 + lane_of_warp() / 4, step = unit / in.rows, row = unit % in.rows;
            UNROLL
            for (uint32_t product = 0; product < 2; product++) {
                inputs parts = split_row(v[i][product]);
                if (unit < all)
                    in.words.put(((step * 2 + product) * in.rows + row) * 4 + t,
                                 words4{{parts.b[0][0], parts.b[0][1], parts.b[1][0], parts.b[1][1]}});
            }
            if (F::MINIMA) {
                float sum = sum_of_step(v[i][0], v[i][1]);
                if (unit < all && t == 0)
                    in.sums.put(step * in.rows + row, sum);
            }
        }
    }
    sync_warp();
}

/* A cell of all tiles of the block, the piece's `cell`-th. */
template <class F, uint32_t TILES>
DEVICE void multiply_tiles(const typename F::raw raw[TILES], const activations &in, uint32_t cell, uint32_t parts,
                           float acc[TILES][4])
{
    uint32_t lane = lane_of_warp(), g = lane / 4, t = lane % 4;
    float sums[2][2] = {};
    inputs b[2][2] = {};

    UNROLL
    for (uint32_t i = 0; i < 4; i++) { /* step, product */
        words4 v = {{0, 0, 0, 0}};
        if (g < in.rows)
            v = in.words.get(((cell * 4 + i) * in.rows + g) * 4 + t);
        b[i / 2][i % 2] = inputs{{{v.w[0], v.w[1]}, {v.w[2], v.w[3]}}};
        if (F::MINIMA && 2 * t + i % 2 < in.rows)
            sums[i / 2][i % 2] = in.sums.get((cell * 2 + i / 2) * in.rows + 2 * t + i % 2);
    }
    UNROLL
    for (uint32_t step = 0; step < 2; step++) {
        UNROLL
        for (uint32_t j = 0; j < TILES; j++) {
            step_numbers w;
            F::expand(raw[j], step, lane, w);
            multiply<F>(w, b[step], sums[step], parts, acc[j]);
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
    uint32_t first = block_y() * RN_FEW_ROWS, thread = thread_of_block();
    uint32_t rows = args.n_rows - first < RN_FEW_ROWS ? args.n_rows - first : 8;
    uint32_t piece = rn_few_piece(args.n_rows, args.cols), words = rn_few_words(args.n_rows, args.cols);
    activations in = {bytes_at(args.a), first, rows, args.cols,
                      shared<words4>(warp_of_block() * words * 16, words),
                      shared<float>(8 * words * 16 + warp_of_block() * words / 2, words / 8)};
    shared<float> sums(8 * words * 16 + 4 * words, TILES * SEGMENTS * 128);
    tile_of_block tiles[TILES];
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
        uint32_t at = (cell - begin) % piece;
        if (at == 0)
            stage_cells<F>(in, cell, end - cell < piece ? end - cell : piece);
        UNROLL
        for (uint32_t d = 0; d < DEPTH; d++) {
            if (cell + d >= end)
                continue;
            multiply_tiles<F, TILES>(ring[d], in, at + d, args.parts, acc);
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

#define MATMUL_FEW(id, type)                                                                          \
    RN_KERNEL_AHEAD(matmul_few_##type, rn_products_args, 256, (blocks_of<format_##type, 1>()))        \
    {                                                                                                 \
        matmul_few<format_##type, 1>(args);                                                           \
    }                                                                                                 \
    RN_KERNEL_AHEAD(matmul_pair_##type, rn_products_args, 256, (blocks_of<format_##type, 2>()))       \
    {                                                                                                 \
        matmul_few<format_##type, 2>(args);                                                           \
    }
RN_KERNEL_TYPES(MATMUL_FEW)
