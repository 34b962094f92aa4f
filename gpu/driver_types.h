/* The few types and numbers of the CUDA driver API that we use, so that nothing of CUDA is needed to build. They are
 * the driver's binary interface, which has not changed since CUDA 12.0; tests/gpu/test_driver_types.cu compares them
 * with cuda.h where there is one. */
#ifndef RN_GPU_DRIVER_TYPES_H
#define RN_GPU_DRIVER_TYPES_H

#include <stddef.h>
#include <stdint.h>

/* CUresult. 0: good. */
enum rn_gpu_result {
    RN_GPU_OK = 0,
    RN_GPU_INVALID_VALUE = 1,
    RN_GPU_OUT_OF_MEMORY = 2,
    RN_GPU_NOT_INITIALIZED = 3,
    RN_GPU_NO_DEVICE = 100,
    RN_GPU_INVALID_DEVICE = 101,
    RN_GPU_NO_BINARY = 209,     /* the module has no code for this device */
    RN_GPU_NOT_FOUND = 500,     /* no function of this name */
    RN_GPU_BAD_ADDRESS = 700,   /* a kernel went beyond its memory; the context is lost */
    RN_GPU_LAUNCH_FAILED = 719, /* likewise, for another reason */
    RN_GPU_UNKNOWN = 999
};

/* The driver's objects. A pointer to the device's memory is a number: the host does not look behind it. */
struct rn_gpu_context;  /* CUcontext */
struct rn_gpu_stream;   /* CUstream */
struct rn_gpu_event;    /* CUevent */
struct rn_gpu_image;    /* CUmodule */
struct rn_gpu_function; /* CUfunction */
struct rn_gpu_graph;    /* CUgraph */
struct rn_gpu_exec;     /* CUgraphExec */

/* CUstreamCallback: when everything before it in the stream is done, with RN_GPU_OK; or with what the context was lost
 * by. On a thread of the driver; may not call it. */
typedef void (*rn_gpu_callback)(struct rn_gpu_stream *stream, int result, void *user);

/* CUlaunchAttribute and CUlaunchConfig. */
struct rn_gpu_launch_attribute {
    int id;
    char unused[4];
    union {
        int allowed;
        char bytes[64];
    } value;
};
struct rn_gpu_launch_config {
    unsigned grid[3], block[3], shared_bytes;
    struct rn_gpu_stream *stream;
    struct rn_gpu_launch_attribute *attributes; /* [n_attributes] */
    unsigned n_attributes;
};

enum {
    RN_GPU_LAUNCH_EARLY = 6,    /* CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION */
    RN_GPU_STREAM_APART = 1,    /* CU_STREAM_NON_BLOCKING: it does not wait for the default stream */
    RN_GPU_EVENT_NO_TIME = 2,   /* CU_EVENT_DISABLE_TIMING */
    RN_GPU_HOST_PORTABLE = 1,   /* CU_MEMHOSTALLOC_PORTABLE */
    RN_GPU_CAPTURE_RELAXED = 2, /* CU_STREAM_CAPTURE_MODE_RELAXED */
    RN_GPU_CAPTURE_NONE = 0,    /* CU_STREAM_CAPTURE_STATUS_NONE: the stream does not capture */
    RN_GPU_CAPTURE_ACTIVE = 1,  /* CU_STREAM_CAPTURE_STATUS_ACTIVE */
    RN_GPU_FUNCTION_PTX = 5,    /* CU_FUNC_ATTRIBUTE_PTX_VERSION: what its code was compiled for, 10 * major + minor */
    RN_GPU_FUNCTION_SHARED = 8, /* CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES */
    RN_GPU_DEVICE_UNITS = 16,   /* CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT */
    RN_GPU_DEVICE_MAJOR = 75,   /* CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR */
    RN_GPU_DEVICE_MINOR = 76,   /* CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR */
    RN_GPU_DEVICE_SHARED_MOST = 97 /* CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN */
};

#endif
