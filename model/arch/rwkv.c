/* RWKV: time mixing, whose state is a matrix for each head, and channel mixing; both see the row before. Version 6
 * (arXiv 2404.05892), version 7 (arXiv 2503.14456), and what was made of Qwen2 with either (arXiv 2501.15570). Tensors
 * as converters write them. */
#include <math.h>

#include "model/arch/families.h"
#include "model/build/build.h"

/* ---- Keys ---- */

/* No block has attention. */
runnel_status rn_arch_rwkv_keys(const struct rn_hparams_reader *r)
{
    struct rn_hparams *h = r->hparams;
    struct rn_linear_hparams *linear = &h->linear;
    runnel_status status;
    uint32_t i;

    for (i = 0; i < h->n_layers; i++)
        h->layers[i].heads = h->layers[i].kv_heads = 0;
    status = rn_hparams_u32(r, "wkv.head_size", true, 1, RN_MAX_STATE_DIM, &linear->k_dim);
    if (status == RUNNEL_OK)
        status = rn_hparams_u32(r, "rescale_every_n_layers", false, 0, RN_MAX_LAYERS, &linear->halve_every);
    if (status != RUNNEL_OK)
        return status;
    linear->v_dim = linear->k_dim;
    linear->heads = h->embedding / linear->k_dim;
    if (h->embedding % linear->k_dim != 0)
        return rn_hparams_bad(r, RUNNEL_FORMAT, "wkv.head_size", "does not divide embedding_length");
    return RUNNEL_OK;
}

/* Key attention.head_count_kv counts heads of keys and values before they are repeated. */
runnel_status rn_arch_rwkv6qwen2_keys(const struct rn_hparams_reader *r)
{
    struct rn_linear_hparams *linear = &r->hparams->linear;
    runnel_status status = rn_arch_rwkv_keys(r);

    if (status == RUNNEL_OK)
        status = rn_hparams_u32(r, "attention.head_count_kv", false, 0, RN_MAX_HEADS, &linear->kv_heads);
    if (linear->kv_heads == 0)
        linear->kv_heads = linear->heads;
    if (status == RUNNEL_OK && linear->heads % linear->kv_heads != 0)
        status = rn_hparams_bad(r, RUNNEL_FORMAT, "attention.head_count_kv", "does not divide the number of heads");
    return status;
}

/* ---- Pieces ---- */

enum { MIXES = 5 }; /* of version 6: decay, key, value, receptance, gate */

/* Of the norms of heads: 10^-5 * 8^2, as the models were trained. */
#define GROUP_EPS 64e-5

/* A product in two steps, with act between them; releases a. */
static int16_t low_rank(struct rn_build *b, int16_t a, const char *first, enum rn_activation act, const char *second,
                        const char *bias)
{
    int16_t few = rn_build_product(b, a, first, NULL, rn_build_rows(b, first)), out;

    rn_build_release(b, a);
    few = rn_build_activate(b, act, few);
    out = rn_build_product(b, few, second, bias, b->hparams.embedding);
    rn_build_release(b, few);
    return out;
}

/* Part i of `all`. Keeps all. */
static int16_t part(struct rn_build *b, int16_t all, uint32_t i)
{
    return rn_build_split(b, all, 1, i * b->hparams.embedding, b->hparams.embedding);
}

/* A product of part i. */
static int16_t product_of(struct rn_build *b, int16_t all, uint32_t i, const char *stem, uint32_t rows)
{
    int16_t a = part(b, all, i), out = rn_build_linear(b, a, stem, rows);

    rn_build_release(b, a);
    return out;
}

static struct rn_op wkv(const struct rn_build *b, enum rn_op_kind kind)
{
    struct rn_op op = rn_build_empty(b, kind);

    op.heads = b->hparams.linear.heads;
    op.k_dim = b->hparams.linear.k_dim;
    op.v_dim = b->hparams.linear.v_dim;
    return op;
}

/* What leaves a block. */
static int16_t halved(struct rn_build *b, int16_t x)
{
    uint32_t every = b->hparams.linear.halve_every;

    if (every > 0 && ((uint32_t)b->layer + 1) % every == 0)
        rn_build_scale(b, x, 0.5);
    return x;
}

/* ---- Version 6 ---- */

/* How far each of the five lies between a row and the one before: weights of the file, and what the row adds to them.
 * */
