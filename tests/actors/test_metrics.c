/* Metrics and trace against closed forms: one thread, the oracle model, and a clock that moves only when the test
 * says so, so that every value of every histogram is known.
 *
 *   test_actors_metrics              the tests
 *   test_actors_metrics --print      after a run the text for Prometheus, then the struct; for metrics_parse.py */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "actors/batch.h"
#include "actors/draft/drafter.h"
#include "actors/telemetry/telemetry.h"
#include "fixture.h"
#include "tests/sim/manual.h"

#define MS 1000ull
#define BLOCK 16
#define BEGIN_US 1000000000ull
#define STRANGE_PATH "models/a \"quoted\\\" name\nof two lines.gguf"
#define STRANGE_NAME "a \"quoted\\\" name\nof two lines"
#define MAX_EVENTS 4096

static runnel_engine *engine;
static runnel_model *model;
static struct oracle *oracle;
static uint64_t clock_us;
static runnel_trace_event events[MAX_EVENTS];
static char messages[MAX_EVENTS][200];
static size_t n_events;

static uint64_t now_us(void *user)
{
    (void)user;
    return clock_us;
}

static void on_trace(void *user, const runnel_trace_event *event)
{
    (void)user;
    assert_true(n_events < MAX_EVENTS);
    events[n_events] = *event;
    snprintf(messages[n_events++], sizeof messages[0], "%s", event->messages);
}

static void start(bool traced)
{
    const struct rn_clock clock = {.now_us = now_us};
    runnel_engine_options options;
    const struct manual_plan plan = {
        .limits = {.max_rows = 16,
                   .max_seqs = 10,
                   .max_outs = 8,
                   .n_blocks = 16,
                   .block_tokens = BLOCK,
                   .context_tokens = 256},
        .options = &options,
        .clock = &clock,
    };

    clock_us = BEGIN_US;
    n_events = 0;
    runnel_engine_options_default(&options);
    options.max_streams = 3;
    options.max_sessions = 1;
    options.on_trace = traced ? on_trace : NULL;
    manual_open(&plan, &engine, &model, &oracle);
}

static void stop(void)
{
    manual_close(engine, oracle);
}

/* One forward pass that takes so long. */
static void step(uint64_t us, enum oracle_fault fault)
{
    manual_settle(engine);
    assert_non_null(oracle->first);
    clock_us += us;
    oracle_complete(oracle, fault);
    manual_settle(engine);
}

static runnel_stream submit(struct capture *capture, const char *prompt, int64_t max_tokens)
{
    runnel_request request = make_request(prompt, max_tokens, capture);
    runnel_stream stream;

    assert_int_equal(runnel_generate(model, &request, &stream, NULL), RUNNEL_OK);
    return stream;
}

static runnel_metrics metrics(void)
{
    runnel_metrics m = {.struct_size = sizeof m};

    assert_int_equal(runnel_engine_metrics(engine, &m), RUNNEL_OK);
    return m;
}

/* The histogram has exactly those values (in seconds or counts), wherever they lie. */
static void assert_histogram(const runnel_histogram *h, size_t n, ...)
{
    uint64_t counts[RUNNEL_HISTOGRAM_EDGES + 1] = {0};
    double sum = 0;
    va_list args;

    va_start(args, n);
    for (size_t i = 0; i < n; i++) {
        double value = va_arg(args, double);
        uint32_t bucket = 0;

        for (uint32_t e = 0; e < h->n_edges; e++)
            bucket += value > h->edges[e];
        counts[bucket]++;
        sum += value;
    }
    va_end(args);
    assert_int_equal(h->count, n);
    assert_true(fabs(h->sum - sum) < 1e-9);
    assert_memory_equal(h->counts, counts, (h->n_edges + 1) * sizeof counts[0]);
}

