/* A text server on the host's own libuv loop: each line that a client sends is a prompt, each answer is
 * streamed back as one line.
 *
 *     uv_server MODEL [--port N] [--max-tokens N] [--write-limit BYTES] [--send-buffer BYTES] [--watch MS]
 *
 * Port 0, the default, lets the system choose; "listening on PORT" is printed once the model is loaded.
 * --watch keeps a timer of so many milliseconds ticking on the same loop and says at the end, on stderr,
 * how late it ever was and how long the busiest turn of the loop took.
 * In an answer a newline is written \n and a backslash \\; \! begins an error, up to the line's end.
 *
 * One thread: the loop's. The engine computes on its own threads and hands over events when the loop
 * turns.
 *
 *   line ──▶ runnel_generate ──▶ on_event ──▶ uv_write ──▶ client
 *                   ▲                │ queue above the limit: runnel_stream_pause
 *                   └── next line    ▼
 *                                on_written: queue drained: runnel_stream_resume
 *                                            the client has gone: runnel_stream_cancel
 *
 * A client lives until its socket is closed and its stream has had its terminal event. SIGINT and SIGTERM
 * close the listener and every client; the loop then runs dry, main cleans up and says what was done. */
#include <runnel.h>
#include <runnel_uv.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

enum { LINE_BYTES = 1 << 16, BACKLOG = 128, COALESCE_BYTES = 4096 }; /* of text that a paused stream joins */

struct client {
    uv_tcp_t tcp;
    uv_shutdown_t shutdown;
    struct server *server;
    struct client *next, **link; /* the server's list */
    runnel_stream stream;        /* id 0: none is running */
    bool reading, paused, eof, leaving, closed;
    size_t n_input;
    char input[LINE_BYTES]; /* lines not yet answered */
};

/* How the loop fares: a timer, and the time of each turn less what the loop slept in it. */
struct watch {
    uv_timer_t timer;
    uv_prepare_t turn;
    uint64_t every_ms, ticks, last_ns, latest_ns, turn_ns, idle_ns, busiest_ns;
};

struct server {
    uv_loop_t *loop;
    struct watch watch;
    runnel_engine *engine;
    runnel_model *model;
    uv_tcp_t listener;
    uv_signal_t interrupt, terminate;
    struct client *clients;
    bool leaving, failed;
    int port, send_buffer;
    int64_t max_tokens;
    size_t write_limit;
    unsigned long answers, cancelled, pauses;
};

struct packet {
    uv_write_t request;
    char bytes[];
};

static void answer_lines(struct client *client);

/* ---- A client's life --------------------------------------------------------------------- */

static void free_if_over(struct client *client)
{
    if (client->closed && client->stream.id == 0)
        free(client);
}

static void on_client_closed(uv_handle_t *handle)
{
    struct client *client = handle->data;

    client->closed = true;
    free_if_over(client);
}

/* Cancels what is running for it. Its terminal event comes later, maybe after the socket is closed. */
static void drop(struct client *client)
{
    if (client->leaving)
        return;
    client->leaving = true;
    *client->link = client->next;
    if (client->next != NULL)
        client->next->link = client->link;
    if (client->stream.id != 0)
        runnel_stream_cancel(client->server->engine, client->stream);
    uv_close((uv_handle_t *)&client->tcp, on_client_closed);
}

static void on_shutdown(uv_shutdown_t *request, int status)
{
    (void)status;
    drop(request->data);
}

static size_t queued(struct client *client)
{
    return uv_stream_get_write_queue_size((uv_stream_t *)&client->tcp);
}

/* ---- Writing ----------------------------------------------------------------------------- */

static void on_written(uv_write_t *request, int status)
{
    struct client *client = request->handle->data;

    free(request->data);
    if (status < 0)
        drop(client);
    if (client->leaving || queued(client) > client->server->write_limit / 2)
        return;
    if (client->paused)
        runnel_stream_resume(client->server->engine, client->stream);
    client->paused = false;
    answer_lines(client);
}

/* Room for n bytes whose write is then begun by post; NULL: the client was dropped. */
static struct packet *packet_new(struct client *client, size_t n)
{
    struct packet *packet = client->leaving ? NULL : malloc(sizeof *packet + n);

    if (packet == NULL)
        drop(client);
    else
        packet->request.data = packet;
    return packet;
}

