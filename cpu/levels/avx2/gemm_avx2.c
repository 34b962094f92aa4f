/* Products of float matrices with vectors of eight and fused multiply-add. */
#define LANES 8
#define TILE_ROWS 6
#define GEMM eight
#include "cpu/levels/gemm.inc"

const struct rn_gemm *rn_gemm_avx2(void)
{
    return &eight;
}
