/* What a sampler is: for the files of this room that draw from it. */
#ifndef RN_SAMPLING_SAMPLER_STATE_H
#define RN_SAMPLING_SAMPLER_STATE_H

#include "sampling/chain.h"
#include "sampling/counts.h"
#include "sampling/dry.h"
#include "sampling/sampler.h"

struct rn_sampler {
    struct rn_heap *heap;
    runnel_sampling params; /* params.biases is ours, params.samplers is &samplers; what the order leaves out is off */
    runnel_samplers samplers;
    struct rn_chain_order active; /* the samplers that act */
    uint32_t n_first;             /* so many of them, penalties and dry, come before all others */
    bool is_plain;                /* behind them no others than temperature, top-k, top-p, min-p in this order */
    uint32_t n_vocab;
    bool penalties; /* counts are kept */
    struct rn_counts counts;
    bool dry_on; /* tokens are kept */
    struct rn_dry dry;
    int32_t *ends; /* [n_ends] not drawn until the answer has ends_from tokens; the first n_never never */
    uint32_t n_ends, n_never;
    uint64_t ends_from;
    bool in_answer;
    uint64_t n_answered;
    struct rn_chain_state state;
    struct rn_choice *choice; /* of a sampler with `host`: where a draw's candidates go; lent */
};

struct rn_sampler_scratch {
    struct rn_heap *heap;
    const struct rn_loops *loops;
    uint32_t n_vocab;
    float *adjusted;             /* [n_vocab] logits after biases and penalties */
    uint64_t *keys;              /* [2 × n_vocab] for rn_order and rn_candidates */
    int32_t *tokens;             /* [n_vocab] what the filters have kept so far, best first; or a list's */
    double *weights;             /* [n_vocab] their weights; or a list's x */
    int32_t *lengths;            /* [n_vocab] 0 between picks: rn_dry_lengths */
    float *maxima, *raw_maxima;  /* [blocks of the noise] the greatest logit of each, adjusted and as it came */
    struct rn_runner_up *second; /* of the pick that is made; NULL: nobody asks */
};

/* True when the last sampler that acts has a state. */
static inline bool rn_sampler_is_stateful(const struct rn_sampler *s)
{
    uint32_t last = s->active.n > 0 ? s->active.kinds[s->active.n - 1] : RN_SAMPLERS;

    return last == RN_SAMPLER_mirostat || last == RN_SAMPLER_adaptive_p;
}

/* How many of the ends may not come behind so many tokens that the state has not been told of, where a mask does not
 * say that they may. */
static inline uint32_t rn_sampler_n_barred(const struct rn_sampler *s, uint32_t n_behind)
{
    /* Where there are no ends, how long the answer is may be changing meanwhile: several steps may be in flight then. */
    if (s->n_ends == 0)
        return 0;
    return s->n_answered + n_behind >= s->ends_from ? s->n_never : s->n_ends;
}

#endif
