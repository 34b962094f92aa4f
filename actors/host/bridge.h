/* The bridge to the host, as the actors see it: how events leave for the host's threads. Who takes them there is in
 * host.h.
 *
 * One mailbox gathers what is ready (outlets of streams, models with load news); one descriptor (notifier.h) says that
 * it is not empty: it is raised on the empty→non-empty edge, and when a dispatch stops early. Whoever dispatches is its
 * consumer: a poll loop, libuv, or the engine's delivery thread. Pulled streams do not pass the mailbox: their reader
 * sleeps on the outlet's own wake. */
#ifndef RN_ACTORS_HOST_BRIDGE_H
#define RN_ACTORS_HOST_BRIDGE_H

#include "actors/host/notifier.h"
#include "actors/host/outlet.h"
#include "mailbox/mailbox.h"
#include "mailbox/pool.h"

struct rn_uv;

enum rn_hand_over { RN_HANDED_NOTHING, RN_HANDED_SOON, RN_HANDED_OVER };
enum rn_host_node { RN_HOST_STREAM = 1, RN_HOST_LOAD = 2 };

struct rn_host {
    struct rn_mailbox mailbox;
    struct rn_notifier notifier;
    int closing_fd;              /* eventfd, readable once the engine is being freed: wakes runnel_engine_wait */
    struct rn_holder dispatcher; /* the thread that dispatches */
    struct rn_edge missed;       /* another thread found it at work and cleared the notifier: raised again at its end */
    struct rn_word closed;       /* the router has nothing left */
    struct rn_word free_wanted;  /* runnel_engine_free was called inside a callback */
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
    struct rn_edge uv_edge;     /* orders an attach and the counts that it looks at: see rn_uv_keep_alive */
    struct rn_uv *uv;           /* touched on that thread alone */
    struct rn_word handed_over; /* enum rn_hand_over: see rn_uv_hand_over */
};

/* Producer (detokenizer): makes the reserved cell, or the terminal one, outlet->end, visible and wakes whoever
 * consumes the stream. After the terminal one the outlet is not the producer's any more. put: the reserved cell of a
 * token or the tail, which may be joined to others; true: it costs no credit. */
bool rn_host_put(struct rn_host *host, struct rn_outlet *outlet, const struct rn_cell *cell);
void rn_host_publish(struct rn_host *host, struct rn_outlet *outlet);
void rn_host_publish_end(struct rn_host *host, struct rn_outlet *outlet);

/* Any thread: the stream of that generation is cancelled from now on; its consumer is woken, for the end may
 * be in the ring of a paused one already. True: this call did it, and its caller sends CANCEL. */
bool rn_host_cancel(struct rn_host *host, struct rn_outlet *outlet, uint32_t generation);

/* Any thread: the node goes to the dispatcher, unless its edge is up: then it is there already. */
void rn_host_raise(struct rn_host *host, struct rn_edge *edge, struct rn_message *node);

/* Any thread: the consumer of the stream, whichever way it reads, looks at it again. */
void rn_host_wake_consumer(struct rn_host *host, struct rn_outlet *outlet);

/* Any thread: sets a word that holds the generation it speaks of, never back to an older stream's. True: this call set
 * it. */
bool rn_host_claim(struct rn_word *word, uint32_t generation);

/* Every open stream has a slot that was taken, and every event that the host holds a stream. Where no thread of the
 * host is inside. */
bool rn_host_check(const struct rn_host *host);

/* The router's last word: everything has ended. */
void rn_host_closed(struct rn_host *host);

#endif
