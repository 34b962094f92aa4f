/* The extension module runnel._runnel: what its files share.
 *
 *   module.c    the module, its errors and constants
 *   fields.c    members of C structs by name: Python values into them, and out of them
 *   request.c   a request from keyword arguments
 *   engine.c    Engine: threads, dispatch, lines of the log
 *   model.c     Model: loading, streams, sessions
 *   text.c      Model: tokens, templates
 *   session.c   Model: sessions, embeddings
 *   files.c     File, cache folders
 *   training.c  Training
 *   stream.c    Stream: how it is read, steered and ended
 *   answer.c    Stream: events become pieces, and the answer so far
 *   reader.c    Reader, Next: how asyncio waits for a piece
 *   watch.c     Watch: when a loop is woken
 *   piece.c     Piece: one event
 *
 * Threads: no thread of an engine runs Python. Events come inside Engine.dispatch on the thread of an event loop, with
 * the GIL held, or on the thread that frees the engine, which takes the GIL for each (rnpy_gil_take). Without the GIL
 * (free-threaded builds) a stream is locked by RNPY_LOCK.
 *
 * Lifetime: a call into an engine stands between rnpy_engine_enter and rnpy_engine_leave. Closing refuses new calls and
 * waits for those that have entered. A stream is kept by its engine until its terminal event has come. */
#ifndef RUNNEL_PYTHON_BINDING_H
#define RUNNEL_PYTHON_BINDING_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#include "runnel.h"

/* The table of methods has one type for functions of several. */
#define RNPY_METHOD(function) ((PyCFunction)(void (*)(void))(function))
#define RNPY_SLOT(function) ((void *)(function))

#ifdef Py_GIL_DISABLED
#define RNPY_LOCK(object) Py_BEGIN_CRITICAL_SECTION(object)
#define RNPY_UNLOCK() Py_END_CRITICAL_SECTION()
#else
#define RNPY_LOCK(object) {
#define RNPY_UNLOCK() }
#endif

/* Text this long is tokenized on the caller's thread, where nothing else may wait for the GIL. */
#define RNPY_LONG_TEXT_BYTES 4096

/* How long a blocking call stays in the library at a time: signals and a close on another thread wait for it. */
#define RNPY_SLICE_MS 100

PyMODINIT_FUNC PyInit__runnel(void);

/* ---- Errors (module.c) -------------------------------------------------------------------- */

/* Sets the exception of a status; message NULL: the status' own sentence. Returns NULL. */
PyObject *rnpy_raise(runnel_status status, const char *message, uint32_t retry_ms);
PyObject *rnpy_raise_error(runnel_status status, const runnel_error *error);
/* InvalidError with a formatted sentence. Returns NULL. */
PyObject *rnpy_invalid(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A type from its spec, added to the module under its own name. NULL: an exception is set. */
PyTypeObject *rnpy_add_type(PyObject *module, PyType_Spec *spec);
/* Py_tp_new of types that Python does not make. */
PyObject *rnpy_no_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords);
/* The memory of an object whose members are gone. */
void rnpy_free_object(PyObject *object);

/* ---- Fields (fields.c) -------------------------------------------------------------------- */

typedef enum rnpy_kind {
    RNPY_F32,
    RNPY_F64,
    RNPY_U8,
    RNPY_I32,
    RNPY_U32,
    RNPY_I64,
    RNPY_U64,
    RNPY_SIZE,  /* how many an array of this struct has, or bytes of a text: not set by itself */
    RNPY_TEXT,  /* const char *, NUL-terminated unless the struct has "<name>_bytes" */
    RNPY_DATA,  /* const void *, with "<name>_bytes" */
    RNPY_CHARS, /* char[] with a NUL */
    RNPY_TEXTS, /* const char *const *, with "n_<name>"; so are the next three */
    RNPY_INTS,
    RNPY_BIASES,
    RNPY_ADAPTERS,
    RNPY_SESSION,
    RNPY_HISTOGRAM,
    RNPY_COUNTS,  /* uint64_t[] */
    RNPY_NUMBERS, /* uint32_t[], with "n_<name>" */
    RNPY_OTHER    /* callbacks and nested structs: request.c sees to them */
} rnpy_kind;

typedef struct rnpy_field {
    const char *name;
    size_t offset, bytes;
    rnpy_kind kind;
} rnpy_field;

typedef struct rnpy_fields {
    const rnpy_field *fields;
    size_t n;
} rnpy_fields;

