/* See http.h and inside.h: the server, its turns, its timer, its end. */
#include "inside.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HELD_BYTES (UINT64_C(1) << 30)
#define SLEEP_MS 100 /* listeners, where the process has no descriptors left */

static void give(size_t *limit, size_t value)
{
    if (*limit == 0)
        *limit = value;
}

static void give_ms(uint32_t *limit, uint32_t value)
{
    if (*limit == 0)
        *limit = value;
}

static void fill_limits(struct http_server *server, const struct http_limits *limits)
{
    struct http_limits *own = &server->limits;

    if (limits != NULL)
        *own = *limits;
    give(&own->head_bytes, 32 << 10);
    give(&own->fields, 100);
    give(&own->body_bytes, 32 << 20);
    give(&own->waiting_bytes, 1 << 20);
    give(&own->connections, 4096);
    own->held_bytes = own->held_bytes == 0 ? HELD_BYTES : own->held_bytes;
    own->held_bytes = own->held_bytes < own->body_bytes ? own->body_bytes : own->held_bytes;
    give_ms(&own->head_ms, 10000);
    give_ms(&own->body_ms, 30000);
    give_ms(&own->idle_ms, 75000);
    give_ms(&own->reader_ms, 60000);
    server->bounds = (struct http_bounds){own->head_bytes, own->fields, own->body_bytes, own->names};
}

/* ---- Turns ---- */

static void take_turns(struct http_server *server)
{
    struct http_connection *next = server->marked;

    server->marked = server->last_marked = NULL;
    while (next != NULL) {
        struct http_connection *connection = next;

        next = connection->next_marked;
        connection->marked = false;
        if (connection->buried)
            http_connection_bury(connection);
        else
            http_connection_turn(connection);
    }
}

static void on_idle(uv_idle_t *idle)
{
    (void)idle; /* it is there so that the loop goes on */
}

static void turns_of(struct http_server *server)
{
    server->handles++; /* a handler may free the server */
    take_turns(server);
    if (!server->freed && server->marked != NULL)
        uv_idle_start(&server->idle, on_idle);
    else if (!server->freed)
        uv_idle_stop(&server->idle);
    http_server_release(server);
}

static void on_prepare(uv_prepare_t *prepare)
{
    struct http_server *server = prepare->data;

    http_answer_clean(server);
    if (server->marked != NULL)
        turns_of(server);
}

static void on_check(uv_check_t *check)
{
    struct http_server *server = check->data;

    http_answer_clean(server);
    if (server->marked != NULL || uv_is_active((uv_handle_t *)&server->idle))
        turns_of(server);
}

/* ---- The timer ---- */

static void on_timer(uv_timer_t *timer);

void http_server_due(struct http_server *server, uint64_t at)
{
    uint64_t now = uv_now(server->loop);

    if (server->freed || (server->timer_at != 0 && server->timer_at <= at))
        return;
    server->timer_at = at;
    uv_timer_start(&server->timer, on_timer, at > now ? at - now : 0, 0);
}

static void on_timer(uv_timer_t *timer)
{
    struct http_server *server = timer->data;
    uint64_t now = uv_now(server->loop);

    server->timer_at = 0;
    if (server->accept_at != 0 && server->accept_at <= now)
        http_server_wake(server);
    server->handles++; /* a handler may free the server */
    for (int reason = 0; reason < HTTP_REASONS && !server->freed; reason++) {
        struct http_deadline *queue = &server->queues[reason];

        while (queue->next != queue && queue->next->at <= now) {
            struct http_connection *connection = queue->next->connection;

            http_deadline_clear(queue->next);
            http_connection_due(connection, reason);
        }
        if (queue->next != queue)
            http_server_due(server, queue->next->at);
    }
    if (server->accept_at != 0)
        http_server_due(server, server->accept_at);
    http_server_release(server);
}

/* ---- Life ---- */

