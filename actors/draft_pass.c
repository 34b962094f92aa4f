/* One pass of the drafter: which seats have rows in it, and what its logits mean.
 *
 *   rows:  | seat 3: 1 | seat 5: 2 (one guess of its last was not made into KV) | seat 0, behind: a chunk of its past |
 *
 * Seats that want a guess come first, in turn; what is left of the rows, as far as the target's step allows, goes to
 * those that are still to compute their past, which is how a prompt that the target found in its prefix cache comes
 * to be known here. Runs inside the draft actor. */
#include <string.h>

#include "actors/context.h"
#include "actors/draft_actor.h"
#include "actors/note.h"
#include "base/check.h"

#define SMOOTHING 0.25f    /* weight of the newest pass */
#define LEAST_CHUNK 16u    /* rows of the past of one seat */
#define FORGET_STEPS 1024u /* of the target, after which a drafter that was too slow may try again */
#define JUMP 8             /* so many times what is usual a pass may count: others may have had the cores */

bool rn_draft_in_pass(const struct rn_seat *seat)
{
    return seat->in_pass || seat->branch.in_pass;
}

void rn_draft_free_seat(struct rn_draft_actor *draft, struct rn_seat *seat)
{
    struct rn_heap *heap = draft->context->heap;

    RN_CHECK(!rn_draft_in_pass(seat));
    rn_branch_free(draft, seat);
    rn_block_pool_unref(&draft->pool, seat->blocks, seat->n_blocks);
    rn_free(heap, seat->tokens);
    rn_free(heap, seat->blocks);
    rn_seat_features_free(draft, seat);
    *seat = (struct rn_seat){0};
}

/* Blocks, and what was computed in them. */
static void let_go(struct rn_draft_actor *draft, struct rn_seat *seat)
{
    rn_branch_drop(draft, seat);
    rn_block_pool_unref(&draft->pool, seat->blocks, seat->n_blocks);
    seat->n_blocks = 0;
    rn_seat_reset(seat);
}

/* The seat stays, so that its stream is known to be off, but holds no blocks. */
void rn_draft_switch_off(struct rn_draft_actor *draft, struct rn_seat *seat)
{
    if (seat->state == RN_DRAFTS_OFF)
        return;
    seat->state = RN_DRAFTS_OFF;
    seat->changed = true;
    seat->n_tokens = seat->n_known;
    rn_branch_drop(draft, seat);
    if (!rn_draft_in_pass(seat))
        let_go(draft, seat);
}

/* ---- Wishes ---- */

/* So slow that drafts hardly ever pay, and reading prompts for them never: beside the target, one that has a guess no
 * sooner than the target the token; in turn with it, where 9 of 10 right would gain a fifth, one that takes more than
 * 0.6 of its time. */
static bool is_hopeless(const struct rn_draft_actor *draft)
{
    uint32_t share = draft->drafter->concurrent ? 10 : 6;

    return draft->target_us > 0 && (uint64_t)10 * draft->guess_us >= (uint64_t)share * draft->target_us;
}

/* Not before the target's time is known. */
static bool can_work(const struct rn_draft_actor *draft)
{
    return draft->target_us > 0 && !is_hopeless(draft);
}

void rn_draft_look_at_time(struct rn_draft_actor *draft)
{
    if (!is_hopeless(draft) || ++draft->n_idle < FORGET_STEPS)
        return;
    draft->n_idle = 0;
    draft->guess_us = draft->drafter->pass_us; /* what slowed it may be over */
    for (uint32_t i = 0; i < draft->n_seats; i++)
        draft->seats[i].changed = draft->seats[i].generation != 0;
}

/* Guesses that the seat should have. */
static uint32_t goal(const struct rn_draft_actor *draft, const struct rn_seat *seat)
{
    uint32_t n = seat->want, room = seat->capacity - seat->n_known;

    if (n == 0 || !can_work(draft) || (!draft->drafter->concurrent && !seat->waits))
        return 0;
    if (seat->flying)
        n += seat->n_flying + 1;
    n = n < RN_GUESS_MOST ? n : RN_GUESS_MOST;
    return n < room ? n : room;
}

