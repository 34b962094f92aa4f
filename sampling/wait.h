/* Is it worth holding a step back until a drafter has made more guesses? A pure function of what was measured.
 *
 * After j passes of the drafter, d each, stream i of those that draft has n(i) + j guesses and takes k(i), at most
 * most(i) of them; a(i) is how many of its guesses are right. With p rows that draft nothing, and c(r) the time of a
 * step of r rows, waiting j passes gives
 *
 *   tokens(j)  =  p + sum of E(a(i), k(i)),     E(a, k) = 1 + a + a² + ... + aᵏ,     in the time c(rows) + j d
 *
 * A drafter that takes turns with the model: the j of the most tokens per time. So a cheap drafter is waited for and a
 * dear one never, whatever their size.
 *
 * One that works beside the model makes m = c / d guesses while the step runs. If all k and the token behind them were
 * right, which happens with a^(k+1), the next step has m - 1 guesses without waiting. What that is worth, G tokens,
 * and the tokens per time L that come of it all, follow from each other (a Markov chain of two states, begun with
 * guesses and without):
 *
 *   L = most over j of (tokens(j) + sum of a^(k+1) G) / time(j)          from a state without guesses
 *   G = (E(a, m-1) - L c / streams) / (1 - a^m)                          not below 0
 *
 * A few rounds of the two settle it; then the j of the greatest  tokens(j) + sum of a^(k+1) G - L time(j)  is waited
 * for. So one step is rather begun early, with few guesses, than the chain of those after it broken. */
#ifndef RN_SAMPLING_WAIT_H
#define RN_SAMPLING_WAIT_H

#include <stdbool.h>

#include "sampling/speculate.h"

struct rn_wait_stream {
    float acceptance;
    uint32_t n, most; /* guesses that are there, and that it can take */
    float gain;       /* G; the function's own */
};

struct rn_wait {
    struct rn_wait_stream *streams; /* [n_streams] */
    uint32_t n_streams, n_plain;
    const struct rn_step_cost *cost;
    uint32_t pass_us, most_passes;
    bool beside; /* the drafter works while the model does */
};

/* How many passes to wait for; 0: go on with what there is. Nothing is waited for before a step's time is known. Takes
 * O(RN_DRAFT_MOST × n_streams) steps. */
uint32_t rn_wait_passes(const struct rn_wait *wait);

#endif
