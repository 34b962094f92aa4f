/* How many KV blocks a sequence holds, from the limits of its backend.
 *
 *   without a mean window      as many as its positions need, from the first to the last
 *   with one (chunk.h)         the sinks', those of the window with up to a chunk before it, those that the rows of one
 *                              step need ahead, one more where chunks and blocks do not begin together; and the
 *                              means', one position for each 64
 *
 * With blocks of their own for layers with windows (rn_backend_limits.window) a sequence holds of these as many as a
 * window and the rows of one step need, and of the others' what its positions need.
 *
 * Blocks that fall behind the window are written again at the sequence's own end: nobody has to be asked, and what it
 * holds does not grow any more. Threads: all functions are pure. */
#ifndef RN_MODEL_KV_SIZE_H
#define RN_MODEL_KV_SIZE_H

#include "model/backend.h"

/* Rows of one sequence in one step for which a place is kept, with a mean window. */
enum { RN_KV_SIZE_ROWS = 512 };

static inline uint32_t rn_kv_size_round(uint64_t n, uint32_t unit)
{
    return (uint32_t)((n + unit - 1) / unit);
}

/* Blocks at the front of the table that stay for ever. */
static inline uint32_t rn_kv_size_sinks(const struct rn_backend_limits *limits)
{
    return rn_kv_size_round(RN_CHUNK_SINKS * RN_CHUNK, limits->block_tokens);
}

/* The first block behind the sinks that the row at `position`, or one after it, looks at. */
static inline uint32_t rn_kv_size_first(const struct rn_backend_limits *limits, uint32_t position)
{
    return rn_chunks_behind(limits->mean_window, position) * RN_CHUNK / limits->block_tokens;
}

/* Blocks for the positions of a sequence of n, at one time. */
static inline uint32_t rn_kv_size_blocks(const struct rn_backend_limits *limits, uint64_t n)
{
    uint32_t all = rn_kv_size_round(n, limits->block_tokens), most;
    uint32_t rows = limits->max_rows < RN_KV_SIZE_ROWS ? limits->max_rows : RN_KV_SIZE_ROWS;

    if (limits->mean_window == 0)
        return all;
    most = rn_kv_size_sinks(limits) + 1 +
           rn_kv_size_round((uint64_t)limits->mean_window + RN_CHUNK + rows, limits->block_tokens);
    return all < most ? all : most;
}

/* Blocks for the means of a sequence of n positions. */
static inline uint32_t rn_kv_size_means(const struct rn_backend_limits *limits, uint64_t n)
{
    return limits->mean_window == 0 ? 0 : rn_kv_size_round(n / RN_CHUNK, limits->block_tokens);
}

enum { RN_KV_SIZE_TILE = 32 }; /* attention reads positions in tiles that begin at multiples of this */

/* The first block of layers with windows that the row at `position`, or one after it, looks at. */
static inline uint32_t rn_kv_size_first_window(const struct rn_backend_limits *limits, uint32_t position)
{
    uint32_t first = position + 1 > limits->window ? position + 1 - limits->window : 0;

    return first / RN_KV_SIZE_TILE * RN_KV_SIZE_TILE / limits->block_tokens;
}

/* Blocks of layers with windows for a sequence of n positions, at one time. */
static inline uint32_t rn_kv_size_windows(const struct rn_backend_limits *limits, uint64_t n)
{
    uint32_t all = rn_kv_size_round(n, limits->block_tokens), most;
    uint32_t rows = limits->max_rows < RN_KV_SIZE_ROWS ? limits->max_rows : RN_KV_SIZE_ROWS;

    if (limits->window == 0)
        return 0;
    most = rn_kv_size_round((uint64_t)limits->window + RN_KV_SIZE_TILE + rows, limits->block_tokens) + 1;
    return all < most ? all : most;
}

/* What is behind a window is gone: nobody can go back in a sequence's blocks, nor share them but at checkpoints. */
static inline bool rn_kv_size_forgets(const struct rn_backend_limits *limits)
{
    return limits->mean_window > 0 || limits->window > 0;
}

/* The longest sequence that fits n_blocks by itself. */
static inline uint64_t rn_kv_size_positions(const struct rn_backend_limits *limits)
{
    uint64_t low = 0, high = (uint64_t)limits->n_blocks * limits->block_tokens, middle;

    if (limits->mean_window == 0)
        return high;
    high *= RN_CHUNK;
    high = high < limits->context_tokens ? high : limits->context_tokens;
    while (low < high) {
        middle = (low + high + 1) / 2;
        if ((uint64_t)rn_kv_size_blocks(limits, middle) + rn_kv_size_means(limits, middle) <= limits->n_blocks)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* The longest sequence that there can be. */
static inline uint64_t rn_kv_size_longest(const struct rn_backend_limits *limits)
{
    uint64_t room = rn_kv_size_positions(limits);

    return room < limits->context_tokens ? room : limits->context_tokens;
}

/* Likewise; whole: of those that are computed in one step. */
static inline uint64_t rn_kv_size_text(const struct rn_backend_limits *limits, bool whole)
{
    uint64_t longest = rn_kv_size_longest(limits);

    return whole && limits->max_rows < longest ? limits->max_rows : longest;
}

#endif
