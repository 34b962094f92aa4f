/* Weights to the device: matrices and tables in the kernels' order, vectors as f32.
 *
 *   file ─▶ pinned half ─copy in─▶ device's half ─tile kernel─▶ weights        two halves: one is filled while
 *                                                                              the other is on its way
 *
 * A matrix goes in pieces of whole tiles. Of experts that lie in the host's memory (experts.h) a piece is made in the
 * staging memory, too, goes back from there, and to the expert's place on the device, if it has one. The staging memory is
 * given back at the end. */
#include <string.h>

#include "base/check.h"
#include "gpu/steps.h"
#include "model/op_info.h"

enum {
    HALF_BYTES = 16 << 20, /* of the staging memory; more where 16 rows are longer */
    TILE_ROWS = 16
};

struct staging {
    struct rn_gpu_backend *backend;
    size_t half_bytes;
    unsigned char *host; /* two halves */
    uint64_t device;     /* likewise */
    size_t tiled_bytes;  /* of a piece of an expert in the kernels' order; 0: there is none */
    uint64_t tiled;
    struct rn_gpu_event *free[2];
    uint64_t n; /* pieces so far */
    uint64_t done_bytes, all_bytes;
    rn_progress_fn progress;
    void *user;
};

/* ---- Where weights lie ---- */

/* How the plan's ops use each weight: as a matrix or table, as a vector. */
static void mark(const struct rn_plan *plan, uint32_t w, bool *matrix, bool *vector)
{
    const struct rn_op_info *info;

    *matrix = *vector = false;
    for (uint32_t i = 0; i < plan->n_ops; i++) {
        info = rn_op_info(plan->ops[i].kind);
        if (plan->ops[i].weight == (int32_t)w &&
            (info->weight == RN_WEIGHT_TABLE || info->weight == RN_WEIGHT_MATRIX || info->weight == RN_WEIGHT_EXPERTS ||
             info->weight == RN_WEIGHT_HEADS || info->weight == RN_WEIGHT_HEAD_ROWS))
            *matrix = true;
        else if (plan->ops[i].weight == (int32_t)w || plan->ops[i].bias == (int32_t)w)
            *vector = true;
    }
}

/* The first weight of the same tensor that is a matrix, as this one is. */
static uint32_t first_matrix(const struct rn_plan *plan, uint32_t w)
{
    bool matrix = false, vector;

    for (uint32_t i = 0; i < w; i++) {
        if (plan->weights[i].tensor == plan->weights[w].tensor)
            mark(plan, i, &matrix, &vector);
        if (matrix)
            return i;
    }
    return w;
}

static uint64_t matrix_bytes(const struct rn_weight *weight)
{
    return rn_gpu_aligned(weight->experts * rn_tiled_bytes(weight->type_id, weight->rows, weight->cols));
}

/* It lies in the host's memory. */
static bool is_apart(const struct rn_gpu_backend *backend, uint32_t w)
{
    return backend->limits.expert_bytes > 0 && rn_gpu_is_expert(backend->plan, w, true);
}

static uint64_t vector_bytes(const struct rn_weight *weight)
{
    return rn_gpu_aligned((uint64_t)weight->rows * weight->cols * sizeof(float));
}

static void put(uint64_t *places, uint32_t i, uint64_t at)
{
    if (places != NULL)
        places[i] = at;
}

/* The place of the matrix, and that of its experts' addresses, from `at` on, or those that an earlier weight of the
 * same tensor has. The end. */
static uint64_t place_matrix(struct rn_gpu_backend *backend, uint32_t w, uint64_t at)
{
    const struct rn_weight *weight = &backend->plan->weights[w];
    uint32_t first = first_matrix(backend->plan, w);

    if (first < w) {
        if (backend->weight_at != NULL) {
            backend->weight_at[w] = backend->weight_at[first];
            backend->matrices_at[w] = backend->matrices_at[first];
        }
        return at;
    }
    put(backend->weight_at, w, is_apart(backend, w) ? RN_GPU_NOWHERE : at);
    at += is_apart(backend, w) ? 0 : matrix_bytes(weight);
    if (!rn_gpu_is_expert(backend->plan, w, false))
        return at;
    put(backend->matrices_at, w, at);
    return at + rn_gpu_aligned(weight->experts * sizeof(rn_address));
}

