/* See expert_policy.h. */
#include "gpu/expert_policy.h"

#include "base/check.h"

enum { DEVIATIONS = 3 };

void rn_expert_scores_add(uint32_t *scores, const uint32_t *fresh, uint32_t n, uint64_t *age)
{
    bool is_old;

    for (uint32_t e = 0; e < n; e++)
        *age += fresh[e];
    is_old = *age >= (uint64_t)n * RN_EXPERT_PERIOD;
    for (uint32_t e = 0; e < n; e++)
        scores[e] = (uint32_t)(((uint64_t)scores[e] + fresh[e]) >> is_old);
    *age = is_old ? 0 : *age;
}

/* A count of uses that come by chance varies by its root; of two counts a and b the difference by that of a + b. */
static bool is_clear(uint64_t more, uint64_t less)
{
    return more > less && (more - less) * (more - less) > DEVIATIONS * DEVIATIONS * (more + less);
}

bool rn_expert_choose(const uint32_t *scores, const int32_t *place, uint32_t n, bool has_room, uint32_t *in,
                      uint32_t *out)
{
    uint32_t best = n, worst = n;

    for (uint32_t e = 0; e < n; e++) {
        if (place[e] == RN_EXPERT_NOWHERE && (best == n || scores[e] > scores[best]))
            best = e;
        if (place[e] >= 0 && (worst == n || scores[e] < scores[worst]))
            worst = e;
    }
    *in = best;
    *out = has_room ? n : worst;
    if (best == n || scores[best] == 0)
        return false;
    RN_ASSERT(place[best] == RN_EXPERT_NOWHERE);
    return has_room || (worst < n && is_clear(scores[best], scores[worst]));
}