static int16_t mixes(struct rn_build *b, int16_t in, int16_t before)
{
    static const char *const names[MIXES] = {"blk.%d.time_mix_lerp_w.weight", "blk.%d.time_mix_lerp_k.weight",
                                             "blk.%d.time_mix_lerp_v.weight", "blk.%d.time_mix_lerp_r.weight",
                                             "blk.%d.time_mix_lerp_g.weight"};
    uint32_t n = b->hparams.embedding, rank = rn_build_rows(b, "blk.%d.time_mix_w1.weight") / MIXES, i;
    int16_t x = rn_build_lerp(b, in, before, "blk.%d.time_mix_lerp_x.weight", 1), all = -1, one;

    one = rn_build_product(b, x, "blk.%d.time_mix_w1.weight", NULL, rank * MIXES);
    rn_build_release(b, x);
    one = rn_build_activate(b, RN_ACT_TANH, one);
    x = rn_build_head_matmul(b, one, rn_build_heads(b, "blk.%d.time_mix_w2.weight", rank, n, MIXES), 0, n);
    if (rn_build_has(b, "blk.%d.time_mix_lerp_fused.weight"))
        return rn_build_plus(b, x, "blk.%d.time_mix_lerp_fused.weight", n * MIXES);
    for (i = 0; i < MIXES; i++) {
        one = rn_build_plus(b, part(b, x, i), names[i], n);
        all = i == 0 ? one : rn_build_join(b, all, one);
    }
    rn_build_release(b, x);
    return all;
}

/* The five themselves. Keeps both. */
static int16_t mixed(struct rn_build *b, int16_t in, int16_t before)
{
    int16_t by = mixes(b, in, before), way = rn_build_minus(b, before, in);

    by = rn_build_gate(b, RN_ACT_NONE, by, rn_build_repeat(b, way, 1, MIXES));
    return rn_build_add(b, by, rn_build_repeat(b, rn_build_copy(b, in), 1, MIXES));
}

/* e^-e^x with x a product in two steps, part 0. */
static int16_t decays6(struct rn_build *b, int16_t all)
{
    int16_t w = low_rank(b, part(b, all, 0), "blk.%d.time_mix_decay_w1.weight", RN_ACT_TANH,
                         "blk.%d.time_mix_decay_w2.weight", "blk.%d.time_mix_decay.weight");

    w = rn_build_activate(b, RN_ACT_EXP, w);
    rn_build_scale(b, w, -1);
    return rn_build_activate(b, RN_ACT_EXP, w);
}

static int16_t time_mix6(struct rn_build *b, int16_t in)
{
    uint32_t n = b->hparams.embedding, heads = b->hparams.linear.heads;
    int16_t before = rn_build_shift(b, in), all = mixed(b, in, before), r, k, v, w, gate, out;
    struct rn_op op = wkv(b, RN_OP_WKV6);

    rn_build_release(b, before);
    k = product_of(b, all, 1, "blk.%d.time_mix_key", n);
    v = product_of(b, all, 2, "blk.%d.time_mix_value", n);
    r = product_of(b, all, 3, "blk.%d.time_mix_receptance", n);
    gate = product_of(b, all, 4, "blk.%d.time_mix_gate", n);
    w = decays6(b, all);
    rn_build_release(b, all);
    op.weight = rn_build_values(b, "blk.%d.time_mix_first.weight", n, 1, false);
    out = rn_build_linear_attention(b, &op, rn_build_join(b, rn_build_join(b, r, k), v), w);
    out = rn_build_group_norm(b, out, "blk.%d.time_mix_ln", heads, GROUP_EPS);
    return rn_build_gate(b, RN_ACT_SILU, gate, out);
}

/* Gated linear attention, with keys times one less their decays. */
static int16_t time_mix_qwen(struct rn_build *b, int16_t in)
{
    const struct rn_linear_hparams *h = &b->hparams.linear;
    uint32_t n = b->hparams.embedding, few = h->kv_heads * h->k_dim, times = h->heads / h->kv_heads;
    int16_t before = rn_build_shift(b, in), all = mixed(b, in, before), r, k, v, w, gate, kept, out;
    struct rn_op op = wkv(b, RN_OP_WKV7);

    rn_build_release(b, before);
    k = rn_build_repeat(b, product_of(b, all, 1, "blk.%d.time_mix_key", few), h->kv_heads, times);
    v = rn_build_repeat(b, product_of(b, all, 2, "blk.%d.time_mix_value", few), h->kv_heads, times);
    r = product_of(b, all, 3, "blk.%d.time_mix_receptance", n);
    gate = product_of(b, all, 4, "blk.%d.time_mix_gate", n);
    w = decays6(b, all);
    rn_build_release(b, all);
    kept = rn_build_gate(b, RN_ACT_NONE, rn_build_copy(b, k), rn_build_copy(b, w));
    out = rn_build_minus(b, k, kept);
    rn_build_release(b, k);
    rn_build_release(b, kept);
    op.scale = (float)(1 / sqrt(h->k_dim));
    out = rn_build_linear_attention(b, &op, rn_build_join(b, rn_build_join(b, r, out), v), w);
    return rn_build_gate(b, RN_ACT_SIGMOID, gate, out);
}

