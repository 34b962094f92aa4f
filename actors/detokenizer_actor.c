/* The detokenizer actor: see detokenizer_actor.h. */
#include "actors/detokenizer_actor.h"

#include <stddef.h>
#include <string.h>

#include "actors/context.h"
#include "actors/host/bridge.h"
#include "actors/lists.h"
#include "actors/telemetry/telemetry.h"
#include "actors/request.h"
#include "actors/tier/session_slot.h"
#include "base/check.h"

static_assert(offsetof(struct rn_detokenizer, actor) == 0, "handlers get the actor");

static struct rn_detokenizer *detokenizer_of(struct rn_actor *actor)
{
    return (struct rn_detokenizer *)actor;
}

static void tell_stopped(struct rn_detokenizer *detokenizer, const struct rn_token_item *item)
{
    struct rn_msg *msg = rn_msg_new(detokenizer->actor.runtime, RN_MSG_STOPPED);

    msg->stream = (struct rn_pay_stream){item->slot, item->generation, 0};
    rn_actor_send(detokenizer->context->decode, msg);
}

/* The text of a token; control tokens by which the answer to a chat is taken apart are spelled out. */
static struct rn_view piece_of(const struct rn_vocab *vocab, const struct rn_outlet *outlet, int32_t token)
{
    struct rn_view name;

    if (outlet->answer == NULL || rn_vocab_kind(vocab, token) != RN_TOKEN_CONTROL)
        return rn_vocab_piece(vocab, token, false);
    name = rn_vocab_piece(vocab, token, true);
    return rn_answer_wants(outlet->answer, name.bytes, name.n) ? name : (struct rn_view){"", 0};
}

/* A token of the answer: its piece goes through the piece stream; what is certain goes out. */
static void put_token(struct rn_detokenizer *detokenizer, struct rn_outlet *outlet, struct rn_token_item *item)
{
    struct rn_view piece = piece_of(detokenizer->context->vocab, outlet, item->token);
    struct rn_cell *cell = rn_outlet_reserve(outlet);

    RN_ASSERT(item->token >= 0 && (uint32_t)item->token < detokenizer->context->n_vocab);
    RN_ASSERT(item->n_top <= outlet->n_top_max && !outlet->pieces.stopped);
    cell->type = RUNNEL_EVENT_TOKEN;
    cell->token = item->token;
    cell->n_tokens = 1;
    cell->logprob = item->logprob;
    cell->n_top = item->n_top;
    memcpy(rn_cell_top(cell), item->top, item->n_top * sizeof item->top[0]);
    rn_outlet_put_piece(outlet, cell, piece.bytes, piece.n);
    rn_word_set(&outlet->n_tokens, ++outlet->n_answer);
    rn_outlet_count_shifts(outlet, outlet->n_answer, cell);
    if (outlet->pieces.stopped) {
        outlet->stopped_at = outlet->n_answer;
        tell_stopped(detokenizer, item);
    }
    item->joined = rn_host_put(detokenizer->context->host, outlet, cell);
}

static void put_item(struct rn_detokenizer *detokenizer, struct rn_token_item *item)
{
    const struct rn_context *context = detokenizer->context;
    struct rn_outlet *outlet = &context->outlets[item->slot];
    struct rn_cell *cell;

    RN_ASSERT(item->slot < context->max_streams);
    RN_CHECK(rn_outlet_is(outlet, item->generation));
    if (outlet->pieces.stopped)
        return; /* decode has not heard of it yet: these tokens never were */
    if (item->type == RUNNEL_EVENT_TOKEN) {
        put_token(detokenizer, outlet, item);
        return;
    }
    cell = rn_outlet_reserve(outlet);
    cell->type = item->type;
    cell->asks = item->asks;
    cell->position = item->position;
    cell->logits = item->logits;
    cell->n_logits = item->type == RUNNEL_EVENT_LOGITS && !item->asks ? outlet->n_logits : 0;
    cell->n_embedding = item->type == RUNNEL_EVENT_EMBEDDING ? outlet->n_embedding : 0;
    cell->prompt_done = item->prompt_done;
    cell->prompt_total = item->prompt_total;
    cell->cached_tokens = item->prompt_cached;
    rn_host_publish(context->host, outlet);
}

