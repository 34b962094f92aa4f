/* The decoder that a row of the table of architectures describes: see arch/table.h for the flags, build.h for the rest.
 *
 *   one after the other    x = x + after(attention(before(x)))     in parallel    x = x + attention(before(x))
 *                          x = x + after(ffn(before(x)))                              + ffn(before'(x))
 *
 * before and after are norms, where the row has them. */
#include "model/build/build.h"

#include <stdio.h>

static bool has_flag(const struct rn_build *b, uint64_t flag)
{
    return (b->arch->flags & flag) != 0;
}

/* What a half of the block begins with: a norm of x, or x itself. */
static int16_t before(struct rn_build *b, int16_t x, const char *stem)
{
    return has_flag(b, RN_ARCH_NO_NORM_BEFORE) ? x : rn_build_norm(b, x, stem);
}

static void release_before(struct rn_build *b, int16_t in)
{
    if (!has_flag(b, RN_ARCH_NO_NORM_BEFORE))
        rn_build_release(b, in);
}

/* x + what a half of the block gives; releases both. Files of Grok have other names for the norms behind. */
static int16_t join(struct rn_build *b, int16_t out, int16_t x, const char *norm_after, const char *other)
{
    char weight[64];
    int16_t normed;

    if (has_flag(b, RN_ARCH_NORM_AFTER)) {
        snprintf(weight, sizeof weight, "%s.weight", other);
        norm_after = rn_build_has(b, weight) ? other : norm_after;
        normed = rn_build_norm(b, out, norm_after);
        rn_build_release(b, out);
        out = normed;
    }
    rn_build_scale(b, out, b->hparams.residual_scale);
    return rn_build_add(b, out, x);
}

static int16_t feed_forward(struct rn_build *b, int16_t in)
{
    bool dense = rn_build_has(b, "blk.%d.ffn_gate.weight") && !rn_build_has(b, "blk.%d.ffn_gate_inp.weight");

    dense = dense || b->hparams.experts == 0 || b->arch->experts == 0;
    return dense ? rn_build_feed_forward(b, in) : rn_build_moe(b, in);
}

static int16_t attention_half(struct rn_build *b, int16_t x)
{
    int16_t in, mixed;

    if (b->hparams.layers[b->layer].heads == 0) {
        rn_build_last_rows(b, NULL, &x);
        return x;
    }
    in = before(b, x, "blk.%d.attn_norm");
    mixed = rn_build_mix(b, in);
    release_before(b, in);
    rn_build_last_rows(b, &mixed, &x);
    return join(b, rn_build_attention_out(b, mixed), x, "blk.%d.post_attention_norm", "blk.%d.attn_output_norm");
}

int16_t rn_build_ffn_part(struct rn_build *b, int16_t x)
{
    int16_t in, out;

    if (has_flag(b, RN_ARCH_SIDE_EXPERTS) && rn_build_has(b, "blk.%d.ffn_gate_inp.weight"))
        return join(b, rn_build_side_experts(b, x), x, "blk.%d.post_ffw_norm", "blk.%d.layer_output_norm");
    in = before(b, x, b->arch->ffn_norm != NULL ? b->arch->ffn_norm : "blk.%d.ffn_norm");
    out = feed_forward(b, in);
    release_before(b, in);
    return join(b, out, x, "blk.%d.post_ffw_norm", "blk.%d.layer_output_norm");
}

/* x + the feed-forward of what `stem` norms, in a block without attention. Releases x. */
static int16_t lone_feed_forward(struct rn_build *b, int16_t x, const char *stem)
{
    int16_t in, out;

    rn_build_last_rows(b, NULL, &x);
    in = rn_build_norm(b, x, stem);
    out = feed_forward(b, in);
    rn_build_release(b, in);
    return rn_build_add(b, out, x);
}

