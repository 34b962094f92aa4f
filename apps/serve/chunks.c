/* Answers that come in pieces, as server-sent events in OpenAI's form: see serve.h.
 *
 *     data: {"id": .., "object": .., "created": .., "model": .., "choices": [{"index": .., "delta": {..}, ..}]}
 *
 * The pieces of a chat join to the message that the answer would have had at once. */
#include <stdlib.h>
#include <string.h>

#include "serve.h"

/* What each chunk begins with. */
static bool make_prefix(struct serve_task *task)
{
    FILE *to = serve_write(task->serve);

    fprintf(to, "data: {\"id\":\"%s\",\"object\":\"%s\",\"created\":%lld,\"model\":", task->head.id,
            task->request.endpoint == OPENAI_CHAT ? "chat.completion.chunk" : "text_completion",
            (long long)task->head.created);
    openai_string_write(to, task->request.model != NULL ? task->request.model : task->head.model);
    fputs(",\"choices\":[", to);
    fflush(to);
    task->prefix_bytes = task->serve->out.n;
    task->prefix = malloc(task->prefix_bytes);
    if (task->prefix != NULL)
        memcpy(task->prefix, task->serve->out.bytes, task->prefix_bytes);
    return task->prefix != NULL;
}

/* ---- One chunk --------------------------------------------------------------------------- */

/* Up to the choice's own members. NULL: the task has failed. */
static FILE *open_chunk(struct serve_task *task, const struct serve_stream *stream)
{
    FILE *to = NULL;

    if (task->exchange == NULL || (task->prefix == NULL && !make_prefix(task)))
        return NULL;
    serve_task_begin(task);
    to = serve_write(task->serve);
    fwrite(task->prefix, 1, task->prefix_bytes, to);
    fprintf(to, "{\"index\":%zu,", serve_index(stream));
    return to;
}

/* The ids that have come, and with a choice's first chunk those of its prompt; a chat has one prompt, whose ids stand
 * beside the choices of the first chunk of all. To the end of the choices. */
static void close_choice(struct serve_task *task, struct serve_stream *stream, FILE *to)
{
    bool chat = task->request.endpoint == OPENAI_CHAT;
    struct serve_stream *teller = chat ? &task->streams[0] : stream;
    bool first = task->request.tells_ids && !teller->told_prompt;

    if (first && !chat) {
        fputs(",\"prompt_token_ids\":", to);
        openai_prompt_ids_write(to, &task->request, serve_index(stream));
    }
    if (task->request.tells_ids) {
        fputs(",\"token_ids\":", to);
        openai_ids_take(to, serve_choice(stream));
    }
    fputs("}]", to);
    if (first && chat) {
        fputs(",\"prompt_token_ids\":", to);
        openai_prompt_ids_write(to, &task->request, 0);
    }
    teller->told_prompt = true;
}

/* From the choice's log-probabilities on. */
static void close_chunk(struct serve_task *task, FILE *to, struct serve_stream *stream, const char *finish)
{
    struct openai_choice *choice = serve_choice(stream);
    const runnel_usage *usage = &choice->usage;

    fputs(",\"logprobs\":", to);
    if (choice->n_entries > 0)
        openai_logprobs_take(to, choice);
    else
        fputs("null", to);
    if (finish != NULL) {
        fprintf(to, ",\"finish_reason\":\"%s\",\"stop_reason\":", finish);
        openai_stop_write(to, choice);
    } else {
        fputs(",\"finish_reason\":null", to);
    }
    close_choice(task, stream, to);
    if (task->request.usage_always)
        fprintf(to, ",\"usage\":{\"prompt_tokens\":%llu,\"completion_tokens\":%llu,\"total_tokens\":%llu}",
                (unsigned long long)usage->prompt_tokens, (unsigned long long)usage->completion_tokens,
                (unsigned long long)(usage->prompt_tokens + usage->completion_tokens));
    fputs("}\n\n", to);
    serve_task_send(task);
}

/* Where in what is written the text of a chunk stands. */
struct place {
    size_t begin, end;
};

