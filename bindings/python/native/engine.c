/* Engine: opening and closing, dispatch on an event loop's thread, and what an engine tells of itself. */
#include "binding.h"

#include <structmember.h>

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

PyTypeObject *rnpy_engine_type;

/* Of this thread: its state while it is inside the library without the GIL, and the host that dispatches. */
static _Thread_local PyThreadState *released;
static _Thread_local PyObject *dispatching;
static _Thread_local char here; /* its address says which thread closes */

/* Of this thread: the engines that its calls are inside of, the outermost first. A callback of one engine may call
 * another, and so on; a program that does so deeper than this is not expected, and cannot close an engine there. */
enum { MOST_NESTED = 16 };
static _Thread_local struct {
    struct {
        const rnpy_engine *engine;
        int calls; /* one inside the other, and none of another engine between them */
    } nested[MOST_NESTED];
    int n;
    int deeper; /* calls that found no room */
} entered;

/* ---- The GIL ------------------------------------------------------------------------------- */

void rnpy_gil_release(void)
{
    released = PyEval_SaveThread();
}

void rnpy_gil_restore(void)
{
    PyThreadState *state = released;

    released = NULL;
    PyEval_RestoreThread(state);
}

PyThreadState *rnpy_gil_take(void)
{
    PyThreadState *taken = released;

    released = NULL;
    if (taken != NULL)
        PyEval_RestoreThread(taken);
    return taken;
}

void rnpy_gil_give(PyThreadState *taken)
{
    if (taken != NULL)
        released = PyEval_SaveThread();
}

PyObject *rnpy_dispatching(void)
{
    return dispatching;
}

/* ---- Calls --------------------------------------------------------------------------------- */

static void note_entry(const rnpy_engine *engine)
{
    if (entered.deeper > 0 || (entered.n == MOST_NESTED && entered.nested[entered.n - 1].engine != engine)) {
        entered.deeper++;
        return;
    }
    if (entered.n == 0 || entered.nested[entered.n - 1].engine != engine) {
        entered.nested[entered.n].engine = engine;
        entered.nested[entered.n++].calls = 0;
    }
    entered.nested[entered.n - 1].calls++;
}

/* Calls leave in the reverse order in which they have entered. */
static void note_exit(void)
{
    if (entered.deeper > 0)
        entered.deeper--;
    else if (--entered.nested[entered.n - 1].calls == 0)
        entered.n--;
}

/* A call of this thread's is inside the engine: where it closed that, it would wait for itself. */
static bool is_inside(const rnpy_engine *engine)
{
    for (int i = 0; i < entered.n; i++)
        if (entered.nested[i].engine == engine)
            return true;
    return entered.deeper > 0;
}

/* Before the engine's end has come to that stage. */
static bool enter_before(rnpy_engine *engine, enum rnpy_stage stage)
{
    if (engine->process != getpid())
        return false;
    if (atomic_fetch_add(&engine->calls, 1) < 0 || atomic_load(&engine->closing) >= (int)stage) {
        atomic_fetch_sub(&engine->calls, 1);
        return false;
    }
    note_entry(engine);
    return true;
}

bool rnpy_engine_try_enter(rnpy_engine *engine)
{
    return enter_before(engine, RNPY_FREEING);
}

runnel_engine *rnpy_engine_enter(rnpy_engine *engine)
{
    if (enter_before(engine, RNPY_CLOSING))
        return engine->engine;
    if (engine->process != getpid())
        rnpy_raise(RUNNEL_STATE, "the engine belongs to the process that opened it, and this is a fork of it", 0);
    else
        rnpy_raise(RUNNEL_CLOSED, "the engine is closed", 0);
    return NULL;
}

void rnpy_engine_leave(rnpy_engine *engine)
{
    note_exit();
    atomic_fetch_sub(&engine->calls, 1);
}

int rnpy_engine_tell(rnpy_engine *engine)
{
    return rnpy_news_tell(engine->news, engine->on_log, engine->on_trace);
}

/* ---- Opening and closing ------------------------------------------------------------------- */

