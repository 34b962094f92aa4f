/* Blocks that are shared in part, for the prefix cache alone: a prompt goes on behind its last shared block like
 * another one, and then differs, or ends.
 *
 *   leader    | block 7 | block 4 | The owl sat. Wh ...      its own block, into which it goes on writing
 *   follower  | block 7 | block 4 | The owl sat. An ...      a copy of that block, made by the step of its first rows
 *                                   └── n_common ──┘ need no computing
 *
 * The source is a whole block of the tree, or the tail of a prompt: what a running request has computed behind its last
 * whole block. Tokens are compared, never hashes. A tail is offered only by the request that has computed the whole
 * block before it, and that the tree has of it: should that request turn out bad, the tree forgets the block with
 * all that was built behind it, and so whatever was built on the tail. Positions of a sequence are written once, in
 * order: what is copied never changes under its writer's hands.
 *
 * What a request leaves behind its last whole block when it ends is in cache/partial_blocks.h. */
#ifndef RN_ACTORS_TIER_TAILS_H
#define RN_ACTORS_TIER_TAILS_H

#include "actors/tier/cached_stream.h"

#define RN_TAILS 256

struct rn_tails {
    struct rn_prefix_tree *tree;            /* borrowed */
    const struct rn_cached_stream *streams; /* likewise: [max_streams] */
    uint32_t slots[RN_TAILS];               /* by the number of the node that tail_at names */
};

void rn_tails_init(struct rn_tails *tails, struct rn_prefix_tree *tree, const struct rn_cached_stream *streams);

/* The whole prompt of the stream in that slot is computed and published: its tail can be copied. */
void rn_tails_offer(struct rn_tails *tails, struct rn_cached_stream *stream, uint32_t slot);

/* The block that has the most tokens in common with ids[n] behind the node; how many, 0: there is none. Borrowed: until
 * the tree evicts, or its request leaves. */
uint32_t rn_tails_find(const struct rn_tails *tails, struct rn_prefix_ref at, const int32_t *ids, uint32_t n,
                       uint32_t *block);

/* True: each slot is one of the n_streams, and each tail is where it can be found or has been overwritten by another.
 * Linear in both. */
bool rn_tails_check(const struct rn_tails *tails, uint32_t n_streams);

#endif
