/* What a test tells the stub of libcuda.so.1; it finds the variable by dlsym. */
#ifndef RN_TESTS_GPU_RIGS_STUB_DRIVER_H
#define RN_TESTS_GPU_RIGS_STUB_DRIVER_H

#include "gpu/driver.h"

__attribute__((visibility("default"))) extern struct rn_gpu_driver *stub_driver; /* borrowed */

#endif
