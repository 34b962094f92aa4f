/* Answers of Anthropic's /v1/messages: see anthropic.h. An answer is a list of blocks: thoughts, text, calls of tools.
 *
 *   message_start ─▶ for each block: content_block_start, content_block_delta .., content_block_stop
 *                 ─▶ message_delta (why it ended), message_stop */
#include "anthropic.h"

#include <string.h>

enum block { NO_BLOCK, THINKING, TEXT, TOOL };

static enum block block_of(const struct serve_stream *stream)
{
    return stream->thinks ? THINKING : stream->speaks ? TEXT : stream->named ? TOOL : NO_BLOCK;
}

static const char *model_of(const struct serve_task *task)
{
    return task->request.model != NULL ? task->request.model : task->head.model;
}

static const char *reason_of(const struct openai_choice *choice, bool calls)
{
    if (choice->finish == RUNNEL_FINISH_LENGTH)
        return "max_tokens";
    return openai_choice_stop(choice) != NULL ? "stop_sequence" : calls ? "tool_use" : "end_turn";
}

/* "stop_reason": .., "stop_sequence": .. */
static void put_reason(FILE *to, const struct openai_choice *choice, bool calls)
{
    fprintf(to, "\"stop_reason\":\"%s\",\"stop_sequence\":", reason_of(choice, calls));
    openai_string_write(to, openai_choice_stop(choice));
}

static void put_usage(FILE *to, const struct openai_choice *choice)
{
    unsigned long long cached = choice->usage.cached_tokens;

    fprintf(to,
            "{\"input_tokens\":%llu,\"cache_read_input_tokens\":%llu,\"cache_creation_input_tokens\":0,"
            "\"output_tokens\":%llu}",
            (unsigned long long)choice->usage.prompt_tokens - cached, cached,
            (unsigned long long)choice->usage.completion_tokens);
}

/* The message up to its content. */
static void put_head(FILE *to, const struct serve_task *task)
{
    fprintf(to, "{\"id\":\"%s\",\"type\":\"message\",\"role\":\"assistant\",\"model\":", task->head.id);
    openai_string_write(to, model_of(task));
}

static void put_call_id(FILE *to, const struct serve_task *task, const char *id, unsigned call)
{
    if (id[0] != '\0')
        openai_string_write(to, id);
    else
        fprintf(to, "\"toolu_%s_%u\"", strchr(task->head.id, '_') + 1, call);
}

/* ---- Whole answers ----------------------------------------------------------------------- */

static void put_buffer(FILE *to, struct openai_buffer *buffer)
{
    fflush(buffer->to);
    app_json_string(to, buffer->n > 0 ? buffer->bytes : "", buffer->n);
}

static void put_call(FILE *to, const struct serve_task *task, struct openai_call *call, unsigned i)
{
    fflush(call->id.to);
    fflush(call->arguments.to);
    fputs("{\"type\":\"tool_use\",\"id\":", to);
    put_call_id(to, task, call->id.n > 0 ? call->id.bytes : "", i);
    fputs(",\"name\":", to);
    put_buffer(to, &call->name);
    fputs(",\"input\":", to);
    if (call->complete && call->arguments.n > 0)
        fwrite(call->arguments.bytes, 1, call->arguments.n, to);
    else
        fputs("{}", to);
    fputc('}', to);
}

