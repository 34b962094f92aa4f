/* Plans of what drafts for a model from the model's own states: an EAGLE head, and a file's prediction layers.
 *
 * Both are one decoder layer over the target's state g(t) at position t and the token that follows there:
 *
 *     g(t) ────────── hnorm ─┐
 *                            ├─ eh_proj ─▶ x ─ decoder layer ─▶ h ─ norm ─▶ n ─ output matrix ─▶ logits of token t + 2
 *     embedding(t + 1) ─ enorm ─┘              (own cache)
 *
 * A row of such a plan stands at position t, has the token t + 1, and brings g(t) in rn_step.inputs. Its feature
 * (rn_step.features) is the head's h or the prediction layer's n, which stands where g(t + 1) stands when the next
 * token is drafted.
 *
 *   EAGLE head        g = fc · (residual streams behind the tapped blocks), or that of the one block that is tapped.
 *                     train/eagle.h has sources; train/head_file.h has the file's keys. Embedding and output matrix
 *                     are the target's.
 *   EAGLE-3 head      the same of another program: general.architecture eagle3, see eagle3.c.
 *   prediction layer  g = the final norm's output, which the model's own output matrix reads (DeepSeek-V3, arXiv
 *                     2412.19437, section 2.2: the representation that OutHead gets). In a model's file behind its
 *                     blocks: key nextn_predict_layers, tensors blk.N.nextn.{enorm,hnorm,eh_proj} and, where they are
 *                     not the model's own, embed_tokens, shared_head_norm, shared_head_head (names as in llama.cpp's
 *                     files of GLM-4.5 and DeepSeek-V3).
 *
 * Of D prediction layers the d-th (from 0) has at position t the token t + 1 + d and what layer d - 1 gave there, and
 * foretells the token t + 2 + d:
 *
 *     g(t) ─ layer 0 ─ n0(t) ─ layer 1 ─ n1(t) ─ ...
 *            t + 1             t + 2
 *
 * That g and n are taken behind the norm is what training frameworks do (Megatron Core), and what engines measured as
 * right on files of DeepSeek-V3, GLM-5 and Qwen3.5: before the norm acceptance is 3 to 15 % less, and falls with depth.
 *
 * The target's plan for a head gives g as features of each row that asks, and behind it the final norm's output
 * (rn_plan.normed_at), which embeddings are made of. For a prediction layer it is the model's own plan.
 *
 * Threads: as plans. */
#ifndef RN_MODEL_HEADS_HEAD_H
#define RN_MODEL_HEADS_HEAD_H

#include "model/build/head_facts.h"
#include "model/plan.h"

#define RN_HEAD_ARCH "runnel-eagle"
#define RN_EAGLE3_ARCH "eagle3"

/* True for a file whose general.architecture is one of those two. */
bool rn_head_is(const struct rn_gguf *gguf);

/* FORMAT names the key. UNSUPPORTED: not a head. */
runnel_status rn_head_read(const struct rn_gguf *gguf, struct rn_head_facts *facts, runnel_error *error);

/* The head's plan. Both files are borrowed; whether they belong together the caller has looked (facts.target), as far
 * as an EAGLE-3 head's file says it rn_plan_new_for_head. FORMAT: the widths or vocabularies differ, or a tensor is
 * missing or misshaped; else as rn_plan_new. */
runnel_status rn_plan_new_head(struct rn_heap *heap, const struct rn_gguf *head, const struct rn_gguf *target,
                               uint32_t context_tokens, struct rn_plan **out, runnel_error *error);

/* The target's plan, with the head's g as its first features, up to rn_plan.normed_at. INVALID: the target does not
 * have the blocks; of an EAGLE-3 head also: it has another width, or other tokens, than the head's file says. */
runnel_status rn_plan_new_for_head(struct rn_heap *heap, const struct rn_gguf *target, uint32_t context_tokens,
                                   const struct rn_gguf *head, struct rn_plan **out, runnel_error *error);

/* Prediction layers of a file of an architecture that is known here. FORMAT names the key. */
runnel_status rn_head_count_nextn(const struct rn_gguf *gguf, uint32_t *n, runnel_error *error);

/* The plan of the file's prediction layer number `which`, from 0. UNSUPPORTED: it has not so many, or the layer has a
 * tensor that is not read, named. */
runnel_status rn_plan_new_nextn(struct rn_heap *heap, const struct rn_gguf *gguf, uint32_t context_tokens,
                                uint32_t which, struct rn_plan **out, runnel_error *error);

#endif
