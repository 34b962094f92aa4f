/* Model: loading, and submitting requests. A load on an event loop tells of itself inside Engine.dispatch; one that is
 * waited for by a blocking call needs no callback, unless its progress is asked for. */
#include "binding.h"

#include <string.h>

#include "runnel_files.h"

PyTypeObject *rnpy_model_type;

/* ---- Calls --------------------------------------------------------------------------------- */

static void give_up_user(rnpy_model *model)
{
    if (atomic_fetch_sub(&model->users, 1) == 1)
        runnel_model_free(model->model);
}

/* Once the last user has given up there is no model to use any more: the count never rises from 0. */
static bool become_user(rnpy_model *model)
{
    int users = atomic_load(&model->users);

    while (users > 0 && !atomic_load(&model->closed))
        if (atomic_compare_exchange_weak(&model->users, &users, users + 1))
            return true;
    return false;
}

runnel_model *rnpy_model_enter(rnpy_model *model)
{
    if (rnpy_engine_enter(model->engine) == NULL)
        return NULL;
    if (become_user(model))
        return model->model;
    rnpy_engine_leave(model->engine);
    rnpy_raise(RUNNEL_CLOSED, "the model is closed", 0);
    return NULL;
}

void rnpy_model_leave(rnpy_model *model)
{
    give_up_user(model);
    rnpy_engine_leave(model->engine);
}

/* Where the engine was closed, the model is gone with it. */
static void close_model(rnpy_model *self)
{
    if (self->model == NULL || !rnpy_engine_try_enter(self->engine))
        return;
    if (!atomic_exchange(&self->closed, 1))
        give_up_user(self);
    rnpy_engine_leave(self->engine);
}

/* ---- Loading ------------------------------------------------------------------------------- */

/* What on_progress has raised. An Exception is told as one that nobody can catch is. */
static void note_raised(rnpy_model *self)
{
    PyObject *type, *value, *trace, *before;

    if (PyErr_ExceptionMatches(PyExc_Exception)) {
        PyErr_WriteUnraisable(self->on_progress);
        return;
    }
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    if (trace != NULL)
        PyException_SetTraceback(value, trace);
    Py_XDECREF(type);
    Py_XDECREF(trace);
    RNPY_LOCK((PyObject *)self);
    before = self->raised;
    self->raised = value;
    RNPY_UNLOCK();
    Py_XDECREF(before);
}

/* Each fraction once; the last one of a load that succeeds is 1. */
static void tell_progress(rnpy_model *self, float fraction)
{
    PyObject *result;

    if (self->on_progress == NULL || fraction <= self->told)
        return;
    self->told = fraction;
    result = PyObject_CallFunction(self->on_progress, "d", (double)fraction);
    if (result == NULL)
        note_raised(self);
    Py_XDECREF(result);
}

/* Returns who waits for it. */
static PyObject *note_end(rnpy_model *self, const runnel_load_event *event)
{
    PyObject *waiter;

    RNPY_LOCK((PyObject *)self);
    self->status = event->state == RUNNEL_LOAD_READY ? RUNNEL_OK : RUNNEL_CANCELLED;
    if (event->state == RUNNEL_LOAD_FAILED && event->error != NULL) {
        self->status = event->error->status;
        self->error = *event->error;
    }
    self->loading = false;
    waiter = self->waiter;
    self->waiter = NULL;
    RNPY_UNLOCK();
    return waiter;
}

static void load_ended(rnpy_model *self, const runnel_load_event *event)
{
    PyObject *waiter = note_end(self, event), *told, *result;

    RNPY_LOCK((PyObject *)self);
    told = self->on_progress; /* it may refer to the model */
    self->on_progress = NULL;
    RNPY_UNLOCK();
    Py_XDECREF(told);
    if (waiter != NULL) {
        rnpy_wake_by_host(self->host, waiter);
        Py_DECREF(waiter);
    }
    if (self->host != NULL) {
        result = PyObject_CallMethod(self->host, "ended", NULL);
        if (result == NULL)
            PyErr_WriteUnraisable(self->host);
        Py_XDECREF(result);
    }
    Py_DECREF((PyObject *)self); /* the engine's */
}