/* A prompt of 20 bytes is 20 tokens and two steps of 16 and 4 rows; then a token each step. */
static void one_request(void **state)
{
    struct capture capture = {0};
    runnel_metrics m;

    (void)state;
    start(false);
    submit(&capture, "twenty bytes, exact.", 4);
    m = metrics();
    assert_int_equal(m.waiting, 1);
    assert_int_equal(m.running, 0);
    clock_us += 350 * MS; /* before the engine looks at it */
    manual_settle(engine);
    m = metrics();
    assert_int_equal(m.waiting, 0);
    assert_int_equal(m.running, 1);
    assert_int_equal(m.blocks_used, 2);
    assert_int_equal(m.blocks_total, 16);
    assert_histogram(&m.queue_s, 1, 0.35);
    step(20 * MS, ORACLE_FAULT_NONE);
    m = metrics();
    assert_histogram(&m.first_token_s, 0);
    step(10 * MS, ORACLE_FAULT_NONE);
    m = metrics();
    assert_histogram(&m.first_token_s, 1, 0.38);
    assert_histogram(&m.inter_token_s, 0);
    step(7 * MS, ORACLE_FAULT_NONE);
    step(25 * MS, ORACLE_FAULT_NONE); /* an edge belongs to the bucket below it */
    step(26 * MS, ORACLE_FAULT_NONE);
    assert_int_equal(capture.last.type, RUNNEL_EVENT_DONE);
    m = metrics();
    assert_histogram(&m.first_token_s, 1, 0.38);
    assert_histogram(&m.inter_token_s, 3, 0.007, 0.025, 0.026);
    assert_int_equal(m.inter_token_s.counts[1], 1);
    assert_int_equal(m.inter_token_s.counts[2], 1);
    assert_histogram(&m.per_token_s, 1, 0.019333); /* 58 ms / 3, in whole microseconds */
    assert_histogram(&m.queue_s, 1, 0.35);
    assert_histogram(&m.prefill_s, 1, 0.03);
    assert_histogram(&m.decode_s, 1, 0.058);
    assert_histogram(&m.inference_s, 1, 0.088);
    assert_histogram(&m.request_s, 1, 0.438);
    assert_histogram(&m.request_prompt_tokens, 1, 20.0);
    assert_histogram(&m.request_computed_tokens, 1, 20.0);
    assert_histogram(&m.request_tokens, 1, 4.0);
    assert_histogram(&m.step_s, 5, 0.02, 0.01, 0.007, 0.025, 0.026);
    assert_histogram(&m.step_rows, 5, 16.0, 4.0, 1.0, 1.0, 1.0);
    assert_histogram(&m.step_sequences, 5, 1.0, 1.0, 1.0, 1.0, 1.0);
    assert_int_equal(m.requests, 1);
    assert_int_equal(m.length, 1);
    assert_int_equal(m.stopped + m.cancelled + m.failed + m.refused, 0);
    assert_int_equal(m.tokens, 4);
    assert_int_equal(m.prompt_tokens, 20);
    assert_int_equal(m.steps, 5);
    assert_int_equal(m.prefix_queries, 20);
    assert_int_equal(m.prefix_hits, 0);
    assert_int_equal(m.running + m.waiting + m.blocks_used, 0);
    capture_clear(&capture);
    stop();
}

static void finish_all(void)
{
    manual_settle(engine);
    while (oracle->first != NULL)
        step(5 * MS, ORACLE_FAULT_NONE);
}

