/* Keys of architectures in GPT's manner. */
#include "model/arch/families.h"
#include "model/hparams.h"

/* Files do not say it: the paper's slopes, 2^(-8 i / n) (arXiv 2211.05100). */
runnel_status rn_arch_bloom_keys(const struct rn_hparams_reader *r)
{
    r->hparams->alibi = 8;
    return RUNNEL_OK;
}

/* Scores are divided by the width of a head, not by its root (arXiv 2308.16149, after maximal update parametrisation).
 * */
runnel_status rn_arch_jais_keys(const struct rn_hparams_reader *r)
{
    uint32_t i;

    for (i = 0; i < r->hparams->n_layers; i++)
        r->hparams->layers[i].attention_scale = 1.0 / r->hparams->layers[i].k_dim;
    return RUNNEL_OK;
}
