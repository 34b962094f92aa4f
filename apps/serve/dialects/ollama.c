/* Ollama's interface: /api/chat, /api/generate, /api/embed; ollama_models.c has what is about models. Answers in pieces
 * are lines of JSON; they are what a body gets that does not say otherwise. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "apps/serve/routes.h"

/* ---- Requests ---------------------------------------------------------------------------- */

#define EACH                                                                                              \
    {"model", OPENAI_STRING, false, 0, 0}, SERVE_ADAPTER_FIELDS, {"stream", OPENAI_BOOLEAN, false, 0, 0}, \
        {"options", OPENAI_OBJECT, false, 0, 0}, {"keep_alive", OPENAI_ANY, false, 0, 0},                 \
        {"format", OPENAI_ANY, false, 0, 0}, {"logprobs", OPENAI_BOOLEAN, false, 0, 0},                   \
        {"top_logprobs", OPENAI_WHOLE, false, 0, OPENAI_MAX_TOP_LOGPROBS},                                \
    {                                                                                                     \
        "think", OPENAI_ANY, false, 0, 0                                                                  \
    }

const struct openai_field ollama_chat_fields[] = {
    EACH, {"messages", OPENAI_MESSAGES, false, 0, 0}, {"tools", OPENAI_ARRAY, false, 0, 0}, {0}};

const struct openai_field ollama_generate_fields[] = {EACH,
                                                      {"prompt", OPENAI_STRING, false, 0, 0},
                                                      {"system", OPENAI_STRING, false, 0, 0},
                                                      {"raw", OPENAI_BOOLEAN, false, 0, 0},
                                                      {"suffix", OPENAI_STRING, false, 0, 0},
                                                      {"template", OPENAI_STRING, false, 0, 0},
                                                      {"context", OPENAI_ARRAY, false, 0, 0},
                                                      {"images", OPENAI_ARRAY, false, 0, 0},
                                                      {0}};

const struct openai_field ollama_embed_fields[] = {
    {"model", OPENAI_STRING, false, 0, 0},     SERVE_ADAPTER_FIELDS,
    {"input", OPENAI_STRINGS, false, 0, 0},    {"dimensions", OPENAI_WHOLE, false, 1, INT32_MAX},
    {"truncate", OPENAI_BOOLEAN, false, 0, 0}, {"options", OPENAI_OBJECT, false, 0, 0},
    {"keep_alive", OPENAI_ANY, false, 0, 0},   {0}};

const struct openai_field ollama_embeddings_fields[] = {
    {"model", OPENAI_STRING, false, 0, 0},   SERVE_ADAPTER_FIELDS,
    {"prompt", OPENAI_STRING, false, 0, 0},  {"options", OPENAI_OBJECT, false, 0, 0},
    {"keep_alive", OPENAI_ANY, false, 0, 0}, {0}};

const struct openai_field ollama_show_fields[] = {{"model", OPENAI_STRING, false, 0, 0},
                                                  {"name", OPENAI_STRING, false, 0, 0},
                                                  {"verbose", OPENAI_BOOLEAN, false, 0, 0},
                                                  {0}};

static bool copy(const json_t *from, const char *name, json_t *out, const char *as)
{
    json_t *value = json_object_get(from, name);

    return value == NULL || json_is_null(value) || json_object_set(out, as, value) == 0;
}

/* The options come first, and become fields as they are. */
static const struct serve_field_name names[] = {{"options.temperature", "temperature"},
                                                {"options.top_p", "top_p"},
                                                {"options.top_k", "top_k"},
                                                {"options.min_p", "min_p"},
                                                {"options.typical_p", "typical_p"},
                                                {"options.mirostat", "mirostat"},
                                                {"options.mirostat_tau", "mirostat_tau"},
                                                {"options.mirostat_eta", "mirostat_eta"},
                                                {"options.seed", "seed"},
                                                {"options.stop", "stop"},
                                                {"options.num_predict", "max_tokens"},
                                                {"options.repeat_last_n", "penalty_tokens"},
                                                {"options.repeat_penalty", "repetition_penalty"},
                                                {"options.frequency_penalty", "frequency_penalty"},
                                                {"options.presence_penalty", "presence_penalty"},
                                                {"format", "response_format.json_schema.schema"},
                                                {"format", "response_format"},
                                                {"think", "reasoning_effort"},
                                                {"think", "chat_template_kwargs"},
                                                {0}};

