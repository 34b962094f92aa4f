/* Objects of JSON Schema: see parts.h.
 *
 * The names that a schema lists are members, in its order; others stand behind them. States are rules: the member that
 * comes next (or, in any order, the set of those that were), whether a comma comes before it, and how many there were
 * where that is bounded.
 *
 * Names that are not listed are told apart by the patterns that they match: 2^n classes of n patterns, each with its
 * expression of names and the schemas of its values. */
#include <string.h>

#include "sampling/grammar/schema/parts.h"

#define PATTERNS_MOST 4u
#define STATES_MOST 40000u

struct member {
    rn_expr text; /* name, colon, value */
    bool required;
};

struct object {
    struct rn_schema_maker *m;
    const struct rn_case *the;
    struct member *members; /* [n] */
    uint32_t n;
    rn_expr others; /* RN_GRAMMAR_NONE: no others */
    bool any_order, counting;
    bool in_form;              /* members as m->form says */
    uint32_t least, most, cap; /* of members */
    uint32_t *rules;           /* [states] UINT32_MAX: not asked for */
    uint32_t *queue, n_queue;
};

/* ---- What holds of a name ---- */

enum rn_holds rn_schema_pattern_has(struct rn_schema_maker *m, const struct rn_schema *schema,
                                    const struct rn_str *pattern, const struct rn_str *name)
{
    struct rn_text_rule rule = {NULL, schema, pattern, RN_TEXT_PATTERN, false};

    return rn_schema_text_holds(m, &rule, name);
}

struct rn_value rn_schema_others(const struct rn_schema *schema)
{
    struct rn_value others = rn_dict_at(rn_schema_dict(schema), "additionalProperties");

    if (others.kind == RN_VALUE_UNDEFINED && rn_schema_unevaluated_plain(schema))
        others = rn_dict_at(rn_schema_dict(schema), "unevaluatedProperties");
    return others;
}

static const struct rn_literal_list *add_schema(struct rn_schema_maker *m, const struct rn_literal_list *goal,
                                                struct rn_value value, const struct rn_schema *of)
{
    return rn_literals_add(m, goal, rn_literal_of(rn_schema_of(m, value, of, "properties"), false));
}

const struct rn_literal_list *rn_schema_property(struct rn_schema_maker *m, const struct rn_case *the,
                                                 const struct rn_str *name)
{
    const struct rn_literal_list *goal = NULL;
    const struct rn_name_list *extra;
    const struct rn_clause *clause;
    size_t i;

    for (clause = the->objects; clause != NULL; clause = clause->next) {
        const struct rn_schema *schema = clause->schema;
        struct rn_value own = rn_dict_get(rn_dict_at(rn_schema_dict(schema), "properties"), name->bytes, name->n);
        struct rn_value patterns = rn_dict_at(rn_schema_dict(schema), "patternProperties");
        bool listed = own.kind != RN_VALUE_UNDEFINED;

        rn_step(m->arena, 1);
        if (listed)
            goal = add_schema(m, goal, own, schema);
        for (i = 0; patterns.kind == RN_VALUE_DICT && i < patterns.dict->n; i++) {
            enum rn_holds has = rn_schema_pattern_has(m, schema, patterns.dict->entries[i].key.string, name);

            listed = listed || has != RN_HOLDS_NOT;
            if (has == RN_HOLDS)
                goal = add_schema(m, goal, patterns.dict->entries[i].value, schema);
        }
        own = rn_schema_others(schema);
        if (!listed && own.kind != RN_VALUE_UNDEFINED)
            goal = add_schema(m, goal, own, schema);
    }
    for (extra = the->extra; extra != NULL; extra = extra->next) {
        rn_step(m->arena, 1);
        if (rn_str_same(extra->name, name))
            goal = rn_literals_add(m, goal, extra->literal);
    }
    return goal;
}

bool rn_schema_name_allowed(struct rn_schema_maker *m, const struct rn_case *the, const struct rn_str *name)
{
    const struct rn_name_list *at;

    if (rn_name_list_has(m, the->lacking, name))
        return false;
    for (at = the->names; at != NULL; at = at->next)
        if (!rn_schema_all_hold(m, (struct rn_literals){&at->literal, 1}, rn_string_value(name)))
            return false;
    return true;
}

