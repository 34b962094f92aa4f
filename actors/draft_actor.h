/* The draft actor: makes guesses of the next tokens of many streams with a drafter (drafter.h), one pass of its backend
 * at a time for all of them.
 *
 *   NEWS ─▶ draft streams ─▶ pass: rows of each that is to have one guess more ─▶ backend ─▶ DRAFTED ─▶ guesses ─▶ DRAFTS
 *
 * A draft stream is what the actor knows of one stream:
 *
 *   tokens   | known ................ | guessed ...... |
 *            0                 n_known          n_tokens
 *   KV       | done ...................... |
 *
 * A pass brings a draft stream's rows from the last that is done up to its last token, and draws the next guess from
 * that one's logits: greedily, or, for a stream that samples, with the stream's own parameters and coin of that
 * position. The target will draw with the same coin, so where the two distributions are alike they draw the same
 * token. A known token that is not what was guessed takes the guesses behind it with it; their KV is written again.
 *
 * A concurrent drafter goes on while the target verifies: behind the guesses in the step in flight it guesses the token
 * that the step will add, and then those for the next step; if time is left, or there are likelier things to guess, it
 * begins a second line at a runner-up (draft_branch.h). One that shares the target's threads works only while decode
 * waits for it, but for the prompt: that is computed in small chunks, which pass between the target's steps.
 *
 * Memory: the drafter's KV blocks, taken as a stream grows; one that finds none drafts no more. A draft stream's
 * tokens are taken from the heap when it begins. What a draft model knows of streams that have ended stays for who
 * goes on from there, and how much of a long past is read is a matter of price: draft_cache.h. */
#ifndef RN_ACTORS_DRAFT_ACTOR_H
#define RN_ACTORS_DRAFT_ACTOR_H

#include "actors/draft_branch.h"
#include "actors/draft_cache.h"
#include "actors/drafter.h"
#include "actors/telemetry.h"
#include "actors/runtime/runtime.h"
#include "cache/block_pool.h"
#include "sampling/sampler.h"

struct rn_context;

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

/* Draft streams of a FEATURES drafter: the row of token i wants the target's features of position i - 1; in a deeper layer what
 * the layer before gave in its row of token i - 1. With features of positions before e there are so true rows of layer
 * l for tokens up to e + l, guessed ones among them:
 *
 *     token     e-1    e     e+1   e+2   e+3          e: the last that is known; the others are guesses, that of
 *     layer 0    *  ─▶ *                              e + 1 from layer 0's row e, that of e + 2 from layer 1's row e + 1 ...
 *     layer 1          * ──▶ *
 *     layer 2                * ──▶ *     (own)        behind the last layer's: its own row before is its input
 *
 * A pass is one layer's. Rows of a deeper layer stay when guesses come true. The target tells only of what it computes
 * while the stream drafts: not of a cached prefix, nor of a long prompt's beginning. So such a draft stream's rows
 * begin behind the first position that it was told of (shift); angles of positions are relative, and the draft stream
 * just knows less of the past. If it falls so far behind that features were overwritten it begins anew. Rows of
 * guesses that came true are computed again, from the target's features. */
#define RN_DRAFT_STREAM_FEATURES 640u

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

runnel_status rn_draft_actor_init(struct rn_draft_actor *draft, const struct rn_context *context);
void rn_draft_actor_fini(struct rn_draft_actor *draft);

/* draft_pass.c: begins the next pass, if none is in flight and there is something to compute. */
void rn_draft_begin_pass(struct rn_draft_actor *draft);

/* draft_pass.c: the pass is back: guesses are drawn, draft streams that have ended let go. */
void rn_draft_end_pass(struct rn_draft_actor *draft);

/* draft_pass.c: has the draft stream what its stream wants, or can it get no more? */
bool rn_draft_has_enough(const struct rn_draft_actor *draft, const struct rn_draft_stream *draft_stream);

/* draft_pass.c: draws the draft stream's guess for token index i. False: these logits have none, and the draft stream
 * is off now. */
bool rn_draft_guess(struct rn_draft_actor *draft, struct rn_draft_stream *draft_stream, uint32_t i, const float *logits,
                    int32_t *token, struct rn_runner_up *second);

/* Has the draft stream rows in the pass in flight, of its line or its branch? */
bool rn_draft_in_pass(const struct rn_draft_stream *draft_stream);

/* draft_pass.c: the draft stream's blocks and memory are free again; it is in no pass. */
void rn_draft_free_stream(struct rn_draft_actor *draft, struct rn_draft_stream *draft_stream);

/* draft_pass.c: is the draft stream near enough to the end of what it knows to guess? Sets its state. */
void rn_draft_look_at(struct rn_draft_stream *draft_stream);

/* draft_pass.c: another step of the target: a drafter that was too slow may be so no longer. */
void rn_draft_look_at_time(struct rn_draft_actor *draft);

/* draft_pass.c: no guesses any more for this stream. */
void rn_draft_switch_off(struct rn_draft_actor *draft, struct rn_draft_stream *draft_stream);

/* draft_features.c, of FEATURES drafters. new: memory; false on refusal. learn: the target's features of n positions.
 * All indices are of the draft stream. */
bool rn_draft_stream_features_new(const struct rn_draft_actor *draft, struct rn_draft_stream *draft_stream);
void rn_draft_stream_features_free(const struct rn_draft_actor *draft, struct rn_draft_stream *draft_stream);
void rn_draft_stream_learn_features(const struct rn_draft_actor *draft, struct rn_draft_stream *draft_stream,
                                    uint32_t at, uint32_t n, const float *features);

/* draft_features.c, of any drafter: nothing is computed or told; nothing from token x on. */
void rn_draft_stream_reset(struct rn_draft_stream *draft_stream);
void rn_draft_stream_forget(struct rn_draft_stream *draft_stream, uint32_t x);

/* draft_features.c, of any drafter: the layer that guesses the next token; tokens whose rows of a layer are not
 * computed; how many of those, from the first and up to `most`, a pass can compute now. */
uint32_t rn_draft_stream_next_layer(const struct rn_draft_actor *draft, const struct rn_draft_stream *draft_stream);
uint32_t rn_draft_stream_pending(const struct rn_draft_stream *draft_stream, uint32_t layer);
uint32_t rn_draft_stream_rows(const struct rn_draft_actor *draft, const struct rn_draft_stream *draft_stream,
                              uint32_t layer, uint32_t most);

/* Likewise, of those up to the last token; where all are computed and its guess was not taken, that one's once more. 0:
 * the target's features are not there. Of a draft stream in no pass. */
uint32_t rn_draft_stream_next_rows(const struct rn_draft_actor *draft, const struct rn_draft_stream *draft_stream,
                                   uint32_t layer);

/* draft_features.c: what a layer's row of token i reads beside it. keep: what the pass's rows [from, end) gave;
 * features of all of them, or, of the last layer, of the last one alone. */
const float *rn_draft_stream_input(const struct rn_draft_actor *draft, const struct rn_draft_stream *draft_stream,
                                   uint32_t layer, uint32_t i);
void rn_draft_stream_keep(const struct rn_draft_actor *draft, struct rn_draft_stream *draft_stream, uint32_t layer,
                          uint32_t from, uint32_t end, const float *features);

/* Every draft stream's counts in order and its blocks enough. For tests. */
bool rn_draft_actor_check(const struct rn_draft_actor *draft);

#endif
