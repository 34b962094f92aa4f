/* Answer: what has come of a stream. Each event is added to the answer so far, and becomes a piece: in a ring where it
 * waits to be read, and in a list where the result is made of it. Called with the stream locked. */
#include "binding.h"

#include <stdlib.h>
#include <string.h>

static int append(rnpy_bytes *bytes, const void *data, size_t n)
{
    if (bytes->room - bytes->n < n) {
        size_t room = bytes->room < 64 ? 64 : bytes->room;
        char *grown;

        while (room - bytes->n < n)
            room *= 2;
        grown = realloc(bytes->data, room);
        if (grown == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        bytes->data = grown;
        bytes->room = room;
    }
    if (n > 0)
        memcpy(bytes->data + bytes->n, data, n);
    bytes->n += n;
    return 0;
}

static void clear_bytes(rnpy_bytes *bytes)
{
    free(bytes->data);
    memset(bytes, 0, sizeof *bytes);
}

/* The answer so far. 0 or -1. */
static int remember(rnpy_stream *self, const runnel_event *event)
{
    if (event->type == RUNNEL_EVENT_REASONING)
        return append(&self->reasoning, event->text, event->text_bytes);
    if (event->type != RUNNEL_EVENT_TOKEN)
        return 0;
    if (append(&self->text, event->text, event->text_bytes) < 0)
        return -1;
    if (event->token < 0)
        return 0;
    if (append(&self->tokens, &event->token, sizeof event->token) < 0)
        return -1;
    return self->wants_logprobs ? append(&self->logprobs, &event->logprob, sizeof event->logprob) : 0;
}

static int push(rnpy_stream *self, PyObject *piece)
{
    if (self->count == self->room) {
        size_t room = self->room == 0 ? 16 : self->room * 2;
        PyObject **grown = malloc(room * sizeof(PyObject *));

        if (grown == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        for (size_t i = 0; i < self->count; i++)
            grown[i] = self->ready[(self->first + i) % self->room];
        free(self->ready);
        self->ready = grown;
        self->first = 0;
        self->room = room;
    }
    self->ready[(self->first + self->count++) % self->room] = piece;
    return 0;
}

PyObject *rnpy_answer_shift(rnpy_stream *self)
{
    PyObject *piece = self->ready[self->first];

    self->first = self->first + 1 == self->room ? 0 : self->first + 1;
    self->count--;
    return piece;
}

void rnpy_answer_drop(rnpy_stream *self)
{
    while (self->count > 0)
        Py_DECREF(rnpy_answer_shift(self));
}

/* Pieces that the result is made of, besides the text. */
static bool is_kept(const rnpy_stream *self, const runnel_event *event)
{
    switch (event->type) {
    case RUNNEL_EVENT_TOKEN:
        return event->n_top > 0;
    case RUNNEL_EVENT_LOGITS:
        return self->collect;
    case RUNNEL_EVENT_REASONING:
    case RUNNEL_EVENT_PROGRESS:
        return false;
    default:
        return true;
    }
}

static int take_event(rnpy_stream *self, const runnel_event *event)
{
    PyObject *piece;
    bool kept;

    if (self->abandoned)
        return 0;
    if (remember(self, event) < 0)
        return -1;
    kept = is_kept(self, event);
    if (self->collect && !kept)
        return 0;
    piece = rnpy_piece_new(event, self->wants_logprobs);
    if (piece == NULL)
        return -1;
    if ((kept && PyList_Append(self->kept, piece) < 0) || (!self->collect && push(self, piece) < 0)) {
        Py_DECREF(piece);
        return -1;
    }
    if (self->collect)
        Py_DECREF(piece);
    return 0;
}

static void take_end(rnpy_stream *self, const runnel_event *event)
{
    self->live = false;
    self->end = event->type;
    self->finish = event->finish;
    self->stop = event->stop;
    self->stop_token = event->stop_token;
    self->status = event->status;
    snprintf(self->error, sizeof self->error, "%s", event->error == NULL ? "" : event->error);
    self->usage = event->usage;
    self->timings = event->timings;
    Py_CLEAR(self->model);
}

bool rnpy_is_terminal(const runnel_event *event)
{
    return event->type == RUNNEL_EVENT_DONE || event->type == RUNNEL_EVENT_CANCELLED ||
           event->type == RUNNEL_EVENT_FAILED;
}

void rnpy_answer_fail(rnpy_stream *self)
{
    PyObject *type, *value, *trace;

    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    if (trace != NULL)
        PyException_SetTraceback(value, trace);
    if (self->failure == NULL) {
        self->failure = value;
        value = NULL;
    }
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    runnel_stream_cancel(self->engine->engine, self->id);
}

void rnpy_answer_add(rnpy_stream *self, const runnel_event *event)
{
    if (rnpy_is_terminal(event))
        take_end(self, event);
    else if (self->failure == NULL && take_event(self, event) < 0)
        rnpy_answer_fail(self);
}

void rnpy_answer_free(rnpy_stream *self)
{
    rnpy_answer_drop(self);
    free(self->ready);
    clear_bytes(&self->text);
    clear_bytes(&self->reasoning);
    clear_bytes(&self->tokens);
    clear_bytes(&self->logprobs);
}
