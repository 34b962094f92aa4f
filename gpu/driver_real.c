/* The real driver: libcuda.so.1, each function looked up by its symbol. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "gpu/driver.h"

struct real_driver {
    struct rn_gpu_driver base; /* first */
    struct rn_heap *heap;
    void *library;
    struct {
#define RN_GPU_CALL(name, symbol, parameters, arguments) int(*name) parameters;
#include "gpu/driver.def"
    } cuda;
};

#define RN_GPU_CALL(name, symbol, parameters, arguments)            \
    static int call_##name RN_GPU_WITH_DRIVER parameters            \
    {                                                               \
        return ((struct real_driver *)driver)->cuda.name arguments; \
    }
#include "gpu/driver.def"

static void close_real(struct rn_gpu_driver *driver)
{
    struct real_driver *real = (struct real_driver *)driver;

    dlclose(real->library);
    rn_free(real->heap, real);
}

/* A function's address as dlsym gives it: C has no cast from an object's. False: the library has it not. */
static bool look_up(void *library, const char *symbol, void *function)
{
    void *address = dlsym(library, symbol);

    memcpy(function, &address, sizeof address);
    return address != NULL;
}

/* NULL, or the first symbol that is missing. */
static const char *look_up_all(struct real_driver *real)
{
    const char *missing = NULL;

#define RN_GPU_CALL(name, symbol, parameters, arguments)                               \
    real->base.name = call_##name;                                                     \
    if (!look_up(real->library, #symbol, (void *)&real->cuda.name) && missing == NULL) \
        missing = #symbol;
#include "gpu/driver.def"
    real->base.close = close_real;
    return missing;
}

/* The driver starts, is recent enough and finds a device. Code for devices runs on drivers of its CUDA's major version
 * and of later ones (NVIDIA's "CUDA Compatibility", minor version compatibility). */
static runnel_status check(struct rn_gpu_driver *driver, const char *file, int cuda, runnel_error *error)
{
    int result, version = 0, devices = 0;
    char text[128];

    result = driver->version(driver, &version);
    if (result == RN_GPU_OK && version < RN_GPU_OLDEST_DRIVER)
        return rn_error_set(error, RUNNEL_UNSUPPORTED,
                            "cuda: the driver %s is for CUDA %d.%d, which is older than %d.%d", file, version / 1000,
                            version % 1000 / 10, RN_GPU_OLDEST_DRIVER / 1000, RN_GPU_OLDEST_DRIVER % 1000 / 10);
    if (result == RN_GPU_OK && version / 1000 < cuda / 1000)
        return rn_error_set(error, RUNNEL_UNSUPPORTED,
                            "cuda: the kernels were compiled by CUDA %d.%d; the driver %s is for CUDA %d.%d: they need "
                            "one for CUDA %d.0 or later",
                            cuda / 1000, cuda % 1000 / 10, file, version / 1000, version % 1000 / 10, cuda / 1000);
    if (result == RN_GPU_OK)
        result = driver->init(driver, 0);
    if (result == RN_GPU_OK)
        result = driver->device_count(driver, &devices);
    if (result == RN_GPU_OK && devices > 0)
        return RUNNEL_OK;
    rn_gpu_error_text(driver, result == RN_GPU_OK ? RN_GPU_NO_DEVICE : result, text, sizeof text);
    return rn_error_set(error, RUNNEL_UNSUPPORTED, "cuda: the driver %s finds no device: %s", file, text);
}

runnel_status rn_gpu_driver_real(struct rn_heap *heap, const char *file, int cuda, struct rn_gpu_driver **driver,
                                 runnel_error *error)
{
    struct real_driver *real = rn_calloc(heap, 1, sizeof *real);
    const char *missing;
    runnel_status status;

    if (real == NULL)
        return rn_error_set(error, RUNNEL_NO_MEMORY, "no memory for the driver of CUDA");
    file = file == NULL ? "libcuda.so.1" : file;
    real->heap = heap;
    real->library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (real->library == NULL) {
        rn_free(heap, real);
        return rn_error_set(error, RUNNEL_UNSUPPORTED, "cuda: there is no driver %s on this machine", file);
    }
    missing = look_up_all(real);
    status = missing == NULL ? check(&real->base, file, cuda, error)
                             : rn_error_set(error, RUNNEL_UNSUPPORTED,
                                            "cuda: the driver %s is too old: it has no %s, as of CUDA %d.%d", file,
                                            missing, RN_GPU_OLDEST_DRIVER / 1000, RN_GPU_OLDEST_DRIVER % 1000 / 10);
    if (status != RUNNEL_OK) {
        close_real(&real->base);
        return status;
    }
    *driver = &real->base;
    return RUNNEL_OK;
}

void rn_gpu_error_text(struct rn_gpu_driver *driver, int result, char *text, size_t size)
{
    const char *words = NULL;

    if (driver->error_text(driver, result, &words) != RN_GPU_OK || words == NULL)
        snprintf(text, size, "error %d", result);
    else
        snprintf(text, size, "%s", words);
}
