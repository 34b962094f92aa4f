/* Products with weights, and experts: see ops.h. */
#include "gpu/ops.h"
#include "model/expert_use.h"

/* Sums of products are taken with activations of two bfloat16, which have 16 bits: NMSE 1e-9 instead of 1e-5. */
enum { PARTS = 2 };

bool rn_gpu_can_product(const struct rn_plan *plan, const struct rn_op *op, runnel_kv_type kv_type)
{
    struct rn_typed_kernels kernels;

    (void)kv_type;
    return rn_kernels_of_type(plan->weights[op->weight].type_id, &kernels);
}

int rn_gpu_run_embed(struct rn_gpu_backend *backend, const struct rn_op *op, const struct rn_gpu_shape *shape)
{
    const struct rn_weight *weight = &backend->plan->weights[op->weight];
    struct rn_typed_kernels kernels;
    const struct rn_embed_args args = {
        .table = rn_gpu_matrix(backend, op->weight),
        .index = rn_gpu_input(backend, op->kind == RN_OP_EMBED_POSITION ? backend->in.positions : backend->in.tokens),
        .out = rn_gpu_slot(backend, op->out),
        .n_rows = shape->n_rows,
        .table_rows = weight->rows,
        .cols = weight->cols,
        .scale = op->scale};

    RN_CHECK(rn_kernels_of_type(weight->type_id, &kernels)); /* prepare has looked */
    return rn_gpu_launch(backend, kernels.embed, &args);
}

/* A row of the table is a row of [n_rows, used] parts. */
int rn_gpu_run_look_up(struct rn_gpu_backend *backend, const struct rn_op *op, const struct rn_gpu_shape *shape)
{
    const struct rn_weight *weight = &backend->plan->weights[op->weight];
    struct rn_typed_kernels kernels;
    const struct rn_embed_args args = {.table = rn_gpu_matrix(backend, op->weight),
                                       .index = rn_gpu_slot(backend, op->a),
                                       .out = rn_gpu_slot(backend, op->out),
                                       .n_rows = rn_gpu_rows(backend, op->out, shape) * op->used,
                                       .table_rows = weight->rows,
                                       .cols = weight->cols,
                                       .scale = 1};

    RN_CHECK(rn_kernels_of_type(weight->type_id, &kernels)); /* prepare has looked */
    return rn_gpu_launch(backend, kernels.embed, &args);
}

int rn_gpu_run_embed_ids(struct rn_gpu_backend *backend, const struct rn_op *op, const struct rn_gpu_shape *shape)
{
    const struct rn_each_args args = {.a = rn_gpu_slot(backend, op->out),
                                      .out = rn_gpu_slot(backend, op->out),
                                      .n = (uint64_t)shape->n_rows * rn_gpu_width(backend, op->out),
                                      .kind = RN_EACH_WHOLE,
                                      .width = rn_gpu_width(backend, op->out),
                                      .part = 1};
    int result = rn_gpu_run_embed(backend, op, shape); /* as floats, which have them exactly */

    return result == RN_GPU_OK ? rn_gpu_launch(backend, RN_KERNEL_each, &args) : result;
}

/* n products of one input for few rows; `last`, what comes behind them and is done with them, or the last of them. */
static int launch_products(struct rn_gpu_backend *backend, const struct rn_op *op, uint32_t n, enum rn_end end,
                           const struct rn_op *last, uint32_t n_rows)
{
    const struct rn_weight *weight = &backend->plan->weights[op->weight];
    struct rn_products_args args = {.a = rn_gpu_slot(backend, op->a),
                                    .n_rows = n_rows,
                                    .cols = weight->cols,
                                    .parts = PARTS,
                                    .n = n,
                                    .end = end,
                                    .act = last->act,
                                    .blocks = backend->stream_blocks[weight->type_id]};
    struct rn_typed_kernels kernels;

    for (uint32_t i = 0; i < n; i++)
        args.of[i] = (struct rn_product){.weight = rn_gpu_matrix(backend, op[i].weight),
                                         .bias = rn_gpu_vector(backend, op[i].bias),
                                         .out = rn_gpu_slot(backend, op[i].out),
                                         .rows = backend->plan->weights[op[i].weight].rows};
    if (end != RN_END_NONE)
        args.of[0].out = rn_gpu_slot(backend, last->out);
    if (end == RN_END_ADD)
        args.residual = rn_gpu_slot(backend, last->a == op->out ? last->b : last->a);
    RN_CHECK(rn_kernels_of_type(weight->type_id, &kernels)); /* prepare has looked */
    return rn_gpu_launch(backend, rn_few_kernel(&kernels, &args), &args);
}

