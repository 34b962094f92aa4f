/* DeepSeek-V4 (its report, 2026): residual streams side by side, and attention that sees what is near position by
 * position and what is far in blocks.
 *
 * Streams are mixed as manifold.c says.
 *
 * Attention has one head of keys, which are the values too. Its last dimensions rotate, and those of what it gives
 * rotate back. All blocks have a window; of those with `per` positions in a block, compress_ratios, each block is one
 * more key, made of its positions' own rows (op COMPRESS), and rotated as the block's first position:
 *
 *     normed ─ attn_q_a ─ norm ─ attn_q_b ─ norm of each head ─ ROPE ───────────────┐
 *     normed ─ attn_kv ─ norm ─ ROPE ─ KV_STORE ········ the cache of positions ··· ATTENTION ─ ROPE back ─▶
 *     normed ─ attn_compressor_* ─ COMPRESS ─ norm ─ ROPE ─ KV_STORE ··· of blocks ···┘ by what REACH says
 *
 * With blocks of 4 an indexer chooses among them (CHOOSE), whose keys are made likewise; those of 128 are all seen.
 * The output goes through two products, the first of which each group of heads has its own of.
 *
 * In the first blocks a table says which experts a token has (hash_layer_count). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/min.h"
#include "model/arch/families.h"
#include "model/build/build.h"

enum { FEW = 4, MANY = 128 }; /* positions of a block, of the two kinds */

static_assert((int)RN_MAX_CONTEXT < (int)RN_SECOND, "a bit beside positions");

/* Indices of rn_hparams.ropes: blocks that see single positions only, and the others; `*_BACK`: the other way; the last
 * two are of what is made of a block. */
enum { NEAR, NEAR_BACK, FAR, FAR_BACK, OF_FEW, OF_MANY };

/* ---- Keys ---- */

static runnel_status add_rope(const struct rn_hparams_reader *r, struct rn_rope_hparams rope, bool back,
                              uint32_t before)
{
    int32_t index;

    rope.back = back;
    rope.shift = -(int32_t)before;
    return rn_hparams_add_rope(r, &rope, &index);
}

/* Rotated vectors never grow. What is stretched is the rotation of blocks that see far. */
static runnel_status read_ropes(const struct rn_hparams_reader *r)
{
    struct rn_rope_hparams *near = &r->hparams->ropes[NEAR], far;
    runnel_status status = RUNNEL_OK;

    near->attention_factor = near->yarn_attention = 1;
    near->divisors = false;
    far = *near;
    near->scaling = RN_ROPE_PLAIN;
    near->factor = 1;
    if (!rn_hparams_has(r, "attention.compress_rope_freq_base"))
        return rn_hparams_bad(r, RUNNEL_FORMAT, "attention.compress_rope_freq_base", "is missing");
    status = rn_hparams_f64(r, "attention.compress_rope_freq_base", 1e-3, 1e18, &far.base);
    if (status == RUNNEL_OK && far.scaling == RN_ROPE_YARN && far.base <= 1)
        return rn_hparams_bad(r, RUNNEL_FORMAT, "attention.compress_rope_freq_base",
                              "is not above 1, which YaRN needs");
    if (status == RUNNEL_OK && far.scaling != RN_ROPE_PLAIN && far.scaling != RN_ROPE_LINEAR &&
        far.scaling != RN_ROPE_YARN)
        return rn_hparams_bad(r, RUNNEL_UNSUPPORTED, "rope.scaling.type", "is neither linear nor yarn");
    if (status == RUNNEL_OK)
        status = add_rope(r, *near, true, 0);
    if (status == RUNNEL_OK)
        status = add_rope(r, far, false, 0);
    if (status == RUNNEL_OK)
        status = add_rope(r, far, true, 0);
    if (status == RUNNEL_OK)
        status = add_rope(r, far, false, FEW - 1);
    return status == RUNNEL_OK ? add_rope(r, far, false, MANY - 1) : status;
}