/* Every other way to end, a refusal, and the prefix cache. */
static void other_ends(void **state)
{
    const char *stop_string[] = {"a", "b"};
    struct capture captures[4] = {{0}};
    runnel_request request = make_request("twenty bytes, exact.", 9, &captures[3]);
    runnel_stream stream, cancelled;
    runnel_metrics m;

    (void)state;
    start(false);
    cancelled = submit(&captures[0], "twenty bytes, exact.", 9);
    assert_int_equal(runnel_stream_cancel(engine, cancelled), RUNNEL_OK);
    finish_all();
    submit(&captures[1], "twenty bytes, exact.", 9);
    step(30 * MS, ORACLE_FAULT_NONE);
    step(30 * MS, ORACLE_FAULT_NONE);
    m = metrics();
    assert_int_equal(m.cancelled, 1);
    assert_int_equal(m.waiting, 0);
    assert_int_equal(m.running, 1);
    submit(&captures[0], "another", 1);
    submit(&captures[2], "third", 1);
    assert_int_equal(runnel_generate(model, &request, &stream, NULL), RUNNEL_BUSY);
    m = metrics();
    assert_int_equal(m.refused, 1);
    assert_int_equal(m.waiting, 2);
    step(30 * MS, ORACLE_FAULT_DEVICE); /* the one that runs fails */
    m = metrics();
    assert_int_equal(m.failed, 1);
    finish_all();
    request.stops = stop_string;
    request.n_stops = 2;
    assert_int_equal(runnel_generate(model, &request, &stream, NULL), RUNNEL_OK);
    finish_all();
    assert_int_equal(captures[3].last.finish, RUNNEL_FINISH_STOP);
    submit(&captures[3], "twenty bytes, exact.", 2); /* again: all is there but what its last position computes */
    finish_all();
    m = metrics();
    assert_int_equal(m.requests, 6);
    assert_int_equal(m.cancelled, 1);
    assert_int_equal(m.failed, 1);
    assert_int_equal(m.stopped, 1);
    assert_int_equal(m.length, 3);
    assert_int_equal(m.refused, 1);
    assert_int_equal(m.request_s.count, 4);
    assert_int_equal(m.prefix_hits, 19);
    assert_int_equal(m.request_computed_tokens.count, 4);
    assert_int_equal(m.running + m.waiting + m.blocks_used, 0);
    for (int i = 0; i < 4; i++)
        capture_clear(&captures[i]);
    stop();
}

/* What the struct holds is what there was, also of models that are gone. */
static void struct_sizes(void **state)
{
    struct capture capture = {0};
    runnel_metrics m = {.struct_size = offsetof(runnel_metrics, tokens)};

    (void)state;
    start(false);
    submit(&capture, "twenty bytes, exact.", 4);
    finish_all();
    runnel_model_free(model);
    manual_settle(engine);
    assert_true(oracle->freed);
    m.tokens = 77;
    assert_int_equal(runnel_engine_metrics(engine, &m), RUNNEL_OK);
    assert_int_equal(m.requests, 1);
    assert_int_equal(m.tokens, 77); /* beyond the caller's struct */
    m = metrics();
    assert_int_equal(m.tokens, 4);
    assert_int_equal(m.blocks_total, 0);
    m.struct_size = 0;
    assert_int_equal(runnel_engine_metrics(engine, &m), RUNNEL_INVALID);
    m.struct_size = sizeof m + 1;
    assert_int_equal(runnel_engine_metrics(engine, &m), RUNNEL_INVALID);
    assert_int_equal(runnel_engine_metrics(engine, NULL), RUNNEL_INVALID);
    assert_int_equal(runnel_engine_metrics(NULL, &m), RUNNEL_INVALID);
    capture_clear(&capture);
    stop();
}

/* Models are told apart by name, and one that comes again is the same. */
static void names(void **state)
{
    static const struct {
        const char *path, *name;
    } list[] = {
        {"dir/x.gguf", "x"},          {"x", "x"},
        {".gguf", ".gguf"},           {NULL, "model"},
        {"a\xff.gguf", "a?"},         {"caf\xc3\xa9.gguf", "caf\xc3\xa9"},
        {STRANGE_PATH, STRANGE_NAME},
    };
    struct rn_metrics_list all = {NULL};
    struct rn_heap heap;
    size_t n = 0;

    (void)state;
    rn_heap_init(&heap, NULL);
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        struct rn_metrics *one = rn_metrics_of(&all, &heap, list[i].path);

        assert_string_equal(one->name, list[i].name);
        assert_ptr_equal(rn_metrics_of(&all, &heap, list[i].path), one);
    }
    for (const struct rn_metrics *m = rn_metrics_first(&all); m != NULL; m = m->next)
        n++;
    assert_int_equal(n, 6);
    rn_metrics_fini(&all, &heap);
    assert_int_equal(rn_heap_bytes(&heap), 0);
}

