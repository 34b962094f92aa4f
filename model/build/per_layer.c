/* Embeddings of each block (Gemma 3n and 4): what a token says to one block alone.
 *
 *     e = (norm(model_proj . x / sqrt(embedding)) + table[token] * sqrt(width)) / sqrt(2)    [n_layers, width], from
 * the
 *                                                                                          embedding x
 *     behind block i:    norm(proj_i . (gelu(inp_gate_i . x) * e_i))
 *
 * The table is large. It stays as the file has it, and a step reads the rows of its tokens. */
#include <math.h>

#include "model/build/build.h"

void rn_build_per_layer_inputs(struct rn_build *b, int16_t x)
{
    const struct rn_hparams *h = &b->hparams;
    uint32_t width = h->per_layer * h->n_layers;
    int32_t table = rn_build_matrix(b, "per_layer_token_embd.weight", width, b->plan->n_vocab, 0, false);
    int16_t tokens = rn_build_embed(b, table, sqrtf((float)h->per_layer)), all, normed;

    all = rn_build_linear(b, x, "per_layer_model_proj", width);
    rn_build_scale(b, all, 1 / sqrt((double)h->embedding));
    normed = rn_build_head_norm(b, all, "per_layer_proj_norm", h->n_layers);
    rn_build_release(b, all);
    b->per_layer = rn_build_add(b, normed, tokens);
    rn_build_scale(b, b->per_layer, sqrt(0.5));
}

/* The block's part; of the wanted rows only, where x has no others. */
static int16_t part(struct rn_build *b)
{
    uint32_t width = b->hparams.per_layer;
    bool selected = b->selected;
    int16_t out;

    b->selected = false;
    out = rn_build_split(b, b->per_layer, 1, (uint32_t)b->layer * width, width);
    b->selected = selected;
    return selected ? rn_build_select(b, out) : out;
}

int16_t rn_build_per_layer(struct rn_build *b, int16_t x)
{
    int16_t gate = rn_build_linear(b, x, "blk.%d.inp_gate", b->hparams.per_layer), out, normed;

    gate = rn_build_gate(b, b->arch->act, gate, part(b));
    out = rn_build_linear(b, gate, "blk.%d.proj", b->hparams.embedding);
    rn_build_release(b, gate);
    normed = rn_build_norm(b, out, "blk.%d.post_norm");
    rn_build_release(b, out);
    return normed;
}
