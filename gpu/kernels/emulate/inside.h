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

/* The thread that runs: the emulator changes `thread` with each switch. A kernel does not move from one thread of the
 * system to another. */
struct rn_emulated_here {
    struct rn_emulator *emulator; /* NULL: no launch runs */
    uint32_t grid[3], block[3], thread;
    uint32_t shared_bytes;
    unsigned char *shared;
    bool is_checked; /* the launch, for races */
};
extern __thread struct rn_emulated_here rn_emulated_here __attribute__((tls_model("initial-exec")));

/* A site is one object for each place in the source. The barrier of the block. */
void rn_emulated_sync_block(const struct rn_emulated_site *site);

/* An operation of all 32 threads of a warp: what the last one to arrive does with `data` of each, by lane. */
typedef void (*rn_emulated_together)(void *const data[32]);
void rn_emulated_warp(const struct rn_emulated_site *site, rn_emulated_together together, void *data);

/* Orders shared memory among the threads of a warp, too. */
void rn_emulated_sync_warp(const struct rn_emulated_site *site);

/* How memory is touched. ATOMIC: read and written at once, in any order with others that are. */
enum rn_emulated_touch { RN_EMULATED_READ, RN_EMULATED_WRITE, RN_EMULATED_ATOMIC };

/* `bytes` of the block's shared memory from `offset` on, checked and, in a launch that is checked, noted; offset and
 * bytes are multiples of 4. */
void *rn_emulated_note_shared(size_t offset, size_t bytes, enum rn_emulated_touch touch);
static inline void *rn_emulated_shared(size_t offset, size_t bytes, enum rn_emulated_touch touch)
{
    if (rn_emulated_here.is_checked || offset + bytes > rn_emulated_here.shared_bytes)
        return rn_emulated_note_shared(offset, bytes, touch);
    return rn_emulated_here.shared + offset;
}

/* Copies that go on beside the thread: `bytes`, 4, 8 or 16, from `from` to shared memory. Until the thread has waited
 * for them what lies there is poison, and touching it ends the launch. commit: the copies since the last one are a
 * group. wait: until at most `left` groups of the thread are under way. For other threads a barrier behind that. */
void rn_emulated_copy(size_t offset, const void *from, size_t bytes);
void rn_emulated_commit_copies(void);
void rn_emulated_wait_copies(uint32_t left);

/* An access to global memory, which is in range and aligned: no race with another block, in a launch that is
 * checked. */
void rn_emulated_note_global(uint64_t at, size_t bytes, enum rn_emulated_touch touch);
static inline void rn_emulated_global(uint64_t at, size_t bytes, enum rn_emulated_touch touch)
{
    if (rn_emulated_here.is_checked)
        rn_emulated_note_global(at, bytes, touch);
}

/* The end of the range of global memory in which `address` lies, and its begin. An address in none, but for 0: both
 * are the address itself, and every access is out of range. */
void rn_emulated_range_of(uint64_t address, uint64_t *begin, uint64_t *end);

/* Ends the launch; does not come back. */
__attribute__((noreturn, format(printf, 1, 2))) void rn_emulated_fail(const char *format, ...);

#ifdef __cplusplus
}
#endif
#endif
