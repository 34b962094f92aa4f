/* How long a sequence whose reader is behind keeps its blocks while others wait for blocks. To give them up too early
 * is dear: once the reader has read on, all of it is computed again. To keep them too long holds the others up. Both
 * are counted in time:
 *
 *   C           time of computing all positions for which there is room. A sequence that has a share s of the room
 *               holds up a share s of the work while it stalls, and costs s C if it is computed again
 *   stall of t  kept for K it costs   s t   if t <= K,   else   s (K + C)
 *
 * So K is the same for all, and C is the longest that can be right: who has kept it for that long has lost as much as
 * computing again would have cost (as one rents skis until the rent has come to their price: never more than twice of
 * what was needed). Which K is best follows from how long readers stall. Each stall tells what it would have cost with
 * each of a few K, from 0 to C; the one of the least mean is taken:
 *
 *   - readers that pause for less than C keep their blocks, and next to nothing is computed again;
 *   - readers that pause for much longer give them up at once, as others use the time better.
 *
 * Pure: the decode actor's. Times are of a clock that never goes back. */
#ifndef RN_ACTORS_DECODE_KEEP_TIME_H
#define RN_ACTORS_DECODE_KEEP_TIME_H

#include <stdbool.h>
#include <stdint.h>

#define RN_KEEP_CHOICES 8u /* C, C / 2, C / 4 ... and 0 */

struct rn_keep_time {
    double prompt_us, prompt_rows; /* of the last rows of prompts; rows 0: nothing is known */
    float costs[RN_KEEP_CHOICES];  /* of a stall, by how long it is kept, on average; in s C */
    uint32_t n_stalls;             /* for which they stand, up to a few */
};

/* A step of n_rows, of which so many of prompts, took us. */
void rn_keep_time_note(struct rn_keep_time *keep, uint32_t n_prompt_rows, uint32_t n_rows, uint64_t us);

/* A reader was behind for us, and has read on; there is room for n_places positions in all. */
void rn_keep_time_stalled(struct rn_keep_time *keep, uint64_t us, uint64_t n_places);

/* K, in µs; 0 while no prompt has been measured. */
uint64_t rn_keep_time_of(const struct rn_keep_time *keep, uint64_t n_places);

/* Costs are of stalls that there were, and none is more than the worst choice's. */
bool rn_keep_time_check(const struct rn_keep_time *keep);

#endif
