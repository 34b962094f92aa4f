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

/* ---- Members ----------------------------------------------------------------------------- */

/* A null says what a missing member says, and so do no calls; templates that look for the member alone stumble. */
static bool says_nothing(const struct rn_dict_entry *member)
{
    if (member->value.kind == RN_VALUE_NONE)
        return !rn_value_is(member->key, "content");
    return member->value.kind == RN_VALUE_LIST && member->value.list->n == 0 && rn_value_is(member->key, "tool_calls");
}

static void drop_members(struct rn_run *run, struct rn_dict *message)
{
    struct rn_dict *rest = NULL;

    for (size_t i = 0; i < message->n && rest == NULL; i++)
        if (says_nothing(&message->entries[i]))
            rest = rn_dict_new(&run->arena);
    if (rest == NULL)
        return;
    rn_step(&run->arena, message->n);
    for (size_t i = 0; i < message->n; i++)
        if (!says_nothing(&message->entries[i]))
            rn_dict_set(&run->arena, rest, message->entries[i].key, message->entries[i].value);
    *message = *rest;
}

/* ---- Content ----------------------------------------------------------------------------- */

static struct rn_value text_part(struct rn_run *run, const char *type, struct rn_value text)
{
    struct rn_value part = rn_dict_value(rn_dict_new(&run->arena));

    set(run, part, "type", data(run, type, strlen(type)));
    set(run, part, type, text);
    return part;
}

/* The text of a part that is text or a refusal; NULL: it is neither. */
static const struct rn_str *part_text(struct rn_value part)
{
    bool refusal = rn_value_is(rn_dict_at(part, "type"), "refusal");
    struct rn_value text = rn_dict_at(part, refusal ? "refusal" : "text");

    return (refusal || rn_value_is(rn_dict_at(part, "type"), "text")) && text.kind == RN_VALUE_STRING ? text.string
                                                                                                      : NULL;
}

static _Noreturn void refuse_part(struct rn_run *run, size_t message, size_t at, struct rn_value part)
{
    struct rn_value type = rn_dict_at(part, "type");
    size_t n;

    run->own_sentence = true; /* no place in the template is at fault */
    if (!is_text(type) || rn_value_is(type, "text") || rn_value_is(type, "refusal"))
        rn_tpl_fail(run, "messages[%zu].content[%zu]: not a part with a type and a text", message, at);
    for (n = type.string->n < 40 ? type.string->n : 40; n < type.string->n && (type.string->bytes[n] & 0xc0) == 0x80;)
        n--; /* whole characters */
    rn_tpl_fail(run, "messages[%zu].content[%zu]: the chat template takes text there, not a part of the type %.*s",
                message, at, (int)n, type.string->bytes);
}

/* All the parts as one string, with newlines between. */
static struct rn_value join_parts(struct rn_run *run, size_t message, const struct rn_list *parts)
{
    size_t n = 0, at = 0;
    char *bytes;

    for (size_t i = 0; i < parts->n; i++) {
        const struct rn_str *text = part_text(parts->items[i]);

        if (text == NULL)
            refuse_part(run, message, i, parts->items[i]);
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
    return data(run, bytes, at > 0 ? at - 1 : 0);
}

/* No template knows parts that are refusals. */
static void make_text(struct rn_run *run, struct rn_list *parts)
{
    for (size_t i = 0; i < parts->n; i++)
        if (rn_value_is(rn_dict_at(parts->items[i], "type"), "refusal") && part_text(parts->items[i]) != NULL)
            parts->items[i] = text_part(run, "text", rn_dict_at(parts->items[i], "refusal"));
}

enum rn_template_content rn_tpl_fit_content(const struct rn_template_forms *forms, bool calls,
                                            enum rn_template_content given)
{
    const enum rn_template_content order[] = {given, RN_TEMPLATE_NULL, RN_TEMPLATE_EMPTY};

