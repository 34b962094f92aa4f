/* Keys of architectures whose attention chooses blocks of positions: see model/build/sparse.c. */
#include "model/arch/families.h"
#include "model/hparams.h"

/* Positions that are chosen, from a number of blocks. */
static runnel_status read_blocks(const struct rn_hparams_reader *r)
{
    struct rn_indexer_hparams *x = &r->hparams->indexer;
    runnel_status status = rn_hparams_u32(r, "attention.indexer.block_size", true, 2, 1 << 16, &x->block);

    if (status == RUNNEL_OK)
        status = rn_hparams_u32(r, "attention.indexer.local_blocks", true, 1, UINT32_MAX, &x->local);
    if (status == RUNNEL_OK)
        status = rn_hparams_u32(r, "attention.indexer.top_k", true, 1, UINT32_MAX, &x->most);
    if (status == RUNNEL_OK && x->local > x->most)
        status = rn_hparams_bad(r, RUNNEL_FORMAT, "attention.indexer.local_blocks", "is more than are chosen");
    if (status == RUNNEL_OK)
        x->most = (x->most < UINT32_MAX / x->block ? x->most : UINT32_MAX / x->block) * x->block;
    return status;
}

/* Each head of keys chooses; blocks with a dense feed-forward see everything. */
runnel_status rn_arch_minimax_m3_keys(const struct rn_hparams_reader *r)
{
    struct rn_hparams *h = r->hparams;
    struct rn_indexer_hparams *x = &h->indexer;
    runnel_status status = read_blocks(r);
    uint32_t dense = 0, i;

    if (status == RUNNEL_OK)
        status = rn_hparams_u32(r, "attention.indexer.head_count", true, 1, RN_MAX_HEADS, &x->heads);
    if (status == RUNNEL_OK)
        status = rn_hparams_u32(r, "attention.indexer.key_length", true, 1, RN_MAX_HEAD_DIM, &x->k_dim);
    if (status == RUNNEL_OK)
        status = rn_hparams_u32(r, "leading_dense_block_count", false, 0, h->n_layers, &dense);
    if (status == RUNNEL_OK && h->n_ropes > 0 && h->ropes[0].dims > x->k_dim)
        status = rn_hparams_bad(r, RUNNEL_FORMAT, "attention.indexer.key_length", "is less than what rotates of it");
    for (i = dense; status == RUNNEL_OK && i < h->n_layers; i++) {
        const struct rn_layer_hparams *layer = &h->layers[i];

        if (layer->kv_heads != x->heads)
            status = rn_hparams_bad(r, RUNNEL_FORMAT, "attention.indexer.head_count", "is not attention.head_count_kv");
        else if (layer->k_dim != layer->v_dim || layer->k_dim > RN_MAX_HEAD_DIM / 2)
            status = rn_hparams_bad(r, RUNNEL_UNSUPPORTED, "attention.key_length",
                                    "is not attention.value_length, or more than 32768");
        h->layers[i].chooses = true;
    }
    return status;
}
