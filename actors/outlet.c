/* Outlets of streams: see outlet.h. */
#include "actors/outlet.h"

#include <string.h>

#include "base/check.h"

/* Beyond the window: the held-back tail and the terminal event. */
#define EXTRA_CELLS 2

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

static void release(struct rn_outlet *outlet)
{
    rn_ring_free(outlet->ring);
    rn_free(outlet->heap, outlet->memory);
    rn_free(outlet->heap, outlet->logits);
    outlet->ring = NULL;
    outlet->memory = NULL;
    outlet->logits = NULL;
}

runnel_status rn_outlet_open(struct rn_outlet *outlet, struct rn_heap *heap, const struct rn_outlet_options *options,
                             uint32_t *generation)
{
    size_t piece = rn_piece_stream_bound(options->longest_piece) + longest_stop(options);
    size_t tail = rn_piece_stream_bound(0) < RN_PIECE_HELD_BYTES ? RN_PIECE_HELD_BYTES : rn_piece_stream_bound(0);

    outlet->heap = heap;
    outlet->on_event = options->on_event;
    outlet->user = options->user;
    outlet->n_top_max = options->n_top;
    outlet->n_logits = options->n_logits;
    outlet->window = options->n_logits > 0 ? RN_WINDOW_LOGITS : RN_WINDOW;
    outlet->text_capacity = (uint32_t)(piece > tail ? piece : tail);
    outlet->n_answer = outlet->stopped_at = outlet->consumed = 0;
    outlet->held = outlet->dropping = false;
    outlet->error[0] = '\0';
    outlet->memory = NULL;
    outlet->logits = NULL;
    outlet->ring = rn_ring_new(
        heap, outlet->window + EXTRA_CELLS,
        (uint32_t)(sizeof(struct rn_cell) + options->n_top * sizeof(runnel_logprob) + outlet->text_capacity));
    if (options->n_logits > 0)
        outlet->logits = rn_alloc(heap, (size_t)(outlet->window + EXTRA_CELLS) * options->n_logits, sizeof(float));
    if (outlet->ring == NULL || (options->n_logits > 0 && outlet->logits == NULL) ||
        copy_stops(outlet, options) != RUNNEL_OK) {
        release(outlet);
        return RUNNEL_NO_MEMORY;
    }
    rn_word_set(&outlet->pull, options->on_event == NULL);
    *generation = rn_word_get(&outlet->generation) + 1;
    rn_word_set(&outlet->generation, *generation);
    return RUNNEL_OK;
}

void rn_outlet_close(struct rn_outlet *outlet)
{
    release(outlet);
    rn_word_set(&outlet->generation, rn_word_get(&outlet->generation) + 1);
}

struct rn_cell *rn_outlet_reserve(struct rn_outlet *outlet)
{
    struct rn_cell *cell = rn_ring_reserve_spsc(outlet->ring);

    RN_CHECK(cell != NULL);
    memset(cell, 0, sizeof *cell);
    cell->token = -1;
    return cell;
}

runnel_logprob *rn_cell_top(const struct rn_cell *cell)
{
    return (runnel_logprob *)(uintptr_t)(cell + 1);
}

char *rn_cell_text(const struct rn_outlet *outlet, const struct rn_cell *cell)
{
    return (char *)(rn_cell_top(cell) + outlet->n_top_max);
}

void rn_cell_event(const struct rn_outlet *outlet, const struct rn_cell *cell, runnel_event *event)
{
    *event = (runnel_event){
        .type = (runnel_event_type)cell->type,
        .stream = rn_stream_id(outlet->slot, rn_word_get(&outlet->generation)),
        .text = rn_cell_text(outlet, cell),
        .text_bytes = cell->text_bytes,
        .token = cell->token,
        .logprob = cell->logprob,
        .top = rn_cell_top(cell),
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
