/* runnel bench: how fast a model runs. Everything here is measured through the public interface; speeds by the engine's
 * own timings, since a host's thread that is late gets many tokens at one time, the first token by the host's clock.
 *
 *   prefill   streams with a prompt each, submitted together:
 *             all prompt tokens / (last first token - first admission)
 *   decode    streams with an answer each, submitted together:
 *             sum over streams of (tokens - 1) / (end - first token)
 *
 * At a depth each stream continues a session of its own, filled beforehand with so many positions, and filled anew
 * once answers have made it deeper by an eighth. Prompts are drawn at random, never the same twice: no cache of
 * prompts can answer for the model. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench.h"

struct stream_log {
    uint64_t submit_us, first_us; /* by the host's clock; first_us 0: no token yet */
    runnel_usage usage;
    runnel_timings timings;
};

struct bench {
    struct app app;
    const struct app_options *options;
    struct app_ids text; /* empty: random tokens */
    uint64_t random;     /* state of the generator */
    size_t text_at;
    struct stream_log *logs; /* [most_streams] */
    int32_t *prompt;         /* [most_prompt] */
    uint32_t most_streams, most_prompt;
    runnel_session *sessions; /* [most_streams]; id 0: none */
    uint32_t *positions;      /* [most_streams]: filled, of each session */
    uint32_t n_running;
    int code;           /* of the first failure */
    size_t done, total; /* runs, for the progress bar */
};

static uint64_t now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* ---- Prompts ----------------------------------------------------------------------------- */

