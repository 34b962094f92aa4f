/* The decode actor: owns the running sequences. At each step boundary it composes one batch (one position
 * of every running sequence whose reader keeps up, and chunks of prompts in what is left of the row
 * budget) and submits it to the backend without waiting; the batch comes back through the sampler.
 *
 *   OFFER ─▶ prompts ──last chunk──▶ running ──stop, length, cancel──▶ END
 *               └────────── rows ──────┘
 *                            ▼
 *      batch: decode ─▶ backend ─▶ sampler ─▶ decode
 *
 * A batch that comes back is taken apart in two goes, so that the device does not wait for the books: first what the
 * next step depends on (tokens, ends, credits, who runs), then that step is submitted, and while it runs the finished
 * one's events, lists and metrics are made and those that have ended let go.
 *
 * A running sequence that has a proposer brings, besides the row of its last token, rows of drafts (proposer.h). The
 * sampler draws from its rows in turn and goes on as long as what it drew is the next row's draft: so a pass gives one
 * token and one for each draft that was right, each the one that is drawn without drafts. KV of those that were not is
 * written again; n_done has never counted it.
 *
 * Behind the drafts of a drafter may stand runners-up, leaves of a tree (rn_step.parents), which count in the same way:
 *
 *     row       last   d1   d2   d3   e1   e2        e1 instead of d1, e2 instead of d2
 *     position     p  p+1  p+2  p+3  p+1  p+2
 *     place        p  p+1  p+2  p+3  p+4  p+5
 *
 * What a leaf that was right has stored lies at its place. The next step of the sequence moves it to its position
 * (rn_step.moves); until then `strayed` says where it is, and if there is no next step the position counts as not
 * computed.
 *
 * A request whose rows are in the step in flight is not let go before the batch is back: the step
 * reads its block table.
 *
 * A sequence has a lease of blocks and asks for more (GROW) while it still has positions left, so that it does not
 * wait for them; it does when there are none. PREEMPT takes it back to the tier, and so does a shortage of memory
 * while its reader is behind: then the tier keeps it until CREDIT says that it has read on (READY). */
#ifndef RN_ACTORS_DECODE_ACTOR_H
#define RN_ACTORS_DECODE_ACTOR_H

#include "actors/decode_draft.h"
#include "actors/detokenizer_actor.h"
#include "actors/draft_share.h"
#include "actors/pace.h"
#include "actors/request.h"
#include "actors/runtime/runtime.h"
#include "actors/tier_actor.h"
#include "model/backend.h"
#include "sampling/sampler.h"
#include "sampling/speculate.h"

/* Token lists under way between decode and detokenizer; when all are, decoding waits. */
#define RN_TOKEN_LISTS 4

/* Lists of computed blocks under way between decode and tier; when all are, decoding waits. */
#define RN_COMPUTED_LISTS 2

struct runnel_model;

/* A row of the step whose logits are wanted. */
struct rn_batch_out {
    struct rn_request *request; /* borrowed: decode keeps it until the batch is back */
    uint32_t position;          /* of the row */
    struct rn_sampler *sampler; /* the request's */
    bool sample;                /* draw the token of position + 1 */
    bool want_logprobs;
    uint32_t n_top;
    float *keep_logits; /* copy the logits here; NULL: no */
    bool follows;       /* the row's token is a draft: it counts if its parent has drawn `draft` ... */
    uint32_t behind;    /* ... which is the row so many outs before ... */
    int32_t draft;
    bool refuted;            /* ... and has not */
    struct rn_second second; /* of a draft of the chain: its runner-up, row or not; token -1: none is known */
    uint32_t strayed;        /* of a leaf: the position at whose place it stores; 0: at its own */
    runnel_status status;
    bool drawn;                     /* the request has taken its token ... */
    bool tells_token, tells_logits; /* ... and its reader is told of it, or of the logits */
    struct rn_pick pick;
};

/* A sequence's share in the step. */
struct rn_batch_part {
    struct rn_request *request;
    uint32_t n_rows;
    uint32_t n_outs;
    uint32_t features, n_features; /* of the step's: the first, and how many are its own */
    struct rn_embed *embed;        /* the request's, lent to the sampler; or NULL */
    runnel_status status;          /* of its embedding: the sampler's */
    bool prompt;                   /* a chunk of its prompt */
    bool last;                     /* and its end */
    uint32_t n_done;               /* the request's, with this step */
    bool tells_progress, tells_computed, tells_embedding;
    uint32_t n_drafts, n_branches, n_accepted; /* of the chain, runners-up; of all, those that were right */
    uint32_t leaves;                           /* bit i: the runner-up of the chain's draft i is one of its rows */
    uint32_t strayed; /* not 0: the last true row is a leaf, with so many rows of the part before it */
    bool moves;       /* what strayed in the step before is moved */
    bool by_model;    /* the drafts are the drafter's, not the proposer's */
};

struct rn_batch {
    struct rn_step step;         /* first; its arrays are those of the other batch too */
    struct rn_msg *msg;          /* becomes STEP_DONE, then SAMPLED */
    struct rn_batch_out *outs;   /* [limits.max_outs] */
    struct rn_batch_part *parts; /* [limits.max_seqs] */
    uint32_t n_parts;
    uint32_t n_answer_rows;     /* rows of running sequences, the first ones */
    bool read_along;            /* one of them is not of the background */
    uint32_t n_drafts, n_spare; /* drafts it has, runners-up included, and for which there is still room */
    uint32_t n_branches;        /* runners-up */
    uint64_t begin_ns, end_ns;  /* of the step: submit, and its end on the backend's thread */
    bool waited;                /* for a pass of the drafter: its time says nothing of its cost */
    struct rn_token_list *list; /* for its events */
    struct rn_computed_list *computed;
};

struct rn_credit {
    uint32_t generation;
    int32_t n;
    bool back; /* the request was given back to the tier ... */
    bool away; /* ... which keeps it until there is credit again */
};

struct rn_decode {
    struct rn_actor actor; /* first */
    struct runnel_model *model;
    struct rn_request **running; /* [max_streams] */
    uint32_t n_running, cursor;
    struct rn_request_queue prompts;
    struct rn_credit *credits;  /* [max_streams] */
    struct rn_batch batches[2]; /* one in flight, and one that is taken apart */
    struct rn_batch *batch;     /* the one that is composed, or in flight */
    uint32_t *feature_rows;     /* [max_rows]: of the step that is composed, or in flight */
    int32_t *parents;           /* [max_rows]: likewise */
    float *features;            /* [max_rows, row_features]: likewise, but where a drafter reads them */
    struct rn_pace pace;
    struct rn_step_cost cost;
    struct rn_draft_share share;
    bool in_flight;
    uint64_t now_us; /* when the batch that is taken apart came back */
    struct rn_drafting drafting;
    struct rn_msg *close; /* CLOSE, until the draft actor is quiet */
    bool shortage;        /* the tier wants back what stalls */
    struct rn_token_list lists[RN_TOKEN_LISTS];
    struct rn_token_list *free_lists;
    struct rn_computed_list computed_lists[RN_COMPUTED_LISTS];
    struct rn_computed_list *free_computed;
};

runnel_status rn_decode_init(struct rn_decode *decode, struct runnel_model *model);
void rn_decode_fini(struct rn_decode *decode);

#endif
