/* A request from an object of JavaScript, in which the members of four structs stand side by side. */
#ifndef RN_NODE_PARSE_H
#define RN_NODE_PARSE_H

#include "fields.h"
#include "model.h"

/* They point to each other: it must not be moved. */
struct parsed {
    runnel_request request;
    runnel_samplers samplers;
    runnel_chat chat;
};

/* False: an error was thrown. What it points to is in the arena. */
bool parse_options(napi_env env, struct arena *arena, napi_value options, struct parsed *parsed);

/* Submitting: the options are read first, since that may run JavaScript, which may close the model; then the model and
 * a new slot of (model, options, slot), NULL: an error was thrown; then, behind the library's call, the stream's id. */
struct node_slot *submit_begin(napi_env env, const napi_value *values, struct node_model **model);
napi_value submit_end(napi_env env, struct node_slot *slot, runnel_status status, const runnel_error *error,
                      runnel_stream stream);

#endif
