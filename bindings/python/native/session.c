/* Sessions and embeddings: what else is submitted to a model. A session is its id. */
#include "binding.h"

#include <string.h>

#include "runnel_files.h"
#include "runnel_scores.h"

/* A session by its id; 0 with an exception. */
static runnel_session session_of(PyObject *id)
{
    runnel_session session = {PyLong_AsUnsignedLongLong(id)};

    if (PyErr_Occurred())
        session.id = 0;
    return session;
}

static PyObject *session_id(runnel_status status, runnel_session session)
{
    if (status == RUNNEL_BUSY)
        return rnpy_raise(status, "all sessions that the engine may have (max_sessions) are taken: close one", 0);
    if (status == RUNNEL_STATE)
        return rnpy_raise(status, "the model is not loaded for generation", 0);
    return status == RUNNEL_OK ? PyLong_FromUnsignedLongLong(session.id) : rnpy_raise(status, NULL, 0);
}

PyObject *rnpy_session_new(PyObject *object, PyObject *unused)
{
    runnel_model *model = rnpy_model_enter((rnpy_model *)object);
    runnel_session session = {0};
    runnel_status status;

    (void)unused;
    if (model == NULL)
        return NULL;
    status = runnel_session_new(model, &session);
    rnpy_model_leave((rnpy_model *)object);
    return session_id(status, session);
}

PyObject *rnpy_session_fork(PyObject *object, PyObject *id)
{
    runnel_session session = session_of(id), copy = {0};
    runnel_model *model = PyErr_Occurred() ? NULL : rnpy_model_enter((rnpy_model *)object);
    runnel_status status;

    if (model == NULL)
        return NULL;
    status = runnel_session_fork(model, session, &copy);
    rnpy_model_leave((rnpy_model *)object);
    return session_id(status, copy);
}

PyObject *rnpy_session_free(PyObject *object, PyObject *id)
{
    runnel_session session = session_of(id);
    runnel_model *model = PyErr_Occurred() ? NULL : rnpy_model_enter((rnpy_model *)object);
    runnel_status status;

    if (model == NULL)
        return NULL;
    status = runnel_session_free(model, session);
    rnpy_model_leave((rnpy_model *)object);
    if (status != RUNNEL_OK)
        return rnpy_raise(status, NULL, 0);
    Py_RETURN_NONE;
}

/* A stream whose submit is `begin`, after its struct was filled from the dict of options. */
typedef runnel_status (*submitter)(runnel_model *model, void *job, runnel_stream *stream, runnel_error *error);

static PyObject *submit(rnpy_model *self, rnpy_stream *stream, submitter begin, void *job, size_t text_bytes)
{
    runnel_model *model = rnpy_model_enter(self);
    runnel_stream id = {0};
    runnel_error error = {0};
    runnel_status status;

    if (model == NULL) {
        rnpy_stream_drop(stream);
        return NULL;
    }
    stream->collect = true;
    if (text_bytes < RNPY_LONG_TEXT_BYTES) {
        status = begin(model, job, &id, &error);
    } else {
        Py_BEGIN_ALLOW_THREADS status = begin(model, job, &id, &error);
        Py_END_ALLOW_THREADS
    }
    rnpy_model_leave(self);
    return rnpy_stream_began(stream, id, status, &error);
}

static runnel_event_fn events_of(const rnpy_stream *stream)
{
    return stream->host == NULL ? NULL : rnpy_stream_on_event;
}

static runnel_status begin_embed(runnel_model *model, void *job, runnel_stream *stream, runnel_error *error)
{
    return runnel_embed(model, job, stream, error);
}

/* embed(options, host): a Stream whose result has the embedding. */
PyObject *rnpy_embed(PyObject *object, PyObject *arguments)
{
    PyObject *options, *host, *result = NULL, *keep = PyList_New(0);
    runnel_embed_request request;
    rnpy_stream *stream = NULL;

    runnel_embed_request_default(&request);
    if (keep != NULL && PyArg_ParseTuple(arguments, "O!O", &PyDict_Type, &options, &host) &&
        rnpy_set_fields(&rnpy_embed_fields, &request, options, keep) == 0)
        stream = rnpy_stream_new((rnpy_model *)object, host, NULL);
    if (stream != NULL) {
        request.user = stream;
        request.on_event = events_of(stream);
        result = submit((rnpy_model *)object, stream, begin_embed, &request, request.text_bytes);
    }
    Py_XDECREF(keep);
    return result;
}

static runnel_status begin_score(runnel_model *model, void *job, runnel_stream *stream, runnel_error *error)
{
    return runnel_score(model, job, stream, error);
}

