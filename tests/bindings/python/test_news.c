/* Lines and spans that several threads leave for Python (bindings/python/native/news.c): each is told once, whole, in
 * its thread's order, or counted as lost. Of the interpreter there is only what news.c calls, as far as it is looked at
 * here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>

#include "binding.h"

enum { WRITERS = 4, EACH = 6000, TEXT_BYTES = 150, MOST_TEXTS = 4 };

static _Thread_local PyObject object = {.ob_refcnt = 1 << 20};
static PyObject on_log, on_trace;

/* ---- The interpreter ----------------------------------------------------------------------- */

static _Thread_local char texts[MOST_TEXTS][TEXT_BYTES * 2]; /* those of the call that is being made */
static _Thread_local int n_texts;
static atomic_int failed;
static uint64_t told_lines, told_spans, lost; /* lines and what is lost on one thread, spans on another */
static long last_line[WRITERS], last_span[WRITERS];

PyObject *rnpy_str(const char *text)
{
    if (n_texts < MOST_TEXTS)
        snprintf(texts[n_texts], sizeof texts[0], "%s", text);
    n_texts++;
    return &object;
}

PyObject *Py_BuildValue(const char *format, ...)
{
    (void)format;
    return &object;
}

/* "%llu lines or spans found no room" */
PyObject *PyUnicode_FromFormat(const char *format, ...)
{
    va_list arguments;

    (void)format;
    va_start(arguments, format);
    lost += va_arg(arguments, unsigned long long);
    va_end(arguments);
    return &object;
}

void PyErr_WriteUnraisable(PyObject *from)
{
    (void)from;
    failed++;
}

PyObject *PyExc_Exception;

int PyErr_ExceptionMatches(PyObject *kind)
{
    (void)kind;
    return 1;
}

void _Py_Dealloc(PyObject *gone)
{
    (void)gone;
    failed++;
}

/* "WRITER NUMBER WRITER NUMBER ...", the same twice over, up to the end. */
static void write_text(char *to, unsigned writer, long number)
{
    size_t n = 0;

    while (n + 32 < TEXT_BYTES)
        n += (size_t)snprintf(to + n, TEXT_BYTES - n, "%u %ld ", writer, number);
}

static void look_at(const char *text, long *last)
{
    char whole[TEXT_BYTES];
    unsigned writer;
    long number;

    if (sscanf(text, "%u %ld", &writer, &number) != 2 || writer >= WRITERS) {
        failed++;
        return;
    }
    write_text(whole, writer, number);
    failed += strcmp(text, whole) != 0 || number <= last[writer];
    last[writer] = number;
}

PyObject *PyObject_CallObject(PyObject *function, PyObject *arguments)
{
    (void)arguments;
    if (function == &on_log && n_texts == 1) {
        look_at(texts[0], last_line);
        told_lines++;
    } else if (function == &on_trace) {
        failed += n_texts != MOST_TEXTS;
        for (int i = 0; i < MOST_TEXTS; i++)
            failed += strncmp(texts[2], texts[i], strlen(texts[i])) != 0 || strlen(texts[i]) < 15;
        look_at(texts[2], last_span);
        told_spans++;
    }
    n_texts = 0;
    return &object;
}

/* ---- The engine's threads ------------------------------------------------------------------ */

typedef struct writer {
    rnpy_news *news;
    unsigned index;
    pthread_t thread;
} writer;

static atomic_int running;

static void *write_all(void *argument)
{
    writer *self = argument;
    char text[TEXT_BYTES];
    runnel_trace_event event = {.name = text, .model = text, .messages = text, .label = text};

    for (long i = 1; i <= EACH; i++) {
        write_text(text, self->index, i);
        rnpy_news_on_log(self->news, RUNNEL_LOG_INFO, text);
        rnpy_news_on_trace(self->news, &event);
    }
    atomic_fetch_sub(&running, 1);
    return NULL;
}

/* Another loop's thread, as there may be without a GIL. */
static void *tell_spans(void *news)
{
    while (atomic_load(&running) > 0)
        rnpy_news_tell(news, NULL, &on_trace);
    return NULL;
}

