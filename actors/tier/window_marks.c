/* Checkpoints of windows: see window_marks.h. */
#include "actors/tier/window_marks.h"

#include <string.h>

#include "base/check.h"
#include "model/kv_size.h"

static uint32_t per_block(const struct rn_window_marks *marks)
{
    return marks->limits->block_tokens;
}

/* Blocks of a window that ends at a block's end, at most. */
static uint32_t widest(const struct rn_backend_limits *limits)
{
    uint32_t n = rn_kv_size_round((uint64_t)limits->window + RN_KV_SIZE_TILE, limits->block_tokens) + 1;
    uint32_t all = rn_kv_size_round(limits->context_tokens, limits->block_tokens);

    return n < all ? n : all;
}

/* Those that rows from position `end` on look at: the first one. */
static uint32_t first_of(const struct rn_window_marks *marks, uint32_t end)
{
    return rn_kv_size_first_window(marks->limits, end);
}

bool rn_window_marks_fit(const struct rn_backend_limits *limits)
{
    return limits->window > 1 &&
           limits->n_windows >= rn_kv_size_windows(limits, limits->context_tokens) + widest(limits);
}

runnel_status rn_window_marks_init(struct rn_window_marks *marks, struct rn_heap *heap, struct rn_prefix_tree *tree,
                                   struct rn_block_pool *pool, const struct rn_backend_limits *limits)
{
    *marks =
        (struct rn_window_marks){.heap = heap, .tree = tree, .pool = pool, .limits = limits, .width = widest(limits)};
    if (limits->window == 0 || !rn_window_marks_fit(limits) || limits->n_states > 0)
        return RUNNEL_OK;
    marks->n = limits->n_windows / marks->width;
    marks->marks = rn_calloc(heap, marks->n, sizeof *marks->marks);
    marks->blocks = rn_alloc(heap, (size_t)marks->n * marks->width, sizeof *marks->blocks);
    if (marks->marks != NULL && marks->blocks != NULL)
        return RUNNEL_OK;
    rn_free(heap, marks->marks);
    rn_free(heap, marks->blocks);
    *marks = (struct rn_window_marks){.heap = heap};
    return RUNNEL_NO_MEMORY;
}

static uint32_t *blocks_of(const struct rn_window_marks *marks, uint32_t mark)
{
    return marks->blocks + (size_t)mark * marks->width;
}

static void drop(struct rn_window_marks *marks, uint32_t mark)
{
    RN_ASSERT(marks->marks[mark].n > 0);
    rn_block_pool_unref(marks->pool, blocks_of(marks, mark), marks->marks[mark].n);
    marks->marks[mark].n = 0;
}

void rn_window_marks_fini(struct rn_window_marks *marks)
{
    for (uint32_t i = 0; i < marks->n; i++)
        if (marks->marks[i].n > 0)
            drop(marks, i);
    rn_free(marks->heap, marks->marks);
    rn_free(marks->heap, marks->blocks);
}

/* ---- Finding ---- */

/* The node of a checkpoint, while it is ready. */
static bool look(const struct rn_window_marks *marks, uint32_t mark, struct rn_prefix_view *view)
{
    return marks->marks[mark].n > 0 && rn_prefix_tree_look(marks->tree, marks->marks[mark].at, view) &&
           view->state == RN_PREFIX_READY;
}

uint32_t rn_window_marks_find(const struct rn_window_marks *marks, const uint32_t *blocks, uint32_t n,
                              uint32_t *n_blocks)
{
    uint32_t best = RN_NO_MARK;
    struct rn_prefix_view view;

    *n_blocks = 0;
    for (uint32_t i = 0; i < marks->n; i++) {
        if (!look(marks, i, &view) || view.n_blocks > n || view.n_blocks <= *n_blocks ||
            blocks[view.n_blocks - 1] != view.block)
            continue;
        *n_blocks = view.n_blocks;
        best = i;
    }
    return best;
}

/* ---- Room ---- */

/* The checkpoint that is worth least, but for `mark`; RN_NO_MARK: there is no other. */
static uint32_t least_worth(const struct rn_window_marks *marks, uint32_t mark)
{
    uint32_t best = RN_NO_MARK;
    uint64_t least = UINT64_MAX;
    struct rn_prefix_view view;

    for (uint32_t i = 0; i < marks->n; i++) {
        uint64_t worth = marks->marks[i].n == 0 || i == mark ? UINT64_MAX
                         : look(marks, i, &view)             ? marks->marks[i].last_use
                                                             : 0;

        if (worth >= least)
            continue;
        best = i;
        least = worth;
    }
    return best;
}

/* Of its own, with what is held for checkpoints at ends[n_ends]. */
static uint32_t needed(const struct rn_window_marks *marks, uint32_t n_kept, uint32_t limit, const uint32_t *ends,
                       uint32_t n_ends)
{
    uint32_t n = rn_kv_size_windows(marks->limits, limit), all = rn_kv_size_round(limit, per_block(marks));

    for (uint32_t i = 0; i < n_ends; i++)
        n += ends[i] / per_block(marks) - first_of(marks, ends[i]);
    return n < all - n_kept ? n : all - n_kept;
}

