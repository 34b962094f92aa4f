/* One step's batch: first a row of each running sequence, in turn, then chunks of prompts, in turn.
 *
 *   rows:  | r3 | r4 | r0 | r1 | prompt A, chunk of 120 ............ | prompt B, 8 |
 *            └ running, from the cursor on ┘  └ what is left of max_rows ┘
 *
 * How much of the rows prompts may take is the pace's (prompt_budget.h). Each part goes by priority, and in turn among
 * equals. While prompts wait, running sequences take at most three quarters of the rows and of the wanted rows, so
 * that a prompt always advances; if its end lacks what its draw takes, that is kept for it in the next step. A
 * sequence without credit (its reader is behind) or without a block for its next position is left out. While steps are
 * in flight those take part whose next token the last one draws, those that are in none, and prompts that go on.
 * Nothing here changes what a row computes (law 5), only when. */
#include "actors/decode/compose.h"

#include <string.h>

#include "actors/context.h"
#include "actors/decode/states.h"
#include "actors/draft/drafter.h"
#include "actors/embed.h"
#include "actors/grammar/guide.h"
#include "base/check.h"
#include "model/kv_size.h"

#define PROMPT_FEATURES 512u /* of so many positions at its end a drafter reads them */

static int32_t credit_of(const struct rn_decode *decode, const struct rn_request *request)
{
    return decode->credits[request->slot].n;
}

static struct rn_batch_part *add_part(struct rn_decode *decode, struct rn_request *request, bool prompt)
{
    struct rn_batch *batch = decode->batch;
    struct rn_batch_part *part = &batch->parts[batch->n_parts];

    RN_CHECK(batch->n_parts < decode->context->limits->max_seqs);
    RN_ASSERT(request->in_steps <= decode->ring.n_flying && !request->last_chunk);
    RN_ASSERT(request->leaf_offset == 0 || (request->in_steps == 0 && request->n_done > 0));
    *part = (struct rn_batch_part){.request = request,
                                   .prompt = prompt,
                                   .features = batch->step.n_features,
                                   .embed = request->embed,
                                   .ahead = request->in_steps > 0};
    batch->step.seqs[batch->n_parts] = (struct rn_step_seq){.blocks = request->blocks,
                                                            .n_blocks = request->n_blocks,
                                                            .means = request->means,
                                                            .n_means = request->n_means,
                                                            .adapter = request->adapter};
    if (decode->context->limits->window > 0) {
        batch->step.seqs[batch->n_parts].windows = request->windows.blocks;
        batch->step.seqs[batch->n_parts].n_windows = request->windows.n;
    }
    if (batch->step.states != NULL)
        rn_decode_put_state(batch, decode->ring.states, request);
    if (request->copy == RN_COPY_WANTED)
        batch->step.copies[batch->step.n_copies++] =
            (struct rn_step_copy){request->copy_from, request->blocks[request->copy_at]};
    if (request->leaf_offset > 0) {
        part->moves = true;
        batch->step.moves[batch->step.n_moves++] =
            (struct rn_step_move){batch->n_parts, request->leaf_offset, request->n_done - 1};
        request->leaf_offset = 0;
    }
    batch->n_parts++;
    batch->verifies |= request->verified;
    request->in_steps++;
    return part;
}

/* Of the step that is composed. */
static int32_t *drawn_of(struct rn_decode *decode)
{
    return decode->ring.arrays[decode->ring.n_submitted % decode->ring.size].drawn;
}

static bool is_current(const struct rn_proposal *proposal, const struct rn_request *request)
{
    return request->verified && proposal->generation == request->generation;
}

/* Of a prompt its last positions'. */
static bool wants_features(const struct rn_decode *decode, const struct rn_batch_part *part, uint32_t position)
{
    const struct rn_request *request = part->request;
    const struct rn_proposal *proposal = &decode->proposals[request->slot];

    if (!part->prompt)
        return is_current(proposal, request) && proposal->features;
    return request->verified && request->tells_features &&
           (request->n_fill < PROMPT_FEATURES || position >= request->n_fill - PROMPT_FEATURES);
}

