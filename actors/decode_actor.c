/* The decode actor: taking in requests, taking apart a finished batch, letting go of what has ended. How
 * a batch is composed is in decode/compose.c. See decode_actor.h. */
#include "actors/decode_actor.h"

#include <stddef.h>
#include <string.h>

#include "actors/context.h"
#include "actors/decode/compose.h"
#include "actors/decode/states.h"
#include "actors/draw_rows.h"
#include "actors/host/outlet.h"
#include "actors/telemetry/telemetry.h"
#include "base/check.h"

static_assert(offsetof(struct rn_decode, actor) == 0, "handlers get the actor");
static_assert(RN_WINDOW >= RN_WINDOW_LOGITS && RN_WINDOW >= RN_WINDOW_JOINED, "RN_WINDOW bounds every stream's credit");

static struct rn_decode *decode_of(struct rn_actor *actor)
{
    return (struct rn_decode *)actor;
}

static void free_lane(struct rn_decode *decode, struct rn_request *request)
{
    enum rn_lane lane = request->lane;
    struct rn_msg *msg;

    if (lane == RN_LANE_NONE)
        return;
    RN_ASSERT(!request->last_chunk);
    request->lane = RN_LANE_NONE;
    msg = rn_msg_new(decode->actor.runtime, RN_MSG_LANE_FREE);
    msg->lanes = (struct rn_pay_lanes){
        .n = lane == RN_LANE_OWN,
        .n_background = lane == RN_LANE_OWN && request->priority < 0,
        .n_short = lane == RN_LANE_SHORT,
    };
    rn_actor_send(decode->context->prefill, msg);
}

/* No step will move it to its position any more. */
static void forget_leaf(struct rn_request *request)
{
    RN_ASSERT(request->in_steps == 0 && request->leaf_offset <= request->n_limit);
    request->n_done -= request->leaf_offset > 0;
    request->leaf_offset = 0;
}

/* The verifier keeps what it knows of it. */
static void halt(struct rn_decode *decode, const struct rn_request *request)
{
    struct rn_msg *msg;

    if (!request->verified)
        return;
    msg = rn_msg_new(decode->actor.runtime, RN_MSG_HALT);
    msg->stream = (struct rn_pay_stream){request->slot, request->generation, 0};
    rn_actor_send(decode->context->verifier, msg);
}

/* Sends a request that is in no list and no step back to the tier. */
static void give_back(struct rn_decode *decode, struct rn_request *request)
{
    RN_ASSERT(request->preempted && request->outcome == RN_OUTCOME_NONE && request->in_steps == 0);
    request->stalled = rn_batch_is_stalled(decode, request);
    rn_decode_keep_stall(decode, request);
    decode->credits[request->slot].back = true;
    decode->credits[request->slot].away = request->stalled;
    request->preempted = request->growing = false;
    forget_leaf(request);
    free_lane(decode, request);
    rn_request_drop_rows(request);
    halt(decode, request);     /* before it can come again */
    request->verified = false; /* until it does */
    RN_ASSERT(request->n_done <= request->n_tokens);
    rn_request_send(request, decode->context->tier, RN_MSG_PREEMPTED);
}

/* Sends away a request that has its outcome and is in no list and no step. */
static void let_go(struct rn_decode *decode, struct rn_request *request)
{
    RN_CHECK(request->outcome != RN_OUTCOME_NONE && request->in_steps == 0);
    forget_leaf(request);
    free_lane(decode, request);
    rn_request_send(request, rn_request_end_actor(request), RN_MSG_END);
}

static uint32_t find_running(const struct rn_decode *decode, uint32_t slot, uint32_t generation)
{
    uint32_t i = 0;

    while (i < decode->n_running && (decode->running[i]->slot != slot || decode->running[i]->generation != generation))
        i++;
    return i;
}

/* Keeps the order of the others: the cursor's turn-taking depends on it. */
static void remove_running(struct rn_decode *decode, uint32_t i)
{
    RN_ASSERT(i < decode->n_running && decode->cursor <= decode->n_running);
    memmove(&decode->running[i], &decode->running[i + 1], (decode->n_running - i - 1) * sizeof decode->running[0]);
    decode->n_running--;
    if (decode->cursor > i)
        decode->cursor--;
}

