/* The cases of a goal: all that its schemas say is taken apart into plain constraints, and each choice (anyOf, if, a
 * negation) makes one case per branch. See parts.h.
 *
 * Choices wait until nothing else is to be done, so that most branches that cannot hold end at once. What they say of
 * objects is put where they stand, so that properties are in the order in which the schema names them. */
#include <string.h>

#include "base/check.h"
#include "sampling/grammar/schema/parts.h"

#define CASES_MOST 2000u /* of one goal */
#define EMPTY_DEPTH 4u   /* properties within properties that are looked at */

struct solving {
    struct rn_schema_maker *m;
    struct rn_case_list *found, **end;
    uint32_t n;
};

struct waiting { /* choices */
    const struct waiting *next;
    const struct rn_atom *choice;
    const struct rn_schema *behind; /* rn_case.behind where it stands */
};

/* ---- Plain constraints ---- */

static bool cut(struct rn_schema_maker *m, struct rn_case *c, const struct rn_interval *bound)
{
    const struct rn_interval *old = c->intervals, *kept = NULL;

    for (; old != NULL; old = old->next) {
        struct rn_interval *both = rn_arena_take(m->arena, 1, sizeof *both);
        int order;

        rn_step(m->arena, 1);
        *both = *old;
        both->next = kept;
        if (bound->low != NULL) {
            order = old->low == NULL ? 1 : rn_decimal_compare(bound->low, old->low);
            if (order >= 0) {
                both->low = bound->low;
                both->low_open = bound->low_open || (order == 0 && old->low_open);
            }
        }
        if (bound->high != NULL) {
            order = old->high == NULL ? -1 : rn_decimal_compare(bound->high, old->high);
            if (order <= 0) {
                both->high = bound->high;
                both->high_open = bound->high_open || (order == 0 && old->high_open);
            }
        }
        order = both->low == NULL || both->high == NULL ? -1 : rn_decimal_compare(both->low, both->high);
        if (order < 0 || (order == 0 && !both->low_open && !both->high_open))
            kept = both;
    }
    c->intervals = kept;
    if (kept == NULL)
        c->kinds &= ~(uint32_t)RN_KIND_NUMBER;
    return c->kinds != 0;
}

/* All but one number. */
static void cut_out(struct rn_schema_maker *m, struct rn_case *c, const struct rn_decimal *number)
{
    struct rn_case below = *c, above = *c;
    const struct rn_interval *at;

    cut(m, &below, &(struct rn_interval){NULL, NULL, number, false, true});
    cut(m, &above, &(struct rn_interval){NULL, number, NULL, true, false});
    c->intervals = below.intervals;
    for (at = above.intervals; at != NULL; at = at->next) {
        struct rn_interval *copy = rn_arena_take(m->arena, 1, sizeof *copy);

        *copy = *at;
        copy->next = c->intervals;
        c->intervals = copy;
    }
    if (c->intervals == NULL)
        c->kinds &= ~(uint32_t)RN_KIND_NUMBER;
}

static void add_text(struct rn_schema_maker *m, struct rn_case *c, struct rn_text_rule rule)
{
    struct rn_text_rule *copy = rn_arena_take(m->arena, 1, sizeof *copy);

    *copy = rule;
    copy->next = c->texts;
    c->texts = copy;
}

static void not_value(struct rn_schema_maker *m, struct rn_case *c, const struct rn_schema *schema,
                      struct rn_value value)
{
    uint32_t kind = rn_schema_kind(value);

    if ((c->kinds & kind) == 0)
        return;
    if (kind == RN_KIND_STRING)
        add_text(m, c, (struct rn_text_rule){NULL, schema, value.string, RN_TEXT_IS, true});
    else if (kind == RN_KIND_ARRAY || kind == RN_KIND_OBJECT)
        rn_schema_refuse(m, schema, "const",
                         "an array or object that is negated here, by \"not\", \"if\" or \"oneOf\"");
    else if ((kind & RN_KIND_NUMBER) != 0)
        cut_out(m, c, rn_schema_decimal(m->arena, value));
    else
        c->kinds &= ~kind;
}

