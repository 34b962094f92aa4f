/* The program's engine, model and event loop: see common.h. */
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common.h"

/* ---- Loading ----------------------------------------------------------------------------- */

struct load {
    const struct app_options *options;
    bool ended;
    runnel_error error;
};

static void on_load(void *user, const runnel_load_event *event)
{
    struct load *load = user;

    if (event->state == RUNNEL_LOAD_PROGRESS) {
        app_progress(load->options, "loading", event->fraction, "");
        return;
    }
    load->ended = true;
    if (event->state == RUNNEL_LOAD_CANCELLED)
        load->error.status = RUNNEL_CANCELLED;
    else if (event->state == RUNNEL_LOAD_FAILED)
        load->error = *event->error;
}

/* Runs the loop until the load has ended; a signal cancels it. */
static void wait_for_load(struct app *app, struct load *load)
{
    bool cancelled = false;

    while (!load->ended) {
        runnel_engine_wait(app->engine, APP_TICK_MS);
        runnel_engine_dispatch(app->engine, 0);
        app_streams_show(app);
        if (app_interrupted() && !cancelled) {
            runnel_model_cancel_load(app->model);
            cancelled = true;
        }
    }
    if (cancelled && load->error.status == RUNNEL_OK) /* too late for the load; but the model takes no request now */
        load->error.status = RUNNEL_CANCELLED;
    app_progress_clear();
}

bool app_shared_url(const char *given, struct app_text *file, const char **url)
{
    *url = given;
    if (given == NULL || given[0] != '@')
        return true;
    if (!app_read_file(given + 1, file))
        return false;
    file->size = strcspn(file->bytes, "\r\n");
    if (file->bytes[file->size + strspn(file->bytes + file->size, "\r\n")] != '\0') {
        app_error("%s: more than a line; the address of the shared cache is wanted", given + 1);
        return false;
    }
    file->bytes[file->size] = '\0';
    *url = file->bytes;
    return true;
}

/* One that runnel has trained, or an EAGLE-3 head of another program. */
static bool is_head(const char *architecture, size_t n)
{
    static const char *const known[] = {"runnel-eagle", "eagle3"};

    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (n == strlen(known[i]) && memcmp(architecture, known[i], n) == 0)
            return true;
    return false;
}

/* "eagle:FILE" means a head; another model would be loaded as one that guesses by itself. False after a message. */
static bool check_head(const struct app_options *options)
{
    const char *path = app_draft_path(options);
    runnel_file *file = NULL;
    char *text = NULL;
    size_t n = 0;
    bool good = true;

    if (path == NULL || strstr(options->draft, "eagle:") == NULL || path != strstr(options->draft, "eagle:") + 6 ||
        runnel_file_open(path, &file, NULL) != RUNNEL_OK) /* the load says why */
        return true;
    text = app_file_text(file, "general.architecture", "", &n);
    if (text != NULL && !is_head(text, n)) {
        app_error("%s is a model (%.*s) and no head; --draft FILE guesses with a model", path, (int)n, text);
        good = false;
    }
    free(text);
    runnel_file_close(file);
    return good;
}

static void warn_context(const struct app *app)
{
    if (app->options->context > 0 && !app->options->quiet && app->info.trained_tokens > 0 &&
        app->info.context_tokens > app->info.trained_tokens)
        app_error("warning: --ctx %u is more than the %u positions that the model was trained for",
                  app->info.context_tokens, app->info.trained_tokens);
}

void app_weights_text(const runnel_model_info *info, char *text, size_t n)
{
    double percent = 100 * (double)info->tiled_bytes / (double)(info->weight_bytes > 0 ? info->weight_bytes : 1);

    if (info->tiled_bytes == 0)
        snprintf(text, n, "as in the file");
    else
        snprintf(text, n, "%.0f %% in tiles%s", percent,
                 info->mapped_bytes == info->tiled_bytes ? ", mapped from --weights-dir" : "");
}

void app_layers_text(const runnel_model_info *info, char *text, size_t n)
{
    if (info->device_layers == info->layers)
        snprintf(text, n, "%u on the device", info->layers);
    else
        snprintf(text, n, "%u on the CPU, %u on the device", info->layers - info->device_layers, info->device_layers);
}

void app_experts_text(const runnel_model_info *info, char *text, size_t n)
{
    snprintf(text, n, "%u on the device, in %.1f MiB, the others in this machine's memory", info->device_experts,
             (double)info->device_expert_bytes / (1 << 20));
}