/* The request of a stream, wherever decode has it; NULL: not here. */
static struct rn_request *find(const struct rn_decode *decode, uint32_t slot, uint32_t generation)
{
    uint32_t i = find_running(decode, slot, generation);

    if (i < decode->n_running)
        return decode->running[i];
    for (struct rn_request *r = decode->prompts.first; r != NULL; r = r->next)
        if (r->slot == slot && r->generation == generation)
            return r;
    return NULL;
}

/* Takes a request with an outcome, or one that is to go back, out of its list and lets it go, unless a step still
 * reads it. */
void rn_decode_drop_if_done(struct rn_decode *decode, struct rn_request *request)
{
    uint32_t i;

    if ((request->outcome == RN_OUTCOME_NONE && !request->preempted) || request->in_steps > 0)
        return;
    i = find_running(decode, request->slot, request->generation);
    if (i < decode->n_running)
        remove_running(decode, i);
    else
        RN_CHECK(rn_request_remove(&decode->prompts, request->slot, request->generation) == request);
    if (request->outcome != RN_OUTCOME_NONE)
        let_go(decode, request);
    else
        give_back(decode, request);
}

/* The request has an outcome, or is to go back. Steps for which nobody waits any more are stopped. Their batches may be
 * on their way back already; they are not looked at, being another's. */
static void end_here(struct rn_decode *decode, struct rn_request *request)
{
    rn_decode_drop_if_done(decode, request);
    if (decode->ring.n_flying > 0 && !rn_batch_is_wanted(decode))
        rn_step_ring_stop(&decode->ring);
}

/* A request that comes again keeps the credit it has. */
static void on_offer(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_decode *decode = decode_of(self);
    struct rn_request *request = msg->request.request;
    const struct rn_outlet *outlet = &decode->context->outlets[request->slot];
    struct rn_credit *credit = &decode->credits[request->slot];

    rn_msg_free(self->runtime, msg);
    RN_ASSERT(request->lane != RN_LANE_NONE && request->in_steps == 0 && !request->preempted && !request->growing);
    RN_ASSERT(request->n_done <= request->n_fill && decode->prompts.n < RN_PROMPTS);
    RN_ASSERT(rn_outlet_is(outlet, request->generation) && rn_outlet_is_prepared(outlet));
    if (credit->generation != request->generation)
        *credit = (struct rn_credit){.generation = request->generation, .n = (int32_t)outlet->window};
    credit->back = false;
    RN_ASSERT(!credit->away); /* the tier has heard READY */
    decode->proposals[request->slot].generation = 0;
    rn_request_push(&decode->prompts, request);
    rn_decode_look_for_company(decode, request);
}

/* CANCEL, EXPIRE, PREEMPT: of a request that is no longer here. The tier remembers what else it has to know. */
static void on_end_request(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_decode *decode = decode_of(self);
    struct rn_request *request = find(decode, msg->stream.slot, msg->stream.generation);

    if (request != NULL) {
        if (msg->head.kind == RN_MSG_PREEMPT)
            request->preempted = true;
        else
            rn_request_end_by(request, msg->head.kind);
        end_here(decode, request);
    }
    rn_msg_free(self->runtime, msg);
}

/* The answer has ended; the detokenizer knows with which token, and ignores later ones. A request that was taken back
 * ends in the tier, or wherever it is on its way to here. */
static void on_stopped(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_decode *decode = decode_of(self);
    struct rn_request *request = find(decode, msg->stream.slot, msg->stream.generation);
    const struct rn_credit *credit = &decode->credits[msg->stream.slot];

    if (request == NULL && credit->generation == msg->stream.generation && credit->back) {
        rn_actor_send(decode->context->tier, msg);
        return;
    }
    rn_msg_free(self->runtime, msg);
    if (request != NULL) {
        rn_request_end_by(request, RN_MSG_STOPPED);
        end_here(decode, request);
    }
}

/* The stream may have n more events. */
static void add_credit(struct rn_decode *decode, uint32_t slot, uint32_t generation, uint32_t n)
{
    struct rn_credit *credit = &decode->credits[slot];

    RN_ASSERT(slot < decode->context->max_streams && n > 0);
    if (credit->generation != generation)
        return;
    if (credit->n <= 0) {
        const struct rn_request *request = find(decode, slot, generation);

        if (request != NULL || credit->away)
            rn_decode_end_stall(decode, credit, request);
    }
    credit->n += (int32_t)n;
    RN_ASSERT(credit->n <= RN_WINDOW + 1 && (!credit->away || credit->back)); /* the tail cost none, and comes back */
    rn_decode_call_back(decode, slot);
}

