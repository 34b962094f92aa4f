/* The schemas of a document: found by the keywords that hold schemas, with their JSON pointers, $id and anchors; what a
 * reference means; and schemas that refer to themselves without reading anything. See parts.h. */
#define _GNU_SOURCE /* memmem */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "sampling/grammar/schema/parts.h"
#include "sampling/grammar/schema/uri.h"

#define FALSE_SCHEMA 0u
#define TRUE_SCHEMA 1u
#define NOWHERE ((int64_t)-1)

/* ---- Sentences ---- */

static void add_text(char *out, size_t size, size_t *at, const char *text, size_t n, bool escape)
{
    for (size_t i = 0; i < n; i++) {
        char pair[2] = {'~', text[i] == '~' ? '0' : '1'};
        bool two = escape && (text[i] == '~' || text[i] == '/');

        if (*at + 3 >= size)
            return;
        memcpy(out + *at, two ? pair : &text[i], two ? 2 : 1);
        *at += two ? 2 : 1;
    }
}

const char *rn_schema_pointer(struct rn_schema_maker *m, const struct rn_schema *schema)
{
    const struct rn_schema *way[RN_JSON_DEPTH + 1];
    char *out = rn_arena_take(m->arena, 200, 1), number[24];
    uint32_t n = 0;
    size_t at = 0;

    for (; schema->parent != NULL && n < RN_JSON_DEPTH; schema = schema->parent)
        way[n++] = schema;
    add_text(out, 200, &at, "#", 1, false);
    while (n-- > 0) {
        add_text(out, 200, &at, "/", 1, false);
        add_text(out, 200, &at, way[n]->keyword, strlen(way[n]->keyword), false);
        if (way[n]->name != NULL) {
            struct rn_quote quote = rn_grammar_quote(way[n]->name->bytes, way[n]->name->n);

            add_text(out, 200, &at, "/", 1, false);
            add_text(out, 200, &at, quote.text, strlen(quote.text), true);
        }
        if (way[n]->index != NOWHERE)
            add_text(out, 200, &at, number, (size_t)snprintf(number, sizeof number, "/%lld", (long long)way[n]->index),
                     false);
    }
    out[at] = '\0';
    return out;
}

const char *rn_schema_where(struct rn_schema_maker *m, const struct rn_case *the, const char *keyword)
{
    const struct rn_literal_list *at;
    const struct rn_schema *found = NULL;

    for (at = the->seen; at != NULL; at = at->next) {
        const struct rn_schema *schema = m->schemas[at->literal / 2];
        struct rn_value dict = {.kind = RN_VALUE_DICT, .dict = (struct rn_dict *)schema->dict};

        if (schema->dict != NULL && rn_dict_at(dict, keyword).kind != RN_VALUE_UNDEFINED)
            return rn_schema_pointer(m, schema);
        found = schema->dict != NULL || found == NULL ? schema : found;
    }
    return found == NULL ? "#" : rn_schema_pointer(m, found);
}

void rn_schema_refuse(struct rn_schema_maker *m, const struct rn_schema *schema, const char *keyword, const char *why)
{
    if (m->options.allow_unenforced)
        return;
    if (m->one_of != NULL)
        rn_raise(
            m->arena, RUNNEL_UNSUPPORTED,
            "\"oneOf\" at \"%s\": its branches are not provably apart, and \"%s\" at \"%s\" cannot be enforced: %s",
            rn_schema_pointer(m, m->one_of), keyword, rn_schema_pointer(m, schema), why);
    rn_raise(m->arena, RUNNEL_UNSUPPORTED, "\"%s\" at \"%s\" cannot be enforced: %s", keyword,
             rn_schema_pointer(m, schema), why);
}

_Noreturn void rn_schema_malformed(struct rn_schema_maker *m, const struct rn_schema *schema, const char *keyword,
                                   const char *what)
{
    rn_raise(m->arena, RUNNEL_FORMAT, "the schema at \"%s\": \"%s\" must be %s", rn_schema_pointer(m, schema), keyword,
             what);
}

