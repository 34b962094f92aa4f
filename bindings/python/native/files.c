/* File: a GGUF file opened for inspection; and cache folders. All of it blocks on the disk, without the GIL. Threads
 * may look into one file at once; who sets its architectures has it alone. */
#include "binding.h"

#include <limits.h>
#include <string.h>

#include "runnel_files.h"

typedef struct file {
    PyObject_HEAD runnel_file *file;
    atomic_int users; /* calls inside, and one until it is closed; the last frees the file. Below 0: ALONE is added */
    atomic_int closed;
} file;

enum { ALONE = -(1 << 30) };

/* Between enter and leave the file stays. NULL: an exception. */
static runnel_file *enter(PyObject *object)
{
    file *self = (file *)object;
    int users = atomic_load(&self->users);

    while (users > 0 && !atomic_load(&self->closed))
        if (atomic_compare_exchange_weak(&self->users, &users, users + 1))
            return self->file;
    if (users < 0)
        rnpy_raise(RUNNEL_STATE, "another thread sets the file's architectures", 0);
    else
        rnpy_raise(RUNNEL_CLOSED, "the file is closed", 0);
    return NULL;
}

static void leave(PyObject *object)
{
    file *self = (file *)object;

    if (atomic_fetch_sub(&self->users, 1) == 1)
        runnel_file_close(self->file);
}

/* Of one that has entered: nobody else is inside, nor comes in until it has left. */
static bool enter_alone(PyObject *object)
{
    int alone = 2;

    if (atomic_compare_exchange_strong(&((file *)object)->users, &alone, ALONE + 2))
        return true;
    rnpy_raise(RUNNEL_STATE, "another thread looks into the file", 0);
    return false;
}

static void leave_alone(PyObject *object)
{
    atomic_fetch_sub(&((file *)object)->users, ALONE);
}

static PyObject *dict_of(runnel_status status, const runnel_error *error, const rnpy_fields *fields, const void *base)
{
    return status == RUNNEL_OK ? rnpy_get_fields(fields, base) : rnpy_raise_error(status, error);
}

static PyObject *file_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    PyObject *path, *keep = PyList_New(0);
    runnel_error error = {0};
    runnel_status status;
    file *self = NULL;
    const char *text;

    (void)keywords;
    if (keep != NULL && PyArg_ParseTuple(arguments, "O", &path) && rnpy_ended_text(path, "path", &text, keep) == 0)
        self = (file *)PyType_GenericAlloc(type, 0);
    if (self != NULL) {
        Py_BEGIN_ALLOW_THREADS status = runnel_file_open(text, &self->file, &error);
        Py_END_ALLOW_THREADS if (status != RUNNEL_OK)
        {
            Py_CLEAR(self);
            rnpy_raise_error(status, &error);
        }
    }
    if (self != NULL)
        atomic_store(&self->users, 1);
    Py_XDECREF(keep);
    return (PyObject *)self;
}

static void close_file(PyObject *object)
{
    if (!atomic_exchange(&((file *)object)->closed, 1))
        leave(object);
}

static PyObject *file_close(PyObject *object, PyObject *unused)
{
    (void)unused;
    close_file(object);
    Py_RETURN_NONE;
}

static void file_dealloc(PyObject *object)
{
    close_file(object);
    rnpy_free_object(object);
}

static PyObject *file_info(PyObject *object, PyObject *unused)
{
    runnel_file_info info = {.struct_size = sizeof info};
    runnel_file *open = enter(object);
    PyObject *dict;

    (void)unused;
    if (open == NULL)
        return NULL;
    dict = dict_of(runnel_file_get_info(open, &info), NULL, &rnpy_file_info_fields, &info);
    leave(object);
    return dict;
}

