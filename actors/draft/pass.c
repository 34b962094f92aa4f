/* One pass of the drafter: which draft streams have rows in it, and what its logits mean.
 *
 *   rows:  | stream 3: 1 | stream 5: 2 (one guess of its last is not in KV) | stream 0, behind: a chunk of its past |
 *
 * Streams that want a guess come first, in turn; what is left of the rows, as far as the target's step allows, goes to
 * those that are still to compute their past, which is how a prompt that the target found in its prefix cache comes
 * to be known here. Runs inside the draft actor. */
#include "actors/draft/pass.h"

#include <string.h>

#include "actors/context.h"
#include "actors/draft/branch.h"
#include "actors/draft/cache.h"
#include "actors/draft/features.h"
#include "actors/draft/wishes.h"
#include "actors/telemetry/telemetry.h"
#include "base/check.h"
#include "base/min.h"

#define SMOOTHING 0.25f /* weight of the newest pass */
#define LEAST_CHUNK 16u /* rows of the past of one draft stream */
#define JUMP 8          /* so many times what is usual a pass may count: others may have had the cores */

void rn_draft_free_stream(struct rn_draft_actor *draft, struct rn_draft_stream *draft_stream)
{
    struct rn_heap *heap = draft->context->heap;

    RN_CHECK(!rn_draft_in_pass(draft_stream));
    rn_branch_free(draft, draft_stream);
    rn_block_pool_unref(&draft->pool, draft_stream->blocks, draft_stream->n_blocks);
    rn_free(heap, draft_stream->tokens);
    rn_free(heap, draft_stream->blocks);
    rn_draft_stream_features_free(draft, draft_stream);
    *draft_stream = (struct rn_draft_stream){0};
}

/* Blocks, and what was computed in them. */
static void let_go(struct rn_draft_actor *draft, struct rn_draft_stream *draft_stream)
{
    rn_branch_drop(draft, draft_stream);
    rn_block_pool_unref(&draft->pool, draft_stream->blocks, draft_stream->n_blocks);
    draft_stream->n_blocks = 0;
    RN_ASSERT(draft_stream->state == RN_DRAFTS_OFF && !rn_draft_in_pass(draft_stream));
    rn_draft_stream_reset(draft_stream);
}

/* The draft stream stays, so that its stream is known to be off, but holds no blocks. */
void rn_draft_switch_off(struct rn_draft_actor *draft, struct rn_draft_stream *draft_stream)
{
    if (draft_stream->state == RN_DRAFTS_OFF)
        return;
    draft_stream->state = RN_DRAFTS_OFF;
    draft_stream->changed = true;
    draft_stream->n_tokens = draft_stream->n_known;
    rn_branch_drop(draft, draft_stream);
    if (!rn_draft_in_pass(draft_stream))
        let_go(draft, draft_stream);
}

/* ---- Composing ---- */

/* A line that finds no block takes those of streams that have ended, and then of branches; the pass has none of these
 * yet. */
static bool take_block(struct rn_draft_actor *draft, uint32_t *block)
{
    rn_draft_cache_make_room(draft);
    for (uint32_t i = 0; draft->pool.n_free == 0 && i < draft->n_draft_streams; i++)
        rn_branch_drop(draft, &draft->draft_streams[i]);
    return rn_block_pool_take(&draft->pool, 1, block);
}

static bool lease(struct rn_draft_actor *draft, struct rn_draft_stream *draft_stream, uint32_t n_positions)
{
    uint32_t per_block = draft->drafter->limits.block_tokens;

    RN_CHECK(n_positions <= draft_stream->max_blocks * per_block);
    while (draft_stream->n_blocks * per_block < n_positions) {
        if (!take_block(draft, &draft_stream->blocks[draft_stream->n_blocks]))
            return false;
        draft_stream->n_blocks++;
    }
    return true;
}

