/* Residual streams side by side that are mixed anew before and behind each half of a block (manifold-constrained
 * hyper-connections: arXiv 2512.24880), which DeepSeek-V4 (deepseek4.c) and GLM-5.3 have. Of a row x of n streams x_i:
 *
 *     [pre, post, m] = HYPER(F norm(x))            norm: of all n streams as one row, without weights
 *     y = half(norm(sum_i pre_i x_i))              half: attention or feed-forward
 *     x_i = post_i y + sum_j m_ij x_j
 *
 * GLM-5.3: streams begin as copies of the embedding and end as their mean. A block's first half is attention to what an
 * indexer chooses in blocks of positions (model/build/indexer.c), by a latent without rotation, or a gated delta rule
 * as in Kimi Linear (delta.c). */
#include <math.h>
#include <stdio.h>

#include "model/arch/families.h"
#include "model/build/build.h"

runnel_status rn_arch_manifold_keys(const struct rn_hparams_reader *r)
{
    struct rn_hparams *h = r->hparams;
    runnel_status status = rn_arch_read_streams(r, 1);

    if (status == RUNNEL_OK)
        status = rn_hparams_u32(r, "hyper_connection.sinkhorn_iterations", true, 0, 1000, &h->hyper.turns);
    if (status == RUNNEL_OK && !rn_hparams_has(r, "hyper_connection.epsilon"))
        return rn_hparams_bad(r, RUNNEL_FORMAT, "hyper_connection.epsilon", "is missing");
    if (status == RUNNEL_OK)
        status = rn_hparams_f64(r, "hyper_connection.epsilon", 0, 1e6, &h->hyper.eps);
    return status;
}

/* The n numbers of a tensor, which are no weight of an op. */
static void read_numbers(struct rn_build *b, const char *name, uint32_t n, float *out)
{
    const struct rn_tensor *tensor = rn_build_tensor(b, name);
    uint32_t i;

    for (i = 0; i < n; i++)
        out[i] = 0;
    if (b->status != RUNNEL_OK)
        return;
    if (tensor == NULL || tensor->elements != n || tensor->type != RN_F32) {
        rn_build_fail(b, RUNNEL_FORMAT, "tensor blk.%d%s is missing or not %u numbers of type F32", (int)b->layer,
                      name + 6, n);
        return;
    }
    rn_type(tensor->type)->decode(tensor->data, out, n);
    for (i = 0; i < n; i++)
        if (!isfinite(out[i]))
            rn_build_fail(b, RUNNEL_FORMAT, "tensor blk.%d%s holds what is no number", (int)b->layer, name + 6);
    rn_build_ignore(b, name);
}

int16_t rn_arch_manifold_before(struct rn_build *b, int16_t x, const char *stem, const char *norm, int16_t *post,
                                int16_t *mix)
{
    uint32_t n = b->hparams.streams, all = (2 + n) * n;
    struct rn_op op = rn_build_empty(b, RN_OP_HYPER);
    int16_t normed = rn_build_unit_norm(b, rn_build_copy(b, x), n * b->hparams.embedding), in, out;
    char name[RN_BUILD_NAME_BYTES];

    snprintf(name, sizeof name, "%s_fn", stem);
    op.a = rn_build_linear(b, normed, name, all);
    rn_build_release(b, normed);
    snprintf(name, sizeof name, "%s_base.weight", stem);
    op.weight = rn_build_vector(b, name, all, false);
    snprintf(name, sizeof name, "%s_scale.weight", stem);
    read_numbers(b, name, 3, op.factors);
    op.heads = n;
    op.turns = b->hparams.hyper.turns;
    op.eps = b->hparams.hyper.eps;
    op.out = rn_build_slot(b, all, false);
    rn_build_op(b, &op);
    rn_build_release(b, op.a);
    in = rn_build_expert_sum(b, rn_build_copy(b, x), rn_build_split(b, op.out, 1, 0, n), n);
    *post = rn_build_split(b, op.out, 1, n, n);
    *mix = rn_build_split(b, op.out, 1, 2 * n, n * n);
    rn_build_release(b, op.out);
    out = rn_build_norm(b, in, norm);
    rn_build_release(b, in);
    return out;
}

int16_t rn_arch_manifold_behind(struct rn_build *b, int16_t y, int16_t post, int16_t mix, int16_t x)
{
    struct rn_op op = rn_build_empty(b, RN_OP_MIX);
    int16_t out = rn_build_spread(b, y, post, 0);

    op.a = x;
    op.b = mix;
    op.heads = b->hparams.streams;
    op.scale = 0;
    op.out = rn_build_slot(b, rn_build_width(b, x), false);
    rn_build_op(b, &op);
    rn_build_release(b, x);
    rn_build_release(b, mix);
    rn_build_release(b, y);
    return rn_build_add(b, out, op.out);
}

static int16_t block(struct rn_build *b, int16_t x)
{
    int16_t post, mix, none = -1, out;
    int16_t in = rn_arch_manifold_before(b, x, "blk.%d.hc_attn", "blk.%d.attn_norm", &post, &mix);

    if (b->hparams.layers[b->layer].heads > 0)
        out = rn_build_attention_out(b, rn_build_mix(b, in));
    else
        out = rn_arch_kimi_delta(b, in, &none);
    rn_build_release(b, in);
    x = rn_arch_manifold_behind(b, out, post, mix, x);
    in = rn_arch_manifold_before(b, x, "blk.%d.hc_ffn", "blk.%d.ffn_norm", &post, &mix);
    out = rn_build_has(b, "blk.%d.ffn_gate_inp.weight") ? rn_build_moe(b, in) : rn_build_feed_forward(b, in);
    rn_build_release(b, in);
    return rn_arch_manifold_behind(b, out, post, mix, x);
}

void rn_arch_glm5_next(struct rn_build *b)
{
    int32_t embedding = rn_build_matrix(b, "token_embd.weight", b->hparams.embedding, b->plan->n_vocab, 0, false);
    int16_t x, out;

    b->last = -1; /* rows are chosen behind the last block */
    x = rn_build_select(b, rn_arch_stream_blocks(b, embedding, block));
    out = rn_build_expert_sum(b, x, -1, b->hparams.streams);
    rn_build_scale(b, out, 1.0 / b->hparams.streams);
    rn_build_head(b, out, embedding);
}
