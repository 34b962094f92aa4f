/* Keys of dense decoders that differ from Llama's in a number or two, and blocks that are not whole. What each file
 * holds: the GGUF specification, the models' papers and configurations. */
#include <math.h>

#include "model/arch/families.h"
#include "model/build/build.h"
#include "model/hparams.h"

/* Files do not say it: the model of 40 blocks, and only that, has ALiBi instead of a rotation (arXiv 2309.10305). A
 * file of neither size that says nothing of a rotation has neither, as llama.cpp has it. */
runnel_status rn_arch_baichuan_keys(const struct rn_hparams_reader *r)
{
    enum { BLOCKS_WITH_ROTATION = 32, BLOCKS_WITH_ALIBI = 40 };
    struct rn_hparams *h = r->hparams;
    bool rotates = h->n_layers == BLOCKS_WITH_ROTATION || rn_hparams_has(r, "rope.dimension_count") ||
                   rn_hparams_has(r, "rope.freq_base");
    uint32_t i;

    if (h->n_layers != BLOCKS_WITH_ALIBI && rotates)
        return RUNNEL_OK;
    h->alibi = h->n_layers == BLOCKS_WITH_ALIBI ? 8 : 0;
    for (i = 0; i < h->n_layers; i++)
        h->layers[i].rope = RN_NO_ROPE;
    return RUNNEL_OK;
}

/* Where there is a key rope.scaling.alpha, the base grows with it ("NTK-aware" scaling): base * alpha^(d / (d - 2)). */
runnel_status rn_arch_hunyuan_keys(const struct rn_hparams_reader *r)
{
    struct rn_hparams *h = r->hparams;
    double alpha = 0, d = h->layers[0].k_dim;
    runnel_status status = rn_arch_axes_keys(r);

    if (status == RUNNEL_OK)
        status = rn_hparams_f64(r, "rope.scaling.alpha", 0, 1e9, &alpha);
    if (status != RUNNEL_OK || alpha == 0)
        return status;
    h->ropes[0].base *= pow(alpha, d / (d - 2));
    return d > 2 && h->ropes[0].base > 0 && h->ropes[0].base <= 1e18
               ? RUNNEL_OK
               : rn_hparams_bad(r, RUNNEL_FORMAT, "rope.scaling.alpha", "makes a base out of range");
}

/* Older files leave out the scales (arXiv 2404.06395): what is known is that of the one model they are of. */
runnel_status rn_arch_minicpm_keys(const struct rn_hparams_reader *r)
{
    struct rn_hparams *h = r->hparams;

    if (!rn_hparams_has(r, "embedding_scale"))
        h->embedding_scale = 12;
    if (!rn_hparams_has(r, "residual_scale"))
        h->residual_scale = 1.4 / sqrt(h->n_layers);
    if (!rn_hparams_has(r, "logit_scale"))
        h->logit_scale = 256.0 / h->embedding;
    return RUNNEL_OK;
}

/* Files count gate and up together. */
runnel_status rn_arch_qwen_keys(const struct rn_hparams_reader *r)
{
    uint32_t i;

    for (i = 0; i < r->hparams->n_layers; i++) {
        if (r->hparams->layers[i].feed_forward % 2 != 0)
            return rn_hparams_bad(r, RUNNEL_FORMAT, "feed_forward_length", "is odd");
        r->hparams->layers[i].feed_forward /= 2;
    }
    return RUNNEL_OK;
}

