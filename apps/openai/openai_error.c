/* Errors in OpenAI's form, values of JSON, and names of endpoints. See openai_request.h. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "openai_answer.h"

bool openai_refuse(struct openai_error *error, const char *code, const char *param, const char *format, ...)
{
    va_list args;

    *error = (struct openai_error){.http = 400, .type = "invalid_request_error", .code = code};
    snprintf(error->param, sizeof error->param, "%s", param != NULL ? param : "");
    va_start(args, format);
    vsnprintf(error->message, sizeof error->message, format, args);
    va_end(args);
    return false;
}

static const char *type_name(json_type type)
{
    static const char *const names[] = {"an object", "an array",  "a string",  "an integer",
                                        "a number",  "a boolean", "a boolean", "null"};

    return names[type];
}

bool openai_expect(struct openai_error *error, const char *param, const json_t *value, json_type type)
{
    if (value == NULL)
        return openai_refuse(error, "missing_required_parameter", param, "%s is missing", param);
    if (json_typeof(value) == type || (type == JSON_TRUE && json_is_boolean(value)))
        return true;
    if (type == JSON_INTEGER && openai_is_too_long(value))
        return openai_refuse(error, "invalid_value", param, "%s is %g: an integer has at most 64 bits", param,
                             json_real_value(value));
    return openai_refuse(error, "invalid_type", param, "%s must be %s, not %s", param, type_name(type),
                         type_name(openai_is_kept(value) ? JSON_REAL : json_typeof(value)));
}

const char *openai_word(const json_t *value)
{
    const char *word = json_string_value(value);

    return word == NULL || strlen(word) == json_string_length(value) ? word : "";
}

bool openai_expect_word(struct openai_error *error, const char *param, const json_t *value)
{
    return openai_expect(error, param, value, JSON_STRING) &&
           (strlen(json_string_value(value)) == json_string_length(value) ||
            openai_refuse(error, "invalid_value", param, "%s has a zero byte", param));
}

size_t openai_mark_bytes(const char *bytes, size_t n)
{
    return n >= 3 && memcmp(bytes, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
}

void openai_error_of(runnel_status status, const char *sentence, struct openai_error *error)
{
    switch (status) {
    case RUNNEL_CONTEXT:
        openai_refuse(error, "context_length_exceeded", NULL, "%s", sentence);
        break;
    case RUNNEL_INVALID:
    case RUNNEL_NOT_FOUND:
    case RUNNEL_FORMAT:
    case RUNNEL_UNSUPPORTED:
    case RUNNEL_BUSY: /* of a stream that ran: what its grammar takes to be read; of others a server says 503 */
        openai_refuse(error, NULL, NULL, "%s", sentence);
        break;
    default:
        openai_refuse(error, NULL, NULL, "%s", sentence);
        error->http = 500;
        error->type = "server_error";
        break;
    }
}

void openai_error_write(FILE *to, const struct openai_error *error)
{
    fputs("{\"error\":{\"message\":", to);
    openai_sentence_write(to, error->message);
    fputs(",\"type\":", to);
    openai_string_write(to, error->type);
    fputs(",\"param\":", to);
    if (error->param[0] != '\0')
        openai_sentence_write(to, error->param);
    else
        openai_string_write(to, NULL);
    fputs(",\"code\":", to);
    openai_string_write(to, error->code);
    if (error->n_prompt > 0)
        fprintf(to, ",\"n_prompt_tokens\":%llu,\"n_ctx\":%llu", (unsigned long long)error->n_prompt,
                (unsigned long long)error->n_context);
    fputs("}}", to);
}

/* ---- Members of the library's requests --------------------------------------------------- */

struct place {
    const char *field; /* of the body */
    const char *part;  /* what the member's parts are, where they lie elsewhere in the field; NULL: they do not */
    size_t n;          /* bytes of the member's name in the sentence */
};

