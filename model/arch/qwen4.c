/* Qwen4 (qwen4exp): Qwen3.5's gated delta rules and gated attention with experts, between residual streams.
 *
 * The n streams x_i of a row begin as copies of the embedding. Attention, or the delta rules, and experts each see one
 * row that is mixed of them; what they give goes to all, by a number each. Two thin products, of rank
 * hyper_connection.low_rank, say how much of each value of each stream counts:
 *
 *     s = norm(x), each stream by itself                g = sigmoid(up . silu(down . s / n)), as wide as s
 *     y = part(sum_i g_i s_i / n)                       x_i = x_i + 2 sigmoid(inject . s / n)_i y
 *
 * The final row is mixed like that, too; there is no other norm before the output.
 *
 * Blocks of attention choose blocks of r positions (model/build/sparse.c). The key of such a block is the mean of its
 * raw keys, normed and rotated as its first position, so that the cache has at the last position of each the key of it:
 *
 *     k_proj ─┬─────────────┬─ ADD ─ 1 / r ─ norm ─ ROPE ─ KV_STORE ··· a cache of keys
 *             └─ SHIFT, r - 1 times ─┘
 *     q_proj ─ norm ─ ROPE, r - 1 positions ahead ─ CHOOSE ─▶ ATTENTION
 *
 * Queries are rotated by as much more as these keys are. Before one block the streams take in embeddings of n-grams
 * (model/grams.h), e, of which a short convolution sees those of some rows before:
 *
 *     gate_i = sigmoid(signed root of norm(key . e)_i · norm(x_i) / sqrt(width))
 *     v_i = gate_i (value . e);   x_i = x_i + v_i + silu(conv(norm(v)))_i */
#include <math.h>
#include <stdio.h>

#include "model/arch/families.h"
#include "model/build/build.h"

/* ---- Keys ---- */

static runnel_status read_streams(const struct rn_hparams_reader *r)
{
    struct rn_hparams *h = r->hparams;
    runnel_status status = rn_arch_read_streams(r, 2);

    if (status == RUNNEL_OK)
        status = rn_hparams_u32(r, "hyper_connection.low_rank", true, 1, RN_MAX_WIDTH, &h->hyper.rank);
    return status;
}

/* Which blocks choose. */
static runnel_status read_ratios(const struct rn_hparams_reader *r)
{
    struct rn_hparams *h = r->hparams;
    uint32_t *block = &h->indexer.block, i;
    runnel_status status = rn_hparams_layers(r, "attention.compress_ratios", false, 0, RN_MAX_TAPS,
                                             offsetof(struct rn_layer_hparams, compress));

    for (i = 0; status == RUNNEL_OK && i < h->n_layers; i++) {
        h->layers[i].chooses = h->layers[i].heads > 0 && h->layers[i].compress > 0;
        if (h->layers[i].chooses && *block > 0 && *block != h->layers[i].compress)
            status = rn_hparams_bad(r, RUNNEL_UNSUPPORTED, "attention.compress_ratios", "has blocks of several sizes");
        if (h->layers[i].chooses)
            *block = h->layers[i].compress;
    }
    return status;
}

static runnel_status read_indexer(const struct rn_hparams_reader *r)
{
    struct rn_hparams *h = r->hparams;
    struct rn_indexer_hparams *x = &h->indexer;
    struct rn_rope_hparams ahead = h->ropes[0];
    runnel_status status = read_ratios(r);
    int32_t rope = 0;

    if (status != RUNNEL_OK || x->block == 0)
        return status;
    status = rn_arch_indexer_keys(r, ahead.dims);
    if (status == RUNNEL_OK && x->most < x->block)
        status = rn_hparams_bad(r, RUNNEL_FORMAT, "attention.indexer.top_k", "is less than attention.compress_ratios");
    ahead.shift = (int32_t)x->block - 1;
    if (status == RUNNEL_OK)
        status = rn_hparams_add_rope(r, &ahead, &rope);
    x->rope = (uint32_t)rope;
    return status;
}

