/* The verifier: walking a step's chains and trees; its streams. What the next step drafts is in verify/choose.c, what
 * the draft actor is told in verify/news.c, when a step is held back in verify/wait.c. See verifier_actor.h. */
#include "actors/verifier_actor.h"

#include <stddef.h>
#include <string.h>

#include "actors/batch.h"
#include "actors/context.h"
#include "actors/grammar/guide.h"
#include "actors/lists.h"
#include "base/check.h"

static_assert(offsetof(struct rn_verifier, actor) == 0, "handlers get the actor");
static_assert(RN_GUESS_MOST <= 64 && RN_DRAFT_MOST <= 32, "sets of leaves are bits of a word");

static struct rn_verifier *verifier_of(struct rn_actor *actor)
{
    return (struct rn_verifier *)actor;
}

static struct rn_verifier_stream *find(const struct rn_verifier *verifier, uint32_t slot, uint32_t generation)
{
    struct rn_verifier_stream *stream = &verifier->streams[slot];

    RN_ASSERT(slot < verifier->context->max_streams);
    return stream->here && stream->generation == generation ? stream : NULL;
}

struct rn_verifier_stream *rn_verifier_stream_of(const struct rn_verifier *verifier, const struct rn_verified *verified)
{
    return find(verifier, verified->slot, verified->generation);
}

bool rn_verifier_reads_features(const struct rn_verifier *verifier)
{
    return verifier->drafter != NULL && verifier->drafter->kind == RN_DRAFTER_FEATURES;
}

/* ---- Verifying a step ---- */

/* What has come of a part. */
struct walk {
    uint32_t n_accepted;  /* of its drafts */
    uint32_t n_right;     /* of them, those of the chain */
    uint32_t leaf_offset; /* not 0: the last is a leaf, with so many rows of the part before it */
    bool ended;
};

/* Siblings differ, so one path at most is left of a tree, and it is walked in the order of its positions. The request
 * is decode's: what is read of it stays as it is while a step has its rows. */
static struct walk walk_part(const struct rn_verifier *verifier, struct rn_verifier_stream *stream,
                             const struct rn_batch_part *part, struct rn_batch_out *outs)
{
    const struct rn_request *request = part->request;
    uint32_t n_tokens = request->n_tokens;
    struct walk walk = {.ended = part->last && request->n_fill >= request->n_limit};

    for (uint32_t i = 0; i < part->n_outs; i++) {
        struct rn_batch_out *out = &outs[i];

        out->accepted = !out->refuted && !walk.ended && out->status == RUNNEL_OK;
        walk.ended |= !out->refuted && out->status != RUNNEL_OK;
        if (!out->accepted || !out->sample)
            continue;
        walk.n_accepted += out->follows;
        walk.n_right += out->follows && i <= part->n_drafts;
        if (out->leaf_offset > 0)
            walk.leaf_offset = i; /* each of its rows has an out */
        if (stream != NULL && n_tokens < stream->n_limit)
            stream->tokens[stream->n_tokens++] = out->pick.token;
        walk.ended |= out->ended || out->last ||
                      rn_request_ends_with(request, verifier->context->vocab, out->pick.token) ||
                      ++n_tokens >= request->n_limit;
    }
    RN_ASSERT(walk.n_right <= walk.n_accepted && walk.n_accepted <= part->n_drafts);
    RN_ASSERT(walk.n_accepted == walk.n_right + (walk.leaf_offset > 0));
    return walk;
}

/* What was drawn in the place of the first draft of the chain that was not taken; of those before it, the drafts. */
static void note_seconds(struct rn_speculation *record, const struct rn_batch_part *part,
                         const struct rn_batch_out *outs, uint32_t n_right)
{
    for (uint32_t i = 1; i <= part->n_drafts && i <= n_right + 1; i++)
        if (outs[i].second.token >= 0 && outs[i - 1].accepted)
            rn_speculation_note_runner_up(record, outs[i].second.share,
                                          i > n_right && outs[i - 1].pick.token == outs[i].second.token);
}

/* Of who has made the part's drafts. */
static struct rn_speculation *record_of(struct rn_verifier_stream *stream, const struct rn_batch_part *part)
{
    return part->by_grammar ? &stream->by_grammar : part->by_model ? &stream->model : &stream->own;
}

