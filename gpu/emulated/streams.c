/* The emulated driver's streams, events and graphs: see driver.h. */
#include <string.h>

#include "base/thread.h"
#include "gpu/emulated/driver.h"

/* ---- Lists ---- */

static void empty(struct rn_gpu_commands *list)
{
    list->first = NULL;
    list->last = &list->first;
}

static void append(struct rn_gpu_commands *list, struct rn_gpu_command *command)
{
    command->next = NULL;
    *list->last = command;
    list->last = &command->next;
}

static struct rn_gpu_command *take_first(struct rn_gpu_commands *list)
{
    struct rn_gpu_command *command = list->first;

    list->first = command->next;
    if (list->first == NULL)
        list->last = &list->first;
    return command;
}

static void drop(struct rn_gpu_emulated *e, struct rn_gpu_commands *list)
{
    while (list->first != NULL)
        rn_free(e->heap, take_first(list));
}

/* ---- A stream's thread ---- */

/* The bytes [at, at + bytes) are within one piece of the device's. Under the lock. */
static bool is_device(const struct rn_gpu_emulated *e, uint64_t at, size_t bytes)
{
    for (const struct rn_gpu_piece *piece = e->pieces; piece != NULL; piece = piece->next) {
        uint64_t begin = (uintptr_t)piece->at;

        if (!piece->is_host && at >= begin && at - begin <= piece->bytes && bytes <= piece->bytes - (at - begin))
            return true;
    }
    return false;
}

/* What kernels may touch now, the device's memory and the pinned one of the host, to be freed. NULL on refusal. Under
 * the lock. */
static struct rn_emulated_range *take_ranges(struct rn_gpu_emulated *e, size_t *n)
{
    struct rn_emulated_range *ranges;
    size_t all = 0;

    for (const struct rn_gpu_piece *piece = e->pieces; piece != NULL; piece = piece->next)
        all++;
    ranges = rn_alloc(e->heap, all + 1, sizeof *ranges);
    *n = 0;
    for (const struct rn_gpu_piece *piece = e->pieces; piece != NULL && ranges != NULL; piece = piece->next)
        ranges[(*n)++] = (struct rn_emulated_range){(uintptr_t)piece->at, piece->bytes};
    return ranges;
}

/* Under the lock, but while the kernel runs. */
static int launch(struct rn_gpu_stream *stream, const struct rn_gpu_command *command)
{
    struct rn_gpu_emulated *e = stream->driver;
    char fault[RN_EMULATED_FAULT_BYTES] = "";
    size_t n;
    struct rn_emulated_range *ranges = take_ranges(e, &n);
    bool is_good;

    if (ranges == NULL)
        return RN_GPU_OUT_OF_MEMORY;
    pthread_mutex_unlock(&e->lock);
    is_good = e->emulation->launch(stream->emulator, command->kernel, command->grid, command->block,
                                   command->shared_bytes, command->arguments, ranges, n, fault);
    pthread_mutex_lock(&e->lock);
    rn_free(e->heap, ranges);
    if (!is_good && e->fault[0] == '\0')
        memcpy(e->fault, fault, sizeof fault);
    return is_good ? RN_GPU_OK : RN_GPU_LAUNCH_FAILED;
}

/* Under the lock, but while it copies. */
static void copy(struct rn_gpu_emulated *e, const struct rn_gpu_command *command)
{
    pthread_mutex_unlock(&e->lock);
    if (command->kind == RN_GPU_COPY)
        memmove(command->to, command->from, command->bytes);
    else
        memset(command->to, command->value, command->bytes);
    pthread_mutex_lock(&e->lock);
}

/* Under the lock, but while its caller is called. */
static void call_back(struct rn_gpu_stream *stream, const struct rn_gpu_command *command)
{
    struct rn_gpu_emulated *e = stream->driver;
    int result = e->lost;

    pthread_mutex_unlock(&e->lock);
    command->callback(stream, result, command->user);
    pthread_mutex_lock(&e->lock);
}

/* Until the event has been recorded as often as when the wait was asked for. Under the lock, but while it waits. */
static void wait_for_event(struct rn_gpu_emulated *e, const struct rn_gpu_command *command)
{
    while (command->event->done < command->records)
        pthread_cond_wait(&e->changed, &e->lock);
}

