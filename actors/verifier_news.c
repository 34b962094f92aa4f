/* The verifier: what the draft actor is told of each stream that drafts. See verifier_actor.h, and draft/drafter.h for the
 * lists. */
#include <string.h>

#include "actors/context.h"
#include "actors/verifier_actor.h"
#include "base/check.h"

#define NEWS_TOKENS 4096u    /* of one list: a long prompt goes in several */
#define READ_SHARE 0.5f      /* of a budget, for what is to be read: the other half finds out whether that was of use */
#define READ_PROMPT 0.03125f /* of the time that the model takes for a prompt */
#define READ_BESIDE 16.0f    /* steps, where nobody waits for it but its own first guess */

/* ---- Begin and end ---- */

void rn_verifier_begin_drafts(struct rn_verifier *verifier, uint32_t slot)
{
    struct rn_verifier_lane *lane = &verifier->lanes[slot];

    if (verifier->drafter == NULL || !lane->draft_model || verifier->failed)
        return;
    /* One in whose slot an end is still to be told waits for a later step to begin. */
    if (lane->begun || lane->ending || verifier->n_begun == verifier->drafter->limits.max_seqs)
        return;
    lane->state = RN_DRAFTS_BEHIND;
    lane->begun = lane->changed = true;
    lane->told = lane->flying = lane->waits = lane->waited = false;
    lane->n_told = lane->n_flying = lane->leaves = lane->n_positions = lane->leaf_offset = 0;
    lane->free_us = lane->read_us = 0;
    lane->want = lane->draft_max;
    for (uint32_t i = 0; i < RN_GUESS_LINES; i++)
        lane->lines[i].first = lane->lines[i].n = 0;
    lane->listed = verifier->n_begun;
    verifier->begun[verifier->n_begun++] = slot;
}

void rn_verifier_end_drafts(struct rn_verifier *verifier, uint32_t slot)
{
    struct rn_verifier_lane *lane = &verifier->lanes[slot];

    if (!lane->begun)
        return;
    lane->begun = lane->changed = false;
    verifier->n_begun--;
    for (uint32_t i = lane->listed; i < verifier->n_begun; i++) { /* the order of the others stays */
        verifier->begun[i] = verifier->begun[i + 1];
        verifier->lanes[verifier->begun[i]].listed = i;
    }
    if (!lane->told)
        return;
    RN_CHECK(!lane->ending);
    lane->ending = true;
    lane->ended = lane->generation;
    verifier->endings[verifier->n_endings++] = slot;
}

/* ---- What may be read ---- */

/* What the model itself is still to compute of what the request begins with. */
static float prompt_us(const struct rn_verifier *verifier, const struct rn_verifier_lane *lane)
{
    uint32_t rows = lane->n_fill > lane->n_done ? lane->n_fill - lane->n_done : 0;
    uint32_t most = verifier->context->limits->max_rows, chunk = rows < most ? rows : most;

    return rows == 0 ? 0 : rn_step_cost_of(&verifier->cost, chunk) * (float)rows / (float)chunk;
}

/* What a token is worth, in time: all running streams wait while one's past is read. */
static float token_us(const struct rn_verifier *verifier)
{
    uint32_t n = verifier->n_running > 0 ? verifier->n_running : 1;

    return rn_step_cost_of(&verifier->cost, n) / (float)n;
}

/* What reading the rest of the stream's past may cost now. */
static float may_read_us(const struct rn_verifier *verifier, const struct rn_verifier_lane *lane)
{
    float budget = lane->model.budget;

    if (verifier->drafter->concurrent)
        return READ_BESIDE * rn_step_cost_of(&verifier->cost, 1) + prompt_us(verifier, lane);
    return lane->free_us + (budget > 0 ? READ_SHARE * budget * token_us(verifier) : 0);
}

void rn_verifier_pay_reading(const struct rn_verifier *verifier, struct rn_verifier_lane *lane)
{
    float us = lane->read_us < lane->free_us ? 0 : lane->read_us - lane->free_us;

    lane->free_us -= lane->read_us - us;
    lane->read_us = 0;
    if (us > 0 && !verifier->drafter->concurrent)
        lane->model.budget -= us / token_us(verifier);
}

/* ---- News ---- */

static bool add_ending(struct rn_verifier *verifier, struct rn_news_list *list, uint32_t slot)
{
    struct rn_verifier_lane *lane = &verifier->lanes[slot];

    if (list->n == list->capacity)
        return false;
    list->items[list->n++] = (struct rn_news){.slot = slot, .generation = lane->ended, .ended = true};
    lane->ending = false;
    return true;
}

