/* JSON text to values: jansson parses, its tree is copied into the arena. See rn_json_parse in value.h.
 *
 * jansson makes doubles of numbers with a fraction. To keep their digits, the text is read beside its tree, in which
 * names and values stand in the same order as long as no name stands twice in an object. */
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "text/value.h"

struct reader {
    struct rn_arena *arena;
    const char *at, *end; /* what is left of the text, if numbers are to be exact; else NULL */
};

static struct rn_value convert(struct reader *r, const json_t *json);

static struct rn_value convert_string(struct rn_arena *arena, const char *bytes, size_t n)
{
    return rn_string_value(rn_str_new(arena, bytes, n, RN_ORIGIN_DATA));
}

static struct rn_value convert_array(struct reader *r, const json_t *json)
{
    size_t n = json_array_size(json), i;
    struct rn_list *list = rn_list_new(r->arena, n);

    for (i = 0; i < n; i++)
        rn_list_push(r->arena, list, convert(r, json_array_get(json, i)));
    return rn_list_value(list);
}

static struct rn_value convert_object(struct reader *r, const json_t *json)
{
    struct rn_dict *dict = rn_dict_new(r->arena);
    json_t *object = (json_t *)(uintptr_t)json; /* iteration does not change it */
    void *at;

    for (at = json_object_iter(object); at != NULL; at = json_object_iter_next(object, at))
        rn_dict_set(r->arena, dict, convert_string(r->arena, json_object_iter_key(at), json_object_iter_key_len(at)),
                    convert(r, json_object_iter_value(at)));
    return rn_dict_value(dict);
}

/* The next number of the text, which is JSON; *n its bytes. */
static const char *next_number(struct reader *r, size_t *n)
{
    const char *number;

    while (strchr("-0123456789", *r->at) == NULL) {
        if (*r->at++ != '"')
            continue;
        while (*r->at != '"')
            r->at += *r->at == '\\' ? 2 : 1;
        r->at++;
    }
    for (number = r->at; r->at < r->end && strchr("+-.eE0123456789", *r->at) != NULL && *r->at != '\0';)
        r->at++;
    *n = (size_t)(r->at - number);
    return number;
}

/* text[n] as -?[0-9]+(.[0-9]+)?([eE][+-]?[0-9]+)?; its digits and where the point is among them, behind n_int of them:
 * that may be before the first or behind the last. */
struct digits {
    bool negative;
    char *digits;
    long n, n_int;
};

static struct digits read_digits(struct rn_arena *arena, const char *text, size_t n)
{
    struct digits d = {.negative = text[0] == '-', .digits = rn_arena_take(arena, n, 1)};
    size_t i = d.negative;
    long point = -1, exponent = 0;

    for (; i < n && text[i] != 'e' && text[i] != 'E'; i++) {
        if (text[i] == '.')
            point = d.n;
        else
            d.digits[d.n++] = text[i];
    }
    d.n_int = point < 0 ? d.n : point;
    for (size_t k = i + 1; k < n && labs(exponent) <= RN_JSON_DIGITS; k++)
        if (text[k] >= '0' && text[k] <= '9')
            exponent = 10 * exponent + (text[k] - '0');
    if (i + 1 < n && text[i + 1] == '-')
        exponent = -exponent;
    for (; d.n > 0 && d.digits[0] == '0'; d.n--, d.n_int--)
        d.digits++;
    while (d.n > 0 && d.digits[d.n - 1] == '0')
        d.n--;
    if (d.n == 0)
        return (struct digits){.n = 0};
    if (d.n > RN_JSON_DIGITS || labs(exponent) > RN_JSON_DIGITS || labs(d.n_int + exponent) > RN_JSON_DIGITS)
        rn_raise(arena, RUNNEL_INVALID, "a number of more than %d digits", RN_JSON_DIGITS);
    d.n_int += exponent;
    return d;
}

/* As value.h says that a DECIMAL is written, which for an integer is its usual form. */
static struct rn_value convert_number(struct reader *r)
{
    size_t n, at = 0;
    const char *number = next_number(r, &n);
    struct digits d = read_digits(r->arena, number, n);
    char *text = rn_arena_take(r->arena, (size_t)(d.n + labs(d.n_int)) + 4, 1);
    long end = d.n > d.n_int ? d.n : d.n_int;
    struct rn_value value;

