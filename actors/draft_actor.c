/* The draft actor: draft streams, news and what the verifier is told. How a pass is made is in draft/pass.c. See
 * draft_actor.h. */
#include "actors/draft_actor.h"

#include <string.h>

#include "actors/context.h"
#include "actors/draft/branch.h"
#include "actors/draft/cache.h"
#include "actors/draft/features.h"
#include "actors/draft/pass.h"
#include "actors/draft/wishes.h"
#include "base/check.h"

static struct rn_draft_actor *draft_of(struct rn_actor *actor)
{
    return (struct rn_draft_actor *)actor;
}

static bool has_waits(const struct rn_draft_actor *draft)
{
    return draft->serial != draft->answered;
}

/* ---- News ---- */

/* The draft stream of a stream; NULL: it has none. */
static struct rn_draft_stream *find(struct rn_draft_actor *draft, const struct rn_news *news)
{
    for (uint32_t i = 0; i < draft->n_draft_streams; i++)
        if (draft->draft_streams[i].generation == news->generation && draft->draft_streams[i].slot == news->slot &&
            !draft->draft_streams[i].ended)
            return &draft->draft_streams[i];
    return NULL;
}

/* Nothing that is in a pass can be freed before it is back. */
static void end_draft_stream(struct rn_draft_actor *draft, struct rn_draft_stream *draft_stream)
{
    if (rn_draft_in_pass(draft_stream)) {
        draft_stream->ended = true;
        return;
    }
    rn_draft_cache_keep(draft, draft_stream);
    rn_draft_free_stream(draft, draft_stream);
}

/* Without memory the stream has a draft stream that is off; without a draft stream, none: then nothing is told, and
 * none waits. */
static struct rn_draft_stream *begin_draft_stream(struct rn_draft_actor *draft, const struct rn_news *news)
{
    const struct rn_backend_limits *limits = &draft->drafter->limits;
    struct rn_heap *heap = draft->context->heap;
    uint32_t most = news->n_limit > news->first ? news->n_limit - news->first : 1;
    uint32_t capacity = most < limits->context_tokens ? most : limits->context_tokens;
    struct rn_draft_stream *draft_stream = draft->draft_streams;

    RN_ASSERT((news->generation & 1) != 0 && find(draft, news) == NULL);
    while (draft_stream < draft->draft_streams + draft->n_draft_streams && draft_stream->generation != 0)
        draft_stream++;
    if (draft_stream == draft->draft_streams + draft->n_draft_streams)
        return NULL;
    *draft_stream = (struct rn_draft_stream){.slot = news->slot,
                                             .generation = news->generation,
                                             .base = news->first,
                                             .capacity = capacity,
                                             .max_blocks = (capacity + limits->block_tokens - 1) / limits->block_tokens,
                                             .sampling = news->sampling,
                                             .salt = news->salt,
                                             .n_valid = UINT32_MAX};
    draft_stream->tokens = rn_alloc(heap, capacity, sizeof draft_stream->tokens[0]);
    draft_stream->blocks = rn_alloc(heap, draft_stream->max_blocks, sizeof draft_stream->blocks[0]);
    if (!rn_draft_stream_features_new(draft, draft_stream) || !rn_branch_new(draft, draft_stream) ||
        draft_stream->tokens == NULL || draft_stream->blocks == NULL) {
        rn_draft_stream_features_free(draft, draft_stream);
        rn_branch_free(draft, draft_stream);
        rn_free(heap, draft_stream->tokens);
        rn_free(heap, draft_stream->blocks);
        draft_stream->tokens = NULL;
        draft_stream->blocks = NULL;
        draft_stream->capacity = 0;
        rn_draft_switch_off(draft, draft_stream);
    }
    if (draft->failed)
        rn_draft_switch_off(draft, draft_stream);
    draft_stream->changed = true;
    return draft_stream;
}

/* Where something else was guessed, all behind it was in vain, but for a branch that says so. */
static void turn(struct rn_draft_actor *draft, struct rn_draft_stream *draft_stream, uint32_t x, int32_t token)
{
    if (rn_branch_is(draft_stream, x, token)) {
        rn_branch_adopt(draft, draft_stream);
        return;
    }
    RN_ASSERT(x >= draft_stream->n_known); /* what is known stays */
    rn_branch_drop(draft, draft_stream);
    draft_stream->n_tokens = x;
    rn_draft_stream_forget(draft_stream, x);
}

