/* What is noted of a request and of a step on their way: one call at each turn, for the metrics (metrics.h) and, if
 * it is on, the trace (trace.h).
 *
 *   generate      submitted    refused
 *   tier          admitted     preempted, and admitted again
 *   decode        step_begun … step_done (backend's thread) … step, then a token for each one drawn
 *   detokenizer   ended
 *
 * A request is in one phase at a time: queued, prefill, decode; one that is preempted goes through them again. Each
 * phase ends where the next begins. */
#ifndef RN_ACTORS_TELEMETRY_TELEMETRY_H
#define RN_ACTORS_TELEMETRY_TELEMETRY_H

#include <stdbool.h>
#include <stdint.h>

#include "mailbox/flag.h"
#include "runnel.h"

struct rn_actor;
struct rn_batch;
struct rn_context;
struct rn_request;

/* When the target and its drafter compute, so that each knows what the other has taken of its time. Of a model. */
struct rn_step_times {
    struct rn_counter verify_ns;        /* the target's steps: their time in all, up to ... */
    struct rn_counter verify_since_ns;  /* ... when the first one in flight began, or the one before it ended ... */
    struct rn_counter steps_in_flight;  /* ... and how many these are */
    struct rn_counter passes_in_flight; /* of the drafter: 0 or 1 */
};

/* A pass of the drafter: when it began and ended, and how long the target had computed by then. */
struct rn_pass_times {
    uint64_t begin_ns, end_ns;
    int64_t begin_verified_ns, end_verified_ns;
    bool waited; /* the target had a step in flight when it began */
};

/* The host's thread, before the request is sent; submitted_us is set. */
void rn_telemetry_submitted(struct rn_request *request);

/* The host's thread: a submit ended with that status. */
void rn_telemetry_refused(const struct rn_context *context, runnel_status status);

/* The tier: blocks are leased; resumed, admitted_us, n_prompt and n_cached are set. */
void rn_telemetry_admitted(struct rn_actor *tier, struct rn_request *request);

/* The tier: it has come back and waits again. */
void rn_telemetry_preempted(struct rn_actor *tier, struct rn_request *request);

/* The tier: so many blocks more (or less) are held by requests and sessions; the prefix cache gave up n. */
void rn_telemetry_blocks(const struct rn_context *context, int64_t n);
void rn_telemetry_evicted(const struct rn_context *context, uint32_t n);

/* The tier: blocks were evicted of which there was no copy; of them, those for which there was no budget
 * (tier/copy_budget.h); what copies have cost; packed bytes went into a lower tier or out of it, which then
 * takes so many bytes more; n blocks of a prompt were dearer to fetch than to compute; could not be
 * moved; were put there by others meanwhile, and are known now. */
void rn_telemetry_dropped(const struct rn_context *context, uint32_t n);
void rn_telemetry_moved(const struct rn_context *context, unsigned kind, bool up, uint64_t bytes, int64_t takes);
void rn_telemetry_unpaid(const struct rn_context *context, uint32_t n);
void rn_telemetry_copied(const struct rn_context *context, uint64_t us);
void rn_telemetry_skipped(const struct rn_context *context, uint32_t n);
void rn_telemetry_adopted(const struct rn_context *context, uint32_t n);
void rn_telemetry_move_errors(const struct rn_context *context, uint32_t n);

/* The tier: the model begins to write to its cache folder (1), or does so no longer (-1). */
void rn_telemetry_cold_writes(const struct rn_context *context, int change);

/* Decode: the composed batch is about to be submitted; first: no other step is in flight. */
void rn_telemetry_step_begun(const struct rn_context *context, struct rn_batch *batch, bool first);

/* The backend's thread: the step is done. */
void rn_telemetry_step_done(struct rn_batch *batch, const struct rn_context *context);

/* The draft actor: a pass of the drafter is about to be submitted. The backend's thread: it is done. The draft actor
 * again: how long it took, in microseconds; where drafter and model take turns, without what it waited for the
 * model. */
void rn_telemetry_draft_begun(const struct rn_context *context, struct rn_pass_times *pass);
void rn_telemetry_draft_done(const struct rn_context *context, struct rn_pass_times *pass);
uint64_t rn_telemetry_drafted(const struct rn_context *context, const struct rn_pass_times *pass);

/* Decode: the batch is back, and its tokens are taken. Returns the time. */
uint64_t rn_telemetry_step(const struct rn_actor *decode, const struct rn_context *context,
                           const struct rn_batch *batch);

/* Decode: a token of the step that rn_telemetry_step has noted, with the time that it gave. Sets first_token_us. */
void rn_telemetry_token(const struct rn_actor *decode, struct rn_request *request, uint64_t now_us);

/* The detokenizer: outcome, n_tokens, n_prompt and end_us are as the host will know them. */
void rn_telemetry_ended(struct rn_actor *detokenizer, struct rn_request *request);

#endif
