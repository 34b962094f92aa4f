/* The engine: where all is wired together, and taken apart. Runs on the host's threads. */
#include "actors/engine.h"

#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "actors/host/host.h"
#include "base/check.h"
#include "base/path.h"
#include "base/plain_locale.h"
#include "base/sized.h"
#include "base/status.h"
#include "base/thread.h"
#include "cpu/cpu.h"
#include "gpu/gpu.h"
#include "runnel_uv.h"

#define DEFAULT_STREAMS 1024
#define MAX_STREAMS (1u << 20)
#define DEFAULT_SCHEDULER_THREADS 2 /* so that a long prompt's tokenizing holds up nobody's tokens */
#define MAX_THREADS 256

void runnel_engine_options_init(runnel_engine_options *options, size_t struct_size)
{
    const runnel_engine_options own = {.log_level = RUNNEL_LOG_WARNING};

    rn_sized_write(options, struct_size, &own, sizeof own);
}

void(runnel_engine_options_default)(runnel_engine_options *options)
{
    runnel_engine_options_init(options, RN_FIRST_SIZE(runnel_engine_options, max_queued_bytes));
}

/* The caller's options over the defaults: a struct from an older header is shorter. */
static runnel_status read_options(const runnel_engine_options *given, runnel_engine_options *options,
                                  runnel_error *error)
{
    runnel_engine_options_default(options);
    if (given == NULL)
        return RUNNEL_OK;
    if (!rn_sized_read(options, sizeof *options, given))
        return rn_error_set(error, RUNNEL_INVALID, "engine options: struct_size %zu is not of this library",
                            given->struct_size);
    if (options->scheduler_threads > MAX_THREADS || options->compute_threads > MAX_THREADS)
        return rn_error_set(error, RUNNEL_INVALID, "engine options: more than %d threads", MAX_THREADS);
    if (options->compute_nice > RN_MOST_NICE)
        return rn_error_set(error, RUNNEL_INVALID, "engine options: compute_nice %u is above %u", options->compute_nice,
                            RN_MOST_NICE);
    if (options->max_streams > MAX_STREAMS || options->max_sessions > MAX_STREAMS)
        return rn_error_set(error, RUNNEL_INVALID, "engine options: more than %u streams or sessions", MAX_STREAMS);
    if ((unsigned)options->delivery > RUNNEL_DELIVER_TAKE)
        return rn_error_set(error, RUNNEL_INVALID, "engine options: delivery %d is not known", (int)options->delivery);
    if ((unsigned)options->log_level > RUNNEL_LOG_DEBUG)
        return rn_error_set(error, RUNNEL_INVALID, "engine options: log_level %d is not known",
                            (int)options->log_level);
    if (options->gather_us > RN_GATHER_US_MAX)
        return rn_error_set(error, RUNNEL_INVALID, "engine options: gather_us %u is more than a second",
                            options->gather_us);
    if ((options->allocator.alloc == NULL) != (options->allocator.free == NULL))
        return rn_error_set(error, RUNNEL_INVALID, "engine options: an allocator needs both alloc and free");
    return RUNNEL_OK;
}

/* By payload: bytes of the object that moves with a message. A job is in a list of the tier's all the while. */
enum {
    PAYLOAD_request = sizeof(struct rn_request),
    PAYLOAD_tokens = sizeof(struct rn_token_list),
    PAYLOAD_computed = sizeof(struct rn_computed_list),
    PAYLOAD_news = sizeof(struct rn_news_list),
    PAYLOAD_drafts = sizeof(struct rn_drafts_list),
    PAYLOAD_proposals = sizeof(struct rn_proposal_list),
    PAYLOAD_move = sizeof(struct rn_move),
    PAYLOAD_batch = sizeof(struct rn_batch),
    PAYLOAD_job = 0,
    PAYLOAD_stream = 0,
    PAYLOAD_choice = 0,
    PAYLOAD_ended = 0,
    PAYLOAD_session = 0,
    PAYLOAD_fork = 0,
    PAYLOAD_grant = 0,
    PAYLOAD_shortage = 0,
    PAYLOAD_wake = 0,
    PAYLOAD_lanes = 0,
    PAYLOAD_outs = 0,
    PAYLOAD_model = 0,
    PAYLOAD_none = 0
};
static const uint32_t payload_bytes_of[RN_MSG_KINDS] = {
#define X(kind, payload, from, to, bound, meaning) [RN_MSG_##kind] = PAYLOAD_##payload,
    RN_MESSAGES(X)
#undef X
};

