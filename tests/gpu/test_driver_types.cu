/* Our numbers and signatures of the driver API are those of cuda.h. It is a test that compiles: as C++, which can take
 * a function's type apart.
 *
 * A parameter of ours fits one of cuda.h's when both are the same, or integers of the same size and sign (an enum is
 * `int`), or pointers to what fits; a struct of ours stands for the one of cuda.h that driver_types.h names. */
#include <cuda.h>
#include <stddef.h>
#include <stdint.h>
#include <type_traits>

#include "gpu/driver_types.h"

template <class Ours, class Theirs> constexpr bool is_object = false;
template <> constexpr bool is_object<rn_gpu_context, CUctx_st> = true;
template <> constexpr bool is_object<rn_gpu_stream, CUstream_st> = true;
template <> constexpr bool is_object<rn_gpu_event, CUevent_st> = true;
template <> constexpr bool is_object<rn_gpu_image, CUmod_st> = true;
template <> constexpr bool is_object<rn_gpu_function, CUfunc_st> = true;
template <> constexpr bool is_object<rn_gpu_graph, CUgraph_st> = true;
template <> constexpr bool is_object<rn_gpu_exec, CUgraphExec_st> = true;
template <> constexpr bool is_object<rn_gpu_launch_config, CUlaunchConfig> = true; /* its members are compared below */

template <class T, bool IsEnum> struct number_of {
    typedef T type;
};
template <class T> struct number_of<T, true> {
    typedef int type;
    static_assert(sizeof(T) == sizeof(int), "the driver's enums are passed as int");
};

template <class Ours, class Theirs, bool AreNumbers> constexpr bool is_number = false;
template <class Ours, class Theirs>
constexpr bool is_number<Ours, Theirs, true> =
    sizeof(Ours) == sizeof(Theirs) && std::is_signed<Ours>::value == std::is_signed<Theirs>::value;

/* Neither pointers nor functions. */
template <class Ours, class Theirs> struct fits_type {
    typedef typename number_of<Theirs, std::is_enum<Theirs>::value>::type number;
    static constexpr bool value =
        std::is_same<Ours, Theirs>::value || is_object<Ours, Theirs> ||
        is_number<Ours, number, std::is_integral<Ours>::value && std::is_integral<number>::value>;
};
template <> struct fits_type<void, void> {
    static constexpr bool value = true;
};
template <class Ours, class Theirs> struct fits_type<Ours *, Theirs *> {
    static constexpr bool value =
        std::is_const<Ours>::value == std::is_const<Theirs>::value &&
        fits_type<typename std::remove_const<Ours>::type, typename std::remove_const<Theirs>::type>::value;
};
template <class... Ours, class... Theirs, class R, class S> struct fits_type<R(Ours...), S(Theirs...)> {
    template <class... O> struct list;
    template <class A, class B> struct all {
        static constexpr bool value = false; /* of different lengths */
    };
    template <class A, class... As, class B, class... Bs> struct all<list<A, As...>, list<B, Bs...>> {
        static constexpr bool value = fits_type<A, B>::value && all<list<As...>, list<Bs...>>::value;
    };
    template <class X> struct all<list<>, X> {
        static constexpr bool value = std::is_same<X, list<>>::value;
    };
    static constexpr bool value = fits_type<R, S>::value && all<list<Ours...>, list<Theirs...>>::value;
};

