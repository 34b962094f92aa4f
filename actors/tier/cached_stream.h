/* What the prefix cache knows of the stream in a slot: its path in the prefix tree, and what is to be published of its
 * prompt while decode owns the request. The prefix cache's (prefix_cache.h). */
#ifndef RN_ACTORS_TIER_CACHED_STREAM_H
#define RN_ACTORS_TIER_CACHED_STREAM_H

#include "actors/tier/state_slots.h"
#include "actors/tier/window_marks.h"
#include "cache/prefix_tree.h"
#include "cache/store/tier.h"

struct rn_promotion;

struct rn_cached_stream {
    struct rn_prefix_path path;
    bool promoted;                  /* a promotion was begun for its admission */
    struct rn_promotion *promotion; /* that one, while it is under way */
    uint32_t n_from[RN_TIERS];      /* blocks that it has brought up */
    uint32_t n_timed;               /* positions known to be computed, and when that was told: for cost.h */
    uint64_t timed_us;
    bool timed;        /* it has been told of before: what lies between was spent computing */
    int32_t *prompt;   /* [n_blocks * block_tokens + n_tail]; NULL: nothing is published before the request retires */
    uint32_t *blocks;  /* [n_blocks], and one more if there is a tail */
    uint32_t n_blocks; /* whole ones of the prompt */
    uint32_t n_tail;   /* tokens behind them */
    struct rn_prefix_ref tail_at;   /* the node before the tail, once its KV is there; see tails.h */
    bool has_tail;                  /* it is */
    struct rn_state_lease state;    /* of a model with recurrent states */
    struct rn_window_lease windows; /* of one whose layers with windows have blocks of their own */
};

#endif
