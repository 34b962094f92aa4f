/* The emulated driver's life, device, memory and modules: see driver.h. */
#include <stdio.h>
#include <string.h>

#include "gpu/emulated/driver.h"

enum {
    ALIGNMENT = 256,     /* of memory, as cuMemAlloc gives it */
    UNITS = 4,           /* multiprocessors that it claims to have */
    SHARED_MOST = 232448 /* bytes of shared memory of a block: as compute capability 9.0 */
};

bool rn_gpu_emulated_unlink(void *list, void *item)
{
    void **at = list;

    while (*at != NULL && *at != item)
        at = *at;
    if (*at == NULL)
        return false;
    *at = *(void **)item;
    return true;
}

/* ---- The device ---- */

int rn_gpu_emulated_init(struct rn_gpu_driver *driver, unsigned flags)
{
    (void)driver;
    return flags == 0 ? RN_GPU_OK : RN_GPU_INVALID_VALUE;
}

int rn_gpu_emulated_version(struct rn_gpu_driver *driver, int *version)
{
    (void)driver;
    *version = RN_GPU_OLDEST_DRIVER;
    return RN_GPU_OK;
}

int rn_gpu_emulated_error_text(struct rn_gpu_driver *driver, int result, const char **text)
{
    static const struct {
        int result;
        const char *text;
    } known[] = {{RN_GPU_OK, "no error"},
                 {RN_GPU_INVALID_VALUE, "invalid argument"},
                 {RN_GPU_OUT_OF_MEMORY, "out of memory"},
                 {RN_GPU_NOT_FOUND, "named symbol not found"},
                 {RN_GPU_BAD_ADDRESS, "an illegal memory access was encountered"},
                 {RN_GPU_LAUNCH_FAILED, "unspecified launch failure"}};

    if (result == RN_GPU_LAUNCH_FAILED && rn_gpu_emulated_of(driver)->fault[0] != '\0') {
        *text = rn_gpu_emulated_of(driver)->fault; /* written once, before anyone can have heard of it */
        return RN_GPU_OK;
    }
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (known[i].result == result) {
            *text = known[i].text;
            return RN_GPU_OK;
        }
    *text = NULL;
    return RN_GPU_INVALID_VALUE;
}

int rn_gpu_emulated_device_count(struct rn_gpu_driver *driver, int *n)
{
    (void)driver;
    *n = 1;
    return RN_GPU_OK;
}

int rn_gpu_emulated_device_get(struct rn_gpu_driver *driver, int *device, int index)
{
    (void)driver;
    *device = 0;
    return index == 0 ? RN_GPU_OK : RN_GPU_INVALID_DEVICE;
}

int rn_gpu_emulated_device_name(struct rn_gpu_driver *driver, char *name, int bytes, int device)
{
    (void)driver;
    (void)device;
    snprintf(name, (size_t)bytes, "emulated device");
    return RN_GPU_OK;
}

int rn_gpu_emulated_device_attribute(struct rn_gpu_driver *driver, int *value, int attribute, int device)
{
    (void)driver;
    (void)device;
    *value = attribute == RN_GPU_DEVICE_UNITS         ? UNITS
             : attribute == RN_GPU_DEVICE_MAJOR       ? 9
             : attribute == RN_GPU_DEVICE_SHARED_MOST ? SHARED_MOST
                                                      : 0;
    return RN_GPU_OK;
}

int rn_gpu_emulated_device_memory(struct rn_gpu_driver *driver, size_t *bytes, int device)
{
    (void)device;
    *bytes = rn_gpu_emulated_of(driver)->memory_bytes;
    return RN_GPU_OK;
}

/* The lost context's error. */
static int lost(struct rn_gpu_driver *driver)
{
    struct rn_gpu_emulated *e = rn_gpu_emulated_of(driver);
    int result;

    pthread_mutex_lock(&e->lock);
    result = e->lost;
    pthread_mutex_unlock(&e->lock);
    return result;
}

/* There is one context, which is current everywhere. */
int rn_gpu_emulated_context_retain(struct rn_gpu_driver *driver, struct rn_gpu_context **context, int device)
{
    (void)device;
    *context = (struct rn_gpu_context *)driver;
    return lost(driver);
}

int rn_gpu_emulated_context_release(struct rn_gpu_driver *driver, int device)
{
    (void)driver;
    (void)device;
    return RN_GPU_OK;
}

