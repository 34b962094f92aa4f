/* See inside.h: from the bytes that wait to the socket. */
#include "inside.h"

#include <errno.h>
#include <sys/socket.h>

#define SEAL_BYTES 65536      /* at a time */
#define TURN_BYTES (1u << 20) /* of one connection in one turn: then others get theirs */

size_t http_output_waits(const struct http_connection *connection)
{
    return http_bytes_count(&connection->out) + http_bytes_count(&connection->taken) +
           http_bytes_count(&connection->sealed);
}

/* What goes next. */
static struct http_bytes *next_bytes(struct http_connection *connection)
{
    return http_bytes_count(&connection->out) > 0 ? &connection->out : &connection->taken;
}

static void seal(struct http_connection *connection)
{
    struct http_bytes *sealed = &connection->sealed;
    size_t n;
    char *to;

    while (http_tls_sealed(connection->tls) < SEAL_BYTES) {
        struct http_bytes *bytes = next_bytes(connection);
        size_t count = http_bytes_count(bytes), n_next = count < SEAL_BYTES ? count : SEAL_BYTES;
        long taken = count == 0 ? 0 : http_tls_seal(connection->tls, bytes->at + bytes->begin, n_next);

        if (taken < 0)
            connection->lost = true;
        if (taken <= 0)
            break;
        http_bytes_take(bytes, (size_t)taken);
    }
    n = http_tls_sealed(connection->tls);
    to = n == 0 ? NULL : http_bytes_reserve(sealed, n);
    if (to != NULL)
        sealed->end += http_tls_take(connection->tls, to, n);
    else if (n > 0)
        connection->lost = true;
}

static void send_some(struct http_connection *connection, struct http_bytes *bytes)
{
    ssize_t n = send(connection->fd, bytes->at + bytes->begin, http_bytes_count(bytes), MSG_NOSIGNAL);

    if (n >= 0) {
        http_bytes_take(bytes, (size_t)n);
        connection->server->stats.bytes_out += (uint64_t)n;
        connection->server->stats.writes++;
        http_deadline_clear(&connection->taking); /* it has taken something: its time begins again */
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
        connection->blocked = true;
    } else if (errno != EINTR) {
        connection->lost = true;
    }
}

void http_output_send(struct http_connection *connection)
{
    uint64_t before = connection->server->stats.bytes_out;

    while (!connection->blocked && !connection->lost) {
        struct http_bytes *bytes = connection->tls != NULL ? &connection->sealed : next_bytes(connection);

        if (connection->tls != NULL && http_bytes_count(bytes) == 0)
            seal(connection);
        if (http_bytes_count(bytes) == 0)
            break;
        if (connection->server->stats.bytes_out - before >= TURN_BYTES) {
            http_connection_mark(connection);
            break;
        }
        send_some(connection, bytes);
    }
    if (connection->server->stats.bytes_out > before && connection->exchange != NULL && connection->exchange->begun &&
        connection->server->limits.gather_ms > 0)
        http_deadline_set(connection->server, &connection->gathering, HTTP_FOR_MORE);
    if (http_output_waits(connection) == 0)
        http_deadline_clear(&connection->taking);
    else if (connection->taking.next == NULL)
        http_deadline_set(connection->server, &connection->taking, HTTP_FOR_READER);
}
