/* A request on its way through the actors: one object, one owner at a time, moved by messages. */
#ifndef RN_ACTORS_REQUEST_H
#define RN_ACTORS_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "actors/windows.h"
#include "cache/store/tier.h"
#include "base/alloc.h"
#include "base/check.h"
#include "base/interrupt.h"
#include "runnel.h"
#include "sampling/proposer.h"
#include "sampling/sampler.h"

struct rn_context;
struct rn_actor;
struct rn_vocab;
struct rn_answer;
struct rn_session_job;
struct rn_chat;
struct rn_embed;
struct rn_grammar_text;
struct rn_choice;
struct rn_guide;
struct rn_pair;

/* Of a request's life; see telemetry/telemetry.h. */
enum rn_phase { RN_PHASE_NONE = 0, RN_PHASE_QUEUED, RN_PHASE_PREFILL, RN_PHASE_DECODE };

/* How a prompt is with decode; see prefill_actor.h. */
enum rn_lane { RN_LANE_NONE = 0, RN_LANE_OWN, RN_LANE_SHORT };

enum rn_outcome { RN_OUTCOME_NONE = 0, RN_OUTCOME_DONE, RN_OUTCOME_CANCELLED, RN_OUTCOME_FAILED };

/* A block into which the request writes and that others have too: it gets a copy, which the step of its first rows
 * makes. WANTED: not made yet; blocks[copy_at] holds nothing. DONE: made. In both the request holds copy_from. */
enum rn_copy { RN_COPY_NONE = 0, RN_COPY_WANTED, RN_COPY_DONE };

/* Where a stream with a recurrent state changes its slot: what it has come to at position `at` stays behind as a
 * checkpoint (tier/state_slots.h), and a copy goes on in `slot`. */
enum { RN_STATE_TURNS = 2 };
struct rn_state_turn {
    uint32_t at, slot;
};

/* Its place in one of the trees of a fair queue (fair_queue.c). */
enum { RN_TURN_TREES = 3 };
struct rn_turn_link {
    struct rn_request *up, *left, *right;
};

struct rn_request {
    struct rn_request *next; /* the owner's queue */
    struct rn_heap *heap;
    const struct rn_context *context;
    char label[RUNNEL_LABEL_BYTES]; /* "": none */
    uint32_t slot, generation;      /* its stream */
    struct rn_session_job
        *job;       /* NULL: it generates. Else it writes or reads a session's file, and much below is unused */
    uint64_t order; /* of arrival at the tier: the older of two of one priority has the memory */
    struct {
        struct rn_request *previous;
        uint64_t tag, cost;
        struct rn_turn_link links[RN_TURN_TREES];
    } turn; /* its place among those that wait; see fair_queue.h */

    /* What was asked: constant after submit. */
    char *text; /* [text_bytes]; freed once it is tokens; NULL when tokens or a chat were given */
    size_t text_bytes;
    uint32_t tokenize_flags;
    struct rn_chat *chat;            /* freed once it is tokens */
    struct rn_pair *pair;            /* freed once it is tokens */
    struct rn_grammar_text *grammar; /* what its answer may be, freed once it is compiled; NULL: any text */
    struct rn_answer *answer; /* the outlet's, until the prompt is tokens: it wants to see the prompt's end. Or NULL */
    bool whole;               /* the tokens are the whole conversation, not what follows the session's */
    bool first_bos;           /* tokens[0] is a BOS that was added: dropped when the session has a past */
    bool ignore_eos, want_logprobs, want_progress, want_logits;
    uint32_t n_top;
    int64_t max_tokens;
    int64_t context_keep; /* -1: it ends when the context is full */
    int32_t *stop_tokens;
    uint32_t n_stop_tokens;
    uint32_t session, session_generation; /* generation 0: none */
    uint32_t adapter;                     /* its number among the model's; 0: none */
    uint64_t adapter_print;
    uint64_t cache_salt, tenant;
    int32_t priority;
    uint32_t deadline_ms; /* 0: none */
    uint8_t pin_prefix;   /* 1: keep, 2: let go */
    uint8_t cache_wait;   /* runnel_cache_wait */
    uint32_t cache_wait_ms;
    uint64_t n_queued; /* tokens for which it counts in the engine's limit until its turn comes */
    uint64_t n_bytes;  /* memory for which it counts until it has ended */
    struct rn_sampler *sampler;
    struct rn_choice *choice; /* the outlet's, lent, of a request whose host draws; else NULL */
    struct rn_guide *guide;   /* by its grammar: from the grammar actor on; NULL: it has none */
    float *logits;            /* [n_logits_rows][n_vocab]: the outlet's, lent under the stream's credits */
    uint32_t n_logits_rows;
    struct rn_proposer *proposer; /* NULL: none that guesses its next tokens from what it has, or the verifier has it */
    bool draft_model;             /* the drafter that was loaded with the model guesses for it */
    uint32_t draft_max;
    bool draft_share;       /* the proposer reads its tenant's other answers, and its own becomes one */
    struct rn_embed *embed; /* NULL: it generates */

