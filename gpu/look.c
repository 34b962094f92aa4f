/* What a machine has of CUDA, as far as it can be told without all of it: the file of kernels, the driver, the device.
 * Each is looked for even where another one is missing, so that whoever reads it knows all that there is to be
 * mended. */
#include <stdio.h>
#include <string.h>

#include "gpu/backend.h"
#include "gpu/gpu.h"

/* The first sentence that says what is missing. */
static void note(runnel_device_info *info, runnel_status status, const runnel_error *why)
{
    if (status != RUNNEL_OK && info->why[0] == '\0')
        snprintf(info->why, sizeof info->why, "%s", why->message);
}

/* A sentence that is told beside the word CUDA. */
static void tell(char out[RUNNEL_ERROR_BYTES], const runnel_error *why)
{
    static const char prefix[] = "cuda: ";
    size_t skipped = strncmp(why->message, prefix, sizeof prefix - 1) == 0 ? sizeof prefix - 1 : 0;

    snprintf(out, RUNNEL_ERROR_BYTES, "%.*s", RUNNEL_ERROR_BYTES - 1, why->message + skipped);
}

/* Its driver is that of the kernels, or the machine's where there are none. */
static runnel_status find_driver(struct rn_heap *heap, struct rn_gpu_module *module, runnel_device_info *info,
                                 runnel_error *why)
{
    bool emulated = module->kernels != NULL && module->kernels->driver != NULL;
    runnel_status status = module->kernels != NULL ? rn_gpu_module_start(heap, module, why)
                                                   : rn_gpu_driver_real(heap, NULL, 0, &module->driver, why);
    int version = 0;

    if (status != RUNNEL_OK)
        tell(info->driver, why);
    else if (emulated)
        snprintf(info->driver, sizeof info->driver, "emulated: kernels run on the processor");
    else if (module->driver->version(module->driver, &version) == RN_GPU_OK)
        snprintf(info->driver, sizeof info->driver, "libcuda.so.1 of CUDA %d.%d", version / 1000, version % 1000 / 10);
    return status;
}

/* What the driver tells of a device that is not open. */
static void describe(struct rn_gpu_driver *driver, uint32_t index, runnel_device_info *info)
{
    int n = 0, device = 0, major = 0, minor = 0;
    size_t bytes = 0;

    if (driver->device_count(driver, &n) != RN_GPU_OK || n <= 0)
        return;
    info->n_devices = (uint32_t)n;
    if (index >= info->n_devices || driver->device_get(driver, &device, (int)index) != RN_GPU_OK)
        return;
    if (driver->device_name(driver, info->name, sizeof info->name, device) != RN_GPU_OK)
        info->name[0] = '\0';
    if (driver->device_memory(driver, &bytes, device) == RN_GPU_OK)
        info->memory_bytes = bytes;
    if (driver->device_attribute(driver, &major, RN_GPU_DEVICE_MAJOR, device) == RN_GPU_OK &&
        driver->device_attribute(driver, &minor, RN_GPU_DEVICE_MINOR, device) == RN_GPU_OK)
        snprintf(info->capability, sizeof info->capability, "%d.%d", major, minor);
}

/* Opens the device, and closes it again. The context that the thread has by then is not the one it had. */
static runnel_status open_and_close(struct rn_heap *heap, const struct rn_device_options *options,
                                    const struct rn_gpu_module *module, runnel_device_info *info, runnel_error *why)
{
    struct rn_device_memory memory;
    struct rn_device *device;
    runnel_status status = rn_gpu_device_find(module, options->index, why);

    if (status != RUNNEL_OK)
        return status;
    device = rn_gpu_device_open(heap, module, options->index, why);
    if (device == NULL)
        return why->status;
    rn_gpu_kind.memory(device, &memory);
    info->free_bytes = memory.free_bytes;
    rn_gpu_device_stop(device);
    return RUNNEL_OK;
}

/* The same, and the thread has the context that it had: it is the host's. */
static runnel_status try_device(struct rn_heap *heap, const struct rn_device_options *options,
                                const struct rn_gpu_module *module, runnel_device_info *info, runnel_error *why)
{
    struct rn_gpu_context *before = NULL;
    runnel_status status;

    if (module->driver->context_get(module->driver, &before) != RN_GPU_OK)
        before = NULL;
    status = open_and_close(heap, options, module, info, why);
    module->driver->context_set(module->driver, before);
    return status;
}

void rn_gpu_look(struct rn_heap *heap, const struct rn_device_options *options, runnel_device_info *info)
{
    struct rn_gpu_module module;
    runnel_error why = {0};
    runnel_status status = rn_gpu_module_find(options->library, &module, &why);

    note(info, status, &why);
    if (status == RUNNEL_OK)
        rn_gpu_module_path(&module, info->kernels, sizeof info->kernels);
    else
        tell(info->kernels, &why);
    rn_error_clear(&why);
    status = find_driver(heap, &module, info, &why);
    note(info, status, &why);
    if (status == RUNNEL_OK)
        describe(module.driver, options->index, info);
    if (info->why[0] == '\0') {
        rn_error_clear(&why);
        status = try_device(heap, options, &module, info, &why);
        note(info, status, &why);
    }
    rn_gpu_module_close(&module);
}
