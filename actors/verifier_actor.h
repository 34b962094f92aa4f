/* The verifier: owns the policy of speculation. A step with streams that draft comes to it from the sampler: it walks
 * each stream's chain and tree, learns from what was accepted, and sends the batch on to decode with a proposal for the
 * next step. One without such streams passes it by.
 *
 *   backend ─▶ sampler ──────────────── no stream drafts ───────────────▶ decode
 *                 └── VERIFY ─▶ verifier ── SAMPLED, with proposals ──────▶ ┘
 *                                │    ▲
 *                           NEWS ▼    │ DRAFTS
 *                               draft actor
 *
 * Of each stream (rn_verifier_stream) it keeps the tokens, who proposes (sampling/proposer.h), a record of acceptance
 * and budget for each source of drafts (sampling/speculate.h), and what the draft actor was told and has guessed.
 * Requests pass through it on their way to decode and at their end, so that a stream begins and ends with the request
 * in hand. When one is preempted (HALT), its stream stays, and goes on when the request comes again.
 *
 * Guesses are compared with the tokens that have come since:
 *
 *   the line's:      first │ g g g g g g
 *   the sequence's:  ..... │ t t            equal: the four behind them may be its drafts
 *
 * A step is held back only as a whole: while it runs others' guesses are made anyway, so that one that sat out a step
 * that the others take would lose more than it waits for. It is held back where that gives all of its streams together
 * more tokens per time (sampling/wait.h), those that draft nothing included, never while prompts wait, and at most
 * once: then it goes with what there is. The batch goes back to decode at once, and says that it holds; PROPOSALS end
 * that. Waiting is paid from the budget of drafts, so that what a drafter costs in vain is bounded whatever it is.
 *
 * Whatever is proposed, decode draws the same text. */
#ifndef RN_ACTORS_VERIFIER_ACTOR_H
#define RN_ACTORS_VERIFIER_ACTOR_H

#include <stdbool.h>

#include "actors/draft/share.h"
#include "actors/draft/drafter.h"
#include "actors/draft/proposal.h"
#include "actors/request.h"
#include "actors/runtime/runtime.h"
#include "sampling/wait.h"

struct rn_batch;
struct rn_context;

/* One stream, at its slot. */
struct rn_verifier_stream {
    uint32_t generation; /* of the stream that has it; 0: none */
    bool here;           /* its request is with decode */

    /* The sequence. */
    int32_t *tokens; /* [n_limit]; of them n_tokens are known */
    uint32_t n_tokens, n_limit;
    uint32_t n_fill, n_done;
    uint32_t n_behind; /* rows that its next step computes again (decode/states.h) */

    /* What was asked for. */
    uint32_t draft_max;
    bool draft_model, draft_chain;
    uint64_t salt;
    runnel_sampling sampling; /* without biases and penalties */

    /* Drafts from the text itself. */
    struct rn_proposer *proposer;            /* NULL: none */
    uint32_t place;                          /* of draft/share.h, counted from 1; 0: none */
    struct rn_speculation own;               /* the record of the proposer ... */
    struct rn_speculation model;             /* ... and that of the drafter */
    uint64_t rested[RUNNEL_REST_BROKEN + 1]; /* passes without drafts, by reason */

    /* Drafts of text of which a grammar leaves no choice. */
    struct rn_speculation by_grammar; /* the record of their spelling */
    bool guided;                      /* it has one */
    uint32_t n_forced;
    int32_t forced[RN_PATH_MOST];

    /* The draft actor. */
    enum rn_drafts_state state;
    bool begun;      /* it has been told of the stream, or will be */
    uint32_t listed; /* while begun: where it stands in the verifier's list */
    bool changed;    /* it is to be told */
    bool ending;     /* the end is to be told, of ... */
    uint32_t ended;  /* ... this generation */
    bool told;       /* it knows of the stream ... */
    uint32_t n_told; /* ... and so many of its tokens */
    float free_us;   /* reading its past may take so long for nothing; what it takes more is paid for ... */
    float read_us;   /* ... with the next step: this is still to be paid */
    uint32_t want, n_flying, leaves;
    bool flying, waits;
    bool waited; /* for the next step */
    uint32_t features_at, n_positions,
        features;         /* to be told: positions; the first one's row of those of the list ... */
    uint32_t leaf_offset; /* ... and not 0: the last one's is so many behind it */
    struct rn_guess_line lines[RN_GUESS_LINES];
};

/* A stream of the step that was verified, which goes on: the next step has it. */
struct rn_verified {
    uint32_t slot, generation;
    bool prompt; /* more of its prompt is to come */
};

struct rn_verifier {
    struct rn_actor actor; /* first */
    const struct rn_context *context;
    struct rn_step_cost cost;           /* as of the last step that was verified */
    struct rn_verifier_stream *streams; /* [max_streams], by slot */
    struct rn_draft_share share;

