/* See open_emulated.h. */
#include "tests/gpu/rigs/open_emulated.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "gpu/backend.h"
#include "tests/gpu/rigs/real_device.h"

struct rn_gpu_module emulated_module(struct rn_heap *heap, size_t memory_bytes)
{
    struct rn_gpu_module module = {.library = dlopen(EMULATED_MODULE, RTLD_NOW | RTLD_LOCAL)};
    rn_gpu_kernels_fn kernels;
    void *address;

    assert_non_null(module.library);
    address = dlsym(module.library, RN_GPU_KERNELS_SYMBOL);
    memcpy(&kernels, &address, sizeof kernels);
    module.kernels = kernels();
    module.driver = module.kernels->driver(heap, module.kernels->emulation, memory_bytes);
    return module;
}

struct rn_device *open_emulated(struct rn_heap *heap, size_t memory_bytes)
{
    const char *library = real_device_library();
    struct rn_gpu_module module;
    runnel_error error = {0};
    struct rn_device *device;

    if (library == NULL)
        module = emulated_module(heap, memory_bytes);
    else if (rn_gpu_module_open(heap, library, &module, &error) != RUNNEL_OK)
        fail_msg("%s", error.message);
    device = rn_gpu_device_open(heap, &module, 0, &error);
    if (device == NULL)
        fail_msg("%s", error.message);
    return device;
}
