/* Attention to chosen positions (DeepSeek Sparse Attention: the report of DeepSeek-V3.2-Exp, 2025).
 *
 * Beside what attention keeps of a position, the cache has one small key of each, in a layer of its own. With a few
 * light heads of queries, and a weight for each of these heads, a row gives every position up to its own a score, and
 * attention looks at those with the largest scores only:
 *
 *     low ──── indexer.attn_q_b ─ ROPE ─ heads of queries ─┐
 *     normed ─ indexer.proj ──── a weight for each head ───┴─ CHOOSE ─ positions ─▶ ATTENTION of this block, and of
 *     normed ─ indexer.attn_k ─ norm ─ ROPE ─ KV_STORE ······· the cache            those behind it that do not choose
 *
 * Where positions are chosen in blocks, each of them has one key, at its last position: the mean of the block's keys,
 * by the softmax of a gate of each and of what the file adds to the gates of the positions in a block (GLM-5.3):
 *
 *     normed ─ indexer.attn_k ─ norm ──────────┐
 *     normed ─ indexer_compressor_gate ── COMPRESS by indexer_compressor_ape ─ KV_STORE
 *
 * low is what attention's own queries are made of. Scores are compared with each other, not used: what the report
 * scales them by is left out, and so is the Hadamard transform of queries and keys, which keeps their products. */
#include "model/build/build.h"

static const char *const tensors[] = {"blk.%d.indexer.attn_k.weight",        "blk.%d.indexer.k_norm.weight",
                                      "blk.%d.indexer.k_norm.bias",          "blk.%d.indexer.attn_q_b.weight",
                                      "blk.%d.indexer.proj.weight",          "blk.%d.indexer_compressor_gate.weight",
                                      "blk.%d.indexer_compressor_ape.weight"};

/* a, rotated, where the model rotates: [heads, k_dim]. Releases a. */
static int16_t rotate(struct rn_build *b, int16_t a, uint32_t heads)
{
    const struct rn_indexer_hparams *h = &b->hparams.indexer;

    if (b->hparams.n_ropes == 0)
        return a;
    if (h->behind)
        return rn_build_rope_behind(b, h->rope, a, heads);
    rn_build_rope(b, h->rope, a, heads);
    return a;
}

static int16_t keys(struct rn_build *b, int16_t normed)
{
    int16_t k = rn_build_linear(b, normed, "blk.%d.indexer.attn_k", b->hparams.indexer.k_dim);
    int16_t out = rn_build_layer_norm(b, k, "blk.%d.indexer.k_norm");

    rn_build_release(b, k);
    if (!rn_build_has(b, "blk.%d.indexer.k_norm.bias"))
        rn_build_fail(b, RUNNEL_FORMAT, "tensor blk.%d.indexer.k_norm.bias is missing", (int)b->layer);
    return rotate(b, out, 1);
}

int16_t rn_build_compress(struct rn_build *b, int16_t rows, int16_t gate, const char *ape, uint32_t per, uint32_t parts,
                          uint32_t dim)
{
    struct rn_op op = rn_build_empty(b, RN_OP_COMPRESS);

    op.a = rows;
    op.b = gate;
    op.per = per;
    op.k_dim = dim;
    op.weight = rn_build_matrix(b, ape, parts * dim, per, 0, false);
    op.layer = rn_build_state(b, (uint64_t)2 * parts * per * parts * dim);
    op.out = rn_build_slot(b, dim, false);
    rn_build_op(b, &op);
    rn_build_release(b, op.a);
    rn_build_release(b, op.b);
    return op.out;
}

/* One key for each block of positions, made of k. Releases k. */
static int16_t compress(struct rn_build *b, int16_t normed, int16_t k)
{
    const struct rn_indexer_hparams *h = &b->hparams.indexer;
    int16_t gate = rn_build_linear(b, normed, "blk.%d.indexer_compressor_gate", h->k_dim);

    return rn_build_compress(b, k, gate, "blk.%d.indexer_compressor_ape.weight", h->block, 1, h->k_dim);
}

static void store(struct rn_build *b, int16_t normed, int32_t layer)
{
    struct rn_op op = rn_build_empty(b, RN_OP_KV_STORE);

    op.a = keys(b, normed);
    if (b->hparams.indexer.block > 0)
        op.a = compress(b, normed, op.a);
    op.layer = layer;
    rn_build_op(b, &op);
    rn_build_release(b, op.a);
}

/* Of so many positions as may be chosen a plan's context may have fewer. */
static uint32_t most_of(const struct rn_build *b)
{
    uint32_t most = b->hparams.indexer.most, block = b->hparams.indexer.block, context = b->plan->context_tokens;

    if (block > 0)
        context = (context + block - 1) / block * block;
    most = most < context ? most : context;
    return block > 0 ? most + block - 1 : most;
}

void rn_build_choose(struct rn_build *b, int16_t normed, int16_t low)
{
    const struct rn_indexer_hparams *h = &b->hparams.indexer;
    struct rn_op op = rn_build_empty(b, RN_OP_CHOOSE);
    /* A prediction layer that would need a state for its keys looks at everything, too: see drafter_load.c. */
    bool chooses = b->hparams.layers[b->layer].chooses && !(b->only_nextn && h->block > 0);
    size_t i;

    if (h->most == 0)
        return;
    for (i = 0; !chooses && i < sizeof tensors / sizeof tensors[0]; i++)
        rn_build_ignore(b, tensors[i]);
    if (!chooses)
        return;
    if (b->only_nextn && !rn_build_has(b, "blk.%d.indexer.attn_k.weight"))
        return; /* such a layer looks at everything */
    op.layer = rn_build_cache(b, (struct rn_kv_layer){.k_width = h->k_dim, .kv_heads = 1});
    op.heads = h->heads;
    op.k_dim = h->k_dim;
    op.per = h->block;
    op.used = most_of(b);
    store(b, normed, op.layer);
    op.a = rn_build_linear(b, low, "blk.%d.indexer.attn_q_b", h->heads * h->k_dim);
    op.a = rotate(b, op.a, h->heads);
    op.b = rn_build_linear(b, normed, "blk.%d.indexer.proj", h->heads);
    if (b->chosen >= 0)
        rn_build_release(b, b->chosen);
    op.out = b->chosen = rn_build_slot(b, op.used, true);
    rn_build_op(b, &op);
    rn_build_release(b, op.a);
    rn_build_release(b, op.b);
}
