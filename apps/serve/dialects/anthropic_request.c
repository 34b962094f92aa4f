/* Bodies of Anthropic's /v1/messages in OpenAI's form: see anthropic.h. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "anthropic.h"
#include "apps/serve/routes.h"

#define PROMPT                                                                                     \
    {"model", OPENAI_STRING, false, 0, 0}, {"messages", OPENAI_MESSAGES, true, 0, 0},              \
        {"system", OPENAI_TEXT_OR_ROW, false, 0, 0}, {"tools", OPENAI_ARRAY, false, 0, 0},         \
        {"tool_choice", OPENAI_OBJECT, false, 0, 0}, {"thinking", OPENAI_OBJECT, false, 0, 0},     \
        {"mcp_servers", OPENAI_ARRAY, false, 0, 0}, {"output_format", OPENAI_OBJECT, false, 0, 0}, \
    {                                                                                              \
        "output_config", OPENAI_OBJECT, false, 0, 0                                                \
    }

const struct openai_field anthropic_prompt_fields[] = {PROMPT, {0}};

const struct openai_field anthropic_fields[] = {PROMPT,
                                                SERVE_ADAPTER_FIELDS,
                                                {"max_tokens", OPENAI_WHOLE, true, 1, INT32_MAX},
                                                {"stop_sequences", OPENAI_ARRAY, false, 0, 0},
                                                {"temperature", OPENAI_REAL, false, 0, 2},
                                                {"top_p", OPENAI_REAL, false, 0, 1},
                                                {"top_k", OPENAI_WHOLE, false, -1, UINT32_MAX},
                                                {"stream", OPENAI_BOOLEAN, false, 0, 0},
                                                {"metadata", OPENAI_OBJECT, false, 0, 0},
                                                {0}};

const struct serve_field_name anthropic_names[] = {
    {"stop_sequences", "stop"},
    {"tools[].name", "tools[].function.name"},
    {"tools[].description", "tools[].function.description"},
    {"tools[].input_schema", "tools[].function.parameters"},
    {"output_format.schema", "response_format.json_schema.schema"},
    {"output_format", "response_format"},
    {"output_config.format.schema", "response_format.json_schema.schema"},
    {"output_config.format", "response_format"},
    {"output_config.effort", "reasoning_effort"},
    {"thinking", "chat_template_kwargs"},
    {0}};

struct reader {
    json_t *messages; /* in OpenAI's form, so far */
    struct openai_error *error;
};

static const char *type_of(const json_t *block)
{
    const char *type = openai_word(json_object_get(block, "type"));

    return type != NULL ? type : "";
}

/* Steals `message`. */
static bool add(struct reader *reader, json_t *message)
{
    return message != NULL && json_array_append_new(reader->messages, message) == 0;
}

/* What a block must have; an error names it. */
static bool expect_member(struct reader *reader, const json_t *block, const char *param, const char *member,
                          json_type type)
{
    char place[80];

    snprintf(place, sizeof place, "%.60s.%s", param, member);
    return openai_expect(reader->error, place, json_object_get(block, member), type);
}

/* ---- Contents ---------------------------------------------------------------------------- */

/* first, what is between, second: as one text; NULL: no memory. */
static json_t *joined(const json_t *first, const char *between, const json_t *second)
{
    size_t a = json_string_length(first), b = strlen(between), c = json_string_length(second);
    char *bytes = malloc(a + b + c + 1);
    json_t *text = NULL;

    if (bytes == NULL)
        return NULL;
    memcpy(bytes, json_string_value(first), a);
    memcpy(bytes + a, between, b);
    memcpy(bytes + a + b, json_string_value(second), c);
    text = json_stringn(bytes, a + b + c);
    free(bytes);
    return text;
}

/* The text of a content, which is a text or a list of text blocks, as one text; NULL: *error, or no memory. */
static json_t *joined_text(const json_t *content, const char *param, struct openai_error *error)
{
    static const char *const types[] = {"text", NULL};

    if (json_is_string(content))
        return json_incref((json_t *)(uintptr_t)content);
    return openai_expect(error, param, content, JSON_ARRAY) ? openai_join_parts(content, param, types, error) : NULL;
}

/* What a tool said, `text` (stolen), as a message. That it has failed is a member, is_error, which few templates know:
 * so the text begins with the word, too. */