/* score(options, host): a Stream whose result has the scores as its embedding. */
PyObject *rnpy_score(PyObject *object, PyObject *arguments)
{
    PyObject *options, *host, *result = NULL, *keep = PyList_New(0);
    runnel_score_request request;
    rnpy_stream *stream = NULL;

    runnel_score_request_default(&request);
    if (keep != NULL && PyArg_ParseTuple(arguments, "O!O", &PyDict_Type, &options, &host) &&
        rnpy_set_fields(&rnpy_score_fields, &request, options, keep) == 0)
        stream = rnpy_stream_new((rnpy_model *)object, host, NULL);
    if (stream != NULL) {
        request.user = stream;
        request.on_event = events_of(stream);
        result = submit((rnpy_model *)object, stream, begin_score, &request, request.text_bytes + request.query_bytes);
    }
    Py_XDECREF(keep);
    return result;
}

static PyObject *labels_of(runnel_model *model, uint32_t n)
{
    PyObject *labels = PyList_New(0);

    for (uint32_t i = 0; labels != NULL && i < n; i++) {
        const char *text = "";
        size_t bytes = 0;
        runnel_status status = runnel_model_label(model, i, &text, &bytes);
        PyObject *label = status == RUNNEL_OK ? PyUnicode_DecodeUTF8(text, (Py_ssize_t)bytes, "replace")
                                              : rnpy_raise(status, NULL, 0);

        if (label == NULL || PyList_Append(labels, label) < 0)
            Py_CLEAR(labels);
        Py_XDECREF(label);
    }
    return labels;
}

/* scores(): runnel_scores_info as a dict, with `labels`. */
PyObject *rnpy_scores(PyObject *object, PyObject *unused)
{
    runnel_scores_info info = {.struct_size = sizeof info};
    runnel_model *model = rnpy_model_enter((rnpy_model *)object);
    PyObject *dict = NULL;
    runnel_status status;

    (void)unused;
    if (model == NULL)
        return NULL;
    status = runnel_model_scores(model, &info);
    if (status == RUNNEL_UNSUPPORTED)
        rnpy_raise(status, "the model has no head that ranks or classifies", 0);
    else if (status != RUNNEL_OK)
        rnpy_raise(status, NULL, 0);
    else
        dict = rnpy_get_fields(&rnpy_scores_fields, &info);
    if (dict != NULL && rnpy_put(dict, "labels", labels_of(model, info.n_labels)) < 0)
        Py_CLEAR(dict);
    rnpy_model_leave((rnpy_model *)object);
    return dict;
}

typedef struct file_job {
    runnel_session_file file;
    runnel_session session;
} file_job;

static runnel_status begin_export(runnel_model *model, void *user, runnel_stream *stream, runnel_error *error)
{
    file_job *job = user;

    return runnel_session_export(model, job->session, &job->file, stream, error);
}

static runnel_status begin_import(runnel_model *model, void *user, runnel_stream *stream, runnel_error *error)
{
    file_job *job = user;

    return runnel_session_import(model, &job->file, &job->session, stream, error);
}

static PyObject *with_file(PyObject *object, PyObject *options, PyObject *host, submitter begin, file_job *job)
{
    PyObject *result = NULL, *keep = PyList_New(0);
    rnpy_stream *stream = NULL;

    runnel_session_file_default(&job->file);
    if (keep != NULL && rnpy_set_fields(&rnpy_session_file_fields, &job->file, options, keep) == 0)
        stream = rnpy_stream_new((rnpy_model *)object, host, NULL);
    if (stream != NULL) {
        job->file.user = stream;
        job->file.on_event = events_of(stream);
        result = submit((rnpy_model *)object, stream, begin, job, 0);
    }
    Py_XDECREF(keep);
    return result;
}

/* session_export(id, options, host): a Stream. */
PyObject *rnpy_session_export(PyObject *object, PyObject *arguments)
{
    PyObject *id, *options, *host;
    file_job job;

    if (!PyArg_ParseTuple(arguments, "OO!O", &id, &PyDict_Type, &options, &host))
        return NULL;
    job.session = session_of(id);
    return PyErr_Occurred() ? NULL : with_file(object, options, host, begin_export, &job);
}

/* session_import(options, host): (id, Stream). */
PyObject *rnpy_session_import(PyObject *object, PyObject *arguments)
{
    PyObject *options, *host, *stream;
    file_job job = {.session = {0}};

    if (!PyArg_ParseTuple(arguments, "O!O", &PyDict_Type, &options, &host))
        return NULL;
    stream = with_file(object, options, host, begin_import, &job);
    return stream == NULL ? NULL : Py_BuildValue("(KN)", (unsigned long long)job.session.id, stream);
}

static runnel_status write_note(void *path, void *room, size_t capacity, size_t *n, runnel_error *error)
{
    return runnel_session_read_note(path, room, capacity, n, error);
}

PyObject *rnpy_read_note(PyObject *module, PyObject *path)
{
    PyObject *result = NULL, *keep = PyList_New(0);
    const char *text;

    (void)module;
    if (keep != NULL && rnpy_ended_text(path, "path", &text, keep) == 0)
        result = rnpy_written(write_note, (void *)(uintptr_t)text, 1, 4096, 'b');
    Py_XDECREF(keep);
    return result;
}
