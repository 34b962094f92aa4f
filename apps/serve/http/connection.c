/* See inside.h: a connection, its turns and its end. */
#include "inside.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- Events ---- */

/* True when both sides are shut or the connection was reset; that is to be seen without reading. */
static bool is_dead(const struct http_connection *connection)
{
    struct pollfd one = {.fd = connection->fd};

    return poll(&one, 1, 0) == 1 && (one.revents & (POLLHUP | POLLERR)) != 0;
}

static void on_event(uv_poll_t *handle, int status, int events)
{
    struct http_connection *connection = (struct http_connection *)handle;

    http_connection_mark(connection);
    if (status != 0) { /* libuv has stopped the handle */
        connection->watched = 0;
        connection->lost = true;
        return;
    }
    if (events & UV_WRITABLE)
        connection->blocked = false;
    if (events & UV_READABLE)
        http_input_receive(connection);
    else if (events & UV_DISCONNECT)
        http_input_end(connection);
    else if (events & UV_PRIORITIZED) {
        connection->lost = connection->lost || is_dead(connection);
        connection->deaf = true;
    }
}

/* What to be woken by. Of a peer whose end has come or seems to have, only that it is gone wholly (UV_PRIORITIZED
 * stands for nothing but hang-up and error then); a level-triggered event that cannot be cleared must not be watched.
 * So where reading has stopped, the peer's end is watched only while http_input_end would ask whether it is there. */
static void watch(struct http_connection *connection)
{
    int events = connection->blocked ? UV_WRITABLE : 0;

    if (!connection->half && http_bytes_count(&connection->ahead) < HTTP_AHEAD_BYTES)
        events |= UV_READABLE;
    else if (!connection->half && !connection->asked && connection->state == HTTP_ANSWERING)
        events |= UV_DISCONNECT;
    else if (!connection->deaf)
        events |= UV_PRIORITIZED;
    if (events == connection->watched)
        return;
    connection->watched = (uint8_t)events;
    if (events == 0)
        uv_poll_stop(&connection->poll);
    else
        uv_poll_start(&connection->poll, events, on_event);
}

/* ---- Begin and end ---- */

struct http_connection *http_connection_new(struct http_listener *listener, int fd, const char *peer, bool refused)
{
    struct http_server *server = listener->server;
    struct http_connection *connection = calloc(1, sizeof *connection);

    if (connection != NULL && listener->tls != NULL)
        connection->tls = http_tls_new(listener->tls);
    if (connection == NULL || (listener->tls != NULL && connection->tls == NULL) ||
        uv_poll_init(server->loop, &connection->poll, fd) != 0) {
        if (connection != NULL)
            http_tls_free(connection->tls);
        free(connection);
        close(fd);
        return NULL;
    }
    connection->server = server;
    connection->fd = fd;
    connection->tcp = listener->tcp;
    connection->keep = true;
    connection->counted = !refused;
    connection->reading.connection = connection->taking.connection = connection->gathering.connection = connection;
    snprintf(connection->peer, sizeof connection->peer, "%s", peer);
    connection->next = server->connections;
    if (connection->next != NULL)
        connection->next->previous = connection;
    server->connections = connection;
    server->handles++;
    if (refused) {
        server->n_refused++;
        connection->exchange = http_exchange_new(connection);
        http_answer_refuse(connection, 503, "too many connections");
    } else {
        server->stats.connections++;
        http_deadline_set(server, &connection->reading, connection->tls != NULL ? HTTP_FOR_HEAD : HTTP_FOR_REQUEST);
    }
    watch(connection);
    return connection;
}

void http_connection_bury(struct http_connection *connection)
{
    struct http_server *server = connection->server;

    if (connection->marked)
        return;
    free(connection);
    http_server_release(server);
}

static void on_closed(uv_handle_t *handle)
{
    struct http_connection *connection = (struct http_connection *)handle;

    connection->buried = true;
    http_connection_bury(connection);
}

static void unlist(struct http_connection *connection)
{
    struct http_server *server = connection->server;

    if (connection->previous != NULL)
        connection->previous->next = connection->next;
    else
        server->connections = connection->next;
    if (connection->next != NULL)
        connection->next->previous = connection->previous;
    if (connection->counted)
        server->stats.connections--;
    else
        server->n_refused--;
    if (server->accept_at != 0) /* its descriptor is for who waits */
        http_server_wake(server);
}

