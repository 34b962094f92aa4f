/* What the files that run a step share: execute.c, attention.c. Private to the fast backend. */
#ifndef RN_CPU_EXECUTE_H
#define RN_CPU_EXECUTE_H

#include "cpu/fast.h"

/* One worker in the current step. */
struct rn_fast_context {
    struct rn_fast *fast;
    const struct rn_step *step;
    struct rn_fast_scratch *scratch;
    uint32_t worker, n_workers;
};

/* A row of a slot. */
static inline float *rn_fast_row(const struct rn_fast_context *c, int16_t slot, uint32_t row)
{
    float *base = slot == c->fast->plan->logits_slot ? c->fast->logits : c->fast->slots[slot];

    return base + (size_t)row * c->fast->plan->slots[slot].width;
}

static inline uint32_t rn_fast_width(const struct rn_fast_context *c, int16_t slot)
{
    return c->fast->plan->slots[slot].width;
}

/* The next piece of a shared instruction. Relaxed: it only shares out; the barriers order the memory. */
static inline uint32_t rn_fast_take(const struct rn_fast_context *c, uint32_t index)
{
    return atomic_fetch_add_explicit(&c->fast->pieces[index], 1, memory_order_relaxed);
}

/* Likewise the next piece of a worker's share. */
static inline uint32_t rn_fast_take_of(const struct rn_fast_context *c, uint32_t index, uint32_t worker)
{
    return atomic_fetch_add_explicit(&c->fast->shares[worker * c->fast->share_stride + index], 1, memory_order_relaxed);
}

/* attention.c: of the instruction `index`, what this worker takes. */
void rn_fast_attention(const struct rn_fast_context *c, uint32_t index);

/* attention.c: the groups of the current step; part of rn_fast_ready. */
void rn_fast_make_groups(struct rn_fast *fast);

#endif