static void answer(struct serve_task *task, FILE *to)
{
    struct openai_choice *choice = &task->choices[0];
    size_t n_calls = task->request.one_call && choice->n_calls > 1 ? 1 : choice->n_calls;
    const char *comma = "";

    put_head(to, task);
    fputs(",\"content\":[", to);
    fflush(choice->reasoning.to);
    fflush(choice->content.to);
    if (choice->reasoning.n > 0) {
        fputs("{\"type\":\"thinking\",\"thinking\":", to);
        put_buffer(to, &choice->reasoning);
        fputs(",\"signature\":\"\"}", to);
        comma = ",";
    }
    if (choice->content.n > 0 || (n_calls == 0 && comma[0] == '\0')) {
        fprintf(to, "%s{\"type\":\"text\",\"text\":", comma);
        put_buffer(to, &choice->content);
        fputc('}', to);
        comma = ",";
    }
    for (unsigned i = 0; i < n_calls; i++, comma = ",") {
        fputs(comma, to);
        put_call(to, task, choice->calls[i], i);
    }
    fputs("],", to);
    put_reason(to, choice, n_calls > 0);
    fputs(",\"usage\":", to);
    put_usage(to, choice);
    fputc('}', to);
}

/* ---- Answers in pieces ------------------------------------------------------------------- */

static FILE *open_event(struct serve_task *task, const char *name)
{
    FILE *to = serve_write(task->serve);

    fprintf(to, "event: %s\ndata: {\"type\":\"%s\"", name, name);
    return to;
}

static void close_event(struct serve_task *task, FILE *to)
{
    fputs("}\n\n", to);
    serve_task_send(task);
}

static void greet(struct serve_task *task, struct serve_stream *stream)
{
    FILE *to = NULL;

    if (stream->greeted)
        return;
    stream->greeted = true;
    serve_task_begin(task);
    to = open_event(task, "message_start");
    fputs(",\"message\":", to);
    put_head(to, task);
    fputs(",\"content\":[],\"stop_reason\":null,\"stop_sequence\":null,\"usage\":", to);
    put_usage(to, serve_choice(stream));
    fputc('}', to);
    close_event(task, to);
}

static void close_block(struct serve_task *task, struct serve_stream *stream)
{
    FILE *to = NULL;

    if (block_of(stream) == NO_BLOCK)
        return;
    to = open_event(task, "content_block_stop");
    fprintf(to, ",\"index\":%u", stream->item++);
    close_event(task, to);
    stream->thinks = stream->speaks = stream->named = false;
}

static void open_block(struct serve_task *task, struct serve_stream *stream, enum block block)
{
    FILE *to = NULL;

    close_block(task, stream);
    stream->thinks = block == THINKING;
    stream->speaks = block == TEXT;
    stream->named = block == TOOL;
    to = open_event(task, "content_block_start");
    fprintf(to, ",\"index\":%u,\"content_block\":", stream->item);
    if (block == TOOL) {
        fputs("{\"type\":\"tool_use\",\"id\":", to);
        put_call_id(to, task, stream->call_id, stream->n_calls++);
        fputs(",\"name\":", to);
        openai_string_write(to, stream->call_name);
        fputs(",\"input\":{}}", to);
    } else {
        fputs(block == TEXT ? "{\"type\":\"text\",\"text\":\"\"}"
                            : "{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}",
              to);
    }
    close_event(task, to);
}

static void put_delta(struct serve_task *task, struct serve_stream *stream, enum block block, const runnel_event *event)
{
    static const char *const names[][2] = {[THINKING] = {"thinking_delta", "thinking"},
                                           [TEXT] = {"text_delta", "text"},
                                           [TOOL] = {"input_json_delta", "partial_json"}};
    size_t begin = 0, end = 0;
    FILE *to = NULL;

    if (event->text_bytes == 0)
        return;
    if (block_of(stream) != block)
        open_block(task, stream, block);
    else if (serve_form_send(stream, (int)block, event))
        return;
    to = open_event(task, "content_block_delta");
    fprintf(to, ",\"index\":%u,\"delta\":{\"type\":\"%s\",\"%s\":", stream->item, names[block][0], names[block][1]);
    begin = (size_t)ftello(to);
    app_json_string(to, event->text, event->text_bytes);
    end = (size_t)ftello(to);
    fputc('}', to);
    close_event(task, to);
    serve_form_keep(stream, (int)block, begin, end);
}

