/* Fields of bodies that only a server understands. See openai_request.h. */
#include <stdlib.h>
#include <string.h>

#include "openai_request.h"

typedef bool (*read_fn)(struct openai_request *r, const char *name, const json_t *value, struct openai_error *error);

static bool read_stream(struct openai_request *r, const char *name, const json_t *value, struct openai_error *error)
{
    r->stream = json_is_true(value);
    return openai_expect(error, name, value, JSON_TRUE);
}

static bool read_usage_always(struct openai_request *r, const char *name, const json_t *value,
                              struct openai_error *error)
{
    r->usage_always = json_is_true(value);
    return openai_expect(error, name, value, JSON_TRUE);
}

static bool read_stream_options(struct openai_request *r, const char *name, const json_t *value,
                                struct openai_error *error)
{
    const json_t *at_end = json_object_get(value, "include_usage"),
                 *always = json_object_get(value, "continuous_usage_stats");

    if (!openai_expect(error, name, value, JSON_OBJECT))
        return false;
    r->usage_at_end = json_is_true(at_end);
    if (at_end != NULL && !json_is_null(at_end) &&
        !openai_expect(error, "stream_options.include_usage", at_end, JSON_TRUE))
        return false;
    return always == NULL || json_is_null(always) ||
           read_usage_always(r, "stream_options.continuous_usage_stats", always, error);
}

static bool read_priority(struct openai_request *r, const char *name, const json_t *value, struct openai_error *error)
{
    return openai_read_integer(error, name, value, INT32_MIN, INT32_MAX, &r->priority);
}

static bool read_deadline(struct openai_request *r, const char *name, const json_t *value, struct openai_error *error)
{
    return openai_read_integer(error, name, value, 0, UINT32_MAX, &r->deadline_ms);
}

static bool read_stop_ids(struct openai_request *r, const char *name, const json_t *value, struct openai_error *error)
{
    size_t n = json_array_size(value);
    int64_t id = 0;
    char param[48];

    if (!openai_expect(error, name, value, JSON_ARRAY))
        return false;
    free(r->stop_ids);
    r->stop_ids = calloc(n + 1, sizeof *r->stop_ids);
    if (r->stop_ids == NULL) {
        openai_error_of(RUNNEL_NO_MEMORY, "not enough memory for the request", error);
        return false;
    }
    for (r->n_stop_ids = 0; r->n_stop_ids < n; r->n_stop_ids++) {
        snprintf(param, sizeof param, "%.20s[%zu]", name, r->n_stop_ids);
        if (!openai_read_integer(error, param, json_array_get(value, r->n_stop_ids), 0, INT32_MAX, &id))
            return false;
        r->stop_ids[r->n_stop_ids] = (int32_t)id;
    }
    return true;
}

static bool read_cache_salt(struct openai_request *r, const char *name, const json_t *value, struct openai_error *error)
{
    if (!openai_expect(error, name, value, JSON_STRING))
        return false;
    if (json_string_length(value) == 0 || strlen(json_string_value(value)) != json_string_length(value))
        return openai_refuse(error, "invalid_value", name, "%s must be a text that is not empty", name);
    free(r->cache_salt);
    r->cache_salt = strdup(json_string_value(value));
    if (r->cache_salt == NULL)
        openai_error_of(RUNNEL_NO_MEMORY, "not enough memory for the request", error);
    return r->cache_salt != NULL;
}

static bool read_lora(struct openai_lora *lora, const char *param, const json_t *entry, struct openai_error *error)
{
    const json_t *id = json_object_get(entry, "id"), *scale = json_object_get(entry, "scale");
    char member[64];

    if (!openai_expect(error, param, entry, JSON_OBJECT))
        return false;
    snprintf(member, sizeof member, "%.40s.id", param);
    if (!openai_read_integer(error, member, id, 0, RUNNEL_MAX_ADAPTERS - 1, &lora->id))
        return false;
    snprintf(member, sizeof member, "%.40s.scale", param);
    lora->scale = json_number_value(scale);
    return json_is_number(scale) || openai_expect(error, member, scale, JSON_REAL);
}

bool openai_loras_check(const char *name, const json_t *value, struct openai_error *error)
{
    struct openai_lora ignored;
    bool good = openai_expect(error, name, value, JSON_ARRAY);
    char param[48];

    for (size_t i = 0; good && i < json_array_size(value); i++) {
        snprintf(param, sizeof param, "%.20s[%zu]", name, i);
        good = read_lora(&ignored, param, json_array_get(value, i), error);
    }
    return good;
}

static bool read_loras(struct openai_request *r, const char *name, const json_t *value, struct openai_error *error)
{
    size_t n = json_array_size(value);

    if (!openai_loras_check(name, value, error))
        return false;
    free(r->loras);
    r->loras = calloc(n + 1, sizeof *r->loras);
    if (r->loras == NULL) {
        openai_error_of(RUNNEL_NO_MEMORY, "not enough memory for the request", error);
        return false;
    }
    for (r->n_loras = 0; r->n_loras < n; r->n_loras++)
        read_lora(&r->loras[r->n_loras], name, json_array_get(value, r->n_loras), error);
    return true;
}

static bool read_token_ids(struct openai_request *r, const char *name, const json_t *value, struct openai_error *error)
{
    r->tells_ids = r->keeps_ids = json_is_true(value);
    return openai_expect(error, name, value, JSON_TRUE);
}

