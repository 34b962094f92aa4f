/* Matchers: see matchers.h. */
#include "actors/grammar/matchers.h"

#include <string.h>

#include "actors/draw_rows.h"
#include "actors/grammar/guide.h"
#include "actors/request.h"
#include "base/check.h"
#include "model/draw_mask.h"
#include "sampling/choice.h"

#define FORCED_BYTES 64u /* of a text that is foretold: the longest tokens of words have fewer */

/* ---- Masks that are shared ---- */

/* A value of the cache. */
struct shared {
    struct rn_heap *heap;
    struct rn_compiled *compiled; /* a reference */
    struct rn_masks *masks;
};

static size_t bytes_of(const void *value)
{
    const struct shared *shared = value;

    return sizeof *shared + rn_masks_bytes(shared->masks) + shared->compiled->automaton->bytes;
}

static void free_shared(void *value)
{
    struct shared *shared = value;

    rn_masks_free(shared->masks);
    rn_compiled_unref(shared->compiled);
    rn_free(shared->heap, shared);
}

static const struct rn_grammar_cache_ops cache_ops = {bytes_of, free_shared};

/* NULL: memory was refused. */
static struct rn_grammar_cached *masks_of(struct rn_matchers *matchers, struct rn_compiled *compiled)
{
    struct rn_grammar_cached *entry =
        rn_grammar_cache_find(matchers->cache, &compiled->number, sizeof compiled->number);
    struct shared *shared;

    if (entry != NULL)
        return entry;
    shared = rn_calloc(matchers->heap, 1, sizeof *shared);
    if (shared == NULL)
        return NULL;
    shared->heap = matchers->heap;
    shared->compiled = rn_compiled_ref(compiled);
    shared->masks = rn_masks_new(matchers->heap, compiled->automaton, compiled->trie, NULL);
    if (shared->masks == NULL) {
        free_shared(shared);
        return NULL;
    }
    return rn_grammar_cache_add(matchers->cache, &compiled->number, sizeof compiled->number, shared);
}

/* ---- Streams ---- */

static void free_stream(struct rn_matchers *matchers, struct rn_matchers_stream *stream)
{
    rn_matcher_free(stream->matcher);
    if (stream->entry != NULL)
        rn_grammar_cache_release(matchers->cache, stream->entry);
    *stream = (struct rn_matchers_stream){0};
}

static bool take_memory(struct rn_matchers *matchers)
{
    if (matchers->cache == NULL)
        matchers->cache = rn_grammar_cache_new(matchers->heap, &cache_ops, RN_MATCHERS_BYTES);
    if (matchers->streams == NULL)
        matchers->streams = rn_calloc(matchers->heap, matchers->n_streams, sizeof matchers->streams[0]);
    return matchers->cache != NULL && matchers->streams != NULL;
}

/* At the beginning, with the ends that the request has of its own. */
static runnel_status begin_matcher(struct rn_matchers_stream *stream, const struct rn_request *request,
                                   runnel_error *error)
{
    const struct shared *shared = stream->entry->value;
    runnel_status status = rn_matcher_new(shared->masks, RN_PATH_MOST, &stream->matcher, error);

    return status != RUNNEL_OK ? status
                               : rn_matcher_set_ends(stream->matcher, request->stop_tokens, request->n_stop_tokens,
                                                     request->ignore_eos, error);
}

/* The stream of a request; of one that begins, with a matcher at the beginning. NULL and an error. */
static struct rn_matchers_stream *stream_of(struct rn_matchers *matchers, const struct rn_request *request,
                                            runnel_error *error)
{
    struct rn_guide *guide = request->guide;
    struct rn_matchers_stream *stream;
    runnel_status status;

    RN_ASSERT(request->slot < matchers->n_streams);
    if (guide->begun) {
        RN_CHECK(matchers->streams[request->slot].generation == request->generation);
        return &matchers->streams[request->slot];
    }
    if (!take_memory(matchers)) {
        rn_error_set(error, RUNNEL_NO_MEMORY, "no memory for a grammar's state");
        return NULL;
    }
    stream = &matchers->streams[request->slot];
    RN_CHECK(stream->generation == 0);
    stream->entry = masks_of(matchers, guide->compiled);
    status = stream->entry == NULL ? rn_error_set(error, RUNNEL_NO_MEMORY, "no memory for a grammar's masks")
                                   : begin_matcher(stream, request, error);
    if (status != RUNNEL_OK) {
        free_stream(matchers, stream);
        return NULL;
    }
    stream->generation = request->generation;
    guide->begun = true;
    return stream;
}

/* ---- Masks of a step ---- */

static void settle_row(struct rn_guide *guide, uint32_t row, enum rn_guide_state state)
{
    rn_word_set(&guide->rows[row].state, state); /* partner: rn_guide_state, of the thread that draws */
}

static void fail_row(struct rn_guide *guide, uint32_t row, const runnel_error *error)
{
    RN_ASSERT(error->status != RUNNEL_OK);
    guide->rows[row].error = *error;
    settle_row(guide, row, RN_GUIDE_FAILED);
}

