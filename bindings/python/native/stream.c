/* Stream: what Python has of a runnel_stream. Two kinds:
 *
 *   with a host      events come inside Engine.dispatch, become pieces and wait in a ring. A reader that finds none
 *                    leaves a waiter; the next event wakes it. More than HIGH pieces pause the stream, LOW resume it.
 *   without          the reader takes each event itself, in runnel_stream_read, without the GIL while it blocks.
 *
 * A host is an object of Python for one event loop: wake(waiter) wakes a reader from any thread, ended() says that a
 * stream of the loop has ended. While a host dispatches on its own thread its waiters are futures, or Next objects
 * (waiters.c). */
#include "binding.h"

#include <time.h>

enum { HIGH = 64, LOW = 16 };

PyTypeObject *rnpy_stream_type;
static PyObject *name_ended;
static _Thread_local char here; /* its address says which thread reads */

/* ---- The end ------------------------------------------------------------------------------- */

static void say_ended(rnpy_stream *self)
{
    PyObject *result = PyObject_CallMethodObjArgs(self->host, name_ended, NULL);

    if (result == NULL)
        PyErr_WriteUnraisable(self->host);
    Py_XDECREF(result);
}

/* Nobody waits for its first token any more. A stream whose tokens Python draws is waited for all the time. */
static void note_flow(rnpy_stream *self, runnel_event_type type, bool ends)
{
    if (self->watch == NULL)
        return;
    if (ends && self->flows) {
        rnpy_watch_flows_no_more(self->watch);
    } else if (!self->flows && self->choose == NULL && (type == RUNNEL_EVENT_TOKEN || type == RUNNEL_EVENT_REASONING)) {
        self->flows = true;
        rnpy_watch_flows(self->watch);
    }
}

static void pause_if_full(rnpy_stream *self)
{
    if (self->count < HIGH || self->paused || self->keeps_all || atomic_load(&self->engine->closing) == RNPY_FREEING)
        return;
    self->paused = self->user_paused || runnel_stream_pause(self->engine->engine, self->id) == RUNNEL_OK;
}

void rnpy_stream_on_event(void *stream, const runnel_event *event)
{
    rnpy_stream *self = stream;
    bool ends = rnpy_is_terminal(event);
    PyThreadState *taken = rnpy_gil_take();

    RNPY_LOCK((PyObject *)self);
    self->id = event->stream;
    note_flow(self, event->type, ends);
    rnpy_answer_add(self, event);
    if (!ends)
        pause_if_full(self);
    if (ends || !self->collect || self->failure != NULL)
        rnpy_waiters_wake(self);
    RNPY_UNLOCK();
    if (ends) {
        say_ended(self);
        Py_DECREF((PyObject *)self);
    }
    rnpy_gil_give(taken);
}

/* ---- A token that Python draws ------------------------------------------------------------- */

/* False: nobody wants the choice any more. */
static bool is_asked(rnpy_stream *self, const runnel_candidates *candidates)
{
    bool asked;

    RNPY_LOCK((PyObject *)self);
    self->id.id = candidates->stream;
    asked = self->failure == NULL && !self->abandoned;
    RNPY_UNLOCK();
    return asked;
}

int64_t rnpy_stream_on_choose(void *stream, runnel_candidates *candidates)
{
    rnpy_stream *self = stream;
    int64_t place = RUNNEL_CHOOSE_DRAW;
    PyThreadState *taken = rnpy_gil_take();

    if (is_asked(self, candidates))
        place = rnpy_choose(self->choose, candidates);
    if (PyErr_Occurred()) {
        RNPY_LOCK((PyObject *)self);
        rnpy_answer_fail(self);
        RNPY_UNLOCK();
    }
    rnpy_gil_give(taken);
    return place;
}

/* ---- The object ---------------------------------------------------------------------------- */

rnpy_stream *rnpy_stream_new(rnpy_model *model, PyObject *host, PyObject *choose)
{
    rnpy_stream *self = (rnpy_stream *)PyType_GenericAlloc(rnpy_stream_type, 0);

    if (self == NULL)
        return NULL;
    Py_INCREF((PyObject *)model->engine);
    self->engine = model->engine;
    Py_INCREF((PyObject *)model);
    self->model = model;
    self->kept = PyList_New(0);
    if (self->kept == NULL) {
        Py_DECREF((PyObject *)self);
        return NULL;
    }
    if (choose != NULL) {
        Py_INCREF(choose);
        self->choose = choose;
    }
    if (host != Py_None) {
        Py_INCREF(host);
        self->host = host;
        self->watch = rnpy_watch_of(host);
        Py_INCREF((PyObject *)self); /* the engine's, until the terminal event */
    }
    self->live = true;
    return self;
}