bool rn_window_marks_make_room(struct rn_window_marks *marks, uint32_t mark, uint32_t n_kept, uint32_t limit,
                               uint32_t *ends, uint32_t *n_ends)
{
    uint32_t other;

    for (;; memmove(ends, ends + 1, --*n_ends * sizeof *ends)) {
        uint32_t n = needed(marks, n_kept, limit, ends, *n_ends);

        while (marks->pool->n_free < n && (other = least_worth(marks, mark)) != RN_NO_MARK)
            drop(marks, other);
        if (marks->pool->n_free >= n || *n_ends == 0)
            return marks->pool->n_free >= n;
    }
}

static void hold(struct rn_windows *windows, uint32_t from, uint32_t to)
{
    RN_ASSERT(windows->n_held < RN_WINDOWS_HELD && from < to);
    windows->held[windows->n_held++] = (struct rn_windows_held){from, to};
}

void rn_window_marks_begin(struct rn_window_marks *marks, uint32_t mark, uint32_t n_kept, uint32_t limit,
                           const uint32_t *ends, uint32_t n_ends, struct rn_request *request)
{
    struct rn_windows *windows = &request->windows;
    uint32_t n = needed(marks, n_kept, limit, ends, n_ends), first = first_of(marks, n_kept * per_block(marks));

    windows->n_held = windows->n_passed = 0;
    windows->n = n_kept + n;
    if (mark != RN_NO_MARK) {
        RN_CHECK(marks->marks[mark].n == n_kept - first && n_kept > first);
        for (uint32_t i = 0; i < first; i++)
            windows->blocks[i] = RN_NO_BLOCK;
        memcpy(windows->blocks + first, blocks_of(marks, mark), (n_kept - first) * sizeof windows->blocks[0]);
        rn_block_pool_ref(marks->pool, windows->blocks + first, n_kept - first);
        marks->marks[mark].last_use = ++marks->now;
        windows->n_passed = first;
        hold(windows, first, n_kept);
    }
    RN_CHECK(rn_block_pool_take(marks->pool, n, windows->blocks + n_kept));
    for (uint32_t i = 0; i < n_ends; i++)
        hold(windows, first_of(marks, ends[i]), ends[i] / per_block(marks));
}

/* ---- Checkpoints ---- */

/* The node that ends at so many blocks, on the way to `node`; false: not that many are ready. */
static bool node_at(const struct rn_window_marks *marks, struct rn_prefix_ref *node, uint32_t n_blocks)
{
    struct rn_prefix_view view;

    while (rn_prefix_tree_look(marks->tree, *node, &view) && view.n_blocks > n_blocks)
        *node = view.parent;
    return rn_prefix_tree_look(marks->tree, *node, &view) && view.n_blocks == n_blocks && view.state == RN_PREFIX_READY;
}

/* A place for a checkpoint of the node; RN_NO_MARK: it has one. */
static uint32_t place_for(struct rn_window_marks *marks, struct rn_prefix_ref node)
{
    uint32_t best = RN_NO_MARK;

    for (uint32_t i = 0; i < marks->n; i++) {
        if (marks->marks[i].n == 0)
            best = i;
        else if (marks->marks[i].at.node == node.node && marks->marks[i].at.generation == node.generation)
            return RN_NO_MARK;
    }
    if (best == RN_NO_MARK && (best = least_worth(marks, RN_NO_MARK)) != RN_NO_MARK)
        drop(marks, best);
    return best;
}

static void leave_behind(struct rn_window_marks *marks, struct rn_window_lease *lease, uint32_t end,
                         struct rn_prefix_ref node)
{
    uint32_t first = first_of(marks, end), n = end / per_block(marks) - first, place;

    rn_windows_go_on(&lease->windows, first, lease->all);
    RN_CHECK(end / per_block(marks) <= lease->windows.n && n > 0 && n <= marks->width);
    if (!node_at(marks, &node, end / per_block(marks)) || (place = place_for(marks, node)) == RN_NO_MARK)
        return;
    memcpy(blocks_of(marks, place), lease->windows.blocks + first, n * sizeof *marks->blocks);
    rn_block_pool_ref(marks->pool, blocks_of(marks, place), n);
    marks->marks[place] = (struct rn_window_mark){node, n, ++marks->now};
}

void rn_window_marks_reached(struct rn_window_marks *marks, struct rn_window_lease *lease, uint32_t n_positions,
                             struct rn_prefix_ref at)
{
    while (lease->n_left < lease->n_ends && n_positions >= lease->ends[lease->n_left])
        leave_behind(marks, lease, lease->ends[lease->n_left++], at);
}

/* ---- Check ---- */

bool rn_window_marks_check(const struct rn_window_marks *marks, const struct rn_window_lease *lease)
{
    if (lease->n_left > lease->n_ends || lease->n_ends > RN_STATE_TURNS || !rn_windows_check(&lease->windows) ||
        (lease->n_ends > 0 && lease->windows.blocks == NULL))
        return false;
    for (uint32_t i = 0; i < marks->n; i++)
        for (uint32_t k = 0; k < marks->marks[i].n; k++)
            if (rn_block_pool_references(marks->pool, blocks_of(marks, i)[k]) == 0)
                return false;
    return true;
}