/* A token that is known now at index x. */
static void learn(struct rn_draft_actor *draft, struct rn_draft_stream *draft_stream, uint32_t x, int32_t token)
{
    RN_CHECK(x < draft_stream->capacity);
    RN_ASSERT(x == draft_stream->n_known);
    if (x < draft_stream->n_tokens && draft_stream->tokens[x] != token)
        turn(draft, draft_stream, x, token);
    draft_stream->tokens[x] = token;
    draft_stream->n_known = x + 1;
    if (draft_stream->n_tokens < draft_stream->n_known)
        draft_stream->n_tokens = draft_stream->n_known;
    if (draft_stream->branch.at <= x)
        rn_branch_drop(draft, draft_stream);
}

/* The target's features of the text's rows; where its last one was a leaf, that stands behind the chain. */
static void learn_features(const struct rn_draft_actor *draft, struct rn_draft_stream *draft_stream,
                           const struct rn_news *news)
{
    uint32_t at = news->features_at - draft_stream->base, n = news->n_positions - (news->leaf_offset > 0);
    size_t stride = draft->context->row_features;

    RN_ASSERT(news->leaf_offset == 0 || news->leaf_offset >= n); /* a leaf stands behind the chain */
    rn_draft_stream_learn_features(draft, draft_stream, at, n, news->features);
    if (news->leaf_offset > 0)
        rn_draft_stream_learn_features(draft, draft_stream, at + n, 1, news->features + news->leaf_offset * stride);
}

static void take_news(struct rn_draft_actor *draft, const struct rn_news *news)
{
    struct rn_draft_stream *draft_stream = find(draft, news);
    uint32_t first;

    if (draft_stream != NULL && (news->ended || news->begins)) {
        end_draft_stream(draft, draft_stream);
        draft_stream = NULL;
    }
    if (news->ended)
        return;
    if (draft_stream == NULL && news->begins)
        draft_stream = begin_draft_stream(draft, news);
    if (draft_stream == NULL || draft_stream->state == RN_DRAFTS_OFF)
        return;
    first = news->first - draft_stream->base;
    if (news->first < draft_stream->base || first + news->n_tokens > draft_stream->capacity ||
        first > draft_stream->n_known) {
        rn_draft_switch_off(draft, draft_stream);
        return;
    }
    for (uint32_t i = 0; i < news->n_tokens; i++)
        if (first + i >= draft_stream->n_known)
            learn(draft, draft_stream, first + i, news->tokens[i]);
    if (news->n_positions > 0 && news->features_at >= draft_stream->base)
        learn_features(draft, draft_stream, news);
    RN_ASSERT(draft_stream->n_known <= draft_stream->n_tokens && draft_stream->n_tokens <= draft_stream->capacity);
    draft_stream->flying = news->flying;
    draft_stream->n_flying = news->n_flying;
    draft_stream->leaves = news->leaves;
    draft_stream->odds = news->odds;
    draft_stream->want = news->want;
    draft_stream->more = news->more;
    draft_stream->may_read_us = news->read_us;
    draft_stream->waits = news->waits;
    draft_stream->changed |= news->waits;
    rn_draft_look_at(draft_stream);
}

static void on_news(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_draft_actor *draft = draft_of(self);
    const struct rn_news_list *list = msg->news.list;

    RN_ASSERT(draft->last_news == NULL && !draft->said_last && list->n <= list->capacity);
    if (list->closing) {
        draft->last_news = msg;
        return;
    }
    if (list->step_us > 0)
        draft->target_us = list->step_us;
    draft->ends_us = list->ends_us;
    rn_draft_look_at_time(draft);
    for (uint32_t i = 0; i < list->n; i++)
        take_news(draft, &list->items[i]);
    rn_draft_stop_pass(draft);
    if (list->serial != 0) {
        RN_ASSERT(!has_waits(draft) && list->serial != draft->serial); /* one wait at a time */
        draft->serial = list->serial;
        draft->wait_until_us = rn_now_us(draft->context->clock) + list->max_wait_us;
    }
    msg->head.kind = RN_MSG_NEWS_BACK;
    rn_actor_send(draft->context->verifier, msg);
}

