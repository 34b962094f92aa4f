/* The tier actor (cache-tier manager): owns the KV block pool and the sessions. A request is admitted
 * when its session is free and every block that it can ever need is leased to it, so that no sequence
 * waits for a block while it runs and no two wait for each other. Admission is first come, first
 * served; when blocks run short, the blocks of idle sessions are taken back, least recently used
 * first (their tokens stay: the next turn computes them again). */
#ifndef RN_ACTORS_TIER_ACTOR_H
#define RN_ACTORS_TIER_ACTOR_H

#include "actors/request.h"
#include "actors/runtime.h"
#include "cache/block_pool.h"

struct runnel_model;

struct rn_session {
    struct rn_word generation; /* odd: open; see runnel_session_new */
    struct rn_word n_known;    /* tokens so far, for the checks of submit; set before a turn's end is told */
    struct rn_word freeing;    /* = generation once runnel_session_free was called */
    /* Relaxed: published and taken with the generation; one that reads it while the place changes hands gets either. */
    _Atomic(struct runnel_model *) model;
    /* The rest belongs to the tier actor of `model`. */
    struct rn_session *next;   /* the tier's list */
    int32_t *tokens;           /* [n_tokens] */
    uint32_t n_tokens;
    uint32_t n_computed;       /* positions whose KV is in blocks */
    uint32_t *blocks;          /* [n_blocks] */
    uint32_t n_blocks;
    bool busy;
    bool free_wanted;
    uint64_t last_use;
};

/* What the tier knows of the stream in a slot, for a CANCEL that comes before, with or behind its request. */
struct rn_passage {
    uint32_t cancelled; /* generation cancelled while its request was still on the way here */
    uint32_t passed;    /* generation sent on to prefill and not yet retired */
};

struct rn_tier {
    struct rn_actor actor; /* first */
    struct runnel_model *model;
    struct rn_block_pool pool;
    struct rn_session *sessions;
    struct rn_request_queue waiting; /* for blocks or their session, oldest first */
    struct rn_passage *passages;     /* [max_streams] */
    uint64_t uses;
};

runnel_status rn_tier_init(struct rn_tier *tier, struct runnel_model *model);
void rn_tier_fini(struct rn_tier *tier);

#endif
