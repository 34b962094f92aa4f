/* The plan's ops as launches, in order: see backend.h and ops.h. */
#include <string.h>

#include "gpu/ops.h"
#include "model/op_info.h"

static bool always(const struct rn_plan *plan, const struct rn_op *op, runnel_kv_type kv_type)
{
    (void)plan;
    (void)kv_type;
    (void)op;
    return true;
}

/* Of each kind of op; a kind that is not here has no kernel. */
static const struct {
    rn_gpu_can *can;
    rn_gpu_run *run;
} ops[RN_OP_KINDS] = {
    [RN_OP_EMBED] = {rn_gpu_can_product, rn_gpu_run_embed},
    [RN_OP_EMBED_POSITION] = {rn_gpu_can_product, rn_gpu_run_embed},
    [RN_OP_TOKEN] = {always, rn_gpu_run_part},
    [RN_OP_ADAPTER] = {always, rn_gpu_run_part},
    [RN_OP_GRAMS] = {always, rn_gpu_run_grams},
    [RN_OP_LOOK_UP] = {rn_gpu_can_product, rn_gpu_run_look_up},
    [RN_OP_EMBED_IDS] = {rn_gpu_can_product, rn_gpu_run_embed_ids},
    [RN_OP_INPUT] = {always, rn_gpu_run_part},
    [RN_OP_RMS_NORM] = {always, rn_gpu_run_norm},
    [RN_OP_LAYER_NORM] = {always, rn_gpu_run_norm},
    [RN_OP_MATMUL] = {rn_gpu_can_product, rn_gpu_run_matmul},
    [RN_OP_ADD] = {always, rn_gpu_run_each},
    [RN_OP_ADAPT] = {always, rn_gpu_run_each},
    [RN_OP_TAIL] = {always, rn_gpu_run_tail},
    [RN_OP_RESIZE] = {always, rn_gpu_run_resize},
    [RN_OP_MIX] = {always, rn_gpu_run_part},
    [RN_OP_HYPER] = {always, rn_gpu_run_hyper},
    [RN_OP_SCALE] = {always, rn_gpu_run_each},
    [RN_OP_TEMPER] = {always, rn_gpu_run_part},
    [RN_OP_SOFTCAP] = {always, rn_gpu_run_each},
    [RN_OP_CLAMP] = {always, rn_gpu_run_each},
    [RN_OP_BAR] = {always, rn_gpu_run_part},
    [RN_OP_SIGNED_ROOT] = {always, rn_gpu_run_part},
    [RN_OP_ACTIVATE] = {always, rn_gpu_run_each},
    [RN_OP_GATE] = {always, rn_gpu_run_each},
    [RN_OP_CUT_GATE] = {always, rn_gpu_run_each},
    [RN_OP_XIELU] = {always, rn_gpu_run_each},
    [RN_OP_CONCAT] = {always, rn_gpu_run_part},
    [RN_OP_TIMES_WEIGHT] = {always, rn_gpu_run_part},
    [RN_OP_ADD_WEIGHT] = {always, rn_gpu_run_part},
    [RN_OP_OVER_WEIGHT] = {always, rn_gpu_run_part},
    [RN_OP_LERP] = {always, rn_gpu_run_part},
    [RN_OP_SCATTER] = {always, rn_gpu_run_scatter},
    [RN_OP_PART_SUM] = {always, rn_gpu_run_part_sum},
    [RN_OP_REPEAT] = {always, rn_gpu_run_part},
    [RN_OP_SPLIT] = {always, rn_gpu_run_part},
    [RN_OP_HEAD_MATMUL] = {rn_gpu_can_product, rn_gpu_run_head},
    [RN_OP_HEAD_SUM] = {rn_gpu_can_product, rn_gpu_run_head},
    [RN_OP_SELECT] = {always, rn_gpu_run_select},
    [RN_OP_SELECT_IDS] = {always, rn_gpu_run_select},
    [RN_OP_TAP] = {always, rn_gpu_run_tap},
    [RN_OP_ROPE] = {always, rn_gpu_run_rope},
    [RN_OP_KV_STORE] = {always, rn_gpu_run_kv_store},
    [RN_OP_CHOOSE] = {rn_gpu_can_choose, rn_gpu_run_choose},
    [RN_OP_REACH] = {always, rn_gpu_run_reach},
    [RN_OP_ATTENTION] = {rn_gpu_can_attention, rn_gpu_run_attention},
    [RN_OP_CONV] = {always, rn_gpu_run_conv},
    [RN_OP_COMPRESS] = {always, rn_gpu_run_compress},
    [RN_OP_SHIFT] = {always, rn_gpu_run_shift},
    [RN_OP_WKV6] = {always, rn_gpu_run_linear},
    [RN_OP_WKV7] = {always, rn_gpu_run_linear},
    [RN_OP_GATED_DELTA] = {always, rn_gpu_run_linear},
    [RN_OP_SCAN] = {rn_gpu_can_scan, rn_gpu_run_scan},
    [RN_OP_ROUTE] = {always, rn_gpu_run_route},
    [RN_OP_EXPERT_MATMUL] = {rn_gpu_can_product, rn_gpu_run_expert_matmul},
    [RN_OP_EXPERT_SUM] = {always, rn_gpu_run_expert_sum},
    [RN_OP_EXPERT_FACTOR] = {always, rn_gpu_run_part},
    [RN_OP_SUM] = {always, rn_gpu_run_expert_sum},
    [RN_OP_SPREAD] = {always, rn_gpu_run_part},
};

