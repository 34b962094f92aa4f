/* The prefix cache: which prompts' KV is there, who computes what others want too, and what is kept. One of the tier
 * actor's three objects; it belongs to that actor. How a request uses it:
 *
 *   look_up    what it can share, or that it should wait
 *   wait       it waits: `woken` of the blocks is set when it should look again
 *   ref, evict as it is admitted (tier_blocks.h)
 *   prepare    copies what is published while decode owns the request
 *   enter      others see what it is about to compute, and wait for it
 *   publish    COMPUTED: blocks of its prompt, as decode reports them
 *   leave      RETIRE: the rest is published, the answer's blocks too; of a failed request nothing stays
 *
 * A request that wants progress or logits can be stopped by its reader in the middle of its prompt: it publishes, but
 * nobody waits for it. One that wants logits has nothing to do with the tree, since each position's are asked for.
 *
 * With a model that has recurrent states a prompt shares what stands before a checkpoint of the state (state_slots.h),
 * and likewise with one whose layers with windows have blocks of their own (window_marks.h).
 * It leaves two: where other prompts have gone on differently, and at its end; each if there is enough between it and
 * the one before it. Then it waits for another only where that will leave a checkpoint at the end of what they share.
 *
 * It owns the blocks with the prefix tree (tier_blocks.h), tails that are shared in part (tails.h), pins (pins.h),
 * promotions (promotion.h) and slots of recurrent states (state_slots.h). It calls the directory of lower tiers, which
 * it borrows; it calls nobody back. */
#ifndef RN_ACTORS_TIER_PREFIX_CACHE_H
#define RN_ACTORS_TIER_PREFIX_CACHE_H

#include "actors/tier/cached_stream.h"
#include "actors/tier/pins.h"
#include "actors/tier/promotion.h"
#include "actors/tier/state_slots.h"
#include "actors/tier/tails.h"
#include "actors/tier/tier_blocks.h"
#include "cache/hit_ceiling.h"

struct rn_computed;
struct rn_request;
struct rn_session;

/* How a request can begin. */
struct rn_prefix_fit {
    struct rn_prefix_match found;
    const uint32_t *ready; /* [found.n_ready]: the tree's blocks; the cache's memory, until the next look_up or leave */
    uint32_t n_done;       /* positions that need no computing */
    uint32_t n_kept;       /* blocks that it takes over: the first ones of `ready`, or of the session's */
    bool from_tree;
    bool copies;     /* n_done - 1 lies in the block behind those, which is shared: a copy of `source` is written
                        into */
    uint32_t source; /* the session's, which goes with the request; or, from_tree, one of which it needs a
                        reference */
    uint32_t state;  /* of a model with recurrent states: the checkpoint behind n_done; RN_NO_STATE: there is none */
    uint32_t mark;   /* likewise of windows; RN_NO_MARK: there is none */
    uint32_t ends[RN_STATE_TURNS]; /* [n_ends]: where checkpoints are to be made */
    uint32_t n_ends;
    bool pending; /* what comes next is being computed, or comes up from a lower tier: wait for `found` */
};

struct rn_prefix_cache {
    const struct rn_context *context;
    struct rn_directory *directory; /* borrowed */
    struct rn_tier_blocks blocks;
    struct rn_hit_ceiling ceiling;
    struct rn_tails tails;
    struct rn_pins pins;
    struct rn_promotions promotions;
    struct rn_state_slots states;
    struct rn_window_marks marks;
    struct rn_cached_stream *streams; /* [max_streams] */
    uint32_t *found;                  /* [context_tokens / block_tokens]: blocks that the tree has for a prompt */
    bool shares;                      /* false: the tree stays empty */
    int64_t known_blocks;             /* as told to the engine's totals */
};

/* Behind the directory. NO_MEMORY: nothing is held. */
runnel_status rn_prefix_cache_init(struct rn_prefix_cache *cache, const struct rn_context *context,
                                   struct rn_directory *directory);
/* All requests have left. Before the directory, to which the tree speaks for the last time. */
void rn_prefix_cache_fini(struct rn_prefix_cache *cache);

/* False: the tree, the pool, or something above is not whole. Linear in blocks, nodes and streams. */
bool rn_prefix_cache_check(const struct rn_prefix_cache *cache);

