/* Values that stand in a schema (enum, const): whether other schemas allow them, and how they are spelled. See
 * parts.h. A value is allowed by JSON Schema's rules, keyword by keyword. */
#include <string.h>

#include "base/utf8.h"
#include "sampling/grammar/schema/parts.h"

bool rn_str_same(const struct rn_str *a, const struct rn_str *b)
{
    return a->n == b->n && memcmp(a->bytes, b->bytes, a->n) == 0;
}

static bool is_whole(struct rn_value value)
{
    return value.kind == RN_VALUE_INT || memchr(value.string->bytes, '.', value.string->n) == NULL;
}

uint32_t rn_schema_kind(struct rn_value value)
{
    switch (value.kind) {
    case RN_VALUE_BOOL:
        return value.boolean ? RN_KIND_TRUE : RN_KIND_FALSE;
    case RN_VALUE_INT:
    case RN_VALUE_DECIMAL:
        return is_whole(value) ? RN_KIND_INTEGER : RN_KIND_FRACTION;
    case RN_VALUE_STRING:
        return RN_KIND_STRING;
    case RN_VALUE_LIST:
        return RN_KIND_ARRAY;
    case RN_VALUE_DICT:
        return RN_KIND_OBJECT;
    default:
        return RN_KIND_NULL;
    }
}

/* No decimal is an integer of 64 bits, and each is written in one way. */
static bool numbers_equal(struct rn_value a, struct rn_value b)
{
    if (a.kind != b.kind)
        return false;
    return a.kind == RN_VALUE_INT ? a.integer == b.integer : rn_str_same(a.string, b.string);
}

bool rn_schema_equal(struct rn_schema_maker *m, struct rn_value a, struct rn_value b)
{
    uint32_t kind = rn_schema_kind(a);
    size_t i;

    rn_step(m->arena, 1);
    if (kind != rn_schema_kind(b))
        return false;
    if ((kind & RN_KIND_NUMBER) != 0)
        return numbers_equal(a, b);
    if (kind == RN_KIND_STRING) {
        rn_step(m->arena, a.string->n == b.string->n ? a.string->n / 16 : 0);
        return rn_str_same(a.string, b.string);
    }
    if (kind == RN_KIND_ARRAY) {
        for (i = 0; a.list->n == b.list->n && i < a.list->n; i++)
            if (!rn_schema_equal(m, a.list->items[i], b.list->items[i]))
                return false;
        return a.list->n == b.list->n;
    }
    if (kind == RN_KIND_OBJECT) {
        for (i = 0; a.dict->n == b.dict->n && i < a.dict->n; i++) {
            const struct rn_str *key = a.dict->entries[i].key.string;
            struct rn_value other = rn_dict_get(b, key->bytes, key->n);

            if (other.kind == RN_VALUE_UNDEFINED || !rn_schema_equal(m, a.dict->entries[i].value, other))
                return false;
        }
        return a.dict->n == b.dict->n;
    }
    return true;
}

/* ---- Plain constraints ---- */

static enum rn_holds known(bool holds)
{
    return holds ? RN_HOLDS : RN_HOLDS_NOT;
}

static enum rn_holds both(enum rn_holds a, enum rn_holds b)
{
    return a < b ? a : b;
}

static bool number_holds(struct rn_schema_maker *m, const struct rn_atom *a, struct rn_value value)
{
    const struct rn_decimal *number = rn_schema_decimal(m->arena, value);
    int low, high;

    if (a->kind == RN_ATOM_MULTIPLE)
        return rn_decimal_is_multiple(number, a->multiple.unit, a->multiple.places) != a->multiple.negated;
    low = a->bound.low == NULL ? 1 : rn_decimal_compare(number, a->bound.low);
    high = a->bound.high == NULL ? -1 : rn_decimal_compare(number, a->bound.high);
    return (a->bound.low_open ? low > 0 : low >= 0) && (a->bound.high_open ? high < 0 : high <= 0);
}

static bool is_unique(struct rn_schema_maker *m, const struct rn_list *list)
{
    for (size_t i = 0; i < list->n; i++)
        for (size_t k = 0; k < i; k++)
            if (rn_schema_equal(m, list->items[i], list->items[k]))
                return false;
    return true;
}

