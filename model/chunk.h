/* `chunk-mean`: what a row of attention sees where old keys and values are kept as means only.
 *
 *   positions of a sequence, in chunks of 64; the row stands at p:
 *
 *   | sink | chunk 1 | chunk 2 | ... | chunk behind - 1 | exact .................. p |
 *     exact   └──────── one mean key and value each ───┘   └ at least `window`, less than window + 64, before p
 *
 * A chunk c is behind the row once 64 (c + 1) + window <= p. The first RN_CHUNK_SINKS chunks stay exact for ever: a
 * model puts what it does not need into its first positions, and with their mean it falls apart (docs/QUALITY.md; Xiao
 * et al. 2023, "Efficient Streaming Language Models with Attention Sinks"). With the scores s of attention, after
 * its soft cap, softmax is taken over
 *
 *     s(q, k_j)              for each exact position j
 *     s(q, mean k) + ln 64   for each chunk behind, 64 positions of one and the same score
 *
 * and the values mixed are v_j and mean v. Means are of keys as they are attended to, after the rotation by position,
 * of the stored numbers; each is rounded to the KV format when the chunk's last position is stored, and is never
 * changed. So what a row sees depends on its position and on the tokens up to it, and on nothing else (law 5).
 *
 * Where a layer sees the last n positions only, chunks that are not wholly among them are not seen at all.
 *
 * Means are rows of ordinary blocks: entry c of the table of means is chunk c's, as position c would be. A sequence
 * of n positions holds the blocks of window, a little more and n / 64. Threads: all functions are pure. */
#ifndef RN_MODEL_CHUNK_H
#define RN_MODEL_CHUNK_H

#include <stdbool.h>
#include <stdint.h>

enum { RN_CHUNK = 64, RN_CHUNK_SINKS = 1 };

#define RN_CHUNK_LOG 4.1588830833596718565 /* ln 64 */

/* In a block table: the position's block has been given away. */
#define RN_NO_BLOCK UINT32_MAX

/* How many chunks, from the first one on, are behind the row; window 0: chunk-mean is off. */
static inline uint32_t rn_chunks_behind(uint32_t window, uint32_t position)
{
    return window == 0 || position < window ? 0 : (position - window) / RN_CHUNK;
}

/* What one row sees: positions [sink, sink_end), chunks [from, to), positions [first, its own]. */
struct rn_chunk_span {
    uint32_t sink, sink_end;
    uint32_t from, to;
    uint32_t first;
};

/* layer_window: so many positions, its own included, does the layer see; 0: all. */
static inline struct rn_chunk_span rn_chunk_span(uint32_t window, uint32_t position, uint32_t layer_window)
{
    uint32_t behind = rn_chunks_behind(window, position), sinks = RN_CHUNK_SINKS * RN_CHUNK;
    uint32_t start = layer_window == 0 || position < layer_window ? 0 : position + 1 - layer_window;
    struct rn_chunk_span span = {.first = start};

    if (behind <= RN_CHUNK_SINKS || behind * RN_CHUNK <= start)
        return span;
    span.sink = start < sinks ? start : sinks;
    span.sink_end = sinks;
    span.to = behind;
    span.from = start <= sinks ? RN_CHUNK_SINKS : (start + RN_CHUNK - 1) / RN_CHUNK;
    span.first = behind * RN_CHUNK;
    return span;
}

/* Does the row see means? Else it sees [first, its own] alone. */
static inline bool rn_chunk_seen(const struct rn_chunk_span *span)
{
    return span->to > 0;
}

/* Is the position the last one of a chunk whose mean is kept? */
static inline bool rn_chunk_ends(uint32_t window, uint32_t position)
{
    return window > 0 && position % RN_CHUNK == RN_CHUNK - 1 && position / RN_CHUNK >= RN_CHUNK_SINKS;
}

#endif
