/* Bodies of /v1/rerank and /v1/classify: how well do texts answer a query, and what are they? The forms of Jina,
 * Cohere, llama.cpp's server and text-embeddings-inference ("texts"), and of vLLM for classes. See openai_request.h. */
#include <stdlib.h>
#include <string.h>

#include "openai_reader.h"

bool openai_take_query(struct openai_reader *reader, const char *name, const json_t *value)
{
    struct openai_request *r = reader->r;

    if (!openai_expect(reader->error, name, value, JSON_STRING))
        return false;
    r->query_bytes = json_string_length(value);
    r->query = malloc(r->query_bytes + 1);
    if (r->query == NULL)
        return openai_no_memory(reader->error);
    memcpy(r->query, json_string_value(value), r->query_bytes + 1);
    return true;
}

/* A text, or an object with one. */
static bool add_document(struct openai_reader *reader, const char *name, size_t i, const json_t *value)
{
    struct openai_prompt *prompt = &reader->r->prompts[reader->r->n_prompts];
    const json_t *text = json_is_object(value) ? json_object_get(value, "text") : value;
    char param[64];

    snprintf(param, sizeof param, "%.32s[%zu]%s", name, i, json_is_object(value) ? ".text" : "");
    if (!openai_expect(reader->error, param, text, JSON_STRING))
        return false;
    prompt->text_bytes = json_string_length(text);
    if (prompt->text_bytes == 0)
        return openai_refuse(reader->error, "invalid_value", param, "%s is empty", param);
    prompt->text = malloc(prompt->text_bytes + 1);
    if (prompt->text == NULL)
        return openai_no_memory(reader->error);
    memcpy(prompt->text, json_string_value(text), prompt->text_bytes + 1);
    reader->r->n_prompts++;
    return true;
}

bool openai_take_documents(struct openai_reader *reader, const char *name, const json_t *value)
{
    struct openai_request *r = reader->r;
    size_t n = json_array_size(value);

    if (!openai_expect(reader->error, name, value, JSON_ARRAY))
        return false;
    if (r->prompts != NULL)
        return openai_refuse(reader->error, "invalid_value", name,
                             "documents and texts are the same: give one of them");
    if (n == 0 || n > OPENAI_MAX_CHOICES)
        return openai_refuse(reader->error, "invalid_value", name, "%s has %zu elements; allowed is 1 to %d", name, n,
                             OPENAI_MAX_CHOICES);
    r->bare_scores = strcmp(name, "texts") == 0;
    r->prompts = calloc(n, sizeof *r->prompts);
    if (r->prompts == NULL)
        return openai_no_memory(reader->error);
    for (size_t i = 0; i < n; i++)
        if (!add_document(reader, name, i, json_array_get(value, i)))
            return false;
    return true;
}

bool openai_take_return(struct openai_reader *reader, const char *name, const json_t *value)
{
    reader->r->return_documents = json_is_true(value);
    return openai_expect(reader->error, name, value, JSON_TRUE);
}

/* Cohere's: which members of the documents are read. Here it is their text. */
bool openai_take_rank_fields(struct openai_reader *reader, const char *name, const json_t *value)
{
    const char *first = openai_word(json_array_get(value, 0));

    if (!openai_expect(reader->error, name, value, JSON_ARRAY))
        return false;
    if (json_array_size(value) == 1 && first != NULL && strcmp(first, "text") == 0)
        return true;
    return openai_refuse(reader->error, "invalid_value", name,
                         "%s is more than [\"text\"]: only that is read of a document", name);
}

bool openai_finish_scores(struct openai_reader *reader)
{
    const struct openai_request *r = reader->r;

    if (r->endpoint == OPENAI_RERANK && r->query == NULL)
        return openai_refuse(reader->error, "missing_required_parameter", "query", "query is missing");
    if (r->endpoint == OPENAI_RERANK && r->n_prompts == 0)
        return openai_refuse(reader->error, "missing_required_parameter", "documents", "documents is missing");
    return true;
}

void openai_request_score(const struct openai_request *request, size_t index, runnel_score_request *out)
{
    const struct openai_prompt *text = &request->prompts[index];

    runnel_score_request_default(out);
    out->query = request->query;
    out->query_bytes = request->query_bytes;
    out->text = text->text;
    out->text_bytes = text->text_bytes;
    out->tokens = text->tokens;
    out->n_tokens = text->n_tokens;
    out->adapter = openai_request_adapter(request, NULL);
    out->form = request->endpoint == OPENAI_CLASSIFY ? RUNNEL_SCORES_PROBABILITIES : RUNNEL_SCORES_OF_MODEL;
}
