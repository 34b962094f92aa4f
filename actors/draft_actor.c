/* The draft actor: seats, news and what the verifier is told. How a pass is made is in draft_pass.c. See draft_actor.h. */
#include "actors/draft_actor.h"

#include <string.h>

#include "actors/context.h"
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

/* The seat of a stream; NULL: it has none. */
static struct rn_seat *find(struct rn_draft_actor *draft, const struct rn_news *news)
{
    for (uint32_t i = 0; i < draft->n_seats; i++)
        if (draft->seats[i].generation == news->generation && draft->seats[i].slot == news->slot &&
            !draft->seats[i].ended)
            return &draft->seats[i];
    return NULL;
}

/* Nothing that is in a pass can be freed before it is back. */
static void end_seat(struct rn_draft_actor *draft, struct rn_seat *seat)
{
    if (rn_draft_in_pass(seat)) {
        seat->ended = true;
        return;
    }
    rn_past_keep(draft, seat);
    rn_draft_free_seat(draft, seat);
}

/* Without memory the stream has a seat that is off; without a seat, none: then nothing is told, and none waits. */
static struct rn_seat *begin_seat(struct rn_draft_actor *draft, const struct rn_news *news)
{
    const struct rn_backend_limits *limits = &draft->drafter->limits;
    struct rn_heap *heap = draft->context->heap;
    uint32_t most = news->n_limit > news->first ? news->n_limit - news->first : 1;
    uint32_t capacity = most < limits->context_tokens ? most : limits->context_tokens;
    struct rn_seat *seat = draft->seats;

    while (seat < draft->seats + draft->n_seats && seat->generation != 0)
        seat++;
    if (seat == draft->seats + draft->n_seats)
        return NULL;
    *seat = (struct rn_seat){.slot = news->slot,
                             .generation = news->generation,
                             .base = news->first,
                             .capacity = capacity,
                             .max_blocks = (capacity + limits->block_tokens - 1) / limits->block_tokens,
                             .sampling = news->sampling,
                             .salt = news->salt,
                             .n_valid = UINT32_MAX};
    seat->tokens = rn_alloc(heap, capacity, sizeof seat->tokens[0]);
    seat->blocks = rn_alloc(heap, seat->max_blocks, sizeof seat->blocks[0]);
    if (!rn_seat_features_new(draft, seat) || !rn_branch_new(draft, seat) || seat->tokens == NULL ||
        seat->blocks == NULL) {
        rn_seat_features_free(draft, seat);
        rn_branch_free(draft, seat);
        rn_free(heap, seat->tokens);
        rn_free(heap, seat->blocks);
        seat->tokens = NULL;
        seat->blocks = NULL;
        seat->capacity = 0;
        rn_draft_switch_off(draft, seat);
    }
    if (draft->failed)
        rn_draft_switch_off(draft, seat);
    seat->changed = true;
    return seat;
}

/* Where something else was guessed, all behind it was in vain, but for a branch that says so. */
static void turn(struct rn_draft_actor *draft, struct rn_seat *seat, uint32_t x, int32_t token)
{
    if (rn_branch_is(seat, x, token)) {
        rn_branch_adopt(draft, seat);
        return;
    }
    rn_branch_drop(draft, seat);
    seat->n_tokens = x;
    rn_seat_forget(seat, x);
}

/* A token that is known now at index x. */
static void learn(struct rn_draft_actor *draft, struct rn_seat *seat, uint32_t x, int32_t token)
{
    if (x < seat->n_tokens && seat->tokens[x] != token)
        turn(draft, seat, x, token);
    seat->tokens[x] = token;
    seat->n_known = x + 1;
    if (seat->n_tokens < seat->n_known)
        seat->n_tokens = seat->n_known;
    if (seat->branch.at <= x)
        rn_branch_drop(draft, seat);
}