/* The op before has split the same rows. */
static bool is_split(const struct rn_gpu_backend *backend, const struct rn_op *op)
{
    const struct rn_slot *slots = backend->plan->slots, *out = &slots[op->out];

    return op > backend->plan->ops && op[-1].kind == RN_OP_MATMUL && op[-1].a == op->a && op[-1].out != op->a &&
           slots[op[-1].out].selected == out->selected && slots[op[-1].out].logits == out->logits;
}

static int run_many(struct rn_gpu_backend *backend, const struct rn_typed_kernels *kernels, bool splits,
                    struct rn_matmul_args args)
{
    int result = RN_GPU_OK;

    args.split = backend->slots + backend->split_at;
    args.partial = backend->slots + backend->partial_at;
    args.ways = rn_matmul_ways(args.n_rows, args.rows, args.cols, (uint32_t)backend->device->units);
    if (splits)
        result = rn_gpu_launch(backend, RN_KERNEL_split_rows, &args);
    if (result == RN_GPU_OK)
        result = rn_gpu_launch(backend, kernels->matmul_many, &args);
    return result == RN_GPU_OK && args.ways > 1 ? rn_gpu_launch(backend, RN_KERNEL_matmul_join, &args) : result;
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

    if (args.n_rows <= RN_FEW_ROWS)
        return launch_products(backend, op, 1, RN_END_NONE, op, args.n_rows);
    RN_CHECK(rn_kernels_of_type(weight->type_id, &kernels)); /* prepare has looked */
    return run_many(backend, &kernels, !is_split(backend, op), args);
}

/* That a step has of any slot. */
static uint32_t most_rows(const struct rn_gpu_backend *backend)
{
    const struct rn_backend_limits *limits = &backend->limits;

    return limits->max_outs > limits->max_rows ? limits->max_outs : limits->max_rows;
}

void rn_gpu_products_bytes(const struct rn_gpu_backend *backend, uint64_t *split, uint64_t *partial)
{
    uint32_t most = most_rows(backend);
    uint32_t units = (uint32_t)backend->device->units;

    *split = *partial = 0;
    for (uint32_t i = 0; i < backend->plan->n_ops; i++) {
        const struct rn_op *op = &backend->plan->ops[i];
        const struct rn_weight *weight = op->kind == RN_OP_MATMUL ? &backend->plan->weights[op->weight] : NULL;

        /* both depend on the number of 64 rows alone */
        for (uint32_t n = RN_FEW_ROWS + 1; weight != NULL && n < most + RN_MANY_ROWS; n += RN_MANY_ROWS) {
            uint32_t rows = n < most ? n : most;
            uint32_t ways = rn_matmul_ways(rows, weight->rows, weight->cols, units);
            uint64_t bytes = rn_partial_bytes(rows, weight->rows, ways);

            *split = rn_split_bytes(rows, weight->cols) > *split ? rn_split_bytes(rows, weight->cols) : *split;
            *partial = bytes > *partial ? bytes : *partial;
        }
    }
}

/* ---- Several ops as one launch ---- */

static bool is_same_input(const struct rn_plan *plan, const struct rn_op *op, const struct rn_op *other)
{
    return other->kind == RN_OP_MATMUL && other->a == op->a && other->out != op->a &&
           plan->weights[other->weight].type_id == plan->weights[op->weight].type_id &&
           plan->slots[other->out].selected == plan->slots[op->out].selected &&
           plan->slots[other->out].logits == plan->slots[op->out].logits;
}

static bool has_out(const struct rn_op *op, uint32_t n, int16_t slot)
{
    for (uint32_t i = 0; i < n; i++)
        if (op[i].out == slot)
            return true;
    return false;
}

uint32_t rn_gpu_match_group(const struct rn_plan *plan, uint32_t index)
{
    const struct rn_op *op = &plan->ops[index];
    uint32_t n = 0;

    while (n < RN_MOST_PRODUCTS && index + n < plan->n_ops && is_same_input(plan, op, &op[n]) &&
           !has_out(op, n, op[n].out))
        n++;
    return n > 1 ? n : 0;
}

uint32_t rn_gpu_match_add(const struct rn_plan *plan, uint32_t index)
{
    const uint32_t at = rn_gpu_next(plan, index);
    const struct rn_op *op = &plan->ops[index], *add = &plan->ops[at];

    if (op->kind != RN_OP_MATMUL || at >= plan->n_ops || add->kind != RN_OP_ADD || add->a == add->b ||
        (add->a != op->out && add->b != op->out) || add->out == op->a)
        return 0;
    if (add->out != op->out && !rn_gpu_is_dead(plan, op->out, at + 1))
        return 0;
    return at - index + (rn_gpu_match_add_norm(plan, at) > 0 ? 2 : 1);
}

