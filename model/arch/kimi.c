/* Kimi K3: blocks as in Kimi Linear (delta.c), whose input is not the residual stream alone but mixed of it and of what
 * it was at every attn_res.block_size-th block, where it begins anew:
 *
 *     mix(x) = sum_i p_i x_i over the kept streams and x, p = softmax of w · norm(x_i), norm without weights
 *     y = mix(x);   where a stream is kept: keep x, x = 0
 *     x = x + attention(norm y);   x = x + ffn(norm mix(x))
 *
 * A softmax that is built of pairs: with y and l of those so far, y = y + sigmoid(s - l) (x_i - y), l = l + softplus(s
 * - l).
 *
 * Gates are beta tanh(g / beta) sigmoid(g) * lb tanh(u / lb) (rn_hparams.situ). */
#include "model/arch/families.h"
#include "model/build/build.h"

enum { MAX_KEPT = 256 };

/* Kept streams, and these normed. */
struct bank {
    int16_t raw[MAX_KEPT], normed[MAX_KEPT];
    uint32_t n;
};

runnel_status rn_arch_kimi_k3_keys(const struct rn_hparams_reader *r)
{
    struct rn_hparams *h = r->hparams;
    struct rn_situ_hparams *situ = &h->situ;
    runnel_status status = rn_arch_kimi_linear_keys(r);

    if (status == RUNNEL_OK)
        status = rn_arch_kimi_bound(r);
    if (status == RUNNEL_OK)
        status = rn_hparams_u32(r, "attn_res.block_size", true, 0, RN_MAX_LAYERS, &h->keep_every);
    if (status == RUNNEL_OK && h->keep_every > 0 && h->n_layers / h->keep_every >= MAX_KEPT)
        status = rn_hparams_bad(r, RUNNEL_FORMAT, "attn_res.block_size", "makes more than 256 streams");
    if (status == RUNNEL_OK)
        status = rn_hparams_f64(r, "activation.situ_beta", 1e-6, 1e6, &situ->beta);
    if (status == RUNNEL_OK)
        status = rn_hparams_f64(r, "activation.situ_linear_beta", 0, 1e6, &situ->linear_beta);
    if (status == RUNNEL_OK && (situ->beta == 0 || !rn_hparams_has(r, "activation.situ_linear_beta")))
        status = rn_hparams_bad(r, RUNNEL_FORMAT,
                                situ->beta == 0 ? "activation.situ_beta" : "activation.situ_linear_beta", "is missing");
    return status;
}

/* Keeps x. */
static int16_t unit(struct rn_build *b, int16_t x)
{
    return rn_build_unit_norm(b, rn_build_copy(b, x), b->hparams.embedding);
}

/* One more term of the sum: *y and *l go on. Keeps x, releases score. */
static void add_term(struct rn_build *b, int16_t *y, int16_t *l, int16_t x, int16_t score)
{
    int16_t off = rn_build_minus(b, score, *l), share = rn_build_activate(b, RN_ACT_SIGMOID, rn_build_copy(b, off));
    int16_t step = rn_build_gate(b, RN_ACT_NONE, share, rn_build_minus(b, x, *y));

    rn_build_release(b, score);
    *y = rn_build_add(b, step, *y);
    *l = rn_build_add(b, rn_build_activate(b, RN_ACT_SOFTPLUS, off), *l);
}

/* Keeps x. */
static int16_t mix(struct rn_build *b, const struct bank *bank, int16_t x, const char *name)
{
    int32_t weight;
    int16_t y, l, normed;

    if (bank->n == 0) {
        rn_build_ignore(b, name);
        return rn_build_copy(b, x);
    }
    weight = rn_build_values(b, name, b->hparams.embedding, 1, false);
    normed = unit(b, x);
    l = rn_build_matmul(b, normed, weight);
    rn_build_release(b, normed);
    y = rn_build_copy(b, x);
    for (uint32_t i = 0; i < bank->n; i++)
        add_term(b, &y, &l, bank->raw[i], rn_build_matmul(b, bank->normed[i], weight));
    rn_build_release(b, l);
    return y;
}

/* The norm of the mix. Keeps x. */
static int16_t before(struct rn_build *b, const struct bank *bank, int16_t x, const char *score, const char *stem)
{
    int16_t y = mix(b, bank, x, score), out = rn_build_norm(b, y, stem);

    rn_build_release(b, y);
    return out;
}

/* Releases x. */
static int16_t block(struct rn_build *b, struct bank *bank, int16_t x)
{
    uint32_t every = b->hparams.keep_every;
    int16_t in = before(b, bank, x, "blk.%d.attn_res_score.weight", "blk.%d.attn_norm"), out, none = -1;

    if (b->hparams.layers[b->layer].heads > 0)
        out = rn_build_attention_out(b, rn_build_mix(b, in));
    else
        out = rn_arch_kimi_delta(b, in, &none);
    rn_build_release(b, in);
    if (every > 0 && (uint32_t)b->layer % every == 0) {
        bank->normed[bank->n] = unit(b, x);
        bank->raw[bank->n++] = x;
        x = out;
    } else {
        x = rn_build_add(b, out, x);
    }
    in = before(b, bank, x, "blk.%d.ffn_res_score.weight", "blk.%d.ffn_norm");
    out = rn_build_has(b, "blk.%d.ffn_gate_inp.weight") ? rn_build_moe(b, in) : rn_build_feed_forward(b, in);
    rn_build_release(b, in);
    return rn_build_add(b, out, x);
}

void rn_arch_kimi_k3(struct rn_build *b)
{
    int32_t embedding = rn_build_matrix(b, "token_embd.weight", b->hparams.embedding, b->plan->n_vocab, 0, false);
    struct bank bank = {.n = 0};
    int16_t x = rn_build_embed(b, embedding, (float)b->hparams.embedding_scale), out;

    b->last = -1; /* rows are chosen behind the last mix */
    for (b->layer = 0; (uint32_t)b->layer < b->n_blocks && b->status == RUNNEL_OK; b->layer++) {
        x = block(b, &bank, x);
        rn_build_tap(b, x);
    }
    b->layer = -1;
    out = mix(b, &bank, x, "output_res_score.weight");
    rn_build_release(b, x);
    for (uint32_t i = 0; i < bank.n; i++) {
        rn_build_release(b, bank.raw[i]);
        rn_build_release(b, bank.normed[i]);
    }
    rn_build_head(b, out, embedding);
}
