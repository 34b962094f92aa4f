/* Blocks of gated delta rules beside blocks of attention: Qwen3-Next, Qwen3.5 (arXiv 2412.06464), Kimi Linear (arXiv
 * 2510.26692). Keys and tensors as converters write them. */
#include <math.h>

#include "model/arch/families.h"
#include "model/build/build.h"

/* ---- Keys ---- */

runnel_status rn_arch_recurrent_layers(const struct rn_hparams_reader *r, uint32_t interval)
{
    struct rn_hparams *h = r->hparams;
    const struct rn_gguf_entry *which;
    char key[RN_KEY_BYTES];
    runnel_status status;
    uint32_t i;

    rn_hparams_key(h, "attention.recurrent_layers", key);
    status = rn_gguf_get_array(r->gguf, key, false, RN_GGUF_U32, &which, NULL); /* as other programs write it */
    if (status != RUNNEL_OK)
        status = rn_gguf_get_array(r->gguf, key, false, RN_GGUF_BOOL, &which, r->error);
    if (status == RUNNEL_OK && which != NULL && which->count < h->n_layers)
        status =
            rn_hparams_bad(r, RUNNEL_FORMAT, "attention.recurrent_layers", "has fewer elements than there are blocks");
    if (status == RUNNEL_OK)
        status = rn_hparams_u32(r, "full_attention_interval", false, 1, RN_MAX_LAYERS, &interval);
    for (i = 0; status == RUNNEL_OK && i < h->n_layers; i++)
        if (which != NULL ? rn_gguf_item_i64(which, i) != 0 : i < h->n_layers - h->n_nextn && (i + 1) % interval != 0)
            h->layers[i].heads = h->layers[i].kv_heads = 0;
    return status;
}

/* Values have time_step_rank heads, queries and keys group_count. */
static runnel_status read_heads(const struct rn_hparams_reader *r)
{
    struct rn_linear_hparams *linear = &r->hparams->linear;
    uint32_t inner = 0;
    runnel_status status;

    status = rn_hparams_u32(r, "ssm.conv_kernel", true, 2, RN_MAX_TAPS, &linear->taps);
    if (status == RUNNEL_OK)
        status = rn_hparams_u32(r, "ssm.state_size", true, 1, RN_MAX_STATE_DIM, &linear->k_dim);
    if (status == RUNNEL_OK)
        status = rn_hparams_u32(r, "ssm.group_count", true, 1, RN_MAX_HEADS, &linear->kv_heads);
    if (status == RUNNEL_OK)
        status = rn_hparams_u32(r, "ssm.time_step_rank", true, 1, RN_MAX_HEADS, &linear->heads);
    if (status == RUNNEL_OK)
        status = rn_hparams_u32(r, "ssm.inner_size", true, 1, RN_MAX_WIDTH, &inner);
    if (status != RUNNEL_OK)
        return status;
    linear->v_dim = inner / linear->heads;
    if (linear->heads % linear->kv_heads != 0)
        return rn_hparams_bad(r, RUNNEL_FORMAT, "ssm.group_count", "does not divide ssm.time_step_rank");
    if (inner % linear->heads != 0 || linear->v_dim == 0 || linear->v_dim > RN_MAX_STATE_DIM)
        return rn_hparams_bad(r, RUNNEL_FORMAT, "ssm.inner_size", "is not ssm.time_step_rank heads of at most 1024");
    return RUNNEL_OK;
}

runnel_status rn_arch_qwen3next_keys(const struct rn_hparams_reader *r)
{
    const struct rn_hparams *h = r->hparams;
    runnel_status status = read_heads(r);

    if (status == RUNNEL_OK && h->layers[0].k_dim != h->layers[0].v_dim)
        status = rn_hparams_bad(r, RUNNEL_FORMAT, "attention.value_length", "is not attention.key_length");
    return status == RUNNEL_OK ? rn_arch_recurrent_layers(r, 4) : status;
}

/* Blocks without heads of keys have linear attention. */
static runnel_status read_kimi(const struct rn_hparams_reader *r)
{
    struct rn_linear_hparams *linear = &r->hparams->linear;
    runnel_status status = rn_hparams_u32(r, "ssm.conv_kernel", true, 2, RN_MAX_TAPS, &linear->taps);

    if (status == RUNNEL_OK)
        status = rn_hparams_u32(r, "kda.head_dim", true, 1, RN_MAX_STATE_DIM, &linear->k_dim);
    linear->v_dim = linear->k_dim;
    return status == RUNNEL_OK ? rn_hparams_latent(r) : status;
}

