/* Ops over parts of rows, and the products of heads: see ops.h. */
#include <assert.h>
#include <string.h>

#include "gpu/ops.h"

/* Sums of products are taken with activations of two bfloat16, as in ops_products.c. */
enum { HALVES = 2 };

static uint32_t part_kind(enum rn_op_kind kind)
{
    return kind == RN_OP_SPLIT           ? RN_PART_SPLIT
           : kind == RN_OP_REPEAT        ? RN_PART_REPEAT
           : kind == RN_OP_MIX           ? RN_PART_MIX
           : kind == RN_OP_SPREAD        ? RN_PART_SPREAD
           : kind == RN_OP_LERP          ? RN_PART_LERP
           : kind == RN_OP_TIMES_WEIGHT  ? RN_PART_TIMES_WEIGHT
           : kind == RN_OP_ADD_WEIGHT    ? RN_PART_ADD_WEIGHT
           : kind == RN_OP_OVER_WEIGHT   ? RN_PART_OVER_WEIGHT
           : kind == RN_OP_EXPERT_FACTOR ? RN_PART_EXPERT_FACTOR
           : kind == RN_OP_TEMPER        ? RN_PART_TEMPER
           : kind == RN_OP_TOKEN         ? RN_PART_TOKEN
           : kind == RN_OP_SIGNED_ROOT   ? RN_PART_SIGNED_ROOT
           : kind == RN_OP_BAR           ? RN_PART_BAR
                                         : RN_PART_CONCAT; /* INPUT and ADAPTER, too: one part and nothing behind it */
}

/* What the op reads beside its slots. */
static rn_address source_a(const struct rn_gpu_backend *backend, const struct rn_op *op)
{
    return op->kind == RN_OP_INPUT     ? rn_gpu_input(backend, backend->in.brought)
           : op->kind == RN_OP_ADAPTER ? rn_gpu_input(backend, backend->in.adapters)
                                       : rn_gpu_slot(backend, op->a);
}

static rn_address source_b(const struct rn_gpu_backend *backend, const struct rn_op *op)
{
    return op->kind == RN_OP_TEMPER  ? rn_gpu_input(backend, backend->in.positions)
           : op->kind == RN_OP_TOKEN ? rn_gpu_input(backend, backend->in.tokens)
                                     : rn_gpu_slot(backend, op->b);
}

int rn_gpu_run_part(struct rn_gpu_backend *backend, const struct rn_op *op, const struct rn_gpu_shape *shape)
{
    uint32_t width = rn_gpu_width(backend, op->out);
    const struct rn_part_args args = {
        .a = source_a(backend, op),
        .b = source_b(backend, op),
        .weight = rn_gpu_vector(backend, op->weight),
        .out = rn_gpu_slot(backend, op->out),
        .kind = part_kind(op->kind),
        .n_rows = rn_gpu_rows(backend, op->out, shape),
        .width = width,
        .a_width = op->kind == RN_OP_INPUT || op->kind == RN_OP_ADAPTER ? width : rn_gpu_width(backend, op->a),
        .b_width = rn_gpu_width(backend, op->b),
        .weight_n = op->weight < 0 ? 0 : backend->plan->weights[op->weight].cols,
        .parts = op->heads == 0 ? 1 : op->heads,
        .first = op->group,
        .used = op->used,
        .span = op->span,
        .ahead = op->ahead,
        .scale = op->kind == RN_OP_SIGNED_ROOT ? (float)op->eps : op->scale};

    return rn_gpu_launch(backend, RN_KERNEL_part, &args);
}

int rn_gpu_run_grams(struct rn_gpu_backend *backend, const struct rn_op *op, const struct rn_gpu_shape *shape)
{
    const struct rn_grams *grams = &backend->plan->grams;
    struct rn_grams_args args = {.a = rn_gpu_slot(backend, op->a),
                                 .out = rn_gpu_slot(backend, op->out),
                                 .n_rows = rn_gpu_rows(backend, op->out, shape),
                                 .most = grams->most,
                                 .heads = grams->heads,
                                 .end = grams->end};

    static_assert(sizeof args.factors == sizeof grams->factors && sizeof args.sizes == sizeof grams->sizes,
                  "the plan's");
    memcpy(args.factors, grams->factors, sizeof args.factors);
    memcpy(args.sizes, grams->sizes, sizeof args.sizes);
    memcpy(args.offsets, grams->offsets, sizeof args.offsets);
    return rn_gpu_launch(backend, RN_KERNEL_grams, &args);
}

