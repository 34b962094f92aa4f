/* Every message between actors: one X-macro. It makes the enum, the names for the trace, the size
 * assertion and docs/MESSAGES.md (tests/actors/print_messages.c).
 *
 * The way of a request: host → router → tokenizer → tier → prefill → verifier → decode ⇄ backend → sampler →
 * decode → detokenizer → tier → router, while pieces go detokenizer → token ring → host. One that drafts passes the
 * verifier at its end, too, and a step with such streams comes to it between sampler and decode. A request
 * object moves: it has exactly one owner at a time. CANCEL, STOPPED and CREDIT carry a stream's slot and
 * generation. CANCEL passes the tokenizer by and meets the request at the tier or follows it from there,
 * tier → prefill → verifier → decode, always behind it: whoever owns the request ends it, and at the tier one that
 * comes too early waits for it. So a CANCEL goes no further than its request has gone, and none of an
 * older stream of the slot can be behind a newer one's request: that bounds it. EXPIRE and PREEMPT go the same way.
 *
 * The way of blocks: decode asks with GROW before a sequence has used up its lease, and GRANT brings more. Where
 * memory is short the tier takes a request back: PREEMPT follows it, and it returns as PREEMPTED, to be admitted again.
 *
 * Bounds: S streams, M models, N sessions at once. Every edge's bound follows from how often its message
 * can exist for one stream, so no send between actors is ever refused; the one place that refuses is
 * the host's submit, which returns BUSY when all S streams are taken. */
#ifndef RN_ACTORS_PROTOCOL_H
#define RN_ACTORS_PROTOCOL_H

#include <assert.h>
#include <stdint.h>

#include "mailbox/message.h"

struct rn_request;
struct rn_batch;
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
    uint32_t on; /* SHORT: give back what stalls; 0: no longer */
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