static PyObject *file_metadata(PyObject *object, PyObject *argument)
{
    runnel_metadata entry = {.struct_size = sizeof entry};
    unsigned long long index = PyLong_AsUnsignedLongLong(argument);
    runnel_file *open = PyErr_Occurred() ? NULL : enter(object);
    PyObject *dict = NULL;
    runnel_status status;

    if (open == NULL)
        return NULL;
    status = runnel_file_metadata(open, index, &entry);
    if (status != RUNNEL_OK)
        rnpy_raise(status, NULL, 0);
    else
        dict = Py_BuildValue("{s:N,s:s,s:K}", "key", rnpy_str_n(entry.key, entry.key_bytes), "type", entry.type,
                             "count", (unsigned long long)entry.count);
    leave(object);
    return dict;
}

typedef struct value_job {
    runnel_file *file;
    unsigned long long index, element;
} value_job;

static runnel_status write_value(void *user, void *room, size_t capacity, size_t *n, runnel_error *error)
{
    value_job *job = user;

    (void)error;
    return runnel_file_metadata_text(job->file, job->index, job->element, room, capacity, n);
}

static PyObject *file_metadata_text(PyObject *object, PyObject *arguments)
{
    PyObject *text;
    value_job job;

    if (!PyArg_ParseTuple(arguments, "KK", &job.index, &job.element) || (job.file = enter(object)) == NULL)
        return NULL;
    text = rnpy_written(write_value, &job, 1, 64, 's');
    leave(object);
    return text;
}

static PyObject *file_tensor(PyObject *object, PyObject *argument)
{
    runnel_tensor tensor = {.struct_size = sizeof tensor};
    unsigned long long index = PyLong_AsUnsignedLongLong(argument);
    runnel_file *open = PyErr_Occurred() ? NULL : enter(object);
    PyObject *dict;

    if (open == NULL)
        return NULL;
    dict = dict_of(runnel_file_tensor(open, index, &tensor), NULL, &rnpy_tensor_fields, &tensor);
    leave(object);
    return dict;
}

static PyObject *file_set_architectures(PyObject *object, PyObject *list)
{
    PyObject *keep = PyList_New(0);
    const runnel_architecture_row *const *rows;
    runnel_file *open = NULL;
    runnel_error error = {0};
    runnel_status status = RUNNEL_INVALID;
    size_t n;
    bool ready = keep != NULL && rnpy_architectures(list, &rows, &n, keep) == 0 && (open = enter(object)) != NULL &&
                 enter_alone(object);

    if (ready) {
        status = runnel_file_set_architectures(open, rows, n, &error);
        leave_alone(object);
    }
    if (open != NULL)
        leave(object);
    Py_XDECREF(keep);
    if (!ready)
        return NULL;
    if (status != RUNNEL_OK)
        return rnpy_raise_error(status, &error);
    Py_RETURN_NONE;
}

static PyObject *file_kv_bytes(PyObject *object, PyObject *argument)
{
    long type = PyLong_AsLong(argument);
    runnel_file *open = PyErr_Occurred() ? NULL : enter(object);
    runnel_error error = {0};
    runnel_status status;
    uint64_t bytes = 0;

    if (open == NULL)
        return NULL;
    status = type < 0 || type > INT_MAX ? RUNNEL_INVALID
                                        : runnel_file_kv_bytes_per_token(open, (runnel_kv_type)type, &bytes, &error);
    leave(object);
    return status == RUNNEL_OK ? PyLong_FromUnsignedLongLong(bytes) : rnpy_raise_error(status, &error);
}

static PyObject *file_template(PyObject *object, PyObject *argument)
{
    runnel_template_info info = {.struct_size = sizeof info};
    unsigned long index = PyLong_AsUnsignedLong(argument);
    runnel_file *open = PyErr_Occurred() ? NULL : enter(object);
    runnel_error error = {0};
    runnel_status status;
    PyObject *dict;

    if (open == NULL)
        return NULL;
    rnpy_gil_release();
    status = runnel_file_template(open, (uint32_t)index, &info, &error);
    rnpy_gil_restore();
    dict = dict_of(status, &error, &rnpy_template_fields, &info);
    leave(object);
    return dict;
}

