/* What the engine's threads leave for Python: lines of the log and spans of the trace, in two bounded rings behind a
 * lock. No Python runs on those threads; whoever dispatches tells Python later. */
#include "binding.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LINES = 1024, MAX_SPANS = 4096, LINE_BYTES = 512, MESSAGES_BYTES = 160, NAME_BYTES = 64, MODEL_BYTES = 256 };

typedef struct line {
    runnel_log_level level;
    char text[LINE_BYTES];
} line;

typedef struct span {
    runnel_trace_event event; /* its texts go with the engine, behind which spans are told, too; so there are copies */
    char name[NAME_BYTES], model[MODEL_BYTES], messages[MESSAGES_BYTES], label[RUNNEL_LABEL_BYTES];
} span;

struct rnpy_news {
    pthread_mutex_t lock; /* for all below but `waiting` */
    line *lines;          /* [MAX_LINES], once one has come */
    span *spans;          /* [MAX_SPANS], likewise */
    size_t first_line, n_lines, first_span, n_spans;
    uint64_t lost;      /* lines and spans that found no room */
    atomic_int waiting; /* lines, spans and whether any were lost: a look before the lock. Partner: tell, which may come
                           late */
};

rnpy_news *rnpy_news_new(void)
{
    rnpy_news *news = calloc(1, sizeof *news);

    if (news != NULL && pthread_mutex_init(&news->lock, NULL) != 0) {
        free(news);
        news = NULL;
    }
    return news;
}

void rnpy_news_free(rnpy_news *news)
{
    if (news == NULL)
        return;
    pthread_mutex_destroy(&news->lock);
    free(news->lines);
    free(news->spans);
    free(news);
}

static void count_lost(rnpy_news *news)
{
    if (news->lost++ == 0)
        atomic_fetch_add(&news->waiting, 1);
}

void rnpy_news_on_log(void *user, runnel_log_level level, const char *text)
{
    rnpy_news *news = user;
    line *at;

    pthread_mutex_lock(&news->lock);
    if (news->lines == NULL)
        news->lines = malloc(MAX_LINES * sizeof *news->lines);
    if (news->lines != NULL && news->n_lines < MAX_LINES) {
        at = &news->lines[(news->first_line + news->n_lines++) % MAX_LINES];
        at->level = level;
        snprintf(at->text, sizeof at->text, "%s", text);
        atomic_fetch_add(&news->waiting, 1);
    } else {
        count_lost(news);
    }
    pthread_mutex_unlock(&news->lock);
}

void rnpy_news_on_trace(void *user, const runnel_trace_event *event)
{
    rnpy_news *news = user;
    span *at;

    pthread_mutex_lock(&news->lock);
    if (news->spans == NULL)
        news->spans = malloc(MAX_SPANS * sizeof *news->spans);
    if (news->spans != NULL && news->n_spans < MAX_SPANS) {
        at = &news->spans[(news->first_span + news->n_spans++) % MAX_SPANS];
        at->event = *event;
        snprintf(at->name, sizeof at->name, "%s", event->name);
        snprintf(at->model, sizeof at->model, "%s", event->model);
        snprintf(at->messages, sizeof at->messages, "%s", event->messages);
        snprintf(at->label, sizeof at->label, "%s", event->label);
        atomic_fetch_add(&news->waiting, 1);
    } else {
        count_lost(news);
    }
    pthread_mutex_unlock(&news->lock);
}

static bool take_line(rnpy_news *news, line *to)
{
    bool any;

    pthread_mutex_lock(&news->lock);
    any = news->n_lines > 0;
    if (any) {
        *to = news->lines[news->first_line];
        news->first_line = (news->first_line + 1) % MAX_LINES;
        news->n_lines--;
        atomic_fetch_sub(&news->waiting, 1);
    }
    pthread_mutex_unlock(&news->lock);
    return any;
}

static bool take_span(rnpy_news *news, span *to)
{
    bool any;

    pthread_mutex_lock(&news->lock);
    any = news->n_spans > 0;
    if (any) {
        *to = news->spans[news->first_span];
        news->first_span = (news->first_span + 1) % MAX_SPANS;
        news->n_spans--;
        atomic_fetch_sub(&news->waiting, 1);
    }
    pthread_mutex_unlock(&news->lock);
    return any;
}

static uint64_t take_lost(rnpy_news *news)
{
    uint64_t lost;

    pthread_mutex_lock(&news->lock);
    lost = news->lost;
    news->lost = 0;
    if (lost > 0)
        atomic_fetch_sub(&news->waiting, 1);
    pthread_mutex_unlock(&news->lock);
    return lost;
}

static PyObject *span_dict(const span *at)
{
    const runnel_trace_event *event = &at->event;

    return Py_BuildValue("{s:i,s:I,s:N,s:N,s:N,s:K,s:K,s:K,s:I,s:I,s:I,s:I,s:N}", "kind", (int)event->kind, "track",
                         event->track, "name", rnpy_str(at->name), "model", rnpy_str(at->model), "messages",
                         rnpy_str(at->messages), "begin_ns", event->begin_ns, "end_ns", event->end_ns, "stream",
                         event->stream, "rows", event->rows, "sequences", event->sequences, "prompt_tokens",
                         event->prompt_tokens, "tokens", event->tokens, "label", rnpy_str(at->label));
}

/* An Exception that Python's function raises is told as one that nobody can catch is. What is none stays set: false. */
static bool call(PyObject *function, PyObject *arguments)
{
    PyObject *result = arguments == NULL ? NULL : PyObject_CallObject(function, arguments);
    bool goes_on = result != NULL || PyErr_ExceptionMatches(PyExc_Exception);

    if (result == NULL && goes_on)
        PyErr_WriteUnraisable(function);
    Py_XDECREF(result);
    Py_XDECREF(arguments);
    return goes_on;
}

int rnpy_news_tell(rnpy_news *news, PyObject *on_log, PyObject *on_trace)
{
    line text;
    span at;
    uint64_t lost;

    if (atomic_load(&news->waiting) == 0)
        return 0;
    while (on_log != NULL && take_line(news, &text))
        if (!call(on_log, Py_BuildValue("(iN)", (int)text.level, rnpy_str(text.text))))
            return -1;
    while (on_trace != NULL && take_span(news, &at))
        if (!call(on_trace, Py_BuildValue("(N)", span_dict(&at))))
            return -1;
    lost = on_log == NULL ? 0 : take_lost(news);
    if (lost > 0 && !call(on_log, Py_BuildValue("(iN)", RUNNEL_LOG_WARNING,
                                                PyUnicode_FromFormat("%llu lines or spans found no room",
                                                                     (unsigned long long)lost))))
        return -1;
    return 0;
}
