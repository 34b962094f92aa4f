/* Clients of a server: see serve.c.
 *
 * Each has a connection of its own that stays open from answer to answer. An answer is read as it comes, without being
 * copied: lines "data: {...}" of a chunked body. Sizes of chunks stand on lines of their own, which begin otherwise and
 * are skipped, as long as the server ends each chunk behind a whole event; all that are known do. */
#define _GNU_SOURCE /* asprintf */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve_load.h"

enum { LINE_BYTES = 1 << 16, REFUSED_MS = 50 };

struct client {
    uv_tcp_t tcp;
    uv_connect_t connect;
    uv_write_t write;
    uv_timer_t wait;
    struct load *load;
    char *request;
    uint32_t left; /* requests that are not answered */
    bool reads, asks;
    double asked_ms, last_ms;
    uint64_t tokens, text_hash;
    bool first, status_seen;
    char *text; /* so far, as it stands in the JSON; kept until there is a whole one */
    size_t n_text;
    size_t n_bytes, n_line; /* of the answer so far; of the line */
    char line[LINE_BYTES];
};

static uint64_t n_asked;

static void client_open(struct client *client, uv_connect_cb on_open);
static void on_connected(uv_connect_t *connect, int status);

static void fail(struct client *client, const char *why)
{
    if (client->load->failed++ < 8)
        fprintf(stderr, "bench_serve: %s\n", why);
}

static void on_closed(uv_handle_t *handle)
{
    struct client *client = handle->data;

    free(client->request);
    free(client->text);
    free(client);
}

/* The last client that reads ends the load: the others' connections close with it. */
static void close_one(uv_handle_t *handle, void *unused)
{
    (void)unused;
    if (!uv_is_closing(handle))
        uv_close(handle, handle->type == UV_TCP ? on_closed : NULL);
}

static void client_over(struct client *client)
{
    struct load *load = client->load;

    close_one((uv_handle_t *)&client->tcp, NULL);
    if (!client->reads || --load->n_live > 0)
        return;
    load->ended_ms = load_now_ms();
    load->cpu_s += load_cpu_s(load->pid);
    load->loop_s += load_loop_s(load->pid);
    uv_walk(&load->loop, close_one, NULL);
}

/* ---- Asking ---- */

static void on_written(uv_write_t *write, int status)
{
    (void)write, (void)status; /* a connection that broke is seen by its reader */
}

static void ask(struct client *client)
{
    struct load *load = client->load;
    char *prompt = load_prompt(load, n_asked++), *body;
    uv_buf_t buffer;
    int n;

    if (asprintf(&body,
                 "{\"prompt\": \"%s\", \"max_tokens\": %u, \"stream\": true, \"ignore_eos\": true, \"temperature\": 0, "
                 "\"stream_options\": {\"include_usage\": true}}",
                 prompt, load->max_tokens) < 0)
        load_die("memory", "there is not enough");
    free(client->request);
    n = asprintf(&client->request,
                 "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
                 load->path, load->host, strlen(body), body);
    free(prompt);
    free(body);
    if (n < 0)
        load_die("memory", "there is not enough");
    client->asked_ms = client->last_ms = load_now_ms();
    client->first = true;
    client->status_seen = false;
    client->n_bytes = client->n_text = 0;
    client->tokens = 0;
    client->text_hash = TEXT_HASH_BEGIN;
    buffer = uv_buf_init(client->request, (unsigned)n);
    if (uv_write(&client->write, (uv_stream_t *)&client->tcp, &buffer, 1, on_written) != 0)
        fail(client, "a request could not be written");
}

/* ---- Asking again, over a new connection ---- */

static void on_left(uv_handle_t *handle)
{
    n_asked--;
    client_open(handle->data, on_connected);
}

static void on_waited(uv_handle_t *handle)
{
    struct client *client = handle->data;

    client->n_line = 0;
    client_open(client, on_connected);
}

static void on_time(uv_timer_t *timer)
{
    uv_close((uv_handle_t *)timer, on_waited);
}

/* The server is full. */
static void on_refused(uv_handle_t *handle)
{
    struct client *client = handle->data;

    uv_timer_init(&client->load->loop, &client->wait);
    client->wait.data = client;
    uv_timer_start(&client->wait, on_time, REFUSED_MS, 0);
}

/* ---- Reading ---- */

static void answered(struct client *client)
{
    if (client->tokens == 0)
        fail(client, "an answer without its usage");
    if (client->load->text == NULL) {
        client->load->text = client->text;
        client->text = NULL;
    }
    load_answered(client->load, client->tokens, client->text_hash, client->asked_ms);
    if (--client->left == 0)
        client_over(client);
    else
        ask(client);
}

static void keep_text(struct client *client, const char *text, size_t n)
{
    if (!client->load->same || client->load->text != NULL)
        return;
    client->text = load_need(realloc(client->text, client->n_text + n + 1));
    memcpy(client->text + client->n_text, text, n);
    client->n_text += n;
    client->text[client->n_text] = '\0';
}

static void take_text(struct client *client, const char *text)
{
    const char *end = text;
    double now = load_now_ms();

    while (*end != '\0' && *end != '"')
        end += *end == '\\' && end[1] != '\0' ? 2 : 1;
    if (end == text)
        return;
    client->text_hash = load_hash(client->text_hash, text, (size_t)(end - text));
    client->load->events++;
    keep_text(client, text, (size_t)(end - text));
    if (client->first)
        sample_add(&client->load->first, now - client->asked_ms);
    else
        sample_add(&client->load->gaps, now - client->last_ms);
    client->first = false;
    client->last_ms = now;
}