static struct rn_bounds bounds_of(const struct runnel_engine *engine, uint32_t per_model)
{
    return (struct rn_bounds){engine->max_streams, engine->session_places, RN_MAX_MODELS, per_model};
}

static runnel_status init_sessions(struct runnel_engine *engine)
{
    engine->sessions = rn_calloc(&engine->heap, engine->session_places, sizeof(struct rn_session));
    if (engine->sessions == NULL)
        return RUNNEL_NO_MEMORY;
    if (rn_pool_init(&engine->session_slots, &engine->heap, engine->session_places, sizeof(uint32_t)) == RUNNEL_OK)
        return RUNNEL_OK;
    rn_free(&engine->heap, engine->sessions);
    return RUNNEL_NO_MEMORY;
}

static void fini_sessions(struct runnel_engine *engine)
{
    RN_ASSERT(rn_pool_taken(&engine->session_slots) == 0 && rn_counter_get(&engine->totals.sessions) == 0);
    rn_pool_fini(&engine->session_slots);
    rn_free(&engine->heap, engine->sessions);
}

/* ---- Devices ---- */

static_assert(RN_MODEL_READY != 0 && RN_MODEL_LOADING == 0, "a model begins as one that is being loaded");

/* All that this build knows; the first is where nobody names one, and the second where a host wants the best. */
static const struct rn_device_kind *const kinds[] = {&rn_cpu_kind, &rn_gpu_kind, &rn_cpu_reference_kind};
enum { N_KINDS = sizeof kinds / sizeof kinds[0] };

static const struct rn_device_kind *kind_named(const char *name, size_t n)
{
    uint32_t i;

    for (i = 0; i < N_KINDS; i++)
        if (strlen(kinds[i]->name) == n && memcmp(kinds[i]->name, name, n) == 0)
            return kinds[i];
    return NULL;
}

static bool read_index(const char *part, uint32_t *index)
{
    const char *at = part;

    for (*index = 0; *at >= '0' && *at <= '9' && *index < RN_MAX_DEVICES; at++)
        *index = *index * 10 + (uint32_t)(*at - '0');
    return *at == '\0' && at > part;
}

/* "name", or "name:part" where the machine has several of a kind. NULL, and the error says why: the build knows none
 * like that. */
static const struct rn_device_kind *find_kind(const char *device, uint32_t *index, runnel_error *error)
{
    const struct rn_device_kind *kind;
    size_t n;

    *index = 0;
    if (device == NULL)
        return kinds[0];
    n = strcspn(device, ":");
    kind = kind_named(device, n);
    if (kind != NULL && device[n] == '\0')
        return kind;
    if (kind != NULL && kind->find != NULL)
        return kind->find(device + n + 1, index, error) == RUNNEL_OK ? kind : NULL;
    if (kind != NULL && read_index(device + n + 1, index))
        return kind;
    rn_error_set(error, RUNNEL_UNSUPPORTED,
                 "device \"%s\" is not known: use \"auto\", \"cpu\", \"cuda\" or \"reference\"", device);
    return NULL;
}

bool rn_engine_device_is_auto(const char *device)
{
    return device != NULL && strcmp(device, "auto") == 0;
}

runnel_status rn_engine_check_device(struct runnel_engine *engine, const char *device, runnel_error *error)
{
    const struct rn_device_kind *kind;
    runnel_error why = {0};
    uint32_t index, n;

    if (rn_engine_device_is_auto(device))
        return RUNNEL_OK;
    kind = find_kind(device, &index, error);
    if (kind == NULL)
        return RUNNEL_UNSUPPORTED;
    if (kind->count == NULL || (kind == kinds[0] && index == 0))
        return RUNNEL_OK; /* the load finds out; the best of the CPU's levels is always there */
    n = kind->count(&engine->heap, engine->device_library, &why);
    if (index < n)
        return RUNNEL_OK;
    return n == 0 ? rn_error_set(error, RUNNEL_UNSUPPORTED, "device \"%s\" is not there: %s", device, why.message)
                  : rn_error_set(error, RUNNEL_UNSUPPORTED, "device \"%s\" is not there: the machine has %u of them",
                                 device, n);
}

