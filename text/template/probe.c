/* What a template can do with a conversation, found out by rendering small ones: see template.h. */
#define _GNU_SOURCE /* memmem */
#include <stdio.h>
#include <string.h>

#include "text/template/run.h"

#define WORD "qvxz" /* in no template */
#define KEY "qvxk"  /* nor are these */
#define WHY "qvxr"
#define PART "qvxp"
#define NEXT "qvxs"
#define USER "{\"role\":\"user\",\"content\":\"a\"}"
#define MESSAGES(list) "\"messages\":[" list "],\"add_generation_prompt\":true"
#define TOOL                                                                                                  \
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"" WORD "\",\"description\":\"b\","            \
    "\"parameters\":{\"type\":\"object\",\"properties\":{\"c\":{\"type\":\"string\",\"description\":\"d\"}}," \
    "\"required\":[\"c\"]}}}]"

#define OBJECT "{\"" KEY "\":\"e\"}"
#define TEXT "\"{\\\"" KEY "\\\": \\\"e\\\"}\""

/* Of the longest real template with one message: some ten thousand steps. */
static const struct rn_template_limits narrow = {
    .steps = 200000, .output_bytes = 1 << 20, .memory_bytes = 16 << 20, .depth = 100};

/* In front of the other members of an assistant's message. */
static const char *const contents[] = {
    [RN_TEMPLATE_NULL] = "\"content\":null,", [RN_TEMPLATE_EMPTY] = "\"content\":\"\",", [RN_TEMPLATE_MISSING] = ""};
enum { CONTENTS = sizeof contents / sizeof contents[0] };

/* A template, and what is known of its forms so far. */
struct probe {
    const struct rn_template *tmpl;
    struct rn_heap *heap;
    struct rn_template_forms *forms;
    const char *tools; /* behind the messages of a call */
};

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

static void free_all(struct rn_heap *heap, struct rn_rendered *rendered, size_t n)
{
    for (size_t i = 0; i < n; i++)
        rn_rendered_free(&rendered[i], heap);
}

static size_t count(const struct rn_rendered *rendered, const char *word)
{
    const char *at = rendered->text, *end = at + rendered->n;
    size_t n = 0;

    while (at < end && (at = memmem(at, (size_t)(end - at), word, strlen(word))) != NULL)
        at++, n++;
    return n;
}

static bool holds(const struct rn_rendered *rendered, const char *word)
{
    return count(rendered, word) > 0;
}

static size_t skip_white(const struct rn_rendered *rendered, size_t at)
{
    while (at < rendered->n && (rendered->text[at] == ' ' || rendered->text[at] == '\n'))
        at++;
    return at;
}

static bool same_but_white(const struct rn_rendered *a, const struct rn_rendered *b)
{
    size_t i = skip_white(a, 0), k = skip_white(b, 0);

    while (i < a->n && k < b->n && a->text[i] == b->text[k]) {
        i = skip_white(a, i + 1);
        k = skip_white(b, k + 1);
    }
    return i == a->n && k == b->n;
}

/* A turn with these members and a call with these arguments, and its result. */
static runnel_status render_call(const struct probe *p, const char *members, const char *arguments, const char *result,
                                 struct rn_rendered *out)
{
    static const char form[] =
        "{" MESSAGES(USER ",{\"role\":\"assistant\",%s\"tool_calls\":[{\"id\":\"call12345\",\"type\":\"function\","
                          "\"function\":{\"name\":\"f\",\"arguments\":%s}}]},{\"role\":\"tool\",\"name\":\"f\","
                          "\"tool_call_id\":\"call12345\",\"content\":%s}") "%s}";
    char json[sizeof form + sizeof TOOL + 300];

    snprintf(json, sizeof json, form, members, arguments, result, p->tools);
    return render(p->tmpl, p->heap, json, out);
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

/* ---- Roles ------------------------------------------------------------------------------- */

static const char system_speaks[] = "{" MESSAGES("{\"role\":\"system\",\"content\":\"" WORD "\"}," USER) "}";

/* Most templates write any role's name, also one that their model never saw: so a template knows only what it names. */
static runnel_status probe_developer(const struct probe *p)
{
    static const char developer_speaks[] = "{" MESSAGES("{\"role\":\"developer\",\"content\":\"" WORD "\"}," USER) "}";
    bool developer, system;
    runnel_status status;

    p->forms->developer_as_system = memmem(p->tmpl->source, p->tmpl->n, "'developer'", 11) == NULL &&
                                    memmem(p->tmpl->source, p->tmpl->n, "\"developer\"", 11) == NULL;
    if (p->forms->developer_as_system)
        return RUNNEL_OK;
    status = probe_word(p->tmpl, p->heap, developer_speaks, &developer);
    if (status == RUNNEL_OK)
        status = probe_word(p->tmpl, p->heap, system_speaks, &system);
    if (status == RUNNEL_OK)
        p->forms->developer_as_system = system && !developer;
    return status;
}

/* ---- Calls ------------------------------------------------------------------------------- */

static const char *known_arguments(const struct probe *p)
{
    return p->forms->arguments == RN_TEMPLATE_AS_TEXT ? TEXT : OBJECT;
}

/* Of an object and of text: 0 it fails, 1 it is lost or comes out in another way, 2 it comes out well. *best is raised
 * to the better of them. */
static enum rn_template_arguments judge_arguments(const struct rn_rendered out[2], int *best)
{
    int object = holds(&out[0], KEY) && !holds(&out[0], "'" KEY "'") ? 2 : out[0].n > 0;
    int text = holds(&out[1], "{\"" KEY "\": \"e\"}") ? 2 : out[1].n > 0;

