/* Members of C structs by name. The tables are those of runnel_fields.h where it has them; a member's kind follows from
 * its type, and a type that is not known here does not compile. */
#include "binding.h"

#include <string.h>

#include "runnel_fields.h"
#include "runnel_files.h"
#include "runnel_infill.h"
#include "runnel_scores.h"

#define ABSENT(type, member) ((type *)0)->member

#define KIND(value) \
    _Generic((value), float : RNPY_F32, double : RNPY_F64, uint8_t : RNPY_U8, int32_t : RNPY_I32, uint32_t : RNPY_U32, \
             int64_t : RNPY_I64, uint64_t : RNPY_U64, const char * : RNPY_TEXT, char * : RNPY_CHARS,                \
             const void * : RNPY_DATA, const char *const * : RNPY_TEXTS, const int32_t * : RNPY_INTS,               \
             const runnel_logit_bias * : RNPY_BIASES, const runnel_adapter * : RNPY_ADAPTERS,                       \
             runnel_session : RNPY_SESSION, runnel_stream : RNPY_SESSION,  \
             runnel_histogram : RNPY_HISTOGRAM, uint64_t * : RNPY_COUNTS, uint32_t * : RNPY_NUMBERS,                \
             const runnel_chat * : RNPY_OTHER, const runnel_message * : RNPY_OTHER, const runnel_grammar * : RNPY_OTHER, \
             const runnel_samplers * : RNPY_OTHER, const runnel_infill_file * : RNPY_OTHER,                         \
             const runnel_architecture_row *const * : RNPY_OTHER, runnel_event_fn : RNPY_OTHER,                     \
             runnel_choose_fn : RNPY_OTHER, runnel_load_fn : RNPY_OTHER, runnel_log_fn : RNPY_OTHER,                \
             runnel_trace_fn : RNPY_OTHER, runnel_allocator : RNPY_OTHER, void * : RNPY_OTHER)

/* size_t and uint64_t are one type here: what counts is told by its name */
#define FIELD(type, member) {#member, offsetof(type, member), sizeof(ABSENT(type, member)), KIND(ABSENT(type, member))},
#define COUNT(type, member) {#member, offsetof(type, member), sizeof(ABSENT(type, member)), RNPY_SIZE},
#define TABLE(name, rows)                           \
    static const rnpy_field name##_rows[] = {rows}; \
    const rnpy_fields rnpy_##name##_fields = {name##_rows, sizeof name##_rows / sizeof name##_rows[0]};

#define REQUEST(type, member) FIELD(runnel_request, member)
#define SAMPLING(type, member) FIELD(runnel_sampling, member)
#define SAMPLERS(type, member) FIELD(runnel_samplers, member)
#define CHAT(type, member) FIELD(runnel_chat, member)
#define GRAMMAR(type, member) FIELD(runnel_grammar, member)
TABLE(request, RUNNEL_REQUEST_FIELDS(REQUEST))
TABLE(sampling, RUNNEL_SAMPLING_FIELDS(SAMPLING))
TABLE(samplers, RUNNEL_SAMPLERS_FIELDS(SAMPLERS))
TABLE(chat, RUNNEL_CHAT_FIELDS(CHAT))
TABLE(grammar, RUNNEL_GRAMMAR_FIELDS(GRAMMAR))

/* The structs that runnel_fields.h does not have; bindings/mapping.py holds these rows against the headers. */
#include "field_rows.h"

static const rnpy_field *find(const rnpy_fields *fields, const char *name)
{
    for (size_t i = 0; i < fields->n; i++)
        if (strcmp(fields->fields[i].name, name) == 0)
            return &fields->fields[i];
    return NULL;
}

/* The member that counts the elements of an array or the bytes of a text. NULL: there is none. */
static const rnpy_field *count_of(const rnpy_fields *fields, const rnpy_field *field)
{
    char name[64];
    const rnpy_field *found;

    snprintf(name, sizeof name, "%s_bytes", field->name);
    found = find(fields, name);
    if (found != NULL)
        return found;
    snprintf(name, sizeof name, "n_%s", field->name);
    return find(fields, name);
}

/* A member that only counts another: "n_tokens" of "tokens". */
static bool is_count(const rnpy_fields *fields, const rnpy_field *field)
{
    char name[64];
    size_t n = strlen(field->name);
    const rnpy_field *other = NULL;

    if (strncmp(field->name, "n_", 2) == 0) {
        other = find(fields, field->name + 2);
    } else if (n > 6 && n < sizeof name && strcmp(field->name + n - 6, "_bytes") == 0) {
        memcpy(name, field->name, n - 6);
        name[n - 6] = '\0';
        other = find(fields, name);
        if (other != NULL && other->kind != RNPY_TEXT && other->kind != RNPY_DATA)
            other = NULL;
    }
    return other != NULL;
}

