/* See routes.h. */
#include "routes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_at(const struct http_exchange *exchange, const char *path)
{
    return strcmp(http_path(exchange), path) == 0;
}

static void hold(struct routes *routes, struct http_exchange *exchange)
{
    if (routes->n_held == ROUTES_HELD)
        abort();
    http_set_user(exchange, &routes->held[routes->n_held]);
    routes->held[routes->n_held++] = exchange;
}

static void on_head(void *user, struct http_exchange *exchange)
{
    struct routes *routes = user;

    routes->heads++;
    if (!is_at(exchange, "/early"))
        return;
    http_add_field(exchange, "WWW-Authenticate", "Bearer\r\nX: y");
    http_answer(exchange, 401, "text/plain", "no\n", 3);
}

static void answer_field(struct http_exchange *exchange)
{
    const char *value = http_field(exchange, http_query(exchange));

    http_answer(exchange, value != NULL ? 200 : 404, "text/plain", value, value != NULL ? strlen(value) : 0);
}

static void on_request(void *user, struct http_exchange *exchange)
{
    struct routes *routes = user;
    const char *body;
    size_t n;

    routes->requests++;
    body = http_body(exchange, &n);
    snprintf(routes->last, sizeof routes->last, "%s %s?%s %zu", http_method(exchange), http_path(exchange),
             http_query(exchange), n);
    if (is_at(exchange, "/wait")) {
        hold(routes, exchange);
    } else if (is_at(exchange, "/open")) {
        hold(routes, exchange);
        http_stream_begin(exchange, 200, "text/event-stream");
    } else if (is_at(exchange, "/echo")) {
        http_answer(exchange, 200, http_field(exchange, "content-type"), body, n);
    } else if (is_at(exchange, "/stream")) {
        http_stream_begin(exchange, 200, "text/plain");
        http_stream_write(exchange, "one\n", 4);
        http_stream_write(exchange, "two\n", 4);
        http_stream_write(exchange, "three\n", 6);
        http_stream_end(exchange);
    } else if (is_at(exchange, "/field")) {
        answer_field(exchange);
    } else if (is_at(exchange, "/hello")) {
        http_answer(exchange, 200, "text/plain", "hello\n", 6);
    } else {
        http_answer(exchange, 404, "text/plain", "not here\n", 9);
    }
}

static void on_gone(void *user, struct http_exchange *exchange)
{
    struct routes *routes = user;
    struct http_exchange **held = http_user(exchange);

    routes->gone++;
    if (held != NULL)
        *held = NULL;
}

static void on_slow(void *user, struct http_exchange *exchange)
{
    struct routes *routes = user;

    (void)exchange;
    routes->slow++;
}

static void on_taken(void *user, struct http_exchange *exchange)
{
    struct routes *routes = user;

    (void)exchange;
    routes->taken++;
}

struct http_handlers routes_handlers(struct routes *routes)
{
    return (struct http_handlers){
        .on_head = on_head,
        .on_request = on_request,
        .on_gone = on_gone,
        .on_slow = on_slow,
        .on_taken = on_taken,
        .user = routes,
    };
}
