/* Requests and lists of them: see request.h. */
#include "actors/request.h"

#include <stdarg.h>
#include <string.h>

#include "actors/prompt/chat.h"
#include "actors/context.h"
#include "actors/embed.h"
#include "actors/prompt/pair.h"
#include "actors/grammar/guide.h"
#include "actors/grammar/text.h"
#include "actors/host/outlet.h"
#include "actors/telemetry/metrics.h"
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
    RN_ASSERT(request->in_steps == 0 && request->lane == RN_LANE_NONE);
    RN_ASSERT(request->n_queued == 0 && request->n_bytes == 0);
    RN_ASSERT(request->next == NULL && request->turn.previous == NULL); /* in no list */
    rn_free(request->heap, request->text);
    rn_chat_free(request->chat);
    rn_pair_free(request->pair);
    rn_grammar_text_free(request->grammar);
    rn_session_job_free(request->job);
    rn_free(request->heap, request->tokens);
    rn_free(request->heap, request->blocks);
    rn_free(request->heap, request->means);
    rn_free(request->heap, request->windows.blocks);
    rn_free(request->heap, request->stop_tokens);
    rn_sampler_free(request->sampler);
    rn_guide_free(request->guide);
    if (request->proposer != NULL)
        request->proposer->ops->free(request->proposer);
    rn_embed_free(request->embed);
    rn_free(request->heap, request);
}

void rn_request_end(struct rn_request *request, enum rn_outcome outcome, runnel_finish finish)
{
    RN_ASSERT(outcome != RN_OUTCOME_NONE && outcome != RN_OUTCOME_FAILED); /* see rn_request_fail */
    if (request->outcome != RN_OUTCOME_NONE)
        return;
    request->outcome = outcome;
    request->finish = finish;
}

static void fail(struct rn_request *request, runnel_about about, runnel_status status, const char *format, va_list args)
{
    if (request->outcome != RN_OUTCOME_NONE)
        return;
    request->outcome = RN_OUTCOME_FAILED;
    RN_ASSERT(status != RUNNEL_OK);
    rn_error_clear(&request->error);
    request->error.about = about;
    rn_error_vset(&request->error, status, format, args);
}

void rn_request_fail(struct rn_request *request, runnel_status status, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    fail(request, RUNNEL_ABOUT_NONE, status, format, args);
    va_end(args);
}

void rn_request_fail_about(struct rn_request *request, runnel_about about, runnel_status status, const char *format,
                           ...)
{
    va_list args;

    va_start(args, format);
    fail(request, about, status, format, args);
    va_end(args);
}

static bool blocks_are_whole(const struct rn_request *r)
{
    return (r->n_blocks == 0 || r->blocks != NULL) && (r->n_means == 0 || r->means != NULL) &&
           rn_windows_check(&r->windows) && r->n_gone <= r->n_blocks &&
           (r->n_blocks == 0 || r->n_shared <= r->n_blocks) && (r->copy == RN_COPY_NONE || r->copy_at < r->n_blocks);
}

static bool tokens_are_whole(const struct rn_request *r)
{
    bool gone = r->job != NULL; /* to the session that came out of a file */

    return r->n_tokens <= r->capacity && (r->n_tokens == 0 || r->tokens != NULL || gone) &&
           (r->n_limit == 0 || (r->n_tokens <= r->n_limit && r->n_done <= r->n_limit && r->n_history <= r->n_prompt)) &&
           r->n_accepted <= r->n_drafted;
}

bool rn_request_check(const struct rn_request *request)
{
    return request->context != NULL && request->slot < request->context->max_streams &&
           (request->generation & 1) != 0 && tokens_are_whole(request) && blocks_are_whole(request) &&
           (request->outcome != RN_OUTCOME_FAILED || request->error.status != RUNNEL_OK);
}

static uint64_t draft_rows_bytes(const struct rn_guide *guide, uint32_t n_rows)
{
    return n_rows > 1 ? (uint64_t)(n_rows - 1) * guide->row_bytes : 0;
}

