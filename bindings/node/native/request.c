/* Requests from objects of JavaScript, and what can be done to a running stream. */
#include <runnel_scores.h>
#include <stdlib.h>

#include "fields.h"
#include "choose.h"
#include "model.h"
#include "parse.h"

bool parse_options(napi_env env, struct arena *arena, napi_value options, struct parsed *parsed)
{
    struct target targets[] = {{.fields = fields_request, .base = &parsed->request},
                               {.fields = fields_sampling, .base = &parsed->request.sampling},
                               {.fields = fields_samplers, .base = &parsed->samplers},
                               {.fields = fields_chat, .base = &parsed->chat}};

    runnel_request_default(&parsed->request);
    runnel_samplers_default(&parsed->samplers);
    runnel_chat_default(&parsed->chat);
    if (!fields_read(env, arena, options, targets, 4))
        return false;
    if (targets[2].touched)
        parsed->request.sampling.samplers = &parsed->samplers;
    if (targets[3].touched)
        parsed->request.chat = &parsed->chat;
    return true;
}

struct node_slot *submit_begin(napi_env env, const napi_value *values, struct node_model **model)
{
    struct node_slot *slot = NULL;
    uint32_t number = 0;

    *model = model_open(env, values[0]);
    if (*model == NULL)
        return NULL;
    napi_get_value_uint32(env, values[2], &number);
    slot = slot_new((*model)->engine, &(*model)->engine->slots, number);
    if (slot == NULL)
        addon_fail(env, RUNNEL_NO_MEMORY, NULL);
    return slot;
}

napi_value submit_end(napi_env env, struct node_slot *slot, runnel_status status, const runnel_error *error,
                      runnel_stream stream)
{
    napi_value value = NULL;

    if (status != RUNNEL_OK) {
        slot_free(slot);
        return addon_throw(env, error);
    }
    napi_create_bigint_uint64(env, stream.id, &value);
    return value;
}

static napi_value submit_parsed(napi_env env, const napi_value *values, struct parsed *parsed)
{
    runnel_stream stream = {0};
    runnel_error error = {0};
    struct node_model *model;
    struct node_slot *slot = submit_begin(env, values, &model);
    runnel_status status;
    bool chooses = false;

    if (slot == NULL)
        return NULL;
    napi_get_value_bool(env, values[3], &chooses);
    napi_get_value_bool(env, values[4], &slot->quiet);
    if (chooses) {
        parsed->request.sampling.samplers = &parsed->samplers;
        parsed->samplers.choose = choose_callback;
        parsed->samplers.choose_user = slot;
    }
    parsed->request.on_event = engine_callback(model->engine);
    parsed->request.user = slot;
    status = runnel_generate(model->model, &parsed->request, &stream, &error);
    return submit_end(env, slot, status, &error, stream);
}

/* The library's own error would speak of the struct. */
static bool has_one_prompt(napi_env env, const runnel_request *request)
{
    const char *other = request->prompt != NULL ? "prompt" : request->tokens != NULL ? "tokens" : NULL;

    if (request->chat == NULL || other == NULL)
        return true;
    addon_fail(env, RUNNEL_INVALID, "%s does not go with messages and the other options of a conversation", other);
    return false;
}

/* generate(model, options, slot, chooses, quiet): the stream's id. */
static napi_value generate(napi_env env, napi_callback_info info)
{
    struct arena arena = {0};
    struct parsed parsed;
    napi_value values[5], result = NULL;

    if (addon_arguments(env, info, 5, values) && parse_options(env, &arena, values[1], &parsed) &&
        has_one_prompt(env, &parsed.request))
        result = submit_parsed(env, values, &parsed);
    arena_free(&arena);
    return result;
}

/* embed(model, options, slot) */
static napi_value embed(napi_env env, napi_callback_info info)
{
    struct arena arena = {0};
    runnel_stream stream = {0};
    runnel_error error = {0};
    runnel_embed_request request;
    struct target target = {.fields = fields_of("runnel_embed_request"), .base = &request};
    struct node_model *model;
    struct node_slot *slot;
    runnel_status status;
    napi_value values[3], result = NULL;

    runnel_embed_request_default(&request);
    if (addon_arguments(env, info, 3, values) && fields_read(env, &arena, values[1], &target, 1) &&
        (slot = submit_begin(env, values, &model)) != NULL) {
        request.on_event = engine_callback(model->engine);
        request.user = slot;
        status = runnel_embed(model->model, &request, &stream, &error);
        result = submit_end(env, slot, status, &error, stream);
    }
    arena_free(&arena);
    return result;
}

