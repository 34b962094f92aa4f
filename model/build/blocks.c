/* Pieces of blocks that many architectures share: see build.h. */
#include "model/build/build.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/rope.h"

/* ---- Rotation ---- */

static const char *const divisor_names[] = {"rope_freqs.weight", "rope_factors_short.weight",
                                            "rope_factors_long.weight"};

bool rn_build_is_divisors(struct rn_view name)
{
    size_t i;

    for (i = 0; i < sizeof divisor_names / sizeof divisor_names[0]; i++)
        if (strlen(divisor_names[i]) == name.n && memcmp(divisor_names[i], name.bytes, name.n) == 0)
            return true;
    return false;
}

/* The tensor's values [n] in *out (allocated; NULL where the file has no such tensor). */
static void read_divisors(struct rn_build *b, const char *name, uint32_t n, float **out)
{
    const struct rn_tensor *tensor = rn_gguf_find_tensor(b->source, name);
    const struct rn_type *type;
    uint32_t i;

    *out = NULL;
    if (tensor == NULL || b->status != RUNNEL_OK)
        return;
    if (rn_build_is_unused(b, tensor->name))
        return;
    type = rn_type(tensor->type);
    if (tensor->elements != n || tensor->dims[0] != n || (tensor->type != RN_F32 && tensor->type != RN_F16)) {
        rn_build_fail(b, RUNNEL_FORMAT, "tensor %s is not %u numbers of type F32 or F16", name, n);
        return;
    }
    *out = rn_alloc(b->plan->heap, n, sizeof **out);
    if (*out == NULL) {
        rn_build_fail(b, RUNNEL_NO_MEMORY, "no memory for the plan");
        return;
    }
    type->decode(tensor->data, *out, n);
    for (i = 0; i < n; i++) {
        if (!isfinite((*out)[i]) || (*out)[i] == 0) {
            rn_build_fail(b, RUNNEL_FORMAT, "tensor %s holds a value that nothing can be divided by", name);
            return;
        }
    }
}

static void add_rope(struct rn_build *b, const struct rn_rope_hparams *h, const float *divisors)
{
    struct rn_plan *plan = b->plan;
    struct rn_rope *bigger;

    if (b->status != RUNNEL_OK)
        return;
    bigger = rn_realloc(plan->heap, plan->ropes, plan->n_ropes + 1, sizeof *bigger);
    if (bigger != NULL) {
        plan->ropes = bigger;
        bigger[plan->n_ropes] = (struct rn_rope){.dims = h->dims, .shift = h->shift, .neox = h->neox};
        bigger[plan->n_ropes].inv_freq = rn_alloc(plan->heap, h->dims / 2, sizeof(double));
    }
    if (bigger == NULL || bigger[plan->n_ropes].inv_freq == NULL) {
        rn_build_fail(b, RUNNEL_NO_MEMORY, "no memory for the plan");
        return;
    }
    rn_rope_fill(h, h->divisors && h->dims == b->hparams.ropes[0].dims ? divisors : NULL, &bigger[plan->n_ropes++]);
}

void rn_build_ropes(struct rn_build *b)
{
    const struct rn_rope_hparams *h = b->hparams.ropes;
    struct rn_heap *heap = b->plan->heap;
    uint32_t n = (h->divisor_dims > 0 ? h->divisor_dims : h->dims) / 2, i;
    float *always, *near, *far, *chosen;

    if (b->hparams.n_ropes == 0)
        return;
    read_divisors(b, divisor_names[0], n, &always);
    read_divisors(b, divisor_names[1], n, &near);
    read_divisors(b, divisor_names[2], n, &far);
    chosen = always != NULL ? always : rn_rope_is_long(h, b->plan->context_tokens) ? far : near;
    if (h->scaling == RN_ROPE_LONGROPE && chosen == NULL && (near != NULL || far != NULL))
        rn_build_fail(b, RUNNEL_FORMAT, "tensor rope_factors_%s.weight is missing",
                      rn_rope_is_long(h, b->plan->context_tokens) ? "long" : "short");
    for (i = 0; i < b->hparams.n_ropes; i++)
        add_rope(b, &h[i], chosen);
    rn_free(heap, always);
    rn_free(heap, near);
    rn_free(heap, far);
}

/* ---- Attention ---- */

static const struct rn_layer_hparams *layer_of(const struct rn_build *b)
{
    return &b->hparams.layers[b->layer];
}

