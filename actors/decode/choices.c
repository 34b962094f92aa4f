/* Tokens that hosts draw (runnel_samplers.choose), at decode.
 *
 *   step ─▶ candidates ─▶ ask ─▶ detokenizer ─▶ the stream's reader ... its host ... CHOICE ─▶ the token joins the sequence
 *
 * Until then the stream has no rows in any step; all others go on. Its reader counts as behind: where blocks are short
 * it goes back to the tier, and comes again once the choice is made. A choice that is made meanwhile is kept with its
 * credit, so that a host is asked once for each token. */
#include "actors/context.h"
#include "actors/decode_actor.h"
#include "actors/host/outlet.h"
#include "base/check.h"

void rn_decode_ask(struct rn_decode *decode, struct rn_request *request)
{
    RN_ASSERT(!rn_decode_awaits_choice(decode, request) && request->choice != NULL);
    decode->credits[request->slot].choice = RN_CHOICE_ASKED;
    rn_choice_tell(request->choice, request->tokens, request->n_tokens, request->n_dropped);
}

void rn_decode_call_back(struct rn_decode *decode, uint32_t slot)
{
    struct rn_credit *credit = &decode->credits[slot];
    struct rn_msg *msg;

    if (!credit->away || credit->n <= 0 || credit->choice == RN_CHOICE_ASKED)
        return;
    credit->away = false;
    msg = rn_msg_new(decode->actor.runtime, RN_MSG_READY);
    msg->stream = (struct rn_pay_stream){slot, credit->generation, 0};
    rn_actor_send(decode->context->tier, msg);
}

void rn_decode_on_choice(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_decode *decode = (struct rn_decode *)self;
    struct rn_pay_choice made = msg->choice;
    struct rn_credit *credit = &decode->credits[made.slot];

    rn_msg_free(self->runtime, msg);
    if (credit->generation != made.generation)
        return;
    RN_ASSERT(credit->choice == RN_CHOICE_ASKED);
    credit->choice = RN_CHOICE_MADE;
    credit->made = made;
    decode->has_choices = true;
    rn_decode_call_back(decode, made.slot);
}

static void fail(struct rn_request *request, const struct rn_pay_choice *made)
{
    unsigned long long position = request->n_tokens + request->n_dropped;

    if (made->place == RN_CHOICE_NOTHING)
        rn_request_fail(request, RUNNEL_INVALID,
                        "the host's sampler has left nothing to draw at position %llu: its logits are -infinity, or "
                        "one is NaN or +infinity",
                        position);
    else
        rn_request_fail(request, RUNNEL_INVALID,
                        "the host's sampler has chosen a candidate that does not exist, of %u at position %llu",
                        request->choice->list.n, position);
}

/* What the request's host has drawn, as a row of a step would have drawn it. */
static void take(struct rn_decode *decode, struct rn_request *request, struct rn_token_list *list)
{
    const struct rn_pay_choice *made = &decode->credits[request->slot].made;
    struct rn_batch_out out = {.request = request, .sample = true, .ended = made->ended, .last = made->last};

    RN_ASSERT(request->in_steps == 0 && request->n_done == request->n_tokens && request->choice != NULL);
    decode->credits[request->slot].choice = RN_CHOICE_NONE;
    if (!rn_choice_take(request->choice, made->place, &out.pick)) {
        fail(request, made);
    } else if (made->status != RUNNEL_OK) {
        rn_request_fail_about(request, RUNNEL_ABOUT_GRAMMAR, (runnel_status)made->status, "grammar: %s",
                              runnel_status_text((runnel_status)made->status));
    } else {
        rn_decode_settle_token(decode, request, &out);
        rn_decode_tell_out(decode, list, &out);
    }
}

/* Fills the list; false: it is full. */
static bool take_all(struct rn_decode *decode, struct rn_token_list *list)
{
    for (uint32_t i = 0; i < decode->n_running; i++) {
        if (decode->credits[decode->running[i]->slot].choice != RN_CHOICE_MADE)
            continue;
        if (list->n == list->capacity)
            return false;
        take(decode, decode->running[i], list);
    }
    return true;
}

void rn_decode_take_choices(struct rn_decode *decode)
{
    struct rn_token_list *list = decode->free_lists;

    if (!decode->has_choices || list == NULL)
        return;
    decode->free_lists = list->next;
    list->n = 0;
    decode->now_us = rn_now_us(decode->context->clock);
    decode->has_choices = !take_all(decode, list);
    rn_decode_send_lists(decode, list, NULL); /* before an END: its RETIRE must come behind */
    for (uint32_t i = decode->n_running; i-- > 0;)
        rn_decode_drop_if_done(decode, decode->running[i]);
}
