/* Outlets of streams: see outlet.h. */
#include "actors/host/outlet.h"

#include <string.h>

#include "base/check.h"
#include "text/vocab.h"

static uint32_t longest_stop(const struct rn_outlet_options *options)
{
    size_t longest = 0;

    for (size_t i = 0; i < options->n_stops; i++)
        longest = strlen(options->stops[i]) > longest ? strlen(options->stops[i]) : longest;
    return (uint32_t)longest;
}

/* Copies the stop strings into outlet->memory and starts the piece stream:
 *
 *     pointers | lengths | what is held back | the strings, one behind the other */
static runnel_status copy_stops(struct rn_outlet *outlet, const struct rn_outlet_options *options)
{
    size_t n = options->n_stops, n_held = RN_PIECE_HELD_BYTES(longest_stop(options));
    size_t bytes = n * (sizeof(char *) + sizeof(uint32_t)) + n_held;
    const char **stops = NULL;
    uint32_t *sizes = NULL;
    char *held, *at;

    RN_CHECK(n <= RUNNEL_MAX_STOPS);
    for (size_t i = 0; i < n; i++)
        bytes += strlen(options->stops[i]) + 1;
    outlet->memory = rn_alloc(outlet->heap, bytes, 1);
    if (outlet->memory == NULL)
        return RUNNEL_NO_MEMORY;
    stops = (const char **)(void *)outlet->memory;
    sizes = (uint32_t *)(void *)(stops + n);
    held = (char *)(sizes + n);
    at = held + n_held;
    for (size_t i = 0; i < n; i++) {
        sizes[i] = (uint32_t)strlen(options->stops[i]);
        stops[i] = memcpy(at, options->stops[i], sizes[i] + 1);
        at += sizes[i] + 1;
    }
    RN_CHECK(at == outlet->memory + bytes);
    rn_piece_stream_init(&outlet->pieces, stops, sizes, (uint32_t)n, held, options->strip_first_space);
    outlet->pieces.keep_stop = options->keep_stop;
    return RUNNEL_OK;
}

/* Relaxed: for those that are ordered behind its setting anyway, which the consumer alone is not. */
static struct rn_ring *ring_of(const struct rn_outlet *outlet)
{
    return atomic_load_explicit(&((struct rn_outlet *)(uintptr_t)outlet)->ring, memory_order_relaxed);
}

static void release(struct rn_outlet *outlet)
{
    rn_ring_free(ring_of(outlet));
    rn_free(outlet->heap, outlet->memory);
    rn_free(outlet->heap, outlet->logits);
    rn_free(outlet->heap, outlet->raw);
    rn_free(outlet->heap, outlet->coalesced);
    rn_free(outlet->heap, outlet->embedding);
    rn_free(outlet->heap, outlet->end_top);
    outlet->embedding = NULL;
    outlet->end_top = NULL;
    rn_answer_free(outlet->answer);
    rn_choice_free(outlet->choice);
    outlet->choice = NULL;
    outlet->coalesced = NULL;
    atomic_store_explicit(&outlet->ring, NULL, memory_order_relaxed);
    outlet->answer = NULL;
    outlet->raw = NULL;
    outlet->memory = NULL;
    outlet->logits = NULL;
}

/* Room for what one token, or the tail, can put out. */
static runnel_status size_cells(struct rn_outlet *outlet, const struct rn_outlet_options *options)
{
    size_t longest = longest_stop(options);
    size_t text = rn_piece_stream_bound(longest, options->longest_piece) + longest; /* the tail's is no longer */

    outlet->text_capacity = (uint32_t)text;
    outlet->parts_capacity = outlet->raw_capacity = 0;
    outlet->raw = NULL;
    if (options->answer == NULL)
        return RUNNEL_OK;
    outlet->raw_capacity = (uint32_t)text;
    outlet->raw = rn_alloc(outlet->heap, text, 1);
    /* the tail is a piece and the end of the answer, in one cell */
    outlet->text_capacity =
        (uint32_t)(rn_answer_text_bound(options->answer, text) + rn_answer_text_bound(options->answer, 0));
    outlet->parts_capacity =
        (uint32_t)(rn_answer_parts_bound(options->answer, text) + rn_answer_parts_bound(options->answer, 0));
    return outlet->raw != NULL ? RUNNEL_OK : RUNNEL_NO_MEMORY;
}

