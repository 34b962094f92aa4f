/* The CUDA backend's steps: see backend.h. */
#include <sched.h>
#include <string.h>

#include "base/check.h"
#include "gpu/steps.h"
#include "model/draw_mask.h"

static struct rn_gpu_backend *self(const struct rn_backend *backend)
{
    return (struct rn_gpu_backend *)backend;
}

static struct rn_gpu_driver *driver_of(const struct rn_gpu_backend *backend)
{
    return backend->device->driver;
}

/* ---- Graphs ---- */

/* Steps without graphs after memory for one was refused: seconds, in which another model may have gone, and next to
 * which a capture that fails is nothing. */
enum { GRAPHS_REST = 1000 };

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

/* 0: the plan has none. */
static uint64_t logits_of(const struct rn_gpu_backend *backend)
{
    const struct rn_plan *plan = backend->plan;

    return plan->logits_slot < 0 ? 0 : backend->slots + backend->slot_at[plan->logits_slot];
}

struct rn_draw_args rn_gpu_draw_args(const struct rn_gpu_backend *backend, uint32_t n_rows)
{
    return (struct rn_draw_args){.logits = logits_of(backend),
                                 .asks = backend->inputs + backend->in.asks,
                                 .results = backend->inputs + backend->in.results,
                                 .changes = backend->inputs + backend->in.changes,
                                 .saved = backend->inputs + backend->in.saved,
                                 .tokens = backend->inputs + backend->in.tokens,
                                 .n_rows = n_rows,
                                 .n_vocab = backend->plan->n_vocab,
                                 .n_changes = backend->limits.max_changes,
                                 .n_tokens = backend->limits.max_rows};
}

/* Tokens that the step before has drawn, the ops, and what is drawn from their logits. */
static int run_all(struct rn_gpu_backend *backend, const struct rn_gpu_shape *shape)
{
    const struct rn_gpu_inputs *in = &backend->in;
    const struct rn_feed_args feed = {.results = backend->inputs + in->results,
                                      .drawn = backend->inputs + in->drawn,
                                      .tokens = backend->inputs + in->tokens,
                                      .n_rows = shape->n_rows,
                                      .n_results = backend->limits.max_outs};
    const struct rn_draw_args draw = rn_gpu_draw_args(backend, shape->n_outs);
    int result = backend->limits.draws ? rn_gpu_launch(backend, RN_KERNEL_feed, &feed) : RN_GPU_OK;

    if (result == RN_GPU_OK)
        result = rn_gpu_program_run(backend, shape);
    return result == RN_GPU_OK && shape->draws != 0 ? rn_gpu_launch(backend, RN_KERNEL_draw, &draw) : result;
}

/* From now on ops are launched one by one; where memory was refused, for some steps, and what graphs have is given
 * back. Said once. */
static void give_up_graphs(struct rn_gpu_backend *backend, int result)
{
    bool again = result == RN_GPU_OUT_OF_MEMORY;
    char text[128];

    if (again) {
        rn_gpu_graphs_free(backend);
        backend->graphs_rest = GRAPHS_REST;
    }
    backend->has_graphs = again;
    if (backend->graphs_told)
        return;
    backend->graphs_told = true;
    rn_gpu_error_text(driver_of(backend), result, text, sizeof text);
    rn_log(backend->device->log, RUNNEL_LOG_WARNING,
           "cuda: device %u: a step cannot be made a graph, so %ssteps are launched op by op, which is slower: %s",
           backend->device->index, again ? "the next " : "", text);
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
        result = run_all(backend, shape);
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
    bool is_new;

    if (!backend->has_graphs || shape->n_rows > RN_GPU_GRAPH_ROWS)
        return run_all(backend, shape);
    if (backend->graphs_rest > 0) {
        backend->graphs_rest--;
        return run_all(backend, shape);
    }
    entry = entry_of(backend, shape);
    is_new = entry->used == 0;
    entry->used = ++backend->n_steps;
    if (!is_new && entry->exec == NULL)
        result = capture(backend, shape, &entry->exec); /* without memory it clears the entries, this one, too */
    if (result != RN_GPU_OK)
        return result;
    return entry->exec != NULL ? driver->graph_launch(driver, entry->exec, backend->stream) : run_all(backend, shape);
}

/* ---- Failures ---- */