void rnpy_stream_drop(rnpy_stream *stream)
{
    stream->live = false;
    if (stream->host != NULL)
        Py_DECREF((PyObject *)stream);
    Py_DECREF((PyObject *)stream);
}

PyObject *rnpy_stream_began(rnpy_stream *stream, runnel_stream id, runnel_status status, const runnel_error *error)
{
    if (status == RUNNEL_OK) {
        stream->id = id;
        return (PyObject *)stream;
    }
    rnpy_stream_drop(stream);
    return rnpy_raise_error(status, error);
}

/* The engine's reference to a running stream is visited as one of the stream's own. So the collector finds a stream
 * that is reachable from its own `choose` alone; its reader's finalizer abandons it, and it is freed once it has ended.
 * Where a reader waits, nothing else may hold that reader's task: then the reference counts. The engine of a running
 * stream is not visited, which keeps it. */
static int stream_traverse(PyObject *object, visitproc visit, void *arg)
{
    rnpy_stream *self = (rnpy_stream *)object;
    bool runs = self->live && self->host != NULL;

    Py_VISIT(Py_TYPE(object));
    if (runs && !self->abandoned && self->waiter == NULL)
        Py_VISIT(object);
    if (!runs)
        Py_VISIT((PyObject *)self->engine);
    Py_VISIT((PyObject *)self->model);
    Py_VISIT(self->host);
    Py_VISIT(self->waiter);
    Py_VISIT(self->others);
    Py_VISIT(self->choose);
    Py_VISIT(self->failure);
    Py_VISIT(self->kept);
    return 0;
}

static int stream_clear(PyObject *object)
{
    rnpy_stream *self = (rnpy_stream *)object;

    Py_CLEAR(self->waiter);
    Py_CLEAR(self->others);
    Py_CLEAR(self->choose);
    Py_CLEAR(self->failure);
    Py_CLEAR(self->kept);
    return 0;
}

/* The event that a read returns is overwritten by the next read: a thread has the stream until it has taken it. The
 * lock is given up while a read blocks, this is not. 0: this thread has it now; else who has it, by its `here`. */
static uintptr_t may_read(rnpy_stream *self)
{
    uintptr_t reader = 0;

    atomic_compare_exchange_strong(&self->reader, &reader, (uintptr_t)&here);
    return reader;
}

static void wait_a_moment(void)
{
    const struct timespec moment = {.tv_nsec = 100000};

    rnpy_gil_release();
    nanosleep(&moment, NULL);
    rnpy_gil_restore();
}

/* Reads what comes for nobody, up to the end, which is within a step. A thread that is inside a read has its event
 * first; where that is this one, whose read has called Python, its read goes on to the end by itself. */
static void read_to_end(rnpy_stream *self)
{
    runnel_event event;
    uintptr_t reader;

    while ((reader = may_read(self)) != 0 && reader != (uintptr_t)&here)
        wait_a_moment();
    if (reader != 0)
        return;
    if (self->live) {
        rnpy_gil_release();
        while (runnel_stream_next(self->engine->engine, self->id, -1, &event) == RUNNEL_OK && !rnpy_is_terminal(&event))
            ;
        rnpy_gil_restore();
        self->live = false;
        self->end = RUNNEL_EVENT_CANCELLED;
        Py_CLEAR(self->model);
    }
    atomic_store(&self->reader, 0);
}

/* Cancels without a word. */
static void let_go(rnpy_stream *self)
{
    if (!self->live || !rnpy_engine_try_enter(self->engine))
        return;
    self->abandoned = true;
    runnel_stream_cancel(self->engine->engine, self->id);
    if (self->host == NULL) {
        self->cancelled = true;
        read_to_end(self);
    }
    rnpy_engine_leave(self->engine);
}

