/* Rotation, the cache and attention: see ops.h. */
#include "gpu/ops.h"

uint32_t rn_gpu_kv_types(void)
{
#define KV_BIT(id, name) | 1u << (id)
    return 0 RN_KERNEL_KV_TYPES(KV_BIT);
#undef KV_BIT
}

/* The kernels look behind each row, at all that there is. */
bool rn_gpu_can_attention(const struct rn_plan *plan, const struct rn_op *op)
{
    enum rn_kernel kernel;

    (void)plan;
    return !op->bidirectional && op->b < 0 && op->alibi == 0 &&
           rn_attention_kernel(RUNNEL_KV_F16, op->k_dim, op->v_dim, &kernel);
}

int rn_gpu_run_rope(struct rn_gpu_backend *backend, const struct rn_op *op, const struct rn_gpu_shape *shape)
{
    const struct rn_rope *rope = &backend->plan->ropes[op->rope];
    const struct rn_rope_args args = {.a = rn_gpu_slot(backend, op->a),
                                      .out = rn_gpu_slot(backend, op->out),
                                      .positions = rn_gpu_input(backend, backend->in.positions),
                                      .inv_freq = backend->weights + backend->rope_at[op->rope],
                                      .n_rows = shape->n_rows,
                                      .heads = op->heads,
                                      .k_dim = op->k_dim,
                                      .dims = rope->dims,
                                      .neox = rope->neox,
                                      .magnitude = rope->magnitude};

    return rn_gpu_launch(backend, RN_KERNEL_rope, &args);
}

static struct rn_cache_args cache_of(const struct rn_gpu_backend *backend, int32_t layer,
                                     const struct rn_gpu_shape *shape)
{
    const struct rn_kv_layer *kv = &backend->plan->kv_layers[layer];

    return (struct rn_cache_args){.keys = backend->blocks + backend->layer_at[layer],
                                  .values = backend->blocks + backend->layer_values_at[layer],
                                  .tables = rn_gpu_input(backend, backend->in.tables),
                                  .table_at = rn_gpu_input(backend, backend->in.tables_at),
                                  .block_bytes = backend->block_bytes,
                                  .n_tables = backend->in.n_tables,
                                  .n_seqs = shape->n_seqs,
                                  .block_log = (uint32_t)__builtin_ctz(backend->limits.block_tokens),
                                  .kv_heads = kv->kv_heads,
                                  .k_dim = kv->k_width / kv->kv_heads,
                                  .v_dim = kv->v_width / kv->kv_heads,
                                  .type = (uint32_t)backend->limits.kv_type};
}

int rn_gpu_run_kv_store(struct rn_gpu_backend *backend, const struct rn_op *op, const struct rn_gpu_shape *shape)
{
    const struct rn_kv_store_args args = {.cache = cache_of(backend, op->layer, shape),
                                          .k = rn_gpu_slot(backend, op->a),
                                          .v = rn_gpu_slot(backend, op->b),
                                          .seqs = rn_gpu_input(backend, backend->in.seqs),
                                          .places =
                                              rn_gpu_input(backend, backend->in.positions), /* there are no trees */
                                          .n_rows = shape->n_rows};

    return rn_gpu_launch(backend, RN_KERNEL_kv_store, &args);
}

enum {
    SPLIT_CHUNKS = 5, /* fewer chunks are done sooner by one block than by several and a launch that joins */
    WORKSPACE_MOST_BYTES =
        256 << 20 /* with rows so many and so long that there would be more, blocks are many as it is */
};

/* Launches the kernel that looks at the cache, and where there is a workspace the one that joins. */
static int launch_attention(struct rn_gpu_backend *backend, const struct rn_attention_args *args)
{
    enum rn_kernel kernel;
    int result;

    RN_CHECK(rn_attention_kernel(args->cache.type, args->cache.k_dim, args->v_dim, &kernel));
    result = rn_gpu_launch(backend, kernel, args);
    return result == RN_GPU_OK && args->workspace != 0 ? rn_gpu_launch(backend, RN_KERNEL_attention_join, args)
                                                       : result;
}

/* Of few rows behind many positions each block has a chunk, and the parts are joined; else a block has all chunks. */
int rn_gpu_run_attention(struct rn_gpu_backend *backend, const struct rn_op *op, const struct rn_gpu_shape *shape)
{
    uint32_t n_chunks = shape->longest / RN_ATTENTION_CHUNK;
    uint64_t workspace = backend->slots + backend->workspace_at;
    bool is_split = shape->n_rows <= RN_GPU_SPLIT_ROWS && n_chunks >= SPLIT_CHUNKS &&
                    rn_attention_bytes(shape->n_rows, op->heads, op->v_dim, n_chunks) <= WORKSPACE_MOST_BYTES;
    struct rn_attention_args args = {
        .cache = cache_of(backend, op->layer, shape),
        .q = rn_gpu_slot(backend, op->a),
        .out = rn_gpu_slot(backend, op->out),
        .seqs = rn_gpu_input(backend, backend->in.seqs),
        .positions = rn_gpu_input(backend, backend->in.positions),
        .sinks = rn_gpu_vector(backend, op->weight),
        .workspace = is_split ? workspace : 0,
        .n_rows = shape->n_rows,
        .heads = op->heads,
        .v_dim = op->v_dim,
        .window = op->window,
        .chunked = op->chunked,
        .rows_per_tile = shape->n_rows == shape->n_seqs ? 1 : rn_attention_rows(op->heads, op->kv_heads),
        .n_chunks = n_chunks,
        .scale = op->scale,
        .softcap = op->softcap};
    int result = launch_attention(backend, &args);

    if (!backend->allows || result != RN_GPU_OK)
        return result;
    args.workspace = is_split ? 0 : workspace; /* the other form has another size of shared memory */
    return launch_attention(backend, &args);
}

uint64_t rn_gpu_workspace_bytes(const struct rn_gpu_backend *backend)
{
    uint32_t rows = backend->limits.max_rows < RN_GPU_SPLIT_ROWS ? backend->limits.max_rows : RN_GPU_SPLIT_ROWS;
    uint32_t chunks = rn_gpu_longest(backend, backend->limits.context_tokens) / RN_ATTENTION_CHUNK;
    uint64_t most = 0, bytes;

    for (uint32_t i = 0; i < backend->plan->n_ops; i++) {
        const struct rn_op *op = &backend->plan->ops[i];

        bytes = op->kind == RN_OP_ATTENTION ? rn_attention_bytes(rows, op->heads, op->v_dim, chunks) : 0;
        bytes = bytes < WORKSPACE_MOST_BYTES ? bytes : WORKSPACE_MOST_BYTES;
        most = bytes > most ? bytes : most;
    }
    return most;
}
