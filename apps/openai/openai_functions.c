/* Functions as OpenAI's chats had them before tools: "functions", "function_call", messages of the role "function".
 * They become tools, of which an answer calls one at most, and the answer has the older form again. See
 * openai_request.h. */
#include <string.h>

#include "openai_reader.h"

bool openai_take_functions(struct openai_reader *reader, const char *name, const json_t *value)
{
    json_t *tools = json_array(), *function = NULL;
    size_t i = 0;
    bool good = tools != NULL && openai_expect(reader->error, name, value, JSON_ARRAY);
    char param[48];

    json_array_foreach((json_t *)(uintptr_t)value, i, function)
    {
        if (!good)
            break;
        snprintf(param, sizeof param, "functions[%zu]", i);
        good = openai_function_check(function, param, reader->error);
        if (good && json_array_append_new(tools, json_pack("{s:s,s:O}", "type", "function", "function", function)) != 0)
            good = openai_no_memory(reader->error);
    }
    if (!good) {
        json_decref(tools);
        return reader->error->http == 0 ? openai_no_memory(reader->error) : false;
    }
    json_decref(reader->own_tools);
    reader->tools = reader->own_tools = tools;
    reader->r->functions = reader->r->one_call = true;
    return true;
}

bool openai_take_function_call(struct openai_reader *reader, const char *name, const json_t *value)
{
    const json_t *chosen = json_object_get(value, "name");
    const char *word = openai_word(value);
    json_t *choice = NULL;
    bool good = false;

    if (word != NULL && strcmp(word, "auto") != 0 && strcmp(word, "none") != 0)
        return openai_refuse(reader->error, "invalid_value", name, "%s must be 'auto', 'none' or name a function",
                             name);
    if (word == NULL && (!openai_expect(reader->error, name, value, JSON_OBJECT) ||
                         !openai_expect(reader->error, "function_call.name", chosen, JSON_STRING)))
        return false;
    choice =
        word != NULL ? json_string(word) : json_pack("{s:s,s:{s:O}}", "type", "function", "function", "name", chosen);
    good = choice != NULL ? openai_read_tool_choice(reader->r, name, choice, reader->error)
                          : openai_no_memory(reader->error);
    json_decref(choice);
    reader->no_tools = good && word != NULL && strcmp(word, "none") == 0;
    return good;
}

/* An assistant's call, and what the function said, in the form of tools. */
bool openai_fix_function(json_t *message, const char *where, struct openai_error *error)
{
    const char *role = openai_word(json_object_get(message, "role"));
    json_t *call = json_object_get(message, "function_call"), *calls = NULL;
    char param[96];

    if (strcmp(role, "function") == 0) {
        snprintf(param, sizeof param, "%.50s.name", where);
        return openai_expect_word(error, param, json_object_get(message, "name")) &&
               json_object_set_new(message, "role", json_string("tool")) == 0;
    }
    if (call == NULL)
        return true;
    snprintf(param, sizeof param, "%.50s.function_call", where);
    if (!openai_expect(error, param, call, JSON_OBJECT))
        return false;
    calls = json_pack("[{s:s,s:s,s:O}]", "id", "call_0", "type", "function", "function", call);
    return calls != NULL && json_object_set_new(message, "tool_calls", calls) == 0 &&
           json_object_del(message, "function_call") == 0;
}