extern const rnpy_fields rnpy_engine_fields, rnpy_model_fields, rnpy_request_fields, rnpy_sampling_fields,
    rnpy_samplers_fields, rnpy_chat_fields, rnpy_grammar_fields, rnpy_embed_fields, rnpy_score_fields,
    rnpy_architecture_fields, rnpy_infill_fields, rnpy_session_file_fields, rnpy_purge_fields, rnpy_eagle_fields;
extern const rnpy_fields rnpy_info_fields, rnpy_scores_fields, rnpy_stats_fields, rnpy_metrics_fields,
    rnpy_machine_fields, rnpy_device_info_fields, rnpy_usage_fields, rnpy_timings_fields, rnpy_template_fields,
    rnpy_file_info_fields, rnpy_tensor_fields, rnpy_totals_fields, rnpy_entry_fields, rnpy_record_fields,
    rnpy_damage_fields, rnpy_progress_fields;

/* Sets the member `name` of the struct at `base`. What it points to is kept alive by the list `keep`. Returns 1; 0: no
 * such member, or not one of a plain kind; -1: an exception is set. */
int rnpy_set_field(const rnpy_fields *fields, void *base, PyObject *name, PyObject *value, PyObject *keep);
/* All members of a dict, but for those that are None; a key that is unknown raises TypeError. What a value does while
 * it is read, and other threads, may change the dict: what it has now is read. 0 or -1. */
int rnpy_set_fields(const rnpy_fields *fields, void *base, PyObject *values, PyObject *keep);
/* A dict of all members. NULL: an exception is set. */
PyObject *rnpy_get_fields(const rnpy_fields *fields, const void *base);
/* Names of all members that rnpy_set_field takes, as a tuple. */
PyObject *rnpy_field_names(const rnpy_fields *fields);

/* The bytes of a str (UTF-8) or bytes object, kept alive by `keep`. -1: an exception is set. */
int rnpy_text(PyObject *value, const char *name, const char **text, size_t *bytes, PyObject *keep);

/* The same of a text that C reads up to its NUL: it has no other. */
int rnpy_ended_text(PyObject *value, const char *name, const char **text, PyObject *keep);
/* Memory that lives as long as `keep`. NULL: an exception is set. */
void *rnpy_room(size_t bytes, PyObject *keep);
/* An int, or a sequence of ints, to int32_t. -1: an exception is set. */
int rnpy_int(PyObject *value, const char *name, int32_t *number);
int rnpy_ints(PyObject *value, const char *name, const int32_t **ints, size_t *n, PyObject *keep);
/* A read-only memoryview of a copy; format "f", "i", "Q". */
PyObject *rnpy_view(const void *data, size_t bytes, const char *format);
/* Text of the library's as a str, whatever its bytes: those that are not UTF-8 become U+FFFD. NULL: None. */
PyObject *rnpy_str(const char *text);
PyObject *rnpy_str_n(const char *text, size_t bytes);
/* Into a dict, taking over the reference; value NULL is an error. 0 or -1. */
int rnpy_put(PyObject *dict, const char *name, PyObject *value);

/* ---- Requests (request.c) ----------------------------------------------------------------- */

typedef struct rnpy_request {
    runnel_request request;
    runnel_chat chat;
    runnel_samplers samplers;
    runnel_grammar grammar;
    PyObject *keep;   /* what the above points to */
    PyObject *choose; /* borrowed; NULL: the host does not draw */
} rnpy_request;

/* From keyword arguments. 0, or -1 with an exception; rnpy_request_fini in both cases. */
int rnpy_request_init(rnpy_request *request, PyObject *arguments);
void rnpy_request_fini(rnpy_request *request);
PyObject *rnpy_option_names(void);

/* ---- Engine (engine.c) -------------------------------------------------------------------- */

typedef struct rnpy_news rnpy_news;

/* Of an engine's end. CLOSING: new calls are refused, and those inside are waited for; what they wait for goes on, so
 * dispatches and what destructors call may enter. FREEING: nothing enters any more. */
enum rnpy_stage { RNPY_OPEN, RNPY_CLOSING, RNPY_FREEING };

typedef struct rnpy_engine {
    PyObject_HEAD runnel_engine *engine; /* NULL: closed */
    pid_t process;                       /* in a fork's child the engine has no threads */
    uint32_t gather_us;                  /* its option */
    atomic_int calls;        /* that have entered; below 0: it is being freed. Partner: `closing`, which is set first */
    atomic_int closing;      /* enum rnpy_stage; read by enter after it has counted itself */
    atomic_uintptr_t closer; /* the thread that closes, 0: none; who takes it has seen all that the one before did */
    rnpy_news *news;         /* lines and spans that the engine's threads leave for Python */
    PyObject *on_log, *on_trace, *weak;
} rnpy_engine;

