/* Hyper-parameters: what the metadata of a decoder model says about its shape, read and checked once.
 *
 * Keys are "<architecture>.<rest>"; <rest> is what this file's comments name. Every value is in a
 * stated range afterwards, so that no builder divides by zero, overflows a product or allocates by
 * a number that a file merely claims. Keys: the GGUF specification and llama.cpp's use of it.
 *
 * Threads: plain values, one owner. */
#ifndef RN_MODEL_HPARAMS_H
#define RN_MODEL_HPARAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/alloc.h"
#include "base/status.h"
#include "model/activation.h"
#include "model/gating.h"
#include "model/gguf/gguf.h"
#include "model/grams.h"

struct rn_arch; /* arch/table.h */

enum {
    RN_MAX_LAYERS = 4096,
    RN_MAX_CONTEXT = 1 << 28, /* positions; 256 Mi, above every published model */
    RN_MAX_WIDTH = 1 << 24,   /* of any activation row */
    RN_MAX_HEADS = 4096,
    RN_MAX_HEAD_DIM = 1 << 16,
    RN_MAX_EXPERTS = 4096,
    RN_MAX_VOCAB = 1 << 26,
    RN_MAX_ROPES = 8,
    RN_NO_ROPE = -1
};

enum rn_rope_scaling { RN_ROPE_PLAIN, RN_ROPE_LINEAR, RN_ROPE_YARN, RN_ROPE_LLAMA3, RN_ROPE_LONGROPE };

/* What rope.* says; see rope.h for what it means. */
struct rn_rope_hparams {
    enum rn_rope_scaling scaling;
    uint32_t dims;                  /* dimension_count, even, <= key_length; default key_length */
    double base;                    /* freq_base; default 10000 */
    double factor;                  /* scaling.factor (older: scale_linear); 1: none */
    double original_tokens;         /* scaling.original_context_length; default context_length */
    double attention_factor;        /* scaling.attn_factor; default 1 */
    double yarn_attention;          /* scaling.yarn_attn_factor, in place of YaRN's growth; 0: absent */
    double ext_factor;              /* scaling.yarn_ext_factor; default 1 */
    double beta_fast, beta_slow;    /* scaling.yarn_beta_*; default 32 and 1 turns */
    double log_multiplier;          /* scaling.yarn_log_multiplier; 0: absent */
    double low_factor, high_factor; /* scaling.low_freq_factor, high_freq_factor (llama3); default 1 and 4 */
    bool neox;                      /* pairs: see rn_rope */
    uint32_t sections[4];           /* dimension_sections with RN_ARCH_SECTIONS: pairs of each axis; all 0: none */
    bool interleaved;               /* pairs of the first three axes take turns */
    int32_t shift;                  /* positions: see rn_rope */
    uint32_t divisor_dims;          /* twice the number of divisors in the file; 0: dims */
    bool back;                      /* the other way */
    bool divisors; /* the file's tensors of divisors count for it; only where dims are those of the first */
};

/* What may differ from block to block. Those with a key are a scalar in the file or an array of block_count; an
 * architecture's own reader may change any. */
struct rn_layer_hparams {
    uint32_t heads;               /* attention.head_count; 0: a block without attention (RN_ARCH_GAPS) */
    uint32_t kv_heads;            /* attention.head_count_kv, divides heads; default heads; 0 exactly where heads is */
    uint32_t feed_forward;        /* feed_forward_length; 0 where absent */
    uint32_t experts_used;        /* expert_used_count, where there are experts; 0 in an array: this block has none */
    uint32_t expert_feed_forward; /* expert_feed_forward_length, likewise; 0 where absent */
    uint32_t k_dim, v_dim; /* attention.key_length, value_length; default embedding / heads of the first block that
                               has attention */
    int32_t rope;          /* index of rn_hparams.ropes, or RN_NO_ROPE */
    uint32_t window;       /* as in rn_op; 0 */
    bool tempered;         /* queries have rn_hparams.temperature */
    uint32_t per;          /* attention.compress_ratios: see arch/deepseek4.c; 0 */
    bool chooses;          /* its indexer chooses; else attention looks at what that of an earlier block has chosen */
    uint32_t compress;     /* positions of a block that it chooses: attention.compress_ratios; 0: it does not */
    int32_t kv_from;       /* block whose cache is seen instead of one of its own; -1: none */
    int32_t cache;         /* the number of its cache in the plan, while that is built */
    double sparsity;       /* of gates: as scale in op TAIL; -inf: all count */
    double expert_cut, shared_cut; /* of op GATE's values in experts, and in all other feed-forwards; 0: not cut */
    double attention_scale;        /* attention.scale; default 1 / sqrt(k_dim) */
    double alpha_n, alpha_p, beta, act_eps; /* of op XIELU: keys xielu.* with RN_ARCH_XIELU */
};

