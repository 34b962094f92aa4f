/* What the files that run a step share: execute.c, attention.c, recurrent.c, linear.c. Private to the fast backend. */
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

/* A norm's weights, a bias; NULL: none. */
static inline const float *rn_fast_vector(const struct rn_fast_context *c, int32_t weight)
{
    return weight < 0 ? NULL : c->fast->vectors[weight];
}

/* Rows that an instruction goes through. */
static inline uint32_t rn_fast_rows_of(const struct rn_fast_context *c, const struct rn_instruction *in)
{
    return in->logits ? c->step->n_outs : in->selected ? c->fast->n_selected : c->step->n_rows;
}

/* The next piece of a shared instruction. Relaxed: it only shares out; the barriers order the memory. */
static inline uint32_t rn_fast_take(const struct rn_fast_context *c, uint32_t index)
{
    return atomic_fetch_add_explicit(&c->fast->pieces[index], 1, memory_order_relaxed);
}

/* Likewise the next piece of a worker's share, or of a node's stretch, of which it is the first worker. */
static inline uint32_t rn_fast_take_of(const struct rn_fast_context *c, uint32_t index, uint32_t worker)
{
    return atomic_fetch_add_explicit(&c->fast->shares[worker * c->fast->share_stride + index], 1, memory_order_relaxed);
}

/* attention.c: of the instruction `index`, what this worker takes. */
void rn_fast_attention(const struct rn_fast_context *c, uint32_t index);

/* choose.c: likewise; one row of REACH; and the keys of t, which is as for a row that looks at chosen positions, become
 * those that were chosen, in their order: t->from and t->to say which are read. */
void rn_fast_choose(const struct rn_fast_context *c, uint32_t index);
void rn_fast_reach(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row);
void rn_fast_gather(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row, struct rn_attend *t);

/* products.c: likewise. */
void rn_fast_lay(const struct rn_fast_context *c, uint32_t index);
void rn_fast_matmul(const struct rn_fast_context *c, uint32_t index);
void rn_fast_expert_matmul(const struct rn_fast_context *c, uint32_t index);
void rn_fast_head_matmul(const struct rn_fast_context *c, uint32_t index);

/* heads.c: likewise. */
void rn_fast_head_sum(const struct rn_fast_context *c, uint32_t index);

/* Consecutive rows of one sequence, and what the op keeps of it. */
struct rn_fast_run {
    uint32_t row, n;
    float *state;
};

/* recurrent.c: the run behind `run`; the first one behind {0}. Of no rows behind the last. */
struct rn_fast_run rn_fast_next_run(const struct rn_fast_context *c, const struct rn_op *op, struct rn_fast_run run);

/* linear.c: one row of the ops of these names ... */
void rn_fast_times_weight(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row);
void rn_fast_add_weight(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row);
void rn_fast_over_weight(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row);
void rn_fast_lerp(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row);
void rn_fast_scatter(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row);
void rn_fast_part_sum(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row);
void rn_fast_repeat(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row);

/* ... and as rn_fast_attention. linear: of each of WKV6, WKV7 and GATED_DELTA. */
void rn_fast_shift(const struct rn_fast_context *c, uint32_t index);
void rn_fast_linear(const struct rn_fast_context *c, uint32_t index);

/* recurrent.c: likewise. */
void rn_fast_conv(const struct rn_fast_context *c, uint32_t index);
void rn_fast_scan(const struct rn_fast_context *c, uint32_t index);
void rn_fast_compress(const struct rn_fast_context *c, uint32_t index);

/* parts.c: ops over parts of rows, each for one row. */
void rn_fast_temper(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row);
void rn_fast_sum(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row);
void rn_fast_spread(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row);
void rn_fast_expert_factor(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row);
void rn_fast_tail(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row);
void rn_fast_resize(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row);
void rn_fast_mix(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row);
void rn_fast_hyper(const struct rn_fast_context *c, const struct rn_op *op, uint32_t row);

/* attention.c: the groups of the current step; part of rn_fast_ready. */
void rn_fast_make_groups(struct rn_fast *fast);

#endif