static void learn(struct rn_verifier_stream *stream, const struct rn_batch_part *part, const struct rn_batch_out *outs,
                  const struct walk *walk)
{
    struct rn_speculation *record = record_of(stream, part);

    if (part->n_drafts == 0)
        return;
    rn_speculation_note(record, part->n_drafts, walk->n_right);
    rn_speculation_note_branches(record, part->n_branches, walk->leaf_offset > 0);
    note_seconds(record, part, outs, walk->n_right);
}

/* A state has stayed where it was: the stream pays for the rows that are computed again as for drafts. */
static void go_back(struct rn_verifier_stream *stream, const struct rn_batch_part *part, const struct walk *walk)
{
    uint32_t n_more = 1 + walk->n_accepted;

    stream->n_behind = 0;
    if (!part->keeps_state || walk->n_accepted == part->n_drafts)
        return;
    stream->n_behind = part->n_repeated + n_more;
    rn_speculation_note_branches(record_of(stream, part), n_more, false);
}

/* The step's features of the part belong to the next news. */
static void take_features(struct rn_verifier_stream *stream, const struct rn_batch_part *part, const struct walk *walk)
{
    RN_ASSERT(part->prompt ? part->n_features <= part->n_done : walk->n_accepted < part->n_features);
    stream->n_positions = part->prompt ? part->n_features : 1 + walk->n_accepted;
    stream->features_at = part->prompt ? part->n_done - part->n_features : part->n_done - 1;
    stream->features = part->features;
    stream->leaf_offset = walk->leaf_offset; /* each of its rows has features */
    stream->changed = true;
}

/* Behind its last token. */
static void take_forced(struct rn_verifier_stream *stream, const struct rn_request *request, bool ended)
{
    stream->n_forced = 0;
    if (request->guide == NULL || ended)
        return;
    stream->n_forced = request->guide->n_forced;
    memcpy(stream->forced, request->guide->forced, stream->n_forced * sizeof stream->forced[0]);
}

static void verify_part(struct rn_verifier *verifier, const struct rn_batch *batch, const struct rn_batch_part *part,
                        struct rn_batch_out *outs)
{
    const struct rn_request *request = part->request;
    struct rn_verifier_stream *stream = request->verified ? find(verifier, request->slot, request->generation) : NULL;
    struct walk walk = walk_part(verifier, stream, part, outs);
    bool ended = walk.ended || batch->step.status != RUNNEL_OK;

    RN_ASSERT((part->prompt || verifier->n_running > 0) && (!part->last || verifier->n_prompts > 0));
    RN_ASSERT(!request->verified || stream != NULL);
    verifier->n_running += part->last && !ended;
    verifier->n_running -= !part->prompt && ended;
    verifier->n_prompts -= part->last;
    if (stream == NULL)
        return;
    stream->n_done = part->n_done + walk.n_accepted;
    take_forced(stream, request, ended);
    RN_ASSERT(stream->n_done <= stream->n_tokens && stream->n_tokens <= stream->n_limit);
    learn(stream, part, outs, &walk);
    go_back(stream, part, &walk);
    verifier->n_behind += ended ? 0 : stream->n_behind;
    if (batch->step.status == RUNNEL_OK && rn_verifier_reads_features(verifier) && part->n_features > 0 &&
        stream->begun)
        take_features(stream, part, &walk);
    RN_CHECK(verifier->n_next < verifier->context->limits->max_seqs);
    if (!ended)
        verifier->next[verifier->n_next++] =
            (struct rn_verified){request->slot, request->generation, part->prompt && !part->last};
}

static void count_spare(struct rn_verifier *verifier)
{
    const struct rn_backend_limits *limits = verifier->context->limits;
    uint32_t most = limits->max_rows < limits->max_outs ? limits->max_rows : limits->max_outs;
    uint32_t room = rn_batch_share(verifier->n_prompts, most);

    verifier->n_drafts = 0;
    verifier->n_spare = room > verifier->n_running ? room - verifier->n_running : 0;
}

