/* Training: of a head that drafts. It runs on a thread of the engine; wait tells how far it is. */
#include "binding.h"

#include <time.h>
#include <unistd.h>

#include "runnel_files.h"

typedef struct training {
    PyObject_HEAD rnpy_engine *engine;   /* outlives it */
    _Atomic(runnel_training *) training; /* NULL: closed */
    atomic_int waiting;                  /* one thread at a time is inside wait */
    atomic_int closing;                  /* calls of close that wait for its end */
    atomic_int inside;                   /* calls that may use `training`: who closes it waits for them */
} training;

/* The training; NULL: it is closed. leave() is due either way. Who closes takes the pointer away and looks at `inside`
 * then; both are sequentially consistent, so one of the two sees the other. */
static runnel_training *enter(training *self)
{
    atomic_fetch_add(&self->inside, 1);
    return atomic_load(&self->training);
}

static void leave(training *self)
{
    atomic_fetch_sub(&self->inside, 1);
}

static runnel_status begin(training *self, PyObject *paths[3], PyObject *options, runnel_error *error)
{
    PyObject *keep = PyList_New(0);
    runnel_eagle_options eagle;
    runnel_status status = RUNNEL_INVALID;
    const char *texts[3];
    size_t bytes;
    runnel_training *made = NULL;
    runnel_engine *engine = NULL;

    runnel_eagle_options_default(&eagle);
    if (keep != NULL && rnpy_ended_text(paths[0], "model", &texts[0], keep) == 0 &&
        rnpy_text(paths[1], "corpus", &texts[1], &bytes, keep) == 0 &&
        rnpy_ended_text(paths[2], "head", &texts[2], keep) == 0 &&
        rnpy_set_fields(&rnpy_eagle_fields, &eagle, options, keep) == 0)
        engine = rnpy_engine_enter(self->engine);
    if (engine != NULL) {
        rnpy_gil_release();
        status = runnel_eagle_train(engine, texts[0], texts[1], bytes, texts[2], &eagle, &made, error);
        rnpy_gil_restore();
        atomic_store(&self->training, made);
        rnpy_engine_leave(self->engine);
    }
    Py_XDECREF(keep);
    return status;
}

/* Training(engine, model, corpus, head, options) */
static PyObject *training_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    PyObject *engine, *paths[3], *options;
    runnel_error error = {0};
    runnel_status status;
    training *self;

    (void)keywords;
    if (!PyArg_ParseTuple(arguments, "O!OOOO!", rnpy_engine_type, &engine, &paths[0], &paths[1], &paths[2],
                          &PyDict_Type, &options))
        return NULL;
    self = (training *)PyType_GenericAlloc(type, 0);
    if (self == NULL)
        return NULL;
    Py_INCREF(engine);
    self->engine = (rnpy_engine *)engine;
    status = begin(self, paths, options, &error);
    if (status == RUNNEL_OK)
        return (PyObject *)self;
    if (!PyErr_Occurred())
        rnpy_raise_error(status, &error);
    Py_DECREF((PyObject *)self);
    return NULL;
}

/* wait(timeout_ms): its progress as a dict. */
static PyObject *training_wait(PyObject *object, PyObject *argument)
{
    training *self = (training *)object;
    runnel_training_progress progress = {.struct_size = sizeof progress};
    long long timeout = PyLong_AsLongLong(argument);
    runnel_training *running;
    runnel_error error = {0};
    runnel_status status;

    if (PyErr_Occurred())
        return NULL;
    if (atomic_exchange(&self->waiting, 1))
        return atomic_load(&self->closing) > 0 ? rnpy_raise(RUNNEL_CLOSED, "the training is being closed", 0)
                                               : rnpy_raise(RUNNEL_STATE, "another thread waits for this training", 0);
    running = enter(self);
    if (running == NULL) {
        leave(self);
        atomic_store(&self->waiting, 0);
        return rnpy_raise(RUNNEL_CLOSED, "the training is closed", 0);
    }
    rnpy_gil_release();
    status = runnel_training_wait(running, timeout, &progress, &error);
    leave(self);
    rnpy_gil_restore();
    atomic_store(&self->waiting, 0);
    if (PyErr_CheckSignals() < 0)
        return NULL;
    return status == RUNNEL_OK ? rnpy_get_fields(&rnpy_progress_fields, &progress) : rnpy_raise_error(status, &error);
}

