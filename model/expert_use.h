/* How often each expert of a model was chosen: written by backends while steps run, read by any thread.
 *
 * Bounded: a number for each block and expert, whatever runs. Nothing is ordered by it. */
#ifndef RN_MODEL_EXPERT_USE_H
#define RN_MODEL_EXPERT_USE_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/check.h"

struct rn_expert_use {
    uint32_t n_blocks, n_experts;
    _Atomic uint64_t counts[]; /* [n_blocks][n_experts] */
};

/* Relaxed: partner are the loads of rn_expert_use_get, which may be late and find each number by itself. */
static inline void rn_expert_use_add(struct rn_expert_use *use, uint32_t block, uint32_t expert, uint32_t n)
{
    RN_ASSERT(block < use->n_blocks && expert < use->n_experts);
    atomic_fetch_add_explicit(&use->counts[(size_t)block * use->n_experts + expert], n, memory_order_relaxed);
}

static inline uint64_t rn_expert_use_get(const struct rn_expert_use *use, uint32_t block, uint32_t expert)
{
    RN_ASSERT(block < use->n_blocks && expert < use->n_experts);
    return atomic_load_explicit(&use->counts[(size_t)block * use->n_experts + expert], memory_order_relaxed);
}

#endif