/* ---- What the verifier is told ---- */

/* Has each of those that wait what it waits for, or has that taken too long? */
static bool can_answer(const struct rn_draft_actor *draft)
{
    if (draft->failed || rn_now_us(draft->context->clock) > draft->wait_until_us)
        return true;
    for (uint32_t i = 0; i < draft->n_draft_streams; i++)
        if (draft->draft_streams[i].waits && !rn_draft_has_enough(draft, &draft->draft_streams[i]))
            return false;
    return true;
}

static void add_item(struct rn_drafts_list *list, struct rn_draft_stream *draft_stream)
{
    struct rn_drafts *item = &list->items[list->n++];
    struct rn_guess_line *line = &item->lines[0];
    uint32_t n = draft_stream->n_tokens - draft_stream->n_known;

    item->slot = draft_stream->slot;
    item->generation = draft_stream->generation;
    item->state = draft_stream->state;
    item->read_us = draft_stream->read_us;
    draft_stream->read_us = 0;
    for (uint32_t l = 0; l < RN_GUESS_LINES; l++)
        item->lines[l].first = draft_stream->base + draft_stream->n_known;
    line->n = n < RN_GUESS_MOST ? n : RN_GUESS_MOST;
    if (line->n > 0)
        memcpy(line->guesses, draft_stream->tokens + draft_stream->n_known, line->n * sizeof line->guesses[0]);
    for (uint32_t i = 0; i < line->n; i++)
        line->seconds[i] = draft_stream->seconds[(draft_stream->n_known + i) % RN_GUESS_MOST];
    rn_branch_tell(draft_stream, &item->lines[1]);
    draft_stream->changed = false;
}

/* Those that have changed; while decode waits, once it is all there. */
static void tell(struct rn_draft_actor *draft)
{
    bool answers = has_waits(draft) && can_answer(draft), any = answers;
    struct rn_drafts_list *list = draft->free_lists;
    struct rn_msg *msg;

    for (uint32_t i = 0; i < draft->n_draft_streams && !any; i++)
        any = draft->draft_streams[i].changed && !draft->draft_streams[i].ended;
    if (list == NULL || !any || (has_waits(draft) && !answers))
        return;
    draft->free_lists = list->next;
    list->n = 0;
    for (uint32_t i = 0; i < draft->n_draft_streams && list->n < draft->drafter->limits.max_seqs; i++)
        if (draft->draft_streams[i].changed && !draft->draft_streams[i].ended)
            add_item(list, &draft->draft_streams[i]);
    RN_ASSERT(list->n > 0 || answers);
    if (answers)
        draft->answered = draft->serial;
    for (uint32_t i = 0; i < draft->n_draft_streams && answers; i++)
        draft->draft_streams[i].waits = false;
    list->answers = draft->answered;
    list->step_us = draft->guess_us;
    list->failed = draft->failed;
    msg = rn_msg_new(draft->actor.runtime, RN_MSG_DRAFTS);
    msg->drafts.list = list;
    rn_actor_send(draft->context->verifier, msg);
}

static void on_drafts_back(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_draft_actor *draft = draft_of(self);

    msg->drafts.list->next = draft->free_lists;
    draft->free_lists = msg->drafts.list;
    rn_msg_free(self->runtime, msg);
}

static void on_drafted(struct rn_actor *self, struct rn_msg *msg)
{
    RN_ASSERT(msg == draft_of(self)->msg);
    rn_msg_free(self->runtime, msg);
    rn_draft_end_pass(draft_of(self));
}

static bool has_streams(const struct rn_draft_actor *draft)
{
    for (uint32_t i = 0; i < draft->n_draft_streams; i++)
        if (draft->draft_streams[i].generation != 0)
            return true;
    return false;
}