int rn_gpu_run_scatter(struct rn_gpu_backend *backend, const struct rn_op *op, const struct rn_gpu_shape *shape)
{
    const struct rn_scatter_args args = {.a = rn_gpu_slot(backend, op->a),
                                         .to = rn_gpu_vector(backend, op->weight),
                                         .out = rn_gpu_slot(backend, op->out),
                                         .n_rows = rn_gpu_rows(backend, op->out, shape),
                                         .a_width = rn_gpu_width(backend, op->a),
                                         .width = rn_gpu_width(backend, op->out)};

    return rn_gpu_launch(backend, RN_KERNEL_scatter, &args);
}

int rn_gpu_run_hyper(struct rn_gpu_backend *backend, const struct rn_op *op, const struct rn_gpu_shape *shape)
{
    const struct rn_hyper_args args = {.a = rn_gpu_slot(backend, op->a),
                                       .base = rn_gpu_vector(backend, op->weight),
                                       .out = rn_gpu_slot(backend, op->out),
                                       .n_rows = rn_gpu_rows(backend, op->out, shape),
                                       .n = op->heads,
                                       .turns = op->turns,
                                       .factors = {op->factors[0], op->factors[1], op->factors[2]},
                                       .eps = (float)op->eps};

    return rn_gpu_launch(backend, RN_KERNEL_hyper, &args);
}

int rn_gpu_run_part_sum(struct rn_gpu_backend *backend, const struct rn_op *op, const struct rn_gpu_shape *shape)
{
    const struct rn_part_sum_args args = {.a = rn_gpu_slot(backend, op->a),
                                          .out = rn_gpu_slot(backend, op->out),
                                          .n_rows = rn_gpu_rows(backend, op->out, shape),
                                          .width = rn_gpu_width(backend, op->a),
                                          .parts = op->heads};

    return rn_gpu_launch(backend, RN_KERNEL_part_sum, &args);
}

int rn_gpu_run_tail(struct rn_gpu_backend *backend, const struct rn_op *op, const struct rn_gpu_shape *shape)
{
    const struct rn_tail_args args = {.a = rn_gpu_slot(backend, op->a),
                                      .out = rn_gpu_slot(backend, op->out),
                                      .n_rows = rn_gpu_rows(backend, op->out, shape),
                                      .width = rn_gpu_width(backend, op->out),
                                      .scale = op->scale};

    return rn_gpu_launch(backend, RN_KERNEL_tail, &args);
}

int rn_gpu_run_resize(struct rn_gpu_backend *backend, const struct rn_op *op, const struct rn_gpu_shape *shape)
{
    const struct rn_resize_args args = {.a = rn_gpu_slot(backend, op->a),
                                        .b = rn_gpu_slot(backend, op->b),
                                        .out = rn_gpu_slot(backend, op->out),
                                        .n_rows = rn_gpu_rows(backend, op->out, shape),
                                        .width = rn_gpu_width(backend, op->out),
                                        .group = op->group,
                                        .b_width = rn_gpu_width(backend, op->b)};

    return rn_gpu_launch(backend, RN_KERNEL_resize, &args);
}

int rn_gpu_run_head(struct rn_gpu_backend *backend, const struct rn_op *op, const struct rn_gpu_shape *shape)
{
    const struct rn_weight *weight = &backend->plan->weights[op->weight];
    struct rn_typed_kernels kernels;
    const struct rn_head_args args = {.weight = rn_gpu_matrix(backend, op->weight),
                                      .a = rn_gpu_slot(backend, op->a),
                                      .out = rn_gpu_slot(backend, op->out),
                                      .n_rows = rn_gpu_rows(backend, op->out, shape),
                                      .heads = op->heads,
                                      .rows = weight->rows,
                                      .cols = weight->cols,
                                      .first = op->group,
                                      .dim = op->k_dim,
                                      .parts = HALVES};

    RN_CHECK(rn_kernels_of_type(weight->type_id, &kernels)); /* prepare has looked */
    return rn_gpu_launch(backend, op->kind == RN_OP_HEAD_SUM ? kernels.head_sum : kernels.head_matmul, &args);
}
