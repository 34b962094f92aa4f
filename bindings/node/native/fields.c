/* Members of structs, read and written by tables: see fields.h. */
#include "fields.h"

#include <math.h>
#include <runnel_fields.h>
#include <runnel_infill.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "addon.h"
#include "field_rows.h"

#define REQUEST_ROW(type, name) FIELD(runnel_request, name),
#define SAMPLING_ROW(type, name) FIELD(runnel_sampling, name),
#define SAMPLERS_ROW(type, name) FIELD(runnel_samplers, name),
#define CHAT_ROW(type, name) FIELD(runnel_chat, name),
#define GRAMMAR_ROW(type, name) FIELD(runnel_grammar, name),
static const struct field request_rows[] = {RUNNEL_REQUEST_FIELDS(REQUEST_ROW){0}};
static const struct field sampling_rows[] = {RUNNEL_SAMPLING_FIELDS(SAMPLING_ROW){0}};
static const struct field samplers_rows[] = {RUNNEL_SAMPLERS_FIELDS(SAMPLERS_ROW){0}};
static const struct field chat_rows[] = {RUNNEL_CHAT_FIELDS(CHAT_ROW){0}};
static const struct field grammar_rows[] = {RUNNEL_GRAMMAR_FIELDS(GRAMMAR_ROW){0}};
static const struct field infill_file_rows[] = {
    FIELD(runnel_infill_file, name), FIELD(runnel_infill_file, text), FIELD(runnel_infill_file, text_bytes), {0}};
const struct field *const fields_request = request_rows, *const fields_sampling = sampling_rows,
                          *const fields_samplers = samplers_rows, *const fields_chat = chat_rows;

static const struct field_table tables[] = {
    {"runnel_request", request_rows}, {"runnel_sampling", sampling_rows}, {"runnel_samplers", samplers_rows},
    {"runnel_chat", chat_rows},       {"runnel_grammar", grammar_rows},   {"runnel_infill_file", infill_file_rows},
};

const struct field *fields_of(const char *type)
{
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++)
        if (strcmp(tables[i].type, type) == 0)
            return tables[i].fields;
    for (const struct field_table *table = header_tables; table->type != NULL; table++)
        if (strcmp(table->type, type) == 0)
            return table->fields;
    return NULL;
}

struct arena_block {
    struct arena_block *next;
    _Alignas(16) char bytes[];
};

void *arena_alloc(struct arena *arena, size_t bytes)
{
    struct arena_block *block = bytes < SIZE_MAX / 2 ? calloc(1, sizeof *block + bytes) : NULL;

    if (block == NULL)
        return NULL;
    block->next = arena->first;
    arena->first = block;
    return block->bytes;
}

void arena_free(struct arena *arena)
{
    while (arena->first != NULL) {
        struct arena_block *next = arena->first->next;

        free(arena->first);
        arena->first = next;
    }
}

/* ---- Names -------------------------------------------------------------------------------- */

static void to_camel(const char *snake, char *camel, size_t capacity)
{
    size_t n = 0;

    for (; *snake != '\0' && n + 1 < capacity; snake++) {
        if (*snake == '_' && snake[1] >= 'a' && snake[1] <= 'z')
            camel[n++] = (char)(*++snake - 'a' + 'A');
        else if (*snake != '_')
            camel[n++] = *snake;
    }
    camel[n] = '\0';
}

/* NAME_bytes or n_NAME of a member; NULL: it has no count. */
static const struct field *count_of(const struct field *fields, const struct field *field)
{
    char behind[80], before[80];

    snprintf(behind, sizeof behind, "%s_bytes", field->name);
    snprintf(before, sizeof before, "n_%s", field->name);
    for (const struct field *other = fields; other->name != NULL; other++)
        if (strcmp(other->name, behind) == 0 || strcmp(other->name, before) == 0)
            return other;
    return NULL;
}

