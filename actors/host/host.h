/* The host bridge: how events cross from the actors' threads to the host's.
 *
 * One mailbox gathers what is ready (outlets of streams, models with load news); one eventfd says that
 * it is not empty. Whoever dispatches is its consumer: a poll loop, libuv, or the engine's delivery
 * thread. Pulled streams do not pass the mailbox: their reader sleeps on the outlet's own wake.
 *
 * A host that takes events (runnel_engine_take) gets pointers to `taken`, and what they point to stays in the cells: at
 * most one of each stream, held at its front until the host comes back.
 *
 * Dispatching is exclusive (`dispatcher`), so the consumer's side needs no lock, and
 * callbacks of one engine never run on two threads at once. */
#ifndef RN_ACTORS_HOST_HOST_H
#define RN_ACTORS_HOST_HOST_H

#include "actors/host/outlet.h"
#include "mailbox/mailbox.h"
#include "mailbox/pool.h"

struct runnel_engine;
struct runnel_model;
struct rn_uv;

enum rn_host_node { RN_HOST_STREAM = 1, RN_HOST_LOAD = 2 };

struct rn_host {
    struct rn_mailbox mailbox;
    int fd;                      /* eventfd, non-blocking */
    int closing_fd;              /* eventfd, readable once the engine is being freed: wakes runnel_engine_wait */
    struct rn_holder dispatcher; /* the thread that dispatches */
    struct rn_word closed;       /* the router has nothing left */
    struct rn_wake closed_wake;
    struct rn_word free_wanted; /* runnel_engine_free was called inside a callback */
    runnel_delivery delivery;
    unsigned long thread; /* delivery thread */
    struct rn_word stopping;
    struct rn_pool slots;      /* stream slots */
    struct rn_outlet *outlets; /* [max_streams] */
    /* Of runnel_engine_take, the dispatcher's: what the host holds. Each event is of the cell at the front of its
     * stream, which is released before the next dispatch or take. */
    runnel_event taken[RUNNEL_MAX_TAKE];
    uint32_t taken_slots[RUNNEL_MAX_TAKE];
    uint32_t n_taken;
    struct rn_holder uv_thread; /* the attached loop's thread */
    struct rn_uv *uv;           /* touched on that thread alone */
};

runnel_status rn_host_init(struct runnel_engine *engine, runnel_delivery delivery, bool manual);
void rn_host_fini(struct runnel_engine *engine);

/* Producer (detokenizer): makes the reserved cell, or the terminal one, outlet->end, visible and wakes whoever
 * consumes the stream. After the terminal one the outlet is not the producer's any more. put: the reserved cell of a
 * token or the tail, which may be joined to others; true: it costs no credit. */
bool rn_host_put(struct runnel_engine *engine, struct rn_outlet *outlet, const struct rn_cell *cell);
void rn_host_publish(struct runnel_engine *engine, struct rn_outlet *outlet);
void rn_host_publish_end(struct runnel_engine *engine, struct rn_outlet *outlet);

/* Any thread: the stream of that generation is cancelled from now on; its consumer is woken, for the end may
 * be in the ring of a paused one already. True: this call did it, and its caller sends CANCEL. */
bool rn_host_cancel(struct runnel_engine *engine, struct rn_outlet *outlet, uint32_t generation);

/* Any thread: the model has load news (fraction or state). */
void rn_host_load_news(struct runnel_model *model);

/* The router's last word: everything has ended. */
void rn_host_closed(struct runnel_engine *engine);

/* Dispatches, for whoever is allowed to. *free_wanted: a callback asked for the engine to be freed, and the caller is
 * to call runnel_engine_free, from outside the engine's gate. */
size_t rn_host_dispatch(struct runnel_engine *engine, size_t max_events, bool *free_wanted);

/* Blocks until events wait or the time has passed (negative: never). OK, TIMEOUT, CLOSED: the engine is being freed. */
runnel_status rn_host_wait(struct runnel_engine *engine, int64_t timeout_ms);

/* Wakes all that sleep in rn_host_wait, for good. */
void rn_host_wake_all(struct runnel_engine *engine);

/* True inside a callback of this engine. */
bool rn_host_in_callback(const struct runnel_engine *engine);

/* Ends the delivery thread, if there is one; may be called on it. */
void rn_host_stop_delivery(struct runnel_engine *engine);

/* host_uv.c: a stream or load has begun on this thread: keeps an attached loop alive. */
void rn_uv_keep_alive(struct runnel_engine *engine);

#endif