extern PyTypeObject *rnpy_engine_type;
int rnpy_engine_ready(PyObject *module);

/* NULL with an exception (ClosedError, StateError after a fork) or the engine; then leave follows. */
runnel_engine *rnpy_engine_enter(rnpy_engine *engine);
/* Needs no GIL. */
void rnpy_engine_leave(rnpy_engine *engine);
/* Without an exception, for dispatches, destructors and what does not block. False: it is being freed, or gone. */
bool rnpy_engine_try_enter(rnpy_engine *engine);
/* Hands the lines of the log and the spans of the trace to Python. 0; -1: a function has raised what is no Exception
 * (KeyboardInterrupt, SystemExit), and it is set; the rest waits. Called with no exception set. */
int rnpy_engine_tell(rnpy_engine *engine);
/* A callback begins and ends: takes the GIL where its thread has released it; what take returns is for give. Calls
 * nest: inside a callback another engine may be closed. */
PyThreadState *rnpy_gil_take(void);
void rnpy_gil_give(PyThreadState *taken);
/* Around a call of the library without the GIL in which callbacks may run. */
void rnpy_gil_release(void);
void rnpy_gil_restore(void);
/* Of a clock that only goes forward. */
double rnpy_seconds_now(void);
/* The host (see Stream) that dispatches on this thread; borrowed; NULL: none. */
PyObject *rnpy_dispatching(void);

/* What the engine's threads leave for Python (news.c). */
rnpy_news *rnpy_news_new(void);
void rnpy_news_free(rnpy_news *news);
void rnpy_news_on_log(void *news, runnel_log_level level, const char *line);
void rnpy_news_on_trace(void *news, const runnel_trace_event *event);
int rnpy_news_tell(rnpy_news *news, PyObject *on_log, PyObject *on_trace); /* as rnpy_engine_tell */

/* ---- Model (model.c) -------------------------------------------------------------- */

typedef struct rnpy_model {
    PyObject_HEAD rnpy_engine *engine;
    runnel_model *model;
    atomic_int users; /* calls that have entered, and one until it is closed; the last frees the model */
    atomic_int closed;
    PyObject *host;        /* of a load on an event loop; else NULL */
    PyObject *on_progress; /* until the load has ended; NULL: nobody is told */
    PyObject *raised;      /* by on_progress, and no Exception: who waits gets it */
    PyObject *waiter;      /* woken at the load's end */
    float told;            /* the fraction that on_progress has been told */
    bool loading;
    runnel_status status; /* of the load, with its sentence */
    runnel_error error;
} rnpy_model;

extern PyTypeObject *rnpy_model_type;
int rnpy_model_ready(PyObject *module);
/* As rnpy_engine_enter, of model and engine. */
runnel_model *rnpy_model_enter(rnpy_model *model);
void rnpy_model_leave(rnpy_model *model);
/* Methods of Model in text.c and session.c. */
PyObject *rnpy_tokenize(PyObject *self, PyObject *arguments);
PyObject *rnpy_detokenize(PyObject *self, PyObject *arguments);
PyObject *rnpy_token_text(PyObject *self, PyObject *arguments);
PyObject *rnpy_tokenize_chat(PyObject *self, PyObject *options);
PyObject *rnpy_apply_template(PyObject *self, PyObject *options);
PyObject *rnpy_tokenize_infill(PyObject *self, PyObject *arguments);
PyObject *rnpy_model_template(PyObject *self, PyObject *index);
PyObject *rnpy_model_sampling(PyObject *self, PyObject *unused);
PyObject *rnpy_grammar_check(PyObject *self, PyObject *options);
PyObject *rnpy_sampling_check(PyObject *self, PyObject *options);
PyObject *rnpy_session_new(PyObject *self, PyObject *unused);
PyObject *rnpy_session_fork(PyObject *self, PyObject *id);
PyObject *rnpy_session_free(PyObject *self, PyObject *id);
PyObject *rnpy_session_export(PyObject *self, PyObject *arguments);
PyObject *rnpy_session_import(PyObject *self, PyObject *arguments);
PyObject *rnpy_embed(PyObject *self, PyObject *arguments);
PyObject *rnpy_score(PyObject *self, PyObject *arguments);
PyObject *rnpy_scores(PyObject *self, PyObject *unused);

