/* --metrics and --trace: what the engine counted, as text for Prometheus, and what it did when, as a Chrome trace.
 *
 * The trace is the array form of the Trace Event Format (catapult's document of that name), which Perfetto
 * (ui.perfetto.dev) and chrome://tracing open. Each event is a line, and the file is brought up to date at ends of
 * lines alone: if the program is killed, what is there lacks only the bracket that viewers do not ask for. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"

#define MAX_TRACKS 1024
#define FLUSH_EVENTS 1000 /* lines of less than a kilobyte: the buffer never runs full between two ends of lines */
#define FLUSH_NS 500000000u

/* Written by the engine's tracer, and once the engine is freed, here. */
static struct {
    FILE *file; /* NULL: no --trace */
    uint64_t n_events, flushed_ns;
    bool named[2][MAX_TRACKS]; /* by kind and track */
} trace;

static struct {
    FILE *file; /* NULL: no --metrics */
    const char *path;
} metrics, experts; /* NULL: no --experts */

static char buffer[1 << 20]; /* of the trace; the C library would take a smaller one */
static bool failed;

static void say_unwritten(const char *path)
{
    app_error("%s: %s", path, errno != 0 ? strerror(errno) : "it could not be written");
    failed = true;
}

/* ---- The trace --------------------------------------------------------------------------- */

static void put_us(const char *name, uint64_t ns)
{
    fprintf(trace.file, ",\"%s\":%llu.%03u", name, (unsigned long long)(ns / 1000), (unsigned)(ns % 1000));
}

static void put_string(const char *name, const char *value)
{
    fprintf(trace.file, ",\"%s\":", name);
    app_json_string(trace.file, value, strlen(value));
}

static void begin_event(char ph, uint64_t tid)
{
    fprintf(trace.file, "%s\n{\"ph\":\"%c\",\"pid\":1,\"tid\":%llu", trace.n_events++ > 0 ? "," : "", ph,
            (unsigned long long)tid);
}

/* Actors and steps side by side: the steps of a model stand below its decode actor. */
static uint64_t tid_of(const runnel_trace_event *event)
{
    return 2 * (uint64_t)event->track + (event->kind == RUNNEL_TRACE_STEP) + 1;
}

/* Once for each track: how the viewer is to call it. */
static void name_track(const runnel_trace_event *event)
{
    char name[400];

    if (event->track >= MAX_TRACKS || trace.named[event->kind][event->track])
        return;
    trace.named[event->kind][event->track] = true;
    snprintf(name, sizeof name, "%s%s%s", event->kind == RUNNEL_TRACE_STEP ? "steps" : event->name,
             event->model[0] != '\0' ? " of " : "", event->model);
    begin_event('M', tid_of(event));
    fputs(",\"name\":\"thread_name\",\"args\":{\"name\":", trace.file);
    app_json_string(trace.file, name, strlen(name));
    fputs("}}", trace.file);
    begin_event('M', tid_of(event));
    fprintf(trace.file, ",\"name\":\"thread_sort_index\",\"args\":{\"sort_index\":%u}}",
            2 * (unsigned)event->track + (event->kind == RUNNEL_TRACE_STEP));
}

static void put_span(const runnel_trace_event *event)
{
    name_track(event);
    begin_event('X', tid_of(event));
    put_us("ts", event->begin_ns);
    put_us("dur", event->end_ns - event->begin_ns);
    if (event->kind == RUNNEL_TRACE_ACTOR) {
        fputs(",\"cat\":\"actor\"", trace.file);
        put_string("name", event->messages);
        fputc('}', trace.file);
        return;
    }
    fprintf(trace.file,
            ",\"cat\":\"step\",\"name\":\"step\",\"args\":{\"rows\":%u,\"sequences\":%u,\"prompt_tokens\":%u,"
            "\"tokens\":%u}}",
            (unsigned)event->rows, (unsigned)event->sequences, (unsigned)event->prompt_tokens, (unsigned)event->tokens);
}

/* A phase of a request: a pair of asynchronous events under the stream's id, which puts all phases in one track. It
 * ends a nanosecond early: to a viewer that sorts by time, before the next one begins. */
static void put_phase(const runnel_trace_event *event)
{
    for (int end = 0; end < 2; end++) {
        begin_event(end ? 'e' : 'b', 0);
        put_us("ts", end && event->end_ns > event->begin_ns ? event->end_ns - 1 : event->begin_ns);
        fprintf(trace.file, ",\"cat\":\"request\",\"id\":\"%llx\"", (unsigned long long)event->stream);
        put_string("name", event->name);
        fprintf(trace.file, ",\"args\":{\"tokens\":%u", (unsigned)event->tokens);
        put_string("model", event->model);
        if (event->label[0] != '\0')
            put_string("label", event->label);
        fputs("}}", trace.file);
    }
}

static void on_trace(void *user, const runnel_trace_event *event)
{
    (void)user;
    if (event->kind == RUNNEL_TRACE_REQUEST)
        put_phase(event);
    else
        put_span(event);
    if (trace.n_events % FLUSH_EVENTS == 0 || event->end_ns > trace.flushed_ns + FLUSH_NS) {
        fflush(trace.file);
        trace.flushed_ns = event->end_ns;
    }
}