/* How far each block sees, and the form of its output. */
static runnel_status read_sight(const struct rn_hparams_reader *r)
{
    struct rn_hparams *h = r->hparams;
    struct rn_far_hparams *f = &h->far;
    struct rn_layer_hparams *layer;
    uint32_t window = 0, i;
    runnel_status status = rn_hparams_u32(r, "attention.sliding_window", true, 1, RN_MAX_CONTEXT, &window);

    if (status == RUNNEL_OK)
        status =
            rn_hparams_layers(r, "attention.compress_ratios", true, 0, MANY, offsetof(struct rn_layer_hparams, per));
    if (status == RUNNEL_OK)
        status = rn_hparams_u32(r, "attention.output_group_count", true, 1, RN_MAX_HEADS, &f->groups);
    if (status == RUNNEL_OK)
        status = rn_hparams_u32(r, "attention.output_lora_rank", true, 1, RN_MAX_WIDTH / RN_MAX_HEADS, &f->rank);
    if (status == RUNNEL_OK)
        status = rn_hparams_u32(r, "attention.q_lora_rank", true, 1, RN_MAX_WIDTH, &f->q_rank);
    for (i = 0; status == RUNNEL_OK && i < h->n_layers; i++) {
        layer = &h->layers[i];
        if (layer->per != 0 && layer->per != FEW && layer->per != MANY)
            return rn_hparams_bad(r, RUNNEL_UNSUPPORTED, "attention.compress_ratios", "is neither 0, 4 nor 128");
        if (layer->kv_heads != 1)
            return rn_hparams_bad(r, RUNNEL_FORMAT, "attention.head_count_kv", "is not 1");
        if (layer->k_dim != layer->v_dim)
            return rn_hparams_bad(r, RUNNEL_FORMAT, "attention.value_length", "is not attention.key_length");
        if (layer->heads % f->groups != 0)
            return rn_hparams_bad(r, RUNNEL_FORMAT, "attention.output_group_count", "does not divide the heads");
        layer->window = window;
        layer->rope = layer->per > 0 ? FAR : NEAR;
        layer->attention_scale = 1 / sqrt((double)layer->k_dim);
    }
    return status;
}

static runnel_status read_expert_keys(const struct rn_hparams_reader *r)
{
    static const char *const needed[] = {"expert_weights_scale", "expert_weights_norm", "expert_gating_func",
                                         "swiglu_clamp_exp"};
    struct rn_hparams *h = r->hparams;
    runnel_status status = rn_hparams_u32(r, "hash_layer_count", true, 0, RN_MAX_LAYERS, &h->far.hashed);
    size_t i;

    for (i = 0; status == RUNNEL_OK && i < sizeof needed / sizeof needed[0]; i++)
        if (!rn_hparams_has(r, needed[i]))
            return rn_hparams_bad(r, RUNNEL_FORMAT, needed[i], "is missing");
    if (status == RUNNEL_OK && h->experts == 0)
        return rn_hparams_bad(r, RUNNEL_FORMAT, "expert_count", "is missing or 0");
    if (status == RUNNEL_OK && h->experts_gating != RN_GATING_ROOT_SOFTPLUS)
        return rn_hparams_bad(r, RUNNEL_UNSUPPORTED, "expert_gating_func", "is not 4, the root of softplus");
    h->cut_first = true;
    if (status == RUNNEL_OK)
        status = rn_arch_cuts(r, "swiglu_clamp_exp", offsetof(struct rn_layer_hparams, expert_cut));
    for (i = 0; i < h->n_layers; i++)
        h->layers[i].shared_cut = h->layers[i].expert_cut;
    return status == RUNNEL_OK ? rn_arch_cuts(r, "swiglu_clamp_shexp", offsetof(struct rn_layer_hparams, shared_cut))
                               : status;
}

/* Where the file has no prediction layer the key that counts them does not count. */
static void count_predictions(const struct rn_hparams_reader *r)
{
    struct rn_hparams *h = r->hparams;
    char name[RN_BUILD_NAME_BYTES];

    snprintf(name, sizeof name, "blk.%u.nextn.eh_proj.weight", h->n_layers - h->n_nextn);
    if (h->n_nextn > 0 && rn_gguf_find_tensor(r->gguf, name) == NULL)
        h->n_nextn = 0;
}

runnel_status rn_arch_deepseek4_keys(const struct rn_hparams_reader *r)
{
    runnel_status status = rn_arch_manifold_keys(r);

    count_predictions(r);
    if (status == RUNNEL_OK)
        status = read_sight(r);
    if (status == RUNNEL_OK)
        status = read_ropes(r);
    if (status == RUNNEL_OK)
        status = rn_arch_indexer_keys(r, r->hparams->ropes[FAR].dims);
    return status == RUNNEL_OK ? read_expert_keys(r) : status;
}

/* ---- Attention ---- */

static const struct rn_layer_hparams *layer_of(const struct rn_build *b)
{
    return &b->hparams.layers[b->layer];
}

/* a to another cache layer, whose number comes back. Releases a. */
static int32_t store(struct rn_build *b, int16_t a)
{
    struct rn_op op = rn_build_empty(b, RN_OP_KV_STORE);

    op.a = a;
    op.layer = rn_build_cache(b, (struct rn_kv_layer){.k_width = rn_build_width(b, a), .kv_heads = 1});
    rn_build_op(b, &op);
    rn_build_release(b, a);
    return op.layer;
}

/* A row for each block, of `dim` numbers, normed and rotated, at its last position; at others what nobody reads. Keeps
 * normed. */