/* n rows of the draft stream in the pass's layer; if they come to its last token, with logits. */
static void add_draft_stream(struct rn_draft_actor *draft, struct rn_draft_stream *draft_stream, uint32_t n)
{
    struct rn_step *pass = &draft->pass;
    struct rn_draft_stream_layer *layer = &draft_stream->layers[draft->layer];
    bool is_last = draft->layer + 1 == draft->drafter->n_layers;
    uint32_t end = layer->n_done + n, width = draft->drafter->n_features;

    RN_CHECK(pass->n_rows + n <= draft->drafter->limits.max_rows && pass->n_seqs < draft->drafter->limits.max_seqs);
    RN_ASSERT(n > 0 && end <= draft_stream->n_tokens && !rn_draft_in_pass(draft_stream));
    if (!lease(draft, draft_stream, end - layer->shift)) {
        rn_draft_switch_off(draft, draft_stream);
        return;
    }
    pass->seqs[pass->n_seqs] = (struct rn_step_seq){.blocks = draft_stream->blocks, .n_blocks = draft_stream->n_blocks};
    for (uint32_t i = layer->n_done; i < end; i++) {
        if (width > 0)
            memcpy(draft->inputs + (size_t)pass->n_rows * width,
                   rn_draft_stream_input(draft, draft_stream, draft->layer, i), width * sizeof(float));
        if (width > 0 && (!is_last || i + 1 == end))
            draft->feature_rows[pass->n_features++] = pass->n_rows;
        pass->rows[pass->n_rows++] =
            (struct rn_step_row){.token = draft_stream->tokens[i],
                                 .position = i - layer->shift,
                                 .seq = pass->n_seqs,
                                 .out = i + 1 == draft_stream->n_tokens ? (int32_t)pass->n_outs++ : -1};
    }
    draft->draft_stream_of[pass->n_seqs++] = draft_stream;
    draft_stream->from = layer->n_done;
    layer->n_done = end;
    draft_stream->n_valid = UINT32_MAX;
    draft_stream->in_pass = true;
}

static bool is_full(const struct rn_draft_actor *draft, uint32_t n)
{
    const struct rn_backend_limits *limits = &draft->drafter->limits;

    return draft->pass.n_seqs == limits->max_seqs || draft->pass.n_outs == limits->max_outs ||
           draft->pass.n_rows + n > limits->max_rows;
}

/* A pass is one layer's: that of its first draft stream. */
static bool is_of(const struct rn_draft_actor *draft, uint32_t layer)
{
    return draft->pass.n_rows == 0 || draft->layer == layer;
}

static void add_guesses(struct rn_draft_actor *draft)
{
    uint32_t first = draft->cursor;

    for (uint32_t i = 0; i < draft->n_draft_streams; i++) {
        struct rn_draft_stream *draft_stream = &draft->draft_streams[(first + i) % draft->n_draft_streams];
        uint32_t l = rn_draft_stream_next_layer(draft, draft_stream), n;

        if (rn_draft_has_enough(draft, draft_stream) || !is_of(draft, l) || rn_branch_goes_first(draft, draft_stream))
            continue;
        n = rn_draft_stream_next_rows(draft, draft_stream, l);
        if (is_full(draft, n))
            return;
        RN_ASSERT(n > 0 && l < draft->drafter->n_layers);
        draft_stream->layers[l].n_done -= rn_draft_stream_pending(draft_stream, l) == 0;
        draft->layer = l;
        draft->cursor = (first + i + 1) % draft->n_draft_streams;
        add_draft_stream(draft, draft_stream, n);
    }
}

/* Rows of somebody's past that may pass between two steps of the target: with them the pass should take half of its
 * time, or where one row takes that already, twice that. */
static uint32_t chunk(const struct rn_draft_actor *draft)
{
    uint32_t most = draft->drafter->limits.max_rows - draft->pass.n_rows;
    float left_us = (float)draft->target_us / 2 - (float)draft->guess_us, n;

    if (draft->drafter->concurrent)
        return most;
    left_us = left_us > (float)draft->guess_us ? left_us : (float)draft->guess_us;
    n = draft->row_us > 0 ? left_us / draft->row_us : (float)most;
    n = n > (float)LEAST_CHUNK ? n : (float)LEAST_CHUNK;
    return n < (float)most ? (uint32_t)n : most;
}

/* Rows of the draft stream's past that the pass may have, and their layer: the deepest that is behind, so that what it
 * reads need not wait for it. A deeper layer may fall behind while guesses are few: it catches up before that shows. */
static uint32_t past_of(const struct rn_draft_actor *draft, const struct rn_draft_stream *draft_stream, uint32_t *layer)
{
    uint32_t most = chunk(draft);

    for (uint32_t l = draft->drafter->n_layers; l-- > 0;) {
        uint32_t n = rn_draft_stream_pending(draft_stream, l), rows;

        if (n <= (l == 0 ? RN_DRAFT_MAX_LAG : RN_DRAFT_MAX_LAG / 2) || !is_of(draft, l))
            continue;
        rows = rn_draft_stream_rows(draft, draft_stream, l,
                                    n - 1 < most ? n - 1 : most); /* not its last: that is a guess's row */
        *layer = l;
        if (rows > (l == 0 ? 0 : RN_DRAFT_MAX_LAG / 2) || (rows > 0 && n > RN_DRAFT_MAX_LAG))
            return rows;
    }
    return 0;
}

