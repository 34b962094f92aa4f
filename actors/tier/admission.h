/* Admission and leases: who waits for blocks and in which order, who has how many, from whom they are taken; sessions,
 * as far as their turns are admitted. One of the tier actor's three objects; it belongs to that actor.
 *
 *   arrive ──▶ waiting, by rn_fair_queue ──begin──▶ inside: prefill and decode ──RETIRE──▶ retire
 *                 ▲                              │   grow (GROW ▶ GRANT)
 *                 └────── take_back ◀─PREEMPTED──┘
 *
 * A request is admitted when its session is free and there are blocks for its prompt and a little more; while it runs
 * it leases more ahead of need. When blocks run short they are taken, in this order, from
 *
 *   1. the prefix tree, what nobody uses, least worth keeping first (prefix_tree.h); of what lower tiers have by then
 *      nothing is lost (directory.h);
 *   2. idle sessions (their tokens stay: the next turn computes them again, or finds them in the tree), and pinned
 *      prefixes (pins.h);
 *   3. running requests whose readers are behind (SHORT), as many as are needed, those that have been longest first;
 *      for one that waits only those that have been for long enough (keep_time.h);
 *   4. the running request of the lowest rank (PREEMPT), if the one in need outranks it: of higher priority, or, where
 *      the one in need runs too, of the same and older.
 *
 * One PREEMPT or SHORT is under way at a time: what it brings may be enough. A request that is taken back gives its
 * blocks up, waits, is admitted again with all tokens that it has, and computes what the tree has not kept. The oldest
 * of the highest priority is never taken back, and each request fits the pool by itself: so there is always one that
 * comes to its end.
 *
 *   prompt   | shared with the tree or kept by the session | leased, computed by the request itself | leased later
 *            0                                        n_done                                    n_blocks      n_limit
 *
 * Ownership: it owns the requests that wait here and the sessions of the model. It borrows the prefix cache, and takes
 * and gives back blocks there. It calls nobody back; it sends PREFILL and PREEMPT to prefill, GRANT and SHORT to
 * decode, END to the detokenizer. The files: admission.c the whole, admission_serve.c the order, admission_begin.c how
 * a request begins, admission_lease.c blocks, admission_sessions.c sessions. */
#ifndef RN_ACTORS_TIER_ADMISSION_H
#define RN_ACTORS_TIER_ADMISSION_H

#include "actors/request.h"
#include "actors/tier/prefix_cache.h"
#include "actors/fair_queue.h"

struct rn_session;
struct rn_session_job;
struct rn_snapshot;

/* Of the stream in a slot: for a CANCEL that comes before, with or behind its request, and its lease while it is
 * inside. */
struct rn_admission_stream {
    uint32_t cancelled; /* generation that a CANCEL or EXPIRE was for: its request ends when it comes here */
    uint32_t ending;    /* which of the two */
    uint32_t passed;    /* generation sent on to prefill, and neither retired nor come back */
    uint32_t place;     /* while it has passed: in `inside` */
    int32_t priority;   /* likewise */
    uint64_t order;
    uint32_t n_wanted; /* GROW: blocks that it waits for */
    bool preempting;   /* PREEMPT was sent */
};

struct rn_admission {
    const struct rn_context *context;
    struct rn_prefix_cache *cache;       /* borrowed */
    struct rn_tier_blocks *blocks;       /* the cache's */
    struct rn_fair_queue waiting;        /* for blocks, their session, another's blocks or their reader */
    bool full;                           /* the first that waits for blocks found none, and none have come back since */
    int32_t full_priority;               /* that one's: who comes with a higher one stands in front of it */
    struct rn_admission_stream *streams; /* [max_streams] */
    uint32_t *inside;                    /* [n_inside] of [max_streams]: slots whose request has passed */
    uint32_t n_inside, n_wanting, n_preempting;
    struct {
        uint32_t n_blocks; /* that decode has been told to bring and has not; 0: none */
        bool at_once;      /* with it */
        bool asked;        /* its answer is on the way */
    } shortage;
    uint32_t n_lacking; /* blocks, when room was looked for last in vain */
    struct rn_session *sessions;
    struct rn_session *leaving, *last_leaving;     /* idle, and to be freed before the message is done with */
    struct rn_snapshot *snapshots, *last_snapshot; /* still to be taken, oldest first; NULL, and any: none */
    struct rn_session_job *jobs, *last_job;        /* oldest first: the first is with the worker or the device */
    int32_t *tokens;                               /* [context_tokens]: of the request that is looked at */
    uint64_t uses, orders;
};

