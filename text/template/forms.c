/* Messages in the forms that a template takes: see struct rn_template_forms. Runs between the JSON and the template;
 * what it writes into messages is data, as they are. */
#include <string.h>

#include "text/template/run.h"

static struct rn_value data(struct rn_run *run, const char *bytes, size_t n)
{
    return rn_string_value(rn_str_borrow(&run->arena, bytes, n, RN_ORIGIN_DATA));
}

static void set(struct rn_run *run, struct rn_value object, const char *name, struct rn_value value)
{
    rn_dict_set(&run->arena, object.dict, data(run, name, strlen(name)), value);
}

static bool is_text(struct rn_value value)
{
    return value.kind == RN_VALUE_STRING && value.string->n > 0;
}

/* ---- Content ----------------------------------------------------------------------------- */

/* The part's text; NULL: it is no text part. */
static const struct rn_str *part_text(struct rn_value part)
{
    struct rn_value text;

    if (part.kind != RN_VALUE_DICT || !rn_value_is(rn_dict_at(part, "type"), "text"))
        return NULL;
    text = rn_dict_at(part, "text");
    return text.kind == RN_VALUE_STRING ? text.string : NULL;
}

/* A content that is a list of text parts as one string, with newlines between; a list with other parts stays. */
static void join_parts(struct rn_run *run, struct rn_value message, const struct rn_list *parts)
{
    size_t n = 0, at = 0;
    char *bytes;

    for (size_t i = 0; i < parts->n; i++) {
        const struct rn_str *text = part_text(parts->items[i]);

        if (text == NULL)
            return;
        n += text->n + 1;
    }
    bytes = rn_arena_take(&run->arena, n + 1, 1);
    for (size_t i = 0; i < parts->n; i++) {
        const struct rn_str *text = part_text(parts->items[i]);

        memcpy(bytes + at, text->bytes, text->n);
        at += text->n;
        bytes[at++] = '\n';
    }
    rn_step(&run->arena, at);
    set(run, message, "content", data(run, bytes, at > 0 ? at - 1 : 0));
}

/* ---- Calls ------------------------------------------------------------------------------- */

static void fix_arguments(struct rn_run *run, struct rn_value function)
{
    struct rn_tpl_json_options plain = {.indent = rn_none()};
    struct rn_value arguments = rn_dict_at(function, "arguments"), object = {0};
    const struct rn_str *text = arguments.kind == RN_VALUE_STRING ? arguments.string : NULL;

    if (run->context->forms->arguments_as_text) {
        if (arguments.kind == RN_VALUE_DICT) {
            text = rn_tpl_json_dump(run, arguments, &plain);
            set(run, function, "arguments", data(run, text->bytes, text->n));
        }
        return;
    }
    if (text == NULL)
        return;
    rn_step(&run->arena, text->n);
    if (text->n == 0)
        object = rn_dict_value(rn_dict_new(&run->arena));
    else if (rn_json_parse(&run->arena, text->bytes, text->n, &object, NULL) == RUNNEL_NO_MEMORY)
        rn_raise(&run->arena, RUNNEL_NO_MEMORY, "no memory for the arguments of a call");
    if (object.kind == RN_VALUE_DICT)
        set(run, function, "arguments", object);
}

/* Are there any? */
static bool fix_calls(struct rn_run *run, struct rn_value calls)
{
    size_t n = calls.kind == RN_VALUE_LIST ? calls.list->n : 0;

    for (size_t i = 0; i < n; i++) {
        struct rn_value function = rn_dict_at(calls.list->items[i], "function");

        if (function.kind == RN_VALUE_DICT)
            fix_arguments(run, function);
    }
    return n > 0;
}

/* ---- Reasoning --------------------------------------------------------------------------- */

/* In front of the content, as its first part. */
static void put_thinking_part(struct rn_run *run, struct rn_value message, struct rn_value reasoning)
{
    struct rn_value content = rn_dict_at(message, "content"), part = rn_dict_value(rn_dict_new(&run->arena));
    struct rn_list *parts = rn_list_new(&run->arena, 2);

    set(run, part, "type", data(run, "thinking", 8));
    set(run, part, "thinking", reasoning);
    rn_list_push(&run->arena, parts, part);
    if (content.kind == RN_VALUE_LIST) {
        for (size_t i = 0; i < content.list->n; i++)
            rn_list_push(&run->arena, parts, content.list->items[i]);
    } else if (is_text(content)) {
        part = rn_dict_value(rn_dict_new(&run->arena));
        set(run, part, "type", data(run, "text", 4));
        set(run, part, "text", content);
        rn_list_push(&run->arena, parts, part);
    }
    set(run, message, "content", rn_list_value(parts));
}

/* The content, which cannot stand beside it, behind it. */
static struct rn_value with_content(struct rn_run *run, struct rn_value message, struct rn_value reasoning)
{
    const struct rn_str *a = reasoning.string, *b = rn_dict_at(message, "content").string;
    char *bytes = rn_arena_take(&run->arena, a->n + 2 + b->n, 1);

    memcpy(bytes, a->bytes, a->n);
    memcpy(bytes + a->n, "\n\n", 2);
    memcpy(bytes + a->n + 2, b->bytes, b->n);
    rn_step(&run->arena, a->n + b->n);
    set(run, message, "content", data(run, "", 0));
    return data(run, bytes, a->n + 2 + b->n);
}

static void move_reasoning(struct rn_run *run, struct rn_value message, bool calls)
{
    const struct rn_template_forms *forms = run->context->forms;
    struct rn_value reasoning = rn_dict_at(message, "reasoning_content");

    if (forms->reasoning_as == NULL || !is_text(reasoning) ||
        rn_dict_at(message, forms->reasoning_as).kind != RN_VALUE_UNDEFINED)
        return;
    if (forms->reasoning_is_part) {
        put_thinking_part(run, message, reasoning);
        return;
    }
    if (forms->reasoning_alone && calls && is_text(rn_dict_at(message, "content")))
        reasoning = with_content(run, message, reasoning);
    set(run, message, forms->reasoning_as, reasoning);
}

/* ---- A message --------------------------------------------------------------------------- */

static void fix_message(struct rn_run *run, struct rn_value message)
{
    const struct rn_template_forms *forms = run->context->forms;
    struct rn_value role = rn_dict_at(message, "role"), content = rn_dict_at(message, "content");
    bool calls;

    if (content.kind == RN_VALUE_LIST && !forms->parts)
        join_parts(run, message, content.list);
    if (forms->developer_as_system && rn_value_is(role, "developer"))
        set(run, message, "role", data(run, "system", 6));
    if (!rn_value_is(role, "assistant"))
        return;
    calls = fix_calls(run, rn_dict_at(message, "tool_calls"));
    move_reasoning(run, message, calls);
    content = rn_dict_at(message, "content");
    if (forms->no_null && (content.kind == RN_VALUE_NONE || content.kind == RN_VALUE_UNDEFINED))
        set(run, message, "content", data(run, "", 0));
}

void rn_tpl_fix_messages(struct rn_run *run, struct rn_value messages)
{
    if (messages.kind != RN_VALUE_LIST)
        return;
    for (size_t i = 0; i < messages.list->n; i++)
        if (messages.list->items[i].kind == RN_VALUE_DICT)
            fix_message(run, messages.list->items[i]);
}