/* ---- The table of schemas ---- */

static uint32_t dict_place(const struct rn_schema_maker *m, const struct rn_dict *dict)
{
    uint64_t hash = (uint64_t)(uintptr_t)dict * 0x9e3779b97f4a7c15u;
    uint32_t at = (uint32_t)(hash >> 32) & (m->n_by_dict - 1);

    while (m->by_dict[at] != 0 && m->schemas[m->by_dict[at]]->dict != dict)
        at = (at + 1) & (m->n_by_dict - 1);
    return at;
}

static void grow_by_dict(struct rn_schema_maker *m)
{
    uint32_t i;

    m->n_by_dict = m->n_by_dict == 0 ? 64 : 2 * m->n_by_dict;
    m->by_dict = rn_arena_take(m->arena, m->n_by_dict, sizeof *m->by_dict);
    memset(m->by_dict, 0, m->n_by_dict * sizeof *m->by_dict);
    for (i = 2; i < m->n_schemas; i++)
        m->by_dict[dict_place(m, m->schemas[i]->dict)] = i;
}

static struct rn_schema *add_schema(struct rn_schema_maker *m, struct rn_schema schema)
{
    struct rn_schema *copy = rn_arena_take(m->arena, 1, sizeof *copy);

    if (m->n_schemas == m->room_schemas) {
        m->schemas =
            rn_arena_grow(m->arena, m->schemas, m->room_schemas, 2 * m->room_schemas + 16, sizeof(struct rn_schema *));
        m->room_schemas = 2 * m->room_schemas + 16;
    }
    schema.id = m->n_schemas;
    *copy = schema;
    m->schemas[m->n_schemas++] = copy;
    if (schema.dict != NULL) {
        if (2 * m->n_schemas >= m->n_by_dict)
            grow_by_dict(m);
        m->by_dict[dict_place(m, schema.dict)] = copy->id;
    }
    return copy;
}

static struct rn_schema *find_schema(const struct rn_schema_maker *m, const struct rn_dict *dict)
{
    uint32_t id = m->n_by_dict == 0 ? 0 : m->by_dict[dict_place(m, dict)];

    return id == 0 ? NULL : m->schemas[id];
}

/* ---- Walking ---- */

enum holds { ONE, LIST, ONE_OR_LIST, MAP, MAP_OR_LISTS };

static const struct {
    const char *keyword;
    enum holds holds;
    bool in_place; /* of the same value: see circles */
} holders[] = {
    {"allOf", LIST, true},
    {"anyOf", LIST, true},
    {"oneOf", LIST, true},
    {"not", ONE, true},
    {"if", ONE, true},
    {"then", ONE, true},
    {"else", ONE, true},
    {"dependentSchemas", MAP, true},
    {"dependencies", MAP_OR_LISTS, true},
    {"properties", MAP, false},
    {"patternProperties", MAP, false},
    {"additionalProperties", ONE, false},
    {"propertyNames", ONE, false},
    {"items", ONE_OR_LIST, false},
    {"prefixItems", LIST, false},
    {"additionalItems", ONE, false},
    {"contains", ONE, false},
    {"unevaluatedItems", ONE, false},
    {"unevaluatedProperties", ONE, false},
    {"$defs", MAP, false},
    {"definitions", MAP, false},
    {"contentSchema", ONE, false},
};
#define N_HOLDERS (sizeof holders / sizeof holders[0])

struct place {
    const struct rn_schema *parent;
    const char *keyword;
    const struct rn_str *name;
    int64_t index;
};

static void walk(struct rn_schema_maker *m, struct rn_value value, struct place place,
                 const struct rn_schema_resource *resource);

