/* What a chain of guesses may come to, for who goes on guessing before that is known. A pure function of what was
 * measured of the stream's guesses (speculate.h).
 *
 *   a, b, f    shares: of first guesses that are right; of later ones, those before them being right; of runners-up
 *              that were the token, over what was told of them
 *   R(n)       the first n are all right: 1, a, a b, a b² ...
 *   S(i)       those before guess i are right, it is wrong and its runner-up right, i counted from 0:
 *              R(i) × min(f share(i), 1 - R(i + 1) / R(i))
 *
 * The runner-up is no likelier than what the guess leaves to all others together. One that is a row of the step itself,
 * a leaf, brings another token with it, drawn behind it: a guess of that must be right too, S(i) b. */
#ifndef RN_SAMPLING_ODDS_H
#define RN_SAMPLING_ODDS_H

#include "sampling/speculate.h"

struct rn_odds {
    float first, later, second; /* a, b, f */
};

/* As measured so far; before that, what is assumed. */
struct rn_odds rn_odds_of(const struct rn_speculation *speculation);

/* R(n). */
float rn_odds_reach(const struct rn_odds *odds, uint32_t n);

/* Of n guesses, at most 32, the one behind whose runner-up a guess is likeliest to be of use, the first of those, and
 * how likely that is in *chance: S(i), or S(i) b where bit i of leaves says so. shares[n] in [0, 1], 0: it has no
 * runner-up. Where none has a chance: 0, and *chance is 0. */
uint32_t rn_odds_best_branch(const struct rn_odds *odds, const float *shares, uint32_t n, uint32_t leaves,
                             float *chance);

#endif