uint32_t rn_gpu_match_gate(const struct rn_plan *plan, uint32_t index)
{
    const uint32_t at = rn_gpu_next(plan, index + 1);
    const struct rn_op *op = &plan->ops[index], *gate = &plan->ops[at];

    if (op->kind != RN_OP_MATMUL || at >= plan->n_ops || !is_same_input(plan, op, op + 1) || gate->kind != RN_OP_GATE ||
        gate->a != op[0].out || gate->b != op[1].out || gate->a == gate->b ||
        plan->slots[gate->a].width != plan->slots[gate->b].width || gate->out == op->a)
        return 0;
    for (uint32_t i = 0; i < 2; i++)
        if (gate->out != op[i].out && !rn_gpu_is_dead(plan, op[i].out, at + 1))
            return 0;
    return at - index + 1;
}

int rn_gpu_run_group(struct rn_gpu_backend *backend, const struct rn_op *op, uint32_t n,
                     const struct rn_gpu_shape *shape)
{
    uint32_t n_rows = rn_gpu_rows(backend, op->out, shape);

    return n_rows > RN_FEW_ROWS ? rn_gpu_run_alone(backend, op, n, shape)
                                : launch_products(backend, op, n, RN_END_NONE, op, n_rows);
}

/* What comes behind the first n ops cannot be done with them: there are many rows, or adapters change what the products
 * have given. */
static bool is_apart(uint32_t n_rows, const struct rn_op *op, uint32_t n, const struct rn_gpu_shape *shape)
{
    return n_rows > RN_FEW_ROWS || (shape->is_adapted && op[n].adapted);
}

/* The norm, if there is one, joins what comes last: of few rows by itself, behind the product that adds. */
int rn_gpu_run_add(struct rn_gpu_backend *backend, const struct rn_op *op, uint32_t n, const struct rn_gpu_shape *shape)
{
    uint32_t n_rows = rn_gpu_rows(backend, op->out, shape);
    const bool has_norm = op[n - 1].kind != RN_OP_ADD;
    const struct rn_op *add = &op[has_norm ? n - 2 : n - 1];
    int result;

    if (is_apart(n_rows, op, 1, shape)) {
        result = rn_gpu_run_alone(backend, op, (uint32_t)(add - op), shape);
        if (result != RN_GPU_OK)
            return result;
        return has_norm ? rn_gpu_run_add_norm(backend, add, 2, shape) : rn_gpu_run_each(backend, add, shape);
    }
    result = launch_products(backend, op, 1, RN_END_ADD, add, n_rows);
    return result == RN_GPU_OK && has_norm ? rn_gpu_run_norm(backend, add + 1, shape) : result;
}

int rn_gpu_run_gate(struct rn_gpu_backend *backend, const struct rn_op *op, uint32_t n,
                    const struct rn_gpu_shape *shape)
{
    uint32_t n_rows = rn_gpu_rows(backend, op->out, shape);
    int result;

    if (!is_apart(n_rows, op, 2, shape))
        return launch_products(backend, op, 2, RN_END_GATE, &op[n - 1], n_rows);
    result = rn_gpu_run_group(backend, op, 2, shape);
    return result == RN_GPU_OK ? rn_gpu_run_alone(backend, op + 2, n - 2, shape) : result;
}

/* ---- Experts ---- */

