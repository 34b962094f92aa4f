/* Rotation, the cache and attention: see ops.h. */
#include "gpu/ops.h"
#include "model/kv.h"

uint32_t rn_gpu_kv_types(void)
{
#define KV_BIT(id, name) | 1u << (id)
    return 0 RN_KERNEL_KV_TYPES(KV_BIT);
#undef KV_BIT
}

bool rn_gpu_can_attention(const struct rn_plan *plan, const struct rn_op *op, runnel_kv_type kv_type)
{
    enum rn_kernel kernel;

    (void)plan;
    return rn_attention_kernel((uint32_t)kv_type, op->k_dim, op->v_dim, &kernel);
}

bool rn_gpu_can_choose(const struct rn_plan *plan, const struct rn_op *op, runnel_kv_type kv_type)
{
    enum rn_kernel kernel;

    (void)plan;
    return rn_choose_kernel((uint32_t)kv_type, op->k_dim, op->used, &kernel);
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
                                      .shift = rope->shift,
                                      .neox = rope->neox,
                                      .magnitude = rope->magnitude};

    return rn_gpu_launch(backend, RN_KERNEL_rope, &args);
}

static struct rn_cache_args cache_of(const struct rn_gpu_backend *backend, int32_t layer,
                                     const struct rn_gpu_shape *shape)
{
    const struct rn_kv_layer *kv = &backend->plan->kv_layers[layer];
    bool windowed = rn_gpu_is_windowed(backend, (uint32_t)layer);
    uint64_t blocks = windowed ? backend->windows : backend->blocks;

    return (struct rn_cache_args){.keys = blocks + backend->layer_at[layer],
                                  .values = blocks + backend->layer_values_at[layer],
                                  .tables = rn_gpu_input(backend, backend->in.tables),
                                  .table_at =
                                      rn_gpu_input(backend, windowed ? backend->in.windows_at : backend->in.tables_at),
                                  .block_bytes = windowed ? backend->window_bytes : backend->block_bytes,
                                  .n_tables = backend->in.n_tables,
                                  .n_seqs = shape->n_seqs,
                                  .block_log = (uint32_t)__builtin_ctz(backend->limits.block_tokens),
                                  .kv_heads = kv->kv_heads,
                                  .k_dim = kv->k_width / kv->kv_heads,
                                  .v_dim = kv->v_width / kv->kv_heads,
                                  .type = (uint32_t)backend->limits.kv_type};
}

/* Where rows store. */
static rn_address places_of(const struct rn_gpu_backend *backend, const struct rn_gpu_shape *shape)
{
    return rn_gpu_input(backend, shape->has_tree ? backend->in.places : backend->in.positions);
}

int rn_gpu_run_kv_store(struct rn_gpu_backend *backend, const struct rn_op *op, const struct rn_gpu_shape *shape)
{
    const struct rn_kv_store_args args = {.cache = cache_of(backend, op->layer, shape),
                                          .k = rn_gpu_slot(backend, op->a),
                                          .v = rn_gpu_slot(backend, op->b),
                                          .seqs = rn_gpu_input(backend, backend->in.seqs),
                                          .places = places_of(backend, shape),
                                          .n_rows = shape->n_rows};

    return rn_gpu_launch(
        backend, rn_kv_rotated(backend->limits.kv_type) ? RN_KERNEL_kv_store_rotated : RN_KERNEL_kv_store, &args);
}

uint32_t rn_gpu_match_rope_store(const struct rn_plan *plan, uint32_t index)
{
    const struct rn_op *q = &plan->ops[index], *k = q + 1, *store = q + 2;

    if (q->kind != RN_OP_ROPE || index + 2 >= plan->n_ops || k->kind != RN_OP_ROPE || store->kind != RN_OP_KV_STORE ||
        q->rope != k->rope || q->k_dim != k->k_dim || q->out != q->a || k->out != k->a || q->a == k->a ||
        store->a != k->out || store->b < 0 || store->b == q->a)
        return 0;
    return plan->kv_layers[store->layer].kv_heads == k->heads && rn_gpu_is_dead(plan, k->out, index + 3) ? 3 : 0;
}

