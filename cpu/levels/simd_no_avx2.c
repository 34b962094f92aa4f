/* For builds without the AVX2 level. */
#include "cpu/cpu.h"
#include "cpu/kernels.h"

const struct rn_level *rn_level_avx2(void)
{
    return NULL;
}

const struct rn_level *rn_level_avx2_vnni(void)
{
    return NULL;
}

const struct rn_gemm *rn_gemm_avx2(void)
{
    return NULL;
}