    *best = object > *best ? object : *best;
    *best = text > *best ? text : *best;
    if (object != text)
        return object > text ? RN_TEMPLATE_AS_OBJECT : RN_TEMPLATE_AS_TEXT;
    return object != 1 && same_but_white(&out[0], &out[1]) ? RN_TEMPLATE_AS_GIVEN : RN_TEMPLATE_AS_OBJECT;
}

/* With a content or without; without tools where the template fails with them. */
static runnel_status probe_arguments(struct probe *p)
{
    runnel_status status = RUNNEL_OK;
    int best = 0;

    for (int i = 0; i < 4 && status == RUNNEL_OK && best < (i < 2 ? 2 : 1); i++) {
        struct rn_rendered out[2] = {0};
        int before = best;
        enum rn_template_arguments form;

        p->tools = i < 2 ? "," TOOL : "";
        status = render_call(p, contents[i % 2], OBJECT, "\"b\"", &out[0]);
        if (status == RUNNEL_OK)
            status = render_call(p, contents[i % 2], TEXT, "\"b\"", &out[1]);
        form = judge_arguments(out, &best);
        if (best > before)
            p->forms->arguments = form;
        free_all(p->heap, out, 2);
    }
    return status;
}

/* ---- Contents ---------------------------------------------------------------------------- */

/* Of each rendering: it failed, has more such words than another of them, or lost the key; NULL: there is none. */
static uint8_t judge_contents(const struct rn_rendered out[CONTENTS], const char *key)
{
    size_t fewest = SIZE_MAX, words[CONTENTS];
    uint8_t unfit = 0;
    bool keeps = false;

    for (int i = 0; i < CONTENTS; i++) {
        words[i] = out[i].n > 0 ? count(&out[i], "None") + count(&out[i], "null") : SIZE_MAX;
        fewest = words[i] < fewest ? words[i] : fewest;
        keeps |= key != NULL && holds(&out[i], key);
    }
    for (int i = 0; i < CONTENTS; i++)
        if (words[i] > fewest || (keeps && !holds(&out[i], key)))
            unfit |= 1 << i;
    return unfit;
}

static runnel_status probe_contents(const struct probe *p, bool calls)
{
    struct rn_rendered out[CONTENTS] = {0};
    runnel_status status = RUNNEL_OK;

    for (int i = 0; i < CONTENTS && status == RUNNEL_OK; i++) {
        char json[300];

        snprintf(json, sizeof json, "{" MESSAGES(USER ",{%s\"role\":\"assistant\"}," USER) "}", contents[i]);
        status = calls ? render_call(p, contents[i], known_arguments(p), "\"b\"", &out[i])
                       : render(p->tmpl, p->heap, json, &out[i]);
    }
    p->forms->unfit[calls] = judge_contents(out, calls ? KEY : NULL);
    free_all(p->heap, out, CONTENTS);
    return status;
}

/* ---- Parts ------------------------------------------------------------------------------- */

static runnel_status render_content(const struct probe *p, enum rn_template_role role, const char *content,
                                    struct rn_rendered *out)
{
    enum rn_template_content silent = rn_tpl_fit_content(p->forms, true, RN_TEMPLATE_EMPTY);
    char text[400];

