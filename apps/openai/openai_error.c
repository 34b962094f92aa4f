/* Errors in OpenAI's form, and names of endpoints. See openai_request.h. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "openai_request.h"

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
    return openai_refuse(error, "invalid_type", param, "%s must be %s, not %s", param, type_name(type),
                         type_name(json_typeof(value)));
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