static void stream_dealloc(PyObject *object)
{
    rnpy_stream *self = (rnpy_stream *)object;

    PyObject_GC_UnTrack(object);
    if (self->engine != NULL && self->host == NULL)
        let_go(self);
    rnpy_answer_free(self);
    stream_clear(object);
    Py_XDECREF(self->host);
    Py_XDECREF((PyObject *)self->model);
    Py_XDECREF((PyObject *)self->engine);
    rnpy_free_object(object);
}

/* ---- Reading ------------------------------------------------------------------------------- */

static void resume_if_low(rnpy_stream *self)
{
    if (!self->paused || (self->count > LOW && !self->keeps_all) || !rnpy_engine_try_enter(self->engine))
        return;
    self->paused = false;
    if (!self->user_paused)
        runnel_stream_resume(self->engine->engine, self->id);
    rnpy_engine_leave(self->engine);
}

PyObject *rnpy_stream_pop(rnpy_stream *self, PyObject *waiter)
{
    PyObject *piece = NULL;

    RNPY_LOCK((PyObject *)self);
    if (self->count > 0) {
        piece = rnpy_answer_shift(self);
        resume_if_low(self);
    } else if (!self->live || self->failure != NULL) {
        rnpy_stream_raise_end(self, PyExc_StopAsyncIteration);
    } else if (waiter == NULL || rnpy_waiters_add(self, waiter) == 0) {
        Py_INCREF(Py_None);
        piece = Py_None;
    }
    RNPY_UNLOCK();
    return piece;
}

void rnpy_stream_unwait(rnpy_stream *self, PyObject *waiter)
{
    RNPY_LOCK((PyObject *)self);
    rnpy_waiters_remove(self, waiter);
    RNPY_UNLOCK();
}

static PyObject *stream_pop(PyObject *object, PyObject *unused)
{
    (void)unused;
    return rnpy_stream_pop((rnpy_stream *)object, NULL);
}

static PyObject *stream_wait(PyObject *object, PyObject *waiter)
{
    rnpy_stream *self = (rnpy_stream *)object;
    bool waits;
    int failed = 0;

    RNPY_LOCK(object);
    waits = self->live && self->failure == NULL && (self->collect || self->count == 0);
    if (waits)
        failed = rnpy_waiters_add(self, waiter);
    RNPY_UNLOCK();
    return failed < 0 ? NULL : PyBool_FromLong(waits);
}

static PyObject *stream_unwait(PyObject *object, PyObject *waiter)
{
    rnpy_stream_unwait((rnpy_stream *)object, waiter);
    Py_RETURN_NONE;
}

/* Takes what has come of other streams, so that these are not held up while the reader waits for one of its own. One
 * that another thread reads is left to it. */
static void read_beside(PyObject *others)
{
    for (Py_ssize_t i = 0; i < PyTuple_Size(others); i++) {
        rnpy_stream *self = (rnpy_stream *)PyTuple_GetItem(others, i);
        runnel_event event;

        if (Py_TYPE((PyObject *)self) != rnpy_stream_type || self->host != NULL || may_read(self) != 0)
            continue;
        RNPY_LOCK((PyObject *)self);
        if (self->live && rnpy_engine_try_enter(self->engine)) {
            while (self->live && self->failure == NULL &&
                   runnel_stream_next(self->engine->engine, self->id, 0, &event) == RUNNEL_OK)
                rnpy_answer_add(self, &event);
            rnpy_engine_leave(self->engine);
        }
        RNPY_UNLOCK();
        atomic_store(&self->reader, 0);
    }
}

/* Reads one event into the stream, and hands on what the engine has told meanwhile. 0; 1: none within the slice; -1: an
 * exception. Signals are seen after an event, too: a fast model leaves no slice without one. */
static int read_one(rnpy_stream *self)
{
    runnel_engine *engine = rnpy_engine_enter(self->engine);
    runnel_status status;
    runnel_event event;
    int result = 0;

    if (engine == NULL)
        return -1;
    status = runnel_stream_next(engine, self->id, 0, &event);
    if (status == RUNNEL_TIMEOUT) {
        rnpy_gil_release();
        status = runnel_stream_next(engine, self->id, RNPY_SLICE_MS, &event);
        rnpy_gil_restore();
    }
    if (status == RUNNEL_TIMEOUT)
        result = 1;
    else if (status != RUNNEL_OK)
        rnpy_raise(status, NULL, 0);
    else
        rnpy_answer_add(self, &event);
    rnpy_engine_leave(self->engine);
    if (PyErr_Occurred())
        return -1;
    return rnpy_engine_tell(self->engine) < 0 || PyErr_CheckSignals() < 0 ? -1 : result;
}

