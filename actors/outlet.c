/* Outlets of streams: see outlet.h. */
#include "actors/outlet.h"

#include <string.h>

#include "base/check.h"

static uint32_t longest_stop(const struct rn_outlet_options *options)
{
    size_t longest = 0;

    for (size_t i = 0; i < options->n_stops; i++)
        longest = strlen(options->stops[i]) > longest ? strlen(options->stops[i]) : longest;
    return (uint32_t)longest;
}

/* Copies the stop strings behind one another into outlet->memory and starts the piece stream. */
static runnel_status copy_stops(struct rn_outlet *outlet, const struct rn_outlet_options *options)
{
    const char *stops[RUNNEL_MAX_STOPS];
    uint32_t sizes[RUNNEL_MAX_STOPS];
    size_t bytes = 0;
    char *at;

    for (size_t i = 0; i < options->n_stops; i++)
        bytes += strlen(options->stops[i]) + 1;
    outlet->memory = rn_alloc(outlet->heap, bytes, 1);
    if (outlet->memory == NULL)
        return RUNNEL_NO_MEMORY;
    at = outlet->memory;
    for (size_t i = 0; i < options->n_stops; i++) {
        sizes[i] = (uint32_t)strlen(options->stops[i]);
        stops[i] = memcpy(at, options->stops[i], sizes[i] + 1);
        at += sizes[i] + 1;
    }
    rn_piece_stream_init(&outlet->pieces, stops, sizes, (uint32_t)options->n_stops, options->strip_first_space);
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
    rn_answer_free(outlet->answer);
    atomic_store_explicit(&outlet->ring, NULL, memory_order_relaxed);
    outlet->answer = NULL;
    outlet->raw = NULL;
    outlet->memory = NULL;
    outlet->logits = NULL;
}

