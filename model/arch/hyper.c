/* Residual streams side by side, Hunyuan 4's kind of hyper-connections (arXiv 2409.19606): attention and feed-forward
 * each see one row that is mixed of the n streams, and what they give goes to all of them. Of a row x of n streams x_i:
 *
 *     c = sigmoid(scale * (F norm(x)) + base), [2 n]         norm: of all n streams as one row, without weights
 *     y = part(norm(sum_i (c_i + eps) x_i))                  scale: one number for the first n of c, one for the others
 *     x_i = x_i + (magnitude c_(n + i) + eps) y
 *
 * Streams begin as copies of the embedding and end mixed as above by n numbers. */
#include <stdio.h>

#include "model/arch/families.h"
#include "model/build/build.h"

runnel_status rn_arch_read_streams(const struct rn_hparams_reader *r, uint32_t least)
{
    struct rn_hparams *h = r->hparams;
    runnel_status status = rn_hparams_u32(r, "hyper_connection.count", true, least, RN_MAX_STREAMS, &h->streams);

    if (status == RUNNEL_OK && (uint64_t)h->streams * h->embedding > RN_MAX_WIDTH)
        status = rn_hparams_bad(r, RUNNEL_FORMAT, "hyper_connection.count", "makes rows of more than 16 Mi values");
    return status;
}

runnel_status rn_arch_hyper_keys(const struct rn_hparams_reader *r)
{
    struct rn_hyper_hparams *x = &r->hparams->hyper;
    runnel_status status = rn_arch_read_streams(r, 1);
    const char *const needed[] = {"hyper_connection.epsilon", "hyper_connection.magnitude"};
    double *const values[] = {&x->eps, &x->magnitude};
    size_t i;

    for (i = 0; status == RUNNEL_OK && i < 2; i++)
        status = rn_hparams_has(r, needed[i]) ? rn_hparams_f64(r, needed[i], 0, 1e6, values[i])
                                              : rn_hparams_bad(r, RUNNEL_FORMAT, needed[i], "is missing");
    return status;
}

/* c of the streams x: `rows` values, of which `scales` parts have a scale of their own. Keeps x. */
static int16_t coefficients(struct rn_build *b, int16_t x, const char *stem, uint32_t rows, uint32_t scales)
{
    int16_t normed = rn_build_unit_norm(b, rn_build_copy(b, x), b->hparams.streams * b->hparams.embedding), c;
    char name[64];

    snprintf(name, sizeof name, "%s_fn", stem);
    c = rn_build_linear(b, normed, name, rows);
    rn_build_release(b, normed);
    snprintf(name, sizeof name, "%s_scale.weight", stem);
    c = rn_build_times(b, c, name, scales);
    snprintf(name, sizeof name, "%s_base.weight", stem);
    return rn_build_activate(b, RN_ACT_SIGMOID, rn_build_plus(b, c, name, rows));
}

/* The sum of the streams x by c + eps. Keeps x, releases c. */
static int16_t reduce(struct rn_build *b, int16_t x, int16_t c)
{
    uint32_t n = b->hparams.streams;
    int16_t out = rn_build_expert_sum(b, rn_build_copy(b, x), c, n), rest;

    if (b->hparams.hyper.eps == 0)
        return out;
    rest = rn_build_expert_sum(b, rn_build_copy(b, x), -1, n);
    rn_build_scale(b, rest, b->hparams.hyper.eps);
    return rn_build_add(b, out, rest);
}

/* What a half of the block begins with; *back: what takes its result to the streams. Keeps x. */
static int16_t before(struct rn_build *b, int16_t x, const char *stem, const char *norm, int16_t *back)
{
    uint32_t n = b->hparams.streams;
    int16_t c = coefficients(b, x, stem, 2 * n, 2), in, out;

    *back = rn_build_split(b, c, 1, n, n);
    rn_build_scale(b, *back, b->hparams.hyper.magnitude);
    in = reduce(b, x, rn_build_split(b, c, 1, 0, n));
    rn_build_release(b, c);
    out = rn_build_norm(b, in, norm);
    rn_build_release(b, in);
    return out;
}

/* The streams and what a half gives. Releases all three. */
static int16_t behind(struct rn_build *b, int16_t out, int16_t back, int16_t x)
{
    int16_t all = rn_build_spread(b, out, back, b->hparams.hyper.eps);

    rn_build_release(b, out);
    return rn_build_add(b, all, x);
}

static int16_t block(struct rn_build *b, int16_t x)
{
    int16_t back, in = before(b, x, "blk.%d.hc_attn", "blk.%d.attn_norm", &back), out;

    out = rn_build_attention_out(b, rn_build_mix(b, in));
    rn_build_release(b, in);
    x = behind(b, out, back, x);
    in = before(b, x, "blk.%d.hc_ffn", "blk.%d.ffn_norm", &back);
    out = rn_build_has(b, "blk.%d.ffn_gate_inp.weight") ? rn_build_moe(b, in) : rn_build_feed_forward(b, in);
    rn_build_release(b, in);
    return behind(b, out, back, x);
}

int16_t rn_arch_stream_blocks(struct rn_build *b, int32_t embedding, int16_t (*block_of)(struct rn_build *b, int16_t x))
{
    int16_t x;

    if (b->n_taps > 0)
        rn_build_fail(b, RUNNEL_UNSUPPORTED,
                      "key %s.hyper_connection.count says that there are several streams: blocks have no features",
                      b->hparams.architecture);
    rn_build_ropes(b);
    x = rn_build_repeat(b, rn_build_embed(b, embedding, (float)b->hparams.embedding_scale), 1, b->hparams.streams);
    for (b->layer = 0; (uint32_t)b->layer < b->n_blocks && b->status == RUNNEL_OK; b->layer++)
        x = block_of(b, x);
    b->layer = -1;
    return x;
}

void rn_arch_streams(struct rn_build *b, int16_t (*block_of)(struct rn_build *b, int16_t x))
{
    int32_t embedding = rn_build_matrix(b, "token_embd.weight", b->hparams.embedding, b->plan->n_vocab, 0, false);
    int16_t x = rn_build_select(b, rn_arch_stream_blocks(b, embedding, block_of));
    int16_t out = reduce(b, x, coefficients(b, x, "output_hc", b->hparams.streams, 1));

    rn_build_release(b, x);
    rn_build_head(b, out, embedding);
}

void rn_arch_hyper(struct rn_build *b)
{
    rn_arch_streams(b, block);
}
