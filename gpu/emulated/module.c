/* librunnel-cuda-emulated.so: the kernels as the host's compiler has compiled them, and the driver that runs them. */
#include <string.h>

#include "gpu/emulated/emulation.h"
#include "gpu/module_list.h"

static void *open_emulator(struct rn_heap *heap)
{
    return rn_emulator_new(heap);
}

static void close_emulator(void *emulator)
{
    rn_emulator_free(emulator);
}

/* A kernel is known by its place in the list. */
static const void *find_kernel(const char *name, size_t *argument_bytes)
{
    for (uint32_t i = 0; i < RN_KERNEL_COUNT; i++)
        if (strcmp(rn_gpu_list[i].name, name) == 0) {
            *argument_bytes = rn_gpu_list[i].argument_bytes;
            return &rn_gpu_list[i];
        }
    return NULL;
}

static bool launch_kernel(void *emulator, const void *kernel, const unsigned grid[3], const unsigned block[3],
                          unsigned shared_bytes, const void *arguments, const struct rn_emulated_range *ranges,
                          size_t n_ranges, char fault[RN_EMULATED_FAULT_BYTES])
{
    const struct rn_gpu_listed *listed = kernel;
    const struct rn_launch launch = {{grid[0], grid[1], grid[2]}, block[0], shared_bytes};

    return rn_emulator_launch(emulator, rn_emulated_find((enum rn_kernel)(listed - rn_gpu_list)), &launch, arguments,
                              ranges, n_ranges, fault);
}

const struct rn_gpu_kernels *runnel_cuda_module(void)
{
    static const struct rn_gpu_emulation emulation = {open_emulator, close_emulator, find_kernel, launch_kernel};
    static const struct rn_gpu_kernels kernels = {.version = RN_GPU_MODULE_VERSION,
                                                  .n = RN_KERNEL_COUNT,
                                                  .list = rn_gpu_list,
                                                  .image = "emulated",
                                                  .driver = rn_gpu_driver_emulated,
                                                  .driver_bytes = sizeof(struct rn_gpu_driver),
                                                  .emulation = &emulation};

    return &kernels;
}