/* x + output · what time mixing gives, which it releases. */
static int16_t add_time_mix(struct rn_build *b, int16_t mix, int16_t x)
{
    int16_t out = rn_build_linear(b, mix, "blk.%d.time_mix_output", b->hparams.embedding);

    rn_build_release(b, mix);
    return rn_build_add(b, out, x);
}

/* x + value · relu(key · xk)^2, that times the sigmoid of receptance · xr where the file has that. Releases x. */
static int16_t add_channel_mix(struct rn_build *b, int16_t x)
{
    bool gated = rn_build_has(b, "blk.%d.channel_mix_receptance.weight"), all_rows = !b->selected;
    int16_t in = rn_build_norm(b, x, "blk.%d.attn_norm_2"), before = rn_build_shift(b, in), r = -1, k, out;
    uint32_t n = b->hparams.embedding, width = b->hparams.layers[b->layer].feed_forward;

    if (width == 0)
        rn_build_fail(b, RUNNEL_FORMAT, "key %s.feed_forward_length is missing", b->hparams.architecture);
    k = rn_build_lerp(b, in, before, "blk.%d.channel_mix_lerp_k.weight", 1);
    if (gated)
        r = rn_build_lerp(b, in, before, "blk.%d.channel_mix_lerp_r.weight", 1);
    rn_build_release(b, in);
    rn_build_release(b, before);
    rn_build_last_rows(b, &k, &x);
    if (gated && all_rows && b->selected)
        r = rn_build_select(b, r);
    in = rn_build_activate(b, RN_ACT_RELU2, rn_build_linear(b, k, "blk.%d.channel_mix_key", width));
    rn_build_release(b, k);
    out = rn_build_linear(b, in, "blk.%d.channel_mix_value", n);
    rn_build_release(b, in);
    if (gated) {
        k = rn_build_linear(b, r, "blk.%d.channel_mix_receptance", n);
        rn_build_release(b, r);
        out = rn_build_gate(b, RN_ACT_SIGMOID, k, out);
    }
    return rn_build_add(b, out, x);
}

int16_t rn_arch_rwkv6_block(struct rn_build *b, int16_t x)
{
    int16_t in = rn_build_norm(b, x, "blk.%d.attn_norm"), mix = time_mix6(b, in);

    rn_build_release(b, in);
    return halved(b, add_channel_mix(b, add_time_mix(b, mix, x)));
}

int16_t rn_arch_rwkv6qwen2_block(struct rn_build *b, int16_t x)
{
    int16_t in = rn_build_norm(b, x, "blk.%d.attn_norm"), mix = time_mix_qwen(b, in);

    rn_build_release(b, in);
    rn_build_last_rows(b, &mix, &x);
    return halved(b, rn_build_ffn_part(b, add_time_mix(b, mix, x)));
}

/* ---- Version 7 ---- */

/* In the order of time_mix_lerp_fused. */
enum { RECEPTANCE, DECAY, KEY, VALUE, RATE, GATE };

/* Behind the first block, a part of the way back to the values of that. */
static int16_t values7(struct rn_build *b, int16_t all)
{
    int16_t v = product_of(b, all, VALUE, "blk.%d.time_mix_value", b->hparams.embedding), gate, way;

    if (b->carried < 0) {
        b->carried = rn_build_copy(b, v);
        return v;
    }
    gate = low_rank(b, part(b, all, VALUE), "blk.%d.time_mix_v1.weight", RN_ACT_NONE, "blk.%d.time_mix_v2.weight",
                    "blk.%d.time_mix_v0.weight");
    way = rn_build_minus(b, b->carried, v);
    return rn_build_add(b, rn_build_gate(b, RN_ACT_SIGMOID, gate, way), v);
}

/* e^(-e^(-1/2) sigmoid(x)) */
static int16_t decays7(struct rn_build *b, int16_t all)
{
    int16_t w = low_rank(b, part(b, all, DECAY), "blk.%d.time_mix_w1.weight", RN_ACT_TANH, "blk.%d.time_mix_w2.weight",
                         "blk.%d.time_mix_w0.weight");

    w = rn_build_activate(b, RN_ACT_SIGMOID, w);
    rn_build_scale(b, w, -0.606531);
    return rn_build_activate(b, RN_ACT_EXP, w);
}

