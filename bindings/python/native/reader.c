/* Reader and Next: how asyncio waits for a piece, without a new future or a turn of the loop.
 *
 *     async for piece in stream      Reader, the base of runnel.Stream: __anext__ gives a Next
 *       await Next                   a piece waits: it is the result at once
 *                                    none does: the task waits for the Next's future
 *
 * The future is the loop's own, so that a task knows it without a look at its methods; it is never done, and so serves
 * one wait after another, as the Next serves one piece after another. Event after event of one dispatch notes whose
 * Next is to be woken (rnpy_woken_add); when the library is left again, rnpy_woken_run takes the task's callback back
 * from the future and calls it, on the loop's thread, outside of any task and in the task's context, which is where the
 * loop would call it. What the callback gets is one future for all, which is done. Cancelling the task cancels the
 * future, as everywhere in asyncio; the next wait has a new one.
 *
 *   FRESH ── a piece, the end ──────────────────────────▶ OVER
 *     └── none ──▶ WAITING ── wake ──▶ WOKEN ── again ──▶ OVER, or WAITING once more: another reader was first
 *                     └── throw ────────────────────────▶ OVER
 *
 * Loops that are not asyncio's have no such futures: with `_loop` None the stream's own coroutine has the piece. */
#include "binding.h"

#include <structmember.h>

typedef enum next_state { FRESH, WAITING, WOKEN, OVER } next_state;

typedef struct next next;

typedef struct reader {
    PyObject_HEAD PyObject *core; /* rnpy_stream */
    PyObject *loop;               /* asyncio's; None: another one's */
    _Atomic(next *) spare;        /* a Next that is over, for the next piece; NULL: none */
} reader;

struct next {
    PyObject_HEAD reader *reader; /* NULL: it has given its piece */
    PyObject *future, *waits;     /* what the task waits for, and its iterator; NULL: not made yet */
    PyObject *task, *run;         /* a weak reference to the task that waited last, and its context's run() */
    next_state state;
};

static PyTypeObject *reader_type, *next_type, *catcher_type;
static PyObject *catcher; /* the one object of its type */
static PyObject *name_run, *name_next_piece, *name_create_future, *name_callbacks, *name_remove, *name_blocking;
static PyObject *name_done, *name_set_result;
static PyObject *future_type, *task_type; /* asyncio's */
static _Atomic(PyCFunction) wakeup;       /* of its tasks, once one has been seen; NULL before */
static PyObject *done_future;
static bool keeps_futures; /* a future may serve several waits */

/* Of Python 3.10 and later; the limited API of 3.9 does not name it. */
enum { SLOT_AM_SEND = 81 };
typedef enum sent { SENT_ERROR = -1, SENT_RETURN = 0, SENT_NEXT = 1 } sent;

static rnpy_stream *core_of(reader *self)
{
    if (self->core == NULL || Py_TYPE(self->core) != rnpy_stream_type) {
        PyErr_SetString(PyExc_RuntimeError, "the stream was not begun");
        return NULL;
    }
    return (rnpy_stream *)self->core;
}

/* ---- Next: a coroutine --------------------------------------------------------------------- */

static void drop_future(next *self)
{
    Py_CLEAR(self->waits);
    Py_CLEAR(self->future);
}

static int make_future(next *self)
{
    self->future = PyObject_CallMethodObjArgs(self->reader->loop, name_create_future, NULL);
    self->waits = self->future == NULL ? NULL : PyObject_GetIter(self->future);
    if (self->waits == NULL)
        drop_future(self);
    return self->waits == NULL ? -1 : 0;
}

/* What the task is to wait for; a new reference. NULL with an exception. */
static PyObject *await_future(next *self)
{
    PyObject *result = self->waits == NULL ? NULL : PyIter_Next(self->waits);

    if (result != NULL || PyErr_Occurred())
        return result;
    drop_future(self); /* there is none yet, or it is done */
    if (make_future(self) < 0)
        return NULL;
    result = PyIter_Next(self->waits);
    if (result == NULL && !PyErr_Occurred())
        PyErr_SetString(PyExc_RuntimeError, "the loop's new future is done");
    return result;
}

