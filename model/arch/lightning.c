/* MiniMax-01 (arXiv 2501.08313): seven of eight blocks have lightning attention, which is linear attention whose states
 * decay at a pace of each head and block. Residual streams go on as what has been normed, times residual_scale:
 *
 *     n = norm(x);   y = mix(n) + scale n;   m = norm(y);   x = experts(m) + scale m
 *
 * With heads h from 0 and blocks l from 0 of H and L, S_h = e^(-d) S_h + k v, d = a^(h + 1) (1 - l / (L - 1) + 1e-5),
 * and a = 2^-(2^-(log2 H - 3)). */
#include <math.h>

#include "model/arch/families.h"
#include "model/build/build.h"

runnel_status rn_arch_minimax_01_keys(const struct rn_hparams_reader *r)
{
    struct rn_hparams *h = r->hparams;
    struct rn_linear_hparams *linear = &h->linear;
    runnel_status status;

    linear->heads = linear->kv_heads = h->layers[0].heads;
    linear->k_dim = linear->v_dim = h->layers[0].k_dim;
    if (linear->heads == 0 || linear->k_dim > RN_MAX_STATE_DIM)
        return rn_hparams_bad(r, RUNNEL_FORMAT, "attention.head_count", "is 0, or heads are too large");
    if (h->layers[0].k_dim != h->layers[0].v_dim)
        return rn_hparams_bad(r, RUNNEL_FORMAT, "attention.value_length", "is not attention.key_length");
    if (!rn_hparams_has(r, "residual_scale"))
        return rn_hparams_bad(r, RUNNEL_FORMAT, "residual_scale", "is missing");
    status = rn_hparams_f64(r, "residual_scale", 0, 1e9, &h->residual_scale);
    return status == RUNNEL_OK ? rn_arch_recurrent_layers(r, 8) : status;
}

/* The exponents of all heads, [heads], without the block's share: a number twice as long from step to step. Keeps x. */
static int16_t exponents(struct rn_build *b, int16_t x)
{
    uint32_t n = b->hparams.linear.heads, width;
    double a = exp2(-exp2(3 - log2(n)));
    int16_t all = rn_build_split(b, x, 1, 0, 1), more;

    rn_build_scale(b, all, 0);
    all = rn_build_activate(b, RN_ACT_EXP, all); /* 1 */
    rn_build_scale(b, all, -a);
    for (width = 1; width < n; width *= 2) {
        more = rn_build_copy(b, all);
        rn_build_scale(b, more, pow(a, width));
        all = rn_build_join(b, all, more);
    }
    if (width == n)
        return all;
    more = rn_build_split(b, all, 1, 0, n);
    rn_build_release(b, all);
    return more;
}

/* The block's decays, [heads, k_dim]. */
static int16_t decays(struct rn_build *b, int16_t x)
{
    double blocks = b->hparams.n_layers - b->hparams.n_nextn, share = blocks < 2 ? 0 : b->layer / (blocks - 1);
    int16_t a;

    if (b->carried < 0)
        b->carried = exponents(b, x);
    a = rn_build_copy(b, b->carried);
    rn_build_scale(b, a, 1 - share + 1e-5);
    return rn_build_repeat(b, rn_build_activate(b, RN_ACT_EXP, a), b->hparams.linear.heads, b->hparams.linear.k_dim);
}

/* What the states give for normed, gated: [heads, v_dim]. Keeps normed. */
static int16_t lightning(struct rn_build *b, int16_t normed)
{
    const struct rn_linear_hparams *h = &b->hparams.linear;
    uint32_t heads = h->heads, dim = h->k_dim, part;
    struct rn_op op = rn_build_empty(b, RN_OP_WKV7);
    int16_t all = rn_build_linear(b, normed, "blk.%d.attn_qkv", 3 * heads * dim), qkv = -1, out, gate;

    all = rn_build_activate(b, RN_ACT_SILU, all);
    for (part = 0; part < 3; part++) {
        out = rn_build_split(b, all, heads, part * dim, dim);
        qkv = part == 0 ? out : rn_build_join(b, qkv, out);
    }
    rn_build_release(b, all);
    op.heads = heads;
    op.k_dim = op.v_dim = dim;
    op.scale = 1;
    all = rn_build_linear_attention(b, &op, qkv, decays(b, normed));
    out = rn_build_rms_norm(b, all, "blk.%d.attn_norm_2.weight");
    rn_build_release(b, all);
    gate = rn_build_linear(b, normed, "blk.%d.attn_gate", heads * dim);
    return rn_build_gate(b, RN_ACT_SIGMOID, gate, out);
}

int16_t rn_arch_minimax_01_block(struct rn_build *b, int16_t x)
{
    bool attends = b->hparams.layers[b->layer].heads > 0;
    int16_t in = rn_build_norm(b, x, "blk.%d.attn_norm"), out;

    rn_build_release(b, x);
    out = attends ? rn_build_mix(b, in) : lightning(b, in);
    rn_build_last_rows(b, &out, &in);
    rn_build_scale(b, in, b->hparams.residual_scale);
    x = rn_build_add(b, rn_build_attention_out(b, out), in);
    in = rn_build_norm(b, x, "blk.%d.ffn_norm");
    rn_build_release(b, x);
    out = rn_build_moe(b, in);
    rn_build_scale(b, in, b->hparams.residual_scale);
    return rn_build_add(b, out, in);
}