/* Takes and runs the first command. Under the lock. */
static void run_first(struct rn_gpu_stream *stream)
{
    struct rn_gpu_emulated *e = stream->driver;
    struct rn_gpu_command *command = take_first(&stream->commands);
    int result = RN_GPU_OK;

    stream->busy = true;
    if (command->kind == RN_GPU_CALL_BACK)
        call_back(stream, command);
    else if (command->kind == RN_GPU_RECORD)
        command->event->done++;
    else if (command->kind == RN_GPU_WAIT)
        wait_for_event(e, command);
    else if (e->lost == RN_GPU_OK && command->kind != RN_GPU_LAUNCH)
        copy(e, command);
    else if (e->lost == RN_GPU_OK)
        result = launch(stream, command);
    e->lost = e->lost != RN_GPU_OK ? e->lost : result;
    stream->busy = false;
    rn_free(e->heap, command);
    pthread_cond_broadcast(&e->changed);
}

static void *serve(void *argument)
{
    struct rn_gpu_stream *stream = argument;
    struct rn_gpu_emulated *e = stream->driver;

    pthread_mutex_lock(&e->lock);
    for (;;) {
        while (stream->commands.first == NULL && !stream->ends)
            pthread_cond_wait(&e->changed, &e->lock);
        if (stream->commands.first == NULL)
            break;
        run_first(stream);
    }
    pthread_mutex_unlock(&e->lock);
    return NULL;
}

/* ---- Into a stream ---- */

/* A copy of `given`, behind which `bytes` of arguments come, into the stream or its capture. Under the lock. */
static int put(struct rn_gpu_emulated *e, struct rn_gpu_stream *stream, const struct rn_gpu_command *given,
               const void *arguments, size_t bytes)
{
    struct rn_gpu_command *command = rn_alloc(e->heap, 1, sizeof *command + bytes);

    if (command == NULL)
        return RN_GPU_OUT_OF_MEMORY;
    *command = *given;
    if (bytes > 0)
        memcpy(command->arguments, arguments, bytes);
    append(stream->capture != NULL ? &stream->capture->commands : &stream->commands, command);
    pthread_cond_broadcast(&e->changed);
    return RN_GPU_OK;
}

/* The lost context's error, else what `put` says; `is_good` false loses the context. */
static int put_checked(struct rn_gpu_emulated *e, struct rn_gpu_stream *stream, bool is_good,
                       const struct rn_gpu_command *given)
{
    if (e->lost == RN_GPU_OK && !is_good)
        e->lost = RN_GPU_BAD_ADDRESS;
    return e->lost != RN_GPU_OK ? e->lost : put(e, stream, given, NULL, 0);
}

int rn_gpu_emulated_copy_in(struct rn_gpu_driver *driver, uint64_t to, const void *from, size_t bytes,
                            struct rn_gpu_stream *stream)
{
    struct rn_gpu_emulated *e = rn_gpu_emulated_of(driver);
    const struct rn_gpu_command command = {
        .kind = RN_GPU_COPY, .to = rn_gpu_emulated_address(to), .from = from, .bytes = bytes};
    int result;

    pthread_mutex_lock(&e->lock);
    result = put_checked(e, stream, is_device(e, to, bytes), &command);
    pthread_mutex_unlock(&e->lock);
    return result;
}

int rn_gpu_emulated_copy_out(struct rn_gpu_driver *driver, void *to, uint64_t from, size_t bytes,
                             struct rn_gpu_stream *stream)
{
    struct rn_gpu_emulated *e = rn_gpu_emulated_of(driver);
    const struct rn_gpu_command command = {
        .kind = RN_GPU_COPY, .to = to, .from = rn_gpu_emulated_address(from), .bytes = bytes};
    int result;

    pthread_mutex_lock(&e->lock);
    result = put_checked(e, stream, is_device(e, from, bytes), &command);
    pthread_mutex_unlock(&e->lock);
    return result;
}

int rn_gpu_emulated_copy_within(struct rn_gpu_driver *driver, uint64_t to, uint64_t from, size_t bytes,
                                struct rn_gpu_stream *stream)
{
    struct rn_gpu_emulated *e = rn_gpu_emulated_of(driver);
    const struct rn_gpu_command command = {
        .kind = RN_GPU_COPY, .to = rn_gpu_emulated_address(to), .from = rn_gpu_emulated_address(from), .bytes = bytes};
    int result;

    pthread_mutex_lock(&e->lock);
    result = put_checked(e, stream, is_device(e, from, bytes) && is_device(e, to, bytes), &command);
    pthread_mutex_unlock(&e->lock);
    return result;
}

