/* See inside.h: what the bodies of all requests take together.
 *
 * Where a body does not fit beside the others, one that is coming in makes room: of those that have at least the mean
 * of what is coming in, the one that has come at the lowest rate so far. So whoever sends little stays, whatever others
 * do, and who stops sending goes before those who go on. */
#include "inside.h"

#include <stdlib.h>

static void count(struct http_exchange *exchange)
{
    exchange->connection->server->held += exchange->request.body_bytes - exchange->held;
    exchange->held = exchange->request.body_bytes;
}

void http_bodies_forget(struct http_exchange *exchange)
{
    exchange->connection->server->held -= exchange->held;
    exchange->held = 0;
}

static bool comes(const struct http_connection *connection)
{
    return connection->state == HTTP_READING_BODY && connection->exchange->held > 0;
}

/* NULL: none is coming in. */
static struct http_connection *find_slowest(const struct http_server *server)
{
    uint64_t now = uv_now(server->loop), sum = 0, n = 0;
    struct http_connection *found = NULL;
    double least = 0;

    for (const struct http_connection *at = server->connections; at != NULL; at = at->next)
        if (comes(at)) {
            sum += at->exchange->held;
            n++;
        }
    for (struct http_connection *at = server->connections; at != NULL; at = at->next) {
        double rate = comes(at) ? (double)at->exchange->held / (double)(now - at->body_since + 1) : 0;

        if (comes(at) && at->exchange->held * n >= sum && (found == NULL || rate < least)) {
            found = at;
            least = rate;
        }
    }
    return found;
}

static void refuse(struct http_connection *connection)
{
    struct http_request *request = &connection->exchange->request;

    http_bodies_forget(connection->exchange);
    free(request->body); /* now, not when the loop goes on: more may come until then */
    request->body = NULL;
    request->body_bytes = request->body_room = 0;
    http_answer_refuse(connection, 503, "the bodies of other requests leave no room for this one");
}

bool http_bodies_fit(struct http_connection *connection)
{
    struct http_server *server = connection->server;

    count(connection->exchange);
    while (connection->state == HTTP_READING_BODY && server->held > server->limits.held_bytes) {
        struct http_connection *slowest = find_slowest(server);

        refuse(slowest != NULL ? slowest : connection);
    }
    return connection->state == HTTP_READING_BODY;
}

void http_body_done(struct http_server *server, size_t n)
{
    server->held -= n;
}
