/* Keys and blocks of architectures with experts of which no flag says enough. What each file holds: the models' papers
 * and configurations, and what converters write. */
#include <math.h>

#include "model/arch/families.h"
#include "model/build/build.h"

/* ---- Grok (2024; Grok 2, 2025) ---- */

/* Files of the first model say none of it. Those of the second have YaRN's factor beside its growth, not in place of
 * it.
 */
runnel_status rn_arch_grok_keys(const struct rn_hparams_reader *r)
{
    struct rn_hparams *h = r->hparams;
    double scale = 0.08838834764831845; /* 1 / sqrt(128) */
    runnel_status status;
    uint32_t i;

    h->embedding_scale = 78.38367176906169;
    if (!rn_hparams_has(r, "logit_scale"))
        h->logit_scale = 0.5773502691896257;
    if (!rn_hparams_has(r, "attn_logit_softcapping"))
        h->softcap = 30;
    if (!rn_hparams_has(r, "rope.scaling.yarn_beta_fast"))
        h->ropes[0].beta_fast = 8;
    if (h->ropes[0].yarn_attention > 0)
        h->ropes[0].attention_factor *= h->ropes[0].yarn_attention;
    h->ropes[0].yarn_attention = 0;
    status = rn_hparams_f64(r, "embedding_scale", 1e-9, 1e9, &h->embedding_scale);
    if (status == RUNNEL_OK)
        status = rn_hparams_f64(r, "attention.output_scale", 1e-9, 1e9, &scale);
    for (i = 0; i < h->n_layers; i++)
        h->layers[i].attention_scale = scale;
    return status;
}

/* ---- Arctic: a dense residual, and experts beside all of the block ---- */

/* The dense feed-forward is as wide as the embedding; feed_forward_length is that of the experts. */
runnel_status rn_arch_arctic_keys(const struct rn_hparams_reader *r)
{
    struct rn_hparams *h = r->hparams;
    uint32_t i;

    for (i = 0; i < h->n_layers; i++)
        if (h->layers[i].expert_feed_forward == 0)
            h->layers[i].expert_feed_forward = h->layers[i].feed_forward;
    for (i = 0; i < h->n_layers; i++)
        h->layers[i].feed_forward = h->embedding;
    return RUNNEL_OK;
}

/* y = x + attention(norm x); y + ffn(norm y) + experts(norm x) */
int16_t rn_arch_arctic_block(struct rn_build *b, int16_t x)
{
    int16_t in = rn_build_norm(b, x, "blk.%d.attn_norm"), mixed = rn_build_mix(b, in), experts, out;

    rn_build_release(b, in);
    rn_build_last_rows(b, &mixed, &x);
    in = rn_build_norm(b, x, "blk.%d.ffn_norm_exps");
    experts = rn_build_moe(b, in);
    rn_build_release(b, in);
    x = rn_build_add(b, rn_build_attention_out(b, mixed), x);
    in = rn_build_norm(b, x, "blk.%d.ffn_norm");
    out = rn_build_feed_forward(b, in);
    rn_build_release(b, in);
    return rn_build_add(b, experts, rn_build_add(b, out, x));
}

/* ---- SmallThinker (arXiv 2507.20984): experts are chosen before attention ---- */

/* Windows are always of one size, and blocks without one rotate nothing; in a model without windows all rotate. */
runnel_status rn_arch_smallthinker_keys(const struct rn_hparams_reader *r)
{
    enum { WINDOW = 4096, PERIOD = 4 };
    struct rn_hparams *h = r->hparams;
    uint32_t window = 0, i;
    runnel_status status = rn_hparams_u32(r, "attention.sliding_window", false, 0, RN_MAX_CONTEXT, &window);

    for (i = 0; status == RUNNEL_OK && window > 0 && i < h->n_layers; i++) {
        h->layers[i].window = h->layers[i].window > 0 ? WINDOW : 0;
        if (i % PERIOD == 0)
            h->layers[i].rope = RN_NO_ROPE;
    }
    return status;
}

int16_t rn_arch_smallthinker_block(struct rn_build *b, int16_t x)
{
    int16_t logits = rn_build_linear(b, x, "blk.%d.ffn_gate_inp", b->hparams.experts);
    int16_t in = rn_build_norm(b, x, "blk.%d.attn_norm"), mixed = rn_build_mix(b, in), out;
    bool all_rows = !b->selected;

    rn_build_release(b, in);
    rn_build_last_rows(b, &mixed, &x);
    if (all_rows && b->selected)
        logits = rn_build_select(b, logits);
    x = rn_build_add(b, rn_build_attention_out(b, mixed), x);
    in = rn_build_norm(b, x, "blk.%d.ffn_norm");
    out = rn_build_moe_by(b, in, logits);
    rn_build_release(b, logits);
    rn_build_release(b, in);
    return rn_build_add(b, out, x);
}

/* ---- GroveMoE (arXiv 2508.07785): experts of a group share a small one ----
 *
 * What the small ones look at is what the large ones give, as other programs have it; the paper has the block's input
 * there. */

