/* What the tier does with its prefix tree, for tier_actor.c alone. How a request uses it:
 *
 *   look_up    what it can share, or that it should wait
 *   ref, evict as it is admitted
 *   prepare    copies what is published while decode owns the request
 *   enter      others see what it is about to compute, and wait for it
 *   publish    COMPUTED: blocks of its prompt, as decode reports them
 *   leave      RETIRE: the rest is published, the answer's blocks too; of a failed request nothing stays
 *
 * A request that wants progress or logits can be stopped by its reader in the middle of its prompt: it publishes, but
 * nobody waits for it. One that wants logits has nothing to do with the tree, since each position's are asked for. */
#ifndef RN_ACTORS_TIER_CACHE_H
#define RN_ACTORS_TIER_CACHE_H

#include "actors/tier_actor.h"

struct rn_computed;

/* How a request can begin. */
struct rn_fit {
    struct rn_prefix_match found;
    uint32_t n_done; /* positions that need no computing */
    uint32_t n_kept; /* blocks that it takes over: the tree's, tier->found, or the session's first ones */
    bool from_tree;
    bool copies;     /* n_done - 1 lies in the block behind those, which is shared: a copy of `source` is written
                        into */
    uint32_t source; /* the session's, which goes with the request; or, from_tree, one of which it needs a
                        reference */
    bool pending;    /* what comes next is being computed, or comes up from a lower tier: wait for `found` */
};

/* NO_MEMORY: nothing is held. The pool is there. */
runnel_status rn_tier_cache_init(struct rn_tier *tier);
void rn_tier_cache_fini(struct rn_tier *tier);

/* Of the prompt tier->tokens[n_prompt]. The session's blocks (NULL: no session) cover its n_computed first tokens. */
void rn_tier_look_up(struct rn_tier *tier, const struct rn_request *request, const struct rn_session *session,
                     uint32_t n_prompt, struct rn_fit *fit);

/* References to blocks of the tree, and all blocks' way back. Both keep the count of blocks used. */
void rn_tier_ref(struct rn_tier *tier, const uint32_t *blocks, uint32_t n);
void rn_tier_take_back(struct rn_tier *tier, const uint32_t *blocks, uint32_t n);

/* The reference that the mover had for reading. */
void rn_tier_end_loan(struct rn_tier *tier, uint32_t block);

/* So many blocks more, or less, are held by requests and sessions. */
void rn_tier_count_used(struct rn_tier *tier, int64_t n);

/* Frees up to n blocks that only the tree holds; how many. */
uint32_t rn_tier_evict(struct rn_tier *tier, uint32_t n);

/* Tokens, blocks, n_prompt and n_done of the request are set. NO_MEMORY: nothing is held. */
runnel_status rn_tier_prepare(struct rn_tier *tier, const struct rn_request *request);

/* It is admitted, and goes to decode. */
void rn_tier_enter(struct rn_tier *tier, struct rn_request *request, const struct rn_fit *fit);

void rn_tier_publish(struct rn_tier *tier, const struct rn_computed *computed);

/* The tier owns the request again; it holds no block but those of its table. Where the tree had a block of the same
 * content first, the request's table has the tree's now. Harmless when it has not entered; also ends a wait. */
void rn_tier_leave(struct rn_tier *tier, struct rn_request *request);

#endif
