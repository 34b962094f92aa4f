/* CUDA keeps the contract of a device (model/device.h): the kind "cuda". Nothing of CUDA is linked: the driver is
 * loaded when a model asks for the device, and the kernels lie in a library of their own (module.h). */
#ifndef RN_GPU_GPU_H
#define RN_GPU_GPU_H

#include "model/device.h"

extern const struct rn_device_kind rn_gpu_kind;

/* rn_device_kind.look. */
void rn_gpu_look(struct rn_heap *heap, const struct rn_device_options *options, runnel_device_info *info);

#endif
