/* The CUDA backend's memory and its life: see backend.h. */
#include <string.h>

#include "base/check.h"
#include "gpu/steps.h"
#include "model/draw_mask.h"
#include "model/kv.h"

/* Of the weights of a type: fewer than that are read from the second-level cache, and gain little. */
#define MEASURED_BYTES ((uint64_t)64 << 20)

static struct rn_gpu_backend *self(const struct rn_backend *backend)
{
    return (struct rn_gpu_backend *)backend;
}

static struct rn_gpu_driver *driver_of(const struct rn_gpu_backend *backend)
{
    return backend->device->driver;
}

/* Blocks of the kernel may have as much shared memory as the launch wants from now on, and its grid is one that devices
 * take. */
static int allow(struct rn_gpu_backend *backend, enum rn_kernel kernel, const struct rn_launch *launch)
{
    struct rn_gpu_device *device = backend->device;
    uint32_t bytes = launch->shared_bytes;
    int result;

    backend->grid_wanted = launch->grid[1] > launch->grid[2] ? launch->grid[1] : launch->grid[2];
    if (backend->grid_wanted > RN_GRID_MOST)
        return RN_GPU_INVALID_VALUE;
    if (bytes <= device->shared_bytes[kernel])
        return RN_GPU_OK;
    if (bytes > device->shared_most) {
        backend->shared_wanted = bytes;
        return RN_GPU_INVALID_VALUE;
    }
    result = device->driver->function_set(device->driver, device->kernels[kernel], RN_GPU_FUNCTION_SHARED, (int)bytes);
    if (result == RN_GPU_OK)
        device->shared_bytes[kernel] = bytes;
    return result;
}

int rn_gpu_launch(struct rn_gpu_backend *backend, enum rn_kernel kernel, const void *args)
{
    const struct rn_kernel_info *info = rn_kernel_info(kernel);
    struct rn_launch launch = info->launch(args);
    struct rn_gpu_launch_attribute early = {.id = RN_GPU_LAUNCH_EARLY, .value.allowed = 1};
    const struct rn_gpu_launch_config config = {.grid = {launch.grid[0], launch.grid[1], launch.grid[2]},
                                                .block = {launch.threads, 1, 1},
                                                .shared_bytes = launch.shared_bytes,
                                                .stream = backend->stream,
                                                .attributes = &early,
                                                .n_attributes = backend->device->early};
    unsigned char copy[RN_GPU_ARGUMENT_BYTES];
    void *arguments[] = {copy};

    RN_CHECK(info->args_bytes <= sizeof copy);
    if (launch.grid[0] == 0 || launch.grid[1] == 0 || launch.grid[2] == 0)
        return RN_GPU_OK; /* of no rows */
    if (backend->allows)
        return allow(backend, kernel, &launch);
    memcpy(copy, args, info->args_bytes);
    return driver_of(backend)->launch_config(driver_of(backend), &config, backend->device->kernels[kernel], arguments,
                                             NULL);
}

/* ---- Memory ---- */

static void free_piece(struct rn_gpu_backend *backend, uint64_t *piece)
{
    if (*piece != 0)
        driver_of(backend)->memory_free(driver_of(backend), *piece);
    *piece = 0;
}

static void free_host(struct rn_gpu_backend *backend, void *memory)
{
    if (memory != NULL)
        driver_of(backend)->host_free(driver_of(backend), memory);
}

static void free_stream(struct rn_gpu_backend *backend, struct rn_gpu_stream *stream)
{
    if (stream != NULL)
        driver_of(backend)->stream_free(driver_of(backend), stream);
}