int rnpy_architectures(PyObject *list, const runnel_architecture_row *const **made, size_t *count, PyObject *keep)
{
    PyObject *items = PySequence_List(list);
    const runnel_architecture_row **rows;
    runnel_architecture_row *room;
    Py_ssize_t n = items == NULL ? 0 : PyList_Size(items);
    int result = -1;

    if (items == NULL)
        return -1;
    rows = rnpy_room((size_t)n * sizeof *rows, keep);
    room = rnpy_room((size_t)n * sizeof *room, keep);
    if (rows == NULL || room == NULL)
        goto out;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = PyList_GetItem(items, i);

        runnel_architecture_row_default(&room[i]);
        rows[i] = &room[i];
        if (!PyDict_Check(item)) {
            PyErr_SetString(PyExc_TypeError, "architectures: a list of dicts is wanted");
            goto out;
        }
        if (rnpy_set_fields(&rnpy_architecture_fields, &room[i], item, keep) < 0)
            goto out;
    }
    *made = rows;
    *count = (size_t)n;
    result = 0;
out:
    Py_DECREF(items);
    return result;
}

static int set_options(runnel_engine_options *options, PyObject *values, PyObject *keep)
{
    PyObject *copy = PyDict_Copy(values), *name, *value;
    Py_ssize_t at = 0;
    int set = copy == NULL ? -1 : 1;

    while (set == 1 && PyDict_Next(copy, &at, &name, &value)) {
        if (value == Py_None)
            continue;
        if (PyUnicode_CompareWithASCIIString(name, "architectures") == 0)
            set = rnpy_architectures(value, &options->architectures, &options->n_architectures, keep) < 0 ? -1 : 1;
        else
            set = rnpy_set_field(&rnpy_engine_fields, options, name, value, keep);
        if (set == 0)
            PyErr_Format(PyExc_TypeError, "there is no option %R", name);
    }
    Py_XDECREF(copy);
    return set == 1 ? 0 : -1;
}

static int open_engine(rnpy_engine *self, PyObject *values, PyObject *keep)
{
    runnel_engine_options options;
    runnel_engine *engine = NULL;
    runnel_error error = {0};
    runnel_status status;

    runnel_engine_options_default(&options);
    if (set_options(&options, values, keep) < 0)
        return -1;
    if (options.delivery != RUNNEL_DELIVER_HOST) {
        PyErr_SetString(PyExc_TypeError, "there is no option 'delivery'");
        return -1;
    }
    if (self->on_log != NULL) {
        options.on_log = rnpy_news_on_log;
        options.log_user = self->news;
    }
    if (self->on_trace != NULL) {
        options.on_trace = rnpy_news_on_trace;
        options.trace_user = self->news;
    }
    Py_BEGIN_ALLOW_THREADS status = runnel_engine_new(&options, &engine, &error);
    Py_END_ALLOW_THREADS if (status != RUNNEL_OK)
    {
        rnpy_raise_error(status, &error);
        return -1;
    }
    self->engine = engine;
    self->gather_us = options.gather_us;
    return 0;
}

static PyObject *engine_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    PyObject *options, *on_log, *on_trace, *keep = PyList_New(0);
    rnpy_engine *self = NULL;

    (void)keywords;
    if (keep == NULL || !PyArg_ParseTuple(arguments, "O!OO", &PyDict_Type, &options, &on_log, &on_trace))
        goto fail;
    self = (rnpy_engine *)PyType_GenericAlloc(type, 0);
    if (self == NULL)
        goto fail;
    self->process = getpid();
    atomic_store(&self->closing, RNPY_FREEING); /* until it is open */
    self->news = rnpy_news_new();
    if (self->news == NULL) {
        PyErr_NoMemory();
        goto fail;
    }
    Py_INCREF(on_log);
    self->on_log = on_log;
    if (on_log == Py_None)
        Py_CLEAR(self->on_log);
    Py_INCREF(on_trace);
    self->on_trace = on_trace;
    if (on_trace == Py_None)
        Py_CLEAR(self->on_trace);
    if (open_engine(self, options, keep) < 0)
        goto fail;
    atomic_store(&self->closing, RNPY_OPEN);
    Py_DECREF(keep);
    return (PyObject *)self;
fail:
    Py_XDECREF(keep);
    Py_XDECREF((PyObject *)self);
    return NULL;
}