/* A block without keys has a product in place of attention, or nothing at all (arXiv 2411.19146). Releases x. */
int16_t rn_arch_deci_block(struct rn_build *b, int16_t x)
{
    const struct rn_layer_hparams *layer = &b->hparams.layers[b->layer];
    bool product = layer->heads == 0 && rn_build_has(b, "blk.%d.attn_norm.weight");
    int16_t in, out;

    if (product) {
        in = rn_build_norm(b, x, "blk.%d.attn_norm");
        out = rn_build_linear(b, in, "blk.%d.attn_output", b->hparams.embedding);
        rn_build_release(b, in);
        rn_build_last_rows(b, &out, &x);
        x = rn_build_add(b, out, x);
    } else {
        x = rn_build_attention_part(b, x);
    }
    if (layer->feed_forward > 0)
        return rn_build_ffn_part(b, x);
    if (product || layer->heads > 0) /* no program is known that keeps what such a block has found */
        rn_build_fail(b, RUNNEL_UNSUPPORTED, "key %s.feed_forward_length leaves a block with attention alone",
                      b->hparams.architecture);
    return x;
}

/* Talkie: behind each block the embedding is added once more, times the block's number. */
int16_t rn_arch_talkie_block(struct rn_build *b, int16_t x)
{
    bool all_rows = !b->selected;
    int16_t skip;

    if (b->carried < 0)
        b->carried = rn_build_copy(b, x);
    x = rn_build_ffn_part(b, rn_build_attention_part(b, x));
    if (all_rows && b->selected)
        b->carried = rn_build_select(b, b->carried);
    skip = rn_build_copy(b, b->carried);
    skip = rn_build_times(b, skip, "blk.%d.layer_output_scale.weight", 1);
    return rn_build_add(b, skip, x);
}

/* ---- CogVLM, of which the text alone is computed (arXiv 2311.03079) ---- */

/* The rotation is never stretched, nor has it another base, whatever a file says. */
runnel_status rn_arch_cogvlm_keys(const struct rn_hparams_reader *r)
{
    struct rn_hparams *h = r->hparams;
    struct rn_rope_hparams *rope = &h->ropes[0];
    uint32_t i;

    rope->base = 10000;
    rope->scaling = RN_ROPE_PLAIN;
    rope->factor = rope->attention_factor = 1;
    if (h->layers[0].v_dim != h->layers[0].k_dim)
        return rn_hparams_bad(r, RUNNEL_FORMAT, "attention.value_length", "is not attention.key_length");
    for (i = 0; i < h->n_layers; i++)
        if ((uint64_t)h->layers[i].heads * h->layers[i].k_dim != h->embedding)
            return rn_hparams_bad(r, RUNNEL_FORMAT, "attention.head_count",
                                  "makes rows of another width than embeddings");
    return RUNNEL_OK;
}

/* ---- Chameleon (arXiv 2405.09818), of which the text alone is given ---- */

/* The epsilon of heads' norms and which tokens are parts of images files do not say. Of the larger model, whose norms
 * stand behind attention and feed-forward, programs compute different things. */
runnel_status rn_arch_chameleon_keys(const struct rn_hparams_reader *r)
{
    enum { FIRST_OF_IMAGES = 4, BEHIND_IMAGES = 8196 };
    struct rn_hparams *h = r->hparams;
    char key[RN_KEY_BYTES];
    bool behind = false;
    runnel_status status;

    h->layer_eps = 1e-5;
    h->barred_from = FIRST_OF_IMAGES;
    h->barred_to = BEHIND_IMAGES;
    rn_hparams_key(h, "swin_norm", key);
    status = rn_gguf_get_bool(r->gguf, key, false, &behind, r->error);
    return status == RUNNEL_OK && behind
               ? rn_hparams_bad(r, RUNNEL_UNSUPPORTED, "swin_norm", "is true: what that means is not agreed on")
               : status;
}

/* ---- Windows of blocks that the file lists ---- */

runnel_status rn_arch_listed_windows(const struct rn_hparams_reader *r)
{
    const char *rest = "attention.sliding_window_pattern";
    const struct rn_gguf_entry *pattern;
    uint32_t window = 0;
    char key[RN_KEY_BYTES];
    runnel_status status = rn_hparams_u32(r, "attention.sliding_window", true, 1, RN_MAX_CONTEXT, &window);

    rn_hparams_key(r->hparams, rest, key);
    pattern = rn_gguf_find(r->gguf, key);
    if (status == RUNNEL_OK && (pattern == NULL || pattern->type != RN_GGUF_ARRAY))
        status = rn_hparams_bad(r, RUNNEL_FORMAT, rest, "does not say of each block whether it has the window");
    return status == RUNNEL_OK ? rn_hparams_windows(r, 0, 0, false) : status;
}

