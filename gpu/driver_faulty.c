/* A driver whose n-th call fails, for tests. */
#include "gpu/driver.h"

struct faulty_driver {
    struct rn_gpu_driver base; /* first */
    struct rn_heap *heap;
    struct rn_gpu_driver *inner;
    struct rn_gpu_fault *fault;
};

/* What this call is to return, RN_GPU_OK: what the driver says. */
static int fault_of(struct faulty_driver *faulty)
{
    struct rn_gpu_fault *fault = faulty->fault;
    uint64_t call = __atomic_add_fetch(&fault->calls, 1, __ATOMIC_RELAXED); /* a count: it orders nothing */

    return fault->at != 0 && (call == fault->at || (fault->for_good && call > fault->at)) ? fault->result : RN_GPU_OK;
}

#define INNER(...) (faulty->inner, __VA_ARGS__)
#define RN_GPU_CALL(name, symbol, parameters, arguments)                         \
    static int call_##name RN_GPU_WITH_DRIVER parameters                         \
    {                                                                            \
        struct faulty_driver *faulty = (struct faulty_driver *)driver;           \
        int fault = fault_of(faulty);                                            \
                                                                                 \
        return fault != RN_GPU_OK ? fault : faulty->inner->name INNER arguments; \
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
