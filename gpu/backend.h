/* The CUDA device's inside: a device has the driver, the context and the kernels; a backend on it has the memory of one
 * model and the launches of its steps.
 *
 *   submit ─▶ copy in (tokens, tables) ─▶ launches, or a graph of them ─▶ copy out (draws) ─▶ callback ─▶ on_done
 *                                one stream, in this order; nothing waits for it
 *
 * Two steps may be in flight. Tokens that one draws stay on the device for the next one, whose first launch puts them
 * into its rows. The stream does not go on while a callback runs, so that what comes back has one place, and only what
 * a step brings has two.
 *
 * All memory is taken by prepare, in pieces: weights, blocks, slots, and what a step brings; host memory for both
 * ends of a step is pinned. The arguments of a launch depend on the numbers of rows alone, since what a step brings
 * lies where the step before had it: so a step of the same numbers is the same graph.
 *
 * A callback of the stream ends a step, not a host function: of a lost context the driver calls the former, with its
 * error, and never the latter. Then the step is back as DEVICE, and so is each one after it; the engine lives. */
#ifndef RN_GPU_BACKEND_H
#define RN_GPU_BACKEND_H

#include <stdatomic.h>

#include "gpu/kernels/kernels.h"
#include "gpu/module.h"
#include "model/backend.h"

struct rn_gpu_device {
    struct rn_device base; /* first */
    struct rn_heap *heap;
    struct rn_gpu_module module;
    struct rn_gpu_driver *driver; /* the module's */
    uint32_t index;
    int ordinal; /* the driver's name of it */
    struct rn_gpu_context *context;
    struct rn_gpu_image *image;
    struct rn_gpu_function *kernels[RN_KERNEL_COUNT];
    uint32_t shared_bytes[RN_KERNEL_COUNT]; /* dynamic shared memory that a block may have */
    struct rn_device_caps caps;
    char name[96];
    int major, minor, units;
    bool early; /* a launch may begin before the one before it has ended, and wait inside (wrap.cuh: grid_wait) */
    _Atomic uint32_t n_backends; /* that are not freed. Released by who frees one to rn_device_kind.is_lost, which
                                    acquires it. Weaker: a device is closed under its last backend */
    uint32_t shared_most;        /* dynamic shared memory that a block can be allowed */
    const struct rn_log *log;    /* what the device goes on without; may be NULL */
    char layout[32]; /* of blocks, and who computed them: tensor cores of other capabilities may round otherwise */
};

/* On a module that is open, which the device closes; NULL, and the module is as it was. For the kind, and for tests
 * with drivers of their own. */
struct rn_device *rn_gpu_device_open(struct rn_heap *heap, const struct rn_gpu_module *module, uint32_t index,
                                     runnel_error *error);

/* It is closed, and its module stays open. */
void rn_gpu_device_stop(struct rn_device *device);

/* Makes the device's context the calling thread's, and the one before it that again: for threads of the host, which may
 * have a context of their own. *before: for leave, which is called also where enter has failed. */
int rn_gpu_enter(const struct rn_gpu_device *device, struct rn_gpu_context **before);
void rn_gpu_leave(const struct rn_gpu_device *device, struct rn_gpu_context *before);

/* The driver has a device of this index. */
runnel_status rn_gpu_device_find(const struct rn_gpu_module *module, uint32_t index, runnel_error *error);

enum {
    RN_GPU_GRAPHS = 32,      /* that a backend keeps */
    RN_GPU_GRAPH_ROWS = 64,  /* steps of more rows are launched one by one: there the launches are hidden */
    RN_GPU_SPLIT_ROWS = 64,  /* attention of steps of more rows is not split over positions: tiles fill the device */
    RN_GPU_CHOOSE_ROWS = 64, /* rows whose scores of all positions have room at once */
    RN_GPU_RING = 2,         /* steps in flight: the device finds the next one when it has ended one */
    RN_GPU_TYPES = 64,       /* of weights: ids are below it */
    RN_GPU_ALIGNMENT = 256
};