int rn_gpu_run_rope_store(struct rn_gpu_backend *backend, const struct rn_op *op, uint32_t n,
                          const struct rn_gpu_shape *shape)
{
    const struct rn_rope *rope = &backend->plan->ropes[op->rope];
    const struct rn_op *store = op + 2;
    const struct rn_rope_store_args args = {.store = {.cache = cache_of(backend, store->layer, shape),
                                                      .k = rn_gpu_slot(backend, store->a),
                                                      .v = rn_gpu_slot(backend, store->b),
                                                      .seqs = rn_gpu_input(backend, backend->in.seqs),
                                                      .places = places_of(backend, shape),
                                                      .n_rows = shape->n_rows},
                                            .q = rn_gpu_slot(backend, op->a),
                                            .angles = backend->slots + backend->angles_at[op->rope],
                                            .heads = op->heads,
                                            .dims = rope->dims,
                                            .neox = rope->neox};

    (void)n;
    return rn_gpu_launch(
        backend, rn_kv_rotated(backend->limits.kv_type) ? RN_KERNEL_rope_store_rotated : RN_KERNEL_rope_store, &args);
}

static_assert((int)RN_SECOND_POSITION == (int)RN_SECOND, "the plan's");

int rn_gpu_run_angles(struct rn_gpu_backend *backend, uint32_t index, const struct rn_gpu_shape *shape)
{
    const struct rn_rope *rope = &backend->plan->ropes[index];
    const struct rn_angles_args args = {.positions = rn_gpu_input(backend, backend->in.positions),
                                        .inv_freq = backend->weights + backend->rope_at[index],
                                        .out = backend->slots + backend->angles_at[index],
                                        .n_rows = shape->n_rows,
                                        .dims = rope->dims,
                                        .shift = rope->shift,
                                        .magnitude = rope->magnitude};

    return rn_gpu_launch(backend, RN_KERNEL_angles, &args);
}

/* Queries of an op in which each row has `heads` of k_dim numbers, as keys are stored; *result: of the launch. */
static rn_address rotated_queries(struct rn_gpu_backend *backend, const struct rn_op *op,
                                  const struct rn_gpu_shape *shape, int *result)
{
    const struct rn_rotate_args args = {.a = rn_gpu_slot(backend, op->a),
                                        .out = backend->slots + backend->rotated_at,
                                        .n_vectors = shape->n_rows * op->heads,
                                        .n = op->k_dim,
                                        .span = rn_kv_rotation(op->k_dim)};

    if (!rn_kv_rotated(backend->limits.kv_type))
        return args.a;
    *result = rn_gpu_launch(backend, RN_KERNEL_rotate, &args);
    return args.out;
}

/* What attention has summed of rotated values, rotated back. Values that are the front of keys are rotated as these. */
static int rotate_back(struct rn_gpu_backend *backend, const struct rn_op *op, const struct rn_gpu_shape *shape)
{
    const struct rn_kv_layer *kv = &backend->plan->kv_layers[op->layer];
    const struct rn_rotate_args args = {.a = rn_gpu_slot(backend, op->out),
                                        .out = rn_gpu_slot(backend, op->out),
                                        .n_vectors = shape->n_rows * op->heads,
                                        .n = op->v_dim,
                                        .span = rn_kv_rotation(kv->v_width == 0 ? op->k_dim : op->v_dim)};

    return rn_kv_rotated(backend->limits.kv_type) ? rn_gpu_launch(backend, RN_KERNEL_rotate, &args) : RN_GPU_OK;
}

/* Of each head, of an op with ALiBi. */
static rn_address slopes_of(const struct rn_gpu_backend *backend, const struct rn_op *op)
{
    return op->alibi == 0 ? 0 : backend->weights + backend->slopes_at[op - backend->plan->ops];
}

enum {
    SPLIT_CHUNKS = 5,   /* fewer chunks are done sooner by one block than by several and a launch that joins */
    MANY_ROWS_EACH = 8, /* of each sequence, on average, from which on tiles of many rows are worth it */
    BLOCKS_EACH = 2,    /* of a multiprocessor, which has shared memory for so many of FORM_WHOLE: it is full */
    WORKSPACE_MOST_BYTES = 256 << 20 /* more chunks are launched in turn; a launch's fill the device by far */
};