/* Nothing is rotated. */
runnel_status rn_arch_kimi_linear_keys(const struct rn_hparams_reader *r)
{
    runnel_status status = read_kimi(r);
    uint32_t i;

    for (i = 0; i < r->hparams->n_layers; i++)
        r->hparams->layers[i].rope = RN_NO_ROPE;
    return status;
}

runnel_status rn_arch_kimi_bound(const struct rn_hparams_reader *r)
{
    struct rn_linear_hparams *linear = &r->hparams->linear;
    runnel_status status = rn_hparams_f64(r, "kda.gate_lower_bound", -1e6, 0, &linear->least);

    linear->mirrored = true;
    if (status == RUNNEL_OK && linear->least == 0 && rn_hparams_has(r, "kda.gate_lower_bound"))
        status = rn_hparams_bad(r, RUNNEL_FORMAT, "kda.gate_lower_bound", "is 0");
    return status;
}

/* Decays lie above e^(kda.gate_lower_bound). */
runnel_status rn_arch_bailingmoe3_keys(const struct rn_hparams_reader *r)
{
    struct rn_hparams *h = r->hparams;
    runnel_status status = read_kimi(r);
    bool bounded = true;
    char key[RN_KEY_BYTES];

    rn_hparams_key(h, "kda.safe_gate", key);
    if (status == RUNNEL_OK)
        status = rn_gguf_get_bool(r->gguf, key, false, &bounded, r->error);
    if (status == RUNNEL_OK && !bounded)
        status = rn_hparams_bad(r, RUNNEL_UNSUPPORTED, "kda.safe_gate", "is false, which is not known");
    if (status == RUNNEL_OK)
        status = rn_hparams_f64(r, "kda.gate_lower_bound", -1e6, 0, &h->linear.least);
    if (status == RUNNEL_OK && h->linear.least == 0)
        status = rn_hparams_bad(r, RUNNEL_FORMAT, "kda.gate_lower_bound", "is missing or 0");
    if (status == RUNNEL_OK)
        status = rn_arch_cuts(r, "swiglu_clamp_exp", offsetof(struct rn_layer_hparams, expert_cut));
    if (status == RUNNEL_OK)
        status = rn_arch_cuts(r, "swiglu_clamp_shexp", offsetof(struct rn_layer_hparams, shared_cut));
    return status == RUNNEL_OK ? rn_arch_glm4_keys(r) : status;
}

/* ---- Qwen ---- */

/* The queries' product has for each head its queries and a gate, by whose sigmoid what the head finds is multiplied. */
int16_t rn_arch_gated_attention(struct rn_build *b, int16_t normed, int16_t *residual)
{
    const struct rn_layer_hparams *layer = &b->hparams.layers[b->layer];
    uint32_t dim = layer->k_dim, heads = layer->heads, kv_heads = layer->kv_heads;
    int16_t both = rn_build_linear(b, normed, "blk.%d.attn_q", 2 * heads * dim), gate, plain, out;
    struct rn_qkv x;

    plain = rn_build_split(b, both, heads, 0, dim);
    gate = rn_build_split(b, both, heads, dim, dim);
    rn_build_release(b, both);
    x.q = rn_build_head_norm(b, plain, "blk.%d.attn_q_norm", heads);
    rn_build_release(b, plain);
    plain = rn_build_linear(b, normed, "blk.%d.attn_k", kv_heads * dim);
    x.k = rn_build_head_norm(b, plain, "blk.%d.attn_k_norm", kv_heads);
    rn_build_release(b, plain);
    x.v = rn_build_linear(b, normed, "blk.%d.attn_v", kv_heads * dim);
    rn_build_rotate(b, &x);
    out = rn_build_gate(b, RN_ACT_SIGMOID, gate, rn_build_attend(b, x));
    rn_build_last_rows(b, &out, residual);
    return rn_build_attention_out(b, out);
}

/* What goes through the convolution, [q, k, v], and the gate of what comes out. Older files have both in ssm_in, side
 * by side for each head of keys. */
static int16_t queries_to_values(struct rn_build *b, int16_t normed, int16_t *gate)
{
    const struct rn_linear_hparams *h = &b->hparams.linear;
    uint32_t k = h->k_dim, v = h->v_dim * (h->heads / h->kv_heads), n = h->kv_heads;
    int16_t all, out;

    if (rn_build_has(b, "blk.%d.attn_qkv.weight") || !rn_build_has(b, "blk.%d.ssm_in.weight")) {
        *gate = rn_build_linear(b, normed, "blk.%d.attn_gate", n * v);
        return rn_build_linear(b, normed, "blk.%d.attn_qkv", n * (2 * k + v));
    }
    all = rn_build_linear(b, normed, "blk.%d.ssm_in", n * 2 * (k + v));
    *gate = rn_build_split(b, all, n, 2 * k + v, v);
    out = rn_build_join(b, rn_build_split(b, all, n, 0, k), rn_build_split(b, all, n, k, k));
    out = rn_build_join(b, out, rn_build_split(b, all, n, 2 * k, v));
    rn_build_release(b, all);
    return out;
}