/* Room for what one token, or the tail, can put out. */
static runnel_status size_cells(struct rn_outlet *outlet, const struct rn_outlet_options *options)
{
    size_t piece = rn_piece_stream_bound(options->longest_piece) + longest_stop(options);
    size_t tail = rn_piece_stream_bound(0) < RN_PIECE_HELD_BYTES ? RN_PIECE_HELD_BYTES : rn_piece_stream_bound(0);
    size_t text = piece > tail ? piece : tail;

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

runnel_status rn_outlet_open(struct rn_outlet *outlet, struct rn_heap *heap, const struct rn_outlet_options *options,
                             uint32_t *generation)
{
    runnel_status status;

    outlet->heap = heap;
    outlet->on_event = options->on_event;
    outlet->user = options->user;
    outlet->n_top_max = options->n_top;
    outlet->n_logits = options->n_logits;
    outlet->window = options->n_logits > 0 ? RN_WINDOW_LOGITS : RN_WINDOW;
    outlet->n_answer = outlet->stopped_at = outlet->consumed = 0;
    outlet->held = outlet->dropping = false;
    outlet->shown = 0;
    outlet->answer = NULL;
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
    rn_word_set(&outlet->pull, options->on_event == NULL);
    *generation = rn_word_get(&outlet->generation) + 1;
    rn_word_set(&outlet->generation, *generation);
    return RUNNEL_OK;
}

runnel_status rn_outlet_prepare(struct rn_outlet *outlet)
{
    size_t cell = sizeof(struct rn_cell) + outlet->n_top_max * sizeof(runnel_logprob) +
                  outlet->parts_capacity * sizeof(struct rn_part) + outlet->text_capacity;
    struct rn_ring *ring = rn_ring_new(outlet->heap, outlet->window + 1, (uint32_t)cell); /* and the tail */

    if (ring != NULL && outlet->n_logits > 0) {
        outlet->logits = rn_alloc(outlet->heap, (size_t)(outlet->window + 1) * outlet->n_logits, sizeof(float));
        if (outlet->logits == NULL) {
            rn_ring_free(ring);
            ring = NULL;
        }
    }
    /* Release; partner: rn_outlet_front, which may look at any time. */
    atomic_store_explicit(&outlet->ring, ring, memory_order_release);
    return ring != NULL ? RUNNEL_OK : RUNNEL_NO_MEMORY;
}

void rn_outlet_publish(struct rn_outlet *outlet)
{
    rn_ring_publish_spsc(ring_of(outlet));
}

bool rn_outlet_is_prepared(const struct rn_outlet *outlet)
{
    return ring_of(outlet) != NULL;
}

const struct rn_cell *rn_outlet_front(const struct rn_outlet *outlet, uint32_t generation)
{
    /* First: whoever sees the end sees every cell that was published before it. */
    bool ended = rn_word_get(&outlet->ended) == generation;
    /* Acquire; partner: rn_outlet_prepare. */
    struct rn_ring *ring = atomic_load_explicit(&((struct rn_outlet *)(uintptr_t)outlet)->ring, memory_order_acquire);
    const struct rn_cell *cell = ring != NULL ? rn_ring_peek_spsc(ring) : NULL;

    return cell != NULL ? cell : ended ? &outlet->end : NULL;
}

void rn_outlet_release(struct rn_outlet *outlet)
{
    rn_ring_release_spsc(ring_of(outlet));
}

uint32_t rn_outlet_waiting(const struct rn_outlet *outlet, uint32_t generation)
{
    struct rn_ring *ring = ring_of(outlet);

    return (ring != NULL ? rn_ring_count(ring) : 0) + (rn_word_get(&outlet->ended) == generation);
}

void rn_outlet_close(struct rn_outlet *outlet)
{
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

    cell->n_parts += (uint32_t)rn_answer_feed(outlet->answer, outlet->raw, n, rn_cell_parts(outlet, cell) + cell->n_parts,
                                              rn_cell_text(outlet, cell) + cell->text_bytes, &bytes);
    cell->text_bytes += (uint32_t)bytes;
}

void rn_outlet_put_piece(struct rn_outlet *outlet, struct rn_cell *cell, const char *piece, size_t n)
{
    if (outlet->answer == NULL)
        cell->text_bytes =
            (uint32_t)rn_piece_stream_feed(&outlet->pieces, piece, n, rn_cell_text(outlet, cell));
    else
        put_parts(outlet, cell, rn_piece_stream_feed(&outlet->pieces, piece, n, outlet->raw));
}

void rn_outlet_put_tail(struct rn_outlet *outlet, struct rn_cell *cell, bool finished)
{
    size_t bytes = 0;

    if (outlet->answer == NULL) {
        cell->text_bytes = (uint32_t)rn_piece_stream_end(&outlet->pieces, rn_cell_text(outlet, cell));
        return;
    }
    put_parts(outlet, cell, rn_piece_stream_end(&outlet->pieces, outlet->raw));
    cell->n_parts += (uint32_t)rn_answer_end(outlet->answer, finished, rn_cell_parts(outlet, cell) + cell->n_parts,
                                             rn_cell_text(outlet, cell) + cell->text_bytes, &bytes);
    cell->text_bytes += (uint32_t)bytes;
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

    for (uint32_t i = 0; i < part; i++)
        text += parts[i].bytes;
    *event = (runnel_event){
        .type = types[parts[part].kind],
        .stream = rn_stream_id(outlet->slot, rn_word_get(&outlet->generation)),
        .text = text,
        .text_bytes = parts[part].bytes,
        .token = -1,
        .tool_call = parts[part].call,
        .error = "",
    };
}

void rn_cell_event(const struct rn_outlet *outlet, const struct rn_cell *cell, uint32_t index, runnel_event *event)
{
    bool leads = leads_with_content(outlet, cell), own = has_own_event(outlet, cell);

    if (!own || index > 0) {
        part_event(outlet, cell, index - own + leads, event);
        return;
    }
    *event = (runnel_event){
        .type = (runnel_event_type)cell->type,
        .stream = rn_stream_id(outlet->slot, rn_word_get(&outlet->generation)),
        .text = cell == &outlet->end ? "" : rn_cell_text(outlet, cell),
        .text_bytes = leads ? rn_cell_parts(outlet, cell)[0].bytes : cell->n_parts > 0 ? 0 : cell->text_bytes,
        .token = cell->token,
        .logprob = cell->logprob,
        .top = cell == &outlet->end ? NULL : rn_cell_top(cell),
        .n_top = cell->n_top,
        .logits = cell->logits,
        .n_logits = cell->n_logits,
        .position = cell->position,
        .prompt_done = cell->prompt_done,
        .prompt_total = cell->prompt_total,
        .finish = cell->finish,
        .status = cell->status,
        .error = cell->type == RUNNEL_EVENT_FAILED ? outlet->error : "",
        .usage = cell->usage,
        .timings = cell->timings,
    };
}