static void on_load(void *model, const runnel_load_event *event)
{
    rnpy_model *self = model;
    PyThreadState *taken = rnpy_gil_take();

    if (event->state != RUNNEL_LOAD_CANCELLED && event->state != RUNNEL_LOAD_FAILED)
        tell_progress(self, event->state == RUNNEL_LOAD_READY ? 1 : event->fraction);
    if (event->state != RUNNEL_LOAD_PROGRESS)
        load_ended(self, event);
    rnpy_gil_give(taken);
}

static runnel_status start_load(rnpy_model *self, PyObject *path, PyObject *values, runnel_error *error)
{
    PyObject *keep = PyList_New(0);
    runnel_model_options options;
    runnel_status status = RUNNEL_INVALID;
    runnel_engine *engine = NULL;
    const char *text;
    size_t bytes;

    runnel_model_options_default(&options);
    if (keep == NULL || rnpy_text(path, "path", &text, &bytes, keep) < 0 ||
        rnpy_set_fields(&rnpy_model_fields, &options, values, keep) < 0)
        goto out;
    if (strlen(text) != bytes) {
        rnpy_invalid("path: a text without NUL is wanted");
        goto out;
    }
    engine = rnpy_engine_enter(self->engine);
    if (engine == NULL)
        goto out;
    if (self->host != NULL || self->on_progress != NULL) {
        options.on_load = on_load;
        options.load_user = self;
        self->loading = true;
        Py_INCREF((PyObject *)self); /* the engine's, until the load has ended */
    }
    rnpy_gil_release();
    status = runnel_model_load(engine, text, &options, &self->model, error);
    rnpy_gil_restore();
    if (status != RUNNEL_OK && options.on_load != NULL) {
        self->loading = false;
        Py_DECREF((PyObject *)self);
    }
    rnpy_engine_leave(self->engine);
out:
    Py_XDECREF(keep);
    return status;
}

/* Model(engine, path, options, host, on_progress): begins to load. */
static PyObject *model_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    PyObject *engine, *path, *options, *host, *on_progress;
    runnel_error error = {0};
    runnel_status status;
    rnpy_model *self;

    (void)keywords;
    if (!PyArg_ParseTuple(arguments, "O!OO!OO", rnpy_engine_type, &engine, &path, &PyDict_Type, &options, &host,
                          &on_progress))
        return NULL;
    if (on_progress != Py_None && !PyCallable_Check(on_progress))
        return PyErr_Format(PyExc_TypeError, "on_progress: a function is wanted, not %R",
                            (PyObject *)Py_TYPE(on_progress));
    self = (rnpy_model *)PyType_GenericAlloc(type, 0);
    if (self == NULL)
        return NULL;
    atomic_store(&self->users, 1);
    Py_INCREF(engine);
    self->engine = (rnpy_engine *)engine;
    if (host != Py_None) {
        Py_INCREF(host);
        self->host = host;
    }
    if (on_progress != Py_None) {
        Py_INCREF(on_progress);
        self->on_progress = on_progress;
    }
    status = start_load(self, path, options, &error);
    if (status == RUNNEL_OK)
        return (PyObject *)self;
    if (!PyErr_Occurred())
        rnpy_raise_error(status, &error);
    Py_DECREF((PyObject *)self);
    return NULL;
}

/* wait(waiter): False: the load has ended, and check() says how. */
static PyObject *model_wait(PyObject *object, PyObject *waiter)
{
    rnpy_model *self = (rnpy_model *)object;
    PyObject *before;
    bool waits;

    RNPY_LOCK(object);
    before = self->waiter;
    self->waiter = NULL;
    waits = waiter != Py_None && self->loading;
    if (waits) {
        Py_INCREF(waiter);
        self->waiter = waiter;
    }
    RNPY_UNLOCK();
    Py_XDECREF(before);
    return PyBool_FromLong(waits);
}