static bool add_result(struct reader *reader, const json_t *block, const char *param, json_t *text)
{
    const json_t *failed = json_object_get(block, "is_error");
    json_t *message = NULL;
    bool given = failed != NULL && !json_is_null(failed);

    if (given && !expect_member(reader, block, param, "is_error", JSON_TRUE)) {
        json_decref(text);
        return false;
    }
    if (json_is_true(failed) && strncasecmp(json_string_value(text), "error", 5) != 0) {
        json_t *empty = json_string(""), *longer = joined(empty, "Error: ", text);

        json_decref(empty);
        json_decref(text);
        text = longer;
    }
    message = json_pack("{s:s,s:O,s:o}", "role", "tool", "tool_call_id", json_object_get(block, "tool_use_id"),
                        "content", text);
    if (json_is_true(failed) && json_object_set_new(message, "is_error", json_true()) != 0) {
        json_decref(message);
        return false;
    }
    return add(reader, message);
}

/* A block of a user's message: text joins `parts`, a result of a tool is a message of its own. */
static bool read_user_block(struct reader *reader, const json_t *block, const char *param, json_t *parts)
{
    const json_t *content = json_object_get(block, "content");
    json_t *text = NULL;
    char place[80];

    if (strcmp(type_of(block), "text") == 0)
        return expect_member(reader, block, param, "text", JSON_STRING) &&
               json_array_append(parts, (json_t *)(uintptr_t)block) == 0;
    if (strcmp(type_of(block), "tool_result") != 0)
        return openai_refuse(reader->error, "unsupported_value", param, "%s: blocks of type '%.40s' are not supported",
                             param, type_of(block));
    if (!expect_member(reader, block, param, "tool_use_id", JSON_STRING))
        return false;
    snprintf(place, sizeof place, "%.60s.content", param);
    text = content != NULL && !json_is_null(content) ? joined_text(content, place, reader->error) : json_string("");
    return text != NULL && add_result(reader, block, param, text);
}

static bool read_user(struct reader *reader, const json_t *content, const char *param)
{
    json_t *parts = json_array();
    const json_t *block = NULL;
    bool good = parts != NULL && openai_expect(reader->error, param, content, JSON_ARRAY);
    char place[64];
    size_t i = 0;

    if (good && json_array_size(content) == 0)
        good = openai_refuse(reader->error, "invalid_value", param, "%s is empty", param);
    for (i = 0; good && i < json_array_size(content); i++) {
        block = json_array_get(content, i);
        snprintf(place, sizeof place, "%.40s[%zu]", param, i);
        good = read_user_block(reader, block, place, parts);
    }
    if (good && json_array_size(parts) > 0)
        return add(reader, json_pack("{s:s,s:o}", "role", "user", "content", parts));
    json_decref(parts);
    return good;
}

/* One of the model's earlier answers: what it said and what it thought, as text blocks, and its calls. */
struct answer {
    json_t *parts, *thoughts, *calls;
};

/* What it has thought goes to the template as reasoning; most drop that of earlier turns. What is redacted nobody can
 * read. */
static bool read_thought(struct reader *reader, const json_t *block, const char *param, struct answer *answer)
{
    const json_t *text = json_object_get(block, "thinking");

    return strcmp(type_of(block), "redacted_thinking") == 0 ||
           (expect_member(reader, block, param, "thinking", JSON_STRING) &&
            (json_string_length(text) == 0 ||
             json_array_append_new(answer->thoughts, json_pack("{s:s,s:O}", "type", "text", "text", text)) == 0));
}