int32_t rn_build_cache(struct rn_build *b, struct rn_kv_layer layer)
{
    const struct rn_indexer_hparams *h = &b->hparams.indexer;
    const uint32_t each = h->most == 0 ? 1 : h->local > 0 ? h->heads + 1 : 3; /* at most, of a block */
    struct rn_plan *plan = b->plan;
    struct rn_kv_layer *layers;

    if (b->status != RUNNEL_OK)
        return 0;
    if (plan->kv_layers == NULL) {
        layers = rn_calloc(plan->heap, (size_t)b->hparams.n_layers * b->hparams.loops * each, sizeof *layers);
        if (layers == NULL) {
            rn_build_fail(b, RUNNEL_NO_MEMORY, "no memory for the plan");
            return 0;
        }
        plan->kv_layers = layers;
    }
    plan->kv_layers[plan->n_kv_layers] = layer;
    return (int32_t)plan->n_kv_layers++;
}

/* The number of the block's cache; without values these are the front of the keys. */
static int32_t add_kv_layer(struct rn_build *b, bool values)
{
    const struct rn_layer_hparams *layer = layer_of(b);

    return rn_build_cache(b, (struct rn_kv_layer){.k_width = layer->kv_heads * layer->k_dim,
                                                  .v_width = values ? layer->kv_heads * layer->v_dim : 0,
                                                  .kv_heads = layer->kv_heads});
}

/* Queries alone: keys and values are another block's. What the file has for its own is not read, nor is their bias. */
static struct rn_qkv queries_only(struct rn_build *b, int16_t normed)
{
    static const char *const own[] = {"blk.%d.attn_k.weight", "blk.%d.attn_v.weight", "blk.%d.attn_k_norm.weight",
                                      "blk.%d.attn_q.bias",   "blk.%d.attn_k.bias",   "blk.%d.attn_v.bias"};
    const struct rn_layer_hparams *layer = layer_of(b);
    uint32_t q = layer->heads * layer->k_dim, all = q + layer->kv_heads * (layer->k_dim + layer->v_dim);
    struct rn_qkv x = {.k = -1, .v = -1};
    int16_t both;
    size_t i;

    for (i = 0; i < sizeof own / sizeof own[0]; i++)
        rn_build_ignore(b, own[i]);
    if (!rn_build_has(b, "blk.%d.attn_qkv.weight")) {
        x.q = rn_build_product(b, normed, "blk.%d.attn_q.weight", NULL, q);
        return x;
    }
    both = rn_build_linear(b, normed, "blk.%d.attn_qkv", all);
    x.q = rn_build_split(b, both, 1, 0, q);
    rn_build_release(b, both);
    return x;
}

struct rn_qkv rn_build_qkv(struct rn_build *b, int16_t normed)
{
    const struct rn_layer_hparams *layer = layer_of(b);
    uint32_t q = layer->heads * layer->k_dim, k = layer->kv_heads * layer->k_dim, v = layer->kv_heads * layer->v_dim;
    uint32_t rows;
    struct rn_qkv x;
    int16_t all;
    bool even;

    if (layer->kv_from >= 0)
        return queries_only(b, normed);
    if (rn_build_has(b, "blk.%d.attn_qkv.weight")) {
        even = (b->arch->flags & RN_ARCH_EVEN_QKV) != 0;
        rows = even || (b->arch->flags & RN_ARCH_WIDE_QKV) != 0 ? 3 * b->hparams.embedding : 0;
        all = rn_build_linear(b, normed, "blk.%d.attn_qkv", rows > q + k + v ? rows : q + k + v);
        x.q = rn_build_split(b, all, 1, 0, q);
        x.k = rn_build_split(b, all, 1, q, k);
        x.v = rn_build_split(b, all, 1, even ? 2 * q : q + k, v);
        rn_build_release(b, all);
        return x;
    }
    x.q = rn_build_linear(b, normed, "blk.%d.attn_q", q);
    x.k = rn_build_linear(b, normed, "blk.%d.attn_k", k);
    if ((b->arch->flags & RN_ARCH_KEYS_AS_VALUES) != 0 && k == v && !rn_build_has(b, "blk.%d.attn_v.weight"))
        x.v = rn_build_concat(b, x.k, -1);
    else
        x.v = rn_build_linear(b, normed, "blk.%d.attn_v", v);
    return x;
}

void rn_build_rotate(struct rn_build *b, const struct rn_qkv *x)
{
    const struct rn_layer_hparams *layer = layer_of(b);

    if (layer->rope == RN_NO_ROPE)
        return;
    rn_build_rope(b, (uint32_t)layer->rope, x->q, layer->heads);
    if (x->k >= 0)
        rn_build_rope(b, (uint32_t)layer->rope, x->k, layer->kv_heads);
}

