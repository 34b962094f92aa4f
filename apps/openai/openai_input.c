/* Fields of /v1/responses: the conversation as a list of items, and tools without a "function" around them. What is
 * read becomes messages and tools as chats have them. See openai_request.h.
 *
 *     message                  a message of its role
 *     reasoning                reasoning_content of the assistant's message that follows
 *     function_call            a call of the assistant's message before it, or of one of its own
 *     function_call_output     a message of the tool */
#include <stdlib.h>
#include <string.h>

#include "openai_reader.h"

/* ---- Items ------------------------------------------------------------------------------- */

/* Messages while they are put together. */
struct talk {
    json_t *messages;
    json_t *reasoning; /* of the assistant's message to come; NULL: none */
    bool open;         /* the last message is the assistant's: calls are added to it */
    struct openai_error *error;
};

typedef bool (*item_fn)(struct talk *talk, const json_t *item, size_t i);

static const json_t *member(struct talk *talk, const json_t *item, size_t i, const char *name, json_type type)
{
    const json_t *value = json_object_get(item, name);
    char param[96];

    snprintf(param, sizeof param, "input[%zu].%s", i, name);
    return openai_expect(talk->error, param, value, type) ? value : NULL;
}

/* Takes the message. False: memory is short. */
static bool append(struct talk *talk, json_t *message, bool assistant)
{
    bool good = message != NULL;

    if (good && assistant && talk->reasoning != NULL)
        good = json_object_set(message, "reasoning_content", talk->reasoning) == 0;
    json_decref(talk->reasoning);
    talk->reasoning = NULL;
    talk->open = assistant;
    good = good && json_array_append(talk->messages, message) == 0;
    json_decref(message);
    return good;
}

/* A text, or parts that are texts, as a new string. */
static json_t *text_of(struct talk *talk, const json_t *value, size_t i, const char *name)
{
    static const char *const types[] = {"input_text", "output_text", "text", "refusal", NULL};
    char param[96];

    snprintf(param, sizeof param, "input[%zu].%s", i, name);
    if (json_is_array(value))
        return openai_join_parts(value, param, types, talk->error);
    return openai_expect(talk->error, param, value, JSON_STRING) ? json_deep_copy(value) : NULL;
}

static bool add_message(struct talk *talk, const json_t *item, size_t i)
{
    const json_t *role = member(talk, item, i, "role", JSON_STRING);
    json_t *text = NULL;
    char param[96];

    if (role == NULL)
        return false;
    snprintf(param, sizeof param, "input[%zu].role", i);
    if (!openai_known_word(openai_roles, openai_word(role)))
        return openai_refuse(talk->error, "invalid_value", param, "%s: '%.40s' is not a role", param,
                             openai_word(role));
    text = text_of(talk, json_object_get(item, "content"), i, "content");
    return text != NULL && append(talk, json_pack("{s:O, s:o}", "role", role, "content", text),
                                  strcmp(openai_word(role), "assistant") == 0);
}

/* What a model has thought: in its content, or, where a client keeps that alone, in its summary. */
static bool add_reasoning(struct talk *talk, const json_t *item, size_t i)
{
    static const char *const types[] = {"reasoning_text", "summary_text", "text", NULL};
    const char *name = "content";
    const json_t *parts = json_object_get(item, name);
    char param[96];

    if (parts == NULL || json_is_null(parts) || (json_is_array(parts) && json_array_size(parts) == 0)) {
        name = "summary";
        parts = json_object_get(item, name);
    }
    if (parts == NULL || json_is_null(parts) || (json_is_array(parts) && json_array_size(parts) == 0))
        return true;
    snprintf(param, sizeof param, "input[%zu].%s", i, name);
    if (!openai_expect(talk->error, param, parts, JSON_ARRAY))
        return false;
    json_decref(talk->reasoning);
    talk->reasoning = openai_join_parts(parts, param, types, talk->error);
    return talk->reasoning != NULL;
}

