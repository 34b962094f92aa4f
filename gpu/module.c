/* The file of kernels: see module.h. */
#define _GNU_SOURCE /* dladdr1, dlinfo */
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

/* `words`: the linker's, of a file that it has not loaded. They begin with a bare name where it has found no file. */
static void complain_of_load(const char *file, const char *words, runnel_error *missing, runnel_error *error)
{
    bool is_path = strchr(file, '/') != NULL;

    if (strncmp(words, file, strlen(file)) == 0 && (!is_path || access(file, F_OK) != 0))
        rn_error_set(missing, RUNNEL_UNSUPPORTED, "cuda: the kernels are not there: %s", words);
    else
        rn_error_set(error, RUNNEL_UNSUPPORTED, "cuda: the kernels do not load: %s", words);
}

void rn_gpu_module_path(const struct rn_gpu_module *module, char *path, size_t size)
{
    struct link_map *map = NULL;

    snprintf(path, size, "%s",
             dlinfo(module->library, RTLD_DI_LINKMAP, &map) == 0 && map != NULL ? map->l_name : "a library");
}

/* The file with the kernels of this build: a path, or a name for which the system looks. False: nothing is open; of a
 * file that is not there `missing` says it, and of one that is `error` says why. */
static bool open_file(const char *file, struct rn_gpu_module *module, runnel_error *missing, runnel_error *error)
{
    rn_gpu_kernels_fn kernels = NULL;
    char path[PATH_MAX];
    void *address;

    module->library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (module->library == NULL) {
        complain_of_load(file, dlerror(), missing, error);
        return false;
    }
    address = dlsym(module->library, RN_GPU_KERNELS_SYMBOL);
    memcpy(&kernels, &address, sizeof kernels); /* from an object's address to a function's */
    module->kernels = kernels == NULL ? NULL : kernels();
    if (is_known(module->kernels))
        return true;
    rn_gpu_module_path(module, path, sizeof path);
    rn_gpu_module_close(module);
    rn_error_set(error, RUNNEL_UNSUPPORTED, "cuda: %s has not the kernels of this version of runnel", path);
    return false;
}

/* Beside this code first, where the file of its own build is: an older one where the system looks does not hide it. The
 * error is of the first file that is there. */
static bool open_usual(struct rn_gpu_module *module, runnel_error *error)
{
    char folder[PATH_MAX], path[PATH_MAX + sizeof "/../lib/" USUAL];
    runnel_error why = {0};

    own_folder(folder);
    for (size_t i = 0; i < sizeof usual_folders / sizeof usual_folders[0] && folder[0] != '\0'; i++) {
        snprintf(path, sizeof path, "%s%s" USUAL, folder, usual_folders[i]);
        if (open_file(path, module, NULL, &why))
            return true;
    }
    if (open_file(USUAL, module, NULL, &why))
        return true;
    rn_error_set(&why, RUNNEL_UNSUPPORTED,
                 "cuda: the kernels are not there: %s is neither beside runnel, nor in ../lib of there, nor where the "
                 "system looks for libraries",
                 USUAL); /* if nothing else has been said */
    rn_error_set(error, why.status, "%s", why.message);
    return false;
}

runnel_status rn_gpu_module_find(const char *file, struct rn_gpu_module *module, runnel_error *error)
{
    bool is_open;

    *module = (struct rn_gpu_module){NULL, NULL, NULL};
    is_open = file != NULL ? open_file(file, module, error, error) : open_usual(module, error);
    return is_open ? RUNNEL_OK : RUNNEL_UNSUPPORTED;
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
