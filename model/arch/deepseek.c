/* Keys of architectures whose attention goes by a latent (model/build/latent.c): DeepSeek-V2 (arXiv 2405.04434) and
 * what was made in its manner. */
#include <math.h>

#include "model/arch/families.h"
#include "model/hparams.h"
#include "model/plan.h"
#include "model/rope.h"

/* YaRN's other number m: scores grow by (1 + 0.1 m ln(factor))^2 instead of the rotated vectors, which are divided by
 * it. Files have 0.1 m as yarn_log_multiplier. `even`: the vectors' own growth has the same m, unless that is 0, so
 * that they keep their size. */
static void scale_scores(struct rn_hparams *h, bool even)
{
    struct rn_rope_hparams *rope = &h->ropes[0];
    double m = rope->log_multiplier / 0.1, growth;
    uint32_t i;

    rope->log_multiplier = even && m != 0 ? 1 : m;
    growth = rope->scaling == RN_ROPE_YARN && rope->ext_factor != 0
                 ? rn_rope_magnitude(rope)
                 : rope->attention_factor * (1 + 0.1 * log(rope->factor));
    growth *= 1 + 0.1 * m * log(rope->factor);
    for (i = 0; i < h->n_layers; i++)
        h->layers[i].attention_scale *= growth * growth;
}

/* One model of this kind came without the key of its gating: that with this vocabulary. */
static void guess_gating(const struct rn_hparams_reader *r)
{
    enum { GLM_FLASH_VOCABULARY = 154880, GLM_FLASH_BLOCKS = 47 };
    const struct rn_tensor *embedding = rn_gguf_find_tensor(r->gguf, "token_embd.weight");
    uint32_t blocks = r->hparams->n_layers - r->hparams->n_nextn;

    if (!rn_hparams_has(r, "expert_gating_func") && (blocks == GLM_FLASH_BLOCKS || blocks == GLM_FLASH_BLOCKS + 1) &&
        embedding != NULL && embedding->dims[1] == GLM_FLASH_VOCABULARY)
        r->hparams->experts_gating = RN_GATING_SIGMOID;
}

runnel_status rn_arch_deepseek2_keys(const struct rn_hparams_reader *r)
{
    runnel_status status = rn_hparams_latent(r);

    if (status == RUNNEL_OK)
        scale_scores(r->hparams, true);
    guess_gating(r);
    return status;
}

runnel_status rn_arch_mistral4_keys(const struct rn_hparams_reader *r)
{
    runnel_status status = rn_hparams_latent(r);

    if (status == RUNNEL_OK)
        scale_scores(r->hparams, false);
    return status;
}

runnel_status rn_arch_indexer_keys(const struct rn_hparams_reader *r, uint32_t rotated)
{
    struct rn_indexer_hparams *x = &r->hparams->indexer;
    runnel_status status = rn_hparams_u32(r, "attention.indexer.head_count", true, 1, RN_MAX_HEADS, &x->heads);

    if (status == RUNNEL_OK)
        status = rn_hparams_u32(r, "attention.indexer.key_length", true, 1, RN_MAX_HEAD_DIM, &x->k_dim);
    if (status == RUNNEL_OK)
        status = rn_hparams_u32(r, "attention.indexer.top_k", true, 1, UINT32_MAX, &x->most);
    if (status == RUNNEL_OK && rotated > x->k_dim)
        return rn_hparams_bad(r, RUNNEL_FORMAT, "attention.indexer.key_length", "is less than what rotates of it");
    if (status == RUNNEL_OK && (uint64_t)x->heads * x->k_dim > RN_MAX_WIDTH)
        return rn_hparams_bad(r, RUNNEL_FORMAT, "attention.indexer.head_count", "makes rows of more than 16 Mi values");
    return status;
}

/* The indexer of a row whose queries are made by q_lora_rank. neox: its pairs, which may be others than attention's.
 * All blocks choose. */