int16_t rn_build_attend(struct rn_build *b, struct rn_qkv x)
{
    const struct rn_layer_hparams *layer = layer_of(b);
    struct rn_op store = rn_build_empty(b, RN_OP_KV_STORE), op = rn_build_empty(b, RN_OP_ATTENTION);

    if (b->chosen >= 0 && x.v >= 0 && layer->window == 0)
        return rn_build_attend_chosen(b, x);
    if (x.k >= 0) {
        b->hparams.layers[b->layer].cache = add_kv_layer(b, x.v >= 0);
        store.a = x.k;
        store.b = x.v;
        store.layer = layer->cache;
        rn_build_op(b, &store);
    }
    op.layer = x.k >= 0 ? layer->cache : b->hparams.layers[layer->kv_from].cache;
    op.a = x.q;
    op.b = layer->window > 0 ? -1 : b->chosen;
    op.used = op.b < 0 ? 0 : rn_build_width(b, op.b);
    op.heads = layer->heads;
    op.kv_heads = layer->kv_heads;
    op.k_dim = layer->k_dim;
    op.v_dim = layer->v_dim;
    op.scale = (float)layer->attention_scale;
    op.window = layer->window;
    op.chunked = layer->window > 0 && (b->arch->flags & RN_ARCH_CHUNKED) != 0;
    op.bidirectional = b->plan->bidirectional;
    op.softcap = (float)b->hparams.softcap;
    op.alibi = b->hparams.alibi;
    if ((b->arch->flags & RN_ARCH_SINKS) != 0) {
        op.group = op.heads;
        op.weight =
            rn_build_vector(b, "blk.%d.attn_sinks.weight", op.heads, (b->arch->flags & RN_ARCH_SINKS_OPTIONAL) != 0);
    }
    op.out = rn_build_slot(b, layer->heads * layer->v_dim, false);
    rn_build_op(b, &op);
    rn_build_release(b, x.q);
    if (x.k >= 0)
        rn_build_release(b, x.k);
    if (x.v >= 0)
        rn_build_release(b, x.v);
    return op.out;
}

void rn_build_last_rows(struct rn_build *b, int16_t *x, int16_t *residual)
{
    if (b->layer != b->last || (b->n_taps > 0 && b->taps[b->n_taps - 1] == (uint32_t)b->layer))
        return;
    if (x != NULL)
        *x = rn_build_select(b, *x);
    *residual = rn_build_select(b, *residual);
}

/* What the architecture's flags say of the norms of queries or keys. Each may be without the other; of whole rows keys
 * are normed where queries are. Releases a. */
static int16_t norm_heads(struct rn_build *b, int16_t a, const char *stem, uint32_t heads)
{
    uint64_t flags = b->arch->flags;
    char name[64];
    int16_t out;

    if ((flags & (RN_ARCH_HEAD_NORM | RN_ARCH_ROW_NORM | RN_ARCH_OWN_NORM | RN_ARCH_OWN_LAYER_NORM)) == 0)
        return a;
    snprintf(name, sizeof name, "%s.weight", (flags & RN_ARCH_ROW_NORM) != 0 ? "blk.%d.attn_q_norm" : stem);
    if ((flags & RN_ARCH_NORM_OPTIONAL) != 0 && !rn_build_has(b, name))
        return a;
    out = (flags & RN_ARCH_HEAD_NORM) != 0        ? rn_build_head_norm(b, a, stem, heads)
          : (flags & RN_ARCH_OWN_NORM) != 0       ? rn_build_own_norm(b, a, stem, heads)
          : (flags & RN_ARCH_OWN_LAYER_NORM) != 0 ? rn_build_own_layer_norm(b, a, stem, heads)
                                                  : rn_build_norm(b, a, stem);
    rn_build_release(b, a);
    return out;
}

/* What attention gives, through the block's gate, where the architecture and the file have one. Releases mixed. */
static int16_t gate_attention(struct rn_build *b, int16_t normed, int16_t mixed)
{
    uint32_t heads = layer_of(b)->heads, all = rn_build_width(b, mixed), rows;
    enum rn_activation act = (b->arch->flags & RN_ARCH_SOFTPLUS_GATE) != 0 ? RN_ACT_SOFTPLUS : RN_ACT_SIGMOID;
    bool each;

    if ((b->arch->flags & RN_ARCH_ATTENTION_GATE) == 0 ||
        ((b->arch->flags & RN_ARCH_GATE_OPTIONAL) != 0 && !rn_build_has(b, "blk.%d.attn_gate.weight")))
        return mixed;
    rows = rn_build_rows(b, "blk.%d.attn_gate.weight");
    each = rows == heads;
    return rn_build_gate(b, act, rn_build_linear(b, normed, "blk.%d.attn_gate", each ? heads : all), mixed);
}