static const struct serve_field_name embeddings_names[] = {{"prompt", "input"}, {0}};

/* How far penalties look back: 64 tokens unless told. -1 is everything, which is 0 here; 0 is nothing at all. */
static bool read_window(json_t *out)
{
    const json_t *window = json_object_get(out, "penalty_tokens");

    if (window == NULL)
        return json_object_set_new(out, "penalty_tokens", json_integer(64)) == 0;
    if (!json_is_integer(window) || json_integer_value(window) > 0)
        return true;
    if (json_integer_value(window) == 0)
        return json_object_set_new(out, "repetition_penalty", json_real(1)) == 0 &&
               json_object_set_new(out, "frequency_penalty", json_real(0)) == 0 &&
               json_object_set_new(out, "presence_penalty", json_real(0)) == 0;
    return json_integer_value(window) < -1 || json_object_set_new(out, "penalty_tokens", json_integer(0)) == 0;
}

/* Numbers that mean to Ollama what a field that is missing means: no limit, and a seed of the server's. */
static void drop_usual(json_t *out)
{
    const json_t *most = json_object_get(out, "max_tokens"), *seed = json_object_get(out, "seed");

    if (json_is_integer(most) && json_integer_value(most) <= 0)
        json_object_del(out, "max_tokens");
    if (json_is_integer(seed) && json_integer_value(seed) == -1)
        json_object_del(out, "seed");
}

/* With mirostat no other filter acts. */
static bool read_mirostat(const json_t *options, json_t *out)
{
    return json_integer_value(json_object_get(options, "mirostat")) == 0 ||
           json_object_set_new(out, "samplers", json_string("penalties,temperature,mirostat")) == 0;
}

/* "options", and what Ollama takes where they say nothing. Those of loading (num_ctx, ...) are not for a request. */
static bool read_options(const json_t *body, json_t *out, struct openai_error *error)
{
    static const char inside[] = "options.";
    const size_t n = sizeof inside - 1;
    const json_t *options = json_object_get(body, "options");
    bool good = json_object_set_new(out, "temperature", json_real(0.8)) == 0 &&
                json_object_set_new(out, "top_p", json_real(0.9)) == 0 &&
                json_object_set_new(out, "top_k", json_integer(40)) == 0;

    if (options == NULL || json_is_null(options))
        return good;
    if (!openai_expect(error, "options", options, JSON_OBJECT))
        return false;
    for (size_t i = 0; good && strncmp(names[i].theirs, inside, n) == 0; i++)
        good = copy(options, names[i].theirs + n, out, names[i].ours);
    drop_usual(out);
    return good && read_window(out) && read_mirostat(options, out);
}

/* Whether the model thinks aloud, and how much. */
static bool read_think(const json_t *body, json_t *out, struct openai_error *error)
{
    static const char *const efforts[] = {"low", "medium", "high", "max"};
    json_t *think = json_object_get(body, "think");
    const char *effort = openai_word(think);
    bool known = think == NULL || json_is_null(think) || json_is_boolean(think);

    for (size_t i = 0; i < sizeof efforts / sizeof efforts[0]; i++)
        known = known || (effort != NULL && strcmp(effort, efforts[i]) == 0);
    if (!known)
        return openai_refuse(error, "invalid_value", "think",
                             "think must be true, false, 'low', 'medium', 'high' or 'max'");
    if (think == NULL || json_is_null(think))
        return true;
    return json_object_set_new(out, "chat_template_kwargs",
                               json_pack("{s:b}", "enable_thinking", !json_is_false(think))) == 0 &&
           (effort == NULL || json_object_set(out, "reasoning_effort", think) == 0);
}