static PyObject *model_check(PyObject *object, PyObject *unused)
{
    rnpy_model *self = (rnpy_model *)object;

    (void)unused;
    if (self->status != RUNNEL_OK)
        return rnpy_raise_error(self->status, &self->error);
    Py_RETURN_NONE;
}

/* How the load has ended; TIMEOUT: it has not. Another thread may deliver its events. */
static runnel_status status_now(rnpy_model *self, runnel_error *error)
{
    runnel_status status;

    RNPY_LOCK((PyObject *)self);
    status = self->loading ? RUNNEL_TIMEOUT : self->status;
    *error = self->error;
    RNPY_UNLOCK();
    return status;
}

/* One slice of waiting for the load. With on_progress its events are delivered here. */
static runnel_status wait_slice(rnpy_model *self, runnel_model *model, runnel_error *error)
{
    runnel_engine *engine = self->engine->engine;
    bool delivers = self->on_progress != NULL;
    runnel_status status = RUNNEL_OK;

    rnpy_gil_release();
    if (delivers) {
        runnel_engine_wait(engine, RNPY_SLICE_MS);
        runnel_engine_dispatch(engine, 0);
    } else {
        status = runnel_model_wait(model, RNPY_SLICE_MS, error);
    }
    rnpy_gil_restore();
    return delivers ? status_now(self, error) : status;
}

/* -1: an exception of a signal's handler or of on_progress. */
static int check_raised(rnpy_model *self)
{
    PyObject *raised;

    if (PyErr_CheckSignals() < 0)
        return -1;
    RNPY_LOCK((PyObject *)self);
    raised = self->raised;
    self->raised = NULL;
    RNPY_UNLOCK();
    if (raised == NULL)
        return 0;
    PyErr_SetObject((PyObject *)Py_TYPE(raised), raised);
    Py_DECREF(raised);
    return -1;
}

/* Blocks until the load has ended. */
static PyObject *model_block(PyObject *object, PyObject *unused)
{
    rnpy_model *self = (rnpy_model *)object;
    runnel_error error = {0};
    runnel_status status;

    (void)unused;
    do {
        runnel_model *model = rnpy_model_enter(self);

        if (model == NULL)
            return NULL;
        status = wait_slice(self, model, &error);
        rnpy_model_leave(self);
        if (check_raised(self) < 0)
            return NULL;
    } while (status == RUNNEL_TIMEOUT);
    if (rnpy_engine_tell(self->engine) < 0)
        return NULL;
    if (status != RUNNEL_OK)
        return rnpy_raise_error(status, &error);
    Py_RETURN_NONE;
}

static PyObject *model_cancel_load(PyObject *object, PyObject *unused)
{
    rnpy_model *self = (rnpy_model *)object;
    runnel_model *model = rnpy_model_enter(self);

    (void)unused;
    if (model == NULL)
        return NULL;
    runnel_model_cancel_load(model);
    rnpy_model_leave(self);
    Py_RETURN_NONE;
}

static PyObject *model_close(PyObject *object, PyObject *unused)
{
    (void)unused;
    close_model((rnpy_model *)object);
    Py_RETURN_NONE;
}

/* ---- Requests ------------------------------------------------------------------------------ */

static runnel_status submit(runnel_model *model, rnpy_request *request, runnel_stream *id, runnel_error *error)
{
    runnel_status status;

    if (request->request.prompt_bytes < RNPY_LONG_TEXT_BYTES && request->request.chat == NULL)
        return runnel_generate(model, &request->request, id, error);
    Py_BEGIN_ALLOW_THREADS status = runnel_generate(model, &request->request, id, error);
    Py_END_ALLOW_THREADS return status;
}

