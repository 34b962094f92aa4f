/* The emulated driver, and what it runs kernels with. Of the module librunnel-cuda-emulated.so (module.c); a test may
 * put functions of its own in the emulation's place. */
#ifndef RN_GPU_EMULATED_EMULATION_H
#define RN_GPU_EMULATED_EMULATION_H

#include "gpu/driver.h"
#include "gpu/kernels/emulate/emulator.h"

/* Kernels that the host runs. Borrowed while a driver has them. */
struct rn_gpu_emulation {
    /* What runs launches, one at a time; each stream has its own. NULL on refusal of memory. */
    void *(*open)(struct rn_heap *heap);
    void (*close)(void *emulator);

    /* NULL: there is none of this name. The size is that of its struct of arguments. */
    const void *(*find)(const char *name, size_t *argument_bytes);

    /* Runs all blocks of the grid, on the calling thread. `ranges`: all memory of the device, ascending. False: the
     * emulation has found a fault, and says in a sentence which. */
    bool (*launch)(void *emulator, const void *kernel, const unsigned grid[3], const unsigned block[3],
                   unsigned shared_bytes, const void *arguments, const struct rn_emulated_range *ranges,
                   size_t n_ranges, char fault[RN_EMULATED_FAULT_BYTES]);
};

/* A device of so many bytes; any module image has all kernels of the emulation. NULL on refusal of memory. */
struct rn_gpu_driver *rn_gpu_driver_emulated(struct rn_heap *heap, const struct rn_gpu_emulation *emulation,
                                             size_t memory_bytes);

#endif