static bool is_plain(const rnpy_fields *fields, const rnpy_field *field)
{
    return field->kind != RNPY_OTHER && field->kind != RNPY_SIZE && !is_count(fields, field);
}

/* TypeError: what is wanted of an option, and what was given. Returns NULL. */
static PyObject *wrong_type(const char *name, const char *wanted, PyObject *value)
{
    return PyErr_Format(PyExc_TypeError, "%s: %s is wanted, not %R", name, wanted, (PyObject *)Py_TYPE(value));
}

/* ---- Memory that a request points to ------------------------------------------------------- */

void *rnpy_room(size_t bytes, PyObject *keep)
{
    PyObject *room = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(bytes == 0 ? 1 : bytes));
    void *memory = NULL;

    if (room != NULL && PyList_Append(keep, room) == 0)
        memory = PyBytes_AsString(room);
    Py_XDECREF(room);
    return memory;
}

int rnpy_text(PyObject *value, const char *name, const char **text, size_t *bytes, PyObject *keep)
{
    PyObject *encoded = NULL;
    char *data;
    Py_ssize_t n;

    if (PyBytes_Check(value)) {
        encoded = value;
        Py_INCREF(encoded);
    } else if (PyUnicode_Check(value)) {
        encoded = PyUnicode_AsUTF8String(value);
    } else {
        wrong_type(name, "a str or bytes", value);
    }
    if (encoded == NULL || PyBytes_AsStringAndSize(encoded, &data, &n) < 0 || PyList_Append(keep, encoded) < 0) {
        Py_XDECREF(encoded);
        return -1;
    }
    Py_DECREF(encoded);
    *text = data;
    *bytes = (size_t)n;
    return 0;
}

int rnpy_ended_text(PyObject *value, const char *name, const char **text, PyObject *keep)
{
    size_t bytes;

    if (rnpy_text(value, name, text, &bytes, keep) < 0)
        return -1;
    if (strlen(*text) != bytes) {
        rnpy_invalid("%s: a text without NUL is wanted", name);
        return -1;
    }
    return 0;
}

/* As an int of Python; a new reference or NULL. */
static PyObject *index_of(PyObject *value, const char *name)
{
    return PyIndex_Check(value) ? PyNumber_Index(value) : wrong_type(name, "a whole number", value);
}

static long long whole_number(PyObject *value, const char *name, long long least, long long most)
{
    PyObject *index = index_of(value, name);
    long long number;
    int overflow = 0;

    if (index == NULL)
        return -1;
    number = PyLong_AsLongLongAndOverflow(index, &overflow);
    Py_DECREF(index);
    if (overflow != 0 || (!PyErr_Occurred() && (number < least || number > most)))
        rnpy_invalid("%s: a number from %lld to %lld is wanted", name, least, most);
    return number;
}

static double real_number(PyObject *value, const char *name)
{
    double number = PyFloat_AsDouble(value);

    if (!PyErr_Occurred())
        return number;
    if (PyErr_ExceptionMatches(PyExc_TypeError)) {
        wrong_type(name, "a number", value);
    } else if (PyErr_ExceptionMatches(PyExc_OverflowError)) {
        PyErr_Clear();
        rnpy_invalid("%s: a number that a float can have is wanted", name);
    }
    return 0;
}

/* What a loop over the value gives; a new list or NULL. */
static PyObject *list_of(PyObject *value, const char *name, const char *wanted)
{
    PyObject *iterator = PyObject_GetIter(value), *list;

    if (iterator == NULL)
        return PyErr_ExceptionMatches(PyExc_TypeError) ? wrong_type(name, wanted, value) : NULL;
    list = PySequence_List(iterator);
    Py_DECREF(iterator);
    return list;
}

int rnpy_int(PyObject *value, const char *name, int32_t *number)
{
    *number = (int32_t)whole_number(value, name, INT32_MIN, INT32_MAX);
    return PyErr_Occurred() ? -1 : 0;
}

