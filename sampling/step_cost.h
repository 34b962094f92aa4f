/* What steps of a model take, by their number of rows, from noisy measurements: pure functions of them.
 *
 *   u(s), n(s)   time of steps of size s, smoothed; measurements that it stands for, up to a few
 *   v            how much single measurements spread: the mean of (measured / expected - 1)², of all sizes together
 *
 * The time of r rows is on the line between the two sizes around it, a weighted sum of their times; so is the rise from
 * r rows to r + k, a sum over up to four sizes with weights w(s), and its standard error is
 *
 *   d = sqrt( v sum of (w(s) u(s))² / n(s) )         by how much steps of r + k rows may be dearer than they look
 *
 * Where that says less than what would be guessed if nothing were known, the guess is what is in doubt. So a rise that
 * was measured once is in doubt by the machine's whole unrest, and one that was measured often is not.
 *
 * No thread of its own: it belongs to the actor that keeps it. */
#ifndef RN_SAMPLING_STEP_COST_H
#define RN_SAMPLING_STEP_COST_H

#include <stdbool.h>
#include <stdint.h>

#define RN_COST_EXACT 16u /* steps of so many rows have a measurement of their own ... */
#define RN_COST_SIZES 48u /* ... larger ones four for each doubling */

/* All 0: nothing is known. */
struct rn_step_cost {
    float us[RN_COST_SIZES];
    float rows[RN_COST_SIZES]; /* of the steps of a size, on average */
    uint8_t n[RN_COST_SIZES];  /* how many there were, up to a few; 0: us and rows say nothing */
    float spread;              /* v; says nothing before the first note */
    uint32_t n_notes;
};

/* A step of n_rows took so long. The other sizes follow a little: a machine that turns slower does so for all. */
void rn_step_cost_record(struct rn_step_cost *cost, uint32_t n_rows, uint64_t us);

/* Between two sizes that were measured, on the line between them; beyond all, as if four rows more than there are were
 * computed: a guess that lets a few more rows be tried, and not many. 0: nothing is known. */
float rn_step_cost_of(const struct rn_step_cost *cost, uint32_t n_rows);

/* What n_more rows, not 0, add to a step of n_rows, in µs, at least 0; its standard error in *doubt. Something is
 * known. */
float rn_step_cost_rise(const struct rn_step_cost *cost, uint32_t n_rows, uint32_t n_more, float *doubt);

/* How many measurements of steps of n_rows there are, if those were so few that one step that was held up has raised
 * their mean to (1 + 1/n) of what it should be, and it is time for another one; else 0. Not answered between two notes
 * only: for one step in ten with one measurement, in forty with two, in ninety with three. */
uint32_t rn_step_cost_doubtful(const struct rn_step_cost *cost, uint32_t n_rows);

/* Rows of the largest step that may be tried now. 0: nothing is known. */
uint32_t rn_step_cost_reach(const struct rn_step_cost *cost);

#endif