/* "json", or a schema. As with Ollama, objects that list properties and say nothing of others have no others. */
static bool read_format(const json_t *body, json_t *out, struct openai_error *error)
{
    const json_t *format = json_object_get(body, "format");
    const char *name = openai_word(format);
    json_t *value = NULL;

    if (format == NULL || json_is_null(format) || (name != NULL && json_string_length(format) == 0))
        return true;
    if (name != NULL && strcmp(name, "json") == 0)
        value = json_pack("{s:s}", "type", "json_object");
    else if (json_is_object(format))
        value = json_pack("{s:s,s:{s:s,s:b,s:O}}", "type", "json_schema", "json_schema", "name", "format", "strict", 1,
                          "schema", format);
    else
        return openai_refuse(error, "invalid_value", "format", "format must be 'json' or a schema");
    return json_object_set_new(out, "response_format", value) == 0 &&
           (name != NULL || json_object_set_new(out, "grammar_options", json_pack("{s:b}", "closed", 1)) == 0);
}

/* "logprobs" of a chat are true or false, of a completion how many of the best are told with each. */
static bool read_logprobs(const json_t *body, json_t *out, bool chat, struct openai_error *error)
{
    const json_t *logprobs = json_object_get(body, "logprobs"), *top = json_object_get(body, "top_logprobs");

    if (!json_is_true(logprobs))
        return json_integer_value(top) == 0 ||
               openai_refuse(error, "invalid_value", "top_logprobs", "top_logprobs needs logprobs to be true");
    if (chat)
        return copy(body, "logprobs", out, "logprobs") && copy(body, "top_logprobs", out, "top_logprobs");
    return json_object_set_new(out, "logprobs", json_integer(json_integer_value(top))) == 0;
}

/* A new body with what /api/chat and /api/generate share; NULL: *error, or no memory. chat: of a chat, not of a
 * completion. */
static json_t *translate(const json_t *body, bool chat, struct openai_error *error)
{
    json_t *out = json_object(), *stream = json_object_get(body, "stream");

    if (out != NULL && copy(body, "model", out, "model") &&
        json_object_set(out, "stream", stream != NULL && !json_is_null(stream) ? stream : json_true()) == 0 &&
        read_options(body, out, error) && read_think(body, out, error) && read_format(body, out, error) &&
        read_logprobs(body, out, chat, error))
        return out;
    json_decref(out);
    return NULL;
}

/* A content that is missing is an empty one: Ollama's client leaves it out. What was thought, and which tool has
 * answered, have other names in OpenAI's form, unless a message has both. */
static bool fix_members(json_t *message)
{
    static const char *const renamed[][2] = {{"thinking", "reasoning_content"}, {"tool_name", "name"}};
    json_t *content = json_object_get(message, "content");

    if ((content == NULL || json_is_null(content)) && json_object_set_new(message, "content", json_string("")) != 0)
        return false;
    for (size_t i = 0; i < sizeof renamed / sizeof renamed[0]; i++) {
        json_t *value = json_object_get(message, renamed[i][0]);

        if (json_string_length(value) > 0 && json_object_get(message, renamed[i][1]) == NULL &&
            json_object_set(message, renamed[i][1], value) != 0)
            return false;
        json_object_del(message, renamed[i][0]);
    }
    return true;
}

/* Arguments of calls come as objects, and OpenAI's are texts. */
static bool fix_calls(json_t *message)
{
    json_t *call = NULL, *arguments = NULL;
    char *text = NULL;
    size_t i = 0;
    bool good = true;

    json_array_foreach(json_object_get(message, "tool_calls"), i, call)
    {
        arguments = json_object_get(json_object_get(call, "function"), "arguments");
        if (!json_is_object(arguments))
            continue;
        text = openai_dump(arguments);
        good = text != NULL &&
               json_object_set_new(json_object_get(call, "function"), "arguments", json_string(text)) == 0 && good;
        free(text);
        if (json_object_get(call, "type") == NULL)
            good = json_object_set_new(call, "type", json_string("function")) == 0 && good;
    }
    return good;
}

