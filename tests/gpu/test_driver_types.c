/* Our numbers of the driver API are those of cuda.h. It is a test that compiles. */
#include <assert.h>
#include <cuda.h>

#include "gpu/driver_types.h"

static_assert((int)RN_GPU_OK == (int)CUDA_SUCCESS, "");
static_assert((int)RN_GPU_INVALID_VALUE == (int)CUDA_ERROR_INVALID_VALUE, "");
static_assert((int)RN_GPU_OUT_OF_MEMORY == (int)CUDA_ERROR_OUT_OF_MEMORY, "");
static_assert((int)RN_GPU_NOT_INITIALIZED == (int)CUDA_ERROR_NOT_INITIALIZED, "");
static_assert((int)RN_GPU_NO_DEVICE == (int)CUDA_ERROR_NO_DEVICE, "");
static_assert((int)RN_GPU_INVALID_DEVICE == (int)CUDA_ERROR_INVALID_DEVICE, "");
static_assert((int)RN_GPU_NO_BINARY == (int)CUDA_ERROR_NO_BINARY_FOR_GPU, "");
static_assert((int)RN_GPU_NOT_FOUND == (int)CUDA_ERROR_NOT_FOUND, "");
static_assert((int)RN_GPU_BAD_ADDRESS == (int)CUDA_ERROR_ILLEGAL_ADDRESS, "");
static_assert((int)RN_GPU_LAUNCH_FAILED == (int)CUDA_ERROR_LAUNCH_FAILED, "");
static_assert((int)RN_GPU_UNKNOWN == (int)CUDA_ERROR_UNKNOWN, "");
static_assert((int)RN_GPU_STREAM_APART == (int)CU_STREAM_NON_BLOCKING, "");
static_assert((int)RN_GPU_EVENT_NO_TIME == (int)CU_EVENT_DISABLE_TIMING, "");
static_assert((int)RN_GPU_HOST_PORTABLE == (int)CU_MEMHOSTALLOC_PORTABLE, "");
static_assert((int)RN_GPU_CAPTURE_RELAXED == (int)CU_STREAM_CAPTURE_MODE_RELAXED, "");
static_assert((int)RN_GPU_FUNCTION_SHARED == (int)CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, "");
static_assert((int)RN_GPU_DEVICE_UNITS == (int)CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, "");
static_assert((int)RN_GPU_DEVICE_MAJOR == (int)CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, "");
static_assert((int)RN_GPU_DEVICE_MINOR == (int)CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, "");
static_assert((int)RN_GPU_DEVICE_SHARED_MOST == (int)CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, "");
static_assert(sizeof(CUdeviceptr) == sizeof(uint64_t) && sizeof(CUdevice) == sizeof(int), "");
static_assert((int)RN_GPU_LAUNCH_EARLY == (int)CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, "");
static_assert(sizeof(struct rn_gpu_launch_attribute) == sizeof(CUlaunchAttribute), "");
static_assert(offsetof(struct rn_gpu_launch_attribute, value) == offsetof(CUlaunchAttribute, value), "");
static_assert(sizeof(struct rn_gpu_launch_config) == sizeof(CUlaunchConfig), "");
static_assert(offsetof(struct rn_gpu_launch_config, stream) == offsetof(CUlaunchConfig, hStream), "");
static_assert(offsetof(struct rn_gpu_launch_config, n_attributes) == offsetof(CUlaunchConfig, numAttrs), "");