/* ---- Members ---- */

static rn_expr member_text(struct rn_schema_maker *m, rn_expr name, const struct rn_literal_list *goal)
{
    rn_expr white = rn_schema_white(m);

    return rn_grammar_sequence(
        m->g, (rn_expr[]){name, white, rn_schema_literal_text(m, ":"), white, rn_schema_goal(m, goal), white}, 6);
}

static struct rn_value key_of(const struct rn_str *name)
{
    return rn_string_value(name);
}

/* Adds a name to those that are listed, once. Its value: is it required? */
static void list_name(struct rn_schema_maker *m, struct rn_dict *names, const struct rn_str *name, bool required)
{
    struct rn_value listed = {.kind = RN_VALUE_DICT, .dict = names};

    rn_step(m->arena, 1);
    if (required || rn_dict_get(listed, name->bytes, name->n).kind == RN_VALUE_UNDEFINED)
        rn_dict_set(m->arena, names, key_of(name), rn_bool(required));
}

static void list_clause(struct rn_schema_maker *m, struct rn_dict *names, const struct rn_clause *clause)
{
    struct rn_value properties;
    size_t i;

    if (clause == NULL)
        return;
    rn_enter(m->arena);
    list_clause(m, names, clause->next); /* the oldest first */
    rn_leave(m->arena);
    properties = rn_dict_at(rn_schema_dict(clause->schema), "properties");
    for (i = 0; properties.kind == RN_VALUE_DICT && i < properties.dict->n; i++)
        list_name(m, names, properties.dict->entries[i].key.string, false);
}

static void list_oldest_first(struct rn_schema_maker *m, struct rn_dict *names, const struct rn_name_list *list,
                              bool required)
{
    const struct rn_name_list *at, *backward = NULL;

    for (at = list; at != NULL; at = at->next) {
        struct rn_name_list *copy = rn_arena_take(m->arena, 1, sizeof *copy);

        *copy = *at;
        copy->next = backward;
        backward = copy;
    }
    for (; backward != NULL; backward = backward->next)
        list_name(m, names, backward->name, required);
}

/* The names that are listed, in the schema's order; those that are required and not listed behind them. */
static struct rn_dict *list_names(struct rn_schema_maker *m, const struct rn_case *the)
{
    const struct rn_name_list *lists[3] = {the->required, the->extra, the->lacking};
    struct rn_dict *names = rn_dict_new(m->arena);

    list_clause(m, names, the->objects);
    for (int i = 0; i < 3; i++)
        list_oldest_first(m, names, lists[i], i == 0);
    return names;
}

/* Of a member in a form: what is said where nothing can be written for it. `where`: what requires it. */
static void explain(struct object *o, const struct rn_str *name, rn_expr text, const char *where)
{
    const struct rn_str *tool = o->m->form->tool;
    struct rn_quote quote = rn_grammar_quote(name->bytes, name->n);

    if (text == RN_GRAMMAR_NONE)
        rn_raise(o->m->arena, RUNNEL_UNSUPPORTED,
                 "the name \"%s\" that is required at \"%s\" cannot be written in a call's format", quote.text, where);
    rn_grammar_reason(
        o->m->g, text,
        "the tool \"%s\": no value of \"%s\", which is required at \"%s\", can be written in a call's format",
        rn_grammar_quote(tool->bytes, tool->n).text, quote.text, where);
}

