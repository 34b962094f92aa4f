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

#include "model/hparams.h"
#include "model/plan.h"

struct rn_build {
    struct rn_plan *plan;
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
/* RMS norm of all of a row. Keeps a. */
int16_t rn_build_rms_norm(struct rn_build *b, int16_t a, const char *name);
/* weight · a (+ bias): tensors "<stem>.weight" and, where the file has it, "<stem>.bias". Keeps a. */
int16_t rn_build_linear(struct rn_build *b, int16_t a, const char *stem, uint32_t rows);
/* a + c; releases both. */
int16_t rn_build_add(struct rn_build *b, int16_t a, int16_t c);
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

/* The rope table of the hyper-parameters, with the file's divisor tensors folded in. */
uint32_t rn_build_rope_table(struct rn_build *b, bool neox);
/* True for the name of such a tensor. */
bool rn_build_is_divisors(struct rn_view name);

struct rn_attention_style {
    uint32_t rope;
    uint32_t window; /* 0: all */
    float softcap;   /* 0: off */
};

/* q, k, v from `normed`, rotation, cache, softmax, output projection. *residual is what the caller adds
 * the result to: in the last block both go through SELECT, right behind the attention itself, and
 * *residual becomes its selection. Releases normed. */
int16_t rn_build_attention(struct rn_build *b, int16_t normed, const struct rn_attention_style *style,
                           int16_t *residual);

/* down · (act(gate · x) * (up · x)). Releases x. */
int16_t rn_build_ffn_gated(struct rn_build *b, int16_t x, enum rn_activation act);

/* The same with the `used` best of `experts` experts (tensors ffn_gate_inp, ffn_*_exps). Releases x. */
struct rn_moe_style {
    enum rn_activation act;
    bool sigmoid, normalise; /* as in rn_op */
    uint32_t feed_forward;
};
int16_t rn_build_moe(struct rn_build *b, int16_t x, const struct rn_moe_style *style);

/* A whole block of the Llama kind: x + attention(norm x), then + ffn(norm x). Releases x. */
int16_t rn_build_llama_block(struct rn_build *b, int16_t x, const struct rn_attention_style *style);

/* ---- Whole plans (plan.c) ---- */

struct rn_arch;

/* A plan by arch->build, from the keys of arch->name in gguf; *b holds what is asked for beside that. The status is
 * b's, and *out is set where it is OK. */
runnel_status rn_plan_make(struct rn_build *b, struct rn_heap *heap, const struct rn_gguf *gguf,
                           const struct rn_arch *arch, uint32_t context_tokens, struct rn_plan **out);

/* The row of the table for a file. UNSUPPORTED, FORMAT. */
runnel_status rn_plan_arch(const struct rn_gguf *gguf, const struct rn_arch **arch, runnel_error *error);

/* ---- The table (arch.c) ---- */

struct rn_arch {
    const char *name; /* as in general.architecture */
    bool neox;        /* pairs of the rotation: see rn_rope */
    void (*build)(struct rn_build *b, const struct rn_arch *arch);
};

/* NULL: not known. */
const struct rn_arch *rn_arch_find(struct rn_view name);

#endif
