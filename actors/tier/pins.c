/* Prefixes that are kept: see pins.h. */
#include "actors/tier/pins.h"

#include <string.h>

#include "base/check.h"

static void drop(struct rn_pins *pins, uint32_t nth)
{
    RN_ASSERT(nth < pins->n && pins->n <= RN_PINS);
    rn_prefix_tree_unpin(pins->tree, pins->nodes[nth]);
    pins->n--;
    memmove(&pins->nodes[nth], &pins->nodes[nth + 1], (pins->n - nth) * sizeof pins->nodes[0]);
}

bool rn_pins_drop(struct rn_pins *pins)
{
    if (pins->n == 0)
        return false;
    drop(pins, 0);
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

void rn_pins_keep(struct rn_pins *pins, struct rn_prefix_ref node)
{
    if (find(pins, node) != RN_PINS || !rn_prefix_tree_pin(pins->tree, node))
        return;
    if (pins->n == RN_PINS)
        drop(pins, 0);
    RN_CHECK(pins->n < RN_PINS);
    pins->nodes[pins->n++] = node;
}

void rn_pins_let_go(struct rn_pins *pins, struct rn_prefix_ref node)
{
    struct rn_prefix_view view;

    for (; rn_prefix_tree_look(pins->tree, node, &view) && view.state != RN_PREFIX_ROOT; node = view.parent) {
        uint32_t nth = find(pins, node);

        if (nth != RN_PINS)
            drop(pins, nth);
    }
}

bool rn_pins_check(const struct rn_pins *pins)
{
    struct rn_prefix_view view;
    uint32_t n_here = 0;

    for (uint32_t i = 0; i < pins->n; i++) {
        bool here = rn_prefix_tree_look(pins->tree, pins->nodes[i], &view);

        if (find(pins, pins->nodes[i]) != i || (here && view.pins == 0))
            return false;
        n_here += here;
    }
    return pins->n <= RN_PINS && n_here == rn_prefix_tree_count_pins(pins->tree);
}