/* The closing list is the last thing that the verifier hears. A wait may go on then: its streams have ended. */
static void flush(struct rn_actor *self)
{
    struct rn_draft_actor *draft = draft_of(self);
    struct rn_msg *msg = draft->last_news;

    if (draft->drafter == NULL || draft->said_last)
        return;
    rn_draft_begin_pass(draft);
    if (msg == NULL) {
        tell(draft);
    } else if (!draft->in_flight) {
        RN_ASSERT(!has_streams(draft));
        draft->last_news = NULL;
        draft->said_last = true;
        msg->head.kind = RN_MSG_NEWS_BACK;
        rn_actor_send(draft->context->verifier, msg);
    }
}

static const struct rn_actor_class draft_class = {
    .name = "draft",
    .handlers =
        {
            [RN_MSG_NEWS] = on_news,
            [RN_MSG_DRAFTED] = on_drafted,
            [RN_MSG_DRAFTS_BACK] = on_drafts_back,
            [RN_MSG_CLOSE] = rn_actor_on_close,
        },
    .flush = flush,
};

/* ---- Life ---- */

static runnel_status take_pass(struct rn_draft_actor *draft, struct rn_heap *heap)
{
    const struct rn_backend_limits *limits = &draft->drafter->limits;
    struct rn_step *pass = &draft->pass;

    pass->rows = rn_alloc(heap, limits->max_rows, sizeof pass->rows[0]);
    pass->seqs = rn_alloc(heap, limits->max_seqs, sizeof pass->seqs[0]);
    pass->copies = rn_alloc(heap, limits->max_seqs, sizeof pass->copies[0]);
    pass->logits = rn_alloc(heap, (size_t)limits->max_outs * draft->context->n_vocab, sizeof(float));
    draft->draft_stream_of = rn_alloc(heap, limits->max_seqs, sizeof draft->draft_stream_of[0]);
    draft->feature_rows = rn_alloc(heap, limits->max_rows, sizeof draft->feature_rows[0]);
    pass->feature_rows = draft->feature_rows;
    pass->features = rn_alloc(heap, (size_t)limits->max_rows * draft->drafter->n_features + 1, sizeof(float));
    draft->inputs = rn_alloc(heap, (size_t)limits->max_rows * draft->drafter->n_features + 1, sizeof(float));
    pass->inputs = draft->inputs;
    draft->n_draft_streams = 2 * limits->max_seqs;
    draft->draft_streams = rn_calloc(heap, draft->n_draft_streams, sizeof draft->draft_streams[0]);
    draft->scratch = rn_sampler_scratch_new(heap, draft->context->n_vocab);
    for (uint32_t i = 0; i < RN_DRAFTS_LISTS; i++) {
        draft->lists[i].items = rn_alloc(heap, limits->max_seqs, sizeof draft->lists[i].items[0]);
        if (draft->lists[i].items == NULL)
            return RUNNEL_NO_MEMORY;
        draft->lists[i].next = draft->free_lists;
        draft->free_lists = &draft->lists[i];
    }
    return draft->feature_rows != NULL && pass->features != NULL && draft->inputs != NULL && pass->rows != NULL &&
                   pass->seqs != NULL && pass->copies != NULL && pass->logits != NULL &&
                   draft->draft_stream_of != NULL && draft->draft_streams != NULL && draft->scratch != NULL
               ? rn_block_pool_init(&draft->pool, heap, limits->n_blocks)
               : RUNNEL_NO_MEMORY;
}

runnel_status rn_draft_actor_init(struct rn_draft_actor *draft, const struct rn_context *context)
{
    struct rn_drafter *drafter = context->drafter;

    *draft = (struct rn_draft_actor){.context = context,
                                     .drafter = drafter->kind != RN_DRAFTER_NONE ? drafter : NULL,
                                     .guess_us = drafter->pass_us,
                                     .row_us = drafter->row_us};
    if (draft->drafter != NULL && take_pass(draft, context->heap) != RUNNEL_OK) {
        rn_draft_actor_fini(draft);
        return RUNNEL_NO_MEMORY;
    }
    rn_actor_init(&draft->actor, context->runtime, &draft_class, rn_bounds_credits(&context->bounds, RN_ROLE_DRAFT));
    return RUNNEL_OK;
}

