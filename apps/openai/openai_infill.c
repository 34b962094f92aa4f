/* Texts with a gap: a completion's suffix, and the other files that a model is shown (input_extra, as llama.cpp's
 * server has it). See openai_request.h. */
#include <stdlib.h>
#include <string.h>

#include "openai_reader.h"

/* What llama.cpp's server calls the files together, and the one with the gap. */
static const char repository[] = "myproject", name_of_file[] = "filename";

static char *copy(const json_t *text)
{
    size_t n = json_string_length(text);
    char *own = malloc(n + 1);

    if (own != NULL)
        memcpy(own, json_string_value(text), n + 1);
    return own;
}

bool openai_take_suffix(struct openai_reader *reader, const char *name, const json_t *value)
{
    struct openai_request *r = reader->r;

    if (!openai_expect(reader->error, name, value, JSON_STRING))
        return false;
    r->suffix = copy(value);
    r->suffix_bytes = json_string_length(value);
    return r->suffix != NULL || openai_no_memory(reader->error);
}

static bool take_file(struct openai_reader *reader, const json_t *value, size_t i)
{
    runnel_infill_file *file = &reader->r->files[i];
    const json_t *name = json_object_get(value, "filename"), *text = json_object_get(value, "text");
    char param[48];

    snprintf(param, sizeof param, "input_extra[%zu]", i);
    if (!openai_expect(reader->error, param, value, JSON_OBJECT))
        return false;
    snprintf(param, sizeof param, "input_extra[%zu].text", i);
    if (!openai_expect(reader->error, param, text, JSON_STRING))
        return false;
    snprintf(param, sizeof param, "input_extra[%zu].filename", i);
    if (name != NULL && !json_is_null(name) && !openai_expect_word(reader->error, param, name))
        return false;
    reader->r->n_files++;
    file->text = copy(text);
    file->text_bytes = json_string_length(text);
    file->name = json_is_string(name) ? copy(name) : NULL;
    return (file->text != NULL && (file->name != NULL || !json_is_string(name))) || openai_no_memory(reader->error);
}

bool openai_take_files(struct openai_reader *reader, const char *name, const json_t *value)
{
    const json_t *file = NULL;
    size_t i = 0;

    if (!openai_expect(reader->error, name, value, JSON_ARRAY))
        return false;
    reader->r->files = calloc(json_array_size(value) + 1, sizeof *reader->r->files);
    if (reader->r->files == NULL)
        return openai_no_memory(reader->error);
    json_array_foreach(value, i, file)
    {
        if (!take_file(reader, file, i))
            return false;
    }
    return true;
}

static bool has_gap(const struct openai_request *request)
{
    return request->suffix_bytes > 0 || request->files != NULL;
}

bool openai_finish_infill(struct openai_reader *reader)
{
    const struct openai_request *r = reader->r;

    if (has_gap(r) && r->parse_special)
        return openai_refuse(reader->error, "unsupported_value", "parse_special",
                             "parse_special does not go with a suffix");
    for (size_t i = 0; has_gap(r) && i < r->n_prompts; i++)
        if (r->prompts[i].text == NULL)
            return openai_refuse(reader->error, "unsupported_value", "prompt",
                                 "prompt must be a text where there is a suffix, not token ids");
    return true;
}

/* The tokens of one prompt take its text's place; the text stays, since it may be echoed. */
static runnel_status fill_prompt(struct openai_prompt *prompt, runnel_model *model, const runnel_infill *infill,
                                 runnel_error *error)
{
    size_t n = 0;
    runnel_status status = runnel_tokenize_infill(model, infill, NULL, 0, &n, error);

    if (status != RUNNEL_OK)
        return status;
    prompt->tokens = calloc(n, sizeof *prompt->tokens);
    if (prompt->tokens == NULL)
        return RUNNEL_NO_MEMORY;
    status = runnel_tokenize_infill(model, infill, prompt->tokens, n, &prompt->n_tokens, error);
    return status;
}

runnel_status openai_infill(struct openai_request *request, runnel_model *model, runnel_error *error)
{
    runnel_infill infill;

    if (!has_gap(request))
        return RUNNEL_OK;
    runnel_infill_default(&infill);
    infill.suffix = request->suffix;
    infill.suffix_bytes = request->suffix_bytes;
    infill.files = request->files;
    infill.n_files = request->n_files;
    infill.repository = request->files != NULL ? repository : NULL;
    infill.name = request->files != NULL ? name_of_file : NULL;
    for (size_t i = 0; i < request->n_prompts; i++) {
        runnel_status status = RUNNEL_OK;

        infill.prefix = request->prompts[i].text;
        infill.prefix_bytes = request->prompts[i].text_bytes;
        if (request->prompts[i].tokens == NULL)
            status = fill_prompt(&request->prompts[i], model, &infill, error);
        if (status != RUNNEL_OK)
            return status;
    }
    return RUNNEL_OK;
}

void openai_fini_infill(struct openai_request *request)
{
    for (size_t i = 0; i < request->n_files; i++) {
        free((void *)(uintptr_t)request->files[i].name);
        free((void *)(uintptr_t)request->files[i].text);
    }
    free(request->files);
    free(request->suffix);
}
