/* See real_device.h. */
#include "tests/gpu/rigs/real_device.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

enum { SKIPPED = 77 }; /* what ctest calls so: SKIP_RETURN_CODE */

static struct rn_heap heap;
static struct rn_gpu_module module;
static struct rn_gpu_image *image;

static void good(int result)
{
    char text[128];

    if (result == RN_GPU_OK)
        return;
    rn_gpu_error_text(module.driver, result, text, sizeof text);
    fail_msg("%s", text);
}

static void open_module(const char *file)
{
    struct rn_gpu_context *context;
    runnel_error error = {0};
    int device;

    rn_heap_init(&heap, NULL);
    if (rn_gpu_module_open(&heap, file, &module, &error) != RUNNEL_OK) {
        printf("skipped: %s\n", error.message);
        exit(SKIPPED);
    }
    good(module.driver->device_get(module.driver, &device, 0));
    good(module.driver->context_retain(module.driver, &context, device));
    good(module.driver->context_set(module.driver, context));
    good(module.driver->module_load(module.driver, &image, module.kernels->image));
}

const struct rn_gpu_module *real_device_module(void)
{
    const char *file = getenv("RUNNEL_TEST_CUDA");

    if (file == NULL)
        return NULL;
    if (module.driver == NULL)
        open_module(file);
    return &module;
}

const char *real_device_library(void)
{
    return real_device_module() == NULL ? NULL : getenv("RUNNEL_TEST_CUDA");
}

struct rn_gpu_function *real_device_function(const char *name)
{
    struct rn_gpu_function *function = NULL;

    good(module.driver->module_function(module.driver, &function, image, name));
    return function;
}
