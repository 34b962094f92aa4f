/* Negations of additionalProperties, patternProperties and propertyNames: an object has a property that breaks them.
 * Where another schema of the case says which names there can be, it is one of those; else it is refused. See
 * parts.h. */
#include <string.h>

#include "sampling/grammar/schema/parts.h"

/* The names that a clause allows, and no others do; NULL: it allows others. */
static const struct rn_dict *only_names(const struct rn_schema *schema)
{
    struct rn_value others = rn_schema_others(schema), names = rn_dict_at(rn_schema_dict(schema), "properties");
    static const struct rn_dict none;

    if (others.kind != RN_VALUE_BOOL || others.boolean ||
        rn_dict_at(rn_schema_dict(schema), "patternProperties").kind != RN_VALUE_UNDEFINED)
        return NULL;
    return names.kind == RN_VALUE_DICT ? names.dict : &none;
}

static const struct rn_dict *names_of(const struct rn_case *the)
{
    const struct rn_clause *clause = the->objects;

    while (clause != NULL && only_names(clause->schema) == NULL)
        clause = clause->next;
    return clause != NULL ? only_names(clause->schema) : NULL;
}

/* One more way: the object has this name, with a value that breaks the schema; NULL: with any value. */
static const struct rn_branch *add_way(struct rn_schema_maker *m, const struct rn_branch *next,
                                       const struct rn_schema *of, const struct rn_str *name,
                                       const struct rn_schema *broken)
{
    struct rn_atom required = {.kind = RN_ATOM_REQUIRED, .schema = of, .name = {NULL, name, 0}};
    struct rn_atom value = {.kind = RN_ATOM_EXTRA, .schema = of, .name = {NULL, name, 0}};
    const struct rn_atom *atoms = rn_atom_add(m, NULL, required);

    if (broken != NULL) {
        value.name.literal = rn_literal_of(broken, true);
        atoms = rn_atom_add(m, atoms, value);
    }
    return rn_branch_add(m, next, atoms);
}

static const struct rn_branch *add_ways(struct rn_schema_maker *m, const struct rn_branch *next,
                                        const struct rn_broken *broken, const struct rn_str *name)
{
    const struct rn_schema *of = broken->schema;
    struct rn_value properties = rn_dict_at(rn_schema_dict(of), "properties");
    struct rn_value patterns = rn_dict_at(rn_schema_dict(of), "patternProperties");
    struct rn_value value = rn_dict_at(rn_schema_dict(of), broken->keyword);
    bool named = rn_dict_get(properties, name->bytes, name->n).kind != RN_VALUE_UNDEFINED;

    if (strcmp(broken->keyword, "propertyNames") == 0)
        return rn_schema_holds(m, rn_schema_of(m, value, of, broken->keyword), rn_string_value(name)) == RN_HOLDS
                   ? next
                   : add_way(m, next, of, name, NULL);
    for (size_t i = 0; patterns.kind == RN_VALUE_DICT && i < patterns.dict->n; i++) {
        const struct rn_dict_entry *entry = &patterns.dict->entries[i];
        enum rn_holds has = rn_schema_pattern_has(m, of, entry->key.string, name);

        named = named || has == RN_HOLDS;
        if (has != RN_HOLDS_NOT && strcmp(broken->keyword, "patternProperties") == 0)
            next =
                add_way(m, next, of, name, has == RN_HOLDS ? rn_schema_of(m, entry->value, of, broken->keyword) : NULL);
    }
    if (named || strcmp(broken->keyword, "patternProperties") == 0)
        return next;
    return add_way(m, next, of, name, rn_schema_of(m, value, of, broken->keyword));
}

bool rn_schema_ways_to_break(struct rn_schema_maker *m, const struct rn_case *the, const struct rn_broken *broken,
                             const struct rn_branch **ways)
{
    const struct rn_dict *names = names_of(the);

    *ways = NULL;
    if (names == NULL) {
        rn_schema_refuse(m, broken->schema, broken->keyword, "it is negated here, by \"not\", \"if\" or \"oneOf\"");
        return false;
    }
    for (size_t i = names->n; i-- > 0;) {
        rn_step(m->arena, 1);
        *ways = add_ways(m, *ways, broken, names->entries[i].key.string);
    }
    return true;
}