int rnpy_ints(PyObject *value, const char *name, const int32_t **ints, size_t *n, PyObject *keep)
{
    PyObject *list = list_of(value, name, "a list of whole numbers");
    Py_ssize_t count;
    int32_t *room;

    if (list == NULL)
        return -1;
    count = PyList_Size(list);
    room = rnpy_room((size_t)count * sizeof *room, keep);
    for (Py_ssize_t i = 0; room != NULL && i < count; i++) {
        if (rnpy_int(PyList_GetItem(list, i), name, &room[i]) < 0)
            room = NULL;
    }
    Py_DECREF(list);
    if (room == NULL)
        return -1;
    *ints = room;
    *n = (size_t)count;
    return 0;
}

static int texts(PyObject *value, const char *name, const char *const **array, size_t *n, PyObject *keep)
{
    PyObject *list;
    const char **room;
    Py_ssize_t count;
    int result = -1;

    if (PyUnicode_Check(value) || PyBytes_Check(value)) { /* one alone */
        list = PyList_New(0);
        if (list == NULL || PyList_Append(list, value) < 0)
            goto out;
    } else if ((list = list_of(value, name, "a list of texts")) == NULL) {
        return -1;
    }
    count = PyList_Size(list);
    room = rnpy_room((size_t)count * sizeof *room, keep);
    if (room == NULL)
        goto out;
    for (Py_ssize_t i = 0; i < count; i++)
        if (rnpy_ended_text(PyList_GetItem(list, i), name, &room[i], keep) < 0)
            goto out;
    *array = room;
    *n = (size_t)count;
    result = 0;
out:
    Py_XDECREF(list);
    return result;
}

/* A mapping of token to bias. */
static int biases(PyObject *value, const char *name, const runnel_logit_bias **array, size_t *n, PyObject *keep)
{
    PyObject *items = NULL;
    runnel_logit_bias *room = NULL;
    Py_ssize_t count = 0;

    if (PyMapping_Check(value) && PyObject_HasAttrString(value, "items")) /* a str and a list are mappings, too */
        items = PyMapping_Items(value);
    else
        wrong_type(name, "a mapping of tokens to biases", value);
    if (items == NULL)
        return -1;
    count = PyList_Size(items);
    room = rnpy_room((size_t)count * sizeof *room, keep);
    for (Py_ssize_t i = 0; room != NULL && i < count; i++) {
        PyObject *item = PyList_GetItem(items, i);

        if (!PyTuple_Check(item) || PyTuple_Size(item) != 2) {
            PyErr_Format(PyExc_TypeError, "%s: a mapping of tokens to biases is wanted", name);
            room = NULL;
            break;
        }
        room[i].token = (int32_t)whole_number(PyTuple_GetItem(item, 0), name, INT32_MIN, INT32_MAX);
        room[i].bias = PyErr_Occurred() ? 0 : (float)real_number(PyTuple_GetItem(item, 1), name);
        if (PyErr_Occurred())
            room = NULL;
    }
    Py_DECREF(items);
    if (room == NULL)
        return -1;
    *array = room;
    *n = (size_t)count;
    return 0;
}

/* A list of (name, path, scale), as _shared.py makes it of a mapping. A scale of 0 would be 1 to the library. */
static int adapters(PyObject *value, const char *name, const runnel_adapter **array, size_t *n, PyObject *keep)
{
    PyObject *list = list_of(value, name, "a list of (name, path, scale)");
    runnel_adapter *room = NULL;
    Py_ssize_t count = 0;

    if (list == NULL)
        return -1;
    count = PyList_Size(list);
    room = rnpy_room((size_t)count * sizeof *room, keep);
    for (Py_ssize_t i = 0; room != NULL && i < count; i++) {
        PyObject *item = PyList_GetItem(list, i);

        memset(&room[i], 0, sizeof room[i]);
        if (!PyTuple_Check(item) || PyTuple_Size(item) != 3) {
            wrong_type(name, "a list of (name, path, scale)", item);
        } else if (rnpy_ended_text(PyTuple_GetItem(item, 0), name, &room[i].name, keep) == 0 &&
                   rnpy_ended_text(PyTuple_GetItem(item, 1), name, &room[i].path, keep) == 0) {
            room[i].scale = (float)real_number(PyTuple_GetItem(item, 2), name);
            if (!PyErr_Occurred() && room[i].scale == 0)
                rnpy_invalid("%s: the scale of %s is 0, with which it would do nothing", name, room[i].name);
        }
        if (PyErr_Occurred())
            room = NULL;
    }
    Py_DECREF(list);
    if (room == NULL)
        return -1;
    *array = room;
    *n = (size_t)count;
    return 0;
}

/* ---- Setting ------------------------------------------------------------------------------- */

