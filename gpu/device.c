/* The kind "cuda": how many there are, how one is opened, and what it says of itself. */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "gpu/backend.h"
#include "gpu/gpu.h"
#include "gpu/steps.h"

enum {
    MAX_ROWS = 8192,
    GOOD_ROWS = 512,
    GOOD_OUTS = 64,
    BLOCK_TOKENS = 32,    /* as the CPU's, and a multiple of what attention reads at once */
    OLDEST_MAJOR = 8,     /* compute capability: bfloat16 in the tensor cores, asynchronous copies */
    EARLY_MAJOR = 9,      /* likewise: launches that begin early (programmatic dependent launch), ... */
    EARLY_DRIVER = 12030, /* ... also in graphs */
    EARLY_CODE = 90       /* compute_90: from there on kernels wait (wrap_device.cuh: grid_wait) */
};

static struct rn_gpu_device *of(const struct rn_device *device)
{
    return (struct rn_gpu_device *)device;
}

/* The sentence for a call that failed while the device was opened. */
static runnel_status complain(struct rn_gpu_driver *driver, const char *what, uint32_t index, int result,
                              runnel_error *error)
{
    char text[128];

    rn_gpu_error_text(driver, result, text, sizeof text);
    return rn_error_set(error, result == RN_GPU_OUT_OF_MEMORY ? RUNNEL_NO_MEMORY : RUNNEL_DEVICE,
                        "cuda: device %u: %s: %s", index, what, text);
}

static int look_up_kernels(struct rn_gpu_device *device)
{
    struct rn_gpu_driver *driver = device->driver;
    int result = RN_GPU_OK;

    for (uint32_t i = 0; i < RN_KERNEL_COUNT && result == RN_GPU_OK; i++) {
        result = driver->module_function(driver, &device->kernels[i], device->image,
                                         rn_kernel_info((enum rn_kernel)i)->name);
        device->shared_bytes[i] = 48 << 10; /* what each block may have without being told */
    }
    return result;
}

/* Code in which kernels do not wait is never launched early: of an image without code for the device the driver
 * compiles PTX, which may be that of an older one. */
static int look_at_code(struct rn_gpu_device *device)
{
    int code = 0;
    int result = device->driver->function_get(device->driver, &code, RN_GPU_FUNCTION_PTX, device->kernels[0]);

    device->early = device->early && code >= EARLY_CODE;
    return result;
}

/* All that is asked of the driver before there is a context. */
static int look_at(struct rn_gpu_device *device)
{
    struct rn_gpu_driver *driver = device->driver;
    int result = driver->device_get(driver, &device->ordinal, (int)device->index), version = 0, shared = 0;

    if (result == RN_GPU_OK)
        result = driver->device_name(driver, device->name, sizeof device->name, device->ordinal);
    if (result == RN_GPU_OK)
        result = driver->device_attribute(driver, &device->major, RN_GPU_DEVICE_MAJOR, device->ordinal);
    if (result == RN_GPU_OK)
        result = driver->device_attribute(driver, &device->minor, RN_GPU_DEVICE_MINOR, device->ordinal);
    if (result == RN_GPU_OK)
        result = driver->device_attribute(driver, &device->units, RN_GPU_DEVICE_UNITS, device->ordinal);
    if (result == RN_GPU_OK)
        result = driver->device_attribute(driver, &shared, RN_GPU_DEVICE_SHARED_MOST, device->ordinal);
    if (result == RN_GPU_OK)
        result = driver->version(driver, &version);
    device->shared_most = shared > 0 ? (uint32_t)shared : 0;
    device->early = device->major >= EARLY_MAJOR && version >= EARLY_DRIVER;
    snprintf(device->layout, sizeof device->layout, "cuda 2 %d.%d%s", device->major, device->minor,
             device->module.kernels->driver != NULL ? " emulated" : "");
    return result;
}

int rn_gpu_enter(const struct rn_gpu_device *device, struct rn_gpu_context **before)
{
    int result = device->driver->context_get(device->driver, before);

    if (result == RN_GPU_OK)
        return device->driver->context_set(device->driver, device->context);
    *before = NULL;
    return result;
}