static bool read_answer_block(struct reader *reader, const json_t *block, const char *param, struct answer *answer)
{
    const char *type = type_of(block);
    const json_t *id = json_object_get(block, "id"), *name = json_object_get(block, "name");
    const json_t *input = json_object_get(block, "input");
    json_t *call = NULL;
    char *arguments = NULL;

    if (strcmp(type, "text") == 0)
        return expect_member(reader, block, param, "text", JSON_STRING) &&
               json_array_append(answer->parts, (json_t *)(uintptr_t)block) == 0;
    if (strcmp(type, "thinking") == 0 || strcmp(type, "redacted_thinking") == 0)
        return read_thought(reader, block, param, answer);
    if (strcmp(type, "tool_use") != 0)
        return openai_refuse(reader->error, "unsupported_value", param, "%s: blocks of type '%.40s' are not supported",
                             param, type);
    if (!expect_member(reader, block, param, "id", JSON_STRING) ||
        !expect_member(reader, block, param, "name", JSON_STRING) ||
        !expect_member(reader, block, param, "input", JSON_OBJECT))
        return false;
    arguments = openai_dump(input);
    call = arguments != NULL ? json_pack("{s:O,s:s,s:{s:O,s:s}}", "id", id, "type", "function", "function", "name",
                                         name, "arguments", arguments)
                             : NULL;
    free(arguments);
    return call != NULL && json_array_append_new(answer->calls, call) == 0;
}

/* As a message, which is added. */
static bool add_answer(struct reader *reader, const struct answer *answer)
{
    json_t *message = json_pack("{s:s,s:O?}", "role", "assistant", "content",
                                json_array_size(answer->parts) > 0 ? answer->parts : NULL);
    json_t *thoughts =
        json_array_size(answer->thoughts) > 0 ? joined_text(answer->thoughts, "thinking", reader->error) : NULL;
    bool good = message != NULL && (thoughts != NULL || json_array_size(answer->thoughts) == 0);

    if (good && thoughts != NULL)
        good = json_object_set(message, "reasoning_content", thoughts) == 0;
    if (good && json_array_size(answer->calls) > 0)
        good = json_object_set(message, "tool_calls", answer->calls) == 0;
    json_decref(thoughts);
    if (good)
        return add(reader, message);
    json_decref(message);
    return false;
}

static bool read_assistant(struct reader *reader, const json_t *content, const char *param)
{
    struct answer answer = {json_array(), json_array(), json_array()};
    bool good = answer.parts != NULL && answer.thoughts != NULL && answer.calls != NULL &&
                openai_expect(reader->error, param, content, JSON_ARRAY);
    char place[64];

    for (size_t i = 0; good && i < json_array_size(content); i++) {
        snprintf(place, sizeof place, "%.40s[%zu]", param, i);
        good = read_answer_block(reader, json_array_get(content, i), place, &answer);
    }
    good = good && add_answer(reader, &answer);
    json_decref(answer.parts);
    json_decref(answer.thoughts);
    json_decref(answer.calls);
    return good;
}

static bool read_message(struct reader *reader, const json_t *message, size_t i)
{
    const json_t *role = json_object_get(message, "role"), *content = json_object_get(message, "content");
    const char *name = openai_word(role);
    char param[48];

    snprintf(param, sizeof param, "messages[%zu]", i);
    if (!openai_expect(reader->error, param, message, JSON_OBJECT))
        return false;
    snprintf(param, sizeof param, "messages[%zu].role", i);
    if (!openai_expect(reader->error, param, role, JSON_STRING))
        return false;
    if (strcmp(name, "user") != 0 && strcmp(name, "assistant") != 0)
        return openai_refuse(reader->error, "invalid_value", param, "%s is '%.40s'; it is user or assistant", param,
                             name);
    snprintf(param, sizeof param, "messages[%zu].content", i);
    if (json_is_string(content))
        return add(reader, json_pack("{s:O,s:O}", "role", role, "content", content));
    return strcmp(name, "user") == 0 ? read_user(reader, content, param) : read_assistant(reader, content, param);
}

/* The system's text first, then the messages. */
static json_t *read_messages(const json_t *body, struct openai_error *error)
{
    const json_t *system = json_object_get(body, "system"), *messages = json_object_get(body, "messages");
    struct reader reader = {.messages = json_array(), .error = error};
    bool good = reader.messages != NULL && openai_expect(error, "messages", messages, JSON_ARRAY);
    json_t *text = NULL;

    if (good && system != NULL && !json_is_null(system)) {
        text = joined_text(system, "system", error);
        good = text != NULL && add(&reader, json_pack("{s:s,s:o}", "role", "system", "content", text));
    }
    for (size_t i = 0; good && i < json_array_size(messages); i++)
        good = read_message(&reader, json_array_get(messages, i), i);
    if (good)
        return reader.messages;
    json_decref(reader.messages);
    return NULL;
}

/* ---- Tools ------------------------------------------------------------------------------- */

