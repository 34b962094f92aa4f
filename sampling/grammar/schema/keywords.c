/* What each keyword says, as atoms that all hold, and what it says negated: one table. See parts.h.
 *
 * Negated, a keyword that speaks of one kind of values says "of that kind, and not so": {"maxLength": 3} is broken by
 * strings of four characters, and by nothing else. */
#include <string.h>

#include "base/check.h"
#include "sampling/grammar/schema/parts.h"

#define TRUE_SCHEMA 1u

struct place { /* a keyword in a schema */
    struct rn_schema_maker *m;
    const struct rn_schema *schema;
    const char *keyword;
    struct rn_value value;
    bool negated;
};

static struct rn_value beside(const struct place *p, const char *keyword)
{
    return rn_dict_at(rn_schema_dict(p->schema), keyword);
}

const struct rn_atom *rn_atom_add(struct rn_schema_maker *m, const struct rn_atom *next, struct rn_atom atom)
{
    struct rn_atom *copy = rn_arena_take(m->arena, 1, sizeof *copy);

    rn_step(m->arena, 1);
    *copy = atom;
    copy->next = next;
    return copy;
}

const struct rn_branch *rn_branch_add(struct rn_schema_maker *m, const struct rn_branch *next,
                                      const struct rn_atom *atoms)
{
    struct rn_branch *branch = rn_arena_take(m->arena, 1, sizeof *branch);

    rn_step(m->arena, 1);
    *branch = (struct rn_branch){next, atoms};
    return branch;
}

static const struct rn_atom *add(const struct place *p, const struct rn_atom *next, struct rn_atom atom)
{
    atom.schema = p->schema;
    return rn_atom_add(p->m, next, atom);
}

static const struct rn_atom *add_kinds(const struct place *p, const struct rn_atom *next, uint32_t kinds)
{
    return add(p, next, (struct rn_atom){.kind = RN_ATOM_KINDS, .kinds = kinds});
}

static const struct rn_atom *add_literal(const struct place *p, const struct rn_atom *next,
                                         const struct rn_schema *schema, bool negated)
{
    return add(p, next, (struct rn_atom){.kind = RN_ATOM_LITERAL, .literal = rn_literal_of(schema, negated)});
}

static const struct rn_atom *never(const struct place *p)
{
    return add(p, NULL, (struct rn_atom){.kind = RN_ATOM_NEVER});
}

static const struct rn_atom *choice(const struct place *p, const struct rn_branch *branches)
{
    if (branches == NULL)
        return never(p);
    if (branches->next == NULL)
        return branches->atoms;
    return add(p, NULL, (struct rn_atom){.kind = RN_ATOM_CHOICE, .branches = branches});
}

static const struct rn_branch *branch(const struct place *p, const struct rn_branch *next, const struct rn_atom *atoms)
{
    return rn_branch_add(p->m, next, atoms);
}

static const struct rn_schema *schema_at(const struct place *p, struct rn_value value)
{
    return rn_schema_of(p->m, value, p->schema, p->keyword);
}

static const struct rn_list *list_at(const struct place *p, const char *what)
{
    if (p->value.kind != RN_VALUE_LIST)
        rn_schema_malformed(p->m, p->schema, p->keyword, what);
    return p->value.list;
}

static const struct rn_dict *map_at(const struct place *p)
{
    if (p->value.kind != RN_VALUE_DICT)
        rn_schema_malformed(p->m, p->schema, p->keyword, "an object");
    return p->value.dict;
}

/* A count: an integer. Large ones are all alike, and one more than each is still no RN_GRAMMAR_FOREVER. */
static uint32_t count_at(const struct place *p, const char *keyword, struct rn_value value)
{
    if (value.kind == RN_VALUE_DECIMAL && rn_schema_kind(value) == RN_KIND_INTEGER && value.string->bytes[0] != '-')
        value = rn_int(INT64_MAX);
    if (value.kind != RN_VALUE_INT || value.integer < 0)
        rn_schema_malformed(p->m, p->schema, keyword, "a number of things: an integer, not negative");
    return value.integer < RN_GRAMMAR_FOREVER - 2 ? (uint32_t)value.integer : RN_GRAMMAR_FOREVER - 2;
}

/* An object with a property that breaks it. */
static const struct rn_atom *broken(const struct place *p)
{
    return add(p, NULL, (struct rn_atom){.kind = RN_ATOM_BROKEN, .broken = p->keyword});
}

