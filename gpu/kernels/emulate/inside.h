/* What a kernel's source calls in emulation: see emulator.h. All of it is for the fiber that runs. */
#ifndef RN_GPU_EMULATED_INSIDE_H
#define RN_GPU_EMULATED_INSIDE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Where in the source. */
struct rn_emulated_site {
    const char *file;
    int line;
};

struct rn_emulated_place {
    uint32_t grid[3], block[3], thread;
};

const struct rn_emulated_place *rn_emulated_here(void);

/* The barrier of the block. */
void rn_emulated_sync_block(struct rn_emulated_site site);

/* An operation of all 32 threads of a warp: what the last one to arrive does with `data` of each, by lane. */
typedef void (*rn_emulated_together)(void *const data[32]);
void rn_emulated_warp(struct rn_emulated_site site, rn_emulated_together together, void *data);

/* Orders shared memory among the threads of a warp, too. */
void rn_emulated_sync_warp(struct rn_emulated_site site);

/* `bytes` of the block's shared memory from `offset` on, checked and noted; offset and bytes are multiples of 4. ADD: an
 * atomic operation, which may meet others of its kind. */
enum rn_emulated_access { RN_EMULATED_READ, RN_EMULATED_WRITE, RN_EMULATED_ADD };
void *rn_emulated_shared(size_t offset, size_t bytes, enum rn_emulated_access access);

/* The end of the range of global memory in which `address` lies, and its begin. An address in none, but for 0: both
 * are the address itself, and every access is out of range. */
void rn_emulated_range_of(uint64_t address, uint64_t *begin, uint64_t *end);

/* Ends the launch; does not come back. */
__attribute__((noreturn, format(printf, 1, 2))) void rn_emulated_fail(const char *format, ...);

#ifdef __cplusplus
}
#endif
#endif
