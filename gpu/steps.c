/* The CUDA backend's steps: see backend.h. */
#include <string.h>

#include "base/check.h"
#include "gpu/steps.h"

static struct rn_gpu_backend *self(const struct rn_backend *backend)
{
    return (struct rn_gpu_backend *)backend;
}

static struct rn_gpu_driver *driver_of(const struct rn_gpu_backend *backend)
{
    return backend->device->driver;
}

/* ---- Graphs ---- */

void rn_gpu_graphs_free(struct rn_gpu_backend *backend)
{
    for (int i = 0; i < RN_GPU_GRAPHS; i++)
        if (backend->graphs[i].exec != NULL)
            driver_of(backend)->exec_free(driver_of(backend), backend->graphs[i].exec);
    memset(backend->graphs, 0, sizeof backend->graphs);
}

static bool same_shape(const struct rn_gpu_shape *a, const struct rn_gpu_shape *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

/* The shape's entry, or the one that was not used for longest, which becomes its. */
static struct rn_gpu_graph_entry *entry_of(struct rn_gpu_backend *backend, const struct rn_gpu_shape *shape)
{
    struct rn_gpu_graph_entry *oldest = &backend->graphs[0];

    for (int i = 0; i < RN_GPU_GRAPHS; i++) {
        if (backend->graphs[i].used != 0 && same_shape(&backend->graphs[i].shape, shape))
            return &backend->graphs[i];
        if (backend->graphs[i].used < oldest->used)
            oldest = &backend->graphs[i];
    }
    if (oldest->exec != NULL)
        driver_of(backend)->exec_free(driver_of(backend), oldest->exec);
    *oldest = (struct rn_gpu_graph_entry){.shape = *shape};
    return oldest;
}

/* From now on ops are launched one by one. Said once: nobody tries again. */
static void give_up_graphs(struct rn_gpu_backend *backend, int result)
{
    char text[128];

    rn_gpu_error_text(driver_of(backend), result, text, sizeof text);
    rn_log(backend->device->log, RUNNEL_LOG_WARNING,
           "cuda: device %u: a step cannot be made a graph, so steps are launched op by op, which is slower: %s",
           backend->device->index, text);
    backend->has_graphs = false;
}

/* A stream that still captures runs nothing. */
static bool is_capturing(struct rn_gpu_backend *backend)
{
    int status = RN_GPU_CAPTURE_ACTIVE;

    return driver_of(backend)->capture_status(driver_of(backend), backend->stream, &status) != RN_GPU_OK ||
           status != RN_GPU_CAPTURE_NONE;
}

/* The ops of a step as a graph. *exec NULL: the driver has none, and what was captured has not run. An error: nor can
 * anything else be run by the stream. */
static int capture(struct rn_gpu_backend *backend, const struct rn_gpu_shape *shape, struct rn_gpu_exec **exec)
{
    struct rn_gpu_driver *driver = driver_of(backend);
    struct rn_gpu_graph *graph = NULL;
    int result = driver->capture_begin(driver, backend->stream, RN_GPU_CAPTURE_RELAXED), ended = RN_GPU_OK;

    *exec = NULL;
    if (result == RN_GPU_OK) {
        result = rn_gpu_program_run(backend, shape);
        ended = driver->capture_end(driver, backend->stream, &graph);
        result = result == RN_GPU_OK ? ended : result;
    }
    if (result == RN_GPU_OK)
        result = driver->graph_ready(driver, exec, graph, 0);
    if (graph != NULL)
        driver->graph_free(driver, graph);
    if (result == RN_GPU_OK)
        return RN_GPU_OK;
    *exec = NULL;
    give_up_graphs(backend, result);
    return ended != RN_GPU_OK && is_capturing(backend) ? result : RN_GPU_OK;
}

/* A shape that comes a second time gets a graph. */
static int run_ops(struct rn_gpu_backend *backend, const struct rn_gpu_shape *shape)
{
    struct rn_gpu_driver *driver = driver_of(backend);
    struct rn_gpu_graph_entry *entry;
    int result = RN_GPU_OK;

    if (!backend->has_graphs || shape->n_rows > RN_GPU_GRAPH_ROWS)
        return rn_gpu_program_run(backend, shape);
    entry = entry_of(backend, shape);
    if (entry->used != 0 && entry->exec == NULL)
        result = capture(backend, shape, &entry->exec);
    entry->used = ++backend->n_steps;
    if (result != RN_GPU_OK)
        return result;
    return entry->exec != NULL ? driver->graph_launch(driver, entry->exec, backend->stream)
                               : rn_gpu_program_run(backend, shape);
}

/* ---- Steps ---- */

static void end_step(struct rn_gpu_backend *backend, int result)
{
    struct rn_step *step = backend->step;
    uint32_t n_vocab = backend->plan->n_vocab;

    backend->step = NULL;
    result = backend->failed != RN_GPU_OK ? backend->failed : result;
    step->status = result == RN_GPU_OK ? RUNNEL_OK : RUNNEL_DEVICE;
    if (step->status == RUNNEL_OK && step->logits != NULL && step->n_outs > 0)
        memcpy(step->logits, backend->host_logits, (size_t)step->n_outs * n_vocab * sizeof(float));
    if (step->status == RUNNEL_OK)
        rn_gpu_features_give(backend, step);
    if (step->status == RUNNEL_OK)
        rn_gpu_ids_count(backend, &backend->shape);
    step->on_done(step); /* nothing of the backend is touched behind it */
}

static void on_stream_done(struct rn_gpu_stream *stream, int result, void *user)
{
    (void)stream;
    end_step(user, result);
}

static int enqueue(struct rn_gpu_backend *backend, const struct rn_step *step)
{
    struct rn_gpu_driver *driver = driver_of(backend);
    uint64_t logits = backend->slots + backend->slot_at[backend->plan->logits_slot];
    int result = driver->context_set(driver, backend->device->context);

    if (result == RN_GPU_OK)
        result = rn_gpu_inputs_send(backend, step, &backend->shape);
    if (result == RN_GPU_OK)
        result = rn_gpu_blocks_copy(backend, step);
    if (result == RN_GPU_OK)
        result = rn_gpu_states_copy(backend, step);
    if (result == RN_GPU_OK)
        result = run_ops(backend, &backend->shape);
    if (result == RN_GPU_OK)
        result = rn_gpu_features_send(backend);
    if (result == RN_GPU_OK && step->n_outs > 0 && step->logits != NULL)
        result = driver->copy_out(driver, backend->host_logits, logits,
                                  (size_t)step->n_outs * backend->plan->n_vocab * sizeof(float), backend->stream);
    return result;
}

void rn_gpu_submit_async(struct rn_backend *base, struct rn_step *step)
{
    struct rn_gpu_backend *backend = self(base);
    struct rn_gpu_driver *driver = driver_of(backend);

    RN_CHECK(backend->plan != NULL && backend->step == NULL);
    RN_ASSERT(rn_step_check(step, backend->plan, &backend->limits));
    backend->step = step;
    backend->failed = RN_GPU_OK;
    backend->failed = enqueue(backend, step);
    if (driver->stream_callback(driver, backend->stream, on_stream_done, backend, 0) == RN_GPU_OK)
        return;
    /* Nobody else can say it. What is on its way touches the backend's own memory alone. */
    backend->failed = backend->failed != RN_GPU_OK ? backend->failed : RN_GPU_UNKNOWN;
    driver->stream_finish(driver, backend->stream);
    end_step(backend, RN_GPU_UNKNOWN);
}