/* What is new of one stream, as far as there is room. */
static void add_news(struct rn_verifier *verifier, struct rn_news_list *list, uint32_t slot)
{
    struct rn_verifier_lane *lane = &verifier->lanes[slot];
    uint32_t n = lane->n_tokens - lane->n_told;
    struct rn_news *news;
    bool begins = !lane->told;

    if (!lane->changed || list->n == list->capacity ||
        (list->n_tokens == list->token_capacity && lane->n_positions == 0)) {
        lane->n_positions = 0; /* they were the list's; without them it begins behind the gap */
        return;
    }
    news = &list->items[list->n++];
    n = n < list->token_capacity - list->n_tokens ? n : list->token_capacity - list->n_tokens;
    *news = (struct rn_news){.slot = slot,
                             .generation = lane->generation,
                             .waits = lane->waits,
                             .begins = begins,
                             .n_limit = lane->n_limit,
                             .first = lane->n_told,
                             .n_tokens = n,
                             .tokens = list->tokens + list->n_tokens,
                             .n_flying = lane->n_flying,
                             .leaves = lane->leaves,
                             .flying = lane->flying,
                             .want = lane->want,
                             .odds = rn_odds_of(&lane->model),
                             .features_at = lane->features_at,
                             .n_positions = lane->n_positions,
                             .leaf_offset = lane->leaf_offset};
    if (news->n_positions > 0)
        news->features = list->features + (size_t)lane->features * verifier->context->row_features;
    lane->n_positions = 0;
    lane->told = true;
    if (begins) {
        news->sampling = lane->sampling;
        news->salt = lane->salt;
        lane->free_us = READ_PROMPT * prompt_us(verifier, lane);
    }
    news->read_us = may_read_us(verifier, lane);
    memcpy(list->tokens + list->n_tokens, lane->tokens + lane->n_told, n * sizeof list->tokens[0]);
    list->n_tokens += n;
    lane->n_told += n;
    lane->changed = news->more = lane->n_told < lane->n_tokens;
}

static void send(struct rn_verifier *verifier, struct rn_news_list *list)
{
    struct rn_msg *msg = rn_msg_new(verifier->actor.runtime, RN_MSG_NEWS);

    list->step_us = (uint32_t)rn_step_cost_of(&verifier->cost, 1);
    list->ends_us = verifier->holds ? 0 : verifier->ends_us;
    msg->news.list = list;
    rn_actor_send(verifier->context->draft, msg);
}

void rn_verifier_tell(struct rn_verifier *verifier)
{
    struct rn_news_list *list = verifier->full != NULL ? verifier->full : verifier->free_lists;

    if (verifier->drafter == NULL || list == NULL || verifier->closing)
        return;
    if (list == verifier->full)
        verifier->full = NULL;
    else
        verifier->free_lists = list->next;
    list->n = list->n_tokens = list->serial = 0;
    while (verifier->n_endings > 0 && add_ending(verifier, list, verifier->endings[verifier->n_endings - 1]))
        verifier->n_endings--;
    for (uint32_t i = 0; i < verifier->n_begun; i++)
        add_news(verifier, list, verifier->begun[i]);
    if (verifier->must_tell) {
        verifier->must_tell = false;
        list->serial = verifier->serial;
        list->max_wait_us = verifier->max_wait_us;
    }
    if (list->n > 0 || list->serial != 0) {
        send(verifier, list);
        return;
    }
    list->next = verifier->free_lists;
    verifier->free_lists = list;
}

bool rn_verifier_close_news(struct rn_verifier *verifier)
{
    struct rn_news_list *list = verifier->free_lists;

    if (verifier->drafter == NULL || verifier->closed)
        return true;
    if (verifier->closing || list == NULL)
        return false;
    verifier->closing = true;
    verifier->free_lists = list->next;
    list->n = list->n_tokens = list->serial = 0;
    list->closing = true;
    send(verifier, list);
    return false;
}

/* ---- Life ---- */

runnel_status rn_verifier_new_lists(struct rn_verifier *verifier)
{
    const struct rn_context *context = verifier->context;
    struct rn_heap *heap = verifier->context->heap;
    size_t n_features = (size_t)context->limits->max_rows * context->row_features;

    for (uint32_t i = 0; i < RN_NEWS_LISTS; i++) {
        struct rn_news_list *list = &verifier->lists[i];

        list->capacity = 2 * verifier->drafter->limits.max_seqs;
        list->token_capacity = NEWS_TOKENS;
        list->items = rn_alloc(heap, list->capacity, sizeof list->items[0]);
        list->tokens = rn_alloc(heap, list->token_capacity, sizeof list->tokens[0]);
        if (verifier->drafter->n_features > 0)
            list->features = rn_alloc(heap, n_features, sizeof(float));
        if (list->items == NULL || list->tokens == NULL || (verifier->drafter->n_features > 0 && !list->features))
            return RUNNEL_NO_MEMORY;
        list->next = verifier->free_lists;
        verifier->free_lists = list;
    }
    return RUNNEL_OK;
}

void rn_verifier_free_lists(struct rn_verifier *verifier)
{
    struct rn_heap *heap = verifier->context->heap;

    for (uint32_t i = 0; i < RN_NEWS_LISTS; i++) {
        rn_free(heap, verifier->lists[i].items);
        rn_free(heap, verifier->lists[i].tokens);
        rn_free(heap, verifier->lists[i].features);
    }
}