/* False: no object has all that is required. */
static bool make_members(struct object *o, const struct rn_dict *names)
{
    const char *where = o->in_form && o->the->required != NULL ? rn_schema_where(o->m, o->the, "required") : NULL;

    o->members = rn_arena_take(o->m->arena, names->n, sizeof *o->members);
    for (size_t i = 0; i < names->n; i++) {
        const struct rn_str *name = names->entries[i].key.string;
        const struct rn_literal_list *goal = rn_schema_property(o->m, o->the, name);
        bool required = names->entries[i].value.boolean;
        rn_expr text;

        rn_schema_look(o->m);
        if (rn_literals_false(goal) || !rn_schema_name_allowed(o->m, o->the, name)) {
            if (required)
                return false;
            continue;
        }
        text = o->in_form ? rn_schema_member(o->m, name, goal) : member_text(o->m, rn_schema_key(o->m, name), goal);
        rn_schema_look(o->m);
        if (o->in_form && required)
            explain(o, name, text, where);
        if (text == RN_GRAMMAR_NONE)
            continue;
        o->members[o->n].text = text;
        o->members[o->n++].required = required;
    }
    return true;
}

/* ---- Other names ---- */

struct classes {
    const struct rn_str *patterns[PATTERNS_MOST];
    const struct rn_schema *of[PATTERNS_MOST];
    uint32_t n;
};

static void add_patterns(struct rn_schema_maker *m, const struct rn_schema *schema, struct classes *classes)
{
    struct rn_value patterns = rn_dict_at(rn_schema_dict(schema), "patternProperties");
    uint32_t k;

    for (size_t i = 0; patterns.kind == RN_VALUE_DICT && i < patterns.dict->n; i++) {
        const struct rn_str *pattern = patterns.dict->entries[i].key.string;

        for (k = 0; k < classes->n && !rn_str_same(classes->patterns[k], pattern); k++)
            ;
        if (k == PATTERNS_MOST)
            rn_raise(m->arena, RUNNEL_UNSUPPORTED,
                     "\"patternProperties\" at \"%s\" cannot be enforced: more than %u patterns of one object",
                     rn_schema_pointer(m, schema), PATTERNS_MOST);
        classes->patterns[k] = pattern;
        classes->of[k] = schema;
        classes->n = k == classes->n ? k + 1 : classes->n;
    }
}

/* What holds of the value of a name that is not listed and matches the patterns of the mask. */
static const struct rn_literal_list *class_goal(struct rn_schema_maker *m, const struct rn_case *the,
                                                const struct classes *classes, uint32_t mask)
{
    const struct rn_literal_list *goal = NULL;
    const struct rn_clause *clause;
    uint32_t k;

    for (clause = the->objects; clause != NULL; clause = clause->next) {
        struct rn_value patterns = rn_dict_at(rn_schema_dict(clause->schema), "patternProperties");
        struct rn_value others = rn_schema_others(clause->schema);
        bool matched = false;

        for (k = 0; k < classes->n; k++) {
            const struct rn_str *pattern = classes->patterns[k];
            struct rn_value own = rn_dict_get(patterns, pattern->bytes, pattern->n);

            if ((mask >> k & 1) == 0 || own.kind == RN_VALUE_UNDEFINED)
                continue;
            matched = true;
            goal = add_schema(m, goal, own, clause->schema);
        }
        if (!matched && others.kind != RN_VALUE_UNDEFINED)
            goal = add_schema(m, goal, others, clause->schema);
    }
    return goal;
}

/* What propertyNames allows, as content of strings; RN_GRAMMAR_NONE: it says nothing. */
static rn_expr allowed_names(struct rn_schema_maker *m, const struct rn_case *the)
{
    const struct rn_literal_list *literals = NULL;
    const struct rn_name_list *at;
    struct rn_case_list *cases;
    rn_expr e;

    if (the->names == NULL)
        return RN_GRAMMAR_NONE;
    for (at = the->names; at != NULL; at = at->next)
        literals = rn_literals_add(m, literals, at->literal);
    e = rn_grammar_alternatives(m->g, NULL, 0);
    for (cases = rn_schema_solve(m, rn_literals_of(m, literals)); cases != NULL; cases = cases->next)
        if ((cases->the.kinds & RN_KIND_STRING) != 0)
            e = rn_grammar_alternatives(
                m->g, (rn_expr[]){e, rn_schema_content(m, &cases->the, rn_literals_of(m, literals))}, 2);
    rn_schema_look(m);
    return e;
}