struct http_server *http_server_new(uv_loop_t *loop, const struct http_limits *limits,
                                    const struct http_handlers *handlers)
{
    struct http_server *server = calloc(1, sizeof *server);

    if (server == NULL)
        return NULL;
    server->loop = loop;
    server->handlers = *handlers;
    fill_limits(server, limits);
    for (int reason = 0; reason < HTTP_REASONS; reason++)
        server->queues[reason].next = server->queues[reason].previous = &server->queues[reason];
    uv_prepare_init(loop, &server->prepare);
    uv_check_init(loop, &server->check);
    uv_idle_init(loop, &server->idle);
    uv_timer_init(loop, &server->timer);
    server->prepare.data = server->check.data = server->idle.data = server->timer.data = server;
    uv_prepare_start(&server->prepare, on_prepare);
    uv_check_start(&server->check, on_check);
    uv_unref((uv_handle_t *)&server->prepare);
    uv_unref((uv_handle_t *)&server->check);
    uv_unref((uv_handle_t *)&server->timer);
    server->handles = 4;
    return server;
}

void http_server_release(struct http_server *server)
{
    server->handles--;
    if (server->handles > 0 || !server->freed)
        return;
    http_answer_clean(server);
    http_tls_files_unref(server->tls);
    free(server);
}

static void on_closed(uv_handle_t *handle)
{
    http_server_release(handle->data);
}

void http_server_free(struct http_server *server)
{
    if (server == NULL || server->freed)
        return;
    http_listeners_close(server);
    server->handles++;
    server->freed = true;
    server->on_drained = NULL;
    while (server->connections != NULL)
        http_connection_close(server->connections);
    take_turns(server); /* of the closed ones nothing but their memory */
    uv_close((uv_handle_t *)&server->prepare, on_closed);
    uv_close((uv_handle_t *)&server->check, on_closed);
    uv_close((uv_handle_t *)&server->idle, on_closed);
    uv_close((uv_handle_t *)&server->timer, on_closed);
    http_server_release(server);
}

void http_server_drained(struct http_server *server)
{
    void (*on_drained)(void *user) = server->on_drained;

    if (!server->draining || server->connections != NULL)
        return;
    server->on_drained = NULL;
    if (on_drained != NULL)
        on_drained(server->drained_user);
}

void http_server_drain(struct http_server *server, void (*on_drained)(void *user), void *user)
{
    server->draining = true;
    server->on_drained = on_drained;
    server->drained_user = user;
    http_listeners_close(server);
    for (struct http_connection *connection = server->connections; connection != NULL; connection = connection->next)
        http_connection_mark(connection); /* ends if it is idle */
    http_server_drained(server);
}

void http_server_refuse(struct http_server *server, const char *reason)
{
    struct http_connection *next = NULL;

    server->handles++; /* a handler may free the server */
    for (struct http_connection *connection = server->connections; connection != NULL; connection = next) {
        next = connection->next;
        if (connection->exchange != NULL && connection->exchange->announced && !connection->exchange->begun)
            http_answer_refuse(connection, 503, reason);
    }
    http_server_release(server);
}

void http_server_sleep(struct http_server *server)
{
    if (server->accept_at != 0)
        return;
    server->accept_at = uv_now(server->loop) + SLEEP_MS;
    for (struct http_listener *listener = server->listeners; listener != NULL; listener = listener->next)
        uv_poll_stop(&listener->poll);
    uv_ref((uv_handle_t *)&server->timer); /* without listeners the loop could seem to have nothing to do */
    http_server_due(server, server->accept_at);
}

void http_server_stats(const struct http_server *server, struct http_stats *stats)
{
    *stats = server->stats;
    stats->held = server->held;
    stats->unsent = 0;
    for (const struct http_connection *at = server->connections; at != NULL; at = at->next)
        stats->unsent += http_output_waits(at);
}

uint64_t http_held_bytes(const struct http_server *server)
{
    return server->limits.held_bytes;
}
