/* The file of kernels: see module.h. */
#define _GNU_SOURCE /* dladdr */
#include "gpu/module.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "gpu/kernels/kernels.h"

#define USUAL "librunnel-cuda.so"

enum { EMULATED_BYTES = 256 << 20 }; /* memory of the emulated device */

/* They are the kernels that this build knows. */
static bool is_known(const struct rn_gpu_kernels *kernels)
{
    const struct rn_kernel_info *info;

    if (kernels == NULL || kernels->version != RN_GPU_MODULE_VERSION || kernels->n != RN_KERNEL_COUNT)
        return false;
    for (uint32_t i = 0; i < kernels->n; i++) {
        info = rn_kernel_info((enum rn_kernel)i);
        if (strcmp(kernels->list[i].name, info->name) != 0 || kernels->list[i].argument_bytes != info->args_bytes)
            return false;
    }
    return true;
}

/* The linker's words of a usual place begin with the file's path, or with its bare name where the system's places have
 * no such file, or with what the file wants and is not there. True: there is a file, and it does not load. */
static bool is_broken(const char *words)
{
    const char *name = strstr(words, USUAL);
    char path[512];

    if (name == NULL)
        return true;
    snprintf(path, sizeof path, "%.*s", (int)(name - words + sizeof USUAL - 1), words);
    return name != words && access(path, F_OK) == 0;
}

/* $ORIGIN is the folder of the file that has this code, as the dynamic linker knows it. */
static runnel_status open_file(const char *file, struct rn_gpu_module *module, runnel_error *error)
{
    static const char *const usual[] = {USUAL, "$ORIGIN/" USUAL, "$ORIGIN/../lib/" USUAL};
    char why[RUNNEL_ERROR_BYTES] = "";

    if (file != NULL)
        module->library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; file == NULL && i < sizeof usual / sizeof usual[0] && module->library == NULL; i++) {
        const char *words;

        module->library = dlopen(usual[i], RTLD_NOW | RTLD_LOCAL);
        words = module->library == NULL ? dlerror() : NULL;
        if (words != NULL && why[0] == '\0' && is_broken(words))
            snprintf(why, sizeof why, "%s", words);
    }
    if (module->library != NULL)
        return RUNNEL_OK;
    if (why[0] != '\0')
        return rn_error_set(error, RUNNEL_UNSUPPORTED, "cuda: the kernels do not load: %s", why);
    return file != NULL ? rn_error_set(error, RUNNEL_UNSUPPORTED, "cuda: the kernels are not there: %s", dlerror())
                        : rn_error_set(error, RUNNEL_UNSUPPORTED,
                                       "cuda: the kernels are not there: %s is neither where the system looks for "
                                       "libraries, nor beside runnel, nor in ../lib of there",
                                       USUAL);
}

runnel_status rn_gpu_module_find(const char *file, struct rn_gpu_module *module, runnel_error *error)
{
    rn_gpu_kernels_fn kernels = NULL;
    void *address;
    runnel_status status;

    *module = (struct rn_gpu_module){NULL, NULL, NULL};
    status = open_file(file, module, error);
    if (status != RUNNEL_OK)
        return status;
    address = dlsym(module->library, RN_GPU_KERNELS_SYMBOL);
    memcpy(&kernels, &address, sizeof kernels); /* likewise, from an object's to a function's */
    module->kernels = kernels == NULL ? NULL : kernels();
    if (is_known(module->kernels))
        return RUNNEL_OK;
    rn_gpu_module_close(module);
    return rn_error_set(error, RUNNEL_UNSUPPORTED, "cuda: %s has not the kernels of this version of runnel",
                        file == NULL ? USUAL : file);
}

void rn_gpu_module_path(const struct rn_gpu_module *module, char *path, size_t size)
{
    void *address = dlsym(module->library, RN_GPU_KERNELS_SYMBOL);
    Dl_info info;

    snprintf(path, size, "%s",
             address != NULL && dladdr(address, &info) != 0 && info.dli_fname != NULL ? info.dli_fname : "a library");
}

runnel_status rn_gpu_module_start(struct rn_heap *heap, struct rn_gpu_module *module, runnel_error *error)
{
    if (module->kernels->emulation == NULL)
        return rn_gpu_driver_real(heap, NULL, &module->driver, error);
    module->driver = rn_gpu_driver_emulated(heap, module->kernels->emulation, EMULATED_BYTES);
    return module->driver != NULL ? RUNNEL_OK
                                  : rn_error_set(error, RUNNEL_NO_MEMORY, "no memory for the emulated driver of CUDA");
}

runnel_status rn_gpu_module_open(struct rn_heap *heap, const char *file, struct rn_gpu_module *module,
                                 runnel_error *error)
{
    runnel_status status = rn_gpu_module_find(file, module, error);

    if (status != RUNNEL_OK)
        return status;
    status = rn_gpu_module_start(heap, module, error);
    if (status != RUNNEL_OK)
        rn_gpu_module_close(module);
    return status;
}

void rn_gpu_module_close(struct rn_gpu_module *module)
{
    if (module->driver != NULL)
        module->driver->close(module->driver);
    if (module->library != NULL)
        dlclose(module->library);
    *module = (struct rn_gpu_module){NULL, NULL, NULL};
}
