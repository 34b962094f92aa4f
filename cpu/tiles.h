/* Weights in the order in which products of a few inputs read them: tiles.
 *
 * RN_TILE_ROWS rows lie together, block by block; a block is taken apart into words of 4 bytes, and those of all rows
 * stand side by side. What does not fill a word, the scale at one end of a block, stands likewise. So a worker
 * that has a few rows reads one linear stream, and a vector of words is one load.
 *
 *     rows    r0: d w0 w1 w2 w3 | d w0 ...       tile   d of r0 r1 ... r15   w0 of r0 r1 ... r15   w1 of ... | d of ...
 *             r1: d w0 w1 w2 w3 | d w0 ...
 *             ...                                        a tile has the bytes of its rows, and begins where they do
 *
 * Sums have the same order as of rows where they lie: the bits of a product are the same (law 5). */
#ifndef RN_CPU_TILES_H
#define RN_CPU_TILES_H

#include "cpu/kernels.h"

/* Blocks whose scales stand behind the weights begin with them in a tile, and what is multiplied together lies
 * together: where byte x of a block of such a format goes to. The others keep their order. */
static inline uint32_t rn_tile_q6_k_at(uint32_t x)
{
    /* d, 16 scales, then of each half 64 bytes of nibbles and 32 of pairs */
    return x >= 208   ? x - 208
           : x >= 192 ? 2 + x - 192
           : x < 128  ? 18 + x / 64 * 96 + x % 64
                      : 82 + (x - 128) / 32 * 96 + x % 32;
}

static inline uint32_t rn_tile_q3_k_at(uint32_t x)
{
    return x >= 108 ? x - 108 : x >= 96 ? 2 + x - 96 : 14 + x; /* d, 12 scales, the rest */
}

/* Lays n_rows rows of `cols` weights, a multiple of RN_TILE_ROWS, which stand one behind the other, into tiles at `to`.
 * type_id: one that a level has a tiled kernel for. Any thread; the memories do not overlap. */
void rn_tiles_lay(uint32_t type_id, uint32_t cols, uint32_t n_rows, const uint8_t *rows, uint8_t *to);

#endif
