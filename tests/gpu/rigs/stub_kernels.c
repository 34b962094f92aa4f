/* A library of kernels for a device whose driver is libcuda.so.1: there the test puts a stub of its own, which takes
 * any image for the emulated kernels. */
#include "gpu/module_list.h"

const struct rn_gpu_kernels *runnel_cuda_module(void)
{
    static const struct rn_gpu_kernels kernels = {
        RN_GPU_MODULE_VERSION, RN_KERNEL_COUNT, rn_gpu_list, "any", NULL, 0, NULL, STUB_CUDA, STUB_NEWEST};

    return &kernels;
}
