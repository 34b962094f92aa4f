/* Keys that the flags of an architecture's row ask for: see arch/table.h. */
#include <math.h>
#include <string.h>

#include "model/arch/table.h"
#include "model/hparams.h"

static bool has_flag(const struct rn_arch *arch, uint64_t flag)
{
    return (arch->flags & flag) != 0;
}

/* logit_scale: 0 is what converters write for none. */
static runnel_status read_logit_scale(const struct rn_hparams_reader *r, bool divides)
{
    double scale = 0;
    runnel_status status = rn_hparams_f64(r, "logit_scale", 0, 1e9, &scale);

    if (status == RUNNEL_OK && scale != 0)
        status = rn_hparams_f64(r, "logit_scale", 1e-9, 1e9, &scale);
    if (status == RUNNEL_OK && scale != 0)
        r->hparams->logit_scale = divides ? 1 / scale : scale;
    return status;
}

static runnel_status read_scales(const struct rn_hparams_reader *r, const struct rn_arch *arch)
{
    struct rn_hparams *h = r->hparams;
    runnel_status status = RUNNEL_OK;

    if (has_flag(arch, RN_ARCH_ROOT_EMBEDDING))
        h->embedding_scale = sqrt((double)h->embedding);
    if (has_flag(arch, RN_ARCH_SCALES)) {
        status = rn_hparams_f64(r, "embedding_scale", 0, 1e9, &h->embedding_scale);
        if (status == RUNNEL_OK)
            status = rn_hparams_f64(r, "residual_scale", 0, 1e9, &h->residual_scale);
        h->embedding_scale = h->embedding_scale == 0 ? 1 : h->embedding_scale;
        h->residual_scale = h->residual_scale == 0 ? 1 : h->residual_scale;
    }
    if (status == RUNNEL_OK && has_flag(arch, RN_ARCH_SCALES | RN_ARCH_LOGIT_SCALE))
        status = read_logit_scale(r, has_flag(arch, RN_ARCH_SCALES));
    return status;
}

static runnel_status read_limits(const struct rn_hparams_reader *r, const struct rn_arch *arch)
{
    struct rn_hparams *h = r->hparams;
    runnel_status status = RUNNEL_OK;

    if (has_flag(arch, RN_ARCH_SOFTCAPS)) {
        status = rn_hparams_f64(r, "attn_logit_softcapping", 0, 1e9, &h->softcap);
        if (status == RUNNEL_OK)
            status = rn_hparams_f64(r, "final_logit_softcapping", 0, 1e9, &h->final_softcap);
    }
    if (status == RUNNEL_OK && has_flag(arch, RN_ARCH_CLAMP))
        status = rn_hparams_f64(r, "attention.clamp_kqv", 0, 1e9, &h->clamp);
    if (status == RUNNEL_OK && has_flag(arch, RN_ARCH_ALIBI))
        status = rn_hparams_f64(r, "attention.max_alibi_bias", 0, 1e6, &h->alibi);
    return status;
}

/* The pattern is a period, or says of each block whether it has the window; of prediction layers it may say nothing. */
static runnel_status read_pattern(const struct rn_hparams_reader *r, uint32_t *period, const struct rn_gguf_entry **of)
{
    char key[RN_KEY_BYTES];
    runnel_status status;

    rn_hparams_key(r->hparams, "attention.sliding_window_pattern", key);
    *of = rn_gguf_find(r->gguf, key);
    if (*of == NULL || (*of)->type != RN_GGUF_ARRAY) {
        *of = NULL;
        return rn_hparams_u32(r, "attention.sliding_window_pattern", false, 0, RN_MAX_LAYERS, period);
    }
    status =
        rn_gguf_get_array(r->gguf, key, true, (*of)->item == RN_GGUF_BOOL ? RN_GGUF_BOOL : RN_GGUF_U32, of, r->error);
    if (status == RUNNEL_OK && (*of)->count < r->hparams->n_layers - r->hparams->n_nextn)
        status = rn_hparams_bad(r, RUNNEL_FORMAT, "attention.sliding_window_pattern",
                                "has fewer elements than there are blocks");
    return status;
}

/* Where any block has a window. */
static void stop_far_ropes(struct rn_hparams *h)
{
    bool any = false;
    uint32_t i;

    for (i = 0; i < h->n_layers; i++)
        any = any || h->layers[i].window > 0;
    for (i = 0; any && i < h->n_layers; i++)
        if (h->layers[i].window == 0)
            h->layers[i].rope = RN_NO_ROPE;
}