/* What prepare has taken. */
static void release(struct rn_gpu_backend *backend)
{
    struct rn_gpu_context *before;

    rn_gpu_enter(backend->device, &before);
    rn_gpu_graphs_free(backend);
    rn_gpu_experts_free(backend);
    free_stream(backend, backend->stream);
    free_stream(backend, backend->copies_in);
    free_stream(backend, backend->copies_out);
    if (backend->copied_in != NULL)
        driver_of(backend)->event_free(driver_of(backend), backend->copied_in);
    free_host(backend, backend->host_in);
    free_host(backend, backend->host_logits);
    free_host(backend, backend->host_ids);
    free_host(backend, backend->host_features);
    free_host(backend, backend->host_results);
    free_host(backend, backend->host_masks);
    free_piece(backend, &backend->weights);
    free_piece(backend, &backend->blocks);
    free_piece(backend, &backend->windows);
    free_piece(backend, &backend->slots);
    free_piece(backend, &backend->inputs);
    free_piece(backend, &backend->states);
    free_piece(backend, &backend->features);
    rn_gpu_leave(backend->device, before);
    rn_free(backend->heap, backend->drawn);
    rn_free(backend->heap, backend->weight_at);
    rn_free(backend->heap, backend->vector_at);
    rn_free(backend->heap, backend->matrices_at);
    rn_free(backend->heap, backend->rope_at);
    rn_free(backend->heap, backend->slopes_at);
    rn_free(backend->heap, backend->slot_at);
    rn_free(backend->heap, backend->angles_at);
    rn_free(backend->heap, backend->items);
    rn_free(backend->heap, backend->layer_at);
    rn_free(backend->heap, backend->layer_values_at);
    *backend = (struct rn_gpu_backend){
        .base = backend->base, .heap = backend->heap, .device = backend->device, .has_graphs = true};
}

/* Where things lie, on the host's heap. */
static bool take_tables(struct rn_gpu_backend *backend)
{
    const struct rn_plan *plan = backend->plan;

    backend->weight_at = rn_calloc(backend->heap, plan->n_weights, sizeof *backend->weight_at);
    backend->vector_at = rn_calloc(backend->heap, plan->n_weights, sizeof *backend->vector_at);
    backend->matrices_at = rn_calloc(backend->heap, plan->n_weights, sizeof *backend->matrices_at);
    backend->rope_at = rn_calloc(backend->heap, plan->n_ropes, sizeof *backend->rope_at);
    backend->slopes_at = rn_calloc(backend->heap, plan->n_ops, sizeof *backend->slopes_at);
    backend->slot_at = rn_calloc(backend->heap, plan->n_slots, sizeof *backend->slot_at);
    backend->angles_at = rn_calloc(backend->heap, plan->n_ropes, sizeof *backend->angles_at);
    backend->items = rn_calloc(backend->heap, plan->n_ops, sizeof *backend->items);
    backend->layer_at = rn_calloc(backend->heap, plan->n_kv_layers, sizeof *backend->layer_at);
    backend->layer_values_at = rn_calloc(backend->heap, plan->n_kv_layers, sizeof *backend->layer_values_at);
    backend->drawn = rn_calloc(backend->heap, backend->limits.max_outs, sizeof *backend->drawn);
    return backend->weight_at != NULL && backend->vector_at != NULL && backend->matrices_at != NULL &&
           backend->rope_at != NULL && backend->slot_at != NULL && backend->angles_at != NULL &&
           backend->items != NULL && backend->slopes_at != NULL && backend->layer_at != NULL &&
           backend->layer_values_at != NULL && backend->drawn != NULL && rn_gpu_experts_new(backend);
}

static uint64_t slot_bytes(const struct rn_gpu_backend *backend, uint32_t index)
{
    const struct rn_slot *slot = &backend->plan->slots[index];
    uint64_t rows = slot->logits || backend->limits.max_outs > backend->limits.max_rows ? backend->limits.max_outs
                                                                                        : backend->limits.max_rows;

    return rn_gpu_aligned(rows * slot->width * sizeof(float));
}

/* Slots one behind the other; their bytes. */
static uint64_t place_slots(struct rn_gpu_backend *backend)
{
    uint64_t at = 0;

    for (uint32_t i = 0; i < backend->plan->n_slots; i++) {
        backend->slot_at[i] = at;
        at += slot_bytes(backend, i);
    }
    return at;
}

static int take_piece(struct rn_gpu_backend *backend, uint64_t bytes, uint64_t *piece)
{
    return driver_of(backend)->memory_new(driver_of(backend), piece, bytes == 0 ? RN_GPU_ALIGNMENT : bytes);
}

static int take_host(struct rn_gpu_backend *backend, uint64_t bytes, void **memory)
{
    return driver_of(backend)->host_new(driver_of(backend), memory, bytes == 0 ? 1 : bytes, RN_GPU_HOST_PORTABLE);
}

