/* Events as numbers, text and objects: see events.h, and engine.h for the picture. */
#include "events.h"

#include <stdlib.h>
#include <string.h>

#include "fields.h"

static bool is_terminal(runnel_event_type type)
{
    return type == RUNNEL_EVENT_DONE || type == RUNNEL_EVENT_CANCELLED || type == RUNNEL_EVENT_FAILED;
}

/* How many 16-bit units the UTF-8 has in JavaScript. */
static int32_t utf16_length(const char *text, size_t bytes, bool *ascii)
{
    int32_t n = 0;
    unsigned char any = 0;

    for (size_t i = 0; i < bytes; i++) {
        unsigned char byte = (unsigned char)text[i];

        any |= byte;
        n += ((byte & 0xc0) != 0x80) + (byte >= 0xf0);
    }
    *ascii = any < 0x80;
    return n;
}

static bool reserve(struct node_engine *engine, size_t bytes)
{
    size_t capacity = engine->text_capacity > 0 ? engine->text_capacity : 16384;
    char *grown;

    if (engine->text_bytes + bytes <= engine->text_capacity)
        return true;
    while (capacity < engine->text_bytes + bytes)
        capacity *= 2;
    grown = realloc(engine->text, capacity);
    if (grown == NULL)
        return false;
    engine->text = grown;
    engine->text_capacity = capacity;
    return true;
}

static void call_events(struct node_engine *engine, const char *text, size_t bytes, bool ascii)
{
    napi_env env = engine->env;
    napi_value function, arguments[2], result;
    napi_status status;

    arguments[0] = addon_number(env, engine->n_events);
    status = ascii ? napi_create_string_latin1(env, text, bytes, &arguments[1])
                   : napi_create_string_utf8(env, text, bytes, &arguments[1]);
    engine->n_events = engine->n_extras = 0;
    engine->text_bytes = 0;
    engine->text_is_ascii = true;
    if (status == napi_ok && napi_get_reference_value(env, engine->on_events, &function) == napi_ok)
        napi_call_function(env, addon_undefined(env), function, 2, arguments, &result);
}

void events_flush(struct node_engine *engine)
{
    if (engine->n_events > 0)
        call_events(engine, engine->text != NULL ? engine->text : "", engine->text_bytes, engine->text_is_ascii);
}

/* An object that goes with the event; returns its place. */
static int32_t add_extra(struct node_engine *engine, napi_value value)
{
    napi_value extras;

    if (value == NULL || napi_get_reference_value(engine->env, engine->extras, &extras) != napi_ok ||
        napi_set_element(engine->env, extras, engine->n_extras, value) != napi_ok)
        return -1;
    return (int32_t)engine->n_extras++;
}

static napi_value floats(napi_env env, const float *values, size_t n)
{
    napi_value buffer, array = NULL;
    void *data;

    if (napi_create_arraybuffer(env, n * sizeof *values, &data, &buffer) != napi_ok)
        return NULL;
    if (n > 0)
        memcpy(data, values, n * sizeof *values);
    napi_create_typedarray(env, napi_float32_array, n, buffer, 0, &array);
    return array;
}

static napi_value top_of(napi_env env, const runnel_event *event)
{
    napi_value array, pair;

    if (napi_create_array_with_length(env, event->n_top, &array) != napi_ok)
        return NULL;
    for (uint32_t i = 0; i < event->n_top; i++) {
        if (napi_create_object(env, &pair) != napi_ok)
            return NULL;
        addon_set(env, pair, "token", addon_number(env, event->top[i].token));
        addon_set(env, pair, "logprob", addon_number(env, (double)event->top[i].logprob));
        napi_set_element(env, array, i, pair);
    }
    return array;
}

static napi_value end_of(napi_env env, const struct node_answer *answer, const runnel_event *event)
{
    runnel_error error = {.status = answer->lost ? RUNNEL_NO_MEMORY : event->status};
    const char *sentence = answer->lost ? runnel_status_text(RUNNEL_NO_MEMORY) : event->error;
    napi_value object;

    if (napi_create_object(env, &object) != napi_ok)
        return NULL;
    addon_set(env, object, "finish", addon_number(env, event->finish));
    addon_set(env, object, "stop", addon_number(env, event->stop));
    addon_set(env, object, "stopToken", addon_number(env, event->stop_token));
    answer_write(env, object, answer);
    addon_set(env, object, "usage", fields_write(env, fields_of("runnel_usage"), &event->usage));
    addon_set(env, object, "timings", fields_write(env, fields_of("runnel_timings"), &event->timings));
    if (answer->lost || event->type == RUNNEL_EVENT_FAILED) {
        strncpy(error.message, sentence, sizeof error.message - 1);
        addon_set(env, object, "error", addon_error(env, &error));
    }
    return object;
}

