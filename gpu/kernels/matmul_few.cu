/* MATMUL of up to eight rows at once: a block has 16 rows of the weight, each of its warps a segment of the columns
 * (products.cuh). Every weight is read once, by accesses of 16 bytes a lane; activations come from the caches. */
#include "gpu/kernels/products.cuh"

namespace
{

template <class F> DEVICE void matmul_few(const rn_matmul_args &args)
{
    uint32_t cells = (args.cols + CELL - 1) / CELL, per = segment_cells(cells), lane = lane_of_warp();
    uint32_t begin = warp_of_block() * per, end = begin + per < cells ? begin + per : cells;
    uint32_t first = block_y() * RN_FEW_ROWS, weight_row, row;
    uint64_t tile = block_x() * tile_bytes(cells, F::UNIT_CELLS, F::UNIT_BYTES);
    bytes_at weight(args.weight), a(args.a);
    shared<float> sums(0, SEGMENTS * 128);
    float acc[4] = {0, 0, 0, 0}, total = 0;

    typename F::raw raw, next;
    if (begin < end)
        F::read(weight, tile, begin, lane, next);
    for (uint32_t cell = begin; cell < end; cell++) {
        raw = next;
        if (cell + 1 < end)
            F::read(weight, tile, cell + 1, lane, next);
        multiply_cell<F>(raw, a, first + lane / 4 < args.n_rows, first + lane / 4, args.cols, args.parts, cell, acc);
    }
    UNROLL
    for (uint32_t i = 0; i < 4; i++)
        sums.put(warp_of_block() * 128 + i * WARP + lane, acc[i]);
    sync_block();
    if (thread_of_block() >= 128)
        return;
    /* thread: weight row thread % 16 and row thread / 16, from the lane and the register that have it */
    weight_row = thread_of_block() % TILE_ROWS;
    row = thread_of_block() / TILE_ROWS;
    for (uint32_t s = 0; s < SEGMENTS; s++)
        total += sums.get(s * 128 + (weight_row / 8 * 2 + row % 2) * WARP + weight_row % 8 * 4 + row / 2);
    weight_row += block_x() * TILE_ROWS;
    row += first;
    if (weight_row >= args.rows || row >= args.n_rows)
        return;
    if (args.bias != 0)
        total += global<float>(args.bias, args.rows).get(weight_row);
    global<float>(args.out, (uint64_t)args.n_rows * args.rows).put((uint64_t)row * args.rows + weight_row, total);
}

} // namespace

#define MATMUL_FEW(id, type)                                \
    RN_KERNEL(matmul_few_##type, rn_matmul_args, 256, 2)    \
    {                                                       \
        matmul_few<format_##type>(args);                    \
    }
RN_KERNEL_TYPES(MATMUL_FEW)
