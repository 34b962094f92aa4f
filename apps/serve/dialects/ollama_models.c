/* Models as Ollama lists them, and as requests load and unload them: Ollama's keep_alive, llama.cpp's /models/load. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "apps/serve/routes.h"

static void put_date(FILE *to, const char *name, time_t when)
{
    struct tm parts;
    char text[40];

    gmtime_r(&when, &parts);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
    fprintf(to, ",\"%s\":\"%s\"", name, text);
}

/* ---- keep_alive -------------------------------------------------------------------------- */

/* One part of a text like "1h30m": moves *at. Below 0: it is none. */
static double read_part(const char **at)
{
    static const struct {
        const char *unit;
        double seconds;
    } units[] = {{"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}, {"h", 3600}, {"m", 60}, {"s", 1}};
    char *end = NULL;
    double number = **at >= '0' && **at <= '9' ? strtod(*at, &end) : -1;

    for (size_t i = 0; number >= 0 && i < sizeof units / sizeof units[0]; i++)
        if (strncmp(end, units[i].unit, strlen(units[i].unit)) == 0) {
            *at = end + strlen(units[i].unit);
            return number * units[i].seconds;
        }
    return -1;
}

/* As Go writes spans of time, or a number of seconds in quotes. NaN: it is none. */
static double seconds_of(const char *text)
{
    bool negative = text[0] == '-';
    double sum = 0;
    char *end = NULL;
    double plain = strtod(text, &end);

    if (end != text && *end == '\0')
        return plain;
    text += negative;
    do {
        double part = read_part(&text);

        if (part < 0)
            return NAN;
        sum += part;
    } while (*text != '\0');
    return negative ? -sum : sum;
}

bool serve_read_keep_alive(const json_t *body, int64_t *ms, struct openai_error *error)
{
    const json_t *value = json_object_get(body, "keep_alive");
    double seconds = json_is_number(value)   ? json_number_value(value)
                     : json_is_string(value) ? seconds_of(openai_word(value))
                                             : NAN;

    *ms = KEEP_UNSAID;
    if (value == NULL || json_is_null(value))
        return true;
    if (!isfinite(seconds))
        return openai_refuse(error, "invalid_value", "keep_alive",
                             "keep_alive must be a number of seconds, or a text like \"5m\" or \"1h30m\"");
    *ms = seconds < 0 ? -1 : seconds > 1e12 ? INT64_MAX / 2 : (int64_t)(seconds * 1000);
    return true;
}

void serve_keep(struct serve_model *model, int64_t keep_ms)
{
    model->keep_ms = keep_ms == KEEP_UNSAID ? model->own_keep_ms : keep_ms;
}

/* ---- Bodies that only load --------------------------------------------------------------- */

static bool is_nothing(const json_t *texts)
{
    return texts == NULL || json_is_null(texts) || (json_is_string(texts) && json_string_length(texts) == 0) ||
           (json_is_array(texts) && json_array_size(texts) == 0);
}

/* Vectors of no text; /api/chat without a message and /api/generate without a prompt, but with a model. */
static bool is_empty(const struct serve_dialect *dialect, const json_t *body)
{
    if (dialect == &serve_ollama_embed)
        return is_nothing(json_object_get(body, "input"));
    if (dialect == &serve_ollama_embeddings)
        return is_nothing(json_object_get(body, "prompt"));
    if (dialect != &serve_ollama_chat && dialect != &serve_ollama_generate)
        return false;
    return is_nothing(json_object_get(body, "messages")) && is_nothing(json_object_get(body, "prompt")) &&
           openai_word(json_object_get(body, "model")) != NULL;
}

/* name: of the model, as the request has it. */
static void answer_load(struct serve *serve, struct http_exchange *exchange, const char *name, const char *reason)
{
    const struct serve_dialect *dialect = serve_dialect_of(exchange);
    FILE *to = serve_write(serve);
    bool chat = dialect == &serve_ollama_chat;

    if (dialect == &serve_ollama_embeddings) {
        fputs("{\"embedding\":[]}", to);
        serve_reply(serve, exchange, 200, "application/json");
        return;
    }
    fputs("{\"model\":", to);
    openai_string_write(to, name);
    if (dialect == &serve_ollama_embed) {
        fputs(",\"embeddings\":[]}", to);
        serve_reply(serve, exchange, 200, "application/json");
        return;
    }
    put_date(to, "created_at", time(NULL));
    fprintf(to, ",%s,\"done\":true,\"done_reason\":\"%s\"}",
            chat ? "\"message\":{\"role\":\"assistant\",\"content\":\"\"}" : "\"response\":\"\"", reason);
    serve_reply(serve, exchange, 200, "application/json");
}

bool serve_ollama_load(struct serve *serve, struct http_exchange *exchange, const json_t *body)
{
    const struct serve_dialect *dialect = serve_dialect_of(exchange);
    const char *name = openai_word(json_object_get(body, "model"));
    struct serve_model *model = name != NULL ? serve_model_asked(&serve->models, name) : NULL;
    struct openai_error error;
    int64_t keep_ms = 0;

    if (!is_empty(dialect, body))
        return false;
    if (!serve_read_keep_alive(body, &keep_ms, &error)) {
        serve_refuse(serve, exchange, &error, 0);
        return true;
    }
    if (keep_ms == 0 && model != NULL) {
        model->keep_ms = 0;
        serve_settle(serve);
        answer_load(serve, exchange, name, "unload");
    } else if ((model = serve_find_model(serve, exchange, name)) != NULL) {
        serve_keep(model, keep_ms);
        answer_load(serve, exchange, name != NULL ? name : model->name, "load");
    }
    return true;
}

/* ---- /models/load and /models/unload ------------------------------------------------------ */

const struct openai_field serve_load_fields[] = {{"model", OPENAI_STRING, true, 0, 0}, {0}};

static void load_or_unload(struct serve *serve, struct http_exchange *exchange, bool loads)
{
    json_t *body = serve_read_json(serve, exchange);
    const char *name = openai_word(json_object_get(body, "model"));
    struct serve_model *model = name != NULL ? serve_model_asked(&serve->models, name) : NULL;

    if (body == NULL)
        return;
    if (loads || model == NULL) {
        model = serve_find_model(serve, exchange, name);
    } else if (model->pinned) {
        serve_refuse_as(serve, exchange, 400, "invalid_request_error", "model_pinned",
                        "this model is there from the start on, and stays", 0);
        model = NULL;
    } else {
        model->keep_ms = 0; /* with its last request */
        serve_settle(serve);
    }
    json_decref(body);
    if (model == NULL)
        return;
    fputs("{\"success\":true}", serve_write(serve));
    serve_reply(serve, exchange, 200, "application/json");
}

void serve_load(struct serve *serve, struct http_exchange *exchange, const char *rest)
{
    (void)rest;
    load_or_unload(serve, exchange, true);
}

void serve_unload(struct serve *serve, struct http_exchange *exchange, const char *rest)
{
    (void)rest;
    load_or_unload(serve, exchange, false);
}

/* ---- Lists ------------------------------------------------------------------------------- */

void serve_ollama_version(struct serve *serve, struct http_exchange *exchange, const char *rest)
{
    (void)rest;
    fprintf(serve_write(serve), "{\"version\":\"%s\"}", runnel_version());
    serve_reply(serve, exchange, 200, "application/json");
}

/* When it will be unloaded if nobody asks; at the end of the year 9999 if it stays, and at the latest. */
static time_t end_of(const struct serve_model *model)
{
    uint64_t now_ms = uv_now(&model->serve->loop), idle_ms = model->n_users == 0 ? now_ms - model->used_ms : 0;
    int64_t left_s = model->keep_ms > (int64_t)idle_ms ? (model->keep_ms - (int64_t)idle_ms) / 1000 : 0;
    time_t last = 253402300799, now = time(NULL);

    return model->pinned || model->keep_ms < 0 || left_s > last - now ? last : now + (time_t)left_s;
}

/* "details": what its file says; known once it was loaded. */
static void put_details(FILE *to, const struct serve_model *model, const runnel_adapter *adapter)
{
    fputs("\"details\":{\"parent_model\":", to);
    openai_string_write(to, adapter != NULL ? model->name : "");
    fputs(",\"format\":\"gguf\",\"family\":", to);
    openai_string_write(to, model->facts.family);
    fputs(",\"families\":[", to);
    if (model->facts.family[0] != '\0')
        openai_string_write(to, model->facts.family);
    fprintf(to, "],\"parameter_size\":\"%s\",\"quantization_level\":\"%s\"}", model->facts.size,
            model->facts.quantization);
}

/* adapter: of the model, which is to be told; NULL: the model itself. name: one of its names. */
static void put_model(FILE *to, const struct serve_model *model, const runnel_adapter *adapter, const char *name,
                      bool loaded)
{
    const char *digest = adapter != NULL                  ? model->adapters.digests[adapter - model->adapters.at]
                         : model->facts.digest[0] != '\0' ? model->facts.digest
                                                          : model->digest;

    fputs("{\"name\":", to);
    openai_string_write(to, name);
    fputs(",\"model\":", to);
    openai_string_write(to, name);
    put_date(to, "modified_at", (time_t)model->created);
    if (loaded)
        put_date(to, "expires_at", end_of(model));
    fprintf(to, ",\"size\":%llu,\"size_vram\":%llu,\"digest\":\"%s\",",
            (unsigned long long)(loaded ? model->bytes : model->file_bytes),
            (unsigned long long)(loaded ? model->facts.device_bytes : 0), digest);
    if (loaded)
        fprintf(to, "\"context_length\":%u,", model->info.context_tokens);
    put_details(to, model, adapter);
    fputc('}', to);
}

/* What is loaded stands there once, what is served by each of its names. */
static void put_models(struct serve *serve, struct http_exchange *exchange, bool loaded)
{
    FILE *to = serve_write(serve);
    const char *comma = "", *alias = NULL;

    fputs("{\"models\":[", to);
    for (size_t i = 0; i < serve->models.n; i++) {
        const struct serve_model *model = serve->models.at[i];

        if (loaded && model->load != SERVE_READY)
            continue;
        fputs(comma, to);
        put_model(to, model, NULL, model->name, loaded);
        comma = ",";
        for (size_t k = 0; !loaded && (alias = serve_model_alias(model, k)) != NULL; k++) {
            fputc(',', to);
            put_model(to, model, NULL, alias, loaded);
        }
        for (size_t k = 0; k < model->adapters.n; k++) {
            fputc(',', to);
            put_model(to, model, &model->adapters.at[k], model->adapters.at[k].name, loaded);
        }
    }
    fputs("]}", to);
    serve_reply(serve, exchange, 200, "application/json");
}

void serve_ollama_tags(struct serve *serve, struct http_exchange *exchange, const char *rest)
{
    (void)rest;
    put_models(serve, exchange, false);
}

void serve_ollama_ps(struct serve *serve, struct http_exchange *exchange, const char *rest)
{
    (void)rest;
    put_models(serve, exchange, true);
}

/* Asked for what no request may ask, the library says whether it would answer at all. */
static bool generates(const struct serve_model *model)
{
    runnel_request request;
    runnel_stream stream;

    runnel_request_default(&request);
    request.max_tokens = INT64_MIN;
    return runnel_generate(model->handle, &request, &stream, NULL) == RUNNEL_INVALID;
}

static bool embeds(const struct serve_model *model)
{
    runnel_embed_request request;
    runnel_stream stream;

    runnel_embed_request_default(&request);
    request.text = "a";
    request.text_bytes = 1;
    request.dimensions = UINT32_MAX;
    return runnel_embed(model->handle, &request, &stream, NULL) == RUNNEL_INVALID;
}

static bool fills_gaps(const struct serve_model *model)
{
    runnel_infill infill;
    size_t n = 0;

    runnel_infill_default(&infill);
    infill.prefix = infill.suffix = "a";
    infill.prefix_bytes = infill.suffix_bytes = 1;
    return runnel_tokenize_infill(model->handle, &infill, NULL, 0, &n, NULL) == RUNNEL_OK;
}

static void put_capabilities(FILE *to, const struct serve_model *model)
{
    const struct {
        const char *name;
        bool has;
    } all[] = {{"completion", generates(model)},
               {"embedding", embeds(model)},
               {"insert", fills_gaps(model)},
               {"tools", (model->facts.knows & RUNNEL_TEMPLATE_TOOLS) != 0},
               {"thinking", (model->facts.knows & (RUNNEL_TEMPLATE_REASONING | RUNNEL_TEMPLATE_THINKING)) != 0}};
    const char *comma = "";

    fputs("\"capabilities\":[", to);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (!all[i].has)
            continue;
        fprintf(to, "%s\"%s\"", comma, all[i].name);
        comma = ",";
    }
    fputc(']', to);
}

/* Keys of the file, as far as Ollama's clients read them. */
static void put_info(FILE *to, const struct serve_model *model)
{
    const runnel_model_info *info = &model->info;
    const struct {
        const char *name;
        uint32_t value;
    } sizes[] = {
        {"context_length", info->trained_tokens}, {"embedding_length", info->embedding}, {"block_count", info->layers}};
    char key[128];

    fputs("\"model_info\":{\"general.architecture\":", to);
    openai_string_write(to, model->facts.family);
    fprintf(to, ",\"general.parameter_count\":%llu", (unsigned long long)info->parameters);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        snprintf(key, sizeof key, "%s.%s", model->facts.family, sizes[i].name);
        fputc(',', to);
        openai_string_write(to, key);
        fprintf(to, ":%u", sizes[i].value);
    }
    fputc('}', to);
}

