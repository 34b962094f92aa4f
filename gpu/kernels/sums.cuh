/* Sums over the threads of a block or of a warp, in an order that the number of values alone decides. */
#ifndef RN_GPU_SUMS_CUH
#define RN_GPU_SUMS_CUH

#include "gpu/kernels/wrap.cuh"

/* The sum over a warp's lanes, by halves, the same in each. */
DEVICE float sum_of_warp(float value)
{
    UNROLL
    for (uint32_t mask = 16; mask > 0; mask /= 2)
        value += shuffle_xor(value, mask);
    return value;
}

/* The sum over a block of 256 threads, the same in each: over each warp's lanes by halves, then the warps in order.
 * `sums` has eight values. */
DEVICE float sum_of_block(float value, const shared<float> &sums)
{
    float total = 0;

    value = sum_of_warp(value);
    if (lane_of_warp() == 0)
        sums.put(warp_of_block(), value);
    sync_block();
    for (uint32_t i = 0; i < 8; i++)
        total += sums.get(i);
    sync_block();
    return total;
}

#endif