static runnel_status read_indexer(const struct rn_hparams_reader *r, bool neox)
{
    struct rn_hparams *h = r->hparams;
    struct rn_rope_hparams rope = h->ropes[0];
    int32_t index = 0;
    runnel_status status = rn_arch_indexer_keys(r, rope.dims);
    uint32_t i;

    rope.neox = neox;
    if (status == RUNNEL_OK && neox != h->ropes[0].neox)
        status = rn_hparams_add_rope(r, &rope, &index);
    if (status != RUNNEL_OK)
        return status;
    h->indexer.rope = (uint32_t)index;
    h->layer_eps = h->layer_eps < 0 ? 1e-6 : h->layer_eps; /* files do not say */
    for (i = 0; i < h->n_layers; i++)
        h->layers[i].chooses = true;
    return RUNNEL_OK;
}

runnel_status rn_arch_deepseek32_keys(const struct rn_hparams_reader *r)
{
    runnel_status status = rn_arch_mistral4_keys(r);

    return status == RUNNEL_OK ? read_indexer(r, true) : status;
}

/* The first block that has attention, and looks at what it chooses itself. */
static runnel_status check_first_chooser(const struct rn_hparams_reader *r)
{
    const struct rn_hparams *h = r->hparams;
    uint32_t i = 0;

    while (i < h->n_layers && h->layers[i].heads == 0)
        i++;
    return i == h->n_layers || h->layers[i].chooses
               ? RUNNEL_OK
               : rn_hparams_bad(r, RUNNEL_FORMAT, "attention.indexer.types", "has no choice for the first block");
}

/* Which blocks choose: a truth value, or a number that is not 0, for all, or for each but prediction layers. Files of
 * GLM-5.2, known by its context, may lack the key: of them the first three choose, then every fourth. */
static runnel_status read_choosers(const struct rn_hparams_reader *r)
{
    enum { GLM_5_2_CONTEXT = 1048576 };
    struct rn_hparams *h = r->hparams;
    const struct rn_gguf_entry *types;
    runnel_status status = RUNNEL_OK;
    char key[RN_KEY_BYTES];
    bool all = true;
    uint64_t number = 1;
    uint32_t i;

    rn_hparams_key(h, "attention.indexer.types", key);
    types = rn_gguf_find(r->gguf, key);
    if (types != NULL && types->type == RN_GGUF_BOOL)
        status = rn_gguf_get_bool(r->gguf, key, true, &all, r->error);
    else if (types != NULL && types->type != RN_GGUF_ARRAY)
        status = rn_gguf_get_u64(r->gguf, key, true, 0, UINT32_MAX, &number, r->error);
    else if (types != NULL)
        status = rn_gguf_get_array(r->gguf, key, true, types->item == RN_GGUF_BOOL ? RN_GGUF_BOOL : RN_GGUF_U32, &types,
                                   r->error);
    if (status == RUNNEL_OK && types != NULL && types->type == RN_GGUF_ARRAY && types->count < h->n_layers - h->n_nextn)
        status =
            rn_hparams_bad(r, RUNNEL_FORMAT, "attention.indexer.types", "has fewer elements than there are blocks");
    for (i = 0; status == RUNNEL_OK && i < h->n_layers - h->n_nextn; i++)
        h->layers[i].chooses = types == NULL ? h->trained_tokens < GLM_5_2_CONTEXT || i < 3 || i % 4 == 2
                               : types->type != RN_GGUF_ARRAY ? all && number != 0
                                                              : rn_gguf_item_i64(types, i) != 0;
    return status == RUNNEL_OK ? check_first_chooser(r) : status;
}

/* Without YaRN's second number. */
runnel_status rn_arch_glm_dsa_keys(const struct rn_hparams_reader *r)
{
    runnel_status status;

    r->hparams->ropes[0].log_multiplier = 0;
    status = rn_arch_mistral4_keys(r);
    if (status == RUNNEL_OK)
        status = read_indexer(r, false);
    return status == RUNNEL_OK ? read_choosers(r) : status;
}