/* Refuses what is not known to be broken or not. */
static const struct rn_atom *refuse_negated(const struct place *p)
{
    rn_schema_refuse(p->m, p->schema, p->keyword, "it is negated here, by \"not\", \"if\" or \"oneOf\"");
    return NULL;
}

/* ---- Any value ---- */

static uint32_t kind_named(const struct place *p, struct rn_value name)
{
    static const struct {
        const char *name;
        uint32_t kinds;
    } kinds[] = {{"null", RN_KIND_NULL},       {"boolean", RN_KIND_TRUE | RN_KIND_FALSE},
                 {"integer", RN_KIND_INTEGER}, {"number", RN_KIND_NUMBER},
                 {"string", RN_KIND_STRING},   {"array", RN_KIND_ARRAY},
                 {"object", RN_KIND_OBJECT},   {"any", RN_KINDS_ALL}}; /* of draft 3 */

    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (rn_value_is(name, kinds[i].name))
            return kinds[i].kinds;
    rn_schema_malformed(p->m, p->schema, p->keyword, "a type of JSON, or a list of them");
}

static bool is_true(const struct place *p, const char *keyword)
{
    struct rn_value value = beside(p, keyword);

    return value.kind == RN_VALUE_BOOL && value.boolean;
}

static const struct rn_atom *type(const struct place *p)
{
    uint32_t kinds = is_true(p, "nullable") ? RN_KIND_NULL : 0;

    if (p->value.kind == RN_VALUE_LIST)
        for (size_t i = 0; i < p->value.list->n; i++)
            kinds |= kind_named(p, p->value.list->items[i]);
    else
        kinds |= kind_named(p, p->value);
    return add_kinds(p, NULL, p->negated ? RN_KINDS_ALL & ~kinds : kinds);
}

static const struct rn_atom *values(const struct place *p, const struct rn_list *list)
{
    return add(p, NULL, (struct rn_atom){.kind = p->negated ? RN_ATOM_NOT_VALUES : RN_ATOM_VALUES, .values = list});
}

static const struct rn_atom *enum_(const struct place *p)
{
    const struct rn_atom *listed = values(p, list_at(p, "a list of values"));

    if (!is_true(p, "nullable"))
        return listed;
    if (p->negated)
        return add_kinds(p, listed, RN_KINDS_ALL & ~(uint32_t)RN_KIND_NULL);
    return choice(p, branch(p, branch(p, NULL, add_kinds(p, NULL, RN_KIND_NULL)), listed));
}

static const struct rn_atom *const_(const struct place *p)
{
    struct rn_list *list = rn_list_new(p->m->arena, 1);

    rn_list_push(p->m->arena, list, p->value);
    return values(p, list);
}

/* All hold; negated, one does not. */
static const struct rn_atom *all_of(const struct place *p)
{
    const struct rn_list *list = list_at(p, "a list of schemas");
    const struct rn_branch *branches = NULL;
    const struct rn_atom *atoms = NULL;

    for (size_t i = list->n; i-- > 0;) {
        if (p->negated)
            branches = branch(p, branches, add_literal(p, NULL, schema_at(p, list->items[i]), true));
        else
            atoms = add_literal(p, atoms, schema_at(p, list->items[i]), false);
    }
    return p->negated ? choice(p, branches) : atoms;
}

static const struct rn_atom *any_of(const struct place *p)
{
    const struct rn_list *list = list_at(p, "a list of schemas");
    const struct rn_branch *branches = NULL;
    const struct rn_atom *atoms = NULL;

    for (size_t i = list->n; i-- > 0;) {
        if (p->negated)
            atoms = add_literal(p, atoms, schema_at(p, list->items[i]), true);
        else
            branches = branch(p, branches, add_literal(p, NULL, schema_at(p, list->items[i]), false));
    }
    return p->negated ? atoms : choice(p, branches);
}

static bool no_two_hold(const struct place *p, const struct rn_list *list)
{
    for (size_t i = 0; i < list->n; i++) {
        for (size_t k = 0; k < i; k++) {
            const struct rn_literal_list *pair = NULL;

            pair = rn_literals_add(p->m, pair, rn_literal_of(schema_at(p, list->items[i]), false));
            pair = rn_literals_add(p->m, pair, rn_literal_of(schema_at(p, list->items[k]), false));
            if (!rn_schema_empty(p->m, rn_literals_of(p->m, pair), 0))
                return false;
        }
    }
    return true;
}

