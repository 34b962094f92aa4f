/* Answers of /v1/responses that come in pieces: events with names, numbered. See serve.h.
 *
 *   created, in_progress ─▶ for each item, one after the other:
 *     reasoning, message      output_item.added, content_part.added, *.delta .., *.done, content_part.done, item.done
 *     function_call           output_item.added, function_call_arguments.delta .., .done, output_item.done
 *                         ─▶ completed, or incomplete */
#include <string.h>

#include "apps/serve/serve.h"

static FILE *open_event(struct serve_task *task, struct serve_stream *stream, const char *name)
{
    FILE *to = serve_write(task->serve);

    fprintf(to, "event: response.%s\ndata: {\"type\":\"response.%s\",\"sequence_number\":%u", name, name,
            stream->sequence++);
    return to;
}

static void close_event(struct serve_task *task, FILE *to)
{
    fputs("}\n\n", to);
    serve_task_send(task);
}

static void whole(struct serve_task *task, struct serve_stream *stream, const char *name)
{
    FILE *to = open_event(task, stream, name);

    fputs(",\"response\":", to);
    openai_response_write(to, &task->request, serve_choice(stream), &task->head);
    close_event(task, to);
}

/* ---- Items ------------------------------------------------------------------------------- */

static const struct openai_item *item_of(const struct serve_stream *stream)
{
    return &serve_choice(stream)->items[stream->item];
}

/* Where in the answer: the item's id and its place; calls have no parts. */
static void put_place(FILE *to, const struct serve_task *task, const struct serve_stream *stream)
{
    fputs(",\"item_id\":", to);
    openai_item_id_write(to, serve_choice(stream), stream->item, &task->head);
    fprintf(to, ",\"output_index\":%u", stream->item);
    if (item_of(stream)->kind != OPENAI_CALL)
        fputs(",\"content_index\":0", to);
}

static void put_item(struct serve_task *task, struct serve_stream *stream, const char *name, bool begun)
{
    FILE *to = open_event(task, stream, name);

    fprintf(to, ",\"output_index\":%u,\"item\":", stream->item);
    openai_item_write(to, serve_choice(stream), stream->item, &task->head, begun);
    close_event(task, to);
}

static void put_part(struct serve_task *task, struct serve_stream *stream, const char *name, bool begun)
{
    FILE *to = open_event(task, stream, name);

    put_place(to, task, stream);
    fputs(",\"part\":", to);
    openai_part_write(to, serve_choice(stream), stream->item, begun);
    close_event(task, to);
}

static void open_item(struct serve_task *task, struct serve_stream *stream)
{
    stream->opened = true;
    stream->told_entries = item_of(stream)->first_entry;
    put_item(task, stream, "output_item.added", true);
    if (item_of(stream)->kind != OPENAI_CALL)
        put_part(task, stream, "content_part.added", true);
}

/* The event that has all of what the deltas have told. */
static void put_done(struct serve_task *task, struct serve_stream *stream)
{
    static const char *const names[] = {[OPENAI_REASONING] = "reasoning_text.done",
                                        [OPENAI_MESSAGE] = "output_text.done",
                                        [OPENAI_CALL] = "function_call_arguments.done"};
    struct openai_choice *choice = serve_choice(stream);
    const struct openai_item *item = item_of(stream);
    const struct openai_buffer *text = item->kind == OPENAI_CALL        ? &choice->calls[item->call]->arguments
                                       : item->kind == OPENAI_REASONING ? &choice->reasoning
                                                                        : &choice->content;
    size_t begin = item->kind == OPENAI_CALL ? 0 : item->begin;
    FILE *to = open_event(task, stream, names[item->kind]);

    put_place(to, task, stream);
    fflush(text->to);
    if (item->kind == OPENAI_CALL) {
        fflush(choice->calls[item->call]->name.to);
        fputs(",\"name\":", to);
        app_json_string(to, choice->calls[item->call]->name.bytes, choice->calls[item->call]->name.n);
    }
    fputs(item->kind == OPENAI_CALL ? ",\"arguments\":" : ",\"text\":", to);
    app_json_string(to, text->n > 0 ? text->bytes + begin : "",
                    item->kind == OPENAI_CALL ? text->n : item->end - begin);
    if (item->kind == OPENAI_MESSAGE) {
        fputs(",\"logprobs\":", to);
        openai_item_logprobs_write(to, choice, item);
    }
    close_event(task, to);
}

static void close_item(struct serve_task *task, struct serve_stream *stream)
{
    put_done(task, stream);
    if (item_of(stream)->kind != OPENAI_CALL)
        put_part(task, stream, "content_part.done", false);
    put_item(task, stream, "output_item.done", false);
    stream->item++;
    stream->opened = false;
}