/* ---- The list of streams ---- */

bool rn_label_valid(const char *label)
{
    size_t n = label != NULL ? strnlen(label, RUNNEL_LABEL_BYTES) : 0;

    for (size_t i = 0; i < n; i++)
        if ((unsigned char)label[i] < ' ' || label[i] == 0x7f)
            return false;
    return n < RUNNEL_LABEL_BYTES && (n == 0 || rn_utf8_valid(label, n));
}

static_assert(RUNNEL_LABEL_BYTES % sizeof(uint32_t) == 0, "a label is kept in words");

/* Before the generation is set, which publishes it. */
static void introduce(struct rn_outlet *outlet, const struct rn_outlet_options *options)
{
    uint32_t words[RUNNEL_LABEL_BYTES / sizeof(uint32_t)] = {0};

    if (options->label != NULL)
        memcpy(words, options->label, strnlen(options->label, sizeof words - 1));
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        rn_word_set(&outlet->label[i], words[i]);
    rn_word_set(&outlet->phase, options->phase);
    rn_word_set(&outlet->n_tokens, 0);
    /* Release; partner: rn_outlet_look. */
    atomic_store_explicit(&outlet->model_name, options->model_name, memory_order_release);
}

/* Whoever sees a word of a later stream in the slot sees by the acquire that the generation has moved on, too. */
bool rn_outlet_look(const struct rn_outlet *outlet, runnel_stream_info *info)
{
    uint32_t generation = rn_word_get(&outlet->generation), words[RUNNEL_LABEL_BYTES / sizeof(uint32_t)];

    if ((generation & 1) == 0)
        return false;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        words[i] = rn_word_get(&outlet->label[i]);
    *info = (runnel_stream_info){
        .stream = rn_stream_id(outlet->slot, generation),
        /* Acquire; partner: introduce. */
        .model = atomic_load_explicit(&((struct rn_outlet *)(uintptr_t)outlet)->model_name, memory_order_acquire),
        .phase =
            rn_word_get(&outlet->ended) == generation ? RUNNEL_PHASE_ENDED : (runnel_phase)rn_word_get(&outlet->phase),
        .paused = rn_word_get(&outlet->paused) == generation,
        .tokens = rn_word_get(&outlet->n_tokens),
    };
    memcpy(info->label, words, sizeof info->label);
    return rn_word_get(&outlet->generation) == generation;
}

/* ---- Opening and closing ---- */