static bool fix_message(json_t *message, size_t i, struct openai_error *error)
{
    char param[48];

    snprintf(param, sizeof param, "messages[%zu]", i);
    if (!openai_expect(error, param, message, JSON_OBJECT))
        return false;
    snprintf(param, sizeof param, "messages[%zu].images", i);
    if (json_array_size(json_object_get(message, "images")) > 0)
        return openai_refuse(error, "unsupported_value", param, "%s: images are not supported", param);
    json_object_del(message, "images");
    return fix_members(message) && fix_calls(message);
}

static json_t *translate_chat(const json_t *body, struct openai_error *error)
{
    json_t *out = translate(body, true, error), *messages = NULL;
    bool good = out != NULL;

    if (!good)
        return NULL;
    messages = json_deep_copy(json_object_get(body, "messages"));
    good = openai_expect(error, "messages", messages, JSON_ARRAY);
    for (size_t i = 0; good && i < json_array_size(messages); i++)
        good = fix_message(json_array_get(messages, i), i, error);
    good = good && json_object_set(out, "messages", messages) == 0 && copy(body, "tools", out, "tools");
    if (good && openai_is_begun(messages))
        good = json_object_set_new(out, "continue_final_message", json_true()) == 0;
    json_decref(messages);
    if (good)
        return out;
    json_decref(out);
    return NULL;
}

static bool has_suffix(const json_t *body)
{
    return json_string_length(json_object_get(body, "suffix")) > 0;
}

static bool is_raw(const json_t *body)
{
    return json_is_true(json_object_get(body, "raw"));
}

static enum openai_endpoint endpoint_of_generate(const json_t *body)
{
    return has_suffix(body) || is_raw(body) ? OPENAI_COMPLETIONS : OPENAI_CHAT;
}

/* The text between prompt and suffix, a completion of a model that fills gaps; or a raw prompt, which its client has
 * written with all that a template would write: control tokens in it are control tokens. */
static json_t *translate_text(const json_t *body, struct openai_error *error)
{
    json_t *out = NULL;
    bool raw = is_raw(body);

    if (json_string_length(json_object_get(body, "system")) > 0) {
        openai_refuse(error, "unsupported_value", "system", "a system's text does not go with a %s",
                      raw ? "raw prompt" : "suffix");
        return NULL;
    }
    if (raw && has_suffix(body)) {
        openai_refuse(error, "unsupported_value", "suffix", "a suffix does not go with a raw prompt");
        return NULL;
    }
    out = translate(body, false, error);
    if (out != NULL && copy(body, "prompt", out, "prompt") && copy(body, "suffix", out, "suffix") &&
        (!raw || json_object_set_new(out, "parse_special", json_true()) == 0) &&
        (json_object_get(out, "max_tokens") != NULL ||
         json_object_set_new(out, "max_tokens", json_integer(INT32_MAX)) == 0))
        return out;
    json_decref(out);
    return NULL;
}

/* What cannot be done here. */
static bool judge_generate(const json_t *body, struct openai_error *error)
{
    if (json_string_length(json_object_get(body, "template")) > 0)
        return openai_refuse(error, "unsupported_value", "template", "templates of clients are not taken");
    if (json_array_size(json_object_get(body, "context")) > 0)
        return openai_refuse(error, "unsupported_value", "context", "contexts are not kept: /api/chat takes turns");
    if (json_array_size(json_object_get(body, "images")) > 0)
        return openai_refuse(error, "unsupported_value", "images", "images are not supported");
    return openai_expect(error, "prompt", json_object_get(body, "prompt"), JSON_STRING);
}

