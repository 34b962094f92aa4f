/* Arrays of JSON Schema: see parts.h.
 *
 * Without contains and uniqueItems: the first items one behind the other, then one repeated. With them an automaton
 * whose states are rules: how many items have been read, as far as that matters, and how many of them matched each
 * contains; or which values of a finite set have been there. */
#include <string.h>

#include "sampling/grammar/schema/parts.h"

#define CONTAINS_MOST 3u
#define VALUES_MOST 10u /* of unique items: each set of them is a rule */
#define RANGE_MOST 100  /* integers that are tried one by one for whether they are such values */
#define DIGITS_MOST 18  /* of a bound of theirs: below 2^63, as is the distance of two */
#define STATES_MOST 10000u
#define PAIRS_MOST 12u /* items of which all pairs are compared */

static uint32_t prefix_of(const struct rn_schema *schema, const struct rn_list **list, struct rn_value *rest)
{
    struct rn_value prefix = rn_dict_at(rn_schema_dict(schema), "prefixItems"),
                    items = rn_dict_at(rn_schema_dict(schema), "items");

    *rest = items;
    if (prefix.kind != RN_VALUE_LIST && items.kind == RN_VALUE_LIST) {
        prefix = items;
        *rest = rn_dict_at(rn_schema_dict(schema), "additionalItems");
    }
    if (rest->kind == RN_VALUE_UNDEFINED && rn_schema_unevaluated_plain(schema))
        *rest = rn_dict_at(rn_schema_dict(schema), "unevaluatedItems");
    *list = prefix.kind == RN_VALUE_LIST ? prefix.list : NULL;
    return *list != NULL ? (uint32_t)(*list)->n : 0;
}

const struct rn_literal_list *rn_schema_item(struct rn_schema_maker *m, const struct rn_case *the, uint32_t i)
{
    const struct rn_literal_list *goal = NULL;
    const struct rn_clause *clause;

    for (clause = the->arrays; clause != NULL; clause = clause->next) {
        const struct rn_list *list;
        struct rn_value rest, value;

        value = i < prefix_of(clause->schema, &list, &rest) ? list->items[i] : rest;
        if (value.kind != RN_VALUE_UNDEFINED)
            goal = rn_literals_add(m, goal, rn_literal_of(rn_schema_of(m, value, clause->schema, "items"), false));
    }
    return goal;
}

/* ---- In order ---- */

static rn_expr comma(struct rn_schema_maker *m)
{
    return rn_grammar_sequence(m->g, (rn_expr[]){rn_schema_literal_text(m, ","), rn_schema_white(m)}, 2);
}

static rn_expr item(struct rn_schema_maker *m, const struct rn_literal_list *goal, bool first)
{
    rn_expr value;

    if (m->in_tags)
        return rn_schema_tagged(m, goal, first);
    value = rn_grammar_sequence(m->g, (rn_expr[]){rn_schema_goal(m, goal), rn_schema_white(m)}, 2);
    return first ? value : rn_grammar_sequence(m->g, (rn_expr[]){comma(m), value}, 2);
}

/* All items from `from` on, which are alike. */
static rn_expr rest_of(struct rn_schema_maker *m, const struct rn_case *the, uint32_t from)
{
    uint32_t least = the->min_items > from ? the->min_items - from : 0;
    uint32_t most = the->max_items == RN_GRAMMAR_FOREVER ? RN_GRAMMAR_FOREVER : the->max_items - from;
    const struct rn_literal_list *goal = rn_schema_item(m, the, from);
    rn_expr first, more;

    if (most == 0 || rn_literals_false(goal))
        return least > 0 ? rn_grammar_alternatives(m->g, NULL, 0) : rn_grammar_empty(m->g);
    if (from > 0)
        return rn_grammar_repeat(m->g, item(m, goal, false), least, most);
    more = rn_grammar_repeat(m->g, item(m, goal, false), least > 0 ? least - 1 : 0,
                             most == RN_GRAMMAR_FOREVER ? most : most - 1);
    first = rn_grammar_sequence(m->g, (rn_expr[]){item(m, goal, true), more}, 2);
    return least > 0 ? first : rn_schema_optional(m, first);
}

