/* Reading and checking the hyper-parameters: see hparams.h. */
#include "model/hparams.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* What every reader below needs, so that a key is one short line. */
struct reader {
    const struct rn_gguf *gguf;
    const struct rn_hparams *hparams;
    runnel_error *error;
};

void rn_hparams_key(const struct rn_hparams *hparams, const char *rest, char out[RN_KEY_BYTES])
{
    snprintf(out, RN_KEY_BYTES, "%s.%s", hparams->architecture, rest);
}

static runnel_status get_u32(const struct reader *r, const char *rest, bool required, uint64_t min, uint64_t max,
                             uint32_t *value)
{
    char key[RN_KEY_BYTES];
    uint64_t wide = *value;
    runnel_status status;

    rn_hparams_key(r->hparams, rest, key);
    status = rn_gguf_get_u64(r->gguf, key, required, min, max, &wide, r->error);
    if (status == RUNNEL_OK)
        *value = (uint32_t)wide;
    return status;
}

static runnel_status get_f64(const struct reader *r, const char *rest, double min, double max, double *value)
{
    char key[RN_KEY_BYTES];

    rn_hparams_key(r->hparams, rest, key);
    return rn_gguf_get_f64(r->gguf, key, false, min, max, value, r->error);
}

static bool has(const struct reader *r, const char *rest)
{
    char key[RN_KEY_BYTES];

    rn_hparams_key(r->hparams, rest, key);
    return rn_gguf_find(r->gguf, key) != NULL;
}

static runnel_status bad(const struct reader *r, runnel_status status, const char *rest, const char *why)
{
    return rn_error_set(r->error, status, "%s: key %s.%s %s", rn_gguf_path(r->gguf), r->hparams->architecture, rest,
                        why);
}

/* One value for all layers or an array of one for each; `offset` is the field in rn_layer_hparams. */
static runnel_status get_layers(const struct reader *r, const char *rest, bool required, uint32_t min, uint32_t max,
                                struct rn_layer_hparams *layers, size_t offset)
{
    const struct rn_gguf_entry *entry;
    char key[RN_KEY_BYTES];
    uint32_t i, same = 0, n = r->hparams->n_layers;
    runnel_status status;
    int64_t value;

    rn_hparams_key(r->hparams, rest, key);
    entry = rn_gguf_find(r->gguf, key);
    if (entry == NULL && !required)
        return RUNNEL_OK;
    if (entry == NULL || entry->type != RN_GGUF_ARRAY) {
        status = get_u32(r, rest, required, min, max, &same);
        for (i = 0; status == RUNNEL_OK && i < n; i++)
            memcpy((char *)&layers[i] + offset, &same, sizeof same);
        return status;
    }
    status = rn_gguf_get_array(r->gguf, key, true, RN_GGUF_U32, &entry, r->error);
    if (status != RUNNEL_OK)
        return status;
    if (entry->count < n)
        return bad(r, RUNNEL_FORMAT, rest, "has fewer elements than there are blocks");
    for (i = 0; i < n; i++) {
        value = rn_gguf_item_i64(entry, i);
        if (value < (int64_t)min || value > (int64_t)max)
            return bad(r, RUNNEL_FORMAT, rest, "has an element out of range");
        same = (uint32_t)value;
        memcpy((char *)&layers[i] + offset, &same, sizeof same);
    }
    return RUNNEL_OK;
}

static runnel_status read_layers(const struct reader *r, struct rn_layer_hparams *layers)
{
    const size_t heads = offsetof(struct rn_layer_hparams, heads);
    const size_t kv_heads = offsetof(struct rn_layer_hparams, kv_heads);
    const size_t feed_forward = offsetof(struct rn_layer_hparams, feed_forward);
    runnel_status status;
    uint32_t i;

    status = get_layers(r, "attention.head_count", true, 1, RN_MAX_HEADS, layers, heads);
    for (i = 0; status == RUNNEL_OK && i < r->hparams->n_layers; i++)
        layers[i].kv_heads = layers[i].heads;
    if (status == RUNNEL_OK)
        status = get_layers(r, "attention.head_count_kv", false, 1, RN_MAX_HEADS, layers, kv_heads);
    for (i = 0; status == RUNNEL_OK && i < r->hparams->n_layers; i++)
        if (layers[i].heads % layers[i].kv_heads != 0)
            status = bad(r, RUNNEL_FORMAT, "attention.head_count_kv", "does not divide the number of heads");
    if (status == RUNNEL_OK)
        status = get_layers(r, "feed_forward_length", false, 1, RN_MAX_WIDTH, layers, feed_forward);
    return status;
}

