/* Events as numbers, text and objects: see events.h, and engine.h for the picture. */
#include "events.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "addon.h"
#include "fields.h"

bool pack_init(napi_env env, struct event_pack *pack, uint32_t number, napi_value buffers)
{
    napi_value buffer;
    void *data;

    if (napi_create_arraybuffer(env, EVENTS_PER_PACK * WORDS_PER_EVENT * sizeof(int32_t), &data, &buffer) != napi_ok ||
        napi_create_reference(env, buffer, 1, &pack->buffer) != napi_ok ||
        napi_set_element(env, buffers, number, buffer) != napi_ok)
        return false;
    pack->number = (int32_t)number;
    pack->words = data;
    pack->text_is_ascii = pack->can_wait = true;
    return true;
}

static void clear(struct event_pack *pack)
{
    for (uint32_t i = 0; i < pack->n_extras; i++)
        free(pack->extras[i].copy);
    pack->n_events = pack->n_extras = 0;
    pack->text_bytes = 0;
    pack->text_units = 0;
    pack->text_is_ascii = pack->can_wait = true;
}

void pack_fini(napi_env env, struct event_pack *pack)
{
    clear(pack);
    if (pack->buffer != NULL)
        napi_delete_reference(env, pack->buffer);
    free(pack->text);
    *pack = (struct event_pack){0};
}

/* ---- Writing ------------------------------------------------------------------------------- */

static int32_t *next_words(struct event_pack *pack, uint32_t slot, int32_t type)
{
    int32_t *words = pack->words + (size_t)pack->n_events++ * WORDS_PER_EVENT;

    memset(words, 0, WORDS_PER_EVENT * sizeof *words);
    words[0] = (int32_t)slot;
    words[1] = type;
    words[6] = -1;
    return words;
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

static bool reserve(struct event_pack *pack, size_t bytes)
{
    size_t capacity = pack->text_capacity > 0 ? pack->text_capacity : 16384;
    char *grown;

    if (pack->text_bytes + bytes <= pack->text_capacity)
        return true;
    while (capacity < pack->text_bytes + bytes)
        capacity *= 2;
    grown = realloc(pack->text, capacity);
    if (grown == NULL)
        return false;
    pack->text = grown;
    pack->text_capacity = capacity;
    return true;
}

static bool put_text(struct event_pack *pack, int32_t *words, const char *text, size_t bytes)
{
    bool ascii;

    words[4] = pack->text_units;
    if (bytes == 0)
        return true;
    if (!reserve(pack, bytes))
        return false;
    words[5] = utf16_length(text, bytes, &ascii);
    pack->text_is_ascii &= ascii;
    memcpy(pack->text + pack->text_bytes, text, bytes);
    pack->text_bytes += bytes;
    pack->text_units += words[5];
    return true;
}

/* The array behind the event's copy, at *place, which is moved on. */
static const void *put_array(char **place, const void *values, size_t bytes)
{
    void *copy = *place;

    if (bytes > 0)
        memcpy(copy, values, bytes);
    *place += bytes;
    return copy;
}

/* NULL: no memory. */
static runnel_event *copy_event(const runnel_event *event)
{
    size_t top = event->n_top * sizeof *event->top, logits = event->n_logits * sizeof *event->logits,
           embedding = event->n_embedding * sizeof *event->embedding;
    runnel_event *copy = malloc(sizeof *copy + top + logits + embedding);
    char *place = (char *)(copy + 1);

    if (copy == NULL)
        return NULL;
    *copy = *event;
    copy->top = put_array(&place, event->top, top);
    copy->logits = put_array(&place, event->logits, logits);
    copy->embedding = put_array(&place, event->embedding, embedding);
    return copy;
}

/* The next piece of a stream: nobody waits for it as for the first, or for the end. */
static bool is_next(const struct node_slot *slot, runnel_event_type type)
{
    return slot->begun &&
           (type == RUNNEL_EVENT_TOKEN || type == RUNNEL_EVENT_REASONING || type == RUNNEL_EVENT_TOOL_ARGUMENTS);
}

static bool has_extra(const runnel_event *event)
{
    return event->n_top > 0 || event->type == RUNNEL_EVENT_LOGITS || event->type == RUNNEL_EVENT_PROGRESS ||
           event->type == RUNNEL_EVENT_EMBEDDING;
}

static void add_extra(struct event_pack *pack, struct event_extra extra)
{
    extra.event = pack->n_events - 1;
    pack->extras[pack->n_extras++] = extra;
}

static void put_end(struct event_pack *pack, struct node_slot *slot, const runnel_event *event)
{
    slot->end = *event;
    snprintf(slot->error, sizeof slot->error, "%s", event->error != NULL ? event->error : "");
    add_extra(pack, (struct event_extra){.ended = slot});
}

void pack_add(struct event_pack *pack, struct node_slot *slot, const runnel_event *event)
{
    runnel_event *copy = NULL;
    int32_t *words;
    bool kept;

    answer_add(&slot->answer, event);
    if (slot->quiet && (event->type == RUNNEL_EVENT_TOKEN || event->type == RUNNEL_EVENT_REASONING))
        return;
    pack->can_wait &= is_next(slot, event->type);
    slot->begun = true;
    words = next_words(pack, slot->number, (int32_t)event->type);
    words[2] = event->token;
    words[3] = (int32_t)event->n_tokens;
    kept = put_text(pack, words, event->text, event->text_bytes);
    words[7] = (int32_t)event->tool_call;
    memcpy(&words[8], &event->logprob, sizeof event->logprob);
    words[9] = (int32_t)event->usage.shifts;
    if (event_is_terminal(event->type)) {
        put_end(pack, slot, event);
    } else if (has_extra(event)) {
        copy = copy_event(event);
        kept &= copy != NULL;
        if (copy != NULL)
            add_extra(pack, (struct event_extra){.copy = copy});
    }
    slot->answer.lost |= !kept;
}

void pack_add_load(struct event_pack *pack, uint32_t slot, const runnel_load_event *event, runnel_error *error)
{
    int32_t *words = next_words(pack, slot, EVENT_LOAD);

    pack->can_wait = false;
    words[2] = (int32_t)event->state;
    memcpy(&words[8], &event->fraction, sizeof event->fraction);
    if (event->state != RUNNEL_LOAD_FAILED || event->error == NULL)
        return;
    *error = *event->error;
    add_extra(pack, (struct event_extra){.error = error});
}

/* ---- Delivering ---------------------------------------------------------------------------- */

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

static napi_value end_of(napi_env env, const struct node_slot *slot)
{
    const struct node_answer *answer = &slot->answer;
    const runnel_event *event = &slot->end;
    runnel_error error = {.status = answer->lost ? RUNNEL_NO_MEMORY : event->status};
    const char *sentence = answer->lost ? runnel_status_text(RUNNEL_NO_MEMORY) : slot->error;
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
        snprintf(error.message, sizeof error.message, "%s", sentence);
        addon_set(env, object, "error", addon_error(env, &error));
    }
    return object;
}