/* For the drafter, of the row that is added next. Of a part with candidates all rows are asked, or none: what is wanted
 * may change between them. */
static void ask_features(struct rn_decode *decode, struct rn_batch_part *part, uint32_t position)
{
    struct rn_step *step = &decode->batch->step;
    bool follows = !part->prompt && part->n_rows > part->n_repeated;

    if (follows ? part->n_features == 0 : !wants_features(decode, part, position))
        return;
    RN_CHECK(step->n_features < decode->context->limits->max_rows);
    decode->ring.feature_rows[step->n_features++] = step->n_rows;
    part->n_features++;
}

/* The token of the request's next position goes into row r; or the row waits for it. */
static void put_token(struct rn_decode *decode, const struct rn_request *request, uint32_t r)
{
    struct rn_batch *batch = decode->batch;
    bool known = request->n_done < request->n_tokens;

    batch->step.rows[r].token = known ? request->tokens[request->n_done] : -1;
    drawn_of(decode)[r] = known ? -1 : (int32_t)rn_step_ring_drawn(&decode->ring, request);
    batch->n_waiting += !known;
}

static void add_row(struct rn_decode *decode, struct rn_batch_part *part, bool sample, float *keep_logits)
{
    struct rn_batch *batch = decode->batch;
    struct rn_request *request = part->request;
    struct rn_step_row *row;

    RN_CHECK(batch->step.n_rows < decode->context->limits->max_rows);
    RN_CHECK(batch->step.n_outs < decode->context->limits->max_outs || (!sample && keep_logits == NULL));
    RN_ASSERT(request->n_done / decode->context->limits->block_tokens < request->n_blocks);
    ask_features(decode, part, request->n_done);
    decode->ring.parents[batch->step.n_rows] = part->n_rows > 0 ? (int32_t)batch->step.n_rows - 1 : -1;
    put_token(decode, request, batch->step.n_rows);
    row = &batch->step.rows[batch->step.n_rows++];

    row->position = request->n_done;
    row->seq = (uint32_t)(part - batch->parts);
    row->out = -1;
    if (sample || keep_logits != NULL) {
        row->out = (int32_t)batch->step.n_outs;
        rn_outs_put(decode, &batch->outs[batch->step.n_outs++], request, sample, 0, keep_logits);
        batch->outs[row->out].waits = row->token < 0;
        part->n_outs++;
    }
    if (sample) {
        request->draw_step = decode->ring.n_submitted + 1;
        request->draw_row = (uint32_t)row->out;
    }
    part->n_rows++;
    part->n_done = ++request->n_done;
    RN_ASSERT(request->n_done <= request->n_limit && part == &batch->parts[batch->n_parts - 1]);
}

/* Where old positions become means the row that ends a chunk stores one, for which there must be room: no draft
 * does. */
static uint32_t chunk_room(const struct rn_backend_limits *limits, const struct rn_request *request)
{
    return limits->mean_window == 0 ? UINT32_MAX : RN_CHUNK - 1 - request->n_tokens % RN_CHUNK;
}

/* Positions from its start for which it has blocks. */
static uint32_t places_of(const struct rn_backend_limits *limits, const struct rn_request *request)
{
    uint32_t n = limits->window > 0 && request->windows.n < request->n_blocks ? request->windows.n : request->n_blocks;

    return n * limits->block_tokens;
}

