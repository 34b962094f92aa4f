/* The tree of the tools' JSON, kept as it was parsed and read when a call asks: see answer_tools.h. */
#include "text/answer/tools.h"

#include <string.h>

#define ARENA_BYTES ((size_t)256 << 20)
#define SCHEMA_DEPTH 8 /* of anyOf within anyOf that is looked into */

runnel_status rn_answer_tools_init(struct rn_answer_tools *tools, struct rn_heap *heap, const char *json, size_t n)
{
    runnel_status status;

    rn_arena_init(&tools->arena, heap, ARENA_BYTES);
    tools->list = rn_undefined();
    if (json == NULL)
        return RUNNEL_OK;
    status = rn_json_parse_exact(&tools->arena, json, n, &tools->list, NULL);
    if (status != RUNNEL_OK || tools->list.kind != RN_VALUE_LIST) {
        tools->list = rn_undefined();
        rn_arena_fini(&tools->arena);
    }
    return status == RUNNEL_NO_MEMORY ? status : RUNNEL_OK;
}

void rn_answer_tools_fini(struct rn_answer_tools *tools)
{
    rn_arena_fini(&tools->arena);
}

bool rn_answer_tools_any(const struct rn_answer_tools *tools)
{
    return tools->list.kind == RN_VALUE_LIST && tools->list.list->n > 0;
}

static bool is_text(struct rn_value value, const char *text, size_t n)
{
    return value.kind == RN_VALUE_STRING && value.string->n == n && memcmp(value.string->bytes, text, n) == 0;
}

static struct rn_value function_of(struct rn_value tool)
{
    struct rn_value function = rn_dict_at(tool, "function");

    return function.kind == RN_VALUE_DICT ? function : tool;
}

bool rn_answer_tools_is_strict(struct rn_value function)
{
    struct rn_value strict = rn_dict_at(function, "strict");

    return strict.kind == RN_VALUE_BOOL && strict.boolean;
}

bool rn_answer_tools_any_strict(const struct rn_answer_tools *tools)
{
    for (size_t i = 0; rn_answer_tools_any(tools) && i < tools->list.list->n; i++)
        if (rn_answer_tools_is_strict(function_of(tools->list.list->items[i])))
            return true;
    return false;
}

struct rn_value rn_answer_tools_find(const struct rn_answer_tools *tools, const char *name, size_t n)
{
    size_t i;

    if (!rn_answer_tools_any(tools))
        return rn_undefined();
    for (i = 0; i < tools->list.list->n; i++) {
        struct rn_value function = function_of(tools->list.list->items[i]);

        if (is_text(rn_dict_at(function, "name"), name, n))
            return function;
    }
    return rn_undefined();
}

static uint32_t type_of_name(struct rn_value name)
{
    static const struct {
        const char *name;
        uint32_t type;
    } types[] = {
        {"string", RN_SCHEMA_STRING},   {"integer", RN_SCHEMA_NUMBER}, {"number", RN_SCHEMA_NUMBER},
        {"boolean", RN_SCHEMA_BOOLEAN}, {"null", RN_SCHEMA_NULL},      {"object", RN_SCHEMA_OBJECT},
        {"array", RN_SCHEMA_ARRAY},
    };
    size_t i;

    for (i = 0; i < sizeof types / sizeof types[0]; i++)
        if (rn_value_is(name, types[i].name))
            return types[i].type;
    return 0;
}

static uint32_t type_of_value(struct rn_value value)
{
    static const uint32_t types[] = {
        [RN_VALUE_NONE] = RN_SCHEMA_NULL,      [RN_VALUE_BOOL] = RN_SCHEMA_BOOLEAN,  [RN_VALUE_INT] = RN_SCHEMA_NUMBER,
        [RN_VALUE_DECIMAL] = RN_SCHEMA_NUMBER, [RN_VALUE_STRING] = RN_SCHEMA_STRING, [RN_VALUE_LIST] = RN_SCHEMA_ARRAY,
        [RN_VALUE_DICT] = RN_SCHEMA_OBJECT,
    };

    return value.kind < sizeof types / sizeof types[0] ? types[value.kind] : 0;
}

static uint32_t types_of(struct rn_value root, struct rn_value schema, int depth);

/* The union over a list of schemas, or of type names, or of values; 0 as soon as one says nothing. */
static uint32_t types_of_each(struct rn_value list, uint32_t (*of)(struct rn_value, struct rn_value, int),
                              struct rn_value root, int depth)
{
    uint32_t types = 0, one;
    size_t i;