static bool is_pointer(enum field_kind kind)
{
    return kind == FIELD_STRING || kind == FIELD_BYTES || kind == FIELD_TOKENS || kind == FIELD_STRINGS ||
           kind == FIELD_BIASES || kind == FIELD_ADAPTERS || kind == FIELD_FILES || kind == FIELD_ARCHITECTURES ||
           kind == FIELD_U32S;
}

/* A member that says how much another has; JavaScript's values know it themselves. */
static bool is_count(const struct field *fields, const struct field *field)
{
    for (const struct field *other = fields; other->name != NULL; other++)
        if ((is_pointer(other->kind) || other->kind == FIELD_NONE) && count_of(fields, other) == field)
            return true;
    return false;
}

static const struct field *find(const struct field *fields, const char *camel)
{
    char name[80];

    for (const struct field *field = fields; field->name != NULL; field++) {
        to_camel(field->name, name, sizeof name);
        if (strcmp(name, camel) == 0)
            return field->kind == FIELD_NONE || is_count(fields, field) ? NULL : field;
    }
    return NULL;
}

/* ---- Reading ------------------------------------------------------------------------------- */

static bool refuse(napi_env env, const char *name, const char *what)
{
    addon_fail(env, RUNNEL_INVALID, "%s must be %s", name, what);
    return false;
}

static bool out_of_memory(napi_env env)
{
    addon_fail(env, RUNNEL_NO_MEMORY, NULL);
    return false;
}

/* The largest whole number that `most` stands for: 2^64 - 1 and 2^63 - 1 are none of a double. */
static unsigned long long last_of(double most)
{
    return most >= (double)UINT64_MAX ? UINT64_MAX : most >= (double)INT64_MAX ? INT64_MAX : (unsigned long long)most;
}

/* A whole number in [least, most]: a Number, a BigInt or a Boolean. */
static bool read_integer(napi_env env, const char *name, napi_value value, double least, double most, uint64_t *bits)
{
    char range[96];
    napi_valuetype type;
    double number = 0;
    bool given = false, lossless = false;

    napi_typeof(env, value, &type);
    if (type == napi_boolean) {
        napi_get_value_bool(env, value, &given);
        *bits = given;
        return true;
    }
    if (type == napi_bigint) {
        if (least < 0)
            napi_get_value_bigint_int64(env, value, (int64_t *)bits, &lossless);
        else
            napi_get_value_bigint_uint64(env, value, bits, &lossless);
        number = least < 0 ? (double)(int64_t)*bits : (double)*bits;
        if (lossless && number >= least && number <= most)
            return true;
    } else if (type == napi_number) {
        napi_get_value_double(env, value, &number);
        /* A Number of 2^53 or more may have been another one. */
        if (number == floor(number) && number >= least && number <= most && fabs(number) <= 9007199254740992.0) {
            *bits = number < 0 ? (uint64_t)(int64_t)number : (uint64_t)number;
            return true;
        }
    }
    snprintf(range, sizeof range, "an integer from %.0f to %llu%s", least, last_of(most),
             most > 9007199254740992.0 ? " (a BigInt beyond 2^53)" : "");
    return refuse(env, name, range);
}

static bool read_number(napi_env env, const char *name, napi_value value, double *number)
{
    return napi_get_value_double(env, value, number) == napi_ok || refuse(env, name, "a number");
}

bool fields_text(napi_env env, struct arena *arena, const char *name, napi_value value, const char **text,
                 size_t *bytes)
{
    napi_valuetype type;
    bool is_buffer = false;
    void *data = NULL;
    char *copy;

    napi_typeof(env, value, &type);
    if (type == napi_string) {
        napi_get_value_string_utf8(env, value, NULL, 0, bytes);
    } else {
        napi_is_buffer(env, value, &is_buffer);
        if (!is_buffer)
            return refuse(env, name, "a string or a Buffer");
        napi_get_buffer_info(env, value, &data, bytes);
    }
    copy = arena_alloc(arena, *bytes + 1);
    if (copy == NULL)
        return out_of_memory(env);
    if (is_buffer)
        memcpy(copy, *bytes > 0 ? data : "", *bytes);
    else
        napi_get_value_string_utf8(env, value, copy, *bytes + 1, bytes);
    *text = copy;
    return true;
}