/* Besides its last token: each may become an event, and has a position. */
static uint32_t draft_room(const struct rn_decode *decode, const struct rn_request *request)
{
    const struct rn_backend_limits *limits = decode->context->limits;
    uint32_t positions = places_of(limits, request) - request->n_tokens;
    uint32_t tokens = request->n_limit - request->n_tokens - 1;
    uint32_t credit = (uint32_t)credit_of(decode, request) - 1;
    uint32_t chunk = chunk_room(limits, request);
    uint32_t state = limits->n_states > 0 ? rn_decode_state_room(request) : UINT32_MAX;
    uint32_t room = request->draft_max < state ? request->draft_max : state;

    RN_ASSERT(request->n_tokens <= places_of(limits, request) && request->n_tokens < request->n_limit);
    RN_ASSERT(credit_of(decode, request) > 0 && request->in_steps == 1); /* that which is composed */
    room = room < positions ? room : positions;
    room = room < tokens ? room : tokens;
    room = room < credit ? room : credit;
    room = room < chunk ? room : chunk;
    if (request->guide != NULL && request->guide->n_rows - 1 < room)
        room = request->guide->n_rows - 1;
    room = room < rn_outs_left(decode, request) ? room : rn_outs_left(decode, request);
    return room < decode->batch->n_spare ? room : decode->batch->n_spare;
}

/* Rows [from, to) of the sequence, of which nothing is wanted and which do not count. */
static void add_beside(struct rn_decode *decode, struct rn_batch_part *part, uint32_t from, uint32_t to)
{
    struct rn_batch *batch = decode->batch;

    RN_CHECK(from <= to && batch->step.n_rows + (to - from) <= decode->context->limits->max_rows);
    for (uint32_t i = from; i < to; i++) {
        uint32_t r = batch->step.n_rows++;

        decode->ring.parents[r] = part->n_rows > 0 ? (int32_t)r - 1 : -1;
        drawn_of(decode)[r] = -1;
        batch->step.rows[r] = (struct rn_step_row){part->request->tokens[i], i, (uint32_t)(part - batch->parts), -1};
        part->n_rows++;
    }
    part->n_repeated += to - from;
    batch->n_repeated += to - from;
}

/* Rows that the sequence has computed before, and whose tokens its state does not know. */
static void add_repeated(struct rn_decode *decode, struct rn_batch_part *part)
{
    const struct rn_request *request = part->request;

    if (request->n_behind == 0)
        return;
    RN_ASSERT(part->n_rows == 0 && request->n_behind <= request->n_done && request->in_steps == 1);
    RN_CHECK(decode->batch->step.n_rows + request->n_behind < decode->context->limits->max_rows);
    add_beside(decode, part, request->n_done - request->n_behind, request->n_done);
}

/* Behind the part's row `parent`. Position and KV as if it were true; n_done counts it when it is. */
static struct rn_batch_out *add_candidate(struct rn_decode *decode, struct rn_batch_part *part, int32_t token,
                                          uint32_t parent)
{
    struct rn_batch *batch = decode->batch;
    uint32_t r = batch->step.n_rows, above = r - part->n_rows + parent;
    struct rn_step_row *row = &batch->step.rows[r];
    struct rn_batch_out *out = &batch->outs[batch->step.n_outs];

    RN_CHECK(r < decode->context->limits->max_rows && batch->step.n_outs < decode->context->limits->max_outs);
    RN_ASSERT(parent < part->n_rows && batch->n_spare > 0);
    ask_features(decode, part, batch->step.rows[above].position + 1);
    decode->ring.parents[r] = (int32_t)above;
    drawn_of(decode)[r] = -1;
    *row = (struct rn_step_row){token, batch->step.rows[above].position + 1, row[-1].seq, (int32_t)batch->step.n_outs};
    rn_outs_put(decode, out, part->request, true, part->n_outs, NULL);
    out->position = row->position + part->request->n_dropped;
    out->follows = true;
    out->behind = (uint32_t)(row->out - batch->step.rows[above].out);
    out->draft = token;
    batch->step.n_rows++;
    batch->step.n_outs++;
    part->n_rows++;
    part->n_outs++;
    batch->n_drafts++;
    batch->n_spare--;
    return out;
}

/* What the verifier has proposed, as far as there is room; nothing where the sequence has gone on meanwhile. Behind the
 * chain its leaves: each stores at a place of its own. None beside prompts, which may have come meanwhile: their chunks
 * are deeper than a tree may be. */