static int16_t compress(struct rn_build *b, int16_t normed, const char *stem, uint32_t dim)
{
    uint32_t per = layer_of(b)->per, parts = per == FEW ? 2 : 1; /* with the block before */
    char name[RN_BUILD_NAME_BYTES];
    int16_t rows, gate, out;

    snprintf(name, sizeof name, "%s_kv", stem);
    rows = rn_build_linear(b, normed, name, parts * dim);
    snprintf(name, sizeof name, "%s_gate", stem);
    gate = rn_build_linear(b, normed, name, parts * dim);
    snprintf(name, sizeof name, "%s_ape.weight", stem);
    rows = rn_build_compress(b, rows, gate, name, per, parts, dim);
    snprintf(name, sizeof name, "%s_norm.weight", stem);
    out = rn_build_rms_norm(b, rows, name);
    rn_build_release(b, rows);
    return rn_build_rope_behind(b, per == FEW ? OF_FEW : OF_MANY, out, 1);
}

/* The positions of the blocks that the indexer chooses. Keeps both. */
static int16_t choose(struct rn_build *b, int16_t normed, int16_t low)
{
    const struct rn_indexer_hparams *x = &b->hparams.indexer;
    struct rn_op op = rn_build_empty(b, RN_OP_CHOOSE);
    uint32_t blocks = b->plan->context_tokens / FEW;

    blocks = rn_min_u32(blocks > 0 ? blocks : 1, x->most);
    op.layer = store(b, compress(b, normed, "blk.%d.indexer_compressor", x->k_dim));
    op.heads = x->heads;
    op.k_dim = x->k_dim;
    op.per = FEW;
    op.used = blocks * FEW + FEW - 1;
    op.a = rn_build_linear(b, low, "blk.%d.indexer.attn_q_b", x->heads * x->k_dim);
    op.a = rn_build_rope_behind(b, FAR, op.a, x->heads);
    op.b = rn_build_linear(b, normed, "blk.%d.indexer.proj", x->heads);
    op.out = rn_build_slot(b, op.used, true);
    rn_build_op(b, &op);
    rn_build_release(b, op.a);
    rn_build_release(b, op.b);
    return op.out;
}

/* What the row looks at, of both caches. Releases chosen, which may be -1. */
static int16_t reach(struct rn_build *b, int16_t chosen)
{
    struct rn_op op = rn_build_empty(b, RN_OP_REACH);
    uint32_t context = b->plan->context_tokens, most = chosen < 0 ? context : rn_build_width(b, chosen);

    op.a = chosen;
    op.window = layer_of(b)->window;
    op.per = layer_of(b)->per;
    op.used = rn_min_u32(op.window, context) + rn_min_u32(most, context) / op.per;
    op.out = rn_build_slot(b, op.used, true);
    rn_build_op(b, &op);
    if (chosen >= 0)
        rn_build_release(b, chosen);
    return op.out;
}

/* What the queries find. Releases op->a and op->b. */
static int16_t attend(struct rn_build *b, struct rn_op *op)
{
    const struct rn_layer_hparams *layer = layer_of(b);

    op->heads = op->group = layer->heads;
    op->kv_heads = 1;
    op->k_dim = op->v_dim = layer->k_dim;
    op->scale = (float)layer->attention_scale;
    op->window = layer->window;
    op->used = op->b < 0 ? 0 : rn_build_width(b, op->b);
    op->weight = rn_build_vector(b, "blk.%d.attn_sinks.weight", op->heads, false);
    op->out = rn_build_slot(b, op->heads * op->v_dim, false);
    rn_build_op(b, op);
    rn_build_release(b, op->a);
    if (op->b >= 0)
        rn_build_release(b, op->b);
    return op->out;
}

/* Keeps low. */
static int16_t queries(struct rn_build *b, int16_t low)
{
    const struct rn_layer_hparams *layer = layer_of(b);
    int16_t q = rn_build_linear(b, low, "blk.%d.attn_q_b", layer->heads * layer->k_dim);

    return rn_build_rope_behind(b, (uint32_t)layer->rope, rn_build_unit_norm(b, q, layer->k_dim), layer->heads);
}

/* Keeps normed. */
static int16_t keys(struct rn_build *b, int16_t normed)
{
    const struct rn_layer_hparams *layer = layer_of(b);
    int16_t k = rn_build_linear(b, normed, "blk.%d.attn_kv", layer->k_dim), out;

    out = rn_build_rms_norm(b, k, "blk.%d.attn_kv_a_norm.weight");
    rn_build_release(b, k);
    return rn_build_rope_behind(b, (uint32_t)layer->rope, out, 1);
}

/* Both products of the output. Releases mixed. */
static int16_t output(struct rn_build *b, int16_t mixed)
{
    const struct rn_far_hparams *f = &b->hparams.far;
    uint32_t cols = layer_of(b)->heads / f->groups * layer_of(b)->k_dim;
    int16_t low = rn_build_head_matmul(
        b, mixed, rn_build_heads(b, "blk.%d.attn_output_a.weight", cols, f->rank, f->groups), 0, f->rank);
    int16_t out = rn_build_linear(b, low, "blk.%d.attn_output_b", b->hparams.embedding);

    rn_build_release(b, low);
    return out;
}