void rn_gpu_leave(const struct rn_gpu_device *device, struct rn_gpu_context *before)
{
    device->driver->context_set(device->driver, before);
}

/* It takes a while, of which nobody else tells. */
static void tell_compiling(const struct rn_gpu_device *device)
{
    const struct rn_gpu_kernels *kernels = device->module.kernels;

    if (kernels->driver == NULL && device->major > kernels->newest)
        rn_log(device->log, RUNNEL_LOG_INFO,
               "cuda: device %u, %s, has compute capability %d.%d: the driver compiles the kernels for it, which takes "
               "half a minute the first time",
               device->index, device->name, device->major, device->minor);
}

/* The context and the kernels in it. */
static runnel_status start(struct rn_gpu_device *device, runnel_error *error)
{
    struct rn_gpu_driver *driver = device->driver;
    int result = look_at(device);

    if (result != RN_GPU_OK)
        return complain(driver, "it cannot be looked at", device->index, result, error);
    if (device->major < OLDEST_MAJOR)
        return rn_error_set(error, RUNNEL_UNSUPPORTED,
                            "cuda: device %u, %s, has compute capability %d.%d, which is below %d.0", device->index,
                            device->name, device->major, device->minor, OLDEST_MAJOR);
    result = driver->context_retain(driver, &device->context, device->ordinal);
    if (result != RN_GPU_OK) {
        device->context = NULL;
        return complain(driver, "it cannot be opened", device->index, result, error);
    }
    tell_compiling(device);
    result = driver->context_set(driver, device->context);
    if (result == RN_GPU_OK)
        result = driver->module_load(driver, &device->image, device->module.kernels->image);
    if (result == RN_GPU_OK)
        result = look_up_kernels(device);
    if (result == RN_GPU_OK)
        result = look_at_code(device);
    return result == RN_GPU_OK ? RUNNEL_OK
                               : complain(driver, "the kernels cannot be loaded", device->index, result, error);
}

void rn_gpu_device_stop(struct rn_device *base)
{
    struct rn_gpu_device *device = of(base);
    struct rn_gpu_driver *driver = device->driver;
    struct rn_gpu_context *before;

    if (device->context != NULL) {
        rn_gpu_enter(device, &before);
        if (device->image != NULL)
            driver->module_free(driver, device->image);
        driver->context_release(driver, device->ordinal);
        rn_gpu_leave(device, before);
    }
    rn_free(device->heap, device);
}

/* log: may be NULL. */
static struct rn_device *open_device(struct rn_heap *heap, const struct rn_gpu_module *module, uint32_t index,
                                     const struct rn_log *log, runnel_error *error)
{
    struct rn_gpu_device *device = rn_calloc(heap, 1, sizeof *device);

    if (device == NULL) {
        rn_error_set(error, RUNNEL_NO_MEMORY, "no memory for a device");
        return NULL;
    }
    device->base = (struct rn_device){&rn_gpu_kind, &device->caps, index};
    device->heap = heap;
    device->module = *module;
    device->driver = module->driver;
    device->index = index;
    device->log = log;
    device->caps = (struct rn_device_caps){.can = RN_CAN_FEATURES | RN_CAN_INPUTS | RN_CAN_STATE | RN_CAN_TREES |
                                                  RN_CAN_DRAW | RN_CAN_DRAW_ITSELF | RN_CAN_WINDOWS,
                                           .kv_types = rn_gpu_kv_types(),
                                           .max_rows = MAX_ROWS,
                                           .max_outs = MAX_ROWS,
                                           .good_rows = GOOD_ROWS,
                                           .good_outs = GOOD_OUTS,
                                           .block_tokens = BLOCK_TOKENS,
                                           .good_ring = RN_GPU_RING,
                                           .ring = RN_GPU_RING};
    if (start(device, error) == RUNNEL_OK)
        return &device->base;
    rn_gpu_device_stop(&device->base);
    return NULL;
}

struct rn_device *rn_gpu_device_open(struct rn_heap *heap, const struct rn_gpu_module *module, uint32_t index,
                                     runnel_error *error)
{
    return open_device(heap, module, index, NULL, error);
}

/* ---- The kind ---- */