struct rn_device *rn_engine_open_device(struct runnel_engine *engine, const struct rn_device *like, uint32_t n_threads)
{
    const struct rn_device_options options = {.index = like == NULL ? 0 : like->index,
                                              .n_threads = n_threads,
                                              .nice = engine->compute_nice,
                                              .library = engine->device_library,
                                              .log = &engine->log};

    return (like == NULL ? kinds[0] : like->kind)->open(&engine->heap, &options, NULL);
}

static void log_device(const struct runnel_engine *engine, const struct rn_device *device)
{
    locale_t host;
    char text[128];

    if (device == NULL)
        return;
    host = rn_plain_locale();
    device->kind->describe(device, text, sizeof text);
    uselocale(host);
    rn_log(&engine->log, RUNNEL_LOG_INFO, "%s", text);
}

/* The engine's device of this kind and index, or the first place where one can be opened; NULL: there is none. */
static struct rn_device **place_of(struct runnel_engine *engine, const struct rn_device_kind *kind, uint32_t index)
{
    struct rn_device **open = engine->devices;

    for (; open < engine->devices + RN_MAX_DEVICES; open++)
        if (*open == NULL || ((*open)->kind == kind && (*open)->index == index))
            return open;
    return NULL;
}

/* What becomes of a device that is lost, once its models are freed: it makes place for itself. */
static void close_lost(struct runnel_engine *engine, struct rn_device **open)
{
    const struct rn_device_kind *kind = *open == NULL ? NULL : (*open)->kind;

    if (kind == NULL || kind->is_lost == NULL || !kind->is_lost(*open))
        return;
    rn_log(&engine->log, RUNNEL_LOG_WARNING, "device \"%s:%u\" has been lost, and is opened anew", kind->name,
           (*open)->index);
    kind->close(*open);
    *open = NULL;
}

struct rn_device *rn_engine_device(struct runnel_engine *engine, const char *device, runnel_error *error)
{
    struct rn_device_options options = {.beside = engine->devices[0],
                                        .nice = engine->compute_nice,
                                        .library = engine->device_library,
                                        .log = &engine->log};
    const struct rn_device_kind *kind = find_kind(device, &options.index, error);
    struct rn_device **open = kind == NULL ? NULL : place_of(engine, kind, options.index);

    if (open == NULL) {
        rn_error_set(error, RUNNEL_UNSUPPORTED, "device \"%s\" is not there", device);
        return NULL;
    }
    close_lost(engine, open);
    if (*open == NULL) {
        *open = kind->open(&engine->heap, &options, error);
        if (open != engine->devices)
            log_device(engine, *open);
    }
    RN_ASSERT(*open == NULL || ((*open)->kind == kind && (*open)->index == options.index));
    return *open;
}

void rn_engine_close_device(struct rn_device *device)
{
    if (device != NULL)
        device->kind->close(device);
}

/* The first one last: others may share its threads. */
static void close_devices(struct runnel_engine *engine)
{
    for (uint32_t i = RN_MAX_DEVICES; i-- > 0;)
        rn_engine_close_device(engine->devices[i]);
}

const struct rn_gemm *rn_engine_gemm(void)
{
    return rn_cpu_gemm();
}

static bool start_tracer(struct runnel_engine *engine, const runnel_engine_options *options, uint32_t threads)
{
    engine->tracer = rn_tracer_new(&engine->heap, &engine->clock, threads, options->on_trace, options->trace_user);
    return engine->tracer != NULL;
}

/* All but the outlets, which come last. */
static void fill_context(struct runnel_engine *engine)
{
    engine->context = (struct rn_context){
        .engine = engine,
        .host = &engine->host,
        .heap = &engine->heap,
        .clock = &engine->clock,
        .log = &engine->log,
        .runtime = &engine->runtime,
        .worker = &engine->worker,
        .totals = &engine->totals,
        .every_model = &engine->metrics,
        .sessions = engine->sessions,
        .session_slots = &engine->session_slots,
        .closing = &engine->closing,
        .max_streams = engine->max_streams,
        .session_places = engine->session_places,
        .max_queued_bytes = engine->max_queued_bytes,
        .bounds = bounds_of(engine, 1),
        .router = &engine->router.actor,
    };
}