/* What stands between the products and attention. Keys and values are -1 where they are another block's. */
static void shape_heads(struct rn_build *b, struct rn_qkv *x)
{
    const struct rn_layer_hparams *layer = layer_of(b);
    bool late = (b->arch->flags & RN_ARCH_LATE_NORM) != 0;
    bool unit = b->hparams.unit_heads && layer->rope != RN_NO_ROPE;

    rn_build_clamp(b, x->q, b->hparams.clamp);
    if (x->k >= 0)
        rn_build_clamp(b, x->k, b->hparams.clamp);
    if (x->v >= 0)
        rn_build_clamp(b, x->v, b->hparams.clamp);
    if (late)
        rn_build_rotate(b, x);
    x->q = norm_heads(b, x->q, "blk.%d.attn_q_norm", layer->heads);
    if (x->k >= 0)
        x->k = norm_heads(b, x->k, "blk.%d.attn_k_norm", layer->kv_heads);
    if (x->v >= 0 && (b->arch->flags & RN_ARCH_VALUE_NORM) != 0)
        x->v = rn_build_unit_norm(b, x->v, layer->v_dim);
    if (!late)
        rn_build_rotate(b, x);
    if (unit)
        x->q = rn_build_unit_norm(b, x->q, layer->k_dim);
    if (unit && x->k >= 0)
        x->k = rn_build_unit_norm(b, x->k, layer->k_dim);
}

int16_t rn_build_mix(struct rn_build *b, int16_t normed)
{
    const struct rn_layer_hparams *layer = layer_of(b);
    struct rn_qkv x;

    if (layer->heads == 0) {
        rn_build_fail(b, RUNNEL_FORMAT, "key %s.attention.head_count is 0 for block %d, which has attention",
                      b->hparams.architecture, (int)b->layer);
        return 0;
    }
    if (b->hparams.latent.rank > 0)
        return gate_attention(b, normed, rn_build_latent_mix(b, normed));
    x = rn_build_qkv(b, normed);
    shape_heads(b, &x);
    if ((b->arch->flags & RN_ARCH_HEAD_GAIN) != 0)
        x.q = rn_build_times(b, x.q, "blk.%d.attn_q_norm.weight", layer->heads);
    if (layer->tempered)
        rn_build_temper(b, x.q);
    if (b->hparams.indexer.local > 0 && layer->chooses)
        return rn_build_attend_blocks(b, normed, x);
    return gate_attention(b, normed, rn_build_attend(b, x));
}

/* The architecture's norm of a, where it has one at this place. Releases a. */
static int16_t sub_norm(struct rn_build *b, int16_t a, const char *stem)
{
    int16_t out;

    if ((b->arch->flags & RN_ARCH_SUB_NORM) == 0)
        return a;
    out = rn_build_norm(b, a, stem);
    rn_build_release(b, a);
    return out;
}

int16_t rn_build_attention_out(struct rn_build *b, int16_t mixed)
{
    int16_t out;

    mixed = sub_norm(b, mixed, "blk.%d.attn_sub_norm");
    out = rn_build_linear(b, mixed, "blk.%d.attn_output", b->hparams.embedding);
    rn_build_release(b, mixed);
    if (b->hparams.attention_out_scale != 0)
        rn_build_scale(b, out, b->hparams.attention_out_scale);
    return out;
}

int16_t rn_build_attention(struct rn_build *b, int16_t normed, int16_t *residual)
{
    int16_t mixed = rn_build_mix(b, normed);

    rn_build_release(b, normed);
    rn_build_last_rows(b, &mixed, residual);
    return rn_build_attention_out(b, mixed);
}

int16_t rn_build_attention_part(struct rn_build *b, int16_t x)
{
    int16_t out;

    if (layer_of(b)->heads == 0) {
        rn_build_last_rows(b, NULL, &x);
        return x;
    }
    out = rn_build_attention(b, rn_build_norm(b, x, "blk.%d.attn_norm"), &x);
    return rn_build_add(b, out, x);
}