/* A member of the delta that is a text; a completion has no delta. */
static struct place put_text(FILE *to, const struct serve_task *task, const char *member, const char *text, size_t n)
{
    struct place place = {0};

    if (task->request.endpoint == OPENAI_CHAT)
        fprintf(to, "\"delta\":{\"%s\":", member);
    else
        fputs("\"text\":", to);
    place.begin = (size_t)ftello(to);
    app_json_string(to, text, n);
    place.end = (size_t)ftello(to);
    if (task->request.endpoint == OPENAI_CHAT)
        fputc('}', to);
    return place;
}

/* The first chunk of a choice: a chat's role, a completion's prompt where it is echoed. */
static void greet(struct serve_task *task, struct serve_stream *stream)
{
    struct openai_choice *choice = serve_choice(stream);
    FILE *to = NULL;

    if (stream->greeted)
        return;
    stream->greeted = true;
    if (task->request.endpoint != OPENAI_CHAT && !task->request.echo)
        return;
    to = open_chunk(task, stream);
    if (to == NULL)
        return;
    if (task->request.endpoint == OPENAI_CHAT) {
        fputs("\"delta\":{\"role\":\"assistant\",\"content\":\"\"}", to);
    } else {
        fflush(choice->content.to);
        put_text(to, task, "", choice->content.bytes, choice->content.n);
    }
    close_chunk(task, to, stream, NULL);
}

/* ---- Calls ------------------------------------------------------------------------------- */

/* Its name and id, once the id is known or will not come. */
static void announce_call(struct serve_task *task, struct serve_stream *stream, uint32_t call)
{
    const char *dash = strrchr(task->head.id, '-');
    FILE *to = NULL;

    if (stream->named || (to = open_chunk(task, stream)) == NULL)
        return;
    stream->named = true;
    stream->n_calls++;
    if (task->request.functions) {
        fputs("\"delta\":{\"function_call\":{\"name\":", to);
        openai_string_write(to, stream->call_name);
        fputs(",\"arguments\":\"\"}}", to);
        close_chunk(task, to, stream, NULL);
        return;
    }
    fprintf(to, "\"delta\":{\"tool_calls\":[{\"index\":%u,\"id\":", call);
    if (stream->call_id[0] != '\0')
        openai_string_write(to, stream->call_id);
    else
        fprintf(to, "\"call_%s_%zu_%u\"", dash != NULL ? dash + 1 : task->head.id, serve_index(stream), call);
    fputs(",\"type\":\"function\",\"function\":{\"name\":", to);
    openai_string_write(to, stream->call_name);
    fputs(",\"arguments\":\"\"}}]}", to);
    close_chunk(task, to, stream, NULL);
}

static void put_arguments(struct serve_task *task, struct serve_stream *stream, const runnel_event *event)
{
    FILE *to = event->text_bytes > 0 ? open_chunk(task, stream) : NULL;

    if (to == NULL)
        return;
    if (task->request.functions)
        fputs("\"delta\":{\"function_call\":{\"arguments\":", to);
    else
        fprintf(to, "\"delta\":{\"tool_calls\":[{\"index\":%u,\"function\":{\"arguments\":", event->tool_call);
    app_json_string(to, event->text, event->text_bytes);
    fputs(task->request.functions ? "}}" : "}}]}", to);
    close_chunk(task, to, stream, NULL);
}

static void take_call(struct serve_task *task, struct serve_stream *stream, const runnel_event *event)
{
    if (task->request.one_call && event->tool_call > 0)
        return;
    switch (event->type) {
    case RUNNEL_EVENT_TOOL_CALL:
        stream->named = false;
        stream->call_name[0] = stream->call_id[0] = '\0';
        serve_append(stream->call_name, sizeof stream->call_name, event);
        break;
    case RUNNEL_EVENT_TOOL_ID:
        serve_append(stream->call_id, sizeof stream->call_id, event);
        break;
    case RUNNEL_EVENT_TOOL_ARGUMENTS:
        announce_call(task, stream, event->tool_call);
        put_arguments(task, stream, event);
        break;
    default:
        announce_call(task, stream, event->tool_call);
        break;
    }
}