static bool read_one_value(const char *name, const json_t *value, bool supported, struct openai_error *error)
{
    return openai_expect(error, name, value, JSON_TRUE) &&
           (json_is_true(value) == supported ||
            openai_refuse(error, "unsupported_value", name, "%s: only %s is supported", name,
                          supported ? "true" : "false"));
}

static bool read_false(struct openai_request *r, const char *name, const json_t *value, struct openai_error *error)
{
    (void)r;
    return read_one_value(name, value, false, error);
}

static bool read_true(struct openai_request *r, const char *name, const json_t *value, struct openai_error *error)
{
    (void)r;
    return read_one_value(name, value, true, error);
}

/* What clients send that ask for nothing is let pass. */
static bool read_empty(struct openai_request *r, const char *name, const json_t *value, struct openai_error *error)
{
    (void)r;
    return ((json_is_array(value) && json_array_size(value) == 0) ||
            (json_is_object(value) && json_object_size(value) == 0)) ||
           openai_refuse(error, "unsupported_parameter", name, "%s is not supported", name);
}

static bool read_none(struct openai_request *r, const char *name, const json_t *value, struct openai_error *error)
{
    (void)r;
    (void)value;
    return openai_refuse(error, "unsupported_parameter", name, "%s is not supported", name);
}

#define TEXTS (OPENAI_CHAT | OPENAI_COMPLETIONS)
#define ALL (TEXTS | OPENAI_RESPONSES)

/* Behind the first ones: what vLLM and llama.cpp know and would change the answer, in the one form that is kept
 * here. */
static const struct {
    const char *name;
    unsigned endpoints;
    read_fn read;
    enum openai_shape shape;
    double least, most;
} fields[] = {{"stream", ALL, read_stream, OPENAI_BOOLEAN, 0, 0},
              {"stream_options", ALL, read_stream_options, OPENAI_OBJECT, 0, 0},
              {"continuous_usage_stats", ALL, read_usage_always, OPENAI_BOOLEAN, 0, 0},
              {"priority", ALL, read_priority, OPENAI_WHOLE, INT32_MIN, INT32_MAX},
              {"deadline_ms", ALL, read_deadline, OPENAI_WHOLE, 0, UINT32_MAX},
              {"stop_token_ids", ALL, read_stop_ids, OPENAI_ARRAY, 0, 0},
              {"cache_salt", ALL, read_cache_salt, OPENAI_STRING, 0, 0},
              {"lora", ALL | OPENAI_POOLED, read_loras, OPENAI_LORAS, 0, 0},
              {"return_token_ids", TEXTS, read_token_ids, OPENAI_BOOLEAN, 0, 0},
              {"return_token_ids", OPENAI_RESPONSES, read_false, OPENAI_FALSE, 0, 0},
              {"add_special_tokens", OPENAI_CHAT, read_false, OPENAI_FALSE, 0, 0},
              {"add_special_tokens", OPENAI_COMPLETIONS, read_true, OPENAI_TRUE, 0, 0},
              {"echo", OPENAI_CHAT, read_false, OPENAI_FALSE, 0, 0},
              {"grammar_lazy", TEXTS, read_false, OPENAI_FALSE, 0, 0},
              {"use_beam_search", TEXTS, read_false, OPENAI_FALSE, 0, 0},
              {"parse_tool_calls", OPENAI_CHAT, read_true, OPENAI_TRUE, 0, 0},
              {"skip_special_tokens", TEXTS, read_true, OPENAI_TRUE, 0, 0},
              {"allowed_token_ids", TEXTS, read_empty, OPENAI_EMPTY, 0, 0},
              {"bad_words", TEXTS, read_empty, OPENAI_EMPTY, 0, 0},
              {"image_data", TEXTS, read_empty, OPENAI_EMPTY, 0, 0},
              {"kv_transfer_params", TEXTS, read_empty, OPENAI_EMPTY, 0, 0},
              {"logits_processors", TEXTS, read_empty, OPENAI_EMPTY, 0, 0},
              {"multimodal_data", TEXTS, read_empty, OPENAI_EMPTY, 0, 0},
              {"vllm_xargs", TEXTS, read_empty, OPENAI_EMPTY, 0, 0},
              {"chat_template", OPENAI_CHAT, read_none, OPENAI_NULL, 0, 0},
              {"guided_whitespace_pattern", TEXTS, read_none, OPENAI_NULL, 0, 0},
              {"prompt_logprobs", TEXTS, read_none, OPENAI_NULL, 0, 0},
              {"thinking_token_budget", TEXTS, read_none, OPENAI_NULL, 0, 0},
              {"truncate_prompt_tokens", TEXTS, read_none, OPENAI_NULL, 0, 0}};

int openai_read_served(struct openai_request *request, const char *name, const json_t *value,
                       struct openai_error *error)
{
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        if ((fields[i].endpoints & request->endpoint) != 0 && strcmp(fields[i].name, name) == 0)
            return json_is_null(value) || fields[i].read(request, name, value, error) ? 1 : -1;
    return 0;
}

void openai_fields_served(enum openai_endpoint endpoint, openai_field_fn *fn, void *user)
{
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        if ((fields[i].endpoints & endpoint) != 0)
            fn(user, &(struct openai_field){fields[i].name, fields[i].shape, false, fields[i].least, fields[i].most});
}