bool rn_request_take_rows(struct rn_request *request)
{
    struct rn_counter *queued = &request->context->totals->queued_bytes;
    struct rn_guide *guide = request->guide;
    uint32_t n_rows = 1 + request->draft_max;
    uint64_t bytes;

    if (guide == NULL)
        return true;
    bytes = draft_rows_bytes(guide, n_rows);
    if (bytes > 0 && rn_counter_reserve(queued, (int64_t)bytes, request->context->max_queued_bytes)) {
        if (rn_guide_take_rows(guide, n_rows)) {
            request->n_bytes += bytes;
            return true;
        }
        rn_counter_add(queued, -(int64_t)bytes);
    }
    return rn_guide_take_rows(guide, 1);
}

void rn_request_drop_rows(struct rn_request *request)
{
    uint64_t bytes;

    if (request->guide == NULL)
        return;
    bytes = draft_rows_bytes(request->guide, request->guide->n_rows);
    RN_ASSERT(request->in_steps == 0 && request->n_bytes >= bytes);
    rn_guide_drop_rows(request->guide);
    rn_counter_add(&request->context->totals->queued_bytes, -(int64_t)bytes);
    request->n_bytes -= bytes;
}

void rn_request_send(struct rn_request *request, struct rn_actor *to, uint32_t message_kind)
{
    struct rn_msg *msg = rn_msg_new(to->runtime, message_kind);

    msg->request.request = request;
    RN_ASSERT(rn_request_check(request));
    RN_ASSERT(request->next == NULL && request->turn.previous == NULL && request->in_steps == 0);
    rn_actor_send(to, msg);
}

struct rn_actor *rn_request_end_actor(const struct rn_request *request)
{
    if (request->guide != NULL && request->guide->begun)
        return request->context->sampler;
    return request->verified ? request->context->verifier : request->context->detokenizer;
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

static bool is_cancelled(const struct rn_request *request)
{
    const struct rn_context *context = request->context;

    return rn_word_get(&context->outlets[request->slot].cancelled) == request->generation ||
           rn_word_get(context->released) != 0 || rn_word_get(context->closing) != 0;
}

static bool is_late(const struct rn_request *request)
{
    return request->deadline_ms > 0 && rn_request_is_late(request, rn_now_us(request->context->clock));
}

bool rn_request_end_unwanted(struct rn_request *request)
{
    if (is_cancelled(request))
        rn_request_end_by(request, RN_MSG_CANCEL);
    else if (is_late(request))
        rn_request_end_by(request, RN_MSG_EXPIRE);
    return request->outcome != RN_OUTCOME_NONE;
}

static bool is_unwanted(const void *request)
{
    return is_cancelled(request) || is_late(request);
}

struct rn_interrupt rn_request_interrupt(const struct rn_request *request)
{
    return (struct rn_interrupt){is_unwanted, request};
}

static bool is_stop_token(const struct rn_request *request, int32_t token)
{
    for (uint32_t i = 0; i < request->n_stop_tokens; i++)
        if (request->stop_tokens[i] == token)
            return true;
    return false;
}

bool rn_request_ends_with(const struct rn_request *request, const struct rn_vocab *vocab, int32_t token)
{
    return (!request->ignore_eos && rn_vocab_is_end(vocab, token)) || is_stop_token(request, token);
}

int32_t rn_request_stop_token(const struct rn_request *request)
{
    int32_t last = -1;

    if (request->tokens == NULL || request->n_tokens == 0 || rn_request_answered(request) == 0)
        return -1;
    last = request->tokens[request->n_tokens - 1];
    return is_stop_token(request, last) ? last : -1;
}

void rn_request_unqueue(struct rn_request *request)
{
    rn_counter_add(&request->context->totals->queued_tokens, -(int64_t)request->n_queued);
    request->n_queued = 0;
}

void rn_request_uncount(struct rn_request *request)
{
    struct rn_counter *queued = &request->context->totals->queued_bytes;

    rn_request_unqueue(request);
    rn_counter_add(queued, -(int64_t)request->n_bytes);
    request->n_bytes = 0;
    RN_ASSERT(rn_counter_get(queued) >= 0);
}

void rn_request_push(struct rn_request_queue *queue, struct rn_request *request)
{
    RN_ASSERT((queue->n == 0) == (queue->first == NULL) && (queue->first == NULL) == (queue->last == NULL));
    RN_ASSERT(request->next == NULL && request != queue->last);
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
    RN_ASSERT(queue->n > 0 && (previous != NULL ? previous->next : queue->first) == request);
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
