/* Bodies in OpenAI's form: a table of fields, and what fits none of its kinds. See openai_request.h. */
#include "openai_reader.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum kind {
    NUMBER,     /* float at `at` in [min, max] */
    NARROW,     /* likewise; OPENAI_FREE knows no bound but 0 */
    INTEGER,    /* int64_t at `at` in [min, max] */
    FLAG,       /* bool at `at` */
    IGNORED,    /* known, and of no meaning here */
    REFUSED,    /* known, and not supported */
    FALSE_ONLY, /* a boolean that must be false */
    SPECIAL     /* `read`; what it takes is `shape` */
};

struct field {
    const char *name;
    unsigned endpoints;
    enum kind kind;
    size_t at;
    double min, max;
    bool (*read)(struct openai_reader *reader, const char *name, const json_t *value);
    enum openai_shape shape; /* of what `read` takes, and of IGNORED; the other kinds tell it themselves */
};

/* ---- Single values ----------------------------------------------------------------------- */

static bool read_number(struct openai_reader *reader, const struct field *field, const json_t *value)
{
    double number = json_number_value(value);
    bool free_range = field->kind == NARROW && reader->r->rules == OPENAI_FREE;
    double min = free_range && field->min < 0 ? (double)-FLT_MAX : field->min;
    double max = free_range ? (double)FLT_MAX : field->max;

    if (!json_is_number(value))
        return openai_expect(reader->error, field->name, value, JSON_REAL);
    if (!(number >= min && number <= max))
        return openai_refuse(reader->error, "invalid_value", field->name, "%s is %g; allowed is %g to %g", field->name,
                             number, min, max);
    *(float *)((char *)reader->r + field->at) = (float)number;
    return true;
}

bool openai_read_integer(struct openai_error *error, const char *name, const json_t *value, double min, double max,
                         int64_t *out)
{
    json_int_t number = json_integer_value(value);

    if (openai_is_too_long(value))
        return openai_refuse(error, "invalid_value", name, "%s is %g; allowed is %.0f to %.0f", name,
                             json_real_value(value), min, max);
    if (!openai_expect(error, name, value, JSON_INTEGER))
        return false;
    if ((double)number < min || (double)number > max)
        return openai_refuse(error, "invalid_value", name, "%s is %lld; allowed is %.0f to %.0f", name,
                             (long long)number, min, max);
    *out = number;
    return true;
}

static bool read_model(struct openai_reader *reader, const char *name, const json_t *value)
{
    if (!openai_expect_word(reader->error, name, value))
        return false;
    reader->r->model = strdup(json_string_value(value));
    return reader->r->model != NULL || openai_no_memory(reader->error);
}

static bool read_adapter(struct openai_reader *reader, const char *name, const json_t *value)
{
    if (!openai_expect_word(reader->error, name, value))
        return false;
    reader->r->adapter = strdup(json_string_value(value));
    return reader->r->adapter != NULL || openai_no_memory(reader->error);
}

static bool read_seed(struct openai_reader *reader, const char *name, const json_t *value)
{
    if (!openai_expect(reader->error, name, value, JSON_INTEGER))
        return false;
    reader->r->sampling.seed = (uint64_t)json_integer_value(value);
    reader->r->has_seed = true;
    return true;
}

static bool read_top_p(struct openai_reader *reader, const char *name, const json_t *value)
{
    static const struct field field = {"top_p", 0, NUMBER, offsetof(struct openai_request, sampling.top_p),
                                       0,       1, NULL,   0};
    float *top_p = &reader->r->sampling.top_p;

    (void)name;
    if (!read_number(reader, &field, value))
        return false;
    *top_p = *top_p > 0 ? *top_p : FLT_MIN; /* 0: the likeliest alone */
    return true;
}

static bool read_repetition(struct openai_reader *reader, const char *name, const json_t *value)
{
    float *penalty = &reader->r->sampling.repetition_penalty;
    double number = json_number_value(value);

    if (!json_is_number(value))
        return openai_expect(reader->error, name, value, JSON_REAL);
    *penalty = (float)number;
    if (*penalty > 0 && isfinite(*penalty))
        return true;
    return openai_refuse(reader->error, "invalid_value", name, "%s is %g; it must be above 0", name, number);
}

static bool read_top_k(struct openai_reader *reader, const char *name, const json_t *value)
{
    int64_t top_k = 0;

    if (!openai_read_integer(reader->error, name, value, -1, UINT32_MAX, &top_k))
        return false;
    reader->r->sampling.top_k = top_k > 0 ? (uint32_t)top_k : 0;
    return true;
}

static bool read_penalty_tokens(struct openai_reader *reader, const char *name, const json_t *value)
{
    int64_t n = 0;

    if (!openai_read_integer(reader->error, name, value, 0, UINT32_MAX, &n))
        return false;
    reader->r->sampling.penalty_tokens = (uint32_t)n;
    return true;
}

