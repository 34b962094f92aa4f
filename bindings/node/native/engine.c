/* The engine's life and how its events reach JavaScript: see engine.h. */
#include "engine.h"

#include <stdlib.h>
#include <string.h>

#include <runnel_uv.h>

#include "choose.h"
#include "fields.h"
#include "log.h"

struct node_engine *engine_open(napi_env env, napi_value value)
{
    struct node_engine *engine = addon_box(env, value, BOX_ENGINE);

    if (engine != NULL && engine->engine == NULL) {
        addon_fail(env, RUNNEL_CLOSED, "the engine is closed");
        return NULL;
    }
    return engine;
}

void engine_release(struct node_engine *engine)
{
    if (--engine->references > 0)
        return;
    watcher_fini(&engine->watcher);
    pthread_mutex_destroy(&engine->lock);
    pthread_cond_destroy(&engine->left);
    free(engine);
}

bool engine_enter(struct node_engine *engine)
{
    bool open;

    pthread_mutex_lock(&engine->lock);
    open = !engine->closing;
    engine->inside += open;
    pthread_mutex_unlock(&engine->lock);
    return open;
}

void engine_leave(struct node_engine *engine)
{
    pthread_mutex_lock(&engine->lock);
    if (--engine->inside == 0)
        pthread_cond_broadcast(&engine->left);
    pthread_mutex_unlock(&engine->lock);
}

/* ---- Events -------------------------------------------------------------------------------- */

/* Transport "uv": the first event of a turn of the loop has been written. */
static void ask_for_flush(struct node_engine *engine)
{
    napi_env env = engine->env;
    napi_value function, global, result;

    if (napi_get_reference_value(env, engine->on_first, &function) != napi_ok ||
        napi_get_global(env, &global) != napi_ok)
        return;
    napi_make_callback(env, NULL, global, function, 0, NULL, &result);
    addon_uncaught(env);
}

static void on_event(void *user, const runnel_event *event)
{
    struct node_slot *slot = user;
    struct node_engine *engine = slot->engine;
    struct event_pack *pack = &engine->watcher.packs[0];
    napi_handle_scope scope;
    bool asked;

    if (engine->closing || napi_open_handle_scope(engine->env, &scope) != napi_ok)
        return;
    if (pack_is_full(pack))
        pack_deliver(pack, &engine->sink);
    asked = pack->n_events > 0;
    pack_add(pack, slot, event);
    if (!asked && pack->n_events > 0)
        ask_for_flush(engine);
    napi_close_handle_scope(engine->env, scope);
}

runnel_event_fn engine_callback(const struct node_engine *engine)
{
    return engine->uv ? on_event : NULL;
}

void engine_on_load(struct node_engine *engine, uint32_t slot, const runnel_load_event *event, runnel_error *error)
{
    struct event_pack *pack = &engine->watcher.packs[0];
    napi_handle_scope scope;

    if (engine->closing)
        return;
    if (!engine->uv) {
        watcher_on_load(&engine->watcher, slot, event, error);
        return;
    }
    if (napi_open_handle_scope(engine->env, &scope) != napi_ok)
        return;
    if (pack_is_full(pack))
        pack_deliver(pack, &engine->sink);
    pack_add_load(pack, slot, event, error);
    if (pack->n_events == 1)
        ask_for_flush(engine);
    napi_close_handle_scope(engine->env, scope);
}

/* ---- The end ------------------------------------------------------------------------------- */

/* From now on no call reaches the engine from this thread; those of other threads are waited for by who frees it. */
static void begin_closing(struct node_engine *engine)
{
    if (engine->uv)
        runnel_uv_detach(engine->engine);
    watcher_stop(&engine->watcher);
    pthread_mutex_lock(&engine->lock);
    engine->closing = true;
    pthread_mutex_unlock(&engine->lock);
    engine->freed = engine->engine;
    engine->engine = NULL;
}

/* Any thread. */
static void free_engine(struct node_engine *engine)
{
    pthread_mutex_lock(&engine->lock);
    while (engine->inside > 0)
        pthread_cond_wait(&engine->left, &engine->lock);
    pthread_mutex_unlock(&engine->lock);
    runnel_engine_free(engine->freed);
    engine->freed = NULL;
}

static void end_closing(struct node_engine *engine)
{
    napi_ref *references[] = {&engine->sink.on_events, &engine->on_first, &engine->sink.extras, &engine->on_choose};

    while (engine->slots != NULL)
        slot_free(engine->slots);
    log_free(engine->log);
    log_free(engine->trace);
    engine->log = engine->trace = NULL;
    for (size_t i = 0; i < sizeof references / sizeof references[0]; i++) {
        if (*references[i] != NULL)
            napi_delete_reference(engine->env, *references[i]);
        *references[i] = NULL;
    }
    for (uint32_t i = 0; i < N_PACKS; i++)
        pack_fini(engine->env, &engine->watcher.packs[i]);
}