/* Is it proved that no two of the schemas hold of one value? What their properties are may come to this oneOf again,
 * or to others, which are compared within this comparison, up to a depth. Below it oneOf is taken for anyOf, which has
 * more values: what is empty even so is empty. */
static bool are_apart(const struct place *p, const struct rn_list *list)
{
    struct rn_schema *own = p->m->schemas[p->schema->id];
    bool apart;

    if (own->apart != RN_APART_UNKNOWN)
        return own->apart == RN_APART;
    if (p->m->comparisons == RN_COMPARISONS_MOST)
        return true;
    p->m->comparisons++;
    apart = no_two_hold(p, list);
    p->m->comparisons--;
    if (apart || p->m->comparisons == 0)
        own->apart = apart ? RN_APART : RN_APART_NOT_PROVED;
    return apart;
}

/* One holds and no other; negated: none, or two. */
static const struct rn_branch *exactly_one(const struct place *p, const struct rn_list *list)
{
    const struct rn_branch *branches = NULL;
    const struct rn_atom *atoms;
    size_t i, k;

    for (i = list->n; i-- > 0;) {
        for (k = list->n, atoms = NULL; k-- > 0;)
            atoms = add_literal(p, atoms, schema_at(p, list->items[k]), k != i);
        branches = branch(p, branches, atoms);
    }
    return branches;
}

static const struct rn_branch *not_exactly_one(const struct place *p, const struct rn_list *list)
{
    const struct rn_branch *branches = NULL;
    const struct rn_atom *atoms = NULL;
    size_t i, k;

    for (i = 0; i < list->n; i++)
        atoms = add_literal(p, atoms, schema_at(p, list->items[i]), true);
    branches = branch(p, NULL, atoms);
    for (i = 0; i < list->n; i++)
        for (k = 0; k < i; k++)
            branches = branch(p, branches,
                              add_literal(p, add_literal(p, NULL, schema_at(p, list->items[i]), false),
                                          schema_at(p, list->items[k]), false));
    return branches;
}

static const struct rn_atom *one_of(const struct place *p)
{
    const struct rn_list *list = list_at(p, "a list of schemas");

    if (p->negated)
        return choice(p, not_exactly_one(p, list));
    if (p->m->options.one_of_as_any_of || are_apart(p, list))
        return any_of(p);
    if (p->m->one_of == NULL)
        p->m->one_of = p->schema;
    return choice(p, exactly_one(p, list));
}

static const struct rn_atom *not_(const struct place *p)
{
    return add_literal(p, NULL, schema_at(p, p->value), !p->negated);
}

static const struct rn_atom *if_(const struct place *p)
{
    struct rn_value then = beside(p, "then"), otherwise = beside(p, "else");
    const struct rn_schema *test = schema_at(p, p->value), *yes, *no;
    const struct rn_atom *one = NULL, *two = NULL;

    if (then.kind == RN_VALUE_UNDEFINED && otherwise.kind == RN_VALUE_UNDEFINED)
        return p->negated ? never(p) : NULL;
    yes = then.kind == RN_VALUE_UNDEFINED ? p->m->schemas[TRUE_SCHEMA] : rn_schema_of(p->m, then, p->schema, "then");
    no = otherwise.kind == RN_VALUE_UNDEFINED ? p->m->schemas[TRUE_SCHEMA]
                                              : rn_schema_of(p->m, otherwise, p->schema, "else");
    one = add_literal(p, add_literal(p, NULL, yes, p->negated), test, false);
    two = add_literal(p, NULL, no, p->negated);
    if (p->negated || then.kind != RN_VALUE_UNDEFINED) /* else `if` or `else` holds */
        two = add_literal(p, two, test, true);
    return choice(p, branch(p, branch(p, NULL, two), one));
}

static const struct rn_atom *reference(const struct place *p)
{
    const struct rn_schema *target = rn_schema_target(p->m, p->schema, p->keyword, p->value);

    return target == NULL ? NULL : add_literal(p, NULL, target, p->negated);
}

/* ---- Numbers ---- */