/* A prompt is a conversation of one message, unless it is raw or has a suffix. */
static json_t *translate_generate(const json_t *body, struct openai_error *error)
{
    const json_t *prompt = json_object_get(body, "prompt"), *system = json_object_get(body, "system");
    json_t *out = NULL, *messages = json_array();
    bool good = messages != NULL && judge_generate(body, error);

    if (good && endpoint_of_generate(body) == OPENAI_COMPLETIONS) {
        json_decref(messages);
        return translate_text(body, error);
    }
    if (good && json_string_length(system) > 0)
        good = json_array_append_new(messages, json_pack("{s:s,s:O}", "role", "system", "content", system)) == 0;
    good = good && json_array_append_new(messages, json_pack("{s:s,s:O}", "role", "user", "content", prompt)) == 0;
    out = good ? translate(body, true, error) : NULL;
    if (out != NULL && json_object_set(out, "messages", messages) != 0) {
        json_decref(out);
        out = NULL;
    }
    json_decref(messages);
    return out;
}

/* A text, or several. */
static bool judge_input(const json_t *input, struct openai_error *error)
{
    char name[32];

    if (!json_is_array(input))
        return json_is_string(input) ||
               openai_refuse(error, "invalid_type", "input", "input must be a string or an array of strings");
    for (size_t i = 0; i < json_array_size(input); i++) {
        snprintf(name, sizeof name, "input[%zu]", i);
        if (!openai_expect(error, name, json_array_get(input, i), JSON_STRING))
            return false;
    }
    return true;
}

static json_t *translate_embed(const json_t *body, struct openai_error *error)
{
    json_t *out = judge_input(json_object_get(body, "input"), error) ? json_object() : NULL;

    if (out != NULL && copy(body, "model", out, "model") && copy(body, "input", out, "input") &&
        copy(body, "dimensions", out, "dimensions"))
        return out;
    json_decref(out);
    return NULL;
}

/* Log-probabilities are of the text alone. */
static void wish_text(struct serve_task *task, const json_t *body)
{
    (void)body;
    task->request.ends_untold = true;
}

/* Texts that are too long are cut unless that is forbidden. */
static void wish_embed(struct serve_task *task, const json_t *body)
{
    task->wish.truncate = !json_is_false(json_object_get(body, "truncate"));
}

/* The older form: one text, and its vector as the model gives it. */
static json_t *translate_embeddings(const json_t *body, struct openai_error *error)
{
    json_t *out = json_object();

    (void)error;
    if (out != NULL && copy(body, "model", out, "model") && copy(body, "prompt", out, "input") &&
        json_object_set_new(out, "normalize", json_false()) == 0)
        return out;
    json_decref(out);
    return NULL;
}

/* ---- Answers ----------------------------------------------------------------------------- */

/* "model": .., "created_at": .. */
static void put_head(FILE *to, const struct serve_task *task)
{
    time_t now = (time_t)task->head.created;
    struct tm parts;
    char text[40];

    gmtime_r(&now, &parts);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
    fputs("{\"model\":", to);
    openai_string_write(to, task->request.model != NULL ? task->request.model : task->head.model);
    fprintf(to, ",\"created_at\":\"%s\"", text);
}

/* In nanoseconds: since the request came, and the part of it in which its model was not loaded yet. */
static void put_durations(FILE *to, const struct serve_task *task)
{
    fprintf(to, "\"total_duration\":%llu,\"load_duration\":%llu",
            (unsigned long long)(uv_hrtime() - task->visit->began_ns),
            (unsigned long long)(task->began_ns - task->visit->began_ns));
}

/* From the reason on. The prompt's time ends with the first token. */
static void put_tail(FILE *to, const struct serve_task *task)
{
    const struct openai_choice *choice = &task->choices[0];
    const runnel_timings *t = &choice->timings;
    uint64_t first_us = t->first_token_us > 0 ? t->first_token_us : t->end_us;

    fprintf(to, ",\"done\":true,\"done_reason\":\"%s\",", choice->finish == RUNNEL_FINISH_LENGTH ? "length" : "stop");
    put_durations(to, task);
    fprintf(to, ",\"prompt_eval_count\":%llu,\"prompt_eval_duration\":%llu,\"eval_count\":%llu,\"eval_duration\":%llu}",
            (unsigned long long)choice->usage.prompt_tokens, (unsigned long long)(first_us - t->admitted_us) * 1000,
            (unsigned long long)choice->usage.completion_tokens, (unsigned long long)(t->end_us - first_us) * 1000);
}

