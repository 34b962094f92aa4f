/* Which positions are chosen by their scores: see chosen.c. */
#ifndef RN_CPU_CHOSEN_H
#define RN_CPU_CHOSEN_H

#include <stdint.h>

/* A score for each position, in one of two types; the other is NULL. */
struct rn_scores {
    const float *f32;
    const double *f64;
};

/* The n positions of the largest of `count` scores, ascending, to out; count >= n > 0. Which of equal scores are chosen
 * is said in chosen.c; what is no number comes last. */
void rn_chosen_largest(const struct rn_scores *scores, uint32_t count, uint32_t n, int32_t *out);

/* Of n positions those of `most` chosen blocks of `per`, ascending, to out[used], and behind them the positions from
 * `rest` on; -1 behind all. The blocks are the last `most` of out, ascending: what is written is never ahead of what is
 * read. used >= most * per. */
void rn_chosen_positions(int32_t *out, uint32_t used, uint32_t most, uint32_t per, uint32_t rest, uint32_t n);

#endif