static bool read_normalize(struct openai_reader *reader, const char *name, const json_t *value)
{
    reader->r->as_it_is = json_is_false(value);
    return openai_expect(reader->error, name, value, JSON_TRUE);
}

static bool read_chat_tokens(struct openai_reader *reader, const char *name, const json_t *value)
{
    return openai_read_integer(reader->error, name, value, 1, INT32_MAX, &reader->chat_tokens);
}

static bool read_chat_logprobs(struct openai_reader *reader, const char *name, const json_t *value)
{
    reader->chat_logprobs = json_is_true(value);
    return openai_expect(reader->error, name, value, JSON_TRUE);
}

static bool read_logprobs(struct openai_reader *reader, const char *name, const json_t *value)
{
    int64_t most = reader->r->rules == OPENAI_FREE ? RUNNEL_MAX_TOP_LOGPROBS : OPENAI_MAX_TOP_LOGPROBS;

    reader->r->logprobs = true;
    return openai_read_integer(reader->error, name, value, 0, (double)most, &reader->r->top_logprobs);
}

/* ---- Stops -------------------------------------------------------------------- */

static bool add_stop(struct openai_reader *reader, const char *name, const json_t *value)
{
    struct openai_request *r = reader->r;
    size_t n = json_string_length(value);

    if (!openai_expect(reader->error, name, value, JSON_STRING))
        return false;
    if (n == 0 || n > RUNNEL_MAX_STOP_BYTES || strlen(json_string_value(value)) != n)
        return openai_refuse(reader->error, "invalid_value", name, "%s: a stop has 1 to %d bytes, none of them zero",
                             name, RUNNEL_MAX_STOP_BYTES);
    r->stops[r->n_stops] = strdup(json_string_value(value));
    if (r->stops[r->n_stops] == NULL)
        return openai_no_memory(reader->error);
    r->n_stops++;
    return true;
}

static bool read_stop(struct openai_reader *reader, const char *name, const json_t *value)
{
    size_t n = json_is_array(value) ? json_array_size(value) : 1;
    char param[32];

    if (!json_is_string(value) && !json_is_array(value))
        return openai_refuse(reader->error, "invalid_type", name, "%s must be a string or an array of strings", name);
    if (n > RUNNEL_MAX_STOPS)
        return openai_refuse(reader->error, "invalid_value", name, "%s has %zu strings; at most %d are allowed", name,
                             n, RUNNEL_MAX_STOPS);
    reader->r->stops = calloc(n + 1, sizeof *reader->r->stops);
    if (reader->r->stops == NULL)
        return openai_no_memory(reader->error);
    if (json_is_string(value))
        return add_stop(reader, name, value);
    for (size_t i = 0; i < json_array_size(value); i++) {
        snprintf(param, sizeof param, "stop[%zu]", i);
        if (!add_stop(reader, param, json_array_get(value, i)))
            return false;
    }
    return true;
}

/* ---- Prompts ----------------------------------------------------------------------------- */

static bool copy_text(struct openai_reader *reader, const json_t *value)
{
    struct openai_prompt *prompt = &reader->r->prompts[reader->r->n_prompts];
    size_t n = json_string_length(value);

    prompt->text = malloc(n + 1);
    if (prompt->text == NULL)
        return openai_no_memory(reader->error);
    memcpy(prompt->text, json_string_value(value), n + 1);
    prompt->text_bytes = n;
    reader->r->n_prompts++;
    return true;
}

static bool copy_tokens(struct openai_reader *reader, const char *name, const json_t *ids)
{
    struct openai_prompt *prompt = &reader->r->prompts[reader->r->n_prompts];
    size_t n = json_array_size(ids);
    int64_t id = 0;
    char param[64];

    prompt->tokens = calloc(n, sizeof *prompt->tokens);
    if (prompt->tokens == NULL)
        return openai_no_memory(reader->error);
    reader->r->n_prompts++;
    for (size_t i = 0; i < n; i++) {
        snprintf(param, sizeof param, "%.32s[%zu]", name, i);
        if (!openai_read_integer(reader->error, param, json_array_get(ids, i), 0, INT32_MAX, &id))
            return false;
        prompt->tokens[i] = (int32_t)id;
    }
    prompt->n_tokens = n;
    return true;
}

/* One of several prompts: a text, or ids. */
static bool copy_prompt(struct openai_reader *reader, const char *name, const json_t *value)
{
    if (json_is_string(value))
        return copy_text(reader, value);
    if (json_is_array(value) && json_array_size(value) > 0)
        return copy_tokens(reader, name, value);
    return openai_refuse(reader->error, "invalid_type", name, "%s must be a string or an array of token ids", name);
}

