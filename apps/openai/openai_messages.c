/* Messages and tools in OpenAI's form: see openai_request.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "openai_reader.h"

const char *const openai_roles[] = {"system", "developer", "user", "assistant", "tool", "function", NULL};

enum { MOST_NAME = 128 }; /* of a tool: the limit of Anthropic; OpenAI has 64 for chats */

static const char *const chat_parts[] = {"text", "refusal", NULL};

bool openai_known_word(const char *const *words, const char *word)
{
    while (*words != NULL && strcmp(*words, word) != 0)
        words++;
    return *words != NULL;
}

/* The text of part i; NULL: *error says why it has none. */
static const json_t *part_text(const json_t *part, const char *where, size_t i, const char *const *types,
                               struct openai_error *error)
{
    const char *type = openai_word(json_object_get(part, "type"));
    const char *name = type != NULL && strcmp(type, "refusal") == 0 ? type : "text";
    const json_t *text = json_object_get(part, name);
    char param[96];

    snprintf(param, sizeof param, "%.50s[%zu]", where, i);
    if (type == NULL || !openai_known_word(types, type)) {
        openai_refuse(error, "unsupported_value", param, "%s: only parts of type text are supported", param);
        return NULL;
    }
    snprintf(param, sizeof param, "%.50s[%zu].%s", where, i, name);
    return openai_expect(error, param, text, JSON_STRING) ? text : NULL;
}

json_t *openai_join_parts(const json_t *parts, const char *where, const char *const *types, struct openai_error *error)
{
    const json_t *part = NULL, *text = NULL;
    json_t *joined = NULL;
    char *bytes = NULL;
    size_t i = 0, n = 0;
    FILE *to = open_memstream(&bytes, &n);

    if (to == NULL)
        return NULL;
    json_array_foreach(parts, i, part)
    {
        text = part_text(part, where, i, types, error);
        if (text == NULL)
            break;
        if (i > 0)
            fputc('\n', to);
        if (json_string_length(text) > 0)
            fwrite(json_string_value(text), 1, json_string_length(text), to);
    }
    fclose(to);
    if (i == json_array_size(parts))
        joined = json_stringn(n > 0 ? bytes : "", n);
    free(bytes);
    return joined;
}

/* The name of a call, where there is one. */
static bool check_id(const json_t *object, const char *where, const char *member, struct openai_error *error)
{
    const json_t *id = json_object_get(object, member);
    char param[96];

    snprintf(param, sizeof param, "%.60s.%s", where, member);
    return id == NULL || json_is_null(id) || openai_expect_word(error, param, id);
}

/* Arguments are JSON in a text; an object is taken, too, as templates do. */
static bool check_call(const json_t *call, const char *where, struct openai_error *error)
{
    const json_t *function = json_object_get(call, "function"), *arguments = json_object_get(function, "arguments");
    char param[96];

    snprintf(param, sizeof param, "%.60s.function", where);
    if (!openai_expect(error, param, function, JSON_OBJECT))
        return false;
    snprintf(param, sizeof param, "%.60s.function.name", where);
    if (!openai_expect_word(error, param, json_object_get(function, "name")))
        return false;
    snprintf(param, sizeof param, "%.60s.function.arguments", where);
    return check_id(call, where, "id", error) &&
           (json_is_object(arguments) || openai_expect(error, param, arguments, JSON_STRING));
}

static bool check_calls(const json_t *calls, const char *where, struct openai_error *error)
{
    const json_t *call = NULL;
    char param[96];
    size_t i = 0;

    if (!openai_expect(error, where, calls, JSON_ARRAY))
        return false;
    json_array_foreach(calls, i, call)
    {
        snprintf(param, sizeof param, "%.50s[%zu]", where, i);
        if (!openai_expect(error, param, call, JSON_OBJECT) || !check_call(call, param, error))
            return false;
    }
    return true;
}

static bool fix_content(json_t *message, const char *role, size_t i, struct openai_error *error)
{
    json_t *content = json_object_get(message, "content"), *joined = NULL;
    char param[96];

    snprintf(param, sizeof param, "messages[%zu].content", i);
    if (json_is_array(content)) {
        joined = openai_join_parts(content, param, chat_parts, error);
        return joined != NULL && json_object_set_new(message, "content", joined) == 0;
    }
    if (content == NULL || json_is_null(content)) {
        if (strcmp(role, "assistant") == 0)
            return json_object_set_new(message, "content", json_null()) == 0;
        return openai_refuse(error, "missing_required_parameter", param, "%s is missing", param);
    }
    return openai_expect(error, param, content, JSON_STRING);
}

