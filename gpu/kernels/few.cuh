/* What matmul_few and matmul_stream share: activations of few rows in shared memory, split as lanes want them; a cell
 * of tiles times these; the segments' sums of a tile, and what is written of them. */
#ifndef RN_GPU_FEW_CUH
#define RN_GPU_FEW_CUH

#include "gpu/kernels/products.cuh"
#include "gpu/kernels/values.cuh"

namespace few
{

/* Cells whose weights a lane has under way. */
template <class F, uint32_t TILES> DEVICE constexpr uint32_t depth_of()
{
    return sizeof(typename F::raw) * TILES <= 36 ? 4 : sizeof(typename F::raw) * TILES <= 128 ? 2 : 1;
}

/* A tile that a block has; `product` n: none. */
struct tile_of_block {
    uint32_t product, row; /* first row of the weight */
    uint64_t at;           /* address */
};

/* A warp's activations: those of `rows` rows from `first` on. */
struct activations {
    bytes_at a;
    uint32_t first, rows, cols;
    shared<words4> words;
    shared<float> sums;

    DEVICE uint32_t row_at(uint32_t row) const
    {
        return first + row;
    }
};

/* Brings n cells from `cell` on to shared memory: eight steps of a row at a time, one for four lanes, and AT_ONCE times
 * as many under way. `in`: activations, or what has a row_at of its own. */
template <class F, class A> DEVICE void stage_cells(const A &in, uint32_t cell, uint32_t n)
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
                    read_row(in.a, in.row_at(row), in.cols, (cell * 2 + step) * STEP + i % 2 * 16 + 4 * t);
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

/* The segments' sums of a tile for weight row i % 16 and row i / 16 of the block, in order: from the lane and the
 * register that have them. */
DEVICE float total_of(const shared<float> &sums, uint32_t j, uint32_t i)
{
    uint32_t weight_row = i % TILE_ROWS, row = i / TILE_ROWS;
    float total = 0;

    UNROLL
    for (uint32_t s = 0; s < SEGMENTS; s++)
        total += sums.get((j * SEGMENTS + s) * 128 + (weight_row / 8 * 2 + row % 2) * WARP + weight_row % 8 * 4 +
                          row / 2);
    return total;
}

DEVICE float with_bias(const rn_products_args &args, uint32_t product, uint32_t weight_row, float total)
{
    rn_address bias = args.of[product].bias;

    return bias == 0 ? total : total + global<float>(bias, args.of[product].rows).get(weight_row);
}

/* Thread i's output of a tile; `first`, the block's first row. */
DEVICE void put_out(const rn_products_args &args, const tile_of_block &tile, uint32_t first, const shared<float> &sums,
                    uint32_t j, uint32_t i)
{
    uint32_t weight_row = tile.row + i % TILE_ROWS, row = first + i / TILE_ROWS, rows;
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

} // namespace few

#endif
