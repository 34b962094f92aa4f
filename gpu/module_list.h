/* The list of kernels in a module's own build, and the code for devices that is put into it. Of the two modules
 * alone. */
#ifndef RN_GPU_MODULE_LIST_H
#define RN_GPU_MODULE_LIST_H

#include "gpu/kernels/draw_args.h"
#include "gpu/kernels/kernels.h"
#include "gpu/module.h"

static const struct rn_gpu_listed rn_gpu_list[] = {
#define RN_GPU_LISTED(name, arguments) {"rn_kernel_" #name, sizeof(struct rn_##arguments##_args)},
    RN_KERNELS(RN_GPU_LISTED)
#undef RN_GPU_LISTED
};

extern const unsigned char rn_gpu_image_bytes[]; /* of librunnel-cuda.so: nvcc's fat binary */

__attribute__((visibility("default"))) const struct rn_gpu_kernels *runnel_cuda_module(void);

#endif
