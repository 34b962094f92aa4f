/* The decode actor: owns the running sequences. At each step boundary it composes one batch (one position
 * of every running sequence whose reader keeps up, and chunks of prompts in what is left of the row
 * budget) and submits it to the backend without waiting; the batch comes back through the sampler.
 *
 *   OFFER ─▶ prompts ──last chunk──▶ running ──stop, length, cancel──▶ END
 *               └────────── rows ──────┘
 *                            ▼
 *      batch: decode ─▶ backend ─▶ sampler ─▶ [verifier ─▶] decode
 *
 * Several steps can be in flight (step_ring.h): then a sequence's row waits for what the step before draws.
 *
 * A batch that comes back is taken apart in two goes, so that the device does not wait for the books: first what the
 * next step depends on (tokens, ends, credits, who runs), then that step is submitted, and while it runs the finished
 * one's events, lists and metrics are made and those that have ended let go.
 *
 * A running sequence for which the verifier has proposed something brings, besides the row of its last token, rows of
 * drafts (draft/proposal.h). The
 * sampler draws from each as if the drafts in front of it were true, and they are as long as what was drawn is the next
 * row's draft: so a pass gives one token and one for each draft that was right, each the one that is drawn without
 * drafts. KV of those that were not is
 * written again; n_done has never counted it.
 *
 * Behind the drafts of a drafter may stand runners-up, leaves of a tree (rn_step.parents), which count in the same way:
 *
 *     row       last   d1   d2   d3   e1   e2        e1 instead of d1, e2 instead of d2
 *     position     p  p+1  p+2  p+3  p+1  p+2
 *     place        p  p+1  p+2  p+3  p+4  p+5
 *
 * What a leaf that was right has stored lies at its place. The next step of the sequence moves it to its position
 * (rn_step.moves); until then `leaf offset` says where it is, and if there is no next step the position counts as not
 * computed.
 *
 * A request whose rows are in steps in flight is not let go before the last of them is back: they read its block table.
 * Where all requests of the steps in flight have ended meanwhile (cancelled, late, stopped by a stop string) these are
 * stopped: one comes back CANCELLED, or as if nothing had been asked, and in both cases none of them goes on.
 *
 * A sequence has a lease of blocks and asks for more (GROW) while it still has positions left, so that it does not
 * wait for them; it does when there are none. PREEMPT takes it back to the tier, and so does a shortage of memory
 * (SHORT) once its reader has been behind for long enough (keep_time.h): then the tier keeps it until CREDIT says that
 * it has read on (READY). So it is with a prompt whose reader is behind when no lane is left, its own or the
 * background's: it goes back, since others may wait for one. */
#ifndef RN_ACTORS_DECODE_ACTOR_H
#define RN_ACTORS_DECODE_ACTOR_H

#include "actors/batch.h"
#include "actors/decode/keep_time.h"
#include "actors/lists.h"
#include "actors/decode/prompt_budget.h"
#include "actors/request.h"
#include "actors/runtime/runtime.h"
#include "actors/decode/step_ring.h"
#include "sampling/step_cost.h"

struct rn_context;

/* Of a stream whose host draws. */
enum rn_choice_state {
    RN_CHOICE_NONE = 0,
    RN_CHOICE_ASKED, /* the host was asked for its next token */
    RN_CHOICE_MADE   /* `choice` has what it said; the token joins the sequence once this runs */
};

struct rn_credit {
    uint32_t generation;
    int32_t n;
    bool back;           /* the request was given back to the tier ... */
    bool away;           /* ... which keeps it until there is credit again ... */
    uint64_t stalled_us; /* ... which it has been without since then */
    enum rn_choice_state choice;
    struct rn_pay_choice made;
};

/* A prompt that came alone, and until when it waits for others; generation 0: there is none. */
struct rn_alone {
    uint32_t slot, generation;
    uint64_t until_us;
};

/* Of what a step has for its draws; see decode/outs.c. */
struct rn_outs_kept {
    uint32_t n_changes, n_late;
};