static bool open_trace(const char *path)
{
    trace.file = fopen(path, "we");
    if (trace.file == NULL)
        return false;
    trace.n_events = 0;
    setvbuf(trace.file, buffer, _IOFBF, sizeof buffer);
    memset(trace.named, 0, sizeof trace.named);
    fputc('[', trace.file);
    begin_event('M', 0);
    fputs(",\"name\":\"process_name\",\"args\":{\"name\":\"runnel\"}}", trace.file);
    return true;
}

static void close_trace(const char *path)
{
    bool good;

    if (trace.file == NULL)
        return;
    errno = 0; /* that of a write in the middle is lost */
    fputs("\n]\n", trace.file);
    good = ferror(trace.file) == 0;
    good = fclose(trace.file) == 0 && good;
    trace.file = NULL;
    if (!good)
        say_unwritten(path);
}

/* ---- Metrics ----------------------------------------------------------------------------- */

/* The engine is at rest nearly: what a second look finds may be longer by a few digits. */
static char *read_metrics(runnel_engine *engine, size_t *n)
{
    size_t capacity = 0;
    char *text = NULL, *grown;

    for (*n = 1 << 16; *n > capacity;) {
        capacity = *n + 1024;
        grown = realloc(text, capacity);
        if (grown == NULL || runnel_engine_prometheus(engine, grown, capacity, n) != RUNNEL_OK) {
            free(grown != NULL ? grown : text);
            return NULL;
        }
        text = grown;
    }
    return text;
}

static void write_metrics(runnel_engine *engine)
{
    size_t n = 0;
    char *text = read_metrics(engine, &n);
    bool good;

    errno = text != NULL ? 0 : ENOMEM;
    good = text != NULL && fwrite(text, 1, n, metrics.file) == n;
    good = (metrics.file == stderr ? fflush(stderr) : fclose(metrics.file)) == 0 && good;
    metrics.file = NULL;
    free(text);
    if (!good)
        say_unwritten(metrics.path);
}

/* ---- Experts ----------------------------------------------------------------------------- */

/* A field of CSV: quotes within are doubled. */
static void put_field(FILE *file, const char *text)
{
    fputc('"', file);
    for (; *text != '\0'; text++) {
        if (*text == '"')
            fputc('"', file);
        fputc(*text, file);
    }
    fputc('"', file);
}

/* False: memory or the disk is short. */
static bool write_use(runnel_engine *engine, uint32_t index, FILE *file)
{
    runnel_expert_use use = {.struct_size = sizeof use};
    size_t n, i;
    uint64_t *counts;

    if (runnel_engine_expert_use(engine, index, &use, NULL, 0) != RUNNEL_OK)
        return false;
    n = (size_t)use.n_blocks * use.n_experts;
    counts = calloc(n, sizeof *counts);
    if (counts == NULL || runnel_engine_expert_use(engine, index, &use, counts, n) != RUNNEL_OK) {
        free(counts);
        return false;
    }
    for (i = 0; i < n; i++) {
        put_field(file, use.model);
        fprintf(file, ",%zu,%zu,%llu\n", i / use.n_experts, i % use.n_experts, (unsigned long long)counts[i]);
    }
    free(counts);
    return ferror(file) == 0;
}

static void write_experts(runnel_engine *engine)
{
    runnel_expert_use use = {.struct_size = sizeof use};
    bool good;
    uint32_t i;

    errno = 0;
    good = fputs("model,block,expert,count\n", experts.file) >= 0;
    for (i = 0; good && runnel_engine_expert_use(engine, i, &use, NULL, 0) == RUNNEL_OK; i++)
        good = write_use(engine, i, experts.file);
    good = fclose(experts.file) == 0 && good;
    experts.file = NULL;
    if (!good)
        say_unwritten(experts.path);
}

/* ---- The whole --------------------------------------------------------------------------- */

int app_telemetry_open(const struct app_options *options, runnel_engine_options *engine_options)
{
    metrics.path = options->metrics_file;
    if (metrics.path != NULL)
        metrics.file = strcmp(metrics.path, "-") == 0 ? stderr : fopen(metrics.path, "we");
    if (metrics.path != NULL && metrics.file == NULL) {
        say_unwritten(metrics.path);
        return APP_FAILURE;
    }
    experts.path = options->experts_file;
    if (experts.path != NULL)
        experts.file = fopen(experts.path, "we");
    if (experts.path != NULL && experts.file == NULL) {
        say_unwritten(experts.path);
        return APP_FAILURE;
    }
    if (options->trace_file == NULL)
        return APP_OK;
    if (!open_trace(options->trace_file)) {
        say_unwritten(options->trace_file);
        return APP_FAILURE;
    }
    engine_options->on_trace = on_trace;
    return APP_OK;
}

void app_telemetry_metrics(runnel_engine *engine)
{
    runnel_metrics now = {.struct_size = sizeof now};

    if (metrics.file != NULL && engine != NULL)
        write_metrics(engine);
    if (experts.file != NULL && engine != NULL)
        write_experts(engine);
    if (trace.file != NULL && engine != NULL && runnel_engine_metrics(engine, &now) == RUNNEL_OK &&
        now.trace_dropped > 0)
        app_error("%llu events of the trace are missing: it could not be written fast enough",
                  (unsigned long long)now.trace_dropped);
}

void app_telemetry_close(const struct app_options *options)
{
    close_trace(options->trace_file);
}

int app_telemetry_code(void)
{
    return failed ? APP_FAILURE : APP_OK;
}
