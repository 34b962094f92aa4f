/* A library of this build's kernels, with a driver of another one: its table of functions is longer. */
#include "gpu/module_list.h"

static struct rn_gpu_driver *other_driver(struct rn_heap *heap, const struct rn_gpu_emulation *emulation, size_t bytes)
{
    (void)heap;
    (void)emulation;
    (void)bytes;
    return NULL;
}

const struct rn_gpu_kernels *runnel_cuda_module(void)
{
    static const struct rn_gpu_kernels kernels = {RN_GPU_MODULE_VERSION,
                                                  RN_KERNEL_COUNT,
                                                  rn_gpu_list,
                                                  "any",
                                                  other_driver,
                                                  sizeof(struct rn_gpu_driver) + 8,
                                                  NULL,
                                                  0,
                                                  0};

    return &kernels;
}