double rnpy_seconds_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static bool has_calls(rnpy_engine *self)
{
    return atomic_load(&self->calls) > 0;
}

/* Not where this thread closes it: it would wait for itself. */
static bool another_closes(rnpy_engine *self)
{
    uintptr_t closer = 0;

    return !atomic_compare_exchange_strong(&self->closer, &closer, (uintptr_t)&here) && closer != (uintptr_t)&here;
}

/* Waits while other threads have the engine. Calls of the library end within a step, a function of the caller's own may
 * never. timeout_s < 0: as long as it takes, but for a signal whose handler raises. 0; -1: an exception. */
static int await(rnpy_engine *self, bool (*others)(rnpy_engine *self), double timeout_s)
{
    const struct timespec moment = {.tv_nsec = 1000000};
    double begin = rnpy_seconds_now();

    while (others(self)) {
        if (timeout_s >= 0 && rnpy_seconds_now() - begin >= timeout_s) {
            rnpy_raise(RUNNEL_TIMEOUT, "calls of other threads are still inside the engine", 0);
            return -1;
        }
        rnpy_gil_release();
        for (int i = 0; i < 20 && others(self); i++)
            nanosleep(&moment, NULL);
        rnpy_gil_restore();
        if (PyErr_CheckSignals() < 0)
            return -1;
    }
    return 0;
}

/* Refuses new calls, and waits for those inside. Dispatches go on meanwhile, or a loop would spin over what it may not
 * take: one may have begun when the last call ends. None is refused before it is certain that the engine will be freed:
 * a loop that was told so watches it no more. 0; -1: an exception. */
static int await_calls(rnpy_engine *self, double timeout_s)
{
    double begin = rnpy_seconds_now();
    int none;

    atomic_store(&self->closing, RNPY_CLOSING);
    do {
        double left_s = timeout_s < 0 ? -1 : fmax(0, timeout_s - (rnpy_seconds_now() - begin));

        if (await(self, has_calls, left_s) < 0)
            return -1;
        none = 0;
    } while (!atomic_compare_exchange_strong(&self->calls, &none, INT_MIN / 2));
    atomic_store(&self->closing, RNPY_FREEING);
    return 0;
}

/* By the one thread that closes. 0; -1: an exception: the engine is open as before, or it is closed and a function has
 * raised it that was told of that. */
static int free_engine(rnpy_engine *self, double timeout_s)
{
    if (await_calls(self, timeout_s) < 0) {
        atomic_store(&self->closing, RNPY_OPEN);
        return -1;
    }
    rnpy_gil_release();
    runnel_engine_free(self->engine);
    rnpy_gil_restore();
    self->engine = NULL;
    return rnpy_engine_tell(self);
}

/* The second of two closers waits for the first. 0 or -1, as free_engine. */
static int close_engine(rnpy_engine *self, double timeout_s)
{
    double begin = rnpy_seconds_now(), left_s = timeout_s;
    uintptr_t own = (uintptr_t)&here;
    int result;

    if (self->process != getpid() || atomic_load(&self->closer) == own)
        return 0;
    result = await(self, another_closes, timeout_s);
    if (timeout_s >= 0)
        left_s = fmax(0, timeout_s - (rnpy_seconds_now() - begin));
    if (result == 0 && self->engine != NULL)
        result = free_engine(self, left_s);
    atomic_compare_exchange_strong(&self->closer, &own, 0);
    return result;
}