uint64_t rn_gpu_weights_place(struct rn_gpu_backend *backend, const struct rn_plan *plan)
{
    uint64_t at = 0;

    for (uint32_t w = 0; w < plan->n_weights; w++) {
        bool matrix, vector;

        mark(plan, w, &matrix, &vector);
        put(backend->weight_at, w, RN_GPU_NOWHERE);
        put(backend->matrices_at, w, RN_GPU_NOWHERE);
        put(backend->vector_at, w, vector ? at : RN_GPU_NOWHERE);
        at += vector ? vector_bytes(&plan->weights[w]) : 0;
        at = matrix ? place_matrix(backend, w, at) : at;
    }
    for (uint32_t i = 0; i < plan->n_ropes; i++) {
        put(backend->rope_at, i, at);
        at += rn_gpu_aligned(plan->ropes[i].dims / 2 * sizeof(double));
    }
    for (uint32_t i = 0; i < plan->n_ops; i++) {
        put(backend->slopes_at, i, at);
        at += plan->ops[i].alibi == 0 ? 0 : rn_gpu_aligned(plan->ops[i].heads * sizeof(float));
    }
    return at;
}

uint64_t rn_gpu_weights_bytes(const struct rn_plan *plan, uint64_t expert_bytes)
{
    struct rn_gpu_backend sized = {.plan = plan, .limits.expert_bytes = expert_bytes};
    struct rn_expert_room room = {.n = 0};

    if (expert_bytes > 0)
        rn_gpu_expert_room(plan, expert_bytes, &room);
    return rn_gpu_weights_place(&sized, plan) + room.device_bytes;
}

/* ---- The way ---- */

static unsigned char *half_host(const struct staging *s)
{
    return s->host + s->n % 2 * s->half_bytes;
}

static uint64_t half_device(const struct staging *s)
{
    return s->device + s->n % 2 * s->half_bytes;
}

/* The next half may be filled. */
static int await_half(const struct staging *s)
{
    struct rn_gpu_driver *driver = s->backend->device->driver;

    return s->n < 2 ? RN_GPU_OK : driver->event_finish(driver, s->free[s->n % 2]);
}

/* The half is on its way: it is free when the stream comes here. */
static int end_half(struct staging *s, size_t file_bytes)
{
    struct rn_gpu_driver *driver = s->backend->device->driver;
    int result = driver->event_record(driver, s->free[s->n % 2], s->backend->stream);

    s->n++;
    s->done_bytes += file_bytes;
    return result;
}

/* Where an expert's matrix goes: on the device alone, or to the host's memory, and to the device, if that is not 0. */
struct target {
    rn_address device;
    unsigned char *host; /* NULL: not there */
};

/* A piece that was made, `at` bytes from the matrix's begin. */
static int send_apart(struct staging *s, const struct target *to, uint64_t at, uint64_t bytes)
{
    struct rn_gpu_backend *backend = s->backend;
    struct rn_gpu_driver *driver = backend->device->driver;
    int result;

    RN_CHECK(bytes <= s->tiled_bytes);
    result = driver->copy_out(driver, to->host + at, s->tiled, bytes, backend->stream);
    return result == RN_GPU_OK && to->device != 0
               ? driver->copy_within(driver, to->device + at, s->tiled, bytes, backend->stream)
               : result;
}

