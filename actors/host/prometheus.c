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
#include "base/sized.h"

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

/* Of all blocks together, so that there are a few lines a model however many experts it has. */
struct use_summary {
    uint64_t all, unused, busiest; /* busiest: in millionths, an expert's share over the mean of its block */
    uint64_t hits, misses, fetched_bytes;
};

static struct use_summary sum_use(const struct rn_expert_use *use)
{
    struct use_summary sum = {.hits = rn_expert_use_read(&use->hits),
                              .misses = rn_expert_use_read(&use->misses),
                              .fetched_bytes = rn_expert_use_read(&use->fetched_bytes)};
    uint64_t of_block, most, n;

    for (uint32_t b = 0; b < use->n_blocks; b++) {
        of_block = most = 0;
        for (uint32_t e = 0; e < use->n_experts; e++) {
            n = rn_expert_use_get(use, b, e);
            of_block += n;
            most = n > most ? n : most;
        }
        for (uint32_t e = 0; of_block > 0 && e < use->n_experts; e++)
            sum.unused += rn_expert_use_get(use, b, e) == 0;
        sum.all += of_block;
        most = of_block > 0 ? (uint64_t)(1e6 * (double)most * use->n_experts / (double)of_block) : 0;
        sum.busiest = most > sum.busiest ? most : sum.busiest;
    }
    return sum;
}

/* The number of this row of put_experts. */
static void write_use(char *text, size_t size, const struct use_summary *sum, uint32_t which)
{
    const uint64_t values[] = {sum->all, sum->unused, sum->busiest, sum->hits, sum->misses, sum->fetched_bytes};

    if (which == 2)
        write_micro(text, size, sum->busiest);
    else
        snprintf(text, size, "%llu", (unsigned long long)values[which]);
}

static void put_experts(struct writer *w, const struct runnel_engine *engine)
{
    static const struct {
        const char *name, *type, *help;
    } rows[] = {
        {"expert_selections_total", "counter", "Times that a row has chosen an expert, all blocks together."},
        {"experts_unused", "gauge", "Experts that no row has chosen, in blocks that have run."},
        {"expert_busiest_ratio", "gauge", "How often the busiest expert was chosen, over the mean of its block."},
        {"expert_device_hits_total", "counter",
         "Choices of experts, apart from their layers, that were on the device."},
        {"expert_device_misses_total", "counter", "Choices of such experts that were read over the bus."},
        {"expert_device_fetched_bytes_total", "counter", "Bytes of experts that got the place of another one there."}};
    const struct rn_expert_use *use;
    struct use_summary sum;
    bool headed;
    char text[32];

    for (uint32_t which = 0; which < sizeof rows / sizeof rows[0]; which++) {
        headed = false;
        for (const struct rn_metrics *m = rn_metrics_first(&engine->metrics); m != NULL; m = m->next) {
            use = rn_metrics_expert_use(m);
            if (use == NULL)
                continue;
            if (!headed)
                put_head(w, rows[which].name, rows[which].help, rows[which].type);
            headed = true;
            sum = sum_use(use);
            write_use(text, sizeof text, &sum, which);
            put_name(w, rows[which].name, "", m, NULL);
            put(w, "%s\n", text);
        }
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
    put_experts(&w, engine);
    put_histograms(&w, engine);
    put_engine(&w, engine);
    RN_ASSERT(w.n > 0);
    *bytes = w.n;
    return RUNNEL_OK;
}

runnel_status runnel_engine_expert_use(runnel_engine *engine, uint32_t index, runnel_expert_use *use, uint64_t *counts,
                                       size_t capacity)
{
    const struct rn_metrics *m;
    const struct rn_expert_use *from = NULL;
    runnel_expert_use out;
    size_t i;

    if (engine == NULL || use == NULL || !rn_sized_known(use->struct_size, sizeof out) ||
        (counts == NULL && capacity > 0))
        return RUNNEL_INVALID;
    for (m = rn_metrics_first(&engine->metrics); m != NULL; m = m->next) {
        from = rn_metrics_expert_use(m);
        if (from != NULL && index-- == 0)
            break;
    }
    if (m == NULL)
        return RUNNEL_NOT_FOUND;
    out = (runnel_expert_use){.model = m->name,
                              .n_blocks = from->n_blocks,
                              .n_experts = from->n_experts,
                              .hits = rn_expert_use_read(&from->hits),
                              .misses = rn_expert_use_read(&from->misses),
                              .fetched_bytes = rn_expert_use_read(&from->fetched_bytes)};
    rn_sized_write(use, use->struct_size, &out, sizeof out);
    for (i = 0; i < (size_t)from->n_blocks * from->n_experts && i < capacity; i++)
        counts[i] = rn_expert_use_get(from, (uint32_t)(i / from->n_experts), (uint32_t)(i % from->n_experts));
    return RUNNEL_OK;
}