runnel_status rn_arch_grove_keys(const struct rn_hparams_reader *r)
{
    struct rn_hparams *h = r->hparams;
    runnel_status status = rn_hparams_u32(r, "experts_per_group", true, 1, RN_MAX_EXPERTS, &h->experts_per_chunk);

    h->chunk_scale = 1;
    if (status == RUNNEL_OK)
        status = rn_hparams_f64(r, "expert_group_scale", 0, 1e6, &h->chunk_scale);
    if (status == RUNNEL_OK && (h->experts == 0 || h->experts % h->experts_per_chunk != 0))
        status = rn_hparams_bad(r, RUNNEL_FORMAT, "experts_per_group", "does not divide the number of experts");
    return status;
}

/* The small experts of the best ones, which are experts of their own, `experts_per_chunk` times fewer. */
static int16_t chunks(struct rn_build *b, int16_t x, int16_t logits)
{
    struct rn_hparams *h = &b->hparams;
    uint32_t *n_used = &h->layers[b->layer].experts_used;
    const uint32_t n_chunks = h->experts / h->experts_per_chunk, experts = h->experts, all_used = *n_used;
    const uint32_t used = all_used < n_chunks ? all_used : n_chunks;
    const uint32_t width = rn_build_rows(b, "blk.%d.ffn_up_chexps.weight"), embedding = h->embedding;
    struct rn_op chosen = rn_build_route(b, logits, used, h->experts_per_chunk);
    int16_t gate, up, out;

    if ((uint64_t)used * (width > embedding ? width : embedding) > RN_MAX_WIDTH)
        rn_build_fail(b, RUNNEL_FORMAT, "tensor blk.%d.ffn_up_chexps.weight has too many rows", b->layer);
    h->experts = n_chunks;
    *n_used = used;
    gate = rn_build_expert_matmul(b, x, chosen.out, "blk.%d.ffn_gate_chexps", embedding, width, false);
    up = rn_build_expert_matmul(b, x, chosen.out, "blk.%d.ffn_up_chexps", embedding, width, false);
    gate = rn_build_expert_gate(b, gate, up);
    out = rn_build_expert_matmul(b, gate, chosen.out, "blk.%d.ffn_down_chexps", width, embedding, true);
    h->experts = experts;
    *n_used = all_used;
    rn_build_release(b, gate);
    rn_build_release(b, chosen.out);
    return rn_build_expert_sum(b, out, chosen.out2, used);
}

int16_t rn_arch_grove_block(struct rn_build *b, int16_t x)
{
    int16_t in, logits, out, shared;

    x = rn_build_attention_part(b, x);
    in = rn_build_norm(b, x, "blk.%d.ffn_norm");
    logits = rn_build_linear(b, in, "blk.%d.ffn_gate_inp", b->hparams.experts);
    out = rn_build_moe_by(b, in, logits);
    shared = chunks(b, out, logits);
    rn_build_scale(b, shared, b->hparams.chunk_scale);
    rn_build_release(b, logits);
    rn_build_release(b, in);
    return rn_build_add(b, rn_build_add(b, out, shared), x);
}

/* ---- Cohere 2 with experts ---- */

/* Dense blocks, which come first, rotate whether they have a window or not. */
runnel_status rn_arch_cohere2moe_keys(const struct rn_hparams_reader *r)
{
    struct rn_hparams *h = r->hparams;
    uint32_t dense = 0, i;
    runnel_status status = rn_hparams_u32(r, "leading_dense_block_count", false, 0, h->n_layers, &dense);

    for (i = 0; status == RUNNEL_OK && i < dense; i++)
        h->layers[i].rope = 0;
    return status;
}

/* Norms are what the file has an epsilon for: RMS norms, or else layer norms. */
void rn_arch_cohere2moe(struct rn_build *b)
{
    const struct rn_arch *row = b->arch;
    struct rn_arch arch = *row;

    if (b->hparams.rms_eps > 0)
        arch.flags &= ~(uint64_t)RN_ARCH_LAYER_NORM;
    b->arch = &arch;
    rn_build_decoder(b);
    b->arch = row;
}

/* ---- MiMo V2: blocks with windows rotate by a base of their own, and are not stretched ---- */

runnel_status rn_arch_mimo2_keys(const struct rn_hparams_reader *r)
{
    struct rn_rope_hparams local = r->hparams->ropes[0];
    runnel_status status;

    local.base = 10000;
    local.scaling = RN_ROPE_PLAIN;
    local.factor = 1;
    status = rn_hparams_f64(r, "rope.freq_base_swa", 1e-3, 1e18, &local.base);
    if (status == RUNNEL_OK)
        status = rn_hparams_f64(r, "attention.value_scale", 0, 1e6, &r->hparams->attention_out_scale);
    return status == RUNNEL_OK ? rn_hparams_local_rope(r, &local) : status;
}

/* ---- Mellum: blocks with windows are not stretched ---- */