static bool has_line(const char *text, const char *line)
{
    const char *at = strstr(text, line);

    return at != NULL && (at == text || at[-1] == '\n') && at[strlen(line)] == '\n';
}

static char *prometheus(size_t *bytes)
{
    size_t n = 0;
    char *text;

    assert_int_equal(runnel_engine_prometheus(engine, NULL, 0, &n), RUNNEL_OK);
    text = malloc(n + 1);
    assert_non_null(text);
    assert_int_equal(runnel_engine_prometheus(engine, text, n, bytes), RUNNEL_OK);
    assert_int_equal(*bytes, n);
    text[n] = '\0';
    return text;
}

static void text_form(void **state)
{
    struct capture capture = {0};
    char small[10];
    size_t bytes, n;
    char *text;

    (void)state;
    start(false);
    submit(&capture, "twenty bytes, exact.", 4);
    finish_all();
    text = prometheus(&bytes);
    assert_int_equal(strlen(text), bytes);
    assert_true(has_line(text, "# TYPE runnel_time_to_first_token_seconds histogram"));
    assert_true(has_line(text, "runnel_time_to_first_token_seconds_bucket{model_name=\"model\",le=\"0.005\"} 0"));
    assert_true(has_line(text, "runnel_time_to_first_token_seconds_bucket{model_name=\"model\",le=\"0.01\"} 1"));
    assert_true(has_line(text, "runnel_time_to_first_token_seconds_bucket{model_name=\"model\",le=\"2560.0\"} 1"));
    assert_true(has_line(text, "runnel_time_to_first_token_seconds_bucket{model_name=\"model\",le=\"+Inf\"} 1"));
    assert_true(has_line(text, "runnel_time_to_first_token_seconds_sum{model_name=\"model\"} 0.01"));
    assert_true(has_line(text, "runnel_time_to_first_token_seconds_count{model_name=\"model\"} 1"));
    assert_true(has_line(text, "runnel_request_success_total{model_name=\"model\",finished_reason=\"length\"} 1"));
    assert_true(has_line(text, "runnel_request_success_total{model_name=\"model\",finished_reason=\"abort\"} 0"));
    assert_true(has_line(text, "runnel_kv_cache_usage_perc{model_name=\"model\"} 0.0"));
    assert_true(has_line(text, "runnel_models 1"));
    assert_int_equal(runnel_engine_prometheus(engine, small, sizeof small, &n), RUNNEL_OK);
    assert_int_equal(n, bytes);
    assert_memory_equal(small, text, sizeof small);
    assert_int_equal(runnel_engine_prometheus(engine, NULL, 1, &n), RUNNEL_INVALID);
    assert_int_equal(runnel_engine_prometheus(engine, small, 1, NULL), RUNNEL_INVALID);
    free(text);
    capture_clear(&capture);
    stop();
}

/* ---- The trace ---- */

static size_t count_kind(runnel_trace_kind kind)
{
    size_t n = 0;

    for (size_t i = 0; i < n_events; i++)
        n += events[i].kind == kind;
    return n;
}

/* In order on each track, never overlapping, and within the time there was. */
static void check_tracks(void)
{
    uint64_t end_ns[2][16] = {{0}};

    for (size_t i = 0; i < n_events; i++) {
        const runnel_trace_event *e = &events[i];

        assert_in_range(e->begin_ns, 1000 * BEGIN_US, e->end_ns);
        assert_true(e->end_ns <= 1000 * clock_us);
        if (e->kind == RUNNEL_TRACE_REQUEST)
            continue;
        assert_true(e->track < 16);
        assert_true(e->begin_ns >= end_ns[e->kind][e->track]);
        end_ns[e->kind][e->track] = e->end_ns;
    }
}