    if (role == RN_TEMPLATE_TOOL)
        return render_call(p, contents[silent], known_arguments(p), content, out);
    if (role == RN_TEMPLATE_CALLS) {
        snprintf(text, sizeof text, "\"content\":%s,", content);
        return render_call(p, text, known_arguments(p), "\"b\"", out);
    }
    snprintf(text, sizeof text, "{" MESSAGES("%s{\"role\":\"%s\",\"content\":%s}%s") "}",
             role == RN_TEMPLATE_ASSISTANT ? USER "," : "", rn_tpl_role_names[role], content,
             role == RN_TEMPLATE_USER ? "" : "," USER);
    return render(p->tmpl, p->heap, text, out);
}

/* Is what is written of the part its text, and not a list in Python's or another language? */
static bool is_text_of(const struct rn_rendered *part, const struct rn_rendered *string)
{
    return same_but_white(part, string) ||
           (holds(part, PART) && !holds(part, "'" PART "'") && !holds(part, "\"" PART "\"") &&
            count(part, "text") <= count(string, "text"));
}

/* Is one part written as its text, and of two both? A role with which all fails is as the user's. */
static runnel_status probe_parts(const struct probe *p, enum rn_template_role role)
{
    static const char *const given[] = {"\"" PART "\"", "[{\"type\":\"text\",\"text\":\"" PART "\"}]",
                                        "[{\"type\":\"text\",\"text\":\"" PART "\"},"
                                        "{\"type\":\"text\",\"text\":\"" NEXT "\"}]"};
    struct rn_rendered out[3] = {0};
    runnel_status status = RUNNEL_OK;
    bool as_text, joined = p->forms->joined & 1 << RN_TEMPLATE_USER;

    for (int i = 0; i < 3 && status == RUNNEL_OK; i++)
        status = render_content(p, role, given[i], &out[i]);
    as_text = is_text_of(&out[1], &out[0]) && holds(&out[2], NEXT);
    if (out[0].n > 0 || out[1].n > 0)
        joined = out[0].n > 0 && !as_text && (holds(&out[0], PART) || out[1].n == 0);
    p->forms->joined |= joined ? 1 << role | 1 << RN_TEMPLATE_OTHER : 0;
    if (role == RN_TEMPLATE_USER)
        p->forms->parts = !joined && holds(&out[1], PART);
    free_all(p->heap, out, 3);
    return status;
}

/* ---- Reasoning --------------------------------------------------------------------------- */

/* By the names that templates know. Beside a call, because most leave out the reasoning of earlier turns. */
static runnel_status probe_reasoning(const struct probe *p)
{
    static const struct {
        const char *as, *members;
    } known[] = {{NULL, "\"reasoning_content\":\"" WHY "\","},
                 {"thinking", "\"thinking\":\"" WHY "\","},
                 {"reasoning", "\"reasoning\":\"" WHY "\","},
                 {"thinking", "\"content\":[{\"type\":\"thinking\",\"thinking\":\"" WHY "\"}],"}};
    enum { PART_FORM = sizeof known / sizeof known[0] - 1 };
    enum rn_template_content silent = rn_tpl_fit_content(p->forms, true, RN_TEMPLATE_EMPTY);
    struct rn_rendered out;

    for (size_t i = 0; i <= PART_FORM; i++) {
        char members[100];
        runnel_status status;
        bool does;

        snprintf(members, sizeof members, "%s%s", i < PART_FORM ? contents[silent] : "", known[i].members);
        status = render_call(p, members, known_arguments(p), "\"b\"", &out);
        does = holds(&out, WHY) && !holds(&out, "'" WHY "'") && !holds(&out, "\"" WHY "\"");
        rn_rendered_free(&out, p->heap);
        if (status != RUNNEL_OK)
            return status;
        if (!does)
            continue;
        p->forms->reasoning_as = known[i].as;
        p->forms->reasoning_is_part = i == PART_FORM;
        return RUNNEL_OK;
    }
    return RUNNEL_OK;
}

static runnel_status probe_alone(const struct probe *p)
{
    char members[64];
    struct rn_rendered out;
    runnel_status status;

    if (p->forms->reasoning_as == NULL || p->forms->reasoning_is_part)
        return RUNNEL_OK;
    snprintf(members, sizeof members, "\"content\":\"b\",\"%s\":\"" WHY "\",", p->forms->reasoning_as);
    status = render_call(p, members, known_arguments(p), "\"b\"", &out);
    p->forms->reasoning_alone = !holds(&out, WHY);
    rn_rendered_free(&out, p->heap);
    return status;
}

/* ---- All --------------------------------------------------------------------------------- */

runnel_status rn_template_probe_forms(const struct rn_template *tmpl, struct rn_heap *heap,
                                      struct rn_template_forms *forms)
{
    struct probe p = {tmpl, heap, forms, ""};
    runnel_status status;

    *forms = (struct rn_template_forms){0};
    status = probe_developer(&p);
    if (status == RUNNEL_OK)
        status = probe_arguments(&p);
    if (status == RUNNEL_OK)
        status = probe_contents(&p, false);
    if (status == RUNNEL_OK)
        status = probe_contents(&p, true);
    for (int role = 0; role < RN_TEMPLATE_OTHER && status == RUNNEL_OK; role++)
        if (role != RN_TEMPLATE_DEVELOPER || !forms->developer_as_system)
            status = probe_parts(&p, role);
    if (status == RUNNEL_OK)
        status = probe_reasoning(&p);
    return status == RUNNEL_OK ? probe_alone(&p) : status;
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
    static const char tools[] = "{" MESSAGES(USER) "," TOOL "}";
    runnel_status status;

    *traits = (struct rn_template_traits){0};
    status = rn_template_probe_forms(tmpl, heap, &traits->forms);
    if (status == RUNNEL_OK)
        status = probe_word(tmpl, heap, system_speaks, &traits->system);
    if (status == RUNNEL_OK)
        status = probe_word(tmpl, heap, tools, &traits->tools);
    if (status == RUNNEL_OK)
        status = probe_thinking(tmpl, heap, &traits->thinking);
    return status;
}
