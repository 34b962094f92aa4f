/* The module runnel._runnel, its exceptions and constants. What it keeps are types and names, made once in a process:
 * a second interpreter is refused, and so is a second import in the first. */
#include "binding.h"

#include <stdarg.h>
#include <string.h>

#include "constants.h"

#define STATUS_COUNT(name, value, sentence) +1
#define N_STATUSES (0 RUNNEL_STATUS_MAP(STATUS_COUNT))

static PyObject *base_error;         /* NULL: the module is not in use */
static int64_t interpreter;          /* that it is in use by */
static PyObject *errors[N_STATUSES]; /* by -status; OK has none */

/* ---- Errors -------------------------------------------------------------------------------- */

static PyObject *error_of(runnel_status status)
{
    int index = -(int)status;

    return index > 0 && index < N_STATUSES && errors[index] != NULL ? errors[index] : base_error;
}

PyObject *rnpy_raise(runnel_status status, const char *message, uint32_t retry_ms)
{
    PyObject *type = error_of(status), *text, *error, *retry;

    if (message == NULL || message[0] == '\0')
        message = runnel_status_text(status);
    text = rnpy_str(message);
    error = text == NULL ? NULL : PyObject_CallFunctionObjArgs(type, text, NULL);
    Py_XDECREF(text);
    if (error == NULL)
        return NULL;
    if (retry_ms > 0) {
        retry = PyFloat_FromDouble((double)retry_ms / 1000);
        if (retry == NULL || PyObject_SetAttrString(error, "retry_after", retry) < 0) {
            Py_XDECREF(retry);
            Py_DECREF(error);
            return NULL;
        }
        Py_DECREF(retry);
    }
    PyErr_SetObject(type, error);
    Py_DECREF(error);
    return NULL;
}

PyObject *rnpy_raise_error(runnel_status status, const runnel_error *error)
{
    return rnpy_raise(status, error == NULL ? NULL : error->message, error == NULL ? 0 : error->retry_ms);
}

PyObject *rnpy_invalid(const char *format, ...)
{
    char message[RUNNEL_ERROR_BYTES];
    va_list list;

    va_start(list, format);
    vsnprintf(message, sizeof message, format, list);
    va_end(list);
    return rnpy_raise(RUNNEL_INVALID, message, 0);
}

/* "NOT_FOUND" to "NotFoundError". */
static void error_name(const char *status, char *name, size_t room)
{
    bool upper = true;
    size_t n = 0;

    for (; *status != '\0' && n + 6 < room; status++) {
        if (*status == '_') {
            upper = true;
            continue;
        }
        name[n++] = upper || strcmp(status, "O") == 0 ? *status : (char)(*status + ('a' - 'A'));
        upper = false;
    }
    memcpy(name + n, "Error", 6);
}

/* The built-in exception that a handler may know already. */
static PyObject *parent_of(runnel_status status)
{
    switch (status) {
    case RUNNEL_INVALID:
        return PyExc_ValueError;
    case RUNNEL_NO_MEMORY:
        return PyExc_MemoryError;
    case RUNNEL_NOT_FOUND:
        return PyExc_LookupError;
    case RUNNEL_IO:
        return PyExc_OSError;
    case RUNNEL_TIMEOUT:
        return PyExc_TimeoutError;
    default:
        return NULL;
    }
}

static PyObject *error_members(runnel_status status, const char *name)
{
    PyObject *members = PyDict_New();

    if (members == NULL)
        return NULL;
    Py_INCREF(Py_None);
    if (rnpy_put(members, "status", PyLong_FromLong(status)) < 0 ||
        rnpy_put(members, "name", PyUnicode_FromString(name)) < 0 || rnpy_put(members, "retry_after", Py_None) < 0)
        Py_CLEAR(members);
    return members;
}

static PyObject *make_error(const char *name, PyObject *bases, PyObject *members, const char *sentence)
{
    char full[96];

    snprintf(full, sizeof full, "runnel.%s", name);
    return PyErr_NewExceptionWithDoc(full, sentence, bases, members);
}

static int add_error(PyObject *module, runnel_status status, const char *spelled, const char *sentence)
{
    PyObject *parent = parent_of(status), *members = error_members(status, spelled);
    PyObject *bases = parent == NULL ? PyTuple_Pack(1, base_error) : PyTuple_Pack(2, base_error, parent);
    PyObject *error = NULL;
    char name[64];

    error_name(spelled, name, sizeof name);
    if (members != NULL && bases != NULL)
        error = make_error(name, bases, members, sentence);
    Py_XDECREF(members);
    Py_XDECREF(bases);
    if (error == NULL)
        return -1;
    errors[-(int)status] = error;
    Py_INCREF(error);
    return PyModule_AddObject(module, name, error);
}

