/* The /completion and /infill of llama.cpp's server: its names of fields, its form of answers. Each answer is an object of
 * its own: several prompts, or n of them, are an array of answers; in pieces each has its index. */
#include <stdlib.h>
#include <string.h>

#include "routes.h"

/* ---- Requests ---------------------------------------------------------------------------- */

const struct openai_field llama_fields[] = {{"prompt", OPENAI_PROMPTS, true, 0, 0},
                                            {"n_predict", OPENAI_WHOLE, false, INT32_MIN, INT32_MAX},
                                            {"max_tokens", OPENAI_WHOLE, false, 0, INT32_MAX},
                                            {"repeat_penalty", OPENAI_REAL, false, 0, 0},
                                            {"repeat_last_n", OPENAI_WHOLE, false, 0, UINT32_MAX},
                                            {"n_probs", OPENAI_WHOLE, false, 0, RUNNEL_MAX_TOP_LOGPROBS},
                                            {"n_cmpl", OPENAI_WHOLE, false, 1, 128},
                                            {0}};

const struct openai_field llama_infill_fields[] = {{"input_prefix", OPENAI_STRING, true, 0, 0},
                                                   {"input_suffix", OPENAI_STRING, true, 0, 0},
                                                   {"prompt", OPENAI_STRING, false, 0, 0},
                                                   {"input_extra", OPENAI_ARRAY, false, 0, 0},
                                                   {"n_predict", OPENAI_WHOLE, false, INT32_MIN, INT32_MAX},
                                                   {"max_tokens", OPENAI_WHOLE, false, 0, INT32_MAX},
                                                   {"repeat_penalty", OPENAI_REAL, false, 0, 0},
                                                   {"repeat_last_n", OPENAI_WHOLE, false, 0, UINT32_MAX},
                                                   {"n_probs", OPENAI_WHOLE, false, 0, RUNNEL_MAX_TOP_LOGPROBS},
                                                   {"n_cmpl", OPENAI_WHOLE, false, 1, 128},
                                                   {0}};

/* Fields whose names OpenAI's form or its further samplers do not know; the others pass as they are. Where a body has
 * both names, the one of OpenAI's form counts. */
static bool rename_field(const json_t *body, const char *from, json_t *out, const char *to)
{
    json_t *value = json_object_get(body, from), *other = json_object_get(body, to);

    if (value == NULL || json_is_null(value))
        return true;
    if (other != NULL && !json_is_null(other))
        return json_object_del(out, from) == 0;
    return json_object_set(out, to, value) == 0 && json_object_del(out, from) == 0;
}

/* What that server takes where a body says nothing. */
static bool add_usual(const json_t *body, json_t *out)
{
    return json_object_get(body, "temperature") != NULL ||
           (json_object_set_new(out, "temperature", json_real(0.8)) == 0 &&
            (json_object_get(body, "top_k") != NULL || json_object_set_new(out, "top_k", json_integer(40)) == 0) &&
            (json_object_get(body, "top_p") != NULL || json_object_set_new(out, "top_p", json_real(0.95)) == 0) &&
            (json_object_get(body, "min_p") != NULL || json_object_set_new(out, "min_p", json_real(0.05)) == 0));
}

/* n_predict, or max_tokens. Without a limit, or with -1, an answer goes on to the end of the context. */
static bool add_limit(const json_t *body, json_t *out, struct openai_error *error)
{
    const json_t *n = json_object_get(body, "n_predict"), *most = json_object_get(body, "max_tokens");
    bool given = n != NULL && !json_is_null(n);

    json_object_del(out, "n_predict");
    if (given && !openai_expect(error, "n_predict", n, JSON_INTEGER))
        return false;
    if (!given && most != NULL && !json_is_null(most))
        return true;
    return json_object_set_new(out, "max_tokens",
                               json_integer(given && json_integer_value(n) >= 0 ? json_integer_value(n) : INT32_MAX)) ==
           0;
}

static json_t *translate(const json_t *body, struct openai_error *error)
{
    json_t *out = json_copy((json_t *)(uintptr_t)body);
    const json_t *seed = json_object_get(body, "seed"), *probs = json_object_get(body, "n_probs");
    const json_t *other = json_object_get(body, "logprobs");
    bool good = out != NULL && add_limit(body, out, error);

    if (good && json_is_integer(seed) && json_integer_value(seed) == -1)
        json_object_del(out, "seed");
    good = good && rename_field(body, "repeat_penalty", out, "repetition_penalty") &&
           rename_field(body, "repeat_last_n", out, "penalty_tokens") && rename_field(body, "n_cmpl", out, "n") &&
           rename_field(body, "n_probs", out, "logprobs") && add_usual(body, out);
    if (good && json_is_integer(probs) && json_integer_value(probs) == 0 && (other == NULL || json_is_null(other)))
        json_object_del(out, "logprobs");
    if (good)
        return out;
    json_decref(out);
    return NULL;
}

/* ---- Gaps -------------------------------------------------------------------------------- */