/* How the rows of a step are divided over blocks; the bits are the same. */
enum form {
    FORM_WHOLE, /* a block has all chunks of a few columns */
    FORM_SPLIT, /* a block has one chunk, and the parts are joined, of some chunks at a time */
    FORM_MANY,  /* a block has all chunks of many columns */
    FORMS
};

/* Chunks of a launch of FORM_SPLIT: as many as the workspace and a grid hold. */
static uint32_t chunks_at_once(const struct rn_op *op, uint32_t n_rows, uint32_t n_chunks)
{
    uint64_t held = WORKSPACE_MOST_BYTES / rn_attention_bytes(n_rows, op->heads, op->v_dim, 1);
    uint64_t most = held < 2 ? 1 : held - 1 < RN_GRID_MOST ? held - 1 : RN_GRID_MOST; /* and a place for those before */

    return n_chunks < most ? n_chunks : (uint32_t)most;
}

/* Rows of a tile of few columns; single: each row sees its own positions. */
static uint32_t rows_of_tile(const struct rn_attention_args *args, bool single)
{
    return single ? 1 : rn_attention_rows(args->heads, args->cache.kv_heads);
}

/* The device has blocks enough without splitting, each of which has all chunks. */
static bool is_full(const struct rn_gpu_backend *backend, const struct rn_attention_args *args, bool single)
{
    uint32_t rows = rows_of_tile(args, single), group = args->heads / args->cache.kv_heads;
    uint64_t tiles = (args->n_rows + rows - 1) / rows;

    return tiles * args->cache.kv_heads * ((group + RN_ATTENTION_COLUMNS - 1) / RN_ATTENTION_COLUMNS) >=
           (uint64_t)BLOCKS_EACH * (uint32_t)backend->device->units;
}

/* Of few rows behind many positions each block has a chunk; where that takes several launches, only as long as there
 * are not blocks enough without. The blocks of many rows have one sequence after another, so rows of many sequences are
 * better off in small tiles. */
static enum form form_of(const struct rn_gpu_backend *backend, const struct rn_op *op, const struct rn_gpu_shape *shape,
                         const struct rn_attention_args *args, bool has_many, bool single)
{
    if (has_many && shape->n_rows > RN_GPU_SPLIT_ROWS && shape->n_rows / shape->n_seqs >= MANY_ROWS_EACH)
        return FORM_MANY;
    if (shape->n_rows > RN_GPU_SPLIT_ROWS || args->n_chunks < SPLIT_CHUNKS)
        return FORM_WHOLE;
    return chunks_at_once(op, shape->n_rows, args->n_chunks) == args->n_chunks || !is_full(backend, args, single)
               ? FORM_SPLIT
               : FORM_WHOLE;
}

/* Chunks of what a row of so many positions sees; of a REACH that may be more than there are positions. */
static uint32_t chunks_of(const struct rn_op *op, uint32_t longest)
{
    uint64_t most = op->second > 0 ? 2 * (uint64_t)longest : longest;

    most = op->second > 0 && op->used < most ? op->used : most;
    return (uint32_t)((most + RN_ATTENTION_CHUNK - 1) / RN_ATTENTION_CHUNK);
}

/* All chunks, so many at once as the workspace holds: they are joined before the next ones come there. */
static int launch_split(struct rn_gpu_backend *backend, const struct rn_op *op, enum rn_kernel kernel,
                        struct rn_attention_args args)
{
    const uint32_t n_chunks = args.n_chunks, at_once = chunks_at_once(op, args.n_rows, n_chunks);
    int result = RN_GPU_OK;

    args.before = backend->slots + backend->workspace_at;
    args.workspace = args.before + rn_attention_bytes(args.n_rows, op->heads, op->v_dim, 1);
    for (uint32_t n, first = 0; first < n_chunks && result == RN_GPU_OK; first += n) {
        n = n_chunks - first < at_once ? n_chunks - first : at_once;
        args.first_chunk = first;
        args.n_chunks = n;
        result = rn_gpu_launch(backend, kernel, &args);
        if (result == RN_GPU_OK)
            result = rn_gpu_launch(backend, RN_KERNEL_attention_join, &args);
    }
    return result;
}