/* ---- Feed-forward ---- */

static uint32_t feed_forward(struct rn_build *b)
{
    if (layer_of(b)->feed_forward == 0)
        rn_build_fail(b, RUNNEL_FORMAT, "key %s.feed_forward_length is missing", b->hparams.architecture);
    return layer_of(b)->feed_forward;
}

/* down · hidden, behind ffn_sub_norm where the architecture has it. Releases hidden. */
static int16_t ffn_down(struct rn_build *b, int16_t hidden)
{
    int16_t out;

    hidden = sub_norm(b, hidden, "blk.%d.ffn_sub_norm");
    out = rn_build_linear(b, hidden, "blk.%d.ffn_down", b->hparams.embedding);
    rn_build_release(b, hidden);
    return out;
}

/* Releases a. */
static int16_t xielu(struct rn_build *b, int16_t a)
{
    struct rn_op op = rn_build_empty(b, RN_OP_XIELU);

    op.a = a;
    op.alpha_n = layer_of(b)->alpha_n;
    op.alpha_p = layer_of(b)->alpha_p;
    op.scale = (float)layer_of(b)->beta;
    op.eps = layer_of(b)->act_eps;
    op.out = rn_build_slot(b, feed_forward(b), false);
    rn_build_op(b, &op);
    rn_build_release(b, a);
    return op.out;
}

/* AWQ multiplies the columns of ffn_down by its scales, and divides what they are multiplied with. */
static int16_t plain_ffn(struct rn_build *b, int16_t x)
{
    int16_t up = rn_build_linear(b, x, "blk.%d.ffn_up", feed_forward(b));

    up = (b->arch->flags & RN_ARCH_XIELU) != 0 ? xielu(b, up) : rn_build_activate(b, b->hparams.act, up);
    if (rn_build_has(b, "blk.%d.ffn.act.scales"))
        up = rn_build_over(b, up, "blk.%d.ffn.act.scales", feed_forward(b));
    return ffn_down(b, up);
}

/* beta tanh(gate / beta) sigmoid(gate) * up, or of up as much by linear_beta. Releases both. */
static int16_t situ(struct rn_build *b, int16_t gate, int16_t up)
{
    const struct rn_situ_hparams *h = &b->hparams.situ;
    int16_t flat = rn_build_copy(b, gate);

    rn_build_softcap(b, flat, h->beta);
    rn_build_softcap(b, up, h->linear_beta);
    return rn_build_gate(b, RN_ACT_NONE, rn_build_gate(b, RN_ACT_SIGMOID, gate, flat), up);
}

/* act(gate) * up; with a cut act(gate), at most that, times up, which is cut on both sides. Both are rows whose
 * activation is SiLU. Releases both. */
static int16_t cut_product(struct rn_build *b, enum rn_activation act, int16_t gate, int16_t up, double cut)
{
    if (b->hparams.situ.beta > 0)
        return situ(b, gate, up);
    if (cut == 0)
        return rn_build_gate(b, act, gate, up);
    if (b->hparams.cut_first)
        return rn_build_cut_silu(b, gate, up, cut);
    gate = rn_build_activate(b, act, gate);
    rn_build_clamp(b, gate, cut); /* from below, too, where SiLU never is: see rn_arch_step35_keys */
    rn_build_clamp(b, up, cut);
    return rn_build_gate(b, RN_ACT_NONE, gate, up);
}

static int16_t gated_ffn(struct rn_build *b, int16_t x)
{
    int16_t gate = rn_build_linear(b, x, "blk.%d.ffn_gate", feed_forward(b));
    int16_t up = rn_build_linear(b, x, "blk.%d.ffn_up", feed_forward(b));

    if ((b->arch->flags & RN_ARCH_CUT_GATE) != 0)
        return ffn_down(b, rn_build_cut_gate(b, gate, up));
    return ffn_down(b, cut_product(b, b->hparams.act, gate, up, layer_of(b)->shared_cut));
}

static int16_t fused_ffn(struct rn_build *b, int16_t x)
{
    uint32_t width = feed_forward(b);
    int16_t both = rn_build_linear(b, x, "blk.%d.ffn_up", 2 * width);
    int16_t gate = rn_build_split(b, both, 1, 0, width), up = rn_build_split(b, both, 1, width, width);

    rn_build_release(b, both);
    return ffn_down(b, rn_build_gate(b, b->hparams.act, gate, up));
}

