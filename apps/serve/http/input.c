/* See inside.h: from bytes to requests. */
#include "inside.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>

#define TURN_REQUESTS 64     /* of one connection in one turn; the others wait for theirs */
#define PIPELINE_BYTES 65536 /* of answers that wait: with more, the next request is not begun */

/* ---- Requests ---- */

static bool begin(struct http_connection *connection)
{
    connection->exchange = http_exchange_new(connection);
    if (connection->exchange == NULL) {
        connection->lost = true;
        return false;
    }
    connection->state = HTTP_READING_HEAD;
    http_deadline_set(connection->server, &connection->reading, HTTP_FOR_HEAD);
    return true;
}

static void take_whole(struct http_connection *connection)
{
    const struct http_handlers *handlers = &connection->server->handlers;

    connection->state = HTTP_ANSWERING;
    http_deadline_clear(&connection->reading);
    handlers->on_request(handlers->user, connection->exchange);
}

/* more: bytes of the body are there already. */
static void take_head(struct http_connection *connection, bool more)
{
    struct http_server *server = connection->server;
    const struct http_handlers *handlers = &server->handlers;
    struct http_exchange *exchange = connection->exchange;
    bool whole = exchange->request.place == HTTP_AT_END;

    exchange->announced = true;
    server->stats.requests++;
    connection->state = HTTP_READING_BODY;
    connection->body_since = uv_now(server->loop);
    http_deadline_set(server, &connection->reading, HTTP_FOR_BODY);
    if (handlers->on_head != NULL)
        handlers->on_head(handlers->user, exchange);
    if (connection->state != HTTP_READING_BODY)
        return;
    if (whole)
        take_whole(connection);
    else if (exchange->request.expects && !more)
        http_answer_continue(connection);
}

/* Some of the body has come. A byte a millisecond is asked for, behind the time that none at all may come. */
static void take_some(struct http_connection *connection)
{
    struct http_server *server = connection->server;
    uint64_t least = connection->body_since + server->limits.body_ms + connection->exchange->request.body_bytes;

    if (connection->state != HTTP_READING_BODY || !http_bodies_fit(connection))
        return;
    if (uv_now(server->loop) > least)
        http_answer_refuse(connection, 408, "the body comes too slowly");
    else
        http_deadline_set(server, &connection->reading, HTTP_FOR_BODY);
}

static bool reads(const struct http_connection *connection)
{
    if (connection->lost || connection->state >= HTTP_ANSWERING)
        return false;
    return connection->state != HTTP_IDLE || (connection->keep && http_output_waits(connection) < PIPELINE_BYTES);
}

/* How many of the bytes were taken. */
static size_t read_requests(struct http_connection *connection, const char *bytes, size_t n)
{
    size_t at = 0;

    for (unsigned requests = 0; at < n && requests < TURN_REQUESTS && reads(connection);) {
        enum http_step step;
        size_t used;

        if (connection->exchange == NULL && !begin(connection))
            break;
        step = http_request_feed(&connection->exchange->request, bytes + at, n - at, &used);
        at += used;
        requests += step != HTTP_STEP_MORE;
        if (step == HTTP_STEP_REFUSED)
            http_answer_refuse(connection, connection->exchange->request.status, connection->exchange->request.reason);
        else if (step == HTTP_STEP_HEAD)
            take_head(connection, at < n);
        else if (step == HTTP_STEP_MORE)
            take_some(connection);
        else if (http_bodies_fit(connection))
            take_whole(connection);
    }
    return at;
}

/* ---- Bytes ---- */

static bool throws_away(const struct http_connection *connection)
{
    return connection->state >= HTTP_ENDING || connection->lost ||
           (connection->state == HTTP_IDLE && !connection->keep);
}

static void take_bytes(struct http_connection *connection, const char *bytes, size_t n)
{
    size_t used = http_bytes_count(&connection->ahead) > 0 ? 0 : read_requests(connection, bytes, n);

    if (used < n && !throws_away(connection) && !http_bytes_add(&connection->ahead, bytes + used, n - used))
        connection->lost = true;
}