/* The target's features of the text's rows; where its last one was a leaf, that stands behind the chain. */
static void learn_features(const struct rn_draft_actor *draft, struct rn_seat *seat, const struct rn_news *news)
{
    uint32_t at = news->features_at - seat->base, n = news->n_positions - (news->strayed > 0);
    size_t stride = draft->context->row_features;

    rn_seat_learn_features(draft, seat, at, n, news->features);
    if (news->strayed > 0)
        rn_seat_learn_features(draft, seat, at + n, 1, news->features + news->strayed * stride);
}

static void take_news(struct rn_draft_actor *draft, const struct rn_news *news)
{
    struct rn_seat *seat = find(draft, news);
    uint32_t first;

    if (seat != NULL && (news->ended || news->begins)) {
        end_seat(draft, seat);
        seat = NULL;
    }
    if (news->ended)
        return;
    if (seat == NULL && news->begins)
        seat = begin_seat(draft, news);
    if (seat == NULL || seat->state == RN_DRAFTS_OFF)
        return;
    first = news->first - seat->base;
    if (news->first < seat->base || first + news->n_tokens > seat->capacity || first > seat->n_known) {
        rn_draft_switch_off(draft, seat);
        return;
    }
    for (uint32_t i = 0; i < news->n_tokens; i++)
        if (first + i >= seat->n_known)
            learn(draft, seat, first + i, news->tokens[i]);
    if (news->n_positions > 0 && news->features_at >= seat->base)
        learn_features(draft, seat, news);
    seat->flying = news->flying;
    seat->n_flying = news->n_flying;
    seat->leaves = news->leaves;
    seat->odds = news->odds;
    seat->want = news->want;
    seat->more = news->more;
    seat->may_read_us = news->read_us;
    seat->waits = news->waits;
    seat->changed |= news->waits;
    rn_draft_look_at(seat);
}

static void on_news(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_draft_actor *draft = draft_of(self);
    const struct rn_news_list *list = msg->news.list;

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
    if (list->serial != 0) {
        draft->serial = list->serial;
        draft->patience_until_us = rn_now_us(draft->context->clock) + list->patience_us;
    }
    msg->head.kind = RN_MSG_NEWS_BACK;
    rn_actor_send(draft->context->verifier, msg);
}

/* ---- What the verifier is told ---- */

/* Has each of those that wait what it waits for, or has that taken too long? */
static bool can_answer(const struct rn_draft_actor *draft)
{
    if (draft->failed || rn_now_us(draft->context->clock) > draft->patience_until_us)
        return true;
    for (uint32_t i = 0; i < draft->n_seats; i++)
        if (draft->seats[i].waits && !rn_draft_is_sated(draft, &draft->seats[i]))
            return false;
    return true;
}

static void add_item(struct rn_drafts_list *list, struct rn_seat *seat)
{
    struct rn_drafts *item = &list->items[list->n++];
    struct rn_guess_line *line = &item->lines[0];
    uint32_t n = seat->n_tokens - seat->n_known;

    item->slot = seat->slot;
    item->generation = seat->generation;
    item->state = seat->state;
    item->read_us = seat->read_us;
    seat->read_us = 0;
    for (uint32_t l = 0; l < RN_GUESS_LINES; l++)
        item->lines[l].first = seat->base + seat->n_known;
    line->n = n < RN_GUESS_MOST ? n : RN_GUESS_MOST;
    if (line->n > 0)
        memcpy(line->guesses, seat->tokens + seat->n_known, line->n * sizeof line->guesses[0]);
    for (uint32_t i = 0; i < line->n; i++)
        line->seconds[i] = seat->seconds[(seat->n_known + i) % RN_GUESS_MOST];
    rn_branch_tell(seat, &item->lines[1]);
    seat->changed = false;
}

