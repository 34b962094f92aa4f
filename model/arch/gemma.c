/* Keys of the Gemma family (arXiv 2408.00118, 2503.19786). */
#include <math.h>

#include "model/arch/families.h"
#include "model/hparams.h"

enum { GEMMA2_27B_BLOCKS = 46, GEMMA3_27B_BLOCKS = 62 };

/* The largest of each generation divides scores by the root of the embedding's share of a head, not of the head. Files
 * do not say so, so the number of blocks has to. */
static void scale_by_share(struct rn_hparams *h, uint32_t n_blocks)
{
    uint32_t i;

    for (i = 0; h->n_layers == n_blocks && i < n_blocks; i++)
        h->layers[i].attention_scale = 1 / sqrt((double)h->embedding / h->layers[i].heads);
}

/* Older files leave out the caps and the window, which all models have. */
runnel_status rn_arch_gemma2_keys(const struct rn_hparams_reader *r)
{
    enum { WINDOW = 4096, PERIOD = 2 };

    if (!rn_hparams_has(r, "attn_logit_softcapping"))
        r->hparams->softcap = 50;
    if (!rn_hparams_has(r, "final_logit_softcapping"))
        r->hparams->final_softcap = 30;
    if (!rn_hparams_has(r, "attention.scale"))
        scale_by_share(r->hparams, GEMMA2_27B_BLOCKS);
    if (!rn_hparams_has(r, "attention.sliding_window"))
        return rn_hparams_pattern(r, PERIOD, WINDOW);
    return RUNNEL_OK;
}

/* Blocks with a window have a rotation of their own. */
static runnel_status rotate_locally(const struct rn_hparams_reader *r, struct rn_rope_hparams local)
{
    struct rn_hparams *h = r->hparams;
    runnel_status status;
    int32_t rope;
    uint32_t i;

    local.scaling = RN_ROPE_PLAIN;
    local.factor = 1;
    local.divisors = false;
    status = rn_hparams_add_rope(r, &local, &rope);
    for (i = 0; status == RUNNEL_OK && i < h->n_layers; i++)
        if (h->layers[i].window > 0)
            h->layers[i].rope = rope;
    return status;
}

runnel_status rn_arch_local_base(const struct rn_hparams_reader *r)
{
    struct rn_rope_hparams local = r->hparams->ropes[0];
    runnel_status status;

    local.base = 10000;
    status = rn_hparams_f64(r, "rope.freq_base_swa", 1e-3, 1e18, &local.base);
    return status == RUNNEL_OK ? rotate_locally(r, local) : status;
}

runnel_status rn_arch_local_unstretched(const struct rn_hparams_reader *r)
{
    struct rn_rope_hparams local = r->hparams->ropes[0];

    local.attention_factor = 1;
    return rotate_locally(r, local);
}

/* No model has a cap of scores, whatever a file says. */
runnel_status rn_arch_gemma3_keys(const struct rn_hparams_reader *r)
{
    runnel_status status = rn_arch_local_base(r);

    r->hparams->softcap = 0;
    if (status == RUNNEL_OK && !rn_hparams_has(r, "attention.scale"))
        scale_by_share(r->hparams, GEMMA3_27B_BLOCKS);
    return status;
}

/* Sizes of heads and rotations of blocks with a window, which are another kind. */
static runnel_status read_local(const struct rn_hparams_reader *r)
{
    struct rn_hparams *h = r->hparams;
    uint32_t k_dim = h->layers[0].k_dim, v_dim = h->layers[0].v_dim, i;
    struct rn_rope_hparams *local;
    runnel_status status = rn_arch_local_base(r);

    if (status == RUNNEL_OK)
        status = rn_hparams_u32(r, "attention.key_length_swa", false, 1, RN_MAX_HEAD_DIM, &k_dim);
    if (status == RUNNEL_OK)
        status = rn_hparams_u32(r, "attention.value_length_swa", false, 1, RN_MAX_HEAD_DIM, &v_dim);
    if (status != RUNNEL_OK)
        return status;
    for (i = 0; i < h->n_layers; i++) {
        h->layers[i].attention_scale = 1;
        if (h->layers[i].window > 0) {
            h->layers[i].k_dim = k_dim;
            h->layers[i].v_dim = v_dim;
        }
    }
    local = &h->ropes[h->n_ropes - 1];
    status = rn_hparams_u32(r, "rope.dimension_count_swa", false, 2, RN_MAX_HEAD_DIM, &local->dims);
    if (status == RUNNEL_OK && local->dims % 2 != 0)
        status = rn_hparams_bad(r, RUNNEL_FORMAT, "rope.dimension_count_swa", "is odd");
    return status;
}

/* All models have the cap of logits. */
static runnel_status read_cap(const struct rn_hparams_reader *r)
{
    r->hparams->final_softcap = 30;
    return rn_hparams_f64(r, "final_logit_softcapping", 0, 1e9, &r->hparams->final_softcap);
}

