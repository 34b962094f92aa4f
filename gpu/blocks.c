/* KV blocks and recurrent states: where layers lie in a block, copies within a step, and copies between the device and
 * the host.
 *
 *   block = layer 0: keys [position][head], values [position][head]; layer 1: ...; rows as kv.h says
 *
 *   state = layer after layer, as the plan says; what a layer's numbers mean: kernels/states.cu
 *
 * With limits.window layers with windows lie in blocks of their own, of the same form, in a piece of their own; then
 * nothing is copied. Else a block is one piece, here and in the host's memory. Copies to the host and from it have
 * streams of their own: they do not wait for steps, nor steps for them. A list with both ends on the stream of those to
 * the host, which waits for an event of the other. What is behind n_positions is cleared in the host's memory, and only
 * what stands before is copied. */
#include <string.h>

#include "base/check.h"
#include "gpu/steps.h"
#include "model/kv.h"

static struct rn_gpu_backend *of(const struct rn_backend *backend)
{
    return (struct rn_gpu_backend *)backend;
}

/* Bytes of one position of a layer's keys or values. */
static uint64_t position_bytes(const struct rn_gpu_backend *backend, uint32_t heads, uint32_t width)
{
    return heads * (uint64_t)rn_kv_row_bytes(backend->limits.kv_type, width / heads);
}

static uint64_t key_bytes(const struct rn_gpu_backend *backend, uint32_t layer)
{
    const struct rn_kv_layer *kv = &backend->plan->kv_layers[layer];

    return position_bytes(backend, kv->kv_heads, kv->k_width);
}

static uint64_t value_bytes(const struct rn_gpu_backend *backend, uint32_t layer)
{
    const struct rn_kv_layer *kv = &backend->plan->kv_layers[layer];

    return position_bytes(backend, kv->kv_heads, kv->v_width);
}

bool rn_gpu_is_windowed(const struct rn_gpu_backend *backend, uint32_t layer)
{
    return backend->limits.window > 0 && rn_plan_layer_window(backend->plan, layer) > 0;
}

void rn_gpu_blocks_place(struct rn_gpu_backend *backend, const struct rn_plan *plan)
{
    uint64_t tokens = backend->limits.block_tokens;

    backend->block_bytes = backend->window_bytes = 0;
    for (uint32_t i = 0; i < plan->n_kv_layers; i++) {
        uint64_t *at = rn_gpu_is_windowed(backend, i) ? &backend->window_bytes : &backend->block_bytes;

        backend->layer_at[i] = *at;
        *at += key_bytes(backend, i) * tokens;
        backend->layer_values_at[i] = *at;
        *at += value_bytes(backend, i) * tokens;
    }
    RN_ASSERT(rn_gpu_block_bytes(&backend->base) == rn_plan_kv_bytes(plan, backend->limits.kv_type) * tokens);
}

static uint64_t block_at(const struct rn_gpu_backend *backend, uint32_t block)
{
    RN_CHECK(block < backend->limits.n_blocks && backend->limits.window == 0);
    return backend->blocks + block * backend->block_bytes;
}

int rn_gpu_blocks_copy(struct rn_gpu_backend *backend, const struct rn_step *step)
{
    struct rn_gpu_driver *driver = backend->device->driver;
    int result = RN_GPU_OK;

    for (uint32_t i = 0; i < step->n_copies && result == RN_GPU_OK && backend->block_bytes > 0; i++)
        result = driver->copy_within(driver, block_at(backend, step->copies[i].to),
                                     block_at(backend, step->copies[i].from), backend->block_bytes, backend->stream);
    return result;
}

void rn_gpu_parts_put(const struct rn_gpu_backend *backend, uint32_t *parts)
{
    for (uint32_t i = 0; i < 2 * backend->plan->n_kv_layers; i++, parts += 4) {
        uint64_t at = i % 2 == 0 ? backend->layer_at[i / 2] : backend->layer_values_at[i / 2];

        parts[0] = (uint32_t)at;
        parts[1] = (uint32_t)(at >> 32);
        parts[2] = (uint32_t)(i % 2 == 0 ? key_bytes(backend, i / 2) : value_bytes(backend, i / 2));
        parts[3] = 0;
    }
}