static const runnel_trace_event *find_phase(runnel_stream stream, const char *name)
{
    const runnel_trace_event *found = NULL;

    for (size_t i = 0; i < n_events; i++)
        if (events[i].kind == RUNNEL_TRACE_REQUEST && events[i].stream == stream.id &&
            strcmp(events[i].name, name) == 0) {
            assert_null(found); /* each once */
            found = &events[i];
        }
    return found;
}

static void check_message_counts(void)
{
    size_t n_sampled = 0, n_submits = 0;

    for (size_t i = 0; i < n_events; i++) {
        if (events[i].kind != RUNNEL_TRACE_ACTOR)
            continue;
        assert_true(messages[i][0] != '\0');
        n_sampled += strstr(messages[i], "SAMPLED") != NULL;
        if (strcmp(events[i].name, "router") == 0) {
            assert_string_equal(events[i].model, "");
            n_submits += strncmp(messages[i], "SUBMIT 2", 8) == 0; /* behind it, those that the model came with */
        } else {
            assert_string_equal(events[i].model, "model");
        }
    }
    assert_int_equal(n_sampled, count_kind(RUNNEL_TRACE_STEP));
    assert_int_equal(n_submits, 1);
}

static void trace(void **state)
{
    struct capture captures[2] = {{0}};
    const runnel_trace_event *queued, *prefill, *decode;
    uint64_t rows = 0, tokens = 0, prompt = 0;
    runnel_stream streams[2];
    runnel_engine_stats stats = {.struct_size = sizeof stats};

    (void)state;
    start(true);
    streams[0] = submit(&captures[0], "twenty bytes, exact.", 4);
    streams[1] = submit(&captures[1], "ten bytes.", 1000);
    clock_us += 3 * MS;
    step(20 * MS, ORACLE_FAULT_NONE);
    step(20 * MS, ORACLE_FAULT_NONE);
    assert_int_equal(runnel_stream_cancel(engine, streams[1]), RUNNEL_OK);
    finish_all();
    rn_tracer_drain(engine->tracer);
    runnel_engine_get_stats(engine, &stats);
    assert_int_equal(count_kind(RUNNEL_TRACE_STEP), stats.steps);
    for (size_t i = 0; i < n_events; i++)
        if (events[i].kind == RUNNEL_TRACE_STEP) {
            rows += events[i].rows;
            tokens += events[i].tokens;
            prompt += events[i].prompt_tokens;
        }
    assert_int_equal(prompt, stats.prompt_tokens);
    assert_true(tokens >= stats.tokens && tokens <= stats.tokens + 1); /* one was drawn for the cancelled one */
    assert_true(rows >= prompt + stats.tokens - 2);
    check_tracks();
    check_message_counts();
    queued = find_phase(streams[0], "queued");
    prefill = find_phase(streams[0], "prefill");
    decode = find_phase(streams[0], "decode");
    assert_true(queued != NULL && prefill != NULL && decode != NULL);
    assert_int_equal(queued->begin_ns, 1000 * BEGIN_US);
    assert_int_equal(queued->end_ns, 1000 * (BEGIN_US + 3 * MS));
    assert_int_equal(prefill->begin_ns, queued->end_ns);
    assert_int_equal(decode->begin_ns, prefill->end_ns);
    assert_int_equal(decode->tokens, 24);
    assert_non_null(find_phase(streams[1], "queued"));
    for (int i = 0; i < 2; i++)
        capture_clear(&captures[i]);
    stop();
    check_tracks(); /* also what engine_free has told */
}

static size_t n_counted;

static void on_trace_count(void *user, const runnel_trace_event *event)
{
    (void)user;
    n_counted += strcmp(event->name, "step") == 0;
}