void http_input_ahead(struct http_connection *connection)
{
    size_t n = http_bytes_count(&connection->ahead);

    if (throws_away(connection))
        http_bytes_fini(&connection->ahead);
    else if (n > 0) {
        struct http_bytes ahead = connection->ahead; /* a handler may close the connection, with its buffers */
        size_t used;

        connection->ahead = (struct http_bytes){0};
        used = read_requests(connection, ahead.at + ahead.begin, n);
        if (throws_away(connection)) {
            http_bytes_fini(&ahead);
            return;
        }
        connection->ahead = ahead;
        http_bytes_take(&connection->ahead, used);
        if (used > 0)
            http_connection_mark(connection); /* perhaps more can be done */
    }
    if (connection->half && http_bytes_count(&connection->ahead) == 0 && !throws_away(connection) &&
        connection->state != HTTP_IDLE && !(connection->state == HTTP_ANSWERING && connection->asked))
        http_input_end(connection);
}

/* What TLS has opened. */
static void receive_opened(struct http_connection *connection, const char *bytes, size_t n)
{
    struct http_server *server = connection->server;
    bool ready = http_tls_ready(connection->tls);
    long opened = 1;

    if (!http_tls_put(connection->tls, bytes, n)) {
        connection->lost = true;
        return;
    }
    while (opened > 0 && connection->state != HTTP_CLOSED) {
        opened = http_tls_open(connection->tls, server->opened, sizeof server->opened);
        if (opened > 0)
            take_bytes(connection, server->opened, (size_t)opened);
    }
    if (connection->state == HTTP_CLOSED)
        return;
    if (!ready && connection->state == HTTP_IDLE && http_tls_ready(connection->tls))
        http_deadline_set(server, &connection->reading, HTTP_FOR_REQUEST); /* until then it had the time of a head */
    if (opened == 0)
        return;
    http_output_send(connection); /* an alert, perhaps */
    if (opened == -2)
        http_input_end(connection);
    else
        connection->lost = true;
}

/* Many clients read no answer before they have sent all: who goes on sending has as long for it as a body may stop. */
static void linger_on(struct http_connection *connection)
{
    struct http_server *server = connection->server;

    if (!server->draining && uv_now(server->loop) < connection->body_since + server->limits.body_ms)
        http_deadline_set(server, &connection->reading, HTTP_FOR_PEER);
}

void http_input_receive(struct http_connection *connection)
{
    struct http_server *server = connection->server;
    ssize_t n = recv(connection->fd, server->buffer, sizeof server->buffer, 0);

    if (n < 0) {
        connection->lost = errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR;
    } else if (n == 0) {
        connection->lost = connection->lost || connection->tls != NULL; /* cut off: TLS has an end of its own */
        http_input_end(connection);
    } else {
        server->stats.bytes_in += (uint64_t)n;
        if (connection->state == HTTP_LINGERING)
            linger_on(connection);
        else if (connection->tls != NULL)
            receive_opened(connection, server->buffer, (size_t)n);
        else
            take_bytes(connection, server->buffer, (size_t)n);
    }
}

/* ---- The end of what the peer sends ---- */

/* A peer that closed its socket and one that shut only its writing side look alike on TCP. The first answers the next
 * byte by a reset; so one that waits for an answer is sent "100 Continue", which means nothing to those that have sent
 * all (RFC 9110, section 15.2). Those of unix sockets hang up. */
static void ask(struct http_connection *connection)
{
    const struct http_exchange *exchange = connection->exchange;
    struct pollfd one = {.fd = connection->fd};

    if (poll(&one, 1, 0) == 1 && (one.revents & (POLLHUP | POLLERR)) != 0)
        connection->lost = true;
    else if (!connection->asked && connection->tcp && exchange != NULL && !exchange->begun &&
             !exchange->request.one_zero)
        http_answer_continue(connection);
    connection->asked = true;
}

/* Called once more when what was sent early has been read. Where reading has stopped since too much was sent early, the
 * peer's end lies behind it, and will be read. */
void http_input_end(struct http_connection *connection)
{
    bool stopped = http_bytes_count(&connection->ahead) >= HTTP_AHEAD_BYTES && !connection->half;

    connection->half = connection->half || !stopped;
    if (connection->state == HTTP_ANSWERING)
        ask(connection);
    else if (connection->state == HTTP_LINGERING)
        connection->lost = true;
    else if (!http_connection_is_idle(connection) && connection->state < HTTP_ANSWERING)
        http_answer_refuse(connection, 400, "the request has no end");
    http_connection_mark(connection);
}
