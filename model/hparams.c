/* Reading and checking the hyper-parameters: see hparams.h. */
#include "model/hparams.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/one_line.h"
#include "model/arch/table.h"

void rn_hparams_key(const struct rn_hparams *hparams, const char *rest, char out[RN_KEY_BYTES])
{
    snprintf(out, RN_KEY_BYTES, "%s.%s", hparams->architecture, rest);
}

runnel_status rn_hparams_u32(const struct rn_hparams_reader *r, const char *rest, bool required, uint64_t min,
                             uint64_t max, uint32_t *value)
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

runnel_status rn_hparams_f64(const struct rn_hparams_reader *r, const char *rest, double min, double max, double *value)
{
    char key[RN_KEY_BYTES];

    rn_hparams_key(r->hparams, rest, key);
    return rn_gguf_get_f64(r->gguf, key, false, min, max, value, r->error);
}

bool rn_hparams_has(const struct rn_hparams_reader *r, const char *rest)
{
    char key[RN_KEY_BYTES];

    rn_hparams_key(r->hparams, rest, key);
    return rn_gguf_find(r->gguf, key) != NULL;
}

runnel_status rn_hparams_bad(const struct rn_hparams_reader *r, runnel_status status, const char *rest, const char *why)
{
    return rn_error_set(r->error, status, "%s: key %s.%s %s", rn_gguf_path(r->gguf), r->hparams->architecture, rest,
                        why);
}

static void set_layer(struct rn_layer_hparams *layer, size_t offset, uint32_t value)
{
    memcpy((char *)layer + offset, &value, sizeof value);
}

runnel_status rn_hparams_layers(const struct rn_hparams_reader *r, const char *rest, bool required, uint32_t min,
                                uint32_t max, size_t offset)
{
    struct rn_layer_hparams *layers = r->hparams->layers;
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
        status = rn_hparams_u32(r, rest, required, min, max, &same);
        for (i = 0; status == RUNNEL_OK && i < n; i++)
            set_layer(&layers[i], offset, same);
        return status;
    }
    status = rn_gguf_get_array(r->gguf, key, true, RN_GGUF_U32, &entry, r->error);
    if (status != RUNNEL_OK)
        return status;
    if (entry->count < n)
        return rn_hparams_bad(r, RUNNEL_FORMAT, rest, "has fewer elements than there are blocks");
    for (i = 0; i < n; i++) {
        value = rn_gguf_item_i64(entry, i);
        if (value < (int64_t)min || value > (int64_t)max)
            return rn_hparams_bad(r, RUNNEL_FORMAT, rest, "has an element out of range");
        set_layer(&layers[i], offset, (uint32_t)value);
    }
    return RUNNEL_OK;
}

/* A block without heads, of queries or of keys, is one without attention. Where blocks may be without (least 0), a file
 * that says nothing has none with. */
static runnel_status read_counts(const struct rn_hparams_reader *r, uint32_t least)
{
    const size_t heads = offsetof(struct rn_layer_hparams, heads);
    const size_t kv_heads = offsetof(struct rn_layer_hparams, kv_heads);
    struct rn_layer_hparams *layers = r->hparams->layers;
    runnel_status status;
    uint32_t i;

    status = rn_hparams_layers(r, "attention.head_count", least > 0, least, RN_MAX_HEADS, heads);
    for (i = 0; status == RUNNEL_OK && i < r->hparams->n_layers; i++)
        layers[i].kv_heads = layers[i].heads;
    if (status == RUNNEL_OK)
        status = rn_hparams_layers(r, "attention.head_count_kv", false, least, RN_MAX_HEADS, kv_heads);
    for (i = 0; status == RUNNEL_OK && i < r->hparams->n_layers; i++) {
        if (layers[i].heads == 0 || layers[i].kv_heads == 0)
            layers[i].heads = layers[i].kv_heads = 0;
        else if (layers[i].heads % layers[i].kv_heads != 0)
            status = rn_hparams_bad(r, RUNNEL_FORMAT, "attention.head_count_kv", "does not divide the number of heads");
    }
    return status;
}

/* The first block that has attention; NULL: none has. */
static const struct rn_layer_hparams *first_with_heads(const struct rn_hparams *h)
{
    uint32_t i;

    for (i = 0; i < h->n_layers; i++)
        if (h->layers[i].heads > 0)
            return &h->layers[i];
    return NULL;
}