static void add_drafts(struct rn_decode *decode, struct rn_batch_part *part)
{
    const struct rn_proposal *proposal = &decode->proposals[part->request->slot];
    struct rn_batch *batch = decode->batch;
    uint32_t room, place, branches;

    if (!is_current(proposal, part->request) || proposal->first != part->request->n_tokens)
        return;
    room = draft_room(decode, part->request);
    part->by_model = proposal->by_model;
    part->by_grammar = proposal->by_grammar;
    for (uint32_t i = 0; i < proposal->n && i < room; i++, part->n_drafts++)
        add_candidate(decode, part, proposal->tokens[i], part->n_repeated + i)->second = proposal->seconds[i];
    place = batch->step.rows[batch->step.n_rows - 1].position; /* a chain's are its positions */
    branches = decode->prompts.n == 0 ? proposal->branches : 0;
    for (uint32_t i = 0; i < part->n_drafts && part->n_drafts + part->n_branches < room; i++) {
        if ((branches >> i & 1) == 0)
            continue;
        add_candidate(decode, part, proposal->seconds[i].token, part->n_repeated + i)->leaf_offset = ++place;
        part->n_branches++;
        batch->n_branches++;
    }
    RN_ASSERT(part->request->n_tokens + part->n_drafts < part->request->n_limit); /* and the token behind them */
    RN_ASSERT(part->n_drafts + part->n_branches <= room && part->n_outs == 1 + part->n_drafts + part->n_branches);
    if (batch->step.states != NULL)
        rn_decode_keep_state(batch, decode->ring.states, part);
}

/* Not one that is only waiting for the books of its last step to be let go. */
static bool goes_on(const struct rn_request *request)
{
    return request->outcome == RN_OUTCOME_NONE && !request->preempted;
}

/* Of `most`, what the running sequences may take. */
static uint32_t share(const struct rn_decode *decode, uint32_t most)
{
    return rn_batch_share(decode->prompts.n, most);
}

/* The highest priority below `below` among those that run and the prompts; INT64_MIN: there is none. */
static int64_t next_level(const struct rn_decode *decode, bool prompts, int64_t below)
{
    int64_t level = INT64_MIN;

    for (uint32_t i = 0; !prompts && i < decode->n_running; i++)
        if (decode->running[i]->priority < below && decode->running[i]->priority > level)
            level = decode->running[i]->priority;
    for (const struct rn_request *r = decode->prompts.first; prompts && r != NULL; r = r->next)
        if (r->priority < below && r->priority > level)
            level = r->priority;
    return level;
}

/* The same of layers with windows. */
static void windows_go_on(const struct rn_backend_limits *limits, struct rn_request *request)
{
    uint32_t first = rn_kv_size_first_window(limits, request->n_done - request->n_behind);
    uint32_t all = rn_kv_size_round(request->n_limit, limits->block_tokens);

    RN_ASSERT(request->in_steps == 0 || request->windows.n_passed >= first || request->windows.n == all);
    rn_windows_go_on(&request->windows, first, all);
    RN_ASSERT(request->windows.n == all || request->windows.n * limits->block_tokens > request->n_done);
}

/* Blocks that no row looks at any more become the next ones. Only of a request whose rows are in no step. */
static void go_on(const struct rn_decode *decode, struct rn_request *request)
{
    const struct rn_backend_limits *limits = decode->context->limits;
    uint32_t sinks = rn_kv_size_sinks(limits), first = rn_kv_size_first(limits, request->n_done - request->n_behind);
    uint32_t all = rn_kv_size_round(request->n_limit, limits->block_tokens);

    if (limits->window > 0)
        windows_go_on(limits, request);
    while (sinks + request->n_gone < first && request->n_blocks < all) {
        uint32_t *gone = &request->blocks[sinks + request->n_gone++];

        RN_ASSERT(request->in_steps == 0 && *gone != RN_NO_BLOCK);
        request->blocks[request->n_blocks++] = *gone;
        *gone = RN_NO_BLOCK;
    }
}

/* Has it less than a block's positions left before it needs one more block of means? */
static bool is_short_of_means(const struct rn_backend_limits *limits, const struct rn_request *request)
{
    uint64_t room = (uint64_t)request->n_means * limits->block_tokens * RN_CHUNK;

    return request->n_means < rn_kv_size_means(limits, request->n_limit) &&
           room < request->n_done + limits->block_tokens;
}