static void only_values(struct rn_schema_maker *m, struct rn_case *c, const struct rn_list *values)
{
    const struct rn_list *old = c->values;
    struct rn_list *both;
    size_t i, k;

    if (!c->has_values) {
        c->has_values = true;
        c->values = values;
        return;
    }
    both = rn_list_new(m->arena, 4);
    for (i = 0; i < old->n; i++) {
        for (k = 0; k < values->n && !rn_schema_equal(m, old->items[i], values->items[k]); k++)
            ;
        if (k < values->n)
            rn_list_push(m->arena, both, old->items[i]);
    }
    c->values = both;
}

bool rn_name_list_has(struct rn_schema_maker *m, const struct rn_name_list *list, const struct rn_str *name)
{
    for (; list != NULL; list = list->next) {
        rn_step(m->arena, 1);
        if (rn_str_same(list->name, name))
            return true;
    }
    return false;
}

static const struct rn_name_list *add_name(struct rn_schema_maker *m, const struct rn_name_list *list,
                                           const struct rn_name_list *name)
{
    struct rn_name_list *copy = rn_arena_take(m->arena, 1, sizeof *copy);

    *copy = *name;
    copy->next = list;
    return copy;
}

static const struct rn_clause *add_clause(struct rn_schema_maker *m, const struct rn_clause *list,
                                          const struct rn_schema *schema)
{
    struct rn_clause *clause = rn_arena_take(m->arena, 1, sizeof *clause);

    for (const struct rn_clause *at = list; at != NULL; at = at->next) {
        rn_step(m->arena, 1);
        if (at->schema == schema)
            return list;
    }
    *clause = (struct rn_clause){list, schema};
    return clause;
}

/* The same, put right behind the clause of the schema `behind`; NULL: in front of all. */
static const struct rn_clause *insert_clause(struct rn_schema_maker *m, const struct rn_clause *list,
                                             const struct rn_schema *behind, const struct rn_schema *schema)
{
    struct rn_clause *copy;

    if (list == NULL || list->schema == behind)
        return add_clause(m, list, schema);
    rn_step(m->arena, 1);
    if (list->schema == schema)
        return list;
    rn_enter(m->arena);
    copy = rn_arena_take(m->arena, 1, sizeof *copy);
    *copy = (struct rn_clause){insert_clause(m, list->next, behind, schema), list->schema};
    rn_leave(m->arena);
    return copy;
}

static const struct rn_broken *add_broken(struct rn_schema_maker *m, const struct rn_broken *list,
                                          const struct rn_schema *schema, const char *keyword)
{
    struct rn_broken *copy = rn_arena_take(m->arena, 1, sizeof *copy);

    *copy = (struct rn_broken){list, schema, keyword};
    return copy;
}

static void at_least(uint32_t *value, uint32_t least)
{
    *value = least > *value ? least : *value;
}

static void at_most(uint32_t *value, uint32_t most)
{
    *value = most < *value ? most : *value;
}

/* Adds what an atom says of objects. */
static void apply_object(struct rn_schema_maker *m, struct rn_case *c, const struct rn_atom *a)
{
    switch (a->kind) {
    case RN_ATOM_OBJECT:
        c->objects = insert_clause(m, c->objects, c->behind, a->schema);
        c->behind = a->schema;
        break;
    case RN_ATOM_REQUIRED:
        c->required = add_name(m, c->required, &a->name);
        break;
    case RN_ATOM_LACKS:
        c->lacking = add_name(m, c->lacking, &a->name);
        break;
    case RN_ATOM_EXTRA:
        c->extra = add_name(m, c->extra, &a->name);
        break;
    case RN_ATOM_NAMES:
        c->names = add_name(m, c->names, &a->name);
        break;
    case RN_ATOM_BROKEN:
        c->broken = add_broken(m, c->broken, a->schema, a->broken);
        c->kinds &= RN_KIND_OBJECT;
        break;
    default:
        if (a->count.least > c->min_properties)
            c->min_properties_of = a->schema;
        at_least(&c->min_properties, a->count.least);
        at_most(&c->max_properties, a->count.most);
    }
    if (a->kind == RN_ATOM_REQUIRED && rn_name_list_has(m, c->lacking, a->name.name))
        c->kinds &= ~(uint32_t)RN_KIND_OBJECT;
    if (a->kind == RN_ATOM_LACKS && rn_name_list_has(m, c->required, a->name.name))
        c->kinds &= ~(uint32_t)RN_KIND_OBJECT;
    if (c->min_properties > c->max_properties)
        c->kinds &= ~(uint32_t)RN_KIND_OBJECT;
}

