/* The file of kernels: see module.h. */
#define _GNU_SOURCE /* dladdr1 */
#include "gpu/module.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu/kernels/kernels.h"

#define USUAL "librunnel-cuda.so"

static const char *const usual_folders[] = {"/", "/../lib/"}; /* from the folder of the file that has this code */

enum { EMULATED_BYTES = 256 << 20 }; /* memory of the emulated device */

/* They are the kernels that this build knows, and their driver has the functions that it calls. */
static bool is_known(const struct rn_gpu_kernels *kernels)
{
    const struct rn_kernel_info *info;

    if (kernels == NULL || kernels->version != RN_GPU_MODULE_VERSION || kernels->n != RN_KERNEL_COUNT)
        return false;
    if (kernels->driver != NULL && kernels->driver_bytes != sizeof(struct rn_gpu_driver))
        return false;
    for (uint32_t i = 0; i < kernels->n; i++) {
        info = rn_kernel_info((enum rn_kernel)i);
        if (strcmp(kernels->list[i].name, info->name) != 0 || kernels->list[i].argument_bytes != info->args_bytes)
            return false;
    }
    return true;
}

/* The folder of the file that has this code, which need not be that of the program. Not dlopen's "$ORIGIN": under
 * AddressSanitizer that is the folder of its own library, which calls dlopen in our place. "": not known. */
static void own_folder(char folder[PATH_MAX])
{
    struct link_map *map = NULL;
    char *slash;
    Dl_info info;

    folder[0] = '\0';
    if (dladdr1((const void *)&usual_folders, &info, (void **)&map, RTLD_DL_LINKMAP) == 0 || map == NULL)
        return;
    if (realpath(map->l_name[0] != '\0' ? map->l_name : "/proc/self/exe", folder) == NULL) /* no name: the program */
        folder[0] = '\0';
    slash = strrchr(folder, '/');
    if (slash != NULL)
        *slash = '\0';
}

/* The library from the first usual place in which one loads. `why`: the linker's words of the first file that is there
 * and does not load; "": there is none. */
static void *open_usual(char *why, size_t size)
{
    char folder[PATH_MAX], path[PATH_MAX + sizeof "/../lib/" USUAL];
    void *library = dlopen(USUAL, RTLD_NOW | RTLD_LOCAL);
    const char *words = library == NULL ? dlerror() : NULL;

    /* They begin with the bare name where the system's places have no such file. */
    snprintf(why, size, "%s", words != NULL && strncmp(words, USUAL, strlen(USUAL)) != 0 ? words : "");
    own_folder(folder);
    for (size_t i = 0; library == NULL && i < sizeof usual_folders / sizeof usual_folders[0] && folder[0] != '\0';
         i++) {
        snprintf(path, sizeof path, "%s%s" USUAL, folder, usual_folders[i]);
        library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (library == NULL && why[0] == '\0' && access(path, F_OK) == 0)
            snprintf(why, size, "%s", dlerror());
    }
    return library;
}

static runnel_status open_file(const char *file, struct rn_gpu_module *module, runnel_error *error)
{
    char why[RUNNEL_ERROR_BYTES] = "";

    module->library = file != NULL ? dlopen(file, RTLD_NOW | RTLD_LOCAL) : open_usual(why, sizeof why);
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
    const struct rn_gpu_kernels *kernels = module->kernels;

    if (kernels->driver == NULL)
        return rn_gpu_driver_real(heap, NULL, kernels->cuda, &module->driver, error);
    module->driver = kernels->driver(heap, kernels->emulation, EMULATED_BYTES);
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
