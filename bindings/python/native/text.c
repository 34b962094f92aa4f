/* Tokens and templates: calls whose answer is as long as it is. They are made with a guess of its size, and once more
 * where that was too small; without the GIL. */
#include "binding.h"

#include <stdlib.h>
#include <string.h>

#include "runnel_infill.h"

PyObject *rnpy_written(rnpy_writer write, void *job, size_t unit, size_t guess, char format)
{
    size_t n = guess, capacity;
    runnel_error error = {0};
    runnel_status status;
    PyObject *result = NULL;
    char *room = NULL;

    do {
        capacity = n + 16;
        free(room);
        room = malloc(capacity * unit);
        if (room == NULL)
            return PyErr_NoMemory();
        rnpy_gil_release();
        status = write(job, room, capacity, &n, &error);
        rnpy_gil_restore();
    } while (status == RUNNEL_OK && n > capacity);
    if (status != RUNNEL_OK)
        rnpy_raise_error(status, &error);
    else if (format == 'i')
        result = rnpy_view(room, n * unit, "i");
    else if (format == 's')
        result = PyUnicode_DecodeUTF8(room, (Py_ssize_t)n, "replace");
    else
        result = PyBytes_FromStringAndSize(room, (Py_ssize_t)n);
    free(room);
    return result;
}

/* ---- Of a model ---------------------------------------------------------------------------- */

typedef struct text_job {
    runnel_model *model;
    const char *text;
    size_t bytes;
    const int32_t *tokens;
    size_t n_tokens;
    int32_t token;
    unsigned flags;
    runnel_chat chat;
    runnel_infill infill;
    const char *context; /* of a template by itself */
    size_t context_bytes;
    long long now_s;
} text_job;

/* Of a call that fills no error: why its arguments are invalid. */
static runnel_status explained(runnel_status status, const char *invalid, runnel_error *error)
{
    if (status == RUNNEL_INVALID)
        snprintf(error->message, sizeof error->message, "%s", invalid);
    return status;
}

static runnel_status write_tokens(void *user, void *room, size_t capacity, size_t *n, runnel_error *error)
{
    text_job *job = user;

    return explained(runnel_tokenize(job->model, job->text, job->bytes, job->flags, room, capacity, n),
                     "the text is not UTF-8, or has 2 GiB or more", error);
}

static runnel_status write_text(void *user, void *room, size_t capacity, size_t *n, runnel_error *error)
{
    text_job *job = user;

    return explained(runnel_detokenize(job->model, job->tokens, job->n_tokens, (int)job->flags, room, capacity, n),
                     "one of the tokens is not in the vocabulary", error);
}

static runnel_status write_token_text(void *user, void *room, size_t capacity, size_t *n, runnel_error *error)
{
    text_job *job = user;

    return explained(runnel_token_text(job->model, job->token, (int)job->flags, room, capacity, n),
                     "the token is not in the vocabulary", error);
}

static runnel_status write_chat_tokens(void *user, void *room, size_t capacity, size_t *n, runnel_error *error)
{
    text_job *job = user;

    return runnel_tokenize_chat(job->model, &job->chat, room, capacity, n, error);
}

static runnel_status write_chat(void *user, void *room, size_t capacity, size_t *n, runnel_error *error)
{
    text_job *job = user;

    return runnel_apply_template(job->model, &job->chat, room, capacity, n, error);
}

static runnel_status write_infill(void *user, void *room, size_t capacity, size_t *n, runnel_error *error)
{
    text_job *job = user;

    return runnel_tokenize_infill(job->model, &job->infill, room, capacity, n, error);
}

static runnel_status write_rendered(void *user, void *room, size_t capacity, size_t *n, runnel_error *error)
{
    text_job *job = user;

    return runnel_render_template(job->text, job->bytes, job->context, job->context_bytes, job->now_s, room, capacity,
                                  n, error);
}

/* With the model entered, if its arguments could be read. Takes over the reference to `keep`. */
static PyObject *run_on(PyObject *self, text_job *job, bool ready, rnpy_writer write, size_t unit, size_t guess,
                        char format, PyObject *keep)
{
    PyObject *result = NULL;

    job->model = ready ? rnpy_model_enter((rnpy_model *)self) : NULL;
    if (job->model != NULL) {
        result = rnpy_written(write, job, unit, guess, format);
        rnpy_model_leave((rnpy_model *)self);
    }
    Py_XDECREF(keep);
    return result;
}

PyObject *rnpy_tokenize(PyObject *self, PyObject *arguments)
{
    PyObject *text, *keep = PyList_New(0);
    text_job job = {0};
    bool ready = keep != NULL && PyArg_ParseTuple(arguments, "OI", &text, &job.flags) &&
                 rnpy_text(text, "text", &job.text, &job.bytes, keep) == 0;

    return run_on(self, &job, ready, write_tokens, sizeof(int32_t), job.bytes, 'i', keep);
}

