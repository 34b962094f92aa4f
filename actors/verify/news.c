/* The verifier: what the draft actor is told of each stream that drafts. See verifier_actor.h, and draft/drafter.h for
 * the lists. */
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
    struct rn_verifier_stream *stream = &verifier->streams[slot];

    if (verifier->drafter == NULL || !stream->draft_model || verifier->failed)
        return;
    /* One in whose slot an end is still to be told waits for a later step to begin. */
    if (stream->begun || stream->ending || verifier->n_begun == verifier->drafter->limits.max_seqs)
        return;
    RN_ASSERT(stream->here && stream->n_tokens > 0);
    stream->state = RN_DRAFTS_BEHIND;
    stream->begun = stream->changed = true;
    stream->told = stream->flying = stream->waits = stream->waited = false;
    stream->n_told = stream->n_flying = stream->leaves = stream->n_positions = stream->leaf_offset = 0;
    stream->free_us = stream->read_us = 0;
    stream->want = stream->draft_max;
    for (uint32_t i = 0; i < RN_GUESS_LINES; i++)
        stream->lines[i].first = stream->lines[i].n = 0;
    stream->listed = verifier->n_begun;
    verifier->begun[verifier->n_begun++] = slot;
}

void rn_verifier_end_drafts(struct rn_verifier *verifier, uint32_t slot)
{
    struct rn_verifier_stream *stream = &verifier->streams[slot];

    if (!stream->begun)
        return;
    RN_CHECK(verifier->n_begun > 0 && verifier->begun[stream->listed] == slot);
    stream->begun = stream->changed = false;
    verifier->n_begun--;
    for (uint32_t i = stream->listed; i < verifier->n_begun; i++) { /* the order of the others stays */
        verifier->begun[i] = verifier->begun[i + 1];
        verifier->streams[verifier->begun[i]].listed = i;
    }
    if (!stream->told)
        return;
    RN_CHECK(!stream->ending && verifier->n_endings < verifier->context->max_streams);
    stream->ending = true;
    stream->ended = stream->generation;
    verifier->endings[verifier->n_endings++] = slot;
}

/* ---- What may be read ---- */

/* What the model itself is still to compute of what the request begins with. */
static float prompt_us(const struct rn_verifier *verifier, const struct rn_verifier_stream *stream)
{
    uint32_t rows = stream->n_fill > stream->n_done ? stream->n_fill - stream->n_done : 0;
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
static float may_read_us(const struct rn_verifier *verifier, const struct rn_verifier_stream *stream)
{
    float budget = stream->model.budget;

    if (verifier->drafter->concurrent)
        return READ_BESIDE * rn_step_cost_of(&verifier->cost, 1) + prompt_us(verifier, stream);
    return stream->free_us + (budget > 0 ? READ_SHARE * budget * token_us(verifier) : 0);
}

void rn_verifier_pay_reading(const struct rn_verifier *verifier, struct rn_verifier_stream *stream)
{
    float us = stream->read_us < stream->free_us ? 0 : stream->read_us - stream->free_us;

    stream->free_us -= stream->read_us - us;
    stream->read_us = 0;
    if (us > 0 && !verifier->drafter->concurrent)
        stream->model.budget -= us / token_us(verifier);
}

/* ---- News ---- */

static bool add_ending(struct rn_verifier *verifier, struct rn_news_list *list, uint32_t slot)
{
    struct rn_verifier_stream *stream = &verifier->streams[slot];

    if (list->n == list->capacity)
        return false;
    RN_ASSERT(stream->ending && !stream->begun && stream->ended != 0);
    list->items[list->n++] = (struct rn_news){.slot = slot, .generation = stream->ended, .ended = true};
    stream->ending = false;
    return true;
}

/* What is new of one stream, as far as there is room. */
static void add_news(struct rn_verifier *verifier, struct rn_news_list *list, uint32_t slot)
{
    struct rn_verifier_stream *stream = &verifier->streams[slot];
    uint32_t n = stream->n_tokens - stream->n_told;
    struct rn_news *news;
    bool begins = !stream->told;

    if (!stream->changed || list->n == list->capacity ||
        (list->n_tokens == list->token_capacity && stream->n_positions == 0)) {
        stream->n_positions = 0; /* they were the list's; without them it begins behind the gap */
        return;
    }
    news = &list->items[list->n++];
    n = n < list->token_capacity - list->n_tokens ? n : list->token_capacity - list->n_tokens;
    *news = (struct rn_news){.slot = slot,
                             .generation = stream->generation,
                             .waits = stream->waits,
                             .begins = begins,
                             .n_limit = stream->n_limit,
                             .first = stream->n_told,
                             .n_tokens = n,
                             .tokens = list->tokens + list->n_tokens,
                             .n_flying = stream->n_flying,
                             .leaves = stream->leaves,
                             .flying = stream->flying,
                             .want = stream->want,
                             .odds = rn_odds_of(&stream->model),
                             .features_at = stream->features_at,
                             .n_positions = stream->n_positions,
                             .leaf_offset = stream->leaf_offset};
    if (news->n_positions > 0)
        news->features = list->features + (size_t)stream->features * verifier->context->row_features;
    stream->n_positions = 0;
    stream->told = true;
    if (begins) {
        news->sampling = stream->sampling;
        news->salt = stream->salt;
        stream->free_us = READ_PROMPT * prompt_us(verifier, stream);
    }
    RN_CHECK(list->n_tokens + n <= list->token_capacity);
    news->read_us = may_read_us(verifier, stream);
    memcpy(list->tokens + list->n_tokens, stream->tokens + stream->n_told, n * sizeof list->tokens[0]);
    list->n_tokens += n;
    stream->n_told += n;
    RN_ASSERT(stream->n_told == news->first + news->n_tokens && stream->n_told <= stream->n_tokens);
    stream->changed = news->more = stream->n_told < stream->n_tokens;
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
    RN_ASSERT(verifier->n_begun == 0 && verifier->postponed == NULL); /* a wait may go on: its streams have ended */
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