/* Hunyuan 4: where there is an indexer, the file says of each block whether it chooses. */
static runnel_status read_hy_v4_indexer(const struct rn_hparams_reader *r)
{
    struct rn_hparams *h = r->hparams;
    uint32_t most = 0;
    runnel_status status = rn_hparams_u32(r, "attention.indexer.top_k", false, 0, UINT32_MAX, &most);

    if (status != RUNNEL_OK || most == 0)
        return status;
    if (!rn_hparams_has(r, "attention.indexer.types"))
        return rn_hparams_bad(r, RUNNEL_FORMAT, "attention.indexer.types", "is missing");
    h->layer_eps = h->rms_eps;
    h->indexer.behind = true;
    status = read_indexer(r, false);
    return status == RUNNEL_OK ? read_choosers(r) : status;
}

runnel_status rn_arch_hy_v4_keys(const struct rn_hparams_reader *r)
{
    runnel_status status = rn_hparams_latent(r);

    r->hparams->cut_first = true;
    if (status == RUNNEL_OK)
        status = rn_arch_hyper_keys(r);
    if (status == RUNNEL_OK)
        status = rn_arch_cuts(r, "swiglu_clamp_exp", offsetof(struct rn_layer_hparams, expert_cut));
    return status == RUNNEL_OK ? read_hy_v4_indexer(r) : status;
}

/* Positions are chosen in whole blocks, beside those that stand behind the last one. */
static runnel_status read_kpool(const struct rn_hparams_reader *r)
{
    struct rn_indexer_hparams *x = &r->hparams->indexer;
    bool with_rest = true;
    char key[RN_KEY_BYTES];
    runnel_status status = rn_hparams_u32(r, "attention.indexer.kpool", true, 2, RN_MAX_TAPS, &x->block);

    if (status == RUNNEL_OK && x->most % x->block != 0)
        status = rn_hparams_bad(r, RUNNEL_FORMAT, "attention.indexer.kpool", "does not divide attention.indexer.top_k");
    rn_hparams_key(r->hparams, "attention.indexer.kpool_select_tail", key);
    if (status == RUNNEL_OK)
        status = rn_gguf_get_bool(r->gguf, key, false, &with_rest, r->error);
    return status != RUNNEL_OK || with_rest
               ? status
               : rn_hparams_bad(r, RUNNEL_UNSUPPORTED, "attention.indexer.kpool_select_tail",
                                "is false: the first positions would look at nothing");
}

/* GLM-5.3: blocks with and without attention, several residual streams, no rotation. Without the key of choosers all
 * blocks choose. */
runnel_status rn_arch_glm5_next_keys(const struct rn_hparams_reader *r)
{
    struct rn_hparams *h = r->hparams;
    uint32_t rotated = 0;
    runnel_status status = rn_arch_kimi_linear_keys(r);

    h->cut_first = true;
    h->linear.unit_eps = 1e-6; /* files do not say */
    if (status == RUNNEL_OK)
        status = rn_hparams_u32(r, "rope.dimension_count", false, 0, UINT32_MAX, &rotated);
    if (status == RUNNEL_OK && rotated > 0)
        status = rn_hparams_bad(r, RUNNEL_UNSUPPORTED, "rope.dimension_count",
                                "is above 0: rotation beside keys of whole blocks is not known");
    if (status == RUNNEL_OK)
        status = rn_arch_kimi_bound(r);
    if (status == RUNNEL_OK)
        status = rn_arch_manifold_keys(r);
    if (status == RUNNEL_OK)
        status = rn_arch_cuts(r, "swiglu_clamp_exp", offsetof(struct rn_layer_hparams, expert_cut));
    if (status == RUNNEL_OK)
        status = rn_arch_cuts(r, rn_hparams_has(r, "swiglu_clamp_shexp") ? "swiglu_clamp_shexp" : "swiglu_clamp_exp",
                              offsetof(struct rn_layer_hparams, shared_cut));
    if (status == RUNNEL_OK)
        status = read_indexer(r, false);
    if (status == RUNNEL_OK)
        status = read_kpool(r);
    return status == RUNNEL_OK && rn_hparams_has(r, "attention.indexer.types") ? read_choosers(r) : status;
}