/* close(timeout_s=-1) */
static PyObject *engine_close(PyObject *object, PyObject *arguments)
{
    double timeout_s = -1;

    if (!PyArg_ParseTuple(arguments, "|d", &timeout_s))
        return NULL;
    if (is_inside((rnpy_engine *)object))
        return rnpy_raise(RUNNEL_STATE, "an engine cannot be closed inside a callback of its own", 0);
    if (close_engine((rnpy_engine *)object, timeout_s) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static int engine_traverse(PyObject *object, visitproc visit, void *arg)
{
    rnpy_engine *self = (rnpy_engine *)object;

    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->on_log);
    Py_VISIT(self->on_trace);
    return 0;
}

static int engine_clear(PyObject *object)
{
    rnpy_engine *self = (rnpy_engine *)object;

    Py_CLEAR(self->on_log);
    Py_CLEAR(self->on_trace);
    return 0;
}

static void engine_dealloc(PyObject *object)
{
    rnpy_engine *self = (rnpy_engine *)object;
    PyObject *type, *value, *trace;

    PyObject_GC_UnTrack(object);
    PyObject_ClearWeakRefs(object);
    PyErr_Fetch(&type, &value, &trace); /* of whose end this is a part */
    if (close_engine(self, -1) < 0)     /* no call is inside: each holds a reference */
        PyErr_WriteUnraisable(self->on_log);
    PyErr_Restore(type, value, trace);
    engine_clear(object);
    if (self->process == getpid()) /* in a fork's child the lock may be held for ever */
        rnpy_news_free(self->news);
    rnpy_free_object(object);
}

/* ---- The loop ------------------------------------------------------------------------------ */

static PyObject *engine_fd(PyObject *object, PyObject *unused)
{
    runnel_engine *engine = rnpy_engine_enter((rnpy_engine *)object);
    int fd;

    (void)unused;
    if (engine == NULL)
        return NULL;
    fd = runnel_engine_fd(engine);
    rnpy_engine_leave((rnpy_engine *)object);
    return PyLong_FromLong(fd);
}

/* dispatch(host, n): at most n events on this thread; host None: of no loop whose futures may be set here. False of an
 * engine that is being freed, or was: what is left comes on the thread that does, and no loop needs to watch. */
static PyObject *engine_dispatch(PyObject *object, PyObject *arguments)
{
    rnpy_engine *self = (rnpy_engine *)object;
    PyObject *host, *before = dispatching;
    rnpy_woken list, *around;
    rnpy_watch *watch;
    Py_ssize_t most;
    int woken;
    size_t n;

    if (!PyArg_ParseTuple(arguments, "On", &host, &most))
        return NULL;
    watch = rnpy_watch_of(host);
    if (!rnpy_engine_try_enter(self)) {
        if (watch != NULL && self->process == getpid()) /* a fork's child has the same epoll as its parent */
            rnpy_watch_ended(watch);
        Py_RETURN_FALSE;
    }
    Py_INCREF(host);
    dispatching = host;
    around = rnpy_woken_begin(&list);
    n = runnel_engine_dispatch(self->engine, (size_t)most);
    dispatching = before;
    rnpy_engine_leave(self);
    woken = rnpy_woken_run(&list, around, host);
    if (watch != NULL)
        rnpy_watch_dispatched(watch, n > 0, most > 0 && n >= (size_t)most);
    Py_DECREF(host);
    if (woken < 0 || rnpy_engine_tell(self) < 0)
        return NULL;
    Py_RETURN_TRUE;
}

/* drain(timeout_ms): True once all streams have ended. Callbacks run here meanwhile. */
static PyObject *engine_drain(PyObject *object, PyObject *argument)
{
    rnpy_engine *self = (rnpy_engine *)object;
    runnel_engine *engine;
    runnel_status status;
    long long timeout = PyLong_AsLongLong(argument);

    if (PyErr_Occurred())
        return NULL;
    for (;;) {
        long long slice = timeout < 0 || timeout > RNPY_SLICE_MS ? RNPY_SLICE_MS : timeout;

        engine = rnpy_engine_enter(self);
        if (engine == NULL)
            return NULL;
        rnpy_gil_release();
        status = runnel_engine_drain(engine, slice);
        rnpy_gil_restore();
        rnpy_engine_leave(self);
        if (PyErr_CheckSignals() < 0)
            return NULL;
        if (timeout >= 0)
            timeout -= slice;
        if (status != RUNNEL_TIMEOUT || timeout == 0)
            break;
    }
    if (rnpy_engine_tell(self) < 0)
        return NULL;
    if (status != RUNNEL_OK && status != RUNNEL_TIMEOUT)
        return rnpy_raise(status, NULL, 0);
    return PyBool_FromLong(status == RUNNEL_OK);
}

/* ---- What it tells ------------------------------------------------------------------------- */

static PyObject *engine_stats(PyObject *object, PyObject *unused)
{
    rnpy_engine *self = (rnpy_engine *)object;
    runnel_engine_stats stats = {.struct_size = sizeof stats};
    runnel_engine *engine = rnpy_engine_enter(self);
    runnel_status status;

    (void)unused;
    if (engine == NULL)
        return NULL;
    status = runnel_engine_get_stats(engine, &stats);
    rnpy_engine_leave(self);
    return status == RUNNEL_OK ? rnpy_get_fields(&rnpy_stats_fields, &stats) : rnpy_raise(status, NULL, 0);
}

static PyObject *engine_metrics(PyObject *object, PyObject *unused)
{
    rnpy_engine *self = (rnpy_engine *)object;
    runnel_metrics metrics = {.struct_size = sizeof metrics};
    runnel_engine *engine = rnpy_engine_enter(self);
    runnel_status status;

    (void)unused;
    if (engine == NULL)
        return NULL;
    status = runnel_engine_metrics(engine, &metrics);
    rnpy_engine_leave(self);
    return status == RUNNEL_OK ? rnpy_get_fields(&rnpy_metrics_fields, &metrics) : rnpy_raise(status, NULL, 0);
}

static runnel_status write_prometheus(void *engine, void *room, size_t capacity, size_t *n, runnel_error *error)
{
    (void)error;
    return runnel_engine_prometheus(engine, room, capacity, n);
}

static PyObject *engine_prometheus(PyObject *object, PyObject *unused)
{
    runnel_engine *engine = rnpy_engine_enter((rnpy_engine *)object);
    PyObject *text;

    (void)unused;
    if (engine == NULL)
        return NULL;
    text = rnpy_written(write_prometheus, engine, 1, 32768, 's');
    rnpy_engine_leave((rnpy_engine *)object);
    return text;
}

static PyObject *stream_info(const runnel_stream_info *info)
{
    return Py_BuildValue("{s:K,s:N,s:s,s:O,s:K,s:N}", "stream", info->stream.id, "model", rnpy_str(info->model),
                         "phase", runnel_phase_name(info->phase), "paused", info->paused ? Py_True : Py_False, "tokens",
                         info->tokens, "label", rnpy_str(info->label));
}

static PyObject *engine_streams(PyObject *object, PyObject *unused)
{
    rnpy_engine *self = (rnpy_engine *)object;
    runnel_stream_info info = {.struct_size = sizeof info};
    runnel_engine *engine = rnpy_engine_enter(self);
    PyObject *list = engine == NULL ? NULL : PyList_New(0);
    uint64_t cursor = 0;

    (void)unused;
    if (engine == NULL)
        return NULL;
    while (list != NULL && runnel_engine_streams(engine, &cursor, &info) == RUNNEL_OK) {
        PyObject *one = stream_info(&info);

        if (one == NULL || PyList_Append(list, one) < 0)
            Py_CLEAR(list);
        Py_XDECREF(one);
    }
    rnpy_engine_leave(self);
    return list;
}

static PyObject *engine_expert_use(PyObject *object, PyObject *argument)
{
    rnpy_engine *self = (rnpy_engine *)object;
    runnel_expert_use use = {.struct_size = sizeof use};
    unsigned long index = PyLong_AsUnsignedLong(argument);
    runnel_engine *engine = PyErr_Occurred() ? NULL : rnpy_engine_enter(self);
    PyObject *result = NULL;
    uint64_t *counts = NULL;
    runnel_status status;
    size_t n = 0;

    if (engine == NULL)
        return NULL;
    status = runnel_engine_expert_use(engine, (uint32_t)index, &use, NULL, 0);
    if (status == RUNNEL_OK) {
        n = (size_t)use.n_blocks * use.n_experts;
        counts = malloc(n * sizeof *counts + 1);
        status = counts == NULL ? RUNNEL_NO_MEMORY : runnel_engine_expert_use(engine, (uint32_t)index, &use, counts, n);
    }
    rnpy_engine_leave(self);
    if (status == RUNNEL_OK)
        result = Py_BuildValue("{s:N,s:I,s:I,s:K,s:K,s:K,s:N}", "model", rnpy_str(use.model), "n_blocks", use.n_blocks,
                               "n_experts", use.n_experts, "hits", (unsigned long long)use.hits, "misses",
                               (unsigned long long)use.misses, "fetched_bytes", (unsigned long long)use.fetched_bytes,
                               "counts", rnpy_view(counts, n * sizeof *counts, "Q"));
    else
        rnpy_raise(status, NULL, 0);
    free(counts);
    return result;
}

static PyObject *engine_measure(PyObject *object, PyObject *unused)
{
    rnpy_engine *self = (rnpy_engine *)object;
    runnel_machine machine = {.struct_size = sizeof machine};
    runnel_engine *engine = rnpy_engine_enter(self);
    runnel_error error = {0};
    runnel_status status;

    (void)unused;
    if (engine == NULL)
        return NULL;
    rnpy_gil_release();
    status = runnel_engine_measure(engine, &machine, &error);
    rnpy_gil_restore();
    rnpy_engine_leave(self);
    return status == RUNNEL_OK ? rnpy_get_fields(&rnpy_machine_fields, &machine) : rnpy_raise_error(status, &error);
}

static PyObject *engine_device(PyObject *object, PyObject *args)
{
    rnpy_engine *self = (rnpy_engine *)object;
    runnel_device_info info = {.struct_size = sizeof info};
    runnel_engine *engine;
    runnel_error error = {0};
    runnel_status status;
    const char *name;

    if (!PyArg_ParseTuple(args, "s", &name) || (engine = rnpy_engine_enter(self)) == NULL)
        return NULL;
    rnpy_gil_release();
    status = runnel_engine_device(engine, name, &info, &error);
    rnpy_gil_restore();
    rnpy_engine_leave(self);
    return status == RUNNEL_OK ? rnpy_get_fields(&rnpy_device_info_fields, &info) : rnpy_raise_error(status, &error);
}

static PyObject *get_closed(PyObject *object, void *closure)
{
    (void)closure;
    return PyBool_FromLong(atomic_load(&((rnpy_engine *)object)->closing));
}

static PyMethodDef methods[] = {
    {"close", engine_close, METH_VARARGS,
     "close(timeout_s=-1): ends all that runs and frees the engine; blocks for a step, and until other calls leave."},
    {"fd", RNPY_METHOD(engine_fd), METH_NOARGS, "Readable while events wait."},
    {"dispatch", RNPY_METHOD(engine_dispatch), METH_VARARGS, "dispatch(host, n): at most n events. False: closed."},
    {"drain", RNPY_METHOD(engine_drain), METH_O, "drain(timeout_ms): refuses requests, waits for all streams."},
    {"stats", RNPY_METHOD(engine_stats), METH_NOARGS, "runnel_engine_stats as a dict."},
    {"metrics", RNPY_METHOD(engine_metrics), METH_NOARGS, "runnel_metrics as a dict."},
    {"prometheus", RNPY_METHOD(engine_prometheus), METH_NOARGS, "The metrics as Prometheus reads them."},
    {"streams", RNPY_METHOD(engine_streams), METH_NOARGS, "The streams alive now, a dict each."},
    {"expert_use", RNPY_METHOD(engine_expert_use), METH_O, "expert_use(index): how often experts were chosen."},
    {"measure", RNPY_METHOD(engine_measure), METH_NOARGS, "What the machine can do; blocks for a second."},
    {"device", RNPY_METHOD(engine_device), METH_VARARGS,
     "device(name): what is known of a device; may block for seconds."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(rnpy_engine, weak), READONLY, NULL},
    {"gather_us", T_UINT, offsetof(rnpy_engine, gather_us), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef getters[] = {
    {"closed", get_closed, NULL, "True: close was called", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, RNPY_SLOT(engine_new)},
    {Py_tp_dealloc, RNPY_SLOT(engine_dealloc)},
    {Py_tp_traverse, RNPY_SLOT(engine_traverse)},
    {Py_tp_clear, RNPY_SLOT(engine_clear)},
    {Py_tp_methods, methods},
    {Py_tp_getset, getters},
    {Py_tp_members, members},
    {0, NULL},
};
static PyType_Spec spec = {"runnel._runnel.Engine", sizeof(rnpy_engine), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
                           slots};

int rnpy_engine_ready(PyObject *module)
{
    rnpy_engine_type = rnpy_add_type(module, &spec);
    return rnpy_engine_type == NULL ? -1 : 0;
}