/* The workspaces of attention and of products, one behind the other from `at` on; the end. */
static uint64_t place_workspaces(struct rn_gpu_backend *backend, uint64_t at)
{
    uint64_t split, partial, order, slots, experts_split;

    rn_gpu_products_bytes(backend, &split, &partial);
    rn_gpu_expert_bytes(backend, &order, &slots, &experts_split);
    backend->workspace_at = at;
    backend->rotated_at = backend->workspace_at + rn_gpu_aligned(rn_gpu_workspace_bytes(backend));
    backend->split_at = backend->rotated_at + rn_gpu_aligned(rn_gpu_rotated_bytes(backend));
    backend->partial_at = backend->split_at + rn_gpu_aligned(split > experts_split ? split : experts_split);
    backend->order_at = backend->partial_at + rn_gpu_aligned(partial);
    backend->expert_slots_at = backend->order_at + rn_gpu_aligned(order);
    return backend->expert_slots_at + rn_gpu_aligned(slots);
}

/* Slots, workspaces, angles. */
static int take_slots(struct rn_gpu_backend *backend)
{
    uint64_t end;

    rn_gpu_program_place(backend);
    end = rn_gpu_angles_place(backend, place_workspaces(backend, place_slots(backend)));
    return take_piece(backend, end, &backend->slots);
}

/* All pieces of take_memory that are not weights, blocks or states, and what brings the weights there. */
uint64_t rn_gpu_step_bytes(struct rn_gpu_device *device, const struct rn_plan *plan,
                           const struct rn_backend_limits *limits)
{
    struct rn_gpu_backend sized = {.device = device, .plan = plan, .limits = *limits};
    uint64_t bytes = place_workspaces(&sized, 0) + rn_gpu_inputs_place(&sized) +
                     rn_gpu_features_bytes(&sized, limits->max_rows) + rn_gpu_staging_bytes(plan, limits->expert_bytes);

    for (uint32_t i = 0; i < plan->n_slots; i++)
        bytes += slot_bytes(&sized, i);
    for (uint32_t i = 0; i < plan->n_ropes; i++)
        bytes += rn_gpu_angles_bytes(&sized, i);
    return bytes;
}

static int take_streams(struct rn_gpu_backend *backend)
{
    struct rn_gpu_driver *driver = driver_of(backend);
    int result = driver->stream_new(driver, &backend->stream, RN_GPU_STREAM_APART);

    if (result == RN_GPU_OK)
        result = driver->stream_new(driver, &backend->copies_in, RN_GPU_STREAM_APART);
    if (result == RN_GPU_OK)
        result = driver->stream_new(driver, &backend->copies_out, RN_GPU_STREAM_APART);
    if (result == RN_GPU_OK)
        result = driver->event_new(driver, &backend->copied_in, RN_GPU_EVENT_NO_TIME);
    return result;
}