static const struct rn_decimal *number_at(const struct place *p)
{
    if (p->value.kind != RN_VALUE_INT && p->value.kind != RN_VALUE_DECIMAL)
        rn_schema_malformed(p->m, p->schema, p->keyword, "a number");
    return rn_schema_decimal(p->m->arena, p->value);
}

/* exclusiveMinimum may be true, as in draft 4: then it says how minimum is meant. */
static const struct rn_atom *bound(const struct place *p)
{
    bool low = strstr(p->keyword, "inimum") != NULL, exclusive = p->keyword[0] == 'e';
    bool open = exclusive || is_true(p, low ? "exclusiveMinimum" : "exclusiveMaximum");
    struct rn_atom atom = {.kind = RN_ATOM_BOUND};
    const struct rn_decimal *at;

    if (exclusive && p->value.kind == RN_VALUE_BOOL)
        return p->negated ? never(p) : NULL;
    at = number_at(p);
    if (p->negated) {
        low = !low;
        open = !open;
    }
    atom.bound = (struct rn_interval){NULL, low ? at : NULL, low ? NULL : at, low && open, !low && open};
    return add(p, p->negated ? add_kinds(p, NULL, RN_KIND_NUMBER) : NULL, atom);
}

static const struct rn_atom *multiple_of(const struct place *p)
{
    const struct rn_decimal *unit = number_at(p);
    struct rn_atom atom = {.kind = RN_ATOM_MULTIPLE};
    uint64_t whole = 0;

    if (unit->negative || unit->n_int + unit->n_frac == 0)
        rn_schema_malformed(p->m, p->schema, p->keyword, "a number above 0");
    for (uint32_t i = 0; i < unit->n_int + unit->n_frac && whole <= UINT32_MAX; i++)
        whole = whole * 10 + unit->digits[i];
    if (whole > 1000000000 || unit->n_frac > 40) {
        rn_schema_refuse(p->m, p->schema, p->keyword, "it has too many digits");
        return NULL;
    }
    atom.multiple = (struct rn_multiple){NULL, (uint32_t)whole, unit->n_frac, p->negated};
    return add(p, p->negated ? add_kinds(p, NULL, RN_KIND_NUMBER) : NULL, atom);
}

/* Draft 3 named it so; later ones do not know it. */
static const struct rn_atom *divisible_by(const struct place *p)
{
    if (p->m->draft <= 3)
        return multiple_of(p);
    return p->negated ? never(p) : NULL;
}

/* ---- Counts ---- */

/* least or most of something: of which kind of values, and by which atom. */
static const struct rn_atom *counted(const struct place *p, enum rn_atom_kind kind, uint32_t kinds)
{
    uint32_t n = count_at(p, p->keyword, p->value);
    struct rn_atom atom = {.kind = kind};
    bool least = p->keyword[1] == 'i';

    atom.count.most = RN_GRAMMAR_FOREVER;
    if (p->negated && least && n == 0)
        return never(p);
    if (least && !p->negated)
        atom.count.least = n;
    else if (least)
        atom.count.most = n - 1;
    else if (p->negated)
        atom.count.least = n + 1;
    else
        atom.count.most = n;
    return add(p, p->negated ? add_kinds(p, NULL, kinds) : NULL, atom);
}

static const struct rn_atom *length(const struct place *p)
{
    return counted(p, RN_ATOM_LENGTH, RN_KIND_STRING);
}

static const struct rn_atom *items_count(const struct place *p)
{
    return counted(p, RN_ATOM_ITEMS, RN_KIND_ARRAY);
}

static const struct rn_atom *properties_count(const struct place *p)
{
    return counted(p, RN_ATOM_PROPERTIES, RN_KIND_OBJECT);
}

/* ---- Strings ---- */

static const struct rn_atom *text(const struct place *p)
{
    struct rn_atom atom = {.kind = RN_ATOM_TEXT};
    bool ignored = false;

    if (p->value.kind != RN_VALUE_STRING)
        rn_schema_malformed(p->m, p->schema, p->keyword, "a string");
    atom.text = (struct rn_text_rule){NULL, p->schema, p->value.string,
                                      p->keyword[0] == 'p' ? RN_TEXT_PATTERN : RN_TEXT_FORMAT, p->negated};
    if (atom.text.kind == RN_TEXT_FORMAT && rn_schema_format(p->value.string, &ignored) == NULL) {
        if (!ignored)
            rn_schema_refuse(p->m, p->schema, "format", "this format is not known");
        return ignored && p->negated ? never(p) : NULL;
    }
    return add(p, p->negated ? add_kinds(p, NULL, RN_KIND_STRING) : NULL, atom);
}