runnel_status rn_outlet_open(struct rn_outlet *outlet, struct rn_heap *heap, const struct rn_outlet_options *options,
                             uint32_t *generation)
{
    runnel_status status;

    RN_ASSERT((rn_word_get(&outlet->generation) & 1) == 0 && options->n_top <= RUNNEL_MAX_TOP_LOGPROBS);
    RN_ASSERT(ring_of(outlet) == NULL && (options->coalesce_bytes == 0 || options->n_top == 0));
    outlet->heap = heap;
    outlet->on_event = options->taken ? NULL : options->on_event;
    outlet->user = options->user;
    outlet->n_top_max = options->n_top;
    outlet->n_logits = options->n_logits;
    outlet->coalesce_bytes = options->coalesce_bytes;
    outlet->n_embedding = options->n_embedding;
    outlet->embedding = NULL;
    outlet->window = options->n_logits > 0         ? RN_WINDOW_LOGITS
                     : options->coalesce_bytes > 0 ? RN_WINDOW_JOINED
                                                   : RN_WINDOW;
    outlet->n_answer = outlet->stopped_at = outlet->consumed = 0;
    outlet->until_full = outlet->lost = 0;
    outlet->n_published = outlet->n_released = 0;
    outlet->held = outlet->on_coalesced = outlet->dropping = false;
    outlet->shown = 0;
    outlet->coalesced = NULL;
    rn_word_set(&outlet->coalesced_state, RN_COALESCED_NONE);
    outlet->answer = NULL;
    outlet->choice = NULL;
    rn_word_set(&outlet->choosing, 0);
    outlet->error[0] = '\0';
    outlet->memory = NULL;
    outlet->logits = NULL;
    atomic_store_explicit(&outlet->ring, NULL, memory_order_relaxed); /* published with the generation */
    status = size_cells(outlet, options);
    if (status != RUNNEL_OK || copy_stops(outlet, options) != RUNNEL_OK) {
        release(outlet);
        return RUNNEL_NO_MEMORY;
    }
    outlet->answer = options->answer;
    introduce(outlet, options);
    rn_word_set(&outlet->pull, options->on_event == NULL && !options->taken);
    *generation = rn_word_get(&outlet->generation) + 1;
    RN_ASSERT((*generation & 1) != 0 && rn_word_get(&outlet->ended) != *generation);
    rn_word_set(&outlet->generation, *generation);
    return RUNNEL_OK;
}

static size_t cell_bytes(const struct rn_outlet *outlet, uint32_t text_capacity)
{
    return sizeof(struct rn_cell) + outlet->n_top_max * sizeof(runnel_logprob) +
           outlet->parts_capacity * sizeof(struct rn_part) + text_capacity;
}

/* What goes with the ring; false when memory is refused. */
static bool take_beside(struct rn_outlet *outlet)
{
    if (outlet->n_logits > 0)
        outlet->logits = rn_alloc(outlet->heap, (size_t)(outlet->window + 1) * outlet->n_logits, sizeof(float));
    if (outlet->coalesce_bytes > 0)
        outlet->coalesced = rn_alloc(outlet->heap, cell_bytes(outlet, outlet->coalesce_bytes), 1);
    if (outlet->n_embedding > 0)
        outlet->embedding = rn_alloc(outlet->heap, outlet->n_embedding, sizeof(float));
    if (outlet->n_top_max > 0)
        outlet->end_top = rn_alloc(outlet->heap, outlet->n_top_max, sizeof(runnel_logprob));
    if ((outlet->n_logits == 0 || outlet->logits != NULL) &&
        (outlet->coalesce_bytes == 0 || outlet->coalesced != NULL) &&
        (outlet->n_embedding == 0 || outlet->embedding != NULL) && (outlet->n_top_max == 0 || outlet->end_top != NULL))
        return true;
    rn_free(outlet->heap, outlet->logits);
    rn_free(outlet->heap, outlet->coalesced);
    rn_free(outlet->heap, outlet->embedding);
    rn_free(outlet->heap, outlet->end_top);
    outlet->logits = outlet->embedding = NULL;
    outlet->end_top = NULL;
    outlet->coalesced = NULL;
    return false;
}

runnel_status rn_outlet_prepare(struct rn_outlet *outlet)
{
    uint32_t bytes = (uint32_t)cell_bytes(outlet, outlet->text_capacity);
    struct rn_ring *ring = rn_ring_new(outlet->heap, outlet->window + 1, bytes); /* and the tail */

    RN_ASSERT((rn_word_get(&outlet->generation) & 1) != 0 && !rn_outlet_is_prepared(outlet));
    RN_ASSERT(outlet->window > 0 && outlet->window <= RN_WINDOW && outlet->n_published == 0);
    if (ring != NULL && !take_beside(outlet)) {
        rn_ring_free(ring);
        ring = NULL;
    }
    /* Release; partner: rn_outlet_front, which may look at any time. */
    atomic_store_explicit(&outlet->ring, ring, memory_order_release);
    return ring != NULL ? RUNNEL_OK : RUNNEL_NO_MEMORY;
}