static void on_credit(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_pay_stream stream = msg->stream;

    rn_msg_free(self->runtime, msg);
    add_credit(decode_of(self), stream.slot, stream.generation, stream.n);
}

/* More blocks: at the end of the table, where no step in flight looks. */
static void on_grant(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_decode *decode = decode_of(self);
    struct rn_request *request = find(decode, msg->grant.slot, msg->grant.generation);

    if (request == NULL) {
        msg->head.kind = RN_MSG_UNGRANT;
        rn_actor_send(decode->context->tier, msg);
        return;
    }
    RN_ASSERT(request->growing && msg->grant.n > 0 && msg->grant.n <= RN_LEASE_BLOCKS);
    rn_batch_take_blocks(decode, request, msg->grant.blocks, msg->grant.n);
    request->growing = false;
    rn_msg_free(self->runtime, msg);
}

/* Sends back what has waited for its reader for long, until the tier has what it wants. */
static void give_back_stalled(struct rn_decode *decode)
{
    struct rn_request *request;

    while ((request = rn_decode_next_stalled(decode)) != NULL) {
        RN_ASSERT(request->in_steps == 0 && request->outcome == RN_OUTCOME_NONE && !request->preempted);
        decode->n_short -= request->n_blocks < decode->n_short ? request->n_blocks : decode->n_short;
        request->preempted = true;
        rn_decode_drop_if_done(decode, request);
    }
}

static void on_short(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_decode *decode = decode_of(self);

    decode->n_short = msg->shortage.n_blocks;
    decode->at_once = msg->shortage.at_once != 0;
    give_back_stalled(decode); /* before the answer: that is what the tier waits for */
    msg->head.kind = RN_MSG_SHORT_BACK;
    rn_actor_send(decode->context->tier, msg);
}

static void on_tokens_back(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_decode *decode = decode_of(self);
    const struct rn_token_list *list = msg->tokens.list;

    RN_ASSERT(list->n > 0 && list->n <= list->capacity && list != decode->free_lists);
    for (uint32_t i = 0; i < list->n; i++)
        if (list->items[i].joined)
            add_credit(decode, list->items[i].slot, list->items[i].generation, 1);
    msg->tokens.list->next = decode->free_lists;
    decode->free_lists = msg->tokens.list;
    rn_msg_free(self->runtime, msg);
}

static void on_computed_back(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_decode *decode = decode_of(self);

    RN_ASSERT(msg->computed.list->n > 0 && msg->computed.list != decode->free_computed);
    msg->computed.list->next = decode->free_computed;
    decode->free_computed = msg->computed.list;
    rn_msg_free(self->runtime, msg);
}

/* An event of the stream is to be told. */
static void pay(struct rn_decode *decode, struct rn_request *request)
{
    struct rn_credit *credit = &decode->credits[request->slot];

    RN_ASSERT(credit->n > 0 && credit->generation == request->generation && !credit->back);
    credit->n--;
    request->told_us = decode->now_us;
}

/* The terminal event tells of the token that ends the answer. */
static void keep_end(struct rn_request *request, const struct rn_pick *pick)
{
    RN_ASSERT(pick->n_top <= request->n_top && (pick->n_top == 0 || request->end_top != NULL));
    request->end_logprob = pick->logprob;
    request->n_end_top = pick->n_top;
    if (pick->n_top > 0)
        memcpy(request->end_top, pick->top, pick->n_top * sizeof pick->top[0]);
}