static rn_expr plain(struct rn_schema_maker *m, const struct rn_case *the, uint32_t prefix)
{
    rn_expr e;
    uint32_t i;

    if (prefix > the->max_items)
        prefix = the->max_items;
    e = rest_of(m, the, prefix);
    for (i = prefix; i-- > 0;) {
        const struct rn_literal_list *goal = rn_schema_item(m, the, i);

        if (i % 16 == 15) { /* so that expressions are not too deep */
            uint32_t rule = rn_schema_rule(m);

            rn_grammar_define(m->g, rule, e);
            e = rn_grammar_call(m->g, rule);
        }
        e = rn_literals_false(goal) ? rn_grammar_alternatives(m->g, NULL, 0)
                                    : rn_grammar_sequence(m->g, (rn_expr[]){item(m, goal, i == 0), e}, 2);
        if (i >= the->min_items)
            e = rn_schema_optional(m, e);
        rn_schema_look(m);
    }
    return e;
}

/* ---- contains ---- */

struct counting {
    struct rn_schema_maker *m;
    const struct rn_case *the;
    const struct rn_contains *contains[CONTAINS_MOST];
    uint32_t caps[CONTAINS_MOST]; /* of the counts */
    uint32_t n, cap;              /* of the items */
    uint32_t *rules;              /* [states]; UINT32_MAX: not asked for */
    uint32_t *queue, n_queue;
};

static uint32_t state_of(const struct counting *k, uint32_t i, const uint32_t *counts)
{
    uint32_t at = i;

    for (uint32_t c = 0; c < k->n; c++)
        at = at * (k->caps[c] + 1) + counts[c];
    return at;
}

static rn_expr use_state(struct counting *k, uint32_t i, const uint32_t *counts)
{
    uint32_t at = state_of(k, i, counts);

    if (k->rules[at] == UINT32_MAX) {
        k->rules[at] = rn_schema_rule(k->m);
        k->queue[k->n_queue++] = at;
    }
    return rn_grammar_call(k->m->g, k->rules[at]);
}

/* The next item where it matches those contains that are in the mask; RN_GRAMMAR_NONE: there is no such item. */
static rn_expr counted_item(struct counting *k, uint32_t i, const uint32_t *counts, uint32_t mask)
{
    const struct rn_literal_list *goal = rn_schema_item(k->m, k->the, i);
    uint32_t next[CONTAINS_MOST], c;

    for (c = 0; c < k->n; c++) {
        const struct rn_contains *contains = k->contains[c];
        bool here = contains->from <= i && i < contains->to, matches = (mask >> c & 1) != 0;
        bool matters = here && (contains->most != RN_GRAMMAR_FOREVER || counts[c] < contains->least);

        next[c] = counts[c];
        if (matches && (!matters || counts[c] >= contains->most))
            return RN_GRAMMAR_NONE;
        if (matches)
            next[c]++;
        if (matches || (here && contains->most != RN_GRAMMAR_FOREVER))
            goal = rn_literals_add(k->m, goal, contains->literal ^ !matches);
        next[c] = next[c] > k->caps[c] ? k->caps[c] : next[c];
    }
    if (rn_literals_false(goal))
        return RN_GRAMMAR_NONE;
    return rn_grammar_sequence(k->m->g,
                               (rn_expr[]){item(k->m, goal, i == 0), use_state(k, i < k->cap ? i + 1 : i, next)}, 2);
}

static rn_expr counted_state(struct counting *k, uint32_t i, const uint32_t *counts)
{
    rn_expr parts[(1 << CONTAINS_MOST) + 1];
    bool ends = i >= k->the->min_items;
    uint32_t n = 0, c, mask;

    for (c = 0; c < k->n; c++)
        ends = ends && counts[c] >= k->contains[c]->least;
    if (ends)
        parts[n++] = rn_grammar_empty(k->m->g);
    for (mask = 0; mask < 1u << k->n && i < k->the->max_items; mask++) {
        rn_expr e = counted_item(k, i, counts, mask);

        n += (parts[n] = e) != RN_GRAMMAR_NONE;
    }
    rn_schema_look(k->m);
    return rn_grammar_alternatives(k->m->g, parts, n);
}

