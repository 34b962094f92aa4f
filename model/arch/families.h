/* What the rows of the table consist of beside flags: readers of keys that are not common to all, and builders. */
#ifndef RN_MODEL_ARCH_FAMILIES_H
#define RN_MODEL_ARCH_FAMILIES_H

#include <stdint.h>

#include "base/status.h"

struct rn_build;
struct rn_hparams_reader;

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

/* deepseek.c */
runnel_status rn_arch_deepseek2_keys(const struct rn_hparams_reader *r);
runnel_status rn_arch_mistral4_keys(const struct rn_hparams_reader *r);
runnel_status rn_arch_deepseek32_keys(const struct rn_hparams_reader *r);
runnel_status rn_arch_glm_dsa_keys(const struct rn_hparams_reader *r);
runnel_status rn_arch_minicpm3_keys(const struct rn_hparams_reader *r);

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
runnel_status rn_arch_qwen3next_keys(const struct rn_hparams_reader *r);
int16_t rn_arch_qwen3next_block(struct rn_build *b, int16_t x);
int16_t rn_arch_qwen35_block(struct rn_build *b, int16_t x);
runnel_status rn_arch_kimi_linear_keys(const struct rn_hparams_reader *r);
int16_t rn_arch_kimi_linear_block(struct rn_build *b, int16_t x);

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
runnel_status rn_arch_nemotron_h_moe_keys(const struct rn_hparams_reader *r);
runnel_status rn_arch_plamo2_keys(const struct rn_hparams_reader *r);
int16_t rn_arch_talkie_block(struct rn_build *b, int16_t x);
runnel_status rn_arch_afmoe_keys(const struct rn_hparams_reader *r);
runnel_status rn_arch_laguna_keys(const struct rn_hparams_reader *r);
runnel_status rn_arch_step35_keys(const struct rn_hparams_reader *r);
void rn_arch_cohere2moe(struct rn_build *b);
int16_t rn_arch_arctic_block(struct rn_build *b, int16_t x);
int16_t rn_arch_smallthinker_block(struct rn_build *b, int16_t x);
int16_t rn_arch_grove_block(struct rn_build *b, int16_t x);

#endif