static void post(struct client *client, struct packet *packet, size_t n)
{
    uv_buf_t buffer = uv_buf_init(packet->bytes, (unsigned)n);

    if (uv_write(&packet->request, (uv_stream_t *)&client->tcp, &buffer, 1, on_written) == 0)
        return;
    free(packet);
    drop(client);
}

static void write_text(struct client *client, const char *text, size_t n)
{
    struct packet *packet = n > 0 ? packet_new(client, 2 * n) : NULL;
    size_t out = 0;

    if (packet == NULL)
        return;
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '\n' || text[i] == '\\')
            packet->bytes[out++] = '\\';
        packet->bytes[out++] = text[i] == '\n' ? 'n' : text[i];
    }
    post(client, packet, out);
}

static void write_plain(struct client *client, const char *text)
{
    size_t n = strlen(text);
    struct packet *packet = packet_new(client, n);

    if (packet == NULL)
        return;
    memcpy(packet->bytes, text, n);
    post(client, packet, n);
}

static void write_error(struct client *client, const char *error)
{
    write_plain(client, "\\!");
    write_text(client, error, strlen(error));
}

/* ---- Answers ----------------------------------------------------------------------------- */

static void on_token(struct client *client, const runnel_event *event)
{
    write_text(client, event->text, event->text_bytes);
    if (client->leaving || client->paused || queued(client) <= client->server->write_limit)
        return;
    client->paused = true;
    client->server->pauses++;
    runnel_stream_pause(client->server->engine, client->stream);
}

static void on_event(void *user, const runnel_event *event)
{
    struct client *client = user;

    if (event->type == RUNNEL_EVENT_TOKEN)
        on_token(client, event);
    if (event->type < RUNNEL_EVENT_DONE)
        return;
    client->stream.id = 0;
    client->paused = false;
    client->server->answers += event->type == RUNNEL_EVENT_DONE;
    client->server->cancelled += event->type == RUNNEL_EVENT_CANCELLED;
    if (client->leaving) {
        free_if_over(client);
        return;
    }
    if (event->type == RUNNEL_EVENT_FAILED)
        write_error(client, event->error);
    write_plain(client, "\n");
    answer_lines(client);
}

/* A request that is refused is answered by an error line. */
static void ask(struct client *client, const char *prompt, size_t n)
{
    struct server *server = client->server;
    runnel_request request;
    runnel_error error = {0};

    runnel_request_default(&request);
    request.prompt = prompt;
    request.prompt_bytes = n;
    request.max_tokens = server->max_tokens;
    request.coalesce_bytes = COALESCE_BYTES;
    request.on_event = on_event;
    request.user = client;
    if (runnel_generate(server->model, &request, &client->stream, &error) == RUNNEL_OK)
        return;
    client->stream.id = 0;
    write_error(client, error.message);
    write_plain(client, "\n");
}

static void on_alloc(uv_handle_t *handle, size_t wanted, uv_buf_t *buffer)
{
    struct client *client = handle->data;

    (void)wanted;
    *buffer = uv_buf_init(client->input + client->n_input, (unsigned)(LINE_BYTES - client->n_input));
}

/* End of input is no disconnection: a client may have closed only its sending side. One that has really
 * gone shows when something is written to it. */
static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buffer)
{
    struct client *client = stream->data;

    (void)buffer;
    if (n > 0) {
        client->n_input += (size_t)n;
    } else if (n == UV_EOF) {
        client->eof = true;
        client->reading = false;
        uv_read_stop(stream);
    } else if (n < 0) {
        drop(client);
        return;
    }
    answer_lines(client);
}

/* Takes the next line out of the input; at its end the rest counts as a line. False: there is none. */
static bool ask_next(struct client *client)
{
    char *end = memchr(client->input, '\n', client->n_input);
    size_t n = end != NULL ? (size_t)(end - client->input) : client->n_input;
    size_t taken = end != NULL ? n + 1 : n;

    if (end == NULL && (!client->eof || n == 0))
        return false;
    if (n > 0 && client->input[n - 1] == '\r')
        n--;
    ask(client, client->input, n);
    client->n_input -= taken;
    memmove(client->input, client->input + taken, client->n_input);
    return true;
}

static bool is_busy(struct client *client)
{
    return client->stream.id != 0 || queued(client) > client->server->write_limit;
}

