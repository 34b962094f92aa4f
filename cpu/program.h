/* The program of a plan: its ops in phases.
 *
 * All workers run the ops of a phase together, and meet at a barrier between phases. Two kinds of ops:
 *
 *   by rows    worker w has its own rows, always the same ones; a chain of such ops (add, norm,
 *              quantise) needs no barrier inside
 *   shared     the workers take pieces (rows of a weight, heads of an attention) as they get free
 *
 * An op stands in the first phase that its hazards allow: behind every op that writes what it reads or
 * writes, or reads what it writes; in the same phase only where both are by rows over the same rows.
 * So q, k and v of one input come to stand in one phase without anything knowing of q, k and v. */
#ifndef RN_CPU_PROGRAM_H
#define RN_CPU_PROGRAM_H

#include "cpu/kernels.h"

struct rn_instruction {
    const struct rn_op *op;         /* NULL: quantise slot `from` into the input buffer of kind `input`, or lay that */
    const struct rn_kernel *kernel; /* of MATMUL and EXPERT_MATMUL, else NULL */
    enum rn_input input;            /* what the kernel reads, or what quantising makes */
    int16_t from;
    uint32_t cols; /* quantise: a row of the slot is width / cols rows of this many values */
    uint32_t phase;
    bool by_rows;
    bool lays;     /* without an op: lays what was quantised (rn_level.lay); a MATMUL: reads what was laid */
    bool selected; /* over the wanted rows, else over all */
    bool logits;   /* over those with wanted logits alone */
};

struct rn_program {
    struct rn_heap *heap;
    struct rn_instruction *list; /* [n], sorted by phase */
    uint32_t n, n_phases;
    uint32_t *starts;                   /* [n_phases + 1] */
    size_t input_bytes[RN_INPUT_KINDS]; /* of one plan row, largest over the program */
    uint32_t laid_cols;                 /* the most columns that are laid; 0: nothing is */
};

/* NO_MEMORY leaves *program empty. The plan must outlive it. */
runnel_status rn_program_init(struct rn_program *program, struct rn_heap *heap, const struct rn_plan *plan,
                              const struct rn_level *level);
void rn_program_fini(struct rn_program *program);

/* Whether the phase only lays: a step with fewer rows than RN_LAY_FROM goes on without it. */
bool rn_program_only_lays(const struct rn_program *program, uint32_t phase);

/* Whether the phase only works for adapters: a step without any goes on without it. */
bool rn_program_only_adapts(const struct rn_program *program, uint32_t phase);

/* Whether an ATTENTION is in the phase. */
bool rn_program_attends(const struct rn_program *program, uint32_t phase);

/* No two instructions of one phase touch the same thing but in the allowed way. For tests. */
bool rn_program_check(const struct rn_program *program, const struct rn_plan *plan);

#endif
