/* What the rows of the table consist of beside flags: readers of keys that are not common to all, and builders. */
#ifndef RN_MODEL_ARCH_FAMILIES_H
#define RN_MODEL_ARCH_FAMILIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "model/activation.h"

struct rn_build;
struct rn_hparams_reader;
struct rn_rope_hparams;

/* llama.c */
runnel_status rn_arch_llama4_keys(const struct rn_hparams_reader *r);
runnel_status rn_arch_smollm3_keys(const struct rn_hparams_reader *r);
runnel_status rn_arch_axes_keys(const struct rn_hparams_reader *r);
runnel_status rn_arch_glm4_keys(const struct rn_hparams_reader *r);
runnel_status rn_arch_exaone4_keys(const struct rn_hparams_reader *r);
runnel_status rn_arch_granite_keys(const struct rn_hparams_reader *r);
runnel_status rn_arch_granite_swa_keys(const struct rn_hparams_reader *r);

/* dense.c */
runnel_status rn_arch_baichuan_keys(const struct rn_hparams_reader *r);
runnel_status rn_arch_hunyuan_keys(const struct rn_hparams_reader *r);
runnel_status rn_arch_minicpm_keys(const struct rn_hparams_reader *r);
runnel_status rn_arch_qwen_keys(const struct rn_hparams_reader *r);
int16_t rn_arch_deci_block(struct rn_build *b, int16_t x);
runnel_status rn_arch_cogvlm_keys(const struct rn_hparams_reader *r);
runnel_status rn_arch_chameleon_keys(const struct rn_hparams_reader *r);
/* Keys attention.sliding_window and attention.sliding_window_pattern, which must be there, the latter a list. */
runnel_status rn_arch_listed_windows(const struct rn_hparams_reader *r);
/* Keys rope.freq_base_swa and rope.dimension_count_swa, where the file has them. */
runnel_status rn_arch_local_dims(const struct rn_hparams_reader *r, struct rn_rope_hparams *local);
runnel_status rn_arch_spark_keys(const struct rn_hparams_reader *r);
runnel_status rn_arch_muse_keys(const struct rn_hparams_reader *r);
int16_t rn_arch_muse_block(struct rn_build *b, int16_t x);

/* bert.c */
runnel_status rn_arch_modern_bert_keys(const struct rn_hparams_reader *r);
runnel_status rn_arch_gemma_embedding_keys(const struct rn_hparams_reader *r);
int16_t rn_arch_modern_bert_block(struct rn_build *b, int16_t x);
void rn_arch_bert(struct rn_build *b);

/* deepseek.c */
runnel_status rn_arch_deepseek2_keys(const struct rn_hparams_reader *r);
runnel_status rn_arch_mistral4_keys(const struct rn_hparams_reader *r);
runnel_status rn_arch_deepseek32_keys(const struct rn_hparams_reader *r);
/* Keys attention.indexer.head_count, key_length and top_k. `rotated` numbers of a key of the indexer are rotated. */
runnel_status rn_arch_indexer_keys(const struct rn_hparams_reader *r, uint32_t rotated);
runnel_status rn_arch_glm_dsa_keys(const struct rn_hparams_reader *r);
runnel_status rn_arch_minicpm3_keys(const struct rn_hparams_reader *r);
runnel_status rn_arch_hy_v4_keys(const struct rn_hparams_reader *r);
runnel_status rn_arch_glm5_next_keys(const struct rn_hparams_reader *r);
runnel_status rn_arch_dots3_keys(const struct rn_hparams_reader *r);
runnel_status rn_arch_deepseek2_ocr_keys(const struct rn_hparams_reader *r);

/* deepseek4.c */
runnel_status rn_arch_deepseek4_keys(const struct rn_hparams_reader *r);
void rn_arch_deepseek4(struct rn_build *b);
/* Refuses. */
int16_t rn_arch_deepseek4_prediction(struct rn_build *b, int16_t x);