/* A tool as a chat's; NULL: *error, or no memory. */
static json_t *read_tool(const json_t *tool, size_t i, struct openai_error *error)
{
    json_t *name = json_object_get(tool, "name"), *schema = json_object_get(tool, "input_schema");
    json_t *text = json_object_get(tool, "description"), *strict = json_object_get(tool, "strict"), *function = NULL;
    const json_t *type = json_object_get(tool, "type");
    char param[48];
    bool good = true;

    snprintf(param, sizeof param, "tools[%zu].type", i);
    if (type != NULL && !json_is_null(type) && strcmp(type_of(tool), "custom") != 0) {
        openai_refuse(error, "unsupported_value", param, "%s is '%.40s'; only 'custom' is supported", param,
                      type_of(tool));
        return NULL;
    }
    snprintf(param, sizeof param, "tools[%zu].name", i);
    good = openai_expect(error, param, name, JSON_STRING);
    snprintf(param, sizeof param, "tools[%zu].input_schema", i);
    good = good && openai_expect(error, param, schema, JSON_OBJECT);
    snprintf(param, sizeof param, "tools[%zu].strict", i);
    if (good && strict != NULL && !json_is_null(strict))
        good = openai_expect(error, param, strict, JSON_TRUE);
    function = good ? json_pack("{s:O,s:O}", "name", name, "parameters", schema) : NULL;
    if (function != NULL && text != NULL && !json_is_null(text))
        good = json_object_set(function, "description", text) == 0;
    if (function != NULL && json_is_true(strict))
        good = json_object_set(function, "strict", strict) == 0 && good;
    if (function != NULL && good)
        return json_pack("{s:s,s:o}", "type", "function", "function", function);
    json_decref(function);
    return NULL;
}

static bool read_tools(const json_t *tools, json_t *out, struct openai_error *error)
{
    json_t *list = json_array();
    bool good = list != NULL && openai_expect(error, "tools", tools, JSON_ARRAY);

    for (size_t i = 0; good && i < json_array_size(tools); i++)
        good = json_array_append_new(list, read_tool(json_array_get(tools, i), i, error)) == 0;
    good = good && json_object_set(out, "tools", list) == 0;
    json_decref(list);
    return good;
}

static bool read_tool_choice(const json_t *choice, json_t *out, struct openai_error *error)
{
    const char *type = type_of(choice);
    const json_t *name = json_object_get(choice, "name"),
                 *single = json_object_get(choice, "disable_parallel_tool_use");
    json_t *value = NULL;

    if (!openai_expect(error, "tool_choice", choice, JSON_OBJECT))
        return false;
    if (single != NULL && !json_is_null(single) &&
        !openai_expect(error, "tool_choice.disable_parallel_tool_use", single, JSON_TRUE))
        return false;
    if (json_is_true(single) && json_object_set_new(out, "parallel_tool_calls", json_false()) != 0)
        return false;
    if (strcmp(type, "tool") == 0) {
        if (!openai_expect(error, "tool_choice.name", name, JSON_STRING))
            return false;
        value = json_pack("{s:s,s:{s:O}}", "type", "function", "function", "name", name);
    } else if (strcmp(type, "any") == 0) {
        value = json_string("required");
    } else if (strcmp(type, "auto") == 0 || strcmp(type, "none") == 0) {
        value = json_string(type);
    } else {
        return openai_refuse(error, "invalid_value", "tool_choice", "tool_choice.type is auto, any, tool or none");
    }
    return json_object_set_new(out, "tool_choice", value) == 0;
}

/* A schema that the answer fits; `name` is the field that has it. */
static bool read_format(const json_t *format, const char *name, json_t *out, struct openai_error *error)
{
    const json_t *schema = json_object_get(format, "schema");
    char inside[48];

    snprintf(inside, sizeof inside, "%s.schema", name);
    if (strcmp(type_of(format), "json_schema") != 0)
        return openai_refuse(error, "unsupported_value", name, "%s: only type json_schema is supported", name);
    if (!openai_expect(error, inside, schema, JSON_OBJECT))
        return false;
    return json_object_set_new(out, "response_format",
                               json_pack("{s:s,s:{s:s,s:b,s:O}}", "type", "json_schema", "json_schema", "name",
                                         "format", "strict", 1, "schema", schema)) == 0;
}

