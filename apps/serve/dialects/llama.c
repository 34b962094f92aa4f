/* The /completion, /infill and /embedding of llama.cpp's server: its form of answers. Each answer is an object of its
 * own: several prompts, or n of them, are an array of answers; in pieces each has its index. */
#include "llama.h"

#include <stdlib.h>
#include <string.h>

#include "apps/serve/routes.h"

/* ---- Answers ----------------------------------------------------------------------------- */

static void put_rate(FILE *to, const char *name, uint64_t n, double ms)
{
    fprintf(to, "\"%s_n\":%llu,\"%s_ms\":%.3f,\"%s_per_token_ms\":%.3f,\"%s_per_second\":%.3f", name,
            (unsigned long long)n, name, ms, name, n > 0 ? ms / (double)n : 0, name,
            ms > 0 ? 1000 * (double)n / ms : 0);
}

/* The prompt's time ends with the first token. */
static void put_timings(FILE *to, const struct openai_choice *choice)
{
    const runnel_usage *usage = &choice->usage;
    const runnel_timings *t = &choice->timings;
    uint64_t first_us = t->first_token_us > 0 ? t->first_token_us : t->end_us;

    fprintf(to, "\"timings\":{\"cache_n\":%llu,", (unsigned long long)usage->cached_tokens);
    put_rate(to, "prompt", usage->prompt_tokens - usage->cached_tokens, (double)(first_us - t->admitted_us) / 1000);
    fputc(',', to);
    put_rate(to, "predicted", usage->completion_tokens, (double)(t->end_us - first_us) / 1000);
    if (usage->drafted_tokens > 0)
        fprintf(to, ",\"draft_n\":%llu,\"draft_n_accepted\":%llu", (unsigned long long)usage->drafted_tokens,
                (unsigned long long)usage->accepted_tokens);
    fputc('}', to);
}

/* The prompt as the model has read it. It may be long, so it is told where response_fields name it. */
static void put_prompt(FILE *to, const struct serve_task *task, size_t i)
{
    const struct openai_prompt *prompt = &task->request.prompts[i / openai_request_tries(&task->request)];
    size_t n = 0;
    char *text = NULL;

    if (prompt->tokens == NULL) {
        app_json_string(to, prompt->text, prompt->text_bytes);
        return;
    }
    if (runnel_detokenize(task->model->handle, prompt->tokens, prompt->n_tokens, 1, NULL, 0, &n) == RUNNEL_OK)
        text = malloc(n + 1);
    if (text == NULL ||
        runnel_detokenize(task->model->handle, prompt->tokens, prompt->n_tokens, 1, text, n, &n) != RUNNEL_OK)
        n = 0;
    app_json_string(to, text != NULL ? text : "", n);
    free(text);
}

static bool has_new_line(const struct openai_choice *choice)
{
    return choice->content.n > 0 && memchr(choice->content.bytes, '\n', choice->content.n) != NULL;
}

/* From behind the text on, which is flushed. */
static void put_rest(FILE *to, const struct serve_task *task, size_t i)
{
    const struct openai_choice *choice = &task->choices[i];
    const char *word = openai_choice_stop(choice);

    if (task->wish.prompt) {
        fputs(",\"prompt\":", to);
        put_prompt(to, task, i);
    }
    fputs(",\"stop\":true,\"model\":", to);
    openai_string_write(to, task->request.model != NULL ? task->request.model : task->head.model);
    fprintf(to,
            ",\"tokens_predicted\":%llu,\"tokens_evaluated\":%llu,\"tokens_cached\":%llu,\"truncated\":%s,"
            "\"stop_type\":\"%s\",\"stopping_word\":",
            (unsigned long long)choice->usage.completion_tokens, (unsigned long long)choice->usage.prompt_tokens,
            (unsigned long long)choice->usage.cached_tokens, choice->usage.shifts > 0 ? "true" : "false",
            choice->finish == RUNNEL_FINISH_LENGTH ? "limit"
            : word != NULL                         ? "word"
                                                   : "eos");
    openai_string_write(to, word != NULL ? word : "");
    fprintf(to, ",\"has_new_line\":%s,\"generation_settings\":", has_new_line(choice) ? "true" : "false");
    serve_put_settings(to, &task->request);
    fputc(',', to);
    put_timings(to, choice);
    fputc('}', to);
}

