/* The chat templates of a file: see chat_templates.h. */
#include "actors/prompt/chat_templates.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/sized.h"
#include "base/status.h"
#include "text/answer/format.h"
#include "text/template_keys.h"

#define MAX_TEMPLATES 64 /* of one file; more is a broken file, and those are not looked at */

runnel_status rn_chat_template_init(struct rn_chat_template *tmpl, struct rn_heap *heap, struct rn_view name,
                                    struct rn_view source)
{
    runnel_status status;

    *tmpl = (struct rn_chat_template){.name = rn_strndup(heap, name.bytes, name.n), .bytes = source.n};
    if (tmpl->name == NULL)
        return RUNNEL_NO_MEMORY;
    tmpl->format = rn_answer_format_of(source.bytes, source.n);
    status = rn_template_parse(heap, source.bytes, source.n, &tmpl->parsed, &tmpl->error);
    if (status == RUNNEL_OK)
        status = rn_template_probe(tmpl->parsed, heap, &tmpl->traits);
    return status == RUNNEL_NO_MEMORY ? status : RUNNEL_OK;
}

void rn_chat_template_fini(struct rn_chat_template *tmpl, struct rn_heap *heap)
{
    rn_template_free(tmpl->parsed);
    rn_free(heap, tmpl->name);
}

runnel_status rn_chat_templates_init(struct rn_chat_templates *templates, struct rn_heap *heap,
                                     const struct rn_gguf *gguf)
{
    struct rn_view name, source;
    uint32_t n = 0;

    *templates = (struct rn_chat_templates){.heap = heap};
    for (uint64_t i = 0; i < rn_gguf_n_entries(gguf); i++)
        n += n < MAX_TEMPLATES && rn_template_key(rn_gguf_entry(gguf, i), &name, &source);
    if (n == 0)
        return RUNNEL_OK;
    templates->list = rn_calloc(heap, n, sizeof *templates->list);
    if (templates->list == NULL)
        return RUNNEL_NO_MEMORY;
    for (uint64_t i = 0; i < rn_gguf_n_entries(gguf) && templates->n < n; i++)
        if (rn_template_key(rn_gguf_entry(gguf, i), &name, &source) &&
            rn_chat_template_init(&templates->list[templates->n++], heap, name, source) != RUNNEL_OK)
            return RUNNEL_NO_MEMORY;
    RN_ASSERT(templates->n == n);
    return RUNNEL_OK;
}

void rn_chat_templates_fini(struct rn_chat_templates *templates)
{
    for (uint32_t i = 0; i < templates->n; i++)
        rn_chat_template_fini(&templates->list[i], templates->heap);
    rn_free(templates->heap, templates->list);
    *templates = (struct rn_chat_templates){0};
}

static const struct rn_chat_template *named(const struct rn_chat_templates *templates, const char *name)
{
    for (uint32_t i = 0; i < templates->n; i++)
        if (strcmp(templates->list[i].name, name) == 0)
            return &templates->list[i];
    return NULL;
}

const struct rn_chat_template *rn_chat_template_find(const struct rn_chat_templates *templates, const char *name,
                                                     bool tools)
{
    const struct rn_chat_template *found = NULL;

    if (name != NULL)
        return named(templates, name);
    if (tools)
        found = named(templates, "tool_use");
    return found != NULL ? found : named(templates, "");
}

runnel_status rn_chat_template_tell(const struct rn_chat_template *tmpl, runnel_template_info *info,
                                    runnel_error *error)
{
    const struct rn_template_traits *traits = &tmpl->traits;
    runnel_template_info now = {0};

    RN_ASSERT(tmpl->parsed != NULL || tmpl->error.status != RUNNEL_OK);
    snprintf(now.name, sizeof now.name, "%s", tmpl->name);
    now.format = rn_answer_format_name(tmpl->format);
    now.bytes = tmpl->bytes;
    now.knows |= traits->system ? RUNNEL_TEMPLATE_SYSTEM : 0;
    now.knows |= traits->tools ? RUNNEL_TEMPLATE_TOOLS : 0;
    now.knows |= tmpl->parsed != NULL && rn_answer_format_reasons(tmpl->format) ? RUNNEL_TEMPLATE_REASONING : 0;
    now.knows |= traits->thinking ? RUNNEL_TEMPLATE_THINKING : 0;
    now.knows |= traits->forms.parts ? RUNNEL_TEMPLATE_PARTS : 0;
    rn_sized_write(info, info->struct_size, &now, sizeof now);
    if (tmpl->parsed == NULL)
        return rn_error_set(error, tmpl->error.status, "%s", tmpl->error.message);
    return RUNNEL_OK;
}
