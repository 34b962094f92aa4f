/* Building plans: what the builder of an architecture is written with.
 *
 * A builder is a straight line of these calls, in the order of the forward pass. None of them
 * returns a status: the first failure is kept in the build (with its sentence), and from then on
 * every call does nothing and returns a harmless index. The caller looks once, at the end.
 *
 * Slots come from a free list, so that a plan of 4096 blocks needs as many slots as one of two: a
 * function here that yields a slot makes the caller its owner, and functions say which of their
 * arguments they release. An op's output never is one of its inputs, RN_OP_ROPE apart.
 *
 * Threads: one builder, one thread. Private to model/. */
#ifndef RN_MODEL_BUILD_H
#define RN_MODEL_BUILD_H

#include "model/arch/table.h"
#include "model/hparams.h"
#include "model/plan.h"

struct rn_build {
    struct rn_plan *plan;
    const struct rn_arch *arch;
    struct rn_hparams hparams;
    runnel_status status;
    runnel_error *error;
    uint32_t ops_room, slots_room, weights_room, ropes_room, kv_room;
    bool *slot_free;      /* [slots_room] */
    bool selected;        /* SELECT has been placed: new slots hold wanted rows only */
    bool logits;          /* new slots hold rows with wanted logits only */
    int32_t layer;        /* block being built, -1 outside; part of tensor names and ops */
    uint32_t n_blocks;    /* to be built: blocks [0, n_blocks) ... */
    int32_t last;         /* ... and the one behind which only wanted rows go on */
    uint32_t exit;        /* so many blocks instead of all; 0: all */
    bool only_nextn;      /* a prediction layer alone is built ... */
    uint32_t nextn;       /* ... its number */
    bool partial;         /* tensors of the file may be left out */
    bool with_norm;       /* beside taps, the final norm's output becomes features, too */
    const uint32_t *taps; /* [n_taps] blocks */
    uint32_t n_taps;
    int16_t tapped;               /* slot with those so far, where they are to be fused */
    const struct rn_gguf *fuse;   /* the head's file whose fc.weight makes one feature of several taps; or NULL */
    const struct rn_gguf *target; /* of a head that is built: the file of the model it drafts for; or NULL */
    const struct rn_gguf *source; /* where tensors are looked for: the plan's file, or one of the other two */
    uint32_t n_foreign;           /* weights from one of those */
    uint32_t n_rope_tensors;      /* of the file: read while building, not weights of any op */
};

