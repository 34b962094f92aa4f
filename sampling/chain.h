/* The samplers of a chain, one by one, over a list of candidates. A token that the list has lost is not drawn.
 *
 *   x(i)      what a candidate has come to: its logit at first; a sampler changes it, or drops candidates
 *   z(i)      x(i) - the greatest x
 *   w(i)      exp z(i) as a whole number of 2^-RN_WEIGHT_BITS, to the nearest: sums of them depend on no order
 *   W         their sum
 *   p(i)      w(i) / W
 *   ln p(i)   z(i) - ln(W / 2^RN_WEIGHT_BITS)
 *   H         -sum p(i) ln p(i), in ascending order of ids
 *   better    greater x; of equal ones the lower id
 *
 *   penalties    see sampler.h, on x
 *   dry          x - multiplier × base^(length - allowed length): dry.h
 *   temperature  x / T, or with T = 0 the best alone. With a range R: T = low + (high - low) × (H / ln n)^exponent, low
 *                and high being T - R, 0 at least, and T + R; where one candidate is left, nothing happens
 *   top_n_sigma  drops z < -n × the standard deviation of all x
 *   top_k        keeps the k best
 *   typical_p    keeps the shortest list in ascending order of |-ln p - H|, then of ids, whose w sum to typical_p × W
 *   top_p        keeps the shortest list from the best down whose w sum to top_p × W
 *   min_p        drops z < ln min_p
 *   xtc          with the probability of its coin (noise.h): of those with p of at least the threshold keeps only the
 *                worst
 *   mirostat 1   estimates s of Zipf's law from the 100 best: s = sum of t(i) b(i) / sum of t(i)², i from 1,
 *                t(i) = ln((i + 1) / i), b(i) = ln(p(i) / p(i+1)); keeps the k best, k = (e 2^mu / (1 - N^-e))^(1/s),
 *                e = s - 1, N the vocabulary (Basu et al., 2021)
 *   mirostat 2   drops what has more than mu bits of surprise, -log2 p; the best stays
 *   adaptive_p   x = 5 - 10 d² / (1 + d), d = |p - t| / 0.3 (MrJackSpade, ddh0, 2026)
 *
 *   host         the host changes x, or names the token: choice.h
 *
 * Then the coin: the greatest z + G. What mirostat and adaptive_p remember changes with the token that was drawn:
 *
 *   mirostat     mu starts at 2 tau; mu - eta × (the token's bits among what was kept - tau)
 *   adaptive_p   sum starts at target / (1 - decay), count at 1 / (1 - decay); sum = p + decay × sum, count = 1 +
 *                decay × count, p that of the token before the change; t = 2 target - sum / count, within [0, 1]
 *
 * A pure function of (request, tokens so far): the logits are one of the tokens so far, too. */
#ifndef RN_SAMPLING_CHAIN_H
#define RN_SAMPLING_CHAIN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "sampling/levels/loops.h"
#include "runnel_fields.h"

#define RN_SAMPLER_ENUM(name, needs, text) RN_SAMPLER_##name,
enum rn_sampler_kind { RUNNEL_SAMPLER_NAMES(RN_SAMPLER_ENUM) RN_SAMPLERS };

/* Which samplers act, in their order. */
struct rn_chain_order {
    uint8_t kinds[RN_SAMPLERS];
    uint32_t n;
};

/* Reads runnel_samplers.order; NULL: the order of the table. Besides the names of the table those that llama.cpp gives
 * them: temp, typical, typ, typ_p, nucleus, and a hyphen or nothing for an underscore. INVALID: a name that is not
 * known, one given twice, or mirostat or adaptive_p not last. */
runnel_status rn_chain_order_read(const char *text, struct rn_chain_order *order, runnel_error *error);

/* Of an order, those samplers that the parameters switch on; host, mirostat and adaptive_p also where they are not
 * named. */
void rn_chain_order_active(const struct rn_chain_order *order, const runnel_sampling *params,
                           const runnel_samplers *samplers, struct rn_chain_order *active);

/* What a stateful sampler has come to: mu; or sum and count. */
struct rn_chain_state {
    double a, b;
};

struct rn_chain_state rn_chain_begin(const runnel_samplers *samplers);

/* The list. Ascending ids; x finite. */
struct rn_candidates {
    const struct rn_loops *loops;
    int32_t *tokens;          /* [n] */
    double *x;                /* [n] */
    uint64_t *keys, *weights; /* [n] room */
    uint32_t n;
    uint32_t n_vocab;
    double best; /* the greatest x */
};

/* What the coin needs, and what a sampler reads besides the list. */
struct rn_chain_draw {
    const runnel_sampling *params;
    const runnel_samplers *samplers;
    uint64_t position;
    struct rn_chain_state state;
};

/* One sampler other than penalties, dry and host. At least one candidate is left. */
void rn_chain_apply(enum rn_sampler_kind kind, const struct rn_chain_draw *draw, struct rn_candidates *list);

/* The coin. *after: the state with this token drawn, if the last sampler has one; kind: the last sampler. Returns the
 * candidate's place in the list. */
uint32_t rn_chain_toss(enum rn_sampler_kind kind, const struct rn_chain_draw *draw, struct rn_candidates *list,
                       struct rn_chain_state *after);

/* Fills weights; returns W. */
uint64_t rn_chain_weigh(struct rn_candidates *list);

#endif
