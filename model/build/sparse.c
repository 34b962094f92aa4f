/* Attention to chosen blocks of positions (MiniMax Sparse Attention, of MiniMax-M3).
 *
 * As in indexer.c the cache has one small key of each position beside what attention keeps. Here each head of keys of
 * attention has one light head of queries of its own. A block of positions counts as much as the best of them, and the
 * heads of queries that share a head of keys look at those blocks that this head chooses:
 *
 *     normed ─ indexer.k_proj ─ norm ─ ROPE ─ KV_STORE ········ a cache of small keys
 *     normed ─ indexer.q_proj ─ norm ─ ROPE ─┬─ head 0 ─ CHOOSE ─▶ ATTENTION of head 0 of keys ─┐
 *                                            └─ head 1 ─ CHOOSE ─▶ ATTENTION of head 1 of keys ─┴▶
 *
 * Each head of keys has a cache of its own, with its values before its keys in one row. Queries have as many zeros
 * before them, so that scores are those of the keys alone: what is chosen is gathered once. Where all heads look at the
 * same positions they share one cache of such rows. */
#include "model/build/build.h"

/* Of each head of a, [heads, k_dim], the norm, rotated. Releases a. */
static int16_t light(struct rn_build *b, int16_t a, const char *norm, uint32_t heads)
{
    int16_t out = rn_build_head_norm(b, a, norm, heads);

    rn_build_release(b, a);
    if (b->hparams.layers[b->layer].rope != RN_NO_ROPE)
        rn_build_rope(b, (uint32_t)b->hparams.layers[b->layer].rope, out, heads);
    return out;
}

/* Releases a. */
static void store(struct rn_build *b, int16_t a, int32_t layer)
{
    struct rn_op op = rn_build_empty(b, RN_OP_KV_STORE);

    op.a = a;
    op.layer = layer;
    rn_build_op(b, &op);
    rn_build_release(b, a);
}

/* The positions that head `head` of the light queries chooses, of those whose keys are in `layer`. Keeps queries. */
static int16_t choose(struct rn_build *b, int16_t queries, uint32_t head, int32_t layer)
{
    const struct rn_indexer_hparams *h = &b->hparams.indexer;
    struct rn_op op = rn_build_empty(b, RN_OP_CHOOSE);
    int16_t q = rn_build_split(b, queries, 1, head * h->k_dim, h->k_dim), negative = rn_build_copy(b, q);
    uint32_t context = (b->plan->context_tokens + h->block - 1) / h->block * h->block;

    rn_build_scale(b, negative, -1);
    op.a = rn_build_join(b, q, negative);
    op.layer = layer;
    op.heads = 2;
    op.k_dim = h->k_dim;
    op.per = h->block;
    op.used = h->most < context ? h->most : context;
    op.best = h->local < op.used / op.per ? h->local : op.used / op.per;
    op.out = rn_build_slot(b, op.used, true);
    rn_build_op(b, &op);
    rn_build_release(b, op.a);
    return op.out;
}

/* What the queries of one head of keys find. Keeps x, releases chosen. */
static int16_t attend(struct rn_build *b, const struct rn_qkv *x, uint32_t head, int16_t chosen)
{
    const struct rn_layer_hparams *layer = &b->hparams.layers[b->layer];
    uint32_t part = layer->heads / layer->kv_heads, dim = layer->k_dim;
    int16_t q = rn_build_split(b, x->q, 1, head * part * dim, part * dim), zeros = rn_build_copy(b, q);
    int16_t k = rn_build_split(b, x->k, 1, head * dim, dim), v = rn_build_split(b, x->v, 1, head * dim, dim);
    struct rn_op op = rn_build_empty(b, RN_OP_ATTENTION);

    rn_build_scale(b, zeros, 0);
    op.layer = rn_build_cache(b, (struct rn_kv_layer){.k_width = 2 * dim, .kv_heads = 1});
    store(b, rn_build_join(b, v, k), op.layer);
    op.a = rn_build_concat_heads(b, zeros, q, part);
    op.b = chosen;
    op.used = rn_build_width(b, chosen);
    op.heads = part;
    op.kv_heads = 1;
    op.k_dim = 2 * dim;
    op.v_dim = dim;
    op.scale = (float)layer->attention_scale;
    op.out = rn_build_slot(b, part * dim, false);
    rn_build_op(b, &op);
    rn_build_release(b, op.a);
    rn_build_release(b, chosen);
    return op.out;
}

int16_t rn_build_attend_chosen(struct rn_build *b, struct rn_qkv x)
{
    const struct rn_layer_hparams *layer = &b->hparams.layers[b->layer];
    int16_t zeros = rn_build_split(b, x.q, layer->heads, 0, layer->v_dim);
    struct rn_op op = rn_build_empty(b, RN_OP_ATTENTION);

    rn_build_scale(b, zeros, 0);
    op.k_dim = layer->v_dim + layer->k_dim;
    op.v_dim = layer->v_dim;
    op.heads = layer->heads;
    op.kv_heads = layer->kv_heads;
    op.layer = rn_build_cache(b, (struct rn_kv_layer){.k_width = op.kv_heads * op.k_dim, .kv_heads = op.kv_heads});
    store(b, rn_build_concat_heads(b, x.v, x.k, op.kv_heads), op.layer);
    op.a = rn_build_concat_heads(b, zeros, x.q, op.heads);
    op.b = b->chosen;
    op.used = rn_build_width(b, b->chosen);
    op.scale = (float)layer->attention_scale;
    op.out = rn_build_slot(b, op.heads * op.v_dim, false);
    rn_build_op(b, &op);
    rn_build_release(b, op.a);
    return op.out;
}

int16_t rn_build_attend_blocks(struct rn_build *b, int16_t normed, struct rn_qkv x)
{
    const struct rn_indexer_hparams *h = &b->hparams.indexer;
    int32_t layer = rn_build_cache(b, (struct rn_kv_layer){.k_width = h->k_dim, .kv_heads = 1});
    int16_t keys = light(b, rn_build_linear(b, normed, "blk.%d.indexer.k_proj", h->k_dim), "blk.%d.indexer.k_norm", 1);
    int16_t queries = rn_build_linear(b, normed, "blk.%d.indexer.q_proj", h->heads * h->k_dim), out = -1, one;

    store(b, keys, layer);
    queries = light(b, queries, "blk.%d.indexer.q_norm", h->heads);
    for (uint32_t i = 0; i < h->heads; i++) {
        one = attend(b, &x, i, choose(b, queries, i, layer));
        out = out < 0 ? one : rn_build_join(b, out, one);
    }
    rn_build_release(b, queries);
    rn_build_release(b, x.q);
    rn_build_release(b, x.k);
    rn_build_release(b, x.v);
    return out;
}
