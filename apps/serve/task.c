/* A request under way: see serve.h. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "serve.h"

enum {
    MOST_VALUES = 8192, /* of vectors that are written on the loop's thread: about 1 ms */
    FORM_BYTES = 4096   /* of a chunk that is made without a stream of the C library */
};

void serve_task_cancel(struct serve_task *task)
{
    for (size_t i = 0; i < task->n_submitted; i++)
        if (task->streams[i].live)
            runnel_stream_cancel(task->serve->app.engine, task->streams[i].id);
}

void serve_task_release(struct serve_task *task)
{
    if (task->busy || task->apart || task->exchange != NULL || task->n_ended < task->n_submitted)
        return;
    if (task->model != NULL)
        serve_model_leave(task->model);
    serve_limits_close(&task->visit->key->limits, task->n_counted);
    *task->link = task->next;
    if (task->next != NULL)
        task->next->link = task->link;
    for (size_t i = 0; i < task->n_open; i++)
        openai_choice_close(&task->choices[i]);
    for (size_t i = 0; task->streams != NULL && i < task->n_choices; i++)
        free(task->streams[i].form.bytes);
    openai_request_fini(&task->request);
    free(task->choices);
    free(task->streams);
    free(task->prefix);
    json_decref(task->wish.fields);
    visit_unref(task->visit);
    free(task);
}

size_t serve_index(const struct serve_stream *stream)
{
    return (size_t)(stream - stream->task->streams);
}

struct openai_choice *serve_choice(const struct serve_stream *stream)
{
    return &stream->task->choices[serve_index(stream)];
}

void serve_append(char *to, size_t room, const runnel_event *event)
{
    size_t n = strlen(to), more = event->text_bytes < room - 1 - n ? event->text_bytes : room - 1 - n;

    memcpy(to + n, event->text, more);
    to[n + more] = '\0';
}

/* ---- Answers in pieces ------------------------------------------------------------------- */

void serve_task_begin(struct serve_task *task)
{
    if (task->begun || task->exchange == NULL)
        return;
    task->begun = true;
    task->serve->counts.answers[2]++;
    http_add_field(task->exchange, "Cache-Control", "no-cache");
    http_stream_begin(task->exchange, 200, task->dialect->stream_type);
}

void serve_task_send(struct serve_task *task)
{
    struct openai_buffer *out = &task->serve->out;

    fflush(out->to);
    task->told_ms = uv_now(&task->serve->loop);
    if (task->exchange != NULL)
        http_stream_write(task->exchange, out->bytes, out->n);
}

bool serve_form_send(struct serve_stream *stream, int kind, const runnel_event *event)
{
    const struct serve_form *form = &stream->form;
    struct serve_task *task = stream->task;
    char chunk[FORM_BYTES], *end = chunk;

    if (form->kind != kind || APP_JSON_BYTES(event->text_bytes) + form->head + form->tail > sizeof chunk)
        return false;
    end = mempcpy(end, form->bytes, form->head);
    end += app_json_bytes(end, event->text, event->text_bytes);
    end = mempcpy(end, form->bytes + form->head, form->tail);
    task->told_ms = uv_now(&task->serve->loop);
    if (task->exchange != NULL)
        http_stream_write(task->exchange, chunk, (size_t)(end - chunk));
    return true;
}

void serve_form_keep(struct serve_stream *stream, int kind, size_t begin, size_t end)
{
    const struct openai_buffer *out = &stream->task->serve->out;
    bool good = begin <= end && end <= out->n; /* memory was not short */
    struct serve_form form = {.head = begin, .tail = out->n - end, .kind = kind};

    form.bytes = good ? malloc(form.head + form.tail) : NULL;
    free(stream->form.bytes);
    stream->form = form.bytes != NULL ? form : (struct serve_form){0};
    if (form.bytes != NULL)
        memcpy(mempcpy(form.bytes, out->bytes, begin), out->bytes + end, form.tail);
}

void serve_task_ping(struct serve_task *task)
{
    if (task->dialect->ping == NULL)
        return;
    task->busy = true;
    serve_task_begin(task);
    fputs(task->dialect->ping, serve_write(task->serve));
    serve_task_send(task);
    task->busy = false;
    serve_task_release(task);
}

/* The exchange is over for the task: who ends or answers it takes it. */
static struct http_exchange *take_exchange(struct serve_task *task)
{
    struct http_exchange *exchange = task->exchange;

    if (exchange != NULL)
        task->visit->task = NULL;
    task->exchange = NULL;
    return exchange;
}

static void end_pieces(struct serve_task *task)
{
    struct http_exchange *exchange = take_exchange(task);

    if (exchange != NULL)
        http_stream_end(exchange);
}

/* ---- Ends -------------------------------------------------------------------------------- */

/* Its client is told why, and what still runs is cancelled. */
static void fail(struct serve_task *task, const struct openai_error *error)
{
    if (task->begun) {
        task->dialect->fail(task, error);
        end_pieces(task);
    } else {
        serve_refuse(task->serve, take_exchange(task), error, error->http == 503 ? 1000 : 0);
    }
    serve_task_cancel(task);
}

void serve_put_before(struct openai_error *error, const char *format, ...)
{
    char sentence[sizeof error->message];
    va_list args;
    size_t n = 0;

    memcpy(sentence, error->message, sizeof sentence);
    va_start(args, format);
    vsnprintf(error->message, sizeof error->message, format, args);
    va_end(args);
    n = strlen(error->message);
    snprintf(error->message + n, sizeof error->message - n, "%s", sentence);
}