static enum rn_holds literal_holds(struct rn_schema_maker *m, rn_literal literal, struct rn_value value)
{
    enum rn_holds holds = rn_schema_holds(m, m->schemas[literal / 2], value);

    return literal % 2 == 0 ? holds : (enum rn_holds)(RN_HOLDS - holds);
}

static enum rn_holds literals_hold(struct rn_schema_maker *m, struct rn_literals literals, struct rn_value value)
{
    enum rn_holds holds = RN_HOLDS;

    for (uint32_t i = 0; i < literals.n && holds != RN_HOLDS_NOT; i++)
        holds = both(holds, literal_holds(m, literals.items[i], value));
    return holds;
}

static enum rn_holds contains_holds(struct rn_schema_maker *m, const struct rn_contains *contains,
                                    const struct rn_list *list)
{
    uint32_t least = 0, most = 0; /* of the items that match */

    for (size_t i = contains->from; i < list->n && i < contains->to; i++) {
        enum rn_holds holds = literal_holds(m, contains->literal, list->items[i]);

        least += holds == RN_HOLDS;
        most += holds != RN_HOLDS_NOT;
    }
    if (most < contains->least || contains->most < least)
        return RN_HOLDS_NOT;
    return contains->least <= least && most <= contains->most ? RN_HOLDS : RN_HOLDS_UNKNOWN;
}

static enum rn_holds array_holds(struct rn_schema_maker *m, const struct rn_atom *a, const struct rn_list *list)
{
    struct rn_clause clause = {NULL, a->schema};
    struct rn_case the = {.arrays = &clause};
    enum rn_holds holds = RN_HOLDS;

    if (a->kind == RN_ATOM_UNIQUE)
        return known(is_unique(m, list));
    if (a->kind == RN_ATOM_ITEMS)
        return known(a->count.least <= list->n && list->n <= a->count.most);
    if (a->kind == RN_ATOM_CONTAINS)
        return contains_holds(m, &a->contains, list);
    for (size_t i = 0; i < list->n && holds != RN_HOLDS_NOT; i++) {
        const struct rn_literal_list *goal = rn_schema_item(m, &the, (uint32_t)i);

        holds = both(holds, literals_hold(m, rn_literals_of(m, goal), list->items[i]));
    }
    return holds;
}

/* Is it known which patterns of the schema's patternProperties the name matches? */
static bool patterns_known(struct rn_schema_maker *m, const struct rn_schema *schema, const struct rn_str *name)
{
    struct rn_value patterns = rn_dict_at(rn_schema_dict(schema), "patternProperties");

    for (size_t i = 0; patterns.kind == RN_VALUE_DICT && i < patterns.dict->n; i++)
        if (rn_schema_pattern_has(m, schema, patterns.dict->entries[i].key.string, name) == RN_HOLDS_UNKNOWN)
            return false;
    return true;
}

static enum rn_holds object_holds(struct rn_schema_maker *m, const struct rn_atom *a, struct rn_value value)
{
    struct rn_clause clause = {NULL, a->schema};
    struct rn_case the = {.objects = &clause};
    enum rn_holds holds = RN_HOLDS;
    size_t i;

    if (a->kind == RN_ATOM_PROPERTIES)
        return known(a->count.least <= value.dict->n && value.dict->n <= a->count.most);
    if (a->kind == RN_ATOM_REQUIRED || a->kind == RN_ATOM_LACKS || a->kind == RN_ATOM_EXTRA) {
        struct rn_value own = rn_dict_get(value, a->name.name->bytes, a->name.name->n);
        bool there = own.kind != RN_VALUE_UNDEFINED;

        if (a->kind != RN_ATOM_EXTRA)
            return known(there == (a->kind == RN_ATOM_REQUIRED));
        return there ? literal_holds(m, a->name.literal, own) : RN_HOLDS;
    }
    for (i = 0; i < value.dict->n && holds != RN_HOLDS_NOT; i++) {
        struct rn_value key = value.dict->entries[i].key, own = value.dict->entries[i].value;

        if (a->kind == RN_ATOM_NAMES) {
            holds = both(holds, literal_holds(m, a->name.literal, key));
            continue;
        }
        holds = both(holds, literals_hold(m, rn_literals_of(m, rn_schema_property(m, &the, key.string)), own));
        if (holds == RN_HOLDS && !patterns_known(m, a->schema, key.string))
            holds = RN_HOLDS_UNKNOWN;
    }
    return holds;
}

