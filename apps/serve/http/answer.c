/* See http.h: answers. All is written into the connection's `out`; its turn sends it. */
#include "inside.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MOST_FIELDS 32
#define TAKEN_BYTES 16384 /* less is copied behind the head, and leaves with it */

static const struct {
    int status;
    const char *phrase;
} phrases[] = {
    {100, "Continue"},
    {200, "OK"},
    {201, "Created"},
    {202, "Accepted"},
    {204, "No Content"},
    {301, "Moved Permanently"},
    {302, "Found"},
    {303, "See Other"},
    {304, "Not Modified"},
    {307, "Temporary Redirect"},
    {308, "Permanent Redirect"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {406, "Not Acceptable"},
    {408, "Request Timeout"},
    {409, "Conflict"},
    {410, "Gone"},
    {411, "Length Required"},
    {413, "Content Too Large"},
    {414, "URI Too Long"},
    {415, "Unsupported Media Type"},
    {417, "Expectation Failed"},
    {422, "Unprocessable Content"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {499, "Client Closed Request"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {502, "Bad Gateway"},
    {503, "Service Unavailable"},
    {504, "Gateway Timeout"},
    {505, "HTTP Version Not Supported"},
    {507, "Insufficient Storage"},
};

static const char *phrase_of(int status)
{
    for (size_t i = 0; i < sizeof phrases / sizeof phrases[0]; i++)
        if (phrases[i].status == status)
            return phrases[i].phrase;
    return "Status";
}

/* ---- Writing ---- */

static struct http_bytes *out_of(struct http_connection *connection)
{
    return http_bytes_count(&connection->taken) > 0 ? &connection->taken : &connection->out;
}

static void put(struct http_connection *connection, const char *bytes, size_t n)
{
    if (!connection->lost && !http_bytes_add(out_of(connection), bytes, n))
        connection->lost = true; /* an answer with a hole is none */
}

static void put_text(struct http_connection *connection, const char *text)
{
    put(connection, text, strlen(text));
}

__attribute__((format(printf, 2, 3))) static void put_line(struct http_connection *connection, const char *format, ...)
{
    char line[256];
    va_list arguments;
    int n;

    va_start(arguments, format);
    n = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    put(connection, line, n < (int)sizeof line ? (size_t)n : sizeof line - 1);
}

static const char *date_of(struct http_server *server)
{
    uint64_t second = uv_now(server->loop) / 1000 + 1;
    time_t now;
    struct tm parts;

    if (second != server->date_second) {
        server->date_second = second;
        now = time(NULL);
        strftime(server->date, sizeof server->date, "%a, %d %b %Y %H:%M:%S GMT", gmtime_r(&now, &parts));
    }
    return server->date;
}

static void put_status(struct http_connection *connection, int status, const char *type)
{
    put_line(connection, "HTTP/1.1 %d %s\r\nDate: %s\r\n", status, phrase_of(status), date_of(connection->server));
    if (type != NULL) {
        put_text(connection, "Content-Type: ");
        put_text(connection, type);
        put_text(connection, "\r\n");
    }
}

static bool has_body(int status)
{
    return status >= 200 && status != 204 && status != 304;
}

/* The head of an answer of which the length is known, or not. */
static void put_head(struct http_exchange *exchange, int status, const char *type, bool known, size_t n)
{
    struct http_connection *connection = exchange->connection;
    const struct http_request *request = &exchange->request;

    exchange->begun = true;
    exchange->status = status;
    exchange->silent = strcmp(request->method, "HEAD") == 0 || !has_body(status);
    exchange->chunked = !known && !request->one_zero && has_body(status);
    connection->keep = connection->keep && request->keep && request->place == HTTP_AT_END &&
                       !connection->server->draining && (known || exchange->chunked || !has_body(status));
    put_status(connection, status, type);
    if (known && has_body(status))
        put_line(connection, "Content-Length: %zu\r\n", n);
    else if (exchange->chunked)
        put_text(connection, "Transfer-Encoding: chunked\r\n");
    if (!connection->keep)
        put_text(connection, "Connection: close\r\n");
    else if (request->one_zero)
        put_text(connection, "Connection: keep-alive\r\n");
    if (exchange->n_fields > 0)
        put(connection, exchange->fields.at, http_bytes_count(&exchange->fields));
    put_text(connection, "\r\n");
}

/* ---- Ends of an exchange ---- */

static void free_exchange(struct http_exchange *exchange)
{
    http_request_fini(&exchange->request);
    http_bytes_fini(&exchange->fields);
    free(exchange);
}

/* A handler that has answered may still hold what it read of the request: that stays until the loop goes on. */
static void end_exchange(struct http_exchange *exchange)
{
    struct http_server *server = exchange->connection->server;

    exchange->over = true;
    http_bodies_forget(exchange);
    if (!exchange->announced) {
        free_exchange(exchange);
        return;
    }
    exchange->next_over = server->over;
    server->over = exchange;
    if (server->handlers.on_end != NULL)
        server->handlers.on_end(server->handlers.user, exchange);
    exchange->user = NULL; /* whoever asks for it now sees so in every build */
}

void http_answer_clean(struct http_server *server)
{
    while (server->over != NULL) {
        struct http_exchange *exchange = server->over;

        server->over = exchange->next_over;
        free_exchange(exchange);
    }
}

/* It was answered. */
static void finish(struct http_exchange *exchange)
{
    struct http_connection *connection = exchange->connection;

    connection->exchange = NULL;
    connection->slow = false;
    connection->state = connection->keep ? HTTP_IDLE : HTTP_ENDING;
    http_deadline_clear(&connection->reading);
    if (connection->keep)
        http_deadline_set(connection->server, &connection->reading, HTTP_FOR_REQUEST);
    end_exchange(exchange);
    http_connection_mark(connection);
}

void http_answer_gone(struct http_connection *connection)
{
    const struct http_handlers *handlers = &connection->server->handlers;
    struct http_exchange *exchange = connection->exchange;

    if (exchange == NULL)
        return;
    connection->exchange = NULL; /* a handler that ends the server finds it told */
    if (exchange->announced)
        handlers->on_gone(handlers->user, exchange);
    end_exchange(exchange);
}

/* As far as it was read; a longer one than `room` is of no use. */
static void copy_path(const struct http_exchange *exchange, char *path, size_t room)
{
    const struct http_request *request = &exchange->request;
    size_t n = 0;

    path[0] = '\0';
    if (request->target == NULL)
        return;
    while (request->path == NULL && n < request->target_bytes && request->target[n] != '?')
        n++;
    snprintf(path, room, "%.*s", request->path != NULL ? (int)room : (int)n,
             request->path != NULL ? request->path : request->target);
}

static void put_refusal(struct http_exchange *exchange, int status, const char *reason)
{
    struct http_connection *connection = exchange->connection;
    const struct http_handlers *handlers = &connection->server->handlers;
    const char *type = "text/plain; charset=utf-8", *body = reason;
    char line[256], path[64];
    size_t n = 0;

    exchange->status = status;
    exchange->silent = exchange->request.method != NULL && strcmp(exchange->request.method, "HEAD") == 0;
    copy_path(exchange, path, sizeof path);
    if (handlers->refusal != NULL) {
        body = handlers->refusal(handlers->user, exchange, path, status, reason, &type, &n);
    } else {
        snprintf(line, sizeof line, "%s\n", reason);
        body = line;
        n = strlen(line);
    }
    put_status(connection, status, type);
    put_line(connection, "Content-Length: %zu\r\nConnection: close\r\n", n);
    if (exchange->n_fields > 0)
        put(connection, exchange->fields.at, http_bytes_count(&exchange->fields));
    put_text(connection, "\r\n");
    if (exchange->silent)
        return;
    put(connection, body, n);
    exchange->sent = n;
}

void http_answer_refuse(struct http_connection *connection, int status, const char *reason)
{
    if (connection->exchange != NULL)
        put_refusal(connection->exchange, status, reason);
    else
        connection->lost = true; /* no memory for one */
    http_answer_gone(connection);
    if (connection->state == HTTP_CLOSED)
        return;
    http_deadline_clear(&connection->reading);
    connection->keep = false;
    connection->state = HTTP_ENDING;
    http_connection_mark(connection);
}

void http_answer_continue(struct http_connection *connection)
{
    put_text(connection, "HTTP/1.1 100 Continue\r\n\r\n");
    http_connection_mark(connection);
}

/* ---- For handlers ---- */

bool http_add_field(struct http_exchange *exchange, const char *name, const char *value)
{
    struct http_bytes *fields = &exchange->fields;
    size_t name_bytes = strlen(name), value_bytes = strlen(value);
    char *to;

    for (size_t i = 0; i < name_bytes; i++)
        if (!http_is_token((unsigned char)name[i]))
            return false;
    if (exchange->over || exchange->n_fields == MOST_FIELDS || name_bytes == 0)
        return false;
    to = http_bytes_reserve(fields, name_bytes + value_bytes + 4);
    if (to == NULL)
        return false;
    fields->end += name_bytes + value_bytes + 4;
    to = stpcpy(to, name);
    *to++ = ':';
    *to++ = ' ';
    for (size_t i = 0; i < value_bytes; i++)
        *to++ = (unsigned char)value[i] < ' ' || value[i] == 127 ? ' ' : value[i];
    memcpy(to, "\r\n", 2);
    exchange->n_fields++;
    return true;
}

void http_answer(struct http_exchange *exchange, int status, const char *type, const char *bytes, size_t n)
{
    if (exchange->over)
        return;
    put_head(exchange, status, type, true, n);
    if (!exchange->silent) {
        put(exchange->connection, bytes, n);
        exchange->sent = n;
    }
    finish(exchange);
}

void http_answer_take(struct http_exchange *exchange, int status, const char *type, char *bytes, size_t n)
{
    struct http_connection *connection = exchange->connection;
    bool takes = !exchange->over && n >= TAKEN_BYTES && http_bytes_count(&connection->taken) == 0;

    if (!takes) {
        http_answer(exchange, status, type, bytes, n);
        free(bytes);
        return;
    }
    put_head(exchange, status, type, true, n);
    if (!exchange->silent && !connection->lost) {
        connection->taken = (struct http_bytes){.at = bytes, .end = n, .room = n};
        exchange->sent = n;
    } else {
        free(bytes);
    }
    finish(exchange);
}

void http_stream_begin(struct http_exchange *exchange, int status, const char *type)
{
    struct http_connection *connection = exchange->connection;

    if (exchange->over)
        return;
    put_head(exchange, status, type, false, 0);
    connection->state = HTTP_ANSWERING; /* a body that has not come is not wanted */
    http_deadline_clear(&connection->reading);
    http_connection_mark(connection);
}

/* One chunk (RFC 9112, section 7.1): its size in hexadecimal digits, a line end, the bytes, a line end. */
static void put_chunk(struct http_connection *connection, const char *bytes, size_t n)
{
    struct http_bytes *to = out_of(connection);
    char size[2 * sizeof n + 2], *first = size + sizeof size - 2, *at = NULL;

    memcpy(first, "\r\n", 2);
    for (size_t rest = n; rest > 0; rest /= 16)
        *--first = "0123456789abcdef"[rest % 16];
    at = connection->lost ? NULL : http_bytes_reserve(to, sizeof size + n + 2);
    if (at == NULL) {
        connection->lost = true;
        return;
    }
    at = mempcpy(at, first, (size_t)(size + sizeof size - first));
    at = mempcpy(at, bytes, n);
    at = mempcpy(at, "\r\n", 2);
    to->end = (size_t)(at - to->at);
}

void http_stream_gather(struct http_exchange *exchange, bool gathers)
{
    exchange->gathers = gathers;
}

size_t http_stream_write(struct http_exchange *exchange, const char *bytes, size_t n)
{
    struct http_connection *connection = exchange->connection;
    size_t limit = connection->server->limits.waiting_bytes;

    if (exchange->over)
        return 0;
    if (http_output_waits(connection) > limit)
        http_output_send(connection);
    if (http_output_waits(connection) / 4 >= limit)
        connection->lost = connection->reset = true; /* one who never stops: the turn cuts the answer off */
    if (n == 0 || exchange->silent || connection->lost)
        return http_output_waits(connection);
    exchange->sent += n;
    if (exchange->chunked)
        put_chunk(connection, bytes, n);
    else
        put(connection, bytes, n);
    if (!exchange->gathers || connection->gathering.next == NULL)
        http_connection_mark(connection);
    return http_output_waits(connection);
}

void http_stream_end(struct http_exchange *exchange)
{
    if (exchange->over)
        return;
    if (exchange->chunked && !exchange->silent)
        put_text(exchange->connection, "0\r\n\r\n");
    finish(exchange);
}