static bool read_prompt(struct openai_reader *reader, const char *name, const json_t *value)
{
    bool several = json_is_array(value) && !json_is_integer(json_array_get(value, 0));
    size_t n = several ? json_array_size(value) : 1;
    char param[32];

    if (n == 0 || n > OPENAI_MAX_CHOICES)
        return openai_refuse(reader->error, "invalid_value", name, "%s has %zu elements; allowed is 1 to %d", name, n,
                             OPENAI_MAX_CHOICES);
    reader->r->prompts = calloc(n, sizeof *reader->r->prompts);
    if (reader->r->prompts == NULL)
        return openai_no_memory(reader->error);
    if (!several)
        return copy_prompt(reader, name, value);
    for (size_t i = 0; i < n; i++) {
        snprintf(param, sizeof param, "%.8s[%zu]", name, i);
        if (!copy_prompt(reader, param, json_array_get(value, i)))
            return false;
    }
    return true;
}

static bool read_encoding(struct openai_reader *reader, const char *name, const json_t *value)
{
    if (!openai_expect(reader->error, name, value, JSON_STRING))
        return false;
    reader->r->base64 = strcmp(openai_word(value), "base64") == 0;
    if (reader->r->base64 || strcmp(openai_word(value), "float") == 0)
        return true;
    return openai_refuse(reader->error, "invalid_value", name, "%s must be 'float' or 'base64'", name);
}

static bool read_pooling(struct openai_reader *reader, const char *name, const json_t *value)
{
    static const char *const words[] = {
        [RUNNEL_POOLING_MEAN] = "mean", [RUNNEL_POOLING_FIRST] = "first", [RUNNEL_POOLING_LAST] = "last"};

    if (!openai_expect(reader->error, name, value, JSON_STRING))
        return false;
    for (int i = RUNNEL_POOLING_MEAN; i <= RUNNEL_POOLING_LAST; i++)
        if (strcmp(openai_word(value), words[i]) == 0) {
            reader->r->pooling = (runnel_pooling)i;
            return true;
        }
    return openai_refuse(reader->error, "invalid_value", name, "%s must be 'mean', 'first' or 'last'", name);
}

/* ---- Chats ------------------------------------------------------------------------------- */

static bool read_messages(struct openai_reader *reader, const char *name, const json_t *value)
{
    json_t *messages = openai_messages(value, reader->error);

    (void)name;
    if (messages == NULL)
        return reader->error->http != 0 ? false : openai_no_memory(reader->error);
    reader->r->messages = openai_dump(messages);
    json_decref(messages);
    return reader->r->messages != NULL || openai_no_memory(reader->error);
}

static bool read_tools(struct openai_reader *reader, const char *name, const json_t *value)
{
    (void)name;
    reader->tools = value;
    return openai_tools_check(value, reader->error);
}

static bool read_parallel_calls(struct openai_reader *reader, const char *name, const json_t *value)
{
    reader->r->one_call = json_is_false(value);
    return openai_expect(reader->error, name, value, JSON_TRUE);
}

static bool read_format(struct openai_reader *reader, const char *name, const json_t *value)
{
    return openai_read_format(reader->r, name, value, reader->error);
}

static bool read_modalities(struct openai_reader *reader, const char *name, const json_t *value)
{
    const char *first = openai_word(json_array_get(value, 0));

    if (!openai_expect(reader->error, name, value, JSON_ARRAY))
        return false;
    if (json_array_size(value) == 1 && first != NULL && strcmp(first, "text") == 0)
        return true;
    return openai_refuse(reader->error, "unsupported_value", name, "%s: only [\"text\"] is supported", name);
}

static bool read_variables(struct openai_reader *reader, const char *name, const json_t *value)
{
    reader->variables = value;
    return openai_expect(reader->error, name, value, JSON_OBJECT);
}

/* vLLM's name for a variable that templates of models with retrieval read. */
static bool read_documents(struct openai_reader *reader, const char *name, const json_t *value)
{
    reader->documents = value;
    return openai_expect(reader->error, name, value, JSON_ARRAY);
}

static bool read_generation_prompt(struct openai_reader *reader, const char *name, const json_t *value)
{
    reader->r->no_generation_prompt = json_is_false(value);
    reader->asks_prompt = json_is_true(value);
    return openai_expect(reader->error, name, value, JSON_TRUE);
}

static bool read_include_reasoning(struct openai_reader *reader, const char *name, const json_t *value)
{
    reader->r->hides_reasoning = json_is_false(value);
    return openai_expect(reader->error, name, value, JSON_TRUE);
}

static bool read_effort(struct openai_reader *reader, const char *name, const json_t *value)
{
    reader->effort = value;
    return openai_expect(reader->error, name, value, JSON_STRING);
}

/* ---- The table --------------------------------------------------------------------------- */

