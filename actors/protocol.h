/* Every message between actors: one X-macro. It makes the enum, the names for the trace, the size
 * assertion and docs/MESSAGES.md (tests/actors/print_messages.c).
 *
 * The way of a request: host → router → tokenizer → tier → prefill → verifier → decode ⇄ backend → sampler →
 * decode → detokenizer → tier → router, while pieces go detokenizer → token ring → host. One that drafts passes the
 * verifier at its end, too, and a step with such streams comes to it between sampler and decode. One with a grammar
 * comes from the tokenizer to the tier by way of the grammar actor, and passes the sampler at its end. A request
 * object moves: it has exactly one owner at a time. CANCEL, STOPPED and CREDIT carry a stream's slot and
 * generation. CANCEL passes the tokenizer by, which looks itself for what its host wants (rn_request_end_unwanted), as
 * the grammar actor does, and meets the request at the tier or follows it from there,
 * tier → prefill → verifier → decode, always behind it: whoever owns the request ends it, and at the tier one that
 * comes too early waits for it. So a CANCEL goes no further than its request has gone, and none of an
 * older stream of the slot can be behind a newer one's request: that bounds it. EXPIRE and PREEMPT go the same way.
 *
 * The way of blocks: decode asks with GROW before a sequence has used up its lease, and GRANT brings more. Where
 * memory is short the tier takes a request back: PREEMPT follows it, and it returns as PREEMPTED, to be admitted again.
 *
 * Bounds: every edge's bound follows from how often its message can exist for one stream, session or model, so no send
 * between actors is ever refused; the one place that refuses is the host's submit, which returns BUSY when all streams
 * are taken. */
#ifndef RN_ACTORS_PROTOCOL_H
#define RN_ACTORS_PROTOCOL_H

#include <assert.h>
#include <stdint.h>

#include "mailbox/message.h"

struct rn_request;
struct rn_batch;
struct rn_batch_out;
struct rn_token_list;
struct rn_computed_list;
struct rn_session_job;
struct rn_news_list;
struct rn_drafts_list;
struct rn_proposal_list;
struct rn_move;
struct runnel_model;

struct rn_pay_request {
    struct rn_request *request; /* moves with the message */
};
struct rn_pay_stream {
    uint32_t slot, generation;
    uint32_t n; /* CREDIT: events consumed */
};
struct rn_pay_choice {
    uint32_t slot, generation;
    uint32_t place;      /* among the outlet's candidates, or what sampling/choice.h has for one */
    int32_t status;      /* of the stream's grammar: the sampler's, as the rest */
    uint8_t ended, last; /* as of rn_batch_out */
};
struct rn_pay_ended {
    uint32_t slot, generation;
    struct runnel_model *model;
};
struct rn_pay_session {
    uint32_t slot, generation;
    struct runnel_model *model;
};
struct rn_pay_fork {
    uint32_t slot, generation; /* of the copy */
    uint32_t from, from_generation;
    struct runnel_model *model;
};
struct rn_pay_job {
    struct rn_session_job *job; /* moves with the message */
};
struct rn_pay_move {
    struct rn_move *move; /* moves with the message */
};
struct rn_pay_batch {
    struct rn_batch *batch; /* moves with the message */
};
struct rn_pay_outs {
    const struct rn_batch_out *outs; /* [n]: a step's, lent until STEP_DONE brings all of it */
    uint32_t n;
};
struct rn_pay_tokens {
    struct rn_token_list *list; /* moves with the message */
};
struct rn_pay_computed {
    struct rn_computed_list *list; /* moves with the message */
};
struct rn_pay_news {
    struct rn_news_list *list; /* moves with the message */
};
struct rn_pay_drafts {
    struct rn_drafts_list *list; /* moves with the message */
};
struct rn_pay_proposals {
    struct rn_proposal_list *list; /* moves with the message */
};
#define RN_LEASE_BLOCKS 2 /* leased ahead of need */
struct rn_pay_grant {
    uint32_t slot, generation;
    uint32_t n;
    uint32_t blocks[RN_LEASE_BLOCKS];
};
struct rn_pay_shortage {
    uint32_t n_blocks; /* SHORT: so many are wanted of what stalls; 0: none any more */
    uint32_t at_once;  /* however short a time it has stalled */
};
struct rn_pay_wake {
    struct runnel_model *model;
    uint64_t at_us;
};
struct rn_pay_lanes {
    uint32_t n, n_background; /* the latter are of the former */
    uint32_t n_short;         /* prompts that had none */
};
struct rn_pay_model {
    struct runnel_model *model;
};
struct rn_pay_none {
    uint32_t unused;
};

