/* A drafter: what is loaded beside a model to guess its next tokens, and what the verifier and the draft actor tell
 * each other about it.
 *
 *   verifier ── NEWS: of each drafting stream the new tokens (and features), what is wanted, or its end ──▶ draft
 *   verifier ◀── DRAFTS: of each of them the guesses that follow the tokens it knew ────────────────────── draft
 *
 * One message of each kind for a step, not for a stream; both lists go round (NEWS_BACK, DRAFTS_BACK) and hold values
 * alone, so that neither actor ever looks into the other's memory (law 2).
 *
 *   tokens of a stream:   t0 t1 ... tn-1 | g g g g g g g
 *                         known: told    | guessed: of these the first k are proposed to decode
 *
 * Guesses say behind which token they stand (`first`); there may be two lines of them, which begin alike. The verifier
 * may know more tokens by then: it compares those that were guessed with those that came, and what is behind them are
 * its drafts, or there are none. So nothing has to be in step with anything: late guesses are used as far as they are
 * right, and a wrong or lost one costs time only.
 *
 * With each guess goes its runner-up, what the drafter would have guessed second: the guesses are the trunk of a tree,
 * and the runners-up its leaves, one at each place at most. Which of them become rows is the verifier's to say.
 *
 *   last ── g ── g ── g            leaves are told by place: there is no tree that is none
 *      └ s    └ s
 *
 * Two kinds. TOKENS, a draft model: its rows read tokens and the KV that it made itself; so does the target's own
 * beginning (early exit). FEATURES, a head or the model's own prediction layer (model/heads/head.h): its row of a token
 * reads that token and the target's features of the position before, or, where the target has not been there, what the
 * row before it gave. Features of the positions that a step has computed travel with the first NEWS behind it: the step
 * writes them into the list's memory, one for each row, those of wrong guesses among them. The rows that were right
 * stand first, one behind the other, but for a leaf. Of a prompt only those of the last positions are asked for.
 *
 * Who owns what: the model's parts own the drafter; the draft actor alone uses its backend from the model's start to
 * its end. Lists are the verifier's (news) or the draft actor's (drafts), and lent to the other between a message and
 * its BACK. */
#ifndef RN_ACTORS_DRAFT_DRAFTER_H
#define RN_ACTORS_DRAFT_DRAFTER_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#include "model/backend.h"
#include "runnel.h"
#include "sampling/odds.h"
#include "sampling/sampler.h"

/* Prediction layers that are used; of files with more, the first ones. Known files have one or three. */
#define RN_DRAFT_LAYERS 4u

enum rn_drafter_kind {
    RN_DRAFTER_NONE = 0,
    RN_DRAFTER_TOKENS,  /* a model with the target's vocabulary */
    RN_DRAFTER_FEATURES /* a head on the target's features */
};

struct rn_drafter {
    enum rn_drafter_kind kind;
    bool concurrent;            /* its steps run on units of their own beside the target's: it guesses ahead while the
                                   target verifies. false: they take turns on the same threads */
    struct rn_gguf *gguf;       /* NULL: without a file */
    struct rn_plan *plan;       /* NULL for a backend that needs none */
    struct rn_backend *backend; /* its KV blocks are its own */
    uint32_t n_layers;          /* of FEATURES: prediction layers, one behind the other (model/heads/head.h); else 1 */
    struct rn_drafter_layer {
        struct rn_plan *plan;
        struct rn_backend *backend;  /* blocks have the same numbers for all of them */
    } deeper[RN_DRAFT_LAYERS - 1];   /* [n_layers - 1]: those behind the first, which is the two above */
    struct rn_backend_limits limits; /* max_seqs: streams that can draft at once */
    struct rn_device *device;        /* of its own; NULL: the model's */
    uint32_t pass_us;    /* of one row, measured when it was loaded; 0: not known, and it is never waited for */
    float row_us;        /* of TOKENS: what a row more of a past takes, likewise */
    uint32_t n_features; /* FEATURES: width of what the target gives for a position; else 0 */
};

/* Guesses of a stream: those in the step in flight, the token behind them, and those for the next step. */
#define RN_GUESS_MOST (2u * RUNNEL_MAX_DRAFTS + 1u)
static_assert(RN_GUESS_MOST > RUNNEL_MAX_DRAFTS + 1u, "there are guesses behind what is in flight");