/* ---- Events ------------------------------------------------------------------------------ */

static int form_of(const runnel_event *event)
{
    return event->type == RUNNEL_EVENT_TOKEN ? 1 : 2;
}

static void take_text(struct serve_task *task, struct serve_stream *stream, const runnel_event *event)
{
    struct openai_choice *choice = serve_choice(stream);
    bool plain = !task->request.logprobs && !task->request.tells_ids && !task->request.usage_always;
    struct place place;
    FILE *to = NULL;

    if (event->type == RUNNEL_EVENT_TOKEN ? task->request.logprobs || task->request.tells_ids
                                          : task->request.usage_at_end)
        openai_choice_event(choice, event);
    if (task->request.hides_reasoning && event->type == RUNNEL_EVENT_REASONING)
        return;
    if (event->text_bytes == 0 && choice->n_entries == 0)
        return;
    if ((plain && serve_form_send(stream, form_of(event), event)) || (to = open_chunk(task, stream)) == NULL)
        return;
    place = put_text(to, task, event->type == RUNNEL_EVENT_TOKEN ? "content" : "reasoning_content", event->text,
                     event->text_bytes);
    close_chunk(task, to, stream, NULL);
    if (plain)
        serve_form_keep(stream, form_of(event), place.begin, place.end);
}

static void end_choice(struct serve_task *task, struct serve_stream *stream, const runnel_event *event)
{
    struct openai_choice *choice = serve_choice(stream);
    FILE *to = NULL;

    openai_choice_event(choice, event);
    to = open_chunk(task, stream);
    if (to == NULL)
        return;
    fputs(task->request.endpoint == OPENAI_CHAT ? "\"delta\":{}" : "\"text\":\"\"", to);
    close_chunk(task, to, stream,
                choice->finish == RUNNEL_FINISH_LENGTH ? "length"
                : stream->n_calls == 0                 ? "stop"
                : task->request.functions              ? "function_call"
                                                       : "tool_calls");
}

static void chunk(struct serve_task *task, struct serve_stream *stream, const runnel_event *event)
{
    struct openai_choice *choice = serve_choice(stream);

    choice->usage.completion_tokens += event->n_tokens;
    if (event->type == RUNNEL_EVENT_PROGRESS) {
        choice->usage.prompt_tokens = event->prompt_total;
        choice->usage.cached_tokens = event->usage.cached_tokens;
        return;
    }
    if (event->type == RUNNEL_EVENT_LOGITS) { /* they go with the prompt's text */
        openai_choice_event(choice, event);
        return;
    }
    greet(task, stream);
    switch (event->type) {
    case RUNNEL_EVENT_TOKEN:
    case RUNNEL_EVENT_REASONING:
        take_text(task, stream, event);
        break;
    case RUNNEL_EVENT_DONE:
        end_choice(task, stream, event);
        break;
    default:
        take_call(task, stream, event);
        break;
    }
}

/* ---- The whole --------------------------------------------------------------------------- */

static void answer(struct serve_task *task, FILE *to)
{
    openai_answer_write(to, &task->request, task->choices, task->n_choices, &task->head);
}

static void end(struct serve_task *task)
{
    FILE *to = serve_write(task->serve);

    if (task->request.usage_at_end) {
        fwrite(task->prefix, 1, task->prefix_bytes, to);
        fputs("],", to);
        openai_usage_write(to, &task->request, task->choices, task->n_choices, &task->head);
        fputs("}\n\n", to);
    }
    fputs("data: [DONE]\n\n", to);
    serve_task_send(task);
}

static void fail(struct serve_task *task, const struct openai_error *error)
{
    FILE *to = serve_write(task->serve);

    fputs("data: ", to);
    openai_error_write(to, error);
    fputs("\n\ndata: [DONE]\n\n", to);
    serve_task_send(task);
}

const struct serve_dialect serve_openai = {.stream_type = "text/event-stream",
                                           .answer = answer,
                                           .chunk = chunk,
                                           .end = end,
                                           .fail = fail,
                                           .ping = ": still here\n\n",
                                           .put_error = serve_put_error};
