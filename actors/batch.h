/* A step of the model and all that goes with it: composed by decode, computed by the backend, drawn from by the
 * sampler, verified if streams draft in it, and back at decode. One actor at a time has it. */
#ifndef RN_ACTORS_BATCH_H
#define RN_ACTORS_BATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "actors/draft/proposal.h"
#include "base/check.h"
#include "model/backend.h"
#include "model/draw.h"
#include "runnel.h"
#include "sampling/sampler.h"
#include "sampling/step_cost.h"

struct rn_computed_list;
struct rn_embed;
struct rn_msg;
struct rn_news_list;
struct rn_request;
struct rn_token_list;

/* A row of the step whose logits are wanted. */
struct rn_batch_out {
    struct rn_request *request;       /* borrowed: decode keeps it until the batch is back */
    uint64_t position;                /* of the row; in the whole text, where tokens have gone from it */
    const struct rn_sampler *sampler; /* the request's */
    bool sample;                      /* draw the token of position + 1 */
    bool want_logprobs;
    uint32_t n_top;
    float *keep_logits;        /* copy the logits here; NULL: no */
    float *late_logits;        /* the sampler draws from these when the step is done; NULL: the step draws, or there is
                           rn_step.logits */
    struct rn_draw_mask *mask; /* guided, and the device draws by itself: where the sampler puts the mask, too; else
                                  NULL */
    bool guided;               /* a grammar says what may be drawn: row guide_row of the request's guide */
    uint32_t guide_row;
    bool waits;       /* the row's token is what the step before draws */
    bool asks;        /* the host draws: the row's candidates go to the request's choice */
    bool ended, last; /* the draw has ended the grammar's text; or completed it, and nothing can follow */
    bool follows;     /* the row's token is a draft: it counts if its parent has drawn `draft` ... */
    uint32_t behind;  /* ... which is the row so many outs before ... */
    int32_t draft;
    bool refuted;               /* ... and has not */
    bool accepted;              /* of a step that was verified: its draw is of the sequence */
    struct rn_runner_up second; /* of a draft of the chain: its runner-up, row or not; token -1: none is known */
    uint32_t leaf_offset;       /* of a leaf: the position at whose place it stores; 0: at its own */
    runnel_status status;
    bool drawn;                     /* the request has taken its token ... */
    bool tells_token, tells_logits; /* ... and its reader is told of it, or of the logits ... */
    bool tells_choice;              /* ... or asked for its choice */
    struct rn_pick pick;
};

/* A sequence's share in the step. */
struct rn_batch_part {
    struct rn_request *request;
    uint32_t n_rows;
    uint32_t n_repeated; /* of them, those that do not count: computed before, for the state's sake (decode/states.h),
                            or beside a text's others, where attention sees both ways */
    uint32_t n_outs;
    uint32_t features, n_features; /* of the step's: the first, and how many are its own */
    struct rn_embed *embed;        /* the request's, lent to the sampler; or NULL */
    runnel_status status;          /* of its embedding: the sampler's */
    bool prompt;                   /* a chunk of its prompt */
    bool last;                     /* and its end */
    uint32_t n_done;               /* the request's, with this step */
    bool ahead;                    /* composed while others of it were in flight */
    bool tells_progress, tells_computed, tells_embedding;
    uint32_t n_drafts, n_branches, n_accepted; /* of the chain, runners-up; of all, those that were right */
    uint32_t n_compared;                       /* of the chain: those before which all were right */
    bool leaf_offset;                          /* the last true row is a leaf */
    bool moves;                                /* what leaf offset in the step before is moved */
    bool by_grammar;                           /* the drafts are what a grammar leaves no choice of */
    bool keeps_state;                          /* its rows change a copy of its state */
    bool by_model;                             /* the drafts are the drafter's, not the proposer's */
};

struct rn_batch {
    struct rn_step step;         /* first; its arrays are the ring's (step_ring.h) */
    struct rn_msg *msg;          /* becomes STEP_DONE, then VERIFY or SAMPLED */
    struct rn_batch_out *outs;   /* [limits.max_outs] */
    struct rn_batch_part *parts; /* [limits.max_seqs] */
    uint32_t n_parts;
    struct rn_draw *draws;        /* [limits.max_outs]: of a device that draws in the step; see draw_rows.h */
    struct rn_drawer drawer;      /* how it does; draw NULL: by itself, or it does not */
    struct rn_draw_count *counts; /* [limits.max_changes]: what the draws of a device count that draws by itself */
    uint32_t n_counts;            /* of them, those that were written */
    uint32_t n_changes;           /* logits that such a device changes, at most */
    uint32_t n_late;              /* wanted rows with late_logits of the ring */
    uint32_t n_guided;            /* wanted rows that a grammar guides */
    void **scratch;               /* [n_scratch] */
    uint32_t n_scratch;
    uint32_t n_vocab;           /* width of the logits */
    uint32_t n_repeated;        /* rows that were computed before */
    uint32_t n_waiting;         /* rows whose token the step before draws */
    uint32_t n_answer_rows;     /* rows of running sequences, the first ones */
    uint32_t n_readers;         /* requests that have one of them, but for the background's */
    uint32_t n_drafts, n_spare; /* drafts it has, runners-up included, and for which there is still room */
    uint32_t n_branches;        /* runners-up */
    uint64_t begin_ns, end_ns;  /* of the step: submit, and its end on the backend's thread */
    bool waited;                /* for a pass of the drafter: its time says nothing of its cost */
    struct rn_token_list *list; /* for its events */
    struct rn_computed_list *computed;

    /* For the verifier. */
    bool verifies;                 /* streams that draft are in the step: it goes to the verifier */
    uint32_t n_running, n_prompts; /* that decode had when it was composed */
    struct rn_step_cost *cost;     /* decode's, lent with the batch */
    struct rn_news_list *news;     /* with the step's features for the drafter; NULL: it has none */

    /* And from it. */
    struct rn_proposal_list proposals;
    bool holds; /* the next step is held back: PROPOSALS will come */
};

static_assert(offsetof(struct rn_batch, step) == 0, "a backend gives the step back, and with it the batch");

/* Of `most` rows, those that running sequences may take beside so many prompts. */
static inline uint32_t rn_batch_share(uint32_t n_prompts, uint32_t most)
{
    return n_prompts > 0 ? most - most / 4 : most;
}

/* The step's time is noted in batch->cost, if it says what rows of answers take. Once for each batch. */
static inline void rn_batch_note_cost(const struct rn_batch *batch)
{
    RN_ASSERT(batch->begin_ns <= batch->end_ns && batch->n_answer_rows <= batch->step.n_rows);
    if (batch->n_answer_rows == batch->step.n_rows && batch->step.status == RUNNEL_OK && !batch->waited)
        rn_step_cost_record(batch->cost, batch->step.n_rows, (batch->end_ns - batch->begin_ns) / 1000);
}

#endif