/* A string that C reads up to its NUL. */
static bool read_string(napi_env env, struct arena *arena, const char *name, napi_value value, const char **text)
{
    size_t bytes;

    if (!fields_text(env, arena, name, value, text, &bytes))
        return false;
    return strlen(*text) == bytes || refuse(env, name, "without NUL characters");
}

bool fields_path(napi_env env, struct arena *arena, napi_value value, const char **path)
{
    return read_string(env, arena, "path", value, path);
}

/* An array of JavaScript may claim to be far longer than what is in it. */
enum { MOST_ELEMENTS = 1 << 26 };

static bool array_length(napi_env env, const char *name, napi_value value, const char *what, uint32_t *n)
{
    bool is_array = false;

    napi_is_array(env, value, &is_array);
    if (!is_array || napi_get_array_length(env, value, n) != napi_ok)
        return refuse(env, name, what);
    return *n <= MOST_ELEMENTS || refuse(env, name, "of at most 67108864 elements");
}

bool fields_token(napi_env env, const char *name, napi_value value, int32_t *token)
{
    uint64_t bits = 0;

    if (!read_integer(env, name, value, INT32_MIN, INT32_MAX, &bits))
        return false;
    *token = (int32_t)bits;
    return true;
}

bool fields_tokens(napi_env env, struct arena *arena, const char *name, napi_value value, const int32_t **tokens,
                   size_t *n)
{
    napi_typedarray_type type;
    bool is_typed = false;
    void *data = NULL;
    uint32_t length = 0;
    int32_t *copy;

    napi_is_typedarray(env, value, &is_typed);
    if (is_typed) {
        napi_get_typedarray_info(env, value, &type, n, &data, NULL, NULL);
        if (type != napi_int32_array)
            return refuse(env, name, "an Int32Array or an array of token ids");
    } else if (!array_length(env, name, value, "an Int32Array or an array of token ids", &length)) {
        return false;
    } else {
        *n = length;
    }
    copy = arena_alloc(arena, *n * sizeof *copy + 1);
    if (copy == NULL)
        return out_of_memory(env);
    if (is_typed && *n > 0)
        memcpy(copy, data, *n * sizeof *copy);
    for (uint32_t i = 0; i < length; i++) {
        napi_value element;

        if (napi_get_element(env, value, i, &element) != napi_ok || !fields_token(env, name, element, &copy[i]))
            return false;
    }
    *tokens = copy;
    return true;
}

static bool read_strings(napi_env env, struct arena *arena, const char *name, napi_value value,
                         const char *const **strings, size_t *n)
{
    const char **copy;
    uint32_t length;

    if (!array_length(env, name, value, "an array of strings", &length))
        return false;
    copy = arena_alloc(arena, length * sizeof *copy + 1);
    if (copy == NULL)
        return out_of_memory(env);
    for (uint32_t i = 0; i < length; i++) {
        napi_value element;

        if (napi_get_element(env, value, i, &element) != napi_ok || !read_string(env, arena, name, element, &copy[i]))
            return false;
    }
    *strings = copy;
    *n = length;
    return true;
}