#define BOTH (OPENAI_CHAT | OPENAI_COMPLETIONS)
#define TALK (OPENAI_CHAT | OPENAI_RESPONSES)
#define ANSWERS (BOTH | OPENAI_RESPONSES)
#define AT(field) offsetof(struct openai_request, field)

static const struct field fields[] = {
    {"model", ANSWERS | OPENAI_POOLED, SPECIAL, 0, 0, 0, read_model, OPENAI_STRING},
    {"adapter", ANSWERS | OPENAI_POOLED, SPECIAL, 0, 0, 0, read_adapter, OPENAI_STRING},
    {"messages", OPENAI_CHAT, SPECIAL, 0, 0, 0, read_messages, OPENAI_MESSAGES},
    {"prompt", OPENAI_COMPLETIONS, SPECIAL, 0, 0, 0, read_prompt, OPENAI_PROMPTS},
    {"query", OPENAI_RERANK, SPECIAL, 0, 0, 0, openai_take_query, OPENAI_STRING},
    {"documents", OPENAI_RERANK, SPECIAL, 0, 0, 0, openai_take_documents, OPENAI_ARRAY},
    {"texts", OPENAI_RERANK, SPECIAL, 0, 0, 0, openai_take_documents, OPENAI_ARRAY},
    {"top_n", OPENAI_RERANK, INTEGER, AT(top_n), 1, INT32_MAX, NULL, 0},
    {"return_documents", OPENAI_RERANK, SPECIAL, 0, 0, 0, openai_take_return, OPENAI_BOOLEAN},
    {"return_text", OPENAI_RERANK, SPECIAL, 0, 0, 0, openai_take_return, OPENAI_BOOLEAN},
    {"rank_fields", OPENAI_RERANK, SPECIAL, 0, 0, 0, openai_take_rank_fields, OPENAI_ARRAY},
    {"max_tokens_per_doc", OPENAI_RERANK, IGNORED, 0, 0, 0, NULL, OPENAI_WHOLE},
    {"max_chunks_per_doc", OPENAI_RERANK, IGNORED, 0, 0, 0, NULL, OPENAI_WHOLE},
    {"input", OPENAI_EMBEDDINGS | OPENAI_CLASSIFY, SPECIAL, 0, 0, 0, read_prompt, OPENAI_PROMPTS},
    {"input", OPENAI_RESPONSES, SPECIAL, 0, 0, 0, openai_take_input, OPENAI_TEXT_OR_ROW},
    {"instructions", OPENAI_RESPONSES, SPECIAL, 0, 0, 0, openai_take_instructions, OPENAI_STRING},
    {"max_output_tokens", OPENAI_RESPONSES, INTEGER, AT(max_tokens), 1, INT32_MAX, NULL, 0},
    {"text", OPENAI_RESPONSES, SPECIAL, 0, 0, 0, openai_take_text, OPENAI_OBJECT},
    {"reasoning", OPENAI_RESPONSES, SPECIAL, 0, 0, 0, openai_take_reasoning, OPENAI_OBJECT},
    {"truncation", OPENAI_RESPONSES, SPECIAL, 0, 0, 0, openai_take_truncation, OPENAI_STRING},
    {"metadata", OPENAI_RESPONSES, SPECIAL, 0, 0, 0, openai_take_metadata, OPENAI_OBJECT},
    {"tools", OPENAI_RESPONSES, SPECIAL, 0, 0, 0, openai_take_tools, OPENAI_ARRAY},
    {"include", OPENAI_RESPONSES, SPECIAL, 0, 0, 0, openai_take_include, OPENAI_ARRAY},
    {"background", OPENAI_RESPONSES, FALSE_ONLY, 0, 0, 0, NULL, 0},
    {"previous_response_id", OPENAI_RESPONSES, REFUSED, 0, 0, 0, NULL, 0},
    {"conversation", OPENAI_RESPONSES, REFUSED, 0, 0, 0, NULL, 0},
    {"prompt", OPENAI_RESPONSES, REFUSED, 0, 0, 0, NULL, 0},
    {"max_tool_calls", OPENAI_RESPONSES, IGNORED, 0, 0, 0, NULL, OPENAI_WHOLE},
    {"encoding_format", OPENAI_EMBEDDINGS, SPECIAL, 0, 0, 0, read_encoding, OPENAI_STRING},
    {"dimensions", OPENAI_EMBEDDINGS, INTEGER, AT(dimensions), 1, INT32_MAX, NULL, 0},
    {"normalize", OPENAI_EMBEDDINGS, SPECIAL, 0, 0, 0, read_normalize, OPENAI_BOOLEAN},
    {"pooling", OPENAI_EMBEDDINGS, SPECIAL, 0, 0, 0, read_pooling, OPENAI_STRING},
    {"max_tokens", OPENAI_CHAT, INTEGER, AT(max_tokens), 1, INT32_MAX, NULL, 0},
    {"max_tokens", OPENAI_COMPLETIONS, INTEGER, AT(max_tokens), 0, INT32_MAX, NULL, 0},
    {"max_completion_tokens", OPENAI_CHAT, SPECIAL, 0, 1, INT32_MAX, read_chat_tokens, OPENAI_WHOLE},
    {"temperature", ANSWERS, NARROW, AT(sampling.temperature), 0, 2, NULL, 0},
    {"top_p", ANSWERS, SPECIAL, 0, 0, 1, read_top_p, OPENAI_REAL},
    {"n", BOTH, INTEGER, AT(n), 1, 128, NULL, 0},
    {"best_of", BOTH, INTEGER, AT(best_of), 1, 128, NULL, 0},
    {"stop", BOTH, SPECIAL, 0, 0, 0, read_stop, OPENAI_STRINGS},
    {"seed", ANSWERS, SPECIAL, 0, 0, 0, read_seed, OPENAI_WHOLE},
    {"frequency_penalty", BOTH, NARROW, AT(sampling.frequency_penalty), -2, 2, NULL, 0},
    {"presence_penalty", BOTH, NARROW, AT(sampling.presence_penalty), -2, 2, NULL, 0},
    {"logit_bias", BOTH, SPECIAL, 0, 0, 0, openai_take_biases, OPENAI_OBJECT},
    {"logprobs", OPENAI_CHAT, SPECIAL, 0, 0, 0, read_chat_logprobs, OPENAI_BOOLEAN},
    {"logprobs", OPENAI_COMPLETIONS, SPECIAL, 0, 0, OPENAI_MAX_TOP_LOGPROBS, read_logprobs, OPENAI_WHOLE},
    {"top_logprobs", TALK, INTEGER, AT(top_logprobs), 0, OPENAI_MAX_TOP_LOGPROBS, NULL, 0},
    {"tools", OPENAI_CHAT, SPECIAL, 0, 0, 0, read_tools, OPENAI_ARRAY},
    {"tool_choice", TALK, SPECIAL, 0, 0, 0, openai_take_choice, OPENAI_TEXT_OR_SET},
    {"parallel_tool_calls", TALK, SPECIAL, 0, 0, 0, read_parallel_calls, OPENAI_BOOLEAN},
    {"response_format", BOTH, SPECIAL, 0, 0, 0, read_format, OPENAI_OBJECT},
    {"modalities", OPENAI_CHAT, SPECIAL, 0, 0, 0, read_modalities, OPENAI_ARRAY},
    {"reasoning_effort", OPENAI_CHAT, SPECIAL, 0, 0, 0, read_effort, OPENAI_STRING},
    {"documents", OPENAI_CHAT, SPECIAL, 0, 0, 0, read_documents, OPENAI_ARRAY},
    {"add_generation_prompt", OPENAI_CHAT, SPECIAL, 0, 0, 0, read_generation_prompt, OPENAI_BOOLEAN},
    {"continue_final_message", OPENAI_CHAT, FLAG, AT(continue_final), 0, 0, NULL, 0},
    {"include_reasoning", OPENAI_CHAT, SPECIAL, 0, 0, 0, read_include_reasoning, OPENAI_BOOLEAN},
    {"include_stop_str_in_output", BOTH, FLAG, AT(keep_stop), 0, 0, NULL, 0},
    {"return_tokens_as_token_ids", BOTH, FLAG, AT(tokens_as_ids), 0, 0, NULL, 0},
    {"echo", OPENAI_COMPLETIONS, FLAG, AT(echo), 0, 0, NULL, 0},
    {"parse_special", OPENAI_COMPLETIONS, FLAG, AT(parse_special), 0, 0, NULL, 0},
    {"stream", ANSWERS, FALSE_ONLY, 0, 0, 0, NULL, 0},
    {"stream_options", ANSWERS, REFUSED, 0, 0, 0, NULL, 0},
    {"functions", OPENAI_CHAT, SPECIAL, 0, 0, 0, openai_take_functions, OPENAI_ARRAY},
    {"function_call", OPENAI_CHAT, SPECIAL, 0, 0, 0, openai_take_function_call, OPENAI_TEXT_OR_SET},
    {"audio", OPENAI_CHAT, REFUSED, 0, 0, 0, NULL, 0},
    {"web_search_options", OPENAI_CHAT, REFUSED, 0, 0, 0, NULL, 0},
    {"suffix", OPENAI_COMPLETIONS, SPECIAL, 0, 0, 0, openai_take_suffix, OPENAI_STRING},
    {"input_extra", OPENAI_COMPLETIONS, SPECIAL, 0, 0, 0, openai_take_files, OPENAI_ARRAY},
    {"user", ANSWERS | OPENAI_POOLED, IGNORED, 0, 0, 0, NULL, OPENAI_STRING},
    {"metadata", OPENAI_CHAT, IGNORED, 0, 0, 0, NULL, OPENAI_OBJECT},
    {"store", TALK, IGNORED, 0, 0, 0, NULL, OPENAI_BOOLEAN},
    {"service_tier", TALK, IGNORED, 0, 0, 0, NULL, OPENAI_STRING},
    {"safety_identifier", TALK, IGNORED, 0, 0, 0, NULL, OPENAI_STRING},
    {"prompt_cache_key", TALK, IGNORED, 0, 0, 0, NULL, OPENAI_STRING},
    {"prompt_cache_retention", TALK, IGNORED, 0, 0, 0, NULL, OPENAI_STRING},
    {"verbosity", OPENAI_CHAT, IGNORED, 0, 0, 0, NULL, OPENAI_STRING},
    {"prediction", OPENAI_CHAT, IGNORED, 0, 0, 0, NULL, OPENAI_OBJECT},
    {"top_k", ANSWERS, SPECIAL, 0, -1, UINT32_MAX, read_top_k, OPENAI_WHOLE},
    {"min_p", ANSWERS, NUMBER, AT(sampling.min_p), 0, 1, NULL, 0},
    {"context_keep", ANSWERS, INTEGER, AT(context_keep), 0, INT32_MAX, NULL, 0},
    {"repetition_penalty", ANSWERS, SPECIAL, 0, 0, 0, read_repetition, OPENAI_REAL},
    {"penalty_tokens", ANSWERS, SPECIAL, 0, 0, UINT32_MAX, read_penalty_tokens, OPENAI_WHOLE},
    {"chat_template_kwargs", TALK, SPECIAL, 0, 0, 0, read_variables, OPENAI_OBJECT},
};