/* Starts the parts in order; unwinds in reverse. */
static runnel_status start(struct runnel_engine *engine, const runnel_engine_options *options, bool manual)
{
    uint32_t threads = options->scheduler_threads == 0 ? DEFAULT_SCHEDULER_THREADS : options->scheduler_threads;
    const struct rn_bounds bounds = bounds_of(engine, RN_MAX_MODELS);

    RN_ASSERT(engine->max_streams > 0 && engine->max_streams <= MAX_STREAMS && threads <= MAX_THREADS);
    RN_ASSERT(engine->max_sessions > 0 && engine->max_sessions <= MAX_STREAMS);
    if (init_sessions(engine) != RUNNEL_OK)
        return RUNNEL_NO_MEMORY;
    if (options->on_trace != NULL && !start_tracer(engine, options, manual ? 0 : threads))
        goto fail_sessions;
    if (rn_runtime_init(&engine->runtime, &engine->heap, &engine->clock, manual ? 0 : threads,
                        1 + RN_MAX_MODELS * RN_MODEL_ACTORS, rn_bounds_pool(&bounds)) != RUNNEL_OK)
        goto fail_tracer;
    engine->runtime.tracer = engine->tracer; /* before the first actor runs */
    engine->runtime.payload_bytes_of = payload_bytes_of;
    fill_context(engine);
    if (rn_router_init(&engine->router, &engine->context) != RUNNEL_OK)
        goto fail_runtime;
    if (rn_worker_init(&engine->worker, &engine->heap, 2 * RN_MAX_MODELS + engine->max_streams, manual) != RUNNEL_OK)
        goto fail_router;
    if (!manual && (engine->devices[0] = rn_engine_open_device(engine, NULL, options->compute_threads)) == NULL)
        goto fail_worker;
    if (rn_host_init(engine, options->delivery, options->gather_us, manual) != RUNNEL_OK)
        goto fail_device;
    engine->context.outlets = engine->host.outlets; /* before the first message */
    return RUNNEL_OK;
fail_device:
    close_devices(engine);
fail_worker:
    rn_worker_fini(&engine->worker);
fail_router:
    rn_router_fini(&engine->router);
fail_runtime:
    rn_runtime_stop(&engine->runtime);
    rn_runtime_fini(&engine->runtime);
fail_tracer:
    rn_tracer_free(engine->tracer);
fail_sessions:
    fini_sessions(engine);
    return RUNNEL_NO_MEMORY;
}

/* What the engine keeps of the caller's memory. */
static runnel_status copy_options(struct runnel_engine *engine, const runnel_engine_options *options,
                                  runnel_error *error)
{
    const char *library = options->device_library;
    runnel_status status;

    if (library != NULL && strchr(library, '/') == NULL)
        engine->device_library = rn_strndup(&engine->heap, library, strlen(library)); /* the system looks for it */
    else if (library != NULL)
        engine->device_library = rn_path_absolute(&engine->heap, library);
    if (library != NULL && engine->device_library == NULL)
        return rn_error_set(error, RUNNEL_NO_MEMORY, "no memory for an engine");
    status = rn_arch_rows_init(&engine->architectures, &engine->heap, options->architectures, options->n_architectures,
                               error);
    if (status != RUNNEL_OK)
        rn_free(&engine->heap, engine->device_library);
    return status;
}

static void free_options(struct runnel_engine *engine)
{
    rn_arch_rows_fini(&engine->architectures, &engine->heap);
    rn_free(&engine->heap, engine->device_library);
}

