/* What the kernels' source says instead of CUDA C, so that it is CUDA C for nvcc and C++ for the emulation
 * (emulate/emulator.h): who a thread is, barriers, shuffles, the tensor cores, checked views of memory, and numbers of
 * 16 bits. Each of the two headers has all of it, in the same words:
 *
 *   RN_KERNEL(name, struct args, threads, blocks)   a kernel of so many threads a block, of which so many blocks fit
 *                                                   into a multiprocessor's registers; `args` is its argument
 *   RN_KERNEL_AHEAD(...)                            likewise; what it does before its grid_wait() may overlap the launch
 *                                                   before it, so it reads nothing there that a launch writes. Other
 *                                                   kernels wait at their begin
 *   grid_wait()                                     what the launches before have written is there; the next launch may
 *                                                   begin. Every thread comes
 *   thread_of_block() block_x() block_y() block_z() grid_z()
 *   sync_block() sync_warp()                        barriers; every thread of the block or the warp comes
 *   shuffle_xor(v, mask) shuffle(v, lane)           v (float, uint32_t) of another lane
 *   ballot(p) any_lane(p) all_lanes(p)              what p is in the lanes of the warp: a bit for each; in one; in all
 *   mma_bf16(c, a, b)                               c += a b, a [16, 16] and b [16, 8] in bfloat16, c [16, 8] in float.
 *                                                   With g = lane / 4 and t = lane % 4 a lane has of c (g, 2t), (g, 2t + 1),
 *                                                   (g + 8, 2t), (g + 8, 2t + 1); of a, in pairs: (g, 2t ..), (g + 8, 2t ..),
 *                                                   (g, 2t + 8 ..), (g + 8, 2t + 8 ..); of b (2t .., g), (2t + 8 .., g)
 *   mma_f16(c, a, b)                                likewise with numbers of IEEE's binary16
 *   load_matrices(w, offset)                        four matrices of 8 x 8 numbers of 16 bits from shared memory: lane i
 *                                                   says where row i % 8 of matrix i / 8 begins, in bytes, aligned to 16;
 *                                                   w[j] has numbers (g, 2t) and (g, 2t + 1) of matrix j
 *   load_transposed(w, offset)                      likewise; w[j] has numbers (2t, g) and (2t + 1, g)
 *   global<T>(address, n)                           n values at an address of the device: get(i), put(i, v);
 *   bytes_at(address)                               bytes there: get<T>(offset), put<T>(offset, v), aligned to T
 *   shared<T>(offset, n)                            n values of the block's shared memory, from a byte on; T has a
 *                                                   multiple of 4 bytes
 *   add(i, v) max(i, v) exchange_if(i, expected, v)  of both, of integers: atomic operations, which give what was there
 *   copy_async(shared, i, global, j)                sets off a copy of one element of 4, 8 or 16 bytes to shared memory
 *   copy_async_16(offset, address)                  likewise of 16 bytes from an address, both places aligned
 *   copy_commit() copy_wait<N>()                    makes a group of the copies set off since the last one; waits until
 *                                                   of this thread's groups all but the newest N are there. Other
 *                                                   threads see them behind a barrier
 *   word_of_host(address)                           a word that the host may write while the launch runs: what it has
 *                                                   written before is there for who reads behind, and for others of
 *                                                   the block behind a barrier
 *   words2, words4                                  2 or 4 words that are read and written at once
 *   bits_of(float) float_of(bits)
 *   pack_bf16(low, high)                            two floats to the nearest bfloat16, ties to even, low in the low half
 *   pack_f16(low, high)                             likewise to binary16
 *   power_of_2(x)                                   2^x, to some two units of the last place; at -infinity 0
 *   minus_bf16(a, b) times_bf16(a, b)               a - b, a b of each half; exact, as they are used
 *   permute(a, b, selector)                         a word of bytes: the n-th is that of b:a which nibble n says, 0 .. 7
 *   TABLE                                           begins the declaration of an array of constants
 *   float_of_half(bits) half_of(float)              the nearest, ties to even
 *   fma(a, b, c)                                    in float, rounded once; all else is compiled without contraction
 */
#ifndef RN_GPU_WRAP_CUH
#define RN_GPU_WRAP_CUH

#include <stdint.h>

#ifdef __CUDACC__
#define RN_ANYWHERE static inline __host__ __device__
#endif
#include "gpu/kernels/kernels.h"

struct alignas(8) words2 {
    uint32_t w[2];
};
struct alignas(16) words4 {
    uint32_t w[4];
};
struct alignas(16) floats4 {
    float v[4];
};

enum : uint32_t { WARP = 32 };

#ifdef __CUDACC__
#include "gpu/kernels/wrap_device.cuh"
#else
#include "gpu/kernels/emulate/wrap_host.cuh"
#endif

DEVICE uint32_t lane_of_warp()
{
    return thread_of_block() % WARP;
}

DEVICE uint32_t warp_of_block()
{
    return thread_of_block() / WARP;
}

/* The float whose bfloat16 is the low or the high half. */
DEVICE float low_bf16(uint32_t pair)
{
    return float_of(pair << 16);
}

DEVICE float high_bf16(uint32_t pair)
{
    return float_of(pair & 0xffff0000u);
}

/* Two numbers in bfloat16 and what is left of each. */
DEVICE void split_pair(float x, float y, uint32_t *high, uint32_t *low)
{
    *high = pack_bf16(x, y);
    *low = pack_bf16(x - low_bf16(*high), y - high_bf16(*high));
}

/* Likewise in binary16. */
DEVICE void split_pair_f16(float x, float y, uint32_t *high, uint32_t *low)
{
    *high = pack_f16(x, y);
    *low = pack_f16(x - float_of_half(*high & 0xffff), y - float_of_half(*high >> 16));
}

#endif
