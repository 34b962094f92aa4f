/* An engine on the loop of one environment.
 *
 *     engine threads -> ring -> descriptor -> watcher thread -> threadsafe function -> loop: take, take, ... -> one call
 *
 * The watcher is a thread that polls the engine's descriptor and wakes the loop, once for all that waits: it touches
 * neither JavaScript nor the engine. Tokens of many streams come one after another, a little apart: the engine lets them
 * gather before its descriptor says so (runnel_engine_options.gather_us), so that they cost one wake. On the loop's thread
 * the events of up to EVENTS_PER_WAKE tokens are written as numbers to an Int32Array, their texts are joined to one string,
 * and JavaScript is called once for all of them; then the watcher polls again. What is left over wakes the loop anew, so
 * other handles get their turn in between.
 *
 * With transport "uv" the library's own handle is on Node's loop instead (runnel_uv.h) and no thread is needed: events
 * are written as they come, and JavaScript gets those of one turn of the loop in its check phase (setImmediate).
 *
 * Who may free the engine: close() on a thread of the pool, once no job is inside, or the environment's end, which
 * waits for that. All else runs on the environment's thread. */
#ifndef RN_NODE_ENGINE_H
#define RN_NODE_ENGINE_H

#include <pthread.h>
#include <semaphore.h>

#include "addon.h"
#include "answer.h"

enum {
    EVENTS_PER_WAKE = 512, /* about a quarter of a millisecond of JavaScript */
    /* an event in the Int32Array: slot, type, token, tokens, text, call, extra, logprob, shifts, reserved */
    WORDS_PER_EVENT = 10,
    EVENT_LOAD = 100 /* type of a load's event; its state is the token */
};

struct node_engine {
    enum box_kind kind;
    napi_env env;
    uint32_t references;   /* its handle, and its models */
    runnel_engine *engine; /* NULL: closed, or being closed */
    int fd;
    bool uv;

    napi_ref on_events; /* (events, texts) => void */
    napi_ref on_first;  /* uv: asks for a flush in this turn */
    napi_ref extras;    /* an array: objects that belong to events */
    napi_ref on_choose; /* (slot, candidates...) => place */
    napi_ref words_ref;
    int32_t *words; /* [EVENTS_PER_WAKE][WORDS_PER_EVENT] */
    uint32_t n_events, n_extras;
    char *text; /* [text_bytes] the texts of the events so far */
    size_t text_bytes, text_capacity;
    bool text_is_ascii;
    const runnel_candidates *candidates; /* while on_choose runs */

    napi_threadsafe_function wake;
    pthread_t watcher;
    bool watching;
    int stop_fd;
    sem_t drained;

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

/* What the library gives back with an event: whose it is. On the environment's thread, but for `next` of a freed
 * engine. */
struct node_slot {
    struct node_engine *engine;
    uint32_t number;
    bool quiet; /* nobody asks for pieces: text goes to `answer` alone */
    struct node_answer answer;
    struct node_slot *next, *previous;
};

/* The engine of a handle; NULL: an error was thrown, CLOSED where it is closed. */
struct node_engine *engine_open(napi_env env, napi_value value);

/* Gives a reference back; the last one frees the struct. */
void engine_release(struct node_engine *engine);

/* A job of another thread goes into the engine, which is then not freed until it leaves. False: it is being closed. */
bool engine_enter(struct node_engine *engine);
void engine_leave(struct node_engine *engine);

/* A slot for a stream that is about to be submitted; NULL: no memory. It goes with the terminal event, or by
 * slot_free where the submit fails. */
struct node_slot *slot_new(struct node_engine *engine, uint32_t number);
void slot_free(struct node_slot *slot);

/* For requests: NULL where events are taken, else the callback. */
runnel_event_fn engine_callback(const struct node_engine *engine);

/* The event of a load, on the loop's thread: see model.h. */
void engine_on_load(struct node_engine *engine, uint32_t slot, const runnel_load_event *event);

#endif