/* Behind the cache. NO_MEMORY: nothing is held. */
runnel_status rn_admission_init(struct rn_admission *admission, const struct rn_context *context,
                                struct rn_prefix_cache *cache);
void rn_admission_fini(struct rn_admission *admission);

/* False: something above does not hold. Linear in streams, waiting requests and sessions. */
bool rn_admission_check(const struct rn_admission *admission);

/* CLOSE: no request is left. Frees the sessions. */
void rn_admission_close(struct rn_admission *admission);

/* Its outcome is set: it goes to the detokenizer. */
void rn_admission_end(struct rn_admission *admission, struct rn_request *request);

/* The stream's request runs: it is with prefill, decode or those behind them. */
bool rn_admission_is_inside(const struct rn_admission *admission, uint32_t slot, uint32_t generation);

/* ---- The order (admission_serve.c) ---- */

/* Hands out the blocks there are: first to those that run, then to those that wait. Due whenever blocks have come back
 * or the order has changed. */
void rn_admission_serve(struct rn_admission *admission);

/* ADMIT: the request comes. Serves. */
void rn_admission_arrive(struct rn_admission *admission, struct rn_request *request);

/* PREEMPTED: it gives up its blocks, and waits again; what it has computed of them is in the tree as long as nobody
 * needs the room. Serves. */
void rn_admission_take_back(struct rn_admission *admission, struct rn_request *request);

/* READY: its reader has read on. serve is due. */
void rn_admission_ready(struct rn_admission *admission, uint32_t slot, uint32_t generation);

/* CANCEL, EXPIRE, STOPPED: `kind`. True: the request has been sent on, and the message is to follow it. False: it is
 * still to come, waits here, or has retired, and what was asked is done or remembered. (One that has been sent on may
 * come back before the message has reached it: that is remembered too.) Serves. */
bool rn_admission_end_stream(struct rn_admission *admission, uint32_t slot, uint32_t generation, uint32_t kind);

/* CACHE_DUE: if it waits for others' blocks it looks again, and passes by what has not come up. Serves. */
void rn_admission_cache_due(struct rn_admission *admission, uint32_t slot, uint32_t generation);

/* RETIRE: its blocks go back or stay with its session. The request is the caller's to free; then serve is due. */
void rn_admission_retire(struct rn_admission *admission, struct rn_request *request);

/* Somebody waits here, or wants to grow. */
bool rn_admission_has_waiting(const struct rn_admission *admission);

/* ---- Leases (admission_lease.c) ---- */

/* GROW: wants n blocks more; nothing if it is not inside any more. rn_admission_grow_all is due. */
void rn_admission_grow(struct rn_admission *admission, uint32_t slot, uint32_t generation, uint32_t n);

/* SHORT_BACK: serve is due. */
void rn_admission_short_back(struct rn_admission *admission);

/* Gives those that want to grow what there is, by rank. False: one is left without, and it is being seen to; *priority
 * is its own. */
bool rn_admission_grow_all(struct rn_admission *admission, int32_t *priority);

/* ---- Sessions (admission_sessions.c) ---- */

/* SESSION_NEW, SESSION_FREE, SESSION_FORK, JOB_DONE. True: serve is due. */
void rn_admission_open_session(struct rn_admission *admission, struct rn_session *session);
bool rn_admission_free_session(struct rn_admission *admission, struct rn_session *session, uint32_t generation);
bool rn_admission_fork_session(struct rn_admission *admission, struct rn_session *copy, uint32_t from,
                               uint32_t from_generation);
bool rn_admission_job_done(struct rn_admission *admission, struct rn_session_job *job);

/* COPIED: the job that is under way goes on. */
void rn_admission_job_copied(struct rn_admission *admission);

#endif