static bool is_behind(const struct rn_seat *seat)
{
    for (uint32_t l = 0; l < RN_DRAFT_LAYERS; l++)
        if (rn_seat_pending(seat, l) > RN_DRAFT_LAG && (l == 0 || seat->layers[l].features != NULL))
            return true;
    return false;
}

void rn_draft_look_at(struct rn_seat *seat)
{
    enum rn_drafts_state state = is_behind(seat) ? RN_DRAFTS_BEHIND : RN_DRAFTS_READY;

    if (seat->state == state || seat->state == RN_DRAFTS_OFF)
        return;
    seat->state = state;
    seat->changed = true;
}

static bool is_open(const struct rn_seat *seat)
{
    return seat->generation != 0 && !seat->ended && seat->state != RN_DRAFTS_OFF;
}

bool rn_draft_is_sated(const struct rn_draft_actor *draft, const struct rn_seat *seat)
{
    uint32_t l = rn_seat_next_layer(draft, seat);

    if (!is_open(seat) || is_behind(seat) || seat->n_tokens - seat->n_known >= goal(draft, seat))
        return true;
    /* without features nothing can be computed before the next news: whoever waits would wait for ever */
    return !seat->in_pass && rn_seat_next_rows(draft, seat, l) == 0;
}

/* ---- Composing ---- */

/* A line that finds no block takes those of streams that have ended, and then of branches; the pass has none of these
 * yet. */
static bool take_block(struct rn_draft_actor *draft, uint32_t *block)
{
    rn_past_make_room(draft);
    for (uint32_t i = 0; draft->pool.n_free == 0 && i < draft->n_seats; i++)
        rn_branch_drop(draft, &draft->seats[i]);
    return rn_block_pool_take(&draft->pool, 1, block);
}

static bool lease(struct rn_draft_actor *draft, struct rn_seat *seat, uint32_t n_positions)
{
    uint32_t per_block = draft->drafter->limits.block_tokens;

    while (seat->n_blocks * per_block < n_positions) {
        if (!take_block(draft, &seat->blocks[seat->n_blocks]))
            return false;
        seat->n_blocks++;
    }
    return true;
}

/* n rows of the seat in the pass's layer; if they come to its last token, with logits. */
static void add_seat(struct rn_draft_actor *draft, struct rn_seat *seat, uint32_t n)
{
    struct rn_step *pass = &draft->pass;
    struct rn_seat_layer *layer = &seat->layers[draft->layer];
    bool is_last = draft->layer + 1 == draft->drafter->n_layers;
    uint32_t end = layer->n_done + n, width = draft->drafter->n_features;

    if (!lease(draft, seat, end - layer->shift)) {
        rn_draft_switch_off(draft, seat);
        return;
    }
    pass->seqs[pass->n_seqs] = (struct rn_step_seq){.blocks = seat->blocks, .n_blocks = seat->n_blocks};
    for (uint32_t i = layer->n_done; i < end; i++) {
        if (width > 0)
            memcpy(draft->inputs + (size_t)pass->n_rows * width, rn_seat_input(draft, seat, draft->layer, i),
                   width * sizeof(float));
        if (width > 0 && (!is_last || i + 1 == end))
            draft->feature_rows[pass->n_features++] = pass->n_rows;
        pass->rows[pass->n_rows++] =
            (struct rn_step_row){.token = seat->tokens[i],
                                 .position = i - layer->shift,
                                 .seq = pass->n_seqs,
                                 .out = i + 1 == seat->n_tokens ? (int32_t)pass->n_outs++ : -1};
    }
    draft->seat_of[pass->n_seqs++] = seat;
    seat->from = layer->n_done;
    layer->n_done = end;
    seat->n_valid = UINT32_MAX;
    seat->in_pass = true;
}

static bool is_full(const struct rn_draft_actor *draft, uint32_t n)
{
    const struct rn_backend_limits *limits = &draft->drafter->limits;

    return draft->pass.n_seqs == limits->max_seqs || draft->pass.n_outs == limits->max_outs ||
           draft->pass.n_rows + n > limits->max_rows;
}

/* A pass is one layer's: that of its first seat. */
static bool is_of(const struct rn_draft_actor *draft, uint32_t layer)
{
    return draft->pass.n_rows == 0 || draft->layer == layer;
}