static void apply_array(struct rn_schema_maker *m, struct rn_case *c, const struct rn_atom *a)
{
    if (a->kind == RN_ATOM_ARRAY) {
        c->arrays = add_clause(m, c->arrays, a->schema);
    } else if (a->kind == RN_ATOM_UNIQUE) {
        c->unique = a->schema;
    } else if (a->kind == RN_ATOM_ITEMS) {
        at_least(&c->min_items, a->count.least);
        at_most(&c->max_items, a->count.most);
    } else {
        struct rn_contains *copy = rn_arena_take(m->arena, 1, sizeof *copy);

        *copy = a->contains;
        copy->next = c->contains;
        c->contains = copy;
        if (a->contains.least > 0 && a->contains.to != RN_GRAMMAR_FOREVER)
            at_least(&c->min_items, a->contains.to); /* one item, which must be there */
    }
    if (c->min_items > c->max_items)
        c->kinds &= ~(uint32_t)RN_KIND_ARRAY;
}

/* False: nothing is left of the case. */
static bool apply(struct rn_schema_maker *m, struct rn_case *c, const struct rn_atom *a)
{
    size_t i;

    switch (a->kind) {
    case RN_ATOM_NEVER:
        return false;
    case RN_ATOM_KINDS:
        c->kinds &= a->kinds;
        break;
    case RN_ATOM_VALUES:
        only_values(m, c, a->values);
        break;
    case RN_ATOM_NOT_VALUES:
        for (i = 0; i < a->values->n; i++)
            not_value(m, c, a->schema, a->values->items[i]);
        break;
    case RN_ATOM_BOUND:
        cut(m, c, &a->bound);
        break;
    case RN_ATOM_MULTIPLE: {
        struct rn_multiple *copy = rn_arena_take(m->arena, 1, sizeof *copy);

        *copy = a->multiple;
        copy->next = c->multiples;
        c->multiples = copy;
        break;
    }
    case RN_ATOM_LENGTH:
        at_least(&c->min_length, a->count.least);
        at_most(&c->max_length, a->count.most);
        if (c->min_length > c->max_length)
            c->kinds &= ~(uint32_t)RN_KIND_STRING;
        break;
    case RN_ATOM_TEXT:
        add_text(m, c, a->text);
        break;
    case RN_ATOM_ARRAY:
    case RN_ATOM_ITEMS:
    case RN_ATOM_CONTAINS:
    case RN_ATOM_UNIQUE:
        apply_array(m, c, a);
        break;
    default:
        apply_object(m, c, a);
    }
    return c->kinds != 0 && (!c->has_values || c->values->n > 0);
}

/* ---- Literals ---- */

/* All atoms of a list before `next`. */
static const struct rn_atom *join(struct rn_schema_maker *m, const struct rn_atom *atoms, const struct rn_atom *next)
{
    const struct rn_atom *backward = NULL;

    for (; atoms != NULL; atoms = atoms->next)
        backward = rn_atom_add(m, backward, *atoms);
    for (; backward != NULL; backward = backward->next)
        next = rn_atom_add(m, next, *backward);
    return next;
}

/* What a schema says, or its negation. */
static const struct rn_atom *open_literal(struct rn_schema_maker *m, rn_literal literal, const struct rn_atom *next)
{
    const struct rn_schema *schema = m->schemas[literal / 2];
    const struct rn_branch *branches = NULL;
    bool negated = literal % 2 != 0;
    size_t i;

    if (schema->dict == NULL)
        return schema->truth != negated
                   ? next
                   : rn_atom_add(m, next, (struct rn_atom){.kind = RN_ATOM_NEVER, .schema = schema});
    for (i = schema->dict->n; i-- > 0;) {
        const struct rn_dict_entry *entry = &schema->dict->entries[i];
        char keyword[32] = "";
        const struct rn_atom *atoms;

        rn_step(m->arena, 1);
        if (entry->key.string->n >= sizeof keyword)
            continue;
        memcpy(keyword, entry->key.string->bytes, entry->key.string->n);
        atoms = rn_schema_atoms(m, schema, keyword, entry->value, negated);
        if (!negated)
            next = join(m, atoms, next);
        else if (atoms == NULL)
            return next; /* what cannot be enforced is left out: the negation may always hold */
        else if (atoms->kind != RN_ATOM_NEVER || atoms->next != NULL)
            branches = rn_branch_add(m, branches, atoms);
    }
    if (!negated)
        return next;
    if (branches == NULL)
        return rn_atom_add(m, next, (struct rn_atom){.kind = RN_ATOM_NEVER, .schema = schema});
    return rn_atom_add(m, next, (struct rn_atom){.kind = RN_ATOM_CHOICE, .schema = schema, .branches = branches});
}

