/* The forward plan: a model's forward pass as data.
 *
 * A plan is a list of ops over slots (activations, [rows, width] each) and weights (tensors of the
 * file). It is built from the architecture name and the metadata by one table row and a small
 * builder per architecture (arch/); a backend runs it. There is no other copy of a forward pass.
 *
 *   tokens → EMBED → x ─┬─ NORM → MATMUL q,k,v → ROPE → KV_STORE → ATTENTION → MATMUL ─┐
 *                       └──────────────────────────── ADD ─────────────────────────────┘ ...
 *   ... → SELECT → NORM ─┬─ MATMUL → logits
 *                        └─ TAP → features
 *
 * Rows: one row is one position of one sequence. Every op but KV_STORE and ATTENTION works on each
 * row by itself, so that a row's result never depends on the rows beside it (law 5). SELECT keeps
 * only the rows whose logits or features are wanted; the ops behind it run on those alone. They stand in this order:
 * those of the logits, by rn_step_row.out, then the others, by rn_step.feature_rows (none of these in a step that
 * wants early features only). So the ops that lead to logits
 * only (rn_slot.logits) run on the first n_outs of them. TAP gives a value out as features of the rows that want them;
 * a plan may have several, side by side. For other rows it costs nothing.
 *
 * Threads: immutable after rn_plan_new; any thread may read. */
#ifndef RN_MODEL_PLAN_H
#define RN_MODEL_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/alloc.h"
#include "base/status.h"
#include "model/gguf.h"
#include "model/quant.h"

/* What each op computes: ops.def. */
enum rn_op_kind {
#define RN_OP(NAME, ...) RN_OP_##NAME,
#include "model/ops.def"
    RN_OP_KINDS
};

enum rn_activation { RN_ACT_SILU, RN_ACT_GELU_TANH, RN_ACT_GELU_ERF, RN_ACT_RELU, RN_ACT_RELU2 };

/* A slot holds one value of `width` elements for each row. */
struct rn_slot {
    uint32_t width;
    bool is_i32;   /* else f32 */
    bool selected; /* one per wanted row, behind SELECT; else one per row */
    bool logits;   /* selected, and only of rows whose logits are wanted: an op reads the first of its input's rows */
};

/* A weight: a matrix [rows, cols] (cols run fastest), or `experts` of them, or a vector (rows = 1). */
struct rn_weight {
    const struct rn_tensor *tensor;
    const struct rn_type *type;
    uint32_t type_id;
    uint32_t cols;    /* inputs */
    uint32_t rows;    /* outputs */
    uint32_t experts; /* 1 but for expert tensors */
    size_t row_bytes;
};

/* Rotation by angle position * inv_freq[i] of the pair i, both halves scaled by `magnitude`. All
 * scalings (linear, YaRN, llama3, longrope, rope_freqs) are folded into the table. */
struct rn_rope {
    uint32_t dims; /* rotated dimensions of each head, even; the rest passes through */
    bool neox;     /* pairs (i, i + dims/2); else (2i, 2i + 1) */
    double magnitude;
    double *inv_freq; /* [dims / 2] */
};

struct rn_op {
    enum rn_op_kind kind;
    int16_t out, out2, a, b; /* slots; -1: none */
    int32_t weight, bias;    /* weights; -1: none */
    int32_t layer;           /* cache layer of KV_STORE and ATTENTION; else the block it belongs to, -1: none */
    float scale;
    double eps;
    enum rn_activation act;
    uint32_t group;           /* RMS_NORM; TAP: where in the features; SPLIT: where in each part */
    uint32_t rope;            /* index of rn_plan.ropes */
    uint32_t heads, kv_heads; /* ATTENTION, ROPE (heads of a), SPLIT (parts of a) */
    uint32_t k_dim, v_dim;    /* per head: ATTENTION; ROPE: k_dim = head_dim; SPLIT: k_dim values of each part */
    uint32_t window;          /* ATTENTION: the last so many positions, itself included; 0: all */
    bool bidirectional;       /* ATTENTION: positions behind the row, too */
    float softcap;            /* ATTENTION: scores = softcap * tanh(scores / softcap); 0: off */
    uint32_t experts, used;   /* ROUTE, EXPERT_* */
    bool sigmoid;             /* ROUTE: sigmoid instead of softmax over all experts */
    bool normalise;           /* ROUTE: weights of the chosen divided by their sum */
    bool per_expert_input;    /* EXPERT_MATMUL */
};