void rn_draft_actor_fini(struct rn_draft_actor *draft)
{
    struct rn_heap *heap = draft->context->heap;

    if (draft->drafter == NULL)
        return;
    RN_ASSERT(!draft->in_flight && draft->last_news == NULL);
    for (uint32_t i = 0; draft->draft_streams != NULL && draft->pool.references != NULL && i < draft->n_draft_streams;
         i++)
        if (draft->draft_streams[i].generation != 0)
            rn_draft_free_stream(draft, &draft->draft_streams[i]);
    if (draft->pool.references != NULL)
        rn_draft_cache_fini(draft);
    RN_ASSERT(draft->pool.n_free == draft->pool.n_blocks);
    rn_block_pool_fini(&draft->pool);
    rn_free(heap, draft->draft_streams);
    rn_free(heap, draft->draft_stream_of);
    rn_free(heap, draft->pass.rows);
    rn_free(heap, draft->pass.seqs);
    rn_free(heap, draft->pass.copies);
    rn_free(heap, draft->pass.logits);
    rn_free(heap, draft->pass.features);
    rn_free(heap, draft->feature_rows);
    rn_free(heap, draft->inputs);
    rn_sampler_scratch_free(draft->scratch);
    for (uint32_t i = 0; i < RN_DRAFTS_LISTS; i++)
        rn_free(heap, draft->lists[i].items);
    *draft = (struct rn_draft_actor){0};
}

/* Rows begin where they may, and what of the features is there has room. */
static bool layers_are_whole(const struct rn_draft_actor *draft, const struct rn_draft_stream *draft_stream)
{
    for (uint32_t l = 0; l < draft->drafter->n_layers; l++) {
        const struct rn_draft_stream_layer *layer = &draft_stream->layers[l];

        if (layer->n_done < layer->shift || layer->f_end < layer->f_first ||
            layer->f_end - layer->f_first > RN_DRAFT_STREAM_FEATURES)
            return false;
    }
    return true;
}

/* Of the lists each is free or under way; nobody is in a pass when none is in flight. */
static bool pass_is_whole(const struct rn_draft_actor *draft)
{
    uint32_t n = 0;

    for (const struct rn_drafts_list *l = draft->free_lists; l != NULL && n <= RN_DRAFTS_LISTS; l = l->next)
        n++;
    for (uint32_t i = 0; i < draft->n_draft_streams; i++) {
        const struct rn_draft_stream *draft_stream = &draft->draft_streams[i];

        if ((rn_draft_in_pass(draft_stream) && !draft->in_flight) ||
            (draft_stream->ended && !rn_draft_in_pass(draft_stream)) || !layers_are_whole(draft, draft_stream))
            return false;
    }
    return n <= RN_DRAFTS_LISTS && draft->cursor < draft->n_draft_streams;
}

bool rn_draft_actor_check(const struct rn_draft_actor *draft)
{
    uint64_t n_blocks = 0, n_references = 0;

    if (draft->drafter == NULL)
        return true;
    if (!pass_is_whole(draft))
        return false;
    for (uint32_t i = 0; i < RN_DRAFT_CACHES; i++)
        n_blocks += draft->pasts[i].n_blocks;
    for (uint32_t b = 0; b < draft->pool.n_blocks; b++)
        n_references += rn_block_pool_references(&draft->pool, b);
    for (uint32_t i = 0; i < draft->n_draft_streams; i++) {
        const struct rn_draft_stream *draft_stream = &draft->draft_streams[i];

        n_blocks += draft_stream->n_blocks + rn_branch_own(draft_stream);
        if (draft_stream->generation == 0
                ? draft_stream->n_blocks != 0 || draft_stream->tokens != NULL
                : draft_stream->n_known > draft_stream->n_tokens || draft_stream->n_tokens > draft_stream->capacity ||
                      draft_stream->layers[0].n_done - draft_stream->layers[0].shift >
                          draft_stream->n_blocks * draft->drafter->limits.block_tokens ||
                      draft_stream->n_blocks > draft_stream->max_blocks ||
                      !rn_branch_check(draft_stream, draft->drafter->limits.block_tokens))
            return false;
    }
    return n_blocks == n_references;
}