/* Rows [row, row + n) of an expert's matrix; of a weight without experts there is one, 0. */
static int send_rows(struct staging *s, const struct rn_weight *weight, uint32_t expert, const struct target *to,
                     uint32_t row, uint32_t n)
{
    const unsigned char *data = weight->tensor->data;
    struct rn_gpu_backend *backend = s->backend;
    struct rn_gpu_driver *driver = backend->device->driver;
    size_t bytes = n * weight->row_bytes;
    uint64_t at = rn_tiled_bytes(weight->type_id, row, weight->cols);
    struct rn_tile_args args = {half_device(s), to->host != NULL ? s->tiled : to->device + at, n, weight->cols};
    struct rn_typed_kernels kernels;
    int result = await_half(s);

    RN_CHECK(rn_kernels_of_type(weight->type_id, &kernels)); /* prepare has looked */
    if (result != RN_GPU_OK)
        return result;
    memcpy(half_host(s), data + ((size_t)expert * weight->rows + row) * weight->row_bytes, bytes);
    result = driver->copy_in(driver, half_device(s), half_host(s), bytes, backend->stream);
    if (result == RN_GPU_OK)
        result = rn_gpu_launch(backend, kernels.tile, &args);
    if (result == RN_GPU_OK && to->host != NULL)
        result = send_apart(s, to, at, rn_tiled_bytes(weight->type_id, n, weight->cols));
    return result == RN_GPU_OK ? end_half(s, bytes) : result;
}

static bool is_wanted(const struct staging *s)
{
    return s->progress == NULL || s->progress(s->user, (float)((double)s->done_bytes / (double)s->all_bytes));
}

/* Rows of a piece. */
static uint32_t piece_rows(const struct rn_weight *weight, size_t half_bytes)
{
    uint64_t most = half_bytes / weight->row_bytes / TILE_ROWS * TILE_ROWS;

    return weight->rows < most ? weight->rows : (uint32_t)most;
}

/* *wanted false: the host has cancelled the load. */
static int send_expert(struct staging *s, const struct rn_weight *weight, uint32_t expert, const struct target *to,
                       bool *wanted)
{
    uint32_t most = piece_rows(weight, s->half_bytes), n;
    int result = RN_GPU_OK;

    for (uint32_t row = 0; row < weight->rows && result == RN_GPU_OK && *wanted; row += n) {
        n = weight->rows - row < most ? weight->rows - row : most;
        result = send_rows(s, weight, expert, to, row, n);
        *wanted = is_wanted(s);
    }
    return result;
}

/* All experts, one behind the other. */
static int send_matrix(struct staging *s, const struct rn_weight *weight, rn_address to, bool *wanted)
{
    uint64_t bytes = rn_tiled_bytes(weight->type_id, weight->rows, weight->cols);
    int result = RN_GPU_OK;

    for (uint32_t e = 0; e < weight->experts && result == RN_GPU_OK && *wanted; e++)
        result = send_expert(s, weight, e, &(struct target){to + e * bytes, NULL}, wanted);
    return result;
}

/* Where each expert's matrix lies, of a weight that is not apart. */
static int send_addresses(struct staging *s, uint32_t w)
{
    struct rn_gpu_backend *backend = s->backend;
    struct rn_gpu_driver *driver = backend->device->driver;
    const struct rn_weight *weight = &backend->plan->weights[w];
    uint64_t bytes = rn_tiled_bytes(weight->type_id, weight->rows, weight->cols);
    rn_address *addresses = (rn_address *)(void *)half_host(s);
    int result = await_half(s);

    if (result != RN_GPU_OK)
        return result;
    for (uint32_t e = 0; e < weight->experts; e++)
        addresses[e] = backend->weights + backend->weight_at[w] + e * bytes;
    result = driver->copy_in(driver, backend->weights + backend->matrices_at[w], addresses,
                             weight->experts * sizeof *addresses, backend->stream);
    return result == RN_GPU_OK ? end_half(s, 0) : result;
}

/* Likewise of a weight that is apart. */
static int send_experts(struct staging *s, uint32_t w, bool *wanted)
{
    const struct rn_weight *weight = &s->backend->plan->weights[w];
    struct rn_gpu_expert_home home = {.host = NULL};
    int result = RN_GPU_OK;

    for (uint32_t e = 0; e < weight->experts && result == RN_GPU_OK && *wanted; e++) {
        RN_CHECK(rn_gpu_expert_home(s->backend, w, e, &home));
        result = send_expert(s, weight, e, &(struct target){home.device, home.host}, wanted);
    }
    return result;
}

