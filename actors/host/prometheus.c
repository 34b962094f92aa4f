/* Metrics as text for Prometheus: https://prometheus.io/docs/instrumenting/exposition_formats/, version 0.0.4.
 *
 *   # HELP runnel_steps_total Forward passes done.
 *   # TYPE runnel_steps_total counter
 *   runnel_steps_total{model_name="tiny"} 17
 *
 * All samples of one family stand together, a line for each model. Numbers are made of integers: the host's locale
 * has no say in them. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "actors/engine.h"
#include "base/check.h"

#define LINE_BYTES 256

/* Counts all that is put and keeps what fits. */
struct writer {
    char *text; /* [capacity] */
    size_t capacity, n;
};

static void put_bytes(struct writer *w, const char *bytes, size_t n)
{
    size_t room = w->n < w->capacity ? w->capacity - w->n : 0;
    size_t n_kept = n < room ? n : room;

    if (n_kept > 0)
        memcpy(w->text + w->n, bytes, n_kept);
    w->n += n;
}

static void put(struct writer *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(struct writer *w, const char *format, ...)
{
    char line[LINE_BYTES];
    va_list args;
    int n;

    va_start(args, format);
    n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    RN_CHECK(n >= 0 && n < LINE_BYTES); /* names and numbers of ours alone; a model's name goes through put_label */
    put_bytes(w, line, (size_t)n);
}

/* A label's value: backslash, quote and newline are escaped. */
static void put_label(struct writer *w, const char *value)
{
    for (const char *c = value; *c != '\0'; c++) {
        if (*c == '\n')
            put_bytes(w, "\\n", 2);
        else if (*c == '\\' || *c == '"')
            put(w, "\\%c", *c);
        else
            put_bytes(w, c, 1);
    }
}

static void put_head(struct writer *w, const char *name, const char *help, const char *type)
{
    put(w, "# HELP runnel_%s %s\n", name, help);
    put(w, "# TYPE runnel_%s %s\n", name, type);
}

/* `more`: a further label, or NULL. */
static void put_name(struct writer *w, const char *name, const char *suffix, const struct rn_metrics *metrics,
                     const char *more)
{
    put(w, "runnel_%s%s{model_name=\"", name, suffix);
    put_label(w, metrics->name);
    put(w, "\"%s%s} ", more != NULL ? "," : "", more != NULL ? more : "");
}

/* value / 1,000,000 in decimal, without needless zeros but for one behind the point. */
static int write_micro(char *text, size_t capacity, uint64_t value)
{
    int n = snprintf(text, capacity, "%llu.%06llu", (unsigned long long)(value / 1000000),
                     (unsigned long long)(value % 1000000));

    RN_CHECK(n >= 8 && (size_t)n < capacity); /* a digit, the point, six more */
    while (text[n - 1] == '0' && text[n - 2] != '.')
        text[--n] = '\0';
    return n;
}

static int write_value(char *text, size_t capacity, const struct rn_edges *edges, uint64_t value)
{
    return edges->seconds ? write_micro(text, capacity, value)
                          : snprintf(text, capacity, "%llu.0", (unsigned long long)value);
}

static void put_counts(struct writer *w, const struct runnel_engine *engine)
{
    for (uint32_t which = 0; which < RN_COUNTS; which++) {
        const struct rn_count_info *info = &rn_count_infos[which];

        if (info->help != NULL)
            put_head(w, info->name, info->help, info->gauge ? "gauge" : "counter");
        for (const struct rn_metrics *m = rn_metrics_first(&engine->metrics); m != NULL; m = m->next) {
            put_name(w, info->name, "", m, info->label);
            put(w, "%llu\n", (unsigned long long)rn_metrics_value(m, which));
        }
    }
}

/* vLLM's gauge of the same name: a share in [0, 1], in spite of it. */
static void put_usage(struct writer *w, const struct runnel_engine *engine)
{
    put_head(w, "kv_cache_usage_perc", "Share of the KV blocks that requests and sessions hold; 1 is all.", "gauge");
    for (const struct rn_metrics *m = rn_metrics_first(&engine->metrics); m != NULL; m = m->next) {
        uint64_t total = rn_metrics_value(m, RN_COUNT_BLOCKS_TOTAL);
        uint64_t used = rn_metrics_value(m, RN_COUNT_BLOCKS_USED);
        char share[32];

        write_micro(share, sizeof share, total > 0 ? used * 1000000 / total : 0);
        put_name(w, "kv_cache_usage_perc", "", m, NULL);
        put(w, "%s\n", share);
    }
}

static void put_histogram(struct writer *w, const struct rn_metrics *metrics, enum rn_timing which)
{
    const struct rn_timing_info *info = &rn_timing_infos[which];
    const struct rn_edges *edges = info->edges;
    uint64_t n = 0;
    char value[32], label[48];

    for (uint32_t i = 0; i <= edges->n; i++) {
        n += (uint64_t)rn_counter_get(&metrics->timings[which].counts[i]);
        if (i < edges->n)
            write_value(value, sizeof value, edges, edges->at[i]);
        snprintf(label, sizeof label, "le=\"%s\"", i < edges->n ? value : "+Inf");
        put_name(w, info->name, "_bucket", metrics, label);
        put(w, "%llu\n", (unsigned long long)n);
    }
    write_value(value, sizeof value, edges, (uint64_t)rn_counter_get(&metrics->timings[which].sum));
    put_name(w, info->name, "_sum", metrics, NULL);
    put(w, "%s\n", value);
    put_name(w, info->name, "_count", metrics, NULL);
    put(w, "%llu\n", (unsigned long long)n);
}

static void put_histograms(struct writer *w, const struct runnel_engine *engine)
{
    for (uint32_t which = 0; which < RN_TIMINGS; which++) {
        put_head(w, rn_timing_infos[which].name, rn_timing_infos[which].help, "histogram");
        for (const struct rn_metrics *m = rn_metrics_first(&engine->metrics); m != NULL; m = m->next)
            put_histogram(w, m, which);
    }
}

static void put_one(struct writer *w, const char *name, const char *type, uint64_t value, const char *help)
{
    put_head(w, name, help, type);
    put(w, "runnel_%s %llu\n", name, (unsigned long long)value);
}

/* What is the engine's and no model's. */
static void put_engine(struct writer *w, struct runnel_engine *engine)
{
    runnel_engine_stats stats = {.struct_size = sizeof stats};
    uint64_t dropped = engine->tracer != NULL ? (uint64_t)rn_counter_get(&engine->tracer->dropped) : 0;

    runnel_engine_get_stats(engine, &stats);
    put_one(w, "streams", "gauge", stats.streams, "Streams whose end has not been delivered.");
    put_one(w, "sessions", "gauge", stats.sessions, "Sessions there are.");
    put_one(w, "models", "gauge", stats.models, "Models that are loaded or being loaded.");
    put_one(w, "messages", "gauge", stats.messages, "Messages between actors that are under way.");
    put_one(w, "queued_tokens", "gauge", stats.queued_tokens, "Tokens of prompts that wait to be admitted.");
    put_one(w, "queued_bytes", "gauge", stats.queued_bytes, "Memory of requests that have not ended.");
    put_one(w, "heap_bytes", "gauge", stats.heap_bytes, "Memory taken from the allocator.");
    put_one(w, "trace_dropped_total", "counter", dropped, "Trace events that found no room.");
}

runnel_status runnel_engine_prometheus(runnel_engine *engine, char *text, size_t capacity, size_t *bytes)
{
    struct writer w = {text, capacity, 0};

    if (engine == NULL || bytes == NULL || (text == NULL && capacity > 0))
        return RUNNEL_INVALID;
    put_counts(&w, engine);
    put_usage(&w, engine);
    put_histograms(&w, engine);
    put_engine(&w, engine);
    RN_ASSERT(w.n > 0);
    *bytes = w.n;
    return RUNNEL_OK;
}