/* How many blocks it may get still. */
static uint32_t blocks_left(const struct rn_backend_limits *limits, const struct rn_request *request)
{
    uint32_t all = rn_kv_size_round(request->n_limit, limits->block_tokens);
    uint32_t most = rn_kv_size_blocks(limits, request->n_limit), held = request->n_blocks - request->n_gone;

    if (request->n_blocks >= all || held >= most)
        return 0;
    return all - request->n_blocks < most - held ? all - request->n_blocks : most - held;
}

void rn_batch_take_blocks(const struct rn_decode *decode, struct rn_request *request, const uint32_t *blocks,
                          uint32_t n)
{
    RN_CHECK(request->n_blocks + request->n_means + n <=
             rn_kv_size_round(request->n_limit, decode->context->limits->block_tokens) +
                 rn_kv_size_means(decode->context->limits, request->n_limit));
    for (uint32_t i = 0; i < n; i++)
        if (is_short_of_means(decode->context->limits, request))
            request->means[request->n_means++] = blocks[i];
        else
            request->blocks[request->n_blocks++] = blocks[i];
}

/* Asks for the next blocks when less than a block's positions are left of the lease, besides those of drafts. */
static void grow(struct rn_decode *decode, struct rn_request *request)
{
    const struct rn_backend_limits *limits = decode->context->limits;
    uint32_t per_block = limits->block_tokens, needed = 0;
    uint32_t ahead = per_block + (request->verified ? request->draft_max : 0);
    struct rn_msg *msg;

    RN_ASSERT(request->n_done <= request->n_blocks * per_block);
    if (request->n_blocks * per_block - request->n_done < ahead)
        needed = blocks_left(limits, request);
    needed += is_short_of_means(limits, request);
    if (request->growing || needed == 0)
        return;
    request->growing = true;
    msg = rn_msg_new(decode->actor.runtime, RN_MSG_GROW);
    msg->stream =
        (struct rn_pay_stream){request->slot, request->generation, needed < RN_LEASE_BLOCKS ? needed : RN_LEASE_BLOCKS};
    rn_actor_send(decode->context->tier, msg);
}

static bool has_block(const struct rn_decode *decode, const struct rn_request *request)
{
    const struct rn_backend_limits *limits = decode->context->limits;

    return request->n_done < places_of(limits, request) &&
           (request->n_done % RN_CHUNK != RN_CHUNK - 1 || limits->mean_window == 0 ||
            request->n_done / RN_CHUNK / limits->block_tokens < request->n_means);
}

/* Its next token is known; or the step before draws it, and those that are under way cannot be its last. */
static bool knows_next(const struct rn_decode *decode, const struct rn_request *request)
{
    return request->in_steps == 0 ||
           (request->choice == NULL && request->n_tokens + request->in_steps < request->n_limit &&
            rn_step_ring_draws(&decode->ring, request));
}

static bool can_step(const struct rn_decode *decode, const struct rn_request *request)
{
    return goes_on(request) && credit_of(decode, request) > (int32_t)request->in_steps &&
           !rn_decode_awaits_choice(decode, request) && has_block(decode, request) && knows_next(decode, request);
}

static void add_running_of(struct rn_decode *decode, int64_t level, uint32_t max_rows, uint32_t max_outs)
{
    struct rn_batch *batch = decode->batch;
    uint32_t n = decode->n_running;
    uint32_t first = decode->cursor;

    for (uint32_t i = 0; i < n; i++) {
        struct rn_request *request = decode->running[(first + i) % n];

        if (request->priority != level || !goes_on(request))
            continue;
        if (batch->step.n_rows + request->n_behind >= max_rows || batch->step.n_outs == max_outs ||
            batch->n_parts == decode->context->limits->max_seqs || rn_outs_left(decode, request) == 0)
            return;
        decode->cursor = (first + i + 1) % n;
        go_on(decode, request);
        if (can_step(decode, request)) {
            struct rn_batch_part *part = add_part(decode, request, false);

            add_repeated(decode, part);
            add_row(decode, part, true, NULL);
            add_drafts(decode, part);
            batch->n_readers += request->priority >= 0;
        }
        grow(decode, request);
    }
}