static void add_guesses(struct rn_draft_actor *draft)
{
    uint32_t first = draft->cursor;

    for (uint32_t i = 0; i < draft->n_seats; i++) {
        struct rn_seat *seat = &draft->seats[(first + i) % draft->n_seats];
        uint32_t l = rn_seat_next_layer(draft, seat), n;

        if (rn_draft_is_sated(draft, seat) || !is_of(draft, l) || rn_branch_goes_first(draft, seat))
            continue;
        n = rn_seat_next_rows(draft, seat, l);
        if (is_full(draft, n))
            return;
        seat->layers[l].n_done -= rn_seat_pending(seat, l) == 0;
        draft->layer = l;
        draft->cursor = (first + i + 1) % draft->n_seats;
        add_seat(draft, seat, n);
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

/* Rows of the seat's past that the pass may have, and their layer: the deepest that is behind, so that what it reads
 * need not wait for it. A deeper layer may fall behind while guesses are few: it catches up before that shows. */
static uint32_t past_of(const struct rn_draft_actor *draft, const struct rn_seat *seat, uint32_t *layer)
{
    uint32_t most = chunk(draft);

    for (uint32_t l = draft->drafter->n_layers; l-- > 0;) {
        uint32_t n = rn_seat_pending(seat, l), rows;

        if (n <= (l == 0 ? RN_DRAFT_LAG : RN_DRAFT_LAG / 2) || !is_of(draft, l))
            continue;
        rows = rn_seat_rows(draft, seat, l, n - 1 < most ? n - 1 : most); /* not its last: that is a guess's row */
        *layer = l;
        if (rows > (l == 0 ? 0 : RN_DRAFT_LAG / 2) || (rows > 0 && n > RN_DRAFT_LAG))
            return rows;
    }
    return 0;
}

/* Of one seat: the next one has its turn in the next pass. */
static void add_past(struct rn_draft_actor *draft)
{
    for (uint32_t i = 0; i < draft->n_seats && can_work(draft); i++) {
        struct rn_seat *seat = &draft->seats[(draft->cursor + i) % draft->n_seats];
        uint32_t layer, n;

        if (!is_open(seat) || seat->in_pass || seat->more)
            continue;
        if (is_full(draft, 1))
            return;
        n = past_of(draft, seat, &layer);
        if (n == 0)
            continue;
        draft->layer = layer;
        draft->cursor = (draft->cursor + i + 1) % draft->n_seats;
        add_seat(draft, seat, n);
        draft->guesses = false;
        seat->n_past = n;
        return;
    }
}

/* Behind all lines: what is left of the pass. */
static void add_branches(struct rn_draft_actor *draft)
{
    for (uint32_t i = 0; i < draft->n_seats && draft->has_time; i++) {
        struct rn_seat *seat = &draft->seats[(draft->cursor + i) % draft->n_seats];

        if (is_full(draft, 1))
            return;
        if (seat->generation != 0 && rn_branch_goes_first(draft, seat))
            rn_branch_compose(draft, seat);
    }
}

/* Would a pass that begins now end before the target's step? */
static bool has_time(const struct rn_draft_actor *draft)
{
    return draft->drafter->concurrent && can_work(draft) && draft->ends_us > 0 &&
           rn_now_us(draft->context->clock) + draft->guess_us <= draft->ends_us;
}

static void on_pass_done(struct rn_step *pass)
{
    struct rn_draft_actor *draft = pass->user;
    struct rn_msg *msg = draft->msg;

    rn_note_draft_done(draft->context, &draft->times);
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
    for (uint32_t i = 0; i < draft->n_seats; i++)
        if (is_open(&draft->seats[i]))
            rn_past_settle(draft, &draft->seats[i]);
    add_guesses(draft);
    add_past(draft);
    add_branches(draft);
    if (pass->n_rows == 0)
        return;
    draft->in_flight = true;
    draft->msg = rn_msg_new(draft->actor.runtime, RN_MSG_DRAFTED);
    pass->on_done = on_pass_done;
    pass->user = draft;
    if (draft->layer > 0)
        layer = draft->drafter->deeper[draft->layer - 1];
    RN_ASSERT(layer.plan == NULL || rn_step_check(pass, layer.plan, &draft->drafter->limits));
    rn_note_draft_begun(draft->context, &draft->times);
    layer.backend->ops->submit_async(layer.backend, pass);
}

/* ---- What came of it ---- */

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

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
            smoothed(draft->guess_us, us - least(us / 2, (uint64_t)((float)pass->n_rows * draft->row_us)));
    else
        draft->row_us += SMOOTHING * (row_us - draft->row_us);
}

bool rn_draft_guess(struct rn_draft_actor *draft, struct rn_seat *seat, uint32_t i, const float *logits, int32_t *token,
                    struct rn_second *second)
{
    struct rn_pick pick;

    if (rn_sampler_pick_plain(&seat->sampling, draft->context->n_vocab, draft->scratch, logits, seat->base + i, &pick,
                              second) != RUNNEL_OK) {
        rn_draft_switch_off(draft, seat);
        return false;
    }
    *token = pick.token;
    return true;
}

/* The guess behind the seat's last token, if that is still what the pass computed. */
static void take_guess(struct rn_draft_actor *draft, struct rn_seat *seat, uint32_t end, const float *logits)
{
    if (seat->n_valid < end || seat->n_tokens != end || end >= seat->capacity || seat->state == RN_DRAFTS_OFF)
        return;
    if (!rn_draft_guess(draft, seat, end, logits, &seat->tokens[end], &seat->seconds[end % RN_GUESS_MOST]))
        return;
    seat->n_tokens = end + 1;
    seat->changed = true;
}

/* The last of a sequence's n rows says whether there are logits. */
static void settle_seat(struct rn_draft_actor *draft, struct rn_seat *seat, const struct rn_step_row *last,
                        uint32_t n_rows, const float *features)
{
    struct rn_seat_layer *layer = &seat->layers[draft->layer];
    const float *logits = draft->pass.logits + (size_t)(last->out >= 0 ? last->out : 0) * draft->context->n_vocab;
    uint32_t end = seat->from + n_rows;
    bool branch = seat->branch.in_pass;

    seat->in_pass = seat->branch.in_pass = false;
    if (seat->n_past > 0)
        rn_past_note(draft, seat);
    if (seat->n_valid < layer->n_done)
        layer->n_done = seat->n_valid > layer->shift ? seat->n_valid : layer->shift;
    if (seat->ended) {
        if (!draft->failed)
            rn_past_keep(draft, seat);
        rn_draft_free_seat(draft, seat);
        return;
    }
    if (seat->state == RN_DRAFTS_OFF) {
        let_go(draft, seat);
        return;
    }
    if (seat->branch.at == 0)
        rn_branch_drop(draft, seat);
    if (branch) {
        rn_branch_settle(draft, seat, logits);
        return;
    }
    rn_seat_keep(draft, seat, draft->layer, seat->from, end, features);
    if (last->out >= 0)
        take_guess(draft, seat, end, logits);
    rn_draft_look_at(seat);
}

static void fail(struct rn_draft_actor *draft)
{
    draft->failed = true;
    rn_log(draft->context->log, RUNNEL_LOG_WARNING, "%s: a pass of the drafter has failed: no more drafts",
           draft->context->metrics->name);
    for (uint32_t i = 0; i < draft->n_seats; i++)
        if (is_open(&draft->seats[i]))
            rn_draft_switch_off(draft, &draft->seats[i]);
}

void rn_draft_end_pass(struct rn_draft_actor *draft)
{
    const struct rn_step *pass = &draft->pass;
    const float *features = pass->features;

    draft->in_flight = false;
    note_time(draft, rn_note_drafted(draft->context, &draft->times));
    if (pass->status != RUNNEL_OK)
        fail(draft);
    for (uint32_t i = 0, n = 1; i < pass->n_rows; i++, n++) {
        if (i + 1 < pass->n_rows && pass->rows[i + 1].seq == pass->rows[i].seq)
            continue;
        settle_seat(draft, draft->seat_of[pass->rows[i].seq], &pass->rows[i], n, features);
        features += (size_t)(draft->layer + 1 < draft->drafter->n_layers ? n : 1) * draft->drafter->n_features;
        n = 0;
    }
}
