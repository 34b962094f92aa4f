/* What the draft actor knows: of each stream that drafts, of streams that have ended, and of the pass in flight. The
 * picture of a draft stream is in draft_actor.h, that of a branch in draft/branch.h, that of a past in draft/cache.h.
 * Inside the draft actor. */
#ifndef RN_ACTORS_DRAFT_STATE_H
#define RN_ACTORS_DRAFT_STATE_H

#include <stddef.h>

#include "actors/draft/drafter.h"
#include "actors/runtime/runtime.h"
#include "actors/telemetry/telemetry.h"
#include "cache/block_pool.h"
#include "model/stop.h"
#include "sampling/sampler.h"

struct rn_context;

struct rn_branch {
    uint32_t at;       /* its first token's index, at which the line has another one; 0: there is no branch */
    uint32_t n_tokens; /* tokens [at, n_tokens) are its own; those before the line's */
    int32_t tokens[RN_GUESS_MOST];
    struct rn_runner_up seconds[RN_GUESS_MOST]; /* likewise */
    float chance;          /* that guesses behind its first token are of use, as it was when it began */
    bool leaf;             /* that token is a row of the step in flight */
    uint32_t n_done, from; /* as the draft stream's */
    uint32_t *blocks;      /* [n_blocks] of [max_blocks], the first n_shared of which are the line's; NULL: this
                              drafter has no branches */
    uint32_t n_shared, n_blocks;
    bool in_pass; /* its rows are in the pass; then the line's are not */
};

struct rn_draft_stream {
    uint32_t slot, generation; /* of the stream; generation 0: free */
    uint32_t base;             /* of the sequence, where the draft stream's positions begin */
    uint32_t capacity;
    int32_t *tokens; /* [capacity] */
    uint32_t n_known, n_tokens;
    struct rn_runner_up seconds[RN_GUESS_MOST]; /* the runner-up of the guess of index i at i % RN_GUESS_MOST */
    uint32_t n_valid; /* while in_pass: tokens before this one are what they were when the pass began */
    uint32_t from;    /* while in_pass: the token of its first row */
    uint32_t *blocks; /* [n_blocks] of [max_blocks] */
    uint32_t n_blocks, max_blocks;
    struct rn_branch branch;
    runnel_sampling sampling;
    struct rn_odds odds;             /* as told */
    uint32_t n_flying, leaves, want; /* likewise */
    bool flying, waits;
    uint64_t salt; /* shares what it has computed with draft streams of the same alone */
    bool more;     /* as told: the rest of its past comes with the next news */
    float may_read_us,
        read_us;     /* likewise, what may be spent on reading; what was, and the verifier does not know of yet */
    uint32_t n_past; /* while in_pass: rows of its past that are read there */
    bool looked, caught_up; /* what is there of its past was taken over; all of it has been computed once */
    bool in_pass, ended;    /* its line has rows in the pass */
    bool changed;           /* the verifier does not know all of it */
    struct rn_draft_stream_layer {
        uint32_t n_done;         /* tokens whose rows are computed, those of the pass in flight included */
        uint32_t shift;          /* rows begin with this token: that of index i lies at position i - shift. See below */
        uint32_t f_first, f_end; /* inputs of rows (f_first, f_end] are there ... */
        float *features;         /* ... as a ring of RN_DRAFT_STREAM_FEATURES rows: that of row p + 1 at p */
    } layers[RN_DRAFT_LAYERS];   /* of the drafter; all but FEATURES have one */
    float *own;                  /* [n_features]: what the last layer's row of token own_at gave; 0: none */
    uint32_t own_at;
    enum rn_drafts_state state;
};

/* See draft/features.h. */
#define RN_DRAFT_STREAM_FEATURES 640u
static_assert(RN_DRAFT_STREAM_FEATURES > RN_DRAFT_MAX_LAG + RN_GUESS_MOST, "one that lags and guesses loses none");

/* Streams that have ended are remembered, at most; then the one that was of use longest ago goes. */
#define RN_DRAFT_CACHES 64u

struct rn_draft_cache {
    uint64_t salt, used; /* used: when it last was, by a clock of the actor's */
    uint32_t base;       /* of its stream, where it begins */
    uint32_t n_tokens;   /* whole blocks of them; 0: the place is free */
    uint32_t n_blocks;
    int32_t *tokens;  /* [n_tokens] */
    uint32_t *blocks; /* [n_blocks], with a reference to each */
};

struct rn_draft_actor {
    struct rn_actor actor; /* first */
    const struct rn_context *context;
    struct rn_drafter *drafter; /* the model's; NULL: it has none */
    struct rn_block_pool pool;
    struct rn_draft_stream
        *draft_streams; /* [n draft streams]: twice as many as draft at once, since one that has ended waits for its
                              pass */
    uint32_t n_draft_streams, cursor;
    struct rn_draft_cache pasts[RN_DRAFT_CACHES];
    uint64_t clock; /* of their use */
    struct rn_sampler_scratch *scratch;
    struct rn_step pass;
    struct rn_draft_stream **draft_stream_of; /* [max_seqs]: of the pass's sequences */
    uint32_t layer;                           /* of the pass */
    uint32_t *feature_rows; /* [max_rows]: of the last layer the last row of each draft stream, else all rows */
    float *inputs;          /* [max_rows, n_features] */
    struct rn_msg *msg;     /* becomes DRAFTED */
    struct rn_stop stop;    /* of the pass: set once nobody wants what it computes */
    bool in_flight, failed;
    bool guesses;               /* the pass in flight is one of guesses alone: its time is what a guess costs */
    struct rn_pass_times times; /* of the pass */
    uint32_t guess_us;          /* smoothed: of a pass of guesses; 0: not known */
    float row_us;               /* likewise: what a row of a prompt takes more */
    uint32_t target_us;         /* as told; 0: not known */
    uint32_t n_idle;            /* steps of the target since the drafter was too slow */
    uint32_t serial, answered;  /* of waits: the last asked, the last answered */
    uint64_t wait_until_us;
    uint64_t ends_us; /* as told: of the target's step in flight; 0: none */
    bool has_time;    /* for a pass that ends before that step: as it is while one is composed */
    struct rn_drafts_list lists[RN_DRAFTS_LISTS];
    struct rn_drafts_list *free_lists;
    struct rn_msg *last_news; /* with the closing list: goes back when nothing is in flight */
    bool said_last;           /* the verifier has its last word */
};
static_assert(offsetof(struct rn_draft_actor, actor) == 0, "handlers get the actor");

#endif