int rn_gpu_emulated_fill(struct rn_gpu_driver *driver, uint64_t to, unsigned char value, size_t bytes,
                         struct rn_gpu_stream *stream)
{
    struct rn_gpu_emulated *e = rn_gpu_emulated_of(driver);
    const struct rn_gpu_command fill = {
        .kind = RN_GPU_FILL, .to = rn_gpu_emulated_address(to), .value = value, .bytes = bytes};
    int result;

    pthread_mutex_lock(&e->lock);
    result = put_checked(e, stream, is_device(e, to, bytes), &fill);
    pthread_mutex_unlock(&e->lock);
    return result;
}

int rn_gpu_emulated_launch(struct rn_gpu_driver *driver, struct rn_gpu_function *function, unsigned grid_x,
                           unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,
                           unsigned shared_bytes, struct rn_gpu_stream *stream, void **arguments, void **extra)
{
    struct rn_gpu_emulated *e = rn_gpu_emulated_of(driver);
    const struct rn_gpu_command command = {.kind = RN_GPU_LAUNCH,
                                           .kernel = function->kernel,
                                           .grid = {grid_x, grid_y, grid_z},
                                           .block = {block_x, block_y, block_z},
                                           .shared_bytes = shared_bytes};
    uint64_t threads = (uint64_t)block_x * block_y * block_z;
    int result;

    if (extra != NULL || grid_x == 0 || grid_y == 0 || grid_z == 0 || grid_x > INT32_MAX || grid_y > UINT16_MAX ||
        grid_z > UINT16_MAX || threads == 0 || threads > 1024 || block_z > 64 ||
        shared_bytes > (unsigned)function->shared_most)
        return RN_GPU_INVALID_VALUE;
    pthread_mutex_lock(&e->lock);
    result = e->lost != RN_GPU_OK ? e->lost : put(e, stream, &command, arguments[0], function->argument_bytes);
    pthread_mutex_unlock(&e->lock);
    return result;
}

/* Launches run one behind the other, whatever the attributes allow. */
int rn_gpu_emulated_launch_config(struct rn_gpu_driver *driver, const struct rn_gpu_launch_config *config,
                                  struct rn_gpu_function *function, void **arguments, void **extra)
{
    return rn_gpu_emulated_launch(driver, function, config->grid[0], config->grid[1], config->grid[2], config->block[0],
                                  config->block[1], config->block[2], config->shared_bytes, config->stream, arguments,
                                  extra);
}

/* A lost context takes callbacks: they come with the error. */
int rn_gpu_emulated_stream_callback(struct rn_gpu_driver *driver, struct rn_gpu_stream *stream,
                                    rn_gpu_callback callback, void *user, unsigned flags)
{
    struct rn_gpu_emulated *e = rn_gpu_emulated_of(driver);
    const struct rn_gpu_command call = {.kind = RN_GPU_CALL_BACK, .callback = callback, .user = user};
    int result = RN_GPU_INVALID_VALUE;

    pthread_mutex_lock(&e->lock);
    if (flags == 0 && stream->capture == NULL)
        result = put(e, stream, &call, NULL, 0);
    pthread_mutex_unlock(&e->lock);
    return result;
}

int rn_gpu_emulated_event_record(struct rn_gpu_driver *driver, struct rn_gpu_event *event, struct rn_gpu_stream *stream)
{
    struct rn_gpu_emulated *e = rn_gpu_emulated_of(driver);
    const struct rn_gpu_command record = {.kind = RN_GPU_RECORD, .event = event};
    int result = RN_GPU_INVALID_VALUE;

    pthread_mutex_lock(&e->lock);
    if (stream->capture == NULL)
        result = e->lost != RN_GPU_OK ? e->lost : put(e, stream, &record, NULL, 0);
    event->recorded += result == RN_GPU_OK;
    pthread_mutex_unlock(&e->lock);
    return result;
}

/* The stream goes on behind what the event was last recorded behind. */
int rn_gpu_emulated_stream_wait(struct rn_gpu_driver *driver, struct rn_gpu_stream *stream, struct rn_gpu_event *event,
                                unsigned flags)
{
    struct rn_gpu_emulated *e = rn_gpu_emulated_of(driver);
    struct rn_gpu_command wait = {.kind = RN_GPU_WAIT, .event = event};
    int result = RN_GPU_INVALID_VALUE;

    pthread_mutex_lock(&e->lock);
    wait.records = event->recorded;
    if (flags == 0 && stream->capture == NULL)
        result = e->lost != RN_GPU_OK ? e->lost : put(e, stream, &wait, NULL, 0);
    pthread_mutex_unlock(&e->lock);
    return result;
}