/* The mask of where the matcher stands. */
static void make_mask(struct rn_matcher *matcher, struct rn_guide *guide, uint32_t row)
{
    uint64_t *mask = rn_guide_mask(guide, row);
    runnel_error error = {0};
    bool empty;

    if (rn_matcher_has_ended(matcher)) {
        settle_row(guide, row, RN_GUIDE_REFUSED);
        return;
    }
    if (rn_matcher_mask(matcher, mask, &error) != RUNNEL_OK) {
        fail_row(guide, row, &error);
        return;
    }
    guide->rows[row].may_end = rn_matcher_allows_ends_alone(matcher, mask, &empty);
    if (!empty) {
        settle_row(guide, row, RN_GUIDE_MASKED);
        return;
    }
    rn_error_set(&error, RUNNEL_UNSUPPORTED, "the vocabulary has no token for what the grammar wants next");
    fail_row(guide, row, &error);
}

/* The row stands behind the drafts of its path. */
static void guide_row(struct rn_matchers_stream *stream, const struct rn_batch_out *out)
{
    struct rn_guide *guide = out->request->guide;
    int32_t drafts[RN_PATH_MOST];
    struct rn_path path = rn_draw_path(out, drafts);
    runnel_status status = RUNNEL_OK;
    runnel_error error = {0};
    uint32_t n = 0;

    for (; n < path.n && status == RUNNEL_OK; n += status == RUNNEL_OK)
        status = rn_matcher_accept(stream->matcher, path.tokens[n], &error);
    if (status == RUNNEL_OK) {
        make_mask(stream->matcher, guide, out->guide_row);
        if (out->mask != NULL && rn_guide_state(guide, out->guide_row) == RN_GUIDE_MASKED)
            rn_draw_mask_put(out->mask, rn_guide_mask(guide, out->guide_row),
                             guide->n_vocab / 64 + (guide->n_vocab % 64 != 0), guide->rows[out->guide_row].may_end);
    } else if (status == RUNNEL_INVALID) {
        settle_row(guide, out->guide_row, RN_GUIDE_REFUSED);
    } else {
        fail_row(guide, out->guide_row, &error);
    }
    RN_CHECK(rn_matcher_rollback(stream->matcher, n));
}

void rn_matchers_guide(struct rn_matchers *matchers, const struct rn_batch_out *outs, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const struct rn_batch_out *out = &outs[i];
        struct rn_matchers_stream *stream;
        runnel_error error = {0}; /* of this row */

        if (!out->guided)
            continue;
        stream = stream_of(matchers, out->request, &error);
        if (stream == NULL) {
            fail_row(out->request->guide, out->guide_row, &error);
            continue;
        }
        RN_ASSERT(stream->n_taken == rn_request_answered(out->request));
        guide_row(stream, out);
    }
}

/* ---- What was drawn ---- */

/* The next token as far as there is no choice of text: the longest that spells it. -1: there is a choice, or a limit
 * was reached. */
static int32_t forced_token(struct rn_matcher *matcher)
{
    char bytes[FORCED_BYTES];
    size_t n, length;

    if (rn_matcher_forced(matcher, bytes, sizeof bytes, &n, NULL) != RUNNEL_OK)
        return -1;
    return n > 0 ? rn_token_longest(matcher->masks->trie, bytes, n, &length) : rn_matcher_only_token(matcher);
}

/* The text behind the stream's tokens. */
static void foretell(struct rn_matchers_stream *stream, struct rn_guide *guide)
{
    uint32_t n;

    for (n = 0; n < RN_PATH_MOST; n++) {
        int32_t token = forced_token(stream->matcher);

        if (token < 0 || (uint32_t)token >= guide->n_vocab ||
            rn_matcher_accept(stream->matcher, token, NULL) != RUNNEL_OK)
            break;
        guide->forced[n] = token;
    }
    guide->n_forced = n;
    RN_CHECK(rn_matcher_rollback(stream->matcher, n));
}

static void take_token(struct rn_matchers_stream *stream, struct rn_batch_out *out)
{
    struct rn_guide *guide = out->request->guide;
    runnel_error error = {0};

    out->status = rn_matcher_accept(stream->matcher, out->pick.token, &error);
    if (out->status != RUNNEL_OK) {
        guide->rows[out->guide_row].error = error;
        return;
    }
    stream->n_taken++;
    out->ended = rn_matcher_has_ended(stream->matcher);
    out->last = rn_matcher_must_end(stream->matcher);
    guide->n_forced = 0;
    if (out->request->verified && !out->ended && !out->last)
        foretell(stream, guide);
}

void rn_matchers_take(struct rn_matchers *matchers, struct rn_batch *batch)
{
    for (uint32_t i = 0; i < batch->step.n_outs && batch->step.status == RUNNEL_OK; i++) {
        struct rn_batch_out *out = &batch->outs[i];

        if (out->guided && !out->asks && !out->refuted && out->status == RUNNEL_OK)
            take_token(&matchers->streams[out->request->slot], out);
    }
}