/* Nobody waits any more: the reader may have it again, unless it has one. It keeps no stream in memory any longer. */
static void keep_spare(next *self)
{
    reader *from = self->reader;
    next *none = NULL;

    self->reader = NULL;
    Py_INCREF((PyObject *)self);
    if (!atomic_compare_exchange_strong(&from->spare, &none, self))
        Py_DECREF((PyObject *)self); /* its caller has it, too */
    Py_DECREF((PyObject *)from);
}

/* On this thread: whose task is being gone on with; NULL once the Next itself goes on. */
static _Thread_local next *waking;

static void goes_on(const next *self)
{
    if (waking == self)
        waking = NULL;
}

/* RETURN: *result is the piece; NEXT: it is what the task is to wait for; ERROR: an exception is set. */
static sent go_on(next *self, PyObject **result)
{
    rnpy_stream *stream;

    *result = NULL;
    goes_on(self);
    if (self->state == OVER) {
        PyErr_SetString(PyExc_RuntimeError, "cannot reuse an awaited __anext__");
        return SENT_ERROR;
    }
    stream = core_of(self->reader);
    if (stream == NULL)
        return SENT_ERROR;
    *result = rnpy_stream_pop(stream, (PyObject *)self);
    if (*result != Py_None) {
        self->state = OVER;
        if (*result == NULL)
            return SENT_ERROR;
        keep_spare(self);
        return SENT_RETURN;
    }
    Py_DECREF(*result);
    self->state = WAITING;
    *result = await_future(self);
    if (*result != NULL)
        return SENT_NEXT;
    self->state = OVER;
    rnpy_stream_unwait(stream, (PyObject *)self);
    return SENT_ERROR;
}

/* What await gives is in a StopIteration. A value that is a tuple or an exception would be taken apart; a piece is
 * neither. */
static PyObject *next_iternext(PyObject *object)
{
    PyObject *result;

    if (go_on((next *)object, &result) != SENT_RETURN)
        return result;
    PyErr_SetObject(PyExc_StopIteration, result);
    Py_DECREF(result);
    return NULL;
}

/* Without that exception. */
static sent next_am_send(PyObject *object, PyObject *unused, PyObject **result)
{
    (void)unused;
    return go_on((next *)object, result);
}

static PyObject *next_send(PyObject *object, PyObject *unused)
{
    (void)unused;
    return next_iternext(object);
}

/* The task has not begun to wait for what it was given. */
static bool is_refused(next *self)
{
    PyObject *blocking = self->future == NULL ? NULL : PyObject_GetAttr(self->future, name_blocking);
    int refused = blocking == NULL ? 0 : PyObject_IsTrue(blocking);

    PyErr_Clear();
    Py_XDECREF(blocking);
    return refused > 0;
}

/* Its task is cancelled, or the loop over the stream: the stream ends with it. A task that has not begun to wait is
 * another loop's, which asyncio refuses: this concerns neither the stream nor its readers. */
static void stop_waiting(next *self)
{
    rnpy_stream *stream = self->reader == NULL ? NULL : (rnpy_stream *)self->reader->core;
    bool refused;

    goes_on(self);
    if (stream == NULL || self->state == FRESH || self->state == OVER)
        return;
    self->state = OVER;
    refused = is_refused(self);
    drop_future(self);
    rnpy_stream_unwait(stream, (PyObject *)self);
    if (!refused)
        rnpy_stream_cancel(stream);
}

/* throw(type, value=None, trace=None) */
static PyObject *next_throw(PyObject *object, PyObject *arguments)
{
    PyObject *type, *value = NULL, *trace = NULL;

    if (!PyArg_ParseTuple(arguments, "O|OO", &type, &value, &trace))
        return NULL;
    stop_waiting((next *)object);
    if (PyExceptionInstance_Check(type)) {
        PyErr_SetObject((PyObject *)Py_TYPE(type), type);
        return NULL;
    }
    value = value == Py_None ? NULL : value;
    trace = trace == Py_None ? NULL : trace;
    Py_INCREF(type);
    Py_XINCREF(value);
    Py_XINCREF(trace);
    PyErr_Restore(type, value, trace);
    return NULL;
}

static PyObject *next_close(PyObject *object, PyObject *unused)
{
    (void)unused;
    stop_waiting((next *)object);
    Py_RETURN_NONE;
}

/* ---- Next: a wake -------------------------------------------------------------------------- */

/* What remove_done_callback is looking for, on this thread: the callback of this task. */
static _Thread_local struct {
    PyObject *task, *callback;
} caught;

