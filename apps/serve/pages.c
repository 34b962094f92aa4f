/* What is known without asking a model: see serve.h. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "serve.h"

void serve_health(struct serve *serve, struct http_exchange *exchange, const char *rest)
{
    (void)rest;
    fputs("{\"status\":\"ok\"}", serve_write(serve));
    serve_reply(serve, exchange, 200, "application/json");
}

void serve_ready(struct serve *serve, struct http_exchange *exchange, const char *rest)
{
    bool ready = serve_is_ready(serve) && !serve->draining;

    (void)rest;
    if (!ready)
        http_add_field(exchange, "Retry-After", "1");
    fprintf(serve_write(serve), "{\"status\":\"%s\"}", ready ? "ready" : serve->draining ? "draining" : "loading");
    serve_reply(serve, exchange, ready ? 200 : 503, "application/json");
}

/* ---- Models ------------------------------------------------------------------------------ */

/* OpenAI's fields, vLLM's, then Anthropic's. adapter: of the model, which is to be told; NULL: the model itself. name:
 * one of its names. */
static void put_model(FILE *to, const struct serve_model *model, const runnel_adapter *adapter, const char *name)
{
    time_t created = (time_t)model->created;
    struct tm parts;
    char date[40];

    gmtime_r(&created, &parts);
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", &parts);
    fputs("{\"id\":", to);
    openai_string_write(to, name);
    fprintf(to, ",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"runnel\"", (long long)model->created);
    if (model->load == SERVE_READY)
        fprintf(to, ",\"max_model_len\":%u", model->info.context_tokens);
    fputs(",\"root\":", to);
    openai_string_write(to, serve_file_name(adapter != NULL ? adapter->path : model->path));
    fputs(",\"parent\":", to);
    openai_string_write(to, adapter != NULL ? model->name : NULL);
    fputs(",\"type\":\"model\",\"display_name\":", to);
    openai_string_write(to, name);
    fprintf(to, ",\"created_at\":\"%s\",\"lifecycle\":\"active\"}", date);
}

void serve_models_list(struct serve *serve, struct http_exchange *exchange, const char *rest)
{
    FILE *to = serve_write(serve);
    const char *last = NULL, *alias = NULL;

    (void)rest;
    fputs("{\"object\":\"list\",\"data\":[", to);
    for (size_t i = 0; i < serve->models.n; i++) {
        const struct serve_model *model = serve->models.at[i];

        fputs(i > 0 ? "," : "", to);
        put_model(to, model, NULL, model->name);
        last = model->name;
        for (size_t k = 0; (alias = serve_model_alias(model, k)) != NULL; k++) {
            fputc(',', to);
            put_model(to, model, NULL, alias);
            last = alias;
        }
        for (size_t k = 0; k < model->adapters.n; k++) {
            last = model->adapters.at[k].name;
            fputc(',', to);
            put_model(to, model, &model->adapters.at[k], last);
        }
    }
    fputs("],\"has_more\":false,\"first_id\":", to);
    openai_string_write(to, serve->models.at[0]->name);
    fputs(",\"last_id\":", to);
    openai_string_write(to, last);
    fputc('}', to);
    serve_reply(serve, exchange, 200, "application/json");
}

void serve_model_one(struct serve *serve, struct http_exchange *exchange, const char *rest)
{
    struct openai_error error = {.http = 404, .type = "not_found_error", .code = "model_not_found", .param = "model"};

    const struct serve_model *model = serve_model_asked(&serve->models, rest);

    if (model != NULL) {
        put_model(serve_write(serve), model, serve_adapter_asked(model, rest), rest);
        serve_reply(serve, exchange, 200, "application/json");
        return;
    }
    snprintf(error.message, sizeof error.message, "there is no model '%.80s' here; GET /v1/models lists them", rest);
    serve_refuse(serve, exchange, &error, 0);
}

/* ---- Metrics ----------------------------------------------------------------------------- */

static void put_metric(FILE *to, const char *name, const char *type, const char *help, uint64_t value)
{
    fprintf(to, "# HELP runnel_http_%s %s\n# TYPE runnel_http_%s %s\nrunnel_http_%s %llu\n", name, help, name, type,
            name, (unsigned long long)value);
}

static void put_own(struct serve *serve, FILE *to)
{
    struct http_stats stats;

    http_server_stats(serve->http, &stats);
    put_metric(to, "connections", "gauge", "Connections that are open.", stats.connections);
    put_metric(to, "connections_accepted_total", "counter", "Connections that were accepted.", stats.accepted);
    put_metric(to, "connections_refused_total", "counter", "Connections beyond the limit.", stats.refused);
    put_metric(to, "requests_total", "counter", "Requests that were read.", stats.requests);
    put_metric(to, "received_bytes_total", "counter", "Bytes that were read.", stats.bytes_in);
    put_metric(to, "sent_bytes_total", "counter", "Bytes that were written.", stats.bytes_out);
    put_metric(to, "writes_total", "counter", "Writes to sockets.", stats.writes);
    put_metric(to, "disconnected_total", "counter", "Requests whose client left before their end.",
               serve->counts.cancelled);
    put_metric(to, "waiting", "gauge", "Requests that wait for a model to be loaded.", serve_count_waiting(serve));
    fputs("# HELP runnel_http_answers_total Answers by the first digit of their status.\n"
          "# TYPE runnel_http_answers_total counter\n",
          to);
    for (int i = 2; i < 6; i++)
        fprintf(to, "runnel_http_answers_total{status=\"%dxx\"} %llu\n", i,
                (unsigned long long)serve->counts.answers[i]);
}

void serve_metrics(struct serve *serve, struct http_exchange *exchange, const char *rest)
{
    size_t n = 0, capacity = 0;
    char *text = NULL, *grown = NULL;
    FILE *to = serve_write(serve);

    (void)rest;
    for (n = 1 << 16; n > capacity;) { /* numbers may gain digits between two calls */
        capacity = n + 1024;
        grown = realloc(text, capacity);
        if (grown == NULL || runnel_engine_prometheus(serve->app.engine, grown, capacity, &n) != RUNNEL_OK) {
            free(grown != NULL ? grown : text);
            serve_refuse_as(serve, exchange, 500, "server_error", NULL, "not enough memory for the metrics", 0);
            return;
        }
        text = grown;
    }
    fwrite(text, 1, n, to);
    serve_put_compat(serve, to, text, n);
    free(text);
    put_own(serve, to);
    serve_reply(serve, exchange, 200, "text/plain; version=0.0.4; charset=utf-8");
}
