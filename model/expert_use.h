/* How often each expert of a model was chosen, and of a device with a cache of experts how often from there: written by
 * backends while steps run, read by any thread.
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
    _Atomic uint64_t hits,
        misses; /* choices of experts that are apart from their layers (rn_backend_limits.expert_bytes):
                                       those that a step found in the device's memory, and those that it read from the
                                       host's. Partners: as of counts */
    _Atomic uint64_t fetched_bytes; /* copied to the device in place of others; likewise */
    _Atomic uint64_t counts[];      /* [n_blocks][n_experts] */
};

/* Relaxed: partner are the loads of rn_expert_use_get, which may be late and find each number by itself. */
static inline void rn_expert_use_add(struct rn_expert_use *use, uint32_t block, uint32_t expert, uint32_t n)
{
    RN_ASSERT(block < use->n_blocks && expert < use->n_experts);
    atomic_fetch_add_explicit(&use->counts[(size_t)block * use->n_experts + expert], n, memory_order_relaxed);
}

/* Relaxed: as above. */
static inline void rn_expert_use_note(_Atomic uint64_t *of, uint64_t n)
{
    atomic_fetch_add_explicit(of, n, memory_order_relaxed);
}

static inline uint64_t rn_expert_use_read(const _Atomic uint64_t *of)
{
    return atomic_load_explicit(of, memory_order_relaxed);
}

static inline uint64_t rn_expert_use_get(const struct rn_expert_use *use, uint32_t block, uint32_t expert)
{
    RN_ASSERT(block < use->n_blocks && expert < use->n_experts);
    return atomic_load_explicit(&use->counts[(size_t)block * use->n_experts + expert], memory_order_relaxed);
}

#endif
