/* Products of weights in tiles on AVX2 with AVX-VNNI: the sums of tiles_avx2.c, to the bit. Threads: any; nothing here
 * has state. */
#include "cpu/levels/avx2/columns_avx2.h"
#include "cpu/tiles.h"

#include "cpu/levels/avx2/quad_vnni.inc"
#include "cpu/levels/avx2/tiles_avx2.inc"

#include "cpu/levels/blocks_tiles.inc"
#include "cpu/levels/blocks_columns.inc"
#include "cpu/levels/avx2/quads_vnni.inc"
#include "cpu/levels/blocks_products.inc"
#include "cpu/levels/tiles_formats.inc"

const struct rn_kernel *rn_tiles_vnni(uint32_t type_id)
{
    return tiled_kernel(type_id);
}
