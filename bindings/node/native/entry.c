/* The addon's entry point: each environment that loads it has an addon of its own. */
#include <stdlib.h>
#include <string.h>

#include "addon.h"
#include "choose.h"
#include "jobs.h"

/* setup(makeError): before any other call; the last one counts, where the JavaScript is evaluated again. */
static napi_value setup(napi_env env, napi_callback_info info)
{
    struct addon *addon = addon_of(env);
    napi_value make;

    if (!addon_arguments(env, info, 1, &make))
        return NULL;
    if (addon->make_error != NULL)
        napi_delete_reference(env, addon->make_error);
    addon->make_error = NULL;
    napi_create_reference(env, make, 1, &addon->make_error);
    return NULL;
}

static void free_addon(napi_env env, void *data, void *hint)
{
    struct addon *addon = data;

    (void)hint;
    if (addon->make_error != NULL)
        napi_delete_reference(env, addon->make_error);
    free(addon);
}

NAPI_MODULE_INIT()
{
    static const struct method methods[] = {{"setup", setup}};
    struct addon *addon = calloc(1, sizeof *addon);

    if (addon == NULL || napi_set_instance_data(env, addon, free_addon, NULL) != napi_ok) {
        free(addon);
        napi_throw_error(env, "NO_MEMORY", "the addon of runnel could not begin");
        return NULL;
    }
    addon->env = env;
    addon_export(env, exports, methods, sizeof methods / sizeof methods[0]);
    addon_set(env, exports, "version", addon_string(env, runnel_version(), strlen(runnel_version())));
    fields_export(env, exports);
    engine_export(env, exports);
    model_export(env, exports);
    request_export(env, exports);
    choose_export(env, exports);
    text_export(env, exports);
    observe_export(env, exports);
    files_export(env, exports);
    cache_export(env, exports);
    training_export(env, exports);
    return exports;
}