static void put_whole(FILE *to, const struct serve_model *model, const runnel_adapter *adapter)
{
    fputc('{', to);
    put_details(to, model, adapter);
    fputc(',', to);
    put_info(to, model);
    fputc(',', to);
    put_capabilities(to, model);
    fputs(",\"template\":", to);
    openai_string_write(to, model->facts.template_text != NULL ? model->facts.template_text : "");
    put_date(to, "modified_at", (time_t)model->created);
    fputc('}', to);
}

void serve_ollama_show(struct serve *serve, struct http_exchange *exchange, const char *rest)
{
    json_t *body = serve_read_json(serve, exchange);
    const json_t *name = NULL;
    struct serve_model *model = NULL;
    struct openai_error error;

    (void)rest;
    if (body == NULL)
        return;
    name = json_object_get(body, "model");
    if (name == NULL || json_is_null(name))
        name = json_object_get(body, "name");
    if (!openai_expect_word(&error, "model", name)) {
        json_decref(body);
        serve_refuse(serve, exchange, &error, 0);
        return;
    }
    model = serve_find_model(serve, exchange, openai_word(name));
    if (model != NULL) {
        put_whole(serve_write(serve), model, serve_adapter_asked(model, openai_word(name)));
        serve_reply(serve, exchange, 200, "application/json");
    }
    json_decref(body);
}
