/* Prefixes that a host has asked to keep, for the tier alone: their blocks stay in the tree. At most RN_PINS of them;
 * one more takes the place of the oldest. They are let go of on request, and the oldest one where a request that could
 * run has no room otherwise: so pins never keep anybody from coming to an end. */
#ifndef RN_ACTORS_TIER_PIN_H
#define RN_ACTORS_TIER_PIN_H

#include "cache/prefix_tree.h"

struct rn_tier;
struct rn_request;

#define RN_PINS 64u

struct rn_pins {
    struct rn_prefix_ref nodes[RN_PINS]; /* [n], the oldest first */
    uint32_t n;
};

/* Does what the request asks for with its prompt's whole blocks; the tree has its first n blocks, of which `last` is
 * the last. */
void rn_tier_pin(struct rn_tier *tier, const struct rn_request *request, struct rn_prefix_ref last, uint32_t n);

/* Lets go of the oldest; false: there is none. */
bool rn_tier_drop_pin(struct rn_tier *tier);

#endif