static void verify(struct rn_verifier *verifier, struct rn_msg *msg)
{
    struct rn_batch *batch = msg->batch.batch;
    struct rn_batch_out *outs = batch->outs;
    bool cuts;

    RN_ASSERT(batch->verifies && !verifier->holds && batch->proposals.n == 0);
    rn_batch_note_cost(batch);
    verifier->cost = *batch->cost;
    verifier->n_next = verifier->n_behind = 0;
    verifier->n_running = batch->n_running;
    verifier->n_prompts = batch->n_prompts;
    for (uint32_t i = 0; i < batch->n_parts; i++) {
        verify_part(verifier, batch, &batch->parts[i], outs);
        outs += batch->parts[i].n_outs;
    }
    RN_ASSERT(outs == batch->outs + batch->step.n_outs);
    verifier->n_prompt_rows = verifier->n_prompts > 0 ? batch->step.n_rows - batch->n_answer_rows : 0;
    if (batch->news != NULL) {
        RN_ASSERT(verifier->full == NULL && verifier->free_lists != NULL);
        verifier->full = batch->news;
        batch->news = verifier->free_lists;
        verifier->free_lists = batch->news->next;
    }
    count_spare(verifier);
    batch->holds = verifier->holds = rn_verifier_holds(verifier);
    if (!batch->holds)
        rn_verifier_choose(verifier, &batch->proposals);
    cuts = !batch->holds && batch->proposals.guided;
    msg->head.kind = cuts ? RN_MSG_CUT : RN_MSG_SAMPLED;
    rn_actor_send(cuts ? verifier->context->sampler : verifier->context->decode, msg);
}

/* Where the step has filled a list with features, the next one needs another. */
static void on_verify(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_verifier *verifier = verifier_of(self);

    if (msg->batch.batch->news != NULL && verifier->free_lists == NULL)
        verifier->postponed = msg;
    else
        verify(verifier, msg);
}

/* ---- The draft actor ---- */

/* What decode waits for is there, or will not come. */
static void end_wait(struct rn_verifier *verifier)
{
    struct rn_msg *msg;

    verifier->holds = false;
    RN_CHECK(!verifier->proposals_away);
    RN_ASSERT(verifier->postponed == NULL); /* decode has no step in flight */
    verifier->proposals_away = true;
    verifier->proposals.n = 0;
    rn_verifier_choose(verifier, &verifier->proposals);
    msg = rn_msg_new(verifier->actor.runtime, RN_MSG_PROPOSALS);
    msg->proposals.list = &verifier->proposals;
    rn_actor_send(verifier->proposals.guided ? verifier->context->sampler : verifier->context->decode, msg);
}

static void take_guesses(struct rn_verifier *verifier, const struct rn_drafts *item)
{
    struct rn_verifier_stream *stream = &verifier->streams[item->slot];

    RN_ASSERT(item->slot < verifier->context->max_streams && item->read_us >= 0);
    RN_ASSERT(item->lines[0].n <= RN_GUESS_MOST && item->lines[1].n <= RN_GUESS_MOST);
    if (stream->generation != item->generation || !stream->begun)
        return;
    stream->state = item->state;
    stream->read_us += item->read_us;
    memcpy(stream->lines, item->lines, sizeof stream->lines);
}

static void on_drafts(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_verifier *verifier = verifier_of(self);
    const struct rn_drafts_list *list = msg->drafts.list;

    RN_ASSERT((int32_t)(verifier->serial - list->answers) >= 0 && (int32_t)(list->answers - verifier->answered) >= 0);
    for (uint32_t i = 0; i < list->n; i++)
        take_guesses(verifier, &list->items[i]);
    verifier->pass_us = list->step_us;
    verifier->answered = list->answers;
    verifier->failed |= list->failed;
    if (verifier->holds && (verifier->answered == verifier->serial || verifier->failed))
        end_wait(verifier);
    msg->head.kind = RN_MSG_DRAFTS_BACK;
    rn_actor_send(verifier->context->draft, msg);
}

static void on_proposals_back(struct rn_actor *self, struct rn_msg *msg)
{
    RN_ASSERT(verifier_of(self)->proposals_away && !verifier_of(self)->holds);
    verifier_of(self)->proposals_away = false;
    rn_msg_free(self->runtime, msg);
}