/* ---- Arrays ---- */

static const struct rn_atom *array_clause(const struct place *p)
{
    return add(p, NULL, (struct rn_atom){.kind = RN_ATOM_ARRAY});
}

/* An array of which an item from..to breaks the schema. */
static const struct rn_branch *broken_item(const struct place *p, const struct rn_branch *next,
                                           const struct rn_schema *schema, uint32_t from, uint32_t to)
{
    struct rn_atom atom = {.kind = RN_ATOM_CONTAINS};

    if (schema->dict == NULL && schema->truth)
        return next;
    atom.contains = (struct rn_contains){NULL, p->schema, rn_literal_of(schema, true), from, to, 1, RN_GRAMMAR_FOREVER};
    return branch(p, next, add_kinds(p, add(p, NULL, atom), RN_KIND_ARRAY));
}

static const struct rn_atom *prefix_items(const struct place *p)
{
    const struct rn_branch *branches = NULL;
    const struct rn_list *list = list_at(p, "a list of schemas");

    if (!p->negated)
        return array_clause(p);
    for (size_t i = list->n; i-- > 0;)
        branches = broken_item(p, branches, schema_at(p, list->items[i]), (uint32_t)i, (uint32_t)i + 1);
    return choice(p, branches);
}

/* How many items stand before those that items or additionalItems speaks of. */
static uint32_t items_before(const struct place *p)
{
    struct rn_value prefix = beside(p, "prefixItems"), items = beside(p, "items");

    if (prefix.kind == RN_VALUE_LIST)
        return (uint32_t)prefix.list->n;
    return p->keyword[0] != 'i' && items.kind == RN_VALUE_LIST ? (uint32_t)items.list->n : 0;
}

static const struct rn_atom *items(const struct place *p)
{
    struct rn_value list = beside(p, "items");

    if (p->value.kind == RN_VALUE_LIST)
        return prefix_items(p);
    if (p->keyword[0] == 'a' && list.kind != RN_VALUE_LIST) /* additionalItems without a list before them */
        return p->negated ? never(p) : NULL;
    if (!p->negated)
        return array_clause(p);
    return choice(p, broken_item(p, NULL, schema_at(p, p->value), items_before(p), RN_GRAMMAR_FOREVER));
}

static const struct rn_atom *contains(const struct place *p)
{
    struct rn_value min = beside(p, "minContains"), max = beside(p, "maxContains");
    uint32_t least = min.kind == RN_VALUE_UNDEFINED ? 1 : count_at(p, "minContains", min);
    uint32_t most = max.kind == RN_VALUE_UNDEFINED ? RN_GRAMMAR_FOREVER : count_at(p, "maxContains", max);
    struct rn_atom atom = {.kind = RN_ATOM_CONTAINS};
    const struct rn_branch *branches = NULL;

    atom.contains = (struct rn_contains){
        NULL, p->schema, rn_literal_of(schema_at(p, p->value), false), 0, RN_GRAMMAR_FOREVER, least, most};
    if (!p->negated)
        return add(p, NULL, atom);
    if (least > 0) {
        atom.contains.least = 0;
        atom.contains.most = least - 1;
        branches = branch(p, branches, add_kinds(p, add(p, NULL, atom), RN_KIND_ARRAY));
    }
    if (most != RN_GRAMMAR_FOREVER) {
        atom.contains.least = most + 1;
        atom.contains.most = RN_GRAMMAR_FOREVER;
        branches = branch(p, branches, add_kinds(p, add(p, NULL, atom), RN_KIND_ARRAY));
    }
    return choice(p, branches);
}

static const struct rn_atom *unique_items(const struct place *p)
{
    if (p->value.kind != RN_VALUE_BOOL)
        rn_schema_malformed(p->m, p->schema, p->keyword, "true or false");
    if (!p->value.boolean)
        return p->negated ? never(p) : NULL;
    return p->negated ? refuse_negated(p) : add(p, NULL, (struct rn_atom){.kind = RN_ATOM_UNIQUE});
}

/* ---- Objects ---- */

