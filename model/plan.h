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
#include "model/activation.h"
#include "model/gating.h"
#include "model/gguf/gguf.h"
#include "model/grams.h"
#include "model/quant/quant.h"

/* What each op computes: ops.def. */
enum rn_op_kind {
#define RN_OP(NAME, ...) RN_OP_##NAME,
#include "model/ops.def"
    RN_OP_KINDS
};

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

/* Rotation by angle (position + shift) * inv_freq[i] of the pair i, both halves scaled by `magnitude`. All
 * scalings (linear, YaRN, llama3, longrope, rope_freqs) are folded into the table. */
struct rn_rope {
    uint32_t dims; /* rotated dimensions of each head, even; the rest passes through */
    int32_t shift; /* less than RN_MOST_SHIFT either way */
    bool neox;     /* pairs (i, i + dims/2); else (2i, 2i + 1) */
    double magnitude;
    double *inv_freq; /* [dims / 2]; negative: the other way */
};

enum {
    RN_MOST_SHIFT = 1 << 20,
    RN_MOST_TOKEN = 1 << 24, /* of a TOKEN, which gives floats */
    RN_MAX_ROUTED = 4096,    /* experts of a ROUTE */
    RN_MAX_STREAMS = 64,     /* of a HYPER */
    RN_SECOND = 1 << 30      /* beside a position that a REACH gives: it is one of the second cache */
};

struct rn_op {
    enum rn_op_kind kind;
    int16_t out, out2, a, b; /* slots; -1: none */
    int32_t weight, bias;    /* weights; -1: none */
    int32_t layer;           /* cache layer of KV_STORE and ATTENTION; state layer of what has a state (ops.def); else
                                the block it belongs to, -1: none */
    uint32_t second;         /* ATTENTION: 1 + the cache layer of what has RN_SECOND; 0: there is none */
    float scale;
    double eps;
    enum rn_activation act;
    uint32_t group;           /* RMS_NORM, LAYER_NORM; TAP: where in the features; SPLIT: where in each part; HEAD_*: at
                                 which row; GATED_DELTA: decays of a head */
    uint32_t rope;            /* index of rn_plan.ropes */
    uint32_t heads, kv_heads; /* ATTENTION, WKV*, GATED_DELTA, ROPE (heads of a); SPLIT, CONCAT,
                                 REPEAT, PART_SUM, HEAD_* (parts of a); CHOOSE */
    uint32_t k_dim,
        v_dim;       /* per head: ATTENTION, CHOOSE, WKV*, GATED_DELTA; ROPE: k_dim = head_dim; SPLIT, HEAD_*: k_dim of
                                 each part; COMPRESS: k_dim of a row */
    uint32_t window; /* ATTENTION, REACH: the last so many positions, itself included; 0: all */
    bool chunked;    /* ATTENTION: instead those of the row's chunk, which are `window` positions each */
    bool bidirectional;      /* ATTENTION: positions behind the row, too */
    float softcap;           /* ATTENTION: scores = softcap * tanh(scores / softcap); 0: off */
    float cut, plus;         /* CUT_GATE */
    double alpha_n, alpha_p; /* XIELU */
    double alibi;            /* ATTENTION: how fast scores fall with distance; 0: not at all */
    uint32_t span, ahead;    /* TEMPER; CONV: rows from one tap to the next, 0 is 1; rows that it looks ahead */
    float factors[3];        /* HYPER ... */
    uint32_t turns;          /* ... how often columns are divided; 0: once, too */
    uint32_t experts, used;  /* ROUTE, EXPERT_*; REPEAT: used copies; CHOOSE, REACH, ATTENTION with b: positions;
                                LOOK_UP: rows */
    uint32_t groups, best;   /* ROUTE: only experts of the `best` best of so many groups; groups 0 or 1: of all; CHOOSE:
                                the last blocks, which are always chosen */
    enum rn_gating gating;   /* ROUTE */
    uint32_t per;   /* ROUTE: ids are divided by it; 0 or 1: they are not; CHOOSE, REACH, COMPRESS: positions of a
                                block */
    bool normalise; /* ROUTE: weights of the chosen divided by their sum (or eps), before they are scaled */
    bool per_expert_input; /* EXPERT_MATMUL */
    bool counted;          /* EXPERT_MATMUL: the one of its block that counts the use of experts */
    bool activated;        /* CONV: what it gives goes through act */
    bool tiled;            /* GATED_DELTA: which head of queries and keys a head has */
    bool adapted;          /* it works for adapters alone: passed over by steps none of whose sequences has one */
};

/* What one op keeps of a sequence from step to step: a part of the sequence's recurrent state. All of the state is
 * zeros before the sequence's first position. */
struct rn_state_layer {
    uint64_t at; /* where in the state, in floats: a multiple of RN_STATE_UNIT */
    uint32_t n;  /* floats; arranged as the backend likes */
};

