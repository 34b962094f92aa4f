/* An engine on the loop of one environment.
 *
 *     engine threads -> ring -> descriptor -> watcher thread: take, take, ... -> pack
 *                                                 pack -> threadsafe function -> loop: one call
 *
 * The watcher (watcher.h) is a thread that receives the engine's events: it touches no JavaScript. Tokens of many
 * streams come one after another, a little apart: the engine lets them gather before its descriptor says so
 * (runnel_engine_options.gather_us). The watcher writes the events of up to EVENTS_PER_PACK tokens as numbers to an
 * Int32Array and joins their texts, and wakes the loop, which calls JavaScript once for all of them. So what a token
 * costs before it is JavaScript's is not the loop's: its memory was written on other processors, and is waited for
 * there.
 *
 * With transport "uv" the library's own handle is on Node's loop instead (runnel_uv.h) and no thread is needed: events
 * are written as they come, and JavaScript gets those of one turn of the loop in its check phase (setImmediate).
 *
 * Who may free the engine: close() on a thread of the pool, once no job is inside, or the environment's end, which
 * waits for that. All else runs on the environment's thread. */
#ifndef RN_NODE_ENGINE_H
#define RN_NODE_ENGINE_H

#include <pthread.h>

#include "addon.h"
#include "watcher.h"

struct node_engine {
    enum box_kind kind;
    napi_env env;
    uint32_t references;   /* its handle, and its models */
    runnel_engine *engine; /* NULL: closed, or being closed */
    bool uv;

    struct event_sink sink;
    napi_ref on_first;                   /* uv: asks for a flush in this turn */
    napi_ref on_choose;                  /* (slot, candidates...) => place */
    const runnel_candidates *candidates; /* while on_choose runs */
    struct node_watcher watcher;         /* uv: does not run, and only its first pack is used */

    /* Jobs on threads of the pool. */
    pthread_mutex_t lock;
    pthread_cond_t left;
    uint32_t inside;
    bool closing;

    runnel_engine *freed; /* close(): the engine to free */
    napi_deferred deferred;
    napi_async_work work;
    struct node_slot *slots; /* of streams that have not ended */
    struct node_log *log, *trace;
};

/* The engine of a handle; NULL: an error was thrown, CLOSED where it is closed. */
struct node_engine *engine_open(napi_env env, napi_value value);

/* Gives a reference back; the last one frees the struct. */
void engine_release(struct node_engine *engine);

/* A job of another thread goes into the engine, which is then not freed until it leaves. False: it is being closed. */
bool engine_enter(struct node_engine *engine);
void engine_leave(struct node_engine *engine);

/* For requests: NULL where events are taken, else the callback. */
runnel_event_fn engine_callback(const struct node_engine *engine);

/* The event of a load, on the thread of the engine's events; *error keeps what it failed with. */
void engine_on_load(struct node_engine *engine, uint32_t slot, const runnel_load_event *event, runnel_error *error);

#endif
