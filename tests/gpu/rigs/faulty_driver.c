/* See faulty_driver.h. */
#include "tests/gpu/rigs/faulty_driver.h"

struct faulty_driver {
    struct rn_gpu_driver base; /* first */
    struct rn_heap *heap;
    struct rn_gpu_driver *inner;
    struct rn_gpu_fault *fault;
};

/* Calls that make an object, and calls that free one. */
static const int8_t makes[RN_GPU_CALLS] = {
    [RN_GPU_CALL_context_retain] = 1, [RN_GPU_CALL_context_release] = -1, [RN_GPU_CALL_memory_new] = 1,
    [RN_GPU_CALL_memory_free] = -1,   [RN_GPU_CALL_host_new] = 1,         [RN_GPU_CALL_host_free] = -1,
    [RN_GPU_CALL_stream_new] = 1,     [RN_GPU_CALL_stream_free] = -1,     [RN_GPU_CALL_event_new] = 1,
    [RN_GPU_CALL_event_free] = -1,    [RN_GPU_CALL_module_load] = 1,      [RN_GPU_CALL_module_free] = -1,
    [RN_GPU_CALL_capture_end] = 1,    [RN_GPU_CALL_graph_free] = -1,      [RN_GPU_CALL_graph_ready] = 1,
    [RN_GPU_CALL_exec_free] = -1,
};

/* What this call is to return, RN_GPU_OK: what the driver says. The counts order nothing, is_lost neither: a thread
 * that does not see it yet has called before. */
static int fault_of(struct faulty_driver *faulty, enum rn_gpu_called name)
{
    struct rn_gpu_fault *fault = faulty->fault;
    uint64_t any = __atomic_add_fetch(&fault->calls[RN_GPU_ANY_CALL], 1, __ATOMIC_RELAXED);
    uint64_t own = __atomic_add_fetch(&fault->calls[name], 1, __ATOMIC_RELAXED);
    bool is_here = fault->of == RN_GPU_ANY_CALL ? any == fault->at : fault->of == name && own == fault->at;

    if (makes[name] < 0)
        __atomic_add_fetch(&fault->owed, -1, __ATOMIC_RELAXED);
    if (is_here && fault->for_good)
        __atomic_store_n(&fault->is_lost, true, __ATOMIC_RELAXED);
    is_here = is_here || (name != RN_GPU_CALL_error_text && __atomic_load_n(&fault->is_lost, __ATOMIC_RELAXED));
    return is_here ? fault->result : RN_GPU_OK;
}

static int note(struct faulty_driver *faulty, enum rn_gpu_called name, int result)
{
    if (makes[name] > 0 && result == RN_GPU_OK)
        __atomic_add_fetch(&faulty->fault->owed, 1, __ATOMIC_RELAXED);
    return result;
}

#define INNER(...) (faulty->inner, __VA_ARGS__)
#define RN_GPU_CALL(name, symbol, parameters, arguments)                                                           \
    static int call_##name RN_GPU_WITH_DRIVER parameters                                                           \
    {                                                                                                              \
        struct faulty_driver *faulty = (struct faulty_driver *)driver;                                             \
        int fault = fault_of(faulty, RN_GPU_CALL_##name);                                                          \
                                                                                                                   \
        return fault != RN_GPU_OK ? fault : note(faulty, RN_GPU_CALL_##name, faulty->inner->name INNER arguments); \
    }
#include "gpu/driver.def"

static void close_faulty(struct rn_gpu_driver *driver)
{
    struct faulty_driver *faulty = (struct faulty_driver *)driver;

    faulty->inner->close(faulty->inner);
    rn_free(faulty->heap, faulty);
}

struct rn_gpu_driver *rn_gpu_driver_faulty(struct rn_heap *heap, struct rn_gpu_driver *inner,
                                           struct rn_gpu_fault *fault)
{
    struct faulty_driver *faulty = rn_calloc(heap, 1, sizeof *faulty);

    if (faulty == NULL)
        return NULL;
    faulty->heap = heap;
    faulty->inner = inner;
    faulty->fault = fault;
#define RN_GPU_CALL(name, symbol, parameters, arguments) faulty->base.name = call_##name;
#include "gpu/driver.def"
    faulty->base.close = close_faulty;
    return &faulty->base;
}