static int launch_form(struct rn_gpu_backend *backend, const struct rn_op *op, struct rn_attention_args args,
                       enum form form, bool single)
{
    uint32_t kv_heads = args.cache.kv_heads;
    enum rn_kernel kernel;

    args.rows_per_tile = form == FORM_MANY ? rn_attention_many_rows(args.heads, kv_heads) : rows_of_tile(&args, single);
    if (form == FORM_MANY)
        RN_CHECK(rn_attention_many_kernel(args.cache.type, args.cache.k_dim, args.cache.v_dim, &kernel));
    else
        RN_CHECK(rn_attention_kernel(args.cache.type, args.cache.k_dim, args.v_dim, &kernel));
    return form == FORM_SPLIT ? launch_split(backend, op, kernel, args) : rn_gpu_launch(backend, kernel, &args);
}

int rn_gpu_run_attention(struct rn_gpu_backend *backend, const struct rn_op *op, const struct rn_gpu_shape *shape)
{
    struct rn_attention_args args = {.cache = cache_of(backend, op->layer, shape),
                                     .out = rn_gpu_slot(backend, op->out),
                                     .seqs = rn_gpu_input(backend, backend->in.seqs),
                                     .positions = rn_gpu_input(backend, backend->in.positions),
                                     .sinks = rn_gpu_vector(backend, op->weight),
                                     .slopes = slopes_of(backend, op),
                                     .lasts = op->bidirectional ? rn_gpu_input(backend, backend->in.lasts) : 0,
                                     .chosen = rn_gpu_slot(backend, op->b),
                                     .places = shape->has_tree ? places_of(backend, shape) : 0,
                                     .parents = rn_gpu_input(backend, backend->in.parents),
                                     .n_rows = shape->n_rows,
                                     .heads = op->heads,
                                     .v_dim = op->v_dim,
                                     .window = op->window,
                                     .chunked = op->chunked,
                                     .used = op->used,
                                     .n_chunks = shape->longest / RN_ATTENTION_CHUNK,
                                     .scale = op->scale,
                                     .softcap = op->softcap};
    struct rn_cache_args second;
    enum rn_kernel kernel;
    bool has_many = op->b < 0 && !shape->has_tree &&
                    rn_attention_many_kernel(args.cache.type, args.cache.k_dim, args.cache.v_dim, &kernel);
    bool single = shape->n_rows == shape->n_seqs || op->b >= 0 || shape->has_tree; /* each row sees its own */
    int result = RN_GPU_OK;

    if (op->second > 0) {
        second = cache_of(backend, (int32_t)op->second - 1, shape);
        args.second = second.keys;
        args.second_at = second.table_at;
        args.second_bytes = second.block_bytes;
        args.n_chunks = chunks_of(op, shape->longest);
    }
    args.q = rotated_queries(backend, op, shape, &result);
    if (result == RN_GPU_OK && !backend->allows)
        result = launch_form(backend, op, args, form_of(backend, op, shape, &args, has_many, single), single);
    for (int form = 0; backend->allows && form < FORMS && result == RN_GPU_OK; form++)
        if (form != FORM_MANY || has_many)
            result = launch_form(backend, op, args, (enum form)form, single);
    return result == RN_GPU_OK ? rotate_back(backend, op, shape) : result;
}

int rn_gpu_run_reach(struct rn_gpu_backend *backend, const struct rn_op *op, const struct rn_gpu_shape *shape)
{
    const struct rn_reach_args args = {.chosen = rn_gpu_slot(backend, op->a),
                                       .positions = rn_gpu_input(backend, backend->in.positions),
                                       .out = rn_gpu_slot(backend, op->out),
                                       .n_rows = shape->n_rows,
                                       .window = op->window,
                                       .per = op->per,
                                       .used = op->used,
                                       .n_chosen = rn_gpu_width(backend, op->a)};

    return rn_gpu_launch(backend, RN_KERNEL_reach, &args);
}