/* Reads exactly while there is room for more. */
static void read_or_not(struct client *client)
{
    uv_stream_t *stream = (uv_stream_t *)&client->tcp;
    bool wanted = !client->eof && client->n_input < LINE_BYTES;

    if (wanted == client->reading)
        return;
    client->reading = wanted;
    if (!wanted)
        uv_read_stop(stream);
    else if (uv_read_start(stream, on_alloc, on_read) != 0)
        drop(client);
}

/* Goes on until a stream runs, the client reads too slowly or the input is used up. */
static void answer_lines(struct client *client)
{
    while (!client->leaving && !is_busy(client) && ask_next(client))
        continue;
    if (client->leaving || client->shutdown.data != NULL)
        return;
    if (is_busy(client)) {
        read_or_not(client);
    } else if (client->eof) {
        client->shutdown.data = client;
        if (uv_shutdown(&client->shutdown, (uv_stream_t *)&client->tcp, on_shutdown) != 0)
            drop(client);
    } else if (client->n_input == LINE_BYTES) {
        drop(client); /* a line longer than we take */
    } else {
        read_or_not(client);
    }
}

/* ---- The server -------------------------------------------------------------------------- */

static void on_connection(uv_stream_t *listener, int status)
{
    struct server *server = listener->data;
    struct client *client = status < 0 ? NULL : malloc(sizeof *client);

    if (client == NULL)
        return;
    memset(client, 0, offsetof(struct client, input));
    if (uv_tcp_init(server->loop, &client->tcp) != 0) {
        free(client);
        return;
    }
    client->tcp.data = client;
    client->server = server;
    client->next = server->clients;
    client->link = &server->clients;
    if (client->next != NULL)
        client->next->link = &client->next;
    server->clients = client;
    if (uv_accept(listener, (uv_stream_t *)&client->tcp) != 0) {
        drop(client);
        return;
    }
    if (server->send_buffer > 0)
        uv_send_buffer_size((uv_handle_t *)&client->tcp, &server->send_buffer);
    read_or_not(client);
}

static void on_tick(uv_timer_t *timer)
{
    struct watch *watch = timer->data;
    uint64_t now = uv_hrtime(), due = watch->last_ns + watch->every_ms * 1000000;

    if (watch->ticks++ > 0 && now > due && now - due > watch->latest_ns)
        watch->latest_ns = now - due;
    watch->last_ns = now;
}

static void on_turn(uv_prepare_t *prepare)
{
    struct watch *watch = prepare->data;
    uint64_t now = uv_hrtime(), idle = uv_metrics_idle_time(prepare->loop);
    uint64_t busy = watch->turn_ns > 0 ? now - watch->turn_ns - (idle - watch->idle_ns) : 0;

    watch->busiest_ns = busy > watch->busiest_ns ? busy : watch->busiest_ns;
    watch->turn_ns = now;
    watch->idle_ns = idle;
}

static void start_watch(struct server *server)
{
    struct watch *watch = &server->watch;

    uv_timer_init(server->loop, &watch->timer);
    uv_prepare_init(server->loop, &watch->turn);
    watch->timer.data = watch->turn.data = watch;
    if (watch->every_ms == 0)
        return;
    uv_timer_start(&watch->timer, on_tick, watch->every_ms, watch->every_ms);
    uv_prepare_start(&watch->turn, on_turn);
}

static void stop_watch(struct watch *watch)
{
    if (watch->every_ms > 0)
        fprintf(stderr, "timer: %llu ticks, latest by %.2f ms; busiest turn of the loop %.2f ms\n",
                (unsigned long long)watch->ticks, (double)watch->latest_ns / 1e6, (double)watch->busiest_ns / 1e6);
    uv_close((uv_handle_t *)&watch->timer, NULL);
    uv_close((uv_handle_t *)&watch->turn, NULL);
}

static void leave(struct server *server)
{
    if (server->leaving)
        return;
    server->leaving = true;
    while (server->clients != NULL)
        drop(server->clients);
    uv_close((uv_handle_t *)&server->listener, NULL);
    uv_close((uv_handle_t *)&server->interrupt, NULL);
    uv_close((uv_handle_t *)&server->terminate, NULL);
    stop_watch(&server->watch);
    if (server->model != NULL)
        runnel_model_cancel_load(server->model);
}

static void fail(struct server *server, const char *why)
{
    fprintf(stderr, "uv_server: %s\n", why);
    server->failed = true;
    leave(server);
}

static void on_signal(uv_signal_t *handle, int number)
{
    (void)number;
    leave(handle->data);
}