int rn_gpu_moves(struct rn_gpu_backend *backend, const struct rn_step *step)
{
    const struct rn_move_rows_args args = {.blocks = backend->blocks,
                                           .tables = backend->inputs + backend->in.tables,
                                           .table_at = backend->inputs + backend->in.tables_at,
                                           .moves = backend->inputs + backend->in.moves,
                                           .parts = backend->inputs + backend->in.parts,
                                           .block_bytes = backend->block_bytes,
                                           .n_tables = backend->in.n_tables,
                                           .n_seqs = step->n_seqs,
                                           .n_moves = step->n_moves,
                                           .n_parts = 2 * backend->plan->n_kv_layers,
                                           .block_log = (uint32_t)__builtin_ctz(backend->limits.block_tokens)};

    static_assert(sizeof(struct rn_step_move) == 3 * sizeof(uint32_t), "the kernel reads triples");
    return step->n_moves == 0 ? RN_GPU_OK : rn_gpu_launch(backend, RN_KERNEL_move_rows, &args);
}

/* One launch for all. */
int rn_gpu_states_copy(struct rn_gpu_backend *backend, const struct rn_step *step)
{
    const struct rn_copy_states_args args = {.states = backend->states,
                                             .copies = backend->inputs + backend->in.state_copies,
                                             .stride_bytes = backend->state_stride,
                                             .n_copies = step->n_state_copies,
                                             .n_states = backend->limits.n_states};

    static_assert(sizeof(struct rn_step_state_copy) == 2 * sizeof(uint32_t), "the kernel reads pairs");
    return backend->state_stride == 0 ? RN_GPU_OK : rn_gpu_launch(backend, RN_KERNEL_copy_states, &args);
}

static uint64_t state_at(const struct rn_gpu_backend *backend, uint32_t slot)
{
    RN_CHECK(slot < backend->limits.n_states);
    return backend->states + slot * backend->state_stride;
}

size_t rn_gpu_block_bytes(const struct rn_backend *backend)
{
    return of(backend)->block_bytes + of(backend)->window_bytes;
}

const char *rn_gpu_layout(const struct rn_backend *backend)
{
    return of(backend)->device->layout;
}

size_t rn_gpu_state_bytes(const struct rn_backend *backend)
{
    return of(backend)->plan->state_bytes;
}

/* ---- Host copies ---- */

/* The first n positions of a part of the block, which are [part, part + whole); the rest is cleared. */
static int read_part(struct rn_gpu_backend *backend, uint64_t block, unsigned char *host, uint64_t part, uint64_t row,
                     uint32_t n)
{
    struct rn_gpu_driver *driver = backend->device->driver;
    uint64_t whole = row * backend->limits.block_tokens, kept = row * n;

    memset(host + part + kept, 0, whole - kept);
    return kept == 0 ? RN_GPU_OK : driver->copy_out(driver, host + part, block + part, kept, backend->copies_out);
}

static int read_block(struct rn_gpu_backend *backend, const struct rn_host_copy *copy)
{
    struct rn_gpu_driver *driver = backend->device->driver;
    uint64_t block = block_at(backend, copy->block);
    int result = RN_GPU_OK;

    if (copy->n_positions >= backend->limits.block_tokens)
        return driver->copy_out(driver, copy->host, block, backend->block_bytes, backend->copies_out);
    for (uint32_t i = 0; i < backend->plan->n_kv_layers && result == RN_GPU_OK; i++) {
        result = read_part(backend, block, copy->host, backend->layer_at[i], key_bytes(backend, i), copy->n_positions);
        if (result == RN_GPU_OK && value_bytes(backend, i) > 0)
            result = read_part(backend, block, copy->host, backend->layer_values_at[i], value_bytes(backend, i),
                               copy->n_positions);
    }
    return result;
}

static int enqueue_state(struct rn_gpu_backend *backend, const struct rn_host_copy *copy)
{
    struct rn_gpu_driver *driver = backend->device->driver;
    uint64_t bytes = backend->plan->state_bytes, state;

    if (bytes == 0)
        return RN_GPU_OK; /* of a plan without */
    state = state_at(backend, copy->block);
    return copy->to_host ? driver->copy_out(driver, copy->host, state, bytes, backend->copies_out)
                         : driver->copy_in(driver, state, copy->host, bytes, backend->copies_in);
}