/* At least n integers, from 0 on. */
static runnel_status read_list(const struct rn_hparams_reader *r, const char *rest, uint32_t n,
                               const struct rn_gguf_entry **list)
{
    char key[RN_KEY_BYTES];
    runnel_status status;
    uint32_t i;

    rn_hparams_key(r->hparams, rest, key);
    status = rn_gguf_get_array(r->gguf, key, true, RN_GGUF_U32, list, r->error);
    if (status == RUNNEL_OK && (*list)->count < n)
        return rn_hparams_bad(r, RUNNEL_FORMAT, rest, "has too few elements");
    for (i = 0; status == RUNNEL_OK && i < n; i++)
        if (rn_gguf_item_i64(*list, i) < 0)
            status = rn_hparams_bad(r, RUNNEL_FORMAT, rest, "has an element out of range");
    return status;
}

static runnel_status read_rows(const struct rn_hparams_reader *r, struct rn_grams *g)
{
    const struct rn_gguf_entry *factors, *sizes, *offsets;
    runnel_status status = read_list(r, "ple.layer_multipliers", g->most, &factors);
    int64_t size, offset;
    uint32_t i;

    if (status == RUNNEL_OK)
        status = read_list(r, "ple.head_vocab_sizes", g->heads, &sizes);
    if (status == RUNNEL_OK)
        status = read_list(r, "ple.head_offsets", g->heads, &offsets);
    for (i = 0; status == RUNNEL_OK && i < g->most; i++)
        g->factors[i] = (uint64_t)rn_gguf_item_i64(factors, i);
    for (i = 0; status == RUNNEL_OK && i < g->heads; i++) {
        size = rn_gguf_item_i64(sizes, i);
        offset = rn_gguf_item_i64(offsets, i);
        if (size == 0 || size > INT32_MAX || offset > INT32_MAX - size)
            return rn_hparams_bad(r, RUNNEL_FORMAT, "ple.head_vocab_sizes", "has an element out of range");
        g->sizes[i] = (uint32_t)size;
        g->offsets[i] = (uint32_t)offset;
    }
    return status;
}

static runnel_status read_gram_sizes(const struct rn_hparams_reader *r)
{
    struct rn_gram_hparams *x = &r->hparams->grams;
    struct rn_grams *g = &x->grams;
    uint32_t each = 0;
    runnel_status status = rn_hparams_u32(r, "ple.ngram_size", true, 2, RN_MAX_GRAM, &g->most);

    if (status == RUNNEL_OK)
        status = rn_hparams_u32(r, "ple.heads_per_ngram", true, 1, RN_MAX_GRAM_HEADS / (g->most - 1), &each);
    g->heads = (g->most - 1) * each;
    if (status == RUNNEL_OK)
        status = rn_hparams_u32(r, "ple.conv_kernel", true, 2, RN_MAX_TAPS, &x->taps);
    if (status == RUNNEL_OK)
        status = rn_hparams_u32(r, "ple.eos_token_id", true, 0, UINT32_MAX, &g->end);
    if (status == RUNNEL_OK)
        status = rn_hparams_u32(r, "embedding_length_per_layer_input", true, 1, RN_MAX_WIDTH, &x->width);
    if (status == RUNNEL_OK && (uint64_t)x->width * g->heads != r->hparams->embedding)
        status = rn_hparams_bad(r, RUNNEL_FORMAT, "embedding_length_per_layer_input",
                                "is not embedding_length, divided by the heads of all n-grams");
    return status;
}

static runnel_status read_grams(const struct rn_hparams_reader *r)
{
    struct rn_gram_hparams *x = &r->hparams->grams;
    const struct rn_gguf_entry *blocks;
    char key[RN_KEY_BYTES];
    runnel_status status;

    rn_hparams_key(r->hparams, "ple.layers", key);
    status = rn_gguf_get_array(r->gguf, key, false, RN_GGUF_U32, &blocks, r->error);
    if (status != RUNNEL_OK || blocks == NULL || blocks->count == 0)
        return status;
    if (blocks->count > 1)
        return rn_hparams_bad(r, RUNNEL_UNSUPPORTED, "ple.layers", "has more than one block");
    if (rn_gguf_item_i64(blocks, 0) < 0 || rn_gguf_item_i64(blocks, 0) >= r->hparams->n_layers)
        return rn_hparams_bad(r, RUNNEL_FORMAT, "ple.layers", "has an element out of range");
    x->block = (uint32_t)rn_gguf_item_i64(blocks, 0);
    status = read_gram_sizes(r);
    return status == RUNNEL_OK ? read_rows(r, &x->grams) : status;
}

