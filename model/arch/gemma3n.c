/* The decoder of Gemma 3n: n residual streams side by side (AltUp, arXiv 2301.13310), of which the first goes through
 * the blocks. A block predicts all streams from all, computes the first, and corrects the others by how far off its
 * prediction was; beside attention is a product of low rank (Laurel, arXiv 2411.07501).
 *
 *     p_i = x_i + sum_j c_ij(x_0) x_j          c: of the router of a row, as c' below
 *     y   = ((p_0 + norm(attention(norm p_0))) + laurel(norm p_0)) / sqrt(2),  y = y + norm(ffn(norm y))
 *     x_i = p_i + (1 + c'_i(y)) (y - p_0),     x_i += per_layer(x_0 * scale) for i > 0
 *
 * Streams begin as products of the embedding, and end as products that are averaged; both are made as long as the
 * first. */
#include <math.h>

#include "model/arch/families.h"
#include "model/build/build.h"

/* Releases a. */
static int16_t norm_of(struct rn_build *b, int16_t a, const char *stem)
{
    int16_t out = rn_build_norm(b, a, stem);

    rn_build_release(b, a);
    return out;
}

static int16_t linear_of(struct rn_build *b, int16_t a, const char *stem, uint32_t rows)
{
    int16_t out = rn_build_linear(b, a, stem, rows);

    rn_build_release(b, a);
    return out;
}

/* Keeps x. */
static int16_t first_of(struct rn_build *b, int16_t x)
{
    return rn_build_split(b, x, 1, 0, b->hparams.embedding);
}

static int16_t others_of(struct rn_build *b, int16_t x)
{
    return rn_build_split(b, x, 1, b->hparams.embedding, (b->hparams.streams - 1) * b->hparams.embedding);
}

/* Streams a, each as long as the row `like`. Releases a. */
static int16_t resize(struct rn_build *b, int16_t a, int16_t like)
{
    struct rn_op op = rn_build_empty(b, RN_OP_RESIZE);

    op.a = a;
    op.b = like;
    op.group = b->hparams.embedding;
    op.out = rn_build_slot(b, (b->hparams.streams - 1) * b->hparams.embedding, false);
    rn_build_op(b, &op);
    rn_build_release(b, a);
    return op.out;
}

/* x, then the others. Releases both. */
static int16_t join(struct rn_build *b, int16_t x, int16_t others)
{
    int16_t out = rn_build_concat(b, x, others);

    rn_build_release(b, x);
    rn_build_release(b, others);
    return out;
}

/* `rows` coefficients of a row. Keeps a. */
static int16_t coefficients(struct rn_build *b, int16_t a, const char *stem, uint32_t rows)
{
    int16_t m = rn_build_norm(b, a, "blk.%d.altup_router_norm");

    rn_build_scale(b, m, 1.0 / b->hparams.embedding);
    m = linear_of(b, m, "blk.%d.altup_router", b->hparams.streams);
    return linear_of(b, rn_build_activate(b, RN_ACT_TANH, m), stem, rows);
}

/* Releases x. */
static int16_t predict(struct rn_build *b, int16_t x)
{
    struct rn_op op = rn_build_empty(b, RN_OP_MIX);
    uint32_t n = b->hparams.streams;
    int16_t first = first_of(b, x);

    op.a = x;
    op.b = coefficients(b, first, "blk.%d.altup_predict_coef", n * n);
    op.heads = n;
    rn_build_release(b, first);
    op.out = rn_build_slot(b, n * b->hparams.embedding, false);
    rn_build_op(b, &op);
    rn_build_release(b, op.b);
    rn_build_release(b, x);
    return op.out;
}

/* The predictions p by what came of the first one. Releases both. */
static int16_t correct(struct rn_build *b, int16_t p, int16_t y)
{
    int16_t c = coefficients(b, y, "blk.%d.altup_correct_coef", b->hparams.streams), first = first_of(b, p),
            off = rn_build_minus(b, y, first), more;

    rn_build_release(b, first);
    rn_build_release(b, y);
    more = rn_build_spread(b, off, c, 1);
    rn_build_release(b, off);
    return rn_build_add(b, more, p);
}

static int16_t laurel(struct rn_build *b, int16_t in)
{
    int16_t out = rn_build_linear(b, in, "blk.%d.laurel_l", rn_build_rows(b, "blk.%d.laurel_l.weight"));

    out = norm_of(b, linear_of(b, out, "blk.%d.laurel_r", b->hparams.embedding), "blk.%d.laurel_post_norm");
    return rn_build_add(b, out, in);
}

