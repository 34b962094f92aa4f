/* The contract that a device keeps: what cpu/ and gpu/ implement and actors/ submit to.
 *
 * A backend owns the device memory of one model: prepared weights, the KV blocks and the activation
 * slots. It knows blocks only by number; which sequence has which block is said in each step.
 *
 *   new → prepare(plan, limits) → { submit_async(step) → step->on_done(step) }* → free
 *
 * Law 5: a row's logits depend on the tokens of its sequence up to its position and on nothing else,
 * bit for bit on the CPU: not on the other rows of the step, not on how the sequence was cut into
 * steps, not on which block numbers it has, not on the number of threads. */
#ifndef RN_MODEL_BACKEND_H
#define RN_MODEL_BACKEND_H

#include <stdbool.h>
#include <stdint.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/status.h"
#include "model/chunk.h"
#include "model/device.h"
#include "model/draw.h"
#include "model/plan.h"

struct rn_stop;

/* A file beside the model's, in which a device may keep the weights in its own order, and what it must have been made
 * of. Borrowed while a backend prepares. */
struct rn_weights_place {
    const char *path;
    unsigned char print[16]; /* fingerprint of the model */
    uint64_t model_bytes, modified_ns;
    const struct rn_log *log; /* where it says what became of it */
};

struct rn_backend_limits {
    uint32_t max_rows;       /* rows of one step */
    uint32_t max_seqs;       /* sequences of one step */
    uint32_t max_outs;       /* rows of one step whose logits are wanted */
    uint32_t n_blocks;       /* KV blocks */
    uint32_t block_tokens;   /* positions per block, a power of two */
    uint32_t context_tokens; /* positions are below this */
    runnel_kv_type kv_type;
    uint32_t mean_window; /* chunk-mean (chunk.h): a multiple of RN_CHUNK; 0: off */
    uint32_t window;      /* not 0: layers with windows (rn_plan_window is this) lie in blocks of their own, ... */
    uint32_t n_windows;   /* ... so many. Not with a mean window or trees; steps have no copies, and nothing of such a
                             cache is copied to or from the host's memory */
    uint32_t tree_depth;  /* a row of a tree stands at most so many positions behind its sequence's first row; 0:
                             steps have no trees */
    uint32_t max_changes; /* single logits that the draws of one step change (rn_draw_changes and biases); 0: none */
    bool draws;           /* steps draw: the device has room for their logits, and rn_step.logits may be NULL */
    uint32_t n_states;    /* slots for recurrent states of plans that have one (rn_plan.state_bytes); 0: none */
    runnel_weight_order weight_order;             /* of a device that computes in the host's memory */
    const struct rn_weights_place *weights_place; /* of such a device; NULL: none */
    struct rn_expert_use *expert_use; /* the caller's, for as long as the backend lives: each EXPERT_MATMUL that is
                                         rn_op.counted adds what its rows have chosen (expert_use.h); NULL: none does */
    uint64_t expert_bytes; /* of a device whose kind has expert_room: routed experts lie in the host's memory, and
                              those that are used most in so much of the device's, too. A row's bits do not depend on
                              it. 0: they lie with their layers */
};

/* Rows of one sequence stand together, at ascending consecutive positions; or, with rn_step.parents, as a tree of
 * candidates for the positions from its first row on:
 *
 *     row        r    r+1   r+2   r+3   r+4          r
 *     parent    (-1)   r    r+1    r    r+3         / \
 *     position   p    p+1   p+2   p+1   p+2      r+1   r+3
 *     place      p    p+1   p+2   p+3   p+4       |     |
 *                                                r+2   r+4
 *
 * A row stands behind its parent, an earlier row of its sequence, and sees the positions before p, its ancestors and
 * itself, as if they were all there is. What it stores lies at its place: where the position p + i of its sequence lies
 * in the block table, for the i-th row. Once it is known which rows are true, moves bring them to their positions. */
struct rn_step_row {
    int32_t token;     /* in [0, n_vocab); of a row that is told by rn_step.drawn set by the backend */
    uint32_t position; /* in its sequence */
    uint32_t seq;      /* index of rn_step.seqs */
    int32_t out;       /* index of this row's logits, or -1: not wanted. Ascending without gaps over the step */
};

struct rn_step_seq {
    const uint32_t *blocks; /* block of positions [i * block_tokens, (i+1) * block_tokens); borrowed while in flight */
    uint32_t n_blocks;      /* covers every position of its rows */
    /* With a mean window: blocks of the means of chunks [i * block_tokens, (i+1) * block_tokens), likewise borrowed.
     * They cover every chunk of which its rows compute or see the mean. In `blocks` RN_NO_BLOCK may stand where no row
     * looks. The mean of a chunk is stored by the step that stores its last position. Without: NULL, 0. */
    const uint32_t *means;
    uint32_t n_means;
    /* With limits.window: blocks of layers with windows, as `blocks` are of the others; RN_NO_BLOCK may stand where no
     * row looks (kv_size.h). Without: NULL, 0. */
    const uint32_t *windows;
    uint32_t n_windows;
    uint32_t adapter; /* of its rows, at most rn_plan.n_adapters; 0: none. The same as long as the sequence lives: what
                         is stored of it was computed with it */
};

