/* What llama.cpp's server tells of itself: /props and /slots. A slot is a live stream here. */
#include <stdlib.h>
#include <string.h>

#include "llama.h"
#include "apps/serve/routes.h"

/* How far penalties look back: -1: to the beginning; 0: there are none. */
static long long window_of(const runnel_sampling *s)
{
    bool acts = s->repetition_penalty != 1 || s->presence_penalty != 0 || s->frequency_penalty != 0;

    return s->penalty_tokens > 0 ? (long long)s->penalty_tokens : acts ? -1 : 0;
}

void serve_put_settings(FILE *to, const struct openai_request *request)
{
    const runnel_sampling *s = &request->sampling;
    const struct {
        const char *name;
        float value;
    } numbers[] = {{"temperature", s->temperature},
                   {"top_p", s->top_p},
                   {"min_p", s->min_p},
                   {"repeat_penalty", s->repetition_penalty},
                   {"presence_penalty", s->presence_penalty},
                   {"frequency_penalty", s->frequency_penalty}};
    long long most = request->max_tokens == INT32_MAX ? -1 : request->max_tokens;

    fprintf(to, "{\"n_predict\":%lld,\"max_tokens\":%lld,\"seed\":", most, most);
    if (request->has_seed)
        fprintf(to, "%llu", (unsigned long long)s->seed);
    else
        fputs("-1", to);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        fprintf(to, ",\"%s\":", numbers[i].name);
        app_json_number(to, (double)numbers[i].value);
    }
    fprintf(to, ",\"top_k\":%u,\"repeat_last_n\":%lld,\"n_keep\":%lld,\"ignore_eos\":%s,\"stream\":%s,\"n_probs\":%lld",
            s->top_k, window_of(s), (long long)request->context_keep, request->ignore_eos != 0 ? "true" : "false",
            request->stream ? "true" : "false", (long long)(request->logprobs ? request->top_logprobs : 0));
    openai_samplers_write(to, request);
    fputc('}', to);
}

/* ---- /props ------------------------------------------------------------------------------ */

/* How a body is drawn that says nothing. */
static void put_usual(FILE *to)
{
    json_t *body = json_pack("{s:s}", "prompt", "a"), *translated = NULL;
    struct openai_request request;
    struct openai_error error;

    translated = body != NULL ? llama_translate(body, &error) : NULL;
    if (translated != NULL && openai_request_read(&request, OPENAI_COMPLETIONS, OPENAI_FREE, translated, &error)) {
        serve_put_settings(to, &request);
        openai_request_fini(&request);
    } else {
        fputs("{}", to);
    }
    json_decref(translated);
    json_decref(body);
}

/* The text of a token; "" where there is none. */
static void put_token(FILE *to, const struct serve_model *model, int32_t token)
{
    char text[256];
    size_t n = 0;

    if (token < 0 || model->handle == NULL ||
        runnel_detokenize(model->handle, &token, 1, 1, text, sizeof text, &n) != RUNNEL_OK || n > sizeof text)
        n = 0;
    app_json_string(to, text, n);
}

void serve_props(struct serve *serve, struct http_exchange *exchange, const char *rest)
{
    const struct serve_model *model = serve->models.at[0];
    bool ready = model->load == SERVE_READY;
    const char *template_text = model->facts.template_text;
    FILE *to = serve_write(serve);

    (void)rest;
    fprintf(to, "{\"default_generation_settings\":{\"n_ctx\":%u,\"params\":", model->info.context_tokens);
    put_usual(to);
    fprintf(to, "},\"total_slots\":%lld,\"model_alias\":", (long long)serve->options->max_streams);
    openai_string_write(to, model->name);
    fputs(",\"model_path\":", to);
    openai_string_write(to, model->name);
    fputs(",\"modalities\":{\"vision\":false,\"audio\":false},\"chat_template\":", to);
    openai_string_write(to, template_text != NULL ? template_text : "");
    fputs(",\"bos_token\":", to);
    put_token(to, model, ready ? model->info.bos : -1);
    fputs(",\"eos_token\":", to);
    put_token(to, model, ready ? model->info.eos : -1);
    fprintf(to, ",\"is_sleeping\":%s,\"build_info\":\"runnel %s\"}", ready ? "false" : "true", runnel_version());
    serve_reply(serve, exchange, 200, "application/json");
}

/* ---- /lora-adapters ---------------------------------------------------------------------- */