const struct rn_literal_list *rn_schema_same(struct rn_schema_maker *m, struct rn_literals literals)
{
    const struct rn_schema *schema = literals.n == 1 ? m->schemas[literals.items[0] / 2] : NULL;
    const struct rn_atom *a;

    if (schema == NULL || schema->dict == NULL ||
        (rn_dict_at(rn_schema_dict(schema), "$ref").kind == RN_VALUE_UNDEFINED &&
         rn_dict_at(rn_schema_dict(schema), "allOf").kind == RN_VALUE_UNDEFINED))
        return NULL;
    a = open_literal(m, literals.items[0], NULL);
    return a != NULL && a->next == NULL && a->kind == RN_ATOM_LITERAL ? rn_literals_add(m, NULL, a->literal) : NULL;
}

/* Is it in the case already? Its opposite: *against. */
static bool was_seen(struct rn_schema_maker *m, const struct rn_literal_list *seen, rn_literal literal, bool *against)
{
    for (; seen != NULL; seen = seen->next) {
        rn_step(m->arena, 1);
        *against = *against || seen->literal == (literal ^ 1);
        if (seen->literal == literal)
            return true;
    }
    return false;
}

static void found(struct solving *s, const struct rn_case *c)
{
    struct rn_case_list *item = rn_arena_take(s->m->arena, 1, sizeof *item);

    if (++s->n > CASES_MOST)
        rn_raise(s->m->arena, RUNNEL_INVALID, "the schema at \"%s\" has more than %u cases, by \"anyOf\" and its like",
                 rn_schema_pointer(s->m, s->m->schemas[c->seen->literal / 2]), CASES_MOST);
    *item = (struct rn_case_list){NULL, *c};
    *s->end = item;
    s->end = &item->next;
}

static void solve(struct solving *s, struct rn_case c, const struct rn_atom *atoms, const struct waiting *choices);

/* All is said but which property breaks a keyword. */
static void solve_broken(struct solving *s, struct rn_case c)
{
    const struct rn_broken *broken = c.broken;
    const struct rn_branch *ways;

    c.broken = broken->next;
    if (c.has_values) { /* each of them is tried (rn_schema_case) */
        c.broken = NULL;
        found(s, &c);
        return;
    }
    if (!rn_schema_ways_to_break(s->m, &c, broken, &ways))
        solve(s, c, NULL, NULL);
    for (; ways != NULL; ways = ways->next)
        solve(s, c, ways->atoms, NULL);
}

static void solve(struct solving *s, struct rn_case c, const struct rn_atom *atoms, const struct waiting *choices)
{
    struct rn_schema_maker *m = s->m;
    const struct rn_branch *branch;

    rn_enter(m->arena);
    for (; atoms != NULL;) {
        const struct rn_atom *a = atoms;
        bool against = false;

        rn_step(m->arena, 1);
        atoms = atoms->next;
        if (a->kind == RN_ATOM_CHOICE) {
            struct waiting *w = rn_arena_take(m->arena, 1, sizeof *w);

            *w = (struct waiting){choices, a, c.behind};
            choices = w;
        } else if (a->kind == RN_ATOM_LITERAL) {
            if (!was_seen(m, c.seen, a->literal, &against)) {
                c.seen = rn_literals_add(m, c.seen, a->literal);
                atoms = open_literal(m, a->literal, atoms);
            }
            if (against)
                goto dead;
        } else if (!apply(m, &c, a)) {
            goto dead;
        }
    }
    if (choices == NULL && c.broken != NULL) {
        solve_broken(s, c);
    } else if (choices == NULL) {
        found(s, &c);
    } else {
        c.behind = choices->behind;
        for (branch = choices->choice->branches; branch != NULL; branch = branch->next)
            solve(s, c, branch->atoms, choices->next);
    }
dead:
    rn_leave(m->arena);
}

