/* Answers that are there at once: see serve.h. */
#include <string.h>

#include "routes.h"

FILE *serve_write(struct serve *serve)
{
    rewind(serve->out.to);
    return serve->out.to;
}

void serve_reply(struct serve *serve, struct http_exchange *exchange, int status, const char *type)
{
    fflush(serve->out.to);
    if (status >= 100 && status < 600)
        serve->counts.answers[status / 100]++;
    if (ferror(serve->out.to)) {
        clearerr(serve->out.to);
        http_answer(exchange, 500, NULL, NULL, 0);
        return;
    }
    http_answer(exchange, status, type, serve->out.bytes, serve->out.n);
}

void serve_put_error(FILE *to, const struct openai_error *error, const char *id)
{
    (void)id;
    openai_error_write(to, error);
}

void serve_refuse(struct serve *serve, struct http_exchange *exchange, const struct openai_error *error,
                  uint32_t retry_ms)
{
    const struct serve_visit *visit = visit_of(exchange); /* NULL: it was answered before */
    char seconds[16];

    if (retry_ms > 0) {
        snprintf(seconds, sizeof seconds, "%u", (retry_ms + 999) / 1000);
        http_add_field(exchange, "Retry-After", seconds);
    }
    serve_dialect_of(exchange)->put_error(serve_write(serve), error, visit != NULL ? visit->id : NULL);
    serve_reply(serve, exchange, error->http, "application/json");
}

void serve_refuse_as(struct serve *serve, struct http_exchange *exchange, int status, const char *type,
                     const char *code, const char *sentence, uint32_t retry_ms)
{
    struct openai_error error = {.http = status, .type = type, .code = code};

    snprintf(error.message, sizeof error.message, "%s", sentence);
    serve_refuse(serve, exchange, &error, retry_ms);
}

void serve_error_of(const runnel_error *error, struct openai_error *out)
{
    openai_error_of(error->status, error->message, out);
    switch (error->status) {
    case RUNNEL_BUSY:
        out->http = 503;
        out->type = "unavailable_error";
        out->code = "server_busy";
        break;
    case RUNNEL_CLOSED:
    case RUNNEL_STATE:
        out->http = 503;
        out->type = "unavailable_error";
        break;
    case RUNNEL_TIMEOUT:
        out->http = 504;
        out->code = "timeout";
        break;
    default:
        break;
    }
}

void serve_reply_taken(struct serve *serve, struct http_exchange *exchange, int status, char *bytes, size_t n)
{
    serve->counts.answers[status / 100]++;
    http_answer_take(exchange, status, "application/json", bytes, n);
}

json_t *serve_parse(const char *body, size_t n, const struct openai_field *fields, struct openai_error *error)
{
    size_t mark = openai_mark_bytes(body, n); /* of a byte order, which some editors and shells write */
    json_error_t where;
    json_t *value = openai_parse(body + mark, n - mark, &where);

    if (value == NULL)
        openai_refuse(error, "invalid_json", NULL, "the body is not JSON: %.160s (line %d, column %d)", where.text,
                      where.line, where.column);
    else if (!json_is_object(value))
        openai_refuse(error, "invalid_type", NULL, "the body is not an object of JSON");
    else if (openai_make_whole(value), fields == NULL || openai_fields_check(fields, value, error))
        return value;
    json_decref(value);
    return NULL;
}

json_t *serve_read_json(struct serve *serve, struct http_exchange *exchange)
{
    struct openai_error error;
    size_t n = 0;
    const char *body = http_body(exchange, &n);
    json_t *value = visit_of(exchange)->json;

    if (value != NULL)
        return json_incref(value);
    value = serve_parse(body, n, serve_route_of(exchange)->fields, &error);
    if (value == NULL)
        serve_refuse(serve, exchange, &error, 0);
    return value;
}

/* The finaliser of SplitMix64: a walk over all numbers in an order of the seed's. */
void serve_new_id(struct serve *serve, const char *prefix, char id[48])
{
    uint64_t x = serve->seed + ++serve->number * UINT64_C(0x9e3779b97f4a7c15);

    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    x ^= x >> 31;
    snprintf(id, 48, "%s%016llx%08x", prefix, (unsigned long long)x, (unsigned)(serve->seed >> 32 ^ serve->number));
}
