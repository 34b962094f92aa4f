/* Piece: one event of a stream, as an object that nobody changes: equal to another one with the same members. It refers
 * to no container, so it is none of the cycle collector's business. */
#include "binding.h"

#include <math.h>

#include <structmember.h>

typedef struct piece {
    PyObject_HEAD PyObject *kind, *text, *logprob, *top, *logits, *embedding;
    int token;
    unsigned n_tokens, tool_call;
    unsigned long long position, prompt_done, prompt_total, shifts, shifted_tokens;
} piece;

static PyTypeObject *piece_type;
static allocfunc piece_alloc;
static freefunc piece_free;
static PyObject *no_text;

/* Names of the events in lower case, by number. */
#define LAST_EVENT RUNNEL_EVENT_FAILED
static PyObject *kinds[LAST_EVENT + 1];

static void piece_dealloc(PyObject *object)
{
    piece *self = (piece *)object;

    Py_XDECREF(self->kind);
    Py_XDECREF(self->text);
    Py_XDECREF(self->logprob);
    Py_XDECREF(self->top);
    Py_XDECREF(self->logits);
    Py_XDECREF(self->embedding);
    piece_free(object);
    Py_DECREF(piece_type);
}

static PyObject *piece_str(PyObject *object)
{
    PyObject *text = ((piece *)object)->text;

    Py_INCREF(text);
    return text;
}

static PyObject *piece_repr(PyObject *object)
{
    piece *self = (piece *)object;

    return PyUnicode_FromFormat("Piece(%R, %R, token=%d)", self->kind, self->text, self->token);
}

static PyObject *top_tuple(const runnel_event *event)
{
    PyObject *top = PyTuple_New((Py_ssize_t)event->n_top);

    for (uint32_t i = 0; top != NULL && i < event->n_top; i++) {
        PyObject *pair = Py_BuildValue("(id)", event->top[i].token, (double)event->top[i].logprob);

        if (pair == NULL || PyTuple_SetItem(top, (Py_ssize_t)i, pair) < 0)
            Py_CLEAR(top);
    }
    return top;
}

/* log(sum exp l(i)): what is taken from a logit to have a log-probability. */
static double log_sum(const float *logits, size_t n)
{
    float most = logits[0];
    double sum = 0;

    for (size_t i = 1; i < n; i++)
        most = logits[i] > most ? logits[i] : most;
    for (size_t i = 0; i < n; i++)
        sum += (double)expf(logits[i] - most);
    return (double)most + log(sum);
}

/* The `room` likeliest, the best first, of equal ones the first; returns how many. */
static uint32_t take_best(const float *logits, size_t n, double sum, runnel_logprob *best, uint32_t room)
{
    uint32_t count = 0, at;

    for (size_t i = 0; i < n && room > 0; i++) {
        float logprob = (float)((double)logits[i] - sum);

        if (count == room && logprob <= best[count - 1].logprob)
            continue;
        at = count < room ? count++ : count - 1;
        for (; at > 0 && best[at - 1].logprob < logprob; at--)
            best[at] = best[at - 1];
        best[at] = (runnel_logprob){(int32_t)i, logprob};
    }
    return count;
}

PyObject *rnpy_logprob_of(PyObject *module, PyObject *arguments)
{
    runnel_logprob best[RUNNEL_MAX_TOP_LOGPROBS];
    runnel_event told = {.top = best};
    unsigned int room;
    PyObject *bytes, *top, *result;
    const float *logits;
    size_t n;
    double sum;
    int token;

    (void)module;
    if (!PyArg_ParseTuple(arguments, "SiI", &bytes, &token, &room))
        return NULL;
    logits = (const float *)(const void *)PyBytes_AsString(bytes);
    n = (size_t)PyBytes_Size(bytes) / sizeof *logits;
    if (token < 0 || (size_t)token >= n || room > RUNNEL_MAX_TOP_LOGPROBS) {
        PyErr_SetString(PyExc_ValueError, "logprob_of: no such token, or too many are wanted");
        return NULL;
    }
    sum = log_sum(logits, n);
    told.n_top = take_best(logits, n, sum, best, room);
    top = top_tuple(&told);
    if (top == NULL)
        return NULL;
    result = Py_BuildValue("(dO)", (double)(float)((double)logits[token] - sum), top);
    Py_DECREF(top);
    return result;
}