/* How many items are told apart, and how many states that makes; refuses too many. */
static uint64_t count_states(struct counting *k, uint32_t prefix)
{
    uint64_t states;
    uint32_t c;

    k->cap = prefix > k->the->min_items ? prefix : k->the->min_items;
    k->cap = k->cap > 1 ? k->cap : 1; /* a comma stands before all but the first */
    if (k->the->max_items != RN_GRAMMAR_FOREVER && k->the->max_items > k->cap)
        k->cap = k->the->max_items;
    for (c = 0; c < k->n; c++) {
        const struct rn_contains *contains = k->contains[c];

        k->cap = contains->from > k->cap ? contains->from : k->cap;
        if (contains->to != RN_GRAMMAR_FOREVER && contains->to > k->cap)
            k->cap = contains->to;
        k->caps[c] = contains->most != RN_GRAMMAR_FOREVER ? contains->most : contains->least;
    }
    for (states = (uint64_t)k->cap + 1, c = 0; c < k->n && states <= STATES_MOST; c++)
        states *= (uint64_t)k->caps[c] + 1;
    if (states > STATES_MOST)
        rn_raise(k->m->arena, RUNNEL_UNSUPPORTED, "\"contains\" at \"%s\" cannot be enforced: its counts are too high",
                 rn_schema_pointer(k->m, k->contains[0]->schema));
    return states;
}

static rn_expr counted(struct rn_schema_maker *m, const struct rn_case *the, uint32_t prefix)
{
    struct counting k = {.m = m, .the = the};
    const struct rn_contains *contains;
    uint32_t counts[CONTAINS_MOST] = {0}, c, i;
    uint64_t states;
    rn_expr e;

    for (contains = the->contains; contains != NULL; contains = contains->next) {
        if (k.n == CONTAINS_MOST)
            rn_raise(m->arena, RUNNEL_UNSUPPORTED,
                     "\"contains\" at \"%s\" cannot be enforced: more than %u of one array",
                     rn_schema_pointer(m, contains->schema), CONTAINS_MOST);
        k.contains[k.n++] = contains;
    }
    states = count_states(&k, prefix);
    k.rules = rn_arena_take(m->arena, states, sizeof *k.rules);
    k.queue = rn_arena_take(m->arena, states, sizeof *k.queue);
    memset(k.rules, 0xff, states * sizeof *k.rules);
    e = use_state(&k, 0, counts);
    for (i = 0; i < k.n_queue; i++) {
        uint32_t at = k.queue[i];

        for (c = k.n; c-- > 0; at /= k.caps[c] + 1)
            counts[c] = at % (k.caps[c] + 1);
        rn_grammar_define(m->g, k.rules[k.queue[i]], counted_state(&k, at, counts));
    }
    return e;
}

/* ---- uniqueItems ---- */

/* What stands in front of the point; false: more digits than sure fit. */
static bool whole_part(const struct rn_decimal *number, int64_t *whole)
{
    *whole = 0;
    for (uint32_t i = 0; i < number->n_int && i < DIGITS_MOST; i++)
        *whole = 10 * *whole + number->digits[i];
    *whole = number->negative ? -*whole : *whole;
    return number->n_int <= DIGITS_MOST;
}

/* All integers that the bounds of a case allow are in low..high, with few others. False: they may be too many. */
static bool integers_of(const struct rn_case *the, int64_t *low, int64_t *high)
{
    int64_t whole;

    *low = INT64_MIN;
    *high = INT64_MAX;
    for (const struct rn_interval *at = the->intervals; at != NULL; at = at->next) {
        if (at->low != NULL && !whole_part(at->low, &whole))
            return false;
        if (at->low != NULL && *low < whole)
            *low = whole;
        if (at->high != NULL && !whole_part(at->high, &whole))
            return false;
        if (at->high != NULL && *high > whole)
            *high = whole;
    }
    return *low != INT64_MIN && *high != INT64_MAX && *high - *low < RANGE_MOST;
}

