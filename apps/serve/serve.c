/* runnel serve: begins, runs and ends the server. See serve.h. */
#include "serve.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>

#include "runnel_uv.h"

enum {
    LOOK_MS = 1000,
    SYSTEMD_FD = 3,
    OTHER_FDS = 200, /* of files, models, caches, the engine */
    USUAL_NICE = 10  /* measured: docs/SPEED-LOG.md */
};

/* ---- Time -------------------------------------------------------------------------------- */

/* A client of a stream that has nothing to say for a while learns that it is still alive. */
static void on_look(uv_timer_t *timer)
{
    struct serve *serve = timer->data;
    struct serve_task *next = NULL;
    uint64_t ping_ms = (uint64_t)(serve->options->ping_s * 1000);

    serve_settle(serve); /* models that were idle long enough */
    for (struct serve_task *task = serve->tasks; task != NULL; task = next) {
        next = task->next;
        if (task->exchange != NULL && !task->apart && task->request.stream &&
            uv_now(&serve->loop) - task->told_ms >= ping_ms)
            serve_task_ping(task);
    }
}

/* ---- The end ----------------------------------------------------------------------------- */

static void stop(struct serve *serve)
{
    uv_stop(&serve->loop);
}

static void on_drained(void *user)
{
    stop(user);
}

static void on_deadline(uv_timer_t *timer)
{
    struct serve *serve = timer->data;

    serve_complain(serve, "%g s have passed: what has not ended is cut off", serve->options->drain_s);
    stop(serve);
}

/* The first signal lets what runs come to its end, the second one does not. */
static void on_signal(uv_signal_t *signal, int number)
{
    struct serve *serve = signal->data;

    (void)number;
    if (serve->draining) {
        stop(serve);
        return;
    }
    serve->draining = true;
    serve_tell(serve, "going down: what has begun comes to its end");
    uv_timer_start(&serve->deadline, on_deadline, (uint64_t)(serve->options->drain_s * 1000), 0);
    http_server_drain(serve->http, on_drained, serve);
}

bool serve_read_file(const struct serve *serve, const char *path, struct app_text *text, char sentence[512])
{
    struct stat status;
    size_t mark;

    if (serve->again && stat(path, &status) == 0 && !S_ISREG(status.st_mode)) {
        snprintf(sentence, 512, "%.300s: it is no regular file, and cannot be read again", path);
        return false;
    }
    if (!app_take_file(path, text, sentence))
        return false;
    mark = openai_mark_bytes(text->bytes, text->size);
    text->size -= mark;
    memmove(text->bytes, text->bytes + mark, text->size + 1);
    return true;
}

/* SIGHUP: keys and models are read again. What cannot be read leaves the old ones in place. */
static void on_hangup(uv_signal_t *signal, int number)
{
    struct serve *serve = signal->data;

    (void)number;
    serve->again = true;
    serve_reload_keys(serve);
    serve_reload_models(serve);
}

/* ---- Listening --------------------------------------------------------------------------- */

static bool complain(const char *what, int error)
{
    app_error("cannot listen on %s: %s", what, uv_strerror(error));
    return false;
}

/* How many sockets systemd hands over (sd_listen_fds(3)), from the descriptor SYSTEMD_FD on. */
static int handed_sockets(void)
{
    const char *pid = getenv("LISTEN_PID"), *n = getenv("LISTEN_FDS");
    long count = pid != NULL && n != NULL && strtol(pid, NULL, 10) == (long)getpid() ? strtol(n, NULL, 10) : 0;

    return count > 0 && count <= INT_MAX - SYSTEMD_FD ? (int)count : 0;
}

/* A host that starts a server reads the line. One that has stopped reading is served all the same. */
static bool __attribute__((format(printf, 2, 3))) tell_where(struct serve *serve, const char *format, ...)
{
    char where[320];
    int code = APP_OK;
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(where, sizeof where, format, arguments);
    va_end(arguments);
    printf("listening on %s\n", where);
    code = app_output_code();
    if (code == APP_CANCELLED)
        serve_complain(serve, "nobody reads standard output: listening on %s", where);
    return code != APP_FAILURE;
}

static bool listen_handed(struct serve *serve, int n)
{
    char what[64] = "the socket that was handed over";

    for (int i = 0; i < n; i++) {
        int error = http_listen_fd(serve->http, SYSTEMD_FD + i);

        if (n > 1)
            snprintf(what, sizeof what, "socket %d of %d that were handed over", i + 1, n);
        if (error != 0)
            return complain(what, error);
    }
    if (n > 1)
        snprintf(what, sizeof what, "the %d sockets that were handed over", n);
    return tell_where(serve, "%s", what);
}

