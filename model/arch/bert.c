/* Encoders that texts are compared by: BERT (Devlin et al. 2018, arXiv 1810.04805) and its successors. What they give
 * are embeddings of positions, not logits.
 *
 *   BERT, Nomic, Jina       x = norm(token + first type (+ position))
 *                           x = norm(x + attention(x)),  x = norm(x + ffn(x))        nothing behind the last block
 *                           Jina 2 (arXiv 2310.19923), with attn_norm_2: the attention's norm, plus x, is normed again
 *   ModernBERT              x = norm(token)
 *   (arXiv 2412.13663)      x = x + attention(norm x),   x = x + ffn(norm x)         the first block has no first norm
 *
 * A text is one sentence: all of its tokens are of the first type, as other programs have it. */
#include <string.h>

#include "model/arch/families.h"
#include "model/build/build.h"
#include "model/build/scores.h"

/* ---- Keys ---- */

/* Files of models that gate by SiLU say so. */
static runnel_status read_activation(const struct rn_hparams_reader *r)
{
    static const struct {
        const char *name;
        enum rn_activation act;
    } acts[] = {
        {"gelu", RN_ACT_GELU_TANH}, {"geglu", RN_ACT_GELU_TANH}, {"silu", RN_ACT_SILU}, {"swiglu", RN_ACT_SILU}};
    struct rn_view name = {"gelu", 4};
    char key[RN_KEY_BYTES];
    runnel_status status;

    rn_hparams_key(r->hparams, "hidden_activation", key);
    status = rn_gguf_get_string(r->gguf, key, false, &name, r->error);
    if (status != RUNNEL_OK)
        return status;
    for (size_t i = 0; i < sizeof acts / sizeof acts[0]; i++)
        if (strlen(acts[i].name) == name.n && memcmp(acts[i].name, name.bytes, name.n) == 0) {
            r->hparams->act = acts[i].act;
            return RUNNEL_OK;
        }
    return rn_hparams_bad(r, RUNNEL_UNSUPPORTED, "hidden_activation", "is none of gelu, geglu, silu, swiglu");
}

/* Files that do not say what a head reads mean the mean of all positions. */
runnel_status rn_arch_modern_bert_keys(const struct rn_hparams_reader *r)
{
    runnel_status status = read_activation(r);

    r->hparams->scores_pooling = RN_POOLING_MEAN;
    r->hparams->scores_act = RN_ACT_GELU_TANH;
    return status == RUNNEL_OK ? rn_arch_local_base(r) : status;
}

/* Without the window the model would be another one. */
runnel_status rn_arch_gemma_embedding_keys(const struct rn_hparams_reader *r)
{
    if (!rn_hparams_has(r, "attention.sliding_window"))
        return rn_hparams_bad(r, RUNNEL_FORMAT, "attention.sliding_window", "is missing");
    return rn_arch_local_base(r);
}

/* ---- Blocks ---- */

/* Releases x. */
static int16_t normed(struct rn_build *b, int16_t x, const char *stem)
{
    int16_t out = rn_build_norm(b, x, stem);

    rn_build_release(b, x);
    return out;
}

int16_t rn_arch_modern_bert_block(struct rn_build *b, int16_t x)
{
    bool has_norm = b->layer > 0 || rn_build_has(b, "blk.%d.attn_norm.weight");
    int16_t in = has_norm ? rn_build_norm(b, x, "blk.%d.attn_norm") : x, mixed = rn_build_mix(b, in);

    if (has_norm)
        rn_build_release(b, in);
    rn_build_last_rows(b, &mixed, &x);
    return rn_build_ffn_part(b, rn_build_add(b, rn_build_attention_out(b, mixed), x));
}

/* Of Nomic's second model each other block has experts. */
static int16_t feed_forward(struct rn_build *b, int16_t x)
{
    return rn_build_has(b, "blk.%d.ffn_gate_inp.weight") ? rn_build_moe(b, x) : rn_build_feed_forward(b, x);
}

static int16_t block(struct rn_build *b, int16_t x)
{
    bool twice = rn_build_has(b, "blk.%d.attn_norm_2.weight");
    int16_t mixed = rn_build_mix(b, x), before, out;

    rn_build_last_rows(b, &mixed, &x);
    before = twice ? rn_build_copy(b, x) : x;
    x = normed(b, rn_build_add(b, rn_build_attention_out(b, mixed), x), "blk.%d.attn_output_norm");
    if (twice)
        x = normed(b, rn_build_add(b, x, before), "blk.%d.attn_norm_2");
    out = feed_forward(b, x);
    return normed(b, rn_build_add(b, out, x), "blk.%d.layer_output_norm");
}

/* ---- The model ---- */

/* x plus row 0 of token_types: a product of a 1, which is e^(0 x), with that row. Releases x. */
static int16_t add_type(struct rn_build *b, int16_t x)
{
    int16_t one;

    if (!rn_build_has(b, "token_types.weight"))
        return x;
    one = rn_build_split(b, x, 1, 0, 1);
    rn_build_scale(b, one, 0);
    one = rn_build_activate(b, RN_ACT_EXP, one);
    one = rn_build_head_sum(
        b, one,
        rn_build_heads(b, "token_types.weight", b->hparams.embedding, rn_build_rows(b, "token_types.weight"), 1), 0, 1);
    return rn_build_add(b, x, one);
}

void rn_arch_bert(struct rn_build *b)
{
    int32_t embedding = rn_build_matrix(b, "token_embd.weight", b->hparams.embedding, b->plan->n_vocab, 0, false);
    int16_t x;

    rn_build_ropes(b);
    x = add_type(b, rn_build_embed(b, embedding, 1));
    if ((b->arch->flags & RN_ARCH_POSITIONS) != 0)
        x = rn_build_positions(b, x);
    x = normed(b, x, "token_embd_norm");
    for (b->layer = 0; (uint32_t)b->layer < b->n_blocks && b->status == RUNNEL_OK; b->layer++) {
        x = block(b, x);
        rn_build_tap(b, x);
    }
    b->layer = -1;
    rn_build_head(b, x, embedding);
}