runnel_status rn_engine_new(const runnel_engine_options *given, const struct rn_clock *clock, bool manual,
                            runnel_engine **out, runnel_error *error)
{
    runnel_engine_options options;
    struct rn_heap heap;
    struct runnel_engine *engine;
    runnel_status status;

    rn_error_clear(error);
    if (out == NULL)
        return rn_error_set(error, RUNNEL_INVALID, "engine: the handle's place is NULL");
    if (read_options(given, &options, error) != RUNNEL_OK)
        return RUNNEL_INVALID;
    rn_heap_init(&heap, &options.allocator);
    engine = rn_alloc_aligned(&heap, sizeof *engine, 64);
    if (engine == NULL)
        return rn_error_set(error, RUNNEL_NO_MEMORY, "no memory for an engine");
    memset(engine, 0, sizeof *engine);
    engine->heap = heap;
    engine->process = getpid();
    rn_gate_init(&engine->gate);
    rn_gate_init(&engine->calls);
    rn_gate_init(&engine->intake);
    rn_gate_init(&engine->trainings.gate);
    engine->log = (struct rn_log){options.on_log, options.log_user, options.log_level};
    engine->clock = clock != NULL ? *clock : rn_clock_machine();
    engine->compute_nice = options.compute_nice;
    engine->max_streams = options.max_streams == 0 ? DEFAULT_STREAMS : options.max_streams;
    engine->max_queued_tokens = options.max_queued_tokens == 0 ? UINT64_MAX : options.max_queued_tokens;
    engine->max_queued_bytes = options.max_queued_bytes == 0 ? UINT64_MAX : options.max_queued_bytes;
    engine->max_sessions = options.max_sessions == 0 ? DEFAULT_STREAMS : options.max_sessions;
    engine->session_places = engine->max_sessions + RN_SESSIONS_LEAVING;
    status = copy_options(engine, &options, error);
    if (status != RUNNEL_OK) {
        heap = engine->heap;
        rn_free(&heap, engine);
        return status;
    }
    if (start(engine, &options, manual) != RUNNEL_OK) {
        free_options(engine);
        heap = engine->heap;
        rn_free(&heap, engine);
        return rn_error_set(error, RUNNEL_NO_MEMORY,
                            "no memory, threads or file descriptors for an engine of %u streams",
                            options.max_streams == 0 ? DEFAULT_STREAMS : options.max_streams);
    }
    log_device(engine, engine->devices[0]);
    *out = engine;
    return RUNNEL_OK;
}

runnel_status runnel_engine_new(const runnel_engine_options *options, runnel_engine **engine, runnel_error *error)
{
    return rn_engine_new(options, NULL, false, engine, error);
}

runnel_status rn_engine_check_process(const struct runnel_engine *engine, runnel_error *error)
{
    return getpid() == engine->process
               ? RUNNEL_OK
               : rn_error_set(error, RUNNEL_STATE,
                              "the engine is another process's, from which this one was forked: make it after fork()");
}

runnel_status rn_engine_enter(struct runnel_engine *engine, runnel_error *error)
{
    if (rn_engine_check_process(engine, error) != RUNNEL_OK)
        return RUNNEL_STATE;
    return rn_gate_enter(&engine->gate) ? RUNNEL_OK : rn_error_set(error, RUNNEL_CLOSED, "the engine is being freed");
}

bool rn_engine_hold(struct runnel_engine *engine)
{
    return rn_gate_enter(&engine->calls);
}

void rn_engine_let_go(struct runnel_engine *engine, bool held)
{
    if (held)
        rn_gate_leave(&engine->calls);
}

/* No stream is left, and none is still to come: whoever submits is inside until its stream is counted. */
static bool is_drained(const struct runnel_engine *engine)
{
    return rn_gate_is_empty(&engine->intake) && rn_counter_get(&engine->totals.streams) == 0;
}

/* Dispatches until no stream is left; *free_wanted as of rn_host_dispatch. */
static runnel_status drain_streams(struct runnel_engine *engine, int64_t timeout_ms, bool *free_wanted)
{
    uint64_t begin = rn_now_us(&engine->clock);
    int64_t all_us = rn_us_left(timeout_ms, 0);
    const struct rn_dispatch how = {.until = &engine->closing, .due_us = all_us < 0 ? 0 : begin + (uint64_t)all_us};

    while (!is_drained(engine) && !rn_gate_is_closed(&engine->gate)) {
        int64_t left_us = rn_us_left(timeout_ms, rn_now_us(&engine->clock) - begin);

        if ((timeout_ms >= 0 && left_us <= 0) || rn_host_in_callback(engine) ||
            engine->host.delivery == RUNNEL_DELIVER_TAKE)
            return RUNNEL_TIMEOUT;
        /* Another thread may be the one that delivers: then it takes our wake. */
        rn_host_wait(engine, left_us >= 0 && left_us < 10000 ? left_us / 1000 : 10);
        rn_host_dispatch(engine, &how, free_wanted);
        if (*free_wanted)
            return RUNNEL_CLOSED;
    }
    return rn_gate_is_closed(&engine->gate) ? RUNNEL_CLOSED : RUNNEL_OK; /* it has cancelled them */
}

runnel_status runnel_engine_drain(runnel_engine *engine, int64_t timeout_ms)
{
    bool free_wanted = false;
    runnel_status status;

    if (engine == NULL)
        return RUNNEL_INVALID;
    status = rn_engine_enter(engine, NULL);
    if (status != RUNNEL_OK)
        return status;
    rn_gate_close(&engine->intake);
    status = drain_streams(engine, timeout_ms, &free_wanted);
    rn_gate_leave(&engine->gate);
    if (free_wanted)
        runnel_engine_free(engine);
    return status;
}

