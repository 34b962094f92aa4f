/* An emulation with one kernel, "add": it adds a number to each of `n` floats on the device. For tests that need no
 * more of kernels than that they run. */
#ifndef RN_TESTS_GPU_RIGS_ADD_KERNEL_H
#define RN_TESTS_GPU_RIGS_ADD_KERNEL_H

#include "gpu/emulated/emulation.h"

struct add_arguments {
    uint64_t values;
    uint32_t n;
    float number; /* NaN: the kernel finds a fault */
};

extern const struct rn_gpu_emulation add_emulation;

#endif