static void start_listening(struct server *server)
{
    struct sockaddr_in address;
    int bytes = sizeof address;
    int status = uv_ip4_addr("127.0.0.1", server->port, &address);

    if (status == 0)
        status = uv_tcp_bind(&server->listener, (const struct sockaddr *)&address, 0);
    if (status == 0)
        status = uv_listen((uv_stream_t *)&server->listener, BACKLOG, on_connection);
    if (status == 0)
        status = uv_tcp_getsockname(&server->listener, (struct sockaddr *)&address, &bytes);
    if (status != 0) {
        fail(server, uv_strerror(status));
        return;
    }
    printf("listening on %d\n", ntohs(address.sin_port));
    fflush(stdout);
}

static void on_load(void *user, const runnel_load_event *event)
{
    struct server *server = user;

    if (event->state == RUNNEL_LOAD_FAILED)
        fail(server, event->error->message);
    else if (event->state == RUNNEL_LOAD_READY && !server->leaving)
        start_listening(server);
}

/* The handles and the load; whatever fails ends in leave. */
static void start(struct server *server, const char *path)
{
    runnel_model_options options;
    runnel_error error = {0};

    uv_tcp_init(server->loop, &server->listener);
    uv_signal_init(server->loop, &server->interrupt);
    uv_signal_init(server->loop, &server->terminate);
    start_watch(server);
    server->listener.data = server->interrupt.data = server->terminate.data = server;
    uv_signal_start(&server->interrupt, on_signal, SIGINT);
    uv_signal_start(&server->terminate, on_signal, SIGTERM);
    runnel_model_options_default(&options);
    options.on_load = on_load;
    options.load_user = server;
    if (runnel_uv_attach(server->engine, server->loop) != RUNNEL_OK)
        fail(server, "the engine could not be attached to the loop");
    else if (runnel_model_load(server->engine, path, &options, &server->model, &error) != RUNNEL_OK)
        fail(server, error.message);
}

static bool read_options(struct server *server, int argc, char **argv)
{
    char *end = NULL;

    for (int i = 2; i < argc; i += 2) {
        long value = i + 1 < argc ? strtol(argv[i + 1], &end, 10) : -1;

        if (value < 0 || end == argv[i + 1] || *end != '\0')
            return false;
        if (strcmp(argv[i], "--port") == 0 && value < 65536)
            server->port = (int)value;
        else if (strcmp(argv[i], "--max-tokens") == 0)
            server->max_tokens = value;
        else if (strcmp(argv[i], "--write-limit") == 0)
            server->write_limit = (size_t)value;
        else if (strcmp(argv[i], "--send-buffer") == 0 && value <= 1 << 30)
            server->send_buffer = (int)value;
        else if (strcmp(argv[i], "--watch") == 0 && value > 0)
            server->watch.every_ms = (uint64_t)value;
        else
            return false;
    }
    return argc > 1;
}

int main(int argc, char **argv)
{
    static struct server server = {.max_tokens = 100, .write_limit = 1 << 16};
    static uv_loop_t loop; /* the host's own */
    runnel_error error = {0};

    if (!read_options(&server, argc, argv)) {
        fprintf(stderr,
                "usage: uv_server MODEL [--port N] [--max-tokens N] [--write-limit BYTES] [--send-buffer BYTES] "
                "[--watch MS]\n");
        return 2;
    }
    if (uv_loop_init(&loop) != 0 || runnel_engine_new(NULL, &server.engine, &error) != RUNNEL_OK) {
        fprintf(stderr, "uv_server: %s\n", error.message);
        return 1;
    }
    signal(SIGPIPE, SIG_IGN);                       /* a write to a client that has gone is an error, not the end */
    uv_loop_configure(&loop, UV_METRICS_IDLE_TIME); /* for --watch */
    server.loop = &loop;
    start(&server, argv[1]);
    uv_run(&loop, UV_RUN_DEFAULT);
    runnel_model_free(server.model);
    runnel_uv_detach(server.engine);
    uv_run(&loop, UV_RUN_DEFAULT); /* closes the engine's handle */
    runnel_engine_free(server.engine);
    if (!server.failed)
        fprintf(stderr, "uv_server: %lu answers, %lu cancelled, %lu pauses\n", server.answers, server.cancelled,
                server.pauses);
    if (uv_loop_close(&loop) != 0)
        return 1;
    return server.failed ? 1 : 0;
}