/* splitmix64 (Steele, Lea and Flood 2014). */
static uint64_t next_random(struct bench *bench)
{
    uint64_t z = bench->random += 0x9e3779b97f4a7c15u;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* The next n tokens: random ones, or a part of the text that begins elsewhere each time. */
static void draw_prompt(struct bench *bench, uint32_t n)
{
    size_t count = bench->text.count;

    if (count > 0)
        bench->text_at = next_random(bench) % count;
    for (uint32_t i = 0; i < n; i++)
        bench->prompt[i] = count > 0 ? bench->text.ids[(bench->text_at + i) % count]
                                     : (int32_t)(next_random(bench) % bench->app.info.vocab_tokens);
}

/* ---- Streams ----------------------------------------------------------------------------- */

static void fail(struct bench *bench, int code)
{
    if (bench->code == APP_OK)
        bench->code = code;
}

struct stream_user {
    struct bench *bench;
    struct stream_log *log;
};

static void end_stream(struct bench *bench, struct stream_log *log, const runnel_event *event)
{
    runnel_error error = {.status = event->status};

    log->usage = event->usage;
    log->timings = event->timings;
    bench->n_running--;
    if (event->type == RUNNEL_EVENT_CANCELLED)
        fail(bench, APP_CANCELLED);
    if (event->type != RUNNEL_EVENT_FAILED || bench->code != APP_OK)
        return;
    snprintf(error.message, sizeof error.message, "%s", event->error);
    fail(bench, app_fail(&error));
}

static void on_event(void *user, const runnel_event *event)
{
    struct bench *bench = ((struct stream_user *)user)->bench;
    struct stream_log *log = ((struct stream_user *)user)->log;

    if (event->type == RUNNEL_EVENT_TOKEN && event->token >= 0 && log->first_us == 0)
        log->first_us = now_us();
    if (event->type >= RUNNEL_EVENT_DONE)
        end_stream(bench, log, event);
}

static void submit(struct bench *bench, uint32_t index, uint32_t prompt_tokens, uint32_t answer_tokens,
                   struct stream_user *user, runnel_stream *stream)
{
    struct stream_log *log = &bench->logs[index];
    runnel_request request;
    runnel_error error = {0};

    *log = (struct stream_log){0};
    *user = (struct stream_user){bench, log};
    draw_prompt(bench, prompt_tokens);
    runnel_request_default(&request);
    request.tokens = bench->prompt;
    request.n_tokens = prompt_tokens;
    request.max_tokens = answer_tokens;
    request.ignore_eos = 1;
    app_draft(bench->options, &request);
    request.adapter = app_adapter(bench->options);
    request.session = bench->sessions[index];
    request.on_event = on_event;
    request.user = user;
    log->submit_us = now_us();
    error.status = runnel_generate(bench->app.model, &request, stream, &error);
    if (error.status != RUNNEL_OK)
        fail(bench, app_fail(&error));
    else
        bench->n_running++;
}

static void cancel_all(struct bench *bench, const runnel_stream *streams, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (streams[i].id != 0)
            runnel_stream_cancel(bench->app.engine, streams[i]);
}

/* Runs so many streams at once, each with a prompt and an answer of so many tokens, until all have ended. */
static int run_streams(struct bench *bench, uint32_t n, uint32_t prompt_tokens, uint32_t answer_tokens)
{
    struct stream_user *users = calloc(n, sizeof *users);
    runnel_stream *streams = calloc(n, sizeof *streams);
    bool cancelled = false;

    if (users == NULL || streams == NULL) {
        app_error("not enough memory");
        fail(bench, APP_FAILURE);
    }
    for (uint32_t i = 0; i < n && bench->code == APP_OK; i++)
        submit(bench, i, prompt_tokens, answer_tokens, &users[i], &streams[i]);
    while (bench->n_running > 0) {
        if ((app_interrupted() || bench->code != APP_OK) && !cancelled) {
            cancel_all(bench, streams, n);
            cancelled = true;
        }
        runnel_engine_wait(bench->app.engine, APP_TICK_MS);
        runnel_engine_dispatch(bench->app.engine, 0);
        app_streams_show(&bench->app);
    }
    if (app_interrupted())
        fail(bench, APP_CANCELLED);
    free(users);
    free(streams);
    return bench->code;
}

/* ---- Speeds ------------------------------------------------------------------------------ */

/* Tokens per second of the prompts of the last run. */
static double prefill_rate(const struct bench *bench, uint32_t n)
{
    uint64_t begin_us = UINT64_MAX, end_us = 0, tokens = 0;

    for (uint32_t i = 0; i < n; i++) {
        const struct stream_log *log = &bench->logs[i];
        uint64_t admitted_us = log->submit_us + log->timings.admitted_us;
        uint64_t first_us = log->submit_us + log->timings.first_token_us;

        begin_us = admitted_us < begin_us ? admitted_us : begin_us;
        end_us = first_us > end_us ? first_us : end_us;
        tokens += log->usage.prompt_tokens - log->usage.cached_tokens;
    }
    return end_us > begin_us ? (double)tokens * 1e6 / (double)(end_us - begin_us) : 0;
}

/* Tokens per second of the answers of the last run. */
static double decode_rate(const struct bench *bench, uint32_t n)
{
    double rate = 0;

    for (uint32_t i = 0; i < n; i++) {
        const runnel_timings *timings = &bench->logs[i].timings;
        uint64_t tokens = bench->logs[i].usage.completion_tokens;

        if (tokens > 1 && timings->end_us > timings->first_token_us)
            rate += (double)(tokens - 1) * 1e6 / (double)(timings->end_us - timings->first_token_us);
    }
    return rate;
}

static int compare(const void *a, const void *b)
{
    const double *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

static struct bench_spread spread_of(double *values, size_t n)
{
    struct bench_spread spread = {0, 0, 0};

    if (n == 0)
        return spread;
    qsort(values, n, sizeof *values, compare);
    spread.min = values[0];
    spread.max = values[n - 1];
    spread.median = (values[(n - 1) / 2] + values[n / 2]) / 2;
    return spread;
}

/* ---- Tests ------------------------------------------------------------------------------- */

static void drop_sessions(struct bench *bench)
{
    for (uint32_t i = 0; i < bench->most_streams; i++)
        if (bench->sessions[i].id != 0)
            runnel_session_free(bench->app.model, bench->sessions[i]);
    memset(bench->sessions, 0, bench->most_streams * sizeof *bench->sessions);
}

/* Sessions of so many positions for the first n streams, all at once. */
static int fill_sessions(struct bench *bench, uint32_t n, uint32_t depth)
{
    runnel_error error = {0};

    drop_sessions(bench);
    for (uint32_t i = 0; i < n; i++) {
        error.status = runnel_session_new(bench->app.model, &bench->sessions[i]);
        if (error.status != RUNNEL_OK) {
            bench->sessions[i].id = 0;
            fail(bench, app_fail(&error));
            return bench->code;
        }
        bench->positions[i] = depth;
    }
    return run_streams(bench, n, depth, 0);
}

static void read_metrics(struct bench *bench, runnel_metrics *metrics)
{
    runnel_error error = {0};

    *metrics = (runnel_metrics){.struct_size = sizeof *metrics};
    error.status = runnel_engine_metrics(bench->app.engine, metrics);
    if (error.status != RUNNEL_OK)
        fail(bench, app_fail(&error));
}

/* Adds what the engine has counted since `before` was read, and what the n answers say. */
static void add_drafts(struct bench *bench, struct bench_drafts *drafts, const runnel_metrics *before,
                       uint64_t begin_us, uint32_t n)
{
    runnel_metrics now;

    for (uint32_t i = 0; i < n; i++)
        if (bench->logs[i].usage.rest <= RUNNEL_REST_BROKEN)
            drafts->rested[bench->logs[i].usage.rest] += bench->logs[i].usage.rested_passes;

    read_metrics(bench, &now);
    drafts->passes += now.drafts - before->drafts;
    drafts->drafted += now.drafted - before->drafted;
    drafts->accepted += now.accepted - before->accepted;
    drafts->draft_us += now.draft_us - before->draft_us;
    drafts->beside_us += now.draft_beside_us - before->draft_beside_us;
    drafts->run_us += now_us() - begin_us;
}

/* The answers of one run; the first token comes from the prompt's step. */
static int run_answers(struct bench *bench, const struct bench_test *test, struct bench_drafts *drafts)
{
    const uint32_t n = test->streams;
    runnel_metrics before;
    uint64_t begin_us = 0;
    bool filled = bench->sessions[0].id != 0 && bench->sessions[n - 1].id != 0;

    if (test->depth > 0 && (!filled || bench->positions[0] > test->depth + test->depth / 8) &&
        fill_sessions(bench, n, test->depth) != APP_OK)
        return bench->code;
    for (uint32_t i = 0; i < n; i++)
        bench->positions[i] += test->tokens + 2;
    read_metrics(bench, &before);
    begin_us = now_us();
    run_streams(bench, n, 1, test->tokens + 1);
    add_drafts(bench, drafts, &before, begin_us, n);
    return bench->code;
}

static int run_once(struct bench *bench, const struct bench_test *test, double *rate, struct bench_drafts *drafts)
{
    int code = test->decode ? run_answers(bench, test, drafts) : run_streams(bench, test->streams, test->tokens, 1);

    app_progress(bench->options, "timing", (double)++bench->done / (double)bench->total, "");
    if (code == APP_OK)
        *rate = test->decode ? decode_rate(bench, test->streams) : prefill_rate(bench, test->streams);
    return code;
}

/* Adds `sign` times what the engine has counted so far. */
static void add_experts(const struct bench *bench, struct bench_result *result, int sign)
{
    runnel_expert_use use = {.struct_size = sizeof use};

    for (uint32_t i = 0; runnel_engine_expert_use(bench->app.engine, i, &use, NULL, 0) == RUNNEL_OK; i++) {
        result->expert_hits += (uint64_t)sign * use.hits;
        result->expert_misses += (uint64_t)sign * use.misses;
    }
}

/* The first run warms up and does not count. */
static int run_test(struct bench *bench, struct bench_result *result)
{
    const struct bench_test *test = &result->test;
    struct bench_drafts warming = {0};
    size_t repeats = (size_t)bench->options->repeats, n_first = 0;
    double *rates = calloc(repeats + 1, sizeof *rates);
    double *first_ms = calloc(repeats * test->streams, sizeof *first_ms);

    if (rates == NULL || first_ms == NULL) {
        app_error("not enough memory");
        fail(bench, APP_FAILURE);
    }
    for (size_t i = 0; i <= repeats && bench->code == APP_OK; i++) {
        if (i == 1)
            add_experts(bench, result, -1);
        if (run_once(bench, test, &rates[i], i == 0 ? &warming : &result->drafts) != APP_OK || i == 0 || test->decode)
            continue;
        for (uint32_t s = 0; s < test->streams; s++)
            if (bench->logs[s].first_us > 0)
                first_ms[n_first++] = (double)(bench->logs[s].first_us - bench->logs[s].submit_us) * 1e-3;
    }
    drop_sessions(bench);
    if (bench->code == APP_OK) {
        add_experts(bench, result, 1);
        result->rate = spread_of(rates + 1, repeats);
        result->first_ms = spread_of(first_ms, n_first);
    }
    free(rates);
    free(first_ms);
    return bench->code;
}

static uint32_t most(const struct app_list *list)
{
    int64_t value = 0;

    for (size_t i = 0; i < list->n; i++)
        value = list->values[i] > value ? list->values[i] : value;
    return (uint32_t)value;
}

/* Every test that the lists ask for; *n of them. NULL when memory is short. */
static struct bench_result *list_tests(const struct app_options *o, size_t *n)
{
    struct bench_result *results = calloc(o->streams.n * (o->prompts.n + o->depths.n * o->answers.n), sizeof *results);

    *n = 0;
    for (size_t p = 0; results != NULL && p < o->prompts.n; p++)
        for (size_t s = 0; o->prompts.values[p] > 0 && s < o->streams.n; s++)
            results[(*n)++].test =
                (struct bench_test){false, (uint32_t)o->prompts.values[p], (uint32_t)o->streams.values[s], 0};
    for (size_t d = 0; results != NULL && d < o->depths.n; d++)
        for (size_t a = 0; a < o->answers.n; a++)
            for (size_t s = 0; o->answers.values[a] > 0 && s < o->streams.n; s++)
                results[(*n)++].test =
                    (struct bench_test){true, (uint32_t)o->answers.values[a], (uint32_t)o->streams.values[s],
                                        (uint32_t)o->depths.values[d]};
    return results;
}

/* ---- Memory ------------------------------------------------------------------------------ */

/* From now on the peak counts anew, where the kernel lets us. */
static void reset_peak(void)
{
    FILE *file = fopen("/proc/self/clear_refs", "w");

    if (file != NULL) {
        fputs("5", file);
        fclose(file);
    }
}

static uint64_t peak_bytes(void)
{
    FILE *file = fopen("/proc/self/status", "r");
    char line[256];
    uint64_t kib = 0;

    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, "VmHWM: %" SCNu64, &kib) == 1)
            break;
    if (file != NULL)
        fclose(file);
    return kib * 1024;
}