/* Calls that write as much as there is: into room[capacity], the whole size to *n. */
typedef runnel_status (*rnpy_writer)(void *job, void *room, size_t capacity, size_t *n, runnel_error *error);
/* What one writes, in elements of `unit` bytes: format 'i': a memoryview of int32_t, 's': a str, 'b': bytes. Without
 * the GIL. */
PyObject *rnpy_written(rnpy_writer write, void *job, size_t unit, size_t guess, char format);
/* The members that are recommended, as a dict. */
PyObject *rnpy_recommended(const runnel_sampling *sampling, const runnel_samplers *samplers, uint32_t flags);

/* ---- Functions of the module (text.c, session.c, files.c) ---------------------------------- */

PyObject *rnpy_render_template(PyObject *module, PyObject *arguments);
PyObject *rnpy_inspect_template(PyObject *module, PyObject *text);
PyObject *rnpy_read_note(PyObject *module, PyObject *path);
PyObject *rnpy_all_architectures(PyObject *module, PyObject *unused);
PyObject *rnpy_cache_ls(PyObject *module, PyObject *arguments);
PyObject *rnpy_cache_inspect(PyObject *module, PyObject *arguments);
PyObject *rnpy_cache_verify(PyObject *module, PyObject *arguments);
PyObject *rnpy_cache_purge(PyObject *module, PyObject *arguments);
int rnpy_file_ready(PyObject *module);
int rnpy_training_ready(PyObject *module);
/* Rows from a list of dicts. 0 or -1. */
int rnpy_architectures(PyObject *list, const runnel_architecture_row *const **rows, size_t *n, PyObject *keep);

/* ---- When a loop is woken (watch.c) -------------------------------------------------------- */

typedef struct rnpy_watch rnpy_watch;

int rnpy_watch_ready(PyObject *module);
/* The host as the Watch that it is; borrowed. NULL: its loop is none of asyncio's. */
rnpy_watch *rnpy_watch_of(PyObject *host);
/* A dispatch on the loop's thread has ended; it brought events, and left more behind. */
void rnpy_watch_dispatched(rnpy_watch *watch, bool any, bool more);
/* The engine is being freed: nothing of it wakes the loop any more. On the loop's thread. */
void rnpy_watch_ended(rnpy_watch *watch);
/* A stream's first token has come; the stream has ended behind it. On any thread. */
void rnpy_watch_flows(rnpy_watch *watch);
void rnpy_watch_flows_no_more(rnpy_watch *watch);

/* ---- Streams and pieces (stream.c, piece.c) ----------------------------------------------- */

typedef struct rnpy_bytes {
    char *data;
    size_t n, room;
} rnpy_bytes;

typedef struct rnpy_stream {
    PyObject_HEAD rnpy_engine *engine;
    rnpy_model *model; /* kept alive until the stream has ended; NULL then */
    runnel_stream id;
    PyObject *host;    /* whose loop reads it: has wake(waiter) and ended(); NULL: read by blocking calls */
    rnpy_watch *watch; /* the host, where it is one; NULL: not */
    PyObject *waiter;  /* of the reader that waits, or NULL */
    PyObject *others;  /* list of those behind it, or NULL */
    PyObject *choose;  /* draws, or NULL */
    PyObject *failure; /* an exception of our own while an event was taken */
    PyObject **ready;  /* ring of pieces to read: [room], `count` from `first` on */
    size_t first, count, room;
    rnpy_bytes text, reasoning, tokens, logprobs; /* of the answer so far */
    PyObject *kept;                               /* list of pieces that the result is made of */
    atomic_uintptr_t reader; /* the thread inside a blocking read, 0: none. What it got is its until it is taken */
    bool live;               /* the terminal event has not come */
    bool flows;              /* its first token has come */
    bool collect;            /* nobody reads pieces */
    bool keeps_all;          /* its reader comes later: any number of pieces may wait */
    bool paused;             /* too many pieces wait to be read */
    bool user_paused;        /* by pause(); delivery goes on when neither is set */
    bool cancelled;          /* by us */
    bool abandoned;          /* nobody has it any more */
    bool wants_logprobs;
    uint64_t shifts;
    runnel_event_type end;
    runnel_finish finish;
    int32_t stop, stop_token; /* of the terminal event; -1 before */
    runnel_status status;
    char error[RUNNEL_ERROR_BYTES];
    runnel_usage usage;
    runnel_timings timings;
} rnpy_stream;

extern PyTypeObject *rnpy_stream_type;
int rnpy_stream_ready(PyObject *module);
/* A stream of the model to submit with: host Py_None: read by blocking calls. It is the engine's until its terminal
 * event. */
