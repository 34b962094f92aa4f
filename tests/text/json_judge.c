/* See json_judge.h. */
#include "json_judge.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "text/value.h"

static bool same(struct rn_value value, const json_t *json);

static bool same_text(struct rn_value value, const char *text, size_t n)
{
    return value.kind == RN_VALUE_STRING && value.string->n == n && memcmp(value.string->bytes, text, n) == 0 &&
           (n == 0 || value.string->origin == RN_ORIGIN_DATA);
}

static bool same_list(struct rn_value value, const json_t *json)
{
    bool good = value.kind == RN_VALUE_LIST && value.list->n == json_array_size(json);

    for (size_t i = 0; good && i < value.list->n; i++)
        good = same(value.list->items[i], json_array_get(json, i));
    return good;
}

/* In the order of the text, which jansson keeps, too. */
static bool same_dict(struct rn_value value, json_t *json)
{
    bool good = value.kind == RN_VALUE_DICT && value.dict->n == json_object_size(json);
    void *at = json_object_iter(json);

    for (size_t i = 0; good && i < value.dict->n; i++, at = json_object_iter_next(json, at))
        good = same_text(value.dict->entries[i].key, json_object_iter_key(at), json_object_iter_key_len(at)) &&
               same(value.dict->entries[i].value, json_object_iter_value(at));
    return good;
}

static bool same(struct rn_value value, const json_t *json)
{
    switch (json_typeof(json)) {
    case JSON_OBJECT:
        return same_dict(value, (json_t *)(uintptr_t)json);
    case JSON_ARRAY:
        return same_list(value, json);
    case JSON_STRING:
        return same_text(value, json_string_value(json), json_string_length(json));
    case JSON_INTEGER:
        return value.kind == RN_VALUE_INT && value.integer == json_integer_value(json);
    case JSON_REAL: /* to the bit, the sign of 0, too */
        return value.kind == RN_VALUE_FLOAT &&
               memcmp(&value.real, &(double){json_real_value(json)}, sizeof(double)) == 0;
    case JSON_NULL:
        return value.kind == RN_VALUE_NONE;
    default:
        return value.kind == RN_VALUE_BOOL && value.boolean == json_is_true(json);
    }
}

/* Of what jansson reads otherwise nothing is asked: it has no integers beyond 64 bits and no bound on exact digits,
 * takes deeper texts, and reads over NUL bytes. */
static bool is_judged(const char *text, size_t n, const json_t *json, json_error_t *why, const runnel_error *error)
{
    return (json != NULL || json_error_code(why) != json_error_numeric_overflow) && memchr(text, '\0', n) == NULL &&
           strstr(error->message, "JSON: a number of more than") == NULL &&
           strstr(error->message, "JSON: nested deeper") == NULL;
}

bool json_agrees(struct rn_heap *heap, const char *text, size_t n, bool exact, bool *right)
{
    size_t flags = JSON_DECODE_ANY | JSON_ALLOW_NUL | (exact ? JSON_REJECT_DUPLICATES : 0);
    json_error_t why;
    json_t *json = json_loadb(text, n, flags, &why);
    struct rn_arena arena;
    struct rn_value value;
    runnel_error error = {0};
    runnel_status status;
    bool agrees;

    rn_arena_init(&arena, heap, SIZE_MAX);
    status =
        exact ? rn_json_parse_exact(&arena, text, n, &value, &error) : rn_json_parse(&arena, text, n, &value, &error);
    agrees = json == NULL ? status == RUNNEL_INVALID && strncmp(error.message, "JSON line ", 10) == 0
                          : status == RUNNEL_OK && (exact || same(value, json));
    agrees = agrees || !is_judged(text, n, json, &why, &error);
    if (!agrees)
        fprintf(stderr, "%s%.*s\n%s: %s\njansson: %s\n", exact ? "exact: " : "", (int)n, text,
                runnel_status_text(status), error.message, json == NULL ? why.text : "reads it");
    *right = json != NULL;
    json_decref(json);
    rn_arena_fini(&arena);
    return agrees;
}
