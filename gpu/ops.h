/* Ops as launches: for each kind of op which launches compute it, and with what arguments. One file for each group of
 * ops; program.c has the table. */
#ifndef RN_GPU_OPS_H
#define RN_GPU_OPS_H

#include "base/check.h"
#include "gpu/steps.h"

/* Launches the op on the backend's stream. */
typedef int rn_gpu_run(struct rn_gpu_backend *backend, const struct rn_op *op, const struct rn_gpu_shape *shape);

/* There are kernels for the op as it stands in the plan, with a cache of this type. */
typedef bool rn_gpu_can(const struct rn_plan *plan, const struct rn_op *op, runnel_kv_type kv_type);

/* Of slots, weights and what a step brings: the address on the device, 0: there is none. */
static inline rn_address rn_gpu_slot(const struct rn_gpu_backend *backend, int16_t index)
{
    return index < 0 ? 0 : backend->slots + backend->slot_at[index];
}

static inline rn_address rn_gpu_matrix(const struct rn_gpu_backend *backend, int32_t weight)
{
    return backend->weights + backend->weight_at[weight];
}

/* The table of an expert weight's matrices. */
static inline rn_address rn_gpu_matrices(const struct rn_gpu_backend *backend, int32_t weight)
{
    return backend->weights + backend->matrices_at[weight];
}

static inline rn_address rn_gpu_vector(const struct rn_gpu_backend *backend, int32_t weight)
{
    return weight < 0 ? 0 : backend->weights + backend->vector_at[weight];
}

static inline rn_address rn_gpu_input(const struct rn_gpu_backend *backend, uint64_t at)
{
    return backend->inputs + at;
}

static inline uint32_t rn_gpu_width(const struct rn_gpu_backend *backend, int16_t index)
{
    return index < 0 ? 0 : backend->plan->slots[index].width;
}

/* Rows of a slot in a step of this shape. */
static inline uint32_t rn_gpu_rows(const struct rn_gpu_backend *backend, int16_t index,
                                   const struct rn_gpu_shape *shape)
{
    const struct rn_slot *slot = &backend->plan->slots[index];

    return slot->logits ? shape->n_outs : slot->selected ? shape->n_selected : shape->n_rows;
}

/* Several ops that follow one another as one launch: `match` tells how many from that index on are, 0: none. `run`
 * gives the bits of the ops one by one, but for slots that nobody reads any more. Ops of adapters (rn_op.adapted) may
 * be among them: steps without adapters pass them over, and others run them between those. */
typedef uint32_t rn_gpu_match(const struct rn_plan *plan, uint32_t index);
typedef int rn_gpu_run_several(struct rn_gpu_backend *backend, const struct rn_op *op, uint32_t n,
                               const struct rn_gpu_shape *shape);

/* program.c: the ops one by one; the index of the first op behind this one that is not of adapters; nobody reads what
 * the slot holds from the op of this index on. */
rn_gpu_run_several rn_gpu_run_alone;
uint32_t rn_gpu_next(const struct rn_plan *plan, uint32_t index);
bool rn_gpu_is_dead(const struct rn_plan *plan, int16_t slot, uint32_t index);

/* ops_values.c: norms, and values one by one. */
rn_gpu_run rn_gpu_run_norm, rn_gpu_run_each, rn_gpu_run_select;
rn_gpu_match rn_gpu_match_add_norm; /* ADD, and a norm of that */
rn_gpu_run_several rn_gpu_run_add_norm;

/* ops_parts.c: parts of rows, and the products of heads. features.c: TAP. */
rn_gpu_run rn_gpu_run_part, rn_gpu_run_grams, rn_gpu_run_scatter, rn_gpu_run_hyper, rn_gpu_run_part_sum,
    rn_gpu_run_tail, rn_gpu_run_resize, rn_gpu_run_head, rn_gpu_run_tap;

/* ops_products.c: products with weights, and experts. */
rn_gpu_can rn_gpu_can_product;
rn_gpu_match rn_gpu_match_group, rn_gpu_match_add, rn_gpu_match_gate; /* of one input; + ADD (+ norm); two + GATE */
rn_gpu_run_several rn_gpu_run_group, rn_gpu_run_add, rn_gpu_run_gate;
rn_gpu_run rn_gpu_run_embed, rn_gpu_run_embed_ids, rn_gpu_run_look_up, rn_gpu_run_matmul, rn_gpu_run_route,
    rn_gpu_run_expert_matmul, rn_gpu_run_expert_sum;

/* ops_cache.c: rotation, the cache, attention. */
rn_gpu_can rn_gpu_can_attention, rn_gpu_can_choose;
rn_gpu_run rn_gpu_run_choose, rn_gpu_run_reach;
rn_gpu_match rn_gpu_match_rope_store; /* ROPE of queries and keys, KV_STORE */
rn_gpu_run_several rn_gpu_run_rope_store;
int rn_gpu_run_angles(struct rn_gpu_backend *backend, uint32_t rope, const struct rn_gpu_shape *shape);
rn_gpu_run rn_gpu_run_rope, rn_gpu_run_kv_store, rn_gpu_run_attention;

/* ops_states.c: what has a recurrent state. */
rn_gpu_can rn_gpu_can_scan;
rn_gpu_run rn_gpu_run_conv, rn_gpu_run_compress, rn_gpu_run_shift, rn_gpu_run_linear, rn_gpu_run_scan;

#endif