runnel_status rn_arch_qwen4_keys(const struct rn_hparams_reader *r)
{
    struct rn_hparams *h = r->hparams;
    runnel_status status = rn_arch_qwen3next_keys(r);

    if (status == RUNNEL_OK && h->linear.v_dim != h->linear.k_dim)
        status = rn_hparams_bad(r, RUNNEL_FORMAT, "ssm.inner_size", "is not ssm.time_step_rank times ssm.state_size");
    if (status == RUNNEL_OK)
        status = read_streams(r);
    if (status == RUNNEL_OK)
        status = read_indexer(r);
    return status == RUNNEL_OK ? read_grams(r) : status;
}

/* ---- Streams ---- */

/* RMS norm of each stream by its own row of the tensor `name`. Keeps x. */
static int16_t norm_streams(struct rn_build *b, int16_t x, const char *name)
{
    struct rn_op op = rn_build_empty(b, RN_OP_RMS_NORM);

    if (b->hparams.rms_eps < 0)
        rn_build_fail(b, RUNNEL_FORMAT, "key %s.attention.layer_norm_rms_epsilon is missing", b->hparams.architecture);
    op.a = x;
    op.group = b->hparams.embedding;
    op.eps = b->hparams.rms_eps;
    op.weight = rn_build_values(b, name, b->hparams.embedding, b->hparams.streams, false);
    op.out = rn_build_slot(b, rn_build_width(b, x), false);
    rn_build_op(b, &op);
    return op.out;
}

/* The row that a part of the block sees. *inject, unless NULL: a number for each stream, by which what the part gives
 * goes to it. Keeps x. */
static int16_t mix(struct rn_build *b, int16_t x, const char *stem, int16_t *inject)
{
    uint32_t n = b->hparams.streams;
    int16_t normed, few, gate;
    char name[RN_BUILD_NAME_BYTES];

    snprintf(name, sizeof name, "%s_norm.weight", stem);
    normed = norm_streams(b, x, name);
    snprintf(name, sizeof name, "%s_down", stem);
    few = rn_build_linear(b, normed, name, b->hparams.hyper.rank);
    rn_build_scale(b, few, 1.0 / n);
    few = rn_build_activate(b, RN_ACT_SILU, few);
    snprintf(name, sizeof name, "%s_up", stem);
    gate = rn_build_linear(b, few, name, n * b->hparams.embedding);
    rn_build_release(b, few);
    if (inject != NULL) {
        snprintf(name, sizeof name, "%s_inject", stem);
        *inject = rn_build_linear(b, normed, name, n);
        rn_build_scale(b, *inject, 1.0 / n);
        *inject = rn_build_activate(b, RN_ACT_SIGMOID, *inject);
        rn_build_scale(b, *inject, 2);
    }
    gate = rn_build_expert_sum(b, rn_build_gate(b, RN_ACT_SIGMOID, gate, normed), -1, n);
    rn_build_scale(b, gate, 1.0 / n);
    return gate;
}

/* The streams and what a part gives. Releases all three. */
static int16_t join(struct rn_build *b, int16_t out, int16_t inject, int16_t x)
{
    int16_t all = rn_build_spread(b, out, inject, 0);

    rn_build_release(b, out);
    return rn_build_add(b, all, x);
}

/* ---- N-grams ---- */

/* The row's token and those before it, the latest first. */
static int16_t tokens(struct rn_build *b)
{
    struct rn_op op = rn_build_empty(b, RN_OP_TOKEN);
    int16_t last, before, all;
    uint32_t i;

    op.out = last = rn_build_slot(b, 1, false);
    rn_build_op(b, &op);
    all = rn_build_copy(b, last);
    for (i = 1; i < b->plan->grams.most; i++, last = before) {
        before = rn_build_shift(b, last);
        rn_build_release(b, last);
        all = rn_build_join(b, all, rn_build_copy(b, before));
    }
    rn_build_release(b, last);
    return all;
}

