/* A request from keyword arguments. The members of request, sampling, samplers and chat stand in one name space; the
 * tables of runnel_fields.h say which belongs where. `grammar` is a dict of the members of runnel_grammar, `choose` a
 * function that draws. */
#include "binding.h"

#include <string.h>

static int set_grammar(rnpy_request *request, PyObject *value)
{
    runnel_grammar_default(&request->grammar);
    if (!PyDict_Check(value)) {
        PyErr_SetString(PyExc_TypeError, "grammar: a runnel.Grammar is wanted");
        return -1;
    }
    if (rnpy_set_fields(&rnpy_grammar_fields, &request->grammar, value, request->keep) < 0)
        return -1;
    request->request.grammar = &request->grammar;
    return 0;
}

static int set_choose(rnpy_request *request, PyObject *value)
{
    if (!PyCallable_Check(value)) {
        PyErr_SetString(PyExc_TypeError, "choose: a function is wanted");
        return -1;
    }
    request->choose = value;
    request->samplers.choose = rnpy_stream_on_choose;
    request->request.sampling.samplers = &request->samplers;
    return 0;
}

static int set_option(rnpy_request *request, PyObject *name, PyObject *value)
{
    int set;

    if (PyUnicode_CompareWithASCIIString(name, "grammar") == 0)
        return set_grammar(request, value);
    if (PyUnicode_CompareWithASCIIString(name, "choose") == 0)
        return set_choose(request, value);
    set = rnpy_set_field(&rnpy_request_fields, &request->request, name, value, request->keep);
    if (set == 0)
        set = rnpy_set_field(&rnpy_sampling_fields, &request->request.sampling, name, value, request->keep);
    if (set == 0) {
        set = rnpy_set_field(&rnpy_samplers_fields, &request->samplers, name, value, request->keep);
        if (set > 0)
            request->request.sampling.samplers = &request->samplers;
    }
    if (set == 0) {
        set = rnpy_set_field(&rnpy_chat_fields, &request->chat, name, value, request->keep);
        if (set > 0)
            request->request.chat = &request->chat;
    }
    if (set == 0)
        PyErr_Format(PyExc_TypeError, "there is no option %R", name);
    return set > 0 ? 0 : -1;
}

int rnpy_request_init(rnpy_request *request, PyObject *arguments)
{
    PyObject *copy, *name, *value;
    Py_ssize_t at = 0;
    int result = 0;

    memset(request, 0, sizeof *request);
    runnel_request_default(&request->request);
    runnel_chat_default(&request->chat);
    runnel_samplers_default(&request->samplers);
    request->keep = PyList_New(0);
    if (request->keep == NULL)
        return -1;
    if (!PyDict_Check(arguments)) {
        PyErr_SetString(PyExc_TypeError, "a dict is wanted");
        return -1;
    }
    copy = PyDict_Copy(arguments); /* what reads a value may run Python, which may have the dict itself */
    if (copy == NULL || PyList_Append(request->keep, copy) < 0)
        result = -1;
    while (result == 0 && PyDict_Next(copy, &at, &name, &value))
        result = value == Py_None ? 0 : set_option(request, name, value);
    Py_XDECREF(copy);
    return result;
}

void rnpy_request_fini(rnpy_request *request)
{
    Py_CLEAR(request->keep);
}

PyObject *rnpy_option_names(void)
{
    PyObject *all = PyDict_New();

    if (all == NULL)
        return NULL;
#define NAMES(of) rnpy_put(all, #of, rnpy_field_names(&rnpy_##of##_fields)) < 0
    if (NAMES(request) || NAMES(sampling) || NAMES(samplers) || NAMES(chat) || NAMES(grammar) || NAMES(engine) ||
        NAMES(model) || NAMES(embed) || NAMES(score) || NAMES(architecture) || NAMES(infill) || NAMES(session_file) ||
        NAMES(purge) || NAMES(eagle))
        Py_CLEAR(all);
    return all;
}