/* The library's threads are born with all signals blocked: the line editor's handlers are for this thread alone. */
static void signals_block(sigset_t *before)
{
    sigset_t all;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, before);
}

void app_model_options(const struct app_options *options, runnel_model_options *model_options)
{
    runnel_model_options_default(model_options);
    model_options->context_tokens = (uint32_t)options->context;
    model_options->kv_bytes = options->kv_bytes;
    model_options->kv_type = app_kv_type(options->kv_type);
    model_options->chunk_mean = (uint32_t)options->chunk_mean;
    model_options->bound_windows = options->bound_windows;
    model_options->max_slowdown = (float)options->max_slowdown;
    model_options->batch_tokens = (uint32_t)options->batch;
    model_options->weight_order = app_weight_order(options->weights);
    model_options->weights_dir = options->weights_dir;
    model_options->device = options->device;
    model_options->device_layers = (uint32_t)options->device_layers;
    model_options->device_expert_bytes = options->device_experts;
    model_options->draft_path = app_draft_path(options);
    model_options->draft_threads = (uint32_t)options->draft_threads;
    model_options->no_prefix_cache = options->no_prefix_cache;
    model_options->cache_warm_bytes = options->cache_warm;
    model_options->cache_dir = options->cache_dir;
    model_options->cache_shared_ca = options->cache_shared_ca;
    model_options->cache_shared_cert = options->cache_shared_cert;
    model_options->cache_shared_key = options->cache_shared_key;
    model_options->cache_cold_bytes = options->cache_cold;
}

static int load_model(struct app *app, bool vocab_only, const char *cache_shared)
{
    const struct app_options *options = app->options;
    struct load load = {.options = options};
    runnel_adapter *adapters = app_adapters(options);
    runnel_model_options model_options;
    runnel_status status = RUNNEL_OK;
    sigset_t signals;

    if (adapters == NULL && options->n_loras > 0) {
        app_error("not enough memory");
        return APP_FAILURE;
    }
    app_model_options(options, &model_options);
    model_options.adapters = adapters;
    model_options.n_adapters = options->n_loras;
    model_options.vocab_only = vocab_only;
    model_options.cache_shared = cache_shared;
    model_options.on_load = on_load;
    model_options.load_user = &load;
    signals_block(&signals);
    status = runnel_model_load(app->engine, options->operands[0], &model_options, &app->model, &load.error);
    pthread_sigmask(SIG_SETMASK, &signals, NULL);
    free(adapters);
    if (status != RUNNEL_OK) {
        app->model = NULL;
        load.error.status = status;
        return app_fail(&load.error);
    }
    wait_for_load(app, &load);
    if (load.error.status != RUNNEL_OK)
        return app_fail(&load.error);
    app->info.struct_size = sizeof app->info;
    load.error.status = runnel_model_get_info(app->model, &app->info);
    if (load.error.status != RUNNEL_OK)
        return app_fail(&load.error);
    warn_context(app);
    return APP_OK;
}

static const char *const levels[] = {[RUNNEL_LOG_NONE] = "none",
                                     [RUNNEL_LOG_ERROR] = "error",
                                     [RUNNEL_LOG_WARNING] = "warning",
                                     [RUNNEL_LOG_INFO] = "info",
                                     [RUNNEL_LOG_DEBUG] = "debug"};

/* What the engine has to say while it works. Any thread, so one call of stdio. */
static void on_log(void *user, runnel_log_level level, const char *line)
{
    (void)user;
    fprintf(stderr, "%srunnel: %s: %s\n", app_redraws() ? "\r\033[K" : "", levels[level], line);
}

/* Where nothing is asked for: a cache tier that is away, and why. Errors come to whoever asked, and are told there. */
static void on_warning(void *user, runnel_log_level level, const char *line)
{
    (void)user;
    if (level == RUNNEL_LOG_WARNING)
        fprintf(stderr, "%srunnel: %s\n", app_redraws() ? "\r\033[K" : "", line);
}

/* The same as a line of --log-json. user: not NULL where warnings alone are told. */
static void on_json(void *user, runnel_log_level level, const char *line)
{
    char *text = NULL;
    size_t n = 0;
    FILE *to = user == NULL || level == RUNNEL_LOG_WARNING ? open_memstream(&text, &n) : NULL;

    if (to == NULL)
        return;
    fputs("{\"time\":\"", to);
    app_put_time(to);
    fprintf(to, "\",\"level\":\"%s\",\"message\":", levels[level]);
    app_json_string(to, line, strlen(line));
    fputs("}\n", to);
    if (fclose(to) == 0)
        fwrite(text, 1, n, stderr);
    free(text);
}