int16_t rn_build_feed_forward(struct rn_build *b, int16_t x)
{
    bool plain = (b->arch->flags & RN_ARCH_PLAIN_FFN) != 0, fused = (b->arch->flags & RN_ARCH_FUSED_FFN) != 0;

    if (plain && fused) {
        plain = fused = !rn_build_has(b, "blk.%d.ffn_gate.weight");
        fused = fused && rn_build_rows(b, "blk.%d.ffn_up.weight") == 2 * feed_forward(b);
        plain = plain && !fused;
    }
    return plain ? plain_ffn(b, x) : fused ? fused_ffn(b, x) : gated_ffn(b, x);
}

/* a, of each chosen expert a part, times that expert's number of "<stem>.scale", where the file has that. Releases a
 * then, and keeps ids. */
static int16_t scale_parts(struct rn_build *b, int16_t a, const struct rn_op *product, const char *stem)
{
    struct rn_op op = rn_build_empty(b, RN_OP_EXPERT_FACTOR);
    char name[64];

    snprintf(name, sizeof name, "%s.scale", stem);
    if (!rn_build_has(b, name))
        return a;
    if (product->bias >= 0)
        rn_build_fail(b, RUNNEL_UNSUPPORTED, "tensor blk.%d%s is beside a bias", (int)b->layer,
                      name + strlen("blk.%d"));
    op.a = a;
    op.b = product->b;
    op.used = product->used;
    op.experts = op.group = product->experts;
    op.weight = rn_build_vector(b, name, op.experts, false);
    op.out = rn_build_slot(b, rn_build_width(b, a), false);
    rn_build_op(b, &op);
    rn_build_release(b, a);
    return op.out;
}

int16_t rn_build_expert_matmul(struct rn_build *b, int16_t a, int16_t ids, const char *stem, uint32_t cols,
                               uint32_t rows, bool per_expert)
{
    struct rn_op op = rn_build_empty(b, RN_OP_EXPERT_MATMUL);
    char name[64];

    op.a = a;
    op.b = ids;
    op.experts = b->hparams.experts;
    op.used = layer_of(b)->experts_used;
    op.per_expert_input = per_expert;
    snprintf(name, sizeof name, "%s.weight", stem);
    op.weight = rn_build_matrix(b, name, cols, rows, op.experts, false);
    snprintf(name, sizeof name, "%s.bias", stem);
    op.bias = rn_build_matrix(b, name, rows, op.experts, 1, true);
    op.out = rn_build_slot(b, op.used * rows, false);
    rn_build_op(b, &op);
    return scale_parts(b, op.out, &op, stem);
}

/* What weights are divided by at least, where they are divided by their sum: the smallest normal number of F16, as
 * other programs have it. Sums of sigmoids can be below. */
#define LEAST_SUM 0x1p-14

/* A softmax that is divided by the sum of the chosen is the softmax of the chosen, of which others need not be known;
 * and it needs no division. */
static void simplify_route(struct rn_op *op)
{
    if (op->gating == RN_GATING_SOFTMAX && op->normalise && op->weight < 0 && op->groups <= 1)
        op->gating = RN_GATING_CHOSEN;
    if (op->gating == RN_GATING_CHOSEN)
        op->normalise = false;
}

/* The selection bias; some files leave out the end of its name. */
static int32_t selection_bias(struct rn_build *b, uint32_t experts)
{
    bool bare = rn_build_has(b, "blk.%d.exp_probs_b");

    return rn_build_vector(b, bare ? "blk.%d.exp_probs_b" : "blk.%d.exp_probs_b.bias", experts, true);
}

struct rn_op rn_build_route(struct rn_build *b, int16_t logits, uint32_t used, uint32_t per)
{
    struct rn_op op = rn_build_empty(b, RN_OP_ROUTE);

    op.a = logits;
    op.b = b->routed;
    op.experts = b->hparams.experts;
    op.used = used;
    op.per = per;
    op.groups = op.b >= 0 ? 0 : b->hparams.expert_groups;
    op.best = b->hparams.expert_groups_used;
    op.gating = b->hparams.experts_gating;
    op.normalise = b->hparams.experts_normalised;
    op.eps = LEAST_SUM;
    op.scale = (float)b->hparams.experts_scale;
    op.weight = op.b >= 0 ? -1 : selection_bias(b, op.experts);
    simplify_route(&op);
    op.out = rn_build_slot(b, op.used, true);
    op.out2 = rn_build_slot(b, op.used, false);
    rn_build_op(b, &op);
    return op;
}

