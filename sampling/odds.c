/* What a chain of guesses may come to: see odds.h. */
#include "sampling/odds.h"

struct rn_odds rn_odds_of(const struct rn_speculation *speculation)
{
    return (struct rn_odds){
        .first = speculation->first, .later = speculation->later, .second = speculation->seconds / speculation->shares};
}

float rn_odds_reach(const struct rn_odds *odds, uint32_t n)
{
    float reach = n > 0 ? odds->first : 1;

    for (uint32_t i = 1; i < n; i++)
        reach *= odds->later;
    return reach;
}

uint32_t rn_odds_best_branch(const struct rn_odds *odds, const float *shares, uint32_t n, uint32_t leaves,
                             float *chance)
{
    float reach = 1, right = odds->first;
    uint32_t best = 0;

    *chance = 0;
    for (uint32_t i = 0; i < n; i++) {
        float second = odds->second * shares[i];
        float here = reach * (second < 1 - right ? second : 1 - right);

        here *= (leaves >> i & 1) != 0 ? odds->later : 1;
        if (here > *chance) {
            *chance = here;
            best = i;
        }
        reach *= right;
        right = odds->later;
    }
    return best;
}