/* Up to its end; of the last piece of a stream the text was told. */
static void put_whole(struct serve_task *task, FILE *to, size_t i)
{
    struct openai_choice *choice = &task->choices[i];
    struct openai_buffer *text = &choice->content;
    bool told = task->request.stream;

    fflush(text->to);
    fprintf(to, "{\"index\":%zu,\"content\":", i);
    app_json_string(to, !told && text->n > 0 ? text->bytes : "", told ? 0 : text->n);
    fputs(",\"tokens\":", to);
    if (task->request.keeps_ids)
        openai_ids_take(to, choice);
    else
        fputs("[]", to);
    if (task->request.logprobs && (!told || choice->n_entries > 0)) {
        fputs(",\"completion_probabilities\":", to);
        openai_logprobs_take(to, choice);
    }
    put_rest(to, task, i);
}

/* The value at "a/b/c"; NULL: there is none. */
static json_t *value_at(json_t *object, const char *path)
{
    while (object != NULL) {
        size_t n = strcspn(path, "/");
        char name[64];

        if (n >= sizeof name)
            return NULL;
        memcpy(name, path, n);
        name[n] = '\0';
        object = json_object_get(object, name);
        if (path[n] == '\0')
            break;
        path += n + 1;
    }
    return object;
}

/* Of text[0..n), an answer, what response_fields name, each under its path. */
static void put_fields(FILE *to, const json_t *fields, const char *text, size_t n)
{
    json_t *whole = json_loadb(text, n, JSON_ALLOW_NUL, NULL), *picked = json_object(), *field = NULL;
    char *told = NULL;
    size_t i = 0;

    json_array_foreach(fields, i, field)
    {
        const char *path = openai_word(field);
        json_t *value = path != NULL ? value_at(whole, path) : NULL;

        if (value != NULL)
            json_object_set(picked, path, value);
    }
    told = openai_dump(picked);
    if (told != NULL)
        app_json_line(to, told, strlen(told));
    else
        fputs("{}", to);
    free(told);
    json_decref(whole);
    json_decref(picked);
}

static void put_answer(struct serve_task *task, FILE *to, size_t i)
{
    struct openai_buffer whole = {0};

    if (task->wish.fields == NULL) {
        put_whole(task, to, i);
        return;
    }
    whole.to = open_memstream(&whole.bytes, &whole.n);
    if (whole.to == NULL)
        return;
    put_whole(task, whole.to, i);
    fclose(whole.to);
    put_fields(to, task->wish.fields, whole.bytes, whole.n);
    free(whole.bytes);
}

static void answer(struct serve_task *task, FILE *to)
{
    if (task->n_choices > 1)
        fputc('[', to);
    for (size_t i = 0; i < task->n_choices; i++) {
        if (i > 0)
            fputc(',', to);
        put_answer(task, to, i);
    }
    if (task->n_choices > 1)
        fputc(']', to);
}

/* One vector of each text, which llama.cpp's server writes as a list of vectors. */
static void answer_embedding(struct serve_task *task, FILE *to)
{
    fputc('[', to);
    for (size_t i = 0; i < task->n_choices; i++) {
        const struct openai_choice *choice = &task->choices[i];

        fprintf(to, "%s{\"index\":%zu,\"embedding\":[[", i > 0 ? "," : "", i);
        for (size_t k = 0; k < choice->n_embedding; k++)
            fprintf(to, "%s%.9g", k > 0 ? "," : "", (double)choice->embedding[k]);
        fputs("]]}", to);
    }
    fputc(']', to);
}

/* ---- Answers in pieces ------------------------------------------------------------------- */

/* So far, by the server's own clock. */
static void put_timings_so_far(FILE *to, const struct serve_stream *stream)
{
    const runnel_usage *usage = &stream->task->choices[serve_index(stream)].usage;
    double prompt_ms = (double)(stream->first_ns - stream->task->began_ns) / 1e6;

    fprintf(to, ",\"timings\":{\"cache_n\":%llu,", (unsigned long long)usage->cached_tokens);
    put_rate(to, "prompt", usage->prompt_tokens - usage->cached_tokens, prompt_ms);
    fputc(',', to);
    put_rate(to, "predicted", usage->completion_tokens, (double)(uv_hrtime() - stream->first_ns) / 1e6);
    fputc('}', to);
}

static void put_progress(FILE *to, const struct serve_stream *stream, const runnel_event *event)
{
    fprintf(to, ",\"prompt_progress\":{\"total\":%llu,\"cache\":%llu,\"processed\":%llu,\"time_ms\":%.0f}",
            (unsigned long long)event->prompt_total, (unsigned long long)event->usage.cached_tokens,
            (unsigned long long)event->prompt_done, (double)(uv_hrtime() - stream->task->began_ns) / 1e6);
}