/* What `from` holds is in `to` before any of the step's rows is computed. A whole block: whoever copies knows how
 * much of it counts, which is what stands before the first row that writes into `to`. Within one step no block is
 * copied to twice, no `from` is a `to`, each `to` is written into, and a row writes into a `from` only behind what
 * counts. */
struct rn_step_copy {
    uint32_t from, to;
};

/* The recurrent state in slot `from` is in slot `to`, too, before any of the step's rows is computed; from RN_NO_STATE:
 * zeros are, which is what a sequence begins with. A state moves by a copy of which the source is not used again.
 * Within one step no slot is copied to twice, and no `from` is a `to`. */
#define RN_NO_STATE UINT32_MAX
struct rn_step_state_copy {
    uint32_t from, to;
};

/* What is stored at the place of position `from` of a sequence is at that of `to`, too, before any of the step's rows
 * is computed, and behind its copies. to < from; in their order, none from where an earlier one of the step went to. */
struct rn_step_move {
    uint32_t seq; /* index of rn_step.seqs */
    uint32_t from, to;
};

/* One forward pass. Owned by the submitter before submit and after on_done, by the backend between.
 *
 * A step may be stopped while it is in flight. The backend looks at `stop` when it likes, or never. A step that it ends
 * early has status CANCELLED, and nothing of it counts: what is stored at the places of its rows, in blocks that are
 * copied to and at places that are moved to is worth nothing, nor are states of its sequences, draws, logits and
 * features. Everything else lies as it lay, also in the blocks that its rows write into. Of a step in flight behind it
 * the same is true for rows that stand behind such places, and rows that wait for its draws have none. */
struct rn_step {
    uint32_t n_rows, n_seqs, n_outs, n_copies, n_features, n_moves;
    struct rn_step_copy *copies; /* [n_copies] */
    uint32_t n_state_copies;
    struct rn_step_state_copy *state_copies; /* [n_state_copies] */
    const uint32_t *states;         /* [n_seqs]: with limits.n_states, the slot of each sequence, none twice. It holds
                                     the state behind the position before the sequence's first row, and then the one
                                     behind its last: who may have to go back keeps a copy. Such steps have no trees */
    struct rn_step_move *moves;     /* [n_moves] */
    const int32_t *parents;         /* [n_rows]: a row, -1 for the first one of a sequence; NULL: each row's is the one
                                     before it, and places are positions */
    struct rn_step_row *rows;       /* [n_rows], n_rows >= 1 */
    struct rn_step_seq *seqs;       /* [n_seqs] */
    float *logits;                  /* [n_outs, n_vocab], written by the backend; NULL: not wanted (limits.draws) */
    struct rn_draw *draws;          /* [n_outs]: what is drawn from them (draw.h); NULL: nothing */
    const struct rn_drawer *drawer; /* with draws; of a device that draws by itself: not looked at */
    const int32_t *drawn;         /* [n_rows]: the row's token is what the step submitted before this one has drawn for
                                     its wanted row of this index; -1: it is the row's own. NULL: all are. Where that
                                     draw has failed, so have those of the row and of what stands behind it. With wanted
                                     rows only together with draws */
    const uint32_t *feature_rows; /* [n_features], ascending: the rows whose features are wanted, logits or not;
                                     NULL: all */
    float *features;              /* [n_features or n_rows, features_width], written by the backend; NULL: not
                                     wanted */
    bool early_features;          /* of features only those before rn_plan.normed_at are wanted, the rest need not be
                                     written: no row is computed further for them. Of plans where that is not 0 */
    const float *inputs;          /* [n_rows, inputs_width]; of plans without INPUT: not looked at */
    struct rn_stop *stop;         /* the submitter's, who sets it once nobody wants the step's results (stop.h); NULL:
                                     it never does */
    runnel_status status;         /* set before on_done: OK; DEVICE; CANCELLED: it was stopped */
    void (*on_done)(struct rn_step *step); /* called once, on a thread of the backend; must not block */
    void *user;                            /* the submitter's */
    struct rn_step *next;                  /* the backend's, while in flight */
};

/* One block, or one recurrent state, between a device and the host's memory. A block to the host: positions from
 * n_positions on come as zeros, so that nothing of another sequence leaves with it; from the host: all of it. */
struct rn_host_copy {
    uint32_t block, n_positions; /* of a state: its slot, and nothing */
    bool to_host;
    void *host;    /* [block_bytes or state_bytes]; within what host_alloc gave, or copying may be slower */
    bool is_state; /* of a plan without states: nothing is copied */
};

/* A list of them. Owned by the caller before copy_async and after on_done, by the backend between. */
struct rn_host_copies {
    uint32_t n; /* >= 1 */
    struct rn_host_copy *items;
    runnel_status status; /* set before on_done: OK; DEVICE: what is in the host's memory, or the blocks, is worth
                             nothing */
    void (*on_done)(struct rn_host_copies *copies); /* called once, on any thread, also before copy_async returns; must
                                                       not block */
    void *user;                                     /* the caller's */
    struct rn_host_copies *next;                    /* the backend's, while under way */
};