/* score(model, options, slot) */
static napi_value score(napi_env env, napi_callback_info info)
{
    struct arena arena = {0};
    runnel_stream stream = {0};
    runnel_error error = {0};
    runnel_score_request request;
    struct target target = {.fields = fields_of("runnel_score_request"), .base = &request};
    struct node_model *model;
    struct node_slot *slot;
    runnel_status status;
    napi_value values[3], result = NULL;

    runnel_score_request_default(&request);
    if (addon_arguments(env, info, 3, values) && fields_read(env, &arena, values[1], &target, 1) &&
        (slot = submit_begin(env, values, &model)) != NULL) {
        request.on_event = engine_callback(model->engine);
        request.user = slot;
        status = runnel_score(model->model, &request, &stream, &error);
        result = submit_end(env, slot, status, &error, stream);
    }
    arena_free(&arena);
    return result;
}

/* modelScores(model): runnel_scores_info and labels. */
static napi_value model_scores(napi_env env, napi_callback_info info)
{
    runnel_scores_info scores = {.struct_size = sizeof scores};
    struct node_model *model;
    napi_value value, object, labels;
    runnel_status status;
    const char *text;
    size_t bytes;

    if (!addon_arguments(env, info, 1, &value) || (model = model_open(env, value)) == NULL)
        return NULL;
    status = runnel_model_scores(model->model, &scores);
    if (status == RUNNEL_UNSUPPORTED)
        return addon_fail(env, status, "the model has no head that ranks or classifies");
    if (status != RUNNEL_OK)
        return addon_fail(env, status, NULL);
    object = fields_write(env, fields_of("runnel_scores_info"), &scores);
    if (object == NULL || napi_create_array(env, &labels) != napi_ok)
        return NULL;
    for (uint32_t i = 0; i < scores.n_labels; i++)
        if (runnel_model_label(model->model, i, &text, &bytes) == RUNNEL_OK)
            napi_set_element(env, labels, i, addon_string(env, text, bytes));
    addon_set(env, object, "labels", labels);
    return object;
}

/* A call of (engine, stream); a stream that has ended is no error, since its end may be on its way here. */
static napi_value stream_call(napi_env env, napi_callback_info info,
                              runnel_status (*call)(runnel_engine *engine, runnel_stream stream))
{
    struct node_engine *engine;
    runnel_stream stream = {0};
    runnel_status status;
    napi_value values[2];

    if (!addon_arguments(env, info, 2, values))
        return NULL;
    engine = addon_box(env, values[0], BOX_ENGINE);
    if (engine == NULL || engine->engine == NULL)
        return NULL;
    if (!addon_id(env, values[1], &stream.id))
        return addon_fail(env, RUNNEL_INVALID, "not a stream");
    status = call(engine->engine, stream);
    return status == RUNNEL_OK || status == RUNNEL_NOT_FOUND ? NULL : addon_fail(env, status, NULL);
}

/* streamReceived(engine, slot): {text, reasoning, tokens} so far, also of an engine that is being closed. */
static napi_value stream_received(napi_env env, napi_callback_info info)
{
    struct node_engine *engine;
    napi_value values[2], object;
    uint32_t number = 0;

    if (!addon_arguments(env, info, 2, values) || (engine = addon_box(env, values[0], BOX_ENGINE)) == NULL)
        return NULL;
    napi_get_value_uint32(env, values[1], &number);
    for (struct node_slot *slot = engine->slots; slot != NULL; slot = slot->next) {
        if (slot->number != number)
            continue;
        if (napi_create_object(env, &object) != napi_ok)
            return NULL;
        answer_write(env, object, &slot->answer);
        return object;
    }
    return addon_fail(env, RUNNEL_NOT_FOUND, "no such stream");
}

static napi_value stream_cancel(napi_env env, napi_callback_info info)
{
    return stream_call(env, info, runnel_stream_cancel);
}

static napi_value stream_pause(napi_env env, napi_callback_info info)
{
    return stream_call(env, info, runnel_stream_pause);
}

static napi_value stream_resume(napi_env env, napi_callback_info info)
{
    return stream_call(env, info, runnel_stream_resume);
}

void request_export(napi_env env, napi_value exports)
{
    static const struct method methods[] = {{"generate", generate},
                                            {"embed", embed},
                                            {"score", score},
                                            {"modelScores", model_scores},
                                            {"streamReceived", stream_received},
                                            {"streamCancel", stream_cancel},
                                            {"streamPause", stream_pause},
                                            {"streamResume", stream_resume}};

    addon_export(env, exports, methods, sizeof methods / sizeof methods[0]);
}