/* A ring that is full drops, counts and goes on. */
static void trace_overflow(void **state)
{
    struct capture capture = {0};
    size_t n_put = 0;

    (void)state;
    start(true);
    submit(&capture, "twenty bytes, exact.", 4);
    finish_all();
    rn_tracer_drain(engine->tracer);
    for (; metrics().trace_dropped < 5; n_put++)
        rn_tracer_put(engine->tracer, 0, &(runnel_trace_event){.kind = RUNNEL_TRACE_STEP, .name = "step"}, NULL);
    engine->tracer->on_trace = on_trace_count;
    rn_tracer_drain(engine->tracer);
    assert_int_equal(n_counted, n_put - 5);
    assert_true(n_put > 10000);
    rn_tracer_put(engine->tracer, 0, &(runnel_trace_event){.kind = RUNNEL_TRACE_STEP, .name = "step"}, NULL);
    rn_tracer_drain(engine->tracer);
    assert_int_equal(n_counted, n_put - 4); /* there is room again */
    assert_int_equal(metrics().trace_dropped, 5);
    capture_clear(&capture);
    stop();
}

/* ---- On threads ---- */

static struct {
    size_t n_steps, n_phases, n_actors;
    uint64_t n_tokens;
} told; /* by the tracer's thread, and read when the engine is gone */

static void on_trace_sum(void *user, const runnel_trace_event *event)
{
    (void)user;
    told.n_steps += event->kind == RUNNEL_TRACE_STEP;
    told.n_tokens += event->kind == RUNNEL_TRACE_STEP ? event->tokens : 0;
    told.n_phases += event->kind == RUNNEL_TRACE_REQUEST;
    told.n_actors += event->kind == RUNNEL_TRACE_ACTOR && event->messages[0] != '\0';
}

/* A pass of the drafter beside steps of the target, of which several may be in flight: the time in which both compute
 * is counted once. A digit begins a step, e ends the oldest, p begins the pass and q ends it, each a millisecond behind
 * the one before. */
static void overlap(void **state)
{
    static const char *const cases[] = {"pq",     "1epq",     "1pqe",     "p1e.q",   "1p.eq",       "12p..qee",
                                        "p12qee", "p1.2.e.q", "12pe.e.q", "12ee.pq", "1e.2e.p.3.q", "123pee4..eeq"};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct rn_clock clock = {.now_us = now_us};
        struct rn_metrics metrics = {.name = NULL};
        struct rn_step_times times = {.verify_ns = {0}};
        struct rn_drafter drafter = {.kind = RN_DRAFTER_TOKENS, .concurrent = true};
        const struct rn_context context = {.clock = &clock, .metrics = &metrics, .times = &times, .drafter = &drafter};
        struct rn_pass_times pass = {.begin_ns = 0};
        struct rn_batch batches[8];
        uint32_t n_begun = 0, n_ended = 0, took = 0, beside = 0;
        bool passes = false;

        clock_us = BEGIN_US;
        for (const char *c = cases[i]; *c != '\0'; c++, clock_us += MS) {
            passes = *c == 'p' || (passes && *c != 'q');
            if (*c == 'p')
                rn_telemetry_draft_begun(&context, &pass);
            else if (*c == 'q')
                rn_telemetry_draft_done(&context, &pass);
            else if (*c == 'e')
                rn_telemetry_step_done(&batches[n_ended++], &context);
            else if (*c != '.')
                rn_telemetry_step_begun(&context, &batches[n_begun], n_begun == n_ended);
            n_begun += *c >= '1' && *c <= '9';
            took += passes;
            beside += passes && n_begun > n_ended;
        }
        assert_int_equal(rn_telemetry_drafted(&context, &pass), took * MS);
        assert_int_equal(rn_metrics_value(&metrics, RN_COUNT_DRAFT_US), took * MS);
        if (rn_metrics_value(&metrics, RN_COUNT_DRAFT_BESIDE_US) != beside * MS)
            fail_msg("%s: %u of %u ms beside steps, not %llu us", cases[i], beside, took,
                     (unsigned long long)rn_metrics_value(&metrics, RN_COUNT_DRAFT_BESIDE_US));
    }
}