static const struct rn_atom *add_name(const struct place *p, const struct rn_atom *next, enum rn_atom_kind kind,
                                      struct rn_value name, rn_literal literal)
{
    if (name.kind != RN_VALUE_STRING)
        rn_schema_malformed(p->m, p->schema, p->keyword, "a list of names");
    return add(p, next, (struct rn_atom){.kind = kind, .name = {NULL, name.string, literal}});
}

static const struct rn_atom *object_clause(const struct place *p)
{
    return add(p, NULL, (struct rn_atom){.kind = RN_ATOM_OBJECT});
}

static const struct rn_atom *properties(const struct place *p)
{
    const struct rn_branch *branches = NULL;
    const struct rn_dict *map = map_at(p);

    if (!p->negated)
        return object_clause(p);
    for (size_t i = map->n; i-- > 0;) {
        const struct rn_schema *schema = schema_at(p, map->entries[i].value);
        struct rn_value name = map->entries[i].key;
        const struct rn_atom *atoms;

        if (schema->dict == NULL && schema->truth)
            continue;
        atoms = add_name(p, NULL, RN_ATOM_EXTRA, name, rn_literal_of(schema, true));
        branches = branch(p, branches, add_kinds(p, add_name(p, atoms, RN_ATOM_REQUIRED, name, 0), RN_KIND_OBJECT));
    }
    return choice(p, branches);
}

static bool all_true(const struct place *p)
{
    const struct rn_dict *map = p->value.dict;

    if (p->value.kind == RN_VALUE_BOOL)
        return p->value.boolean;
    for (size_t i = 0; p->keyword[0] == 'p' && i < map->n; i++)
        if (map->entries[i].value.kind != RN_VALUE_BOOL || !map->entries[i].value.boolean)
            return false;
    return map->n == 0 || p->keyword[0] == 'p';
}

/* Of patternProperties and additionalProperties: a property that is not named here would have to break them. */
static const struct rn_atom *other_properties(const struct place *p)
{
    if (p->keyword[0] == 'p')
        map_at(p);
    else
        schema_at(p, p->value);
    if (!p->negated)
        return object_clause(p);
    return all_true(p) ? never(p) : broken(p);
}

static const struct rn_atom *required(const struct place *p)
{
    const struct rn_list *list = list_at(p, "a list of names");
    const struct rn_branch *branches = NULL;
    const struct rn_atom *atoms = NULL;

    for (size_t i = list->n; i-- > 0;) {
        if (p->negated)
            branches =
                branch(p, branches, add_kinds(p, add_name(p, NULL, RN_ATOM_LACKS, list->items[i], 0), RN_KIND_OBJECT));
        else
            atoms = add_name(p, atoms, RN_ATOM_REQUIRED, list->items[i], 0);
    }
    return p->negated ? choice(p, branches) : atoms;
}

static const struct rn_atom *property_names(const struct place *p)
{
    const struct rn_schema *schema = schema_at(p, p->value);

    if (p->negated)
        return schema->dict == NULL && schema->truth ? never(p) : broken(p);
    return add(p, NULL, (struct rn_atom){.kind = RN_ATOM_NAMES, .name = {NULL, NULL, rn_literal_of(schema, false)}});
}

/* An object that has this property, and lacks one of the names or breaks the schema that it asks for. */
static const struct rn_branch *broken_dependency(const struct place *p, const struct rn_branch *next,
                                                 const struct rn_dict_entry *entry)
{
    size_t n = entry->value.kind == RN_VALUE_LIST ? entry->value.list->n : 1;

    for (size_t i = 0; i < n; i++) {
        const struct rn_atom *atoms;

        if (entry->value.kind == RN_VALUE_LIST)
            atoms = add_name(p, NULL, RN_ATOM_LACKS, entry->value.list->items[i], 0);
        else
            atoms = add_literal(p, NULL, schema_at(p, entry->value), true);
        next = branch(p, next, add_kinds(p, add_name(p, atoms, RN_ATOM_REQUIRED, entry->key, 0), RN_KIND_OBJECT));
    }
    return next;
}