struct rn_case_list *rn_schema_solve(struct rn_schema_maker *m, struct rn_literals literals)
{
    static const struct rn_interval all;
    const struct rn_schema *one_of = m->one_of;
    struct rn_case c = {.kinds = RN_KINDS_ALL,
                        .intervals = &all,
                        .max_length = RN_GRAMMAR_FOREVER,
                        .max_items = RN_GRAMMAR_FOREVER,
                        .max_properties = RN_GRAMMAR_FOREVER};
    const struct rn_atom *atoms = NULL;
    struct solving s = {m, NULL, NULL, 0};

    s.end = &s.found;
    for (uint32_t i = literals.n; i-- > 0;)
        atoms = rn_atom_add(m, atoms, (struct rn_atom){.kind = RN_ATOM_LITERAL, .literal = literals.items[i]});
    solve(&s, c, atoms, NULL);
    m->one_of = one_of;
    return s.found;
}

/* ---- Empty sets ---- */

static bool strings_empty(const struct rn_case *c)
{
    return c->min_length > c->max_length;
}

/* Does one of the schemas list its values? */
static bool is_listed(struct rn_schema_maker *m, const struct rn_literal_list *goal)
{
    for (; goal != NULL; goal = goal->next) {
        const struct rn_schema *schema = m->schemas[goal->literal / 2];

        if (schema->dict != NULL && goal->literal % 2 == 0 &&
            (rn_dict_at(rn_schema_dict(schema), "const").kind != RN_VALUE_UNDEFINED ||
             rn_dict_at(rn_schema_dict(schema), "enum").kind != RN_VALUE_UNDEFINED))
            return true;
    }
    return false;
}

/* listed: of properties whose values are listed; false: of the others. */
static bool one_required_empty(struct rn_schema_maker *m, const struct rn_case *c, uint32_t depth, bool listed)
{
    struct rn_value looked_at = {.kind = RN_VALUE_DICT, .dict = rn_dict_new(m->arena)};
    const struct rn_name_list *name;

    for (name = c->required; name != NULL; name = name->next) {
        const struct rn_literal_list *goal;

        rn_step(m->arena, 1);
        if (rn_dict_get(looked_at, name->name->bytes, name->name->n).kind != RN_VALUE_UNDEFINED)
            continue;
        rn_dict_set(m->arena, looked_at.dict, rn_string_value(name->name), rn_bool(true));
        goal = rn_schema_property(m, c, name->name);
        if (is_listed(m, goal) != listed)
            continue;
        if (rn_literals_false(goal) || !rn_schema_name_allowed(m, c, name->name))
            return true;
        if (goal != NULL && depth < EMPTY_DEPTH && rn_schema_empty(m, rn_literals_of(m, goal), depth + 1))
            return true;
    }
    return false;
}

/* The listed ones first: most kinds of objects are told apart by a name of their kind, and at no cost. */
static bool required_empty(struct rn_schema_maker *m, const struct rn_case *c, uint32_t depth)
{
    return one_required_empty(m, c, depth, true) || one_required_empty(m, c, depth, false);
}

static bool case_empty(struct rn_schema_maker *m, struct rn_literals literals, const struct rn_case *c, uint32_t depth)
{
    uint32_t kinds = c->kinds;
    size_t i;

    for (i = 0; c->has_values && i < c->values->n; i++)
        if (rn_schema_all_hold(m, literals, c->values->items[i]))
            return false;
    if (c->has_values)
        return true;
    if (strings_empty(c))
        kinds &= ~(uint32_t)RN_KIND_STRING;
    if (kinds == RN_KIND_OBJECT)
        return required_empty(m, c, depth);
    return kinds == 0;
}

bool rn_schema_empty(struct rn_schema_maker *m, struct rn_literals literals, uint32_t depth)
{
    struct rn_case_list *at;

    for (at = rn_schema_solve(m, literals); at != NULL; at = at->next)
        if (!case_empty(m, literals, &at->the, depth))
            return false;
    return true;
}
