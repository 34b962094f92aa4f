/* What copies may cost: see tier_purse.h. */
#include "actors/tier_purse.h"

#define WEIGHT 0.125 /* of the newest measurement */

void rn_tier_purse_init(struct rn_tier_purse *purse)
{
    *purse = (struct rn_tier_purse){.us = RN_PURSE_FIRST_US};
}

static void add(struct rn_tier_purse *purse, double us, double most)
{
    double room = most - purse->us;

    if (room > 0)
        purse->us += us < room ? us : room;
}

void rn_tier_purse_pass(struct rn_tier_purse *purse, uint64_t now_us, bool idle)
{
    if (purse->seen_us != 0 && now_us > purse->seen_us && !(idle && purse->was_idle))
        add(purse, (double)(now_us - purse->seen_us) / RN_PURSE_BUSY_PART, RN_PURSE_MOST_US);
    purse->seen_us = now_us;
    purse->was_idle = idle;
}

void rn_tier_purse_save(struct rn_tier_purse *purse, uint64_t us)
{
    add(purse, (double)us / RN_PURSE_SAVED_PART, RN_PURSE_MOST_SAVED_US);
}

bool rn_tier_purse_affords(const struct rn_tier_purse *purse, uint32_t n)
{
    return purse->us > 0 && (purse->us >= purse->block_us * n || purse->us >= RN_PURSE_MOST_US / 2);
}

void rn_tier_purse_spend(struct rn_tier_purse *purse, uint32_t n, uint64_t us, bool for_nothing)
{
    double each = n > 0 ? (double)us / n : 0;

    if (n > 0)
        purse->block_us += purse->block_us == 0 ? each : WEIGHT * (each - purse->block_us);
    if (!for_nothing)
        purse->us -= (double)us;
}
