/* The trace: what the actors, the backends and the requests did when, for a host that asked for it (on_trace).
 *
 *   scheduler thread i ──cells──▶ ring i (SPSC) ──▶ tracer's thread, every 20 ms ──▶ on_trace
 *
 * Only scheduler threads write: a step is recorded by the decode actor when it is back, a phase of a request by the
 * actor that ends it. A full ring drops what comes and counts it; nobody ever waits. An engine without on_trace has no
 * tracer (NULL), and every place that records looks at that pointer first. */
#ifndef RN_ACTORS_RUNTIME_TRACE_H
#define RN_ACTORS_RUNTIME_TRACE_H

#include <stdbool.h>
#include <stdint.h>

#include "actors/protocol.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "mailbox/flag.h"
#include "mailbox/ring.h"
#include "mailbox/wake.h"
#include "runnel.h"

/* What a batch of messages was made of: how many of each kind. */
struct rn_trace_kinds {
    uint8_t n[RN_MSG_KINDS];
};

struct rn_tracer {
    struct rn_heap *heap;
    const struct rn_clock *clock;
    runnel_trace_fn on_trace;
    void *user;
    struct rn_ring **rings; /* [n_rings]: scheduler thread i writes; in manual mode (1) whoever runs actors */
    uint32_t n_rings;
    struct rn_counter dropped;
    struct rn_wake wake;
    struct rn_word stopping;
    bool has_thread;
    unsigned long thread; /* pthread_t */
};

/* Rings for n_threads producers (0: manual, one) and, unless manual, the thread that empties them. NULL: no memory or
 * no thread. The clock is borrowed. */
struct rn_tracer *rn_tracer_new(struct rn_heap *heap, const struct rn_clock *clock, uint32_t n_threads,
                                runnel_trace_fn on_trace, void *user);

/* Joins the thread, tells what is left and frees it. No producer runs any more. NULL is allowed. */
void rn_tracer_free(struct rn_tracer *tracer);

/* Tells all that is in the rings now: the tracer's thread; in manual mode, the caller. */
void rn_tracer_drain(struct rn_tracer *tracer);

/* On scheduler thread `thread`: hands an event over, its label copied; kinds and label may be NULL. */
void rn_tracer_put(struct rn_tracer *tracer, uint32_t thread, const runnel_trace_event *event,
                   const struct rn_trace_kinds *kinds);

/* Every producer has a ring, which holds no more than it can. Any thread; exact where none writes. */
bool rn_tracer_check(const struct rn_tracer *tracer);

#endif