/* Sizes of a head. Without keys they are the embedding's share of one head. */
static runnel_status read_heads(const struct reader *r, struct rn_hparams *h)
{
    runnel_status status;
    uint32_t i;

    if (h->embedding % h->layers[0].heads == 0)
        h->k_dim = h->v_dim = h->embedding / h->layers[0].heads;
    else if (!has(r, "attention.key_length") || !has(r, "attention.value_length"))
        return bad(r, RUNNEL_FORMAT, "attention.head_count", "does not divide embedding_length");
    status = get_u32(r, "attention.key_length", false, 1, RN_MAX_HEAD_DIM, &h->k_dim);
    if (status == RUNNEL_OK)
        status = get_u32(r, "attention.value_length", false, 1, RN_MAX_HEAD_DIM, &h->v_dim);
    for (i = 0; status == RUNNEL_OK && i < h->n_layers; i++)
        if ((uint64_t)h->layers[i].heads * (h->k_dim > h->v_dim ? h->k_dim : h->v_dim) > RN_MAX_WIDTH)
            status = bad(r, RUNNEL_FORMAT, "attention.head_count", "makes rows of more than 16 Mi values");
    h->attention_scale = 1 / sqrt((double)h->k_dim);
    if (status == RUNNEL_OK)
        status = get_f64(r, "attention.scale", 1e-9, 1e9, &h->attention_scale);
    return status;
}

static runnel_status read_experts(const struct reader *r, struct rn_hparams *h)
{
    uint32_t groups = 1;
    runnel_status status;

    status = get_u32(r, "expert_count", false, 0, RN_MAX_EXPERTS, &h->experts);
    if (status == RUNNEL_OK && h->experts > 0)
        status = get_u32(r, "expert_used_count", true, 1, h->experts, &h->experts_used);
    if (status == RUNNEL_OK && h->experts > 0)
        status = get_u32(r, "expert_feed_forward_length", false, 1, RN_MAX_WIDTH, &h->expert_feed_forward);
    if (status == RUNNEL_OK && h->experts > 0)
        status = get_u32(r, "expert_group_count", false, 0, RN_MAX_EXPERTS, &groups);
    if (status == RUNNEL_OK && groups > 1)
        status = bad(r, RUNNEL_UNSUPPORTED, "expert_group_count", "asks for routing in groups");
    return status;
}

static runnel_status read_scaling(const struct reader *r, struct rn_rope_hparams *rope)
{
    static const struct {
        const char *name;
        enum rn_rope_scaling scaling;
    } names[] = {{"none", RN_ROPE_PLAIN},    {"linear", RN_ROPE_LINEAR},     {"yarn", RN_ROPE_YARN},
                 {"llama3", RN_ROPE_LLAMA3}, {"longrope", RN_ROPE_LONGROPE}, {"su", RN_ROPE_LONGROPE}};
    struct rn_view name = {"linear", 6}; /* what a file means that says nothing; its factor is then 1 */
    char key[RN_KEY_BYTES];
    runnel_status status;
    size_t i;

    rn_hparams_key(r->hparams, "rope.scaling.type", key);
    status = rn_gguf_get_string(r->gguf, key, false, &name, r->error);
    if (status != RUNNEL_OK)
        return status;
    for (i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strlen(names[i].name) == name.n && memcmp(names[i].name, name.bytes, name.n) == 0) {
            rope->scaling = names[i].scaling;
            return RUNNEL_OK;
        }
    }
    return rn_error_set(r->error, RUNNEL_UNSUPPORTED, "%s: key %s: scaling '%.*s' is not known", rn_gguf_path(r->gguf),
                        key, (int)(name.n < 40 ? name.n : 40), name.bytes);
}

/* 0 stands for "no scaling" in some files. */
static runnel_status read_factor(const struct reader *r, struct rn_rope_hparams *rope)
{
    const char *rest = has(r, "rope.scaling.factor") ? "rope.scaling.factor" : "rope.scale_linear";
    runnel_status status;

    rope->factor = 0;
    status = get_f64(r, rest, 0, 1e9, &rope->factor);
    if (status == RUNNEL_OK && rope->factor != 0 && rope->factor < 1e-9)
        return bad(r, RUNNEL_FORMAT, rest, "is out of range");
    if (rope->factor == 0 || rope->scaling == RN_ROPE_PLAIN)
        rope->factor = 1;
    return status;
}

static runnel_status read_floats(const struct reader *r, struct rn_rope_hparams *rope)
{
    double yarn_attention = 1;
    const struct {
        const char *rest;
        double min, max;
        double *value;
    } keys[] = {
        {"rope.freq_base", 1e-3, 1e18, &rope->base},
        {"rope.scaling.attn_factor", 1e-6, 1e6, &rope->attention_factor},
        {"rope.scaling.yarn_attn_factor", 1e-6, 1e6, &yarn_attention},
        {"rope.scaling.yarn_ext_factor", 0, 1, &rope->ext_factor},
        {"rope.scaling.yarn_beta_fast", 1e-6, 1e9, &rope->beta_fast},
        {"rope.scaling.yarn_beta_slow", 1e-6, 1e9, &rope->beta_slow},
        {"rope.scaling.yarn_log_multiplier", 0, 1e3, &rope->log_multiplier},
        {"rope.scaling.low_freq_factor", 1e-6, 1e9, &rope->low_factor},
        {"rope.scaling.high_freq_factor", 1e-6, 1e9, &rope->high_factor},
    };
    runnel_status status = RUNNEL_OK;
    size_t i;

    for (i = 0; status == RUNNEL_OK && i < sizeof keys / sizeof keys[0]; i++)
        status = get_f64(r, keys[i].rest, keys[i].min, keys[i].max, keys[i].value);
    rope->attention_factor *= yarn_attention;
    return status;
}