/* Releases normed. */
static int16_t attention(struct rn_build *b, int16_t normed)
{
    const struct rn_layer_hparams *layer = layer_of(b);
    struct rn_op op = rn_build_empty(b, RN_OP_ATTENTION);
    int16_t low = rn_build_linear(b, normed, "blk.%d.attn_q_a", b->hparams.far.q_rank), out;

    out = rn_build_rms_norm(b, low, "blk.%d.attn_q_a_norm.weight");
    rn_build_release(b, low);
    low = out;
    op.a = queries(b, low);
    op.layer = store(b, keys(b, normed));
    if (layer->per > 0) {
        op.second = 1 + (uint32_t)store(b, compress(b, normed, "blk.%d.attn_compressor", layer->k_dim));
        op.b = reach(b, layer->per == FEW ? choose(b, normed, low) : -1);
    }
    rn_build_release(b, low);
    rn_build_release(b, normed);
    out = rn_build_rope_behind(b, (uint32_t)layer->rope + 1, attend(b, &op), layer->heads);
    return output(b, out);
}

/* ---- Blocks ---- */

/* The table's numbers of experts; all of them there are. */
static void check_table(struct rn_build *b, const struct rn_weight *w)
{
    const unsigned char *ids = w->tensor->data; /* of any alignment */
    uint64_t i, n = (uint64_t)w->rows * w->cols;
    int32_t id;

    for (i = 0; i < n; i++) {
        memcpy(&id, ids + i * sizeof id, sizeof id);
        if (id < 0 || (uint32_t)id >= b->hparams.experts) {
            rn_build_fail(b, RUNNEL_FORMAT, "tensor blk.%d.ffn_gate_tid2eid.weight names expert %d of %u",
                          (int)b->layer, (int)id, b->hparams.experts);
            return;
        }
    }
}

/* Of each row's token the experts that the block's table names. */
static int16_t look_up(struct rn_build *b)
{
    struct rn_op op = rn_build_empty(b, RN_OP_EMBED_IDS);
    uint32_t used = layer_of(b)->experts_used;

    op.weight = rn_build_ids(b, "blk.%d.ffn_gate_tid2eid.weight", used, b->plan->n_vocab);
    if (b->status == RUNNEL_OK)
        check_table(b, &b->plan->weights[op.weight]);
    op.out = rn_build_slot(b, used, true);
    rn_build_op(b, &op);
    return op.out;
}

/* Releases normed. */
static int16_t experts(struct rn_build *b, int16_t normed)
{
    bool hashed = (uint32_t)b->layer < b->hparams.far.hashed;
    int16_t out;

    rn_build_ignore(b, "blk.%d.exp_probs_b_vl.bias"); /* of pictures */
    if (hashed)
        b->routed = look_up(b);
    else if (!rn_build_has(b, "blk.%d.exp_probs_b.bias"))
        rn_build_fail(b, RUNNEL_FORMAT, "tensor blk.%d.exp_probs_b.bias is missing", (int)b->layer);
    if (!rn_build_has(b, "blk.%d.ffn_up_shexp.weight"))
        rn_build_fail(b, RUNNEL_FORMAT, "tensor blk.%d.ffn_up_shexp.weight is missing", (int)b->layer);
    out = rn_build_moe(b, normed);
    if (hashed)
        rn_build_release(b, b->routed);
    b->routed = -1;
    rn_build_release(b, normed);
    return out;
}

static int16_t block(struct rn_build *b, int16_t x)
{
    int16_t post, mix, in = rn_arch_manifold_before(b, x, "blk.%d.hc_attn", "blk.%d.attn_norm", &post, &mix);

    x = rn_arch_manifold_behind(b, attention(b, in), post, mix, x);
    in = rn_arch_manifold_before(b, x, "blk.%d.hc_ffn", "blk.%d.ffn_norm", &post, &mix);
    return rn_arch_manifold_behind(b, experts(b, in), post, mix, x);
}

int16_t rn_arch_deepseek4_prediction(struct rn_build *b, int16_t x)
{
    rn_build_fail(b, RUNNEL_UNSUPPORTED,
                  "prediction layers of architecture %s, which have several streams, are not known",
                  b->plan->architecture);
    return x;
}

void rn_arch_deepseek4(struct rn_build *b)
{
    if (rn_build_has(b, "rope_freqs.weight"))
        rn_build_fail(b, RUNNEL_UNSUPPORTED,
                      "tensor rope_freqs.weight is not part of architecture %s as it is known here",
                      b->plan->architecture);
    rn_arch_streams(b, block);
}