/* Of one draft stream: the next one has its turn in the next pass. */
static void add_past(struct rn_draft_actor *draft)
{
    for (uint32_t i = 0; i < draft->n_draft_streams && rn_draft_can_work(draft); i++) {
        struct rn_draft_stream *draft_stream = &draft->draft_streams[(draft->cursor + i) % draft->n_draft_streams];
        uint32_t layer, n;

        if (!rn_draft_is_open(draft_stream) || draft_stream->in_pass || draft_stream->more)
            continue;
        if (is_full(draft, 1))
            return;
        n = past_of(draft, draft_stream, &layer);
        if (n == 0)
            continue;
        draft->layer = layer;
        draft->cursor = (draft->cursor + i + 1) % draft->n_draft_streams;
        add_draft_stream(draft, draft_stream, n);
        draft->guesses = false;
        draft_stream->n_past = n;
        return;
    }
}

/* Behind all lines: what is left of the pass. */
static void add_branches(struct rn_draft_actor *draft)
{
    for (uint32_t i = 0; i < draft->n_draft_streams && draft->has_time; i++) {
        struct rn_draft_stream *draft_stream = &draft->draft_streams[(draft->cursor + i) % draft->n_draft_streams];

        if (is_full(draft, 1))
            return;
        if (draft_stream->generation != 0 && rn_branch_goes_first(draft, draft_stream))
            rn_branch_compose(draft, draft_stream);
    }
}

/* Would a pass that begins now end before the target's step? */
static bool has_time(const struct rn_draft_actor *draft)
{
    return draft->drafter->concurrent && rn_draft_can_work(draft) && draft->ends_us > 0 &&
           rn_now_us(draft->context->clock) + draft->guess_us <= draft->ends_us;
}

static void on_pass_done(struct rn_step *pass)
{
    struct rn_draft_actor *draft = pass->user;
    struct rn_msg *msg = draft->msg;

    rn_telemetry_draft_done(draft->context, &draft->times);
    msg->head.kind = RN_MSG_DRAFTED;
    rn_actor_send(&draft->actor, msg);
}

void rn_draft_begin_pass(struct rn_draft_actor *draft)
{
    struct rn_step *pass = &draft->pass;
    struct rn_drafter_layer layer = {draft->drafter->plan, draft->drafter->backend};

    if (draft->in_flight || draft->failed || draft->last_news != NULL)
        return;
    pass->n_rows = pass->n_seqs = pass->n_outs = pass->n_features = pass->n_copies = 0;
    draft->guesses = true;
    draft->has_time = has_time(draft);
    for (uint32_t i = 0; i < draft->n_draft_streams; i++)
        if (rn_draft_is_open(&draft->draft_streams[i]))
            rn_draft_cache_settle(draft, &draft->draft_streams[i]);
    add_guesses(draft);
    add_past(draft);
    add_branches(draft);
    if (pass->n_rows == 0)
        return;
    RN_ASSERT(pass->n_outs <= draft->drafter->limits.max_outs && draft->layer < draft->drafter->n_layers);
    draft->in_flight = true;
    draft->msg = rn_msg_new(draft->actor.runtime, RN_MSG_DRAFTED);
    pass->on_done = on_pass_done;
    pass->user = draft;
    pass->stop = &draft->stop;
    rn_stop_clear(&draft->stop);
    if (draft->layer > 0)
        layer = draft->drafter->deeper[draft->layer - 1];
    RN_ASSERT(layer.plan == NULL || rn_step_check(pass, layer.plan, &draft->drafter->limits));
    rn_telemetry_draft_begun(draft->context, &draft->times);
    layer.backend->ops->submit_async(layer.backend, pass);
}

/* Does anybody wait for what the pass in flight computes of this stream? */
static bool is_wanted(const struct rn_draft_stream *draft_stream)
{
    return !draft_stream->ended && draft_stream->state != RN_DRAFTS_OFF;
}

void rn_draft_stop_pass(struct rn_draft_actor *draft)
{
    if (!draft->in_flight)
        return;
    for (uint32_t i = 0; i < draft->pass.n_seqs; i++)
        if (is_wanted(draft->draft_stream_of[i]))
            return;
    rn_stop_set(&draft->stop);
}

/* ---- What came of it ---- */

static uint32_t smoothed(uint32_t old, uint64_t now)
{
    float us = now > 0 ? (float)now : 1;

    if (old == 0)
        return (uint32_t)us;
    us = us < JUMP * (float)old ? us : JUMP * (float)old;
    return (uint32_t)((float)old + SMOOTHING * (us - (float)old) + 0.5f);
}

/* Where drafter and target take turns only a pass that has not waited for the target tells its time. */
static void note_time(struct rn_draft_actor *draft, uint64_t us)
{
    const struct rn_step *pass = &draft->pass;
    float row_us = us > draft->guess_us ? (float)(us - draft->guess_us) / (float)pass->n_rows : 0;

    if (!draft->drafter->concurrent && draft->times.waited)
        return;
    if (draft->guesses) /* what it made up for is not the guess's, but half at most */
        draft->guess_us =
            smoothed(draft->guess_us, us - rn_min_u64(us / 2, (uint64_t)((float)pass->n_rows * draft->row_us)));
    else
        draft->row_us += SMOOTHING * (row_us - draft->row_us);
}