/* ---- What may be drawn next ---- */

static bool allows(struct rn_matcher *matcher, int32_t token, uint32_t n_vocab)
{
    return token >= 0 && (uint32_t)token < n_vocab && rn_matcher_accept(matcher, token, NULL) == RUNNEL_OK;
}

/* May the runner-up of draft i come there, too? The matcher stays where it is. */
static bool allows_second(struct rn_matcher *matcher, const struct rn_proposal *p, uint32_t i, uint32_t n_vocab)
{
    if (!allows(matcher, p->seconds[i].token, n_vocab))
        return false;
    RN_CHECK(rn_matcher_rollback(matcher, 1));
    return true;
}

/* The chain goes on behind draft i; false: it ends before it. */
static bool cut_draft(struct rn_matcher *matcher, struct rn_proposal *p, uint32_t i, uint32_t n_vocab)
{
    bool branch = (p->branches >> i & 1) != 0, second = allows_second(matcher, p, i, n_vocab);

    if (branch && !second)
        p->branches &= ~(1u << i);
    if (allows(matcher, p->tokens[i], n_vocab))
        return true;
    p->branches &= (1u << i) - 1;
    p->n = i + second;
    if (second) {
        p->tokens[i] = p->seconds[i].token;
        p->seconds[i] = (struct rn_runner_up){.token = -1};
    }
    return false;
}

static void cut_chain(struct rn_matcher *matcher, struct rn_proposal *p, uint32_t n_vocab)
{
    uint32_t i = 0;

    while (i < p->n && cut_draft(matcher, p, i, n_vocab))
        i++;
    RN_CHECK(rn_matcher_rollback(matcher, i));
}

static uint32_t rows_of(const struct rn_proposal *p)
{
    return p->n + (uint32_t)__builtin_popcount(p->branches);
}

uint32_t rn_matchers_cut(struct rn_matchers *matchers, struct rn_proposal_list *list, uint32_t n_vocab)
{
    uint32_t n_cut = 0;

    for (uint32_t i = 0; i < list->n && matchers->streams != NULL; i++) {
        struct rn_proposal *p = &list->items[i];
        const struct rn_matchers_stream *stream = &matchers->streams[p->slot];
        uint32_t before = rows_of(p);

        RN_ASSERT(p->slot < matchers->n_streams && p->n <= RN_PATH_MOST && p->branches >> p->n == 0);
        if (stream->generation != p->generation || p->by_grammar)
            continue;
        cut_chain(stream->matcher, p, n_vocab);
        RN_ASSERT(rows_of(p) <= before && p->branches >> p->n == 0);
        n_cut += before - rows_of(p);
    }
    return n_cut;
}

/* ---- What a host has drawn ---- */

bool rn_matchers_has(const struct rn_matchers *matchers, uint32_t slot, uint32_t generation)
{
    return matchers->streams != NULL && matchers->streams[slot].generation == generation;
}

void rn_matchers_choose(struct rn_matchers *matchers, const struct rn_choice *candidates, struct rn_pay_choice *choice)
{
    struct rn_matchers_stream *stream = &matchers->streams[choice->slot];
    struct rn_pick pick;

    RN_ASSERT(stream->generation == choice->generation && candidates != NULL);
    if (!rn_choice_take(candidates, choice->place, &pick))
        return;
    choice->status = rn_matcher_accept(stream->matcher, pick.token, NULL);
    if (choice->status != RUNNEL_OK)
        return;
    stream->n_taken++;
    choice->ended = rn_matcher_has_ended(stream->matcher);
    choice->last = rn_matcher_must_end(stream->matcher);
}

void rn_matchers_forget(struct rn_matchers *matchers, struct rn_request *request)
{
    struct rn_matchers_stream *stream = &matchers->streams[request->slot];

    RN_CHECK(request->guide->begun && stream->generation == request->generation);
    free_stream(matchers, stream);
    request->guide->begun = false;
}

/* ---- Life ---- */

void rn_matchers_init(struct rn_matchers *matchers, struct rn_heap *heap, uint32_t n_streams)
{
    *matchers = (struct rn_matchers){.heap = heap, .n_streams = n_streams};
}

void rn_matchers_fini(struct rn_matchers *matchers)
{
    rn_grammar_cache_free(matchers->cache); /* no stream is left, or this says so */
    rn_free(matchers->heap, matchers->streams);
}

bool rn_matchers_check(const struct rn_matchers *matchers)
{
    if (matchers->cache != NULL && !rn_grammar_cache_check(matchers->cache))
        return false;
    for (uint32_t i = 0; matchers->streams != NULL && i < matchers->n_streams; i++) {
        const struct rn_matchers_stream *stream = &matchers->streams[i];

        if ((stream->generation != 0) != (stream->matcher != NULL) ||
            (stream->matcher != NULL) != (stream->entry != NULL) ||
            (stream->entry != NULL && stream->entry->users == 0))
            return false;
    }
    return true;
}