static bool add_call(struct talk *talk, const json_t *item, size_t i)
{
    const json_t *id = member(talk, item, i, "call_id", JSON_STRING),
                 *name = id != NULL ? member(talk, item, i, "name", JSON_STRING) : NULL,
                 *arguments = name != NULL ? member(talk, item, i, "arguments", JSON_STRING) : NULL;
    json_t *message = NULL, *calls = NULL;

    if (arguments == NULL)
        return false;
    if (!talk->open && !append(talk, json_pack("{s:s, s:n}", "role", "assistant", "content"), true))
        return false;
    message = json_array_get(talk->messages, json_array_size(talk->messages) - 1);
    calls = json_object_get(message, "tool_calls");
    if (calls == NULL && (json_object_set_new(message, "tool_calls", json_array()) != 0 ||
                          (calls = json_object_get(message, "tool_calls")) == NULL))
        return false;
    return json_array_append_new(calls, json_pack("{s:O, s:s, s:{s:O, s:O}}", "id", id, "type", "function", "function",
                                                  "name", name, "arguments", arguments)) == 0;
}

static bool add_output(struct talk *talk, const json_t *item, size_t i)
{
    const json_t *id = member(talk, item, i, "call_id", JSON_STRING);
    json_t *text = id != NULL ? text_of(talk, json_object_get(item, "output"), i, "output") : NULL;

    return text != NULL &&
           append(talk, json_pack("{s:s, s:O, s:o}", "role", "tool", "tool_call_id", id, "content", text), false);
}

static item_fn find_item(const char *type)
{
    static const struct {
        const char *type;
        item_fn add;
    } known[] = {{"message", add_message},
                 {"reasoning", add_reasoning},
                 {"function_call", add_call},
                 {"function_call_output", add_output}};

    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(known[i].type, type) == 0)
            return known[i].add;
    return NULL;
}

/* Without a type it is a message. */
static bool add_item(struct talk *talk, const json_t *item, size_t i)
{
    const json_t *type = json_object_get(item, "type");
    item_fn add = NULL;
    char param[96];

    snprintf(param, sizeof param, "input[%zu]", i);
    if (!openai_expect(talk->error, param, item, JSON_OBJECT))
        return false;
    if (type != NULL && !json_is_null(type) && member(talk, item, i, "type", JSON_STRING) == NULL)
        return false;
    add = find_item(json_is_string(type) ? openai_word(type) : "message");
    if (add == NULL)
        return openai_refuse(talk->error, "unsupported_value", param,
                             "%s: items are of type message, reasoning, function_call or function_call_output, "
                             "not '%.40s'",
                             param, openai_word(type));
    return add(talk, item, i);
}

static bool add_items(struct talk *talk, const json_t *input)
{
    const json_t *item = NULL;
    size_t i = 0;

    if (json_is_string(input))
        return append(talk, json_pack("{s:s, s:O}", "role", "user", "content", input), false);
    if (!json_is_array(input))
        return openai_refuse(talk->error, "invalid_type", "input", "input must be a string or an array of messages");
    if (json_array_size(input) == 0)
        return openai_refuse(talk->error, "invalid_value", "input", "input is empty: at least one message is needed");
    json_array_foreach(input, i, item)
    {
        if (!add_item(talk, item, i))
            return false;
    }
    return true;
}

static bool put_messages(struct openai_reader *reader)
{
    struct talk talk = {.messages = json_array(), .error = reader->error};
    bool good = talk.messages != NULL;

    if (good && reader->instructions != NULL)
        good = append(&talk, json_pack("{s:s, s:O}", "role", "system", "content", reader->instructions), false);
    good = good && add_items(&talk, reader->input) && (reader->r->messages = openai_dump(talk.messages)) != NULL;
    json_decref(talk.messages);
    json_decref(talk.reasoning);
    return good;
}

/* Reasoning alone is no conversation. */
bool openai_finish_input(struct openai_reader *reader)
{
    struct openai_request *r = reader->r;
    bool good = false;

    if (reader->input == NULL)
        return openai_refuse(reader->error, "missing_required_parameter", "input", "input is missing");
    good = put_messages(reader);
    if (!good && reader->error->http != 0)
        return false;
    if (good && strcmp(r->messages, "[]") == 0)
        return openai_refuse(reader->error, "invalid_value", "input", "input has no message");
    r->n_prompts = 1;
    if (good && reader->instructions != NULL)
        good = (r->given.instructions = openai_dump(reader->instructions)) != NULL;
    return good || openai_no_memory(reader->error);
}

/* ---- Tools ------------------------------------------------------------------------------- */