rnpy_stream *rnpy_stream_new(rnpy_model *model, PyObject *host, PyObject *choose);
/* The submit has returned. Takes the reference and returns it as the result; NULL with the status' exception. */
PyObject *rnpy_stream_began(rnpy_stream *stream, runnel_stream id, runnel_status status, const runnel_error *error);
/* Nothing was submitted: an exception is set. Takes the reference. */
void rnpy_stream_drop(rnpy_stream *stream);
void rnpy_stream_on_event(void *stream, const runnel_event *event);
int64_t rnpy_stream_on_choose(void *stream, runnel_candidates *candidates);
/* choose.c. What the function of Python answers: a place among the candidates or a RUNNEL_CHOOSE_*. It may raise: an
 * exception is set then. With the GIL. */
int64_t rnpy_choose(PyObject *function, runnel_candidates *candidates);

/* The next piece. None: there is none yet, and the waiter (borrowed; NULL: none) is woken when there is. NULL with an
 * exception: the end. */
PyObject *rnpy_stream_pop(rnpy_stream *stream, PyObject *waiter);
void rnpy_stream_unwait(rnpy_stream *stream, PyObject *waiter);
/* Ends the stream early; false: it has ended. */
bool rnpy_stream_cancel(rnpy_stream *stream);
/* Nothing is left to read of the locked stream. NULL with an exception: `stop`, or why the stream ended; result.c. */
PyObject *rnpy_stream_raise_end(rnpy_stream *stream, PyObject *stop);
/* The members of Result as a dict, of the locked stream; NULL with why it failed; result.c. */
PyObject *rnpy_stream_result(rnpy_stream *stream);

/* ---- What has come of a stream (answer.c) -------------------------------------------------- */

bool rnpy_is_terminal(const runnel_event *event);
/* Takes an event. What fails ends the stream: see rnpy_answer_fail. */
void rnpy_answer_add(rnpy_stream *stream, const runnel_event *event);
/* An exception that is set becomes the reader's, and the stream goes no further. */
void rnpy_answer_fail(rnpy_stream *stream);
/* The next piece of those that wait, of which there are some. */
PyObject *rnpy_answer_shift(rnpy_stream *stream);
/* Nobody reads those that wait. */
void rnpy_answer_drop(rnpy_stream *stream);
/* The same, and the answer so far. */
void rnpy_answer_free(rnpy_stream *stream);

/* ---- Who waits for a stream (waiters.c) ---------------------------------------------------- */

int rnpy_waiters_ready(void);
/* Another one waits; a waiter that does already changes nothing. 0, or -1 with an exception. */
int rnpy_waiters_add(rnpy_stream *stream, PyObject *waiter);
void rnpy_waiters_remove(rnpy_stream *stream, PyObject *waiter);
/* All of them wait no more: each looks itself whether there is something for it, the first to come the first. */
void rnpy_waiters_wake(rnpy_stream *stream);
/* On any thread. */
void rnpy_wake_by_host(PyObject *host, PyObject *waiter);

/* ---- How asyncio waits (reader.c) ---------------------------------------------------------- */

#define RNPY_WOKEN_ROOM 256

typedef struct rnpy_woken {
    size_t n;
    PyObject *waiters[RNPY_WOKEN_ROOM]; /* Next objects */
} rnpy_woken;

int rnpy_reader_ready(PyObject *module);
bool rnpy_is_next(PyObject *waiter);
/* Around a dispatch on a loop's thread: begin gives the list of the dispatch around it, which run is given back. run
 * goes on with the tasks that wait, outside of the engine: 0, or -1 with the exception that one let through. */
rnpy_woken *rnpy_woken_begin(rnpy_woken *list);
int rnpy_woken_run(rnpy_woken *list, rnpy_woken *before, PyObject *host);
/* Takes the reference if it is true; false: not a Next, or there is no room. */
bool rnpy_woken_add(PyObject *waiter);

int rnpy_piece_ready(PyObject *module);
PyObject *rnpy_piece_new(const runnel_event *event, bool logprobs);
/* piece_of(*parts): a piece again, of what Piece._parts() gave. */
PyObject *rnpy_piece_of(PyObject *module, PyObject *parts);
/* logprob_of(bytes of a LOGITS event, token, n_top): (its log-probability, ((token, logprob), ...)), the likeliest
 * first. */
PyObject *rnpy_logprob_of(PyObject *module, PyObject *arguments);

#endif
