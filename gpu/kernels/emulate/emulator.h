/* The CUDA thread model on the host: runs a kernel's source, compiled as C++, a block at a time.
 *
 *   grid ─ blocks, one after another ─ warps of 32 ─ threads, each a fiber with a stack of its own
 *
 * A fiber runs until it meets others: in a barrier of the block, or in an operation of its warp (shuffle, vote, matrix
 * product, sync_warp), which the last of the 32 to arrive carries out for all. So every result is the same in every
 * run.
 *
 * What is found, and ends the launch with a sentence that names the kernel's line:
 *   - threads of one block that wait in different barriers, or at a barrier that others have passed by ending; the same
 *     of operations of a warp
 *   - two threads that touch one word of shared memory between two barriers, one of them writing (what sync_warp orders
 *     is ordered)
 *   - an access beyond the shared memory of the launch or of the array, or beyond what a shared array was made with
 *   - an access to global memory outside the range that its array was found in, or not aligned
 *   - shared memory read before it is written, or touched while an asynchronous copy to it is under way
 *   - two blocks that touch the same global memory, one of them writing, and not both by atomic operations (races.h)
 * What touches what is noted of some launches only: of those with one kernel, grid, block and shared memory the first
 * four, and then every sixteenth. In the others shared memory that nobody has written is full of NaN.
 *
 * Threads: an emulator runs one launch at a time; several may run at once on threads of their own. */
#ifndef RN_GPU_EMULATOR_H
#define RN_GPU_EMULATOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/alloc.h"
#include "gpu/kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

struct rn_emulator;

/* What global memory is: allocations, not overlapping. */
struct rn_emulated_range {
    uint64_t at, bytes;
};

enum { RN_EMULATED_FAULT_BYTES = 256 };

/* NULL on refusal of memory. free: NULL is allowed. */
struct rn_emulator *rn_emulator_new(struct rn_heap *heap);
void rn_emulator_free(struct rn_emulator *emulator);

/* A kernel by its number, or any other with the same form of arguments. */
typedef void (*rn_emulated_kernel)(const void *args);
rn_emulated_kernel rn_emulated_find(enum rn_kernel kernel);

/* Runs a launch to its end. `ranges` [n_ranges], ascending, are looked up while it runs. False: it was ended, and
 * `fault` says why; global memory is as far as it had come. */
bool rn_emulator_launch(struct rn_emulator *emulator, rn_emulated_kernel kernel, const struct rn_launch *launch,
                        const void *args, const struct rn_emulated_range *ranges, size_t n_ranges,
                        char fault[RN_EMULATED_FAULT_BYTES]);

#ifdef __cplusplus
}
#endif
#endif
