/* What the kernels `tile` share: the file's rows as bytes, and where a warp is. Bytes of rows and columns that are not
 * there are zeros. */
#ifndef RN_GPU_TILE_CUH
#define RN_GPU_TILE_CUH

#include "gpu/kernels/formats.cuh"

namespace
{

struct source {
    bytes_at bytes;
    uint32_t rows;
    uint64_t row_bytes;

    DEVICE uint32_t byte(uint32_t row, uint64_t at) const
    {
        return row < rows && at < row_bytes ? bytes.get<uint8_t>(row * row_bytes + at) : 0;
    }
    DEVICE uint32_t half(uint32_t row, uint64_t at) const
    {
        return byte(row, at) | byte(row, at + 1) << 8;
    }
    DEVICE uint32_t word(uint32_t row, uint64_t at) const
    {
        return half(row, at) | half(row, at + 2) << 16;
    }
};

/* Where a warp is: the cell, its first row and column, and the lane. */
struct spot {
    uint32_t first_row, cell, lane, g, t;
};

/* T: the form `format`, the file's BLOCK numbers in BLOCK_BYTES, and what a lane writes of a cell. */
template <class T> DEVICE void tile(const rn_tile_args &args)
{
    uint32_t cells = (args.cols + CELL - 1) / CELL, lane = lane_of_warp();
    spot s = {block_x() * TILE_ROWS, block_y() * 8 + warp_of_block(), lane, lane / 4, lane % 4};
    source in = {bytes_at(args.source), args.rows, (uint64_t)(args.cols / T::BLOCK) * T::BLOCK_BYTES};

    if (s.cell < cells)
        T::write(in, s, bytes_at(args.out), block_x() * tile_bytes(cells, T::format::UNIT_CELLS, T::format::UNIT_BYTES));
}

} // namespace

#define TILE(type, writer)                          \
    RN_KERNEL(tile_##type, rn_tile_args, 256, 4)    \
    {                                               \
        tile<writer>(args);                         \
    }

#endif