static void put_buffer(FILE *to, struct openai_buffer *buffer)
{
    fflush(buffer->to);
    app_json_string(to, buffer->n > 0 ? buffer->bytes : "", buffer->n);
}

static void put_thinking(FILE *to, struct openai_choice *choice)
{
    fflush(choice->reasoning.to);
    if (choice->reasoning.n == 0)
        return;
    fputs(",\"thinking\":", to);
    put_buffer(to, &choice->reasoning);
}

/* Those that have come since the last time. */
static void put_entries(FILE *to, struct openai_choice *choice)
{
    if (choice->n_entries == 0)
        return;
    fputs(",\"logprobs\":", to);
    openai_logprobs_take(to, choice);
}

/* The format's id, or one of ours: "chatcmpl-0123.." makes "call_0123.._0". */
static void put_call_id(FILE *to, const struct serve_task *task, struct openai_call *call, size_t i)
{
    fflush(call->id.to);
    if (call->id.n > 0)
        put_buffer(to, &call->id);
    else
        fprintf(to, "\"call_%s_%zu\"", strchr(task->head.id, '-') + 1, i);
}

static void put_calls(FILE *to, struct serve_task *task)
{
    struct openai_choice *choice = &task->choices[0];
    const char *comma = "";

    fputs(",\"tool_calls\":[", to);
    for (size_t i = 0; i < choice->n_calls; i++) {
        struct openai_call *call = choice->calls[i];

        if (!call->complete)
            continue;
        fflush(call->arguments.to);
        fprintf(to, "%s{\"id\":", comma);
        put_call_id(to, task, call, i);
        fprintf(to, ",\"function\":{\"index\":%zu,\"name\":", i);
        put_buffer(to, &call->name);
        fputs(",\"arguments\":", to);
        if (call->arguments.n > 0)
            app_json_line(to, call->arguments.bytes, call->arguments.n); /* as the model has written them */
        else
            fputs("{}", to);
        fputs("}}", to);
        comma = ",";
    }
    fputc(']', to);
}

static bool has_calls(const struct openai_choice *choice)
{
    for (size_t i = 0; i < choice->n_calls; i++)
        if (choice->calls[i]->complete)
            return true;
    return false;
}

static void answer_chat(struct serve_task *task, FILE *to)
{
    struct openai_choice *choice = &task->choices[0];

    put_head(to, task);
    fputs(",\"message\":{\"role\":\"assistant\",\"content\":", to);
    put_buffer(to, &choice->content);
    put_thinking(to, choice);
    if (has_calls(choice))
        put_calls(to, task);
    fputc('}', to);
    put_entries(to, choice);
    put_tail(to, task);
}

static void answer_generate(struct serve_task *task, FILE *to)
{
    put_head(to, task);
    fputs(",\"response\":", to);
    put_buffer(to, &task->choices[0].content);
    put_thinking(to, &task->choices[0]);
    put_entries(to, &task->choices[0]);
    put_tail(to, task);
}

static void put_vector(FILE *to, const struct openai_choice *choice)
{
    fputc('[', to);
    for (size_t k = 0; k < choice->n_embedding; k++)
        fprintf(to, "%s%.9g", k > 0 ? "," : "", (double)choice->embedding[k]);
    fputc(']', to);
}

static void answer_embeddings(struct serve_task *task, FILE *to)
{
    fputs("{\"embedding\":", to);
    put_vector(to, &task->choices[0]);
    fputc('}', to);
}

static void answer_embed(struct serve_task *task, FILE *to)
{
    unsigned long long tokens = 0;

    fputs("{\"model\":", to);
    openai_string_write(to, task->request.model != NULL ? task->request.model : task->head.model);
    fputs(",\"embeddings\":[", to);
    for (size_t i = 0; i < task->n_choices; i++) {
        const struct openai_choice *choice = &task->choices[i];

        fputs(i > 0 ? "," : "", to);
        put_vector(to, choice);
        tokens += choice->usage.prompt_tokens;
    }
    fputs("],", to);
    put_durations(to, task);
    fprintf(to, ",\"prompt_eval_count\":%llu}", tokens);
}

