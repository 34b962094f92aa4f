/* What all parts of the addon use: see addon.h. */
#include "addon.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct addon *addon_of(napi_env env)
{
    void *addon = NULL;

    napi_get_instance_data(env, &addon);
    return addon;
}

napi_value addon_undefined(napi_env env)
{
    napi_value value = NULL;

    napi_get_undefined(env, &value);
    return value;
}

napi_value addon_number(napi_env env, double number)
{
    napi_value value = NULL;

    napi_create_double(env, number, &value);
    return value;
}

napi_value addon_count(napi_env env, uint64_t count)
{
    napi_value value = NULL;

    if (count <= (UINT64_C(1) << 53))
        return addon_number(env, (double)count);
    napi_create_bigint_uint64(env, count, &value);
    return value;
}

napi_value addon_string(napi_env env, const char *text, size_t bytes)
{
    napi_value value = NULL;

    napi_create_string_utf8(env, text, bytes, &value);
    return value;
}

void addon_set(napi_env env, napi_value object, const char *name, napi_value value)
{
    if (value != NULL)
        napi_set_named_property(env, object, name, value);
}

bool addon_id(napi_env env, napi_value value, uint64_t *id)
{
    bool lossless = false;

    return napi_get_value_bigint_uint64(env, value, id, &lossless) == napi_ok && lossless;
}

napi_value addon_error(napi_env env, const runnel_error *error)
{
    const char *name = runnel_status_name(error->status);
    const char *text = error->message[0] != '\0' ? error->message : runnel_status_text(error->status);
    napi_value make, arguments[4], made = NULL;

    if (napi_get_reference_value(env, addon_of(env)->make_error, &make) != napi_ok)
        return NULL;
    arguments[0] = addon_string(env, name, strlen(name));
    arguments[1] = addon_number(env, error->status);
    arguments[2] = addon_string(env, text, strlen(text));
    arguments[3] = addon_number(env, error->retry_ms);
    napi_call_function(env, addon_undefined(env), make, 4, arguments, &made);
    return made;
}

napi_value addon_throw(napi_env env, const runnel_error *error)
{
    napi_value made = addon_error(env, error);

    if (made != NULL)
        napi_throw(env, made);
    return NULL;
}

napi_value addon_fail(napi_env env, runnel_status status, const char *format, ...)
{
    runnel_error error = {.status = status};
    va_list arguments;

    if (format != NULL) {
        va_start(arguments, format);
        vsnprintf(error.message, sizeof error.message, format, arguments);
        va_end(arguments);
    }
    return addon_throw(env, &error);
}

void addon_uncaught(napi_env env)
{
    napi_value thrown;
    bool pending = false;

    napi_is_exception_pending(env, &pending);
    if (pending && napi_get_and_clear_last_exception(env, &thrown) == napi_ok)
        napi_fatal_exception(env, thrown);
}

bool addon_arguments(napi_env env, napi_callback_info info, size_t n, napi_value *values)
{
    return napi_get_cb_info(env, info, &n, values, NULL, NULL) == napi_ok;
}

void *addon_box(napi_env env, napi_value value, enum box_kind kind)
{
    void *box = NULL;

    if (napi_get_value_external(env, value, &box) != napi_ok || box == NULL || *(enum box_kind *)box != kind)
        return addon_fail(env, RUNNEL_INVALID, "not a handle of this kind");
    return box;
}

void addon_export(napi_env env, napi_value exports, const struct method *methods, size_t n)
{
    napi_value function;

    for (size_t i = 0; i < n; i++)
        if (napi_create_function(env, methods[i].name, NAPI_AUTO_LENGTH, methods[i].call, NULL, &function) == napi_ok)
            addon_set(env, exports, methods[i].name, function);
}
