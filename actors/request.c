/* Requests and lists of them: see request.h. */
#include "actors/request.h"

#include <stdarg.h>

#include "actors/chat.h"
#include "actors/session_job.h"
#include "base/check.h"
#include "base/status.h"

struct rn_request *rn_request_new(struct rn_heap *heap)
{
    struct rn_request *request = rn_calloc(heap, 1, sizeof *request);

    if (request != NULL)
        request->heap = heap;
    return request;
}

void rn_request_free(struct rn_request *request)
{
    if (request == NULL)
        return;
    rn_free(request->heap, request->text);
    rn_chat_free(request->chat);
    rn_session_job_free(request->job);
    rn_free(request->heap, request->tokens);
    rn_free(request->heap, request->blocks);
    rn_free(request->heap, request->stop_tokens);
    rn_sampler_free(request->sampler);
    rn_free(request->heap, request);
}

void rn_request_end(struct rn_request *request, enum rn_outcome outcome, runnel_finish finish)
{
    if (request->outcome != RN_OUTCOME_NONE)
        return;
    request->outcome = outcome;
    request->finish = finish;
}

void rn_request_fail(struct rn_request *request, runnel_status status, const char *format, ...)
{
    va_list args;

    if (request->outcome != RN_OUTCOME_NONE)
        return;
    request->outcome = RN_OUTCOME_FAILED;
    rn_error_clear(&request->error);
    va_start(args, format);
    rn_error_vset(&request->error, status, format, args);
    va_end(args);
}

void rn_request_push(struct rn_request_queue *queue, struct rn_request *request)
{
    request->next = NULL;
    if (queue->last != NULL)
        queue->last->next = request;
    else
        queue->first = request;
    queue->last = request;
    queue->n++;
}

void rn_request_push_front(struct rn_request_queue *queue, struct rn_request_queue *from)
{
    if (from->first == NULL)
        return;
    from->last->next = queue->first;
    queue->first = from->first;
    if (queue->last == NULL)
        queue->last = from->last;
    queue->n += from->n;
    *from = (struct rn_request_queue){NULL, NULL, 0};
}

static struct rn_request *unlink_after(struct rn_request_queue *queue, struct rn_request *previous,
                                       struct rn_request *request)
{
    if (previous != NULL)
        previous->next = request->next;
    else
        queue->first = request->next;
    if (queue->last == request)
        queue->last = previous;
    request->next = NULL;
    queue->n--;
    return request;
}

struct rn_request *rn_request_pop(struct rn_request_queue *queue)
{
    return queue->first != NULL ? unlink_after(queue, NULL, queue->first) : NULL;
}

struct rn_request *rn_request_remove(struct rn_request_queue *queue, uint32_t slot, uint32_t generation)
{
    struct rn_request *previous = NULL;

    for (struct rn_request *r = queue->first; r != NULL; previous = r, r = r->next)
        if (r->slot == slot && r->generation == generation)
            return unlink_after(queue, previous, r);
    return NULL;
}