static PyObject *training_cancel(PyObject *object, PyObject *unused)
{
    training *self = (training *)object;
    runnel_training *running = enter(self);

    (void)unused;
    if (running != NULL)
        runnel_training_cancel(running);
    leave(self);
    Py_RETURN_NONE;
}

/* Cancels, and frees once the others are out. */
static void free_training(training *self)
{
    const struct timespec moment = {.tv_nsec = 1000000};
    runnel_training *running = atomic_exchange(&self->training, NULL);

    if (running == NULL || self->engine->process != getpid())
        return;
    rnpy_gil_release();
    runnel_training_cancel(running);
    while (atomic_load(&self->inside) > 0) /* its wait sees the cancel within a step */
        nanosleep(&moment, NULL);
    runnel_training_free(running);
    rnpy_gil_restore();
}

/* Without the GIL, for at most RNPY_SLICE_MS: whether it has ended. Another thread may wait for it, too: one is let
 * in. */
static bool has_ended(training *self, runnel_training *running, long long timeout_ms)
{
    runnel_training_progress progress = {.struct_size = sizeof progress};
    const struct timespec moment = {.tv_nsec = 1000000};
    runnel_status status;

    if (atomic_exchange(&self->waiting, 1)) {
        nanosleep(&moment, NULL);
        return false;
    }
    status = runnel_training_wait(running, timeout_ms, &progress, NULL);
    atomic_store(&self->waiting, 0);
    return status != RUNNEL_OK || progress.state != RUNNEL_TRAINING_RUNNING;
}

/* Waits for the end of one that is cancelled. timeout_s < 0: as long as its step takes. 0; -1: an exception. */
static int await_end(training *self, runnel_training *running, double timeout_s)
{
    double begin = rnpy_seconds_now(), left_ms;
    bool ended = false;

    while (!ended) {
        left_ms = timeout_s < 0 ? RNPY_SLICE_MS : (timeout_s - (rnpy_seconds_now() - begin)) * 1000;
        left_ms = left_ms < 0 ? 0 : left_ms < RNPY_SLICE_MS ? left_ms : RNPY_SLICE_MS;
        rnpy_gil_release();
        ended = has_ended(self, running, (long long)left_ms);
        rnpy_gil_restore();
        if (PyErr_CheckSignals() < 0)
            return -1;
        if (!ended && timeout_s >= 0 && rnpy_seconds_now() - begin >= timeout_s) {
            rnpy_raise(RUNNEL_TIMEOUT, "the training has not ended: its step takes longer", 0);
            return -1;
        }
    }
    return 0;
}

/* close(timeout_s=-1) */
static PyObject *training_close(PyObject *object, PyObject *arguments)
{
    training *self = (training *)object;
    runnel_training *running;
    double timeout_s = -1;
    int failed = 0;

    if (!PyArg_ParseTuple(arguments, "|d", &timeout_s))
        return NULL;
    running = self->engine->process == getpid() ? enter(self) : NULL;
    if (running != NULL) {
        runnel_training_cancel(running);
        atomic_fetch_add(&self->closing, 1); /* in front of `waiting`: who finds that taken by us sees this */
        failed = await_end(self, running, timeout_s);
        atomic_fetch_sub(&self->closing, 1);
    }
    if (self->engine->process == getpid())
        leave(self);
    if (failed < 0)
        return NULL;
    free_training(self);
    Py_RETURN_NONE;
}

static void training_dealloc(PyObject *object)
{
    training *self = (training *)object;

    free_training(self);
    Py_XDECREF((PyObject *)self->engine);
    rnpy_free_object(object);
}

static PyMethodDef methods[] = {
    {"wait", RNPY_METHOD(training_wait), METH_O, "wait(timeout_ms): how far it is."},
    {"cancel", RNPY_METHOD(training_cancel), METH_NOARGS, "Ends it within a step, with its state saved."},
    {"close", training_close, METH_VARARGS, "close(timeout_s=-1): cancels it, waits for its end and frees it."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {{Py_tp_new, RNPY_SLOT(training_new)},
                              {Py_tp_dealloc, RNPY_SLOT(training_dealloc)},
                              {Py_tp_methods, methods},
                              {0, NULL}};
static PyType_Spec spec = {"runnel._runnel.Training", sizeof(training), 0, Py_TPFLAGS_DEFAULT, slots};

int rnpy_training_ready(PyObject *module)
{
    return rnpy_add_type(module, &spec) == NULL ? -1 : 0;
}
