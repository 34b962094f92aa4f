/* For builds without the AVX-512 level. */
#include "cpu/kernels.h"

const struct rn_level *rn_level_avx512(void)
{
    return NULL;
}

const struct rn_level *rn_level_amx(void)
{
    return NULL;
}