/* ---- Admission ---- */

/* Of the prompt tokens[n_prompt]. The session's blocks (NULL: no session) cover its n_computed first tokens. */
void rn_prefix_cache_look_up(struct rn_prefix_cache *cache, const struct rn_request *request,
                             const struct rn_session *session, const int32_t *tokens, uint32_t n_prompt,
                             struct rn_prefix_fit *fit);

/* fit->pending. The request waits until it is told, leaves, or gives up waiting. */
void rn_prefix_cache_wait(struct rn_prefix_cache *cache, const struct rn_request *request,
                          const struct rn_prefix_fit *fit);
bool rn_prefix_cache_waits(const struct rn_prefix_cache *cache, uint32_t slot);

/* False: it does not wait. Else it looks again, and passes by what has not come up. */
bool rn_prefix_cache_give_up_waiting(struct rn_prefix_cache *cache, uint32_t slot);

/* True: lower tiers have what may be worth bringing up, and the request wants to wait for it. */
bool rn_prefix_cache_wants_promotion(const struct rn_prefix_cache *cache, const struct rn_request *request,
                                     const struct rn_prefix_fit *fit);

/* Its turn has come, and room for it was made: begins to bring up what lower tiers have of the prompt. fit->ready is
 * referenced. */
void rn_prefix_cache_promote(struct rn_prefix_cache *cache, const struct rn_request *request, const int32_t *tokens,
                             const struct rn_prefix_fit *fit);

/* The request has come and will wait a while: as above, with blocks that can be had without asking anybody. */
void rn_prefix_cache_prefetch(struct rn_prefix_cache *cache, const struct rn_request *request);

/* Of a model with recurrent states: slots for one that begins as `fit` says, until it leaves or they are dropped; true
 * at once of other models. False: there are none; those that run have them all. */
bool rn_prefix_cache_take_state(struct rn_prefix_cache *cache, struct rn_request *request,
                                const struct rn_prefix_fit *fit);
void rn_prefix_cache_drop_state(struct rn_prefix_cache *cache, const struct rn_request *request);

/* Of a model whose layers with windows have blocks of their own: makes room for those of a request of up to `limit`
 * positions that begins as `fit` says, where that is short for fewer checkpoints (fit->ends); true at once of other
 * models. Then they are its table's, which has room. */
bool rn_prefix_cache_has_windows(struct rn_prefix_cache *cache, struct rn_prefix_fit *fit, uint32_t limit);
void rn_prefix_cache_begin_windows(struct rn_prefix_cache *cache, struct rn_request *request,
                                   const struct rn_prefix_fit *fit, uint32_t limit);

/* Tokens, blocks, n_prompt and n_done of the request are set. NO_MEMORY: nothing is held. */
runnel_status rn_prefix_cache_prepare(struct rn_prefix_cache *cache, const struct rn_request *request);

/* It is admitted, and goes to decode. */
void rn_prefix_cache_enter(struct rn_prefix_cache *cache, struct rn_request *request, const struct rn_prefix_fit *fit);

/* What of the n_cached positions came from lower tiers for it: sets n_lower. Some may have been evicted again since. */
void rn_prefix_cache_count_lower(const struct rn_prefix_cache *cache, struct rn_request *request);

/* Lets go of the oldest pinned prefix; false: there is none. */
bool rn_prefix_cache_drop_pin(struct rn_prefix_cache *cache);

/* ---- While it runs, and afterwards ---- */

/* The stream runs. */
void rn_prefix_cache_publish(struct rn_prefix_cache *cache, const struct rn_computed *computed);

/* The tier owns the request again; it holds no block but those of its table. Where the tree had a block of the same
 * content first, the request's table has the tree's now. Harmless when it has not entered; also ends a wait. */
void rn_prefix_cache_leave(struct rn_prefix_cache *cache, struct rn_request *request);

/* A move up has come back; see rn_directory_arrived for n_others. rn_directory_moved is next, and then what more is to
 * come up is asked for. */
void rn_prefix_cache_arrived(struct rn_prefix_cache *cache, const struct rn_move *move, uint32_t n_others);
void rn_prefix_cache_send_promotions(struct rn_prefix_cache *cache);

#endif
