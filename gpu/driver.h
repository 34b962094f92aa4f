/* The CUDA driver behind a table of functions, so that the backend above it runs without a GPU.
 *
 *   real      libcuda.so.1, loaded at run time; nothing of CUDA is linked
 *   emulated  comes with the kernels that the host runs (emulated/)
 *   faulty    another driver whose n-th call fails, for tests (tests/gpu/rigs/faulty_driver.h)
 *
 * What a function means is what NVIDIA's reference of the driver API says of its symbol (driver.def). A failure that
 * loses the context stays: every later call, and every callback that has not been called, gets it.
 *
 * Threads: all functions from any thread; a context is current per thread (context_set). */
#ifndef RN_GPU_DRIVER_H
#define RN_GPU_DRIVER_H

#include <stdbool.h>

#include "base/alloc.h"
#include "base/status.h"
#include "gpu/driver_types.h"

#define RN_GPU_WITH_DRIVER(...) (struct rn_gpu_driver * driver, __VA_ARGS__)

struct rn_gpu_driver {
#define RN_GPU_CALL(name, symbol, parameters, arguments) int(*name) RN_GPU_WITH_DRIVER parameters;
#include "gpu/driver.def"
    void (*close)(struct rn_gpu_driver *driver); /* nothing of it is in use */
};

enum { RN_GPU_OLDEST_DRIVER = 12000 }; /* cuDriverGetVersion of the first one that will do */

/* The driver of this file name, NULL: libcuda.so.1, for kernels that this CUDA has compiled (as cuDriverGetVersion
 * tells it; 0: for none). UNSUPPORTED: it is not there, it is too old in itself or for the kernels, or it finds no
 * device; the sentence says which. NO_MEMORY. */
runnel_status rn_gpu_driver_real(struct rn_heap *heap, const char *file, int cuda, struct rn_gpu_driver **driver,
                                 runnel_error *error);

/* What the driver calls this result, in its own words; "error 700" where it has none. At most size bytes. */
void rn_gpu_error_text(struct rn_gpu_driver *driver, int result, char *text, size_t size);

#endif