void http_connection_close(struct http_connection *connection)
{
    struct linger none = {.l_onoff = 1};
    const struct http_exchange *exchange = connection->exchange;

    if (connection->state == HTTP_CLOSED)
        return;
    if (exchange != NULL && exchange->begun && !exchange->chunked)
        connection->reset = true; /* a stream that ends with the connection has not ended */
    connection->state = HTTP_CLOSED;
    unlist(connection);
    http_deadline_clear(&connection->reading);
    http_deadline_clear(&connection->taking);
    http_deadline_clear(&connection->gathering);
    http_answer_gone(connection);
    http_tls_free(connection->tls);
    connection->tls = NULL;
    http_bytes_fini(&connection->ahead);
    http_bytes_fini(&connection->out);
    http_bytes_fini(&connection->taken);
    http_bytes_fini(&connection->sealed);
    if (connection->reset)
        setsockopt(connection->fd, SOL_SOCKET, SO_LINGER, &none, sizeof none);
    uv_close((uv_handle_t *)&connection->poll, on_closed);
    close(connection->fd);
    http_server_drained(connection->server);
}

/* All has been sent. A peer that still sends would be answered by a reset, which could overtake what it has not read:
 * so only our side is shut, and what comes is thrown away for a while (http_input_receive). */
static void shut(struct http_connection *connection)
{
    if (connection->tls != NULL && !connection->reset) {
        http_tls_end(connection->tls);
        http_output_send(connection);
    }
    if (connection->reset || connection->half || connection->lost) {
        http_connection_close(connection);
        return;
    }
    shutdown(connection->fd, SHUT_WR);
    connection->state = HTTP_LINGERING;
    connection->body_since = uv_now(connection->server->loop);
    http_deadline_set(connection->server, &connection->reading, HTTP_FOR_PEER);
}

/* ---- Turns ---- */

void http_connection_mark(struct http_connection *connection)
{
    struct http_server *server = connection->server;

    if (connection->marked || connection->state == HTTP_CLOSED)
        return;
    connection->marked = true;
    connection->next_marked = NULL;
    if (server->last_marked != NULL)
        server->last_marked->next_marked = connection;
    else
        server->marked = connection;
    server->last_marked = connection;
}

/* Tells the handlers how the reader of a stream does. */
static void tell_reader(struct http_connection *connection)
{
    const struct http_handlers *handlers = &connection->server->handlers;
    size_t waits = http_output_waits(connection), limit = connection->server->limits.waiting_bytes;

    if (connection->exchange == NULL || !connection->exchange->begun)
        return;
    if (waits / 4 >= limit) {
        connection->lost = connection->reset = true;
    } else if (waits > limit && !connection->slow) {
        connection->slow = true;
        if (handlers->on_slow != NULL)
            handlers->on_slow(handlers->user, connection->exchange);
    } else if (waits < limit / 4 && connection->slow) {
        connection->slow = false;
        if (handlers->on_taken != NULL)
            handlers->on_taken(handlers->user, connection->exchange);
    }
}

bool http_connection_is_idle(const struct http_connection *connection)
{
    return connection->state == HTTP_IDLE ||
           (connection->state == HTTP_READING_HEAD && connection->exchange->request.head_bytes == 0);
}

void http_connection_turn(struct http_connection *connection)
{
    bool drains = connection->server->draining;
    size_t waits = http_output_waits(connection);

    if (!connection->lost)
        http_input_ahead(connection);
    if (connection->state != HTTP_CLOSED && !connection->lost)
        http_output_send(connection);
    if (connection->state == HTTP_IDLE && http_output_waits(connection) < waits &&
        http_bytes_count(&connection->ahead) > 0)
        http_connection_mark(connection); /* what was sent early waited for this */
    if (connection->state != HTTP_CLOSED && !connection->lost)
        tell_reader(connection);
    if (connection->state == HTTP_CLOSED)
        return;
    if (http_connection_is_idle(connection) && http_bytes_count(&connection->ahead) == 0 &&
        (drains || connection->half || !connection->keep))
        connection->state = HTTP_ENDING;
    if (connection->lost)
        http_connection_close(connection);
    else if (connection->state == HTTP_ENDING && http_output_waits(connection) == 0)
        shut(connection);
    if (connection->state != HTTP_CLOSED)
        watch(connection);
}

void http_connection_due(struct http_connection *connection, enum http_reason reason)
{
    http_connection_mark(connection);
    if (reason == HTTP_FOR_MORE)
        return;
    if (reason == HTTP_FOR_READER)
        connection->lost = connection->reset = true;
    else if (reason == HTTP_FOR_PEER || (connection->tls != NULL && !http_tls_ready(connection->tls)))
        connection->lost = true;
    else if (reason == HTTP_FOR_REQUEST || http_connection_is_idle(connection))
        connection->state = HTTP_ENDING;
    else
        http_answer_refuse(connection, 408, "the request did not come in time");
}