/* Decays and betas, [heads] each, behind values. Releases values. */
static int16_t with_gates(struct rn_build *b, int16_t values, int16_t normed)
{
    const struct rn_linear_hparams *h = &b->hparams.linear;
    uint32_t part = h->heads / h->kv_heads;
    int16_t both, decay, beta;

    if (rn_build_has(b, "blk.%d.ssm_ba.weight")) {
        both = rn_build_linear(b, normed, "blk.%d.ssm_ba", 2 * h->heads);
        beta = rn_build_split(b, both, h->kv_heads, 0, part);
        decay = rn_build_split(b, both, h->kv_heads, part, part);
        rn_build_release(b, both);
    } else {
        beta = rn_build_linear(b, normed, "blk.%d.ssm_beta", h->heads);
        decay = rn_build_linear(b, normed, "blk.%d.ssm_alpha", h->heads);
    }
    decay = rn_build_activate(b, RN_ACT_SOFTPLUS, rn_build_plus(b, decay, "blk.%d.ssm_dt.bias", h->heads));
    decay = rn_build_activate(b, RN_ACT_EXP, rn_build_times(b, decay, "blk.%d.ssm_a", h->heads));
    beta = rn_build_activate(b, RN_ACT_SIGMOID, beta);
    return rn_build_join(b, rn_build_join(b, values, decay), beta);
}

/* What comes out, normed by heads, times act(gate). Releases both. */
static int16_t gated_norm(struct rn_build *b, int16_t a, int16_t gate, enum rn_activation act, uint32_t heads)
{
    int16_t normed = rn_build_head_norm(b, a, "blk.%d.ssm_norm", heads);

    rn_build_release(b, a);
    return rn_build_gate(b, act, gate, normed);
}

int16_t rn_arch_delta_rule(struct rn_build *b, int16_t normed, int16_t *residual, bool tiled, enum rn_activation act)
{
    const struct rn_linear_hparams *h = &b->hparams.linear;
    uint32_t keys = h->kv_heads * h->k_dim, values = h->heads * h->v_dim;
    struct rn_op op = rn_build_empty(b, RN_OP_GATED_DELTA);
    int16_t gate, all, mixed, qk, v;

    all = queries_to_values(b, normed, &gate);
    mixed = rn_build_conv(b, all, "blk.%d.ssm_conv1d", h->taps, true);
    rn_build_release(b, all);
    qk = rn_build_unit(b, rn_build_split(b, mixed, 1, 0, 2 * keys), 2 * h->kv_heads, b->hparams.rms_eps, 1);
    v = rn_build_split(b, mixed, 1, 2 * keys, values);
    rn_build_release(b, mixed);
    op.heads = h->heads;
    op.kv_heads = h->kv_heads;
    op.k_dim = h->k_dim;
    op.v_dim = h->v_dim;
    op.group = 1;
    op.tiled = tiled;
    op.scale = (float)(1 / sqrt(h->k_dim));
    mixed = rn_build_linear_attention(b, &op, qk, with_gates(b, v, normed));
    mixed = gated_norm(b, mixed, gate, act, h->heads);
    rn_build_last_rows(b, &mixed, residual);
    all = rn_build_linear(b, mixed, "blk.%d.ssm_out", b->hparams.embedding);
    rn_build_release(b, mixed);
    return all;
}

static int16_t qwen_block(struct rn_build *b, int16_t x, bool tiled)
{
    int16_t normed = rn_build_norm(b, x, "blk.%d.attn_norm"), out;

    if (b->hparams.layers[b->layer].heads > 0)
        out = rn_arch_gated_attention(b, normed, &x);
    else
        out = rn_arch_delta_rule(b, normed, &x, tiled, RN_ACT_SILU);
    rn_build_release(b, normed);
    return rn_build_ffn_part(b, rn_build_add(b, out, x));
}

int16_t rn_arch_qwen3next_block(struct rn_build *b, int16_t x)
{
    return qwen_block(b, x, false);
}

/* Heads of values are in another order. */
int16_t rn_arch_qwen35_block(struct rn_build *b, int16_t x)
{
    return qwen_block(b, x, true);
}

/* ---- Kimi Linear, Ling 3 ---- */

/* A product of normed, and its convolution. */
static int16_t convolved(struct rn_build *b, int16_t normed, const char *product, const char *stem, uint32_t n)
{
    int16_t a = rn_build_product(b, normed, product, NULL, n), out;

    out = rn_build_conv(b, a, stem, b->hparams.linear.taps, true);
    rn_build_release(b, a);
    return out;
}