static napi_value extra_of(napi_env env, const struct node_answer *answer, const runnel_event *event)
{
    napi_value object;

    if (is_terminal(event->type))
        return end_of(env, answer, event);
    switch (event->type) {
    case RUNNEL_EVENT_LOGITS:
    case RUNNEL_EVENT_PROGRESS:
        if (napi_create_object(env, &object) != napi_ok)
            return NULL;
        if (event->type == RUNNEL_EVENT_LOGITS) {
            addon_set(env, object, "position", addon_count(env, event->position));
            addon_set(env, object, "logits", floats(env, event->logits, event->n_logits));
        } else {
            addon_set(env, object, "done", addon_count(env, event->prompt_done));
            addon_set(env, object, "total", addon_count(env, event->prompt_total));
        }
        return object;
    case RUNNEL_EVENT_EMBEDDING:
        return floats(env, event->embedding, event->n_embedding);
    default:
        return event->n_top > 0 ? top_of(env, event) : NULL;
    }
}

static int32_t *next_words(struct node_engine *engine, uint32_t slot, int32_t type)
{
    int32_t *words;

    if (engine->n_events == EVENTS_PER_WAKE)
        events_flush(engine);
    words = engine->words + (size_t)engine->n_events++ * WORDS_PER_EVENT;
    words[0] = (int32_t)slot;
    words[1] = type;
    words[2] = words[3] = words[4] = words[5] = words[7] = words[8] = words[9] = 0;
    words[6] = -1;
    return words;
}

void events_add(struct node_engine *engine, struct node_slot *slot, const runnel_event *event)
{
    bool ascii = true, room;
    int32_t *words;

    answer_add(&slot->answer, event);
    if (slot->quiet && (event->type == RUNNEL_EVENT_TOKEN || event->type == RUNNEL_EVENT_REASONING))
        return;
    if (!reserve(engine, event->text_bytes))
        events_flush(engine);
    room = engine->text_bytes + event->text_bytes <= engine->text_capacity;
    words = next_words(engine, slot->number, (int32_t)event->type);
    words[2] = event->token;
    words[3] = (int32_t)event->n_tokens;
    words[4] = utf16_length(event->text, event->text_bytes, &ascii);
    words[5] = (int32_t)event->tool_call;
    words[6] = add_extra(engine, extra_of(engine->env, &slot->answer, event));
    memcpy(&words[7], &event->logprob, sizeof event->logprob);
    words[8] = (int32_t)event->usage.shifts;
    engine->text_is_ascii &= ascii;
    if (room && event->text_bytes > 0) {
        memcpy(engine->text + engine->text_bytes, event->text, event->text_bytes);
        engine->text_bytes += event->text_bytes;
    } else if (!room) {
        call_events(engine, event->text, event->text_bytes, ascii); /* no memory: it goes alone, from where it is */
    }
    if (is_terminal(event->type)) {
        if (slot->answer.lost)
            words[1] = RUNNEL_EVENT_FAILED;
        slot_free(slot);
    }
}

/* ---- Transport "uv" ------------------------------------------------------------------------ */

/* The first event of a turn of the loop has been written. */
static void ask_for_flush(struct node_engine *engine)
{
    napi_env env = engine->env;
    napi_value function, global, result, thrown;
    bool pending = false;

    if (napi_get_reference_value(env, engine->on_first, &function) != napi_ok ||
        napi_get_global(env, &global) != napi_ok)
        return;
    napi_make_callback(env, NULL, global, function, 0, NULL, &result);
    napi_is_exception_pending(env, &pending);
    if (pending && napi_get_and_clear_last_exception(env, &thrown) == napi_ok)
        napi_fatal_exception(env, thrown);
}

static void on_event(void *user, const runnel_event *event)
{
    struct node_slot *slot = user;
    struct node_engine *engine = slot->engine;
    napi_handle_scope scope;
    bool asked = engine->n_events > 0;

    if (engine->closing || napi_open_handle_scope(engine->env, &scope) != napi_ok)
        return;
    events_add(engine, slot, event);
    if (!asked && engine->n_events > 0)
        ask_for_flush(engine);
    napi_close_handle_scope(engine->env, scope);
}

runnel_event_fn engine_callback(const struct node_engine *engine)
{
    return engine->uv ? on_event : NULL;
}

/* ---- Loads --------------------------------------------------------------------------------- */

void engine_on_load(struct node_engine *engine, uint32_t slot, const runnel_load_event *event)
{
    napi_handle_scope scope;
    int32_t *words;

    if (engine->closing || napi_open_handle_scope(engine->env, &scope) != napi_ok)
        return;
    words = next_words(engine, slot, EVENT_LOAD);
    words[2] = (int32_t)event->state;
    memcpy(&words[7], &event->fraction, sizeof event->fraction);
    if (event->state == RUNNEL_LOAD_FAILED && event->error != NULL)
        words[6] = add_extra(engine, addon_error(engine->env, event->error));
    if (engine->uv && engine->n_events == 1)
        ask_for_flush(engine);
    napi_close_handle_scope(engine->env, scope);
}
