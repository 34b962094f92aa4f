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
#ifndef RN_MODEL_BUILD_BUILD_H
#define RN_MODEL_BUILD_BUILD_H

#include "model/arch/table.h"
#include "model/build/head_facts.h"
#include "model/hparams.h"
#include "model/plan.h"

enum {
    RN_BUILD_NAME_BYTES = 64, /* of a tensor, at most */
    RN_MOST_IDS = 1 << 24     /* tokens of a SCATTER, at most: floats are exact so far */
};

struct rn_build {
    struct rn_plan *plan;
    const struct rn_arch *arch;
    const char *assumed; /* of the choice of arch; NULL: nothing */
    struct rn_hparams hparams;
    runnel_status status;
    runnel_error *error;
    uint32_t ops_room, slots_room, weights_room, ropes_room, kv_room, states_room;
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
    /* What the head's file says, where it is built or is `fuse`; or NULL. */
    const struct rn_head_facts *facts;
    int16_t carried;                  /* slot of what a block has and later ones read; -1: none */
    int16_t tapped;                   /* slot with those so far, where they are to be fused */
    const struct rn_gguf *fuse;       /* the head's file whose fc.weight makes one feature of all taps; or NULL */
    const struct rn_gguf *target;     /* of a head that is built: the file of the model it drafts for; or NULL */
    const struct rn_gguf *source;     /* where tensors are looked for: the plan's file, or one of the other two */
    bool again;                       /* blocks that have been built come once more ... */
    uint32_t found;                   /* ... and this weight of theirs came last */
    const struct rn_tensor **ignored; /* [n_ignored]: of the file, see rn_build_ignore */
    uint32_t n_ignored, ignored_room;
    int16_t routed;    /* slot of the experts that a ROUTE gets, and does not choose; -1: it chooses */
    int16_t chosen;    /* slot of the positions that attention looks at, see indexer.c; -1: all */
    int16_t per_layer; /* slot with the embeddings of all blocks, see per_layer.c; -1: there are none */
};