static void test_each_is_told_once_or_lost(void **state)
{
    writer writers[WRITERS] = {{0}};
    rnpy_news *news = rnpy_news_new();
    pthread_t spans;

    (void)state;
    assert_non_null(news);
    atomic_store(&running, WRITERS);
    assert_int_equal(pthread_create(&spans, NULL, tell_spans, news), 0);
    for (unsigned i = 0; i < WRITERS; i++) {
        writers[i].news = news;
        writers[i].index = i;
        assert_int_equal(pthread_create(&writers[i].thread, NULL, write_all, &writers[i]), 0);
    }
    while (atomic_load(&running) == WRITERS) /* some find no room */
        sched_yield();
    while (atomic_load(&running) > 0)
        rnpy_news_tell(news, &on_log, NULL);
    pthread_join(spans, NULL);
    for (unsigned i = 0; i < WRITERS; i++)
        pthread_join(writers[i].thread, NULL);
    rnpy_news_tell(news, &on_log, &on_trace);
    assert_int_equal(failed, 0);
    assert_true(told_lines > 0 && told_spans > 0 && lost > 0);
    assert_int_equal(told_lines + told_spans + lost, 2 * WRITERS * EACH);
    rnpy_news_free(news);
}

/* What finds no room is counted, and told behind what did. */
static void test_a_full_ring(void **state)
{
    rnpy_news *news = rnpy_news_new();
    char text[TEXT_BYTES];

    (void)state;
    assert_non_null(news);
    memset(last_line, 0, sizeof last_line);
    told_lines = lost = 0;
    for (long i = 1; i <= 1500; i++) {
        write_text(text, 0, i);
        rnpy_news_on_log(news, RUNNEL_LOG_INFO, text);
    }
    rnpy_news_tell(news, &on_log, NULL);
    assert_int_equal(told_lines, 1024);
    assert_int_equal(last_line[0], 1024);
    assert_int_equal(lost, 1500 - 1024);
    rnpy_news_tell(news, &on_log, NULL);
    assert_int_equal(told_lines, 1024);
    assert_int_equal(failed, 0);
    rnpy_news_free(news);
}

/* What is lost wakes who tells it, also where nothing else waits. */
static void test_what_is_lost_alone(void **state)
{
    rnpy_news *news = rnpy_news_new();
    char text[TEXT_BYTES];
    runnel_trace_event event = {.name = text, .model = text, .messages = text, .label = text};

    (void)state;
    assert_non_null(news);
    memset(last_span, 0, sizeof last_span);
    told_spans = lost = 0;
    for (long i = 1; i <= 5000; i++) {
        write_text(text, 0, i);
        rnpy_news_on_trace(news, &event);
    }
    rnpy_news_tell(news, NULL, &on_trace);
    assert_int_equal(told_spans, 4096);
    assert_int_equal(lost, 0);
    rnpy_news_tell(news, &on_log, NULL);
    assert_int_equal(lost, 5000 - 4096);
    rnpy_news_tell(news, &on_log, &on_trace);
    assert_int_equal(lost, 5000 - 4096);
    assert_int_equal(failed, 0);
    rnpy_news_free(news);
}

enum { LOST_EACH = 100000 };

static void *lose(void *news)
{
    runnel_trace_event event = {.name = "", .model = "", .messages = "", .label = ""};

    for (int i = 0; i < LOST_EACH; i++)
        rnpy_news_on_trace(news, &event);
    atomic_fetch_sub(&running, 1);
    return NULL;
}

/* The count of what is lost is taken while others add to it. */
static void test_each_that_is_lost_counts_once(void **state)
{
    rnpy_news *news = rnpy_news_new();
    pthread_t threads[WRITERS];

    (void)state;
    assert_non_null(news);
    lost = 0;
    atomic_store(&running, WRITERS);
    for (int i = 0; i < WRITERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, lose, news), 0);
    while (atomic_load(&running) > 0)
        rnpy_news_tell(news, &on_log, NULL);
    for (int i = 0; i < WRITERS; i++)
        pthread_join(threads[i], NULL);
    rnpy_news_tell(news, &on_log, NULL);
    assert_int_equal(lost, WRITERS * LOST_EACH - 4096);
    assert_int_equal(failed, 0);
    rnpy_news_free(news);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_is_told_once_or_lost),
        cmocka_unit_test(test_a_full_ring),
        cmocka_unit_test(test_what_is_lost_alone),
        cmocka_unit_test(test_each_that_is_lost_counts_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
