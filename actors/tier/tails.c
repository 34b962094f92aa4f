/* Shared in part: see tails.h. */
#include "actors/tier/tails.h"
#include "base/check.h"

#define NO_SLOT UINT32_MAX

void rn_tails_init(struct rn_tails *tails, struct rn_prefix_tree *tree, const struct rn_cached_stream *streams)
{
    *tails = (struct rn_tails){.tree = tree, .streams = streams};
    for (uint32_t i = 0; i < RN_TAILS; i++)
        tails->slots[i] = NO_SLOT;
}

void rn_tails_offer(struct rn_tails *tails, struct rn_cached_stream *stream, uint32_t slot)
{
    struct rn_prefix_view view;

    if (stream->n_tail == 0 || stream->path.n_ready != stream->n_blocks ||
        !rn_prefix_tree_look(tails->tree, stream->path.at, &view) || view.state != RN_PREFIX_READY ||
        view.block != stream->blocks[stream->n_blocks - 1])
        return;
    RN_ASSERT(stream == &tails->streams[slot] && stream->path.state == RN_PATH_ENTERED);
    stream->tail_at = stream->path.at;
    stream->has_tail = true;
    tails->slots[stream->tail_at.node % RN_TAILS] = slot;
}

static bool is_at(const struct rn_cached_stream *stream, struct rn_prefix_ref at)
{
    return stream->has_tail && stream->tail_at.node == at.node && stream->tail_at.generation == at.generation;
}

uint32_t rn_tails_find(const struct rn_tails *tails, struct rn_prefix_ref at, const int32_t *ids, uint32_t n,
                       uint32_t *block)
{
    uint32_t per_block = tails->tree->options.block_tokens;
    uint32_t n_common = rn_prefix_tree_nearest(tails->tree, at, ids, n, block), i = 0;
    uint32_t slot = at.node != RN_PREFIX_NO_NODE ? tails->slots[at.node % RN_TAILS] : NO_SLOT;

    if (slot != NO_SLOT && is_at(&tails->streams[slot], at)) {
        const struct rn_cached_stream *stream = &tails->streams[slot];
        const int32_t *tail = stream->prompt + (size_t)stream->n_blocks * per_block;

        while (i < stream->n_tail && i < n && tail[i] == ids[i])
            i++;
        if (i > n_common) {
            n_common = i;
            *block = stream->blocks[stream->n_blocks];
        }
    }
    RN_ASSERT(n_common <= n && n_common <= per_block);
    return n_common;
}

bool rn_tails_check(const struct rn_tails *tails, uint32_t n_streams)
{
    uint32_t per_block = tails->tree->options.block_tokens;

    for (uint32_t i = 0; i < RN_TAILS; i++)
        if (tails->slots[i] != NO_SLOT && tails->slots[i] >= n_streams)
            return false;
    for (uint32_t slot = 0; slot < n_streams; slot++) {
        const struct rn_cached_stream *stream = &tails->streams[slot];

        if (stream->n_tail >= per_block || (stream->n_tail > 0 && stream->prompt == NULL))
            return false;
        if (stream->has_tail &&
            (stream->path.n_ready != stream->n_blocks || tails->slots[stream->tail_at.node % RN_TAILS] == NO_SLOT))
            return false;
    }
    return true;
}
