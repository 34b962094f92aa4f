/* The loops with the flags of the build, and the choice among the levels. */
#define NAME "c"
#include "sampling/levels/loops.inc"

const struct rn_loops *rn_loops_c(void)
{
    return &loops;
}

const struct rn_loops *rn_loops_named(const char *name)
{
    const struct rn_loops *levels[] = {rn_loops_avx512(), rn_loops_avx2(), rn_loops_c()};

    for (uint32_t i = 0; i < sizeof levels / sizeof levels[0]; i++)
        if (levels[i] != NULL && (name == NULL || strcmp(levels[i]->name, name) == 0))
            return levels[i];
    return NULL;
}