/* Sizes of a head, the same in all blocks. Without keys they are the embedding's share of one head. */
static runnel_status read_heads(const struct rn_hparams_reader *r, struct rn_hparams *h)
{
    const struct rn_layer_hparams *first = first_with_heads(h);
    uint32_t k_dim, v_dim, i;
    runnel_status status;
    double scale = 0;

    if (first == NULL)
        return RUNNEL_OK;
    k_dim = v_dim = h->embedding / first->heads;
    if (h->embedding % first->heads != 0 &&
        (!rn_hparams_has(r, "attention.key_length") || !rn_hparams_has(r, "attention.value_length")))
        return rn_hparams_bad(r, RUNNEL_FORMAT, "attention.head_count", "does not divide embedding_length");
    status = rn_hparams_u32(r, "attention.key_length", false, 1, RN_MAX_HEAD_DIM, &k_dim);
    if (status == RUNNEL_OK)
        status = rn_hparams_u32(r, "attention.value_length", false, 1, RN_MAX_HEAD_DIM, &v_dim);
    if (status == RUNNEL_OK)
        status = rn_hparams_f64(r, "attention.scale", 0, 1e9, &scale);
    if (scale == 0) /* what converters write for none */
        scale = 1 / sqrt((double)k_dim);
    for (i = 0; i < h->n_layers; i++) {
        h->layers[i].k_dim = k_dim;
        h->layers[i].v_dim = v_dim;
        h->layers[i].attention_scale = scale;
    }
    return status;
}

/* Of files without the first key the sizes of a head are what they are of any attention. */
static runnel_status read_latent_heads(const struct rn_hparams_reader *r, const struct rn_layer_hparams *first)
{
    struct rn_latent_hparams *l = &r->hparams->latent;
    uint32_t k_dim = 0, v_dim = 0;
    runnel_status status = rn_hparams_u32(r, "attention.key_length_mla", false, 0, RN_MAX_HEAD_DIM, &k_dim);

    if (status == RUNNEL_OK)
        status = rn_hparams_u32(r, "attention.value_length_mla", k_dim > 0, k_dim > 0, RN_MAX_HEAD_DIM, &v_dim);
    l->k_dim = k_dim > 0 ? k_dim : first->k_dim;
    l->v_dim = k_dim > 0 ? v_dim : first->v_dim;
    l->rope_dim = r->hparams->ropes[0].dims;
    if (status == RUNNEL_OK && l->rope_dim > l->k_dim)
        status = rn_hparams_bad(r, RUNNEL_FORMAT, "rope.dimension_count", "is missing or larger than a head");
    return status;
}

runnel_status rn_hparams_latent(const struct rn_hparams_reader *r)
{
    struct rn_hparams *h = r->hparams;
    struct rn_latent_hparams *l = &h->latent;
    const struct rn_layer_hparams *first = first_with_heads(h);
    runnel_status status;
    uint32_t i;

    if (first == NULL)
        return RUNNEL_OK;
    status = rn_hparams_u32(r, "attention.kv_lora_rank", true, 1, RN_MAX_HEAD_DIM, &l->rank);
    if (status == RUNNEL_OK)
        status = rn_hparams_u32(r, "attention.q_lora_rank", false, 0, RN_MAX_WIDTH, &l->q_rank);
    if (status == RUNNEL_OK)
        status = read_latent_heads(r, first);
    for (i = 0; status == RUNNEL_OK && i < h->n_layers; i++) {
        if ((uint64_t)h->layers[i].heads * (l->k_dim > l->v_dim ? l->k_dim : l->v_dim) > RN_MAX_WIDTH)
            return rn_hparams_bad(r, RUNNEL_FORMAT, "attention.head_count", "makes rows of more than 16 Mi values");
        h->layers[i].kv_heads = h->layers[i].heads > 0;
        h->layers[i].k_dim = l->rank + l->rope_dim;
        h->layers[i].v_dim = l->rank;
        h->layers[i].attention_scale = 1 / sqrt((double)l->k_dim);
    }
    return status;
}

/* What an architecture's own reader may have changed is looked at, too. */
static runnel_status check_widths(const struct rn_hparams_reader *r, const struct rn_hparams *h)
{
    const struct rn_layer_hparams *layer;
    uint32_t i;

    for (i = 0; i < h->n_layers; i++) {
        layer = &h->layers[i];
        if ((uint64_t)layer->heads * (layer->k_dim > layer->v_dim ? layer->k_dim : layer->v_dim) > RN_MAX_WIDTH)
            return rn_hparams_bad(r, RUNNEL_FORMAT, "attention.head_count", "makes rows of more than 16 Mi values");
        if (layer->heads > 0 && layer->rope != RN_NO_ROPE && h->ropes[layer->rope].dims > layer->k_dim)
            return rn_hparams_bad(r, RUNNEL_FORMAT, "rope.dimension_count", "is larger than a head");
    }
    return RUNNEL_OK;
}

