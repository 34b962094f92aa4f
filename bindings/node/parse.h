/* A request from an object of JavaScript, in which the members of four structs stand side by side. */
#ifndef RN_NODE_PARSE_H
#define RN_NODE_PARSE_H

#include "fields.h"

/* They point to each other: it must not be moved. */
struct parsed {
    runnel_request request;
    runnel_samplers samplers;
    runnel_chat chat;
};

/* False: an error was thrown. What it points to is in the arena. */
bool parse_options(napi_env env, struct arena *arena, napi_value options, struct parsed *parsed);

#endif