/* Attention by a latent (multi-head latent attention, arXiv 2405.04434), of all blocks that have attention: see
 * latent.c. What the cache has of such a block is one head of rank + rope_dim keys, the first `rank` of which are its
 * values; so kv_heads is 1, k_dim rank + rope_dim and v_dim rank. */
struct rn_latent_hparams {
    uint32_t rank;     /* attention.kv_lora_rank; 0: the architecture has ordinary attention */
    uint32_t q_rank;   /* attention.q_lora_rank, of blocks without a tensor attn_q; 0 where absent */
    uint32_t k_dim;    /* of each head: attention.key_length_mla, or key_length in files without that */
    uint32_t rope_dim; /* the last of these, which rotate and all heads share: rope.dimension_count */
    uint32_t v_dim;    /* of each head: attention.value_length_mla, or value_length */
    bool key_norm;     /* attn_k_norm: RMS norm of the rotated part of keys, before it is rotated */
};

/* What chooses the positions that attention looks at (DeepSeek-V3.2-Exp's report): see indexer.c. */
struct rn_indexer_hparams {
    uint32_t most;  /* attention.indexer.top_k: positions that are chosen; 0: attention looks at all */
    uint32_t heads; /* attention.indexer.head_count */
    uint32_t k_dim; /* of each head, and of the one key: attention.indexer.key_length */
    uint32_t rope;  /* index of rn_hparams.ropes: the first dimensions of each ... */
    bool behind;    /* ... or the last */
    uint32_t block; /* positions that are chosen together: attention.indexer.block_size, .kpool,
                       attention.compress_ratios; 0: each by itself */
    uint32_t local; /* attention.indexer.local_blocks: of these the last are always chosen; 0: see op CHOOSE */
};

/* Of attention: queries times 1 + scale * ln(1 + floor((position + ahead) / span)). */
struct rn_temperature {
    double scale;  /* attention.temperature_scale; 0: none */
    uint32_t span; /* attention.temperature_length; 0 or absent: the original context of the first rope */
    uint32_t ahead;
};

/* Linear attention and short convolutions; 0 where a row's reader reads no such thing. */
struct rn_linear_hparams {
    uint32_t taps;            /* ssm.conv_kernel, shortconv.l_cache */
    uint32_t heads, kv_heads; /* heads of the state, and of queries and keys: see the row's reader */
    uint32_t k_dim, v_dim;    /* of a head */
    double least;             /* kda.gate_lower_bound, where decays have one; 0 */
    bool mirrored;            /* what the file has beside that bound is negative */
    double unit_eps;          /* of heads of queries and keys, which have one length; 0: rms_eps */
    uint32_t halve_every;     /* rescale_every_n_layers: behind each so many blocks rows are halved */
};

/* State space layers: keys ssm.*, where a row's reader asks for them. */
struct rn_ssm_hparams {
    uint32_t taps;      /* conv_kernel */
    uint32_t inner;     /* inner_size: a multiple of heads */
    uint32_t state;     /* state_size */
    uint32_t rank;      /* time_step_rank where by_channel */
    uint32_t heads;     /* time_step_rank, or inner where by_channel: a multiple of groups */
    uint32_t groups;    /* group_count; 1 where by_channel */
    bool by_channel;    /* the state of each channel decays by numbers of its own */
    bool bare_norms;    /* dt_b_c_rms: dt, B and C are normed, also where the file has no weights for that */
    bool may_lack_norm; /* ssm_norm is only where the file has it */
    bool in_turns;      /* PLaMo 2: z and x take turns by head, and dt, B and C are what ssm_x makes of x */
};

/* Gates of Kimi K3: see arch/kimi.c. */
struct rn_situ_hparams {
    double beta, linear_beta; /* activation.situ_beta, 0: other gates; activation.situ_linear_beta, 0: none */
};

