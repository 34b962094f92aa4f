/* Norms, and values one by one: see ops.h. */
#include "gpu/ops.h"

/* A norm; `add`: the ADD before it, or NULL. */
static int launch_norm(struct rn_gpu_backend *backend, const struct rn_op *op, const struct rn_op *add,
                       const struct rn_gpu_shape *shape)
{
    uint32_t width = rn_gpu_width(backend, op->a);
    const struct rn_norm_args args = {.a = rn_gpu_slot(backend, add != NULL ? add->a : op->a),
                                      .weight = rn_gpu_vector(backend, op->weight),
                                      .bias = rn_gpu_vector(backend, op->bias),
                                      .out = rn_gpu_slot(backend, op->out),
                                      .n_rows = rn_gpu_rows(backend, op->out, shape),
                                      .width = width,
                                      .group = op->group == 0 ? width : op->group,
                                      .weight_rows = op->weight < 0 ? 1 : backend->plan->weights[op->weight].rows,
                                      .eps = (float)op->eps,
                                      .around_mean = op->kind == RN_OP_LAYER_NORM,
                                      .add = add != NULL ? rn_gpu_slot(backend, add->b) : 0,
                                      .sum = add != NULL ? rn_gpu_slot(backend, add->out) : 0};

    return rn_gpu_launch(backend, RN_KERNEL_norm, &args);
}

int rn_gpu_run_norm(struct rn_gpu_backend *backend, const struct rn_op *op, const struct rn_gpu_shape *shape)
{
    return launch_norm(backend, op, NULL, shape);
}

uint32_t rn_gpu_match_add_norm(const struct rn_plan *plan, uint32_t index)
{
    const struct rn_op *add = &plan->ops[index], *norm = add + 1;
    const struct rn_slot *sum;

    if (add->kind != RN_OP_ADD || index + 1 >= plan->n_ops ||
        (norm->kind != RN_OP_RMS_NORM && norm->kind != RN_OP_LAYER_NORM) || norm->a != add->out)
        return 0;
    sum = &plan->slots[add->out];
    return plan->slots[norm->out].selected == sum->selected && plan->slots[norm->out].logits == sum->logits ? 2 : 0;
}

int rn_gpu_run_add_norm(struct rn_gpu_backend *backend, const struct rn_op *op, uint32_t n,
                        const struct rn_gpu_shape *shape)
{
    RN_ASSERT(n == 2);
    return launch_norm(backend, op + 1, op, shape);
}

static uint32_t each_kind(enum rn_op_kind kind)
{
    return kind == RN_OP_ADD        ? RN_EACH_ADD
           : kind == RN_OP_ADAPT    ? RN_EACH_ADAPT
           : kind == RN_OP_SCALE    ? RN_EACH_SCALE
           : kind == RN_OP_SOFTCAP  ? RN_EACH_SOFTCAP
           : kind == RN_OP_CLAMP    ? RN_EACH_CLAMP
           : kind == RN_OP_ACTIVATE ? RN_EACH_ACTIVATE
           : kind == RN_OP_GATE     ? RN_EACH_GATE
           : kind == RN_OP_CUT_GATE ? RN_EACH_CUT_GATE
                                    : RN_EACH_XIELU;
}

int rn_gpu_run_each(struct rn_gpu_backend *backend, const struct rn_op *op, const struct rn_gpu_shape *shape)
{
    uint32_t width = rn_gpu_width(backend, op->out);
    const struct rn_each_args args = {.a = rn_gpu_slot(backend, op->a),
                                      .b = rn_gpu_slot(backend, op->b),
                                      .bias = rn_gpu_vector(backend, op->bias),
                                      .out = rn_gpu_slot(backend, op->out),
                                      .n = (uint64_t)rn_gpu_rows(backend, op->out, shape) * width,
                                      .kind = each_kind(op->kind),
                                      .act = op->act,
                                      .width = width,
                                      .part = width / rn_gpu_width(backend, op->a),
                                      .scale = op->scale,
                                      .cut = op->cut,
                                      .plus = op->plus,
                                      .alpha_n = (float)op->alpha_n,
                                      .alpha_p = (float)op->alpha_p,
                                      .eps = (float)op->eps};

    return rn_gpu_launch(backend, RN_KERNEL_each, &args);
}

int rn_gpu_run_select(struct rn_gpu_backend *backend, const struct rn_op *op, const struct rn_gpu_shape *shape)
{
    uint32_t width = rn_gpu_width(backend, op->a);
    const struct rn_gather_args args = {.a = rn_gpu_slot(backend, op->a),
                                        .index = rn_gpu_input(backend, backend->in.wanted),
                                        .out = rn_gpu_slot(backend, op->out),
                                        .n_rows = shape->n_selected,
                                        .rows = shape->n_rows,
                                        .width = width,
                                        .out_width = width};

    return rn_gpu_launch(backend, RN_KERNEL_gather, &args);
}
