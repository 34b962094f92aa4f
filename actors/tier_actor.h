/* The tier actor (cache-tier manager): decides who has KV blocks, and what is kept of what was computed. It takes
 * messages and hands them to three objects, each with a header that says what it means and owns:
 *
 *   admission.h     who waits for blocks, who has how many, sessions      calls the prefix cache
 *   prefix_cache.h  the blocks with the prefix tree, what is shared       calls the directory
 *   directory.h     which lower tiers have what; what the mover does      calls the blocks and their tree alone
 *
 * None calls one that stands above it here; what one needs to know of those above is given to it with the call, or
 * left in `woken` of the blocks, at which admission looks. */
#ifndef RN_ACTORS_TIER_ACTOR_H
#define RN_ACTORS_TIER_ACTOR_H

#include "actors/runtime/runtime.h"
#include "actors/tier/admission.h"
#include "actors/tier/directory.h"
#include "actors/tier/prefix_cache.h"

struct rn_context;

struct rn_tier {
    struct rn_actor actor; /* first */
    const struct rn_context *context;
    struct rn_admission admission;
    struct rn_prefix_cache cache;
    struct rn_directory directory;
    struct rn_msg *closing; /* the CLOSE that waits for the last answer of the mover */
};

/* n_numbers: those that the directory has; see rn_mover_places_for. NO_MEMORY: nothing is held. */
runnel_status rn_tier_init(struct rn_tier *tier, const struct rn_context *context, uint32_t n_numbers);
void rn_tier_fini(struct rn_tier *tier);

/* False: one of the objects is not whole, or they do not agree. Between two messages. Linear in blocks, nodes, streams,
 * sessions and entries. */
bool rn_tier_check(const struct rn_tier *tier);

#endif