/* Who sends and receives. Of an actor: its name in a row, and in the table of messages. The first ones
 * are no actors. */
#define RN_ROLES(X)                 \
    X(HOST, "host")                 \
    X(LOADER, "loader")             \
    X(WORKER, "worker")             \
    X(BACKEND, "backend")           \
    X(DRAFTER, "drafter's backend") \
    X(RUNTIME, "runtime")           \
    X(ROUTER, "router")             \
    X(TOKENIZER, "tokenizer")       \
    X(GRAMMAR, "grammar")           \
    X(TIER, "tier")                 \
    X(MOVER, "mover")               \
    X(PREFILL, "prefill")           \
    X(VERIFIER, "verifier")         \
    X(DECODE, "decode")             \
    X(DRAFT, "draft")               \
    X(SAMPLER, "sampler")           \
    X(DETOKENIZER, "detokenizer")
enum rn_role {
#define X(role, name) RN_ROLE_##role,
    RN_ROLES(X)
#undef X
        RN_ROLES_END
};

/* kind, payload, senders, receivers, bound, what it means and who owns what afterwards. The bound holds for each
 * receiver: so many messages of the kind are in its mailbox at most. It is an expression of
 *
 *   S   streams at once, of the engine        M   models
 *   N   places of sessions                    P   models whose messages meet: 1 in the mailbox of a model's actor
 *
 * and of constants. bounds.h computes from it what each mailbox and the pool of messages hold. */