/* A pattern that is one number stands in files where all blocks have the window. */
static runnel_status read_windows(const struct rn_hparams_reader *r)
{
    const struct rn_gguf_entry *pattern;
    uint32_t window = 0, period = 0, i;
    char key[RN_KEY_BYTES];
    runnel_status status;

    rn_hparams_key(r->hparams, "attention.sliding_window_pattern", key);
    pattern = rn_gguf_find(r->gguf, key);
    if (pattern == NULL)
        return rn_hparams_bad(r, RUNNEL_FORMAT, "attention.sliding_window_pattern", "is missing");
    if (pattern->type == RN_GGUF_ARRAY)
        return rn_hparams_windows(r, 0, 0, false);
    status = rn_hparams_u32(r, "attention.sliding_window_pattern", true, 0, UINT32_MAX, &period);
    if (status == RUNNEL_OK)
        status = rn_hparams_u32(r, "attention.sliding_window", true, 0, RN_MAX_CONTEXT, &window);
    for (i = 0; i < r->hparams->n_layers; i++)
        r->hparams->layers[i].window = window;
    return status;
}

runnel_status rn_arch_gemma4_keys(const struct rn_hparams_reader *r)
{
    struct rn_hparams *h = r->hparams;
    runnel_status status = read_windows(r);
    uint32_t shared = 0;

    if (status == RUNNEL_OK)
        status = read_local(r);

    if (status == RUNNEL_OK)
        status = read_cap(r);
    if (status == RUNNEL_OK)
        status = rn_hparams_u32(r, "attention.shared_kv_layers", false, 0, h->n_layers - 1, &shared);
    return status == RUNNEL_OK ? rn_hparams_share_kv(r, "attention.shared_kv_layers", h->n_layers - shared) : status;
}

/* How sparse gates are: by a key with a number for each block, or in the first blocks the quantile of 95 %. */
static runnel_status read_sparsity(const struct rn_hparams_reader *r)
{
    enum { SPARSE_BLOCKS = 10 };
    const double quantile = 1.6448533535003662; /* of the standard normal distribution */
    struct rn_hparams *h = r->hparams;
    const struct rn_gguf_entry *scales;
    char key[RN_KEY_BYTES];
    runnel_status status;
    uint32_t i;

    rn_hparams_key(h, "activation_sparsity_scale", key);
    status = rn_gguf_get_array(r->gguf, key, false, RN_GGUF_F32, &scales, r->error);
    if (status == RUNNEL_OK && scales != NULL && scales->count < h->n_layers)
        return rn_hparams_bad(r, RUNNEL_FORMAT, "activation_sparsity_scale",
                              "has fewer elements than there are blocks");
    for (i = 0; status == RUNNEL_OK && i < h->n_layers; i++) {
        h->layers[i].sparsity = scales != NULL ? rn_gguf_item_f64(scales, i) : i < SPARSE_BLOCKS ? quantile : -INFINITY;
        if (!(h->layers[i].sparsity <= 1e6))
            status = rn_hparams_bad(r, RUNNEL_FORMAT, "activation_sparsity_scale", "has an element out of range");
    }
    return status;
}

/* Files leave out what is the same in both published models. */
runnel_status rn_arch_gemma3n_keys(const struct rn_hparams_reader *r)
{
    enum { PER_LAYER = 256, BLOCKS_WITH_CACHE = 20 };
    struct rn_hparams *h = r->hparams;
    uint32_t shared = h->n_layers > BLOCKS_WITH_CACHE ? h->n_layers - BLOCKS_WITH_CACHE : 0, active = 0, i;
    runnel_status status = rn_arch_local_base(r);

    h->streams = 4;
    h->per_layer = rn_hparams_has(r, "embedding_length_per_layer_input") ? h->per_layer : PER_LAYER;
    for (i = 0; i < h->n_layers; i++)
        h->layers[i].attention_scale = 1;
    if (status == RUNNEL_OK)
        status = read_cap(r);
    if (status == RUNNEL_OK)
        status = rn_hparams_u32(r, "altup.num_inputs", false, 2, 16, &h->streams);
    if (status == RUNNEL_OK)
        status = rn_hparams_u32(r, "altup.active_idx", false, 0, h->streams - 1, &active);
    if (status == RUNNEL_OK && active != 0)
        status = rn_hparams_bad(r, RUNNEL_UNSUPPORTED, "altup.active_idx", "is not the first stream");
    if (status == RUNNEL_OK && h->per_layer == 0)
        status = rn_hparams_bad(r, RUNNEL_FORMAT, "embedding_length_per_layer_input", "is 0");
    if (status == RUNNEL_OK && (uint64_t)h->streams * h->embedding > RN_MAX_WIDTH)
        status = rn_hparams_bad(r, RUNNEL_FORMAT, "embedding_length", "is too large for so many streams");
    if (status == RUNNEL_OK && (uint64_t)h->per_layer * h->n_layers > RN_MAX_WIDTH)
        status = rn_hparams_bad(r, RUNNEL_FORMAT, "embedding_length_per_layer_input", "is too large");
    if (status == RUNNEL_OK)
        status = read_sparsity(r);
    if (status == RUNNEL_OK)
        status = rn_hparams_u32(r, "attention.shared_kv_layers", false, 0, h->n_layers - 1, &shared);
    return status == RUNNEL_OK ? rn_hparams_share_kv(r, "attention.shared_kv_layers", h->n_layers - shared) : status;
}