struct rn_decode {
    struct rn_actor actor; /* first */
    const struct rn_context *context;
    struct rn_request **running; /* [max_streams] */
    uint32_t n_running, cursor;
    struct rn_request_queue prompts;
    struct rn_credit *credits; /* [max_streams] */
    struct rn_step_ring ring;
    struct rn_batch *batch;   /* the one that is composed, or was last */
    struct rn_outs_kept kept; /* from running sequences, in the step that is composed next */
    struct rn_prompt_budget pace;
    struct rn_step_cost cost;
    struct rn_proposal *proposals; /* [max_streams], by slot */
    struct rn_news_list *news; /* for the features of the next step; NULL: that in flight has it, or none is needed */
    bool holds;                /* the next step waits for PROPOSALS */
    uint64_t now_us;           /* when the batch that is taken apart came back */
    struct rn_keep_time keep;
    uint32_t n_short; /* blocks that the tier wants back of what stalls ... */
    bool at_once;     /* ... however short a time it has stalled */
    bool waking;      /* a WAKE is to come */
    struct rn_alone alone;
    bool has_choices; /* hosts have drawn: of requests that run, tokens are to be taken in */
    struct rn_token_list lists[RN_TOKEN_LISTS];
    struct rn_token_list *free_lists;
    struct rn_computed_list computed_lists[RN_COMPUTED_LISTS];
    struct rn_computed_list *free_computed;
};

runnel_status rn_decode_init(struct rn_decode *decode, const struct rn_context *context);
void rn_decode_fini(struct rn_decode *decode);

/* A draw of the request's host is under way: nothing else is drawn for it. */
static inline bool rn_decode_awaits_choice(const struct rn_decode *decode, const struct rn_request *request)
{
    return decode->credits[request->slot].choice != RN_CHOICE_NONE;
}

/* decode/choices.c: the tier hears READY, if it has the stream's request and nothing more is awaited from its host. */
void rn_decode_call_back(struct rn_decode *decode, uint32_t slot);

/* decode/choices.c: the host is asked for the token behind the sequence; its credit is paid. */
void rn_decode_ask(struct rn_decode *decode, struct rn_request *request);

/* decode/choices.c: handler of CHOICE. */
void rn_decode_on_choice(struct rn_actor *self, struct rn_msg *msg);

/* decode/choices.c: the tokens that hosts have drawn join their sequences, as far as there is a list for their
 * events. */
void rn_decode_take_choices(struct rn_decode *decode);

/* For decode/choices.c: a drawn token joins its sequence; who has an outcome, or is to go back, is let go. */
void rn_decode_settle_token(struct rn_decode *decode, struct rn_request *request, struct rn_batch_out *out);
void rn_decode_drop_if_done(struct rn_decode *decode, struct rn_request *request);

/* decode/tell.c: what is told of a row, and of a sequence's share in a step, joins the lists; and these go out, or are
 * free again. `computed` may be NULL. */
void rn_decode_tell_out(struct rn_decode *decode, struct rn_token_list *list, const struct rn_batch_out *out);
void rn_decode_tell_part(struct rn_decode *decode, struct rn_batch *batch, const struct rn_batch_part *part,
                         const struct rn_batch_out *outs);
void rn_decode_send_lists(struct rn_decode *decode, struct rn_token_list *list, struct rn_computed_list *computed);

/* decode/check.c: sequences and prompts have their blocks, lanes, credits and places in the step in flight; lists and
 * batches are here or lent. Between two batches of messages. */
bool rn_decode_check(const struct rn_decode *decode);

/* decode/check.c: a batch that is composed, before it is submitted. */
bool rn_decode_batch_check(const struct rn_batch *batch);

/* decode/stalls.c: of those that stall and are in no step, the one that has stalled longest of those that have for long
 * enough (keep_time.h), where blocks are wanted, or hold a lane that others may want; NULL: there is none. */
struct rn_request *rn_decode_next_stalled(const struct rn_decode *decode);

/* decode/stalls.c: how long the stream has stalled is kept with its credit while its request is with the tier. */
void rn_decode_keep_stall(struct rn_decode *decode, const struct rn_request *request);

/* decode/stalls.c: a stall is over, since its reader has read on. The request, or NULL: it was given back. */
void rn_decode_end_stall(struct rn_decode *decode, const struct rn_credit *credit, const struct rn_request *request);

/* decode/stalls.c: where no step will wake decode, blocks or lanes are wanted and one stalls that is kept for now: asks
 * for a WAKE. */
void rn_decode_sleep(struct rn_decode *decode);

/* decode/stalls.c: the prompt that has just come waits a moment for others, if it is alone (prompt_budget.h); does it
 * still? A WAKE ends that. */
void rn_decode_look_for_company(struct rn_decode *decode, const struct rn_request *request);
bool rn_decode_awaits_company(struct rn_decode *decode);

#endif