/* Fraction in [0, 1]; false cancels. */
typedef bool (*rn_progress_fn)(void *user, float fraction);

struct rn_backend {
    const struct rn_backend_ops *ops;
    const struct rn_device_caps *caps; /* its device's; lives as long as the backend */
};

struct rn_backend_ops {
    const char *name;

    /* Takes the memory that steps need and readies the weights (which stay borrowed from the plan's file).
     * May take long and use threads; called once. UNSUPPORTED: it cannot run this op with a weight of this type, which
     * are named, or a limit is beyond what the device can; NO_MEMORY, CANCELLED. NULL: it runs without a plan. */
    runnel_status (*prepare)(struct rn_backend *backend, const struct rn_plan *plan,
                             const struct rn_backend_limits *limits, rn_progress_fn progress, void *user,
                             runnel_error *error);

    /* Queues a step and returns at once. Steps run in the order of submission, and end in it; at most caps->ring of
     * them are in flight. Any one thread at a time.
     * Before a block is reused for other tokens every step that reads it must be done. */
    void (*submit_async)(struct rn_backend *backend, struct rn_step *step);

    /* Of a device that draws by itself: it can draw with these parameters, which have no further samplers. NULL: with
     * all. Rows with others are asked for their logits. */
    bool (*can_draw)(const struct rn_backend *backend, const runnel_sampling *sampling);

    /* Likewise: where the mask of wanted row `out` of the step that is submitted next is put (draw_mask.h); one step in
     * flight may have masks. NULL, or the answer NULL: it cannot draw with masks, and such rows are asked for their
     * logits, too. */
    struct rn_draw_mask *(*mask_of)(struct rn_backend *backend, uint32_t out);

    /* No step is in flight. */
    void (*free)(struct rn_backend *backend);

    /* Blocks in the host's memory: what sessions are kept in, and colder tiers. One block is block_bytes bytes, the KV
     * of all layers, arranged as `layout` says: two backends with one layout, plan and limits understand each other's
     * bytes, and compute the same ones from the same tokens. The string is the backend's, in ASCII, the same as long
     * as it lives. These and all below after prepare, and all there or all NULL: this backend cannot. */
    size_t (*block_bytes)(const struct rn_backend *backend);
    const char *(*layout)(const struct rn_backend *backend);

    /* Bytes of one recurrent state, likewise; 0: the plan has none. */
    size_t (*state_bytes)(const struct rn_backend *backend);

    /* Of the plan's weights, the bytes that were brought into another order than the file's, once prepared. NULL:
     * none. */
    uint64_t (*tiled_bytes)(const struct rn_backend *backend);

    /* Of those, the bytes that are mapped from the weights' place. NULL: none. */
    uint64_t (*mapped_bytes)(const struct rn_backend *backend);

    /* Copies the blocks of a list, in any order, each to or from memory of its own. Any thread, several lists at a
     * time, also while steps run, as long as no step writes into a block (to the host), or knows it (from it). The
     * submit of the step that wrote it or will read it is ordered by the caller's messages. Where the host's memory is
     * the device's, the calling thread may do it, and on_done is called before this returns. */
    void (*copy_async)(struct rn_backend *backend, struct rn_host_copies *copies);

    /* Memory of the host from which and to which copies are fast. NULL on refusal. free: NULL is allowed. */
    void *(*host_alloc)(struct rn_backend *backend, size_t bytes);
    void (*host_free)(struct rn_backend *backend, void *memory);
};

/* The backend gives blocks out and takes them back. */
static inline bool rn_backend_has_blocks(const struct rn_backend *backend)
{
    return backend->ops->copy_async != NULL;
}

/* Does any row have an adapter? */
static inline bool rn_step_is_adapted(const struct rn_step *step)
{
    for (uint32_t s = 0; s < step->n_seqs; s++)
        if (step->seqs[s].adapter != 0)
            return true;
    return false;
}

/* The first row of the sequence of row r. */
static inline uint32_t rn_step_first(const struct rn_step *step, uint32_t r)
{
    while (r > 0 && step->rows[r - 1].seq == step->rows[r].seq)
        r--;
    return r;
}

/* The position at whose place row r stores. */
static inline uint32_t rn_step_place(const struct rn_step *step, uint32_t r)
{
    uint32_t first = step->parents == NULL ? r : rn_step_first(step, r);

    return step->rows[first].position + (r - first);
}

/* The limits are within what the device can, and what can be done with the plan. UNSUPPORTED names the first that is
 * not. For backends' prepare. */
runnel_status rn_limits_check(const struct rn_backend_limits *limits, const struct rn_plan *plan,
                              const struct rn_device_caps *caps, runnel_error *error);

/* True when a step keeps the contract above (ranges, order, coverage); for debug builds and tests. */
bool rn_step_check(const struct rn_step *step, const struct rn_plan *plan, const struct rn_backend_limits *limits);

#endif