void app_log_options(const struct app_options *options, runnel_engine_options *engine_options)
{
    static char warnings_alone;

    if (options->log_json) {
        engine_options->on_log = options->log_level == NULL && options->quiet ? NULL : on_json;
        engine_options->log_user = options->log_level == NULL ? &warnings_alone : NULL;
    } else if (options->log_level == NULL) {
        engine_options->on_log = options->quiet ? NULL : on_warning;
    } else {
        engine_options->on_log = on_log;
    }
    for (uint32_t i = RUNNEL_LOG_NONE; options->log_level != NULL && i <= RUNNEL_LOG_DEBUG; i++)
        if (strcmp(options->log_level, levels[i]) == 0)
            engine_options->log_level = (runnel_log_level)i;
}

int app_engine_open(struct app *app, const struct app_options *options, runnel_engine_options *engine_options)
{
    struct app_architecture architecture;
    runnel_error error = {0};
    sigset_t signals;

    if (!app_architecture_read(options->architecture, &architecture))
        return APP_USAGE;
    if (engine_options->n_architectures == 0) { /* who has rows has the option's among them */
        engine_options->architectures = architecture.rows;
        engine_options->n_architectures = architecture.n;
    }
    engine_options->compute_threads = (uint32_t)options->threads;
    if (options->nice >= 0)
        engine_options->compute_nice = (uint32_t)options->nice;
    engine_options->device_library = options->cuda_library;
    app_log_options(options, engine_options);
    if (app_telemetry_open(options, engine_options) != APP_OK)
        return APP_FAILURE;
    signals_block(&signals);
    error.status = runnel_engine_new(engine_options, &app->engine, &error);
    pthread_sigmask(SIG_SETMASK, &signals, NULL);
    if (error.status == RUNNEL_OK)
        return APP_OK;
    app->engine = NULL;
    return app_fail(&error);
}

/* Files are opened before signals are armed: to open a pipe may wait for its other end, and a signal ends that. */
int app_open(struct app *app, const struct app_options *options, bool vocab_only)
{
    runnel_engine_options engine_options;
    struct app_text file = {0};
    const char *url;
    int code = APP_OK;

    *app = (struct app){.options = options};
    if (!check_head(options))
        return APP_USAGE;
    app_streams_arm();
    if (!app_shared_url(options->cache_shared, &file, &url))
        return APP_FAILURE;
    runnel_engine_options_default(&engine_options);
    code = app_engine_open(app, options, &engine_options);
    app_signals_arm();
    if (code == APP_OK)
        code = load_model(app, vocab_only, url);
    free(file.bytes);
    return code;
}

void app_close(struct app *app)
{
    app_telemetry_metrics(app->engine);
    runnel_model_free(app->model);
    runnel_engine_free(app->engine);
    app_telemetry_close(app->options);
    app->model = NULL;
    app->engine = NULL;
}

/* ---- Requests ---------------------------------------------------------------------------- */

const char *app_tokenize_fault(runnel_status status, size_t n)
{
    if (status == RUNNEL_UNSUPPORTED)
        return "the model has no text vocabulary";
    if (status != RUNNEL_INVALID)
        return runnel_status_text(status);
    return n > INT32_MAX ? "the text has 2 GiB or more" : "the text is not UTF-8";
}

int app_tokenize(struct app *app, const char *text, size_t n, uint32_t flags, struct app_ids *ids)
{
    size_t count = 0;
    int32_t *grown = NULL;
    runnel_error error = {0};

    error.status = runnel_tokenize(app->model, text, n, flags, NULL, 0, &count);
    snprintf(error.message, sizeof error.message, "%s", app_tokenize_fault(error.status, n));
    if (error.status != RUNNEL_OK)
        return app_fail(&error);
    grown = realloc(ids->ids, (ids->count + count + 1) * sizeof *grown);
    if (grown == NULL) {
        app_error("not enough memory");
        return APP_FAILURE;
    }
    ids->ids = grown;
    error.status = runnel_tokenize(app->model, text, n, flags, grown + ids->count, count, &count);
    ids->count += count;
    return error.status == RUNNEL_OK ? APP_OK : app_fail(&error);
}