/* [token, bias] pairs. */
static bool read_biases(napi_env env, struct arena *arena, const char *name, napi_value value,
                        const runnel_logit_bias **biases, size_t *n)
{
    runnel_logit_bias *copy;
    uint32_t length, two = 0;

    if (!array_length(env, name, value, "an array of [token, bias]", &length))
        return false;
    copy = arena_alloc(arena, length * sizeof *copy + 1);
    if (copy == NULL)
        return out_of_memory(env);
    for (uint32_t i = 0; i < length; i++) {
        napi_value pair, token, bias;
        uint64_t bits = 0;
        double number = 0;

        if (napi_get_element(env, value, i, &pair) != napi_ok ||
            !array_length(env, name, pair, "an array of [token, bias]", &two) ||
            napi_get_element(env, pair, 0, &token) != napi_ok || napi_get_element(env, pair, 1, &bias) != napi_ok ||
            !read_integer(env, name, token, INT32_MIN, INT32_MAX, &bits) || !read_number(env, name, bias, &number))
            return false;
        copy[i] = (runnel_logit_bias){(int32_t)bits, (float)number};
    }
    *biases = copy;
    *n = length;
    return true;
}

/* An array of {name, path, scale}, as options.js makes it of an object. A scale of 0 would be 1 to the library. */
static bool read_adapters(napi_env env, struct arena *arena, const char *name, napi_value value,
                          const runnel_adapter **adapters, size_t *n)
{
    runnel_adapter *copy;
    uint32_t length;

    if (!array_length(env, name, value, "an array of {name, path, scale}", &length))
        return false;
    copy = arena_alloc(arena, length * sizeof *copy + 1);
    if (copy == NULL)
        return out_of_memory(env);
    for (uint32_t i = 0; i < length; i++) {
        struct target target = {.fields = fields_of("runnel_adapter"), .base = &copy[i]};
        napi_value element;

        copy[i].scale = 1;
        if (napi_get_element(env, value, i, &element) != napi_ok || !fields_read(env, arena, element, &target, 1))
            return false;
        if (copy[i].scale == 0)
            return addon_fail(env, RUNNEL_INVALID, "%s: the scale of %s is 0, with which it would do nothing", name,
                              copy[i].name) != NULL;
    }
    *adapters = copy;
    *n = length;
    return true;
}

static bool read_files(napi_env env, struct arena *arena, const char *name, napi_value value,
                       const runnel_infill_file **files, size_t *n)
{
    runnel_infill_file *copy;
    uint32_t length;

    if (!array_length(env, name, value, "an array of {name, text}", &length))
        return false;
    copy = arena_alloc(arena, length * sizeof *copy + 1);
    if (copy == NULL)
        return out_of_memory(env);
    for (uint32_t i = 0; i < length; i++) {
        struct target target = {.fields = infill_file_rows, .base = &copy[i]};
        napi_value element;

        if (napi_get_element(env, value, i, &element) != napi_ok || !fields_read(env, arena, element, &target, 1))
            return false;
    }
    *files = copy;
    *n = length;
    return true;
}

bool fields_architectures(napi_env env, struct arena *arena, const char *name, napi_value value,
                          const runnel_architecture_row *const **rows, size_t *n)
{
    const runnel_architecture_row **copy;
    uint32_t length;

    if (!array_length(env, name, value, "an array of objects", &length))
        return false;
    copy = arena_alloc(arena, length * sizeof *copy + 1);
    if (copy == NULL)
        return out_of_memory(env);
    for (uint32_t i = 0; i < length; i++) {
        runnel_architecture_row *row = arena_alloc(arena, sizeof *row);
        struct target target = {.fields = fields_of("runnel_architecture_row"), .base = row};
        napi_value element;

        if (row == NULL)
            return out_of_memory(env);
        runnel_architecture_row_default(row);
        copy[i] = row;
        if (napi_get_element(env, value, i, &element) != napi_ok || !fields_read(env, arena, element, &target, 1))
            return false;
    }
    *rows = copy;
    *n = length;
    return true;
}

static bool read_grammar(napi_env env, struct arena *arena, napi_value value, const runnel_grammar **grammar)
{
    runnel_grammar *copy = arena_alloc(arena, sizeof *copy);
    struct target target = {.fields = grammar_rows, .base = copy};

    if (copy == NULL)
        return out_of_memory(env);
    runnel_grammar_default(copy);
    *grammar = copy;
    return fields_read(env, arena, value, &target, 1);
}

