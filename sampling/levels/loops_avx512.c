/* The loops with AVX-512: sixteen words or eight doubles at a time. */
#include <stdbool.h>

#include "sampling/levels/by_hand_avx512.h"

#define NAME "avx512"
#define ENDS ends_avx512
#define NOISE noise_avx512
#define QUICK_SUM quick_sum_avx512
#define QUICK_SUMS quick_sums_avx512
#define AT_LEAST at_least_avx512
#include "sampling/levels/loops.inc"

const struct rn_loops *rn_loops_avx512(void)
{
    bool has = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");

    return has ? &loops : NULL;
}