/* [heads, width] of the table. */
static int16_t look_up(struct rn_build *b)
{
    static const char table[] = "per_layer_token_embd.weight";
    const struct rn_grams *g = &b->plan->grams;
    struct rn_op rows = rn_build_empty(b, RN_OP_GRAMS), op = rn_build_empty(b, RN_OP_LOOK_UP);
    uint32_t n = rn_build_rows(b, table), i;

    for (i = 0; i < g->heads; i++)
        if (g->offsets[i] + g->sizes[i] > n)
            rn_build_fail(b, RUNNEL_FORMAT, "tensor %s has %u rows, of which key %s.ple.head_offsets wants more", table,
                          n, b->hparams.architecture);
    rows.a = tokens(b);
    rows.out = rn_build_slot(b, g->heads, true);
    rn_build_op(b, &rows);
    rn_build_release(b, rows.a);
    op.a = rows.out;
    op.used = g->heads;
    op.weight = rn_build_matrix(b, table, b->hparams.grams.width, n, 0, false);
    op.out = rn_build_slot(b, g->heads * b->hparams.grams.width, false);
    rn_build_op(b, &op);
    rn_build_release(b, op.a);
    return op.out;
}

/* A number for each stream: how well what the n-grams say goes with it. Keeps both. */
static int16_t gate_of(struct rn_build *b, int16_t e, int16_t x)
{
    struct rn_op op = rn_build_empty(b, RN_OP_SIGNED_ROOT);
    int16_t key = rn_build_linear(b, e, "blk.%d.ple_key", b->hparams.streams * b->hparams.embedding), normed, query;

    normed = norm_streams(b, key, "blk.%d.ple_norm_key.weight");
    rn_build_release(b, key);
    query = norm_streams(b, x, "blk.%d.ple_norm_query.weight");
    op.a = rn_build_part_sum(b, rn_build_gate(b, RN_ACT_NONE, normed, query), b->hparams.streams);
    rn_build_scale(b, op.a, 1 / sqrt(b->hparams.embedding));
    op.eps = 1e-6;
    op.out = rn_build_slot(b, b->hparams.streams, false);
    rn_build_op(b, &op);
    rn_build_release(b, op.a);
    return rn_build_activate(b, RN_ACT_SIGMOID, op.out);
}

/* The streams with what the n-grams add. Releases x. */
static int16_t add_grams(struct rn_build *b, int16_t x)
{
    int16_t e, value, all, normed, out;

    if (b->plan->n_vocab >= RN_MOST_TOKEN)
        rn_build_fail(b, RUNNEL_UNSUPPORTED, "tensor token_embd.weight has %u rows, too many for n-grams",
                      b->plan->n_vocab);
    b->plan->grams = b->hparams.grams.grams;
    e = look_up(b);
    value = rn_build_linear(b, e, "blk.%d.ple_value", b->hparams.embedding);
    all = rn_build_spread(b, value, gate_of(b, e, x), 0);
    rn_build_release(b, value);
    rn_build_release(b, e);
    normed = norm_streams(b, all, "blk.%d.ple_norm_conv.weight");
    out = rn_build_wide_conv(b, normed, "blk.%d.ple_conv1d", b->hparams.grams.taps, b->plan->grams.most);
    rn_build_release(b, normed);
    return rn_build_add(b, x, rn_build_add(b, all, out));
}

/* ---- Attention ---- */

/* The mean of a and of the n - 1 rows before it. Releases a. */
static int16_t pool(struct rn_build *b, int16_t a, uint32_t n)
{
    int16_t sum = rn_build_copy(b, a), before;
    uint32_t i;

    for (i = 1; i < n; i++, a = before) {
        before = rn_build_shift(b, a);
        rn_build_release(b, a);
        sum = rn_build_add(b, sum, rn_build_copy(b, before));
    }
    rn_build_release(b, a);
    rn_build_scale(b, sum, 1.0 / n);
    return sum;
}

