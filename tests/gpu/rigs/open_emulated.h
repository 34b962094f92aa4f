/* The device "cuda" on the emulated driver, or on a GPU (real_device.h), for tests. */
#ifndef RN_TESTS_GPU_RIGS_OPEN_EMULATED_H
#define RN_TESTS_GPU_RIGS_OPEN_EMULATED_H

#include "gpu/module.h"
#include "model/device.h"

/* With so many bytes of memory, where it is emulated. What cannot be done fails the test. Closed by its kind. */
struct rn_device *open_emulated(struct rn_heap *heap, size_t memory_bytes);

/* The module alone, of kernels and an emulated driver. */
struct rn_gpu_module emulated_module(struct rn_heap *heap, size_t memory_bytes);

#endif
