/* For builds without the levels of x86. */
#include <stddef.h>

#include "sampling/levels/loops.h"

const struct rn_loops *rn_loops_avx2(void)
{
    return NULL;
}

const struct rn_loops *rn_loops_avx512(void)
{
    return NULL;
}
