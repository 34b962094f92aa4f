/* A machine's driver and kernels, of which a test decides what they do. */
#ifndef RN_TESTS_GPU_RIGS_STUBS_H
#define RN_TESTS_GPU_RIGS_STUBS_H

#include "gpu/module.h"

struct stubs {
    const struct rn_gpu_kernels *kernels; /* of EMULATED_MODULE, and their driver */
    struct rn_gpu_driver **driver;        /* what the stub of libcuda.so.1 stands for: set it before a device opens */
};

/* Loads both, for as long as the process lives. A test fails where one of them is not there. */
void find_stubs(struct stubs *stubs);

#endif
