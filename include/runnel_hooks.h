/* runnel: what an engine asks of its host: memory, a log, a trace. Included by runnel.h, whose rules hold here too. */
#ifndef RUNNEL_HOOKS_H
#define RUNNEL_HOOKS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Memory ------------------------------------------------------------------------------ */

/* alloc: `bytes` aligned to `alignment` (a power of two), or NULL. free: gets the same size back.
 * Both may be called from any thread. */
typedef struct runnel_allocator {
    void *(*alloc)(void *user, size_t bytes, size_t alignment);
    void (*free)(void *user, void *ptr, size_t bytes);
    void *user;
} runnel_allocator;

/* ---- Log and trace ----------------------------------------------------------------------- */

typedef enum runnel_log_level {
    RUNNEL_LOG_NONE = 0,
    RUNNEL_LOG_ERROR = 1,
    RUNNEL_LOG_WARNING = 2,
    RUNNEL_LOG_INFO = 3,
    RUNNEL_LOG_DEBUG = 4 /* a line for each request that ends, among others */
} runnel_log_level;

/* One line without a newline; called on any thread, also while the host is inside a call. It must not call the
 * library. */
typedef void (*runnel_log_fn)(void *user, runnel_log_level level, const char *line);

typedef enum runnel_trace_kind {
    RUNNEL_TRACE_ACTOR = 0,  /* an actor handled a batch of messages */
    RUNNEL_TRACE_STEP = 1,   /* a forward pass, from submit to end */
    RUNNEL_TRACE_REQUEST = 2 /* a phase of a request */
} runnel_trace_kind;

/* A span of time. It is reported after its end. */
typedef struct runnel_trace_event {
    runnel_trace_kind kind;
    uint32_t track;       /* ACTOR: the actor's number; STEP: the number of its model's decode actor. Spans of one kind
                             and track never overlap */
    const char *name;     /* ACTOR: "decode", "tier", ...; STEP: "step"; REQUEST: "queued", "prefill", "decode" */
    const char *model;    /* the file's name without ".gguf"; "" for the router */
    const char *messages; /* ACTOR: the messages it handled: "CREDIT 2, SAMPLED"; else "" */
    uint64_t begin_ns, end_ns;               /* of a monotonic clock */
    uint64_t stream;                         /* REQUEST: runnel_stream.id */
    uint32_t rows, sequences, prompt_tokens; /* STEP: all rows, the sequences they belong to, the rows of prompts */
    uint32_t tokens;                         /* STEP: tokens drawn; REQUEST: tokens of prompt and answer so far */
    const char *label;                       /* REQUEST: runnel_request.label; else "" */
} runnel_trace_event;

/* Called shortly after the end of a span, not always in order. `name` and `model` are valid until the engine is freed,
 * the other pointers until it returns. It runs on a thread of the engine or inside runnel_engine_free, never on two
 * threads at once. It must not call the library. */
typedef void (*runnel_trace_fn)(void *user, const runnel_trace_event *event);

#ifdef __cplusplus
}
#endif

#endif
