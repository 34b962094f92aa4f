/* The kernels that are compiled for the emulation. */
#include "gpu/kernels/emulate/emulator.h"

#define KERNEL(name, args) void rn_kernel_##name(const void *args_of_it);
RN_KERNELS(KERNEL)
#undef KERNEL

static const rn_emulated_kernel kernels[RN_KERNEL_COUNT] = {
#define KERNEL(name, args) [RN_KERNEL_##name] = rn_kernel_##name,
    RN_KERNELS(KERNEL)};

rn_emulated_kernel rn_emulated_find(enum rn_kernel kernel)
{
    return kernels[kernel];
}