/* A drawn token joins its sequence. */
void rn_decode_settle_token(struct rn_decode *decode, struct rn_request *request, struct rn_batch_out *out)
{
    RN_CHECK(request->n_tokens < request->capacity);
    RN_ASSERT(request->n_tokens < request->n_limit && request->n_done >= request->n_tokens && !out->drawn);
    RN_ASSERT(out->pick.token >= 0 && (uint32_t)out->pick.token < decode->context->n_vocab);
    request->tokens[request->n_tokens++] = out->pick.token;
    rn_sampler_take(request->sampler, &out->pick);
    out->drawn = true;
    if (out->ended || rn_request_ends_with(request, decode->context->vocab, out->pick.token)) {
        rn_request_end(request, RN_OUTCOME_DONE, RUNNEL_FINISH_STOP);
        if (request->want_logprobs)
            keep_end(request, &out->pick);
        return;
    }
    out->tells_token = true;
    pay(decode, request);
    if (out->last)
        rn_request_end(request, RN_OUTCOME_DONE, RUNNEL_FINISH_STOP);
    if (out->last || request->n_tokens < request->n_limit)
        return;
    if (rn_request_can_shift(request))
        request->shifts = request->preempted = true;
    else
        rn_request_end(request, RN_OUTCOME_DONE, RUNNEL_FINISH_LENGTH);
}

static void settle_out(struct rn_decode *decode, struct rn_batch_out *out)
{
    struct rn_request *request = out->request;

    if (out->follows && (out->refuted || request->outcome != RN_OUTCOME_NONE))
        return; /* it is not of the sequence, or behind its end */
    request->suspect |= out->status != RUNNEL_OK;
    if (request->outcome != RN_OUTCOME_NONE)
        return;
    request->n_done += out->follows;
    if (out->leaf_offset > 0)
        request->leaf_offset = out->leaf_offset;
    if (out->status != RUNNEL_OK) {
        rn_draw_fail(request, out);
        return;
    }
    if (out->keep_logits != NULL) {
        out->tells_logits = true;
        pay(decode, request);
    }
    if (out->asks) {
        out->tells_choice = true;
        rn_decode_ask(decode, request);
        pay(decode, request);
    } else if (out->sample) {
        rn_decode_settle_token(decode, request, out);
    }
}

/* What will be told of a chunk of a prompt. Nothing that it computes again after it was preempted. */
static void settle_chunk(struct rn_decode *decode, struct rn_batch_part *part)
{
    struct rn_request *request = part->request;
    uint32_t n_done = part->n_done < request->n_prompt ? part->n_done : request->n_prompt;

    if (!request->want_progress || request->outcome != RN_OUTCOME_NONE || n_done <= request->n_reported)
        return;
    request->n_reported = n_done;
    part->tells_progress = true;
    pay(decode, request);
}

/* The end of a text whose embedding is wanted. */
static void settle_embedding(struct rn_decode *decode, struct rn_batch_part *part)
{
    struct rn_request *request = part->request;

    if (part->status != RUNNEL_OK) {
        request->suspect = true;
        rn_request_fail(request, part->status, "the embedding is not of numbers");
    }
    if (request->outcome != RN_OUTCOME_NONE)
        return;
    part->tells_embedding = true;
    pay(decode, request);
}

/* Blocks of the prompt that others may be waiting for, and its end, of which they may take a copy. Those of the answer
 * the tier sees when the request retires. */
static void settle_computed(const struct rn_decode *decode, struct rn_batch_part *part)
{
    struct rn_request *request = part->request;
    uint32_t per_block = decode->context->limits->block_tokens;

    if (request->outcome == RN_OUTCOME_FAILED || request->suspect || request->n_told == UINT32_MAX ||
        (part->n_done / per_block <= request->n_told / per_block && part->n_done < request->n_fill))
        return;
    RN_ASSERT(part->n_done >= request->n_told && part->n_done <= request->n_fill);
    request->n_told = part->n_done;
    part->tells_computed = true;
}

/* For the books. */
static void settle_drafts(struct rn_batch_part *part, const struct rn_batch_out *outs)
{
    struct rn_request *request = part->request;

    if (part->n_drafts == 0)
        return;
    for (uint32_t i = 1; i < part->n_outs; i++) {
        part->n_accepted += outs[i].drawn;
        part->leaf_offset |= outs[i].drawn && outs[i].leaf_offset > 0;
        part->n_compared += i <= part->n_drafts && outs[i - 1].drawn && (outs[i].drawn || outs[i].refuted);
    }
    request->n_drafted += part->n_drafts + part->n_branches;
    request->n_accepted += part->n_accepted;
    RN_ASSERT(part->n_compared <= part->n_drafts && part->n_accepted - part->leaf_offset <= part->n_compared);
    RN_ASSERT(part->n_accepted <= part->n_drafts && request->n_accepted <= request->n_drafted);
    RN_ASSERT(request->n_done == part->n_done + part->n_accepted || request->outcome == RN_OUTCOME_FAILED);
}