void rn_outlet_count_shifts(const struct rn_outlet *outlet, uint64_t answered, struct rn_cell *cell)
{
    if (outlet->lost == 0 || answered <= outlet->until_full)
        return;
    cell->shifts = 1 + (answered - outlet->until_full - 1) / outlet->lost;
    cell->shifted_tokens = cell->shifts * outlet->lost;
}

void rn_outlet_publish(struct rn_outlet *outlet)
{
    RN_ASSERT(rn_word_get(&outlet->ended) != rn_word_get(&outlet->generation)); /* nothing comes behind the end */
    outlet->n_published++;
    rn_ring_publish_spsc(ring_of(outlet));
}

bool rn_outlet_is_prepared(const struct rn_outlet *outlet)
{
    return ring_of(outlet) != NULL;
}

static uint32_t joint_word(uint32_t after, enum rn_coalesced_state state)
{
    return after << 2 | (uint32_t)state;
}

/* True: the coalesced event is the consumer's now. *awaited: it is its turn, and the producer has it, which wakes the
 * consumer when it has given it back. Looked at behind the ring: whoever sees a cell sees the coalesced event that
 * stands in front of it. */
static bool claim_joint(struct rn_outlet *outlet, bool *awaited)
{
    uint32_t open = joint_word(outlet->n_released, RN_COALESCED_OPEN),
             busy = joint_word(outlet->n_released, RN_COALESCED_BUSY);
    uint32_t word = rn_word_get(&outlet->coalesced_state); /* acquire; partner: rn_outlet_join */

    /* seq_cst; partner: rn_outlet_join, where the same word becomes BUSY: one of the two has the coalesced event. */
    outlet->on_coalesced =
        word == open && rn_word_replace(&outlet->coalesced_state, open, joint_word(0, RN_COALESCED_TAKEN));
    *awaited = !outlet->on_coalesced && (word == open || word == busy);
    return outlet->on_coalesced;
}

const struct rn_cell *rn_outlet_front(struct rn_outlet *outlet, uint32_t generation)
{
    /* First: whoever sees the end sees every cell that was published before it. */
    bool ended = rn_word_get(&outlet->ended) == generation, awaited = false;
    /* Acquire; partner: rn_outlet_prepare. */
    struct rn_ring *ring = atomic_load_explicit(&outlet->ring, memory_order_acquire);
    const struct rn_cell *cell;

    if (outlet->on_coalesced)
        return outlet->coalesced;
    cell = ring != NULL ? rn_ring_peek_spsc(ring) : NULL;
    if (ring != NULL && outlet->coalesced != NULL && claim_joint(outlet, &awaited))
        return outlet->coalesced;
    return awaited ? NULL : cell != NULL ? cell : ended ? &outlet->end : NULL;
}

void rn_outlet_release(struct rn_outlet *outlet)
{
    RN_ASSERT(outlet->shown == 0 && !outlet->held);
    if (outlet->on_coalesced) {
        RN_ASSERT(rn_word_get(&outlet->coalesced_state) == joint_word(0, RN_COALESCED_TAKEN));
        outlet->on_coalesced = false;
        rn_word_set(&outlet->coalesced_state,
                    RN_COALESCED_NONE); /* release; partner: rn_outlet_join, which begins a new one */
        return;
    }
    RN_ASSERT(ring_of(outlet) != NULL);
    outlet->n_released++;
    rn_ring_release_spsc(ring_of(outlet));
}

void rn_outlet_prefetch(const struct rn_outlet *outlet, int step)
{
    struct rn_ring *ring;

    if (step == 0) {
        __builtin_prefetch(&outlet->slot);
        __builtin_prefetch(&outlet->user);
        __builtin_prefetch(&outlet->coalesced);
        __builtin_prefetch(&outlet->ended);
        __builtin_prefetch(&outlet->held, 1);
        return;
    }
    /* Acquire; partner: rn_outlet_prepare. */
    ring = atomic_load_explicit(&((struct rn_outlet *)(uintptr_t)outlet)->ring, memory_order_acquire);
    if (ring != NULL)
        rn_ring_prefetch(ring, step - 1);
}

