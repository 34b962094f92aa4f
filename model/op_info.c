/* The table of ops as data: see op_info.h. */
#include "model/op_info.h"

#include <math.h>

#include "base/check.h"

/* The type of an operand; its width is the checker's (plan_check.c). */
#define TYPE_NONE RN_OPERAND_NONE
#define TYPE_F32(width) RN_OPERAND_F32
#define TYPE_I32(width) RN_OPERAND_I32
#define TYPE_MAYBE_F32(width) RN_OPERAND_MAYBE_F32
#define TYPE_MAYBE_I32(width) RN_OPERAND_MAYBE_I32
#define TYPE_OVER_F32(width) RN_OPERAND_OVER_F32

static const struct rn_op_info infos[] = {
#define RN_OP(NAME, lower, work_, memory_, rows_, weight_, out_, out2_, a_, b_, valid) \
    [RN_OP_##NAME] = {.name = #NAME,                                                   \
                      .work = RN_WORK_##work_,                                         \
                      .memory = RN_MEMORY_##memory_,                                   \
                      .rows = RN_ROWS_##rows_,                                         \
                      .weight = RN_WEIGHT_##weight_,                                   \
                      .out = TYPE_##out_,                                              \
                      .out2 = TYPE_##out2_,                                            \
                      .a = TYPE_##a_,                                                  \
                      .b = TYPE_##b_},
#include "model/ops.def"
};

const struct rn_op_info *rn_op_info(enum rn_op_kind kind)
{
    return (unsigned)kind < RN_OP_KINDS ? &infos[kind] : NULL;
}

const char *rn_op_name(enum rn_op_kind kind)
{
    return (unsigned)kind < RN_OP_KINDS ? infos[kind].name : "?";
}

static void add(int32_t *list, uint32_t *n, int32_t thing)
{
    RN_ASSERT(*n < RN_MAX_TOUCHED);
    if (thing >= 0)
        list[(*n)++] = thing;
}

struct rn_op_touched rn_op_touched(const struct rn_plan *plan, const struct rn_op *op)
{
    enum rn_op_memory memory = infos[op->kind].memory;
    int32_t first = (int32_t)(plan->n_slots + (memory == RN_MEMORY_STATE ? plan->n_kv_layers : 0));
    int32_t layer = memory == RN_MEMORY_NOTHING ? -1 : first + op->layer;
    struct rn_op_touched t = {.n_reads = 0};

    add(t.reads, &t.n_reads, op->a);
    add(t.reads, &t.n_reads, op->b);
    if (memory != RN_MEMORY_KV_WRITE)
        add(t.reads, &t.n_reads, layer);
    if (memory == RN_MEMORY_KV_READ && op->second > 0)
        add(t.reads, &t.n_reads, first + (int32_t)op->second - 1);
    add(t.writes, &t.n_writes, op->out);
    add(t.writes, &t.n_writes, op->out2);
    if (memory != RN_MEMORY_KV_READ)
        add(t.writes, &t.n_writes, layer);
    return t;
}

double rn_op_temperature(const struct rn_op *op, uint32_t position)
{
    return 1 + (double)op->scale * log1p(floor(((double)position + op->ahead) / op->span));
}

double rn_op_slope(const struct rn_op *op, uint32_t head)
{
    uint32_t n = 1;

    if (op->alibi == 0)
        return 0;
    while (n * 2 <= op->heads)
        n *= 2;
    return -(head < n ? exp2(-op->alibi * (head + 1) / n) : exp2(-op->alibi * (2 * (head - n) + 1) / (2.0 * n)));
}