/* Files without groups say 0 or 1. */
static runnel_status read_groups(const struct rn_hparams_reader *r, struct rn_hparams *h)
{
    uint32_t *n = &h->expert_groups, *used = &h->expert_groups_used;
    runnel_status status = rn_hparams_u32(r, "expert_group_count", false, 0, RN_MAX_ROUTE_GROUPS, n);
    uint32_t i;

    if (*n <= 1)
        *n = 0;
    if (status != RUNNEL_OK || *n == 0)
        return status;
    if (h->experts % *n != 0 || h->experts / *n < 2)
        return rn_hparams_bad(r, RUNNEL_FORMAT, "expert_group_count",
                              "does not part the experts into groups of two or more");
    status = rn_hparams_u32(r, "expert_group_used_count", true, 1, *n, used);
    for (i = 0; status == RUNNEL_OK && i < h->n_layers; i++)
        if (h->layers[i].experts_used > *used * (h->experts / *n))
            status = rn_hparams_bad(r, RUNNEL_FORMAT, "expert_group_used_count", "leaves fewer experts than are used");
    return status;
}

/* Of blocks without experts arrays say 0. */
static runnel_status read_experts(const struct rn_hparams_reader *r, struct rn_hparams *h)
{
    const size_t used = offsetof(struct rn_layer_hparams, experts_used);
    const size_t width = offsetof(struct rn_layer_hparams, expert_feed_forward);
    const struct rn_gguf_entry *entry;
    char key[RN_KEY_BYTES];
    runnel_status status;

    status = rn_hparams_u32(r, "expert_count", false, 0, RN_MAX_EXPERTS, &h->experts);
    rn_hparams_key(h, "expert_used_count", key);
    entry = rn_gguf_find(r->gguf, key);
    if (status == RUNNEL_OK && h->experts > 0)
        status = rn_hparams_layers(r, "expert_used_count", true, entry == NULL || entry->type != RN_GGUF_ARRAY,
                                   h->experts, used);
    if (status == RUNNEL_OK && h->experts > 0)
        status = rn_hparams_layers(r, "expert_feed_forward_length", false, 0, RN_MAX_WIDTH, width);
    return status == RUNNEL_OK && h->experts > 0 ? read_groups(r, h) : status;
}

static runnel_status read_scaling(const struct rn_hparams_reader *r, struct rn_rope_hparams *rope)
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
    return rn_error_set(r->error, RUNNEL_UNSUPPORTED, "%s: key %s: scaling '%s' is not known", rn_gguf_path(r->gguf),
                        key, rn_quoted(name.bytes, name.n).text);
}

/* 0 stands for "no scaling" in some files. */
static runnel_status read_factor(const struct rn_hparams_reader *r, struct rn_rope_hparams *rope)
{
    const char *rest = rn_hparams_has(r, "rope.scaling.factor") ? "rope.scaling.factor" : "rope.scale_linear";
    runnel_status status;

    rope->factor = 0;
    status = rn_hparams_f64(r, rest, 0, 1e9, &rope->factor);
    if (status == RUNNEL_OK && rope->factor != 0 && rope->factor < 1e-9)
        return rn_hparams_bad(r, RUNNEL_FORMAT, rest, "is out of range");
    if (rope->factor == 0 || rope->scaling == RN_ROPE_PLAIN)
        rope->factor = 1;
    return status;
}

static runnel_status read_floats(const struct rn_hparams_reader *r, struct rn_rope_hparams *rope)
{
    const struct {
        const char *rest;
        double min, max;
        double *value;
    } keys[] = {
        {"rope.freq_base", 1e-3, 1e18, &rope->base},
        {"rope.scaling.attn_factor", 1e-6, 1e6, &rope->attention_factor},
        {"rope.scaling.yarn_attn_factor", 1e-6, 1e6, &rope->yarn_attention},
        {"rope.scaling.yarn_ext_factor", -1, 1, &rope->ext_factor},
        {"rope.scaling.yarn_beta_fast", 1e-6, 1e9, &rope->beta_fast},
        {"rope.scaling.yarn_beta_slow", 1e-6, 1e9, &rope->beta_slow},
        {"rope.scaling.yarn_log_multiplier", 0, 1e3, &rope->log_multiplier},
        {"rope.scaling.low_freq_factor", 1e-6, 1e9, &rope->low_factor},
        {"rope.scaling.high_freq_factor", 1e-6, 1e9, &rope->high_factor},
    };
    runnel_status status = RUNNEL_OK;
    size_t i;

    for (i = 0; status == RUNNEL_OK && i < sizeof keys / sizeof keys[0]; i++)
        status = rn_hparams_f64(r, keys[i].rest, keys[i].min, keys[i].max, keys[i].value);
    if (rope->ext_factor < 0 && rope->yarn_attention == 1) /* both as llama.cpp saves what no file has said */
        rope->yarn_attention = 0;
    if (rope->ext_factor < 0) /* likewise */
        rope->ext_factor = 1;
    return status;
}