static void on_tokens(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_detokenizer *detokenizer = detokenizer_of(self);
    struct rn_token_list *list = msg->tokens.list;

    RN_ASSERT(list->n > 0 && list->n <= list->capacity);
    for (uint32_t i = 0; i < list->n; i++)
        put_item(detokenizer, &list->items[i]);
    msg->head.kind = RN_MSG_TOKENS_BACK;
    rn_actor_send(detokenizer->context->decode, msg);
}

/* The text of the stop token that ended the answer, where it is part of it. */
static struct rn_view kept_stop(const struct rn_context *context, const struct rn_outlet *outlet,
                                const struct rn_request *request)
{
    bool kept = outlet->pieces.keep_stop && !outlet->pieces.stopped && request->finish == RUNNEL_FINISH_STOP;
    int32_t token = kept ? rn_request_stop_token(request) : -1;

    return token >= 0 ? piece_of(context->vocab, outlet, token) : (struct rn_view){"", 0};
}

/* The answer has ended by itself: what was held back is certain now. Of one that was cut off it is not: more tokens
 * might have made a stop string of it, or another character, so it is not told. */
static void put_tail(const struct rn_context *context, struct rn_outlet *outlet, const struct rn_request *request)
{
    struct rn_cell *cell = rn_outlet_reserve(outlet);
    struct rn_view stop = kept_stop(context, outlet, request);

    cell->type = RUNNEL_EVENT_TOKEN;
    rn_outlet_count_shifts(outlet, outlet->n_answer, cell);
    rn_outlet_put_tail(outlet, cell, stop.bytes, stop.n, request->finish == RUNNEL_FINISH_STOP);
    if (cell->text_bytes > 0 || cell->n_parts > 0)
        rn_host_put(context->host, outlet, cell);
}

static uint64_t since(const struct rn_request *request, uint64_t at_us)
{
    return at_us == 0 ? 0 : at_us - request->submitted_us;
}

/* The token that ended the answer and has no event of its own. */
static int32_t untold_token(const struct rn_outlet *outlet, const struct rn_request *request)
{
    if (request->outcome != RN_OUTCOME_DONE || request->tokens == NULL || request->n_tokens == 0 ||
        rn_request_answered(request) != outlet->n_answer + UINT64_C(1))
        return -1;
    return request->tokens[request->n_tokens - 1];
}

static void fill_usage(struct rn_cell *cell, struct rn_outlet *outlet, const struct rn_request *request)
{
    rn_outlet_count_shifts(outlet, rn_request_answered(request), cell);
    outlet->ending.usage = (runnel_usage){
        .prompt_tokens = request->n_prompt,
        .cached_tokens = request->n_cached,
        .warm_tokens = request->n_lower[RN_TIER_WARM],
        .cold_tokens = request->n_lower[RN_TIER_COLD],
        .shared_tokens = request->n_lower[RN_TIER_SHARED],
        .completion_tokens = rn_request_answered(request),
        .drafted_tokens = request->n_drafted,
        .accepted_tokens = request->n_accepted,
        .rested_passes = request->n_rested,
        .rest = request->rest,
        .shifts = cell->shifts,
        .shifted_tokens = cell->shifted_tokens,
    };
}

static void fill_terminal(struct rn_cell *cell, struct rn_outlet *outlet, const struct rn_request *request)
{
    static const uint32_t types[] = {
        [RN_OUTCOME_DONE] = RUNNEL_EVENT_DONE,
        [RN_OUTCOME_CANCELLED] = RUNNEL_EVENT_CANCELLED,
        [RN_OUTCOME_FAILED] = RUNNEL_EVENT_FAILED,
    };
    struct rn_ending *ending = &outlet->ending;

    *cell = (struct rn_cell){.type = types[request->outcome], .token = untold_token(outlet, request)};
    *ending = (struct rn_ending){.stop = -1, .stop_token = -1};
    ending->finish = request->outcome == RN_OUTCOME_DONE ? request->finish : RUNNEL_FINISH_NONE;
    if (request->outcome == RN_OUTCOME_FAILED) {
        ending->status = request->error.status;
        ending->about = request->error.about;
        memcpy(outlet->error, request->error.message, sizeof outlet->error);
    }
    if (ending->finish == RUNNEL_FINISH_STOP && outlet->pieces.stopped)
        ending->stop = outlet->pieces.stop;
    else if (ending->finish == RUNNEL_FINISH_STOP)
        ending->stop_token = rn_request_stop_token(request);
    if (cell->token >= 0) {
        ending->logprob = request->end_logprob;
        ending->n_top = request->n_end_top;
    }
    fill_usage(cell, outlet, request);
    ending->timings.admitted_us = since(request, request->admitted_us);
    ending->timings.first_token_us = since(request, request->first_token_us);
    ending->timings.end_us = since(request, request->end_us);
}