static void on_environment_end(void *data)
{
    struct node_engine *engine = data;

    if (engine->engine == NULL)
        return;
    begin_closing(engine);
    free_engine(engine);
    end_closing(engine);
}

static void run_close(napi_env env, void *data)
{
    (void)env;
    free_engine(data);
}

static void end_close(napi_env env, napi_status status, void *data)
{
    struct node_engine *engine = data;
    napi_deferred deferred = engine->deferred;

    (void)status;
    napi_delete_async_work(env, engine->work);
    end_closing(engine);
    napi_remove_env_cleanup_hook(env, on_environment_end, engine);
    napi_resolve_deferred(env, deferred, addon_undefined(env));
}

/* engineClose(engine): a promise. */
static napi_value engine_close(napi_env env, napi_callback_info info)
{
    struct node_engine *engine;
    napi_value value, name, promise;

    if (!addon_arguments(env, info, 1, &value))
        return NULL;
    engine = engine_open(env, value);
    if (engine == NULL)
        return NULL;
    if (napi_create_string_latin1(env, "runnel close", NAPI_AUTO_LENGTH, &name) != napi_ok ||
        napi_create_async_work(env, NULL, name, run_close, end_close, engine, &engine->work) != napi_ok)
        return addon_fail(env, RUNNEL_NO_MEMORY, NULL);
    if (napi_create_promise(env, &engine->deferred, &promise) != napi_ok) { /* a worker that is being terminated */
        napi_delete_async_work(env, engine->work);
        return addon_fail(env, RUNNEL_NO_MEMORY, NULL);
    }
    begin_closing(engine);
    napi_queue_async_work(env, engine->work);
    watcher_deliver_rest(&engine->watcher);
    return promise;
}

/* The handle is collected, or the environment has ended. JavaScript keeps it until close() is done. */
static void finalize(napi_env env, void *data, void *hint)
{
    struct node_engine *engine = data;

    (void)hint;
    if (engine->engine != NULL) {
        napi_remove_env_cleanup_hook(env, on_environment_end, engine);
        on_environment_end(engine);
    }
    engine_release(engine);
}

/* ---- The beginning ------------------------------------------------------------------------- */

static bool attach(struct node_engine *engine, uint32_t hold_us)
{
    struct uv_loop_s *loop = NULL;

    if (!engine->uv)
        return watcher_start(&engine->watcher, engine->engine, choose_by_javascript, hold_us);
    return napi_get_uv_event_loop(engine->env, &loop) == napi_ok && runnel_uv_attach(engine->engine, loop) == RUNNEL_OK;
}

static bool keep_functions(struct node_engine *engine, napi_value functions)
{
    napi_env env = engine->env;
    const char *names[] = {"onEvents", "onFirst", "extras", "onChoose"};
    napi_ref *references[] = {&engine->sink.on_events, &engine->on_first, &engine->sink.extras, &engine->on_choose};
    napi_value value, words;

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (napi_get_named_property(env, functions, names[i], &value) != napi_ok ||
            napi_create_reference(env, value, 1, references[i]) != napi_ok)
            return false;
    if (napi_create_array_with_length(env, N_PACKS, &words) != napi_ok)
        return false;
    for (uint32_t i = 0; i < N_PACKS; i++)
        if (!pack_init(env, &engine->watcher.packs[i], i, words))
            return false;
    addon_set(env, functions, "words", words);
    return true;
}

/* functions.onLog and functions.onTrace, where they are given. */
static bool attach_logs(struct node_engine *engine, napi_value functions, runnel_engine_options *options)
{
    napi_env env = engine->env;
    napi_value on_log, on_trace;
    napi_valuetype log_type, trace_type;

    if (napi_get_named_property(env, functions, "onLog", &on_log) != napi_ok ||
        napi_get_named_property(env, functions, "onTrace", &on_trace) != napi_ok)
        return false;
    napi_typeof(env, on_log, &log_type);
    napi_typeof(env, on_trace, &trace_type);
    if (log_type != napi_undefined) {
        engine->log = log_new(env, on_log);
        options->on_log = log_line;
        options->log_user = engine->log;
    }
    if (trace_type != napi_undefined) {
        engine->trace = log_new(env, on_trace);
        options->on_trace = log_span;
        options->trace_user = engine->trace;
    }
    return (log_type == napi_undefined || engine->log != NULL) &&
           (trace_type == napi_undefined || engine->trace != NULL);
}