static runnel_status apply_pattern(const struct rn_hparams_reader *r, uint32_t period, uint32_t window, bool full_first)
{
    struct rn_hparams *h = r->hparams;
    const struct rn_gguf_entry *pattern;
    runnel_status status = read_pattern(r, &period, &pattern);
    uint32_t i;

    for (i = 0; status == RUNNEL_OK && i < h->n_layers; i++)
        if (pattern != NULL              ? i < pattern->count && rn_gguf_item_i64(pattern, i) != 0
            : period == 0 || !full_first ? period == 0 || i % period + 1 < period
                                         : i % period != 0)
            h->layers[i].window = window;
    return status;
}

runnel_status rn_hparams_pattern(const struct rn_hparams_reader *r, uint32_t period, uint32_t window)
{
    return apply_pattern(r, period, window, false);
}

static runnel_status read_windows(const struct rn_hparams_reader *r, uint32_t period, uint32_t window, bool full_first,
                                  bool local_rope)
{
    runnel_status status = rn_hparams_u32(r, "attention.sliding_window", false, 0, RN_MAX_CONTEXT, &window);

    if (status == RUNNEL_OK)
        status = apply_pattern(r, period, window, full_first);
    if (status == RUNNEL_OK && local_rope)
        stop_far_ropes(r->hparams);
    return status;
}

runnel_status rn_hparams_windows(const struct rn_hparams_reader *r, uint32_t period, uint32_t window, bool local_rope)
{
    return read_windows(r, period, window, false, local_rope);
}

runnel_status rn_hparams_local_rope(const struct rn_hparams_reader *r, const struct rn_rope_hparams *local)
{
    struct rn_hparams *h = r->hparams;
    runnel_status status;
    int32_t rope;
    uint32_t i;

    status = rn_hparams_add_rope(r, local, &rope);
    for (i = 0; status == RUNNEL_OK && i < h->n_layers; i++)
        if (h->layers[i].window > 0 && h->layers[i].rope != RN_NO_ROPE)
            h->layers[i].rope = rope;
    return status;
}

/* What the first rope has, but for the base. */
static runnel_status read_local_base(const struct rn_hparams_reader *r)
{
    struct rn_rope_hparams local = r->hparams->ropes[0];
    runnel_status status;

    if (!rn_hparams_has(r, "rope.freq_base_swa"))
        return RUNNEL_OK;
    status = rn_hparams_f64(r, "rope.freq_base_swa", 1e-3, 1e18, &local.base);
    return status == RUNNEL_OK ? rn_hparams_local_rope(r, &local) : status;
}

/* Values of expert_gating_func are those of enum rn_gating, plus 1; 0: what the row says. */
static runnel_status read_routing(const struct rn_hparams_reader *r, const struct rn_arch *arch)
{
    struct rn_hparams *h = r->hparams;
    runnel_status status = RUNNEL_OK;
    uint32_t gating = 0;
    char key[RN_KEY_BYTES];

    h->experts_gating = (arch->experts & RN_EXPERTS_SIGMOID) != 0 ? RN_GATING_SIGMOID : RN_GATING_SOFTMAX;
    h->experts_normalised = (arch->experts & RN_EXPERTS_NORMALISED) != 0;
    if ((arch->experts & (RN_EXPERTS_KEYS | RN_EXPERTS_GATING_KEY)) != 0)
        status = rn_hparams_u32(r, "expert_gating_func", false, 0, RN_GATING_ROOT_SOFTPLUS + 1, &gating);
    if (gating != 0)
        h->experts_gating = (enum rn_gating)(gating - 1);
    rn_hparams_key(h, "expert_weights_norm", key);
    if (status == RUNNEL_OK && (arch->experts & (RN_EXPERTS_KEYS | RN_EXPERTS_NORM_KEY)) != 0)
        status = rn_gguf_get_bool(r->gguf, key, false, &h->experts_normalised, r->error);
    if (status == RUNNEL_OK && (arch->experts & RN_EXPERTS_SCALE) != 0)
        status = rn_hparams_f64(r, "expert_weights_scale", 0, 1e6, &h->experts_scale);
    if (h->experts_scale == 0)
        h->experts_scale = 1;
    return status;
}