int rn_gpu_emulated_context_get(struct rn_gpu_driver *driver, struct rn_gpu_context **context)
{
    *context = (struct rn_gpu_context *)driver;
    return RN_GPU_OK;
}

int rn_gpu_emulated_context_set(struct rn_gpu_driver *driver, struct rn_gpu_context *context)
{
    return context == NULL || context == (struct rn_gpu_context *)driver ? RN_GPU_OK : RN_GPU_INVALID_VALUE;
}

/* ---- Memory ---- */

int rn_gpu_emulated_memory_info(struct rn_gpu_driver *driver, size_t *free_bytes, size_t *total_bytes)
{
    struct rn_gpu_emulated *e = rn_gpu_emulated_of(driver);
    int result;

    pthread_mutex_lock(&e->lock);
    *free_bytes = e->memory_bytes - e->taken_bytes;
    *total_bytes = e->memory_bytes;
    result = e->lost;
    pthread_mutex_unlock(&e->lock);
    return result;
}

/* Under the lock. */
static int new_piece(struct rn_gpu_emulated *e, size_t bytes, bool is_host, void **at)
{
    struct rn_gpu_piece *piece, **place = &e->pieces;

    if (bytes == 0)
        return RN_GPU_INVALID_VALUE;
    if (!is_host && bytes > e->memory_bytes - e->taken_bytes)
        return RN_GPU_OUT_OF_MEMORY;
    piece = rn_calloc(e->heap, 1, sizeof *piece);
    *at = piece == NULL ? NULL : rn_alloc_aligned(e->heap, bytes, ALIGNMENT);
    if (*at == NULL) {
        rn_free(e->heap, piece);
        return RN_GPU_OUT_OF_MEMORY;
    }
    memset(*at, 0xff, bytes);
    while (*place != NULL && (uintptr_t)(*place)->at < (uintptr_t)*at)
        place = &(*place)->next;
    *piece = (struct rn_gpu_piece){*place, *at, bytes, is_host};
    *place = piece;
    e->taken_bytes += is_host ? 0 : bytes;
    return RN_GPU_OK;
}

static int free_piece(struct rn_gpu_emulated *e, const void *at, bool is_host)
{
    struct rn_gpu_piece *piece;
    int result;

    pthread_mutex_lock(&e->lock);
    for (piece = e->pieces; piece != NULL && (piece->at != at || piece->is_host != is_host); piece = piece->next) {
    }
    result = e->lost != RN_GPU_OK ? e->lost : piece == NULL ? RN_GPU_INVALID_VALUE : RN_GPU_OK;
    if (result == RN_GPU_OK) {
        rn_gpu_emulated_unlink(&e->pieces, piece);
        e->taken_bytes -= is_host ? 0 : piece->bytes;
        rn_free(e->heap, piece->at);
        rn_free(e->heap, piece);
    }
    pthread_mutex_unlock(&e->lock);
    return result;
}

int rn_gpu_emulated_memory_new(struct rn_gpu_driver *driver, uint64_t *memory, size_t bytes)
{
    struct rn_gpu_emulated *e = rn_gpu_emulated_of(driver);
    void *at = NULL;
    int result;

    pthread_mutex_lock(&e->lock);
    result = e->lost != RN_GPU_OK ? e->lost : new_piece(e, bytes, false, &at);
    pthread_mutex_unlock(&e->lock);
    *memory = (uintptr_t)at;
    return result;
}

int rn_gpu_emulated_memory_free(struct rn_gpu_driver *driver, uint64_t memory)
{
    return free_piece(rn_gpu_emulated_of(driver), rn_gpu_emulated_address(memory), false);
}

int rn_gpu_emulated_host_new(struct rn_gpu_driver *driver, void **memory, size_t bytes, unsigned flags)
{
    struct rn_gpu_emulated *e = rn_gpu_emulated_of(driver);
    int result;

    (void)flags;
    pthread_mutex_lock(&e->lock);
    result = e->lost != RN_GPU_OK ? e->lost : new_piece(e, bytes, true, memory);
    pthread_mutex_unlock(&e->lock);
    return result;
}

int rn_gpu_emulated_host_free(struct rn_gpu_driver *driver, void *memory)
{
    return free_piece(rn_gpu_emulated_of(driver), memory, true);
}

