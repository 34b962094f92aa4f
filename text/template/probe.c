/* What a template can do with a conversation, found out by rendering small ones: see template.h. */
#define _GNU_SOURCE /* memmem */
#include <stdio.h>
#include <string.h>

#include "text/template/template.h"

#define WORD "qvxz" /* in no template */
#define KEY "qvxk"  /* nor are these */
#define WHY "qvxr"
#define USER "{\"role\":\"user\",\"content\":\"a\"}"
#define MESSAGES(list) "\"messages\":[" list "],\"add_generation_prompt\":true"
#define TOOL                                                                                                  \
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"" WORD "\",\"description\":\"b\","            \
    "\"parameters\":{\"type\":\"object\",\"properties\":{\"c\":{\"type\":\"string\",\"description\":\"d\"}}," \
    "\"required\":[\"c\"]}}}]"

#define OBJECT "{\"" KEY "\":\"e\"}"
#define TEXT "\"{\\\"" KEY "\\\": \\\"e\\\"}\""
#define NO_CONTENT "\"content\":null"
#define EMPTY "\"content\":\"\""

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
    runnel_status status = rn_template_render(tmpl, heap, &context, &narrow, out, NULL);

    if (status != RUNNEL_OK)
        *out = (struct rn_rendered){0};
    return status == RUNNEL_NO_MEMORY ? status : RUNNEL_OK;
}

static bool holds(const struct rn_rendered *rendered, const char *word)
{
    return rendered->n > 0 && memmem(rendered->text, rendered->n, word, strlen(word)) != NULL;
}

