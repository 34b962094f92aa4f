/* See inside.h: deadlines. */
#include "inside.h"

static uint64_t span_of(const struct http_server *server, enum http_reason reason)
{
    switch (reason) {
    case HTTP_FOR_HEAD:
        return server->limits.head_ms;
    case HTTP_FOR_BODY:
        return server->limits.body_ms;
    case HTTP_FOR_REQUEST:
        return server->limits.idle_ms;
    case HTTP_FOR_READER:
        return server->limits.reader_ms;
    case HTTP_FOR_MORE: /* those of all streams at the same times: one wake, and the kernel's code is at hand */
        return server->limits.gather_ms - uv_now(server->loop) % server->limits.gather_ms;
    default:
        return 1000; /* for a peer's end: longer than a round trip takes */
    }
}

void http_deadline_clear(struct http_deadline *deadline)
{
    if (deadline->next == NULL)
        return;
    deadline->next->previous = deadline->previous;
    deadline->previous->next = deadline->next;
    deadline->next = deadline->previous = NULL;
}

void http_deadline_set(struct http_server *server, struct http_deadline *deadline, enum http_reason reason)
{
    struct http_deadline *queue = &server->queues[reason];

    http_deadline_clear(deadline);
    deadline->at = uv_now(server->loop) + span_of(server, reason);
    deadline->next = queue;
    deadline->previous = queue->previous;
    queue->previous->next = deadline;
    queue->previous = deadline;
    http_server_due(server, deadline->at);
}