/* Keeps the first failure. */
void rn_build_fail(struct rn_build *b, runnel_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- Weights. `name` is a tensor name; inside a block ("%d" in it) the block's number goes in. ---- */

/* The type is one of numbers that products can be computed with. */
bool rn_build_computable(uint32_t type);

/* The matrix [rows, cols], or `experts` of them (0: not an expert tensor). Absent: FORMAT, or -1 where optional. */
int32_t rn_build_matrix(struct rn_build *b, const char *name, uint32_t cols, uint32_t rows, uint32_t experts,
                        bool optional);
/* A matrix [rows, cols] for each of `heads`, whether the file has them as that or all as one matrix; without bias. */
int32_t rn_build_heads(struct rn_build *b, const char *name, uint32_t cols, uint32_t rows, uint32_t heads);
/* As rows * cols values of which the file may have any shape, to be read as that matrix. */
int32_t rn_build_values(struct rn_build *b, const char *name, uint32_t cols, uint32_t rows, bool optional);
/* A table of whole numbers [rows, cols], for EMBED_IDS. */
int32_t rn_build_ids(struct rn_build *b, const char *name, uint32_t cols, uint32_t rows);
/* The `n` matrices [rows, cols] of a tensor, as one [n * rows, cols]. */
int32_t rn_build_stack(struct rn_build *b, const char *name, uint32_t cols, uint32_t rows, uint32_t n);
/* A vector of n values: norms and biases. */
int32_t rn_build_vector(struct rn_build *b, const char *name, uint32_t n, bool optional);
/* Rows that the matrix has. FORMAT: there is none. */
uint32_t rn_build_rows(struct rn_build *b, const char *name);
bool rn_build_has(struct rn_build *b, const char *name);
/* NULL: there is none. */
const struct rn_tensor *rn_build_tensor(const struct rn_build *b, const char *name);
/* The tensor, if the file has it, is part of the architecture, but not read in this block. */
void rn_build_ignore(struct rn_build *b, const char *name);
/* Does the row list it (rn_arch.unused)? "%d" in such a name stands for the number of a block. */
bool rn_build_is_unused(const struct rn_build *b, struct rn_view name);

/* ---- Slots and ops ---- */

int16_t rn_build_slot(struct rn_build *b, uint32_t width, bool is_i32);
/* The width of a slot; 1 in a build that has failed. UNSUPPORTED, as of rn_build_release: slot is -1. */
uint32_t rn_build_width(struct rn_build *b, int16_t slot);
/* Room for one more element of the array at *array, of which there are n; false (and the build has failed) on refusal.
 * */
bool rn_build_grow(struct rn_build *b, void **array, uint32_t n, uint32_t *room, size_t size);
void rn_build_release(struct rn_build *b, int16_t slot);

/* An op with nothing in it but its layer: -1 wherever an index may be absent. */
struct rn_op rn_build_bare(enum rn_op_kind kind, int32_t layer);

/* What a plan says of a tensor that is read as `experts` matrices [rows, cols]. */
struct rn_weight rn_build_weight(const struct rn_tensor *tensor, uint32_t cols, uint32_t rows, uint32_t experts);

/* A copy of *op goes to the end of the plan; rn_build_empty: an op with nothing in it but the layer of the block being
 * built. */
struct rn_op rn_build_empty(const struct rn_build *b, enum rn_op_kind kind);
void rn_build_op(struct rn_build *b, const struct rn_op *op);

int16_t rn_build_embed(struct rn_build *b, int32_t weight, float scale);
/* What the step brings beside the tokens, `width` floats a row. Once in a plan. */
int16_t rn_build_input(struct rn_build *b, uint32_t width);
/* a, then c; keeps both. c -1: a copy of a. */
int16_t rn_build_concat(struct rn_build *b, int16_t a, int16_t c);
/* Of each of the equal parts that `heads` make of both, in order, that of a, then that of c. Releases both. */
int16_t rn_build_concat_heads(struct rn_build *b, int16_t a, int16_t c, uint32_t heads);
/* Of each head's part of a, in order, the product with rows [from, from + n) of its matrix in `weight`
 * (rn_build_heads). Releases a. */
int16_t rn_build_head_matmul(struct rn_build *b, int16_t a, int32_t weight, uint32_t from, uint32_t n);
/* Likewise with these rows as columns: [heads, cols]. n 0: zeros, and a is -1. Releases a. */
int16_t rn_build_head_sum(struct rn_build *b, int16_t a, int32_t weight, uint32_t from, uint32_t n);
/* Of each of the equal `parts` of a, in order, the n values from `from` on. Keeps a. */
int16_t rn_build_split(struct rn_build *b, int16_t a, uint32_t parts, uint32_t from, uint32_t n);
/* x + the row of tensor position_embd.weight that the position says. Releases x. UNSUPPORTED: the context is longer
 * than the positions that were learned. */
int16_t rn_build_positions(struct rn_build *b, int16_t x);
/* RMS norm of all of a row by the vector `name`. Keeps a. */
int16_t rn_build_rms_norm(struct rn_build *b, int16_t a, const char *name);
/* Layer norm: tensors "<stem>.weight" and, where the file has it, "<stem>.bias". Keeps a. */
int16_t rn_build_layer_norm(struct rn_build *b, int16_t a, const char *stem);
/* The norm of the architecture, by "<stem>.weight" and, where the file has it, "<stem>.bias"; with
 * RN_ARCH_BARE_NORM by neither. Keeps a. */
int16_t rn_build_norm(struct rn_build *b, int16_t a, const char *stem);
/* RMS norm of each head by the one "<stem>.weight" [head]. Keeps a. */
int16_t rn_build_head_norm(struct rn_build *b, int16_t a, const char *stem, uint32_t heads);
/* The norm of the architecture, of each head by its own row of "<stem>.weight" [heads, head]. Keeps a. */
int16_t rn_build_own_norm(struct rn_build *b, int16_t a, const char *stem, uint32_t heads);
/* Layer norm of each, likewise, with a bias where the file has one. Keeps a. */
int16_t rn_build_own_layer_norm(struct rn_build *b, int16_t a, const char *stem, uint32_t heads);
/* RMS norm of each, likewise. Keeps a. */
int16_t rn_build_own_rms_norm(struct rn_build *b, int16_t a, const char *stem, uint32_t heads);
/* weight · a, in any case without bias. Keeps a. */
int16_t rn_build_matmul(struct rn_build *b, int16_t a, int32_t weight);
/* weight · a + the vector bias, unless that is -1, where what the file stores is less a number than the weight. That
 * is "<stem>.scale", where the file has it: files in NVFP4 do. Keeps a. */
int16_t rn_build_stored(struct rn_build *b, int16_t a, int32_t weight, int32_t bias, const char *stem);
/* Of a as many parts as b has values, each a times (b's value + plus). Keeps a, releases c. */
int16_t rn_build_spread(struct rn_build *b, int16_t a, int16_t c, double plus);
/* weight · a (+ bias): tensors "<stem>.weight" and, where the file has it, "<stem>.bias". Keeps a. */
int16_t rn_build_linear(struct rn_build *b, int16_t a, const char *stem, uint32_t rows);
/* act(a + the vector `bias`, unless that is -1); releases a. */
int16_t rn_build_activate_biased(struct rn_build *b, enum rn_activation act, int16_t a, int32_t bias);
/* a + c; releases both. */
int16_t rn_build_add(struct rn_build *b, int16_t a, int16_t c);
/* act(a); releases a. */
int16_t rn_build_activate(struct rn_build *b, enum rn_activation act, int16_t a);
/* act(a) * c; where a is narrower, each of its values for one of the equal parts of c. Releases both. */
int16_t rn_build_gate(struct rn_build *b, enum rn_activation act, int16_t a, int16_t c);
/* The op CUT_GATE with the numbers of gpt-oss (its model card); releases both. */
int16_t rn_build_cut_gate(struct rn_build *b, int16_t a, int16_t c);
/* The same op as silu(a) * c, where both have been cut before. */
int16_t rn_build_cut_silu(struct rn_build *b, int16_t a, int16_t c, double cut);
/* In place; nothing where scale is 1, or most 0. */
void rn_build_scale(struct rn_build *b, int16_t a, double scale);
void rn_build_clamp(struct rn_build *b, int16_t a, double most);
/* In place; nothing where cap is 0. */
void rn_build_softcap(struct rn_build *b, int16_t a, double cap);
/* RMS norm of each `group` values without weights. Releases a. */
int16_t rn_build_unit_norm(struct rn_build *b, int16_t a, uint32_t group);
/* Queries times the temperature of attention, in place; nothing where no position is far enough for it. */
void rn_build_temper(struct rn_build *b, int16_t q);
/* In place. */
void rn_build_rope(struct rn_build *b, uint32_t rope, int16_t a, uint32_t heads);
/* The last dimensions of each head rotated, not the first. Releases a. */
int16_t rn_build_rope_behind(struct rn_build *b, uint32_t rope, int16_t a, uint32_t heads);
/* Only the rows whose logits are wanted; releases a. */
int16_t rn_build_select(struct rn_build *b, int16_t a);
/* Behind a block: x becomes features, if the block is to be tapped. Keeps x. */
void rn_build_tap(struct rn_build *b, int16_t x);
/* a, behind SELECT, becomes features behind those that there are. Keeps a. */
void rn_build_features(struct rn_build *b, int16_t a);
/* What the head makes of all taps: floats of a row. */
uint32_t rn_build_fused_width(const struct rn_build *b);

/* scores.c: what the file's head makes of the final norm becomes the last features: rn_plan.n_scores. Nothing without a
 * head. Keeps normed. */
void rn_build_scores(struct rn_build *b, int16_t normed);
/* Instead of it, in a plan that gives none: the head is not read. */
void rn_build_ignore_scores(struct rn_build *b);
/* The op BAR of logits a: tokens that are never given, as the architecture and the key tokenizer.ggml.suppress_tokens
 * of the file say, of a head's build that of its target. FORMAT, UNSUPPORTED: the key is of another type, or too much. */
void rn_build_bar(struct rn_build *b, int16_t a);
/* Logits = output · normed, scaled and capped as the hyper-parameters say, and the plan's logits slot; releases normed.
 * The matrix: `name`, or `shared`, a weight,
 * where the source has none. */
void rn_build_logits(struct rn_build *b, int16_t normed, const char *name, int32_t shared);
/* Logits = head · norm(x), and the plan's logits slot; norm(x) is tapped where no block is. Head: output.weight, or
 * token_embd.weight where there is none. Releases x. Selects the wanted rows, if no block has. */
void rn_build_head(struct rn_build *b, int16_t x, int32_t embedding);

/* ---- Ops with a recurrent state (recurrent.c) ---- */

/* One more layer of n floats; its number, for rn_op.layer. */
int32_t rn_build_state(struct rn_build *b, uint64_t n);
/* The op CONV by tensors "<stem>.weight" [channels, taps] and, where the file has it, "<stem>.bias"; its activation:
 * SiLU, or none. Where attention sees both ways, the middle tap is a row's own. Keeps a. */
int16_t rn_build_conv(struct rn_build *b, int16_t a, const char *stem, uint32_t taps, bool silu);
/* The same with SiLU, and taps that lie `span` rows apart. Keeps a. */
int16_t rn_build_wide_conv(struct rn_build *b, int16_t a, const char *stem, uint32_t taps, uint32_t span);
/* The op SCAN of x, B and C, by tensors ssm_a and ssm_d. Releases both. */
int16_t rn_build_scan(struct rn_build *b, int16_t x, int16_t dt, const struct rn_ssm_hparams *ssm);

/* ---- Linear attention, and values (linear.c) ---- */

/* weight · a + bias, by tensors of these names; bias NULL: none. Keeps a. */
int16_t rn_build_product(struct rn_build *b, int16_t a, const char *weight, const char *bias, uint32_t rows);
/* a times, over, or plus, the n values of the tensor `name`, each for as many of a's. Releases a. */
int16_t rn_build_times(struct rn_build *b, int16_t a, const char *name, uint32_t n);
int16_t rn_build_over(struct rn_build *b, int16_t a, const char *name, uint32_t n);
int16_t rn_build_plus(struct rn_build *b, int16_t a, const char *name, uint32_t n);
/* a - c. Keeps both. */
int16_t rn_build_minus(struct rn_build *b, int16_t a, int16_t c);
/* Op LERP from a to c by `parts` rows of the tensor `name`. Keeps both. */
int16_t rn_build_lerp(struct rn_build *b, int16_t a, int16_t c, const char *name, uint32_t parts);
/* Op PART_SUM. Releases a. */
int16_t rn_build_part_sum(struct rn_build *b, int16_t a, uint32_t parts);
/* Op REPEAT. Releases a. */
int16_t rn_build_repeat(struct rn_build *b, int16_t a, uint32_t parts, uint32_t times);
/* Each head of a divided by the root of eps and its sum of squares, times scale. Releases a. */
int16_t rn_build_unit(struct rn_build *b, int16_t a, uint32_t heads, double eps, double scale);
/* Layer norm of each head by its own part of "<stem>.weight" and "<stem>.bias", [heads * head]. Releases a. */
int16_t rn_build_group_norm(struct rn_build *b, int16_t a, const char *stem, uint32_t heads, double eps);
/* The same values in another slot. Keeps a. */
int16_t rn_build_copy(struct rn_build *b, int16_t a);
/* Op SCATTER by the tensor `name`, to the width of logits. FORMAT: it does not have another token for each of a's
 * values. Releases a. */
int16_t rn_build_scatter(struct rn_build *b, int16_t a, const char *name);
/* a of the row before, see op SHIFT. Keeps a. */
int16_t rn_build_shift(struct rn_build *b, int16_t a);
/* a, then c. Releases both. */
int16_t rn_build_join(struct rn_build *b, int16_t a, int16_t c);

/* The ops of linear attention. `like` has its kind, heads, dimensions, scale, and whatever else its row in ops.def
 * names but slots and state. Releases a and c. */
int16_t rn_build_linear_attention(struct rn_build *b, const struct rn_op *like, int16_t a, int16_t c);

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
/* Keys and values to a cache layer, and what the queries find there: [heads, v_dim]. Releases all three. x.v -1: values
 * are the first v_dim of each head of keys. */
/* Keys -1: those of another block, as kv_from says. With b->chosen queries of blocks without a window find these
 * positions only. */
int16_t rn_build_attend(struct rn_build *b, struct rn_qkv x);
/* In the last block: both become their wanted rows, unless the block is tapped. *x: what goes on in the block, NULL
 * where nothing does. */
void rn_build_last_rows(struct rn_build *b, int16_t *x, int16_t *residual);
/* What attention gives for `normed`, [heads, v_dim]: queries, keys and values, cut, normed and rotated as the
 * architecture and the hyper-parameters say, and what is found. Keeps normed. */
int16_t rn_build_mix(struct rn_build *b, int16_t normed);
/* The same where keys and values are made of a latent (rn_hparams.latent): see latent.c. Keeps normed. */
int16_t rn_build_latent_mix(struct rn_build *b, int16_t normed);
/* Another cache layer. */
int32_t rn_build_cache(struct rn_build *b, struct rn_kv_layer layer);
/* indexer.c: sets b->chosen as the block's indexer chooses, if it has one; its queries are made of `low`, [q_rank].
 * Keeps both. */
void rn_build_choose(struct rn_build *b, int16_t normed, int16_t low);
/* Op COMPRESS: one row of `dim` numbers for each `per` positions. rows and gate: [parts, dim]; parts 2: with the block
 * before. ape: the tensor that is added to the gates. Releases both. */
int16_t rn_build_compress(struct rn_build *b, int16_t rows, int16_t gate, const char *ape, uint32_t per, uint32_t parts,
                          uint32_t dim);
/* sparse.c: what the queries find in blocks of positions that each head of keys chooses by itself. Keeps normed,
 * releases x. */
int16_t rn_build_attend_blocks(struct rn_build *b, int16_t normed, struct rn_qkv x);
/* What the queries find at the positions b->chosen, which are the same for all heads. Releases x. */
int16_t rn_build_attend_chosen(struct rn_build *b, struct rn_qkv x);
/* The output projection attn_output of it, behind attn_sub_norm with RN_ARCH_SUB_NORM. Releases mixed. */
int16_t rn_build_attention_out(struct rn_build *b, int16_t mixed);
/* Both. *residual is what the caller adds the result to. Releases normed. */
int16_t rn_build_attention(struct rn_build *b, int16_t normed, int16_t *residual);

/* down · act(up · x), or down · (act(gate · x) * (up · x)), as the row says; down behind ffn_sub_norm with
 * RN_ARCH_SUB_NORM. Keeps x. */
int16_t rn_build_feed_forward(struct rn_build *b, int16_t x);

/* The same with the `used` best of `experts` experts (tensors ffn_gate_inp, exp_probs_b, ffn_*_exps), routed as the
 * hyper-parameters say, and with what all rows share (ffn_*_shexp), where the file has that. Keeps x. */
int16_t rn_build_moe(struct rn_build *b, int16_t x);

/* Its parts. moe_by: by the router's logits, [experts]; without a dense feed-forward beside it. route: the op that
 * chooses `used` of them; out has their numbers divided by `per`, out2 their weights; all experts are those of the
 * hyper-parameters. expert_matmul: one matrix of each chosen expert, `cols` -> `rows` values; per_expert: `a` has a row
 * for each. expert_gate: what the gate makes of both. expert_sum: of the `used` parts of a by the weights.
 * They keep x, logits, a and ids, and release gate and up; expert_sum releases both. */
int16_t rn_build_moe_by(struct rn_build *b, int16_t x, int16_t logits);
struct rn_op rn_build_route(struct rn_build *b, int16_t logits, uint32_t used, uint32_t per);
int16_t rn_build_expert_matmul(struct rn_build *b, int16_t a, int16_t ids, const char *stem, uint32_t cols,
                               uint32_t rows, bool per_expert);
int16_t rn_build_expert_gate(struct rn_build *b, int16_t gate, int16_t up);
int16_t rn_build_expert_sum(struct rn_build *b, int16_t a, int16_t weights, uint32_t used);

/* side_experts.c: what a feed-forward and experts give beside each other for the residual stream. Keeps x. */
int16_t rn_build_side_experts(struct rn_build *b, int16_t x);

/* per_layer.c: b->per_layer of the embedding x; and what a block makes of its part of it and of a gate by x. Keep x. */
void rn_build_per_layer_inputs(struct rn_build *b, int16_t x);
int16_t rn_build_per_layer(struct rn_build *b, int16_t x);

/* x + attention(norm x), in a block that has attention; else x. Releases x. */
int16_t rn_build_attention_part(struct rn_build *b, int16_t x);

/* ---- Decoders as the rows describe them (decoder.c) ---- */

/* x + feed-forward(norm x), as the row says. Releases x. */
int16_t rn_build_ffn_part(struct rn_build *b, int16_t x);
/* A whole block. Releases x. */
int16_t rn_build_block(struct rn_build *b, int16_t x);
/* A whole model: what a row without a builder means. */
void rn_build_decoder(struct rn_build *b);

/* ---- Whole plans (plan.c) ---- */

/* A plan by arch->build, from the keys of arch->name in gguf; *b holds what is asked for beside that. The status is
 * b's, and *out is set where it is OK. */
runnel_status rn_plan_make(struct rn_build *b, struct rn_heap *heap, const struct rn_gguf *gguf,
                           const struct rn_arch *arch, uint32_t context_tokens, struct rn_plan **out);

/* The row for a file: of the table, of its host, or of a standard decoder. UNSUPPORTED, FORMAT. */
runnel_status rn_plan_arch(const struct rn_gguf *gguf, struct rn_arch_choice *choice, runnel_error *error);

#endif