/* The values of a case, where they are few, and others that the goal forbids; NULL: they are not few. */
static const struct rn_list *values_of(struct rn_schema_maker *m, const struct rn_case *the)
{
    uint32_t kinds = the->kinds;
    struct rn_list *values;
    int64_t i, low = 0, high = -1;

    if (the->has_values)
        return the->values;
    if ((kinds & (RN_KIND_FRACTION | RN_KIND_STRING | RN_KIND_ARRAY | RN_KIND_OBJECT)) != 0 ||
        ((kinds & RN_KIND_INTEGER) != 0 && !integers_of(the, &low, &high)))
        return NULL;
    values = rn_list_new(m->arena, 3);
    if ((kinds & RN_KIND_NULL) != 0)
        rn_list_push(m->arena, values, (struct rn_value){.kind = RN_VALUE_NONE});
    for (i = 0; i < 2; i++)
        if ((kinds & (i == 0 ? RN_KIND_FALSE : RN_KIND_TRUE)) != 0)
            rn_list_push(m->arena, values, (struct rn_value){.kind = RN_VALUE_BOOL, .boolean = i == 1});
    for (i = low; i <= high; i++)
        rn_list_push(m->arena, values, rn_int(i));
    return values;
}

/* Adds the values that a goal has, where they are few; false: they are not. */
static bool add_values(struct rn_schema_maker *m, struct rn_literals goal, struct rn_list *values)
{
    const struct rn_case_list *at;
    size_t i, k;

    for (at = rn_schema_solve(m, goal); at != NULL; at = at->next) {
        const struct rn_list *own = values_of(m, &at->the);

        if (own == NULL)
            return false;
        for (i = 0; i < own->n; i++) {
            for (k = 0; k < values->n && !rn_schema_equal(m, values->items[k], own->items[i]); k++)
                ;
            if (k < values->n || !rn_schema_all_hold(m, goal, own->items[i]))
                continue;
            if (values->n == VALUES_MOST)
                return false;
            rn_list_push(m->arena, values, own->items[i]);
        }
    }
    return true;
}

struct unique {
    struct rn_schema_maker *m;
    const struct rn_case *the;
    const struct rn_list *values;
    uint32_t *rules; /* [sets of values]; UINT32_MAX: not asked for */
    uint32_t *queue, n_queue;
};

static rn_expr use_set(struct unique *u, uint32_t set)
{
    if (u->rules[set] == UINT32_MAX) {
        u->rules[set] = rn_schema_rule(u->m);
        u->queue[u->n_queue++] = set;
    }
    return rn_grammar_call(u->m->g, u->rules[set]);
}

/* Behind the values of a set, in any order. */
static rn_expr unique_state(struct unique *u, uint32_t set)
{
    uint32_t i = (uint32_t)__builtin_popcount(set), n = 0, v;
    struct rn_literals goal = rn_literals_of(u->m, rn_schema_item(u->m, u->the, i));
    rn_expr parts[VALUES_MOST + 1];

    if (i >= u->the->min_items)
        parts[n++] = rn_grammar_empty(u->m->g);
    for (v = 0; v < u->values->n && i < u->the->max_items; v++) {
        rn_expr own[4] = {0};
        uint32_t k = 0;

        if ((set >> v & 1) != 0 || !rn_schema_all_hold(u->m, goal, u->values->items[v]))
            continue;
        if (i > 0)
            own[k++] = comma(u->m);
        own[k++] = rn_schema_value(u->m, u->values->items[v]);
        own[k++] = rn_schema_white(u->m);
        own[k++] = use_set(u, set | 1u << v);
        parts[n++] = rn_grammar_sequence(u->m->g, own, k);
    }
    rn_schema_look(u->m);
    return rn_grammar_alternatives(u->m->g, parts, n);
}

static rn_expr unique_values(struct rn_schema_maker *m, const struct rn_case *the, const struct rn_list *values)
{
    struct unique u = {m, the, values, NULL, NULL, 0};
    uint32_t sets = 1u << values->n, i;
    rn_expr e;

    u.rules = rn_arena_take(m->arena, sets, sizeof *u.rules);
    u.queue = rn_arena_take(m->arena, sets, sizeof *u.queue);
    memset(u.rules, 0xff, sets * sizeof *u.rules);
    e = use_set(&u, 0);
    for (i = 0; i < u.n_queue; i++)
        rn_grammar_define(m->g, u.rules[u.queue[i]], unique_state(&u, u.queue[i]));
    return e;
}