/* generate(options, host, collect): the stream of a request. */
static PyObject *model_generate(PyObject *object, PyObject *arguments)
{
    rnpy_model *self = (rnpy_model *)object;
    PyObject *options, *host, *result = NULL;
    rnpy_stream *stream = NULL;
    rnpy_request request;
    runnel_model *model;
    runnel_stream id = {0};
    runnel_error error = {0};
    runnel_status status;
    int collect;

    if (!PyArg_ParseTuple(arguments, "O!Op", &PyDict_Type, &options, &host, &collect))
        return NULL;
    if (rnpy_request_init(&request, options) < 0)
        goto out;
    stream = rnpy_stream_new(self, host, request.choose);
    model = stream == NULL ? NULL : rnpy_model_enter(self);
    if (model == NULL) {
        if (stream != NULL)
            rnpy_stream_drop(stream);
        goto out;
    }
    stream->collect = collect;
    stream->wants_logprobs = request.request.want_logprobs;
    request.samplers.choose_user = stream;
    request.request.user = stream;
    request.request.on_event = stream->host == NULL ? NULL : rnpy_stream_on_event;
    status = submit(model, &request, &id, &error);
    rnpy_model_leave(self);
    result = rnpy_stream_began(stream, id, status, &error);
out:
    rnpy_request_fini(&request);
    return result;
}

static PyObject *model_info(PyObject *object, PyObject *unused)
{
    rnpy_model *self = (rnpy_model *)object;
    runnel_model_info info = {.struct_size = sizeof info};
    runnel_model *model = rnpy_model_enter(self);
    runnel_status status;

    (void)unused;
    if (model == NULL)
        return NULL;
    status = runnel_model_get_info(model, &info);
    rnpy_model_leave(self);
    return status == RUNNEL_OK ? rnpy_get_fields(&rnpy_info_fields, &info) : rnpy_raise(status, NULL, 0);
}

/* adapters(): (name, path, scale) of each, in the order of the options. */
static PyObject *model_adapters(PyObject *object, PyObject *unused)
{
    runnel_model *model = rnpy_model_enter((rnpy_model *)object);
    PyObject *list = model == NULL ? NULL : PyList_New(0);
    runnel_status status = RUNNEL_OK;
    runnel_adapter adapter;

    (void)unused;
    if (model == NULL)
        return NULL;
    for (uint32_t i = 0; list != NULL && (status = runnel_model_adapter(model, i, &adapter)) == RUNNEL_OK; i++) {
        PyObject *one = Py_BuildValue("(NNd)", rnpy_str(adapter.name), PyUnicode_DecodeFSDefault(adapter.path),
                                      (double)adapter.scale);

        if (one == NULL || PyList_Append(list, one) < 0)
            Py_CLEAR(list);
        Py_XDECREF(one);
    }
    rnpy_model_leave((rnpy_model *)object);
    if (list != NULL && status != RUNNEL_NOT_FOUND) {
        Py_CLEAR(list);
        rnpy_raise(status, NULL, 0);
    }
    return list;
}

/* ---- The object ---------------------------------------------------------------------------- */

static int model_traverse(PyObject *object, visitproc visit, void *arg)
{
    rnpy_model *self = (rnpy_model *)object;

    Py_VISIT(Py_TYPE(object));
    Py_VISIT((PyObject *)self->engine);
    Py_VISIT(self->host);
    Py_VISIT(self->on_progress);
    Py_VISIT(self->raised);
    Py_VISIT(self->waiter);
    return 0;
}

static int model_clear(PyObject *object)
{
    rnpy_model *self = (rnpy_model *)object;

    Py_CLEAR(self->on_progress);
    Py_CLEAR(self->raised);
    Py_CLEAR(self->waiter);
    return 0;
}

static void model_dealloc(PyObject *object)
{
    rnpy_model *self = (rnpy_model *)object;

    PyObject_GC_UnTrack(object);
    if (self->engine != NULL)
        close_model(self);
    model_clear(object);
    Py_XDECREF(self->host);
    Py_XDECREF((PyObject *)self->engine);
    rnpy_free_object(object);
}