/* Releases gate. */
static int16_t sparse(struct rn_build *b, int16_t gate, uint32_t width)
{
    const struct rn_layer_hparams *layer = &b->hparams.layers[b->layer];
    struct rn_op op = rn_build_empty(b, RN_OP_TAIL);

    if (layer->sparsity < -1e6)
        return gate;
    op.a = gate;
    op.scale = (float)layer->sparsity;
    op.out = rn_build_slot(b, width, false);
    rn_build_op(b, &op);
    rn_build_release(b, gate);
    return op.out;
}

/* Releases x. */
static int16_t feed_forward(struct rn_build *b, int16_t x)
{
    uint32_t width = b->hparams.layers[b->layer].feed_forward;
    int16_t gate = sparse(b, rn_build_linear(b, x, "blk.%d.ffn_gate", width), width);

    gate = rn_build_gate(b, b->arch->act, gate, rn_build_linear(b, x, "blk.%d.ffn_up", width));
    rn_build_release(b, x);
    return linear_of(b, gate, "blk.%d.ffn_down", b->hparams.embedding);
}

/* What the block makes of the first stream. Releases x. */
static int16_t compute(struct rn_build *b, int16_t x)
{
    int16_t in = rn_build_norm(b, x, "blk.%d.attn_norm"), out;

    out = norm_of(b, rn_build_attention_out(b, rn_build_mix(b, in)), "blk.%d.post_attention_norm");
    x = rn_build_add(b, rn_build_add(b, out, x), laurel(b, in));
    rn_build_scale(b, x, sqrt(0.5));
    out = feed_forward(b, rn_build_norm(b, x, "blk.%d.ffn_norm"));
    return rn_build_add(b, norm_of(b, out, "blk.%d.post_ffw_norm"), x);
}

/* What the block's own embedding says, added to all streams but the first. Releases x. */
static int16_t add_per_layer(struct rn_build *b, int16_t x)
{
    int16_t in = rn_build_times(b, first_of(b, x), "blk.%d.altup_correct_scale.weight", b->hparams.embedding);
    int16_t all = rn_build_repeat(b, rn_build_per_layer(b, in), 1, b->hparams.streams - 1), first = first_of(b, x),
            others;

    rn_build_release(b, in);
    others = rn_build_add(b, others_of(b, x), all);
    rn_build_release(b, x);
    return join(b, first, others);
}

static int16_t block(struct rn_build *b, int16_t x)
{
    int16_t p = predict(b, x), tapped;

    x = add_per_layer(b, correct(b, p, compute(b, first_of(b, p))));
    if (b->n_taps > 0) {
        tapped = first_of(b, x);
        rn_build_tap(b, tapped);
        rn_build_release(b, tapped);
    }
    return x;
}

/* The streams of an embedding. Releases x. */
static int16_t begin(struct rn_build *b, int16_t x)
{
    uint32_t width = b->hparams.embedding;
    int32_t weight = rn_build_stack(b, "altup_proj.weight", width, width, b->hparams.streams - 1);

    return join(b, x, resize(b, rn_build_matmul(b, x, weight), x));
}

/* Their mean. Releases x. */
static int16_t end(struct rn_build *b, int16_t x)
{
    uint32_t width = b->hparams.embedding, n = b->hparams.streams;
    int32_t weight = rn_build_heads(b, "altup_unembd_proj.weight", width, width, n - 1);
    struct rn_op op = rn_build_empty(b, RN_OP_SUM);
    int16_t first = first_of(b, x), others = others_of(b, x);

    rn_build_release(b, x);
    others = resize(b, rn_build_head_matmul(b, others, weight, 0, width), first);
    op.a = join(b, first, others);
    op.used = n;
    op.out = rn_build_slot(b, width, false);
    rn_build_op(b, &op);
    rn_build_release(b, op.a);
    rn_build_scale(b, op.out, 1.0 / n);
    return op.out;
}

void rn_arch_gemma3n(struct rn_build *b)
{
    uint32_t width = b->hparams.embedding;
    int32_t embedding = rn_build_matrix(b, "token_embd.weight", width, b->plan->n_vocab, 0, false);
    int16_t x;

    if (b->hparams.layers[0].feed_forward == 0)
        rn_build_fail(b, RUNNEL_FORMAT, "key %s.feed_forward_length is missing", b->hparams.architecture);
    rn_build_ropes(b);
    x = rn_build_embed(b, embedding, (float)b->hparams.embedding_scale);
    rn_build_per_layer_inputs(b, x);
    x = begin(b, x);
    for (b->layer = 0; (uint32_t)b->layer < b->n_blocks && b->status == RUNNEL_OK; b->layer++)
        x = block(b, x);
    b->layer = -1;
    rn_build_head(b, end(b, rn_build_select(b, x)), embedding);
}