static void store_key(struct rn_build *b, int16_t in, int32_t layer)
{
    const struct rn_indexer_hparams *h = &b->hparams.indexer;
    int16_t pooled = pool(b, rn_build_linear(b, in, "blk.%d.indexer.k_proj", h->k_dim), h->block);
    struct rn_op op = rn_build_empty(b, RN_OP_KV_STORE);

    op.a = rn_build_head_norm(b, pooled, "blk.%d.indexer.k_norm", 1);
    rn_build_release(b, pooled);
    rn_build_rope(b, 0, op.a, 1);
    op.layer = layer;
    rn_build_op(b, &op);
    rn_build_release(b, op.a);
}

/* As many ones as there are heads, whose queries are given: e^(0 x). */
static int16_t ones(struct rn_build *b, int16_t queries)
{
    int16_t out = rn_build_split(b, queries, 1, 0, b->hparams.indexer.heads);

    rn_build_scale(b, out, 0);
    return rn_build_activate(b, RN_ACT_EXP, out);
}

/* The positions that the block's attention looks at. Keeps in. */
static int16_t choose(struct rn_build *b, int16_t in)
{
    const struct rn_indexer_hparams *h = &b->hparams.indexer;
    struct rn_op op = rn_build_empty(b, RN_OP_CHOOSE);
    uint32_t most = h->most / h->block, all = (b->plan->context_tokens + h->block - 1) / h->block;
    int16_t q = rn_build_linear(b, in, "blk.%d.indexer.q_proj", h->heads * h->k_dim);

    op.layer = rn_build_cache(b, (struct rn_kv_layer){.k_width = h->k_dim, .kv_heads = 1});
    store_key(b, in, op.layer);
    op.a = rn_build_head_norm(b, q, "blk.%d.indexer.q_norm", h->heads);
    rn_build_release(b, q);
    rn_build_rope(b, h->rope, op.a, h->heads);
    op.b = ones(b, op.a);
    op.heads = h->heads;
    op.k_dim = h->k_dim;
    op.per = h->block;
    op.used = (most < all ? most : all) * h->block + h->block - 1;
    op.out = rn_build_slot(b, op.used, true);
    rn_build_op(b, &op);
    rn_build_release(b, op.a);
    rn_build_release(b, op.b);
    return op.out;
}

static int16_t attention(struct rn_build *b, int16_t in, int16_t *x)
{
    static const char *const unread[] = {"blk.%d.indexer.q_proj.weight", "blk.%d.indexer.k_proj.weight",
                                         "blk.%d.indexer.q_norm.weight", "blk.%d.indexer.k_norm.weight"};
    bool chooses = b->hparams.layers[b->layer].chooses;
    int16_t out;
    size_t i;

    for (i = 0; !chooses && i < sizeof unread / sizeof unread[0]; i++)
        rn_build_ignore(b, unread[i]);
    if (chooses)
        b->chosen = choose(b, in);
    out = rn_arch_gated_attention(b, in, x);
    if (chooses)
        rn_build_release(b, b->chosen);
    b->chosen = -1;
    return out;
}

/* ---- All of it ---- */

static int16_t block(struct rn_build *b, int16_t x)
{
    bool all_rows = !b->selected;
    int16_t in, inject, out;

    if (b->hparams.grams.grams.most > 0 && b->hparams.grams.block == (uint32_t)b->layer)
        x = add_grams(b, x);
    in = mix(b, x, "blk.%d.hc_attn", &inject);
    if (b->hparams.layers[b->layer].heads > 0)
        out = attention(b, in, &x);
    else
        out = rn_arch_delta_rule(b, in, &x, true, RN_ACT_SIGMOID);
    rn_build_release(b, in);
    if (all_rows && b->selected)
        inject = rn_build_select(b, inject);
    x = join(b, out, inject, x);
    in = mix(b, x, "blk.%d.hc_ffn", &inject);
    out = rn_build_moe(b, in);
    rn_build_release(b, in);
    return join(b, out, inject, x);
}

void rn_arch_qwen4(struct rn_build *b)
{
    int32_t embedding = rn_build_matrix(b, "token_embd.weight", b->hparams.embedding, b->plan->n_vocab, 0, false);
    int16_t x = rn_arch_stream_blocks(b, embedding, block), out = mix(b, x, "output_hc", NULL);

    rn_build_release(b, x);
    rn_build_head(b, out, embedding);
}
