/* The SIMD levels of this machine: those that both the build and the processor have, the best first. */
#include <string.h>

#include "cpu/kernels.h"

void (*rn_emulate_amx)(void);

const struct rn_level *rn_level_at(uint32_t i)
{
    const struct rn_level *levels[] = {rn_level_amx(),  rn_level_avx512(), rn_level_avx2_vnni(),
                                       rn_level_avx2(), rn_level_neon(),   rn_level_c()};
    size_t k;

    for (k = 0; k < sizeof levels / sizeof *levels; k++)
        if (levels[k] != NULL && i-- == 0)
            return levels[k];
    return NULL;
}

const struct rn_level *rn_level_named(const char *name)
{
    const struct rn_level *level;
    uint32_t i;

    for (i = 0; (level = rn_level_at(i)) != NULL; i++)
        if (strcmp(level->name, name) == 0)
            return level;
    return NULL;
}

const struct rn_level *rn_level_best(void)
{
    return rn_level_at(0);
}