static void take_call(struct serve_task *task, struct serve_stream *stream, const runnel_event *event)
{
    if (task->request.one_call && event->tool_call > 0)
        return;
    switch (event->type) {
    case RUNNEL_EVENT_TOOL_CALL:
        close_block(task, stream);
        stream->call_name[0] = stream->call_id[0] = '\0';
        serve_append(stream->call_name, sizeof stream->call_name, event);
        break;
    case RUNNEL_EVENT_TOOL_ID:
        serve_append(stream->call_id, sizeof stream->call_id, event);
        break;
    case RUNNEL_EVENT_TOOL_ARGUMENTS:
        put_delta(task, stream, TOOL, event);
        break;
    default: /* the call is complete */
        if (block_of(stream) != TOOL)
            open_block(task, stream, TOOL);
        close_block(task, stream);
        break;
    }
}

static void chunk(struct serve_task *task, struct serve_stream *stream, const runnel_event *event)
{
    if (event->type == RUNNEL_EVENT_PROGRESS) {
        serve_choice(stream)->usage.prompt_tokens = event->prompt_total;
        serve_choice(stream)->usage.cached_tokens = event->usage.cached_tokens;
        return;
    }
    greet(task, stream);
    switch (event->type) {
    case RUNNEL_EVENT_TOKEN:
        put_delta(task, stream, TEXT, event);
        break;
    case RUNNEL_EVENT_REASONING:
        put_delta(task, stream, THINKING, event);
        break;
    case RUNNEL_EVENT_DONE:
        openai_choice_event(serve_choice(stream), event);
        close_block(task, stream);
        break;
    default:
        take_call(task, stream, event);
        break;
    }
}

static void end(struct serve_task *task)
{
    FILE *to = open_event(task, "message_delta");

    fputs(",\"delta\":{", to);
    put_reason(to, &task->choices[0], task->streams[0].n_calls > 0);
    fputs("},\"usage\":", to);
    put_usage(to, &task->choices[0]);
    close_event(task, to);
    close_event(task, open_event(task, "message_stop"));
}

/* ---- Errors ------------------------------------------------------------------------------ */

static const char *type_of_error(int status)
{
    switch (status) {
    case 401:
        return "authentication_error";
    case 403:
        return "permission_error";
    case 404:
        return "not_found_error";
    case 413:
        return "request_too_large";
    case 429:
        return "rate_limit_error";
    case 503:
        return "overloaded_error";
    default:
        return status < 500 ? "invalid_request_error" : "api_error";
    }
}

static void put_error(FILE *to, const struct openai_error *error, const char *id)
{
    fprintf(to, "{\"type\":\"error\",\"error\":{\"type\":\"%s\",\"message\":", type_of_error(error->http));
    openai_sentence_write(to, error->message);
    fputs("},\"request_id\":", to);
    openai_string_write(to, id);
    fputc('}', to);
}

/* Clients read the two numbers. */
static void too_long(struct openai_error *error, const struct serve_length *length)
{
    if (length->prompt > 0)
        snprintf(error->message, sizeof error->message, "prompt is too long: %llu tokens > %llu maximum",
                 length->prompt, length->fit);
    else
        serve_put_before(error, "prompt is too long: ");
}

static void fail(struct serve_task *task, const struct openai_error *error)
{
    FILE *to = serve_write(task->serve);

    fputs("event: error\ndata: ", to);
    put_error(to, error, task->visit->id);
    fputs("\n\n", to);
    serve_task_send(task);
}

const struct serve_dialect serve_anthropic = {.stream_type = "text/event-stream",
                                              .translate = anthropic_translate,
                                              .names = anthropic_names,
                                              .tells_prompt = true,
                                              .answer = answer,
                                              .chunk = chunk,
                                              .end = end,
                                              .fail = fail,
                                              .ping = "event: ping\ndata: {\"type\":\"ping\"}\n\n",
                                              .put_error = put_error,
                                              .too_long = too_long};