/* output_config: how hard the model thinks, a variable of the template; and format, of which output_format is the
 * earlier name. */
static bool read_config(const json_t *body, json_t *out, struct openai_error *error)
{
    const json_t *config = json_object_get(body, "output_config"), *older = json_object_get(body, "output_format");
    const json_t *format = json_object_get(config, "format");
    json_t *effort = json_object_get(config, "effort");

    if (effort != NULL && json_object_set(out, "reasoning_effort", effort) != 0)
        return false;
    if (json_is_object(older) && format != NULL && !json_is_null(format))
        return openai_refuse(error, "invalid_value", "output_format",
                             "output_format and output_config.format are the same: give one of them");
    if (json_is_object(older))
        return read_format(older, "output_format", out, error);
    return format == NULL || json_is_null(format) || read_format(format, "output_config.format", out, error);
}

/* ---- The body ---------------------------------------------------------------------------- */

static bool copy(const json_t *body, const char *from, json_t *out, const char *to)
{
    json_t *value = json_object_get(body, from);

    return value == NULL || json_object_set(out, to, value) == 0;
}

/* Variables of the template: whether the model thinks aloud, and for how many tokens, which few templates know. */
static bool read_thinking(const json_t *body, json_t *out, struct openai_error *error)
{
    const json_t *thinking = json_object_get(body, "thinking");
    json_t *budget = json_object_get(thinking, "budget_tokens"), *variables = NULL;
    const char *type = type_of(thinking);
    bool off = strcmp(type, "disabled") == 0;

    if (thinking == NULL || json_is_null(thinking))
        return true;
    if (!off && strcmp(type, "enabled") != 0 && strcmp(type, "adaptive") != 0)
        return openai_refuse(error, "invalid_value", "thinking", "thinking.type is enabled, disabled or adaptive");
    if (budget != NULL && !json_is_null(budget) &&
        !openai_expect(error, "thinking.budget_tokens", budget, JSON_INTEGER))
        return false;
    variables = json_pack("{s:b}", "enable_thinking", !off);
    if (!off && json_is_integer(budget) && json_object_set(variables, "thinking_budget", budget) != 0) {
        json_decref(variables);
        return false;
    }
    return json_object_set_new(out, "chat_template_kwargs", variables) == 0;
}

static bool read_body(const json_t *body, json_t *out, struct openai_error *error)
{
    const json_t *tools = json_object_get(body, "tools"), *choice = json_object_get(body, "tool_choice");
    json_t *messages = read_messages(body, error);

    if (messages == NULL || json_object_set_new(out, "messages", messages) != 0)
        return false;
    if (json_array_size(json_object_get(body, "mcp_servers")) > 0)
        return openai_refuse(error, "unsupported_value", "mcp_servers",
                             "mcp_servers: this server connects to no others; give their tools in tools");
    if (openai_is_begun(messages) && json_object_set_new(out, "continue_final_message", json_true()) != 0)
        return false;
    if (tools != NULL && !json_is_null(tools) && !read_tools(tools, out, error))
        return false;
    if (choice != NULL && !json_is_null(choice) && !read_tool_choice(choice, out, error))
        return false;
    if (!read_thinking(body, out, error))
        return false;
    if (!read_config(body, out, error))
        return false;
    return copy(body, "model", out, "model") && copy(body, "max_tokens", out, "max_tokens") &&
           copy(body, "stop_sequences", out, "stop") && copy(body, "temperature", out, "temperature") &&
           copy(body, "top_p", out, "top_p") && copy(body, "top_k", out, "top_k") &&
           copy(body, "stream", out, "stream");
}

json_t *anthropic_translate(const json_t *body, struct openai_error *error)
{
    json_t *out = NULL;

    if (!openai_expect(error, "max_tokens", json_object_get(body, "max_tokens"), JSON_INTEGER))
        return NULL;
    out = json_object();
    if (out != NULL && read_body(body, out, error))
        return out;
    json_decref(out);
    return NULL;
}

json_t *anthropic_translate_prompt(const json_t *body, struct openai_error *error)
{
    json_t *out = json_object();

    if (out != NULL && read_body(body, out, error))
        return out;
    json_decref(out);
    return NULL;
}