int rn_gpu_run_route(struct rn_gpu_backend *backend, const struct rn_op *op, const struct rn_gpu_shape *shape)
{
    const struct rn_route_args args = {.a = rn_gpu_slot(backend, op->a),
                                       .more = rn_gpu_vector(backend, op->weight),
                                       .given = rn_gpu_slot(backend, op->b),
                                       .ids = rn_gpu_slot(backend, op->out),
                                       .weights = rn_gpu_slot(backend, op->out2),
                                       .n_rows = rn_gpu_rows(backend, op->out, shape),
                                       .experts = op->experts,
                                       .used = op->used,
                                       .gating = op->gating,
                                       .normalise = op->normalise,
                                       .scale = op->scale,
                                       .eps = (float)op->eps,
                                       .groups = op->groups,
                                       .best = op->best,
                                       .per = op->per};

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

/* An op before this one has grouped the same pairs: these ids have not been chosen anew since. */
static bool is_grouped(const struct rn_gpu_backend *backend, const struct rn_op *op)
{
    for (const struct rn_op *before = op; before-- > backend->plan->ops;) {
        if (before->kind == RN_OP_EXPERT_MATMUL)
            return before->b == op->b && before->used == op->used && before->experts == op->experts &&
                   before->out != op->b;
        if (before->out == op->b || before->out2 == op->b)
            return false;
    }
    return false;
}

/* Likewise: it has split the same rows. */
static bool is_split_for_experts(const struct rn_gpu_backend *backend, const struct rn_op *op)
{
    const struct rn_op *before = op - 1;

    return op > backend->plan->ops && before->kind == RN_OP_EXPERT_MATMUL && before->a == op->a &&
           before->per_expert_input == op->per_expert_input && before->out != op->a && is_grouped(backend, op);
}

static int launch_experts(struct rn_gpu_backend *backend, const struct rn_op *op,
                          const struct rn_expert_matmul_args *args)
{
    struct rn_typed_kernels kernels;
    int result = RN_GPU_OK;

    RN_CHECK(rn_kernels_of_type(backend->plan->weights[op->weight].type_id, &kernels)); /* prepare has looked */
    if (args->group == 1)
        return rn_gpu_launch(backend, kernels.expert_matmul, args);
    if (!is_grouped(backend, op))
        result = rn_gpu_launch(backend, RN_KERNEL_expert_group, args);
    if (result == RN_GPU_OK && args->group == RN_EXPERT_FEW)
        return rn_gpu_launch(backend, kernels.expert_few, args);
    if (result == RN_GPU_OK && !is_split_for_experts(backend, op))
        result = rn_gpu_launch(backend, RN_KERNEL_expert_split, args);
    return result == RN_GPU_OK ? rn_gpu_launch(backend, kernels.expert_many, args) : result;
}

int rn_gpu_run_expert_matmul(struct rn_gpu_backend *backend, const struct rn_op *op, const struct rn_gpu_shape *shape)
{
    const struct rn_weight *weight = &backend->plan->weights[op->weight];
    uint32_t n_rows = rn_gpu_rows(backend, op->out, shape);
    int result;
    const struct rn_expert_matmul_args args = {.matrices = rn_gpu_matrices(backend, op->weight),
                                               .bias = rn_gpu_vector(backend, op->bias),
                                               .a = rn_gpu_slot(backend, op->a),
                                               .ids = rn_gpu_slot(backend, op->b),
                                               .out = rn_gpu_slot(backend, op->out),
                                               .n_rows = n_rows,
                                               .used = op->used,
                                               .experts = op->experts,
                                               .rows = weight->rows,
                                               .cols = weight->cols,
                                               .parts = PARTS,
                                               .per_expert_input = op->per_expert_input,
                                               .group = rn_expert_group_of(n_rows, op->used, op->experts),
                                               .order = backend->slots + backend->order_at,
                                               .slots = backend->slots + backend->expert_slots_at,
                                               .split = backend->slots + backend->split_at};

    result = launch_experts(backend, op, &args);
    return result == RN_GPU_OK && op->counted && !backend->allows ? copy_ids(backend, op, n_rows) : result;
}

/* The most that any number of rows up to `most` wants. */
void rn_gpu_expert_bytes(const struct rn_gpu_backend *backend, uint64_t *order, uint64_t *slots, uint64_t *split)
{
    uint32_t most = most_rows(backend);

    *order = *slots = *split = 0;
    for (uint32_t i = 0; i < backend->plan->n_ops; i++) {
        const struct rn_op *op = &backend->plan->ops[i];
        uint32_t n = most * op->used, group = rn_expert_group_of(most, op->used, op->experts);
        uint64_t bytes;

        if (op->kind != RN_OP_EXPERT_MATMUL || group == 1)
            continue;
        *order = rn_expert_order_bytes(n) > *order ? rn_expert_order_bytes(n) : *order;
        bytes = rn_expert_slots_bytes(n, op->experts, RN_EXPERT_FEW); /* fewer rows may have smaller groups */
        *slots = bytes > *slots ? bytes : *slots;
        bytes = rn_expert_split_bytes(op->per_expert_input ? n : most, backend->plan->weights[op->weight].cols);
        *split = group == RN_EXPERT_MANY && bytes > *split ? bytes : *split;
    }
}

uint64_t rn_gpu_ids_bytes(const struct rn_gpu_backend *backend)
{
    return backend->limits.expert_use == NULL ? 0 : ids_before(backend, NULL) * sizeof(int32_t);
}

void rn_gpu_ids_count(struct rn_gpu_backend *backend, const struct rn_gpu_shape *shape)
{
    const int32_t *ids = backend->host_ids;

    for (uint32_t i = 0; i < backend->plan->n_ops && ids != NULL; i++) {
        const struct rn_op *op = &backend->plan->ops[i];
        uint32_t n;

        if (op->kind != RN_OP_EXPERT_MATMUL || !op->counted)
            continue;
        n = rn_gpu_rows(backend, op->out, shape) * op->used;
        rn_gpu_experts_count(backend, op, ids, n);
        for (uint32_t k = 0; k < n; k++)
            if (ids[k] >= 0 && (uint32_t)ids[k] < op->experts)
                rn_expert_use_add(backend->limits.expert_use, (uint32_t)op->layer, (uint32_t)ids[k], 1);
        ids += (uint64_t)backend->limits.max_rows * op->used; /* as ids_before has it */
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