runnel_status rn_arch_mellum_keys(const struct rn_hparams_reader *r)
{
    struct rn_rope_hparams local = r->hparams->ropes[0];

    local.scaling = RN_ROPE_PLAIN;
    local.factor = 1;
    local.attention_factor = 1;
    return rn_hparams_local_rope(r, &local);
}

/* ---- AFMoE (Trinity): every so many-th block rotates nothing, with a window or without ---- */

runnel_status rn_arch_afmoe_keys(const struct rn_hparams_reader *r)
{
    enum { PERIOD = 4 };
    uint32_t i;

    for (i = PERIOD - 1; i < r->hparams->n_layers; i += PERIOD)
        r->hparams->layers[i].rope = RN_NO_ROPE;
    return RUNNEL_OK;
}

/* ---- Step 3.5 and Laguna: blocks with windows rotate more of a head, by a base of their own ---- */

/* `local` is what blocks with windows have beside the file's keys. */
static runnel_status local_rope(const struct rn_hparams_reader *r, struct rn_rope_hparams local)
{
    runnel_status status;

    local.scaling = RN_ROPE_PLAIN;
    local.factor = 1;
    local.divisors = false;
    status = rn_arch_local_dims(r, &local);
    return status == RUNNEL_OK ? rn_hparams_local_rope(r, &local) : status;
}

runnel_status rn_arch_laguna_keys(const struct rn_hparams_reader *r)
{
    struct rn_rope_hparams local = r->hparams->ropes[0];

    local.attention_factor = 1;
    return local_rope(r, local);
}

runnel_status rn_arch_cuts(const struct rn_hparams_reader *r, const char *rest, size_t offset)
{
    struct rn_hparams *h = r->hparams;
    /* SiLU is never below -0.279: with these cuts it is enough to cut on both sides. */
    const double least = h->cut_first ? 0 : 0.28, most = 1e9, none = 1e-6;
    const struct rn_gguf_entry *entry;
    runnel_status status = RUNNEL_OK;
    char key[RN_KEY_BYTES];
    double cut = 0;
    uint32_t i;

    rn_hparams_key(h, rest, key);
    entry = rn_gguf_find(r->gguf, key);
    if (entry == NULL)
        return RUNNEL_OK;
    if (entry->type == RN_GGUF_ARRAY)
        status = rn_gguf_get_array(r->gguf, key, true, RN_GGUF_F32, &entry, r->error);
    else
        status = rn_hparams_f64(r, rest, 0, most, &cut);
    if (status == RUNNEL_OK && entry->type == RN_GGUF_ARRAY && entry->count < h->n_layers)
        return rn_hparams_bad(r, RUNNEL_FORMAT, rest, "has fewer elements than there are blocks");
    for (i = 0; status == RUNNEL_OK && i < h->n_layers; i++) {
        cut = entry->type == RN_GGUF_ARRAY ? rn_gguf_item_f64(entry, i) : cut;
        if (!(cut <= most) || (cut > none && cut < least))
            return rn_hparams_bad(r, RUNNEL_FORMAT, rest, "is out of range");
        *(double *)((char *)&h->layers[i] + offset) = cut > none ? cut : 0;
    }
    return status;
}

/* Blocks without a window rotate half of what the key says. */
runnel_status rn_arch_step35_keys(const struct rn_hparams_reader *r)
{
    struct rn_rope_hparams *rope = &r->hparams->ropes[0], local = *rope;
    runnel_status status;

    local.base = 10000;
    status = local_rope(r, local);
    rope->divisor_dims = rope->dims;
    rope->dims = rope->dims / 2;
    if (status == RUNNEL_OK && (rope->dims == 0 || rope->dims % 2 != 0))
        status = rn_hparams_bad(r, RUNNEL_FORMAT, "rope.dimension_count", "is no multiple of 4");
    if (status == RUNNEL_OK)
        status = rn_arch_cuts(r, "swiglu_clamp_exp", offsetof(struct rn_layer_hparams, expert_cut));
    return status == RUNNEL_OK ? rn_arch_cuts(r, "swiglu_clamp_shexp", offsetof(struct rn_layer_hparams, shared_cut))
                               : status;
}

/* ---- Maple ---- */

/* Blocks with a window rotate, the others never. */
runnel_status rn_arch_maple_keys(const struct rn_hparams_reader *r)
{
    struct rn_hparams *h = r->hparams;
    runnel_status status = rn_arch_listed_windows(r);
    uint32_t i;

    h->cut_first = true;
    if (status == RUNNEL_OK)
        status = rn_arch_local_dims(r, &h->ropes[0]);
    if (status == RUNNEL_OK && !rn_hparams_has(r, "swiglu_clamp_exp"))
        status = rn_hparams_bad(r, RUNNEL_FORMAT, "swiglu_clamp_exp", "is missing");
    if (status == RUNNEL_OK)
        status = rn_arch_cuts(r, "swiglu_clamp_exp", offsetof(struct rn_layer_hparams, expert_cut));
    for (i = 0; i < h->n_layers; i++)
        h->layers[i].rope = h->layers[i].window > 0 ? 0 : RN_NO_ROPE;
    return status;
}