/* ---- Modules ---- */

int rn_gpu_emulated_module_load(struct rn_gpu_driver *driver, struct rn_gpu_image **module, const void *image)
{
    *module = (struct rn_gpu_image *)driver;
    return image == NULL ? RN_GPU_INVALID_VALUE : lost(driver);
}

int rn_gpu_emulated_module_free(struct rn_gpu_driver *driver, struct rn_gpu_image *module)
{
    (void)module;
    return lost(driver);
}

int rn_gpu_emulated_module_function(struct rn_gpu_driver *driver, struct rn_gpu_function **function,
                                    struct rn_gpu_image *module, const char *name)
{
    struct rn_gpu_emulated *e = rn_gpu_emulated_of(driver);
    struct rn_gpu_function *made;
    size_t bytes = 0;
    const void *kernel = e->emulation->find(name, &bytes);

    (void)module;
    if (kernel == NULL)
        return RN_GPU_NOT_FOUND;
    made = rn_calloc(e->heap, 1, sizeof *made);
    if (made == NULL)
        return RN_GPU_OUT_OF_MEMORY;
    pthread_mutex_lock(&e->lock);
    *made = (struct rn_gpu_function){e->functions, kernel, bytes, 48 << 10};
    e->functions = made;
    pthread_mutex_unlock(&e->lock);
    *function = made;
    return RN_GPU_OK;
}

/* Kernels are as those of compute_90. */
int rn_gpu_emulated_function_get(struct rn_gpu_driver *driver, int *value, int attribute,
                                 struct rn_gpu_function *function)
{
    (void)function;
    if (attribute != RN_GPU_FUNCTION_PTX)
        return RN_GPU_INVALID_VALUE;
    *value = 90;
    return lost(driver);
}

int rn_gpu_emulated_function_set(struct rn_gpu_driver *driver, struct rn_gpu_function *function, int attribute,
                                 int value)
{
    if (attribute != RN_GPU_FUNCTION_SHARED || value < 0 || value > SHARED_MOST)
        return RN_GPU_INVALID_VALUE;
    function->shared_most = value;
    return lost(driver);
}

/* ---- Life ---- */

static void close_emulated(struct rn_gpu_driver *driver)
{
    struct rn_gpu_emulated *e = rn_gpu_emulated_of(driver);

    pthread_mutex_lock(&e->lock);
    e->lost = e->lost != RN_GPU_OK ? e->lost : RN_GPU_UNKNOWN; /* nothing more is run */
    pthread_mutex_unlock(&e->lock);
    while (e->streams != NULL)
        rn_gpu_emulated_stream_free(driver, e->streams);
    while (e->graphs != NULL)
        rn_gpu_emulated_graph_free(driver, e->graphs);
    while (e->events != NULL)
        rn_gpu_emulated_event_free(driver, e->events);
    for (struct rn_gpu_function *function; (function = e->functions) != NULL;) {
        e->functions = function->next;
        rn_free(e->heap, function);
    }
    for (struct rn_gpu_piece *piece; (piece = e->pieces) != NULL;) {
        e->pieces = piece->next;
        rn_free(e->heap, piece->at);
        rn_free(e->heap, piece);
    }
    pthread_cond_destroy(&e->changed);
    pthread_mutex_destroy(&e->lock);
    rn_free(e->heap, e);
}

struct rn_gpu_driver *rn_gpu_driver_emulated(struct rn_heap *heap, const struct rn_gpu_emulation *emulation,
                                             size_t memory_bytes)
{
    struct rn_gpu_emulated *e = rn_calloc(heap, 1, sizeof *e);

    if (e == NULL)
        return NULL;
    if (pthread_mutex_init(&e->lock, NULL) != 0)
        goto fail;
    if (pthread_cond_init(&e->changed, NULL) != 0)
        goto fail_lock;
    e->heap = heap;
    e->emulation = emulation;
    e->memory_bytes = memory_bytes;
#define RN_GPU_CALL(name, symbol, parameters, arguments) e->base.name = rn_gpu_emulated_##name;
#include "gpu/driver.def"
    e->base.close = close_emulated;
    return &e->base;
fail_lock:
    pthread_mutex_destroy(&e->lock);
fail:
    rn_free(heap, e);
    return NULL;
}
