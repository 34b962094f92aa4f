/* The loops with AVX2: eight words or four doubles at a time. */
#define NAME "avx2"
#include "sampling/levels/loops.inc"

const struct rn_loops *rn_loops_avx2(void)
{
    return __builtin_cpu_supports("avx2") ? &loops : NULL;
}
