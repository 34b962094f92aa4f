/* LFM2: blocks of attention and blocks of short convolutions. Liquid AI's configurations; keys as converters write
 * them. */
#include "model/arch/families.h"
#include "model/build/build.h"

/* Models that see both ways have a middle tap. */
runnel_status rn_arch_lfm2moe_keys(const struct rn_hparams_reader *r)
{
    uint32_t *taps = &r->hparams->linear.taps;
    runnel_status status = rn_hparams_u32(r, "shortconv.l_cache", true, 2, RN_MAX_TAPS, taps);

    if (status == RUNNEL_OK && !r->hparams->causal && *taps % 2 == 0)
        status = rn_hparams_bad(r, RUNNEL_FORMAT, "shortconv.l_cache", "is even, which leaves no middle");
    return status;
}

/* Where there is a window, all attention has it. */
runnel_status rn_arch_lfm2_keys(const struct rn_hparams_reader *r)
{
    uint32_t window = 0, i;
    runnel_status status = rn_arch_lfm2moe_keys(r);

    if (status == RUNNEL_OK)
        status = rn_hparams_u32(r, "attention.sliding_window", false, 0, RN_MAX_CONTEXT, &window);
    for (i = 0; status == RUNNEL_OK && i < r->hparams->n_layers; i++)
        r->hparams->layers[i].window = window;
    return status;
}

/* out · (c * conv(b * x)), with [b, c, x] = in · normed. */
static int16_t short_convolution(struct rn_build *b, int16_t normed, int16_t *residual)
{
    uint32_t n = b->hparams.embedding;
    int16_t all = rn_build_linear(b, normed, "blk.%d.shortconv.in_proj", 3 * n), x, gate, out;

    x = rn_build_gate(b, RN_ACT_NONE, rn_build_split(b, all, 1, 0, n), rn_build_split(b, all, 1, 2 * n, n));
    gate = rn_build_split(b, all, 1, n, n);
    rn_build_release(b, all);
    out = rn_build_conv(b, x, "blk.%d.shortconv.conv", b->hparams.linear.taps, false);
    rn_build_release(b, x);
    x = rn_build_gate(b, RN_ACT_NONE, gate, out);
    rn_build_last_rows(b, &x, residual);
    out = rn_build_linear(b, x, "blk.%d.shortconv.out_proj", n);
    rn_build_release(b, x);
    return out;
}

int16_t rn_arch_lfm2_block(struct rn_build *b, int16_t x)
{
    int16_t normed, out;

    if (b->hparams.layers[b->layer].heads > 0)
        return rn_build_ffn_part(b, rn_build_attention_part(b, x));
    normed = rn_build_norm(b, x, "blk.%d.attn_norm");
    out = short_convolution(b, normed, &x);
    rn_build_release(b, normed);
    return rn_build_ffn_part(b, rn_build_add(b, out, x));
}