static const struct rn_atom *dependency(const struct place *p, const struct rn_dict_entry *entry)
{
    const struct rn_atom *atoms = NULL;
    const struct rn_branch *branches;

    if (entry->value.kind == RN_VALUE_LIST)
        for (size_t i = entry->value.list->n; i-- > 0;)
            atoms = add_name(p, atoms, RN_ATOM_REQUIRED, entry->value.list->items[i], 0);
    else
        atoms = add_literal(p, NULL, schema_at(p, entry->value), false);
    atoms = add_kinds(p, add_name(p, atoms, RN_ATOM_REQUIRED, entry->key, 0), RN_KIND_OBJECT);
    branches = branch(p, NULL, atoms);
    return choice(p, branch(p, branches, add_name(p, NULL, RN_ATOM_LACKS, entry->key, 0)));
}

static const struct rn_atom *dependencies(const struct place *p)
{
    const struct rn_branch *branches = NULL;
    const struct rn_dict *map = map_at(p);
    const struct rn_atom *atoms = NULL;

    for (size_t i = 0; i < map->n; i++) {
        if (p->negated)
            branches = broken_dependency(p, branches, &map->entries[i]);
        else
            atoms = rn_atom_add(p->m, atoms, *dependency(p, &map->entries[i]));
    }
    return p->negated ? choice(p, branches) : atoms;
}

/* ---- What depends on which schemas hold ---- */

bool rn_schema_unevaluated_plain(const struct rn_schema *schema)
{
    static const char *const in_place[] = {"$ref",  "$dynamicRef", "$recursiveRef",    "allOf",        "anyOf",
                                           "oneOf", "if",          "dependentSchemas", "dependencies", "contains"};

    for (size_t i = 0; i < sizeof in_place / sizeof in_place[0]; i++)
        if (rn_dict_at(rn_schema_dict(schema), in_place[i]).kind != RN_VALUE_UNDEFINED)
            return false;
    return true;
}

/* Without schemas of the same value beside it, it means what additionalProperties or additionalItems would. */
static const struct rn_atom *unevaluated(const struct place *p)
{
    bool array = strcmp(p->keyword, "unevaluatedItems") == 0;

    if (p->value.kind == RN_VALUE_BOOL && p->value.boolean)
        return p->negated ? never(p) : NULL;
    if (!rn_schema_unevaluated_plain(p->schema)) {
        rn_schema_refuse(p->m, p->schema, p->keyword, "what is evaluated depends on other schemas beside it");
        return NULL;
    }
    if (p->negated)
        return array ? refuse_negated(p) : broken(p);
    return array ? array_clause(p) : object_clause(p);
}

/* ---- The table ---- */

static const struct {
    const char *name;
    const struct rn_atom *(*atoms)(const struct place *p);
} keywords[] = {
    {"type", type},
    {"enum", enum_},
    {"const", const_},
    {"allOf", all_of},
    {"anyOf", any_of},
    {"oneOf", one_of},
    {"not", not_},
    {"if", if_},
    {"$ref", reference},
    {"$dynamicRef", reference},
    {"$recursiveRef", reference},
    {"minimum", bound},
    {"maximum", bound},
    {"exclusiveMinimum", bound},
    {"exclusiveMaximum", bound},
    {"multipleOf", multiple_of},
    {"divisibleBy", divisible_by},
    {"minLength", length},
    {"maxLength", length},
    {"pattern", text},
    {"format", text},
    {"prefixItems", prefix_items},
    {"items", items},
    {"additionalItems", items},
    {"minItems", items_count},
    {"maxItems", items_count},
    {"contains", contains},
    {"uniqueItems", unique_items},
    {"properties", properties},
    {"patternProperties", other_properties},
    {"additionalProperties", other_properties},
    {"required", required},
    {"propertyNames", property_names},
    {"minProperties", properties_count},
    {"maxProperties", properties_count},
    {"dependentRequired", dependencies},
    {"dependentSchemas", dependencies},
    {"dependencies", dependencies},
    {"unevaluatedProperties", unevaluated},
    {"unevaluatedItems", unevaluated},
};

const struct rn_atom *rn_schema_atoms(struct rn_schema_maker *m, const struct rn_schema *schema, const char *keyword,
                                      struct rn_value value, bool negated)
{
    struct place p = {m, schema, keyword, value, negated};

    for (size_t i = 0; i < sizeof keywords / sizeof keywords[0]; i++) {
        if (strcmp(keywords[i].name, keyword) == 0) {
            p.keyword = keywords[i].name;
            return keywords[i].atoms(&p);
        }
    }
    return negated ? never(&p) : NULL; /* it says nothing of the value */
}