static bool take_memory(struct bench *bench)
{
    const struct app_options *o = bench->options;
    uint32_t prompt = most(&o->prompts), depth = most(&o->depths);

    bench->most_streams = most(&o->streams);
    bench->most_prompt = prompt > depth ? prompt : depth;
    bench->most_prompt += bench->most_prompt == 0;
    bench->logs = calloc(bench->most_streams, sizeof *bench->logs);
    bench->prompt = calloc(bench->most_prompt, sizeof *bench->prompt);
    bench->sessions = calloc(bench->most_streams, sizeof *bench->sessions);
    bench->positions = calloc(bench->most_streams, sizeof *bench->positions);
    if (bench->logs != NULL && bench->prompt != NULL && bench->sessions != NULL && bench->positions != NULL)
        return true;
    app_error("not enough memory");
    return false;
}

static void free_memory(struct bench *bench)
{
    free(bench->logs);
    free(bench->prompt);
    free(bench->sessions);
    free(bench->positions);
    app_ids_fini(&bench->text);
}

/* ---- One model --------------------------------------------------------------------------- */

enum { BLOCK_ROOM = 64 }; /* a sequence's last block and one more: KV is leased in blocks */

/* The context that the tests need, and KV for all streams at their longest. */
static void choose_sizes(struct app_options *options, const struct bench_cost *cost)
{
    uint64_t answer = most(&options->answers) + 2, depth = most(&options->depths);
    uint64_t positions = depth + depth / 8 + answer;

    positions = positions > most(&options->prompts) ? positions : most(&options->prompts);
    options->context = (int64_t)(positions + BLOCK_ROOM);
    options->kv_bytes = (positions + 2 * BLOCK_ROOM) * most(&options->streams) * cost->kv_bytes_per_token;
}

