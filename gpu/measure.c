/* Which kernel multiplies few rows: matmul_stream where it is faster than matmul_few and matmul_pair with the plan's
 * own weights on this device. All products of one row with weights of a format are launched one behind the other, as in
 * a step, with the one and with the other, in turn; the shortest time of each counts. The bits are the same. */
#include <inttypes.h>

#include "base/clock.h"
#include "gpu/ops.h"

enum {
    ROUNDS = 4,               /* the first one warms up */
    LEAST_SHARED = 112 << 10, /* of a block: matmul_stream's most */
    GAIN_PERCENT = 2          /* below it the older kernel stays */
};

uint32_t rn_gpu_stream_blocks(const struct rn_gpu_backend *backend)
{
    const struct rn_gpu_device *device = backend->device;

    return device->shared_most < LEAST_SHARED ? 0 : (uint32_t)device->units * RN_STREAM_BLOCKS;
}

static const struct rn_weight *weight_of(const struct rn_gpu_backend *backend, const struct rn_gpu_item *item)
{
    const struct rn_op *op = &backend->plan->ops[item->first];

    return op->kind == RN_OP_MATMUL ? &backend->plan->weights[op->weight] : NULL;
}

/* Bytes of the weights of this type that are multiplied. */
static uint64_t bytes_of(const struct rn_gpu_backend *backend, uint32_t type_id)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < backend->n_items; i++) {
        const struct rn_weight *weight = weight_of(backend, &backend->items[i]);

        if (weight != NULL && weight->type_id == type_id)
            bytes += rn_tiled_bytes(type_id, weight->rows, weight->cols);
    }
    return bytes;
}

/* One row times all of them. */
static int time_products(struct rn_gpu_backend *backend, uint32_t type_id, uint64_t *ns)
{
    const struct rn_gpu_shape shape = {
        .n_rows = 1, .n_outs = 1, .n_seqs = 1, .longest = rn_gpu_longest(backend, 1), .n_selected = 1};
    struct rn_gpu_driver *driver = backend->device->driver;
    const struct rn_clock clock = rn_clock_machine();
    uint64_t begin = rn_now_ns(&clock);
    int result = RN_GPU_OK;

    for (uint32_t i = 0; i < backend->n_items && result == RN_GPU_OK; i++) {
        const struct rn_weight *weight = weight_of(backend, &backend->items[i]);

        if (weight != NULL && weight->type_id == type_id)
            result = rn_gpu_program_item(backend, i, &shape);
    }
    if (result == RN_GPU_OK)
        result = driver->stream_finish(driver, backend->stream);
    *ns = rn_now_ns(&clock) - begin;
    return result;
}

static int measure_type(struct rn_gpu_backend *backend, uint32_t type_id)
{
    uint64_t best[2] = {UINT64_MAX, UINT64_MAX}, ns;
    int result = RN_GPU_OK;

    for (uint32_t i = 0; i < 2 * ROUNDS && result == RN_GPU_OK; i++) {
        backend->stream_blocks[type_id] = i % 2 == 0 ? 0 : rn_gpu_stream_blocks(backend);
        result = time_products(backend, type_id, &ns);
        if (i >= 2 && ns < best[i % 2])
            best[i % 2] = ns;
    }
    if (result != RN_GPU_OK)
        return result;
    if (best[1] > best[0] / 100 * (100 - GAIN_PERCENT))
        backend->stream_blocks[type_id] = 0;
    rn_log(backend->device->log, RUNNEL_LOG_INFO,
           "cuda: device %u: a row times all weights of type %s: %" PRIu64 " us by matmul_few, %" PRIu64
           " us by matmul_stream: %s is used",
           backend->device->index, rn_type(type_id)->name, best[0] / 1000, best[1] / 1000,
           backend->stream_blocks[type_id] != 0 ? "matmul_stream" : "matmul_few");
    return result;
}

int rn_gpu_products_measure(struct rn_gpu_backend *backend, uint64_t least_bytes)
{
    int result = RN_GPU_OK;

    for (uint32_t type_id = 0; type_id < RN_GPU_TYPES && result == RN_GPU_OK; type_id++) {
        uint64_t bytes = rn_gpu_stream_blocks(backend) == 0 ? 0 : bytes_of(backend, type_id);

        if (bytes > 0 && bytes >= least_bytes)
            result = measure_type(backend, type_id);
    }
    return result;
}