/* Feed-forwards, those of experts too, are down . act(up . x). */
static bool is_plain(const struct rn_build *b)
{
    return (b->arch->flags & RN_ARCH_PLAIN_FFN) != 0;
}

/* The gate with a cut or without. */
static int16_t expert_gate(struct rn_build *b, int16_t gate, int16_t up, double cut)
{
    return (b->arch->flags & RN_ARCH_CUT_GATE) != 0 ? rn_build_cut_gate(b, gate, up)
                                                    : cut_product(b, b->arch->act, gate, up, cut);
}

int16_t rn_build_expert_gate(struct rn_build *b, int16_t gate, int16_t up)
{
    return expert_gate(b, gate, up, layer_of(b)->expert_cut);
}

/* act(gate) * up of each chosen expert, or act(up); per_expert: x has a row for each. Keeps x and ids. */
static int16_t expert_gates(struct rn_build *b, int16_t x, int16_t ids, uint32_t width, bool per_expert)
{
    uint32_t used = layer_of(b)->experts_used;
    uint32_t embedding = b->status == RUNNEL_OK && per_expert ? rn_build_width(b, x) / used : rn_build_width(b, x);
    int16_t both, gate, up;

    if (is_plain(b)) {
        up = rn_build_expert_matmul(b, x, ids, "blk.%d.ffn_up_exps", embedding, width, per_expert);
        return rn_build_activate(b, b->arch->act, up);
    }
    if (rn_build_has(b, "blk.%d.ffn_gate_up_exps.weight")) {
        both = rn_build_expert_matmul(b, x, ids, "blk.%d.ffn_gate_up_exps", embedding, 2 * width, per_expert);
        gate = rn_build_split(b, both, used, 0, width);
        up = rn_build_split(b, both, used, width, width);
        rn_build_release(b, both);
    } else {
        gate = rn_build_expert_matmul(b, x, ids, "blk.%d.ffn_gate_exps", embedding, width, per_expert);
        up = rn_build_expert_matmul(b, x, ids, "blk.%d.ffn_up_exps", embedding, width, per_expert);
    }
    return rn_build_expert_gate(b, gate, up);
}

int16_t rn_build_expert_sum(struct rn_build *b, int16_t a, int16_t weights, uint32_t used)
{
    struct rn_op op = rn_build_empty(b, weights < 0 ? RN_OP_SUM : RN_OP_EXPERT_SUM);

    op.a = a;
    op.b = weights;
    op.used = used;
    op.out = rn_build_slot(b, b->status == RUNNEL_OK ? rn_build_width(b, a) / used : 1, false);
    rn_build_op(b, &op);
    rn_build_release(b, a);
    if (weights >= 0)
        rn_build_release(b, weights);
    return op.out;
}

/* What all rows go through beside their experts; where ffn_gate_inp_shexp is, times the sigmoid of that. Keeps x. */
static int16_t shared_expert(struct rn_build *b, int16_t x)
{
    uint32_t width = rn_build_rows(b, "blk.%d.ffn_up_shexp.weight");
    struct rn_op op = rn_build_empty(b, RN_OP_ROUTE);
    int16_t up = rn_build_linear(b, x, "blk.%d.ffn_up_shexp", width), down;

    up = is_plain(b)
             ? rn_build_activate(b, b->arch->act, up)
             : expert_gate(b, rn_build_linear(b, x, "blk.%d.ffn_gate_shexp", width), up, layer_of(b)->shared_cut);
    down = rn_build_linear(b, up, "blk.%d.ffn_down_shexp", b->hparams.embedding);
    rn_build_release(b, up);
    if (!rn_build_has(b, "blk.%d.ffn_gate_inp_shexp.weight"))
        return down;
    op.a = rn_build_linear(b, x, "blk.%d.ffn_gate_inp_shexp", 1); /* a choice of one, whose weight is the sigmoid */
    op.experts = op.used = 1;
    op.gating = RN_GATING_SIGMOID;
    op.out = rn_build_slot(b, 1, true);
    op.out2 = rn_build_slot(b, 1, false);
    rn_build_op(b, &op);
    rn_build_release(b, op.a);
    rn_build_release(b, op.out);
    return rn_build_expert_sum(b, down, op.out2, 1);
}

/* The last product of experts is what says how often each is used. */
static void count_uses(struct rn_build *b)
{
    uint32_t i = b->plan->n_ops;

    while (b->status == RUNNEL_OK && i > 0 && b->plan->ops[i - 1].kind != RN_OP_EXPERT_MATMUL)
        i--;
    if (b->status == RUNNEL_OK && i > 0)
        b->plan->ops[i - 1].counted = true;
}