static PyObject *file_sampling(PyObject *object, PyObject *unused)
{
    runnel_file *open = enter(object);
    runnel_sampling sampling = {0};
    runnel_samplers samplers;
    uint32_t flags = 0, more = 0;
    runnel_status status;

    (void)unused;
    if (open == NULL)
        return NULL;
    runnel_samplers_default(&samplers);
    status = runnel_file_sampling(open, &sampling, &flags);
    if (status == RUNNEL_OK)
        status = runnel_file_samplers(open, &samplers, &more);
    leave(object);
    return status == RUNNEL_OK ? rnpy_recommended(&sampling, &samplers, flags | more) : rnpy_raise(status, NULL, 0);
}

static runnel_status write_plan(void *open, void *room, size_t capacity, size_t *n, runnel_error *error)
{
    return runnel_file_plan(open, room, capacity, n, error);
}

static PyObject *file_plan(PyObject *object, PyObject *unused)
{
    runnel_file *open = enter(object);
    PyObject *text;

    (void)unused;
    if (open == NULL)
        return NULL;
    text = rnpy_written(write_plan, open, 1, 8192, 's');
    leave(object);
    return text;
}

static PyMethodDef methods[] = {
    {"close", RNPY_METHOD(file_close), METH_NOARGS, "Closes the file."},
    {"info", RNPY_METHOD(file_info), METH_NOARGS, "runnel_file_info as a dict."},
    {"metadata", RNPY_METHOD(file_metadata), METH_O, "Entry `index`: key, type, count."},
    {"metadata_text", RNPY_METHOD(file_metadata_text), METH_VARARGS, "Element of an entry, as text."},
    {"tensor", RNPY_METHOD(file_tensor), METH_O, "Tensor `index`."},
    {"set_architectures", RNPY_METHOD(file_set_architectures), METH_O, "Rows for architectures that are not known."},
    {"kv_bytes_per_token", RNPY_METHOD(file_kv_bytes), METH_O, "Bytes of KV that one position needs."},
    {"template", RNPY_METHOD(file_template), METH_O, "Chat template `index`."},
    {"sampling", RNPY_METHOD(file_sampling), METH_NOARGS, "Sampling that the file recommends."},
    {"plan", RNPY_METHOD(file_plan), METH_NOARGS, "The forward pass as text."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, RNPY_SLOT(file_new)}, {Py_tp_dealloc, RNPY_SLOT(file_dealloc)}, {Py_tp_methods, methods}, {0, NULL}};
static PyType_Spec spec = {"runnel._runnel.File", sizeof(file), 0, Py_TPFLAGS_DEFAULT, slots};

int rnpy_file_ready(PyObject *module)
{
    return rnpy_add_type(module, &spec) == NULL ? -1 : 0;
}

/* ---- Architectures -------------------------------------------------------------------------- */

PyObject *rnpy_all_architectures(PyObject *module, PyObject *unused)
{
    char features[RUNNEL_FEATURES_BYTES];
    PyObject *list = PyList_New(0);
    const char *name;

    (void)module;
    (void)unused;
    for (uint32_t i = 0; list != NULL && (name = runnel_architecture(i, features)) != NULL; i++) {
        PyObject *row = Py_BuildValue("(ss)", name, features);

        if (row == NULL || PyList_Append(list, row) < 0)
            Py_CLEAR(list);
        Py_XDECREF(row);
    }
    return list;
}

/* ---- Cache folders -------------------------------------------------------------------------- */

/* What a callback of a cache call appends to. A failure is kept, and the rest is passed over. */
typedef struct found {
    PyObject *list;
    bool failed;
} found;

static void add(found *all, const rnpy_fields *fields, const void *row)
{
    PyThreadState *taken;
    PyObject *dict;

    if (all->failed)
        return;
    taken = rnpy_gil_take();
    dict = rnpy_get_fields(fields, row);
    all->failed = dict == NULL || PyList_Append(all->list, dict) < 0;
    Py_XDECREF(dict);
    rnpy_gil_give(taken);
}