/* Events, or the router's word that nothing is left; and again after 10 ms, since another thread's dispatch may take
 * our wake. */
static void await_news(const struct rn_host *host)
{
    struct pollfd poller = {.fd = host->notifier.fd, .events = POLLIN};

    (void)poll(&poller, 1, 10);
}

/* Runs callbacks here until the router has reported that nothing is left, and then what is still queued. */
static void drain(struct runnel_engine *engine)
{
    const struct rn_dispatch all = {0};
    struct rn_host *host = &engine->host;
    bool free_wanted, closed;

    do {
        closed = rn_word_get(&host->closed) != 0;
        if (engine->runtime.n_threads == 0)
            while (rn_runtime_runnable(&engine->runtime) > 0)
                rn_runtime_step(&engine->runtime, 0, RN_ACTOR_BATCH);
        else if (!closed)
            await_news(host);
        if (rn_host_dispatch(engine, &all, &free_wanted) == 0)
            sched_yield(); /* a dispatch on another thread is at its end */
    } while (!closed);
    RN_ASSERT(engine->router.closing && engine->router.models == NULL && engine->router.n_held == 0);
}

/* Also those whose end waits behind a pause: nobody will resume them. */
static void cancel_all(struct runnel_engine *engine)
{
    for (uint32_t slot = 0; slot < engine->max_streams; slot++) {
        uint32_t generation = rn_word_get(&engine->host.outlets[slot].generation);

        if ((generation & 1) != 0)
            runnel_stream_cancel(engine, rn_stream_id(slot, generation));
    }
}

/* All that was counted has gone, and every message was handled. (Where actors run by hand, the last events may have
 * brought credit to the router that nobody looks at any more.) */
static bool is_empty(const struct runnel_engine *engine)
{
    const struct rn_totals *totals = &engine->totals;

    return rn_counter_get(&totals->streams) == 0 && rn_counter_get(&totals->models) == 0 &&
           rn_counter_get(&totals->loads) == 0 && rn_counter_get(&totals->queued_tokens) == 0 &&
           rn_counter_get(&totals->queued_bytes) == 0 && rn_totals_check(totals) &&
           (rn_pool_taken(&engine->runtime.messages) == 0 || rn_runtime_runnable(&engine->runtime) > 0);
}

void rn_engine_free_rest(struct runnel_engine *engine)
{
    const struct rn_dispatch all = {0};
    struct rn_heap heap;
    bool free_wanted;

    while (rn_host_dispatch(engine, &all, &free_wanted) > 0) /* what one on another thread has left behind */
        continue;
    runnel_uv_detach(engine);
    rn_runtime_stop(&engine->runtime);
    rn_tracer_free(engine->tracer);
    engine->tracer = NULL;
    rn_worker_fini(&engine->worker);
    close_devices(engine);
    rn_host_fini(engine);
    rn_router_fini(&engine->router);
    RN_ASSERT(is_empty(engine));
    rn_runtime_fini(&engine->runtime);
    fini_sessions(engine);
    rn_metrics_fini(&engine->metrics, &engine->heap);
    free_options(engine);
    heap = engine->heap;
    rn_free(&heap, engine);
}

/* Nothing new begins, and calls that block return. Whoever is inside a call that uses a model, or sends to actors, has
 * left it: so ENGINE_CLOSE comes behind all that was sent. A loop of another thread lives until it has freed the rest.
 * */
static void turn_away(struct runnel_engine *engine)
{
    rn_word_set(&engine->closing, 1);
    rn_gate_close(&engine->gate);
    rn_gate_close(&engine->intake);
    rn_gate_close(&engine->calls);
    rn_host_wake_all(engine);
    rn_uv_keep_alive(engine);
    rn_gate_await_empty(&engine->calls);
}

void runnel_engine_free(runnel_engine *engine)
{
    struct rn_msg *msg;

    if (engine == NULL || rn_engine_check_process(engine, NULL) != RUNNEL_OK || rn_host_defer_free(engine))
        return;
    turn_away(engine);
    rn_trainings_end(engine);
    cancel_all(engine); /* first: so that what the delivery thread has to deliver has an end */
    rn_host_stop_delivery(engine);
    msg = rn_msg_new(&engine->runtime, RN_MSG_ENGINE_CLOSE);
    rn_actor_send(&engine->router.actor, msg);
    drain(engine);
    rn_gate_await_empty(&engine->gate);
    if (!rn_uv_hand_over(engine))
        rn_engine_free_rest(engine);
}