static bool new_engine(struct node_engine *engine, napi_value value, napi_value functions)
{
    struct arena arena = {0};
    runnel_engine_options options;
    runnel_error error = {0};
    struct target target = {.fields = fields_of("runnel_engine_options"), .base = &options};
    bool ok;

    runnel_engine_options_default(&options);
    ok = fields_read(engine->env, &arena, value, &target, 1) && attach_logs(engine, functions, &options);
    options.delivery = engine->uv ? RUNNEL_DELIVER_HOST : RUNNEL_DELIVER_TAKE;
    if (ok && runnel_engine_new(&options, &engine->engine, &error) != RUNNEL_OK) {
        addon_throw(engine->env, &error);
        ok = false;
    }
    arena_free(&arena);
    return ok;
}

/* engineNew(options, uv, functions, holdUs): functions = {onEvents, onFirst, extras, onChoose}, and gets `words`. */
static napi_value engine_new(napi_env env, napi_callback_info info)
{
    struct node_engine *engine;
    napi_value values[4], handle;
    uint32_t hold_us = 0;

    if (!addon_arguments(env, info, 4, values))
        return NULL;
    engine = calloc(1, sizeof *engine);
    if (engine == NULL)
        return addon_fail(env, RUNNEL_NO_MEMORY, NULL);
    engine->kind = BOX_ENGINE;
    engine->env = engine->sink.env = env;
    engine->references = 1;
    watcher_init(&engine->watcher, &engine->sink);
    pthread_mutex_init(&engine->lock, NULL);
    pthread_cond_init(&engine->left, NULL);
    napi_get_value_bool(env, values[1], &engine->uv);
    if (napi_create_external(env, engine, finalize, NULL, &handle) != napi_ok) {
        free(engine);
        return addon_fail(env, RUNNEL_NO_MEMORY, NULL);
    }
    if (!keep_functions(engine, values[2]) || !new_engine(engine, values[0], values[2])) {
        end_closing(engine);
        return NULL;
    }
    napi_get_value_uint32(env, values[3], &hold_us);
    if (!attach(engine, hold_us)) {
        runnel_engine_free(engine->engine);
        engine->engine = NULL;
        end_closing(engine);
        return addon_fail(env, RUNNEL_NO_MEMORY, "no thread, or no handle on the loop, for the engine's events");
    }
    napi_add_env_cleanup_hook(env, on_environment_end, engine);
    return handle;
}

/* engineKeep(engine, busy): the loop waits for its events, or does not. */
static napi_value engine_keep(napi_env env, napi_callback_info info)
{
    struct node_engine *engine;
    napi_value values[2];
    bool busy = false;

    if (!addon_arguments(env, info, 2, values))
        return NULL;
    engine = addon_box(env, values[0], BOX_ENGINE);
    if (engine == NULL || !engine->watcher.running)
        return NULL;
    napi_get_value_bool(env, values[1], &busy);
    if (busy)
        napi_ref_threadsafe_function(env, engine->watcher.wake);
    else
        napi_unref_threadsafe_function(env, engine->watcher.wake);
    return NULL;
}

/* engineFlush(engine): transport "uv", in the check phase. */
static napi_value engine_flush(napi_env env, napi_callback_info info)
{
    struct node_engine *engine;
    napi_value value;

    if (!addon_arguments(env, info, 1, &value))
        return NULL;
    engine = addon_box(env, value, BOX_ENGINE);
    if (engine != NULL && engine->engine != NULL && engine->uv)
        pack_deliver(&engine->watcher.packs[0], &engine->sink);
    return NULL;
}

/* engineDrain(engine): no requests from now on. */
static napi_value engine_drain(napi_env env, napi_callback_info info)
{
    struct node_engine *engine;
    runnel_status status;
    napi_value value;

    if (!addon_arguments(env, info, 1, &value))
        return NULL;
    engine = engine_open(env, value);
    if (engine == NULL)
        return NULL;
    status = runnel_engine_drain(engine->engine, 0);
    return status == RUNNEL_OK || status == RUNNEL_TIMEOUT ? NULL : addon_fail(env, status, NULL);
}

void engine_export(napi_env env, napi_value exports)
{
    static const struct method methods[] = {{"engineNew", engine_new},
                                            {"engineClose", engine_close},
                                            {"engineKeep", engine_keep},
                                            {"engineFlush", engine_flush},
                                            {"engineDrain", engine_drain}};

    addon_export(env, exports, methods, sizeof methods / sizeof methods[0]);
}