static void take_status(struct client *client, const char *line)
{
    client->status_seen = strncmp(line, "HTTP/1.1 ", 9) == 0;
    if (!client->status_seen || strncmp(line + 9, "200", 3) == 0)
        return;
    if (strncmp(line + 9, "503", 3) != 0 && strncmp(line + 9, "429", 3) != 0) {
        fail(client, line);
        client_over(client);
        return;
    }
    client->load->refused++;
    n_asked--;
    uv_close((uv_handle_t *)&client->tcp, on_refused);
}

/* A line of an answer, NUL-terminated. */
static void take_line(struct client *client, const char *line)
{
    const char *found;

    if (!client->status_seen) {
        take_status(client, line);
        return;
    }
    if (strncmp(line, "data: ", 6) != 0)
        return;
    if ((found = strstr(line, "\"completion_tokens\":")) != NULL)
        client->tokens = strtoul(found + 20, NULL, 10);
    if ((found = strstr(line, "\"text\":")) != NULL) {
        found += 7 + (found[7] == ' ');
        if (*found == '"')
            take_text(client, found + 1);
    } else if (strstr(line, "\"error\"") != NULL) {
        fail(client, line);
    }
    if (strcmp(line, "data: [DONE]") == 0)
        answered(client);
}

static void take_bytes(struct client *client, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n && !uv_is_closing((uv_handle_t *)&client->tcp); i++) {
        if (bytes[i] != '\n') {
            if (client->n_line < LINE_BYTES - 1 && bytes[i] != '\r')
                client->line[client->n_line++] = bytes[i];
            continue;
        }
        client->line[client->n_line] = '\0';
        client->n_line = 0;
        take_line(client, client->line);
    }
}

static void give_room(uv_handle_t *handle, size_t wanted, uv_buf_t *buffer)
{
    static char room[1 << 16];

    (void)handle, (void)wanted;
    *buffer = uv_buf_init(room, sizeof room);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buffer)
{
    struct client *client = stream->data;

    if (n >= 0) {
        client->n_bytes += (size_t)n;
        take_bytes(client, buffer->base, (size_t)n);
    } else if (client->n_bytes == 0 && client->left < client->load->requests) {
        uv_close((uv_handle_t *)stream, on_left); /* servers may end a connection between two answers */
    } else {
        fail(client, "the server closed a connection");
        client_over(client);
    }
}

/* ---- Opening ---- */

static void on_connected(uv_connect_t *connect, int status)
{
    struct client *client = connect->handle->data;

    if (status == UV_ECANCELED)
        return;
    if (status < 0) {
        fail(client, uv_strerror(status));
        client_over(client);
        return;
    }
    uv_tcp_nodelay(&client->tcp, 1);
    if (client->asks)
        ask(client);
    if (client->reads)
        uv_read_start((uv_stream_t *)&client->tcp, give_room, on_read);
}

static void client_open(struct client *client, uv_connect_cb on_open)
{
    struct load *load = client->load;
    struct sockaddr_in address;

    if (uv_ip4_addr(load->host, load->port, &address) != 0)
        load_die(load->host, "is no address");
    uv_tcp_init(&load->loop, &client->tcp);
    client->tcp.data = client;
    if (uv_tcp_connect(&client->connect, &client->tcp, (const struct sockaddr *)&address, on_open) != 0)
        load_die(load->host, "no connection");
}

static struct client *client_new(struct load *load, bool asks, bool reads, uv_connect_cb on_open)
{
    struct client *client = load_need(calloc(1, sizeof *client));

    client->load = load;
    client->left = load->requests;
    client->asks = asks;
    client->reads = reads;
    client_open(client, on_open);
    return client;
}

/* ---- Probes: each over a connection of its own ---- */

static struct {
    uv_timer_t timer;
    bool waits;
    double asked_ms;
} probe;

static void on_probe_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buffer)
{
    struct client *client = stream->data;

    (void)buffer;
    if (n > 0)
        sample_add(&client->load->probes, load_now_ms() - probe.asked_ms);
    else
        fail(client, "no answer of /health");
    probe.waits = false;
    close_one((uv_handle_t *)stream, NULL);
}

static void on_probe_connected(uv_connect_t *connect, int status)
{
    static char request[] = "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    struct client *client = connect->handle->data;
    uv_buf_t buffer = uv_buf_init(request, sizeof request - 1);

    if (status == UV_ECANCELED)
        return;
    if (status < 0 || uv_try_write((uv_stream_t *)&client->tcp, &buffer, 1) != sizeof request - 1)
        fail(client, "/health could not be asked");
    uv_read_start((uv_stream_t *)&client->tcp, give_room, on_probe_read);
}

/* Counted from here: a server that is slow to take connections is slow. */
static void on_probe(uv_timer_t *timer)
{
    struct load *load = timer->data;

    if (probe.waits)
        return;
    probe.waits = true;
    probe.asked_ms = load_now_ms();
    client_new(load, false, false, on_probe_connected);
}

void load_run_clients(struct load *load)
{
    for (uint32_t i = 0; i < load->idle; i++)
        client_new(load, false, false, on_connected);
    for (uint32_t i = 0; i < load->never_read; i++)
        client_new(load, true, false, on_connected);
    for (uint32_t i = 0; i < load->clients; i++)
        client_new(load, true, true, on_connected);
    if (load->probe_ms > 0) {
        uv_timer_init(&load->loop, &probe.timer);
        probe.timer.data = load;
        uv_timer_start(&probe.timer, on_probe, 0, load->probe_ms);
    }
    load->began_ms = load_now_ms();
    load->cpu_s = -load_cpu_s(load->pid);
    load->loop_s = -load_loop_s(load->pid);
    uv_run(&load->loop, UV_RUN_DEFAULT);
}
