/* The host's side of the bridge: who takes events from the actors' threads (bridge.h) to the host's.
 *
 * A host that takes events (runnel_engine_take) gets pointers to `taken`, and what they point to stays in the cells: at
 * most one of each stream, held at its front until the host comes back.
 *
 * Dispatching is exclusive (`dispatcher`), so the consumer's side needs no lock, and
 * callbacks of one engine never run on two threads at once. (A host's sampler is asked by whoever reads its stream:
 * choose.c.) */
#ifndef RN_ACTORS_HOST_HOST_H
#define RN_ACTORS_HOST_HOST_H

#include "actors/host/bridge.h"

struct runnel_engine;

runnel_status rn_host_init(struct runnel_engine *engine, runnel_delivery delivery, uint32_t gather_us, bool manual);
void rn_host_fini(struct runnel_engine *engine);

/* When a dispatch ends besides: between two events it looks. */
struct rn_dispatch {
    size_t max_events;           /* 0: no limit */
    const struct rn_word *until; /* it is set; NULL: none */
    uint64_t due_us;             /* on the engine's clock; 0: never */
};

/* Delivers what waits at its begin, for whoever is allowed to, and returns how many events that were: of each stream
 * what waited when its turn came, so that none holds the others up. What is left wakes the host. 0 at once where
 * another dispatch is under way, whose end wakes the host. *free_wanted: a callback asked for the engine to be freed,
 * which ends the dispatch, and the caller is to call runnel_engine_free, from outside the engine's gate. */
size_t rn_host_dispatch(struct runnel_engine *engine, const struct rn_dispatch *how, bool *free_wanted);

/* control.c: the outlet of a stream and the stream's generation there; NULL: it has ended. Any thread. */
struct rn_outlet *rn_host_find(struct runnel_engine *engine, runnel_stream stream, uint32_t *generation);

/* choose.c: asks the host for its choice. The reader of the stream, once the cell that asks is released. */
void rn_host_ask(struct runnel_engine *engine, struct rn_outlet *outlet, uint32_t generation);

/* Blocks until events wait or the time has passed (negative: never). OK, TIMEOUT, CLOSED: the engine is being freed. */
runnel_status rn_host_wait(struct runnel_engine *engine, int64_t timeout_ms);

/* Wakes all that sleep in rn_host_wait, for good. */
void rn_host_wake_all(struct runnel_engine *engine);

/* True inside a callback of this engine, `choose` among them. */
bool rn_host_in_callback(const struct runnel_engine *engine);

/* Inside a callback: the engine is freed when the call that runs it returns. False: this is none. */
bool rn_host_defer_free(struct runnel_engine *engine);

/* generate.c: BUSY, since a limit is reached that streams make room below when they end: the sentence, which names it
 * (%llu), and the estimate of when. */
runnel_status rn_host_refuse(const struct runnel_engine *engine, runnel_error *error, const char *sentence,
                             unsigned long long limit);

/* Ends the delivery thread, if there is one; may be called on it. */
void rn_host_stop_delivery(struct runnel_engine *engine);

/* host_uv.c: a stream or load has begun, or the last of them has ended: an attached loop lives as long as there is one.
 * Any thread; on another than the loop's it wakes the loop. */
void rn_uv_keep_alive(struct runnel_engine *engine);

/* host_uv.c: a loop of another thread is attached, whose handle that thread alone can close: it frees the rest of the
 * engine at its next turn, and the caller does not touch the engine any more. False: it is the caller's to free. */
bool rn_uv_hand_over(struct runnel_engine *engine);

#endif
