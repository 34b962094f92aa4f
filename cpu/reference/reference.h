/* The reference backend's inside, shared by reference.c (life, queue) and ops.c (the ops). */
#ifndef RN_CPU_REFERENCE_REFERENCE_H
#define RN_CPU_REFERENCE_REFERENCE_H

#include <stdatomic.h>

#include "cpu/cpu.h"
#include "cpu/team.h"
#include "model/backend.h"

enum { RN_REFERENCE_ROWS = 4 }; /* of a weight that are multiplied together */

struct rn_reference {
    struct rn_backend base; /* first: the contract's pointer is this */
    struct rn_device_caps caps;
    struct rn_heap *heap;
    struct rn_team *team;
    const struct rn_plan *plan; /* NULL before prepare */
    struct rn_backend_limits limits;

    /* Memory of prepare. */
    void **slots;           /* [plan->n_slots]: float or int32_t [rows, width] */
    unsigned char **k, **v; /* [plan->n_kv_layers]: [n_blocks * block_tokens, kv_heads] rows
                               of limits.kv_type (model/kv.h) */
    unsigned char *states;  /* [limits.n_states][plan->state_bytes]; NULL: the plan has none */
    uint32_t *selected;     /* [max_rows]: the rows of the step behind SELECT ... */
    uint32_t n_selected;    /* ... and how many */
    struct rn_drawn *drawn; /* [max_outs]: what the last step has drawn ... */
    uint32_t n_drawn;       /* ... and for how many rows */
    float *row;             /* [RN_REFERENCE_ROWS]: decoded rows of a weight, the widest's */
    float *bias;            /* one decoded bias */
    double *scores;         /* [context_tokens, or what more an op looks at] of one head of one row, in the order in
                               which it looks */
    double *sums;           /* [widest head, or row of a HEAD_SUM] */
    double *query;          /* [most numbers of an op's heads]: as the keys are rotated */
    float *head;            /* [widest head]: a key or a value as stored */

    /* The queue. */
    struct rn_job job;               /* one for all steps: it is in the team's hands while pending > 0 */
    _Atomic(struct rn_step *) inbox; /* submitted, newest first */
    struct rn_step *queue;           /* taken out, oldest first; worker 0's */
    struct rn_step *current;         /* the step of the running job; worker 0 writes it, done reads it behind the
                                        team's barrier */
    _Atomic uint32_t pending;        /* submitted and not done */
};

/* ops.c: act(x). */
double rn_reference_activate(enum rn_activation act, double x);

/* What the op keeps of the sequence of row r. */
float *rn_reference_state(const struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step,
                          uint32_t r);

/* attention.c: the ops KV_STORE, ATTENTION, CHOOSE and REACH. */
void rn_reference_kv_store(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step);
void rn_reference_attention(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step);
void rn_reference_choose_positions(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step);
void rn_reference_reach(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step);

/* linear.c: the ops of these names. */
void rn_reference_times_weight(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step);
void rn_reference_add_weight(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step);
void rn_reference_over_weight(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step);
void rn_reference_lerp(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step);
void rn_reference_scatter(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step);
void rn_reference_part_sum(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step);
void rn_reference_repeat(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step);
void rn_reference_shift(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step);
void rn_reference_wkv6(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step);
void rn_reference_wkv7(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step);
void rn_reference_gated_delta(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step);

/* recurrent.c: the ops of these names. */
void rn_reference_conv(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step);
void rn_reference_compress(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step);
void rn_reference_scan(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step);

/* blocks.c: blocks of the cache as a whole. copy: the copies of a step, and move: its moves; the others are
 * the backend's. */
void rn_reference_copy_blocks(struct rn_reference *ref, const struct rn_step *step);
void rn_reference_move_rows(struct rn_reference *ref, const struct rn_step *step);
void rn_reference_copy_states(struct rn_reference *ref, const struct rn_step *step);
size_t rn_reference_state_bytes(const struct rn_backend *backend);
size_t rn_reference_block_bytes(const struct rn_backend *backend);
const char *rn_reference_layout(const struct rn_backend *backend);
void rn_reference_copy_async(struct rn_backend *backend, struct rn_host_copies *copies);
void *rn_reference_host_alloc(struct rn_backend *backend, size_t bytes);
void rn_reference_host_free(struct rn_backend *backend, void *memory);

/* The rows of the step behind SELECT: before its ops. */
void rn_reference_choose(struct rn_reference *ref, const struct rn_step *step);

/* One op of one step: all its rows. */
void rn_reference_op(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step);

/* parts.c: ops over parts of rows. */
void rn_reference_concat(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step);
void rn_reference_split(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step);
void rn_reference_temper(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step);
void rn_reference_expert_sum(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step);
void rn_reference_sum(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step);
void rn_reference_spread(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step);
void rn_reference_expert_factor(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step);
void rn_reference_tail(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step);
void rn_reference_resize(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step);
void rn_reference_mix(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step);
void rn_reference_hyper(struct rn_reference *ref, const struct rn_op *op, const struct rn_step *step);

#endif
