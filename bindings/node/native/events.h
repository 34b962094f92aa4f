/* Events on their way to JavaScript, as numbers and one text.
 *
 *     pack:   [ slot, type, token, ... | slot, type, token, ... | ... ]    words, memory of an ArrayBuffer
 *             "the texts of all, one after another"
 *             extras: what is an object in JavaScript, copied
 *
 * One thread writes a pack, with nothing of Node: the watcher (watcher.h), or the loop's with transport "uv". Then it
 * is the loop's, which makes JavaScript's values of text and extras and calls onEvents once. */
#ifndef RN_NODE_EVENTS_H
#define RN_NODE_EVENTS_H

#include "slot.h"

enum {
    EVENTS_PER_PACK = 512, /* about a quarter of a millisecond of JavaScript */
    /* an event: slot, type, token, tokens, where its text begins and its length (in JavaScript's units), extra (-1:
     * none), tool call, logprob (float), shifts */
    WORDS_PER_EVENT = 10,
    EVENT_LOAD = 100 /* type of a load's event; its state is the token, its fraction the logprob */
};

/* What comes with an event as an object. */
struct event_extra {
    uint32_t event;            /* its place in the pack */
    struct node_slot *ended;   /* the answer of a stream that has ended */
    const runnel_error *error; /* of a load; the model's */
    runnel_event *copy;        /* an event with its arrays behind it, malloc's */
};

struct event_pack {
    int32_t number; /* of its buffer among functions.words */
    napi_ref buffer;
    int32_t *words; /* [EVENTS_PER_PACK][WORDS_PER_EVENT] */
    uint32_t n_events, n_extras;
    struct event_extra extras[EVENTS_PER_PACK];
    char *text; /* [text_bytes] of text_capacity */
    size_t text_bytes, text_capacity;
    int32_t text_units; /* its length in JavaScript */
    bool text_is_ascii;
    bool can_wait; /* pieces alone, of streams that have begun before */
};

/* What JavaScript gave for its events. */
struct event_sink {
    napi_env env;
    napi_ref on_events; /* (pack, events, texts) => void */
    napi_ref extras;    /* an array: objects that belong to events */
};

/* Loop's thread. Element `number` of `buffers` becomes the pack's ArrayBuffer. */
bool pack_init(napi_env env, struct event_pack *pack, uint32_t number, napi_value buffers);
void pack_fini(napi_env env, struct event_pack *pack);

static inline bool event_is_terminal(runnel_event_type type)
{
    return type == RUNNEL_EVENT_DONE || type == RUNNEL_EVENT_CANCELLED || type == RUNNEL_EVENT_FAILED;
}

static inline bool pack_is_full(const struct event_pack *pack)
{
    return pack->n_events == EVENTS_PER_PACK;
}

/* Writes the event down, and what it says to the slot's answer. The pack is not full. What there is no memory for is
 * lost, and the stream ends as FAILED. */
void pack_add(struct event_pack *pack, struct node_slot *slot, const runnel_event *event);

/* The event of a load; *error keeps what it failed with, until it is delivered. */
void pack_add_load(struct event_pack *pack, uint32_t slot, const runnel_load_event *event, runnel_error *error);

/* Loop's thread: calls JavaScript with what is in the pack, if anything, frees the slots of streams that have ended,
 * and leaves the pack empty. */
void pack_deliver(struct event_pack *pack, const struct event_sink *sink);

#endif
