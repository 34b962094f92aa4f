/* What a model file says of its chats, through the public interface: its templates, and how it is best sampled. */
#include <string.h>

#include "actors/engine.h"
#include "base/sized.h"
#include "base/status.h"
#include "model/file.h"
#include "sampling/recommended.h"
#include "text/template_keys.h"

static bool is_info(const runnel_template_info *info)
{
    return info != NULL && rn_sized_known(info->struct_size, sizeof *info);
}

runnel_status runnel_model_template(runnel_model *model, uint32_t index, runnel_template_info *info,
                                    runnel_error *error)
{
    runnel_status status;

    rn_error_clear(error);
    if (model == NULL || !is_info(info))
        return rn_error_set(error, RUNNEL_INVALID, "no model, or no place for the result, or struct_size is not set");
    status = rn_model_enter(model);
    if (status != RUNNEL_OK)
        return rn_error_set(error, status, "the model is not loaded");
    status = index < model->parts.templates.n
                 ? rn_chat_template_tell(&model->parts.templates.list[index], info, error)
                 : rn_error_set(error, RUNNEL_NOT_FOUND, "the model has no template %u", index);
    rn_model_leave(model);
    return status;
}

static runnel_status tell_source(struct rn_view name, struct rn_view source, runnel_template_info *info,
                                 runnel_error *error)
{
    struct rn_chat_template tmpl;
    struct rn_heap heap;
    runnel_status status;

    rn_heap_init(&heap, NULL);
    status = rn_chat_template_init(&tmpl, &heap, name, source);
    status = status == RUNNEL_OK ? rn_chat_template_tell(&tmpl, info, error)
                                 : rn_error_set(error, status, "no memory for the template");
    rn_chat_template_fini(&tmpl, &heap);
    return status;
}

runnel_status runnel_file_template(const runnel_file *file, uint32_t index, runnel_template_info *info,
                                   runnel_error *error)
{
    struct rn_view name, source;
    uint32_t n = 0;

    rn_error_clear(error);
    if (file == NULL || !is_info(info))
        return rn_error_set(error, RUNNEL_INVALID, "no file, or no place for the result, or struct_size is not set");
    for (uint64_t i = 0; i < rn_gguf_n_entries(file->gguf); i++)
        if (rn_template_key(rn_gguf_entry(file->gguf, i), &name, &source) && n++ == index)
            return tell_source(name, source, info, error);
    return rn_error_set(error, RUNNEL_NOT_FOUND, "the file has no template %u", index);
}

runnel_status runnel_inspect_template(const char *template_text, size_t template_bytes, runnel_template_info *info,
                                      runnel_error *error)
{
    rn_error_clear(error);
    if (template_text == NULL || !is_info(info))
        return rn_error_set(error, RUNNEL_INVALID, "no text, or no place for the result, or struct_size is not set");
    return tell_source((struct rn_view){"", 0}, (struct rn_view){template_text, template_bytes}, info, error);
}

runnel_status runnel_model_sampling(runnel_model *model, runnel_sampling *sampling, uint32_t *recommended)
{
    runnel_status status;

    if (model == NULL || sampling == NULL || recommended == NULL)
        return RUNNEL_INVALID;
    *recommended = 0;
    status = rn_model_enter(model);
    if (status != RUNNEL_OK)
        return status;
    if (model->parts.gguf != NULL)
        *recommended = rn_sampling_recommended(model->parts.gguf, sampling);
    rn_model_leave(model);
    return RUNNEL_OK;
}

/* Into the caller's struct, which may be of an older header. */
static runnel_status recommend(const struct rn_gguf *gguf, runnel_samplers *samplers, uint32_t *recommended)
{
    runnel_samplers own;

    runnel_samplers_default(&own);
    if (!rn_sized_read(&own, sizeof own, samplers))
        return RUNNEL_INVALID;
    if (gguf != NULL)
        *recommended = rn_samplers_recommended(gguf, &own);
    rn_sized_write(samplers, samplers->struct_size, &own, sizeof own);
    return RUNNEL_OK;
}

runnel_status runnel_model_samplers(runnel_model *model, runnel_samplers *samplers, uint32_t *recommended)
{
    runnel_status status;

    if (model == NULL || samplers == NULL || recommended == NULL)
        return RUNNEL_INVALID;
    *recommended = 0;
    status = rn_model_enter(model);
    if (status != RUNNEL_OK)
        return status;
    status = recommend(model->parts.gguf, samplers, recommended);
    rn_model_leave(model);
    return status;
}

runnel_status runnel_file_samplers(const runnel_file *file, runnel_samplers *samplers, uint32_t *recommended)
{
    if (file == NULL || samplers == NULL || recommended == NULL)
        return RUNNEL_INVALID;
    *recommended = 0;
    return recommend(file->gguf, samplers, recommended);
}

runnel_status runnel_file_sampling(const runnel_file *file, runnel_sampling *sampling, uint32_t *recommended)
{
    if (file == NULL || sampling == NULL || recommended == NULL)
        return RUNNEL_INVALID;
    *recommended = rn_sampling_recommended(file->gguf, sampling);
    return RUNNEL_OK;
}
