/* The router: the engine's own actor. It keeps the directory of streams and the list of models, brings
 * requests and the host's wishes to the actors of the right model, and frees a model when its last
 * stream has ended. All messages from host threads enter through it, so that behind a CLOSE nothing
 * more can come to a model's actors. */
#ifndef RN_ACTORS_ROUTER_ACTOR_H
#define RN_ACTORS_ROUTER_ACTOR_H

#include "actors/runtime/runtime.h"

struct rn_context;

#define RN_MODEL_ACTORS 10

struct rn_routed;

/* What the router has done to a model. */
struct rn_routed_ops {
    /* Ends a load that is under way. */
    void (*cancel)(struct rn_routed *model);

    /* Has it been loaded, and with actors? Once the load has ended. */
    bool (*acts)(const struct rn_routed *model);

    /* Posts the job that frees the model's parts, then tells the router MODEL_FREED. */
    void (*post_free)(struct rn_routed *model);

    /* Drops the engine's reference; the last one frees the struct. */
    void (*unref)(struct rn_routed *model);
};

/* The router's part of a model: its first member. */
struct rn_routed {
    const struct rn_routed_ops *ops;
    struct rn_routed *next;
    const struct rn_context *context; /* the model's; its actors are there once the load has ended well */
    uint32_t n_streams, n_gone;       /* n_gone: of its actors */
    uint32_t n_held, n_held_streams;  /* messages that wait at the router; of them SUBMITs */
    uint64_t wake_us;                 /* when its decode wants to hear WAKE; 0: it does not */
    bool load_ended, free_wanted, closed;
    bool blocked; /* while held messages are looked through: one of its has stayed */
};

/* A slot, and its last stream. The host reuses a slot as soon as it has a stream's end, while RETIRE and ENDED may be
 * on their way still. A stream of the same model cannot overtake those. One of another model could, and one of a third:
 * so it waits here until the slot's streams have been reported ENDED, and what is under way for a slot is bounded
 * however many models there are. What comes for its model meanwhile waits behind it: the turns of a session, and what
 * happens to the session between them, keep their order. */
struct rn_route {
    uint32_t generation; /* 0: no stream */
    bool ended;          /* nothing of it is left in the actors; its events may wait to be delivered */
    struct rn_routed *model;
    uint32_t n_sent;           /* streams of the slot that went on and were not reported ENDED, all ... */
    struct rn_routed *sent_to; /* ... of this model */
};

/* A SUBMIT or a session's message that waits. */
struct rn_held {
    struct rn_msg *msg;
    struct rn_routed *model;
};

/* A deadline: of a stream that may have ended meanwhile. */
struct rn_deadline {
    uint64_t at_us;
    uint32_t slot, generation;
    uint32_t kind; /* of the message that the tier gets: EXPIRE or CACHE_DUE */
};

struct rn_router {
    struct rn_actor actor;            /* first: handlers get the actor */
    const struct rn_context *context; /* the engine's */
    struct rn_route *routes;          /* [max_streams] */
    struct rn_held *held;             /* [n_held] of [max_streams + 3 * session_places], in their order */
    uint32_t n_held;
    struct rn_routed *models;
    struct rn_routed *kept; /* freed while the engine closes: only their handle is left, for the host's callbacks */
    bool closing;

    /* A heap, the next one first: at most two live deadlines per stream; those of streams that have ended go when their
     * time comes, or all at once when there is no room. */
    struct rn_deadline *deadlines; /* [4 * max_streams] */
    uint32_t n_deadlines;

    uint64_t last_end_us; /* when a stream ended last; 0: none has */
    uint64_t interval_us; /* between ends, smoothed: how soon there is room again */
};

runnel_status rn_router_init(struct rn_router *router, const struct rn_context *context);
void rn_router_fini(struct rn_router *router);

/* Deadlines are a heap with room; every live stream is of a model in the list, which counts it; what is closed is
 * quiet. Between two messages. */
bool rn_router_check(const struct rn_router *router);

#endif