static void walk_list(struct rn_schema_maker *m, const struct rn_list *list, struct place place,
                      const struct rn_schema_resource *resource)
{
    for (size_t i = 0; i < list->n; i++) {
        place.index = (int64_t)i;
        walk(m, list->items[i], place, resource);
    }
}

static void walk_holder(struct rn_schema_maker *m, const struct rn_schema *schema, size_t which, struct rn_value value)
{
    struct place place = {schema, holders[which].keyword, NULL, NOWHERE};
    enum holds holds = holders[which].holds;
    size_t i;

    if (value.kind == RN_VALUE_LIST && (holds == LIST || holds == ONE_OR_LIST)) {
        walk_list(m, value.list, place, schema->resource);
    } else if (value.kind == RN_VALUE_DICT && (holds == MAP || holds == MAP_OR_LISTS)) {
        for (i = 0; i < value.dict->n; i++) {
            place.name = value.dict->entries[i].key.string;
            if (holds == MAP || value.dict->entries[i].value.kind != RN_VALUE_LIST)
                walk(m, value.dict->entries[i].value, place, schema->resource);
        }
    } else if (holds == ONE || holds == ONE_OR_LIST) {
        walk(m, value, place, schema->resource);
    } else {
        rn_schema_malformed(m, schema, holders[which].keyword,
                            holds == LIST ? "a list of schemas" : "an object of schemas");
    }
}

static const struct rn_str *string_of(struct rn_schema_maker *m, const struct rn_schema *schema, const char *keyword)
{
    struct rn_value value =
        rn_dict_at((struct rn_value){.kind = RN_VALUE_DICT, .dict = (struct rn_dict *)schema->dict}, keyword);

    if (value.kind != RN_VALUE_UNDEFINED && value.kind != RN_VALUE_STRING)
        rn_schema_malformed(m, schema, keyword, "a string");
    return value.kind == RN_VALUE_STRING ? value.string : NULL;
}

/* name NULL: there is none. */
static void add_anchor(struct rn_schema_maker *m, const struct rn_schema *schema, struct rn_value value,
                       const struct rn_str *name, bool dynamic)
{
    struct rn_schema_anchor *anchor;

    if (name == NULL)
        return;
    anchor = rn_arena_take(m->arena, 1, sizeof *anchor);
    *anchor = (struct rn_schema_anchor){m->anchors, schema->resource, name, value, dynamic};
    m->anchors = anchor;
}

static uint32_t draft_of(struct rn_value root)
{
    struct rn_value value = rn_dict_at(root, "$schema");
    const char *at;

    if (value.kind != RN_VALUE_STRING)
        return 0;
    at = memmem(value.string->bytes, value.string->n, "/draft-0", 8);
    at = at != NULL && at + 8 < value.string->bytes + value.string->n ? at + 8 : NULL;
    return at != NULL && (*at == '3' || *at == '4') ? (uint32_t)(*at - '0') : RN_DRAFT_LATER;
}

/* Drafts 3 and 4 have `id` in the place of $id, and it says nothing beside $ref. Without a draft that is named it is
 * read where it can mean nothing else: as an anchor. */
static const struct rn_str *id_of(struct rn_schema_maker *m, const struct rn_schema *schema, struct rn_value value)
{
    const struct rn_str *id = string_of(m, schema, "$id");
    struct rn_value old = rn_dict_at(value, "id");

    if (id != NULL || m->draft == RN_DRAFT_LATER || old.kind != RN_VALUE_STRING ||
        rn_dict_at(value, "$ref").kind != RN_VALUE_UNDEFINED)
        return id;
    return m->draft != 0 || (old.string->n > 1 && old.string->bytes[0] == '#') ? old.string : NULL;
}