#define RN_MESSAGES(X)                                                                                                 \
    X(SUBMIT, request, HOST, ROUTER, S,                                                                                \
      "A request that runnel_generate accepted; the router enters it in its directory")                                \
    X(CANCEL, stream, HOST | ROUTER | TIER | PREFILL | VERIFIER, ROUTER | TIER | PREFILL | VERIFIER | DECODE, 2 * S,   \
      "Ends the stream wherever its request is")                                                                       \
    X(CREDIT, stream, HOST | ROUTER, ROUTER | DECODE, 2 * S, "The host has consumed n events of the stream")           \
    X(CHOICE, choice, HOST | ROUTER | SAMPLER, ROUTER | SAMPLER | DECODE, 2 * S,                                       \
      "The host has drawn for the stream; the sampler moves it on in its grammar, if it has one")                      \
    X(SESSION_NEW, session, HOST | ROUTER | TOKENIZER | GRAMMAR, ROUTER | TOKENIZER | GRAMMAR | TIER, N,               \
      "The tier of the model enters the session in its list")                                                          \
    X(SESSION_FREE, session, HOST | ROUTER | TOKENIZER | GRAMMAR, ROUTER | TOKENIZER | GRAMMAR | TIER, N,              \
      "Frees a session once its request has ended")                                                                    \
    X(SESSION_FORK, fork, HOST | ROUTER | TOKENIZER | GRAMMAR, ROUTER | TOKENIZER | GRAMMAR | TIER, N,                 \
      "As SESSION_NEW; it becomes what another is once the turns in front of it have ended")                           \
    X(MODEL_NEW, model, HOST, ROUTER, M, "A load begins; the router keeps the model in its list")                      \
    X(MODEL_LOADED, model, LOADER, ROUTER, M, "A load has ended, well or not; the router owns the model")              \
    X(MODEL_FREE, model, HOST, ROUTER, M, "The host gives its handle back; the router cancels and, when quiet, frees") \
    X(MODEL_FREED, model, LOADER, ROUTER, M, "The model's parts are freed; only its address is left")                  \
    X(ENGINE_CLOSE, none, HOST, ROUTER, 1, "Frees every model, then reports to the host bridge")                       \
    X(ENCODE, request, ROUTER, TOKENIZER, S, "Text becomes tokens; the tokenizer owns the request")                    \
    X(COMPILE, request, TOKENIZER, GRAMMAR, S,                                                                         \
      "Its grammar is compiled; of a session, it keeps its place behind one; the grammar actor owns the request")      \
    X(ADMIT, request, TOKENIZER | GRAMMAR, TIER, S, "Waits for its session and for blocks; the tier owns the request") \
    X(JOB_DONE, job, WORKER, TIER, S,                                                                                  \
      "A session's file is written or read, or could not be; the tier owns job and request")                           \
    X(MOVE, move, TIER, MOVER, RN_MOVES *P,                                                                            \
      "Blocks to carry down or up, or to forget; or it stays until there is news; the mover owns the move")            \
    X(COPIED, none, BACKEND, MOVER | TIER, P,                                                                          \
      "The blocks of the move at work, or of the session's file, are read or written")                                 \
    X(MOVED, move, MOVER, TIER, RN_MOVES *P, "What came of it; the tier owns the move again")                          \
    X(PREFILL, request, TIER, PREFILL, S, "Blocks are leased; the prefill actor owns the request")                     \
    X(OFFER, request, PREFILL | VERIFIER, VERIFIER | DECODE, LESSER(S, RN_PROMPTS * P),                                \
      "A prompt whose turn it is; the verifier begins a stream if it drafts, then decode owns the request")            \
    X(LANE_FREE, lanes, DECODE, PREFILL, LESSER(S, RN_PROMPTS *P),                                                     \
      "Prompts are computed, or gone; as many may be offered")                                                         \
    X(GUIDE, outs, DECODE, SAMPLER, RN_STEPS *P,                                                                       \
      "A step with rows of grammars was submitted: the sampler makes their masks; it has the batch with STEP_DONE")    \
    X(STEP_DONE, batch, BACKEND, SAMPLER, RN_STEPS *P, "A forward pass is done; the sampler owns the batch")           \
    X(VERIFY, batch, SAMPLER, VERIFIER, P, "Likewise, of a step with streams that draft; the verifier owns the batch") \
    X(CUT, batch, VERIFIER, SAMPLER, P,                                                                                \
      "Likewise, with drafts of streams with grammars: the sampler cuts those that are refused, and owns the batch")   \
    X(SAMPLED, batch, SAMPLER | VERIFIER, DECODE, RN_STEPS * P,                                                        \
      "Each wanted row has its token, and what was verified its proposals; decode owns the batch again")               \
    X(PROPOSALS, proposals, VERIFIER | SAMPLER, SAMPLER | DECODE, P,                                                   \
      "Guesses for which decode has held its step back; the sampler cuts what grammars refuse; decode owns the list")  \
    X(PROPOSALS_BACK, proposals, DECODE, VERIFIER, P, "Decode has taken them; the verifier owns the list again")       \
    X(HALT, stream, DECODE, VERIFIER, S, "The request goes back to the tier: its stream waits for it")                 \
    X(TOKENS, tokens, DECODE, DETOKENIZER, RN_TOKEN_LISTS *P, "The events of one step; the detokenizer owns the list") \
    X(TOKENS_BACK, tokens, DETOKENIZER, DECODE, RN_TOKEN_LISTS *P, "The list is empty; decode owns it again")          \
    X(COMPUTED, computed, DECODE, TIER, RN_COMPUTED_LISTS *P,                                                          \
      "Prompts whose next blocks are full and computed; the tier owns the list")                                       \
    X(COMPUTED_BACK, computed, TIER, DECODE, RN_COMPUTED_LISTS *P,                                                     \
      "The tier has published them; decode owns the list again")                                                       \
    X(NEWS, news, VERIFIER, DRAFT, RN_NEWS_LISTS *P,                                                                   \
      "What streams that draft have now, what they want, or their end; the draft actor owns the list")                 \
    X(NEWS_BACK, news, DRAFT, VERIFIER, RN_NEWS_LISTS *P,                                                              \
      "The draft actor has taken it in; the verifier owns the list again")                                             \
    X(DRAFTED, none, DRAFTER, DRAFT, P, "A pass of the drafter is done")                                               \
    X(DRAFTS, drafts, DRAFT, VERIFIER, RN_DRAFTS_LISTS *P, "Guesses of what follows; the verifier owns the list")      \
    X(DRAFTS_BACK, drafts, VERIFIER, DRAFT, RN_DRAFTS_LISTS *P,                                                        \
      "The verifier has taken them; the draft actor owns the list again")                                              \
    X(STOPPED, stream, DETOKENIZER | DECODE | TIER | PREFILL | VERIFIER, DECODE | TIER | PREFILL | VERIFIER, S,        \
      "A stop string was found: no more tokens are needed; follows a preempted request")                               \
    X(TICK, none, RUNTIME, ROUTER, 1, "The time that was set with rn_runtime_alarm has come")                          \
    X(EXPIRE, stream, ROUTER | TIER | PREFILL | VERIFIER, TIER | PREFILL | VERIFIER | DECODE, 2 * S,                   \
      "The stream's deadline has passed: its request fails wherever it is")                                            \
    X(CACHE_DUE, stream, ROUTER, TIER, 2 * S, "The stream has waited for lower tiers as long as it wanted")            \
    X(GROW, stream, DECODE, TIER, S, "The sequence nears the end of its lease and wants n more blocks")                \
    X(GRANT, grant, TIER, DECODE, S, "n blocks for the sequence")                                                      \
    X(UNGRANT, grant, DECODE, TIER, S, "The sequence has gone meanwhile; the tier takes them back")                    \
    X(PREEMPT, stream, TIER | PREFILL | VERIFIER, PREFILL | VERIFIER | DECODE, 2 * S,                                  \
      "Its blocks are needed by another: whoever owns the request sends it back")                                      \
    X(PREEMPTED, request, PREFILL | DECODE, TIER, S,                                                                   \
      "The request comes back with what it has; the tier owns it again")                                               \
    X(READY, stream, DECODE, TIER, 2 * S, "The reader of a sequence that was given back has read on")                  \
    X(SHORT, shortage, TIER, DECODE, P, "So many blocks are wanted back from sequences whose readers are behind")      \
    X(SHORT_BACK, shortage, DECODE, TIER, P, "Heard; those that can be given back now have been")                      \
    X(WAKE_AT, wake, DECODE, ROUTER, P, "Decode has nothing to do until that time; it waits for WAKE")                 \
    X(WAKE, none, ROUTER, DECODE, P, "The time has come")                                                              \
    X(END, request, ROUTER | TIER | PREFILL | DECODE | VERIFIER | SAMPLER, SAMPLER | VERIFIER | DETOKENIZER, S,        \
      "The request has its outcome; the detokenizer completes the text")                                               \
    X(RETIRE, request, DETOKENIZER, TIER, 2 * S,                                                                       \
      "Blocks go back or stay with the session; the tier frees the request")                                           \
    X(ENDED, ended, TIER, ROUTER, 2 * S, "Nothing of the stream is left in the model's actors")                        \
    X(CLOSE, model, ROUTER, MODEL_ACTORS, P, "No request is left; the actor's last message")                           \
    X(GONE, model, RUNTIME, ROUTER, P, "The actor has been touched for the last time")

