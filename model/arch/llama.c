/* Llama, Mistral, Mixtral and their many descendants.
 *
 * Which tensors and keys each reads, and in which order it computes: llama.cpp's graphs of the same name. */
#include "model/arch/families.h"
#include "model/build.h"

void rn_arch_llama(struct rn_build *b)
{
    int32_t embedding = rn_build_matrix(b, "token_embd.weight", b->hparams.embedding, b->plan->n_vocab, 0, false);
    int16_t x;

    rn_build_ropes(b);
    x = rn_build_embed(b, embedding, 1);
    for (b->layer = 0; (uint32_t)b->layer < b->n_blocks && b->status == RUNNEL_OK; b->layer++) {
        x = rn_build_llama_block(b, x);
        rn_build_tap(b, x);
    }
    b->layer = -1;
    rn_build_head(b, x, embedding);
}

runnel_status rn_arch_mistral3_keys(const struct rn_hparams_reader *r)
{
    return rn_hparams_f64(r, "attention.temperature_scale", -1e6, 1e6, &r->hparams->temperature_scale);
}

/* Llama, with queries scaled by 1 + s * ln(1 + floor(position / original context)) where temperature_scale
 * is s. That is exactly 1 within the original context, where the plan is Llama's; beyond it there is
 * no op for it. */
void rn_arch_mistral3(struct rn_build *b)
{
    double original = b->hparams.ropes[0].original_tokens;

    if (b->hparams.temperature_scale != 0 && b->plan->context_tokens > original)
        rn_build_fail(b, RUNNEL_UNSUPPORTED,
                      "key %s.attention.temperature_scale: only contexts of up to %.0f positions are supported with it",
                      b->hparams.architecture, original);
    rn_arch_llama(b);
}