#define COPY_NUMBER(type, member, sampler, value, least, most, option, json, help) \
    samplers->member = (type)options->samplers.member;

static const runnel_samplers *samplers_of(const struct app_options *options)
{
    runnel_samplers *samplers = options->request_samplers;

    runnel_samplers_default(samplers);
    RUNNEL_SAMPLERS_NUMBERS(COPY_NUMBER)
    samplers->order = options->sampler_order;
    if (options->n_breakers > 0 || options->no_breakers) {
        samplers->dry_breakers = options->breakers;
        samplers->n_dry_breakers = options->n_breakers;
    }
    return samplers;
}

void app_request(const struct app_options *options, runnel_request *request)
{
    runnel_request_default(request);
    request->max_tokens = options->max_tokens;
    request->context_keep = options->context_keep;
    request->ignore_eos = options->forbid_eos ? 2 : options->ignore_eos;
    request->parse_special = options->special;
    request->want_logprobs = options->logprobs >= 0;
    request->n_top = options->logprobs > 0 ? (uint32_t)options->logprobs : 0;
    request->sampling.temperature = (float)options->temperature;
    request->sampling.top_k = (uint32_t)options->top_k;
    request->sampling.top_p = (float)options->top_p;
    request->sampling.min_p = (float)options->min_p;
    request->sampling.repetition_penalty = (float)options->repetition_penalty;
    request->sampling.frequency_penalty = (float)options->frequency_penalty;
    request->sampling.presence_penalty = (float)options->presence_penalty;
    request->sampling.penalty_tokens = (uint32_t)options->penalty_tokens;
    request->sampling.samplers = samplers_of(options);
    request->sampling.seed = options->seed;
    request->sampling.biases = options->biases;
    request->sampling.n_biases = options->n_biases;
    request->stops = options->stops;
    request->n_stops = options->n_stops;
    request->stop_tokens = options->stop_tokens;
    request->n_stop_tokens = options->n_stop_tokens;
    request->keep_stop = options->keep_stop;
    request->grammar = app_grammar(options);
    request->label = options->label;
    request->adapter = app_adapter(options);
    request->cache_salt = options->salt.value;
    if (options->cache_wait_ms >= 0) {
        request->cache_wait = options->cache_wait_ms > 0 ? RUNNEL_CACHE_DEADLINE : RUNNEL_CACHE_BEST_EFFORT;
        request->cache_wait_ms = (uint32_t)options->cache_wait_ms;
    }
    request->deadline_ms = options->deadline_s > 0 ? (uint32_t)ceil(options->deadline_s * 1000) : 0;
    app_draft(options, request);
}

/* ---- One stream -------------------------------------------------------------------------- */

struct running {
    app_event_fn on_event;
    void *user;
    struct app_outcome *outcome;
    bool ended, unwanted;
    runnel_error error;
};

static void on_event(void *user, const runnel_event *event)
{
    struct running *running = user;

    if (!running->unwanted && !running->on_event(running->user, event))
        running->unwanted = true;
    if (event->type != RUNNEL_EVENT_DONE && event->type != RUNNEL_EVENT_CANCELLED && event->type != RUNNEL_EVENT_FAILED)
        return;
    running->ended = true;
    *running->outcome = (struct app_outcome){event->type, event->finish, event->usage, event->timings};
    running->error.status = event->type == RUNNEL_EVENT_CANCELLED ? RUNNEL_CANCELLED : event->status;
    running->error.about = event->about;
    if (event->type == RUNNEL_EVENT_FAILED)
        snprintf(running->error.message, sizeof running->error.message, "%s", event->error);
}

int app_fail_request(const struct app_options *options, const runnel_error *error)
{
    int code = app_fail(error);

    return error->about == RUNNEL_ABOUT_GRAMMAR && options->grammar_text == NULL ? APP_USAGE : code;
}

int app_stream(struct app *app, const runnel_request *request, app_event_fn user_fn, void *user,
               struct app_outcome *outcome)
{
    struct running running = {.on_event = user_fn, .user = user, .outcome = outcome};
    runnel_request own = *request;
    runnel_stream stream = {0};
    bool cancelled = false;