    for (size_t i = 0; i < 3; i++)
        if (!(forms->unfit[calls] & 1 << order[i]))
            return order[i];
    return given;
}

/* An answer that is a refusal has no other content. */
static void take_refusal(struct rn_run *run, struct rn_value message)
{
    struct rn_value content = rn_dict_at(message, "content"), refusal = rn_dict_at(message, "refusal");

    if (is_text(refusal) && (content.kind == RN_VALUE_UNDEFINED || content.kind == RN_VALUE_NONE))
        set(run, message, "content", refusal);
}

/* A content that says nothing becomes what the template takes. */
static void fix_silence(struct rn_run *run, struct rn_value message, bool calls)
{
    struct rn_value content = rn_dict_at(message, "content");
    enum rn_template_content given = content.kind == RN_VALUE_NONE        ? RN_TEMPLATE_NULL
                                     : content.kind == RN_VALUE_UNDEFINED ? RN_TEMPLATE_MISSING
                                                                          : RN_TEMPLATE_EMPTY;
    enum rn_template_content fit = rn_tpl_fit_content(run->context->forms, calls, given);

    if (given == RN_TEMPLATE_EMPTY && (content.kind != RN_VALUE_STRING || content.string->n > 0))
        return;
    if (fit != given)
        set(run, message, "content", fit == RN_TEMPLATE_NULL ? rn_none() : data(run, "", 0));
}

/* ---- Calls ------------------------------------------------------------------------------- */

static void make_object(struct rn_run *run, struct rn_value function, const struct rn_str *text)
{
    struct rn_value object = {0};

    rn_step(&run->arena, text->n);
    if (rn_json_parse(&run->arena, text->bytes, text->n, &object, NULL) == RUNNEL_NO_MEMORY)
        rn_raise(&run->arena, RUNNEL_NO_MEMORY, "no memory for the arguments of a call");
    if (object.kind == RN_VALUE_DICT)
        set(run, function, "arguments", object);
}

static void fix_arguments(struct rn_run *run, struct rn_value function)
{
    struct rn_tpl_json_options plain = {.indent = rn_none()};
    enum rn_template_arguments form = run->context->forms->arguments;
    struct rn_value arguments = rn_dict_at(function, "arguments");

    if (arguments.kind == RN_VALUE_STRING && arguments.string->n == 0)
        set(run, function, "arguments", arguments = data(run, "{}", 2));
    if (form == RN_TEMPLATE_AS_TEXT && arguments.kind == RN_VALUE_DICT) {
        const struct rn_str *text = rn_tpl_json_dump(run, arguments, &plain);

        set(run, function, "arguments", data(run, text->bytes, text->n));
    }
    if (form == RN_TEMPLATE_AS_OBJECT && arguments.kind == RN_VALUE_STRING)
        make_object(run, function, arguments.string);
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
    struct rn_value content = rn_dict_at(message, "content");
    struct rn_list *parts = rn_list_new(&run->arena, 2);

    rn_list_push(&run->arena, parts, text_part(run, "thinking", reasoning));
    if (content.kind == RN_VALUE_LIST)
        for (size_t i = 0; i < content.list->n; i++)
            rn_list_push(&run->arena, parts, content.list->items[i]);
    else if (is_text(content))
        rn_list_push(&run->arena, parts, text_part(run, "text", content));
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

const char *const rn_tpl_role_names[] = {"user", "system", "developer", "assistant", "assistant", "tool"};

static enum rn_template_role role_of(struct rn_value name, bool calls)
{
    enum rn_template_role role = 0;

    while (role < RN_TEMPLATE_OTHER && !rn_value_is(name, rn_tpl_role_names[role]))
        role++;
    return calls ? RN_TEMPLATE_CALLS : role;
}

static void fix_message(struct rn_run *run, size_t at, struct rn_value message)
{
    const struct rn_template_forms *forms = run->context->forms;
    struct rn_value content = rn_dict_at(message, "content");
    enum rn_template_role role;
    bool calls;

    drop_members(run, message.dict);
    if (forms->developer_as_system && rn_value_is(rn_dict_at(message, "role"), "developer"))
        set(run, message, "role", data(run, "system", 6));
    calls = rn_value_is(rn_dict_at(message, "role"), "assistant") && fix_calls(run, rn_dict_at(message, "tool_calls"));
    role = role_of(rn_dict_at(message, "role"), calls);
    if (content.kind == RN_VALUE_LIST && forms->joined & 1 << role)
        set(run, message, "content", join_parts(run, at, content.list));
    else if (content.kind == RN_VALUE_LIST)
        make_text(run, content.list);
    if (role != RN_TEMPLATE_ASSISTANT && role != RN_TEMPLATE_CALLS)
        return;
    take_refusal(run, message);
    move_reasoning(run, message, calls);
    fix_silence(run, message, calls);
}

void rn_tpl_fix_messages(struct rn_run *run, struct rn_value messages)
{
    if (messages.kind != RN_VALUE_LIST)
        return;
    for (size_t i = 0; i < messages.list->n; i++)
        if (messages.list->items[i].kind == RN_VALUE_DICT)
            fix_message(run, i, messages.list->items[i]);
}
