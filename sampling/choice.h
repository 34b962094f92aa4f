/* A draw that the host makes: the candidates that the samplers in front of `host` have left, and what comes of them.
 *
 *   rn_sampler_pick_masked ─▶ put ─▶ ask ─▶ the host changes logits, and ...
 *                                             names a place, or
 *                                             draw: the samplers behind `host` and the coin name one
 *                                          ─▶ take: the token at that place
 *
 * One of a stream, and for one draw at a time: it has one owner after the other, who hand it on. Candidates whose
 * logits the host leaves as they are keep all digits of theirs, so a host that changes nothing draws what the chain
 * without `host` draws. Nothing is allocated after rn_choice_new. */
#ifndef RN_SAMPLING_CHOICE_H
#define RN_SAMPLING_CHOICE_H

#include "base/alloc.h"
#include "sampling/chain.h"
#include "sampling/sampler.h"

/* In place of a place. */
#define RN_CHOICE_NO_PLACE UINT32_MAX       /* the host has named a candidate that does not exist */
#define RN_CHOICE_NOTHING (UINT32_MAX - 1u) /* nothing can be drawn from the host's logits */

struct rn_choice {
    struct rn_heap *heap;
    runnel_choose_fn choose;
    void *user;
    runnel_sampling params; /* &samplers in it */
    runnel_samplers samplers;
    struct rn_chain_order rest; /* the samplers behind `host` */
    struct rn_candidates list;  /* as it was put */
    struct rn_candidates left;  /* room for a draw */
    uint32_t most;              /* candidates at most */
    float *logits;              /* [n] as the host has them */
    float *logprobs;            /* [n]; NULL: none are wanted */
    uint64_t position;
    uint32_t n_top;
    runnel_logprob top[RUNNEL_MAX_TOP_LOGPROBS];
    int32_t *sequence; /* [n_sequence], with room for max_tokens */
    uint32_t n_sequence, max_tokens;
    uint64_t n_dropped;
    runnel_candidates shown;
};

/* Of a sampler with `host`, for sequences of at most max_tokens. NULL: memory was refused. */
struct rn_choice *rn_choice_new(struct rn_heap *heap, const struct rn_sampler *sampler, uint32_t max_tokens,
                                bool want_logprobs);
void rn_choice_free(struct rn_choice *choice); /* NULL is allowed */

/* What the samplers in front have left: copied. Not empty. Logprobs are put behind it. */
void rn_choice_put(struct rn_choice *choice, const struct rn_candidates *list, uint64_t position);

/* And the best tokens of the pick, if it has any. */
void rn_choice_take_top(struct rn_choice *choice, const struct rn_pick *pick);

/* The sequence so far: tokens[n], of which n_dropped have gone from between head and tail. Copies what is new. */
void rn_choice_tell(struct rn_choice *choice, const int32_t *tokens, uint32_t n, uint64_t n_dropped);

/* What the host is asked. */
runnel_candidates *rn_choice_ask(struct rn_choice *choice, uint64_t stream);

/* A place, or RN_CHOICE_NOTHING. */
uint32_t rn_choice_draw(struct rn_choice *choice);

/* The token at a place, with its logprobs. False: there is no such place. */
bool rn_choice_take(const struct rn_choice *choice, uint32_t place, struct rn_pick *pick);

#endif
