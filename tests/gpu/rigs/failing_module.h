/* A library of kernels that are the emulated ones, until the test says that the device is lost. The test finds the
 * variable by dlsym. */
#ifndef RN_TESTS_GPU_RIGS_FAILING_MODULE_H
#define RN_TESTS_GPU_RIGS_FAILING_MODULE_H

#include "gpu/emulated/emulation.h"
#include "gpu/module.h"

__attribute__((visibility("default"))) extern int64_t failing_launches_left; /* relaxed; negative: it is lost */
__attribute__((visibility("default"))) const struct rn_gpu_kernels *runnel_cuda_module(void);

#endif