/* A callback that goes on with a task of asyncio's, and nothing else: any other one wants a future that is done. */
static bool is_wakeup(PyObject *callback)
{
    PyCFunction known = atomic_load(&wakeup); /* any thread's: there is one */
    PyObject *name;
    bool is;

    if (!PyCFunction_Check(callback))
        return false;
    if (known != NULL)
        return PyCFunction_GetFunction(callback) == known;
    name = PyObject_GetAttrString(callback, "__name__");
    is = name != NULL && PyUnicode_Check(name) && PyUnicode_CompareWithASCIIString(name, "task_wakeup") == 0 &&
         PyObject_IsInstance(PyCFunction_GetSelf(callback), task_type) > 0;
    if (is)
        atomic_store(&wakeup, PyCFunction_GetFunction(callback));
    PyErr_Clear();
    Py_XDECREF(name);
    return is;
}

/* Equal to the callback that goes on with the task `caught.task`, which it keeps: so a future gives its callback, and
 * is without it, in one call. */
static PyObject *catcher_compare(PyObject *self, PyObject *callback, int how)
{
    (void)self;
    if (how != Py_EQ || caught.task == NULL || caught.callback != NULL || !is_wakeup(callback) ||
        PyCFunction_GetSelf(callback) != caught.task)
        Py_RETURN_FALSE;
    Py_INCREF(callback);
    caught.callback = callback;
    Py_RETURN_TRUE;
}

/* The task that waited last, if it is still there; a new reference, or NULL without an exception. */
static PyObject *known_task(const next *self)
{
    PyObject *task = NULL;

    if (self->task == NULL)
        return NULL;
#ifdef Py_GIL_DISABLED
    if (PyWeakref_GetRef(self->task, &task) < 0)
        PyErr_Clear();
#else
    task = PyWeakref_GetObject(self->task);
    if (task == Py_None)
        return NULL;
    Py_INCREF(task);
#endif
    return task;
}

/* The callback of the task that waited last, out of the future. NULL: another task waits, or none; no exception. */
static PyObject *take_known(next *self)
{
    PyObject *task = known_task(self), *removed, *callback;

    if (task == NULL)
        return NULL;
    caught.task = task;
    caught.callback = NULL;
    removed = PyObject_CallMethodObjArgs(self->future, name_remove, catcher, NULL);
    callback = caught.callback;
    caught.task = caught.callback = NULL;
    if (removed == NULL)
        PyErr_Clear();
    Py_XDECREF(removed);
    Py_DECREF(task);
    return callback;
}

/* The next wait of this task will be found by take_known. */
static void know(next *self, PyObject *callback, PyObject *run)
{
    Py_XDECREF(self->task);
    self->task = PyWeakref_NewRef(PyCFunction_GetSelf(callback), NULL);
    if (self->task == NULL)
        PyErr_Clear();
    Py_INCREF(run);
    Py_XDECREF(self->run);
    self->run = run;
}

/* The only callback, a task's, out of the future, and run() of its context to self->run. NULL: it has none, or several,
 * or one of another kind, or it is no future of asyncio's; no exception. */
static PyObject *take_only(next *self)
{
    PyObject *all = NULL, *pair = NULL, *run = NULL, *removed = NULL, *callback = NULL;

    if ((PyObject *)Py_TYPE(self->future) != future_type)
        return NULL;
    all = PyObject_GetAttr(self->future, name_callbacks);
    if (all != NULL && PyList_Check(all) && PyList_Size(all) == 1)
        pair = PyList_GetItem(all, 0);
    if (pair != NULL && PyTuple_Check(pair) && PyTuple_Size(pair) == 2 && is_wakeup(PyTuple_GetItem(pair, 0)))
        run = PyObject_GetAttr(PyTuple_GetItem(pair, 1), name_run);
    if (run != NULL)
        removed = PyObject_CallMethodObjArgs(self->future, name_remove, PyTuple_GetItem(pair, 0), NULL);
    if (removed != NULL) {
        callback = PyTuple_GetItem(pair, 0);
        Py_INCREF(callback);
        know(self, callback, run);
    }
    PyErr_Clear();
    Py_XDECREF(removed);
    Py_XDECREF(run);
    Py_XDECREF(all);
    return callback;
}