/* Of the first model, as /props. */
void serve_lora_adapters(struct serve *serve, struct http_exchange *exchange, const char *rest)
{
    const struct serve_adapters *adapters = &serve->models.at[0]->adapters;
    FILE *to = serve_write(serve);

    (void)rest;
    fputc('[', to);
    for (size_t i = 0; i < adapters->n; i++) {
        fprintf(to, "%s{\"id\":%zu,\"name\":", i > 0 ? "," : "", i);
        openai_string_write(to, adapters->at[i].name);
        fputs(",\"path\":", to);
        openai_string_write(to, serve_file_name(adapters->at[i].path));
        fprintf(to, ",\"scale\":%.9g}", (double)adapters->at[i].scale);
    }
    fputc(']', to);
    serve_reply(serve, exchange, 200, "application/json");
}

void serve_lora_scales(struct serve *serve, struct http_exchange *exchange, const char *rest)
{
    (void)rest;
    serve_refuse_as(serve, exchange, 400, "invalid_request_error", "unsupported_value",
                    "scales are set at the start (--lora PATH:SCALE), and requests name their adapter", 0);
}

/* ---- /slots ------------------------------------------------------------------------------ */

/* What the engine knows of its streams, in the order of their ids. */
struct infos {
    runnel_stream_info *at; /* [n]; owned */
    size_t n, capacity;
};

static int by_id(const void *a, const void *b)
{
    const runnel_stream_info *x = a, *y = b;

    return (x->stream.id > y->stream.id) - (x->stream.id < y->stream.id);
}

static bool read_infos(struct serve *serve, struct infos *infos)
{
    uint64_t cursor = 0;
    runnel_stream_info info = {.struct_size = sizeof info}, *grown = NULL;

    while (runnel_engine_streams(serve->app.engine, &cursor, &info) == RUNNEL_OK) {
        if (infos->n == infos->capacity) {
            infos->capacity = infos->capacity > 0 ? infos->capacity * 2 : 64;
            grown = realloc(infos->at, infos->capacity * sizeof *grown);
            if (grown == NULL)
                return false;
            infos->at = grown;
        }
        infos->at[infos->n++] = info;
    }
    if (infos->n > 0)
        qsort(infos->at, infos->n, sizeof *infos->at, by_id);
    return true;
}

static const runnel_stream_info *find_info(const struct infos *infos, runnel_stream stream)
{
    const runnel_stream_info key = {.stream = stream};

    return infos->n > 0 ? bsearch(&key, infos->at, infos->n, sizeof *infos->at, by_id) : NULL;
}

/* No text of prompt or answer. */
static void put_slot(FILE *to, const struct serve_task *task, const runnel_stream_info *info, size_t id)
{
    bool runs = info->phase == RUNNEL_PHASE_PREFILL || info->phase == RUNNEL_PHASE_DECODE;
    long long most = task->request.max_tokens,
              remain = most < 0 || most == INT32_MAX ? -1 : most - (long long)info->tokens;

    fprintf(to, "%s{\"id\":%zu,\"id_task\":%llu,\"n_ctx\":%u,\"speculative\":%s,\"is_processing\":%s,\"model\":",
            id > 0 ? "," : "", id, (unsigned long long)task->number, task->model->info.context_tokens,
            task->model->info.draft_parameters > 0 ? "true" : "false", runs ? "true" : "false");
    openai_string_write(to, task->model->name);
    fprintf(to, ",\"phase\":\"%s\",\"params\":", runnel_phase_name(info->phase));
    serve_put_settings(to, &task->request);
    fprintf(to, ",\"next_token\":[{\"has_next_token\":%s,\"n_remain\":%lld,\"n_decoded\":%llu}]}",
            info->phase != RUNNEL_PHASE_ENDED ? "true" : "false", remain, (unsigned long long)info->tokens);
}

/* The streams of requests; those of batches are /v1/batches'. */
static void put_slots(struct serve *serve, const struct infos *infos)
{
    FILE *to = serve_write(serve);
    size_t n = 0;

    fputc('[', to);
    for (const struct serve_task *task = serve->tasks; task != NULL; task = task->next)
        for (size_t i = 0; i < task->n_submitted; i++) {
            const runnel_stream_info *info = task->streams[i].live ? find_info(infos, task->streams[i].id) : NULL;

            if (info != NULL)
                put_slot(to, task, info, n++);
        }
    fputc(']', to);
}

void serve_slots(struct serve *serve, struct http_exchange *exchange, const char *rest)
{
    struct infos infos = {0};
    bool asks = strstr(http_query(exchange), "fail_on_no_slot=1") != NULL;

    (void)rest;
    if (!read_infos(serve, &infos)) {
        serve_refuse_as(serve, exchange, 500, "server_error", NULL, "not enough memory for the list", 0);
    } else if (asks && infos.n >= (size_t)serve->options->max_streams) {
        serve_refuse_as(serve, exchange, 503, "unavailable_error", "no_slot", "no slot is free", 1000);
    } else {
        put_slots(serve, &infos);
        serve_reply(serve, exchange, 200, "application/json");
    }
    free(infos.at);
}