/* Decoded row by row. */
static int send_vector(struct staging *s, const struct rn_weight *weight, rn_address to)
{
    struct rn_gpu_backend *backend = s->backend;
    struct rn_gpu_driver *driver = backend->device->driver;
    size_t bytes = (size_t)weight->rows * weight->cols * sizeof(float);
    const unsigned char *data = weight->tensor->data;
    int result = await_half(s);

    if (result != RN_GPU_OK)
        return result;
    for (uint32_t row = 0; row < weight->rows; row++)
        weight->type->decode(data + row * weight->row_bytes, (float *)(void *)half_host(s) + (size_t)row * weight->cols,
                             weight->cols);
    result = driver->copy_in(driver, to, half_host(s), bytes, backend->stream);
    return result == RN_GPU_OK ? end_half(s, weight->rows * weight->row_bytes) : result;
}

static int send_rope(struct staging *s, const struct rn_rope *rope, rn_address to)
{
    struct rn_gpu_backend *backend = s->backend;
    struct rn_gpu_driver *driver = backend->device->driver;
    size_t bytes = rope->dims / 2 * sizeof(double);
    int result = await_half(s);

    if (result != RN_GPU_OK)
        return result;
    memcpy(half_host(s), rope->inv_freq, bytes);
    result = driver->copy_in(driver, to, half_host(s), bytes, backend->stream);
    return result == RN_GPU_OK ? end_half(s, 0) : result;
}

/* How fast scores of each head fall with distance, of an ATTENTION with ALiBi. */
static int send_slopes(struct staging *s, const struct rn_op *op, rn_address to)
{
    struct rn_gpu_backend *backend = s->backend;
    struct rn_gpu_driver *driver = backend->device->driver;
    float *slopes = (float *)(void *)half_host(s);
    int result = await_half(s);

    if (result != RN_GPU_OK)
        return result;
    for (uint32_t h = 0; h < op->heads; h++)
        slopes[h] = (float)rn_op_slope(op, h);
    result = driver->copy_in(driver, to, slopes, op->heads * sizeof *slopes, backend->stream);
    return result == RN_GPU_OK ? end_half(s, 0) : result;
}

static int send_all(struct staging *s, bool *wanted)
{
    struct rn_gpu_backend *backend = s->backend;
    const struct rn_plan *plan = backend->plan;
    struct rn_gpu_driver *driver = backend->device->driver;
    int result = RN_GPU_OK;

    for (uint32_t w = 0; w < plan->n_weights && result == RN_GPU_OK && *wanted; w++) {
        bool is_first = first_matrix(plan, w) == w;

        if (is_first && backend->weight_at[w] != RN_GPU_NOWHERE)
            result = send_matrix(s, &plan->weights[w], backend->weights + backend->weight_at[w], wanted);
        if (result == RN_GPU_OK && *wanted && is_first && is_apart(backend, w))
            result = send_experts(s, w, wanted);
        else if (result == RN_GPU_OK && is_first && backend->matrices_at[w] != RN_GPU_NOWHERE)
            result = send_addresses(s, w);
        if (result == RN_GPU_OK && *wanted && backend->vector_at[w] != RN_GPU_NOWHERE)
            result = send_vector(s, &plan->weights[w], backend->weights + backend->vector_at[w]);
    }
    for (uint32_t i = 0; i < plan->n_ropes && result == RN_GPU_OK && *wanted; i++)
        result = send_rope(s, &plan->ropes[i], backend->weights + backend->rope_at[i]);
    for (uint32_t i = 0; i < plan->n_ops && result == RN_GPU_OK && *wanted; i++)
        if (plan->ops[i].alibi != 0)
            result = send_slopes(s, &plan->ops[i], backend->weights + backend->slopes_at[i]);
    if (result == RN_GPU_OK)
        result = rn_gpu_experts_tables(backend);
    return result == RN_GPU_OK ? driver->stream_finish(driver, backend->stream) : result;
}

