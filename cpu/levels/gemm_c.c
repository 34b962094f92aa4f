/* Products of float matrices with vectors of four, which every machine that has vectors has; and the choice. */
#define LANES 4
#define TILE_ROWS 4
#define GEMM four
#include "cpu/levels/gemm.inc"

#include "cpu/kernels.h"

const struct rn_gemm *rn_gemm_c(void)
{
    return &four;
}

const struct rn_gemm *rn_cpu_gemm(void)
{
    return rn_level_avx2() != NULL ? rn_gemm_avx2() : rn_gemm_c();
}