static void on_news_back(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_verifier *verifier = verifier_of(self);
    struct rn_news_list *list = msg->news.list;
    struct rn_msg *postponed = verifier->postponed;

    RN_ASSERT(!verifier->closed && list->closing <= verifier->closing && list != verifier->full);
    verifier->closed |= list->closing;
    list->next = verifier->free_lists;
    verifier->free_lists = list;
    rn_msg_free(self->runtime, msg);
    verifier->postponed = NULL;
    if (postponed != NULL)
        verify(verifier, postponed);
}

/* ---- Streams ---- */

/* request: it ends, and is in hand; NULL: it goes for a while, or has ended elsewhere. */
static void leave(struct rn_verifier *verifier, struct rn_verifier_stream *stream, const struct rn_request *request)
{
    if (!stream->here)
        return;
    stream->here = false;
    rn_verifier_end_drafts(verifier, (uint32_t)(stream - verifier->streams));
    rn_draft_share_end(&verifier->share, stream->place, stream->proposer, request);
    stream->place = 0;
    RN_ASSERT(!stream->begun && !stream->changed);
}

static void free_stream(struct rn_verifier *verifier, struct rn_verifier_stream *stream)
{
    RN_ASSERT(!stream->here && stream->place == 0);
    if (stream->proposer != NULL)
        stream->proposer->ops->free(stream->proposer);
    rn_free(verifier->context->heap, stream->tokens);
    stream->proposer = NULL;
    stream->tokens = NULL;
    stream->generation = 0;
}

/* False: there is no memory, and the request drafts nothing. */
static bool begin_stream(struct rn_verifier *verifier, struct rn_verifier_stream *stream, struct rn_request *request)
{
    uint64_t most = verifier->context->limits->context_tokens;
    int32_t *tokens = rn_alloc(verifier->context->heap, request->n_limit, sizeof tokens[0]);

    leave(verifier, stream, NULL);
    free_stream(verifier, stream);
    if (tokens == NULL)
        return false;
    most = request->max_tokens < 0 ? most : (uint64_t)request->max_tokens;
    stream->generation = request->generation;
    stream->tokens = tokens;
    stream->n_limit = request->n_limit;
    stream->draft_max = request->draft_max;
    stream->draft_model = request->draft_model;
    stream->draft_chain = request->draft_chain;
    stream->guided = request->guide != NULL;
    stream->salt = request->cache_salt;
    stream->sampling = rn_sampler_plain(request->sampler);
    stream->proposer = request->proposer;
    request->proposer = NULL;
    memset(stream->rested, 0, sizeof stream->rested);
    rn_speculation_init(&stream->own);
    rn_speculation_init(&stream->model);
    rn_speculation_init(&stream->by_grammar);
    rn_speculation_grant(&stream->own, most);
    rn_speculation_grant(&stream->model, most);
    rn_speculation_grant(&stream->by_grammar, most);
    stream->n_forced = 0;
    return true;
}

static bool can_draft(const struct rn_verifier *verifier, const struct rn_request *request)
{
    return request->proposer != NULL || (request->draft_model && verifier->drafter != NULL) ||
           (request->guide != NULL && request->draft_max > 0) ||
           verifier->streams[request->slot].generation == request->generation;
}

/* A recurrent state does in a slot of its own. */
static bool can_go_back(const struct rn_verifier *verifier, const struct rn_request *request)
{
    return verifier->context->limits->n_states == 0 || request->state_spare != RN_NO_STATE;
}

static void on_offer(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_verifier *verifier = verifier_of(self);
    struct rn_request *request = msg->request.request;
    struct rn_verifier_stream *stream = &verifier->streams[request->slot];

    request->verified = can_draft(verifier, request) && can_go_back(verifier, request) &&
                        (stream->generation == request->generation || begin_stream(verifier, stream, request));
    if (request->shifted && stream->generation == request->generation && stream->proposer != NULL &&
        stream->proposer->ops->restart != NULL)
        stream->proposer->ops->restart(stream->proposer); /* also of one that drafts again later */
    request->shifted = false;
    if (request->verified) {
        RN_CHECK(request->n_tokens <= stream->n_limit);
        RN_ASSERT(!stream->here && !stream->begun && stream->n_limit >= request->n_limit); /* a shift may lower it */
        stream->here = true;
        stream->n_tokens = request->n_tokens;
        stream->n_fill = request->n_fill;
        stream->n_done = request->n_done;
        stream->n_behind = 0;
        memcpy(stream->tokens, request->tokens, request->n_tokens * sizeof stream->tokens[0]);
        stream->place = rn_draft_share_begin(&verifier->share, request, stream->proposer);
        rn_verifier_begin_drafts(verifier, request->slot);
        request->tells_features = rn_verifier_reads_features(verifier) && stream->begun;
    }
    rn_actor_send(verifier->context->decode, msg);
}