PyObject *rnpy_detokenize(PyObject *self, PyObject *arguments)
{
    PyObject *tokens, *keep = PyList_New(0);
    text_job job = {0};
    bool ready = keep != NULL && PyArg_ParseTuple(arguments, "OI", &tokens, &job.flags) &&
                 rnpy_ints(tokens, "tokens", &job.tokens, &job.n_tokens, keep) == 0;

    return run_on(self, &job, ready, write_text, 1, job.n_tokens * 8, 'b', keep);
}

PyObject *rnpy_token_text(PyObject *self, PyObject *arguments)
{
    PyObject *token;
    text_job job = {0};
    bool ready = PyArg_ParseTuple(arguments, "OI", &token, &job.flags) && rnpy_int(token, "token", &job.token) == 0;

    return run_on(self, &job, ready, write_token_text, 1, 16, 'b', NULL);
}

static bool read_chat(PyObject *options, text_job *job, PyObject *keep)
{
    runnel_chat_default(&job->chat);
    if (keep == NULL || !PyDict_Check(options)) {
        PyErr_SetString(PyExc_TypeError, "a dict is wanted");
        return false;
    }
    return rnpy_set_fields(&rnpy_chat_fields, &job->chat, options, keep) == 0;
}

PyObject *rnpy_tokenize_chat(PyObject *self, PyObject *options)
{
    PyObject *keep = PyList_New(0);
    text_job job = {0};

    return run_on(self, &job, read_chat(options, &job, keep), write_chat_tokens, sizeof(int32_t), 1024, 'i', keep);
}

PyObject *rnpy_apply_template(PyObject *self, PyObject *options)
{
    PyObject *keep = PyList_New(0);
    text_job job = {0};

    return run_on(self, &job, read_chat(options, &job, keep), write_chat, 1, 4096, 's', keep);
}

/* Pairs of a name, which may be None, and a text. */
static bool read_files(PyObject *list, runnel_infill *infill, PyObject *keep)
{
    Py_ssize_t n = PyList_Size(list);
    runnel_infill_file *files = n < 0 ? NULL : rnpy_room((size_t)n * sizeof *files, keep);

    for (Py_ssize_t i = 0; files != NULL && i < n; i++) {
        PyObject *name, *text;

        memset(&files[i], 0, sizeof files[i]);
        if (!PyArg_ParseTuple(PyList_GetItem(list, i), "OO", &name, &text) ||
            (name != Py_None && rnpy_ended_text(name, "name", &files[i].name, keep) < 0) ||
            rnpy_text(text, "text", &files[i].text, &files[i].text_bytes, keep) < 0)
            return false;
    }
    infill->files = files;
    infill->n_files = n < 0 ? 0 : (size_t)n;
    return files != NULL;
}

PyObject *rnpy_tokenize_infill(PyObject *self, PyObject *arguments)
{
    PyObject *options, *files, *keep = PyList_New(0);
    text_job job = {0};
    bool ready = keep != NULL && PyArg_ParseTuple(arguments, "O!O!", &PyDict_Type, &options, &PyList_Type, &files);

    runnel_infill_default(&job.infill);
    ready = ready && rnpy_set_fields(&rnpy_infill_fields, &job.infill, options, keep) == 0 &&
            read_files(files, &job.infill, keep);
    return run_on(self, &job, ready, write_infill, sizeof(int32_t), 4096, 'i', keep);
}

PyObject *rnpy_model_template(PyObject *object, PyObject *argument)
{
    runnel_template_info info = {.struct_size = sizeof info};
    unsigned long index = PyLong_AsUnsignedLong(argument);
    runnel_model *model = PyErr_Occurred() ? NULL : rnpy_model_enter((rnpy_model *)object);
    runnel_error error = {0};
    runnel_status status;

    if (model == NULL)
        return NULL;
    status = runnel_model_template(model, (uint32_t)index, &info, &error);
    rnpy_model_leave((rnpy_model *)object);
    return status == RUNNEL_OK ? rnpy_get_fields(&rnpy_template_fields, &info) : rnpy_raise_error(status, &error);
}

typedef runnel_status check_fn(runnel_model *model, const runnel_request *request, runnel_error *error);

static PyObject *check(PyObject *object, PyObject *options, check_fn *judge)
{
    rnpy_request request = {0};
    runnel_error error = {0};
    runnel_status status = RUNNEL_INVALID;
    runnel_model *model = NULL;

    if (rnpy_request_init(&request, options) == 0)
        model = rnpy_model_enter((rnpy_model *)object);
    if (model != NULL) {
        rnpy_gil_release();
        status = judge(model, &request.request, &error);
        rnpy_gil_restore();
        rnpy_model_leave((rnpy_model *)object);
    }
    rnpy_request_fini(&request);
    if (model == NULL)
        return NULL;
    if (status != RUNNEL_OK)
        return rnpy_raise_error(status, &error);
    Py_RETURN_NONE;
}