/* The names of a class, without quotes. */
static rn_expr class_names(struct object *o, const struct classes *classes, uint32_t mask, const struct rn_dict *names,
                           rn_expr allowed)
{
    struct rn_grammar *g = o->m->g;
    rn_expr e = allowed, *known = rn_arena_take(o->m->arena, names->n + 1, sizeof *known);
    uint32_t k;
    size_t i;

    for (k = 0; k < 2 * classes->n; k++) { /* those that it matches first */
        struct rn_text_rule rule = {NULL, classes->of[k % classes->n], classes->patterns[k % classes->n],
                                    RN_TEXT_PATTERN, false};
        bool matches = (mask >> k % classes->n & 1) != 0;
        rn_expr own = matches == (k < classes->n) ? rn_schema_text_rule(o->m, &rule) : RN_GRAMMAR_NONE;

        if (own == RN_GRAMMAR_NONE)
            continue;
        if (e == RN_GRAMMAR_NONE)
            e = matches ? own : rn_grammar_without(g, rn_schema_plain(o->m, 0, RN_GRAMMAR_FOREVER), own);
        else
            e = matches ? rn_grammar_both(g, e, own) : rn_grammar_without(g, e, own);
    }
    if (e == RN_GRAMMAR_NONE)
        e = rn_schema_plain(o->m, 0, RN_GRAMMAR_FOREVER);
    for (i = 0; i < names->n; i++)
        known[i] = rn_schema_spelled(o->m, names->entries[i].key.string->bytes, names->entries[i].key.string->n, false);
    rn_schema_look(o->m);
    return names->n == 0 ? e : rn_grammar_without(g, e, rn_grammar_alternatives(g, known, names->n));
}

/* Does it say by "properties": {} that it has none? */
static bool lists_none(const struct rn_case *the)
{
    const struct rn_clause *clause = the->objects;

    while (clause != NULL && rn_dict_at(rn_schema_dict(clause->schema), "properties").kind != RN_VALUE_DICT)
        clause = clause->next;
    return clause != NULL;
}

/* The members that have other names, each one: o->others. */
static void make_others(struct object *o, const struct rn_dict *names)
{
    struct rn_schema_maker *m = o->m;
    struct classes classes = {.n = 0};
    rn_expr allowed = allowed_names(m, o->the), parts[1 << PATTERNS_MOST];
    const struct rn_clause *clause;
    bool said = names->n == 0 && !lists_none(o->the);
    uint32_t mask, n = 0;

    for (clause = o->the->objects; clause != NULL; clause = clause->next) {
        add_patterns(m, clause->schema, &classes);
        said = said || rn_schema_others(clause->schema).kind != RN_VALUE_UNDEFINED;
    }
    for (mask = m->options.closed && !said; mask < 1u << classes.n; mask++) {
        const struct rn_literal_list *goal = class_goal(m, o->the, &classes, mask);
        rn_expr name;

        if (rn_literals_false(goal))
            continue;
        if (classes.n == 0 && names->n == 0 && allowed == RN_GRAMMAR_NONE)
            name = rn_schema_any_string(m);
        else
            name = rn_schema_quoted(m, class_names(o, &classes, mask, names, allowed));
        parts[n++] = member_text(m, name, goal);
        rn_schema_look(m);
    }
    if (n > 0) {
        uint32_t rule = rn_schema_rule(m);

        rn_grammar_define(m->g, rule, rn_grammar_alternatives(m->g, parts, n));
        o->others = rn_grammar_call(m->g, rule);
    }
}

/* ---- States ---- */

static rn_expr use_state(struct object *o, uint32_t place, bool first, uint32_t count)
{
    uint32_t at = (place * 2 + first) * (o->cap + 1) + count;

    if (o->rules[at] == UINT32_MAX) {
        o->rules[at] = rn_schema_rule(o->m);
        o->queue[o->n_queue++] = at;
    }
    return rn_grammar_call(o->m->g, o->rules[at]);
}

static rn_expr with_comma(struct object *o, rn_expr member, bool first)
{
    if (first)
        return member;
    if (o->in_form)
        return rn_grammar_sequence(o->m->g, (rn_expr[]){rn_schema_between(o->m), member}, 2);
    return rn_grammar_sequence(o->m->g, (rn_expr[]){rn_schema_literal_text(o->m, ","), rn_schema_white(o->m), member},
                               3);
}