/* Behind its request. */
static void on_end_request(struct rn_actor *self, struct rn_msg *msg)
{
    rn_actor_send(verifier_of(self)->context->decode, msg);
}

static void tell_rests(const struct rn_verifier_stream *stream, struct rn_request *request)
{
    for (uint32_t i = RUNNEL_REST_NONE + 1; i <= RUNNEL_REST_BROKEN; i++) {
        request->n_rested += stream->rested[i];
        if (stream->rested[i] > 0 &&
            (request->rest == RUNNEL_REST_NONE || stream->rested[i] > stream->rested[request->rest]))
            request->rest = (runnel_rest)i;
    }
}

static void on_end(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_verifier *verifier = verifier_of(self);
    struct rn_request *request = msg->request.request;
    struct rn_verifier_stream *stream = find(verifier, request->slot, request->generation);

    RN_ASSERT(request->outcome != RN_OUTCOME_NONE && (stream != NULL || !request->verified));
    if (stream != NULL) {
        tell_rests(stream, request);
        leave(verifier, stream, request);
        free_stream(verifier, stream);
    }
    rn_actor_send(verifier->context->detokenizer, msg);
}

static void on_halt(struct rn_actor *self, struct rn_msg *msg)
{
    struct rn_verifier *verifier = verifier_of(self);
    struct rn_verifier_stream *stream = find(verifier, msg->stream.slot, msg->stream.generation);

    rn_msg_free(self->runtime, msg);
    if (stream != NULL)
        leave(verifier, stream, NULL);
}

/* ---- Life ---- */

static void flush(struct rn_actor *self)
{
    struct rn_verifier *verifier = verifier_of(self);

    rn_verifier_tell(verifier);
    if (verifier->close != NULL && !verifier->proposals_away && rn_verifier_close_news(verifier)) {
        rn_actor_on_close(self, verifier->close);
        verifier->close = NULL;
    }
}

/* The draft actor may still have a pass under way; its last word comes before this one's. */
static void on_close(struct rn_actor *self, struct rn_msg *msg)
{
    verifier_of(self)->close = msg;
}

static const struct rn_actor_class verifier_class = {
    .name = "verifier",
    .handlers =
        {
            [RN_MSG_OFFER] = on_offer,
            [RN_MSG_CANCEL] = on_end_request,
            [RN_MSG_EXPIRE] = on_end_request,
            [RN_MSG_STOPPED] = on_end_request,
            [RN_MSG_PREEMPT] = on_end_request,
            [RN_MSG_VERIFY] = on_verify,
            [RN_MSG_HALT] = on_halt,
            [RN_MSG_END] = on_end,
            [RN_MSG_NEWS_BACK] = on_news_back,
            [RN_MSG_DRAFTS] = on_drafts,
            [RN_MSG_PROPOSALS_BACK] = on_proposals_back,
            [RN_MSG_CLOSE] = on_close,
        },
    .flush = flush,
};

static runnel_status take_drafter(struct rn_verifier *verifier, struct rn_heap *heap)
{
    uint32_t max_streams = verifier->context->max_streams;

    if (verifier->context->drafter->kind == RN_DRAFTER_NONE)
        return RUNNEL_OK;
    verifier->drafter = verifier->context->drafter;
    verifier->pass_us = verifier->drafter->pass_us;
    verifier->begun = rn_alloc(heap, verifier->drafter->limits.max_seqs, sizeof verifier->begun[0]);
    verifier->endings = rn_alloc(heap, max_streams, sizeof verifier->endings[0]);
    verifier->wait_streams = rn_alloc(heap, verifier->context->limits->max_seqs, sizeof verifier->wait_streams[0]);
    if (verifier->begun == NULL || verifier->endings == NULL || verifier->wait_streams == NULL ||
        rn_verifier_new_lists(verifier) != RUNNEL_OK)
        return RUNNEL_NO_MEMORY;
    return RUNNEL_OK;
}