static runnel_status read_turns(const struct rn_hparams_reader *r, struct rn_rope_hparams *rope)
{
    runnel_status status = read_scaling(r, rope);

    if (status == RUNNEL_OK)
        status = read_factor(r, rope);
    if (status == RUNNEL_OK)
        status = read_floats(r, rope);
    if (status == RUNNEL_OK && rope->scaling == RN_ROPE_YARN && rope->base <= 1)
        status = rn_hparams_bad(r, RUNNEL_FORMAT, "rope.freq_base", "is not above 1, which YaRN needs");
    if (status == RUNNEL_OK && rope->scaling == RN_ROPE_LLAMA3 && rope->high_factor <= rope->low_factor)
        status = rn_hparams_bad(r, RUNNEL_FORMAT, "rope.scaling.high_freq_factor", "is not above low_freq_factor");
    return status;
}

static runnel_status read_rope(const struct rn_hparams_reader *r, struct rn_hparams *h, const struct rn_arch *arch)
{
    const struct rn_layer_hparams *first = first_with_heads(h);
    struct rn_rope_hparams *rope = &h->ropes[0];
    uint32_t original = h->trained_tokens;
    runnel_status status = RUNNEL_OK;

    if (first == NULL)
        return RUNNEL_OK;
    *rope = (struct rn_rope_hparams){.dims = first->k_dim,
                                     .base = 10000,
                                     .attention_factor = 1,
                                     .ext_factor = 1,
                                     .beta_fast = 32,
                                     .beta_slow = 1,
                                     .low_factor = 1,
                                     .high_factor = 4,
                                     .neox = (arch->flags & RN_ARCH_NEOX) != 0,
                                     .divisors = true};
    h->n_ropes = 1;
    if ((arch->flags & RN_ARCH_WHOLE_ROPE) == 0)
        status = rn_hparams_u32(r, "rope.dimension_count", false, 2, first->k_dim, &rope->dims);
    if (status == RUNNEL_OK && rope->dims % 2 != 0)
        status = rn_hparams_bad(r, RUNNEL_FORMAT, "rope.dimension_count", "is odd");
    if (status == RUNNEL_OK)
        status = rn_hparams_u32(r, "rope.scaling.original_context_length", false, 1, RN_MAX_CONTEXT, &original);
    rope->original_tokens = original;
    return status == RUNNEL_OK ? read_turns(r, rope) : status;
}

runnel_status rn_hparams_add_rope(const struct rn_hparams_reader *r, const struct rn_rope_hparams *more, int32_t *rope)
{
    struct rn_hparams *h = r->hparams;

    if (h->n_ropes == RN_MAX_ROPES)
        return rn_error_set(r->error, RUNNEL_UNSUPPORTED, "%s has more than %d kinds of rotation",
                            rn_gguf_path(r->gguf), RN_MAX_ROPES);
    h->ropes[h->n_ropes] = *more;
    *rope = (int32_t)h->n_ropes++;
    return RUNNEL_OK;
}

static runnel_status read_causal(const struct rn_hparams_reader *r, const struct rn_arch *arch)
{
    char key[RN_KEY_BYTES];

    r->hparams->causal = (arch->flags & RN_ARCH_BIDIRECTIONAL) == 0;
    rn_hparams_key(r->hparams, "attention.causal", key);
    return rn_gguf_get_bool(r->gguf, key, false, &r->hparams->causal, r->error);
}

/* Decoders that were trained on to make embeddings see both ways, where the key says so. What a window, distances and
 * chosen positions mean there is not known of any architecture but those that always do. */
