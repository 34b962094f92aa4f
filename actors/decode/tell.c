/* What decode tells of its steps: events for the detokenizer, computed blocks for the tier. See decode_actor.h. */
#include <string.h>

#include "actors/context.h"
#include "actors/decode_actor.h"
#include "actors/telemetry/telemetry.h"
#include "base/check.h"

/* The next event of a request in the list; its credit is paid. */
static struct rn_token_item *add_item(struct rn_token_list *list, const struct rn_request *request,
                                      runnel_event_type type)
{
    struct rn_token_item *item = &list->items[list->n++];

    RN_CHECK(list->n <= list->capacity);
    item->slot = request->slot;
    item->generation = request->generation;
    item->type = type;
    item->joined = item->asks = false;
    return item;
}

void rn_decode_tell_out(struct rn_decode *decode, struct rn_token_list *list, const struct rn_batch_out *out)
{
    struct rn_token_item *item;

    if (out->tells_logits) {
        item = add_item(list, out->request, RUNNEL_EVENT_LOGITS);
        item->position = out->position;
        item->logits = out->keep_logits;
    }
    if (out->tells_choice)
        add_item(list, out->request, RUNNEL_EVENT_LOGITS)->asks = true;
    if (out->drawn)
        rn_telemetry_token(&decode->actor, out->request, decode->now_us);
    if (out->tells_token) {
        item = add_item(list, out->request, RUNNEL_EVENT_TOKEN);
        item->token = out->pick.token;
        item->logprob = out->pick.logprob;
        item->n_top = out->pick.n_top;
        memcpy(item->top, out->pick.top, out->pick.n_top * sizeof out->pick.top[0]);
    }
}

/* The request may be in the next step already. */
void rn_decode_tell_part(struct rn_decode *decode, struct rn_batch *batch, const struct rn_batch_part *part,
                         const struct rn_batch_out *outs)
{
    const struct rn_request *request = part->request;

    if (part->tells_progress) {
        struct rn_token_item *item = add_item(batch->list, request, RUNNEL_EVENT_PROGRESS);

        item->prompt_done = part->n_done < request->n_prompt ? part->n_done : request->n_prompt;
        item->prompt_total = request->n_prompt;
        item->prompt_cached = request->n_cached;
    }
    if (part->tells_embedding)
        add_item(batch->list, request, RUNNEL_EVENT_EMBEDDING);
    for (uint32_t i = 0; i < part->n_outs; i++)
        rn_decode_tell_out(decode, batch->list, &outs[i]);
    if (part->tells_computed) {
        struct rn_computed_list *list = batch->computed;

        RN_CHECK(list->n < RN_COMPUTED_ITEMS);
        list->items[list->n++] = (struct rn_computed){request->slot, request->generation, part->n_done};
    }
}

void rn_decode_send_lists(struct rn_decode *decode, struct rn_token_list *list, struct rn_computed_list *computed)
{
    if (list->n > 0) {
        struct rn_msg *msg = rn_msg_new(decode->actor.runtime, RN_MSG_TOKENS);

        msg->tokens.list = list;
        rn_actor_send(decode->context->detokenizer, msg);
    } else {
        list->next = decode->free_lists;
        decode->free_lists = list;
    }
    if (computed == NULL)
        return;
    if (computed->n > 0) {
        struct rn_msg *msg = rn_msg_new(decode->actor.runtime, RN_MSG_COMPUTED);

        msg->computed.list = computed;
        rn_actor_send(decode->context->tier, msg);
    } else {
        computed->next = decode->free_computed;
        decode->free_computed = computed;
    }
}