/* k (1 + (rate - 1) k_a). Releases k, keeps rate. */
static int16_t kept_keys(struct rn_build *b, int16_t k, int16_t rate)
{
    uint32_t n = b->hparams.embedding;
    int16_t part_of = rn_build_times(b, rn_build_copy(b, k), "blk.%d.time_mix_k_a.weight", n), out, sum;

    out = rn_build_gate(b, RN_ACT_NONE, rn_build_copy(b, part_of), rn_build_copy(b, rate));
    sum = rn_build_add(b, k, out);
    out = rn_build_minus(b, sum, part_of);
    rn_build_release(b, sum);
    rn_build_release(b, part_of);
    return out;
}

/* Decays, what is looked for in the state, and what stands in its place. Releases k and rate. */
static int16_t erasing(struct rn_build *b, int16_t all, int16_t k, int16_t rate)
{
    uint32_t n = b->hparams.embedding;
    int16_t unit = rn_build_times(b, k, "blk.%d.time_mix_k_k.weight", n), minus, w = decays7(b, all);

    unit = rn_build_unit(b, unit, b->hparams.linear.heads, 1e-24, 1); /* of norms above 1e-12 */
    minus = rn_build_copy(b, unit);
    rn_build_scale(b, minus, -1);
    return rn_build_join(b, rn_build_join(b, w, minus), rn_build_gate(b, RN_ACT_NONE, unit, rate));
}

/* What a row finds of its own: for each head its values times the sum of r k r_k. Keeps a, [r, k, v]. */
static int16_t own_values(struct rn_build *b, int16_t a)
{
    uint32_t n = b->hparams.embedding, heads = b->hparams.linear.heads;
    int16_t pairs = rn_build_gate(b, RN_ACT_NONE, part(b, a, 0), part(b, a, 1));

    pairs = rn_build_part_sum(b, rn_build_times(b, pairs, "blk.%d.time_mix_r_k.weight", n), heads);
    return rn_build_gate(b, RN_ACT_NONE, rn_build_repeat(b, pairs, heads, n / heads), part(b, a, 2));
}

static int16_t time_mix7(struct rn_build *b, int16_t in)
{
    uint32_t n = b->hparams.embedding, heads = b->hparams.linear.heads;
    bool gated = rn_build_has(b, "blk.%d.time_mix_g1.weight");
    int16_t before = rn_build_shift(b, in), all, rate, k, a, c, own, gate = -1, out;
    struct rn_op op = wkv(b, RN_OP_WKV7);

    all = rn_build_lerp(b, in, before, "blk.%d.time_mix_lerp_fused.weight", gated ? GATE + 1 : GATE);
    rn_build_release(b, before);
    rate = low_rank(b, part(b, all, RATE), "blk.%d.time_mix_a1.weight", RN_ACT_NONE, "blk.%d.time_mix_a2.weight",
                    "blk.%d.time_mix_a0.weight");
    rate = rn_build_activate(b, RN_ACT_SIGMOID, rate);
    k = product_of(b, all, KEY, "blk.%d.time_mix_key", n);
    a = rn_build_join(b, product_of(b, all, RECEPTANCE, "blk.%d.time_mix_receptance", n),
                      kept_keys(b, rn_build_copy(b, k), rate));
    a = rn_build_join(b, a, values7(b, all));
    c = erasing(b, all, k, rate);
    if (gated)
        gate = low_rank(b, part(b, all, GATE), "blk.%d.time_mix_g1.weight", RN_ACT_SIGMOID, "blk.%d.time_mix_g2.weight",
                        NULL);
    rn_build_release(b, all);
    own = own_values(b, a);
    out = rn_build_linear_attention(b, &op, a, c);
    if (rn_build_has(b, "blk.%d.time_mix_ln.weight"))
        out = rn_build_group_norm(b, out, "blk.%d.time_mix_ln", heads, GROUP_EPS);
    out = rn_build_add(b, out, own);
    return gated ? rn_build_gate(b, RN_ACT_NONE, gate, out) : out;
}

int16_t rn_arch_rwkv7_block(struct rn_build *b, int16_t x)
{
    int16_t in = rn_build_norm(b, x, "blk.%d.attn_norm"), mix = time_mix7(b, in);

    rn_build_release(b, in);
    return add_channel_mix(b, add_time_mix(b, mix, x));
}

int16_t rn_arch_arwkv7_block(struct rn_build *b, int16_t x)
{
    int16_t in = rn_build_norm(b, x, "blk.%d.attn_norm"), mix = time_mix7(b, in);

    rn_build_release(b, in);
    rn_build_last_rows(b, &mix, &x);
    return rn_build_ffn_part(b, add_time_mix(b, mix, x));
}