struct rn_kv_layer {
    uint32_t k_width, v_width; /* values per position: kv_heads * head_dim */
    uint32_t kv_heads;
};

struct rn_plan {
    struct rn_heap *heap;
    const struct rn_gguf *gguf; /* borrowed: must outlive the plan, as must a head's or a target's (head.h) */
    const char *architecture;   /* static string of the table row */
    uint32_t n_vocab, embedding, n_layers;
    uint32_t trained_tokens; /* context the model was trained for */
    uint32_t context_tokens; /* longest position + 1 that will be run */
    uint32_t n_ops, n_slots, n_weights, n_ropes, n_kv_layers;
    struct rn_op *ops;
    struct rn_slot *slots;
    struct rn_weight *weights;
    struct rn_rope *ropes;
    struct rn_kv_layer *kv_layers;
    int16_t logits_slot;     /* [n_vocab], selected, logits */
    uint32_t features_width; /* of a row: what the TAPs give, side by side: that of chosen blocks, and of the
                                final norm */
    uint32_t normed_at;      /* where the latter's begin; 0 where they are all there is, or are not */
    bool taps_selected;      /* there is a TAP behind SELECT */
    bool bidirectional;      /* attention sees what is behind a row: the rows of a sequence come in one step, all of
                                them, from position 0 on */
    uint32_t inputs_width;   /* floats that a step brings for each row beside its token; 0: none */
    uint32_t n_nextn;        /* prediction layers that the file has behind its n_layers blocks */
    uint32_t pooling;        /* key pooling_type: 0 none, 1 mean, 2 first, 3 last, 4 rank; 0 where there is no
                                key */
    uint64_t parameters, weight_bytes;
    uint64_t state_bytes; /* that a sequence has beside its KV: its recurrent state, over all layers; 0: none */
};

/* Builds the plan. context_tokens: what will be run; 0: the trained context, at most 8192. More than
 * trained is allowed (the rope is not stretched by itself). UNSUPPORTED: architecture, named; FORMAT:
 * missing or misshaped tensor or key, named; INVALID: more than 2^28 positions; NO_MEMORY. */
runnel_status rn_plan_new(struct rn_heap *heap, const struct rn_gguf *gguf, uint32_t context_tokens,
                          struct rn_plan **out, runnel_error *error);

/* The same with taps of blocks, and none of the final norm: the residual streams behind these n blocks (numbered
 * from 0, ascending) are each row's features in every step that asks for them (rn_step.features), in that order. The
 * logits are the same to the bit. Where the last block is tapped it is computed for all rows, wanted or not.
 * INVALID: a block that the model does not have, or not ascending. */
runnel_status rn_plan_new_tapped(struct rn_heap *heap, const struct rn_gguf *gguf, uint32_t context_tokens,
                                 const uint32_t *blocks, uint32_t n, struct rn_plan **out, runnel_error *error);

/* The first n blocks, the final norm and the output: a model that drafts for the whole one ("early exit": LayerSkip,
 * arXiv 2404.16710), of the same file and weights, with a cache of its own. INVALID: n is not in 1..n_layers - 1. */
runnel_status rn_plan_new_exit(struct rn_heap *heap, const struct rn_gguf *gguf, uint32_t context_tokens, uint32_t n,
                               struct rn_plan **out, runnel_error *error);
void rn_plan_free(struct rn_plan *plan);

/* Bytes of KV cache that one position needs over all layers, in one of the formats of kv.h. */
uint64_t rn_plan_kv_bytes(const struct rn_plan *plan, runnel_kv_type kv_type);

/* Every slot defined before use, every index in range, every shape matching, cache layers numbered in the
 * order of their KV_STOREs. For tests and backends. */
bool rn_plan_check(const struct rn_plan *plan);

#endif
