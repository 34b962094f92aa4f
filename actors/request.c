/* Requests and lists of them: see request.h. */
#include "actors/request.h"

#include <stdarg.h>
#include <string.h>

#include "actors/chat.h"
#include "actors/context.h"
#include "actors/embed.h"
#include "actors/tier/session_job.h"
#include "base/check.h"
#include "base/status.h"

struct rn_request *rn_request_new(struct rn_heap *heap)
{
    struct rn_request *request = rn_calloc(heap, 1, sizeof *request);

    if (request != NULL)
        request->heap = heap;
    return request;
}

void rn_request_set_label(struct rn_request *request, const char *label)
{
    if (label != NULL)
        memcpy(request->label, label, strnlen(label, sizeof request->label - 1)); /* zero behind it */
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
    rn_free(request->heap, request->means);
    rn_free(request->heap, request->stop_tokens);
    rn_sampler_free(request->sampler);
    if (request->proposer != NULL)
        request->proposer->ops->free(request->proposer);
    rn_embed_free(request->embed);
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

void rn_request_send(struct rn_request *request, struct rn_actor *to, uint32_t message_kind)
{
    struct rn_msg *msg = rn_msg_new(to->runtime, message_kind);

    msg->request.request = request;
    rn_actor_send(to, msg);
}

void rn_request_end_by(struct rn_request *request, uint32_t message_kind)
{
    if (message_kind == RN_MSG_CANCEL)
        rn_request_end(request, RN_OUTCOME_CANCELLED, RUNNEL_FINISH_NONE);
    else if (message_kind == RN_MSG_STOPPED)
        rn_request_end(request, RN_OUTCOME_DONE, RUNNEL_FINISH_STOP);
    else
        rn_request_fail(request, RUNNEL_TIMEOUT, "the deadline of %u ms has passed", request->deadline_ms);
}

bool rn_request_ends_with(const struct rn_request *request, const struct rn_vocab *vocab, int32_t token)
{
    if (!request->ignore_eos && rn_vocab_is_end(vocab, token))
        return true;
    for (uint32_t i = 0; i < request->n_stop_tokens; i++)
        if (request->stop_tokens[i] == token)
            return true;
    return false;
}

void rn_request_unqueue(struct rn_request *request)
{
    rn_counter_add(&request->context->totals->queued_tokens, -(int64_t)request->n_queued);
    request->n_queued = 0;
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