/* One that is a fragment is an anchor: so drafts 3 to 7 write it. */
static void add_resource(struct rn_schema_maker *m, struct rn_schema *schema, struct rn_value value)
{
    const struct rn_str *id = id_of(m, schema, value);
    struct rn_schema_resource *resource;
    const struct rn_str *fragment;

    if (id == NULL)
        return;
    if (id->n > 1 && id->bytes[0] == '#') {
        add_anchor(m, schema, value, rn_str_borrow(m->arena, id->bytes + 1, id->n - 1, RN_ORIGIN_DATA), false);
        return;
    }
    resource = rn_arena_take(m->arena, 1, sizeof *resource);
    *resource = (struct rn_schema_resource){m->resources,
                                            rn_uri_resolve(m->arena, schema->resource->uri, id, &fragment), value};
    m->resources = resource;
    schema->resource = resource;
}

static void walk(struct rn_schema_maker *m, struct rn_value value, struct place place,
                 const struct rn_schema_resource *resource)
{
    struct rn_schema *schema;
    struct rn_value held;
    size_t i;

    rn_step(m->arena, 1);
    if (value.kind == RN_VALUE_BOOL)
        return;
    if (value.kind != RN_VALUE_DICT)
        rn_schema_malformed(m, place.parent != NULL ? place.parent : m->schemas[TRUE_SCHEMA],
                            place.keyword != NULL ? place.keyword : "the schema", "a schema: an object, true or false");
    if (find_schema(m, value.dict) != NULL)
        return;
    rn_enter(m->arena);
    schema = add_schema(m, (struct rn_schema){.dict = value.dict,
                                              .parent = place.parent,
                                              .keyword = place.keyword,
                                              .name = place.name,
                                              .index = place.index,
                                              .resource = resource});
    add_resource(m, schema, value);
    add_anchor(m, schema, value, string_of(m, schema, "$anchor"), false);
    add_anchor(m, schema, value, string_of(m, schema, "$dynamicAnchor"), true);
    held = rn_dict_at(value, "$recursiveAnchor");
    m->recursive_anchor = m->recursive_anchor || (held.kind == RN_VALUE_BOOL && held.boolean);
    for (i = 0; i < N_HOLDERS; i++) {
        held = rn_dict_at(value, holders[i].keyword);
        if (held.kind != RN_VALUE_UNDEFINED)
            walk_holder(m, schema, i, held);
    }
    rn_leave(m->arena);
}

const struct rn_schema *rn_schema_read(struct rn_schema_maker *m)
{
    struct rn_schema_resource *document = rn_arena_take(m->arena, 1, sizeof *document);

    add_schema(m, (struct rn_schema){.truth = false, .index = NOWHERE});
    add_schema(m, (struct rn_schema){.truth = true, .index = NOWHERE});
    *document = (struct rn_schema_resource){NULL, rn_str_borrow(m->arena, "", 0, RN_ORIGIN_DATA), m->root};
    m->resources = document;
    m->draft = draft_of(m->root);
    walk(m, m->root, (struct place){NULL, NULL, NULL, NOWHERE}, document);
    return rn_schema_of(m, m->root, m->schemas[TRUE_SCHEMA], "the schema");
}

const struct rn_schema *rn_schema_of(struct rn_schema_maker *m, struct rn_value value, const struct rn_schema *of,
                                     const char *keyword)
{
    const struct rn_schema *schema = NULL;

    if (value.kind == RN_VALUE_BOOL)
        return m->schemas[value.boolean ? TRUE_SCHEMA : FALSE_SCHEMA];
    if (value.kind == RN_VALUE_DICT)
        schema = find_schema(m, value.dict);
    if (schema == NULL)
        rn_schema_malformed(m, of, keyword, "a schema: an object, true or false");
    return schema;
}

/* ---- References ---- */

static _Noreturn void no_target(struct rn_schema_maker *m, const struct rn_schema *schema, const char *keyword,
                                const struct rn_str *ref, const char *why)
{
    rn_raise(m->arena, RUNNEL_FORMAT, "\"%s\" at \"%s\": %s: \"%s\"", keyword, rn_schema_pointer(m, schema), why,
             rn_grammar_quote(ref->bytes, ref->n).text);
}