/* A text of the body, joined behind `out`'s; a field that is missing is an error where it is needed. */
static bool join_text(const json_t *body, const char *name, bool needed, struct openai_buffer *out,
                      struct openai_error *error)
{
    const json_t *text = json_object_get(body, name);

    if (!needed && (text == NULL || json_is_null(text)))
        return true;
    if (!openai_expect(error, name, text, JSON_STRING))
        return false;
    return json_string_length(text) == 0 ||
           fwrite(json_string_value(text), 1, json_string_length(text), out->to) == json_string_length(text);
}

/* What stands before the gap: input_prefix, and prompt, the part of it that the user has just written. */
static json_t *before_gap(const json_t *body, struct openai_error *error)
{
    struct openai_buffer text = {0};
    json_t *joined = NULL;

    text.to = open_memstream(&text.bytes, &text.n);
    if (text.to == NULL)
        return NULL;
    if (join_text(body, "input_prefix", true, &text, error) && join_text(body, "prompt", false, &text, error) &&
        fflush(text.to) == 0)
        joined = json_stringn(text.n > 0 ? text.bytes : "", text.n);
    fclose(text.to);
    free(text.bytes);
    return joined;
}

/* /infill: the texts around a gap, and other files. Also without these the model is told where files begin. */
static json_t *translate_infill(const json_t *body, struct openai_error *error)
{
    json_t *suffix = json_object_get(body, "input_suffix"), *extra = json_object_get(body, "input_extra");
    json_t *prompt = before_gap(body, error);
    json_t *out =
        prompt != NULL && openai_expect(error, "input_suffix", suffix, JSON_STRING) ? translate(body, error) : NULL;
    bool good = out != NULL && json_object_set(out, "prompt", prompt) == 0 &&
                json_object_set(out, "suffix", suffix) == 0 &&
                ((extra != NULL && !json_is_null(extra)) || json_object_set_new(out, "input_extra", json_array()) == 0);

    json_decref(prompt);
    if (good)
        return out;
    json_decref(out);
    return NULL;
}

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

/* From behind the text on. */
static void put_rest(FILE *to, const struct serve_task *task, const struct openai_choice *choice)
{
    const char *word = openai_choice_stop(choice);

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
    fputs(",\"generation_settings\":", to);
    serve_put_settings(to, &task->request);
    fputc(',', to);
    put_timings(to, choice);
    fputc('}', to);
}

static void put_answer(struct serve_task *task, FILE *to, size_t i)
{
    struct openai_choice *choice = &task->choices[i];
    struct openai_buffer *text = &choice->content;

    fflush(text->to);
    fprintf(to, "{\"index\":%zu,\"content\":", i);
    app_json_string(to, text->n > 0 ? text->bytes : "", text->n);
    if (task->request.logprobs) {
        fputs(",\"completion_probabilities\":", to);
        openai_logprobs_take(to, choice);
    }
    put_rest(to, task, choice);
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

/* A piece of an answer, or its end. */
static void chunk(struct serve_task *task, struct serve_stream *stream, const runnel_event *event)
{
    struct openai_choice *choice = serve_choice(stream);
    bool ends = event->type == RUNNEL_EVENT_DONE;
    FILE *to = NULL;

    choice->usage.completion_tokens += event->n_tokens;
    if (ends || (event->type == RUNNEL_EVENT_TOKEN && task->request.logprobs))
        openai_choice_event(choice, event);
    if (!ends && (event->type != RUNNEL_EVENT_TOKEN || (event->text_bytes == 0 && choice->n_entries == 0)))
        return;
    serve_task_begin(task);
    to = serve_write(task->serve);
    fprintf(to, "data: {\"index\":%zu,\"content\":", serve_index(stream));
    app_json_string(to, event->text, ends ? 0 : event->text_bytes);
    if (choice->n_entries > 0) {
        fputs(",\"completion_probabilities\":", to);
        openai_logprobs_take(to, choice);
    }
    if (ends)
        put_rest(to, task, choice);
    else
        fprintf(to, ",\"stop\":false,\"tokens_predicted\":%llu}", (unsigned long long)choice->usage.completion_tokens);
    fputs("\n\n", to);
    serve_task_send(task);
}

/* Each answer has told its own. */
static void end(struct serve_task *task)
{
    (void)task;
}

static void fail(struct serve_task *task, const struct openai_error *error)
{
    FILE *to = serve_write(task->serve);

    fputs("data: ", to);
    openai_error_write(to, error);
    fputs("\n\n", to);
    serve_task_send(task);
}

const struct serve_dialect serve_llama = {.stream_type = "text/event-stream",
                                          .translate = translate,
                                          .passes = true,
                                          .llama_entries = true,
                                          .answer = answer,
                                          .chunk = chunk,
                                          .end = end,
                                          .fail = fail,
                                          .ping = ": still here\n\n",
                                          .put_error = openai_error_write};

const struct serve_dialect serve_infill = {.stream_type = "text/event-stream",
                                           .translate = translate_infill,
                                           .passes = true,
                                           .llama_entries = true,
                                           .answer = answer,
                                           .chunk = chunk,
                                           .end = end,
                                           .fail = fail,
                                           .ping = ": still here\n\n",
                                           .put_error = openai_error_write};
