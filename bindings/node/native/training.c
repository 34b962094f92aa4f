/* Training a head that drafts. JavaScript asks for the progress from a timer: no thread waits for it. */
#include <stdlib.h>

#include "jobs.h"

struct node_training {
    enum box_kind kind;
    struct node_engine *engine; /* whose struct stays: an engine that is freed ends its trainings, not their handles */
    runnel_training *training;
};

static void finalize(napi_env env, void *data, void *hint)
{
    struct node_training *training = data;

    (void)env;
    (void)hint;
    runnel_training_free(training->training);
    engine_release(training->engine);
    free(training);
}

static bool begin(napi_env env, struct node_training *training, const napi_value *values)
{
    struct arena arena = {0};
    runnel_eagle_options options;
    runnel_error error = {0};
    struct target target = {.fields = fields_of("runnel_eagle_options"), .base = &options};
    const char *model, *corpus, *head;
    size_t corpus_bytes;
    bool ok;

    runnel_eagle_options_default(&options);
    ok = fields_path(env, &arena, values[1], &model) &&
         fields_text(env, &arena, "corpus", values[2], &corpus, &corpus_bytes) &&
         fields_path(env, &arena, values[3], &head) && fields_read(env, &arena, values[4], &target, 1);
    if (ok && runnel_eagle_train(training->engine->engine, model, corpus, corpus_bytes, head, &options,
                                 &training->training, &error) != RUNNEL_OK) {
        addon_throw(env, &error);
        ok = false;
    }
    arena_free(&arena);
    return ok;
}

/* trainingNew(engine, model, corpus, head, options) */
static napi_value training_new(napi_env env, napi_callback_info info)
{
    struct node_training *training;
    struct node_engine *engine;
    napi_value values[5], handle;

    if (!addon_arguments(env, info, 5, values) || (engine = engine_open(env, values[0])) == NULL)
        return NULL;
    training = calloc(1, sizeof *training);
    if (training == NULL || napi_create_external(env, training, finalize, NULL, &handle) != napi_ok) {
        free(training);
        return addon_fail(env, RUNNEL_NO_MEMORY, NULL);
    }
    training->kind = BOX_TRAINING;
    training->engine = engine;
    engine->references++;
    return begin(env, training, values) ? handle : NULL;
}

/* trainingProgress(training): does not wait; undefined: nothing new. */
static napi_value training_progress(napi_env env, napi_callback_info info)
{
    runnel_training_progress progress = {.struct_size = sizeof progress};
    struct node_training *training;
    runnel_error error = {0};
    napi_value value;

    if (!addon_arguments(env, info, 1, &value) || (training = addon_box(env, value, BOX_TRAINING)) == NULL)
        return NULL;
    if (runnel_training_wait(training->training, 0, &progress, &error) != RUNNEL_OK)
        return addon_throw(env, &error);
    return fields_write(env, fields_of("runnel_training_progress"), &progress);
}

/* trainingCancel(training) */
static napi_value training_cancel(napi_env env, napi_callback_info info)
{
    struct node_training *training;
    napi_value value;

    if (addon_arguments(env, info, 1, &value) && (training = addon_box(env, value, BOX_TRAINING)) != NULL)
        runnel_training_cancel(training->training);
    return NULL;
}

/* trainingFree(training): after its end. */
static napi_value training_free(napi_env env, napi_callback_info info)
{
    struct node_training *training;
    napi_value value;

    if (!addon_arguments(env, info, 1, &value) || (training = addon_box(env, value, BOX_TRAINING)) == NULL)
        return NULL;
    runnel_training_free(training->training);
    training->training = NULL;
    return NULL;
}

void training_export(napi_env env, napi_value exports)
{
    static const struct method methods[] = {{"trainingNew", training_new},
                                            {"trainingProgress", training_progress},
                                            {"trainingCancel", training_cancel},
                                            {"trainingFree", training_free}};

    addon_export(env, exports, methods, sizeof methods / sizeof methods[0]);
}