/* Each row of driver.def. */
#define RN_GPU_CALL(name, symbol, parameters, arguments) \
    static_assert(fits_type<int parameters, decltype(symbol)>::value, "the row " #name " is not " #symbol);
#include "gpu/driver.def"

/* Rows with a mistake do not fit: a number of another size or sign, a parameter too few or in another's place, another
 * object, a pointer's constness or depth. */
#define WRONG(symbol, ...) static_assert(!fits_type<int(__VA_ARGS__), decltype(symbol)>::value, #symbol)
WRONG(cuInit, int);
WRONG(cuMemAlloc_v2, uint32_t *, size_t);
WRONG(cuMemAlloc_v2, uint64_t, size_t);
WRONG(cuMemAlloc_v2, uint64_t *);
WRONG(cuMemAlloc_v2, uint64_t *, size_t, unsigned);
WRONG(cuMemAlloc_v2, size_t, uint64_t *);
WRONG(cuStreamSynchronize, rn_gpu_event *);
WRONG(cuStreamCreate, rn_gpu_stream *, unsigned);
WRONG(cuMemcpyHtoDAsync_v2, uint64_t, void *, size_t, rn_gpu_stream *);
WRONG(cuGetErrorString, int, char **);
WRONG(cuStreamBeginCapture_v2, rn_gpu_stream *, unsigned);
WRONG(cuGraphInstantiateWithFlags, rn_gpu_exec **, rn_gpu_graph *, unsigned);

#define SAME(ours, theirs) static_assert((int)(ours) == (int)(theirs), #theirs)
SAME(RN_GPU_OK, CUDA_SUCCESS);
SAME(RN_GPU_INVALID_VALUE, CUDA_ERROR_INVALID_VALUE);
SAME(RN_GPU_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
SAME(RN_GPU_NOT_INITIALIZED, CUDA_ERROR_NOT_INITIALIZED);
SAME(RN_GPU_NO_DEVICE, CUDA_ERROR_NO_DEVICE);
SAME(RN_GPU_INVALID_DEVICE, CUDA_ERROR_INVALID_DEVICE);
SAME(RN_GPU_NO_BINARY, CUDA_ERROR_NO_BINARY_FOR_GPU);
SAME(RN_GPU_NOT_FOUND, CUDA_ERROR_NOT_FOUND);
SAME(RN_GPU_BAD_ADDRESS, CUDA_ERROR_ILLEGAL_ADDRESS);
SAME(RN_GPU_LAUNCH_FAILED, CUDA_ERROR_LAUNCH_FAILED);
SAME(RN_GPU_UNKNOWN, CUDA_ERROR_UNKNOWN);
SAME(RN_GPU_STREAM_APART, CU_STREAM_NON_BLOCKING);
SAME(RN_GPU_EVENT_NO_TIME, CU_EVENT_DISABLE_TIMING);
SAME(RN_GPU_HOST_PORTABLE, CU_MEMHOSTALLOC_PORTABLE);
SAME(RN_GPU_CAPTURE_RELAXED, CU_STREAM_CAPTURE_MODE_RELAXED);
SAME(RN_GPU_CAPTURE_NONE, CU_STREAM_CAPTURE_STATUS_NONE);
SAME(RN_GPU_CAPTURE_ACTIVE, CU_STREAM_CAPTURE_STATUS_ACTIVE);
SAME(RN_GPU_FUNCTION_PTX, CU_FUNC_ATTRIBUTE_PTX_VERSION);
SAME(RN_GPU_FUNCTION_SHARED, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
SAME(RN_GPU_DEVICE_UNITS, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
SAME(RN_GPU_DEVICE_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
SAME(RN_GPU_DEVICE_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
SAME(RN_GPU_DEVICE_SHARED_MOST, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
SAME(RN_GPU_LAUNCH_EARLY, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
SAME(sizeof(rn_gpu_launch_attribute), sizeof(CUlaunchAttribute));
SAME(offsetof(rn_gpu_launch_attribute, value), offsetof(CUlaunchAttribute, value));
SAME(sizeof(rn_gpu_launch_config), sizeof(CUlaunchConfig));
SAME(offsetof(rn_gpu_launch_config, block), offsetof(CUlaunchConfig, blockDimX));
SAME(offsetof(rn_gpu_launch_config, shared_bytes), offsetof(CUlaunchConfig, sharedMemBytes));
SAME(offsetof(rn_gpu_launch_config, stream), offsetof(CUlaunchConfig, hStream));
SAME(offsetof(rn_gpu_launch_config, attributes), offsetof(CUlaunchConfig, attrs));
SAME(offsetof(rn_gpu_launch_config, n_attributes), offsetof(CUlaunchConfig, numAttrs));