static uint32_t one_more(const struct object *o, uint32_t count)
{
    return count < o->cap ? count + 1 : count;
}

/* Is another member one too many? */
static bool is_full(const struct object *o, uint32_t count)
{
    return o->counting && o->most != RN_GRAMMAR_FOREVER && count >= o->most;
}

/* Behind all members that are listed. */
static rn_expr make_tail(struct object *o, bool first, uint32_t count)
{
    struct rn_grammar *g = o->m->g;
    rn_expr more;

    if (o->others == RN_GRAMMAR_NONE)
        return count >= o->least ? rn_grammar_empty(g) : rn_grammar_alternatives(g, NULL, 0);
    if (o->counting)
        return use_state(o, o->n, first, count);
    more = rn_grammar_repeat(g, with_comma(o, o->others, false), 0, RN_GRAMMAR_FOREVER);
    return first ? rn_schema_optional(o->m, rn_grammar_sequence(g, (rn_expr[]){o->others, more}, 2)) : more;
}

/* From member i on: those that are required, up to the next that is not. */
static rn_expr from_member(struct object *o, uint32_t i, bool first, uint32_t count)
{
    rn_expr *parts = rn_arena_take(o->m->arena, o->n - i + 1, sizeof *parts);
    uint32_t n = 0;

    for (; i < o->n && o->members[i].required; i++) {
        if (is_full(o, count))
            return rn_grammar_alternatives(o->m->g, NULL, 0);
        parts[n++] = with_comma(o, o->members[i].text, first);
        first = false;
        count = one_more(o, count);
    }
    parts[n++] = i == o->n ? make_tail(o, first, count) : use_state(o, i, first, count);
    return rn_grammar_sequence(o->m->g, parts, n);
}

static rn_expr ordered_state(struct object *o, uint32_t i, bool first, uint32_t count)
{
    struct rn_grammar *g = o->m->g;
    rn_expr parts[2];
    uint32_t n = 0;

    if (i == o->n) { /* others, counted */
        if (count >= o->least)
            parts[n++] = rn_grammar_empty(g);
        if (!is_full(o, count))
            parts[n++] = rn_grammar_sequence(
                g, (rn_expr[]){with_comma(o, o->others, first), use_state(o, i, false, one_more(o, count))}, 2);
        return rn_grammar_alternatives(g, parts, n);
    }
    if (!is_full(o, count))
        parts[n++] = rn_grammar_sequence(
            g, (rn_expr[]){with_comma(o, o->members[i].text, first), from_member(o, i + 1, false, one_more(o, count))},
            2);
    parts[n++] = from_member(o, i + 1, first, count);
    return rn_grammar_alternatives(g, parts, n);
}

static rn_expr any_order_state(struct object *o, uint32_t set, bool first, uint32_t count)
{
    struct rn_grammar *g = o->m->g;
    rn_expr parts[RN_SCHEMA_ANY_ORDER_MOST + 2];
    bool ends = count >= o->least;
    uint32_t n = 0, i;

    for (i = 0; i < o->n; i++) {
        if ((set >> i & 1) != 0)
            continue;
        ends = ends && !o->members[i].required;
        if (!is_full(o, count))
            parts[n++] = rn_grammar_sequence(g,
                                             (rn_expr[]){with_comma(o, o->members[i].text, first),
                                                         use_state(o, set | 1u << i, false, one_more(o, count))},
                                             2);
    }
    if (o->others != RN_GRAMMAR_NONE && !is_full(o, count))
        parts[n++] = rn_grammar_sequence(
            g, (rn_expr[]){with_comma(o, o->others, first), use_state(o, set, false, one_more(o, count))}, 2);
    if (ends)
        parts[n++] = rn_grammar_empty(g);
    return rn_grammar_alternatives(g, parts, n);
}

