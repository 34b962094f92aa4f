/* Decode's side of drafting with a model or a head: what the draft actor is told, what it guessed, and whether a step
 * is held back for guesses. See drafter.h for the two lists.
 *
 * A lane is what decode knows of one stream's drafting. Guesses are compared with the tokens that have come since:
 *
 *   the lane's:      first │ g g g g g g
 *   the request's:   ..... │ t t            equal: the four behind them are its drafts
 *
 * A step is held back only as a whole: while it runs others' guesses are made anyway, so that one that sat out a step
 * that the others take would lose more than it waits for. It is held back where that gives all of its streams
 * together more tokens per time (sampling/wait.h), those that draft nothing included, never while prompts wait, and at
 * most once: then it goes with what there is. Waiting is paid from the purse of drafts (sampling/speculate.h), so that
 * what a drafter costs in vain is bounded whatever it is. */
#ifndef RN_ACTORS_DECODE_DRAFT_H
#define RN_ACTORS_DECODE_DRAFT_H

#include <stdbool.h>

#include "actors/drafter.h"
#include "actors/request.h"
#include "actors/runtime/runtime.h"
#include "sampling/wait.h"

struct rn_decode;
struct rn_context;

struct rn_draft_lane {
    uint32_t generation; /* of the stream that has it; 0: none */
    enum rn_drafts_state state;
    bool begun;      /* the draft actor has been told of it, or will be */
    bool changed;    /* it is to be told */
    bool ending;     /* its end is to be told */
    bool told;       /* the draft actor knows of it ... */
    uint32_t n_told; /* ... and so many of its tokens */
    float free_us;   /* reading its past may take so long for nothing; what it takes more is paid for ... */
    float read_us;   /* ... when the next step begins: this is still to be paid */
    uint32_t want, n_flying, leaves;
    bool flying, waits;
    bool waited; /* for the next step */
    uint32_t features_at, n_positions,
        features;     /* to be told: positions; the first one's row of those of the list ... */
    uint32_t strayed; /* ... and not 0: the last one's is so many behind it */
    struct rn_guess_line lines[RN_GUESS_LINES];
};

struct rn_drafting {
    struct rn_drafter *drafter;  /* the model's; NULL: it has none, and all below is unused */
    struct rn_draft_lane *lanes; /* [max_streams], by slot */
    uint32_t *endings;           /* [n_endings] slots */
    uint32_t n_endings;
    uint32_t n_begun;            /* at most as many as can draft at once */
    struct rn_outlook *outlooks; /* [max_streams] */
    struct rn_news_list lists[RN_NEWS_LISTS];
    struct rn_news_list *free_lists;
    struct rn_news_list *filling, *full; /* with features: that of the step in flight, and of one that is settled */
    uint32_t pass_us;                    /* a guess more; 0: not known */
    uint32_t serial, answered;           /* of waits */
    uint32_t patience_us;
    uint64_t asked_us;          /* when the last wait began ... */
    uint32_t passes;            /* ... for so many ... */
    uint32_t n_rows, n_waiting; /* ... for a step of so many rows and streams that wait ... */
    bool unpaid;                /* ... which have not paid for it */
    float money;                /* of those that could wait: what their purses hold (sampling/speculate.h) */
    float fund;                 /* of all requests that draft with it: see rn_speculation_share */
    uint64_t ends_us;           /* of the step in flight: when it should end; 0: not known */
    bool must_tell;             /* the serial is still to be told */
    bool waited;                /* for the step that is to begin */
    bool failed, closing, closed;
};

runnel_status rn_drafting_init(struct rn_decode *decode);
void rn_drafting_fini(struct rn_decode *decode);

/* A request has come, or goes (which needs no begin before). */
void rn_drafting_begin(struct rn_decode *decode, const struct rn_request *request);
void rn_drafting_end(struct rn_decode *decode, const struct rn_request *request);

/* Are the features of this position wanted, whose row joins the step that is composed? */
bool rn_drafting_wants_features(const struct rn_decode *decode, const struct rn_request *request, uint32_t position);

/* A step is back: what it wrote of features belongs to the next news; with each part, once it is known what of it is
 * true. */
void rn_drafting_settle(struct rn_decode *decode);
struct rn_batch_part;
void rn_drafting_settle_part(struct rn_decode *decode, const struct rn_batch_part *part);

/* Guesses of its next tokens that are there now, and the runner-up of each; n 0: none. The lane's. */
struct rn_guesses {
    uint32_t n;
    const int32_t *tokens;
    const struct rn_second *seconds;
};

struct rn_guesses rn_drafting_guesses(const struct rn_decode *decode, const struct rn_request *request);

/* Is the next step to be held back? Asked once before each step is composed. */
bool rn_drafting_holds(struct rn_decode *decode);

/* The composed step is about to begin. */
void rn_drafting_step(struct rn_decode *decode);

/* Tells the draft actor what there is to tell, if a list is free. */
void rn_drafting_tell(struct rn_decode *decode);

/* Handlers of decode's. */
void rn_drafting_on_drafts(struct rn_actor *self, struct rn_msg *msg);
void rn_drafting_on_news_back(struct rn_actor *self, struct rn_msg *msg);

/* No request is left: true when nothing is under way any more; else it will be. */
bool rn_drafting_close(struct rn_decode *decode);

#endif
