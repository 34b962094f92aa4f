/* Which peak loops a level of x86 has: see peak.h. A level of this build is only in use where the processor
 * has its instructions; the loops ask again for what they need beyond its name. */
#include <string.h>

#include "cpu/levels/peak.h"

const struct rn_peak *rn_peak(const char *level)
{
    if (strncmp(level, "avx512", 6) == 0 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vnni"))
        return &rn_peak_avx512;
    if (strncmp(level, "avx", 3) == 0 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return strcmp(level, "avx2-vnni") == 0 ? &rn_peak_avx2_vnni : &rn_peak_avx2;
    return &rn_peak_c;
}
