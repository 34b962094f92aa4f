/* What the table of ops (ops.def) says of each: for the checker of plans and for backends. */
#ifndef RN_MODEL_OP_INFO_H
#define RN_MODEL_OP_INFO_H

#include "model/plan.h"

enum rn_op_work { RN_WORK_BY_ROW, RN_WORK_SHARED };
enum rn_op_memory { RN_MEMORY_NOTHING, RN_MEMORY_KV_WRITE, RN_MEMORY_KV_READ, RN_MEMORY_STATE };
enum rn_op_rows { RN_ROWS_STEP, RN_ROWS_SAME, RN_ROWS_ALL, RN_ROWS_WANTED };
enum rn_op_weight {
    RN_WEIGHT_NONE,
    RN_WEIGHT_TABLE,
    RN_WEIGHT_MATRIX,
    RN_WEIGHT_EXPERTS,
    RN_WEIGHT_NUMBERS,
    RN_WEIGHT_VECTOR,
    RN_WEIGHT_HEADS,
    RN_WEIGHT_HEAD_ROWS
};
enum rn_op_operand {
    RN_OPERAND_NONE,
    RN_OPERAND_F32,
    RN_OPERAND_I32,
    RN_OPERAND_MAYBE_F32, /* may be absent */
    RN_OPERAND_MAYBE_I32,
    RN_OPERAND_OVER_F32 /* an output that may be input a */
};

struct rn_op_info {
    const char *name;
    enum rn_op_work work;
    enum rn_op_memory memory;
    enum rn_op_rows rows;
    enum rn_op_weight weight;
    enum rn_op_operand out, out2, a, b;
};

/* NULL for what is no op. */
const struct rn_op_info *rn_op_info(enum rn_op_kind kind);

/* As in ops.def; "?" for what is no op. */
const char *rn_op_name(enum rn_op_kind kind);

/* What an op touches, as numbers: slot s is s; behind the slots come the layers of the cache, then those of the state.
 * */
enum { RN_MAX_TOUCHED = 4 };
struct rn_op_touched {
    int32_t reads[RN_MAX_TOUCHED], writes[RN_MAX_TOUCHED];
    uint32_t n_reads, n_writes;
};
struct rn_op_touched rn_op_touched(const struct rn_plan *plan, const struct rn_op *op);

#endif