/* ---- Waiting ---- */

int rn_gpu_emulated_stream_finish(struct rn_gpu_driver *driver, struct rn_gpu_stream *stream)
{
    struct rn_gpu_emulated *e = rn_gpu_emulated_of(driver);
    int result;

    pthread_mutex_lock(&e->lock);
    while (stream->commands.first != NULL || stream->busy)
        pthread_cond_wait(&e->changed, &e->lock);
    result = e->lost;
    pthread_mutex_unlock(&e->lock);
    return result;
}

int rn_gpu_emulated_event_finish(struct rn_gpu_driver *driver, struct rn_gpu_event *event)
{
    struct rn_gpu_emulated *e = rn_gpu_emulated_of(driver);
    int result;

    pthread_mutex_lock(&e->lock);
    while (event->done < event->recorded)
        pthread_cond_wait(&e->changed, &e->lock);
    result = e->lost;
    pthread_mutex_unlock(&e->lock);
    return result;
}

/* ---- Streams and events ---- */

int rn_gpu_emulated_stream_new(struct rn_gpu_driver *driver, struct rn_gpu_stream **stream, unsigned flags)
{
    struct rn_gpu_emulated *e = rn_gpu_emulated_of(driver);
    struct rn_gpu_stream *made = rn_calloc(e->heap, 1, sizeof *made);

    (void)flags;
    if (made == NULL)
        return RN_GPU_OUT_OF_MEMORY;
    made->driver = e;
    empty(&made->commands);
    made->emulator = e->emulation->open(e->heap);
    if (made->emulator == NULL)
        goto fail;
    if (!rn_thread_start(&made->thread, serve, made))
        goto fail_emulator;
    pthread_mutex_lock(&e->lock);
    made->next = e->streams;
    e->streams = made;
    pthread_mutex_unlock(&e->lock);
    *stream = made;
    return RN_GPU_OK;
fail_emulator:
    e->emulation->close(made->emulator);
fail:
    rn_free(e->heap, made);
    return RN_GPU_OUT_OF_MEMORY;
}

/* What is queued runs first. */
int rn_gpu_emulated_stream_free(struct rn_gpu_driver *driver, struct rn_gpu_stream *stream)
{
    struct rn_gpu_emulated *e = rn_gpu_emulated_of(driver);

    pthread_mutex_lock(&e->lock);
    rn_gpu_emulated_unlink(&e->streams, stream);
    stream->ends = true;
    pthread_cond_broadcast(&e->changed);
    pthread_mutex_unlock(&e->lock);
    pthread_join(stream->thread, NULL);
    drop(e, &stream->commands);
    e->emulation->close(stream->emulator);
    rn_free(e->heap, stream);
    return RN_GPU_OK;
}

int rn_gpu_emulated_event_new(struct rn_gpu_driver *driver, struct rn_gpu_event **event, unsigned flags)
{
    struct rn_gpu_emulated *e = rn_gpu_emulated_of(driver);
    struct rn_gpu_event *made = rn_calloc(e->heap, 1, sizeof *made);

    (void)flags;
    if (made == NULL)
        return RN_GPU_OUT_OF_MEMORY;
    pthread_mutex_lock(&e->lock);
    made->next = e->events;
    e->events = made;
    pthread_mutex_unlock(&e->lock);
    *event = made;
    return RN_GPU_OK;
}

/* No stream has it any more: it is finished first. */
int rn_gpu_emulated_event_free(struct rn_gpu_driver *driver, struct rn_gpu_event *event)
{
    struct rn_gpu_emulated *e = rn_gpu_emulated_of(driver);

    rn_gpu_emulated_event_finish(driver, event);
    pthread_mutex_lock(&e->lock);
    rn_gpu_emulated_unlink(&e->events, event);
    pthread_mutex_unlock(&e->lock);
    rn_free(e->heap, event);
    return RN_GPU_OK;
}

/* ---- Graphs ---- */

int rn_gpu_emulated_capture_begin(struct rn_gpu_driver *driver, struct rn_gpu_stream *stream, int mode)
{
    struct rn_gpu_emulated *e = rn_gpu_emulated_of(driver);
    struct rn_gpu_graph *graph;
    int result = RN_GPU_INVALID_VALUE;

    (void)mode;
    pthread_mutex_lock(&e->lock);
    graph = stream->capture != NULL || e->lost != RN_GPU_OK ? NULL : rn_calloc(e->heap, 1, sizeof *graph);
    if (graph != NULL) {
        empty(&graph->commands);
        graph->next = e->graphs;
        e->graphs = stream->capture = graph;
        result = RN_GPU_OK;
    } else if (e->lost != RN_GPU_OK) {
        result = e->lost;
    }
    pthread_mutex_unlock(&e->lock);
    return result;
}

