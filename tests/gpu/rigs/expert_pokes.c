/* See expert_pokes.h. */
#include "tests/gpu/rigs/expert_pokes.h"

#include "gpu/experts.h"

static struct rn_gpu_experts *of(const struct rn_backend *backend)
{
    return ((const struct rn_gpu_backend *)(const void *)backend)->experts;
}

uint32_t pokes_experts(const struct rn_backend *backend)
{
    return of(backend) == NULL ? 0 : of(backend)->n_experts;
}

uint32_t pokes_places(const struct rn_backend *backend)
{
    return of(backend) == NULL ? 0 : of(backend)->n_places;
}

void pokes_shake(struct rn_backend *backend, uint32_t *random)
{
    struct rn_gpu_experts *experts = of(backend);

    for (uint32_t e = 0; e < experts->n_experts; e++) {
        *random = *random * 1664525 + 1013904223;
        experts->scores[e] = *random >> 20;
    }
}
