/* Attention by a latent (multi-head latent attention; DeepSeek-V2, arXiv 2405.04434).
 *
 * The block's input gives one small vector c for all heads, the latent, and one vector p that is rotated. Head h has
 *
 *     keys k = [K_h c, p]        values v = V_h c        queries q = [u, w], w rotated
 *
 * The cache holds c and p, nothing else. Since u · K_h c = (K_h^T u) · c, and the sum of weights times V_h c is V_h
 * times the sum of weights times c, attention itself works on the cache as it lies: heads of queries [K_h^T u, w] look
 * at one head of keys [c, p], whose front c are the values too.
 *
 *     normed ─┬─ attn_q (or attn_q_a ─ norm ─ attn_q_b) ─┬─ u ─ K_h^T ─┐
 *             │                                          └─ w ─ ROPE ──┴─ CONCAT ─────────────┐
 *             └─ attn_kv_a_mqa ─┬─ c ─ norm ─┐                                                │
 *                               └─ p ─ ROPE ─┴─ CONCAT ─ KV_STORE ····· the cache ······ ATTENTION ─ V_h ─▶
 *
 * In models without rotation p and w are not there.
 *
 * Prompts and single positions are computed in this form alike, so that a row's bits do not depend on its step (law 5).
 * Files have K_h^T and V_h as attn_k_b and attn_v_b, or, older ones, K_h over V_h of each head as attn_kv_b. */
#include "model/build/build.h"

#include "model/hparams.h"

/* The block's. */
static const struct rn_latent_hparams *latent_of(const struct rn_build *b)
{
    bool local = b->hparams.local_latent.rank > 0 && b->hparams.layers[b->layer].window > 0;

    return local ? &b->hparams.local_latent : &b->hparams.latent;
}

/* Queries [heads, k_dim]; where there is an indexer, it chooses. Keeps normed. */
static int16_t queries(struct rn_build *b, int16_t normed, uint32_t heads)
{
    const struct rn_latent_hparams *h = latent_of(b);
    int16_t low, out;

    if (b->hparams.indexer.most == 0 && rn_build_has(b, "blk.%d.attn_q.weight"))
        return rn_build_linear(b, normed, "blk.%d.attn_q", heads * h->k_dim);
    if (h->q_rank == 0)
        rn_build_fail(b, RUNNEL_FORMAT, "key %s.attention.q_lora_rank or tensor blk.%d.attn_q.weight is missing",
                      b->hparams.architecture, (int)b->layer);
    low = rn_build_linear(b, normed, "blk.%d.attn_q_a", h->q_rank);
    out = rn_build_rms_norm(b, low, "blk.%d.attn_q_a_norm.weight");
    rn_build_release(b, low);
    low = out;
    rn_build_choose(b, normed, low);
    out = rn_build_linear(b, low, "blk.%d.attn_q_b", heads * h->k_dim);
    rn_build_release(b, low);
    return out;
}

/* In place, where the block rotates. */
static void rotate(struct rn_build *b, int16_t a, uint32_t heads)
{
    int32_t rope = b->hparams.layers[b->layer].rope;

    if (rope != RN_NO_ROPE)
        rn_build_rope(b, (uint32_t)rope, a, heads);
}

/* The block's K_h and V_h, as the file has them. */
struct matrices {
    int32_t k, v;       /* the same weight where they are one */
    uint32_t of_values; /* where V_h begins in it */
    bool one;
};

static struct matrices matrices_of(struct rn_build *b, uint32_t heads)
{
    const struct rn_latent_hparams *h = latent_of(b);
    uint32_t plain = h->k_dim - h->rope_dim;
    struct matrices m = {.one = plain == 0 || !rn_build_has(b, "blk.%d.attn_k_b.weight"), .of_values = plain};

    if (m.one) {
        m.k = m.v = rn_build_heads(b, "blk.%d.attn_kv_b.weight", h->rank, plain + h->v_dim, heads);
        return m;
    }
    m.k = rn_build_heads(b, "blk.%d.attn_k_b.weight", plain, h->rank, heads);
    m.v = rn_build_heads(b, "blk.%d.attn_v_b.weight", h->rank, h->v_dim, heads);
    m.of_values = 0;
    return m;
}

/* Of queries [heads, k_dim] those that look at the cache: [heads, rank + rope_dim]. Releases q. */
static int16_t look(struct rn_build *b, int16_t q, const struct matrices *m, uint32_t heads)
{
    const struct rn_latent_hparams *h = latent_of(b);
    uint32_t plain = h->k_dim - h->rope_dim;
    int16_t u = plain == 0 ? -1 : rn_build_split(b, q, heads, 0, plain);
    int16_t w = h->rope_dim == 0 ? -1 : rn_build_split(b, q, heads, plain, h->rope_dim);

    rn_build_release(b, q);
    u = m->one ? rn_build_head_sum(b, u, m->k, 0, plain) : rn_build_head_matmul(b, u, m->k, 0, h->rank);
    if (w < 0)
        return u;
    rotate(b, w, heads);
    return rn_build_concat_heads(b, u, w, heads);
}

/* What the cache gets of a row: the latent, normed, and the rotated part. Keeps normed. */
static int16_t latent(struct rn_build *b, int16_t normed)
{
    const struct rn_latent_hparams *h = latent_of(b);
    int16_t both = rn_build_linear(b, normed, "blk.%d.attn_kv_a_mqa", h->rank + h->rope_dim);
    int16_t c = rn_build_split(b, both, 1, 0, h->rank), p, out;

    p = h->rope_dim == 0 ? -1 : rn_build_split(b, both, 1, h->rank, h->rope_dim);
    rn_build_release(b, both);
    out = rn_build_rms_norm(b, c, "blk.%d.attn_kv_a_norm.weight");
    rn_build_release(b, c);
    if (p < 0)
        return out;
    if (h->key_norm) {
        c = rn_build_rms_norm(b, p, "blk.%d.attn_k_norm.weight");
        rn_build_release(b, p);
        p = c;
    }
    rotate(b, p, 1);
    return rn_build_concat_heads(b, out, p, 1);
}

int16_t rn_build_latent_mix(struct rn_build *b, int16_t normed)
{
    uint32_t heads = b->hparams.layers[b->layer].heads;
    struct matrices m = matrices_of(b, heads);
    struct rn_qkv x = {.v = -1};

    x.q = queries(b, normed, heads);
    x.k = latent(b, normed);
    x.q = look(b, x.q, &m, heads);
    if (b->hparams.layers[b->layer].tempered)
        rn_build_temper(b, x.q);
    return rn_build_head_matmul(b, rn_build_attend(b, x), m.v, m.of_values, latent_of(b)->v_dim);
}