static const struct field *find_field(const char *name, enum openai_endpoint endpoint)
{
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        if ((fields[i].endpoints & endpoint) != 0 && strcmp(fields[i].name, name) == 0)
            return &fields[i];
    return NULL;
}

const char *openai_field_needed(enum openai_endpoint endpoint)
{
    return endpoint == OPENAI_CHAT          ? "messages"
           : endpoint == OPENAI_COMPLETIONS ? "prompt"
           : endpoint == OPENAI_RERANK      ? "query"
                                            : "input";
}

void openai_fields_of_requests(enum openai_endpoint endpoint, openai_field_fn *fn, void *user)
{
    static const enum openai_shape shapes[] = {
        [NUMBER] = OPENAI_REAL,  [NARROW] = OPENAI_REAL,  [INTEGER] = OPENAI_WHOLE,
        [FLAG] = OPENAI_BOOLEAN, [REFUSED] = OPENAI_NULL, [FALSE_ONLY] = OPENAI_FALSE};

    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        const struct field *f = &fields[i];
        bool tells = f->kind == SPECIAL || f->kind == IGNORED;
        const struct openai_field field = {f->name, tells ? f->shape : shapes[f->kind],
                                           strcmp(f->name, openai_field_needed(endpoint)) == 0, f->min, f->max};

        if ((f->endpoints & endpoint) != 0)
            fn(user, &field);
    }
}

