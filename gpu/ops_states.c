/* Ops with a recurrent state: see ops.h. */
#include "gpu/ops.h"

static struct rn_states_args states_of(const struct rn_gpu_backend *backend, const struct rn_op *op,
                                       const struct rn_gpu_shape *shape)
{
    const struct rn_state_layer *layer = &backend->plan->state_layers[op->layer];

    return (struct rn_states_args){.states = backend->states + layer->at * sizeof(float),
                                   .slots = rn_gpu_input(backend, backend->in.states),
                                   .firsts = rn_gpu_input(backend, backend->in.firsts),
                                   .counts = rn_gpu_input(backend, backend->in.counts),
                                   .stride_bytes = backend->state_stride,
                                   .n = layer->n,
                                   .n_seqs = shape->n_seqs,
                                   .n_rows = shape->n_rows};
}

static struct rn_conv_args conv_of(const struct rn_gpu_backend *backend, const struct rn_op *op,
                                   const struct rn_gpu_shape *shape)
{
    return (struct rn_conv_args){.states = states_of(backend, op, shape),
                                 .a = rn_gpu_slot(backend, op->a),
                                 .out = rn_gpu_slot(backend, op->out),
                                 .seqs = rn_gpu_input(backend, backend->in.seqs),
                                 .width = rn_gpu_width(backend, op->a),
                                 .taps = 2,
                                 .span = 1};
}

int rn_gpu_run_conv(struct rn_gpu_backend *backend, const struct rn_op *op, const struct rn_gpu_shape *shape)
{
    struct rn_conv_args args = conv_of(backend, op, shape);

    args.weight = rn_gpu_vector(backend, op->weight);
    args.bias = rn_gpu_vector(backend, op->bias);
    args.taps = backend->plan->weights[op->weight].cols;
    args.span = op->span > 1 ? op->span : 1;
    args.ahead = op->ahead;
    args.activated = op->activated;
    args.act = op->act;
    return rn_gpu_launch(backend, RN_KERNEL_conv, &args);
}

int rn_gpu_run_shift(struct rn_gpu_backend *backend, const struct rn_op *op, const struct rn_gpu_shape *shape)
{
    struct rn_conv_args args = conv_of(backend, op, shape);

    return rn_gpu_launch(backend, RN_KERNEL_shift, &args);
}

int rn_gpu_run_compress(struct rn_gpu_backend *backend, const struct rn_op *op, const struct rn_gpu_shape *shape)
{
    const struct rn_compress_args args = {.states = states_of(backend, op, shape),
                                          .a = rn_gpu_slot(backend, op->a),
                                          .b = rn_gpu_slot(backend, op->b),
                                          .weight = rn_gpu_vector(backend, op->weight),
                                          .out = rn_gpu_slot(backend, op->out),
                                          .seqs = rn_gpu_input(backend, backend->in.seqs),
                                          .positions = rn_gpu_input(backend, backend->in.positions),
                                          .k_dim = op->k_dim,
                                          .parts = rn_gpu_width(backend, op->a) / op->k_dim,
                                          .per = op->per};

    return rn_gpu_launch(backend, RN_KERNEL_compress, &args);
}

static struct rn_linear_args linear_of(const struct rn_gpu_backend *backend, const struct rn_op *op,
                                       const struct rn_gpu_shape *shape)
{
    return (struct rn_linear_args){.states = states_of(backend, op, shape),
                                   .a = rn_gpu_slot(backend, op->a),
                                   .b = rn_gpu_slot(backend, op->b),
                                   .weight = rn_gpu_vector(backend, op->weight),
                                   .bias = rn_gpu_vector(backend, op->bias),
                                   .out = rn_gpu_slot(backend, op->out),
                                   .a_width = rn_gpu_width(backend, op->a),
                                   .b_width = rn_gpu_width(backend, op->b),
                                   .heads = op->heads,
                                   .kv_heads = op->heads,
                                   .k_dim = op->k_dim,
                                   .v_dim = op->v_dim,
                                   .scale = 1};
}

static enum rn_kernel linear_kernel(uint32_t k_dim)
{
    return k_dim <= 64 ? RN_KERNEL_linear_64 : k_dim <= 128 ? RN_KERNEL_linear_128 : RN_KERNEL_linear_any;
}

int rn_gpu_run_linear(struct rn_gpu_backend *backend, const struct rn_op *op, const struct rn_gpu_shape *shape)
{
    struct rn_linear_args args = linear_of(backend, op, shape);

    if (op->kind == RN_OP_GATED_DELTA) {
        args.kind = RN_LINEAR_DELTA;
        args.kv_heads = op->kv_heads;
        args.group = op->group;
        args.tiled = op->tiled;
        args.scale = op->scale;
    } else if (op->kind == RN_OP_WKV7) {
        args.kind = args.b_width > op->heads * op->k_dim ? RN_LINEAR_WKV7 : RN_LINEAR_GATED;
        args.scale = op->scale;
    } else {
        args.kind = RN_LINEAR_WKV6;
    }
    return rn_gpu_launch(backend, linear_kernel(op->k_dim), &args);
}

/* A row's B and C fit a block's shared memory. */
bool rn_gpu_can_scan(const struct rn_plan *plan, const struct rn_op *op, runnel_kv_type kv_type)
{
    (void)plan;
    (void)kv_type;
    return op->k_dim <= RN_MAX_STATE_DIM;
}

int rn_gpu_run_scan(struct rn_gpu_backend *backend, const struct rn_op *op, const struct rn_gpu_shape *shape)
{
    struct rn_linear_args args = linear_of(backend, op, shape);

    args.kv_heads = op->kv_heads;
    if (backend->plan->weights[op->weight].cols == 1) {
        args.kind = RN_LINEAR_SCAN;
        return rn_gpu_launch(backend, linear_kernel(op->k_dim), &args);
    }
    args.kind = RN_LINEAR_CHANNELS;
    return rn_gpu_launch(backend, op->k_dim <= 16 ? RN_KERNEL_channels_16 : RN_KERNEL_channels_any, &args);
}
