/* Tests on a GPU: `ctest -L gpu`, which sets RUNNEL_TEST_CUDA to the file of kernels for devices. Without the variable
 * tests run in the emulation. */
#ifndef RN_TESTS_GPU_RIGS_REAL_DEVICE_H
#define RN_TESTS_GPU_RIGS_REAL_DEVICE_H

#include "gpu/module.h"

/* The file; NULL: the emulation is asked for. Where it is asked for and this machine has no GPU or no driver, the
 * program ends as skipped. */
const char *real_device_library(void);

/* Its kernels and driver, opened once and kept to the program's end; a context is current on this thread. NULL: the
 * emulation is asked for. */
const struct rn_gpu_module *real_device_module(void);

/* A kernel's function, likewise. */
struct rn_gpu_function *real_device_function(const char *name);

#endif