/* Lists of each kind under way. */
#define RN_NEWS_LISTS 3 /* with features: one whose step is in flight, one that is told, one that asks */
#define RN_DRAFTS_LISTS 2

/* Rows that one pass may make up for a draft stream and still be one of guesses: more than drafts are. */
#define RN_DRAFT_MAX_LAG 40u

/* News of one stream. */
struct rn_news {
    uint32_t slot, generation;
    bool ended;               /* it needs no drafts any more; nothing else counts */
    bool waits;               /* decode holds its step back for these drafts */
    bool begins;              /* what was told of another stream in this slot counts no longer */
    bool more;                /* the list was full: more tokens come with the next */
    uint64_t salt;            /* cache_salt; where it begins only */
    float read_us;            /* so long may be spent on what is still to be read of its past */
    uint32_t n_limit;         /* the sequence gets no longer; where it begins only */
    uint32_t first, n_tokens; /* tokens [first, first + n_tokens) of the sequence */
    const int32_t *tokens;    /* [n_tokens]; the list's */
    uint32_t features_at,
        n_positions;          /* FEATURES: the target's of positions [features_at, features_at + n_positions) ... */
    const float *features;    /* ... [n_positions] rows of the step, of which the first
                                 n_features of row_features (context.h) are for it; the list's */
    uint32_t leaf_offset;     /* not 0: the last position's is the row so many behind the first one: a leaf's */
    uint32_t n_flying;        /* of the guesses behind these tokens, those in the step in flight ... */
    uint32_t leaves;          /* ... and bit i: the runner-up of guess i is a row of it too ... */
    bool flying;              /* ... if it is in one */
    uint32_t want;            /* guesses wanted for the next step; 0: none for now */
    struct rn_odds odds;      /* what its guesses have come to so far */
    runnel_sampling sampling; /* without biases and penalties; where it begins only */
};

struct rn_news_list {
    struct rn_news_list *next; /* the verifier's free ones */
    uint32_t n, capacity;
    struct rn_news *items; /* [capacity] */
    uint32_t n_tokens, token_capacity;
    int32_t *tokens;      /* [token_capacity] */
    float *features;      /* [rows of a step, row_features] of a FEATURES drafter, else NULL */
    uint32_t step_us;     /* what a step of the target takes now; 0: not known */
    uint64_t ends_us;     /* when the step in flight should end, by the engine's clock; 0: none is, or not known */
    uint32_t serial;      /* not 0: some of it wait; a DRAFTS that answers this number ends the wait ... */
    uint32_t max_wait_us; /* ... after so long with what there is by then */
    bool closing;         /* the last one: it comes back when no step of the drafter is in flight */
};

enum rn_drafts_state {
    RN_DRAFTS_BEHIND = 0, /* it is still to compute the stream's past: no guesses, and not soon */
    RN_DRAFTS_READY,
    RN_DRAFTS_OFF /* none for this stream any more: no room, or the backend has failed */
};

/* Guesses in a row. */
struct rn_guess_line {
    uint32_t first, n; /* they are tokens [first, first + n) of the sequence */
    int32_t guesses[RN_GUESS_MOST];
    struct rn_runner_up seconds[RN_GUESS_MOST]; /* the runner-up of each */
};

/* Guesses of one stream: the likeliest, and what else may come (branch.h; n is 0 where there is none). */
#define RN_GUESS_LINES 2
struct rn_drafts {
    uint32_t slot, generation;
    enum rn_drafts_state state;
    float read_us; /* what was spent on reading its past since this was last told */
    struct rn_guess_line lines[RN_GUESS_LINES];
};

struct rn_drafts_list {
    struct rn_drafts_list *next; /* the draft actor's free ones */
    uint32_t n;
    struct rn_drafts *items; /* [max_seqs] */
    uint32_t step_us;        /* what one guess more of each stream takes, smoothed; 0: not known */
    uint32_t answers;        /* the last serial whose streams have what they wait for, or will not get it */
    bool failed;             /* the backend is broken: no stream drafts any more */
};

#endif
