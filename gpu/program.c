/* The plan's ops as launches, in order: see backend.h and ops.h. */
#include "gpu/ops.h"
#include "model/op_info.h"

static bool always(const struct rn_plan *plan, const struct rn_op *op)
{
    (void)plan;
    (void)op;
    return true;
}

/* The features of a TAP are not given: RN_CAN_FEATURES. */
static int run_nothing(struct rn_gpu_backend *backend, const struct rn_op *op, const struct rn_gpu_shape *shape)
{
    (void)backend;
    (void)op;
    (void)shape;
    return RN_GPU_OK;
}

/* Of each kind of op; a kind that is not here has no kernel. */
static const struct {
    rn_gpu_can *can;
    rn_gpu_run *run;
} ops[RN_OP_KINDS] = {
    [RN_OP_EMBED] = {rn_gpu_can_product, rn_gpu_run_embed},
    [RN_OP_RMS_NORM] = {always, rn_gpu_run_norm},
    [RN_OP_LAYER_NORM] = {always, rn_gpu_run_norm},
    [RN_OP_MATMUL] = {rn_gpu_can_product, rn_gpu_run_matmul},
    [RN_OP_ADD] = {always, rn_gpu_run_each},
    [RN_OP_SCALE] = {always, rn_gpu_run_each},
    [RN_OP_SOFTCAP] = {always, rn_gpu_run_each},
    [RN_OP_CLAMP] = {always, rn_gpu_run_each},
    [RN_OP_ACTIVATE] = {always, rn_gpu_run_each},
    [RN_OP_GATE] = {always, rn_gpu_run_each},
    [RN_OP_CUT_GATE] = {always, rn_gpu_run_each},
    [RN_OP_XIELU] = {always, rn_gpu_run_each},
    [RN_OP_SELECT] = {always, rn_gpu_run_select},
    [RN_OP_TAP] = {always, run_nothing},
    [RN_OP_ROPE] = {always, rn_gpu_run_rope},
    [RN_OP_KV_STORE] = {always, rn_gpu_run_kv_store},
    [RN_OP_ATTENTION] = {rn_gpu_can_attention, rn_gpu_run_attention},
    [RN_OP_ROUTE] = {rn_gpu_can_route, rn_gpu_run_route},
    [RN_OP_EXPERT_MATMUL] = {rn_gpu_can_product, rn_gpu_run_expert_matmul},
    [RN_OP_EXPERT_SUM] = {always, rn_gpu_run_expert_sum},
    [RN_OP_SUM] = {always, rn_gpu_run_expert_sum},
};

runnel_status rn_gpu_plan_check(const struct rn_plan *plan, runnel_error *error)
{
    for (uint32_t i = 0; i < plan->n_ops; i++) {
        const struct rn_op *op = &plan->ops[i];
        const struct rn_weight *weight = op->weight < 0 ? NULL : &plan->weights[op->weight];

        if (ops[op->kind].run != NULL && ops[op->kind].can(plan, op))
            continue;
        if (weight == NULL)
            return rn_error_set(error, RUNNEL_UNSUPPORTED, "cuda: there is no kernel for op %s of %s",
                                rn_op_name(op->kind), plan->architecture);
        return rn_error_set(error, RUNNEL_UNSUPPORTED, "cuda: there is no kernel for op %s with tensor %.*s of type %s",
                            rn_op_name(op->kind), (int)weight->tensor->name.n, weight->tensor->name.bytes,
                            weight->type->name);
    }
    return RUNNEL_OK;
}

int rn_gpu_program_op(struct rn_gpu_backend *backend, uint32_t index, const struct rn_gpu_shape *shape)
{
    const struct rn_op *op = &backend->plan->ops[index];

    return ops[op->kind].run(backend, op, shape);
}

int rn_gpu_program_run(struct rn_gpu_backend *backend, const struct rn_gpu_shape *shape)
{
    int result = RN_GPU_OK;

    for (uint32_t i = 0; i < backend->plan->n_ops && result == RN_GPU_OK; i++)
        result = rn_gpu_program_op(backend, i, shape);
    return result;
}

/* ---- Shared memory ---- */

int rn_gpu_program_allow(struct rn_gpu_backend *backend)
{
    uint32_t longest = rn_gpu_longest(backend, backend->limits.context_tokens);
    struct rn_gpu_shape shape = {1, 1, 1, longest};
    int result = RN_GPU_OK;

    backend->allows = true;
    for (; shape.n_rows < backend->limits.max_rows && result == RN_GPU_OK; shape.n_rows *= 2)
        result = rn_gpu_program_run(backend, &shape);
    shape =
        (struct rn_gpu_shape){backend->limits.max_rows, backend->limits.max_outs, backend->limits.max_seqs, longest};
    if (result == RN_GPU_OK)
        result = rn_gpu_program_run(backend, &shape);
    backend->allows = false;
    return result;
}
