/* The AVX2 level's products of the block formats. Threads: any; nothing here has state. */
#include "cpu/levels/avx2/columns_avx2.h"

#include "cpu/levels/avx2/quad_avx2.inc"
#include "cpu/levels/avx2/rows_avx2.inc"

#include "cpu/levels/blocks_rows.inc"
#include "cpu/levels/blocks_columns.inc"
#include "cpu/levels/blocks_grid.inc"
#include "cpu/levels/avx2/quads_avx2.inc"
#include "cpu/levels/blocks_products.inc"
#include "cpu/levels/blocks_formats.inc"

const struct rn_kernel *rn_blocks_avx2(uint32_t type_id)
{
    return block_kernel(type_id);
}