/* What a half must hold: 16 rows of each matrix, each vector; and no more than HALF_BYTES of a matrix. */
static size_t half_bytes_of(const struct rn_plan *plan)
{
    uint64_t most = RN_GPU_ALIGNMENT, whole, tile;

    for (uint32_t w = 0; w < plan->n_weights; w++) {
        const struct rn_weight *weight = &plan->weights[w];
        bool matrix, vector;

        mark(plan, w, &matrix, &vector);
        whole = (weight->rows + TILE_ROWS - 1) / TILE_ROWS * TILE_ROWS * (uint64_t)weight->row_bytes;
        tile = TILE_ROWS * (uint64_t)weight->row_bytes;
        whole = whole < HALF_BYTES ? whole : HALF_BYTES > tile ? HALF_BYTES : tile;
        most = matrix && whole > most ? whole : most;
        whole = weight->experts * sizeof(rn_address);
        most = whole > most ? whole : most;
        whole = (uint64_t)weight->rows * weight->cols * sizeof(float);
        most = vector && whole > most ? whole : most;
    }
    for (uint32_t i = 0; i < plan->n_ropes; i++)
        most = plan->ropes[i].dims / 2 * sizeof(double) > most ? plan->ropes[i].dims / 2 * sizeof(double) : most;
    for (uint32_t i = 0; i < plan->n_ops; i++)
        most = plan->ops[i].alibi != 0 && plan->ops[i].heads * sizeof(float) > most ? plan->ops[i].heads * sizeof(float)
                                                                                    : most;
    return (size_t)rn_gpu_aligned(most);
}

/* The largest piece of an expert that is apart. */
static size_t tiled_bytes_of(const struct rn_plan *plan, uint64_t expert_bytes, size_t half_bytes)
{
    uint64_t most = 0, bytes;

    for (uint32_t w = 0; w < plan->n_weights && expert_bytes > 0; w++) {
        const struct rn_weight *weight = &plan->weights[w];

        if (!rn_gpu_is_expert(plan, w, true))
            continue;
        bytes = rn_tiled_bytes(weight->type_id, piece_rows(weight, half_bytes), weight->cols);
        most = bytes > most ? bytes : most;
    }
    return (size_t)most;
}

uint64_t rn_gpu_staging_bytes(const struct rn_plan *plan, uint64_t expert_bytes)
{
    size_t half = half_bytes_of(plan);

    return 2 * (uint64_t)half + tiled_bytes_of(plan, expert_bytes, half);
}

int rn_gpu_weights_send(struct rn_gpu_backend *backend, rn_progress_fn progress, void *user, bool *wanted)
{
    struct rn_gpu_driver *driver = backend->device->driver;
    struct staging s = {
        .backend = backend, .half_bytes = half_bytes_of(backend->plan), .progress = progress, .user = user};
    void *host = NULL;
    int result = driver->host_new(driver, &host, 2 * s.half_bytes, RN_GPU_HOST_PORTABLE);

    *wanted = true;
    s.host = host;
    s.all_bytes = backend->plan->weight_bytes + 1;
    if (result == RN_GPU_OK)
        result = driver->memory_new(driver, &s.device, 2 * s.half_bytes);
    s.tiled_bytes = tiled_bytes_of(backend->plan, backend->limits.expert_bytes, s.half_bytes);
    if (result == RN_GPU_OK && s.tiled_bytes > 0)
        result = driver->memory_new(driver, &s.tiled, s.tiled_bytes);
    for (int i = 0; i < 2 && result == RN_GPU_OK; i++)
        result = driver->event_new(driver, &s.free[i], RN_GPU_EVENT_NO_TIME);
    if (result == RN_GPU_OK)
        result = send_all(&s, wanted);
    if (host != NULL) /* a copy may be under way although the call behind it has failed */
        driver->stream_finish(driver, backend->stream);
    for (int i = 0; i < 2; i++)
        if (s.free[i] != NULL)
            driver->event_free(driver, s.free[i]);
    if (s.device != 0)
        driver->memory_free(driver, s.device);
    if (s.tiled != 0)
        driver->memory_free(driver, s.tiled);
    if (host != NULL)
        driver->host_free(driver, host);
    return result;
}
