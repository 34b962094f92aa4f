/* Prompts with a gap, of the public interface: pure functions of the vocabulary, on the caller's thread. */
#include <string.h>

#include "actors/engine.h"
#include "base/check.h"
#include "base/sized.h"
#include "base/status.h"
#include "model/kv_size.h"
#include "runnel_infill.h"
#include "text/infill.h"

void runnel_infill_init(runnel_infill *infill, size_t struct_size)
{
    const runnel_infill own = {0};

    rn_sized_write(infill, struct_size, &own, sizeof own);
}

void(runnel_infill_default)(runnel_infill *infill)
{
    runnel_infill_init(infill, RN_FIRST_SIZE(runnel_infill, reserved));
}

static runnel_status read_infill(const runnel_infill *given, runnel_infill *infill, runnel_error *error)
{
    runnel_infill_default(infill);
    if (!rn_sized_read(infill, sizeof *infill, given))
        return rn_error_set(error, RUNNEL_INVALID,
                            "infill: struct_size is not of this library; use runnel_infill_default");
    if (!rn_all_zero(infill->reserved, sizeof infill->reserved))
        return rn_error_set(error, RUNNEL_INVALID, "infill: reserved is not zero");
    if (infill->files == NULL && infill->n_files > 0)
        return rn_error_set(error, RUNNEL_INVALID, "infill: files is NULL but n_files is %zu", infill->n_files);
    return RUNNEL_OK;
}

/* Texts that do not fit even if each token were the longest are not read. A model without weights has no room to look
 * at. */
static runnel_status check_room(const runnel_model *model, const runnel_infill *infill, runnel_error *error)
{
    uint64_t most = rn_kv_size_longest(&model->parts.limits) * rn_vocab_longest_piece(model->parts.vocab);
    uint64_t bytes = (uint64_t)infill->prefix_bytes + infill->suffix_bytes;

    if (model->parts.backend == NULL)
        return RUNNEL_OK;
    for (size_t i = 0; i < infill->n_files && bytes <= most; i++)
        bytes += infill->files[i].text_bytes;
    if (bytes <= most)
        return RUNNEL_OK;
    return rn_error_set(error, RUNNEL_CONTEXT, "the texts around the gap have %llu bytes or more, which never fit",
                        (unsigned long long)bytes);
}

runnel_status runnel_tokenize_infill(runnel_model *model, const runnel_infill *given, int32_t *tokens, size_t capacity,
                                     size_t *count, runnel_error *error)
{
    runnel_infill infill;
    int32_t *all = NULL;
    runnel_status status;

    rn_error_clear(error);
    if (model == NULL || given == NULL || count == NULL || (tokens == NULL && capacity > 0))
        return rn_error_set(error, RUNNEL_INVALID, "no model, no texts, or no place for the tokens");
    *count = 0;
    status = read_infill(given, &infill, error);
    if (status != RUNNEL_OK)
        return status;
    status = rn_model_enter(model);
    if (status != RUNNEL_OK)
        return rn_error_set(error, status, "the model is not loaded");
    status = check_room(model, &infill, error);
    if (status == RUNNEL_OK)
        status = rn_infill_tokenize(model->parts.vocab, &model->engine->heap, &infill, &all, count, error);
    RN_ASSERT(status == RUNNEL_OK || *count == 0);
    if (status == RUNNEL_OK && capacity > 0)
        memcpy(tokens, all, (*count < capacity ? *count : capacity) * sizeof *tokens);
    rn_free(&model->engine->heap, all);
    rn_model_leave(model);
    return status;
}