int rn_gpu_emulated_capture_end(struct rn_gpu_driver *driver, struct rn_gpu_stream *stream, struct rn_gpu_graph **graph)
{
    struct rn_gpu_emulated *e = rn_gpu_emulated_of(driver);
    int result;

    pthread_mutex_lock(&e->lock);
    *graph = stream->capture;
    stream->capture = NULL;
    result = e->lost != RN_GPU_OK ? e->lost : *graph == NULL ? RN_GPU_INVALID_VALUE : RN_GPU_OK;
    pthread_mutex_unlock(&e->lock);
    return result;
}

int rn_gpu_emulated_capture_status(struct rn_gpu_driver *driver, struct rn_gpu_stream *stream, int *status)
{
    struct rn_gpu_emulated *e = rn_gpu_emulated_of(driver);
    int result;

    pthread_mutex_lock(&e->lock);
    *status = stream->capture != NULL ? RN_GPU_CAPTURE_ACTIVE : RN_GPU_CAPTURE_NONE;
    result = e->lost;
    pthread_mutex_unlock(&e->lock);
    return result;
}

static size_t argument_bytes(const struct rn_gpu_emulated *e, const struct rn_gpu_command *command)
{
    for (const struct rn_gpu_function *f = e->functions; f != NULL && command->kind == RN_GPU_LAUNCH; f = f->next)
        if (f->kernel == command->kernel)
            return f->argument_bytes;
    return 0;
}

/* Copies of a graph's commands to the end of a list. Under the lock. */
static int copy_commands(struct rn_gpu_emulated *e, const struct rn_gpu_commands *from, struct rn_gpu_commands *to)
{
    for (const struct rn_gpu_command *command = from->first; command != NULL; command = command->next) {
        size_t bytes = sizeof *command + argument_bytes(e, command);
        struct rn_gpu_command *copy = rn_alloc(e->heap, 1, bytes);

        if (copy == NULL)
            return RN_GPU_OUT_OF_MEMORY;
        memcpy(copy, command, bytes);
        append(to, copy);
    }
    return RN_GPU_OK;
}

int rn_gpu_emulated_graph_ready(struct rn_gpu_driver *driver, struct rn_gpu_exec **exec, struct rn_gpu_graph *graph,
                                unsigned long long flags)
{
    struct rn_gpu_emulated *e = rn_gpu_emulated_of(driver);
    struct rn_gpu_exec *made = rn_calloc(e->heap, 1, sizeof *made);
    int result;

    (void)flags;
    if (made == NULL)
        return RN_GPU_OUT_OF_MEMORY;
    pthread_mutex_lock(&e->lock);
    empty(&made->graph.commands);
    made->graph.next = e->graphs;
    e->graphs = &made->graph;
    result = e->lost != RN_GPU_OK ? e->lost : copy_commands(e, &graph->commands, &made->graph.commands);
    pthread_mutex_unlock(&e->lock);
    *exec = made;
    return result;
}

int rn_gpu_emulated_graph_launch(struct rn_gpu_driver *driver, struct rn_gpu_exec *exec, struct rn_gpu_stream *stream)
{
    struct rn_gpu_emulated *e = rn_gpu_emulated_of(driver);
    int result;

    pthread_mutex_lock(&e->lock);
    result = e->lost != RN_GPU_OK ? e->lost : copy_commands(e, &exec->graph.commands, &stream->commands);
    pthread_cond_broadcast(&e->changed);
    pthread_mutex_unlock(&e->lock);
    return result;
}

int rn_gpu_emulated_graph_free(struct rn_gpu_driver *driver, struct rn_gpu_graph *graph)
{
    struct rn_gpu_emulated *e = rn_gpu_emulated_of(driver);

    pthread_mutex_lock(&e->lock);
    rn_gpu_emulated_unlink(&e->graphs, graph);
    drop(e, &graph->commands);
    pthread_mutex_unlock(&e->lock);
    rn_free(e->heap, graph);
    return RN_GPU_OK;
}

int rn_gpu_emulated_exec_free(struct rn_gpu_driver *driver, struct rn_gpu_exec *exec)
{
    return rn_gpu_emulated_graph_free(driver, &exec->graph);
}