    /* The sequence. */
    int32_t *tokens; /* [capacity]; of them n_tokens are known */
    uint32_t n_tokens, capacity;
    uint32_t n_history; /* the session's, in front */
    uint32_t n_prompt;  /* history and prompt */
    uint32_t n_fill;  /* tokens to compute before it draws the next: the prompt, and after a preemption all there are */
    uint32_t n_done;  /* positions computed, those of steps in flight included, but not of drafts */
    uint32_t n_limit; /* n_tokens stays at or below; 0: it was never admitted */
    uint64_t n_dropped;  /* tokens that have gone from between head and tail when the context was full: positions count
                            without them, a token's coin with them */
    uint32_t n_shifts;   /* how often */
    bool shifts;         /* it is full, and goes back to the tier for that */
    bool shifted;        /* since it last came by the verifier */
    uint32_t n_scored;   /* the next position whose logits are wanted */
    uint32_t n_reported; /* positions of the last PROGRESS */
    uint32_t *blocks;    /* [n_blocks], with room for n_limit tokens */
    uint32_t n_blocks;   /* leased so far */
    uint32_t n_gone;     /* of them, behind the sinks: they have gone on to the end (model/kv_size.h) */
    uint32_t *means;     /* [n_means]: blocks of the means of chunks; NULL without a mean window */
    uint32_t n_means;
    struct rn_windows windows;
    uint32_t state;      /* of a model with recurrent states: the slot of its own */
    uint32_t state_from; /* what its next row copies there; RN_NO_STATE: zeros; `state`: nothing */
    struct rn_state_turn turns[RN_STATE_TURNS]; /* [n_turns]: those that are still to come */
    uint32_t n_turns;
    uint32_t state_spare; /* a second slot, for rows of drafts (decode/states.h); RN_NO_STATE: it brings none */
    uint32_t n_behind;    /* the state is so many positions behind n_done: they are computed again */
    uint32_t n_shared;    /* of `blocks`, the first ones that it found full and computed */
    uint32_t n_told;      /* positions of the prompt that the tier knows to be computed; UINT32_MAX: it wants to hear
                          nothing */
    bool apart;           /* its KV came out of a file: others share nothing of it */
    enum rn_copy copy;
    uint32_t copy_from; /* a block */
    uint32_t copy_at;   /* index of blocks */

    /* The verifier's: set on the way to decode. */
    bool verified;       /* it drafts: steps with its rows go through the verifier, and its end, too */
    bool tells_features; /* a drafter reads those of its prompt's end */

    /* Decode's. */
    uint32_t in_steps;  /* so many steps in flight have rows of it */
    uint64_t draw_step; /* the step, counted from 1, that draws its next token, ... */
    uint32_t draw_row;  /* ... and the wanted row */
    bool last_chunk;    /* a step in flight computes the end of the prompt */
    enum rn_lane lane;  /* while its prompt is computed */
    bool growing;       /* it has asked for more blocks */
    bool preempted;     /* it goes back to the tier as soon as no step reads it */
    bool resumed;       /* it was preempted once: what is done only once has been done */
    bool stalled;       /* it went back because its reader is behind: it waits until that has read on */
    uint64_t n_drafted, n_accepted;
    uint64_t n_rested;    /* at its end: runnel_usage.rested_passes ... */
    runnel_rest rest;     /* ... and rest */
    uint32_t leaf_offset; /* not 0: what position n_done - 1 has stored lies at the place of this one still */
    bool draft_chain;     /* no runners-up */
    bool suspect;         /* a step of it failed, or gave logits that are not numbers: nobody else may use its blocks */

    /* The outcome, once there is one. */
    enum rn_outcome outcome;
    runnel_finish finish;
    float end_logprob;       /* with want_logprobs, of a token that ended the answer and was not told ... */
    uint32_t n_end_top;      /* ... and how many are in ... */
    runnel_logprob *end_top; /* ... [n_top], the outlet's, lent */
    runnel_error error;
    uint32_t n_cached;
    uint32_t n_lower[RN_TIERS]; /* of them, those that came up for it from each lower tier */
    uint64_t submitted_us, admitted_us, first_token_us, end_us; /* of the engine's clock; 0: not reached */
    uint64_t last_token_us;
    uint64_t told_us; /* when decode last had an event of it to tell */
    enum rn_phase phase;
    uint64_t phase_us; /* since when */
};

/* A request with nothing in it; NULL on refusal. */
struct rn_request *rn_request_new(struct rn_heap *heap);