    /* The next step. */
    struct rn_verified *next; /* [n_next] of [max_seqs] */
    uint32_t n_next, n_running, n_prompts, n_prompt_rows;
    uint32_t n_behind;          /* rows that it computes again */
    uint32_t n_drafts, n_spare; /* while it is chosen: drafts so far, and for which there is room */
    struct rn_proposal_list proposals;
    bool proposals_away; /* decode has the list */

    /* The drafter. */
    struct rn_drafter *drafter; /* the model's; NULL: it has none, and what follows is unused */
    uint32_t *begun;            /* [n_begun] slots, at most as many as can draft at once */
    uint32_t n_begun;
    uint32_t *endings; /* [n_endings] slots */
    uint32_t n_endings;
    struct rn_wait_stream *wait_streams; /* [max_seqs] */
    struct rn_news_list lists[RN_NEWS_LISTS];
    struct rn_news_list *free_lists;
    struct rn_news_list *full; /* with the features of the last step; told next */
    struct rn_msg *postponed;  /* VERIFY, until a list is free for the features of the next step */
    uint32_t pass_us;          /* a guess more; 0: not known */
    uint32_t serial, answered; /* of waits */
    uint32_t max_wait_us;
    uint64_t asked_us;          /* when the last wait began ... */
    uint32_t passes;            /* ... for so many ... */
    uint32_t n_rows, n_waiting; /* ... for a step of so many rows and streams that wait ... */
    bool unpaid;                /* ... which have not paid for it */
    bool holds;                 /* decode holds its step back */
    float affordable;           /* tokens that those that could wait have */
    float reserve;              /* of all streams that draft with it: see rn_speculation_use_reserve */
    uint64_t ends_us;           /* of the next step: when it should end; 0: not known */
    bool must_tell;             /* the serial is still to be told */
    bool failed, closing, closed;
    struct rn_msg *close; /* CLOSE, until the draft actor is quiet */
};

runnel_status rn_verifier_init(struct rn_verifier *verifier, const struct rn_context *context);
void rn_verifier_fini(struct rn_verifier *verifier);

/* Before the first message: the list into which decode's first step writes features; NULL: there is no drafter. */
struct rn_news_list *rn_verifier_first_list(struct rn_verifier *verifier);

/* The drafter is a head, which reads features. */
bool rn_verifier_reads_features(const struct rn_verifier *verifier);

/* verify/choose.c: drafts of each stream of the next step, in the order of its rows; who has paid for a wait is to
 * take what came of it. list: empty. */
void rn_verifier_choose(struct rn_verifier *verifier, struct rn_proposal_list *list);

/* verify/news.c: the drafter's side of a stream begins, if one more can draft, or ends. */
void rn_verifier_begin_drafts(struct rn_verifier *verifier, uint32_t slot);
void rn_verifier_end_drafts(struct rn_verifier *verifier, uint32_t slot);

/* verify/news.c: tells the draft actor what there is to tell, if a list is free. */
void rn_verifier_tell(struct rn_verifier *verifier);

/* verify/news.c: what reading the rest of the stream's past has cost is paid. */
void rn_verifier_pay_reading(const struct rn_verifier *verifier, struct rn_verifier_stream *stream);

/* verify/news.c: true when no list is under way any more; else it will be. */
bool rn_verifier_close_news(struct rn_verifier *verifier);

/* verify/news.c: lists of news. */
runnel_status rn_verifier_new_lists(struct rn_verifier *verifier);
void rn_verifier_free_lists(struct rn_verifier *verifier);

/* verify/wait.c: is the next step to be held back? Then the draft actor is asked with the next news. Once for each
 * step. */
bool rn_verifier_holds(struct rn_verifier *verifier);

/* verify/wait.c: why no stream waits for guesses. A right one saves a step, so a drafter whose pass takes as long is
 * SLOW; else they were WRONG. */
runnel_rest rn_verifier_wait_reason(const struct rn_verifier *verifier);

/* verify/wait.c: those that have waited share what it has cost. */
void rn_verifier_pay_wait(struct rn_verifier *verifier);

/* Guesses of the next tokens that are there now, and the runner-up of each; n 0: none. They are the stream's. */
struct rn_guesses {
    uint32_t n;
    const int32_t *tokens;
    const struct rn_runner_up *seconds;
};
struct rn_guesses rn_verifier_guesses(const struct rn_verifier_stream *stream);

/* Drafts that the stream could take into the next step, as far as there is room. */
uint32_t rn_verifier_room(const struct rn_verifier *verifier, const struct rn_verifier_stream *stream);

/* What is known of a stream of the next step; NULL: it has gone meanwhile. */
struct rn_verifier_stream *rn_verifier_stream_of(const struct rn_verifier *verifier,
                                                 const struct rn_verified *verified);

/* Streams and lists are in order. For tests. */
bool rn_verifier_check(const struct rn_verifier *verifier);

#endif