static int read_text(struct bench *bench)
{
    struct app_text text = {0};
    int code = APP_OK;

    if (bench->options->text == NULL)
        return APP_OK;
    if (!app_read_file(bench->options->text, &text))
        return APP_FAILURE;
    code = app_tokenize(&bench->app, text.bytes, text.size, 0, &bench->text);
    free(text.bytes);
    if (code == APP_OK && bench->text.count == 0) {
        app_error("%s: there is no text in it", bench->options->text);
        code = APP_FAILURE;
    }
    return code;
}

static int measure_machine(struct bench *bench, struct bench_model *model)
{
    runnel_error error = {0};

    model->machine.struct_size = sizeof model->machine;
    if (bench->options->no_limits)
        return APP_OK;
    error.status = runnel_engine_measure(bench->app.engine, &model->machine, &error);
    model->measured = error.status == RUNNEL_OK;
    if (model->measured)
        model->threads = model->machine.compute_threads;
    return model->measured ? APP_OK : app_fail(&error);
}

static int run_model(struct bench *bench, struct bench_model *model)
{
    int code = APP_OK;

    model->info = bench->app.info;
    code = read_text(bench);
    bench->total = model->n_results * ((size_t)bench->options->repeats + 1);
    for (size_t i = 0; i < model->n_results && code == APP_OK; i++)
        code = run_test(bench, &model->results[i]);
    read_metrics(bench, &model->metrics);
    model->peak_rss_bytes = peak_bytes(); /* before the machine is measured: that takes memory of its own */
    if (code == APP_OK)
        code = measure_machine(bench, model);
    app_progress_clear();
    return code;
}

