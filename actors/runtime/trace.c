/* The trace: see trace.h. */
#include "actors/runtime/trace.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/thread.h"

/* 20 ms of a thread that does nothing but the shortest of batches, a microsecond each, fit nearly. */
#define RING_CELLS 16384
#define DRAIN_US 20000

static_assert(sizeof(pthread_t) == sizeof(unsigned long), "trace.h keeps pthread_t without its header");

struct cell {
    runnel_trace_event event; /* without `messages` and `label` */
    struct rn_trace_kinds kinds;
    char label[RUNNEL_LABEL_BYTES];
};

/* "CREDIT 2, SAMPLED" */
static const char *write_kinds(const struct rn_trace_kinds *kinds, char *text, size_t capacity)
{
    size_t n = 0;

    text[0] = '\0';
    for (uint32_t kind = 0; kind < RN_MSG_KINDS && n < capacity; kind++) {
        const char *comma = n > 0 ? ", " : "";

        if (kinds->n[kind] == 1)
            n += (size_t)snprintf(text + n, capacity - n, "%s%s", comma, rn_message_name(kind));
        else if (kinds->n[kind] > 1)
            n += (size_t)snprintf(text + n, capacity - n, "%s%s %u", comma, rn_message_name(kind), kinds->n[kind]);
    }
    return text;
}

static void drain_ring(const struct rn_tracer *tracer, struct rn_ring *ring)
{
    char text[32 * RN_MSG_KINDS];
    struct cell *cell;

    /* At most as many as there were: the producer may be as fast as we are. */
    for (uint32_t left = rn_ring_count(ring); left > 0 && (cell = rn_ring_peek_spsc(ring)) != NULL; left--) {
        cell->event.messages = write_kinds(&cell->kinds, text, sizeof text);
        cell->event.label = cell->label;
        tracer->on_trace(tracer->user, &cell->event);
        rn_ring_release_spsc(ring);
    }
}

void rn_tracer_drain(struct rn_tracer *tracer)
{
    for (uint32_t i = 0; i < tracer->n_rings; i++)
        drain_ring(tracer, tracer->rings[i]);
}

static void *tracer_main(void *arg)
{
    struct rn_tracer *tracer = arg;

    while (rn_word_get(&tracer->stopping) == 0) {
        uint32_t ticket = rn_wake_ticket(&tracer->wake);

        rn_tracer_drain(tracer);
        if (rn_word_get(&tracer->stopping) == 0)
            rn_wake_wait(&tracer->wake, ticket, DRAIN_US, 0);
    }
    return NULL;
}

void rn_tracer_put(struct rn_tracer *tracer, uint32_t thread, const runnel_trace_event *event,
                   const struct rn_trace_kinds *kinds)
{
    struct cell *cell;

    RN_CHECK(thread < tracer->n_rings);
    RN_ASSERT(event->begin_ns <= event->end_ns && event->name != NULL);
    cell = rn_ring_reserve_spsc(tracer->rings[thread]);
    if (cell == NULL) {
        rn_counter_add(&tracer->dropped, 1);
        return;
    }
    cell->event = *event;
    memset(cell->label, 0, sizeof cell->label);
    if (event->label != NULL)
        memcpy(cell->label, event->label, strnlen(event->label, sizeof cell->label - 1));
    if (kinds != NULL)
        cell->kinds = *kinds;
    else
        memset(&cell->kinds, 0, sizeof cell->kinds);
    rn_ring_publish_spsc(tracer->rings[thread]);
}

static void free_rings(struct rn_tracer *tracer)
{
    for (uint32_t i = 0; i < tracer->n_rings; i++)
        rn_ring_free(tracer->rings[i]);
    rn_free(tracer->heap, tracer->rings);
    rn_free(tracer->heap, tracer);
}

static bool take_rings(struct rn_tracer *tracer, uint32_t n)
{
    tracer->rings = rn_calloc(tracer->heap, n, sizeof tracer->rings[0]);
    if (tracer->rings == NULL)
        return false;
    tracer->n_rings = n;
    for (uint32_t i = 0; i < n; i++)
        if ((tracer->rings[i] = rn_ring_new(tracer->heap, RING_CELLS, sizeof(struct cell))) == NULL)
            return false;
    return true;
}

struct rn_tracer *rn_tracer_new(struct rn_heap *heap, const struct rn_clock *clock, uint32_t n_threads,
                                runnel_trace_fn on_trace, void *user)
{
    struct rn_tracer *tracer = rn_alloc_aligned(heap, sizeof *tracer, 64);

    if (tracer == NULL)
        return NULL;
    *tracer = (struct rn_tracer){.heap = heap, .clock = clock, .on_trace = on_trace, .user = user};
    rn_wake_init(&tracer->wake);
    if (!take_rings(tracer, n_threads > 0 ? n_threads : 1)) {
        free_rings(tracer);
        return NULL;
    }
    tracer->has_thread = n_threads > 0;
    if (tracer->has_thread && !rn_thread_start((pthread_t *)&tracer->thread, tracer_main, tracer)) {
        free_rings(tracer);
        return NULL;
    }
    return tracer;
}

bool rn_tracer_check(const struct rn_tracer *tracer)
{
    for (uint32_t i = 0; i < tracer->n_rings; i++)
        if (rn_ring_count(tracer->rings[i]) > RING_CELLS)
            return false;
    return tracer->n_rings > 0 && tracer->on_trace != NULL && rn_counter_get(&tracer->dropped) >= 0 &&
           (tracer->has_thread || rn_word_get(&tracer->stopping) == 0);
}

void rn_tracer_free(struct rn_tracer *tracer)
{
    if (tracer == NULL)
        return;
    if (tracer->has_thread) {
        rn_word_set(&tracer->stopping, 1);
        rn_wake_notify(&tracer->wake);
        pthread_join((pthread_t)tracer->thread, NULL);
    }
    rn_tracer_drain(tracer);
    free_rings(tracer);
}
