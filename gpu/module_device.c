/* librunnel-cuda.so: the kernels as nvcc has compiled them. */
#include "gpu/module_list.h"

__asm__(".section .rodata\n"
        ".balign 64\n"
        ".hidden rn_gpu_image_bytes\n"
        ".global rn_gpu_image_bytes\n"
        "rn_gpu_image_bytes:\n"
        ".incbin \"" RN_GPU_IMAGE_FILE "\"\n"
        ".previous\n");

const struct rn_gpu_kernels *runnel_cuda_module(void)
{
    static const struct rn_gpu_kernels kernels = {
        RN_GPU_MODULE_VERSION, RN_KERNEL_COUNT, rn_gpu_list, rn_gpu_image_bytes, NULL, 0, NULL};

    return &kernels;
}