void rn_gpu_tell_failure(struct rn_gpu_backend *backend, const char *what, int result)
{
    char text[RUNNEL_ERROR_BYTES];

    if (result == RN_GPU_OK || atomic_exchange_explicit(&backend->is_told, true, memory_order_relaxed))
        return;
    rn_gpu_error_text(driver_of(backend), result, text, sizeof text);
    rn_log(backend->device->log, RUNNEL_LOG_WARNING, "cuda: device %u: %s failed: %s", backend->device->index, what,
           text);
}

void rn_gpu_tell_noted(struct rn_gpu_backend *backend)
{
    rn_gpu_tell_failure(backend, "a step", atomic_load_explicit(&backend->step_failure, memory_order_relaxed));
    rn_gpu_tell_failure(backend, "a copy of blocks",
                        atomic_load_explicit(&backend->copy_failure, memory_order_relaxed));
}

void rn_gpu_note_failure(_Atomic int *noted, int result)
{
    int none = RN_GPU_OK;

    atomic_compare_exchange_strong_explicit(noted, &none, result, memory_order_relaxed, memory_order_relaxed);
}

/* ---- Steps ---- */

bool rn_gpu_can_draw(const struct rn_backend *backend, const runnel_sampling *sampling)
{
    (void)backend;
    return sampling->n_biases <= RN_DRAW_BIASES;
}

struct rn_draw_mask *rn_gpu_mask_of(struct rn_backend *base, uint32_t out)
{
    struct rn_gpu_backend *backend = self(base);

    static_assert(offsetof(struct rn_draw_mask, words) == RN_DRAW_MASK_WORDS, "the kernel reads it");
    static_assert(offsetof(struct rn_draw_mask, may_end) == RN_DRAW_MASK_ENDS, "the kernel reads it");
    RN_CHECK(out < backend->limits.max_outs);
    return backend->host_masks == NULL
               ? NULL
               : (struct rn_draw_mask *)(void *)(backend->host_masks + out * backend->mask_stride);
}

/* Fills what goes up of a draw whose row has what it depends on. */
static void take_draw(struct rn_gpu_backend *backend, struct rn_draw *draw, uint32_t out)
{
    const struct rn_draw_result *result = &backend->host_results[out];
    uint32_t n_vocab = backend->plan->n_vocab;

    if (draw->keep_logits != NULL)
        memcpy(draw->keep_logits, backend->host_logits + (size_t)out * n_vocab, n_vocab * sizeof(float));
    draw->is_late = draw->wanted && result->is_late != 0;
    if (draw->is_late)
        memcpy(draw->late_logits, backend->host_logits + (size_t)out * n_vocab, n_vocab * sizeof(float));
    if (!draw->wanted || draw->is_late)
        return;
    draw->status = result->good != 0 ? RUNNEL_OK : RUNNEL_NUMERIC;
    RN_CHECK(result->token >= 0 && (uint32_t)result->token < n_vocab);
    draw->token = result->token;
    if (!draw->want_logprob)
        return;
    RN_CHECK(draw->status != RUNNEL_OK || result->n_top <= RN_DRAW_TOP);
    draw->logprob = result->logprob;
    draw->n_top = draw->status == RUNNEL_OK ? result->n_top : 0;
    for (uint32_t i = 0; i < draw->n_top; i++)
        draw->top[i] = (runnel_logprob){result->top_tokens[i], result->top_logprobs[i]};
}

/* The draws of a step that has ended, and what the one behind it needs to know of them. */
static void take_draws(struct rn_gpu_backend *backend, struct rn_step *step)
{
    if (!backend->limits.draws)
        return;
    rn_draw_chain(step, backend->drawn, backend->n_drawn);
    for (uint32_t i = 0; step->draws != NULL && i < step->n_outs; i++)
        if (step->status != RUNNEL_OK)
            step->draws[i].status = step->status;
        else if (step->draws[i].status == RUNNEL_OK)
            take_draw(backend, &step->draws[i], i);
    backend->n_drawn = rn_draw_keep(step, backend->drawn);
}

/* The oldest one in flight. */
static void end_step(struct rn_gpu_backend *backend, int result)
{
    uint64_t n_ended = atomic_load_explicit(&backend->n_ended, memory_order_relaxed);
    struct rn_gpu_flight flight = backend->flights[n_ended % RN_GPU_RING];
    struct rn_step *step = flight.step;

    result = flight.failed != RN_GPU_OK ? flight.failed : result;
    rn_gpu_note_failure(&backend->step_failure, result);
    step->status = result == RN_GPU_OK ? RUNNEL_OK : RUNNEL_DEVICE;
    if (step->status == RUNNEL_OK && step->logits != NULL && step->n_outs > 0)
        memcpy(step->logits, backend->host_logits, (size_t)step->n_outs * backend->plan->n_vocab * sizeof(float));
    if (step->status == RUNNEL_OK)
        rn_gpu_features_give(backend, step, &flight.shape);
    if (step->status == RUNNEL_OK)
        rn_gpu_ids_count(backend, &flight.shape);
    take_draws(backend, step);
    atomic_store_explicit(&backend->n_ended, n_ended + 1, memory_order_release);
    step->on_done(step);
    atomic_store_explicit(&backend->n_left, n_ended + 1, memory_order_release); /* the last touch */
}

