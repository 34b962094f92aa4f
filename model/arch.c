/* The architectures: a row each, and a builder that several rows may share.
 *
 * Which tensors and keys each reads, and in which order it computes: llama.cpp's graphs of the same name. */
#include "model/build.h"

#include <string.h>

/* Llama, Mistral, Mixtral and their many descendants. */
static void build_llama(struct rn_build *b, const struct rn_arch *arch)
{
    int32_t embedding = rn_build_matrix(b, "token_embd.weight", b->hparams.embedding, b->plan->n_vocab, 0, false);
    struct rn_attention_style style = {.rope = rn_build_rope_table(b, arch->neox)};
    int16_t x = rn_build_embed(b, embedding, 1);

    for (b->layer = 0; (uint32_t)b->layer < b->n_blocks && b->status == RUNNEL_OK; b->layer++) {
        x = rn_build_llama_block(b, x, &style);
        rn_build_tap(b, x);
    }
    b->layer = -1;
    rn_build_head(b, x, embedding);
}

/* Llama, with queries scaled by 1 + s * ln(1 + floor(position / original context)) where temperature_scale
 * is s. That is exactly 1 within the original context, where the plan is Llama's; beyond it there is
 * no op for it. */
static void build_mistral3(struct rn_build *b, const struct rn_arch *arch)
{
    char key[RN_KEY_BYTES];
    double scale = 0;
    runnel_status status;

    rn_hparams_key(&b->hparams, "attention.temperature_scale", key);
    status = rn_gguf_get_f64(b->plan->gguf, key, false, -1e6, 1e6, &scale, b->error);
    if (status != RUNNEL_OK)
        b->status = status;
    if (scale != 0 && b->plan->context_tokens > b->hparams.rope.original_tokens)
        rn_build_fail(b, RUNNEL_UNSUPPORTED, "key %s: only contexts of up to %.0f positions are supported with it", key,
                      b->hparams.rope.original_tokens);
    build_llama(b, arch);
}

static const struct rn_arch archs[] = {
    {"llama", false, build_llama},
    {"mistral3", false, build_mistral3},
};

const struct rn_arch *rn_arch_find(struct rn_view name)
{
    size_t i;

    for (i = 0; i < sizeof archs / sizeof archs[0]; i++)
        if (strlen(archs[i].name) == name.n && memcmp(archs[i].name, name.bytes, name.n) == 0)
            return &archs[i];
    return NULL;
}