/* An array in the struct; its count is set where the struct has one. */
static bool read_u32s(napi_env env, const char *name, napi_value value, uint32_t *to, uint32_t room, size_t *n)
{
    uint32_t length;
    uint64_t bits = 0;

    if (!array_length(env, name, value, "an array of numbers", &length))
        return false;
    if (length > room)
        return refuse(env, name, "shorter");
    for (uint32_t i = 0; i < length; i++) {
        napi_value element;

        if (napi_get_element(env, value, i, &element) != napi_ok ||
            !read_integer(env, name, element, 0, UINT32_MAX, &bits))
            return false;
        to[i] = (uint32_t)bits;
    }
    *n = length;
    return true;
}

static bool read_id(napi_env env, const char *name, napi_value value, uint64_t *id)
{
    return addon_id(env, value, id) || refuse(env, name, "a session");
}

/* Kinds whose count stands beside them; *n gets it. */
static bool read_counted(napi_env env, struct arena *arena, const struct field *field, const char *name,
                         napi_value value, void *to, size_t *n)
{
    switch (field->kind) {
    case FIELD_STRING:
    case FIELD_BYTES:
        return fields_text(env, arena, name, value, to, n);
    case FIELD_TOKENS:
        return fields_tokens(env, arena, name, value, to, n);
    case FIELD_STRINGS:
        return read_strings(env, arena, name, value, to, n);
    case FIELD_BIASES:
        return read_biases(env, arena, name, value, to, n);
    case FIELD_ADAPTERS:
        return read_adapters(env, arena, name, value, to, n);
    case FIELD_FILES:
        return read_files(env, arena, name, value, to, n);
    case FIELD_ARCHITECTURES:
        return fields_architectures(env, arena, name, value, to, n);
    default:
        return read_u32s(env, name, value, to, field->bytes / 4, n);
    }
}

static bool read_plain(napi_env env, const struct field *field, const char *name, napi_value value, void *to)
{
    static const struct {
        double least, most;
    } ranges[] = {[FIELD_U8] = {0, UINT8_MAX},
                  [FIELD_U32] = {0, UINT32_MAX},
                  [FIELD_I32] = {INT32_MIN, INT32_MAX},
                  [FIELD_I64] = {(double)INT64_MIN, (double)INT64_MAX},
                  [FIELD_U64] = {0, (double)UINT64_MAX}};
    uint64_t bits = 0;
    double number = 0;
    float narrow;

    if (field->kind == FIELD_FLOAT || field->kind == FIELD_DOUBLE) {
        if (!read_number(env, name, value, &number))
            return false;
        narrow = (float)number;
        memcpy(to, field->kind == FIELD_FLOAT ? (const void *)&narrow : &number, field->bytes);
        return true;
    }
    if (!read_integer(env, name, value, ranges[field->kind].least, ranges[field->kind].most, &bits))
        return false;
    memcpy(to, &bits, field->bytes); /* little-endian, as every machine that Node runs on */
    return true;
}

static bool read_member(napi_env env, struct arena *arena, const struct target *target, const struct field *field,
                        const char *name, napi_value value)
{
    const struct field *count = count_of(target->fields, field);
    char *to = (char *)target->base + field->offset;
    size_t n = 0;

    if (field->kind <= FIELD_DOUBLE)
        return read_plain(env, field, name, value, to);
    if (field->kind == FIELD_ID)
        return read_id(env, name, value, (uint64_t *)to);
    if (field->kind == FIELD_GRAMMAR)
        return read_grammar(env, arena, value, (const runnel_grammar **)to);
    if (field->kind == FIELD_STRING && count == NULL)
        return read_string(env, arena, name, value, (const char **)to);
    if (!is_pointer(field->kind) || count == NULL)
        return refuse(env, name, "left out");
    if (!read_counted(env, arena, field, name, value, to, &n))
        return false;
    memcpy((char *)target->base + count->offset, &n, count->bytes);
    return true;
}