/* Read and told while schedulers write: for ThreadSanitizer; and nothing is lost. */
static void threads(void **state)
{
    struct capture captures[6] = {{0}};
    runnel_engine_options options;
    runnel_metrics m;
    char text[65536];
    size_t bytes;

    (void)state;
    runnel_engine_options_default(&options);
    options.on_trace = on_trace_sum;
    engine = start_engine(&options);
    model = load_model(engine, quick_model(), NULL);
    for (int i = 0; i < 6; i++)
        submit(&captures[i], "Once upon a time", UNLESS_SLOW(40, 8));
    for (int i = 0; i < 6; i++)
        while (captures[i].n_terminal == 0) {
            runnel_engine_wait(engine, 5);
            runnel_engine_dispatch(engine, 0);
            m = metrics();
            assert_true(m.running + m.waiting <= 6 && m.first_token_s.count <= 6);
            assert_int_equal(runnel_engine_prometheus(engine, text, sizeof text, &bytes), RUNNEL_OK);
            assert_true(bytes < sizeof text);
        }
    m = metrics();
    assert_int_equal(m.requests, 6);
    assert_int_equal(m.stopped + m.length, 6);
    assert_int_equal(m.trace_dropped, 0);
    runnel_engine_free(engine);
    assert_int_equal(told.n_steps, m.steps);
    assert_int_equal(told.n_tokens, m.tokens);
    assert_int_equal(told.n_phases, 18);
    assert_true(told.n_actors > m.steps);
    for (int i = 0; i < 6; i++)
        capture_clear(&captures[i]);
}

/* ---- For metrics_parse.py ---- */

static void print_string(const char *text)
{
    for (; *text != '\0'; text++)
        printf("%02x", (unsigned char)*text);
}

static void print_struct(void)
{
    runnel_metrics m = metrics();

    printf("# STRUCT name ");
    print_string(STRANGE_NAME);
    putchar('\n');
    for (uint32_t i = 0; i < RN_COUNTS; i++)
        printf("# STRUCT count %s %s %llu\n", rn_count_infos[i].name,
               rn_count_infos[i].label != NULL ? rn_count_infos[i].label : "-",
               (unsigned long long)*(uint64_t *)((char *)&m + rn_count_infos[i].at));
    for (uint32_t i = 0; i < RN_TIMINGS; i++) {
        const runnel_histogram *h = (runnel_histogram *)((char *)&m + rn_timing_infos[i].at);

        printf("# STRUCT histogram %s %llu %.9f", rn_timing_infos[i].name, (unsigned long long)h->count, h->sum);
        for (uint32_t e = 0; e <= h->n_edges; e++)
            printf(" %.9g:%llu", e < h->n_edges ? h->edges[e] : INFINITY, (unsigned long long)h->counts[e]);
        putchar('\n');
    }
}

static int print_text(void)
{
    struct capture captures[3] = {{0}};
    size_t bytes;
    char *text;

    start(false);
    assert_non_null(rn_metrics_of(&engine->metrics, &engine->heap, STRANGE_PATH));
    submit(&captures[0], "twenty bytes, exact.", 4);
    submit(&captures[1], "another of 24 characters", 40);
    step(35 * MS, ORACLE_FAULT_NONE);
    step(1500 * MS, ORACLE_FAULT_NONE);
    step(2 * MS, ORACLE_FAULT_NONE);
    submit(&captures[2], "the third", 1);
    step(90 * MS, ORACLE_FAULT_NONE);
    text = prometheus(&bytes);
    fwrite(text, 1, bytes, stdout);
    print_struct();
    free(text);
    finish_all();
    for (int i = 0; i < 3; i++)
        capture_clear(&captures[i]);
    stop();
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_request),    cmocka_unit_test(other_ends), cmocka_unit_test(struct_sizes),
        cmocka_unit_test(names),          cmocka_unit_test(text_form),  cmocka_unit_test(trace),
        cmocka_unit_test(trace_overflow), cmocka_unit_test(threads),    cmocka_unit_test(overlap),
    };

    if (argc > 1 && strcmp(argv[1], "--print") == 0)
        return print_text();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