/* A product in two steps, of which the first gives few values; in one where there is no second. */
static int16_t low_rank(struct rn_build *b, int16_t normed, const char *first, const char *second, const char *bias,
                        uint32_t n)
{
    int16_t few, out;

    if (!rn_build_has(b, second))
        return rn_build_product(b, normed, first, bias, n);
    few = rn_build_product(b, normed, first, NULL, rn_build_rows(b, first));
    out = rn_build_product(b, few, second, bias, n);
    rn_build_release(b, few);
    return out;
}

/* Decays for each of a head's keys: e to what a says, or e to a share of the least. Releases a. */
static int16_t decays(struct rn_build *b, int16_t a, uint32_t heads)
{
    double least = b->hparams.linear.least;

    if (least == 0)
        a = rn_build_times(b, rn_build_activate(b, RN_ACT_SOFTPLUS, a), "blk.%d.ssm_a", heads);
    else
        a = rn_build_times(b, a, "blk.%d.ssm_a", heads);
    if (least == 0)
        return rn_build_activate(b, RN_ACT_EXP, a);
    rn_build_scale(b, a, b->hparams.linear.mirrored ? -1 : 1);
    a = rn_build_activate(b, RN_ACT_SIGMOID, a);
    rn_build_scale(b, a, least);
    return rn_build_activate(b, RN_ACT_EXP, a);
}

/* Values, decays and betas, one behind the other. */
static int16_t kimi_values(struct rn_build *b, int16_t normed, uint32_t heads, uint32_t n)
{
    int16_t v = convolved(b, normed, "blk.%d.attn_v.weight", "blk.%d.ssm_conv1d_v", n), decay, beta;

    decay = low_rank(b, normed, "blk.%d.ssm_f_a.weight", "blk.%d.ssm_f_b.weight", "blk.%d.ssm_dt.bias", n);
    v = rn_build_join(b, v, decays(b, decay, heads));
    beta = rn_build_product(b, normed, "blk.%d.ssm_beta.weight", NULL, heads);
    return rn_build_join(b, v, rn_build_activate(b, RN_ACT_SIGMOID, beta));
}

int16_t rn_arch_kimi_delta(struct rn_build *b, int16_t normed, int16_t *residual)
{
    uint32_t dim = b->hparams.linear.k_dim, n = rn_build_rows(b, "blk.%d.attn_q.weight"), heads = n / dim;
    struct rn_op op = rn_build_empty(b, RN_OP_GATED_DELTA);
    int16_t qk, gate, out;

    if (heads == 0 || n % dim != 0) {
        rn_build_fail(b, RUNNEL_FORMAT, "key %s.kda.head_dim does not divide the rows of tensor blk.%d.attn_q.weight",
                      b->hparams.architecture, (int)b->layer);
        heads = 1;
    }
    qk = rn_build_join(b, convolved(b, normed, "blk.%d.attn_q.weight", "blk.%d.ssm_conv1d_q", n),
                       convolved(b, normed, "blk.%d.attn_k.weight", "blk.%d.ssm_conv1d_k", n));
    qk = rn_build_unit(b, qk, 2 * heads,
                       b->hparams.linear.unit_eps > 0 ? b->hparams.linear.unit_eps : b->hparams.rms_eps, 1);
    op.heads = op.kv_heads = heads;
    op.k_dim = op.v_dim = op.group = dim;
    op.scale = (float)(1 / sqrt(dim));
    out = rn_build_linear_attention(b, &op, qk, kimi_values(b, normed, heads, n));
    gate = rn_build_has(b, "blk.%d.ssm_g.weight")
               ? rn_build_product(b, normed, "blk.%d.ssm_g.weight", NULL, n)
               : low_rank(b, normed, "blk.%d.ssm_g_a.weight", "blk.%d.ssm_g_b.weight", NULL, n);
    out = gated_norm(b, out, gate, RN_ACT_SIGMOID, heads);
    rn_build_last_rows(b, &out, residual);
    return rn_build_attention_out(b, out);
}

int16_t rn_arch_kimi_linear_block(struct rn_build *b, int16_t x)
{
    int16_t normed, out;

    if (b->hparams.layers[b->layer].heads > 0)
        return rn_build_ffn_part(b, rn_build_attention_part(b, x));
    normed = rn_build_norm(b, x, "blk.%d.attn_norm");
    out = rn_arch_kimi_delta(b, normed, &x);
    rn_build_release(b, normed);
    return rn_build_ffn_part(b, rn_build_add(b, out, x));
}