/* What few pieces have. 0 or -1. */
static int fill_rest(piece *self, const runnel_event *event, bool logprobs)
{
    if (logprobs && event->type == RUNNEL_EVENT_TOKEN && event->token >= 0) {
        self->logprob = PyFloat_FromDouble((double)event->logprob);
        if (self->logprob == NULL)
            return -1;
    }
    if (event->n_top > 0 && event->type == RUNNEL_EVENT_TOKEN && (self->top = top_tuple(event)) == NULL)
        return -1;
    if (event->type == RUNNEL_EVENT_LOGITS) {
        self->logits = rnpy_view(event->logits, event->n_logits * sizeof(float), "f");
        if (self->logits == NULL)
            return -1;
    }
    if (event->type == RUNNEL_EVENT_EMBEDDING) {
        self->embedding = rnpy_view(event->embedding, event->n_embedding * sizeof(float), "f");
        if (self->embedding == NULL)
            return -1;
    }
    self->position = event->position;
    self->prompt_done = event->prompt_done;
    self->prompt_total = event->prompt_total;
    return 0;
}

static bool has_text(const runnel_event *event)
{
    return event->type == RUNNEL_EVENT_TOKEN ||
           (event->type >= RUNNEL_EVENT_REASONING && event->type <= RUNNEL_EVENT_TOOL_END);
}

PyObject *rnpy_piece_new(const runnel_event *event, bool logprobs)
{
    piece *self = (piece *)piece_alloc(piece_type, 0);

    if (self == NULL)
        return NULL;
    if (has_text(event) && event->text_bytes > 0) {
        self->text = PyUnicode_DecodeUTF8(event->text, (Py_ssize_t)event->text_bytes, "replace");
        if (self->text == NULL)
            goto fail;
    } else {
        Py_INCREF(no_text);
        self->text = no_text;
    }
    self->kind = kinds[event->type];
    Py_INCREF(self->kind);
    self->token = has_text(event) ? event->token : -1;
    self->n_tokens = event->n_tokens;
    self->tool_call = event->tool_call;
    self->shifts = event->usage.shifts;
    self->shifted_tokens = event->usage.shifted_tokens;
    if ((logprobs || event->type != RUNNEL_EVENT_TOKEN) && fill_rest(self, event, logprobs) < 0)
        goto fail;
    return (PyObject *)self;
fail:
    Py_DECREF((PyObject *)self);
    return NULL;
}

/* ---- As a value ---------------------------------------------------------------------------- */

/* Its members, in the order of the structure. */
static PyObject *parts_of(const piece *self)
{
#define OR_NONE(object) ((object) == NULL ? Py_None : (object))
    return Py_BuildValue("(OOOOOOiIIKKKKK)", self->kind, self->text, OR_NONE(self->logprob), OR_NONE(self->top),
                         OR_NONE(self->logits), OR_NONE(self->embedding), self->token, self->n_tokens, self->tool_call,
                         self->position, self->prompt_done, self->prompt_total, self->shifts, self->shifted_tokens);
#undef OR_NONE
}

static PyObject *piece_compare(PyObject *object, PyObject *other, int how)
{
    PyObject *mine, *its, *result = NULL;

    if (Py_TYPE(other) != piece_type || (how != Py_EQ && how != Py_NE))
        Py_RETURN_NOTIMPLEMENTED;
    mine = parts_of((piece *)object);
    its = parts_of((piece *)other);
    if (mine != NULL && its != NULL)
        result = PyObject_RichCompare(mine, its, how);
    Py_XDECREF(mine);
    Py_XDECREF(its);
    return result;
}

static Py_hash_t piece_hash(PyObject *object)
{
    piece *self = (piece *)object;
    PyObject *some = Py_BuildValue("(OOi)", self->kind, self->text, self->token);
    Py_hash_t hash = some == NULL ? -1 : PyObject_Hash(some);

    Py_XDECREF(some);
    return hash;
}

static PyObject *piece_same(PyObject *object, PyObject *unused)
{
    (void)unused;
    Py_INCREF(object);
    return object;
}

static PyObject *piece_parts(PyObject *object, PyObject *unused)
{
    (void)unused;
    return parts_of((piece *)object);
}

/* A member of an object, or NULL for None. */
static PyObject *given(PyObject *value)
{
    if (value == Py_None)
        return NULL;
    Py_INCREF(value);
    return value;
}

