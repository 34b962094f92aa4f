/* Reader and Next: how asyncio waits for a piece, without a future or a turn of the loop where none is needed.
 *
 *     async for piece in stream      Reader, the base of runnel.Stream: each __anext__ makes a Next
 *       await Next                   a piece waits: it is the result at once
 *                                    none does: the Next itself is what the task waits for
 *
 * A task that gets an object with `_asyncio_future_blocking` from what it awaits treats it as a future: it leaves a
 * callback there, with its context. Event after event of one dispatch notes whose Next is to be woken (rnpy_woken_add);
 * when the library is left again, rnpy_woken_run calls the callbacks, on the loop's thread and outside of any task,
 * which is where the loop would call them. So a wake costs neither a future nor a handle of the loop. What a callback
 * gets is not the Next but one future for all, which is done: a task looks into asyncio's own type, where it has to
 * call methods of any other.
 *
 *   FRESH ── a piece, the end ──────────────────────────▶ OVER
 *     └── none ──▶ WAITING ── wake ──▶ WOKEN ── again ──▶ OVER, or WAITING once more: another reader was first
 *                     └── cancel ──▶ CANCELLED ── throw ──▶ OVER
 *
 * Loops that are not asyncio's have no such object: with `_loop` None the stream's own coroutine has the piece. */
#include "binding.h"

#include <structmember.h>

typedef enum next_state { FRESH, WAITING, WOKEN, CANCELLED, OVER } next_state;

typedef struct reader {
    PyObject_HEAD PyObject *core; /* rnpy_stream */
    PyObject *loop;               /* asyncio's; None: another one's */
} reader;

typedef struct next {
    PyObject_HEAD reader *reader;
    PyObject *callback, *context; /* of the task that waits */
    next_state state;
    bool blocking; /* `_asyncio_future_blocking`: the task has not seen yet that it waits */
} next;

static PyTypeObject *reader_type, *next_type;
static PyObject *name_run, *name_call_soon, *name_next_piece, *name_context;
static PyObject *cancelled_error, *invalid_state, *done_future;

/* Of Python 3.10 and later (PyIter_Send); the limited API of 3.9 does not name them, nor METH_FASTCALL. */
enum { SLOT_AM_SEND = 81, FASTCALL = 0x80 };
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