static bool listen_tcp(struct serve *serve, const char *scheme)
{
    const struct app_options *options = serve->options;
    uint16_t port = 0;
    int error = http_listen_tcp(serve->http, options->host, (uint16_t)options->port, &port);
    char where[280];

    snprintf(where, sizeof where, "%s port %d", options->host, (int)options->port);
    if (error != 0)
        return complain(where, error);
    return tell_where(serve, "%s://%s%s%s:%u", scheme, strchr(options->host, ':') != NULL ? "[" : "", options->host,
                      strchr(options->host, ':') != NULL ? "]" : "", port);
}

static bool listen_all(struct serve *serve)
{
    const struct app_options *options = serve->options;
    bool tls = options->tls_cert != NULL;
    char sentence[256];
    int error = 0, n_handed = handed_sockets();

    if (tls && !http_use_tls(serve->http, options->tls_cert, options->tls_key, sentence)) {
        app_error("%s", sentence);
        return false;
    }
    if (n_handed > 0)
        return listen_handed(serve, n_handed);
    if (options->unix_path != NULL) {
        error = http_listen_unix(serve->http, options->unix_path);
        return error != 0 ? complain(options->unix_path, error) : tell_where(serve, "unix:%s", options->unix_path);
    }
    return listen_tcp(serve, tls ? "https" : "http");
}

/* ---- Descriptors ------------------------------------------------------------------------- */

/* A connection takes one. Raises the soft limit of the process as far as it may. Returns how many connections the
 * server may hold, 0: as many as its options say. The rest is kept: a model must be able to open its file however many
 * clients have come. */
static size_t make_room(struct serve *serve)
{
    size_t connections = (size_t)serve->options->max_connections, wanted = connections + OTHER_FDS, has = 0;
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return 0;
    if (limit.rlim_cur < wanted) {
        limit.rlim_cur = limit.rlim_max < wanted ? limit.rlim_max : wanted;
        if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
            getrlimit(RLIMIT_NOFILE, &limit);
    }
    if (limit.rlim_cur >= wanted)
        return 0;
    has = (size_t)limit.rlim_cur;
    serve_complain(serve, "--max-connections %zu needs %zu file descriptors; this process may have %zu (ulimit -n)",
                   connections, wanted, has);
    return has / 2 > OTHER_FDS ? has - OTHER_FDS : has / 2;
}

static void on_short(void *user, int error)
{
    struct serve *serve = user;

    if (!serve->is_short)
        serve_complain(serve, "connections wait: %s", uv_strerror(error));
    serve->is_short = true;
}

/* ---- The whole --------------------------------------------------------------------------- */

static void watch(struct serve *serve)
{
    double ping_s = serve->options->ping_s;
    uint64_t look_ms = ping_s < 1 ? (uint64_t)(ping_s * 1000) : LOOK_MS;

    uv_timer_init(&serve->loop, &serve->pings);
    uv_timer_init(&serve->loop, &serve->deadline);
    uv_timer_init(&serve->loop, &serve->settle);
    uv_timer_init(&serve->loop, &serve->waves);
    uv_signal_init(&serve->loop, &serve->interrupt);
    uv_signal_init(&serve->loop, &serve->terminate);
    uv_signal_init(&serve->loop, &serve->hangup);
    serve->pings.data = serve->deadline.data = serve->interrupt.data = serve->terminate.data = serve->hangup.data =
        serve->settle.data = serve->waves.data = serve;
    uv_timer_start(&serve->pings, on_look, look_ms, look_ms);
    uv_signal_start(&serve->interrupt, on_signal, SIGINT);
    uv_signal_start(&serve->terminate, on_signal, SIGTERM);
    uv_signal_start(&serve->hangup, on_hangup, SIGHUP);
}

static int open_server(struct serve *serve)
{
    const struct app_options *options = serve->options;
    const struct http_handlers handlers = {.on_head = serve_on_head,
                                           .on_request = serve_on_request,
                                           .on_gone = serve_on_gone,
                                           .on_slow = serve_on_slow,
                                           .on_taken = serve_on_taken,
                                           .on_end = visit_on_end,
                                           .on_short = on_short,
                                           .refusal = serve_refusal,
                                           .user = serve};
    struct http_limits limits = {.body_bytes = options->max_body_bytes,
                                 .connections = (size_t)options->max_connections,
                                 .held_bytes = options->max_queued_bytes,
                                 .gather_ms = (uint32_t)options->gather_ms,
                                 .names = "/v1/models/"};
    runnel_engine_options engine_options;
    int code = APP_OK;

    serve->out.to = open_memstream(&serve->out.bytes, &serve->out.n);
    serve->line.to = open_memstream(&serve->line.bytes, &serve->line.n);
    if (serve->out.to == NULL || serve->line.to == NULL ||
        getrandom(&serve->seed, sizeof serve->seed, 0) != sizeof serve->seed) {
        app_error("not enough memory");
        return APP_FAILURE;
    }
    if (options->template_file != NULL && !app_read_file(options->template_file, &serve->template_text))
        return APP_FAILURE;
    runnel_engine_options_default(&engine_options);
    engine_options.max_streams = (uint32_t)options->max_streams;
    engine_options.max_queued_bytes = options->max_queued_bytes;
    engine_options.compute_nice = USUAL_NICE;
    code = serve_read_models(serve);
    if (code == APP_OK)
        code = serve_open_engine(serve, &engine_options);
    if (code != APP_OK)
        return code;
    limits.taken = make_room(serve);
    if (runnel_uv_attach(serve->app.engine, &serve->loop) != RUNNEL_OK ||
        (serve->http = http_server_new(&serve->loop, &limits, &handlers)) == NULL) {
        app_error("not enough memory");
        return APP_FAILURE;
    }
    watch(serve);
    code = serve_open_files(serve) && listen_all(serve) ? serve_load_models(serve) : APP_FAILURE;
    if (code == APP_OK)
        serve_begin_batches(serve);
    return code;
}