static runnel_status check_causal(const struct rn_hparams_reader *r, const struct rn_arch *arch)
{
    const struct rn_hparams *h = r->hparams;
    bool behind_only = h->alibi > 0 || h->indexer.most > 0;
    uint32_t i;

    if (h->causal || (arch->flags & RN_ARCH_BIDIRECTIONAL) != 0)
        return RUNNEL_OK;
    for (i = 0; i < h->n_layers; i++)
        behind_only = behind_only || h->layers[i].window > 0;
    return !behind_only ? RUNNEL_OK
                        : rn_hparams_bad(r, RUNNEL_UNSUPPORTED, "attention.causal",
                                         "asks for attention in both directions, which with windows, ALiBi or an "
                                         "indexer is not known");
}

static runnel_status read_sizes(const struct rn_hparams_reader *r, struct rn_hparams *h)
{
    runnel_status status;

    status = rn_hparams_u32(r, "block_count", true, 1, RN_MAX_LAYERS, &h->n_layers);
    if (status == RUNNEL_OK)
        status = rn_hparams_u32(r, "nextn_predict_layers", false, 0, h->n_layers - 1, &h->n_nextn);
    if (status == RUNNEL_OK)
        status = rn_hparams_u32(r, "context_length", true, 1, RN_MAX_CONTEXT, &h->trained_tokens);
    if (status == RUNNEL_OK)
        status = rn_hparams_u32(r, "embedding_length", true, 1, RN_MAX_WIDTH, &h->embedding);
    if (status == RUNNEL_OK)
        status = rn_hparams_f64(r, "attention.layer_norm_rms_epsilon", 0, 1, &h->rms_eps);
    if (status == RUNNEL_OK)
        status = rn_hparams_f64(r, "attention.layer_norm_epsilon", 0, 1, &h->layer_eps);
    return status;
}

static runnel_status read_layers(const struct rn_hparams_reader *r, const struct rn_arch *arch, struct rn_hparams *h)
{
    const size_t feed_forward = offsetof(struct rn_layer_hparams, feed_forward);
    runnel_status status;
    uint32_t i;

    status = read_counts(r, (arch->flags & RN_ARCH_GAPS) != 0 ? 0 : 1);
    if (status == RUNNEL_OK)
        status = rn_hparams_layers(r, "feed_forward_length", false, (arch->flags & RN_ARCH_GAPS) == 0, RN_MAX_WIDTH,
                                   feed_forward);
    if (status == RUNNEL_OK)
        status = read_heads(r, h);
    if (status == RUNNEL_OK)
        status = read_experts(r, h);
    if (status == RUNNEL_OK && (arch->flags & RN_ARCH_NO_ROPE) == 0)
        status = read_rope(r, h, arch);
    for (i = 0; i < h->n_layers; i++) {
        h->layers[i].rope = h->n_ropes > 0 ? 0 : RN_NO_ROPE;
        h->layers[i].kv_from = -1;
        h->layers[i].sparsity = -INFINITY;
    }
    if (status == RUNNEL_OK)
        status = rn_hparams_flags(r, arch);
    if (status == RUNNEL_OK && arch->keys != NULL)
        status = arch->keys(r);
    if (status == RUNNEL_OK)
        status = check_causal(r, arch);
    return status == RUNNEL_OK ? check_widths(r, h) : status;
}

runnel_status rn_hparams_read(struct rn_heap *heap, const struct rn_gguf *gguf, const struct rn_arch *arch,
                              struct rn_hparams *hparams, runnel_error *error)
{
    const struct rn_hparams_reader reader = {gguf, hparams, error};
    runnel_status status;

    *hparams = (struct rn_hparams){.architecture = arch->name,
                                   .act = arch->act,
                                   .scores_act = RN_ACT_TANH,
                                   .rms_eps = -1,
                                   .layer_eps = -1,
                                   .embedding_scale = 1,
                                   .residual_scale = 1,
                                   .logit_scale = 1,
                                   .loops = 1,
                                   .experts_scale = 1,
                                   .attention_out_scale = 1};
    status = read_sizes(&reader, hparams);
    if (status == RUNNEL_OK)
        status = read_causal(&reader, arch);
    if (status != RUNNEL_OK)
        return status;
    hparams->layers = rn_calloc(heap, hparams->n_layers, sizeof *hparams->layers);
    if (hparams->layers == NULL)
        return rn_error_set(error, RUNNEL_NO_MEMORY, "no memory for the plan of %s", rn_gguf_path(gguf));
    status = read_layers(&reader, arch, hparams);
    if (status != RUNNEL_OK)
        rn_hparams_fini(heap, hparams);
    return status;
}

void rn_hparams_fini(struct rn_heap *heap, struct rn_hparams *hparams)
{
    rn_free(heap, hparams->layers);
    hparams->layers = NULL;
}
