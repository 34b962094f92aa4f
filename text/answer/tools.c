/* The tree of the tools' JSON, kept as it was parsed and read when a call asks: see tools.h. */
#include "text/answer/tools.h"

#include <string.h>

#include "base/hex.h"

#define ARENA_BYTES ((size_t)256 << 20)
#define SCHEMA_DEPTH 8 /* of schemas that speak of the same value: allOf within anyOf within $ref .. */
#define SCHEMA_STEPS 1000u
#define PER_STEP 32u /* so many values of an enum, or bytes of a reference, cost as much as a schema */
#define REFERENCE_BYTES 1024u
#define ALL_TYPES 63u

runnel_status rn_answer_tools_read(struct rn_answer_tools *tools, struct rn_heap *heap, const char *json, size_t n,
                                   runnel_error *error)
{
    runnel_status status;

    rn_arena_init(&tools->arena, heap, ARENA_BYTES);
    status = rn_json_parse_exact(&tools->arena, json, n, &tools->list, error);
    if (status == RUNNEL_OK && tools->list.kind != RN_VALUE_LIST)
        status = rn_error_set(error, RUNNEL_INVALID, "not a JSON array");
    if (status != RUNNEL_OK) {
        tools->list = rn_undefined();
        rn_arena_fini(&tools->arena);
    }
    return status;
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

/* A question about the schemas of a function's parameters. What its steps do not reach says nothing. */
struct look {
    struct rn_value root;
    uint32_t steps; /* left */
    bool ended;     /* more were asked for: nothing is looked at any more */
};

static bool take_steps(struct look *look, uint64_t n)
{
    look->ended = look->ended || look->steps < n;
    look->steps -= look->ended ? look->steps : (uint32_t)n;
    return !look->ended;
}

/* ---- References ---- */

/* The fragment of a reference, %XX decoded, to text; SIZE_MAX: it is in another document, or too long. */
static size_t decode(struct rn_value reference, char text[REFERENCE_BYTES])
{
    const char *from;
    size_t n = 0, end;

    if (reference.kind != RN_VALUE_STRING || reference.string->n == 0 || reference.string->n > REFERENCE_BYTES ||
        reference.string->bytes[0] != '#')
        return SIZE_MAX;
    from = reference.string->bytes;
    end = reference.string->n;
    for (size_t i = 1; i < end; i++) {
        bool coded = from[i] == '%' && i + 2 < end && rn_hex_value(from[i + 1]) >= 0 && rn_hex_value(from[i + 2]) >= 0;

        text[n++] = coded ? (char)(rn_hex_value(from[i + 1]) * 16 + rn_hex_value(from[i + 2])) : from[i];
        i += coded ? 2 : 0;
    }
    return n;
}

/* Replaces ~0 and ~1 in place; returns the bytes that are left. */
static size_t unescape(char *part, size_t n)
{
    size_t at = 0;

    for (size_t i = 0; i < n; i++) {
        bool escaped = part[i] == '~' && i + 1 < n && (part[i + 1] == '0' || part[i + 1] == '1');

        part[at++] = !escaped ? part[i] : part[++i] == '0' ? '~' : '/';
    }
    return at;
}

/* The member or item of this name. */
static struct rn_value at_name(struct rn_value value, const char *name, size_t n)
{
    size_t index = 0;

    if (value.kind != RN_VALUE_LIST)
        return rn_dict_get(value, name, n);
    if (n == 0 || n > 9)
        return rn_undefined();
    for (size_t i = 0; i < n; i++) {
        if (name[i] < '0' || name[i] > '9')
            return rn_undefined();
        index = index * 10 + (size_t)(name[i] - '0');
    }
    return index < value.list->n ? value.list->items[index] : rn_undefined();
}

/* Has the schema this $anchor, or this $id or id as older drafts write it? */
static bool has_anchor(struct rn_value schema, const char *name, size_t n)
{
    static const char *const ids[] = {"$id", "id"};

    for (size_t i = 0; i < 2; i++) {
        struct rn_value id = rn_dict_at(schema, ids[i]);

        if (id.kind == RN_VALUE_STRING && id.string->n == n + 1 && id.string->bytes[0] == '#' &&
            memcmp(id.string->bytes + 1, name, n) == 0)
            return true;
    }
    return is_text(rn_dict_at(schema, "$anchor"), name, n);
}

/* The schema with this anchor, of the parameters or the definitions. */
static struct rn_value anchored(struct look *look, const char *name, size_t n)
{
    static const char *const places[] = {"$defs", "definitions", "properties"};

    for (size_t i = 0; i < 3; i++) {
        struct rn_value place = rn_dict_at(look->root, places[i]);

        for (size_t k = 0; place.kind == RN_VALUE_DICT && k < place.dict->n && take_steps(look, 1); k++)
            if (has_anchor(place.dict->entries[k].value, name, n))
                return place.dict->entries[k].value;
    }
    return rn_undefined();
}

/* What the schema refers to within the parameters: "#/$defs/city", "#city"; UNDEFINED: nothing that is found. */
static struct rn_value target_of(struct look *look, struct rn_value schema)
{
    struct rn_value target = look->root;
    char text[REFERENCE_BYTES], *end;
    size_t n = decode(rn_dict_at(schema, "$ref"), text), part;

    if (n == SIZE_MAX || !take_steps(look, n / PER_STEP))
        return rn_undefined();
    if (n > 0 && text[0] != '/')
        return anchored(look, text, n);
    for (size_t at = 0; at < n; at += part) {
        at++;
        end = memchr(text + at, '/', n - at);
        part = end != NULL ? (size_t)(end - text) - at : n - at;
        target = at_name(target, text + at, unescape(text + at, part));
    }
    return target;
}

/* ---- Types ---- */

/* A member of an object, of this name, or an item of a list. */
struct member {
    enum { LISTED, UNLISTED, ITEM } kind; /* in `properties`; in what speaks of names that are not there; of a list */
    const char *key;
    size_t n;
};

/* What the schema says of a member, apart from the schemas that it refers to; UNDEFINED: nothing. */
static struct rn_value own_member(struct rn_value schema, const struct member *member)
{
    struct rn_value patterns = rn_dict_at(schema, "patternProperties"), others;

    if (member->kind == ITEM)
        return rn_dict_at(schema, "items");
    if (member->kind == LISTED)
        return rn_dict_get(rn_dict_at(schema, "properties"), member->key, member->n);
    others = rn_dict_at(schema, "additionalProperties");
    if (patterns.kind != RN_VALUE_DICT || patterns.dict->n == 0)
        return others.kind == RN_VALUE_DICT ? others : rn_undefined();
    return patterns.dict->n > 1 || others.kind == RN_VALUE_DICT ? rn_bool(true) : patterns.dict->entries[0].value;
}

/* Both hold. 0: it does not say. Where they exclude each other, the first is right. */
static uint32_t both(uint32_t types, uint32_t others)
{
    return types == 0 ? others : (types & others) == 0 ? types : types & others;
}

static uint32_t said(struct look *look, struct rn_value schema, const struct member *member, int depth);

/* The union over a list of schemas; 0: one of them says nothing, or the steps have ended within. Of a member those
 * speak that have it. */
static uint32_t one_of(struct look *look, struct rn_value list, const struct member *member, int depth)
{
    uint32_t types = 0, one;

    for (size_t i = 0; list.kind == RN_VALUE_LIST && i < list.list->n && types != ALL_TYPES; i++) {
        one = said(look, list.list->items[i], member, depth);
        if (look->ended || (one == 0 && member == NULL))
            return 0;
        types |= one;
    }
    return types;
}

/* The union over a list of names of types or of values; 0: one of them is none, or they are more than the steps. */
static uint32_t of_each(struct look *look, struct rn_value list, uint32_t (*type)(struct rn_value))
{
    uint32_t types = 0, one;

    if (list.kind != RN_VALUE_LIST || !take_steps(look, list.list->n / PER_STEP))
        return 0;
    for (size_t i = 0; i < list.list->n; i++) {
        one = type(list.list->items[i]);
        if (one == 0)
            return 0;
        types |= one;
    }
    return types;
}

/* The types that `type`, `enum` and `const` of a schema allow. */
static uint32_t own_types(struct look *look, struct rn_value schema)
{
    struct rn_value type = rn_dict_at(schema, "type");
    uint32_t types = type.kind == RN_VALUE_LIST ? of_each(look, type, type_of_name) : type_of_name(type);

    types = both(types, of_each(look, rn_dict_at(schema, "enum"), type_of_value));
    return both(types, type_of_value(rn_dict_at(schema, "const")));
}

static uint32_t member_types(struct look *look, struct rn_value schema, const struct member *member)
{
    struct rn_value own = own_member(schema, member);
    uint32_t types = said(look, own, NULL, 0);

    return own.kind == RN_VALUE_UNDEFINED ? 0 : types == 0 ? ALL_TYPES : types;
}

/* The types that a value of the schema may have, or its member (NULL: itself): 0: it does not say. */
static uint32_t said(struct look *look, struct rn_value schema, const struct member *member, int depth)
{
    struct rn_value all, nullable;
    uint32_t types;

    if (schema.kind == RN_VALUE_UNDEFINED || !take_steps(look, 1) || schema.kind != RN_VALUE_DICT ||
        depth > SCHEMA_DEPTH)
        return 0;
    all = rn_dict_at(schema, "allOf");
    nullable = rn_dict_at(schema, "nullable");
    types = member == NULL ? own_types(look, schema) : member_types(look, schema, member);
    types = both(types, said(look, target_of(look, schema), member, depth + 1));
    for (size_t i = 0; all.kind == RN_VALUE_LIST && i < all.list->n && !look->ended; i++)
        types = both(types, said(look, all.list->items[i], member, depth + 1));
    types = both(types, one_of(look, rn_dict_at(schema, "anyOf"), member, depth + 1));
    types = both(types, one_of(look, rn_dict_at(schema, "oneOf"), member, depth + 1));
    if (types != 0 && member == NULL && nullable.kind == RN_VALUE_BOOL && nullable.boolean)
        types |= RN_SCHEMA_NULL;
    return types;
}

static struct look begin(struct rn_value root)
{
    return (struct look){.root = root, .steps = SCHEMA_STEPS};
}

static void end(const struct look *look, uint64_t *steps)
{
    if (steps != NULL)
        *steps += SCHEMA_STEPS - look->steps;
}

uint32_t rn_answer_tools_types_of(struct rn_value root, struct rn_value schema, uint64_t *steps)
{
    struct look look = begin(root);
    uint32_t types = said(&look, schema, NULL, 0);

    end(&look, steps);
    return types;
}

uint32_t rn_answer_tools_types(struct rn_value function, const char *key, size_t n, uint64_t *steps)
{
    struct rn_value parameters = rn_dict_at(function, "parameters");
    struct look look = begin(parameters);
    uint32_t types = said(&look, parameters, &(struct member){LISTED, key, n}, 0);

    if (types == 0)
        types = said(&look, parameters, &(struct member){UNLISTED, key, n}, 0);
    end(&look, steps);
    return types == ALL_TYPES ? 0 : types;
}

/* ---- Members ---- */

/* The first schema of the member: of the schema itself, of what it refers to, of its parts, of its alternatives. */
static struct rn_value find(struct look *look, struct rn_value schema, const struct member *member, int depth)
{
    static const char *const parts[] = {"allOf", "anyOf", "oneOf"};
    struct rn_value found = rn_undefined(), list;

    if (schema.kind == RN_VALUE_UNDEFINED || !take_steps(look, 1) || schema.kind != RN_VALUE_DICT ||
        depth > SCHEMA_DEPTH)
        return found;
    found = own_member(schema, member);
    if (found.kind == RN_VALUE_UNDEFINED)
        found = find(look, target_of(look, schema), member, depth + 1);
    for (size_t i = 0; i < 3 && found.kind == RN_VALUE_UNDEFINED; i++) {
        list = rn_dict_at(schema, parts[i]);
        for (size_t k = 0;
             found.kind == RN_VALUE_UNDEFINED && list.kind == RN_VALUE_LIST && k < list.list->n && !look->ended; k++)
            found = find(look, list.list->items[k], member, depth + 1);
    }
    return found;
}

struct rn_value rn_answer_tools_member(struct rn_value root, struct rn_value schema, const char *key, size_t n,
                                       uint64_t *steps)
{
    struct look look = begin(root);
    struct rn_value found = find(&look, schema, &(struct member){LISTED, key, n}, 0);

    if (found.kind == RN_VALUE_UNDEFINED)
        found = find(&look, schema, &(struct member){UNLISTED, key, n}, 0);
    end(&look, steps);
    return found;
}

struct rn_value rn_answer_tools_item(struct rn_value root, struct rn_value schema, uint64_t *steps)
{
    struct look look = begin(root);
    struct rn_value found = find(&look, schema, &(struct member){ITEM, NULL, 0}, 0);

    end(&look, steps);
    return found;
}