    if (d.negative)
        text[at++] = '-';
    if (d.n_int <= 0)
        text[at++] = '0';
    for (long i = d.n_int < 0 ? d.n_int : 0; i < end; i++) {
        if (i == d.n_int)
            text[at++] = '.';
        text[at++] = i >= 0 && i < d.n ? d.digits[i] : '0';
    }
    text[at] = '\0';
    if (d.n <= d.n_int || d.n == 0) {
        int64_t integer;

        errno = 0;
        integer = strtoll(text, NULL, 10);
        if (errno == 0)
            return rn_int(integer);
    }
    value = convert_string(r->arena, text, at);
    value.kind = RN_VALUE_DECIMAL;
    return value;
}

static struct rn_value convert(struct reader *r, const json_t *json)
{
    struct rn_value value = rn_none();

    switch (json_typeof(json)) {
    case JSON_OBJECT:
        value = convert_object(r, json);
        break;
    case JSON_ARRAY:
        value = convert_array(r, json);
        break;
    case JSON_STRING:
        value = convert_string(r->arena, json_string_value(json), json_string_length(json));
        break;
    case JSON_INTEGER:
    case JSON_REAL:
        if (r->at != NULL)
            value = convert_number(r);
        else
            value = json_is_integer(json) ? rn_int(json_integer_value(json)) : rn_float(json_real_value(json));
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

static json_t *load(struct rn_heap *heap, const char *text, size_t n, bool exact, json_error_t *parse,
                    runnel_status *status)
{
    size_t flags = JSON_DECODE_ANY | JSON_ALLOW_NUL | (exact ? JSON_REJECT_DUPLICATES : 0);
    json_t *json = json_loadb(text, n, flags, parse);

    *status = RUNNEL_INVALID;
    if (json == NULL && json_error_code(parse) == json_error_numeric_overflow) {
        char *wide = widen_integers(heap, text, n, &n);

        if (wide == NULL)
            *status = RUNNEL_NO_MEMORY;
        else
            json = json_loadb(wide, n, flags, parse);
        rn_free(heap, wide);
    } else if (json == NULL && json_error_code(parse) == json_error_out_of_memory) {
        *status = RUNNEL_NO_MEMORY;
    }
    return json;
}

/* How deep the brackets of text[n] stand within each other: at least as deep as a parser gets. */
static size_t depth_of(const char *text, size_t n)
{
    size_t depth = 0, deepest = 0;
    bool in_string = false;

    for (size_t i = 0; i < n; i++) {
        if (text[i] == '"')
            in_string = !in_string;
        else if (in_string)
            i += text[i] == '\\'; /* what it escapes says nothing */
        else if (text[i] == '[' || text[i] == '{')
            deepest = ++depth > deepest ? depth : deepest;
        else if ((text[i] == ']' || text[i] == '}') && depth > 0)
            depth--;
    }
    return deepest;
}

struct conversion {
    struct reader *r;
    const json_t *json;
    struct rn_value *out;
};

static void convert_all(void *user)
{
    struct conversion *all = user;

    *all->out = convert(all->r, all->json);
}

static runnel_status parse_json(struct reader r, const char *text, size_t n, struct rn_value *out, runnel_error *error)
{
    struct rn_arena *arena = r.arena;
    runnel_status status;
    json_error_t parse;
    json_t *json;
    bool fine;

    if (n > RN_JSON_BYTES)
        return rn_error_set(error, RUNNEL_INVALID, "JSON of %zu bytes; at most %zu", n, RN_JSON_BYTES);
    if (depth_of(text, n) > RN_JSON_DEPTH) /* jansson would go 2048 deep, on the host's stack */
        return rn_error_set(error, RUNNEL_INVALID, "JSON: nested deeper than %d", RN_JSON_DEPTH);
    json = load(arena->heap, text, n, r.at != NULL, &parse, &status);
    if (json == NULL && status == RUNNEL_NO_MEMORY)
        return rn_error_set(error, status, "no memory to parse JSON");
    if (json == NULL)
        return rn_error_set(error, status, "JSON line %d, column %d: %s", parse.line, parse.column, parse.text);
    fine = rn_arena_try(arena, NULL, convert_all, &(struct conversion){&r, json, out});
    json_decref(json);
    return fine ? RUNNEL_OK : rn_error_set(error, arena->status, "JSON: %s", arena->message);
}

runnel_status rn_json_parse(struct rn_arena *arena, const char *text, size_t n, struct rn_value *out,
                            runnel_error *error)
{
    return parse_json((struct reader){.arena = arena}, text, n, out, error);
}

runnel_status rn_json_parse_exact(struct rn_arena *arena, const char *text, size_t n, struct rn_value *out,
                                  runnel_error *error)
{
    return parse_json((struct reader){arena, text, text + n}, text, n, out, error);
}
