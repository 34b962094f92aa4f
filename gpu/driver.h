/* The CUDA driver behind a table of functions, so that the backend above it runs without a GPU.
 *
 *   real      libcuda.so.1, loaded at run time; nothing of CUDA is linked
 *   emulated  memory is the host's, a stream is a queue with a thread, a launch runs the kernel on that thread
 *   faulty    another driver whose n-th call fails, for tests
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

/* The driver of this file name, NULL: libcuda.so.1. UNSUPPORTED: it is not there, it is too old, or it finds no device;
 * the sentence says which. NO_MEMORY. */
runnel_status rn_gpu_driver_real(struct rn_heap *heap, const char *file, struct rn_gpu_driver **driver,
                                 runnel_error *error);

/* What the driver calls this result, in its own words; "error 700" where it has none. At most size bytes. */
void rn_gpu_error_text(struct rn_gpu_driver *driver, int result, char *text, size_t size);

/* Memory of the emulated device. */
struct rn_gpu_range {
    uint64_t at, bytes;
};

enum { RN_GPU_FAULT_BYTES = 256 };

/* Kernels that the host runs: of a module of the emulation. Borrowed while a driver has them. */
struct rn_gpu_emulation {
    /* What runs launches, one at a time; each stream has its own. NULL on refusal of memory. */
    void *(*open)(struct rn_heap *heap);
    void (*close)(void *emulator);

    /* NULL: there is none of this name. The size is that of its struct of arguments. */
    const void *(*find)(const char *name, size_t *argument_bytes);

    /* Runs all blocks of the grid, on the calling thread. `ranges`: all memory of the device, ascending. False: the
     * emulation has found a fault, and says in a sentence which. */
    bool (*launch)(void *emulator, const void *kernel, const unsigned grid[3], const unsigned block[3],
                   unsigned shared_bytes, const void *arguments, const struct rn_gpu_range *ranges, size_t n_ranges,
                   char fault[RN_GPU_FAULT_BYTES]);
};

/* A device of so many bytes; any module image has all kernels of the emulation. NULL on refusal of memory. */
struct rn_gpu_driver *rn_gpu_driver_emulated(struct rn_heap *heap, const struct rn_gpu_emulation *emulation,
                                             size_t memory_bytes);

/* The functions of the table by number. */
enum rn_gpu_called {
    RN_GPU_ANY_CALL,
#define RN_GPU_CALL(name, symbol, parameters, arguments) RN_GPU_CALL_##name,
#include "gpu/driver.def"
    RN_GPU_CALLS
};

/* Where a driver's calls fail. Set before the calls, read when no other thread calls. */
struct rn_gpu_fault {
    enum rn_gpu_called of;        /* the function whose call fails, or any */
    uint64_t at;                  /* which of its calls, from 1; 0: none */
    int result;                   /* what it returns */
    bool for_good;                /* and all calls behind it but error_text: the context is lost */
    bool is_lost;                 /* by now */
    uint64_t calls[RN_GPU_CALLS]; /* so far, of each function and of any */
    int64_t owed;                 /* objects that have been made, less calls that free one */
};

/* `inner` with these faults; close closes inner, too. NULL on refusal of memory. */
struct rn_gpu_driver *rn_gpu_driver_faulty(struct rn_heap *heap, struct rn_gpu_driver *inner,
                                           struct rn_gpu_fault *fault);

#endif