/* Residual streams side by side: see arch/hyper.c, arch/manifold.c, arch/qwen4.c. */
struct rn_hyper_hparams {
    double eps, magnitude; /* hyper_connection.epsilon, .magnitude */
    uint32_t rank;         /* hyper_connection.low_rank: see arch/qwen4.c */
    uint32_t turns;        /* hyper_connection.sinkhorn_iterations */
};

/* Embeddings of n-grams, which one block mixes into the streams: see arch/qwen4.c. */
struct rn_gram_hparams {
    struct rn_grams grams; /* ple.ngram_size, .layer_multipliers, .head_offsets, .head_vocab_sizes, .eos_token_id */
    uint32_t block;        /* the one number of ple.layers */
    uint32_t width;        /* of a row of the table: embedding_length_per_layer_input */
    uint32_t taps;         /* ple.conv_kernel */
};

/* Attention to positions and to blocks of them: see arch/deepseek4.c. */
struct rn_far_hparams {
    uint32_t q_rank;       /* attention.q_lora_rank */
    uint32_t groups, rank; /* attention.output_group_count, .output_lora_rank */
    uint32_t hashed;       /* hash_layer_count: so many blocks have a table of each token's experts */
};

/* Two stacks of blocks: see arch/hrm.c. */
struct rn_stack_hparams {
    uint32_t blocks;    /* of each: hrm.layers_per_stack; 0: there are none */
    uint32_t high, low; /* hrm.h_cycles, hrm.l_cycles */
};

struct rn_hparams {
    const char *architecture;  /* borrowed from the table row */
    uint32_t n_layers;         /* block_count */
    uint32_t loops;            /* how often x goes through all of them: num_loops with RN_ARCH_LOOPS; 1 */
    bool loop_norm;            /* the final norm stands behind each of these */
    uint32_t n_nextn;          /* of them, the last ones: nextn_predict_layers, which predict tokens further on */
    uint32_t trained_tokens;   /* context_length */
    uint32_t embedding;        /* embedding_length */
    double rms_eps, layer_eps; /* attention.layer_norm_rms_epsilon, layer_norm_epsilon; -1: absent */
    bool causal;               /* attention.causal; default true, with RN_ARCH_BIDIRECTIONAL false; false only where
                                  attention can see both ways */
    uint32_t barred_from, barred_to; /* tokens that are never given: [from, to) */
    double softcap;                  /* of attention's scores: attn_logit_softcapping with RN_ARCH_SOFTCAPS; 0: off */
    double final_softcap;            /* of logits: final_logit_softcapping with RN_ARCH_SOFTCAPS; 0: off */
    double clamp;                    /* attention.clamp_kqv with RN_ARCH_CLAMP; 0: off */
    double alibi;                    /* attention.max_alibi_bias with RN_ARCH_ALIBI; 0: off */
    double embedding_scale, residual_scale, logit_scale; /* factors, see RN_ARCH_SCALES; 1 */
    bool parallel;                                       /* attention and feed-forward begin with the same row */
    uint32_t scores_pooling;           /* what a head reads where no key says it; 0: what attention makes of a text */
    enum rn_activation scores_act;     /* between its two products */
    enum rn_activation act;            /* of a dense feed-forward: the row's, or what its reader finds */
    struct rn_temperature temperature; /* with RN_ARCH_TEMPERATURE */
    bool unit_heads;                   /* with RN_ARCH_UNIT_HEADS */
    uint32_t experts;                  /* expert_count; 0 for dense models */
    uint32_t expert_groups, expert_groups_used; /* expert_group_count, expert_group_used_count; 0: no groups */
    uint32_t experts_per_chunk;                 /* GroveMoE: experts that share a small one; 0: none do ... */
    double chunk_scale;                         /* ... and what these count */
    bool cut_first;                             /* cuts of gates stand before their activation */
    double attention_out_scale;                 /* of what attention's last product gives: 1 */
    uint32_t streams;                           /* parallel residual streams: altup.num_inputs of gemma3n,
                                                            hyper_connection.count */
    uint32_t per_layer;                         /* embedding_length_per_layer_input with RN_ARCH_PER_LAYER; 0: none */
    enum rn_gating experts_gating;              /* the row, and with RN_EXPERTS_KEYS expert_gating_func */
    bool experts_normalised;                    /* as in rn_op: the row, and with RN_EXPERTS_KEYS expert_weights_norm */
    double experts_scale;                       /* expert_weights_scale with RN_EXPERTS_SCALE; 1 */
    struct rn_latent_hparams latent, local_latent; /* the second of blocks with a window, where it has a rank */
    struct rn_stack_hparams stack;
    struct rn_hyper_hparams hyper;
    struct rn_gram_hparams grams;
    struct rn_far_hparams far;
    struct rn_situ_hparams situ;
    uint32_t keep_every; /* attn_res.block_size: see arch/kimi.c; 0: nothing is kept */
    struct rn_linear_hparams linear;
    struct rn_indexer_hparams indexer;
    uint32_t n_ropes; /* the first one is what the keys say; none with RN_ARCH_NO_ROPE */
    struct rn_ssm_hparams ssm;
    struct rn_rope_hparams ropes[RN_MAX_ROPES];
    struct rn_layer_hparams *layers; /* [n_layers] */
};