runnel_status rn_gpu_device_find(const struct rn_gpu_module *module, uint32_t index, runnel_error *error)
{
    int n = 0, result = module->driver->device_count(module->driver, &n);

    if (result != RN_GPU_OK)
        return complain(module->driver, "the devices cannot be counted", index, result, error);
    if (n < 0 || index >= (uint32_t)n)
        return rn_error_set(error, RUNNEL_UNSUPPORTED, "cuda: there is no device %u: the machine has %d of them", index,
                            n);
    return RUNNEL_OK;
}

static struct rn_device *open_kind(struct rn_heap *heap, const struct rn_device_options *options, runnel_error *error)
{
    struct rn_gpu_module module;
    struct rn_device *device = NULL;

    if (rn_gpu_module_open(heap, options->library, &module, error) != RUNNEL_OK)
        return NULL;
    if (rn_gpu_device_find(&module, options->index, error) == RUNNEL_OK)
        device = open_device(heap, &module, options->index, options->log, error);
    if (device == NULL)
        rn_gpu_module_close(&module);
    return device;
}

static void close_kind(struct rn_device *base)
{
    struct rn_gpu_module module = of(base)->module;

    rn_gpu_device_stop(base);
    rn_gpu_module_close(&module);
}

static struct rn_backend *new_backend(struct rn_device *device, struct rn_heap *heap)
{
    return rn_gpu_backend_new(heap, of(device));
}

/* 0 bytes of a device that is lost: nothing fits. */
static void memory_of(const struct rn_device *base, struct rn_device_memory *memory)
{
    const struct rn_gpu_device *device = of(base);
    size_t free_bytes = 0, total_bytes = 0;
    struct rn_gpu_context *before;
    int result = rn_gpu_enter(device, &before);
    char text[128];

    if (result == RN_GPU_OK)
        result = device->driver->memory_info(device->driver, &free_bytes, &total_bytes);
    rn_gpu_leave(device, before);
    if (result != RN_GPU_OK) {
        free_bytes = total_bytes = 0;
        rn_gpu_error_text(device->driver, result, text, sizeof text);
        rn_log(device->log, RUNNEL_LOG_WARNING, "cuda: device %u does not tell how much memory is free: %s",
               device->index, text);
    }
    *memory = (struct rn_device_memory){total_bytes, free_bytes, false};
}

/* Of one that has a backend it is not asked: that must be freed first. */
static bool is_lost(const struct rn_device *base)
{
    const struct rn_gpu_device *device = of(base);
    size_t free_bytes, total_bytes;
    struct rn_gpu_context *before;
    int result;

    if (atomic_load_explicit(&device->n_backends, memory_order_acquire) > 0)
        return false;
    result = rn_gpu_enter(device, &before);
    if (result == RN_GPU_OK)
        result = device->driver->memory_info(device->driver, &free_bytes, &total_bytes);
    rn_gpu_leave(device, before);
    return result != RN_GPU_OK;
}

static uint64_t weight_bytes_of(const struct rn_device *device, const struct rn_plan *plan, uint64_t expert_bytes)
{
    (void)device;
    return rn_gpu_weights_bytes(plan, expert_bytes);
}

static uint64_t step_bytes_of(const struct rn_device *device, const struct rn_plan *plan,
                              const struct rn_backend_limits *limits)
{
    return rn_gpu_step_bytes(of(device), plan, limits);
}

static void describe(const struct rn_device *base, char *text, size_t size)
{
    const struct rn_gpu_device *device = of(base);
    struct rn_device_memory memory;

    memory_of(base, &memory);
    snprintf(text, size, "CUDA device %u: %s, compute capability %d.%d, %d multiprocessors, %.1f GiB", device->index,
             device->name, device->major, device->minor, device->units, (double)memory.total_bytes / (1 << 30));
}

const struct rn_device_kind rn_gpu_kind = {
    .name = "cuda",
    .open = open_kind,
    .look = rn_gpu_look,
    .close = close_kind,
    .is_lost = is_lost,
    .new_backend = new_backend,
    .memory = memory_of,
    .weight_bytes = weight_bytes_of,
    .step_bytes = step_bytes_of,
    .expert_room = rn_gpu_expert_room,
    .describe = describe,
};