runnel_status rn_arch_local_dims(const struct rn_hparams_reader *r, struct rn_rope_hparams *local)
{
    runnel_status status = rn_hparams_f64(r, "rope.freq_base_swa", 1e-3, 1e18, &local->base);

    if (status == RUNNEL_OK)
        status = rn_hparams_u32(r, "rope.dimension_count_swa", false, 2, RN_MAX_HEAD_DIM, &local->dims);
    if (status == RUNNEL_OK && local->dims % 2 != 0)
        status = rn_hparams_bad(r, RUNNEL_FORMAT, "rope.dimension_count_swa", "is odd");
    return status;
}

/* Spark-X2.5: both kinds of blocks are stretched alike. */
runnel_status rn_arch_spark_keys(const struct rn_hparams_reader *r)
{
    struct rn_rope_hparams local = r->hparams->ropes[0];
    runnel_status status = rn_arch_listed_windows(r);

    if (status == RUNNEL_OK)
        status = rn_arch_local_dims(r, &local);
    return status == RUNNEL_OK ? rn_hparams_local_rope(r, &local) : status;
}

/* ---- Muse Glimmer ---- */

/* Blocks with a window rotate, and are not stretched. */
runnel_status rn_arch_muse_keys(const struct rn_hparams_reader *r)
{
    static const char *const needed[] = {"attention.sliding_window", "logit_scale"};
    struct rn_hparams *h = r->hparams;
    struct rn_rope_hparams *rope = &h->ropes[0];
    runnel_status status;
    size_t i;

    for (i = 0; i < sizeof needed / sizeof needed[0]; i++)
        if (!rn_hparams_has(r, needed[i]))
            return rn_hparams_bad(r, RUNNEL_FORMAT, needed[i], "is missing");
    rope->scaling = RN_ROPE_PLAIN;
    rope->factor = 1;
    h->final_softcap = 30; /* of files that do not say */
    status = rn_hparams_f64(r, "rope.freq_base_swa", 1e-3, 1e18, &rope->base);
    if (status == RUNNEL_OK)
        status = rn_hparams_f64(r, "final_logit_softcapping", 0, 1e9, &h->final_softcap);
    for (i = 0; i < h->n_layers; i++)
        h->layers[i].rope = h->layers[i].window > 0 ? 0 : RN_NO_ROPE;
    return status;
}

/* x + the norm of out, whose epsilon is not that of the others. Releases both. */
static int16_t join_normed(struct rn_build *b, int16_t out, int16_t x, const char *stem)
{
    const double eps = 1e-8, other = b->hparams.rms_eps; /* the model's configuration */
    int16_t normed;

    b->hparams.rms_eps = eps;
    normed = rn_build_norm(b, out, stem);
    b->hparams.rms_eps = other;
    rn_build_release(b, out);
    return rn_build_add(b, normed, x);
}

/* Norms before and behind; and the embedding is normed without weights. */
int16_t rn_arch_muse_block(struct rn_build *b, int16_t x)
{
    int16_t in, out;

    if (b->layer == 0)
        x = rn_build_unit_norm(b, x, b->hparams.embedding);
    out = rn_build_attention(b, rn_build_norm(b, x, "blk.%d.attn_norm"), &x);
    x = join_normed(b, out, x, "blk.%d.post_attention_norm");
    in = rn_build_norm(b, x, "blk.%d.ffn_norm");
    out = rn_build_feed_forward(b, in);
    rn_build_release(b, in);
    return join_normed(b, out, x, "blk.%d.post_ffw_norm");
}
