/* Prefixes that are kept: see tier_pin.h. */
#include "actors/tier_pin.h"

#include <string.h>

#include "actors/context.h"
#include "actors/tier_actor.h"

static void drop(struct rn_tier *tier, uint32_t nth)
{
    struct rn_pins *pins = &tier->pins;

    rn_prefix_tree_unpin(&tier->tree, pins->nodes[nth]);
    pins->n--;
    memmove(&pins->nodes[nth], &pins->nodes[nth + 1], (pins->n - nth) * sizeof pins->nodes[0]);
}

bool rn_tier_drop_pin(struct rn_tier *tier)
{
    if (tier->pins.n == 0)
        return false;
    drop(tier, 0);
    return true;
}

/* RN_PINS: it is not pinned. */
static uint32_t find(const struct rn_pins *pins, struct rn_prefix_ref node)
{
    for (uint32_t i = 0; i < pins->n; i++)
        if (pins->nodes[i].node == node.node && pins->nodes[i].generation == node.generation)
            return i;
    return RN_PINS;
}

static void keep(struct rn_tier *tier, struct rn_prefix_ref node)
{
    if (find(&tier->pins, node) != RN_PINS || !rn_prefix_tree_pin(&tier->tree, node))
        return;
    if (tier->pins.n == RN_PINS)
        drop(tier, 0);
    tier->pins.nodes[tier->pins.n++] = node;
}

/* Of all prefixes that it begins with. */
static void let_go(struct rn_tier *tier, struct rn_prefix_ref node)
{
    struct rn_prefix_view view;

    for (; rn_prefix_tree_look(&tier->tree, node, &view) && view.state != RN_PREFIX_ROOT; node = view.parent) {
        uint32_t nth = find(&tier->pins, node);

        if (nth != RN_PINS)
            drop(tier, nth);
    }
}

void rn_tier_pin(struct rn_tier *tier, const struct rn_request *request, struct rn_prefix_ref last, uint32_t n)
{
    uint32_t n_prompt = request->n_prompt / tier->context->limits->block_tokens;
    struct rn_prefix_view view;

    if (request->pin_prefix == 0 || n == 0 || n_prompt == 0)
        return;
    while (rn_prefix_tree_look(&tier->tree, last, &view) && view.n_blocks > n_prompt)
        last = view.parent;
    if (request->pin_prefix == 1)
        keep(tier, last);
    else
        let_go(tier, last);
}
