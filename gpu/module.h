/* The file in which the kernels lie: librunnel-cuda.so, which holds code for devices, or librunnel-cuda-emulated.so,
 * which holds the same kernels compiled for the host and a driver that runs them. It is loaded at run time. Its one
 * function is runnel_cuda_module. */
#ifndef RN_GPU_MODULE_H
#define RN_GPU_MODULE_H

#include "gpu/driver.h"

enum { RN_GPU_MODULE_VERSION = 3 }; /* of the structs below, and of what a driver's functions mean */

/* A kernel that it has. */
struct rn_gpu_listed {
    const char *name;
    uint32_t argument_bytes;
};

struct rn_gpu_emulation; /* of the module's own driver: gpu/emulated/emulation.h */

/* What such a file has. */
struct rn_gpu_kernels {
    uint32_t version;                 /* RN_GPU_MODULE_VERSION */
    uint32_t n;                       /* kernels */
    const struct rn_gpu_listed *list; /* [n], as gpu/kernels/kernels.h has them */
    const void *image;                /* what cuModuleLoadData takes; not NULL */

    /* The driver that runs them, with `emulation`, on a device of so many bytes of memory: NULL on refusal of memory.
     * No function: the image is for a device, whose driver is the machine's. */
    struct rn_gpu_driver *(*driver)(struct rn_heap *heap, const struct rn_gpu_emulation *emulation,
                                    size_t memory_bytes);
    size_t driver_bytes; /* of struct rn_gpu_driver in the file's build */
    const struct rn_gpu_emulation *emulation;
    int cuda;   /* which has compiled the image, as cuDriverGetVersion tells it; 0: none has */
    int newest; /* major compute capability for which the image has machine code; on later ones the driver compiles its
                   PTX at the load */
};

typedef const struct rn_gpu_kernels *(*rn_gpu_kernels_fn)(void);
#define RN_GPU_KERNELS_SYMBOL "runnel_cuda_module"

/* Kernels and the driver that runs them. */
struct rn_gpu_module {
    void *library;
    const struct rn_gpu_kernels *kernels;
    struct rn_gpu_driver *driver;
};

/* Opens the file; NULL: librunnel-cuda.so beside the file that holds this function, in ../lib of there, or where the
 * system looks for libraries: the first of them that has this build's kernels. The driver is NULL. UNSUPPORTED: it is
 * not there, does not load or has other kernels; the sentence says which, and names the file. */
runnel_status rn_gpu_module_find(const char *file, struct rn_gpu_module *module, runnel_error *error);

/* And the driver that its kernels need, of which UNSUPPORTED says that there is none, or no device. NO_MEMORY. The
 * module stays open. */
runnel_status rn_gpu_module_start(struct rn_heap *heap, struct rn_gpu_module *module, runnel_error *error);

/* Both; where one fails nothing is open. */
runnel_status rn_gpu_module_open(struct rn_heap *heap, const char *file, struct rn_gpu_module *module,
                                 runnel_error *error);

/* The path of the file that was found, at most size bytes. */
void rn_gpu_module_path(const struct rn_gpu_module *module, char *path, size_t size);

void rn_gpu_module_close(struct rn_gpu_module *module);

#endif
