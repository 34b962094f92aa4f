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
#include "model/gguf.h"

struct rn_arch; /* arch/table.h */

enum {
    RN_MAX_LAYERS = 4096,
    RN_MAX_CONTEXT = 1 << 28, /* positions; 256 Mi, above every published model */
    RN_MAX_WIDTH = 1 << 24,   /* of any activation row */
    RN_MAX_HEADS = 4096,
    RN_MAX_HEAD_DIM = 1 << 16,
    RN_MAX_EXPERTS = 4096,
    RN_MAX_VOCAB = 1 << 26,
    RN_MAX_ROPES = 4,
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
    double attention_factor;        /* scaling.attn_factor * scaling.yarn_attn_factor; default 1 */
    double ext_factor;              /* scaling.yarn_ext_factor; default 1 */
    double beta_fast, beta_slow;    /* scaling.yarn_beta_*; default 32 and 1 turns */
    double log_multiplier;          /* scaling.yarn_log_multiplier; 0: absent */
    double low_factor, high_factor; /* scaling.low_freq_factor, high_freq_factor (llama3); default 1 and 4 */
    bool divisors; /* the file's tensors of divisors count for it; only where dims are those of the first */
};

/* What may differ from block to block. Those with a key are a scalar in the file or an array of block_count; an
 * architecture's own reader may change any. */
struct rn_layer_hparams {
    uint32_t heads;         /* attention.head_count; 0: a block without attention (RN_ARCH_GAPS) */
    uint32_t kv_heads;      /* attention.head_count_kv, divides heads; default heads; 0 exactly where heads is */
    uint32_t feed_forward;  /* feed_forward_length; 0 where absent */
    uint32_t k_dim, v_dim;  /* attention.key_length, value_length; default embedding / heads of the first block that
                               has attention */
    int32_t rope;           /* index of rn_hparams.ropes, or RN_NO_ROPE */
    uint32_t window;        /* as in rn_op; 0 */
    double attention_scale; /* attention.scale; default 1 / sqrt(k_dim) */
};

struct rn_hparams {
    const char *architecture;       /* borrowed from the table row */
    uint32_t n_layers;              /* block_count */
    uint32_t n_nextn;               /* of them, the last ones: nextn_predict_layers, which predict tokens further on */
    uint32_t trained_tokens;        /* context_length */
    uint32_t embedding;             /* embedding_length */
    double rms_eps, layer_eps;      /* attention.layer_norm_rms_epsilon, layer_norm_epsilon; -1: absent */
    bool causal;                    /* attention.causal; default true, with RN_ARCH_BIDIRECTIONAL false */
    double softcap;                 /* of attention's scores; 0: off */
    double temperature_scale;       /* attention.temperature_scale; 0: absent */
    uint32_t experts, experts_used; /* expert_count, expert_used_count; 0 for dense models */
    uint32_t expert_feed_forward;   /* expert_feed_forward_length; 0 where absent */
    uint32_t n_ropes;               /* the first one is what the keys say; none with RN_ARCH_NO_ROPE */
    struct rn_rope_hparams ropes[RN_MAX_ROPES];
    struct rn_layer_hparams *layers; /* [n_layers] */
};

/* Reads the keys of an architecture, those of its own reader last. FORMAT or UNSUPPORTED name the key; NO_MEMORY. On
 * failure there is nothing to free. */
runnel_status rn_hparams_read(struct rn_heap *heap, const struct rn_gguf *gguf, const struct rn_arch *arch,
                              struct rn_hparams *hparams, runnel_error *error);
void rn_hparams_fini(struct rn_heap *heap, struct rn_hparams *hparams);

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

/* "key ... <why>" as the error; returns status. */
runnel_status rn_hparams_bad(const struct rn_hparams_reader *r, runnel_status status, const char *rest,
                             const char *why);

/* One more rope; its index in *rope. UNSUPPORTED: there are RN_MAX_ROPES. */
runnel_status rn_hparams_add_rope(const struct rn_hparams_reader *r, const struct rn_rope_hparams *more, int32_t *rope);

#endif
