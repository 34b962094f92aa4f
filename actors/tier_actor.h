/* The tier actor (cache-tier manager): owns the KV block pool, the prefix tree and the sessions, and decides who has
 * blocks.
 *
 * A request is admitted when its session is free and there are blocks for its prompt and a little more; while it runs
 * it leases more ahead of need (GROW, GRANT). Who waits goes on in the order of turns.h. When blocks run short they
 * are taken, in this order, from
 *
 *   1. the prefix tree, what nobody uses, least recently used first; of what lower tiers have by then nothing is lost
 *      (tier_shelf.h);
 *   2. idle sessions (their tokens stay: the next turn computes them again, or finds them in the tree), and pinned
 *      prefixes (tier_pin.h);
 *   3. running requests whose readers are behind (SHORT);
 *   4. the running request of the lowest rank (PREEMPT), if the one in need outranks it: of higher priority, or, where
 *      the one in need runs too, of the same and older.
 *
 * A request that is taken back gives its blocks up, waits, is admitted again with all tokens that it has, and computes
 * what the tree has not kept. The oldest of the highest priority is never taken back, and each request fits
 * the pool by itself: so there is always one that comes to its end. See tier_lease.h.
 *
 *   prompt   | shared with the tree or kept by the session | leased, computed by the request itself ... | leased later
 *            0                                        n_done                                        n_blocks     n_limit
 *
 * What a prompt shares is whole blocks, and by copy what it has in common with one block more. If the blocks behind
 * them are being computed by a request that runs, it waits here until they are ready or given up, and holds nobody
 * else up; one that waits holds nothing, one that runs never waits. A block into which is written has one reference:
 * its writer's. A turn whose session shares the block that it goes on in (with the tree, a fork, an export) gets a
 * copy of it, made by the step of its first rows. See tier_cache.h. What lower tiers have of a prompt comes up while it
 * waits: see tier_promote.h. */
#ifndef RN_ACTORS_TIER_ACTOR_H
#define RN_ACTORS_TIER_ACTOR_H

#include "actors/request.h"
#include "actors/runtime/runtime.h"
#include "actors/session_slot.h"
#include "actors/tier_pin.h"
#include "actors/tier_shelf.h"
#include "actors/turns.h"
#include "cache/block_pool.h"
#include "cache/hit_ceiling.h"
#include "cache/prefix_tree.h"

struct rn_context;

/* What the tier knows of the stream in a slot: for a CANCEL that comes before, with or behind its request, and while
 * decode owns the request, its place in the prefix tree and what is to be published of its prompt. */
struct rn_passage {
    uint32_t cancelled; /* generation that a CANCEL or EXPIRE was for: its request ends when it comes here */
    uint32_t ending;    /* which of the two */
    uint32_t passed;    /* generation sent on to prefill, and neither retired nor come back */
    uint32_t place;     /* while it has passed: in tier->inside */
    int32_t priority;   /* likewise */
    uint64_t order;
    uint32_t n_wanted;              /* GROW: blocks that it waits for */
    bool preempting;                /* PREEMPT was sent */
    bool promoted;                  /* a promotion was begun for its admission */
    struct rn_promotion *promotion; /* that one, while it is under way */
    uint32_t n_from[RN_TIERS];      /* blocks that it has brought up */
    uint32_t n_timed;               /* positions known to be computed, and when that was told: for tier_cost.h */
    uint64_t timed_us;
    bool timed; /* it has been told of before: what lies between was spent computing */
    struct rn_prefix_path path;
    int32_t *prompt;   /* [n_blocks * block_tokens + n_tail]; NULL: nothing is published before the request retires */
    uint32_t *blocks;  /* [n_blocks], and one more if there is a tail */
    uint32_t n_blocks; /* whole ones of the prompt */
    uint32_t n_tail;   /* tokens behind them */
    struct rn_prefix_ref tail_at; /* the node before the tail, once its KV is there; see tier_tail.h */
    bool has_tail;                /* it is */
};

#define RN_TAILS 256

struct rn_tier {
    struct rn_actor actor; /* first */
    const struct rn_context *context;
    struct rn_block_pool pool;
    struct rn_prefix_tree tree;
    struct rn_hit_ceiling ceiling;
    struct rn_shelf shelf;
    struct rn_pins pins;
    bool shares; /* false: the tree stays empty */
    bool woke;   /* a wait for another's blocks has ended: look through the waiting again */
    bool full;   /* the first that waits for blocks found none, and none have come back since */
    struct rn_session *sessions;
    struct rn_turns waiting;     /* for blocks, their session, another's blocks or their reader */
    struct rn_passage *passages; /* [max_streams] */
    uint32_t *inside;            /* [n_inside] of [max_streams]: slots whose request has passed */
    uint32_t n_inside, n_wanting, n_preempting;
    uint32_t n_used; /* blocks that a request or a session holds */
    struct {
        bool told;  /* what decode was told last */
        bool asked; /* its answer is on the way */
    } shortage;
    int32_t *tokens;               /* [context_tokens]: of the request that is looked at */
    uint32_t tails[RN_TAILS];      /* slots by the number of the node that tail_at names */
    uint32_t *found;               /* [context_tokens / block_tokens]: blocks that the tree has for it */
    struct rn_snapshot *snapshots; /* still to be taken, oldest first */
    struct rn_session_job *jobs;   /* with the worker */
    uint64_t uses, orders;
    int64_t known_blocks; /* as told to the engine's totals */
};

/* n_places: numbers that the shelf has; see rn_mover_places_for. NO_MEMORY: nothing is held. */
runnel_status rn_tier_init(struct rn_tier *tier, const struct rn_context *context, uint32_t n_places);
void rn_tier_fini(struct rn_tier *tier);

#endif