/* The sentence of most: "the prompt has 9012 tokens, 4095 fit"; others count bytes. */
static void tell_too_long(const struct serve_task *task, const char *sentence, struct openai_error *error)
{
    struct serve_length length = {.context = task->model->info.context_tokens};

    if (sscanf(sentence, "the prompt has %llu tokens, %llu fit", &length.prompt, &length.fit) != 2)
        length.prompt = 0;
    if (task->dialect->too_long != NULL)
        task->dialect->too_long(error, &length);
    else
        serve_put_before(error, "This model's maximum context length is %llu tokens. However, ", length.context);
}

void serve_task_fault(const struct serve_task *task, const runnel_error *error, struct openai_error *fault)
{
    serve_error_of(error, fault);
    if (error->status == RUNNEL_CONTEXT)
        tell_too_long(task, error->message, fault);
    openai_request_fault(&task->request, error->about, fault);
    serve_name_field(task->dialect, task->names_used, fault);
}

/* BUSY is the request's own fault here: its grammar takes more to be read than it may. */
static void fail_as(struct serve_task *task, runnel_about about, runnel_status status, const char *sentence)
{
    runnel_error error = {.status = status == RUNNEL_BUSY ? RUNNEL_INVALID : status, .about = about};
    struct openai_error fault;

    snprintf(error.message, sizeof error.message, "%s", sentence);
    serve_task_fault(task, &error, &fault);
    fail(task, &fault);
}

/* An answer that is written on another thread. */
struct writing {
    struct serve_work work; /* first */
    struct serve_task *task;
    struct openai_buffer out; /* owned */
    bool good;
};

static void write_answer(struct serve_work *work)
{
    struct writing *writing = (struct writing *)work;

    writing->out.to = open_memstream(&writing->out.bytes, &writing->out.n);
    if (writing->out.to == NULL)
        return;
    writing->task->dialect->answer(writing->task, writing->out.to);
    writing->good = fclose(writing->out.to) == 0;
}

static void answer_written(struct serve_work *work, bool ran)
{
    struct writing *writing = (struct writing *)work;
    struct serve_task *task = writing->task;
    struct http_exchange *exchange = take_exchange(task);

    (void)ran; /* if not, it is not good */
    task->apart = false;
    if (exchange != NULL && writing->good) {
        serve_reply_taken(task->serve, exchange, 200, writing->out.bytes, writing->out.n);
        writing->out.bytes = NULL;
    } else if (exchange != NULL) {
        http_answer(exchange, 500, NULL, NULL, 0);
    }
    serve_task_release(task);
    free(writing->out.bytes);
    free(writing);
}

/* Numbers of all vectors. */
static size_t count_values(const struct serve_task *task)
{
    size_t n = 0;

    for (size_t i = 0; i < task->n_choices; i++)
        n += task->choices[i].n_embedding;
    return n;
}

static void answer(struct serve_task *task)
{
    struct writing *writing = count_values(task) > MOST_VALUES ? calloc(1, sizeof *writing) : NULL;

    if (writing == NULL) {
        task->dialect->answer(task, serve_write(task->serve));
        serve_reply(task->serve, take_exchange(task), 200, "application/json");
        return;
    }
    writing->task = task;
    task->apart = true;
    serve_work_begin(task->serve, task->visit, &writing->work, write_answer, answer_written);
}

/* Of the answer, so that its client sees that it has begun. */
static bool is_text(const runnel_event *event)
{
    return event->text_bytes > 0 && (event->type == RUNNEL_EVENT_TOKEN || event->type == RUNNEL_EVENT_REASONING ||
                                     event->type == RUNNEL_EVENT_TOOL_ARGUMENTS);
}

static void take(struct serve_task *task, struct serve_stream *stream, const runnel_event *event)
{
    struct openai_choice *choice = serve_choice(stream);

    if (event->type == RUNNEL_EVENT_FAILED) {
        fail_as(task, event->about, event->status, event->error);
    } else if (event->type == RUNNEL_EVENT_CANCELLED) {
        fail_as(task, RUNNEL_ABOUT_NONE, RUNNEL_CLOSED, "the answer was cancelled: the server is going down");
    } else if (!task->request.stream) {
        openai_choice_event(choice, event);
        if (choice->failed)
            fail_as(task, RUNNEL_ABOUT_NONE, RUNNEL_NO_MEMORY, "not enough memory for the answer");
        else if (task->n_ended == task->n_choices)
            answer(task);
    } else {
        http_stream_gather(task->exchange, stream->spoke && event->type < RUNNEL_EVENT_DONE);
        task->dialect->chunk(task, stream, event);
        stream->spoke = stream->spoke || is_text(event);
        if (task->n_ended < task->n_choices || task->exchange == NULL)
            return;
        task->dialect->end(task);
        end_pieces(task);
    }
}

void serve_task_event(void *user, const runnel_event *event)
{
    struct serve_stream *stream = user;
    struct serve_task *task = stream->task;
    struct openai_error fault;
    bool paid = serve_pay(stream, event, &fault);

    if (event->type >= RUNNEL_EVENT_DONE) {
        stream->live = false;
        task->n_ended++;
        if (task->n_submitted < task->n_choices)
            serve_submit_soon(task->serve);
    }
    task->busy = true;
    if (task->exchange != NULL && !paid && stream->live)
        fail(task, &fault);
    else if (task->exchange != NULL)
        take(task, stream, event);
    task->busy = false;
    serve_task_release(task);
}
