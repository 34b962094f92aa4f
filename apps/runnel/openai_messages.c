/* Messages and tools in OpenAI's form: see openai_request.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "openai_request.h"

static const char *const roles[] = {"system", "developer", "user", "assistant", "tool", "function", NULL};

static const char *const chat_parts[] = {"text", NULL};
static const char *const input_parts[] = {"input_text", "output_text", "text", NULL};

/* words: up to a NULL. */
static bool known_word(const char *const *words, const char *word)
{
    while (*words != NULL && strcmp(*words, word) != 0)
        words++;
    return *words != NULL;
}

/* The text of part i; NULL: *error says why it has none. */
static const json_t *part_text(const json_t *part, const char *where, size_t i, const char *const *types,
                               struct openai_error *error)
{
    const char *type = json_string_value(json_object_get(part, "type"));
    const json_t *text = json_object_get(part, "text");
    char param[96];

    snprintf(param, sizeof param, "%.50s[%zu]", where, i);
    if (type == NULL || !known_word(types, type)) {
        openai_refuse(error, "unsupported_value", param, "%s: only parts of type text are supported", param);
        return NULL;
    }
    snprintf(param, sizeof param, "%.50s[%zu].text", where, i);
    return openai_expect(error, param, text, JSON_STRING) ? text : NULL;
}

/* The texts of a list of parts, parted by newlines, as a new string. */
static json_t *join_parts(const json_t *parts, const char *where, const char *const *types, struct openai_error *error)
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

/* Arguments in a string become what they say, if that is an object: templates want to write them themselves. */
static void open_arguments(json_t *function)
{
    const json_t *arguments = json_object_get(function, "arguments");
    json_t *parsed = NULL;

    if (!json_is_string(arguments))
        return;
    parsed = json_loadb(json_string_value(arguments), json_string_length(arguments), JSON_ALLOW_NUL, NULL);
    if (json_is_object(parsed))
        json_object_set(function, "arguments", parsed);
    json_decref(parsed);
}

static bool fix_calls(json_t *calls, const char *where, struct openai_error *error)
{
    json_t *call = NULL;
    char param[96];
    size_t i = 0;

    if (!openai_expect(error, where, calls, JSON_ARRAY))
        return false;
    json_array_foreach(calls, i, call)
    {
        json_t *function = json_object_get(call, "function");

        snprintf(param, sizeof param, "%.50s[%zu].function", where, i);
        if (!openai_expect(error, param, function, JSON_OBJECT))
            return false;
        snprintf(param, sizeof param, "%.50s[%zu].function.name", where, i);
        if (!openai_expect(error, param, json_object_get(function, "name"), JSON_STRING))
            return false;
        open_arguments(function);
    }
    return true;
}

static bool fix_content(json_t *message, const char *role, size_t i, struct openai_error *error)
{
    json_t *content = json_object_get(message, "content"), *joined = NULL;
    char param[96];

    snprintf(param, sizeof param, "messages[%zu].content", i);
    if (json_is_array(content)) {
        joined = join_parts(content, param, chat_parts, error);
        return joined != NULL && json_object_set_new(message, "content", joined) == 0;
    }
    if (content == NULL || json_is_null(content)) {
        if (strcmp(role, "assistant") == 0)
            return json_object_set_new(message, "content", json_null()) == 0;
        return openai_refuse(error, "missing_required_parameter", param, "%s is missing", param);
    }
    return openai_expect(error, param, content, JSON_STRING);
}

static bool fix_message(json_t *message, size_t i, struct openai_error *error)
{
    json_t *calls = json_object_get(message, "tool_calls");
    const char *role = NULL;
    char param[96];

    snprintf(param, sizeof param, "messages[%zu]", i);
    if (!openai_expect(error, param, message, JSON_OBJECT))
        return false;
    snprintf(param, sizeof param, "messages[%zu].role", i);
    if (!openai_expect(error, param, json_object_get(message, "role"), JSON_STRING))
        return false;
    role = json_string_value(json_object_get(message, "role"));
    if (!known_word(roles, role))
        return openai_refuse(error, "invalid_value", param, "%s: '%.40s' is not a role", param, role);
    if (!fix_content(message, role, i, error))
        return false;
    snprintf(param, sizeof param, "messages[%zu].tool_calls", i);
    return calls == NULL || json_is_null(calls) || fix_calls(calls, param, error);
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

/* ---- Responses --------------------------------------------------------------------------- */

/* An item of type message, or without a type, as a message; NULL: *error says why not. */
static json_t *message_of(const json_t *item, size_t i, struct openai_error *error)
{
    const char *type = json_string_value(json_object_get(item, "type")), *role = NULL;
    const json_t *content = json_object_get(item, "content");
    json_t *text = NULL;
    char param[96];

    snprintf(param, sizeof param, "input[%zu]", i);
    if (!openai_expect(error, param, item, JSON_OBJECT))
        return NULL;
    if (json_object_get(item, "type") != NULL && (type == NULL || strcmp(type, "message") != 0)) {
        openai_refuse(error, "unsupported_value", param, "%s: only items of type message are supported", param);
        return NULL;
    }
    snprintf(param, sizeof param, "input[%zu].role", i);
    if (!openai_expect(error, param, json_object_get(item, "role"), JSON_STRING))
        return NULL;
    role = json_string_value(json_object_get(item, "role"));
    if (!known_word(roles, role)) {
        openai_refuse(error, "invalid_value", param, "%s: '%.40s' is not a role", param, role);
        return NULL;
    }
    snprintf(param, sizeof param, "input[%zu].content", i);
    if (json_is_array(content))
        text = join_parts(content, param, input_parts, error);
    else if (openai_expect(error, param, content, JSON_STRING))
        text = json_deep_copy(content);
    return text != NULL ? json_pack("{s:s, s:o}", "role", role, "content", text) : NULL;
}

json_t *openai_input(const json_t *input, const json_t *instructions, struct openai_error *error)
{
    json_t *messages = json_array();
    const json_t *item = NULL;
    bool good = messages != NULL;
    size_t i = 0;

    if (!json_is_string(input) && !json_is_array(input)) {
        openai_refuse(error, "invalid_type", "input", "input must be a string or an array of messages");
        good = false;
    } else if (json_is_array(input) && json_array_size(input) == 0) {
        good = openai_refuse(error, "invalid_value", "input", "input is empty: at least one message is needed");
    }
    if (good && instructions != NULL)
        good = json_array_append_new(messages, json_pack("{s:s, s:O}", "role", "system", "content", instructions)) == 0;
    if (good && json_is_string(input))
        good = json_array_append_new(messages, json_pack("{s:s, s:O}", "role", "user", "content", input)) == 0;
    json_array_foreach(input, i, item) good = good && json_array_append_new(messages, message_of(item, i, error)) == 0;
    if (good)
        return messages;
    json_decref(messages);
    return NULL;
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
        const char *type = json_string_value(json_object_get(tool, "type"));

        snprintf(param, sizeof param, "tools[%zu].type", i);
        if (type == NULL || strcmp(type, "function") != 0)
            return openai_refuse(error, "invalid_value", param, "%s must be 'function'", param);
        snprintf(param, sizeof param, "tools[%zu].function", i);
        if (!openai_expect(error, param, json_object_get(tool, "function"), JSON_OBJECT))
            return false;
        snprintf(param, sizeof param, "tools[%zu].function.name", i);
        if (!openai_expect(error, param, json_object_get(json_object_get(tool, "function"), "name"), JSON_STRING))
            return false;
    }
    return true;
}