/* Falcon's second norm is attention's, where the file has it; else both halves share one, if there is no ffn_norm. */
static int16_t parallel_block(struct rn_build *b, int16_t x)
{
    bool second = rn_build_has(b, "blk.%d.attn_norm_2.weight"), own = rn_build_has(b, "blk.%d.ffn_norm.weight");
    const char *ffn_norm = own && !second ? "blk.%d.ffn_norm" : "blk.%d.attn_norm";
    int16_t in, mixed, out, ffn;
    bool all_rows = !b->selected;

    if (b->hparams.layers[b->layer].heads == 0)
        return lone_feed_forward(b, x, ffn_norm);
    in = rn_build_norm(b, x, second ? "blk.%d.attn_norm_2" : "blk.%d.attn_norm");
    mixed = rn_build_mix(b, in);
    rn_build_last_rows(b, &mixed, &x);
    if (second || own) {
        rn_build_release(b, in);
        in = rn_build_norm(b, x, ffn_norm);
    } else if (all_rows && b->selected) {
        in = rn_build_select(b, in);
    }
    out = rn_build_attention_out(b, mixed);
    ffn = feed_forward(b, in);
    rn_build_release(b, in);
    return rn_build_add(b, rn_build_add(b, out, ffn), x);
}

int16_t rn_build_block(struct rn_build *b, int16_t x)
{
    bool bare = has_flag(b, RN_ARCH_PARALLEL_BARE) && !rn_build_has(b, "blk.%d.ffn_norm.weight");

    if (b->arch->block != NULL)
        return b->arch->block(b, x);
    x = b->hparams.parallel || bare ? parallel_block(b, x) : rn_build_ffn_part(b, attention_half(b, x));
    if (b->per_layer >= 0)
        x = rn_build_add(b, rn_build_per_layer(b, x), x);
    if (has_flag(b, RN_ARCH_BLOCK_SCALE) && rn_build_has(b, "blk.%d.layer_output_scale.weight"))
        x = rn_build_times(b, x, "blk.%d.layer_output_scale.weight", 1);
    return x;
}

/* Once through all blocks; what comes of the last time is tapped and ends with the wanted rows. */
static int16_t once(struct rn_build *b, int16_t x, bool is_last)
{
    int32_t last = b->last;

    if (!is_last)
        b->last = -1;
    for (b->layer = 0; (uint32_t)b->layer < b->n_blocks && b->status == RUNNEL_OK; b->layer++) {
        x = rn_build_block(b, x);
        if (is_last)
            rn_build_tap(b, x);
    }
    b->layer = -1;
    b->last = last;
    return x;
}

static int16_t all_blocks(struct rn_build *b, int16_t x)
{
    uint32_t i, loops = b->hparams.loops;
    int16_t normed;

    if (loops > 1 && b->exit > 0)
        rn_build_fail(b, RUNNEL_UNSUPPORTED, "key %s.num_loops is above 1: such a model has no early exit",
                      b->hparams.architecture);
    for (i = 0; i < loops; i++) {
        b->again = i > 0;
        x = once(b, x, i + 1 == loops);
        if (i + 1 == loops || !b->hparams.loop_norm)
            continue;
        normed = rn_build_norm(b, x, "output_norm");
        rn_build_release(b, x);
        x = normed;
    }
    return x;
}

void rn_build_decoder(struct rn_build *b)
{
    int32_t embedding = rn_build_matrix(b, "token_embd.weight", b->hparams.embedding, b->plan->n_vocab, 0, false);
    int16_t x, normed;

    rn_build_ropes(b);
    x = rn_build_embed(b, embedding, (float)b->hparams.embedding_scale);
    if (has_flag(b, RN_ARCH_POSITIONS) && (!has_flag(b, RN_ARCH_ALIBI) || rn_build_has(b, "position_embd.weight")))
        x = rn_build_positions(b, x);
    if (has_flag(b, RN_ARCH_EMBEDDING_NORM)) {
        normed = rn_build_norm(b, x, "token_embd_norm");
        rn_build_release(b, x);
        x = normed;
    }
    if (b->hparams.per_layer > 0)
        rn_build_per_layer_inputs(b, x);
    x = all_blocks(b, x);
    rn_build_head(b, x, embedding);
}
