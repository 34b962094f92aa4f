/* The addon of one environment (a Node process has one for its main thread and one for each worker), and how a status
 * becomes an error of JavaScript. Every function here runs on the environment's thread. */
#ifndef RN_NODE_ADDON_H
#define RN_NODE_ADDON_H

#include <node_api.h>
#include <runnel.h>
#include <stdbool.h>

/* What an external is, so that a value of the wrong kind is refused. Each box begins with it. */
enum box_kind { BOX_ENGINE = 0x52e01, BOX_MODEL, BOX_FILE, BOX_TRAINING, BOX_CHOICE };

struct addon {
    napi_env env;
    napi_ref make_error; /* (code, status, message, retryMs) => Error */
};

struct method {
    const char *name;
    napi_callback call;
};

struct addon *addon_of(napi_env env);

/* The error that JavaScript sees; NULL while the environment ends. */
napi_value addon_error(napi_env env, const runnel_error *error);

/* Throws that error. Returns NULL, so that a method can return it. */
napi_value addon_throw(napi_env env, const runnel_error *error);

/* The same of a status and a sentence, as printf makes it; a sentence of NULL is the status' own. */
napi_value addon_fail(napi_env env, runnel_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* After a call into JavaScript that nobody waits for: what it has thrown becomes an uncaught exception. */
void addon_uncaught(napi_env env);

/* Reads exactly n arguments, undefined where fewer were given. */
bool addon_arguments(napi_env env, napi_callback_info info, size_t n, napi_value *values);

/* The box of an external; NULL: an error was thrown. */
void *addon_box(napi_env env, napi_value value, enum box_kind kind);

void addon_export(napi_env env, napi_value exports, const struct method *methods, size_t n);

napi_value addon_undefined(napi_env env);
napi_value addon_number(napi_env env, double number);

/* A number where it is exact, else a BigInt. */
napi_value addon_count(napi_env env, uint64_t value);
napi_value addon_string(napi_env env, const char *text, size_t bytes);
void addon_set(napi_env env, napi_value object, const char *name, napi_value value);

/* An id of a stream or session, from a BigInt. */
bool addon_id(napi_env env, napi_value value, uint64_t *id);

/* The parts of the addon export their methods. */
void engine_export(napi_env env, napi_value exports);
void model_export(napi_env env, napi_value exports);
void request_export(napi_env env, napi_value exports);
void fields_export(napi_env env, napi_value exports);

#endif
