/* See stubs.h. */
#include "tests/gpu/rigs/stubs.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void *symbol(const char *file, const char *name)
{
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL), *address;

    assert_non_null(library);
    address = dlsym(library, name);
    assert_non_null(address);
    return address;
}

void find_stubs(struct stubs *stubs)
{
    void *address = symbol(EMULATED_MODULE, RN_GPU_KERNELS_SYMBOL);
    rn_gpu_kernels_fn function;

    memcpy(&function, &address, sizeof function);
    stubs->kernels = function();
    /* its soname is libcuda.so.1: whoever asks for that gets it */
    stubs->driver = symbol(STUB_DRIVER, "stub_driver");
}
