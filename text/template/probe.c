/* What a template can do with a conversation, found out by rendering small ones: see template.h. */
#define _GNU_SOURCE /* memmem */
#include <string.h>

#include "text/template/template.h"

#define WORD "qvxz" /* in no template */
#define USER "{\"role\":\"user\",\"content\":\"a\"}"
#define MESSAGES(list) "\"messages\":[" list "],\"add_generation_prompt\":true"
#define TOOL                                                                                                  \
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"" WORD "\",\"description\":\"b\","            \
    "\"parameters\":{\"type\":\"object\",\"properties\":{\"c\":{\"type\":\"string\",\"description\":\"d\"}}," \
    "\"required\":[\"c\"]}}}]"

/* Of the longest real template with one message: some ten thousand steps. */
static const struct rn_template_limits narrow = {
    .steps = 200000, .output_bytes = 1 << 20, .memory_bytes = 16 << 20, .depth = 100};

/* OK also where the template fails: *out is empty then. */
static runnel_status render(const struct rn_template *tmpl, struct rn_heap *heap, const char *json,
                            struct rn_rendered *out)
{
    static const struct rn_template_string strings[] = {{"bos_token", {"<s>", 3}}, {"eos_token", {"</s>", 4}}};
    const struct rn_template_context context = {.json = json,
                                                .json_bytes = strlen(json),
                                                .strings = strings,
                                                .n_strings = sizeof strings / sizeof strings[0],
                                                .now_s = 1};
    runnel_error error;
    runnel_status status = rn_template_render(tmpl, heap, &context, &narrow, out, &error);

    if (status != RUNNEL_OK)
        *out = (struct rn_rendered){0};
    return status == RUNNEL_NO_MEMORY ? status : RUNNEL_OK;
}

static bool holds(const struct rn_rendered *rendered, const char *word)
{
    return rendered->n > 0 && memmem(rendered->text, rendered->n, word, strlen(word)) != NULL;
}

/* Does the word come out? */
static runnel_status probe_word(const struct rn_template *tmpl, struct rn_heap *heap, const char *json, bool *does)
{
    struct rn_rendered out;
    runnel_status status = render(tmpl, heap, json, &out);

    *does = holds(&out, WORD);
    rn_rendered_free(&out, heap);
    return status;
}

runnel_status rn_template_probe_parts(const struct rn_template *tmpl, struct rn_heap *heap, bool *takes)
{
    static const char json[] =
        "{" MESSAGES("{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"" WORD "\"}]}") "}";
    struct rn_rendered out;
    runnel_status status = render(tmpl, heap, json, &out);

    *takes = holds(&out, WORD) && !holds(&out, "'" WORD "'") && !holds(&out, "\"" WORD "\"");
    rn_rendered_free(&out, heap);
    return status;
}

static runnel_status probe_thinking(const struct rn_template *tmpl, struct rn_heap *heap, bool *changes)
{
    struct rn_rendered on, off;
    runnel_status status = render(tmpl, heap, "{" MESSAGES(USER) ",\"enable_thinking\":true}", &on);

    if (status != RUNNEL_OK)
        return status;
    status = render(tmpl, heap, "{" MESSAGES(USER) ",\"enable_thinking\":false}", &off);
    *changes = on.n > 0 && off.n > 0 && (on.n != off.n || memcmp(on.text, off.text, on.n) != 0);
    rn_rendered_free(&on, heap);
    rn_rendered_free(&off, heap);
    return status;
}

runnel_status rn_template_probe(const struct rn_template *tmpl, struct rn_heap *heap, struct rn_template_traits *traits)
{
    static const char system[] = "{" MESSAGES("{\"role\":\"system\",\"content\":\"" WORD "\"}," USER) "}";
    static const char tools[] = "{" MESSAGES(USER) "," TOOL "}";
    runnel_status status;

    *traits = (struct rn_template_traits){0};
    status = rn_template_probe_parts(tmpl, heap, &traits->parts);
    if (status == RUNNEL_OK)
        status = probe_word(tmpl, heap, system, &traits->system);
    if (status == RUNNEL_OK)
        status = probe_word(tmpl, heap, tools, &traits->tools);
    if (status == RUNNEL_OK)
        status = probe_thinking(tmpl, heap, &traits->thinking);
    return status;
}