static napi_value value_of(napi_env env, const runnel_event *event)
{
    napi_value object;

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
        return top_of(env, event);
    }
}

/* Element i of engine.extras becomes the object, and the event says so. */
static void deliver_extra(napi_env env, struct event_pack *pack, napi_value extras, uint32_t i)
{
    const struct event_extra *extra = &pack->extras[i];
    int32_t *words = pack->words + (size_t)extra->event * WORDS_PER_EVENT;
    napi_value value = extra->ended != NULL   ? end_of(env, extra->ended)
                       : extra->error != NULL ? addon_error(env, extra->error)
                                              : value_of(env, extra->copy);

    if (value != NULL && napi_set_element(env, extras, i, value) == napi_ok)
        words[6] = (int32_t)i;
    if (extra->ended == NULL)
        return;
    if (extra->ended->answer.lost)
        words[1] = RUNNEL_EVENT_FAILED;
    slot_free(extra->ended);
}

void pack_deliver(struct event_pack *pack, const struct event_sink *sink)
{
    napi_env env = sink->env;
    napi_value function, extras, arguments[3], result;
    const char *text = pack->text_bytes > 0 ? pack->text : "";
    napi_status status;

    if (pack->n_events == 0)
        return;
    if (pack->n_extras > 0 && napi_get_reference_value(env, sink->extras, &extras) == napi_ok)
        for (uint32_t i = 0; i < pack->n_extras; i++)
            deliver_extra(env, pack, extras, i);
    arguments[0] = addon_number(env, pack->number);
    arguments[1] = addon_number(env, pack->n_events);
    status = pack->text_is_ascii ? napi_create_string_latin1(env, text, pack->text_bytes, &arguments[2])
                                 : napi_create_string_utf8(env, text, pack->text_bytes, &arguments[2]);
    clear(pack);
    if (status == napi_ok && napi_get_reference_value(env, sink->on_events, &function) == napi_ok)
        napi_call_function(env, addon_undefined(env), function, 3, arguments, &result);
    addon_uncaught(env);
}