/* As any future: its callbacks are called on a later turn of the loop. 0 or -1. */
static int set_future(PyObject *future)
{
    PyObject *done = PyObject_CallMethodObjArgs(future, name_done, NULL), *result = done;

    if (done == Py_False)
        result = PyObject_CallMethodObjArgs(future, name_set_result, Py_None, NULL);
    else
        Py_XINCREF(result);
    Py_XDECREF(done);
    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

/* The callback that goes on with the task, out of the future, and in *run its context's run(), in *future the future.
 * NULL: nothing is to be called here, or there is an exception. */
static PyObject *take_callback(next *self, PyObject **run, PyObject **future)
{
    PyObject *callback;

    if (self->state != WAITING || self->future == NULL)
        return NULL;
    self->state = WOKEN;
    callback = take_known(self);
    if (callback == NULL)
        callback = take_only(self);
    if (callback == NULL) {
        set_future(self->future);
        return NULL;
    }
    Py_INCREF(self->future);
    *future = self->future;
    Py_INCREF(self->run);
    *run = self->run;
    if (!keeps_futures)
        drop_future(self);
    return callback;
}

/* Goes on with the task, here and now. Takes the reference, and has none while the task runs, which may have the Next
 * again then. A task that awaits the future itself, which somebody took out of the Next by hand, waits on: its future
 * is done as any other. 0 or -1. */
static int wake_now(next *self)
{
    PyObject *run = NULL, *future = NULL, *callback = take_callback(self, &run, &future), *result;
    next *outer = waking;
    int error;

    Py_DECREF((PyObject *)self);
    if (callback == NULL)
        return PyErr_Occurred() ? -1 : 0;
    waking = self; /* compared, never followed */
    result = PyObject_CallFunctionObjArgs(run, callback, done_future, NULL);
    error = result == NULL || (waking == self && set_future(future) < 0) ? -1 : 0;
    waking = outer;
    Py_DECREF(future);
    Py_DECREF(run);
    Py_DECREF(callback);
    Py_XDECREF(result);
    return error;
}

/* done() and set_result(None): a host's wake. */
static PyObject *next_done(PyObject *object, PyObject *unused)
{
    (void)unused;
    return PyBool_FromLong(((next *)object)->state != WAITING);
}

static PyObject *next_set_result(PyObject *object, PyObject *unused)
{
    (void)unused;
    Py_INCREF(object);
    if (wake_now((next *)object) < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* ---- Waking -------------------------------------------------------------------------------- */

/* Of this thread's dispatch: whose wakes are due. */
static _Thread_local rnpy_woken *woken;

bool rnpy_is_next(PyObject *waiter)
{
    return Py_TYPE(waiter) == next_type;
}

bool rnpy_woken_add(PyObject *waiter)
{
    if (woken == NULL || !rnpy_is_next(waiter) || woken->n == RNPY_WOKEN_ROOM)
        return false;
    woken->waiters[woken->n++] = waiter;
    return true;
}

rnpy_woken *rnpy_woken_begin(rnpy_woken *list)
{
    rnpy_woken *before = woken;

    list->n = 0;
    woken = list;
    return before;
}

int rnpy_woken_run(rnpy_woken *list, rnpy_woken *before, PyObject *host)
{
    int result = 0;

    woken = before;
    for (size_t i = 0; i < list->n; i++) {
        PyObject *type, *value, *trace;

        if (result == 0) {
            result = wake_now((next *)list->waiters[i]);
        } else { /* KeyboardInterrupt or SystemExit of a task goes through; the others have their turn all the same */
            PyErr_Fetch(&type, &value, &trace);
            rnpy_wake_by_host(host, list->waiters[i]);
            PyErr_Restore(type, value, trace);
            Py_DECREF(list->waiters[i]);
        }
    }
    return result;
}

/* ---- Types --------------------------------------------------------------------------------- */

static int next_traverse(PyObject *object, visitproc visit, void *arg)
{
    next *self = (next *)object;

    Py_VISIT(Py_TYPE(object));
    Py_VISIT((PyObject *)self->reader);
    Py_VISIT(self->future);
    Py_VISIT(self->waits);
    Py_VISIT(self->task);
    Py_VISIT(self->run);
    return 0;
}

static int next_clear(PyObject *object)
{
    next *self = (next *)object;

    drop_future(self);
    Py_CLEAR(self->task);
    Py_CLEAR(self->run);
    return 0;
}

static void next_dealloc(PyObject *object)
{
    PyObject_GC_UnTrack(object);
    next_clear(object);
    Py_XDECREF((PyObject *)((next *)object)->reader);
    rnpy_free_object(object);
}

static PyMethodDef next_methods[] = {
    {"send", RNPY_METHOD(next_send), METH_O, NULL},        {"throw", RNPY_METHOD(next_throw), METH_VARARGS, NULL},
    {"close", RNPY_METHOD(next_close), METH_NOARGS, NULL}, {"set_result", RNPY_METHOD(next_set_result), METH_O, NULL},
    {"done", RNPY_METHOD(next_done), METH_NOARGS, NULL},   {NULL, NULL, 0, NULL},
};

static PyType_Slot next_slots[] = {
    {Py_tp_doc, (void *)"The next piece of a stream: a coroutine of asyncio's."},
    {Py_tp_new, RNPY_SLOT(rnpy_no_new)},
    {Py_tp_dealloc, RNPY_SLOT(next_dealloc)},
    {Py_tp_traverse, RNPY_SLOT(next_traverse)},
    {Py_tp_clear, RNPY_SLOT(next_clear)},
    {Py_tp_iter, RNPY_SLOT(PyObject_SelfIter)},
    {Py_tp_iternext, RNPY_SLOT(next_iternext)},
    {Py_am_await, RNPY_SLOT(PyObject_SelfIter)},
    {Py_tp_methods, next_methods},
    {0, NULL}, /* am_send, where the interpreter knows it */
    {0, NULL},
};
static PyType_Spec next_spec = {"runnel._runnel.Next", sizeof(next), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
                                next_slots};

static PyType_Slot catcher_slots[] = {
    {Py_tp_new, RNPY_SLOT(rnpy_no_new)},
    {Py_tp_dealloc, RNPY_SLOT(rnpy_free_object)},
    {Py_tp_richcompare, RNPY_SLOT(catcher_compare)},
    {Py_tp_hash, RNPY_SLOT(PyObject_HashNotImplemented)},
    {0, NULL},
};
static PyType_Spec catcher_spec = {"runnel._runnel.Catcher", sizeof(PyObject), 0, Py_TPFLAGS_DEFAULT, catcher_slots};

/* Nobody else has a reference. */
static bool is_ours_alone(PyObject *object)
{
#ifndef Py_GIL_DISABLED
    return Py_REFCNT(object) == 1;
#elif PY_VERSION_HEX >= 0x030e0000
    return PyUnstable_Object_IsUniquelyReferenced(object);
#else /* what that function compares */
    return object->ob_tid == _Py_ThreadId() && __atomic_load_n(&object->ob_ref_local, __ATOMIC_RELAXED) == 1 &&
           __atomic_load_n(&object->ob_ref_shared, __ATOMIC_RELAXED) == 0;
#endif
}

/* The spare, where nobody else has it. */
static next *take_spare(reader *self)
{
    next *spare = atomic_exchange(&self->spare, NULL);

    if (spare != NULL && is_ours_alone((PyObject *)spare)) {
        spare->state = FRESH;
        return spare;
    }
    Py_XDECREF((PyObject *)spare);
    return NULL;
}

/* Of asyncio's loop: a Next. Else the coroutine of the stream's class, which alone can wait there. */
static PyObject *reader_anext(PyObject *object)
{
    reader *self = (reader *)object;
    next *made;

    if (core_of(self) == NULL)
        return NULL;
    if (self->loop == NULL || self->loop == Py_None)
        return PyObject_CallMethodObjArgs(object, name_next_piece, NULL);
    made = take_spare(self);
    if (made == NULL)
        made = (next *)PyType_GenericAlloc(next_type, 0);
    if (made == NULL)
        return NULL;
    Py_INCREF(object);
    made->reader = self;
    return (PyObject *)made;
}

static int reader_traverse(PyObject *object, visitproc visit, void *arg)
{
    reader *self = (reader *)object;

    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->core);
    Py_VISIT(self->loop);
    Py_VISIT((PyObject *)atomic_load(&self->spare));
    return 0;
}

static int reader_clear(PyObject *object)
{
    reader *self = (reader *)object;

    Py_CLEAR(self->core);
    Py_CLEAR(self->loop);
    Py_XDECREF((PyObject *)atomic_exchange(&self->spare, NULL));
    return 0;
}

static void reader_dealloc(PyObject *object)
{
    PyObject_GC_UnTrack(object);
    reader_clear(object);
    rnpy_free_object(object);
}

static PyMemberDef reader_members[] = {
    {"_core", T_OBJECT, offsetof(reader, core), 0, NULL},
    {"_loop", T_OBJECT, offsetof(reader, loop), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot reader_slots[] = {
    {Py_tp_doc, (void *)"What reads a stream on an event loop."},
    {Py_tp_dealloc, RNPY_SLOT(reader_dealloc)},
    {Py_tp_traverse, RNPY_SLOT(reader_traverse)},
    {Py_tp_clear, RNPY_SLOT(reader_clear)},
    {Py_tp_members, reader_members},
    {Py_am_aiter, RNPY_SLOT(PyObject_SelfIter)},
    {Py_am_anext, RNPY_SLOT(reader_anext)},
    {0, NULL},
};
static PyType_Spec reader_spec = {"runnel._runnel.Reader", sizeof(reader), 0,
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE, reader_slots};

static PyObject *imported(const char *module, const char *name)
{
    PyObject *from = PyImport_ImportModule(module);
    PyObject *object = from == NULL ? NULL : PyObject_GetAttrString(from, name);

    Py_XDECREF(from);
    return object;
}

/* module.name(**{keyword: value}), or NULL. */
static PyObject *made(const char *module, const char *name, const char *keyword, PyObject *value)
{
    PyObject *none = PyTuple_New(0), *type = none == NULL ? NULL : imported(module, name), *object = NULL;
    PyObject *keywords = type == NULL ? NULL : Py_BuildValue("{sO}", keyword, value);

    if (keywords != NULL)
        object = PyObject_Call(type, none, keywords);
    Py_XDECREF(keywords);
    Py_XDECREF(type);
    Py_XDECREF(none);
    return object;
}

/* A future of asyncio's that is done. A loop is asked by it whether it is being debugged, and nothing else. */
static PyObject *make_done(void)
{
    PyObject *loop = made("types", "SimpleNamespace", "get_debug", (PyObject *)&PyBool_Type);
    PyObject *future = loop == NULL ? NULL : made("asyncio", "Future", "loop", loop);
    PyObject *set = future == NULL ? NULL : PyObject_CallMethod(future, "set_result", "O", Py_None);

    if (set == NULL)
        Py_CLEAR(future);
    Py_XDECREF(set);
    Py_XDECREF(loop);
    return future;
}

static long interpreter_version(void)
{
    PyObject *version = PySys_GetObject("hexversion"); /* borrowed */

    return version == NULL ? 0 : PyLong_AsLong(version);
}

static int make_names(void)
{
    static const struct {
        PyObject **to;
        const char *name;
    } names[] = {
        {&name_run, "run"},
        {&name_next_piece, "_next_piece"},
        {&name_create_future, "create_future"},
        {&name_callbacks, "_callbacks"},
        {&name_remove, "remove_done_callback"},
        {&name_blocking, "_asyncio_future_blocking"},
        {&name_done, "done"},
        {&name_set_result, "set_result"},
    };

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if ((*names[i].to = PyUnicode_InternFromString(names[i].name)) == NULL)
            return -1;
    return 0;
}

int rnpy_reader_ready(PyObject *module)
{
    long version = interpreter_version();

    if (make_names() < 0)
        return -1;
    if ((future_type = imported("asyncio", "Future")) == NULL || (task_type = imported("asyncio", "Task")) == NULL ||
        (done_future = make_done()) == NULL)
        return -1;
    keeps_futures = version < 0x030e0000; /* a later one keeps the task that has waited for it */
    if (version >= 0x030a0000)
        next_slots[sizeof next_slots / sizeof next_slots[0] - 2] = (PyType_Slot){SLOT_AM_SEND, RNPY_SLOT(next_am_send)};
    if ((next_type = rnpy_add_type(module, &next_spec)) == NULL ||
        (reader_type = rnpy_add_type(module, &reader_spec)) == NULL ||
        (catcher_type = rnpy_add_type(module, &catcher_spec)) == NULL)
        return -1;
    catcher = PyType_GenericAlloc(catcher_type, 0);
    return catcher == NULL ? -1 : 0;
}
