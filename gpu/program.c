/* The plan's ops as launches: which kernel computes an op, and with what arguments. */
#include <string.h>

#include "base/check.h"
#include "gpu/steps.h"
#include "model/expert_use.h"
#include "model/op_info.h"

/* Sums of products are taken with activations of two bfloat16, which have 16 bits: NMSE 1e-9 instead of 1e-5. */
enum { PARTS = 2 };

/* ---- What there are kernels for ---- */

uint32_t rn_gpu_kv_types(void)
{
#define KV_BIT(id, name) | 1u << (id)
    return 0 RN_KERNEL_KV_TYPES(KV_BIT);
#undef KV_BIT
}

/* The kernels look behind each row, at all that there is. */
static bool is_supported_attention(const struct rn_op *op)
{
    enum rn_kernel kernel;

    return !op->bidirectional && op->b < 0 && op->alibi == 0 &&
           rn_attention_kernel(RUNNEL_KV_F16, op->k_dim, op->v_dim, &kernel);
}

static bool is_supported(const struct rn_plan *plan, const struct rn_op *op)
{
    struct rn_typed_kernels kernels;

    switch (op->kind) {
    case RN_OP_EMBED:
    case RN_OP_MATMUL:
        return rn_kernels_of_type(plan->weights[op->weight].type_id, &kernels);
    case RN_OP_EXPERT_MATMUL:
        return rn_kernels_of_type(plan->weights[op->weight].type_id, &kernels);
    case RN_OP_ROUTE:
        return op->groups <= 1 && op->per <= 1;
    case RN_OP_ATTENTION:
        return is_supported_attention(op);
    case RN_OP_EXPERT_SUM:
    case RN_OP_SUM:
    case RN_OP_ROPE:
    case RN_OP_KV_STORE:
    case RN_OP_SELECT:
    case RN_OP_RMS_NORM:
    case RN_OP_LAYER_NORM:
    case RN_OP_ADD:
    case RN_OP_SCALE:
    case RN_OP_SOFTCAP:
    case RN_OP_CLAMP:
    case RN_OP_ACTIVATE:
    case RN_OP_GATE:
    case RN_OP_CUT_GATE:
    case RN_OP_XIELU:
    case RN_OP_TAP: /* its features are not given: RN_CAN_FEATURES */
        return true;
    default:
        return false;
    }
}