static int read_on(rnpy_stream *self, PyObject *others)
{
    int result = read_one(self);

    if (result >= 0)
        read_beside(others);
    return result;
}

/* Is another thread about to close the stream, which ends it within a step? Not where this one is: it would wait for
 * itself. */
static bool is_closing(rnpy_stream *self, uintptr_t reader)
{
    bool closing;

    RNPY_LOCK((PyObject *)self);
    closing = self->abandoned && reader != (uintptr_t)&here;
    RNPY_UNLOCK();
    return closing;
}

static bool begin_reading(rnpy_stream *self)
{
    uintptr_t reader;

    while ((reader = may_read(self)) != 0) {
        if (!is_closing(self, reader)) {
            rnpy_raise(RUNNEL_STATE, "another thread reads the stream", 0);
            return false;
        }
        wait_a_moment();
    }
    return true;
}

static PyObject *stream_next(PyObject *object, PyObject *others)
{
    rnpy_stream *self = (rnpy_stream *)object;
    PyObject *piece = NULL;
    int failed = 0;

    if (!begin_reading(self))
        return NULL;
    RNPY_LOCK(object);
    while (self->count == 0 && self->live && self->failure == NULL && failed == 0)
        failed = read_on(self, others) < 0;
    if (failed == 0)
        piece = self->count > 0 ? rnpy_answer_shift(self) : rnpy_stream_raise_end(self, PyExc_StopIteration);
    RNPY_UNLOCK();
    atomic_store(&self->reader, 0);
    return piece;
}

/* From now on only the result is wanted. */
static void collect(rnpy_stream *self)
{
    self->collect = true;
    rnpy_answer_drop(self);
    resume_if_low(self);
}

static PyObject *stream_collect(PyObject *object, PyObject *unused)
{
    (void)unused;
    RNPY_LOCK(object);
    collect((rnpy_stream *)object);
    RNPY_UNLOCK();
    Py_RETURN_NONE;
}

/* keep_all(True): its pieces are read later; keep_all(False): from now on. */
static PyObject *stream_keep_all(PyObject *object, PyObject *argument)
{
    rnpy_stream *self = (rnpy_stream *)object;

    RNPY_LOCK(object);
    self->keeps_all = PyObject_IsTrue(argument) == 1;
    resume_if_low(self);
    RNPY_UNLOCK();
    Py_RETURN_NONE;
}

