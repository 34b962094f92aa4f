/* Kernels with a mistake that can be left out: name, and what the emulator says of it. */
#ifndef RN_TESTS_GPU_RIGS_PLANTED_H
#define RN_TESTS_GPU_RIGS_PLANTED_H

#include <stdint.h>

struct planted_args {
    uint64_t out; /* uint32_t [64], zeros */
    uint32_t with_mistake;
};

#define PLANTED(X)                                              \
    X(shifts, "since the last barrier")                         \
    X(shifts_in_warp, "since the last barrier")                 \
    X(shifts_between_warps, "since the last barrier")           \
    X(writes_again, "another has read since")                   \
    X(half_a_barrier, "waits in a barrier, and thread")         \
    X(two_barriers, "waits in a barrier, and thread 0 in that") \
    X(half_a_shuffle, "waits in an operation of its warp")      \
    X(two_shuffles, "is in an operation of its warp")           \
    X(past_the_array, "global memory: 4 bytes at 256")          \
    X(past_the_view, "element 63 of an array of 63")            \
    X(not_aligned, "is not aligned")                            \
    X(past_the_shared, "byte 259 of shared memory")             \
    X(reads_nothing, "which nobody has written")                \
    X(counts, "since the last barrier")                         \
    X(counts_and_writes, "since the last barrier")              \
    X(reads_a_counter, "since the last barrier")                \
    X(half_a_vote, "waits in an operation of its warp")         \
    X(copies, "to which a copy of thread")                      \
    X(copies_unseen, "since the last barrier")                  \
    X(copies_without_group, "to which a copy of thread")        \
    X(copies_again, "another has read since")

/* The same of launches of two blocks. */
#define PLANTED_BETWEEN_BLOCKS(X)                                \
    X(blocks_write, "another block of the launch has written")   \
    X(blocks_read, "another block of the launch has written")    \
    X(blocks_read_first, "another block of the launch has read") \
    X(blocks_share_a_word, "writes byte 1 of an allocation")     \
    X(word_of_bytes, "writes byte 0 of an allocation")           \
    X(blocks_count, "another block of the launch has written")   \
    X(blocks_count_and_write, "another block of the launch has written")

#ifdef __cplusplus
extern "C" {
#endif
#define DECLARE(name, says) void rn_kernel_##name(const void *args);
PLANTED(DECLARE)
PLANTED_BETWEEN_BLOCKS(DECLARE)
#undef DECLARE
#ifdef __cplusplus
}
#endif

#endif