static void on_stream_done(struct rn_gpu_stream *stream, int result, void *user)
{
    (void)stream;
    end_step(user, result);
}

void rn_gpu_steps_wait(struct rn_gpu_backend *backend, uint64_t n)
{
    while (atomic_load_explicit(&backend->n_left, memory_order_acquire) != n)
        sched_yield();
}

/* Rows of logits to the host: all, or those that draws keep. */
static int copy_logits(struct rn_gpu_backend *backend, const struct rn_step *step)
{
    struct rn_gpu_driver *driver = driver_of(backend);
    uint64_t logits = logits_of(backend);
    size_t row = backend->plan->n_vocab;
    int result = RN_GPU_OK;

    if (step->n_outs > 0 && step->logits != NULL)
        return driver->copy_out(driver, backend->host_logits, logits, step->n_outs * row * sizeof(float),
                                backend->stream);
    for (uint32_t i = 0; step->draws != NULL && i < step->n_outs && result == RN_GPU_OK; i++)
        if (step->draws[i].keep_logits != NULL)
            result = driver->copy_out(driver, backend->host_logits + i * row, logits + i * row * sizeof(float),
                                      row * sizeof(float), backend->stream);
    return result;
}

static int enqueue(struct rn_gpu_backend *backend, const struct rn_step *step, struct rn_gpu_shape *shape)
{
    struct rn_gpu_driver *driver = driver_of(backend);
    int result = driver->context_set(driver, backend->device->context);

    if (result == RN_GPU_OK)
        result = rn_gpu_inputs_send(backend, step, shape);
    if (result == RN_GPU_OK)
        result = rn_gpu_blocks_copy(backend, step);
    if (result == RN_GPU_OK)
        result = rn_gpu_states_copy(backend, step);
    if (result == RN_GPU_OK)
        result = rn_gpu_moves(backend, step);
    if (result == RN_GPU_OK)
        result = rn_gpu_experts_step(backend);
    if (result == RN_GPU_OK)
        result = run_ops(backend, shape);
    if (result == RN_GPU_OK)
        result = rn_gpu_features_send(backend, shape);
    if (result == RN_GPU_OK)
        result = copy_logits(backend, step);
    if (result == RN_GPU_OK && shape->draws != 0)
        result = driver->copy_out(driver, backend->host_results, backend->inputs + backend->in.results,
                                  step->n_outs * sizeof(struct rn_draw_result), backend->stream);
    return result;
}

void rn_gpu_submit_async(struct rn_backend *base, struct rn_step *step)
{
    struct rn_gpu_backend *backend = self(base);
    struct rn_gpu_driver *driver = driver_of(backend);
    uint64_t n = backend->n_submitted;
    struct rn_gpu_flight *flight = &backend->flights[n % RN_GPU_RING];
    int failed;

    RN_CHECK(backend->plan != NULL);
    RN_CHECK(n - atomic_load_explicit(&backend->n_ended, memory_order_acquire) < RN_GPU_RING);
    RN_ASSERT(rn_step_check(step, backend->plan, &backend->limits));
    rn_gpu_tell_noted(backend);
    *flight = (struct rn_gpu_flight){.step = step};
    flight->failed = enqueue(backend, step, &flight->shape);
    rn_gpu_tell_failure(backend, "a step", flight->failed);
    backend->n_submitted++;
    failed = driver->stream_callback(driver, backend->stream, on_stream_done, backend, 0);
    if (failed == RN_GPU_OK)
        return;
    rn_gpu_tell_failure(backend, "a step", failed);
    /* Nobody else can say it. What is on its way touches the backend's own memory alone. */
    flight->failed = flight->failed != RN_GPU_OK ? flight->failed : RN_GPU_UNKNOWN;
    driver->stream_finish(driver, backend->stream);
    rn_gpu_steps_wait(backend, n); /* steps end in their order */
    end_step(backend, RN_GPU_UNKNOWN);
}