runnel_status rn_verifier_init(struct rn_verifier *verifier, const struct rn_context *context)
{
    uint32_t max_seqs = context->limits->max_seqs;

    *verifier = (struct rn_verifier){.context = context, .cost = *context->cost};
    rn_draft_share_init(&verifier->share, context->heap);
    verifier->streams = rn_calloc(context->heap, context->max_streams, sizeof verifier->streams[0]);
    verifier->next = rn_alloc(context->heap, max_seqs, sizeof verifier->next[0]);
    verifier->proposals.items = rn_alloc(context->heap, max_seqs, sizeof verifier->proposals.items[0]);
    if (verifier->streams == NULL || verifier->next == NULL || verifier->proposals.items == NULL ||
        take_drafter(verifier, context->heap) != RUNNEL_OK) {
        rn_verifier_fini(verifier);
        return RUNNEL_NO_MEMORY;
    }
    rn_actor_init(&verifier->actor, context->runtime, &verifier_class,
                  rn_bounds_credits(&context->bounds, RN_ROLE_VERIFIER));
    return RUNNEL_OK;
}

struct rn_news_list *rn_verifier_first_list(struct rn_verifier *verifier)
{
    struct rn_news_list *list = verifier->free_lists;

    if (list != NULL)
        verifier->free_lists = list->next;
    return list;
}

void rn_verifier_fini(struct rn_verifier *verifier)
{
    struct rn_heap *heap = verifier->context->heap;

    for (uint32_t i = 0; verifier->streams != NULL && i < verifier->context->max_streams; i++)
        free_stream(verifier, &verifier->streams[i]);
    rn_verifier_free_lists(verifier);
    rn_free(heap, verifier->streams);
    rn_free(heap, verifier->next);
    rn_free(heap, verifier->proposals.items);
    rn_free(heap, verifier->begun);
    rn_free(heap, verifier->endings);
    rn_free(heap, verifier->wait_streams);
    rn_draft_share_fini(&verifier->share);
}

/* Each is with the drafter's others or not, and has what it is to be told in order. */
static bool stream_is_whole(const struct rn_verifier *verifier, uint32_t slot)
{
    const struct rn_verifier_stream *stream = &verifier->streams[slot];

    if (stream->generation == 0)
        return !stream->here && stream->tokens == NULL && stream->proposer == NULL;
    if ((stream->begun && (stream->listed >= verifier->n_begun || verifier->begun[stream->listed] != slot)) ||
        (stream->begun && !stream->here) || (stream->place > 0 && !stream->here))
        return false;
    return stream->tokens != NULL && stream->n_tokens <= stream->n_limit && stream->draft_max <= RN_DRAFT_MOST &&
           (!stream->here || stream->n_done <= stream->n_tokens);
}

/* Of the lists of news each is free, full, or under way. */
static bool lists_are_whole(const struct rn_verifier *verifier)
{
    uint32_t n = verifier->full != NULL;

    for (const struct rn_news_list *l = verifier->free_lists; l != NULL && n <= RN_NEWS_LISTS; l = l->next)
        n += l != verifier->full ? 1 : RN_NEWS_LISTS;
    return n <= RN_NEWS_LISTS && (verifier->postponed == NULL || verifier->free_lists == NULL) &&
           (!verifier->holds || verifier->serial != verifier->answered) && (!verifier->closed || verifier->closing);
}

bool rn_verifier_check(const struct rn_verifier *verifier)
{
    for (uint32_t slot = 0; slot < verifier->context->max_streams; slot++)
        if (!stream_is_whole(verifier, slot))
            return false;
    for (uint32_t i = 0; i < verifier->n_begun; i++) {
        const struct rn_verifier_stream *stream = &verifier->streams[verifier->begun[i]];

        if (!stream->here || !stream->begun || stream->listed != i || stream->n_tokens > stream->n_limit ||
            stream->n_told > stream->n_tokens)
            return false;
    }
    for (uint32_t i = 0; i < verifier->n_endings; i++)
        if (!verifier->streams[verifier->endings[i]].ending)
            return false;
    return lists_are_whole(verifier) && verifier->n_next <= verifier->context->limits->max_seqs;
}