/* Without its end. */
static void put_piece(FILE *to, struct serve_stream *stream, const runnel_event *event)
{
    const struct serve_task *task = stream->task;
    struct openai_choice *choice = serve_choice(stream);
    bool speaks = event->type == RUNNEL_EVENT_TOKEN;

    fprintf(to, "{\"index\":%zu,\"content\":", serve_index(stream));
    app_json_string(to, speaks ? event->text : "", speaks ? event->text_bytes : 0);
    fputs(",\"tokens\":", to);
    openai_ids_take(to, choice);
    if (choice->n_entries > 0) {
        fputs(",\"completion_probabilities\":", to);
        openai_logprobs_take(to, choice);
    }
    fprintf(to, ",\"stop\":false,\"tokens_predicted\":%llu,\"tokens_evaluated\":%llu",
            (unsigned long long)choice->usage.completion_tokens, (unsigned long long)choice->usage.prompt_tokens);
    if (task->wish.timings && speaks)
        put_timings_so_far(to, stream);
    if (!speaks)
        put_progress(to, stream, event);
    fputc('}', to);
}

/* What has come of a prompt is told where it was asked for. A token without a text goes with the next piece. */
static bool is_told(const struct serve_stream *stream, const runnel_event *event)
{
    if (event->type == RUNNEL_EVENT_PROGRESS)
        return stream->task->wish.progress;
    return event->type == RUNNEL_EVENT_DONE ||
           (event->type == RUNNEL_EVENT_TOKEN &&
            (event->text_bytes > 0 || stream->task->choices[serve_index(stream)].n_entries > 0));
}

/* A piece of an answer, or its end. */
static void chunk(struct serve_task *task, struct serve_stream *stream, const runnel_event *event)
{
    struct openai_choice *choice = serve_choice(stream);
    FILE *to = NULL;

    choice->usage.completion_tokens += event->n_tokens;
    if (event->type == RUNNEL_EVENT_PROGRESS) {
        choice->usage.prompt_tokens = event->prompt_total;
        choice->usage.cached_tokens = event->usage.cached_tokens;
    } else {
        openai_choice_event(choice, event);
    }
    if (event->type == RUNNEL_EVENT_TOKEN && stream->first_ns == 0)
        stream->first_ns = uv_hrtime();
    if (!is_told(stream, event))
        return;
    serve_task_begin(task);
    to = serve_write(task->serve);
    fputs("data: ", to);
    if (event->type == RUNNEL_EVENT_DONE)
        put_answer(task, to, serve_index(stream));
    else
        put_piece(to, stream, event);
    fputs("\n\n", to);
    serve_task_send(task);
}

/* Each answer has told its own. */
static void end(struct serve_task *task)
{
    (void)task;
}

static void too_long(struct openai_error *error, const struct serve_length *length)
{
    error->type = "exceed_context_size_error";
    error->n_prompt = length->prompt;
    error->n_context = length->context;
    if (length->prompt > 0)
        snprintf(error->message, sizeof error->message,
                 "request (%llu tokens) exceeds the available context size (%llu tokens), try increasing it",
                 length->prompt, length->context);
    else
        serve_put_before(
            error, "request exceeds the available context size (%llu tokens), try increasing it: ", length->context);
}

static void fail(struct serve_task *task, const struct openai_error *error)
{
    FILE *to = serve_write(task->serve);

    fputs("data: ", to);
    openai_error_write(to, error);
    fputs("\n\n", to);
    serve_task_send(task);
}

/* What both have that continue a text. */
#define BOTH                                                                                                        \
    .stream_type = "text/event-stream", .wish = llama_wish, .passes = true, .names = llama_names,                   \
    .llama_entries = true, .free_ranges = true, .tells_prompt = true, .answer = answer, .chunk = chunk, .end = end, \
    .fail = fail, .ping = ": still here\n\n", .put_error = serve_put_error, .too_long = too_long

const struct serve_dialect serve_llama = {.translate = llama_translate, BOTH};
const struct serve_dialect serve_infill = {.translate = llama_translate_infill, BOTH};
const struct serve_dialect serve_llama_embedding = {.translate = llama_translate_embedding,
                                                    .names = llama_embedding_names,
                                                    .answer = answer_embedding,
                                                    .put_error = serve_put_error,
                                                    .too_long = too_long};