/* The guess behind the draft stream's last token, if that is still what the pass computed. */
static void take_guess(struct rn_draft_actor *draft, struct rn_draft_stream *draft_stream, uint32_t end,
                       const float *logits)
{
    if (draft_stream->n_valid < end || draft_stream->n_tokens != end || end >= draft_stream->capacity ||
        draft_stream->state == RN_DRAFTS_OFF)
        return;
    if (!rn_draft_guess(draft, draft_stream, end, logits, &draft_stream->tokens[end],
                        &draft_stream->seconds[end % RN_GUESS_MOST])) {
        rn_draft_switch_off(draft, draft_stream);
        return;
    }
    draft_stream->n_tokens = end + 1;
    draft_stream->changed = true;
    RN_ASSERT(draft_stream->n_tokens - draft_stream->n_known <= RN_GUESS_MOST); /* as many runners-up are kept */
}

/* The last of a sequence's n rows says whether there are logits. */
static void settle_draft_stream(struct rn_draft_actor *draft, struct rn_draft_stream *draft_stream,
                                const struct rn_step_row *last, uint32_t n_rows, const float *features)
{
    struct rn_draft_stream_layer *layer = &draft_stream->layers[draft->layer];
    const float *logits = draft->pass.logits + (size_t)(last->out >= 0 ? last->out : 0) * draft->context->n_vocab;
    uint32_t end = draft_stream->from + n_rows;
    bool branch = draft_stream->branch.in_pass;

    RN_ASSERT(draft_stream->in_pass != branch && draft_stream->generation != 0);
    draft_stream->in_pass = draft_stream->branch.in_pass = false;
    if (draft_stream->n_past > 0)
        rn_draft_cache_note(draft, draft_stream);
    if (draft_stream->n_valid < layer->n_done)
        layer->n_done = draft_stream->n_valid > layer->shift ? draft_stream->n_valid : layer->shift;
    if (draft_stream->ended) {
        if (!draft->failed)
            rn_draft_cache_keep(draft, draft_stream);
        rn_draft_free_stream(draft, draft_stream);
        return;
    }
    if (draft_stream->state == RN_DRAFTS_OFF) {
        let_go(draft, draft_stream);
        return;
    }
    if (draft_stream->branch.at == 0)
        rn_branch_drop(draft, draft_stream);
    if (branch) {
        if (!rn_branch_settle(draft, draft_stream, logits))
            rn_draft_switch_off(draft, draft_stream);
        return;
    }
    rn_draft_stream_keep(draft, draft_stream, draft->layer, draft_stream->from, end, features);
    if (last->out >= 0)
        take_guess(draft, draft_stream, end, logits);
    rn_draft_look_at(draft_stream);
}

/* What a stopped pass has left of its rows is rubbish. */
static void take_back(struct rn_draft_stream *draft_stream)
{
    RN_CHECK(!is_wanted(draft_stream));
    if (draft_stream->in_pass && draft_stream->n_valid > draft_stream->from)
        draft_stream->n_valid = draft_stream->from;
}

static void fail(struct rn_draft_actor *draft)
{
    draft->failed = true;
    rn_log(draft->context->log, RUNNEL_LOG_WARNING, "%s: a pass of the drafter has failed: no more drafts",
           draft->context->metrics->name);
    for (uint32_t i = 0; i < draft->n_draft_streams; i++)
        if (rn_draft_is_open(&draft->draft_streams[i]))
            rn_draft_switch_off(draft, &draft->draft_streams[i]);
}

void rn_draft_end_pass(struct rn_draft_actor *draft)
{
    const struct rn_step *pass = &draft->pass;
    const float *features = pass->features;
    bool stopped = pass->status == RUNNEL_CANCELLED;
    uint64_t us = rn_telemetry_drafted(draft->context, &draft->times);

    RN_ASSERT(draft->in_flight && pass->n_rows > 0 && pass->n_seqs > 0);
    draft->in_flight = false;
    if (!stopped)
        note_time(draft, us);
    if (pass->status != RUNNEL_OK && !stopped)
        fail(draft);
    for (uint32_t i = 0; stopped && i < pass->n_seqs; i++)
        take_back(draft->draft_stream_of[i]);
    for (uint32_t i = 0, n = 1; i < pass->n_rows; i++, n++) {
        if (i + 1 < pass->n_rows && pass->rows[i + 1].seq == pass->rows[i].seq)
            continue;
        settle_draft_stream(draft, draft->draft_stream_of[pass->rows[i].seq], &pass->rows[i], n, features);
        features += (size_t)(draft->layer + 1 < draft->drafter->n_layers ? n : 1) * draft->drafter->n_features;
        n = 0;
    }
}
