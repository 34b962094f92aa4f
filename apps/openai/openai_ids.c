/* Token ids of prompts, where a body wants to be told (return_token_ids). See openai_request.h. */
#include <stdlib.h>

#include "openai_request.h"

/* One pass: a prompt of more than `most` tokens has none. */
static bool tell(struct openai_prompt *prompt, runnel_model *model, const runnel_chat *chat, uint32_t flags,
                 size_t most, size_t *n)
{
    int32_t *ids = calloc(most + 1, sizeof *ids), *fit = NULL;
    runnel_status status = RUNNEL_OK;

    *n = 0;
    if (ids == NULL)
        return false;
    status = chat != NULL ? runnel_tokenize_chat(model, chat, ids, most, n, NULL)
                          : runnel_tokenize(model, prompt->text, prompt->text_bytes, flags, ids, most, n);
    if (status == RUNNEL_OK && *n <= most) {
        fit = realloc(ids, (*n + 1) * sizeof *ids);
        prompt->told = fit != NULL ? fit : ids;
        prompt->n_told = *n;
        return true;
    }
    free(ids);
    *n = status == RUNNEL_OK ? *n : 0;
    return true;
}

bool openai_tell_prompts(struct openai_request *request, runnel_model *model, const runnel_chat *chat, size_t most,
                         size_t *longest)
{
    uint32_t flags = RUNNEL_TOKENIZE_BOS | (request->parse_special ? RUNNEL_TOKENIZE_SPECIAL : 0);
    size_t n = 0;

    *longest = 0;
    if (request->prompts == NULL) /* a chat */
        request->prompts = calloc(1, sizeof *request->prompts);
    if (request->prompts == NULL)
        return false;
    for (size_t i = 0; i < request->n_prompts; i++) {
        if (request->prompts[i].tokens != NULL)
            continue;
        if (!tell(&request->prompts[i], model, chat, flags, most, &n))
            return false;
        *longest = n > *longest ? n : *longest;
    }
    return true;
}