/* Payloads of which only so many exist, whatever messages carry them: objects that move with the message, and places of
 * sessions and models. A request: the stream's own, that of the slot's last stream on its way back, and one that the
 * router has ended. (The router holds one of another model until then: rn_route.) A session: its beginning and its end.
 * A model: its beginning, the end of its load, its end, and one more that goes from actor to actor. payload, count */
#define RN_OBJECTS(X)                 \
    X(request, 3 * S)                 \
    X(job, S)                         \
    X(session, 2 * N)                 \
    X(fork, N)                        \
    X(move, RN_MOVES *P)              \
    X(batch, RN_STEPS *P)             \
    X(tokens, RN_TOKEN_LISTS *P)      \
    X(computed, RN_COMPUTED_LISTS *P) \
    X(news, RN_NEWS_LISTS *P)         \
    X(drafts, RN_DRAFTS_LISTS *P)     \
    X(proposals, P)                   \
    X(model, 4 * P)

/* Kinds with several receivers of which there are fewer than the sum of what each of them can hold, since a message
 * about a stream goes from one to the next. One of the slot's stream, and one of an older stream for each place where
 * its request can have ended: the verifier and decode are one, since no request ends between them. What presupposes
 * tokens is of the last stream that decode had, whose messages it has handled before the next one's request: of CREDIT
 * two, each for half of what a reader may be behind, of CHOICE one, and one of a host that was slow to send it, of
 * STOPPED one, and one that follows the stream before. kind,
 * count */
#define RN_IN_ALL(X)  \
    X(CANCEL, 5 * S)  \
    X(CREDIT, 2 * S)  \
    X(CHOICE, 2 * S)  \
    X(STOPPED, 2 * S) \
    X(EXPIRE, 4 * S)  \
    X(PREEMPT, 3 * S)

enum rn_message_kind {
#define X(kind, payload, from, to, bound, meaning) RN_MSG_##kind,
    RN_MESSAGES(X)
#undef X
        RN_MSG_KINDS
};

struct rn_msg {
    struct rn_message head;
    union {
        struct rn_pay_request request;
        struct rn_pay_stream stream;
        struct rn_pay_choice choice;
        struct rn_pay_ended ended;
        struct rn_pay_session session;
        struct rn_pay_fork fork;
        struct rn_pay_job job;
        struct rn_pay_move move;
        struct rn_pay_batch batch;
        struct rn_pay_outs outs;
        struct rn_pay_tokens tokens;
        struct rn_pay_computed computed;
        struct rn_pay_news news;
        struct rn_pay_drafts drafts;
        struct rn_pay_proposals proposals;
        struct rn_pay_grant grant;
        struct rn_pay_shortage shortage;
        struct rn_pay_wake wake;
        struct rn_pay_lanes lanes;
        struct rn_pay_model model;
        struct rn_pay_none none;
    };
};
static_assert(sizeof(struct rn_msg) <= 64, "a message is one cache line");

/* "SUBMIT"; "?" for a number that is no kind. */
const char *rn_message_name(uint32_t kind);

#endif
