/* Draws that JavaScript makes: see choose.h. */
#include "choose.h"

#include <string.h>

#include "fields.h"

static napi_value float_array(napi_env env, const float *values, size_t n, float **data)
{
    napi_value buffer, array = NULL;

    if (napi_create_arraybuffer(env, n * sizeof *values, (void **)data, &buffer) != napi_ok)
        return NULL;
    memcpy(*data, values, n * sizeof *values);
    napi_create_typedarray(env, napi_float32_array, n, buffer, 0, &array);
    return array;
}

/* onChoose(slot, tokens, logits, position, sequence) gives a place; logits that it changed come back. */
static int64_t ask(struct node_slot *slot, runnel_candidates *candidates)
{
    struct node_engine *engine = slot->engine;
    napi_env env = engine->env;
    napi_value function, arguments[5], result;
    int64_t place = INT64_MAX; /* no such candidate: the stream fails */
    napi_typedarray_type type;
    float *logits = NULL;
    size_t n = 0;

    arguments[0] = addon_number(env, slot->number);
    arguments[1] = fields_token_array(env, candidates->tokens, candidates->n);
    arguments[2] = float_array(env, candidates->logits, candidates->n, &logits);
    arguments[3] = addon_count(env, candidates->position);
    arguments[4] = fields_token_array(env, candidates->sequence, candidates->n_sequence);
    if (arguments[1] == NULL || arguments[2] == NULL || arguments[4] == NULL ||
        napi_get_reference_value(env, engine->on_choose, &function) != napi_ok)
        return place;
    engine->candidates = candidates;
    if (napi_call_function(env, addon_undefined(env), function, 5, arguments, &result) == napi_ok)
        napi_get_value_int64(env, result, &place);
    engine->candidates = NULL;
    /* The function may have given the array's memory away. */
    if (napi_get_typedarray_info(env, arguments[2], &type, &n, (void **)&logits, NULL, NULL) == napi_ok &&
        n == candidates->n)
        memcpy(candidates->logits, logits, n * sizeof *logits);
    return place;
}

int64_t choose_by_javascript(struct node_slot *slot, runnel_candidates *candidates)
{
    napi_handle_scope scope;
    int64_t place;

    if (slot->engine->closing || napi_open_handle_scope(slot->engine->env, &scope) != napi_ok)
        return INT64_MAX;
    place = ask(slot, candidates);
    napi_close_handle_scope(slot->engine->env, scope);
    return place;
}

int64_t choose_callback(void *user, runnel_candidates *candidates)
{
    struct node_slot *slot = user;

    return slot->engine->uv ? choose_by_javascript(slot, candidates)
                            : watcher_ask(&slot->engine->watcher, slot, candidates);
}

/* candidatesDraw(engine, logits): while onChoose runs. */
static napi_value candidates_draw(napi_env env, napi_callback_info info)
{
    struct node_engine *engine;
    napi_typedarray_type type;
    napi_value values[2];
    void *logits = NULL;
    size_t n = 0;

    if (!addon_arguments(env, info, 2, values) || (engine = engine_open(env, values[0])) == NULL)
        return NULL;
    if (engine->candidates == NULL)
        return addon_fail(env, RUNNEL_STATE, "draw() is called inside choose()");
    if (napi_get_typedarray_info(env, values[1], &type, &n, &logits, NULL, NULL) != napi_ok ||
        type != napi_float32_array || n != engine->candidates->n)
        return addon_fail(env, RUNNEL_INVALID, "logits must be those of the candidates");
    memcpy(engine->candidates->logits, logits, n * sizeof(float));
    return addon_number(env, (double)runnel_candidates_draw(engine->candidates));
}

/* streamChoose(engine, stream, place) */
static napi_value stream_choose(napi_env env, napi_callback_info info)
{
    struct node_engine *engine;
    runnel_stream stream = {0};
    runnel_status status;
    napi_value values[3];
    int64_t place = -1;

    if (!addon_arguments(env, info, 3, values))
        return NULL;
    engine = addon_box(env, values[0], BOX_ENGINE);
    if (engine == NULL || engine->engine == NULL || !addon_id(env, values[1], &stream.id))
        return NULL;
    if (napi_get_value_int64(env, values[2], &place) != napi_ok || place < 0)
        return addon_fail(env, RUNNEL_INVALID, "a choice is the place of a candidate");
    status = runnel_stream_choose(engine->engine, stream, (size_t)place);
    return status == RUNNEL_OK || status == RUNNEL_NOT_FOUND ? NULL : addon_fail(env, status, NULL);
}

void choose_export(napi_env env, napi_value exports)
{
    static const struct method methods[] = {{"candidatesDraw", candidates_draw}, {"streamChoose", stream_choose}};

    addon_export(env, exports, methods, sizeof methods / sizeof methods[0]);
}