/* gemma.c */
runnel_status rn_arch_gemma2_keys(const struct rn_hparams_reader *r);
/* Blocks with a window are not stretched; by a base of their own (key rope.freq_base_swa), by the base of all. */
runnel_status rn_arch_local_base(const struct rn_hparams_reader *r);
runnel_status rn_arch_local_unstretched(const struct rn_hparams_reader *r);
runnel_status rn_arch_gemma3_keys(const struct rn_hparams_reader *r);
runnel_status rn_arch_gemma4_keys(const struct rn_hparams_reader *r);
runnel_status rn_arch_gemma3n_keys(const struct rn_hparams_reader *r);

/* gemma3n.c */
void rn_arch_gemma3n(struct rn_build *b);

/* delta.c */
/* Key attention.recurrent_layers says of each block whether it has no attention; without it the last of each
 * full_attention_interval, or else `interval`, has some, and prediction layers do. */
runnel_status rn_arch_recurrent_layers(const struct rn_hparams_reader *r, uint32_t interval);
runnel_status rn_arch_qwen3next_keys(const struct rn_hparams_reader *r);
/* What attention with a gate gives for normed, and what gated delta rules give whose result goes through a norm and
 * act of a gate. tiled as in op GATED_DELTA, *residual as in rn_build_last_rows. Both keep normed. */
int16_t rn_arch_gated_attention(struct rn_build *b, int16_t normed, int16_t *residual);
int16_t rn_arch_delta_rule(struct rn_build *b, int16_t normed, int16_t *residual, bool tiled, enum rn_activation act);
int16_t rn_arch_qwen3next_block(struct rn_build *b, int16_t x);
int16_t rn_arch_qwen35_block(struct rn_build *b, int16_t x);
runnel_status rn_arch_kimi_linear_keys(const struct rn_hparams_reader *r);
/* Key kda.gate_lower_bound, where the file has it, beside which numbers of ssm_a are negative. */
runnel_status rn_arch_kimi_bound(const struct rn_hparams_reader *r);
int16_t rn_arch_kimi_linear_block(struct rn_build *b, int16_t x);
/* What linear attention gives for normed. *residual as in rn_build_last_rows. Keeps normed. */
int16_t rn_arch_kimi_delta(struct rn_build *b, int16_t normed, int16_t *residual);
runnel_status rn_arch_bailingmoe3_keys(const struct rn_hparams_reader *r);

/* hyper.c */
/* Key hyper_connection.count, of `least` streams or more. */
runnel_status rn_arch_read_streams(const struct rn_hparams_reader *r, uint32_t least);
runnel_status rn_arch_hyper_keys(const struct rn_hparams_reader *r);
void rn_arch_hyper(struct rn_build *b);
/* The residual streams, which begin as copies of the embedding, behind all blocks; `block` releases x. */
int16_t rn_arch_stream_blocks(struct rn_build *b, int32_t embedding, int16_t (*block)(struct rn_build *b, int16_t x));
/* A model whose residual streams begin as copies of the embedding, go through blocks, `block`, which releases x, and
 * end as their sum by numbers of output_hc_*. */
void rn_arch_streams(struct rn_build *b, int16_t (*block)(struct rn_build *b, int16_t x));

/* manifold.c. before: what a half of the block begins with, and in *post and *mix what `behind` needs; keeps x. behind:
 * the streams, where the half has given y; releases all four. */
runnel_status rn_arch_manifold_keys(const struct rn_hparams_reader *r);
int16_t rn_arch_manifold_before(struct rn_build *b, int16_t x, const char *stem, const char *norm, int16_t *post,
                                int16_t *mix);
int16_t rn_arch_manifold_behind(struct rn_build *b, int16_t y, int16_t post, int16_t mix, int16_t x);
void rn_arch_glm5_next(struct rn_build *b);

/* hrm.c */
runnel_status rn_arch_hrm_keys(const struct rn_hparams_reader *r);
void rn_arch_hrm_text(struct rn_build *b);

/* kimi.c */
runnel_status rn_arch_kimi_k3_keys(const struct rn_hparams_reader *r);
void rn_arch_kimi_k3(struct rn_build *b);

