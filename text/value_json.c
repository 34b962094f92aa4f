/* JSON text to values: jansson parses, its tree is copied into the arena. See rn_json_parse in value.h. */
#include <jansson.h>
#include <string.h>

#include "text/value.h"

static struct rn_value convert(struct rn_arena *arena, const json_t *json);

static struct rn_value convert_string(struct rn_arena *arena, const char *bytes, size_t n)
{
    return rn_string_value(rn_str_new(arena, bytes, n, RN_ORIGIN_DATA));
}

static struct rn_value convert_array(struct rn_arena *arena, const json_t *json)
{
    size_t n = json_array_size(json), i;
    struct rn_list *list = rn_list_new(arena, n);

    rn_enter(arena);
    for (i = 0; i < n; i++)
        rn_list_push(arena, list, convert(arena, json_array_get(json, i)));
    rn_leave(arena);
    return rn_list_value(list);
}

static struct rn_value convert_object(struct rn_arena *arena, const json_t *json)
{
    struct rn_dict *dict = rn_dict_new(arena);
    json_t *object = (json_t *)(uintptr_t)json; /* iteration does not change it */
    void *at;

    rn_enter(arena);
    for (at = json_object_iter(object); at != NULL; at = json_object_iter_next(object, at))
        rn_dict_set(arena, dict, convert_string(arena, json_object_iter_key(at), json_object_iter_key_len(at)),
                    convert(arena, json_object_iter_value(at)));
    rn_leave(arena);
    return rn_dict_value(dict);
}

static struct rn_value convert(struct rn_arena *arena, const json_t *json)
{
    struct rn_value value = rn_none();

    switch (json_typeof(json)) {
    case JSON_OBJECT:
        value = convert_object(arena, json);
        break;
    case JSON_ARRAY:
        value = convert_array(arena, json);
        break;
    case JSON_STRING:
        value = convert_string(arena, json_string_value(json), json_string_length(json));
        break;
    case JSON_INTEGER:
        value = rn_int(json_integer_value(json));
        break;
    case JSON_REAL:
        value = rn_float(json_real_value(json));
        break;
    case JSON_TRUE:
    case JSON_FALSE:
        value = rn_bool(json_is_true(json));
        break;
    case JSON_NULL:
        break;
    }
    return value;
}

/* A copy of text[n] in which every integer of 19 digits or more has become a float: ".0" behind it. */
static char *widen_integers(struct rn_heap *heap, const char *text, size_t n, size_t *out_n)
{
    char *out = rn_alloc(heap, n + n / 8 + 2, 1); /* 2 bytes more for every 19 */
    bool in_string = false;
    size_t i, end, at = 0;

    for (i = 0; out != NULL && i < n; i = end) {
        end = i + 1;
        if (in_string && text[i] == '\\' && end < n) {
            end++;
        } else if (text[i] == '"') {
            in_string = !in_string;
        } else if (!in_string && text[i] >= '0' && text[i] <= '9') {
            while (end < n && text[end] >= '0' && text[end] <= '9')
                end++;
            if (end < n && (text[end] == '.' || text[end] == 'e' || text[end] == 'E'))
                while (end < n && strchr("0123456789.eE+-", text[end]) != NULL && text[end] != '\0')
                    end++;
            else if (end - i >= 19) {
                memcpy(out + at, text + i, end - i);
                at += end - i;
                memcpy(out + at, ".0", 2);
                at += 2;
                continue;
            }
        }
        memcpy(out + at, text + i, end - i);
        at += end - i;
    }
    *out_n = at;
    return out;
}

static json_t *load(struct rn_heap *heap, const char *text, size_t n, json_error_t *parse, runnel_status *status)
{
    json_t *json = json_loadb(text, n, JSON_DECODE_ANY | JSON_ALLOW_NUL, parse);

    *status = RUNNEL_INVALID;
    if (json == NULL && json_error_code(parse) == json_error_numeric_overflow) {
        char *wide = widen_integers(heap, text, n, &n);

        if (wide == NULL)
            *status = RUNNEL_NO_MEMORY;
        else
            json = json_loadb(wide, n, JSON_DECODE_ANY | JSON_ALLOW_NUL, parse);
        rn_free(heap, wide);
    } else if (json == NULL && json_error_code(parse) == json_error_out_of_memory) {
        *status = RUNNEL_NO_MEMORY;
    }
    return json;
}

/* Apart from its caller, whose variables must not be changed between setjmp and longjmp. */
static runnel_status convert_all(struct rn_arena *arena, const json_t *json, struct rn_value *out)
{
    jmp_buf here;

    arena->trap = &here;
    if (setjmp(here) != 0)
        return arena->status;
    *out = convert(arena, json);
    return RUNNEL_OK;
}

runnel_status rn_json_parse(struct rn_arena *arena, const char *text, size_t n, struct rn_value *out,
                            runnel_error *error)
{
    jmp_buf *trap = arena->trap;
    uint32_t depth = arena->depth, depth_limit = arena->depth_limit;
    runnel_status status;
    json_error_t parse;
    json_t *json;

    if (n > RN_JSON_BYTES)
        return rn_error_set(error, RUNNEL_INVALID, "JSON of %zu bytes; at most %zu", n, RN_JSON_BYTES);
    json = load(arena->heap, text, n, &parse, &status);
    if (json == NULL && status == RUNNEL_NO_MEMORY)
        return rn_error_set(error, status, "no memory to parse JSON");
    if (json == NULL)
        return rn_error_set(error, status, "JSON line %d, column %d: %s", parse.line, parse.column, parse.text);
    arena->depth = 0;
    arena->depth_limit = RN_JSON_DEPTH;
    status = convert_all(arena, json, out);
    json_decref(json);
    arena->trap = trap;
    arena->depth = depth;
    arena->depth_limit = depth_limit;
    if (status != RUNNEL_OK)
        return rn_error_set(error, status, "JSON: %s", arena->message);
    return RUNNEL_OK;
}