enum {
    RN_STATE_UNIT = 16,     /* floats of a cache line */
    RN_MAX_TAPS = 64,       /* inputs of a CONV's output */
    RN_MAX_STATE_DIM = 1024 /* k_dim and v_dim of linear attention */
};

struct rn_kv_layer {
    uint32_t k_width,
        v_width; /* values per position: kv_heads * head_dim. v_width 0: values are the front of the keys */
    uint32_t kv_heads;
};

struct rn_plan {
    struct rn_heap *heap;
    const struct rn_gguf *gguf; /* borrowed: must outlive the plan, as must a head's or a target's (head.h) */
    char architecture[RN_ARCH_NAME_BYTES]; /* of the row */
    char assumed[RN_ARCH_ASSUMED_BYTES];   /* a sentence for the log where the architecture is not known and the file
                                              was taken for a standard decoder's (arch/standard.c); else "" */
    uint32_t n_vocab, embedding, n_layers;
    uint32_t trained_tokens; /* context the model was trained for */
    uint32_t context_tokens; /* longest position + 1 that will be run */
    uint32_t n_ops, n_slots, n_weights, n_ropes, n_kv_layers, n_state_layers;
    struct rn_op *ops;
    struct rn_slot *slots;
    struct rn_weight *weights;
    struct rn_rope *ropes;
    struct rn_kv_layer *kv_layers;
    struct rn_state_layer *state_layers;
    struct rn_grams grams;   /* of its GRAMS */
    int16_t logits_slot;     /* [n_vocab], selected, logits; -1: there are none, but features: of an encoder, or of the
                                front of a plan that is cut (cut.h) */
    uint32_t features_width; /* of a row: what the TAPs give, side by side: that of chosen blocks, and of the
                                final norm */
    uint32_t normed_at;      /* where the latter's begin; 0 where they are all there is, or are not */
    uint32_t n_scores;       /* the last features: what a head that ranks or classifies gives (scores.c); 0: none */
    uint32_t scores_from;    /* RN_POOLING_FIRST or _LAST (scores.h): the position whose they are */
    bool scores_of_tokens;   /* they are logits of tokens: their softmax is meant */
    bool taps_selected;      /* there is a TAP behind SELECT */
    bool bidirectional;      /* attention sees what is behind a row: the rows of a sequence come in one step, all of
                                them, from position 0 on */
    uint32_t inputs_width;   /* floats that a step brings for each row beside its token; 0: none */
    uint32_t n_adapters;     /* that a sequence may have (adapter.h); 0: none, and there is no op for any */
    uint32_t n_nextn;        /* prediction layers that the file has behind its n_layers blocks */
    uint32_t pooling;        /* key pooling_type: 0 none, 1 mean, 2 first, 3 last, 4 rank; 0 where there is no
                                key */
    uint64_t parameters, weight_bytes;
    uint64_t
        state_bytes; /* that a sequence has beside its KV: its recurrent state, over all layers, which lie in it one
                             behind the other; 0: none */
};

/* How many positions up to its own the row at `position` sees in an ATTENTION that is not bidirectional; 0: all. */
static inline uint32_t rn_op_window(const struct rn_op *op, uint32_t position)
{
    return op->chunked ? position % op->window + 1 : op->window;
}

/* The factor of a TEMPER for the row at `position`. */
double rn_op_temperature(const struct rn_op *op, uint32_t position);

/* What head `head` of an ATTENTION adds to a score for each position of distance, see ops.def: 0 without alibi, else
 * negative. */
double rn_op_slope(const struct rn_op *op, uint32_t head);

/* Builds the plan. context_tokens: what will be run; 0: the trained context, at most 8192. More than
 * trained is allowed (the rope is not stretched by itself). UNSUPPORTED: architecture, named, if it is neither in the
 * table nor in rn_gguf_rows, nor is the file a standard decoder's; FORMAT:
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

/* Layers with a window: those of whose cache every ATTENTION looks back only so many positions. The widest one of a
 * layer, 0: it has none; the widest of all layers; and of rn_plan_kv_bytes the part of such layers. */
uint32_t rn_plan_layer_window(const struct rn_plan *plan, uint32_t layer);
uint32_t rn_plan_window(const struct rn_plan *plan);
uint64_t rn_plan_window_bytes(const struct rn_plan *plan, runnel_kv_type kv_type);

/* Every slot defined before use, every index in range, every shape matching, cache layers numbered in the
 * order of their KV_STOREs, state layers in the order of their ops, one of each. For tests and backends. */
bool rn_plan_check(const struct rn_plan *plan);

/* The opposite of rn_plan_check; where it is true, `text` gets what does not fit ("op 12, MATMUL with tensor
 * blk.0.ffn_up.weight"), cut to `size` bytes. The last line of defence against a hostile file whose builder did not see
 * that two of its tensors do not go together: rn_plan_new refuses such a file with these words. */
bool rn_plan_flaw(const struct rn_plan *plan, char *text, size_t size);

#endif