static rn_expr make_states(struct object *o)
{
    uint64_t places = o->any_order ? 1u << o->n : o->n + 1, states = places * 2 * ((uint64_t)o->cap + 1);
    uint32_t i;
    rn_expr e;

    if (states > STATES_MOST)
        rn_raise(o->m->arena, RUNNEL_INVALID,
                 "the object at \"%s\", with %u properties and counts up to %u, is too large",
                 rn_schema_where(o->m, o->the, "properties"), o->n, o->cap);
    o->rules = rn_arena_take(o->m->arena, states, sizeof *o->rules);
    o->queue = rn_arena_take(o->m->arena, states, sizeof *o->queue);
    memset(o->rules, 0xff, states * sizeof *o->rules);
    e = o->any_order ? use_state(o, 0, true, 0) : from_member(o, 0, true, 0);
    for (i = 0; i < o->n_queue; i++) {
        uint32_t at = o->queue[i], count = at % (o->cap + 1), place = at / (o->cap + 1);

        rn_grammar_define(o->m->g, o->rules[at],
                          o->any_order ? any_order_state(o, place / 2, place % 2 != 0, count)
                                       : ordered_state(o, place / 2, place % 2 != 0, count));
        rn_schema_look(o->m);
    }
    return e;
}

/* ---- Counts ---- */

/* Names that are not listed may be repeated, so that only one of them is known to be a property of its own. */
static void bound_count(struct object *o)
{
    uint32_t required = 0, i;

    o->least = o->the->min_properties;
    o->most = o->the->max_properties;
    for (i = 0; i < o->n; i++)
        required += o->members[i].required;
    if (o->others != RN_GRAMMAR_NONE && o->least > required + 1) {
        rn_schema_refuse(o->m, o->the->min_properties_of, "minProperties",
                         "names that the schema does not list may be repeated");
        o->least = required + 1;
    }
    if (o->least <= required)
        o->least = 0;
    if (o->others == RN_GRAMMAR_NONE && o->most >= o->n)
        o->most = RN_GRAMMAR_FOREVER;
    if (o->most > RN_SCHEMA_COUNT_MOST && o->most != RN_GRAMMAR_FOREVER) {
        if (!o->m->options.allow_unenforced)
            rn_raise(o->m->arena, RUNNEL_UNSUPPORTED,
                     "\"maxProperties\" at \"%s\" cannot be enforced: it is %u; at most %u",
                     rn_schema_where(o->m, o->the, "maxProperties"), o->most, RN_SCHEMA_COUNT_MOST);
        o->most = RN_GRAMMAR_FOREVER;
    }
    o->counting = o->least > 0 || o->most != RN_GRAMMAR_FOREVER;
    o->cap = !o->counting ? 0 : o->most != RN_GRAMMAR_FOREVER ? o->most : o->least;
}

/* What stands between the braces. */
static rn_expr make_object(struct object *o)
{
    bound_count(o);
    o->any_order = o->m->options.any_order && o->n <= RN_SCHEMA_ANY_ORDER_MOST && o->n > 1;
    if (o->least > o->cap && o->counting)
        return RN_GRAMMAR_NONE;
    return make_states(o);
}

rn_expr rn_schema_object(struct rn_schema_maker *m, const struct rn_case *the)
{
    struct object o = {.m = m, .the = the};
    struct rn_dict *names = list_names(m, the);
    rn_expr e;

    if (!make_members(&o, names))
        return rn_grammar_alternatives(m->g, NULL, 0);
    make_others(&o, names);
    e = make_object(&o);
    if (e == RN_GRAMMAR_NONE)
        return rn_grammar_alternatives(m->g, NULL, 0);
    return rn_grammar_sequence(
        m->g, (rn_expr[]){rn_schema_literal_text(m, "{"), rn_schema_white(m), e, rn_schema_literal_text(m, "}")}, 4);
}

rn_expr rn_schema_members(struct rn_schema_maker *m, const struct rn_case *the)
{
    struct object o = {.m = m, .the = the, .in_form = true};
    rn_expr e = make_members(&o, list_names(m, the)) ? make_object(&o) : RN_GRAMMAR_NONE;

    return e == RN_GRAMMAR_NONE ? rn_grammar_alternatives(m->g, NULL, 0) : e;
}