    for (i = 0; i < list.list->n; i++) {
        one = of(root, list.list->items[i], depth);
        if (one == 0)
            return 0;
        types |= one;
    }
    return types;
}

static uint32_t of_name(struct rn_value root, struct rn_value name, int depth)
{
    (void)root;
    (void)depth;
    return type_of_name(name);
}

static uint32_t of_value(struct rn_value root, struct rn_value value, int depth)
{
    (void)root;
    (void)depth;
    return type_of_value(value);
}

/* What a reference within the parameters means: "#/$defs/city"; UNDEFINED: it is none that is understood. */
static struct rn_value target_of(struct rn_value root, struct rn_value reference)
{
    const char *at, *end, *stop;

    if (reference.kind != RN_VALUE_STRING || reference.string->n == 0 || reference.string->bytes[0] != '#')
        return rn_undefined();
    at = reference.string->bytes + 1;
    stop = reference.string->bytes + reference.string->n;
    for (; at < stop && *at == '/'; at = end) {
        end = memchr(at + 1, '/', (size_t)(stop - at - 1));
        if (end == NULL)
            end = stop;
        root = rn_dict_get(root, at + 1, (size_t)(end - at - 1));
    }
    return at == stop ? root : rn_undefined();
}

static uint32_t types_of(struct rn_value root, struct rn_value schema, int depth)
{
    static const char *const alternatives[] = {"anyOf", "oneOf"};
    struct rn_value type = rn_dict_at(schema, "type"), value;
    uint32_t types = 0;
    size_t i;

    if (type.kind == RN_VALUE_LIST)
        types = types_of_each(type, of_name, root, depth);
    else
        types = type_of_name(type);
    for (i = 0; i < 2 && types == 0 && depth < SCHEMA_DEPTH; i++) {
        value = rn_dict_at(schema, alternatives[i]);
        if (value.kind == RN_VALUE_LIST)
            types = types_of_each(value, types_of, root, depth + 1);
    }
    value = target_of(root, rn_dict_at(schema, "$ref"));
    if (types == 0 && value.kind == RN_VALUE_DICT && depth < SCHEMA_DEPTH)
        types = types_of(root, value, depth + 1);
    value = rn_dict_at(schema, "enum");
    if (types == 0 && value.kind == RN_VALUE_LIST)
        types = types_of_each(value, of_value, root, depth);
    value = rn_dict_at(schema, "const");
    if (types == 0 && value.kind != RN_VALUE_UNDEFINED)
        types = type_of_value(value);
    if (types != 0 && rn_dict_at(schema, "nullable").kind == RN_VALUE_BOOL && rn_dict_at(schema, "nullable").boolean)
        types |= RN_SCHEMA_NULL;
    return types;
}

uint32_t rn_answer_tools_types_of(struct rn_value root, struct rn_value schema)
{
    return types_of(root, schema, 0);
}

uint32_t rn_answer_tools_types(struct rn_value function, const char *key, size_t n)
{
    struct rn_value parameters = rn_dict_at(function, "parameters");

    return types_of(parameters, rn_dict_get(rn_dict_at(parameters, "properties"), key, n), 0);
}

/* What the keyword says in this schema, in what it refers to, or in one of its alternatives. */
static struct rn_value keyword_of(struct rn_value root, struct rn_value schema, const char *keyword, int depth)
{
    static const char *const alternatives[] = {"anyOf", "oneOf"};
    struct rn_value own = rn_dict_at(schema, keyword), other = target_of(root, rn_dict_at(schema, "$ref"));
    size_t i, k;

    if (depth < SCHEMA_DEPTH && own.kind == RN_VALUE_UNDEFINED && other.kind == RN_VALUE_DICT)
        own = keyword_of(root, other, keyword, depth + 1);
    for (i = 0; i < 2 && depth < SCHEMA_DEPTH; i++) {
        other = rn_dict_at(schema, alternatives[i]);
        for (k = 0; own.kind == RN_VALUE_UNDEFINED && other.kind == RN_VALUE_LIST && k < other.list->n; k++)
            own = keyword_of(root, other.list->items[k], keyword, depth + 1);
    }
    return own;
}

struct rn_value rn_answer_tools_member(struct rn_value root, struct rn_value schema, const char *key, size_t n)
{
    struct rn_value own = rn_dict_get(keyword_of(root, schema, "properties", 0), key, n);

    return own.kind != RN_VALUE_UNDEFINED ? own : keyword_of(root, schema, "additionalProperties", 0);
}

struct rn_value rn_answer_tools_item(struct rn_value root, struct rn_value schema)
{
    return keyword_of(root, schema, "items", 0);
}