static int enqueue(struct rn_gpu_backend *backend, const struct rn_host_copy *copy)
{
    struct rn_gpu_driver *driver = backend->device->driver;

    if (copy->is_state)
        return enqueue_state(backend, copy);
    if (backend->block_bytes == 0)
        return RN_GPU_OK; /* of a plan without attention */
    return copy->to_host ? read_block(backend, copy)
                         : driver->copy_in(driver, block_at(backend, copy->block), copy->host, backend->block_bytes,
                                           backend->copies_in);
}

/* A list has copies in both directions, or in one. */
struct directions {
    bool in, out;
};

static struct directions directions_of(const struct rn_host_copies *copies)
{
    struct directions found = {false, false};

    for (uint32_t i = 0; i < copies->n; i++) {
        found.in = found.in || !copies->items[i].to_host;
        found.out = found.out || copies->items[i].to_host;
    }
    return found;
}

/* While a list is under way its `next` is the backend's to use: it has whose list it is. */
static struct rn_gpu_backend *copier_of(const struct rn_host_copies *copies)
{
    return (void *)copies->next;
}

static void on_copied(struct rn_gpu_stream *stream, int result, void *user)
{
    struct rn_host_copies *copies = user;

    (void)stream;
    rn_gpu_note_failure(&copier_of(copies)->copy_failure, result);
    copies->status = result == RN_GPU_OK ? RUNNEL_OK : RUNNEL_DEVICE;
    copies->on_done(copies);
}

/* Everything of a list is enqueued. Of one with both directions the stream out is behind what goes in, too: one
 * callback ends it. An event that is recorded again by another list's thread only comes later in the same stream. */
static int enqueue_all(struct rn_gpu_backend *backend, const struct rn_host_copies *copies,
                       const struct directions *directions)
{
    struct rn_gpu_driver *driver = backend->device->driver;
    int result = driver->context_set(driver, backend->device->context);

    for (uint32_t i = 0; i < copies->n && result == RN_GPU_OK; i++)
        result = enqueue(backend, &copies->items[i]);
    if (result == RN_GPU_OK && directions->in && directions->out)
        result = driver->event_record(driver, backend->copied_in, backend->copies_in);
    if (result == RN_GPU_OK && directions->in && directions->out)
        result = driver->stream_wait(driver, backend->copies_out, backend->copied_in, 0);
    return result;
}

void rn_gpu_copy_async(struct rn_backend *base, struct rn_host_copies *copies)
{
    struct rn_gpu_backend *backend = of(base);
    struct rn_gpu_driver *driver = backend->device->driver;
    struct directions directions = directions_of(copies);
    struct rn_gpu_stream *last = directions.out ? backend->copies_out : backend->copies_in;
    int result;

    rn_gpu_tell_noted(backend);
    copies->next = (void *)backend;
    result = enqueue_all(backend, copies, &directions);
    if (result == RN_GPU_OK)
        result = driver->stream_callback(driver, last, on_copied, copies, 0);
    if (result == RN_GPU_OK)
        return;
    rn_gpu_tell_failure(backend, "a copy of blocks", result);
    /* What is on its way ends first: its memory is the caller's. */
    driver->stream_finish(driver, backend->copies_in);
    driver->stream_finish(driver, backend->copies_out);
    on_copied(last, result, copies);
}

void *rn_gpu_host_alloc(struct rn_backend *base, size_t bytes)
{
    struct rn_gpu_device *device = of(base)->device;
    struct rn_gpu_context *before;
    void *memory = NULL;
    int result = rn_gpu_enter(device, &before);
    char text[128];

    if (result == RN_GPU_OK)
        result = device->driver->host_new(device->driver, &memory, bytes == 0 ? 1 : bytes, RN_GPU_HOST_PORTABLE);
    rn_gpu_leave(device, before);
    if (result == RN_GPU_OK)
        return memory;
    rn_gpu_error_text(device->driver, result, text, sizeof text);
    rn_log(device->log, RUNNEL_LOG_WARNING, "cuda: device %u: no %zu bytes of the host's memory for copies: %s",
           device->index, bytes, text);
    return NULL;
}

void rn_gpu_host_free(struct rn_backend *base, void *memory)
{
    struct rn_gpu_device *device = of(base)->device;
    struct rn_gpu_context *before;

    if (memory == NULL)
        return;
    rn_gpu_enter(device, &before);
    device->driver->host_free(device->driver, memory);
    rn_gpu_leave(device, before);
}