/* One part of a pointer, unescaped, cut off its front. */
static const struct rn_str *take_part(struct rn_schema_maker *m, const char **at, const char *end)
{
    char *out = rn_arena_take(m->arena, (size_t)(end - *at) + 1, 1);
    size_t n = 0;

    for (; *at < end && **at != '/'; (*at)++) {
        bool escaped = **at == '~' && *at + 1 < end && ((*at)[1] == '0' || (*at)[1] == '1');

        out[n++] = !escaped ? **at : (*at)[1] == '0' ? '~' : '/';
        *at += escaped;
    }
    return rn_str_borrow(m->arena, out, n, RN_ORIGIN_DATA);
}

static struct rn_value member(struct rn_value value, const struct rn_str *part)
{
    size_t index = 0, i;

    if (value.kind == RN_VALUE_DICT)
        return rn_dict_get(value, part->bytes, part->n);
    if (value.kind != RN_VALUE_LIST || part->n == 0 || part->n > 9 || (part->n > 1 && part->bytes[0] == '0'))
        return rn_undefined();
    for (i = 0; i < part->n; i++) {
        if (part->bytes[i] < '0' || part->bytes[i] > '9')
            return rn_undefined();
        index = index * 10 + (size_t)(part->bytes[i] - '0');
    }
    return index < value.list->n ? value.list->items[index] : rn_undefined();
}

/* What a pointer leads to; *resource becomes that which it lies in. */
static struct rn_value follow(struct rn_schema_maker *m, const struct rn_str *pointer,
                              const struct rn_schema_resource **resource)
{
    const char *at = pointer->bytes, *end = at + pointer->n;
    struct rn_value value = (*resource)->root;

    while (at < end && value.kind != RN_VALUE_UNDEFINED) {
        const struct rn_schema *schema;

        rn_step(m->arena, 1);
        at++;
        value = member(value, take_part(m, &at, end));
        schema = value.kind == RN_VALUE_DICT ? find_schema(m, value.dict) : NULL;
        if (schema != NULL)
            *resource = schema->resource;
    }
    return value;
}

static struct rn_value find_anchor(struct rn_schema_maker *m, const struct rn_str *name,
                                   const struct rn_schema_resource *resource, bool *dynamic)
{
    const struct rn_schema_anchor *anchor;

    for (anchor = m->anchors; anchor != NULL; anchor = anchor->next) {
        rn_step(m->arena, 1);
        if (anchor->resource == resource && rn_str_same(anchor->name, name)) {
            *dynamic = anchor->dynamic;
            return anchor->value;
        }
    }
    return rn_undefined();
}

/* More than one schema has this dynamic anchor, so that which is meant depends on the way to it. */
static bool is_ambiguous(struct rn_schema_maker *m, const struct rn_str *name)
{
    const struct rn_schema_anchor *anchor;
    uint32_t n = 0;

    for (anchor = m->anchors; anchor != NULL && n < 2; anchor = anchor->next) {
        rn_step(m->arena, 1);
        n += anchor->dynamic && rn_str_same(anchor->name, name);
    }
    return n > 1;
}

