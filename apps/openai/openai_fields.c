/* What the fields of bodies may be: see openai_fields.h. */
#include "openai_fields.h"

#include <string.h>

/* Fields of OpenAI's form that only bodies which are answered by texts have. */
#define WITH_TEXTS (OPENAI_CHAT | OPENAI_COMPLETIONS | OPENAI_RESPONSES)

/* The tables of a server come first: where two know a name, the first of them reads it. */
struct once {
    openai_field_fn *fn;
    void *user;
    json_t *seen;
};

static void pass_once(void *user, const struct openai_field *field)
{
    struct once *once = user;

    if (json_object_get(once->seen, field->name) != NULL ||
        json_object_set_new(once->seen, field->name, json_null()) != 0)
        return;
    once->fn(once->user, field);
}

void openai_fields_each(enum openai_endpoint endpoint, openai_field_fn *fn, void *user)
{
    struct once once = {fn, user, json_object()};

    if (once.seen == NULL)
        return;
    openai_fields_served(endpoint, pass_once, &once);
    if ((endpoint & WITH_TEXTS) != 0) {
        openai_fields_of_samplers(pass_once, &once);
        openai_fields_of_grammars(pass_once, &once);
    }
    openai_fields_of_requests(endpoint, pass_once, &once);
    json_decref(once.seen);
}

/* ---- Bodies ------------------------------------------------------------------------------ */

/* The type that a shape stands for; false: more than one is allowed. */
static bool type_of(enum openai_shape shape, json_type *type)
{
    switch (shape) {
    case OPENAI_STRING:
        *type = JSON_STRING;
        return true;
    case OPENAI_BOOLEAN:
    case OPENAI_FALSE:
    case OPENAI_TRUE:
        *type = JSON_TRUE;
        return true;
    case OPENAI_WHOLE:
        *type = JSON_INTEGER;
        return true;
    case OPENAI_ARRAY:
    case OPENAI_MESSAGES:
        *type = JSON_ARRAY;
        return true;
    case OPENAI_OBJECT:
        *type = JSON_OBJECT;
        return true;
    default:
        return false;
    }
}

bool openai_field_check(const struct openai_field *field, const json_t *value, struct openai_error *error)
{
    json_type type = JSON_NULL;
    int64_t ignored = 0;

    if (field->shape == OPENAI_REAL && !json_is_number(value))
        return openai_expect(error, field->name, value, JSON_REAL);
    if (field->shape == OPENAI_WHOLE && field->least < field->most)
        return openai_read_integer(error, field->name, value, field->least, field->most, &ignored);
    if (field->shape == OPENAI_LORAS)
        return openai_loras_check(field->name, value, error);
    if (field->shape == OPENAI_NULL)
        return openai_refuse(error, "unsupported_parameter", field->name, "%s is not supported", field->name);
    return !type_of(field->shape, &type) || openai_expect(error, field->name, value, type);
}

bool openai_fields_check(const struct openai_field *fields, const json_t *body, struct openai_error *error)
{
    for (const struct openai_field *field = fields; field->name != NULL; field++) {
        const json_t *value = json_object_get(body, field->name);

        if (value == NULL || json_is_null(value)) {
            if (field->needed)
                return openai_expect(error, field->name, NULL, JSON_OBJECT); /* it is missing */
        } else if (!openai_field_check(field, value, error)) {
            return false;
        }
    }
    return true;
}

/* ---- Schemas ----------------------------------------------------------------------------- */

#define TOKENS                                      \
    "{\"type\":\"array\",\"minItems\":1,\"items\":" \
    "{\"type\":\"integer\",\"minimum\":0,\"maximum\":2147483647}}"

#define TEXT "{\"type\":\"string\",\"minLength\":1}"

/* The alternatives of each shape, before null. */
static const char *const shapes[] = {
    [OPENAI_ANY] = NULL,
    [OPENAI_STRING] = "[{\"type\":\"string\"}]",
    [OPENAI_BOOLEAN] = "[{\"type\":\"boolean\"}]",
    [OPENAI_WHOLE] = "[{\"type\":\"integer\",\"minimum\":-9223372036854775808,\"maximum\":9223372036854775807}]",
    [OPENAI_REAL] = "[{\"type\":\"number\"}]",
    [OPENAI_ARRAY] = "[{\"type\":\"array\"}]",
    [OPENAI_OBJECT] = "[{\"type\":\"object\"}]",
    [OPENAI_STRINGS] = "[{\"type\":\"string\"},{\"type\":\"array\",\"items\":{\"type\":\"string\"}}]",
    [OPENAI_PROMPTS] = "[" TEXT "," TOKENS ",{\"type\":\"array\",\"minItems\":1,\"items\":"
                       "{\"anyOf\":[" TEXT "," TOKENS "]}}]",
    [OPENAI_MESSAGES] = "[{\"type\":\"array\",\"items\":{\"type\":\"object\",\"required\":[\"role\"],\"properties\":"
                        "{\"role\":{\"type\":\"string\"},\"content\":{\"type\":[\"string\",\"array\",\"null\"]}}}}]",
    [OPENAI_LORAS] = "[{\"type\":\"array\",\"items\":{\"type\":\"object\",\"required\":[\"id\",\"scale\"],"
                     "\"properties\":{\"id\":{\"type\":\"integer\",\"minimum\":0,\"maximum\":63},"
                     "\"scale\":{\"type\":\"number\"}}}}]",
    [OPENAI_TEXT_OR_SET] = "[{\"type\":\"string\"},{\"type\":\"object\"}]",
    [OPENAI_TEXT_OR_ROW] = "[{\"type\":\"string\"},{\"type\":\"array\"}]",
    [OPENAI_FALSE] = "[{\"const\":false}]",
    [OPENAI_TRUE] = "[{\"const\":true}]",
    [OPENAI_EMPTY] = "[{\"type\":\"array\",\"maxItems\":0},{\"type\":\"object\",\"maxProperties\":0}]",
    [OPENAI_NULL] = "[]",
};

static json_t *bound(double value)
{
    return value == (double)(json_int_t)value ? json_integer((json_int_t)value) : json_real(value);
}

json_t *openai_field_schema(const struct openai_field *field)
{
    json_t *list = NULL, *first = NULL;

    if (field->shape == OPENAI_ANY)
        return json_object();
    list = json_loads(shapes[field->shape], 0, NULL);
    first = json_array_get(list, 0);
    if (list == NULL)
        return NULL;
    if (field->least < field->most && (json_object_set_new(first, "minimum", bound(field->least)) != 0 ||
                                       json_object_set_new(first, "maximum", bound(field->most)) != 0)) {
        json_decref(list);
        return NULL;
    }
    if (!field->needed)
        json_array_append_new(list, json_pack("{s:s}", "type", "null"));
    if (json_array_size(list) > 1)
        return json_pack("{s:o}", "anyOf", list);
    first = json_incref(json_array_get(list, 0));
    json_decref(list);
    return first;
}
