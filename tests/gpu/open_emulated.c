/* See open_emulated.h. */
#include "tests/gpu/open_emulated.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "gpu/backend.h"

struct rn_device *open_emulated(struct rn_heap *heap, size_t memory_bytes)
{
    struct rn_gpu_module module = {.library = dlopen(EMULATED_MODULE, RTLD_NOW | RTLD_LOCAL)};
    rn_gpu_kernels_fn kernels;
    runnel_error error = {0};
    struct rn_device *device;
    void *address;

    assert_non_null(module.library);
    address = dlsym(module.library, RN_GPU_KERNELS_SYMBOL);
    memcpy(&kernels, &address, sizeof kernels);
    module.kernels = kernels();
    module.driver = rn_gpu_driver_emulated(heap, module.kernels->emulation, memory_bytes);
    device = rn_gpu_device_open(heap, &module, 0, &error);
    if (device == NULL)
        fail_msg("%s", error.message);
    return device;
}