/* ---- Answers in pieces ------------------------------------------------------------------- */

/* A line with a fragment of the text, or of the thoughts. */
static void put_line(struct serve_task *task, const runnel_event *event)
{
    FILE *to = NULL;
    struct openai_choice *choice = &task->choices[0];
    bool chat = task->dialect == &serve_ollama_chat, thinks = event->type == RUNNEL_EVENT_REASONING;

    if (task->request.logprobs)
        openai_choice_event(choice, event);
    if (event->text_bytes == 0 && choice->n_entries == 0)
        return;
    serve_task_begin(task);
    to = serve_write(task->serve);
    put_head(to, task);
    fputs(chat ? ",\"message\":{\"role\":\"assistant\",\"content\":" : ",\"response\":", to);
    app_json_string(to, thinks ? "" : event->text, thinks ? 0 : event->text_bytes);
    if (thinks) {
        fputs(",\"thinking\":", to);
        app_json_string(to, event->text, event->text_bytes);
    }
    fputs(chat ? "}" : "", to);
    put_entries(to, choice);
    fputs(",\"done\":false}\n", to);
    serve_task_send(task);
}

/* Calls are told at their end, whole. */
static void chunk(struct serve_task *task, struct serve_stream *stream, const runnel_event *event)
{
    switch (event->type) {
    case RUNNEL_EVENT_TOKEN:
    case RUNNEL_EVENT_REASONING:
        put_line(task, event);
        break;
    case RUNNEL_EVENT_PROGRESS:
        break;
    default:
        openai_choice_event(serve_choice(stream), event);
        break;
    }
}

static void end(struct serve_task *task)
{
    struct openai_choice *choice = &task->choices[0];
    bool chat = task->dialect == &serve_ollama_chat;
    FILE *to = NULL;

    serve_task_begin(task);
    to = serve_write(task->serve);
    put_head(to, task);
    if (chat) {
        fputs(",\"message\":{\"role\":\"assistant\",\"content\":\"\"", to);
        if (has_calls(choice))
            put_calls(to, task);
        fputc('}', to);
    } else {
        fputs(",\"response\":\"\"", to);
    }
    put_entries(to, choice);
    put_tail(to, task);
    fputc('\n', to);
    serve_task_send(task);
}

static void put_error(FILE *to, const struct openai_error *error, const char *id)
{
    (void)id;
    fputs("{\"error\":", to);
    openai_sentence_write(to, error->message);
    fputc('}', to);
}

static void too_long(struct openai_error *error, const struct serve_length *length)
{
    (void)length;
    serve_put_before(error, "the input length exceeds the context length: ");
}

static void fail(struct serve_task *task, const struct openai_error *error)
{
    FILE *to = serve_write(task->serve);

    put_error(to, error, NULL);
    fputc('\n', to);
    serve_task_send(task);
}

#define PIECES                                                                                                         \
    .stream_type = "application/x-ndjson", .llama_entries = true, .free_ranges = true, .names = names, .chunk = chunk, \
    .end = end, .fail = fail, .put_error = put_error, .wish = wish_text, .too_long = too_long

const struct serve_dialect serve_ollama_chat = {PIECES, .translate = translate_chat, .answer = answer_chat};
const struct serve_dialect serve_ollama_generate = {PIECES, .translate = translate_generate,
                                                    .endpoint = endpoint_of_generate, .answer = answer_generate};
const struct serve_dialect serve_ollama_embed = {.translate = translate_embed,
                                                 .wish = wish_embed,
                                                 .answer = answer_embed,
                                                 .put_error = put_error,
                                                 .too_long = too_long};
const struct serve_dialect serve_ollama_embeddings = {.translate = translate_embeddings,
                                                      .names = embeddings_names,
                                                      .answer = answer_embeddings,
                                                      .put_error = put_error,
                                                      .too_long = too_long};