uint32_t rn_outlet_waiting(const struct rn_outlet *outlet, uint32_t generation)
{
    /* Acquire; partner: rn_outlet_prepare. */
    struct rn_ring *ring = atomic_load_explicit(&((struct rn_outlet *)(uintptr_t)outlet)->ring, memory_order_acquire);

    return (ring != NULL ? rn_ring_count(ring) : 0) + (rn_word_get(&outlet->coalesced_state) != RN_COALESCED_NONE) +
           (rn_word_get(&outlet->ended) == generation);
}

static bool memory_is_whole(const struct rn_outlet *outlet)
{
    bool prepared = rn_outlet_is_prepared(outlet);

    return (outlet->logits != NULL) == (prepared && outlet->n_logits > 0) &&
           (outlet->coalesced != NULL) == (prepared && outlet->coalesce_bytes > 0) &&
           (outlet->embedding != NULL) == (prepared && outlet->n_embedding > 0) &&
           (prepared || (outlet->n_published == 0 && !outlet->on_coalesced));
}

bool rn_outlet_check(const struct rn_outlet *outlet)
{
    if ((rn_word_get(&outlet->generation) & 1) == 0)
        return true;
    return outlet->stopped_at <= outlet->n_answer && outlet->n_released <= outlet->n_published &&
           outlet->n_published - outlet->n_released <= outlet->window + 1 && /* and the tail */
           outlet->consumed < outlet->window && memory_is_whole(outlet);
}

void rn_outlet_close(struct rn_outlet *outlet)
{
    RN_ASSERT((rn_word_get(&outlet->generation) & 1) != 0);
    release(outlet);
    rn_word_set(&outlet->generation, rn_word_get(&outlet->generation) + 1);
}

struct rn_cell *rn_outlet_reserve(struct rn_outlet *outlet)
{
    struct rn_cell *cell = rn_ring_reserve_spsc(ring_of(outlet));

    RN_CHECK(cell != NULL);
    memset(cell, 0, sizeof *cell);
    cell->token = -1;
    return cell;
}

runnel_logprob *rn_cell_top(const struct rn_cell *cell)
{
    return (runnel_logprob *)(uintptr_t)(cell + 1);
}

struct rn_part *rn_cell_parts(const struct rn_outlet *outlet, const struct rn_cell *cell)
{
    return (struct rn_part *)(rn_cell_top(cell) + outlet->n_top_max);
}

char *rn_cell_text(const struct rn_outlet *outlet, const struct rn_cell *cell)
{
    return (char *)(rn_cell_parts(outlet, cell) + outlet->parts_capacity);
}

/* ---- Producing ---- */

/* The next n bytes of the answer, from outlet->raw, behind what the cell has already. */
static void put_parts(struct rn_outlet *outlet, struct rn_cell *cell, size_t n)
{
    size_t bytes = 0;

    RN_CHECK(n <= outlet->raw_capacity);
    cell->n_parts +=
        (uint32_t)rn_answer_feed(outlet->answer, outlet->raw, n, rn_cell_parts(outlet, cell) + cell->n_parts,
                                 rn_cell_text(outlet, cell) + cell->text_bytes, &bytes);
    cell->text_bytes += (uint32_t)bytes;
    RN_CHECK(cell->n_parts <= outlet->parts_capacity && cell->text_bytes <= outlet->text_capacity);
}

void rn_outlet_put_piece(struct rn_outlet *outlet, struct rn_cell *cell, const char *piece, size_t n)
{
    if (outlet->answer == NULL)
        cell->text_bytes = (uint32_t)rn_piece_stream_feed(&outlet->pieces, piece, n, rn_cell_text(outlet, cell));
    else
        put_parts(outlet, cell, rn_piece_stream_feed(&outlet->pieces, piece, n, outlet->raw));
    RN_CHECK(cell->text_bytes <= outlet->text_capacity);
}

