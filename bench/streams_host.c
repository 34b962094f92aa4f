/* The host: see streams_host.h. */
#include "streams_host.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/rng.h"

void die(const char *what, const char *why)
{
    fprintf(stderr, "bench_streams: %s: %s\n", what, why);
    exit(1);
}

static void *need(void *memory)
{
    if (memory == NULL)
        die("memory", "there is not enough");
    return memory;
}

/* ---- Opening ---- */

static void open_device(struct host *host, const struct host_options *options)
{
    struct rn_model_parts parts = {.limits = options->limits, .n_vocab = DEVICE_VOCAB};
    runnel_error error = {0};

    host->device = need(device_new(&options->limits));
    parts.backend = &host->device->backend;
    parts.vocab = need(rn_vocab_new_bytes(&host->engine->heap));
    if (rn_model_new_of_parts(host->engine, &parts, NULL, &host->model, &error) != RUNNEL_OK)
        die("model", error.message);
    host->n_vocab = DEVICE_VOCAB;
}

static void open_file(struct host *host, const struct host_options *options)
{
    runnel_model_info info = {.struct_size = sizeof info};
    runnel_model_options model_options;
    runnel_error error = {0};

    runnel_model_options_default(&model_options);
    model_options.context_tokens = options->context_tokens;
    model_options.kv_bytes = options->kv_bytes;
    if (runnel_model_load(host->engine, options->path, &model_options, &host->model, &error) != RUNNEL_OK ||
        runnel_model_wait(host->model, -1, &error) != RUNNEL_OK ||
        runnel_model_get_info(host->model, &info) != RUNNEL_OK)
        die(options->path, error.message);
    host->n_vocab = info.vocab_tokens;
}

void host_open(struct host *host, const struct host_options *options)
{
    runnel_engine_options engine_options;
    runnel_error error = {0};

    *host = (struct host){.rng = 1};
    host->users = need(calloc(USERS_MOST, sizeof *host->users));
    runnel_engine_options_default(&engine_options);
    engine_options.max_streams = options->max_streams;
    engine_options.compute_threads = options->path == NULL ? 1 : options->threads;
    engine_options.on_trace = options->on_trace;
    if (options->allocator != NULL)
        engine_options.allocator = *options->allocator;
    if (runnel_engine_new(&engine_options, &host->engine, &error) != RUNNEL_OK)
        die("engine", error.message);
    if (options->path == NULL)
        open_device(host, options);
    else
        open_file(host, options);
}

void host_close(struct host *host)
{
    host->ending = true;
    runnel_engine_free(host->engine);
    if (host->device != NULL)
        device_free(host->device);
    for (uint32_t i = 0; i < host->n_users; i++)
        free(host->users[i].prompt);
    free(host->users);
    free(host->gaps);
}

/* ---- Users ---- */

static int32_t random_token(struct host *host)
{
    /* The first tokens of real vocabularies are control tokens and bytes. */
    uint32_t first = host->n_vocab > 1000 ? 300 : 0;

    return (int32_t)(first + rn_splitmix64(&host->rng) % (host->n_vocab - first));
}

static void keep_gap(struct host *host, uint64_t ns)
{
    if (host->n_gaps == host->gaps_capacity) {
        host->gaps_capacity = host->gaps_capacity == 0 ? 65536 : 2 * host->gaps_capacity;
        host->gaps = need(realloc(host->gaps, host->gaps_capacity * sizeof *host->gaps));
    }
    host->gaps[host->n_gaps++] = (double)ns * 1e-6;
}

static void on_token(struct user *user)
{
    uint64_t now = monotonic_ns();

    user->host->n_tokens++;
    if (user->first_ns == 0) {
        user->first_ns = now;
        user->host->n_first++;
    } else if (user->timed) {
        keep_gap(user->host, now - user->last_ns);
    }
    user->last_ns = now;
}

static void on_event(void *data, const runnel_event *event)
{
    struct user *user = data;

    if (event->type == RUNNEL_EVENT_TOKEN && event->token >= 0)
        on_token(user);
    if (event->type < RUNNEL_EVENT_DONE)
        return;
    if (event->type == RUNNEL_EVENT_FAILED)
        die("a stream failed", event->error);
    user->live = false;
    user->host->n_live--;
    if (user->again && !user->host->ending) {
        for (uint32_t i = 0; i < user->n_prompt; i++)
            user->prompt[i] = random_token(user->host);
        user_submit(user);
    }
}

struct user *host_user(struct host *host, const int32_t *shared, uint32_t n_shared, uint32_t n, int64_t max_tokens)
{
    struct user *user = &host->users[host->n_users];

    if (host->n_users++ == USERS_MOST)
        die("users", "too many");
    *user = (struct user){.host = host, .n_prompt = n_shared + n, .max_tokens = max_tokens};
    user->prompt = need(malloc((n_shared + n) * sizeof *user->prompt));
    for (uint32_t i = 0; i < n_shared + n; i++)
        user->prompt[i] = i < n_shared ? shared[i] : random_token(host);
    return user;
}

void user_submit(struct user *user)
{
    runnel_request request;
    runnel_error error = {0};

    runnel_request_default(&request);
    request.tokens = user->prompt;
    request.n_tokens = user->n_prompt;
    request.max_tokens = user->max_tokens;
    request.ignore_eos = 1;
    request.on_event = on_event;
    request.user = user;
    user->first_ns = user->last_ns = 0;
    user->submitted_ns = monotonic_ns();
    if (runnel_generate(user->host->model, &request, &user->stream, &error) != RUNNEL_OK)
        die("submit", error.message);
    user->live = true;
    user->host->n_live++;
}

void host_run(struct host *host, uint64_t until_ns, const uint32_t *counter, uint32_t goal)
{
    for (;;) {
        uint64_t now = monotonic_ns();

        if (until_ns != 0 ? now >= until_ns : goal == 0 ? *counter == 0 : *counter >= goal)
            return;
        runnel_engine_wait(host->engine, until_ns == 0 ? 1000 : (int64_t)((until_ns - now) / 1000000 + 1));
        runnel_engine_dispatch(host->engine, 0);
    }
}

/* ---- Figures ---- */

uint64_t host_scheduler_ns(const struct host *host)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < host->engine->runtime.n_threads; i++)
        sum += thread_cpu_ns(host->engine->runtime.threads[i]);
    return sum;
}

uint64_t host_own_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void host_forget_gaps(struct host *host)
{
    host->n_gaps = 0;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double quantile(double *list, size_t n, double p)
{
    if (n == 0)
        die("quantile", "nothing was measured");
    qsort(list, n, sizeof *list, ascending);
    return list[(size_t)(p * (double)(n - 1) + 0.5)];
}
