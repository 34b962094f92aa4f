/* Who waits for the next piece of a stream. A waiter is a future of the host's loop, or a Next (reader.c). While a host
 * dispatches on its own thread its futures are set here, and the tasks of Next objects go on when the dispatch has
 * ended; from other threads the host's wake(waiter) does it. Called with the stream locked. */
#include "binding.h"

static PyObject *name_done, *name_set_result, *name_wake;

void rnpy_wake_by_host(PyObject *host, PyObject *waiter)
{
    PyObject *result = PyObject_CallMethodObjArgs(host, name_wake, waiter, NULL);

    if (result == NULL)
        PyErr_WriteUnraisable(waiter);
    Py_XDECREF(result);
}

/* A future of the loop that dispatches. */
static void set_future(PyObject *future)
{
    PyObject *done = PyObject_CallMethodObjArgs(future, name_done, NULL), *result = NULL;

    if (done == Py_False)
        result = PyObject_CallMethodObjArgs(future, name_set_result, Py_None, NULL);
    if (PyErr_Occurred())
        PyErr_WriteUnraisable(future);
    Py_XDECREF(done);
    Py_XDECREF(result);
}

/* Takes the reference. */
static void wake_one(rnpy_stream *self, PyObject *waiter)
{
    if (self->host != rnpy_dispatching())
        rnpy_wake_by_host(self->host, waiter);
    else if (rnpy_woken_add(waiter))
        return;
    else if (rnpy_is_next(waiter))
        rnpy_wake_by_host(self->host, waiter);
    else
        set_future(waiter);
    Py_DECREF(waiter);
}

void rnpy_waiters_wake(rnpy_stream *self)
{
    PyObject *first = self->waiter, *others = self->others;

    self->waiter = self->others = NULL;
    if (first != NULL)
        wake_one(self, first);
    for (Py_ssize_t i = 0; others != NULL && i < PyList_Size(others); i++) {
        PyObject *waiter = PyList_GetItem(others, i);

        Py_INCREF(waiter);
        wake_one(self, waiter);
    }
    Py_XDECREF(others);
}

int rnpy_waiters_add(rnpy_stream *self, PyObject *waiter)
{
    int known;

    if (self->waiter == NULL || self->waiter == waiter) {
        if (self->waiter == NULL)
            Py_INCREF(waiter);
        self->waiter = waiter;
        return 0;
    }
    if (self->others == NULL && (self->others = PyList_New(0)) == NULL)
        return -1;
    known = PySequence_Contains(self->others, waiter);
    return known < 0 ? -1 : known ? 0 : PyList_Append(self->others, waiter);
}

void rnpy_waiters_remove(rnpy_stream *self, PyObject *waiter)
{
    for (Py_ssize_t i = 0; self->others != NULL && i < PyList_Size(self->others); i++)
        if (PyList_GetItem(self->others, i) == waiter) {
            PyList_SetSlice(self->others, i, i + 1, NULL);
            return;
        }
    if (self->waiter != waiter)
        return;
    Py_CLEAR(self->waiter);
    if (self->others != NULL && PyList_Size(self->others) > 0) {
        self->waiter = PyList_GetItem(self->others, 0);
        Py_INCREF(self->waiter);
        PyList_SetSlice(self->others, 0, 1, NULL);
    }
}

int rnpy_waiters_ready(void)
{
    name_done = PyUnicode_InternFromString("done");
    name_set_result = PyUnicode_InternFromString("set_result");
    name_wake = PyUnicode_InternFromString("wake");
    return name_done == NULL || name_set_result == NULL || name_wake == NULL ? -1 : 0;
}