void rn_outlet_put_tail(struct rn_outlet *outlet, struct rn_cell *cell, const char *piece, size_t n, bool finished)
{
    char *to = outlet->answer == NULL ? rn_cell_text(outlet, cell) : outlet->raw;
    size_t bytes = rn_piece_stream_feed(&outlet->pieces, piece, n, to);

    bytes += rn_piece_stream_end(&outlet->pieces, to + bytes);
    if (outlet->answer == NULL) {
        cell->text_bytes = (uint32_t)bytes;
        RN_CHECK(cell->text_bytes <= outlet->text_capacity);
        return;
    }
    put_parts(outlet, cell, bytes);
    cell->n_parts += (uint32_t)rn_answer_end(outlet->answer, finished, rn_cell_parts(outlet, cell) + cell->n_parts,
                                             rn_cell_text(outlet, cell) + cell->text_bytes, &bytes);
    cell->text_bytes += (uint32_t)bytes;
    RN_CHECK(cell->n_parts <= outlet->parts_capacity && cell->text_bytes <= outlet->text_capacity);
}

/* ---- Joining ---- */

static bool is_fragment(const struct rn_part *part)
{
    return part->kind == RN_PART_CONTENT || part->kind == RN_PART_REASONING || part->kind == RN_PART_TOOL_ARGUMENTS;
}

/* The first part of `cell` goes on where the last one of the coalesced event ends. */
static bool parts_meet(const struct rn_outlet *outlet, const struct rn_cell *cell)
{
    const struct rn_cell *coalesced = outlet->coalesced;
    const struct rn_part *first = rn_cell_parts(outlet, cell), *last;

    if (coalesced->n_parts == 0 || cell->n_parts == 0)
        return false;
    last = rn_cell_parts(outlet, coalesced) + coalesced->n_parts - 1;
    return is_fragment(first) && first->kind == last->kind && first->call == last->call;
}

static bool fits_joint(const struct rn_outlet *outlet, const struct rn_cell *cell)
{
    const struct rn_cell *coalesced = outlet->coalesced;

    RN_ASSERT(coalesced->text_bytes <= outlet->coalesce_bytes && coalesced->n_tokens > 0);
    return cell->text_bytes <= outlet->coalesce_bytes - coalesced->text_bytes &&
           coalesced->n_parts + cell->n_parts - parts_meet(outlet, cell) <= outlet->parts_capacity;
}

static void add_to_joint(struct rn_outlet *outlet, const struct rn_cell *cell)
{
    struct rn_cell *coalesced = outlet->coalesced;
    struct rn_part *parts = rn_cell_parts(outlet, coalesced);
    const struct rn_part *more = rn_cell_parts(outlet, cell);
    uint32_t met = parts_meet(outlet, cell);

    if (met > 0)
        parts[coalesced->n_parts - 1].bytes += more[0].bytes;
    for (uint32_t i = met; i < cell->n_parts; i++)
        parts[coalesced->n_parts++] = more[i];
    if (cell->text_bytes > 0)
        memcpy(rn_cell_text(outlet, coalesced) + coalesced->text_bytes, rn_cell_text(outlet, cell), cell->text_bytes);
    coalesced->text_bytes += cell->text_bytes;
    coalesced->n_tokens += cell->n_tokens;
    coalesced->shifts = cell->shifts; /* of its last token */
    coalesced->shifted_tokens = cell->shifted_tokens;
    RN_CHECK(coalesced->text_bytes <= outlet->coalesce_bytes && coalesced->n_parts <= outlet->parts_capacity);
}

static enum rn_joined begin_joint(struct rn_outlet *outlet, const struct rn_cell *cell)
{
    if (cell->n_tokens == 0 || cell->text_bytes > outlet->coalesce_bytes ||
        rn_ring_count(ring_of(outlet)) < RN_JOIN_FROM)
        return RN_JOINED_NOT;
    *outlet->coalesced = *cell;
    outlet->coalesced->n_parts = outlet->coalesced->text_bytes = outlet->coalesced->n_tokens = 0;
    add_to_joint(outlet, cell);
    /* release; partner: claim_joint */
    rn_word_set(&outlet->coalesced_state, joint_word(outlet->n_published, RN_COALESCED_OPEN));
    return RN_JOINED_FIRST;
}