static void share_width(struct rn_hparams *h)
{
    for (uint32_t i = 0; i < h->n_layers; i++)
        if (h->layers[i].expert_feed_forward == 0 && h->layers[i].experts_used > 0)
            h->layers[i].expert_feed_forward = h->layers[i].feed_forward / h->layers[i].experts_used;
}

/* One number for all blocks or an array; the key has no architecture before it. */
static runnel_status read_numbers(const struct rn_hparams_reader *r, const char *key, size_t offset)
{
    const struct rn_gguf_entry *entry = rn_gguf_find(r->gguf, key);
    struct rn_hparams *h = r->hparams;
    runnel_status status;
    double value = 0;
    uint32_t i;

    if (entry == NULL || entry->type != RN_GGUF_ARRAY) {
        status = rn_gguf_get_f64(r->gguf, key, true, -1e6, 1e6, &value, r->error);
    } else {
        status = rn_gguf_get_array(r->gguf, key, true, RN_GGUF_F32, &entry, r->error);
        if (status == RUNNEL_OK && entry->count < h->n_layers)
            status = rn_error_set(r->error, RUNNEL_FORMAT, "%s: key %s has fewer elements than there are blocks",
                                  rn_gguf_path(r->gguf), key);
    }
    for (i = 0; status == RUNNEL_OK && i < h->n_layers; i++) {
        if (entry->type == RN_GGUF_ARRAY)
            value = rn_gguf_item_f64(entry, i);
        if (!(fabs(value) <= 1e6))
            status = rn_error_set(r->error, RUNNEL_FORMAT, "%s: key %s has an element out of range",
                                  rn_gguf_path(r->gguf), key);
        memcpy((char *)&h->layers[i] + offset, &value, sizeof value);
    }
    return status;
}

/* ln(1 + e^x); beyond 30 that is x. */
static double softplus(double x)
{
    return x > 30 ? x : log1p(exp(x));
}

/* Files have what was trained: the slopes are softplus of it, that of negative values plus beta. */
static runnel_status read_xielu(const struct rn_hparams_reader *r)
{
    static const struct {
        const char *key;
        size_t offset;
    } keys[] = {{"xielu.alpha_n", offsetof(struct rn_layer_hparams, alpha_n)},
                {"xielu.alpha_p", offsetof(struct rn_layer_hparams, alpha_p)},
                {"xielu.beta", offsetof(struct rn_layer_hparams, beta)},
                {"xielu.eps", offsetof(struct rn_layer_hparams, act_eps)}};
    struct rn_layer_hparams *layer;
    runnel_status status = RUNNEL_OK;
    size_t i;

    for (i = 0; status == RUNNEL_OK && i < sizeof keys / sizeof keys[0]; i++)
        status = read_numbers(r, keys[i].key, keys[i].offset);
    for (i = 0; status == RUNNEL_OK && i < r->hparams->n_layers; i++) {
        layer = &r->hparams->layers[i];
        layer->alpha_n = layer->beta + softplus(layer->alpha_n);
        layer->alpha_p = softplus(layer->alpha_p);
    }
    return status;
}

/* Four numbers of pairs, or fewer; those left out are 0. */
static runnel_status read_sections(const struct rn_hparams_reader *r, bool interleaved)
{
    struct rn_rope_hparams *rope = &r->hparams->ropes[0];
    const struct rn_gguf_entry *sections;
    char key[RN_KEY_BYTES];
    runnel_status status;
    int64_t n;
    uint64_t i;

    rn_hparams_key(r->hparams, "rope.dimension_sections", key);
    status = rn_gguf_get_array(r->gguf, key, false, RN_GGUF_I32, &sections, r->error);
    for (i = 0; status == RUNNEL_OK && sections != NULL && i < sections->count && i < 4; i++) {
        n = rn_gguf_item_i64(sections, i);
        if (n < 0 || n > rope->dims)
            return rn_hparams_bad(r, RUNNEL_FORMAT, "rope.dimension_sections", "has an element out of range");
        rope->sections[i] = (uint32_t)n;
    }
    rope->interleaved = interleaved;
    return status;
}