/* No row gives way to a draft. Rows that may come again with a state fit beside prompts, too. */
static void count_spare(struct rn_decode *decode)
{
    const struct rn_backend_limits *limits = decode->context->limits;
    uint32_t room = rn_batch_share(limits->n_states > 0 ? 1 : decode->prompts.n,
                                   limits->max_rows < limits->max_outs ? limits->max_rows : limits->max_outs);
    uint32_t taken = decode->n_running;

    for (uint32_t i = 0; i < decode->n_running; i++)
        taken += decode->running[i]->n_behind;
    decode->batch->n_spare = room > taken ? room - taken : 0;
}

static void add_running(struct rn_decode *decode)
{
    const struct rn_backend_limits *limits = decode->context->limits;
    uint32_t max_rows = share(decode, limits->max_rows), max_outs = share(decode, limits->max_outs);

    count_spare(decode);
    for (int64_t level = next_level(decode, false, INT64_MAX); level > INT64_MIN;
         level = next_level(decode, false, level))
        add_running_of(decode, level, max_rows, max_outs);
    decode->batch->n_answer_rows = decode->batch->step.n_rows;
}

/* A step ends where the sequence leaves a checkpoint of its state behind. */
static uint32_t rows_to_turn(const struct rn_request *request)
{
    for (uint32_t i = 0; i < request->n_turns; i++)
        if (request->turns[i].at > request->n_done)
            return request->turns[i].at - request->n_done;
    return UINT32_MAX;
}

/* There is room for all of its text; budgets of rows count for nothing. */
static bool fits_whole(const struct rn_decode *decode, const struct rn_request *request)
{
    const struct rn_backend_limits *limits = decode->context->limits;

    return request->n_fill <= limits->max_rows - decode->batch->step.n_rows &&
           request->n_fill <= places_of(limits, request);
}

/* Rows of the prompt that this step can take: bounded by the rows left up to max_rows and, where each row gives an
 * event, by the reader's credits and the outs left. */
static uint32_t chunk_rows(const struct rn_decode *decode, const struct rn_request *request, uint32_t max_rows)
{
    const struct rn_backend_limits *limits = decode->context->limits;
    const struct rn_step *step = &decode->batch->step;
    uint32_t left = request->n_fill - request->n_done;
    uint32_t rows = max_rows - step->n_rows;
    uint32_t outs = limits->max_outs - step->n_outs;
    int32_t n_told = request->want_progress ? 1 + (int32_t)request->in_steps : 0;
    int32_t credit = credit_of(decode, request) - n_told - 1; /* progress, and the first token */
    uint32_t places = places_of(limits, request) - request->n_done;
    uint32_t n = left < rows ? left : rows;

    RN_ASSERT(request->n_done <= request->n_fill && request->n_done <= request->n_blocks * limits->block_tokens);
    RN_ASSERT(step->n_rows <= max_rows && max_rows <= limits->max_rows);
    if (rn_context_sees_both_ways(decode->context))
        n = fits_whole(decode, request) ? left : 0;
    n = n < places ? n : places;
    n = n < rows_to_turn(request) ? n : rows_to_turn(request);
    if (credit < 0 || outs == 0 || (request->in_steps > 0 && request->copy == RN_COPY_WANTED))
        return 0;
    if (request->want_logits) {
        n = n < outs ? n : outs;
        n = n < (uint32_t)credit ? n : (uint32_t)credit;
    }
    return n;
}

bool rn_batch_is_stalled(const struct rn_decode *decode, const struct rn_request *request)
{
    int32_t besides = request->lane != RN_LANE_NONE ? request->want_progress + request->want_logits : 0;

    return credit_of(decode, request) <= besides || decode->credits[request->slot].choice == RN_CHOICE_ASKED;
}

/* Where the logits of the next position go; NULL: nobody wants them, or has had them before the request was
 * preempted. */
