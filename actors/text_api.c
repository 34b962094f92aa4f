/* Text functions of the public interface: pure functions of the vocabulary, on the caller's thread. */
#include <string.h>

#include "actors/engine.h"
#include "base/status.h"

runnel_status runnel_tokenize(runnel_model *model, const char *text, size_t text_bytes, uint32_t flags, int32_t *tokens,
                              size_t capacity, size_t *count)
{
    int32_t *all = NULL;
    runnel_status status = rn_model_ready(model);

    *count = 0;
    if (status != RUNNEL_OK)
        return status;
    if ((text == NULL && text_bytes > 0) || (tokens == NULL && capacity > 0))
        return RUNNEL_INVALID;
    status = rn_tokenize(model->parts.vocab, &model->engine->heap, text_bytes > 0 ? text : "", text_bytes, flags, &all,
                         count, NULL);
    if (status == RUNNEL_OK && capacity > 0)
        memcpy(tokens, all, (*count < capacity ? *count : capacity) * sizeof *tokens);
    rn_free(&model->engine->heap, all);
    return status;
}

runnel_status runnel_detokenize(runnel_model *model, const int32_t *tokens, size_t count, int special, char *text,
                                size_t capacity, size_t *text_bytes)
{
    runnel_status status = rn_model_ready(model);

    *text_bytes = 0;
    if (status != RUNNEL_OK)
        return status;
    if ((tokens == NULL && count > 0) || (text == NULL && capacity > 0))
        return RUNNEL_INVALID;
    rn_detokenize(model->parts.vocab, tokens, count, special != 0, text, capacity, text_bytes);
    return RUNNEL_OK;
}
