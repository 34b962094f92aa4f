/* Which SIMD level this machine gets: the best that both the build and the processor have. */
#include <string.h>

#include "cpu/cpu.h"
#include "cpu/kernels.h"

const struct rn_level *rn_level_named(const char *name)
{
    const struct rn_level *levels[] = {rn_level_amx(),  rn_level_avx512(), rn_level_avx2_vnni(),
                                       rn_level_avx2(), rn_level_neon(),   rn_level_c()};
    size_t i;

    for (i = 0; i < sizeof levels / sizeof *levels; i++)
        if (levels[i] != NULL && (name == NULL || strcmp(levels[i]->name, name) == 0))
            return levels[i];
    return NULL;
}

const struct rn_level *rn_level_best(void)
{
    return rn_level_named(NULL);
}

const char *rn_cpu_level(void)
{
    return rn_level_best()->name;
}