static enum rn_holds atoms_hold(struct rn_schema_maker *m, const struct rn_atom *a, struct rn_value value);

static enum rn_holds choice_holds(struct rn_schema_maker *m, const struct rn_branch *branch, struct rn_value value)
{
    enum rn_holds holds = RN_HOLDS_NOT, one;

    for (; branch != NULL && holds != RN_HOLDS; branch = branch->next) {
        one = atoms_hold(m, branch->atoms, value);
        holds = one > holds ? one : holds;
    }
    return holds;
}

static bool value_listed(struct rn_schema_maker *m, const struct rn_list *list, struct rn_value value)
{
    if (m->likely < list->n && rn_schema_equal(m, list->items[m->likely], value))
        return true;
    for (size_t i = 0; i < list->n; i++)
        if (rn_schema_equal(m, list->items[i], value))
            return true;
    return false;
}

static enum rn_holds atom_holds(struct rn_schema_maker *m, const struct rn_atom *a, struct rn_value value)
{
    uint32_t kind = rn_schema_kind(value);

    switch (a->kind) {
    case RN_ATOM_NEVER:
        return RN_HOLDS_NOT;
    case RN_ATOM_LITERAL:
        return literal_holds(m, a->literal, value);
    case RN_ATOM_CHOICE:
        return choice_holds(m, a->branches, value);
    case RN_ATOM_KINDS:
        return known((kind & a->kinds) != 0);
    case RN_ATOM_VALUES:
    case RN_ATOM_NOT_VALUES:
        return known(value_listed(m, a->values, value) == (a->kind == RN_ATOM_VALUES));
    case RN_ATOM_BOUND:
    case RN_ATOM_MULTIPLE:
        return known((kind & RN_KIND_NUMBER) == 0 || number_holds(m, a, value));
    case RN_ATOM_LENGTH:
        return known(kind != RN_KIND_STRING ||
                     (a->count.least <= value.string->chars && value.string->chars <= a->count.most));
    case RN_ATOM_TEXT:
        return kind != RN_KIND_STRING ? RN_HOLDS : rn_schema_text_holds(m, &a->text, value.string);
    case RN_ATOM_ARRAY:
    case RN_ATOM_ITEMS:
    case RN_ATOM_CONTAINS:
    case RN_ATOM_UNIQUE:
        return kind != RN_KIND_ARRAY ? RN_HOLDS : array_holds(m, a, value.list);
    default:
        return kind != RN_KIND_OBJECT ? RN_HOLDS : object_holds(m, a, value);
    }
}

static enum rn_holds atoms_hold(struct rn_schema_maker *m, const struct rn_atom *a, struct rn_value value)
{
    enum rn_holds holds = RN_HOLDS;

    for (; a != NULL && holds != RN_HOLDS_NOT; a = a->next)
        holds = both(holds, atom_holds(m, a, value));
    return holds;
}

/* A keyword that says nothing is never broken; one that says nothing negated either is not enforced. */
static enum rn_holds keyword_holds(struct rn_schema_maker *m, const struct rn_schema *schema, const char *keyword,
                                   struct rn_value says, struct rn_value value)
{
    const struct rn_atom *atoms = rn_schema_atoms(m, schema, keyword, says, false);
    enum rn_holds holds;

    if (atoms == NULL && m->options.allow_unenforced && rn_schema_atoms(m, schema, keyword, says, true) == NULL)
        return RN_HOLDS_UNKNOWN;
    holds = atoms_hold(m, atoms, value);
    if (strcmp(keyword, "oneOf") == 0 && m->comparisons == RN_COMPARISONS_MOST && schema->apart == RN_APART_UNKNOWN)
        return both(holds, RN_HOLDS_UNKNOWN); /* it was taken for anyOf: are_apart */
    return holds;
}