/* Reads the keys of an architecture, those of its own reader last. FORMAT or UNSUPPORTED name the key; NO_MEMORY. On
 * failure there is nothing to free. */
runnel_status rn_hparams_read(struct rn_heap *heap, const struct rn_gguf *gguf, const struct rn_arch *arch,
                              struct rn_hparams *hparams, runnel_error *error);
void rn_hparams_fini(struct rn_heap *heap, struct rn_hparams *hparams);

/* hparams_flags.c: the keys that the flags of a row ask for, behind all others but those of the row's own reader. */
struct rn_hparams_reader;
runnel_status rn_hparams_flags(const struct rn_hparams_reader *r, const struct rn_arch *arch);

/* "<architecture>.<rest>" in `out`. */
#define RN_KEY_BYTES 128
void rn_hparams_key(const struct rn_hparams *hparams, const char *rest, char out[RN_KEY_BYTES]);

/* ---- For an architecture's own reader ---- */

struct rn_hparams_reader {
    const struct rn_gguf *gguf;
    struct rn_hparams *hparams;
    runnel_error *error;
};

/* The value of a key; what is absent and not required leaves *value as it is. FORMAT names the key. */
runnel_status rn_hparams_u32(const struct rn_hparams_reader *r, const char *rest, bool required, uint64_t min,
                             uint64_t max, uint32_t *value);
runnel_status rn_hparams_f64(const struct rn_hparams_reader *r, const char *rest, double min, double max,
                             double *value);
bool rn_hparams_has(const struct rn_hparams_reader *r, const char *rest);

/* One value for all blocks or an array with one for each, to the uint32_t at `offset` in rn_layer_hparams. */
runnel_status rn_hparams_layers(const struct rn_hparams_reader *r, const char *rest, bool required, uint32_t min,
                                uint32_t max, size_t offset);

/* Key attention.sliding_window, or `window` where it is missing, as the window of all blocks but the last of each
 * `period`: of 1 none has it, of 0 all.
 * Key attention.sliding_window_pattern, another period or a truth value for each block, counts before it. local_rope:
 * then only blocks with a window rotate, if there are any. */
runnel_status rn_hparams_windows(const struct rn_hparams_reader *r, uint32_t period, uint32_t window, bool local_rope);

/* Of that what key attention.sliding_window_pattern or the period says, with this window. */
runnel_status rn_hparams_pattern(const struct rn_hparams_reader *r, uint32_t period, uint32_t window);

/* One more rope, of the blocks that have a window and rotate. UNSUPPORTED as rn_hparams_add_rope. */
runnel_status rn_hparams_local_rope(const struct rn_hparams_reader *r, const struct rn_rope_hparams *local);
/* Blocks from `from` on see the cache of the last block of their kind before it: those with a window that of from - 2,
 * the others that of from - 1. FORMAT names `rest`, the key that says so: these are of another kind or size. */
runnel_status rn_hparams_share_kv(const struct rn_hparams_reader *r, const char *rest, uint32_t from);

/* "key ... <why>" as the error; returns status. */
runnel_status rn_hparams_bad(const struct rn_hparams_reader *r, runnel_status status, const char *rest,
                             const char *why);

/* The keys of rn_hparams.latent, and what they say of each block. Scores are divided by the root of latent.k_dim. */
runnel_status rn_hparams_latent(const struct rn_hparams_reader *r);

/* One more rope; its index in *rope. UNSUPPORTED: there are RN_MAX_ROPES. */
runnel_status rn_hparams_add_rope(const struct rn_hparams_reader *r, const struct rn_rope_hparams *more, int32_t *rope);

#endif