/* So many bytes, to a multiple of RN_GPU_ALIGNMENT: what lies behind them is aligned, too. */
static inline uint64_t rn_gpu_aligned(uint64_t bytes)
{
    return (bytes + RN_GPU_ALIGNMENT - 1) / RN_GPU_ALIGNMENT * RN_GPU_ALIGNMENT;
}

/* What decides about a step's launches, but for what a step brings. */
struct rn_gpu_shape {
    uint32_t n_rows, n_outs, n_seqs;
    uint32_t longest;                /* positions of the longest sequence, rounded up as attention wants it */
    uint32_t n_selected, n_features; /* rows behind SELECT, and rows whose features are wanted */
    uint32_t has_tree;               /* rn_step.parents: places are not positions */
    uint32_t draws;                  /* 1: something is drawn from its logits */
    uint32_t is_adapted;             /* 1: a row has an adapter */
};

struct rn_gpu_graph_entry {
    struct rn_gpu_shape shape;
    struct rn_gpu_exec *exec; /* NULL: the shape was seen once */
    uint64_t used;            /* when last; 0: an empty entry */
};

struct rn_gpu_backend;
struct rn_gpu_experts; /* experts.h */

/* Ops of the plan that are launched together: ops.h. */
struct rn_gpu_item {
    uint32_t first, n;
    int (*run)(struct rn_gpu_backend *backend, const struct rn_op *op, uint32_t n, const struct rn_gpu_shape *shape);
};

/* A step in flight. */
struct rn_gpu_flight {
    struct rn_step *step;
    struct rn_gpu_shape shape;
    int failed; /* what a call for it has returned */
};

enum { RN_GPU_ARGUMENT_BYTES = 1024 }; /* of a kernel, at most */

/* Where the arrays that a step brings lie in the inputs, in bytes: see inputs.c. */
struct rn_gpu_inputs {
    uint64_t tokens, positions, seqs, wanted, drawn, asks, tables_at, windows_at, tables;
    uint64_t states, firsts, counts, state_copies;    /* of plans with states */
    uint64_t lasts, features_rows, features_selected; /* of plans that have a use for them */
    uint64_t places, parents, moves, parts;           /* of a backend that has trees */
    uint64_t adapters;                                /* of plans that have some: of each row */
    uint64_t brought;                                 /* rn_step.inputs */
    uint64_t changes;                                 /* of logits: rn_draw_change [max_changes] */
    uint64_t results;  /* what the last step has drawn, [max_outs] of rn_draw_result: stays on the device */
    uint64_t saved;    /* logits that were changed, f32 [max_changes + max_outs]: likewise */
    uint64_t bytes;    /* without those */
    uint32_t n_tables; /* words of `tables`, at most */
};

struct rn_gpu_backend {
    struct rn_backend base; /* first */
    struct rn_heap *heap;
    struct rn_gpu_device *device;
    const struct rn_plan *plan; /* NULL before prepare */
    struct rn_backend_limits limits;
    struct rn_gpu_stream *stream;                 /* of steps */
    struct rn_gpu_stream *copies_in, *copies_out; /* of block copies */
    struct rn_gpu_event *copied_in;               /* recorded in copies_in, waited for in copies_out */
    uint32_t shared_wanted;                       /* of a launch: more than a block has; 0: none wants that */
    uint32_t grid_wanted;                         /* of the last launch that was allowed, or was not: blocks */

    /* Pieces of the device's memory; 0: not taken. */
    uint64_t weights, blocks, windows, slots, inputs, features, states;

