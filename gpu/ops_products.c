/* Products with weights, and experts: see ops.h. */
#include "gpu/ops.h"
#include "model/expert_use.h"

/* Sums of products are taken with activations of two bfloat16, which have 16 bits: NMSE 1e-9 instead of 1e-5. */
enum { PARTS = 2 };

bool rn_gpu_can_product(const struct rn_plan *plan, const struct rn_op *op)
{
    struct rn_typed_kernels kernels;

    return rn_kernels_of_type(plan->weights[op->weight].type_id, &kernels);
}

bool rn_gpu_can_route(const struct rn_plan *plan, const struct rn_op *op)
{
    (void)plan;
    return op->groups <= 1 && op->per <= 1;
}

int rn_gpu_run_embed(struct rn_gpu_backend *backend, const struct rn_op *op, const struct rn_gpu_shape *shape)
{
    const struct rn_weight *weight = &backend->plan->weights[op->weight];
    struct rn_typed_kernels kernels;
    const struct rn_embed_args args = {.table = rn_gpu_matrix(backend, op->weight),
                                       .index = rn_gpu_input(backend, backend->in.tokens),
                                       .out = rn_gpu_slot(backend, op->out),
                                       .n_rows = shape->n_rows,
                                       .table_rows = weight->rows,
                                       .cols = weight->cols,
                                       .scale = op->scale};

    RN_CHECK(rn_kernels_of_type(weight->type_id, &kernels)); /* prepare has looked */
    return rn_gpu_launch(backend, kernels.embed, &args);
}

int rn_gpu_run_matmul(struct rn_gpu_backend *backend, const struct rn_op *op, const struct rn_gpu_shape *shape)
{
    const struct rn_weight *weight = &backend->plan->weights[op->weight];
    struct rn_typed_kernels kernels;
    const struct rn_matmul_args args = {.weight = rn_gpu_matrix(backend, op->weight),
                                        .bias = rn_gpu_vector(backend, op->bias),
                                        .a = rn_gpu_slot(backend, op->a),
                                        .out = rn_gpu_slot(backend, op->out),
                                        .n_rows = rn_gpu_rows(backend, op->out, shape),
                                        .rows = weight->rows,
                                        .cols = weight->cols,
                                        .parts = PARTS};

    RN_CHECK(rn_kernels_of_type(weight->type_id, &kernels)); /* prepare has looked */
    return rn_gpu_launch(backend, args.n_rows <= RN_FEW_ROWS ? kernels.matmul_few : kernels.matmul_many, &args);
}

/* ---- Experts ---- */

int rn_gpu_run_route(struct rn_gpu_backend *backend, const struct rn_op *op, const struct rn_gpu_shape *shape)
{
    const struct rn_route_args args = {.a = rn_gpu_slot(backend, op->a),
                                       .more = rn_gpu_vector(backend, op->weight),
                                       .ids = rn_gpu_slot(backend, op->out),
                                       .weights = rn_gpu_slot(backend, op->out2),
                                       .n_rows = rn_gpu_rows(backend, op->out, shape),
                                       .experts = op->experts,
                                       .used = op->used,
                                       .gating = op->gating,
                                       .normalise = op->normalise,
                                       .scale = op->scale,
                                       .eps = (float)op->eps};

    return rn_gpu_launch(backend, RN_KERNEL_route, &args);
}

/* Where the ids that a counted op has chosen by lie in the pinned memory, in numbers; NULL: how many there are. */
static uint64_t ids_before(const struct rn_gpu_backend *backend, const struct rn_op *op)
{
    const struct rn_plan *plan = backend->plan;
    uint64_t n = 0;

    for (uint32_t i = 0; i < plan->n_ops && &plan->ops[i] != op; i++)
        if (plan->ops[i].kind == RN_OP_EXPERT_MATMUL && plan->ops[i].counted)
            n += (uint64_t)backend->limits.max_rows * plan->ops[i].used;
    return n;
}

/* Into the pinned memory, before the slot is written again. */
static int copy_ids(struct rn_gpu_backend *backend, const struct rn_op *op, uint32_t n_rows)
{
    struct rn_gpu_driver *driver = backend->device->driver;

    if (backend->host_ids == NULL || n_rows == 0)
        return RN_GPU_OK;
    return driver->copy_out(driver, backend->host_ids + ids_before(backend, op), rn_gpu_slot(backend, op->b),
                            (size_t)n_rows * op->used * sizeof(int32_t), backend->stream);
}

int rn_gpu_run_expert_matmul(struct rn_gpu_backend *backend, const struct rn_op *op, const struct rn_gpu_shape *shape)
{
    const struct rn_weight *weight = &backend->plan->weights[op->weight];
    struct rn_typed_kernels kernels;
    int result;
    const struct rn_expert_matmul_args args = {.weight = rn_gpu_matrix(backend, op->weight),
                                               .bias = rn_gpu_vector(backend, op->bias),
                                               .a = rn_gpu_slot(backend, op->a),
                                               .ids = rn_gpu_slot(backend, op->b),
                                               .out = rn_gpu_slot(backend, op->out),
                                               .n_rows = rn_gpu_rows(backend, op->out, shape),
                                               .used = op->used,
                                               .experts = op->experts,
                                               .rows = weight->rows,
                                               .cols = weight->cols,
                                               .parts = PARTS,
                                               .per_expert_input = op->per_expert_input};

    RN_CHECK(rn_kernels_of_type(weight->type_id, &kernels)); /* prepare has looked */
    result = rn_gpu_launch(backend, kernels.expert_matmul, &args);
    return result == RN_GPU_OK && op->counted && !backend->allows ? copy_ids(backend, op, args.n_rows) : result;
}

uint64_t rn_gpu_ids_bytes(const struct rn_gpu_backend *backend)
{
    return backend->limits.expert_use == NULL ? 0 : ids_before(backend, NULL) * sizeof(int32_t);
}

void rn_gpu_ids_count(const struct rn_gpu_backend *backend, const struct rn_gpu_shape *shape)
{
    for (uint32_t i = 0; i < backend->plan->n_ops && backend->host_ids != NULL; i++) {
        const struct rn_op *op = &backend->plan->ops[i];
        const int32_t *ids = backend->host_ids + ids_before(backend, op);

        if (op->kind != RN_OP_EXPERT_MATMUL || !op->counted)
            continue;
        for (uint32_t k = 0; k < rn_gpu_rows(backend, op->out, shape) * op->used; k++)
            if (ids[k] >= 0 && (uint32_t)ids[k] < op->experts)
                rn_expert_use_add(backend->limits.expert_use, (uint32_t)op->layer, (uint32_t)ids[k], 1);
    }
}

int rn_gpu_run_expert_sum(struct rn_gpu_backend *backend, const struct rn_op *op, const struct rn_gpu_shape *shape)
{
    const struct rn_expert_sum_args args = {.a = rn_gpu_slot(backend, op->a),
                                            .weights = rn_gpu_slot(backend, op->b),
                                            .out = rn_gpu_slot(backend, op->out),
                                            .n_rows = rn_gpu_rows(backend, op->out, shape),
                                            .used = op->used,
                                            .width = rn_gpu_width(backend, op->out)};

    return rn_gpu_launch(backend, RN_KERNEL_expert_sum, &args);
}