static PyMethodDef methods[] = {
    {"wait", RNPY_METHOD(model_wait), METH_O, "wait(waiter): False: the load has ended."},
    {"check", RNPY_METHOD(model_check), METH_NOARGS, "Raises why the load failed."},
    {"block", RNPY_METHOD(model_block), METH_NOARGS, "Blocks until the load has ended."},
    {"cancel_load", RNPY_METHOD(model_cancel_load), METH_NOARGS, "The load ends as cancelled."},
    {"close", RNPY_METHOD(model_close), METH_NOARGS, "Cancels what runs on the model and frees it."},
    {"generate", RNPY_METHOD(model_generate), METH_VARARGS, "generate(options, host, collect): a Stream."},
    {"info", RNPY_METHOD(model_info), METH_NOARGS, "runnel_model_info as a dict."},
    {"adapters", RNPY_METHOD(model_adapters), METH_NOARGS, "Its LoRA adapters: (name, path, scale) each."},
    {"tokenize", RNPY_METHOD(rnpy_tokenize), METH_VARARGS, "tokenize(text, flags): a memoryview of ids."},
    {"detokenize", RNPY_METHOD(rnpy_detokenize), METH_VARARGS, "detokenize(tokens, special): bytes."},
    {"token_text", RNPY_METHOD(rnpy_token_text), METH_VARARGS, "token_text(token, special): bytes."},
    {"tokenize_chat", RNPY_METHOD(rnpy_tokenize_chat), METH_O, "tokenize_chat(options): a memoryview of ids."},
    {"apply_template", RNPY_METHOD(rnpy_apply_template), METH_O, "apply_template(options): the prompt as text."},
    {"tokenize_infill", RNPY_METHOD(rnpy_tokenize_infill), METH_VARARGS, "tokenize_infill(options, files): ids."},
    {"template", RNPY_METHOD(rnpy_model_template), METH_O, "template(index): what it does, as a dict."},
    {"sampling", RNPY_METHOD(rnpy_model_sampling), METH_NOARGS, "Sampling that the file recommends."},
    {"grammar_check", RNPY_METHOD(rnpy_grammar_check), METH_O, "grammar_check(options): raises what is wrong."},
    {"sampling_check", RNPY_METHOD(rnpy_sampling_check), METH_O, "sampling_check(options): raises what is wrong."},
    {"session_new", RNPY_METHOD(rnpy_session_new), METH_NOARGS, "The id of a new session."},
    {"session_fork", RNPY_METHOD(rnpy_session_fork), METH_O, "session_fork(id): the id of a copy."},
    {"session_free", RNPY_METHOD(rnpy_session_free), METH_O, "session_free(id)"},
    {"session_export", RNPY_METHOD(rnpy_session_export), METH_VARARGS, "session_export(id, options, host): a Stream."},
    {"session_import", RNPY_METHOD(rnpy_session_import), METH_VARARGS, "session_import(options, host): (id, Stream)."},
    {"embed", RNPY_METHOD(rnpy_embed), METH_VARARGS, "embed(options, host): a Stream."},
    {"score", RNPY_METHOD(rnpy_score), METH_VARARGS, "score(options, host): a Stream."},
    {"scores", RNPY_METHOD(rnpy_scores), METH_NOARGS, "What the model scores; its labels."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, RNPY_SLOT(model_new)},
    {Py_tp_dealloc, RNPY_SLOT(model_dealloc)},
    {Py_tp_traverse, RNPY_SLOT(model_traverse)},
    {Py_tp_clear, RNPY_SLOT(model_clear)},
    {Py_tp_methods, methods},
    {0, NULL},
};
static PyType_Spec spec = {"runnel._runnel.Model", sizeof(rnpy_model), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
                           slots};

int rnpy_model_ready(PyObject *module)
{
    rnpy_model_type = rnpy_add_type(module, &spec);
    return rnpy_model_type == NULL ? -1 : 0;
}