/* No two of the items can be equal, whatever they are. */
static bool apart(struct rn_schema_maker *m, const struct rn_case *the)
{
    uint32_t i, k;

    if (the->max_items > PAIRS_MOST)
        return false;
    for (i = 0; i < the->max_items; i++) {
        for (k = 0; k < i; k++) {
            const struct rn_literal_list *both = rn_schema_item(m, the, i), *other = rn_schema_item(m, the, k);

            for (; other != NULL; other = other->next)
                both = rn_literals_add(m, both, other->literal);
            if (!rn_schema_empty(m, rn_literals_of(m, both), 0))
                return false;
        }
    }
    return true;
}

static rn_expr unique(struct rn_schema_maker *m, const struct rn_case *the, uint32_t prefix)
{
    struct rn_list *values = rn_list_new(m->arena, VALUES_MOST);
    bool finite = the->contains == NULL;
    uint32_t i;

    if (apart(m, the))
        return the->contains != NULL ? counted(m, the, prefix) : plain(m, the, prefix);
    for (i = 0; i <= prefix && i < the->max_items && finite; i++)
        finite = add_values(m, rn_literals_of(m, rn_schema_item(m, the, i)), values);
    if (finite)
        return unique_values(m, the, values);
    rn_schema_refuse(m, the->unique, "uniqueItems", "the items have too many values");
    return the->contains != NULL ? counted(m, the, prefix) : plain(m, the, prefix);
}

/* ---- Arrays ---- */

static void check_count(struct rn_schema_maker *m, struct rn_case *the)
{
    bool most = the->max_items > RN_SCHEMA_COUNT_MOST && the->max_items != RN_GRAMMAR_FOREVER;

    if (the->min_items <= RN_SCHEMA_COUNT_MOST && !most)
        return;
    if (!m->options.allow_unenforced)
        rn_raise(m->arena, RUNNEL_UNSUPPORTED, "\"%s\" at \"%s\" cannot be enforced: it is %u; at most %u",
                 most ? "maxItems" : "minItems", rn_schema_where(m, the, most ? "maxItems" : "minItems"),
                 most ? the->max_items : the->min_items, RN_SCHEMA_COUNT_MOST);
    if (most)
        the->max_items = RN_GRAMMAR_FOREVER;
    if (the->min_items > RN_SCHEMA_COUNT_MOST)
        the->min_items = 0;
}

bool rn_schema_items_plain(const struct rn_case *the)
{
    const struct rn_clause *clause;
    const struct rn_list *list;
    struct rn_value rest;

    for (clause = the->arrays; clause != NULL; clause = clause->next)
        if (prefix_of(clause->schema, &list, &rest) > 0)
            return false;
    return the->contains == NULL && (the->unique == NULL || the->max_items <= 1);
}

rn_expr rn_schema_items(struct rn_schema_maker *m, const struct rn_case *the)
{
    struct rn_case own = *the;
    const struct rn_clause *clause;
    uint32_t prefix = 0, i;

    for (clause = own.arrays; clause != NULL; clause = clause->next) {
        const struct rn_list *list;
        struct rn_value rest;

        i = prefix_of(clause->schema, &list, &rest);
        prefix = i > prefix ? i : prefix;
    }
    for (i = 0; i <= prefix; i++) /* no item where none is allowed */
        if (i < own.max_items && rn_literals_false(rn_schema_item(m, &own, i)))
            own.max_items = i;
    if (own.min_items > own.max_items)
        return rn_grammar_alternatives(m->g, NULL, 0);
    check_count(m, &own);
    if (own.unique != NULL && own.max_items > 1)
        return unique(m, &own, prefix);
    return own.contains != NULL ? counted(m, &own, prefix) : plain(m, &own, prefix);
}

rn_expr rn_schema_array(struct rn_schema_maker *m, const struct rn_case *the)
{
    return rn_grammar_sequence(m->g,
                               (rn_expr[]){rn_schema_literal_text(m, "["), rn_schema_white(m), rn_schema_items(m, the),
                                           rn_schema_literal_text(m, "]")},
                               4);
}