/* kind, payload, sender, receiver, bound of the edge, what it means and who owns what afterwards */
#define RN_MESSAGES(X)                                                                                                 \
    X(SUBMIT, request, "host", "router", "S",                                                                          \
      "A request that runnel_generate accepted; the router enters it in its directory")                                \
    X(CANCEL, stream, "host, router, tier, prefill, verifier", "router, tier, prefill, verifier, decode", "2 S",       \
      "Ends the stream wherever its request is")                                                                       \
    X(CREDIT, stream, "host, router", "router, decode", "2 S", "The host has consumed n events of the stream")         \
    X(SESSION_NEW, session, "host, router, tokenizer", "router, tokenizer, tier", "N",                                 \
      "The tier of the model enters the session in its list")                                                          \
    X(SESSION_FREE, session, "host, router, tokenizer", "router, tokenizer, tier", "N",                                \
      "Frees a session once its request has ended")                                                                    \
    X(SESSION_FORK, fork, "host, router, tokenizer", "router, tokenizer, tier", "N",                                   \
      "As SESSION_NEW; it becomes what another is once the turns in front of it have ended")                           \
    X(MODEL_NEW, model, "host", "router", "M", "A load begins; the router keeps the model in its list")                \
    X(MODEL_LOADED, model, "loader", "router", "M", "A load has ended, well or not; the router owns the model")        \
    X(MODEL_FREE, model, "host", "router", "M",                                                                        \
      "The host gives its handle back; the router cancels and, when quiet, frees")                                     \
    X(MODEL_FREED, model, "loader", "router", "M", "The model's parts are freed; only its address is left")            \
    X(ENGINE_CLOSE, none, "host", "router", "1", "Frees every model, then reports to the host bridge")                 \
    X(ENCODE, request, "router", "tokenizer", "S", "Text becomes tokens; the tokenizer owns the request")              \
    X(ADMIT, request, "tokenizer", "tier", "S", "Waits for its session and for blocks; the tier owns the request")     \
    X(JOB_DONE, job, "worker", "tier", "S",                                                                            \
      "A session's file is written or read, or could not be; the tier owns job and request")                           \
    X(MOVE, move, "tier", "mover", "moves",                                                                            \
      "Blocks to carry down or up, or to forget; or it stays until there is news; the mover owns the move")            \
    X(COPIED, none, "backend", "mover", "1", "The blocks of the move at work are read or written")                     \
    X(MOVED, move, "mover", "tier", "moves", "What came of it; the tier owns the move again")                          \
    X(PREFILL, request, "tier", "prefill", "S", "Blocks are leased; the prefill actor owns the request")               \
    X(OFFER, request, "prefill, verifier", "verifier, decode", "lanes and shorts",                                     \
      "A prompt whose turn it is; the verifier begins a lane if it drafts, then decode owns the request")              \
    X(LANE_FREE, lanes, "decode", "prefill", "lanes and shorts",                                                       \
      "Prompts are computed, or gone; as many may be offered")                                                         \
    X(STEP_DONE, batch, "backend", "sampler", "1", "A forward pass is done; the sampler owns the batch")               \
    X(VERIFY, batch, "sampler", "verifier", "1",                                                                       \
      "Likewise, of a step with streams that draft; the verifier owns the batch")                                      \
    X(SAMPLED, batch, "sampler, verifier", "decode", "1",                                                              \
      "Each wanted row has its token, and what was verified its proposals; decode owns the batch again")               \
    X(PROPOSALS, proposals, "verifier", "decode", "1",                                                                 \
      "Guesses for which decode has held its step back; decode owns the list")                                         \
    X(PROPOSALS_BACK, proposals, "decode", "verifier", "1", "Decode has taken them; the verifier owns the list again") \
    X(HALT, stream, "decode", "verifier", "S", "The request goes back to the tier: its lane waits for it")             \
    X(TOKENS, tokens, "decode", "detokenizer", "token lists", "The events of one step; the detokenizer owns the list") \
    X(TOKENS_BACK, tokens, "detokenizer", "decode", "token lists", "The list is empty; decode owns it again")          \
    X(COMPUTED, computed, "decode", "tier", "computed lists",                                                          \
      "Prompts whose next blocks are full and computed; the tier owns the list")                                       \
    X(COMPUTED_BACK, computed, "tier", "decode", "computed lists",                                                     \
      "The tier has published them; decode owns the list again")                                                       \
    X(NEWS, news, "verifier", "draft", "news lists",                                                                   \
      "What streams that draft have now, what they want, or their end; the draft actor owns the list")                 \
    X(NEWS_BACK, news, "draft", "verifier", "news lists",                                                              \
      "The draft actor has taken it in; the verifier owns the list again")                                             \
    X(DRAFTED, none, "drafter's backend", "draft", "1", "A pass of the drafter is done")                               \
    X(DRAFTS, drafts, "draft", "verifier", "drafts lists", "Guesses of what follows; the verifier owns the list")      \
    X(DRAFTS_BACK, drafts, "verifier", "draft", "drafts lists",                                                        \
      "The verifier has taken them; the draft actor owns the list again")                                              \
    X(STOPPED, stream, "detokenizer, decode, tier, prefill, verifier", "decode, tier, prefill, verifier", "S",         \
      "A stop string was found: no more tokens are needed; follows a preempted request")                               \
    X(TICK, none, "runtime", "router", "1", "The time that was set with rn_runtime_alarm has come")                    \
    X(EXPIRE, stream, "router, tier, prefill, verifier", "tier, prefill, verifier, decode", "2 S",                     \
      "The stream's deadline has passed: its request fails wherever it is")                                            \
    X(CACHE_DUE, stream, "router", "tier", "2 S", "The stream has waited for lower tiers as long as it wanted")        \
    X(GROW, stream, "decode", "tier", "S", "The sequence nears the end of its lease and wants n more blocks")          \
    X(GRANT, grant, "tier", "decode", "S", "n blocks for the sequence")                                                \
    X(UNGRANT, grant, "decode", "tier", "S", "The sequence has gone meanwhile; the tier takes them back")              \
    X(PREEMPT, stream, "tier, prefill, verifier", "prefill, verifier, decode", "2 S",                                  \
      "Its blocks are needed by another: whoever owns the request sends it back")                                      \
    X(PREEMPTED, request, "prefill, decode", "tier", "S",                                                              \
      "The request comes back with what it has; the tier owns it again")                                               \
    X(READY, stream, "decode", "tier", "2 S", "The reader of a sequence that was given back has read on")              \
    X(SHORT, shortage, "tier", "decode", "1",                                                                          \
      "From now on, or no longer, sequences whose readers are behind are given back")                                  \
    X(SHORT_BACK, shortage, "decode", "tier", "1", "Heard; those that stall now have been given back")                 \
    X(END, request, "router, tier, prefill, decode, verifier", "verifier, detokenizer", "S",                           \
      "The request has its outcome; the detokenizer completes the text")                                               \
    X(RETIRE, request, "detokenizer", "tier", "S",                                                                     \
      "Blocks go back or stay with the session; the tier frees the request")                                           \
    X(ENDED, ended, "tier", "router", "2 S", "Nothing of the stream is left in the model's actors")                    \
    X(CLOSE, model, "router", "every actor of a model", "1", "No request is left; the actor's last message")           \
    X(GONE, model, "runtime", "router", "actors of M models", "The actor has been touched for the last time")

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
        struct rn_pay_ended ended;
        struct rn_pay_session session;
        struct rn_pay_fork fork;
        struct rn_pay_job job;
        struct rn_pay_move move;
        struct rn_pay_batch batch;
        struct rn_pay_tokens tokens;
        struct rn_pay_computed computed;
        struct rn_pay_news news;
        struct rn_pay_drafts drafts;
        struct rn_pay_proposals proposals;
        struct rn_pay_grant grant;
        struct rn_pay_shortage shortage;
        struct rn_pay_lanes lanes;
        struct rn_pay_model model;
        struct rn_pay_none none;
    };
};
static_assert(sizeof(struct rn_msg) <= 64, "a message is one cache line");

/* "SUBMIT"; "?" for a number that is no kind. */
const char *rn_message_name(uint32_t kind);

#endif
