/* How many drafts a sequence takes into a step: pure functions of what was measured.
 *
 *   a          rolling share of drafts that were accepted
 *   E(k)       tokens of a pass with k drafts: 1 + a + a² + ... + a^k
 *   c(r)       time of a step of r rows, measured
 *
 * In a step of r rows in which s sequences draw, k more rows pay if they raise tokens per time:
 *
 *   (s - 1 + E(k)) / c(r + k)  >  s / c(r)        the k for which the left side is greatest is taken
 *
 * So drafting ends by itself where rows are dear (many sequences, a slow machine) or drafts are bad. A sequence for
 * which no k pays rests for some steps, each time twice as many, and then tries a few drafts again: acceptance
 * changes along a text. Nothing here changes what is drawn, only how many at once. */
#ifndef RN_SAMPLING_SPECULATE_H
#define RN_SAMPLING_SPECULATE_H

#include <stdint.h>

#define RN_DRAFT_MOST 16u     /* drafts of a sequence in a step */
#define RN_DRAFT_DEFAULT 8u
#define RN_COST_EXACT 16u     /* steps of so many rows have a measurement of their own ... */
#define RN_COST_SIZES 24u     /* ... larger ones one for each doubling */

/* Times of steps by number of rows. All 0: nothing is known. */
struct rn_step_cost {
    float us[RN_COST_SIZES];
};

void rn_step_cost_note(struct rn_step_cost *cost, uint32_t n_rows, uint64_t us);

/* Between two sizes that were measured, on the line between them; beyond all, what the nearest takes: a size is tried
 * once before it is known to be dear. 0: nothing is known. */
float rn_step_cost_of(const struct rn_step_cost *cost, uint32_t n_rows);

struct rn_speculation {
    float acceptance;
    uint32_t rest;   /* steps without drafts still to come */
    uint32_t pause;  /* how long the next rest is */
    uint32_t trial;  /* 1: the next drafts are taken whatever is expected of them */
};

void rn_speculation_init(struct rn_speculation *speculation);

/* Drafts for the next step, at most `most`; n_rows, n_streams: what the step has without them, this sequence
 * included. */
uint32_t rn_speculation_length(struct rn_speculation *speculation, const struct rn_step_cost *cost, uint32_t n_rows,
                               uint32_t n_streams, uint32_t most);

/* Drafts do not pay now: none for a while, each time twice as long, and at least so many steps. */
void rn_speculation_rest(struct rn_speculation *speculation, uint32_t least);

/* Of n_drafted drafts of a step the first n_accepted were right. */
void rn_speculation_note(struct rn_speculation *speculation, uint32_t n_drafted, uint32_t n_accepted);

#endif
