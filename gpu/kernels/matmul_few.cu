/* Products of up to eight rows at once: a block has one or two tiles of 16 rows of weights, each of its warps a segment
 * of the columns (products.cuh). Every weight is read once, by accesses of 16 bytes a lane, as many cells ahead as
 * registers hold; the first ones before the launch before this one has ended. A warp brings its activations to shared
 * memory piece by piece, split as lanes want them.
 *
 *   shared   of each warp a piece: [step of the piece][product][row][t] of words4, the registers of both parts;
 *            of each warp, where the format has minima: [step of the piece][row] sums of activations;
 *            [tile][segment][register of the result][lane] the segments' sums */
#include "gpu/kernels/few.cuh"

namespace few
{

/* Blocks that fit into a multiprocessor's registers, with so many cells under way. */
template <class F, uint32_t TILES> constexpr uint32_t blocks_of()
{
    return sizeof(typename F::raw) * TILES <= 80 && !F::BY_PRODUCT && !(F::MINIMA && TILES > 1) ? 3 : 2;
}
template <> constexpr uint32_t blocks_of<format_mxfp4, 1>()
{
    return 2; /* with three it spills on sm_90a */
}

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
        put_out(args, tiles[0], first, sums, 0, thread);
    else if (TILES > 1 && args.end != RN_END_GATE)
        put_out(args, tiles[TILES - 1], first, sums, 1, thread - 128);
}

} // namespace few

#define MATMUL_FEW(id, type)                                                                          \
    RN_KERNEL_AHEAD(matmul_few_##type, rn_products_args, 256, (few::blocks_of<format_##type, 1>()))        \
    {                                                                                                 \
        few::matmul_few<format_##type, 1>(args);                                                           \
    }                                                                                                 \
    RN_KERNEL_AHEAD(matmul_pair_##type, rn_products_args, 256, (few::blocks_of<format_##type, 2>()))       \
    {                                                                                                 \
        few::matmul_few<format_##type, 2>(args);                                                           \
    }
RN_KERNEL_TYPES(MATMUL_FEW)
