/* The sampler's part of grammars: a matcher for each stream that has one, and the masks that streams of one grammar
 * share.
 *
 *     GUIDE      a step was submitted       makes the mask of each of its guided rows: behind the stream's tokens and
 *                                           the row's drafts
 *     STEP_DONE  the step is done           takes the tokens that were drawn
 *     CUT        the next drafts are chosen  drops those that are refused; likewise PROPOSALS
 *     END        the request has ended      forgets the stream
 *
 * A stream's matcher is made for its first row. It stays while its request is with the tier, having been preempted, and
 * goes with the end, wherever that is. The sampler actor's own. */
#ifndef RN_ACTORS_GRAMMAR_MATCHERS_H
#define RN_ACTORS_GRAMMAR_MATCHERS_H

#include "actors/batch.h"
#include "actors/protocol.h"
#include "sampling/grammar/cache.h"
#include "sampling/grammar/matcher.h"

/* Masks that no stream uses are kept up to so many bytes, together with those in use. A grammar's are at most 24 MiB
 * (rn_masks_limits_default), most have less than one. */
#define RN_MATCHERS_BYTES (128u << 20)

struct rn_choice;

struct rn_matchers_stream {
    uint32_t generation;             /* 0: none */
    uint64_t n_taken;                /* tokens of the answer that the matcher has */
    struct rn_grammar_cached *entry; /* its grammar's masks */
    struct rn_matcher *matcher;
};

struct rn_matchers {
    struct rn_heap *heap;
    struct rn_grammar_cache *cache;     /* masks, by the number of the compiled grammar; made for the first stream */
    struct rn_matchers_stream *streams; /* [n_streams], by slot; likewise */
    uint32_t n_streams;
};

void rn_matchers_init(struct rn_matchers *matchers, struct rn_heap *heap, uint32_t n_streams);
void rn_matchers_fini(struct rn_matchers *matchers);

/* Of a step in flight: its outs[n] are lent, and but for their guides only read. */
void rn_matchers_guide(struct rn_matchers *matchers, const struct rn_batch_out *outs, uint32_t n);

/* Of a step that is done: takes what was drawn, in the order of rows, and sets rn_batch_out.ended and last. */
void rn_matchers_take(struct rn_matchers *matchers, struct rn_batch *batch);

/* Of drafts for the next step: those that the grammar of their stream refuses go, and all behind them; where it allows
 * the runner-up of one that it refuses, that takes its place. Tokens from n_vocab on are none. Returns how many
 * went. */
uint32_t rn_matchers_cut(struct rn_matchers *matchers, struct rn_proposal_list *list, uint32_t n_vocab);

/* A stream whose host draws has its token now: sets status, ended and last. A place that does not exist is left
 * alone. */
bool rn_matchers_has(const struct rn_matchers *matchers, uint32_t slot, uint32_t generation);
void rn_matchers_choose(struct rn_matchers *matchers, const struct rn_choice *candidates, struct rn_pay_choice *choice);

/* The request ends. */
void rn_matchers_forget(struct rn_matchers *matchers, struct rn_request *request);

bool rn_matchers_check(const struct rn_matchers *matchers);

#endif