/* The step has failed, or was stopped: its rows are not computed. After a failure nothing that the request has computed
 * is to be trusted; a stop only leaves the places of those rows worth nothing. */
static void settle_failed(struct rn_request *request, struct rn_batch_part *part, runnel_status status)
{
    rn_batch_uncount(request, part); /* also of one that was cancelled meanwhile: its session must not keep them */
    RN_ASSERT(status != RUNNEL_CANCELLED || request->outcome != RN_OUTCOME_NONE); /* who waits for a step stops none */
    request->suspect |= status != RUNNEL_CANCELLED;
    rn_request_fail(request, status, "%s", runnel_status_text(status)); /* one that was stopped has its outcome */
}

static void settle_computation(struct rn_decode *decode, struct rn_batch_part *part, struct rn_batch_out *outs)
{
    struct rn_request *request = part->request;

    if (request->copy == RN_COPY_WANTED)
        request->copy = RN_COPY_DONE;
    if (part->prompt)
        settle_chunk(decode, part);
    if (part->last && part->embed != NULL)
        settle_embedding(decode, part);
    for (uint32_t i = 0; i < part->n_outs; i++)
        settle_out(decode, &outs[i]);
    if (part->prompt)
        settle_computed(decode, part);
}

/* It was computed ahead of an end that the sequence has come to: none of it counts. What it has stored lies behind the
 * sequence. */
static void throw_away(struct rn_batch_part *part, struct rn_batch_out *outs)
{
    rn_batch_uncount(part->request, part);
    part->request->last_chunk &= !part->last;
    for (uint32_t i = 0; i < part->n_outs; i++)
        outs[i].refuted = true;
}

/* What the step means for one sequence, as far as the next step depends on it; `outs` are its wanted rows. */
static void settle_part(struct rn_decode *decode, const struct rn_batch *batch, struct rn_batch_part *part,
                        struct rn_batch_out *outs)
{
    struct rn_request *request = part->request;

    RN_ASSERT(request->in_steps > 0 && rn_request_check(request));
    request->in_steps--;
    if (part->ahead && request->outcome != RN_OUTCOME_NONE) {
        throw_away(part, outs);
        return;
    }
    if (batch->step.status != RUNNEL_OK)
        settle_failed(request, part, batch->step.status);
    else
        settle_computation(decode, part, outs);
    settle_drafts(part, outs);
    rn_decode_settle_state(part);
    if (part->last) {
        RN_ASSERT(request->last_chunk && request->lane != RN_LANE_NONE);
        request->last_chunk = false;
        free_lane(decode, request);
        RN_CHECK(rn_request_remove(&decode->prompts, request->slot, request->generation) == request);
        RN_CHECK(decode->n_running < decode->context->max_streams);
        decode->running[decode->n_running++] = request;
        decode->has_choices |= rn_decode_awaits_choice(decode, request);
        if (request->n_fill >= request->n_limit)
            rn_request_end(request, RN_OUTCOME_DONE, RUNNEL_FINISH_LENGTH);
    }
}

/* Called by the backend, on its thread: the batch goes on to the sampler. */
static void on_step_done(struct rn_step *step)
{
    const struct rn_context *context = ((const struct rn_decode *)step->user)->context;
    struct rn_batch *batch = (struct rn_batch *)step;
    struct rn_msg *msg = batch->msg;

    rn_telemetry_step_done(batch, context);
    msg->head.kind = RN_MSG_STEP_DONE;
    msg->batch.batch = batch;
    rn_actor_send(context->sampler, msg);
}

static void take_list_of(struct rn_decode *decode, struct rn_batch *batch)
{
    RN_ASSERT(batch->list == NULL && batch->computed == NULL); /* those that it had were sent */
    batch->list = decode->free_lists;
    decode->free_lists = batch->list->next;
    batch->list->n = 0;
    batch->computed = decode->free_computed;
    decode->free_computed = batch->computed->next;
    batch->computed->n = 0;
}