/* Keeps the first failure. */
void rn_build_fail(struct rn_build *b, runnel_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- Weights. `name` is a tensor name; inside a block ("%d" in it) the block's number goes in. ---- */

/* The matrix [rows, cols], or `experts` of them (0: not an expert tensor). Absent: FORMAT, or -1 where optional. */
int32_t rn_build_matrix(struct rn_build *b, const char *name, uint32_t cols, uint32_t rows, uint32_t experts,
                        bool optional);
/* A vector of n values: norms and biases. */
int32_t rn_build_vector(struct rn_build *b, const char *name, uint32_t n, bool optional);
bool rn_build_has(struct rn_build *b, const char *name);

/* ---- Slots and ops ---- */

int16_t rn_build_slot(struct rn_build *b, uint32_t width, bool is_i32);
void rn_build_release(struct rn_build *b, int16_t slot);

/* A copy of *op goes to the end of the plan; rn_build_empty: an op with nothing in it, -1 wherever an index
 * may be absent, and the layer of the block being built. */
struct rn_op rn_build_empty(const struct rn_build *b, enum rn_op_kind kind);
void rn_build_op(struct rn_build *b, const struct rn_op *op);

int16_t rn_build_embed(struct rn_build *b, int32_t weight, float scale);
/* What the step brings beside the tokens, `width` floats a row. Once in a plan. */
int16_t rn_build_input(struct rn_build *b, uint32_t width);
/* a, then c; keeps both. c -1: a copy of a. */
int16_t rn_build_concat(struct rn_build *b, int16_t a, int16_t c);
/* Of each of the equal `parts` of a, in order, the n values from `from` on. Keeps a. */
int16_t rn_build_split(struct rn_build *b, int16_t a, uint32_t parts, uint32_t from, uint32_t n);
/* x + the row of tensor position_embd.weight that the position says. Releases x. UNSUPPORTED: the context is longer
 * than the positions that were learned. */
int16_t rn_build_positions(struct rn_build *b, int16_t x);
/* RMS norm of all of a row by the vector `name`. Keeps a. */
int16_t rn_build_rms_norm(struct rn_build *b, int16_t a, const char *name);
/* Layer norm: tensors "<stem>.weight" and, where the file has it, "<stem>.bias". Keeps a. */
int16_t rn_build_layer_norm(struct rn_build *b, int16_t a, const char *stem);
/* The norm of the architecture, by "<stem>.weight" and with RN_ARCH_LAYER_NORM "<stem>.bias". Keeps a. */
int16_t rn_build_norm(struct rn_build *b, int16_t a, const char *stem);
/* weight · a (+ bias): tensors "<stem>.weight" and, where the file has it, "<stem>.bias". Keeps a. */
int16_t rn_build_linear(struct rn_build *b, int16_t a, const char *stem, uint32_t rows);
/* a + c; releases both. */
int16_t rn_build_add(struct rn_build *b, int16_t a, int16_t c);
/* act(a); releases a. */
int16_t rn_build_activate(struct rn_build *b, enum rn_activation act, int16_t a);
/* act(a) * c; releases both. */
int16_t rn_build_gate(struct rn_build *b, enum rn_activation act, int16_t a, int16_t c);
/* In place. */
void rn_build_rope(struct rn_build *b, uint32_t rope, int16_t a, uint32_t heads);
/* Only the rows whose logits are wanted; releases a. */
int16_t rn_build_select(struct rn_build *b, int16_t a);
/* Behind a block: x becomes features, if the block is to be tapped. Keeps x. */
void rn_build_tap(struct rn_build *b, int16_t x);
/* a, behind SELECT, becomes features behind those that there are. Keeps a. */
void rn_build_features(struct rn_build *b, int16_t a);
/* Logits = output · normed, and the plan's logits slot; releases normed. The matrix: `name`, or `shared`, a weight,
 * where the source has none. */
void rn_build_logits(struct rn_build *b, int16_t normed, const char *name, int32_t shared);
/* Logits = head · norm(x), and the plan's logits slot; norm(x) is tapped where no block is. Head: output.weight, or
 * token_embd.weight where there is none. Releases x. Selects the wanted rows, if no block has. */
void rn_build_head(struct rn_build *b, int16_t x, int32_t embedding);

/* ---- Pieces of blocks ---- */

/* The rope tables of the hyper-parameters, under the same indices, with the file's divisor tensors folded in. */
void rn_build_ropes(struct rn_build *b);
/* True for the name of such a tensor. */
bool rn_build_is_divisors(struct rn_view name);

/* Queries, keys and values of a block: [heads, k_dim], [kv_heads, k_dim], [kv_heads, v_dim]. */
struct rn_qkv {
    int16_t q, k, v;
};

/* From `normed`: tensors attn_q, attn_k, attn_v, or attn_qkv, which is all three behind one another; each with a bias
 * where the file has one. Keeps normed. */
struct rn_qkv rn_build_qkv(struct rn_build *b, int16_t normed);
/* Rotates queries and keys as the block's hyper-parameters say, in place. */
void rn_build_rotate(struct rn_build *b, const struct rn_qkv *x);
/* Keys and values to a cache layer, and what the queries find there: [heads, v_dim]. Releases all three. */
int16_t rn_build_attend(struct rn_build *b, struct rn_qkv x);
/* In the last block: both become their wanted rows, unless the block is tapped. *x: what goes on in the block, NULL
 * where nothing does. */
void rn_build_last_rows(struct rn_build *b, int16_t *x, int16_t *residual);
/* All of these, and the output projection attn_output. *residual is what the caller adds the result to. Releases
 * normed. */
int16_t rn_build_attention(struct rn_build *b, int16_t normed, int16_t *residual);

/* down · act(up · x). Releases x. */
int16_t rn_build_ffn(struct rn_build *b, int16_t x, enum rn_activation act);

/* down · (act(gate · x) * (up · x)). Releases x. */
int16_t rn_build_ffn_gated(struct rn_build *b, int16_t x, enum rn_activation act);

/* The same with the `used` best of `experts` experts (tensors ffn_gate_inp, ffn_*_exps). Releases x. */
struct rn_moe_style {
    enum rn_activation act;
    bool sigmoid, normalise; /* as in rn_op */
    uint32_t feed_forward;
};
int16_t rn_build_moe(struct rn_build *b, int16_t x, const struct rn_moe_style *style);

/* x + attention(norm x), in a block that has attention; else x. Releases x. */
int16_t rn_build_attention_part(struct rn_build *b, int16_t x);

/* A whole block of the Llama kind: x + attention(norm x), then + ffn(norm x). Releases x. */
int16_t rn_build_llama_block(struct rn_build *b, int16_t x);

/* ---- Whole plans (plan.c) ---- */

/* A plan by arch->build, from the keys of arch->name in gguf; *b holds what is asked for beside that. The status is
 * b's, and *out is set where it is OK. */
runnel_status rn_plan_make(struct rn_build *b, struct rn_heap *heap, const struct rn_gguf *gguf,
                           const struct rn_arch *arch, uint32_t context_tokens, struct rn_plan **out);

/* The row of the table for a file. UNSUPPORTED, FORMAT. */
runnel_status rn_plan_arch(const struct rn_gguf *gguf, const struct rn_arch **arch, runnel_error *error);

#endif