static runnel_status read_rope(const struct reader *r, struct rn_hparams *h)
{
    struct rn_rope_hparams *rope = &h->rope;
    uint32_t original = h->trained_tokens;
    runnel_status status;

    *rope = (struct rn_rope_hparams){.dims = h->k_dim,
                                     .base = 10000,
                                     .attention_factor = 1,
                                     .ext_factor = 1,
                                     .beta_fast = 32,
                                     .beta_slow = 1,
                                     .low_factor = 1,
                                     .high_factor = 4};
    status = get_u32(r, "rope.dimension_count", false, 2, h->k_dim, &rope->dims);
    if (status == RUNNEL_OK && rope->dims % 2 != 0)
        status = bad(r, RUNNEL_FORMAT, "rope.dimension_count", "is odd");
    if (status == RUNNEL_OK)
        status = get_u32(r, "rope.scaling.original_context_length", false, 1, RN_MAX_CONTEXT, &original);
    rope->original_tokens = original;
    if (status == RUNNEL_OK)
        status = read_scaling(r, rope);
    if (status == RUNNEL_OK)
        status = read_factor(r, rope);
    if (status == RUNNEL_OK)
        status = read_floats(r, rope);
    if (status == RUNNEL_OK && rope->scaling == RN_ROPE_YARN && rope->base <= 1)
        status = bad(r, RUNNEL_FORMAT, "rope.freq_base", "is not above 1, which YaRN needs");
    if (status == RUNNEL_OK && rope->scaling == RN_ROPE_LLAMA3 && rope->high_factor <= rope->low_factor)
        status = bad(r, RUNNEL_FORMAT, "rope.scaling.high_freq_factor", "is not above low_freq_factor");
    return status;
}

/* This engine computes next tokens; a file that was trained to see the future is something else. */
static runnel_status read_causal(const struct reader *r)
{
    char key[RN_KEY_BYTES];
    bool causal = true;
    runnel_status status;

    rn_hparams_key(r->hparams, "attention.causal", key);
    status = rn_gguf_get_bool(r->gguf, key, false, &causal, r->error);
    if (status == RUNNEL_OK && !causal)
        status = bad(r, RUNNEL_UNSUPPORTED, "attention.causal", "asks for attention in both directions");
    return status;
}

static runnel_status read_all(const struct reader *r, struct rn_heap *heap, struct rn_hparams *h)
{
    runnel_status status;

    status = get_u32(r, "block_count", true, 1, RN_MAX_LAYERS, &h->n_layers);
    if (status == RUNNEL_OK)
        status = get_u32(r, "nextn_predict_layers", false, 0, h->n_layers - 1, &h->n_nextn);
    if (status == RUNNEL_OK)
        status = get_u32(r, "context_length", true, 1, RN_MAX_CONTEXT, &h->trained_tokens);
    if (status == RUNNEL_OK)
        status = get_u32(r, "embedding_length", true, 1, RN_MAX_WIDTH, &h->embedding);
    if (status == RUNNEL_OK)
        status = get_f64(r, "attention.layer_norm_rms_epsilon", 0, 1, &h->rms_eps);
    if (status == RUNNEL_OK)
        status = get_f64(r, "attention.layer_norm_epsilon", 0, 1, &h->layer_eps);
    if (status == RUNNEL_OK)
        status = read_causal(r);
    if (status != RUNNEL_OK)
        return status;
    h->layers = rn_calloc(heap, h->n_layers, sizeof *h->layers);
    if (h->layers == NULL)
        return rn_error_set(r->error, RUNNEL_NO_MEMORY, "no memory for the plan of %s", rn_gguf_path(r->gguf));
    status = read_layers(r, h->layers);
    if (status == RUNNEL_OK)
        status = read_heads(r, h);
    if (status == RUNNEL_OK)
        status = read_experts(r, h);
    if (status == RUNNEL_OK)
        status = read_rope(r, h);
    return status;
}

runnel_status rn_hparams_read(struct rn_heap *heap, const struct rn_gguf *gguf, const char *architecture,
                              struct rn_hparams *hparams, runnel_error *error)
{
    const struct reader reader = {gguf, hparams, error};
    runnel_status status;

    *hparams = (struct rn_hparams){.architecture = architecture, .rms_eps = -1, .layer_eps = -1};
    status = read_all(&reader, heap, hparams);
    if (status != RUNNEL_OK)
        rn_hparams_fini(heap, hparams);
    return status;
}

void rn_hparams_fini(struct rn_heap *heap, struct rn_hparams *hparams)
{
    rn_free(heap, hparams->layers);
    hparams->layers = NULL;
}