static void on_entry(void *user, const runnel_cache_entry *entry)
{
    add(user, &rnpy_entry_fields, entry);
}

static void on_record(void *user, const runnel_cache_record *record)
{
    add(user, &rnpy_record_fields, record);
}

static void on_damage(void *user, const runnel_cache_damage *damage)
{
    add(user, &rnpy_damage_fields, damage);
}

static PyObject *listed(found *all, runnel_status status, const runnel_error *error, const runnel_cache_totals *totals)
{
    if (all->failed || status != RUNNEL_OK) {
        Py_DECREF(all->list);
        return all->failed ? NULL : rnpy_raise_error(status, error);
    }
    if (totals == NULL)
        return all->list;
    return Py_BuildValue("(NN)", all->list, rnpy_get_fields(&rnpy_totals_fields, totals));
}

/* cache_ls(path): ([entry, ...], totals) */
PyObject *rnpy_cache_ls(PyObject *module, PyObject *arguments)
{
    runnel_cache_totals totals = {.struct_size = sizeof totals};
    found all = {.list = PyList_New(0)};
    runnel_error error = {0};
    runnel_status status;
    const char *path;

    (void)module;
    if (all.list == NULL || !PyArg_ParseTuple(arguments, "y", &path)) {
        Py_XDECREF(all.list);
        return NULL;
    }
    rnpy_gil_release();
    status = runnel_cache_ls(path, on_entry, &all, &totals, &error);
    rnpy_gil_restore();
    return listed(&all, status, &error, &totals);
}

/* cache_inspect(path, fingerprint): [record, ...] */
PyObject *rnpy_cache_inspect(PyObject *module, PyObject *arguments)
{
    found all = {.list = PyList_New(0)};
    const char *path, *fingerprint;
    runnel_error error = {0};
    runnel_status status;

    (void)module;
    if (all.list == NULL || !PyArg_ParseTuple(arguments, "yz", &path, &fingerprint)) {
        Py_XDECREF(all.list);
        return NULL;
    }
    rnpy_gil_release();
    status = runnel_cache_inspect(path, fingerprint, on_record, &all, &error);
    rnpy_gil_restore();
    return listed(&all, status, &error, NULL);
}

/* cache_verify(path, fingerprint): ([damage, ...], totals) */
PyObject *rnpy_cache_verify(PyObject *module, PyObject *arguments)
{
    runnel_cache_totals totals = {.struct_size = sizeof totals};
    found all = {.list = PyList_New(0)};
    const char *path, *fingerprint;
    runnel_error error = {0};
    runnel_status status;

    (void)module;
    if (all.list == NULL || !PyArg_ParseTuple(arguments, "yz", &path, &fingerprint)) {
        Py_XDECREF(all.list);
        return NULL;
    }
    rnpy_gil_release();
    status = runnel_cache_verify(path, fingerprint, on_damage, &all, &totals, &error);
    rnpy_gil_restore();
    return listed(&all, status, &error, &totals);
}

/* cache_purge(path, options): totals */
PyObject *rnpy_cache_purge(PyObject *module, PyObject *arguments)
{
    runnel_cache_totals totals = {.struct_size = sizeof totals};
    PyObject *options, *keep = PyList_New(0);
    runnel_cache_purge_options purge;
    runnel_error error = {0};
    runnel_status status = RUNNEL_INVALID;
    const char *path;
    bool ready;

    (void)module;
    runnel_cache_purge_options_default(&purge);
    ready = keep != NULL && PyArg_ParseTuple(arguments, "yO!", &path, &PyDict_Type, &options) &&
            rnpy_set_fields(&rnpy_purge_fields, &purge, options, keep) == 0;
    if (ready) {
        rnpy_gil_release();
        status = runnel_cache_purge(path, &purge, &totals, &error);
        rnpy_gil_restore();
    }
    Py_XDECREF(keep);
    if (!ready)
        return NULL;
    return status == RUNNEL_OK ? rnpy_get_fields(&rnpy_totals_fields, &totals) : rnpy_raise_error(status, &error);
}