/* Of an op that reads the cache. */
static runnel_status complain_of_heads(const struct rn_plan *plan, const struct rn_op *op, runnel_kv_type kv_type,
                                       runnel_error *error)
{
#define KV_NAME(id, name) [id] = #name,
    static const char *const names[] = {RN_KERNEL_KV_TYPES(KV_NAME)};
#undef KV_NAME
    bool helps = ops[op->kind].can(plan, op, RUNNEL_KV_F16);

    RN_ASSERT((size_t)kv_type < sizeof names / sizeof names[0]); /* the limits have been checked */
    return rn_error_set(error, RUNNEL_UNSUPPORTED,
                        "cuda: there is no kernel for op %s of %s with heads of %u numbers and KV of type %s%s",
                        rn_op_name(op->kind), plan->architecture, op->k_dim, names[kv_type],
                        helps ? "; with kv_type f16 there is one" : "");
}

runnel_status rn_gpu_plan_check(const struct rn_plan *plan, runnel_kv_type kv_type, runnel_error *error)
{
    for (uint32_t i = 0; i < plan->n_ops; i++) {
        const struct rn_op *op = &plan->ops[i];
        const struct rn_weight *weight = op->weight < 0 ? NULL : &plan->weights[op->weight];

        if (ops[op->kind].run != NULL && ops[op->kind].can(plan, op, kv_type))
            continue;
        if (op->kind == RN_OP_ATTENTION || op->kind == RN_OP_CHOOSE)
            return complain_of_heads(plan, op, kv_type, error);
        if (weight == NULL)
            return rn_error_set(error, RUNNEL_UNSUPPORTED, "cuda: there is no kernel for op %s of %s",
                                rn_op_name(op->kind), plan->architecture);
        return rn_error_set(error, RUNNEL_UNSUPPORTED, "cuda: there is no kernel for op %s with tensor %.*s of type %s",
                            rn_op_name(op->kind), (int)weight->tensor->name.n, weight->tensor->name.bytes,
                            weight->type->name);
    }
    return RUNNEL_OK;
}

/* ---- Several ops as one launch ---- */

/* The first that matches is taken. */
static const struct {
    rn_gpu_match *match;
    rn_gpu_run_several *run;
} several[] = {{rn_gpu_match_gate, rn_gpu_run_gate},
               {rn_gpu_match_group, rn_gpu_run_group},
               {rn_gpu_match_add, rn_gpu_run_add},
               {rn_gpu_match_add_norm, rn_gpu_run_add_norm},
               {rn_gpu_match_rope_store, rn_gpu_run_rope_store}};

bool rn_gpu_is_dead(const struct rn_plan *plan, int16_t slot, uint32_t index)
{
    for (uint32_t i = index; i < plan->n_ops; i++) {
        const struct rn_op *op = &plan->ops[i];

        if (op->a == slot || op->b == slot)
            return false;
        if (op->out == slot || op->out2 == slot)
            return true;
    }
    return slot != plan->logits_slot;
}

uint32_t rn_gpu_next(const struct rn_plan *plan, uint32_t index)
{
    for (index++; index < plan->n_ops && plan->ops[index].adapted; index++) {
    }
    return index;
}

int rn_gpu_run_alone(struct rn_gpu_backend *backend, const struct rn_op *op, uint32_t n,
                     const struct rn_gpu_shape *shape)
{
    int result = RN_GPU_OK;

    for (uint32_t i = 0; i < n && result == RN_GPU_OK; i++)
        if (!op[i].adapted || shape->is_adapted)
            result = ops[op[i].kind].run(backend, &op[i], shape);
    return result;
}

static struct rn_gpu_item item_at(const struct rn_plan *plan, uint32_t index)
{
    for (size_t i = 0; i < sizeof several / sizeof several[0]; i++) {
        uint32_t n = several[i].match(plan, index);

        if (n > 0)
            return (struct rn_gpu_item){index, n, several[i].run};
    }
    return (struct rn_gpu_item){index, 1, rn_gpu_run_alone};
}