/* A stop string decides, whatever decode found in the meantime: the answer ends with the token in which
 * the string was completed, however far the sequence had run on. */
static void settle_outcome(const struct rn_outlet *outlet, struct rn_request *request)
{
    uint64_t end = (uint64_t)request->n_prompt + outlet->stopped_at;

    if (!outlet->pieces.stopped)
        return;
    request->outcome = RN_OUTCOME_DONE;
    request->finish = RUNNEL_FINISH_STOP;
    RN_ASSERT(outlet->stopped_at > 0 && outlet->stopped_at <= outlet->n_answer);
    RN_ASSERT(outlet->stopped_at <= rn_request_answered(request));            /* decode may have run on, not back */
    request->n_dropped = request->n_dropped < end ? request->n_dropped : end; /* decode may have let go of the end */
    request->n_tokens = (uint32_t)(end - request->n_dropped);
}

/* The next submit must find the session's length as the host will know it. */
static void publish_session(const struct rn_context *context, const struct rn_request *request)
{
    if (request->session_generation != 0 && request->n_limit > 0)
        rn_word_set(&context->sessions[request->session].n_known, rn_request_kept_tokens(request));
}

static void on_end(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_detokenizer *detokenizer = detokenizer_of(self);
    const struct rn_context *context = detokenizer->context;
    struct rn_request *request = msg->request.request;
    struct rn_outlet *outlet = &context->outlets[request->slot];

    RN_CHECK(rn_outlet_is(outlet, request->generation) && request->outcome != RN_OUTCOME_NONE);
    RN_ASSERT(rn_request_check(request) && rn_word_get(&outlet->ended) != request->generation);
    if (request->n_limit == 0)
        request->n_prompt = request->n_tokens; /* never admitted: what is known is the prompt */
    settle_outcome(outlet, request);
    request->end_us = rn_now_us(context->clock);
    if (rn_outlet_is_prepared(outlet) && request->outcome == RN_OUTCOME_DONE)
        put_tail(context, outlet, request);
    if (outlet->pieces.stopped && request->outcome == RN_OUTCOME_DONE)
        request->finish = RUNNEL_FINISH_STOP; /* also one that stood in what was held back for a longer one */
    if (request->job == NULL)
        rn_telemetry_ended(self, request);
    RN_ASSERT(request->n_prompt <= request->n_tokens + request->n_dropped && request->n_cached <= request->n_prompt);
    fill_terminal(&outlet->end, outlet, request);
    publish_session(context, request);
    rn_request_uncount(request);
    /* The blocks are on their way back before the host can know that the stream has ended: a next turn
     * that it submits then finds them with the session. */
    msg->head.kind = RN_MSG_RETIRE;
    rn_actor_send(detokenizer->context->tier, msg);
    rn_host_publish_end(context->host, outlet);
}

static const struct rn_actor_class detokenizer_class = {
    .name = "detokenizer",
    .handlers = {[RN_MSG_TOKENS] = on_tokens, [RN_MSG_END] = on_end, [RN_MSG_CLOSE] = rn_actor_on_close},
};

void rn_detokenizer_init(struct rn_detokenizer *detokenizer, const struct rn_context *context)
{
    *detokenizer = (struct rn_detokenizer){.context = context};
    rn_actor_init(&detokenizer->actor, context->runtime, &detokenizer_class,
                  rn_bounds_credits(&context->bounds, RN_ROLE_DETOKENIZER));
}

bool rn_detokenizer_check(const struct rn_detokenizer *detokenizer)
{
    const struct rn_context *context = detokenizer->context;

    for (uint32_t slot = 0; slot < context->max_streams; slot++)
        if (!rn_outlet_check(&context->outlets[slot]))
            return false;
    return detokenizer->actor.class == &detokenizer_class && context->detokenizer == &detokenizer->actor;
}