static void set_unsigned(const rnpy_field *field, char *at, PyObject *value)
{
    PyObject *index = index_of(value, field->name);

    if (index == NULL)
        return;
    *(uint64_t *)at = PyLong_AsUnsignedLongLong(index);
    Py_DECREF(index);
    if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_OverflowError)) {
        PyErr_Clear();
        rnpy_invalid("%s: a number from 0 to 2^64 - 1 is wanted", field->name);
    }
}

static void set_number(const rnpy_field *field, char *at, PyObject *value)
{
    switch (field->kind) {
    case RNPY_F32:
        *(float *)at = (float)real_number(value, field->name);
        break;
    case RNPY_F64:
        *(double *)at = real_number(value, field->name);
        break;
    case RNPY_U8:
        *(uint8_t *)at = (uint8_t)whole_number(value, field->name, 0, UINT8_MAX);
        break;
    case RNPY_I32:
        *(int32_t *)at = (int32_t)whole_number(value, field->name, INT32_MIN, INT32_MAX);
        break;
    case RNPY_U32:
        *(uint32_t *)at = (uint32_t)whole_number(value, field->name, 0, UINT32_MAX);
        break;
    case RNPY_I64:
        *(int64_t *)at = whole_number(value, field->name, INT64_MIN, INT64_MAX);
        break;
    default:
        set_unsigned(field, at, value);
        break;
    }
}

static int set_numbers(const rnpy_field *field, const rnpy_field *count, char *base, PyObject *value, PyObject *keep)
{
    const int32_t *ints;
    size_t n;

    if (rnpy_ints(value, field->name, &ints, &n, keep) < 0)
        return -1;
    if (n * sizeof *ints > field->bytes) {
        rnpy_invalid("%s: at most %zu numbers are wanted", field->name, field->bytes / sizeof *ints);
        return -1;
    }
    memcpy(base + field->offset, ints, n * sizeof *ints);
    *(uint32_t *)(base + count->offset) = (uint32_t)n;
    return 0;
}

int rnpy_set_field(const rnpy_fields *fields, void *base, PyObject *name, PyObject *value, PyObject *keep)
{
    PyObject *encoded = PyUnicode_AsUTF8String(name);
    const rnpy_field *field, *count;
    const char *spelled;
    char *at;
    size_t n = 0;
    int result = 0;

    if (encoded == NULL)
        return -1;
    spelled = PyBytes_AsString(encoded);
    field = find(fields, spelled);
    if (field == NULL || !is_plain(fields, field)) {
        Py_DECREF(encoded);
        return 0;
    }
    Py_DECREF(encoded);
    count = count_of(fields, field);
    at = (char *)base + field->offset;
    switch (field->kind) {
    case RNPY_TEXT:
    case RNPY_DATA:
        if (count == NULL)
            result = rnpy_ended_text(value, field->name, (const char **)at, keep);
        else
            result = rnpy_text(value, field->name, (const char **)at, &n, keep);
        break;
    case RNPY_TEXTS:
        result = texts(value, field->name, (const char *const **)at, &n, keep);
        break;
    case RNPY_INTS:
        result = rnpy_ints(value, field->name, (const int32_t **)at, &n, keep);
        break;
    case RNPY_BIASES:
        result = biases(value, field->name, (const runnel_logit_bias **)at, &n, keep);
        break;
    case RNPY_ADAPTERS:
        result = adapters(value, field->name, (const runnel_adapter **)at, &n, keep);
        break;
    case RNPY_NUMBERS:
        return set_numbers(field, count, base, value, keep) < 0 ? -1 : 1;
    default:
        set_number(field, at, value);
        break;
    }
    if (count != NULL && result == 0)
        *(size_t *)((char *)base + count->offset) = n;
    return result < 0 || PyErr_Occurred() ? -1 : 1;
}

int rnpy_set_fields(const rnpy_fields *fields, void *base, PyObject *values, PyObject *keep)
{
    PyObject *copy = PyDict_Copy(values), *name, *value;
    Py_ssize_t at = 0;
    int set = copy == NULL ? -1 : 1;

    while (set == 1 && PyDict_Next(copy, &at, &name, &value)) {
        set = value == Py_None ? 1 : rnpy_set_field(fields, base, name, value, keep);
        if (set == 0)
            PyErr_Format(PyExc_TypeError, "there is no option %R", name);
    }
    Py_XDECREF(copy);
    return set == 1 ? 0 : -1;
}

