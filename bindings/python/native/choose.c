/* A token that a function of Python draws: it gets the candidates as a dict, whose logits it may change. */
#include "binding.h"

#include <string.h>

static PyObject *candidates_dict(const runnel_candidates *candidates, PyObject *logits)
{
    PyObject *dict = PyDict_New();

    if (dict == NULL)
        return NULL;
    if (rnpy_put(dict, "position", PyLong_FromUnsignedLongLong(candidates->position)) < 0 ||
        rnpy_put(dict, "sequence", rnpy_view(candidates->sequence, candidates->n_sequence * sizeof(int32_t), "i")) <
            0 ||
        rnpy_put(dict, "tokens", rnpy_view(candidates->tokens, candidates->n * sizeof(int32_t), "i")) < 0 ||
        PyDict_SetItemString(dict, "logits", logits) < 0)
        Py_CLEAR(dict);
    return dict;
}

/* What the function returned, and the logits as it left them. */
static int64_t chosen(PyObject *result, PyObject *bytes, runnel_candidates *candidates)
{
    int64_t place = RUNNEL_CHOOSE_DRAW;

    if (result != Py_None)
        place = PyLong_AsLongLong(result);
    if (PyErr_Occurred())
        return place;
    if ((size_t)PyByteArray_Size(bytes) != candidates->n * sizeof(float))
        PyErr_SetString(PyExc_ValueError, "choose: the array of logits has another size now");
    else
        memcpy(candidates->logits, PyByteArray_AsString(bytes), candidates->n * sizeof(float));
    return place;
}

/* What ends a loop would end the reader's, as if all had come. As out of a generator (PEP 479) it becomes the cause of
 * a RuntimeError. */
static void refuse_stop(void)
{
    bool stops = PyErr_ExceptionMatches(PyExc_StopIteration);
    PyObject *type, *cause, *trace, *error;

    if (!stops && !PyErr_ExceptionMatches(PyExc_StopAsyncIteration))
        return;
    PyErr_Fetch(&type, &cause, &trace);
    PyErr_NormalizeException(&type, &cause, &trace);
    if (trace != NULL)
        PyException_SetTraceback(cause, trace);
    Py_DECREF(type);
    Py_XDECREF(trace);
    error = PyObject_CallFunction(PyExc_RuntimeError, "s",
                                  stops ? "choose raised StopIteration" : "choose raised StopAsyncIteration");
    if (error == NULL) {
        Py_DECREF(cause);
        return;
    }
    PyException_SetCause(error, cause);
    PyErr_SetObject(PyExc_RuntimeError, error);
    Py_DECREF(error);
}

int64_t rnpy_choose(PyObject *function, runnel_candidates *candidates)
{
    size_t room = candidates->n * sizeof(float);
    PyObject *bytes = PyByteArray_FromStringAndSize((const char *)candidates->logits, (Py_ssize_t)room);
    PyObject *view = bytes == NULL ? NULL : PyMemoryView_FromObject(bytes);
    PyObject *logits = view == NULL ? NULL : PyObject_CallMethod(view, "cast", "s", "f");
    PyObject *dict = logits == NULL ? NULL : candidates_dict(candidates, logits);
    PyObject *result = dict == NULL ? NULL : PyObject_CallFunctionObjArgs(function, dict, NULL);
    int64_t place = result == NULL ? RUNNEL_CHOOSE_DRAW : chosen(result, bytes, candidates);

    if (PyErr_Occurred())
        refuse_stop();
    Py_XDECREF(result);
    Py_XDECREF(dict);
    Py_XDECREF(logits);
    Py_XDECREF(view);
    Py_XDECREF(bytes);
    return place;
}