static void submit(struct rn_decode *decode, struct rn_batch *batch)
{
    struct rn_backend *backend = decode->context->backend;

    take_list_of(decode, batch);
    RN_ASSERT(rn_decode_batch_check(batch));
    rn_step_ring_submit(&decode->ring);
    batch->msg = rn_msg_new(decode->actor.runtime, RN_MSG_STEP_DONE);
    batch->step.on_done = on_step_done;
    batch->step.user = decode;
    rn_draws_ask(batch);
    RN_ASSERT(decode->context->plan == NULL ||
              rn_step_check(&batch->step, decode->context->plan, decode->context->limits));
    rn_telemetry_step_begun(decode->context, batch, decode->ring.n_flying == 1);
    if (batch->n_guided > 0)
        rn_batch_ask_for_masks(decode, batch);
    backend->ops->submit_async(backend, &batch->step);
}

/* The next steps, as many as may be in flight, while there is something to compute. */
static void begin_steps(struct rn_decode *decode)
{
    uint32_t depth = rn_outs_depth(decode);

    while (decode->ring.n_flying < depth && decode->free_lists != NULL && decode->free_computed != NULL &&
           !decode->holds && !rn_decode_awaits_company(decode) && rn_batch_compose(decode))
        submit(decode, decode->batch);
}

static void take(struct rn_decode *decode, const struct rn_proposal_list *list)
{
    RN_ASSERT(list->n <= decode->context->limits->max_seqs);
    for (uint32_t i = 0; i < list->n; i++)
        decode->proposals[list->items[i].slot] = list->items[i];
}

/* What the verifier has sent with the batch. */
static void take_proposals(struct rn_decode *decode, struct rn_batch *batch)
{
    RN_ASSERT((batch->news == NULL || decode->news == NULL) && (!batch->holds || batch->proposals.n == 0));
    take(decode, &batch->proposals);
    decode->holds = batch->holds;
    if (batch->news != NULL)
        decode->news = batch->news;
    batch->news = NULL;
}

/* The end of a wait. */
static void on_proposals(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_decode *decode = decode_of(self);

    RN_ASSERT(decode->holds && decode->ring.n_flying == 0);
    take(decode, msg->proposals.list);
    decode->holds = false;
    msg->head.kind = RN_MSG_PROPOSALS_BACK;
    rn_actor_send(decode->context->verifier, msg);
}

static void settle(struct rn_decode *decode, struct rn_batch *batch)
{
    struct rn_batch_out *outs = batch->outs;

    if (batch->verifies)
        take_proposals(decode, batch);
    else
        rn_batch_note_cost(batch);
    if (batch->step.status == RUNNEL_OK)
        rn_keep_time_note(&decode->keep, batch->step.n_rows - batch->n_answer_rows, batch->step.n_rows,
                          (batch->end_ns - batch->begin_ns) / 1000);
    if (!batch->waited && batch->step.status == RUNNEL_OK)
        rn_prompt_budget_note(&decode->pace, batch->n_readers, batch->n_answer_rows,
                              batch->step.n_rows - batch->n_answer_rows, (batch->end_ns - batch->begin_ns) / 1000);
    for (uint32_t i = 0; i < batch->n_parts; i++) {
        settle_part(decode, batch, &batch->parts[i], outs);
        outs += batch->parts[i].n_outs;
    }
    RN_ASSERT(outs == batch->outs + batch->step.n_outs);
}

/* The books of a batch that is settled. */
static void tell(struct rn_decode *decode, struct rn_batch *batch)
{
    const struct rn_batch_out *outs = batch->outs;

    decode->now_us = rn_telemetry_step(&decode->actor, decode->context, batch);
    for (uint32_t i = 0; i < batch->n_parts; i++) {
        rn_decode_tell_part(decode, batch, &batch->parts[i], outs);
        outs += batch->parts[i].n_outs;
    }
    rn_decode_send_lists(decode, batch->list, batch->computed); /* before an END: its RETIRE must come behind */
    batch->list = NULL;
    batch->computed = NULL;
    for (uint32_t i = 0; i < batch->n_parts; i++)
        rn_decode_drop_if_done(decode, batch->parts[i].request);
}

/* Between settle and tell no request leaves, and nothing else is handled. */
static void on_sampled(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_decode *decode = decode_of(self);
    struct rn_batch *batch = msg->batch.batch;

    rn_msg_free(self->runtime, msg);
    RN_ASSERT(!decode->holds); /* while a step is held back none is in flight */
    rn_step_ring_take(&decode->ring, batch);
    settle(decode, batch);
    begin_steps(decode);
    tell(decode, batch);
}