    /* Where in the weights, in the slots and in a block; RN_GPU_NOWHERE: not there in this form. */
    uint64_t *weight_at;   /* [plan->n_weights]: as a matrix or table in the kernels' order */
    uint64_t *vector_at;   /* [plan->n_weights]: as f32 */
    uint64_t *matrices_at; /* [plan->n_weights]: of experts, the table of where each one's matrix is */
    uint64_t *rope_at;     /* [plan->n_ropes]: inv_freq, double */
    uint64_t *slopes_at;   /* [plan->n_ops]: of an ATTENTION with ALiBi */
    uint64_t *slot_at;     /* [plan->n_slots] */
    uint64_t workspace_at; /* behind the slots: see rn_gpu_workspace_bytes */
    uint64_t rotated_at;   /* behind that: rotated queries (rn_gpu_rotated_bytes) */
    uint64_t split_at,
        partial_at; /* behind that: what matmul_many's launches leave each other (rn_gpu_products_bytes) */
    uint64_t order_at, expert_slots_at; /* behind that: likewise of expert_many's, which has split_at, too */
    uint64_t *angles_at;                /* [plan->n_ropes]: what rotations multiply by, behind the workspace */
    uint64_t *layer_at;                 /* [plan->n_kv_layers]: a layer's keys, ... */
    uint64_t *layer_values_at;          /* ... and its values */
    uint64_t weights_bytes;             /* of the weights */
    uint64_t block_bytes, window_bytes; /* of a block, of one of layers with windows; 0: there are none */
    uint64_t state_stride;              /* bytes from one recurrent state to the next; 0: the plan has none */

    uint32_t stream_blocks[RN_GPU_TYPES]; /* of each type of weights: of matmul_stream; 0: other kernels are faster */
    struct rn_gpu_experts *experts;       /* NULL: they lie with their layers */
    bool host_wanted;                     /* by experts: there was not enough of the host's memory */
    struct rn_gpu_item *items;            /* [n_items], in order */
    uint32_t n_items;

    struct rn_gpu_inputs in;
    unsigned char *host_in;              /* pinned; what a step brings, for each that is in flight */
    float *host_logits;                  /* pinned; [max_outs, n_vocab]; NULL: the plan has none */
    float *host_features;                /* pinned; [max_rows, features_width]; NULL: the plan has none */
    struct rn_draw_result *host_results; /* pinned; [max_outs]; NULL: steps do not draw */
    unsigned char *host_masks;           /* pinned; [max_outs] of mask_stride bytes; NULL: steps draw without */
    uint64_t mask_stride;
    int32_t *host_ids; /* pinned; of each counted op (rn_op.counted), in order, [max_rows, used]; NULL: none counts */

    struct rn_gpu_flight flights[RN_GPU_RING]; /* steps in flight, each at its number modulo their count */
    uint64_t n_submitted;                      /* the submitter's */
    _Atomic uint64_t n_ended; /* of the one who ends a step: its slot is free, and on_done is next. Released to submit,
                                 which acquires it. Weaker: a slot is written while it is read */
    _Atomic uint64_t n_left;  /* likewise, and on_done is back: nothing of the backend is touched behind it. Released to
                                 rn_gpu_steps_wait, which acquires it. Weaker: a backend is freed under a callback */
    _Atomic int step_failure, copy_failure; /* the first ones that callbacks have brought, which may not ask the driver
                                               for its words. Relaxed: they are numbers, and nothing hangs on when they
                                               are seen */
    _Atomic bool is_told;   /* the log has had the words of a failure. Exchanged: whoever was first tells. Relaxed:
                                 nothing else is told by it */
    struct rn_drawn *drawn; /* [max_outs]; of the last step that has ended; the one's who ends a step */
    uint32_t n_drawn;
    bool allows;          /* launches are not launched: what shared memory they want is allowed. While prepare runs */
    bool has_graphs;      /* steps may be graphs; false for good where one could not be made */
    bool graphs_told;     /* the log has had why there was none */
    uint32_t graphs_rest; /* steps that are launched op by op before one is made a graph again */
    uint64_t n_steps;
    struct rn_gpu_graph_entry graphs[RN_GPU_GRAPHS];
};

#endif
