/* Features on their way to the host: TAPs gather what a step's rows want into [n_features, features_width] on the device,
 * which a copy at the end of the step brings to pinned memory.
 *
 *   slot ─TAP (gather)─▶ features on the device ─copy out─▶ pinned ─memcpy─▶ rn_step.features
 *
 * For each wanted row there are two numbers in the inputs: the row of the step, by which slots before SELECT are read, and
 * the row behind SELECT, by which those behind it are. A row that is not behind SELECT, as in a step with early_features,
 * has zeros there. */
#include <string.h>

#include "base/check.h"
#include "gpu/ops.h"

int rn_gpu_run_tap(struct rn_gpu_backend *backend, const struct rn_op *op, const struct rn_gpu_shape *shape)
{
    const struct rn_gpu_inputs *in = &backend->in;
    bool is_selected = backend->plan->slots[op->a].selected;
    const struct rn_gather_args args = {
        .a = rn_gpu_slot(backend, op->a),
        .index = rn_gpu_input(backend, is_selected ? in->features_selected : in->features_rows),
        .out = backend->features,
        .n_rows = shape->n_features,
        .rows = rn_gpu_rows(backend, op->a, shape),
        .width = rn_gpu_width(backend, op->a),
        .out_width = backend->plan->features_width,
        .at = op->group};

    return rn_gpu_launch(backend, RN_KERNEL_gather, &args);
}

uint64_t rn_gpu_features_bytes(const struct rn_gpu_backend *backend, uint32_t n_rows)
{
    return (uint64_t)n_rows * backend->plan->features_width * sizeof(float);
}

/* The row of the i-th feature. */
static uint32_t feature_row(const struct rn_step *step, uint32_t i)
{
    return step->feature_rows == NULL ? i : step->feature_rows[i];
}

/* Rows that want features alone go behind those that want logits, where any TAP stands behind SELECT and is asked for. */
void rn_gpu_features_put(struct rn_gpu_backend *backend, const struct rn_step *step, struct rn_gpu_shape *shape,
                         uint32_t *wanted, uint32_t *rows, uint32_t *selected)
{
    bool selects = backend->plan->taps_selected && !step->early_features;

    shape->n_selected = step->n_outs;
    shape->n_features = step->features == NULL ? 0 : step->feature_rows == NULL ? step->n_rows : step->n_features;
    for (uint32_t i = 0; i < shape->n_features; i++) {
        uint32_t row = feature_row(step, i);
        int32_t out = step->rows[row].out;

        rows[i] = row;
        selected[i] = out >= 0 ? (uint32_t)out : selects ? shape->n_selected : UINT32_MAX;
        if (out < 0 && selects)
            wanted[shape->n_selected++] = row;
    }
}

int rn_gpu_features_send(struct rn_gpu_backend *backend, const struct rn_gpu_shape *shape)
{
    struct rn_gpu_driver *driver = backend->device->driver;
    uint64_t bytes = rn_gpu_features_bytes(backend, shape->n_features);

    return bytes == 0 ? RN_GPU_OK
                      : driver->copy_out(driver, backend->host_features, backend->features, bytes, backend->stream);
}

void rn_gpu_features_give(const struct rn_gpu_backend *backend, const struct rn_step *step,
                          const struct rn_gpu_shape *shape)
{
    uint64_t bytes = rn_gpu_features_bytes(backend, shape->n_features);

    if (bytes > 0)
        memcpy(step->features, backend->host_features, bytes);
}
