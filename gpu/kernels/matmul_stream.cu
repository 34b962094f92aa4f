/* Products of up to eight rows as one stream of weights: to the bit what matmul_few gives. There are only so many
 * blocks as the device holds at once. A block brings its activations to shared memory once, and then goes over its
 * tiles: each of its warps has a segment of the columns, and reads the cells of one tile behind those of the other, so
 * many ahead, without a pause between tiles.
 *
 *   block b    tiles b, b + blocks, b + 2 blocks ...   (of gated products a pair each)
 *   warp s     cells of segment s of the first tile, of the second one ...: always DEPTH of them are under way
 *   a tile     each warp puts its sums to shared memory; a barrier; half of the threads add the segments and write,
 *              while the other half is at the next tile. Sums have two places, which take turns
 *
 *   shared   of each warp its segment's activations, and the sums of them, as in matmul_few;
 *            [2][tile of a pair][segment][register of the result][lane] the segments' sums */
#include "gpu/kernels/few.cuh"

namespace stream
{

/* Cells that a lane has under way. Two blocks of 8 warps a multiprocessor then have 32 KB of weights on their way, or
 * more: what the memory's bandwidth times its latency comes to on an H200. */
template <class F> DEVICE constexpr uint32_t depth()
{
    constexpr size_t bytes = sizeof(typename F::raw);

    return bytes <= 28 ? 6 : bytes <= 36 ? 4 : bytes <= 64 ? 2 : 1;
}

/* A place in a warp's stream. */
struct place {
    uint32_t unit;  /* tile, or pair of tiles */
    uint32_t j;     /* which of a pair */
    uint32_t cell;
    few::tile_of_block tile;
};

/* Where its unit and j say. */
template <class F> DEVICE void find_tile(const rn_products_args &args, uint32_t cells, place *at)
{
    uint32_t index = at->unit, p = at->j;

    while (args.end != RN_END_GATE && p + 1 < args.n && index >= (args.of[p].rows + TILE_ROWS - 1) / TILE_ROWS)
        index -= (args.of[p++].rows + TILE_ROWS - 1) / TILE_ROWS;
    at->tile = few::tile_of_block{p, index * TILE_ROWS,
                                  args.of[p].weight + index * tile_bytes(cells, F::UNIT_CELLS, F::UNIT_BYTES)};
}

/* To the next cell of the segment [begin, end), or the next tile's first. */
template <class F>
DEVICE void go_on(const rn_products_args &args, uint32_t cells, uint32_t begin, uint32_t end, place *at)
{
    if (++at->cell < end)
        return;
    at->cell = begin;
    at->j = args.end == RN_END_GATE ? 1 - at->j : 0;
    at->unit += at->j == 0 ? args.blocks : 0;
    find_tile<F>(args, cells, at);
}

/* A warp has done its part of a tile: `turn`, the number of the unit in this block, modulo 2. */
DEVICE void end_tile(const rn_products_args &args, const place &at, uint32_t turn, uint32_t sums_at, float acc[4])
{
    uint32_t tiles = args.end == RN_END_GATE ? 2 : 1, floats = tiles * SEGMENTS * 128, thread = thread_of_block();
    shared<float> sums(sums_at + turn * floats * 4, floats);

    UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        sums.put((at.j * SEGMENTS + warp_of_block()) * 128 + i * WARP + lane_of_warp(), acc[i]);
        acc[i] = 0;
    }
    if (at.j + 1 < tiles)
        return;
    sync_block();
    if (thread / 128 == turn)
        few::put_out(args, few::tile_of_block{args.end == RN_END_GATE ? 0 : at.tile.product, at.tile.row, 0}, 0, sums,
                     0, thread % 128);
}

template <class F> DEVICE void matmul(const rn_products_args &args)
{
    constexpr uint32_t DEPTH = depth<F>();
    uint32_t cells = (args.cols + CELL - 1) / CELL, per = segment_cells(cells), units = 0, turn = 0, left;
    uint32_t begin = warp_of_block() * per, end = begin + per < cells ? begin + per : cells;
    uint32_t words = rn_stream_words(args.n_rows, args.cols);
    few::activations in = {bytes_at(args.a), 0, args.n_rows, args.cols,
                           shared<words4>(warp_of_block() * words * 16, words),
                           shared<float>(8 * words * 16 + warp_of_block() * words / 2, words / 8)};
    place at = {block_x(), 0, begin, {0, 0, 0}}, ahead;
    float acc[1][4] = {};
    typename F::raw ring[DEPTH][1];

    for (uint32_t p = 0; p < (args.end == RN_END_GATE ? 1 : args.n); p++)
        units += (args.of[p].rows + TILE_ROWS - 1) / TILE_ROWS;
    left = (units - block_x() + args.blocks - 1) / args.blocks * (args.end == RN_END_GATE ? 2 : 1) * (end - begin);
    find_tile<F>(args, cells, &at);
    ahead = at;
    UNROLL
    for (uint32_t d = 0; d < DEPTH; d++)
        if (d < left) {
            F::read(bytes_at(ahead.tile.at), 0, ahead.cell, lane_of_warp(), ring[d][0]);
            if (d + 1 < left)
                go_on<F>(args, cells, begin, end, &ahead);
        }
    grid_wait();
    few::stage_cells<F>(in, begin, end - begin);
    for (uint32_t i = 0; i < left; i += DEPTH) {
        UNROLL
        for (uint32_t d = 0; d < DEPTH; d++) {
            if (i + d >= left)
                continue;
            few::multiply_tiles<F, 1>(ring[d], in, at.cell - begin, args.parts, acc);
            if (i + d + DEPTH < left) {
                F::read(bytes_at(ahead.tile.at), 0, ahead.cell, lane_of_warp(), ring[d][0]);
                if (i + d + DEPTH + 1 < left)
                    go_on<F>(args, cells, begin, end, &ahead);
            }
            if (at.cell + 1 == end) {
                end_tile(args, at, turn, 8 * words * 16 + 4 * words, acc[0]);
                turn = args.end == RN_END_GATE && at.j == 0 ? turn : 1 - turn;
            }
            if (i + d + 1 < left)
                go_on<F>(args, cells, begin, end, &at);
        }
    }
}

} // namespace stream

#define MATMUL_STREAM(id, type)                                               \
    RN_KERNEL_AHEAD(matmul_stream_##type, rn_products_args, 256, 2)           \
    {                                                                         \
        stream::matmul<format_##type>(args);                                  \
    }
RN_KERNEL_TYPES(MATMUL_STREAM)