/* Everything that steps need but the weights' bytes. */
static int take_memory(struct rn_gpu_backend *backend)
{
    uint64_t in_bytes = rn_gpu_inputs_place(backend);
    uint64_t logits_bytes = (uint64_t)backend->limits.max_outs * backend->plan->n_vocab * sizeof(float);
    uint64_t features_bytes = rn_gpu_features_bytes(backend, backend->limits.max_rows);
    void *host_in = NULL, *host_logits = NULL, *host_ids = NULL, *host_features = NULL, *host_results = NULL,
         *host_masks = NULL;
    int result;

    backend->weights_bytes = rn_gpu_weights_place(backend, backend->plan);
    result = take_piece(backend, backend->weights_bytes, &backend->weights);
    if (result == RN_GPU_OK)
        result = rn_gpu_experts_take(backend);
    rn_gpu_blocks_place(backend, backend->plan);
    if (result == RN_GPU_OK)
        result = take_piece(backend, backend->limits.n_blocks * backend->block_bytes, &backend->blocks);
    if (result == RN_GPU_OK && backend->window_bytes > 0)
        result = take_piece(backend, backend->limits.n_windows * backend->window_bytes, &backend->windows);
    backend->state_stride = rn_gpu_aligned(backend->plan->state_bytes);
    if (result == RN_GPU_OK && backend->state_stride > 0)
        result = take_piece(backend, backend->limits.n_states * backend->state_stride, &backend->states);
    if (result == RN_GPU_OK)
        result = take_slots(backend);
    if (result == RN_GPU_OK)
        result = take_piece(backend, in_bytes, &backend->inputs);
    if (result == RN_GPU_OK)
        result = take_host(backend, RN_GPU_RING * backend->in.bytes, &host_in);
    if (result == RN_GPU_OK && backend->plan->logits_slot >= 0)
        result = take_host(backend, logits_bytes, &host_logits);
    if (result == RN_GPU_OK && rn_gpu_ids_bytes(backend) > 0)
        result = take_host(backend, rn_gpu_ids_bytes(backend), &host_ids);
    if (result == RN_GPU_OK && features_bytes > 0)
        result = take_piece(backend, features_bytes, &backend->features);
    if (result == RN_GPU_OK && features_bytes > 0)
        result = take_host(backend, features_bytes, &host_features);
    if (result == RN_GPU_OK && backend->limits.draws)
        result = take_host(backend, backend->limits.max_outs * sizeof *backend->host_results, &host_results);
    backend->mask_stride =
        rn_gpu_aligned(sizeof(struct rn_draw_mask) + ((uint64_t)backend->plan->n_vocab + 63) / 64 * sizeof(uint64_t));
    if (result == RN_GPU_OK && backend->limits.draws && backend->plan->n_vocab <= RN_DRAW_MASKED_MOST)
        result = take_host(backend, backend->limits.max_outs * backend->mask_stride, &host_masks);
    backend->host_results = host_results;
    backend->host_masks = host_masks;
    backend->host_ids = host_ids;
    backend->host_features = host_features;
    backend->host_in = host_in;
    backend->host_logits = host_logits;
    return result == RN_GPU_OK ? take_streams(backend) : result;
}

/* ---- Prepare ---- */

/* free_bytes: of the device's memory, before the load. */
static runnel_status complain(struct rn_gpu_backend *backend, int result, size_t free_bytes, runnel_error *error)
{
    struct rn_expert_room room;
    uint64_t bytes;
    char text[128];

    if (backend->shared_wanted > 0)
        return rn_error_set(error, RUNNEL_UNSUPPORTED,
                            "cuda: device %u, %s: a kernel wants %u bytes of shared memory for %s, and a block has %u",
                            backend->device->index, backend->device->name, backend->shared_wanted,
                            backend->plan->architecture, backend->device->shared_most);
    if (backend->grid_wanted > RN_GRID_MOST)
        return rn_error_set(error, RUNNEL_UNSUPPORTED,
                            "cuda: device %u, %s: a launch for %s wants %u blocks in a row, and there are at most %d",
                            backend->device->index, backend->device->name, backend->plan->architecture,
                            backend->grid_wanted, RN_GRID_MOST);
    rn_gpu_error_text(driver_of(backend), result, text, sizeof text);
    rn_gpu_expert_room(backend->plan, backend->limits.expert_bytes, &room);
    if (backend->host_wanted)
        return rn_error_set(error, RUNNEL_NO_MEMORY,
                            "cuda: device %u: no %.1f MiB of the host's memory, pinned, for the experts: %s",
                            backend->device->index, (double)room.host_bytes / (1 << 20), text);
    bytes = backend->weights_bytes + (backend->limits.expert_bytes > 0 ? room.device_bytes : 0);
    if (result == RN_GPU_OUT_OF_MEMORY && bytes > free_bytes)
        return rn_error_set(
            error, RUNNEL_NO_MEMORY,
            "cuda: device %u, %s: the weights take %.1f MiB and %.1f MiB are free: the model does not fit; with fewer "
            "device_layers%s it would",
            backend->device->index, backend->device->name, (double)bytes / (1 << 20), (double)free_bytes / (1 << 20),
            room.n_places > 0                                 ? ", or less device_expert_bytes,"
            : room.n > 0 && backend->limits.expert_bytes == 0 ? ", or device_expert_bytes,"
                                                              : "");
    if (result == RN_GPU_OUT_OF_MEMORY)
        return rn_error_set(error, RUNNEL_NO_MEMORY,
                            "cuda: device %u: no memory for the weights, the activations and %u KV blocks: %s",
                            backend->device->index, backend->limits.n_blocks, text);
    return rn_error_set(error, RUNNEL_DEVICE, "cuda: device %u: the weights cannot be brought there: %s",
                        backend->device->index, text);
}

