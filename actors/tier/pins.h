/* Prefixes that a host has asked to keep, for the prefix cache alone: their blocks stay in the tree. At most RN_PINS of
 * them; one more takes the place of the oldest. They are let go of on request, and the oldest one where a request that
 * could run has no room otherwise: so pins never keep anybody from coming to an end. */
#ifndef RN_ACTORS_TIER_PINS_H
#define RN_ACTORS_TIER_PINS_H

#include "cache/prefix_tree.h"

#define RN_PINS 64u

struct rn_pins {
    struct rn_prefix_tree *tree;         /* borrowed */
    struct rn_prefix_ref nodes[RN_PINS]; /* [n], the oldest first */
    uint32_t n;
};

/* The whole prefix that ends in the node is kept; it, and all prefixes that it begins with, are let go of. */
void rn_pins_keep(struct rn_pins *pins, struct rn_prefix_ref node);
void rn_pins_let_go(struct rn_pins *pins, struct rn_prefix_ref node);

/* Lets go of the oldest; false: there is none. */
bool rn_pins_drop(struct rn_pins *pins);

/* False: one is kept twice, or is not pinned in the tree; or the tree has a pin of nobody's. Linear in nodes. */
bool rn_pins_check(const struct rn_pins *pins);

#endif