enum rn_holds rn_schema_holds(struct rn_schema_maker *m, const struct rn_schema *schema, struct rn_value value)
{
    enum rn_holds holds = RN_HOLDS;
    size_t i;

    if (schema->dict == NULL)
        return known(schema->truth);
    rn_enter(m->arena);
    for (i = 0; i < schema->dict->n && holds != RN_HOLDS_NOT; i++) {
        const struct rn_dict_entry *entry = &schema->dict->entries[i];
        char keyword[32] = "";

        rn_step(m->arena, 1);
        if (entry->key.string->n >= sizeof keyword)
            continue;
        memcpy(keyword, entry->key.string->bytes, entry->key.string->n);
        holds = both(holds, keyword_holds(m, schema, keyword, entry->value, value));
    }
    rn_leave(m->arena);
    return holds;
}

bool rn_schema_all_hold(struct rn_schema_maker *m, struct rn_literals literals, struct rn_value value)
{
    return literals_hold(m, literals, value) != RN_HOLDS_NOT;
}

/* ---- Spelling ---- */

static rn_expr list_text(struct rn_schema_maker *m, const struct rn_list *list)
{
    rn_expr *parts = rn_arena_take(m->arena, 4 * list->n + 3, sizeof *parts);
    size_t n = 0, i;

    parts[n++] = rn_schema_literal_text(m, "[");
    for (i = 0; i < list->n; i++) {
        if (i > 0)
            parts[n++] = rn_schema_literal_text(m, ",");
        parts[n++] = rn_schema_white(m);
        parts[n++] = rn_schema_value(m, list->items[i]);
        parts[n++] = rn_schema_white(m);
    }
    if (list->n == 0)
        parts[n++] = rn_schema_white(m);
    parts[n++] = rn_schema_literal_text(m, "]");
    return rn_grammar_sequence(m->g, parts, n);
}

static rn_expr dict_text(struct rn_schema_maker *m, const struct rn_dict *dict)
{
    rn_expr *parts = rn_arena_take(m->arena, 8 * dict->n + 3, sizeof *parts);
    size_t n = 0, i;

    parts[n++] = rn_schema_literal_text(m, "{");
    for (i = 0; i < dict->n; i++) {
        const struct rn_str *key = dict->entries[i].key.string;

        if (i > 0)
            parts[n++] = rn_schema_literal_text(m, ",");
        parts[n++] = rn_schema_white(m);
        parts[n++] = rn_schema_key(m, key);
        parts[n++] = rn_schema_white(m);
        parts[n++] = rn_schema_literal_text(m, ":");
        parts[n++] = rn_schema_white(m);
        parts[n++] = rn_schema_value(m, dict->entries[i].value);
        parts[n++] = rn_schema_white(m);
    }
    if (dict->n == 0)
        parts[n++] = rn_schema_white(m);
    parts[n++] = rn_schema_literal_text(m, "}");
    return rn_grammar_sequence(m->g, parts, n);
}

rn_expr rn_schema_value(struct rn_schema_maker *m, struct rn_value value)
{
    rn_expr e;
    const char *text;
    size_t n;

    rn_step(m->arena, 1);
    switch (value.kind) {
    case RN_VALUE_BOOL:
        return rn_schema_literal_text(m, value.boolean ? "true" : "false");
    case RN_VALUE_INT:
    case RN_VALUE_DECIMAL:
        text = rn_decimal_text(m->arena, rn_schema_decimal(m->arena, value), &n);
        return rn_grammar_bytes(m->g, text, n);
    case RN_VALUE_STRING:
        return rn_schema_spelled(m, value.string->bytes, value.string->n, true);
    case RN_VALUE_LIST:
    case RN_VALUE_DICT:
        rn_enter(m->arena);
        e = value.kind == RN_VALUE_LIST ? list_text(m, value.list) : dict_text(m, value.dict);
        rn_leave(m->arena);
        return e;
    default:
        return rn_schema_literal_text(m, "null");
    }
}