/* Tells of items that have begun, and that those before the last one have ended. A call whose id may still come is
 * announced with what comes behind it. */
static void follow(struct serve_task *task, struct serve_stream *stream, bool certain)
{
    size_t n = serve_choice(stream)->n_items;

    while (stream->item < n) {
        bool last = stream->item + 1 == n;

        if (!stream->opened && last && !certain)
            return;
        if (!stream->opened)
            open_item(task, stream);
        if (last)
            return;
        close_item(task, stream);
    }
}

/* ---- Events ------------------------------------------------------------------------------ */

/* The log-probabilities that have come since the last delta of the message. */
static void put_news(FILE *to, struct serve_stream *stream)
{
    struct openai_choice *choice = serve_choice(stream);
    struct openai_item news = {.first_entry = stream->told_entries, .last_entry = stream->told_entries};

    if (choice->entries.to != NULL) {
        fflush(choice->entries.to);
        news.last_entry = stream->told_entries = choice->entries.n;
    }
    openai_item_logprobs_write(to, choice, &news);
}

static void put_delta(struct serve_task *task, struct serve_stream *stream, const runnel_event *event,
                      enum openai_item_kind kind)
{
    static const char *const names[] = {[OPENAI_REASONING] = "reasoning_text.delta",
                                        [OPENAI_MESSAGE] = "output_text.delta",
                                        [OPENAI_CALL] = "function_call_arguments.delta"};
    FILE *to = NULL;

    if (event->text_bytes == 0 || !stream->opened || item_of(stream)->kind != kind ||
        (kind == OPENAI_CALL && item_of(stream)->call != event->tool_call))
        return;
    to = open_event(task, stream, names[kind]);
    put_place(to, task, stream);
    fputs(",\"delta\":", to);
    app_json_string(to, event->text, event->text_bytes);
    if (kind == OPENAI_MESSAGE) {
        fputs(",\"logprobs\":", to);
        put_news(to, stream);
    }
    close_event(task, to);
}

static void greet(struct serve_task *task, struct serve_stream *stream)
{
    if (stream->greeted)
        return;
    stream->greeted = true;
    serve_task_begin(task);
    whole(task, stream, "created");
    whole(task, stream, "in_progress");
}

static void chunk(struct serve_task *task, struct serve_stream *stream, const runnel_event *event)
{
    if (event->type == RUNNEL_EVENT_PROGRESS)
        return;
    greet(task, stream);
    openai_choice_event(serve_choice(stream), event);
    if (serve_choice(stream)->failed)
        return; /* memory was short: the end tells */
    follow(task, stream, event->type != RUNNEL_EVENT_TOOL_CALL && event->type != RUNNEL_EVENT_TOOL_ID);
    switch (event->type) {
    case RUNNEL_EVENT_TOKEN:
        put_delta(task, stream, event, OPENAI_MESSAGE);
        break;
    case RUNNEL_EVENT_REASONING:
        put_delta(task, stream, event, OPENAI_REASONING);
        break;
    case RUNNEL_EVENT_TOOL_ARGUMENTS:
        put_delta(task, stream, event, OPENAI_CALL);
        break;
    case RUNNEL_EVENT_DONE:
        close_item(task, stream);
        break;
    default:
        break;
    }
}

static void fail(struct serve_task *task, const struct openai_error *error)
{
    FILE *to = serve_write(task->serve);

    fprintf(to,
            "event: error\ndata: {\"type\":\"error\",\"sequence_number\":%u,\"message\":", task->streams[0].sequence);
    openai_sentence_write(to, error->message);
    fputs(",\"code\":", to);
    openai_string_write(to, error->code);
    fputs(",\"param\":", to);
    openai_string_write(to, error->param[0] != '\0' ? error->param : NULL);
    fputs("}\n\n", to);
    serve_task_send(task);
}

static void end(struct serve_task *task)
{
    struct serve_stream *stream = &task->streams[0];
    struct openai_error error;

    if (serve_choice(stream)->failed) {
        openai_no_memory(&error);
        fail(task, &error);
        return;
    }
    whole(task, stream, serve_choice(stream)->finish == RUNNEL_FINISH_LENGTH ? "incomplete" : "completed");
}

static void answer(struct serve_task *task, FILE *to)
{
    openai_response_write(to, &task->request, &task->choices[0], &task->head);
}

const struct serve_dialect serve_responses = {.stream_type = "text/event-stream",
                                              .answer = answer,
                                              .chunk = chunk,
                                              .end = end,
                                              .fail = fail,
                                              .ping = ": still here\n\n",
                                              .put_error = serve_put_error};
