/* Checkpoints of windows: of a prefix whose layers with windows have blocks of their own, those of its last window.
 *
 *   tokens            0 ................... e ...        e: the end of a block
 *   other layers      [ 0 ][ 1 ][ 2 ][ 3 ][ 4 ]          the prefix tree's
 *   with windows                [ 2 ][ 3 ][ 4 ]          the checkpoint's: all that rows behind e look at
 *
 * They are full, and only read from then on, so a checkpoint is a reference to each of them: a stream that leaves one
 * does not write into them again (windows.h), and takes as many others when it begins. A prompt that finds one shares
 * the blocks of the other layers before it, and these.
 *
 * A checkpoint is of use as long as its node is ready; that is seen when it is looked at. When blocks of windows run
 * short checkpoints give way: first those of no use, then what was used longest ago. There is always room for one
 * stream of any length that begins at a checkpoint.
 *
 * The prefix cache's (prefix_cache.h), and with it the tier actor's. */
#ifndef RN_ACTORS_TIER_WINDOW_MARKS_H
#define RN_ACTORS_TIER_WINDOW_MARKS_H

#include "actors/request.h"
#include "cache/block_pool.h"
#include "cache/prefix_tree.h"

struct rn_backend_limits;

#define RN_NO_MARK UINT32_MAX

struct rn_window_mark {
    struct rn_prefix_ref at; /* the node that it is behind */
    uint32_t n;              /* blocks; 0: it is free */
    uint64_t last_use;
};

/* What a stream leaves, while decode has its request. */
struct rn_window_lease {
    struct rn_windows windows; /* as the stream began; blocks NULL: it leaves nothing (more) */
    uint32_t all;
    uint32_t ends[RN_STATE_TURNS]; /* [n_ends], ascending */
    uint32_t n_wanted;             /* of them, before it has entered */
    uint32_t n_ends, n_left;
};

struct rn_window_marks {
    struct rn_heap *heap;
    struct rn_prefix_tree *tree; /* borrowed, as are the next two */
    struct rn_block_pool *pool;  /* of blocks of windows */
    const struct rn_backend_limits *limits;
    struct rn_window_mark *marks; /* [n] */
    uint32_t *blocks;             /* [n][width] */
    uint32_t n, width;            /* n 0: there are no checkpoints */
    uint64_t now;
};

/* The pool would hold one beside any stream, and it would hold something: of a window of one position nothing is
 * left. */
bool rn_window_marks_fit(const struct rn_backend_limits *limits);

/* Where the pool has room for none, or layers with windows have no blocks of their own, there will be none. NO_MEMORY:
 * nothing is held. */
runnel_status rn_window_marks_init(struct rn_window_marks *marks, struct rn_heap *heap, struct rn_prefix_tree *tree,
                                   struct rn_block_pool *pool, const struct rn_backend_limits *limits);
void rn_window_marks_fini(struct rn_window_marks *marks);

/* The deepest checkpoint of a prefix, of which the tree has blocks[n] ready, and *n_blocks of them are before it.
 * RN_NO_MARK: there is none, *n_blocks is 0. */
uint32_t rn_window_marks_find(const struct rn_window_marks *marks, const uint32_t *blocks, uint32_t n,
                              uint32_t *n_blocks);

/* Makes room in the pool for a stream of up to `limit` positions that begins at `mark`, behind n_kept blocks, and
 * leaves checkpoints at ends[*n_ends]: at the last of them as far as there is room. False: there is not even room
 * without. */
bool rn_window_marks_make_room(struct rn_window_marks *marks, uint32_t mark, uint32_t n_kept, uint32_t limit,
                               uint32_t *ends, uint32_t *n_ends);

/* Behind that: the request's table, which has room, is filled. */
void rn_window_marks_begin(struct rn_window_marks *marks, uint32_t mark, uint32_t n_kept, uint32_t limit,
                           const uint32_t *ends, uint32_t n_ends, struct rn_request *request);

/* The stream has computed n_positions of its prompt; `at` is the node of as many of its blocks as are ready. */
void rn_window_marks_reached(struct rn_window_marks *marks, struct rn_window_lease *lease, uint32_t n_positions,
                             struct rn_prefix_ref at);

/* False: a checkpoint has blocks that nobody holds, or a lease ends that are none. */
bool rn_window_marks_check(const struct rn_window_marks *marks, const struct rn_window_lease *lease);

#endif