/* A tool of responses as a chat's: all but its type goes inside. */
static json_t *tool_of(const json_t *tool, size_t i, struct openai_error *error)
{
    static const char *const members[] = {"name", "description", "parameters", "strict"};
    const char *type = openai_word(json_object_get(tool, "type"));
    json_t *function = NULL;
    char param[96];

    snprintf(param, sizeof param, "tools[%zu]", i);
    if (!openai_expect(error, param, tool, JSON_OBJECT))
        return NULL;
    snprintf(param, sizeof param, "tools[%zu].type", i);
    if (type == NULL || strcmp(type, "function") != 0) {
        openai_refuse(error, "unsupported_value", param, "%s must be 'function': nothing else can be called here",
                      param);
        return NULL;
    }
    snprintf(param, sizeof param, "tools[%zu]", i);
    if (!openai_function_check(tool, param, error))
        return NULL;
    function = json_object();
    for (size_t k = 0; k < sizeof members / sizeof members[0]; k++) {
        json_t *value = json_object_get(tool, members[k]);

        if (value != NULL && !json_is_null(value))
            json_object_set(function, members[k], value);
    }
    return json_pack("{s:s, s:o}", "type", "function", "function", function);
}

bool openai_take_tools(struct openai_reader *reader, const char *name, const json_t *value)
{
    const json_t *tool = NULL;
    size_t i = 0;

    if (!openai_expect(reader->error, name, value, JSON_ARRAY))
        return false;
    reader->own_tools = json_array();
    json_array_foreach(value, i, tool)
    {
        json_t *own = tool_of(tool, i, reader->error);

        if (own == NULL && reader->error->http != 0)
            return false;
        if (json_array_append_new(reader->own_tools, own) != 0)
            return openai_no_memory(reader->error);
    }
    reader->tools = reader->own_tools;
    reader->r->given.tools = openai_dump(value);
    return (reader->own_tools != NULL && reader->r->given.tools != NULL) || openai_no_memory(reader->error);
}

/* {"type": "allowed_tools", "mode": .., "tools": [..]}: auto or required, of these tools alone. Chats have what is
 * behind the type in an object, "allowed_tools". */
static bool take_allowed(struct openai_reader *reader, const json_t *value)
{
    const json_t *inside = json_object_get(value, "allowed_tools");
    bool nested = inside != NULL || (reader->r->endpoint == OPENAI_CHAT && json_object_get(value, "mode") == NULL);
    const char *mode_of = nested ? "tool_choice.allowed_tools.mode" : "tool_choice.mode", *word = NULL;
    const json_t *mode = json_object_get(nested ? inside : value, "mode");

    if (nested && !openai_expect(reader->error, "tool_choice.allowed_tools", inside, JSON_OBJECT))
        return false;
    reader->allowed = json_object_get(nested ? inside : value, "tools");
    reader->allowed_of = nested ? "tool_choice.allowed_tools.tools" : "tool_choice.tools";
    if (!openai_expect(reader->error, mode_of, mode, JSON_STRING) ||
        !openai_expect(reader->error, reader->allowed_of, reader->allowed, JSON_ARRAY))
        return false;
    word = openai_word(mode);
    if (strcmp(word, "auto") != 0 && strcmp(word, "required") != 0)
        return openai_refuse(reader->error, "invalid_value", mode_of, "%s must be 'auto' or 'required', not '%.40s'",
                             mode_of, word);
    return openai_read_tool_choice(reader->r, mode_of, mode, reader->error);
}

bool openai_take_choice(struct openai_reader *reader, const char *name, const json_t *value)
{
    const char *type = openai_word(json_object_get(value, "type"));
    bool allowed = type != NULL && strcmp(type, "allowed_tools") == 0;

    if (allowed ? !take_allowed(reader, value) : !openai_read_tool_choice(reader->r, name, value, reader->error))
        return false;
    reader->no_tools = strcmp(reader->r->tool_choice, "none") == 0;
    reader->r->given.tool_choice = openai_dump(value);
    return reader->r->given.tool_choice != NULL || openai_no_memory(reader->error);
}

/* The names of tools that are allowed, as the keys of an object; NULL: not enough memory. */
static json_t *allowed_names(const json_t *allowed)
{
    json_t *names = json_object();

    for (size_t i = 0; names != NULL && i < json_array_size(allowed); i++) {
        const json_t *item = json_array_get(allowed, i), *function = json_object_get(item, "function");
        const char *name = openai_word(json_object_get(function != NULL ? function : item, "name"));

        if (name != NULL && json_object_set_new(names, name, json_true()) != 0) {
            json_decref(names);
            names = NULL;
        }
    }
    return names;
}

