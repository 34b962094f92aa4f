/* Keys of dense decoders that differ from Llama's in a number or two, and blocks that are not whole. What each file
 * holds: the GGUF specification, the models' papers and configurations. */
#include <math.h>

#include "model/arch/families.h"
#include "model/build.h"
#include "model/hparams.h"

/* Files do not say it: the model of 40 blocks, and only that, has ALiBi instead of a rotation (arXiv 2309.10305). A file
 * of neither size that says nothing of a rotation has neither, as llama.cpp has it. */
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