/* Blocks with a window have a latent of another size, and rotate by a base of their own. */
static runnel_status read_local_latent(const struct rn_hparams_reader *r)
{
    struct rn_hparams *h = r->hparams;
    struct rn_latent_hparams *l = &h->local_latent;
    struct rn_layer_hparams *layer = h->layers;
    runnel_status status;
    uint32_t i;

    *l = h->latent;
    status = rn_hparams_u32(r, "attention.kv_lora_rank_swa", true, 1, RN_MAX_HEAD_DIM, &l->rank);
    if (status == RUNNEL_OK)
        status = rn_hparams_u32(r, "attention.key_length_mla_swa", true, l->rope_dim, RN_MAX_HEAD_DIM, &l->k_dim);
    if (status == RUNNEL_OK)
        status = rn_hparams_u32(r, "attention.value_length_mla_swa", true, 1, RN_MAX_HEAD_DIM, &l->v_dim);
    for (i = 0; status == RUNNEL_OK && i < h->n_layers; i++, layer++) {
        if (layer->window == 0)
            continue;
        if ((uint64_t)layer->heads * (l->k_dim > l->v_dim ? l->k_dim : l->v_dim) > RN_MAX_WIDTH)
            return rn_hparams_bad(r, RUNNEL_FORMAT, "attention.head_count", "makes rows of more than 16 Mi values");
        layer->k_dim = l->rank + l->rope_dim;
        layer->v_dim = l->rank;
        layer->attention_scale = 1 / sqrt((double)l->k_dim);
    }
    return status;
}

/* dots3: blocks without a window choose. */
runnel_status rn_arch_dots3_keys(const struct rn_hparams_reader *r)
{
    struct rn_hparams *h = r->hparams;
    struct rn_rope_hparams local = h->ropes[0];
    runnel_status status = rn_arch_listed_windows(r);
    uint32_t i;

    h->layer_eps = 1e-6;
    h->latent.key_norm = true;
    if (status == RUNNEL_OK && !rn_hparams_has(r, "rope.freq_base_swa"))
        status = rn_hparams_bad(r, RUNNEL_FORMAT, "rope.freq_base_swa", "is missing");
    if (status == RUNNEL_OK)
        status = rn_hparams_f64(r, "rope.freq_base_swa", 1e-3, 1e18, &local.base);
    if (status == RUNNEL_OK)
        status = rn_hparams_latent(r);
    if (status == RUNNEL_OK)
        status = read_local_latent(r);
    if (status == RUNNEL_OK)
        status = read_indexer(r, true);
    for (i = 0; i < h->n_layers; i++)
        h->layers[i].chooses = h->layers[i].window == 0;
    return status == RUNNEL_OK ? rn_hparams_local_rope(r, &local) : status;
}

/* The text model of DeepSeek-OCR has ordinary attention: of YaRN's numbers scores alone have theirs, and the rotation
 * is never stretched. */
runnel_status rn_arch_deepseek2_ocr_keys(const struct rn_hparams_reader *r)
{
    struct rn_rope_hparams *rope = &r->hparams->ropes[0];

    rope->log_multiplier = 0;
    scale_scores(r->hparams, false);
    rope->scaling = RN_ROPE_PLAIN;
    rope->factor = rope->attention_factor = 1;
    return RUNNEL_OK;
}

/* Files do not say by how much: the model's configuration (arXiv 2404.06395 for what it does). */
runnel_status rn_arch_minicpm3_keys(const struct rn_hparams_reader *r)
{
    struct rn_hparams *h = r->hparams;
    runnel_status status = rn_hparams_latent(r);

    h->embedding_scale = 12;
    h->residual_scale = 1.4 / sqrt((double)h->n_layers);
    h->logit_scale = 256.0 / h->embedding;
    return status;
}