static float *next_logits(struct rn_decode *decode, struct rn_request *request)
{
    size_t n_vocab = decode->context->n_vocab;

    if (!request->want_logits || request->n_done < request->n_scored || request->n_done >= request->n_prompt)
        return NULL;
    return request->logits + (request->n_scored++ % request->n_logits_rows) * n_vocab;
}

/* Behind what it computes first it draws: but not again what the host was asked for before it was preempted. */
static bool draws_behind(const struct rn_decode *decode, const struct rn_request *request)
{
    return request->n_fill < request->n_limit && !rn_decode_awaits_choice(decode, request);
}

static void add_chunk(struct rn_decode *decode, struct rn_request *request, uint32_t n)
{
    struct rn_batch_part *part = add_part(decode, request, true);
    bool whole = rn_context_sees_both_ways(decode->context);

    if (whole)
        add_beside(decode, part, 0, request->n_done);
    RN_ASSERT(request->lane != RN_LANE_NONE && request->n_done + n <= request->n_fill);
    for (uint32_t i = 0; i < n; i++) {
        bool last = request->n_done + 1 == request->n_fill;

        if (request->embed != NULL && rn_embed_ask(request->embed, request->n_done, request->n_prompt)) {
            decode->ring.feature_rows[decode->batch->step.n_features++] = decode->batch->step.n_rows;
            part->n_features++;
            decode->batch->step.early_features = false;
        }
        add_row(decode, part, last && draws_behind(decode, request), next_logits(decode, request));
    }
    if (whole)
        add_beside(decode, part, request->n_done, request->n_fill);
    request->last_chunk = part->last = request->n_done == request->n_fill;
    RN_ASSERT(part->n_rows - part->n_repeated == n && (request->lane != RN_LANE_SHORT || n <= RN_PREFILL_SHORT_ROWS));
}

/* Up to so many rows of the step. Short prompts, which have no lane, are through in one step. */
struct prompt_rows {
    uint32_t most, most_short;
};

static void add_prompts_of(struct rn_decode *decode, int64_t level, struct prompt_rows rows,
                           const struct rn_request **lacking)
{
    const struct rn_backend_limits *limits = decode->context->limits;

    for (uint32_t turns = decode->prompts.n; turns > 0; turns--) {
        struct rn_request *request = rn_request_pop(&decode->prompts);
        uint32_t max_rows = request->lane == RN_LANE_SHORT ? rows.most_short : rows.most, n;
        bool full = decode->batch->step.n_rows >= max_rows || decode->batch->n_parts == limits->max_seqs;

        /* All of them go round once, so that they keep their order, but for those that had a chunk: in the next step
         * others are first. */
        rn_request_push(&decode->prompts, request);
        if (full || request->priority != level || !goes_on(request))
            continue;
        go_on(decode, request);
        n = chunk_rows(decode, request, max_rows);
        if (n > 0 && n == request->n_fill - request->n_done && rn_outs_left(decode, request) == 0) {
            n--; /* without its last row, which draws */
            *lacking = *lacking == NULL ? request : *lacking;
        }
        if (n > 0)
            add_chunk(decode, request, n);
    }
}

/* Several requests wait for the step, not all of the background. */
static bool is_shared(const struct rn_decode *decode)
{
    return decode->n_running + decode->prompts.n > 1 &&
           (next_level(decode, false, INT64_MAX) >= 0 || next_level(decode, true, INT64_MAX) >= 0);
}

/* Prompts whose answer somebody waits for. */
static uint32_t n_awaited(const struct rn_decode *decode)
{
    uint32_t n = 0;

    for (const struct rn_request *r = decode->prompts.first; r != NULL; r = r->next)
        n += r->priority >= 0;
    return n;
}

static struct prompt_rows prompt_rows(const struct rn_decode *decode)
{
    const struct rn_batch *batch = decode->batch;
    uint32_t left = decode->context->limits->max_rows - batch->n_answer_rows;
    uint32_t n = rn_prompt_budget_rows(&decode->pace, batch->n_readers, n_awaited(decode), left);
    struct prompt_rows rows = {batch->n_answer_rows + n, batch->n_answer_rows + n};

