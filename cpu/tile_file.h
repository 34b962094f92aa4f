/* A file that holds a model's weights in tiles (tiles.h), beside the model's own: made by one load, mapped by the next
 * ones, whose processes share the memory.
 *
 *     header      magic, version, what it was made of, sizes, check        numbers have their low byte first
 *     directory   for each weight: part, type, how its tiles are read (struct rn_reading), place in its part, bytes,
 *                 place here
 *     checks      XXH3-64 of each piece of RN_TILE_FILE_PIECE bytes of each weight, in order, seeded with its place
 *     weights     each at a whole page
 *
 * A file of another version, another model, or another state of the model's file is not used, nor is one whose header,
 * directory or size are not as they were written; whoever reads a weight compares its pieces first. So a file gives the
 * right weights or none. It is written under another name, which a lock keeps to one writer, synced, and renamed: under
 * its own name it is whole at any moment. A symbolic link there stays, and what it names is written; what is no regular
 * file is left alone.
 * Format: this file. Threads: one at a time; rn_tile_file_good from any. */
#ifndef RN_CPU_TILE_FILE_H
#define RN_CPU_TILE_FILE_H

#include "cpu/kernels.h"
#include "model/backend.h"

enum { RN_TILE_FILE_PIECE = 2 << 20 };

struct rn_tile_file; /* opaque */

/* Whether the file has a place for the tiles of weight i: it is one of the model's own file. A plan may have others,
 * those of a head that drafts. */
bool rn_tile_file_keeps(const struct rn_plan *plan, uint32_t i);

/* Maps the file for the weights of the plan. NULL without a word where there is none, and with a sentence in `why`
 * where it cannot be used: it is damaged, foreign or of another version; or the allocator refused memory. Blocks on the
 * disk. */
struct rn_tile_file *rn_tile_file_open(struct rn_heap *heap, const struct rn_weights_place *place,
                                       const struct rn_plan *plan, runnel_error *why);

/* NULL is allowed. What was read of it must not be used any more. */
void rn_tile_file_free(struct rn_tile_file *file);

/* Tiles of weight i, [bytes of its tensor], mapped read-only; NULL: the file has none. file NULL is allowed. */
const uint8_t *rn_tile_file_weight(const struct rn_tile_file *file, uint32_t i);

/* How they are read by so many inputs, of RN_READINGS, as who wrote them has found best. */
struct rn_reading rn_tile_file_reading(const struct rn_tile_file *file, uint32_t i, uint32_t inputs);

/* Whether piece number `piece` of weight i is as it was written. */
bool rn_tile_file_good(const struct rn_tile_file *file, uint32_t i, size_t piece);

/* Writes tiles[i] of each weight that the file keeps and that has some (NULL: none) in place of what is there;
 * readings: by type. BUSY: another process is writing it; IO with a sentence. Blocks on the disk. */
runnel_status rn_tile_file_write(struct rn_heap *heap, const struct rn_weights_place *place, const struct rn_plan *plan,
                                 uint8_t *const *tiles, const struct rn_reading (*readings)[RN_READINGS],
                                 runnel_error *error);

#endif
