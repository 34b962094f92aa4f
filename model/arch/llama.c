/* Keys of architectures whose rows are Llama's or nearly so. What each file holds: the GGUF specification, the models'
 * papers and configurations. */
#include <string.h>

#include "model/arch/families.h"
#include "model/hparams.h"

/* Every so many-th block rotates nothing, and these have the temperature; windows are chunks. A window of 0 says that
 * the model has neither. The largest model, by its experts, has no norm of heads. */
runnel_status rn_arch_llama4_keys(const struct rn_hparams_reader *r)
{
    enum { PERIOD = 4, CHUNK = 8192, EXPERTS_WITHOUT_NORM = 128 };
    struct rn_hparams *h = r->hparams;
    struct rn_rope_hparams local = h->ropes[0];
    uint32_t window = 1, chunk = CHUNK, i;
    runnel_status status;
    int32_t rope = 0;

    h->unit_heads = h->experts != EXPERTS_WITHOUT_NORM;
    status = rn_hparams_u32(r, "attention.sliding_window", false, 0, RN_MAX_CONTEXT, &window);
    if (status == RUNNEL_OK)
        status = rn_hparams_u32(r, "attention.chunk_size", false, 1, RN_MAX_CONTEXT, &chunk);
    if (status != RUNNEL_OK || window == 0)
        return status;
    status = rn_hparams_pattern(r, PERIOD, chunk);
    if (status == RUNNEL_OK)
        status = rn_hparams_f64(r, "rope.freq_base_swa", 1e-3, 1e18, &local.base);
    if (status == RUNNEL_OK && local.base != h->ropes[0].base)
        status = rn_hparams_add_rope(r, &local, &rope);
    h->temperature = (struct rn_temperature){.scale = 0.1, .span = CHUNK, .ahead = 1};
    for (i = 0; status == RUNNEL_OK && i < h->n_layers; i++) {
        h->layers[i].tempered = i % PERIOD == PERIOD - 1;
        h->layers[i].rope = h->layers[i].tempered ? RN_NO_ROPE : h->layers[i].window > 0 ? rope : 0;
    }
    return status;
}

/* Every so many-th block rotates nothing (arXiv 2501.18795). Files do not say how many. */
runnel_status rn_arch_smollm3_keys(const struct rn_hparams_reader *r)
{
    enum { PERIOD = 4 };
    uint32_t i;

    for (i = PERIOD - 1; i < r->hparams->n_layers; i += PERIOD)
        r->hparams->layers[i].rope = RN_NO_ROPE;
    return RUNNEL_OK;
}

/* Text alone has one axis: so do files whose sections name no second one. */
runnel_status rn_arch_axes_keys(const struct rn_hparams_reader *r)
{
    uint32_t *sections = r->hparams->ropes[0].sections;

    if (sections[0] == 0 || sections[1] == 0)
        memset(sections, 0, sizeof r->hparams->ropes[0].sections);
    return RUNNEL_OK;
}

/* Files of models that also see (key rope.dimension_sections) have their heads' values in another order. */
runnel_status rn_arch_glm4_keys(const struct rn_hparams_reader *r)
{
    runnel_status status = rn_arch_axes_keys(r);

    r->hparams->ropes[0].neox |= r->hparams->ropes[0].sections[0] > 0;
    return status;
}

/* Of the two sizes (arXiv 2507.11407) only the one with 64 blocks has windows, whatever the file says: three blocks of
 * four, and these alone rotate. */
runnel_status rn_arch_exaone4_keys(const struct rn_hparams_reader *r)
{
    enum { BLOCKS_WITH_WINDOWS = 64, WINDOW = 4096, PERIOD = 4 };
    uint32_t n_blocks = r->hparams->n_layers - r->hparams->n_nextn;

    return n_blocks == BLOCKS_WITH_WINDOWS ? rn_hparams_windows(r, PERIOD, WINDOW, true) : RUNNEL_OK;
}

/* Nothing is rotated where key rope.scaling.finetuned says no. */
runnel_status rn_arch_granite_keys(const struct rn_hparams_reader *r)
{
    bool rotates = true;
    char key[RN_KEY_BYTES];
    runnel_status status;
    uint32_t i;

    rn_hparams_key(r->hparams, "rope.scaling.finetuned", key);
    status = rn_gguf_get_bool(r->gguf, key, false, &rotates, r->error);
    for (i = 0; !rotates && i < r->hparams->n_layers; i++)
        r->hparams->layers[i].rope = RN_NO_ROPE;
    return status;
}

/* Key attention.rope_pattern may say of each block whether it rotates. */
runnel_status rn_arch_granite_swa_keys(const struct rn_hparams_reader *r)
{
    const struct rn_gguf_entry *pattern;
    char key[RN_KEY_BYTES];
    uint32_t i;

    rn_hparams_key(r->hparams, "attention.rope_pattern", key);
    pattern = rn_gguf_find(r->gguf, key);
    if (pattern == NULL || pattern->type != RN_GGUF_ARRAY)
        return RUNNEL_OK;
    if ((pattern->item != RN_GGUF_BOOL && pattern->item != RN_GGUF_U32 && pattern->item != RN_GGUF_I32) ||
        pattern->count < r->hparams->n_layers)
        return rn_hparams_bad(r, RUNNEL_FORMAT, "attention.rope_pattern", "does not have a truth value for each block");
    for (i = 0; i < r->hparams->n_layers; i++)
        if (rn_gguf_item_i64(pattern, i) == 0)
            r->hparams->layers[i].rope = RN_NO_ROPE;
    return RUNNEL_OK;
}