    *outcome = (struct app_outcome){0};
    if (app_interrupted())
        return APP_CANCELLED;
    own.on_event = on_event;
    own.user = &running;
    running.error.status = runnel_generate(app->model, &own, &stream, &running.error);
    if (running.error.status != RUNNEL_OK)
        return app_fail_request(app->options, &running.error);
    while (!running.ended) {
        runnel_engine_wait(app->engine, APP_TICK_MS);
        runnel_engine_dispatch(app->engine, 0);
        app_streams_show(app);
        if (!app_flush())
            running.unwanted = true;
        if ((app_interrupted() || running.unwanted) && !cancelled && !running.ended) {
            runnel_stream_cancel(app->engine, stream);
            cancelled = true;
        }
    }
    app_progress_clear();
    return running.error.status == RUNNEL_OK ? APP_OK : app_fail_request(app->options, &running.error);
}

static double seconds(uint64_t from_us, uint64_t to_us)
{
    return to_us > from_us ? (double)(to_us - from_us) * 1e-6 : 1e-6;
}

/* The answer and the figures go to one file or pipe: a newline stands between them. (On a terminal it does already.) */
static bool share_a_file(void)
{
    struct stat out, err;

    return !isatty(STDERR_FILENO) && fstat(STDOUT_FILENO, &out) == 0 && fstat(STDERR_FILENO, &err) == 0 &&
           out.st_dev == err.st_dev && out.st_ino == err.st_ino;
}

static void draft_figures(const runnel_usage *usage)
{
    if (usage->drafted_tokens > 0)
        fprintf(stderr, "drafts: %llu, of which %llu %s right\n", (unsigned long long)usage->drafted_tokens,
                (unsigned long long)usage->accepted_tokens, usage->accepted_tokens == 1 ? "was" : "were");
    if (usage->rested_passes > 0)
        fprintf(stderr, "%s rested for %llu pass%s: %s\n", usage->drafted_tokens > 0 ? "the drafter" : "no drafts: it",
                (unsigned long long)usage->rested_passes, usage->rested_passes == 1 ? "" : "es",
                runnel_rest_text(usage->rest));
}

void app_figures(const struct app_options *options, const struct app_outcome *outcome)
{
    const runnel_usage *usage = &outcome->usage;
    const runnel_timings *t = &outcome->timings;
    uint64_t computed = usage->prompt_tokens > usage->cached_tokens ? usage->prompt_tokens - usage->cached_tokens : 0;
    uint64_t prompt_end = t->first_token_us != 0 ? t->first_token_us : t->end_us;

    if (options->quiet)
        return;
    if (share_a_file())
        fputc('\n', stderr);
    if (usage->cached_tokens == 0)
        fprintf(stderr, "prompt: %llu token%s (0 cached), %.1f tokens/s\n", (unsigned long long)usage->prompt_tokens,
                app_plural(usage->prompt_tokens), (double)computed / seconds(t->admitted_us, prompt_end));
    else /* the few that were left say nothing of the model's speed */
        fprintf(stderr, "prompt: %llu token%s (%llu cached, %.0f %%), read in %.1f ms\n",
                (unsigned long long)usage->prompt_tokens, app_plural(usage->prompt_tokens),
                (unsigned long long)usage->cached_tokens,
                100 * (double)usage->cached_tokens / (double)usage->prompt_tokens,
                seconds(t->admitted_us, prompt_end) * 1e3);
    if (usage->warm_tokens + usage->cold_tokens > 0)
        fprintf(stderr, "fetched: %llu token%s from packed memory, %llu from files\n",
                (unsigned long long)usage->warm_tokens, app_plural(usage->warm_tokens),
                (unsigned long long)usage->cold_tokens);
    if (usage->shared_tokens > 0)
        fprintf(stderr, "fetched: %llu token%s from the shared cache\n", (unsigned long long)usage->shared_tokens,
                app_plural(usage->shared_tokens));
    if (usage->shifts > 0)
        fprintf(stderr, "context: full %llu time%s, %llu token%s of the text went\n", (unsigned long long)usage->shifts,
                app_plural(usage->shifts), (unsigned long long)usage->shifted_tokens,
                app_plural(usage->shifted_tokens));
    if (usage->completion_tokens == 0)
        return;
    fprintf(stderr, "answer: %llu token%s", (unsigned long long)usage->completion_tokens,
            app_plural(usage->completion_tokens));
    if (usage->completion_tokens > 1)
        fprintf(stderr, ", %.1f tokens/s",
                (double)(usage->completion_tokens - 1) / seconds(t->first_token_us, t->end_us));
    fprintf(stderr, ", the first after %.1f ms\n", seconds(0, t->first_token_us) * 1e3);
    draft_figures(usage);
}
