/* Token ids of prompts, where a body wants to be told (return_token_ids). See openai_request.h. */
#include <stdlib.h>

#include "openai_request.h"

static bool tell_text(struct openai_prompt *prompt, runnel_model *model, uint32_t flags)
{
    size_t n = 0;

    if (runnel_tokenize(model, prompt->text, prompt->text_bytes, flags, NULL, 0, &n) != RUNNEL_OK)
        return true;
    prompt->told = calloc(n + 1, sizeof *prompt->told);
    if (prompt->told != NULL &&
        runnel_tokenize(model, prompt->text, prompt->text_bytes, flags, prompt->told, n, &n) == RUNNEL_OK)
        prompt->n_told = n;
    return prompt->told != NULL;
}

static bool tell_chat(struct openai_request *request, runnel_model *model, const runnel_chat *chat)
{
    size_t n = 0;

    request->prompts = calloc(1, sizeof *request->prompts);
    if (request->prompts == NULL)
        return false;
    if (runnel_tokenize_chat(model, chat, NULL, 0, &n, NULL) != RUNNEL_OK)
        return true;
    request->prompts->told = calloc(n + 1, sizeof *request->prompts->told);
    if (request->prompts->told != NULL &&
        runnel_tokenize_chat(model, chat, request->prompts->told, n, &n, NULL) == RUNNEL_OK)
        request->prompts->n_told = n;
    return request->prompts->told != NULL;
}

bool openai_tell_prompts(struct openai_request *request, runnel_model *model, const runnel_chat *chat)
{
    uint32_t flags = RUNNEL_TOKENIZE_BOS | (request->parse_special ? RUNNEL_TOKENIZE_SPECIAL : 0);

    if (!request->tells_ids)
        return true;
    if (request->endpoint == OPENAI_CHAT)
        return tell_chat(request, model, chat);
    for (size_t i = 0; i < request->n_prompts; i++)
        if (request->prompts[i].tokens == NULL && !tell_text(&request->prompts[i], model, flags))
            return false;
    return true;
}