/* What is null, or a list of no calls, is missing: templates ask whether a message has it. Not so the content. */
static void drop_nothing(json_t *message)
{
    const char *name = NULL;
    json_t *value = NULL;
    void *next = NULL;

    json_object_foreach_safe(message, next, name, value)
    {
        bool nothing = json_is_null(value) ? strcmp(name, "content") != 0
                                           : strcmp(name, "tool_calls") == 0 && json_is_array(value);

        if (nothing && json_array_size(value) == 0)
            json_object_del(message, name);
    }
}

static bool fix_message(json_t *message, size_t i, struct openai_error *error)
{
    json_t *calls = NULL;
    const char *role = NULL;
    char param[96];

    snprintf(param, sizeof param, "messages[%zu]", i);
    if (!openai_expect(error, param, message, JSON_OBJECT))
        return false;
    drop_nothing(message);
    snprintf(param, sizeof param, "messages[%zu].role", i);
    if (!openai_expect(error, param, json_object_get(message, "role"), JSON_STRING))
        return false;
    role = openai_word(json_object_get(message, "role"));
    if (!openai_known_word(openai_roles, role))
        return openai_refuse(error, "invalid_value", param, "%s: '%.40s' is not a role", param, role);
    snprintf(param, sizeof param, "messages[%zu]", i);
    if (!fix_content(message, role, i, error) || !openai_fix_function(message, param, error) ||
        !check_id(message, param, "tool_call_id", error))
        return false;
    calls = json_object_get(message, "tool_calls");
    snprintf(param, sizeof param, "messages[%zu].tool_calls", i);
    return calls == NULL || check_calls(calls, param, error);
}

json_t *openai_messages(const json_t *messages, struct openai_error *error)
{
    json_t *copy = NULL, *message = NULL;
    size_t i = 0;

    if (!openai_expect(error, "messages", messages, JSON_ARRAY))
        return NULL;
    if (json_array_size(messages) == 0) {
        openai_refuse(error, "invalid_value", "messages", "messages is empty: at least one is needed");
        return NULL;
    }
    copy = json_deep_copy(messages);
    json_array_foreach(copy, i, message)
    {
        if (!fix_message(message, i, error)) {
            json_decref(copy);
            return NULL;
        }
    }
    return copy;
}

bool openai_is_begun(const json_t *messages)
{
    const json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    const json_t *content = json_object_get(last, "content");
    const char *role = openai_word(json_object_get(last, "role"));

    return role != NULL && strcmp(role, "assistant") == 0 &&
           json_array_size(json_object_get(last, "tool_calls")) == 0 &&
           json_string_length(content) + json_array_size(content) > 0;
}

static bool expect_tool_name(struct openai_error *error, const char *param, const json_t *value)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";
    size_t n = json_string_length(value);

    if (!openai_expect(error, param, value, JSON_STRING))
        return false;
    return (n > 0 && n <= MOST_NAME && strspn(json_string_value(value), letters) == n) ||
           openai_refuse(error, "invalid_value", param, "%s: a name has 1 to %d of A-Z, a-z, 0-9, _ and -", param,
                         MOST_NAME);
}

/* A member that may be missing, or null. */
static bool check_member(const json_t *function, const char *where, const char *name, json_type type,
                         struct openai_error *error)
{
    const json_t *value = json_object_get(function, name);
    char param[96];

    snprintf(param, sizeof param, "%.50s.%s", where, name);
    return value == NULL || json_is_null(value) || openai_expect(error, param, value, type);
}

bool openai_function_check(const json_t *function, const char *where, struct openai_error *error)
{
    char param[96];

    if (!openai_expect(error, where, function, JSON_OBJECT))
        return false;
    snprintf(param, sizeof param, "%.50s.name", where);
    return expect_tool_name(error, param, json_object_get(function, "name")) &&
           check_member(function, where, "description", JSON_STRING, error) &&
           check_member(function, where, "parameters", JSON_OBJECT, error) &&
           check_member(function, where, "strict", JSON_TRUE, error);
}

bool openai_tools_check(const json_t *tools, struct openai_error *error)
{
    const json_t *tool = NULL;
    char param[96];
    size_t i = 0;

    if (!openai_expect(error, "tools", tools, JSON_ARRAY))
        return false;
    json_array_foreach(tools, i, tool)
    {
        const char *type = openai_word(json_object_get(tool, "type"));

        snprintf(param, sizeof param, "tools[%zu].type", i);
        if (type == NULL || strcmp(type, "function") != 0)
            return openai_refuse(error, "invalid_value", param, "%s must be 'function'", param);
        snprintf(param, sizeof param, "tools[%zu].function", i);
        if (!openai_function_check(json_object_get(tool, "function"), param, error))
            return false;
    }
    return true;
}