/* lightning.c */
runnel_status rn_arch_minimax_01_keys(const struct rn_hparams_reader *r);
int16_t rn_arch_minimax_01_block(struct rn_build *b, int16_t x);

/* sparse.c */
runnel_status rn_arch_minimax_m3_keys(const struct rn_hparams_reader *r);

/* qwen4.c */
runnel_status rn_arch_qwen4_keys(const struct rn_hparams_reader *r);
void rn_arch_qwen4(struct rn_build *b);

/* lfm.c */
runnel_status rn_arch_lfm2_keys(const struct rn_hparams_reader *r);
runnel_status rn_arch_lfm2moe_keys(const struct rn_hparams_reader *r);
int16_t rn_arch_lfm2_block(struct rn_build *b, int16_t x);

/* rwkv.c */
runnel_status rn_arch_rwkv_keys(const struct rn_hparams_reader *r);
runnel_status rn_arch_rwkv6qwen2_keys(const struct rn_hparams_reader *r);
int16_t rn_arch_rwkv6_block(struct rn_build *b, int16_t x);
int16_t rn_arch_rwkv6qwen2_block(struct rn_build *b, int16_t x);
int16_t rn_arch_rwkv7_block(struct rn_build *b, int16_t x);
int16_t rn_arch_arwkv7_block(struct rn_build *b, int16_t x);

/* mamba.c */
runnel_status rn_arch_mamba_keys(const struct rn_hparams_reader *r);
runnel_status rn_arch_mamba2_keys(const struct rn_hparams_reader *r);
runnel_status rn_arch_falcon_h1_keys(const struct rn_hparams_reader *r);
runnel_status rn_arch_granitehybrid_keys(const struct rn_hparams_reader *r);
int16_t rn_arch_mamba_block(struct rn_build *b, int16_t x);
int16_t rn_arch_hybrid_block(struct rn_build *b, int16_t x);
int16_t rn_arch_falcon_h1_block(struct rn_build *b, int16_t x);
int16_t rn_arch_nemotron_h_block(struct rn_build *b, int16_t x);

/* gpt.c */
runnel_status rn_arch_bloom_keys(const struct rn_hparams_reader *r);
runnel_status rn_arch_jais_keys(const struct rn_hparams_reader *r);

/* experts.c */
runnel_status rn_arch_grok_keys(const struct rn_hparams_reader *r);
runnel_status rn_arch_arctic_keys(const struct rn_hparams_reader *r);
runnel_status rn_arch_smallthinker_keys(const struct rn_hparams_reader *r);
runnel_status rn_arch_grove_keys(const struct rn_hparams_reader *r);
runnel_status rn_arch_cohere2moe_keys(const struct rn_hparams_reader *r);
runnel_status rn_arch_mimo2_keys(const struct rn_hparams_reader *r);
runnel_status rn_arch_mellum_keys(const struct rn_hparams_reader *r);
runnel_status rn_arch_plamo2_keys(const struct rn_hparams_reader *r);
int16_t rn_arch_talkie_block(struct rn_build *b, int16_t x);
runnel_status rn_arch_afmoe_keys(const struct rn_hparams_reader *r);
runnel_status rn_arch_laguna_keys(const struct rn_hparams_reader *r);
runnel_status rn_arch_step35_keys(const struct rn_hparams_reader *r);
/* Key `rest`, a number for each block or one for all, to the double at `offset` of rn_layer_hparams. 0: no cut. */
runnel_status rn_arch_cuts(const struct rn_hparams_reader *r, const char *rest, size_t offset);
runnel_status rn_arch_maple_keys(const struct rn_hparams_reader *r);
void rn_arch_cohere2moe(struct rn_build *b);
int16_t rn_arch_arctic_block(struct rn_build *b, int16_t x);
int16_t rn_arch_smallthinker_block(struct rn_build *b, int16_t x);
int16_t rn_arch_grove_block(struct rn_build *b, int16_t x);

#endif