static runnel_status check(const struct rn_plan *plan, const struct rn_backend_limits *limits,
                           const struct rn_device_caps *caps, runnel_error *error)
{
    runnel_status status;

    if (limits->max_rows == 0 || limits->max_seqs == 0 || limits->max_outs == 0 || limits->n_blocks == 0 ||
        limits->context_tokens == 0 || limits->block_tokens == 0 ||
        (limits->block_tokens & (limits->block_tokens - 1)) != 0)
        return rn_error_set(error, RUNNEL_INVALID, "the limits of the backend hold a zero or a bad block size");
    if (plan->state_bytes > 0 && limits->n_states == 0)
        return rn_error_set(error, RUNNEL_INVALID, "limits: no slots for the recurrent states of the plan");
    status = rn_limits_check(limits, plan, caps, error);
    return status == RUNNEL_OK ? rn_gpu_plan_check(plan, limits->kv_type, error) : status;
}

static runnel_status prepare(struct rn_backend *base, const struct rn_plan *plan,
                             const struct rn_backend_limits *limits, rn_progress_fn progress, void *user,
                             runnel_error *error)
{
    struct rn_gpu_backend *backend = self(base);
    runnel_status status = check(plan, limits, backend->base.caps, error);
    size_t free_bytes = 0, total_bytes;
    bool wanted = true;
    int result;

    RN_CHECK(backend->plan == NULL);
    if (status != RUNNEL_OK)
        return status;
    if (progress != NULL && !progress(user, 0))
        return rn_error_set(error, RUNNEL_CANCELLED, "loading was cancelled");
    backend->plan = plan;
    backend->limits = *limits;
    if (!take_tables(backend)) {
        release(backend);
        return rn_error_set(error, RUNNEL_NO_MEMORY, "no memory for a backend of CUDA");
    }
    result = driver_of(backend)->context_set(driver_of(backend), backend->device->context);
    if (result == RN_GPU_OK)
        result = driver_of(backend)->memory_info(driver_of(backend), &free_bytes, &total_bytes);
    if (result == RN_GPU_OK)
        result = take_memory(backend);
    if (result == RN_GPU_OK)
        result = rn_gpu_program_allow(backend);
    if (result == RN_GPU_OK)
        result = rn_gpu_weights_send(backend, progress, user, &wanted);
    if (result == RN_GPU_OK && wanted)
        result = rn_gpu_products_measure(backend, MEASURED_BYTES);
    if (result != RN_GPU_OK)
        status = complain(backend, result, free_bytes, error);
    else if (!wanted || (progress != NULL && !progress(user, 1)))
        status = rn_error_set(error, RUNNEL_CANCELLED, "loading was cancelled");
    if (status != RUNNEL_OK)
        release(backend);
    return status;
}

/* ---- Life ---- */

static void free_backend(struct rn_backend *base)
{
    struct rn_gpu_backend *backend = self(base);

    rn_gpu_steps_wait(backend, backend->n_submitted);
    rn_gpu_tell_noted(backend);
    if (backend->plan != NULL)
        release(backend);
    atomic_fetch_sub_explicit(&backend->device->n_backends, 1, memory_order_release);
    rn_free(backend->heap, backend);
}

static const struct rn_backend_ops gpu_ops = {
    .name = "cuda",
    .prepare = prepare,
    .submit_async = rn_gpu_submit_async,
    .can_draw = rn_gpu_can_draw,
    .mask_of = rn_gpu_mask_of,
    .free = free_backend,
    .block_bytes = rn_gpu_block_bytes,
    .layout = rn_gpu_layout,
    .state_bytes = rn_gpu_state_bytes,
    .copy_async = rn_gpu_copy_async,
    .host_alloc = rn_gpu_host_alloc,
    .host_free = rn_gpu_host_free,
};

struct rn_backend *rn_gpu_backend_new(struct rn_heap *heap, struct rn_gpu_device *device)
{
    struct rn_gpu_backend *backend = rn_calloc(heap, 1, sizeof *backend);

    if (backend == NULL)
        return NULL;
    backend->base = (struct rn_backend){&gpu_ops, &device->caps};
    backend->heap = heap;
    backend->device = device;
    backend->has_graphs = true;
    atomic_fetch_add_explicit(&device->n_backends, 1, memory_order_relaxed);
    return &backend->base;
}