PyObject *rnpy_piece_of(PyObject *module, PyObject *parts)
{
    piece *self = (piece *)piece_alloc(piece_type, 0);
    PyObject *logprob, *top, *logits, *embedding;

    (void)module;
    if (self == NULL)
        return NULL;
    if (!PyArg_ParseTuple(parts, "UUOOOOiIIKKKKK", &self->kind, &self->text, &logprob, &top, &logits, &embedding,
                          &self->token, &self->n_tokens, &self->tool_call, &self->position, &self->prompt_done,
                          &self->prompt_total, &self->shifts, &self->shifted_tokens)) {
        self->kind = self->text = NULL; /* borrowed */
        Py_DECREF((PyObject *)self);
        return NULL;
    }
    Py_INCREF(self->kind);
    Py_INCREF(self->text);
    self->logprob = given(logprob);
    self->top = given(top);
    self->logits = given(logits);
    self->embedding = given(embedding);
    return (PyObject *)self;
}

static PyMethodDef methods[] = {
    {"__copy__", RNPY_METHOD(piece_same), METH_NOARGS, "Itself: nobody changes it."},
    {"__deepcopy__", RNPY_METHOD(piece_same), METH_O, "Itself: nobody changes it."},
    {"_parts", RNPY_METHOD(piece_parts), METH_NOARGS, "What piece_of() makes the same piece of."},
    {NULL, NULL, 0, NULL},
};

#define MEMBER(name, type, help)                           \
    {                                                      \
#name, type, offsetof(piece, name), READONLY, help \
    }
static PyMemberDef members[] = {
    MEMBER(kind, T_OBJECT, "the event's name: 'token', 'reasoning', 'tool_call', 'progress', ..."),
    MEMBER(text, T_OBJECT, "a fragment of the answer, of its reasoning or of a call, as kind says; else ''"),
    MEMBER(token, T_INT, "its id; -1: only text"),
    MEMBER(n_tokens, T_UINT, "how many tokens this is the first event of"),
    MEMBER(logprob, T_OBJECT, "of the token, with want_logprobs; else None"),
    MEMBER(top, T_OBJECT, "with n_top: ((token, logprob), ...), best first; else None"),
    MEMBER(tool_call, T_UINT, "number of the call in this answer"),
    MEMBER(logits, T_OBJECT, "kind 'logits': a memoryview of floats; else None"),
    MEMBER(embedding, T_OBJECT, "kind 'embedding': a memoryview of floats; else None"),
    MEMBER(position, T_ULONGLONG, "kind 'logits': position in the prompt"),
    MEMBER(prompt_done, T_ULONGLONG, "kind 'progress': positions done"),
    MEMBER(prompt_total, T_ULONGLONG, "kind 'progress': of so many"),
    MEMBER(shifts, T_ULONGLONG, "with context_keep: how often the context was full before"),
    MEMBER(shifted_tokens, T_ULONGLONG, "with context_keep: how many tokens went before"),
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, (void *)"One event of a stream. str(piece) is its text."},
    {Py_tp_dealloc, RNPY_SLOT(piece_dealloc)},
    {Py_tp_str, RNPY_SLOT(piece_str)},
    {Py_tp_repr, RNPY_SLOT(piece_repr)},
    {Py_tp_richcompare, RNPY_SLOT(piece_compare)},
    {Py_tp_hash, RNPY_SLOT(piece_hash)},
    {Py_tp_methods, methods},
    {Py_tp_members, members},
    {Py_tp_new, RNPY_SLOT(rnpy_no_new)},
    {0, NULL},
};
static PyType_Spec spec = {"runnel.Piece", sizeof(piece), 0, Py_TPFLAGS_DEFAULT, slots};

/* `match piece: case Piece("token", text)`. 0 or -1. */
static int set_match_args(void)
{
    PyObject *names = Py_BuildValue("(ss)", "kind", "text");
    int set = names == NULL ? -1 : PyObject_SetAttrString((PyObject *)piece_type, "__match_args__", names);

    Py_XDECREF(names);
    return set;
}

int rnpy_piece_ready(PyObject *module)
{
    for (int i = 0; i <= LAST_EVENT; i++) {
        PyObject *name = PyUnicode_FromString(runnel_event_name((runnel_event_type)i));

        kinds[i] = name == NULL ? NULL : PyObject_CallMethod(name, "lower", NULL);
        Py_XDECREF(name);
        if (kinds[i] == NULL)
            return -1;
        PyUnicode_InternInPlace(&kinds[i]);
    }
    no_text = PyUnicode_FromString("");
    piece_type = rnpy_add_type(module, &spec);
    if (no_text == NULL || piece_type == NULL || set_match_args() < 0)
        return -1;
    piece_alloc = (allocfunc)PyType_GetSlot(piece_type, Py_tp_alloc);
    piece_free = (freefunc)PyType_GetSlot(piece_type, Py_tp_free);
    return piece_alloc == NULL || piece_free == NULL ? -1 : 0;
}