/* ---- Models: calls that use them, and the last of one ---- */

runnel_status rn_model_enter(struct runnel_model *model)
{
    runnel_status status;

    if (!rn_gate_enter(&model->engine->calls))
        return RUNNEL_CLOSED;
    status = rn_model_ready(model);
    if (status != RUNNEL_OK)
        rn_model_leave(model);
    return status;
}

void rn_model_leave(struct runnel_model *model)
{
    rn_gate_leave(&model->engine->calls);
}

void rn_model_drop(struct runnel_model *model)
{
    struct runnel_engine *engine = model->engine;

    RN_ASSERT(model->parts.backend == NULL && model->parts.plan == NULL && model->parts.gguf == NULL);
    RN_ASSERT(rn_counter_get(&engine->totals.models) > 0);
    rn_free(&engine->heap, model->path);
    rn_free(&engine->heap, model->device);
    rn_free(&engine->heap, model->draft_path);
    rn_free(&engine->heap, model->weights_dir);
    rn_free(&engine->heap, model->adapters);
    rn_free(&engine->heap, model->cache_dir);
    rn_free(&engine->heap, model->cache_shared);
    rn_free(&engine->heap, model->cache_shared_ca);
    rn_free(&engine->heap, model->cache_shared_cert);
    rn_free(&engine->heap, model->cache_shared_key);
    rn_free(&engine->heap, model);
    rn_counter_add(&engine->totals.models, -1);
}

void rn_model_unref(struct runnel_model *model)
{
    RN_ASSERT(rn_word_get(&model->references) > 0);
    if (atomic_fetch_sub(&model->references.value, 1) ==
        1) /* acq_rel by default: the last one sees all others' writes */
        rn_model_drop(model);
}

void rn_model_load_reported(struct runnel_model *model)
{
    struct runnel_engine *engine = model->engine;

    RN_ASSERT(rn_word_get(&model->state) != RN_MODEL_LOADING && rn_counter_get(&engine->totals.loads) > 0);
    rn_counter_add(&engine->totals.loads, -1);
    if (rn_counter_get(&engine->totals.loads) == 0)
        rn_uv_keep_alive(engine);
    rn_model_unref(model);
}

/* ---- Numbers ---- */

runnel_status runnel_engine_metrics(runnel_engine *engine, runnel_metrics *metrics)
{
    runnel_metrics now = {0};

    if (engine == NULL || metrics == NULL || !rn_sized_known(metrics->struct_size, sizeof now))
        return RUNNEL_INVALID;
    rn_metrics_collect(&engine->metrics, &now);
    now.sessions = (uint64_t)rn_counter_get(&engine->totals.sessions);
    now.queued_tokens = (uint64_t)rn_counter_get(&engine->totals.queued_tokens);
    now.trace_dropped = engine->tracer != NULL ? (uint64_t)rn_counter_get(&engine->tracer->dropped) : 0;
    rn_sized_write(metrics, metrics->struct_size, &now, sizeof now);
    return RUNNEL_OK;
}

