/* Loading and freeing models, and sessions: see model.h. */
#include "model.h"

#include <stdlib.h>

#include "fields.h"

struct node_model *model_open(napi_env env, napi_value value)
{
    struct node_model *model = addon_box(env, value, BOX_MODEL);

    if (model == NULL)
        return NULL;
    if (model->closed || model->engine->engine == NULL) {
        addon_fail(env, RUNNEL_CLOSED, model->closed ? "the model is closed" : "the engine is closed");
        return NULL;
    }
    return model;
}

static void close_model(struct node_model *model)
{
    model->closed = true;
    if (model->jobs > 0 || model->model == NULL)
        return;
    if (model->engine->engine != NULL) /* else it went with its engine */
        runnel_model_free(model->model);
    model->model = NULL;
}

void model_job_done(struct node_model *model)
{
    model->jobs--;
    if (model->closed)
        close_model(model);
}

static void finalize(napi_env env, void *data, void *hint)
{
    struct node_model *model = data;

    (void)hint;
    close_model(model);
    if (model->of_engine != NULL)
        napi_delete_reference(env, model->of_engine);
    engine_release(model->engine);
    free(model);
}

static void on_load(void *user, const runnel_load_event *event)
{
    struct node_model *model = user;

    engine_on_load(model->engine, model->slot, event, &model->error);
}

static bool load(napi_env env, struct node_model *model, napi_value path_value, napi_value options_value)
{
    struct arena arena = {0};
    runnel_model_options options;
    runnel_error error = {0};
    struct target target = {.fields = fields_of("runnel_model_options"), .base = &options};
    const char *path;
    bool ok;

    runnel_model_options_default(&options);
    ok = fields_path(env, &arena, path_value, &path) && fields_read(env, &arena, options_value, &target, 1);
    options.on_load = on_load;
    options.load_user = model;
    if (ok && runnel_model_load(model->engine->engine, path, &options, &model->model, &error) != RUNNEL_OK) {
        addon_throw(env, &error);
        ok = false;
    }
    arena_free(&arena);
    return ok;
}

/* modelLoad(engine, path, options, slot): the handle; the load's events come with the slot. */
static napi_value model_load(napi_env env, napi_callback_info info)
{
    struct node_engine *engine;
    struct node_model *model;
    napi_value values[4], handle;

    if (!addon_arguments(env, info, 4, values))
        return NULL;
    engine = engine_open(env, values[0]);
    if (engine == NULL)
        return NULL;
    model = calloc(1, sizeof *model);
    if (model == NULL)
        return addon_fail(env, RUNNEL_NO_MEMORY, NULL);
    model->kind = BOX_MODEL;
    model->engine = engine;
    napi_get_value_uint32(env, values[3], &model->slot);
    if (napi_create_external(env, model, finalize, NULL, &handle) != napi_ok) {
        free(model);
        return addon_fail(env, RUNNEL_NO_MEMORY, NULL);
    }
    engine->references++;
    napi_create_reference(env, values[0], 1, &model->of_engine);
    return load(env, model, values[1], values[2]) ? handle : NULL;
}

/* modelClose(model) */
static napi_value model_close(napi_env env, napi_callback_info info)
{
    struct node_model *model;
    napi_value value;

    if (!addon_arguments(env, info, 1, &value))
        return NULL;
    model = addon_box(env, value, BOX_MODEL);
    if (model != NULL)
        close_model(model);
    return NULL;
}

/* modelCancelLoad(model) */
static napi_value model_cancel_load(napi_env env, napi_callback_info info)
{
    struct node_model *model;
    napi_value value;

    if (!addon_arguments(env, info, 1, &value))
        return NULL;
    model = addon_box(env, value, BOX_MODEL);
    if (model != NULL && !model->closed && model->engine->engine != NULL)
        runnel_model_cancel_load(model->model);
    return NULL;
}

/* modelInfo(model) */
static napi_value model_info(napi_env env, napi_callback_info info)
{
    runnel_model_info of_model = {.struct_size = sizeof of_model};
    struct node_model *model;
    runnel_status status;
    napi_value value;

    if (!addon_arguments(env, info, 1, &value))
        return NULL;
    model = model_open(env, value);
    if (model == NULL)
        return NULL;
    status = runnel_model_get_info(model->model, &of_model);
    return status == RUNNEL_OK ? fields_write(env, fields_of("runnel_model_info"), &of_model)
                               : addon_fail(env, status, NULL);
}

/* modelAdapter(model, index): runnel_adapter. */
static napi_value model_adapter(napi_env env, napi_callback_info info)
{
    struct node_model *model;
    runnel_adapter adapter;
    runnel_status status;
    napi_value values[2];
    uint32_t index = 0;

    if (!addon_arguments(env, info, 2, values))
        return NULL;
    model = model_open(env, values[0]);
    if (model == NULL)
        return NULL;
    napi_get_value_uint32(env, values[1], &index);
    status = runnel_model_adapter(model->model, index, &adapter);
    return status == RUNNEL_OK ? fields_write(env, fields_of("runnel_adapter"), &adapter)
                               : addon_fail(env, status, NULL);
}

/* ---- Sessions ------------------------------------------------------------------------------ */

static napi_value session_value(napi_env env, runnel_status status, runnel_session session)
{
    napi_value value = NULL;

    if (status == RUNNEL_BUSY)
        return addon_fail(env, status, "all sessions that the engine may have (maxSessions) are taken: close one");
    if (status == RUNNEL_STATE)
        return addon_fail(env, status, "the model is not loaded for generation");
    if (status != RUNNEL_OK)
        return addon_fail(env, status, NULL);
    napi_create_bigint_uint64(env, session.id, &value);
    return value;
}

/* sessionNew(model) */
static napi_value session_new(napi_env env, napi_callback_info info)
{
    runnel_session session = {0};
    struct node_model *model;
    napi_value value;

    if (!addon_arguments(env, info, 1, &value))
        return NULL;
    model = model_open(env, value);
    return model == NULL ? NULL : session_value(env, runnel_session_new(model->model, &session), session);
}

/* sessionFork(model, session) */
static napi_value session_fork(napi_env env, napi_callback_info info)
{
    runnel_session session = {0}, copy = {0};
    struct node_model *model;
    napi_value values[2];

    if (!addon_arguments(env, info, 2, values))
        return NULL;
    model = model_open(env, values[0]);
    if (model == NULL)
        return NULL;
    if (!addon_id(env, values[1], &session.id))
        return addon_fail(env, RUNNEL_INVALID, "not a session");
    return session_value(env, runnel_session_fork(model->model, session, &copy), copy);
}

/* sessionFree(model, session): nothing happens where either is gone. */
static napi_value session_free(napi_env env, napi_callback_info info)
{
    runnel_session session = {0};
    struct node_model *model;
    napi_value values[2];

    if (!addon_arguments(env, info, 2, values))
        return NULL;
    model = addon_box(env, values[0], BOX_MODEL);
    if (model != NULL && !model->closed && model->engine->engine != NULL && addon_id(env, values[1], &session.id))
        runnel_session_free(model->model, session);
    return NULL;
}

void model_export(napi_env env, napi_value exports)
{
    static const struct method methods[] = {
        {"modelLoad", model_load},     {"modelClose", model_close},     {"modelCancelLoad", model_cancel_load},
        {"modelInfo", model_info},     {"modelAdapter", model_adapter}, {"sessionNew", session_new},
        {"sessionFork", session_fork}, {"sessionFree", session_free}};

    addon_export(env, exports, methods, sizeof methods / sizeof methods[0]);
}
