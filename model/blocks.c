/* Pieces of blocks that many architectures share: see build.h. */
#include "model/build.h"

#include <math.h>
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
    b->n_rope_tensors++;
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
        if (!isfinite((*out)[i]) || !((*out)[i] > 0)) {
            rn_build_fail(b, RUNNEL_FORMAT, "tensor %s holds a value that is not a positive number", name);
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
        bigger[plan->n_ropes] = (struct rn_rope){.dims = h->dims, .neox = (b->arch->flags & RN_ARCH_NEOX) != 0};
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
    float *always, *near, *far, *chosen;
    uint32_t i;

    if (b->hparams.n_ropes == 0)
        return;
    read_divisors(b, divisor_names[0], h->dims / 2, &always);
    read_divisors(b, divisor_names[1], h->dims / 2, &near);
    read_divisors(b, divisor_names[2], h->dims / 2, &far);
    chosen = always != NULL ? always : rn_rope_is_long(h, b->plan->context_tokens) ? far : near;
    if (h->scaling == RN_ROPE_LONGROPE && chosen == NULL)
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

/* The number of the block's cache. */
static int32_t add_kv_layer(struct rn_build *b)
{
    const struct rn_layer_hparams *layer = layer_of(b);
    struct rn_plan *plan = b->plan;
    struct rn_kv_layer *layers;

    if (b->status != RUNNEL_OK)
        return 0;
    if (plan->kv_layers == NULL) {
        layers = rn_calloc(plan->heap, b->hparams.n_layers, sizeof *layers);
        if (layers == NULL) {
            rn_build_fail(b, RUNNEL_NO_MEMORY, "no memory for the plan");
            return 0;
        }
        plan->kv_layers = layers;
    }
    plan->kv_layers[plan->n_kv_layers] = (struct rn_kv_layer){.k_width = layer->kv_heads * layer->k_dim,
                                                              .v_width = layer->kv_heads * layer->v_dim,
                                                              .kv_heads = layer->kv_heads};
    return (int32_t)plan->n_kv_layers++;
}

struct rn_qkv rn_build_qkv(struct rn_build *b, int16_t normed)
{
    const struct rn_layer_hparams *layer = layer_of(b);
    uint32_t q = layer->heads * layer->k_dim, k = layer->kv_heads * layer->k_dim, v = layer->kv_heads * layer->v_dim;
    struct rn_qkv x;
    int16_t all;

    if (rn_build_has(b, "blk.%d.attn_qkv.weight")) {
        all = rn_build_linear(b, normed, "blk.%d.attn_qkv", q + k + v);
        x.q = rn_build_split(b, all, 1, 0, q);
        x.k = rn_build_split(b, all, 1, q, k);
        x.v = rn_build_split(b, all, 1, q + k, v);
        rn_build_release(b, all);
        return x;
    }
    x.q = rn_build_linear(b, normed, "blk.%d.attn_q", q);
    x.k = rn_build_linear(b, normed, "blk.%d.attn_k", k);
    x.v = rn_build_linear(b, normed, "blk.%d.attn_v", v);
    return x;
}

void rn_build_rotate(struct rn_build *b, const struct rn_qkv *x)
{
    const struct rn_layer_hparams *layer = layer_of(b);

    if (layer->rope == RN_NO_ROPE)
        return;
    rn_build_rope(b, (uint32_t)layer->rope, x->q, layer->heads);
    rn_build_rope(b, (uint32_t)layer->rope, x->k, layer->kv_heads);
}

int16_t rn_build_attend(struct rn_build *b, struct rn_qkv x)
{
    const struct rn_layer_hparams *layer = layer_of(b);
    struct rn_op store = rn_build_empty(b, RN_OP_KV_STORE), op = rn_build_empty(b, RN_OP_ATTENTION);

    store.a = x.k;
    store.b = x.v;
    store.layer = op.layer = add_kv_layer(b);
    rn_build_op(b, &store);
    op.a = x.q;
    op.heads = layer->heads;
    op.kv_heads = layer->kv_heads;
    op.k_dim = layer->k_dim;
    op.v_dim = layer->v_dim;
    op.scale = (float)layer->attention_scale;
    op.window = layer->window;
    op.bidirectional = b->plan->bidirectional;
    op.softcap = (float)b->hparams.softcap;
    op.out = rn_build_slot(b, layer->heads * layer->v_dim, false);
    rn_build_op(b, &op);
    rn_build_release(b, x.q);
    rn_build_release(b, x.k);
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

int16_t rn_build_attention(struct rn_build *b, int16_t normed, int16_t *residual)
{
    struct rn_qkv x = rn_build_qkv(b, normed);
    int16_t mixed, out;

    rn_build_rotate(b, &x);
    mixed = rn_build_attend(b, x);
    rn_build_release(b, normed);
    rn_build_last_rows(b, &mixed, residual);
    out = rn_build_linear(b, mixed, "blk.%d.attn_output", b->hparams.embedding);
    rn_build_release(b, mixed);
    return out;
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

int16_t rn_build_ffn(struct rn_build *b, int16_t x, enum rn_activation act)
{
    int16_t up = rn_build_linear(b, x, "blk.%d.ffn_up", feed_forward(b)), out;

    rn_build_release(b, x);
    up = rn_build_activate(b, act, up);
    out = rn_build_linear(b, up, "blk.%d.ffn_down", b->hparams.embedding);
    rn_build_release(b, up);
    return out;
}

int16_t rn_build_ffn_gated(struct rn_build *b, int16_t x, enum rn_activation act)
{
    uint32_t width = feed_forward(b);
    int16_t gate, up, out;

    gate = rn_build_linear(b, x, "blk.%d.ffn_gate", width);
    up = rn_build_linear(b, x, "blk.%d.ffn_up", width);
    rn_build_release(b, x);
    gate = rn_build_gate(b, act, gate, up);
    out = rn_build_linear(b, gate, "blk.%d.ffn_down", b->hparams.embedding);
    rn_build_release(b, gate);
    return out;
}

/* One matrix of each chosen expert. `cols` -> `rows` values; per_expert: `a` has a row for each. Keeps a and ids. */
static int16_t expert_matmul(struct rn_build *b, int16_t a, int16_t ids, const char *name, uint32_t cols, uint32_t rows,
                             bool per_expert)
{
    struct rn_op op = rn_build_empty(b, RN_OP_EXPERT_MATMUL);

    op.a = a;
    op.b = ids;
    op.experts = b->hparams.experts;
    op.used = b->hparams.experts_used;
    op.per_expert_input = per_expert;
    op.weight = rn_build_matrix(b, name, cols, rows, op.experts, false);
    op.out = rn_build_slot(b, op.used * rows, false);
    rn_build_op(b, &op);
    return op.out;
}

/* ids and weights of the chosen experts; releases the router's logits. */
static struct rn_op route(struct rn_build *b, int16_t logits, const struct rn_moe_style *style)
{
    struct rn_op op = rn_build_empty(b, RN_OP_ROUTE);

    op.a = logits;
    op.experts = b->hparams.experts;
    op.used = b->hparams.experts_used;
    op.sigmoid = style->sigmoid;
    op.normalise = style->normalise;
    op.out = rn_build_slot(b, op.used, true);
    op.out2 = rn_build_slot(b, op.used, false);
    rn_build_op(b, &op);
    rn_build_release(b, logits);
    return op;
}

int16_t rn_build_moe(struct rn_build *b, int16_t x, const struct rn_moe_style *style)
{
    uint32_t embedding = b->hparams.embedding, width = style->feed_forward, used = b->hparams.experts_used;
    struct rn_op chosen, sum = rn_build_empty(b, RN_OP_EXPERT_SUM);
    int16_t gate, up, down;

    if (width == 0 || (uint64_t)used * (width > embedding ? width : embedding) > RN_MAX_WIDTH)
        rn_build_fail(b, RUNNEL_FORMAT, "key %s.feed_forward_length is missing or too large for %u experts",
                      b->hparams.architecture, used);
    chosen = route(b, rn_build_linear(b, x, "blk.%d.ffn_gate_inp", b->hparams.experts), style);
    gate = expert_matmul(b, x, chosen.out, "blk.%d.ffn_gate_exps.weight", embedding, width, false);
    up = expert_matmul(b, x, chosen.out, "blk.%d.ffn_up_exps.weight", embedding, width, false);
    rn_build_release(b, x);
    gate = rn_build_gate(b, style->act, gate, up);
    down = expert_matmul(b, gate, chosen.out, "blk.%d.ffn_down_exps.weight", width, embedding, true);
    rn_build_release(b, gate);
    rn_build_release(b, chosen.out);
    sum.a = down;
    sum.b = chosen.out2;
    sum.used = used;
    sum.experts = b->hparams.experts;
    sum.out = rn_build_slot(b, embedding, false);
    rn_build_op(b, &sum);
    rn_build_release(b, down);
    rn_build_release(b, chosen.out2);
    return sum.out;
}

int16_t rn_build_llama_block(struct rn_build *b, int16_t x)
{
    const struct rn_moe_style moe = {.act = RN_ACT_SILU, .normalise = true, .feed_forward = layer_of(b)->feed_forward};
    int16_t normed, ffn;

    x = rn_build_attention_part(b, x);
    normed = rn_build_norm(b, x, "blk.%d.ffn_norm");
    ffn = b->hparams.experts == 0 ? rn_build_ffn_gated(b, normed, RN_ACT_SILU) : rn_build_moe(b, normed, &moe);
    return rn_build_add(b, ffn, x);
}