PyObject *rnpy_grammar_check(PyObject *object, PyObject *options)
{
    return check(object, options, runnel_grammar_check);
}

PyObject *rnpy_sampling_check(PyObject *object, PyObject *options)
{
    return check(object, options, runnel_sampling_check);
}

/* ---- Recommended sampling ------------------------------------------------------------------- */

static const struct {
    uint32_t flag;
    const char *name;
} recommendable[] = {
    {RUNNEL_RECOMMENDED_TEMPERATURE, "temperature"},
    {RUNNEL_RECOMMENDED_TOP_K, "top_k"},
    {RUNNEL_RECOMMENDED_TOP_P, "top_p"},
    {RUNNEL_RECOMMENDED_MIN_P, "min_p"},
    {RUNNEL_RECOMMENDED_REPETITION_PENALTY, "repetition_penalty"},
    {RUNNEL_RECOMMENDED_PENALTY_TOKENS, "penalty_tokens"},
    {RUNNEL_RECOMMENDED_XTC_PROBABILITY, "xtc_probability"},
    {RUNNEL_RECOMMENDED_XTC_THRESHOLD, "xtc_threshold"},
    {RUNNEL_RECOMMENDED_MIROSTAT, "mirostat"},
    {RUNNEL_RECOMMENDED_MIROSTAT_TAU, "mirostat_tau"},
    {RUNNEL_RECOMMENDED_MIROSTAT_ETA, "mirostat_eta"},
};

PyObject *rnpy_recommended(const runnel_sampling *sampling, const runnel_samplers *samplers, uint32_t flags)
{
    PyObject *one = rnpy_get_fields(&rnpy_sampling_fields, sampling);
    PyObject *other = rnpy_get_fields(&rnpy_samplers_fields, samplers);
    PyObject *result = one == NULL || other == NULL ? NULL : PyDict_New();

    for (size_t i = 0; result != NULL && i < sizeof recommendable / sizeof recommendable[0]; i++) {
        PyObject *value;

        if ((flags & recommendable[i].flag) == 0)
            continue;
        value = PyDict_GetItemString(one, recommendable[i].name);
        if (value == NULL)
            value = PyDict_GetItemString(other, recommendable[i].name);
        if (value == NULL || PyDict_SetItemString(result, recommendable[i].name, value) < 0)
            Py_CLEAR(result);
    }
    Py_XDECREF(one);
    Py_XDECREF(other);
    return result;
}

PyObject *rnpy_model_sampling(PyObject *object, PyObject *unused)
{
    runnel_model *model = rnpy_model_enter((rnpy_model *)object);
    runnel_sampling sampling = {0};
    runnel_samplers samplers;
    uint32_t flags = 0, more = 0;
    runnel_status status;

    (void)unused;
    if (model == NULL)
        return NULL;
    runnel_samplers_default(&samplers);
    status = runnel_model_sampling(model, &sampling, &flags);
    if (status == RUNNEL_OK)
        status = runnel_model_samplers(model, &samplers, &more);
    rnpy_model_leave((rnpy_model *)object);
    return status == RUNNEL_OK ? rnpy_recommended(&sampling, &samplers, flags | more) : rnpy_raise(status, NULL, 0);
}

/* ---- Templates by themselves ---------------------------------------------------------------- */

PyObject *rnpy_render_template(PyObject *module, PyObject *arguments)
{
    PyObject *text, *context, *result = NULL, *keep = PyList_New(0);
    text_job job = {0};

    (void)module;
    if (keep != NULL && PyArg_ParseTuple(arguments, "OOL", &text, &context, &job.now_s) &&
        rnpy_text(text, "template", &job.text, &job.bytes, keep) == 0 &&
        rnpy_text(context, "context", &job.context, &job.context_bytes, keep) == 0)
        result = rnpy_written(write_rendered, &job, 1, 4096, 's');
    Py_XDECREF(keep);
    return result;
}

PyObject *rnpy_inspect_template(PyObject *module, PyObject *text)
{
    runnel_template_info info = {.struct_size = sizeof info};
    PyObject *keep = PyList_New(0);
    runnel_error error = {0};
    runnel_status status;
    const char *source;
    size_t bytes;

    (void)module;
    if (keep == NULL || rnpy_text(text, "template", &source, &bytes, keep) < 0) {
        Py_XDECREF(keep);
        return NULL;
    }
    rnpy_gil_release();
    status = runnel_inspect_template(source, bytes, &info, &error);
    rnpy_gil_restore();
    Py_DECREF(keep);
    return status == RUNNEL_OK ? rnpy_get_fields(&rnpy_template_fields, &info) : rnpy_raise_error(status, &error);
}
