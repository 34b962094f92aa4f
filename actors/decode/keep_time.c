/* See keep_time.h. */
#include "actors/decode/keep_time.h"

#include "base/check.h"

#define FADE 0.9         /* of what was measured, for each step with rows of prompts */
#define MOST_STALLS 32   /* the last ones count */
#define FIRST 3          /* the choice before any stall: an eighth of C */
#define MOST_COST 2.001f /* of a stall, in C: given up at the end of C, and computed again; and rounding */

/* C. */
static double longest_us(const struct rn_keep_time *keep, uint64_t n_places)
{
    return keep->prompt_rows > 0 ? keep->prompt_us / keep->prompt_rows * (double)n_places : 0;
}

/* K of a choice, in C. */
static float share_of(uint32_t choice)
{
    return choice + 1 < RN_KEEP_CHOICES ? 1 / (float)(1u << choice) : 0;
}

void rn_keep_time_note(struct rn_keep_time *keep, uint32_t n_prompt_rows, uint32_t n_rows, uint64_t us)
{
    RN_ASSERT(n_prompt_rows <= n_rows);
    if (n_prompt_rows == 0)
        return;
    keep->prompt_us = FADE * keep->prompt_us + (double)us * n_prompt_rows / n_rows;
    keep->prompt_rows = FADE * keep->prompt_rows + n_prompt_rows;
}

void rn_keep_time_stalled(struct rn_keep_time *keep, uint64_t us, uint64_t n_places)
{
    double longest = longest_us(keep, n_places);
    float stall, weight;

    if (longest <= 0)
        return;
    stall = (double)us < 2 * longest ? (float)((double)us / longest) : 2; /* longer ones are all alike */
    keep->n_stalls += keep->n_stalls < MOST_STALLS;
    weight = 1 / (float)keep->n_stalls;
    for (uint32_t i = 0; i < RN_KEEP_CHOICES; i++)
        keep->costs[i] += weight * ((stall <= share_of(i) ? stall : share_of(i) + 1) - keep->costs[i]);
}

uint64_t rn_keep_time_of(const struct rn_keep_time *keep, uint64_t n_places)
{
    uint32_t best = keep->n_stalls > 0 ? 0 : FIRST;

    for (uint32_t i = 1; i < RN_KEEP_CHOICES && keep->n_stalls > 0; i++)
        if (keep->costs[i] < keep->costs[best])
            best = i;
    return (uint64_t)(share_of(best) * longest_us(keep, n_places));
}

bool rn_keep_time_check(const struct rn_keep_time *keep)
{
    for (uint32_t i = 0; i < RN_KEEP_CHOICES; i++)
        if (!(keep->costs[i] >= 0 && keep->costs[i] <= MOST_COST) || (keep->n_stalls == 0 && keep->costs[i] > 0))
            return false;
    return keep->n_stalls <= MOST_STALLS && keep->prompt_us >= 0 && keep->prompt_rows >= 0 &&
           (keep->n_stalls == 0 || keep->prompt_rows > 0);
}