static bool read_field(struct openai_reader *reader, const struct field *field, const json_t *value)
{
    switch (field->kind) {
    case NUMBER:
    case NARROW:
        return read_number(reader, field, value);
    case INTEGER:
        return openai_read_integer(reader->error, field->name, value, field->min, field->max,
                                   (int64_t *)((char *)reader->r + field->at));
    case FLAG:
        *(bool *)((char *)reader->r + field->at) = json_is_true(value);
        return openai_expect(reader->error, field->name, value, JSON_TRUE);
    case IGNORED:
        return openai_field_check(&(struct openai_field){field->name, field->shape, false, 0, 0}, value, reader->error);
    case REFUSED:
        return openai_refuse(reader->error, "unsupported_parameter", field->name, "%s is not supported", field->name);
    case FALSE_ONLY:
        if (!openai_expect(reader->error, field->name, value, JSON_TRUE))
            return false;
        return json_is_false(value) || openai_refuse(reader->error, "unsupported_value", field->name,
                                                     "%s: only false is supported", field->name);
    case SPECIAL:
        return field->read(reader, field->name, value);
    }
    return false;
}

static bool read_fields(struct openai_reader *reader, const json_t *body)
{
    const char *name = NULL;
    const json_t *value = NULL;

    json_object_foreach((json_t *)(uintptr_t)body, name, value)
    {
        const struct field *field = find_field(name, reader->r->endpoint);
        int other = reader->r->rules != OPENAI_STRICT ? openai_read_served(reader->r, name, value, reader->error) : 0;

        if (other == 0 && field == NULL && (reader->r->endpoint & ANSWERS) != 0) {
            other = openai_read_sampler(reader->r, name, value, reader->error);
            other = other != 0 ? other : openai_read_grammar(reader->r, name, value, reader->error);
        }
        if (other < 0)
            return false;
        if (other > 0)
            continue;
        if (field == NULL && reader->r->rules != OPENAI_STRICT)
            continue;
        if (field == NULL)
            return openai_refuse(reader->error, "unknown_parameter", name, "unknown parameter '%.80s'", name);
        if (!json_is_null(value) && !read_field(reader, field, value))
            return false;
    }
    return true;
}

