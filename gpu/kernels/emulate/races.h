/* Who has touched global memory in a launch: blocks of one launch have no order, so one that writes what another
 * touches is a race, unless both are atomic. What atomic operations and fences order between blocks is not known here:
 * a block that reads what another has written counts as a race whatever it has waited for.
 *
 * Memory has cells of four bytes, in pages; a page in which something smaller is touched gets cells of one byte. A cell
 * knows the block that has written it last and the one that has read it, by numbers that go on from launch to launch:
 * so nothing is cleared between launches. One thread. */
#ifndef RN_GPU_EMULATED_RACES_H
#define RN_GPU_EMULATED_RACES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/alloc.h"
#include "gpu/kernels/emulate/inside.h"

struct rn_races;

/* What stands against an access. */
enum rn_race { RN_RACE_NONE, RN_RACE_WRITTEN, RN_RACE_READ };

/* NULL on refusal of memory. free: NULL is allowed. */
struct rn_races *rn_races_new(struct rn_heap *heap);
void rn_races_free(struct rn_races *races);

/* A launch of so many blocks begins; its next block does. */
void rn_races_launch(struct rn_races *races, uint64_t n_blocks);
void rn_races_block(struct rn_races *races);

/* Notes the access of the block that runs. */
enum rn_race rn_races_touch(struct rn_races *races, uint64_t at, size_t bytes, enum rn_emulated_touch touch);

#endif