enum rn_joined rn_outlet_join(struct rn_outlet *outlet, const struct rn_cell *cell)
{
    uint32_t open = joint_word(outlet->n_published, RN_COALESCED_OPEN),
             busy = joint_word(outlet->n_published, RN_COALESCED_BUSY);
    bool fits;

    RN_ASSERT(cell->type == RUNNEL_EVENT_TOKEN && cell->text_bytes <= outlet->text_capacity);
    if (outlet->coalesced == NULL)
        return RN_JOINED_NOT;
    if (rn_word_get(&outlet->coalesced_state) == RN_COALESCED_NONE) /* acquire; partner: rn_outlet_release */
        return begin_joint(outlet, cell);
    /* seq_cst; partner: claim_joint. Not OPEN: it is the consumer's, or has cells behind it. */
    if (!rn_word_replace(&outlet->coalesced_state, open, busy))
        return RN_JOINED_NOT;
    fits = fits_joint(outlet, cell);
    if (fits) {
        add_to_joint(outlet, cell);
        outlet->coalesced->token = outlet->coalesced->n_tokens == 1 ? outlet->coalesced->token : -1;
    }
    rn_word_set(&outlet->coalesced_state, open); /* release; partner: claim_joint */
    return fits ? RN_JOINED_MORE : RN_JOINED_NOT;
}

/* ---- Consuming ---- */

/* The first part belongs to the token's own event, if it is content. */
static bool leads_with_content(const struct rn_outlet *outlet, const struct rn_cell *cell)
{
    return cell->n_parts > 0 && rn_cell_parts(outlet, cell)[0].kind == RN_PART_CONTENT;
}

/* A tail whose first part is no content has no event of its own. */
static bool has_own_event(const struct rn_outlet *outlet, const struct rn_cell *cell)
{
    return cell->type != RUNNEL_EVENT_TOKEN || cell->token >= 0 || cell->n_parts == 0 ||
           leads_with_content(outlet, cell);
}

uint32_t rn_cell_events(const struct rn_outlet *outlet, const struct rn_cell *cell)
{
    return cell->n_parts - leads_with_content(outlet, cell) + has_own_event(outlet, cell);
}

/* Of an event that is not the last. */
static runnel_usage usage_of(const struct rn_cell *cell)
{
    return (runnel_usage){
        .cached_tokens = cell->cached_tokens, .shifts = cell->shifts, .shifted_tokens = cell->shifted_tokens};
}

static void part_event(const struct rn_outlet *outlet, const struct rn_cell *cell, uint32_t part, runnel_event *event)
{
    static const runnel_event_type types[] = {
        [RN_PART_CONTENT] = RUNNEL_EVENT_TOKEN,
        [RN_PART_REASONING] = RUNNEL_EVENT_REASONING,
        [RN_PART_TOOL_NAME] = RUNNEL_EVENT_TOOL_CALL,
        [RN_PART_TOOL_ID] = RUNNEL_EVENT_TOOL_ID,
        [RN_PART_TOOL_ARGUMENTS] = RUNNEL_EVENT_TOOL_ARGUMENTS,
        [RN_PART_TOOL_END] = RUNNEL_EVENT_TOOL_END,
    };
    const struct rn_part *parts = rn_cell_parts(outlet, cell);
    const char *text = rn_cell_text(outlet, cell);

    RN_CHECK(part < cell->n_parts);
    for (uint32_t i = 0; i < part; i++)
        text += parts[i].bytes;
    RN_ASSERT(text + parts[part].bytes <= rn_cell_text(outlet, cell) + cell->text_bytes);
    *event = (runnel_event){
        .type = types[parts[part].kind],
        .stream = rn_stream_id(outlet->slot, rn_word_get(&outlet->generation)),
        .user = outlet->user,
        .text = text,
        .text_bytes = parts[part].bytes,
        .token = -1,
        .tool_call = parts[part].call,
        .error = "",
        .usage = usage_of(cell),
        .stop = -1,
        .stop_token = -1,
    };
}