/* Scores need much memory: so many rows at a time. */
int rn_gpu_run_choose(struct rn_gpu_backend *backend, const struct rn_op *op, const struct rn_gpu_shape *shape)
{
    struct rn_choose_args args = {.cache = cache_of(backend, op->layer, shape),
                                  .seqs = rn_gpu_input(backend, backend->in.seqs),
                                  .positions = rn_gpu_input(backend, backend->in.positions),
                                  .places = shape->has_tree ? places_of(backend, shape) : 0,
                                  .parents = rn_gpu_input(backend, backend->in.parents),
                                  .scores = backend->slots + backend->workspace_at,
                                  .heads = op->heads,
                                  .used = op->used,
                                  .longest = shape->longest,
                                  .per = op->per,
                                  .best = op->best};
    enum rn_kernel kernel;
    int result = RN_GPU_OK;
    rn_address q = rotated_queries(backend, op, shape, &result);

    RN_CHECK(rn_choose_kernel((uint32_t)backend->limits.kv_type, op->k_dim, op->used, &kernel));
    for (uint32_t r = 0; r < shape->n_rows && result == RN_GPU_OK; r += RN_GPU_CHOOSE_ROWS) {
        args.first_row = r;
        args.n_rows = shape->n_rows - r < RN_GPU_CHOOSE_ROWS ? shape->n_rows - r : RN_GPU_CHOOSE_ROWS;
        args.q = q + (uint64_t)r * op->heads * op->k_dim * sizeof(float);
        args.weights = op->b < 0 ? 0 : rn_gpu_slot(backend, op->b) + (uint64_t)r * op->heads * sizeof(float);
        args.out = rn_gpu_slot(backend, op->out) + (uint64_t)r * op->used * sizeof(int32_t);
        result = rn_gpu_launch(backend, kernel, &args);
        if (result == RN_GPU_OK)
            result = rn_gpu_launch(backend, RN_KERNEL_choose_pick, &args);
    }
    return result;
}

/* Of an ATTENTION whose rows see so many chunks: fewer rows than these never want more. */
static uint64_t split_bytes(const struct rn_op *op, uint32_t rows, uint32_t n_chunks)
{
    uint64_t all = rn_attention_bytes(rows, op->heads, op->v_dim, 1 + n_chunks);
    uint64_t least = rn_attention_bytes(rows, op->heads, op->v_dim, 1 + 1);
    uint64_t most = least > WORKSPACE_MOST_BYTES ? least : WORKSPACE_MOST_BYTES;

    return all < most ? all : most;
}

uint64_t rn_gpu_workspace_bytes(const struct rn_gpu_backend *backend)
{
    uint32_t rows = backend->limits.max_rows < RN_GPU_SPLIT_ROWS ? backend->limits.max_rows : RN_GPU_SPLIT_ROWS;
    uint32_t chunks = rn_gpu_longest(backend, backend->limits.context_tokens) / RN_ATTENTION_CHUNK;
    uint32_t chosen_rows =
        backend->limits.max_rows < RN_GPU_CHOOSE_ROWS ? backend->limits.max_rows : RN_GPU_CHOOSE_ROWS;
    uint64_t most = 0, bytes;

    for (uint32_t i = 0; i < backend->plan->n_ops; i++) {
        const struct rn_op *op = &backend->plan->ops[i];

        bytes = op->kind == RN_OP_ATTENTION ? split_bytes(op, rows, chunks_of(op, chunks * RN_ATTENTION_CHUNK)) : 0;
        if (op->kind == RN_OP_CHOOSE)
            bytes = (uint64_t)chosen_rows * chunks * RN_ATTENTION_CHUNK * sizeof(float);
        most = bytes > most ? bytes : most;
    }
    return most;
}

uint64_t rn_gpu_rotated_bytes(const struct rn_gpu_backend *backend)
{
    uint64_t most = 0, bytes;

    for (uint32_t i = 0; i < backend->plan->n_ops && rn_kv_rotated(backend->limits.kv_type); i++) {
        const struct rn_op *op = &backend->plan->ops[i];

        if (op->kind != RN_OP_ATTENTION && op->kind != RN_OP_CHOOSE)
            continue;
        bytes = (uint64_t)backend->limits.max_rows * op->heads * op->k_dim * sizeof(float);
        most = bytes > most ? bytes : most;
    }
    return most;
}