static void flush(struct rn_actor *self)
{
    struct rn_decode *decode = decode_of(self);

    rn_decode_take_choices(decode);
    give_back_stalled(decode);
    begin_steps(decode);
    rn_decode_sleep(decode);
}

/* What is due then, the flush does. */
static void on_wake(struct rn_actor *self, struct rn_msg *msg)
{
    RN_ASSERT(decode_of(self)->waking);
    decode_of(self)->waking = false;
    rn_msg_free(self->runtime, msg);
}

static void on_close(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_decode *decode = decode_of(self);

    RN_CHECK(decode->ring.n_flying == 0 && decode->n_running == 0 && decode->prompts.n == 0);
    rn_actor_on_close(self, msg);
}

static const struct rn_actor_class decode_class = {
    .name = "decode",
    .handlers =
        {
            [RN_MSG_OFFER] = on_offer,
            [RN_MSG_CANCEL] = on_end_request,
            [RN_MSG_EXPIRE] = on_end_request,
            [RN_MSG_PREEMPT] = on_end_request,
            [RN_MSG_CREDIT] = on_credit,
            [RN_MSG_CHOICE] = rn_decode_on_choice,
            [RN_MSG_STOPPED] = on_stopped,
            [RN_MSG_GRANT] = on_grant,
            [RN_MSG_SHORT] = on_short,
            [RN_MSG_WAKE] = on_wake,
            [RN_MSG_SAMPLED] = on_sampled,
            [RN_MSG_TOKENS_BACK] = on_tokens_back,
            [RN_MSG_COMPUTED_BACK] = on_computed_back,
            [RN_MSG_PROPOSALS] = on_proposals,
            [RN_MSG_CLOSE] = on_close,
        },
    .flush = flush,
};

static runnel_status take_lists(struct rn_decode *decode, struct rn_heap *heap)
{
    /* A row gives at most two events (logits and a token), a chunk one more, and the end of a prompt its embedding. */
    const struct rn_backend_limits *limits = decode->context->limits;
    uint32_t capacity = 2 * limits->max_outs + 2 * limits->max_seqs;

    for (uint32_t i = 0; i < RN_TOKEN_LISTS; i++) {
        struct rn_token_list *list = &decode->lists[i];

        list->capacity = capacity;
        list->items = rn_alloc(heap, capacity, sizeof *list->items);
        if (list->items == NULL)
            return RUNNEL_NO_MEMORY;
        list->next = decode->free_lists;
        decode->free_lists = list;
    }
    return RUNNEL_OK;
}

runnel_status rn_decode_init(struct rn_decode *decode, const struct rn_context *context)
{
    struct rn_heap *heap = context->heap;

    *decode = (struct rn_decode){.context = context, .cost = *context->cost};
    rn_prompt_budget_init(&decode->pace, context->options->max_slowdown);
    for (uint32_t i = 0; i < RN_COMPUTED_LISTS; i++) {
        decode->computed_lists[i].next = decode->free_computed;
        decode->free_computed = &decode->computed_lists[i];
    }
    decode->running = rn_alloc(heap, context->max_streams, sizeof decode->running[0]);
    decode->credits = rn_calloc(heap, context->max_streams, sizeof decode->credits[0]);
    decode->proposals = rn_calloc(heap, context->max_streams, sizeof decode->proposals[0]);
    if (decode->running == NULL || decode->credits == NULL || decode->proposals == NULL ||
        rn_step_ring_init(&decode->ring, context, &decode->cost) != RUNNEL_OK ||
        take_lists(decode, heap) != RUNNEL_OK) {
        rn_decode_fini(decode);
        return RUNNEL_NO_MEMORY;
    }
    rn_actor_init(&decode->actor, context->runtime, &decode_class, rn_bounds_credits(&context->bounds, RN_ROLE_DECODE));
    return RUNNEL_OK;
}

void rn_decode_fini(struct rn_decode *decode)
{
    struct rn_heap *heap = decode->context->heap;

    rn_free(heap, decode->running);
    rn_free(heap, decode->credits);
    rn_free(heap, decode->proposals);
    rn_step_ring_fini(&decode->ring, heap);
    for (uint32_t i = 0; i < RN_TOKEN_LISTS; i++)
        rn_free(heap, decode->lists[i].items);
}