/* ---- What several fields make together --------------------------------------------------- */

/* Unless the variables have it. */
static bool add_variable(json_t *variables, const char *name, const json_t *value)
{
    return value == NULL || json_object_get(variables, name) != NULL ||
           json_object_set(variables, name, (json_t *)(uintptr_t)value) == 0;
}

/* tools, and the template's variables: chat_template_kwargs, and what has a field of its own. */
static bool finish_chat(struct openai_reader *reader)
{
    struct openai_request *r = reader->r;
    json_t *variables = reader->variables != NULL ? json_copy((json_t *)(uintptr_t)reader->variables) : json_object();
    bool good = variables != NULL;

    good = good && add_variable(variables, "reasoning_effort", reader->effort) &&
           add_variable(variables, "documents", reader->documents);
    if (good && json_object_size(variables) > 0)
        good = (r->variables = openai_dump(variables)) != NULL;
    if (good && reader->tools != NULL && json_array_size(reader->tools) > 0 && !reader->no_tools)
        good = (r->tools = openai_dump(reader->tools)) != NULL;
    json_decref(variables);
    return good || openai_no_memory(reader->error);
}

static bool finish(struct openai_reader *reader)
{
    struct openai_request *r = reader->r;
    bool chat = r->endpoint == OPENAI_CHAT;

    if (!openai_finish_choice(reader))
        return false;
    if (!openai_finish_grammar(r, reader->tools, reader->error))
        return false;
    if (r->endpoint == OPENAI_RESPONSES)
        return openai_finish_input(reader) && finish_chat(reader);
    if (chat) {
        r->n_prompts = 1;
        r->logprobs = reader->chat_logprobs;
        r->max_tokens = reader->chat_tokens > 0 ? reader->chat_tokens : r->max_tokens;
    }
    if (chat && r->messages == NULL)
        return openai_refuse(reader->error, "missing_required_parameter", "messages", "messages is missing");
    if (r->continue_final && reader->asks_prompt)
        return openai_refuse(reader->error, "invalid_value", "continue_final_message",
                             "continue_final_message does not go with add_generation_prompt");
    if (!openai_finish_scores(reader))
        return false;
    if (r->n_prompts == 0) {
        const char *name = openai_field_needed(r->endpoint);

        return openai_refuse(reader->error, "missing_required_parameter", name, "%s is missing", name);
    }
    if (r->top_logprobs > 0 && !r->logprobs)
        return openai_refuse(reader->error, "invalid_value", "top_logprobs", "top_logprobs needs logprobs to be true");
    if (r->echo && r->logprobs && (r->suffix_bytes > 0 || r->files != NULL))
        return openai_refuse(reader->error, "unsupported_value", "echo",
                             "echo together with logprobs does not go with a suffix");
    if (r->echo && r->logprobs && openai_request_choices(r) > OPENAI_MAX_ECHOED)
        return openai_refuse(reader->error, "invalid_value", "n",
                             "n: %zu choices are asked for; at most %d are allowed with echo and logprobs",
                             openai_request_choices(r), OPENAI_MAX_ECHOED);
    if (r->best_of > 0 && r->best_of < r->n)
        return openai_refuse(reader->error, "invalid_value", "best_of", "best_of must be at least n");
    if (openai_request_choices(r) > OPENAI_MAX_CHOICES)
        return openai_refuse(reader->error, "invalid_value", "n",
                             "n: %zu choices are asked for; at most %d are allowed", openai_request_choices(r),
                             OPENAI_MAX_CHOICES);
    return chat ? finish_chat(reader) : openai_finish_infill(reader);
}

bool openai_request_read(struct openai_request *request, enum openai_endpoint endpoint, enum openai_rules rules,
                         const json_t *body, struct openai_error *error)
{
    struct openai_reader reader = {.r = request, .error = error};
    bool good = false;

    *error = (struct openai_error){0};
    *request = (struct openai_request){.endpoint = endpoint,
                                       .rules = rules,
                                       .n = 1,
                                       .max_tokens = (endpoint & TALK) != 0 ? -1 : 16,
                                       .context_keep = -1,
                                       .sampling = {.temperature = 1, .top_p = 1, .repetition_penalty = 1}};
    runnel_samplers_default(&request->samplers);
    runnel_grammar_default(&request->grammar);
    if (!openai_expect(error, "body", body, JSON_OBJECT))
        return false;
    good = read_fields(&reader, body) && finish(&reader);
    json_decref(reader.own_tools);
    if (!good)
        openai_request_fini(request);
    return good;
}

