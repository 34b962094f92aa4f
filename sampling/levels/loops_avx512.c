/* The loops with AVX-512: sixteen words or eight doubles at a time. */
#include <stdbool.h>

#define NAME "avx512"
#include "sampling/levels/loops.inc"

const struct rn_loops *rn_loops_avx512(void)
{
    bool has = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");

    return has ? &loops : NULL;
}