/* An answer of which events were dropped did not reach its reader: it was cancelled, whatever became of it before. */
static uint32_t type_of(const struct rn_outlet *outlet, const struct rn_cell *cell)
{
    return outlet->dropping && cell->type == RUNNEL_EVENT_DONE ? RUNNEL_EVENT_CANCELLED : cell->type;
}

static void end_event(const struct rn_outlet *outlet, const struct rn_cell *cell, runnel_event *event)
{
    const struct rn_ending *ending = &outlet->ending;
    uint32_t type = type_of(outlet, cell);
    bool done = type == RUNNEL_EVENT_DONE;

    *event = (runnel_event){
        .type = (runnel_event_type)type,
        .stream = rn_stream_id(outlet->slot, rn_word_get(&outlet->generation)),
        .user = outlet->user,
        .text = "",
        .token = done ? cell->token : -1,
        .logprob = done ? ending->logprob : 0,
        .top = outlet->end_top,
        .n_top = done ? ending->n_top : 0,
        .finish = type == RUNNEL_EVENT_CANCELLED ? RUNNEL_FINISH_NONE : ending->finish,
        .status = ending->status,
        .error = cell->type == RUNNEL_EVENT_FAILED ? outlet->error : "",
        .usage = ending->usage,
        .timings = ending->timings,
        .stop = done ? ending->stop : -1,
        .stop_token = done ? ending->stop_token : -1,
        .about = cell->type == RUNNEL_EVENT_FAILED ? ending->about : RUNNEL_ABOUT_NONE,
    };
}

void rn_cell_event(const struct rn_outlet *outlet, const struct rn_cell *cell, uint32_t index, runnel_event *event)
{
    bool leads = leads_with_content(outlet, cell), own = has_own_event(outlet, cell);

    RN_ASSERT(index < rn_cell_events(outlet, cell));
    if (!own || index > 0) {
        part_event(outlet, cell, index - own + leads, event);
        event->n_tokens = index == 0 ? cell->n_tokens : 0;
        return;
    }
    if (cell == &outlet->end) {
        end_event(outlet, cell, event);
        return;
    }
    *event = (runnel_event){
        .type = (runnel_event_type)cell->type,
        .stream = rn_stream_id(outlet->slot, rn_word_get(&outlet->generation)),
        .user = outlet->user,
        .text = rn_cell_text(outlet, cell),
        .text_bytes = leads               ? rn_cell_parts(outlet, cell)[0].bytes
                      : cell->n_parts > 0 ? 0
                                          : cell->text_bytes,
        .token = cell->token,
        .n_tokens = cell->n_tokens,
        .logprob = cell->logprob,
        .top = rn_cell_top(cell),
        .n_top = cell->n_top,
        .logits = cell->logits,
        .n_logits = cell->n_logits,
        .embedding = cell->n_embedding > 0 ? outlet->embedding : NULL,
        .n_embedding = cell->n_embedding,
        .position = cell->position,
        .prompt_done = cell->prompt_done,
        .prompt_total = cell->prompt_total,
        .error = "",
        .usage = usage_of(cell),
        .stop = -1,
        .stop_token = -1,
    };
}

void rn_outlet_take_end(const struct rn_outlet *outlet, struct rn_kept_end *kept, runnel_event *event)
{
    rn_cell_event(outlet, &outlet->end, 0, event);
    RN_CHECK(event->n_top <= RUNNEL_MAX_TOP_LOGPROBS);
    event->top = event->n_top > 0 ? memcpy(kept->top, event->top, event->n_top * sizeof kept->top[0]) : NULL;
    if (event->type == RUNNEL_EVENT_FAILED)
        event->error = memcpy(kept->error, outlet->error, sizeof kept->error);
}