void rn_gpu_program_place(struct rn_gpu_backend *backend)
{
    const struct rn_plan *plan = backend->plan;

    backend->n_items = 0;
    for (uint32_t i = 0; i < plan->n_ops; i += backend->items[backend->n_items - 1].n)
        backend->items[backend->n_items++] = item_at(plan, i);
}

uint64_t rn_gpu_angles_bytes(const struct rn_gpu_backend *backend, uint32_t rope)
{
    return rn_gpu_aligned((uint64_t)backend->limits.max_rows * backend->plan->ropes[rope].dims * sizeof(float));
}

uint64_t rn_gpu_angles_place(struct rn_gpu_backend *backend, uint64_t at)
{
    const struct rn_plan *plan = backend->plan;

    for (uint32_t i = 0; i < plan->n_ropes; i++)
        backend->angles_at[i] = RN_GPU_NOWHERE;
    for (uint32_t i = 0; i < backend->n_items; i++) {
        uint32_t rope = plan->ops[backend->items[i].first].rope;

        if (backend->items[i].run != rn_gpu_run_rope_store || backend->angles_at[rope] != RN_GPU_NOWHERE)
            continue;
        backend->angles_at[rope] = at;
        at += rn_gpu_angles_bytes(backend, rope);
    }
    return at;
}

int rn_gpu_program_item(struct rn_gpu_backend *backend, uint32_t index, const struct rn_gpu_shape *shape)
{
    const struct rn_gpu_item *item = &backend->items[index];

    return item->run(backend, &backend->plan->ops[item->first], item->n, shape);
}

int rn_gpu_program_run(struct rn_gpu_backend *backend, const struct rn_gpu_shape *shape)
{
    int result = RN_GPU_OK;

    for (uint32_t i = 0; i < backend->plan->n_ropes && result == RN_GPU_OK; i++)
        if (backend->angles_at[i] != RN_GPU_NOWHERE)
            result = rn_gpu_run_angles(backend, i, shape);
    for (uint32_t i = 0; i < backend->n_items && result == RN_GPU_OK; i++)
        result = rn_gpu_program_item(backend, i, shape);
    return result;
}

/* ---- Shared memory ---- */

/* Every launch of a step of this shape, with adapters and without, few rows by matmul_stream and by other kernels: what
 * is faster is measured later. */
static int allow_shape(struct rn_gpu_backend *backend, struct rn_gpu_shape shape)
{
    uint32_t blocks = rn_gpu_stream_blocks(backend), adapted = backend->plan->n_adapters > 0 ? 1 : 0;
    int result = RN_GPU_OK;

    for (uint32_t way = 0; way < (blocks > 0 ? 4 : 2) && result == RN_GPU_OK; way++) {
        for (uint32_t i = 0; i < RN_GPU_TYPES; i++)
            backend->stream_blocks[i] = way < 2 ? 0 : blocks;
        shape.is_adapted = way % 2;
        if (shape.is_adapted <= adapted)
            result = rn_gpu_program_run(backend, &shape);
    }
    memset(backend->stream_blocks, 0, sizeof backend->stream_blocks);
    return result;
}

static uint32_t lesser(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* An op's launches depend on the number of rows of its slots, which are a step's, those behind SELECT or those whose
 * logits are wanted: all three take every number up to RN_FEW_ROWS, at each of which products want another size, and
 * from there on twice as many and the most, between which experts are grouped in every way. */
int rn_gpu_program_allow(struct rn_gpu_backend *backend)
{
    const struct rn_backend_limits *limits = &backend->limits;
    uint32_t most = limits->max_outs > limits->max_rows ? limits->max_outs : limits->max_rows;
    int result = RN_GPU_OK;

    backend->allows = true;
    for (uint32_t n = 1, last = 0; last < most && result == RN_GPU_OK;
         last = n, n = n < RN_FEW_ROWS ? n + 1 : lesser(2 * n, most)) {
        const struct rn_gpu_shape shape = {.n_rows = lesser(n, limits->max_rows),
                                           .n_outs = lesser(n, limits->max_outs),
                                           .n_seqs = 1,
                                           .longest = rn_gpu_longest(backend, limits->context_tokens),
                                           .n_selected = lesser(n, limits->max_rows),
                                           .n_features = lesser(n, limits->max_rows)};

        result = allow_shape(backend, shape);
    }
    if (result == RN_GPU_OK && limits->draws) {
        const struct rn_draw_args draw = rn_gpu_draw_args(backend, 1);

        result = rn_gpu_launch(backend, RN_KERNEL_draw, &draw);
    }
    backend->allows = false;
    return result;
}