static const char *name_of(const json_t *tools, size_t i)
{
    return openai_word(json_object_get(json_object_get(json_array_get(tools, i), "function"), "name"));
}

/* Those of the tools whose names are allowed; NULL: not enough memory. */
static json_t *allowed_tools(const json_t *tools, const json_t *allowed)
{
    json_t *names = allowed_names(allowed), *kept = json_array();

    for (size_t i = 0; names != NULL && kept != NULL && i < json_array_size(tools); i++)
        if (json_object_get(names, name_of(tools, i)) != NULL &&
            json_array_append(kept, json_array_get(tools, i)) != 0) {
            json_decref(kept);
            kept = NULL;
        }
    if (names == NULL) {
        json_decref(kept);
        kept = NULL;
    }
    json_decref(names);
    return kept;
}

bool openai_finish_choice(struct openai_reader *reader)
{
    json_t *kept = NULL;

    if (reader->allowed == NULL)
        return true;
    kept = allowed_tools(reader->tools, reader->allowed);
    if (kept == NULL)
        return openai_no_memory(reader->error);
    json_decref(reader->own_tools);
    reader->tools = reader->own_tools = kept;
    return json_array_size(kept) > 0 || openai_refuse(reader->error, "invalid_value", reader->allowed_of,
                                                      "%s names none of the tools", reader->allowed_of);
}

/* ---- Others ------------------------------------------------------------------------------ */

bool openai_take_input(struct openai_reader *reader, const char *name, const json_t *value)
{
    (void)name;
    reader->input = value; /* behind the instructions, which may come later */
    return true;
}

bool openai_take_instructions(struct openai_reader *reader, const char *name, const json_t *value)
{
    reader->instructions = value;
    return openai_expect(reader->error, name, value, JSON_STRING);
}

/* Keeps what is echoed. */
static bool keep(struct openai_reader *reader, char **to, const json_t *value)
{
    *to = openai_dump(value);
    return *to != NULL || openai_no_memory(reader->error);
}

/* {"format": {..}}; how long the answer should be (verbosity) a model here is not told. */
bool openai_take_text(struct openai_reader *reader, const char *name, const json_t *value)
{
    const json_t *format = json_object_get(value, "format");

    if (!openai_expect(reader->error, name, value, JSON_OBJECT))
        return false;
    if (format == NULL || json_is_null(format))
        return true;
    return openai_read_format(reader->r, "text.format", format, reader->error) &&
           keep(reader, &reader->r->given.format, format);
}

/* {"effort": ..}, a variable of the template as reasoning_effort is. */
bool openai_take_reasoning(struct openai_reader *reader, const char *name, const json_t *value)
{
    const json_t *effort = json_object_get(value, "effort");

    if (!openai_expect(reader->error, name, value, JSON_OBJECT) || !keep(reader, &reader->r->given.reasoning, value))
        return false;
    reader->effort = json_is_null(effort) ? NULL : effort;
    return reader->effort == NULL || openai_expect(reader->error, "reasoning.effort", effort, JSON_STRING);
}

bool openai_take_truncation(struct openai_reader *reader, const char *name, const json_t *value)
{
    if (!openai_expect(reader->error, name, value, JSON_STRING))
        return false;
    return strcmp(openai_word(value), "disabled") == 0 ||
           openai_refuse(reader->error, "unsupported_value", name, "%s: only 'disabled' is supported", name);
}

bool openai_take_metadata(struct openai_reader *reader, const char *name, const json_t *value)
{
    return openai_expect(reader->error, name, value, JSON_OBJECT) && keep(reader, &reader->r->given.metadata, value);
}

/* Encrypted reasoning is for servers that hide it: here it stands in the answer. */
bool openai_take_include(struct openai_reader *reader, const char *name, const json_t *value)
{
    const json_t *word = NULL;
    char param[48];
    size_t i = 0;

    if (!openai_expect(reader->error, name, value, JSON_ARRAY))
        return false;
    json_array_foreach(value, i, word)
    {
        snprintf(param, sizeof param, "include[%zu]", i);
        if (!openai_expect(reader->error, param, word, JSON_STRING))
            return false;
        if (strcmp(openai_word(word), "message.output_text.logprobs") == 0)
            reader->r->logprobs = true;
        else if (strcmp(openai_word(word), "reasoning.encrypted_content") != 0)
            return openai_refuse(reader->error, "unsupported_value", param, "%s: '%.60s' is not supported", param,
                                 openai_word(word));
    }
    return true;
}