/* NULL: refused. */
static const struct rn_schema *resolve(struct rn_schema_maker *m, const struct rn_schema *schema, const char *keyword,
                                       const struct rn_str *ref)
{
    const struct rn_schema_resource *resource = m->resources;
    const struct rn_str *fragment, *uri = rn_uri_resolve(m->arena, schema->resource->uri, ref, &fragment);
    struct rn_value value;
    bool dynamic = false;

    while (resource != NULL && !rn_str_same(resource->uri, uri)) {
        rn_step(m->arena, 1);
        resource = resource->next;
    }
    if (resource == NULL) {
        rn_schema_refuse(m, schema, keyword, "it refers to another document");
        return NULL;
    }
    if (fragment->n == 0 || fragment->bytes[0] == '/')
        value = follow(m, fragment, &resource);
    else
        value = find_anchor(m, fragment, resource, &dynamic);
    if (value.kind != RN_VALUE_DICT && value.kind != RN_VALUE_BOOL)
        no_target(m, schema, keyword, ref, "there is no schema at this reference");
    if (dynamic && strcmp(keyword, "$dynamicRef") == 0 && is_ambiguous(m, fragment)) {
        rn_schema_refuse(m, schema, keyword, "several schemas have this dynamic anchor");
        return NULL;
    }
    if (value.kind == RN_VALUE_DICT)
        walk(m, value, (struct place){schema, keyword, NULL, NOWHERE}, resource);
    return rn_schema_of(m, value, schema, keyword);
}

const struct rn_schema *rn_schema_target(struct rn_schema_maker *m, const struct rn_schema *schema, const char *keyword,
                                         struct rn_value value)
{
    if (value.kind != RN_VALUE_STRING)
        rn_schema_malformed(m, schema, keyword, "a string");
    if (strcmp(keyword, "$recursiveRef") == 0 && m->recursive_anchor && m->resources->next != NULL &&
        m->resources->next->next != NULL) {
        rn_schema_refuse(m, schema, keyword, "several schemas may be meant by $recursiveAnchor");
        return NULL;
    }
    return resolve(m, schema, keyword, value.string);
}

/* ---- Circles ---- */

enum color { NEW, OPEN, DONE };

static void look_at(struct rn_schema_maker *m, const struct rn_schema *schema);

static void look_at_value(struct rn_schema_maker *m, const struct rn_schema *of, const char *keyword,
                          struct rn_value value)
{
    size_t i;

    if (value.kind == RN_VALUE_LIST) {
        for (i = 0; i < value.list->n; i++)
            look_at(m, rn_schema_of(m, value.list->items[i], of, keyword));
    } else if (value.kind == RN_VALUE_BOOL || find_schema(m, value.dict) != NULL) {
        look_at(m, rn_schema_of(m, value, of, keyword));
    } else {
        for (i = 0; i < value.dict->n; i++)
            if (value.dict->entries[i].value.kind != RN_VALUE_LIST)
                look_at(m, rn_schema_of(m, value.dict->entries[i].value, of, keyword));
    }
}

/* Follows what says something of the same value. A schema that is met while it is open is a circle. */
static void look_at(struct rn_schema_maker *m, const struct rn_schema *schema)
{
    static const char *const refs[] = {"$ref", "$dynamicRef", "$recursiveRef"};
    const struct rn_schema *target;
    struct rn_schema *own = m->schemas[schema->id];
    struct rn_value dict = {.kind = RN_VALUE_DICT, .dict = (struct rn_dict *)schema->dict}, value;
    size_t i;

    rn_step(m->arena, 1);
    if (schema->dict == NULL || own->color == DONE)
        return;
    if (own->color == OPEN)
        rn_raise(m->arena, RUNNEL_FORMAT, "the schema at \"%s\" refers to itself without reading anything",
                 rn_schema_pointer(m, schema));
    rn_enter(m->arena);
    own->color = OPEN;
    for (i = 0; i < N_HOLDERS; i++)
        if (holders[i].in_place && (value = rn_dict_at(dict, holders[i].keyword)).kind != RN_VALUE_UNDEFINED)
            look_at_value(m, schema, holders[i].keyword, value);
    for (i = 0; i < sizeof refs / sizeof refs[0]; i++)
        if ((value = rn_dict_at(dict, refs[i])).kind != RN_VALUE_UNDEFINED &&
            (target = rn_schema_target(m, schema, refs[i], value)) != NULL)
            look_at(m, target);
    own->color = DONE;
    rn_leave(m->arena);
}

void rn_schema_check_circles(struct rn_schema_maker *m, const struct rn_schema *root)
{
    look_at(m, root);
}