/* What the chosen experts give for x, a row as wide as x. Keeps x. */
static int16_t experts_of(struct rn_build *b, int16_t x, int16_t logits)
{
    uint32_t embedding = rn_build_width(b, x), used = layer_of(b)->experts_used;
    uint32_t own = layer_of(b)->expert_feed_forward, width = own > 0 ? own : layer_of(b)->feed_forward;
    bool before = (b->arch->experts & RN_EXPERTS_BEFORE) != 0;
    struct rn_op chosen;
    int16_t in = x, hidden, out;

    if (used == 0)
        rn_build_fail(b, RUNNEL_FORMAT, "key %s.expert_used_count is 0 for block %d, which has experts",
                      b->hparams.architecture, (int)b->layer);
    if (width == 0 || (uint64_t)used * (2 * width > embedding ? 2 * width : embedding) > RN_MAX_WIDTH)
        rn_build_fail(b, RUNNEL_FORMAT, "key %s.feed_forward_length is missing or too large for %u experts",
                      b->hparams.architecture, used);
    chosen = rn_build_route(b, logits, used, 1);
    if (before) {
        in = rn_build_spread(b, x, chosen.out2, 0);
        chosen.out2 = -1;
    }
    hidden = expert_gates(b, in, chosen.out, width, before);
    if (before)
        rn_build_release(b, in);
    out = rn_build_expert_matmul(b, hidden, chosen.out, "blk.%d.ffn_down_exps", width, embedding, true);
    count_uses(b);
    rn_build_release(b, hidden);
    rn_build_release(b, chosen.out);
    return rn_build_expert_sum(b, out, chosen.out2, used);
}

/* Likewise, where experts see only a latent of x, and what they give is one. */
static int16_t latent_experts(struct rn_build *b, int16_t x, int16_t logits)
{
    bool routed = rn_build_has(b, "blk.%d.ffn_routed_down.weight"); /* Kimi K3's names */
    uint32_t rows = rn_build_rows(b, routed ? "blk.%d.ffn_routed_down.weight" : "blk.%d.ffn_latent_down.weight");
    int16_t latent = rn_build_linear(b, x, routed ? "blk.%d.ffn_routed_down" : "blk.%d.ffn_latent_down", rows);
    int16_t out = experts_of(b, latent, logits), all;

    rn_build_release(b, latent);
    if (routed && rn_build_has(b, "blk.%d.ffn_routed_norm.weight")) {
        latent = rn_build_norm(b, out, "blk.%d.ffn_routed_norm");
        rn_build_release(b, out);
        out = latent;
    }
    all = rn_build_linear(b, out, routed ? "blk.%d.ffn_routed_up" : "blk.%d.ffn_latent_up", b->hparams.embedding);
    rn_build_release(b, out);
    return all;
}

int16_t rn_build_moe_by(struct rn_build *b, int16_t x, int16_t logits)
{
    bool latent = (b->arch->experts & RN_EXPERTS_LATENT) != 0 && (rn_build_has(b, "blk.%d.ffn_latent_down.weight") ||
                                                                  rn_build_has(b, "blk.%d.ffn_routed_down.weight"));
    int16_t out = latent ? latent_experts(b, x, logits) : experts_of(b, x, logits);
    bool shared = rn_build_has(b, "blk.%d.ffn_up_shexp.weight");

    if (!shared && (b->arch->experts & RN_EXPERTS_ALWAYS_SHARED) == 0)
        return out;
    out = rn_build_add(b, out, shared ? shared_expert(b, x) : rn_build_activate(b, b->arch->act, rn_build_copy(b, x)));
    rn_build_scale(b, out, (b->arch->experts & RN_EXPERTS_AVERAGED) != 0 ? 0.5 : 1);
    return out;
}

int16_t rn_build_moe(struct rn_build *b, int16_t x)
{
    int16_t logits = rn_build_linear(b, x, "blk.%d.ffn_gate_inp", b->hparams.experts), out, dense;

    out = rn_build_moe_by(b, x, logits);
    rn_build_release(b, logits);
    if ((b->arch->experts & RN_EXPERTS_BESIDE) == 0 || !rn_build_has(b, "blk.%d.ffn_up.weight"))
        return out;
    dense = rn_build_feed_forward(b, x);
    out = rn_build_add(b, dense, out);
    rn_build_scale(b, out, sqrt(0.5));
    return out;
}