static void collect_stats(const struct runnel_engine *engine, runnel_engine_stats *stats)
{
    const struct rn_totals *totals = &engine->totals;
    const struct rn_metrics_list *metrics = &engine->metrics;
    uint64_t hits = rn_metrics_sum(metrics, RN_COUNT_PREFIX_HITS); /* before what they are part of */
    uint64_t queries = rn_metrics_sum(metrics, RN_COUNT_PREFIX_QUERIES);
    int64_t asked = rn_counter_get(&totals->asked_blocks);

    *stats = (runnel_engine_stats){
        .streams = (uint64_t)rn_counter_get(&totals->streams),
        .sessions = (uint64_t)rn_counter_get(&totals->sessions),
        .models = (uint64_t)rn_counter_get(&totals->models),
        .messages = rn_pool_taken(&engine->runtime.messages),
        .blocks_used = rn_metrics_sum(metrics, RN_COUNT_BLOCKS_USED),
        .blocks_total = rn_metrics_sum(metrics, RN_COUNT_BLOCKS_TOTAL),
        .heap_bytes = rn_heap_bytes(&engine->heap),
        .steps = rn_metrics_sum(metrics, RN_COUNT_STEPS),
        .prompt_tokens = rn_metrics_sum(metrics, RN_COUNT_PROMPT_TOKENS),
        .tokens = rn_metrics_sum(metrics, RN_COUNT_TOKENS),
        .prefix_hit_tokens = hits,
        .prefix_missed_tokens = queries > hits ? queries - hits : 0,
        .evicted_blocks = rn_metrics_sum(metrics, RN_COUNT_EVICTED_BLOCKS),
        .preemptions = rn_metrics_sum(metrics, RN_COUNT_PREEMPTIONS),
        .queued_tokens = (uint64_t)rn_counter_get(&totals->queued_tokens),
        .queued_bytes = (uint64_t)rn_counter_get(&totals->queued_bytes),
    };

    if (asked > 0)
        stats->prefix_ceiling = (double)rn_counter_get(&totals->known_blocks) / (double)asked;
}

runnel_status runnel_engine_get_stats(runnel_engine *engine, runnel_engine_stats *stats)
{
    runnel_engine_stats now;

    if (engine == NULL || stats == NULL || !rn_sized_known(stats->struct_size, sizeof now))
        return RUNNEL_INVALID;
    collect_stats(engine, &now);
    rn_sized_write(stats, stats->struct_size, &now, sizeof now);
    return RUNNEL_OK;
}

static bool is_closing(void *user)
{
    return rn_gate_is_closed(&((struct runnel_engine *)user)->gate);
}

runnel_status runnel_engine_measure(runnel_engine *engine, runnel_machine *machine, runnel_error *error)
{
    struct rn_device *device;
    runnel_machine now = {0};
    runnel_status status;

    rn_error_clear(error);
    if (engine == NULL || machine == NULL)
        return rn_error_set(error, RUNNEL_INVALID, "measure: engine or machine is NULL");
    if (!rn_sized_known(machine->struct_size, sizeof now))
        return rn_error_set(error, RUNNEL_INVALID, "measure: struct_size %zu is not of this library",
                            machine->struct_size);
    device = engine->devices[0];
    if (device == NULL || device->kind->measure == NULL)
        return rn_error_set(error, RUNNEL_STATE, "measure: the engine has no compute threads");
    status = rn_engine_enter(engine, error);
    if (status != RUNNEL_OK)
        return status;
    if (rn_counter_take(&engine->measuring, 1)) {
        status = device->kind->measure(device, &engine->heap, is_closing, engine, &now, error);
        rn_counter_add(&engine->measuring, -1);
    } else {
        status = rn_error_set(error, RUNNEL_STATE, "measure: a measurement of this engine is under way");
    }
    rn_gate_leave(&engine->gate);
    if (status == RUNNEL_OK)
        rn_sized_write(machine, machine->struct_size, &now, sizeof now);
    return status;
}

static void look(struct runnel_engine *engine, const char *device, runnel_device_info *info)
{
    struct rn_device_options options = {
        .beside = engine->devices[0], .library = engine->device_library, .log = &engine->log};
    const struct rn_device_kind *kind =
        find_kind(rn_engine_device_is_auto(device) ? kinds[1]->name : device, &options.index, NULL);

    RN_ASSERT(kind != NULL); /* it was checked */
    info->index = options.index;
    kind->look(&engine->heap, &options, info);
}

runnel_status runnel_engine_device(runnel_engine *engine, const char *device, runnel_device_info *info,
                                   runnel_error *error)
{
    runnel_device_info now = {0};
    runnel_status status;

    rn_error_clear(error);
    if (engine == NULL || device == NULL || info == NULL)
        return rn_error_set(error, RUNNEL_INVALID, "device: engine, device or info is NULL");
    if (!rn_sized_known(info->struct_size, sizeof now))
        return rn_error_set(error, RUNNEL_INVALID, "device: struct_size %zu is not of this library", info->struct_size);
    status = rn_engine_check_device(engine, device, error);
    if (status == RUNNEL_OK)
        status = rn_engine_enter(engine, error);
    if (status != RUNNEL_OK)
        return status;
    look(engine, device, &now);
    rn_gate_leave(&engine->gate);
    rn_sized_write(info, info->struct_size, &now, sizeof now);
    return RUNNEL_OK;
}
