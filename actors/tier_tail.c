/* Shared in part: see tier_tail.h. */
#include "actors/tier_tail.h"

#include "actors/context.h"

#define NO_SLOT UINT32_MAX
#define WORTH 8 /* of a block, the part from which on a copy is made: it holds the source too, until the request ends */

static uint32_t *place_of(struct rn_tier *tier, struct rn_prefix_ref at)
{
    return &tier->tails[at.node % RN_TAILS];
}

void rn_tier_tail_init(struct rn_tier *tier)
{
    for (uint32_t i = 0; i < RN_TAILS; i++)
        tier->tails[i] = NO_SLOT;
}

void rn_tier_tail_offer(struct rn_tier *tier, uint32_t slot)
{
    struct rn_passage *passage = &tier->passages[slot];
    struct rn_prefix_view view;

    if (passage->n_tail == 0 || passage->path.n_ready != passage->n_blocks ||
        !rn_prefix_tree_look(&tier->tree, passage->path.at, &view) || view.state != RN_PREFIX_READY ||
        view.block != passage->blocks[passage->n_blocks - 1])
        return;
    passage->tail_at = passage->path.at;
    passage->has_tail = true;
    *place_of(tier, passage->tail_at) = slot;
}

static bool is_at(const struct rn_passage *passage, struct rn_prefix_ref at)
{
    return passage->has_tail && passage->tail_at.node == at.node && passage->tail_at.generation == at.generation;
}

uint32_t rn_tier_tail_find(const struct rn_tier *tier, struct rn_prefix_ref at, const int32_t *ids, uint32_t n,
                           uint32_t *block)
{
    uint32_t per_block = tier->context->limits->block_tokens;
    uint32_t n_common = rn_prefix_tree_nearest(&tier->tree, at, ids, n, block), i = 0;
    uint32_t slot = at.node != RN_PREFIX_NO_NODE ? tier->tails[at.node % RN_TAILS] : NO_SLOT;

    if (slot != NO_SLOT && is_at(&tier->passages[slot], at)) {
        const struct rn_passage *passage = &tier->passages[slot];
        const int32_t *tail = passage->prompt + (size_t)passage->n_blocks * per_block;

        while (i < passage->n_tail && i < n && tail[i] == ids[i])
            i++;
        if (i > n_common) {
            n_common = i;
            *block = passage->blocks[passage->n_blocks];
        }
    }
    return n_common * WORTH >= per_block ? n_common : 0;
}