PyObject *rnpy_field_names(const rnpy_fields *fields)
{
    PyObject *names = PyList_New(0);

    for (size_t i = 0; names != NULL && i < fields->n; i++) {
        PyObject *name;

        if (!is_plain(fields, &fields->fields[i]))
            continue;
        name = PyUnicode_FromString(fields->fields[i].name);
        if (name == NULL || PyList_Append(names, name) < 0)
            Py_CLEAR(names);
        Py_XDECREF(name);
    }
    return names;
}

/* ---- Getting ------------------------------------------------------------------------------- */

PyObject *rnpy_view(const void *data, size_t bytes, const char *format)
{
    PyObject *copy = PyBytes_FromStringAndSize(data, (Py_ssize_t)bytes);
    PyObject *view = copy == NULL ? NULL : PyMemoryView_FromObject(copy);
    PyObject *cast = view == NULL ? NULL : PyObject_CallMethod(view, "cast", "s", format);

    Py_XDECREF(view);
    Py_XDECREF(copy);
    return cast;
}

int rnpy_put(PyObject *dict, const char *name, PyObject *value)
{
    int result = value == NULL ? -1 : PyDict_SetItemString(dict, name, value);

    Py_XDECREF(value);
    return result;
}

static PyObject *histogram(const runnel_histogram *from)
{
    PyObject *dict = PyDict_New();

    if (dict == NULL)
        return NULL;
    if (rnpy_put(dict, "edges", rnpy_view(from->edges, from->n_edges * sizeof from->edges[0], "d")) < 0 ||
        rnpy_put(dict, "counts", rnpy_view(from->counts, (from->n_edges + 1) * sizeof from->counts[0], "Q")) < 0 ||
        rnpy_put(dict, "count", PyLong_FromUnsignedLongLong(from->count)) < 0 ||
        rnpy_put(dict, "sum", PyFloat_FromDouble(from->sum)) < 0)
        Py_CLEAR(dict);
    return dict;
}

PyObject *rnpy_str_n(const char *text, size_t bytes)
{
    if (text == NULL)
        Py_RETURN_NONE;
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)bytes, "replace");
}

PyObject *rnpy_str(const char *text)
{
    return rnpy_str_n(text, text == NULL ? 0 : strlen(text));
}

static PyObject *get_text(const rnpy_fields *fields, const rnpy_field *field, const char *base)
{
    const rnpy_field *count = count_of(fields, field);
    const char *text = *(const char *const *)(base + field->offset);

    if (count != NULL)
        return rnpy_str_n(text, *(const size_t *)(base + count->offset));
    return rnpy_str(text);
}

static PyObject *get_ints(const rnpy_fields *fields, const rnpy_field *field, const char *base)
{
    const rnpy_field *count = count_of(fields, field);
    size_t n = 0;

    memcpy(&n, base + count->offset, count->bytes);
    return rnpy_view(*(const void *const *)(base + field->offset), n * sizeof(int32_t), "i");
}

static PyObject *get_field(const rnpy_fields *fields, const rnpy_field *field, const char *base)
{
    const char *at = base + field->offset;

    switch (field->kind) {
    case RNPY_F32:
        return PyFloat_FromDouble(*(const float *)at);
    case RNPY_F64:
        return PyFloat_FromDouble(*(const double *)at);
    case RNPY_U8:
        return PyLong_FromLong(*(const uint8_t *)at);
    case RNPY_I32:
        return PyLong_FromLong(*(const int32_t *)at);
    case RNPY_U32:
        return PyLong_FromUnsignedLong(*(const uint32_t *)at);
    case RNPY_I64:
        return PyLong_FromLongLong(*(const int64_t *)at);
    case RNPY_TEXT:
        return get_text(fields, field, base);
    case RNPY_CHARS:
        return rnpy_str_n(at, strnlen(at, field->bytes));
    case RNPY_INTS:
        return get_ints(fields, field, base);
    case RNPY_HISTOGRAM:
        return histogram((const runnel_histogram *)at);
    case RNPY_COUNTS:
        return rnpy_view(at, field->bytes, "Q");
    default:
        return PyLong_FromUnsignedLongLong(*(const uint64_t *)at);
    }
}

PyObject *rnpy_get_fields(const rnpy_fields *fields, const void *base)
{
    PyObject *dict = PyDict_New();

    for (size_t i = 0; dict != NULL && i < fields->n; i++) {
        const rnpy_field *field = &fields->fields[i];

        if (field->kind == RNPY_OTHER || (is_count(fields, field)))
            continue;
        if (rnpy_put(dict, field->name, get_field(fields, field, base)) < 0)
            Py_CLEAR(dict);
    }
    return dict;
}