/* One property of the object. */
static bool read_property(napi_env env, struct arena *arena, napi_value object, napi_value key, struct target *targets,
                          size_t n)
{
    const struct field *field = NULL;
    char name[80] = "";
    napi_value value;
    napi_valuetype type;
    size_t bytes;

    if (napi_get_property(env, object, key, &value) != napi_ok)
        return false;
    napi_typeof(env, value, &type);
    if (type == napi_undefined || type == napi_null)
        return true;
    napi_get_value_string_utf8(env, key, name, sizeof name, &bytes);
    for (size_t i = 0; i < n && strlen(name) == bytes; i++) {
        field = find(targets[i].fields, name);
        if (field != NULL) {
            targets[i].touched = true;
            return read_member(env, arena, &targets[i], field, name, value);
        }
    }
    addon_fail(env, RUNNEL_INVALID, "there is no option %s", name);
    return false;
}

bool fields_read(napi_env env, struct arena *arena, napi_value object, struct target *targets, size_t n)
{
    napi_valuetype type;
    napi_value keys, key;
    uint32_t length = 0;

    napi_typeof(env, object, &type);
    if (type == napi_undefined || type == napi_null)
        return true;
    if (type != napi_object)
        return refuse(env, "options", "an object");
    if (napi_get_all_property_names(env, object, napi_key_own_only, napi_key_enumerable | napi_key_skip_symbols,
                                    napi_key_numbers_to_strings, &keys) != napi_ok)
        return false;
    napi_get_array_length(env, keys, &length);
    for (uint32_t i = 0; i < length; i++)
        if (napi_get_element(env, keys, i, &key) != napi_ok || !read_property(env, arena, object, key, targets, n))
            return false;
    return true;
}

/* ---- Writing ------------------------------------------------------------------------------- */

static napi_value write_histogram(napi_env env, const runnel_histogram *histogram)
{
    napi_value object, edges, counts;

    if (napi_create_object(env, &object) != napi_ok || napi_create_array(env, &edges) != napi_ok ||
        napi_create_array(env, &counts) != napi_ok)
        return NULL;
    for (uint32_t i = 0; i < histogram->n_edges; i++)
        napi_set_element(env, edges, i, addon_number(env, histogram->edges[i]));
    for (uint32_t i = 0; i <= histogram->n_edges; i++)
        napi_set_element(env, counts, i, addon_count(env, histogram->counts[i]));
    addon_set(env, object, "edges", edges);
    addon_set(env, object, "counts", counts);
    addon_set(env, object, "count", addon_count(env, histogram->count));
    addon_set(env, object, "sum", addon_number(env, histogram->sum));
    return object;
}

static napi_value write_counts(napi_env env, const uint64_t *counts, size_t n)
{
    napi_value array;

    if (napi_create_array_with_length(env, n, &array) != napi_ok)
        return NULL;
    for (uint32_t i = 0; i < n; i++)
        napi_set_element(env, array, i, addon_count(env, counts[i]));
    return array;
}

napi_value fields_token_array(napi_env env, const int32_t *tokens, size_t n)
{
    napi_value buffer, array = NULL;
    void *data;

    if (napi_create_arraybuffer(env, n * sizeof *tokens, &data, &buffer) != napi_ok)
        return NULL;
    if (n > 0)
        memcpy(data, tokens, n * sizeof *tokens);
    napi_create_typedarray(env, napi_int32_array, n, buffer, 0, &array);
    return array;
}

static napi_value write_string(napi_env env, const char *text, const struct field *count, const char *base)
{
    napi_value null;
    size_t bytes = 0;

    if (text == NULL) {
        napi_get_null(env, &null);
        return null;
    }
    if (count != NULL)
        memcpy(&bytes, base + count->offset, count->bytes);
    return addon_string(env, text, count != NULL ? bytes : strlen(text));
}

