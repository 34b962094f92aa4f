/* What copies may cost: see copy_budget.h. */
#include "actors/tier/copy_budget.h"

#include <math.h>

#include "base/check.h"

#define WEIGHT 0.125 /* of the newest measurement */

void rn_copy_budget_init(struct rn_copy_budget *budget)
{
    *budget = (struct rn_copy_budget){.us = RN_COPY_BUDGET_INITIAL_US};
}

static void add(struct rn_copy_budget *budget, double us, double most)
{
    double room = most - budget->us;

    if (room > 0)
        budget->us += us < room ? us : room;
}

void rn_copy_budget_advance(struct rn_copy_budget *budget, uint64_t now_us, bool idle)
{
    if (budget->seen_us != 0 && now_us > budget->seen_us && !(idle && budget->was_idle))
        add(budget, (double)(now_us - budget->seen_us) / RN_COPY_BUDGET_BUSY_PART, RN_COPY_BUDGET_MAX_US);
    budget->seen_us = now_us;
    budget->was_idle = idle;
}

void rn_copy_budget_credit(struct rn_copy_budget *budget, uint64_t us)
{
    add(budget, (double)us / RN_COPY_BUDGET_SAVED_PART, RN_COPY_BUDGET_MAX_SAVED_US);
    RN_ASSERT(rn_copy_budget_check(budget));
}

bool rn_copy_budget_allows(const struct rn_copy_budget *budget, uint32_t n)
{
    return budget->us > 0 && (budget->us >= budget->block_us * n || budget->us >= RN_COPY_BUDGET_MAX_US / 2);
}

void rn_copy_budget_charge(struct rn_copy_budget *budget, uint32_t n, uint64_t us, bool for_nothing)
{
    double each = n > 0 ? (double)us / n : 0;

    if (n > 0)
        budget->block_us += budget->block_us == 0 ? each : WEIGHT * (each - budget->block_us);
    if (!for_nothing)
        budget->us -= (double)us;
    RN_ASSERT(rn_copy_budget_check(budget));
}

bool rn_copy_budget_check(const struct rn_copy_budget *budget)
{
    return budget->us <= RN_COPY_BUDGET_MAX_SAVED_US && isfinite(budget->us) && isfinite(budget->block_us) &&
           budget->block_us >= 0;
}
