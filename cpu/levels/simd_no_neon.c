/* For builds without the NEON level. */
#include "cpu/kernels.h"

const struct rn_level *rn_level_neon(void)
{
    return NULL;
}