static PyObject *stream_finish(PyObject *object, PyObject *others)
{
    rnpy_stream *self = (rnpy_stream *)object;
    int failed = 0;

    if (!begin_reading(self))
        return NULL;
    RNPY_LOCK(object);
    collect(self);
    while (self->live && self->failure == NULL && failed == 0)
        failed = read_on(self, others) < 0;
    RNPY_UNLOCK();
    atomic_store(&self->reader, 0);
    if (failed != 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *stream_result(PyObject *object, PyObject *unused)
{
    PyObject *result;

    (void)unused;
    RNPY_LOCK(object);
    result = rnpy_stream_result((rnpy_stream *)object);
    RNPY_UNLOCK();
    return result;
}

/* ---- Steering ------------------------------------------------------------------------------ */

bool rnpy_stream_cancel(rnpy_stream *self)
{
    runnel_status status = RUNNEL_NOT_FOUND;

    RNPY_LOCK((PyObject *)self);
    if (self->live && rnpy_engine_try_enter(self->engine)) {
        self->cancelled = true;
        status = runnel_stream_cancel(self->engine->engine, self->id);
        rnpy_engine_leave(self->engine);
    }
    RNPY_UNLOCK();
    return status == RUNNEL_OK;
}

static PyObject *stream_cancel(PyObject *object, PyObject *unused)
{
    (void)unused;
    return PyBool_FromLong(rnpy_stream_cancel((rnpy_stream *)object));
}

/* Nobody will read or ask any more. */
static PyObject *stream_abandon(PyObject *object, PyObject *unused)
{
    rnpy_stream *self = (rnpy_stream *)object;

    (void)unused;
    RNPY_LOCK(object);
    self->abandoned = true;
    rnpy_answer_drop(self);
    let_go(self);
    RNPY_UNLOCK();
    Py_RETURN_NONE;
}

static PyObject *stream_choose(PyObject *object, PyObject *argument)
{
    rnpy_stream *self = (rnpy_stream *)object;
    size_t place = PyLong_AsSize_t(argument);
    runnel_engine *engine = PyErr_Occurred() ? NULL : rnpy_engine_enter(self->engine);
    runnel_status status;

    if (engine == NULL)
        return NULL;
    status = runnel_stream_choose(engine, self->id, place);
    rnpy_engine_leave(self->engine);
    if (status != RUNNEL_OK)
        return rnpy_raise(status, NULL, 0);
    Py_RETURN_NONE;
}

/* By the host's own wish, besides what HIGH and LOW do: these have paused a stream with `paused` set, and resume it. */
static bool set_user_paused(rnpy_stream *self, bool pause)
{
    runnel_status status = RUNNEL_OK;

    if (!self->live || !rnpy_engine_try_enter(self->engine))
        return false;
    self->user_paused = pause;
    if (!self->paused)
        status = (pause ? runnel_stream_pause : runnel_stream_resume)(self->engine->engine, self->id);
    rnpy_engine_leave(self->engine);
    return status == RUNNEL_OK;
}

static PyObject *stream_pause(PyObject *object, PyObject *argument)
{
    int pause = PyObject_IsTrue(argument), done;

    if (pause < 0)
        return NULL;
    RNPY_LOCK(object);
    done = set_user_paused((rnpy_stream *)object, pause != 0);
    RNPY_UNLOCK();
    return PyBool_FromLong(done);
}

static PyObject *get_live(PyObject *object, void *closure)
{
    rnpy_stream *self = (rnpy_stream *)object;

    (void)closure;
    return PyBool_FromLong(self->live && self->failure == NULL);
}

static PyObject *get_id(PyObject *object, void *closure)
{
    (void)closure;
    return PyLong_FromUnsignedLongLong(((rnpy_stream *)object)->id.id);
}

static PyMethodDef methods[] = {
    {"pop", RNPY_METHOD(stream_pop), METH_NOARGS, "The next piece; None: there is none yet."},
    {"wait", RNPY_METHOD(stream_wait), METH_O, "Leaves a waiter; False: there is something to read already."},
    {"unwait", RNPY_METHOD(stream_unwait), METH_O, "Takes a waiter back."},
    {"next", RNPY_METHOD(stream_next), METH_VARARGS, "next(*others): the next piece; blocks, and reads others."},
    {"collect", RNPY_METHOD(stream_collect), METH_NOARGS, "Only the result is wanted from now on."},
    {"keep_all", RNPY_METHOD(stream_keep_all), METH_O, "keep_all(on): is it never paused for want of a reader?"},
    {"finish", RNPY_METHOD(stream_finish), METH_VARARGS,
     "finish(*others): collects to the end; reads others meanwhile."},
    {"result", RNPY_METHOD(stream_result), METH_NOARGS, "What has come, as a dict."},
    {"cancel", RNPY_METHOD(stream_cancel), METH_NOARGS, "Ends the stream early; False: it has ended."},
    {"abandon", RNPY_METHOD(stream_abandon), METH_NOARGS, "Cancels; nobody will read any more."},
    {"choose", RNPY_METHOD(stream_choose), METH_O, "The choice that was put off."},
    {"pause", RNPY_METHOD(stream_pause), METH_O, "pause(True), pause(False): resumes. False: it has ended."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef getters[] = {
    {"live", get_live, NULL, "False: the terminal event or a failure of a callback has come", NULL},
    {"id", get_id, NULL, "of the stream in its engine", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, RNPY_SLOT(rnpy_no_new)},
    {Py_tp_dealloc, RNPY_SLOT(stream_dealloc)},
    {Py_tp_traverse, RNPY_SLOT(stream_traverse)},
    {Py_tp_clear, RNPY_SLOT(stream_clear)},
    {Py_tp_methods, methods},
    {Py_tp_getset, getters},
    {0, NULL},
};
static PyType_Spec spec = {"runnel._runnel.Stream", sizeof(rnpy_stream), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
                           slots};

int rnpy_stream_ready(PyObject *module)
{
    name_ended = PyUnicode_InternFromString("ended");
    if (name_ended == NULL)
        return -1;
    rnpy_stream_type = rnpy_add_type(module, &spec);
    return rnpy_stream_type == NULL ? -1 : 0;
}