static void close_handle(uv_handle_t *handle, void *user)
{
    (void)user;
    if (!uv_is_closing(handle))
        uv_close(handle, NULL);
}

/* Who waits for an answer that has not begun learns that none will come. */
static void refuse_waiting(struct serve *serve)
{
    if (serve->http == NULL)
        return;
    http_server_refuse(serve->http, "the server is going down");
    uv_run(&serve->loop, UV_RUN_NOWAIT);
}

/* Tasks go first, with their connections; then the engine, which delivers the ends of what they had; then the loop. */
static void close_server(struct serve *serve)
{
    serve->ending = true;
    refuse_waiting(serve);
    http_server_free(serve->http);
    serve_work_close(serve);
    serve_stop_batches(serve);
    serve_models_unload(serve);
    app_close(&serve->app);
    serve_end_batches(serve);
    uv_run(&serve->loop, UV_RUN_NOWAIT); /* what closes by itself does so */
    serve_log_close(serve);
    uv_walk(&serve->loop, close_handle, NULL);
    uv_run(&serve->loop, UV_RUN_DEFAULT);
    uv_loop_close(&serve->loop);
    serve_close_files(serve);
    if (serve->out.to != NULL)
        fclose(serve->out.to);
    if (serve->line.to != NULL)
        fclose(serve->line.to);
    free(serve->out.bytes);
    free(serve->line.bytes);
    keys_fini(&serve->keys);
    free(serve->template_text.bytes);
    serve_models_end(serve);
    serve_rows_fini(serve);
}

/* "https://a.example": a scheme and a host, as browsers write it; a slash or a path behind it matches nothing. */
static bool is_origin(const char *word, size_t n)
{
    const char *host = memmem(word, n, "://", 3);

    if (n == 4 && memcmp(word, "null", 4) == 0)
        return true;
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)word[i] <= ' ' || word[i] == 127)
            return false;
    return host != NULL && host > word && host + 3 < word + n &&
           memchr(host + 3, '/', n - (size_t)(host + 3 - word)) == NULL;
}

static bool check_cors(const char *list)
{
    while (list != NULL && *list != '\0') {
        size_t n = strcspn(list, ",");

        if (!(n == 1 && list[0] == '*') && !is_origin(list, n)) {
            app_error("--cors '%.*s': an origin is written as https://host, with a port where it has one", (int)n,
                      list);
            return false;
        }
        list += n + (list[n] == ',');
    }
    return true;
}

static bool check_options(const struct app_options *options)
{
    if (!check_cors(options->cors) || !serve_check_hosts(options->allow_host))
        return false;
    if ((options->tls_cert == NULL) != (options->tls_key == NULL)) {
        app_error("--tls-cert and --tls-key belong together");
        return false;
    }
    return true;
}

int app_serve(const struct app_options *options)
{
    struct serve *serve = NULL;
    int code = APP_FAILURE;
    char sentence[512];

    if (options->log_json)
        app_errors_as_objects();
    if (!check_options(options))
        return APP_USAGE;
    serve = calloc(1, sizeof *serve);
    if (serve == NULL || uv_loop_init(&serve->loop) != 0) {
        app_error("not enough memory");
        free(serve);
        return APP_FAILURE;
    }
    serve->options = options;
    serve->app.options = options;
    serve->anyone = (struct serve_key){.scopes = SCOPE_ALL, .refs = 1};
    if (serve_read_keys(serve, sentence))
        code = open_server(serve);
    else
        app_error("%s", sentence);
    if (code == APP_OK) {
        uv_run(&serve->loop, UV_RUN_DEFAULT);
        code = serve->code;
    }
    close_server(serve);
    free(serve);
    return code;
}
