/* librunnel-cuda.so: the kernels as nvcc has compiled them. */
#include <assert.h>

#include "gpu/module_list.h"

__asm__(".section .rodata\n"
        ".balign 64\n"
        ".hidden rn_gpu_image_bytes\n"
        ".global rn_gpu_image_bytes\n"
        "rn_gpu_image_bytes:\n"
        ".incbin \"" RN_GPU_IMAGE_FILE "\"\n"
        ".previous\n");

static_assert(RN_GPU_CUDA >= 12000, "nvcc's version, as 1000 * major + 10 * minor");

const struct rn_gpu_kernels *runnel_cuda_module(void)
{
    static const struct rn_gpu_kernels kernels = {
        RN_GPU_MODULE_VERSION, RN_KERNEL_COUNT, rn_gpu_list, rn_gpu_image_bytes, NULL, 0, NULL,
        RN_GPU_CUDA,           RN_GPU_NEWEST};

    return &kernels;
}
