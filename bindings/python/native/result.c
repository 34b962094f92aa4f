/* The end of a stream, as Python sees it: the exception, or what Result is made of (the text and all that was kept, how
 * it ended, usage and timings). */
#include "binding.h"

PyObject *rnpy_stream_raise_end(rnpy_stream *self, PyObject *stop)
{
    if (self->failure != NULL) {
        PyErr_SetObject((PyObject *)Py_TYPE(self->failure), self->failure);
        return NULL;
    }
    if (self->end == RUNNEL_EVENT_FAILED)
        return rnpy_raise(self->status, self->error, 0);
    if (self->end == RUNNEL_EVENT_CANCELLED && !self->cancelled)
        return rnpy_raise(RUNNEL_CANCELLED, "the stream was cancelled with its model or engine", 0);
    PyErr_SetNone(stop);
    return NULL;
}

static const char *finish_name(const rnpy_stream *self)
{
    if (self->live)
        return "none";
    if (self->end == RUNNEL_EVENT_CANCELLED)
        return "cancelled";
    return self->finish == RUNNEL_FINISH_STOP ? "stop" : "length";
}

/* None where there is none, or the stream has not ended. */
static PyObject *stop_of(const rnpy_stream *self, int32_t stop)
{
    if (self->live || self->end != RUNNEL_EVENT_DONE || stop < 0)
        Py_RETURN_NONE;
    return PyLong_FromLong(stop);
}

PyObject *rnpy_stream_result(rnpy_stream *self)
{
    PyObject *dict = NULL;

    if (self->failure != NULL || (!self->live && self->end == RUNNEL_EVENT_FAILED) ||
        (!self->live && self->end == RUNNEL_EVENT_CANCELLED && !self->cancelled))
        return rnpy_stream_raise_end(self, PyExc_StopIteration);
    dict = PyDict_New();
    if (dict == NULL)
        return NULL;
    if (rnpy_put(dict, "text", PyUnicode_DecodeUTF8(self->text.data, (Py_ssize_t)self->text.n, "replace")) < 0 ||
        rnpy_put(dict, "reasoning",
                 PyUnicode_DecodeUTF8(self->reasoning.data, (Py_ssize_t)self->reasoning.n, "replace")) < 0 ||
        rnpy_put(dict, "tokens", rnpy_view(self->tokens.data, self->tokens.n, "i")) < 0 ||
        rnpy_put(dict, "logprobs", rnpy_view(self->logprobs.data, self->logprobs.n, "f")) < 0 ||
        rnpy_put(dict, "finish", PyUnicode_FromString(finish_name(self))) < 0 ||
        rnpy_put(dict, "stop", stop_of(self, self->stop)) < 0 ||
        rnpy_put(dict, "stop_token", stop_of(self, self->stop_token)) < 0 ||
        rnpy_put(dict, "usage", rnpy_get_fields(&rnpy_usage_fields, &self->usage)) < 0 ||
        rnpy_put(dict, "timings", rnpy_get_fields(&rnpy_timings_fields, &self->timings)) < 0 ||
        PyDict_SetItemString(dict, "kept", self->kept) < 0)
        Py_CLEAR(dict);
    return dict;
}