/* A turn with these members and a call with these arguments, whose result is there. */
static runnel_status render_call(const struct rn_template *tmpl, struct rn_heap *heap, const char *members,
                                 const char *arguments, struct rn_rendered *out)
{
    static const char form[] =
        "{" MESSAGES(USER ",{\"role\":\"assistant\",%s,\"tool_calls\":[{\"id\":\"call12345\",\"type\":\"function\","
                          "\"function\":{\"name\":\"f\",\"arguments\":%s}}]},{\"role\":\"tool\",\"name\":\"f\","
                          "\"tool_call_id\":\"call12345\",\"content\":\"b\"}") "," TOOL "}";
    char json[sizeof form + 200];

    snprintf(json, sizeof json, form, members, arguments);
    return render(tmpl, heap, json, out);
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

/* Do lists of text parts come out as their text? */
static runnel_status probe_parts(const struct rn_template *tmpl, struct rn_heap *heap, bool *takes)
{
    static const char json[] =
        "{" MESSAGES("{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"" WORD "\"}]}") "}";
    struct rn_rendered out;
    runnel_status status = render(tmpl, heap, json, &out);

    *takes = holds(&out, WORD) && !holds(&out, "'" WORD "'") && !holds(&out, "\"" WORD "\"");
    rn_rendered_free(&out, heap);
    return status;
}

/* Does the word come out of a call with these arguments, and the other not? With a content or without. */
static runnel_status probe_call(const struct rn_template *tmpl, struct rn_heap *heap, const char *arguments,
                                const char *word, const char *other, bool *does)
{
    static const char *const contents[] = {NO_CONTENT, EMPTY};
    runnel_status status = RUNNEL_OK;
    struct rn_rendered out;

    *does = false;
    for (size_t i = 0; i < 2 && status == RUNNEL_OK && !*does; i++) {
        status = render_call(tmpl, heap, contents[i], arguments, &out);
        *does = holds(&out, word) && !holds(&out, other);
        rn_rendered_free(&out, heap);
    }
    return status;
}

/* Text comes out as it is; an object fails, is lost or comes out as Python writes it. */
static runnel_status probe_arguments(const struct rn_template *tmpl, struct rn_heap *heap, bool *as_text)
{
    bool object = false;
    runnel_status status = probe_call(tmpl, heap, OBJECT, KEY, "'" KEY "'", &object);

    *as_text = false;
    return status != RUNNEL_OK || object ? status
                                         : probe_call(tmpl, heap, TEXT, "{\"" KEY "\": \"e\"}", "\\\"", as_text);
}

/* Null fails, is written or loses the call, where an empty text does not. */
static runnel_status probe_null(const struct rn_template *tmpl, struct rn_heap *heap, const char *arguments,
                                bool *no_null)
{
    struct rn_rendered null, empty;
    runnel_status status = render_call(tmpl, heap, NO_CONTENT, arguments, &null);

    if (status != RUNNEL_OK)
        return status;
    status = render_call(tmpl, heap, EMPTY, arguments, &empty);
    *no_null = empty.n > 0 && (null.n == 0 || (holds(&null, "None") && !holds(&empty, "None")) ||
                               (holds(&empty, KEY) && !holds(&null, KEY)));
    rn_rendered_free(&null, heap);
    rn_rendered_free(&empty, heap);
    return status;
}

/* By the names that templates know. Beside a call, because most leave out the reasoning of earlier turns. */
static runnel_status probe_reasoning(const struct rn_template *tmpl, struct rn_heap *heap, const char *arguments,
                                     struct rn_template_forms *forms)
{
    static const struct {
        const char *as, *members;
    } known[] = {{NULL, EMPTY ",\"reasoning_content\":\"" WHY "\""},
                 {"thinking", EMPTY ",\"thinking\":\"" WHY "\""},
                 {"reasoning", EMPTY ",\"reasoning\":\"" WHY "\""},
                 {"thinking", "\"content\":[{\"type\":\"thinking\",\"thinking\":\"" WHY "\"}]"}};
    enum { PART = sizeof known / sizeof known[0] - 1 };
    struct rn_rendered out;

    for (size_t i = 0; i <= PART; i++) {
        runnel_status status = render_call(tmpl, heap, known[i].members, arguments, &out);
        bool does = holds(&out, WHY) && !holds(&out, "'" WHY "'") && !holds(&out, "\"" WHY "\"");

        rn_rendered_free(&out, heap);
        if (status != RUNNEL_OK)
            return status;
        if (!does)
            continue;
        forms->reasoning_as = known[i].as;
        forms->reasoning_is_part = i == PART;
        return RUNNEL_OK;
    }
    return RUNNEL_OK;
}

static runnel_status probe_alone(const struct rn_template *tmpl, struct rn_heap *heap, const char *arguments,
                                 struct rn_template_forms *forms)
{
    char members[64];
    struct rn_rendered out;
    runnel_status status;

    if (forms->reasoning_as == NULL || forms->reasoning_is_part)
        return RUNNEL_OK;
    snprintf(members, sizeof members, "\"content\":\"b\",\"%s\":\"" WHY "\"", forms->reasoning_as);
    status = render_call(tmpl, heap, members, arguments, &out);
    forms->reasoning_alone = !holds(&out, WHY);
    rn_rendered_free(&out, heap);
    return status;
}

runnel_status rn_template_probe_forms(const struct rn_template *tmpl, struct rn_heap *heap,
                                      struct rn_template_forms *forms)
{
    static const char developer[] = "{" MESSAGES("{\"role\":\"developer\",\"content\":\"" WORD "\"}," USER) "}";
    const char *arguments;
    bool writes = false;
    runnel_status status;

    *forms = (struct rn_template_forms){0};
    status = probe_parts(tmpl, heap, &forms->parts);
    if (status == RUNNEL_OK)
        status = probe_word(tmpl, heap, developer, &writes);
    forms->developer_as_system = !writes;
    if (status == RUNNEL_OK)
        status = probe_arguments(tmpl, heap, &forms->arguments_as_text);
    arguments = forms->arguments_as_text ? TEXT : OBJECT;
    if (status == RUNNEL_OK)
        status = probe_null(tmpl, heap, arguments, &forms->no_null);
    if (status == RUNNEL_OK)
        status = probe_reasoning(tmpl, heap, arguments, forms);
    return status == RUNNEL_OK ? probe_alone(tmpl, heap, arguments, forms) : status;
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
    status = rn_template_probe_forms(tmpl, heap, &traits->forms);
    if (status == RUNNEL_OK)
        status = probe_word(tmpl, heap, system, &traits->system);
    if (status == RUNNEL_OK)
        status = probe_word(tmpl, heap, tools, &traits->tools);
    if (status == RUNNEL_OK)
        status = probe_thinking(tmpl, heap, &traits->thinking);
    return status;
}