runnel_status rn_gpu_plan_check(const struct rn_plan *plan, runnel_error *error)
{
    for (uint32_t i = 0; i < plan->n_ops; i++) {
        const struct rn_op *op = &plan->ops[i];
        const struct rn_weight *weight = op->weight < 0 ? NULL : &plan->weights[op->weight];

        if (is_supported(plan, op))
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

/* ---- Arguments ---- */

static rn_address slot(const struct rn_gpu_backend *backend, int16_t index)
{
    return index < 0 ? 0 : backend->slots + backend->slot_at[index];
}

static rn_address matrix(const struct rn_gpu_backend *backend, int32_t weight)
{
    return backend->weights + backend->weight_at[weight];
}

static rn_address vector(const struct rn_gpu_backend *backend, int32_t weight)
{
    return weight < 0 ? 0 : backend->weights + backend->vector_at[weight];
}

static uint32_t width_of(const struct rn_gpu_backend *backend, int16_t index)
{
    return index < 0 ? 0 : backend->plan->slots[index].width;
}

static uint32_t rows_of(const struct rn_gpu_backend *backend, int16_t index, const struct rn_gpu_shape *shape)
{
    return backend->plan->slots[index].selected ? shape->n_outs : shape->n_rows;
}

static int run_embed(struct rn_gpu_backend *backend, const struct rn_op *op, const struct rn_gpu_shape *shape)
{
    const struct rn_weight *weight = &backend->plan->weights[op->weight];
    struct rn_typed_kernels kernels;
    const struct rn_embed_args args = {.table = matrix(backend, op->weight),
                                       .index = backend->inputs + backend->in.tokens,
                                       .out = slot(backend, op->out),
                                       .n_rows = shape->n_rows,
                                       .table_rows = weight->rows,
                                       .cols = weight->cols,
                                       .scale = op->scale};

    RN_CHECK(rn_kernels_of_type(weight->type_id, &kernels)); /* prepare has looked */
    return rn_gpu_launch(backend, kernels.embed, &args);
}

static int run_norm(struct rn_gpu_backend *backend, const struct rn_op *op, const struct rn_gpu_shape *shape)
{
    uint32_t width = width_of(backend, op->a);
    const struct rn_norm_args args = {.a = slot(backend, op->a),
                                      .weight = vector(backend, op->weight),
                                      .bias = vector(backend, op->bias),
                                      .out = slot(backend, op->out),
                                      .n_rows = rows_of(backend, op->out, shape),
                                      .width = width,
                                      .group = op->group == 0 ? width : op->group,
                                      .weight_rows = op->weight < 0 ? 1 : backend->plan->weights[op->weight].rows,
                                      .eps = (float)op->eps,
                                      .around_mean = op->kind == RN_OP_LAYER_NORM};

    return rn_gpu_launch(backend, RN_KERNEL_norm, &args);
}

static int run_matmul(struct rn_gpu_backend *backend, const struct rn_op *op, const struct rn_gpu_shape *shape)
{
    const struct rn_weight *weight = &backend->plan->weights[op->weight];
    struct rn_typed_kernels kernels;
    const struct rn_matmul_args args = {.weight = matrix(backend, op->weight),
                                        .bias = vector(backend, op->bias),
                                        .a = slot(backend, op->a),
                                        .out = slot(backend, op->out),
                                        .n_rows = rows_of(backend, op->out, shape),
                                        .rows = weight->rows,
                                        .cols = weight->cols,
                                        .parts = PARTS};

    RN_CHECK(rn_kernels_of_type(weight->type_id, &kernels)); /* prepare has looked */
    return rn_gpu_launch(backend, args.n_rows <= RN_FEW_ROWS ? kernels.matmul_few : kernels.matmul_many, &args);
}

static uint32_t each_kind(enum rn_op_kind kind)
{
    return kind == RN_OP_ADD        ? RN_EACH_ADD
           : kind == RN_OP_SCALE    ? RN_EACH_SCALE
           : kind == RN_OP_SOFTCAP  ? RN_EACH_SOFTCAP
           : kind == RN_OP_CLAMP    ? RN_EACH_CLAMP
           : kind == RN_OP_ACTIVATE ? RN_EACH_ACTIVATE
           : kind == RN_OP_GATE     ? RN_EACH_GATE
           : kind == RN_OP_CUT_GATE ? RN_EACH_CUT_GATE
                                    : RN_EACH_XIELU;
}

static int run_each(struct rn_gpu_backend *backend, const struct rn_op *op, const struct rn_gpu_shape *shape)
{
    uint32_t width = width_of(backend, op->out);
    const struct rn_each_args args = {.a = slot(backend, op->a),
                                      .b = slot(backend, op->b),
                                      .bias = vector(backend, op->bias),
                                      .out = slot(backend, op->out),
                                      .n = (uint64_t)rows_of(backend, op->out, shape) * width,
                                      .kind = each_kind(op->kind),
                                      .act = op->act,
                                      .width = width,
                                      .part = width / width_of(backend, op->a),
                                      .scale = op->scale,
                                      .cut = op->cut,
                                      .alpha_n = (float)op->alpha_n,
                                      .alpha_p = (float)op->alpha_p,
                                      .eps = (float)op->eps};

    return rn_gpu_launch(backend, RN_KERNEL_each, &args);
}

static int run_select(struct rn_gpu_backend *backend, const struct rn_op *op, const struct rn_gpu_shape *shape)
{
    uint32_t width = width_of(backend, op->a);
    const struct rn_gather_args args = {.a = slot(backend, op->a),
                                        .index = backend->inputs + backend->in.wanted,
                                        .out = slot(backend, op->out),
                                        .n_rows = shape->n_outs,
                                        .rows = shape->n_rows,
                                        .width = width,
                                        .out_width = width};

    return rn_gpu_launch(backend, RN_KERNEL_gather, &args);
}

static int run_rope(struct rn_gpu_backend *backend, const struct rn_op *op, const struct rn_gpu_shape *shape)
{
    const struct rn_rope *rope = &backend->plan->ropes[op->rope];
    const struct rn_rope_args args = {.a = slot(backend, op->a),
                                      .out = slot(backend, op->out),
                                      .positions = backend->inputs + backend->in.positions,
                                      .inv_freq = backend->weights + backend->rope_at[op->rope],
                                      .n_rows = shape->n_rows,
                                      .heads = op->heads,
                                      .k_dim = op->k_dim,
                                      .dims = rope->dims,
                                      .neox = rope->neox,
                                      .magnitude = rope->magnitude};

    return rn_gpu_launch(backend, RN_KERNEL_rope, &args);
}

/* ---- Experts ---- */

static int run_route(struct rn_gpu_backend *backend, const struct rn_op *op, const struct rn_gpu_shape *shape)
{
    const struct rn_route_args args = {.a = slot(backend, op->a),
                                       .more = vector(backend, op->weight),
                                       .ids = slot(backend, op->out),
                                       .weights = slot(backend, op->out2),
                                       .n_rows = rows_of(backend, op->out, shape),
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
    return driver->copy_out(driver, backend->host_ids + ids_before(backend, op), slot(backend, op->b),
                            (size_t)n_rows * op->used * sizeof(int32_t), backend->stream);
}

static int run_expert_matmul(struct rn_gpu_backend *backend, const struct rn_op *op, const struct rn_gpu_shape *shape)
{
    const struct rn_weight *weight = &backend->plan->weights[op->weight];
    struct rn_typed_kernels kernels;
    int result;
    const struct rn_expert_matmul_args args = {.weight = matrix(backend, op->weight),
                                               .bias = vector(backend, op->bias),
                                               .a = slot(backend, op->a),
                                               .ids = slot(backend, op->b),
                                               .out = slot(backend, op->out),
                                               .n_rows = rows_of(backend, op->out, shape),
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
        for (uint32_t k = 0; k < rows_of(backend, op->out, shape) * op->used; k++)
            if (ids[k] >= 0 && (uint32_t)ids[k] < op->experts)
                rn_expert_use_add(backend->limits.expert_use, (uint32_t)op->layer, (uint32_t)ids[k], 1);
    }
}

static int run_expert_sum(struct rn_gpu_backend *backend, const struct rn_op *op, const struct rn_gpu_shape *shape)
{
    const struct rn_expert_sum_args args = {.a = slot(backend, op->a),
                                            .weights = slot(backend, op->b),
                                            .out = slot(backend, op->out),
                                            .n_rows = rows_of(backend, op->out, shape),
                                            .used = op->used,
                                            .width = width_of(backend, op->out)};

    return rn_gpu_launch(backend, RN_KERNEL_expert_sum, &args);
}

/* ---- The cache ---- */

static struct rn_cache_args cache_of(const struct rn_gpu_backend *backend, int32_t layer,
                                     const struct rn_gpu_shape *shape)
{
    const struct rn_kv_layer *kv = &backend->plan->kv_layers[layer];

    return (struct rn_cache_args){.keys = backend->blocks + backend->layer_at[layer],
                                  .values = backend->blocks + backend->layer_values_at[layer],
                                  .tables = backend->inputs + backend->in.tables,
                                  .table_at = backend->inputs + backend->in.tables_at,
                                  .block_bytes = backend->block_bytes,
                                  .n_tables = backend->in.n_tables,
                                  .n_seqs = shape->n_seqs,
                                  .block_log = (uint32_t)__builtin_ctz(backend->limits.block_tokens),
                                  .kv_heads = kv->kv_heads,
                                  .k_dim = kv->k_width / kv->kv_heads,
                                  .v_dim = kv->v_width / kv->kv_heads,
                                  .type = (uint32_t)backend->limits.kv_type};
}

static int run_kv_store(struct rn_gpu_backend *backend, const struct rn_op *op, const struct rn_gpu_shape *shape)
{
    const struct rn_kv_store_args args = {.cache = cache_of(backend, op->layer, shape),
                                          .k = slot(backend, op->a),
                                          .v = slot(backend, op->b),
                                          .seqs = backend->inputs + backend->in.seqs,
                                          .places = backend->inputs + backend->in.positions, /* there are no trees */
                                          .n_rows = shape->n_rows};

    return rn_gpu_launch(backend, RN_KERNEL_kv_store, &args);
}

/* Few rows are split over positions, and the parts joined; of many each tile looks at all. */
static int run_attention(struct rn_gpu_backend *backend, const struct rn_op *op, const struct rn_gpu_shape *shape)
{
    bool is_split = shape->n_rows <= RN_GPU_SPLIT_ROWS;
    enum rn_kernel kernel;
    struct rn_attention_args args = {.cache = cache_of(backend, op->layer, shape),
                                     .q = slot(backend, op->a),
                                     .out = slot(backend, op->out),
                                     .seqs = backend->inputs + backend->in.seqs,
                                     .positions = backend->inputs + backend->in.positions,
                                     .sinks = vector(backend, op->weight),
                                     .workspace = is_split ? backend->slots + backend->workspace_at : 0,
                                     .n_rows = shape->n_rows,
                                     .heads = op->heads,
                                     .v_dim = op->v_dim,
                                     .window = op->window,
                                     .chunked = op->chunked,
                                     .rows_per_tile = is_split ? 1 : rn_attention_rows(op->heads, op->kv_heads),
                                     .n_chunks = is_split ? shape->longest / RN_ATTENTION_CHUNK : 0,
                                     .scale = op->scale,
                                     .softcap = op->softcap};
    int result;

    RN_CHECK(rn_attention_kernel((uint32_t)backend->limits.kv_type, op->k_dim, op->v_dim, &kernel));
    result = rn_gpu_launch(backend, kernel, &args);
    return result == RN_GPU_OK && is_split ? rn_gpu_launch(backend, RN_KERNEL_attention_join, &args) : result;
}

uint64_t rn_gpu_workspace_bytes(const struct rn_gpu_backend *backend)
{
    uint32_t rows = backend->limits.max_rows < RN_GPU_SPLIT_ROWS ? backend->limits.max_rows : RN_GPU_SPLIT_ROWS;
    uint32_t chunks = rn_gpu_longest(backend, backend->limits.context_tokens) / RN_ATTENTION_CHUNK;
    uint64_t most = 0, bytes;

    for (uint32_t i = 0; i < backend->plan->n_ops; i++) {
        const struct rn_op *op = &backend->plan->ops[i];

        bytes = op->kind == RN_OP_ATTENTION ? rn_attention_bytes(rows, op->heads, op->v_dim, chunks) : 0;
        most = bytes > most ? bytes : most;
    }
    return most;
}

static int run_op(struct rn_gpu_backend *backend, const struct rn_op *op, const struct rn_gpu_shape *shape)
{
    switch (op->kind) {
    case RN_OP_EMBED:
        return run_embed(backend, op, shape);
    case RN_OP_RMS_NORM:
    case RN_OP_LAYER_NORM:
        return run_norm(backend, op, shape);
    case RN_OP_MATMUL:
        return run_matmul(backend, op, shape);
    case RN_OP_SELECT:
        return run_select(backend, op, shape);
    case RN_OP_ROPE:
        return run_rope(backend, op, shape);
    case RN_OP_KV_STORE:
        return run_kv_store(backend, op, shape);
    case RN_OP_ATTENTION:
        return run_attention(backend, op, shape);
    case RN_OP_ROUTE:
        return run_route(backend, op, shape);
    case RN_OP_EXPERT_MATMUL:
        return run_expert_matmul(backend, op, shape);
    case RN_OP_EXPERT_SUM:
    case RN_OP_SUM:
        return run_expert_sum(backend, op, shape);
    case RN_OP_TAP:
        return RN_GPU_OK;
    default:
        return run_each(backend, op, shape);
    }
}

int rn_gpu_program_run(struct rn_gpu_backend *backend, const struct rn_gpu_shape *shape)
{
    int result = RN_GPU_OK;

    for (uint32_t i = 0; i < backend->plan->n_ops && result == RN_GPU_OK; i++)
        result = run_op(backend, &backend->plan->ops[i], shape);
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