static napi_value write_member(napi_env env, const struct field *fields, const struct field *field, const char *base)
{
    const char *at = base + field->offset;
    const struct field *count = is_pointer(field->kind) ? count_of(fields, field) : NULL;
    uint64_t bits = 0;
    napi_value value = NULL;
    size_t n = 0;

    switch (field->kind) {
    case FIELD_I32:
        return addon_number(env, *(const int32_t *)at);
    case FIELD_FLOAT:
        return addon_number(env, (double)*(const float *)at);
    case FIELD_DOUBLE:
        return addon_number(env, *(const double *)at);
    case FIELD_CHARS:
        return addon_string(env, at, strnlen(at, field->bytes));
    case FIELD_STRING:
        return write_string(env, *(const char *const *)at, count, base);
    case FIELD_HISTOGRAM:
        return write_histogram(env, (const runnel_histogram *)at);
    case FIELD_U64S:
        return write_counts(env, (const uint64_t *)at, field->bytes / 8);
    case FIELD_TOKENS:
        if (count != NULL)
            memcpy(&n, base + count->offset, count->bytes);
        return fields_token_array(env, *(const int32_t *const *)at, n);
    case FIELD_ID:
        napi_create_bigint_uint64(env, *(const uint64_t *)at, &value);
        return value;
    default:
        memcpy(&bits, at, field->bytes);
        return field->kind == FIELD_I64 ? addon_number(env, (double)(int64_t)bits) : addon_count(env, bits);
    }
}

napi_value fields_write(napi_env env, const struct field *fields, const void *base)
{
    char name[80];
    napi_value object;

    if (napi_create_object(env, &object) != napi_ok)
        return NULL;
    for (const struct field *field = fields; field->name != NULL; field++) {
        if (field->kind == FIELD_NONE || is_count(fields, field))
            continue;
        to_camel(field->name, name, sizeof name);
        addon_set(env, object, name, write_member(env, fields, field, base));
    }
    return object;
}

/* ---- What JavaScript asks about them ------------------------------------------------------ */

/* How much of a text of UTF-8 an error shows: 60 bytes at most, whole characters alone. */
static int shown_bytes(const char *text, size_t bytes)
{
    size_t n = bytes < 60 ? bytes : 60;

    while (n < bytes && n > 0 && ((unsigned char)text[n] & 0xc0) == 0x80)
        n--;
    return (int)n;
}

/* fieldNames(type): the names of its members here. */
static napi_value field_names(napi_env env, napi_callback_info info)
{
    struct arena arena = {0};
    const struct field *fields;
    const char *type;
    char name[80];
    napi_value value, array = NULL;
    size_t bytes;
    uint32_t n = 0;

    if (!addon_arguments(env, info, 1, &value) || !fields_text(env, &arena, "type", value, &type, &bytes))
        return NULL;
    fields = fields_of(type);
    if (fields == NULL)
        addon_fail(env, RUNNEL_NOT_FOUND, "there is no table of %.*s", shown_bytes(type, bytes), type);
    else if (napi_create_array(env, &array) == napi_ok)
        for (const struct field *field = fields; field->name != NULL; field++) {
            if (field->kind == FIELD_NONE || is_count(fields, field))
                continue;
            to_camel(field->name, name, sizeof name);
            napi_set_element(env, array, n++, addon_string(env, name, strlen(name)));
        }
    arena_free(&arena);
    return array;
}

void fields_export(napi_env env, napi_value exports)
{
    static const struct method methods[] = {{"fieldNames", field_names}};
    napi_value object;

    addon_export(env, exports, methods, sizeof methods / sizeof methods[0]);
    if (napi_create_object(env, &object) != napi_ok)
        return;
    for (const struct field_constant *constant = header_constants; constant->name != NULL; constant++)
        addon_set(env, object, constant->name, addon_number(env, (double)constant->value));
    addon_set(env, exports, "constants", object);
}
