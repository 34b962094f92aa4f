/* See http.h: what handlers ask of a request. */
#include "inside.h"

#include <stdlib.h>

struct http_exchange *http_exchange_new(struct http_connection *connection)
{
    struct http_exchange *exchange = calloc(1, sizeof *exchange);

    if (exchange == NULL)
        return NULL;
    exchange->connection = connection;
    http_request_init(&exchange->request, &connection->server->bounds);
    return exchange;
}

const char *http_method(const struct http_exchange *exchange)
{
    return exchange->request.method;
}

const char *http_path(const struct http_exchange *exchange)
{
    return exchange->request.path;
}

const char *http_query(const struct http_exchange *exchange)
{
    return exchange->request.query;
}

const char *http_field(const struct http_exchange *exchange, const char *name)
{
    return http_request_field(&exchange->request, name);
}

const char *http_body(const struct http_exchange *exchange, size_t *n)
{
    *n = exchange->request.body_bytes;
    return exchange->request.body != NULL ? exchange->request.body : "";
}

char *http_take_body(struct http_exchange *exchange, size_t *n)
{
    struct http_request *request = &exchange->request;
    char *body = request->body;

    *n = request->body_bytes;
    request->body = NULL;
    request->body_bytes = request->body_room = 0;
    exchange->held = 0; /* they count in the server's until http_body_done */
    return body;
}

const char *http_peer(const struct http_exchange *exchange)
{
    return exchange->connection->peer;
}

int http_status(const struct http_exchange *exchange)
{
    return exchange->status;
}

uint64_t http_sent(const struct http_exchange *exchange)
{
    return exchange->sent;
}

void http_set_user(struct http_exchange *exchange, void *user)
{
    exchange->user = user;
}

void *http_user(const struct http_exchange *exchange)
{
    return exchange->user;
}
