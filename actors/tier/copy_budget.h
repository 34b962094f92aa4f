/* What copies into lower tiers may cost those who compute. A copy is packed and written by the mover, on a processor
 * that a step could use; most copies are never asked for again. So they are paid from a budget, in microseconds of the
 * mover's processor time:
 *
 *   comes in   1/100 of the time that passes while somebody computes, as long as that does not fill it beyond MOST
 *              1/2 of the time that hits in lower tiers have saved, as long as that does not fill it beyond MOST_SAVED
 *   goes out   what each move has taken, once it is back; nothing for one that was made while nobody computed
 *
 *   all that was spent  <=  FIRST + busy / 100 + saved / 2 + what the last move took beyond what there was
 *
 * A move is begun if the budget has what one is expected to cost (or is half full, should one cost more). What cannot
 * be paid is not copied: an eviction drops it. So a storm of prefixes that never come again costs little more than
 * 1/100 of the time, 1/50 where a step of two threads waits for the one whose processor a copy has; and tiers that are
 * asked earn what their copies cost.
 *
 * Pure: the tier actor's. */
#ifndef RN_ACTORS_TIER_COPY_BUDGET_H
#define RN_ACTORS_TIER_COPY_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

#define RN_COPY_BUDGET_INITIAL_US 50000.0 /* so that a first long prompt can be kept */
#define RN_COPY_BUDGET_MAX_US 100000.0    /* of time that has passed; a busy hour does not buy a busy second */
#define RN_COPY_BUDGET_MAX_SAVED_US 5000000.0
#define RN_COPY_BUDGET_BUSY_PART 100u
#define RN_COPY_BUDGET_SAVED_PART 2u

struct rn_copy_budget {
    double us;
    double block_us;  /* of a block that was copied, on average; 0: not known */
    uint64_t seen_us; /* the clock when rn_copy_budget_advance was called last; 0: never */
    bool was_idle;    /* then */
};

void rn_copy_budget_init(struct rn_copy_budget *budget);

/* It is now_us by a clock that never goes back, and somebody computes, or not. What passes between two moments at which
 * nobody does is not paid for. */
void rn_copy_budget_advance(struct rn_copy_budget *budget, uint64_t now_us, bool idle);

/* Blocks that have come up have saved so much computing. */
void rn_copy_budget_credit(struct rn_copy_budget *budget, uint64_t us);

/* A move of n blocks may be begun. */
bool rn_copy_budget_allows(const struct rn_copy_budget *budget, uint32_t n);

/* What there is and what a block costs are numbers within the bounds above. */
bool rn_copy_budget_check(const struct rn_copy_budget *budget);

/* One of n blocks (0: it did something else) has taken so long. */
void rn_copy_budget_charge(struct rn_copy_budget *budget, uint32_t n, uint64_t us, bool for_nothing);

#endif