void openai_request_fini(struct openai_request *request)
{
    for (size_t i = 0; request->prompts != NULL && i < request->n_prompts; i++) {
        free(request->prompts[i].text);
        free(request->prompts[i].tokens);
        free(request->prompts[i].told);
    }
    for (size_t i = 0; i < request->n_stops; i++)
        free(request->stops[i]);
    free(request->stops);
    openai_fini_biases(request);
    openai_fini_samplers(request);
    openai_fini_grammar(request);
    openai_fini_infill(request);
    free(request->stop_ids);
    free(request->cache_salt);
    free(request->prompts);
    free(request->query);
    free(request->messages);
    free(request->tools);
    free(request->variables);
    free(request->given.instructions);
    free(request->given.metadata);
    free(request->given.tools);
    free(request->given.tool_choice);
    free(request->given.format);
    free(request->given.reasoning);
    free(request->model);
    free(request->adapter);
    free(request->loras);
    *request = (struct openai_request){0};
}

const char *openai_request_adapter(const struct openai_request *request, const char *usual)
{
    if (request->adapter == NULL)
        return usual;
    return request->adapter[0] != '\0' ? request->adapter : NULL;
}

size_t openai_request_tries(const struct openai_request *request)
{
    return (size_t)(request->best_of > 0 ? request->best_of : request->n);
}

size_t openai_request_choices(const struct openai_request *request)
{
    return request->n_prompts * openai_request_tries(request);
}

/* The finaliser of MurmurHash3: neighbours become strangers. */
static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 33)) * 0xff51afd7ed558ccdu;
    x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53u;
    return x ^ (x >> 33);
}

void openai_request_choice(const struct openai_request *request, size_t index, uint64_t seed, runnel_request *out,
                           runnel_chat *chat)
{
    size_t tries = openai_request_tries(request), answer = index % tries;

    runnel_request_default(out);
    out->sampling = request->sampling;
    out->sampling.samplers = &request->samplers;
    out->ignore_eos = (uint8_t)request->ignore_eos;
    out->sampling.seed = request->has_seed ? request->sampling.seed : seed;
    if (answer > 0)
        out->sampling.seed = mix(mix(out->sampling.seed + UINT64_C(0x9e3779b97f4a7c15)) + answer);
    out->max_tokens = request->max_tokens;
    out->context_keep = request->context_keep;
    out->want_logprobs = request->logprobs || request->best_of > 1;
    out->n_top = request->logprobs ? (uint32_t)request->top_logprobs : 0;
    out->want_logits = request->echo && request->logprobs;
    out->stops = (const char *const *)request->stops;
    out->n_stops = request->n_stops;
    out->stop_tokens = request->stop_ids;
    out->n_stop_tokens = request->n_stop_ids;
    out->keep_stop = request->keep_stop;
    out->adapter = openai_request_adapter(request, NULL);
    out->priority = (int32_t)request->priority;
    out->deadline_ms = (uint32_t)request->deadline_ms;
    if (request->grammar.kind != RUNNEL_GRAMMAR_NONE || request->tools != NULL)
        out->grammar = &request->grammar;
    if ((request->endpoint & TALK) != 0) {
        chat->tool_choice = request->tools != NULL ? request->tool_choice : NULL;
        chat->single_call = request->one_call;
        chat->no_generation_prompt = request->no_generation_prompt;
        chat->continue_final = request->continue_final;
        chat->messages_json = request->messages;
        chat->tools = request->tools;
        chat->variables = request->variables;
        out->chat = chat;
    } else {
        const struct openai_prompt *prompt = &request->prompts[index / tries];

        out->prompt = prompt->tokens == NULL ? prompt->text : NULL;
        out->prompt_bytes = prompt->tokens == NULL ? prompt->text_bytes : 0;
        out->tokens = prompt->tokens;
        out->n_tokens = prompt->n_tokens;
        out->parse_special = request->parse_special;
    }
}

void openai_request_embed(const struct openai_request *request, size_t index, runnel_embed_request *out)
{
    const struct openai_prompt *input = &request->prompts[index];

    runnel_embed_request_default(out);
    out->text = input->text;
    out->text_bytes = input->text_bytes;
    out->tokens = input->tokens;
    out->n_tokens = input->n_tokens;
    out->dimensions = (uint32_t)request->dimensions;
    out->pooling = request->pooling;
    out->raw = request->as_it_is;
    out->adapter = openai_request_adapter(request, NULL);
}