/* RETURN: *result is the piece; NEXT: it is what the task is to wait for; ERROR: an exception is set. */
static sent go_on(next *self, PyObject **result)
{
    rnpy_stream *stream = core_of(self->reader);

    *result = NULL;
    if (stream == NULL)
        return SENT_ERROR;
    if (self->state == OVER) {
        PyErr_SetString(PyExc_RuntimeError, "cannot reuse an awaited __anext__");
        return SENT_ERROR;
    }
    *result = rnpy_stream_pop(stream, (PyObject *)self);
    if (*result != Py_None) {
        self->state = OVER;
        return *result == NULL ? SENT_ERROR : SENT_RETURN;
    }
    Py_DECREF(*result);
    Py_CLEAR(self->callback);
    Py_CLEAR(self->context);
    self->state = WAITING;
    self->blocking = true;
    Py_INCREF((PyObject *)self);
    *result = (PyObject *)self;
    return SENT_NEXT;
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

/* Its task is cancelled, or the loop over the stream: the stream ends with it. A task that has not begun to wait is
 * another loop's, which asyncio refuses: this concerns neither the stream nor its readers. */
static void stop_waiting(next *self)
{
    rnpy_stream *stream = (rnpy_stream *)self->reader->core;

    if (stream == NULL || self->state == FRESH || self->state == OVER)
        return;
    self->state = OVER;
    rnpy_stream_unwait(stream, (PyObject *)self);
    if (!self->blocking)
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

/* ---- Next: a future ------------------------------------------------------------------------ */

/* On a later turn of the loop, as futures do it. */
static int call_soon(next *self)
{
    PyObject *function = PyObject_GetAttr(self->reader->loop, name_call_soon), *arguments, *keywords, *handle;

    if (function == NULL)
        return -1;
    arguments = PyTuple_Pack(2, self->callback, (PyObject *)self);
    keywords = self->context == NULL ? NULL : Py_BuildValue("{OO}", name_context, self->context);
    handle = arguments == NULL || PyErr_Occurred() ? NULL : PyObject_Call(function, arguments, keywords);
    Py_XDECREF(arguments);
    Py_XDECREF(keywords);
    Py_DECREF(function);
    Py_XDECREF(handle);
    return handle == NULL ? -1 : 0;
}

/* Goes on with the task, here and now. 0 or -1. */
static int wake_now(next *self)
{
    PyObject *callback = self->callback, *context = self->context, *result;

    if (self->state != WAITING)
        return 0;
    self->state = WOKEN;
    if (callback == NULL)
        return 0;
    self->callback = self->context = NULL;
    result = context == NULL ? PyObject_CallFunctionObjArgs(callback, done_future, NULL)
                             : PyObject_CallMethodObjArgs(context, name_run, callback, done_future, NULL);
    Py_DECREF(callback);
    Py_XDECREF(context);
    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

/* add_done_callback(callback, *, context=None) */
static PyObject *next_add_callback(PyObject *object, PyObject *const *arguments, Py_ssize_t n, PyObject *names)
{
    next *self = (next *)object;
    Py_ssize_t n_names = names == NULL ? 0 : PyTuple_Size(names);
    PyObject *context = n_names > 0 ? arguments[1] : NULL;

    if (n != 1 || n_names > 1 || (n_names == 1 && PyUnicode_Compare(PyTuple_GetItem(names, 0), name_context) != 0)) {
        PyErr_SetString(PyExc_TypeError, "add_done_callback() takes a callback and context=");
        return NULL;
    }
    if (self->callback != NULL)
        return rnpy_raise(RUNNEL_STATE, "one task waits for this piece already", 0);
    Py_INCREF(arguments[0]);
    self->callback = arguments[0];
    if (context != NULL && context != Py_None) {
        Py_INCREF(context);
        self->context = context;
    }
    if (self->state != WAITING && call_soon(self) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *next_remove_callback(PyObject *object, PyObject *callback)
{
    next *self = (next *)object;
    int same = self->callback == NULL ? 0 : PyObject_RichCompareBool(self->callback, callback, Py_EQ);

    if (same < 0)
        return NULL;
    if (same) {
        Py_CLEAR(self->callback);
        Py_CLEAR(self->context);
    }
    return PyLong_FromLong(same);
}

/* cancel(msg=None) */
static PyObject *next_cancel(PyObject *object, PyObject *arguments, PyObject *keywords)
{
    next *self = (next *)object;
    rnpy_stream *stream = core_of(self->reader);

    (void)arguments;
    (void)keywords;
    if (stream == NULL)
        return NULL;
    if (self->state != WAITING)
        Py_RETURN_FALSE;
    self->state = CANCELLED;
    rnpy_stream_unwait(stream, object);
    if (self->callback != NULL && call_soon(self) < 0)
        return NULL;
    Py_RETURN_TRUE;
}

static PyObject *next_result(PyObject *object, PyObject *unused)
{
    next *self = (next *)object;

    (void)unused;
    if (self->state == WOKEN || self->state == OVER)
        Py_RETURN_NONE;
    if (self->state == CANCELLED)
        PyErr_SetNone(cancelled_error);
    else
        PyErr_SetString(invalid_state, "the piece has not come");
    return NULL;
}

/* set_result(None): a host's wake. */
static PyObject *next_set_result(PyObject *object, PyObject *unused)
{
    (void)unused;
    if (wake_now((next *)object) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *next_done(PyObject *object, PyObject *unused)
{
    next_state state = ((next *)object)->state;

    (void)unused;
    return PyBool_FromLong(state != FRESH && state != WAITING);
}

static PyObject *next_cancelled(PyObject *object, PyObject *unused)
{
    (void)unused;
    return PyBool_FromLong(((next *)object)->state == CANCELLED);
}

static PyObject *next_loop(PyObject *object, PyObject *unused)
{
    PyObject *loop = ((next *)object)->reader->loop;

    (void)unused;
    Py_INCREF(loop);
    return loop;
}

/* None: not a future, for asyncio.ensure_future makes a task of it then. */
static PyObject *get_blocking(PyObject *object, void *closure)
{
    next *self = (next *)object;

    (void)closure;
    if (self->state == FRESH || self->state == OVER)
        Py_RETURN_NONE;
    return PyBool_FromLong(self->blocking);
}

static int set_blocking(PyObject *object, PyObject *value, void *closure)
{
    int blocking = value == NULL ? -1 : PyObject_IsTrue(value);

    (void)closure;
    if (blocking < 0)
        return -1;
    ((next *)object)->blocking = blocking;
    return 0;
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
        }
        Py_DECREF(list->waiters[i]);
    }
    return result;
}

/* ---- Types --------------------------------------------------------------------------------- */

static int next_traverse(PyObject *object, visitproc visit, void *arg)
{
    next *self = (next *)object;

    Py_VISIT(Py_TYPE(object));
    Py_VISIT((PyObject *)self->reader);
    Py_VISIT(self->callback);
    Py_VISIT(self->context);
    return 0;
}

static int next_clear(PyObject *object)
{
    next *self = (next *)object;

    Py_CLEAR(self->callback);
    Py_CLEAR(self->context);
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
    {"send", RNPY_METHOD(next_send), METH_O, NULL},
    {"throw", RNPY_METHOD(next_throw), METH_VARARGS, NULL},
    {"close", RNPY_METHOD(next_close), METH_NOARGS, NULL},
    {"add_done_callback", RNPY_METHOD(next_add_callback), FASTCALL | METH_KEYWORDS, NULL},
    {"remove_done_callback", RNPY_METHOD(next_remove_callback), METH_O, NULL},
    {"cancel", RNPY_METHOD(next_cancel), METH_VARARGS | METH_KEYWORDS, NULL},
    {"result", RNPY_METHOD(next_result), METH_NOARGS, NULL},
    {"set_result", RNPY_METHOD(next_set_result), METH_O, NULL},
    {"done", RNPY_METHOD(next_done), METH_NOARGS, NULL},
    {"cancelled", RNPY_METHOD(next_cancelled), METH_NOARGS, NULL},
    {"get_loop", RNPY_METHOD(next_loop), METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef next_getters[] = {
    {"_asyncio_future_blocking", get_blocking, set_blocking, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot next_slots[] = {
    {Py_tp_doc, (void *)"The next piece of a stream: a coroutine, and what asyncio's task waits for."},
    {Py_tp_new, RNPY_SLOT(rnpy_no_new)},
    {Py_tp_dealloc, RNPY_SLOT(next_dealloc)},
    {Py_tp_traverse, RNPY_SLOT(next_traverse)},
    {Py_tp_clear, RNPY_SLOT(next_clear)},
    {Py_tp_iter, RNPY_SLOT(PyObject_SelfIter)},
    {Py_tp_iternext, RNPY_SLOT(next_iternext)},
    {Py_am_await, RNPY_SLOT(PyObject_SelfIter)},
    {Py_tp_methods, next_methods},
    {Py_tp_getset, next_getters},
    {0, NULL}, /* am_send, where the interpreter knows it */
    {0, NULL},
};
static PyType_Spec next_spec = {"runnel._runnel.Next", sizeof(next), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
                                next_slots};

/* Of asyncio's loop: a Next. Else the coroutine of the stream's class, which alone can wait there. */
static PyObject *reader_anext(PyObject *object)
{
    reader *self = (reader *)object;
    next *made;

    if (core_of(self) == NULL)
        return NULL;
    if (self->loop == NULL || self->loop == Py_None)
        return PyObject_CallMethodObjArgs(object, name_next_piece, NULL);
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
    return 0;
}

static int reader_clear(PyObject *object)
{
    reader *self = (reader *)object;

    Py_CLEAR(self->core);
    Py_CLEAR(self->loop);
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

static int import_errors(void)
{
    PyObject *asyncio = PyImport_ImportModule("asyncio.exceptions");

    if (asyncio == NULL)
        return -1;
    cancelled_error = PyObject_GetAttrString(asyncio, "CancelledError");
    invalid_state = PyObject_GetAttrString(asyncio, "InvalidStateError");
    Py_DECREF(asyncio);
    return cancelled_error == NULL || invalid_state == NULL ? -1 : 0;
}

/* module.name(**{keyword: value}), or NULL. */
static PyObject *made(const char *module, const char *name, const char *keyword, PyObject *value)
{
    PyObject *from = PyImport_ImportModule(module), *none = PyTuple_New(0), *object = NULL;
    PyObject *type = from == NULL ? NULL : PyObject_GetAttrString(from, name);
    PyObject *keywords = type == NULL || none == NULL ? NULL : Py_BuildValue("{sO}", keyword, value);

    if (keywords != NULL)
        object = PyObject_Call(type, none, keywords);
    Py_XDECREF(keywords);
    Py_XDECREF(type);
    Py_XDECREF(none);
    Py_XDECREF(from);
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

static bool knows_am_send(void)
{
    PyObject *version = PySys_GetObject("hexversion");

    return version != NULL && PyLong_AsLong(version) >= 0x030a0000;
}

int rnpy_reader_ready(PyObject *module)
{
    name_run = PyUnicode_InternFromString("run");
    name_call_soon = PyUnicode_InternFromString("call_soon");
    name_next_piece = PyUnicode_InternFromString("_next_piece");
    name_context = PyUnicode_InternFromString("context");
    if (name_run == NULL || name_call_soon == NULL || name_next_piece == NULL || name_context == NULL ||
        import_errors() < 0)
        return -1;
    done_future = make_done();
    if (done_future == NULL)
        return -1;
    if (knows_am_send())
        next_slots[sizeof next_slots / sizeof next_slots[0] - 2] = (PyType_Slot){SLOT_AM_SEND, RNPY_SLOT(next_am_send)};
    next_type = rnpy_add_type(module, &next_spec);
    reader_type = rnpy_add_type(module, &reader_spec);
    return next_type == NULL || reader_type == NULL ? -1 : 0;
}