static bool find_member(const struct openai_request *request, const char *sentence, struct place *place)
{
    static const struct {
        const char *member, *field, *part;
    } members[] = {{"sampling.biases", "logit_bias", ": entry"},
                   {"sampling.n_biases", "logit_bias", ": the number of tokens"},
                   {"sampling.samplers.order", "samplers", NULL},
                   {"sampling.samplers", "samplers", NULL},
                   {"sampling.samplers.dry_breakers", "dry_sequence_breakers", NULL},
                   {"tokens", NULL, ": token"},
                   {"stop_tokens", "stop_token_ids", NULL},
                   {"stops", "stop", NULL},
                   {"max_tokens", "max_tokens", NULL},
                   {"context_keep", "context_keep", NULL},
                   {"dimensions", "dimensions", NULL}};
    static const char samplers[] = "sampling.samplers.";

    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++) {
        place->n = strlen(members[i].member);
        if (strncmp(sentence, members[i].member, place->n) != 0 || strchr(" :[", sentence[place->n]) == NULL)
            continue;
        place->field = members[i].field != NULL ? members[i].field : openai_field_needed(request->endpoint);
        place->part = members[i].part;
        return true;
    }
    if (strncmp(sentence, samplers, sizeof samplers - 1) == 0) {
        place->n = strcspn(sentence, " :[");
        place->field = openai_sampler_field(sentence + sizeof samplers - 1, place->n - (sizeof samplers - 1));
        return place->field != NULL;
    }
    return false;
}

void openai_request_fault(const struct openai_request *request, runnel_about about, struct openai_error *error)
{
    const char *field = openai_field_needed(request->endpoint);
    struct place place = {0};
    char sentence[RUNNEL_ERROR_BYTES];
    int index = 0;

    if (error->http == 400 && (about == RUNNEL_ABOUT_GRAMMAR || about == RUNNEL_ABOUT_TOOLS))
        openai_grammar_fault(request, about, error);
    if (error->http == 400 && about == RUNNEL_ABOUT_PROMPT && (request->endpoint & OPENAI_SCORES) == 0)
        openai_refuse(error, "invalid_value", field, "%s: the %s is empty", field,
                      request->endpoint == OPENAI_EMBEDDINGS ? "text" : "prompt");
    if (error->http != 400 || error->param[0] != '\0' || !find_member(request, error->message, &place))
        return;
    snprintf(sentence, sizeof sentence, "%s", error->message + place.n);
    if (place.part == NULL && sentence[0] == '[')
        index = (int)strcspn(sentence, "]") + 1;
    snprintf(error->param, sizeof error->param, "%s%.*s", place.field, index, sentence);
    snprintf(error->message, sizeof error->message, "%s%s%s", place.field, place.part != NULL ? place.part : "",
             sentence);
    error->code = "invalid_value";
}

bool openai_no_memory(struct openai_error *error)
{
    openai_error_of(RUNNEL_NO_MEMORY, "not enough memory for the request", error);
    return false;
}

static const struct {
    enum openai_endpoint endpoint;
    const char *url;
} urls[] = {{OPENAI_CHAT, "/v1/chat/completions"}, {OPENAI_COMPLETIONS, "/v1/completions"},
            {OPENAI_EMBEDDINGS, "/v1/embeddings"}, {OPENAI_RESPONSES, "/v1/responses"},
            {OPENAI_RERANK, "/v1/rerank"},         {OPENAI_CLASSIFY, "/v1/classify"}};

const char *openai_url(enum openai_endpoint endpoint)
{
    for (size_t i = 0; i < sizeof urls / sizeof urls[0]; i++)
        if (urls[i].endpoint == endpoint)
            return urls[i].url;
    return "";
}

enum openai_endpoint openai_endpoint_of(const char *url)
{
    for (size_t i = 0; i < sizeof urls / sizeof urls[0]; i++)
        if (strcmp(urls[i].url, url) == 0)
            return urls[i].endpoint;
    return 0;
}
