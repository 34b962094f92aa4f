/* See failing_module.h. */
#include "tests/gpu/rigs/failing_module.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int64_t failing_launches_left = INT64_MAX;
static const struct rn_gpu_kernels *whole;

static bool launch(void *emulator, const void *kernel, const unsigned grid[3], const unsigned block[3],
                   unsigned shared_bytes, const void *arguments, const struct rn_emulated_range *ranges,
                   size_t n_ranges, char fault[RN_EMULATED_FAULT_BYTES])
{
    if (__atomic_sub_fetch(&failing_launches_left, 1, __ATOMIC_RELAXED) >= 0)
        return whole->emulation->launch(emulator, kernel, grid, block, shared_bytes, arguments, ranges, n_ranges,
                                        fault);
    snprintf(fault, RN_EMULATED_FAULT_BYTES, "the device has fallen off the bus");
    return false;
}

const struct rn_gpu_kernels *runnel_cuda_module(void)
{
    static struct rn_gpu_emulation emulation;
    static struct rn_gpu_kernels kernels;
    void *library = dlopen(EMULATED_MODULE, RTLD_NOW | RTLD_LOCAL);
    void *address = library == NULL ? NULL : dlsym(library, RN_GPU_KERNELS_SYMBOL);
    rn_gpu_kernels_fn function;

    if (address == NULL)
        return NULL;
    memcpy(&function, &address, sizeof function);
    whole = function();
    emulation = *whole->emulation;
    emulation.launch = launch;
    kernels = *whole;
    kernels.emulation = &emulation;
    return &kernels;
}
