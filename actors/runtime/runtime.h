/* The runtime: who runs an actor, and when.
 *
 * An actor is a mailbox, a table of handlers and a state that nobody else touches. It runs when its
 * mailbox turns non-empty: the sender that saw that edge puts it on the run queue, a scheduler thread
 * takes it off, handles at most RN_ACTOR_BATCH messages, calls its `flush`, and puts it back or marks
 * it empty. So an actor is on the queue or running at most once, and never on two threads.
 *
 *   idle ──send saw the edge──▶ queued ──taken──▶ running ──mark_empty──▶ idle
 *                                  ▲                 │ more
 *                                  └─────────────────┘
 *
 * With n_threads = 0 nothing runs by itself: rn_runtime_step runs one actor on the caller's thread,
 * which of those that can run is the caller's choice. That is how the simulation replays a schedule
 * from a seed. */
#ifndef RN_ACTORS_RUNTIME_RUNTIME_H
#define RN_ACTORS_RUNTIME_RUNTIME_H

#include <stdbool.h>
#include <stdint.h>

#include "actors/protocol.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "mailbox/flag.h"
#include "mailbox/mailbox.h"
#include "mailbox/pool.h"
#include "mailbox/queue.h"
#include "mailbox/wake.h"

#define RN_ACTOR_BATCH 64

struct rn_actor;
struct rn_runtime;
struct rn_tracer;
struct rn_dedicated;

/* Handles one message, which it owns: it ends with rn_msg_free or a send. */
typedef void (*rn_handler)(struct rn_actor *self, struct rn_msg *msg);

struct rn_actor_class {
    const char *name;
    rn_handler handlers[RN_MSG_KINDS];    /* NULL: this actor never gets that message */
    void (*flush)(struct rn_actor *self); /* after each batch of messages; may be NULL */
};

struct rn_actor {
    struct rn_mailbox mailbox;
    const struct rn_actor_class *class;
    struct rn_runtime *runtime;
    uint32_t id;
    uint32_t thread;                /* the scheduler thread that runs it; 0 in manual mode */
    struct rn_dedicated *dedicated; /* NULL: it runs on the schedulers' threads. Else on its own (dedicated.h) */
    const char *model;              /* name for the trace; "": none */
    struct rn_msg *gone_msg;        /* set by the handler of CLOSE: sent to `receiver of GONE` as the last touch */
    struct rn_actor *gone_to;
};

/* Told of every message before it is handled; for traces and the simulation's order signature. */
typedef void (*rn_trace_fn)(void *user, const struct rn_actor *actor, const struct rn_msg *msg);

/* When a TICK is due, and for whom. One user: the router. */
struct rn_alarm {
    _Atomic(uint64_t) at_us; /* UINT64_MAX: never; the number below: a TICK is under way */
    struct rn_actor *actor;  /* set once, before the first alarm */
};

struct rn_runtime {
    struct rn_heap *heap;
    struct rn_pool messages;
    struct rn_queue *queue; /* of actors; NULL in manual mode */
    struct rn_wake wake;
    struct rn_word stopping;
    struct rn_word next_id;
    const struct rn_clock *clock;
    struct rn_alarm alarm;
    uint32_t n_threads;
    unsigned long *threads; /* pthread_t */
    struct rn_word next_thread;
    /* manual mode */
    struct rn_actor **runnable;
    uint32_t n_runnable, runnable_capacity;
    rn_trace_fn trace;
    void *trace_user;
    struct rn_tracer *tracer;         /* NULL: off; see trace.h */
    const uint32_t *payload_bytes_of; /* [RN_MSG_KINDS], see payload_poison.h; NULL: nothing is sealed */
};

/* n_threads 0: manual. max_actors, max_messages: bounds over the runtime's life. The clock is kept. */
runnel_status rn_runtime_init(struct rn_runtime *runtime, struct rn_heap *heap, const struct rn_clock *clock,
                              uint32_t n_threads, uint32_t max_actors, uint32_t max_messages);

/* Joins the threads. No actor may be running or queued with work that others wait for. */
void rn_runtime_stop(struct rn_runtime *runtime);
void rn_runtime_fini(struct rn_runtime *runtime);

void rn_actor_init(struct rn_actor *actor, struct rn_runtime *runtime, const struct rn_actor_class *class,
                   int32_t credits);

/* A message of the kind; never NULL between actors (the bounds of protocol.h add up to the pool);
 * rn_msg_try may return NULL, for host threads. */
struct rn_msg *rn_msg_new(struct rn_runtime *runtime, enum rn_message_kind kind);
struct rn_msg *rn_msg_try(struct rn_runtime *runtime, enum rn_message_kind kind);
void rn_msg_free(struct rn_runtime *runtime, struct rn_msg *msg);

/* Moves the message to the actor and wakes it. Any thread. */
void rn_actor_send(struct rn_actor *to, struct rn_msg *msg);

/* The handler of CLOSE that every actor of a model uses: the message becomes its last words. */
void rn_actor_on_close(struct rn_actor *self, struct rn_msg *msg);

/* Handles a batch of the actor's messages on the calling thread; for dedicated.c, when the actor is to run. */
void rn_runtime_run(struct rn_actor *actor, uint32_t thread);

/* From that actor alone: sends it a TICK when the clock has come to at_us, UINT64_MAX: never; what was set before
 * counts no longer. One TICK is under way at a time: until it is handled an alarm does nothing, and its handler sets
 * the next one. */
void rn_runtime_alarm(struct rn_runtime *runtime, struct rn_actor *actor, uint64_t at_us);

/* Of that actor's handler of TICK, first: alarms count again. */
void rn_runtime_ticked(struct rn_runtime *runtime);

/* Manual mode: sends the TICK that is due, if one is. */
void rn_runtime_look_at_clock(struct rn_runtime *runtime);

/* Manual mode: actors that can run are this runtime's, each once, and no more messages are out than there are. */
bool rn_runtime_check(const struct rn_runtime *runtime);

/* Manual mode: how many actors can run; runs the `choice`-th of them for at most `batch` messages. */
uint32_t rn_runtime_runnable(const struct rn_runtime *runtime);
void rn_runtime_step(struct rn_runtime *runtime, uint32_t choice, uint32_t batch);

#endif