static int add_errors(PyObject *module)
{
    PyObject *members = error_members(RUNNEL_OK, "");

    base_error =
        members == NULL ? NULL : make_error("Error", NULL, members, "What a call of runnel returned instead of OK.");
    Py_XDECREF(members);
    if (base_error == NULL)
        return -1;
    Py_INCREF(base_error);
    if (PyModule_AddObject(module, "Error", base_error) < 0)
        return -1;
#define ADD_ERROR(name, value, sentence)                                 \
    if ((value) != 0 && add_error(module, (value), #name, sentence) < 0) \
        return -1;
    RUNNEL_STATUS_MAP(ADD_ERROR)
    return 0;
}

/* ---- Constants ------------------------------------------------------------------------------ */

/* {"KvType": {"F16": 0, ...}, ...}: __init__.py makes enumerations of them. */
static int add_enums(PyObject *module)
{
    PyObject *all = PyDict_New(), *one = NULL;

#define ENUM_BEGIN(name)                                          \
    one = all == NULL ? NULL : PyDict_New();                      \
    if (one == NULL || PyDict_SetItemString(all, #name, one) < 0) \
        return -1;                                                \
    Py_DECREF(one);
#define ENUM_VALUE(prefix, name)                                              \
    if (rnpy_put(one, #name, PyLong_FromLongLong(RUNNEL_##prefix##name)) < 0) \
        return -1;
#define EVENT_VALUE(name, value) ENUM_VALUE(EVENT_, name)
#define PHASE_VALUE(name, value) ENUM_VALUE(PHASE_, name)
#define REST_VALUE(name, value, sentence) ENUM_VALUE(REST_, name)
#define STATUS_VALUE(name, value, sentence) ENUM_VALUE(, name)
#define ADD_ENUM(name) ENUM_BEGIN(name) ENUM_##name(ENUM_VALUE)
    ALL_ENUMS(ADD_ENUM)
    ENUM_BEGIN(EventType)
    RUNNEL_EVENT_MAP(EVENT_VALUE)
    ENUM_BEGIN(Phase)
    RUNNEL_PHASE_MAP(PHASE_VALUE)
    ENUM_BEGIN(Rest)
    RUNNEL_REST_MAP(REST_VALUE)
    ENUM_BEGIN(Status)
    RUNNEL_STATUS_MAP(STATUS_VALUE)
    return PyModule_AddObject(module, "enums", all);
}

static int add_limits(PyObject *module)
{
#define LIMIT(name)                                                      \
    if (PyModule_AddIntConstant(module, #name, (long)RUNNEL_##name) < 0) \
        return -1;
    ALL_LIMITS(LIMIT)
    return PyModule_AddStringConstant(module, "library_version", runnel_version());
}

PyTypeObject *rnpy_add_type(PyObject *module, PyType_Spec *spec)
{
    PyObject *type = PyType_FromSpec(spec);
    const char *name = strrchr(spec->name, '.');

    if (type == NULL)
        return NULL;
    Py_INCREF(type);
    if (PyModule_AddObject(module, name + 1, type) < 0)
        return NULL;
    return (PyTypeObject *)type;
}

PyObject *rnpy_no_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    (void)arguments;
    (void)keywords;
    return PyErr_Format(PyExc_TypeError, "%R is made by runnel alone", (PyObject *)type);
}

void rnpy_free_object(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);

    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static PyObject *names_of(PyObject *self, PyObject *arguments)
{
    (void)self;
    (void)arguments;
    return rnpy_option_names();
}

static PyMethodDef functions[] = {
    {"option_names", names_of, METH_NOARGS, "Names of a request's options, by the struct they belong to."},
    {"render_template", RNPY_METHOD(rnpy_render_template), METH_VARARGS, "render_template(template, context, now_s)"},
    {"inspect_template", RNPY_METHOD(rnpy_inspect_template), METH_O, "What a template does, as a dict."},
    {"read_note", RNPY_METHOD(rnpy_read_note), METH_O, "The note of a session's file, as bytes."},
    {"architectures", RNPY_METHOD(rnpy_all_architectures), METH_NOARGS, "Those that load: (name, features) each."},
    {"cache_ls", RNPY_METHOD(rnpy_cache_ls), METH_VARARGS, "cache_ls(path): (entries, totals)."},
    {"cache_inspect", RNPY_METHOD(rnpy_cache_inspect), METH_VARARGS, "cache_inspect(path, fingerprint): records."},
    {"cache_verify", RNPY_METHOD(rnpy_cache_verify), METH_VARARGS,
     "cache_verify(path, fingerprint): (damages, totals)."},
    {"cache_purge", RNPY_METHOD(rnpy_cache_purge), METH_VARARGS, "cache_purge(path, options): totals."},
    {"piece_of", rnpy_piece_of, METH_VARARGS, "piece_of(*parts): a Piece of what its _parts() gave."},
    {"logprob_of", rnpy_logprob_of, METH_VARARGS, "logprob_of(logits, token, n_top): its logprob and the likeliest."},
    {NULL, NULL, 0, NULL},
};

static int refuse(void)
{
    bool same = PyInterpreterState_GetID(PyInterpreterState_Get()) == interpreter;

    PyErr_SetString(PyExc_ImportError,
                    same ? "runnel is imported already and cannot be imported again: leave it in sys.modules"
                         : "runnel is in use by another interpreter of this process");
    return -1;
}

static int fill(PyObject *module)
{
    if (add_errors(module) < 0 || add_enums(module) < 0 || add_limits(module) < 0)
        return -1;
    if (rnpy_piece_ready(module) < 0 || rnpy_waiters_ready() < 0 || rnpy_stream_ready(module) < 0 ||
        rnpy_reader_ready(module) < 0 || rnpy_watch_ready(module) < 0)
        return -1;
    if (rnpy_engine_ready(module) < 0 || rnpy_model_ready(module) < 0)
        return -1;
    return rnpy_file_ready(module) < 0 || rnpy_training_ready(module) < 0 ? -1 : 0;
}

/* After a failure it may be tried again. */
static int execute(PyObject *module)
{
    if (base_error != NULL)
        return refuse();
    interpreter = PyInterpreterState_GetID(PyInterpreterState_Get());
    if (fill(module) == 0)
        return 0;
    Py_CLEAR(base_error);
    return -1;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, RNPY_SLOT(execute)},
#ifdef Py_GIL_DISABLED
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    "runnel._runnel",
    "runnel's library as Python sees it.",
    0,
    functions,
    slots,
    NULL,
    NULL,
    NULL,
};

PyMODINIT_FUNC PyInit__runnel(void)
{
    return PyModuleDef_Init(&definition);
}