static void name_model(struct bench_model *model, const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
    size_t n = strlen(name);

    model->path = path;
    if (n > 5 && strcmp(name + n - 5, ".gguf") == 0)
        n -= 5;
    snprintf(model->name, sizeof model->name, "%.*s", (int)n, name);
}

/* `options` is a copy of the program's for this model, and is changed. */
static int bench_model(struct app_options *options, const char *path, bool first)
{
    struct bench bench = {.options = options, .random = 1};
    struct bench_model model = {0};
    uint64_t begin_us = 0;
    int code = bench_cost_read(&model.cost, path, app_kv_type(options->kv_type));

    if (code != APP_OK)
        return code;
    model.cost.chunk_mean = (uint64_t)options->chunk_mean;
    name_model(&model, path);
    choose_sizes(options, &model.cost);
    options->operands[0] = path;
    options->max_tokens = -1;
    options->no_prefix_cache = true; /* what is measured is computed */
    model.threads = (uint32_t)options->threads;
    model.batch_tokens = options->batch != 0 ? (uint32_t)options->batch : 256;
    model.results = list_tests(options, &model.n_results);
    reset_peak();
    begin_us = now_us();
    code = model.results != NULL && take_memory(&bench) ? app_open(&bench.app, options, false) : APP_FAILURE;
    model.load_s = (double)(now_us() - begin_us) * 1e-6;
    if (code == APP_OK)
        code = run_model(&bench, &model);
    app_close(&bench.app);
    if (code == APP_OK)
        bench_report(options, &model, first);
    free_memory(&bench);
    free(model.results);
    return code;
}

int app_bench(const struct app_options *options)
{
    static struct app_options own; /* large, as in main.c */
    int code = APP_OK;
    bool reported = false;

    if (options->json && options->csv) {
        app_error("--json and --csv exclude each other");
        return APP_USAGE;
    }
    if ((options->metrics_file != NULL || options->trace_file != NULL || options->experts_file != NULL) &&
        options->n_operands > 1) {
        app_error("--metrics, --trace and --experts take one model");
        return APP_USAGE;
    }
    if (most(&options->prompts) == 0 && most(&options->answers) == 0) {
        app_error("nothing to time: neither --prompt nor --generate asks for a token");
        return APP_USAGE;
    }
    for (int i = 0; i < options->n_operands && code == APP_OK; i++) {
        own = *options;
        code = bench_model(&own, options->operands[i], i == 0);
        reported = reported || code == APP_OK;
        if (code == APP_OK && !app_flush())
            break;
    }
    if (reported) /* also where a later model failed: what is printed is whole */
        bench_report_end(options);
    return app_worse(code, app_output_code());
}