/* Those that have changed; while decode waits, once it is all there. */
static void tell(struct rn_draft_actor *draft)
{
    bool answers = has_waits(draft) && can_answer(draft), any = answers;
    struct rn_drafts_list *list = draft->free_lists;
    struct rn_msg *msg;

    for (uint32_t i = 0; i < draft->n_seats && !any; i++)
        any = draft->seats[i].changed && !draft->seats[i].ended;
    if (list == NULL || !any || (has_waits(draft) && !answers))
        return;
    draft->free_lists = list->next;
    list->n = 0;
    for (uint32_t i = 0; i < draft->n_seats && list->n < draft->drafter->limits.max_seqs; i++)
        if (draft->seats[i].changed && !draft->seats[i].ended)
            add_item(list, &draft->seats[i]);
    if (answers)
        draft->answered = draft->serial;
    for (uint32_t i = 0; i < draft->n_seats && answers; i++)
        draft->seats[i].waits = false;
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
    rn_msg_free(self->runtime, msg);
    rn_draft_end_pass(draft_of(self));
}

/* The closing list is the last thing that the verifier hears. */
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
    draft->seat_of = rn_alloc(heap, limits->max_seqs, sizeof draft->seat_of[0]);
    draft->feature_rows = rn_alloc(heap, limits->max_rows, sizeof draft->feature_rows[0]);
    pass->feature_rows = draft->feature_rows;
    pass->features = rn_alloc(heap, (size_t)limits->max_rows * draft->drafter->n_features + 1, sizeof(float));
    draft->inputs = rn_alloc(heap, (size_t)limits->max_rows * draft->drafter->n_features + 1, sizeof(float));
    pass->inputs = draft->inputs;
    draft->n_seats = 2 * limits->max_seqs;
    draft->seats = rn_calloc(heap, draft->n_seats, sizeof draft->seats[0]);
    draft->scratch = rn_sampler_scratch_new(heap, draft->context->n_vocab);
    for (uint32_t i = 0; i < RN_DRAFTS_LISTS; i++) {
        draft->lists[i].items = rn_alloc(heap, limits->max_seqs, sizeof draft->lists[i].items[0]);
        if (draft->lists[i].items == NULL)
            return RUNNEL_NO_MEMORY;
        draft->lists[i].next = draft->free_lists;
        draft->free_lists = &draft->lists[i];
    }
    return draft->feature_rows != NULL && pass->features != NULL && draft->inputs != NULL && pass->rows != NULL &&
                   pass->seqs != NULL && pass->copies != NULL && pass->logits != NULL && draft->seat_of != NULL &&
                   draft->seats != NULL && draft->scratch != NULL
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
    for (uint32_t i = 0; draft->seats != NULL && draft->pool.references != NULL && i < draft->n_seats; i++)
        if (draft->seats[i].generation != 0)
            rn_draft_free_seat(draft, &draft->seats[i]);
    if (draft->pool.references != NULL)
        rn_past_fini(draft);
    rn_block_pool_fini(&draft->pool);
    rn_free(heap, draft->seats);
    rn_free(heap, draft->seat_of);
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

bool rn_draft_actor_check(const struct rn_draft_actor *draft)
{
    uint64_t n_blocks = 0, n_references = 0;

    if (draft->drafter == NULL)
        return true;
    for (uint32_t i = 0; i < RN_DRAFT_PASTS; i++)
        n_blocks += draft->pasts[i].n_blocks;
    for (uint32_t b = 0; b < draft->pool.n_blocks; b++)
        n_references += rn_block_pool_references(&draft->pool, b);
    for (uint32_t i = 0; i < draft->n_seats; i++) {
        const struct rn_seat *seat = &draft->seats[i];

        n_blocks += seat->n_blocks + rn_branch_own(seat);
        if (seat->generation == 0
                ? seat->n_blocks != 0 || seat->tokens != NULL
                : seat->n_known > seat->n_tokens || seat->n_tokens > seat->capacity ||
                      seat->layers[0].n_done - seat->layers[0].shift >
                          seat->n_blocks * draft->drafter->limits.block_tokens ||
                      seat->n_blocks > seat->max_blocks || !rn_branch_check(seat, draft->drafter->limits.block_tokens))
            return false;
    }
    return n_blocks == n_references;
}