    if (batch->n_readers == 0)
        rows.most = batch->n_answer_rows + rn_prompt_budget_chunk(&decode->pace, is_shared(decode), left);
    return rows;
}

static void add_prompts(struct rn_decode *decode)
{
    struct prompt_rows rows = prompt_rows(decode);
    const struct rn_request *lacking = NULL;

    decode->kept = (struct rn_outs_kept){0, 0};
    for (int64_t level = next_level(decode, true, INT64_MAX); level > INT64_MIN;
         level = next_level(decode, true, level))
        add_prompts_of(decode, level, rows, &lacking);
    if (lacking != NULL)
        rn_outs_keep(decode, lacking);
    if (decode->prompts.n > 0 && (decode->batch->step.n_rows > 0 || decode->ring.n_flying == 0))
        /* another one is first in the next step */
        rn_request_push(&decode->prompts, rn_request_pop(&decode->prompts));
}

void rn_batch_uncount(struct rn_request *request, struct rn_batch_part *part)
{
    uint32_t n_besides = part->n_repeated + part->n_drafts + part->n_branches;

    RN_ASSERT(part->n_rows > n_besides && request->n_done >= part->n_rows - n_besides + part->moves);
    request->n_done -= part->n_rows - n_besides + part->moves;
    part->n_done = request->n_done;
}

static bool waits_for_step(const struct rn_request *request)
{
    return request->in_steps > 0 && request->outcome == RN_OUTCOME_NONE;
}

bool rn_batch_is_wanted(const struct rn_decode *decode)
{
    for (uint32_t i = 0; i < decode->n_running; i++)
        if (waits_for_step(decode->running[i]))
            return true;
    for (const struct rn_request *r = decode->prompts.first; r != NULL; r = r->next)
        if (waits_for_step(r))
            return true;
    return false;
}

/* A head's features stand before the last block's end. Until one asks for an embedding no row goes on for them. */
static bool has_early_features(const struct rn_decode *decode)
{
    const struct rn_plan *plan = decode->context->plan;

    return plan != NULL && plan->normed_at > 0;
}

/* The step writes features for the drafter into the list that will tell of them. */
static void take_news(struct rn_decode *decode)
{
    struct rn_batch *batch = decode->batch;

    if (decode->context->drafter->kind != RN_DRAFTER_FEATURES || !batch->verifies || batch->step.n_features == 0)
        return;
    RN_CHECK(decode->news != NULL); /* the verifier sends no batch back without one */
    batch->step.features = decode->news->features;
    batch->news = decode->news;
    decode->news = NULL;
}

bool rn_batch_compose(struct rn_decode *decode)
{
    struct rn_batch *batch = decode->batch = rn_step_ring_next(&decode->ring);

    batch->n_running = decode->n_running;
    batch->n_prompts = decode->prompts.n;
    batch->step.early_features = has_early_features(decode);
    add_running(decode);
    add_prompts(decode);
    batch->step.parents = batch->n_branches > 0 ? decode->ring.parents : NULL;
    batch->step.drawn = batch->n_waiting > 0 ? drawn_of(decode) : NULL;
    batch->step.n_seqs = batch->n_parts;
    take_news(decode);
    RN_ASSERT(batch->n_answer_rows <= batch->step.n_rows && batch->n_waiting <= batch->n_answer_rows);
    RN_ASSERT(batch->n_drafts + batch->n_repeated + batch->n_running >= batch->n_answer_rows &&
              batch->n_branches <= batch->n_drafts);
    return batch->step.n_rows > 0;
}

void rn_batch_ask_for_masks(struct rn_decode *decode, const struct rn_batch *batch)
{
    struct rn_msg *msg = rn_msg_new(decode->actor.runtime, RN_MSG_GUIDE);

    msg->outs = (struct rn_pay_outs){batch->outs, batch->step.n_outs};
    rn_actor_send(decode->context->sampler, msg);
}