static runnel_status read_loops(const struct rn_hparams_reader *r)
{
    bool skips = false;
    char key[RN_KEY_BYTES];
    runnel_status status =
        rn_hparams_u32(r, "num_loops", false, 1, RN_MAX_LAYERS / r->hparams->n_layers, &r->hparams->loops);

    rn_hparams_key(r->hparams, "skip_loop_final_norm", key);
    if (status == RUNNEL_OK)
        status = rn_gguf_get_bool(r->gguf, key, false, &skips, r->error);
    r->hparams->loop_norm = !skips;
    return status;
}

runnel_status rn_hparams_share_kv(const struct rn_hparams_reader *r, const char *rest, uint32_t from)
{
    struct rn_hparams *h = r->hparams;
    const struct rn_layer_hparams *source;
    struct rn_layer_hparams *layer;
    uint32_t i;

    if (from < h->n_layers && from < 2)
        return rn_hparams_bad(r, RUNNEL_FORMAT, rest, "leaves no blocks whose caches could be shared");
    for (i = from; i < h->n_layers; i++) {
        layer = &h->layers[i];
        layer->kv_from = (int32_t)from - (layer->window > 0 ? 2 : 1);
        source = &h->layers[layer->kv_from];
        if (source->kv_heads != layer->kv_heads || source->k_dim != layer->k_dim || source->v_dim != layer->v_dim ||
            (source->window > 0) != (layer->window > 0) || layer->heads == 0)
            return rn_hparams_bad(r, RUNNEL_FORMAT, rest, "makes a block see a cache of another size than its own");
    }
    return RUNNEL_OK;
}

static runnel_status read_temperature(const struct rn_hparams_reader *r)
{
    struct rn_temperature *t = &r->hparams->temperature;
    runnel_status status = rn_hparams_f64(r, "attention.temperature_scale", -1e6, 1e6, &t->scale);
    uint32_t i;

    if (status == RUNNEL_OK)
        status = rn_hparams_u32(r, "attention.temperature_length", false, 0, RN_MAX_CONTEXT, &t->span);
    if (t->span == 0)
        t->span = (uint32_t)r->hparams->ropes[0].original_tokens;
    for (i = 0; i < r->hparams->n_layers; i++)
        r->hparams->layers[i].tempered = t->scale != 0;
    return status;
}

runnel_status rn_hparams_flags(const struct rn_hparams_reader *r, const struct rn_arch *arch)
{
    runnel_status status = read_scales(r, arch);
    char key[RN_KEY_BYTES];

    r->hparams->parallel = has_flag(arch, RN_ARCH_PARALLEL | RN_ARCH_PARALLEL_KEY);
    r->hparams->unit_heads = has_flag(arch, RN_ARCH_UNIT_HEADS);
    if (status == RUNNEL_OK)
        status = read_limits(r, arch);
    if (status == RUNNEL_OK)
        status = read_routing(r, arch);
    if ((arch->experts & RN_EXPERTS_SHARE) != 0)
        share_width(r->hparams);
    if (status == RUNNEL_OK && has_flag(arch, RN_ARCH_TEMPERATURE))
        status = read_temperature(r);
    if (status == RUNNEL_OK && has_flag(arch, RN_ARCH_PER_LAYER))
        status = rn_hparams_u32(r, "embedding_length_per_layer_input", false, 0, RN_MAX_WIDTH / r->hparams->n_layers,
                                &r->hparams->per_layer);
    if (status == RUNNEL_OK && has_flag(arch, RN_ARCH_XIELU))
        status = read_xielu(r);
    if (status == RUNNEL_OK && arch->window_period > 0)
        status = read_windows(r, arch->window_period, 0, has_flag(arch, RN_ARCH_FULL_FIRST),
                              has_flag(arch, RN_ARCH_LOCAL_ROPE));
    if (status == RUNNEL_OK && has_flag(arch, RN_ARCH_LOCAL_BASE))
        status = read_local_base(r);
    if (status == RUNNEL_OK && has_flag(arch, RN_ARCH_SECTIONS))
        status = read_sections(r, has_flag(arch, RN_ARCH_INTERLEAVED));
    if (status == RUNNEL_OK && has_flag(arch, RN_ARCH_LOOPS))
        status = read_loops(r);
    rn_hparams_key(r->hparams, "use_parallel_residual", key);
    if (status == RUNNEL_OK && has_flag(arch, RN_ARCH_PARALLEL_KEY))
        status = rn_gguf_get_bool(r->gguf, key, false, &r->hparams->parallel, r->error);
    return status;
}