/* What must be the same for its KV to be shared. */
static inline struct rn_prefix_salt rn_request_salt(const struct rn_request *request)
{
    return (struct rn_prefix_salt){{request->cache_salt, request->adapter_print}};
}

/* label may be NULL. */
void rn_request_set_label(struct rn_request *request, const char *label);

/* Frees it and all it owns (text, tokens, blocks array, sampler, proposer, stop tokens). NULL is allowed. */
void rn_request_free(struct rn_request *request);

/* Sets the outcome unless there is one; status and sentence count for RN_OUTCOME_FAILED alone. */
void rn_request_end(struct rn_request *request, enum rn_outcome outcome, runnel_finish finish);
void rn_request_fail(struct rn_request *request, runnel_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void rn_request_fail_about(struct rn_request *request, runnel_about about, runnel_status status, const char *format,
                           ...) __attribute__((format(printf, 4, 5)));

/* Its turn has come: its prompt no longer counts in the engine's limits. */
void rn_request_unqueue(struct rn_request *request);

/* It has ended, or was not taken on: nothing of it counts in them, from before the host knows. */
void rn_request_uncount(struct rn_request *request);

/* What holds of a request whoever owns it: its parts are in order, and their counts within each other. */
bool rn_request_check(const struct rn_request *request);

/* Room for the rows that its grammar guides, its last token's and those of its drafts, until they are dropped; nothing
 * where it has no grammar. Where memory or the engine's limit of bytes refuses those of drafts it has none for now.
 * False: memory was refused. Those of drafts count in n_bytes beside the first one, which submit has counted. */
bool rn_request_take_rows(struct rn_request *request);
void rn_request_drop_rows(struct rn_request *request); /* no step has any of them */

/* Moves it to another actor, in a message of that kind. */
void rn_request_send(struct rn_request *request, struct rn_actor *to, uint32_t message_kind);

/* To whom it goes with its outcome: past those that keep something of it until its end. */
struct rn_actor *rn_request_end_actor(const struct rn_request *request);

/* Ends it as a CANCEL, EXPIRE or STOPPED message asks. */
void rn_request_end_by(struct rn_request *request, uint32_t message_kind);

/* For those whom CANCEL and EXPIRE pass by, as they have a request for long or have many: they look themselves.
 * end_unwanted: ends it if its host has cancelled it, its model or the engine is being freed, or its deadline has
 * passed; true when it has an outcome, of whatever kind. interrupt: asks the same while the request's work is done. */
bool rn_request_end_unwanted(struct rn_request *request);
struct rn_interrupt rn_request_interrupt(const struct rn_request *request);

/* Does its answer end with this token: one of the vocabulary's ends that it does not ignore, or of its own? */
bool rn_request_ends_with(const struct rn_request *request, const struct rn_vocab *vocab, int32_t token);

/* Of an answer that its last token has ended: the token, if it is one of its own stop tokens; else -1. */
int32_t rn_request_stop_token(const struct rn_request *request);

/* True when its deadline has passed. */
static inline bool rn_request_is_late(const struct rn_request *request, uint64_t now_us)
{
    return request->deadline_ms > 0 && now_us - request->submitted_us >= (uint64_t)request->deadline_ms * 1000;
}

/* Tokens of its answer, those that have gone included. Of one that was admitted. */
static inline uint64_t rn_request_answered(const struct rn_request *request)
{
    RN_ASSERT(request->n_tokens + request->n_dropped >= request->n_prompt);
    return request->n_tokens + request->n_dropped - request->n_prompt;
}

/* How many of its first tokens stay whenever its context is full. */
static inline uint32_t rn_request_head(const struct rn_request *request)
{
    return request->context_keep < (int64_t)request->n_prompt ? (uint32_t)request->context_keep : request->n_prompt;
}

/* Its sequence is as long as it can be. Does its answer go on, without the oldest part? */
static inline bool rn_request_can_shift(const struct rn_request *request)
{
    return request->context_keep >= 0 &&
           (request->max_tokens < 0 || rn_request_answered(request) < (uint64_t)request->max_tokens);
}

/* How many of its tokens stay with its session: all, but after a failure the turn is taken back, since what
 * it computed is not to be trusted. */
static inline uint32_t rn_request_kept_tokens(const struct rn_request *request)
{
    return request->outcome == RN_OUTCOME_FAILED ? request->n_history : request->n_tokens;
}

/* A first-in first-out list of requests. */
struct rn_request_queue {
    struct rn_request *first, *last;
    uint32_t n;
};
void rn_request_push(struct rn_request_queue *queue, struct rn_request *request);
struct rn_request *rn_request_pop(struct rn_request_queue *queue);

/* Takes the stream's request out of the queue; NULL when it is not there. */
struct rn_request *rn_request_remove(struct rn_request_queue *queue, uint32_t slot, uint32_t generation);

#endif
